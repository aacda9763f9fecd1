//! The table of the server's flags: names, types, defaults, groups and descriptions, in one place.
use super::values::{
    Confine, Span, WalSync, parse_bool, parse_confine, parse_int, parse_metrics_prefix, parse_rate,
    parse_span, parse_wal_sync,
};
use clap::{ArgAction, Parser};

/// Every flag of the server. The first sentence of a description is the short help.
#[derive(Clone, Debug, Parser)]
#[command(name = "nigh", disable_help_flag = true, disable_version_flag = true, args_override_self = true)]
#[command(arg_required_else_help = false)]
pub struct ServerFlags {
    /// REST/JSON listen address; empty turns it off.
    #[arg(long, value_name = "addr", default_value = ":8080", help_heading = "Transports")]
    pub http: String,
    /// gRPC listen address; empty is off.
    #[arg(long, value_name = "addr", default_value = "", help_heading = "Transports")]
    pub grpc: String,
    /// A second package under which gRPC serves its methods, for clients with stubs of another package.
    ///
    /// The methods of svc.v1.VectorService are then also those of the service of that name in this package.
    #[arg(long, value_name = "package", default_value = "", help_heading = "Transports")]
    pub grpc_alias: String,
    /// Binary TCP listen address; empty is off.
    #[arg(long, value_name = "addr", default_value = "", help_heading = "Transports")]
    pub tcp: String,
    /// Address that clients of the binary TCP protocol are told, host:port; empty is that of -tcp if it names a host.
    ///
    /// Clients that ask for the topology send every request to this address. It is needed where they reach the server by
    /// another address than the one that it listens on, as behind a proxy or a mapped port. Without an address they keep to those
    /// that they were configured with.
    #[arg(long, value_name = "addr", default_value = "", help_heading = "Transports")]
    pub tcp_advertise: String,
    /// Serve TCP from the core's readiness loop; off means from its completion ring.
    #[arg(long, value_parser = parse_bool, action = ArgAction::Set, default_value = "true", help_heading = "Transports")]
    pub epoll: bool,
    /// Readiness loops; 0 is one per core.
    #[arg(long, value_name = "n", value_parser = parse_int, default_value = "0", help_heading = "Transports")]
    pub epoll_loops: i64,

