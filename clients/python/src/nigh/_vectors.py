"""Every operation on collections over the binary protocol as a command. `keys.py` carries them out, blocking or not."""

from __future__ import annotations

import base64
import hashlib
import json
import operator
import struct
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from typing_extensions import TypedDict, Unpack

from ._bodies import sparse_of
from ._lanes import spec_of
from ._plan import Command, encoded
from ._surface import command
from ._types import (
    Document,
    Group,
    Matrix,
    Payload,
    Point,
    PointId,
    Results,
    ScrollPage,
    SearchOptions,
    SearchResult,
    Sparse,
    Vector,
    array,
    bare,
    numbers,
)
from .filters import body_of, plain, plain_payload, sent_payload

METRICS = {"cosine": 0, "l2": 1, "dot": 2}
_QUANTS = {"": 0, "none": 0, "sq8": 1, "bq1": 2, "pq": 3, "sq": 4, "prq": 5}
_INDEXES = {"": 0, "hnsw": 0, "ivf": 1, "vamana": 2, "gpu": 3}
_METHODS = {"": 0, "rrf": 0, "weighted": 1, "dbsf": 2}
# The blocks behind the fixed part of the arguments that create a collection, in their order: letters of `struct`, and names. All of them
# are sent, so that the server need not tell them apart by what is left.
_BLOCKS = (
    ("?", "persistent"), ("I", "rescore_factor"), ("?", "extend_candidates"), ("I", "extend_candidates_max"), ("?", "level0_full_degree"),
    ("?", "quantized_build"), ("I", "partitions"), ("B", "index_type"), ("I", "ivf_nlist"), ("I", "ivf_nprobe"), ("?", "ivf_pq"),
    ("I", "ivf_pq_m"), ("?", "ivf_rerank"), ("I", "quant_pq_m"), ("?", "opq"), ("?", "pq_drop_vecs"), ("I", "ivf_train_threshold"),
    ("?", "ivf_drift_retrain"), ("d", "ivf_drift_growth_factor"), ("d", "ivf_drift_factor"), ("I", "filter_first_relative_bp"),
    ("I", "opq_iters"),
)  # fmt: skip
_LAST_BLOCKS = (
    ("I", "sq_bits"), ("I", "prq_layers"), ("I", "vamana_r"), ("I", "vamana_l"), ("f", "vamana_alpha"), ("f", "anisotropic_eta"),
    ("?", "soar"), ("f", "soar_lambda"), ("I", "pq_nbits"),
)  # fmt: skip
_FIRST = ("m", "ef_construction", "ef_search", "seed", "quant")
_SHAPED = ("with_payload", "with_vector", "with_score", "explain")
_READ = ("read_consistency", "on_partition_unavailable", "max_staleness")


class Condition(TypedDict, total=False):
    """What a write of one point takes besides it: `expected_version`, as in `WriteOptions`."""

    expected_version: int


@dataclass(frozen=True)
class Row:
    """A point that was asked for by its id: `point` is None if `found` is False."""

    id: PointId
    found: bool
    point: Point | None = None


def number_of(id: PointId) -> int:
    """The number that the binary protocol and gRPC have for an id. That of a text is the beginning of its SHA-256."""
    if isinstance(id, str):
        return int.from_bytes(hashlib.sha256(id.encode()).digest()[:8], "big")
    number = operator.index(id)
    if not 0 <= number < 1 << 64:
        raise ValueError(f"an id is {number}; ids are 0 to 2**64 - 1")
    return number


def _id(id: PointId) -> bytes:
    return number_of(id).to_bytes(8, "big")


def _collection(name: str) -> bytes:
    raw = name.encode()
    if len(raw) > 247:
        raise ValueError(f"the name of the collection has {len(raw)} bytes; at most 247 are allowed")
    return bytes((len(raw),)) + raw


def _framed(raw: bytes) -> bytes:
    return len(raw).to_bytes(4, "big") + raw


def _short(text: str) -> bytes:
    raw = text.encode()
    if len(raw) > 0xFFFF:
        raise ValueError(f"a key of a payload has {len(raw)} bytes; at most 65,535 are allowed")
    return len(raw).to_bytes(2, "big") + raw


def _vector(vector: Any, name: str = "vector") -> bytes:
    made = array(vector, 1, name)
    return len(made).to_bytes(4, "big") + made.astype(">f4").tobytes()


