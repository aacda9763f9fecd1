"""Every operation as a plan. `client.py` carries them out, blocking or not."""

from __future__ import annotations

import base64
from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Mapping, Sequence  # noqa: F401
from typing import Any, cast

import numpy as np
from typing_extensions import Unpack

from ._bodies import (
    dense_point,
    document_of,
    documents_of,
    either_of,
    given,
    groups_of,
    lane_of,
    multi_of,
    named_point,
    options_of,
    queries_of,
    query_frame,
    refusing,
    results_of,
    rows,
    searches_body,
    searches_frame,
    sent,
    sparse_of,
    token_document,
)
from ._plan import Plan, Together, decoded, encoded, request
from ._surface import Pages, operation, paged
from ._types import (
    BadRequestError,
    Document,
    Group,
    Matrix,
    MultiResult,
    NamedPoint,
    NighError,
    NotFoundError,
    Payload,
    Point,
    PointId,
    Results,
    ScrollPage,
    SearchOptions,
    SearchResult,
    Sparse,
    TokenDocument,
    Vector,
    WriteOptions,
    array,
    floats,
    numbers,
)
from .filters import body_of, plain, sent_payload

_LARGEST_BODY = 64 << 20
_MOST_POINTS = 131_072
_LARGEST_SEARCHES = 8 << 20
_MOST_SEARCHES = 65_536
_PARTS, _LEAST_PART = 4, 64
# What a server says that does not know searches as bytes.
_NO_FRAMES = "invalid JSON body"
BUILD_TIMEOUT = 24 * 3600.0


class Base:
    """Routes of a family."""

    _root = "/v1/collections"
    _reads = "/points"
    _docs = "points"
    _stored: Any = staticmethod(dense_point)

    def _ask(self, method: str, tail: str, collection: str, body: Any = None, *, names: Any = None, **more: Any) -> Plan[Any]:
        made = request(method, f"{self._root}/{{name}}{tail}", {"name": collection, **(names or {})}, body, **more)
        return decoded(made, (yield made))


