//! Failures on demand.
use std::io;

/// Which calls a planned failure counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Calls {
    /// `write_at`.
    Write,
    /// `sync` of a file.
    Sync,
    /// The sync of a directory behind a change of names in it: the change is done, and may be lost.
    NameSync,
    /// Everything else.
    Other,
    /// All of them.
    Any,
}

/// How a call fails.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Failure {
    /// EIO, nothing done.
    Io,
    /// EIO after part of a write was done.
    Short,
    /// ENOSPC, nothing done.
    NoSpace,
}

impl Failure {
    /// The error a caller sees.
    pub(super) fn error(self) -> io::Error {
        io::Error::from_raw_os_error(match self {
            Failure::Io | Failure::Short => libc::EIO,
            Failure::NoSpace => libc::ENOSPC,
        })
    }
}

/// Counters and plans.
#[derive(Default)]
pub(super) struct Faults {
    write: u64,
    sync: u64,
    name_sync: u64,
    other: u64,
    plans: Vec<(Calls, u64, Failure)>,
}

impl Faults {
    pub(super) fn plan(&mut self, calls: Calls, skip: u64, failure: Failure) {
        self.plans.push((calls, self.count(calls) + skip, failure));
    }

    pub(super) fn forget(&mut self) {
        self.plans.clear();
    }

    pub(super) fn count(&self, calls: Calls) -> u64 {
        match calls {
            Calls::Write => self.write,
            Calls::Sync => self.sync,
            Calls::NameSync => self.name_sync,
            Calls::Other => self.other,
            Calls::Any => self.write + self.sync + self.name_sync + self.other,
        }
    }

    /// Counts a call of kind `calls` (not `Any`); the failure planned for it, once.
    pub(super) fn enter(&mut self, calls: Calls) -> Option<Failure> {
        let hit = self.plans.iter().position(|&(planned, at, _)| {
            (planned == calls || planned == Calls::Any) && at == self.count(planned)
        });
        match calls {
            Calls::Write => self.write += 1,
            Calls::Sync => self.sync += 1,
            Calls::NameSync => self.name_sync += 1,
            Calls::Other | Calls::Any => self.other += 1,
        }
        hit.map(|index| self.plans.swap_remove(index).2)
    }
}
