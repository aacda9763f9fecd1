#!/usr/bin/env python3
"""What a server that was killed does in the first seconds of its next start, and how many collections it opens how fast.

    cargo build --release -p nigh
    python3 benches/start.py [--points 1000000] [--dim 128] [--directory DIRECTORY]

`large` is one collection of so many points with payloads, whose server was killed with signal 9 while points were being upserted. Its files are
read once before each turn, so that they are in the page cache. A turn measures the milliseconds from the start of the process until `/v1/health`
answers, until a search is answered, and until `/v1/ready` says that all is open; and the slowest of the answers of `/v1/health` meanwhile. `dd` is
the time in which as many processes as there are cores read the same images. `small` is that many collections of two points each. With
`--directory` the data of `large` is kept there and used again. Written as one line of JSON per step.
"""

import argparse
import json
import os
import shutil
import socket
import struct
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

import numpy as np

from http_share import free_port
from server import Server, bulk_body

NAME = "start"
BATCH = 5000


def say(step, **figures):
    print(json.dumps({"step": step, **figures}), flush=True)


def payload(number):
    return {"group": number % 1000, "price": number % 5000 * 0.25, "is_new": number % 3 == 0, "name": f"item {number}"}


def build(server, name, args, rng):
    """A collection of `args.points` points with payloads, built in bulk."""
    server.call("POST", "/v1/collections", {"name": name, "config": {"dim": args.dim, "metric": "cosine"}})
    began = time.perf_counter()
    for first in range(0, args.points, BATCH):
        count = min(BATCH, args.points - first)
        vectors = rng.standard_normal((count, args.dim), dtype=np.float32)
        payloads = [payload(number) for number in range(first, first + count)]
        server.call("POST", f"/v1/collections/{name}/points/bulk", binary=bulk_body(first, vectors, payloads))
    server.call("POST", f"/v1/collections/{name}/points/bulk/build", {"workers": 0})
    say("built", points=args.points, seconds=round(time.perf_counter() - began, 1))


def make(args, directory):
    """One large collection, built in bulk, with an image and a log above it; the server is killed."""
    rng = np.random.default_rng(5)
    server = Server(args.nigh, directory)
    build(server, NAME, args, rng)
    vectors = rng.standard_normal((args.logged, args.dim), dtype=np.float32)
    for first in range(0, args.logged, 500):
        part = vectors[first:first + 500]
        payloads = [payload(number) for number in range(first, first + len(part))]
        body = bulk_body(first, part, payloads)
        # The second bit of the flags says upsert.
        server.call("POST", f"/v1/collections/{NAME}/points/batch", binary=body[:7] + bytes([body[7] | 2]) + body[8:])
    server.process.kill()
    server.process.wait()


def files(directory, pattern):
    return sorted(path for path in Path(directory).rglob(pattern) if path.is_file())


def warm(directory):
    total = 0
    for path in files(directory, "*"):
        with open(path, "rb", buffering=0) as file:
            while piece := file.read(1 << 24):
                total += len(piece)
    return total


