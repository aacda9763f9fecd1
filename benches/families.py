#!/usr/bin/env python3
"""Compares collections of named spaces with dense collections, and filters on multi-vector collections with an exhaustive search, in one run.

    cargo build --release -p nigh
    pip install 'numpy<2'
    python3 benches/families.py --data DIRECTORY --tokens DIRECTORY [--name NAME]

The server has one CPU, and the client another. Rates are searches per second of CPU time of the server, which reads each request of the binary
protocol, searches, and writes the answer; requests are sent in pipelines of 32. Two searches that are compared take turns, and the median of each
is quoted.

1. *Named spaces beside dense collections.* A dense collection and one with a single named space hold the same points and are searched with the
   same filters, and without a filter. The ratio is the rate of the named space divided by that of the dense collection.
2. *Memory.* Resident memory of a server with three spaces in one collection, and of a server with three dense collections of which one alone has
   payloads, before and after the points are added and indexed.
3. *Filters on a multi-vector collection*, from all documents to one in a thousand. The floor is the larger of half the rate without a filter and
   the rate of a matrix product with BLAS over the tokens of just the matching documents, which are gathered into one matrix before the time is
   taken. Recall is the share of the ten best matching documents by exact MaxSim that are among the results. The search with a filter is measured
   twice: with as many candidates a token as the search without one, and with the fewest that reach the same recall.

`--data` is a directory with `docs.f16.npy`, `queries.f16.npy` and `docs.jsonl.gz`; `--tokens` is the directory that `multi_vector.py`
takes as `--data`. Without one of the two, its parts are left out. The script writes NAME.json (every measurement) and NAME.md (tables) into `--out`.
"""

import argparse
import json
import os
import statistics
import struct
import sys
import time
from pathlib import Path

import numpy as np

from binary import Nigh, cpu_seconds, frame, ids_of_documents, matrix, resident_kb, text, token_search, vector
from report import RESULTS, blas_on_one_thread, machine, machine_text, recall, write
from server import lines

K, DEPTH = 10, 32


def tagged(value):
    return {"kind": "string", "str": value} if isinstance(value, str) else {"kind": "int", "int": value}


def metadata(payload):
    return text(json.dumps({key: tagged(value) for key, value in payload.items()}), 4)


def below(limit):
    return {"op": "lt", "field": "bucket", "value": tagged(limit)}


def equal(key, value):
    return {"op": "eq", "field": key, "value": tagged(value)}


def filters(buckets):
    """Filters by name; `None` is a search without one."""
    return {
        "none": None,
        **{f"bucket below {part:g} of all": below(round(part * buckets)) for part in (0.5, 0.2, 0.1, 0.05, 0.02, 0.01, 0.001)},
        "pos is noun": equal("pos", "noun"),
        "pos is not noun": {"op": "not", "not": equal("pos", "noun")},
        "pos is adv": equal("pos", "adv"),
    }


def matches(condition, payload):
    if condition is None:
        return True
    if "not" in condition:
        return not matches(condition["not"], payload)
    if condition["op"] == "lt":
        return payload[condition["field"]] < condition["value"]["int"]
    return payload[condition["field"]] == condition["value"]["str"]


def condition_bytes(condition):
    return text(json.dumps(condition) if condition else "", 4)


def normalised(rows):
    rows = rows.astype(np.float32)
    return rows / np.linalg.norm(rows, axis=1, keepdims=True)


def upsert(collection, point, components, payload):
    flags, meta = (2, metadata(payload)) if payload else (0, b"")
    args = bytes([flags]) + text(collection, 1) + struct.pack(">Q", point) + vector(components) + meta
    return frame("vector_upsert", args)


def named_insert(collection, point, spaces, payload):
    args = text(collection, 1) + struct.pack(">QI", point, len(spaces))
    args += b"".join(text(space, 2) + vector(components) for space, components in spaces.items())
    return frame("vector_named_insert", args + struct.pack(">Q", 0) + (metadata(payload) if payload else bytes(4)))


