//! The document of the interface: it is served to everyone, its examples work as they stand, and its schemas hold.
use super::schema::misfit;
use crate::common::server::{Client, Server};
use nigh_net::auth::keys_file::Key;
use nigh_net::auth::registry::{KeysStore, RegistrySettings};
use nigh_net::auth::{Open, Registry, SingleKey};
use serde_json::{Value, json};
use std::sync::Arc;

const JSON: &str = "application/json";
const BINARY: &str = "application/octet-stream";

fn document(client: &mut Client) -> Value {
    serde_json::from_str(&client.text("GET", "/v1/openapi.json", "").1).unwrap()
}

/// Follows a reference of the document.
fn resolved<'d>(document: &'d Value, part: &'d Value) -> &'d Value {
    match part.get("$ref").and_then(Value::as_str) {
        Some(place) => document.pointer(place.strip_prefix('#').unwrap()).unwrap(),
        None => part,
    }
}

/// Examples of a body or an answer: media type, name, value.
fn examples(content: &Value) -> Vec<(String, String, Value)> {
    let mut all = Vec::new();
    for (media, form) in content.as_object().into_iter().flatten() {
        for (name, example) in form["examples"].as_object().into_iter().flatten() {
            all.push((media.clone(), name.clone(), example["value"].clone()));
        }
    }
    all
}

/// Collections, points and an alias as the examples expect to find them: made by the document's own examples.
fn prepare(document: &Value, client: &mut Client) {
    let of = |path: &str| examples(&document["paths"][path]["post"]["requestBody"]["content"]);
    for alias in ["catalogue", "latest"] {
        client.json("DELETE", &format!("/v1/aliases/{alias}"), Value::Null);
    }
    for (_, name, body) in of("/v1/collections") {
        client.json("DELETE", &format!("/v1/collections/{name}"), Value::Null);
        client.json("POST", "/v1/collections", body);
    }
    let films = of("/v1/collections/{name}/points/batch").remove(0);
    client.json("POST", "/v1/collections/films/points/batch", films.2);
    client.json("POST", "/v1/aliases", of("/v1/aliases").remove(0).2);
    for name in ["notes", "papers", "tray"] {
        client.json("DELETE", &format!("/v1/multivector/{name}"), Value::Null);
    }
    for name in ["papers", "tray"] {
        client.json("POST", &format!("/v1/multivector/{name}"), of("/v1/multivector/{name}").remove(0).2);
    }
    for (_, _, document) in of("/v1/multivector/{name}/docs") {
        client.json("POST", "/v1/multivector/papers/docs", document);
    }
    for name in ["drafts", "scenes", "shelf"] {
        client.json("DELETE", &format!("/v1/named/{name}"), Value::Null);
    }
    for name in ["scenes", "shelf"] {
        client.json("POST", &format!("/v1/named/{name}"), of("/v1/named/{name}").remove(0).2);
    }
    for (_, _, point) in of("/v1/named/{name}/points") {
        client.json("POST", "/v1/named/scenes/points", point);
    }
}

fn example_path(document: &Value, path: &str, operation: &Value) -> String {
    let mut path = path.to_owned();
    for parameter in operation["parameters"].as_array().into_iter().flatten() {
        let parameter = resolved(document, parameter);
        if parameter["in"] == "path" {
            let value = &parameter["example"];
            let value = value.as_str().map_or_else(|| value.to_string(), str::to_owned);
            path = path.replace(&format!("{{{}}}", parameter["name"].as_str().unwrap()), &value);
        }
    }
    path
}

/// Operations whose answers hold what no example can: sizes, times, what other builds say.
const VARYING: [&str; 9] = [
    "getCollection",
    "getNamed",
    "getMultiVector",
    "listCollections",
    "metrics",
    "metricsV1",
    "openapi",
    "listAliases",
    "listTasks",
];

/// The same but for floats in their last digits and what explains a search.
fn agree(found: &Value, example: &Value) -> bool {
    match (found, example) {
        (Value::Number(a), Value::Number(b)) => {
            let (a, b) = (a.as_f64().unwrap(), b.as_f64().unwrap());
            (a - b).abs() <= 1e-6 * b.abs()
        }
        (Value::Array(a), Value::Array(b)) => a.len() == b.len() && a.iter().zip(b).all(|(a, b)| agree(a, b)),
        (Value::Object(a), Value::Object(b)) => {
            a.len() == b.len()
                && b.iter().all(|(key, b)| a.get(key).is_some_and(|a| key == "explain" || agree(a, b)))
        }
        _ => found == example,
    }
}

#[test]
fn everyone_may_read_it() {
    let server = Server::start(Arc::new(SingleKey::new("secret")), false);
    let mut client = server.client();
    let (status, text) = client.text("GET", "/v1/openapi.json", "");
    assert_eq!((status, text.as_str()), (200, include_str!("../../openapi.json")));
    client.refused("GET", "/v1/collections", "", 401, "unauthorized");
    let answer = client.request("POST", "/v1/openapi.json", JSON, b"");
    assert_eq!((answer.status, answer.header("allow")), (405, Some("GET, HEAD")));
}

/// A store that discards what is written.
struct Forgetful;

impl KeysStore for Forgetful {
    fn replace(&self, _: &[u8]) -> std::io::Result<()> {
        Ok(())
    }
}

