"""Operations on collections of named spaces and on multi-vector collections over the binary protocol, as commands. Their names lack the
beginning that tells the family, which `keys.py` puts in front of them."""

from __future__ import annotations

import struct
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from typing_extensions import Unpack

from ._bodies import sparse_of
from ._lanes import spec_of
from ._plan import Command, encoded
from ._surface import command
from ._types import (
    Document,
    Matrix,
    MultiResult,
    NamedPoint,
    Payload,
    PointId,
    Results,
    ScrollPage,
    SearchOptions,
    SearchResult,
    Sparse,
    TokenDocument,
    Vector,
    array,
    floats,
)
from ._vectors import (
    Condition,
    _Asked,
    _collection,
    _condition,
    _count,
    _filter,
    _flag,
    _framed,
    _fusion,
    _groups,
    _hits,
    _id,
    _json,
    _match,
    _meta,
    _nothing,
    _order,
    _page,
    _Reader,
    _resumed,
    _short,
    _sparse,
    _split,
    _vector,
    _with_payload,
    number_of,
)
from .filters import plain_payload, sent_payload

_NO_SPARSE = Sparse((), ())
_LIMITS = {"max_vectors", "max_bytes", "max_inserts_per_second"}


@dataclass(frozen=True)
class NamedRow:
    """A point of named spaces that was asked for by its id: `point` is None if `found` is False."""

    id: PointId
    found: bool
    point: NamedPoint | None = None


@dataclass(frozen=True)
class TokenRow:
    """A document of tokens that was asked for by its id: `document` is None if `found` is False."""

    id: PointId
    found: bool
    document: TokenDocument | None = None


def _name(space: str) -> bytes:
    raw = space.encode()
    if len(raw) > 0xFFFF:
        raise ValueError(f"the name of the space has {len(raw)} bytes; at most 65,535 are allowed")
    return len(raw).to_bytes(2, "big") + raw


def _spaces(vectors: Mapping[str, Any], encode: Any) -> bytes:
    return len(vectors).to_bytes(4, "big") + b"".join(_name(space) + encode(vector) for space, vector in vectors.items())


def _matrix(tokens: Any, name: str) -> bytes:
    made = array(tokens, 2, name) if len(tokens) else np.empty((0, 0), dtype=np.float32)
    size = made.shape[1].to_bytes(4, "big")
    return len(made).to_bytes(4, "big") + b"".join(size + row.tobytes() for row in made.astype(">f4"))


def _named_vectors(reader: _Reader) -> dict[str, Any]:
    return {reader.take(reader.number(2)).decode(): reader.vector() for _ in range(reader.number(4))}


def _tokens(reader: _Reader) -> Any:
    count, dim = reader.number(4), reader.number(4)
    return np.frombuffer(reader.take(4 * count * dim), dtype=">f4").astype(np.float32).reshape(count, dim) if count else None


def _meta_of(reader: _Reader, id: PointId) -> tuple[PointId, Payload, str]:
    stored = reader.json() if reader.number(1) else None
    named, payload, content = _split(stored, number_of(id))
    return (named if isinstance(named, str) else id), payload, content


def _version(reader: _Reader) -> int:
    return reader.number(8) if reader.left() and reader.number(1) else 0


def _named_stored(reader: _Reader, id: PointId) -> NamedPoint | None:
    if not reader.number(1):
        return None
    vectors, ttl_ms = _named_vectors(reader), reader.number(8)
    id, payload, content = _meta_of(reader, id)
    return NamedPoint(id, vectors, {}, payload, content, ttl_ms, _version(reader))


def _tokens_stored(reader: _Reader, id: PointId) -> TokenDocument | None:
    if not reader.number(1):
        return None
    tokens = _tokens(reader)
    id, payload, content = _meta_of(reader, id)
    return TokenDocument(id, tokens, payload, content, None, _version(reader))


def _each(payload: bytes, ids: Sequence[PointId]) -> Any:
    """A reader before each point of an answer, with its id."""
    reader = _Reader(payload)
    reader.number(4)
    for id in ids:
        reader.number(8)
        yield reader, id