def dense_search(collection, query, condition):
    flags, wire = (1, condition_bytes(condition)) if condition else (0, b"")
    return frame("vector_search", bytes([flags]) + text(collection, 1) + struct.pack(">I", K) + vector(query) + wire)


def named_search(collection, query, condition):
    args = text(collection, 1) + text("title", 2) + struct.pack(">I", K) + vector(query)
    return frame("vector_named_search", args + condition_bytes(condition))


def ids_of_hits(body):
    count = struct.unpack(">I", body[:4])[0]
    return [struct.unpack(">Q", body[4 + 12 * i : 12 + 12 * i])[0] for i in range(count)]


def add(server, frames):
    part = []
    for one in frames:
        part.append(one)
        if len(part) == 1000:
            for _ in server.send(part, 100):
                pass
            part = []
    for _ in server.send(part, 100):
        pass


def timed(server, frames):
    before = cpu_seconds(server.pid)
    bodies = list(server.send(frames, DEPTH))
    return len(frames) / (cpu_seconds(server.pid) - before), bodies


def in_turns(server, kinds, turns):
    """Rates and answers of several kinds of searches (name: frames), measured in turns."""
    rates, bodies = {name: [] for name in kinds}, {name: [] for name in kinds}
    for _ in range(turns):
        for name, frames in kinds.items():
            rate, answers = timed(server, frames)
            rates[name].append(rate)
            bodies[name] = answers
    return {name: statistics.median(all_rates) for name, all_rates in rates.items()}, bodies


def best_of(scores, allowed):
    """The ids of the `K` greatest scores of each row among the allowed ones."""
    chosen = np.flatnonzero(allowed)
    part = scores[:, chosen]
    k = min(K, len(chosen))
    top = np.argpartition(-part, k - 1, axis=1)[:, :k] if k else np.zeros((len(part), 0), dtype=int)
    return [chosen[row].tolist() for row in top]


def named_beside_dense(args, documents, payloads, queries):
    server = Nigh(args.nigh)
    config = {"dim": documents.shape[1], "metric": "cosine", "seed": 1}
    server.call("POST", "/v1/collections", {"name": "dense", "config": config})
    server.call("POST", "/v1/named/named", {"named_vectors": {"title": config}})
    add(server, (upsert("dense", i, documents[i], payloads[i]) for i in range(len(documents))))
    add(server, (named_insert("named", i, {"title": documents[i]}, payloads[i]) for i in range(len(documents))))
    server.settle()
    scores, rows = queries @ documents.T, []
    for name, condition in filters(args.buckets).items():
        allowed = np.array([matches(condition, payload) for payload in payloads])
        truth = best_of(scores, allowed)
        kinds = {
            "dense": [dense_search("dense", query, condition) for query in queries],
            "named": [named_search("named", query, condition) for query in queries],
        }
        rates, bodies = in_turns(server, kinds, args.turns)
        row = {"filter": name, "matching": int(allowed.sum())}
        for kind in kinds:
            row[kind] = {"rate": rates[kind], "recall": recall([ids_of_hits(body) for body in bodies[kind]], truth)}
        rows.append(row)
        print(json.dumps(row), file=sys.stderr)
    server.stop()
    return rows


def memory(args, documents, payloads):
    """Resident KB of three spaces in one collection, and of three collections of which the first alone has payloads."""
    spaces = ["title", "body", "image"]
    config = {"dim": documents.shape[1], "metric": "cosine", "seed": 1}
    rotated = [np.roll(documents, 7 * number, axis=1) for number in range(3)]
    sizes = {}
    for kind in ("named", "dense"):
        server = Nigh(args.nigh)
        if kind == "named":
            server.call("POST", "/v1/named/named", {"named_vectors": {space: config for space in spaces}})
        else:
            for space in spaces:
                server.call("POST", "/v1/collections", {"name": space, "config": config})
        empty = resident_kb(server.pid)
        for i in range(0, len(documents), 1000):
            part = range(i, min(i + 1000, len(documents)))
            if kind == "named":
                add(server, (named_insert("named", i, dict(zip(spaces, (rows[i] for rows in rotated))), payloads[i]) for i in part))
            else:
                for number, space in enumerate(spaces):
                    add(server, (upsert(space, i, rotated[number][i], None if number else payloads[i]) for i in part))
        server.settle()
        sizes[kind] = resident_kb(server.pid) - empty
        server.stop()
    return sizes


