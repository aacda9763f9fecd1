//! Counters of the front end, and the Prometheus page with everything on it.

use crate::auth::meter::Limit;
use crate::exposition::Page;
use crate::grpc::counters::{Connections, Counters as GrpcCounters};
use crate::kv_metrics;
use crate::tcp::counters::{self, Counters};
use crate::tls::counters::HandshakeCounters;
use nigh_shard::account::MemoryUse;
use nigh_shard::core::{CollectionMetrics, Core};
use nigh_shard::env::call;
use nigh_shard::kv::KeysStats;
use nigh_shard::latency::{Counted, Latency, OPERATION_BOUNDS_US};
use nigh_shard::refusals::RefusalReason;
use nigh_shard::runtime::{CoreHealth, CoreRuntime};
use rustix::param::page_size;
use rustix::time::{ClockId, clock_gettime};
use std::rc::Rc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

/// Upper bounds of the buckets of searches, microseconds: 16, then four per octave up to 2^24, about 17 s. A quantile read from them is at
/// most 25 % high.
const SEARCH_BOUNDS_US: [u64; 81] = {
    let mut bounds = [16; 81];
    let mut index = 1;
    while index < bounds.len() {
        let (octave, quarter) = (4 + (index - 1) / 4, (index - 1) % 4 + 1);
        bounds[index] = (1 << octave) + ((quarter as u64) << (octave - 2));
        index += 1;
    }
    bounds
};

/// How long searches took.
type SearchLatency = Latency<{ SEARCH_BOUNDS_US.len() }>;

/// One writer: a plain load and store are enough, and cheaper than a locked add.
fn add(counter: &AtomicU64, amount: u64) {
    counter.store(counter.load(Ordering::Relaxed).wrapping_add(amount), Ordering::Relaxed);
}

/// Front end counters of one core, on cache lines of their own.
#[repr(align(128))]
pub struct CoreTelemetry {
    connections_open: AtomicU64,
    connections_accepted: AtomicU64,
    connections_refused: AtomicU64,
    connections_timed_out: AtomicU64,
    /// By status class, 1xx to 5xx.
    requests: [AtomicU64; 5],
    /// Requests over any transport that were refused by a limit of their API key, in the order of [`Limit::ALL`].
    limited: [AtomicU64; Limit::ALL.len()],
    /// From the last byte of a search over HTTP received to its answer handed on.
    pub searches: SearchLatency,
    /// From the receipt of what came with a search over TCP to its answer.
    pub tcp_searches: SearchLatency,
    /// From the last byte of a search over gRPC received to its answer made.
    pub grpc_searches: SearchLatency,
}

impl CoreTelemetry {
    fn new() -> Self {
        CoreTelemetry {
            connections_open: AtomicU64::new(0),
            connections_accepted: AtomicU64::new(0),
            connections_refused: AtomicU64::new(0),
            connections_timed_out: AtomicU64::new(0),
            requests: std::array::from_fn(|_| AtomicU64::new(0)),
            limited: std::array::from_fn(|_| AtomicU64::new(0)),
            searches: Latency::new(&SEARCH_BOUNDS_US),
            tcp_searches: Latency::new(&SEARCH_BOUNDS_US),
            grpc_searches: Latency::new(&SEARCH_BOUNDS_US),
        }
    }

    /// A connection was accepted; `open` are open now.
    pub fn accepted(&self, open: usize) {
        add(&self.connections_accepted, 1);
        self.connections_open.store(open as u64, Ordering::Relaxed);
    }

    /// `open` connections are open now.
    pub fn open(&self, open: usize) {
        self.connections_open.store(open as u64, Ordering::Relaxed);
    }

    /// A connection was turned away.
    pub fn refused(&self) {
        add(&self.connections_refused, 1);
    }

    /// Connections were cut for being slow or idle.
    pub fn timed_out(&self, count: u64) {
        add(&self.connections_timed_out, count);
    }

    /// Counts a request that was refused by a limit of its API key.
    pub fn limited(&self, limit: Limit) {
        add(&self.limited[limit as usize], 1);
    }

    /// A request was answered.
    pub fn answered(&self, status: u16) {
        if let Some(class) = self.requests.get((status / 100).wrapping_sub(1) as usize) {
            add(class, 1);
        }
    }
}

/// The logs of the process, as the label `log` names them.
pub const LOGS: [&str; 3] = ["server", "access", "audit"];

/// What names of metrics begin with, unless the start says otherwise; an underscore follows.
pub const METRICS_PREFIX: &str = "svc";

