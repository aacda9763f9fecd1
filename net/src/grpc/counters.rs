//! Counters of the gRPC front end, for the metrics page.

use crate::grpc::status::Code;
use crate::op::table::{GRPC_METHODS, grpc_methods};
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// Called by the one writer, so that a plain load and store are enough.
fn add(counter: &AtomicU64, amount: u64) {
    counter.store(counter.load(Relaxed).wrapping_add(amount), Relaxed);
}

/// Counters of one core, which alone writes them, on cache lines of their own.
#[repr(align(128))]
struct OfCore {
    open: AtomicU64,
    accepted: AtomicU64,
    refused: AtomicU64,
    timed_out: AtomicU64,
    /// Calls by the number of their method.
    calls: [AtomicU64; GRPC_METHODS],
    /// Ends of all calls, those of no method included.
    ends: [AtomicU64; Code::ALL.len()],
}

/// What is counted of connections.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Connections {
    /// Open now.
    Open,
    /// Accepted so far.
    Accepted,
    /// Turned away so far.
    Refused,
    /// Cut so far for being slow, idle or a flood.
    TimedOut,
}

/// Counters of the process.
pub struct Counters {
    cores: Vec<OfCore>,
}

impl Counters {
    /// For `cores` cores.
    pub fn new(cores: usize) -> Counters {
        let zero = |_| AtomicU64::new(0);
        let of_core = |_| OfCore {
            open: zero(0),
            accepted: zero(0),
            refused: zero(0),
            timed_out: zero(0),
            calls: std::array::from_fn(zero),
            ends: std::array::from_fn(zero),
        };
        Counters { cores: (0..cores).map(of_core).collect() }
    }

    /// A connection of core `index` was accepted; called by that core alone, as are those below.
    pub fn accepted(&self, index: usize) {
        add(&self.cores[index].accepted, 1);
    }

    /// So many connections of core `index` are open now.
    pub fn open(&self, index: usize, open: usize) {
        self.cores[index].open.store(open as u64, Relaxed);
    }

    /// A connection was turned away.
    pub fn refused(&self, index: usize) {
        add(&self.cores[index].refused, 1);
    }

    /// Connections were cut.
    pub fn timed_out(&self, index: usize, count: u64) {
        add(&self.cores[index].timed_out, count);
    }

    /// A call has ended, of the method with this number, `None` = of no method of the service.
    pub fn ended(&self, index: usize, method: Option<usize>, code: Code) {
        if let Some(method) = method {
            add(&self.cores[index].calls[method], 1);
        }
        add(&self.cores[index].ends[code as usize], 1);
    }

    fn sum(&self, counter: impl Fn(&OfCore) -> &AtomicU64) -> u64 {
        self.cores.iter().map(|core| counter(core).load(Relaxed)).sum()
    }

    /// Connections of all cores.
    pub fn connections(&self, what: Connections) -> u64 {
        self.sum(|core| match what {
            Connections::Open => &core.open,
            Connections::Accepted => &core.accepted,
            Connections::Refused => &core.refused,
            Connections::TimedOut => &core.timed_out,
        })
    }

    /// Calls that have ended, by method.
    pub fn calls(&self) -> impl Iterator<Item = (&'static str, u64)> {
        let numbered = grpc_methods().enumerate();
        numbered.map(|(number, (_, method))| (method.name, self.sum(|core| &core.calls[number])))
    }

    /// Calls that have ended, by code.
    pub fn ends(&self) -> impl Iterator<Item = (Code, u64)> {
        Code::ALL.into_iter().map(|code| (code, self.sum(|core| &core.ends[code as usize])))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn calls_are_counted_by_method_and_by_code() {
        let counters = Counters::new(2);
        let search = grpc_methods().position(|(_, method)| method.name == "Search");
        counters.ended(0, search, Code::Ok);
        counters.ended(1, search, Code::NotFound);
        counters.ended(1, None, Code::Unimplemented);
        assert_eq!(counters.calls().find(|(name, _)| *name == "Search"), Some(("Search", 2)));
        assert_eq!(counters.calls().map(|(_, count)| count).sum::<u64>(), 2);
        assert_eq!(counters.ends().map(|(_, count)| count).sum::<u64>(), 3);
        counters.open(0, 3);
        counters.open(1, 4);
        counters.timed_out(1, 2);
        let of = [Connections::Open, Connections::Accepted, Connections::Refused, Connections::TimedOut];
        assert_eq!(of.map(|what| counters.connections(what)), [7, 0, 0, 2]);
    }
}
