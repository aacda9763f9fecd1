"""What requests and answers look like: points, queries and hits."""

from __future__ import annotations

import json
import struct
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt

from ._plan import Request, Response, decoded, encoded
from ._types import (
    Document,
    Group,
    MultiResult,
    NamedPoint,
    Payload,
    Point,
    PointId,
    Results,
    SearchResult,
    Sparse,
    TokenDocument,
    array,
    bare,
    floats,
)
from .filters import body_of, plain, plain_payload, sent_payload

T = TypeVar("T")


def options_of(options: Mapping[str, Any]) -> dict[str, Any]:
    body = {key: value for key, value in options.items() if value is not None}
    if "filter" in body:
        body["filter"] = body_of(body["filter"])
    return body


def given(**values: Any) -> dict[str, Any]:
    return {key: value for key, value in values.items() if value is not None}


def sparse_of(sparse: Sparse | Mapping[str, Any] | None) -> Any:
    if sparse is None or isinstance(sparse, Mapping):
        return sparse
    return {"indices": floats(sparse.indices), "values": floats(sparse.values)}


def _result_of(hit: Any) -> SearchResult:
    if len(hit) == 3 and "distance" in hit and "score" in hit:
        return bare(hit["id"], hit["distance"], hit["score"])
    payload = plain_payload(hit["payload"]) if hit.get("payload") is not None else None
    vector = hit.get("vector", hit.get("vectors", hit.get("tokens")))
    return SearchResult(hit["id"], hit.get("distance", 0.0), hit.get("score", 0.0), payload, vector)


def results_of(answer: Any) -> Results[SearchResult]:
    return Results([_result_of(hit) for hit in answer.get("results") or ()], answer)


def document_of(hit: Any) -> Document:
    payload = plain_payload(hit.get("metadata"))
    stored = payload.pop("$content", "")
    content = hit.get("content") or stored
    vector = hit.get("vector", hit.get("vectors", hit.get("tokens")))
    return Document(hit["id"], hit.get("distance", 0.0), content, hit.get("score", 0.0), payload, vector)


def documents_of(answer: Any) -> Results[Document]:
    return Results((document_of(hit) for hit in answer.get("documents") or ()), answer)


def groups_of(answer: Any) -> Results[Group]:
    groups = answer.get("groups") or ()
    return Results((Group(plain(group.get("key")), [document_of(hit) for hit in group["hits"]]) for group in groups), answer)


def multi_of(answer: Any) -> Results[MultiResult]:
    hits = answer.get("results") or ()
    return Results((MultiResult(h["id"], h.get("score", 0.0), plain_payload(h.get("metadata"))) for h in hits), answer)


def _payload_of(stored: Any) -> tuple[Payload, str]:
    payload = plain_payload(stored.get("payload"))
    return payload, payload.pop("$content", "")


def dense_point(id: PointId, stored: Any) -> Point:
    payload, content = _payload_of(stored)
    vector, sparse = stored.get("vector"), stored.get("sparse")
    return Point(
        id,
        None if vector is None else np.asarray(vector, dtype=np.float32),
        payload,
        content,
        Sparse(sparse["indices"], sparse["values"]) if sparse else None,
        stored.get("ttl_ms", 0),
        stored.get("version", 0),
    )


def named_point(id: PointId, stored: Any) -> NamedPoint:
    payload, content = _payload_of(stored)
    vectors, sparse = {}, {}
    for space, vector in (stored.get("vectors") or {}).items():
        if isinstance(vector, dict):
            sparse[space] = Sparse(vector["indices"], vector["values"])
        else:
            vectors[space] = np.asarray(vector, dtype=np.float32)
    for space, vector in (stored.get("sparse_vectors") or {}).items():
        sparse[space] = Sparse(vector["indices"], vector["values"])
    return NamedPoint(id, vectors, sparse, payload, content, stored.get("ttl_ms", 0), stored.get("version", 0))


def token_document(id: PointId, stored: Any) -> TokenDocument:
    payload, content = _payload_of(stored)
    tokens = stored.get("tokens")
    array = None if tokens is None else np.asarray(tokens, dtype=np.float32)
    return TokenDocument(id, array, payload, content, None, stored.get("version", 0))


