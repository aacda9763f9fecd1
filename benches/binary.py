"""The binary TCP protocol, as far as the benches in Python use it, and the CPU time and memory of a process."""

import socket
import struct
import sys
import time
from pathlib import Path

import numpy as np

from http_share import free_port
from server import Server


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


def token_search(collection, query, k, candidates, condition=b""):
    """A search of a multi-vector collection; `condition` is a filter with its length before it."""
    args = text(collection, 1) + struct.pack(">II", k, candidates) + matrix(query)
    return frame("vector_mv_search", args + (bytes([2]) + condition if condition else b""))


def ids_of_documents(body):
    """The ids in the response to such a search."""
    count, at, ids = struct.unpack(">I", body[:4])[0], 4, []
    for _ in range(count):
        identifier, _, size = struct.unpack(">QfI", body[at : at + 16])
        ids.append(identifier)
        at += 16 + size
    return ids


class Nigh(Server):
    """A server that the bench starts on one processor, and one connection of the binary protocol to it."""

    def __init__(self, binary, directory=None, arguments=()):
        self.tcp = free_port()
        super().__init__(binary, directory, {0}, ["-tcp", f"127.0.0.1:{self.tcp}", "-cores", "1", *arguments])
        self.socket = socket.create_connection(("127.0.0.1", self.tcp))
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.reader = self.socket.makefile("rb")

    @property
    def pid(self):
        return self.process.pid

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
