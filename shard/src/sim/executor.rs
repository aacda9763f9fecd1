//! The executor: ready tasks run in an order drawn from the seed, time moves only when nobody can run.
use super::Random;
use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::future::Future;
use std::pin::Pin;
use std::rc::Rc;
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, Wake, Waker};

/// Virtual time that passes with each poll. Above zero so that a task spinning on `yield_now` cannot keep a timer from
/// ever firing.
const POLL_NS: u64 = 200;
/// Wall clock at virtual time zero, Unix ms: an arbitrary day, the same in every run.
const EPOCH_UNIX_MS: u64 = 1_700_000_000_000;

/// Whether work takes time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Clock {
    /// Each step of a task takes `POLL_NS`.
    Running,
    /// Only sleeping takes time, however much is done: nothing that goes by the clock ever finds its slice used up. A task that
    /// spins without sleeping hangs the run.
    Frozen,
}

type TaskId = u64;
type LocalTask = Pin<Box<dyn Future<Output = ()>>>;

/// Handle on the running simulation: spawn, sleep, clock, randomness. Cheap to clone; lives on the simulation's thread.
#[derive(Clone)]
pub struct Sim {
    inner: Rc<Inner>,
}

struct Inner {
    random: Random,
    now_ns: Cell<u64>,
    look_ns: Cell<u64>,
    wall_offset_ms: Cell<i64>,
    next_task: Cell<TaskId>,
    next_timer: Cell<u64>,
    spawned: RefCell<Vec<(TaskId, LocalTask)>>,
    ended: Cell<bool>,
    timers: RefCell<BTreeMap<(u64, u64), Waker>>,
    ready: Arc<ReadyQueue>,
}

/// Tasks that were woken. A mutex because `Waker` must be `Send`; it never leaves the thread, so it is never contended.
#[derive(Default)]
struct ReadyQueue(Mutex<Vec<TaskId>>);

impl ReadyQueue {
    fn push(&self, id: TaskId) {
        let mut ids = self.0.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
        if !ids.contains(&id) {
            ids.push(id);
        }
    }

    fn take(&self, random: &Random) -> Option<TaskId> {
        let mut ids = self.0.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
        if ids.is_empty() {
            return None;
        }
        let next = random.index(ids.len());
        Some(ids.swap_remove(next))
    }
}

struct TaskWaker {
    id: TaskId,
    ready: Arc<ReadyQueue>,
}

impl Wake for TaskWaker {
    fn wake(self: Arc<Self>) {
        self.ready.push(self.id);
    }
    fn wake_by_ref(self: &Arc<Self>) {
        self.ready.push(self.id);
    }
}

/// [`run_by`] a running clock.
///
/// # Panics
/// As [`run_by`].
pub fn run<T, F>(seed: u64, main: impl FnOnce(Sim) -> F) -> T
where
    F: Future<Output = T>,
{
    run_by(Clock::Running, seed, main)
}

