//! Flags of the key-value benchmark, their checks, and what they come to.
use super::workload::{Arrivals, Distribution, Sizes};
use crate::flags::{parse_bool, parse_bytes};
use crate::tls::flags::TlsFlags;
use clap::{ArgAction, Parser, ValueEnum};
use serde::Serialize;
use std::time::Duration;

/// What the binary protocol can carry in a SET with the longest key and token, rounded down; the others carry more.
const VALUE_BYTES_MAX: usize = 16_000_000;
/// Longest key that all three protocols take: memcached's bound.
const KEY_BYTES_MAX: usize = 250;
/// A server of ours accepts so many, and so does the default of Redis.
const CONNECTIONS_MAX: usize = 10_000;
/// Outstanding requests of a connection: far above what any server reads ahead, low enough that the queues of all
/// connections together stay small.
const PIPELINE_MAX: usize = 10_000;
const THREADS_MAX: usize = 256;
/// memcached reads a longer one as a date.
const MEMCACHED_TTL_MS_MAX: u64 = 30 * 24 * 3600 * 1000;
/// More than a processor can write; the due times of a rate without a bound would take as long to count as to wait for.
const RATE_MAX: f64 = 1e8;
/// Rates in one sweep: a typing error should not run for a day.
const SWEEP_STEPS_MAX: usize = 200;

/// Measures a key-value server: fills the key space if asked to, then sends GET and SET and checks every answer.
///
/// One tool for three protocols, so that servers can be compared. Each generator thread drives its connections by epoll;
/// CPU time of the generator is reported beside the results, since a generator that is busy measures itself.
#[derive(Clone, Debug, Parser)]
#[command(name = "nigh bench kv", args_override_self = true)]
pub struct Options {
    /// What the server speaks: nigh (binary TCP), memcached (meta commands) or redis (RESP2).
    #[arg(long, value_enum, default_value = "nigh", help_heading = "Target")]
    pub protocol: ProtocolName,
    /// Server, host:port; by default the usual port of the protocol on 127.0.0.1 (7000, 11211, 6379).
    #[arg(long, help_heading = "Target")]
    pub address: Option<String>,
    /// Token of a Nigh server that asks for one; without this flag it is taken from the variable NIGH_API_KEY, which
    /// does not show in the list of processes. The other protocols send none.
    #[arg(long, value_name = "SECRET", help_heading = "Target")]
    pub api_key: Option<String>,
    /// Process of the server, if it runs here: its CPU time per operation and its memory are reported.
    #[arg(long, help_heading = "Target")]
    pub pid: Option<u32>,
    /// The flags of TLS.
    #[command(flatten)]
    pub tls: TlsFlags,

    /// Key space: keys are numbered from 0.
    #[arg(long, default_value_t = 100_000, help_heading = "Workload")]
    pub keys: u64,
    /// Bytes of a key: zeros and the key's number in hexadecimal.
    #[arg(long, default_value_t = 16, help_heading = "Workload")]
    pub key_size: usize,
    /// Bytes of a value: N, or MIN-MAX, where each key has a size of its own that never changes.
    #[arg(long, default_value = "64", value_parser = parse_sizes, help_heading = "Workload")]
    pub value_size: Sizes,
    /// Which keys are asked for.
    #[arg(long, value_enum, default_value = "uniform", help_heading = "Workload")]
    pub distribution: DistributionName,
    /// Exponent of zipf: the key of rank r is asked for in proportion to 1 / r^s.
    #[arg(long, default_value_t = 0.99, help_heading = "Workload")]
    pub zipf_s: f64,
    /// Percentage of GET; the rest is SET.
    #[arg(long, default_value_t = 90.0, help_heading = "Workload")]
    pub reads: f64,
    /// Milliseconds that what is SET lives, 0 = for ever. memcached counts in seconds: rounded up.
    #[arg(long, default_value_t = 0, help_heading = "Workload")]
    pub ttl_ms: u64,
    /// SET every key once before anything is measured.
    #[arg(long, value_parser = parse_bool, action = ArgAction::Set, default_value = "false", help_heading = "Workload")]
    pub preload: bool,
    /// Compare every value read with what was written; without it its length is.
    #[arg(long, value_parser = parse_bool, action = ArgAction::Set, default_value = "false", help_heading = "Workload")]
    pub verify: bool,
    /// Where random choices begin: the same seed asks for the same keys at the same (open loop) times.
    #[arg(long, default_value_t = 1, help_heading = "Workload")]
    pub seed: u64,