# Numbers of candidates a token that are tried for a search with a filter, beside that of the search without one.
CANDIDATES = (12, 16, 20, 25, 30, 35, 40, 45, 60, 80, 100)


def filtered_documents(args, buckets):
    def load(name):
        return normalised(np.load(args.tokens / f"{name}_tokens.f16.npy")), np.load(args.tokens / f"{name}_offsets.i32.npy")

    (tokens, offsets), (query_tokens, query_offsets) = load("doc"), load("query")
    queries = [query_tokens[a:b] for a, b in zip(query_offsets[: args.token_queries], query_offsets[1:])]
    count = len(offsets) - 1
    bucket = np.random.default_rng(2).integers(0, buckets, count)
    server = Nigh(args.nigh)
    server.call("POST", "/v1/multivector/documents", {"dim": tokens.shape[1], "seed": 1})
    add(server, (frame("vector_mv_add", text("documents", 1) + struct.pack(">Q", i) + matrix(tokens[offsets[i] : offsets[i + 1]])
                       + metadata({"bucket": int(bucket[i])})) for i in range(count)))
    server.settle()
    all_scores = np.stack([np.maximum.reduceat(tokens @ query.T, offsets[:-1], axis=0).sum(axis=1) for query in queries])
    lengths, rows = np.diff(offsets), []
    for part in (1.0, 0.7, 0.5, 0.3, 0.2, 0.1, 0.05, 0.03, 0.02, 0.01, 0.001):
        condition = below(round(part * buckets))
        allowed = bucket < round(part * buckets)
        truth = best_of(all_scores, allowed)
        def filtered(candidates):
            return [token_search("documents", query, K, candidates, condition_bytes(condition)) for query in queries]

        def recall_of(bodies):
            return recall([ids_of_documents(body) for body in bodies], truth)

        kinds = {"unfiltered": [token_search("documents", query, K, args.candidates) for query in queries],
                 "filtered": filtered(args.candidates)}
        if part == 1.0:
            unfiltered_recall = recall_of(in_turns(server, kinds, 1)[1]["unfiltered"])
        equal = args.candidates
        for candidates in sorted({*CANDIDATES, args.candidates}):
            reached = recall_of(in_turns(server, {"filtered": filtered(candidates)}, 1)[1]["filtered"])
            if reached >= unfiltered_recall:
                equal = candidates
                break
        kinds["equal"] = filtered(equal)
        rates, bodies = in_turns(server, kinds, args.turns)
        chosen = np.flatnonzero(allowed)
        ready = np.concatenate([tokens[offsets[i] : offsets[i + 1]] for i in chosen])
        starts = np.concatenate([[0], np.cumsum(lengths[chosen])[:-1]])
        few = queries[:100]
        start = time.process_time()
        for query in few:
            scores = np.maximum.reduceat(ready @ query.T, starts, axis=0).sum(axis=1)
            np.argpartition(-scores, min(K, len(scores) - 1))
        scan = len(few) / (time.process_time() - start)
        row = {"share": part, "matching": len(chosen), "scan": scan, "unfiltered": rates["unfiltered"], "rate": rates["filtered"],
               "recall": recall_of(bodies["filtered"]), "unfiltered_recall": unfiltered_recall,
               "equal_candidates": equal, "equal_rate": rates["equal"], "equal_recall": recall_of(bodies["equal"])}
        rows.append(row)
        print(json.dumps(row), file=sys.stderr)
    server.stop()
    return rows


