"""The adapters for LangChain: the tests that LangChain has for all of its stores and caches, and what is ours."""

from __future__ import annotations

import threading
import uuid
from collections.abc import AsyncIterator
from typing import Any

import pytest

pytest.importorskip("langchain_tests")

from langchain_core.documents import Document
from langchain_core.embeddings import DeterministicFakeEmbedding
from langchain_core.messages import AIMessage, HumanMessage
from langchain_core.outputs import ChatGeneration, Generation
from langchain_core.prompts import PromptTemplate
from langchain_core.vectorstores.utils import maximal_marginal_relevance
from langchain_tests.integration_tests import (
    AsyncCacheTestSuite,
    BaseStoreAsyncTests,
    BaseStoreSyncTests,
    SyncCacheTestSuite,
    VectorStoreIntegrationTests,
)

from nigh import Client, F, Keys, Sparse
from nigh.langchain import NighByteStore, NighCache, NighChatMessageHistory, NighSemanticCache, NighVectorStore
from nigh.text import point_id


class TestVectorStore(VectorStoreIntegrationTests):
    pytestmark = pytest.mark.anyio

    @pytest.fixture
    def vectorstore(self, http: Client, name: str) -> NighVectorStore:
        return NighVectorStore(http, name, self.get_embeddings())


class TestVectorStoreOfNumbers(VectorStoreIntegrationTests):
    """In a collection whose ids are numbers, as adapters of before have made them."""

    pytestmark = pytest.mark.anyio

    @pytest.fixture
    def vectorstore(self, http: Client, name: str) -> NighVectorStore:
        http.create_collection(name, 6)
        return NighVectorStore(http, name, self.get_embeddings(), auto_create=False)


class TestCache(SyncCacheTestSuite):
    @pytest.fixture
    def cache(self, tcp: Keys) -> NighCache:
        return NighCache(tcp, prefix=f"{uuid.uuid4()}:")


class TestCacheAwaited(AsyncCacheTestSuite):
    pytestmark = pytest.mark.anyio

    @pytest.fixture
    async def cache(self, tcp: Keys) -> NighCache:
        return NighCache(tcp, prefix=f"{uuid.uuid4()}:")


class TestSemanticCache(SyncCacheTestSuite):
    @pytest.fixture
    def cache(self, http: Client, name: str) -> NighSemanticCache:
        return NighSemanticCache(http, DeterministicFakeEmbedding(size=6), collection=name)


class TestSemanticCacheAwaited(AsyncCacheTestSuite):
    pytestmark = pytest.mark.anyio

    @pytest.fixture
    async def cache(self, http: Client, name: str) -> NighSemanticCache:
        return NighSemanticCache(http, DeterministicFakeEmbedding(size=6), collection=name)


class TestByteStore(BaseStoreSyncTests[bytes]):
    @pytest.fixture
    def kv_store(self, tcp: Keys) -> NighByteStore:
        return NighByteStore(tcp, prefix=f"{uuid.uuid4()}:")

    @pytest.fixture
    def three_values(self) -> tuple[bytes, bytes, bytes]:
        return b"foo", b"bar", b"\0\xff"


class TestByteStoreAwaited(BaseStoreAsyncTests[bytes]):
    pytestmark = pytest.mark.anyio

    @pytest.fixture
    async def kv_store(self, tcp: Keys) -> AsyncIterator[NighByteStore]:
        yield NighByteStore(tcp, prefix=f"{uuid.uuid4()}:")

    @pytest.fixture
    def three_values(self) -> tuple[bytes, bytes, bytes]:
        return b"foo", b"bar", b"\0\xff"


class Letters:
    """An embedding that can be foreseen: how often a, b, c and d are there; sparse with the same numbers."""

    def embed_documents(self, texts: list[str]) -> list[list[float]]:
        return [[text.count(letter) + 0.01 for letter in "abcd"] for text in texts]

    def embed_query(self, text: str) -> list[float]:
        return self.embed_documents([text])[0]


