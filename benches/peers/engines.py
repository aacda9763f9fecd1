"""One peer in a process of its own: builds, says so on stdout, then answers each line `knob` on stdin with one measurement, as
`target/release/graph --serve` does. Started by `run.py`; `python3 engines.py NAME OPTIONS` with OPTIONS as JSON.

Every peer gets unit vectors as float32 and is asked for the `k` nearest by cosine. The rate is of the CPU time of the whole
process, so that threads of a library's own count. Queries are handed over in the cheapest way a library has: one call with
all of them where it takes a batch, requests made beforehand where it does not.
"""

import json
import shutil
import sys
import tempfile
import time
from importlib.metadata import version
from pathlib import Path

import numpy as np


def resident_mb():
    """Resident memory now and at most, in MB."""
    status = dict(line.split(":", 1) for line in Path("/proc/self/status").read_text().splitlines())
    return [int(status[key].split()[0]) // 1024 for key in ("VmRSS", "VmHWM")]


class Hnswlib:
    """Graph over floats. The knob of every graph is `ef`, the width of the beam."""

    package = "hnswlib"

    def build(self, docs, o):
        import hnswlib

        self.index = hnswlib.Index("ip", docs.shape[1])
        self.index.init_index(len(docs), M=o["m"], ef_construction=o["ef_construction"], random_seed=1)
        self.index.add_items(docs, np.arange(len(docs)), num_threads=o["threads"])

    def search(self, queries, k, knob):
        self.index.set_ef(knob)
        return lambda: self.index.knn_query(queries, k, num_threads=1)[0]


class Faiss:
    package = "faiss-cpu"

    def search(self, queries, k, knob):
        import faiss

        faiss.omp_set_num_threads(1)
        self.turn(faiss, knob)
        return lambda: self.index.search(queries, k)[1]

    def fill(self, docs, o):
        import faiss

        faiss.omp_set_num_threads(o["threads"])
        self.index = self.make(faiss, docs.shape[1], o)
        self.index.train(docs)
        self.index.add(docs)


class FaissHnsw(Faiss):
    """Graph over floats."""

    def build(self, docs, o):
        self.fill(docs, o)

    def make(self, faiss, dim, o):
        index = faiss.IndexHNSWFlat(dim, o["m"], faiss.METRIC_INNER_PRODUCT)
        index.hnsw.efConstruction = o["ef_construction"]
        return index

    def turn(self, faiss, knob):
        self.index.hnsw.efSearch = knob


class FaissHnswSq8(FaissHnsw):
    """Graph over 8-bit codes, whose order is final: floats are not kept."""

    def make(self, faiss, dim, o):
        index = faiss.IndexHNSWSQ(dim, faiss.ScalarQuantizer.QT_8bit, o["m"], faiss.METRIC_INNER_PRODUCT)
        index.hnsw.efConstruction = o["ef_construction"]
        return index


class FaissIvfPq(Faiss):
    """1,024 cells, 4-bit product codes scanned in registers, the best 4 k ranked by floats. The knob is `nprobe`."""

    knobs = [1, 2, 4, 8, 12, 16, 24, 32, 48, 64, 96, 128, 192]

    def build(self, docs, o):
        self.fill(docs, o)

    def make(self, faiss, dim, o):
        return faiss.index_factory(dim, f"IVF1024,PQ{dim // 2}x4fs,RFlat", faiss.METRIC_INNER_PRODUCT)

    def turn(self, faiss, knob):
        self.index.k_factor = 4
        faiss.ParameterSpace().set_index_parameter(self.index, "nprobe", knob)


class Usearch:
    """Graph over floats."""

    package = "usearch"

    def build(self, docs, o):
        from usearch.index import Index

        self.index = Index(ndim=docs.shape[1], metric="ip", dtype="f32", connectivity=o["m"],
                           expansion_add=o["ef_construction"])
        self.index.add(np.arange(len(docs)), docs, threads=o["threads"])

    def search(self, queries, k, knob):
        self.index.expansion_search = knob
        return lambda: self.index.search(queries, k, threads=1).keys


class QdrantEdge:
    """Qdrant's segments in process: graph over floats, one shard, optimized after loading."""

    package = "qdrant-edge-py"

    def build(self, docs, o):
        import qdrant_edge as q

        self.q = q
        self.path = tempfile.mkdtemp(prefix="peer-")
        hnsw = q.HnswIndexConfig(m=o["m"], ef_construct=o["ef_construction"], full_scan_threshold=0,
                                 max_indexing_threads=o["threads"])
        vectors = {"": q.EdgeVectorParams(size=docs.shape[1], distance=q.Distance.Cosine, hnsw_config=hnsw)}
        config = q.EdgeConfig(vectors=vectors, max_search_threads=1,
                              optimizers=q.EdgeOptimizersConfig(default_segment_number=1))
        self.shard = q.EdgeShard.create(self.path, config)
        for first in range(0, len(docs), 1000):
            points = [q.Point(first + i, row.tolist()) for i, row in enumerate(docs[first : first + 1000])]
            self.shard.update(q.UpdateOperation.upsert_points(points))
        self.shard.optimize()
        info = self.shard.info()
        if info.indexed_vectors_count < len(docs):
            raise SystemExit(f"qdrant-edge indexed {info.indexed_vectors_count} of {len(docs)} vectors")

    def search(self, queries, k, knob):
        q = self.q
        params = q.SearchParams(hnsw_ef=knob)
        requests = [q.SearchRequest(query=q.Query.Nearest(row.tolist()), limit=k, params=params) for row in queries]
        answers = lambda: [self.shard.search(request) for request in requests]
        return lambda: [[hit.id for hit in hits] for hits in answers()]

    def close(self):
        self.shard.close()
        shutil.rmtree(self.path)


ENGINES = {
    "hnswlib": Hnswlib,
    "faiss-hnsw": FaissHnsw,
    "faiss-hnsw-sq8": FaissHnswSq8,
    "faiss-ivfpq": FaissIvfPq,
    "usearch": Usearch,
    "qdrant-edge": QdrantEdge,
}


def corpus(options):
    """Documents and queries as float32, and the nearest documents of each query as sets."""
    data = Path(options["data"])
    docs = np.load(data / "docs.f16.npy")[: options["docs"]].astype(np.float32)
    queries = np.load(data / "queries.f16.npy")[: options["queries"]].astype(np.float32)
    truth = np.load(data / "truth100.i32.npy")[: options["queries"]].tolist()
    # Rows in half precision are a little off length 1, which an inner product would rank by.
    docs /= np.linalg.norm(docs, axis=1, keepdims=True)
    queries /= np.linalg.norm(queries, axis=1, keepdims=True)
    return docs, queries, [set([i for i in row if i < len(docs)][: options["k"]]) for row in truth]


def main():
    name, options = sys.argv[1], json.loads(sys.argv[2])
    engine = ENGINES[name]()
    docs, queries, truth = corpus(options)
    before, _ = resident_mb()
    wall, cpu = time.perf_counter(), time.process_time()
    engine.build(docs, options)
    built = {
        "program": name,
        "version": version(engine.package),
        "build_wall_s": time.perf_counter() - wall,
        "build_cpu_s": time.process_time() - cpu,
        "resident_before_mb": before,
        "peak_mb": resident_mb()[1],
    }
    print(json.dumps(built), flush=True)
    wanted = sum(len(row) for row in truth)
    for line in sys.stdin:
        run = engine.search(queries, options["k"], int(line))
        start = time.process_time()
        found = run()
        spent = time.process_time() - start
        rows = found.tolist() if hasattr(found, "tolist") else found
        hits = sum(len(row.intersection(answer)) for row, answer in zip(truth, rows))
        print(json.dumps({"recall": hits / wanted, "queries_per_cpu_s": len(queries) / spent}), flush=True)
    if hasattr(engine, "close"):
        engine.close()


if __name__ == "__main__":
    main()
