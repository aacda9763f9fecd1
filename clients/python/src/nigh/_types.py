"""What the clients take and return."""

from __future__ import annotations

import operator
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Generic, TypeVar

import numpy as np
import numpy.typing as npt
from typing_extensions import TypedDict

T = TypeVar("T")
PointId = int | str
Payload = dict[str, Any]
Vector = Sequence[float] | npt.NDArray[Any]
Matrix = Sequence[Sequence[float]] | npt.NDArray[Any]


class NighError(Exception):
    """A request failed. `status` is the HTTP status, or the status byte of the binary protocol; 0 if no answer came.
    `key` and `value` name what was refused, if the client knows it: a collection, an id or a key.
    `committed` is how many points a call that writes in batches is known to have written: the first ones. None for other calls."""

    committed: int | None = None

    def __init__(self, message: str, status: int = 0, *, key: str | None = None, value: object = None) -> None:
        super().__init__(message)
        self.message, self.status, self.key, self.value = message, status, key, value


class TransportError(NighError):
    """No answer came: the server is out of reach, or the time limit passed. A write may have been carried out."""


class BadRequestError(NighError):
    """The request is wrong (400, 413, 422)."""


class UnauthorizedError(NighError):
    """The API key is missing, unknown or lacks the right (401, 403)."""


class NotFoundError(NighError):
    """There is no such collection, alias or space (404)."""


class ConflictError(NighError):
    """Something exists already, or has another version than expected (409)."""


class UnsupportedError(NighError):
    """The server lacks the feature in this build or configuration (412, 501)."""


class RateLimitError(NighError):
    """A quota or rate limit was reached (429)."""


class ServerError(NighError):
    """The server failed or is not ready (500 and above)."""


class NotLeaderError(NighError):
    """More than three servers in a row said that another one is responsible for the key."""


@dataclass(frozen=True)
class Sparse:
    """A sparse vector: `indices` strictly ascending (unsigned 32 bits), `values` one float for each."""

    indices: Sequence[int]
    values: Sequence[float]


@dataclass(frozen=True)
class Geo:
    """A position in degrees, as a value of a payload: `lat` is north, `lon` east."""

    lat: float
    lon: float


@dataclass(frozen=True)
class Point:
    """A point to write, or one that was read. `vector` has the shape (dim,); `content` is its text; `ttl_ms` is in milliseconds, 0 means
    for ever. `version`, which only reading gives, counts the writes of the point."""

    id: PointId
    vector: Vector | None = None
    payload: Payload | None = None
    content: str = ""
    sparse: Sparse | None = None
    ttl_ms: int = 0
    version: int = 0


@dataclass(frozen=True)
class NamedPoint:
    """A point of a collection of named spaces: `vectors` of shape (dim,) and `sparse_vectors`, each by the name of its space. The
    other fields, to `version`, are those of `Point`."""

    id: PointId
    vectors: Mapping[str, Vector] = field(default_factory=dict)
    sparse_vectors: Mapping[str, Sparse] = field(default_factory=dict)
    payload: Payload | None = None
    content: str = ""
    ttl_ms: int = 0
    version: int = 0


@dataclass(frozen=True)
class TokenDocument:
    """A document of a multi-vector collection. `tokens` has the shape (tokens, dim); the other fields, to `version`, are those of
    `Point`."""

    id: PointId
    tokens: Matrix | None = None
    payload: Payload | None = None
    content: str = ""
    sparse: Sparse | None = None
    version: int = 0


@dataclass(frozen=True)
class SearchResult:
    """A hit. A smaller `distance` is nearer; a larger `score` is better, and 0 if the search gives no scores.
    `payload` and `vector`, of shape (dim,), are None unless they were asked for."""

    id: PointId
    distance: float = 0.0
    score: float = 0.0
    payload: Payload | None = None
    vector: Any = None


def bare(id: PointId, distance: float, score: float = 0.0) -> SearchResult:
    """A hit without payload and vector. A frozen class sets each field by a call, so that its constructor takes three times as long, which
    counts in a batch of searches."""
    made = object.__new__(SearchResult)
    fields = made.__dict__
    fields["id"], fields["distance"], fields["score"], fields["payload"], fields["vector"] = id, distance, score, None, None
    return made


