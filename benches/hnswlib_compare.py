#!/usr/bin/env python3
"""Compares the graph with hnswlib 0.8.0 on one corpus, in one run.

    cargo build --release -p nigh-benches --bin graph
    pip install 'numpy<2' hnswlib==0.8.0
    python3 benches/hnswlib_compare.py --data DIRECTORY

Search: both are built with the same m and ef_construction, then measured in turns on one core; every figure is CPU time
of the searching thread, so other programs on the machine disturb little. The rate at a recall is interpolated between
the two nearest beam widths of a turn; the median over turns is quoted. Build: both in turns, with the same number of
threads on as many cores, CPU and wall time.

DIRECTORY holds docs.f16.npy, queries.f16.npy (unit vectors) and truth100.i32.npy.
"""

import argparse
import json
import math
import os
import statistics
import subprocess
import sys
import time
from pathlib import Path

try:
    import hnswlib
    import numpy as np
except ImportError as missing:
    sys.exit(f"{missing}; pip install 'numpy<2' hnswlib==0.8.0")

RECALLS = (0.90, 0.95, 0.98, 0.99)


class Hnswlib:
    """The library through its Python face; a batch of queries is one call, so Python's own cost does not count."""

    def __init__(self, args, docs, queries):
        self.args, self.docs, self.queries = args, docs, queries

    def build(self, threads):
        index = hnswlib.Index("cosine", self.docs.shape[1])
        index.init_index(len(self.docs), M=self.args.m, ef_construction=self.args.ef_construction, random_seed=1)
        wall, cpu = time.perf_counter(), time.process_time()
        index.add_items(self.docs, np.arange(len(self.docs)), num_threads=threads)
        self.index = index
        return {"build_wall_s": time.perf_counter() - wall, "build_cpu_s": time.process_time() - cpu}

    def search(self, ef):
        self.index.set_ef(ef)
        start = time.thread_time()
        labels, _ = self.index.knn_query(self.queries, self.args.k, num_threads=1)
        return labels, len(self.queries) / (time.thread_time() - start)


class Nigh:
    """The bench program, which builds and then answers each `ef` on its stdin with one line."""

    def __init__(self, args, docs, queries):
        self.args, self.docs, self.queries = args, docs, queries

    def command(self, threads):
        args = self.args
        return [args.binary, args.data, "--threads", threads, "--m", args.m, "--k", args.k, "--ef-construction",
                args.ef_construction, "--docs", len(self.docs), "--queries", len(self.queries)]

    def build(self, threads):
        command = self.command(threads) + ["--ef", "10", "--repeat", 0]
        return self.read_build(subprocess.run([str(word) for word in command], stdout=subprocess.PIPE, check=True).stdout)

    def serve(self):
        command = [str(word) for word in self.command(1) + ["--serve"]]
        self.process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        self.process.stdout.readline()
        return json.loads(self.process.stdout.readline())

    @staticmethod
    def read_build(output):
        return json.loads(output.splitlines()[1])

    def search(self, ef):
        self.process.stdin.write(f"{ef}\n")
        self.process.stdin.flush()
        line = json.loads(self.process.stdout.readline())
        return line["recall"], line["queries_per_cpu_s"]


def rate_at(recall, points):
    """Rate where the curve of (recall, rate) crosses `recall`: linear in recall and the logarithm of the rate."""
    points = sorted(points)
    for (r0, q0), (r1, q1) in zip(points, points[1:]):
        if r0 <= recall <= r1:
            part = (recall - r0) / max(r1 - r0, 1e-12)
            return math.exp(math.log(q0) + part * (math.log(q1) - math.log(q0)))
    return float("nan")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", required=True, help="corpus directory")
    parser.add_argument("--binary", default="target/release/graph", help="the bench program")
    parser.add_argument("--m", type=int, default=16)
    parser.add_argument("--ef-construction", type=int, default=200)
    parser.add_argument("--k", type=int, default=10)
    parser.add_argument("--docs", type=int, default=None, help="use the first N documents only")
    parser.add_argument("--queries", type=int, default=3000)
    parser.add_argument("--turns", type=int, default=5, help="search turns")
    parser.add_argument("--builds", type=int, default=2, help="build turns; 0 skips the build comparison")
    parser.add_argument("--threads", type=int, default=2, help="threads of the build comparison")
    parser.add_argument("--ef", type=int, nargs="+", default=[12, 16, 24, 32, 40, 48, 56, 64, 80, 96, 112, 128, 160])
    args = parser.parse_args()

    data = Path(args.data)
    docs = np.load(data / "docs.f16.npy")[: args.docs].astype(np.float32)
    queries = np.load(data / "queries.f16.npy")[: args.queries].astype(np.float32)
    truth = np.load(data / "truth100.i32.npy")[: args.queries]
    truth = [set([i for i in row if i < len(docs)][: args.k]) for row in truth.tolist()]
    wanted = sum(len(row) for row in truth)

    def recall_of(labels):
        return sum(len(row.intersection(found)) for row, found in zip(truth, labels.tolist())) / wanted

    cores = sorted(os.sched_getaffinity(0))
    sides = {"hnswlib": Hnswlib(args, docs, queries), "nigh": Nigh(args, docs, queries)}

    builds = {name: [] for name in sides}
    os.sched_setaffinity(0, cores[: args.threads])
    for turn in range(args.builds):
        for name, side in sides.items():
            builds[name].append(side.build(args.threads))
            print(json.dumps({"turn": turn, "program": name, "threads": args.threads, **builds[name][-1]}), flush=True)
    if not args.builds:
        sides["hnswlib"].build(len(cores))

    # Children inherit the mask: both programs search on the last core.
    os.sched_setaffinity(0, cores[-1:])
    print(json.dumps({"program": "nigh", "threads": 1, **sides["nigh"].serve()}), flush=True)
    curves = {name: [[] for _ in range(args.turns)] for name in sides}
    for turn in range(args.turns):
        for ef in args.ef:
            for name, side in sides.items():
                result, rate = side.search(ef)
                recall = result if name == "nigh" else recall_of(result)
                curves[name][turn].append((recall, rate))
                line = {"turn": turn, "program": name, "ef": ef, "recall": round(recall, 5), "queries_per_cpu_s": round(rate)}
                print(json.dumps(line), flush=True)
    sides["nigh"].process.stdin.close()
    sides["nigh"].process.wait()

    print(f"\n{len(docs)} documents, {len(queries)} queries, m {args.m}, ef_construction {args.ef_construction}")
    if 64 in args.ef:
        at = args.ef.index(64)
        for name in sides:
            print(f"recall@{args.k} at ef 64, {name}: {curves[name][0][at][0]:.4f}")
    for recall in RECALLS:
        rates = {name: statistics.median(rate_at(recall, points) for points in curves[name]) for name in sides}
        print(f"queries per CPU-second at recall {recall}: hnswlib {rates['hnswlib']:.0f}, nigh {rates['nigh']:.0f}, "
              f"ratio {rates['nigh'] / rates['hnswlib']:.2f}")
    for kind in ("wall", "cpu") if args.builds else ():
        times = {name: statistics.median(build[f"build_{kind}_s"] for build in builds[name]) for name in sides}
        print(f"inserts per {kind} second on {args.threads} threads: hnswlib {len(docs) / times['hnswlib']:.0f}, "
              f"nigh {len(docs) / times['nigh']:.0f}, ratio {times['hnswlib'] / times['nigh']:.2f}")


if __name__ == "__main__":
    main()
