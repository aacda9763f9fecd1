#!/usr/bin/env python3
"""Search and build beside other libraries, on one corpus, in one run.

    cargo build --release -p nigh-benches --bin graph
    pip install 'numpy<2' hnswlib faiss-cpu usearch qdrant-edge-py
    python3 benches/peers/run.py --data DIRECTORY [--name NAME]

Each program runs in a process of its own and is built alone, on `--threads` cores. Then all are measured in turns on the last
core: one beam (or other knob) of each program after the other, `--turns` times, so that a machine that slows down slows all of
them. The rate at a recall is interpolated between the two nearest knobs of a turn; the median over turns is quoted. Rates and
builds are in CPU time of the whole process. How fast a process searches depends by some percent on where its memory happens to
lie: to compare two builds more closely than that, give each several `--processes`, which are started and measured in turns. Memory
is what a process grew by at most while building, beyond the corpus that all of them hold.

Writes NAME.json (every measurement), NAME.md (a table) and NAME.svg (the curves) into `--out`. DIRECTORY holds docs.f16.npy,
queries.f16.npy and truth100.i32.npy, as the README says.
"""

import argparse
import json
import math
import os
import statistics
import subprocess
import sys
from pathlib import Path

try:
    import engines
except ImportError as missing:
    sys.exit(f"{missing}; pip install 'numpy<2' hnswlib faiss-cpu usearch qdrant-edge-py")

sys.path.append(str(Path(__file__).parent.parent))
from report import RESULTS, machine, machine_text, rate_at, write

RECALLS = (0.90, 0.95, 0.98, 0.99)
BEAMS = [12, 16, 24, 32, 40, 48, 64, 80, 96, 128, 160, 224]
HERE = Path(__file__).parent


