"""Keys over the binary protocol: `Keys` blocks, `AsyncKeys` is awaited. Keys and values are bytes; texts are sent as UTF-8.

Many requests travel before the first answer with `pipeline()`, up to 64 at a time. What is sent in one goes to one server, in order."""

from __future__ import annotations

import asyncio
import functools
import json
import os
import select
import socket
import ssl
import struct
from collections import deque
from collections.abc import Callable, Coroutine, Generator, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Concatenate, Generic, TypeVar

from typing_extensions import ParamSpec, Self

from ._types import BadRequestError, NighError, NotLeaderError, TransportError, UnauthorizedError
from .filters import body_of

P = ParamSpec("P")
T = TypeVar("T")
Data = bytes | bytearray | memoryview | str
OK, NOT_FOUND, NOT_LEADER, ERROR, UNAUTHORIZED = range(5)
WINDOW = 64
MAX_FRAME = 16 << 20
_MAX_ANSWER = 64 << 20
_REDIRECTS = 3


def _bytes(data: Data) -> bytes:
    if isinstance(data, str):
        return data.encode()
    if isinstance(data, (bytes, bytearray, memoryview)):
        return bytes(data)
    # bytes(5) would be five zero bytes.
    raise TypeError(f"a key or value is {type(data).__name__}; it must be bytes or str")


def _key(key: Data) -> bytes:
    raw = _bytes(key)
    if len(raw) > 0xFFFF:
        raise ValueError(f"the key has {len(raw)} bytes; at most 65,535 are allowed")
    return len(raw).to_bytes(2, "big") + raw


def _value(value: Data) -> bytes:
    raw = _bytes(value)
    return len(raw).to_bytes(4, "big") + raw


def _ttl(ttl_ms: int) -> bytes:
    if ttl_ms < 0:
        raise ValueError(f"ttl_ms is {ttl_ms}; it must be at least 0")
    return ttl_ms.to_bytes(8, "big")


@dataclass(frozen=True)
class Command(Generic[T]):
    """An operation with its arguments, and how its answer is read. `read` says that it may be sent again."""

    name: bytes
    args: bytes
    decode: Callable[[bytes], T]
    missing: Any = None
    read: bool = False
    key: str | None = None


def _nothing(_: bytes) -> None:
    return None


def _flag(payload: bytes) -> bool:
    return payload[:1] == b"\1"


def _whole(payload: bytes) -> int:
    return int.from_bytes(payload[:8], "big", signed=True)


def _optional(payload: bytes) -> bytes | None:
    return payload[5 : 5 + int.from_bytes(payload[1:5], "big")] if payload[:1] == b"\1" else None


def _many(payload: bytes) -> list[bytes | None]:
    found: list[bytes | None] = []
    at = 2
    for _ in range(int.from_bytes(payload[:2], "big")):
        at += 1
        if payload[at - 1]:
            end = at + 4 + int.from_bytes(payload[at : at + 4], "big")
            found.append(payload[at + 4 : end])
            at = end
        else:
            found.append(None)
    return found


@dataclass(frozen=True)
class KeyPage:
    """A page of keys in ascending order, with their values where they were asked for; `cursor` is empty on the last page."""

    items: list[tuple[bytes, bytes | None]]
    cursor: bytes


@dataclass(frozen=True)
class KeyIndex:
    """An index of a field of records."""

    name: str
    prefix: str
    path: str
    counts: bool
    enabled: bool
    ready: bool


@dataclass(frozen=True)
class OperateResult:
    """`ok` is False where a check failed, `failed` its number; `values` are the returns as they are stored."""

    ok: bool
    failed: int | None = None
    values: list[bytes] = field(default_factory=list)

    def value(self, at: int = 0) -> Any:
        """A return that is a single cell, as a Python value; None where there was nothing."""
        return cell(self.values[at])


