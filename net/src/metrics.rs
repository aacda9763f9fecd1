//! Counters of the front end, and the Prometheus page with everything on it.

use crate::kv_metrics;
use crate::tcp::counters::{self, Counters};
use nigh_shard::account::MemoryUse;
use nigh_shard::core::{CollectionMetrics, Core, LATENCY_BOUNDS_US};
use nigh_shard::keys::KeysStats;
use nigh_shard::refusals::RefusalReason;
use nigh_shard::runtime::CoreHealth;
use std::fmt::Write;
use std::rc::Rc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// First octave of the search histogram: everything below 16 us is one bucket.
const FIRST_OCTAVE: u32 = 4;
/// Octaves up to 2^24 us, about 17 s; slower searches count in `+Inf` only.
const OCTAVES: u32 = 20;
const BUCKETS: usize = 1 + 4 * OCTAVES as usize;

/// A latency histogram with four buckets per octave (a quantile read from it is at most 25 % high). One core writes, any
/// core reads.
pub struct Latency {
    buckets: [AtomicU64; BUCKETS + 1],
    sum_us: AtomicU64,
}

impl Latency {
    fn new() -> Self {
        Latency { buckets: std::array::from_fn(|_| AtomicU64::new(0)), sum_us: AtomicU64::new(0) }
    }

    /// Counts one duration.
    pub fn record(&self, took: Duration) {
        let us = took.as_micros() as u64;
        let octave = us.checked_ilog2().unwrap_or(0);
        let bucket = if octave < FIRST_OCTAVE {
            0
        } else if octave < FIRST_OCTAVE + OCTAVES {
            let quarter = (us >> (octave - 2)) & 3;
            1 + 4 * (octave - FIRST_OCTAVE) as usize + quarter as usize
        } else {
            BUCKETS
        };
        add(&self.buckets[bucket], 1);
        add(&self.sum_us, us);
    }

    fn bound_us(bucket: usize) -> u64 {
        match bucket.checked_sub(1) {
            None => 1 << FIRST_OCTAVE,
            Some(index) => {
                let octave = FIRST_OCTAVE + index as u32 / 4;
                (1 << octave) + ((index as u64 % 4 + 1) << (octave - 2))
            }
        }
    }
}

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
    /// From the last byte of a search over HTTP received to its answer handed on.
    pub searches: Latency,
    /// From the receipt of what came with a search over TCP to its answer.
    pub tcp_searches: Latency,
}

