"""Adapters for Haystack (the extra `haystack`): a store of documents, and a retriever of those whose embeddings are nearest.

Their methods that are awaited run the blocking ones in threads."""

from __future__ import annotations

import asyncio
import json
import math
from collections.abc import Callable, Iterator, Sequence
from datetime import datetime, timezone
from typing import Any

from haystack import Document, component, default_from_dict, default_to_dict
from haystack.dataclasses import ByteStream, SparseEmbedding
from haystack.document_stores.errors import DuplicateDocumentError
from haystack.document_stores.types import DuplicatePolicy, FilterPolicy, apply_filter_policy
from haystack.errors import FilterError
from haystack.utils import Secret

from . import _types
from ._adapters import Collection, all_, any_, nothing, one_of, same, similarity
from .client import Client
from .filters import F, Filter

__all__ = ["NighDocumentStore", "NighEmbeddingRetriever"]

# What a document has besides its id, text, embedding and meta is under this key of the payload.
_REST = "_nigh_document"
_ORDERS: dict[str, Callable[[Any, Any], Filter]] = {">": F.__gt__, ">=": F.__ge__, "<": F.__lt__, "<=": F.__le__}


def _field(name: str) -> str:
    return "$content" if name == "content" else name.removeprefix("meta.")


def _plain(value: Any) -> Any:
    return value.isoformat() if isinstance(value, datetime) else value


def _ordered(name: str, operator: str, value: Any) -> Filter:
    """A comparison of numbers, or of times, which are texts: of those without an offset one is later that comes later as a text."""
    if value is None:
        return nothing()
    if isinstance(value, (int, float)) and not isinstance(value, bool):
        return _ORDERS[operator](F(name), value)
    try:
        time = value if isinstance(value, datetime) else datetime.fromisoformat(value.replace("Z", "+00:00"))
    except (ValueError, AttributeError) as error:
        raise FilterError(f"the operator {operator!r} compares {name!r} with {value!r}, neither a number nor an ISO time") from error
    exact = (time if time.tzinfo is not None else time.replace(tzinfo=timezone.utc)).isoformat()
    local, field = time.replace(tzinfo=None).isoformat(), F(name)
    with_offset = field.later(exact, or_equal=True) | field.earlier(exact)
    asked = field.later if operator.startswith(">") else field.earlier
    texts = all_([_ORDERS[operator](field, local), field >= "0", field < ":", ~with_offset])
    return any_([asked(exact, or_equal=operator.endswith("=")), *([] if texts is None else [texts])])


def _compared(points: Collection, condition: dict[str, Any]) -> Filter:
    for key in ("operator", "value"):
        if key not in condition:
            raise FilterError(f"{key!r} is missing in {condition}")
    name, operator, value = _field(condition["field"]), condition["operator"], condition["value"]
    if operator in ("in", "not in"):
        if not isinstance(value, list):
            raise FilterError(f"the operator {operator!r} compares {name!r} with {value!r}, which is no list")
        found = points.has_ids(value) if name == "id" else one_of(name, map(_plain, value))
        return found if operator == "in" else ~found
    if operator in ("==", "!="):
        found = points.has_ids([value]) if name == "id" else same(name, _plain(value))
        return found if operator == "==" else ~found
    if operator not in _ORDERS or name == "id":
        raise FilterError(f"there is no comparison of {name!r} by {operator!r}")
    return _ordered(name, operator, value)


def _condition(points: Collection, condition: dict[str, Any]) -> Filter | None:
    if not isinstance(condition, dict):
        raise FilterError(f"{condition!r} is no filter: a filter is a dictionary")
    if "field" in condition:
        return _compared(points, condition)
    for key in ("operator", "conditions"):
        if key not in condition:
            raise FilterError(f"{key!r} is missing in {condition}")
    made = [_condition(points, one) for one in condition["conditions"]]
    parts = [nothing() if one is None and condition["operator"] == "OR" else one for one in made]
    kept = [one for one in parts if one is not None]
    if condition["operator"] == "AND":
        return all_(kept)
    if condition["operator"] == "OR":
        return any_(kept)
    if condition["operator"] == "NOT":
        joined = all_(kept)
        return nothing() if joined is None else ~joined
    raise FilterError(f"there is no logical operator {condition['operator']!r}; there are AND, OR and NOT")