    /// JSON file with {"cache":{"max_memory":"8GiB"}}.
    ///
    /// max_memory is the budget of keys and values of the whole process. When they reach it, expired keys are removed
    /// first, then the keys that were written first. Without max_memory the budget is a quarter of the smaller of the
    /// machine's memory and the container's limit.
    #[arg(long, value_name = "path", default_value = "", help_heading = "Storage")]
    pub config: String,
    /// Data directory; empty keeps everything in memory.
    ///
    /// With a data directory an acknowledged write survives kill -9 and, with -wal-sync always, power loss. Without
    /// one nothing survives the process.
    #[arg(long, value_name = "dir", default_value = "", help_heading = "Storage")]
    pub data: String,
    /// Number of shards, a power of two; 0 is 256.
    ///
    /// May change from start to start: a data directory opens with any number of shards and cores.
    #[arg(long, value_name = "n", value_parser = parse_int, default_value = "0", help_heading = "Storage")]
    pub shards: i64,
    /// How often expired data is removed; 0 is off.
    ///
    /// Expired data is invisible at once in any case; the removal frees its memory.
    #[arg(long, value_name = "duration", value_parser = parse_span, default_value = "30s", help_heading = "Storage")]
    pub ttl_sweep_interval: Span,
    /// When an acknowledged write is on disk: always, interval[:ms] or none.
    ///
    /// With always, a write is synced to the device before it is answered. With interval, it is written at once and
    /// synced every so many milliseconds (1000 when not given), so a power loss may lose the writes of that time. With
    /// none, the server never syncs. In no mode does a kill of the process alone lose an acknowledged write.
    #[arg(long, value_name = "mode", value_parser = parse_wal_sync, default_value = "always", help_heading = "Storage")]
    pub wal_sync: WalSync,
    /// Cores to use; 0 is all that the process may use.
    #[arg(long, value_name = "n", value_parser = parse_int, default_value = "0", help_heading = "Storage")]
    pub cores: i64,
    /// Key-value cache: move records during eviction.
    ///
    /// When the page that was written first is emptied, its live records, up to half a page of them, are copied into
    /// the page being written. Without this flag all of them are evicted.
    #[arg(long, value_parser = parse_bool, action = ArgAction::Set, default_value = "false", help_heading = "Storage")]
    pub relocating_eviction: bool,
    /// Key-value cache: how often the reserve for relocation is refilled.
    ///
    /// It has an effect only with -relocating-eviction. The reserve is up to two free pages per shard, which a background
    /// task makes by copying live records together; 0 keeps none.
    #[arg(long, value_name = "duration", value_parser = parse_span, default_value = "50ms", help_heading = "Storage")]
    pub relocate_reserve_interval: Span,
    /// Key-value cache: update values of equal size in place.
    ///
    /// A new value of the same length overwrites the old one in place, instead of being appended.
    #[arg(long, value_parser = parse_bool, action = ArgAction::Set, default_value = "false", help_heading = "Storage")]
    pub in_place_same_size_update: bool,
    /// Key-value cache: read in-place values under a sequence number.
    #[arg(long, value_parser = parse_bool, action = ArgAction::Set, default_value = "false", help_heading = "Storage")]
    pub in_place_seqlock_reads: bool,
    /// Key-value cache: keep a visited bit per record.
    ///
    /// It has an effect only with -relocating-eviction. Only records that were read or rewritten since they were last
    /// copied are copied again; the others are evicted.
    #[arg(long, value_parser = parse_bool, action = ArgAction::Set, default_value = "false", help_heading = "Storage")]
    pub sieve_visited_bit: bool,
    /// Key-value cache: serve queries over keys, and keep the indexes they define.
    ///
    /// The operations over TCP are kv_query, __kv_index_set__ and __kv_index_list__. A quarter of the budget of keys is
    /// then for indexes.
    #[arg(long, value_parser = parse_bool, action = ArgAction::Set, default_value = "false", help_heading = "Storage")]
    pub kv_query: bool,
    /// Skip the reclaiming rewrite of page files at open.
    #[arg(long, value_parser = parse_bool, action = ArgAction::Set, default_value = "false", help_heading = "Storage")]
    pub disable_cold_compaction: bool,

    /// One API key that grants every right; prefer SVC_API_KEY, which wins.
    #[arg(long, value_name = "secret", default_value = "", help_heading = "Authentication")]
    pub api_key: String,
    /// Credential between nodes; prefer SVC_INTERNAL_TOKEN, which wins.
    #[arg(long, value_name = "secret", default_value = "", help_heading = "Authentication")]
    pub internal_token: String,
    /// File of API keys, each with a tenant and scopes.
    #[arg(long, value_name = "path", default_value = "", help_heading = "Authentication")]
    pub keys_file: String,
    /// Log every authorization decision.
    #[arg(long, value_parser = parse_bool, action = ArgAction::Set, default_value = "false", help_heading = "Authentication")]
    pub audit_log: bool,
    /// An API key reaches the collections of its tenant only.
    #[arg(long, value_parser = parse_bool, action = ArgAction::Set, default_value = "false", help_heading = "Authentication")]
    pub tenant_isolation: bool,
    /// Public key that verifies the signatures of JSON Web Tokens.
    #[arg(long, value_name = "path", default_value = "", help_heading = "Authentication")]
    pub jwt_public_key: String,
    /// Issuer that a JSON Web Token must name.
    #[arg(long, value_name = "text", default_value = "", help_heading = "Authentication")]
    pub jwt_issuer: String,
    /// Audience that a JSON Web Token must name.
    #[arg(long, value_name = "text", default_value = "", help_heading = "Authentication")]
    pub jwt_audience: String,
    /// Permit a server without authentication on a reachable address.
    #[arg(long, value_parser = parse_bool, action = ArgAction::Set, default_value = "false", help_heading = "Authentication")]
    pub insecure: bool,

