"""Keys over the binary protocol: `Keys` blocks, `AsyncKeys` is awaited. Keys and values are bytes; texts are sent as UTF-8. Their attribute
`vector` has collections over the same connections.

Many requests travel before the first answer with `pipeline()`, up to 64 at a time. What is sent in one goes to one server, in order."""

from __future__ import annotations

import asyncio
import dataclasses
import functools
import os
import select
import socket
import ssl
import struct
from collections import deque
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from itertools import islice
from typing import Any, TypeVar

from typing_extensions import Self, Unpack

from ._commands import TYPES, Commands, Data, KeyIndex, KeyPage, Operate, OperateResult, Operations, cell
from ._families import MultiVectorOperations, NamedOperations, NamedRow, TokenRow
from ._plan import Command
from ._surface import Awaited, Blocking, Queued
from ._types import (
    BadRequestError,
    ConflictError,
    Matrix,
    NighError,
    NotFoundError,
    NotLeaderError,
    Payload,
    Point,
    RateLimitError,
    Results,
    SearchOptions,
    SearchResult,
    ServerError,
    TransportError,
    UnauthorizedError,
    UnsupportedError,
    array,
    numbers,
)
from ._vectors import Condition, Row, VectorOperations, frame_rows, searched, upserted

__all__ = ["MAX_FRAME", "TYPES", "WINDOW", "AsyncKeys", "AsyncMultiVectors", "AsyncNamedVectors", "AsyncVectors", "Command", "Commands",
           "Condition", "Data", "KeyIndex", "KeyPage", "Keys", "MultiVectors", "NamedRow", "NamedVectors", "Nigh", "NighKV", "Operate",
           "OperateResult", "Row", "TokenRow", "Vectors", "cell"]  # fmt: skip

T = TypeVar("T")
OK, NOT_FOUND, NOT_LEADER, ERROR, UNAUTHORIZED = range(5)
WINDOW = 64
MAX_FRAME = 16 << 20
_MAX_ANSWER = 64 << 20
_REDIRECTS = 3
_HEAD, _ANSWER = struct.Struct(">I"), struct.Struct(">IBI")
# What is longer is sent while answers are read.
_AT_ONCE = 64 << 10
# The texts of errors that are stable, with what they are over HTTP.
_ERRORS: tuple[tuple[str, type[NighError]], ...] = (
    ("unknown collection", NotFoundError), ("already exists", ConflictError), ("already present", ConflictError),
    ("version conflict", ConflictError), ("collection full", RateLimitError), ("rate limited", RateLimitError), ("busy", ServerError),
    ("still being opened", ServerError), ("insufficient storage", ServerError), ("internal error", ServerError),
    ("not ready", ServerError), ("not partitioned", UnsupportedError),
)  # fmt: skip


def _size(command: Command[Any], token: bytes) -> int:
    size = len(token) + len(command.name) + 5 + len(command.args)
    if size > MAX_FRAME:
        raise ValueError(f"the request has {size} bytes; at most {MAX_FRAME} are allowed")
    return size


@functools.lru_cache(maxsize=256)
def _prefix(name: bytes, token: bytes) -> bytes:
    return token + bytes((len(name),)) + name


def _framed(command: Command[Any], token: bytes) -> bytes:
    prefix, args = _prefix(command.name, token), command.args
    return _HEAD.pack(_size(command, token)) + prefix + _HEAD.pack(len(args)) + args


def _result(command: Command[T], status: int, payload: bytes) -> T:
    if status == OK:
        return command.decode(payload)
    if status == NOT_FOUND:
        missing: T = command.missing
        return missing
    if status == UNAUTHORIZED:
        raise UnauthorizedError("unauthorized: the API key is missing, unknown or lacks the right", status)
    text = payload[2:].decode("utf-8", "replace")
    if status == NOT_LEADER:
        raise NotLeaderError(f"not leader: {text or 'no address was given'}", status, value=text)
    kind = next((kind for fragment, kind in _ERRORS if fragment in text), BadRequestError)
    raise kind(f"server error: {text}", status, key=command.name.decode())


def _token(auth_token: str | None) -> bytes:
    raw = (auth_token or "").encode()
    if len(raw) > 255:
        raise ValueError(f"auth_token has {len(raw)} bytes; at most 255 are allowed")
    return b"\2" + bytes((len(raw),)) + raw if raw else b""


