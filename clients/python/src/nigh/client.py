"""The clients for HTTP: `Client` blocks, `AsyncClient` is awaited. Both have the same methods, of `_operations.py`."""

from __future__ import annotations

import asyncio
import functools
import os
import ssl
import time
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator
from typing import Any, Concatenate, TypeVar
from urllib.parse import urlsplit

import httpcore
from typing_extensions import ParamSpec, Self

from . import _operations as core
from ._plan import Plan, Request, Response, wait_before_retry
from ._server import PrivateServer
from ._types import Document, TransportError

P = ParamSpec("P")
T = TypeVar("T")
_FAILED = (httpcore.NetworkError, httpcore.ProtocolError)


def _sync(plan: Callable[Concatenate[Any, P], Plan[T]]) -> Callable[Concatenate[Any, P], T]:
    @functools.wraps(plan)
    def call(self: Any, /, *args: P.args, **kwargs: P.kwargs) -> T:
        result: T = self._run(plan(self._core, *args, **kwargs))
        return result

    return call


def _async(plan: Callable[Concatenate[Any, P], Plan[T]]) -> Callable[Concatenate[Any, P], Coroutine[Any, Any, T]]:
    @functools.wraps(plan)
    async def call(self: Any, /, *args: P.args, **kwargs: P.kwargs) -> T:
        result: T = await self._run(plan(self._core, *args, **kwargs))
        return result

    return call


class _Settings:
    """Where the server is and how it is asked."""

    def __init__(self, url: str, path: str | None, api_key: str | None, timeout: float, retries: int) -> None:
        if api_key and not (api_key.isascii() and api_key.isprintable() and " " not in api_key):
            raise ValueError("api_key has spaces, line ends or characters beyond ASCII, which no API key and no token has")
        self.server = PrivateServer(path) if path is not None or url == ":memory:" else None
        if self.server is not None:
            url = f"http://{self.server.http}"
        parts = urlsplit(url)
        if parts.scheme not in ("http", "https") or not parts.hostname:
            shown = url if "@" not in url else "..." + url[url.rindex("@") :]
            raise ValueError(f"url is {shown!r}; it must be http://host:port, https://host:port or ':memory:'")
        self.base = parts.path.rstrip("/")
        self.secure, self.host = parts.scheme == "https", parts.hostname.encode()
        self.port, self.timeout, self.retries = parts.port, timeout, retries
        host = parts.netloc.rpartition("@")[2].encode()
        self.headers = [(b"Host", host), (b"Accept", b"application/json"), (b"User-Agent", b"nigh-python")]
        if api_key:
            self.headers.append((b"Authorization", b"Bearer " + api_key.encode()))

    def arguments(self, made: Request) -> tuple[Any, ...]:
        target = (self.base + made.path).encode()
        url = httpcore.URL(scheme=b"https" if self.secure else b"http", host=self.host, port=self.port, target=target)
        length = (b"Content-Length", str(len(made.body)).encode())
        headers = [*self.headers, (b"Content-Type", made.content_type.encode()), length]
        limit = self.timeout if made.timeout is None else made.timeout
        times = {"connect": min(limit, 30.0), "read": limit, "write": limit, "pool": limit}
        return made.method.encode(), url, headers, made.body, {"timeout": times}


def _response(status: int, headers: Any, body: bytes) -> Response:
    wait = next((v.decode() for k, v in headers if k.lower() == b"retry-after"), "") if status >= 400 else ""
    return Response(status, body, wait)