def _sparse(sparse: Sparse | Mapping[str, Any]) -> bytes:
    given = sparse_of(sparse)
    made = np.empty(len(given["indices"]), dtype=[("index", ">u4"), ("value", ">f4")])
    made["index"], made["value"] = numbers(given["indices"]), np.asarray(given["values"], dtype=np.float32)
    return len(made).to_bytes(4, "big") + made.tobytes()


def _meta(payload: Payload | None, content: str, id: PointId) -> bytes:
    made = dict(sent_payload(payload)) if payload else {}
    if content:
        made["$content"] = content
    if isinstance(id, str):
        made["$id"] = id
    return encoded(made) if made else b""


def _filter(condition: Any) -> bytes:
    return b"" if condition is None else encoded(body_of(condition))


def _condition(options: Mapping[str, Any]) -> bytes:
    unknown = sorted(options.keys() - {"expected_version"})
    if unknown:
        raise TypeError(f"there is no option {unknown[0]!r} over the binary protocol; there is expected_version")
    version = options.get("expected_version")
    return b"" if version is None else b"\1" + int(version).to_bytes(8, "big")


class _Asked:
    """The options of a search: its filter, what is for clusters, and the rest, with how its hits are laid out."""

    def __init__(self, options: Mapping[str, Any]) -> None:
        given = {key: value for key, value in options.items() if value is not None}
        unknown = sorted(given.keys() - SearchOptions.__annotations__.keys())
        if unknown:
            raise TypeError(f"a search has no option {unknown[0]!r}; it has {', '.join(SearchOptions.__annotations__)}")
        self.filter = _filter(given.pop("filter", None))
        consistency, other, bound = (int(given.pop(key, 0)) for key in _READ)
        self.read = b""
        if consistency or other:
            self.read = bytes((consistency, other)) + (bound.to_bytes(8, "big") if consistency == 3 else b"")
        self.more = given
        self.explains = bool(given.get("explain"))

    @property
    def tail(self) -> bytes:
        return b"\x4f" + _framed(encoded(self.more)) if self.more else b""

    @property
    def shaped(self) -> bool:
        return any(self.more.get(key) not in (None, False) for key in _SHAPED)

    def flagged(self, filter_bit: int, read_bit: int) -> tuple[int, bytes]:
        """The flags, and what stands at the end of arguments."""
        flags = (filter_bit if self.filter else 0) | (read_bit if self.read else 0)
        return flags, (_framed(self.filter) if self.filter else b"") + self.read + self.tail

    def marked(self, of_query: bool = False) -> bytes:
        """Read options behind a byte that says whether there are any."""
        if self.read:
            return (b"\3" if of_query and self.read[0] == 3 else b"\1") + self.read + self.tail
        return b"\0" + self.tail if self.more else b""


class _Reader:
    """Reads a result from its beginning."""

    def __init__(self, payload: bytes) -> None:
        self.payload, self.at = payload, 0

    def take(self, size: int) -> bytes:
        end = self.at + size
        if end > len(self.payload):
            raise ConnectionError(f"an answer ends after {len(self.payload)} bytes, where {end} were announced")
        taken, self.at = self.payload[self.at : end], end
        return taken

    def number(self, size: int) -> int:
        return int.from_bytes(self.take(size), "big")

    def framed(self) -> bytes:
        return self.take(self.number(4))

    def left(self) -> int:
        return len(self.payload) - self.at

    def json(self) -> Any:
        raw = self.framed()
        return json.loads(raw) if raw else None

    def vector(self) -> Any:
        return np.frombuffer(self.take(4 * self.number(4)), dtype=">f4").astype(np.float32)

    def sparse(self) -> Sparse | None:
        if not self.number(1):
            return None
        made = np.frombuffer(self.take(8 * self.number(4)), dtype=[("index", ">u4"), ("value", ">f4")])
        return Sparse(made["index"].tolist(), made["value"].tolist())

    def ending(self, found: Results[Any], explains: bool = False) -> None:
        """What may stand behind hits: which parts of a cluster gave no answer, or the account of the search."""
        if explains and self.left() >= 4:
            found.explain = self.json()
        elif self.left():
            found.degraded = bool(self.number(1))
            found.missing = [self.number(2) for _ in range(self.number(2))]


