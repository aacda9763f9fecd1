//! Sparse and full-text lanes, and everything that fuses them.
use super::{Client, SHARED};
use serde_json::json;

fn gauge(client: &mut Client, name: &str, collection: &str) -> u64 {
    let page = client.request("GET", "/metrics", "", b"");
    let start = format!("svc_vector_{name}{{collection=\"default/{collection}\"}} ");
    let line = page.text().lines().find_map(|line| line.strip_prefix(&start)).map(str::to_owned);
    line.unwrap().parse().unwrap()
}

#[test]
fn sparse_vectors_are_written_read_and_replaced() {
    let mut client = SHARED.client();
    client.create("sparse", 2, "l2");
    let points = "/v1/collections/sparse/points";
    let sparse = json!({"indices": [2, 4294967295u32], "values": [0.5, -1]});
    client.json("POST", points, json!({"id": 1, "vector": [1, 2], "sparse": sparse, "content": "c"}));
    client.golden(
        "GET",
        &format!("{points}/1"),
        "",
        200,
        r#"{"found":true,"vector":[1.0,2.0],"payload":{"$content":{"kind":"string","str":"c"}},"ttl_ms":0,"version":1,"sparse":{"indices":[2,4294967295],"values":[0.5,-1.0]}}"#,
    );
    let read = client.json("GET", &format!("{points}/1?with_payload=0"), json!(null));
    assert_eq!((&read["payload"], &read["sparse"]["indices"][0]), (&json!(null), &json!(2)));
    let read = client.json("GET", &format!("{points}/1?with_vector=0"), json!(null));
    assert_eq!((read.get("sparse"), &read["vector"]), (None, &json!(null)));

    let batch = json!({"upsert": true, "points": [
        {"id": 1, "vector": [1, 2]},
        {"id": 2, "vector": [1, 2], "sparse": {"indices": [7], "values": [1]}},
        {"id": 3, "vector": [1, 2], "sparse": {}},
    ]});
    client.json("POST", &format!("{points}/batch"), batch);
    let read = client.json("POST", &format!("{points}/batch-get"), json!({"ids": [1, 2, 3]}));
    let with_sparse: Vec<bool> =
        read["points"].as_array().unwrap().iter().map(|point| point.get("sparse").is_some()).collect();
    assert_eq!(with_sparse, [false, true, false], "an upsert replaces the whole point");
    assert_eq!(read["points"][1]["payload"], json!(null));
    assert_eq!(gauge(&mut client, "sparse_vectors", "sparse"), 1);
    client.json("DELETE", &format!("{points}/2"), json!(null));
    assert_eq!(gauge(&mut client, "sparse_vectors", "sparse"), 0);

    for (body, fragment) in [
        (r#"{"id":9,"vector":[1,2],"sparse":{"indices":[1,1],"values":[1,1]}}"#, "strictly ascending"),
        (r#"{"id":9,"vector":[1,2],"sparse":{"indices":[1]}}"#, "1 indices but 0 values"),
        (r#"{"id":9,"vector":[1,2],"sparse":{"dims":[1]}}"#, "unknown field \"dims\""),
    ] {
        client.refused("POST", points, body, 400, fragment);
        let batch = format!("{{\"points\":[{body}]}}");
        client.refused("POST", &format!("{points}/batch"), &batch, 400, fragment);
        client.refused("POST", &format!("{points}/bulk"), &batch, 400, "sparse");
    }
    client.golden("GET", &format!("{points}/9"), "", 404, r#"{"error":"point not found: id 9"}"#);
}
