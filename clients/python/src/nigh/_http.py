"""Connections over which blocking clients ask a server without TLS. A request leaves in one piece, and an answer is read into one buffer:
what a general library does beside that takes longer than the server needs for a search. TLS is left to `httpcore`, whose errors are
raised here too, so that the clients know one kind of them."""

from __future__ import annotations

import select
import socket
import threading
import time
from collections.abc import Callable
from typing import Any

import httpcore

from ._elements import Elements
from ._plan import Request, Response

# A longer body is sent on its own, as joining it to its head would copy it.
_JOINED = 64 * 1024
_MOST_HEAD = 64 * 1024
_PART = 256 * 1024
_IDLE_SECONDS = 60.0
_LONGEST_CONNECT = 30.0
Each = Callable[[Any], Any] | None


class _EarlyEndError(Exception):
    """The connection ended before the answer was whole."""


class _Connection:
    def __init__(self, address: tuple[str, int], limit: float) -> None:
        try:
            self.socket = socket.create_connection(address, min(limit, _LONGEST_CONNECT))
        except TimeoutError as error:
            raise httpcore.ConnectTimeout(str(error)) from error
        except OSError as error:
            raise httpcore.ConnectError(str(error)) from error
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.limit, self.since, self.buffer, self.last = -1.0, time.monotonic(), bytearray(), False

    def usable(self) -> bool:
        """Whether it may carry a request. It is readable between requests where the server has closed it, or has sent something unasked,
        which would be taken for the answer of the next request."""
        if self.buffer or time.monotonic() - self.since > _IDLE_SECONDS:
            return False
        if not hasattr(select, "poll"):
            return not select.select([self.socket], [], [], 0)[0]
        poll = select.poll()
        poll.register(self.socket, select.POLLIN)
        return not poll.poll(0)

    def exchange(self, head: bytes, body: bytes, limit: float, each: Each = None) -> Response:
        """Sends a request and reads its answer. With `each`, what is made of the elements of a good one is its `answer`."""
        if limit != self.limit:
            self.socket.settimeout(limit)
            self.limit = limit
        try:
            if len(body) <= _JOINED:
                self.socket.sendall(head + body)
            else:
                self.socket.sendall(head)
                self.socket.sendall(body)
        except TimeoutError as error:
            raise httpcore.WriteTimeout(str(error)) from error
        except OSError as error:
            try:  # A server that refuses a body may answer and close before it has read it.
                return self._answer(None)
            except Exception:
                raise httpcore.WriteError(str(error)) from error
        try:
            return self._answer(each)
        except TimeoutError as error:
            raise httpcore.ReadTimeout(str(error)) from error
        except OSError as error:
            raise httpcore.ReadError(str(error)) from error
        except _EarlyEndError as error:
            raise httpcore.RemoteProtocolError("the server has closed the connection before the answer was whole") from error
        except ValueError as error:
            raise httpcore.RemoteProtocolError(f"the server sent what is no answer: {error}") from error

    def _more(self) -> None:
        part = self.socket.recv(_PART)
        if not part:
            raise _EarlyEndError
        self.buffer += part

    def _line(self) -> bytes:
        """Takes the next line."""
        while (end := self.buffer.find(b"\r\n")) < 0:
            if len(self.buffer) > _MOST_HEAD:
                raise ValueError("a line of it does not end")
            self._more()
        line = bytes(self.buffer[:end])
        del self.buffer[: end + 2]
        return line

    def _exactly(self, size: int) -> bytes:
        """Takes so many bytes."""
        while len(self.buffer) < min(size, _PART):
            self._more()
        if len(self.buffer) >= size:
            taken = bytes(self.buffer[:size])
            del self.buffer[:size]
            return taken
        made, at = bytearray(size), len(self.buffer)
        made[:at] = self.buffer
        self.buffer.clear()
        view = memoryview(made)
        while at < size:
            count = self.socket.recv_into(view[at:])
            if not count:
                raise _EarlyEndError
            at += count
        return bytes(made)

    def _answer(self, each: Each) -> Response:
        while True:
            start = 0
            while (end := self.buffer.find(b"\r\n\r\n", start)) < 0:
                start = max(0, len(self.buffer) - 3)
                if start > _MOST_HEAD:
                    raise ValueError("its head does not end")
                self._more()
            lines = self.buffer[:end].split(b"\r\n")
            del self.buffer[: end + 4]
            first = lines[0]
            if not (first[:7] == b"HTTP/1." and first[8:9] == b" " and first[9:12].isdigit() and len(first[9:12]) == 3):
                raise ValueError(bytes(first[:100]))
            status = int(first[9:12])
            if status >= 200:
                break
        length = wait = coding = None
        self.last = first[7:8] == b"0"
        for line in lines[1:]:
            name, _, value = line.partition(b":")
            name = name.lower()
            if name == b"content-length":
                if not value.strip().isdigit():
                    raise ValueError(bytes(line))
                length = int(value)
            elif name == b"transfer-encoding":
                coding = bytes(value.strip().lower())
            elif name == b"connection":
                self.last = value.strip().lower() != b"keep-alive" if self.last else b"close" in value.lower()
            elif name == b"retry-after":
                wait = value.strip().decode("latin-1")
        if coding == b"chunked" and each is not None and status == 200:
            elements = Elements(each)
            self._chunks(elements.feed)
            return Response(status, b"", answer=elements)
        return Response(status, self._body(status, length, coding), (wait or "") if status >= 400 else "")

    def _body(self, status: int, length: int | None, coding: bytes | None) -> bytes:
        if status in (204, 304):
            return b""
        if coding is not None:
            if coding != b"chunked":
                raise ValueError(f"its transfer coding is {coding!r}")
            parts: list[bytes] = []
            self._chunks(parts.append)
            return b"".join(parts)
        if length is not None:
            return self._exactly(length)
        self.last = True
        try:
            while True:
                self._more()
        except _EarlyEndError:
            body = bytes(self.buffer)
            self.buffer.clear()
            return body

    def _chunks(self, take: Callable[[bytes], None]) -> None:
        """Takes the parts of a body as they come."""
        while True:
            size = int(self._line().partition(b";")[0], 16)
            if size < 0:
                raise ValueError(f"a part of it has {size} bytes")
            if size == 0:
                while self._line():
                    pass
                return
            take(self._exactly(size))
            if self._line():
                raise ValueError("a part of it is longer than it says")

    def close(self) -> None:
        self.socket.close()