class SparseLetters:
    def embed_documents(self, texts: list[str]) -> list[Any]:
        return [{index: float(text.count(letter)) for index, letter in enumerate("dcba") if letter in text} for text in texts]

    def embed_query(self, text: str) -> Any:
        found = self.embed_documents([text])[0]
        return Sparse(list(found), list(found.values()))


def letters() -> Any:
    return Letters()


def test_searches(http: Client, name: str) -> None:
    texts = ["aaa", "aab", "bb", "cd a"]
    metadatas = [{"n": at, "even": at % 2 == 0, "in": {"x": [at]}} for at in range(4)]
    store = NighVectorStore.from_texts(texts, letters(), metadatas, client=http, collection=name, full_text=True)
    assert [d.page_content for d in store.similarity_search("aa", 2)] == ["aaa", "aab"]
    assert [d.page_content for d in store.similarity_search("aa", 4, filter={"even": True, "n": 2})] == ["bb"]
    assert [d.metadata["in"] for d in store.similarity_search("aa", 4, filter=F("n") > 2)] == [{"x": [3]}]
    assert [d.metadata["n"] for d in store.similarity_search("aa", 4, filter=(F("n") == 1).body)] == [1]
    assert [d.page_content for d in store.hybrid_search("cd", 1)] == ["cd a"]
    assert [d.page_content for d in store.hybrid_search("cd", 1, method="weighted", alpha=0.1)] == ["cd a"]
    groups = store.search_grouped("a", 2, "even", group_size=2)
    assert [[d.page_content for d in group] for group in groups] == [["aaa", "bb"], ["aab", "cd a"]]
    scored = store.similarity_search_with_relevance_scores("aaa", 4, score_threshold=0.9)
    assert scored[0][0].page_content == "aaa" and all(0.9 <= score <= 1 for _, score in scored)
    assert store.as_retriever(search_type="mmr", search_kwargs={"k": 2, "fetch_k": 4}).invoke("a")[0].page_content == "aaa"
    # A text that is added again is there once, whether or not its id is given; an empty list is nothing.
    assert store.add_texts(["aaa"], [{"n": 9}]) == [store.similarity_search("aaa", 1)[0].id] and http.count(name) == 4
    assert store.add_texts([]) == [] and store.get_by_ids([]) == []
    with pytest.raises(ValueError, match="2 texts, 1 ids"):
        store.add_texts(["x", "y"], ids=["1"])
    assert store.delete(["none"]) is False and store.delete() is True and http.count(name) == 0
    with pytest.raises(ValueError, match="client"):
        NighVectorStore.from_texts(["a"], letters())


def test_different_hits_are_those_of_langchain(http: Client, name: str) -> None:
    embedding = DeterministicFakeEmbedding(size=8)
    texts = [f"text {at}" for at in range(40)]
    store = NighVectorStore.from_texts(texts, embedding, client=http, collection=name)
    for weight in (0.1, 0.5, 0.9):
        query = embedding.embed_query("question")
        near = [d.page_content for d in store.similarity_search("question", 20)]
        vectors = embedding.embed_documents(near)
        import numpy as np

        expected = [near[at] for at in maximal_marginal_relevance(np.array(query), vectors, lambda_mult=weight, k=5)]
        assert [d.page_content for d in store.max_marginal_relevance_search("question", 5, lambda_mult=weight)] == expected


def test_sparse_vectors(http: Client, name: str) -> None:
    store = NighVectorStore.from_texts(["aaa", "bbb", "ccd"], letters(), client=http, collection=name, sparse_embedding=SparseLetters())
    assert [d.page_content for d in store.hybrid_search("d", 1)] == ["ccd"]


