//! The heads of a connection's requests as their bytes arrive, before the parser sees them: what they hold of the memory, and whether their
//! lines end as they must.
//!
//! The parser says how long the body of each request is, and so where the next head begins, also among bytes that came in one piece. Only
//! behind a chunked body nobody but the parser knows that: what comes in one piece with its end is not looked at.

use super::refusal::{Lines, Refusal};
use nigh_shard::account::CoreCharge;

/// Bytes that are not counted: every connection is counted with a buffer of so many.
const UNCOUNTED_BYTES: u64 = 8 << 10;

/// What the next bytes belong to.
enum Next {
    /// To a head, of which some lines may be there.
    Head(Lines),
    /// To whatever follows a head that the parser has still to read.
    Behind,
    /// To a body, so many bytes of it.
    Body(u64),
    /// To a chunked body, or to what follows it.
    Unknown,
}

/// See the module.
pub(super) struct Heads {
    next: Next,
    /// What came behind the end of a head that the parser has still to read.
    behind: Vec<u8>,
    /// Bytes of the head that is being received.
    head_bytes: u64,
    /// Bytes of the head whose request is under way.
    of_request: u64,
    charge: CoreCharge,
    /// Why the next request is refused: it came in one piece with one before it, which is answered first.
    fault: Option<Refusal>,
}

impl Heads {
    /// Those of a new connection.
    pub fn new(charge: CoreCharge) -> Heads {
        Heads {
            next: Next::Head(Lines::default()),
            behind: Vec::new(),
            head_bytes: 0,
            of_request: 0,
            charge,
            fault: None,
        }
    }

    /// Bytes came; `is_idle` says that no request is under way.
    ///
    /// # Errors
    /// They are of a head that is not to be received further.
    pub fn received(&mut self, mut bytes: &[u8], is_idle: bool) -> Result<(), Refusal> {
        if let Some(fault) = self.fault.take() {
            return Err(fault);
        }
        if let Next::Body(missing) = self.next {
            let here = missing.min(bytes.len() as u64);
            self.next = Next::of_body(missing - here);
            bytes = &bytes[here as usize..];
            if bytes.is_empty() {
                return Ok(());
            }
        }
        if matches!(self.next, Next::Unknown) && is_idle {
            self.next = Next::Head(Lines::after_a_request());
        }
        match &self.next {
            Next::Head(_) if is_idle => self.feed(bytes),
            // The request under way is answered first.
            Next::Head(_) => {
                self.fault = self.feed(bytes).err();
                Ok(())
            }
            Next::Behind => {
                self.behind.extend_from_slice(bytes);
                Ok(())
            }
            Next::Body(_) | Next::Unknown => Ok(()),
        }
    }

    /// Looks at bytes of a head and keeps what lies behind it.
    fn feed(&mut self, bytes: &[u8]) -> Result<(), Refusal> {
        let Next::Head(mut lines) = self.next else { return Ok(()) };
        let behind = lines.feed(bytes)?;
        self.next = if behind.is_some() { Next::Behind } else { Next::Head(lines) };
        let behind = behind.unwrap_or(0);
        self.head_bytes += (bytes.len() - behind) as u64;
        self.behind.extend_from_slice(&bytes[bytes.len() - behind..]);
        if self.count(0) { Ok(()) } else { Err(Refusal::heads_crowded()) }
    }

    /// Counts the heads and so many bytes behind them, each twice: the parser's buffer doubles, and what lies behind is here as well.
    fn count(&mut self, behind: usize) -> bool {
        let bytes = 2 * (self.of_request + self.head_bytes + behind as u64);
        self.charge.resize(bytes.saturating_sub(UNCOUNTED_BYTES))
    }

    /// The parser has read a head, whose body has so many bytes, `None` when it is chunked. Returns why the request is to be refused, if it
    /// is.
    pub fn begin_request(&mut self, body_bytes: Option<u64>) -> Option<Refusal> {
        (self.of_request, self.head_bytes) = (self.head_bytes, 0);
        let behind = std::mem::take(&mut self.behind);
        if let Some(fault) = self.fault.take() {
            self.next = Next::Unknown;
            return Some(fault);
        }
        let Some(body_bytes) = body_bytes else {
            self.next = Next::Unknown;
            return None;
        };
        let here = body_bytes.min(behind.len() as u64);
        self.next = Next::of_body(body_bytes - here);
        let rest = &behind[here as usize..];
        if !rest.is_empty() {
            // Another request came with this one.
            self.fault = self.feed(rest).err();
            if self.fault.is_none() && !self.count(self.behind.len()) {
                self.fault = Some(Refusal::heads_crowded());
            }
            if self.fault.is_some() {
                self.behind = Vec::new();
            }
        }
        None
    }

