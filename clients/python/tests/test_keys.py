"""Keys over the binary protocol, blocking and not."""

from __future__ import annotations

import asyncio
import os
import socket
import struct
import threading
import time
from collections.abc import Sequence
from typing import Any

import pytest

from nigh import AsyncKeys, F, Keys, NighError, NotLeaderError, Operate, TransportError
from nigh.keys import MAX_FRAME, Commands


def test_values(keys: Any) -> None:
    keys.flush()
    assert keys.get("a") is None
    keys.put("a", "")
    assert keys.get("a") == b"" and keys.exists("a") and keys.ttl("a") == -1
    assert keys.expire("a", 60_000) and 0 < keys.ttl("a") <= 60_000 and not keys.expire("none", 1)
    assert keys.persist("a") and not keys.persist("a")
    assert keys.set_nx("a", "x") is False and keys.set_nx("b", b"\x00\xff") is True
    assert keys.getset("b", "new") == b"\x00\xff" and keys.getset("c", "1") is None
    assert keys.getdel("c") == b"1" and keys.getdel("c") is None
    assert keys.cas("b", "newer", expected="new") and not keys.cas("b", "z", expected="new")
    assert keys.cas("d", "1", expected=None) and not keys.cas("d", "1", expected=None)
    assert keys.caex("d", "1", 60_000) and keys.cad("d", "1") and not keys.cad("d", "1")
    assert keys.incr("n") == 1 and keys.incr("n", -3) == -2 and keys.incr_ex("m", 2, ttl_ms=60_000) == 2
    assert keys.put_batch({"x": "1", "y": "2"}) == 2
    assert keys.mget(["x", "none", "y"]) == [b"1", None, b"2"]
    assert keys.delete("x") and not keys.delete("x")
    keys.ping()
    assert keys.ready()


def test_time_to_live(keys: Any) -> None:
    keys.put("short", "1", ttl_ms=30)
    time.sleep(0.05)
    assert keys.get("short") is None and keys.ttl("short") == -2


def test_errors_carry_status_and_text(keys: Any) -> None:
    keys.put("text", "no number")
    with pytest.raises(NighError) as caught:
        keys.incr("text")
    assert caught.value.status == 3 and "incr value is not 8 bytes" in caught.value.message
    with pytest.raises(ValueError, match="65,535"):
        keys.get("k" * 65_536)
    assert keys.get("text") == b"no number"


def test_pipeline_keeps_order_and_errors(keys: Any) -> None:
    found = keys.execute_many([c for i in range(500) for c in (Commands.put(f"p{i}", str(i)), Commands.get(f"p{i}"))])
    assert found[1::2] == [str(i).encode() for i in range(500)]
    keys.put("text", "no number")
    refused, fine = keys.execute_many([Commands.incr("text"), Commands.get("text")])
    assert isinstance(refused, NighError) and fine == b"no number"
    big = "v" * 100_000
    assert keys.execute_many([Commands.put(f"big{i}", big) for i in range(100)]) == [None] * 100
    assert all(value == big.encode() for value in keys.execute_many([Commands.get(f"big{i}") for i in range(100)]))


def test_operate(keys: Any) -> None:
    keys.flush()
    assert keys.operate(Operate("r", create=False).add("n", 1)) is None
    done = keys.operate(Operate("r").add("n", 3).set("name", "Ada").set("f", 1.5).returns("n").returns("name").returns("f").returns("no"))
    assert done.ok and [done.value(at) for at in range(4)] == [3, b"Ada", 1.5, None]
    done = keys.operate(Operate("r").check("n", "<", 3).add("n", 1).returns("n"))
    assert not done.ok and done.failed == 0 and done.value() == 3
    done = keys.operate(Operate("r").only_if("n", "==", 4).set("n", 9).add("n", -5, "i64").stamp("at").returns("n").returns("at"))
    assert done.value(0) == -2 and abs(done.value(1) / 1000 - time.time()) < 60
    assert keys.operate(Operate("r").set(("t", "row", "c"), 7).returns(("t", "row", "c"))).value() == 7
    keys.operate(Operate("r").delete())
    assert keys.get("r") is None


def test_only_bytes_and_texts_are_data(keys: Any) -> None:
    keys.put("data", bytearray(b"ab"))
    keys.put("view", memoryview(b"abc")[::2])
    assert keys.mget(["data", "view"]) == [b"ab", b"ac"]
    wrong: list[Any] = [5, True, [1], None, 1.5]
    for value in wrong:  # bytes(5) is five zero bytes
        with pytest.raises(TypeError, match="bytes or str"):
            keys.put("data", value)
        with pytest.raises(TypeError, match="bytes or str"):
            keys.get(value)


def test_operate_takes_numbers_as_their_type(keys: Any) -> None:
    keys.delete("typed")
    done = keys.operate(Operate("typed").set("f", 1.5).add("f", 1, "f64").returns("f"))
    assert done.value() == 2.5
    assert not keys.operate(Operate("typed").check("f", ">", 9, type="f64")).ok
    assert keys.operate(Operate("typed").set("u", 2**63 - 1, "u64").returns("u")).value() == 2**63 - 1
    for value, type in ((2**63, "i64"), (2**63, "u64"), (1.5, "i32"), (-(2**63) - 1, "stored")):
        with pytest.raises(ValueError, match="type"):
            Operate("typed").set("x", value, type)


