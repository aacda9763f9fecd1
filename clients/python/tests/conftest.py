"""One server for all tests, started by the client from the binary in `NIGH_BINARY`."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from nigh import AsyncClient, AsyncKeys, Client, Keys, PrivateServer


class Blocking:
    """Lets a test written for the blocking surface use the asynchronous one."""

    def __init__(self, inner: Any, loop: asyncio.AbstractEventLoop) -> None:
        self._inner, self._loop = inner, loop

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._inner, name)
        if inspect.iscoroutinefunction(found):
            return lambda *args, **kwargs: self._loop.run_until_complete(found(*args, **kwargs))
        return Blocking(found, self._loop) if name in ("named", "multivector") else found


@pytest.fixture(scope="session")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[PrivateServer]:
    data = tmp_path_factory.mktemp("data")
    backups = tmp_path_factory.mktemp("backups")
    made = PrivateServer(str(data), flags=["-kv-query", "-backup-dir", str(backups)])
    yield made
    made.close()


@pytest.fixture(scope="session")
def loop() -> Iterator[asyncio.AbstractEventLoop]:
    made = asyncio.new_event_loop()
    yield made
    made.close()


@pytest.fixture(scope="session", params=["sync", "async"])
def client(request: pytest.FixtureRequest, server: PrivateServer, loop: asyncio.AbstractEventLoop) -> Iterator[Any]:
    url = f"http://{server.http}"
    if request.param == "sync":
        with Client(url) as blocking:
            yield blocking
    else:
        made = Blocking(AsyncClient(url), loop)
        yield made
        made.close()


@pytest.fixture(scope="session", params=["sync", "async"])
def keys(request: pytest.FixtureRequest, server: PrivateServer, loop: asyncio.AbstractEventLoop) -> Iterator[Any]:
    host, _, port = server.tcp.rpartition(":")
    if request.param == "sync":
        with Keys(host, int(port)) as blocking:
            yield blocking
    else:

        async def make() -> AsyncKeys:
            return AsyncKeys(host, int(port))

        made = Blocking(loop.run_until_complete(make()), loop)
        yield made
        made.close()


@pytest.fixture
def fresh(client: Any) -> Iterator[Callable[[], str]]:
    """Names of collections that are removed behind the test."""
    made: list[str] = []

    def name() -> str:
        made.append(f"c{len(made)}-{id(made)}")
        return made[-1]

    yield name
    for one in made:
        for family in (client, client.named, client.multivector):
            if family.collection_exists(one):
                family.drop_collection(one)
                break
