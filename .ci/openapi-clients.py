"""The README's walk, taken by the client that openapi-python-client makes of the document: `openapi-clients.py URL DOCUMENT MODE ACCESS`.

MODE is the way in which clients get in, and ACCESS the directory that `.ci/access.py` has filled.
"""

import importlib
import json
import pkgutil
import ssl
import sys
from io import BytesIO
from pathlib import Path
from struct import pack

import nigh_client
import nigh_client.api
from nigh_client import models
from nigh_client.types import File

url, document, mode, access = sys.argv[1], json.load(open(sys.argv[2])), sys.argv[3], Path(sys.argv[4])
modules = [m.name for m in pkgutil.walk_packages(nigh_client.api.__path__, "nigh_client.api.")]
calls = {name.rsplit(".", 1)[1]: importlib.import_module(name) for name in modules}


def configured(**credentials):
    """A client that trusts the server, with what its user sets besides."""
    trusts = ssl.create_default_context(cafile=access / "ca.pem")
    if "certificate" in credentials:
        trusts.load_cert_chain(*credentials.pop("certificate"))
    kind = nigh_client.AuthenticatedClient if "token" in credentials else nigh_client.Client
    return kind(base_url=url, raise_on_unexpected_status=True, verify_ssl=trusts, **credentials)


client = {
    "open": lambda: configured(),
    "api-key": lambda: configured(token=(access / "api-key").read_text()),
    "certificate": lambda: configured(certificate=(access / "client.pem", access / "client.key")),
    "jwt": lambda: configured(token=(access / "jwt").read_text()),
}[mode]()
made = 0


def snake(name):
    return "".join("_" + c.lower() if c.isupper() else c for c in name)


ids = [operation["operationId"] for path in document["paths"].values() for operation in path.values()]
missing = [name for name in ids if not hasattr(calls.get(snake(name)), "sync_detailed")]
assert not missing, f"the client lacks {missing}"


def call(operation, *names, status=200, model=None, body=None, **parameters):
    """The parsed answer; `model` names the class that `body` is read into, so that it is sent as the client writes it."""
    if body is not None:
        parameters["body"] = getattr(models, model).from_dict(body) if model else body
        if model:
            assert parameters["body"].to_dict() == body, (operation, parameters["body"].to_dict(), body)
    global made
    made += 1
    answer = calls[operation].sync_detailed(*names, client=client, **parameters)
    assert answer.status_code == status, (operation, answer.status_code, answer.content)
    parsed = answer.parsed
    sent = json.loads(answer.content) if answer.headers["content-type"] == "application/json" else None
    if hasattr(parsed, "to_dict") and status < 300:
        # Nothing of the answer is lost on the way into the classes of the client.
        assert parsed.to_dict() == sent, (operation, parsed.to_dict(), sent)
    return parsed


def ids_of(hits):
    return [hit.id for hit in hits]


def title(text):
    return {"kind": "string", "str": text}


# Somebody who trusts the server and shows nothing is let in by an open server alone.
stranger = calls["list_collections"].sync_detailed(client=configured())
assert stranger.status_code == (200 if mode == "open" else 401), stranger

call("create_collection", status=201, model="CreateCollection",
     body={"name": "films", "config": {"dim": 4, "metric": "cosine"}})
films = [
    {"id": 1, "vector": [0.9, 0.1, 0, 0], "metadata": {"title": title("Alien"), "year": {"kind": "int", "int": 1979}}},
    {"id": 2, "vector": [0.8, 0.2, 0.1, 0], "metadata": {"title": title("The Thing"), "year": {"kind": "int", "int": 1982}}},
    {"id": 3, "vector": [0, 0, 0.1, 0.9], "metadata": {"title": title("Amelie"), "year": {"kind": "int", "int": 2001}}},
]
assert call("write_points", "films", model="Batch", body={"points": films}).count == 3
near = {"query": [1, 0, 0, 0], "k": 2}
assert ids_of(call("search_documents", "films", model="Search", body=near).documents) == [1, 2]
after = {"op": "gt", "field": "year", "value": {"kind": "int", "int": 1980}}
found = call("search_documents", "films", model="Search", body=near | {"filter": after}).documents
assert ids_of(found) == [2, 3] and found[0].metadata["year"].int_ == 1982, found
# A filter in a filter, of every way to hold one.
nested = {"op": "and", "and": [after, {"op": "not", "not": {"op": "or", "or": [
    {"op": "match", "field": "title", "value": "thing"}, {"op": "in", "field": "year", "value": [1979, 1980]}]}}]}
assert ids_of(call("search", "films", model="Search", body=near | {"filter": nested}).results) == [3]
replaced = {"id": 3, "upsert": True, "expected_version": 1, "vector": [0.1, 0, 0, 0.9], "metadata": {"title": title("Amélie")}}
assert call("write_point", "films", model="Point", body=replaced).id == 3
stale = call("write_point", "films", model="Point", body=replaced, status=409)
assert "version conflict" in stale.error, stale
call("merge_payload", "films", 3, model="PayloadChange", body={
    "year": {"kind": "int", "int": 2001}, "new": {"kind": "bool", "bool": True}, "key_ttl_ms": {"new": 86400000}})
