//! One thread that looks at every core a few hundred times a second: stall detector, and belt against the parking bug.
//!
//! The executor can go to sleep with runnable tasks (its run loop takes a preemption request for an empty queue). The core
//! loop avoids the triggers; this catches what is left. A core that has something to do, has made no progress for a tick
//! and whose thread sleeps in a wait for events, seen twice 100 µs apart, gets a signal, which makes the wait return and
//! the executor's loop look again; once per tick until it moves. A thread that runs, or waits for a disk or a lock, is not
//! disturbed but counted when it takes long.
//!
//! While no core has anything to do the thread looks less and less often, down to [`REST`]. Only the default preemption
//! timer of the executor is used, with which no rescue has ever been seen, so a rescue may come that much later.

use super::clock::monotonic_ns;
use super::health::CoreState;
use super::inbox::CoreShared;
use crate::system;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::{Arc, Once};
use std::thread::JoinHandle;
use std::time::Duration;

/// Time between looks while a core is busy, and without progress before a look becomes a suspicion. A look costs some 20 µs
/// of a CPU, most of it for waking up.
const TICK: Duration = Duration::from_millis(4);
/// Longest time between looks while every core is idle.
const REST: Duration = Duration::from_millis(128);
const TICK_NS: u64 = TICK.as_nanos() as u64;
/// A suspicion must survive this long.
const CONFIRM: Duration = Duration::from_micros(100);
/// No progress for this long, with something to do, is a stall.
pub(super) const STALL_NS: u64 = 10_000_000;
/// A stall of this length is worth a line in the log.
const STALL_LOG_NS: u64 = 100_000_000;
/// But one line per core in this time says enough; it tells how many it stands for.
const LOG_PERIOD_NS: u64 = 10_000_000_000;
/// Its default action is to do nothing and no library uses it: an empty handler turns it into a pure interruption.
const RESCUE_SIGNAL: i32 = libc::SIGURG;

/// The running thread; stops when dropped.
pub(super) struct Watchdog {
    stop: Arc<AtomicBool>,
    /// Nobody is served yet, so nobody waits for a core that takes long.
    opening: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Watchdog {
    /// Watches `cores` from now on; stalls count from [`Self::opened`] when `opening`, else at once.
    pub(super) fn start(cores: Vec<Arc<CoreShared>>, opening: bool) -> std::io::Result<Watchdog> {
        install_handler();
        let stop = Arc::new(AtomicBool::new(false));
        let stopped = stop.clone();
        let opening = Arc::new(AtomicBool::new(opening));
        let still_opening = opening.clone();
        let thread = std::thread::Builder::new().name("nigh-watchdog".to_owned()).spawn(move || {
            let mut watches: Vec<Watch> = cores.into_iter().enumerate().map(Watch::new).collect();
            let mut pause = TICK;
            while !stopped.load(Relaxed) {
                std::thread::park_timeout(pause);
                let counts = !still_opening.load(Relaxed);
                // A core that was idle before a long pause may have begun anything during it: its time counts from now.
                let rested = pause > TICK;
                let mut idle = true;
                for watch in &mut watches {
                    idle &= watch.look(counts, rested);
                }
                pause = if idle { (pause * 2).min(REST) } else { TICK };
            }
        })?;
        Ok(Watchdog { stop, opening, thread: Some(thread) })
    }

    /// From now on a core that takes long keeps somebody waiting.
    pub(super) fn opened(&self) {
        self.opening.store(false, Relaxed);
    }
}

impl Drop for Watchdog {
    fn drop(&mut self) {
        self.stop.store(true, Relaxed);
        if let Some(thread) = self.thread.take() {
            thread.thread().unpark();
            // It only reads counters and sends signals; there is nothing in it that could fail.
            let _ = thread.join();
        }
    }
}

/// What the watchdog remembers about one core.
struct Watch {
    index: usize,
    core: Arc<CoreShared>,
    progress: u64,
    /// When it was last seen to move, or to have nothing to do.
    moved_ns: u64,
    rescued: bool,
    stalled: bool,
    /// What the thread had run when it was first suspected.
    ran_ns: Option<u64>,
    /// When a long stall was last logged, and how many there were since.
    logged_ns: Option<u64>,
    unlogged: u64,
}

impl Watch {
    fn new((index, core): (usize, Arc<CoreShared>)) -> Watch {
        Watch {
            index,
            core,
            progress: 0,
            moved_ns: monotonic_ns(),
            rescued: false,
            stalled: false,
            ran_ns: None,
            logged_ns: None,
            unlogged: 0,
        }
    }

