"""Sessions that live for half an hour from their last use on."""

from __future__ import annotations

import json
import secrets
from typing import Any

from nigh import Keys


class Sessions:
    def __init__(self, keys: Keys, *, ttl_ms: int = 30 * 60 * 1000) -> None:
        self._keys, self._ttl_ms = keys, ttl_ms

    def start(self, data: dict[str, Any]) -> str:
        """Stores a session under a new token."""
        token = secrets.token_urlsafe(24)
        self._keys.put(f"session:{token}", json.dumps(data), ttl_ms=self._ttl_ms)
        return token

    def read(self, token: str) -> dict[str, Any] | None:
        """The data of a session, whose time starts anew; None once it is over."""
        pipeline = self._keys.pipeline()
        pipeline.get(f"session:{token}")
        pipeline.expire(f"session:{token}", self._ttl_ms)
        stored, _ = pipeline.execute()
        if isinstance(stored, Exception):
            raise stored
        found: dict[str, Any] | None = None if stored is None else json.loads(stored)
        return found

    def end(self, token: str) -> None:
        """Forgets a session."""
        self._keys.delete(f"session:{token}")
