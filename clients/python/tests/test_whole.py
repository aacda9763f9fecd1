"""A short request is written in one piece."""

from __future__ import annotations

import socket
from typing import Any

import pytest


def test_a_request_is_written_at_once(server: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its head and its body are not two writes."""
    sizes = list[int]()
    if server.context is not None:
        pytest.skip("over TLS the parts are not seen by the socket's methods")
    real = socket.socket.send

    def counted(self: Any, data: Any, *flags: Any) -> int:
        sizes.append(len(data))
        return real(self, data, *flags)

    class Counted(socket.socket):
        send = counted

    connect = socket.create_connection

    def made(*args: Any, **kwargs: Any) -> socket.socket:
        found = connect(*args, **kwargs)
        return Counted(found.family, found.type, found.proto, found.detach())

    monkeypatch.setattr(socket, "create_connection", made)
    with server.client() as client:
        for _ in range(3):
            client.collection_exists("none")
            client.change_aliases()
        assert len(sizes) == 6, sizes
