//! Request bodies: counted while they stream in, with the client's slowness (and only that) on the clock.

use super::connection::{Connection, Phase};
use super::memory::Memory;
use crate::auth::{Bill, Presence};
use crate::collected::Collected;
use crate::gunzip::{Encoding, Gunzip, Piece};
use crate::op::{ApiError, ErrorKind};
use bytes::Bytes;
use http_body::Body;
use hyper::body::Incoming;
use nigh_shard::account::CoreCharge;
#[cfg(test)]
use nigh_shard::account::{Account, CoreCharges, MemoryUse};
use nigh_shard::env::Env;
use std::cell::RefCell;
use std::future::poll_fn;
use std::io;
use std::pin::Pin;
use std::rc::Rc;
#[cfg(test)]
use std::sync::Arc;
use std::task::Poll;

/// Bytes collected between two chances for other work of the core.
const COLLECT_SLICE_BYTES: usize = 1 << 20;

/// Why a body is not available.
#[derive(Debug, thiserror::Error)]
pub enum BodyError {
    /// Over the route's limit, in bytes once they are decoded.
    #[error("request body too large: at most {0} bytes")]
    TooLarge(u64),
    /// Too many bytes of bodies are in memory already.
    #[error("too many request bytes in flight; try again")]
    Crowded,
    /// The connection broke, ended early, or its chunks are malformed.
    #[error("the request body is incomplete: {0}")]
    Incomplete(hyper::Error),
    /// It is not what its encoding says.
    #[error("the request body is not valid gzip: {0}")]
    Garbled(io::Error),
}

impl From<BodyError> for ApiError {
    fn from(error: BodyError) -> Self {
        match error {
            BodyError::TooLarge(limit) => ApiError::too_large(limit),
            BodyError::Crowded => ApiError::new(ErrorKind::Unavailable, error.to_string()),
            BodyError::Incomplete(_) | BodyError::Garbled(_) => ApiError::invalid(error.to_string()),
        }
    }
}

/// Body bytes of one request, counted against the process's bound until it is dropped.
pub(super) struct HeldBytes(RefCell<CoreCharge>);

impl HeldBytes {
    pub(super) fn new(memory: &Memory) -> Rc<Self> {
        Rc::new(HeldBytes(RefCell::new(memory.bodies.holder())))
    }

    fn grow(&self, total: u64) -> Result<(), BodyError> {
        if self.0.borrow_mut().resize(total) { Ok(()) } else { Err(BodyError::Crowded) }
    }
}

/// Where a body comes from.
enum Source {
    /// A client, through hyper; `None` once the reader has been dropped.
    Client(Option<Incoming>, Rc<Connection>),
    /// A test that has it in memory.
    #[cfg(test)]
    Memory(Option<Bytes>, Presence),
}

impl Source {
    fn is_end_stream(&self) -> bool {
        match self {
            Source::Client(incoming, _) => incoming.as_ref().is_none_or(Body::is_end_stream),
            #[cfg(test)]
            Source::Memory(bytes, _) => bytes.is_none(),
        }
    }
}

/// The body of one request. Nothing is read (and no `100 Continue` sent) before the first call.
pub struct BodyReader {
    source: Source,
    env: Rc<dyn Env>,
    held: Rc<HeldBytes>,
    received: u64,
    /// Bytes of an encoded body as they were sent.
    sent: u64,
    limit: u64,
    /// The end was seen; of a chunked body nothing else tells.
    ended: bool,
    gunzip: Option<Gunzip>,
}

impl Drop for BodyReader {
    fn drop(&mut self) {
        match &mut self.source {
            Source::Client(incoming, connection) => {
                if let Some(incoming) =
                    incoming.take().filter(|incoming| !self.ended && !incoming.is_end_stream())
                {
                    connection.left_body_unread(incoming);
                }
            }
            #[cfg(test)]
            Source::Memory(..) => {}
        }
    }
}

impl BodyReader {
    pub(super) fn new(
        incoming: Incoming,
        connection: Rc<Connection>,
        env: Rc<dyn Env>,
        held: Rc<HeldBytes>,
    ) -> Self {
        Self::of(Source::Client(Some(incoming), connection), env, held)
    }

    /// A body that is there already.
    #[cfg(test)]
    pub(crate) fn of_bytes(bytes: Bytes, env: Rc<dyn Env>, account: &Arc<Account>) -> Self {
        let bodies = CoreCharges::new(account, MemoryUse::Requests, u64::MAX);
        let held = Rc::new(HeldBytes(RefCell::new(bodies.holder())));
        Self::of(Source::Memory(Some(bytes), Presence::default()), env, held)
    }

    fn of(source: Source, env: Rc<dyn Env>, held: Rc<HeldBytes>) -> Self {
        BodyReader { source, env, held, received: 0, sent: 0, limit: u64::MAX, ended: false, gunzip: None }
    }

    /// Which API key the connection of the request counts for.
    pub fn presence(&self) -> &Presence {
        match &self.source {
            Source::Client(_, connection) => connection.presence(),
            #[cfg(test)]
            Source::Memory(_, presence) => presence,
        }
    }