def dd(directory):
    """Seconds in which as many processes as there are cores read the images."""
    images = max(files(directory, "*.img"), key=lambda path: path.stat().st_size)
    workers, blocks = os.cpu_count(), -(-images.stat().st_size // (4 << 20))
    each = -(-blocks // workers)
    began = time.perf_counter()
    running = [subprocess.Popen(["dd", f"if={images}", "of=/dev/null", "bs=4M", f"skip={each * n}", f"count={each}"],
                                stderr=subprocess.DEVNULL) for n in range(workers)]
    for process in running:
        process.wait()
    return time.perf_counter() - began


def ask(port, request):
    """The status of the answer to a request on a connection of its own; `None` if there is none."""
    try:
        with socket.create_connection(("127.0.0.1", port), timeout=20) as connection:
            connection.sendall(request)
            answer = b""
            while b"\r\n\r\n" not in answer:
                piece = connection.recv(65536)
                if not piece:
                    return None
                answer += piece
            return int(answer.split(b" ", 2)[1])
    except OSError:
        return None


def get(path):
    return f"GET {path} HTTP/1.1\r\nhost: start\r\nconnection: close\r\n\r\n".encode()


def search(dim):
    body = b"RVQ1" + struct.pack(">III", 0, 10, dim) + bytes(12) + struct.pack(f">{dim}f", *([0.1] * dim))
    head = (f"POST /v1/collections/{NAME}/points/search HTTP/1.1\r\nhost: start\r\nconnection: close\r\n"
            f"content-type: application/octet-stream\r\ncontent-length: {len(body)}\r\n\r\n")
    return head.encode() + body


def turn(args, directory, wanted):
    """Starts the server: milliseconds until each of the requests `wanted` is answered with 200, and the slowest health meanwhile."""
    port = free_port()
    began = time.perf_counter()
    process = subprocess.Popen([args.nigh, "-http", f"127.0.0.1:{port}", "-data", directory, *args.flag],
                               stdout=subprocess.DEVNULL, stderr=open(Path(directory).parent / "start.log", "w"))
    done, slowest = {}, 0.0

    def wait_for(name, request):
        while process.poll() is None:
            if ask(port, request) == 200:
                done[name] = round((time.perf_counter() - began) * 1000, 1)
                return
            time.sleep(0.002)

    waiting = [threading.Thread(target=wait_for, args=pair) for pair in wanted.items()]
    for thread in waiting:
        thread.start()
    while any(thread.is_alive() for thread in waiting):
        asked = time.perf_counter()
        if "health" in done and ask(port, get("/v1/health")) == 200:
            slowest = max(slowest, time.perf_counter() - asked)
        time.sleep(0.01)
    rss = int(next(line for line in open(f"/proc/{process.pid}/status") if line.startswith("VmRSS")).split()[1]) << 10
    return process, done, round(slowest * 1000, 1), rss


def large(args, directory):
    if not files(directory, "*.img"):
        make(args, directory)
    for number in range(args.turns):
        # Each turn starts from the directory as the kill has left it.
        copied = Path(args.scratch) / "copy"
        shutil.rmtree(copied, ignore_errors=True)
        shutil.copytree(directory, copied, copy_function=lambda a, b: subprocess.check_call(["cp", "--reflink=auto", a, b]))
        read = warm(copied)
        images = sum(path.stat().st_size for path in files(copied, "*.img"))
        seconds = dd(copied)
        wanted = {"health": get("/v1/health"), "ready": get("/v1/ready"), "search": search(args.dim)}
        process, done, slowest, rss = turn(args, str(copied), wanted)
        process.kill()
        process.wait()
        say("large", turn=number, image_bytes=images, all_bytes=read, dd_ms=round(seconds * 1000, 1), **{f"{k}_ms": v for k, v in done.items()},
            slowest_health_ms=slowest, allowed_ms=round(seconds * 1300 + 300, 1), ns_per_byte=round(done.get("search", 0) * 1e6 / images, 3), rss=rss)


def small(args):
    directory = str(Path(args.scratch) / "small")
    server = Server(args.nigh, directory)
    began = time.perf_counter()
    for number in range(args.small):
        server.call("POST", "/v1/collections", {"name": f"c{number}", "config": {"dim": 4, "metric": "l2"}})
        server.call("POST", f"/v1/collections/c{number}/points", {"id": 1, "vector": [number, 0, 0, 1]})
    say("made", collections=args.small, seconds=round(time.perf_counter() - began, 1))
    server.process.kill()
    server.process.wait()
    empty, _, _, base = turn(args, str(Path(args.scratch) / "empty"), {"health": get("/v1/health"), "ready": get("/v1/ready")})
    empty.kill()
    empty.wait()
    for number in range(args.turns):
        process, done, slowest, rss = turn(args, directory, {"health": get("/v1/health"), "ready": get("/v1/ready")})
        process.kill()
        process.wait()
        say("small", turn=number, collections=args.small, **{f"{k}_ms": v for k, v in done.items()}, slowest_health_ms=slowest,
            bytes_each=round((rss - base) / args.small))


def arguments(about, points, turns):
    """A parser with what benchmarks of one built collection are asked with."""
    parser = argparse.ArgumentParser(description=about, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--nigh", default="target/release/nigh", help="the server")
    parser.add_argument("--points", type=int, default=points)
    parser.add_argument("--dim", type=int, default=128)
    parser.add_argument("--turns", type=int, default=turns)
    parser.add_argument("--directory", help="keeps the data of the collection")
    parser.add_argument("--flag", action="append", default=[], help="a further flag of the server")
    return parser


def main():
    parser = arguments(__doc__, points=1_000_000, turns=3)
    parser.add_argument("--logged", type=int, default=5000, help="points that are upserted before the kill")
    parser.add_argument("--small", type=int, default=10_000, help="small collections; 0 leaves this part out")
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as scratch:
        args.scratch = scratch
        directory = args.directory or str(Path(scratch) / "large")
        if args.points:
            large(args, directory)
        if args.small:
            small(args)
    return 0


if __name__ == "__main__":
    sys.exit(main())
