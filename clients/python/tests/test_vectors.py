"""Collections over the binary protocol: each operation gives what the same one gives over HTTP on the same collection."""

from __future__ import annotations

import asyncio
import base64
import math
import struct
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

from nigh import BadRequestError, Client, ConflictError, F, Geo, Keys, NotFoundError, Point, Results, Sparse
from nigh._vectors import _Asked, _hits, _page
from nigh.keys import Commands, Row, Vectors

DIM = 8


def vectors(count: int, seed: int = 7) -> Any:
    return np.random.default_rng(seed).standard_normal((count, DIM)).astype(np.float32)


def same(one: Any, other: Any) -> bool:
    """Whether two results are equal but for the last digits of floats, which travel as 32 bits here and as text there."""
    if isinstance(one, float) and isinstance(other, (int, float)):
        return math.isclose(one, other, rel_tol=1e-5, abs_tol=1e-6)
    if isinstance(one, np.ndarray) or isinstance(other, np.ndarray):
        return bool(np.allclose(one, other))
    if isinstance(one, (list, tuple)) and isinstance(other, (list, tuple)):
        return len(one) == len(other) and all(same(a, b) for a, b in zip(one, other, strict=True))
    if isinstance(one, dict) and isinstance(other, dict):
        return one.keys() == other.keys() and all(same(value, other[key]) for key, value in one.items())
    if hasattr(one, "__dataclass_fields__"):
        return type(one) is type(other) and same(vars(one), vars(other))
    return bool(one == other)


@pytest.fixture
def filled(http: Client, keys: Any, name: str) -> Iterator[str]:
    """A collection that was made and filled over the binary protocol."""
    keys.vector.create_collection(name, DIM, metric="l2", full_text=True, m=8, ef_construction=100)
    words = ["a red lamp", "a blue lamp", "the tank is empty", "descale the machine"]
    points = []
    for i, vector in enumerate(vectors(60)):
        payload = {"year": 1970 + i % 7, "tags": ["a", "b"][: 1 + i % 2], "share": i / 8}
        points.append(Point(i, vector, payload, words[i % 4], Sparse([i % 5, 9], [1.0, 0.5])))
    assert keys.vector.upsert_batch(name, points) == 60
    yield name


SEARCHES: list[Callable[[Any, str, Any], Any]] = [
    lambda c, name, q: c.search(name, q, 5),
    lambda c, name, q: c.search(name, q.tolist(), 5, filter=F("year") > 1972, exact=True),
    lambda c, name, q: c.search(name, q, 5, offset=2, with_payload=True, with_vector=True, with_score=True),
    lambda c, name, q: c.search(name, q, 3, with_payload=["year"]),
    lambda c, name, q: c.search(name, q, 3, with_vector=True, read_consistency=3, max_staleness=10),
    lambda c, name, q: c.search(name, q, 20, distance_threshold=9.0, read_consistency=1),
    lambda c, name, q: c.search_docs(name, q, 5),
    lambda c, name, q: c.search_docs(name, q, 4, with_vector=True, filter=F("tags").contains("b")),
    lambda c, name, q: c.search_groups(name, q, 3, "year", group_size=2),
    lambda c, name, q: c.search_groups(name, q, 2, "year", fetch_k=30, ef_search=50, filter=F("share") < 5.0),
    lambda c, name, q: c.hybrid_search(name, q, 5, sparse=Sparse([1, 9], [1.0, 0.25])),
    lambda c, name, q: c.hybrid_search(name, q, 5, sparse=Sparse([2], [1.0]), method="weighted", alpha=0.0, filter=F("year") > 1971),
    lambda c, name, q: c.hybrid_search(name, q, 5, sparse=Sparse([2], [1.0]), method="dbsf", dense_k=20, sparse_k=7, with_payload=True),
    lambda c, name, q: c.hybrid_search(name, q, 4),
    lambda c, name, q: c.search_text(name, "lamp", 5),
    lambda c, name, q: c.search_text(name, "red lam", 5, match={"prefix": True}, filter=F("year") == 1970),
    lambda c, name, q: c.hybrid_text(name, q, "tank empty", 5, rrf_k=10),
    lambda c, name, q: c.hybrid_text(name, q, "lamp", 5, method="weighted", alpha=0.7, with_payload=True),
    lambda c, name, q: c.recommend(name, [1, 2], 5, negative=[3]),
    lambda c, name, q: c.recommend(name, [1, 2], 5, strategy="best_score", filter=F("year") > 1971),
    lambda c, name, q: c.query(name, [{"dense": q, "k": 9}, {"sparse": Sparse([2], [1.0]), "filter": F("year") > 1971}], k=5),
    lambda c, name, q: c.query(name, [{"text": "lamp", "match": {"phrase": True}}, {"dense": q, "lane_k": 30}], k=5, method="weighted",
                               alpha=0.3),
    lambda c, name, q: c.query(name, [{"dense": q}], root={"sparse": Sparse([9], [1.0])}, mode="rerank", k=5, with_payload=True),
    lambda c, name, q: c.query(name, [{"dense": q}], k=3, group_by="year", group_size=2),
    lambda c, name, q: c.query(name, [{"query": {"prefetch": [{"dense": q}, {"text": "lamp"}], "k": 8}}, {"text": "tank"}], k=5, rrf_k=30),
    lambda c, name, q: c.query(name, [{"discover": {"context": [{"positive": 1, "negative": 2}], "target": 4}}], k=5),
    lambda c, name, q: c.query(name, [{"discover": {"context": [{"positive": 1, "negative": 2}], "target_vec": q}}], k=5),
    lambda c, name, q: c.scroll(name, limit=7),
    lambda c, name, q: c.scroll(name, limit=0, filter=F("year") == 1971),
    lambda c, name, q: c.count(name),
    lambda c, name, q: c.count(name, filter=F("year") == 1971),
]  # fmt: skip


