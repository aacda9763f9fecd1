"""Nigh for ann-benchmarks: a private server that is asked over HTTP by the client for Python.

This file, `config.yml` and `Dockerfile` are what ann-benchmarks wants in `ann_benchmarks/algorithms/nigh`; `drive.py` runs them without it."""

from nigh import Client, PrivateServer

from ..base.module import BaseANN

METRICS = {"angular": "cosine", "euclidean": "l2"}
COLLECTION = "ann"
# Searches of one request.
BATCH = 100


class Nigh(BaseANN):
    """A collection with an HNSW graph of `m` links and `ef_construction` candidates; `quant` is "" or a kind of quantization."""

    def __init__(self, metric, m, ef_construction, quant=""):
        if metric not in METRICS:
            raise NotImplementedError(f"Nigh has no metric {metric!r} here; it has {', '.join(METRICS)}")
        self._metric = METRICS[metric]
        self._config = {"m": m, "ef_construction": ef_construction, **({"quant": quant} if quant else {})}
        self._server, self._client, self._ef, self._found = PrivateServer(), None, None, []
        self._client = Client(f"http://{self._server.http}", timeout=600)
        self._label()

    def _label(self):
        parts = {**self._config, **({} if self._ef is None else {"ef_search": self._ef})}
        self.name = f"Nigh({', '.join(f'{key}={value}' for key, value in parts.items())})"

    def fit(self, X):
        if self._client.collection_exists(COLLECTION):
            self._client.drop_collection(COLLECTION)
        self._client.create_collection(COLLECTION, X.shape[1], metric=self._metric, **self._config)
        self._client.bulk_stage(COLLECTION, range(len(X)), X)
        self._client.bulk_build(COLLECTION)

    def set_query_arguments(self, ef_search):
        # Of the collection and not of each search, so that queries travel as binary bodies.
        self._client.change_config(COLLECTION, ef_search=ef_search)
        self._ef = ef_search
        self._label()

    def query(self, v, n):
        return [hit.id for hit in self._client.search(COLLECTION, v, n)]

    def batch_query(self, X, n):
        self._found = []
        for first in range(0, len(X), BATCH):
            answers = self._client.search_batch(COLLECTION, X[first:first + BATCH], n)
            self._found += [[hit.id for hit in hits] for hits in answers]

    def get_batch_results(self):
        return self._found

    def get_memory_usage(self):
        """Kilobytes of the server, not of this process."""
        with open(f"/proc/{self._server.pid}/status") as status:
            return float(next(line for line in status if line.startswith("VmRSS")).split()[1])

    def done(self):
        self._client.close()
        self._server.close()