    /// closed: each connection writes a batch of --pipeline requests and the next one when all of it is answered.
    /// open: requests are due at times fixed in advance, and latency counts from these.
    #[arg(long, value_enum, default_value = "closed", help_heading = "Load")]
    pub mode: Mode,
    /// Requests per second in total, open loop.
    #[arg(long, help_heading = "Load")]
    pub rate: Option<f64>,
    /// Open loop at several rates, one after the other, until the 99th percentile exceeds --sweep-p99-us: a list
    /// (10000,20000,50000) or a range in equal ratios, FROM-TOxRATIO (10000-200000x1.5).
    #[arg(long, value_parser = parse_sweep, help_heading = "Load")]
    pub sweep: Option<Sweep>,
    /// Where a sweep ends, microseconds.
    #[arg(long, default_value_t = 1000.0, help_heading = "Load")]
    pub sweep_p99_us: f64,
    /// How due times are spaced, open loop.
    #[arg(long, value_enum, default_value = "poisson", help_heading = "Load")]
    pub arrivals: Arrivals,
    /// Connections, over all threads.
    #[arg(long, default_value_t = 8, help_heading = "Load")]
    pub connections: usize,
    /// Requests in a batch (closed), most that are outstanding on one connection (open). A Nigh server reads 64 ahead.
    #[arg(long, default_value_t = 1, help_heading = "Load")]
    pub pipeline: usize,
    /// Generator threads; each owns an equal share of the connections.
    #[arg(long, default_value_t = 1, help_heading = "Load")]
    pub threads: usize,
    /// Seconds measured per stretch; 0 with --preload only fills.
    #[arg(long, default_value_t = 10.0, help_heading = "Load")]
    pub seconds: f64,
    /// Seconds in front of each stretch that are not measured.
    #[arg(long, default_value_t = 1.0, help_heading = "Load")]
    pub warmup: f64,

    /// Print one JSON object instead of a table.
    #[arg(long, value_parser = parse_bool, action = ArgAction::Set, default_value = "false", help_heading = "Output")]
    pub json: bool,
}

/// What the server speaks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum ProtocolName {
    /// Nigh's binary protocol.
    Nigh,
    /// memcached's meta commands.
    Memcached,
    /// RESP2.
    Redis,
}

impl ProtocolName {
    /// As the flag has it.
    pub fn name(self) -> &'static str {
        match self {
            ProtocolName::Nigh => "nigh",
            ProtocolName::Memcached => "memcached",
            ProtocolName::Redis => "redis",
        }
    }

    fn port(self) -> u16 {
        match self {
            ProtocolName::Nigh => 7000,
            ProtocolName::Memcached => 11211,
            ProtocolName::Redis => 6379,
        }
    }
}

/// Which keys are asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum DistributionName {
    /// All alike.
    Uniform,
    /// Few of them mostly.
    Zipf,
}

/// When requests leave.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Mode {
    /// When answers are in.
    Closed,
    /// When they are due.
    Open,
}

impl Mode {
    /// As the flag has it.
    pub fn name(self) -> &'static str {
        match self {
            Mode::Closed => "closed",
            Mode::Open => "open",
        }
    }
}

/// Rates of a sweep, ascending.
#[derive(Clone, Debug, PartialEq)]
pub struct Sweep(pub Vec<f64>);

fn parse_sizes(text: &str) -> Result<Sizes, String> {
    let size = |text: &str| match text.trim() {
        "0" => Ok(0),
        text => parse_bytes(text)
            .map(|bytes| usize::try_from(bytes).unwrap_or(usize::MAX))
            .map_err(|_| format!("{text:?} is not a size in bytes")),
    };
    let (min, max) = text.split_once('-').unwrap_or((text, text));
    let sizes = Sizes { min: size(min)?, max: size(max)? };
    match sizes.min <= sizes.max && sizes.max <= VALUE_BYTES_MAX {
        true => Ok(sizes),
        false => Err(format!("{text:?} is not N or MIN-MAX with at most {VALUE_BYTES_MAX} bytes")),
    }
}

