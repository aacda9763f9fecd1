//! The bell: a flag and an eventfd, one per consuming core (design: arm, re-check, sleep; one write per sleep).
use std::os::fd::{AsFd, BorrowedFd};
/// See the module.
pub struct Bell {}
impl Bell {
    /// A fresh bell with a non-blocking eventfd.
    pub fn new() -> std::io::Result<Bell> {
        todo!()
    }
    /// Consumer: declares that it is about to sleep. SeqCst store and fence; the caller re-checks its rings afterwards.
    pub fn arm(&self) {
        todo!()
    }
    /// Consumer: awake again.
    pub fn disarm(&self) {
        todo!()
    }
    /// Whether the consumer has declared that it sleeps.
    pub fn is_armed(&self) -> bool {
        todo!()
    }
    /// Producer, after all pushes of a batch: wakes the consumer if it sleeps; at most one write per sleep.
    pub fn ring(&self) {
        todo!()
    }
    /// Shutdown: writes regardless.
    pub fn ring_always(&self) {
        todo!()
    }
}
impl AsFd for Bell {
    fn as_fd(&self) -> BorrowedFd<'_> {
        todo!()
    }
}
