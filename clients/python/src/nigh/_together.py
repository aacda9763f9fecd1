"""Plans of one call that are carried out at the same time."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from ._plan import Together


def in_threads(run: Callable[[Any], Any], all: Together, most: int) -> list[Any]:
    """Runs plans in threads, at most so many at a time; their results. Raises the first error, once all have ended."""
    with ThreadPoolExecutor(min(most, len(all.plans))) as threads:
        return list(threads.map(run, all.plans))


async def in_tasks(run: Callable[[Any], Coroutine[Any, Any, Any]], all: Together, most: int) -> list[Any]:
    """Runs plans in tasks, likewise."""
    room = asyncio.Semaphore(most)

    async def one(plan: Any) -> Any:
        async with room:
            return await run(plan)

    found = await asyncio.gather(*map(one, all.plans), return_exceptions=True)
    for result in found:
        if isinstance(result, BaseException):
            raise result
    return list(found)
