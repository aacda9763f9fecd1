#!/usr/bin/env python3
"""The client for Python beside what is measured without it: how much of the server's rates a Python program gets.

    pip install ./clients/python redis
    NIGH_BINARY=target/release/nigh python3 benches/python_client.py --data DIRECTORY [--turns 5] [--points N] [--name NAME]

`--data` has `docs.f16.npy` and `queries.f16.npy`; without it random vectors take their place. Four parts, each with turns that alternate
between the client and what it is compared with, under one server that keeps nothing on disk; medians over turns are quoted:

* **Upload** of an array of numpy, point by point over the binary protocol, beside `nigh bench ingest` over the same; and over HTTP.
* **Batches**: 1,000 searches in one call, beside as many searches of a generator that only sends requests made beforehand and reads
  bytes, pipelined over one connection of the binary protocol, of whose searches the server carries out 16 at a time. Also beside such a
  generator over 8 connections of HTTP, as many as the server carries out searches of a batch at a time.
* **Single searches**: the time of a call beside that of such a generator with one connection. The difference is what the client takes.
* **Keys** in pipelines of 64 from one process, beside redis-py and Redis where both are installed.

The machine must do nothing else: on a shared one, the parts of the client and of the server compete for the same processors.
"""

import argparse
import json
import os
import shutil
import socket
import statistics
import subprocess
import tempfile
import threading
import time
from pathlib import Path

import numpy as np
from http_share import free_port
from report import RESULTS, machine, machine_text, write

from nigh import Client, Keys, PrivateServer
from nigh._bodies import query_frame
from nigh._vectors import searched
from nigh.keys import _framed

DIM = 384
K = 10


def corpus(args):
    if args.data is None:
        rng = np.random.default_rng(7)
        return rng.standard_normal((args.points, DIM)).astype(np.float32), rng.standard_normal((1000, DIM)).astype(np.float32)
    docs = np.load(args.data / "docs.f16.npy")[: args.points].astype(np.float32)
    return docs, np.load(args.data / "queries.f16.npy")[:1000].astype(np.float32)


def seconds(call):
    start = time.perf_counter()
    call()
    return time.perf_counter() - start


def alternating(turns, calls):
    """The times of each call, one turn of all after the other; the order is turned around each time."""
    times = {name: [] for name in calls}
    for turn in range(turns):
        for name in list(calls)[:: 1 if turn % 2 else -1]:
            times[name].append(calls[name]())
    return times


class Whole:
    """Sends bytes that were made beforehand over one connection, and reads answers up to the number of their bytes."""

    def __init__(self, address, sent, size):
        host, port = address.split(":")
        self.address, self.sent, self.size = (host, int(port)), sent, size

    def run(self):
        with socket.create_connection(self.address) as one:
            one.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

            def exchange():
                sender = threading.Thread(target=one.sendall, args=(self.sent,))
                sender.start()
                left = self.size
                while left > 0:
                    part = one.recv(1 << 18)
                    assert part, f"the server has closed the connection {left} bytes before the end"
                    left -= len(part)
                sender.join()

            return seconds(exchange)


class Generator:
    """Sends requests that were made beforehand over some connections, and reads their answers without looking at them."""

    def __init__(self, http, collection, queries, connections):
        host, port = http.split(":")
        self.requests = []
        for query in queries:
            frame = query_frame(query, K, None)
            head = f"POST /v1/collections/{collection}/points/search HTTP/1.1\r\nHost: x\r\nContent-Type: application/octet-stream\r\n"
            self.requests.append(f"{head}Content-Length: {len(frame)}\r\n\r\n".encode() + frame)
        self.address, self.connections = (host, int(port)), connections

    def _send(self, at):
        one = self.sockets[at]
        for request in self.requests[at :: len(self.sockets)]:
            one.sendall(request)
            answer, length = b"", None
            while length is None or len(answer) < length:
                part = one.recv(65536)
                assert part, f"the server has closed the connection behind {answer!r}"
                answer += part
                head, found, _ = answer.partition(b"\r\n\r\n")
                if found and length is None:
                    length = len(head) + 4 + int(head.lower().partition(b"content-length:")[2].split()[0])
            assert answer.startswith(b"HTTP/1.1 200"), answer

    def run(self):
        # The server closes connections that were idle during the turns of others.
        self.sockets = [socket.create_connection(self.address) for _ in range(self.connections)]
        for one in self.sockets:
            one.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        if len(self.sockets) == 1:
            return seconds(lambda: self._send(0))
        threads = [threading.Thread(target=self._send, args=(at,)) for at in range(len(self.sockets))]
        return seconds(lambda: [[t.start() for t in threads], [t.join() for t in threads]])


def upload(args, server, docs):
    host, port = server.tcp.split(":")
    http, keys = Client(f"http://{server.http}", timeout=3600), Keys(host, int(port), timeout=3600)
    with tempfile.TemporaryDirectory() as directory:
        file = Path(directory) / "docs.npy"
        np.save(file, docs.astype(np.float16))
        command = [os.environ["NIGH_BINARY"], "bench", "ingest", "--address", server.tcp, "--docs", str(file), "--replace", "--json"]

        def generator():
            return json.loads(subprocess.run(command, capture_output=True, text=True, check=True).stdout)["send_s"]

        def over_tcp():
            keys.vector.create_collection("tcp", DIM)
            took = seconds(lambda: keys.vector.upload("tcp", docs))
            keys.vector.drop_collection("tcp")
            return took

        def over_http():
            http.create_collection("http", DIM)
            took = seconds(lambda: http.upload("http", docs))
            http.drop_collection("http")
            return took

        return alternating(args.upload_turns, {"nigh bench ingest": generator, "Keys.vector.upload": over_tcp, "Client.upload": over_http})


