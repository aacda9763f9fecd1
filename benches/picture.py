#!/usr/bin/env python3
"""Draws docs/search-rates.svg, the picture of the README, from results/wordnet-384.json: bars of queries per CPU-second at recall 0.95
of ten neighbours. `--check` fails if the file differs from what the results say."""

import json
import sys
from pathlib import Path

from report import RESULTS, rate_at

RECALL = 0.95
OUT = Path(__file__).parent.parent / "docs" / "search-rates.svg"
LEFT, TOP, WIDTH, BAR, STEP = 170, 44, 470, 20, 30


def programs():
    """Name and rate of every program of the comparison, the fastest first."""
    record = json.loads((RESULTS / "wordnet-384.json").read_text())
    rates = []
    for program in record["programs"]:
        curve = [tuple(point) for turn in program["turns"] for point in turn]
        rate = rate_at(RECALL, curve)
        if rate:
            rates.append((f"{program['name']} {program['build'].get('version', '')}".strip(), rate))
    return sorted(rates, key=lambda pair: -pair[1])


def picture(rates):
    height = TOP + STEP * len(rates) + 10
    most = rates[0][1]
    out = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {LEFT + WIDTH + 90} {height}" font-family="sans-serif" font-size="13">',
        '<rect width="100%" height="100%" fill="white"/>',
        f'<text x="{LEFT}" y="26" font-weight="bold">Queries per CPU-second at recall@10 = {RECALL}, one core</text>',
    ]
    for index, (name, rate) in enumerate(rates):
        y = TOP + STEP * index
        colour = "#c0392b" if name.startswith("nigh") else "#8899aa"
        out.append(f'<text x="{LEFT - 10}" y="{y + 15}" text-anchor="end">{name}</text>')
        out.append(f'<rect x="{LEFT}" y="{y}" width="{rate / most * WIDTH:.1f}" height="{BAR}" fill="{colour}"/>')
        out.append(f'<text x="{LEFT + rate / most * WIDTH + 8:.1f}" y="{y + 15}">{rate:,.0f}</text>')
    return "\n".join([*out, "</svg>"]) + "\n"


def main():
    made = picture(programs())
    if "--check" in sys.argv[1:]:
        if OUT.read_text() != made:
            sys.exit(f"{OUT} is not what the results say; draw it anew with benches/picture.py")
        return
    OUT.write_text(made)


if __name__ == "__main__":
    main()
