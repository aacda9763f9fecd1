"""The README and the examples do what they say."""

from __future__ import annotations

import os
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


def run(text: str, kind: str, count: int, **names: Any) -> None:
    """Runs the blocks of a kind on a page as one program."""
    blocks = re.findall(rf"```python{kind}\n(.*?)```", text, re.S)
    assert len(blocks) == count
    for block in blocks:
        exec(compile(block, "a page", "exec"), names)  # noqa: S102


def test_readme_runs() -> None:
    run((HERE / "README.md").read_text(), "", 6)


@pytest.mark.parametrize("framework", ["langchain", "llamaindex", "haystack"])
def test_what_the_readme_shows_of_a_framework_runs(framework: str, server: Any) -> None:
    pytest.importorskip({"langchain": "langchain_core", "llamaindex": "llama_index.core"}.get(framework, framework))
    if server.limited:
        pytest.skip("the page shows a server that is open")
    # The page names the address that a server has by default.
    text = (HERE / "README.md").read_text().replace('url = "http://127.0.0.1:8080"', f"url = {server.url!r}")
    run(text, f" {framework}", 1, client=server.client())


def test_the_guide_runs() -> None:
    """`NIGH_ROOT` is the tree, where the client's own directory is elsewhere."""
    guide = Path(os.environ.get("NIGH_ROOT", HERE.parent.parent)) / "docs/guide/rag-with-python.md"
    if "NIGH_ROOT" not in os.environ and not guide.exists():
        pytest.skip(f"there is no {guide}: the client's directory is alone")
    run(guide.read_text(), " client", 1)


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
    store.create_collection(metric="l2", full_text=True)
    ids = store.add(["a", "bbbb"], metadatas=[{"n": 1}, {"n": 2}])
    assert store.add(["a"]) == ids[:1] and client.count(store.collection) == 2
    assert store.search("cccc", 1)[0].content == "bbbb"
    assert store.search_groups("a", 1, "n")[0].hits
    found = store.hybrid("bbbb", 2, filter={"op": "eq", "field": "n", "value": 2})
    assert [(hit.content, hit.metadata) for hit in found] == [("bbbb", {"n": 2})] and found[0].score > 0
    assert [hit.content for hit in store.hybrid("a", 2, method="weighted", alpha=0.0)] == ["a", "bbbb"]
    with pytest.raises(ValueError, match="2 texts, 1 ids"):
        store.add(["a", "b"], ids=["1"])
    assert store.delete(ids) == 2
    # These numbers are stored by others: a change would make every text appear twice.
    assert point_id("18446744073709551615") == 2**64 - 1 and point_id("abc") == int("d8bb14d833d59559", 16)