def _shaped_hits(reader: _Reader, asked: _Asked, vectors: Any) -> Results[SearchResult]:
    made = []
    for _ in range(reader.number(4)):
        id, distance, score = struct.unpack(">Qff", reader.take(16))
        named, payload, content = _meta_of(reader, id)
        if content:
            payload = {**payload, "$content": content}
        shown = vectors(reader)
        listed = {name: one.tolist() for name, one in shown.items()} or None if isinstance(shown, dict) else floats(shown)
        made.append(SearchResult(named, distance, score, (payload or None) if asked.more.get("with_payload") else None, listed))
    found = Results(made)
    reader.ending(found, asked.explains)
    return found


def _named_hits(payload: bytes, form: str, asked: _Asked) -> Results[SearchResult]:
    return _shaped_hits(_Reader(payload), asked, _named_vectors) if asked.shaped else _hits(payload, form, asked)


def _named_docs(payload: bytes, asked: _Asked) -> Results[Document]:
    reader, made = _Reader(payload), []
    for _ in range(reader.number(4)):
        id, distance, score = struct.unpack(">Qff", reader.take(16))
        if asked.shaped:
            named, stored, content = _meta_of(reader, id)
            vectors = {name: one.tolist() for name, one in _named_vectors(reader).items()} or None
        else:
            text, vectors = reader.framed().decode(), None
            named, stored, content = _split(reader.json(), id)
            content = text or content
        made.append(Document(named, distance, content, score, stored, vectors))
    found = Results(made)
    reader.ending(found, asked.explains)
    return found


def _scored(payload: bytes, asked: _Asked) -> Results[MultiResult]:
    reader, made = _Reader(payload), []
    for _ in range(reader.number(4)):
        if asked.shaped:
            id, _, score = struct.unpack(">Qff", reader.take(16))
            stored = reader.json() if reader.number(1) else None
            _tokens(reader)
        else:
            id, score = struct.unpack(">Qf", reader.take(12))
            stored = reader.json()
        metadata = plain_payload(stored)
        name = metadata.get("$id")
        if isinstance(name, str) and number_of(name) == id:
            id = metadata.pop("$id")
        made.append(MultiResult(id, score, metadata))
    found = Results(made)
    reader.ending(found, asked.explains)
    return found


def _fused(payload: bytes, asked: _Asked) -> Results[MultiResult]:
    """Hits with distances that mean nothing for documents of tokens."""
    if asked.shaped:
        return _scored(payload, asked)
    hits = _hits(payload, ">Qff", asked)
    found = Results([MultiResult(hit.id, hit.score) for hit in hits])
    found.degraded, found.missing, found.explain = hits.degraded, hits.missing, getattr(hits, "explain", None)
    return found


def _queried(collection: str, prefetch: Any, k: int, more: Any, vectors: Any) -> Command[Results[Any]]:
    options = {key: more.pop(key) for key in SearchOptions.__annotations__ if key in more and key != "filter"}
    asked, grouped = _Asked(options), bool(more.get("group_by"))
    if grouped and asked.shaped:
        raise ValueError("a query with group_by has no with_payload, with_vector, with_score or explain here")
    spec = spec_of({"prefetch": prefetch, "k": k, **more}, number_of)

    def decode(payload: bytes) -> Results[Any]:
        if grouped:
            return _groups(_Reader(payload), asked)
        return _shaped_hits(_Reader(payload[1:]), asked, vectors) if asked.shaped else _hits(payload[1:], ">Qff", asked)

    args = _collection(collection) + _framed(spec) + asked.marked(of_query=True)
    return Command(b"query", args, decode, read=True)