    /// Certificate chain, PEM.
    #[arg(long, value_name = "path", default_value = "", help_heading = "TLS")]
    pub tls_cert: String,
    /// Private key, PEM.
    #[arg(long, value_name = "path", default_value = "", help_heading = "TLS")]
    pub tls_key: String,
    /// Authorities for client certificates, PEM.
    #[arg(long, value_name = "path", default_value = "", help_heading = "TLS")]
    pub tls_ca: String,
    /// Refuse clients without a valid certificate.
    #[arg(long, value_parser = parse_bool, action = ArgAction::Set, default_value = "false", help_heading = "TLS")]
    pub tls_require_client_cert: bool,
    /// Certificate shown to peers; empty is -tls-cert.
    #[arg(long, value_name = "path", default_value = "", help_heading = "TLS")]
    pub tls_node_cert: String,
    /// Private key of -tls-node-cert; empty is -tls-key.
    #[arg(long, value_name = "path", default_value = "", help_heading = "TLS")]
    pub tls_node_key: String,
    /// Common names accepted from peers, separated by commas.
    #[arg(long, value_name = "names", default_value = "", help_heading = "TLS")]
    pub node_cn_allowlist: String,

    /// Run as a node of a cluster.
    #[arg(long, value_parser = parse_bool, action = ArgAction::Set, default_value = "false", help_heading = "Clustering")]
    pub cluster: bool,
    /// Name of this node.
    #[arg(long, value_name = "text", default_value = "node1", help_heading = "Clustering")]
    pub node_id: String,
    /// Raft listen address.
    #[arg(long, value_name = "addr", default_value = "127.0.0.1:7400", help_heading = "Clustering")]
    pub raft_addr: String,
    /// Raft transport: mux or fabric.
    #[arg(long, value_name = "name", default_value = "mux", help_heading = "Clustering")]
    pub raft_transport: String,
    /// First start of a new cluster.
    #[arg(long, value_parser = parse_bool, action = ArgAction::Set, default_value = "false", help_heading = "Clustering")]
    pub bootstrap: bool,
    /// Members: id@raft@server[@pb], separated by commas; empty is this node.
    #[arg(long, value_name = "list", default_value = "", help_heading = "Clustering")]
    pub peers: String,
    /// Copies of each shard; 0 is all peers.
    #[arg(long, value_name = "n", value_parser = parse_int, default_value = "0", help_heading = "Clustering")]
    pub replication_factor: i64,
    /// Raft log without sync.
    #[arg(long, value_parser = parse_bool, action = ArgAction::Set, default_value = "false", help_heading = "Clustering")]
    pub nosync: bool,
    /// Raft log in memory.
    #[arg(long, value_parser = parse_bool, action = ArgAction::Set, default_value = "false", help_heading = "Clustering")]
    pub volatile_log: bool,
    /// Keep vectors in mapped files on cluster nodes.
    #[arg(long, value_parser = parse_bool, action = ArgAction::Set, default_value = "false", help_heading = "Clustering")]
    pub persistent_vectors: bool,
    /// Replication: raft or pb (primary and backups).
    #[arg(long, value_name = "mode", default_value = "raft", help_heading = "Clustering")]
    pub replication_mode: String,
    /// In-sync replicas a write needs in pb mode.
    #[arg(long, value_name = "n", value_parser = parse_int, default_value = "0", help_heading = "Clustering")]
    pub min_isr: i64,
    /// Listen address of pb replication.
    #[arg(long, value_name = "addr", default_value = "", help_heading = "Clustering")]
    pub pb_addr: String,
    /// Commit at the primary before the backups answer.
    #[arg(long, value_parser = parse_bool, action = ArgAction::Set, default_value = "false", help_heading = "Clustering")]
    pub pb_commit_primary: bool,
    /// Elect a new primary when one fails.
    #[arg(long, value_parser = parse_bool, action = ArgAction::Set, default_value = "true", help_heading = "Clustering")]
    pub pb_auto_failover: bool,
    /// How often a pb primary stamps its frontier; 0 is 100ms.
    #[arg(long, value_name = "duration", value_parser = parse_span, default_value = "0", help_heading = "Clustering")]
    pub pb_frontier_stamp_interval: Span,
    /// Send the new membership to a running cluster and exit.
    #[arg(long, value_parser = parse_bool, action = ArgAction::Set, default_value = "false", help_heading = "Clustering")]
    pub reconfigure: bool,

