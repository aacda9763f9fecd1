"""One server for all tests, started by the client from the binary in `NIGH_BINARY`.

`NIGH_TEST_ACCESS` limits the access to it: "open" (the default), "api-key", "certificate" (over TLS, with a client certificate and no
token) or "jwt" (over TLS, with a JSON Web Token). `NIGH_TEST_ACCESS_DIR` has what servers and clients are configured with then."""

from __future__ import annotations

import asyncio
import inspect
import os
import ssl
import time
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from nigh import AsyncClient, AsyncKeys, Client, Keys, PrivateServer

MODE = os.environ.get("NIGH_TEST_ACCESS", "open")
DIRECTORY = Path(os.environ.get("NIGH_TEST_ACCESS_DIR", "."))


class Server(PrivateServer):
    """A server with the access of this run, and what clients of it are made with."""

    def __init__(self, data: str, flags: list[str]) -> None:
        at = str(DIRECTORY)
        tls = ["-tls-cert", f"{at}/server.pem", "-tls-key", f"{at}/server.key"]
        limits = {
            "open": [],
            "api-key": ["-keys-file", f"{at}/api-key.json"],
            "certificate": [*tls, "-tls-ca", f"{at}/ca.pem", "-keys-file", f"{at}/certificate.json"],
            "jwt": [*tls, "-jwt-public-key", f"{at}/jwt.pem", "-keys-file", f"{at}/none.json"],
        }
        self.limited, self.ca = MODE != "open", DIRECTORY / "ca.pem"
        self.token = (DIRECTORY / MODE).read_text() if MODE in ("api-key", "jwt") else None
        self.context: ssl.SSLContext | None = None
        if MODE in ("certificate", "jwt"):
            self.context = ssl.create_default_context(cafile=f"{at}/ca.pem")
        if self.context is not None and MODE == "certificate":
            self.context.load_cert_chain(f"{at}/client.pem", f"{at}/client.key")
        super().__init__(data, flags=[*flags, "-grpc", "127.0.0.1:0", *limits[MODE]])
        self.grpc = self._address("grpc", 30)

    def _await_ready(self, timeout: float) -> None:
        end = time.monotonic() + timeout
        with self.client(retries=0) as client:
            while not client.ready():
                assert time.monotonic() < end
                time.sleep(0.005)

    @property
    def url(self) -> str:
        return f"{'http' if self.context is None else 'https'}://{self.http}"

    @property
    def access(self) -> dict[str, Any]:
        return {"api_key": self.token, "ssl_context": self.context}

    def client(self, **more: Any) -> Client:
        return Client(self.url, **self.access, **more)

    def grpc_access(self) -> tuple[str, dict[str, Any]]:
        """The URL and the arguments of clients that use gRPC."""
        access = self.access
        if MODE == "certificate":
            import grpc

            files = [(DIRECTORY / name).read_bytes() for name in ("ca.pem", "client.key", "client.pem")]
            access["grpc_credentials"] = grpc.ssl_channel_credentials(*files)
        return f"{'grpc' if self.context is None else 'grpcs'}://{self.grpc}", access

    def keys(self) -> Keys:
        return Keys(*self.tcp_address(), auth_token=self.token, ssl_context=self.context)

    def async_keys(self) -> AsyncKeys:
        return AsyncKeys(*self.tcp_address(), auth_token=self.token, ssl_context=self.context)

    def tcp_address(self) -> tuple[str, int]:
        if MODE == "jwt":
            pytest.skip("the binary protocol takes tokens of at most 255 bytes, and a JSON Web Token is longer")
        host, _, port = self.tcp.rpartition(":")
        return host, int(port)


class Blocking:
    """Lets a test written for the blocking surface use the asynchronous one."""

    def __init__(self, inner: Any, loop: asyncio.AbstractEventLoop) -> None:
        self._inner, self._loop = inner, loop

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._inner, name)
        if inspect.iscoroutinefunction(found):
            return lambda *args, **kwargs: self._loop.run_until_complete(found(*args, **kwargs))
        return Blocking(found, self._loop) if name in ("named", "multivector", "vector") else found


@pytest.fixture(scope="session")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    data = tmp_path_factory.mktemp("data")
    backups = tmp_path_factory.mktemp("backups")
    made = Server(str(data), ["-kv-query", "-backup-dir", str(backups)])
    yield made
    made.close()


@pytest.fixture(scope="session")
def http(server: Server) -> Iterator[Client]:
    """A blocking client, for what has one surface."""
    with server.client() as made:
        yield made


@pytest.fixture(scope="session")
def tcp(server: Server) -> Iterator[Keys]:
    with server.keys() as made:
        yield made


@pytest.fixture
def name(http: Client) -> Iterator[str]:
    """The name of a collection that is removed behind the test."""
    made = f"test-{uuid.uuid4()}"
    yield made
    if http.collection_exists(made):
        http.drop_collection(made)


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


@pytest.fixture(scope="session")
def loop() -> Iterator[asyncio.AbstractEventLoop]:
    made = asyncio.new_event_loop()
    yield made
    made.close()


@pytest.fixture(scope="session", params=["sync", "async"])
def client(request: pytest.FixtureRequest, server: Server, loop: asyncio.AbstractEventLoop) -> Iterator[Any]:
    if request.param == "sync":
        with server.client() as blocking:
            yield blocking
    else:
        made = Blocking(AsyncClient(server.url, **server.access), loop)
        yield made
        made.close()


@pytest.fixture(scope="session", params=["sync", "async"])
def keys(request: pytest.FixtureRequest, server: Server, loop: asyncio.AbstractEventLoop) -> Iterator[Any]:
    if request.param == "sync":
        with server.keys() as blocking:
            yield blocking
    else:

        async def make() -> AsyncKeys:
            return server.async_keys()

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
