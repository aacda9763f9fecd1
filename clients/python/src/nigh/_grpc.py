"""gRPC as a way to carry out requests of the clients: what a request says in JSON becomes a message of its method, and the answer becomes
what JSON would have said. The messages are those of `service.bin`, the descriptors of the server, so that nothing is generated."""

from __future__ import annotations

import asyncio
import base64
import functools
import json
import operator
import os
import ssl
import struct
import time
from collections.abc import Callable, Mapping
from importlib.resources import files
from typing import TYPE_CHECKING, Any, TypeVar

import httpcore
import numpy as np

from ._elements import Elements
from ._lanes import spec_of, varint
from ._plan import BINARY, Plan, Request, Response, Together
from ._together import in_tasks, in_threads
from ._types import UnsupportedError
from ._vectors import number_of

if TYPE_CHECKING:
    from .client import _Settings

T = TypeVar("T")
LARGEST_MESSAGE = 64 << 20
_CHANNEL = (
    ("grpc.max_receive_message_length", LARGEST_MESSAGE), ("grpc.max_send_message_length", LARGEST_MESSAGE),
    ("grpc.enable_retries", 0), ("grpc.enable_http_proxy", 0),
)  # fmt: skip
_OPTIONS = {"ef_search", "exact", "offset", "score_threshold", "distance_threshold", "with_score", "with_payload", "with_vector", "explain"}
_QUERY = {"prefetch", "root", "mode", "method", "alpha", "rrf_k", "k", "group_by", "group_size"}
_LIMITS = {"max_vectors", "max_bytes", "max_inserts_per_second"}
# What each code of gRPC is over HTTP.
_STATUS = {"INVALID_ARGUMENT": 400, "OUT_OF_RANGE": 400, "UNAUTHENTICATED": 401, "PERMISSION_DENIED": 403, "NOT_FOUND": 404,
           "ALREADY_EXISTS": 409, "ABORTED": 409, "FAILED_PRECONDITION": 412, "RESOURCE_EXHAUSTED": 429, "INTERNAL": 500, "UNKNOWN": 500,
           "DATA_LOSS": 500, "UNIMPLEMENTED": 501, "UNAVAILABLE": 503, "DEADLINE_EXCEEDED": 504}  # fmt: skip
_CODES = {3: 400, 5: 404, 6: 409, 7: 403, 8: 429, 9: 412, 10: 409, 11: 400, 12: 501, 13: 500, 14: 503, 16: 401}

# What the library says, in place of the server, where a connection is lost; the code is the same.
_LOST = ("recvmsg", "sendmsg", "Socket closed", "Stream removed", "Connection reset", "Broken pipe", "GOAWAY", "keepalive", "ping timeout")
_ONE = {"Get", "NamedGet", "MVGet"}

