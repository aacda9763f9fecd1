#!/usr/bin/env python3
"""What a second core is worth to builds and to searches of one graph, in process.

    cargo build --release -p nigh-benches --bin graph
    python3 benches/cores.py --data DIRECTORY [--name NAME]

Builds on 1 and on 2 threads take turns, `--builds` times, and one more on 8 threads, whatever the number of cores, shows that the
edges are the same. Then one graph is searched by one thread and by two, in turns, `--turns` times for each beam: every thread runs
every query, so a rate is queries over wall time. A ratio is that of the two measurements of a turn, and medians are quoted.

A core that other programs use is no second core, and one that they use is not the first either: what both share (memory, the last
cache) is theirs too. So only turns count in which others took less than `--others` of the wall time of every measurement; more are
made until there are enough, for `--patience` seconds at most, and all are in the file.

Writes NAME.json (every measurement) and NAME.md (tables) into `--out`.
"""

import argparse
import json
import os
import statistics
import subprocess
import time
from pathlib import Path

from report import RESULTS, machine, machine_text, write

TICKS = os.sysconf("SC_CLK_TCK")


class Others:
    """What all other programs, and the hypervisor, took of the processors' time since it was made."""

    def __init__(self, pid=None):
        self.began, self.busy, self.own = time.perf_counter(), self.all_busy(), self.of(pid)

    def share(self, pid):
        """In processors: 1 means that one was busy for others all the time."""
        return (self.all_busy() - self.busy - self.of(pid) + self.own) / TICKS / (time.perf_counter() - self.began)

    @staticmethod
    def all_busy():
        user, nice, system, _idle, _wait, irq, soft, stolen = Path("/proc/stat").read_text().split("\n")[0].split()[1:9]
        return sum(map(int, (user, nice, system, irq, soft, stolen)))

    @staticmethod
    def of(pid):
        return sum(map(int, Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[11:13])) if pid else 0


class Graph:
    """The bench program, built on so many threads."""

    def __init__(self, args, threads):
        watch = Others()
        command = [args.binary, args.data, "--threads", str(threads), "--docs", str(args.docs), "--queries", str(args.queries),
                   "--serve"]
        self.process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        self.settings, self.build = self.read(), {"threads": threads, **self.read()}
        self.build["others"] = watch.share(self.process.pid)

    def read(self):
        return json.loads(self.process.stdout.readline())

    def search(self, beam, searchers):
        self.process.stdin.write(f"{beam} {searchers}\n")
        watch = Others(self.process.pid)
        self.process.stdin.flush()
        return {**self.read(), "others": watch.share(self.process.pid)}

    def close(self):
        self.process.stdin.close()
        self.process.wait()


def of(rows, key, **chosen):
    return [row[key] for row in rows if row["quiet"] and all(row[name] == value for name, value in chosen.items())]


def ratios(above, below):
    return [a / b for a, b in zip(above, below)]


def table(args, host, settings, builds, searches):
    median = statistics.median
    lines = [
        f"# {args.name}",
        "",
        f"{settings['docs']:,} documents of `{Path(args.data).name}`, {settings['dim']} dimensions, {settings['queries']:,} queries, "
        f"k {settings['k']}, m {settings['m']}, `ef_construction` {settings['ef_construction']}; {machine_text(host)}. "
        f"Builds in {args.builds} turns, searches in {args.turns}, in which other programs used less than "
        f"{args.others:.0%} of a processor; medians. Written by `benches/cores.py`.",
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
    parser.add_argument("--others", type=float, default=0.05, help="what others may use in a turn that counts, in processors")
    parser.add_argument("--patience", type=float, default=120, help="seconds to wait for such turns, for builds and for each beam")
    parser.add_argument("--out", type=Path, default=RESULTS)
    parser.add_argument("--name", default="cores")
    args = parser.parse_args()
    if len(os.sched_getaffinity(0)) < 2:
        parser.error("there is one core only")

    def turns(count, measure):
        """Rows of `measure(turn)`, until enough turns were quiet; the quiet ones are marked."""
        rows, quiet, number, began = [], 0, 0, time.perf_counter()
        while quiet < count and time.perf_counter() < began + args.patience:
            turn = [{"turn": number, **row} for row in measure(number)]
            is_quiet = all(row["others"] < args.others for row in turn)
            rows += [{**row, "quiet": is_quiet} for row in turn]
            quiet, number = quiet + is_quiet, number + 1
            print(json.dumps(rows[-len(turn):]), flush=True)
        return rows

    def build(threads):
        graph = Graph(args, threads)
        graph.close()
        return graph.build

    builds = turns(args.builds, lambda _: [build(1), build(2)])
    graph = Graph(args, 8)
    builds.append({**graph.build, "quiet": True})
    searches = []
    for beam in args.beams:
        graph.search(beam, 2)
        # Who comes first changes, so that a machine that slows down does not favour either.
        searches += turns(args.turns, lambda turn: [graph.search(beam, n) for n in ((1, 2), (2, 1))[turn % 2]])
    graph.close()
    host = machine()
    record = {"machine": host, "settings": graph.settings, "builds": builds, "searches": searches}
    write(args.out, args.name, record, table(args, host, graph.settings, builds, searches))


if __name__ == "__main__":
    main()
