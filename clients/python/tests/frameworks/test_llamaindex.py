"""The adapters for LlamaIndex. It ships no tests for stores, so that its own stores in memory and its own filter are what ours is compared
with; and its pipelines and indexes work with ours."""

from __future__ import annotations

import random
import uuid
from typing import Any

import pytest

pytest.importorskip("llama_index.core")

from llama_index.core import StorageContext, VectorStoreIndex
from llama_index.core.embeddings import MockEmbedding
from llama_index.core.ingestion import DocstoreStrategy, IngestionPipeline
from llama_index.core.node_parser import SentenceSplitter
from llama_index.core.schema import Document, ImageNode, IndexNode, MediaResource, Node, NodeRelationship, RelatedNodeInfo, TextNode
from llama_index.core.storage.docstore import SimpleDocumentStore
from llama_index.core.storage.kvstore import SimpleKVStore
from llama_index.core.vector_stores.simple import SimpleVectorStore
from llama_index.core.vector_stores.types import (
    BasePydanticVectorStore,
    FilterCondition,
    FilterOperator,
    MetadataFilter,
    MetadataFilters,
    VectorStoreQuery,
    VectorStoreQueryMode,
)
from llama_index.core.vector_stores.utils import build_metadata_filter_fn

from nigh import Client, Keys
from nigh.llamaindex import NighDocumentStore, NighIndexStore, NighKVStore, NighVectorStore

DIM = 8


def nodes(count: int, seed: int = 3) -> list[TextNode]:
    """Nodes with fields of every type that filters compare, each of which some nodes lack."""
    rng = random.Random(seed)
    made = []
    for at in range(count):
        metadata = {
            "n": rng.choice([0, 1, 2, 2.0, 2.5, -3]),
            "word": rng.choice(["a", "b", "A.b", "x\\y", "ü(", ""]),
            "words": rng.sample(["a", "b", "c", "d"], rng.randrange(4)),
            "numbers": rng.sample([1, 2, 3, 4.5], rng.randrange(4)),
        }
        kept = {key: value for key, value in metadata.items() if rng.random() < 0.8}
        node = TextNode(id_=f"n{at}", text=f"text {at}", metadata=kept, embedding=[rng.gauss(0, 1) for _ in range(DIM)])
        node.relationships[NodeRelationship.SOURCE] = RelatedNodeInfo(node_id=f"d{at % 3}")
        made.append(node)
    return made


def random_filters(rng: random.Random, depth: int = 0) -> MetadataFilters:
    """Filters whose types fit the fields, as the reference raises for others."""
    kinds: list[tuple[str, list[str], Any]] = [
        ("n", ["==", "!=", ">", ">=", "<", "<="], lambda: rng.choice([0, 1, 2, 2.0, 2.5, -3, 7])),
        ("n", ["in", "nin"], lambda: rng.sample([0, 1, 2, 7], rng.randrange(3))),
        ("word", ["==", "!=", ">", "<="], lambda: rng.choice(["a", "b", "A.b", "x\\y", "z"])),
        ("word", ["in", "nin"], lambda: rng.sample(["a", "b", "ü(", "z"], rng.randrange(3))),
        ("word", ["text_match", "text_match_insensitive"], lambda: rng.choice([".", "a", "B", "\\", "ü(", "A.B", ""])),
        ("words", ["contains"], lambda: rng.choice(["a", "e"])),
        ("words", ["any", "all"], lambda: rng.sample(["a", "b", "c", "e"], rng.randrange(3))),
        ("numbers", ["contains"], lambda: rng.choice([1, 2.0, 4.5, 9])),
        ("numbers", ["any", "all"], lambda: rng.sample([1, 2, 3, 9], rng.randrange(3))),
        ("word", ["is_empty"], lambda: None),
        ("words", ["is_empty"], lambda: None),
    ]
    made = []
    for _ in range(rng.randrange(1, 4)):
        key, operators, value = rng.choice(kinds)
        made.append(MetadataFilter(key=key, operator=FilterOperator(rng.choice(operators)), value=value()))
    return MetadataFilters(filters=list(made), condition=rng.choice(list(FilterCondition)))


@pytest.fixture
def store(http: Client, name: str) -> NighVectorStore:
    return NighVectorStore(http, name, full_text=True)


def ids(found: Any) -> list[str]:
    return sorted(node.node_id for node in found)


