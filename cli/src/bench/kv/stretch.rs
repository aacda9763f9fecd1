//! One stretch of load: threads that generate it, and what both sides spent on it.
use super::connection::Connection;
use super::generator::{Generator, Plan, Shared};
use super::measure::{Tally, own_cpu, resident_of};
use super::options::Options;
use super::protocol::Protocol;
use super::workload::{Arrivals, Distribution, Draws, Keys, Schedule, Values};
use crate::bench::processor_wait::ProcessorWait;
use crate::tls::connector::Connector;
use crate::tls::explain;
use nigh_shard::system::cpu_of;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

/// Requests of a connection while the key space is filled: as many as a Nigh server reads ahead.
const FILL_DEPTH: usize = 64;
/// Bytes of a batch while the key space is filled, so that large values do not make huge ones.
const FILL_BATCH_BYTES: usize = 1 << 20;
/// How often progress is shown.
const PROGRESS: Duration = Duration::from_millis(50);

/// What all stretches of a run have in common.
pub struct Setup<'a, P> {
    /// Encoder and parser.
    pub protocol: &'a P,
    /// host:port.
    pub address: &'a str,
    /// What makes connections speak TLS; `None` for plain text.
    pub tls: Option<&'a Arc<Connector>>,
    /// Flags, checked.
    pub options: &'a Options,
    /// Which keys are asked for.
    pub distribution: Distribution,
    /// The value of every key.
    pub values: Values,
}

/// What the processors were used for during the measured time.
#[derive(Clone, Copy, Debug, Default)]
pub struct Spent {
    /// Length of the measured time as it was.
    pub wall: Duration,
    /// CPU time of this process.
    pub own_cpu: Duration,
    /// What generator threads waited for a processor; `None` where the kernel does not tell.
    pub own_wait: Option<Duration>,
    /// CPU time of the server; `None` without `--pid`, or when it has ended.
    pub server_cpu: Option<Duration>,
    /// The server's resident memory at the end.
    pub resident_bytes: Option<u64>,
}

/// One reading of the clocks.
struct Reading {
    at: Instant,
    own_cpu: Duration,
    server_cpu: Option<Duration>,
}

