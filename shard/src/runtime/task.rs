//! Tasks as the runtime sees them: counted, caught, cancellable, and woken only by their own thread.
//!
//! Every future handed to the executor is wrapped in a [`Managed`]. The wrapper
//! * counts wakes and polls in the core's cell, so that the core loop knows when nothing is runnable (and may block) and the
//!   watchdog knows when something is (and the thread may not sleep);
//! * gives the future a waker of ours: a wake from a foreign thread goes through the core's inbox and bell, never to the
//!   executor's own notifier, whose late eventfd write is one of the two ways into its parking bug;
//! * catches a panic at the boundary and reports it as fatal, instead of losing the whole executor silently;
//! * stays listed until it ends, so that a stopping core can cancel what is left and its descriptors close.

use super::context::Inner;
use super::inbox::{CoreShared, Foreign};
use crate::disk::LocalBoxFuture;
use std::any::Any;
use std::cell::{Cell, RefCell, UnsafeCell};
use std::future::Future;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::Pin;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU8, Ordering::AcqRel, Ordering::Relaxed, Ordering::Release};
use std::task::{Context, Poll, Wake, Waker};

/// Which queue a task runs in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    /// The core loop itself.
    Loop,
    /// Serves somebody who waits.
    Foreground,
    /// Runs in slices, see [`super::background`].
    Background,
}

thread_local! {
    /// The core this thread runs, null elsewhere. Only compared, never followed.
    static HERE: Cell<*const CoreShared> = const { Cell::new(std::ptr::null()) };
}

/// Declares this thread to be the home of `core` until dropped.
pub(super) struct Home(());

impl Home {
    pub(super) fn enter(core: &Arc<CoreShared>) -> Home {
        let before = HERE.replace(Arc::as_ptr(core));
        assert!(before.is_null(), "a thread runs one core at a time");
        Home(())
    }
}

impl Drop for Home {
    fn drop(&mut self) {
        HERE.set(std::ptr::null());
    }
}

const WAITING: u8 = 0;
const SCHEDULED: u8 = 1;
const ENDED: u8 = 2;

/// The waker of one task. Shared with anyone; everything but `posted` belongs to the home thread.
pub(super) struct TaskWaker {
    home: Arc<CoreShared>,
    background: bool,
    /// WAITING, SCHEDULED or ENDED; plain loads and stores on the home thread.
    status: AtomicU8,
    /// A foreign wake lies in the inbox: one is enough.
    posted: AtomicBool,
    /// The executor's waker of this task, from its first poll to its end.
    executor: UnsafeCell<Option<Waker>>,
}

// SAFETY: `executor` is the only part that is not Sync by itself. It is touched in `wake_here`, `attach` and `end` alone,
// and each of them runs on the home thread only: `wake_here` after comparing HERE, or from the inbox, which the home thread
// drains; the other two from `Managed`, which is not Send.
unsafe impl Send for TaskWaker {}
// SAFETY: as above.
unsafe impl Sync for TaskWaker {}

impl TaskWaker {
    /// A task about to be scheduled for its first poll.
    fn new(home: Arc<CoreShared>, background: bool) -> Arc<TaskWaker> {
        home.cell.task_woken(background);
        Arc::new(TaskWaker {
            home,
            background,
            status: AtomicU8::new(SCHEDULED),
            posted: AtomicBool::new(false),
            executor: UnsafeCell::new(None),
        })
    }

    fn is_home(&self) -> bool {
        std::ptr::eq(HERE.get(), Arc::as_ptr(&self.home))
    }

    /// Home thread only.
    fn wake_here(&self) {
        debug_assert!(self.is_home());
        if self.status.load(Relaxed) != WAITING {
            return;
        }
        self.status.store(SCHEDULED, Relaxed);
        self.home.cell.task_woken(self.background);
        // SAFETY: on the home thread (see the impl of Sync); no reference obtained here outlives the call, and waking only
        // queues the task, so it does not come back to this cell.
        if let Some(executor) = unsafe { &*self.executor.get() } {
            executor.wake_by_ref();
        }
    }

    /// Delivers a wake that came through the inbox. Home thread only.
    pub(super) fn deliver(&self) {
        // Cleared before the wake: a foreign wake arriving now posts again.
        self.posted.store(false, Release);
        self.wake_here();
    }

    /// The task is being polled.
    fn taken(&self) {
        if self.status.load(Relaxed) == SCHEDULED {
            self.status.store(WAITING, Relaxed);
            self.home.cell.task_taken(self.background);
        }
    }

    /// Remembers the executor's waker; it is the same for all polls of a task.
    fn attach(&self, executor: &Waker) {
        // SAFETY: on the home thread (see the impl of Sync), and no other reference into the cell is alive.
        let slot = unsafe { &mut *self.executor.get() };
        if slot.is_none() {
            *slot = Some(executor.clone());
        }
    }