def test_searches_give_what_they_give_over_http(http: Client, keys: Any, filled: str) -> None:
    for at, search in enumerate(SEARCHES):
        for query in vectors(3, at + 100):
            one, other = search(keys.vector, filled, query), search(http, filled, query)
            assert same(one, other), f"search {at}: {one} is not {other}"
            assert isinstance(other, int) or len(one)


def test_points_are_what_they_are_over_http(http: Client, keys: Any, filled: str) -> None:
    vector = np.arange(DIM, dtype=np.float64)[::-1]
    payload = {"where": Geo(1.5, 2.5), "nested": {"a": [1, "b", None]}, "text": "ü"}
    keys.vector.insert(filled, 2**64 - 1, vector, payload=payload, content="text", sparse=Sparse([1], [2.0]))
    with pytest.raises(ConflictError, match="already present"):
        keys.vector.insert(filled, 2**64 - 1, vector)
    one, other = keys.vector.get(filled, 2**64 - 1), http.get(filled, 2**64 - 1)
    assert same(one, other) and one.payload == payload and one.content == "text" and one.sparse == Sparse([1], [2.0])
    keys.vector.upsert(filled, 2**64 - 1, vector, payload={"a": 1}, ttl_ms=60_000, expected_version=one.version)
    with pytest.raises(ConflictError, match="version conflict"):
        keys.vector.upsert(filled, 2**64 - 1, vector, expected_version=one.version)
    found = keys.vector.get(filled, 2**64 - 1, with_vector=False)
    assert found.vector is None and found.payload == {"a": 1} and 0 < found.ttl_ms <= 60_000 and found.version == one.version + 1
    assert keys.vector.get(filled, 99) is None and not keys.vector.exists(filled, 99) and keys.vector.exists(filled, 1)
    rows = keys.vector.get_batch(filled, [3, 99, 1, 3])
    assert [(row.id, row.found) for row in rows] == [(3, True), (99, False), (1, True), (3, True)] and rows[1] == Row(99, False)
    assert same([row.point for row in rows if row.found], [http.get(filled, id) for id in (3, 1, 3)])
    assert keys.vector.delete(filled, 3) is True and keys.vector.delete(filled, 3) is False and http.get(filled, 3) is None
    with pytest.raises(ConflictError):
        keys.vector.delete(filled, 1, expected_version=999)
    assert keys.vector.set_payload(filled, 1, {"new": 1}) and http.get(filled, 1).payload["new"] == 1
    assert keys.vector.delete_payload_keys(filled, 1, ["new", "tags"]) and set(http.get(filled, 1).payload) == {"year", "share"}
    assert keys.vector.overwrite_payload(filled, 1, {"x": 1.5}) and http.get(filled, 1).payload == {"x": 1.5}
    assert keys.vector.clear_payload(filled, 1) and http.get(filled, 1).payload == {} and not keys.vector.clear_payload(filled, 999)
    assert keys.vector.delete_by_filter(filled, F("year") == 1975) == 8 and http.count(filled, filter=F("year") == 1975) == 0
    assert keys.vector.info(filled)["points"] == http.info(filled)["points"]
    keys.vector.change_config(filled, max_vectors=1000)
    assert http.get_config(filled)["config"]["max_vectors"] == 1000
    keys.vector.drop_collection(filled)
    assert not http.collection_exists(filled)
    with pytest.raises(NotFoundError, match="server error: .*unknown collection"):
        keys.vector.search(filled, vector, 3)