def _split(payload: Any, id: int) -> tuple[PointId, Payload, str]:
    made = plain_payload(payload)
    content, name = made.pop("$content", ""), made.get("$id")
    if isinstance(name, str) and number_of(name) == id:
        return made.pop("$id"), made, content
    return id, made, content


def _found(reader: _Reader) -> list[tuple[PointId, float, float, Payload | None, str, Any]]:
    hits: list[tuple[PointId, float, float, Payload | None, str, Any]] = []
    for _ in range(reader.number(4)):
        id, distance, score = struct.unpack(">Qff", reader.take(16))
        stored = reader.json() if reader.number(1) else None
        named, payload, content = _split(stored, id)
        vector = reader.vector()
        reader.sparse()
        hits.append((named, distance, score, None if stored is None else payload, content, vector.tolist() if len(vector) else None))
    return hits


def _shaped(reader: _Reader, more: Mapping[str, Any]) -> list[SearchResult]:
    made = []
    for id, distance, score, payload, content, vector in _found(reader):
        if content and payload is not None:
            payload = {**payload, "$content": content}
        made.append(SearchResult(id, distance, score, (payload or None) if more.get("with_payload") else None, vector))
    return made


def _hits(payload: bytes, form: str, asked: _Asked) -> Results[SearchResult]:
    reader = _Reader(payload)
    if asked.shaped:
        found = Results(_shaped(reader, asked.more))
    else:
        size = struct.calcsize(form)
        found = Results([bare(*row) for row in struct.iter_unpack(form, reader.take(size * reader.number(4)))])
    reader.ending(found, asked.explains)
    return found


def _documents(reader: _Reader, shaped: bool = False) -> list[Document]:
    if shaped:
        hits = _found(reader)
        return [Document(id, distance, text, score, payload or {}, vector) for id, distance, score, payload, text, vector in hits]
    made = []
    for _ in range(reader.number(4)):
        number, distance, score = struct.unpack(">Qff", reader.take(16))
        content = reader.framed().decode()
        id, payload, stored = _split(reader.json(), number)
        made.append(Document(id, distance, content or stored, score, payload))
    return made


def _groups(reader: _Reader, asked: _Asked) -> Results[Group]:
    made = []
    for _ in range(reader.number(4)):
        key = plain(reader.json())
        made.append(Group(key, _documents(_Reader(reader.framed()), asked.shaped)))
    found = Results(made)
    reader.ending(found, asked.explains)
    return found


def _stored(reader: _Reader, id: PointId) -> Point | None:
    if not reader.number(1):
        return None
    vector, ttl_ms = reader.vector(), reader.number(8)
    payload = reader.json() if reader.number(1) else None
    sparse = reader.sparse()
    version = reader.number(8) if reader.left() and reader.number(1) else 0
    named, plain_one, content = _split(payload, number_of(id))
    return Point(named if isinstance(named, str) else id, vector if len(vector) else None, plain_one, content, sparse, ttl_ms, version)


def _many(payload: bytes, ids: Sequence[PointId]) -> list[Row]:
    reader, made = _Reader(payload), []
    reader.number(4)
    for id in ids:
        reader.number(8)
        point = _stored(reader, id)
        made.append(Row(id, point is not None, point))
    return made


def _page(payload: bytes, limit: int) -> ScrollPage[Document]:
    reader = _Reader(payload)
    found = _documents(reader)
    page = ScrollPage(found)
    if reader.left():
        reader.ending(page)
        page.next_cursor = reader.framed().decode() if reader.left() else ""
    elif limit and len(found) == limit:
        page.next_cursor = base64.urlsafe_b64encode(b"\1" + _id(found[-1].id)).decode().rstrip("=")
    return page


def _resumed(cursor: str) -> tuple[int, list[float | str]]:
    """The id and the values of the keys that a cursor goes on behind."""
    try:
        raw = base64.urlsafe_b64decode(cursor + "=" * (-len(cursor) % 4))
        version, reader = raw[0], _Reader(raw)
        reader.take(1)
        values: list[float | str] = []
        if version == 1:
            return reader.number(8), values
        reader.take(3)
        kinds = [1] if version == 2 else [2] if version == 3 else []
        for kind in kinds or [0] * reader.number(1):
            text = (kind or reader.number(1)) & 3 == 2
            values.append(reader.take(reader.number(2)).decode() if text else struct.unpack(">d", reader.take(8))[0])
        return reader.number(8), values
    except (ValueError, IndexError, struct.error, ConnectionError) as error:
        raise ValueError(f"{cursor!r} is no cursor of a scroll") from error