    /// The request that was under way and its head are gone.
    pub fn end_request(&mut self) {
        self.of_request = 0;
        // Less is never refused.
        let _fits = self.count(self.behind.len());
    }
}

impl Next {
    fn of_body(missing: u64) -> Next {
        if missing == 0 { Next::Head(Lines::default()) } else { Next::Body(missing) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use nigh_shard::account::{Account, CoreCharges, MemoryUse};
    use std::sync::Arc;

    fn heads(most: u64) -> (Heads, Arc<Account>) {
        let account = Account::new(1 << 30);
        let of = CoreCharges::new(&account, MemoryUse::Heads, most);
        (Heads::new(of.holder()), account)
    }

    /// Stands in for the parser: receives `stream` in pieces, begins a request for each head that has come, reads its body and ends it.
    /// Returns how many requests were answered, and whether one was refused.
    fn run(stream: &[u8], bodies: &[u64], piece: usize) -> (usize, bool) {
        let (mut heads, account) = heads(64 << 20);
        let (mut received, mut parsed, mut answered) = (0, 0, 0);
        loop {
            // The parser reads on only when it has no whole head.
            let head = stream[parsed..received].windows(4).position(|four| four == b"\r\n\r\n");
            let Some(head) = head else {
                if received == stream.len() {
                    break;
                }
                let end = stream.len().min(received + piece);
                if heads.received(&stream[received..end], true).is_err() {
                    return (answered, true);
                }
                received = end;
                continue;
            };
            if heads.begin_request(Some(bodies[answered])).is_some() {
                return (answered, true);
            }
            parsed += head + 4 + bodies[answered] as usize;
            while received < parsed {
                let end = stream.len().min(received + piece);
                if heads.received(&stream[received..end], false).is_err() {
                    return (answered, true);
                }
                received = end;
            }
            heads.end_request();
            answered += 1;
        }
        assert_eq!(account.held(MemoryUse::Heads), 0, "short heads are not counted");
        (answered, false)
    }

    #[test]
    fn every_head_is_looked_at_and_no_body_whatever_the_pieces() {
        let (get, post) = ("GET /a HTTP/1.1\r\nhost: x\r\n\r\n", "POST /b HTTP/1.1\r\nhost: x\r\n\r\n");
        let body = "{\n\"a\":\n1\n}\n\n";
        let good = format!("{get}{post}{body}{get}{get}{post}{body}{post}{body}{get}");
        let n = body.len() as u64;
        let bodies = [0, n, 0, 0, n, n, 0];
        for piece in 1..=good.len() {
            assert_eq!(run(good.as_bytes(), &bodies, piece), (7, false), "in pieces of {piece}");
        }
        // The parser of the real server takes such a head: here it ends where the next well-formed one does.
        let bad = format!("{get}{post}{body}GET /c HTTP/1.1\nhost: x\r\n\r\n{get}");
        for piece in 1..=bad.len() {
            assert_eq!(run(bad.as_bytes(), &[0, n, 0, 0], piece), (2, true), "in pieces of {piece}");
        }
    }

    #[test]
    fn what_follows_a_chunked_body_is_looked_at_in_its_next_piece() {
        let (mut heads, _) = heads(64 << 20);
        assert!(
            heads.received(b"POST / HTTP/1.1\r\nhost: x\r\n\r\n1\r\n\n\r\n0\r\n\r\nGET / HT", true).is_ok()
        );
        assert!(heads.begin_request(None).is_none());
        heads.end_request();
        assert!(heads.received(b"TP/1.1\nhost: x\r\n\r\n", true).is_err());
    }

    #[test]
    fn heads_that_wait_behind_a_request_are_counted() {
        let (mut heads, account) = heads(1 << 20);
        let get = format!("GET /a HTTP/1.1\r\nx: {}\r\n\r\n", "y".repeat(50_000));
        let both = get.repeat(3);
        assert!(heads.received(both.as_bytes(), true).is_ok());
        assert!(heads.begin_request(Some(0)).is_none());
        let held = account.held(MemoryUse::Heads);
        assert!((250_000..500_000).contains(&held), "{held}");
        heads.end_request();
        assert!(heads.begin_request(Some(0)).is_none());
        heads.end_request();
        assert!(heads.begin_request(Some(0)).is_none());
        heads.end_request();
        assert!(account.held(MemoryUse::Heads) < 10_000);
        // Those that do not fit are refused in their turn.
        let long = format!("GET /a HTTP/1.1\r\nx: {}\r\n\r\n", "y".repeat(600_000));
        assert!(heads.received(format!("{get}{long}").as_bytes(), true).is_ok());
        assert!(heads.begin_request(Some(0)).is_none());
        heads.end_request();
        assert!(heads.begin_request(Some(0)).is_some_and(|refusal| refusal.status() == 503));
    }
}