@pytest.mark.parametrize("order_by", [
    None,
    {"key": "share"},
    {"key": "share", "desc": True, "start_from": 3.0},
    {"key": "name", "is_string": True},
    {"key": "year", "desc": True, "tail_keys": [{"key": "name", "is_string": True}, {"key": "share"}]},
], ids=str)  # fmt: skip
def test_scrolls_go_on_behind_their_cursors(http: Client, keys: Any, filled: str, order_by: Any) -> None:
    for id in range(60):
        keys.vector.set_payload(filled, id, {"name": f"n{id * 7 % 60}"})
    found, cursor = [], ""
    while True:
        page = keys.vector.scroll(filled, limit=7, cursor=cursor, order_by=order_by, filter=F("year") < 1976)
        assert len(page) <= 7
        found += page
        cursor = page.next_cursor
        if not cursor:
            break
    assert same(found, list(http.scroll(filled, limit=0, order_by=order_by, filter=F("year") < 1976))) and len(found) > 20


def test_a_collection_has_the_configuration_that_it_has_over_http(http: Client, keys: Any, name: str) -> None:
    configs: list[dict[str, Any]] = [
        {},
        {"metric": "dot", "m": 8, "ef_construction": 50, "ef_search": 33, "seed": 5, "quant": "sq8", "rescore_factor": 3},
        {"full_text": {"analyzer": "german", "k1": 1.5, "b": 0.5}, "payload_format": "tagged", "ids": "string"},
        {"index_type": "ivf", "ivf_nlist": 4, "ivf_nprobe": 2, "ivf_train_threshold": 500},
        {"index_type": "vamana", "vamana_r": 16, "vamana_l": 50, "vamana_alpha": 1.5},
        {"quant": "pq", "quant_pq_m": 4, "pq_nbits": 4, "opq": True, "opq_iters": 2},
        {"quant": "prq", "prq_layers": 2, "full_text": True},
        {"full_text": {"k1": 2.0}},
        {"quant": "sq", "sq_bits": 6, "level0_full_degree": True, "extend_candidates": True, "extend_candidates_max": 50},
    ]
    for config in configs:
        keys.vector.create_collection(name, DIM, **config)
        one = http.get_config(name)
        http.drop_collection(name)
        http.create_collection(name, DIM, **config)
        assert one == http.get_config(name), config
        with pytest.raises(ConflictError, match="already exists"):
            keys.vector.create_collection(name, DIM)
        http.drop_collection(name)
    wrong: list[dict[str, Any]] = [{"metric": "manhattan"}, {"max_vectors": 3}, {"quant": "sq9"}, {"ids": "uuid"}, {"index_type": "tree"},
                                   {"full_text": {"k2": 1.0}}]  # fmt: skip
    for config in wrong:
        with pytest.raises(ValueError):
            keys.vector.create_collection(name, DIM, **config)


def test_ids_that_are_texts(http: Client, keys: Any, name: str) -> None:
    keys.vector.create_collection(name, 2, ids="string")
    keys.vector.upsert(name, "a/b", [1, 0], payload={"n": 1}, content="text")
    http.upsert(name, "c", [0, 1])
    assert same(keys.vector.get(name, "a/b"), http.get(name, "a/b")) and keys.vector.get(name, "a/b").payload == {"n": 1}
    assert same(keys.vector.search_docs(name, [1, 0], 2), http.search_docs(name, [1, 0], 2))
    assert same(keys.vector.search(name, [1, 0], 2, with_payload=True), http.search(name, [1, 0], 2, with_payload=True))
    assert {doc.id for doc in keys.vector.scroll(name)} == {"a/b", "c"}
    assert [row.point.id for row in keys.vector.get_batch(name, ["c", "a/b"])] == ["c", "a/b"]
    assert keys.vector.recommend(name, ["a/b"], 1) and keys.vector.delete(name, "a/b") and not keys.vector.exists(name, "a/b")


