//! Readiness of sockets on one core: one epoll instance, edge-triggered, driven by the core loop.
use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::rc::Rc;
use std::task::{Context, Poll};
/// One per core.
pub struct Reactor {}
impl Reactor {
    /// Makes the epoll instance.
    pub fn new() -> io::Result<Rc<Reactor>> {
        todo!()
    }
    /// Registers a non-blocking descriptor for edge-triggered reading and writing; deregisters and closes on drop.
    pub fn register(self: &Rc<Self>, fd: OwnedFd) -> io::Result<Source> {
        let _ = fd;
        todo!()
    }
    /// Polls once (`timeout_us` 0 = do not wait), marks sources ready and wakes their tasks; returns events handled. EINTR counts as none.
    pub fn turn(&self, timeout_us: u64) -> io::Result<usize> {
        let _ = timeout_us;
        todo!()
    }
}
/// A registered descriptor.
pub struct Source {}
impl Source {
    /// Ready when reading may make progress; call again after `clear_readable` on WouldBlock.
    pub fn poll_readable(&self, cx: &mut Context<'_>) -> Poll<()> {
        let _ = cx;
        todo!()
    }
    /// Likewise for writing.
    pub fn poll_writable(&self, cx: &mut Context<'_>) -> Poll<()> {
        let _ = cx;
        todo!()
    }
    /// Reading gave WouldBlock.
    pub fn clear_readable(&self) {
        todo!()
    }
    /// Writing gave WouldBlock.
    pub fn clear_writable(&self) {
        todo!()
    }
}
impl AsRawFd for Source {
    fn as_raw_fd(&self) -> std::os::fd::RawFd {
        todo!()
    }
}
