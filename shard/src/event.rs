//! Waiting among tasks of one core: an event that wakes everybody, a lock in arrival order, several futures together.

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::future::poll_fn;
use std::rc::Rc;
use std::task::{Poll, Waker};

/// Wakes all who wait when something changed; waiters re-check their condition.
#[derive(Default)]
pub struct Event {
    generation: Cell<u64>,
    waiting: RefCell<Vec<Waker>>,
}

impl Event {
    /// Wakes every waiter.
    pub fn notify(&self) {
        self.generation.set(self.generation.get() + 1);
        for waker in self.waiting.take() {
            waker.wake();
        }
    }

    /// Resolves at the next [`Event::notify`] after this call.
    pub fn wait(&self) -> impl Future<Output = ()> + '_ {
        let seen = self.generation.get();
        poll_fn(move |cx| {
            if self.generation.get() != seen {
                return Poll::Ready(());
            }
            // Whoever waits for something else as well comes by often.
            let mut waiting = self.waiting.borrow_mut();
            if !waiting.iter().any(|waker| waker.will_wake(cx.waker())) {
                waiting.push(cx.waker().clone());
            }
            Poll::Pending
        })
    }
}

/// A lock among tasks of one core, first come first served.
#[derive(Default)]
pub struct Lock {
    held: Cell<bool>,
    queue: RefCell<VecDeque<Rc<Turn>>>,
}

#[derive(Default)]
struct Turn {
    granted: Cell<bool>,
    waker: RefCell<Option<Waker>>,
}

/// Held until dropped.
pub struct LockGuard(Rc<Lock>);

impl Lock {
    /// Waits for the lock.
    pub async fn lock(self: &Rc<Self>) -> LockGuard {
        if !self.held.replace(true) {
            return LockGuard(self.clone());
        }
        let turn = Rc::new(Turn::default());
        self.queue.borrow_mut().push_back(turn.clone());
        // If the waiting task is dropped after the grant, the guard made here still passes the lock on.
        let mut pending = PendingTurn { lock: self.clone(), turn: Some(turn.clone()) };
        poll_fn(|cx| {
            if turn.granted.get() {
                return Poll::Ready(());
            }
            *turn.waker.borrow_mut() = Some(cx.waker().clone());
            Poll::Pending
        })
        .await;
        pending.turn = None;
        LockGuard(self.clone())
    }

    /// Takes the lock if it is free.
    pub fn try_lock(self: &Rc<Self>) -> Option<LockGuard> {
        (!self.held.replace(true)).then(|| LockGuard(self.clone()))
    }

    /// Whether somebody waits for the lock: whoever holds it for long should let it go.
    pub fn is_awaited(&self) -> bool {
        !self.queue.borrow().is_empty()
    }

    fn pass_on(&self) {
        let next = self.queue.borrow_mut().pop_front();
        match next {
            Some(turn) => {
                turn.granted.set(true);
                if let Some(waker) = turn.waker.take() {
                    waker.wake();
                }
            }
            None => self.held.set(false),
        }
    }
}

struct PendingTurn {
    lock: Rc<Lock>,
    turn: Option<Rc<Turn>>,
}

impl Drop for PendingTurn {
    fn drop(&mut self) {
        let Some(turn) = self.turn.take() else { return };
        if turn.granted.get() {
            self.lock.pass_on();
        } else {
            self.lock.queue.borrow_mut().retain(|t| !Rc::ptr_eq(t, &turn));
        }
    }
}

impl Drop for LockGuard {
    fn drop(&mut self) {
        self.0.pass_on();
    }
}

/// Runs futures side by side and returns what they come to, in their order.
pub async fn together<F: Future>(futures: Vec<F>) -> Vec<F::Output> {
    let mut running: Vec<_> = futures.into_iter().map(|future| (Box::pin(future), None)).collect();
    poll_fn(|cx| {
        let mut all = true;
        for (future, output) in running.iter_mut().filter(|(_, output)| output.is_none()) {
            match future.as_mut().poll(cx) {
                Poll::Ready(ready) => *output = Some(ready),
                Poll::Pending => all = false,
            }
        }
        if all { Poll::Ready(()) } else { Poll::Pending }
    })
    .await;
    running.into_iter().filter_map(|(_, output)| output).collect()
}

/// What `of` makes of each item, in their order; `at_once` of them at the same time.
pub async fn some_at_once<T, F: Future>(
    items: impl IntoIterator<Item = T>,
    at_once: usize,
    mut of: impl FnMut(T) -> F,
) -> Vec<F::Output> {
    let mut items = items.into_iter();
    let mut all = Vec::new();
    loop {
        let some: Vec<F> = items.by_ref().take(at_once).map(&mut of).collect();
        if some.is_empty() {
            return all;
        }
        all.extend(together(some).await);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use futures_lite::future::{block_on, poll_once};

    #[test]
    fn an_event_wakes_only_those_who_waited() {
        let event = Event::default();
        let mut first = Box::pin(event.wait());
        assert!(block_on(poll_once(&mut first)).is_none());
        event.notify();
        let mut second = Box::pin(event.wait());
        assert!(block_on(poll_once(&mut first)).is_some());
        assert!(block_on(poll_once(&mut second)).is_none());
    }

    #[test]
    fn a_lock_is_granted_in_order_and_survives_dropped_waiters() {
        let lock = Rc::new(Lock::default());
        let held = block_on(lock.lock());
        let mut a = Box::pin(lock.lock());
        let mut b = Box::pin(lock.lock());
        let mut c = Box::pin(lock.lock());
        assert!(block_on(poll_once(&mut a)).is_none());
        assert!(block_on(poll_once(&mut b)).is_none());
        assert!(block_on(poll_once(&mut c)).is_none());
        drop(a); // waiting, never granted
        drop(held); // grants b
        drop(b); // granted but dropped: passes on to c
        let guard = block_on(poll_once(&mut c)).expect("c holds the lock");
        assert!(lock.try_lock().is_none());
        drop(guard);
        assert!(lock.try_lock().is_some());
    }
}
