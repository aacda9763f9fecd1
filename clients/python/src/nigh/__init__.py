"""A client for Nigh: vectors over HTTP (`Client`, `AsyncClient`), keys over the binary protocol (`Keys`, `AsyncKeys`)."""

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
