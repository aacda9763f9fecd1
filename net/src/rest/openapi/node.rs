//! Operations of the node: health, metrics, this document, backups, keys.

use super::operation::{Operation, operation};
use super::schema::{answer, array, integer, string};
use crate::auth::key_limits::{BYTES_PER_SECOND_MAX, CONNECTIONS_MAX, REQUESTS_PER_SECOND_MAX};
use serde_json::json;

/// The rows of the table.
pub fn operations() -> Vec<Operation> {
    let page = |path: &'static str, id: &'static str, summary: &'static str, start: &'static str| {
        operation("GET", path, id, "node", summary).answer_as(
            200,
            "Prometheus text.",
            "text/plain; version=0.0.4; charset=utf-8",
            &json!({"type": "string"}),
            &[("start", json!(start))],
        )
    };
    let limit = |most: u64| integer(1, most as i64);
    let listed = answer(
        &["requests_per_second", "bytes_per_second", "connections"],
        json!({"fingerprint": string(), "tenant": string(), "scopes": array(string()), "cert_cn": string(),
            "requests_per_second": limit(REQUESTS_PER_SECOND_MAX),
            "bytes_per_second": limit(BYTES_PER_SECOND_MAX),
            "connections": limit(CONNECTIONS_MAX)}),
    );
    let backed_up = answer(
        &["key", "error"],
        json!({"collection": string(), "key": string(), "size": integer(0, i64::MAX), "error": string()}),
    );
    let part = answer(
        &["key", "keys", "error"],
        json!({"part": {"enum": ["aliases", "key-indexes", "api-keys", "keys"]}, "key": string(), "size": integer(0, i64::MAX), "keys": integer(0, i64::MAX), "error": string()}),
    );
    let object = answer(
        &[],
        json!({"key": string(), "size": integer(0, i64::MAX), "last_modified": {"type": "string", "format": "date-time"}}),
    );
    let keys = json!({"keys": [
        {"fingerprint": "4813494d137e1631", "tenant": "*", "scopes": ["*:*"], "cert_cn": ""},
        {"fingerprint": "1ec1c26b50d5d3c5", "tenant": "acme", "scopes": ["read:acme/*"], "cert_cn": "",
            "requests_per_second": 100},
    ]});
    let metrics = |path: &'static str, id: &'static str| {
        page(path, id, "Figures for Prometheus", "# TYPE svc_vector_size gauge\n")
    };
    let kv_metrics = |path: &'static str, id: &'static str| {
        page(path, id, "Those of keys and values alone", "# TYPE svc_kv_gets_total counter\n")
    };
    let status = |word: &str| answer(&[], json!({"status": {"const": word}}));
    vec![
        operation("GET", "/v1/health", "health", "node", "Whether the process answers").answer(
            200,
            "It does.",
            &status("ok"),
            &[("ok", json!({"status": "ok"}))],
        ),
        operation("GET", "/v1/ready", "ready", "node", "Whether requests are served")
            .about("A node is ready as soon as it listens, unless the log of a core has failed (writes are refused until a restart), the disk is full (writes that need room are refused until there is room; reads, deletes and drops go on), or a collection or the keys are damaged, or a collection did not fit into memory. `detail` says which.")
            .answer(200, "They are.", &status("ready"), &[("ready", json!({"status": "ready"}))])
            .answer(
                503,
                "They are not; `detail` says why.",
                &answer(&[], json!({"status": {"const": "not ready"}, "detail": {"type": "string"}})),
                &[(
                    "log",
                    json!({"status": "not ready", "detail": "the log has failed, and writes are refused until a restart: core 1: syncing segment 4: Input/output error"}),
                )],
            ),
        operation("GET", "/v1/replication", "replication", "node", "How far replicas are")
            .about("One node has no shards that are replicated.")
            .answer(
                200,
                "Replicated shards.",
                &answer(&[], json!({"shards": array(json!({"type": "object"}))})),
                &[("none", json!({"shards": []}))],
            ),
        operation("GET", "/v1/openapi.json", "openapi", "node", "This document").answer(
            200,
            "OpenAPI 3.1.",
            &json!({"type": "object", "required": ["openapi", "info", "paths"]}),
            &[("start", json!({"openapi": "3.1.0", "info": {}, "paths": {}}))],
        ),
        metrics("/metrics", "metrics"),
        metrics("/v1/metrics", "metricsV1"),
        kv_metrics("/kv-metrics", "kvMetrics"),
        kv_metrics("/v1/kv-metrics", "kvMetricsV1"),
        operation("POST", "/v1/admin/backup", "backup", "node", "Snapshot every collection")
            .about(
                "Needs a server with `-backup-bucket` or `-backup-dir`. Answers when all snapshots are stored. What failed has an `error`, and all errors \
                 together are that of the answer.",
            )
            .answer(
                200,
                "What was done with each collection, and with aliases, definitions of key indexes, API keys and keys if there are any.",
                &answer(&["parts", "error"], json!({"backups": array(backed_up), "parts": array(part), "error": string()})),
                &[("docs", json!({"backups": [{"collection": "docs", "key": "default/default%2Fdocs/2025-01-31T10:00:00Z.snap", "size": 65536}]}))],
            )
            .errors(&[412]),
        operation("GET", "/v1/admin/backups", "listBackups", "node", "List snapshots")
            .about("Needs a server with `-backup-bucket` or `-backup-dir`. Lists snapshots and their configurations, in the order of their keys.")
            .answer(
                200,
                "The objects.",
                &answer(&[], json!({"backups": array(object)})),
                &[("docs", json!({"backups": [{"key": "default/default%2Fdocs/2025-01-31T10:00:00Z.snap", "size": 412, "last_modified": "2025-01-31T10:00:01Z"}]}))],
            )
            .errors(&[412, 429]),
        operation("POST", "/v1/admin/backups/verify", "verifyBackup", "node", "Read a snapshot through")
            .about(
                "Needs a server with `-backup-bucket` or `-backup-dir`. Checks that every byte of the snapshot is there and is what was stored; restores \
                 nothing.",
            )
            .body("Verify", &[("newest", json!({"collection": "docs"})), ("aliases", json!({"part": "aliases"}))])
            .answer(
                200,
                "The snapshot is whole.",
                &answer(&["keys"], json!({"verified": {"const": true}, "key": string(), "size": integer(0, i64::MAX), "keys": integer(0, i64::MAX)})),
                &[
                    ("newest", json!({"verified": true, "key": "default/default%2Fdocs/2025-01-31T10:00:00Z.snap", "size": 65536})),
                    ("keys", json!({"verified": true, "key": "default/keys/2025-01-31T10:00:00Z.snap", "size": 65536, "keys": 1200})),
                ],
            )
            .errors(&[404, 412]),
        operation("POST", "/v1/admin/backups/restore", "restoreBackup", "node", "Restore a collection, the aliases, the definitions of key indexes, the API keys or the keys from a snapshot")
            .about(
                "Needs a server with `-backup-bucket` or `-backup-dir`. Takes the newest snapshot of `collection`, or that of the run at `time`, into the \
                 collection `into`, or of the same name. What has that name serves until the snapshot is restored and opened, and is replaced then; if anything \
                 fails, it stays. With `part` instead of `collection`, all aliases, all definitions of key indexes, all API keys, or all keys, are replaced by those of the snapshot. API keys \
                 are restored by a sender alone who has the right `admin` on everything by those of the snapshot as well (409), and by a server with `-keys-file`. \
                 While keys are being replaced, operations on keys are answered with 503; if anything fails, the keys from before are served again.",
            )
            .body("Restore", &[("newest", json!({"collection": "docs"})), ("beside", json!({"collection": "docs", "time": "2025-01-31T10:00:00Z", "into": "docs-january"})), ("aliases", json!({"part": "aliases"}))])
            .answer(
                200,
                "The collection serves.",
                &answer(&[], json!({"restored": string(), "key": string(), "size": integer(0, i64::MAX), "replaced": {"type": "boolean"}})),
                &[("newest", json!({"restored": "docs", "key": "default/default%2Fdocs/2025-01-31T10:00:00Z.snap", "size": 65536, "replaced": true}))],
            )
            .errors(&[404, 409, 412, 507]),
        operation("POST", "/v1/admin/keys", "addKey", "node", "Add an API key")
            .about("Needs a server with `-keys-file`. A limit that is 0 or absent limits nothing.")
            .body(
                "NewKey",
                &[("reader", json!({"token": "s3cret", "tenant": "acme", "scopes": ["read:acme/*"], "requests_per_second": 100}))],
            )
            .answer(201, "Durable, and counts at once.", &answer(&[], json!({"added": {"const": true}})), &[("reader", json!({"added": true}))])
            .errors(&[409, 412, 507]),
        operation("GET", "/v1/admin/keys", "listKeys", "node", "List API keys by their fingerprints")
            .about("Needs a server with `-keys-file`.")
            .answer(200, "Without their tokens.", &answer(&[], json!({"keys": array(listed.clone())})), &[("two", keys)])
            .errors(&[412]),
        operation("DELETE", "/v1/admin/keys", "revokeKey", "node", "Revoke an API key")
            .about("Needs a server with `-keys-file`. The token is in the body, never in a path.")
            .body("KeyToken", &[("one", json!({"token": "s3cret"}))])
            .answer(200, "Refused from the next request on.", &answer(&[], json!({"revoked": {"const": true}})), &[("one", json!({"revoked": true}))])
            .errors(&[404, 412, 507]),
    ]
}
