#!/usr/bin/env python3
"""Cells with product codes beside those of faiss (IndexIVFPQ) at equal cells, parts, bits and probes, in one run: recall of the 10
nearest by codes alone, and with the best 30 by codes scored exactly. Needs numpy and faiss-cpu, and `target/release/cell_codes`.

    benches/cell_codes.py --data DIR [--docs N] [--queries N] [--only TEXT] [--write benches/results/cell_codes.md]
"""
import argparse
import json
import os
import pathlib
import subprocess
import time

import faiss
import numpy as np

ROOT = pathlib.Path(__file__).resolve().parent.parent
K, RERANKED = 10, 3


def unit(rows):
    rows = np.ascontiguousarray(rows, dtype=np.float32)
    return rows / np.maximum(np.linalg.norm(rows, axis=1, keepdims=True), 1e-30)


def build(code, nlist, metric, docs):
    """faiss's counterpart; none of cells that points spill into."""
    dim, words = docs.shape[1], code.split()
    if "soar" in words:
        return None
    parts, bits = map(int, words[-1].split("x"))
    flat = faiss.IndexFlat(dim, metric)
    index = faiss.IndexIVFPQ(flat, dim, nlist, parts, bits, metric)
    index.cp.niter = index.pq.cp.niter = 25
    whole = index
    if "opq" in words:
        rotation = faiss.OPQMatrix(dim, parts)
        # As many rounds as ours; it turns vectors, and not what is left of them.
        rotation.niter, rotation.niter_pq = 4, 6
        whole = faiss.IndexPreTransform(rotation, index)
    whole.train(docs)
    whole.add(docs)
    # The flat index has no other owner.
    return whole, index, flat


def measure(index, nprobe, docs, queries, truth):
    index, cells, _ = index
    cells.nprobe = nprobe
    start = time.process_time()
    _, found = index.search(queries, RERANKED * K)
    spent = time.process_time() - start
    alone = np.mean([len(set(f[:K]) & set(t)) / K for f, t in zip(found, truth)])
    # Exact scoring keeps whichever of the nearest are among the candidates.
    reranked = np.mean([len(set(f) & set(t)) / K for f, t in zip(found, truth)])
    return alone, reranked, len(queries) / spent


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", required=True)
    parser.add_argument("--docs", type=int, default=30_000)
    parser.add_argument("--queries", type=int, default=200)
    parser.add_argument("--only", default="")
    parser.add_argument("--write")
    options = parser.parse_args()
    faiss.omp_set_num_threads(1)
    docs = np.load(f"{options.data}/docs.f16.npy")[: options.docs]
    queries = np.load(f"{options.data}/queries.f16.npy")[: options.queries]
    program = pathlib.Path(os.environ.get("CARGO_TARGET_DIR", ROOT / "target")) / "release/cell_codes"
    command = [program, options.data, "--docs", str(len(docs)), "--queries", str(len(queries))]
    command += ["--only", options.only] if options.only else []
    ours = [json.loads(line) for line in subprocess.run(command, check=True, capture_output=True, text=True).stdout.splitlines()]
    plain = {"cosine": (unit(docs), unit(queries)), "l2": (docs.astype(np.float32), queries.astype(np.float32))}
    plain["dot"] = plain["l2"]
    lines = [
        f"{len(docs)} vectors of {docs.shape[1]} components in {ours[0]['nlist']} cells, {len(queries)} queries; recall of the {K}",
        f"nearest by codes alone, and with the best {RERANKED * K} by codes scored exactly; searches per CPU-second by codes alone.",
        "",
        "| code | metric | bytes | probes | recall | reranked | searches/s | faiss recall | reranked | searches/s |",
        "|---|---|--:|--:|--:|--:|--:|--:|--:|--:|",
    ]
    truths, built = {}, (None, None)
    for row in ours:
        metric = row["metric"]
        d, q = plain[metric]
        kind = faiss.METRIC_L2 if metric == "l2" else faiss.METRIC_INNER_PRODUCT
        if metric not in truths:
            flat = faiss.IndexFlat(d.shape[1], kind)
            flat.add(d)
            truths[metric] = flat.search(q, K)[1]
        if built[0] != (row["code"], metric):
            built = ((row["code"], metric), build(row["code"], row["nlist"], kind, d))
        cells = [row["code"], metric, row["bytes"], row["nprobe"], f"{row['recall']:.3f}", f"{row['reranked']:.3f}"]
        cells.append(f"{row['queries_per_cpu_s']:.0f}")
        if built[1] is None:
            cells += ["", "", ""]
        else:
            alone, reranked, rate = measure(built[1], row["nprobe"], d, q, truths[metric])
            cells += [f"{alone:.3f}", f"{reranked:.3f}", f"{rate:.0f}"]
        lines.append("| " + " | ".join(map(str, cells)) + " |")
        print(lines[-1], flush=True)
    if options.write:
        pathlib.Path(options.write).write_text("# Cells with product codes\n\n" + "\n".join(lines) + "\n")


if __name__ == "__main__":
    main()