class Shared(Base):
    """Operations that every family has."""

    @operation
    def drop_collection(self, collection: str) -> Plan[None]:
        """Removes a collection and all its points. Raises NotFoundError if there is none."""
        yield from self._ask("DELETE", "", collection)

    @operation
    def info(self, collection: str) -> Plan[dict[str, Any]]:
        """Number of points, memory in bytes, state of the index and configuration, as the server gives them."""
        return dict((yield from self._ask("GET", "", collection, read=True)))

    @operation
    def collection_exists(self, collection: str) -> Plan[bool]:
        """Whether there is such a collection in this family."""
        try:
            yield from self._ask("GET", "/config", collection, read=True)
        except NotFoundError:
            return False
        return True

    @operation
    def get_config(self, collection: str) -> Plan[dict[str, Any]]:
        """The configuration of a collection."""
        return dict((yield from self._ask("GET", "/config", collection, read=True)))

    @operation
    def change_config(self, /, collection: str, **changes: Any) -> Plan[dict[str, Any]]:
        """Changes limits and search parameters, for example `ef_search` or `max_vectors`."""
        return dict((yield from self._ask("PATCH", "/config", collection, changes)))

    @operation
    def get(self, collection: str, id: PointId, *, with_vector: bool = True, with_payload: bool = True) -> Plan[Any]:
        """Returns one point, or None if there is none."""
        asked = {"with_vector": with_vector, "with_payload": with_payload}
        try:
            stored = yield from self._ask("GET", "/points/{id}", collection, names={"id": id}, query=asked, read=True)
        except NotFoundError as error:
            if "not found: id" in error.message:
                return None
            raise
        return self._stored(id, stored) if stored.get("found") else None

    @operation
    def get_batch(
        self, collection: str, ids: Sequence[PointId], *, with_vector: bool = True, with_payload: bool = True
    ) -> Plan[list[Any]]:
        """The points of those ids that exist, in the order of `ids`."""
        body = {"ids": list(ids), "with_vector": with_vector, "with_payload": with_payload}
        answer = yield from self._ask("POST", "/points/batch-get", collection, body, read=True)
        return [self._stored(stored["id"], stored) for stored in answer["points"]]

    @operation
    def delete(self, collection: str, id: PointId, **options: Unpack[WriteOptions]) -> Plan[bool]:
        """Deletes one point. Returns False if there is none. Raises ConflictError if it has another version than expected."""
        tail = f"/{self._docs}/{{id}}"
        answer = yield from self._ask("DELETE", tail, collection, names={"id": id}, query=options)
        return bool((answer or {}).get("deleted"))

    @operation
    def delete_many(self, collection: str, ids: Sequence[PointId]) -> Plan[int]:
        """Deletes the points of these ids. Returns how many of them there were."""
        return int((yield from self._ask("POST", f"/{self._docs}/delete", collection, {"ids": list(ids)}))["deleted"])

    @operation
    def delete_by_filter(self, collection: str, filter: Any) -> Plan[int]:
        """Deletes the points that match. Returns how many there were."""
        body = {"filter": body_of(filter)}
        return int((yield from self._ask("POST", f"/{self._docs}/delete", collection, body))["deleted"])

    @operation
    def scroll(
        self, collection: str, *, filter: Any = None, limit: int = 100, cursor: str = "", order_by: Any = None
    ) -> Plan[ScrollPage[Document]]:
        """A page of points in the order of their ids, or by `order_by` (`{"key": ..., "desc": ...}`). `limit` 0 is all.

        `cursor` is `next_cursor` of the page before, empty for the first one."""
        return (yield from self._scroll(collection, filter=filter, limit=limit, cursor=cursor, order_by=order_by))

    def _scroll(self, collection: str, *, filter: Any, limit: int, cursor: str, order_by: Any = None) -> Plan[ScrollPage[Document]]:
        body = given(filter=body_of(filter), limit=limit, cursor=cursor or None, order_by=order_by)
        answer = yield from self._ask("POST", f"{self._reads}/scroll", collection, body, read=True)
        page = ScrollPage((document_of(hit) for hit in answer.get("documents") or ()), answer)
        page.next_cursor = answer.get("next_cursor") or ""
        return page

    @paged
    def scroll_all(self, collection: str, *, filter: Any = None, page_size: int = 1000) -> Pages[Document]:
        """An iterator over every point that matches. `page_size` points are read in a request."""
        cursor = ""
        while True:
            page = yield self._scroll(collection, filter=filter, limit=page_size, cursor=cursor)
            cursor = page.next_cursor
            if not cursor:
                return

    @operation
    def count(self, collection: str, *, filter: Any = None) -> Plan[int]:
        """The number of points that match."""
        body = given(filter=body_of(filter))
        return int((yield from self._ask("POST", f"{self._reads}/count", collection, body, read=True))["count"])

    @operation
    def facet(self, collection: str, key: str, *, limit: int = 10, filter: Any = None) -> Plan[list[tuple[Any, int]]]:
        """The `limit` most frequent values of the payload key `key`, each with its number of points; the most frequent first."""
        body = given(key=key, limit=limit, filter=body_of(filter))
        answer = yield from self._ask("POST", f"{self._reads}/facet", collection, body, read=True)
        return [(plain(facet["value"]), int(facet["count"])) for facet in answer["facets"]]

    @operation
    def sample(
        self, collection: str, *, limit: int = 10, seed: int | None = None, filter: Any = None
    ) -> Plan[Results[Document]]:
        """At most `limit` points drawn at random, each with the same chance; the same `seed` draws the same."""
        body = given(limit=limit, seed=seed, filter=body_of(filter))
        return documents_of((yield from self._ask("POST", f"{self._reads}/sample", collection, body, read=True)))

    @operation
    def set_payload(self, collection: str, id: PointId, payload: Payload, **options: Unpack[WriteOptions]) -> Plan[None]:
        """Sets these keys of a payload and keeps the others. Raises NotFoundError if there is no such point."""
        yield from self._change("POST", "", collection, id, sent_payload(payload), options)

    @operation
    def overwrite_payload(
        self, collection: str, id: PointId, payload: Payload, **options: Unpack[WriteOptions]
    ) -> Plan[None]:
        """Replaces the whole payload. Raises NotFoundError if there is no such point."""
        yield from self._change("PUT", "", collection, id, sent_payload(payload), options)

    @operation
    def delete_payload_keys(
        self, collection: str, id: PointId, keys: Sequence[str], **options: Unpack[WriteOptions]
    ) -> Plan[None]:
        """Removes these keys of a payload. Raises NotFoundError if there is no such point."""
        yield from self._change("POST", "/delete", collection, id, {"keys": list(keys)}, options)

    @operation
    def clear_payload(self, collection: str, id: PointId, **options: Unpack[WriteOptions]) -> Plan[None]:
        """Removes all keys of a payload. Raises NotFoundError if there is no such point."""
        yield from self._change("POST", "/clear", collection, id, None, options)

    @operation
    def set_payload_by_filter(self, collection: str, filter: Any, payload: Payload) -> Plan[int]:
        """Does what `set_payload` does to every point that matches. Returns their number."""
        return (yield from self._change_all("POST", "", collection, filter, {"payload": sent_payload(payload)}))

    @operation
    def overwrite_payload_by_filter(self, collection: str, filter: Any, payload: Payload) -> Plan[int]:
        """Does what `overwrite_payload` does to every point that matches. Returns their number."""
        return (yield from self._change_all("PUT", "", collection, filter, {"payload": sent_payload(payload)}))

    @operation
    def delete_payload_keys_by_filter(self, collection: str, filter: Any, keys: Sequence[str]) -> Plan[int]:
        """Removes the payload keys `keys` from every point that matches. Returns their number."""
        return (yield from self._change_all("POST", "/delete", collection, filter, {"keys": list(keys)}))

    @operation
    def clear_payload_by_filter(self, collection: str, filter: Any) -> Plan[int]:
        """Does what `clear_payload` does to every point that matches. Returns their number."""
        return (yield from self._change_all("POST", "/clear", collection, filter, {}))

    @operation
    def bulk_build(self, collection: str, *, workers: int = 0, wait: bool = True, timeout: float = BUILD_TIMEOUT) -> Plan[None]:
        """Builds the index of the points that were staged, and publishes it. `workers` 0 is all cores.

        `wait=False` returns when the build has begun; `tasks` shows how far it is."""
        body = {"workers": workers, "wait": wait}
        yield from self._ask("POST", f"/{self._docs}/bulk/build", collection, body, timeout=timeout)

    @operation
    def operate(self, collection: str, id: PointId, key: str, call: bytes, **options: Unpack[WriteOptions]) -> Plan[Any]:
        """Carries out a list of checks and writes on the record at the payload key `key`; `Operate("").call()` of `nigh.keys` gives
        `call`."""
        body = {"key": key, "call": base64.b64encode(call).decode(), **options}
        return (yield from self._ask("POST", "/points/{id}/operate", collection, body, names={"id": id}))

    def _change(self, method: str, tail: str, collection: str, id: PointId, body: Any, options: Any) -> Plan[None]:
        more = {"names": {"id": id}, "query": options}
        yield from self._ask(method, f"/points/{{id}}/payload{tail}", collection, body, **more)

    def _change_all(self, method: str, tail: str, collection: str, filter: Any, body: dict[str, Any]) -> Plan[int]:
        body = {"filter": body_of(filter), **body}
        answer = yield from self._ask(method, f"/points/payload{tail}", collection, body)
        return next((int(v) for v in (answer or {}).values() if isinstance(v, int)), 0)

    def _write_many(
        self, collection: str, tail: str, points: Iterable[Any], batch_size: int, progress: Callable[[int], Any] | None,
        upsert: bool = True,
    ) -> Plan[int]:
        """Writes points in batches of at most 64 MiB; the number that was written. A batch that fails raises, and those before it stay."""
        head = b'{"docs":[' if self._docs == "docs" else b'{"points":['
        tells = self._root == "/v1/collections" and tail.endswith("batch")
        end = (b'],"upsert":true}' if upsert else b'],"upsert":false}') if tells else b"]}"
        done, size, batch = 0, 0, list[bytes]()
        for point in points:
            text = encoded(sent(point))
            if batch and (len(batch) >= batch_size or size + len(text) > _LARGEST_BODY - 64):
                body = head + b",".join(batch) + end
                done += yield from self._write_batch(collection, tail, body, len(batch), done, progress)
                size, batch = 0, []
            batch.append(text)
            size += len(text) + 1
        if batch:
            body = head + b",".join(batch) + end
            done += yield from self._write_batch(collection, tail, body, len(batch), done, progress)
        return done

    def _write_batch(self, collection: str, tail: str, body: Any, count: int, done: int, progress: Any, **more: Any) -> Plan[int]:
        try:
            answer = yield from self._ask("POST", tail, collection, body, **more)
        except NighError as error:
            error.committed = done + (error.committed or 0)
            raise
        if progress is not None:
            progress(count)
        return int(answer.get("count", answer.get("staged", count)))