def sent(point: Any) -> dict[str, Any]:
    """A point of any family as a write has it."""
    body: dict[str, Any] = {"id": point.id}
    if isinstance(point, Point):
        body["vector"] = floats(point.vector)
    elif isinstance(point, TokenDocument):
        body["tokens"] = floats(point.tokens)
    else:
        body["vectors"] = {space: floats(vector) for space, vector in point.vectors.items()}
        if point.sparse_vectors:
            body["sparse_vectors"] = {space: sparse_of(vector) for space, vector in point.sparse_vectors.items()}
    if point.payload is not None:
        body["metadata"] = sent_payload(point.payload)
    if point.content:
        body["content"] = point.content
    if getattr(point, "sparse", None) is not None:
        body["sparse"] = sparse_of(point.sparse)
    if getattr(point, "ttl_ms", 0):
        body["ttl_ms"] = point.ttl_ms
    return body


def rows(ids: Any, vectors: Any, payloads: Sequence[bytes] | None, upsert: bool) -> bytes:
    """A binary batch (RVB1): ids of shape (n,), vectors of shape (n, dim), payloads as JSON, empty where there is none."""
    count, dim = vectors.shape
    made = np.empty(count, dtype=[("id", ">u8"), ("vector", ">f4", (dim,))])
    made["id"], made["vector"] = ids, vectors
    flags = (1 if payloads is not None else 0) | (2 if upsert else 0)
    parts: list[Any] = [b"RVB1", struct.pack(">III", flags, count, dim), made.data.cast("B") if count else b""]
    for text in payloads or ():
        parts += (struct.pack(">I", len(text)), text)
    return b"".join(parts)


def queries_of(queries: Any) -> npt.NDArray[np.float32]:
    """Queries as a matrix. Raises ValueError for NaN and infinities, which no search may have."""
    matrix = array(queries, 2, "queries") if len(queries) else np.empty((0, 0), dtype=np.float32)
    if not np.isfinite(matrix).all():
        raise ValueError("queries have NaN or infinities, which no search may have")
    return matrix


def searches_frame(matrix: npt.NDArray[np.float32], common: bytes) -> bytes:
    """Searches that differ in their query alone (RVS1), with what they have in common as JSON."""
    head = struct.pack(">4sIIII", b"RVS1", 0, *matrix.shape, len(common))
    return b"".join((head, common, matrix.astype(">f4").tobytes()))


def searches_body(matrix: npt.NDArray[np.float32], common: bytes) -> bytes:
    """The same as JSON. Nine digits are exactly a 32-bit float, and are written and read in a third of the time that its 17 digits as a
    64-bit one take."""
    tail = common.decode().removeprefix("{").replace("%", "%%")
    form = '{"query":[' + ",".join(["%.9g"] * matrix.shape[1]) + "]" + ("" if tail == "}" else ",") + tail
    return ('{"searches":[' + ",".join([form % tuple(row) for row in matrix.tolist()]) + "]}").encode()


def query_frame(query: Any, k: int, condition: Any) -> bytes:
    """A binary search (RVQ1)."""
    vector = array(query, 1, "query")
    head = struct.pack(">4sIIIBBHQ", b"RVQ1", 0 if condition is None else 1, k, len(vector), 0, 0, 0, 0)
    text = b"" if condition is None else encoded(condition)
    return head + vector.astype(">f4").tobytes() + (struct.pack(">I", len(text)) + text if text else b"")


def lane_of(lane: Mapping[str, Any]) -> dict[str, Any]:
    made: dict[str, Any] = {}
    for key, value in lane.items():
        if key == "filter":
            made[key] = body_of(value)
        elif key == "query":
            made[key] = {**value, "prefetch": [lane_of(inner) for inner in value["prefetch"]]}
        else:
            made[key] = sparse_of(value) if isinstance(value, Sparse) else floats(value)
    return made


def either_of(answer: Any) -> Results[Any]:
    if "groups" in answer:
        return groups_of(answer)
    return documents_of(answer) if "documents" in answer else results_of(answer)


def refusing(decode: Callable[[Any], T]) -> Callable[[Any], T]:
    """What is made of the answer to one search of a batch; raises the error of one that was refused."""

    def made(answer: Any) -> T:
        if "error" in answer:
            decoded(Request("POST", "", ""), Response(int(answer.get("status", 400)), json.dumps(answer).encode()))
        return decode(answer)

    return made
