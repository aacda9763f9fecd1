"""What the adapters of frameworks share: collections with ids of text, filters by the rules of Python, and keys with a prefix."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from ._types import ConflictError, Document, Group, Point, PointId, Sparse, Vector
from .client import Client
from .filters import F, Filter, and_, body_of, eq, has_id, or_
from .keys import Keys
from .text import point_id

# Where ids of points are numbers, the id that the caller gave is in the payload.
_GIVEN_ID = "_nigh_id"
_OPERATORS = ("field", "and", "or", "not", "has_id", "min_should")


def condition(filter: Any) -> Any:
    """A filter of the client, or `{field: value}`, which is true where all these fields have these values."""
    if filter is None or isinstance(filter, Filter):
        return body_of(filter)
    if not filter:
        return None
    if isinstance(filter.get("op"), str) and any(key in filter for key in _OPERATORS):
        return body_of(filter)
    return and_(*(eq(name, value) for name, value in filter.items())).body


def nothing() -> Filter:
    """No point matches."""
    return has_id([])


def same(name: str, value: Any) -> Filter:
    """The field has this value as `==` of Python has it: 5 is 5.0, and None is a field that is null or absent."""
    if value is None:
        return ~F(name).exists()
    return F(name).is_in([value]) if isinstance(value, (int, float)) and not isinstance(value, bool) else eq(name, value)


def one_of(name: str, values: Iterable[Any]) -> Filter:
    """The field is the same as one of the values, which may be of several types."""
    kinds: dict[type, list[Any]] = {}
    for value in values:
        kinds.setdefault(type(value), []).append(value)
    lists = [F(name).is_in(kinds.pop(kind)) for kind in (int, float, str) if kind in kinds]
    return any_(lists + [same(name, value) for rest in kinds.values() for value in rest])


def holds(name: str, value: Any) -> Filter:
    """The field is an array that holds the value; 5 is 5.0."""
    if isinstance(value, (int, float)) and not isinstance(value, bool) and float(value).is_integer():
        return F(name).contains(int(value)) | F(name).contains(float(value))
    return F(name).contains(value)


def has_text(name: str, text: str, *, any_case: bool = False) -> Filter:
    """The field is a text in which this one is."""
    return F(name).regex(("(?i)" if any_case else "") + re.sub(r"[!-/:-@\[-`{-~]", r"\\\g<0>", text))


def any_(filters: Sequence[Filter]) -> Filter:
    """One of the filters holds; none of no filters does."""
    return nothing() if not filters else filters[0] if len(filters) == 1 else or_(*filters)


def all_(filters: Sequence[Filter]) -> Filter | None:
    """All filters hold; None, which is no filter, where there is none."""
    return None if not filters else filters[0] if len(filters) == 1 else and_(*filters)


def similarity(distance: float) -> float:
    """A number from 0 to 1 that is the larger, the nearer a hit is."""
    return 1 / (1 + max(distance, 0.0))


def sparse(vector: Any) -> Sparse:
    """A sparse vector of a framework: a `Sparse`, anything with `indices` and `values`, or a mapping of indices to values."""
    if isinstance(vector, Sparse):
        return vector
    pairs = vector.items() if isinstance(vector, Mapping) else zip(vector.indices, vector.values, strict=True)
    ordered = sorted((int(index), float(value)) for index, value in pairs)
    return Sparse([index for index, _ in ordered], [value for _, value in ordered])


class Collection:
    """A collection as frameworks see it: with ids of text, made at the first write unless `auto_create` is False, and empty before.

    What is read has the ids and payloads that the caller gave."""

    def __init__(self, client: Client, name: str, *, auto_create: bool, metric: str, full_text: bool) -> None:
        self.client, self.name = client, name
        self._config: dict[str, Any] = {"metric": metric, "full_text": full_text}
        self._auto_create = auto_create
        self._strings: bool | None = None

    def exists(self) -> bool:
        """Whether it is there; also learns of what kind its ids are."""
        if self._strings is None and self.client.collection_exists(self.name):
            self._strings = self.client.get_config(self.name)["config"]["ids"] == "string"
        return self._strings is not None

    def ensure(self, dim: int) -> None:
        """Makes the collection if it is not there and may be made."""
        if self.exists() or not self._auto_create:
            return
        try:
            self.client.create_collection(self.name, dim, ids="string", **self._config)
        except ConflictError as error:  # Another process was faster.
            if "exist" not in error.message:
                raise
        self.exists()

    def dim(self) -> int:
        """The number of components of its vectors."""
        return int(self.client.get_config(self.name)["config"]["dim"])

    def drop(self) -> None:
        """Removes the collection; the next write makes it anew."""
        if self.exists():
            self.client.drop_collection(self.name)
        self._strings = None

    def id_of(self, given: str) -> PointId:
        """The id of a point."""
        self.exists()
        return given if self._strings is not False else point_id(given)

    def has_ids(self, given: Iterable[str]) -> Filter:
        """The point has one of these ids."""
        return has_id(list({self.id_of(one) for one in given}))

    def write(self, points: Sequence[Point]) -> None:
        """Writes or replaces points, in batches. Their ids are those that the caller gave."""
        if not points:
            return
        first = points[0].vector
        self.ensure(0 if first is None else len(first))
        self.client.upsert_points(self.name, map(self._stored, points))

    def _stored(self, point: Point) -> Point:
        if self._strings is not False:
            return point
        given = str(point.id)
        return dataclasses.replace(point, id=point_id(given), payload={**(point.payload or {}), _GIVEN_ID: given})

    def _read(self, hit: Document) -> Document:
        payload = hit.metadata
        return dataclasses.replace(hit, id=str(payload.pop(_GIVEN_ID, hit.id)), metadata=payload)

    def by_ids(self, given: Iterable[str]) -> list[Document]:
        """The points of those ids that exist, in the order of the ids."""
        wanted = [self.id_of(one) for one in given]
        return self._points(wanted) if wanted and self.exists() else []

    def _points(self, ids: list[PointId], *, with_vector: bool = False) -> list[Document]:
        found = list[Document]()
        for start in range(0, len(ids), 1000):
            for point in self.client.get_batch(self.name, ids[start : start + 1000], with_vector=with_vector):
                found.append(self._read(Document(point.id, content=point.content, metadata=point.payload or {}, vector=point.vector)))
        return found

    def nearest(self, vector: Vector, k: int, filter: Any = None, **options: Any) -> list[Document]:
        """The `k` points nearest to a vector."""
        if not self.exists():
            return []
        return [self._read(hit) for hit in self.client.search_docs(self.name, vector, k, filter=filter, **options)]

    def different(self, vector: Vector, k: int, weight: float, fetch_k: int, filter: Any = None, **options: Any) -> list[Document]:
        """Of the `fetch_k` nearest, `k` that differ from each other; `weight` 1 is only near, 0 only different. The server chooses."""
        if not self.exists():
            return []
        more = {"diversity": 1 - weight, "fetch_k": max(k, fetch_k), "filter": filter, **options}
        return [self._read(hit) for hit in self.client.search_mmr(self.name, vector, k, **more)]

    def grouped(self, vector: Vector, k: int, group_by: str, group_size: int, filter: Any = None) -> list[Group]:
        """The `k` nearest groups of points with the same value of a payload key."""
        if not self.exists():
            return []
        groups = self.client.search_groups(self.name, vector, k, group_by, group_size=group_size, filter=filter)
        return [Group(group.key, [self._read(hit) for hit in group.hits]) for group in groups]

    def by_words(self, text: str, k: int, filter: Any = None) -> list[Document]:
        """The `k` points whose texts fit best."""
        return [self._read(hit) for hit in self.client.search_text(self.name, text, k, filter=filter)] if self.exists() else []

    def by_sparse(self, vector: Sparse, k: int, filter: Any = None) -> list[Document]:
        """The `k` points that fit a sparse vector best."""
        if not self.exists():
            return []
        hits = self.client.query(self.name, [{"sparse": vector, "k": k, **({} if filter is None else {"filter": filter})}], k=k)
        return self._points([hit.id for hit in hits])

    def fused(self, vector: Vector, other: str | Sparse, k: int, filter: Any = None, **options: Any) -> list[Document]:
        """A search by meaning fused with one by words or by a sparse vector."""
        if not self.exists():
            return []
        if isinstance(other, Sparse):
            hits = self.client.hybrid_search(self.name, vector, k, sparse=other, filter=filter, **options)
        else:
            hits = self.client.hybrid_text(self.name, vector, other, k, filter=filter, **options)
        return self._points([hit.id for hit in hits])

    def all(self, filter: Any = None, *, with_vector: bool = False) -> Iterator[Document]:
        """Every point that matches, page by page."""
        cursor = ""
        while self.exists():
            page = self.client.scroll(self.name, filter=filter, limit=1000, cursor=cursor)
            yield from self._points([hit.id for hit in page], with_vector=True) if with_vector else map(self._read, page)
            cursor = page.next_cursor
            if not cursor:
                return

    def count(self, filter: Any = None) -> int:
        """The number of points that match."""
        return self.client.count(self.name, filter=filter) if self.exists() else 0

    def delete(self, ids: Sequence[str] | None) -> int:
        """Deletes points, all of them where `ids` is None. Returns how many there were."""
        if not self.exists():
            return 0
        if ids is not None:
            return self.client.delete_many(self.name, list({self.id_of(one) for one in ids}))
        deleted = 0
        while page := [document.id for document in self.client.scroll(self.name, limit=1000)]:
            deleted += self.client.delete_many(self.name, page)
        return deleted

    def delete_where(self, filter: Filter) -> int:
        """Deletes the points that match. Returns how many there were."""
        return self.client.delete_by_filter(self.name, filter) if self.exists() else 0


def done(results: Iterable[Any]) -> None:
    """Raises the first error of a pipeline."""
    for result in results:
        if isinstance(result, Exception):
            raise result


def with_prefix(keys: Keys, prefix: str, index: str, *, values: bool) -> Iterator[tuple[str, bytes | None]]:
    """The keys that begin with `prefix`, without it, in ascending order, and their values where they are asked for."""
    wanted, cursor = prefix.encode(), b""
    while True:
        page = keys.query(index=index, limit=1000, cursor=cursor, values=values, scan=True)
        for key, value in page.items:
            if key.startswith(wanted):
                yield key.decode()[len(prefix) :], value
        cursor = page.cursor
        if not cursor:
            return