def _split(address: str) -> tuple[str, int]:
    host, _, port = address.rpartition(":")
    if not (host and port.isascii() and port.isdigit()):
        raise NotLeaderError(f"not leader: {address!r} is no address", NOT_LEADER, value=address)
    return host.strip("[]"), int(port)


def _length(head: bytes | bytearray, at: int = 0) -> int:
    """The length of an answer's payload, from its first 9 bytes. Refuses what no server of this protocol sends."""
    size, _, length = _ANSWER.unpack_from(head, at)
    if size != length + 5 or size > _MAX_ANSWER:
        raise ConnectionError(f"the server sent what is no answer: {bytes(head[at : at + 9])!r}")
    made: int = length
    return made


def _unsent(lost: TransportError) -> TransportError:
    return TransportError(f"not sent, as an earlier request of the pipeline was lost: {lost.message}")


class _Connection:
    """A connection that blocks."""

    def __init__(self, address: tuple[str, int], timeout: float, context: ssl.SSLContext | None) -> None:
        try:
            made = socket.create_connection(address, timeout)
            made.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            self.socket = context.wrap_socket(made, server_hostname=address[0]) if context else made
        except OSError as error:
            raise TransportError(f"no connection to {address[0]}:{address[1]}: {error}") from error
        self.buffer = bytearray()

    def usable(self) -> bool:
        """Whether it may carry a request. It is readable between requests where the server has closed it, as it does after five idle
        minutes, or has sent something unasked, which would be taken for the answer of the next request."""
        if self.buffer:
            return False
        if not hasattr(select, "poll"):
            return not select.select([self.socket], [], [], 0)[0]
        poll = select.poll()
        poll.register(self.socket, select.POLLIN)
        return not poll.poll(0)

    def exchange(self, frames: bytes | memoryview, count: int, answers: list[tuple[int, bytes]]) -> None:
        """Sends requests, and reads as many answers into a list, which has the first ones where this raises."""
        left = memoryview(frames)
        if len(left) <= _AT_ONCE or isinstance(self.socket, ssl.SSLSocket) or not hasattr(select, "poll"):
            self.socket.sendall(left)
            left = left[:0]
        buffer, at = self.buffer, 0
        while True:
            while len(buffer) - at >= 9:
                end = at + 9 + _length(buffer, at)
                if len(buffer) < end:
                    break
                answers.append((buffer[at + 4], bytes(buffer[at + 9 : end])))
                at = end
                if len(answers) == count:
                    del buffer[:at]
                    if left:
                        raise ConnectionError("the server sent an answer to no request")
                    return
            del buffer[:at]
            at = 0
            if left and not self._readable(left):
                left = left[self.socket.send(left[: 1 << 18]) :]
                continue
            part = self.socket.recv(1 << 18)
            if not part:
                raise ConnectionError("the server has closed the connection")
            buffer += part

    def _readable(self, left: memoryview) -> bool:
        """Waits until there are answers, or else room for what is left of the requests: answers are taken while requests are sent, so that
        neither side waits for the other."""
        poll = select.poll()
        poll.register(self.socket, select.POLLIN | select.POLLOUT)
        found = poll.poll(None if (limit := self.socket.gettimeout()) is None else limit * 1000)
        if not found:
            raise TimeoutError("timed out")
        return not found[0][1] & select.POLLOUT or bool(found[0][1] & select.POLLIN)

    def close(self) -> None:
        self.socket.close()


class _Decoded(list[tuple[int, Any]]):
    """Answers with what they say in place of their bytes, which is read as they come, while the server works on the next ones."""

    def __init__(self, decode: Callable[[bytes], Any]) -> None:
        super().__init__()
        self._decode = decode

    def append(self, answer: tuple[int, Any]) -> None:
        status, payload = answer
        super().append((status, self._decode(payload)) if status == OK else answer)


def _outcomes(commands: Sequence[Command[Any]], answers: Iterable[tuple[int, bytes]]) -> list[Any]:
    found: list[Any] = []
    for command, (status, payload) in zip(commands, answers, strict=True):
        try:
            found.append(command.decode(payload) if status == OK else _result(command, status, payload))
        except NighError as error:
            found.append(error)
    return found