_INTS = {0: "B", 1: "H", 2: "I", 3: "Q", 4: "b", 5: "h", 6: "i", 7: "q", 8: "f", 9: "d"}
TYPES = {"u8": 0, "u16": 1, "u32": 2, "u64": 3, "i8": 4, "i16": 5, "i32": 6, "i64": 7, "f32": 8, "f64": 9, "uvarint": 10,
         "ivarint": 11, "bytes": 12, "stored": 255}  # fmt: skip
_COMPARE = {"==": 0, "!=": 1, "<": 2, "<=": 3, ">": 4, ">=": 5, "exists": 6, "absent": 7}


def _leb(raw: bytes, at: int) -> tuple[int, int]:
    number = shift = 0
    while True:
        byte = raw[at]
        number |= (byte & 0x7F) << shift
        at, shift = at + 1, shift + 7
        if byte < 0x80:
            return number, at


def cell(raw: bytes) -> Any:
    """A stored cell as an int, float or bytes; None where there is nothing."""
    kind = raw[0]
    if kind in _INTS:
        return struct.unpack_from("<" + _INTS[kind], raw, 1)[0]
    if kind in (10, 11):
        number, _ = _leb(raw, 1)
        return number if kind == 10 else (number >> 1) ^ -(number & 1)
    if kind == 12:
        length, at = _leb(raw, 1)
        return raw[at : at + length]
    if kind == 13:
        return raw[2 : 2 + raw[1]]
    if kind == 15:
        return None
    raise ValueError(f"{raw[:16]!r} is no single cell")


class Operate:
    """A list of checks and writes on one record, which is carried out as a whole or not at all.

    A path is the name or number of a field; `(field, row)` a row of a table; `(field, row, column)` a cell of it; `None` the record.
    Types are "u8" to "u64", "i8" to "i64", "f32", "f64", "uvarint", "ivarint", "bytes", and "stored" for the one that is there.
    A field of floats is compared with a float, or with `type="f64"`: the server takes a number as the bits that are sent.

    `keys.operate(Operate("visits").check("n", "<", 10).add("n", 1).returns("n"))`"""

    def __init__(self, key: Data, *, create: bool = True, ttl_ms: int | None = None, ttl_on_create: bool = False,
                 schema: bytes | None = None) -> None:  # fmt: skip
        self.key = key
        mode = 0 if ttl_ms is None else 2 if ttl_on_create else 1
        made = 0 if not create else 1 if schema else 2
        blob = schema or b""
        self._head = _ttl(ttl_ms or 0) + bytes((mode, made)) + len(blob).to_bytes(2, "big") + blob
        self._ops: list[bytes] = []
        self._returns: list[bytes] = []

    def call(self) -> bytes:
        """The arguments as they are sent."""
        ops, returns = len(self._ops).to_bytes(2, "big"), len(self._returns).to_bytes(2, "big")
        return b"".join((_key(self.key), self._head, ops, *self._ops, returns, *self._returns))

    def _op(self, code: int, path: Any, value: Any = 0, type: str = "i64", aux: int = 0, b: int = 0) -> Self:
        number, raw, kind = 0, b"", TYPES[type]
        if isinstance(value, (int, float)) and type in ("f32", "f64"):
            value = float(value)
        if isinstance(value, float):
            if type not in ("i64", "f32", "f64", "stored"):
                raise ValueError(f"{value!r} is no value of the type {type}")
            number = struct.unpack(">q", struct.pack(">d", value))[0]
            kind = TYPES["f64"] if type == "i64" else kind
        elif isinstance(value, int):
            # The operand is signed for every type; a larger one would arrive negative, which unsigned types take as 0.
            if not -(1 << 63) <= value < 1 << 63:
                raise ValueError(f"{value} is no value of the type {type}: operands have 64 bits with a sign")
            number = value
        else:
            raw, kind = _bytes(value), kind if type == "stored" else TYPES["bytes"]
        body = bytes((code, kind, aux)) + _path(path) + struct.pack(">qq", number, b)
        self._ops.append(body + len(raw).to_bytes(2, "big") + raw)
        return self

    def set(self, path: Any, value: int | float | Data, type: str = "i64") -> Self:
        """Sets a field."""
        return self._op(1, path, value, type)

    def delete(self, path: Any = None) -> Self:
        """Removes a field, a row, or the whole record with its key."""
        return self._op(2, path, 0, "stored")

    def add(self, path: Any, value: int | float, type: str = "i64") -> Self:
        """Adds to a number; whole numbers stop at the bounds of their type."""
        return self._op(3, path, value, type)

    def multiply(self, path: Any, value: int | float, type: str = "i64") -> Self:
        """Multiplies a number."""
        return self._op(4, path, value, type)

    def minimum(self, path: Any, value: int | float | Data, type: str = "i64") -> Self:
        """Keeps the smaller one."""
        return self._op(5, path, value, type)

    def maximum(self, path: Any, value: int | float | Data, type: str = "i64") -> Self:
        """Keeps the larger one."""
        return self._op(6, path, value, type)

    def stamp(self, path: Any, *, seconds: bool = False, type: str = "u64") -> Self:
        """Sets a field to the time of the server, in milliseconds since 1970, or in seconds."""
        return self._op(12, path, 0, type, aux=int(seconds))

    def only_if(self, path: Any, comparison: str, value: int | float | Data = 0, *, skip: int = 1, type: str = "stored") -> Self:
        """Skips the next `skip` operations unless the comparison holds: ==, !=, <, <=, >, >=, exists, absent."""
        return self._op(30, path, value, type, aux=_COMPARE[comparison], b=skip)

    def check(self, path: Any, comparison: str, value: int | float | Data = 0, *, type: str = "i64") -> Self:
        """Ends the call without a change unless the comparison holds."""
        return self._op(31, path, value, type, aux=_COMPARE[comparison])

    def returns(self, path: Any = None, *, count: bool = False) -> Self:
        """Adds the value at the path, or the number of its parts, to the answer."""
        self._returns.append(bytes((int(count),)) + _path(path))
        return self