def test_it_is_what_the_framework_expects(store: NighVectorStore, http: Client) -> None:
    assert isinstance(store, BasePydanticVectorStore) and store.class_name() == "NighVectorStore" and store.client is http
    assert store.stores_text and store.is_embedding_query
    # Before the first node there is nothing, and no error.
    store.delete("d")
    store.delete_nodes(["n"])
    store.clear()
    assert store.add([]) == [] and store.get_nodes() == [] and store.get_nodes(["n"]) == []
    assert store.query(VectorStoreQuery([1.0] * DIM)).nodes == []


def test_filters_are_those_of_llamaindex(store: NighVectorStore) -> None:
    written = nodes(120)
    store.add(written)
    metadata = {node.node_id: node.metadata for node in written}
    rng = random.Random(17)
    matched = 0
    for _ in range(400):
        filters = random_filters(rng)
        reference = build_metadata_filter_fn(lambda one: metadata[one], filters)
        expected = sorted(filter(reference, metadata))
        assert ids(store.get_nodes(filters=filters)) == expected, filters
        matched += 0 < len(expected) < len(written)
    assert matched > 150, "the filters tell nodes apart"


def test_nested_filters(store: NighVectorStore) -> None:
    store.add([TextNode(id_=f"{at}", embedding=[1.0, at], metadata={"a": at, "deep": {"b": at % 2}}) for at in range(6)])
    odd = MetadataFilter(key="deep.b", value=1)
    outer = MetadataFilters(filters=[odd, MetadataFilters(filters=[MetadataFilter(key="a", value=3)], condition=FilterCondition.NOT)])
    assert ids(store.get_nodes(filters=outer)) == ["1", "5"]
    assert len(store.get_nodes(filters=MetadataFilters(filters=[]))) == 6
    assert ids(store.get_nodes(["1", "2", "none"], outer)) == ["1"]
    assert [node.node_id for node in store.get_nodes(["2", "none", "1"])] == ["2", "1"]


def test_queries_are_those_of_the_store_in_memory(store: NighVectorStore) -> None:
    written, rng, reference = nodes(200), random.Random(5), SimpleVectorStore()
    store.add(written)
    reference.add(written)
    for _ in range(60):
        vector = [rng.gauss(0, 1) for _ in range(DIM)]
        query = VectorStoreQuery(vector, similarity_top_k=7)
        if rng.random() < 0.7:
            query.filters = MetadataFilters(filters=[MetadataFilter(key="n", operator=FilterOperator.GTE, value=rng.choice([0, 2]))])
        if rng.random() < 0.4:
            query.node_ids = rng.sample([node.node_id for node in written], 50)
        found, expected = store.query(query), reference.query(query)
        assert found.ids == expected.ids and [node.node_id for node in found.nodes or ()] == found.ids
        # From cosine similarity c the distance is 1 - c.
        cosines = [1 - (1 / one - 1) for one in found.similarities or ()]
        assert cosines == pytest.approx([min(one, 1) for one in expected.similarities or ()], abs=1e-5)
        query.mode, query.mmr_threshold = VectorStoreQueryMode.MMR, rng.choice([0.2, 0.8])
        query.node_ids = None
        expected = reference.query(query, mmr_threshold=query.mmr_threshold)
        # From the third on the reference looks at the last one alone, and the server at all that are chosen.
        found = store.query(query, mmr_prefetch_k=200)
        assert len(found.ids or ()) == 7 and (found.ids or [])[:2] == (expected.ids or [])[:2]
    assert set(store.query(VectorStoreQuery([1.0] * DIM, similarity_top_k=200, doc_ids=["d1"])).ids or ()) == {
        f"n{at}" for at in range(1, 200, 3)
    }


