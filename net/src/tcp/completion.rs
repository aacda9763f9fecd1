//! The other transport: sockets whose operations complete on their own, in a ring of the core.

use crate::metrics::Telemetry;
use crate::tcp::counters::Count;
use crate::tcp::transport::{Arrival, Carrier, Outgoing, Transport};
use nigh_shard::completions::{Received, Socket};
use rustix::net::Shutdown;
use std::future::poll_fn;
use std::io;
use std::sync::Arc;
use std::task::{Context, Poll};

/// Bytes thrown away at a time while a stream is read to its end.
const DISCARD_BYTES: usize = 64 << 10;

/// A socket of the core's completion loop. Bytes are counted on that core; calls are the loop's.
pub struct Completion {
    socket: Socket,
    telemetry: Arc<Telemetry>,
    core: usize,
}

impl Completion {
    /// A connected socket of core `core`.
    pub fn new(socket: Socket, telemetry: Arc<Telemetry>, core: usize) -> Completion {
        Completion { socket, telemetry, core }
    }

    fn count(&self, count: Count, amount: u64) {
        self.telemetry.tcp.add(self.core, count, amount);
    }
}

impl Transport for Completion {
    fn poll_arrived(&self, cx: &mut Context<'_>) -> Poll<()> {
        self.socket.poll_arrived(cx)
    }

    fn has_arrived(&self) -> bool {
        self.socket.has_arrived()
    }

    fn receive(&self, into: &mut Vec<u8>) -> io::Result<Arrival> {
        let before = into.len();
        let received = self.socket.receive(into)?;
        self.count(Count::BytesReceived, (into.len() - before) as u64);
        Ok(match received {
            Received::Bytes { more } => Arrival::Bytes { more },
            Received::Nothing => Arrival::Nothing,
            Received::End => Arrival::End,
        })
    }

    async fn send(&self, bytes: &[u8], blocked: impl Fn(bool)) -> io::Result<()> {
        self.socket.send(bytes, blocked).await?;
        self.count(Count::BytesSent, bytes.len() as u64);
        Ok(())
    }

    fn shutdown(&self) {
        self.socket.shutdown(Shutdown::Both);
    }

    async fn finish(&self) {
        self.socket.shutdown(Shutdown::Write);
        let mut thrown_away = Vec::with_capacity(DISCARD_BYTES);
        loop {
            poll_fn(|cx| self.socket.poll_arrived(cx)).await;
            thrown_away.clear();
            match self.socket.receive(&mut thrown_away) {
                Ok(Received::Bytes { .. } | Received::Nothing) => {}
                Ok(Received::End) | Err(_) => return,
            }
        }
    }
}

impl Carrier for Completion {
    async fn send_from(&self, outgoing: &impl Outgoing, blocked: impl Fn(bool)) -> io::Result<()> {
        let fill = |room: &mut Vec<u8>| {
            while outgoing.are_there() {
                outgoing.hand_out(&mut |slices| {
                    let len = slices.iter().map(|slice| slice.len()).sum();
                    room.reserve(len);
                    slices.iter().for_each(|slice| room.extend_from_slice(slice));
                    Ok(len)
                })?;
            }
            Ok(())
        };
        let sent = self.socket.send_filled(fill, blocked).await?;
        self.count(Count::BytesSent, sent as u64);
        Ok(())
    }
}
