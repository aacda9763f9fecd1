"""Answers that consist of many parts, each of which is made into what the caller gets as soon as it is there."""

from __future__ import annotations

import codecs
import json
from collections.abc import Callable
from typing import Any

from ._types import NighError

_BEGINNING = '{"results":['
_scan = json.JSONDecoder().raw_decode


class Elements:
    """What is made of the elements of an answer while the server works on those behind them. `each` makes it, or raises the error that the
    element is; the first one is raised in the end, once the whole answer has been read. The answer is `{"results":[...]}` as JSON, whose
    bytes are fed, or without `is_json` consists of elements that are taken."""

    def __init__(self, each: Callable[[Any], Any], is_json: bool = True) -> None:
        self._each, self._is_json, self._made = each, is_json, list[Any]()
        self._error: NighError | None = None
        # The text that no element was made of, and the length that it must have before that is tried again: twice as much each time, so
        # that an element that comes in many pieces is not read as often.
        self._text, self._wanted, self._begun = "", len(_BEGINNING), False
        self._decode = codecs.getincrementaldecoder("utf-8")().decode

    def take(self, element: Any) -> None:
        """Takes an element."""
        if self._error is None:
            try:
                self._made.append(self._each(element))
            except NighError as error:
                self._error = error

    def feed(self, part: bytes) -> None:
        """Takes the next bytes of the answer. Raises ValueError where they are no UTF-8."""
        self._text += self._decode(part)
        if len(self._text) < self._wanted:
            return
        text, at = self._text, 0
        if not self._begun:
            if not text.startswith(_BEGINNING):
                self._wanted = 1 << 62
                return
            at, self._begun = len(_BEGINNING), True
        try:
            while at < len(text) and text[at] in "{,":
                element, at = _scan(text, at + (text[at] == ","))
                self.take(element)
        except ValueError:
            pass  # It is not whole.
        self._text = text[at:]
        self._wanted = 2 * len(self._text)

    def end(self) -> list[Any]:
        """What was made of all elements, once the answer has ended. Raises ValueError where it is no JSON."""
        if self._is_json:
            rest = self._text + self._decode(b"", True)
            if self._begun:
                rest = _BEGINNING + rest.lstrip().removeprefix(",")
            for element in json.loads(rest)["results"]:
                self.take(element)
        if self._error is not None:
            raise self._error
        return self._made
