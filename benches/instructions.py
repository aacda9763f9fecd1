#!/usr/bin/env python3
"""Instructions of one search and of one insert, counted by callgrind, beside those kept in the tree.

    cargo build --release -p nigh-benches --bin graph
    python3 benches/instructions.py --data DIRECTORY [--write]

Counts do not depend on what else the machine does, so that a change that costs more is seen where times would hide it. Each count
is the difference of two runs that differ in nothing else: a search in how often all queries are asked, an insert in how many
documents there are. Valgrind knows no AVX-512, so that AVX2 kernels are counted. Ends with 1 when a count is more than `--tolerance`
above the one in benches/results/instructions.json; `--write` keeps the new ones.
"""

import argparse
import json
import re
import subprocess
import sys
import tempfile
from pathlib import Path

KEPT = Path(__file__).parent / "results" / "instructions.json"
DOCS, MORE_DOCS, QUERIES, EF = 4000, 5000, 200, 64


def instructions(args, docs, repeat):
    """All instructions of one run of the bench program."""
    program = [args.binary, args.data, "--docs", docs, "--queries", QUERIES, "--ef", EF, "--repeat", repeat, "--threads", 1]
    with tempfile.TemporaryDirectory() as directory:
        command = ["valgrind", "--tool=callgrind", f"--callgrind-out-file={directory}/out", *program]
        run = subprocess.run([str(word) for word in command], capture_output=True, text=True)
    found = re.search(r"Collected : (\d+)", run.stderr)
    if run.returncode or not found:
        sys.exit(f"{' '.join(map(str, command))} ended with {run.returncode}:\n{run.stderr[-2000:]}")
    return int(found[1])


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", required=True, help="corpus directory")
    parser.add_argument("--binary", default="target/release/graph", help="the bench program")
    parser.add_argument("--tolerance", type=float, default=0.02)
    parser.add_argument("--write", action="store_true", help="keep the counts of this run")
    args = parser.parse_args()

    built = instructions(args, DOCS, 0)
    counts = {
        f"search of {DOCS} documents at ef {EF}": (instructions(args, DOCS, 1) - built) // QUERIES,
        f"insert of one of {DOCS} to {MORE_DOCS} documents": (instructions(args, MORE_DOCS, 0) - built) // (MORE_DOCS - DOCS),
    }
    kept = json.loads(KEPT.read_text()) if KEPT.exists() else {}
    worse = False
    for what, count in counts.items():
        before = kept.get(what)
        change = f"{count / before - 1:+.2%} against {before:,}" if before else "nothing to compare with"
        worse |= bool(before) and count > before * (1 + args.tolerance)
        print(f"{what}: {count:,} instructions, {change}")
    if args.write:
        KEPT.parent.mkdir(exist_ok=True)
        KEPT.write_text(json.dumps(counts, indent=1) + "\n")
    elif worse:
        sys.exit("costs more than what is kept; if that is meant, run again with --write")


if __name__ == "__main__":
    main()
