"""Calls every method of the service `svc.v1.VectorService` and fails where one was not called.

Arguments: the address and the process of a server, the mode in which clients get in, and the directory that `.ci/access.py` has filled.
"""

import json
import os
import sys
from pathlib import Path

import grpc
from google.protobuf import json_format
from grpc_reflection.v1alpha.proto_reflection_descriptor_database import ProtoReflectionDescriptorDatabase
from svc.v1 import collections_pb2, points_pb2, search_pb2, service_pb2, service_pb2_grpc

ADDRESS, SERVER, MODE, ACCESS = sys.argv[1], int(sys.argv[2]), sys.argv[3], Path(sys.argv[4])
SERVICE = service_pb2.DESCRIPTOR.services_by_name["VectorService"]
OPTIONS = [("grpc.max_receive_message_length", 64 << 20)]


def read(name):
    return (ACCESS / name).read_bytes()


# What a user of the client sets for each mode: credentials of the channel, or metadata where the channel is plain text.
metadata, channel_credentials = [], None
if MODE == "api-key":
    metadata = [("authorization", f"Bearer {read('api-key').decode()}")]
elif MODE == "certificate":
    channel_credentials = grpc.ssl_channel_credentials(read("ca.pem"), read("client.key"), read("client.pem"))
elif MODE == "jwt":
    token = grpc.access_token_call_credentials(read("jwt").decode())
    channel_credentials = grpc.composite_channel_credentials(grpc.ssl_channel_credentials(read("ca.pem")), token)
if channel_credentials:
    channel = grpc.secure_channel(ADDRESS, channel_credentials, OPTIONS)
else:
    channel = grpc.insecure_channel(ADDRESS, OPTIONS)
stub = service_pb2_grpc.VectorServiceStub(channel)
called = set()


def call(method, timeout=60, **fields):
    """The answer of a method, or the list of its answers if it is streamed."""
    descriptor = SERVICE.methods_by_name[method]
    request = descriptor.input_type._concrete_class()
    json_format.ParseDict(fields, request)
    called.add(method)
    answer = getattr(stub, method)(request, timeout=timeout, metadata=metadata)
    return list(answer) if descriptor.server_streaming else answer


def refused(method, code, text, **fields):
    try:
        call(method, **fields)
    except grpc.RpcError as error:
        assert error.code() == code and text in error.details(), f"{method}: {error.code()} {error.details()}"
    else:
        sys.exit(f"grpc-client: {method} is answered")


def ids(hits):
    return [hit.id for hit in hits]


def tagged(text):
    return json.dumps({"kind": {"kind": "string", "str": text}})


def cpu_seconds():
    fields = open(f"/proc/{SERVER}/stat").read().rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def deadlines():
    """What searches cost that nobody waits for: much less of the server's time than searches that end.

    The collection has no index, so that each search looks at all vectors.
    """
    dim, searches = 4096, 100
    ones = [1.0] * dim
    call("CreateCollection", name="wide", config={"dim": dim, "metric": "l2", "index_type": "ivf", "ivf_train_threshold": 1 << 30})
    for first in range(0, 8000, 1000):
        batch = points_pb2.UpsertBatchRequest(collection="wide")
        for id in range(first, first + 1000):
            batch.points.add(id=id, vector=ones)
        stub.UpsertBatch(batch)
    slow = search_pb2.SearchRequest(collection="wide", query=ones, k=10)

    def cost(timeout):
        before, ended = cpu_seconds(), 0
        for _ in range(searches):
            try:
                stub.Search(slow, timeout=timeout)
                ended += 1
            except grpc.RpcError as error:
                assert error.code() == grpc.StatusCode.DEADLINE_EXCEEDED, error
        return cpu_seconds() - before, ended

    (whole, ended), (cut, ended_in_time) = cost(60), cost(0.001)
    assert ended == searches and ended_in_time < searches / 10, f"{ended} and {ended_in_time} of {searches} searches ended"
    assert cut < whole / 2, f"{searches} searches cost {whole} s of CPU time, and with a deadline of 1 ms {cut} s"
    return f"; {searches} slow searches cost {whole:.2f} s of CPU time, with a deadline of 1 ms {cut:.2f} s"


