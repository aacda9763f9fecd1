"""Carries rows from a source to a collection, and looks whether they have arrived."""

from __future__ import annotations

import contextlib
import json
import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from .._plan import encoded
from .._types import Point
from ..client import Client
from ._sources import Batch, Source

_SAMPLES, _NEAREST = 20, 10


class MigrationError(Exception):
    """What was found does not fit what was expected."""


def _distances(queries: npt.NDArray[Any], vectors: npt.NDArray[Any], metric: str) -> npt.NDArray[np.float64]:
    """The distances of each query to each vector, as the server has them."""
    a, b = queries.astype(np.float64), vectors.astype(np.float64)
    if metric == "l2":
        return np.asarray(np.maximum((a * a).sum(1)[:, None] + (b * b).sum(1)[None] - 2 * a @ b.T, 0))
    if metric == "dot":
        return np.asarray(-a @ b.T)
    lengths = [np.linalg.norm(one, axis=1, keepdims=True) for one in (a, b)]
    a, b = (one / np.where(length == 0, 1, length) for one, length in zip((a, b), lengths, strict=True))
    return np.asarray(1 - a @ b.T)


class _State:
    """How far a migration has come, in a file that is replaced behind each batch: position and rows written; some rows of the first batch
    with their payloads; and for each of these the nearest rows so far, by which the collection is checked at the end."""

    def __init__(self, path: Path, about: Mapping[str, Any]) -> None:
        self.path = path
        self.data: dict[str, Any] = {"about": dict(about), "position": None, "rows": 0, "samples": [], "nearest": []}
        self.resumed = path.exists()
        if self.resumed:
            self.data = json.loads(path.read_bytes())
            differing = [key for key in about if self.data["about"].get(key) != about[key]]
            if differing:
                what = ", ".join(f"{key} {self.data['about'].get(key)!r} instead of {about[key]!r}" for key in differing)
                raise MigrationError(f"{path} is of another migration, with {what}: end that one, or remove the file to begin anew")

    def passed(self, batch: Batch, metric: str) -> None:
        data = self.data
        if not data["samples"]:
            for at in np.linspace(0, len(batch.ids) - 1, min(_SAMPLES, len(batch.ids))).astype(int).tolist():
                payload = batch.payloads[at] if batch.payloads else {}
                content = batch.contents[at] if batch.contents else ""
                vector = batch.vectors[at].tolist()
                data["samples"].append({"id": batch.ids[at], "vector": vector, "payload": payload, "content": content})
            data["nearest"] = [[] for _ in data["samples"]]
        found = _distances(np.array([sample["vector"] for sample in data["samples"]]), batch.vectors, metric)
        for nearest, distances in zip(data["nearest"], found, strict=True):
            for at in np.argsort(distances, kind="stable")[:_NEAREST].tolist():
                nearest.append([float(distances[at]), batch.ids[at]])
            nearest.sort(key=lambda one: one[0])
            del nearest[_NEAREST:]
        data["position"], data["rows"] = batch.position, data["rows"] + len(batch.ids)
        beside = self.path.with_name(self.path.name + ".new")
        with open(beside, "wb") as file:
            file.write(encoded(data))
            file.flush()
            os.fsync(file.fileno())
        os.replace(beside, self.path)


def _prepare(client: Client, collection: str, state: _State, first: Batch, metric: str, config: Mapping[str, Any]) -> None:
    """Makes the collection, or looks whether the one that is there may be filled."""
    strings, dim = isinstance(first.ids[0], str), first.vectors.shape[1]
    if not client.collection_exists(collection):
        if state.resumed:
            there = state.data["rows"]
            raise MigrationError(f"{state.path} says that {there} rows are in {collection!r}, which does not exist: remove the file")
        client.create_collection(collection, dim, metric=metric, ids="string" if strings else "number", **config)
        return
    found = client.get_config(collection)["config"]
    wanted = {"dim": dim, "metric": metric, "ids": "string" if strings else "number"}
    for key, value in wanted.items():
        if found[key] != value:
            raise MigrationError(f"the collection {collection!r} has {key} {found[key]!r}; the source has {value!r}")
    if not state.resumed and (there := client.count(collection)):
        raise MigrationError(f"the collection {collection!r} has {there} points already: name another, or drop it")