def test_modes_with_words(http: Client, name: str, store: NighVectorStore) -> None:
    texts = ["a red lamp", "a green lamp", "the tank is empty", "lamp lamp"]
    store.add([TextNode(id_=f"{at}", text=text, embedding=[1.0, float(at)]) for at, text in enumerate(texts)])

    def asked(mode: str, **more: Any) -> list[str]:
        return store.query(VectorStoreQuery([1.0, 0.0], 2, query_str="tank", mode=VectorStoreQueryMode(mode), **more)).ids or []

    assert asked("text_search") == ["2"]
    assert set(asked("hybrid")) == {"0", "2"}
    assert asked("hybrid", alpha=1.0)[0] == "0" and asked("hybrid", alpha=0.0)[0] == "2"
    assert len(asked("hybrid", hybrid_top_k=3, sparse_top_k=4)) == 3
    for mode, message in (("svm", "not offered"), ("sparse", "sparse_embedding")):
        with pytest.raises(ValueError, match=message):
            asked(mode)
    with pytest.raises(ValueError, match="query_str"):
        store.query(VectorStoreQuery([1.0, 0.0], mode=VectorStoreQueryMode.HYBRID))
    with pytest.raises(ValueError, match="query_embedding"):
        store.query(VectorStoreQuery())
    assert len(store.query(VectorStoreQuery([1.0, 0.0], similarity_top_k=0)).ids or ()) == 4, "default_top_k"


class Lengths:
    """Sparse vectors that have the length of the text as index."""

    def embed_documents(self, texts: list[str]) -> list[Any]:
        return [{len(text): 1.0} for text in texts]

    def embed_query(self, text: str) -> Any:
        return {len(text): 1.0}


def test_sparse_vectors(http: Client, name: str) -> None:
    store = NighVectorStore(http, name, sparse_embedding=Lengths())
    store.add([TextNode(id_=f"{at}", text="x" * at, embedding=[1.0, float(at)]) for at in range(5)])
    for mode, weight in (("sparse", None), ("hybrid", 0.0)):
        query = VectorStoreQuery([1.0, 0.0], 1, query_str="abc", mode=VectorStoreQueryMode(mode), alpha=weight)
        assert store.query(query).ids == ["3"]


def test_nodes_come_back_as_they_were(http: Client, name: str, store: NighVectorStore) -> None:
    made: list[Any] = [
        TextNode(id_="text", text="words", metadata={"a": None, "b": [1, {"c": 2.5}]}, excluded_llm_metadata_keys=["a"]),
        IndexNode(id_="index", text="words", index_id="other"),
        ImageNode(id_="image", image="aGVsbG8="),
        Node(id_="media", text_resource=MediaResource(text="words"), image_resource=MediaResource(data=b"hello")),
        Document(id_="document", text="words", metadata={"é": "ü"}),
    ]
    for node in made:
        node.relationships[NodeRelationship.PARENT] = RelatedNodeInfo(node_id="above")
    for node in made:
        node.embedding = [1.0, 0.0]
    store.add(made)
    for node, found in zip(made, store.get_nodes([node.node_id for node in made]), strict=True):
        node.embedding = None
        if isinstance(node, Document):
            assert type(found) is TextNode and (found.text, found.metadata) == (node.text, node.metadata)
        else:
            assert found.model_dump() == node.model_dump()
    # Points of others are texts.
    http.upsert(name, "other", [0.0, 1.0], payload={"n": 1, "_nigh_ref_doc_id": "far"}, content="words")
    other = store.get_nodes(["other"])[0]
    assert other.metadata == {"n": 1} and other.get_content() == "words" and other.ref_doc_id == "far"
    store.delete("far")
    assert store.get_nodes(["other"]) == []


def test_deleting(http: Client, name: str, store: NighVectorStore) -> None:
    store.add(nodes(9))
    store.delete("d1")
    assert ids(store.get_nodes()) == ["n0", "n2", "n3", "n5", "n6", "n8"]
    store.delete_nodes(["n0", "n4"])
    store.delete_nodes(filters=MetadataFilters(filters=[MetadataFilter(key="ref_doc_id", value="d2")]))
    assert ids(store.get_nodes()) == ["n3", "n6"]
    store.delete_nodes([])
    assert http.count(name) == 2
    store.delete_nodes()
    assert http.count(name) == 0
    store.clear()
    assert not http.collection_exists(name) and store.add(nodes(1)) == ["n0"]


def test_what_cannot_be_compared_is_said(store: NighVectorStore) -> None:
    bad: list[tuple[str, Any, str]] = [("==", None, "a number or a text"), ("in", "a", "a list"), (">", ["a"], "a number or a text"),
                                       ("text_match", 5, "a text")]  # fmt: skip
    for operator, value, message in bad:
        filters = MetadataFilters(filters=[MetadataFilter(key="k", operator=FilterOperator(operator), value=value)])
        with pytest.raises(ValueError, match=message):
            store.get_nodes(filters=filters)