/// Front end counters of the process.
pub struct Telemetry {
    /// What names of metrics begin with.
    prefix: String,
    started: Instant,
    cores: Vec<CoreTelemetry>,
    /// Says how many lines of each log were thrown away.
    lost_log_lines: Box<dyn Fn() -> [u64; LOGS.len()] + Send + Sync>,
    /// Of the binary protocol.
    pub tcp: Counters,
    /// Of gRPC.
    pub grpc: GrpcCounters,
    /// Handshakes of TLS.
    pub handshakes: HandshakeCounters,
}

impl Telemetry {
    /// For `cores` cores, started now.
    pub fn new(cores: usize) -> Self {
        Telemetry {
            prefix: METRICS_PREFIX.to_owned(),
            started: Instant::now(),
            cores: (0..cores).map(|_| CoreTelemetry::new()).collect(),
            lost_log_lines: Box::new(|| [0; LOGS.len()]),
            tcp: Counters::new(cores),
            grpc: GrpcCounters::new(cores),
            handshakes: HandshakeCounters::default(),
        }
    }

    /// With `prefix`, letters, digits and underscores, in front of every name on the metrics pages.
    pub fn with_prefix(self, prefix: &str) -> Self {
        Telemetry { prefix: prefix.to_owned(), ..self }
    }

    /// Sets the function that says how many lines of each of [`LOGS`] were thrown away because they could not be written.
    pub fn with_lost_log_lines(self, lines: impl Fn() -> [u64; LOGS.len()] + Send + Sync + 'static) -> Self {
        Telemetry { lost_log_lines: Box::new(lines), ..self }
    }

    /// What names on the metrics pages begin with; an underscore follows.
    pub fn prefix(&self) -> &str {
        &self.prefix
    }

    /// The counters that core `index` alone writes.
    pub fn core(&self, index: usize) -> &CoreTelemetry {
        &self.cores[index]
    }

    fn sum(&self, counter: impl Fn(&CoreTelemetry) -> &AtomicU64) -> u64 {
        self.cores.iter().map(|core| counter(core).load(Ordering::Relaxed)).sum()
    }
}

/// Gauges of the node below the front end.
#[derive(Clone, Debug, Default)]
pub struct NodeGauges {
    /// Bytes held by all uses, as they count against the limit.
    pub memory_used_bytes: u64,
    /// Bytes past which writes are refused.
    pub memory_limit_bytes: u64,
    /// Bytes held by each use.
    pub memory_held: Vec<(MemoryUse, u64)>,
    /// Bytes that are resident and that no use has asked for.
    pub memory_unseen_bytes: u64,
    /// Bytes of larger requests in memory.
    pub request_bytes: u64,
    /// Bytes of larger heads of HTTP requests in memory.
    pub head_bytes: u64,
    /// Bytes of larger answers in memory.
    pub answer_bytes: u64,
    /// Per core: log bytes that a recovery would read. `None` when the core did not say.
    pub log_bytes: Vec<Option<u64>>,
    /// Per core: frames written to the log. `None` when the core did not say.
    pub log_frames: Vec<Option<u64>>,
    /// Per core: whether its log has failed.
    pub logs_failed: Vec<bool>,
    /// Writes that need room are refused.
    pub is_disk_full: bool,
    /// Collections that serve nothing, as their files are damaged or their writes were refused by a log that failed.
    pub collections_damaged: usize,
    /// Collections that serve nothing, as they do not fit into memory.
    pub collections_closed: usize,
    /// Collections that are being opened.
    pub collections_opening: u64,
    /// How long opening the store took, or has taken by now.
    pub start_seconds: f64,
    /// The keys are damaged.
    pub are_keys_damaged: bool,
    /// Refused writes by reason.
    pub refusals: Vec<(RefusalReason, u64)>,
    /// What backups have come to.
    pub backups: BackupFigures,
    /// What the archive of the log has come to.
    pub archive: ArchiveFigures,
    /// What has become of collections that were not used.
    pub cold: ColdFigures,
    /// Per core: what the watchdog has seen.
    pub health: Vec<CoreHealth>,
}

/// What backups have come to since the start.
#[derive(Clone, Debug, Default)]
pub struct BackupFigures {
    /// Runs that have ended.
    pub runs: u64,
    /// Collections that were not backed up, and stores to which nothing could be.
    pub failures: u64,
    /// Bytes that were sent.
    pub sent_bytes: u64,
    /// When the last run without a failure began, Unix milliseconds; 0 = there was none.
    pub complete_unix_ms: u64,
}

impl BackupFigures {
    fn of(core: &Core) -> BackupFigures {
        let counters = &core.node().backups;
        BackupFigures {
            runs: counters.runs.load(Ordering::Relaxed),
            failures: counters.failures.load(Ordering::Relaxed),
            sent_bytes: counters.sent_bytes.load(Ordering::Relaxed),
            complete_unix_ms: counters.complete_unix_ms.load(Ordering::Relaxed),
        }
    }
}