class _SyncTransport:
    def __init__(self, settings: _Settings, connections: int, context: ssl.SSLContext | None) -> None:
        self.settings = settings
        self._make = functools.partial(httpcore.ConnectionPool, context, max_connections=connections, keepalive_expiry=60.0)
        self.pool, self._pid = self._make(), os.getpid()

    def _own_pool(self) -> None:
        """Behind a fork, both processes would read each other's answers from the connections of the pool, whose lock may be held."""
        if self._pid != os.getpid():
            inherited, self.pool, self._pid = self.pool, self._make(), os.getpid()
            for connection in inherited.connections:
                connection.close()

    def send(self, made: Request) -> Response:
        self._own_pool()
        method, url, headers, body, extensions = self.settings.arguments(made)
        attempt = 0
        while True:
            response, failure = None, None
            try:
                answer = self.pool.request(method, url, headers=headers, content=body, extensions=extensions)
                response = _response(answer.status, answer.headers, answer.content)
            except httpcore.TimeoutException as error:
                # Sent again, the request would last longer than its limit.
                raise TransportError(f"{made.method} {made.path}: the time limit passed ({type(error).__name__})") from error
            except _FAILED as error:
                failure = error
            wait = wait_before_retry(made, attempt, self.settings.retries, response, isinstance(failure, httpcore.ConnectError))
            if wait is None:
                if response is not None:
                    return response
                raise TransportError(f"{made.method} {made.path}: {type(failure).__name__} {failure}") from failure
            time.sleep(wait)
            attempt += 1

    def close(self) -> None:
        self._own_pool()
        self.pool.close()

    def run(self, plan: Plan[T]) -> T:
        try:
            made = next(plan)
            while True:
                try:
                    response = self.send(made)
                except TransportError as error:
                    made = plan.throw(error)
                else:
                    made = plan.send(response)
        except StopIteration as end:
            result: T = end.value
            return result


class _AsyncTransport:
    def __init__(self, settings: _Settings, connections: int, context: ssl.SSLContext | None) -> None:
        self.settings = settings
        self.pool = httpcore.AsyncConnectionPool(context, max_connections=connections, keepalive_expiry=60.0)

    async def send(self, made: Request) -> Response:
        method, url, headers, body, extensions = self.settings.arguments(made)
        attempt = 0
        while True:
            response, failure = None, None
            try:
                answer = await self.pool.request(method, url, headers=headers, content=body, extensions=extensions)
                response = _response(answer.status, answer.headers, answer.content)
            except httpcore.TimeoutException as error:
                # Sent again, the request would last longer than its limit.
                raise TransportError(f"{made.method} {made.path}: the time limit passed ({type(error).__name__})") from error
            except _FAILED as error:
                failure = error
            wait = wait_before_retry(made, attempt, self.settings.retries, response, isinstance(failure, httpcore.ConnectError))
            if wait is None:
                if response is not None:
                    return response
                raise TransportError(f"{made.method} {made.path}: {type(failure).__name__} {failure}") from failure
            await asyncio.sleep(wait)
            attempt += 1

    async def run(self, plan: Plan[T]) -> T:
        try:
            made = next(plan)
            while True:
                try:
                    response = await self.send(made)
                except TransportError as error:
                    made = plan.throw(error)
                else:
                    made = plan.send(response)
        except StopIteration as end:
            result: T = end.value
            return result


class _SyncShared:
    _core: Any

    def __init__(self, transport: _SyncTransport) -> None:
        self._run: Any = transport.run

    drop_collection = _sync(core.Shared.drop_collection)
    info = _sync(core.Shared.info)
    collection_exists = _sync(core.Shared.collection_exists)
    get_config = _sync(core.Shared.get_config)
    change_config = _sync(core.Shared.change_config)
    get = _sync(core.Shared.get)
    get_batch = _sync(core.Shared.get_batch)
    delete = _sync(core.Shared.delete)
    delete_many = _sync(core.Shared.delete_many)
    delete_by_filter = _sync(core.Shared.delete_by_filter)
    scroll = _sync(core.Shared.scroll)
    count = _sync(core.Shared.count)
    facet = _sync(core.Shared.facet)
    sample = _sync(core.Shared.sample)
    set_payload = _sync(core.Shared.set_payload)
    overwrite_payload = _sync(core.Shared.overwrite_payload)
    delete_payload_keys = _sync(core.Shared.delete_payload_keys)
    clear_payload = _sync(core.Shared.clear_payload)
    set_payload_by_filter = _sync(core.Shared.set_payload_by_filter)
    overwrite_payload_by_filter = _sync(core.Shared.overwrite_payload_by_filter)
    delete_payload_keys_by_filter = _sync(core.Shared.delete_payload_keys_by_filter)
    clear_payload_by_filter = _sync(core.Shared.clear_payload_by_filter)
    bulk_build = _sync(core.Shared.bulk_build)
    operate = _sync(core.Shared.operate)

    def scroll_all(self, collection: str, *, filter: Any = None, page_size: int = 1000) -> Iterator[Document]:
        """Every point that matches, page by page."""
        cursor = ""
        while True:
            page = self.scroll(collection, filter=filter, limit=page_size, cursor=cursor)
            yield from page
            cursor = page.next_cursor
            if not cursor:
                return


