"""Connections that send a request in one piece. The pools write its head and its body one after the other, which costs a system call
more, and has the server read twice."""

from __future__ import annotations

from typing import Any

import httpcore

# What is longer goes out at once, as joining it would cost more than it saves.
_LONGEST = 64 * 1024


class _Stream(httpcore.NetworkStream):
    def __init__(self, inner: httpcore.NetworkStream) -> None:
        self._inner, self._kept = inner, b""

    def write(self, buffer: bytes, timeout: float | None = None) -> None:
        self._kept = self._kept + buffer if self._kept else buffer
        if len(self._kept) > _LONGEST:
            self._send(timeout)

    def _send(self, timeout: float | None) -> None:
        kept, self._kept = self._kept, b""
        if kept:
            self._inner.write(kept, timeout)

    def read(self, max_bytes: int, timeout: float | None = None) -> bytes:
        self._send(timeout)
        return self._inner.read(max_bytes, timeout)

    def close(self) -> None:
        self._inner.close()

    def start_tls(self, *args: Any, **kwargs: Any) -> httpcore.NetworkStream:
        return _Stream(self._inner.start_tls(*args, **kwargs))

    def get_extra_info(self, info: str) -> Any:
        return self._inner.get_extra_info(info)


class Whole(httpcore.SyncBackend):
    """Connections for blocking clients."""

    def connect_tcp(self, *args: Any, **kwargs: Any) -> httpcore.NetworkStream:
        """A connection to a server."""
        return _Stream(super().connect_tcp(*args, **kwargs))


class _AsyncStream(httpcore.AsyncNetworkStream):
    def __init__(self, inner: httpcore.AsyncNetworkStream) -> None:
        self._inner, self._kept = inner, b""

    async def write(self, buffer: bytes, timeout: float | None = None) -> None:
        self._kept = self._kept + buffer if self._kept else buffer
        if len(self._kept) > _LONGEST:
            await self._send(timeout)

    async def _send(self, timeout: float | None) -> None:
        kept, self._kept = self._kept, b""
        if kept:
            await self._inner.write(kept, timeout)

    async def read(self, max_bytes: int, timeout: float | None = None) -> bytes:
        await self._send(timeout)
        return await self._inner.read(max_bytes, timeout)

    async def aclose(self) -> None:
        await self._inner.aclose()

    async def start_tls(self, *args: Any, **kwargs: Any) -> httpcore.AsyncNetworkStream:
        return _AsyncStream(await self._inner.start_tls(*args, **kwargs))

    def get_extra_info(self, info: str) -> Any:
        return self._inner.get_extra_info(info)


class AsyncWhole(httpcore.AnyIOBackend):
    """Connections for clients that are awaited."""

    async def connect_tcp(self, *args: Any, **kwargs: Any) -> httpcore.AsyncNetworkStream:
        """A connection to a server."""
        return _AsyncStream(await super().connect_tcp(*args, **kwargs))
