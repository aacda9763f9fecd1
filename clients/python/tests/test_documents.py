"""The README and the examples do what they say."""

from __future__ import annotations

import re
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from nigh import TextStore
from nigh.text import FunctionEmbedder, point_id

HERE = Path(__file__).parent.parent
sys.path.insert(0, str(HERE / "examples"))


def test_readme_runs() -> None:
    blocks = re.findall(r"```python\n(.*?)```", (HERE / "README.md").read_text(), re.S)
    assert len(blocks) == 4
    names: dict[str, Any] = {}
    for block in blocks:
        exec(compile(block, "README.md", "exec"), names)  # noqa: S102


def test_examples(server: Any) -> None:
    from rate_limiter import RateLimiter
    from session_cache import Sessions

    with server.keys() as keys:
        sessions = Sessions(keys, ttl_ms=200)
        token = sessions.start({"user": 1})
        assert sessions.read(token) == {"user": 1}
        time.sleep(0.25)
        assert sessions.read(token) is None
        sessions.end(token)
        limiter = RateLimiter(keys, calls=2, window_ms=100)
        assert [limiter.allow("a") for _ in range(3)] == [True, True, False]
        time.sleep(0.15)
        assert limiter.allow("a")


def test_text_store(client: Any, fresh: Any) -> None:
    from nigh import Client

    if not isinstance(client, Client):
        return
    store = TextStore(client, fresh(), FunctionEmbedder(lambda texts: [[float(len(t)), 1.0] for t in texts]))
    store.create_collection(metric="l2")
    ids = store.add(["a", "bbbb"], metadatas=[{"n": 1}, {"n": 2}])
    assert store.add(["a"]) == ids[:1] and client.count(store.collection) == 2
    assert store.search("cccc", 1)[0].content == "bbbb"
    assert store.search_groups("a", 1, "n")[0].hits
    with pytest.raises(ValueError, match="2 texts, 1 ids"):
        store.add(["a", "b"], ids=["1"])
    assert store.delete(ids) == 2
    # These numbers are stored by others: a change would make every text appear twice.
    assert point_id("18446744073709551615") == 2**64 - 1 and point_id("abc") == int("d8bb14d833d59559", 16)