def test_queries(keys: Any) -> None:
    keys.flush()
    for number in range(5):
        keys.operate(Operate(f"user:{number}").set("age", 20 + number))
    first = keys.query(limit=2, scan=True)
    second = keys.query(limit=2, scan=True, cursor=first.cursor, values=True)
    assert [key for key, _ in first.items + second.items] == [f"user:{n}".encode() for n in range(4)]
    assert second.items[0][1] == keys.get("user:2")
    keys.set_index("age", "age", prefix="user:")
    end = time.monotonic() + 10
    while not keys.list_indexes()[0].ready and time.monotonic() < end:
        time.sleep(0.01)
    assert [key for key, _ in keys.query(index="age", filter=F("age") >= 23).items] == [b"user:3", b"user:4"]
    keys.set_index("age", "age", prefix="user:", enabled=False)
    assert keys.list_indexes() == []


def answering(answers: list[bytes]) -> tuple[int, threading.Thread]:
    """A server that gives each request one answer."""
    listener = socket.create_server(("127.0.0.1", 0))

    def serve() -> None:
        with listener, listener.accept()[0] as one:
            for answer in answers:
                size = struct.unpack(">I", one.recv(4, socket.MSG_WAITALL))[0]
                one.recv(size, socket.MSG_WAITALL)
                one.sendall(struct.pack(">I", len(answer)) + answer)

    thread = threading.Thread(target=serve)
    thread.start()
    return int(listener.getsockname()[1]), thread


def redirect(address: str) -> bytes:
    raw = address.encode()
    return b"\x02" + struct.pack(">IH", len(raw) + 2, len(raw)) + raw


def test_redirects_are_followed_to_an_end(server: Any) -> None:
    if server.context is not None:
        pytest.skip("what redirects here has no TLS")
    port, thread = answering([redirect(server.tcp)])
    with Keys("127.0.0.1", port, auth_token=server.token) as keys:
        keys.put("moved", "1")
    thread.join()
    port, thread = answering([redirect("")])
    with Keys("127.0.0.1", port) as keys, pytest.raises(NotLeaderError, match="not leader"):
        keys.get("moved")
    thread.join()


def test_writes_are_not_repeated() -> None:
    port, thread = answering([b"\x00\x00\x00\x00\x00"])  # then the connection ends
    with Keys("127.0.0.1", port) as keys:
        keys.put("a", "1")
        thread.join()
        with pytest.raises(TransportError):
            keys.incr("a")



class Scripted:
    """A server whose connections do what they are told: for each request the bytes of an answer, None for silence, or the end."""

    def __init__(self, *connections: Sequence[bytes | None]) -> None:
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.port = int(self.listener.getsockname()[1])
        self.seen: list[int] = [0 for _ in connections]
        self.open: list[socket.socket] = []
        self.ended = [threading.Event() for _ in connections]
        self.threads = [threading.Thread(target=self._serve, args=(at, script)) for at, script in enumerate(connections)]
        for thread in self.threads:
            thread.start()

    def _serve(self, at: int, script: Sequence[bytes | None]) -> None:
        while at and len(self.open) < at:
            time.sleep(0.001)
        one = self.listener.accept()[0]
        self.open.append(one)
        for answer in [*script, b""]:
            head = one.recv(4, socket.MSG_WAITALL) if answer != b"" else b""
            if len(head) < 4:
                break
            one.recv(struct.unpack(">I", head)[0], socket.MSG_WAITALL)
            self.seen[at] += 1
            if answer is not None:
                one.sendall(answer)
        if None not in script:
            one.shutdown(socket.SHUT_WR)
            self.ended[at].set()
            while one.recv(1 << 16):  # Unread requests would turn the end into a reset, which overtakes answers.
                pass

    def __enter__(self) -> Scripted:
        return self

    def __exit__(self, *_: object) -> None:
        for thread in self.threads:
            thread.join(10)
        for one in [*self.open, self.listener]:
            one.close()


def ok(payload: bytes = b"") -> bytes:
    return struct.pack(">IBI", len(payload) + 5, 0, len(payload)) + payload


def test_a_connection_that_ended_idle_does_not_fail_a_write() -> None:
    with Scripted([ok()], [ok()], [ok()]) as server, Keys("127.0.0.1", server.port) as keys:
        for at in range(3):
            keys.put("a", "1")
            server.ended[at].wait(5)
        assert server.seen == [1, 1, 1]


def test_a_write_that_was_sent_is_not_repeated() -> None:
    with Scripted([ok(), b"\x00"], [ok()]) as server, Keys("127.0.0.1", server.port) as keys:
        keys.put("a", "1")
        with pytest.raises(TransportError):
            keys.put("a", "2")
        assert server.seen == [2, 0]
        keys.put("a", "3")