def _write(client: Client, collection: str, batch: Batch) -> None:
    if len({isinstance(one, str) for one in batch.ids}) > 1:
        raise MigrationError("the source has numbers and texts as ids; a collection has one kind")
    payloads = batch.payloads or [{}] * len(batch.ids)
    if batch.contents:
        rows = zip(batch.ids, batch.vectors, payloads, batch.contents, strict=True)
        client.upsert_points(collection, (Point(id, vector, payload, content) for id, vector, payload, content in rows))
    else:
        client.batch_upsert(collection, batch.ids, batch.vectors, payloads=payloads if batch.payloads else None)


def _verify(client: Client, collection: str, data: Mapping[str, Any], metric: str) -> float:
    """Compares the number of points, samples, and the nearest points of samples. Gives the recall of searches through the index."""
    samples, count = data["samples"], client.count(collection)
    if count != data["rows"]:
        why = "are ids repeated in the source?" if count < data["rows"] else "does another program write to it?"
        raise MigrationError(f"{data['rows']} rows were written, the collection has {count} points: {why}")
    if not samples:
        return 1.0
    points = {point.id: point for point in client.get_batch(collection, [sample["id"] for sample in samples])}
    for sample in samples:
        point = points.get(sample["id"])
        expected = json.loads(encoded(sample["payload"]))
        if point is None or point.payload != expected or point.content != sample["content"]:
            raise MigrationError(f"the row {sample['id']!r} is not in the collection as it is in the source: {point!r}")
    queries = np.array([sample["vector"] for sample in samples], dtype=np.float32)
    exact = client.search_batch(collection, queries, _NEAREST, exact=True)
    near = client.search_batch(collection, queries, _NEAREST)
    common = 0
    for sample, hits, approximate, nearest in zip(samples, exact, near, data["nearest"], strict=True):
        distances = np.array([one[0] for one in nearest])
        tolerance = 1e-4 * (1 + np.abs(distances).max())
        found = {hit.id for hit in hits}
        certain = {id for distance, id in nearest if distance < distances[-1] - 2 * tolerance}
        fits = len(hits) == len(nearest) and np.allclose([hit.distance for hit in hits], distances, rtol=1e-3, atol=tolerance)
        if not fits or not certain <= found:
            there = [[hit.distance, hit.id] for hit in hits]
            raise MigrationError(f"the nearest points of {sample['id']!r} are {there} in the collection and {nearest} in the source")
        common += len(found & {hit.id for hit in approximate})
    return common / sum(len(hits) for hits in exact)


def migrate(
    source: Source,
    client: Client,
    collection: str,
    *,
    metric: str | None = None,
    batch_size: int = 1000,
    state: str | os.PathLike[str] | None = None,
    about: Mapping[str, Any] | None = None,
    config: Mapping[str, Any] | None = None,
    progress: Callable[[int], Any] | None = None,
) -> dict[str, Any]:
    """Writes all rows of a source to a collection, which is made, and verifies it; gives `rows`, `metric` and `recall`.

    `client` asks the server; `batch_size` rows are written in a request, and `config` has further parameters of the collection. `about`
    tells migrations apart: a file `state` with another one is refused. `progress` is called with the number of rows of each batch.

    `metric` is that of the source, and otherwise "cosine". The file `state` keeps how far it has come; a call with the same file goes on
    there, as rows that are written twice are there once. It is removed at the end. Raises MigrationError if something does not fit."""
    chosen = source.metric or metric or "cosine"
    if metric is not None and metric != chosen:
        raise MigrationError(f"the metric of the source is {chosen!r}; {metric!r} would give other results")
    path = Path(state if state is not None else f"nigh-migrate-{collection.replace('/', '_')}.json")
    kept = _State(path, {"collection": collection, "metric": chosen, "rows": source.total, **(about or {})})
    prepared = False
    if kept.resumed and progress is not None:
        progress(kept.data["rows"])
    if kept.data["rows"] < source.total:
        for batch in source.batches(kept.data["position"], batch_size):
            if batch.vectors.ndim != 2:
                raise MigrationError("the vectors of the source have different numbers of components")
            if not prepared:
                _prepare(client, collection, kept, batch, chosen, config or {})
                prepared = True
            _write(client, collection, batch)
            kept.passed(batch, chosen)
            if progress is not None:
                progress(len(batch.ids))
    if kept.data["rows"] != source.total:
        raise MigrationError(f"the source has said {source.total} rows and has given {kept.data['rows']}: was it changed meanwhile?")
    recall = _verify(client, collection, kept.data, chosen) if source.total else 1.0
    with contextlib.suppress(FileNotFoundError):
        path.unlink()
    return {"rows": kept.data["rows"], "metric": chosen, "recall": recall}
