//! What the shard logic needs of the machine: tasks, time, messages, files. The real one is
//! [`crate::runtime::CoreRuntime`]; the simulator has its own, on one thread with virtual time.

use crate::disk::{Disk, LocalBoxFuture};
use crate::runtime::Message;
use std::any::Any;
use std::cell::RefCell;
use std::future::{Future, poll_fn};
use std::rc::Rc;
use std::sync::mpsc;
use std::task::{Poll, Waker};

pub use crate::runtime::{Busy, Length};

/// One core's surroundings.
pub trait Env {
    /// Index of this core, `0..cores()`.
    fn index(&self) -> usize;
    /// Number of cores.
    fn cores(&self) -> usize;
    /// Starts a foreground task.
    fn spawn(&self, task: LocalBoxFuture<'static, ()>);
    /// Starts a background task; it calls [`Env::breathe`] at least every 300 µs of work.
    fn spawn_background(&self, task: LocalBoxFuture<'static, ()>);
    /// Ends a background slice.
    fn breathe(&self) -> LocalBoxFuture<'static, ()>;
    /// Lets other runnable tasks of this core go first.
    fn yield_now(&self) -> LocalBoxFuture<'static, ()>;
    /// Timer, microseconds.
    fn sleep_us(&self, us: u64) -> LocalBoxFuture<'static, ()>;
    /// Monotonic nanoseconds.
    fn now_ns(&self) -> u64;
    /// Wall clock, Unix milliseconds.
    fn unix_ms(&self) -> u64;
    /// Queues `message` for core `to`; false when ring and overflow are full, and then it is dropped unrun.
    fn send(&self, to: usize, message: Message) -> bool;
    /// Queues the answer to a message that came from `to`; never refused, since what was asked for is bounded.
    fn reply(&self, to: usize, message: Message);
    /// Runs `work` on a thread of its own that gives way to the cores, long ones one after the other. Resolves when it has run, or has
    /// failed. Nobody waits for it at a stop.
    fn train(&self, length: Length, work: Box<dyn FnOnce() + Send>) -> LocalBoxFuture<'static, ()>;
    /// Runs `work`, some milliseconds that nobody waits for, on a thread that gives way to the cores.
    fn spawn_compute(&self, work: Box<dyn FnOnce() + Send>);
    /// Runs `work`, which takes long and cannot be cut into slices, on a thread that gives way to the cores. Resolves when it has run.
    fn compute(&self, work: Box<dyn FnOnce() + Send>) -> LocalBoxFuture<'static, ()>;
    /// Resolves when the process is asked to stop.
    fn stopping(&self) -> LocalBoxFuture<'static, ()>;
    /// Bytes of memory that the process has and no file can take back, as the kernel says; `None` where nobody does. Some microseconds.
    fn resident_bytes(&self) -> Option<u64> {
        None
    }
    /// The data directory; `None` when everything lives in memory only.
    fn disk(&self) -> Option<Rc<dyn Disk>>;
}

/// Runs `f` as [`Env::train`] does, for its result; `None` when it failed.
pub async fn train<R: Send + 'static>(
    env: &Rc<dyn Env>,
    length: Length,
    f: impl FnOnce() -> R + Send + 'static,
) -> Option<R> {
    let (sender, receiver) = mpsc::channel();
    let work = Box::new(move || {
        // Nobody waits for it where the task has been dropped.
        let _nobody_waits = sender.send(f());
    });
    env.train(length, work).await;
    receiver.try_recv().ok()
}

/// Runs `f` as [`Env::compute`] does, for its result.
///
/// # Panics
/// When `f` does.
pub async fn compute<R: Send + 'static>(env: &Rc<dyn Env>, f: impl FnOnce() -> R + Send + 'static) -> R {
    let (sender, receiver) = mpsc::channel();
    let work = Box::new(move || {
        // Nobody waits for it where the task has been dropped.
        let _nobody_waits = sender.send(f());
    });
    env.compute(work).await;
    receiver.try_recv().expect("work that was resolved has sent its result")
}

/// Calls in flight from one core at most; past it a call is refused as busy. Each holds about 100 bytes here and one
/// message there, so the bound is about fairness, not memory: two full rings of the mesh.
pub const CALLS_IN_FLIGHT_MAX: usize = 8192;

enum Reply {
    Waiting(Option<Waker>),
    Arrived(Box<dyn Any + Send>),
    Free(usize),
}

/// The replies this core waits for: a slab indexed by call id.
#[derive(Default)]
pub struct Replies {
    slots: RefCell<(Vec<Reply>, usize, usize)>,
}

impl Replies {
    fn reserve(&self, admission: Admission) -> Option<usize> {
        let (slots, free, used) = &mut *self.slots.borrow_mut();
        if *used >= CALLS_IN_FLIGHT_MAX && admission == Admission::Bounded {
            return None;
        }
        *used += 1;
        if *free < slots.len() {
            let id = *free;
            let Reply::Free(next) = slots[id] else { unreachable!("the free list holds free slots only") };
            *free = next;
            slots[id] = Reply::Waiting(None);
            Some(id)
        } else {
            slots.push(Reply::Waiting(None));
            *free = slots.len();
            Some(slots.len() - 1)
        }
    }

    fn release(&self, id: usize) {
        let (slots, free, used) = &mut *self.slots.borrow_mut();
        slots[id] = Reply::Free(*free);
        *free = id;
        *used -= 1;
    }