    /// Backup directory.
    ///
    /// Each backup writes files below DIR/PREFIX. The directory is made if it is missing, and its file system must have hard links, by which files are
    /// published as a whole.
    #[arg(long, value_name = "dir", default_value = "", help_heading = "Backups & cold tier")]
    pub backup_dir: String,
    /// How often to back up; 0 is off.
    ///
    /// Backups go to -backup-dir, to -backup-bucket or to both. The first one is made one interval after the start. An interval below one second
    /// counts as one second.
    #[arg(long, value_name = "duration", value_parser = parse_span, default_value = "0", help_heading = "Backups & cold tier")]
    pub backup_interval: Span,
    /// Prefix of all names of objects in the directory.
    ///
    /// It may be empty, and may have slashes.
    #[arg(long, value_name = "text", default_value = "default", help_heading = "Backups & cold tier")]
    pub backup_prefix: String,
    /// Snapshots kept of each collection; 0 is all.
    ///
    /// As many are kept of the keys and of each other part of a backup.
    #[arg(long, value_name = "n", value_parser = parse_int, default_value = "24", help_heading = "Backups & cold tier")]
    pub backup_retention: i64,
    /// Object store bucket.
    ///
    /// Any store with the interface of S3 will do if it can keep objects from being overwritten (If-None-Match). The credentials are those of the
    /// environment variables AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY and, for temporary ones, AWS_SESSION_TOKEN; no others are looked for. The
    /// store's certificate must be from an authority that this machine trusts; the environment variables SSL_CERT_FILE and SSL_CERT_DIR name other
    /// authorities.
    #[arg(long, value_name = "text", default_value = "", help_heading = "Backups & cold tier")]
    pub backup_bucket: String,
    /// Object store endpoint; empty is the region's.
    ///
    /// A URL of a host, such as https://s3.example.com or http://127.0.0.1:9000. Empty means https://s3.REGION.amazonaws.com.
    #[arg(long, value_name = "url", default_value = "", help_heading = "Backups & cold tier")]
    pub backup_endpoint: String,
    /// Object store region.
    ///
    /// -backup-bucket needs it. It is a part of signatures, so stores without regions have one as well, which is us-east-1 for most of them.
    #[arg(long, value_name = "text", default_value = "", help_heading = "Backups & cold tier")]
    pub backup_region: String,
    /// Prefix of all names of objects in the bucket.
    ///
    /// It may be empty, and has no slashes.
    #[arg(long, value_name = "text", default_value = "default", help_heading = "Backups & cold tier")]
    pub backup_tenant: String,
    /// Bucket in the path; off means in the host name.
    #[arg(long, value_parser = parse_bool, action = ArgAction::Set, default_value = "true", help_heading = "Backups & cold tier")]
    pub s3_path_style: bool,
    /// Bytes per second that a backup may read and write; 0 is no limit.
    ///
    /// The sizes are those of max_memory in -config, such as 50MiB. The rate limits each restore, eviction and promotion separately.
    #[arg(long, value_name = "size", value_parser = parse_rate, default_value = "0", help_heading = "Backups & cold tier")]
    pub backup_rate: u64,
    /// Send the log to the store of backups.
    ///
    /// With a backup and the later log, `nigh backup restore -until` restores an empty data directory to any moment. The log goes to
    /// -backup-bucket, or else to -backup-dir.
    #[arg(long, value_parser = parse_bool, action = ArgAction::Set, default_value = "false", help_heading = "Backups & cold tier")]
    pub archive: bool,
    /// How long a change may wait until it is sent.
    ///
    /// If the machine is lost for good, up to so much of the latest changes is lost with it.
    #[arg(long, value_name = "duration", value_parser = parse_span, default_value = "10s", help_heading = "Backups & cold tier")]
    pub archive_interval: Span,
    /// How far back the archived log reaches; 0 is without end.
    ///
    /// Each backup removes what is older. Keep snapshots for as long (-backup-retention).
    #[arg(long, value_name = "duration", value_parser = parse_span, default_value = "168h", help_heading = "Backups & cold tier")]
    pub archive_retention: Span,
    /// Bytes of the log that wait on the disk while the store does not take them.
    ///
    /// If there are more, the server removes the oldest segments of the log: no moment between these and the next backup can be restored. The sizes
    /// are those of max_memory in -config, such as 4GiB.
    #[arg(long, value_name = "size", value_parser = parse_rate, default_value = "4GiB", help_heading = "Backups & cold tier")]
    pub archive_waiting: u64,
    /// Evict collections idle for this long to the bucket; 0 is off.
    ///
    /// They leave memory and disk, and come back with the next request for them. Without -backup-bucket they go to -backup-dir. With this flag,
    /// collections are also evicted earlier when memory is nearly full.
    #[arg(long, value_name = "duration", value_parser = parse_span, default_value = "0", help_heading = "Backups & cold tier")]
    pub cold_tier_after: Span,
    /// Restore a fresh cluster from its backup, once.
    #[arg(long, value_parser = parse_bool, action = ArgAction::Set, default_value = "false", help_heading = "Backups & cold tier")]
    pub restore: bool,
    /// Let shards without a backup come up empty in a restore.
    #[arg(long, value_parser = parse_bool, action = ArgAction::Set, default_value = "false", help_heading = "Backups & cold tier")]
    pub allow_missing_shards: bool,