def _segment(part: Any) -> bytes:
    if isinstance(part, int):
        made, number = bytearray(b"\0"), part
        while number >= 0x80:
            made.append(number & 0x7F | 0x80)
            number >>= 7
        made.append(number)
        return bytes(made)
    raw = _bytes(part)
    return b"\1" + bytes((len(raw),)) + raw


def _path(path: Any) -> bytes:
    if path is None:
        return b"\0"
    parts = path if isinstance(path, tuple) else (path,)
    made = bytes((len(parts),)) + _segment(parts[0])
    if len(parts) > 1:
        row = _bytes(parts[1])
        made += bytes((len(row),)) + row
    return made + _segment(parts[2]) if len(parts) > 2 else made


def _operated(payload: bytes) -> OperateResult:
    at, failed = 1, None
    if payload[0]:
        failed, at = int.from_bytes(payload[1:3], "big"), 3
    values = []
    count = int.from_bytes(payload[at : at + 2], "big")
    at += 2
    for _ in range(count):
        end = at + 4 + int.from_bytes(payload[at : at + 4], "big")
        values.append(payload[at + 4 : end])
        at = end
    return OperateResult(failed is None, failed, values)


def _page(payload: bytes) -> KeyPage:
    items: list[tuple[bytes, bytes | None]] = []
    at = 4
    for _ in range(int.from_bytes(payload[:4], "big")):
        end = at + 2 + int.from_bytes(payload[at : at + 2], "big")
        key, value, at = payload[at + 2 : end], None, end + 1
        if payload[end]:
            stop = at + 4 + int.from_bytes(payload[at : at + 4], "big")
            value, at = payload[at + 4 : stop], stop
        items.append((key, value))
    cursor = payload[at:]
    return KeyPage(items, cursor if int.from_bytes(cursor[:2], "big") else b"")


