"""A client for Nigh: vectors over HTTP or gRPC (`Client`, `AsyncClient`), keys over the binary protocol (`Keys`, `AsyncKeys`), and vectors
over it (`Keys.vector`).

What methods share, and their docstrings do not repeat:

* `collection` is the name of a collection or of an alias, `name` that of a collection that is made. `id`, and each of `ids`, is the id of
  a point: an integer from 0 to 2**64 - 1, or a text in collections that were made with `ids="string"`.
* `vector`, and `query` or `dense` of a search, has the shape (dim,): a list of numbers, or an array of numpy. `vectors` and `queries` have
  the shape (n, dim), `tokens` (tokens, dim). All are sent as 32-bit floats. `sparse` is a `Sparse`.
* `payload` is a dictionary of any JSON, and `payloads` has one for each vector, or None if it has none. `content` is the text of a point.
* `k` is the greatest number of hits. `filter` is a condition made with `F`, or a dictionary in the server's form; None is no condition.
  `options` are further arguments by name: the fields of `SearchOptions` for searches, of `WriteOptions` for writes.
* `with_vector` and `with_payload` say whether vectors, and payloads with texts, are read.
* `ttl_ms` is a time to live in milliseconds, 0 is for ever. `timeout` is in seconds. Sizes are in bytes.
* `batch_size` is the greatest number of points in a request, and `progress` is called with the number of points of each one that succeeded.
* `config`, `changes` and `more` are further arguments by name, which go to the server as they are.
* `key` of the key-value store has at most 65,535 bytes; texts are sent as UTF-8.

Every call may raise a subclass of `NighError`: `TransportError` if no answer came, `UnauthorizedError`, `NotFoundError` if there is
no such collection, `BadRequestError` for an argument that the server refuses, `RateLimitError`, and `ServerError`. Docstrings name the
errors that have a meaning of their own. `TypeError` and `ValueError` are raised before anything is sent."""

from . import filters
from ._server import PrivateServer
from ._types import (
    BadRequestError,
    ConflictError,
    Document,
    Geo,
    Group,
    MultiResult,
    NamedPoint,
    NighError,
    NotFoundError,
    NotLeaderError,
    Point,
    RateLimitError,
    Results,
    ScrollPage,
    SearchResult,
    ServerError,
    Sparse,
    TokenDocument,
    TransportError,
    UnauthorizedError,
    UnsupportedError,
)
from .client import AsyncClient, Client, NighClient
from .filters import F, Filter
from .keys import AsyncKeys, Keys, Nigh, NighKV, Operate
from .text import Embedder, FunctionEmbedder, OpenAIEmbedder, TextStore

__version__ = "0.2.0"
__all__ = [
    "AsyncClient", "AsyncKeys", "BadRequestError", "Client", "ConflictError", "Document", "Embedder", "F", "Filter",
    "FunctionEmbedder", "Geo", "Group", "Keys", "MultiResult", "NamedPoint", "Nigh", "NighClient", "NighError", "NighKV",
    "NotFoundError", "NotLeaderError", "OpenAIEmbedder", "Operate", "Point", "PrivateServer", "RateLimitError", "Results",
    "ScrollPage", "SearchResult", "ServerError", "Sparse", "TextStore", "TokenDocument", "TransportError", "UnauthorizedError",
    "UnsupportedError", "filters",
]  # fmt: skip