def _parts(commands: Sequence[Command[Any]], token: bytes) -> Generator[Sequence[Command[Any]], None, None]:
    """Cuts a pipeline into what is sent at once: at most 64 requests and 1 MiB, so that neither side waits for the other. One that is
    too large is refused before any is sent."""
    sizes = [_size(command, token) for command in commands]
    start = total = 0
    for at, size in enumerate(sizes):
        if at > start and (at - start == WINDOW or total + size > 1 << 20):
            yield commands[start:at]
            start, total = at, 0
        total += size
    if start < len(commands):
        yield commands[start:]


_NAMED, _TOKENS = b"vector_named_", b"vector_mv_"


def _of_family(family: bytes, command: Command[T]) -> Command[T]:
    return dataclasses.replace(command, name=family + command.name)


class _Collected:
    """Takes commands of a family into a pipeline."""

    def __init__(self, family: bytes, commands: list[Command[Any]]) -> None:
        self._family, self._commands = family, commands

    def append(self, command: Command[Any]) -> None:
        self._commands.append(_of_family(self._family, command))


class _QueuedNamed(NamedOperations, Queued):
    """Operations on collections of named spaces in a pipeline."""

    def __init__(self, commands: list[Command[Any]]) -> None:
        self.commands = _Collected(_NAMED, commands)


class _QueuedMultiVector(MultiVectorOperations, Queued):
    """Operations on multi-vector collections in a pipeline."""

    def __init__(self, commands: list[Command[Any]]) -> None:
        self.commands = _Collected(_TOKENS, commands)


class _QueuedVectors(VectorOperations, Queued):
    """Operations on collections in a pipeline."""

    def __init__(self, commands: list[Command[Any]]) -> None:
        self.commands, self.named, self.multivector = commands, _QueuedNamed(commands), _QueuedMultiVector(commands)


class _Queue(Operations, Queued):
    """Collects requests; `execute()` sends them and gives the results in their order. A request that fails has its error there, and so
    has each one that was lost with the connection, or was not sent because one before it was lost."""

    def __init__(self, send: Callable[[list[Command[Any]]], Any]) -> None:
        self.commands: list[Command[Any]] = []
        self._send = send

    @property
    def vector(self) -> _QueuedVectors:
        """Operations on collections, whose requests are collected with the others."""
        return _QueuedVectors(self.commands)

    def _taken(self) -> Any:
        commands, self.commands = self.commands, []
        return self._send(commands)


class _Pipeline(_Queue):
    __doc__ = _Queue.__doc__

    def execute(self) -> list[Any]:
        """Sends the collected requests. Returns their results, in order."""
        found: list[Any] = self._taken()
        return found


class _AsyncPipeline(_Queue):
    __doc__ = _Queue.__doc__

    async def execute(self) -> list[Any]:
        """Sends the collected requests. Returns their results, in order."""
        found: list[Any] = await self._taken()
        return found


def _rows(vectors: Any, ids: Any, payloads: Any) -> tuple[Any, Any]:
    matrix = array(vectors, 2, "vectors") if len(vectors) else array([[]], 2, "vectors")[:0]
    given = numbers(range(len(matrix)) if ids is None else ids)
    if len(given) != len(matrix) or (payloads is not None and len(payloads) != len(matrix)):
        raise ValueError(f"there are {len(matrix)} vectors; ids and payloads must be as many")
    return matrix, given


def _points(matrix: Any, ids: Any, payloads: Sequence[Payload | None] | None) -> Iterator[Point]:
    for at, id in enumerate(ids.tolist()):
        yield Point(id, matrix[at], payloads[at] if payloads is not None else None)


def _written(found: Sequence[Any], done: int) -> int:
    """How many points there are with a batch whose outcomes these are; raises its first error."""
    for at, one in enumerate(found):
        if isinstance(one, NighError):
            one.committed = done + at
            raise one
    return done + len(found)


class NamedVectors(NamedOperations, Blocking):
    """Operations on collections of named spaces over the binary protocol, as `Keys.vector.named`."""

    def __init__(self, keys: Keys) -> None:
        self._keys = keys

    def execute(self, command: Command[T]) -> T:
        """Carries out `command`, whose name lacks the beginning that tells the family."""
        return self._keys.execute(_of_family(_NAMED, command))


