//! Health, and creating and dropping collections.

use super::wire::{Wire, server};
use nigh_tests::{Access, in_every_mode};
use serde_json::Value;

in_every_mode!(
    health_is_a_word,
    creating_reads_the_status_and_adapters_swallow_exist,
    every_spelling_of_a_create_is_understood,
);

fn health_is_a_word(access: &Access) {
    let server = server(access);
    let mut wire = Wire::connect(access, &server);
    assert_eq!(wire.ok("GET", "/v1/health", "")["status"], "ok");
    // Probes come without a key, a certificate and headers.
    let mut wire = Wire::connect_as_stranger(access, &server);
    wire.send("GET /v1/health HTTP/1.1\r\nHost: x\r\n\r\n");
    assert_eq!(wire.answer().text(), "{\"status\":\"ok\"}\n");
    wire.send("GET /v1/ready HTTP/1.1\r\nHost: x\r\n\r\n");
    assert_eq!(wire.answer().text(), "{\"status\":\"ready\"}\n");
}

fn creating_reads_the_status_and_adapters_swallow_exist(access: &Access) {
    let server = server(access);
    let mut wire = Wire::connect(access, &server);
    let create = r#"{"name": "docs", "config": {"dim": 3, "metric": "cosine", "m": 16, "ef_construction": 200, "ef_search": 64, "seed": 0, "quant": "", "persistent": false, "rescore_factor": 3}}"#;
    wire.exact("POST", "/v1/collections", create, 201, r#"{"name":"docs"}"#);
    let (status, error) = wire.json("POST", "/v1/collections", create).refused();
    assert_eq!(status, 409);
    assert!(error.to_lowercase().contains("exist"), "{error}");
    assert!(error.contains("already exists"), "{error}");
    // The framework adapters create on every start and go on as if they had.
    let adapter = |wire: &mut Wire, body: &str| match wire.json("POST", "/v1/collections", body).read() {
        Err(error) if error.to_lowercase().contains("exist") => Ok(()),
        other => other.map(drop),
    };
    assert_eq!(adapter(&mut wire, create), Ok(()));
    assert_eq!(adapter(&mut wire, &create.replace("docs", "default/docs")), Ok(()));
    assert!(adapter(&mut wire, &create.replace("\"dim\": 3", "\"dim\": 0")).is_err());
    let points = "/v1/collections/docs/points";
    wire.exact("POST", points, r#"{"id": 1, "vector": [1, 2, 2]}"#, 200, r#"{"id":1}"#);

    // Clients look at the status alone; whether there was one is said beside.
    wire.exact("DELETE", "/v1/collections/docs", "", 200, r#"{"dropped":"docs","existed":true}"#);
    wire.exact("DELETE", "/v1/collections/docs", "", 200, r#"{"dropped":"docs","existed":false}"#);
    assert_eq!(wire.json("POST", points, r#"{"id": 1, "vector": [1, 2, 2]}"#).refused().0, 404);
    wire.exact("POST", "/v1/collections", create, 201, r#"{"name":"docs"}"#);
}

fn every_spelling_of_a_create_is_understood(access: &Access) {
    let server = server(access);
    let mut wire = Wire::connect(access, &server);
    for (index, config) in [
        r#"{"dim": 2}"#,
        r#"{"dim": 2, "metric": ""}"#,
        r#"{"dim": 2, "metric": "euclidean"}"#,
        r#"{"dim": 2, "metric": "dotproduct"}"#,
        r#"{"dim": 2, "metric": "ip", "m": 0, "ef_construction": 0, "ef_search": 0, "rescore_factor": 0}"#,
        r#"{"dim": 2, "metric": null, "quant": "none", "index_type": "hnsw", "full_text": null}"#,
        r#"{"dim": 2, "quant": "sq8", "rescore_factor": 5, "quantized_build": true}"#,
        r#"{"dim": 8, "quant": "bq1", "rescore_factor": 10, "quantized_build": true}"#,
        r#"{"dim": 8, "quant": "sq", "sq_bits": 4}"#,
        r#"{"dim": 8, "quant": "pq", "quant_pq_m": 4, "pq_nbits": 4, "opq": true, "ivf_train_threshold": 256}"#,
        r#"{"dim": 8, "quant": "prq", "prq_layers": 3, "opq": true, "opq_iters": 2}"#,
        r#"{"dim": 8, "index_type": "vamana", "vamana_r": 32, "vamana_l": 64, "vamana_alpha": 1.2}"#,
        r#"{"dim": 8, "index_type": "diskann", "quant": "sq"}"#,
        r#"{"dim": 8, "index_type": "ivf", "ivf_nlist": 4, "ivf_nprobe": 2}"#,
        r#"{"dim": 2, "full_text": {}}"#,
        r#"{"dim": 2, "full_text": {"analyzer": "english", "k1": 1.2, "b": 0.75}}"#,
        r#"{"dim": 2, "extend_candidates": true, "level0_full_degree": true, "filter_first_relative_bp": 100}"#,
        r#"{"DIM": 2}"#,
    ]
    .into_iter()
    .enumerate()
    {
        let body = format!(r#"{{"name": "c{index}", "config": {config}}}"#);
        let answer = wire.json("POST", "/v1/collections", &body);
        // Keys in another case are an option of the interface; refused ones are refused as any unknown key.
        if config.contains("DIM") && answer.status == 400 {
            assert!(answer.refused().1.starts_with("invalid JSON body:"), "{config}");
        } else {
            assert_eq!((answer.status, answer.ok()["name"].clone()), (201, Value::from(format!("c{index}"))));
        }
    }
}
