"""Texts in, texts out: a collection with an embedder."""

from __future__ import annotations

import hashlib
import json
import os
import urllib.error
import urllib.request
from collections.abc import Callable, Sequence
from typing import Any, Protocol

from ._types import Document, Group, NighError, Payload, Point, Results
from .client import Client


class Embedder(Protocol):
    """Makes vectors of texts."""

    def embed_documents(self, texts: list[str]) -> list[list[float]]:
        """A vector for each of `texts`: a list of shape (n, dim)."""

    def embed_query(self, text: str) -> list[float]:
        """The vector of the question `text`, of shape (dim,)."""


class FunctionEmbedder:
    """An embedder from `fn`, which gives the vectors of a list of texts, and `query_fn`, which gives that of a question; None takes
    `fn`."""

    def __init__(self, fn: Callable[[list[str]], Any], query_fn: Callable[[str], Any] | None = None) -> None:
        self._fn, self._query_fn = fn, query_fn

    def embed_documents(self, texts: list[str]) -> list[list[float]]:
        """A vector for each of `texts`: a list of shape (n, dim)."""
        return [list(map(float, vector)) for vector in self._fn(texts)]

    def embed_query(self, text: str) -> list[float]:
        """The vector of the question `text`, of shape (dim,)."""
        return list(map(float, self._query_fn(text))) if self._query_fn else self.embed_documents([text])[0]


class OpenAIEmbedder:
    """An embedder behind the route `base_url`/embeddings as OpenAI has it. `model` and, where given, `dimensions` are sent along;
    `api_key` None takes OPENAI_API_KEY, an empty one sends none; `timeout` is in seconds."""

    def __init__(self, model: str = "text-embedding-3-small", *, api_key: str | None = None,
                 base_url: str = "https://api.openai.com/v1", dimensions: int | None = None, timeout: float = 30.0) -> None:  # fmt: skip
        self.model, self._base, self._dimensions, self._timeout = model, base_url.rstrip("/"), dimensions, timeout
        self._key = os.environ.get("OPENAI_API_KEY", "") if api_key is None else api_key

    def embed_documents(self, texts: list[str]) -> list[list[float]]:
        """A vector for each of `texts`: a list of shape (n, dim). Raises NighError if the route fails."""
        body: dict[str, Any] = {"model": self.model, "input": texts}
        if self._dimensions is not None:
            body["dimensions"] = self._dimensions
        headers = {"Content-Type": "application/json"}
        if self._key:
            headers["Authorization"] = f"Bearer {self._key}"
        asked = urllib.request.Request(f"{self._base}/embeddings", json.dumps(body).encode(), headers)
        try:
            with urllib.request.urlopen(asked, timeout=self._timeout) as answer:
                data = json.load(answer)["data"]
        except urllib.error.HTTPError as error:
            raise NighError(f"embeddings: {error.read()[:500].decode('utf-8', 'replace')}", error.code) from error
        except OSError as error:
            raise NighError(f"embeddings: {error}") from error
        return [one["embedding"] for one in sorted(data, key=lambda one: int(one["index"]))]

    def embed_query(self, text: str) -> list[float]:
        """The vector of the question `text`, of shape (dim,)."""
        return self.embed_documents([text])[0]


def point_id(external: str | int) -> int:
    """The number of the id `external`: of digits below 2**64 that number, of anything else 8 bytes of its BLAKE2b digest."""
    text = str(external)
    if text.isascii() and text.isdigit() and int(text) < 1 << 64:
        return int(text)
    return int.from_bytes(hashlib.blake2b(text.encode(), digest_size=8).digest(), "big")


class TextStore:
    """The texts of a collection, found by what they mean: `client` asks the server, `embedder` makes vectors of texts."""

    def __init__(self, client: Client, collection: str, embedder: Embedder) -> None:
        self.client, self.collection, self.embedder = client, collection, embedder

    def create_collection(self, *, dim: int | None = None, metric: str = "cosine", **config: Any) -> None:
        """Creates the collection; without `dim` a text is embedded to learn it. `metric` and `config` are those of
        `Client.create_collection`."""
        found = dim if dim is not None else len(self.embedder.embed_query("dimension"))
        self.client.create_collection(self.collection, found, metric=metric, **config)

    def add(self, texts: Sequence[str], *, metadatas: Sequence[Payload] | None = None, ids: Sequence[str] | None = None,
            ttl_ms: int = 0) -> list[str]:  # fmt: skip
        """Adds texts and returns their ids, which are digests of the texts by default, so that a text added twice is there once.

        `metadatas` has a payload for each text. Raises ValueError if the numbers of texts, ids and metadatas differ."""
        names = [hashlib.blake2b(t.encode(), digest_size=16).hexdigest() for t in texts] if ids is None else list(ids)
        vectors = self.embedder.embed_documents(list(texts))
        payloads: Sequence[Payload | None] = [None] * len(texts) if metadatas is None else metadatas
        if not len(names) == len(vectors) == len(payloads) == len(texts):
            raise ValueError(f"there are {len(texts)} texts, {len(names)} ids, {len(vectors)} vectors and {len(payloads)} metadatas")
        rows = zip(names, vectors, payloads, texts, strict=True)
        points = (Point(point_id(name), vector, payload, text, None, ttl_ms) for name, vector, payload, text in rows)
        self.client.upsert_points(self.collection, points)
        return names

    def search(self, text: str, k: int = 4, *, filter: Any = None) -> Results[Document]:
        """The `k` texts nearest to the question `text`."""
        return self.client.search_docs(self.collection, self.embedder.embed_query(text), k, filter=filter)

    def hybrid(self, text: str, k: int = 4, *, filter: Any = None, method: str = "rrf", alpha: float | None = None) -> Results[Document]:
        """The `k` texts that fit the question `text` best by what they mean and by its words. `method` and `alpha` are those of
        `Client.hybrid_search`. The collection must have been made with `full_text=True`, or BadRequestError is raised."""
        more = {} if alpha is None else {"alpha": alpha}
        query = self.embedder.embed_query(text)
        return self.client.hybrid_docs(self.collection, query, text, k, filter=filter, method=method, **more)

    def search_groups(self, text: str, k: int, group_by: str, *, group_size: int = 1, filter: Any = None) -> Results[Group]:
        """The `k` groups of texts nearest to the question `text`: those that share the value of the payload key `group_by`, `group_size`
        of each."""
        query = self.embedder.embed_query(text)
        return self.client.search_groups(self.collection, query, k, group_by, group_size=group_size, filter=filter)

    def delete(self, ids: Sequence[str]) -> int:
        """Deletes the texts of these ids. Returns how many there were."""
        return self.client.delete_many(self.collection, [point_id(one) for one in ids])