# Methods by the rest of their route, which are those of all families, with another prefix; then those of each.
_SHARED = {
    ("DELETE", ""): "Drop", ("GET", ""): "GetInfo", ("GET", "/config"): "GetConfig", ("PATCH", "/config"): "ChangeConfig",
    ("GET", "/points/{id}"): "Get", ("POST", "/points/batch-get"): "GetBatch", ("DELETE", "/{docs}/{id}"): "Delete",
    ("POST", "/{docs}/delete"): "DeleteByFilter", ("POST", "{reads}/scroll"): "Scroll", ("POST", "{reads}/count"): "Count",
    ("POST", "{reads}/facet"): "Facet", ("POST", "{reads}/sample"): "Sample", ("POST", "/points/{id}/payload"): "SetPayload",
    ("PUT", "/points/{id}/payload"): "OverwritePayload", ("POST", "/points/{id}/payload/delete"): "DeletePayloadKeys",
    ("POST", "/points/{id}/payload/clear"): "ClearPayload", ("POST", "/points/payload"): "SetPayloadByFilter",
    ("PUT", "/points/payload"): "OverwritePayloadByFilter", ("POST", "/points/payload/delete"): "DeletePayloadKeysByFilter",
    ("POST", "/points/payload/clear"): "ClearPayloadByFilter", ("POST", "/points/{id}/operate"): "Operate",
    ("POST", "{reads}/search"): "Search", ("POST", "{reads}/search/batch"): "SearchBatch", ("POST", "/query"): "VectorQuery",
}  # fmt: skip
ROUTES = {
    ("GET", "/v1/health"): "Health", ("GET", "/v1/collections"): "ListCollections", ("POST", "/v1/collections"): "CreateCollection",
    ("POST", "/v1/aliases"): "CreateAlias", ("DELETE", "/v1/aliases/{alias}"): "DeleteAlias", ("GET", "/v1/aliases"): "ListAliases",
    ("POST", "/v1/aliases/batch"): "AliasBatch", ("POST", "/v1/admin/keys"): "KeysAdd", ("GET", "/v1/admin/keys"): "KeysList",
    ("DELETE", "/v1/admin/keys"): "KeysRevoke",
    ("DELETE", "/v1/collections/{name}"): "DropCollection", ("DELETE", "/v1/multivector/{name}"): "MVDropCollection",
    ("POST", "/v1/collections/{name}/points"): "Upsert", ("POST", "/v1/collections/{name}/points/batch"): "UpsertBatch",
    ("POST", "/v1/collections/{name}/points/search/docs"): "SearchDocs",
    ("POST", "/v1/collections/{name}/points/search/groups"): "SearchGroups",
    ("POST", "/v1/collections/{name}/points/search/hybrid"): "HybridSearch",
    ("POST", "/v1/collections/{name}/points/search/text"): "TextSearch",
    ("POST", "/v1/collections/{name}/points/search/hybrid-text"): "HybridTextSearch",
    ("POST", "/v1/named/{name}"): "NamedCreate", ("POST", "/v1/named/{name}/points"): "NamedUpsert",
    ("POST", "/v1/named/{name}/points/batch"): "NamedUpsertBatch", ("POST", "/v1/named/{name}/search/docs"): "NamedSearchDocs",
    ("POST", "/v1/named/{name}/search/mmr"): "NamedSearchMmr", ("POST", "/v1/named/{name}/sparse-search"): "NamedSparseSearch",
    ("POST", "/v1/named/{name}/hybrid-search"): "NamedHybridSearch", ("POST", "/v1/named/{name}/spaces"): "NamedAddSpace",
    ("DELETE", "/v1/named/{name}/spaces/{space}"): "NamedDropSpace",
    ("POST", "/v1/named/{name}/points/{id}/vectors"): "NamedUpdateVectors",
    ("POST", "/v1/multivector/{name}"): "MVCreateCollection", ("POST", "/v1/multivector/{name}/docs"): "MVAdd",
    ("POST", "/v1/multivector/{name}/hybrid-search"): "MVHybridSearch",
}  # fmt: skip
for (_verb, _tail), _method in _SHARED.items():
    for _root, _prefix, _reads, _docs in (("collections", "", "/points", "points"), ("named", "Named", "", "points"),
                                          ("multivector", "MV", "", "docs")):  # fmt: skip
        _route = _tail.replace("{reads}", _reads).replace("{docs}", _docs)
        ROUTES.setdefault((_verb, f"/v1/{_root}/{{name}}{_route}"), _prefix + _method)


def grpc_module(name: str = "grpc") -> Any:
    """The library, which the extra `grpc` brings."""
    try:
        return __import__(name, fromlist=["_"])
    except ImportError as error:
        raise ImportError(f"gRPC needs the libraries of the extra: pip install 'nigh[grpc]' ({error})") from error


@functools.cache
def _service() -> dict[str, tuple[Any, Any, bool]]:
    """The methods: what a request and an answer are, and whether answers are a stream."""
    grpc_module("google.protobuf")
    from google.protobuf import descriptor_pb2, descriptor_pool, message_factory

    pool: Any = descriptor_pool.DescriptorPool()
    described = descriptor_pb2.FileDescriptorSet.FromString(files("nigh").joinpath("service.bin").read_bytes())
    for one in described.file:
        pool.AddSerializedFile(one.SerializeToString())
    kind: Any = message_factory.GetMessageClass
    found = pool.FindServiceByName("svc.v1.VectorService").methods
    return {one.name: (kind(one.input_type), kind(one.output_type), one.server_streaming) for one in found}


def _json(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))


def _is_message(field: Any) -> bool:
    return bool(field.message_type is not None)


def _is_map(field: Any) -> bool:
    return _is_message(field) and bool(field.message_type.GetOptions().map_entry)


