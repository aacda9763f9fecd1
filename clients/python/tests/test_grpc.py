"""The clients over gRPC: the tests of the clients, and each search beside the same one over HTTP."""

from __future__ import annotations

import asyncio
import inspect
import os
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import test_client
import test_operations
from conftest import Blocking, Server
from test_vectors import SEARCHES, same, vectors

import nigh
from nigh import AsyncClient, Client, F, NamedPoint, Point, Sparse, TokenDocument, UnsupportedError, _grpc, _operations

pytest.importorskip("grpc")
pytest.importorskip("google.protobuf")

# Operations of the clients that the service has no method for.
ABSENT = {
    "ready", "replication", "openapi", "metrics", "key_metrics", "tasks", "backup", "list_backups", "verify_backup", "restore_backup",
    "evict_collection", "restore_collection", "bulk_stage", "bulk_build", "search_mmr", "add_documents",
}  # fmt: skip
OTHERWISE = {
    "test_ids_are_numbers_or_strings": "hits of plain searches have the numbers of texts, see test_ids_that_are_texts",
    "test_batches_that_fail_say_how_many_are_written": "errors do not say how much of a batch was written, see test_batches_that_fail",
}


@pytest.fixture(scope="module", params=["sync", "async"])
def client(request: pytest.FixtureRequest, server: Server, loop: asyncio.AbstractEventLoop) -> Iterator[Any]:
    url, access = server.grpc_access()
    if request.param == "sync":
        with Client(url, **access) as blocking:
            yield blocking
    else:
        made = Blocking(AsyncClient(url, **access), loop)
        yield made
        made.close()


for _name, _test in list(vars(test_client).items()):
    if _name.startswith("test_") and "client" in inspect.signature(_test).parameters and _name not in OTHERWISE:
        globals()[_name] = _test


def test_points_of_every_family(client: Any, fresh: Any) -> None:
    one, two = {"year": 1979, "tags": ["a", "b"]}, {"year": 1982}
    dense = fresh()
    client.create_collection(dense, 2, full_text={"k1": 1.5})
    client.upsert(dense, 1, [1.0, 0.0], payload=one, content="a crew in the dark", sparse=Sparse([1], [1.0]))
    client.upsert_points(dense, [Point(2, np.array([0.5, 0.5]), two, "a crew in the ice", Sparse([1, 3], [0.5, 1.0]))])
    assert client.batch_upsert(dense, [3], np.ones((1, 2)), payloads=[{"x": 1}]) == 1 and client.delete_many(dense, [3]) == 1
    test_operations.shared(client, dense, one, two)

    spaces = {"image": {"dim": 2, "metric": "l2"}, "words": {"sparse": True}}
    named = fresh()
    client.named.create_collection(named, spaces, full_text={})
    client.named.add_space(named, "sound", dim=3, metric="l2")
    client.named.drop_space(named, "sound")
    client.named.upsert(named, NamedPoint(1, {"image": [1.0, 0.0]}, {"words": Sparse([1], [1.0])}, one, "dark"))
    client.named.upsert_points(named, [NamedPoint(2, {"image": np.array([0.0, 1.0])}, {}, two)])
    client.named.update_vectors(named, 2, sparse_vectors={"words": Sparse([2], [1.0])})
    point = client.named.get(named, 2)
    assert point.vectors["image"].tolist() == [0, 1] and point.sparse_vectors == {"words": Sparse([2], [1.0])} and point.payload == two
    assert [hit.id for hit in client.named.search(named, "image", [1, 0], 1)] == [1]
    assert client.named.search_docs(named, "image", [1, 0], 1)[0].content == "dark"
    assert len(client.named.search_mmr(named, "image", [1, 0], 2, diversity=0.3)) == 2
    assert [len(hits) for hits in client.named.search_batch(named, [("image", [1, 0]), ("words", Sparse([2], [1.0]))])] == [2, 1]
    assert [hit.id for hit in client.named.sparse_search(named, "words", Sparse([2], [1.0]))] == [2]
    assert client.named.hybrid_search(named, dense=("image", [1, 0]), sparse=("words", Sparse([1], [1.0])))[0].id == 1
    lanes = [{"space": "image", "dense": [1, 0]}, {"space": "words", "sparse": Sparse([1], [1.0])}]
    assert client.named.query(named, lanes, k=1)[0].id == 1
    test_operations.shared(client.named, named, one, two)

    tokens = fresh()
    client.multivector.create_collection(tokens, 2)
    client.multivector.add(tokens, TokenDocument(1, np.eye(2), one))
    client.multivector.add(tokens, TokenDocument(2, [[-1.0, 0.0]], two))
    assert client.multivector.get(tokens, 1).tokens.tolist() == [[1, 0], [0, 1]]
    assert client.multivector.search(tokens, np.eye(2), 1)[0].id == 1
    assert [len(hits) for hits in client.multivector.search_batch(tokens, [np.eye(2)], 2)] == [2]
    assert client.multivector.query(tokens, [{"maxsim": np.eye(2)}], k=1)[0].id == 1
    assert client.multivector.hybrid_search(tokens, np.eye(2), 1, sparse=Sparse([1], [1.0]))[0].id == 1
    test_operations.shared(client.multivector, tokens, one, two)


