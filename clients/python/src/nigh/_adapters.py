"""What the adapters of frameworks share."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from ._types import ConflictError, Payload, PointId, Sparse
from .client import Client
from .filters import Filter, and_, body_of, eq
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


def sparse(vector: Any) -> Sparse:
    """A sparse vector of a framework: a `Sparse`, anything with `indices` and `values`, or a mapping of indices to values."""
    if isinstance(vector, Sparse):
        return vector
    pairs = vector.items() if isinstance(vector, Mapping) else zip(vector.indices, vector.values, strict=True)
    ordered = sorted((int(index), float(value)) for index, value in pairs)
    return Sparse([index for index, _ in ordered], [value for _, value in ordered])


class Collection:
    """A collection as frameworks see it: with ids of text, made at the first write unless `auto_create` is False."""

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

    def drop(self) -> None:
        """Removes the collection; the next write makes it anew."""
        if self.exists():
            self.client.drop_collection(self.name)
        self._strings = None

    def id_of(self, given: str) -> PointId:
        """The id of a point."""
        self.exists()
        return given if self._strings is not False else point_id(given)

    def payload_of(self, given: str, payload: Payload) -> Payload:
        """A payload as it is stored."""
        return {**payload, _GIVEN_ID: given} if self._strings is False else payload

    def given(self, id: PointId, payload: Payload) -> tuple[str, Payload]:
        """The id that the caller gave, and the payload that the caller gave."""
        rest = {key: value for key, value in payload.items() if key != _GIVEN_ID}
        return str(payload.get(_GIVEN_ID, id)), rest

    def delete(self, ids: Sequence[str] | None) -> int:
        """Deletes points, all of them where `ids` is None; how many there were."""
        if not self.exists():
            return 0
        if ids is not None:
            return self.client.delete_many(self.name, list({self.id_of(one) for one in ids}))
        deleted = 0
        while page := [document.id for document in self.client.scroll(self.name, limit=1000)]:
            deleted += self.client.delete_many(self.name, page)
        return deleted