class MultiVectors(MultiVectorOperations, Blocking):
    """Operations on multi-vector collections over the binary protocol, as `Keys.vector.multivector`."""

    def __init__(self, keys: Keys) -> None:
        self._keys = keys

    def execute(self, command: Command[T]) -> T:
        """Carries out `command`, whose name lacks the beginning that tells the family."""
        return self._keys.execute(_of_family(_TOKENS, command))


class Vectors(VectorOperations, Blocking):
    """Operations on collections over the binary protocol, as `Keys.vector`."""

    def __init__(self, keys: Keys) -> None:
        self._keys, self.named, self.multivector = keys, NamedVectors(keys), MultiVectors(keys)

    def execute(self, command: Command[T]) -> T:
        """As `Keys.execute`, which says what `command` is."""
        return self._keys.execute(command)

    def upsert_batch(self, collection: str, points: Iterable[Point]) -> int:
        """Writes or replaces `points`, one request for each, 64 of which travel at a time. Returns their number. If one fails,
        `committed` of the error says how many before it were written; those that traveled with it may have been written too."""
        done, left = 0, iter(points)
        while batch := list(islice(left, 16 * WINDOW)):
            done = _written(self._keys.execute_many([upserted(collection, point) for point in batch]), done)
        return done

    def upload(self, collection: str, vectors: Matrix, *, ids: Any = None, payloads: Sequence[Payload | None] | None = None) -> int:
        """Writes or replaces a point for each row of an array, as `upsert_batch`; ids are 0, 1, ... where no `ids`, n unsigned integers,
        are given."""
        matrix, given = _rows(vectors, ids, payloads)
        if payloads is not None or not len(matrix):
            return self.upsert_batch(collection, _points(matrix, given, payloads))
        return self._keys._upload(collection, matrix, given)


    def search_batch(self, collection: str, queries: Matrix, k: int = 10, **options: Unpack[SearchOptions]) -> list[Results[SearchResult]]:
        """One search for each row of `queries`, of shape (n, dim), all of which travel together: a list of hits for each. The first error
        is raised."""
        matrix: Any = array(queries, 2, "queries") if len(queries) else []
        return self._keys._searches(collection, matrix, k, options) if len(matrix) else []


class AsyncNamedVectors(NamedOperations, Awaited):
    """Operations on collections of named spaces over the binary protocol, as `AsyncKeys.vector.named`."""

    def __init__(self, keys: AsyncKeys) -> None:
        self._keys = keys

    async def execute(self, command: Command[T]) -> T:
        """Carries out `command`, whose name lacks the beginning that tells the family."""
        return await self._keys.execute(_of_family(_NAMED, command))


class AsyncMultiVectors(MultiVectorOperations, Awaited):
    """Operations on multi-vector collections over the binary protocol, as `AsyncKeys.vector.multivector`."""

    def __init__(self, keys: AsyncKeys) -> None:
        self._keys = keys

    async def execute(self, command: Command[T]) -> T:
        """Carries out `command`, whose name lacks the beginning that tells the family."""
        return await self._keys.execute(_of_family(_TOKENS, command))


class AsyncVectors(VectorOperations, Awaited):
    """Collections over the binary protocol; `AsyncKeys.vector` is one."""

    def __init__(self, keys: AsyncKeys) -> None:
        self._keys, self.named, self.multivector = keys, AsyncNamedVectors(keys), AsyncMultiVectors(keys)

    async def execute(self, command: Command[T]) -> T:
        """As `AsyncKeys.execute`, which says what `command` is."""
        return await self._keys.execute(command)

    async def upsert_batch(self, collection: str, points: Iterable[Point]) -> int:
        """Writes or replaces `points`, one request for each, 64 of which travel at a time. Returns their number. If one fails,
        `committed` of the error says how many before it were written; those that traveled with it may have been written too."""
        done, left = 0, iter(points)
        while batch := list(islice(left, 16 * WINDOW)):
            done = _written(await self._keys.execute_many([upserted(collection, point) for point in batch]), done)
        return done

    async def upload(self, collection: str, vectors: Matrix, *, ids: Any = None, payloads: Sequence[Payload | None] | None = None) -> int:
        """Writes or replaces a point for each row of an array, as `upsert_batch`; ids are 0, 1, ... where no `ids`, n unsigned integers,
        are given."""
        matrix, given = _rows(vectors, ids, payloads)
        return await self.upsert_batch(collection, _points(matrix, given, payloads))

    async def search_batch(self, collection: str, queries: Matrix, k: int = 10,
                           **options: Unpack[SearchOptions]) -> list[Results[SearchResult]]:  # fmt: skip
        """One search for each row of `queries`, of shape (n, dim), all of which travel together: a list of hits for each. The first error
        is raised."""
        matrix: Any = array(queries, 2, "queries") if len(queries) else []
        found = await self._keys.execute_many([searched(collection, row, k, options)[0] for row in matrix])
        for one in found:
            if isinstance(one, NighError):
                raise one
        return found


