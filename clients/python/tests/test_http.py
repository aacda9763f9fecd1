"""Connections of blocking clients without TLS: every form that an answer may have, and what is no answer."""

from __future__ import annotations

import contextlib
import json
import socket
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

import nigh
from nigh import BadRequestError, Client, Point, TransportError

Answer = Callable[[socket.socket], None]
JSON = b'{"status": "ok"}'
CHUNKED = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: Chunked\r\n\r\n"


def sent(*parts: bytes, end: bool = False) -> Answer:
    """Sends parts, each as a packet of its own."""

    def answer(connection: socket.socket) -> None:
        for part in parts:
            connection.sendall(part)
            time.sleep(0.01)
        if end:
            connection.close()

    return answer


def whole(body: bytes, head: bytes = b"HTTP/1.1 200 OK\r\n", more: bytes = b"") -> bytes:
    return head + b"Content-Length: %d\r\n" % len(body) + more + b"\r\n" + body


@pytest.fixture
def script() -> Iterator[tuple[str, list[Answer], list[int]]]:
    """A server that carries out an answer of a list for each request, and counts requests by connection."""
    answers: list[Answer] = []
    counts: list[int] = []
    listener = socket.create_server(("127.0.0.1", 0))

    def serve(connection: socket.socket, at: int) -> None:
        received = b""
        with connection, contextlib.suppress(OSError, ValueError):
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            while True:
                while b"\r\n\r\n" not in received:
                    received += (part := connection.recv(65536))
                    if not part:
                        return
                head, _, received = received.partition(b"\r\n\r\n")
                length = int(head.lower().partition(b"content-length:")[2].split()[0])
                while len(received) < length:
                    received += connection.recv(1 << 20)
                received = received[length:]
                counts[at] += 1
                answers.pop(0)(connection)

    def accept() -> None:
        with contextlib.suppress(OSError):
            while True:
                connection, _ = listener.accept()
                counts.append(0)
                threading.Thread(target=serve, args=(connection, len(counts) - 1), daemon=True).start()

    thread = threading.Thread(target=accept, daemon=True)
    thread.start()
    yield f"http://127.0.0.1:{listener.getsockname()[1]}", answers, counts
    listener.shutdown(socket.SHUT_RDWR)
    listener.close()
    thread.join()