    /// Charges what is received of the body, and what is sent in answer to it, by `bill`.
    pub fn charge_to(&self, bill: Option<Bill>) {
        match &self.source {
            Source::Client(_, connection) => connection.charge_to(bill),
            #[cfg(test)]
            Source::Memory(..) => {}
        }
    }

    /// Sets the limit of this body.
    ///
    /// # Errors
    /// [`BodyError::TooLarge`] when the declared length is over it already.
    pub fn limit(&mut self, bytes: u64) -> Result<(), BodyError> {
        self.limit = bytes;
        match self.declared_bytes() {
            Some(declared) if declared > bytes => Err(BodyError::TooLarge(bytes)),
            _ => Ok(()),
        }
    }

    /// Says how the body is encoded; called before anything is read of it.
    pub fn encoded(&mut self, encoding: Encoding) {
        self.gunzip = (encoding == Encoding::Gzip).then(Gunzip::default);
    }

    /// The declared length, `None` for a chunked body; of an encoded one that of what is sent.
    pub fn declared_bytes(&self) -> Option<u64> {
        match &self.source {
            Source::Client(incoming, _) => {
                incoming.as_ref().and_then(|incoming| incoming.size_hint().exact())
            }
            #[cfg(test)]
            Source::Memory(bytes, _) => bytes.as_ref().map(|bytes| bytes.len() as u64),
        }
    }

    /// The next bytes, decoded, `None` at the end.
    ///
    /// # Errors
    /// Over the limit, incomplete, or not what the encoding says.
    pub async fn next(&mut self) -> Result<Option<Bytes>, BodyError> {
        if self.gunzip.is_none() {
            let bytes = self.receive().await?;
            return match bytes {
                None => Ok(None),
                Some(bytes) => self.count(bytes.len()).map(|()| Some(bytes)),
            };
        }
        loop {
            let piece = self.gunzip.as_mut().map(Gunzip::piece).transpose().map_err(BodyError::Garbled)?;
            match piece.unwrap_or(Piece::End) {
                Piece::Bytes(bytes) => {
                    self.count(bytes.len())?;
                    // A piece takes as long as a slice may.
                    self.env.breathe().await;
                    return Ok(Some(bytes));
                }
                Piece::End => return Ok(None),
                Piece::Nothing => self.env.breathe().await,
                Piece::Wanting => {
                    let bytes = self.receive().await?;
                    self.sent += bytes.as_ref().map_or(0, Bytes::len) as u64;
                    // No encoder makes a body much longer than it was.
                    if self.sent > self.limit.saturating_add(self.limit / 1024 + 1024) {
                        return Err(BodyError::TooLarge(self.limit));
                    }
                    self.gunzip.as_mut().into_iter().for_each(|gunzip| gunzip.feed(bytes.clone()));
                }
            }
        }
    }

    /// Counts decoded bytes against the limits.
    fn count(&mut self, bytes: usize) -> Result<(), BodyError> {
        self.received += bytes as u64;
        if self.received > self.limit {
            return Err(BodyError::TooLarge(self.limit));
        }
        self.held.grow(self.received)
    }

    /// The next bytes as they are sent.
    async fn receive(&mut self) -> Result<Option<Bytes>, BodyError> {
        loop {
            let (incoming, connection) = match &mut self.source {
                Source::Client(Some(incoming), connection) => (incoming, connection),
                Source::Client(None, _) => return Ok(None),
                #[cfg(test)]
                Source::Memory(bytes, _) => return Ok(bytes.take().filter(|bytes| !bytes.is_empty())),
            };
            let frame = poll_fn(|cx| match Pin::new(&mut *incoming).poll_frame(cx) {
                Poll::Pending => {
                    connection.enter(Phase::Body);
                    Poll::Pending
                }
                ready => ready,
            })
            .await;
            connection.enter(Phase::Handling);
            let Some(frame) = frame else {
                self.ended = true;
                return Ok(None);
            };
            // Trailers mean nothing here.
            let Ok(bytes) = frame.map_err(BodyError::Incomplete)?.into_data() else { continue };
            connection.received_body(bytes.len());
            if !bytes.is_empty() {
                return Ok(Some(bytes));
            }
        }
    }

    /// The whole body, in the pieces it came in.
    ///
    /// # Errors
    /// As [`BodyReader::next`].
    pub async fn whole(&mut self) -> Result<Collected, BodyError> {
        // Memory follows what arrives, not what was declared.
        let mut body = Collected::default();
        let mut slice = 0;
        while let Some(bytes) = self.next().await? {
            slice += bytes.len();
            body.push(bytes);
            if self.gunzip.is_none() && self.source.is_end_stream() {
                break;
            }
            if slice >= COLLECT_SLICE_BYTES {
                slice = 0;
                self.env.breathe().await;
            }
        }
        Ok(body)
    }

    /// Gives other work of the core a turn, between two slices of decoding.
    pub async fn breathe(&self) {
        self.env.breathe().await;
    }
}