def _order(order_by: Any, values: Sequence[float | str]) -> bytes:
    first = dict[str, Any](order_by)
    tail = first.pop("tail_keys", None) or []

    def coded(one: Mapping[str, Any]) -> tuple[bytes, int]:
        unknown = sorted(one.keys() - {"key", "desc", "is_datetime", "is_string", "start_from"})
        if unknown:
            raise ValueError(f"order_by has no {unknown[0]!r}")
        flags = (1 if one.get("desc") else 0) | (2 if one.get("is_datetime") else 0) | (4 if one.get("is_string") else 0)
        return _framed(str(one["key"]).encode()), flags

    key, flags = coded(first)
    start = first.get("start_from")
    if start is not None and not isinstance(start, (int, float)):
        raise ValueError("start_from must be a number over the binary protocol")
    made = b"\1" + key + bytes((flags | (8 if tail else 0),))
    made += b"\0" if start is None or values else b"\1" + struct.pack(">d", start)
    alone = values[0] if values and not tail else None
    made += b"\1" + struct.pack(">d", alone) if isinstance(alone, float) else b"\0"
    if flags & 4:
        made += b"\1" + _framed(alone.encode()) if isinstance(alone, str) else b"\0"
    if tail:
        keys = [coded(one) for one in tail]
        made += bytes((len(keys),)) + b"".join(name + bytes((kind,)) for name, kind in keys)
        parts = b"".join(b"\2" + _framed(v.encode()) if isinstance(v, str) else b"\0" + struct.pack(">d", v) for v in values)
        made += b"\1" + parts if values else b"\0"
    return made


def _config(dim: int, metric: str, full_text: bool | Mapping[str, Any], ids: str, payload_format: str, config: Mapping[str, Any]) -> bytes:
    names = {*_FIRST, *(name for _, name in (*_BLOCKS, *_LAST_BLOCKS))}
    unknown = sorted(config.keys() - names)
    if unknown:
        raise ValueError(f"a collection is made over the binary protocol without {unknown[0]!r}; there are {', '.join(sorted(names))}")

    def code(codes: Mapping[str, int], name: Any, what: str) -> int:
        if name not in codes:
            raise ValueError(f"{what} is {name!r}; it must be one of {', '.join(repr(one) for one in codes if one)}")
        return codes[name]

    def packed(blocks: Sequence[tuple[str, str]]) -> bytes:
        given = [code(_INDEXES, config.get(n) or "", n) if n == "index_type" else config.get(n) or 0 for _, n in blocks]
        return struct.pack(">" + "".join(form for form, _ in blocks), *given)

    text = b"\0"
    if full_text:
        more = {} if full_text is True else dict(full_text)
        other = sorted(more.keys() - {"analyzer", "k1", "b"})
        if other:
            raise ValueError(f"full_text has no {other[0]!r}; it has analyzer, k1 and b")
        analyzer = more.get("analyzer", "").encode()
        text = b"\1" + bytes((len(analyzer),)) + analyzer + struct.pack(">ff", more.get("k1", 1.2), more.get("b", 0.75))
    first = struct.pack(
        ">IBIIIq", dim, code(METRICS, metric, "metric"), *(config.get(name) or 0 for name in ("m", "ef_construction", "ef_search", "seed"))
    )
    kinds = code({"tagged": 0, "plain": 1}, payload_format, "payload_format"), code({"number": 0, "string": 1}, ids, "ids")
    quant = bytes((code(_QUANTS, config.get("quant") or "", "quant"),))
    return first + quant + packed(_BLOCKS) + text + packed(_LAST_BLOCKS) + bytes(kinds)


def _fusion(method: str, alpha: float | None, rrf_k: int | None, dense_k: int | None, other_k: int | None) -> bytes:
    if method not in _METHODS:
        raise ValueError(f"method is {method!r}; it must be 'rrf', 'weighted' or 'dbsf'")
    # Zero means that no weight was given; the weight zero is the negative one.
    weight = 0.0 if alpha is None else alpha or -0.0
    return struct.pack(">BdIII", _METHODS[method], weight, rrf_k or 0, dense_k or 0, other_k or 0)