fn parse_sweep(text: &str) -> Result<Sweep, String> {
    let rate = |text: &str| {
        let rate = text.trim().parse::<f64>().ok().filter(|rate| rate.is_finite() && *rate > 0.0);
        rate.ok_or_else(|| format!("{text:?} is not a rate greater than 0"))
    };
    let rates = match text.split_once('-') {
        None => text.split(',').map(rate).collect::<Result<Vec<f64>, String>>()?,
        Some((from, rest)) => {
            let (to, ratio) = rest.split_once('x').ok_or("a range is FROM-TOxRATIO")?;
            let (from, to, ratio) = (rate(from)?, rate(to)?, rate(ratio)?);
            if ratio <= 1.0 || to < from {
                return Err("a range ascends: FROM is at most TO, RATIO above 1".into());
            }
            // The end is met when the ratio leads there but for rounding.
            let steps = ((to / from).ln() / ratio.ln() + 1e-9).floor() as usize + 1;
            (0..steps.min(SWEEP_STEPS_MAX + 1)).map(|step| from * ratio.powi(step as i32)).collect()
        }
    };
    match (rates.len() <= SWEEP_STEPS_MAX, rates.is_sorted()) {
        (true, true) => Ok(Sweep(rates)),
        (false, _) => Err(format!("more than {SWEEP_STEPS_MAX} rates")),
        (_, false) => Err("rates ascend".into()),
    }
}

/// Options that were checked together, in the forms they are used in.
pub struct Checked {
    /// Not measured, in front.
    pub warmup: Duration,
    /// Measured.
    pub measured: Duration,
    /// Which keys are asked for.
    pub distribution: Distribution,
    /// Rates of the open loop, `None` for one stretch of the closed one.
    pub rates: Option<Vec<f64>>,
    /// host:port.
    pub address: String,
}

impl Options {
    /// Checks what one flag alone does not say.
    ///
    /// # Errors
    /// A sentence naming the flag.
    pub fn check(&self) -> Result<Checked, String> {
        let within = |name: &str, value: usize, max: usize| match (1..=max).contains(&value) {
            true => Ok(()),
            false => Err(format!("--{name} is 1 to {max}")),
        };
        within("connections", self.connections, CONNECTIONS_MAX)?;
        within("pipeline", self.pipeline, PIPELINE_MAX)?;
        within("threads", self.threads, THREADS_MAX)?;
        within("key-size", self.key_size, KEY_BYTES_MAX)?;
        if self.threads > self.connections {
            return Err("--threads is at most --connections: every thread has one".into());
        }
        if self.keys == 0 {
            return Err("--keys is at least 1".into());
        }
        let digits = hexadecimal_digits(self.keys - 1);
        if digits > self.key_size {
            return Err(format!("--key-size is at least {digits} for {} keys", self.keys));
        }
        if !(0.0..=100.0).contains(&self.reads) {
            return Err("--reads is a percentage, 0 to 100".into());
        }
        if !self.zipf_s.is_finite() || self.zipf_s <= 0.0 || self.zipf_s > 10.0 {
            return Err("--zipf-s is above 0 and at most 10".into());
        }
        if self.protocol == ProtocolName::Memcached && self.ttl_ms > MEMCACHED_TTL_MS_MAX {
            return Err("--ttl-ms is at most 30 days for memcached, which reads more as a date".into());
        }
        let span = |name: &str, seconds: f64| {
            Duration::try_from_secs_f64(seconds).map_err(|error| format!("--{name} {seconds}: {error}"))
        };
        let (warmup, measured) = (span("warmup", self.warmup)?, span("seconds", self.seconds)?);
        if measured.is_zero() && !self.preload {
            return Err("--seconds 0 measures nothing; it needs --preload".into());
        }
        let too_fast = |rate: &f64| *rate > RATE_MAX;
        if self.rate.iter().chain(self.sweep.iter().flat_map(|sweep| &sweep.0)).any(too_fast) {
            return Err(format!("a rate is at most {RATE_MAX} requests per second"));
        }
        let rates = match (self.mode, self.rate, &self.sweep) {
            (_, Some(_), Some(_)) => return Err("--rate or --sweep, not both".into()),
            (_, None, Some(sweep)) => Some(sweep.0.clone()),
            (Mode::Closed, Some(_), None) => return Err("--rate needs --mode open".into()),
            (Mode::Closed, None, None) => None,
            (Mode::Open, Some(rate), None) if rate.is_finite() && rate > 0.0 => Some(vec![rate]),
            (Mode::Open, ..) => return Err("--mode open needs --rate, greater than 0, or --sweep".into()),
        };
        Ok(Checked {
            warmup,
            measured,
            distribution: match self.distribution {
                DistributionName::Uniform => Distribution::Uniform,
                DistributionName::Zipf => Distribution::Zipf(self.zipf_s),
            },
            rates,
            address: match &self.address {
                Some(address) => address.clone(),
                None => format!("127.0.0.1:{}", self.protocol.port()),
            },
        })
    }
}