def test_searches_give_what_they_give_over_http(client: Any, http: Client, name: str) -> None:
    http.create_collection(name, 8, metric="l2", full_text=True)
    words = ["a red lamp", "a blue lamp", "the tank is empty", "descale the machine"]
    points = []
    for i, vector in enumerate(vectors(60)):
        payload = {"year": 1970 + i % 7, "tags": ["a", "b"][: 1 + i % 2], "share": i / 8}
        points.append(Point(i, vector, payload, words[i % 4], Sparse([i % 5, 9], [1.0, 0.5])))
    assert client.upsert_points(name, points, batch_size=25) == 60
    more: list[Callable[[Any, str, Any], Any]] = [
        lambda c, name, q: c.get(name, 5),
        lambda c, name, q: c.get(name, 99),
        lambda c, name, q: c.get(name, 5, with_vector=False),
        lambda c, name, q: c.get(name, 5, with_vector=False, with_payload=False),
        lambda c, name, q: c.get_batch(name, [5, 99, 3], with_payload=False),
        lambda c, name, q: c.search_batch(name, vectors(3), 4, with_payload=True, filter=F("year") > 1971),
        lambda c, name, q: c.facet(name, "year", limit=3),
        lambda c, name, q: c.sample(name, limit=3, seed=5),
        lambda c, name, q: c.scroll(name, limit=5, order_by={"key": "share", "desc": True}),
        lambda c, name, q: c.discover(name, [(1, 2)], 3, target=4),
        lambda c, name, q: c.search(name, q, 3, with_vector=True, with_payload=True, max_staleness=9, read_consistency=3),
    ]
    for at, search in enumerate([*SEARCHES, *more]):
        for query in vectors(2, at):
            one, other = search(client, name, query), search(http, name, query)
            assert same(one, other), f"search {at}: {one} is not {other}"
    for options in ({}, {"filter": F("year") == 1971}):
        assert isinstance(client.search(name, [1.0] * 8, 3, explain=True, **options).explain, dict)
    with pytest.raises(nigh.BadRequestError, match="dimension"):
        client.search_batch(name, [[1.0]], 3)


def test_ids_that_are_texts(client: Any, http: Client, name: str) -> None:
    client.create_collection(name, 2, ids="string")
    client.upsert(name, "a/b", [1, 0], payload={"n": 1}, content="text")
    assert client.upsert_points(name, [Point("c", [0, 1])]) == 1
    assert same(client.get(name, "a/b"), http.get(name, "a/b")) and client.get(name, "c").id == "c"
    assert same(client.search_docs(name, [1, 0], 2), http.search_docs(name, [1, 0], 2))
    assert [point.id for point in client.get_batch(name, ["c", "a/b"])] == ["c", "a/b"]
    client.set_payload(name, "a/b", {"m": 2})
    assert http.get(name, "a/b").payload == {"n": 1, "m": 2}
    assert client.delete(name, "a/b") and http.count(name) == 1


def test_batches_that_fail(client: Any, fresh: Any) -> None:
    """Those before the batch that failed are known to be written."""
    name = fresh()
    client.create_collection(name, 2)
    points = [Point(at, [1, 2] if at != 5 else [1, 2, 3]) for at in range(9)]
    with pytest.raises(nigh.BadRequestError) as caught:
        client.upsert_points(name, points, batch_size=2)
    assert caught.value.committed == 4 and client.count(name) == 5
    small = fresh()
    client.create_collection(small, 2, max_vectors=3)
    with pytest.raises(nigh.NighError) as full:
        client.upsert_points(small, [Point(at, [1, 2]) for at in range(5)])
    # It was not sent again: the points that were written have their first version.
    assert full.value.committed == 0 and full.value.status == 429 and client.get(small, 0).version == 1


