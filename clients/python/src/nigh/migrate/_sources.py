"""Where vectors come from. Each source gives its rows in an order that is the same each time, so that a migration can be resumed."""

from __future__ import annotations

import base64
import contextlib
import datetime
import decimal
import importlib
import json
import struct
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt


@dataclass
class Batch:
    """Rows, and the position behind them: what the source takes to go on there, as JSON. `vectors` has the shape (n, dim); `payloads` and
    `contents`, the texts, have one for each row, or are empty."""

    ids: list[int | str]
    vectors: npt.NDArray[np.float32]
    position: Any
    payloads: list[dict[str, Any]] = field(default_factory=list)
    contents: list[str] = field(default_factory=list)


class Source(Protocol):
    """Rows in an order that stays. `metric` is None if the source does not know it; `total` is the number of rows."""

    metric: str | None
    total: int

    def batches(self, position: Any, size: int) -> Iterator[Batch]:
        """The rows from a position on, None being the start, at most `size` in a batch."""


@dataclass
class Options:
    """What a source is asked with, each as the option of the command line of that name: `ids`, `payloads`, `name`, `prefix`, `id_field`,
    `vector_field` and `content_field`; `space` is `--metric`."""

    ids: str | None = None
    payloads: str | None = None
    name: str | None = None
    prefix: str = ""
    id_field: str = "id"
    vector_field: str = "vector"
    content_field: str | None = None
    space: str | None = None


def needed(module: str, package: str) -> Any:
    """A library that only this source needs."""
    try:
        return importlib.import_module(module)
    except ImportError as error:
        raise ValueError(f"this source needs the package {package}: pip install {package}") from error


def plain(value: Any) -> Any:
    """A value as JSON has it: times as RFC 3339 texts, bytes as base64, decimals as floats."""
    if isinstance(value, Mapping):
        return {str(key): plain(one) for key, one in value.items()}
    if isinstance(value, (list, tuple)):
        return [plain(one) for one in value]
    if isinstance(value, (datetime.datetime, datetime.date, datetime.time)):
        return value.isoformat()
    if isinstance(value, (bytes, bytearray, memoryview)):
        return base64.b64encode(value).decode()
    if isinstance(value, decimal.Decimal):
        return float(value)
    return value.tolist() if isinstance(value, (np.generic, np.ndarray)) else value


def named(given: str | None, names: list[str], what: str) -> str:
    """The name that was given, or the only one that there is."""
    if given is None and len(names) == 1:
        return names[0]
    if given not in names:
        raise ValueError(f"--name is {given!r}; it must be one of the {what}: {', '.join(sorted(names)) or 'there is none'}")
    return given


class _Arrays:
    """Rows of an array, with ids and payloads of files beside it if they are given."""

    metric: str | None = None

    def __init__(self, options: Options) -> None:
        self._ids = None if options.ids is None else np.load(options.ids, mmap_mode="r")
        self._payloads = None
        if options.payloads is not None:
            self._payloads = [json.loads(line) for line in Path(options.payloads).read_bytes().splitlines()]

    def _check(self, total: int) -> None:
        for what, there in (("--ids", self._ids), ("--payloads", self._payloads)):
            if there is not None and len(there) != total:
                raise ValueError(f"{what} has {len(there)} rows; the vectors are {total}")

    def _batch(self, start: int, vectors: Any, own_ids: Any = None) -> Batch:
        stop = start + len(vectors)
        ids = self._ids[start:stop].tolist() if self._ids is not None else range(start, stop) if own_ids is None else own_ids
        payloads = [] if self._payloads is None else self._payloads[start:stop]
        return Batch(list(ids), np.ascontiguousarray(vectors, dtype=np.float32), stop, payloads)


class Npy(_Arrays):
    """An array of shape (n, dim) in a `.npy` file; `--ids` is an array of n ids, `--payloads` a file with a line of JSON for each row."""

    def __init__(self, path: str, options: Options) -> None:
        super().__init__(options)
        self._vectors = np.load(path, mmap_mode="r")
        if self._vectors.ndim != 2:
            raise ValueError(f"{path} has the shape {self._vectors.shape}; it must be (rows, dim)")
        self.total = len(self._vectors)
        self._check(self.total)

    def batches(self, position: Any, size: int) -> Iterator[Batch]:
        for start in range(position or 0, self.total, size):
            yield self._batch(start, self._vectors[start : start + size])