    /// Delivers the answer of call `id`; called by the reply message on the core that asked.
    pub fn complete(&self, id: usize, value: Box<dyn Any + Send>) {
        let waker = match std::mem::replace(&mut self.slots.borrow_mut().0[id], Reply::Arrived(value)) {
            Reply::Waiting(waker) => waker,
            _ => unreachable!("a call is answered once"),
        };
        if let Some(waker) = waker {
            waker.wake();
        }
    }

    async fn wait(&self, id: usize) -> Box<dyn Any + Send> {
        poll_fn(|cx| {
            let slot = &mut self.slots.borrow_mut().0[id];
            match slot {
                Reply::Waiting(waker) => {
                    *waker = Some(cx.waker().clone());
                    Poll::Pending
                }
                Reply::Arrived(_) => {
                    let Reply::Arrived(value) = std::mem::replace(slot, Reply::Waiting(None)) else {
                        unreachable!()
                    };
                    Poll::Ready(value)
                }
                Reply::Free(_) => unreachable!("a slot is freed by its waiter"),
            }
        })
        .await
    }
}

/// What a core has one of, and what work that other cores ask of it runs on.
pub trait Home: Sized + 'static {
    /// That of the core whose thread this is.
    ///
    /// # Panics
    /// On a thread that runs no core.
    fn here() -> Rc<Self>;
    /// The core's surroundings.
    fn env(&self) -> &Rc<dyn Env>;
    /// The answers that the core waits for.
    fn replies(&self) -> &Replies;
}

/// Whether a call may be refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Admission {
    /// Refused when the mesh is full: for what clients cause.
    Bounded,
    /// Never refused: for the node's own steps, of which there are few at a time.
    Always,
}

/// As [`call`], never refused: for steps of the node itself (start, catalog changes, checkpoints), of which a handful
/// run at a time, and which must not stop half-way because clients keep the mesh busy.
pub async fn call_own<H, R, F>(home: &Rc<H>, to: usize, f: impl FnOnce(Rc<H>) -> F + Send + 'static) -> R
where
    H: Home,
    R: Send + 'static,
    F: Future<Output = R> + 'static,
{
    call_admitted(home, to, f, Admission::Always).await.expect("such a call is never refused")
}

/// Runs `f` on core `to` and waits for the result of its future. On the own core it is a plain call.
///
/// # Errors
/// [`Busy`] when the mesh or the table of calls is full; nothing has run.
///
/// `f` runs inside the destination's core loop, on that core's `H`; its future becomes a task there. Dropping the returned future abandons the answer, not the work.
pub async fn call<H, R, F>(
    home: &Rc<H>,
    to: usize,
    f: impl FnOnce(Rc<H>) -> F + Send + 'static,
) -> Result<R, Busy>
where
    H: Home,
    R: Send + 'static,
    F: Future<Output = R> + 'static,
{
    call_admitted(home, to, f, Admission::Bounded).await
}

async fn call_admitted<H, R, F>(
    home: &Rc<H>,
    to: usize,
    f: impl FnOnce(Rc<H>) -> F + Send + 'static,
    admission: Admission,
) -> Result<R, Busy>
where
    H: Home,
    R: Send + 'static,
    F: Future<Output = R> + 'static,
{
    let env = home.env();
    let from = env.index();
    if to == from {
        return Ok(f(home.clone()).await);
    }
    let id = home.replies().reserve(admission).ok_or(Busy)?;
    let request: Message = Box::new(move || {
        let there = H::here();
        let env = there.env().clone();
        let work = f(there);
        let reply_env = env.clone();
        env.spawn(Box::pin(async move {
            let value: Box<dyn Any + Send> = Box::new(work.await);
            reply_env.reply(from, Box::new(move || H::here().replies().complete(id, value)));
        }));
    });
    if admission == Admission::Always {
        env.reply(to, request);
    } else if !env.send(to, request) {
        home.replies().release(id);
        return Err(Busy);
    }
    // A caller that goes away (its connection closed) must not leak the slot: a task of its own collects the answer.
    let mut guard = Abandon { home: home.clone(), id: Some(id) };
    let value = home.replies().wait(id).await;
    guard.id = None;
    home.replies().release(id);
    Ok(*value.downcast::<R>().expect("a call is answered with its own type"))
}

struct Abandon<H: Home> {
    home: Rc<H>,
    id: Option<usize>,
}

impl<H: Home> Drop for Abandon<H> {
    fn drop(&mut self) {
        if let Some(id) = self.id {
            let home = self.home.clone();
            self.home.env().spawn(Box::pin(async move {
                drop(home.replies().wait(id).await);
                home.replies().release(id);
            }));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn calls_that_clients_cause_are_bounded() {
        let replies = Replies::default();
        let ids: Vec<_> = (0..CALLS_IN_FLIGHT_MAX)
            .map(|_| replies.reserve(Admission::Bounded).expect("there is room"))
            .collect();
        assert_eq!(replies.reserve(Admission::Bounded), None);
        let own = replies.reserve(Admission::Always).expect("steps of the node are never refused");
        replies.release(ids[5]);
        assert_eq!(
            replies.reserve(Admission::Bounded),
            None,
            "as many as before are under way with the node's own"
        );
        replies.release(own);
        assert_eq!(
            replies.reserve(Admission::Bounded),
            Some(own),
            "the place that became free last is taken first"
        );
    }
}
