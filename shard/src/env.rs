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
    fn apart(&self, length: Length, work: Box<dyn FnOnce() + Send>) -> LocalBoxFuture<'static, ()>;
    /// Runs `work`, some milliseconds that nobody waits for, on a thread that gives way to the cores.
    fn aside(&self, work: Box<dyn FnOnce() + Send>);
    /// Bytes of memory that the process has and no file can take back, as the kernel says; `None` where nobody does. Some microseconds.
    fn resident_bytes(&self) -> Option<u64> {
        None
    }
    /// The data directory; `None` when everything lives in memory only.
    fn disk(&self) -> Option<Rc<dyn Disk>>;
}

/// Runs `f` as [`Env::apart`] does, for its result; `None` when it failed.
pub async fn apart<R: Send + 'static>(
    env: &Rc<dyn Env>,
    length: Length,
    f: impl FnOnce() -> R + Send + 'static,
) -> Option<R> {
    let (sender, receiver) = mpsc::channel();
    let work = Box::new(move || {
        // Nobody waits for it where the task has been dropped.
        let _nobody_waits = sender.send(f());
    });
    env.apart(length, work).await;
    receiver.try_recv().ok()
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
pub async fn call_own<R, F>(
    core: &Rc<crate::core::Core>,
    to: usize,
    f: impl FnOnce(Rc<crate::core::Core>) -> F + Send + 'static,
) -> R
where
    R: Send + 'static,
    F: Future<Output = R> + 'static,
{
    call_admitted(core, to, f, Admission::Always).await.expect("such a call is never refused")
}

/// Runs `f` on core `to` and waits for the result of its future. On the own core it is a plain call.
///
/// # Errors
/// [`Busy`] when the mesh or the table of calls is full; nothing has run.
///
/// `f` runs inside the destination's core loop and may use [`crate::core::Core::current`]; its future becomes a task
/// there. Dropping the returned future abandons the answer, not the work.
pub async fn call<R, F>(
    core: &Rc<crate::core::Core>,
    to: usize,
    f: impl FnOnce(Rc<crate::core::Core>) -> F + Send + 'static,
) -> Result<R, Busy>
where
    R: Send + 'static,
    F: Future<Output = R> + 'static,
{
    call_admitted(core, to, f, Admission::Bounded).await
}

async fn call_admitted<R, F>(
    core: &Rc<crate::core::Core>,
    to: usize,
    f: impl FnOnce(Rc<crate::core::Core>) -> F + Send + 'static,
    admission: Admission,
) -> Result<R, Busy>
where
    R: Send + 'static,
    F: Future<Output = R> + 'static,
{
    let env = core.env();
    let from = env.index();
    if to == from {
        return Ok(f(core.clone()).await);
    }
    let id = core.replies().reserve(admission).ok_or(Busy)?;
    let request: Message = Box::new(move || {
        let there = crate::core::Core::current();
        let env = there.env().clone();
        let work = f(there);
        let reply_env = env.clone();
        env.spawn(Box::pin(async move {
            let value: Box<dyn Any + Send> = Box::new(work.await);
            reply_env
                .reply(from, Box::new(move || crate::core::Core::current().replies().complete(id, value)));
        }));
    });
    if admission == Admission::Always {
        env.reply(to, request);
    } else if !env.send(to, request) {
        core.replies().release(id);
        return Err(Busy);
    }
    // A caller that goes away (its connection closed) must not leak the slot: a task of its own collects the answer.
    let mut guard = Abandon { core: core.clone(), id: Some(id) };
    let value = core.replies().wait(id).await;
    guard.id = None;
    core.replies().release(id);
    Ok(*value.downcast::<R>().expect("a call is answered with its own type"))
}

struct Abandon {
    core: Rc<crate::core::Core>,
    id: Option<usize>,
}

impl Drop for Abandon {
    fn drop(&mut self) {
        if let Some(id) = self.id {
            let core = self.core.clone();
            self.core.env().spawn(Box::pin(async move {
                drop(core.replies().wait(id).await);
                core.replies().release(id);
            }));
        }
    }
}
