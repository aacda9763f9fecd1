"""Migrations from each source with its own library, where that is installed; and what holds for all of them."""

from __future__ import annotations

import datetime
import importlib.util
import json
import shutil
import subprocess
import sys
import time
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from nigh import Client, PrivateServer
from nigh.__main__ import _shown, main
from nigh.migrate import MigrationError, migrate, open_source
from nigh.migrate._sources import Options

COUNT, DIM = 537, 12
VECTORS = np.random.default_rng(5).standard_normal((COUNT, DIM)).astype(np.float32)
PAYLOADS = [{"n": at, "even": at % 2 == 0, "tag": f"é{at % 3}"} for at in range(COUNT)]


@pytest.fixture
def run(server: PrivateServer, name: str, tmp_path: Path) -> Callable[..., int]:
    """The command line; its exit code."""

    def called(kind: str, source: Any, *more: str) -> int:
        state = str(tmp_path / "state.json")
        return main(["migrate", kind, str(source), name, "--url", f"http://{server.http}", "--state", state, "--batch-size", "100", *more])

    return called


def arrived(http: Client, name: str, ids: list[Any], metric: str, *, payloads: Any = PAYLOADS, contents: bool = False) -> None:
    """Every row is there as it was."""
    assert http.get_config(name)["config"]["metric"] == metric
    points = {point.id: point for point in http.get_batch(name, ids)}
    assert http.count(name) == len(points) == COUNT
    lengths = np.linalg.norm(VECTORS, axis=1, keepdims=True) if metric == "cosine" else 1
    np.testing.assert_allclose(np.array([points[one].vector for one in ids]), VECTORS / lengths, rtol=1e-4, atol=1e-5)
    assert [points[one].payload for one in ids] == (payloads or [{}] * COUNT)
    assert [points[one].content for one in ids] == ([f"text {at}" for at in range(COUNT)] if contents else [""] * COUNT)


def lines(path: Path, rows: Any) -> Path:
    path.write_text("".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows))
    return path


def test_npy(http: Client, name: str, run: Any, tmp_path: Path) -> None:
    np.save(tmp_path / "v.npy", VECTORS.astype(np.float64))
    np.save(tmp_path / "i.npy", np.arange(COUNT, dtype=np.int32) * 7)
    lines(tmp_path / "p.jsonl", PAYLOADS)
    more = ("--ids", str(tmp_path / "i.npy"), "--payloads", str(tmp_path / "p.jsonl"), "--metric", "l2")
    assert run("npy", tmp_path / "v.npy", *more) == 0
    arrived(http, name, [at * 7 for at in range(COUNT)], "l2")
    assert not (tmp_path / "state.json").exists()
    np.save(tmp_path / "i.npy", np.arange(3))
    assert run("npy", tmp_path / "v.npy", *more) == 1


def test_json_lines(http: Client, name: str, run: Any, tmp_path: Path) -> None:
    rows = [{"key": f"doc/{at}", "emb": VECTORS[at].tolist(), "text": f"text {at}", **PAYLOADS[at]} for at in range(COUNT)]
    path = lines(tmp_path / "rows.jsonl", rows)
    more = ("--id-field", "key", "--vector-field", "emb", "--content-field", "text", "--config", "full_text=true")
    assert run("jsonl", path, *more) == 0
    arrived(http, name, [f"doc/{at}" for at in range(COUNT)], "cosine", contents=True)
    assert [hit.id for hit in http.search_text(name, "17", 1)] == ["doc/17"]


def test_json_lines_with_payloads(http: Client, name: str, run: Any, tmp_path: Path) -> None:
    rows = ({"vector": VECTORS[at].tolist(), "metadata": PAYLOADS[at]} for at in range(COUNT))
    assert run("jsonl", lines(tmp_path / "rows.jsonl", rows), "--metric", "dot") == 0
    arrived(http, name, list(range(COUNT)), "dot")


def test_parquet(http: Client, name: str, run: Any, tmp_path: Path) -> None:
    pyarrow = pytest.importorskip("pyarrow")
    parquet = pytest.importorskip("pyarrow.parquet")

    day = datetime.date(2026, 1, 2)
    texts = [f"text {at}" for at in range(COUNT)]
    table = pyarrow.table({"id": range(COUNT), "vector": list(VECTORS), "day": [day] * COUNT, "text": texts})
    parquet.write_table(table, tmp_path / "rows.parquet", row_group_size=90)
    assert run("parquet", tmp_path / "rows.parquet", "--content-field", "text", "--metric", "l2") == 0
    arrived(http, name, list(range(COUNT)), "l2", payloads=[{"day": "2026-01-02"}] * COUNT, contents=True)


