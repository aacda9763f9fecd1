"""What clients promise beside the operations: ids, batches, retries, errors, filters, private servers."""

from __future__ import annotations

import http.server
import inspect
import os
import signal
import ssl
import subprocess
import sys
import threading
import time
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import typing_extensions

import nigh
from nigh import AsyncClient, Client, F, Geo, PrivateServer, filters
from nigh.filters import plain, tagged


def test_both_clients_have_one_surface() -> None:
    pairs: list[tuple[type, type]] = [
        (Client, AsyncClient),
        (nigh.client.Named, nigh.client.AsyncNamed),
        (nigh.client.MultiVector, nigh.client.AsyncMultiVector),
        (nigh.Keys, nigh.AsyncKeys),
        (nigh.keys._Pipeline, nigh.keys._AsyncPipeline),
    ]
    for sync, other in pairs:
        ours = {name for name in dir(sync) if not name.startswith("_")}
        assert ours == {name for name in dir(other) if not name.startswith("_")}
        for name in ours:
            if callable(getattr(sync, name)):
                assert list(inspect.signature(getattr(sync, name)).parameters) == list(inspect.signature(getattr(other, name)).parameters)
                assert getattr(sync, name).__doc__
                for owner in (sync, other):
                    assert inspect.isfunction(getattr(owner, name))
                    # Tools read the types from the functions, so that each annotation must name what there is.
                    typing_extensions.get_type_hints(getattr(owner, name))
    assert {name for name in dir(nigh.keys.Commands) if not name.startswith("_")} <= set(dir(nigh.Keys))
    assert str(inspect.signature(Client.count)) == "(self, collection: 'str', *, filter: 'Any' = None) -> 'int'"
    assert Client.count.__qualname__ == "Client.count" and AsyncClient.count.__module__ == "nigh.client"


def test_ids_are_numbers_or_strings(client: Any, fresh: Any) -> None:
    name = fresh()
    client.create_collection(name, 2, ids="string")
    ids = [str(uuid.uuid4()), "news/2026/a rose"]
    assert client.batch_upsert(name, ids, np.eye(2), payloads=[{"n": 1}, None]) == 2
    assert client.search(name, [1, 0], 1)[0].id == ids[0]
    assert client.get(name, ids[1]).id == ids[1] and client.delete(name, ids[1])
    big = fresh()
    client.create_collection(big, 2)
    client.batch_upsert(big, np.array([2**64 - 1], dtype=np.uint64), np.eye(2)[:1])
    assert client.search(big, [1, 0], 1)[0].id == 2**64 - 1


def test_batches_split_themselves(client: Any, fresh: Any) -> None:
    name = fresh()
    client.create_collection(name, 3, metric="l2")
    vectors = np.random.default_rng(1).random((1000, 3))
    sizes: list[int] = []
    payloads = [{"n": i} for i in range(1000)]
    assert client.batch_upsert(name, range(1000), vectors, payloads=payloads, batch_size=300, progress=sizes.append) == 1000
    assert sizes == [300, 300, 300, 100] and client.count(name) == 1000
    np.testing.assert_array_equal(client.get(name, 777).vector, vectors[777].astype(np.float32))
    assert client.get(name, 777).payload == {"n": 777}
    assert client.upload(name, vectors) == 1000 and client.batch_upsert(name, [], np.empty((0, 3))) == 0
    with pytest.raises(ValueError, match="as many"):
        client.batch_upsert(name, [1], vectors)
    if isinstance(client, Client):
        assert sorted(d.id for d in client.scroll_all(name, page_size=300)) == list(range(1000))


def test_payloads_come_back_as_they_went(client: Any, fresh: Any) -> None:
    name = fresh()
    client.create_collection(name, 2)
    payload = {"b": True, "i": -5, "f": 2.0, "s": "é", "n": None, "l": [1, 2], "o": {"x": [{"y": 1}]}, "g": Geo(48.0, 11.5)}
    client.upsert(name, 1, [1, 0], payload=payload, content="text")
    read = client.get(name, 1)
    assert read.payload == payload and read.content == "text" and read.version == 1
    assert client.search_docs(name, [1, 0], 1)[0].metadata == payload
    tagged_name = fresh()
    client.create_collection(tagged_name, 2, payload_format="tagged")
    client.upsert(tagged_name, 1, [1, 0], payload={"s": "x", "l": ["a"]})
    assert client.get(tagged_name, 1).payload == {"s": "x", "l": ["a"]}