/// What the archive of the log has come to since the start, and how far it is behind.
#[derive(Clone, Debug, Default)]
pub struct ArchiveFigures {
    /// Bytes of logs that are not in the archive yet.
    pub behind_bytes: u64,
    /// For how long the oldest of them have been waiting, milliseconds.
    pub behind_ms: u64,
    /// Bytes that were sent.
    pub sent_bytes: u64,
    /// Attempts that failed.
    pub failures: u64,
    /// Segments that were given up.
    pub gaps: u64,
}

impl ArchiveFigures {
    fn of(core: &Core) -> ArchiveFigures {
        let counters = &core.node().archive;
        ArchiveFigures {
            behind_bytes: counters.behind_bytes(),
            behind_ms: counters.behind_ms(core.env().now_ns()),
            sent_bytes: counters.sent_bytes.load(Ordering::Relaxed),
            failures: counters.failures.load(Ordering::Relaxed),
            gaps: counters.gaps.load(Ordering::Relaxed),
        }
    }

    fn render(&self, page: &mut Page<'_>) {
        let help = "Bytes of the log that are not in its archive yet: what the loss of this machine would cost. 0 without -archive.";
        page.family("archive_behind_bytes", "gauge", help);
        page.sample("archive_behind_bytes", &[], self.behind_bytes);
        let help = "How long the oldest of these bytes have been waiting to be sent, in seconds.";
        page.family("archive_behind_seconds", "gauge", help);
        page.sample("archive_behind_seconds", &[], self.behind_ms as f64 / 1000.0);
        page.family("archive_sent_bytes_total", "counter", "Bytes of the log that were sent to its archive.");
        page.sample("archive_sent_bytes_total", &[], self.sent_bytes);
        let help = "Attempts to send the log to its archive, or to remove what is too old there, that failed; they are repeated.";
        page.family("archive_failures_total", "counter", help);
        page.sample("archive_failures_total", &[], self.failures);
        let help = "Segments of the log that were given up before the archive had them: moments between these and the next backup cannot be restored.";
        page.family("archive_gaps_total", "counter", help);
        page.sample("archive_gaps_total", &[], self.gaps);
    }
}

/// What has become of collections that were not used, since the start.
#[derive(Clone, Debug, Default)]
pub struct ColdFigures {
    /// Cold collections now.
    pub collections: usize,
    /// Collections that have left memory.
    pub evictions: u64,
    /// Evictions that failed.
    pub eviction_failures: u64,
    /// Collections that have come back.
    pub promotions: u64,
    /// Promotions that failed.
    pub promotion_failures: u64,
    /// How long those that have come back took, in microseconds.
    pub promotion_us: u64,
}

impl ColdFigures {
    fn of(core: &Core) -> ColdFigures {
        let counters = &core.node().cold;
        ColdFigures {
            collections: counters.collections.load(Ordering::Relaxed),
            evictions: counters.evictions.load(Ordering::Relaxed),
            eviction_failures: counters.eviction_failures.load(Ordering::Relaxed),
            promotions: counters.promotions.load(Ordering::Relaxed),
            promotion_failures: counters.promotion_failures.load(Ordering::Relaxed),
            promotion_us: counters.promotion_us.load(Ordering::Relaxed),
        }
    }

    fn render(&self, page: &mut Page<'_>) {
        page.family(
            "collections_cold",
            "gauge",
            "Collections that are in the store of backups and not in memory.",
        );
        page.sample("collections_cold", &[], self.collections);
        page.family(
            "collection_evictions_total",
            "counter",
            "Collections that have left memory for the store of backups.",
        );
        page.sample("collection_evictions_total", &[], self.evictions);
        page.family(
            "collection_eviction_failures_total",
            "counter",
            "Evictions that failed; the collection stayed in memory.",
        );
        page.sample("collection_eviction_failures_total", &[], self.eviction_failures);
        page.family(
            "collection_promotions_total",
            "counter",
            "Cold collections that have come back into memory.",
        );
        page.sample("collection_promotions_total", &[], self.promotions);
        page.family(
            "collection_promotion_failures_total",
            "counter",
            "Promotions that failed; the collection stayed cold.",
        );
        page.sample("collection_promotion_failures_total", &[], self.promotion_failures);
        page.family(
            "collection_promotion_seconds_total",
            "counter",
            "How long the promotions took that have succeeded.",
        );
        page.sample("collection_promotion_seconds_total", &[], self.promotion_us as f64 / 1e6);
    }
}

