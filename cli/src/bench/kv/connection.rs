//! One non-blocking connection: bytes to write, bytes received, and what is owed an answer.
use super::protocol::{Answer, Parsed, Protocol};
use super::workload::Class;
use crate::tls::connector::Connector;
use crate::tls::explain;
use crate::tls::stream::{Stream, connect};
use std::collections::VecDeque;
use std::io::{self, ErrorKind, Read, Write};
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;

/// First size of a receive buffer; it grows to the longest answer met.
const RECEIVE_BYTES: usize = 16 << 10;
/// An answer may be longer than the largest value by so much: heads and error texts.
const ANSWER_SLACK: usize = 128 << 10;

/// A request that was sent and not answered.
#[derive(Clone, Copy, Debug)]
pub struct Pending {
    /// When it was due (open loop) or written (closed), nanoseconds from the start.
    pub since_ns: u64,
    /// Its key.
    pub number: u64,
    /// What it asks.
    pub class: Class,
}

/// One connection of the load generator.
pub struct Connection {
    stream: Stream,
    out: Vec<u8>,
    written: usize,
    received: Vec<u8>,
    /// `received[start..end]` was received and not parsed.
    start: usize,
    end: usize,
    answer_bytes_max: usize,
    pending: VecDeque<Pending>,
    /// Whether room for writing is waited for.
    pub watches_writing: bool,
}

impl Connection {
    /// Connects to `address`, over TLS if there is a connector, for at most `depth` outstanding requests with values up to `value_bytes_max`.
    ///
    /// # Errors
    /// The errors of the connection and of TLS; if the name has several addresses, those of the last one.
    pub fn open(
        address: &str,
        tls: Option<&Arc<Connector>>,
        depth: usize,
        value_bytes_max: usize,
    ) -> io::Result<Connection> {
        let stream = connect(address, tls)?;
        stream.socket().set_nonblocking(true)?;
        Ok(Connection {
            stream,
            out: Vec::new(),
            written: 0,
            received: vec![0; RECEIVE_BYTES],
            start: 0,
            end: 0,
            answer_bytes_max: value_bytes_max + ANSWER_SLACK,
            pending: VecDeque::with_capacity(depth),
            watches_writing: false,
        })
    }

    /// Requests without an answer.
    pub fn pending(&self) -> usize {
        self.pending.len()
    }

    /// The oldest of them; a connection that lost its answers gives them up one by one.
    pub fn give_up(&mut self) -> Option<Pending> {
        self.pending.pop_front()
    }

    /// Where the encoding of `request` goes, which is from now on owed an answer.
    pub fn request(&mut self, request: Pending) -> &mut Vec<u8> {
        self.pending.push_back(request);
        &mut self.out
    }

    /// Whether something waits to be written.
    pub fn is_dirty(&self) -> bool {
        !self.out.is_empty() || self.stream.has_unsent()
    }

    /// Writes what waits, as far as the socket takes it. Returns how many bytes, counted before they are encrypted.
    ///
    /// # Errors
    /// Of the socket.
    pub fn flush(&mut self) -> io::Result<usize> {
        let before = self.written;
        while self.written < self.out.len() {
            match self.stream.write(&self.out[self.written..]) {
                Ok(0) => return Err(ErrorKind::WriteZero.into()),
                Ok(count) => self.written += count,
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) if error.kind() == ErrorKind::WouldBlock => {
                    let count = self.written - before;
                    // Requests may be added before the buffer is ever empty: what was sent must not stay in it.
                    self.out.drain(..self.written);
                    self.written = 0;
                    return Ok(count);
                }
                Err(error) => return Err(error),
            }
        }
        let count = self.written - before;
        self.out.clear();
        self.written = 0;
        match self.stream.flush() {
            Err(error) if error.kind() != ErrorKind::WouldBlock => Err(error),
            _ => Ok(count),
        }
    }

    /// Reads once; bytes read, 0 when there was nothing.
    ///
    /// # Errors
    /// Of the socket; `UnexpectedEof` when the server has closed it; `InvalidData` for an answer that is longer than any.
    pub fn receive(&mut self) -> io::Result<usize> {
        if self.start == self.end {
            (self.start, self.end) = (0, 0);
        } else if self.end == self.received.len() {
            self.make_room()?;
        }
        match self.stream.read(&mut self.received[self.end..]) {
            Ok(0) => Err(explain::closed(&self.received[self.start..self.end])),
            Ok(count) => {
                self.end += count;
                Ok(count)
            }
            Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::Interrupted) => Ok(0),
            Err(error) => Err(error),
        }
    }

    /// Whether another [`Self::receive`] may find something although the socket reports nothing: TLS may hold decrypted bytes.
    pub fn has_more(&self) -> bool {
        self.stream.has_more()
    }

    /// Moves what is left to the front, or makes the buffer larger when it is there already.
    fn make_room(&mut self) -> io::Result<()> {
        if self.start > 0 {
            self.received.copy_within(self.start..self.end, 0);
            (self.start, self.end) = (0, self.end - self.start);
            return Ok(());
        }
        if self.end >= self.answer_bytes_max {
            return Err(io::Error::new(ErrorKind::InvalidData, "an answer longer than any value asked for"));
        }
        let size = (self.received.len() * 2).min(self.answer_bytes_max);
        self.received.resize(size, 0);
        Ok(())
    }

    /// Hands every whole answer to `each` with its request, in order.
    ///
    /// # Errors
    /// `InvalidData` when bytes are no answer, or answer nothing.
    pub fn answers(
        &mut self,
        protocol: &impl Protocol,
        mut each: impl FnMut(Pending, Answer<'_>),
    ) -> io::Result<()> {
        let broken = |reason| Err(io::Error::new(ErrorKind::InvalidData, reason));
        while self.start < self.end {
            let Some(&pending) = self.pending.front() else {
                return broken("bytes that answer nothing");
            };
            match protocol.answer(pending.class, &self.received[self.start..self.end]) {
                Parsed::Incomplete => break,
                Parsed::Broken(_) if explain::is_alert(&self.received[self.start..self.end]) => {
                    return broken(explain::EXPECTS_TLS);
                }
                Parsed::Broken(reason) => return broken(reason),
                Parsed::Whole { answer, consumed } => {
                    self.pending.pop_front();
                    self.start += consumed;
                    each(pending, answer);
                }
            }
        }
        Ok(())
    }
}

