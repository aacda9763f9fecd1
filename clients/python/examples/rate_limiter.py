"""At most so many calls of a client in each window of time."""

from __future__ import annotations

from nigh import Keys


class RateLimiter:
    def __init__(self, keys: Keys, *, calls: int, window_ms: int) -> None:
        self._keys, self._calls, self._window_ms = keys, calls, window_ms

    def allow(self, client: str) -> bool:
        """Counts a call; the window begins with the first one, as `incr_ex` keeps the deadline of a counter."""
        return self._keys.incr_ex(f"rate:{client}", ttl_ms=self._window_ms) <= self._calls