def _indexes(payload: bytes) -> list[KeyIndex]:
    found, at = [], 2
    for _ in range(int.from_bytes(payload[:2], "big")):
        texts = []
        for _ in range(3):
            texts.append(payload[at + 1 : at + 1 + payload[at]].decode())
            at += 1 + payload[at]
        name, prefix, path = texts
        found.append(KeyIndex(name, prefix, path, bool(payload[at]), bool(payload[at + 1]), bool(payload[at + 2])))
        at += 3
    return found


def _short(text: str) -> bytes:
    raw = text.encode()
    return bytes((len(raw),)) + raw


class Commands:
    """Every operation on keys."""

    @staticmethod
    def get(key: Data) -> Command[bytes | None]:
        """The value, None where there is none."""
        return Command(b"get", _key(key), bytes, read=True)

    @staticmethod
    def put(key: Data, value: Data, *, ttl_ms: int = 0) -> Command[None]:
        """Stores a value, in place of the old one and its time to live. `ttl_ms` 0 is for ever."""
        return Command(b"put", _key(key) + _value(value) + _ttl(ttl_ms), _nothing)

    @staticmethod
    def delete(key: Data) -> Command[bool]:
        """Removes a key; whether it was there."""
        return Command(b"del", _key(key), _flag)

    @staticmethod
    def exists(key: Data) -> Command[bool]:
        """Whether the key is there."""
        return Command(b"exists", _key(key), _flag, read=True)

    @staticmethod
    def ttl(key: Data) -> Command[int]:
        """Milliseconds that the key has left; -1 is for ever, -2 that it is not there."""
        return Command(b"ttl", _key(key), _whole, read=True)

    @staticmethod
    def expire(key: Data, ttl_ms: int) -> Command[bool]:
        """Sets the time to live, 0 is for ever; False where the key is not there."""
        return Command(b"expire", _key(key) + _ttl(ttl_ms), lambda _: True, missing=False)

    @staticmethod
    def persist(key: Data) -> Command[bool]:
        """Removes the time to live; whether there was one."""
        return Command(b"persist", _key(key), _flag)

    @staticmethod
    def incr(key: Data, delta: int = 1) -> Command[int]:
        """Adds to a counter, removes its time to live, and gives the new value. An absent one is 0."""
        return Command(b"incr", _key(key) + struct.pack(">q", delta), _whole)

    @staticmethod
    def incr_ex(key: Data, delta: int = 1, *, ttl_ms: int) -> Command[int]:
        """Adds to a counter, which lives for `ttl_ms` from its first addition on."""
        return Command(b"incr_ex", _key(key) + struct.pack(">q", delta) + _ttl(ttl_ms), _whole)

    @staticmethod
    def set_nx(key: Data, value: Data, *, ttl_ms: int = 0) -> Command[bool]:
        """Stores a value if there is none; whether it did."""
        return Command(b"set_nx", _key(key) + _value(value) + _ttl(ttl_ms), _flag)

    @staticmethod
    def getset(key: Data, value: Data, *, ttl_ms: int = 0) -> Command[bytes | None]:
        """Stores a value and gives the old one."""
        return Command(b"getset", _key(key) + _value(value) + _ttl(ttl_ms), _optional)

    @staticmethod
    def getdel(key: Data) -> Command[bytes | None]:
        """Removes a key and gives its value."""
        return Command(b"getdel", _key(key), _optional)

    @staticmethod
    def cas(key: Data, value: Data, *, expected: Data | None, ttl_ms: int = 0) -> Command[bool]:
        """Stores a value if the present one is `expected`, None if there is none; whether it did."""
        old = b"\0" + _value(b"") if expected is None else b"\1" + _value(expected)
        return Command(b"cas", _key(key) + _value(value) + old + _ttl(ttl_ms), _flag)

    @staticmethod
    def cad(key: Data, expected: Data) -> Command[bool]:
        """Removes a key if its value is `expected`; whether it did."""
        return Command(b"cad", _key(key) + _value(expected), _flag)

    @staticmethod
    def caex(key: Data, expected: Data, ttl_ms: int) -> Command[bool]:
        """Sets the time to live if the value is `expected`; whether it did."""
        return Command(b"caex", _key(key) + _value(expected) + _ttl(ttl_ms), _flag)

    @staticmethod
    def mget(keys: Sequence[Data]) -> Command[list[bytes | None]]:
        """The values of up to 65,535 keys in their order, None where there is none."""
        if len(keys) > 0xFFFF:
            raise ValueError(f"there are {len(keys)} keys; at most 65,535 are allowed")
        return Command(b"mget", len(keys).to_bytes(2, "big") + b"".join(map(_key, keys)), _many, read=True)

    @staticmethod
    def put_batch(items: Mapping[Any, Any], *, ttl_ms: int = 0) -> Command[int]:
        """Stores values, each on its own; how many."""
        parts = [_key(key) + _value(value) + _ttl(ttl_ms) for key, value in items.items()]
        return Command(b"put_batch", len(parts).to_bytes(4, "big") + b"".join(parts), lambda p: int.from_bytes(p[:4], "big"))

    @staticmethod
    def flush() -> Command[None]:
        """Removes all keys."""
        return Command(b"flush", b"", _nothing)

    @staticmethod
    def operate(call: Operate) -> Command[OperateResult | None]:
        """Carries out checks and writes on a record; None where there is no such key and `create` is False."""
        return Command(b"operate", call.call(), _operated)

    @staticmethod
    def query(*, index: str = "", filter: Any = None, limit: int = 100, cursor: bytes = b"", values: bool = False,
              records: bool = False, scan: bool = False) -> Command[KeyPage]:  # fmt: skip
        """A page of at most 1,000 keys. Without an index, and with a filter that it does not serve, `scan` must be True.
        The server must run with `-kv-query`."""
        asked = b"" if filter is None else json.dumps(body_of(filter)).encode()
        flags = (1 if asked else 0) | (2 if cursor else 0) | (4 if scan else 0)
        wanted = 2 if records else 1 if values else 0
        args = bytes((flags,)) + _short(index) + struct.pack(">HBB", limit, wanted, 0)
        args += (_value(asked) if asked else b"") + (_value(cursor) if cursor else b"")
        return Command(b"kv_query", args, _page, read=True)

    @staticmethod
    def set_index(name: str, path: str, *, prefix: str = "", counts: bool = False, enabled: bool = True) -> Command[None]:
        """Indexes the keys that begin with `prefix` by a field of their records; `enabled=False` drops the index."""
        args = _short(name) + _short(prefix) + _short(path) + bytes((int(counts), int(enabled)))
        return Command(b"__kv_index_set__", args, _nothing)

    @staticmethod
    def list_indexes() -> Command[list[KeyIndex]]:
        """The indexes of records."""
        return Command(b"__kv_index_list__", b"", _indexes, read=True)

    @staticmethod
    def ping() -> Command[None]:
        """Asks for an answer."""
        return Command(b"__ping__", b"", _nothing, read=True)

    @staticmethod
    def ready() -> Command[bool]:
        """Whether the server takes reads and writes; otherwise an error says why not."""
        return Command(b"__ready__", b"", lambda _: True, read=True)


