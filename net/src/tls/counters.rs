//! Counters of handshakes, for the metrics page.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// How a handshake ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ended {
    /// The client and the server agreed on new keys, and checked certificates.
    Full,
    /// The client went on with an earlier session.
    Resumed,
    /// The client did not speak TLS, broke the protocol, was not trusted, left, or took too long.
    Failed,
    /// It did not begin, because too many were under way.
    Refused,
}

impl Ended {
    const ALL: [(Ended, &'static str); 4] = [
        (Ended::Full, "full"),
        (Ended::Resumed, "resumed"),
        (Ended::Failed, "failed"),
        (Ended::Refused, "refused"),
    ];
}

/// How the handshakes of a process ended.
#[derive(Debug, Default)]
pub struct HandshakeCounters([AtomicU64; Ended::ALL.len()]);

impl HandshakeCounters {
    /// A handshake has ended.
    pub fn add(&self, ended: Ended) {
        self.0[ended as usize].fetch_add(1, Relaxed);
    }

    /// Each count with its name.
    pub fn all(&self) -> [(&'static str, u64); Ended::ALL.len()] {
        Ended::ALL.map(|(ended, name)| (name, self.0[ended as usize].load(Relaxed)))
    }
}