def _written(name: bytes, collection: str, point: Point, options: Mapping[str, Any]) -> Command[None]:
    if point.vector is None:
        raise ValueError(f"the point {point.id!r} has no vector")
    meta, version = _meta(point.payload, point.content, point.id), _condition(options)[1:]
    flags = (1 if point.ttl_ms else 0) | (2 if meta else 0) | (16 if version else 0)
    parts = [b"", _collection(collection), _id(point.id), _vector(point.vector)]
    if point.ttl_ms:
        parts.append(int(point.ttl_ms).to_bytes(8, "big"))
    if meta:
        parts.append(_framed(meta))
    if point.sparse is not None:
        flags |= 4
        parts.append(_sparse(point.sparse))
    parts[0] = bytes((flags,))
    return Command(name, b"".join((*parts, version)), _nothing)


def frame_rows(sample: bytes, vectors: Any, tail: int, ids: Any = None) -> memoryview:
    """Requests one behind the other, each as long as `sample` and the same but for its vector, behind which `tail` bytes stand, and the id
    in front of it, if there are `ids`."""
    dim = vectors.shape[1]
    head = len(sample) - tail - 4 * dim
    kinds = [("head", "u1", (head,)), ("vector", ">f4", (dim,)), ("tail", "u1", (tail,))]
    made = np.empty(len(vectors), dtype=kinds)
    raw = np.frombuffer(sample, dtype=np.uint8)
    made["head"], made["vector"], made["tail"] = raw[:head], vectors, raw[len(sample) - tail :]
    if ids is not None:
        made["head"][:, head - 12 : head - 4] = np.asarray(ids, dtype=">u8").view(np.uint8).reshape(-1, 8)
    return made.data.cast("B")


def searched(collection: str, query: Vector, k: int, options: Mapping[str, Any]) -> tuple[Command[Results[SearchResult]], int]:
    """The command of a search, and how many bytes stand in it behind its vector."""
    asked = _Asked(options)
    flags, end = asked.flagged(1, 2)
    args = b"".join((bytes((flags,)), _collection(collection), k.to_bytes(4, "big"), _vector(query, "query"), end))
    return Command(b"vector_search", args, lambda payload: _hits(payload, ">Qf", asked), read=True), len(end)


def upserted(collection: str, point: Point) -> Command[None]:
    """The command that writes a point of a batch."""
    return _written(b"vector_upsert", collection, point, {})


def _nothing(_: bytes) -> None:
    return None


def _flag(payload: bytes) -> bool:
    return payload[:1] == b"\1"


def _count(payload: bytes) -> int:
    return int.from_bytes(payload, "big")


def _json(payload: bytes) -> dict[str, Any]:
    return dict(json.loads(payload))


