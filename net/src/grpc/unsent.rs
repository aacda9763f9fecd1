//! What HTTP/2 holds of an answer until it has been written to the socket, piece by piece.
//!
//! The parser takes pieces as long as its buffer has room, and tells nobody when it is done with one. So each piece says so itself when it is
//! dropped: a call knows how many are left, holds their number within a bound, and does not end before the last of them.

use bytes::Bytes;
use std::future::poll_fn;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Poll, Waker};

/// The pieces of one call. They are dropped on its core; the lock is there because bytes may be sent between threads.
#[derive(Clone, Default)]
pub struct Unsent(Arc<Mutex<Left>>);

#[derive(Default)]
struct Left {
    pieces: usize,
    waiter: Option<Waker>,
}

struct Piece {
    bytes: Bytes,
    unsent: Unsent,
}

impl AsRef<[u8]> for Piece {
    fn as_ref(&self) -> &[u8] {
        &self.bytes
    }
}

impl Drop for Piece {
    fn drop(&mut self) {
        let waiter = {
            let mut left = self.unsent.left();
            left.pieces -= 1;
            left.waiter.take()
        };
        if let Some(waiter) = waiter {
            waiter.wake();
        }
    }
}

impl Unsent {
    fn left(&self) -> MutexGuard<'_, Left> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The same bytes, counted until they are dropped.
    pub fn count(&self, bytes: Bytes) -> Bytes {
        self.left().pieces += 1;
        Bytes::from_owner(Piece { bytes, unsent: self.clone() })
    }

    /// Waits until no more than so many pieces are left.
    pub async fn at_most(&self, pieces: usize) {
        poll_fn(|cx| {
            let mut left = self.left();
            if left.pieces <= pieces {
                return Poll::Ready(());
            }
            left.waiter = Some(cx.waker().clone());
            Poll::Pending
        })
        .await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use futures_lite::future::{block_on, poll_once};
    use std::pin::pin;

    #[test]
    fn a_wait_ends_with_the_last_drop() {
        let unsent = Unsent::default();
        block_on(unsent.at_most(0));
        let (mut first, second) = (unsent.count("abcdef".into()), unsent.count("g".into()));
        let mut rest = pin!(unsent.at_most(0));
        assert!(block_on(poll_once(rest.as_mut())).is_none());
        block_on(unsent.at_most(2));
        // A piece that is written in parts is there until its last part is gone.
        let part = first.split_to(2);
        drop((first, second));
        assert!(block_on(poll_once(rest.as_mut())).is_none());
        block_on(unsent.at_most(1));
        let thread = std::thread::spawn(move || drop(part));
        block_on(rest);
        thread.join().unwrap();
    }
}
