"""Filters as expressions: `(F("year") > 1980) & ~F("genre").eq("horror")`. A dictionary in the server's form serves as well.

Comparisons with `==` distinguish the integer 5 from the float 5.0, as the server does."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from ._types import Geo, PointId

_SCALARS = {"string": ("str", ""), "int": ("int", 0), "float": ("flt", 0.0), "bool": ("bool", False)}
_LISTS = {"strings": "strs", "ints": "ints", "floats": "flts"}


def tagged(value: Any) -> dict[str, Any]:
    """A value with its kind, as the server stores it. Raises TypeError for None, dictionaries, and empty or mixed lists."""
    if isinstance(value, np.generic):
        value = value.item()
    if isinstance(value, bool):
        return {"kind": "bool", "bool": value}
    if isinstance(value, int):
        return {"kind": "int", "int": value}
    if isinstance(value, float):
        return {"kind": "float", "flt": value}
    if isinstance(value, str):
        return {"kind": "string", "str": value}
    if isinstance(value, Geo):
        return {"kind": "geo", "lat": value.lat, "lon": value.lon}
    if isinstance(value, np.ndarray):
        value = value.tolist()
    if isinstance(value, (list, tuple)) and value:
        value = [item.item() if isinstance(item, np.generic) else item for item in value]
        for kind, typ in (("ints", int), ("floats", float), ("strings", str)):
            if all(type(item) is typ for item in value):
                return {"kind": kind, _LISTS[kind]: value}
    raise TypeError(f"{value!r} is no value of a filter: give a bool, int, float, str, Geo, or a list of one of int, float and str")


def plain(value: Any) -> Any:
    """A stored value without its kind. What does not have exactly the form of a tagged value is returned as it is."""
    if not isinstance(value, dict) or "kind" not in value:
        return value
    kind, rest = value["kind"], value.keys() - {"kind"}
    if kind == "none" and not rest:
        return None
    if kind == "geo" and rest == {"lat", "lon"}:
        return Geo(value["lat"], value["lon"])
    if isinstance(kind, str) and kind in _SCALARS:
        key, zero = _SCALARS[kind]
        return value.get(key, zero) if rest <= {key} else value
    if isinstance(kind, str) and kind in _LISTS and rest <= {_LISTS[kind]}:
        return value.get(_LISTS[kind], [])
    return value


def plain_payload(payload: Any) -> dict[str, Any]:
    """A payload of an answer as plain values."""
    return {key: plain(value) for key, value in (payload or {}).items()}


def sent_payload(payload: dict[str, Any]) -> dict[str, Any]:
    """A payload as it is sent: plain, with positions in the form that the server knows."""
    return {key: tagged(value) if isinstance(value, Geo) else value for key, value in payload.items()}


class Filter:
    """A condition. Combine conditions with `&`, `|` and `~`; never with `and`, `or` and `not`, which Python cannot pass on."""

    def __init__(self, body: dict[str, Any]) -> None:
        self.body = body

    def __and__(self, other: Any) -> Filter:
        return self._joined("and", other)

    def __or__(self, other: Any) -> Filter:
        return self._joined("or", other)

    def _joined(self, op: str, other: Any) -> Filter:
        """Chains stay flat, as the server limits how deep filters are nested."""
        parts = [part for body in (self.body, _part(other)) for part in (body[op] if body.keys() == {"op", op} else [body])]
        return Filter({"op": op, op: parts})

    def __invert__(self) -> Filter:
        return not_(self)

    def __bool__(self) -> bool:
        raise TypeError("combine filters with &, | and ~ in parentheses, not with and, or, not or chained comparisons")

    def __repr__(self) -> str:
        return f"Filter({self.body!r})"


def body_of(condition: Any) -> Any:
    """The JSON form of a filter: of an expression, or a dictionary as it is."""
    if condition is None or isinstance(condition, dict):
        return condition
    if isinstance(condition, Filter):
        return condition.body
    raise TypeError(f"{condition!r} is no filter: give an expression of F(...) or a dictionary")


def _part(condition: Any) -> Any:
    """A filter within another one, where None, which elsewhere means no filter, has no meaning."""
    if condition is None:
        raise TypeError("None is no filter: leave it out, it cannot be combined with others")
    return body_of(condition)


def _compare(op: str, name: str, value: Any) -> Filter:
    return Filter({"op": op, "field": name, "value": tagged(value)})


def eq(name: str, value: Any) -> Filter:
    """The field `name` has this value."""
    return _compare("eq", name, value)


def ne(name: str, value: Any) -> Filter:
    """The field `name` has another value."""
    return _compare("ne", name, value)


def gt(name: str, value: Any) -> Filter:
    """The field `name` is greater than `value`."""
    return _compare("gt", name, value)


def gte(name: str, value: Any) -> Filter:
    """The field `name` is at least `value`."""
    return _compare("gte", name, value)


def lt(name: str, value: Any) -> Filter:
    """The field `name` is less than `value`."""
    return _compare("lt", name, value)


def lte(name: str, value: Any) -> Filter:
    """The field `name` is at most `value`."""
    return _compare("lte", name, value)


def contains(name: str, value: Any) -> Filter:
    """The field `name` is an array that holds the value."""
    return _compare("contains", name, value)


def in_(name: str, values: Sequence[Any] | npt.NDArray[Any]) -> Filter:
    """The field `name` has one of the values."""
    return _compare("in", name, list(values))


def and_(*conditions: Any) -> Filter:
    """All conditions hold. Raises TypeError for None among them."""
    return Filter({"op": "and", "and": [_part(one) for one in conditions]})


def or_(*conditions: Any) -> Filter:
    """One of the conditions holds."""
    return Filter({"op": "or", "or": [_part(one) for one in conditions]})


def not_(condition: Any) -> Filter:
    """The condition does not hold."""
    return Filter({"op": "not", "not": _part(condition)})


def has_id(ids: Sequence[PointId]) -> Filter:
    """The point has one of these ids, at most 10,000."""
    return Filter({"op": "has_id", "has_id": list(ids)})


def min_should(min_count: int, *conditions: Any) -> Filter:
    """At least `min_count` of the conditions hold."""
    return Filter({"op": "min_should", "min_should": {"min_count": min_count, "conditions": [_part(c) for c in conditions]}})


class F:
    """The field `name` of a payload, or a path into one in collections with plain payloads; `$content` is the text of a point."""

    __hash__ = None  # type: ignore[assignment]

    def __init__(self, name: str) -> None:
        self.name = name

    def __bool__(self) -> bool:
        raise TypeError("a field is no condition: compare it, and combine conditions with &, | and ~")

    def __eq__(self, value: object) -> Filter:  # type: ignore[override]
        return eq(self.name, value)

    def __ne__(self, value: object) -> Filter:  # type: ignore[override]
        return ne(self.name, value)

    def __gt__(self, value: Any) -> Filter:
        return gt(self.name, value)

    def __ge__(self, value: Any) -> Filter:
        return gte(self.name, value)

    def __lt__(self, value: Any) -> Filter:
        return lt(self.name, value)

    def __le__(self, value: Any) -> Filter:
        return lte(self.name, value)

    def eq(self, value: Any) -> Filter:
        """The field has this value; the same as `==`."""
        return eq(self.name, value)

    def is_in(self, values: Sequence[Any] | npt.NDArray[Any]) -> Filter:
        """The field has one of the values."""
        return in_(self.name, values)

    def contains(self, value: Any) -> Filter:
        """The field is an array that holds the value."""
        return contains(self.name, value)

    def match(self, words: str) -> Filter:
        """The field is a text that contains all these words."""
        return _compare("match", self.name, words)

    def regex(self, expression: str) -> Filter:
        """The field is a text in which the expression (RE2 syntax) matches anywhere."""
        return _compare("regex", self.name, expression)

    def is_empty(self) -> Filter:
        """The field does not exist, is null, or is an empty text or array."""
        return Filter({"op": "is_empty", "field": self.name})

    def is_null(self) -> Filter:
        """The field is null."""
        return Filter({"op": "is_null", "field": self.name})

    def exists(self) -> Filter:
        """The field is there and not null."""
        return Filter({"op": "exists", "field": self.name})

    def later(self, time: str, *, or_equal: bool = False) -> Filter:
        """The field is a later time than this RFC 3339 text, or with `or_equal` the same."""
        return _compare("dt_gte" if or_equal else "dt_gt", self.name, time)

    def earlier(self, time: str, *, or_equal: bool = False) -> Filter:
        """The field is an earlier time than this RFC 3339 text, or with `or_equal` the same."""
        return _compare("dt_lte" if or_equal else "dt_lt", self.name, time)