/// Runs `main` to its end, and whatever it spawns until then; the rest is dropped where it stands, as a killed process would.
///
/// # Panics
/// When every task waits and no timer is left: a deadlock in the code under test. The message carries the seed.
pub fn run_by<T, F>(clock: Clock, seed: u64, main: impl FnOnce(Sim) -> F) -> T
where
    F: Future<Output = T>,
{
    let poll_ns = match clock {
        Clock::Running => POLL_NS,
        Clock::Frozen => 0,
    };
    let inner = Rc::new(Inner {
        random: Random::new(seed),
        now_ns: Cell::new(0),
        look_ns: Cell::new(0),
        wall_offset_ms: Cell::new(0),
        next_task: Cell::new(1),
        next_timer: Cell::new(0),
        spawned: RefCell::new(Vec::new()),
        ended: Cell::new(false),
        timers: RefCell::new(BTreeMap::new()),
        ready: Arc::new(ReadyQueue::default()),
    });
    let mut main = std::pin::pin!(main(Sim { inner: inner.clone() }));
    // Ordered, so that even dropping them at the end goes the same way each time.
    let mut tasks: BTreeMap<TaskId, LocalTask> = BTreeMap::new();
    const MAIN: TaskId = 0;
    inner.ready.push(MAIN);
    loop {
        let newly = std::mem::take(&mut *inner.spawned.borrow_mut());
        for (id, task) in newly {
            tasks.insert(id, task);
            inner.ready.push(id);
        }
        let Some(id) = inner.ready.take(&inner.random) else {
            assert!(
                inner.fire_next_timer(),
                "simulation with seed {seed} is deadlocked: nobody can ever run"
            );
            continue;
        };
        inner.now_ns.set(inner.now_ns.get() + poll_ns);
        inner.fire_due_timers();
        let waker = Waker::from(Arc::new(TaskWaker { id, ready: inner.ready.clone() }));
        let mut cx = Context::from_waker(&waker);
        if id == MAIN {
            if let Poll::Ready(value) = main.as_mut().poll(&mut cx) {
                // Tasks not yet started hold the handle that holds them: break the cycle, and let what is spawned while
                // tasks are dropped (they may clean up that way) not make a new one.
                inner.ended.set(true);
                drop(std::mem::take(&mut *inner.spawned.borrow_mut()));
                return value;
            }
        } else if let Some(task) = tasks.get_mut(&id)
            && task.as_mut().poll(&mut cx).is_ready()
        {
            tasks.remove(&id);
        }
    }
}

impl Inner {
    /// Moves time to the earliest timer; false when there is none.
    fn fire_next_timer(&self) -> bool {
        let Some((&(deadline, _), _)) = self.timers.borrow().first_key_value() else { return false };
        self.now_ns.set(self.now_ns.get().max(deadline));
        self.fire_due_timers();
        true
    }

    fn fire_due_timers(&self) {
        let now_ns = self.now_ns.get();
        // Before nearly every step none is due, and to part a map takes longer than the step.
        if self.timers.borrow().first_key_value().is_none_or(|(&(deadline_ns, _), _)| deadline_ns > now_ns) {
            return;
        }
        let later = self.timers.borrow_mut().split_off(&(now_ns + 1, 0));
        let due = std::mem::replace(&mut *self.timers.borrow_mut(), later);
        due.into_values().for_each(Waker::wake);
    }
}

impl Sim {
    /// Starts a task; it is dropped when the run ends, at once if it has ended.
    pub fn spawn(&self, task: impl Future<Output = ()> + 'static) {
        if self.inner.ended.get() {
            return;
        }
        let id = self.inner.next_task.get();
        self.inner.next_task.set(id + 1);
        self.inner.spawned.borrow_mut().push((id, Box::pin(task)));
    }

    /// Virtual sleep.
    pub fn sleep_us(&self, us: u64) -> impl Future<Output = ()> + 'static {
        let inner = self.inner.clone();
        let timer = inner.next_timer.get();
        inner.next_timer.set(timer + 1);
        Sleep { deadline_ns: inner.now_ns.get() + us * 1000, timer, inner }
    }

    /// Lets the other ready tasks run, or this one again: the seed decides.
    pub async fn yield_now(&self) {
        futures_lite::future::yield_now().await;
    }

    /// Virtual monotonic nanoseconds.
    pub fn now_ns(&self) -> u64 {
        let now_ns = self.inner.now_ns.get() + self.inner.look_ns.get();
        self.inner.now_ns.set(now_ns);
        now_ns
    }

    /// Makes the work between any two looks at the clock take so long from now on, as on a machine that is very slow: what has a limit in time
    /// reaches it after a number of looks that is known.
    pub fn take_per_look_ns(&self, ns: u64) {
        self.inner.look_ns.set(ns);
    }

    /// Virtual wall clock, Unix ms.
    pub fn unix_ms(&self) -> u64 {
        let unstepped = EPOCH_UNIX_MS + self.now_ns() / 1_000_000;
        unstepped.saturating_add_signed(self.inner.wall_offset_ms.get())
    }

    /// Steps the wall clock, as a time daemon or a person would; what measures durations goes on as before.
    pub fn step_wall_clock_ms(&self, by: i64) {
        self.inner.wall_offset_ms.set(self.inner.wall_offset_ms.get() + by);
    }

    /// Random numbers of this run, shared with the scheduler.
    pub fn random(&self) -> &Random {
        &self.inner.random
    }
}