EQUAL = json.dumps({"op": "eq", "field": "kind", "value": {"kind": "string", "str": "a"}})
PAYLOAD, OTHER = tagged("a"), tagged("b")

# Somebody who trusts the server and shows nothing is let in by an open server alone.
if channel_credentials:
    strange = grpc.secure_channel(ADDRESS, grpc.ssl_channel_credentials(read("ca.pem")), OPTIONS)
else:
    strange = grpc.insecure_channel(ADDRESS, OPTIONS)
try:
    service_pb2_grpc.VectorServiceStub(strange).ListCollections(collections_pb2.ListCollectionsRequest())
    assert MODE == "open", "a stranger is let in"
except grpc.RpcError as error:
    assert MODE != "open" and error.code() == grpc.StatusCode.UNAUTHENTICATED, error
strange.close()

# A collection of each family, with three points.
assert call("Health").status == "ok"
call("CreateCollection", name="dense", config={"dim": 2, "metric": "l2", "full_text": {}})
call("NamedCreate", name="named", config_json='{"image": {"dim": 2, "metric": 1}, "words": {"sparse": true}}')
call("MVCreateCollection", name="tokens", config={"dim": 2, "full_text": {}})
assert len(call("ListCollections").collections) == 3

sparse = {"sparse_indices": [3], "sparse_values": [1]}
point = {"collection": "dense", "metadata_json": PAYLOAD, "content": "a river", **sparse}
assert call("Upsert", id=1, vector=[0, 0], with_version=True, **point).version == 1
batch = [{"id": 2, "vector": [1, 0], "metadata_json": OTHER}, {"id": 3, "vector": [5, 5], "metadata_json": PAYLOAD}]
assert call("UpsertBatch", collection="dense", points=batch).count == 2
vectors = {"image": {"values": [0, 0]}, "words": {"sparse": True, "sparse_indices": [3], "sparse_values": [1]}}
call("NamedUpsert", name="named", id=1, vectors=vectors, metadata_json=PAYLOAD)
batch = [{"id": 2, "vectors": {"image": {"values": [1, 0]}}, "metadata_json": OTHER},
         {"id": 3, "vectors": {"image": {"values": [5, 5]}}, "metadata_json": PAYLOAD}]
assert call("NamedUpsertBatch", name="named", points=batch).count == 2
for id, token, payload in [(1, [1, 0], PAYLOAD), (2, [0, 1], OTHER), (3, [-1, 0], PAYLOAD)]:
    call("MVAdd", name="tokens", id=id, tokens=[{"values": token}], metadata_json=payload, content="a river", **sparse)

# Configurations.
assert call("GetConfig", name="dense").config.dim == 2
assert "image" in call("NamedGetConfig", name="named").config_json
assert call("MVGetConfig", name="tokens").config.dim == 2
for prefix, name in [("", "dense"), ("Named", "named"), ("MV", "tokens")]:
    assert call(prefix + "GetInfo", name=name).points == 3
call("ChangeConfig", name="dense", change_json='{"ef_search": 80}')
call("NamedChangeConfig", name="named", change_json='{"image": {"ef_search": 80}}')
call("MVChangeConfig", name="tokens", change_json='{"ef_search": 80}')
call("NamedAddSpace", name="named", space="more", config_json='{"dim": 2}')
call("NamedUpdateVectors", name="named", id=1, vectors={"more": {"values": [1, 1]}})
call("NamedDropSpace", name="named", space="more")