def test_many_points(http: Client, keys: Any, name: str) -> None:
    keys.vector.create_collection(name, DIM, metric="l2")
    rows = vectors(3000)
    assert keys.vector.upload(name, rows) == 3000 and http.count(name) == 3000
    assert same([row.point for row in keys.vector.get_batch(name, [0, 2999])], http.get_batch(name, [0, 2999]))
    ids = np.arange(5000, 5100)
    assert keys.vector.upload(name, rows[:100].astype(np.float64), ids=ids, payloads=[{"n": int(i)} for i in ids]) == 100
    assert http.get(name, 5050).payload == {"n": 5050} and http.count(name) == 3100
    assert keys.vector.upload(name, np.empty((0, DIM))) == 0
    with pytest.raises(ValueError, match="as many"):
        keys.vector.upload(name, rows, ids=[1])
    bad = rows[:200].copy()
    bad[150] = np.nan
    with pytest.raises(BadRequestError) as caught:
        keys.vector.upload(name, bad, ids=np.arange(10_000, 10_200))
    assert caught.value.committed == 150 and http.get(name, 10_149) is not None and http.get(name, 10_150) is None
    with pytest.raises(BadRequestError) as caught:
        keys.vector.upsert_batch(name, [Point(1, [0.0] * DIM), Point(2, [0.0] * 3)])
    assert caught.value.committed == 1 and "dimension mismatch" in caught.value.message
    with pytest.raises(ValueError, match="no vector"):
        keys.vector.upsert_batch(name, [Point(1)])


def test_many_searches(http: Client, keys: Any, filled: str) -> None:
    queries = vectors(1500, 5)
    options: list[dict[str, Any]] = [{}, {"filter": F("year") > 1971, "exact": True}, {"with_payload": True, "read_consistency": 1}]
    for more in options:
        found = keys.vector.search_batch(filled, queries, 3, **more)
        assert same(found, http.search_batch(filled, queries, 3, **more)) and len(found) == 1500 and len(found[0]) == 3
    assert keys.vector.search_batch(filled, [], 3) == []
    assert same(keys.vector.search_batch(filled, queries[:2].tolist(), 3), http.search_batch(filled, queries[:2], 3))
    with pytest.raises(NotFoundError):
        keys.vector.search_batch(filled + "-none", queries, 3)
    bad = queries.copy()
    bad[700] = np.nan
    with pytest.raises(BadRequestError):
        keys.vector.search_batch(filled, bad, 3)
    assert len(keys.vector.search(filled, queries[0], 60)) == 60
    # Answers that are many times as long as the requests, of which there are more than the server takes at once.
    assert [len(hits) for hits in keys.vector.search_batch(filled, queries, 60, with_payload=True, with_vector=True)] == [60] * 1500


def test_loading_at_once(http: Client, keys: Any, name: str) -> None:
    keys.vector.create_collection(name, DIM, metric="l2")
    rows = vectors(500)
    keys.vector.bulk_stage(name, np.arange(300), rows[:300])
    keys.vector.bulk_stage(name, range(300, 500), rows[300:])
    assert http.count(name) == 0
    keys.vector.bulk_build(name)
    assert http.count(name) == 500 and [hit.id for hit in keys.vector.search(name, rows[417], 1)] == [417]


def test_in_a_pipeline(tcp: Keys, http: Client, name: str) -> None:
    rows = vectors(100)
    pipeline = tcp.pipeline()
    pipeline.vector.create_collection(name, DIM, metric="l2")
    for id, row in enumerate(rows):
        pipeline.vector.upsert(name, id, row)
    pipeline.incr("vectors-counted", 0)
    for row in rows:
        pipeline.vector.search(name, row, 1)
    pipeline.vector.search(name + "-none", rows[0], 1)
    found = pipeline.execute()
    assert found[:101] == [None] * 101 and found[101] == 0
    assert [hits[0].id for hits in found[102:202]] == list(range(100)) and isinstance(found[202], NotFoundError)
    assert not hasattr(Commands, "vector")


