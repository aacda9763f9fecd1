"""Every operation on keys as a command. `keys.py` carries them out, blocking or not. Keys and values are bytes; texts are sent as UTF-8."""

from __future__ import annotations

import json
import struct
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from typing_extensions import Self

from ._plan import Command
from ._surface import Made, command
from .filters import body_of

Data = bytes | bytearray | memoryview | str


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
    """A page of keys in ascending order: `items` are pairs of a key and its value, None if it was not asked for. `cursor` asks for the
    page behind it, and is empty on the last page."""

    items: list[tuple[bytes, bytes | None]]
    cursor: bytes


@dataclass(frozen=True)
class KeyIndex:
    """The index `name` of the field at `path` of the records whose keys begin with `prefix`. `counts` says that it counts keys by value,
    `enabled` that it is kept, and `ready` that it has all keys."""

    name: str
    prefix: str
    path: str
    counts: bool
    enabled: bool
    ready: bool


@dataclass(frozen=True)
class OperateResult:
    """`ok` is False if a check failed, and `failed` is its number; `values` are the returns as they are stored."""

    ok: bool
    failed: int | None = None
    values: list[bytes] = field(default_factory=list)

    def value(self, at: int = 0) -> Any:
        """The return number `at`, a single cell, as a Python value; None if there was nothing. Raises ValueError for a table or record."""
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
    """A stored cell as an int, float or bytes; None if there is nothing."""
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

    `key` is its key. With `create` an absent one is made, with `schema` (as the protocol lays it out) where that is given. `ttl_ms` sets
    its time to live, with `ttl_on_create` only where it is made; None leaves it.

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
        """Sets a field to `value`."""
        return self._op(1, path, value, type)

    def delete(self, path: Any = None) -> Self:
        """Removes a field, a row, or the whole record with its key."""
        return self._op(2, path, 0, "stored")

    def add(self, path: Any, value: int | float, type: str = "i64") -> Self:
        """Adds `value` to a number; whole numbers stop at the bounds of their type."""
        return self._op(3, path, value, type)

    def multiply(self, path: Any, value: int | float, type: str = "i64") -> Self:
        """Multiplies a number by `value`."""
        return self._op(4, path, value, type)

    def minimum(self, path: Any, value: int | float | Data, type: str = "i64") -> Self:
        """Keeps the smaller one of the field and `value`."""
        return self._op(5, path, value, type)

    def maximum(self, path: Any, value: int | float | Data, type: str = "i64") -> Self:
        """Keeps the larger one of the field and `value`."""
        return self._op(6, path, value, type)

    def stamp(self, path: Any, *, seconds: bool = False, type: str = "u64") -> Self:
        """Sets a field to the time of the server, in milliseconds since 1970, or in seconds."""
        return self._op(12, path, 0, type, aux=int(seconds))

    def only_if(self, path: Any, comparison: str, value: int | float | Data = 0, *, skip: int = 1, type: str = "stored") -> Self:
        """Skips the next `skip` operations unless the comparison with `value` holds: ==, !=, <, <=, >, >=, exists, absent."""
        return self._op(30, path, value, type, aux=_COMPARE[comparison], b=skip)

    def check(self, path: Any, comparison: str, value: int | float | Data = 0, *, type: str = "i64") -> Self:
        """Ends the call without a change unless the comparison with `value` holds."""
        return self._op(31, path, value, type, aux=_COMPARE[comparison])

    def returns(self, path: Any = None, *, count: bool = False) -> Self:
        """Adds the value at the path, or with `count` the number of its parts, to the answer."""
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


