#!/usr/bin/env python3
"""What a second core is worth to builds and to searches of one graph, in process.

    cargo build --release -p nigh-benches --bin graph
    python3 benches/cores.py --data DIRECTORY [--name NAME]

Builds on 1 and on 2 threads take turns, `--builds` times, and one more on 8 threads, whatever the number of cores, shows that the
edges are the same. Then one graph is searched by one thread and by two, in turns, `--turns` times for each beam: every thread runs
every query, so a rate is queries over wall time. A ratio is that of the two measurements of a turn, and medians are quoted. CPU
time per query is quoted beside it: on a machine that others use, wall time is also what they left.

Writes NAME.json (every measurement) and NAME.md (tables) into `--out`.
"""

import argparse
import json
import os
import statistics
import subprocess
from pathlib import Path

from report import RESULTS, machine, machine_text, write


class Graph:
    """The bench program, built on so many threads."""

    def __init__(self, args, threads):
        command = [args.binary, args.data, "--threads", str(threads), "--docs", str(args.docs), "--queries", str(args.queries),
                   "--serve"]
        self.process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        self.settings, self.build = self.read(), {"threads": threads, **self.read()}
        print(json.dumps(self.build), flush=True)

    def read(self):
        return json.loads(self.process.stdout.readline())

    def search(self, beam, searchers):
        self.process.stdin.write(f"{beam} {searchers}\n")
        self.process.stdin.flush()
        return self.read()

    def close(self):
        self.process.stdin.close()
        self.process.wait()


def of(rows, key, **chosen):
    return [row[key] for row in rows if all(row[name] == value for name, value in chosen.items())]


def ratios(above, below):
    return [a / b for a, b in zip(above, below)]


def table(args, host, settings, builds, searches):
    median = statistics.median
    lines = [
        f"# {args.name}",
        "",
        f"{settings['docs']:,} documents of `{Path(args.data).name}`, {settings['dim']} dimensions, {settings['queries']:,} queries, "
        f"k {settings['k']}, m {settings['m']}, `ef_construction` {settings['ef_construction']}; {machine_text(host)}. "
        f"Builds in {args.builds} turns, searches in {args.turns}; medians. Written by `benches/cores.py`.",
        "",
        "| build on | wall s | CPU s | edges |",
        "|---|--:|--:|---|",
    ]
    for threads in sorted(set(of(builds, "threads"))):
        wall, cpu = (median(of(builds, key, threads=threads)) for key in ("build_wall_s", "build_cpu_s"))
        edges = ", ".join(sorted(set(of(builds, "edges", threads=threads))))
        lines.append(f"| {threads} thread{'s' * (threads > 1)} | {wall:.1f} | {cpu:.1f} | `{edges}` |")
    faster = ratios(of(builds, "build_wall_s", threads=1), of(builds, "build_wall_s", threads=2))
    lines += ["", f"Two build {median(faster):.2f} times as fast as one ({min(faster):.2f} to {max(faster):.2f}).", ""]
    lines += ["| ef | recall | queries/s, 1 thread | 2 threads | ratio | CPU µs per query, 1 thread | 2 threads |",
              "|--:|--:|--:|--:|--:|--:|--:|"]
    for beam in args.beams:
        one, two = (of(searches, "queries_per_s", ef=beam, searchers=n) for n in (1, 2))
        cpu = [1e6 / median(of(searches, "queries_per_cpu_s", ef=beam, searchers=n)) for n in (1, 2)]
        lines.append(f"| {beam} | {of(searches, 'recall', ef=beam)[0]:.3f} | {median(one):,.0f} | {median(two):,.0f} | "
                     f"{median(ratios(two, one)):.2f} | {cpu[0]:.1f} | {cpu[1]:.1f} |")
    return "\n".join(lines) + "\n"


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", required=True, help="corpus directory")
    parser.add_argument("--binary", default="target/release/graph", help="the bench program")
    parser.add_argument("--docs", type=int, default=10**9, help="use the first N documents only")
    parser.add_argument("--queries", type=int, default=10_000)
    parser.add_argument("--builds", type=int, default=3)
    parser.add_argument("--turns", type=int, default=9)
    parser.add_argument("--beams", type=int, nargs="+", default=[16, 32, 64, 96])
    parser.add_argument("--out", type=Path, default=RESULTS)
    parser.add_argument("--name", default="cores")
    args = parser.parse_args()
    if len(os.sched_getaffinity(0)) < 2:
        parser.error("there is one core only")

    builds = []
    for threads in (1, 2) * args.builds + (8,):
        graph = Graph(args, threads)
        builds.append(graph.build)
        if threads == 8:
            break
        graph.close()
    searches = []
    for beam in args.beams:
        graph.search(beam, 2)
        for turn in range(args.turns):
            # Who comes first changes, so that a machine that slows down does not favour either.
            for searchers in ((1, 2), (2, 1))[turn % 2]:
                searches.append({"turn": turn, **graph.search(beam, searchers)})
                print(json.dumps(searches[-1]), flush=True)
    graph.close()
    host = machine()
    record = {"machine": host, "settings": graph.settings, "builds": builds, "searches": searches}
    write(args.out, args.name, record, table(args, host, graph.settings, builds, searches))


if __name__ == "__main__":
    main()
