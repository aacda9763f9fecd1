"""A short request is written in one piece."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from typing import Any

import httpcore
import pytest

from nigh._whole import Whole


@pytest.fixture
def sizes(server: Any, monkeypatch: pytest.MonkeyPatch) -> Iterator[list[int]]:
    """The sizes of what sockets send."""
    found = list[int]()
    if server.context is not None:
        pytest.skip("over TLS the parts are not seen by the socket's methods")

    class Counted(socket.socket):
        def send(self, data: Any, *flags: Any) -> int:
            found.append(len(data))
            return super().send(data, *flags)

        def sendall(self, data: Any, *flags: Any) -> None:
            found.append(len(data))
            super().sendall(data, *flags)

    connect = socket.create_connection

    def made(*args: Any, **kwargs: Any) -> socket.socket:
        one = connect(*args, **kwargs)
        return Counted(one.family, one.type, one.proto, one.detach())

    monkeypatch.setattr(socket, "create_connection", made)
    yield found


def test_a_request_is_written_at_once(server: Any, sizes: list[int]) -> None:
    """Its head and its body are not two writes."""
    with server.client() as client:
        for _ in range(3):
            client.collection_exists("none")
            client.change_aliases()
        assert len(sizes) == 6, sizes


def test_what_is_used_over_tls_writes_at_once_too(server: Any, sizes: list[int]) -> None:
    with httpcore.ConnectionPool(network_backend=Whole()) as pool:
        for _ in range(3):
            assert pool.request("POST", server.url + "/v1/aliases/batch", content=b'{"actions": []}').status < 500
        assert len(sizes) == 3, sizes