/// Digits of a number.
fn hexadecimal_digits(number: u64) -> usize {
    (number.checked_ilog2().unwrap_or(0) / 4 + 1) as usize
}

#[cfg(test)]
mod tests {
    use super::*;

    fn options(flags: &[&str]) -> Options {
        Options::parse_from(std::iter::once("bench").chain(flags.iter().copied()))
    }

    #[test]
    fn sizes() {
        assert_eq!(parse_sizes("64"), Ok(Sizes { min: 64, max: 64 }));
        assert_eq!(parse_sizes("0-1KiB"), Ok(Sizes { min: 0, max: 1024 }));
        for text in ["", "-", "2-1", "x", "1-", "16000001", "-5"] {
            assert!(parse_sizes(text).is_err(), "{text:?}");
        }
    }

    #[test]
    fn sweeps() {
        assert_eq!(parse_sweep("1000,2500"), Ok(Sweep(vec![1000.0, 2500.0])));
        assert_eq!(parse_sweep("100-800x2"), Ok(Sweep(vec![100.0, 200.0, 400.0, 800.0])));
        assert_eq!(parse_sweep("100-799x2"), Ok(Sweep(vec![100.0, 200.0, 400.0])));
        for text in ["", "2000,1000", "0", "100-200", "200-100x2", "100-200x1", "1-1e300x1.001", "nan", "inf"]
        {
            assert!(parse_sweep(text).is_err(), "{text:?}");
        }
    }

    #[test]
    fn what_does_not_go_together_is_named() {
        for (flags, part) in [
            (&["--rate=5"][..], "--mode open"),
            (&["--mode=open"], "--rate"),
            (&["--mode=open", "--rate=0"], "--rate"),
            (&["--mode=open", "--rate=2e8"], "at most"),
            (&["--mode=open", "--rate=5", "--sweep=1,2"], "not both"),
            (&["--threads=9"], "--connections"),
            (&["--connections=0"], "--connections"),
            (&["--pipeline=10001"], "--pipeline"),
            (&["--keys=0"], "--keys"),
            (&["--keys=257", "--key-size=2"], "--key-size is at least 3"),
            (&["--reads=101"], "--reads"),
            (&["--zipf-s=0"], "--zipf-s"),
            (&["--seconds=0"], "--preload"),
            (&["--seconds=-1"], "--seconds"),
            (&["--protocol=memcached", "--ttl-ms=2592000001"], "30 days"),
        ] {
            let error = options(flags).check().err().unwrap_or_else(|| panic!("{flags:?} passed"));
            assert!(error.contains(part), "{flags:?}: {error}");
        }
        assert!(options(&["--keys=256", "--key-size=2"]).check().is_ok());
        assert_eq!(options(&["--sweep=1,2"]).check().unwrap().rates, Some(vec![1.0, 2.0]));
    }

    #[test]
    fn each_protocol_has_its_port() {
        for (protocol, address) in
            [("nigh", "127.0.0.1:7000"), ("memcached", "127.0.0.1:11211"), ("redis", "127.0.0.1:6379")]
        {
            assert_eq!(options(&["--protocol", protocol]).check().unwrap().address, address);
        }
        assert_eq!(options(&["--address=h:1"]).check().unwrap().address, "h:1");
    }
}
