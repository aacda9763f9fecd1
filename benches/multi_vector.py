#!/usr/bin/env python3
"""Compares multi-vector search in one run: Nigh, an exhaustive MaxSim with BLAS (numpy), and Qdrant's segments in process.

    cargo build --release -p nigh
    pip install 'numpy<2' qdrant-edge-py
    python3 benches/multi_vector.py --data DIRECTORY [--name NAME]

`DIRECTORY` holds the token vectors of documents and of queries (`doc_tokens.f16.npy` and `doc_offsets.i32.npy`, likewise `query_`) and
`truth100.i32.npy`, the best documents of each query by exact MaxSim, the best first.

Every program has one CPU. Nigh runs as a server and receives one request at a time over the binary protocol. Its rate is the number of searches per
second of CPU time of the server alone, which reads the request, searches, and writes the answer with the payloads (which are empty). The other two
are called in process, and their rates are per second of CPU time of that process. The parameter that is varied is `candidates_per_token` for Nigh
(eight times the value of `--candidates` where one search looks for encodings of documents) and
`hnsw_ef` for Qdrant; the exhaustive search has none. Recall is the share of the ten best documents that are among the ten results.

The collection is created once with each of the `--configs`. The resident memory of the server is measured before any document is added and after all
of them are indexed. After the measurements with the first configuration, half of the documents are replaced by others and then written back as they
were, and recall is measured again.

The script writes NAME.json (every measurement) and NAME.md (a table) into `--out`. Without qdrant-edge-py, the table says that Qdrant is left out.
"""

import argparse
import os
import statistics
import struct
import tempfile
import time
from pathlib import Path

import numpy as np

from binary import Nigh, cpu_seconds, frame, ids_of_documents, matrix, resident_kb, text, token_search
from report import RESULTS, blas_on_one_thread, machine, machine_text, rate_at, recall, write

NAME, K = "bench", 10
RECALLS = (0.90, 0.95, 0.98)
CONFIGS = {
    "floats": {},
    "persistent": {"persistent": True},
    "sq8": {"quant": "sq8"},
    "encodings": {"first_stage": "encodings"},
    "encodings, 2,560 components": {"first_stage": "encodings", "encoding_repetitions": 40},
    "encodings, persistent": {"first_stage": "encodings", "persistent": True},
    "encodings, token codes of 8 bits": {"first_stage": "encodings", "token_codes": "sq8"},
    "encodings, token codes of 4 bits": {"first_stage": "encodings", "token_codes": "sq4"},
}
# One search looks for documents in the place of one for each token of the query, which are about as many in the data that this was made for.
SEARCHED_PER_TOKEN = 8


class Documents:
    """A Nigh server with one collection of documents."""

    def __init__(self, binary, dim, config, directory):
        self.server = Nigh(binary, directory if config.get("persistent") else None)
        self.server.call("POST", f"/v1/multivector/{NAME}", {"dim": dim, "seed": 1, **config})

    def add(self, documents):
        """Documents as (id, token vectors), in pipelines of a hundred requests."""
        for first in range(0, len(documents), 1000):
            frames = [frame("vector_mv_add", text(NAME, 1) + struct.pack(">Q", i) + matrix(tokens) + bytes(4))
                      for i, tokens in documents[first : first + 1000]]
            for _ in self.server.send(frames, 100):
                pass
        self.server.settle()

    def search(self, query, candidates):
        return ids_of_documents(next(self.server.send([token_search(NAME, query, K, candidates)], 1)))

    def measure(self, queries, truth, candidates):
        before = cpu_seconds(self.server.pid)
        found = [self.search(query, candidates) for query in queries]
        spent = cpu_seconds(self.server.pid) - before
        return recall(found, truth), len(queries) / spent, candidates


def exhaustive(documents, offsets, queries, truth, turns):
    """Scores all documents by one matrix product for each query, on one thread."""
    found, rates = None, []
    for _ in range(turns):
        start = time.process_time()
        found = []
        for query in queries:
            best = np.maximum.reduceat(documents @ query.T, offsets[:-1], axis=0).sum(axis=1)
            top = np.argpartition(-best, K)[:K]
            found.append(top[np.lexsort((top, -best[top]))])
        rates.append(len(queries) / (time.process_time() - start))
    return recall(found, truth), statistics.median(rates)