/// Operations that need a store of backups, which the server of these tests does not have.
const OF_BACKUPS: [&str; 6] =
    ["backup", "listBackups", "verifyBackup", "restoreBackup", "evictCollection", "restoreCollection"];

#[test]
fn examples_work_as_they_stand() {
    let keys = vec![Key::new(b"root", "*", vec!["*:*".to_owned()], "")];
    let settings = RegistrySettings { isolates_tenants: true, ..RegistrySettings::default() };
    let registry = Registry::new(keys, Box::new(Forgetful), settings).unwrap();
    let server = Server::start(Arc::new(registry), false);
    let mut client = server.client();
    client.token = Some("root".to_owned());
    let document = document(&mut client);
    let mut wrong = Vec::new();
    for (path, methods) in document["paths"].as_object().unwrap() {
        for (method, operation) in methods.as_object().unwrap() {
            let method = method.to_uppercase();
            let path = example_path(&document, path, operation);
            let id = operation["operationId"].as_str().unwrap();
            let mut requests = examples(&operation["requestBody"]["content"]);
            if requests.is_empty() {
                requests.push((JSON.to_owned(), String::new(), Value::Null));
            }
            for (media, name, body) in requests {
                prepare(&document, &mut client);
                if id == "createCollection" {
                    client.json("DELETE", &format!("/v1/collections/{name}"), Value::Null);
                }
                let form = &operation["requestBody"]["content"][&media];
                let bytes = match (&body, media.as_str()) {
                    (Value::Null, _) => Vec::new(),
                    (Value::String(text), BINARY) => text.clone().into_bytes(),
                    (json, _) => {
                        wrong.extend(
                            misfit(&document, &form["schema"], json)
                                .map(|why| format!("{id} {name}: the example is not of its schema{why}")),
                        );
                        json.to_string().into_bytes()
                    }
                };
                let answer = client.request(&method, &path, &media, &bytes);
                let said = format!("{id} {name}: {} {}", answer.status, answer.text());
                let answers = operation["responses"].as_object().unwrap();
                let Some(documented) = answers.get(&answer.status.to_string()) else {
                    wrong.push(format!("{said}: not documented"));
                    continue;
                };
                // Tests of whole servers carry out what needs a store of backups.
                let lacks_store = OF_BACKUPS.contains(&id);
                let success = answers.keys().find(|status| !lacks_store && status.starts_with('2'));
                let expected = success.map_or("412", String::as_str);
                if answer.status.to_string() != expected {
                    wrong.push(format!("{said}: expected {expected}"));
                    continue;
                }
                let content = &resolved(&document, documented)["content"];
                let media = answer.header("content-type").unwrap();
                let Some(form) = content.get(media) else {
                    wrong.push(format!("{said}: {media} is not documented"));
                    continue;
                };
                if media != JSON {
                    continue;
                }
                let found: Value = serde_json::from_str(answer.text()).unwrap();
                wrong.extend(misfit(&document, &form["schema"], &found).map(|why| format!("{said}{why}")));
                if success.is_none() || VARYING.contains(&id) {
                    continue;
                }
                let shown = examples(content);
                let shown =
                    shown.iter().find(|(_, other, _)| name.is_empty() || *other == name).or(shown.first());
                if !shown.is_some_and(|(_, _, shown)| agree(&found, shown)) {
                    wrong.push(format!("{said}: not the answer of the document"));
                }
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn every_body_and_answer_has_examples_of_its_schema() {
    let server = Server::start(Arc::new(Open), false);
    let document = document(&mut server.client());
    let answers = document["components"]["responses"].as_object().unwrap().values();
    let mut contents: Vec<&Value> = answers.map(|answer| &answer["content"]).collect();
    for operation in
        document["paths"].as_object().unwrap().values().flat_map(|path| path.as_object().unwrap().values())
    {
        contents.extend(operation.get("requestBody").map(|body| &body["content"]));
        let answers = operation["responses"].as_object().unwrap().values();
        contents.extend(answers.map(|answer| &resolved(&document, answer)["content"]));
    }
    assert!(contents.len() > 200, "{} bodies and answers", contents.len());
    for content in contents {
        for (media, form) in content.as_object().unwrap() {
            let examples = form["examples"].as_object().unwrap();
            assert!(!examples.is_empty(), "{media} {form}");
            for example in examples.values() {
                assert_eq!(misfit(&document, &form["schema"], &example["value"]), None, "{example}");
            }
        }
    }
    // The schemas refuse what the decoders refuse.
    for (schema, value) in [
        ("Point", json!({"vector": [1], "metadat": {}})),
        ("Point", json!({"vector": [1], "id": -1})),
        ("Filter", json!({"op": "eq", "value": 1})),
        ("Filter", json!({"op": "equals", "field": "a"})),
        ("Filter", json!({"or": []})),
        ("Filter", json!({"op": "not", "not": {"op": "in", "field": "a", "value": 1}})),
        ("Value", json!({"str": "no kind"})),
        ("Value", json!(["a", 1])),
        ("Config", json!({"dim": 0})),
        ("Config", json!({"dim": 2, "m": 1})),
        ("Search", json!({"query": [1]})),
        ("Query", json!({"prefetch": []})),
    ] {
        let schema = json!({"$ref": format!("#/components/schemas/{schema}")});
        assert!(misfit(&document, &schema, &value).is_some(), "{schema} takes {value}");
    }
}
