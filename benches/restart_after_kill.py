#!/usr/bin/env python3
"""Seconds from starting a killed server to its first answered search, fresh after a load and after much history.

    cargo build --release -p nigh
    python3 benches/restart_after_kill.py --data DIRECTORY

The server is killed with signal 9 while the corpus is being upserted, so that there is a log to replay. `history` is how many
times half of the corpus was deleted and inserted again before.
"""

import argparse
import json
import struct
import subprocess
import tempfile
import time
import urllib.error
import urllib.request
from pathlib import Path

from http_share import free_port


class Server:
    def __init__(self, nigh, directory):
        self.nigh, self.directory, self.port = nigh, directory, free_port()
        self.start()

    def start(self):
        """Starts it; seconds until a search is answered (or the server says that there is no such collection)."""
        began = time.perf_counter()
        self.process = subprocess.Popen([self.nigh, "-http", f"127.0.0.1:{self.port}", "-data", self.directory],
                                        stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        while True:
            try:
                self.search()
                return time.perf_counter() - began
            except urllib.error.HTTPError as error:
                if error.code == 404:
                    return None
                time.sleep(0.005)
            except OSError:
                time.sleep(0.005)

    def search(self):
        body = b"RVQ1" + struct.pack(">III", 0, 10, 384) + bytes(12) + struct.pack(">384f", *([0.05] * 384))
        request = urllib.request.Request(f"http://127.0.0.1:{self.port}/v1/collections/restart/points/search", data=body,
                                         headers={"Content-Type": "application/octet-stream"})
        with urllib.request.urlopen(request) as answer:
            assert len(json.load(answer)["results"]) == 10

    def bench(self, data, *more):
        command = [self.nigh, "bench", "vector", "--url", f"http://127.0.0.1:{self.port}", "--collection", "restart",
                   "--docs", data / "docs.f16.npy", "--queries", data / "queries.f16.npy", "--truth", data / "truth100.i32.npy",
                   "--queries-count", "1000", "--keep", "--json", *more]
        return subprocess.Popen([str(word) for word in command], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)

    def kill(self):
        self.process.kill()
        self.process.wait()


def log_bytes(directory):
    return sum(path.stat().st_blocks * 512 for path in Path(directory).glob("log/**/*.wal"))


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", required=True, type=Path, help="corpus directory")
    parser.add_argument("--nigh", default="target/release/nigh", help="the server")
    parser.add_argument("--history", type=int, default=4, help="rounds of churn before the second half of the measurement")
    parser.add_argument("--turns", type=int, default=3)
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as directory:
        server = Server(args.nigh, directory)
        try:
            loaded = server.bench(args.data, "--ingest", "staged", "--duration", 0)
            loaded.communicate()
            for history in (0, args.history):
                if history:
                    server.bench(args.data, "--ingest", "none", "--duration", 0, "--churn-rounds", history).communicate()
                for turn in range(args.turns):
                    load = server.bench(args.data, "--ingest", "none", "--recall=false", "--background", "ingest",
                                        "--duration", 30)
                    time.sleep(45)
                    server.kill()
                    load.communicate()
                    log = log_bytes(directory)
                    seconds = server.start()
                    print(json.dumps({"history": history, "turn": turn, "log_mib": round(log / 2**20), "first_search_s": seconds}),
                          flush=True)
        finally:
            server.kill()


if __name__ == "__main__":
    main()