/// Asks the cores, and writes the whole page.
pub async fn page(core: &Rc<Core>, telemetry: &Telemetry) -> String {
    let cores = core.env().cores();
    let mut logs = Vec::with_capacity(cores);
    for index in 0..cores {
        let log =
            call(core, index, |there| async move { (there.ctx().log_bytes(), there.ctx().log_frames()) });
        // A core that is too busy to say has no sample on this page: a counter that shows 0 would look like a restart.
        logs.push(log.await.ok());
    }
    let log_bytes = logs.iter().map(|log| log.map(|(bytes, _)| bytes)).collect();
    let log_frames = logs.iter().map(|log| log.map(|(_, frames)| frames)).collect();
    let unserved = core.unserved_collections();
    let node = NodeGauges {
        memory_used_bytes: core.node().account.total(),
        memory_limit_bytes: core.options().memory_limit_bytes,
        memory_held: MemoryUse::ALL.map(|of| (of, core.node().account.held(of))).to_vec(),
        memory_unseen_bytes: core.node().account.unseen(),
        request_bytes: core.node().account.held(MemoryUse::Requests),
        head_bytes: core.node().account.held(MemoryUse::Heads),
        answer_bytes: core.node().account.held(MemoryUse::Answers),
        log_bytes,
        log_frames,
        logs_failed: core.node().failed_logs(),
        is_disk_full: core.node().reserve.is_disk_full(),
        collections_damaged: unserved.damaged,
        collections_closed: unserved.closed,
        collections_opening: core.node().progress.unopened(),
        start_seconds: core.node().progress.took_ns(core.env().now_ns()) as f64 / 1e9,
        are_keys_damaged: core.keys().damage().is_some(),
        refusals: RefusalReason::ALL.map(|reason| (reason, core.node().refusals.count(reason))).to_vec(),
        backups: BackupFigures::of(core),
        archive: ArchiveFigures::of(core),
        cold: ColdFigures::of(core),
        // A simulation has no threads that could be late.
        health: CoreRuntime::current().map_or_else(Vec::new, |runtime| runtime.remote().health().cores),
    };
    render(telemetry, &node, &core.keys().keys_stats().await, &core.metrics())
}

/// Writes the whole page.
pub fn render(
    telemetry: &Telemetry,
    node: &NodeGauges,
    keys: &KeysStats,
    collections: &[CollectionMetrics],
) -> String {
    let mut page = Page::new(telemetry.prefix(), 16_384 + 4096 * collections.len());
    process(&mut page, telemetry);
    node_gauges(&mut page, node);
    front_end(&mut page, telemetry);
    binary_front_end(&mut page, telemetry);
    grpc_front_end(&mut page, telemetry);
    kv_metrics::put(&mut page, keys);
    dense(&mut page, collections);
    page.into_text()
}

