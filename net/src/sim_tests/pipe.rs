//! A connection without a socket: bytes come in pieces of any size, and sending takes turns.

use crate::tcp::sim_server::{Arrival, Transport};
use nigh_shard::event::Event;
use nigh_shard::sim::Sim;
use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::io;
use std::rc::Rc;
use std::task::{Context, Poll, Waker};

/// Longest piece of either direction, bytes.
const PIECE_MAX: u64 = 200;

#[derive(Default)]
struct Ends {
    to_server: RefCell<VecDeque<u8>>,
    to_client: RefCell<Vec<u8>>,
    /// The server waits for bytes.
    server: RefCell<Option<Waker>>,
    /// Something has come for the client.
    answered: Event,
    closed: Cell<bool>,
}

/// The server's end.
pub struct ServerEnd {
    sim: Sim,
    ends: Rc<Ends>,
}

/// The client's end.
pub struct ClientEnd {
    ends: Rc<Ends>,
}

/// Makes both ends.
pub fn pipe(sim: &Sim) -> (ClientEnd, ServerEnd) {
    let ends = Rc::new(Ends::default());
    (ClientEnd { ends: ends.clone() }, ServerEnd { sim: sim.clone(), ends })
}

impl ClientEnd {
    /// Sends bytes.
    pub fn send(&self, bytes: &[u8]) {
        self.ends.to_server.borrow_mut().extend(bytes);
        self.wake();
    }

    /// The next response: its status and its payload. Waits for it.
    pub async fn response(&self) -> (u8, Vec<u8>) {
        loop {
            let waiting = self.ends.answered.wait();
            if let Some(response) = self.take() {
                return response;
            }
            assert!(
                !self.ends.closed.get(),
                "the server has closed a connection of a client that did nothing wrong"
            );
            waiting.await;
        }
    }

    fn take(&self) -> Option<(u8, Vec<u8>)> {
        let mut bytes = self.ends.to_client.borrow_mut();
        let body = u32::from_be_bytes(*bytes.first_chunk::<4>()?) as usize;
        if bytes.len() < 4 + body {
            return None;
        }
        let frame: Vec<u8> = bytes.drain(..4 + body).collect();
        assert_eq!(u32::from_be_bytes(frame[5..9].try_into().expect("four bytes")) as usize, body - 5);
        Some((frame[4], frame[9..].to_vec()))
    }

    fn wake(&self) {
        if let Some(waker) = self.ends.server.take() {
            waker.wake();
        }
    }
}

impl Drop for ClientEnd {
    fn drop(&mut self) {
        self.ends.closed.set(true);
        self.wake();
    }
}

impl Transport for ServerEnd {
    fn poll_arrived(&self, cx: &mut Context<'_>) -> Poll<()> {
        if self.has_arrived() {
            return Poll::Ready(());
        }
        *self.ends.server.borrow_mut() = Some(cx.waker().clone());
        Poll::Pending
    }

    fn has_arrived(&self) -> bool {
        self.ends.closed.get() || !self.ends.to_server.borrow().is_empty()
    }

    fn receive(&self, into: &mut Vec<u8>) -> io::Result<Arrival> {
        let mut there = self.ends.to_server.borrow_mut();
        if there.is_empty() {
            return Ok(if self.ends.closed.get() { Arrival::End } else { Arrival::Nothing });
        }
        let room = into.capacity() - into.len();
        let piece = (1 + self.sim.random().below(PIECE_MAX) as usize).min(room).min(there.len());
        into.extend(there.drain(..piece));
        Ok(Arrival::Bytes { more: !there.is_empty() })
    }

    async fn send(&self, bytes: &[u8], _blocked: impl Fn(bool)) -> io::Result<()> {
        let mut left = bytes;
        while !left.is_empty() {
            if self.ends.closed.get() {
                return Err(io::ErrorKind::BrokenPipe.into());
            }
            let piece = (1 + self.sim.random().below(PIECE_MAX) as usize).min(left.len());
            self.ends.to_client.borrow_mut().extend_from_slice(&left[..piece]);
            self.ends.answered.notify();
            left = &left[piece..];
            self.sim.yield_now().await;
        }
        Ok(())
    }

    fn shutdown(&self) {
        self.ends.closed.set(true);
        self.ends.answered.notify();
        if let Some(waker) = self.ends.server.take() {
            waker.wake();
        }
    }

    async fn finish(&self) {
        self.shutdown();
    }
}