@dataclass(frozen=True)
class Document:
    """A hit, or a point that was read, with its text (`content`) and its payload (`metadata`). A smaller `distance` is nearer; a larger
    `score` is better, and 0 if the search gives no scores. `vector`, of shape (dim,), is None unless it was asked for."""

    id: PointId
    distance: float = 0.0
    content: str = ""
    score: float = 0.0
    metadata: Payload = field(default_factory=dict)
    vector: Any = None


@dataclass(frozen=True)
class MultiResult:
    """A document of a multi-vector collection. A larger `score`, the sum over query tokens, is better; `metadata` is its payload."""

    id: PointId
    score: float = 0.0
    metadata: Payload = field(default_factory=dict)


@dataclass(frozen=True)
class Group:
    """The hits that share the value `key` of the payload key that was grouped by."""

    key: Any
    hits: list[Document]


class Results(list[T], Generic[T]):
    """A list of hits. `degraded` and `missing` tell of parts of a cluster that gave no answer; `explain` is the account of the
    search if it was asked for."""

    degraded: bool = False
    missing: list[Any]
    explain: Any

    def __init__(self, items: Iterable[T] = (), answer: Mapping[str, Any] | None = None) -> None:
        super().__init__(items)
        answer = answer or {}
        self.degraded = bool(answer.get("degraded", False))
        self.missing = list(answer.get("missing") or [])
        self.explain = answer.get("explain")


class ScrollPage(Results[T]):
    """A page of points. `next_cursor` asks for the page behind it, and is empty on the last one."""

    next_cursor: str = ""

    @property
    def documents(self) -> list[T]:
        """The page as a plain list."""
        return list(self)


class SearchOptions(TypedDict, total=False):
    """What every search takes besides its query.

    * `filter`: only points that match.
    * `ef_search`: candidates that the search keeps while it walks the graph; more are slower and find more of the true nearest.
    * `exact`: compares the query with every point that matches, without the index.
    * `offset`: how many of the best hits are skipped.
    * `score_threshold`, `distance_threshold`: the least score and the greatest distance of a hit.
    * `with_score`: gives hits that are ranked by distance a score: the cosine, the dot product, or 1 / (1 + squared Euclidean distance).
    * `with_payload`, `with_vector`: gives the payloads, or only the keys of a list, and the vectors of hits.
    * `explain`: gives an account of the search in `Results.explain`.
    * `read_consistency`: 0 any replica, 1 the leader, 2 linearizable, 3 no older than `max_staleness` milliseconds.
    * `on_partition_unavailable`: 0 gives what the others answer (`Results.degraded`), 1 raises."""

    filter: Any
    ef_search: int
    exact: bool
    offset: int
    score_threshold: float
    distance_threshold: float
    with_score: bool
    with_payload: Any
    with_vector: bool
    explain: bool
    read_consistency: int
    on_partition_unavailable: int
    max_staleness: int


class WriteOptions(TypedDict, total=False):
    """What every write of one point takes besides it.

    * `expected_version`: raises ConflictError unless the point has this version; 0 means that it must be absent.
    * `wait`: is accepted and has no effect: an answer always means that the write is durable, if the server has a data directory.
    * `write_consistency_factor`: acknowledgements of replicas that are wanted."""

    expected_version: int
    wait: bool
    write_consistency_factor: int


def floats(vector: Any) -> Any:
    """A vector or matrix as JSON takes it."""
    return vector.tolist() if isinstance(vector, np.ndarray) else vector


def numbers(ids: Any) -> npt.NDArray[np.uint64]:
    """Ids as an array of unsigned integers. Raises TypeError and ValueError where numpy would turn one into another number."""
    if isinstance(ids, np.ndarray) and ids.dtype.kind in "iu":
        if ids.dtype.kind == "i" and ids.size and ids.min() < 0:
            raise ValueError(f"an id is {ids.min()}; ids are 0 to 2**64 - 1")
        return ids.astype(np.uint64)
    made = [operator.index(one) for one in ids]
    if made and not 0 <= min(made) <= max(made) < 1 << 64:
        raise ValueError(f"ids are from {min(made)} to {max(made)}; they must be 0 to 2**64 - 1")
    return np.array(made, dtype=np.uint64)


def array(vector: Any, dimensions: int, name: str) -> npt.NDArray[np.float32]:
    """A vector or matrix as an array of 32-bit floats, without a copy where it is one already."""
    made = np.asarray(vector, dtype=np.float32)
    if made.ndim != dimensions:
        raise ValueError(f"{name} has the shape {made.shape}; it must have {dimensions} dimension(s)")
    return made
