//! Carries a value from another thread to the task that waits for it on some core.
use std::future::Future;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};

struct AnswerState<T> {
    value: Option<T>,
    /// No value comes any more.
    ended: bool,
    waker: Option<Waker>,
}

type Shared<T> = Arc<Mutex<AnswerState<T>>>;

fn lock<T>(shared: &Shared<T>) -> MutexGuard<'_, AnswerState<T>> {
    // Nothing panics while it is held.
    shared.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Where the value is put. Dropped without one it ends the wait.
pub struct Answer<T>(Shared<T>);

/// Waits for the value; `None` when none comes.
pub struct Awaited<T>(Shared<T>);

/// Both ends.
pub fn answer<T>() -> (Answer<T>, Awaited<T>) {
    let shared = Arc::new(Mutex::new(AnswerState { value: None, ended: false, waker: None }));
    (Answer(shared.clone()), Awaited(shared))
}

impl<T> Answer<T> {
    /// Wakes whoever waits.
    pub fn give(self, value: T) {
        lock(&self.0).value = Some(value);
    }

    /// Whether whoever waited has gone.
    pub fn is_abandoned(&self) -> bool {
        Arc::strong_count(&self.0) == 1
    }
}

impl<T> Drop for Answer<T> {
    fn drop(&mut self) {
        let waker = {
            let mut state = lock(&self.0);
            state.ended = true;
            state.waker.take()
        };
        if let Some(waker) = waker {
            waker.wake();
        }
    }
}

impl<T> Future for Awaited<T> {
    type Output = Option<T>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<T>> {
        let mut state = lock(&self.0);
        if state.ended {
            return Poll::Ready(state.value.take());
        }
        state.waker = Some(cx.waker().clone());
        Poll::Pending
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use futures_lite::future::block_on;

    #[test]
    fn a_value_or_the_end_arrives() {
        let (sender, awaited) = answer();
        let thread = std::thread::spawn(move || {
            std::thread::sleep(std::time::Duration::from_millis(5));
            sender.give(7);
        });
        assert_eq!(block_on(awaited), Some(7));
        thread.join().unwrap();
        let (sender, awaited) = answer::<u8>();
        drop(sender);
        assert_eq!(block_on(awaited), None);
        let (sender, awaited) = answer::<u8>();
        assert!(!sender.is_abandoned());
        drop(awaited);
        assert!(sender.is_abandoned());
    }
}
