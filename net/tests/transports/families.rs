//! What differs between the families in requests that mean the same.
use super::{Args, Clients, Server};
use serde_json::{Value, json};

/// A bit of `vector_upsert`: a payload follows.
const META: u8 = 1 << 1;

/// A family: the prefixes of its routes, operations and methods, and how a collection of it is made.
pub struct Family {
    pub base: &'static str,
    pub create: (&'static str, Value),
    pub points: &'static str,
    /// The path prefix of `count` and `facet`.
    pub many: &'static str,
    /// Where a point is written; a batch of them behind it.
    pub write: (&'static str, &'static str),
    /// The key of a batch.
    pub batch: &'static str,
    pub operation: &'static str,
    pub method: &'static str,
}

/// The three families. Their collections are called `c`, and have these keys in their configurations.
pub fn families(keys: &Value) -> [Family; 3] {
    let with = |config: Value| {
        let mut config = config.as_object().expect("an object").clone();
        config.extend(keys.as_object().expect("an object").clone());
        Value::Object(config)
    };
    [
        Family {
            base: "/v1/collections/c",
            create: ("/v1/collections", json!({"name": "c", "config": with(json!({"dim": 2}))})),
            points: "/v1/collections/c/points",
            many: "/v1/collections/c/points",
            write: ("/v1/collections/c/points", "/v1/collections/c/points/batch"),
            batch: "points",
            operation: "vector_",
            method: "",
        },
        Family {
            base: "/v1/named/c",
            create: ("/v1/named/c", with(json!({"named_vectors": {"image": {"dim": 2}}}))),
            points: "/v1/named/c/points",
            many: "/v1/named/c",
            write: ("/v1/named/c/points", "/v1/named/c/points/batch"),
            batch: "points",
            operation: "vector_named_",
            method: "Named",
        },
        Family {
            base: "/v1/multivector/c",
            create: ("/v1/multivector/c", with(json!({"dim": 2}))),
            points: "/v1/multivector/c/points",
            many: "/v1/multivector/c",
            write: ("/v1/multivector/c/docs", "/v1/multivector/c/docs/batch"),
            batch: "docs",
            operation: "vector_mv_",
            method: "MV",
        },
    ]
}

impl Family {
    /// A point as REST takes it, whose vector is (1, x).
    pub fn point(&self, id: &Value, x: u64, payload: &Value) -> Value {
        match self.method {
            "" => json!({"id": id, "vector": [1, x], "metadata": payload}),
            "Named" => json!({"id": id, "vectors": {"image": [1, x]}, "metadata": payload}),
            _ => json!({"id": id, "tokens": [[1, x]], "metadata": payload}),
        }
    }

    /// A point as gRPC takes it, and the method that does.
    pub fn message(&self, id: u64, x: u64, payload: &Value) -> (&'static str, Value) {
        let (payload, vector) = (payload.to_string(), json!([1, x]));
        match self.method {
            "" => (
                "Upsert",
                json!({"collection": "c", "id": id, "vector": vector, "metadata_json": payload, "upsert": true}),
            ),
            "Named" => (
                "NamedUpsert",
                json!({"name": "c", "id": id, "vectors": {"image": {"values": vector}}, "metadata_json": payload}),
            ),
            _ => (
                "MVAdd",
                json!({"name": "c", "id": id, "tokens": [{"values": vector}], "metadata_json": payload}),
            ),
        }
    }

    /// A point as the binary protocol takes it, and the operation that does.
    pub fn args(&self, id: u64, x: u64, payload: &Value) -> (&'static str, Args) {
        let (vector, payload) = ([1.0, x as f32], payload.to_string());
        let payload = payload.as_bytes();
        match self.method {
            "" => ("vector_upsert", Args::default().u8(META).s8("c").u64(id).floats(&vector).s32(payload)),
            "Named" => (
                "vector_named_insert",
                Args::on("c").u64(id).u32(1).s16("image").floats(&vector).u64(0).s32(payload),
            ),
            _ => ("vector_mv_add", Args::on("c").u64(id).u32(1).floats(&vector).s32(payload)),
        }
    }
}

/// The status and the JSON that REST answers.
pub fn asked(clients: &mut Clients, method: &str, path: &str, body: &Value) -> (u16, Value) {
    let body = if body.is_null() { String::new() } else { body.to_string() };
    let (status, text) = clients.rest.text(method, path, &body);
    (status, serde_json::from_str(&text).unwrap_or(Value::String(text)))
}

/// A server with the collection of a family.
pub fn created(family: &Family) -> (Server, Clients) {
    let server = Server::start();
    let mut clients = server.clients();
    let (path, config) = &family.create;
    let (status, answer) = asked(&mut clients, "POST", path, config);
    assert_eq!(status, 201, "{answer}");
    (server, clients)
}

/// Writes a point over the transport of that number, or says why it was refused: REST alone and in a batch, gRPC, the binary protocol. REST has
/// its id, the others its number.
pub fn write_point(
    clients: &mut Clients,
    family: &Family,
    by: u64,
    (id, number, x): (&Value, u64, u64),
    payload: &Value,
) -> Result<(), String> {
    let mut point = family.point(id, x, payload);
    let told = |(status, answer): (u16, Value)| match status {
        200 => Ok(()),
        _ => Err(answer["error"].as_str().unwrap().to_owned()),
    };
    match by % 4 {
        0 => {
            if family.method.is_empty() {
                point["upsert"] = json!(true);
            }
            told(asked(clients, "POST", family.write.0, &point))
        }
        1 => {
            let mut points = json!({ family.batch: [point] });
            if family.method.is_empty() {
                points["upsert"] = json!(true);
            }
            told(asked(clients, "POST", family.write.1, &points))
        }
        2 => {
            let (method, request) = family.message(number, x, payload);
            clients.grpc.call(method, request).map(|_| ()).map_err(|(_, text)| text)
        }
        _ => {
            let (operation, args) = family.args(number, x, payload);
            clients.binary.ask(operation, &args).map(|_| ())
        }
    }
}
