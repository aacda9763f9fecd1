//! One connection of a completion loop.

use super::Completions;
use rustix::net::Shutdown;
use std::io;
use std::os::fd::{AsRawFd, OwnedFd, RawFd};
use std::rc::Rc;
use std::task::{Context, Poll};

/// What [`Socket::receive`] came to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Received {
    /// So many bytes were appended, and so many are left.
    Bytes {
        /// Whether more is there.
        more: bool,
    },
    /// Nothing is there.
    Nothing,
    /// The peer sends no more.
    End,
}

/// See the module. One task at a time waits per direction. Dropping it ends its operations.
pub struct Socket {
    completions: Rc<Completions>,
    slot: usize,
}

impl Socket {
    /// A connected stream that is not non-blocking.
    pub fn new(completions: Rc<Completions>, socket: OwnedFd) -> Socket {
        let slot = completions.adopt(socket);
        Socket { completions, slot }
    }

    /// Ready when [`Self::receive`] has something to say.
    pub fn poll_arrived(&self, cx: &mut Context<'_>) -> Poll<()> {
        let arrived = self.completions.with_slot(self.slot, |slot| {
            if slot.pending.len() > slot.start || slot.end.is_some() {
                return true;
            }
            match &mut slot.reader {
                Some(waker) => waker.clone_from(cx.waker()),
                none => *none = Some(cx.waker().clone()),
            }
            false
        });
        if arrived {
            return Poll::Ready(());
        }
        self.completions.arm(self.slot);
        Poll::Pending
    }

    /// Whether [`Self::receive`] has something to say, after a look at what the kernel has. Costs a turn of the ring.
    pub fn has_arrived(&self) -> bool {
        self.completions.arm(self.slot);
        // A broken ring ends the whole loop, whose own turn finds it.
        let _broken = self.completions.turn();
        self.completions.with_slot(self.slot, |slot| slot.pending.len() > slot.start || slot.end.is_some())
    }

    /// Appends what has arrived to `into`, as much as its spare room holds. Never waits.
    ///
    /// # Errors
    /// The connection is broken.
    pub fn receive(&self, into: &mut Vec<u8>) -> io::Result<Received> {
        let (received, emptied) = self.completions.with_slot(self.slot, |slot| {
            let waiting = &slot.pending[slot.start..];
            if waiting.is_empty() {
                let received = match slot.end {
                    None => Ok(Received::Nothing),
                    Some(0) => Ok(Received::End),
                    Some(error) => Err(io::Error::from_raw_os_error(error)),
                };
                return (received, None);
            }
            let taken = waiting.len().min(into.capacity() - into.len());
            into.extend_from_slice(&waiting[..taken]);
            let more = waiting.len() > taken;
            slot.start += taken;
            let emptied = if more {
                None
            } else {
                slot.start = 0;
                Some(std::mem::take(&mut slot.pending))
            };
            (Ok(Received::Bytes { more }), emptied)
        });
        if let Some(emptied) = emptied {
            self.completions.keep(emptied);
        }
        self.completions.arm(self.slot);
        received
    }

    /// Sends all of `bytes`, of which a copy is made. `blocked` is told when the kernel has been given bytes that it has not taken, and when
    /// it has.
    ///
    /// # Errors
    /// The connection is broken.
    pub async fn send(&self, bytes: &[u8], blocked: impl Fn(bool)) -> io::Result<()> {
        let fill = |room: &mut Vec<u8>| {
            room.extend_from_slice(bytes);
            Ok(())
        };
        self.send_filled(fill, blocked).await.map(|_| ())
    }

