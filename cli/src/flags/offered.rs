//! Which flags this build can honour. A flag it cannot honour is refused at start, never ignored.
use super::server::ServerFlags;
use clap::Parser;

/// What this build makes of a flag that is set.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Standing {
    /// It acts.
    Works,
    /// It stops the start.
    Refused,
    /// It is warned about.
    WithoutEffect,
}

/// Answers what setting the flag of a name would do.
pub fn standings() -> impl Fn(&str) -> Standing {
    let unset = ServerFlags::parse_from(["nigh"]);
    let (refused, knobs) = (not_offered(&unset), knobs(&unset));
    move |name| {
        if refused.iter().any(|(_, refused, _)| *refused == name) {
            Standing::Refused
        } else if knobs.iter().any(|(_, knob, _)| *knob == name) {
            Standing::WithoutEffect
        } else {
            Standing::Works
        }
    }
}

/// One refused use of a flag, or `None` when every flag given can be honoured.
///
/// A flag counts as used when its value differs from its default.
pub fn refusal(flags: &ServerFlags) -> Option<String> {
    let (_, name, feature) = not_offered(flags).into_iter().find(|(used, ..)| *used)?;
    Some(format!("-{name}: this build does not offer {feature}"))
}

/// Every flag whose feature is missing: whether it is used, its name, the feature.
fn not_offered(flags: &ServerFlags) -> [(bool, &'static str, &'static str); 23] {
    let text = |value: &str| !value.is_empty();
    [
        (text(&flags.tls_node_cert), "tls-node-cert", "clustering"),
        (text(&flags.tls_node_key), "tls-node-key", "clustering"),
        (text(&flags.node_cn_allowlist), "node-cn-allowlist", "clustering"),
        (flags.cluster, "cluster", "clustering"),
        (flags.node_id != "node1", "node-id", "clustering"),
        (flags.raft_addr != "127.0.0.1:7400", "raft-addr", "clustering"),
        (flags.raft_transport != "mux", "raft-transport", "clustering"),
        (flags.bootstrap, "bootstrap", "clustering"),
        (text(&flags.peers), "peers", "clustering"),
        (flags.replication_factor != 0, "replication-factor", "clustering"),
        (flags.nosync, "nosync", "clustering"),
        (flags.volatile_log, "volatile-log", "clustering"),
        (flags.persistent_vectors, "persistent-vectors", "clustering"),
        (flags.replication_mode != "raft", "replication-mode", "clustering"),
        (flags.min_isr != 0, "min-isr", "clustering"),
        (text(&flags.pb_addr), "pb-addr", "clustering"),
        (flags.pb_commit_primary, "pb-commit-primary", "clustering"),
        (!flags.pb_auto_failover, "pb-auto-failover", "clustering"),
        (flags.pb_frontier_stamp_interval.nanos != 0, "pb-frontier-stamp-interval", "clustering"),
        (flags.reconfigure, "reconfigure", "clustering"),
        (flags.restore, "restore", "clustering"),
        (flags.allow_missing_shards, "allow-missing-shards", "clustering"),
        (flags.wasm_blob_retention.nanos != 0, "wasm-blob-retention", "WASM operations"),
    ]
}

/// Flags that were set but cannot act; each deserves one warning at start.
pub fn without_effect(flags: &ServerFlags) -> Vec<String> {
    let set = knobs(flags).into_iter().chain(in_need(flags)).filter(|(set, ..)| *set);
    set.map(|(_, name, reason)| format!("-{name} has no effect: {reason}")).collect()
}

/// Every flag without effect: whether it is set, its name, the reason.
fn knobs(flags: &ServerFlags) -> [(bool, &'static str, &'static str); 3] {
    [
        (flags.epoll_loops != 0, "epoll-loops", "every core has one loop"),
        (flags.in_place_seqlock_reads, "in-place-seqlock-reads", "reads of keys never take a lock"),
        (
            flags.disable_cold_compaction,
            "disable-cold-compaction",
            "no file of keys is compacted when it is opened",
        ),
    ]
}