class _Writer:
    """Writes what a request says into a message, field by field; what has no field is refused."""

    def __init__(self, method: str) -> None:
        self.method = method

    def fill(self, message: Any, given: Mapping[str, Any]) -> Any:
        fields, options = message.DESCRIPTOR.fields_by_name, {}
        for key, value in given.items():
            if value is None:
                continue
            if key in _OPTIONS and "options_json" in fields:
                options[key] = value
            elif not (self._special(message, fields, key, value) or self._plain(message, fields, key, value)):
                raise UnsupportedError(f"{key!r} has no place in the method {self.method} of gRPC")
        if options:
            message.options_json = _json(options)
        return message

    def _special(self, message: Any, fields: Any, key: str, value: Any) -> bool:
        """What is laid out in another way than in JSON."""
        if key == "id" and "id" in fields:
            message.id = number_of(value)
        elif key == "ids" and isinstance(value, list):
            message.ids.extend(map(number_of, value))
        elif key == "expected_version":
            message.expected_version, message.has_expected_version = value, True
        elif key == "wait":
            message.no_wait = not value
        elif isinstance(value, dict) and value.keys() == {"indices", "values"} and "sparse_indices" in fields:
            message.sparse_indices.extend(value["indices"])
            message.sparse_values.extend(value["values"])
        elif key == "sparse_vectors":
            for space, vector in value.items():
                self.fill(message.vectors[space], {"sparse_vector": vector})
                message.vectors[space].sparse = True
        elif key == "sparse_vector":
            message.sparse_indices.extend(value["indices"])
            message.sparse_values.extend(value["values"])
        elif key == "match" and "phrase" in fields:
            self.fill(message, value)
        elif key == "call":
            message.call = base64.b64decode(value)
        elif key == "global_idf" and "global_idf" not in fields:
            pass  # It has no effect anywhere.
        else:
            return False
        return True

    def _plain(self, message: Any, fields: Any, key: str, value: Any) -> bool:
        field = fields.get(key)
        if field is None:
            if f"{key}_json" not in fields:
                return False
            setattr(message, f"{key}_json", _json(value))
        elif _is_map(field):
            target = getattr(message, key)
            for name, one in value.items():
                if isinstance(one, dict):
                    self.fill(target[name], {"sparse_vector": one})
                    target[name].sparse = True
                elif isinstance(one, list):
                    target[name].values.extend(one)
                else:
                    target[name] = one
        elif _is_message(field):
            target = getattr(message, key)
            if not field.is_repeated if hasattr(field, "is_repeated") else field.label != field.LABEL_REPEATED:
                target.SetInParent()
                self.fill(target, value)
            elif field.message_type.name == "TokenVector":
                for row in value:
                    target.add().values.extend(row)
            else:
                for one in value:
                    self.fill(target.add(), one)
        elif isinstance(value, list):
            getattr(message, key).extend(value)
        else:
            setattr(message, key, value)
        return True


def _read(message: Any) -> dict[str, Any]:
    """What JSON would have said in place of a message."""
    made: dict[str, Any] = {}
    for field in message.DESCRIPTOR.fields:
        key, value = field.name, getattr(message, field.name)
        if key.endswith("_json"):
            if value:
                made[key[: -len("_json")]] = json.loads(value)
        elif key == "hit_vectors":
            if message.HasField(key):
                made.update({name: one for name, one in _read(value).items() if one})
        elif _is_map(field):
            made[key] = {name: _vector(one) if hasattr(one, "DESCRIPTOR") else one for name, one in value.items()}
        elif key == "sparse_values":
            if len(value):
                made["sparse"] = {"indices": list(message.sparse_indices), "values": list(value)}
        elif isinstance(value, bytes):
            made[key] = base64.b64encode(value).decode()
        elif isinstance(value, (bool, int, float, str)):
            made[key] = value
        elif not _is_message(field):
            if key != "sparse_indices" and (len(value) or key == "missing"):
                made[key] = list(value)
        elif not hasattr(value, "__len__"):
            if message.HasField(key):
                made[key] = _read(value)
        elif field.message_type.name == "TokenVector":
            if len(value):
                made[key] = [list(row.values) for row in value]
        elif len(value) or key != "groups":
            made[key] = [_read(one) for one in value]
    return _named(made)


def _vector(message: Any) -> Any:
    if message.sparse or len(message.sparse_values):
        return {"indices": list(message.sparse_indices), "values": list(message.sparse_values)}
    return list(message.values)