    /// Sends all bytes that `fill` appends, and returns how many these are. `blocked` as in [`Self::send`].
    ///
    /// # Errors
    /// The connection is broken, or the error is that of `fill`, and nothing was sent.
    pub async fn send_filled(
        &self,
        fill: impl FnOnce(&mut Vec<u8>) -> io::Result<()>,
        blocked: impl Fn(bool),
    ) -> io::Result<usize> {
        // Of a send that was given up half-way the kernel may still read the bytes.
        std::future::poll_fn(|cx| {
            self.completions.with_slot(self.slot, |slot| {
                if slot.sending.is_none() || slot.sent.is_some() {
                    return Poll::Ready(());
                }
                slot.writer = Some(cx.waker().clone());
                Poll::Pending
            })
        })
        .await;
        let mut copy = self.completions.spare.borrow_mut().pop().unwrap_or_default();
        let filled = fill(&mut copy);
        let len = copy.len();
        if filled.is_err() || len == 0 {
            self.completions.keep(copy);
            return filled.map(|()| 0);
        }
        self.completions.with_slot(self.slot, |slot| slot.sending = Some((copy, 0)));
        loop {
            self.completions.send_rest(self.slot);
            blocked(true);
            let sent = std::future::poll_fn(|cx| {
                self.completions.with_slot(self.slot, |slot| match slot.sent {
                    Some(sent) => Poll::Ready(sent),
                    None => {
                        slot.writer = Some(cx.waker().clone());
                        Poll::Pending
                    }
                })
            })
            .await;
            blocked(false);
            let done = self.completions.with_slot(self.slot, |slot| {
                let (bytes, gone) = slot.sending.as_mut()?;
                if sent > 0 {
                    *gone += sent as usize;
                }
                let ends =
                    *gone == bytes.len() || (sent < 0 && -sent != libc::EINTR && -sent != libc::EAGAIN);
                if ends { slot.sending.take() } else { None }
            });
            if let Some((copy, gone)) = done {
                let all = gone == copy.len();
                self.completions.keep(copy);
                return if all { Ok(len) } else { Err(io::Error::from_raw_os_error(-sent)) };
            }
        }
    }

    /// Ends the sending half, the receiving half, or both. Whoever waits is told.
    pub fn shutdown(&self, how: Shutdown) {
        // The only failure, a peer already gone, needs nothing more.
        let _gone = self.completions.with_slot(self.slot, |slot| {
            slot.socket.as_ref().map(|socket| rustix::net::shutdown(socket, how))
        });
    }
}

impl AsRawFd for Socket {
    fn as_raw_fd(&self) -> RawFd {
        self.completions.fd(self.slot).0
    }
}

