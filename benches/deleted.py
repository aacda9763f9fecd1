#!/usr/bin/env python3
"""What deletes and a filter cost together: a fifth of the points deleted and half of the rest asked for, beside a whole collection
searched without a filter, in one process on one core.

    cargo build --release -p nigh-benches --bin filters
    python3 benches/deleted.py --data DIRECTORY [--name NAME]

Both collections take turns (see `filters`). The rate at a recall is interpolated between the two nearest beams of a turn; medians
over turns are quoted, and the ratio is that of the two sides of a turn. Recall of each side is against its own exact answers.
"""

import argparse
import json
import statistics
import subprocess
from pathlib import Path

from report import RESULTS, machine, machine_text, rate_at, write

RECALLS = (0.90, 0.95, 0.98, 0.99)


def table(args, host, head, rows):
    lines = [
        f"# {args.name}",
        "",
        f"{head['docs']:,} documents of `{Path(args.data).name}`, {head['queries']:,} queries, k {head['k']}, m 16, `ef_construction` "
        f"200; {machine_text(host)}. Queries per CPU-second on one core at a recall@{head['k']}, medians of {args.turns} turns, of a "
        f"whole collection without a filter and of one of which {head['deleted']:,} points were deleted with a filter that matches "
        "half of it, and the ratio. Written by `benches/deleted.py`.",
        "",
        f"| deleted points are | filter | way | {' | '.join(f'{recall:.2f}' for recall in RECALLS)} |",
        "|---|---|---|" + "--:|" * len(RECALLS),
    ]
    for state, filter in dict.fromkeys((row["state"], row["filter"]) for row in rows):
        own = [row for row in rows if (row["state"], row["filter"]) == (state, filter)]
        turns = sorted({row["turn"] for row in own})
        cells = []
        for recall in RECALLS:
            rates = [
                [rate_at(recall, [(row[side]["recall"], row[side]["queries_per_cpu_s"], row["ef"])
                                  for row in own if row["turn"] == turn]) for side in ("whole", "cut")]
                for turn in turns
            ]
            if any(None in pair for pair in rates):
                cells.append("–")
                continue
            whole, cut = (statistics.median(side) for side in zip(*rates))
            cells.append(f"{whole:,.0f}, {cut:,.0f} ({statistics.median(c / w for w, c in rates):.2f})")
        ways = ", ".join(sorted({way for row in own for way in row["cut"]["ways"]}))
        lines.append(f"| {state} | {filter} | {ways} | {' | '.join(cells)} |")
    return "\n".join(lines) + "\n"


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", required=True, help="corpus directory")
    parser.add_argument("--binary", default="target/release/filters", help="the bench program")
    parser.add_argument("--percent", type=int, default=20, help="share of the points that is deleted")
    parser.add_argument("--queries", type=int, default=2000)
    parser.add_argument("--turns", type=int, default=3)
    parser.add_argument("--out", type=Path, default=RESULTS)
    parser.add_argument("--name", default="deleted")
    args = parser.parse_args()
    command = [args.binary, args.data, "--deleted", str(args.percent), "--queries", str(args.queries), "--turns", str(args.turns)]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    lines = []
    for line in process.stdout:
        print(line, end="", flush=True)
        lines.append(json.loads(line))
    if process.wait() != 0:
        raise SystemExit(f"the bench program ended with {process.returncode}")
    head, rows, host = lines[0], [line for line in lines if "state" in line], machine()
    write(args.out, args.name, {"machine": host, "settings": head, "lines": lines[1:]}, table(args, host, head, rows))


if __name__ == "__main__":
    main()