def _named(made: dict[str, Any]) -> dict[str, Any]:
    """Takes an id that is a text from where gRPC has it, the payload."""
    for key in ("payload", "metadata"):
        name = made[key].get("$id") if isinstance(made.get(key), dict) else None
        name = name.get("str") if isinstance(name, dict) else name
        if isinstance(name, str) and made.get("id", number_of(name)) == number_of(name):
            del made[key]["$id"]
            made["id"] = name
    return made


def _rows_message(request: Any, body: bytes) -> Any:
    """Points of a binary batch, whose floats are put into the message as they lie in memory."""
    flags, count, dim = struct.unpack_from(">III", body, 4)
    width = 8 + 4 * dim
    made = np.frombuffer(body, dtype=[("id", ">u8"), ("vector", ">f4", (dim,))], count=count, offset=16)
    vectors = memoryview(made["vector"].astype("<f4").tobytes()) if count else memoryview(b"")
    at, size, parts = 16 + width * count, 4 * dim, list[bytes]()
    for row, id in enumerate(made["id"].tolist()):
        point = b"".join((b"\x08", varint(id), b"\x12", varint(size), vectors[row * size : (row + 1) * size]))
        if flags & 1:
            length = int.from_bytes(body[at : at + 4], "big")
            at += 4 + length
            if length:
                point += b"\x2a" + varint(length) + body[at - length : at]
        parts += (b"\x12", varint(len(point)), point)
    request.MergeFromString(b"".join(parts))
    request.upsert = bool(flags & 2)
    return request


def _frame_message(request: Any, body: bytes) -> Any:
    """A binary search."""
    _, flags, k, dim = struct.unpack_from(">4sIII", body)
    end = 28 + 4 * dim
    floats = np.frombuffer(body, dtype=">f4", count=dim, offset=28).astype("<f4").tobytes()
    request.MergeFromString(b"\x12" + varint(len(floats)) + floats)
    request.k = k
    if flags & 1:
        request.filter_json = body[end + 4 :].decode()
    return request


def _searches_message(request: Any, body: bytes) -> Any:
    """Searches with their queries as bytes, and what they have in common as JSON."""
    _, count, dim, length = struct.unpack_from(">IIII", body, 4)
    common = json.loads(body[20 : 20 + length])
    floats = memoryview(np.frombuffer(body, dtype=">f4", count=count * dim, offset=20 + length).astype("<f4").tobytes())
    # Fields of a message may stand in any order.
    one, write = request.searches.add(), _Writer("SearchBatch").fill
    tail = write(one, {key: common.pop(key) for key in ("k", "filter") if key in common}).SerializeToString()
    request.ClearField("searches")
    head = b"\x0a" + varint(4 * dim)
    before = b"\x12" + varint(len(head) + 4 * dim + len(tail)) + head
    parts = list[Any]()
    for at in range(count):
        parts += (before, floats[4 * dim * at : 4 * dim * (at + 1)], tail)
    request.MergeFromString(b"".join(parts))
    request.with_errors = True
    return write(request, common)


def _given(made: Request) -> dict[str, Any]:
    """What a request says: in its body, in its route and behind it."""
    tail = made.template.rpartition("}")[2]
    body = json.loads(made.body) if made.body else {}
    if "/payload" in made.template and "{id}" in made.template and tail == "/payload":
        body = {"payload": body}
    elif made.method == "PATCH":
        named = made.template.startswith("/v1/named")
        limits = {key: value for key, value in body.items() if named and key in _LIMITS}
        rest = {key: value for key, value in body.items() if key not in limits}
        body = {"collection": limits or None, "change": rest if rest or not limits else None}
    elif made.template == "/v1/named/{name}":
        spaces, partitions = body.pop("named_vectors", {}), body.pop("partitions", None)
        body = {"config": spaces, "partitions": partitions, "collection": body} if made.method == "POST" else body
    elif made.template == "/v1/multivector/{name}" and made.method == "POST":
        body = {"config": body}
    elif made.template == "/v1/named/{name}/spaces":
        body = {"space": body["name"], "config": body["config"]}
    elif made.template == "/v1/aliases/batch":
        actions = [{**(one.get("create") or one["delete"]), "delete": "delete" in one} for one in body["actions"]]
        body = {"actions": actions}
    elif "searches" in body:
        body["with_errors"] = True
    return {**body, **dict(made.asked or {})}


