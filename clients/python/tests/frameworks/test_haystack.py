"""The adapters for Haystack: the tests that Haystack has for all document stores, and what is ours."""

from __future__ import annotations

import random
from collections.abc import Iterator
from typing import Any

import pytest

pytest.importorskip("haystack")

from haystack import Document, Pipeline
from haystack.dataclasses import ByteStream, SparseEmbedding
from haystack.document_stores.errors import DuplicateDocumentError
from haystack.document_stores.in_memory import InMemoryDocumentStore
from haystack.document_stores.types import DuplicatePolicy, FilterPolicy
from haystack.errors import FilterError
from haystack.testing.document_store import (
    CountDocumentsByFilterTest,
    CountUniqueMetadataByFilterTest,
    DocumentStoreBaseExtendedTests,
    GetMetadataFieldMinMaxTest,
    GetMetadataFieldsInfoTest,
    GetMetadataFieldUniqueValuesTest,
)
from haystack.testing.document_store_async import (
    CountDocumentsAsyncTest,
    CountDocumentsByFilterAsyncTest,
    CountUniqueMetadataByFilterAsyncTest,
    DeleteAllAsyncTest,
    DeleteByFilterAsyncTest,
    DeleteDocumentsAsyncTest,
    FilterDocumentsAsyncTest,
    GetMetadataFieldMinMaxAsyncTest,
    GetMetadataFieldsInfoAsyncTest,
    GetMetadataFieldUniqueValuesAsyncTest,
    UpdateByFilterAsyncTest,
    WriteDocumentsAsyncTest,
)
from haystack.utils import Secret
from haystack.utils.filters import document_matches_filter

from nigh import Client
from nigh.haystack import NighDocumentStore, NighEmbeddingRetriever


@pytest.fixture
def document_store(server: Any, name: str) -> Iterator[NighDocumentStore]:
    made = NighDocumentStore(server.url, name)
    yield made
    made.close()


def equal(received: list[Document], expected: list[Document]) -> None:
    """In whatever order, with embeddings of 32 bits."""
    found, wanted = (sorted((one.to_dict(flatten=False) for one in docs), key=lambda one: str(one["id"])) for docs in (received, expected))
    for a, b in zip(found, wanted, strict=True):
        x, y = a.pop("embedding"), b.pop("embedding")
        assert a == b and (x is None) == (y is None)
        assert x is None or x == pytest.approx(y, rel=1e-4, abs=1e-6)


class Compared:
    @staticmethod
    def assert_documents_are_equal(received: list[Document], expected: list[Document]) -> None:
        equal(received, expected)


class TestDocumentStore(
    Compared,
    DocumentStoreBaseExtendedTests,
    CountDocumentsByFilterTest,
    CountUniqueMetadataByFilterTest,
    GetMetadataFieldMinMaxTest,
    GetMetadataFieldsInfoTest,
    GetMetadataFieldUniqueValuesTest,
):
    @pytest.fixture
    def document_store(self, server: Any, name: str) -> Iterator[NighDocumentStore]:
        made = NighDocumentStore(server.url, name)
        yield made
        made.close()

    def test_write_documents(self, document_store: Any) -> None:
        """Without a policy documents are replaced."""
        first, second = Document(id="1", content="a"), Document(id="1", content="b")
        assert document_store.write_documents([first]) == 1 and document_store.write_documents([second]) == 1
        equal(document_store.filter_documents(), [second])


class TestDocumentStoreAwaited(
    Compared,
    CountDocumentsAsyncTest,
    CountDocumentsByFilterAsyncTest,
    CountUniqueMetadataByFilterAsyncTest,
    DeleteAllAsyncTest,
    DeleteByFilterAsyncTest,
    DeleteDocumentsAsyncTest,
    FilterDocumentsAsyncTest,
    GetMetadataFieldMinMaxAsyncTest,
    GetMetadataFieldsInfoAsyncTest,
    GetMetadataFieldUniqueValuesAsyncTest,
    UpdateByFilterAsyncTest,
    WriteDocumentsAsyncTest,
):
    pytestmark = pytest.mark.anyio

    async def test_write_documents_async(self, document_store: Any) -> None:
        """Without a policy documents are replaced."""
        assert await document_store.write_documents_async([Document(id="1", content="a")]) == 1
        assert await document_store.write_documents_async([Document(id="1", content="b")]) == 1
        equal(await document_store.filter_documents_async(), [Document(id="1", content="b")])


