"""The part of a call that neither waits nor sends. An operation is a generator that yields requests and is sent their answers, so that
the blocking and the asynchronous client carry out the same code."""

from __future__ import annotations

import json
import random
from collections.abc import Callable, Generator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Generic, TypeVar
from urllib.parse import quote, urlencode

import numpy as np

from ._elements import Elements
from ._types import (
    BadRequestError,
    ConflictError,
    NighError,
    NotFoundError,
    RateLimitError,
    ServerError,
    UnauthorizedError,
    UnsupportedError,
)

T = TypeVar("T")
_ERRORS: dict[int, type[NighError]] = {
    400: BadRequestError,
    401: UnauthorizedError,
    403: UnauthorizedError,
    404: NotFoundError,
    409: ConflictError,
    412: UnsupportedError,
    413: BadRequestError,
    422: BadRequestError,
    429: RateLimitError,
    501: UnsupportedError,
}
_BUSY = {429, 502, 503, 504}
_LONGEST_WAIT = 30.0
BINARY = "application/octet-stream"


@dataclass(frozen=True)
class Request:
    """A request. `read` says that it changes nothing, so that it may be sent again; `template` is its route, `names` what it is filled
    with, and `asked` what stands behind it. `each` is what is made of each element of `results` in the answer, as they come."""

    method: str
    template: str
    path: str
    body: Any = b""
    content_type: str = "application/json"
    read: bool = False
    timeout: float | None = None
    key: str | None = None
    value: object = None
    names: Mapping[str, Any] | None = None
    asked: Mapping[str, Any] | None = None
    each: Callable[[Any], Any] | None = None


@dataclass(frozen=True)
class Response:
    """An answer whose body has been read. `answer` has what its JSON would say, where it came in another form; of a request with `each`
    it may have the elements."""

    status: int
    body: bytes
    retry_after: str = ""
    answer: Any = None


Plan = Generator[Request, Response, T]


@dataclass(frozen=True)
class Together:
    """Plans that are carried out at the same time. A plan that yields it, in place of a request, is sent the list of their results."""

    plans: Sequence[Plan[Any]]


@dataclass(frozen=True)
class Command(Generic[T]):
    """An operation with its arguments, and how its answer is read. `read` says that it may be sent again."""

    name: bytes
    args: bytes
    decode: Callable[[bytes], T]
    missing: Any = None
    read: bool = False
    key: str | None = None


def _listed(value: Any) -> Any:
    if isinstance(value, (np.generic, np.ndarray)) and value.dtype.kind in "biufU":
        return value.tolist()
    raise TypeError(f"a value of the type {type(value).__name__} cannot be sent as JSON: {str(value)[:100]}")


def encoded(value: Any) -> bytes:
    """JSON. Numbers and arrays of numpy are taken as numbers and lists; ValueError for NaN and infinities, which JSON lacks."""
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"), allow_nan=False, default=_listed).encode()


def request(
    method: str,
    template: str,
    names: Mapping[str, Any] | None = None,
    body: Any = None,
    *,
    query: Mapping[str, Any] | None = None,
    read: bool = False,
    binary: bool = False,
    timeout: float | None = None,
    each: Callable[[Any], Any] | None = None,
) -> Request:
    """Fills the names into the route, each percent-encoded, and writes the body as JSON unless it is bytes."""
    path, key, value = template, None, None
    for key, value in (names or {}).items():
        path = path.replace("{" + key + "}", quote(str(value), safe=""))
    asked = {k: str(v).lower() if isinstance(v, bool) else v for k, v in (query or {}).items() if v is not None}
    if asked:
        path += "?" + urlencode(asked)
    if body is not None and not isinstance(body, bytes):
        body = encoded(body)
    content_type = BINARY if binary else "application/json"
    return Request(method, template, path, body or b"", content_type, read, timeout, key, value, names, query, each)


def error_of(made: Request, response: Response) -> NighError:
    """The error that an answer tells."""
    committed = None
    try:
        answer = json.loads(response.body)
        message = str(answer["error"])
        committed = int(answer["committed"]) if "committed" in answer else None
    except (ValueError, KeyError, TypeError):
        message = response.body[:500].decode("utf-8", "replace") or f"HTTP status {response.status}"
    kind = _ERRORS.get(response.status, ServerError if response.status >= 500 else BadRequestError)
    error = kind(message, response.status, key=made.key, value=made.value)
    error.committed = committed
    return error


def decoded(made: Request, response: Response) -> Any:
    """The JSON of an answer, None where it is empty; what was made of its elements if the request has `each`. Raises its error."""
    if not 200 <= response.status < 300:
        raise error_of(made, response)
    elements = response.answer
    if elements is not None and not isinstance(elements, Elements):
        return elements
    try:
        if made.each is None:
            return json.loads(response.body) if response.body else None
        if elements is None:
            elements = Elements(made.each)
            elements.feed(response.body)
        return elements.end()
    except ValueError as error:
        text = response.body[:200].decode("utf-8", "replace")
        raise ServerError(f"{made.method} {made.path}: the answer is no JSON: {text}", response.status) from error


def wait_before_retry(made: Request, attempt: int, retries: int, response: Response | None, unsent: bool) -> float | None:
    """Seconds to wait before the request is sent again, None if it must not be.

    A read may always be sent again. A write only if it was never sent, or was refused as a whole by a rate limit; a batch that was
    written in part says how far (`committed`), and is not repeated."""
    if attempt >= retries:
        return None
    if response is None:
        if not (made.read or unsent):
            return None
    elif response.status not in _BUSY:
        return None
    elif not made.read and (response.status != 429 or b'"committed"' in response.body):
        return None
    back_off = 0.1 * (1 << attempt) * (0.5 + random.random())
    if response is not None and response.retry_after:
        try:
            back_off = max(float(response.retry_after), 0.0)
        except ValueError:
            pass  # A date: the back-off serves.
        if not back_off <= _LONGEST_WAIT:  # Also where it is no number.
            return None
    return min(back_off, _LONGEST_WAIT)
