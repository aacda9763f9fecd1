//! The page about gRPC, whose methods are those of the table and whose messages those of the `.proto` files.
use crate::ROOT;
use nigh_net::grpc::{PACKAGE, SERVICE};
use nigh_net::op::table::{GrpcScope, Right, grpc_methods};
use std::fmt::Write;
use std::path::Path;

const RULES: &str = "\
# gRPC

`-grpc` turns the gRPC front end on. It is served over HTTP/2 in plain text, and carries the operations on collections and points that
REST carries, with the same checks and the same sentences. Keys and values have no methods: they are served over the
[binary protocol](../../net/PROTOCOL.md) alone.

The messages are those of the files below [`net/proto`](../../net/proto), from which clients are generated. A client without them asks the
server: reflection is served, in the versions `v1` and `v1alpha`. A client whose stubs are of another package but have the same messages
connects to a server that is started with `-grpc-alias` and that package.

Rules for all methods:

* **Calls** have one message each way, but for five methods that answer with a stream of messages: `ScrollStream` and `NamedScrollStream` send the
  documents of a scroll as they are read, however many they are, and each message has the cursor that goes on behind it; `SearchBatch`,
  `NamedSearchBatch` and `MVSearchBatch` carry out many searches of one collection and send the answer to each, in their order. A search with a `spec`
  is a query of lanes. With `with_errors` a search that is refused is answered with `error` and `code`; without it, the call ends there. Fields that
  the server does not know are ignored.
* **Tokens** are sent as the metadata `authorization: Bearer <key>`. Every failure is UNAUTHENTICATED, with one text. Nothing of a call without a
  valid token is received beyond its headers.
* **Messages** have at most 64 MiB in either direction, each of a stream for itself. They may be compressed with gzip; answers are not.
* **Deadlines** end reads with DEADLINE_EXCEEDED, and a read whose client gives up is given up. A write that has begun runs to its end, whatever
  its client waits for.
* **Values, filters and payloads** are the JSON of REST, in fields whose names end with `_json`. An empty text means none.
* **Ids that are strings**: in a collection with `ids` set to `string` each integer id is the number of a string: the first 8 bytes of its
  SHA-256, most significant first. A write must have the string in its payload under `$id`; the integer may be 0. Payloads in answers have
  `$id`. `has_id` takes strings. See [ids](../guide/ids.md).
* **Zeros** that are not sent mean the default. Two fields are exceptions: `alpha` may be sent as 0, and `k` must be sent.
* **Options of replicas** (`write_consistency_factor`, `no_wait`, `read_consistency`, `on_partition_unavailable`, `max_staleness`) are checked. One
  node has nobody to wait for, so that they change nothing.
* **Vector and payload** of a read are both returned where neither is asked for; where one is, it is returned alone.
* **Queries** (`VectorQuery`) may have queries inside a query to a depth of 4, with at most 256 lanes in all of them. An inner query has no `group_by`.
* **Options of a search** are one JSON object, the field `options_json` of its request, with the keys that [REST](../guide/search-options.md) takes.
  With `with_payload`, `Result` and `NamedResult` have `payload_json`; with `with_vector`, every hit has `hit_vectors`; with `explain`, the answer has
  `explain_json`.
* **Limits** of connections and calls stand under [limits](limits.md), codes under [errors](errors.md).

Beside its own service the server has `grpc.health.v1.Health`, with `Check` and `Watch`: it serves as long as `GET /v1/ready` says so over REST.
Health and reflection are served without a token.

This page is generated from the code by `tests/tests/pages/grpc.rs`.

## Methods

The service is `";

/// The page.
pub fn page() -> String {
    let mut out = RULES.to_owned();
    let _ = writeln!(
        out,
        "{PACKAGE}.{SERVICE}`. A right is needed on the collection that the request names, or on the whole node where the\n\
         table says so; changes of aliases need it on every alias and collection that they name. Methods that are \"refused\" need partitions,\n\
         and answer FAILED_PRECONDITION once their request is right. Those of API keys answer so on a server without `-keys-file`.\n\n\
         | Method | Right | Request | Answer | Operation |\n|---|---|---|---|---|"
    );
    let path = Path::new(ROOT).join("net/proto/svc/v1/service.proto");
    let service = std::fs::read_to_string(path).expect("the service");
    for line in service.lines().filter_map(|line| line.trim().strip_prefix("rpc ")) {
        let (name, rest) = line.split_once('(').expect("a request");
        let (request, rest) = rest.split_once(") returns (").expect("an answer");
        let answer = rest.trim_end_matches(");");
        let answer = answer.replace("stream ", "stream of ");
        let found = grpc_methods().find(|(_, method)| method.name == name);
        let (row, method) = found.unwrap_or_else(|| panic!("the table has no {name}"));
        let right = match (method.on, row.right) {
            (GrpcScope::Open, _) => "none".to_owned(),
            (GrpcScope::Node, Right::Of(right)) => format!("{right:?} on the node").to_lowercase(),
            (_, Right::Of(right)) => format!("{right:?}").to_lowercase(),
            (_, Right::OfInner) => "of the operation inside".to_owned(),
        };
        let note = if crate::operations::is_refused(row.op) { " (refused)" } else { "" };
        let _ = writeln!(out, "| `{name}`{note} | {right} | `{request}` | `{answer}` | `{}` |", row.name);
    }
    out
}