@pytest.mark.parametrize("metric", ["cosine", "l2", "dot"])
def test_hnswlib(http: Client, name: str, run: Any, tmp_path: Path, metric: str) -> None:
    hnswlib = pytest.importorskip("hnswlib")
    index = hnswlib.Index({"dot": "ip"}.get(metric, metric), DIM)
    index.init_index(COUNT * 2)
    labels = np.arange(COUNT) * 3 + 1
    index.add_items(VECTORS, labels)
    index.save_index(str(tmp_path / "index.bin"))
    lines(tmp_path / "p.jsonl", PAYLOADS)
    assert run("hnswlib", tmp_path / "index.bin") == 1
    assert run("hnswlib", tmp_path / "index.bin", "--metric", metric, "--payloads", str(tmp_path / "p.jsonl")) == 0
    arrived(http, name, labels.tolist(), metric)
    (tmp_path / "index.bin").write_bytes(b"x" * 100)
    assert run("hnswlib", tmp_path / "index.bin", "--metric", metric) == 1


@pytest.mark.parametrize("factory", ["Flat", "IDMap,Flat", "IDMap2,HNSW8", "IVF8,Flat", "own IVF8,Flat"])
def test_faiss(http: Client, name: str, run: Any, tmp_path: Path, factory: str) -> None:
    faiss = pytest.importorskip("faiss")
    own = not (factory.startswith(("Flat", "IVF")))
    index = faiss.index_factory(DIM, factory.removeprefix("own "), faiss.METRIC_INNER_PRODUCT if factory == "Flat" else faiss.METRIC_L2)
    index.train(VECTORS)
    ids = list(range(COUNT, 0, -1)) if own else list(range(COUNT))
    if own:
        index.add_with_ids(VECTORS, np.array(ids))
    else:
        index.add(VECTORS)
    faiss.write_index(index, str(tmp_path / "index.faiss"))
    assert run("faiss", tmp_path / "index.faiss") == 0
    arrived(http, name, ids, "dot" if factory == "Flat" else "l2", payloads=None)


def test_chroma(http: Client, name: str, run: Any, tmp_path: Path) -> None:
    chromadb = pytest.importorskip("chromadb")
    client = chromadb.PersistentClient(str(tmp_path / "chroma"))
    made = client.create_collection("docs", configuration={"hnsw": {"space": "ip"}})
    ids = [f"id {at}" for at in range(COUNT)]
    made.add(ids=ids, embeddings=VECTORS, metadatas=PAYLOADS, documents=[f"text {at}" for at in range(COUNT)])
    client.create_collection("other")
    assert run("chroma", tmp_path / "chroma") == 1
    assert run("chroma", tmp_path / "chroma", "--name", "docs") == 0
    arrived(http, name, ids, "dot", contents=True)


@pytest.mark.parametrize("kind", ["plain", "named", "uuid"])
def test_qdrant(http: Client, name: str, run: Any, tmp_path: Path, kind: str) -> None:
    qdrant = pytest.importorskip("qdrant_client")
    models = qdrant.models
    client = qdrant.QdrantClient(path=str(tmp_path / "qdrant"))
    params = models.VectorParams(size=DIM, distance=models.Distance.EUCLID)
    client.create_collection("docs", vectors_config={"words": params} if kind == "named" else params)
    ids: list[Any] = [str(uuid.uuid4()) for _ in range(COUNT)] if kind == "uuid" else list(range(COUNT))
    rows: list[Any] = [{"words": one} if kind == "named" else one for one in VECTORS.tolist()]
    payloads = [{**PAYLOADS[at], "text": f"text {at}"} for at in range(COUNT)]
    points = [models.PointStruct(id=ids[at], vector=rows[at], payload=payloads[at]) for at in range(COUNT)]
    client.upsert("docs", points)
    client.close()
    assert run("qdrant", tmp_path) == 1
    assert run("qdrant", tmp_path / "qdrant", "--content-field", "text") == 0
    arrived(http, name, ids, "l2", contents=True)