impl<P: Protocol> Setup<'_, P> {
    /// SETs every key once; `progress` is told how many are. Returns what it took.
    ///
    /// # Errors
    /// Of a connection, and the first unexpected answer.
    pub fn fill(&self, progress: &dyn Fn(u64)) -> Result<Duration, String> {
        let options = self.options;
        let depth = (FILL_BATCH_BYTES / self.values.max().max(1)).clamp(1, FILL_DEPTH);
        let threads = options.threads as u64;
        let share =
            |thread: u64| (u128::from(options.keys) * u128::from(thread) / u128::from(threads)) as u64;
        let plan = |thread: usize| Plan::Fill(share(thread as u64)..share(thread as u64 + 1));
        let start = Instant::now();
        let (tally, _) = self.carry_out(depth, false, None, &plan, progress)?;
        match tally.first_error {
            Some(error) => Err(format!("filling: {error}")),
            None => Ok(start.elapsed()),
        }
    }

    /// One stretch of the closed loop, or of the open one at `rate`; `progress` is told the measured milliseconds.
    ///
    /// # Errors
    /// Of a connection. Unexpected answers are counted instead.
    pub fn measure(
        &self,
        rate: Option<(f64, Arrivals)>,
        (warmup, measured): (Duration, Duration),
        progress: &dyn Fn(u64),
    ) -> Result<(Tally, Spent), String> {
        let options = self.options;
        let plan = |thread: usize| {
            let draws =
                Draws::new(options.seed, thread as u64, options.keys, self.distribution, options.reads);
            match rate {
                None => Plan::Closed(draws),
                Some((rate, arrivals)) => {
                    Plan::Open(draws, Schedule::new(arrivals, rate, options.seed, thread, options.threads))
                }
            }
        };
        self.carry_out(options.pipeline, rate.is_some(), Some((warmup, measured)), &plan, progress)
    }

    fn connect(&self, depth: usize) -> Result<Vec<Vec<Connection>>, String> {
        let mut shares: Vec<Vec<Connection>> = (0..self.options.threads).map(|_| Vec::new()).collect();
        for index in 0..self.options.connections {
            let opened = Connection::open(self.address, self.tls, depth, self.values.max());
            let connection = opened.map_err(|error| {
                let what =
                    format!("connection {} of {} to {}", index + 1, self.options.connections, self.address);
                explain::not_connected(&what, &error, "--address")
            })?;
            shares[index % self.options.threads].push(connection);
        }
        Ok(shares)
    }

    fn carry_out(
        &self,
        depth: usize,
        open: bool,
        times: Option<(Duration, Duration)>,
        plan: &(dyn Fn(usize) -> Plan + Sync),
        progress: &dyn Fn(u64),
    ) -> Result<(Tally, Spent), String> {
        let shares = self.connect(depth)?;
        let (stop, filled) = (AtomicBool::new(false), AtomicU64::new(0));
        let window = match times {
            None => (0, 0),
            Some((warmup, measured)) => (warmup.as_nanos() as u64, (warmup + measured).as_nanos() as u64),
        };
        let start = Instant::now();
        let shared = Shared {
            protocol: self.protocol,
            values: &self.values,
            verify: self.options.verify,
            open,
            depth,
            start,
            window,
            stop: &stop,
            filled: &filled,
        };
        let waits: Vec<OnceLock<ProcessorWait>> = shares.iter().map(|_| OnceLock::new()).collect();
        std::thread::scope(|scope| {
            let workers: Vec<_> = shares
                .into_iter()
                .zip(&waits)
                .enumerate()
                .map(|(thread, (connections, wait))| {
                    let (shared, keys) = (&shared, Keys::new(self.options.key_size));
                    scope.spawn(move || {
                        // Set once, here.
                        let _ = wait.set(ProcessorWait::of_this_thread());
                        let result = Generator::new(shared, connections, keys)
                            .and_then(|generator| generator.run(plan(thread)));
                        if result.is_err() {
                            // A figure without one of its connections means nothing: all end.
                            shared.stop.store(true, Ordering::Relaxed);
                        }
                        // Read here: nobody can any more when the thread has ended.
                        (result, wait.get().and_then(ProcessorWait::total))
                    })
                })
                .collect();
            let spent = match times {
                None => {
                    while !workers.iter().all(|worker| worker.is_finished()) {
                        std::thread::sleep(PROGRESS);
                        progress(filled.load(Ordering::Relaxed));
                    }
                    Spent::default()
                }
                Some((warmup, measured)) => {
                    sleep_until(start + warmup, &stop, &|| ());
                    let before = self.read();
                    let own_wait = waits.iter().map(|wait| wait.get()?.total()).sum();
                    sleep_until(start + warmup + measured, &stop, &|| {
                        progress(before.at.elapsed().as_millis() as u64)
                    });
                    // What threads had waited for when measuring began, for now.
                    Spent { own_wait, ..self.spent(&before, &self.read()) }
                }
            };
            let mut total = Tally::new();
            let mut waited = Some(Duration::ZERO);
            for worker in workers {
                let (result, wait) = worker.join().map_err(|_| "a generator thread panicked".to_owned())?;
                total.add(&result.map_err(|error| format!("{}: {error}", self.address))?);
                waited = waited.zip(wait).map(|(sum, wait)| sum + wait);
            }
            let own_wait = waited.zip(spent.own_wait).map(|(end, begin)| end.saturating_sub(begin));
            Ok((total, Spent { own_wait, ..spent }))
        })
    }

    fn read(&self) -> Reading {
        Reading { own_cpu: own_cpu(), server_cpu: self.options.pid.and_then(cpu_of), at: Instant::now() }
    }

    fn spent(&self, before: &Reading, after: &Reading) -> Spent {
        Spent {
            wall: after.at - before.at,
            own_cpu: after.own_cpu.saturating_sub(before.own_cpu),
            own_wait: None,
            server_cpu: after
                .server_cpu
                .zip(before.server_cpu)
                .map(|(after, before)| after.saturating_sub(before)),
            resident_bytes: self.options.pid.and_then(resident_of),
        }
    }
}

/// Sleeps until `end`, less when `stop` is set.
fn sleep_until(end: Instant, stop: &AtomicBool, progress: &dyn Fn()) {
    while !stop.load(Ordering::Relaxed) {
        let rest = end.saturating_duration_since(Instant::now());
        if rest.is_zero() {
            return;
        }
        std::thread::sleep(rest.min(PROGRESS));
        progress();
    }
}
