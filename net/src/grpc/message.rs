//! Messages of one call as they arrive: counted while they stream in, with the client's slowness (and only that) on the clock.
//!
//! A message is a byte that says whether it is compressed, four with its length, and itself.

use super::connection::Connection;
use super::status::{Code, Status};
use crate::collected::Collected;
use crate::gunzip::{DECODER_BYTES, Encoding, Gunzip, Piece};
use crate::limits::{self, GRPC_MESSAGE_MAX_BYTES, GRPC_OPEN_MESSAGE_MAX_BYTES};
use crate::op::ApiError;
use bytes::Bytes;
use futures_lite::future::{or, poll_once};
use h2::RecvStream;
use nigh_shard::account::CoreCharge;
use nigh_shard::env::Env;
use std::future::poll_fn;
use std::rc::Rc;
use std::time::Duration;

/// Bytes before a message.
pub const PREFIX_BYTES: usize = 5;

/// Why there is no message.
#[derive(Debug, PartialEq)]
pub enum Fault {
    /// The call ends with this.
    Status(Status),
    /// The client has given the call up, or the connection broke.
    Gone,
}

impl From<ApiError> for Fault {
    fn from(error: ApiError) -> Fault {
        Fault::Status(error.into())
    }
}

impl Fault {
    fn invalid(message: &str) -> Fault {
        Fault::Status(Status::new(Code::InvalidArgument, message))
    }
}

/// The messages of one call. Nothing is read before the first one is asked for.
pub struct Messages {
    body: RecvStream,
    env: Rc<dyn Env>,
    connection: Rc<Connection>,
    encoding: Encoding,
    /// What the message under way holds of the memory of the process. A call that anybody may make has short messages and holds nothing.
    held: Option<CoreCharge>,
    /// Received and not taken.
    rest: Bytes,
    received: u64,
    waited_us: u64,
    second: Duration,
}

impl Messages {
    /// Those of a body. What they hold is counted by `held`, `None` for a call that anybody may make.
    pub fn new(
        body: RecvStream,
        env: Rc<dyn Env>,
        connection: Rc<Connection>,
        encoding: Encoding,
        held: Option<CoreCharge>,
        second: Duration,
    ) -> Messages {
        let (rest, received, waited_us) = (Bytes::new(), 0, 0);
        Messages { body, env, connection, encoding, held, rest, received, waited_us, second }
    }

    /// How many bytes of the call have been received.
    pub fn received(&self) -> u64 {
        self.received
    }

    /// The one message of a call that has one, `None` where there is none at all.
    ///
    /// # Errors
    /// As [`Messages::next`], and where another follows.
    pub async fn only(&mut self) -> Result<Option<Collected>, Fault> {
        let Some(message) = self.next().await? else { return Ok(None) };
        match self.is_at_end().await? {
            true => Ok(Some(message)),
            false => Err(Fault::invalid("the method takes one message, and the call has another")),
        }
    }

    /// The next message, decompressed, `None` at the end. What it holds is counted until the one after it is asked for.
    ///
    /// # Errors
    /// It is too large, incomplete, or not what it says it is.
    pub async fn next(&mut self) -> Result<Option<Collected>, Fault> {
        self.hold(0)?;
        if self.is_at_end().await? {
            return Ok(None);
        }
        let mut prefix = [0; PREFIX_BYTES];
        for byte in &mut prefix {
            if self.is_at_end().await? {
                return Err(Fault::invalid("the message is incomplete"));
            }
            *byte = self.take(1)[0];
        }
        let [flag, len @ ..] = prefix;
        let len = u32::from_be_bytes(len) as usize;
        if len > self.most() {
            return Err(self.too_large());
        }
        let is_compressed = match (flag, self.encoding) {
            (0, _) => false,
            (1, Encoding::Gzip) => true,
            (1, Encoding::Identity) => {
                return Err(Fault::invalid("the message is compressed, and grpc-encoding does not say how"));
            }
            _ => return Err(Fault::invalid("the first byte of a message must be 0 or 1")),
        };
        let mut message = Collected::default();
        while message.len() < len {
            if self.is_at_end().await? {
                return Err(Fault::invalid("the message is incomplete"));
            }
            let taken = self.rest.len().min(len - message.len());
            // Memory follows what arrives, not what was declared.
            self.hold(message.len() + taken)?;
            let taken = self.take(taken);
            message.push(taken);
        }
        if is_compressed { self.decompress(message).await.map(Some) } else { Ok(Some(message)) }
    }