impl CoreTelemetry {
    fn new() -> Self {
        CoreTelemetry {
            connections_open: AtomicU64::new(0),
            connections_accepted: AtomicU64::new(0),
            connections_refused: AtomicU64::new(0),
            connections_timed_out: AtomicU64::new(0),
            requests: std::array::from_fn(|_| AtomicU64::new(0)),
            searches: Latency::new(),
            tcp_searches: Latency::new(),
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

    /// A request was answered.
    pub fn answered(&self, status: u16) {
        if let Some(class) = self.requests.get((status / 100).wrapping_sub(1) as usize) {
            add(class, 1);
        }
    }
}

/// What names of metrics begin with, unless the start says otherwise; an underscore follows.
pub const METRICS_PREFIX: &str = "svc";

/// Front end counters of the process.
pub struct Telemetry {
    /// What names of metrics begin with.
    prefix: String,
    started: Instant,
    cores: Vec<CoreTelemetry>,
    /// Says how many lines of the server's log were thrown away.
    lost_log_lines: Box<dyn Fn() -> u64 + Send + Sync>,
    /// Of the binary protocol.
    pub tcp: Counters,
}

impl Telemetry {
    /// For `cores` cores, started now.
    pub fn new(cores: usize) -> Self {
        Telemetry {
            prefix: METRICS_PREFIX.to_owned(),
            started: Instant::now(),
            cores: (0..cores).map(|_| CoreTelemetry::new()).collect(),
            lost_log_lines: Box::new(|| 0),
            tcp: Counters::new(cores),
        }
    }

    /// With `prefix`, letters, digits and underscores, in front of every name on the metrics pages.
    pub fn with_prefix(self, prefix: &str) -> Self {
        Telemetry { prefix: prefix.to_owned(), ..self }
    }

    /// With `lines` to ask how many lines of the server's log were thrown away because nobody took them.
    pub fn with_lost_log_lines(self, lines: impl Fn() -> u64 + Send + Sync + 'static) -> Self {
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
    /// Bytes held by collections.
    pub memory_used_bytes: u64,
    /// Bytes past which writes are refused.
    pub memory_limit_bytes: u64,
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
    /// The keys are damaged.
    pub are_keys_damaged: bool,
    /// Refused writes by reason.
    pub refusals: Vec<(RefusalReason, u64)>,
    /// Per core: what the watchdog has seen.
    pub health: Vec<CoreHealth>,
}

/// Asks the cores, and writes the whole page.
pub async fn page(core: &Rc<Core>, telemetry: &Telemetry) -> String {
    let runtime = core.runtime();
    let mut logs = Vec::with_capacity(runtime.cores());
    for index in 0..runtime.cores() {
        let log =
            runtime.call(index, || async { (Core::current().log_bytes(), Core::current().log_frames()) });
        // A core that is too busy to say has no sample on this page: a counter that shows 0 would look like a restart.
        logs.push(log.await.ok());
    }
    let log_bytes = logs.iter().map(|log| log.map(|(bytes, _)| bytes)).collect();
    let log_frames = logs.iter().map(|log| log.map(|(_, frames)| frames)).collect();
    let unserved = core.unserved_collections();
    let node = NodeGauges {
        memory_used_bytes: core.node().account.total(),
        memory_limit_bytes: core.options().memory_limit_bytes,
        request_bytes: core.node().account.held(MemoryUse::Requests),
        head_bytes: core.node().account.held(MemoryUse::Heads),
        answer_bytes: core.node().account.held(MemoryUse::Answers),
        log_bytes,
        log_frames,
        logs_failed: core.node().failed_logs(),
        is_disk_full: core.node().reserve.is_disk_full(),
        collections_damaged: unserved.damaged,
        collections_closed: unserved.closed,
        are_keys_damaged: core.keys().damage().is_some(),
        refusals: RefusalReason::ALL.map(|reason| (reason, core.node().refusals.count(reason))).to_vec(),
        health: runtime.remote().health().cores,
    };
    render(telemetry, &node, &core.keys_stats().await, &core.metrics())
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
    kv_metrics::put(&mut page, keys);
    dense(&mut page, collections);
    page.out
}

fn node_gauges(page: &mut Page<'_>, node: &NodeGauges) {
    page.family("memory_used_bytes", "gauge", "Memory that collections hold.");
    page.sample("memory_used_bytes", &[], node.memory_used_bytes);
    page.family("memory_limit_bytes", "gauge", "Memory past which writes are refused.");
    page.sample("memory_limit_bytes", &[], node.memory_limit_bytes);
    let help = "1 while the disk is full: writes that need room are refused.";
    page.family("disk_full", "gauge", help);
    page.sample("disk_full", &[], u8::from(node.is_disk_full));
    page.family("collections_damaged", "gauge", "Collections that are damaged and serve nothing.");
    page.sample("collections_damaged", &[], node.collections_damaged);
    let help =
        "Collections that are closed, as they did not fit into memory at the start, and serve nothing.";
    page.family("collections_closed", "gauge", help);
    page.sample("collections_closed", &[], node.collections_closed);
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
    let help = "Lines of the server's log that were thrown away because its reader did not keep up.";
    page.family("server_log_lines_lost_total", "counter", help);
    page.sample("server_log_lines_lost_total", &[], (telemetry.lost_log_lines)());
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
    latency(page, "tcp_search_seconds", help, telemetry, |core| &core.tcp_searches);
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
            "HTTP connections turned away because too many were open.",
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
    latency(page, "http_search_seconds", help, telemetry, |core| &core.searches);
}

/// A histogram of all cores.
fn latency(
    page: &mut Page<'_>,
    name: &str,
    help: &str,
    telemetry: &Telemetry,
    of: fn(&CoreTelemetry) -> &Latency,
) {
    page.family(name, "histogram", help);
    let mut cumulative = 0;
    for bucket in 0..BUCKETS {
        cumulative += telemetry.sum(|core| &of(core).buckets[bucket]);
        let bound = Latency::bound_us(bucket) as f64 / 1e6;
        page.bucket(name, &[], &bound.to_string(), cumulative);
    }
    cumulative += telemetry.sum(|core| &of(core).buckets[BUCKETS]);
    page.histogram_end(name, &[], cumulative, telemetry.sum(|core| &of(core).sum_us));
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

/// `LATENCY_BOUNDS_US` as the interface spells them.
const LATENCY_LE: [&str; LATENCY_BOUNDS_US.len()] =
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
    type Histogram = fn(&CollectionMetrics) -> &[u64; 11];
    let histograms: [(&str, &str, Histogram); 2] = [
        ("vector_search_latency_seconds", "Time of a search.", |c| &c.search_latency),
        ("vector_insert_latency_seconds", "Time of a write, or of a bulk build.", |c| &c.insert_latency),
    ];
    for (name, help, values) in histograms {
        page.family(name, "histogram", help);
        for collection in collections {
            let labels = [("collection", collection.name.as_str())];
            let values = values(collection);
            for (le, count) in LATENCY_LE.into_iter().zip(values) {
                page.bucket(name, &labels, le, *count);
            }
            page.histogram_end(name, &labels, values[9], values[10]);
        }
    }
}

/// Prometheus text under construction. Names are given without the prefix.
pub(crate) struct Page<'p> {
    prefix: &'p str,
    pub(crate) out: String,
}

impl<'p> Page<'p> {
    /// An empty one, with room for some bytes.
    pub(crate) fn new(prefix: &'p str, capacity: usize) -> Page<'p> {
        Page { prefix, out: String::with_capacity(capacity) }
    }

    /// Starts a family; each is started once, with all its samples right behind it.
    pub(crate) fn family(&mut self, name: &str, kind: &str, help: &str) {
        let prefix = self.prefix;
        let _ = writeln!(self.out, "# HELP {prefix}_{name} {help}\n# TYPE {prefix}_{name} {kind}");
    }

    pub(crate) fn sample(&mut self, name: &str, labels: &[(&str, &str)], value: impl std::fmt::Display) {
        let _ = write!(self.out, "{}_{name}", self.prefix);
        for (index, (label, text)) in labels.iter().enumerate() {
            self.out.push(if index == 0 { '{' } else { ',' });
            let _ = write!(self.out, "{label}=\"");
            for character in text.chars() {
                match character {
                    '\\' => self.out.push_str("\\\\"),
                    '"' => self.out.push_str("\\\""),
                    '\n' => self.out.push_str("\\n"),
                    other => self.out.push(other),
                }
            }
            self.out.push('"');
        }
        if !labels.is_empty() {
            self.out.push('}');
        }
        let _ = writeln!(self.out, " {value}");
    }

    fn bucket(&mut self, name: &str, labels: &[(&str, &str)], le: &str, cumulative: u64) {
        let mut with_le = labels.to_vec();
        with_le.push(("le", le));
        self.sample(&format!("{name}_bucket"), &with_le, cumulative);
    }

    fn histogram_end(&mut self, name: &str, labels: &[(&str, &str)], count: u64, sum_us: u64) {
        self.bucket(name, labels, "+Inf", count);
        self.sample(&format!("{name}_sum"), labels, sum_us as f64 / 1e6);
        self.sample(&format!("{name}_count"), labels, count);
    }
}

/// Resident bytes and CPU seconds of this process.
fn process_usage() -> Option<(u64, f64)> {
    let statm = std::fs::read_to_string("/proc/self/statm").ok()?;
    let pages: u64 = statm.split_ascii_whitespace().nth(1)?.parse().ok()?;
    // SAFETY: both calls only read system state; `usage` is plain data, fully written by a successful getrusage.
    let (page_bytes, usage) = unsafe {
        let mut usage: libc::rusage = std::mem::zeroed();
        if libc::getrusage(libc::RUSAGE_SELF, &mut usage) != 0 {
            return None;
        }
        (libc::sysconf(libc::_SC_PAGESIZE), usage)
    };
    let seconds = |time: libc::timeval| time.tv_sec as f64 + time.tv_usec as f64 / 1e6;
    Some((pages * page_bytes.max(0) as u64, seconds(usage.ru_utime) + seconds(usage.ru_stime)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashSet;

    #[test]
    fn buckets_hold_what_they_say() {
        for us in [0, 1, 15, 16, 17, 19, 20, 31, 32, 1000, 123_456, 16_777_215] {
            let latency = Latency::new();
            latency.record(Duration::from_micros(us));
            let bucket = latency.buckets.iter().position(|count| count.load(Ordering::Relaxed) == 1).unwrap();
            assert!(us < Latency::bound_us(bucket), "{us} in bucket {bucket}");
            assert!(bucket == 0 || us >= Latency::bound_us(bucket - 1), "{us} in bucket {bucket}");
        }
        let latency = Latency::new();
        latency.record(Duration::from_secs(60));
        assert_eq!(latency.buckets[BUCKETS].load(Ordering::Relaxed), 1);
    }

    #[test]
    fn page_is_valid() {
        let telemetry = Telemetry::new(2);
        telemetry.core(1).searches.record(Duration::from_millis(2));
        (0..2).for_each(|core| telemetry.tcp.spend(core, counters::Stage::Log, Duration::from_millis(750)));
        telemetry.core(0).answered(200);
        telemetry.core(1).answered(404);
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
