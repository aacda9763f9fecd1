//! What a core tells the watchdog, and what the watchdog tells everybody.
//!
//! Each core owns one block of cache lines that only it writes (plain stores, no read-modify-write), so keeping it up to
//! date costs a core about a nanosecond per task poll. The watchdog reads it a thousand times a second.

use std::sync::atomic::{AtomicI32, AtomicU32, AtomicU64, Ordering::Relaxed};

/// What the core's thread is doing, as far as a stranger may judge it by it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub(super) enum CoreState {
    /// Runs tasks or its loop; must make progress.
    Running = 0,
    /// Waits on its bell and sockets with nothing runnable; may sleep for as long as the bell is armed.
    Idle = 1,
    /// The core loop sleeps in an executor timer; must move again soon after the deadline.
    Timer = 2,
    /// Not started yet, or ended.
    Absent = 3,
}

impl CoreState {
    fn from_u32(raw: u32) -> CoreState {
        match raw {
            0 => CoreState::Running,
            1 => CoreState::Idle,
            2 => CoreState::Timer,
            _ => CoreState::Absent,
        }
    }
}

/// The part of a core that other threads may read.
#[repr(align(128))]
pub(super) struct CoreCell {
    /// Moves with every task poll and every turn of the core loop.
    progress: AtomicU64,
    /// Tasks woken and not yet polled again.
    runnable_foreground: AtomicU32,
    runnable_background: AtomicU32,
    state: AtomicU32,
    /// With [`CoreState::Timer`], when it ends (monotonic ns).
    deadline_ns: AtomicU64,
    /// Kernel thread id, 0 before the thread runs.
    tid: AtomicI32,
    /// Longest background slice so far, ns.
    slice_longest_ns: AtomicU64,
    /// Written by the watchdog only, on a line of its own.
    watched: Watched,
}

#[repr(align(128))]
#[derive(Default)]
struct Watched {
    rescues: AtomicU64,
    stalls: AtomicU64,
    stall_longest_ns: AtomicU64,
    stall_busiest_ns: AtomicU64,
}

impl CoreCell {
    pub(super) fn new() -> CoreCell {
        CoreCell {
            progress: AtomicU64::new(0),
            runnable_foreground: AtomicU32::new(0),
            runnable_background: AtomicU32::new(0),
            state: AtomicU32::new(CoreState::Absent as u32),
            deadline_ns: AtomicU64::new(0),
            tid: AtomicI32::new(0),
            slice_longest_ns: AtomicU64::new(0),
            watched: Watched::default(),
        }
    }

    // Written by the owning core.

    pub(super) fn advance(&self) {
        self.progress.store(self.progress.load(Relaxed).wrapping_add(1), Relaxed);
    }
    pub(super) fn task_woken(&self, background: bool) {
        let runnable = self.runnable_of(background);
        runnable.store(runnable.load(Relaxed) + 1, Relaxed);
    }
    pub(super) fn task_taken(&self, background: bool) {
        let runnable = self.runnable_of(background);
        let count = runnable.load(Relaxed);
        debug_assert!(count > 0, "a task was taken that had not been counted as runnable");
        runnable.store(count - 1, Relaxed);
    }
    fn runnable_of(&self, background: bool) -> &AtomicU32 {
        if background { &self.runnable_background } else { &self.runnable_foreground }
    }
    pub(super) fn set_state(&self, state: CoreState) {
        self.state.store(state as u32, Relaxed);
    }
    pub(super) fn set_timer(&self, deadline_ns: u64) {
        self.deadline_ns.store(deadline_ns, Relaxed);
        self.set_state(CoreState::Timer);
    }
    pub(super) fn set_thread(&self, tid: i32) {
        self.tid.store(tid, Relaxed);
    }
    pub(super) fn slice_took(&self, ns: u64) {
        if ns > self.slice_longest_ns.load(Relaxed) {
            self.slice_longest_ns.store(ns, Relaxed);
        }
    }

    // Read by anyone.

    pub(super) fn progress(&self) -> u64 {
        self.progress.load(Relaxed)
    }
    pub(super) fn runnable_foreground(&self) -> u32 {
        self.runnable_foreground.load(Relaxed)
    }
    pub(super) fn runnable_background(&self) -> u32 {
        self.runnable_background.load(Relaxed)
    }
    pub(super) fn state(&self) -> CoreState {
        CoreState::from_u32(self.state.load(Relaxed))
    }
    pub(super) fn deadline_ns(&self) -> u64 {
        self.deadline_ns.load(Relaxed)
    }
    pub(super) fn thread(&self) -> i32 {
        self.tid.load(Relaxed)
    }

    // Written by the watchdog.

    pub(super) fn count_rescue(&self) {
        self.watched.rescues.fetch_add(1, Relaxed);
    }
    pub(super) fn count_stall(&self) {
        self.watched.stalls.fetch_add(1, Relaxed);
    }
    /// `busy_ns`: what the thread itself ran of it.
    pub(super) fn stalled_for(&self, ns: u64, busy_ns: u64) {
        self.watched.stall_longest_ns.fetch_max(ns, Relaxed);
        self.watched.stall_busiest_ns.fetch_max(busy_ns, Relaxed);
    }

    pub(super) fn health(&self) -> CoreHealth {
        CoreHealth {
            rescues: self.watched.rescues.load(Relaxed),
            stalls: self.watched.stalls.load(Relaxed),
            stall_longest_us: self.watched.stall_longest_ns.load(Relaxed) / 1000,
            stall_busiest_us: self.watched.stall_busiest_ns.load(Relaxed) / 1000,
            background_slice_longest_us: self.slice_longest_ns.load(Relaxed) / 1000,
        }
    }
}

/// One core's condition since the start.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CoreHealth {
    /// Times the watchdog woke an executor that slept with runnable tasks. With the default timer this stays 0.
    pub rescues: u64,
    /// Times the core made no progress for a stall's length (10 ms) while it had something to do.
    pub stalls: u64,
    /// The longest of those, microseconds (to a tick).
    pub stall_longest_us: u64,
    /// The most that the core's thread itself ran during one of them, microseconds: the rest of a stall it waited, for a CPU that
    /// the kernel gave to others, or for a disk or a lock. The whole stall where the kernel does not tell.
    pub stall_busiest_us: u64,
    /// Longest background slice, microseconds; slices are meant to end after 300.
    pub background_slice_longest_us: u64,
}

/// All cores' condition.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Health {
    /// By core index.
    pub cores: Vec<CoreHealth>,
}

impl Health {
    /// Sums of the counts, maxima of the lengths.
    pub fn total(&self) -> CoreHealth {
        self.cores.iter().fold(CoreHealth::default(), |sum, core| CoreHealth {
            rescues: sum.rescues + core.rescues,
            stalls: sum.stalls + core.stalls,
            stall_longest_us: sum.stall_longest_us.max(core.stall_longest_us),
            stall_busiest_us: sum.stall_busiest_us.max(core.stall_busiest_us),
            background_slice_longest_us: sum
                .background_slice_longest_us
                .max(core.background_slice_longest_us),
        })
    }
}