class Named(_SyncShared):
    """`client.named`: collections of named spaces."""

    _core = core.Named()
    create_collection = _sync(core.Named.create_collection)
    add_space = _sync(core.Named.add_space)
    drop_space = _sync(core.Named.drop_space)
    upsert = _sync(core.Named.upsert)
    upsert_points = _sync(core.Named.upsert_points)
    bulk_stage = _sync(core.Named.bulk_stage)
    update_vectors = _sync(core.Named.update_vectors)
    search = _sync(core.Named.search)
    search_docs = _sync(core.Named.search_docs)
    search_mmr = _sync(core.Named.search_mmr)
    search_batch = _sync(core.Named.search_batch)
    sparse_search = _sync(core.Named.sparse_search)
    hybrid_search = _sync(core.Named.hybrid_search)
    query = _sync(core.Named.query)


class MultiVector(_SyncShared):
    """`client.multivector`: multi-vector collections."""

    _core = core.MultiVector()
    create_collection = _sync(core.MultiVector.create_collection)
    add = _sync(core.MultiVector.add)
    add_documents = _sync(core.MultiVector.add_documents)
    bulk_stage = _sync(core.MultiVector.bulk_stage)
    search = _sync(core.MultiVector.search)
    search_batch = _sync(core.MultiVector.search_batch)
    hybrid_search = _sync(core.MultiVector.hybrid_search)
    query = _sync(core.MultiVector.query)


class Client(_SyncShared):
    """A client for HTTP. `Client()` asks the server at 127.0.0.1:8080; `Client(":memory:")` and `Client(path="directory")` start a
    private server, which ends with the client.

    `api_key` is an API key or a JSON Web Token, `timeout` the limit of each request in seconds, `retries` how often a request that may
    be repeated is sent again, `ssl_context` how certificates are checked and shown. Errors are subclasses of `NighError`."""

    _core = core.Root()

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
    ) -> None:
        self._settings = _Settings(url, path, api_key, timeout, retries)
        self._transport = _SyncTransport(self._settings, pool_maxsize, ssl_context)
        super().__init__(self._transport)
        self.named = Named(self._transport)
        self.multivector = MultiVector(self._transport)

    @property
    def tcp_address(self) -> tuple[str, int] | None:
        """Host and port for keys of the private server; None where there is no private server."""
        if self._settings.server is None:
            return None
        host, _, port = self._settings.server.tcp.rpartition(":")
        return host, int(port)

    def close(self) -> None:
        """Closes the connections, and ends the private server."""
        self._transport.close()
        if self._settings.server is not None:
            self._settings.server.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    create_collection = _sync(core.Dense.create_collection)
    upsert = _sync(core.Dense.upsert)
    insert = _sync(core.Dense.insert)
    upsert_points = _sync(core.Dense.upsert_points)
    batch_upsert = _sync(core.Dense.batch_upsert)
    upload = _sync(core.Dense.upload)
    bulk_stage = _sync(core.Dense.bulk_stage)
    search = _sync(core.Dense.search)
    search_docs = _sync(core.Dense.search_docs)
    search_batch = _sync(core.Dense.search_batch)
    search_groups = _sync(core.Dense.search_groups)
    search_mmr = _sync(core.Dense.search_mmr)
    hybrid_search = _sync(core.Dense.hybrid_search)
    search_text = _sync(core.Dense.search_text)
    hybrid_text = _sync(core.Dense.hybrid_text)
    query = _sync(core.Dense.query)
    recommend = _sync(core.Dense.recommend)
    discover = _sync(core.Dense.discover)
    health = _sync(core.Server.health)
    ready = _sync(core.Server.ready)
    replication = _sync(core.Server.replication)
    openapi = _sync(core.Server.openapi)
    metrics = _sync(core.Server.metrics)
    key_metrics = _sync(core.Server.key_metrics)
    tasks = _sync(core.Server.tasks)
    list_collections = _sync(core.Server.list_collections)
    create_alias = _sync(core.Server.create_alias)
    delete_alias = _sync(core.Server.delete_alias)
    list_aliases = _sync(core.Server.list_aliases)
    change_aliases = _sync(core.Server.change_aliases)
    backup = _sync(core.Server.backup)
    list_backups = _sync(core.Server.list_backups)
    verify_backup = _sync(core.Server.verify_backup)
    restore_backup = _sync(core.Server.restore_backup)
    add_api_key = _sync(core.Server.add_api_key)
    list_api_keys = _sync(core.Server.list_api_keys)
    revoke_api_key = _sync(core.Server.revoke_api_key)