def documents(count: int, seed: int = 4) -> list[Document]:
    rng = random.Random(seed)
    made = []
    for at in range(count):
        meta = {
            "n": rng.choice([0, 1, 2, 2.0, 2.5]),
            "word": rng.choice(["a", "b", "zebra"]),
            "deep": {"x": rng.choice([1, 2])},
            "day": rng.choice(["2020-01-01T00:00:00", "2021-05-01T12:00:00", "2022-01-01T00:00:00"]),
            "exact": rng.choice(["2020-01-01T00:00:00Z", "2020-01-01T05:00:00+06:00", "2022-01-01T00:00:00+01:00"]),
        }
        kept = {key: value for key, value in meta.items() if rng.random() < 0.8}
        made.append(Document(id=f"d{at}", content=f"text {at}", meta=kept, embedding=[rng.gauss(0, 1) for _ in range(8)]))
    return made


def random_filter(rng: random.Random, depth: int = 0) -> dict[str, Any]:
    if depth < 2 and rng.random() < 0.4:
        parts = [random_filter(rng, depth + 1) for _ in range(rng.randrange(1, 4))]
        return {"operator": rng.choice(["AND", "OR", "NOT"]), "conditions": parts}
    order = ["==", "!=", ">", ">=", "<", "<="]
    naive, aware = ["2020-01-01T00:00:00", "2021-05-01T12:00:00", "2030-01-01T00:00:00"], ["2020-01-01T00:00:00Z", "2022-01-01T00:00:00Z"]
    kinds: list[tuple[str, list[str], Any]] = [
        ("meta.n", order, lambda: rng.choice([0, 2, 2.0, 2.5, 9, None])),
        ("meta.n", ["in", "not in"], lambda: rng.sample([0, 1, 2.5, None, "a"], rng.randrange(4))),
        ("meta.word", ["==", "!="], lambda: rng.choice(["a", "zebra", "c", None])),
        ("n", ["==", ">"], lambda: rng.choice([1, 2])),
        ("meta.deep.x", order, lambda: rng.choice([1, 2])),
        ("meta.day", order, lambda: rng.choice(naive)),
        ("meta.exact", order[2:], lambda: rng.choice(aware)),
        ("id", ["==", "!="], lambda: rng.choice(["d1", "d2", "none"])),
        ("id", ["in", "not in"], lambda: rng.sample(["d1", "d2", "none"], 2)),
        ("content", ["==", "!="], lambda: rng.choice(["text 1", "text 2"])),
    ]
    field, operators, value = rng.choice(kinds)
    return {"field": field, "operator": rng.choice(operators), "value": value()}


def test_filters_are_those_of_haystack(document_store: NighDocumentStore) -> None:
    written, rng, matched = documents(60), random.Random(8), 0
    document_store.write_documents(written)
    for _ in range(300):
        filters = random_filter(rng)
        expected = sorted(one.id for one in written if document_matches_filter(filters, one))
        assert sorted(one.id for one in document_store.filter_documents(filters)) == expected, filters
        matched += 0 < len(expected) < len(written)
    assert matched > 100, "the filters tell documents apart"


@pytest.mark.parametrize("metric", ["cosine", "dot", "l2"])
def test_retrieval_is_that_of_the_store_in_memory(server: Any, http: Client, name: str, metric: str) -> None:
    store = NighDocumentStore(server.url, name, metric=metric)
    written = [*documents(50), Document(id="bare", content="no embedding")]
    assert store.write_documents(written) == 51
    rng = random.Random(1)
    for _ in range(20):
        query = [rng.gauss(0, 1) for _ in range(8)]
        filters = {"field": "meta.word", "operator": "==", "value": "a"} if rng.random() < 0.5 else None
        found = store.embedding_retrieval(query, filters=filters, top_k=60, return_embedding=True)
        assert all(one.id != "bare" for one in found)
        if metric == "l2":
            chosen = [one for one in written if one.embedding and (not filters or document_matches_filter(filters, one))]
            far = {one.id: sum((a - b) ** 2 for a, b in zip(one.embedding or (), query, strict=True)) for one in chosen}
            assert [one.id for one in found] == sorted(far, key=lambda one: far[one])
            continue
        reference = InMemoryDocumentStore(embedding_similarity_function="cosine" if metric == "cosine" else "dot_product")
        reference.write_documents(written[:-1])
        expected = reference.embedding_retrieval(query, filters=filters, top_k=60, return_embedding=True)
        assert [one.id for one in found] == [one.id for one in expected]
        assert [one.score for one in found] == pytest.approx([one.score for one in expected], abs=1e-4)
        assert found[0].embedding == pytest.approx(expected[0].embedding, rel=1e-4, abs=1e-6)
    store.close()


