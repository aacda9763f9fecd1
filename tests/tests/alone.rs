//! Tests of whole servers that need the machine for themselves, one after the other: they take every CPU, or much memory, or say how long
//! others wait.
mod batches;
mod dear_filters;
mod hogs;
mod keys_memory;
mod memory_limit;

use std::sync::{Mutex, MutexGuard, PoisonError};

/// Waits until no other test of this program runs; it is the caller's turn until the guard is dropped.
fn turn() -> MutexGuard<'static, ()> {
    static TURN: Mutex<()> = Mutex::new(());
    // The test that failed is over.
    TURN.lock().unwrap_or_else(PoisonError::into_inner)
}