def _size(command: Command[Any], token: bytes) -> int:
    size = len(token) + len(command.name) + 5 + len(command.args)
    if size > MAX_FRAME:
        raise ValueError(f"the request has {size} bytes; at most {MAX_FRAME} are allowed")
    return size


def _framed(command: Command[Any], token: bytes) -> bytes:
    head, body = _size(command, token), len(command.args)
    return b"".join((head.to_bytes(4, "big"), token, bytes((len(command.name),)), command.name, body.to_bytes(4, "big"), command.args))


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
    raise BadRequestError(f"server error: {text}", status, key=command.name.decode())


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


def _length(head: bytes | bytearray) -> int:
    """The length of an answer's payload, from its first 9 bytes. Refuses what no server of this protocol sends."""
    size, length = int.from_bytes(head[:4], "big"), int.from_bytes(head[5:9], "big")
    if size != length + 5 or size > _MAX_ANSWER:
        raise ConnectionError(f"the server sent what is no answer: {bytes(head[:9])!r}")
    return length


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

    def exchange(self, frames: bytes, count: int, answers: list[tuple[int, bytes]]) -> None:
        """Sends requests, and reads as many answers into a list, which has the first ones where this raises."""
        self.socket.sendall(frames)
        buffer, at = self.buffer, 0
        while True:
            while len(buffer) - at >= 9:
                end = at + 9 + _length(buffer[at : at + 9])
                if len(buffer) < end:
                    break
                answers.append((buffer[at + 4], bytes(buffer[at + 9 : end])))
                at = end
                if len(answers) == count:
                    del buffer[:at]
                    return
            del buffer[:at]
            at = 0
            part = self.socket.recv(1 << 18)
            if not part:
                raise ConnectionError("the server has closed the connection")
            buffer += part

    def close(self) -> None:
        self.socket.close()