struct Sleep {
    deadline_ns: u64,
    timer: u64,
    inner: Rc<Inner>,
}

impl Future for Sleep {
    type Output = ();
    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        let key = (self.deadline_ns, self.timer);
        if self.inner.now_ns.get() >= self.deadline_ns {
            self.inner.timers.borrow_mut().remove(&key);
            return Poll::Ready(());
        }
        self.inner.timers.borrow_mut().insert(key, cx.waker().clone());
        Poll::Pending
    }
}

impl Drop for Sleep {
    fn drop(&mut self) {
        self.inner.timers.borrow_mut().remove(&(self.deadline_ns, self.timer));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn trace(seed: u64) -> Vec<u32> {
        run(seed, |sim| async move {
            let seen = Rc::new(RefCell::new(Vec::new()));
            for task in 0..5 {
                let (sim, seen) = (sim.clone(), seen.clone());
                sim.clone().spawn(async move {
                    sim.yield_now().await;
                    seen.borrow_mut().push(task);
                    sim.sleep_us(10).await;
                    seen.borrow_mut().push(task + 10);
                });
            }
            sim.sleep_us(1000).await;
            seen.take()
        })
    }

    #[test]
    fn a_seed_replays_and_seeds_differ() {
        assert_eq!(trace(3), trace(3));
        assert!((0..20).any(|seed| trace(seed) != trace(3)));
        assert_eq!(trace(3).len(), 10);
    }

    #[test]
    fn time_passes_only_by_sleeping_and_polling() {
        run(1, |sim| async move {
            let before = sim.unix_ms();
            sim.sleep_us(5_000_000).await;
            assert_eq!(sim.unix_ms() - before, 5000);
            let (wall_ms, monotonic_ns) = (sim.unix_ms(), sim.now_ns());
            sim.step_wall_clock_ms(70_000);
            sim.step_wall_clock_ms(-100_000);
            assert_eq!((sim.unix_ms(), sim.now_ns()), (wall_ms - 30_000, monotonic_ns));
        });
    }

    #[test]
    fn under_a_frozen_clock_only_sleeping_takes_time() {
        run_by(Clock::Frozen, 1, |sim| async move {
            for _ in 0..1000 {
                sim.yield_now().await;
            }
            assert_eq!(sim.now_ns(), 0);
            sim.sleep_us(3).await;
            assert_eq!(sim.now_ns(), 3000);
        });
    }

    #[test]
    fn a_look_at_the_clock_takes_as_long_as_is_said() {
        run_by(Clock::Frozen, 1, |sim| async move {
            sim.take_per_look_ns(70);
            assert_eq!((sim.now_ns(), sim.now_ns()), (70, 140));
            sim.take_per_look_ns(0);
            assert_eq!(sim.now_ns(), 140);
        });
    }

    #[test]
    fn a_spinning_task_does_not_stop_the_clock() {
        run(1, |sim| async move {
            let spinner = sim.clone();
            sim.spawn(async move {
                loop {
                    spinner.yield_now().await;
                }
            });
            sim.sleep_us(100).await;
        });
    }

    #[test]
    fn nothing_outlives_a_run() {
        struct SpawnsWhenDropped(Sim, Rc<()>);
        impl Drop for SpawnsWhenDropped {
            fn drop(&mut self) {
                let alive = self.1.clone();
                self.0.spawn(async move { drop(alive) });
            }
        }
        let alive = Rc::new(());
        run(1, |sim| {
            let held = SpawnsWhenDropped(sim.clone(), alive.clone());
            async move {
                sim.spawn(async move {
                    let _held = held;
                    std::future::pending::<()>().await;
                });
                sim.sleep_us(10).await;
            }
        });
        assert_eq!(Rc::strong_count(&alive), 1);
    }

    #[test]
    #[should_panic(expected = "seed 9 is deadlocked")]
    fn a_deadlock_is_named() {
        run(9, |_| std::future::pending::<()>());
    }
}
