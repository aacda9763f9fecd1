"""The clients for HTTP and gRPC: `Client` blocks, `AsyncClient` is awaited. Both have the same methods, of `_operations.py`."""

from __future__ import annotations

import asyncio
import functools
import os
import ssl
import time
from collections.abc import Callable, Generator
from typing import Any, Generic, TypeVar
from urllib.parse import urlsplit

import httpcore
from typing_extensions import Self

from . import _grpc
from . import _operations as core
from ._http import Pool
from ._plan import Plan, Request, Response, Together, wait_before_retry
from ._server import PrivateServer
from ._surface import Awaited, Blocking
from ._together import in_tasks, in_threads
from ._types import TransportError
from ._whole import AsyncWhole, Whole

T = TypeVar("T")
N = TypeVar("N")
M = TypeVar("M")
# How many requests of one call travel at the same time.
_TOGETHER = 4
_FAILED = (httpcore.NetworkError, httpcore.ProtocolError, httpcore.TimeoutException)


class _Settings:
    """Where the server is and how it is asked."""

    def __init__(self, url: str, path: str | None, api_key: str | None, timeout: float, retries: int, connections: int) -> None:
        if api_key and not (api_key.isascii() and api_key.isprintable() and " " not in api_key):
            raise ValueError("api_key has spaces, line ends or characters beyond ASCII, which no API key and no token has")
        self.server = PrivateServer(path) if path is not None or url == ":memory:" else None
        if self.server is not None:
            url = f"http://{self.server.http}"
        parts = urlsplit(url)
        if parts.scheme not in ("http", "https", "grpc", "grpcs") or not parts.hostname:
            shown = url if "@" not in url else "..." + url[url.rindex("@") :]
            raise ValueError(f"url is {shown!r}; it must be http://host:port, also with https, grpc or grpcs, or ':memory:'")
        self.base, self.grpc = parts.path.rstrip("/"), parts.scheme.startswith("grpc")
        if self.grpc and self.base:
            raise ValueError(f"url has the path {self.base!r}, which gRPC does not have")
        self.secure, self.host = parts.scheme in ("https", "grpcs"), parts.hostname.encode()
        self.port, self.timeout, self.retries = parts.port, timeout, retries
        self.together = max(1, min(_TOGETHER, connections))
        if not (url.isascii() and url.isprintable() and " " not in url):
            raise ValueError("url has spaces, line ends or characters beyond ASCII")
        host = parts.netloc.rpartition("@")[2].encode()
        self.headers = [(b"Host", host), (b"Accept", b"application/json"), (b"User-Agent", b"nigh-python")]
        if api_key:
            self.headers.append((b"Authorization", b"Bearer " + api_key.encode()))

    def limit(self, made: Request) -> float:
        """The time limit of a request in seconds."""
        return self.timeout if made.timeout is None else made.timeout

    def arguments(self, made: Request) -> dict[str, Any]:
        """A request as the pools of httpcore take it."""
        target = (self.base + made.path).encode()
        url = httpcore.URL(scheme=b"https" if self.secure else b"http", host=self.host, port=self.port, target=target)
        length = (b"Content-Length", str(len(made.body)).encode())
        headers = [*self.headers, (b"Content-Type", made.content_type.encode()), length]
        limit = self.limit(made)
        times = {"connect": min(limit, 30.0), "read": limit, "write": limit, "pool": limit}
        return {"method": made.method.encode(), "url": url, "headers": headers, "content": made.body, "extensions": {"timeout": times}}

    def steps(self, plan: Plan[T]) -> Generator[Request | Together | float, Any, T]:
        """Carries out a plan but for what waits: gives each request, which is to be sent, and takes its `Response` or the error of
        the pool; gives plans that are to be carried out together, and takes their results; gives a float where so many seconds are to
        pass."""
        made: Any = next(plan)
        while True:
            try:
                response = (yield made) if isinstance(made, Together) else (yield from self._answered(made))
            except TransportError as error:
                step = functools.partial(plan.throw, error)
            else:
                step = functools.partial(plan.send, response)
            try:
                made = step()
            except StopIteration as end:
                result: T = end.value
                return result

    def _answered(self, made: Request) -> Generator[Request | float, Any, Response]:
        attempt = 0
        while True:
            answer = yield made
            response, failure = (answer, None) if isinstance(answer, Response) else (None, answer)
            if isinstance(failure, httpcore.TimeoutException):
                # Sent again, the request would last longer than its limit.
                raise TransportError(f"{made.method} {made.path}: the time limit passed ({type(failure).__name__})") from failure
            wait = wait_before_retry(made, attempt, self.retries, response, isinstance(failure, httpcore.ConnectError))
            if wait is None:
                if response is not None:
                    return response
                raise TransportError(f"{made.method} {made.path}: {type(failure).__name__} {failure}") from failure
            yield wait
            attempt += 1


def _response(answer: httpcore.Response) -> Response:
    wait = next((v.decode() for k, v in answer.headers if k.lower() == b"retry-after"), "") if answer.status >= 400 else ""
    return Response(answer.status, answer.content, wait)