def _sync(make: Callable[P, Command[T]]) -> Callable[Concatenate[Any, P], T]:
    @functools.wraps(make)
    def call(self: Any, /, *args: P.args, **kwargs: P.kwargs) -> T:
        result: T = self.execute(make(*args, **kwargs))
        return result

    return call


def _async(make: Callable[P, Command[T]]) -> Callable[Concatenate[Any, P], Coroutine[Any, Any, T]]:
    @functools.wraps(make)
    async def call(self: Any, /, *args: P.args, **kwargs: P.kwargs) -> T:
        result: T = await self.execute(make(*args, **kwargs))
        return result

    return call


def _queued(make: Callable[P, Command[T]]) -> Callable[Concatenate[Any, P], None]:
    @functools.wraps(make)
    def call(self: Any, /, *args: P.args, **kwargs: P.kwargs) -> None:
        self.commands.append(make(*args, **kwargs))

    return call


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


class _Pipeline:
    """Collects requests; `execute()` sends them and gives the results in their order. A request that fails has its error there, and so
    has each one that was lost with the connection, or was not sent because one before it was lost."""

    def __init__(self, send: Callable[[list[Command[Any]]], Any]) -> None:
        self.commands: list[Command[Any]] = []
        self._send = send

    def execute(self) -> list[Any]:
        """Sends what was collected; the results."""
        commands, self.commands = self.commands, []
        found: list[Any] = self._send(commands)
        return found

    get = _queued(Commands.get)
    put = _queued(Commands.put)
    delete = _queued(Commands.delete)
    exists = _queued(Commands.exists)
    ttl = _queued(Commands.ttl)
    expire = _queued(Commands.expire)
    persist = _queued(Commands.persist)
    incr = _queued(Commands.incr)
    incr_ex = _queued(Commands.incr_ex)
    set_nx = _queued(Commands.set_nx)
    getset = _queued(Commands.getset)
    getdel = _queued(Commands.getdel)
    cas = _queued(Commands.cas)
    cad = _queued(Commands.cad)
    caex = _queued(Commands.caex)
    mget = _queued(Commands.mget)
    put_batch = _queued(Commands.put_batch)
    flush = _queued(Commands.flush)
    operate = _queued(Commands.operate)
    query = _queued(Commands.query)
    set_index = _queued(Commands.set_index)
    list_indexes = _queued(Commands.list_indexes)
    ping = _queued(Commands.ping)
    ready = _queued(Commands.ready)


class _AsyncPipeline(_Pipeline):
    """As `_Pipeline`; `execute()` is awaited."""

    async def execute(self) -> list[Any]:  # type: ignore[override]
        """Sends what was collected; the results."""
        commands, self.commands = self.commands, []
        found: list[Any] = await self._send(commands)
        return found


