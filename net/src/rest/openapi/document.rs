//! The whole document, and the test that the checked-in file is it.

use super::operation::{Operation, responses};
use super::schema::{about, boolean, integer, named as schema, natural, or, uint64};
use super::{
    answers, batches, collections, configurations, many, multi_vector, named, node, points, requests,
    searches, values,
};
use serde_json::{Map, Value, json};

const ABOUT: &str = "Vector search over REST. Every error is `{\"error\": text}`; the text names what is wrong, and a \
    500 says nothing more than that. An unknown path is 404, a known one under another method 405 with `Allow`; HEAD is \
    served wherever GET is. In bodies, keys match regardless of case, the last of repeated keys wins, `null` means absent, \
    and unknown keys are refused, as unknown query parameters are. Options that a route takes in both places have one value. \
    A body may be sent with `Content-Encoding: gzip`. \
    A body counts as binary when its media type is `application/octet-stream` and the route has a binary form, else as JSON.";

/// Every operation.
pub fn operations() -> Vec<Operation> {
    let all = [
        collections::operations(),
        configurations::operations(),
        points::operations(),
        searches::operations(),
        batches::operations(),
        named::operations(),
        multi_vector::operations(),
        many::operations(),
        node::operations(),
    ];
    all.into_iter().flatten().collect()
}

fn parameters() -> Value {
    let parameter = |name: &str, about: &str, schema: Value| {
        let parameter = json!({"name": name, "in": "query", "description": about, "schema": schema});
        (name.to_owned(), parameter)
    };
    let all = [
        parameter("collection", "Aliases of this collection alone.", schema("CollectionName")),
        parameter("with_vector", "Off with `false` or `0`, else on.", or(true, boolean())),
        parameter("with_payload", "Off with `false` or `0`, else on.", or(true, boolean())),
        parameter(
            "read_consistency",
            "0 any replica, 1 leader, 2 linearizable, 3 bounded staleness.",
            or(0, integer(0, 3)),
        ),
        parameter("on_partition_unavailable", "0 partial answers, 1 fail.", or(0, integer(0, 1))),
        parameter("max_staleness", "Bound of level 3, milliseconds.", or(0, uint64())),
        parameter("write_consistency_factor", "Replica acknowledgements wanted.", or(0, natural())),
        parameter(
            "wait",
            "An answer always means durable, whatever this says; that of a build may also say that it has begun.",
            or(true, boolean()),
        ),
        parameter(
            "with_version",
            "Answer with the version that each point has after the write.",
            or(false, boolean()),
        ),
        parameter("workers", "Cores of a build, 0 = all.", or(0, natural())),
        parameter("expected_version", "Version the point must have, 0 = absent.", uint64()),
    ];
    Value::Object(Map::from_iter(all))
}

/// Every schema, by name.
pub fn schemas() -> Map<String, Value> {
    let all = [
        values::schemas(),
        requests::schemas(),
        answers::schemas(),
        batches::schemas(),
        configurations::schemas(),
        named::schemas(),
        multi_vector::schemas(),
        many::schemas(),
    ];
    let all = all.into_iter().flatten();
    let mut by_name = Map::new();
    for (name, schema) in all {
        assert!(by_name.insert(name.to_owned(), schema).is_none(), "two schemas are called {name}");
    }
    by_name
}

fn document() -> Value {
    let mut paths = Map::new();
    for operation in operations() {
        let path = paths.entry(operation.route.path).or_insert_with(|| json!({}));
        path[operation.route.method.name().to_ascii_lowercase()] = operation.render();
    }
    let tags = [
        ("collections", "Collections of points."),
        ("aliases", "Names that stand for collections wherever points are read or written."),
        ("points", "Points: a vector, and optionally text, a sparse vector and a payload."),
        ("payloads", "Payloads of points, changed in place."),
        ("searches", "Searches."),
        (
            "named",
            "Collections of named spaces: points have vectors in several dense and sparse spaces, and may lack some.",
        ),
        (
            "multivector",
            "Multi-vector collections: documents have a vector for each of their tokens, and are ranked by late interaction (MaxSim).",
        ),
        ("node", "The node itself."),
    ];
    let tags: Vec<Value> =
        tags.iter().map(|(name, about)| json!({"name": name, "description": about})).collect();
    json!({
        "openapi": "3.1.0",
        "info": {
            "title": "Nigh",
            "version": env!("CARGO_PKG_VERSION"),
            "description": ABOUT,
            "license": {"name": "Apache-2.0", "identifier": "Apache-2.0"},
        },
        "tags": tags,
        "security": [{"key": []}],
        "paths": paths,
        "components": {
            "securitySchemes": {"key": about(
                "The key of the server, when it asks for one. A header without `Bearer ` is the key as a whole.",
                json!({"type": "http", "scheme": "bearer"}),
            )},
            "parameters": parameters(),
            "responses": responses(),
            "schemas": schemas(),
        },
    })
}

/// The variable that makes the test write the file.
const REWRITE: &str = "NIGH_REWRITE_OPENAPI";

#[test]
fn the_file_is_the_document() {
    let mut made = serde_json::to_string_pretty(&document()).unwrap();
    made.push('\n');
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/openapi.json");
    if std::env::var_os(REWRITE).is_some() {
        std::fs::write(path, &made).unwrap();
        return;
    }
    let same = made == super::DOCUMENT;
    assert!(
        same,
        "net/openapi.json is not what the code says; rewrite it with\n    {REWRITE}=1 cargo test -p nigh-net --lib openapi"
    );
}