_KINDS: dict[type, str] = {bool: "boolean", int: "int", float: "float"}


def _value(meta: dict[str, Any], name: str) -> Any:
    """The value of a field of the meta, or at a path into it."""
    if name in meta or "." not in name:
        return meta.get(name)
    first, _, rest = name.partition(".")
    inner = meta.get(first)
    return _value(inner, rest) if isinstance(inner, dict) else None


def _key(value: Any) -> str:
    """A text that two values share only if they are equal and of one type."""
    return json.dumps(value, sort_keys=True, default=repr)


def _kind(found: set[str]) -> str:
    return next(iter(found)) if len(found) == 1 else "float" if found == {"int", "float"} else "keyword"


class NighDocumentStore:
    """Documents in a collection of the server at `url`.

    The collection is made at the first document, with string ids and the dimension of its embedding, or `embedding_dim` where it has none.
    Documents without embeddings are kept too, and no search by embedding finds them. Meta may be any JSON, and filters reach into it.
    Without a policy, a document replaces that of the same id. `api_key` is an API key or a JSON Web Token."""

    def __init__(self, url: str = "http://localhost:8080", collection: str = "haystack", api_key: Secret | None = None, *,
                 embedding_dim: int = 768, metric: str = "cosine", full_text: bool = False) -> None:  # fmt: skip
        self.url, self.collection, self.api_key = url, collection, api_key
        self.embedding_dim, self.metric, self.full_text = embedding_dim, metric, full_text
        self._made: Collection | None = None

    @property
    def _points(self) -> Collection:
        if self._made is None:
            client = Client(self.url, self.api_key.resolve_value() if self.api_key is not None else None)
            self._made = Collection(client, self.collection, auto_create=True, metric=self.metric, full_text=self.full_text)
        return self._made

    def to_dict(self) -> dict[str, Any]:
        """The store as a dictionary, without the value of its API key."""
        key = None if self.api_key is None else self.api_key.to_dict()
        return default_to_dict(self, url=self.url, collection=self.collection, api_key=key, embedding_dim=self.embedding_dim,
                               metric=self.metric, full_text=self.full_text)  # fmt: skip

    @classmethod
    def from_dict(cls, data: dict[str, Any]) -> NighDocumentStore:
        """The store of a dictionary."""
        given = data.get("init_parameters", {}).get("api_key")
        if isinstance(given, dict):
            data["init_parameters"]["api_key"] = Secret.from_dict(given)
        made: NighDocumentStore = default_from_dict(cls, data)
        return made

    def close(self) -> None:
        """Closes the connections."""
        if self._made is not None:
            self._made.client.close()

    def _filter(self, filters: dict[str, Any] | None) -> Filter | None:
        return _condition(self._points, filters) if filters else None

    def count_documents(self) -> int:
        """The number of documents."""
        return self._points.count()

    def count_documents_by_filter(self, filters: dict[str, Any]) -> int:
        """The number of documents that match."""
        return self._points.count(self._filter(filters))

    def filter_documents(self, filters: dict[str, Any] | None = None) -> list[Document]:
        """The documents that match, with their embeddings. Raises FilterError for a filter that has no meaning."""
        return list(map(self._document, self._points.all(self._filter(filters), with_vector=True)))

    def write_documents(self, documents: list[Document], policy: DuplicatePolicy = DuplicatePolicy.NONE) -> int:
        """Writes documents, in batches. Returns their number. With the policies SKIP and FAIL, the store first looks which ids are there;
        a document that another program writes in between is replaced."""
        if not isinstance(documents, list) or not all(isinstance(one, Document) for one in documents):
            raise ValueError("documents must be a list of Document")
        chosen = {one.id: one for one in documents}
        if policy in (DuplicatePolicy.SKIP, DuplicatePolicy.FAIL):
            there = {str(one.id) for one in self._points.by_ids(list(chosen))}
            if policy == DuplicatePolicy.FAIL and (there or len(chosen) < len(documents)):
                raise DuplicateDocumentError(f"of {len(documents)} documents {len(there)} are there already; none was written")
            chosen = {one.id: one for one in reversed(documents) if one.id not in there}
        known = next((len(one.embedding) for one in chosen.values() if one.embedding), self.embedding_dim)
        if not self._points.exists():
            self._points.ensure(known)
        dim = self._points.dim()
        self._points.write([self._point(one, dim) for one in chosen.values()])
        return len(chosen) if policy == DuplicatePolicy.SKIP else len(documents)

    def _point(self, document: Document, dim: int) -> _types.Point:
        rest: dict[str, Any] = {"score": document.score}
        if not document.embedding:
            rest["embedding"] = False
        elif self.metric == "cosine":
            # The server keeps directions alone.
            rest["length"] = math.sqrt(sum(one * one for one in document.embedding))
        if document.content == "":
            rest["content"] = ""
        if document.blob is not None:
            rest["blob"] = document.blob.to_dict()
        if document.sparse_embedding is not None:
            rest["sparse_embedding"] = document.sparse_embedding.to_dict()
        payload = {**document.meta, _REST: {key: value for key, value in rest.items() if value is not None}}
        return _types.Point(document.id, document.embedding or [0.0] * dim, payload, document.content or "")

    def _document(self, found: _types.Document, score: float | None = None) -> Document:
        rest = found.metadata.pop(_REST, {})
        embedding = None
        if found.vector is not None and rest.get("embedding") is not False:
            length = rest.get("length", 1.0)
            embedding = [float(one) * length for one in found.vector]
        return Document(
            id=str(found.id),
            content=found.content or rest.get("content"),
            blob=ByteStream.from_dict(rest["blob"]) if "blob" in rest else None,
            meta=found.metadata,
            score=rest.get("score") if score is None else score,
            embedding=embedding,
            sparse_embedding=SparseEmbedding.from_dict(rest["sparse_embedding"]) if "sparse_embedding" in rest else None,
        )

    def delete_documents(self, document_ids: list[str]) -> None:
        """Deletes documents; ids that there are not are passed over."""
        self._points.delete(document_ids)

    def delete_all_documents(self, recreate_collection: bool = False) -> None:
        """Deletes all documents. With `recreate_collection` it drops the collection too, and the next document creates it anew."""
        if recreate_collection:
            self._points.drop()
        else:
            self._points.delete(None)

    def delete_by_filter(self, filters: dict[str, Any]) -> int:
        """Deletes the documents that match. Returns how many there were."""
        chosen = self._filter(filters)
        return self._points.delete(None) if chosen is None else self._points.delete_where(chosen)

    def update_by_filter(self, filters: dict[str, Any], meta: dict[str, Any]) -> int:
        """Sets these keys of the meta of all documents that match. Returns how many there were."""
        points, chosen = self._points, self._filter(filters)
        if chosen is None:
            raise FilterError("filters are empty: name the documents to change")
        return points.client.set_payload_by_filter(points.name, chosen, meta) if points.exists() else 0

    def _meta(self, filters: dict[str, Any] | None = None) -> Iterator[dict[str, Any]]:
        """The meta of all documents that match, page by page."""
        for found in self._points.all(self._filter(filters)):
            found.metadata.pop(_REST, None)
            yield found.metadata

    def count_unique_metadata_by_filter(self, filters: dict[str, Any], metadata_fields: list[str]) -> dict[str, int]:
        """How many values each of these fields of the meta has in the documents that match, whose meta is read. Values of two types, such
        as 1 and 1.0, are two."""
        names, found = [one.removeprefix("meta.") for one in metadata_fields], dict[str, set[str]]()
        for meta in self._meta(filters):
            for name in names:
                if (value := _value(meta, name)) is not None:
                    found.setdefault(name, set()).add(_key(value))
        return {name: len(found.get(name, ())) for name in names}

    def get_metadata_fields_info(self) -> dict[str, dict[str, str]]:
        """The fields of the meta of all documents, which is read, each with its `type`: "boolean", "int", "float" or "keyword". A field
        with values of more than one type has "float" where all are numbers, else "keyword"."""
        kinds = dict[str, set[str]]()
        for meta in self._meta():
            for name, value in meta.items():
                if value is not None:
                    kinds.setdefault(name, set()).add(_KINDS.get(type(value), "keyword"))
        return {name: {"type": _kind(found)} for name, found in kinds.items()}

    def get_metadata_field_min_max(self, metadata_field: str) -> dict[str, Any]:
        """The least and the greatest value of a field of the meta, under `min` and `max`; the meta of all documents is read. They are
        numbers or texts; None where there are none, or both numbers and texts."""
        name, least, most = metadata_field.removeprefix("meta."), None, None
        for meta in self._meta():
            value = _value(meta, name)
            if not isinstance(value, (int, float, str)):
                continue
            if least is None or most is None:
                least = most = value
            elif isinstance(value, str) != isinstance(least, str):
                return {"min": None, "max": None}
            else:
                least, most = min(least, value), max(most, value)
        return {"min": least, "max": most}

    def get_metadata_field_unique_values(self, metadata_field: str, search_term: str | None = None, from_: int = 0, size: int = 10,
                                         filters: dict[str, Any] | None = None) -> tuple[list[Any], int]:  # fmt: skip
        """The values of a field of the meta in the documents that match, whose meta is read, each once and in the order of their texts: at
        most `size` from number `from_` on; and how many there are. With `search_term` only those that contain it, in whatever case."""
        name, found = metadata_field.removeprefix("meta."), dict[str, Any]()
        for meta in self._meta(filters):
            if (value := _value(meta, name)) is not None:
                found.setdefault(_key(value), value)
        chosen = [one for one in found.values() if not search_term or search_term.lower() in str(one).lower()]
        chosen.sort(key=lambda one: (str(one), type(one).__name__))
        return chosen[from_ : from_ + size], len(chosen)

    def embedding_retrieval(self, query_embedding: Sequence[float], *, filters: dict[str, Any] | None = None, top_k: int = 10,
                            return_embedding: bool = False) -> list[Document]:  # fmt: skip
        """The `top_k` documents whose embeddings are nearest. The score of a document is the larger, the nearer it is: the cosine, the dot
        product, or for "l2" a number from 0 to 1."""
        if top_k == 0:
            return []
        given, has_embedding = self._filter(filters), ~F(f"{_REST}.embedding").exists()
        wanted = has_embedding if given is None else given & has_embedding
        more = {"with_vector": True} if return_embedding else {}
        hits = self._points.nearest(query_embedding, top_k, wanted, **more)
        scores: dict[str, Callable[[float], float]] = {"cosine": lambda distance: 1 - distance, "dot": lambda distance: -distance}
        score = scores.get(self.metric, similarity)
        return [self._document(hit, score(hit.distance)) for hit in hits]

    async def count_documents_async(self) -> int:
        """As `count_documents`."""
        return await asyncio.to_thread(self.count_documents)

    async def count_documents_by_filter_async(self, filters: dict[str, Any]) -> int:
        """As `count_documents_by_filter`."""
        return await asyncio.to_thread(self.count_documents_by_filter, filters)

    async def filter_documents_async(self, filters: dict[str, Any] | None = None) -> list[Document]:
        """As `filter_documents`."""
        return await asyncio.to_thread(self.filter_documents, filters)

    async def write_documents_async(self, documents: list[Document], policy: DuplicatePolicy = DuplicatePolicy.NONE) -> int:
        """As `write_documents`."""
        return await asyncio.to_thread(self.write_documents, documents, policy)

    async def delete_documents_async(self, document_ids: list[str]) -> None:
        """As `delete_documents`."""
        await asyncio.to_thread(self.delete_documents, document_ids)

    async def delete_all_documents_async(self, recreate_collection: bool = False) -> None:
        """As `delete_all_documents`."""
        await asyncio.to_thread(self.delete_all_documents, recreate_collection)

    async def delete_by_filter_async(self, filters: dict[str, Any]) -> int:
        """As `delete_by_filter`."""
        return await asyncio.to_thread(self.delete_by_filter, filters)

    async def count_unique_metadata_by_filter_async(self, filters: dict[str, Any], metadata_fields: list[str]) -> dict[str, int]:
        """As `count_unique_metadata_by_filter`."""
        return await asyncio.to_thread(self.count_unique_metadata_by_filter, filters, metadata_fields)

    async def get_metadata_fields_info_async(self) -> dict[str, dict[str, str]]:
        """As `get_metadata_fields_info`."""
        return await asyncio.to_thread(self.get_metadata_fields_info)

    async def get_metadata_field_min_max_async(self, metadata_field: str) -> dict[str, Any]:
        """As `get_metadata_field_min_max`."""
        return await asyncio.to_thread(self.get_metadata_field_min_max, metadata_field)

    async def get_metadata_field_unique_values_async(self, metadata_field: str, search_term: str | None = None, from_: int = 0,
                                                     size: int = 10,
                                                     filters: dict[str, Any] | None = None) -> tuple[list[Any], int]:  # fmt: skip
        """As `get_metadata_field_unique_values`."""
        return await asyncio.to_thread(self.get_metadata_field_unique_values, metadata_field, search_term, from_, size, filters)

    async def update_by_filter_async(self, filters: dict[str, Any], meta: dict[str, Any]) -> int:
        """As `update_by_filter`."""
        return await asyncio.to_thread(self.update_by_filter, filters, meta)