def rows(found: list[Mapping[str, Any]], options: Options, position: Any, first: int) -> Batch:
    """A batch of rows with named fields. Rows without ids get their numbers, the first of which is `first`."""
    ids, vectors, payloads, contents = list[Any](), [], list[dict[str, Any]](), list[str]()
    for at, row in enumerate(found):
        rest = dict(row)
        try:
            vectors.append(rest.pop(options.vector_field))
        except KeyError:
            there = ", ".join(map(str, row))
            raise ValueError(f"a row has no field {options.vector_field!r}; name it with --vector-field: {there}") from None
        ids.append(rest.pop(options.id_field, first + at))
        contents.append(str(rest.pop(options.content_field, None) or "") if options.content_field else "")
        nested = rest.get("payload") or rest.get("metadata")
        payloads.append(plain(nested if isinstance(nested, Mapping) and len(rest) == 1 else rest))
    try:
        matrix = np.array(vectors, dtype=np.float32)
    except (TypeError, ValueError) as error:
        place = f"in rows {first} to {first + len(found) - 1}"
        raise ValueError(f"{place} a vector is no list of numbers, or longer than another: {error}") from error
    return Batch(ids, matrix, position, payloads, contents if options.content_field else [])


class JsonLines:
    """A line of JSON for each row, with fields for id, vector and text. `payload` or `metadata` is the payload if it is all that remains,
    otherwise what remains is."""

    metric: str | None = None

    def __init__(self, path: str, options: Options) -> None:
        self._path, self._options = path, options
        with open(path, "rb") as file:
            self.total = sum(1 for line in file if line.strip())

    def batches(self, position: Any, size: int) -> Iterator[Batch]:
        offset, number = position or (0, 0)
        with open(self._path, "rb") as file:
            file.seek(offset)
            found: list[Mapping[str, Any]] = []
            while line := file.readline():
                offset += len(line)
                if line.strip():
                    found.append(json.loads(line))
                if len(found) == size:
                    yield rows(found, self._options, [offset, number + size], number)
                    number, found = number + size, []
            if found:
                yield rows(found, self._options, [offset, number + len(found)], number)


class Parquet:
    """A Parquet file with a column of lists of numbers; the columns besides id, vector and text are the payload. Needs pyarrow."""

    metric: str | None = None

    def __init__(self, path: str, options: Options) -> None:
        self._file, self._options = needed("pyarrow.parquet", "pyarrow").ParquetFile(path), options
        self.total = self._file.metadata.num_rows

    def batches(self, position: Any, size: int) -> Iterator[Batch]:
        start, skip = 0, position or 0
        groups: list[int] = []
        for group in range(self._file.num_row_groups):
            count = self._file.metadata.row_group(group).num_rows
            if groups or start + count > skip:
                groups.append(group)
            else:
                start += count
        for part in self._file.iter_batches(batch_size=size, row_groups=groups):
            behind = start + part.num_rows
            if behind > skip:
                part = part.slice(max(0, skip - start))
                yield rows(part.to_pylist(), self._options, behind, behind - part.num_rows)
            start = behind