class Call:
    """A request as a call: its method, its message, and what is made of the answer."""

    def __init__(self, made: Request) -> None:
        name = ROUTES.get((made.method, made.template))
        if name is None:
            raise UnsupportedError(f"there is no method of gRPC for {made.method} {made.template}; use a client for HTTP", 501)
        self.made, self.name = made, name
        kind, self.answers, self.streams = _service()[name]
        self.message, self.without_payload = kind(), False
        self._fill()

    def _fill(self) -> None:
        made, message = self.made, self.message
        fields = message.DESCRIPTOR.fields_by_name
        names = dict(made.names or {})
        if "name" in names:
            setattr(message, "collection" if "collection" in fields else "name", names.pop("name"))
        write = _Writer(self.name).fill
        if made.content_type == BINARY:
            {b"RVB1": _rows_message, b"RVQ1": _frame_message, b"RVS1": _searches_message}[made.body[:4]](message, made.body)
            return
        given = _given(made)
        if self.name in _ONE or self.name.removesuffix("Batch") in _ONE:
            # In a message, neither means both.
            self.without_payload = not (given["with_vector"] or given["with_payload"])
            given["with_payload"] = given["with_payload"] or self.without_payload
            message.with_vector, message.with_payload = given.pop("with_vector"), given.pop("with_payload")
        if self.name == "HybridTextSearch":
            given["dense"] = given.pop("vector")
        if "spec" in fields:
            query = {key: given.pop(key) for key in [*given] if key in _QUERY}
            message.spec.MergeFromString(spec_of({"prefetch": [], **query}, number_of))
        write(message, {**names, **_stored(given)})

    def answered(self, answer: Any) -> Response:
        """The answer as the operations take it."""
        if self.made.each is not None:
            elements = Elements(self.made.each, is_json=False)
            for one in answer:
                elements.take(_outcome(one))
            return Response(200, b"", answer=elements)
        if self.streams:
            return Response(200, b"", answer={"results": [_outcome(one) for one in answer]})
        read = _read(answer)
        if read.get("applied") is False:
            return Response(404, _json({"error": f"not found: id {dict(self.made.names or {}).get('id')}"}).encode())
        if self.without_payload:
            for one in (read, *read.get("points", ())):
                one.pop("payload", None)
        if "changed" in read:
            read = {"changed": int(read["changed"])}
        return Response(200, b"", answer=read)


def _outcome(answer: Any) -> dict[str, Any]:
    read = _read(answer)
    if answer.error:
        return {"error": answer.error, "status": _CODES.get(answer.code, 500)}
    del read["error"]
    if "query_results" in read:
        read["results"] = read.pop("query_results") or read["results"]
    return read


def _stored(given: dict[str, Any]) -> dict[str, Any]:
    """A write of points whose ids are texts has them in the payloads."""
    for one in (given, *(given.get("points") or ())):
        if isinstance(one.get("id"), str):
            one["metadata"] = {**(one.get("metadata") or {}), "$id": one["id"]}
    return given


class _Errors:
    """What the library raises, as the clients know it."""

    def __init__(self, settings: _Settings) -> None:
        self.settings, self.grpc = settings, grpc_module()

    def metadata(self) -> list[tuple[str, str]]:
        return [("authorization", value.decode()) for name, value in self.settings.headers if name == b"Authorization"]

    def of(self, call: Call, error: Any) -> Response | Exception:
        code, text = error.code().name, error.details() or ""
        if code == "DEADLINE_EXCEEDED":
            return httpcore.ReadTimeout(text)
        if code == "UNAVAILABLE" and text.startswith("failed to connect"):
            return httpcore.ConnectError(text)  # Nothing was sent.
        if code == "CANCELLED" or (code == "UNAVAILABLE" and text.startswith(_LOST)):
            return httpcore.ReadError(text)
        if code == "NOT_FOUND" and call.name in _ONE and text.startswith("point "):
            return Response(200, b"", answer={"found": False})
        conflict = code == "FAILED_PRECONDITION" and text.startswith("version conflict")
        # A batch may have been written in part, and does not say how far, so that it must not be taken for one that was refused as a whole.
        known = {"committed": 0} if call.name.endswith("UpsertBatch") else {}
        return Response(409 if conflict else _STATUS.get(code, 500), _json({"error": text, **known}).encode())


