"""Answers of many searches: each hit is there when its bytes are, however the network cuts them."""

from __future__ import annotations

import json
from typing import Any

import pytest

from nigh import BadRequestError
from nigh._elements import Elements
from nigh._types import SearchResult, bare

FOUND: list[Any] = [
    {"results": [{"id": 1, "distance": 0.5, "score": 0}], "degraded": False, "missing": []},
    {"results": [], "degraded": False, "missing": []},
    {"results": [{"id": '}],{"é\U0001f600\\"', "distance": -1.5e-7, "score": 2.5, "payload": {"é": {"kind": "string", "str": "]}"}}}]},
]


def text_of(found: list[Any], **more: Any) -> bytes:
    return json.dumps({"results": found}, separators=(",", ":"), ensure_ascii=False, **more).encode()


def read(text: bytes, step: int) -> list[Any]:
    elements = Elements(lambda one: one)
    for at in range(0, len(text), step):
        elements.feed(text[at : at + step])
    return elements.end()


@pytest.mark.parametrize("text", [
    text_of(FOUND), text_of(FOUND) + b"\n", json.dumps({"results": FOUND}).encode(), text_of(FOUND, indent=2),
    text_of(FOUND).replace(b"},{", b"} ,\n{"), b' {"more": [1], "results":' + text_of(FOUND)[11:],
])  # fmt: skip
def test_elements_come_however_they_are_cut(text: bytes) -> None:
    for step in (*range(1, 12), len(text)):
        assert read(text, step) == FOUND, step
    assert read(b'{"results":[]}\n', 5) == []
    with pytest.raises(ValueError):
        read(b"", 5)


def test_elements_are_made_as_they_come() -> None:
    made: list[Any] = []
    elements = Elements(made.append)
    text = text_of(FOUND * 50)
    before = 0
    for at in range(0, len(text), 100):
        elements.feed(text[at : at + 100])
        # No more than the last one is kept waiting, and as much again.
        assert len(made) >= before
        before = len(made)
        assert len(elements._text) < 1000
    assert made == FOUND * 50


@pytest.mark.parametrize("end", range(1, len(text_of(FOUND))))
def test_an_answer_that_ends_early_is_none(end: int) -> None:
    with pytest.raises(ValueError):
        read(text_of(FOUND)[:end], 7)


def test_the_first_error_comes_in_the_end() -> None:
    def each(one: int) -> int:
        if one % 2:
            raise BadRequestError(str(one))
        return one

    elements = Elements(each, is_json=False)
    for one in (0, 1, 2, 3):
        elements.take(one)
    with pytest.raises(BadRequestError, match="^1$"):
        elements.end()


def test_bare_hits_are_hits() -> None:
    for made, wanted in ((bare(1, 0.5), SearchResult(1, 0.5)), (bare("a", 0.5, 2.0), SearchResult("a", 0.5, 2.0))):
        assert made == wanted and repr(made) == repr(wanted) and hash(made) == hash(wanted) and vars(made) == vars(wanted)
        with pytest.raises(AttributeError):
            made.score = 3.0  # type: ignore[misc]