def test_lancedb(http: Client, name: str, run: Any, tmp_path: Path) -> None:
    lancedb = pytest.importorskip("lancedb")
    database = lancedb.connect(str(tmp_path / "lance"))
    rows = [{"id": f"{at}", "vector": VECTORS[at], "text": f"text {at}", **PAYLOADS[at]} for at in range(COUNT)]
    table = database.create_table("docs", rows[:300])
    table.add(rows[300:])
    assert run("lancedb", tmp_path / "lance", "--content-field", "text", "--metric", "l2") == 0
    arrived(http, name, [f"{at}" for at in range(COUNT)], "l2", contents=True)


@pytest.fixture
def redis_url(tmp_path: Path) -> Iterator[str]:
    """A server of Redis on a socket of its own."""
    binary = shutil.which("redis-server")
    if binary is None:
        pytest.skip("there is no redis-server")
    path = tmp_path / "redis.sock"
    command = [binary, "--port", "0", "--unixsocket", str(path), "--save", "", "--dir", str(tmp_path)]
    with subprocess.Popen(command, stdout=subprocess.DEVNULL) as process:
        while not path.exists() and process.poll() is None:
            time.sleep(0.01)
        yield f"unix://{path}"
        process.terminate()


def test_redis(http: Client, name: str, run: Any, redis_url: str) -> None:
    redis = pytest.importorskip("redis")
    with redis.Redis.from_url(redis_url) as client:
        for at in range(COUNT):
            client.hset(f"doc[{at:03}", mapping={"vector": VECTORS[at].tobytes(), "n": at, "text": f"text {at}"})
        client.hset("other", "a", "b")
        client.set("doc[text", "b")
    assert run("redis", redis_url, "--prefix", "doc[", "--content-field", "text") == 0
    arrived(http, name, [f"doc[{at:03}" for at in range(COUNT)], "cosine", payloads=[{"n": str(at)} for at in range(COUNT)], contents=True)


