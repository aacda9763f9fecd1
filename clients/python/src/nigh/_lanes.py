"""Queries of several searches as the binary protocol and gRPC carry them: a `QuerySpec` in protocol buffers. Only what such a message
has is written here, so that the client needs no library for it."""

from __future__ import annotations

import json
import struct
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from ._bodies import lane_of
from ._types import array, numbers
from .filters import body_of

_STRATEGIES = {"": 0, "average": 0, "average_vector": 0, "best_score": 1}
_MODES = {"fusion": 0, "rerank": 1}
_KINDS = ("dense", "sparse", "maxsim", "text", "recommend", "discover")
Lane = tuple[int, bytes, tuple[int, int, int]]
Number = Callable[[Any], int]


def varint(number: int) -> bytes:
    """A number in as many bytes as it needs, as protocol buffers have it."""
    made = bytearray()
    while number >= 0x80:
        made.append(number & 0x7F | 0x80)
        number >>= 7
    made.append(number)
    return bytes(made)


def _number(field: int, value: int) -> bytes:
    if not 0 <= value < 1 << 64:
        raise ValueError(f"{value} is no number of a query; it must be at least 0")
    return varint(field << 3) + varint(value) if value else b""


def _bytes(field: int, value: bytes) -> bytes:
    return varint(field << 3 | 2) + varint(len(value)) + value


def _text(field: int, value: str) -> bytes:
    return _bytes(field, value.encode()) if value else b""


def _floats(field: int, value: Any) -> bytes:
    return _bytes(field, array(value, 1, "a vector of a query").astype("<f4", copy=False).tobytes())


def _numbers(field: int, values: Sequence[int]) -> bytes:
    return _bytes(field, b"".join(varint(int(one)) for one in values)) if len(values) else b""


def _taken(given: Mapping[str, Any], allowed: set[str], what: str) -> None:
    unknown = sorted(given.keys() - allowed)
    if unknown:
        raise ValueError(f"{what} has no {unknown[0]!r} over this transport; it has {', '.join(sorted(allowed))}")


def _code(codes: Mapping[str, int], name: Any, what: str) -> int:
    if name not in codes:
        raise ValueError(f"{what} is {name!r}; it must be one of {', '.join(repr(one) for one in codes if one)}")
    return codes[name]


def _dense(lane: Mapping[str, Any]) -> Lane:
    if lane.get("space") is None:
        return 1, _floats(1, lane["dense"]), (2, 3, 4)
    return 3, _text(1, lane["space"]) + _floats(2, lane["dense"]), (3, 4, 5)


def _sparse(lane: Mapping[str, Any]) -> Lane:
    indices, values = numbers(lane["sparse"]["indices"]).tolist(), lane["sparse"]["values"]
    if lane.get("space") is None:
        return 2, _numbers(1, indices) + _floats(2, values), (3, 4, 5)
    return 4, _text(1, lane["space"]) + _numbers(2, indices) + _floats(3, values), (4, 5, 6)


def _tokens(lane: Mapping[str, Any]) -> Lane:
    return 5, b"".join(_bytes(1, _floats(1, row)) for row in array(lane["maxsim"], 2, "tokens of a query")), (2, 3, 4)


def _words(lane: Mapping[str, Any]) -> Lane:
    match = lane.get("match") or {}
    _taken(match, {"phrase", "prefix"}, "match")
    kind = _number(2, int(bool(match.get("phrase")))) + _number(3, int(bool(match.get("prefix"))))
    return 100, _text(1, lane["text"]) + kind, (4, 5, 6)


def _recommend(lane: Mapping[str, Any], number: Number) -> Lane:
    asked = lane["recommend"]
    _taken(asked, {"positive", "negative", "strategy"}, "recommend")
    strategy = _code(_STRATEGIES, asked.get("strategy") or "", "strategy")
    ids = [_numbers(field, [number(one) for one in asked.get(name) or ()]) for field, name in ((1, "positive"), (2, "negative"))]
    return 6, b"".join(ids) + _number(5, strategy) + _text(8, lane.get("space") or ""), (3, 4, 0)


def _discover(lane: Mapping[str, Any], number: Number) -> Lane:
    asked = lane["discover"]
    _taken(asked, {"context", "target", "target_vec"}, "discover")
    made = _floats(1, asked["target_vec"]) if asked.get("target_vec") is not None else b""
    if asked.get("target") is not None:
        made += _numbers(5, [number(asked["target"])])
    for pair in asked.get("context") or ():
        made += _bytes(6, _number(1, number(pair["positive"])) + _number(2, number(pair["negative"])))
    return 7, made + _text(7, lane.get("space") or ""), (3, 4, 0)


def _leaf(lane: Mapping[str, Any], number: Number) -> bytes:
    kinds = [name for name in _KINDS if lane.get(name) is not None]
    if len(kinds) != 1:
        raise ValueError(f"a search of a query has {', '.join(kinds) or 'nothing'}; it must have one of {', '.join(_KINDS)}")
    kind = kinds[0]
    more = {"match"} if kind == "text" else set() if kind == "maxsim" else {"space"}
    _taken(lane, {kind, "k", "filter", "lane_k", *more}, f"a search by {kind}")
    if kind == "recommend":
        field, body, (k, filter, lane_k) = _recommend(lane, number)
    elif kind == "discover":
        field, body, (k, filter, lane_k) = _discover(lane, number)
    else:
        field, body, (k, filter, lane_k) = {"dense": _dense, "sparse": _sparse, "maxsim": _tokens, "text": _words}[kind](lane)
    body += _number(k, int(lane.get("k") or 0))
    if lane.get("filter") is not None:
        body += _text(filter, json.dumps(body_of(lane["filter"])))
    if lane.get("lane_k"):
        if not lane_k:
            raise ValueError(f"a search by {kind} has no 'lane_k'")
        body += _number(lane_k, int(lane["lane_k"]))
    return _bytes(field, body)


def spec_of(query: Mapping[str, Any], number: Number) -> bytes:
    """A `QuerySpec`: `prefetch`, `k`, and what `Client.query` takes beside them. `number` gives the number of an id."""
    _taken(query, {"prefetch", "k", "root", "mode", "method", "alpha", "rrf_k", "group_by", "group_size"}, "a query")
    made, lanes = b"", [lane_of(lane) for lane in query["prefetch"]]
    if query.get("root") is not None:
        made += _bytes(1, _leaf(lane_of(query["root"]), number))
    for lane in lanes:
        if "query" in lane:
            _taken(lane, {"query"}, "a search that is a query")
            made += _bytes(8, _bytes(2, spec_of(lane["query"], number)))
        elif any("query" in one for one in lanes):
            made += _bytes(8, _bytes(1, _leaf(lane, number)))
        else:
            made += _bytes(2, _leaf(lane, number))
    made += _number(3, _code(_MODES, query.get("mode") or "fusion", "mode")) + _text(4, query.get("method") or "")
    if query.get("alpha") is not None:
        made += varint(5 << 3 | 1) + struct.pack("<d", query["alpha"])
    made += _number(6, int(query.get("rrf_k") or 0)) + _number(7, int(query.get("k") or 0))
    return made + _text(9, query.get("group_by") or "") + _number(10, int(query.get("group_size") or 0))
