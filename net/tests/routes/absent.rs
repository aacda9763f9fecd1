//! Routes about what this build has none of.
use crate::common::server::{SHARED, Server};
use nigh_net::auth::SingleKey;
use std::sync::Arc;

#[test]
fn what_the_node_lacks_is_said_last() {
    let mut client = SHARED.client();
    client.create("whole", 1, "l2");
    client.json("POST", "/v1/aliases", serde_json::json!({"alias": "part", "collection": "whole"}));
    for (route, fragment) in [
        ("evict", "no object store"),
        ("restore", "no object store"),
        ("resplit/cleanup", "not partitioned"),
        ("reshard/abort", "not partitioned"),
    ] {
        for body in ["", "whatever"] {
            client.refused("POST", &format!("/v1/collections/whole/{route}"), body, 412, fragment);
            client.refused("POST", &format!("/v1/collections/default%2Fwhole/{route}"), body, 412, fragment);
            client.refused("POST", &format!("/v1/collections/none/{route}"), body, 404, "unknown collection");
            client.refused("POST", &format!("/v1/collections/a%2Fb%2Fc/{route}"), body, 404, "unknown");
            // They act on collections, never on what an alias stands for.
            client.refused("POST", &format!("/v1/collections/part/{route}"), body, 404, "unknown collection");
        }
    }
    for route in ["resplit", "reshard"] {
        let path = format!("/v1/collections/whole/{route}");
        for partitions in [2, 65_536] {
            let body = format!(r#"{{"new_partitions":{partitions}}}"#);
            client.refused("POST", &path, &body, 412, "not partitioned");
            client.refused(
                "POST",
                &format!("/v1/collections/none/{route}"),
                &body,
                404,
                "unknown collection",
            );
        }
        for (body, fragment) in [
            (r#"{"new_partitions":-1}"#, "between 2 and 65536"),
            (r#"{"new_partitions":0}"#, "between 2 and 65536"),
            (r#"{"new_partitions":1}"#, "between 2 and 65536"),
            (r#"{"new_partitions":65537}"#, "between 2 and 65536"),
            ("{}", "between 2 and 65536"),
            (r#"{"new_partitions":2.0}"#, "invalid JSON body: field \"new_partitions\""),
            (r#"{"partitions":2}"#, "unknown field \"partitions\""),
            ("", "invalid JSON body:"),
        ] {
            client.refused("POST", &path, body, 400, fragment);
        }
    }
    client.refused("POST", "/v1/admin/backup", "", 412, "no object store");
    client.refused("GET", "/v1/admin/backups", "", 412, "no object store");
    client.refused("GET", "/v1/admin/keys", "", 412, "no key registry");
    let key = r#"{"token":"t","tenant":"acme","scopes":["read:acme/*"],"cert_cn":null}"#;
    client.refused("POST", "/v1/admin/keys", key, 412, "no key registry");
    client.refused("DELETE", "/v1/admin/keys", r#"{"token":"t"}"#, 412, "no key registry");
    for (method, body, fragment) in [
        ("POST", r#"{"token":"t"}"#, "tenant is required"),
        ("POST", r#"{"tenant":"t","token":""}"#, "token is required"),
        ("POST", r#"{"token":"t","tenant":"a","scopes":"read"}"#, "field \"scopes\""),
        ("POST", r#"{"token":"t","tenant":"a","scope":[]}"#, "unknown field \"scope\""),
        ("DELETE", "{}", "token is required"),
        ("DELETE", r#"{"token":"t","tenant":"a"}"#, "unknown field \"tenant\""),
        ("DELETE", "", "invalid JSON body:"),
    ] {
        client.refused(method, "/v1/admin/keys", body, 400, fragment);
    }
    for (method, path, allow) in [
        ("GET", "/v1/collections/whole/evict", "POST"),
        ("DELETE", "/v1/collections/whole/reshard/abort", "POST"),
        ("GET", "/v1/admin/backup", "POST"),
        ("DELETE", "/v1/admin/backups", "GET, HEAD"),
        ("PUT", "/v1/admin/keys", "DELETE, GET, HEAD, POST"),
    ] {
        let answer = client.request(method, path, "", b"");
        assert_eq!((answer.status, answer.header("allow")), (405, Some(allow)), "{method} {path}");
    }
}

#[test]
fn strangers_learn_nothing_of_it() {
    let server = Server::start(Arc::new(SingleKey::new("secret")), false);
    let mut client = server.client();
    for (method, path) in [
        ("POST", "/v1/collections/none/evict"),
        ("POST", "/v1/collections/none/reshard"),
        ("POST", "/v1/admin/backup"),
        ("GET", "/v1/admin/backups"),
        ("POST", "/v1/admin/keys"),
        ("GET", "/v1/admin/keys"),
        ("DELETE", "/v1/admin/keys"),
    ] {
        client.token = None;
        client.golden(method, path, "{", 401, r#"{"error":"unauthorized"}"#);
        client.token = Some("Bearer secret".into());
        let status = client.text(method, path, "{").0;
        assert!([400, 404, 412].contains(&status), "{method} {path}: {status}");
    }
}