fn node_gauges(page: &mut Page<'_>, node: &NodeGauges) {
    page.family(
        "memory_used_bytes",
        "gauge",
        "Memory that the process holds, of all uses, as it counts against the limit.",
    );
    page.sample("memory_used_bytes", &[], node.memory_used_bytes);
    page.family("memory_limit_bytes", "gauge", "Memory past which writes are refused.");
    page.sample("memory_limit_bytes", &[], node.memory_limit_bytes);
    let help = "Memory by use. \"unseen\" is resident memory that no use has asked for: stacks, buffers, and what the allocator keeps.";
    page.family("memory_held_bytes", "gauge", help);
    for (of, bytes) in &node.memory_held {
        page.sample("memory_held_bytes", &[("use", of.name())], bytes);
    }
    page.sample("memory_held_bytes", &[("use", "unseen")], node.memory_unseen_bytes);
    let help = "1 while the disk is full: writes that need room are refused.";
    page.family("disk_full", "gauge", help);
    page.sample("disk_full", &[], u8::from(node.is_disk_full));
    page.family("collections_damaged", "gauge", "Collections that are damaged and serve nothing.");
    page.sample("collections_damaged", &[], node.collections_damaged);
    let help =
        "Collections that are closed, as they did not fit into memory at the start, and serve nothing.";
    page.family("collections_closed", "gauge", help);
    page.sample("collections_closed", &[], node.collections_closed);
    let help = "Collections that are being opened after the start, and serve nothing yet.";
    page.family("collections_opening", "gauge", help);
    page.sample("collections_opening", &[], node.collections_opening);
    let help = "Seconds from the start of the cores until all of the store was open, or until now.";
    page.family("start_seconds", "gauge", help);
    page.sample("start_seconds", &[], node.start_seconds);
    page.family("keys_damaged", "gauge", "1 while the keys are damaged: operations on keys are refused.");
    page.sample("keys_damaged", &[], u8::from(node.are_keys_damaged));
    page.family(
        "writes_refused_total",
        "counter",
        "Writes refused although nothing is wrong with them, by reason.",
    );
    for (reason, count) in &node.refusals {
        page.sample("writes_refused_total", &[("reason", reason.name())], count);
    }
    page.family("backups_total", "counter", "Backups that have ended.");
    page.sample("backups_total", &[], node.backups.runs);
    let help = "Collections that a backup has failed to store; a store to which nothing could be sent counts as one.";
    page.family("backup_failures_total", "counter", help);
    page.sample("backup_failures_total", &[], node.backups.failures);
    let help = "Bytes that backups have sent. What a store had already is not sent again.";
    page.family("backup_sent_bytes_total", "counter", help);
    page.sample("backup_sent_bytes_total", &[], node.backups.sent_bytes);
    let help = "When the last backup without a failure began, in seconds since 1970; 0 while there has been none since the start.";
    page.family("backup_complete_timestamp_seconds", "gauge", help);
    page.sample("backup_complete_timestamp_seconds", &[], node.backups.complete_unix_ms as f64 / 1000.0);
    node.archive.render(page);
    node.cold.render(page);
    page.family("http_body_bytes", "gauge", "Larger request bodies in memory, TCP frames included.");
    page.sample("http_body_bytes", &[], node.request_bytes);
    page.family("http_head_bytes", "gauge", "Larger heads of HTTP requests in memory.");
    page.sample("http_head_bytes", &[], node.head_bytes);
    page.family("answer_bytes", "gauge", "Larger answers in memory, made and not yet taken.");
    page.sample("answer_bytes", &[], node.answer_bytes);
    let mut per_core = |name: &str, kind: &str, help: &str, values: &mut dyn Iterator<Item = Option<f64>>| {
        page.family(name, kind, help);
        for (core, value) in values.enumerate() {
            if let Some(value) = value {
                page.sample(name, &[("core", &core.to_string())], value);
            }
        }
    };
    let logs = &mut node.log_bytes.iter().map(|bytes| bytes.map(|bytes| bytes as f64));
    per_core("log_bytes", "gauge", "Bytes of the log that a start would read.", logs);
    let failed = &mut node.logs_failed.iter().map(|failed| Some(f64::from(u8::from(*failed))));
    per_core(
        "log_failed",
        "gauge",
        "1 once the log has failed: the core takes no more writes until a restart.",
        failed,
    );
    let frames = &mut node.log_frames.iter().map(|frames| frames.map(|frames| frames as f64));
    per_core(
        "log_frames_total",
        "counter",
        "Frames written to the log, each with one wait for the disk.",
        frames,
    );
    let health = || node.health.iter();
    per_core(
        "watchdog_rescues_total",
        "counter",
        "Times the watchdog woke a core that slept with work to do.",
        &mut health().map(|core| Some(core.rescues as f64)),
    );
    per_core(
        "core_stalls_total",
        "counter",
        "Times a core made no progress for longer than it should.",
        &mut health().map(|core| Some(core.stalls as f64)),
    );
    per_core(
        "core_stall_longest_seconds",
        "gauge",
        "Longest time without progress since the start.",
        &mut health().map(|core| Some(core.stall_longest_us as f64 / 1e6)),
    );
    per_core(
        "core_stall_busiest_seconds",
        "gauge",
        "Most CPU time a core used within one stall; the rest of a stall it waited, for a CPU or a disk.",
        &mut health().map(|core| Some(core.stall_busiest_us as f64 / 1e6)),
    );
    per_core(
        "core_background_slice_longest_seconds",
        "gauge",
        "Longest slice of background work since the start.",
        &mut health().map(|core| Some(core.background_slice_longest_us as f64 / 1e6)),
    );
}

fn process(page: &mut Page<'_>, telemetry: &Telemetry) {
    page.family("uptime_seconds", "gauge", "Seconds since the process started serving.");
    page.sample("uptime_seconds", &[], telemetry.started.elapsed().as_secs_f64());
    let help = "Lines thrown away because they could not be written, by log: the reader or the disk did not keep up, or failed.";
    page.family("server_log_lines_lost_total", "counter", help);
    for (log, lines) in LOGS.into_iter().zip((telemetry.lost_log_lines)()) {
        page.sample("server_log_lines_lost_total", &[("log", log)], lines);
    }
    let help = "Handshakes of TLS by what they came to: full, resumed, failed, and refused as too many were under way.";
    page.family("tls_handshakes_total", "counter", help);
    for (result, count) in telemetry.handshakes.all() {
        page.sample("tls_handshakes_total", &[("result", result)], count);
    }
    let name = "api_key_limited_requests_total";
    page.family(name, "counter", "Requests refused because their API key had reached a limit, by limit.");
    for limit in Limit::ALL {
        let count = telemetry.sum(|core| &core.limited[limit as usize]);
        page.sample(name, &[("limit", limit.name())], count);
    }
    page.family("cores", "gauge", "Cores that serve.");
    page.sample("cores", &[], telemetry.cores.len());
    if let Some((resident, cpu_seconds)) = process_usage() {
        page.family("process_resident_bytes", "gauge", "Resident memory of the process.");
        page.sample("process_resident_bytes", &[], resident);
        page.family("process_cpu_seconds_total", "counter", "User and system CPU time of the process.");
        page.sample("process_cpu_seconds_total", &[], cpu_seconds);
    }
}