class _SyncTransport:
    def __init__(self, settings: _Settings, connections: int, context: ssl.SSLContext | None) -> None:
        self.settings = settings
        if settings.secure:
            limits: dict[str, Any] = {"max_connections": connections, "keepalive_expiry": 60.0, "network_backend": Whole()}
            self._make: Callable[[], Any] = functools.partial(httpcore.ConnectionPool, context, **limits)
        else:
            fixed = b"".join(b"%s: %s\r\n" % header for header in settings.headers)
            address = (settings.host.decode(), settings.port or 80)
            self._make = functools.partial(Pool, address, fixed, settings.base, connections)
        self.pool: Any = self._make()
        self._pid = os.getpid()

    def _own_pool(self) -> None:
        """Behind a fork, both processes would read each other's answers from the connections of the pool, whose lock may be held."""
        if self._pid != os.getpid():
            inherited, self.pool, self._pid = self.pool, self._make(), os.getpid()
            for connection in inherited.connections:
                connection.close()

    def _done(self, step: Request | Together | float) -> Any:
        if isinstance(step, float):
            return time.sleep(step)
        self._own_pool()
        if isinstance(step, Together):
            return in_threads(self.run, step, self.settings.together)
        try:
            if self.settings.secure:
                return _response(self.pool.request(**self.settings.arguments(step)))
            return self.pool.request(step, self.settings.limit(step))
        except _FAILED as error:
            return error

    def run(self, plan: Plan[T]) -> T:
        steps = self.settings.steps(plan)
        done = None
        try:
            while True:
                done = self._done(steps.send(done))
        except StopIteration as end:
            result: T = end.value
            return result

    def close(self) -> None:
        self._own_pool()
        self.pool.close()


class _AsyncTransport:
    def __init__(self, settings: _Settings, connections: int, context: ssl.SSLContext | None) -> None:
        self.settings = settings
        limits: dict[str, Any] = {"max_connections": connections, "keepalive_expiry": 60.0, "network_backend": AsyncWhole()}
        self.pool = httpcore.AsyncConnectionPool(context, **limits)

    async def _done(self, step: Request | Together | float) -> Any:
        if isinstance(step, float):
            return await asyncio.sleep(step)
        if isinstance(step, Together):
            return await in_tasks(self.run, step, self.settings.together)
        try:
            return _response(await self.pool.request(**self.settings.arguments(step)))
        except _FAILED as error:
            return error

    async def run(self, plan: Plan[T]) -> T:
        steps = self.settings.steps(plan)
        done = None
        try:
            while True:
                done = await self._done(steps.send(done))
        except StopIteration as end:
            result: T = end.value
            return result

    async def close(self) -> None:
        await self.pool.aclose()


class _Family:
    def __init__(self, transport: Any) -> None:
        self._run = transport.run


class Named(_Family, core.Named, Blocking):
    """Collections of named spaces: several vectors a point, each in a space of its own."""


class AsyncNamed(_Family, core.Named, Awaited):
    """Collections of named spaces: several vectors a point, each in a space of its own."""


class MultiVector(_Family, core.MultiVector, Blocking):
    """Multi-vector collections: a matrix of token vectors a document, compared by the sum of best matches over query tokens."""


class AsyncMultiVector(_Family, core.MultiVector, Awaited):
    """Multi-vector collections: a matrix of token vectors a document, compared by the sum of best matches over query tokens."""


class _Client(core.Root, Generic[N, M]):
    """A client for HTTP. `url` is http://host:port or https://host:port; without arguments the server at 127.0.0.1:8080 is asked. With
    `":memory:"`, or with `path`, the directory of its data, it starts a private server, which ends with the client.

    With grpc://host:port or, over TLS, grpcs://host:port it uses gRPC, which needs the extra `grpc`. What the service has no method for
    raises UnsupportedError. A client certificate is then in `grpc_credentials`, made by `grpc.ssl_channel_credentials`.

    `api_key` is an API key or a JSON Web Token, `timeout` the limit of each request in seconds, `retries` how often a request that may be
    repeated is sent again, `pool_maxsize` the number of connections, `ssl_context` how certificates are checked and shown. Raises
    ValueError for a URL or an API key that cannot be one."""

    _parts: tuple[Any, Any, Any, Any]
    _transport: Any
    named: N
    multivector: M

    def __init__(
        self,
        url: str = "http://127.0.0.1:8080",
        api_key: str | None = None,
        timeout: float = 30.0,
        *,
        path: str | None = None,
        retries: int = 3,
        pool_maxsize: int = 8,
        ssl_context: ssl.SSLContext | None = None,
        grpc_credentials: Any = None,
    ) -> None:
        transport, over_grpc, named, multivector = self._parts
        self._settings = _Settings(url, path, api_key, timeout, retries, pool_maxsize)
        if self._settings.grpc:
            self._transport = over_grpc(self._settings, ssl_context, grpc_credentials)
        else:
            self._transport = transport(self._settings, pool_maxsize, ssl_context)
        self._run = self._transport.run
        self.named, self.multivector = named(self._transport), multivector(self._transport)

    @property
    def tcp_address(self) -> tuple[str, int] | None:
        """Host and port for keys of the private server; None if there is no private server."""
        if self._settings.server is None:
            return None
        host, _, port = self._settings.server.tcp.rpartition(":")
        return host, int(port)


class Client(_Client[Named, MultiVector], Blocking):
    __doc__ = _Client.__doc__
    _parts = _SyncTransport, _grpc.SyncTransport, Named, MultiVector

    def close(self) -> None:
        """Closes the connections, and ends the private server."""
        self._transport.close()
        if self._settings.server is not None:
            self._settings.server.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


class AsyncClient(_Client[AsyncNamed, AsyncMultiVector], Awaited):
    __doc__ = _Client.__doc__
    _parts = _AsyncTransport, _grpc.AsyncTransport, AsyncNamed, AsyncMultiVector

    async def close(self) -> None:
        """Closes the connections, and ends the private server."""
        await self._transport.close()
        if self._settings.server is not None:
            await asyncio.to_thread(self._settings.server.close)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()


NighClient = Client