class _AsyncShared:
    _core: Any

    def __init__(self, transport: _AsyncTransport) -> None:
        self._run: Any = transport.run

    drop_collection = _async(core.Shared.drop_collection)
    info = _async(core.Shared.info)
    collection_exists = _async(core.Shared.collection_exists)
    get_config = _async(core.Shared.get_config)
    change_config = _async(core.Shared.change_config)
    get = _async(core.Shared.get)
    get_batch = _async(core.Shared.get_batch)
    delete = _async(core.Shared.delete)
    delete_many = _async(core.Shared.delete_many)
    delete_by_filter = _async(core.Shared.delete_by_filter)
    scroll = _async(core.Shared.scroll)
    count = _async(core.Shared.count)
    facet = _async(core.Shared.facet)
    sample = _async(core.Shared.sample)
    set_payload = _async(core.Shared.set_payload)
    overwrite_payload = _async(core.Shared.overwrite_payload)
    delete_payload_keys = _async(core.Shared.delete_payload_keys)
    clear_payload = _async(core.Shared.clear_payload)
    set_payload_by_filter = _async(core.Shared.set_payload_by_filter)
    overwrite_payload_by_filter = _async(core.Shared.overwrite_payload_by_filter)
    delete_payload_keys_by_filter = _async(core.Shared.delete_payload_keys_by_filter)
    clear_payload_by_filter = _async(core.Shared.clear_payload_by_filter)
    bulk_build = _async(core.Shared.bulk_build)
    operate = _async(core.Shared.operate)

    async def scroll_all(self, collection: str, *, filter: Any = None, page_size: int = 1000) -> AsyncIterator[Document]:
        """Every point that matches, page by page."""
        cursor = ""
        while True:
            page = await self.scroll(collection, filter=filter, limit=page_size, cursor=cursor)
            for document in page:
                yield document
            cursor = page.next_cursor
            if not cursor:
                return


class AsyncNamed(_AsyncShared):
    """`client.named`: collections of named spaces."""

    _core = core.Named()
    create_collection = _async(core.Named.create_collection)
    add_space = _async(core.Named.add_space)
    drop_space = _async(core.Named.drop_space)
    upsert = _async(core.Named.upsert)
    upsert_points = _async(core.Named.upsert_points)
    bulk_stage = _async(core.Named.bulk_stage)
    update_vectors = _async(core.Named.update_vectors)
    search = _async(core.Named.search)
    search_docs = _async(core.Named.search_docs)
    search_mmr = _async(core.Named.search_mmr)
    search_batch = _async(core.Named.search_batch)
    sparse_search = _async(core.Named.sparse_search)
    hybrid_search = _async(core.Named.hybrid_search)
    query = _async(core.Named.query)


