"""What the benches in Python share: a server to ask, the corpus as files, binary bodies."""

import atexit
import gzip
import json
import os
import struct
import subprocess
import sys
import time
import urllib.request

import numpy as np

from http_share import free_port


class Server:
    """A server of its own, with its data in `directory` (`None`: in memory); on the processors `cores`, or all that this process may use."""

    def __init__(self, nigh, directory, cores=None, arguments=()):
        self.port = free_port()
        data = ["-data", directory] if directory else []
        self.process = subprocess.Popen([nigh, "-http", f"127.0.0.1:{self.port}", *data, *arguments],
                                        stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
                                        preexec_fn=cores and (lambda: os.sched_setaffinity(0, cores)))
        # A script that fails leaves no server behind.
        atexit.register(self.process.kill)
        for _ in range(200):
            try:
                self.call("GET", "/v1/ready")
                return
            except OSError:
                time.sleep(0.05)
        sys.exit("the server does not answer")

    def call(self, method, path, body=None, binary=None):
        data = binary if binary is not None else None if body is None else json.dumps(body).encode()
        kind = "application/octet-stream" if binary is not None else "application/json"
        request = urllib.request.Request(f"http://127.0.0.1:{self.port}{path}", data=data, method=method,
                                         headers={"Content-Type": kind})
        with urllib.request.urlopen(request) as answer:
            return json.load(answer)


def lines(path):
    with gzip.open(path, "rt", encoding="utf-8") as file:
        return [json.loads(line) for line in file]


def bulk_body(first_id, vectors, payloads):
    """An `RVB1` body of points with ascending ids; `payloads` is a list, empty for points that have none."""
    rows = np.zeros(len(vectors), dtype=[("id", ">u8"), ("vector", ">f4", vectors.shape[1])])
    rows["id"] = range(first_id, first_id + len(vectors))
    rows["vector"] = vectors
    body = b"RVB1" + struct.pack(">III", int(bool(payloads)), len(vectors), vectors.shape[1]) + rows.tobytes()
    encoded = (json.dumps(payload).encode() for payload in payloads)
    return body + b"".join(struct.pack(">I", len(payload)) + payload for payload in encoded)