    async fn decompress(&mut self, compressed: Collected) -> Result<Collected, Fault> {
        let sent = compressed.len();
        // Of a short message no more is decoded than it may have, and a byte that is too much.
        let (mut gunzip, mut message) = (Gunzip::with_pieces(self.most() + 1), Collected::default());
        let mut pieces = compressed.into_pieces();
        loop {
            let piece = gunzip
                .piece()
                .map_err(|error| Fault::invalid(&format!("the message is not valid gzip: {error}")))?;
            match piece {
                Piece::Bytes(bytes) => {
                    if message.len() + bytes.len() > self.most() {
                        return Err(self.too_large());
                    }
                    self.hold(DECODER_BYTES + sent + message.len() + bytes.len())?;
                    message.push(bytes);
                }
                Piece::Nothing => {}
                Piece::Wanting => gunzip.feed(pieces.next()),
                Piece::End => {
                    self.hold(message.len())?;
                    return Ok(message);
                }
            }
            // A short message is decoded on the spot: decoders of many calls that wait for a turn would take much more memory than the calls.
            if self.held.is_some() {
                self.env.breathe().await;
            }
        }
    }

    /// Bytes of a message at most.
    fn most(&self) -> usize {
        if self.held.is_some() { GRPC_MESSAGE_MAX_BYTES } else { GRPC_OPEN_MESSAGE_MAX_BYTES }
    }

    fn too_large(&self) -> Fault {
        let text = format!("message too large: at most {} bytes", self.most());
        Fault::Status(Status::new(Code::ResourceExhausted, text))
    }

    fn hold(&mut self, bytes: usize) -> Result<(), Fault> {
        match self.held.as_mut().is_none_or(|held| held.resize(bytes as u64)) {
            true => Ok(()),
            false => {
                let text = "too many request bytes in flight; try again";
                Err(Fault::Status(Status::new(Code::Unavailable, text)))
            }
        }
    }

    /// Whether nothing follows; there are bytes in `rest` otherwise.
    async fn is_at_end(&mut self) -> Result<bool, Fault> {
        while self.rest.is_empty() {
            match self.data().await? {
                Some(bytes) => self.rest = bytes,
                None => return Ok(true),
            }
        }
        Ok(false)
    }

    /// The next bytes that arrive. A client that takes its time has as much of it as one of HTTP has for a body.
    async fn data(&mut self) -> Result<Option<Bytes>, Fault> {
        let Messages { body, env, connection, waited_us, .. } = self;
        let data = match poll_once(poll_fn(|cx| body.poll_data(cx))).await {
            Some(data) => data,
            None => {
                let _waiting = connection.wait();
                let earned = self.received / limits::BODY_BYTES_PER_EXTRA_SECOND;
                let seconds = u64::from(limits::BODY_READ_MAX_SECONDS) + earned;
                let seconds = seconds.min(limits::BODY_LIFE_MAX_SECONDS.into());
                let left_us = (seconds * self.second.as_micros() as u64).saturating_sub(*waited_us);
                let began_ns = env.now_ns();
                let late = async {
                    env.sleep_us(left_us).await;
                    None
                };
                let data = or(async { Some(poll_fn(|cx| body.poll_data(cx)).await) }, late).await;
                *waited_us += (env.now_ns() - began_ns) / 1000;
                data.ok_or_else(|| {
                    Fault::Status(Status::new(Code::DeadlineExceeded, "the message did not arrive in time"))
                })?
            }
        };
        let Some(data) = data else { return Ok(None) };
        let bytes = data.map_err(|_| Fault::Gone)?;
        self.received += bytes.len() as u64;
        Ok(Some(bytes))
    }

    /// Takes so many bytes of those that are there. The window opens again for them, and not for others, which wait here.
    fn take(&mut self, bytes: usize) -> Bytes {
        // An error says that the stream is gone, which the next read finds.
        let _gone = self.body.flow_control().release_capacity(bytes);
        self.rest.split_to(bytes)
    }
}
