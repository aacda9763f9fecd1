#!/usr/bin/env python3
"""What searches feel while their collection grows tenfold.

    cargo build --release -p nigh
    pip install 'numpy<2'
    python3 benches/growth.py --data DIRECTORY [--name NAME]

A server has one core, the load generator and the program that inserts another, so that they do not wait for each other. A tenth of
the corpus is built; the generator then searches on a fixed schedule, first with nothing else going on, then while the other nine
tenths are inserted in small batches, evenly over `--seconds`, then again with nothing else. The first and the last stretch say what
the machine alone makes a query wait for. Latency is from sending to the answer, less what the generator waited for a processor.
Time that the server was ready to run and did not (other programs on its core) is shown beside it, and so is what the hypervisor
took. All of it `--turns` times, each with a server of its own.

Writes NAME.json (every measurement) and NAME.md (a table) into `--out`.
"""

import argparse
import http.client
import json
import os
import statistics
import subprocess
import tempfile
import threading
import time
from pathlib import Path

import numpy as np

from report import RESULTS, machine, machine_text, write
from server import Server, bulk_body

NAME = "nigh-bench"
BATCH = 50


def waited_ms(process):
    """Longest and total wait for a processor of a process's threads so far, in ms, as far as the kernel tells."""
    waits = [int((task / "schedstat").read_text().split()[1]) / 1e6 for task in Path(f"/proc/{process.pid}/task").iterdir()]
    return sum(waits)


def stolen_ms():
    """Time of all processors that the hypervisor gave to others."""
    return int(Path("/proc/stat").read_text().split("\n")[0].split()[8]) * 1000 / os.sysconf("SC_CLK_TCK")


class Load:
    """The generator, on a core of its own."""

    def __init__(self, args, server, core, seconds):
        command = [args.nigh, "bench", "vector", "--url", f"http://127.0.0.1:{server.port}", "--docs", args.data / "docs.f16.npy",
                   "--docs-count", 10, "--queries", args.data / "queries.f16.npy", "--ingest", "none", "--recall=false", "--keep",
                   "--connections", 2, "--rate", args.rate, "--duration", seconds, "--json"]
        self.server, self.waited, self.stolen = server, waited_ms(server.process), stolen_ms()
        self.process = subprocess.Popen([str(word) for word in command], stdout=subprocess.PIPE,
                                        preexec_fn=lambda: os.sched_setaffinity(0, {core}))

    def result(self, stretch):
        phase = json.loads(self.process.communicate()[0])["cycles"][0]["phases"][0]
        return {"stretch": stretch, "queries": phase["queries"], **phase["without_own_wait"],
                "server_waited_ms": waited_ms(self.server.process) - self.waited, "stolen_ms": stolen_ms() - self.stolen}


def insert(port, bodies, seconds):
    """Sends the bodies evenly over the time."""
    connection, start = http.client.HTTPConnection("127.0.0.1", port), time.perf_counter()
    for index, body in enumerate(bodies):
        time.sleep(max(0, start + index * seconds / len(bodies) - time.perf_counter()))
        connection.request("POST", f"/v1/collections/{NAME}/points/batch", body, {"Content-Type": "application/octet-stream"})
        answer = connection.getresponse()
        text = answer.read()
        if answer.status != 200:
            raise SystemExit(f"inserting: {answer.status} {text[:200]}")


def turn(args, vectors, cores):
    tenth = len(vectors) // 10
    bodies = [bulk_body(first, vectors[first : first + BATCH], []) for first in range(tenth, len(vectors), BATCH)]
    with tempfile.TemporaryDirectory() as directory:
        server = Server(args.nigh, directory, {cores[0]})
        try:
            server.call("POST", "/v1/collections", {"name": NAME, "config": {"dim": vectors.shape[1]}})
            server.call("POST", f"/v1/collections/{NAME}/points/bulk", binary=bulk_body(0, vectors[:tenth], []))
            server.call("POST", f"/v1/collections/{NAME}/points/bulk/build", {"workers": 0})
            yield Load(args, server, cores[1], args.still).result("a tenth")
            load = Load(args, server, cores[1], args.seconds + 1)
            time.sleep(1)
            inserting = threading.Thread(target=insert, args=(server.port, bodies, args.seconds))
            inserting.start()
            yield load.result("growing")
            inserting.join()
            # What is indexed and saved afterwards is not growth.
            time.sleep(args.pause)
            yield Load(args, server, cores[1], args.still).result("all of it")
        finally:
            server.process.terminate()
            server.process.wait()


def table(args, host, points, rows):
    lines = [
        f"# {args.name}",
        "",
        f"{points // 10:,} to {points:,} documents of `{Path(args.data).name}` in {args.seconds:.0f} s, {args.rate} searches a second "
        f"beside them, default settings; {machine_text(host)}, one of them the server's. Milliseconds, medians of {args.turns} "
        "turns and in brackets the worst of them. Written by `benches/growth.py`.",
        "",
        "| collection | p50 | p99 | p99.9 | worst | worst above p99 | server waited for its core | stolen |",
        "|---|--:|--:|--:|--:|--:|--:|--:|",
    ]
    for stretch in dict.fromkeys(row["stretch"] for row in rows):
        own = [row for row in rows if row["stretch"] == stretch]
        columns = [[row[key] / 1000 for row in own] for key in ("p50_us", "p99_us", "p999_us", "max_us")]
        columns.append([(row["max_us"] - row["p99_us"]) / 1000 for row in own])
        columns += [[row[key] for row in own] for key in ("server_waited_ms", "stolen_ms")]
        cells = [f"{statistics.median(values):.2f} ({max(values):.2f})" for values in columns]
        lines.append(f"| {stretch} | {' | '.join(cells)} |")
    return "\n".join(lines) + "\n"


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--nigh", default="target/release/nigh")
    parser.add_argument("--docs", type=int, default=10**9, help="use the first N documents only")
    parser.add_argument("--rate", type=int, default=400, help="searches per second")
    parser.add_argument("--seconds", type=float, default=60, help="how long the collection grows")
    parser.add_argument("--still", type=float, default=10, help="seconds of each stretch without growth")
    parser.add_argument("--pause", type=float, default=10, help="seconds after growth, in which indexing ends")
    parser.add_argument("--turns", type=int, default=3)
    parser.add_argument("--out", type=Path, default=RESULTS)
    parser.add_argument("--name", default="growth")
    args = parser.parse_args()
    cores = sorted(os.sched_getaffinity(0))
    if len(cores) < 2:
        parser.error("there is one core only")
    os.sched_setaffinity(0, {cores[1]})
    vectors = np.load(args.data / "docs.f16.npy")[: args.docs].astype("f4")
    rows = []
    for number in range(args.turns):
        for row in turn(args, vectors, cores):
            rows.append({"turn": number, **row})
            print(json.dumps(rows[-1]), flush=True)
    host = machine()
    settings = {"points": len(vectors), "rate": args.rate, "seconds": args.seconds, "batch": BATCH}
    write(args.out, args.name, {"machine": host, "settings": settings, "rows": rows}, table(args, host, len(vectors), rows))


if __name__ == "__main__":
    main()
