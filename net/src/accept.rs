//! Accepting connections on one core, whatever is spoken on them.

use nigh_shard::reactor::Source;
use nigh_shard::runtime::CoreRuntime;
use std::future::poll_fn;
use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::task::Poll;

/// Connections accepted before other tasks get a turn.
const ACCEPT_BATCH: usize = 64;
/// Wait after the process ran out of descriptors or memory for a connection.
const ACCEPT_BACKOFF_US: u64 = 100_000;

/// Hands every connection of `listener` to `admit`, until dropped.
///
/// # Errors
/// The listener is no listener (any more); what may pass is waited for instead.
pub async fn accept_all(
    runtime: &CoreRuntime,
    listener: &Source,
    mut admit: impl FnMut(OwnedFd),
) -> io::Result<()> {
    let mut exhausted = false;
    loop {
        for _ in 0..ACCEPT_BATCH {
            match accept(listener).await {
                Ok(socket) => {
                    exhausted = false;
                    admit(socket);
                }
                Err(error) => wait_after(runtime, error, &mut exhausted).await?,
            }
        }
        runtime.yield_now().await;
    }
}

/// Waits as long as makes sense after a connection could not be accepted. `exhausted`: that was said already of what the process has run out
/// of.
///
/// # Errors
/// The listener is no listener (any more).
pub async fn wait_after(runtime: &CoreRuntime, error: io::Error, exhausted: &mut bool) -> io::Result<()> {
    match error.raw_os_error() {
        Some(libc::EMFILE | libc::ENFILE | libc::ENOBUFS | libc::ENOMEM) => {
            if !std::mem::replace(exhausted, true) {
                tracing::warn!(target: "nigh", %error, "cannot accept connections for now");
            }
            runtime.sleep_us(ACCEPT_BACKOFF_US).await;
        }
        Some(libc::ECONNABORTED | libc::EPROTO | libc::EINTR | libc::EPERM) => {}
        Some(libc::EBADF | libc::EINVAL | libc::ENOTSOCK) => return Err(error),
        // The network, a security module: not of our making, and it may pass.
        _ => {
            tracing::warn!(target: "nigh", %error, "a connection could not be accepted");
            runtime.sleep_us(ACCEPT_BACKOFF_US).await;
        }
    }
    Ok(())
}

async fn accept(listener: &Source) -> io::Result<OwnedFd> {
    poll_fn(|cx| {
        loop {
            if listener.poll_readable(cx).is_pending() {
                return Poll::Pending;
            }
            // SAFETY: null address and length are allowed and mean that the peer's address is not wanted; the
            // descriptor lives in `listener`.
            let fd = unsafe {
                libc::accept4(
                    listener.as_raw_fd(),
                    std::ptr::null_mut(),
                    std::ptr::null_mut(),
                    libc::SOCK_NONBLOCK | libc::SOCK_CLOEXEC,
                )
            };
            if fd >= 0 {
                // SAFETY: accept4 has just returned this descriptor, so it is open and nobody else's.
                return Poll::Ready(Ok(unsafe { OwnedFd::from_raw_fd(fd) }));
            }
            let error = io::Error::last_os_error();
            if error.kind() != io::ErrorKind::WouldBlock {
                return Poll::Ready(Err(error));
            }
            listener.clear_readable();
        }
    })
    .await
}