class SharedOperations:
    """What both families have, in the layout of collections of one vector a point."""

    @command
    def drop_collection(collection: str) -> Command[None]:
        """Removes a collection and all its points. It is no error if there is none."""
        return Command(b"drop_collection", _collection(collection), _nothing)

    @command
    def info(collection: str) -> Command[dict[str, Any]]:
        """Number of points, memory in bytes, state of the index and configuration, as the server gives them."""
        return Command(b"info", _collection(collection), _json, read=True)

    @command
    def delete(collection: str, id: PointId, **options: Unpack[Condition]) -> Command[bool]:
        """Deletes one point. Returns False if there is none. `options` may have `expected_version`."""
        return Command(b"delete", _collection(collection) + _id(id) + _condition(options), _flag)

    @command
    def delete_by_filter(collection: str, filter: Any) -> Command[int]:
        """Deletes the points that match. Returns how many there were."""
        return Command(b"delete_by_filter", _collection(collection) + _framed(_filter(filter)), _count)

    @command
    def exists(collection: str, id: PointId) -> Command[bool]:
        """Whether there is such a point."""
        return Command(b"exists", _collection(collection) + _id(id), _flag, read=True)

    @command
    def set_payload(collection: str, id: PointId, payload: Payload, **options: Unpack[Condition]) -> Command[bool]:
        """Sets these keys of a payload and keeps the others. Returns False if there is no such point."""
        args = _collection(collection) + _id(id) + _framed(encoded(sent_payload(payload))) + b"\0" + _condition(options)
        return Command(b"set_payload", args, _flag)

    @command
    def overwrite_payload(collection: str, id: PointId, payload: Payload, **options: Unpack[Condition]) -> Command[bool]:
        """Replaces the whole payload. Returns False if there is no such point."""
        args = _collection(collection) + _id(id) + _framed(encoded(sent_payload(payload))) + b"\0" + _condition(options)
        return Command(b"overwrite_payload", args, _flag)

    @command
    def delete_payload_keys(collection: str, id: PointId, keys: Sequence[str], **options: Unpack[Condition]) -> Command[bool]:
        """Removes these `keys` of a payload. Returns False if there is no such point."""
        args = _collection(collection) + _id(id) + len(keys).to_bytes(4, "big") + b"".join(map(_short, keys)) + _condition(options)
        return Command(b"delete_payload_keys", args, _flag)

    @command
    def clear_payload(collection: str, id: PointId, **options: Unpack[Condition]) -> Command[bool]:
        """Removes all keys of a payload. Returns False if there is no such point."""
        return Command(b"clear_payload", _collection(collection) + _id(id) + _condition(options), _flag)

    @command
    def count(collection: str, *, filter: Any = None) -> Command[int]:
        """The number of points that match."""
        return Command(b"count", _collection(collection) + _framed(_filter(filter)), _count, read=True)

    @command
    def scroll(collection: str, *, filter: Any = None, limit: int = 100, cursor: str = "",
               order_by: Any = None) -> Command[ScrollPage[Document]]:  # fmt: skip
        """A page of points in the order of their ids, or by `order_by`, as `Client.scroll` has it. `limit` 0 is all, which must fit a
        frame. `cursor` is `next_cursor` of the page before, empty for the first one. Raises ValueError for what is no cursor."""
        args = _collection(collection) + limit.to_bytes(4, "big") + _framed(_filter(filter))
        after, values = _resumed(cursor) if cursor else (None, [])
        if cursor or order_by is not None:
            args += bytes(((0 if after is None else 1) | (0 if order_by is None else 4),))
            args += b"" if after is None else after.to_bytes(8, "big")
            args += b"" if order_by is None else _order(order_by, values)[1:]
        return Command(b"scroll", args, lambda payload: _page(payload, limit), read=True)