def test_ids_of_numbers_are_those_of_before(http: Client, name: str) -> None:
    http.create_collection(name, 4)
    store = NighVectorStore(http, name, letters())
    assert store.add_documents([Document(page_content="a", id="17"), Document(page_content="b", id="page/1")]) == ["17", "page/1"]
    assert {document.id for document in http.scroll(name)} == {17, point_id("page/1")}
    assert store.get_by_ids(["page/1", "17"]) == [Document(page_content="b", id="page/1"), Document(page_content="a", id="17")]
    assert store.delete(["page/1", "17"]) is True


def test_caches_keep_models_apart_and_make_no_foreign_objects(http: Client, tcp: Keys, name: str) -> None:
    answers = [ChatGeneration(message=AIMessage("four", id="1", response_metadata={"tokens": 1}))]
    exact = NighCache(tcp, prefix=f"{name}:")
    near = NighSemanticCache(http, letters(), collection=name, threshold=0.9)
    for cache in (exact, near):
        cache.update("aab", "model 1", answers)
        assert cache.lookup("aab", "model 1") == answers and cache.lookup("aab", "model 2") is None
        assert cache.lookup("aab", "model 1\0") is None and cache.lookup("ccc", "model 1") is None
        cache.update("aab", "model 1", [Generation(text="new")])
        assert cache.lookup("aab", "model 1") == [Generation(text="new")]
    assert near.lookup("aabaab", "model 1") == [Generation(text="new")] and exact.lookup("aabaab", "model 1") is None
    near.update("aab", "model 2", answers)
    near.clear(llm_string="model 1")
    assert near.lookup("aab", "model 1") is None and near.lookup("aab", "model 2") == answers
    from langchain_core.load import dumps

    exact.update("x", "y", answers)
    key = next(key for key in NighByteStore(tcp, prefix=f"{name}:").yield_keys(prefix="0:") if key)
    tcp.put(f"{name}:{key}", dumps([PromptTemplate.from_template("{a}")]))
    with pytest.raises(ValueError, match="not allowed|PromptTemplate"):
        [exact.lookup(prompt, "y" if prompt == "x" else "model 1") for prompt in ("x", "aab")]


def test_byte_store_lists_by_its_index(tcp: Keys) -> None:
    prefix = f"{uuid.uuid4()}:"
    store = NighByteStore(tcp, prefix=prefix, index="bytes")
    store.mset([(f"{at:04}", b"x") for at in range(2500)])
    tcp.set_index("bytes", "none", prefix=prefix)
    try:
        while not all(index.ready for index in tcp.list_indexes()):
            pass
        assert list(store.yield_keys(prefix="1")) == [f"{at}" for at in range(1000, 2000)]
        assert len(list(store.yield_keys())) == 2500
    finally:
        tcp.set_index("bytes", "none", prefix=prefix, enabled=False)
    store.mdelete([f"{at:04}" for at in range(2500)])
    assert store.mget(["0000", "2499"]) == [None, None]


def test_chat_history(tcp: Keys) -> None:
    history = NighChatMessageHistory(tcp, f"chat-{uuid.uuid4()}")
    assert history.messages == []
    history.add_user_message("hello")
    history.add_messages([AIMessage("hi", additional_kwargs={"a": 1}), HumanMessage([{"type": "text", "text": "é"}])])
    assert history.messages == [
        HumanMessage("hello"), AIMessage("hi", additional_kwargs={"a": 1}), HumanMessage([{"type": "text", "text": "é"}])]  # fmt: skip

    def add(who: int) -> None:
        for at in range(20):
            history.add_messages([HumanMessage(f"{who} {at}"), AIMessage("ok")])

    threads = [threading.Thread(target=add, args=(who,)) for who in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    found = [message.content for message in history.messages[3:]]
    assert len(found) == 160 and found[1::2] == ["ok"] * 80
    for who in range(4):
        assert [text for text in found if str(text).startswith(f"{who} ")] == [f"{who} {at}" for at in range(20)]
    history.clear()
    assert history.messages == []
