//! Counters of the binary front end, for the metrics page.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;

/// What is counted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Count {
    /// Connections that were accepted.
    Accepted,
    /// Connections turned away because too many were open or there was no memory for them.
    Refused,
    /// Connections cut for being slow or idle.
    TimedOut,
    /// Requests answered, those that were no requests included.
    Requests,
    /// Rounds: requests that arrived together and were answered together.
    Rounds,
    /// Messages to other cores with requests about their keys.
    Batches,
    /// Requests in those messages.
    BatchedRequests,
    /// Bytes received.
    BytesReceived,
    /// Bytes sent.
    BytesSent,
    /// Calls of `recv`.
    Receives,
    /// Calls of `send`.
    Sends,
    /// Calls of `io_uring_enter` for completion loops.
    Enters,
}

/// Name, description and what it is, of every counter.
pub const FAMILIES: [(Count, &str, &str); 12] = [
    (Count::Accepted, "tcp_connections_total", "Accepted TCP connections."),
    (
        Count::Refused,
        "tcp_connections_refused_total",
        "TCP connections turned away because too many were open or there was no memory for them.",
    ),
    (Count::TimedOut, "tcp_connections_timed_out_total", "TCP connections cut for being slow or idle."),
    (Count::Requests, "tcp_requests_total", "TCP requests answered."),
    (Count::Rounds, "tcp_rounds_total", "Rounds: TCP requests that arrived together count as one."),
    (Count::Batches, "tcp_batches_total", "Messages to other cores with TCP requests about their keys."),
    (Count::BatchedRequests, "tcp_batched_requests_total", "TCP requests in messages to other cores."),
    (Count::BytesReceived, "tcp_received_bytes_total", "Bytes received over TCP."),
    (Count::BytesSent, "tcp_sent_bytes_total", "Bytes sent over TCP."),
    (Count::Receives, "tcp_receive_calls_total", "System calls that receive over TCP."),
    (Count::Sends, "tcp_send_calls_total", "System calls that send over TCP."),
    (Count::Enters, "tcp_enter_calls_total", "System calls of completion loops (-epoll=false)."),
];

/// Where the time of rounds goes, from the moment their connection was woken to their last byte handed to the system.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stage {
    /// Taking bytes from the socket and requests out of them.
    Receive,
    /// Waiting while other connections of the core had their turn.
    Turn,
    /// Carrying out, on this core.
    Run,
    /// Waiting for the cores that own keys, without the wait for their logs.
    Owners,
    /// Operations on collections, whatever they did and waited for.
    Collections,
    /// Waiting for the log.
    Log,
    /// Handing responses to the system, and waiting for clients that take none.
    Send,
}

/// Every stage, and what the metrics page calls it.
pub const STAGES: [(Stage, &str); 7] = [
    (Stage::Receive, "receive"),
    (Stage::Turn, "turn"),
    (Stage::Run, "run"),
    (Stage::Owners, "owners"),
    (Stage::Collections, "collections"),
    (Stage::Log, "log"),
    (Stage::Send, "send"),
];

/// Counters of one core, which alone writes them, on cache lines of their own.
#[derive(Default)]
#[repr(align(128))]
struct OfCore {
    counts: [AtomicU64; FAMILIES.len()],
    nanoseconds: [AtomicU64; STAGES.len()],
}

/// Called by the one writer, so that a plain load and store are enough.
fn add(counter: &AtomicU64, amount: u64) {
    counter.store(counter.load(Relaxed).wrapping_add(amount), Relaxed);
}

/// Counters of the process.
pub struct Counters {
    cores: Vec<OfCore>,
    /// Open connections; every core adds and subtracts, once in the life of each.
    open: AtomicU64,
}

impl Counters {
    /// For `cores` cores.
    pub fn new(cores: usize) -> Counters {
        Counters { cores: (0..cores).map(|_| OfCore::default()).collect(), open: AtomicU64::new(0) }
    }

    /// Counts `amount` more on core `index`; called by that core alone.
    pub fn add(&self, index: usize, count: Count, amount: u64) {
        add(&self.cores[index].counts[count as usize], amount);
    }

    /// The sum over all cores.
    pub fn sum(&self, count: Count) -> u64 {
        self.cores.iter().map(|core| core.counts[count as usize].load(Relaxed)).sum()
    }

    /// Adds the time that a round of core `index` has spent in `stage`; called by that core alone.
    pub fn spend(&self, index: usize, stage: Stage, time: Duration) {
        // 64 bits of nanoseconds last for centuries of connections.
        add(&self.cores[index].nanoseconds[stage as usize], time.as_nanos() as u64);
    }

    /// The sum over all cores.
    pub fn spent(&self, stage: Stage) -> Duration {
        let of_core = |core: &OfCore| core.nanoseconds[stage as usize].load(Relaxed);
        Duration::from_nanos(self.cores.iter().map(of_core).sum())
    }

    /// Open connections.
    pub fn open(&self) -> u64 {
        self.open.load(Relaxed)
    }

    /// Counts one more open connection unless `most` are; whether it did.
    pub fn open_one(&self, most: u64) -> bool {
        let fits = self.open.fetch_add(1, Relaxed) < most;
        if !fits {
            self.close_one();
        }
        fits
    }

    /// One connection is gone.
    pub fn close_one(&self) {
        self.open.fetch_sub(1, Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_counter_has_a_place_and_a_name_of_its_own() {
        let counters = Counters::new(2);
        for (place, (count, name, _)) in FAMILIES.iter().enumerate() {
            assert_eq!(*count as usize, place, "{name}");
            assert_eq!(FAMILIES.iter().filter(|(_, other, _)| other == name).count(), 1);
            counters.add(place % 2, *count, place as u64);
        }
        for (place, (count, ..)) in FAMILIES.iter().enumerate() {
            assert_eq!(counters.sum(*count), place as u64);
        }
    }

    #[test]
    fn each_stage_has_a_place_and_a_name_of_its_own() {
        let counters = Counters::new(2);
        for (place, (stage, name)) in STAGES.iter().enumerate() {
            assert_eq!(*stage as usize, place, "{name}");
            assert_eq!(STAGES.iter().filter(|(_, other)| other == name).count(), 1);
            (0..2).for_each(|core| counters.spend(core, *stage, Duration::from_micros(place as u64)));
        }
        for (place, (stage, _)) in STAGES.iter().enumerate() {
            assert_eq!(counters.spent(*stage), Duration::from_micros(2 * place as u64));
        }
    }

    #[test]
    fn no_more_are_open_than_may_be() {
        let counters = Counters::new(1);
        assert_eq!([counters.open_one(2), counters.open_one(2), counters.open_one(2)], [true, true, false]);
        counters.close_one();
        assert_eq!((counters.open(), counters.open_one(2)), (1, true));
    }
}
