"""Adapters for LangChain (the extra `langchain`): a vector store, caches of answers, a store of bytes, and the history of chats.

Their methods that are awaited run the blocking ones in threads."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

from langchain_core.caches import RETURN_VAL_TYPE, BaseCache
from langchain_core.chat_history import BaseChatMessageHistory
from langchain_core.documents import Document
from langchain_core.embeddings import Embeddings
from langchain_core.load import dumps, loads
from langchain_core.messages import AIMessage, AIMessageChunk, BaseMessage, messages_from_dict, messages_to_dict
from langchain_core.outputs import ChatGeneration, ChatGenerationChunk, Generation, GenerationChunk
from langchain_core.stores import ByteStore
from langchain_core.vectorstores import VectorStore

from . import _types
from ._adapters import Collection, condition, done, similarity, sparse, with_prefix
from .client import Client
from .filters import F
from .keys import Keys

__all__ = ["NighByteStore", "NighCache", "NighChatMessageHistory", "NighSemanticCache", "NighVectorStore"]

_WEEK_MS = 7 * 24 * 3600 * 1000
# Nothing else is made of what a cache holds, as making objects may run code.
_ANSWERS: list[Any] = [Generation, GenerationChunk, ChatGeneration, ChatGenerationChunk, AIMessage, AIMessageChunk]


class NighVectorStore(VectorStore):
    """Texts in a collection, found by meaning and, with `full_text`, by words.

    The collection is made at the first write, with string ids, unless `auto_create` is False. A collection whose ids are numbers serves
    too: ids of digits are these numbers, others 8 bytes of their digest. Texts without ids get digests of the text as ids, so that a text
    added twice is there once. `filter` is one of `nigh.F`, or `{field: value}` for fields that have these values. `sparse_embedding` has
    `embed_documents` and `embed_query` that give sparse vectors, for `hybrid_search`."""

    def __init__(self, client: Client, collection: str, embedding: Embeddings, *, auto_create: bool = True, metric: str = "cosine",
                 full_text: bool = False, sparse_embedding: Any = None) -> None:  # fmt: skip
        self.client, self.collection = client, collection
        self._embedding, self._sparse = embedding, sparse_embedding
        self._points = Collection(client, collection, auto_create=auto_create, metric=metric, full_text=full_text)

    @property
    def embeddings(self) -> Embeddings:
        """The embedding model."""
        return self._embedding

    def add_texts(self, texts: Iterable[str], metadatas: list[dict[str, Any]] | None = None, *, ids: list[str] | None = None,
                  **kwargs: Any) -> list[str]:  # fmt: skip
        """Adds or replaces texts, in batches. Returns their ids. Metadata is any JSON."""
        texts = list(texts)
        given: Sequence[str | None] = [None] * len(texts) if ids is None else ids
        payloads = [{}] * len(texts) if metadatas is None else metadatas
        if not len(given) == len(payloads) == len(texts):
            raise ValueError(f"there are {len(texts)} texts, {len(given)} ids and {len(payloads)} metadatas")
        if not texts:
            return []
        names = [one or hashlib.blake2b(text.encode(), digest_size=16).hexdigest() for one, text in zip(given, texts, strict=True)]
        vectors = self._embedding.embed_documents(texts)
        lanes: list[_types.Sparse | None] = [None] * len(texts)
        if self._sparse is not None:
            lanes = [sparse(one) for one in self._sparse.embed_documents(texts)]
        rows = zip(names, vectors, payloads, texts, lanes, strict=True)
        self._points.write([_types.Point(name, vector, payload, text, lane) for name, vector, payload, text, lane in rows])
        return names

    def delete(self, ids: list[str] | None = None, **kwargs: Any) -> bool:
        """Deletes the texts of these ids, or all texts without `ids`. Returns whether all of them were there."""
        deleted = self._points.delete(ids)
        return ids is None or deleted == len(set(ids))

    def get_by_ids(self, ids: Sequence[str], /) -> list[Document]:
        """The documents of those ids that exist, in the order of the ids."""
        return list(map(_document, self._points.by_ids(ids)))

    def similarity_search(self, query: str, k: int = 4, filter: Any = None, **kwargs: Any) -> list[Document]:
        """The `k` documents nearest to a text."""
        return [document for document, _ in self.similarity_search_with_score(query, k, filter, **kwargs)]

    def similarity_search_with_score(self, query: str, k: int = 4, filter: Any = None, **kwargs: Any) -> list[tuple[Document, float]]:
        """As `similarity_search`, each with its distance: smaller is nearer."""
        return self.similarity_search_by_vector_with_score(self._embedding.embed_query(query), k, filter, **kwargs)

    def similarity_search_by_vector(self, embedding: list[float], k: int = 4, filter: Any = None, **kwargs: Any) -> list[Document]:
        """The `k` documents nearest to a vector."""
        return [document for document, _ in self.similarity_search_by_vector_with_score(embedding, k, filter, **kwargs)]

    def similarity_search_by_vector_with_score(
        self, embedding: list[float], k: int = 4, filter: Any = None, **kwargs: Any
    ) -> list[tuple[Document, float]]:
        """As `similarity_search_by_vector`, each with its distance. Further arguments are options of `Client.search_docs`."""
        return [(_document(hit), hit.distance) for hit in self._points.nearest(embedding, k, condition(filter), **kwargs)]

    def max_marginal_relevance_search(self, query: str, k: int = 4, fetch_k: int = 20, lambda_mult: float = 0.5, filter: Any = None,
                                      **kwargs: Any) -> list[Document]:  # fmt: skip
        """Of the `fetch_k` nearest to a text, `k` that differ from each other; `lambda_mult` 1 is only near, 0 only different."""
        vector = self._embedding.embed_query(query)
        return self.max_marginal_relevance_search_by_vector(vector, k, fetch_k, lambda_mult, filter, **kwargs)

    def max_marginal_relevance_search_by_vector(
        self, embedding: list[float], k: int = 4, fetch_k: int = 20, lambda_mult: float = 0.5, filter: Any = None, **kwargs: Any
    ) -> list[Document]:
        """As `max_marginal_relevance_search`, for a vector. The server chooses."""
        return list(map(_document, self._points.different(embedding, k, lambda_mult, fetch_k, condition(filter), **kwargs)))

    def search_grouped(self, query: str, k: int, group_by: str, *, group_size: int = 1, filter: Any = None) -> list[list[Document]]:
        """The `k` nearest groups of documents with the same value of the metadata key `group_by`."""
        vector = self._embedding.embed_query(query)
        groups = self._points.grouped(vector, k, group_by, group_size, condition(filter))
        return [list(map(_document, group.hits)) for group in groups]

    def hybrid_search(self, query: str, k: int = 4, *, filter: Any = None, method: str = "rrf", alpha: float = 0.0) -> list[Document]:
        """Fuses a search by meaning with one by sparse vectors, or by words where there is no `sparse_embedding`. `method` is "rrf",
        "dbsf", or "weighted", where `alpha` is the weight of the meaning."""
        other = query if self._sparse is None else sparse(self._sparse.embed_query(query))
        weight = alpha if method == "weighted" else None
        vector = self._embedding.embed_query(query)
        return list(map(_document, self._points.fused(vector, other, k, condition(filter), method=method, alpha=weight)))

    @classmethod
    def from_texts(cls, texts: list[str], embedding: Embeddings, metadatas: list[dict[str, Any]] | None = None, *,
                   client: Client | None = None, collection: str = "langchain", ids: list[str] | None = None,
                   **kwargs: Any) -> NighVectorStore:  # fmt: skip
        """A store with these texts; `client` is needed, further arguments are those of the class."""
        if client is None:
            raise ValueError("client is missing: give the client of the server that keeps the texts")
        store = cls(client, collection, embedding, **kwargs)
        store.add_texts(texts, metadatas, ids=ids)
        return store

    def _select_relevance_score_fn(self) -> Callable[[float], float]:
        return similarity


def _document(found: _types.Document) -> Document:
    return Document(id=str(found.id), page_content=found.content, metadata=found.metadata)


def _digest(*parts: str) -> str:
    texts = [part.encode() for part in parts]
    return hashlib.sha256(b"".join(len(text).to_bytes(8, "big") + text for text in texts)).hexdigest()


def _answers(text: str) -> RETURN_VAL_TYPE:
    found: RETURN_VAL_TYPE = loads(text, allowed_objects=_ANSWERS)
    return found


class NighCache(BaseCache):
    """Answers of models by the exact prompt and model, as keys of the server, for `ttl_ms` milliseconds; 0 means for ever.

    `clear` takes effect at once for all processes with this `prefix`; what was stored before stays, unread, until its time is over."""

    def __init__(self, keys: Keys, *, prefix: str = "langchain:cache:", ttl_ms: int = _WEEK_MS) -> None:
        self._keys, self._prefix, self._ttl_ms = keys, prefix, ttl_ms

    def _key(self, prompt: str, llm_string: str) -> str:
        # A number that `clear` raises is part of every key.
        cleared = int.from_bytes(self._keys.get(self._prefix + "cleared") or b"", "big")
        return f"{self._prefix}{cleared}:{_digest(prompt, llm_string)}"

    def lookup(self, prompt: str, llm_string: str) -> RETURN_VAL_TYPE | None:
        """The answer to a prompt, or None if there is none."""
        stored = self._keys.get(self._key(prompt, llm_string))
        return None if stored is None else _answers(stored.decode())

    def update(self, prompt: str, llm_string: str, return_val: RETURN_VAL_TYPE) -> None:
        """Stores the answer to a prompt."""
        self._keys.put(self._key(prompt, llm_string), dumps(list(return_val)), ttl_ms=self._ttl_ms)

    def clear(self, **kwargs: Any) -> None:
        """Forgets all answers."""
        self._keys.incr(self._prefix + "cleared")


class NighSemanticCache(BaseCache):
    """Answers of models by what a prompt means: an answer serves prompts of the same model whose cosine similarity is at least `threshold`.

    They are in a collection, which is made at the first answer, for `ttl_ms` milliseconds; 0 means for ever."""

    def __init__(self, client: Client, embedding: Embeddings, *, collection: str = "langchain-cache", threshold: float = 0.97,
                 ttl_ms: int = _WEEK_MS) -> None:  # fmt: skip
        self._client, self._embedding, self._threshold, self._ttl_ms = client, embedding, threshold, ttl_ms
        self._points = Collection(client, collection, auto_create=True, metric="cosine", full_text=False)

    def lookup(self, prompt: str, llm_string: str) -> RETURN_VAL_TYPE | None:
        """The answer to the nearest prompt that is near enough, or None if there is none."""
        if not self._points.exists():
            return None
        hits = self._points.nearest(self._embedding.embed_query(prompt), 1, F("model") == _digest(llm_string))
        if not hits or 1 - hits[0].distance < self._threshold:
            return None
        return _answers(hits[0].metadata["answer"])

    def update(self, prompt: str, llm_string: str, return_val: RETURN_VAL_TYPE) -> None:
        """Stores the answer to a prompt."""
        vector = self._embedding.embed_query(prompt)
        self._points.ensure(len(vector))
        payload = {"model": _digest(llm_string), "answer": dumps(list(return_val))}
        id = self._points.id_of(_digest(prompt, llm_string))
        self._client.upsert(self._points.name, id, vector, payload=payload, ttl_ms=self._ttl_ms)

    def clear(self, **kwargs: Any) -> None:
        """Forgets all answers, or with `llm_string` only those of this model."""
        if "llm_string" in kwargs:
            self._points.delete_where(F("model") == _digest(kwargs["llm_string"]))
        else:
            self._points.delete(None)


class NighByteStore(ByteStore):
    """Bytes by keys of text, each of which begins with `prefix` on the server. `ttl_ms` is their time to live in milliseconds, 0 means
    for ever.

    `yield_keys` needs a server with `-kv-query`. It looks at every key of the server for each thousand that it gives, unless `index` names
    an index of keys that begin with `prefix` (`Keys.set_index`)."""

    def __init__(self, keys: Keys, *, prefix: str = "", ttl_ms: int = 0, index: str = "") -> None:
        self._keys, self._prefix, self._ttl_ms, self._index = keys, prefix, ttl_ms, index

    def mget(self, keys: Sequence[str]) -> list[bytes | None]:
        """The values of keys in their order, with None for each key that does not exist."""
        return self._keys.mget([self._prefix + key for key in keys])

    def mset(self, key_value_pairs: Sequence[tuple[str, bytes]]) -> None:
        """Stores values."""
        self._keys.put_batch({self._prefix + key: value for key, value in key_value_pairs}, ttl_ms=self._ttl_ms)

    def mdelete(self, keys: Sequence[str]) -> None:
        """Deletes keys."""
        pipeline = self._keys.pipeline()
        for key in keys:
            pipeline.delete(self._prefix + key)
        done(pipeline.execute())

    def yield_keys(self, *, prefix: str | None = None) -> Iterator[str]:
        """The keys that begin with `prefix`, in ascending order."""
        for key, _ in with_prefix(self._keys, self._prefix + (prefix or ""), self._index, values=False):
            yield (prefix or "") + key


class NighChatMessageHistory(BaseChatMessageHistory):
    """The messages of one chat in one key of the server. They live for `ttl_ms` milliseconds from the last one on; 0 means for ever."""

    def __init__(self, keys: Keys, session_id: str, *, prefix: str = "langchain:chat:", ttl_ms: int = 0) -> None:
        self._keys, self._key, self._ttl_ms = keys, prefix + session_id, ttl_ms

    @property
    def messages(self) -> list[BaseMessage]:  # type: ignore[override]
        """The messages, oldest first."""
        stored = self._keys.get(self._key)
        return [] if stored is None else messages_from_dict(json.loads(stored))

    def add_messages(self, messages: Sequence[BaseMessage]) -> None:
        """Adds messages. Those that others add at the same time are kept."""
        added = messages_to_dict(messages)
        for _ in range(1000):
            stored = self._keys.get(self._key)
            text = json.dumps([*([] if stored is None else json.loads(stored)), *added])
            if self._keys.cas(self._key, text, expected=stored, ttl_ms=self._ttl_ms):
                return
        raise _types.ConflictError("the chat was changed by others each of 1,000 times; nothing was added", key=self._key)

    def clear(self) -> None:
        """Forgets the messages."""
        self._keys.delete(self._key)
