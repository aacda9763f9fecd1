//! Aliases.
use crate::common::server::SHARED;
use serde_json::{Value, json};

#[test]
fn aliases_stand_for_collections_on_data_routes() {
    let mut client = SHARED.client();
    client.create("blue", 1, "l2");
    client.create("green", 1, "l2");
    client.json("POST", "/v1/collections/blue/points", json!({"id": 1, "vector": [1]}));
    client.golden(
        "POST",
        "/v1/aliases",
        r#"{"alias":"shop","collection":"blue"}"#,
        201,
        r#"{"alias":"shop","collection":"blue"}"#,
    );
    let listed = r#"{"aliases":[{"alias":"shop","collection":"blue"}]}"#;
    client.golden("GET", "/v1/aliases?collection=blue", "", 200, listed);
    client.golden("GET", "/v1/aliases?collection=default%2Fblue", "", 200, listed);
    client.golden("GET", "/v1/aliases?collection=green", "", 200, r#"{"aliases":[]}"#);
    assert!(!client.json("GET", "/v1/aliases", Value::Null)["aliases"].as_array().unwrap().is_empty());

    // Every data route: writes, reads, searches, payloads, staging, scrolls.
    client.json("POST", "/v1/collections/shop/points", json!({"id": 2, "vector": [2]}));
    client.json(
        "POST",
        "/v1/collections/default%2Fshop/points/batch",
        json!({"points": [{"id": 3, "vector": [3]}]}),
    );
    client.json("POST", "/v1/collections/shop/points/3/payload", json!({"a": 1}));
    let count = |client: &mut crate::common::server::Client, name: &str| {
        let path = format!("/v1/collections/{name}/points/scroll");
        client.json("POST", &path, json!({}))["documents"].as_array().unwrap().len()
    };
    assert_eq!(
        (count(&mut client, "shop"), count(&mut client, "blue"), count(&mut client, "green")),
        (3, 3, 0)
    );
    assert_eq!(client.json("GET", "/v1/collections/shop/points/3", Value::Null)["version"], 2);
    let near = client.json("POST", "/v1/collections/shop/points/search", json!({"query": [3], "k": 1}));
    assert_eq!(near["results"][0]["id"], 3);
    client.golden("DELETE", "/v1/collections/shop/points/1", "", 200, r#"{"deleted":true}"#);

    // Not on routes about collections themselves.
    client.golden("DELETE", "/v1/collections/shop", "", 200, r#"{"dropped":"shop","existed":false}"#);
    assert_eq!(count(&mut client, "blue"), 2, "the collection is still there");
    client.refused("POST", "/v1/collections", r#"{"name":"shop","config":{"dim":1}}"#, 409, "exist");

    // Pointed elsewhere.
    client.golden(
        "POST",
        "/v1/aliases/batch",
        r#"{"actions":[{"create":{"alias":"shop","collection":"green"}},{"create":{"alias":"old","collection":"blue"}},{"delete":{"alias":"none"}}]}"#,
        200,
        r#"{"applied":3,"absent":["none"]}"#,
    );
    assert_eq!(count(&mut client, "shop"), 0);
    assert_eq!(count(&mut client, "old"), 2);
    // A batch with anything wrong changes nothing.
    client.refused(
        "POST",
        "/v1/aliases/batch",
        r#"{"actions":[{"delete":{"alias":"old"}},{"create":{"alias":"x","collection":"nowhere"}}]}"#,
        400,
        "no collection",
    );
    assert_eq!(count(&mut client, "old"), 2);
    for (body, fragment) in [
        (r#"{"alias":"x"}"#, "collection is required"),
        (r#"{"collection":"blue"}"#, "alias is required"),
        (r#"{"alias":"x","collection":"nowhere"}"#, "no collection \"nowhere\""),
        (r#"{"alias":"x","collection":"shop"}"#, "itself an alias"),
        (r#"{"alias":"x","collection":"x"}"#, "itself an alias"),
        (r#"{"alias":"green","collection":"blue"}"#, "is a collection"),
        (r#"{"alias":"a#b","collection":"blue"}"#, "reserved"),
        (r#"{"alias":"a@b","collection":"blue"}"#, "reserved"),
        (r#"{"alias":"a/b/c","collection":"blue"}"#, "invalid"),
        // Whether another tenant has such a collection is not said.
        (r#"{"alias":"acme/old","collection":"blue"}"#, "belong to different tenants"),
        (r#"{"alias":"acme/old","collection":"nowhere"}"#, "belong to different tenants"),
        (r#"{"alias":"x","collection":"acme/blue"}"#, "belong to different tenants"),
        (r#"{"alias":"x","target":"blue"}"#, "unknown field"),
        ("", "invalid JSON body:"),
        (&format!(r#"{{"alias":"{}","collection":"blue"}}"#, "x".repeat(248)), "name too long"),
    ] {
        client.refused("POST", "/v1/aliases", body, 400, fragment);
    }
    client.golden(
        "DELETE",
        "/v1/aliases/default%2Fold",
        "",
        200,
        r#"{"deleted":"default/old","existed":true}"#,
    );
    client.golden("DELETE", "/v1/aliases/old", "", 200, r#"{"deleted":"old","existed":false}"#);
    client.refused("POST", "/v1/collections/old/points/scroll", "{}", 404, "unknown collection");
    // The target goes with its aliases, whose names are free then, and comes again without them.
    client.golden("DELETE", "/v1/collections/green", "", 200, r#"{"dropped":"green","existed":true}"#);
    client.golden("GET", "/v1/aliases?collection=green", "", 200, r#"{"aliases":[]}"#);
    client.create("green", 1, "l2");
    client.refused("POST", "/v1/collections/shop/points/scroll", "{}", 404, "unknown collection");
    client.golden("DELETE", "/v1/aliases/shop", "", 200, r#"{"deleted":"shop","existed":false}"#);
    client.create("shop", 1, "l2");
    assert_eq!(count(&mut client, "shop"), 0);
    for (method, path, allow) in [
        ("PUT", "/v1/aliases", "GET, HEAD, POST"),
        ("GET", "/v1/aliases/shop", "DELETE"),
        ("GET", "/v1/aliases/batch", "DELETE, POST"),
    ] {
        let answer = client.request(method, path, "", b"");
        assert_eq!((answer.status, answer.header("allow")), (405, Some(allow)), "{method} {path}");
    }
}