class Pool:
    """At most `most` connections to one server, shared by threads; `connections` are idle, and are not used after a minute. `fixed` are the
    lines of the head that every request has, and `base` is the beginning of every path."""

    def __init__(self, address: tuple[str, int], fixed: bytes, base: str, most: int) -> None:
        self.address, self.fixed, self.base, self.most = address, fixed, base, most
        self.connections, self._room = list[_Connection](), threading.BoundedSemaphore(most)

    def request(self, made: Request, limit: float) -> Response:
        """The answer to a request, each wait for which lasts at most `limit` seconds. Raises errors of `httpcore`."""
        head = f"{made.method} {self.base}{made.path} HTTP/1.1\r\n".encode() + self.fixed
        head += b"Content-Type: %s\r\nContent-Length: %d\r\n\r\n" % (made.content_type.encode(), len(made.body))
        if not self._room.acquire(timeout=limit):
            raise httpcore.PoolTimeout(f"all {self.most} connections were in use for {limit} s")
        try:
            return self._exchanged(head, made.body, limit, made.each)
        finally:
            self._room.release()

    def _exchanged(self, head: bytes, body: bytes, limit: float, each: Each) -> Response:
        connection = None
        while connection is None:
            try:
                connection = self.connections.pop()
            except IndexError:
                connection = _Connection(self.address, limit)
                break
            if not connection.usable():
                connection.close()
                connection = None
        try:
            response = connection.exchange(head, body, limit, each)
        except BaseException:
            connection.close()
            raise
        if connection.last or connection.buffer:
            connection.close()
        else:
            connection.since = time.monotonic()
            self.connections.append(connection)
        return response

    def close(self) -> None:
        """Closes the connections that are idle."""
        while self.connections:
            self.connections.pop().close()
