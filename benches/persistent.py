#!/usr/bin/env python3
"""A persistent collection: seconds to open after a kill, and searches when memory is a fraction of the vectors.

    cargo build --release -p nigh
    python3 benches/persistent.py --data DIRECTORY [--copies 4] [--quant bq1]

The corpus is loaded with so many copies of each vector, all but the first with noise. With `--limit-share 4` (the default) the server is
then started in a memory cgroup of a quarter of the bytes of the vectors, and asked the corpus's queries; pages of the file
count against that limit as well. Needs the right to make a cgroup (root, as a rule); without it that part is left out and
says so. Written as one line of JSON per step.
"""

import argparse
import json
import os
import struct
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request
from pathlib import Path

import numpy as np

from http_share import free_port

NAME = "persistent"
BATCH = 2000


class Limit:
    """A memory cgroup of this process's own below the one it is in; `None` where that cannot be."""

    def __init__(self, limit_bytes):
        for root, limit, usage in (("/sys/fs/cgroup/memory", "memory.limit_in_bytes", "memory.max_usage_in_bytes"),
                                   ("/sys/fs/cgroup", "memory.max", "memory.peak")):
            self.path = Path(root) / f"nigh-bench-{os.getpid()}"
            try:
                self.path.mkdir()
                (self.path / limit).write_text(str(limit_bytes))
                self.usage, self.works = self.path / usage, True
                return
            except OSError:
                self.path.is_dir() and self.path.rmdir()
        self.works = False

    def command(self, words):
        """`words` run inside of it."""
        return ["sh", "-c", f'echo $$ > {self.path}/cgroup.procs && exec "$@"', "sh", *words] if self.works else words

    def peak(self):
        return int(self.usage.read_text()) if self.usage.exists() else None

    def remove(self):
        if self.works:
            time.sleep(0.5)
            self.path.rmdir()


class Server:
    def __init__(self, nigh, directory, limit=None):
        words = [nigh, "-http", f"127.0.0.1:{(port := free_port())}", "-data", directory]
        self.url = f"http://127.0.0.1:{port}/v1/collections"
        began = time.perf_counter()
        self.process = subprocess.Popen(limit.command(words) if limit else words, stdout=subprocess.DEVNULL,
                                        stderr=subprocess.DEVNULL)
        while True:
            try:
                self.call("GET", "")
                break
            except (urllib.error.URLError, ConnectionError):
                if self.process.poll() is not None:
                    sys.exit(f"the server ended with {self.process.returncode}")
                time.sleep(0.002)
        self.opened_s = time.perf_counter() - began

    def call(self, method, path, body=None, binary=None):
        data = binary if binary is not None else None if body is None else json.dumps(body).encode()
        kind = "application/octet-stream" if binary is not None else "application/json"
        request = urllib.request.Request(self.url + path, data=data, method=method, headers={"Content-Type": kind})
        with urllib.request.urlopen(request, timeout=600) as answer:
            return json.load(answer)

    def kill(self):
        self.process.kill()
        self.process.wait()

    def stop(self):
        self.process.terminate()
        return self.process.wait()

    def rss(self):
        for line in Path(f"/proc/{self.process.pid}/status").read_text().splitlines():
            if line.startswith("RssAnon"):
                return int(line.split()[1]) * 1024

    def major_faults(self):
        return int(Path(f"/proc/{self.process.pid}/stat").read_text().rsplit(")", 1)[1].split()[9])


def points(docs, copies):
    """Ids and vectors, batch by batch: copy by copy, so that the first has the ids of the truth."""
    noise = np.random.default_rng(1)
    for copy in range(copies):
        for first in range(0, len(docs), BATCH):
            rows = docs[first:first + BATCH].astype(np.float32)
            if copy:
                rows = rows + noise.normal(0, 0.06, rows.shape).astype(np.float32)
            yield copy * len(docs) + first, rows


def body(first, rows):
    table = np.zeros(len(rows), dtype=[("id", ">u8"), ("vector", ">f4", rows.shape[1])])
    table["id"], table["vector"] = range(first, first + len(rows)), rows
    return b"RVB1" + struct.pack(">III", 2, len(rows), rows.shape[1]) + table.tobytes()


def truth(docs, copies, queries, k):
    """Exact ids of the k nearest under cosine, of all copies."""
    best = [np.zeros((len(queries), 0)), np.zeros((len(queries), 0), dtype=np.int64)]
    unit = queries / np.linalg.norm(queries, axis=1, keepdims=True)
    for first, rows in points(docs, copies):
        near = unit @ (rows / np.linalg.norm(rows, axis=1, keepdims=True)).T
        ids = np.broadcast_to(np.arange(first, first + len(rows)), near.shape)
        near, ids = np.hstack([best[0], near]), np.hstack([best[1], ids])
        keep = np.argsort(-near, axis=1)[:, :k]
        best = [np.take_along_axis(near, keep, 1), np.take_along_axis(ids, keep, 1)]
    return best[1]