class AsyncMultiVector(_AsyncShared):
    """`client.multivector`: multi-vector collections."""

    _core = core.MultiVector()
    create_collection = _async(core.MultiVector.create_collection)
    add = _async(core.MultiVector.add)
    add_documents = _async(core.MultiVector.add_documents)
    bulk_stage = _async(core.MultiVector.bulk_stage)
    search = _async(core.MultiVector.search)
    search_batch = _async(core.MultiVector.search_batch)
    hybrid_search = _async(core.MultiVector.hybrid_search)
    query = _async(core.MultiVector.query)


class AsyncClient(_AsyncShared):
    """A client for HTTP. `AsyncClient()` asks the server at 127.0.0.1:8080; `AsyncClient(":memory:")` and `AsyncClient(path="directory")`
    start a private server, which ends with the client.

    `api_key` is an API key or a JSON Web Token, `timeout` the limit of each request in seconds, `retries` how often a request that may
    be repeated is sent again, `ssl_context` how certificates are checked and shown. Errors are subclasses of `NighError`."""

    _core = core.Root()

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
    ) -> None:
        self._settings = _Settings(url, path, api_key, timeout, retries)
        self._transport = _AsyncTransport(self._settings, pool_maxsize, ssl_context)
        super().__init__(self._transport)
        self.named = AsyncNamed(self._transport)
        self.multivector = AsyncMultiVector(self._transport)

    @property
    def tcp_address(self) -> tuple[str, int] | None:
        """Host and port for keys of the private server; None where there is no private server."""
        if self._settings.server is None:
            return None
        host, _, port = self._settings.server.tcp.rpartition(":")
        return host, int(port)

    async def close(self) -> None:
        """Closes the connections, and ends the private server."""
        await self._transport.pool.aclose()
        if self._settings.server is not None:
            await asyncio.to_thread(self._settings.server.close)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    create_collection = _async(core.Dense.create_collection)
    upsert = _async(core.Dense.upsert)
    insert = _async(core.Dense.insert)
    upsert_points = _async(core.Dense.upsert_points)
    batch_upsert = _async(core.Dense.batch_upsert)
    upload = _async(core.Dense.upload)
    bulk_stage = _async(core.Dense.bulk_stage)
    search = _async(core.Dense.search)
    search_docs = _async(core.Dense.search_docs)
    search_batch = _async(core.Dense.search_batch)
    search_groups = _async(core.Dense.search_groups)
    search_mmr = _async(core.Dense.search_mmr)
    hybrid_search = _async(core.Dense.hybrid_search)
    search_text = _async(core.Dense.search_text)
    hybrid_text = _async(core.Dense.hybrid_text)
    query = _async(core.Dense.query)
    recommend = _async(core.Dense.recommend)
    discover = _async(core.Dense.discover)
    health = _async(core.Server.health)
    ready = _async(core.Server.ready)
    replication = _async(core.Server.replication)
    openapi = _async(core.Server.openapi)
    metrics = _async(core.Server.metrics)
    key_metrics = _async(core.Server.key_metrics)
    tasks = _async(core.Server.tasks)
    list_collections = _async(core.Server.list_collections)
    create_alias = _async(core.Server.create_alias)
    delete_alias = _async(core.Server.delete_alias)
    list_aliases = _async(core.Server.list_aliases)
    change_aliases = _async(core.Server.change_aliases)
    backup = _async(core.Server.backup)
    list_backups = _async(core.Server.list_backups)
    verify_backup = _async(core.Server.verify_backup)
    restore_backup = _async(core.Server.restore_backup)
    add_api_key = _async(core.Server.add_api_key)
    list_api_keys = _async(core.Server.list_api_keys)
    revoke_api_key = _async(core.Server.revoke_api_key)


NighClient = Client