def test_what_is_wrong_is_refused_before_it_is_sent(keys: Any) -> None:
    calls: list[Callable[[], Any]] = [
        lambda: keys.vector.search("c", [[1.0]], 3),
        lambda: keys.vector.hybrid_search("c", [1.0], 3, method="best"),
        lambda: keys.vector.query("c", [{"dense": [1.0], "text": "x"}]),
        lambda: keys.vector.query("c", [{"dense": [1.0], "weight": 2}]),
        lambda: keys.vector.query("c", [{}]),
        lambda: keys.vector.query("c", [{"dense": [1.0]}], mode="best"),
        lambda: keys.vector.query("c", [{"dense": [1.0]}], model="best"),
        lambda: keys.vector.recommend("c", [1], strategy="worst"),
        lambda: keys.vector.scroll("c", cursor="?"),
        lambda: keys.vector.scroll("c", order_by={"key": "a", "descending": True}),
        lambda: keys.vector.get("c", -1),
        lambda: keys.vector.get("c", 2**64),
        lambda: keys.vector.get("c" * 248, 1),
        lambda: keys.vector.search_text("c", "x", match={"fuzzy": True}),
    ]
    for call in calls:
        with pytest.raises(ValueError):
            call()
    with pytest.raises(TypeError, match="exakt"):
        keys.vector.search("c", [1.0], 3, exakt=True)
    with pytest.raises(TypeError, match="wait"):
        keys.vector.upsert("c", 1, [1.0], wait=True)


def test_an_account_of_a_search(http: Client, keys: Any, filled: str) -> None:
    query = vectors(1)[0]
    searches: list[Callable[[Any], Any]] = [
        lambda c: c.search(filled, query, 3, explain=True),
        lambda c: c.search_docs(filled, query, 3, explain=True),
        lambda c: c.query(filled, [{"dense": query}], k=3, explain=True),
    ]
    for search in searches:
        one, other = search(keys.vector), search(http)
        assert one.explain.keys() == other.explain.keys() and [hit.id for hit in one] == [hit.id for hit in other]


def test_answers_of_a_cluster() -> None:
    """Parts that gave no answer are told behind the hits; a full page without a cursor goes on behind its last point."""
    hit = struct.pack(">IQf", 1, 7, 0.5)
    whole = _hits(hit, ">Qf", _Asked({}))
    part = _hits(hit + struct.pack(">BHHH", 1, 2, 3, 9), ">Qf", _Asked({}))
    assert not whole.degraded and whole.missing == [] and isinstance(whole, Results) and whole[0].id == 7
    assert part.degraded and part.missing == [3, 9] and part == whole
    docs = struct.pack(">IQffII", 1, 7, 0.0, 0.0, 0, 0)
    assert _page(docs, 1).next_cursor == base64.urlsafe_b64encode(b"\1" + (7).to_bytes(8, "big")).decode().rstrip("=")
    assert _page(docs, 2).next_cursor == "" and _page(docs + b"\0\0\0" + struct.pack(">I", 0), 1).next_cursor == ""
    page = _page(docs + struct.pack(">BHHI", 1, 1, 4, 2) + b"ab", 1)
    assert page.degraded and page.missing == [4] and page.next_cursor == "ab"
    with pytest.raises(ConnectionError, match="were announced"):
        _hits(hit[:-1], ">Qf", _Asked({}))


def test_tasks_share_a_connection(http: Client, server: Any, name: str) -> None:
    http.create_collection(name, DIM, metric="l2")
    rows = vectors(200)
    http.upload(name, rows)

    async def run() -> list[Any]:
        async with server.async_keys() as keys:
            return await asyncio.gather(*(keys.vector.search(name, row, 1) for row in rows))

    assert [hits[0].id for hits in asyncio.run(run())] == list(range(200))


def test_the_surface_is_that_of_the_contract() -> None:
    names = ("create_collection upsert insert delete exists get get_batch scroll search search_docs search_groups hybrid_search "
             "hybrid_text recommend query upsert_batch").split()  # fmt: skip
    assert [name for name in names if not callable(getattr(Vectors, name, None))] == []