fn binary_front_end(page: &mut Page<'_>, telemetry: &Telemetry) {
    let counters = &telemetry.tcp;
    page.family("tcp_connections", "gauge", "Open TCP connections.");
    page.sample("tcp_connections", &[], counters.open());
    for (count, name, help) in counters::FAMILIES {
        page.family(name, "counter", help);
        page.sample(name, &[], counters.sum(count));
    }
    let name = "tcp_stage_seconds_total";
    page.family(name, "counter", "Time of TCP rounds by stage, summed over connections.");
    for (stage, text) in counters::STAGES {
        page.sample(name, &[("stage", text)], counters.spent(stage).as_secs_f64());
    }
    let help = "Time of searches over TCP, from their receipt to their answer.";
    searches(page, "tcp_search_seconds", help, telemetry, |core| &core.tcp_searches);
}

fn grpc_front_end(page: &mut Page<'_>, telemetry: &Telemetry) {
    let counters = &telemetry.grpc;
    for (what, name, kind, help) in [
        (Connections::Open, "grpc_connections", "gauge", "Open gRPC connections."),
        (Connections::Accepted, "grpc_connections_total", "counter", "Accepted gRPC connections."),
        (
            Connections::Refused,
            "grpc_connections_refused_total",
            "counter",
            "gRPC connections turned away because too many were open or there was no memory for them.",
        ),
        (
            Connections::TimedOut,
            "grpc_connections_timed_out_total",
            "counter",
            "gRPC connections cut for being slow or idle, or for sending nothing of use.",
        ),
    ] {
        page.family(name, kind, help);
        page.sample(name, &[], counters.connections(what));
    }
    page.family("grpc_calls_total", "counter", "gRPC calls that have ended, by method.");
    for (method, count) in counters.calls() {
        page.sample("grpc_calls_total", &[("method", method)], count);
    }
    page.family("grpc_responses_total", "counter", "gRPC calls that have ended, by status code.");
    for (code, count) in counters.ends() {
        page.sample("grpc_responses_total", &[("code", code.name())], count);
    }
    let help = "Time of searches over gRPC, from their last byte received, or in a batch from their begin, to their answer.";
    searches(page, "grpc_search_seconds", help, telemetry, |core| &core.grpc_searches);
}

fn front_end(page: &mut Page<'_>, telemetry: &Telemetry) {
    page.family("http_connections", "gauge", "Open HTTP connections.");
    page.sample("http_connections", &[], telemetry.sum(|core| &core.connections_open));
    for (name, help, value) in [
        (
            "http_connections_total",
            "Accepted HTTP connections.",
            telemetry.sum(|core| &core.connections_accepted),
        ),
        (
            "http_connections_refused_total",
            "HTTP connections turned away because too many were open or there was no memory for them.",
            telemetry.sum(|core| &core.connections_refused),
        ),
        (
            "http_connections_timed_out_total",
            "HTTP connections cut for being slow or idle.",
            telemetry.sum(|core| &core.connections_timed_out),
        ),
    ] {
        page.family(name, "counter", help);
        page.sample(name, &[], value);
    }
    page.family("http_requests_total", "counter", "Answered HTTP requests by status class.");
    for (index, class) in ["1xx", "2xx", "3xx", "4xx", "5xx"].into_iter().enumerate() {
        page.sample("http_requests_total", &[("class", class)], telemetry.sum(|core| &core.requests[index]));
    }
    let help = "Time of searches over HTTP, from the last byte received to the answer handed to the socket.";
    searches(page, "http_search_seconds", help, telemetry, |core| &core.searches);
}

/// A histogram of the searches of all cores.
fn searches(
    page: &mut Page<'_>,
    name: &str,
    help: &str,
    telemetry: &Telemetry,
    of: fn(&CoreTelemetry) -> &SearchLatency,
) {
    page.family(name, "histogram", help);
    let all = telemetry.cores.iter().map(|core| of(core).counted());
    let all = all.fold(Counted::default(), |all, one| all.and(&one));
    let bounds = SEARCH_BOUNDS_US.map(|us| (us as f64 / 1e6).to_string());
    page.histogram(name, &[], bounds.each_ref().map(String::as_str), &all);
}

