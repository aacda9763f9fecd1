#!/usr/bin/env python3
"""Quantizers beside those of faiss at equal bytes, in one run: recall of the 10 nearest by codes alone, and after scoring the
100 nearest by codes exactly. Needs numpy and faiss-cpu, and `target/release/quantizers`.

    benches/quantizers.py --data DIR [--docs N] [--queries N] [--write benches/results/quantizers.md]
"""
import argparse
import json
import pathlib
import subprocess
import time

import faiss
import numpy as np

ROOT = pathlib.Path(__file__).resolve().parent.parent
K, RESCORED = 10, 100


def factory(name, dim, metric):
    """faiss's counterpart of a quantizer of ours, at the same bytes or the next it has."""
    scalar = faiss.ScalarQuantizer
    opq = lambda: faiss.IndexPreTransform(faiss.OPQMatrix(dim, 48), faiss.IndexPQ(dim, 48, 8, metric))
    makers = {
        "sq 8": lambda: faiss.IndexScalarQuantizer(dim, scalar.QT_8bit, metric),
        "sq 6": lambda: faiss.IndexScalarQuantizer(dim, scalar.QT_6bit, metric),
        "sq 4": lambda: faiss.IndexScalarQuantizer(dim, scalar.QT_4bit, metric),
        "bq1": lambda: faiss.IndexPreTransform(faiss.RandomRotationMatrix(dim, dim), faiss.IndexRaBitQ(dim, metric)),
        "pq 96x8": lambda: faiss.IndexPQ(dim, 96, 8, metric),
        "pq 48x8": lambda: faiss.IndexPQ(dim, 48, 8, metric),
        "pq 96x4": lambda: faiss.IndexPQ(dim, 96, 4, metric),
        "pq 192x4": lambda: faiss.IndexPQ(dim, 192, 4, metric),
        "opq 48x8, 14 rounds": opq,
        "prq 2x48": lambda: faiss.IndexProductResidualQuantizer(dim, 48, 2, 8, metric),
        "prq 2x24": lambda: faiss.IndexProductResidualQuantizer(dim, 24, 2, 8, metric),
    }
    return makers[name]() if name in makers else None


def unit(rows):
    rows = np.ascontiguousarray(rows, dtype=np.float32)
    return rows / np.maximum(np.linalg.norm(rows, axis=1, keepdims=True), 1e-30)


def measure(name, metric, docs, queries, truth):
    kind = faiss.METRIC_L2 if metric == "l2" else faiss.METRIC_INNER_PRODUCT
    index = factory(name, docs.shape[1], kind)
    if index is None:
        return None
    start = time.process_time()
    sample = docs[np.random.default_rng(1).choice(len(docs), min(len(docs), 16_384), replace=False)]
    index.train(sample)
    index.add(docs)
    built = time.process_time() - start
    _, found = index.search(queries, RESCORED)
    alone = np.mean([len(set(f[:K]) & set(t)) / K for f, t in zip(found, truth)])
    rescored = np.mean([len(set(f) & set(t)) / K for f, t in zip(found, truth)])
    return {"recall": alone, "rescored": rescored, "bytes": index.sa_code_size(), "cpu_s": built}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", required=True)
    parser.add_argument("--docs", type=int, default=1 << 30)
    parser.add_argument("--queries", type=int, default=1000)
    parser.add_argument("--only", default="")
    parser.add_argument("--write")
    options = parser.parse_args()
    faiss.omp_set_num_threads(1)
    docs = np.load(f"{options.data}/docs.f16.npy")[: options.docs]
    queries = np.load(f"{options.data}/queries.f16.npy")[: options.queries]
    command = [ROOT / "target/release/quantizers", options.data, "--docs", str(len(docs)), "--queries", str(len(queries))]
    command += ["--only", options.only] if options.only else []
    ours = [json.loads(line) for line in subprocess.run(command, check=True, capture_output=True, text=True).stdout.splitlines()]
    plain = {"cosine": (unit(docs), unit(queries)), "l2": (docs.astype(np.float32), queries.astype(np.float32))}
    plain["dot"] = plain["l2"]
    lines = [
        f"{len(docs)} vectors of {docs.shape[1]} components, {len(queries)} queries; recall of the {K} nearest by codes alone, and",
        f"after scoring the {RESCORED} nearest by codes exactly (of faiss: how many of the {K} are among them, which is the same).",
        "Trained on 16,384 vectors, one core; CPU seconds of training and encoding together.",
        "",
        "| quantizer | metric | bytes | recall | rescored | CPU s | faiss bytes | recall | rescored | CPU s |",
        "|---|---|--:|--:|--:|--:|--:|--:|--:|--:|",
    ]
    truths = {}
    for row in ours:
        metric = row["metric"]
        d, q = plain[metric]
        if metric not in truths:
            flat = faiss.IndexFlat(d.shape[1], faiss.METRIC_L2 if metric == "l2" else faiss.METRIC_INNER_PRODUCT)
            flat.add(d)
            truths[metric] = flat.search(q, K)[1]
        peer = measure(row["quantizer"], metric, d, q, truths[metric])
        cells = [row["quantizer"], metric, row["bytes"], f"{row['recall']:.3f}", f"{row['recall_rescored_100']:.3f}"]
        cells.append(f"{row['train_cpu_s'] + row['encode_cpu_s']:.1f}")
        if peer:
            cells += [peer["bytes"], f"{peer['recall']:.3f}", f"{peer['rescored']:.3f}", f"{peer['cpu_s']:.1f}"]
        else:
            cells += ["", "", "", ""]
        lines.append("| " + " | ".join(map(str, cells)) + " |")
        print(lines[-1], flush=True)
    if options.write:
        pathlib.Path(options.write).write_text("# Quantizers\n\n" + "\n".join(lines) + "\n")


if __name__ == "__main__":
    main()
