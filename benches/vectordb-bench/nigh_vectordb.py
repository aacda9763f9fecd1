"""Nigh for VectorDBBench: a server that runs, asked over HTTP by the client for Python.

A checkout of VectorDBBench takes this file as `vectordb_bench/backend/clients/nigh/nigh_vectordb.py`, and `Nigh`, `NighConfig` and `NighIndexConfig` in
the enumeration `DB` of `vectordb_bench/backend/clients/__init__.py`, where its other databases are."""

from contextlib import contextmanager

from nigh import Client, F, NighError
from pydantic import BaseModel, SecretStr
from vectordb_bench.backend.clients.api import DBCaseConfig, DBConfig, MetricType, VectorDB
from vectordb_bench.backend.filter import FilterOp

METRICS = {MetricType.COSINE: "cosine", MetricType.L2: "l2", MetricType.IP: "dot"}
# Seconds. The harness has limits of its own for loading and for building.
TIMEOUT = 3600.0


class NighConfig(DBConfig):
    """Where the server is; an empty `api_key` sends none."""

    url: str = "http://127.0.0.1:8080"
    api_key: SecretStr = SecretStr("")

    def to_dict(self) -> dict:
        return {"url": self.url, "api_key": self.api_key.get_secret_value() or None}


class NighIndexConfig(BaseModel, DBCaseConfig):
    """An HNSW graph of `m` links and `ef_construction` candidates, searched with `ef_search`; `quant` is "" or a kind of quantization."""

    metric_type: MetricType = MetricType.COSINE
    m: int = 16
    ef_construction: int = 200
    ef_search: int = 64
    quant: str = ""

    def index_param(self) -> dict:
        if self.metric_type not in METRICS:
            raise ValueError(f"Nigh has no metric {self.metric_type}; it has {', '.join(METRICS)}")
        config = {"metric": METRICS[self.metric_type], "m": self.m, "ef_construction": self.ef_construction, "ef_search": self.ef_search}
        return {**config, **({"quant": self.quant} if self.quant else {})}

    def search_param(self) -> dict:
        # It is that of the collection, so that queries travel as binary bodies.
        return {}


class Nigh(VectorDB):
    """One collection; payloads have the id, and the label where the case has labels, for the cases with filters."""

    supported_filter_types = [FilterOp.NonFilter, FilterOp.NumGE, FilterOp.StrEqual]
    name = "Nigh"

    def __init__(self, dim, db_config, db_case_config, collection_name="vdb_bench", drop_old=False, with_scalar_labels=False, **kwargs):
        self._address, self._collection, self._labels = db_config, collection_name, with_scalar_labels
        self._client, self._filter = None, None
        config = (db_case_config or NighIndexConfig()).index_param()
        with Client(**db_config) as client:
            if drop_old and client.collection_exists(collection_name):
                client.drop_collection(collection_name)
            if not client.collection_exists(collection_name):
                client.create_collection(collection_name, dim, **config)

    @contextmanager
    def init(self):
        # Connections belong to the process and the thread that uses them: the object itself is copied into others before this.
        self._client = Client(**self._address, timeout=TIMEOUT)
        try:
            yield
        finally:
            self._client.close()
            self._client = None

    def prepare_filter(self, filters):
        if filters.type == FilterOp.NonFilter:
            self._filter = None
        elif filters.type == FilterOp.NumGE:
            self._filter = F("id") >= filters.int_value
        elif filters.type == FilterOp.StrEqual:
            self._filter = F("label") == filters.label_value
        else:
            raise ValueError(f"Nigh has no filter of the type {filters.type} here")

    def insert_embeddings(self, embeddings, metadata, labels_data=None, **kwargs):
        payloads = [{"id": one} for one in metadata]
        if self._labels and labels_data is not None:
            payloads = [{**payload, "label": label} for payload, label in zip(payloads, labels_data)]
        try:
            return self._client.batch_upsert(self._collection, metadata, embeddings, payloads=payloads), None
        except NighError as error:
            # The harness goes on behind the first ones, which were written.
            return error.committed or 0, error

    def optimize(self, data_size=None):
        """Nothing: a point is in the graph when its write is answered."""

    def search_embedding(self, query, k=100, **kwargs):
        return [hit.id for hit in self._client.search(self._collection, query, k, filter=self._filter)]