def test_documents_come_back_as_they_were(document_store: NighDocumentStore) -> None:
    written = [
        Document(id="blob", blob=ByteStream(b"\0\xff", {"a": 1}, "image/png"), meta={"a": None, "b": [1, {"c": 2.5}]}),
        Document(id="empty", content="", embedding=[0.5, 3.0], score=0.25),
        Document(id="sparse", content="x", sparse_embedding=SparseEmbedding([1, 7], [0.5, 2.0])),
    ]
    document_store.write_documents(written)
    equal(document_store.filter_documents(), written)


def test_metadata_is_that_of_the_store_in_memory(document_store: NighDocumentStore) -> None:
    written = [*documents(60), Document(id="mixed", meta={"n": "text", "word": ["a", {"b": 1}], "exact": True})]
    reference = InMemoryDocumentStore()
    for store in (document_store, reference):
        store.write_documents(written)
    word = {"field": "meta.word", "operator": "in", "value": ["a", "zebra"]}
    for field in ("n", "meta.word", "day", "exact", "deep", "none"):
        for more in ({}, {"from_": 1, "size": 2}, {"search_term": "A"}, {"filters": word}):
            found, expected = (store.get_metadata_field_unique_values(field, **more) for store in (document_store, reference))
            assert found == expected
        assert document_store.get_metadata_field_min_max(field) == reference.get_metadata_field_min_max(field), field
    assert document_store.get_metadata_fields_info().keys() == reference.get_metadata_fields_info().keys()
    assert document_store.get_metadata_fields_info()["n"] == {"type": "keyword"}
    assert document_store.get_metadata_field_unique_values("meta.deep.x") == ([1, 2], 2)
    counted = document_store.count_unique_metadata_by_filter(word, ["meta.word", "day"])
    assert counted == reference.count_unique_metadata_by_filter(word, ["meta.word", "day"])
    document_store.delete_by_filter({"field": "id", "operator": "==", "value": "mixed"})
    assert document_store.get_metadata_fields_info()["n"] == {"type": "float"}


def test_policies(document_store: NighDocumentStore) -> None:
    a, b, c = (Document(id=one, content=one) for one in "abc")
    document_store.write_documents([a, b])
    assert document_store.write_documents([Document(id="a", content="new"), c], DuplicatePolicy.SKIP) == 1
    with pytest.raises(DuplicateDocumentError, match="1 are there"):
        document_store.write_documents([c, Document(id="d")], DuplicatePolicy.FAIL)
    with pytest.raises(DuplicateDocumentError):
        document_store.write_documents([Document(id="d"), Document(id="d")], DuplicatePolicy.FAIL)
    equal(document_store.filter_documents(), [a, b, c])
    bad: list[dict[str, Any]] = [
        {"operator": "XOR", "conditions": []},
        {"operator": "AND", "conditions": ["a"]},
        {"field": "id", "operator": ">", "value": "a"},
    ]
    for filters in bad:
        with pytest.raises(FilterError):
            document_store.filter_documents(filters)
    with pytest.raises(FilterError, match="empty"):
        document_store.update_by_filter({}, {"a": 1})


@pytest.mark.anyio
async def test_a_pipeline_and_its_dictionary(document_store: NighDocumentStore, monkeypatch: pytest.MonkeyPatch) -> None:
    written = documents(20)
    document_store.write_documents(written)
    pipeline = Pipeline()
    word = {"field": "meta.word", "operator": "==", "value": "a"}
    retriever = NighEmbeddingRetriever(document_store, 3, word, filter_policy=FilterPolicy.MERGE)
    pipeline.add_component("retriever", retriever)
    again = Pipeline.loads(pipeline.dumps(), allowed_modules=["nigh.haystack"])
    more = {"field": "meta.n", "operator": ">=", "value": 1}
    expected = [one.id for one in written if one.meta.get("word") == "a" and one.meta.get("n", 0) >= 1]
    for one in (pipeline, again):
        found = one.run({"retriever": {"query_embedding": written[0].embedding, "filters": more, "top_k": 20}})["retriever"]["documents"]
        assert sorted(doc.id for doc in found) == sorted(expected)
        assert all(doc.embedding is None and doc.score is not None for doc in found)
    assert len((await retriever.run_async(written[0].embedding or [], top_k=1))["documents"]) == 1
    monkeypatch.setenv("NIGH_API_KEY", "secret-key")
    keyed = NighDocumentStore(document_store.url, api_key=Secret.from_env_var("NIGH_API_KEY"))
    assert "secret-key" not in str(keyed.to_dict()) and NighDocumentStore.from_dict(keyed.to_dict()).api_key == keyed.api_key
    with pytest.raises(ValueError, match="top_k is 0"):
        NighEmbeddingRetriever(document_store, 0)