KEPT: dict[str, Answer] = {
    "in one piece": sent(whole(JSON)),
    "byte by byte": sent(*(whole(JSON)[at : at + 1] for at in range(len(whole(JSON))))),
    "in other letters": sent(b"HTTP/1.1 200 OK\r\ncONTENT-lENGTH:16\r\nconnection: Keep-Alive\r\n\r\n" + JSON),
    "in chunks": sent(CHUNKED + b"5;x=y\r\n" + JSON[:5] + b"\r\nB\r\n", JSON[5:] + b"\r", b"\n0\r\n\r\n"),
    "in chunks with a trailer": sent(CHUNKED + b"10\r\n" + JSON + b"\r\n0\r\nX: y\r\nZ: z\r\n\r\n"),
    "behind others that are not the last": sent(b"HTTP/1.1 100 Continue\r\n\r\n", b"HTTP/1.1 103 Early\r\nLink: a\r\n\r\n" + whole(JSON)),
    "without a reason": sent(whole(JSON, b"HTTP/1.1 200 \r\n")),
    "of version 1.0 that is kept": sent(whole(JSON, b"HTTP/1.0 200 OK\r\n", b"Connection: keep-alive\r\n")),
}
ENDED: dict[str, Answer] = {
    "that says it is the last": sent(whole(JSON, more=b"Connection: close\r\n")),
    "up to the end": sent(b"HTTP/1.1 200 OK\r\n\r\n" + JSON, end=True),
    "of version 1.0": sent(whole(JSON, b"HTTP/1.0 200 OK\r\n")),
    "with more behind it": sent(whole(JSON) + b"HTTP/1.1 200 OK\r\n"),
}
NONE: dict[str, Answer] = {
    "another protocol": sent(b"SSH-2.0-OpenSSH\r\n\r\n"),
    "no status": sent(b"HTTP/1.1 2x0 OK\r\n\r\n"),
    "a length that is none": sent(b"HTTP/1.1 200 OK\r\nContent-Length: -5\r\n\r\n"),
    "an unknown coding": sent(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: gzip, chunked\r\n\r\n"),
    "a chunk of no size": sent(CHUNKED + b"-1\r\n"),
    "a chunk that is too long": sent(CHUNKED + b"2\r\nabc\r\n0\r\n\r\n"),
    "a head without an end": sent(b"HTTP/1.1 200 OK\r\n" + b"X: y\r\n" * 20_000),
    "a line without an end": sent(CHUNKED + b"" + b"1" * 70_000),
    "half a head": sent(b"HTTP/1.1 200 OK\r\nConte", end=True),
    "half a body": sent(b"HTTP/1.1 200 OK\r\nContent-Length: 99\r\n\r\n{", end=True),
    "half a chunk": sent(CHUNKED + b"9\r\n{", end=True),
    "nothing": sent(end=True),
}  # fmt: skip


@pytest.mark.parametrize("form", KEPT)
def test_connections_are_kept(script: Any, form: str) -> None:
    url, answers, counts = script
    with Client(url, retries=0) as client:
        for _ in range(2):
            answers.append(KEPT[form])
            assert client.health()
    assert counts == [2]


@pytest.mark.parametrize("form", ENDED)
def test_connections_are_closed(script: Any, form: str) -> None:
    url, answers, counts = script
    with Client(url, retries=0) as client:
        for _ in range(2):
            answers.append(ENDED[form])
            assert client.health()
    assert counts == [1, 1]


@pytest.mark.parametrize("form", NONE)
def test_what_is_no_answer_is_an_error(script: Any, form: str) -> None:
    url, answers, counts = script
    with Client(url, retries=0) as client:
        answers += [NONE[form], sent(whole(JSON))]
        with pytest.raises(nigh.TransportError) as caught:
            client.health()
        assert caught.value.status == 0
        assert client.health() and counts == [1, 1]


def test_a_connection_that_died_between_requests_is_not_used(script: Any) -> None:
    url, answers, counts = script
    with Client(url, retries=0) as client:
        answers += [sent(whole(JSON), end=True), sent(whole(b"{}"))]
        assert client.health()
        time.sleep(0.05)
        client.upsert("c", 1, [1.0])  # A write, which is not sent twice.
    assert counts == [1, 1]


def test_statuses_without_a_body(script: Any) -> None:
    url, answers, counts = script
    with Client(url, retries=0) as client:
        answers += [sent(b"HTTP/1.1 204 No Content\r\n\r\n"), sent(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n")]
        client.drop_collection("c")
        client.drop_collection("c")
    assert counts == [2]


def test_a_wait_that_is_too_long(script: Any) -> None:
    url, answers, counts = script
    with Client(url, timeout=0.2) as client:
        answers += [sent(b"HTTP/1.1 200 OK\r\nContent-Length: 16\r\n\r\n{"), sent(whole(JSON))]
        with pytest.raises(nigh.TransportError, match="ReadTimeout"):
            client.health()
        assert client.health() and counts == [1, 1]


def test_a_refusal_before_the_body_was_read(script: Any) -> None:
    url, _, _ = script
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def refuse() -> None:
            connection, _ = listener.accept()
            with connection:
                connection.recv(100)
                connection.sendall(whole(b'{"error": "too large"}', b"HTTP/1.1 413 Too Large\r\n", b"Connection: close\r\n"))
                connection.shutdown(socket.SHUT_WR)
                while connection.recv(1 << 20):
                    pass

        thread = threading.Thread(target=refuse)
        thread.start()
        with Client(f"http://127.0.0.1:{listener.getsockname()[1]}", retries=0) as client:
            with pytest.raises(nigh.BadRequestError, match="too large"):
                client.batch_upsert("c", range(8000), np.ones((8000, 256)))
        thread.join()


def test_large_requests_and_answers(http: Client, name: str) -> None:
    http.create_collection(name, 256, metric="l2")
    vectors = np.random.default_rng(1).random((8000, 256), dtype=np.float32)
    assert http.upload(name, vectors) == 8000
    found = http.get_batch(name, range(8000))
    assert len(found) == 8000 and np.array_equal(found[7999].vector, vectors[7999])
    http.upsert_points(name, [Point(1, vectors[1], {"text": "x" * 1_000_000})])
    assert len(http.get(name, 1).payload["text"]) == 1_000_000


def test_threads_share_connections(script: Any) -> None:
    url, answers, counts = script
    answers += [sent(whole(JSON))] * 60
    with Client(url, retries=0, pool_maxsize=3) as client:
        threads = [threading.Thread(target=lambda: [client.health() for _ in range(6)]) for _ in range(10)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert sum(counts) == 60 and len(counts) <= 3


def test_no_room_in_time(script: Any) -> None:
    url, answers, _ = script
    answers += [lambda _: time.sleep(0.6), sent(whole(JSON))]
    with Client(url, retries=0, pool_maxsize=1, timeout=0.2) as client:
        thread = threading.Thread(target=_quiet, args=(client,))
        thread.start()
        time.sleep(0.05)
        client._settings.timeout = 0.05
        with pytest.raises(nigh.TransportError, match="PoolTimeout"):
            client.health()
        thread.join()


def _quiet(client: Client) -> None:
    with contextlib.suppress(nigh.TransportError):
        client.health()


def test_addresses(script: Any) -> None:
    url, answers, _ = script
    answers += [sent(whole(json.dumps({"status": "ok"}).encode()))]
    with Client(url + "/a/path") as client:
        assert client.health()
    for wrong in ("http://127.0.0.1:1/a b", "http://127.0.0.1:1/\u00e9", "http://127.0.0.1:1/a\r\nX: y"):
        with pytest.raises(ValueError, match="url"):
            Client(wrong)
    with Client("http://127.0.0.1:1", retries=1) as client, pytest.raises(nigh.TransportError, match="ConnectError"):
        client.health()


def chunks(text: bytes, step: int) -> bytes:
    cut = [text[at : at + step] for at in range(0, len(text), step)]
    return CHUNKED + b"".join(b"%x\r\n%s\r\n" % (len(one), one) for one in cut) + b"0\r\n\r\n"


FOUND: list[Any] = [
    {"results": [{"id": 1, "distance": 0.5, "score": 0}], "degraded": False, "missing": []},
    {"results": [], "degraded": False, "missing": []},
    {"results": [{"id": "é]", "distance": -1.5e-7, "score": 2.5, "payload": {"a": {"kind": "string", "str": "]}"}}}]},
]
IDS = [[1], [], ["é]"]]


def found(*answers: Any) -> bytes:
    return json.dumps({"results": answers}, separators=(",", ":"), ensure_ascii=False).encode() + b"\n"


def asked(client: Client) -> list[list[Any]]:
    return [[hit.id for hit in hits] for hits in client.search_batch("films", np.eye(3), 1)]


def test_answers_in_pieces(script: Any) -> None:
    url, answers, counts = script
    text = found(*FOUND)
    with Client(url, retries=0) as client:
        for step in (1, 7, 50, 1000):
            answers.append(sent(chunks(text, step)))
            assert asked(client) == IDS
        answers.append(sent(whole(text)))
        assert asked(client) == IDS
        # A refused search is raised behind the whole answer, so that the connection goes on.
        refused = found(FOUND[0], {"error": "too wide", "status": 400}, {"error": "later", "status": 404})
        answers.append(sent(chunks(refused, 30)))
        with pytest.raises(BadRequestError, match="too wide"):
            asked(client)
        answers.append(sent(chunks(text, 30)))
        assert asked(client) == IDS
    assert counts == [7]


def test_a_lost_answer_is_asked_for_again(script: Any) -> None:
    url, answers, counts = script
    text = found(*FOUND)
    half: Answer = sent(chunks(text, 30)[:200], end=True)
    with Client(url, retries=1) as client:
        answers += [half, sent(chunks(text, 30))]
        assert asked(client) == IDS and counts == [1, 1]
        answers += [half, half]
        with pytest.raises(TransportError):
            asked(client)


def test_servers_without_searches_as_bytes_get_them_as_json(script: Any) -> None:
    url, answers, counts = script
    refused = whole(b'{"error":"invalid JSON body: expected an object"}', b"HTTP/1.1 400 Bad Request\r\n")
    with Client(url, retries=0) as client:
        answers += [sent(refused), sent(whole(found(*FOUND)))]
        assert asked(client) == IDS and counts == [2]


def test_parts_of_a_call_travel_together(script: Any) -> None:
    """A call of many searches is cut into parts, whose hits are in the order of the queries, whatever part is answered first."""
    url, answers, counts = script
    whole_call = np.arange(600 * 3, dtype=np.float32).reshape(600, 3)
    together = threading.Barrier(4, timeout=10)

    def part(connection: socket.socket) -> None:
        together.wait()  # All four are under way before the first is answered.
        connection.sendall(chunks(found(*FOUND[:1] * 150), 300))

    with Client(url, retries=0) as client:
        answers += [part] * 4
        hits = client.search_batch("films", whole_call, 1)
        assert [[hit.id for hit in one] for one in hits] == [[1]] * 600 and counts == [1] * 4
        # Few searches are one request, and an error of a part is that of the call.
        answers.append(sent(whole(found(*FOUND[:1] * 127))))
        assert len(client.search_batch("films", whole_call[:127], 1)) == 127 and sum(counts) == 5
        refused = sent(whole(found({"error": "too wide", "status": 400})))
        answers += [refused, sent(whole(found(*FOUND[:1] * 64)))]
        with pytest.raises(BadRequestError, match="too wide"):
            client.search_batch("films", whole_call[:128], 1)
    with Client(url, retries=0, pool_maxsize=1) as client:
        answers += [sent(whole(found(*FOUND[:1] * 150)))] * 4
        assert len(client.search_batch("films", whole_call, 1)) == 600
