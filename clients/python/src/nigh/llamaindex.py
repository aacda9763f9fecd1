"""Adapters for LlamaIndex (the extra `llamaindex`): a vector store, and stores of documents, of indexes and of values by key.

Their methods that are awaited run the blocking ones in threads."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Sequence
from typing import Any

from llama_index.core.bridge.pydantic import PrivateAttr
from llama_index.core.schema import BaseNode, MetadataMode, NodeRelationship, RelatedNodeInfo, TextNode
from llama_index.core.storage.docstore.keyval_docstore import KVDocumentStore
from llama_index.core.storage.index_store.keyval_index_store import KVIndexStore
from llama_index.core.storage.kvstore.types import DEFAULT_COLLECTION, BaseKVStore
from llama_index.core.vector_stores.types import (
    BasePydanticVectorStore,
    FilterCondition,
    FilterOperator,
    MetadataFilter,
    MetadataFilters,
    VectorStoreQuery,
    VectorStoreQueryMode,
    VectorStoreQueryResult,
)
from llama_index.core.vector_stores.utils import metadata_dict_to_node, node_to_metadata_dict

from ._adapters import Collection, all_, any_, done, has_text, holds, one_of, same, similarity, sparse, with_prefix
from ._types import Document, Point, Sparse
from .client import Client
from .filters import F, Filter
from .keys import Keys

__all__ = ["NighDocumentStore", "NighIndexStore", "NighKVStore", "NighVectorStore"]

# Points that were not written by this class name the document that they are of by this key, if they are of one.
_OTHER_REF_DOC_ID = "_nigh_ref_doc_id"
_NUMBERS_OR_TEXT = (int, float, str)


def _compared(name: str, value: Any, operator: FilterOperator) -> Filter:
    """A comparison of one value."""
    if operator == FilterOperator.EQ:
        return same(name, value)
    if operator == FilterOperator.NE:
        return ~same(name, value)
    if operator == FilterOperator.CONTAINS:
        return holds(name, value)
    if operator in (FilterOperator.TEXT_MATCH, FilterOperator.TEXT_MATCH_INSENSITIVE):
        if not isinstance(value, str):
            raise ValueError(f"a filter of {name!r} by {operator.value!r} needs a text, not {value!r}")
        return has_text(name, value, any_case=operator == FilterOperator.TEXT_MATCH_INSENSITIVE)
    orders: dict[FilterOperator, Callable[[Any, Any], Filter]] = {
        FilterOperator.GT: F.__gt__, FilterOperator.GTE: F.__ge__, FilterOperator.LT: F.__lt__, FilterOperator.LTE: F.__le__,
    }  # fmt: skip
    if operator not in orders:
        raise ValueError(f"a filter of {name!r} has the operator {operator.value!r}, which there is no counterpart for")
    return orders[operator](F(name), value)


def _among(name: str, values: list[Any], operator: FilterOperator) -> Filter:
    """A comparison of several values."""
    if operator == FilterOperator.IN:
        return one_of(name, values)
    if operator == FilterOperator.NIN:
        return ~one_of(name, values)
    each = [holds(name, value) for value in values]
    if operator == FilterOperator.ANY:
        return any_(each)
    all_of_them = all_(each)
    return F(name).exists() if all_of_them is None else all_of_them


def _condition(one: MetadataFilter) -> Filter:
    if one.operator == FilterOperator.IS_EMPTY:
        return F(one.key).is_empty()
    several = one.operator in (FilterOperator.IN, FilterOperator.NIN, FilterOperator.ANY, FilterOperator.ALL)
    if isinstance(one.value, list) if several else isinstance(one.value, _NUMBERS_OR_TEXT):
        return (_among if several else _compared)(one.key, one.value, one.operator)  # type: ignore[arg-type]
    what = "a list" if several else "a number or a text"
    raise ValueError(f"a filter of {one.key!r} by {one.operator.value!r} needs {what}, not {one.value!r}")


def filter_of(filters: MetadataFilters | None) -> Filter | None:
    """Filters of LlamaIndex as one of the client. Keys may be paths. Raises ValueError for what the server cannot compare."""
    if filters is None or not filters.filters:
        return None
    made = [filter_of(one) if isinstance(one, MetadataFilters) else _condition(one) for one in filters.filters]
    parts = [one for one in made if one is not None]
    if filters.condition == FilterCondition.OR:
        return any_(parts)
    return ~any_(parts) if filters.condition == FilterCondition.NOT else all_(parts)


class NighVectorStore(BasePydanticVectorStore):
    """Nodes in a collection, found by meaning and, with `full_text`, by words.

    The collection is made at the first node, with string ids, unless `auto_create` is False. Nodes come back as they were written, but
    for their embeddings, and documents as text nodes. Metadata may be any JSON, and filters reach into it. `default_top_k` is how many
    nodes a query gives that does not say it. `sparse_embedding` has `embed_documents` and `embed_query`, which give sparse vectors.

    Modes of queries: default, hybrid (with the sparse vectors, or with words where there are none), text search, sparse, and MMR."""

    stores_text: bool = True
    flat_metadata: bool = False

    _client: Client = PrivateAttr()
    _points: Collection = PrivateAttr()
    _sparse: Any = PrivateAttr()
    _default_top_k: int = PrivateAttr()

    def __init__(self, client: Client, collection: str, *, default_top_k: int = 10, auto_create: bool = True, metric: str = "cosine",
                 full_text: bool = False, sparse_embedding: Any = None) -> None:  # fmt: skip
        super().__init__(stores_text=True)
        self._client, self._sparse, self._default_top_k = client, sparse_embedding, default_top_k
        self._points = Collection(client, collection, auto_create=auto_create, metric=metric, full_text=full_text)

    @classmethod
    def class_name(cls) -> str:
        """The name of the class."""
        return "NighVectorStore"

    @property
    def client(self) -> Client:
        """The client of the server."""
        return self._client

    def add(self, nodes: Sequence[BaseNode], **kwargs: Any) -> list[str]:
        """Adds or replaces nodes, which must have embeddings, in batches. Returns their ids."""
        texts = [node.get_content(MetadataMode.NONE) for node in nodes]
        lanes: Sequence[Sparse | None] = [None] * len(nodes)
        if self._sparse is not None:
            lanes = [sparse(one) for one in self._sparse.embed_documents(texts)]
        self._points.write([
            Point(node.node_id, node.get_embedding(), node_to_metadata_dict(node, remove_text=True, flat_metadata=False), text, lane)
            for node, text, lane in zip(nodes, texts, lanes, strict=True)
        ])  # fmt: skip
        return [node.node_id for node in nodes]

    def delete(self, ref_doc_id: str, **delete_kwargs: Any) -> None:
        """Deletes the nodes of a document."""
        self._points.delete_where((F("ref_doc_id") == ref_doc_id) | (F(_OTHER_REF_DOC_ID) == ref_doc_id))

    def delete_nodes(
        self, node_ids: list[str] | None = None, filters: MetadataFilters | None = None, **delete_kwargs: Any
    ) -> None:
        """Deletes the nodes that have one of these ids, where ids are given, and match the filters, where there are some."""
        chosen = self._chosen(node_ids, None, filters)
        if chosen is None:
            self._points.delete(None)
        else:
            self._points.delete_where(chosen)

    def clear(self) -> None:
        """Drops the collection; the next node creates it anew."""
        self._points.drop()

    def get_nodes(self, node_ids: list[str] | None = None, filters: MetadataFilters | None = None) -> list[BaseNode]:
        """The nodes that have one of these ids, where ids are given, and match the filters, where there are some."""
        if node_ids is not None and filters is None:
            return list(map(_node, self._points.by_ids(node_ids)))
        return list(map(_node, self._points.all(self._chosen(node_ids, None, filters))))

    def query(self, query: VectorStoreQuery, **kwargs: Any) -> VectorStoreQueryResult:
        """The nodes that fit a query best. Further arguments are options of `Client.search_docs`, and for MMR `mmr_threshold`, 1 for only
        near and 0 for only different, and `mmr_prefetch_k`, how many of the nearest are looked at.

        Raises ValueError for a mode that there is not, and where the query lacks what its mode needs."""
        k = query.similarity_top_k or self._default_top_k
        # Retrievers of an index without nodes of its own give empty lists, which mean all nodes.
        filter = self._chosen(query.node_ids or None, query.doc_ids or None, query.filters)
        mode = query.mode
        if mode == VectorStoreQueryMode.DEFAULT:
            hits = self._points.nearest(self._vector(query), k, filter, **kwargs)
            return _result(hits, [similarity(hit.distance) for hit in hits])
        if mode == VectorStoreQueryMode.MMR:
            given = kwargs.pop("mmr_threshold", query.mmr_threshold)
            fetch = kwargs.pop("mmr_prefetch_k", 4 * k)
            hits = self._points.different(self._vector(query), k, 0.5 if given is None else given, fetch, filter, **kwargs)
            return _result(hits, [similarity(hit.distance) for hit in hits])
        if mode == VectorStoreQueryMode.TEXT_SEARCH:
            hits = self._points.by_words(self._text(query), query.sparse_top_k or k, filter)
            return _result(hits, [hit.score for hit in hits])
        if mode == VectorStoreQueryMode.SPARSE:
            if self._sparse is None:
                raise ValueError("a query of the mode 'sparse' needs a store with sparse_embedding; 'text_search' asks by words")
            hits = self._points.by_sparse(sparse(self._sparse.embed_query(self._text(query))), query.sparse_top_k or k, filter)
        elif mode == VectorStoreQueryMode.HYBRID:
            text = self._text(query)
            other = text if self._sparse is None else sparse(self._sparse.embed_query(text))
            weight = {} if query.alpha is None else {"method": "weighted", "alpha": query.alpha}
            lanes = {key: value for key, value in (("dense_k", query.similarity_top_k), ("sparse_k", query.sparse_top_k)) if value}
            hits = self._points.fused(self._vector(query), other, query.hybrid_top_k or k, filter, **weight, **lanes)
        else:
            raise ValueError(f"queries of the mode {mode.value!r} are not offered; there are default, hybrid, text_search, sparse and mmr")
        return _result(hits, [1 / (1 + rank) for rank in range(len(hits))])

    @staticmethod
    def _vector(query: VectorStoreQuery) -> list[float]:
        if query.query_embedding is None:
            raise ValueError(f"a query of the mode {query.mode.value!r} needs query_embedding")
        return query.query_embedding

    @staticmethod
    def _text(query: VectorStoreQuery) -> str:
        if not query.query_str:
            raise ValueError(f"a query of the mode {query.mode.value!r} needs query_str")
        return query.query_str

    def _chosen(self, node_ids: list[str] | None, doc_ids: list[str] | None, filters: MetadataFilters | None) -> Filter | None:
        parts = [] if node_ids is None else [self._points.has_ids(node_ids)]
        if doc_ids is not None:
            parts.append(one_of("ref_doc_id", doc_ids))
        given = filter_of(filters)
        return all_(parts if given is None else [*parts, given])

    async def async_add(self, nodes: Sequence[BaseNode], **kwargs: Any) -> list[str]:
        """As `add`."""
        return await asyncio.to_thread(self.add, nodes, **kwargs)

    async def adelete(self, ref_doc_id: str, **delete_kwargs: Any) -> None:
        """As `delete`."""
        await asyncio.to_thread(self.delete, ref_doc_id, **delete_kwargs)

    async def adelete_nodes(
        self, node_ids: list[str] | None = None, filters: MetadataFilters | None = None, **delete_kwargs: Any
    ) -> None:
        """As `delete_nodes`."""
        await asyncio.to_thread(self.delete_nodes, node_ids, filters, **delete_kwargs)

    async def aclear(self) -> None:
        """As `clear`."""
        await asyncio.to_thread(self.clear)

    async def aget_nodes(self, node_ids: list[str] | None = None, filters: MetadataFilters | None = None) -> list[BaseNode]:
        """As `get_nodes`."""
        return await asyncio.to_thread(self.get_nodes, node_ids, filters)

    async def aquery(self, query: VectorStoreQuery, **kwargs: Any) -> VectorStoreQueryResult:
        """As `query`."""
        return await asyncio.to_thread(self.query, query, **kwargs)


def _node(found: Document) -> BaseNode:
    if "_node_content" in found.metadata:
        # A node without a text, such as an image, stays without one.
        return metadata_dict_to_node(found.metadata, text=found.content or None)
    node = TextNode(id_=str(found.id), text=found.content, metadata=found.metadata)
    document = node.metadata.pop(_OTHER_REF_DOC_ID, None)
    if document is not None:
        node.relationships[NodeRelationship.SOURCE] = RelatedNodeInfo(node_id=str(document))
    return node


def _result(hits: Sequence[Document], similarities: list[float]) -> VectorStoreQueryResult:
    return VectorStoreQueryResult(nodes=list(map(_node, hits)), similarities=similarities, ids=[str(hit.id) for hit in hits])


class NighKVStore(BaseKVStore):
    """Dictionaries by key, in collections of keys, as keys of the server, each of which begins with `prefix`. They live for `ttl_ms`
    milliseconds; 0 means for ever.

    `get_all` needs a server with `-kv-query`. It looks at every key of the server for each thousand that it gives, unless `index` names an
    index of keys that begin with `prefix` (`Keys.set_index`)."""

    def __init__(self, keys: Keys, *, prefix: str = "llamaindex:", ttl_ms: int = 0, index: str = "") -> None:
        self._keys, self._prefix, self._ttl_ms, self._index = keys, prefix, ttl_ms, index

    def _head(self, collection: str) -> str:
        # No collection begins as another one with a key would.
        return f"{self._prefix}{collection.replace('%', '%25').replace(':', '%3A')}:"

    def put(self, key: str, val: dict[str, Any], collection: str = DEFAULT_COLLECTION) -> None:
        """Stores a dictionary."""
        self._keys.put(self._head(collection) + key, json.dumps(val), ttl_ms=self._ttl_ms)

    def put_all(self, kv_pairs: list[tuple[str, dict[str, Any]]], collection: str = DEFAULT_COLLECTION, batch_size: int = 0) -> None:
        """Stores dictionaries. They travel together, whatever `batch_size` is."""
        pipeline, head = self._keys.pipeline(), self._head(collection)
        for key, value in kv_pairs:
            pipeline.put(head + key, json.dumps(value), ttl_ms=self._ttl_ms)
        done(pipeline.execute())

    def get(self, key: str, collection: str = DEFAULT_COLLECTION) -> dict[str, Any] | None:
        """The dictionary of a key, or None if there is none."""
        stored = self._keys.get(self._head(collection) + key)
        return None if stored is None else json.loads(stored)

    def get_all(self, collection: str = DEFAULT_COLLECTION) -> dict[str, dict[str, Any]]:
        """All dictionaries of a collection by their keys."""
        found = with_prefix(self._keys, self._head(collection), self._index, values=True)
        return {key: json.loads(value) for key, value in found if value is not None}

    def delete(self, key: str, collection: str = DEFAULT_COLLECTION) -> bool:
        """Deletes a key. Returns whether it was there."""
        return self._keys.delete(self._head(collection) + key)

    async def aput(self, key: str, val: dict[str, Any], collection: str = DEFAULT_COLLECTION) -> None:
        """As `put`."""
        await asyncio.to_thread(self.put, key, val, collection)

    async def aput_all(
        self, kv_pairs: list[tuple[str, dict[str, Any]]], collection: str = DEFAULT_COLLECTION, batch_size: int = 0
    ) -> None:
        """As `put_all`."""
        await asyncio.to_thread(self.put_all, kv_pairs, collection)

    async def aget(self, key: str, collection: str = DEFAULT_COLLECTION) -> dict[str, Any] | None:
        """As `get`."""
        return await asyncio.to_thread(self.get, key, collection)

    async def aget_all(self, collection: str = DEFAULT_COLLECTION) -> dict[str, dict[str, Any]]:
        """As `get_all`."""
        return await asyncio.to_thread(self.get_all, collection)

    async def adelete(self, key: str, collection: str = DEFAULT_COLLECTION) -> bool:
        """As `delete`."""
        return await asyncio.to_thread(self.delete, key, collection)


class NighDocumentStore(KVDocumentStore):
    """Documents and nodes as keys of the server; further arguments are those of `NighKVStore`."""

    def __init__(self, keys: Keys, *, namespace: str | None = None, **more: Any) -> None:
        super().__init__(NighKVStore(keys, **more), namespace)


class NighIndexStore(KVIndexStore):
    """The structures of indexes as keys of the server; further arguments are those of `NighKVStore`."""

    def __init__(self, keys: Keys, *, namespace: str | None = None, **more: Any) -> None:
        super().__init__(NighKVStore(keys, **more), namespace)
