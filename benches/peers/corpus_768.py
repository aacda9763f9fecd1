#!/usr/bin/env python3
"""Corpora of 768 dimensions, made of one of 384.

    pip install 'numpy<2'
    python3 benches/peers/corpus_768.py --data DIRECTORY --kind pairs|lift --out DIRECTORY

`pairs` puts two embeddings side by side: that of a document and that of the one after it in the file (the last with the first).
Neighbours in the file are related, as the sentences of a passage are, and both halves are what a model said. A query takes, as
its second half, the query whose source comes next in the file, so that it is of the documents' kind. Two texts vary in more ways
than one, so this corpus is harder than its halves.

`lift` keeps the texts and makes their vectors wide, as a larger model would: [x, y] with y = tanh(2 W x) of unit length, W a fixed
random 384 x 384 matrix of standard normals. The second half bends what the first says and adds nothing, so this corpus is about as
hard as the narrow one, and its rows cost twice as much to read.

Rows are of length 1, in half precision. Exact answers are those of the rows as written, by brute force in float32. Writes
docs.f16.npy, queries.f16.npy and truth100.i32.npy, as `run.py` and the bench programs read them; `pairs` needs queries.jsonl.gz.
"""

import argparse
import gzip
import json
from pathlib import Path

import numpy as np

SEED = 1
TRUTH = 100


def unit(rows):
    return rows / np.linalg.norm(rows, axis=1, keepdims=True)


def lift(docs, queries, _directory):
    matrix = np.random.default_rng(SEED).standard_normal((docs.shape[1], docs.shape[1])).astype("f4")
    return [np.hstack([rows, unit(np.tanh(2 * rows @ matrix))]) for rows in (docs, queries)]


def pairs(docs, queries, directory):
    with gzip.open(directory / "queries.jsonl.gz", "rt", encoding="utf-8") as file:
        sources = np.array([json.loads(line)["doc"] for line in file])
    in_order = np.argsort(sources, kind="stable")
    after = np.empty(len(queries), dtype=int)
    after[in_order] = np.roll(in_order, -1)
    return [np.hstack([docs, np.roll(docs, -1, axis=0)]), np.hstack([queries, queries[after]])]


def exact(docs, queries):
    answers = np.empty((len(queries), TRUTH), dtype="i4")
    for first in range(0, len(queries), 500):
        near = queries[first : first + 500] @ docs.T
        found = np.argpartition(-near, TRUTH, axis=1)[:, :TRUTH]
        order = np.argsort(-np.take_along_axis(near, found, axis=1), axis=1, kind="stable")
        answers[first : first + 500] = np.take_along_axis(found, order, axis=1)
    return answers


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, required=True, help="directory of the narrow corpus")
    parser.add_argument("--kind", choices=["pairs", "lift"], required=True)
    parser.add_argument("--queries", type=int, default=3000, help="how many to write; all of them are used to make pairs")
    parser.add_argument("--out", type=Path, required=True)
    args = parser.parse_args()
    narrow = [unit(np.load(args.data / f"{name}.f16.npy").astype("f4")) for name in ("docs", "queries")]
    docs, queries = (unit(rows).astype("f2") for rows in {"pairs": pairs, "lift": lift}[args.kind](*narrow, args.data))
    queries = queries[: args.queries]
    args.out.mkdir(parents=True, exist_ok=True)
    np.save(args.out / "docs.f16.npy", docs)
    np.save(args.out / "queries.f16.npy", queries)
    np.save(args.out / "truth100.i32.npy", exact(*(unit(rows.astype("f4")) for rows in (docs, queries))))


if __name__ == "__main__":
    main()