def search(server, query, k):
    data = b"RVQ1" + struct.pack(">III", 0, k, len(query)) + bytes(12) + query.astype(">f4").tobytes()
    return server.call("POST", f"/{NAME}/points/search", binary=data)["results"]


def measure(server, queries, exact, seconds):
    began, latencies, found, asked, faults = time.perf_counter(), [], 0, 0, server.major_faults()
    while time.perf_counter() - began < seconds:
        at = asked % len(queries)
        start = time.perf_counter()
        hits = search(server, queries[at], exact.shape[1])
        latencies.append(time.perf_counter() - start)
        found += len({hit["id"] for hit in hits} & set(exact[at].tolist()))
        asked += 1
    wall = time.perf_counter() - began
    return {"searches": asked, "per_s": round(asked / wall), "recall": round(found / asked / exact.shape[1], 4),
            "p50_ms": round(1e3 * float(np.percentile(latencies, 50)), 3),
            "p99_ms": round(1e3 * float(np.percentile(latencies, 99)), 3),
            "major_faults_per_search": round((server.major_faults() - faults) / asked, 2)}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", required=True, type=Path, help="corpus directory")
    parser.add_argument("--nigh", default="target/release/nigh", help="the server")
    parser.add_argument("--copies", type=int, default=1)
    parser.add_argument("--quant", default="bq1")
    parser.add_argument("--limit-share", type=int, default=4, help="the limit is the bytes of the vectors divided by this")
    parser.add_argument("--turns", type=int, default=3, help="kills")
    parser.add_argument("--seconds", type=float, default=15, help="of searching per measurement")
    parser.add_argument("--directory", help="where to put the data; a temporary directory by default")
    args = parser.parse_args()
    docs, queries = np.load(args.data / "docs.f16.npy"), np.load(args.data / "queries.f16.npy")[:1000].astype(np.float32)
    say = lambda step, **what: print(json.dumps({"step": step, **what}), flush=True)
    with tempfile.TemporaryDirectory(dir=args.directory) as directory:
        server = Server(args.nigh, directory)
        config = {"dim": docs.shape[1], "metric": "cosine", "quant": args.quant, "persistent": True, "ef_search": 64}
        server.call("POST", "", {"name": NAME, "config": config})
        began = time.perf_counter()
        for first, rows in points(docs, args.copies):
            server.call("POST", f"/{NAME}/points/batch", binary=body(first, rows))
        loaded_s = time.perf_counter() - began
        while server.call("GET", f"/{NAME}")["index"]["walks"] != args.quant.replace("sq8", "int8"):
            time.sleep(0.2)
        count = len(docs) * args.copies
        exact = truth(docs, args.copies, queries, 10)
        say("load", points=count, seconds=round(loaded_s, 1), ready_s=round(time.perf_counter() - began, 1),
            vectors_bytes=count * docs.shape[1] * 4, anon_bytes=server.rss(), memory=server.call("GET", f"/{NAME}")["memory"])
        say("all in memory", **measure(server, queries, exact, args.seconds))
        time.sleep(8)
        for turn in range(args.turns):
            server.kill()
            server = Server(args.nigh, directory)
            hits = search(server, queries[0], 10)
            say("open after a kill", turn=turn, seconds=round(server.opened_s, 3), found=len(hits))
        server.stop()
        server = Server(args.nigh, directory)
        say("open after a stop", seconds=round(server.opened_s, 3))
        server.stop()
        limit_bytes = count * docs.shape[1] * 4 // args.limit_share
        limit = Limit(limit_bytes)
        if not limit.works:
            say("in a cgroup", left_out="a memory cgroup could not be made")
            return
        server = Server(args.nigh, directory, limit)
        say("in a cgroup", limit_bytes=limit_bytes, open_s=round(server.opened_s, 3))
        for turn in range(3):
            say("in a cgroup", **measure(server, queries, exact, args.seconds))
        for first, rows in list(points(docs, 1))[:10]:
            server.call("POST", f"/{NAME}/points/batch", binary=body(first, rows))
        say("after 20,000 upserts", **measure(server, queries, exact, args.seconds))
        info = server.call("GET", f"/{NAME}")
        say("in a cgroup", anon_bytes=server.rss(), cgroup_peak_bytes=limit.peak(), memory=info["memory"], walks=info["index"]["walks"])
        status = server.stop()
        limit.remove()
        if status:
            sys.exit(f"the server ended with {status}")


if __name__ == "__main__":
    main()