def page(record):
    out = ["# Named spaces and multi-vector collections compared", "",
           f"`benches/families.py`; {machine_text(record['machine'])}. Searches per CPU second of the server, k {K}."]
    if "named" in record:
        out += ["", f"## One named space beside a dense collection, {record['points']:,} points of {record['dim']} components", "",
                "| filter | matching | dense | recall | named | recall | named / dense |", "|---|--:|--:|--:|--:|--:|--:|"]
        for row in record["named"]:
            dense, named = row["dense"], row["named"]
            out.append(f"| {row['filter']} | {row['matching']:,} | {dense['rate']:,.0f} | {dense['recall']:.3f} | {named['rate']:,.0f} "
                       f"| {named['recall']:.3f} | {named['rate'] / dense['rate']:.2f} |")
    if "memory" in record:
        sizes = record["memory"]
        out += ["", "## Memory", "",
                f"Three spaces in one collection: {sizes['named'] / 1024:,.1f} MiB. Three dense collections of which one has payloads: "
                f"{sizes['dense'] / 1024:,.1f} MiB. Ratio {sizes['named'] / sizes['dense']:.3f}."]
    if "documents" in record:
        out += ["", f"## Filters on a multi-vector collection, `candidates_per_token` {record['candidates']}", "",
                f"Recall without a filter: {record['documents'][0].get('unfiltered_recall', 0):.3f}.", "",
                "| share | matching | unfiltered | scan by BLAS | recall@10 | rate | rate / floor | candidates for the recall without a filter | recall@10 "
                "| rate | rate / floor |", "|--:|--:|--:|--:|--:|--:|--:|--:|--:|--:|--:|"]
        for row in record["documents"]:
            floor = max(row["unfiltered"] / 2, row["scan"])
            out.append(f"| {row['share']:g} | {row['matching']:,} | {row['unfiltered']:,.0f} | {row['scan']:,.0f} | {row['recall']:.3f} "
                       f"| {row['rate']:,.0f} | {row['rate'] / floor:.2f} | {row['equal_candidates']} | {row['equal_recall']:.3f} "
                       f"| {row['equal_rate']:,.0f} | {row['equal_rate'] / floor:.2f} |")
    return "\n".join(out) + "\n"


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--nigh", default="target/release/nigh")
    parser.add_argument("--data", type=Path)
    parser.add_argument("--tokens", type=Path)
    parser.add_argument("--points", type=int, default=60_000)
    parser.add_argument("--memory-points", type=int, default=30_000)
    parser.add_argument("--queries", type=int, default=1000)
    parser.add_argument("--token-queries", type=int, default=500)
    parser.add_argument("--candidates", type=int, default=50)
    parser.add_argument("--buckets", type=int, default=100_000)
    parser.add_argument("--turns", type=int, default=5)
    parser.add_argument("--out", type=Path, default=RESULTS)
    parser.add_argument("--name", default="families")
    args = parser.parse_args()
    os.sched_setaffinity(0, {max(os.sched_getaffinity(0))})
    record = {"machine": machine(), "candidates": args.candidates}
    if args.tokens:
        record["documents"] = filtered_documents(args, args.buckets)
    if args.data:
        corpus = lines(args.data / "docs.jsonl.gz")
        # The corpus is sorted by part of speech.
        chosen = np.random.default_rng(3).permutation(len(corpus))[: args.points]
        documents = normalised(np.load(args.data / "docs.f16.npy")[chosen])
        queries = normalised(np.load(args.data / "queries.f16.npy")[: args.queries])
        bucket = np.random.default_rng(1).integers(0, args.buckets, len(documents))
        payloads = [{"bucket": int(bucket[i]), "pos": corpus[row]["pos"], "lex": int(corpus[row]["lex"])} for i, row in enumerate(chosen)]
        record.update(points=len(documents), dim=documents.shape[1])
        record["named"] = named_beside_dense(args, documents, payloads, queries)
        few = args.memory_points
        record["memory"] = memory(args, documents[:few], payloads[:few])
    write(args.out, args.name, record, page(record))


if __name__ == "__main__":
    blas_on_one_thread()
    main()
