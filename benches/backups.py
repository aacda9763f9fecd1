#!/usr/bin/env python3
"""Searches and writes of a server while it makes a backup, side by side with the same while it makes none.

    cargo build --release -p nigh
    python3 benches/backups.py [--points 300000] [--dim 128] [--turns 5] [--directory DIRECTORY]

One collection of so many points with payloads is built in bulk. Each turn starts a server over it with an empty store of backups, so that the backup
of the turn sends everything. Processes search in a closed loop, and one process upserts `--batch` points at a time. They are measured for
`--seconds` while nothing else goes on, and then from the request of a backup until its answer; turns with an odd number measure the backup first.
Figures are medians over turns: searches and upserted points per second, and the latencies below which half and 99 of 100 searches and upserts lie.
A second backup is made after `--changed` of the points were written again, for the bytes that it sends. With `--directory` the data is kept
there and used again. Written as one line of JSON per step.
"""

import http.client
import multiprocessing
import statistics
import struct
import sys
import tempfile
import time
from pathlib import Path

import numpy as np

from server import Server, bulk_body
from start import arguments, build, payload, say

NAME = "backups"


def make(args, directory):
    server = Server(args.nigh, directory)
    build(server, NAME, args, np.random.default_rng(5))
    server.process.terminate()
    server.process.wait()


def search_body(rng, dim):
    return b"RVQ1" + struct.pack(">III", 0, 10, dim) + bytes(12) + rng.standard_normal(dim).astype(">f4").tobytes()


def upsert_body(rng, args):
    first = int(rng.integers(0, args.points - args.batch))
    vectors = rng.standard_normal((args.batch, args.dim), dtype=np.float32)
    body = bulk_body(first, vectors, [payload(number) for number in range(first, first + args.batch)])
    # The second bit of the flags says upsert.
    return body[:7] + bytes([body[7] | 2]) + body[8:]


def load(port, kind, args, seed, results, stop):
    """Sends one request after the other until `stop`, and then puts (end, seconds) of each into `results`."""
    rng = np.random.default_rng(seed)
    path = "search" if kind == "search" else "batch"
    # Bodies are made before anything is measured.
    bodies = [search_body(rng, args.dim) if kind == "search" else upsert_body(rng, args) for _ in range(256 if kind == "search" else 32)]
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
    headers = {"Content-Type": "application/octet-stream"}
    taken, number = [], 0
    while not stop.is_set():
        began = time.perf_counter()
        connection.request("POST", f"/v1/collections/{NAME}/points/{path}", bodies[number % len(bodies)], headers)
        answer = connection.getresponse()
        text = answer.read()
        if answer.status != 200:
            sys.exit(f"{kind}: {answer.status} {text[:300]}")
        ended = time.perf_counter()
        taken.append((ended, ended - began))
        number += 1
        if kind == "upsert":
            time.sleep(args.pause)
    results.put((kind, taken))


def percentile(sorted_values, share):
    return sorted_values[min(len(sorted_values) - 1, int(len(sorted_values) * share))] if sorted_values else None


def figures(taken, window, per_request):
    first, last = window
    inside = sorted(seconds for ended, seconds in taken if first <= ended <= last)
    if not inside:
        sys.exit("nothing was answered in a window")
    return {"per_s": len(inside) * per_request / (last - first), "p50_ms": percentile(inside, 0.5) * 1e3,
            "p99_ms": percentile(inside, 0.99) * 1e3}


def turn(args, directory, number):
    """The figures of one server, without and with a backup."""
    with tempfile.TemporaryDirectory(dir=args.scratch) as store:
        server = Server(args.nigh, directory, arguments=["-backup-dir", store, *args.flag])
        results, stop = multiprocessing.Queue(), multiprocessing.Event()
        kinds = ["search"] * args.searchers + ["upsert"]
        loads = [multiprocessing.Process(target=load, args=(server.port, kind, args, 100 * number + place, results, stop))
                 for place, kind in enumerate(kinds)]
        for process in loads:
            process.start()
        time.sleep(args.warm_up)
        windows = {}
        for which in ("none", "backup") if number % 2 == 0 else ("backup", "none"):
            began = time.perf_counter()
            if which == "none":
                time.sleep(args.seconds)
            else:
                report = server.call("POST", "/v1/admin/backup")
            windows[which] = (began, time.perf_counter())
            time.sleep(0.5)
        stop.set()
        answers = [results.get(timeout=60) for _ in loads]
        for process in loads:
            process.join()
        taken = {kind: [pair for named, pairs in answers if named == kind for pair in pairs] for kind in ("search", "upsert")}
        out = {which: {kind: figures(taken[kind], window, 1 if kind == "search" else args.batch) for kind in taken}
               for which, window in windows.items()}
        seconds = windows["backup"][1] - windows["backup"][0]
        sent = sum(path.stat().st_size for path in Path(store).rglob("*") if path.is_file())
        say("turn", turn=number, seconds=round(seconds, 2), stored_bytes=sent, report=report, **out)
        again = None
        if number == 0:
            rng = np.random.default_rng(9)
            # The requests of the load are in no image yet: a backup takes them, so that the next one has only what is changed here.
            server.call("POST", "/v1/admin/backup")
            before = sum(path.stat().st_size for path in Path(store).rglob("*") if path.is_file())
            for _ in range(max(1, int(args.points * args.changed) // args.batch)):
                server.call("POST", f"/v1/collections/{NAME}/points/batch", binary=upsert_body(rng, args))
            server.call("POST", "/v1/admin/backup")
            again = sum(path.stat().st_size for path in Path(store).rglob("*") if path.is_file()) - before
            say("again", changed=args.changed, new_bytes=again, share=round(again / sent, 4))
        server.process.terminate()
        server.process.wait()
        return out, seconds


def main():
    parser = arguments(__doc__, points=300_000, turns=5)
    parser.add_argument("--seconds", type=float, default=5, help="of the measurement without a backup")
    parser.add_argument("--warm-up", type=float, default=2)
    parser.add_argument("--searchers", type=int, default=2, help="processes that search")
    parser.add_argument("--batch", type=int, default=50, help="points of one upsert")
    parser.add_argument("--pause", type=float, default=0.05, help="seconds between two upserts")
    parser.add_argument("--changed", type=float, default=0.01)
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as scratch:
        args.scratch = scratch
        directory = args.directory or str(Path(scratch) / "data")
        if not list(Path(directory).rglob("*.img")):
            make(args, directory)
        turns = [turn(args, directory, number) for number in range(args.turns)]
    medians = {which: {kind: {key: statistics.median(out[which][kind][key] for out, _ in turns) for key in ("per_s", "p50_ms", "p99_ms")}
                       for kind in ("search", "upsert")} for which in ("none", "backup")}
    ratios = {f"{kind}_{key}": round(statistics.median(out["backup"][kind][key] / out["none"][kind][key] for out, _ in turns), 3)
              for kind in ("search", "upsert") for key in ("per_s", "p99_ms")}
    rounded = {which: {kind: {key: round(value, 2) for key, value in values.items()} for kind, values in kinds.items()}
               for which, kinds in medians.items()}
    say("medians", backup_seconds=round(statistics.median(seconds for _, seconds in turns), 2), ratios=ratios, **rounded)
    return 0


if __name__ == "__main__":
    sys.exit(main())