def test_errors_say_what_and_where(client: Any, fresh: Any) -> None:
    name = fresh()
    client.create_collection(name, 2)
    with pytest.raises(nigh.ConflictError, match="exist") as caught:
        client.create_collection(name, 2)
    assert caught.value.status == 409
    with pytest.raises(nigh.NotFoundError) as missing:
        client.search("none", [1, 0])
    assert missing.value.status == 404 and missing.value.key == "name" and missing.value.value == "none"
    with pytest.raises(nigh.BadRequestError):
        client.search(name, [1, 0, 0])
    client.insert(name, 1, [1, 0])
    with pytest.raises(nigh.ConflictError):
        client.insert(name, 1, [1, 0])
    with pytest.raises(nigh.ConflictError):
        client.upsert(name, 1, [1, 0], expected_version=7)
    with pytest.raises(TypeError, match="filter"):
        client.count(name, filter="year > 3")


def test_filters() -> None:
    made = (F("year") > 1980) & ~(F("genre") == "horror") | F("tags").is_in(["a", "b"])
    assert made.body == filters.or_(
        filters.and_(filters.gt("year", 1980), filters.not_(filters.eq("genre", "horror"))), filters.in_("tags", ["a", "b"])
    ).body
    chain = F("n") == 0
    for value in range(1, 500):
        chain = chain | (F("n") == value)
    assert chain.body == filters.or_(*(filters.eq("n", value) for value in range(500))).body
    assert ((chain & made) & made).body == filters.and_(chain, made, made).body
    assert tagged(True) == {"kind": "bool", "bool": True} and tagged([1.5]) == {"kind": "floats", "flts": [1.5]}
    refused: list[Any] = [[], [1, "a"], [True], None, {}]
    for value in refused:
        with pytest.raises(TypeError):
            tagged(value)
    assert plain({"kind": "int"}) == 0 and plain({"kind": "none"}) is None and plain({"kind": "shop"}) == {"kind": "shop"}
    with pytest.raises(TypeError, match="&"):
        bool(F("a") == 1)


@pytest.fixture
def flaky() -> Iterator[tuple[str, list[Any], list[str]]]:
    """A server that answers from a list, and the requests that it got."""
    answers: list[Any] = []
    seen: list[str] = []

    class Handler(http.server.BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_POST(self) -> None:
            self.rfile.read(int(self.headers["Content-Length"]))
            seen.append(self.path)
            status, headers, body = answers.pop(0)
            if status == 0:
                self.close_connection = True
                return
            self.send_response(status)
            for key, value in headers.items():
                self.send_header(key, value)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: Any) -> None:
            pass

    made = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=made.serve_forever)
    thread.start()
    yield f"http://127.0.0.1:{made.server_address[1]}", answers, seen
    made.shutdown()
    made.server_close()
    thread.join()


HITS: Any = (200, {}, b'{"results": []}')


def test_reads_are_repeated_and_retry_after_is_kept(flaky: Any) -> None:
    url, answers, seen = flaky
    with Client(url) as client:
        answers += [(503, {"Retry-After": "0.4"}, b'{"error": "busy"}'), (0, {}, b""), HITS]
        start = time.monotonic()
        assert client.search("c", [1.0]) == []
        assert len(seen) == 3 and time.monotonic() - start > 0.4
        answers += [(429, {"Retry-After": "3600"}, b'{"error": "rate limited"}')]
        with pytest.raises(nigh.RateLimitError):
            client.search("c", [1.0])


def test_writes_are_repeated_only_where_nothing_was_done(flaky: Any) -> None:
    url, answers, seen = flaky
    with Client(url) as client:
        answers += [(429, {"Retry-After": "0"}, b'{"error": "rate limited"}'), (200, {}, b'{"id": 1}')]
        client.upsert("c", 1, [1.0])
        assert len(seen) == 2
        unclear: list[Any] = [(0, {}, b""), (503, {}, b'{"error": "busy"}'), (429, {}, b'{"error": "full", "committed": 3}')]
        for answer in unclear:
            answers.append(answer)
            seen.clear()
            with pytest.raises(nigh.NighError):
                client.upsert("c", 1, [1.0])
            assert len(seen) == 1


def test_time_limits_and_absent_servers() -> None:
    import socket

    with socket.create_server(("127.0.0.1", 0)) as silent:
        with Client(f"http://127.0.0.1:{silent.getsockname()[1]}", timeout=0.2) as client:
            start = time.monotonic()
            with pytest.raises(nigh.TransportError) as caught:
                client.health()
            assert caught.value.status == 0 and time.monotonic() - start < 0.8
    with pytest.raises(ValueError, match="url"):
        Client("localhost:8080")


def alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return "\nState:\tZ" not in Path(f"/proc/{pid}/status").read_text()


