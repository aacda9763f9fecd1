#!/usr/bin/env python3
"""Full-text search beside tantivy, one core each, in one run.

    cargo build --release -p nigh-benches
    pip install tantivy bm25s 'PyStemmer<3' 'numpy<2'
    python3 benches/text_peer.py --data DIRECTORY

Both index the texts of `docs.jsonl.gz` and are asked for the ten best of each query of `queries.jsonl.gz`. tantivy gets the same
tokens (split, without stop words, stemmed, as `text_reference.py` makes them), one segment, no positions, no stored fields, no count of
all hits (which would cost it its block-max pruning), and queries are
built before the clock starts for both. Nigh's index is the one that writes go into and is visible at once. CPU time of the searching
thread; the two take turns, medians.
"""

import argparse
import json
import os
import statistics
import subprocess
import tempfile
import time
from pathlib import Path

import tantivy

from server import lines
from text_reference import K, Reference


def indexed(docs, reference, directory):
    builder = tantivy.SchemaBuilder()
    builder.add_text_field("text", stored=False, tokenizer_name="default", index_option="freq")
    schema = builder.build()
    index = tantivy.Index(schema, path=directory)
    began = time.process_time()
    writer = index.writer(heap_size=1 << 30, num_threads=1)
    for doc in docs:
        writer.add_document(tantivy.Document(text=" ".join(reference.terms(doc["text"]))))
    writer.commit()
    writer.wait_merging_threads()
    index.reload()
    took = time.process_time() - began
    searcher = index.searcher()
    assert searcher.num_segments == 1, f"{searcher.num_segments} segments"
    print(f"tantivy: {len(docs)} documents in {took:.1f} CPU-seconds, tokens made in Python included")
    return schema, searcher


def asked(schema, reference, text):
    terms = sorted(set(reference.terms(text)))
    should = [(tantivy.Occur.Should, tantivy.Query.term_query(schema, "text", term, "freq")) for term in terms]
    return tantivy.Query.boolean_query(should)


def theirs(searcher, queries):
    began, hits = time.thread_time(), 0
    for query in queries:
        hits += len(searcher.search(query, K, count=False).hits)
    return len(queries) / (time.thread_time() - began), hits


def ours(lanes, data):
    command = [lanes, str(data), "--sparse-docs", "0", "--k", str(K)]
    answers = [json.loads(line) for line in subprocess.run(command, capture_output=True, check=True, text=True).stdout.splitlines()]
    return answers[-1]["queries_per_cpu_s"], answers[-1]["hits"], answers


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--lanes", default="target/release/lanes")
    parser.add_argument("--rounds", type=int, default=5)
    arguments = parser.parse_args()
    os.sched_setaffinity(0, [min(os.sched_getaffinity(0))])
    docs = lines(arguments.data / "docs.jsonl.gz")
    reference = Reference(docs)
    with tempfile.TemporaryDirectory() as directory:
        schema, searcher = indexed(docs, reference, directory)
        queries = [asked(schema, reference, line["text"]) for line in lines(arguments.data / "queries.jsonl.gz")]
        rates = {"nigh": [], "tantivy": []}
        for _ in range(arguments.rounds):
            rate, hits, answers = ours(arguments.lanes, arguments.data)
            rates["nigh"].append(rate)
            peer_rate, peer_hits = theirs(searcher, queries)
            rates["tantivy"].append(peer_rate)
            print(f"nigh {rate:8.0f}/s, tantivy {peer_rate:8.0f}/s, hits {hits} and {peer_hits}", flush=True)
        ratio = statistics.median(a / b for a, b in zip(rates["nigh"], rates["tantivy"]))
        medians = {name: statistics.median(values) for name, values in rates.items()}
        print(f"medians: nigh {medians['nigh']:.0f}/s, tantivy {medians['tantivy']:.0f}/s, ratio {ratio:.2f}")
        print(f"nigh: {answers[0]['inserts_per_cpu_s']:.0f} documents per CPU-second, {answers[0]['index_bytes']} bytes of index,"
              f" {answers[0]['analysis_us']:.1f} us to analyse a query")


if __name__ == "__main__":
    main()