impl Drop for Socket {
    fn drop(&mut self) {
        self.completions.abandon(self.slot);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use futures_lite::future::poll_once;
    use std::future::{Future, poll_fn};
    use std::io::{Read, Write};
    use std::net::{TcpListener, TcpStream};
    use std::time::{Duration, Instant};

    /// Turns the ring until `future` is ready.
    fn drive<F: Future>(completions: &Completions, future: F) -> F::Output {
        let mut future = Box::pin(future);
        let began = Instant::now();
        loop {
            if let Some(output) = futures_lite::future::block_on(poll_once(&mut future)) {
                return output;
            }
            completions.turn().unwrap();
            assert!(began.elapsed() < Duration::from_secs(20), "nothing completes");
        }
    }

    fn listening() -> (Rc<Completions>, std::net::SocketAddr) {
        let completions = Completions::new().unwrap();
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        completions.listen(listener);
        (completions, address)
    }

    fn accepted(completions: &Rc<Completions>) -> Socket {
        let socket = drive(completions, completions.accept()).unwrap();
        Socket::new(completions.clone(), socket)
    }

    /// Everything that arrives until the end, through a buffer of `room` bytes.
    async fn read_all(socket: &Socket, room: usize) -> io::Result<Vec<u8>> {
        let (mut all, mut part) = (Vec::new(), Vec::with_capacity(room));
        loop {
            poll_fn(|cx| socket.poll_arrived(cx)).await;
            match socket.receive(&mut part)? {
                Received::End => return Ok(all),
                Received::Nothing => unreachable!("something has arrived"),
                Received::Bytes { .. } => all.append(&mut part),
            }
            part.reserve_exact(room);
        }
    }

    #[test]
    fn bytes_travel_whole_in_both_directions() {
        let (completions, address) = listening();
        let mut client = TcpStream::connect(address).unwrap();
        let socket = accepted(&completions);
        let sent: Vec<u8> = (0..3_000_000_u32).map(|n| ((n * 7) >> 3) as u8).collect();
        let expected = sent.clone();
        let mut writer = client.try_clone().unwrap();
        let writing = std::thread::spawn(move || {
            writer.write_all(&sent).unwrap();
            writer.shutdown(std::net::Shutdown::Write).unwrap();
        });
        assert!(drive(&completions, read_all(&socket, 10_000)).unwrap() == expected);
        writing.join().unwrap();
        let reading = std::thread::spawn(move || {
            let mut all = Vec::new();
            client.read_to_end(&mut all).unwrap();
            all
        });
        // More than a socket takes at once.
        let expected = expected.repeat(10);
        let progress = std::cell::Cell::new(0);
        drive(&completions, socket.send(&expected, |_| progress.set(progress.get() + 1))).unwrap();
        assert!(progress.get() > 2, "a large send goes in parts");
        drop(socket);
        completions.turn().unwrap();
        assert!(reading.join().unwrap() == expected);
    }

    #[test]
    fn who_does_not_read_holds_up_its_own_sender_alone() {
        let (completions, address) = listening();
        let flood = TcpStream::connect(address).unwrap();
        flood.set_nonblocking(true).unwrap();
        let idle = accepted(&completions);
        assert!(futures_lite::future::block_on(poll_once(poll_fn(|cx| idle.poll_arrived(cx)))).is_none());
        let mut sent = 0;
        for _ in 0..3_000 {
            while let Ok(count) = (&flood).write(&[5; 65_536]) {
                sent += count;
            }
            completions.turn().unwrap();
        }
        let pending = completions.with_slot(idle.slot, |slot| slot.pending.len());
        // What was on its way when the end was asked for comes as well.
        assert!((super::super::PENDING_MAX_BYTES..4 << 20).contains(&pending), "{pending} of {sent}");
        // Others have buffers.
        let mut client = TcpStream::connect(address).unwrap();
        let other = accepted(&completions);
        client.write_all(b"hello").unwrap();
        client.shutdown(std::net::Shutdown::Write).unwrap();
        assert_eq!(drive(&completions, read_all(&other, 64)).unwrap(), b"hello");
        // And it goes on where it stopped.
        flood.shutdown(std::net::Shutdown::Write).unwrap();
        let all = drive(&completions, read_all(&idle, 1 << 20)).unwrap();
        assert!(all.len() == sent && all.iter().all(|&byte| byte == 5));
    }

    #[test]
    fn dropped_sockets_free_their_slots_and_close() {
        let (completions, address) = listening();
        for round in 0..50 {
            let mut client = TcpStream::connect(address).unwrap();
            let socket = accepted(&completions);
            assert!(
                futures_lite::future::block_on(poll_once(poll_fn(|cx| socket.poll_arrived(cx)))).is_none()
            );
            if round % 3 == 1 {
                // More than the client takes: it waits.
                let mut send = Box::pin(socket.send(&[1; 16 << 20], |_| {}));
                for _ in 0..5 {
                    assert!(futures_lite::future::block_on(poll_once(&mut send)).is_none());
                    completions.turn().unwrap();
                }
            }
            if round % 3 == 2 {
                client.write_all(b"unread").unwrap();
                completions.turn().unwrap();
            }
            drop(socket);
            client.set_read_timeout(Some(Duration::from_millis(5))).unwrap();
            let mut buffer = [0; 1 << 16];
            let began = Instant::now();
            loop {
                completions.turn().unwrap();
                match client.read(&mut buffer) {
                    Ok(0) => break,
                    Err(error) if error.kind() == io::ErrorKind::ConnectionReset => break,
                    _ => assert!(began.elapsed() < Duration::from_secs(20), "it stays open"),
                }
            }
        }
        assert!(completions.slots.borrow().slots.len() <= 2, "slots are used again");
    }

    #[test]
    fn a_shutdown_wakes_who_waits() {
        let (completions, address) = listening();
        let _client = TcpStream::connect(address).unwrap();
        let socket = accepted(&completions);
        let mut waiting = Box::pin(poll_fn(|cx| socket.poll_arrived(cx)));
        assert!(futures_lite::future::block_on(poll_once(&mut waiting)).is_none());
        completions.turn().unwrap();
        socket.shutdown(Shutdown::Both);
        drive(&completions, waiting);
        assert_eq!(socket.receive(&mut Vec::with_capacity(1)).unwrap(), Received::End);
    }
}