def test_private_server_keeps_its_directory_and_ends(tmp_path: Path) -> None:
    with Client(path=str(tmp_path / "data")) as client:
        client.create_collection("kept", 2)
        assert client.tcp_address is not None
        with nigh.Keys(*client.tcp_address) as keys:
            keys.put("a", "1")
    with Client(path=str(tmp_path / "data")) as client:
        assert client.collection_exists("kept")
    server = PrivateServer()
    pid = server.pid
    server.close()
    assert not alive(pid)


@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGTERM])
def test_private_server_ends_with_python(how: int) -> None:
    code = "import nigh, time; c = nigh.Client(':memory:'); print(c._settings.server.pid, flush=True); time.sleep(60)"
    with subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True) as python:
        assert python.stdout is not None
        pid = int(python.stdout.readline())
        assert alive(pid)
        python.send_signal(how)
    end = time.monotonic() + 10
    while alive(pid) and time.monotonic() < end:
        time.sleep(0.02)
    assert not alive(pid)


def test_ids_are_never_another_number(client: Any, fresh: Any) -> None:
    name = fresh()
    client.create_collection(name, 2, metric="l2")
    one = np.ones((1, 2))
    wrong: list[Any] = [np.array([-1]), [-1], [2**64], np.array([1.5]), [1.5]]
    for ids in wrong:
        with pytest.raises((TypeError, ValueError)):
            client.batch_upsert(name, ids, one)
    assert client.count(name) == 0
    ids = [2**64 - 1, 1, 2**63 + 1]
    matrix = np.arange(6, dtype=">f8").reshape(2, 3).T  # Big-endian, 64 bits, not contiguous.
    client.batch_upsert(name, ids, matrix)
    client.batch_upsert(name, np.array([7], dtype=">i2"), matrix[::-2][:1])
    assert {point.id: point.vector.tolist() for point in client.get_batch(name, [*ids, 7])} == {
        2**64 - 1: [0, 3], 1: [1, 4], 2**63 + 1: [2, 5], 7: [2, 5]}  # fmt: skip


def test_numpy_numbers_serve_everywhere(client: Any, fresh: Any) -> None:
    name = fresh()
    client.create_collection(name, 2, metric="l2")
    payload = {"n": np.int64(5), "f": np.float32(0.5), "b": np.bool_(True), "l": np.arange(2)}
    client.upsert(name, np.uint64(2**64 - 1), [np.float32(0.1), 2], payload=payload)
    found = client.get(name, np.uint64(2**64 - 1))
    assert found.payload == {"n": 5, "f": 0.5, "b": True, "l": [0, 1]} and found.vector[0] == np.float32(0.1)
    for condition in (F("n") == np.int64(5), F("b") == np.bool_(True), F("n").is_in(np.array([5, 6])), F("f") == np.float32(0.5)):
        assert client.count(name, filter=condition) == 1
    with pytest.raises(TypeError, match="datetime64"):
        client.upsert(name, 1, [1, 2], payload={"at": np.datetime64("2026-01-01", "ns")})
    with pytest.raises(ValueError, match="JSON"):
        client.search(name, [1, 2], filter=F("n") > float("nan"))
    with pytest.raises(ValueError, match="JSON"):
        client.batch_upsert(name, [1], np.ones((1, 2)), payloads=[{"x": float("inf")}])


def test_batches_that_fail_say_how_many_are_written(client: Any, fresh: Any) -> None:
    name = fresh()
    client.create_collection(name, 2)
    points = [nigh.Point(at, [1, 2] if at != 5 else [1, 2, 3]) for at in range(9)]
    with pytest.raises(nigh.BadRequestError) as caught:
        client.upsert_points(name, points, batch_size=2)
    assert caught.value.committed == client.count(name) == 5
    with pytest.raises(nigh.ConflictError) as again:
        client.batch_upsert(name, [10, 11, 12, 0, 13], np.ones((5, 2)), upsert=False, batch_size=3)
    assert again.value.committed == 3 and client.count(name) == 8
    texts = fresh()
    client.create_collection(texts, 2, ids="string")
    client.batch_upsert(texts, ["a"], np.ones((1, 2)))
    with pytest.raises(nigh.ConflictError):
        client.batch_upsert(texts, ["a"], np.ones((1, 2)), upsert=False)