class Operations:
    """Every operation on keys."""

    @command
    def get(key: Data) -> Command[bytes | None]:
        """Returns the value, or None if there is none."""
        return Command(b"get", _key(key), bytes, read=True)

    @command
    def put(key: Data, value: Data, *, ttl_ms: int = 0) -> Command[None]:
        """Stores a value, in place of the old one and its time to live. With `ttl_ms` 0 it never expires."""
        return Command(b"put", _key(key) + _value(value) + _ttl(ttl_ms), _nothing)

    @command
    def delete(key: Data) -> Command[bool]:
        """Removes a key. Returns whether it was there."""
        return Command(b"del", _key(key), _flag)

    @command
    def exists(key: Data) -> Command[bool]:
        """Whether the key is there."""
        return Command(b"exists", _key(key), _flag, read=True)

    @command
    def ttl(key: Data) -> Command[int]:
        """Milliseconds that the key has left; -1 is for ever, -2 that it is not there."""
        return Command(b"ttl", _key(key), _whole, read=True)

    @command
    def expire(key: Data, ttl_ms: int) -> Command[bool]:
        """Sets the time to live, 0 means for ever. Returns False if the key is not there."""
        return Command(b"expire", _key(key) + _ttl(ttl_ms), lambda _: True, missing=False)

    @command
    def persist(key: Data) -> Command[bool]:
        """Removes the time to live. Returns whether there was one."""
        return Command(b"persist", _key(key), _flag)

    @command
    def incr(key: Data, delta: int = 1) -> Command[int]:
        """Adds `delta` to a counter, removes its time to live, and returns the new value. A counter that does not exist begins at 0.

        Raises BadRequestError if the value is no counter."""
        return Command(b"incr", _key(key) + struct.pack(">q", delta), _whole)

    @command
    def incr_ex(key: Data, delta: int = 1, *, ttl_ms: int) -> Command[int]:
        """Adds `delta` to a counter, which lives for `ttl_ms` from its first addition on."""
        return Command(b"incr_ex", _key(key) + struct.pack(">q", delta) + _ttl(ttl_ms), _whole)

    @command
    def set_nx(key: Data, value: Data, *, ttl_ms: int = 0) -> Command[bool]:
        """Stores a value if there is none. Returns whether it did."""
        return Command(b"set_nx", _key(key) + _value(value) + _ttl(ttl_ms), _flag)

    @command
    def getset(key: Data, value: Data, *, ttl_ms: int = 0) -> Command[bytes | None]:
        """Stores a value and returns the old one."""
        return Command(b"getset", _key(key) + _value(value) + _ttl(ttl_ms), _optional)

    @command
    def getdel(key: Data) -> Command[bytes | None]:
        """Removes a key and returns its value."""
        return Command(b"getdel", _key(key), _optional)

    @command
    def cas(key: Data, value: Data, *, expected: Data | None, ttl_ms: int = 0) -> Command[bool]:
        """Stores a value if the present one is `expected`, None if there is none. Returns whether it did."""
        old = b"\0" + _value(b"") if expected is None else b"\1" + _value(expected)
        return Command(b"cas", _key(key) + _value(value) + old + _ttl(ttl_ms), _flag)

    @command
    def cad(key: Data, expected: Data) -> Command[bool]:
        """Removes a key if its value is `expected`. Returns whether it did."""
        return Command(b"cad", _key(key) + _value(expected), _flag)

    @command
    def caex(key: Data, expected: Data, ttl_ms: int) -> Command[bool]:
        """Sets the time to live if the value is `expected`. Returns whether it did."""
        return Command(b"caex", _key(key) + _value(expected) + _ttl(ttl_ms), _flag)

    @command
    def mget(keys: Sequence[Data]) -> Command[list[bytes | None]]:
        """The values of up to 65,535 keys in their order, with None for each key that does not exist."""
        if len(keys) > 0xFFFF:
            raise ValueError(f"there are {len(keys)} keys; at most 65,535 are allowed")
        return Command(b"mget", len(keys).to_bytes(2, "big") + b"".join(map(_key, keys)), _many, read=True)

    @command
    def put_batch(items: Mapping[Any, Any], *, ttl_ms: int = 0) -> Command[int]:
        """Stores the values of `items`, each on its own. Returns their number."""
        parts = [_key(key) + _value(value) + _ttl(ttl_ms) for key, value in items.items()]
        return Command(b"put_batch", len(parts).to_bytes(4, "big") + b"".join(parts), lambda p: int.from_bytes(p[:4], "big"))

    @command
    def flush() -> Command[None]:
        """Removes all keys."""
        return Command(b"flush", b"", _nothing)

    @command
    def operate(call: Operate) -> Command[OperateResult | None]:
        """Carries out the checks and writes of `call` on its record; None if there is no such key and `create` is False."""
        return Command(b"operate", call.call(), _operated)

    @command
    def query(*, index: str = "", filter: Any = None, limit: int = 100, cursor: bytes = b"", values: bool = False,
              records: bool = False, scan: bool = False) -> Command[KeyPage]:  # fmt: skip
        """A page of at most `limit` keys, 1,000 at most, behind `cursor`, with their values (`values`) or records as JSON (`records`).
        Without an index, and with a filter that it does not serve, `scan` must be True. The server must run with `-kv-query`."""
        asked = b"" if filter is None else json.dumps(body_of(filter)).encode()
        flags = (1 if asked else 0) | (2 if cursor else 0) | (4 if scan else 0)
        wanted = 2 if records else 1 if values else 0
        args = bytes((flags,)) + _short(index) + struct.pack(">HBB", limit, wanted, 0)
        args += (_value(asked) if asked else b"") + (_value(cursor) if cursor else b"")
        return Command(b"kv_query", args, _page, read=True)

    @command
    def set_index(name: str, path: str, *, prefix: str = "", counts: bool = False, enabled: bool = True) -> Command[None]:
        """Makes the index `name` of the keys that begin with `prefix` by the field at `path` of their records; with `counts` it counts
        keys by value. `enabled=False` drops the index."""
        args = _short(name) + _short(prefix) + _short(path) + bytes((int(counts), int(enabled)))
        return Command(b"__kv_index_set__", args, _nothing)

    @command
    def list_indexes() -> Command[list[KeyIndex]]:
        """The indexes of records."""
        return Command(b"__kv_index_list__", b"", _indexes, read=True)

    @command
    def ping() -> Command[None]:
        """Asks the server for an answer, and does nothing else."""
        return Command(b"__ping__", b"", _nothing, read=True)

    @command
    def ready() -> Command[bool]:
        """True if the server takes reads and writes; otherwise a NighError says why not."""
        return Command(b"__ready__", b"", lambda _: True, read=True)


class Commands(Operations, Made):
    """Every operation on keys as a command, for `execute_many` and `execute`."""