    /// Returns whether the core has nothing to do and has done nothing since the last look.
    ///
    /// `counts`: whether a stall keeps anybody waiting. `rested`: the last look was longer ago than a tick, and the core was
    /// idle then.
    fn look(&mut self, counts: bool, rested: bool) -> bool {
        let now_ns = monotonic_ns();
        let progress = self.core.cell.progress();
        let still_ns = now_ns.saturating_sub(self.moved_ns);
        let may_sleep = self.may_sleep(now_ns);
        if progress != self.progress || may_sleep || rested {
            if self.stalled || self.rescued {
                let busy_ns = self.busy_ns().map_or(still_ns, |busy_ns| busy_ns.min(still_ns));
                self.core.cell.stalled_for(still_ns, busy_ns);
                self.report(now_ns, still_ns, busy_ns);
            }
            self.ran_ns = None;
            let unmoved = progress == self.progress;
            (self.progress, self.moved_ns) = (progress, now_ns);
            (self.rescued, self.stalled) = (false, false);
            return may_sleep && unmoved;
        }
        if still_ns < TICK_NS {
            return false;
        }
        if self.ran_ns.is_none() {
            self.ran_ns = ran_ns(self.core.cell.thread());
        }
        if self.sleeps_wrongly() {
            self.rescue();
        }
        if still_ns >= STALL_NS && !self.stalled && counts {
            self.stalled = true;
            self.core.cell.count_stall();
        }
        false
    }

    /// Whether the core has nothing to do, or is meant to wait.
    fn may_sleep(&self, now_ns: u64) -> bool {
        let cell = &self.core.cell;
        let runnable = cell.runnable_foreground() + cell.runnable_background() > 0;
        match cell.state() {
            CoreState::Absent => true,
            CoreState::Idle => !runnable && self.core.bell.is_armed(),
            CoreState::Timer => !runnable && now_ns <= cell.deadline_ns() + TICK_NS,
            CoreState::Running => false,
        }
    }

    /// Asleep now and a moment later, without progress in between.
    fn sleeps_wrongly(&self) -> bool {
        let thread = self.core.cell.thread();
        if !is_asleep(thread) {
            return false;
        }
        std::thread::sleep(CONFIRM);
        self.core.cell.progress() == self.progress && !self.may_sleep(monotonic_ns()) && is_asleep(thread)
    }

    fn rescue(&mut self) {
        if !self.rescued {
            self.rescued = true;
            self.core.cell.count_rescue();
        }
        system::signal_thread(self.core.cell.thread(), RESCUE_SIGNAL);
        // Should the sleep be an honest one on a bell whose ring was lost, this ends it.
        self.core.bell.ring_always();
    }

    /// What the thread has run since it stood still: the tick before it was suspected, and what the kernel says since.
    fn busy_ns(&self) -> Option<u64> {
        let since_ns = ran_ns(self.core.cell.thread())?.saturating_sub(self.ran_ns?);
        Some(since_ns + TICK_NS)
    }