def test_batches_keep_to_the_largest_body(client: Any, fresh: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(nigh._operations, "_LARGEST_BODY", 10_000)
    name, sizes = fresh(), list[int]()
    client.create_collection(name, 2)
    payloads: list[Any] = [None, *({"text": "x" * 2000} for _ in range(11))]
    assert client.batch_upsert(name, range(12), np.ones((12, 2)), payloads=payloads, progress=sizes.append) == 12
    assert sizes == [5, 4, 3] and client.get(name, 11).payload == payloads[11] and not client.get(name, 0).payload
    sizes.clear()
    assert client.upsert_points(name, [nigh.Point(at, [1, 2], payloads[at]) for at in range(12)], progress=sizes.append) == 12
    assert sizes == [5, 4, 3]


def test_many_searches_are_those_of_one_each(client: Any, fresh: Any) -> None:
    """Queries travel as bytes, or with nine digits, which are exactly a 32-bit float."""
    name = fresh()
    client.create_collection(name, 4, metric="l2", ids="string")
    scales = np.float32(10) ** np.arange(-20, 20, 10, dtype=np.float32)
    vectors = np.random.default_rng(3).standard_normal((50, 4)).astype(np.float32) * scales
    client.batch_upsert(name, [f"{at}%" for at in range(50)], vectors)
    found = client.search_batch(name, vectors, 2, filter=filters.not_(filters.has_id(["7%", "100%s"])), with_vector=True)
    for at, hits in enumerate(found):
        alone = client.search(name, vectors[at], 2, filter=filters.not_(filters.has_id(["7%", "100%s"])), with_vector=True)
        assert hits == alone and (at == 7 or hits[0].distance == 0)
    assert client.search_batch(name, [], 2) == [] and len(client.search_batch(name, [[1, 2, 3, 4]], 2)) == 1
    with pytest.raises(ValueError, match="NaN"):
        client.search_batch(name, [[1.0, float("nan"), 0, 0]])


def test_filters_refuse_what_means_nothing() -> None:
    condition = F("a") == 1
    nothing: list[Any] = [
        lambda: condition & None,
        lambda: condition | None,
        lambda: filters.not_(None),
        lambda: filters.min_should(1, None),
        lambda: F("a") and condition,
        lambda: not F("a"),
    ]
    for made in nothing:
        with pytest.raises(TypeError):
            made()


def test_secrets_stay_out_of_errors() -> None:
    for key in ("secret\n", "a secret", "sécret"):
        with pytest.raises(ValueError, match="api_key") as caught:
            Client("http://127.0.0.1:1", api_key=key)
        assert "cret" not in str(caught.value)
    with pytest.raises(ValueError, match="url") as caught:
        Client("htp://user:secret@host")
    assert "secret" not in str(caught.value)


def test_an_answer_that_is_no_json_says_so(flaky: Any) -> None:
    url, answers, _ = flaky
    with Client(url) as client:
        answers += [(200, {}, b"<html>welcome")]
        with pytest.raises(nigh.ServerError, match="no JSON: <html>welcome"):
            client.search("c", [1.0])
        answers += [(429, {"Retry-After": "nan"}, b'{"error": "busy"}')]
        with pytest.raises(nigh.RateLimitError):
            client.search("c", [1.0])


@pytest.mark.skipif(not hasattr(os, "fork"), reason="there is no fork")
def test_a_forked_process_keeps_its_hands_off() -> None:
    client = Client(":memory:")
    client.create_collection("a", 2)
    child = os.fork()
    if child == 0:
        try:
            right = all(client.count("a") == 0 for _ in range(50))
            client.close()  # The server belongs to the parent.
            if right:
                time.sleep(60)
        finally:
            os._exit(1)
    assert all(client.collection_exists("a") for _ in range(50))
    time.sleep(0.2)
    assert client.count("a") == 0 and os.waitpid(child, os.WNOHANG) == (0, 0)
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)
    child = os.fork()
    if child == 0:
        time.sleep(60)
        os._exit(0)
    start = time.monotonic()
    client.close()  # Though the child holds the input of the server open.
    assert time.monotonic() - start < 10
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)


def test_access_is_limited(server: Any) -> None:
    """Nobody gets in by another means than those of this run."""
    strangers = ssl.create_default_context(cafile=str(server.ca)) if server.context is not None else None
    for token in (None, "x" * 32):
        if server.limited:
            with Client(server.url, api_key=token, ssl_context=strangers) as client, pytest.raises(nigh.UnauthorizedError):
                client.count("none")
            host, _, port = server.tcp.rpartition(":")
            with nigh.Keys(host, int(port), auth_token=token, ssl_context=strangers) as keys, pytest.raises(nigh.UnauthorizedError):
                keys.get("none")
    if server.context is not None:
        with Client(server.url, server.token) as client, pytest.raises(nigh.TransportError, match="CERTIFICATE"):
            client.health()
    with server.client() as client, pytest.raises(nigh.NotFoundError):
        client.count("none")
