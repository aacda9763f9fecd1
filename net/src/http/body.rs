//! Request bodies: counted while they stream in, with the client's slowness (and only that) on the clock.

use super::HttpConfig;
use super::connection::{Connection, Phase};
use crate::limits;
use crate::request::{ApiError, ErrorKind};
use bytes::{Bytes, BytesMut};
use http_body::Body;
use hyper::body::Incoming;
use nigh_shard::runtime::CoreRuntime;
use std::cell::Cell;
use std::future::poll_fn;
use std::pin::Pin;
use std::rc::Rc;
use std::task::Poll;

/// Bytes collected between two chances for other work of the core.
const COLLECT_SLICE_BYTES: usize = 1 << 20;

/// Why a body is not available.
#[derive(Debug, thiserror::Error)]
pub enum BodyError {
    /// Over the route's limit.
    #[error("request body too large")]
    TooLarge,
    /// Too many bytes of bodies are in memory already.
    #[error("too many request bytes in flight; try again")]
    Crowded,
    /// The connection broke, ended early, or its chunks are malformed.
    #[error("the request body is incomplete: {0}")]
    Incomplete(hyper::Error),
}

impl From<BodyError> for ApiError {
    fn from(error: BodyError) -> Self {
        match error {
            BodyError::TooLarge => ApiError::too_large(),
            BodyError::Crowded => ApiError::new(ErrorKind::Unavailable, error.to_string()),
            BodyError::Incomplete(_) => ApiError::invalid(error.to_string()),
        }
    }
}

/// Body bytes of one request that are counted against the process's bound, until it is dropped.
pub(super) struct HeldBytes {
    config: Rc<HttpConfig>,
    bytes: Cell<u64>,
}

impl HeldBytes {
    pub(super) fn new(config: Rc<HttpConfig>) -> Rc<Self> {
        Rc::new(HeldBytes { config, bytes: Cell::new(0) })
    }

    fn grow(&self, total: u64) -> Result<(), BodyError> {
        let wanted = if total > limits::BODY_UNCOUNTED_BYTES { total } else { 0 };
        let more = wanted.saturating_sub(self.bytes.get());
        if more > 0 {
            if !self.config.telemetry.take_body_bytes(more, self.config.max_body_bytes) {
                return Err(BodyError::Crowded);
            }
            self.bytes.set(wanted);
        }
        Ok(())
    }
}

impl Drop for HeldBytes {
    fn drop(&mut self) {
        if self.bytes.get() > 0 {
            self.config.telemetry.give_body_bytes(self.bytes.get());
        }
    }
}

/// The body of one request. Nothing is read (and no `100 Continue` sent) before the first call.
pub struct BodyReader {
    incoming: Incoming,
    connection: Rc<Connection>,
    runtime: CoreRuntime,
    held: Rc<HeldBytes>,
    received: u64,
    limit: u64,
    /// The end was seen; of a chunked body nothing else tells.
    ended: bool,
}

impl Drop for BodyReader {
    fn drop(&mut self) {
        if !self.ended && !self.incoming.is_end_stream() {
            self.connection.left_body_unread();
        }
    }
}

impl BodyReader {
    pub(super) fn new(
        incoming: Incoming,
        connection: Rc<Connection>,
        runtime: CoreRuntime,
        held: Rc<HeldBytes>,
    ) -> Self {
        BodyReader { incoming, connection, runtime, held, received: 0, limit: u64::MAX, ended: false }
    }

    /// Sets the limit of this body.
    ///
    /// # Errors
    /// [`BodyError::TooLarge`] when the declared length is over it already.
    pub fn limit(&mut self, bytes: u64) -> Result<(), BodyError> {
        self.limit = bytes;
        match self.declared_bytes() {
            Some(declared) if declared > bytes => Err(BodyError::TooLarge),
            _ => Ok(()),
        }
    }

    /// The declared length, `None` for a chunked body.
    pub fn declared_bytes(&self) -> Option<u64> {
        self.incoming.size_hint().exact()
    }

    /// The next bytes, `None` at the end.
    ///
    /// # Errors
    /// Over the limit, or incomplete.
    pub async fn next(&mut self) -> Result<Option<Bytes>, BodyError> {
        loop {
            let frame = poll_fn(|cx| match Pin::new(&mut self.incoming).poll_frame(cx) {
                Poll::Pending => {
                    self.connection.enter(Phase::Body);
                    Poll::Pending
                }
                ready => ready,
            })
            .await;
            self.connection.enter(Phase::Handling);
            let Some(frame) = frame else {
                self.ended = true;
                return Ok(None);
            };
            // Trailers mean nothing here.
            let Ok(bytes) = frame.map_err(BodyError::Incomplete)?.into_data() else { continue };
            self.received += bytes.len() as u64;
            self.connection.received_body(bytes.len());
            if self.received > self.limit {
                return Err(BodyError::TooLarge);
            }
            self.held.grow(self.received)?;
            if !bytes.is_empty() {
                return Ok(Some(bytes));
            }
        }
    }

    /// The whole body in one piece; a body that came in one frame is not copied.
    ///
    /// # Errors
    /// As [`BodyReader::next`].
    pub async fn whole(&mut self) -> Result<Bytes, BodyError> {
        let Some(first) = self.next().await? else { return Ok(Bytes::new()) };
        if self.incoming.is_end_stream() {
            return Ok(first);
        }
        let Some(second) = self.next().await? else { return Ok(first) };
        // Memory follows what arrives, not what was declared.
        let mut whole = BytesMut::with_capacity(2 * (first.len() + second.len()));
        whole.extend_from_slice(&first);
        whole.extend_from_slice(&second);
        let mut slice = 0;
        while let Some(bytes) = self.next().await? {
            whole.extend_from_slice(&bytes);
            slice += bytes.len();
            if slice >= COLLECT_SLICE_BYTES {
                slice = 0;
                self.runtime.breathe().await;
            }
        }
        Ok(whole.freeze())
    }

    /// Gives other work of the core a turn, between two slices of decoding.
    pub async fn breathe(&self) {
        self.runtime.breathe().await;
    }
}