class VectorOperations:
    """Every operation on collections that the binary protocol offers here."""

    @command
    def create_collection(name: str, dim: int, *, metric: str = "cosine", full_text: bool | Mapping[str, Any] = False,
                          ids: str = "number", payload_format: str = "plain", **config: Any) -> Command[None]:  # fmt: skip
        """Creates a collection. `Client.create_collection` says what `dim`, `metric`, `full_text`, `ids` and `payload_format` are. `config`
        has the parameters of indexes and codes; a limit, such as `max_vectors`, is set with `change_config`."""
        args = _collection(name) + _config(dim, metric, full_text, ids, payload_format, config)
        return Command(b"vector_create_collection", args, _nothing)

    @command
    def drop_collection(collection: str) -> Command[None]:
        """Removes a collection and all its points. It is no error if there is none."""
        return Command(b"vector_drop_collection", _collection(collection), _nothing)

    @command
    def info(collection: str) -> Command[dict[str, Any]]:
        """Number of points, memory in bytes, state of the index and configuration, as the server gives them."""
        return Command(b"vector_info", _collection(collection), _json, read=True)

    @command
    def change_config(collection: str, **changes: Any) -> Command[None]:
        """Changes limits and search parameters, for example `ef_search` or `max_vectors`."""
        return Command(b"vector_change_config", _collection(collection) + _framed(encoded(changes)), _nothing)

    @command
    def upsert(collection: str, id: PointId, vector: Vector, *, payload: Payload | None = None, content: str = "",
               sparse: Sparse | None = None, ttl_ms: int = 0, **options: Unpack[Condition]) -> Command[None]:  # fmt: skip
        """Writes a point, or replaces it as a whole. It expires after `ttl_ms` milliseconds; with 0 it never does. `options` may have
        `expected_version`: raises ConflictError if the point has another version."""
        return _written(b"vector_upsert", collection, Point(id, vector, payload, content, sparse, ttl_ms), options)

    @command
    def insert(collection: str, id: PointId, vector: Vector, *, payload: Payload | None = None, content: str = "",
               sparse: Sparse | None = None, ttl_ms: int = 0) -> Command[None]:  # fmt: skip
        """Writes a point that is not there yet. Raises ConflictError if it is."""
        return _written(b"vector_insert", collection, Point(id, vector, payload, content, sparse, ttl_ms), {})

    @command
    def delete(collection: str, id: PointId, **options: Unpack[Condition]) -> Command[bool]:
        """Deletes one point. Returns False if there is none. `options` are those of `upsert`."""
        return Command(b"vector_delete", _collection(collection) + _id(id) + _condition(options), _flag)

    @command
    def delete_by_filter(collection: str, filter: Any) -> Command[int]:
        """Deletes the points that match. Returns how many there were."""
        return Command(b"vector_delete_by_filter", _collection(collection) + _framed(_filter(filter)), _count)

    @command
    def exists(collection: str, id: PointId) -> Command[bool]:
        """Whether there is such a point."""
        return Command(b"vector_exists", _collection(collection) + _id(id), _flag, read=True)

    @command
    def get(collection: str, id: PointId, *, with_vector: bool = True, with_payload: bool = True) -> Command[Point | None]:
        """Returns one point, or None if there is none."""
        args = _collection(collection) + _id(id) + bytes((int(with_vector) | int(with_payload) << 1,))
        return Command(b"vector_get", args, lambda payload: _stored(_Reader(payload), id), read=True)

    @command
    def get_batch(collection: str, ids: Sequence[PointId], *, with_vector: bool = True, with_payload: bool = True) -> Command[list[Row]]:
        """A `Row` for each of `ids`, in their order, with the point if it was found."""
        flags = bytes((int(with_vector) | int(with_payload) << 1,))
        args = b"".join((_collection(collection), flags, len(ids).to_bytes(4, "big"), *map(_id, ids)))
        return Command(b"vector_get_batch", args, lambda payload: _many(payload, ids), read=True)

    @command
    def set_payload(collection: str, id: PointId, payload: Payload, **options: Unpack[Condition]) -> Command[bool]:
        """Sets these keys of a payload and keeps the others. Returns False if there is no such point. `options` are those of `upsert`."""
        args = _collection(collection) + _id(id) + _framed(encoded(sent_payload(payload))) + b"\0" + _condition(options)
        return Command(b"vector_set_payload", args, _flag)

    @command
    def overwrite_payload(collection: str, id: PointId, payload: Payload, **options: Unpack[Condition]) -> Command[bool]:
        """Replaces the whole payload. Returns False if there is no such point. `options` are those of `upsert`."""
        args = _collection(collection) + _id(id) + _framed(encoded(sent_payload(payload))) + b"\0" + _condition(options)
        return Command(b"vector_overwrite_payload", args, _flag)

    @command
    def delete_payload_keys(collection: str, id: PointId, keys: Sequence[str], **options: Unpack[Condition]) -> Command[bool]:
        """Removes these `keys` of a payload. Returns False if there is no such point. `options` are those of `upsert`."""
        args = _collection(collection) + _id(id) + len(keys).to_bytes(4, "big") + b"".join(map(_short, keys)) + _condition(options)
        return Command(b"vector_delete_payload_keys", args, _flag)

    @command
    def clear_payload(collection: str, id: PointId, **options: Unpack[Condition]) -> Command[bool]:
        """Removes all keys of a payload. Returns False if there is no such point. `options` are those of `upsert`."""
        return Command(b"vector_clear_payload", _collection(collection) + _id(id) + _condition(options), _flag)

    @command
    def count(collection: str, *, filter: Any = None) -> Command[int]:
        """The number of points that match."""
        return Command(b"vector_count", _collection(collection) + _framed(_filter(filter)), _count, read=True)

    @command
    def bulk_stage(collection: str, ids: Any, vectors: Matrix) -> Command[None]:
        """Stages rows of an array of shape (n, dim), which must fit a frame of 16 MiB, for `bulk_build`; `ids` are n unsigned integers."""
        matrix, given = array(vectors, 2, "vectors"), numbers(ids)
        if len(given) != len(matrix):
            raise ValueError(f"there are {len(matrix)} vectors; ids must be as many")
        made = np.empty(len(matrix), dtype=[("id", ">u8"), ("vector", ">f4", (matrix.shape[1],))])
        made["id"], made["vector"] = given, matrix
        args = b"".join((_collection(collection), struct.pack(">II", matrix.shape[1], len(matrix)), made.tobytes()))
        return Command(b"vector_bulk_stage", args, _nothing)

    @command
    def bulk_build(collection: str, *, workers: int = 0) -> Command[None]:
        """Builds the index of the points that were staged, and publishes it; `workers` 0 is all cores. The answer comes when it is built,
        which the time limit of the client must allow for."""
        return Command(b"vector_bulk_build", _collection(collection) + workers.to_bytes(4, "big"), _nothing)

    @command
    def scroll(collection: str, *, filter: Any = None, limit: int = 100, cursor: str = "",
               order_by: Any = None) -> Command[ScrollPage[Document]]:  # fmt: skip
        """A page of points in the order of their ids, or by `order_by`, as `Client.scroll` has it. `limit` 0 is all, which must fit a
        frame. `cursor` is `next_cursor` of the page before, empty for the first one. Raises ValueError for what is no cursor."""
        args = _collection(collection) + limit.to_bytes(4, "big") + _framed(_filter(filter))
        after, values = _resumed(cursor) if cursor else (None, [])
        if cursor or order_by is not None:
            args += b"\0" + (b"\0" if after is None else b"\1" + after.to_bytes(8, "big"))
            args += b"\0" if order_by is None else _order(order_by, values)
        return Command(b"vector_scroll", args, lambda payload: _page(payload, limit), read=True)

    @command
    def search(collection: str, query: Vector, k: int = 10, **options: Unpack[SearchOptions]) -> Command[Results[SearchResult]]:
        """The `k` points nearest to `query`, of shape (dim,), in order of their distance. In collections whose ids are texts, hits have
        their numbers; `with_payload=True` and `search_docs` give the texts."""
        return searched(collection, query, k, options)[0]

    @command
    def search_docs(collection: str, query: Vector, k: int = 10, **options: Unpack[SearchOptions]) -> Command[Results[Document]]:
        """As `search`, for `query`, with texts and payloads."""
        asked = _with_payload(options)
        flags, end = asked.flagged(1, 2)
        args = b"".join((bytes((flags,)), _collection(collection), k.to_bytes(4, "big"), _vector(query, "query"), end))
        return Command(b"vector_search_docs", args, lambda payload: _docs(payload, asked), read=True)

    @command
    def search_groups(collection: str, query: Vector, k: int, group_by: str, *, group_size: int = 1, fetch_k: int = 0,
                      **options: Unpack[SearchOptions]) -> Command[Results[Group]]:  # fmt: skip
        """The `k` groups of points with one value of the payload key `group_by` that are nearest to `query`, with `group_size` hits each,
        made of the `fetch_k` nearest points; 0 is four times `k * group_size`, at least 50."""
        asked = _with_payload(options)
        head = _collection(collection) + struct.pack(">III", k, group_size, fetch_k) + _short(group_by)
        args = head + _vector(query, "query") + _framed(asked.filter) + asked.marked()
        return Command(b"vector_search_groups", args, lambda payload: _groups(_Reader(payload), asked), read=True)

    @command
    def hybrid_search(collection: str, dense: Vector, k: int = 10, *, sparse: Sparse | None = None, method: str = "rrf",
                      alpha: float | None = None, rrf_k: int | None = None, dense_k: int | None = None, sparse_k: int | None = None,
                      **options: Unpack[SearchOptions]) -> Command[Results[SearchResult]]:  # fmt: skip
        """Fuses a dense and a sparse search; `Client.hybrid_search` says what `method`, `alpha`, `rrf_k`, `dense_k` and `sparse_k` are."""
        asked = _Asked(options)
        flags, end = asked.flagged(1, 4)
        head = bytes((flags | (2 if sparse is not None else 0),)) + _collection(collection) + k.to_bytes(4, "big")
        args = head + _fusion(method, alpha, rrf_k, dense_k, sparse_k) + _vector(dense, "dense")
        args += (_sparse(sparse) if sparse is not None else b"") + end
        return Command(b"vector_hybrid_search", args, lambda payload: _hits(payload, ">Qff", asked), read=True)

    @command
    def search_text(collection: str, text: str, k: int = 10, *, match: Mapping[str, Any] | None = None,
                    **options: Unpack[SearchOptions]) -> Command[Results[Document]]:  # fmt: skip
        """The `k` points whose texts fit `text` best by BM25; `Client.search_text` says what `match` is."""
        asked = _with_payload(options)
        flags, end = asked.flagged(1, 2)
        args = bytes((flags | _match(match),)) + _collection(collection) + k.to_bytes(4, "big") + _framed(text.encode()) + end
        return Command(b"vector_search_text", args, lambda payload: _docs(payload, asked), read=True)

    @command
    def hybrid_text(collection: str, vector: Vector, text: str, k: int = 10, *, method: str = "rrf", alpha: float | None = None,
                    rrf_k: int | None = None, dense_k: int | None = None, sparse_k: int | None = None,
                    match: Mapping[str, Any] | None = None,
                    **options: Unpack[SearchOptions]) -> Command[Results[SearchResult]]:  # fmt: skip
        """Fuses a vector search and a search by `text`. `Client.hybrid_search` says what `method`, `alpha`, `rrf_k`, `dense_k` and, here
        for texts, `sparse_k` are, `Client.search_text` what `match` is."""
        asked = _Asked(options)
        flags, end = asked.flagged(1, 2)
        head = bytes((flags | _match(match),)) + _collection(collection) + k.to_bytes(4, "big")
        args = head + _fusion(method, alpha, rrf_k, dense_k, sparse_k) + _vector(vector) + _framed(text.encode()) + end
        return Command(b"vector_hybrid_text", args, lambda payload: _hits(payload, ">Qff", asked), read=True)

    @command
    def query(collection: str, prefetch: Sequence[Mapping[str, Any]], *, k: int = 10, **more: Any) -> Command[Results[Any]]:
        """As `Client.query`, which says what searches are in `prefetch` and what `more` may have."""
        options = {key: more.pop(key) for key in SearchOptions.__annotations__ if key in more and key != "filter"}
        return _queried(collection, {"prefetch": prefetch, "k": k, **more}, options)

    @command
    def recommend(collection: str, positive: Sequence[PointId], k: int = 10, *, negative: Sequence[PointId] = (),
                  strategy: str | None = None, filter: Any = None) -> Command[Results[Any]]:  # fmt: skip
        """Points like the `positive` examples, ids of points, and unlike the `negative` ones. `strategy` is "average" or "best_score"."""
        lane = {"recommend": {"positive": list(positive), "negative": list(negative), "strategy": strategy}, "filter": body_of(filter)}
        return _queried(collection, {"prefetch": [lane], "k": k}, {})


