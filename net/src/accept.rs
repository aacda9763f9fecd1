//! Accepting connections on one core, whatever is spoken on them.

use nigh_shard::env::Env;
use nigh_shard::reactor::Source;
use rustix::io::Errno;
use rustix::net::{SocketFlags, accept_with};
use std::future::poll_fn;
use std::io;
use std::os::fd::OwnedFd;
use std::task::Poll;

/// Connections accepted before other tasks get a turn.
const ACCEPT_BATCH: usize = 64;
/// Wait after the process ran out of descriptors or memory for a connection.
const ACCEPT_BACKOFF_US: u64 = 100_000;

/// Hands every connection of `listener` to `admit`, until dropped.
///
/// # Errors
/// The listener is no listener (any more); what may pass is waited for instead.
pub async fn accept_all(env: &dyn Env, listener: &Source, mut admit: impl FnMut(OwnedFd)) -> io::Result<()> {
    let mut exhausted = false;
    loop {
        for _ in 0..ACCEPT_BATCH {
            match accept(listener).await {
                Ok(socket) => {
                    exhausted = false;
                    admit(socket);
                }
                Err(error) => wait_after(env, error, &mut exhausted).await?,
            }
        }
        env.yield_now().await;
    }
}

/// Waits as long as makes sense after a connection could not be accepted. `exhausted`: that was said already of what the process has run out
/// of.
///
/// # Errors
/// The listener is no listener (any more).
pub async fn wait_after(env: &dyn Env, error: io::Error, exhausted: &mut bool) -> io::Result<()> {
    match Errno::from_io_error(&error) {
        Some(Errno::MFILE | Errno::NFILE | Errno::NOBUFS | Errno::NOMEM) => {
            if !std::mem::replace(exhausted, true) {
                tracing::warn!(target: "nigh", %error, "cannot accept connections for now");
            }
            env.sleep_us(ACCEPT_BACKOFF_US).await;
        }
        Some(Errno::CONNABORTED | Errno::PROTO | Errno::INTR | Errno::PERM) => {}
        Some(Errno::BADF | Errno::INVAL | Errno::NOTSOCK) => return Err(error),
        // The network, a security module: not of our making, and it may pass.
        _ => {
            tracing::warn!(target: "nigh", %error, "a connection could not be accepted");
            env.sleep_us(ACCEPT_BACKOFF_US).await;
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
            match accept_with(listener, SocketFlags::NONBLOCK | SocketFlags::CLOEXEC) {
                Ok(socket) => return Poll::Ready(Ok(socket)),
                Err(Errno::WOULDBLOCK) => {}
                Err(error) => return Poll::Ready(Err(error.into())),
            }
            listener.clear_readable();
        }
    })
    .await
}