@pytest.mark.anyio
async def test_awaited(store: NighVectorStore) -> None:
    assert await store.async_add(nodes(6)) == [f"n{at}" for at in range(6)]
    assert (await store.aquery(VectorStoreQuery(nodes(6)[2].embedding))).ids == ["n2"]
    await store.adelete("d0")
    await store.adelete_nodes(["n1"])
    assert ids(await store.aget_nodes()) == ["n2", "n4", "n5"]
    await store.aclear()
    assert await store.aget_nodes() == []


@pytest.fixture
def kv(tcp: Keys) -> NighKVStore:
    return NighKVStore(tcp, prefix=f"{uuid.uuid4()}:")


def test_values_are_those_of_the_store_in_memory(kv: NighKVStore) -> None:
    reference, rng = SimpleKVStore(), random.Random(2)
    names = ["data", "a", "a:b", "a%3Ab", ""]
    for at in range(300):
        key, collection = rng.choice(["k", "b:k", "", "é"]), rng.choice(names)
        if rng.random() < 0.3:
            assert kv.delete(key, collection) == reference.delete(key, collection)
        elif rng.random() < 0.5:
            kv.put(key, {"at": at}, collection)
            reference.put(key, {"at": at}, collection)
        else:
            kv.put_all([(f"{key}{more}", {"at": at}) for more in range(3)], collection, batch_size=2)
            reference.put_all([(f"{key}{more}", {"at": at}) for more in range(3)], collection)
        assert kv.get(key, collection) == reference.get(key, collection)
    for collection in names:
        assert kv.get_all(collection) == reference.get_all(collection)


@pytest.mark.anyio
async def test_values_awaited(kv: NighKVStore) -> None:
    await kv.aput("a", {"n": 1})
    await kv.aput_all([(f"{at}", {"n": at}) for at in range(1500)], batch_size=10)
    assert await kv.aget("a") == {"n": 1} and len(await kv.aget_all()) == 1501
    assert await kv.adelete("a") is True and await kv.aget("a") is None


def test_documents_are_those_of_the_store_in_memory(tcp: Keys) -> None:
    stores: list[Any] = [NighDocumentStore(tcp, prefix=f"{uuid.uuid4()}:"), SimpleDocumentStore()]
    seen = []
    for store in stores:
        store.add_documents(nodes(9))
        store.set_document_hash("n1", "changed")
        store.delete_document("n2")
        store.delete_ref_doc("d1")
        with pytest.raises(ValueError, match="already exists"):
            store.add_documents(nodes(1), allow_update=False)
        refs = {ref: sorted(info.node_ids) for ref, info in store.get_all_ref_doc_info().items()}
        seen.append((sorted(store.docs), refs, store.get_document("n0"), store.get_document_hash("n3"), store.document_exists("n1")))
    assert seen[0] == seen[1]


def test_a_pipeline_and_an_index(http: Client, tcp: Keys, store: NighVectorStore) -> None:
    prefix = f"{uuid.uuid4()}:"
    documents, indexes = NighDocumentStore(tcp, prefix=prefix), NighIndexStore(tcp, prefix=prefix)
    embedding = MockEmbedding(embed_dim=DIM)
    pipeline = IngestionPipeline(
        transformations=[SentenceSplitter(chunk_size=40, chunk_overlap=0), embedding],
        vector_store=store, docstore=documents, docstore_strategy=DocstoreStrategy.UPSERTS,
    )  # fmt: skip
    first = [Document(id_=f"d{at}", text=f"Sentence {at}. " * 20) for at in range(3)]
    assert len(pipeline.run(documents=first)) > 3
    assert pipeline.run(documents=first) == [], "what has not changed is not written again"
    changed = pipeline.run(documents=[Document(id_="d1", text="Something else.")])
    assert len(changed) == 1
    left = {node.ref_doc_id: node.get_content() for node in store.get_nodes()}
    assert left["d1"] == "Something else." and left.keys() == {"d0", "d1", "d2"}
    index = VectorStoreIndex.from_vector_store(store, embed_model=embedding)
    found = index.as_retriever(similarity_top_k=2).retrieve("anything")
    assert len(found) == 2 and all(one.score is not None for one in found)
    context = StorageContext.from_defaults(docstore=documents, index_store=indexes, vector_store=store)
    kept = VectorStoreIndex([], storage_context=context, embed_model=embedding)
    assert [one.index_id for one in indexes.index_structs()] == [kept.index_id]
