#!/usr/bin/env python3
"""Full text beside a reference, and what fusing it with vectors is worth, over a corpus with texts.

    cargo build --release -p nigh
    pip install bm25s 'PyStemmer<3' 'numpy<2'     # 3 has newer rules than Porter2
    python3 benches/text_reference.py --data DIRECTORY

Loads `docs.jsonl.gz` and `docs.f16.npy` into a server of its own, then

1. compares the ten best of each query of `queries.jsonl.gz` with those of bm25s (method "lucene", the same tokens, stop words and
   stems): the same documents in the same order, up to documents of equal score;
2. counts how often the source document of a query (`doc` in queries.jsonl) is among the ten best of the dense lane, of the text
   lane and of both fused.
"""

import argparse
import re
import sys
import tempfile
import time
from pathlib import Path

import bm25s
import numpy as np
import Stemmer

from server import Server, bulk_body, lines

K = 10
STOP_WORDS = Path(__file__).parent.parent / "engine/src/text/stop_words.rs"


def load(server, docs, vectors):
    server.call("POST", "/v1/collections", {"name": "text", "config": {"dim": vectors.shape[1], "full_text": {}}})
    began = time.perf_counter()
    for first in range(0, len(docs), 2000):
        part = docs[first:first + 2000]
        payloads = [{"$content": {"kind": "string", "str": doc["text"]}} for doc in part]
        body = bulk_body(first, vectors[first:first + len(part)], payloads)
        server.call("POST", "/v1/collections/text/points/bulk", binary=body)
    server.call("POST", "/v1/collections/text/points/bulk/build", {"workers": 0})
    return time.perf_counter() - began


class Reference:
    def __init__(self, docs):
        source = STOP_WORDS.read_text()
        self.stop_words = set(" ".join(re.findall(r'&str = "(.*?)";', source, re.S)).split())
        self.stemmer = Stemmer.Stemmer("english")
        # Runs of letters or decimal digits: what \\w holds beside them is taken out.
        self.words = re.compile(r"[^\W_]+")
        self.index = bm25s.BM25(method="lucene", k1=1.2, b=0.75)
        tokens = [self.terms(doc["text"]) for doc in docs]
        self.index.index(tokens, show_progress=False)

    def terms(self, text):
        words = (word.lower() for word in self.words.findall(text))
        kept = [word for word in words if word not in self.stop_words]
        return [word if len(word.encode()) <= 2 else self.stemmer.stemWord(word) for word in kept]

    def scores(self, text):
        terms = sorted({term for term in self.terms(text) if term in self.index.vocab_dict})
        return self.index.get_scores(terms) if terms else None


def same_ranking(found, scores):
    """Whether the documents found are a ten best of `scores`, which leave out the constant k1 + 1."""
    if scores is None:
        return not found
    best = np.sort(scores[scores > 0])[::-1][:K]
    if len(found) != len(best):
        return False
    mine = np.array([scores[doc["id"]] for doc in found])
    theirs = np.array([doc["score"] for doc in found]) / 2.2
    return np.allclose(mine, best, rtol=1e-5) and np.allclose(theirs, best, rtol=1e-4)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--nigh", default="target/release/nigh")
    parser.add_argument("--queries", type=int, default=2000)
    arguments = parser.parse_args()
    docs = lines(arguments.data / "docs.jsonl.gz")
    queries = lines(arguments.data / "queries.jsonl.gz")[:arguments.queries]
    vectors = np.load(arguments.data / "docs.f16.npy").astype("f4")
    asked = np.load(arguments.data / "queries.f16.npy").astype("f4")
    with tempfile.TemporaryDirectory() as directory:
        server = Server(arguments.nigh, directory)
        try:
            loaded = load(server, docs, vectors)
            print(f"{len(docs)} documents staged and built in {loaded:.1f} s", flush=True)
            reference = Reference(docs)
            search = "/v1/collections/text/points/search"
            same, lanes = 0, {"dense": 0, "text": 0, "rrf": 0, "weighted 0.3": 0, "dbsf 0.3": 0}
            for number, query in enumerate(queries):
                found = server.call("POST", f"{search}/text", {"text": query["text"], "k": K})["documents"]
                if same_ranking(found, reference.scores(query["text"])):
                    same += 1
                elif number - same < 5:
                    scores = reference.scores(query["text"])
                    print(f"differs: {query['text']!r}, terms {reference.terms(query['text'])}")
                    print("  ours  ", [(hit["id"], round(hit["score"] / 2.2, 4), round(float(scores[hit["id"]]), 4)) for hit in found])
                    print("  theirs", [(int(doc), round(float(scores[doc]), 4)) for doc in np.argsort(-scores)[:K]])
                vector = asked[number].tolist()
                dense = server.call("POST", search, {"query": vector, "k": K})["results"]
                answers = {"dense": dense, "text": found}
                hybrid = {"vector": vector, "text": query["text"], "k": K}
                for name, more in [("rrf", {}), ("weighted 0.3", {"method": "weighted", "alpha": 0.3}),
                                   ("dbsf 0.3", {"method": "dbsf", "alpha": 0.3})]:
                    answers[name] = server.call("POST", f"{search}/hybrid-text", {**hybrid, **more})["results"]
                for name, hits in answers.items():
                    lanes[name] += any(hit["id"] == query["doc"] for hit in hits)
            print(f"the same ten best as bm25s: {same} of {len(queries)} queries")
            for name, count in lanes.items():
                print(f"source document among the ten best, {name}: {count / len(queries):.4f}")
        finally:
            server.process.terminate()
            server.process.wait()
    return 0 if same == len(queries) else 1


if __name__ == "__main__":
    sys.exit(main())
