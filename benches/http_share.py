#!/usr/bin/env python3
"""How much of the rate in process is left through HTTP, in one run on all cores.

    cargo build --release -p nigh -p nigh-benches
    python3 benches/http_share.py --data DIRECTORY

In process: one copy of the bench program per core, all searching at the same time. Through HTTP: one server on all cores, and
the load generator beside it with two connections per core and binary queries, so the rate includes what the generator
takes from the same processors. Both take turns; medians are quoted, with the recall of each side.

DIRECTORY holds docs.f16.npy, queries.f16.npy and truth100.i32.npy.
"""

import argparse
import json
import os
import socket
import statistics
import subprocess
import tempfile
import time
import urllib.request
from pathlib import Path


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


class InProcess:
    """A copy of the bench program on one core; it answers each `ef` on its stdin with one line."""

    def __init__(self, args, core):
        command = [args.graph, args.data, "--threads", "1", "--m", str(args.m), "--ef-construction", str(args.ef_construction),
                   "--serve"]
        self.process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
                                        preexec_fn=lambda: os.sched_setaffinity(0, [core]))

    def wait_built(self):
        self.process.stdout.readline()
        self.process.stdout.readline()

    def ask(self, ef):
        self.process.stdin.write(f"{ef}\n")
        self.process.stdin.flush()

    def answer(self):
        return json.loads(self.process.stdout.readline())


class Server:
    def __init__(self, args, directory):
        self.args = args
        self.url = f"http://127.0.0.1:{free_port()}"
        self.process = subprocess.Popen([args.nigh, "-http", self.url.removeprefix("http://"), "-data", directory],
                                        stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        for _ in range(200):
            try:
                urllib.request.urlopen(self.url + "/v1/ready").close()
                return
            except OSError:
                time.sleep(0.05)
        raise SystemExit("the server does not answer")

    def bench(self, *more):
        data = Path(self.args.data)
        command = [self.args.nigh, "bench", "vector", "--url", self.url, "--docs", data / "docs.f16.npy",
                   "--queries", data / "queries.f16.npy", "--truth", data / "truth100.i32.npy",
                   "--m", self.args.m, "--ef-construction", self.args.ef_construction, "--ef-search", self.args.ef,
                   "--connections", 2 * len(os.sched_getaffinity(0)), "--json", *more]
        done = subprocess.run([str(word) for word in command], stdout=subprocess.PIPE, check=True)
        return json.loads(done.stdout)["cycles"][0]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", required=True, help="corpus directory")
    parser.add_argument("--graph", default="target/release/graph", help="the bench program")
    parser.add_argument("--nigh", default="target/release/nigh", help="the server")
    parser.add_argument("--m", type=int, default=16)
    parser.add_argument("--ef-construction", type=int, default=200)
    parser.add_argument("--ef", type=int, default=64)
    parser.add_argument("--turns", type=int, default=7)
    parser.add_argument("--seconds", type=float, default=4)
    args = parser.parse_args()

    copies = [InProcess(args, core) for core in sorted(os.sched_getaffinity(0))]
    for copy in copies:
        copy.wait_built()
    with tempfile.TemporaryDirectory() as directory:
        server = Server(args, directory)
        try:
            loaded = server.bench("--ingest", "staged", "--keep", "--duration", 0)
            inside, outside, per_cpu = [], [], []
            for turn in range(args.turns):
                for copy in copies:
                    copy.ask(args.ef)
                lines = [copy.answer() for copy in copies]
                inside.append(sum(line["queries_per_cpu_s"] for line in lines))
                phase = server.bench("--ingest", "none", "--recall=false", "--duration", args.seconds)["phases"][0]
                outside.append(phase["queries_per_s"])
                per_cpu.append(phase["server"]["searches_per_cpu_s"] * len(copies))
                print(json.dumps({"turn": turn, "in_process_per_s": round(inside[-1]), "http_per_s": round(outside[-1]),
                                  "http_per_server_cpu_s_all_cores": round(per_cpu[-1])}), flush=True)
        finally:
            server.process.terminate()
            server.process.wait()
    for copy in copies:
        copy.process.stdin.close()
        copy.process.wait()
    rate, http, cpu = (statistics.median(values) for values in (inside, outside, per_cpu))
    print(f"\nef {args.ef}: recall in process {lines[0]['recall']:.4f}, through HTTP {loaded['recall']:.4f}")
    print(f"in process on {len(copies)} cores {rate:.0f}/s; through HTTP, generator beside it, {http:.0f}/s: {http / rate:.2f}")
    print(f"per CPU second of the server: {cpu / rate:.2f} of the rate in process")


if __name__ == "__main__":
    main()