class Hnswlib(_Arrays):
    """An index that hnswlib has saved, which does not keep its space: give it with `--metric`. Needs hnswlib."""

    def __init__(self, path: str, options: Options) -> None:
        super().__init__(options)
        if options.space is None:
            raise ValueError("an index of hnswlib does not say its metric: give --metric cosine, l2 or dot")
        self.metric = options.space
        with open(path, "rb") as file:
            # The labels are behind the vector in what is kept for each element.
            *_, labels, data = struct.unpack("<6Q", file.read(48))
        if not 0 < labels - data <= 4 * 65_536 or (labels - data) % 4:
            raise ValueError(f"{path} is no index of hnswlib")
        self._index = needed("hnswlib", "hnswlib").Index({"dot": "ip"}.get(options.space, options.space), (labels - data) // 4)
        self._index.load_index(path)
        self._labels = sorted(self._index.get_ids_list())
        self.total = len(self._labels)
        self._check(self.total)

    def batches(self, position: Any, size: int) -> Iterator[Batch]:
        for start in range(position or 0, self.total, size):
            labels = self._labels[start : start + size]
            yield self._batch(start, self._index.get_items(labels), labels)


class Faiss(_Arrays):
    """An index that FAISS has written. Quantized indexes give the vectors that they have kept. Needs faiss-cpu."""

    def __init__(self, path: str, options: Options) -> None:
        super().__init__(options)
        faiss = needed("faiss", "faiss-cpu")
        index = self._file = faiss.read_index(path)  # Indexes within it live as long as it.
        self._own: Any = None
        if isinstance(index, (faiss.IndexIDMap, faiss.IndexIDMap2)):
            self._own = faiss.vector_to_array(index.id_map)
            index = faiss.downcast_index(index.index)
        self.metric = {faiss.METRIC_L2: "l2", faiss.METRIC_INNER_PRODUCT: "dot"}.get(index.metric_type)
        self.total = index.ntotal
        base = index
        while isinstance(base, (faiss.IndexPreTransform, faiss.IndexRefine)):
            base = faiss.downcast_index(base.index if isinstance(base, faiss.IndexPreTransform) else base.base_index)
        if isinstance(base, faiss.IndexIVF):
            lists = (faiss.rev_swig_ptr(base.invlists.get_ids(at), base.invlists.list_size(at)) for at in range(base.nlist))
            stored = np.sort(np.concatenate([np.array(one, dtype=np.int64) for one in lists]))
            base.set_direct_map_type(faiss.DirectMap.Hashtable)
            self._keys: Any = stored
            self._own = stored if self._own is None else self._own[stored]
        else:
            self._keys = np.arange(self.total, dtype=np.int64)
        self._index = index
        self._check(self.total)

    def batches(self, position: Any, size: int) -> Iterator[Batch]:
        for start in range(position or 0, self.total, size):
            keys = self._keys[start : start + size]
            own = keys.tolist() if self._own is None else self._own[start : start + size].tolist()
            yield self._batch(start, self._index.reconstruct_batch(keys), own)


class Chroma:
    """A collection of Chroma's persistent client; `--name` names it. Documents become texts. Needs chromadb."""

    def __init__(self, path: str, options: Options) -> None:
        if not Path(path).is_dir():
            raise ValueError(f"{path} is no directory of Chroma")
        client = needed("chromadb", "chromadb").PersistentClient(path)
        self._collection = client.get_collection(named(options.name, [one.name for one in client.list_collections()], "collections"))
        hnsw = self._collection.configuration.get("hnsw") or {}
        space = str(hnsw.get("space") or (self._collection.metadata or {}).get("hnsw:space") or "l2")
        self.metric: str | None = {"ip": "dot"}.get(space, space)
        self.total = self._collection.count()

    def batches(self, position: Any, size: int) -> Iterator[Batch]:
        size = min(size, 1000)
        for start in range(position or 0, self.total, size):
            found = self._collection.get(limit=size, offset=start, include=["embeddings", "metadatas", "documents"])
            contents = [text or "" for text in found["documents"]]
            payloads = [dict(one or {}) for one in found["metadatas"]]
            yield Batch(found["ids"], np.array(found["embeddings"], dtype=np.float32), start + len(found["ids"]), payloads, contents)


class Qdrant:
    """A collection of qdrant-client's local mode: `--name` names it, `--vector-field` the vector where there are several. Needs
    qdrant-client."""

    def __init__(self, path: str, options: Options) -> None:
        if not Path(path, "meta.json").is_file():
            raise ValueError(f"{path} is no directory of qdrant-client's local mode: it has no meta.json")
        self._client = needed("qdrant_client", "qdrant-client").QdrantClient(path=path)
        self._name = named(options.name, [one.name for one in self._client.get_collections().collections], "collections")
        params = self._client.get_collection(self._name).config.params.vectors
        self._vector: str | None = None
        if isinstance(params, dict):
            self._vector = options.vector_field if options.vector_field in params or len(params) != 1 else next(iter(params))
            if self._vector not in params:
                raise ValueError(f"--vector-field is {self._vector!r}; it must be one of the vectors: {', '.join(params)}")
            params = params[self._vector]
        self.metric: str | None = {"Cosine": "cosine", "Euclid": "l2", "Dot": "dot"}.get(str(params.distance.value))
        self.total = self._client.count(self._name).count
        self._content = options.content_field

    def batches(self, position: Any, size: int) -> Iterator[Batch]:
        while True:
            wanted: Any = True if self._vector is None else [self._vector]
            found, position = self._client.scroll(self._name, limit=size, offset=position, with_payload=True, with_vectors=wanted)
            if found:
                vectors = [one.vector if self._vector is None else one.vector[self._vector] for one in found]
                payloads = [plain(one.payload or {}) for one in found]
                contents = [str(one.pop(self._content, None) or "") for one in payloads] if self._content else []
                ids = [one.id if isinstance(one.id, int) else str(one.id) for one in found]
                after = position if position is None or isinstance(position, int) else str(position)
                yield Batch(ids, np.array(vectors, dtype=np.float32), {"end": True} if after is None else after, payloads, contents)
            if position is None:
                return


class Lance:
    """A table of LanceDB: `--name` names it; the columns besides id, vector and text are the payload. Needs lancedb."""

    metric: str | None = None

    def __init__(self, path: str, options: Options) -> None:
        if not Path(path).is_dir():
            raise ValueError(f"{path} is no directory of LanceDB")
        database = needed("lancedb", "lancedb").connect(path)
        names = [Path(one).stem for one in Path(path).glob("*.lance")]
        self._table, self._options = database.open_table(named(options.name, names, "tables")), options
        self.total = self._table.count_rows()

    def batches(self, position: Any, size: int) -> Iterator[Batch]:
        for start in range(position or 0, self.total, size):
            found = self._table.search().limit(size).offset(start).to_arrow().to_pylist()
            yield rows(found, self._options, start + len(found), start)


class Redis:
    """Hashes of Redis whose keys begin with `--prefix`; the vector is a field of 32-bit floats. The source is a URL, redis://host:port.
    Keys become ids, fields texts in the payload. Needs redis."""

    metric: str | None = None

    def __init__(self, path: str, options: Options) -> None:
        self._redis, self._options = needed("redis", "redis").Redis.from_url(path), options
        pattern = "".join("\\" + letter if letter in "*?[]\\^" else letter for letter in options.prefix) + "*"
        self._keys = sorted(set(self._redis.scan_iter(match=pattern, count=1000, _type="hash")))
        self.total = len(self._keys)

    def batches(self, position: Any, size: int) -> Iterator[Batch]:
        for start in range(position or 0, self.total, size):
            keys = self._keys[start : start + size]
            with self._redis.pipeline(transaction=False) as pipeline:
                for key in keys:
                    pipeline.hgetall(key)
                found = list[Mapping[str, Any]]()
                for key, stored in zip(keys, pipeline.execute(), strict=True):
                    name = self._options.vector_field.encode()
                    row = {field.decode(): value.decode("utf-8", "replace") for field, value in stored.items() if field != name}
                    if name in stored:
                        row[self._options.vector_field] = np.frombuffer(stored[name], dtype="<f4")
                    found.append({**row, self._options.id_field: key.decode()})
            yield rows(found, self._options, start + len(keys), start)


# Types of PostgreSQL whose values are those of JSON, or become them in `plain`; values of others are taken as texts.
_POSTGRES_PLAIN = "bool int2 int4 int8 float4 float8 numeric text varchar bpchar json jsonb date time timestamp timestamptz bytea".split()
# The vector columns of a database with their tables; a partition's rows are those of its table.
_POSTGRES_VECTORS = """SELECT c.oid::regclass::text FROM pg_class c JOIN pg_attribute a ON a.attrelid = c.oid
JOIN pg_type t ON t.oid = a.atttypid
WHERE t.typname IN ('vector', 'halfvec') AND NOT a.attisdropped AND c.relkind IN ('r', 'p', 'm') AND NOT c.relispartition GROUP BY c.oid"""
_POSTGRES_COLUMNS = """SELECT a.attname, t.typname, a.attnotnull AND EXISTS (SELECT FROM pg_index i WHERE i.indrelid = a.attrelid
AND i.indisunique AND i.indisvalid AND i.indnkeyatts = 1 AND i.indkey[0] = a.attnum AND i.indpred IS NULL)
FROM pg_attribute a JOIN pg_type t ON t.oid = a.atttypid
WHERE a.attrelid = %s::regclass AND a.attnum > 0 AND NOT a.attisdropped ORDER BY a.attnum"""
_POSTGRES_INDEXES = """SELECT DISTINCT o.opcname FROM pg_index i JOIN pg_attribute a ON a.attrelid = i.indrelid AND a.attnum = i.indkey[0]
JOIN pg_opclass o ON o.oid = i.indclass[0] WHERE i.indrelid = %s::regclass AND a.attname = %s"""


class Pgvector:
    """A table of PostgreSQL with a column of pgvector's type `vector` or `halfvec`; `--name` names the table where there are several. The
    source is a URL, postgresql://user@host/database. The column of ids holds integers, texts or UUIDs and is not null and unique, by which
    a migration can go on. Rows whose vector is NULL are left out; the other columns are the payload. Needs psycopg.

    The metric is that of the vector's index, where there is one. All rows are of one moment, that at which the source was opened."""

    def __init__(self, path: str, options: Options) -> None:
        self._psycopg, self._options = needed("psycopg", "psycopg[binary]"), options
        self._sql = needed("psycopg.sql", "psycopg[binary]")
        if not path.startswith(("postgresql://", "postgres://")):
            raise ValueError("the source of pgvector must be a URL: postgresql://user@host/database")
        with self._told():
            self._connection = self._psycopg.connect(path, connect_timeout=30)
            self._connection.isolation_level = self._psycopg.IsolationLevel.REPEATABLE_READ
            self._connection.read_only = True
            names = [name for (name,) in self._connection.execute(_POSTGRES_VECTORS)]
            given = options.name
            if given is not None:
                given = self._connection.execute("SELECT to_regclass(%s)::text", (given,)).fetchone()[0] or given
            table = named(given, names, "tables")
            self._choose(table)
            counted = self._sql.SQL("SELECT count(*) FROM {} WHERE {} IS NOT NULL").format(self._table, self._vector)
            self.total = int(self._connection.execute(counted).fetchone()[0])

    @contextlib.contextmanager
    def _told(self) -> Iterator[None]:
        """Errors of the database as those that sources raise."""
        try:
            yield
        except self._psycopg.Error as error:
            raise ValueError(f"PostgreSQL: {error}") from error

    def _choose(self, table: str) -> None:
        """Looks for the columns of the table, and for the metric."""
        sql, options = self._sql, self._options
        columns = {name: (kind, unique) for name, kind, unique in self._connection.execute(_POSTGRES_COLUMNS, (table,))}
        vectors = [name for name, (kind, _) in columns.items() if kind in ("vector", "halfvec")]
        vector = vectors[0] if options.vector_field not in vectors and len(vectors) == 1 else options.vector_field
        if vector not in vectors:
            raise ValueError(f"--vector-field is {vector!r}; it must be one of the columns of vectors: {', '.join(vectors)}")
        kind, unique = columns.get(options.id_field, ("", False))
        if kind not in ("int2", "int4", "int8", "text", "varchar", "uuid") or not unique:
            fit = [name for name, (kind, unique) in columns.items() if unique]
            raise ValueError(
                f"--id-field is {options.id_field!r}; it must be a column of integers, texts or UUIDs that is not null and unique: "
                + (", ".join(fit) or "there is none")
            )
        if options.content_field is not None and options.content_field not in columns:
            raise ValueError(f"--content-field is {options.content_field!r}; it must be one of the columns: {', '.join(columns)}")
        found = {name.split("_")[1] for (name,) in self._connection.execute(_POSTGRES_INDEXES, (table, vector))}
        metrics = {"cosine": "cosine", "l2": "l2", "ip": "dot"}
        self.metric: str | None = metrics.get(found.pop()) if len(found) == 1 else None
        read = []
        for name, (type_, _) in columns.items():
            fits = type_.removeprefix("_") in _POSTGRES_PLAIN
            cast = "real[]" if type_ in ("vector", "halfvec") else "text[]" if type_.startswith("_") else "text"
            column = sql.Identifier(name)
            read.append(column if fits else sql.SQL("{}::{} AS {}").format(column, sql.SQL(cast), column))
        self._fields = [options.vector_field if name == vector else name for name in columns]
        # The text is already quoted where it must be.
        self._table, self._vector, self._id = sql.SQL(table), sql.Identifier(vector), sql.Identifier(options.id_field)
        self._read, self._kind = sql.SQL(", ").join(read), sql.SQL(kind)

    def batches(self, position: Any, size: int) -> Iterator[Batch]:
        done = 0
        while True:
            behind = self._sql.SQL("AND {} > {}::{} ").format(self._id, self._sql.Literal(position), self._kind)
            asked = self._sql.SQL("SELECT {} FROM {} WHERE {} IS NOT NULL {}ORDER BY {} LIMIT {}").format(
                self._read, self._table, self._vector, behind if position is not None else self._sql.SQL(""), self._id, size
            )
            with self._told():
                answer = self._connection.execute(asked)
                found: list[Mapping[str, Any]] = [dict(zip(self._fields, row, strict=True)) for row in answer]
            if not found:
                return
            position = found[-1][self._options.id_field]
            yield rows(found, self._options, position, done)
            done += len(found)


SOURCES: dict[str, Any] = {
    "npy": Npy, "jsonl": JsonLines, "parquet": Parquet, "hnswlib": Hnswlib, "faiss": Faiss, "chroma": Chroma, "qdrant": Qdrant,
    "lancedb": Lance, "redis": Redis, "pgvector": Pgvector,
}  # fmt: skip


def open_source(kind: str, path: str, options: Options | None = None) -> Source:
    """Opens the source at `path`; `kind` is one of those that `python -m nigh migrate --help` lists. Raises ValueError, which says what is
    wrong with what was given."""
    if kind not in SOURCES:
        raise ValueError(f"{kind!r} is no kind of source; it must be one of {', '.join(SOURCES)}")
    found: Source = SOURCES[kind](path, options or Options())
    return found
