//! The account of memory: what the process holds, by use, against one limit.
//!
//! Collections and keys are measured now and then and told with [`Account::measured`]. Memory that is taken for a while, such as a body or an
//! answer, is meant to be a [`Charge`], which gives it back when it is dropped; nothing takes one yet.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// What memory is held for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MemoryUse {
    /// Points of collections: vectors, payloads, indexes.
    Collections,
    /// The key-value store.
    Keys,
    /// Bytes of requests that are received or carried out.
    Requests,
    /// Bytes of responses that are made and that the client has not taken.
    Answers,
    /// What a start reads from logs and images and has not applied.
    Replay,
    /// Images being written.
    Images,
}

impl MemoryUse {
    /// Every use, in the order of the metrics page.
    pub const ALL: [MemoryUse; 6] = [
        MemoryUse::Collections,
        MemoryUse::Keys,
        MemoryUse::Requests,
        MemoryUse::Answers,
        MemoryUse::Replay,
        MemoryUse::Images,
    ];

    /// Its name on the metrics page.
    pub fn name(self) -> &'static str {
        match self {
            MemoryUse::Collections => "collections",
            MemoryUse::Keys => "keys",
            MemoryUse::Requests => "requests",
            MemoryUse::Answers => "answers",
            MemoryUse::Replay => "replay",
            MemoryUse::Images => "images",
        }
    }
}

/// What the process holds, by use. Every operation is one or two atomic additions; totals may be a moment old.
#[derive(Debug)]
pub struct Account {
    limit_bytes: u64,
    held: [AtomicU64; MemoryUse::ALL.len()],
}

impl Account {
    /// An account of which nothing is used, with a limit in bytes.
    pub fn new(limit_bytes: u64) -> Arc<Account> {
        Arc::new(Account { limit_bytes, held: Default::default() })
    }

    /// The limit in bytes.
    pub fn limit_bytes(&self) -> u64 {
        self.limit_bytes
    }

    /// Bytes held for one use.
    pub fn held(&self, of: MemoryUse) -> u64 {
        self.held[of as usize].load(Relaxed)
    }

    /// Bytes held for all uses.
    pub fn total(&self) -> u64 {
        MemoryUse::ALL.iter().map(|of| self.held(*of)).sum()
    }

    /// Takes `bytes` for a use that may hold `most` in all; `None`, and nothing is taken, when that or the limit would be exceeded.
    pub fn charge(self: &Arc<Self>, of: MemoryUse, bytes: u64, most: u64) -> Option<Charge> {
        let mut charge = Charge { account: self.clone(), of, bytes: 0 };
        charge.resize(bytes, most).then_some(charge)
    }

    /// Replaces what one holder had been measured at by what it has now.
    pub fn measured(&self, of: MemoryUse, before: u64, now: u64) {
        self.held[of as usize].fetch_add(now.wrapping_sub(before), Relaxed);
    }

    fn take(&self, of: MemoryUse, bytes: u64, most: u64) -> bool {
        let of_use = self.held[of as usize].fetch_add(bytes, Relaxed).saturating_add(bytes);
        let fits = of_use <= most && self.total() <= self.limit_bytes;
        if !fits {
            self.held[of as usize].fetch_sub(bytes, Relaxed);
        }
        fits
    }
}

/// Memory that is taken from an [`Account`] until it is dropped.
#[derive(Debug)]
pub struct Charge {
    account: Arc<Account>,
    of: MemoryUse,
    bytes: u64,
}

impl Charge {
    /// Bytes taken.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Holds `bytes` from now on; false, and nothing has changed, when that is more and the use would hold more than `most` or the process more
    /// than its limit.
    pub fn resize(&mut self, bytes: u64, most: u64) -> bool {
        if bytes > self.bytes && !self.account.take(self.of, bytes - self.bytes, most) {
            return false;
        }
        if bytes < self.bytes {
            self.account.held[self.of as usize].fetch_sub(self.bytes - bytes, Relaxed);
        }
        self.bytes = bytes;
        true
    }
}

impl Drop for Charge {
    fn drop(&mut self) {
        self.account.held[self.of as usize].fetch_sub(self.bytes, Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn charges_are_bounded_by_use_and_in_all_and_given_back() {
        let account = Account::new(1000);
        account.measured(MemoryUse::Collections, 0, 700);
        let mut one = account.charge(MemoryUse::Answers, 150, 200).expect("it fits");
        assert!(account.charge(MemoryUse::Answers, 100, 200).is_none(), "more than the use may hold");
        assert!(account.charge(MemoryUse::Requests, 151, 1000).is_none(), "more than the limit");
        assert!(one.resize(200, 200) && !one.resize(201, 200) && one.bytes() == 200);
        assert!(one.resize(10, 200));
        assert_eq!((account.held(MemoryUse::Answers), account.total()), (10, 710));
        account.measured(MemoryUse::Collections, 700, 2000);
        assert!(one.resize(5, 200), "giving back is never refused");
        assert!(!one.resize(6, 200));
        drop(one);
        account.measured(MemoryUse::Collections, 2000, 0);
        assert_eq!(account.total(), 0);
    }
}