    fn report(&mut self, now_ns: u64, still_ns: u64, busy_ns: u64) {
        let (core, still_ms, busy_ms) = (self.index, still_ns / 1_000_000, busy_ns / 1_000_000);
        if self.rescued {
            tracing::warn!(core, still_ms, "an executor slept with runnable tasks and was woken");
        } else if still_ns >= STALL_LOG_NS {
            if self.logged_ns.is_some_and(|logged_ns| now_ns < logged_ns + LOG_PERIOD_NS) {
                self.unlogged += 1;
                return;
            }
            self.logged_ns = Some(now_ns);
            let others = std::mem::take(&mut self.unlogged);
            tracing::warn!(
                core,
                still_ms,
                busy_ms,
                others,
                "a core made no progress: something ran for `busy_ms`, the rest it was blocked or the host gave the CPU to others"
            );
        }
    }
}

/// The CPU time a thread of this process has used so far. `None` when the kernel does not keep it, or the thread has ended.
fn ran_ns(thread: i32) -> Option<u64> {
    std::fs::read_to_string(format!("/proc/self/task/{thread}/schedstat"))
        .ok()?
        .split(' ')
        .next()?
        .parse()
        .ok()
}

/// Whether a thread of this process sleeps in one of the executor's or the core loop's own waits, as opposed to a lock, a
/// disk or some other call of the code it runs.
fn is_asleep(thread: i32) -> bool {
    let task = format!("/proc/self/task/{thread}");
    // The name in parentheses may contain anything, so the state is looked for after the last one.
    let sleeps = std::fs::read_to_string(format!("{task}/stat"))
        .ok()
        .and_then(|stat| Some(stat.get(stat.rfind(')')? + 2..)?.starts_with('S')))
        .unwrap_or(false);
    if !sleeps {
        return false;
    }
    // Not every kernel shows the system call. A needless signal is harmless, a missing one is not.
    match std::fs::read_to_string(format!("{task}/syscall")) {
        Ok(call) => is_wait(&call),
        Err(_) => true,
    }
}

/// Whether a line of /proc/.../syscall names a wait of ours; it starts with the number of the call.
fn is_wait(line: &str) -> bool {
    let number: Option<libc::c_long> = line.split(' ').next().and_then(|number| number.parse().ok());
    matches!(number, Some(libc::SYS_io_uring_enter | libc::SYS_epoll_pwait2))
}

/// Gives the rescue signal a handler that does nothing, without SA_RESTART, so that it interrupts waits.
fn install_handler() {
    static INSTALLED: Once = Once::new();
    INSTALLED.call_once(|| {
        let installed = system::interrupt_by(RESCUE_SIGNAL);
        debug_assert!(installed, "the signal exists and may be handled");
    });
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_thread_that_waits_for_events_is_told_from_one_that_runs_or_waits_for_a_lock() {
        let (send, receive) = std::sync::mpsc::channel();
        let step = Arc::new(AtomicBool::new(false));
        let spin = step.clone();
        let (ours, mut theirs) = std::os::unix::net::UnixStream::pair().unwrap();
        let thread = std::thread::Builder::new()
            .name("odd) S name".to_owned())
            .spawn(move || {
                send.send(rustix::thread::gettid().as_raw_nonzero().get()).unwrap();
                while !spin.load(Relaxed) {
                    std::hint::spin_loop();
                }
                let reactor = crate::reactor::Reactor::new().unwrap();
                reactor.watch(std::os::fd::AsFd::as_fd(&ours)).unwrap();
                while reactor.turn(1_000_000).unwrap() == 0 {}
                std::thread::park();
            })
            .unwrap();
        let id = receive.recv().unwrap();
        assert!(!is_asleep(id), "the thread spins");
        if let Some(before_ns) = ran_ns(id) {
            let patience = std::time::Instant::now();
            while ran_ns(id).unwrap() < before_ns + TICK_NS {
                assert!(patience.elapsed() < Duration::from_secs(10), "a thread that spins uses CPU time");
                std::thread::sleep(TICK);
            }
        }
        step.store(true, Relaxed);
        let patience = std::time::Instant::now();
        while !is_asleep(id) {
            assert!(patience.elapsed() < Duration::from_secs(10), "the thread never waited for events");
        }
        std::io::Write::write_all(&mut theirs, b"!").unwrap();
        while is_asleep(id) {
            assert!(
                patience.elapsed() < Duration::from_secs(10),
                "parked on a lock counts as waiting for events"
            );
        }
        thread.thread().unpark();
        thread.join().unwrap();
        assert!(!is_asleep(id), "the thread has ended");
    }

    #[test]
    fn calls_are_known_by_their_number() {
        assert!(is_wait(&format!("{} 0xb 0x0 0x1", libc::SYS_io_uring_enter)));
        assert!(is_wait(&format!("{} 0x4", libc::SYS_epoll_pwait2)));
        for line in ["running", "-1 0x7ffd 0x7f", "", "202 0x55e9 0x89"] {
            assert!(!is_wait(line), "{line:?}");
        }
    }

    #[test]
    fn only_a_core_with_something_to_do_must_move() {
        let core = Arc::new(CoreShared::new().unwrap());
        let watch = Watch::new((0, core.clone()));
        assert!(watch.may_sleep(0), "not started");
        core.cell.set_state(CoreState::Running);
        assert!(!watch.may_sleep(0));
        core.cell.set_state(CoreState::Idle);
        assert!(!watch.may_sleep(0), "idle, but its bell has been rung");
        core.bell.arm();
        assert!(watch.may_sleep(0));
        core.cell.task_woken(false);
        assert!(!watch.may_sleep(0), "idle with a runnable task");
        core.cell.task_taken(false);
        core.cell.set_timer(5_000_000);
        assert!(watch.may_sleep(5_000_000 + TICK_NS) && !watch.may_sleep(5_000_001 + TICK_NS));
    }

    #[test]
    fn an_idle_core_lets_the_watchdog_rest_and_the_time_of_a_busy_one_counts_from_the_first_look_at_it() {
        let core = Arc::new(CoreShared::new().unwrap());
        let mut watch = Watch::new((0, core.clone()));
        core.cell.set_state(CoreState::Idle);
        core.bell.arm();
        assert!(watch.look(true, false), "idle and unmoved");
        core.cell.advance();
        assert!(!watch.look(true, false), "idle again, but it has done something since");
        assert!(watch.look(true, true));
        // Long ago by the clock; but after a pause nobody knows since when the core has been busy.
        core.cell.set_state(CoreState::Running);
        watch.moved_ns -= 10 * STALL_NS;
        assert!(!watch.look(true, true));
        assert_eq!(core.cell.health().stalls, 0);
        watch.moved_ns -= 10 * STALL_NS;
        assert!(!watch.look(true, false));
        assert_eq!(core.cell.health().stalls, 1);
    }
}