class Program:
    """A child that has built, and answers knobs."""

    def __init__(self, name, args):
        self.name = name
        # A beam below k finds fewer than k.
        self.knobs = [knob for knob in args.beams or BEAMS if knob >= args.k]
        if args.k > 64 and not args.beams:
            self.knobs = [args.k * tenths // 10 for tenths in (10, 11, 12, 13, 16, 20, 24, 32)]
        options = {key: getattr(args, key) for key in ("data", "docs", "queries", "k", "m", "ef_construction", "threads")}
        if name in ("nigh", "before"):
            command = [args.binary if name == "nigh" else args.before, args.data, "--serve"]
            for key in ("docs", "queries", "k", "m", "ef_construction", "threads"):
                command += ["--" + key.replace("_", "-"), str(options[key])]
        else:
            self.knobs = getattr(engines.ENGINES[name], "knobs", self.knobs)
            command = [sys.executable, HERE / "engines.py", name, json.dumps(options)]
        self.process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        self.build = self.read()
        if "build_cpu_s" not in self.build:
            self.build = {**self.build, **self.read()}
        self.turns = []

    def read(self):
        line = self.process.stdout.readline()
        if not line:
            sys.exit(f"{self.name} ended with {self.process.wait()}")
        return json.loads(line)

    def pin(self, core):
        for task in Path(f"/proc/{self.process.pid}/task").iterdir():
            os.sched_setaffinity(int(task.name), {core})

    def measure(self, knob):
        self.process.stdin.write(f"{knob}\n")
        self.process.stdin.flush()
        answer = self.read()
        self.turns[-1].append((answer["recall"], answer["queries_per_cpu_s"], knob))
        return answer

    def rate_at(self, recall):
        """The median over turns, `None` where some turn does not reach the recall."""
        rates = [rate_at(recall, turn) for turn in self.turns]
        return None if None in rates else statistics.median(rates)

    def curve(self):
        """(recall, median rate) by knob."""
        by_knob = {}
        for turn in self.turns:
            for recall, rate, knob in turn:
                by_knob.setdefault(knob, []).append((recall, rate))
        return [(all_[0][0], statistics.median(rate for _, rate in all_)) for all_ in by_knob.values()]

    def close(self):
        self.process.stdin.close()
        self.process.wait()

    def absorb(self, other):
        """Takes the turns of another process of the same program."""
        self.turns += other.turns


def processes_text(args):
    return f"{args.processes} processes of each build of nigh" if args.processes > 1 else "one process"


def number(value):
    return "–" if value is None else f"{value:,.0f}"


def table(args, host, programs):
    base = next((p for p in programs if p.name == "hnswlib"), None)
    lines = [
        f"# {args.name}",
        "",
        f"{args.docs:,} documents of `{Path(args.data).name}`, {args.queries:,} queries, k {args.k}, m {args.m}, "
        f"`ef_construction` {args.ef_construction}; {machine_text(host)}. "
        f"Rates are queries per CPU-second on one core, medians of {args.turns} turns of {processes_text(args)}, in brackets against hnswlib; "
        f"builds on {args.threads} of them; memory is what the build grew the process by. "
        "Written by `benches/peers/run.py`.",
        "",
        f"| program | {' | '.join(f'recall@{args.k} {recall:.2f}' for recall in RECALLS)} | build CPU s | wall s | MB |",
        "|---|" + "--:|" * (len(RECALLS) + 3),
    ]
    for program in programs:
        cells = []
        for recall in RECALLS:
            rate, peer = program.rate_at(recall), base and base.rate_at(recall)
            cells.append(number(rate) + (f" ({rate / peer:.2f})" if rate and peer else ""))
        build = program.build
        grown = build["peak_mb"] - build["resident_before_mb"]
        name = f"{program.name} {build.get('version', '')}".strip()
        lines.append(f"| {name} | {' | '.join(cells)} | {build['build_cpu_s']:.1f} | {build['build_wall_s']:.1f} | {grown:,} |")
    return "\n".join(lines) + "\n"


def svg(args, programs):
    """Curves of rate, logarithmic, over recall from 0.8."""
    colours = ["#d62728", "#1f77b4", "#2ca02c", "#9467bd", "#8c564b", "#e377c2", "#7f7f7f", "#bcbd22"]
    left, top, width, height, low = 70, 30, 640, 400, 0.8
    rates = [rate for p in programs for recall, rate in p.curve() if recall >= low]
    floor, ceiling = 10 ** math.floor(math.log10(min(rates))), max(rates) * 1.2
    x = lambda recall: left + (recall - low) / (1 - low) * width
    y = lambda rate: top + height * (1 - math.log(rate / floor) / math.log(ceiling / floor))
    out = [f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {left + width + 170} {top + height + 50}" '
           'font-family="sans-serif" font-size="12">', '<rect width="100%" height="100%" fill="white"/>']
    for step in range(int((1 - low) * 50 + 1.5)):
        recall = low + step / 50
        out.append(f'<path d="M{x(recall):.1f} {top}V{top + height}" stroke="#ddd"/>')
        out.append(f'<text x="{x(recall):.1f}" y="{top + height + 16}" text-anchor="middle">{recall:.2f}</text>')
    decade = floor
    while decade <= ceiling:
        for rate in (decade, 2 * decade, 5 * decade):
            if rate <= ceiling:
                out.append(f'<path d="M{left} {y(rate):.1f}H{left + width}" stroke="#ddd"/>')
                out.append(f'<text x="{left - 6}" y="{y(rate) + 4:.1f}" text-anchor="end">{rate:,}</text>')
        decade *= 10
    out.append(f'<text x="{left}" y="18">queries per CPU-second</text>')
    out.append(f'<text x="{left + width / 2}" y="{top + height + 38}" text-anchor="middle">recall@{args.k}</text>')
    for index, program in enumerate(programs):
        colour = colours[index % len(colours)]
        points = sorted((recall, rate) for recall, rate in program.curve() if recall >= low)
        path = " ".join(f"{x(recall):.1f},{y(rate):.1f}" for recall, rate in points)
        out.append(f'<polyline points="{path}" fill="none" stroke="{colour}" stroke-width="2"/>')
        out += [f'<circle cx="{x(recall):.1f}" cy="{y(rate):.1f}" r="3" fill="{colour}"/>' for recall, rate in points]
        at = top + 14 + 18 * index
        out.append(f'<path d="M{left + width + 14} {at}h20" stroke="{colour}" stroke-width="3"/>')
        out.append(f'<text x="{left + width + 40}" y="{at + 4}">{program.name}</text>')
    return "\n".join(out + ["</svg>"]) + "\n"


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", required=True, help="corpus directory")
    parser.add_argument("--binary", default="target/release/graph", help="the bench program")
    parser.add_argument("--before", help="the bench program of an older build, which takes part as a program of its own")
    parser.add_argument("--peers", nargs="+", default=list(engines.ENGINES), choices=list(engines.ENGINES))
    parser.add_argument("--m", type=int, default=16)
    parser.add_argument("--ef-construction", type=int, default=200)
    parser.add_argument("--k", type=int, default=10)
    parser.add_argument("--beams", type=int, nargs="+", help="beams of graphs, where the usual ones do not reach far enough")
    parser.add_argument("--docs", type=int, default=10**9, help="use the first N documents only")
    parser.add_argument("--queries", type=int, default=2000)
    parser.add_argument("--turns", type=int, default=3)
    parser.add_argument("--processes", type=int, default=1, help="of the build, and of the one before, if there is one")
    parser.add_argument("--threads", type=int, default=1, help="threads and cores of each build")
    parser.add_argument("--out", type=Path, default=RESULTS)
    parser.add_argument("--name", default="peers")
    args = parser.parse_args()
    if args.processes < 1:
        parser.error("--processes must be at least 1")
    if not 1 <= args.k <= 100:
        parser.error("--k must be in 1..=100: so many neighbours are known")
    args.docs = min(args.docs, len(engines.np.load(Path(args.data) / "docs.f16.npy", mmap_mode="r")))
    args.queries = min(args.queries, len(engines.np.load(Path(args.data) / "queries.f16.npy", mmap_mode="r")))

    cores, host = sorted(os.sched_getaffinity(0)), machine()
    os.sched_setaffinity(0, cores[-args.threads :])
    programs = []
    builds = ["nigh", *(["before"] if args.before else [])] * args.processes
    for name in [*builds, *args.peers]:
        programs.append(Program(name, args))
        print(json.dumps({"program": name, **programs[-1].build}), flush=True)
    for program in programs:
        program.pin(cores[-1])
    for turn in range(args.turns):
        for program in programs:
            program.turns.append([])
        for step in range(max(len(program.knobs) for program in programs)):
            for program in programs:
                if step < len(program.knobs):
                    line = {"turn": turn, "program": program.name, "knob": program.knobs[step]}
                    print(json.dumps({**line, **program.measure(program.knobs[step])}), flush=True)
    for program in programs:
        program.close()
    by_name = {}
    for program in programs:
        if program is not by_name.setdefault(program.name, program):
            by_name[program.name].absorb(program)
    programs = list(by_name.values())

    measured = [{"name": p.name, "build": p.build, "turns": p.turns} for p in programs]
    settings = {key: getattr(args, key) for key in ("docs", "queries", "k", "m", "ef_construction", "threads", "turns", "processes")}
    record = {"machine": host, "settings": settings, "programs": measured}
    write(args.out, args.name, record, table(args, host, programs))
    (args.out / f"{args.name}.svg").write_text(svg(args, programs))


if __name__ == "__main__":
    main()
