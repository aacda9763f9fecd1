//! Handshakes: how many may be under way on a core, how long one may take, and where it is computed.
//!
//! The signature of a handshake takes 0.1 to 1 ms, too long for a core, whose other requests would wait. The steps of a handshake therefore run on
//! a low-priority thread, as other long work does.

use super::channel::Channel;
use super::counters::Ended;
use super::session::{Handshake, Session, first_bytes_are_tls};
use super::{Protocol, Tls};
use crate::limits;
use crate::metrics::Telemetry;
use futures_lite::future::or;
use nigh_shard::env::{self, Env};
use nigh_shard::event::Lock;
use std::cell::Cell;
use std::future::Future;
use std::io;
use std::rc::Rc;
use std::sync::Arc;

/// The socket under a handshake.
pub trait Link {
    /// Waits for bytes and appends them. None appended is the end of the stream.
    ///
    /// # Errors
    /// The connection is broken.
    fn receive(&self, into: &mut Vec<u8>) -> impl Future<Output = io::Result<()>>;
    /// Sends all of `bytes`.
    ///
    /// # Errors
    /// The connection is broken.
    fn send(&self, bytes: &[u8]) -> impl Future<Output = io::Result<()>>;
}

/// What a handshake came to.
pub enum Outcome {
    /// The connection is secure.
    Secure(Box<Channel>),
    /// The client does not speak TLS. Nothing was answered.
    Plain,
    /// Too many handshakes were under way, and the client was told so.
    Crowded,
    /// It failed, and the client was told why as far as TLS has a word for it.
    Failed,
}

/// The handshakes of one core and transport.
pub struct Handshakes {
    env: Rc<dyn Env>,
    telemetry: Arc<Telemetry>,
    tls: Arc<Tls>,
    protocol: Protocol,
    under_way: Cell<usize>,
    /// Held while a step is computed.
    computing: Rc<Lock>,
}

/// Counts a handshake while it lives.
struct UnderWay<'a>(&'a Cell<usize>);

impl UnderWay<'_> {
    fn begin(count: &Cell<usize>) -> UnderWay<'_> {
        count.set(count.get() + 1);
        UnderWay(count)
    }
}

impl Drop for UnderWay<'_> {
    fn drop(&mut self) {
        self.0.set(self.0.get() - 1);
    }
}

/// A fatal `internal_error` alert in plain text, for clients that are refused before a handshake.
const INTERNAL_ERROR: [u8; 7] = [21, 3, 3, 0, 2, 2, 80];

/// Bytes received between two steps of a handshake, at most.
pub const RECEIVED_AT_ONCE: usize = 16 << 10;

impl Handshakes {
    /// None are under way.
    pub fn new(env: Rc<dyn Env>, telemetry: Arc<Telemetry>, tls: Arc<Tls>, protocol: Protocol) -> Handshakes {
        Handshakes { env, telemetry, tls, protocol, under_way: Cell::new(0), computing: Rc::default() }
    }

    /// Makes a connection secure, within [`limits::HEADER_READ_MAX_SECONDS`] seconds of `second` each.
    pub async fn secure(&self, link: &impl Link, second_us: u64) -> Outcome {
        let late = async {
            self.env.sleep_us(u64::from(limits::HEADER_READ_MAX_SECONDS) * second_us).await;
            Outcome::Failed
        };
        let stopping = async {
            self.env.stopping().await;
            Outcome::Failed
        };
        let outcome = or(self.converse(link), or(late, stopping)).await;
        self.telemetry.handshakes.add(match &outcome {
            Outcome::Secure(channel) if channel.session().handshake_kind() == Some(Handshake::Resumed) => {
                Ended::Resumed
            }
            Outcome::Secure(_) => Ended::Full,
            Outcome::Crowded => Ended::Refused,
            Outcome::Plain | Outcome::Failed => Ended::Failed,
        });
        outcome
    }

    async fn converse(&self, link: &impl Link) -> Outcome {
        let mut channel = match Session::new(self.tls.current(self.protocol)) {
            Ok(session) => Box::new(Channel::new(session)),
            Err(error) => {
                tracing::error!(target: "nigh", %error, "the TLS configuration cannot be used");
                return Outcome::Failed;
            }
        };
        let mut counted = None;
        loop {
            let mut outgoing = Vec::new();
            channel.take_outgoing(&mut outgoing);
            if !outgoing.is_empty() && link.send(&outgoing).await.is_err() {
                return Outcome::Failed;
            }
            if !channel.session().is_handshaking() {
                return Outcome::Secure(channel);
            }
            let mut received = Vec::with_capacity(RECEIVED_AT_ONCE);
            if link.receive(&mut received).await.is_err() || received.is_empty() {
                return Outcome::Failed;
            }
            if counted.is_none() {
                if first_bytes_are_tls(&received) == Some(false) {
                    return Outcome::Plain;
                }
                // Connections that send nothing are no handshakes, and have a bound of their own.
                if self.under_way.get() >= limits::TLS_HANDSHAKES_MAX {
                    let _gone = link.send(&INTERNAL_ERROR).await;
                    return Outcome::Crowded;
                }
                counted = Some(UnderWay::begin(&self.under_way));
            }
            let step = move || {
                let fed = channel.feed(&received);
                (channel, fed)
            };
            let fed;
            (channel, fed) = {
                // One at a time, so that other work for these threads does not wait behind all handshakes of the core.
                let _turn = self.computing.lock().await;
                env::compute(&self.env, step).await
            };
            if let Err(error) = fed {
                tracing::debug!(target: "nigh", %error, "a handshake failed");
                let mut alert = Vec::new();
                channel.take_outgoing(&mut alert);
                let _gone = link.send(&alert).await;
                return Outcome::Failed;
            }
        }
    }
}