/// Name, type, help and value of a per-collection family.
type Family = (&'static str, &'static str, &'static str, fn(&CollectionMetrics) -> u64);

const DENSE_FAMILIES: [Family; 14] = [
    ("damaged", "gauge", "1 while the collection is damaged and serves nothing.", |c| c.is_damaged.into()),
    ("closed", "gauge", "1 while the collection is closed for want of memory.", |c| c.is_closed.into()),
    ("size", "gauge", "Points that have not expired.", |c| c.stats.points()),
    ("tombstoned", "gauge", "Deleted points whose space is not yet reused.", |c| c.stats.tombstoned),
    ("sparse_vectors", "gauge", "Points with a sparse vector.", |c| c.stats.sparse_vectors),
    ("search_ops_total", "counter", "Searches.", |c| c.search_ops),
    ("insert_ops_total", "counter", "Points inserted or replaced.", |c| c.insert_ops),
    ("expired_total", "counter", "Points removed because their time had passed.", |c| c.expired),
    ("quota_rejects_total", "counter", "Writes and bulk builds refused by a quota.", |c| c.quota_rejects),
    ("filter_rejects_total", "counter", "Candidates that searches met and a filter refused.", |c| {
        c.filter_rejects
    }),
    (
        "filter_gates_total",
        "counter",
        "Searches that walked the graph among the points of a bitset that the filter selects.",
        |c| c.stats.filter_gates,
    ),
    (
        "filter_complement_gates_total",
        "counter",
        "Searches that walked the graph among the points outside a bitset that the filter excludes.",
        |c| c.stats.filter_complement_gates,
    ),
    (
        "filter_column_gates_total",
        "counter",
        "Searches that walked the graph among the points whose number in a column passes the filter.",
        |c| c.stats.filter_column_gates,
    ),
    (
        "filter_column_drops_total",
        "counter",
        "Columns of numbers dropped because a quota needed their memory.",
        |c| c.stats.filter_column_drops,
    ),
];

/// [`OPERATION_BOUNDS_US`] as the interface spells them.
const OPERATION_LE: [&str; OPERATION_BOUNDS_US.len()] =
    ["1e-06", "1e-05", "0.0001", "0.001", "0.01", "0.1", "1", "10", "100"];

fn dense(page: &mut Page<'_>, collections: &[CollectionMetrics]) {
    for (name, kind, help, value) in DENSE_FAMILIES {
        let name = format!("vector_{name}");
        page.family(&name, kind, help);
        for collection in collections {
            page.sample(&name, &[("collection", &collection.name)], value(collection));
        }
    }
    page.family("vector_avg_search_depth", "gauge", "Distances computed per search, in the mean.");
    for collection in collections {
        let labels = [("collection", collection.name.as_str())];
        let mean = collection.distances as f64 / collection.search_ops.max(1) as f64;
        page.sample("vector_avg_search_depth", &labels, format_args!("{mean:.1}"));
    }
    page.family("vector_bytes", "gauge", "Memory committed by the collection.");
    for collection in collections {
        page.sample("vector_bytes", &[("collection", &collection.name)], collection.stats.bytes);
    }
    type Histogram = fn(&CollectionMetrics) -> &Counted<{ OPERATION_BOUNDS_US.len() }>;
    let histograms: [(&str, &str, Histogram); 2] = [
        ("vector_search_latency_seconds", "Time of a search.", |c| &c.search_latency),
        ("vector_insert_latency_seconds", "Time of a write, or of a bulk build.", |c| &c.insert_latency),
    ];
    for (name, help, counted) in histograms {
        page.family(name, "histogram", help);
        for collection in collections {
            let labels = [("collection", collection.name.as_str())];
            page.histogram(name, &labels, OPERATION_LE, counted(collection));
        }
    }
}

/// Resident bytes and CPU seconds of this process.
fn process_usage() -> Option<(u64, f64)> {
    let statm = std::fs::read_to_string("/proc/self/statm").ok()?;
    let pages: u64 = statm.split_ascii_whitespace().nth(1)?.parse().ok()?;
    let time = clock_gettime(ClockId::ProcessCPUTime);
    Some((pages * page_size() as u64, time.tv_sec as f64 + time.tv_nsec as f64 / 1e9))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashSet;
    use std::time::Duration;

    #[test]
    fn buckets_hold_what_they_say() {
        assert_eq!(
            (SEARCH_BOUNDS_US[..6].to_vec(), SEARCH_BOUNDS_US[80]),
            (vec![16, 20, 24, 28, 32, 40], 1 << 24)
        );
        for us in [0, 1, 15, 16, 17, 19, 20, 31, 32, 1000, 123_456, 16_777_215] {
            let latency = Latency::new(&SEARCH_BOUNDS_US);
            latency.record(Duration::from_micros(us));
            let bucket = latency.counted().below.iter().position(|below| *below == 1).unwrap();
            assert!(us < SEARCH_BOUNDS_US[bucket], "{us} in bucket {bucket}");
            assert!(bucket == 0 || us >= SEARCH_BOUNDS_US[bucket - 1], "{us} in bucket {bucket}");
        }
        let latency = Latency::new(&SEARCH_BOUNDS_US);
        latency.record(Duration::from_secs(60));
        let counted = latency.counted();
        assert_eq!((counted.below[80], counted.all), (0, 1));
    }

    #[test]
    fn page_is_valid() {
        let telemetry = Telemetry::new(2);
        telemetry.core(1).searches.record(Duration::from_millis(2));
        (0..2).for_each(|core| telemetry.tcp.spend(core, counters::Stage::Log, Duration::from_millis(750)));
        telemetry.core(0).answered(200);
        telemetry.core(1).answered(404);
        (0..2).for_each(|core| telemetry.core(core).limited(Limit::Bytes));
        let collections: Vec<_> = ["default/docs", "a\"b\\c\n/d"]
            .into_iter()
            .map(|name| CollectionMetrics { name: name.into(), search_ops: 3, ..Default::default() })
            .collect();
        let node = NodeGauges {
            log_bytes: vec![Some(5), Some(6)],
            log_frames: vec![None, Some(8)],
            logs_failed: vec![false, true],
            is_disk_full: true,
            collections_damaged: 3,
            collections_closed: 2,
            are_keys_damaged: true,
            refusals: vec![(RefusalReason::DiskFull, 4)],
            backups: BackupFigures { runs: 3, failures: 1, sent_bytes: 9, complete_unix_ms: 1500 },
            health: vec![CoreHealth::default(); 2],
            ..NodeGauges::default()
        };
        let text = render(&telemetry, &node, &KeysStats::default(), &collections);
        let mut families = HashSet::new();
        let mut current = String::new();
        for line in text.lines() {
            if let Some(rest) = line.strip_prefix("# TYPE ") {
                current = rest.split(' ').next().unwrap().to_owned();
                assert!(families.insert(current.clone()), "{current} twice");
            } else if !line.starts_with('#') {
                assert!(line.starts_with(&current), "{line} outside {current}");
                let value = line.rsplit(' ').next().unwrap();
                assert!(value.parse::<f64>().is_ok(), "{line}");
            }
        }
        assert!(text.contains("svc_vector_search_ops_total{collection=\"default/docs\"} 3\n"));
        assert!(text.contains(r#"svc_vector_size{collection="a\"b\\c\n/d"} 0"#));
        assert!(text.contains("svc_log_bytes{core=\"1\"} 6\n"));
        assert!(text.contains("svc_log_frames_total{core=\"1\"} 8\n"));
        assert!(!text.contains("svc_log_frames_total{core=\"0\"}"), "what is not known is not 0");
        assert!(text.contains("svc_log_failed{core=\"0\"} 0\nsvc_log_failed{core=\"1\"} 1\n"));
        assert!(text.contains("svc_disk_full 1\n") && text.contains("svc_collections_damaged 3\n"));
        assert!(text.contains("svc_collections_closed 2\n") && text.contains("svc_keys_damaged 1\n"));
        assert!(text.contains("svc_writes_refused_total{reason=\"disk_full\"} 4\n"));
        assert!(text.contains("svc_api_key_limited_requests_total{limit=\"requests\"} 0\n"));
        assert!(text.contains("svc_api_key_limited_requests_total{limit=\"bytes\"} 2\n"));
        assert!(text.contains("svc_http_search_seconds_count 1\n"));
        assert!(text.contains("svc_tcp_search_seconds_count 0\n"));
        assert!(text.contains("svc_tcp_stage_seconds_total{stage=\"log\"} 1.5\n"));
        assert!(text.contains("svc_http_requests_total{class=\"4xx\"} 1\n"));
        assert!(text.contains(
            "svc_vector_insert_latency_seconds_bucket{collection=\"default/docs\",le=\"1e-06\"} 0\n"
        ));
        assert!(text.ends_with('\n'));

        let renamed = render(&telemetry.with_prefix("acme"), &node, &KeysStats::default(), &collections);
        let names = |text: &str, prefix: &str| {
            let all =
                text.lines().map(|line| line.trim_start_matches("# HELP ").trim_start_matches("# TYPE "));
            all.map(|line| line.strip_prefix(prefix).expect(line).split([' ', '{']).next().map(str::to_owned))
                .collect::<Vec<_>>()
        };
        assert_eq!(names(&renamed, "acme_"), names(&text, "svc_"), "no name keeps the other prefix");
    }
}