class NamedOperations(SharedOperations):
    """Operations on collections of named spaces."""

    @command
    def create_collection(
        name: str, spaces: Mapping[str, Mapping[str, Any]], *, payload_format: str = "plain", **config: Any
    ) -> Command[None]:
        """Creates a collection with these spaces: `{"image": {"dim": 512, "metric": "cosine"}, "words": {"sparse": True}}`.
        `payload_format` is "plain" or "tagged", `config` has what else holds for the whole collection."""
        whole = encoded({"payload_format": payload_format, **config})
        args = _collection(name) + _framed(encoded(dict(spaces))) + (1).to_bytes(4, "big") + _framed(whole)
        return Command(b"create_collection", args, _nothing)

    @command
    def change_config(collection: str, **changes: Any) -> Command[None]:
        """Changes limits of the collection, such as `max_vectors`, and by the names of spaces their search parameters."""
        limits = {key: value for key, value in changes.items() if key in _LIMITS}
        spaces = {key: value for key, value in changes.items() if key not in limits}
        args = _collection(collection) + _framed(encoded(spaces)) + (_framed(encoded(limits)) if limits else b"")
        return Command(b"change_config", args, _nothing)

    @command
    def add_space(collection: str, space: str, **config: Any) -> Command[None]:
        """Adds an empty space; `config` is as in `create_collection`. Raises ConflictError if it exists."""
        return Command(b"add_space", _collection(collection) + _name(space) + _framed(encoded(config)), _nothing)

    @command
    def drop_space(collection: str, space: str) -> Command[None]:
        """Removes a space with its vectors."""
        return Command(b"drop_space", _collection(collection) + _name(space), _nothing)

    @command
    def upsert(collection: str, point: NamedPoint, **options: Unpack[Condition]) -> Command[None]:
        """Writes a point, or replaces it as a whole. `options` may have `expected_version`: raises ConflictError if the point has another
        version."""
        parts = [_collection(collection), _id(point.id), _spaces(point.vectors, _vector), int(point.ttl_ms).to_bytes(8, "big")]
        parts.append(_framed(_meta(point.payload, point.content, point.id)))
        if point.sparse_vectors:
            parts += (b"\2", _spaces(point.sparse_vectors, _sparse))
        return Command(b"insert", b"".join((*parts, b"\0", _condition(options))), _nothing)

    @command
    def update_vectors(collection: str, id: PointId, *, vectors: Mapping[str, Vector] | None = None,
                       sparse_vectors: Mapping[str, Sparse] | None = None, delete: Sequence[str] = (),
                       **options: Unpack[Condition]) -> Command[bool]:  # fmt: skip
        """Sets `vectors` and `sparse_vectors`, by the names of their spaces, of a point, and removes those of the spaces in `delete`.
        Returns False if there is no such point."""
        removed = len(delete).to_bytes(4, "big") + b"".join(map(_name, delete))
        parts = _spaces(vectors or {}, _vector), _spaces(sparse_vectors or {}, _sparse), removed
        return Command(b"update_vectors", b"".join((_collection(collection), _id(id), *parts, _condition(options))), _flag)

    @command
    def get(collection: str, id: PointId, *, with_vector: bool = True, with_payload: bool = True) -> Command[NamedPoint | None]:
        """Returns one point, without its sparse vectors, which the protocol does not give; None if there is none."""
        args = _collection(collection) + _id(id) + bytes((int(with_vector) | int(with_payload) << 1,))
        return Command(b"get", args, lambda payload: _named_stored(_Reader(payload), id), read=True)

    @command
    def get_batch(
        collection: str, ids: Sequence[PointId], *, with_vector: bool = True, with_payload: bool = True
    ) -> Command[list[NamedRow]]:
        """A `NamedRow` for each of `ids`, in their order, with the point, as of `get`, if it was found."""
        flags = bytes((int(with_vector) | int(with_payload) << 1,))
        args = b"".join((_collection(collection), flags, len(ids).to_bytes(4, "big"), *map(_id, ids)))

        def decode(payload: bytes) -> list[NamedRow]:
            points = [(id, _named_stored(reader, id)) for reader, id in _each(payload, ids)]
            return [NamedRow(id, point is not None, point) for id, point in points]

        return Command(b"get_batch", args, decode, read=True)

    @command
    def search(collection: str, space: str, query: Vector, k: int = 10,
               **options: Unpack[SearchOptions]) -> Command[Results[SearchResult]]:  # fmt: skip
        """The `k` points nearest to `query`, of shape (dim,), in one space. In collections whose ids are texts, hits have their numbers;
        `with_payload=True` and `search_docs` give the texts."""
        asked = _Asked(options)
        args = b"".join((_collection(collection), _name(space), k.to_bytes(4, "big"), _vector(query, "query")))
        args += _framed(asked.filter) + asked.marked(of_query=True)
        return Command(b"search", args, lambda payload: _named_hits(payload, ">Qf", asked), read=True)

    @command
    def search_docs(collection: str, space: str, query: Vector, k: int = 10,
                    **options: Unpack[SearchOptions]) -> Command[Results[Document]]:  # fmt: skip
        """As `search`, for `query` in `space`, with texts and payloads."""
        asked = _with_payload(options)
        args = b"".join((_collection(collection), _name(space), k.to_bytes(4, "big"), _vector(query, "query")))
        args += _framed(asked.filter) + asked.marked(of_query=True)
        return Command(b"search_docs", args, lambda payload: _named_docs(payload, asked), read=True)

    @command
    def sparse_search(collection: str, space: str, query: Sparse, k: int = 10,
                      **options: Unpack[SearchOptions]) -> Command[Results[SearchResult]]:  # fmt: skip
        """The `k` points with the largest dot products with a sparse vector in the sparse space `space`."""
        asked = _Asked(options)
        args = b"".join((_collection(collection), _name(space), k.to_bytes(4, "big"), _sparse(query)))
        args += _framed(asked.filter) + asked.marked(of_query=True)
        return Command(b"sparse_search", args, lambda payload: _named_hits(payload, ">Qff", asked), read=True)

    @command
    def hybrid_search(collection: str, k: int = 10, *, dense: tuple[str, Vector], sparse: tuple[str, Sparse] | None = None,
                      text: str | None = None, match: Mapping[str, Any] | None = None, method: str = "rrf", alpha: float | None = None,
                      rrf_k: int | None = None, **options: Unpack[SearchOptions]) -> Command[Results[SearchResult]]:  # fmt: skip
        """Fuses a dense search with a sparse one or a text search. `dense` and `sparse` are pairs of a space and a vector;
        `Client.hybrid_search` says what `method`, `alpha` and `rrf_k` are, `Client.search_text` what `match` is."""
        asked, (space, other) = _Asked(options), sparse or ("", _NO_SPARSE)
        names = _name(dense[0]) + _name(space)
        vectors = _vector(dense[1], "dense") + _sparse(other)
        args = _hybrid(asked, collection, names, k, _fusion(method, alpha, rrf_k, None, None), vectors, other, text, match)
        return Command(b"hybrid_search", args, lambda payload: _named_hits(payload, ">Qff", asked), read=True)

    @command
    def query(collection: str, prefetch: Sequence[Mapping[str, Any]], *, k: int = 10, **more: Any) -> Command[Results[Any]]:
        """As `Client.named.query`, which says what searches are in `prefetch` and what `more` may have. Raises ValueError for a
        `group_by` with options of what hits are shown with."""
        return _queried(collection, prefetch, k, more, _named_vectors)