/// Flags that need another flag, which is not set, or that have no effect beside another flag, which is set.
fn in_need(flags: &ServerFlags) -> [(bool, &'static str, &'static str); 25] {
    let without_keys = flags.keys_file.is_empty();
    let without_jwt = flags.jwt_public_key.is_empty();
    let alone = !flags.relocating_eviction;
    let reason = "it needs -relocating-eviction";
    let without_directory = flags.backup_dir.is_empty();
    let without_bucket = flags.backup_bucket.is_empty();
    let without_target = without_directory && without_bucket;
    let of_bucket = "it needs -backup-bucket";
    let of_target = "it needs -backup-dir or -backup-bucket";
    let of_archive = "it needs -archive";
    let is_periodic = flags.backup_interval.nanos > 0;
    [
        (alone && flags.relocate_reserve_interval.nanos != 50_000_000, "relocate-reserve-interval", reason),
        (alone && flags.sieve_visited_bit, "sieve-visited-bit", reason),
        (!flags.grpc_alias.is_empty() && flags.grpc.is_empty(), "grpc-alias", "it needs -grpc"),
        (!flags.tcp_advertise.is_empty() && flags.tcp.is_empty(), "tcp-advertise", "it needs -tcp"),
        (!without_keys && !flags.api_key.is_empty(), "api-key", "the API keys are those of -keys-file"),
        (without_keys && flags.audit_log, "audit-log", "it needs -keys-file"),
        (
            (without_keys || !flags.audit_log) && !flags.audit_log_file.is_empty(),
            "audit-log-file",
            "it needs -audit-log and -keys-file",
        ),
        (!flags.access_log && !flags.access_log_file.is_empty(), "access-log-file", "it needs -access-log"),
        (without_keys && !flags.jwt_public_key.is_empty(), "jwt-public-key", "it needs -keys-file"),
        (without_jwt && !flags.jwt_issuer.is_empty(), "jwt-issuer", "it needs -jwt-public-key"),
        (without_jwt && !flags.jwt_audience.is_empty(), "jwt-audience", "it needs -jwt-public-key"),
        (without_keys && flags.tenant_isolation, "tenant-isolation", "it needs -keys-file"),
        (without_keys && !flags.internal_token.is_empty(), "internal-token", "it needs -keys-file"),
        (flags.kv_query && flags.tcp.is_empty(), "kv-query", "queries over keys come over -tcp"),
        (without_target && is_periodic, "backup-interval", of_target),
        (without_directory && flags.backup_prefix != "default", "backup-prefix", "it needs -backup-dir"),
        (without_target && flags.backup_retention != 24, "backup-retention", of_target),
        (without_target && flags.backup_rate != 0, "backup-rate", of_target),
        (!flags.archive && flags.archive_interval.nanos != 10_000_000_000, "archive-interval", of_archive),
        (
            !flags.archive && flags.archive_retention.nanos != 604_800_000_000_000,
            "archive-retention",
            of_archive,
        ),
        (!flags.archive && flags.archive_waiting != 4 << 30, "archive-waiting", of_archive),
        (without_bucket && !flags.backup_endpoint.is_empty(), "backup-endpoint", of_bucket),
        (without_bucket && !flags.backup_region.is_empty(), "backup-region", of_bucket),
        (without_bucket && flags.backup_tenant != "default", "backup-tenant", of_bucket),
        (without_bucket && !flags.s3_path_style, "s3-path-style", of_bucket),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory;

    #[test]
    fn every_name_is_a_flag() {
        let unset = ServerFlags::parse_from(["nigh"]);
        let command = ServerFlags::command();
        let all = not_offered(&unset).into_iter().chain(knobs(&unset)).chain(in_need(&unset));
        for (used, name, _) in all {
            assert!(!used, "-{name} counts as used when it is not");
            assert!(command.get_arguments().any(|flag| flag.get_long() == Some(name)), "-{name}");
        }
    }

    #[test]
    fn standings_of_one_flag_each() {
        let standing = standings();
        let found = ["grpc", "cluster", "epoll-loops"].map(&standing);
        assert_eq!(found, [Standing::Works, Standing::Refused, Standing::WithoutEffect]);
    }
}