call("delete_payload_keys", "films", 3, model="PayloadKeys", body={"keys": ["new"]})
point = call("get_point", "films", 3)
assert point.version == 4 and set(point.payload.to_dict()) == {"title", "year"}, point
assert call("get_point", "films", 3, with_vector=False).vector is None
refused = call("delete_point", "films", 3, status=409, expected_version=9)
assert "version conflict" in refused.error, refused
assert call("delete_point", "films", 3, expected_version=4).deleted is True
page = call("scroll_points", "films", model="Scroll", body={"order_by": {"key": "year", "desc": True}, "limit": 10})
assert ids_of(page.documents) == [2, 1] and page.next_cursor == ""
call("create_alias", status=201, model="Alias", body={"alias": "catalogue", "collection": "films"})
assert call("get_point", "catalogue", 1).found is True
assert [alias.alias for alias in call("list_aliases", collection="films").aliases] == ["catalogue"]
info = call("get_collection", "films")
assert info.points == 2 and info.config.full_text is None, info
facets = call("facet_points", "films", model="Facet", body={"key": "year", "limit": 5}).facets
assert [facet.value.int_ for facet in facets] == [1979, 1982], facets
assert len(call("sample_points", "films", model="Sample", body={"limit": 2, "seed": 7}).documents) == 2
assert call("count_points", "films", model="Count", body={"filter": after}).count == 1
assert "svc_vector_size" in call("metrics")
call("delete_alias", "catalogue")
call("drop_collection", "films")
assert "unknown collection" in call("get_collection", "films", status=404).error

call("create_collection", status=201, model="CreateCollection",
     body={"name": "notes", "config": {"dim": 2, "metric": "l2", "full_text": {}}})
notes = [
    {"id": 1, "vector": [0, 0], "content": "A river runs", "sparse": {"indices": [7], "values": [2]}, "metadata": {"lang": "en"}},
    {"id": 2, "vector": [1, 0], "content": "Rivers and tides", "sparse": {"indices": [7, 9], "values": [1, 1]}, "metadata": {"lang": "en"}},
    {"id": 3, "vector": [2, 0], "content": "The sky", "metadata": {"lang": "de"}},
]
call("write_points", "notes", model="Batch", body={"points": notes})
assert ids_of(call("search_text", "notes", model="TextSearch", body={"text": "the river", "k": 2}).documents) == [1, 2]
hybrid = call("search_hybrid_text", "notes", model="HybridTextSearch", body={"vector": [2, 0], "text": "river", "k": 2})
assert len(hybrid.results) == 2
weighted = {"dense": [2, 0], "k": 2, "sparse": {"indices": [9], "values": [1]}, "method": "weighted", "alpha": 0.3}
assert ids_of(call("search_hybrid", "notes", model="HybridSearch", body=weighted).results)[0] == 2
explained = call("search", "notes", model="Search", body={
    "query": [0, 0], "k": 2, "explain": True, "filter": {"op": "eq", "field": "lang", "value": "en"}})
assert ids_of(explained.results) == [1, 2] and explained.explain.lanes[0].hits == 2, explained
groups = call("search_groups", "notes", model="GroupSearch", body={"query": [0, 0], "k": 2, "group_by": "lang"}).groups
assert [group.key.str_ for group in groups] == ["en", "de"], groups
assert len(call("search_mmr", "notes", model="MmrSearch", body={"query": [0, 0], "k": 2, "lambda": 0.3}).documents) == 2
sparse = {"sparse": {"indices": [9], "values": [1]}}
lanes = {"k": 2, "prefetch": [{"text": "river"}, {"dense": [2, 0]}, sparse]}
assert len(call("query", "notes", model="Query", body=lanes).results) == 2
anew = {"k": 2, "mode": "rerank", "root": {"dense": [2, 0]}, "prefetch": [{"recommend": {"positive": [1]}}, sparse]}
assert ids_of(call("query", "notes", model="Query", body=anew).results)[0] in (2, 3)
# A body has either of two shapes, for which the generator makes a class each.
assert call("delete_points", "notes", model="DeleteByFilterType0",
            body={"filter": {"op": "eq", "field": "lang", "value": "de"}}).deleted == 1
assert call("delete_points", "notes", model="DeleteByFilterType1", body={"ids": [404]}).deleted == 0

call("create_collection", status=201, model="CreateCollection", body={"name": "bulk", "config": {"dim": 2}})
rows = b"RVB1" + pack(">III", 0, 2, 2) + b"".join(pack(">Qff", id, id, 1) for id in (1, 2))
assert call("stage_points", "bulk", body=File(payload=BytesIO(rows).getvalue())).staged == 2
call("build_staged", "bulk", model="Build", body={"workers": 0})
assert call("get_collection", "bulk").points == 2

# API keys are in a file that an open server does not have.
key = {"token": "another-api-key", "tenant": "*", "scopes": ["read:*"]}
if mode == "open":
    assert "no key registry" in call("add_key", model="NewKey", body=key, status=412).error
else:
    before = len(call("list_keys").keys)
    call("add_key", model="NewKey", body=key, status=201)
    assert [listed.scopes for listed in call("list_keys").keys].count(["read:*"]) == 1
    call("revoke_key", model="KeyToken", body={"token": "another-api-key"})
    assert len(call("list_keys").keys) == before == (0 if mode == "jwt" else 1)
print(f"openapi-clients: {mode}: Python, {len(ids)} operations, took the README's walk in {made} calls")