def _match(match: Mapping[str, Any] | None) -> int:
    unknown = sorted((match or {}).keys() - {"phrase", "prefix"})
    if unknown:
        raise ValueError(f"match has no {unknown[0]!r}; it has phrase and prefix")
    return (8 if match and match.get("phrase") else 0) | (16 if match and match.get("prefix") else 0)


def _with_payload(options: Mapping[str, Any]) -> _Asked:
    asked = _Asked(options)
    if asked.shaped:
        asked.more.setdefault("with_payload", True)
    return asked


def _docs(payload: bytes, asked: _Asked) -> Results[Document]:
    reader = _Reader(payload)
    found = Results(_documents(reader, asked.shaped))
    reader.ending(found, asked.explains)
    return found


def _queried(collection: str, query: Mapping[str, Any], options: Mapping[str, Any]) -> Command[Results[Any]]:
    grouped = bool(query.get("group_by"))
    asked = _with_payload(options) if grouped else _Asked(options)
    args = _collection(collection) + _framed(spec_of(query, number_of)) + asked.marked(of_query=True)

    def decode(payload: bytes) -> Results[Any]:
        if grouped:
            return _groups(_Reader(payload), asked)
        return _hits(payload[1:], ">Qff", asked)

    return Command(b"vector_query", args, decode, read=True)