class Dense(Shared):
    """Operations on collections of one vector a point."""

    @operation
    def create_collection(
        self,
        /,
        name: str,
        dim: int,
        *,
        metric: str = "cosine",
        full_text: bool | Mapping[str, Any] = False,
        ids: str = "number",
        payload_format: str = "plain",
        **config: Any,
    ) -> Plan[None]:
        """Creates a collection of vectors of `dim` components.

        `metric` is "cosine", "l2" (squared Euclidean distance) or "dot" (the negative dot product is the distance); `ids` is "number" (0
        to 2**64 - 1) or "string" (UUIDs, paths); `full_text` keeps an index of the texts; `payload_format` is "plain", any JSON, or
        "tagged". Further parameters, such as `m`, `quant` or `max_vectors`, go to the server by their names. Raises ConflictError if the
        collection exists."""
        body = given(dim=dim, metric=metric, ids=ids, payload_format=payload_format, **config)
        if full_text:
            body["full_text"] = {} if full_text is True else dict(full_text)
        made = request("POST", "/v1/collections", None, {"name": name, "config": body})
        decoded(made, (yield made))

    @operation
    def upsert(self, collection: str, id: PointId, vector: Vector, *, payload: Payload | None = None, content: str = "",
               sparse: Sparse | None = None, ttl_ms: int = 0, **options: Unpack[WriteOptions]) -> Plan[None]:  # fmt: skip
        """Writes a point, or replaces it as a whole. It expires after `ttl_ms` milliseconds; with 0 it never does.

        Raises ConflictError if it has another version than expected."""
        body = {**sent(Point(id, vector, payload, content, sparse, ttl_ms)), "upsert": True, **options}
        yield from self._ask("POST", "/points", collection, body)

    @operation
    def insert(self, collection: str, id: PointId, vector: Vector, *, payload: Payload | None = None, content: str = "",
               sparse: Sparse | None = None, ttl_ms: int = 0, **options: Unpack[WriteOptions]) -> Plan[None]:  # fmt: skip
        """Writes a point that is not there yet. Raises ConflictError if it is."""
        body = {**sent(Point(id, vector, payload, content, sparse, ttl_ms)), "upsert": False, **options}
        yield from self._ask("POST", "/points", collection, body)

    @operation
    def upsert_points(
        self, collection: str, points: Iterable[Point], *, batch_size: int = 1000, progress: Callable[[int], Any] | None = None
    ) -> Plan[int]:
        """Writes or replaces points, `batch_size` in a request. Returns their number. Takes text, sparse vectors and string ids too.

        If a request fails, `committed` of the error says how many points were written: the first ones."""
        return (yield from self._write_many(collection, "/points/batch", points, batch_size, progress))

    @operation
    def batch_upsert(
        self,
        collection: str,
        ids: Any,
        vectors: Matrix,
        *,
        payloads: Sequence[Payload | None] | None = None,
        upsert: bool = True,
        batch_size: int = 8192,
        progress: Callable[[int], Any] | None = None,
    ) -> Plan[int]:
        """Writes rows of an array of shape (n, dim) as binary batches of at most `batch_size` points and 64 MiB. Returns their number.

        `ids` are n unsigned integers; strings go as JSON. With `upsert=False` it raises ConflictError if a point is there already. If a
        request fails, `committed` of the error says how many points were written. Raises ValueError if the numbers of rows differ."""
        return (yield from self._rows(collection, "/points/batch", ids, vectors, payloads, upsert, batch_size, progress))

    @operation
    def upload(self, collection: str, vectors: Matrix, *, ids: Any = None, payloads: Sequence[Payload | None] | None = None,
               batch_size: int = 8192, progress: bool = False) -> Plan[int]:  # fmt: skip
        """`batch_upsert` with ids 0, 1, ... if none are given, and with a progress bar (needs the extra `progress`)."""
        numbers = np.arange(len(vectors), dtype=np.uint64) if ids is None else ids
        if not progress:
            return (yield from self._rows(collection, "/points/batch", numbers, vectors, payloads, True, batch_size, None))
        from tqdm.auto import tqdm

        with tqdm(total=len(vectors), unit="points") as bar:
            return (yield from self._rows(collection, "/points/batch", numbers, vectors, payloads, True, batch_size, bar.update))

    @operation
    def bulk_stage(
        self,
        collection: str,
        ids: Any,
        vectors: Matrix,
        *,
        payloads: Sequence[Payload | None] | None = None,
        batch_size: int = _MOST_POINTS,
        progress: Callable[[int], Any] | None = None,
    ) -> Plan[int]:
        """Stages rows of an array of shape (n, dim) for `bulk_build`. Returns their number. Until it is built no search sees them, and a
        restart loses them."""
        return (yield from self._rows(collection, "/points/bulk", ids, vectors, payloads, False, batch_size, progress))

    def _rows(self, collection: str, tail: str, ids: Any, vectors: Any, payloads: Any, upsert: bool, size: int,
              progress: Any) -> Plan[int]:  # fmt: skip
        matrix = array(vectors, 2, "vectors") if len(vectors) else np.empty((0, 0), dtype=np.float32)
        if len(ids) != len(matrix) or (payloads is not None and len(payloads) != len(matrix)):
            raise ValueError(f"there are {len(matrix)} vectors; ids and payloads must be as many")
        if len(ids) and isinstance(next(iter(ids)), str):
            values = payloads or [None] * len(ids)
            points = (Point(i, v, p) for i, v, p in zip(ids, matrix, values, strict=True))
            return (yield from self._write_many(collection, tail, points, min(size, 1000), progress, upsert))
        ids = numbers(ids)
        step = max(1, min(size, _MOST_POINTS, (_LARGEST_BODY - 16) // (8 + 4 * max(1, matrix.shape[1]))))
        done = start = 0
        while True:
            stop, texts = min(start + step, len(matrix)), None
            if payloads is not None:
                texts, room = list[bytes](), _LARGEST_BODY - 16
                for payload in payloads[start:stop]:
                    text = encoded(sent_payload(payload)) if payload else b""
                    room -= 12 + 4 * matrix.shape[1] + len(text)
                    if room < 0 and texts:
                        break
                    texts.append(text)
                stop = start + len(texts)
            body = rows(ids[start:stop], matrix[start:stop], texts, upsert)
            done += yield from self._write_batch(collection, tail, body, stop - start, done, progress, binary=True)
            start = stop
            if start == len(matrix):
                return done

    @operation
    def search(self, collection: str, query: Vector, k: int = 10, **options: Unpack[SearchOptions]) -> Plan[Results[SearchResult]]:
        """The `k` points nearest to `query`, of shape (dim,), in order of their distance.

        Raises BadRequestError if `query` has another number of components than the collection."""
        return results_of((yield from self._nearest("/points/search", collection, query, k, options)))

    @operation
    def search_docs(self, collection: str, query: Vector, k: int = 10, **options: Unpack[SearchOptions]) -> Plan[Results[Document]]:
        """As `search`, for `query`, with texts and payloads."""
        return documents_of((yield from self._nearest("/points/search/docs", collection, query, k, options)))

    def _nearest(self, tail: str, collection: str, query: Vector, k: int, options: Any) -> Plan[Any]:
        if not options.keys() - {"filter"} and 0 < k < 1 << 32 and 0 < len(query) <= 65_536:
            frame = query_frame(query, k, body_of(options.get("filter")))
            if len(frame) <= 24 + 4 * len(query) + (1 << 20):
                return (yield from self._ask("POST", tail, collection, frame, binary=True, read=True))
        body = {"query": floats(query), "k": k, **options_of(options)}
        return (yield from self._ask("POST", tail, collection, body, read=True))

    @operation
    def search_batch(self, collection: str, queries: Matrix, k: int = 10, **options: Unpack[SearchOptions]) -> Plan[list[Any]]:
        """One search for each row of `queries`, of shape (n, dim), in up to four requests at the same time, or more for very many: a list
        of n lists of hits.

        Raises ValueError for NaN and infinities, and the error of the first search that is refused."""
        matrix, common = queries_of(queries), encoded({"k": k, **options_of(options)})
        # Parts that travel over several connections keep the server busy where one would wait for the last searches of a group, or for
        # hits to be made of its answers.
        largest = min(_MOST_SEARCHES, _LARGEST_SEARCHES // max(1, 4 * matrix.shape[1]))
        count = max(-(-len(matrix) // max(1, largest)), min(_PARTS, len(matrix) // _LEAST_PART), 1)
        parts = [self._searched(collection, part, common) for part in np.array_split(matrix, count)]
        if count == 1:
            return (yield from parts[0])
        found: Any = yield cast(Any, Together(parts))
        return [hits for part in found for hits in part]

    def _searched(self, collection: str, matrix: Any, common: bytes) -> Plan[list[Any]]:
        tail, each = "/points/search/batch", refusing(results_of)
        if matrix.shape[1] <= 65_536 and len(common) <= 1 << 20:
            try:
                body = searches_frame(matrix, common)
                return list((yield from self._ask("POST", tail, collection, body, binary=True, read=True, each=each)))
            except BadRequestError as error:
                if not error.message.startswith(_NO_FRAMES):
                    raise
        body = searches_body(matrix, common)
        return list((yield from self._ask("POST", tail, collection, body, read=True, each=each)))

    @operation
    def search_groups(self, collection: str, query: Vector, k: int, group_by: str, *, group_size: int = 1, fetch_k: int = 0,
                      **options: Unpack[SearchOptions]) -> Plan[Results[Group]]:  # fmt: skip
        """The `k` groups of points with one value of the payload key `group_by` that are nearest to `query`, with `group_size` hits each.

        They are made of the `fetch_k` nearest points; 0 is four times `k * group_size`, at least 50."""
        body = {"query": floats(query), "k": k, "group_by": group_by, "group_size": group_size, **options_of(options)}
        if fetch_k:
            body["fetch_k"] = fetch_k
        return groups_of((yield from self._ask("POST", "/points/search/groups", collection, body, read=True)))

    @operation
    def search_mmr(self, collection: str, query: Vector, k: int = 10, *, diversity: float | None = None, fetch_k: int | None = None,
                   **options: Unpack[SearchOptions]) -> Plan[Results[Document]]:  # fmt: skip
        """Points near to `query` that differ from each other, chosen from the `fetch_k` nearest; `diversity` 0 is only near, 1 only
        different."""
        weight = None if diversity is None else 1 - diversity
        body = {"query": floats(query), "k": k, **given(fetch_k=fetch_k, **{"lambda": weight}), **options_of(options)}
        return either_of((yield from self._ask("POST", "/points/search/mmr", collection, body, read=True)))

    @operation
    def hybrid_search(self, collection: str, dense: Vector, k: int = 10, *, sparse: Sparse | None = None, method: str = "rrf",
                      alpha: float | None = None, rrf_k: int | None = None, dense_k: int | None = None, sparse_k: int | None = None,
                      **options: Unpack[SearchOptions]) -> Plan[Results[SearchResult]]:  # fmt: skip
        """Fuses a dense and a sparse search. `method` is "rrf" (reciprocal ranks, with the constant `rrf_k`, 60 unless given), "weighted"
        (`alpha`, from 0 to 1, is the weight of the dense one) or "dbsf".

        `dense_k` and `sparse_k` are how many hits of each search are fused; None is `k`, at least 50."""
        more = given(alpha=alpha, rrf_k=rrf_k, dense_k=dense_k, sparse_k=sparse_k, sparse=sparse_of(sparse))
        body = {"dense": floats(dense), "k": k, "method": method, **more, **options_of(options)}
        return results_of((yield from self._ask("POST", "/points/search/hybrid", collection, body, read=True)))

    @operation
    def search_text(self, collection: str, text: str, k: int = 10, *, match: Mapping[str, Any] | None = None,
                    global_idf: bool | None = None, **options: Unpack[SearchOptions]) -> Plan[Results[Document]]:  # fmt: skip
        """The `k` points whose texts fit `text` best by BM25. The collection must have `full_text`, or BadRequestError is raised.

        `match` is `{"phrase": True}` if the words must stand together in this order, `{"prefix": True}` if the last one is a beginning.
        `global_idf` is accepted and has no effect: statistics are always those of the whole collection."""
        body = {"text": text, "k": k, **given(match=match, global_idf=global_idf), **options_of(options)}
        return documents_of((yield from self._ask("POST", "/points/search/text", collection, body, read=True)))

    @operation
    def hybrid_text(self, collection: str, vector: Vector, text: str, k: int = 10, *, method: str = "rrf",
                    alpha: float | None = None, rrf_k: int | None = None, dense_k: int | None = None, sparse_k: int | None = None,
                    global_idf: bool | None = None, **options: Unpack[SearchOptions]) -> Plan[Results[SearchResult]]:  # fmt: skip
        """Fuses a vector search and a text search; `hybrid_search` says what `method`, `alpha`, `rrf_k`, `dense_k` and, here for texts,
        `sparse_k` are, `search_text` what `global_idf` is. The collection must have `full_text`."""
        more = given(alpha=alpha, rrf_k=rrf_k, dense_k=dense_k, sparse_k=sparse_k, global_idf=global_idf)
        return results_of((yield from self._hybrid_text(collection, vector, text, k, {"method": method, **more, **options})))

    @operation
    def hybrid_docs(self, /, collection: str, vector: Vector, text: str, k: int = 10, **more: Any) -> Plan[Results[Document]]:
        """As `hybrid_text`, which says what `vector` and `text` are and has the arguments in `more`, with texts and payloads."""
        answer = yield from self._hybrid_text(collection, vector, text, k, {"method": "rrf", **more, "with_payload": True})
        return documents_of({**answer, "documents": [{**hit, "metadata": hit.get("payload")} for hit in answer.get("results") or ()]})

    def _hybrid_text(self, collection: str, vector: Vector, text: str, k: int, more: Mapping[str, Any]) -> Plan[Any]:
        body = {"vector": floats(vector), "text": text, "k": k, **options_of(more)}
        return (yield from self._ask("POST", "/points/search/hybrid-text", collection, body, read=True))

    @operation
    def query(self, /, collection: str, prefetch: Sequence[Mapping[str, Any]], *, k: int = 10, **more: Any) -> Plan[Results[Any]]:
        """A query of several searches (`prefetch`), fused, or ordered anew by `root` with `mode="rerank"`. Gives groups with `group_by`.

        A search is a dictionary with one of `dense`, `sparse`, `text`, `recommend` and `discover`, and `k`, `filter` and others beside
        it."""
        return (yield from self._query(collection, prefetch, k, more))

    def _query(self, collection: str, prefetch: Any, k: int, more: Any) -> Plan[Results[Any]]:
        body = {"prefetch": [lane_of(lane) for lane in prefetch], "k": k, **options_of(more)}
        if body.get("root") is not None:
            body["root"] = lane_of(body["root"])
        return either_of((yield from self._ask("POST", "/query", collection, body, read=True)))

    @operation
    def recommend(self, collection: str, positive: Sequence[PointId], k: int = 10, *, negative: Sequence[PointId] = (),
                  strategy: str | None = None, filter: Any = None) -> Plan[Results[Any]]:  # fmt: skip
        """Points like the `positive` examples, ids of points, and unlike the `negative` ones. `strategy` is "average" or "best_score"."""
        lane = {"recommend": {"positive": list(positive), "negative": list(negative), **given(strategy=strategy)}}
        return (yield from Dense._query(self, collection, [{**lane, **given(filter=body_of(filter))}], k, {}))

    @operation
    def discover(self, collection: str, context: Sequence[tuple[PointId, PointId]], k: int = 10, *, target: PointId | None = None,
                 target_vec: Vector | None = None, filter: Any = None) -> Plan[Results[Any]]:  # fmt: skip
        """Points on the side of the first of each pair of ids in `context` and not of the second, near to `target`, the id of a point, or
        `target_vec`, of shape (dim,), if there is one."""
        pairs = [{"positive": good, "negative": bad} for good, bad in context]
        lane = {"discover": {"context": pairs, **given(target=target, target_vec=floats(target_vec))}}
        return (yield from Dense._query(self, collection, [{**lane, **given(filter=body_of(filter))}], k, {}))


class Named(Shared):
    """Operations on collections of named spaces: several vectors a point, each with its metric."""

    _root, _reads = "/v1/named", ""
    _stored = staticmethod(named_point)

    @operation
    def create_collection(
        self, /, name: str, spaces: Mapping[str, Mapping[str, Any]], *, payload_format: str = "plain", **config: Any
    ) -> Plan[None]:
        """Creates a collection with these spaces: `{"image": {"dim": 512, "metric": "cosine"}, "words": {"sparse": True}}`.

        `payload_format` is "plain" or "tagged". Raises ConflictError if the collection exists."""
        body = {"named_vectors": dict(spaces), "payload_format": payload_format, **config}
        yield from self._ask("POST", "", name, body)

    @operation
    def add_space(self, /, collection: str, space: str, **config: Any) -> Plan[None]:
        """Adds an empty space; `config` is as in `create_collection`. Raises ConflictError if it exists."""
        yield from self._ask("POST", "/spaces", collection, {"name": space, "config": config})

    @operation
    def drop_space(self, collection: str, space: str) -> Plan[None]:
        """Removes a space with its vectors. Raises NotFoundError if there is none."""
        yield from self._ask("DELETE", "/spaces/{space}", collection, names={"space": space})

    @operation
    def upsert(self, collection: str, point: NamedPoint, **options: Unpack[WriteOptions]) -> Plan[None]:
        """Writes a point, or replaces it as a whole."""
        yield from self._ask("POST", "/points", collection, {**sent(point), **options})

    @operation
    def upsert_points(
        self, collection: str, points: Iterable[NamedPoint], *, batch_size: int = 1000, progress: Callable[[int], Any] | None = None
    ) -> Plan[int]:
        """Writes or replaces points, `batch_size` in a request. Returns their number."""
        return (yield from self._write_many(collection, "/points/batch", points, batch_size, progress))

    @operation
    def bulk_stage(
        self, collection: str, points: Iterable[NamedPoint], *, batch_size: int = 1000, progress: Callable[[int], Any] | None = None
    ) -> Plan[int]:
        """Stages points for `bulk_build`, which must follow. Returns their number."""
        return (yield from self._write_many(collection, "/points/bulk", points, batch_size, progress))

    @operation
    def update_vectors(self, collection: str, id: PointId, *, vectors: Mapping[str, Vector] | None = None,
                       sparse_vectors: Mapping[str, Sparse] | None = None, delete: Sequence[str] | None = None) -> Plan[None]:  # fmt: skip
        """Sets `vectors` and `sparse_vectors`, by the names of their spaces, of a point, and removes those of the spaces in `delete`."""
        body: dict[str, Any] = given(delete=list(delete) if delete else None)
        if vectors:
            body["vectors"] = {space: floats(vector) for space, vector in vectors.items()}
        if sparse_vectors:
            body["sparse_vectors"] = {space: sparse_of(vector) for space, vector in sparse_vectors.items()}
        yield from self._ask("POST", "/points/{id}/vectors", collection, body, names={"id": id})

    @operation
    def search(self, collection: str, space: str, query: Vector, k: int = 10,
               **options: Unpack[SearchOptions]) -> Plan[Results[SearchResult]]:  # fmt: skip
        """The `k` points nearest to `query`, of shape (dim,), in one space."""
        body = {"vector_name": space, "query": floats(query), "k": k, **options_of(options)}
        return results_of((yield from self._ask("POST", "/search", collection, body, read=True)))

    @operation
    def search_docs(self, collection: str, space: str, query: Vector, k: int = 10,
                    **options: Unpack[SearchOptions]) -> Plan[Results[Document]]:  # fmt: skip
        """As `search`, for `query`, with texts and payloads."""
        body = {"vector_name": space, "query": floats(query), "k": k, **options_of(options)}
        return documents_of((yield from self._ask("POST", "/search/docs", collection, body, read=True)))

    @operation
    def search_mmr(self, collection: str, space: str, query: Vector, k: int = 10, *, diversity: float | None = None,
                   fetch_k: int | None = None, **options: Unpack[SearchOptions]) -> Plan[Results[Any]]:  # fmt: skip
        """Points near to `query` in one space that differ from each other, chosen from the `fetch_k` nearest; `diversity` 0 is only near,
        1 only different."""
        weight = None if diversity is None else 1 - diversity
        more = {**given(fetch_k=fetch_k, **{"lambda": weight}), **options_of(options)}
        body = {"vector_name": space, "query": floats(query), "k": k, **more}
        return either_of((yield from self._ask("POST", "/search/mmr", collection, body, read=True)))

    @operation
    def search_batch(self, collection: str, searches: Sequence[tuple[str, Any]], k: int = 10,
                     **options: Unpack[SearchOptions]) -> Plan[list[Any]]:  # fmt: skip
        """One search for each of `searches`, pairs of a space and a query, dense or sparse, in one request: a list of hits for each."""
        more = options_of(options)
        made = [{"vector_name": s, "query": sparse_of(q) if isinstance(q, Sparse) else floats(q), "k": k, **more} for s, q in searches]
        each = refusing(results_of)
        return list((yield from self._ask("POST", "/search/batch", collection, {"searches": made}, read=True, each=each)))

    @operation
    def sparse_search(self, collection: str, space: str, query: Sparse, k: int = 10,
                      **options: Unpack[SearchOptions]) -> Plan[Results[SearchResult]]:  # fmt: skip
        """The `k` points with the largest dot products with a sparse vector in the sparse space `space`."""
        body = {"vector_name": space, "query": sparse_of(query), "k": k, **options_of(options)}
        return results_of((yield from self._ask("POST", "/sparse-search", collection, body, read=True)))

    @operation
    def hybrid_search(self, collection: str, k: int = 10, *, dense: tuple[str, Vector] | None = None,
                      sparse: tuple[str, Sparse] | None = None, text: str | None = None, method: str = "rrf",
                      alpha: float | None = None, rrf_k: int | None = None,
                      **options: Unpack[SearchOptions]) -> Plan[Results[SearchResult]]:  # fmt: skip
        """Fuses a dense search with a sparse one or a text search. `dense` and `sparse` are pairs of a space and a vector;
        `Client.hybrid_search` says what `method`, `alpha` and `rrf_k` are."""
        body = {"k": k, "method": method, **given(text=text, alpha=alpha, rrf_k=rrf_k), **options_of(options)}
        if dense:
            body["dense_space"], body["dense"] = dense[0], floats(dense[1])
        if sparse:
            body["sparse_space"], body["sparse"] = sparse[0], sparse_of(sparse[1])
        return results_of((yield from self._ask("POST", "/hybrid-search", collection, body, read=True)))

    @operation
    def query(self, /, collection: str, prefetch: Sequence[Mapping[str, Any]], *, k: int = 10, **more: Any) -> Plan[Results[Any]]:
        """As `Client.query`; each search of `prefetch` names its `space`."""
        return (yield from Dense._query(self, collection, prefetch, k, more))  # type: ignore[arg-type]


class MultiVector(Shared):
    """Operations on multi-vector collections: a matrix of token vectors a document, compared by the sum of best matches."""

    _root, _reads, _docs = "/v1/multivector", "", "docs"
    _stored = staticmethod(token_document)

    @operation
    def create_collection(self, /, name: str, dim: int, *, payload_format: str = "plain", **config: Any) -> Plan[None]:
        """Creates a collection of documents whose tokens have `dim` components. `payload_format` is "plain" or "tagged".

        Raises ConflictError if the collection exists."""
        yield from self._ask("POST", "", name, {"dim": dim, "payload_format": payload_format, **config})

    @operation
    def add(self, collection: str, document: TokenDocument, **options: Unpack[WriteOptions]) -> Plan[None]:
        """Writes a document, or replaces it as a whole."""
        yield from self._ask("POST", "/docs", collection, {**sent(document), **options})

    @operation
    def add_documents(
        self, collection: str, docs: Iterable[TokenDocument], *, batch_size: int = 100, progress: Callable[[int], Any] | None = None
    ) -> Plan[int]:
        """Writes or replaces the documents `docs`, `batch_size` in a request. Returns their number."""
        return (yield from self._write_many(collection, "/docs/batch", docs, batch_size, progress))

    @operation
    def bulk_stage(
        self, collection: str, docs: Iterable[TokenDocument], *, batch_size: int = 100, progress: Callable[[int], Any] | None = None
    ) -> Plan[int]:
        """Stages the documents `docs` for `bulk_build`, which must follow. Returns their number."""
        return (yield from self._write_many(collection, "/docs/bulk", docs, batch_size, progress))

    @operation
    def search(self, collection: str, query: Matrix, k: int = 10, *, candidates_per_token: int | None = None,
               **options: Unpack[SearchOptions]) -> Plan[Results[MultiResult]]:  # fmt: skip
        """The `k` best documents for the query tokens, of shape (tokens, dim).

        `candidates_per_token` is how many of the nearest tokens each query token looks for; None is four times `k`, at least 50."""
        body = {"query": floats(query), "k": k, **given(candidates_per_token=candidates_per_token), **options_of(options)}
        return multi_of((yield from self._ask("POST", "/search", collection, body, read=True)))

    @operation
    def search_batch(self, collection: str, queries: Sequence[Matrix], k: int = 10,
                     **options: Unpack[SearchOptions]) -> Plan[list[Any]]:  # fmt: skip
        """One search for each of `queries`, matrices of query tokens of shape (tokens, dim), in one request: a list of hits for each."""
        body = {"searches": [{"query": floats(query), "k": k, **options_of(options)} for query in queries]}
        return list((yield from self._ask("POST", "/search/batch", collection, body, read=True, each=refusing(multi_of))))

    @operation
    def hybrid_search(self, collection: str, query: Matrix, k: int = 10, *, sparse: Sparse | None = None, text: str | None = None,
                      method: str = "rrf", alpha: float | None = None, rrf_k: int | None = None,
                      **options: Unpack[SearchOptions]) -> Plan[Results[MultiResult]]:  # fmt: skip
        """Fuses a search by `query`, tokens of shape (tokens, dim), with a sparse one or a text search; `Client.hybrid_search` says what
        `method`, `alpha` and `rrf_k` are."""
        more = given(sparse=sparse_of(sparse), text=text, alpha=alpha, rrf_k=rrf_k)
        body = {"query": floats(query), "k": k, "method": method, **more, **options_of(options)}
        return multi_of((yield from self._ask("POST", "/hybrid-search", collection, body, read=True)))

    @operation
    def query(self, /, collection: str, prefetch: Sequence[Mapping[str, Any]], *, k: int = 10, **more: Any) -> Plan[Results[Any]]:
        """As `Client.query`; a search of `prefetch` by tokens is `{"maxsim": tokens}`."""
        return (yield from Dense._query(self, collection, prefetch, k, more))  # type: ignore[arg-type]


class Server:
    """Operations on the server as a whole."""

    def _at(self, method: str, route: str, body: Any = None, **more: Any) -> Plan[Any]:
        made = request(method, route, more.pop("names", None), body, **more)
        return decoded(made, (yield made))

    @operation
    def health(self) -> Plan[bool]:
        """Whether the server answers."""
        return bool((yield from self._at("GET", "/v1/health", read=True)).get("status") == "ok")

    @operation
    def ready(self) -> Plan[bool]:
        """Whether the server takes reads and writes."""
        response = yield request("GET", "/v1/ready", read=False)
        return response.status == 200

    @operation
    def replication(self) -> Plan[dict[str, Any]]:
        """The state of replication, as the server gives it."""
        return dict((yield from self._at("GET", "/v1/replication", read=True)))

    @operation
    def openapi(self) -> Plan[dict[str, Any]]:
        """The OpenAPI document of the server."""
        return dict((yield from self._at("GET", "/v1/openapi.json", read=True)))

    @operation
    def metrics(self) -> Plan[str]:
        """Metrics as Prometheus text."""
        return (yield from self._text("/v1/metrics"))

    @operation
    def key_metrics(self) -> Plan[str]:
        """Metrics of the keys as Prometheus text."""
        return (yield from self._text("/v1/kv-metrics"))

    def _text(self, route: str) -> Plan[str]:
        made = request("GET", route, read=True)
        response = yield made
        if response.status != 200:
            decoded(made, response)
        return response.body.decode()

    @operation
    def tasks(self) -> Plan[list[dict[str, Any]]]:
        """Builds, backups and other long tasks."""
        return list((yield from self._at("GET", "/v1/tasks", read=True))["tasks"])

    @operation
    def list_collections(self) -> Plan[list[Any]]:
        """The collections of all families."""
        return list((yield from self._at("GET", "/v1/collections", read=True))["collections"])

    @operation
    def create_alias(self, alias: str, collection: str) -> Plan[None]:
        """Makes `alias` a second name for a collection, or moves it there.

        Raises BadRequestError if it is the name of a collection, or if there is no such collection."""
        yield from self._at("POST", "/v1/aliases", {"alias": alias, "collection": collection})

    @operation
    def delete_alias(self, alias: str) -> Plan[None]:
        """Removes an alias; its collection stays."""
        yield from self._at("DELETE", "/v1/aliases/{alias}", names={"alias": alias})

    @operation
    def list_aliases(self, collection: str | None = None) -> Plan[dict[str, str]]:
        """The aliases with their collections, or only those of one collection."""
        answer = yield from self._at("GET", "/v1/aliases", query={"collection": collection}, read=True)
        return {one["alias"]: one["collection"] for one in answer["aliases"]}

    @operation
    def change_aliases(self, *, create: Mapping[str, str] | None = None, delete: Sequence[str] = ()) -> Plan[None]:
        """Creates or moves aliases (`create`: alias to collection) and removes others (`delete`) in one step: all or none."""
        actions: list[Any] = [{"delete": {"alias": alias}} for alias in delete]
        actions += [{"create": {"alias": alias, "collection": name}} for alias, name in (create or {}).items()]
        yield from self._at("POST", "/v1/aliases/batch", {"actions": actions})

    @operation
    def backup(self) -> Plan[Any]:
        """Backs up all collections and keys, and waits until that is done. Raises UnsupportedError if the server has no store of
        backups."""
        return (yield from self._at("POST", "/v1/admin/backup", timeout=BUILD_TIMEOUT))

    @operation
    def list_backups(self) -> Plan[Any]:
        """Lists the snapshots in the store of backups."""
        return (yield from self._at("GET", "/v1/admin/backups", read=True))

    @operation
    def verify_backup(self, /, collection: str, **more: Any) -> Plan[Any]:
        """Reads the newest snapshot of a collection, or the one of `time`, and checks every byte of it."""
        return (yield from self._at("POST", "/v1/admin/backups/verify", {"collection": collection, **more}, timeout=BUILD_TIMEOUT))

    @operation
    def restore_backup(self, /, collection: str, **more: Any) -> Plan[Any]:
        """Replaces a collection by its newest snapshot, or by the one of `time`. With `into` the snapshot is restored under that name
        instead."""
        return (yield from self._at("POST", "/v1/admin/backups/restore", {"collection": collection, **more}, timeout=BUILD_TIMEOUT))

    @operation
    def evict_collection(self, collection: str) -> Plan[Any]:
        """Moves a collection of any family from memory and disk to the store of backups; the next request about it brings it back.

        Raises NighError with status 412 if the server has no store, and 409 while points are staged or a build is running.
        """
        names = {"name": collection}
        return (yield from self._at("POST", "/v1/collections/{name}/evict", names=names, timeout=BUILD_TIMEOUT))

    @operation
    def restore_collection(self, collection: str) -> Plan[Any]:
        """Brings an evicted collection back. If the collection is in memory already, nothing is done.

        Raises NighError with status 412 if the server has no store, and 500 if the store fails.
        """
        names = {"name": collection}
        return (yield from self._at("POST", "/v1/collections/{name}/restore", names=names, timeout=BUILD_TIMEOUT))

    @operation
    def add_api_key(self, /, token: str, tenant: str, scopes: Sequence[str], **more: Any) -> Plan[Any]:
        """Adds the API key `token` of a `tenant` with the `scopes` of what it may do."""
        return (yield from self._at("POST", "/v1/admin/keys", {"token": token, "tenant": tenant, "scopes": list(scopes), **more}))

    @operation
    def list_api_keys(self) -> Plan[Any]:
        """The API keys, without their tokens."""
        return (yield from self._at("GET", "/v1/admin/keys", read=True))

    @operation
    def revoke_api_key(self, token: str) -> Plan[Any]:
        """Removes the API key `token`."""
        return (yield from self._at("DELETE", "/v1/admin/keys", {"token": token}))


class Root(Dense, Server):
    """What a client itself has: collections of one vector a point, and the server."""