    /// Log format: text or json.
    #[arg(long, value_name = "format", default_value = "text", help_heading = "Logging")]
    pub log_format: String,
    /// Log level: debug, info, warn or error.
    #[arg(long, value_name = "level", default_value = "info", help_heading = "Logging")]
    pub log_level: String,
    /// One line per request.
    #[arg(long, value_parser = parse_bool, action = ArgAction::Set, default_value = "false", help_heading = "Logging")]
    pub access_log: bool,
    /// File of the server's log; empty is stderr.
    ///
    /// Lines are appended. A file that does not exist is created, readable and writable by the server's user alone. The server reopens it
    /// on SIGHUP, which programs that rotate logs send after they have renamed the file.
    #[arg(long, value_name = "path", default_value = "", help_heading = "Logging")]
    pub log_file: String,
    /// File of the access log; empty is stderr.
    ///
    /// It is opened like the file of -log-file, and may be the same file.
    #[arg(long, value_name = "path", default_value = "", help_heading = "Logging")]
    pub access_log_file: String,
    /// File of the audit log; empty is stderr.
    ///
    /// It is opened like the file of -log-file, and may be the same file.
    #[arg(long, value_name = "path", default_value = "", help_heading = "Logging")]
    pub audit_log_file: String,
    /// Prefix of the names of all metrics.
    ///
    /// Dashboards that expect the metrics of another product can keep its prefix: with "acme", svc_kv_gets_total is
    /// called acme_kv_gets_total. A prefix consists of letters, digits and underscores; the server adds the underscore
    /// behind it.
    #[arg(long, value_name = "text", value_parser = parse_metrics_prefix, default_value = "svc", help_heading = "Logging")]
    pub metrics_prefix: String,

    /// How long unused WASM blobs are kept; 0 is for ever.
    #[arg(long, value_name = "duration", value_parser = parse_span, default_value = "0", help_heading = "WASM")]
    pub wasm_blob_retention: Span,

    /// Give up what the server does not need: on, off or required.
    ///
    /// With on, the server gains no privileges, leaves no core dumps, and opens only files in the data directory and in the directories of
    /// certificates, API keys and log files, besides what it needs of the system, as far as the kernel can enforce that (Landlock); the log says what
    /// is enforced. With required, the server does not start if the kernel cannot restrict files. With off, it gives up nothing: for core dumps, or
    /// for a data directory with links to other places.
    #[arg(long, value_name = "mode", value_parser = parse_confine, default_value = "on", help_heading = "Other")]
    pub confine: Confine,

    /// Print this.
    #[arg(long, value_parser = parse_bool, action = ArgAction::Set, default_value = "false", help_heading = "Help")]
    pub h: bool,
    /// Print this.
    #[arg(long, value_parser = parse_bool, action = ArgAction::Set, default_value = "false", help_heading = "Help")]
    pub help: bool,
    /// Print every description.
    #[arg(long, value_parser = parse_bool, action = ArgAction::Set, default_value = "false", help_heading = "Help")]
    pub help_all: bool,
    /// Print the build's identity.
    #[arg(long, value_parser = parse_bool, action = ArgAction::Set, default_value = "false", help_heading = "Help")]
    pub version: bool,
}

/// The usage groups, in the order they are printed.
pub const GROUPS: [&str; 10] = [
    "Transports",
    "Storage",
    "Authentication",
    "TLS",
    "Clustering",
    "Backups & cold tier",
    "Logging",
    "WASM",
    "Help",
    "Other",
];

/// Flags that act on the command line alone and have no environment variable.
pub const COMMAND_LINE_ONLY: [&str; 4] = ["h", "help", "help-all", "version"];