# Reads.
assert list(call("Get", collection="dense", id=2).vector) == [1, 0]
assert list(call("NamedGet", collection="named", id=2).vectors["image"].values) == [1, 0]
assert list(call("MVGet", collection="tokens", id=2).tokens[0].values) == [0, 1]
for prefix, name in [("", "dense"), ("Named", "named"), ("MV", "tokens")]:
    found = call(prefix + "GetBatch", collection=name, ids=[1, 9])
    assert ids(found.points) == [1] and list(found.missing) == [9]
    assert call(prefix + "Count", collection=name, filter_json=EQUAL).count == 2
    assert [facet.count for facet in call(prefix + "Facet", collection=name, key="kind").facets] == [2, 1]
    assert len(call(prefix + "Sample", collection=name, limit=2).documents) == 2
assert ids(call("Scroll", collection="dense").documents) == [1, 2, 3]
assert ids(call("NamedScroll", name="named").documents) == [1, 2, 3]
assert ids(call("MVScroll", collection="tokens").documents) == [1, 2, 3]
assert [id for page in call("ScrollStream", collection="dense") for id in ids(page.documents)] == [1, 2, 3]
assert [id for page in call("NamedScrollStream", name="named") for id in ids(page.documents)] == [1, 2, 3]

# Searches.
near = {"collection": "dense", "query": [0.9, 0], "k": 2}
assert ids(call("Search", **near).results) == [2, 1]
assert ids(call("SearchDocs", **near, filter_json=EQUAL).documents) == [1, 3]
assert len(call("SearchGroups", collection="dense", query=[0, 0], k=2, group_by="kind").groups) == 2
assert 2 in ids(call("HybridSearch", collection="dense", dense=[0.9, 0], k=2, **sparse).results)
assert ids(call("TextSearch", collection="dense", text="river", k=2).documents) == [1]
assert 1 in ids(call("HybridTextSearch", collection="dense", dense=[0.9, 0], text="river", k=2).results)
spec = {"prefetch": [{"dense": {"dense": [0.9, 0], "k": 2}}], "k": 2}
assert ids(call("VectorQuery", collection="dense", spec=spec).results) == [2, 1]
two = [{"query": [0.9, 0], "k": 1}, {"query": [0, 0], "k": 1}]
assert sorted(hit.id for one in call("SearchBatch", collection="dense", searches=two) for hit in one.results) == [1, 2]

near = {"name": "named", "vector_name": "image", "query": [0.9, 0], "k": 2}
assert ids(call("NamedSearch", **near).results) == [2, 1]
assert ids(call("NamedSearchDocs", **near, filter_json=EQUAL).documents) == [1, 3]
assert len(call("NamedSearchMmr", **near).documents) == 2
assert ids(call("NamedSparseSearch", name="named", vector_name="words", k=2, **sparse).results) == [1]
hybrid = {"dense_space": "image", "dense": [0.9, 0], "sparse_space": "words", **sparse}
assert len(call("NamedHybridSearch", name="named", k=2, **hybrid).results) == 2
spec = {"prefetch": [{"named_dense": {"space": "image", "dense": [0.9, 0], "k": 2}}], "k": 2}
assert ids(call("NamedVectorQuery", collection="named", spec=spec).results) == [2, 1]
two = [{"vector_name": "image", **search} for search in two]
assert sorted(hit.id for one in call("NamedSearchBatch", name="named", searches=two) for hit in one.results) == [1, 2]

query = [{"values": [0, 1]}]
assert ids(call("MVSearch", name="tokens", query=query, k=1).results) == [2]
assert len(call("MVHybridSearch", name="tokens", query=query, k=2, **sparse).results) == 2
spec = {"prefetch": [{"mv_maxsim": {"query": query, "k": 1}}], "k": 1}
assert ids(call("MVVectorQuery", collection="tokens", spec=spec).results) == [2]
assert [ids(one.results) for one in call("MVSearchBatch", name="tokens", searches=[{"query": query, "k": 1}])] == [[2]]

