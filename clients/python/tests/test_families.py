"""Collections of named spaces and of tokens over the binary protocol: each operation gives what the same one gives over HTTP."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from test_vectors import same, vectors

from nigh import BadRequestError, Client, ConflictError, F, NamedPoint, NighError, NotFoundError, Sparse, TokenDocument
from nigh.keys import NamedRow, TokenRow

SPACES = {"image": {"dim": 8, "metric": "l2"}, "sound": {"dim": 3}, "words": {"sparse": True}}
QUERY = Sparse([1, 9], [1.0, 0.25])
NAMED: list[Callable[[Any, str, Any], Any]] = [
    lambda c, name, q: c.search(name, "image", q, 5),
    lambda c, name, q: c.search(name, "sound", q[:3].tolist(), 5, filter=F("year") > 1972, exact=True),
    lambda c, name, q: c.search(name, "image", q, 5, offset=2, with_payload=True, with_vector=True, with_score=True),
    lambda c, name, q: c.search(name, "image", q, 3, with_payload=["year"], read_consistency=3, max_staleness=10),
    lambda c, name, q: c.search(name, "image", q, 20, distance_threshold=9.0, read_consistency=1),
    lambda c, name, q: c.search_docs(name, "image", q, 5),
    lambda c, name, q: c.search_docs(name, "image", q, 4, with_vector=True, filter=F("year") == 1971),
    lambda c, name, q: c.sparse_search(name, "words", QUERY, 5),
    lambda c, name, q: c.sparse_search(name, "words", QUERY, 5, with_payload=True, filter=F("year") > 1971),
    lambda c, name, q: c.hybrid_search(name, 5, dense=("image", q), sparse=("words", QUERY)),
    lambda c, name, q: c.hybrid_search(name, 5, dense=("image", q), sparse=("words", QUERY), method="weighted", alpha=0.3, rrf_k=3,
                                       filter=F("year") > 1971, with_payload=True),
    lambda c, name, q: c.hybrid_search(name, 5, dense=("image", q), text="lamp"),
    lambda c, name, q: c.query(name, [{"space": "image", "dense": q}, {"space": "words", "sparse": QUERY}], k=5),
    lambda c, name, q: c.query(name, [{"space": "image", "dense": q}, {"text": "lamp"}], k=3, with_payload=True, with_vector=True),
    lambda c, name, q: c.query(name, [{"space": "image", "dense": q}], k=3, group_by="year", group_size=2),
]  # fmt: skip
TOKENS: list[Callable[[Any, str, Any], Any]] = [
    lambda c, name, q: c.search(name, q[None], 5),
    lambda c, name, q: c.search(name, [q, -q], 5, candidates_per_token=60, filter=F("year") > 1972),
    lambda c, name, q: c.search(name, [q, -q], 5, read_consistency=3, max_staleness=10, filter=F("year") > 1972),
    lambda c, name, q: c.search(name, [q, -q], 5, read_consistency=1, with_payload=["year"]),
    lambda c, name, q: c.query(name, [{"maxsim": [q, -q]}, {"text": "lamp"}], k=5),
    lambda c, name, q: c.query(name, [{"maxsim": q[None]}], k=3, with_payload=True, with_vector=True),
    lambda c, name, q: c.query(name, [{"maxsim": q[None]}], k=3, group_by="year", group_size=2),
]
WORDS = ["a red lamp", "a blue lamp", "the tank is empty", "descale the machine"]


def named_points() -> list[NamedPoint]:
    return [
        NamedPoint(at, {"image": row, "sound": row[:3]}, {"words": Sparse([at % 5, 9], [1.0, 0.5])}, {"year": 1970 + at % 7}, WORDS[at % 4])
        for at, row in enumerate(vectors(40))
    ]


def documents() -> list[TokenDocument]:
    return [
        TokenDocument(at, rows, {"year": 1970 + at % 7}, WORDS[at % 4], Sparse([at % 5, 9], [1.0, 0.5]))
        for at, rows in enumerate(vectors(120).reshape(40, 3, 8))
    ]


def shared(family: Any, name: str, http: Any) -> None:
    """What both families have, on a collection of 40 points."""
    assert family.count(name) == 40 and family.count(name, filter=F("year") == 1970) == 6
    assert family.info(name) == http.info(name)
    assert family.exists(name, 3) and not family.exists(name, 99)
    page = family.scroll(name, limit=7)
    assert same(list(page), list(http.scroll(name, limit=7)))
    assert same(list(family.scroll(name, limit=7, cursor=page.next_cursor)), list(http.scroll(name, limit=7, cursor=page.next_cursor)))
    order = {"key": "year", "desc": True}
    page = family.scroll(name, limit=7, order_by=order, filter=F("year") < 1976)
    assert same(list(page), list(http.scroll(name, limit=7, order_by=order, filter=F("year") < 1976)))
    more = family.scroll(name, limit=7, order_by=order, filter=F("year") < 1976, cursor=page.next_cursor)
    assert len({one.id for one in (*page, *more)}) == 14
    version = family.get(name, 1).version
    assert family.set_payload(name, 1, {"new": 1}, expected_version=version) and family.get(name, 1).payload == {"year": 1971, "new": 1}
    with pytest.raises(ConflictError):
        family.set_payload(name, 1, {"new": 2}, expected_version=version)
    assert family.delete_payload_keys(name, 1, ["year"]) and family.get(name, 1).payload == {"new": 1}
    assert family.overwrite_payload(name, 1, {"a": [1, 2]}) and family.get(name, 1).payload == {"a": [1, 2]}
    assert family.clear_payload(name, 1) and not family.get(name, 1).payload and not family.clear_payload(name, 99)
    assert family.delete(name, 1) and not family.delete(name, 1) and family.get(name, 1) is None
    assert family.delete_by_filter(name, F("year") == 1970) == 6 and family.count(name) == 33
    family.change_config(name, max_vectors=1000)
    family.drop_collection(name)
    family.drop_collection(name)
    with pytest.raises(NotFoundError):
        family.count(name)


def test_named_spaces(keys: Any, http: Client, name: str) -> None:
    family = keys.vector.named
    family.create_collection(name, SPACES, full_text={})
    with pytest.raises(ConflictError):
        family.create_collection(name, SPACES)
    family.add_space(name, "other", dim=2, metric="l2")
    family.drop_space(name, "other")
    for point in named_points():
        family.upsert(name, point)
    for query in vectors(2, 3):
        for at, search in enumerate(NAMED):
            one, other = search(family, name, query), search(http.named, name, query)
            assert same(one, other), f"search {at}: {one} is not {other}"
    assert family.search(name, "image", vectors(1)[0], 2, explain=True).explain
    with pytest.raises(ValueError, match="group_by"):
        family.query(name, [{"space": "image", "dense": vectors(1)[0]}], group_by="year", with_payload=True)
    # Sparse vectors do not come back over this protocol.
    known = http.named.get(name, 3)
    assert same(family.get(name, 3), replace(known, sparse_vectors={})) and family.get(name, 99) is None
    bare = family.get(name, 3, with_vector=False, with_payload=False)
    assert (bare.vectors, bare.payload) == ({}, {})
    rows = family.get_batch(name, [3, 99, 2])
    assert [row.id for row in rows] == [3, 99, 2] and rows[1] == NamedRow(99, False) and same(rows[0].point, family.get(name, 3))
    assert family.update_vectors(name, 3, vectors={"image": np.ones(8)}, sparse_vectors={"words": QUERY}, delete=["sound"])
    changed = http.named.get(name, 3)
    assert changed.vectors.keys() == {"image"} and family.sparse_search(name, "words", Sparse([1], [1.0]), filter=F("year") == 1973)
    with pytest.raises(ConflictError):
        family.update_vectors(name, 3, vectors={"image": np.zeros(8)}, expected_version=1)
    family.upsert(name, NamedPoint(3, {"image": np.ones(8)}, {}, {"year": 1973}, ttl_ms=90_000), expected_version=changed.version)
    assert 0 < family.get(name, 3).ttl_ms <= 90_000
    with pytest.raises(BadRequestError, match="dimension"):
        family.upsert(name, NamedPoint(3, {"image": [1.0]}))
    shared(family, name, http.named)


def test_documents_of_tokens(keys: Any, http: Client, name: str) -> None:
    family = keys.vector.multivector
    http.multivector.create_collection(name, 8, full_text={})
    for document in documents():
        family.add(name, document)
    for query in vectors(2, 3):
        for at, search in enumerate(TOKENS):
            one, other = search(family, name, query), search(http.multivector, name, query)
            assert same(one, other), f"search {at}: {one} is not {other}"
        weighted = {"sparse": QUERY, "method": "weighted", "alpha": 0.2, "filter": F("year") > 1971}
        for more in ({"sparse": QUERY}, {"text": "lamp"}, weighted):
            one, other = family.hybrid_search(name, query[None], 5, **more), http.multivector.hybrid_search(name, query[None], 5, **more)
            assert same([(hit.id, hit.score) for hit in one], [(hit.id, hit.score) for hit in other])
        shown = family.hybrid_search(name, query[None], 5, sparse=QUERY, with_payload=True)
        assert all(hit.metadata["year"] == 1970 + hit.id % 7 for hit in shown)
    assert same(family.get(name, 3), http.multivector.get(name, 3)) and family.get(name, 99) is None
    bare = family.get(name, 3, with_vector=False, with_payload=False)
    assert (bare.tokens, bare.payload) == (None, {})
    rows = family.get_batch(name, [3, 99, 2])
    assert [row.id for row in rows] == [3, 99, 2] and rows[1] == TokenRow(99, False) and same(rows[0].document, family.get(name, 3))
    with pytest.raises(ValueError, match="no tokens"):
        family.add(name, TokenDocument(3))
    with pytest.raises(ConflictError):
        family.add(name, documents()[3], expected_version=77)
    family.add(name, documents()[3], expected_version=family.get(name, 3).version)
    family.add(name, TokenDocument(3, np.ones((2, 8)), {"year": 1973}), expected_version=family.get(name, 3).version)
    shared(family, name, http.multivector)
    family.create_collection(name, 8, ef_search=99)
    family.add(name, documents()[0])
    assert http.multivector.count(name) == 1
    family.drop_collection(name)


def test_ids_that_are_texts(keys: Any, http: Client, name: str) -> None:
    family = keys.vector.named
    family.create_collection(name, {"image": {"dim": 2, "metric": "l2"}}, ids="string")
    family.upsert(name, NamedPoint("a/b", {"image": [1, 0]}, payload={"n": 1}))
    assert family.get(name, "a/b").id == "a/b" and family.get_batch(name, ["a/b"])[0].point.payload == {"n": 1}
    assert family.search(name, "image", [1, 0], 1, with_payload=True)[0].id == family.search_docs(name, "image", [1, 0])[0].id == "a/b"
    family.drop_collection(name)


def test_families_in_pipelines(server: Any, http: Client, keys: Any, name: str) -> None:
    keys.vector.named.create_collection(name, SPACES)
    pipeline = server.keys().pipeline()
    for point in named_points():
        pipeline.vector.named.upsert(name, point)
    pipeline.vector.named.count(name)
    pipeline.vector.multivector.count(name)
    found = pipeline.execute()
    assert found[:40] == [None] * 40 and found[40] == 40 and isinstance(found[41], NighError)

    async def run() -> list[Any]:
        async with server.async_keys() as awaited:
            family = awaited.vector.named
            return await asyncio.gather(*(family.search(name, "image", row, 1) for row in vectors(40)))

    assert [hits[0].id for hits in asyncio.run(run())] == list(range(40))
    http.named.drop_collection(name)