def qdrant(documents, offsets, queries, truth, knobs, turns):
    """Measures qdrant-edge; returns its results, the costs of building and its version, or `None` if it is not installed."""
    try:
        import qdrant_edge as q
    except ImportError:
        return None
    from importlib.metadata import version

    with tempfile.TemporaryDirectory(prefix="peer-") as directory:
        hnsw = q.HnswIndexConfig(m=16, ef_construct=200, full_scan_threshold=0, max_indexing_threads=1)
        several = q.MultiVectorConfig(q.MultiVectorComparator.MaxSim)
        vectors = {"": q.EdgeVectorParams(size=documents.shape[1], distance=q.Distance.Cosine,
                                          multivector_config=several, hnsw_config=hnsw)}
        optimizers = q.EdgeOptimizersConfig(default_segment_number=1)
        config = q.EdgeConfig(vectors=vectors, max_search_threads=1, optimizers=optimizers)
        start, before = time.process_time(), resident_kb("self")
        shard = q.EdgeShard.create(directory, config)
        for first in range(0, len(offsets) - 1, 1000):
            points = [q.Point(i, documents[offsets[i] : offsets[i + 1]].tolist())
                      for i in range(first, min(first + 1000, len(offsets) - 1))]
            shard.update(q.UpdateOperation.upsert_points(points))
        shard.optimize()
        built = {"build_cpu_s": time.process_time() - start, "resident_kb": resident_kb("self") - before,
                 "indexed": shard.info().indexed_vectors_count, "version": version("qdrant-edge-py")}
        sweep = []
        for knob in knobs:
            params = q.SearchParams(hnsw_ef=knob)
            requests = [q.SearchRequest(query=q.Query.Nearest(query.tolist()), limit=K, params=params) for query in queries]
            rates = []
            for _ in range(turns):
                start = time.process_time()
                answers = [shard.search(request) for request in requests]
                rates.append(len(queries) / (time.process_time() - start))
            found = [[hit.id for hit in hits] for hits in answers]
            sweep.append((recall(found, truth), statistics.median(rates), knob))
        shard.close()
        return {"sweep": sweep, **built}


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--nigh", default="target/release/nigh")
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--queries", type=int, default=1000)
    parser.add_argument("--documents", type=int, default=None, help="only the first so many, whose truth is then computed")
    parser.add_argument("--configs", nargs="+", default=list(CONFIGS), choices=list(CONFIGS))
    parser.add_argument("--candidates", type=int, nargs="+", default=[10, 20, 30, 40, 50, 75, 100, 200])
    parser.add_argument("--ef", type=int, nargs="+", default=[32, 64, 128, 256, 512, 1024])
    parser.add_argument("--turns", type=int, default=3)
    parser.add_argument("--no-qdrant", action="store_true")
    parser.add_argument("--out", type=Path, default=RESULTS)
    parser.add_argument("--name", default="multi-vector")
    args = parser.parse_args()
    os.sched_setaffinity(0, {max(os.sched_getaffinity(0))})

    def load(name):
        tokens = np.load(args.data / f"{name}_tokens.f16.npy").astype(np.float32)
        tokens /= np.linalg.norm(tokens, axis=1, keepdims=True)
        return tokens, np.load(args.data / f"{name}_offsets.i32.npy")

    (documents, offsets), (query_tokens, query_offsets) = load("doc"), load("query")
    queries = [query_tokens[a:b] for a, b in zip(query_offsets[: args.queries], query_offsets[1:])]
    truth = np.load(args.data / "truth100.i32.npy")[: len(queries), :K].tolist()
    if args.documents:
        offsets = offsets[: args.documents + 1]
        documents = documents[: offsets[-1]]
        truth = []
        for query in queries:
            best = np.maximum.reduceat(documents @ query.T, offsets[:-1], axis=0).sum(axis=1)
            truth.append(np.argsort(-best, kind="stable")[:K].tolist())
    count = len(offsets) - 1
    rows = [(i, documents[offsets[i] : offsets[i + 1]]) for i in range(count)]
    record = {"machine": machine(), "documents": count, "tokens": len(documents), "dim": documents.shape[1],
              "queries": len(queries), "nigh": {}}

    few = max(1, min(len(queries), 200))
    found, rate = exhaustive(documents, offsets, queries[:few], truth[:few], args.turns)
    record["exhaustive"] = {"recall": found, "queries_per_cpu_s": rate}
    for name in args.configs:
        with tempfile.TemporaryDirectory(prefix="nigh-") as directory:
            server = Documents(args.nigh, documents.shape[1], CONFIGS[name], directory)
            pid = server.server.pid
            empty, start = resident_kb(pid), cpu_seconds(pid)
            server.add(rows)
            one = {"build_cpu_s": cpu_seconds(pid) - start, "resident_kb": resident_kb(pid) - empty}
            sweep = []
            each = SEARCHED_PER_TOKEN if "first_stage" in CONFIGS[name] else 1
            for candidates in [each * candidates for candidates in args.candidates]:
                runs = [server.measure(queries, truth, candidates) for _ in range(args.turns)]
                sweep.append((runs[0][0], statistics.median(run[1] for run in runs), candidates))
            one["sweep"] = sweep
            if name == args.configs[0]:
                chosen = np.random.default_rng(1).permutation(count)[: count // 2]
                server.add([(int(i), rows[int(other)][1]) for i, other in zip(chosen, np.roll(chosen, 1))])
                server.add([rows[int(i)] for i in chosen])
                one["replaced"] = [server.measure(queries, truth, candidates) for candidates in args.candidates]
                one["replaced_resident_kb"] = resident_kb(pid) - empty
            server.server.stop()
            record["nigh"][name] = one
    record["qdrant"] = None if args.no_qdrant else qdrant(documents, offsets, queries, truth, args.ef, args.turns)
    write(args.out, args.name, record, page(record))


def page(record):
    base = record["exhaustive"]["queries_per_cpu_s"]
    lines = [
        f"# Multi-vector search, {record['documents']:,} documents of {record['tokens']:,} tokens, {record['dim']} components",
        "",
        f"`benches/multi_vector.py`; {machine_text(record['machine'])}. {record['queries']:,} queries, the ten best documents. "
        f"An exhaustive search with BLAS on one thread: {base:,.1f} queries per CPU second, recall "
        f"{record['exhaustive']['recall']:.3f}. In parentheses: times that rate.",
        "",
        "| Program | " + " | ".join(f"queries/CPU s at {recall:.2f}" for recall in RECALLS)
        + " | highest recall | build, CPU s | KB a document |",
        "|---" + "|--:" * (len(RECALLS) + 3) + "|",
    ]
    programs = [(f"Nigh, {name}", one) for name, one in record["nigh"].items()]
    if record["qdrant"]:
        programs.append((f"qdrant-edge {record['qdrant']['version']}", record["qdrant"]))
    for name, one in programs:
        rates = [rate_at(recall, [tuple(point) for point in one["sweep"]]) for recall in RECALLS]
        cells = [f"{rate:,.0f} ({rate / base:.1f})" if rate else "–" for rate in rates]
        size = one["resident_kb"] / record["documents"]
        best = max(point[0] for point in one["sweep"])
        lines.append(f"| {name} | {' | '.join(cells)} | {best:.3f} | {one['build_cpu_s']:,.0f} | {size:,.1f} |")
    if not record["qdrant"]:
        lines += ["", "qdrant-edge is left out: it is not installed, or was not asked for."]
    first = next(iter(record["nigh"].values()))
    lines += ["", "Recall before and after half of the documents were replaced and written back, by `candidates_per_token`:", "",
              "| Candidates | " + " | ".join(str(point[2]) for point in first["sweep"]) + " |",
              "|---" + "|--:" * len(first["sweep"]) + "|",
              "| before | " + " | ".join(f"{point[0]:.4f}" for point in first["sweep"]) + " |",
              "| after | " + " | ".join(f"{point[0]:.4f}" for point in first["replaced"]) + " |"]
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    blas_on_one_thread()
    main()