# Changes of payloads, by id and by filter.
for prefix, name in [("", "dense"), ("Named", "named"), ("MV", "tokens")]:
    one, all = {"collection": name, "id": 3}, {"collection": name, "ids": [3]}
    extra = json.dumps({"more": {"kind": "int", "int": 1}})
    assert call(prefix + "SetPayload", payload_json=extra, **one).applied
    assert call(prefix + "SetPayloadByFilter", payload_json=extra, **all).changed == 1
    assert call(prefix + "DeletePayloadKeys", keys=["more"], **one).applied
    call(prefix + "DeletePayloadKeysByFilter", keys=["kind"], **all)
    assert call(prefix + "OverwritePayload", payload_json=OTHER, **one).applied
    assert call(prefix + "OverwritePayloadByFilter", payload_json=OTHER, **all).changed == 1
    assert call(prefix + "Count", collection=name, filter_json=EQUAL).count == 1
    assert call(prefix + "ClearPayload", **one).applied
    call(prefix + "ClearPayloadByFilter", collection=name, filter_json=EQUAL)
    assert call(prefix + "Count", collection=name, filter_json=EQUAL).count == 0
    refused(prefix + "Operate", grpc.StatusCode.INVALID_ARGUMENT, "", **one, key="kind")

# Aliases.
call("CreateAlias", alias="current", collection="dense")
assert [entry.alias for entry in call("ListAliases").aliases] == ["current"]
assert ids(call("Search", collection="current", query=[1, 0], k=1).results) == [2]
assert call("AliasBatch", actions=[{"alias": "current", "delete": True}, {"alias": "next", "collection": "dense"}]).applied == 2
call("DeleteAlias", alias="next")

# What this server does not have.
lacking = grpc.StatusCode.FAILED_PRECONDITION
for prefix, name in [("", "dense"), ("MV", "tokens")]:
    for method in ["Resplit", "Reshard"]:
        refused(prefix + method, lacking, "not partitioned", name=name, new_partitions=2)
    for method in ["ResplitCleanup", "ReshardAbort"]:
        refused(prefix + method, lacking, "not partitioned", name=name)

# API keys, which are in a file that an open server does not have.
if MODE == "open":
    refused("KeysAdd", lacking, "no key registry", token="t", tenant="acme")
    refused("KeysRevoke", lacking, "no key registry", token="t")
    refused("KeysList", lacking, "no key registry")
else:
    before = len(call("KeysList").keys)
    call("KeysAdd", token="another-api-key", tenant="*", scopes=["read:*"])
    assert [list(key.scopes) for key in call("KeysList").keys].count(["read:*"]) == 1
    call("KeysRevoke", token="another-api-key")
    assert len(call("KeysList").keys) == before == (0 if MODE == "jwt" else 1)

# Deadlines have nothing to do with access, and take longer than everything else here.
spent = deadlines() if MODE == "open" else ""

# The ends.
assert call("Delete", collection="dense", id=1).deleted and call("NamedDelete", name="named", id=1).deleted
assert call("MVDelete", name="tokens", id=1).deleted
for prefix, name in [("", "dense"), ("Named", "named"), ("MV", "tokens")]:
    assert call(prefix + "DeleteByFilter", collection=name, ids=[2, 3]).deleted == 2
call("DropCollection", name="dense")
call("NamedDrop", name="named")
call("MVDropCollection", name="tokens")

# Reflection tells of the same methods, and all of them were called.
database = ProtoReflectionDescriptorDatabase(channel)
assert SERVICE.full_name in database.get_services(), database.get_services()
file = database.FindFileContainingSymbol(SERVICE.full_name)
told = {method.name for service in file.service if service.name == SERVICE.name for method in service.method}
assert told == set(SERVICE.methods_by_name), told ^ set(SERVICE.methods_by_name)
missing = told - called
if missing:
    sys.exit(f"grpc-client: not called: {', '.join(sorted(missing))}")
print(f"grpc-client: {MODE}: grpcio {grpc.__version__} calls all {len(told)} methods{spent}")