def searches(args, server, docs, queries):
    host, port = server.tcp.split(":")
    http, keys = Client(f"http://{server.http}", timeout=3600), Keys(host, int(port), timeout=3600)
    http.create_collection("searched", DIM)
    http.bulk_stage("searched", np.arange(len(docs)), docs)
    http.bulk_build("searched")
    # Both are correct before they are timed.
    one = [[hit.id for hit in http.search("searched", query, K)] for query in queries]
    for client in (http, keys.vector):
        assert [[hit.id for hit in hits] for hits in client.search_batch("searched", queries, K)] == one
    frames = b"".join(_framed(searched("searched", query, K, {})[0], b"") for query in queries)
    pipelined = Whole(server.tcp, frames, len(queries) * (9 + 4 + 12 * K))
    eight, alone = Generator(server.http, "searched", queries, 8), Generator(server.http, "searched", queries, 1)
    batches = alternating(args.turns, {
        "generator, binary protocol": pipelined.run,
        "generator, 8 connections of HTTP": eight.run,
        "Client.search_batch": lambda: seconds(lambda: http.search_batch("searched", queries, K)),
        "Keys.vector.search_batch": lambda: seconds(lambda: keys.vector.search_batch("searched", queries, K)),
    })
    singles = alternating(args.turns, {
        "generator, 1 connection": alone.run,
        "Client.search": lambda: seconds(lambda: [http.search("searched", query, K) for query in queries]),
        "Keys.vector.search": lambda: seconds(lambda: [keys.vector.search("searched", query, K) for query in queries]),
    })
    return batches, singles


def pipelined(args, server):
    """Seconds for so many operations in pipelines of 64, half of them puts."""
    host, port = server.tcp.split(":")
    keys, names = Keys(host, int(port)), [f"key:{at}" for at in range(10_000)]
    value = b"v" * 64

    def ours():
        for start in range(0, args.operations, 64):
            pipeline = keys.pipeline()
            for at in range(start, start + 32):
                pipeline.put(names[at % 10_000], value)
                pipeline.get(names[at % 10_000])
            found = pipeline.execute()
            assert found[1] == value

    calls = {"Keys.pipeline": lambda: seconds(ours)}
    process, directory = None, tempfile.TemporaryDirectory()
    try:
        import redis
    except ImportError:
        redis = None
    if redis is not None and shutil.which("redis-server"):
        at = free_port()
        command = ["redis-server", "--port", str(at), "--bind", "127.0.0.1", "--save", "", "--appendonly", "no", "--dir", directory.name]
        process = subprocess.Popen(command, stdout=subprocess.DEVNULL)
        peer = redis.Redis(port=at)
        for _ in range(200):
            try:
                peer.ping()
                break
            except redis.ConnectionError:
                time.sleep(0.05)

        def theirs():
            for start in range(0, args.operations, 64):
                pipeline = peer.pipeline(transaction=False)
                for at in range(start, start + 32):
                    pipeline.set(names[at % 10_000], value)
                    pipeline.get(names[at % 10_000])
                found = pipeline.execute()
                assert found[1] == value

        calls["redis-py"] = lambda: seconds(theirs)
    try:
        return alternating(args.turns, calls)
    finally:
        if process is not None:
            process.terminate()
            process.wait()
        directory.cleanup()


def table(times, count, of, per_call=False):
    """A line for each: its rate, and what it is of the first, or its time for one."""
    medians = {name: statistics.median(values) for name, values in times.items()}
    first = medians[of]
    lines = []
    for name, median in medians.items():
        shown = f"{count / median:,.0f} | {first / median:.2f}"
        if per_call:
            shown = f"{median / count * 1e6:,.0f} | {(median - first) / count * 1e6:+,.0f}"
        lines.append(f"| {name} | {shown} |")
    return "\n".join(lines)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data", type=Path)
    parser.add_argument("--points", type=int, default=117_659)
    parser.add_argument("--turns", type=int, default=7)
    parser.add_argument("--upload-turns", type=int, default=3)
    parser.add_argument("--operations", type=int, default=64_000)
    parser.add_argument("--out", type=Path, default=RESULTS)
    parser.add_argument("--name", default="python-client")
    args = parser.parse_args()
    docs, queries = corpus(args)
    server = PrivateServer()
    try:
        uploads = upload(args, server, docs)
        batches, singles = searches(args, server, docs, queries)
        keys = pipelined(args, server)
    finally:
        server.close()
    host = machine()
    shape = f"{len(docs):,} x {DIM}"
    text = f"""# The client for Python

{machine_text(host)}. Medians of {args.upload_turns} uploads and {args.turns} turns of the rest, which alternate.
Made by `benches/python_client.py`.

| Upload of {shape} | Points/s | Of `nigh bench ingest` |
|---|---|---|
{table(uploads, len(docs), "nigh bench ingest")}

| {len(queries):,} searches in one call, k {K} | Searches/s | Of the generator |
|---|---|---|
{table(batches, len(queries), "generator, binary protocol")}

| One search after the other, k {K} | us a search | More than the generator |
|---|---|---|
{table(singles, len(queries), "generator, 1 connection", per_call=True)}

| Keys, 64 in a pipeline, half of them puts | Operations/s | Of `Keys.pipeline` |
|---|---|---|
{table(keys, args.operations, "Keys.pipeline")}
"""
    record = {"machine": host, "points": len(docs), "uploads": uploads, "batches": batches, "singles": singles, "keys": keys}
    write(args.out, args.name, record, text)


if __name__ == "__main__":
    main()