def credentials(context: ssl.SSLContext | None) -> Any:
    """What checks certificates as a context does that trusts authorities."""
    roots = context.get_ca_certs(binary_form=True) if context is not None else []
    pem = "".join(map(ssl.DER_cert_to_PEM_cert, roots)).encode() or None
    return grpc_module().ssl_channel_credentials(root_certificates=pem)


class _Channels:
    def __init__(self, settings: _Settings, context: ssl.SSLContext | None, given: Any) -> None:
        self.settings, self.errors = settings, _Errors(settings)
        self.target = f"{settings.host.decode()}:{settings.port or (443 if settings.secure else 80)}"
        self.given = (given or credentials(context)) if settings.secure else None
        _service()

    def channel(self, library: Any) -> Any:
        if self.given is None:
            return library.insecure_channel(self.target, _CHANNEL)
        return library.secure_channel(self.target, self.given, _CHANNEL)

    def stub(self, channel: Any, call: Call) -> Any:
        make: Callable[..., Any] = channel.unary_stream if call.streams else channel.unary_unary
        return make(
            f"/svc.v1.VectorService/{call.name}",
            request_serializer=operator.methodcaller("SerializeToString"),
            response_deserializer=call.answers.FromString,
        )


class SyncTransport(_Channels):
    """Carries plans out over gRPC, and waits."""

    def __init__(self, settings: _Settings, context: ssl.SSLContext | None, given: Any) -> None:
        super().__init__(settings, context, given)
        self._open()

    def _open(self) -> None:
        self._channel, self._pid, self._stubs = self.channel(self.errors.grpc), os.getpid(), dict[str, Any]()

    def _done(self, step: Request | Together | float) -> Any:
        if isinstance(step, float):
            return time.sleep(step)
        if self._pid != os.getpid():
            self._open()  # The threads of a channel do not live on behind a fork.
        if isinstance(step, Together):
            return in_threads(self.run, step, self.settings.together)
        call = Call(step)
        stub = self._stubs.get(call.name) or self._stubs.setdefault(call.name, self.stub(self._channel, call))
        try:
            answer = stub(call.message, timeout=self.settings.limit(step), metadata=self.errors.metadata())
            return call.answered(list(answer) if call.streams else answer)
        except self.errors.grpc.RpcError as error:
            return self.errors.of(call, error)

    def run(self, plan: Plan[T]) -> T:
        """The result of a plan."""
        steps, done = self.settings.steps(plan), None
        try:
            while True:
                done = self._done(steps.send(done))
        except StopIteration as end:
            result: T = end.value
            return result

    def close(self) -> None:
        """Closes the channel."""
        if self._pid == os.getpid():
            self._channel.close()


class AsyncTransport(_Channels):
    """Carries plans out over gRPC, awaited."""

    def __init__(self, settings: _Settings, context: ssl.SSLContext | None, given: Any) -> None:
        super().__init__(settings, context, given)
        self._library = grpc_module("grpc.aio")
        self._loop: asyncio.AbstractEventLoop | None = None

    def _own(self) -> Any:
        loop = asyncio.get_running_loop()
        if loop is not self._loop:  # A channel belongs to the loop that made it.
            self._loop, self._channel = loop, self.channel(self._library)
        return self._channel

    async def _done(self, step: Request | Together | float) -> Any:
        if isinstance(step, float):
            return await asyncio.sleep(step)
        if isinstance(step, Together):
            return await in_tasks(self.run, step, self.settings.together)
        call = Call(step)
        try:
            asked = self.stub(self._own(), call)(call.message, timeout=self.settings.limit(step), metadata=self.errors.metadata())
            return call.answered([one async for one in asked] if call.streams else await asked)
        except self.errors.grpc.RpcError as error:
            return self.errors.of(call, error)

    async def run(self, plan: Plan[T]) -> T:
        """The result of a plan."""
        steps, done = self.settings.steps(plan), None
        try:
            while True:
                done = await self._done(steps.send(done))
        except StopIteration as end:
            result: T = end.value
            return result

    async def close(self) -> None:
        """Closes the channel."""
        if self._loop is not None and self._loop is asyncio.get_running_loop():
            await self._channel.close()
            self._loop = None
