"""The binary TCP protocol, as far as the benches in Python use it, and the CPU time and memory of a process."""

import atexit
import json
import os
import socket
import struct
import subprocess
import sys
import time
import urllib.request
from pathlib import Path

import numpy as np

from http_share import free_port


def resident_kb(pid):
    status = dict(line.split(":", 1) for line in Path(f"/proc/{pid}/status").read_text().splitlines())
    return int(status["VmRSS"].split()[0])


def cpu_seconds(pid):
    """The CPU seconds that the living threads of a process have used so far, in nanosecond resolution."""
    return sum(int((task / "schedstat").read_text().split()[0]) for task in Path(f"/proc/{pid}/task").iterdir()) / 1e9


def text(value, size):
    """A string or bytes with a length of `size` bytes before it."""
    encoded = value.encode() if isinstance(value, str) else value
    return len(encoded).to_bytes(size, "big") + encoded


def vector(components):
    return struct.pack(">I", len(components)) + components.astype(">f4").tobytes()


def matrix(tokens):
    rows = np.zeros(len(tokens), dtype=[("dim", ">u4"), ("vector", ">f4", tokens.shape[1])])
    rows["dim"], rows["vector"] = tokens.shape[1], tokens
    return struct.pack(">I", len(tokens)) + rows.tobytes()


def frame(operation, args):
    body = text(operation, 1) + text(args, 4)
    return text(body, 4)


class Nigh:
    """A server that the bench starts on one processor, and one connection to it."""

    def __init__(self, binary, directory=None, arguments=()):
        self.http, self.tcp = free_port(), free_port()
        command = [binary, "-http", f"127.0.0.1:{self.http}", "-tcp", f"127.0.0.1:{self.tcp}", "-cores", "1", *arguments]
        if directory:
            command += ["-data", directory]
        self.process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
                                        preexec_fn=lambda: os.sched_setaffinity(0, {0}))
        # A script that fails leaves no server behind.
        atexit.register(self.process.kill)
        for _ in range(200):
            try:
                self.socket = socket.create_connection(("127.0.0.1", self.tcp))
                break
            except OSError:
                time.sleep(0.05)
        else:
            sys.exit("the server does not answer")
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.reader = self.socket.makefile("rb")

    @property
    def pid(self):
        return self.process.pid

    def call(self, method, path, body=None):
        data = None if body is None else json.dumps(body).encode()
        request = urllib.request.Request(f"http://127.0.0.1:{self.http}{path}", data=data, method=method,
                                         headers={"Content-Type": "application/json"})
        with urllib.request.urlopen(request) as answer:
            return json.load(answer)

    def response(self):
        size = struct.unpack(">I", self.reader.read(4))[0]
        body = self.reader.read(size)
        if body[0] != 0:
            sys.exit(f"refused: {body[5:]}")
        return body[5:]

    def send(self, frames, depth):
        """Sends requests in pipelines of `depth`; yields the responses in order."""
        for first in range(0, len(frames), depth):
            part = frames[first : first + depth]
            self.socket.sendall(b"".join(part))
            for _ in part:
                yield self.response()

    def settle(self):
        """Waits until all background indexing tasks have finished."""
        quiet = 0
        while quiet < 3:
            time.sleep(0.2)
            running = [task for task in self.call("GET", "/v1/tasks")["tasks"] if task["state"] == "running"]
            quiet = 0 if running else quiet + 1

    def stop(self):
        self.process.terminate()
        self.process.wait()
        atexit.unregister(self.process.kill)