@pytest.mark.parametrize("answer", [b"\0\0\0\0\0\0\0\0\0", struct.pack(">IBI", 9, 0, 3) + b"abcd", b"\xff" * 9, b"HTTP/1.1 400"])
def test_what_is_no_answer_is_refused(answer: bytes) -> None:
    with Scripted([answer]) as server, Keys("127.0.0.1", server.port, timeout=5) as keys, pytest.raises(TransportError, match="no answer:"):
        keys.get("a")

    async def main(port: int) -> None:
        async with AsyncKeys("127.0.0.1", port, timeout=5) as keys:
            with pytest.raises(TransportError, match="no answer:"):
                await keys.put("a", "1")

    with Scripted([answer]) as server:
        asyncio.run(main(server.port))


def test_an_answer_to_no_request_is_not_taken_for_the_next() -> None:
    with Scripted([ok(b"1") + ok(b"stray")], [ok(b"2")]) as server, Keys("127.0.0.1", server.port) as keys:
        assert keys.get("a") == b"1" and keys.get("b") == b"2"

    async def main(port: int) -> None:
        async with AsyncKeys("127.0.0.1", port) as keys:
            assert await keys.get("a") == b"1"
            await asyncio.sleep(0.05)
            assert await keys.get("b") == b"2"

    with Scripted([ok(b"1") + ok(b"stray")], [ok(b"2")]) as server:
        asyncio.run(main(server.port))


def test_a_pipeline_that_is_cut_says_what_was_done() -> None:
    commands = [Commands.put(f"k{at}", "v") for at in range(200)]

    def check(found: list[Any]) -> None:
        assert found[:70] == [None] * 70 and all(isinstance(one, TransportError) for one in found[70:]) and len(found) == 200
        assert all("not sent" not in one.message for one in found[70:128]) and all("not sent" in one.message for one in found[128:])

    with Scripted([ok()] * 70 + [ok()[:3]]) as server, Keys("127.0.0.1", server.port) as keys:
        check(keys.execute_many(commands))

    async def main(port: int) -> None:
        async with AsyncKeys("127.0.0.1", port) as keys:
            check(await keys.execute_many(commands))

    with Scripted([ok()] * 70 + [ok()[:3]]) as server:
        asyncio.run(main(server.port))


def test_a_request_that_is_too_large_stops_its_pipeline_before_it_begins(keys: Any) -> None:
    keys.delete("first")
    commands: list[Any] = [Commands.put("first", "1")] * 100 + [Commands.put("large", b"x" * MAX_FRAME)]
    with pytest.raises(ValueError, match="at most"):
        keys.execute_many(commands)
    assert keys.get("first") is None


def test_cancelled_requests_do_not_shift_answers(server: Any) -> None:
    async def main() -> None:
        async with server.async_keys() as keys:
            await keys.put_batch({f"s{at}": str(at) for at in range(1000)})
            tasks = [asyncio.create_task(keys.get(f"s{at}")) for at in range(1000)]
            for step in range(5):
                for task in tasks[step * 7 :: 13]:
                    task.cancel()
                await asyncio.sleep(0)
            found = await asyncio.gather(*tasks, return_exceptions=True)
            assert any(isinstance(one, bytes) for one in found)
            for at, one in enumerate(found):
                assert isinstance(one, asyncio.CancelledError) or one == str(at).encode()
            assert await keys.get("s5") == b"5"

    asyncio.run(main())


def test_a_silent_connection_is_left_after_a_time_limit() -> None:
    async def main(port: int) -> None:
        async with AsyncKeys("127.0.0.1", port, timeout=0.2) as keys:
            start = time.monotonic()
            with pytest.raises(TransportError, match="no answer within"):
                await keys.get("a")
            assert time.monotonic() - start < 0.35  # A limit is what the caller waits at most: no second try.
            assert await keys.get("a") == b"1"

    with Scripted([None], [ok(b"1")]) as server:
        asyncio.run(main(server.port))


def test_one_object_serves_several_loops(server: Any) -> None:
    keys = server.async_keys()

    async def main() -> None:
        await asyncio.gather(*(keys.ping() for _ in range(100)))

    for _ in range(2):
        loop = asyncio.new_event_loop()
        loop.run_until_complete(main())
        loop.run_until_complete(keys.close())
        loop.close()


@pytest.mark.skipif(not hasattr(os, "fork"), reason="there is no fork")
def test_a_forked_process_has_connections_of_its_own(server: Any) -> None:
    with server.keys() as keys:
        keys.put("who", "parent")
        child = os.fork()
        if child == 0:
            try:
                right = all(keys.get("none") is None for _ in range(300))
            finally:
                os._exit(0 if right else 1)
        assert all(keys.get("who") == b"parent" for _ in range(300))
        assert os.waitpid(child, 0)[1] == 0


def test_a_redirect_to_no_address_says_so() -> None:
    port, thread = answering([redirect("nowhere")])
    with Keys("127.0.0.1", port) as keys, pytest.raises(NotLeaderError, match="'nowhere' is no address"):
        keys.get("a")
    thread.join()