def test_the_server_as_a_whole(client: Any, http: Client, fresh: Any) -> None:
    name = fresh()
    assert client.health()
    client.create_collection(name, 2)
    assert any(one["name"].endswith(name) and one["dim"] == 2 for one in client.list_collections())
    client.create_alias("over-grpc", name)
    assert client.list_aliases()["default/over-grpc" if "default/over-grpc" in client.list_aliases() else "over-grpc"].endswith(name)
    assert client.count("over-grpc") == 0
    client.delete_alias("over-grpc")
    client.change_aliases(create={"second-over-grpc": name})
    client.change_aliases(delete=["second-over-grpc"])
    assert not any(alias.endswith("over-grpc") for alias in client.list_aliases())
    for call in (client.list_api_keys, lambda: client.add_api_key("b" * 40, "*", ["*:*"]), lambda: client.revoke_api_key("b" * 40)):
        try:  # A server without a file of keys refuses it in words.
            call()
        except nigh.NighError as error:
            assert error.status in (404, 409, 412) and error.message
    assert not client.collection_exists("none") and http.collection_exists(name)


def test_what_the_service_lacks_is_said(client: Any, fresh: Any) -> None:
    calls: list[Callable[[], Any]] = [
        client.ready, client.tasks, client.metrics, client.backup, lambda: client.search_mmr("c", [1, 0], 2),
        lambda: client.bulk_stage("c", [1], np.ones((1, 2))), lambda: client.bulk_build("c"),
        lambda: client.multivector.add_documents("c", [TokenDocument(1, np.eye(2))]),
    ]  # fmt: skip
    for call in calls:
        with pytest.raises(UnsupportedError, match="no method of gRPC"):
            call()
    with pytest.raises(UnsupportedError, match="'colour' has no place"):
        client.create_collection(fresh(), 2, colour=1)


def test_every_operation_has_its_method() -> None:
    """The methods are those that the reference of the server has for the routes; what has none is in `ABSENT`."""
    page = Path(os.environ.get("NIGH_ROOT", Path(__file__).parents[3])) / "docs" / "reference" / "operations.md"
    methods = {}
    for line in page.read_text().splitlines():
        columns = line.split(" | ")
        if line.startswith("| `") and len(columns) == 5 and "`" in columns[4]:
            for verb, route in re.findall(r"`(\w+) (/v1/[^`]+)`", columns[2]):
                methods[verb, route] = re.findall(r"`(\w+)`", columns[4])[0]
    unused = {"Resplit", "ResplitCleanup", "Reshard", "ReshardAbort", "MVResplit", "MVResplitCleanup", "MVReshard", "MVReshardAbort"}
    ours = {key: method for key, method in _grpc.ROUTES.items() if key in methods}
    assert ours == {key: method for key, method in methods.items() if method not in unused and not key[1].endswith("/overwrite")}
    assert {key for key in _grpc.ROUTES if key not in methods} == set()
    source = inspect.getsource(_operations)
    assert all(f"def {name}(" in source for name in ABSENT)
    assert set(_grpc.ROUTES.values()) <= _grpc._service().keys()


def test_the_messages_are_those_of_the_server() -> None:
    root = Path(os.environ.get("NIGH_ROOT", Path(__file__).parents[3]))
    described = Path(nigh.__file__).parent / "service.bin"
    assert described.read_bytes() == (root / "net" / "proto" / "descriptors.bin").read_bytes(), "copy net/proto/descriptors.bin"


def test_time_limits_and_absent_servers_over_grpc(server: Server) -> None:
    import socket

    with socket.create_server(("127.0.0.1", 0)) as silent:
        port = silent.getsockname()[1]
        with Client(f"grpc://127.0.0.1:{port}", timeout=0.3, retries=0) as client, pytest.raises(nigh.TransportError) as caught:
            client.health()
        assert caught.value.status == 0
    with Client(f"grpc://127.0.0.1:{port}", timeout=5, retries=1) as client, pytest.raises(nigh.TransportError, match="ConnectError"):
        client.upsert("c", 1, [1.0])
    with pytest.raises(ValueError, match="path"):
        Client("grpc://127.0.0.1:1/base")
    if server.limited:
        url, _ = server.grpc_access()
        with Client(url, "x" * 32, ssl_context=server.context, retries=0) as client, pytest.raises(nigh.UnauthorizedError):
            client.count("none")
