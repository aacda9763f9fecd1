"""Every operation of the server's OpenAPI document is called by a client, or stands here with the reason why it is not."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from nigh import F, NamedPoint, NighError, Operate, Point, Sparse, TokenDocument, _operations, _plan

PARTITIONS = "partitions are refused by servers of one machine"
SAME = "the same as the route under PUT, which the client uses"
VERSIONLESS = "the same as the route under /v1, which the client uses"
ABSENT = {
    "resplitCollection": PARTITIONS,
    "cleanUpResplit": PARTITIONS,
    "reshardCollection": PARTITIONS,
    "abortReshard": PARTITIONS,
    "resplitMultiVector": PARTITIONS,
    "cleanUpMultiVectorResplit": PARTITIONS,
    "reshardMultiVector": PARTITIONS,
    "abortMultiVectorReshard": PARTITIONS,
    "overwritePayload": SAME,
    "overwritePayloads": SAME,
    "overwriteNamedPayload": SAME,
    "overwriteNamedPayloads": SAME,
    "overwriteDocumentPayload": SAME,
    "overwriteDocumentPayloads": SAME,
    "metrics": VERSIONLESS,
    "kvMetrics": VERSIONLESS,
}


def shared(family: Any, name: str, first: Any, second: Any) -> None:
    """What every family does the same way, with points 1 and 2 there."""
    assert family.collection_exists(name) and not family.collection_exists(name + "-none")
    assert family.info(name)["points"] == 2
    assert family.get_config(name)
    family.change_config(name, max_vectors=1000)
    assert family.get(name, 1).payload == {"year": 1979, "tags": ["a", "b"]}
    assert family.get(name, 9) is None
    assert [point.id for point in family.get_batch(name, [1, 2, 9])] == [1, 2]
    assert [hit.id for hit in family.scroll(name, filter=F("year") > 1980)] == [2]
    page = family.scroll(name, limit=1)
    assert len(page) == 1 and len(family.scroll(name, limit=1, cursor=page.next_cursor)) == 1
    assert family.count(name) == 2 and family.count(name, filter=F("tags").contains("a")) == 1
    assert sorted(family.facet(name, "year")) == [(1979, 1), (1982, 1)]
    assert [hit.id for hit in family.sample(name, filter=F("year") == 1979)] == [1]
    family.set_payload(name, 1, {"seen": True})
    assert family.get(name, 1).payload["seen"] is True
    family.delete_payload_keys(name, 1, ["seen"])
    assert "seen" not in family.get(name, 1).payload
    family.overwrite_payload(name, 1, {"only": 1.5})
    assert family.get(name, 1).payload == {"only": 1.5}
    family.clear_payload(name, 1)
    assert family.get(name, 1).payload == {}
    assert family.set_payload_by_filter(name, F("year") == 1982, {"x": "y"}) == 1
    assert family.delete_payload_keys_by_filter(name, F("year") == 1982, ["x"]) == 1
    assert family.get(name, 2).payload == {"year": 1982}
    assert family.overwrite_payload_by_filter(name, F("year") == 1982, {"z": 0}) == 1
    assert family.clear_payload_by_filter(name, F("z") == 0) == 1
    assert family.get(name, 2).payload == {}
    assert family.operate(name, 2, "record", Operate("").add("n", 2).returns("n").call())
    assert family.delete(name, 2) is True and family.delete(name, 2) is False
    assert family.delete_by_filter(name, ~F("year").exists()) == 1
    assert family.count(name) == 0


def test_every_operation(client: Any, fresh: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: set[tuple[str, str]] = set()
    make = _plan.request

    def recorded(method: str, template: str, *args: Any, **more: Any) -> Any:
        asked.add((method.lower(), template))
        return make(method, template, *args, **more)

    monkeypatch.setattr(_operations, "request", recorded)
    one, two = {"year": 1979, "tags": ["a", "b"]}, {"year": 1982}

    dense = fresh()
    client.create_collection(dense, 2, full_text=True)
    client.upsert(dense, 1, [1.0, 0.0], payload=one, content="a crew in the dark", sparse=Sparse([1], [1.0]))
    client.upsert_points(dense, [Point(2, np.array([0.5, 0.5]), two, "a crew in the ice", Sparse([1, 3], [0.5, 1.0]))])
    assert client.batch_upsert(dense, [3], np.ones((1, 2))) == 1 and client.delete_many(dense, [3]) == 1
    assert [hit.id for hit in client.search(dense, [1, 0], 2)] == [1, 2]
    assert [hit.id for hit in client.search(dense, [1, 0], 2, exact=True)] == [1, 2]
    assert client.search_docs(dense, np.array([1, 0]), 1, filter=F("year") > 1980)[0].content == "a crew in the ice"
    assert [len(hits) for hits in client.search_batch(dense, np.eye(2), 1)] == [1, 1]
    assert {group.key for group in client.search_groups(dense, [1, 0], 2, "year")} == {1979, 1982}
    assert len(client.search_mmr(dense, [1, 0], 2, diversity=0.5)) == 2
    assert client.hybrid_search(dense, [1, 0], 2, sparse=Sparse([3], [1.0]))
    assert [hit.id for hit in client.search_text(dense, "ice", 2)] == [2]
    assert client.hybrid_text(dense, [1, 0], "ice", 2)[0].id in (1, 2)
    assert client.query(dense, [{"dense": np.array([1, 0])}, {"sparse": Sparse([3], [1.0])}], k=1)
    assert [hit.id for hit in client.recommend(dense, [1], 1)] == [2]
    assert client.discover(dense, [(1, 2)], 2, target=1) is not None
    shared(client, dense, one, two)
    assert client.bulk_stage(fresh_dense(client, fresh()), [1, 2], np.eye(2)) == 2

    built = fresh_dense(client, fresh())
    client.bulk_stage(built, [1, 2], np.eye(2))
    client.bulk_build(built)
    assert client.count(built) == 2

    spaces = {"image": {"dim": 2, "metric": "l2"}, "words": {"sparse": True}}
    named = fresh()
    client.named.create_collection(named, spaces, full_text={})
    client.named.add_space(named, "sound", dim=3, metric="l2")
    client.named.drop_space(named, "sound")
    client.named.upsert(named, NamedPoint(1, {"image": [1.0, 0.0]}, {"words": Sparse([1], [1.0])}, one, "dark"))
    client.named.upsert_points(named, [NamedPoint(2, {"image": np.array([0.0, 1.0])}, {}, two)])
    client.named.update_vectors(named, 2, sparse_vectors={"words": Sparse([2], [1.0])})
    assert [hit.id for hit in client.named.search(named, "image", [1, 0], 1)] == [1]
    assert client.named.search_docs(named, "image", [1, 0], 1)[0].content == "dark"
    assert len(client.named.search_mmr(named, "image", [1, 0], 2)) == 2
    assert [len(hits) for hits in client.named.search_batch(named, [("image", [1, 0]), ("words", Sparse([2], [1.0]))])] == [2, 1]
    assert [hit.id for hit in client.named.sparse_search(named, "words", Sparse([2], [1.0]))] == [2]
    assert client.named.hybrid_search(named, dense=("image", [1, 0]), sparse=("words", Sparse([1], [1.0])))[0].id == 1
    assert client.named.query(named, [{"space": "image", "dense": [1, 0]}], k=1)[0].id == 1
    assert client.named.delete_many(named, [9]) == 0
    shared(client.named, named, one, two)
    staged = fresh()
    client.named.create_collection(staged, spaces)
    assert client.named.bulk_stage(staged, [NamedPoint(1, {"image": [0, 1]})]) == 1
    client.named.bulk_build(staged)
    assert client.named.count(staged) == 1

    tokens = fresh()
    client.multivector.create_collection(tokens, 2)
    client.multivector.add(tokens, TokenDocument(1, np.eye(2), one))
    assert client.multivector.add_documents(tokens, [TokenDocument(2, [[-1.0, 0.0]], two)]) == 1
    assert client.multivector.search(tokens, np.eye(2), 1)[0].id == 1
    assert [len(hits) for hits in client.multivector.search_batch(tokens, [np.eye(2)], 2)] == [2]
    assert client.multivector.query(tokens, [{"maxsim": np.eye(2)}], k=1)[0].id == 1
    assert client.multivector.hybrid_search(tokens, np.eye(2), 1, sparse=Sparse([1], [1.0]))[0].id == 1
    shared(client.multivector, tokens, one, two)
    staged_tokens = fresh()
    client.multivector.create_collection(staged_tokens, 2)
    assert client.multivector.bulk_stage(staged_tokens, [TokenDocument(1, np.eye(2))]) == 1
    client.multivector.bulk_build(staged_tokens)
    assert client.multivector.count(staged_tokens) == 1

    assert client.health() and client.ready() and client.replication() == {"shards": []}
    assert "_" in client.metrics() and "kv" in client.key_metrics() and client.tasks() is not None
    assert client.list_collections()
    client.create_alias("other", built)
    assert any(name.endswith("other") for name in client.list_aliases())
    client.delete_alias("other")
    client.change_aliases(create={"second": built})
    client.change_aliases(delete=["second"])
    client.backup()
    assert client.list_backups()
    calls: list[Callable[[], Any]] = [
        lambda: client.verify_backup(built),
        lambda: client.restore_backup(built, into=built + "-restored"),
        lambda: client.evict_collection(built),
        lambda: client.restore_collection(built),
        lambda: client.list_api_keys(),
        lambda: client.add_api_key("a" * 40, "*", ["*:*"]),
        lambda: client.revoke_api_key("a" * 40),
    ]
    for call in calls:
        try:  # What the server of this suite does not keep is refused in words; the rest works.
            call()
        except NighError as error:
            assert error.status in (404, 409, 412) and error.message
    for one in (dense, named, tokens):
        for family in (client, client.named, client.multivector):
            if family.collection_exists(one):
                family.drop_collection(one)

    document = client.openapi()
    missing, unknown = set(), set(asked)
    for route, operations in document["paths"].items():
        for method, operation in operations.items():
            unknown.discard((method, route))
            if ((method, route) in asked) == (operation["operationId"] in ABSENT):
                missing.add(operation["operationId"])
    assert not missing, "operations that are neither called nor in ABSENT, or both"
    assert not unknown, "requests that the document does not have"


def fresh_dense(client: Any, name: str) -> str:
    client.create_collection(name, 2)
    return name