class Keys:
    """Keys of the server at `host` and `port`. `timeout` is in seconds. May be used by several threads, each of which takes a
    connection of its own from the pool, which keeps `pool_maxsize` of them."""

    def __init__(self, host: str = "127.0.0.1", port: int = 7000, *, auth_token: str | None = None, timeout: float = 30.0,
                 pool_maxsize: int = 8, ssl_context: ssl.SSLContext | None = None) -> None:  # fmt: skip
        self._address, self._timeout, self._context = (host, port), timeout, ssl_context
        self._token, self._most = _token(auth_token), pool_maxsize
        self._idle: dict[tuple[str, int], list[_Connection]] = {}
        self._pid = os.getpid()

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

    def _exchange(self, address: tuple[str, int], frames: bytes, count: int, read: bool, answers: list[tuple[int, bytes]]) -> None:
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
        """Sends one request, and follows up to three redirects."""
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
        """Sends requests without waiting for each answer, at most 64 at a time; results, or errors, in their order."""
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

    get = _sync(Commands.get)
    put = _sync(Commands.put)
    delete = _sync(Commands.delete)
    exists = _sync(Commands.exists)
    ttl = _sync(Commands.ttl)
    expire = _sync(Commands.expire)
    persist = _sync(Commands.persist)
    incr = _sync(Commands.incr)
    incr_ex = _sync(Commands.incr_ex)
    set_nx = _sync(Commands.set_nx)
    getset = _sync(Commands.getset)
    getdel = _sync(Commands.getdel)
    cas = _sync(Commands.cas)
    cad = _sync(Commands.cad)
    caex = _sync(Commands.caex)
    mget = _sync(Commands.mget)
    put_batch = _sync(Commands.put_batch)
    flush = _sync(Commands.flush)
    operate = _sync(Commands.operate)
    query = _sync(Commands.query)
    set_index = _sync(Commands.set_index)
    list_indexes = _sync(Commands.list_indexes)
    ping = _sync(Commands.ping)
    ready = _sync(Commands.ready)


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


class AsyncKeys:
    """As `Keys`, for asyncio. Tasks share one connection per server, so that concurrent requests are pipelined by themselves."""

    def __init__(self, host: str = "127.0.0.1", port: int = 7000, *, auth_token: str | None = None, timeout: float = 30.0,
                 ssl_context: ssl.SSLContext | None = None) -> None:  # fmt: skip
        self._address, self._timeout, self._context = (host, port), timeout, ssl_context
        self._token = _token(auth_token)
        self._connections: dict[tuple[str, int], _AsyncConnection] = {}
        self._loop: asyncio.AbstractEventLoop | None = None

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
        """Sends one request, and follows up to three redirects."""
        address, frame = self._address, _framed(command, self._token)
        for _ in range(_REDIRECTS + 1):
            status, payload = await self._ask(address, frame, command.read)
            if status != NOT_LEADER or len(payload) <= 2:
                break
            address = _split(payload[2:].decode())
        return _result(command, status, payload)

    async def execute_many(self, commands: Sequence[Command[Any]]) -> list[Any]:
        """Sends requests without waiting for each answer, at most 64 at a time; results, or errors, in their order."""
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

    get = _async(Commands.get)
    put = _async(Commands.put)
    delete = _async(Commands.delete)
    exists = _async(Commands.exists)
    ttl = _async(Commands.ttl)
    expire = _async(Commands.expire)
    persist = _async(Commands.persist)
    incr = _async(Commands.incr)
    incr_ex = _async(Commands.incr_ex)
    set_nx = _async(Commands.set_nx)
    getset = _async(Commands.getset)
    getdel = _async(Commands.getdel)
    cas = _async(Commands.cas)
    cad = _async(Commands.cad)
    caex = _async(Commands.caex)
    mget = _async(Commands.mget)
    put_batch = _async(Commands.put_batch)
    flush = _async(Commands.flush)
    operate = _async(Commands.operate)
    query = _async(Commands.query)
    set_index = _async(Commands.set_index)
    list_indexes = _async(Commands.list_indexes)
    ping = _async(Commands.ping)
    ready = _async(Commands.ready)


Nigh = Keys
NighKV = Keys