@pytest.fixture(scope="session")
def postgres(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    """A connection to a server of PostgreSQL with pgvector, and its URL."""
    pgserver = pytest.importorskip("pgserver")
    psycopg = pytest.importorskip("psycopg")
    made = pgserver.get_server(str(tmp_path_factory.mktemp("postgres")), cleanup_mode="delete")
    with psycopg.connect(made.get_uri(), autocommit=True) as connection:
        connection.execute("CREATE EXTENSION vector")
        yield connection, made.get_uri()
    made.cleanup()


@pytest.fixture
def tables(postgres: Any) -> Iterator[Any]:
    """The same with a table of texts by number, which is removed behind the test with all others."""
    connection, url = postgres
    connection.execute(f'CREATE TABLE docs (id bigint PRIMARY KEY, n int, even bool, tag text, embedding vector({DIM}), "a text" text)')
    rows = [(at, at, at % 2 == 0, f"é{at % 3}", str(VECTORS[at].tolist()), f"text {at}") for at in range(COUNT)]
    with connection.cursor() as cursor:
        cursor.executemany("INSERT INTO docs VALUES (%s, %s, %s, %s, %s, %s)", rows)
    yield connection, url
    connection.execute("DROP SCHEMA IF EXISTS other CASCADE; DROP TABLE IF EXISTS docs, more")


@pytest.mark.parametrize(("index", "metric"), [(None, "cosine"), ("cosine", "cosine"), ("l2", "l2"), ("ip", "dot")])
def test_pgvector(http: Client, name: str, run: Any, tables: Any, index: str | None, metric: str) -> None:
    connection, url = tables
    if index is not None:
        connection.execute(f"CREATE INDEX ON docs USING hnsw (embedding vector_{index}_ops)")
    connection.execute("INSERT INTO docs (id) VALUES (100000)")  # Without a vector: no point.
    assert run("pgvector", url, "--content-field", "a text") == 0
    arrived(http, name, list(range(COUNT)), metric, contents=True)


def test_pgvector_with_uuids_and_values_of_all_types(http: Client, name: str, run: Any, tables: Any, capsys: Any) -> None:
    connection, url = tables
    connection.execute("CREATE SCHEMA other")
    connection.execute(f"CREATE TABLE other.more (key uuid PRIMARY KEY, vector vector({DIM}), second vector(2), at timestamptz, "
                       "price numeric, tags text[], span interval, owner uuid, owners uuid[], "
                       "about jsonb, raw bytea, nothing int)")  # fmt: skip
    ids = sorted(str(uuid.UUID(int=at * 7919 << 90)) for at in range(COUNT))
    with connection.cursor() as cursor:
        for at, one in enumerate(ids):
            values = (one, str(VECTORS[at].tolist()), "[1, 2.5]", "2026-01-02T03:04:05Z", "1.5", ["a", "b"], "1 day", one, [one],
                      '{"deep": [1, {"x": null}]}', b"ab", None)  # fmt: skip
            cursor.execute(f"INSERT INTO other.more VALUES ({', '.join(['%s'] * len(values))})", values)
    assert run("pgvector", url) == 1 and "docs, other.more" in capsys.readouterr().err
    assert run("pgvector", url, "--name", "other.more", "--id-field", "key", "--metric", "l2") == 0
    payloads = [{"second": [1, 2.5], "at": "2026-01-02T03:04:05+00:00", "price": 1.5, "tags": ["a", "b"], "span": "1 day", "owner": one,
                 "owners": [one], "about": {"deep": [1, {"x": None}]}, "raw": "YWI=", "nothing": None} for one in ids]  # fmt: skip
    arrived(http, name, ids, "l2", payloads=payloads)


def test_what_was_interrupted_of_pgvector_goes_on(http: Client, server: PrivateServer, name: str, tables: Any, tmp_path: Path) -> None:
    connection, url = tables
    connection.execute("ALTER TABLE docs DROP n, DROP even, DROP tag, DROP \"a text\"; ALTER TABLE docs ALTER id TYPE text")
    with Client(f"http://{server.http}") as client:
        fails_after(client, 2)
        with pytest.raises(KeyboardInterrupt):
            migrate(open_source("pgvector", url), client, name, batch_size=100, state=tmp_path / "state.json")
    passed: list[int] = []
    migrate(open_source("pgvector", url), http, name, batch_size=100, state=tmp_path / "state.json", progress=passed.append)
    assert passed[0] == 200 and sum(passed) == COUNT
    arrived(http, name, [str(at) for at in range(COUNT)], "cosine", payloads=None)


def test_what_is_wrong_with_pgvector_is_said(name: str, run: Any, tables: Any, capsys: Any, tmp_path: Path) -> None:
    connection, url = tables
    connection.execute("ALTER TABLE docs ADD word text")
    for more, message in [
        (("--id-field", "word"), "not null and unique: id"),
        (("--id-field", "none"), "not null and unique: id"),
        (("--content-field", "none"), "one of the columns: id, n"),
        (("--name", "none"), "one of the tables: docs"),
    ]:
        assert run("pgvector", url, *more) == 1 and message in capsys.readouterr().err
    connection.execute("ALTER TABLE docs ADD more vector(2)")
    assert run("pgvector", url) == 1 and "columns of vectors: embedding, more" in capsys.readouterr().err
    assert run("pgvector", "docs") == 1 and "must be a URL" in capsys.readouterr().err
    assert run("pgvector", f"postgresql://user@127.0.0.1:1/{tmp_path.name}") == 1 and "PostgreSQL:" in capsys.readouterr().err


@pytest.mark.parametrize(("url", "shown"), [
    ("postgresql://me:se:cr@t@db/x", "postgresql://me@db/x"),
    ("postgresql://me@db/x?password=secret&a=b", "postgresql://me@db/x?password=&a=b"),
    ("redis://:secret@db:6379/0", "redis://@db:6379/0"),
    ("redis://db:6379", "redis://db:6379"),
    ("rows.npy", str(Path.cwd() / "rows.npy")),
])  # fmt: skip
def test_no_password_is_kept(url: str, shown: str) -> None:
    assert _shown(url) == shown


def fails_after(client: Client, batches: int) -> None:
    """Lets the client end after so many batches, after that one has been written."""
    write = client.batch_upsert
    left = [batches]

    def limited(*args: Any, **kwargs: Any) -> int:
        done = write(*args, **kwargs)
        left[0] -= 1
        if left[0] < 0:
            raise KeyboardInterrupt
        return done

    client.batch_upsert = limited


def sources(tmp_path: Path) -> Iterator[tuple[str, Any]]:
    np.save(tmp_path / "v.npy", VECTORS)
    yield "npy", tmp_path / "v.npy"
    yield "jsonl", lines(tmp_path / "v.jsonl", ({"id": at, "vector": VECTORS[at].tolist()} for at in range(COUNT)))
    if importlib.util.find_spec("pyarrow") is None:
        return
    pyarrow, parquet = importlib.import_module("pyarrow"), importlib.import_module("pyarrow.parquet")
    parquet.write_table(pyarrow.table({"id": range(COUNT), "vector": list(VECTORS)}), tmp_path / "v.parquet", row_group_size=170)
    yield "parquet", tmp_path / "v.parquet"


def test_what_was_interrupted_goes_on(http: Client, server: PrivateServer, run: Any, name: str, tmp_path: Path) -> None:
    for kind, path in sources(tmp_path):
        with Client(f"http://{server.http}") as client:
            fails_after(client, 2)
            state, about = tmp_path / "state.json", {"kind": kind, "source": str(path), "name": None}
            with pytest.raises(KeyboardInterrupt):
                migrate(open_source(kind, str(path)), client, name, batch_size=100, state=state, about=about)
        assert http.count(name) == 300 and json.loads(state.read_text())["rows"] == 200
        assert run(kind, path, "--metric", "l2") == 1, "another metric is another migration"
        passed: list[int] = []
        done = migrate(open_source(kind, str(path)), http, name, batch_size=100, state=state, about=about, progress=passed.append)
        assert done["rows"] == sum(passed) == COUNT and passed[0] == 200 and done["recall"] > 0.9
        arrived(http, name, list(range(COUNT)), "cosine", payloads=None)
        assert run(kind, path) == 1, "a collection with points is left alone"
        http.drop_collection(name)


def test_what_did_not_arrive_is_found(http: Client, name: str, tmp_path: Path) -> None:
    np.save(tmp_path / "v.npy", VECTORS)
    source = open_source("npy", str(tmp_path / "v.npy"))
    ways: list[tuple[Any, str]] = [
        (lambda: http.delete(name, 400), "points: are ids repeated"),
        (lambda: http.upsert(name, 1000, VECTORS[3]), "does another program"),
        (lambda: http.upsert(name, 0, VECTORS[0], payload={"a": 1}), "the row 0 is not"),
        (lambda: http.batch_upsert(name, range(COUNT), -VECTORS), "nearest points"),
        (lambda: http.batch_upsert(name, np.roll(np.arange(COUNT), 1), VECTORS), "nearest points"),
    ]
    for change, message in ways:
        passed: list[int] = []

        def damage(count: int, change: Any = change, passed: list[int] = passed) -> None:
            passed.append(count)
            if sum(passed) == COUNT:
                change()

        with pytest.raises(MigrationError, match=message):
            migrate(source, http, name, metric="l2", batch_size=100, state=tmp_path / "s.json", progress=damage)
        (tmp_path / "s.json").unlink()
        http.drop_collection(name)


def test_what_is_wrong_is_said(http: Client, name: str, run: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(ValueError, match="no kind of source"):
        open_source("nothing", "", Options())
    lines(tmp_path / "a.jsonl", [{"id": 1, "vector": [1, 2]}, {"id": "b", "vector": [1, 2]}])
    assert run("jsonl", tmp_path / "a.jsonl") == 1 and "numbers and texts as ids" in capsys.readouterr().err
    lines(tmp_path / "b.jsonl", [{"id": 1, "vector": [1, 2]}, {"id": 2, "vector": [1, 2, 3]}])
    assert run("jsonl", tmp_path / "b.jsonl") == 1 and "longer than another" in capsys.readouterr().err
    lines(tmp_path / "c.jsonl", [{"id": 1, "v": [1, 2]}])
    assert run("jsonl", tmp_path / "c.jsonl") == 1 and "--vector-field: id, v" in capsys.readouterr().err
    assert run("npy", tmp_path / "none.npy") == 1 and "none.npy" in capsys.readouterr().err
    assert run("chroma", tmp_path / "none") == 1 and "none" in capsys.readouterr().err


def test_as_a_program(server: PrivateServer, name: str, http: Client, tmp_path: Path) -> None:
    np.save(tmp_path / "v.npy", VECTORS)
    command = [sys.executable, "-m", "nigh", "migrate", "npy", "v.npy", name, "--url", f"http://{server.http}"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=True)
    assert done.stdout.startswith(f"{COUNT} rows are in {name} (cosine); counts and sampled searches fit") and "537" in done.stderr
    assert [path.name for path in tmp_path.iterdir()] == ["v.npy"]