@component
class NighEmbeddingRetriever:
    """The documents of a `NighDocumentStore` whose embeddings are nearest to that of a query. Filters of a call replace those of the
    retriever, or are joined with them, as `filter_policy` says."""

    def __init__(self, document_store: NighDocumentStore, top_k: int = 10, filters: dict[str, Any] | None = None, *,
                 return_embedding: bool = False, filter_policy: FilterPolicy = FilterPolicy.REPLACE) -> None:  # fmt: skip
        if top_k < 1:
            raise ValueError(f"top_k is {top_k}; it must be at least 1")
        self.document_store, self.top_k, self.filters = document_store, top_k, filters
        self.return_embedding, self.filter_policy = return_embedding, filter_policy

    def to_dict(self) -> dict[str, Any]:
        """The retriever as a dictionary."""
        return default_to_dict(self, document_store=self.document_store.to_dict(), top_k=self.top_k, filters=self.filters,
                               return_embedding=self.return_embedding, filter_policy=self.filter_policy.value)  # fmt: skip

    @classmethod
    def from_dict(cls, data: dict[str, Any]) -> Any:
        """The retriever of a dictionary."""
        given = data["init_parameters"]
        given["document_store"] = NighDocumentStore.from_dict(given["document_store"])
        given["filter_policy"] = FilterPolicy.from_str(given.get("filter_policy", FilterPolicy.REPLACE.value))
        return default_from_dict(cls, data)

    @component.output_types(documents=list[Document])
    def run(self, query_embedding: list[float], filters: dict[str, Any] | None = None, top_k: int | None = None) -> dict[str, Any]:
        """The nearest documents, under the key `documents`."""
        chosen = apply_filter_policy(self.filter_policy, self.filters, filters)
        k = self.top_k if top_k is None else top_k
        found = self.document_store.embedding_retrieval(
            query_embedding, filters=chosen, top_k=k, return_embedding=self.return_embedding
        )
        return {"documents": found}

    @component.output_types(documents=list[Document])
    async def run_async(
        self, query_embedding: list[float], filters: dict[str, Any] | None = None, top_k: int | None = None
    ) -> dict[str, Any]:
        """As `run`."""
        return await asyncio.to_thread(self.run, query_embedding, filters, top_k)