class Keys(Operations, Blocking):
    """Keys of the server at `host` and `port`. `auth_token` is an API key of at most 255 bytes, `ssl_context` how certificates are checked
    and shown, and `timeout`, in seconds, limits each wait for an answer. May be used by several threads, each of which takes a connection
    of its own from the pool, which keeps `pool_maxsize` of them. `vector` has the operations on collections."""

    def __init__(self, host: str = "127.0.0.1", port: int = 7000, *, auth_token: str | None = None, timeout: float = 30.0,
                 pool_maxsize: int = 8, ssl_context: ssl.SSLContext | None = None) -> None:  # fmt: skip
        self._address, self._timeout, self._context = (host, port), timeout, ssl_context
        self._token, self._most = _token(auth_token), pool_maxsize
        self._idle: dict[tuple[str, int], list[_Connection]] = {}
        self._pid = os.getpid()
        self.vector = Vectors(self)

    def _take(self, address: tuple[str, int]) -> _Connection | None:
        if self._pid != os.getpid():
            # Behind a fork, both processes would read each other's answers.
            self._pid, inherited, self._idle = os.getpid(), self._idle, {}
            for idle in inherited.values():
                for connection in idle:
                    connection.close()
        idle = self._idle.setdefault(address, [])
        while True:
            try:
                connection = idle.pop()
            except IndexError:
                return None
            if connection.usable():
                return connection
            connection.close()

    def _exchange(self, address: tuple[str, int], frames: bytes | memoryview, count: int, read: bool,
                  answers: list[tuple[int, bytes]]) -> None:  # fmt: skip
        while True:
            connection = self._take(address)
            fresh = connection is None
            if connection is None:
                connection = _Connection(address, self._timeout, self._context)
            try:
                connection.exchange(frames, count, answers)
            except BaseException as error:
                connection.close()
                if not isinstance(error, OSError):
                    raise
                # A pooled connection may have died idle; only reads are sent again, as a write may have been carried out.
                if read and not fresh and not isinstance(error, TimeoutError):
                    answers.clear()
                    continue
                raise TransportError(f"{address[0]}:{address[1]}: {error}") from error
            idle = self._idle.setdefault(address, [])
            if len(idle) < self._most:
                idle.append(connection)
            else:
                connection.close()
            return

    def execute(self, command: Command[T]) -> T:
        """Sends `command`, made by a function of `nigh.keys.Commands`, and follows up to three redirects. Returns its result."""
        address = self._address
        frame = _framed(command, self._token)
        for _ in range(_REDIRECTS + 1):
            answers: list[tuple[int, bytes]] = []
            self._exchange(address, frame, 1, command.read, answers)
            status, payload = answers[0]
            if status != NOT_LEADER or len(payload) <= 2:
                break
            address = _split(payload[2:].decode())
        return _result(command, status, payload)

    def execute_many(self, commands: Sequence[Command[Any]]) -> list[Any]:
        """Sends `commands` without waiting for each answer, at most 64 at a time. Returns results, or errors, in their order."""
        found: list[Any] = []
        read = all(command.read for command in commands)
        for part in _parts(commands, self._token):
            answers: list[tuple[int, bytes]] = []
            lost: TransportError | None = None
            try:
                self._exchange(self._address, b"".join(_framed(one, self._token) for one in part), len(part), read, answers)
            except TransportError as error:
                lost = error
            found += _outcomes(part[: len(answers)], answers)
            if lost is not None:
                found += [lost] * (len(part) - len(answers))
                found += [_unsent(lost)] * (len(commands) - len(found))
                break
        for at, one in enumerate(found):
            if isinstance(one, NotLeaderError) and one.value:
                try:
                    found[at] = self.execute(commands[at])
                except NighError as error:
                    found[at] = error
        return found

    def _step(self, most: int, length: int) -> int:
        """How many requests of a length are sent at once: over TLS no more than a pipeline sends before it reads."""
        duplex = self._context is None and hasattr(select, "poll")
        return max(1, min(most, (16 << 20) // length) if duplex else min(WINDOW, (1 << 20) // length))

    def _uniform(self, sample: Command[T], frames: memoryview, count: int, alone: Callable[[int], Command[T]]) -> Iterator[T]:
        """The results of requests that were laid out by numpy, all of them like `sample`; `alone` makes the one at a place. An error says
        by `committed` how many before it succeeded."""
        answers = _Decoded(sample.decode)
        lost: TransportError | None = None
        try:
            self._exchange(self._address, frames, count, sample.read, answers)
        except TransportError as error:
            lost = error
        for at, (status, payload) in enumerate(answers):
            try:
                if status == OK:
                    result: Any = payload
                    yield result
                elif status == NOT_LEADER and len(payload) > 2:
                    yield self.execute(alone(at))
                else:
                    yield _result(sample, status, payload)
            except NighError as error:
                error.committed = at
                raise
        if lost is not None:
            lost.committed = len(answers)
            raise lost

    def _upload(self, collection: str, matrix: Any, ids: Any) -> int:
        sample = upserted(collection, Point(0, matrix[0]))
        frame, done = _framed(sample, self._token), 0
        step = self._step(16 * WINDOW, len(frame))
        for start in range(0, len(ids), step):
            rows, part = matrix[start : start + step], ids[start : start + step]

            def alone(at: int, rows: Any = rows, part: Any = part) -> Command[None]:
                return upserted(collection, Point(int(part[at]), rows[at]))

            try:
                for _ in self._uniform(sample, frame_rows(frame, rows, 0, part), len(part), alone):
                    pass
            except NighError as error:
                error.committed = done + (error.committed or 0)
                raise
            done += len(part)
        return done

    def _searches(self, collection: str, matrix: Any, k: int, options: Any) -> list[Results[SearchResult]]:
        (sample, tail), found = searched(collection, matrix[0], k, options), list[Results[SearchResult]]()
        frame = _framed(sample, self._token)
        step = self._step(64 * WINDOW, len(frame))
        for start in range(0, len(matrix), step):
            rows = matrix[start : start + step]

            def alone(at: int, rows: Any = rows) -> Command[Results[SearchResult]]:
                return searched(collection, rows[at], k, options)[0]

            found += self._uniform(sample, frame_rows(frame, rows, tail), len(rows), alone)
        return found

    def pipeline(self) -> _Pipeline:
        """Collects requests that are sent together."""
        return _Pipeline(self.execute_many)

    def close(self) -> None:
        """Closes the connections that are idle."""
        for idle in self._idle.values():
            while idle:
                idle.pop().close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


class _UnsentError(TransportError):
    """The connection ended before the request was written to it."""


class _AsyncConnection:
    """One connection; requests of all tasks travel on it one behind the other, at most 64 without an answer. A request that is
    cancelled keeps its place, so that its answer is not taken for another's."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader, self.writer = reader, writer
        self.waiting: deque[asyncio.Future[tuple[int, bytes]]] = deque()
        self.room = asyncio.Semaphore(WINDOW)
        self.closed = self.retired = False
        self.task = asyncio.ensure_future(self._read())

    async def _read(self) -> None:
        cause = "it was closed"
        try:
            while True:
                head = await self.reader.readexactly(9)
                payload = await self.reader.readexactly(_length(head))
                if not self.waiting:
                    raise ConnectionError("the server sent an answer to no request")
                future = self.waiting.popleft()
                self.room.release()
                if not future.done():
                    future.set_result((head[4], payload))
        except (Exception, asyncio.CancelledError) as error:
            cause = repr(error)
        finally:
            self.closed = True
            self.writer.close()
            while self.waiting:
                future = self.waiting.popleft()
                self.room.release()
                if not future.done():
                    future.set_exception(TransportError(f"the connection ended before the answer: {cause}"))

    def retire(self) -> None:
        """Takes no more requests, and ends once nobody waits for an answer."""
        self.retired = True
        if all(future.done() for future in self.waiting):
            self.task.cancel()

    async def ask(self, frame: bytes) -> tuple[int, bytes]:
        await self.room.acquire()
        if self.closed or self.retired:
            self.room.release()
            raise _UnsentError("the connection ended before the request was sent")
        future: asyncio.Future[tuple[int, bytes]] = asyncio.get_running_loop().create_future()
        self.waiting.append(future)
        self.writer.write(frame)
        try:
            return await future
        finally:
            if self.retired:
                self.retire()


class AsyncKeys(Operations, Awaited):
    """As `Keys`, for asyncio. Tasks share one connection per server, so that concurrent requests are pipelined by themselves."""

    def __init__(self, host: str = "127.0.0.1", port: int = 7000, *, auth_token: str | None = None, timeout: float = 30.0,
                 ssl_context: ssl.SSLContext | None = None) -> None:  # fmt: skip
        self._address, self._timeout, self._context = (host, port), timeout, ssl_context
        self._token = _token(auth_token)
        self._connections: dict[tuple[str, int], _AsyncConnection] = {}
        self._loop: asyncio.AbstractEventLoop | None = None
        self.vector = AsyncVectors(self)

    async def _connection(self, address: tuple[str, int]) -> _AsyncConnection:
        loop = asyncio.get_running_loop()
        if loop is not self._loop:  # Connections and locks belong to the loop that made them.
            self._loop, self._opening, self._connections = loop, asyncio.Lock(), {}
        found = self._connections.get(address)
        if found is None or found.closed or found.retired:
            async with self._opening:
                found = self._connections.get(address)
                if found is None or found.closed or found.retired:
                    try:
                        reader, writer = await asyncio.open_connection(*address, ssl=self._context, limit=1 << 20)
                    except OSError as error:
                        raise TransportError(f"no connection to {address[0]}:{address[1]}: {error}") from error
                    found = self._connections[address] = _AsyncConnection(reader, writer)
        return found

    async def _ask(self, address: tuple[str, int], frame: bytes, read: bool) -> tuple[int, bytes]:
        connection: _AsyncConnection | None = None

        async def asked() -> tuple[int, bytes]:
            nonlocal connection
            connection = await self._connection(address)
            try:
                return await connection.ask(frame)
            except TransportError as error:
                # Only what was not sent, or changes nothing, is sent again, within the same time limit.
                if not (read or isinstance(error, _UnsentError)):
                    raise
            connection = await self._connection(address)
            return await connection.ask(frame)

        try:
            return await asyncio.wait_for(asked(), self._timeout)
        except asyncio.TimeoutError as error:
            if connection is not None:
                connection.retire()  # Its server may be gone without a word; requests to come take a new one.
            raise TransportError(f"{address[0]}:{address[1]}: no answer within {self._timeout} s") from error

    async def execute(self, command: Command[T]) -> T:
        """Sends `command`, made by a function of `nigh.keys.Commands`, and follows up to three redirects. Returns its result."""
        address, frame = self._address, _framed(command, self._token)
        for _ in range(_REDIRECTS + 1):
            status, payload = await self._ask(address, frame, command.read)
            if status != NOT_LEADER or len(payload) <= 2:
                break
            address = _split(payload[2:].decode())
        return _result(command, status, payload)

    async def execute_many(self, commands: Sequence[Command[Any]]) -> list[Any]:
        """Sends `commands` without waiting for each answer, at most 64 at a time. Returns results, or errors, in their order."""
        found: list[Any] = []
        for part in _parts(commands, self._token):
            results = await asyncio.gather(*(self.execute(command) for command in part), return_exceptions=True)
            for one in results:
                if isinstance(one, BaseException) and not isinstance(one, NighError):
                    raise one
            found += results
            lost = next((one for one in results if isinstance(one, TransportError)), None)
            if lost is not None:
                found += [_unsent(lost)] * (len(commands) - len(found))
                break
        return found

    def pipeline(self) -> _AsyncPipeline:
        """Collects requests that are sent together."""
        return _AsyncPipeline(self.execute_many)

    async def close(self) -> None:
        """Closes the connections."""
        for connection in list(self._connections.values()):
            if not connection.task.done():
                connection.task.cancel()
                await asyncio.gather(connection.task, return_exceptions=True)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()


Nigh = Keys
NighKV = Keys