impl AsFd for Connection {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.stream.as_fd()
    }
}

#[cfg(test)]
mod tests {
    use super::super::protocol::redis::Redis;
    use super::*;
    use std::net::{TcpListener, TcpStream};
    use std::time::Duration;

    fn pair(value_bytes_max: usize) -> (Connection, TcpStream) {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap().to_string();
        let connection = Connection::open(&address, None, 4, value_bytes_max).unwrap();
        (connection, listener.accept().unwrap().0)
    }

    fn ask(connection: &mut Connection, count: u64) {
        for number in 0..count {
            connection.request(Pending { since_ns: 0, number, class: Class::Get });
        }
    }

    /// Answers until `count` have come, or the first error.
    fn collect(connection: &mut Connection, count: usize) -> io::Result<Vec<(u64, Vec<u8>)>> {
        let mut found = Vec::new();
        while found.len() < count {
            if connection.receive()? == 0 {
                std::thread::sleep(Duration::from_millis(1));
            }
            connection.answers(&Redis::new(0), |pending, answer| match answer {
                Answer::Value(value) => found.push((pending.number, value.to_vec())),
                other => panic!("{other:?}"),
            })?;
        }
        Ok(found)
    }

    #[test]
    fn answers_are_put_together() {
        let (mut connection, mut server) = pair(100_000);
        // Longer than the first buffer, so that it both grows and is moved.
        let values: Vec<Vec<u8>> = [1, 40_000, 0, 90_000].map(|size| vec![b'v'; size]).to_vec();
        ask(&mut connection, 4);
        let bytes: Vec<u8> = values
            .iter()
            .flat_map(|value| [format!("${}\r\n", value.len()).as_bytes(), value, b"\r\n"].concat())
            .collect();
        let writer = std::thread::spawn(move || {
            for piece in bytes.chunks(7_001) {
                server.write_all(piece).unwrap();
            }
        });
        let found = collect(&mut connection, 4).unwrap();
        writer.join().unwrap();
        assert_eq!(found, (0..4).zip(values).collect::<Vec<_>>());
        assert_eq!(connection.pending(), 0);
    }

    #[test]
    fn what_is_no_answer_ends_it() {
        let answers = [&b"+what\r\n$1\r\nx\r\nrest"[..], b"nonsense\r\n", b"$1\r\nx\r\n$1\r\ny\r\n"];
        for (bytes, reason) in answers.into_iter().zip(["refused", "no answer", "answer nothing"]) {
            let (mut connection, mut server) = pair(10);
            ask(&mut connection, 1);
            server.write_all(bytes).unwrap();
            let mut refused = false;
            let error = loop {
                let result = connection.receive().and_then(|_| {
                    connection
                        .answers(&Redis::new(0), |_, answer| refused |= matches!(answer, Answer::Refused(_)))
                });
                if let Err(error) = result {
                    break error;
                }
            };
            assert_eq!(error.kind(), ErrorKind::InvalidData, "{reason}");
            assert_eq!(refused, reason == "refused");
        }
    }

    #[test]
    fn an_answer_without_an_end_is_given_up() {
        let (mut connection, mut server) = pair(10);
        ask(&mut connection, 1);
        let writer = std::thread::spawn(move || {
            let _closed_meanwhile =
                server.write_all(&[&b"$1000000000\r\n"[..], &vec![b'x'; 4 << 20]].concat());
        });
        assert_eq!(collect(&mut connection, 1).unwrap_err().kind(), ErrorKind::InvalidData);
        drop(connection);
        writer.join().unwrap();
    }

    #[test]
    fn the_end_of_the_stream_is_an_error() {
        let (mut connection, server) = pair(10);
        ask(&mut connection, 1);
        drop(server);
        assert_eq!(collect(&mut connection, 1).unwrap_err().kind(), ErrorKind::UnexpectedEof);
    }

    #[test]
    fn a_full_socket_is_no_error() {
        let (mut connection, mut server) = pair(10);
        let mut sent = 0;
        let bytes = vec![b'x'; 32 << 20];
        connection.request(Pending { since_ns: 0, number: 0, class: Class::Set }).extend_from_slice(&bytes);
        sent += connection.flush().unwrap();
        assert!(connection.is_dirty() && sent < bytes.len());
        let reader = std::thread::spawn(move || {
            let mut total = 0;
            let mut buffer = vec![0; 1 << 20];
            while total < 32 << 20 {
                total += server.read(&mut buffer).unwrap();
            }
            total
        });
        while connection.is_dirty() {
            sent += connection.flush().unwrap();
            std::thread::yield_now();
        }
        assert_eq!((sent, reader.join().unwrap()), (bytes.len(), bytes.len()));
    }
}