    /// No wake has an effect from here on, and the executor's waker is given back on its own thread.
    fn end(&self) {
        self.taken();
        self.status.store(ENDED, Relaxed);
        // SAFETY: on the home thread (see the impl of Sync), and no other reference into the cell is alive.
        let executor = unsafe { &mut *self.executor.get() }.take();
        drop(executor);
    }
}

impl Wake for TaskWaker {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        if self.is_home() {
            self.wake_here();
        } else if !self.posted.swap(true, AcqRel) {
            self.home.post(Foreign::Wake(self.clone()));
        }
    }
}

/// A future under the runtime's care. See the module.
pub(super) struct Managed {
    inner: Rc<Inner>,
    kind: Kind,
    waker_shared: Arc<TaskWaker>,
    waker: Waker,
    future: Option<LocalBoxFuture<'static, ()>>,
    /// Place in the registry; the core loop has none.
    key: Option<usize>,
}

impl Managed {
    pub(super) fn new(
        inner: Rc<Inner>,
        kind: Kind,
        key: Option<usize>,
        future: LocalBoxFuture<'static, ()>,
    ) -> Managed {
        let waker_shared = TaskWaker::new(inner.core().clone(), kind == Kind::Background);
        let waker = Waker::from(waker_shared.clone());
        Managed { inner, kind, waker_shared, waker, future: Some(future), key }
    }
}

impl Future for Managed {
    type Output = ();

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        let this = self.get_mut();
        this.waker_shared.taken();
        this.waker_shared.attach(cx.waker());
        let Some(future) = &mut this.future else { return Poll::Ready(()) };
        let entered = this.inner.enter(this.kind);
        let polled =
            catch_unwind(AssertUnwindSafe(|| future.as_mut().poll(&mut Context::from_waker(&this.waker))));
        drop(entered);
        match polled {
            Ok(Poll::Pending) => return Poll::Pending,
            Ok(Poll::Ready(())) => {}
            Err(panic) => this.inner.fatal("a task", panic),
        }
        // The future goes first: what it owns may still use the runtime. Its own drop may panic as well.
        let future = this.future.take();
        if let Err(panic) = catch_unwind(AssertUnwindSafe(|| drop(future))) {
            this.inner.fatal("the end of a task", panic);
        }
        // Detached from inside the poll: the executor reads the task's state again right after it.
        if let Some(task) = this.key.take().and_then(|key| this.inner.tasks.take(key)) {
            task.detach();
        }
        Poll::Ready(())
    }
}

impl Drop for Managed {
    fn drop(&mut self) {
        self.waker_shared.end();
    }
}

/// What a panic said.
pub(super) fn panic_text(panic: &(dyn Any + Send)) -> &str {
    panic
        .downcast_ref::<&'static str>()
        .copied()
        .or_else(|| panic.downcast_ref::<String>().map(String::as_str))
        .unwrap_or("a panic without a message")
}

/// The tasks of a core that have not ended.
#[derive(Default)]
pub(super) struct Registry {
    tasks: RefCell<Vec<Option<glommio::Task<()>>>>,
    free: RefCell<Vec<usize>>,
    /// The core stops: new tasks are dropped at once.
    closed: Cell<bool>,
}

impl Registry {
    /// Runs `future` in `queue` until it ends or the core stops.
    pub(super) fn spawn(
        inner: &Rc<Inner>,
        kind: Kind,
        queue: glommio::TaskQueueHandle,
        future: LocalBoxFuture<'static, ()>,
    ) {
        let registry = &inner.tasks;
        if registry.closed.get() {
            return;
        }
        let key = registry.free.borrow_mut().pop().unwrap_or_else(|| {
            registry.tasks.borrow_mut().push(None);
            registry.tasks.borrow().len() - 1
        });
        let managed = Managed::new(inner.clone(), kind, Some(key), future);
        let task = glommio::spawn_local_into(managed, queue)
            .unwrap_or_else(|error| unreachable!("both queues live as long as their executor: {error}"));
        registry.tasks.borrow_mut()[key] = Some(task);
    }

    fn take(&self, key: usize) -> Option<glommio::Task<()>> {
        // The list is empty once the core has begun to cancel what was left.
        let task = self.tasks.borrow_mut().get_mut(key)?.take();
        self.free.borrow_mut().push(key);
        task
    }

    /// Cancels what is left, and whatever that spawns in its last breath; returns how many were.
    pub(super) async fn close(&self) -> usize {
        self.closed.set(true);
        let rest: Vec<_> = self.tasks.borrow_mut().drain(..).flatten().collect();
        self.free.borrow_mut().clear();
        let count = rest.len();
        for task in rest {
            task.cancel().await;
        }
        count
    }
}
