"""What type checkers know of each surface. mypy reads this file; a comment `type: ignore` that is not needed is an error to it."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Coroutine, Iterator
from typing import Any

from typing_extensions import assert_type

from nigh import AsyncClient, AsyncKeys, Client, Document, Keys, Results, SearchResult
from nigh.keys import Command, Commands


def blocking(client: Client, keys: Keys) -> None:
    assert_type(client.search("c", [1.0], 3, exact=True), Results[SearchResult])
    assert_type(client.named.search_docs("c", "image", [1.0]), Results[Document])
    assert_type(client.multivector.count("c"), int)
    assert_type(client.scroll_all("c"), Iterator[Document])
    assert_type(keys.get("a"), bytes | None)
    assert_type(keys.pipeline().get("a"), None)
    assert_type(keys.pipeline().vector.search("c", [1.0]), None)
    assert_type(keys.vector.search("c", [1.0], 3, exact=True), Results[SearchResult])
    assert_type(keys.vector.upsert_batch("c", []), int)
    assert_type(keys.pipeline().execute(), list[Any])
    assert_type(Commands.incr("a", 2), Command[int])
    unbound: Callable[[Client, str], int] = Client.count
    print(unbound)
    client.search("c", [1.0], exakt=True)  # type: ignore[call-arg]
    client.search("c", [1.0], k="3")  # type: ignore[arg-type]
    client.named.search("c", [1.0])  # type: ignore[arg-type, call-arg]
    keys.incr("a", delta="1")  # type: ignore[arg-type]
    keys.pipeline().put("a")  # type: ignore[call-arg]
    keys.vector.search("c", [1.0], exakt=True)  # type: ignore[call-arg]
    Commands.get(5)  # type: ignore[arg-type]


async def awaited(client: AsyncClient, keys: AsyncKeys) -> None:
    waiting = client.search("c", [1.0])
    waiting = assert_type(waiting, Coroutine[Any, Any, Results[SearchResult]])
    assert len(await waiting)
    assert_type(await client.named.search_docs("c", "image", [1.0]), Results[Document])
    assert_type(await client.multivector.count("c"), int)
    assert_type(client.scroll_all("c"), AsyncIterator[Document])
    assert_type(await keys.get("a"), bytes | None)
    assert_type(await keys.vector.search_docs("c", [1.0]), Results[Document])
    assert_type(keys.pipeline().get("a"), None)
    assert_type(await keys.pipeline().execute(), list[Any])
    await client.search("c", [1.0], exakt=True)  # type: ignore[call-arg]
    client.count("c")  # type: ignore[unused-coroutine]