def _hybrid(asked: _Asked, collection: str, names: bytes, k: int, fusion: bytes, vectors: bytes, sparse: Any, text: str | None,
            match: Mapping[str, Any] | None) -> bytes:  # fmt: skip
    flags, end = asked.flagged(1, 4)
    flags |= 2 if len(sparse_of(sparse)["indices"]) else 0
    if text is not None:
        flags |= 8 | _match(match) << 1
    words = b"" if text is None else _framed(text.encode())
    return b"".join((bytes((flags,)), _collection(collection), names, k.to_bytes(4, "big"), fusion, vectors, words, end))


class MultiVectorOperations(SharedOperations):
    """Operations on multi-vector collections."""

    @command
    def create_collection(name: str, dim: int, *, m: int = 0, ef_construction: int = 0, ef_search: int = 0, seed: int = 0) -> Command[None]:
        """Creates a collection of documents whose tokens have `dim` components. `m`, `ef_construction`, `ef_search` and `seed` are those
        of the graph of tokens; 0 is the server's own choice. With other parameters it is created by `Client.multivector`."""
        return Command(b"create_collection", _collection(name) + struct.pack(">IIIIq", dim, m, ef_construction, ef_search, seed), _nothing)

    @command
    def change_config(collection: str, **changes: Any) -> Command[None]:
        """Changes limits and search parameters, for example `max_vectors`."""
        return Command(b"change_config", _collection(collection) + _framed(encoded(changes)), _nothing)

    @command
    def add(collection: str, document: TokenDocument, **options: Unpack[Condition]) -> Command[None]:
        """Writes a document, or replaces it as a whole. `options` may have `expected_version`: raises ConflictError if the document has
        another version."""
        if document.tokens is None:
            raise ValueError(f"the document {document.id!r} has no tokens")
        condition = _condition(options)
        parts = [_collection(collection), _id(document.id), _matrix(document.tokens, "tokens")]
        parts += (_framed(_meta(document.payload, document.content, document.id)), b"\0", condition)
        if document.sparse is not None:
            parts += (b"" if condition else b"\0", b"\1", _sparse(document.sparse))
        return Command(b"add", b"".join(parts), _nothing)

    @command
    def get(collection: str, id: PointId, *, with_vector: bool = True, with_payload: bool = True) -> Command[TokenDocument | None]:
        """Returns one document, without its sparse vector, which the protocol does not give; None if there is none."""
        args = _collection(collection) + _id(id) + bytes((int(with_vector) | int(with_payload) << 1,))
        return Command(b"get", args, lambda payload: _tokens_stored(_Reader(payload), id), read=True)

    @command
    def get_batch(
        collection: str, ids: Sequence[PointId], *, with_vector: bool = True, with_payload: bool = True
    ) -> Command[list[TokenRow]]:
        """A `TokenRow` for each of `ids`, in their order, with the document, as of `get`, if it was found."""
        flags = bytes((int(with_vector) | int(with_payload) << 1,))
        args = b"".join((_collection(collection), flags, len(ids).to_bytes(4, "big"), *map(_id, ids)))

        def decode(payload: bytes) -> list[TokenRow]:
            documents = [(id, _tokens_stored(reader, id)) for reader, id in _each(payload, ids)]
            return [TokenRow(id, document is not None, document) for id, document in documents]

        return Command(b"get_batch", args, decode, read=True)

    @command
    def search(collection: str, query: Matrix, k: int = 10, *, candidates_per_token: int = 0,
               **options: Unpack[SearchOptions]) -> Command[Results[MultiResult]]:  # fmt: skip
        """The `k` best documents for the query tokens, of shape (tokens, dim). `candidates_per_token` is how many of the nearest tokens
        each query token looks for; 0 is four times `k`, at least 50."""
        asked = _Asked(options)
        marker = (1 if asked.read else 0) | (2 if asked.filter else 0) | (4 if len(asked.read) > 2 else 0)
        args = b"".join((_collection(collection), struct.pack(">II", k, candidates_per_token), _matrix(query, "query"), bytes((marker,))))
        args += asked.read + (_framed(asked.filter) if asked.filter else b"") + asked.tail
        return Command(b"search", args, lambda payload: _scored(payload, asked), read=True)

    @command
    def hybrid_search(collection: str, query: Matrix, k: int = 10, *, sparse: Sparse | None = None, text: str | None = None,
                      match: Mapping[str, Any] | None = None, method: str = "rrf", alpha: float | None = None, rrf_k: int | None = None,
                      **options: Unpack[SearchOptions]) -> Command[Results[MultiResult]]:  # fmt: skip
        """Fuses a search by `query`, tokens of shape (tokens, dim), with a sparse one or a text search; `Client.hybrid_search` says what
        `method`, `alpha` and `rrf_k` are, `Client.search_text` what `match` is. Hits have no payload unless it is asked for."""
        asked, other = _Asked(options), sparse or _NO_SPARSE
        vectors = _matrix(query, "query") + _sparse(other)
        args = _hybrid(asked, collection, b"", k, _fusion(method, alpha, rrf_k, None, None), vectors, other, text, match)
        return Command(b"hybrid_search", args, lambda payload: _fused(payload, asked), read=True)

    @command
    def query(collection: str, prefetch: Sequence[Mapping[str, Any]], *, k: int = 10, **more: Any) -> Command[Results[Any]]:
        """As `Client.multivector.query`, which says what searches are in `prefetch` and what `more` may have. Raises ValueError for a
        `group_by` with options of what hits are shown with."""
        return _queried(collection, prefetch, k, more, _tokens)
