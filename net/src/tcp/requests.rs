//! Frames to requests that may be carried out: whole, allowed, known, and out of their envelopes.

use crate::auth::{Authorizer, Bill, Credentials, Question, Refusal};
use crate::door::{Allowed, Grant, Verdicts};
use crate::limits;
use crate::op::table::Row;
use crate::op::{Action, Op, ProcessOp};
use crate::tcp::frame::{self, Decoded, RequestFrame};
use crate::tcp::ops::{self, Envelope, On};
use std::ops::Range;

/// A request of a round. Its arguments are named by where they lie, as their buffer may be moved meanwhile.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Request {
    /// Where its frame begins, counted from the first unread byte.
    pub at: usize,
    /// What to do.
    pub what: What,
    /// Its arguments, likewise.
    pub args: Range<usize>,
    /// Charges its bytes to its API key, if that has limits.
    pub bill: Option<Bill>,
}

/// What a request comes to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum What {
    /// To be carried out.
    Run(Grant),
    /// To be answered UNAUTHORIZED.
    Unauthorized,
    /// To be answered with this ERROR.
    Refused(String),
}

/// The text for an operation that nobody knows (interface).
pub const UNKNOWN: &str = "op not registered";

/// What the front of a buffer holds for one round.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Gathered {
    /// Bytes of the requests, to be consumed when they have been carried out. Of a frame that is skipped more than there are.
    pub bytes: usize,
    /// Bytes from there to the end of the next frame, as far as is known; 0 when there may be whole frames left.
    pub needed: usize,
    /// What follows cannot be told.
    pub is_broken: bool,
    /// The sender of the requests, or of the frame that is not whole, may do one of these things at least.
    pub is_trusted: bool,
}

/// Puts the requests at the front of `unread` into `requests`, as many as make a round. A long frame that is not whole yet is refused, and
/// skipped as it comes, when its sender may not do what it asks for.
pub fn gather(
    unread: &[u8],
    authorizer: &Authorizer,
    verdicts: &mut Verdicts,
    requests: &mut Vec<Request>,
) -> Gathered {
    let mut gathered = Gathered { bytes: 0, needed: 0, is_broken: false, is_trusted: false };
    while requests.len() < limits::TCP_ROUND_REQUESTS_MAX {
        let rest = unread.get(gathered.bytes..).unwrap_or_default();
        let at = gathered.bytes;
        match frame::decode(rest) {
            Decoded::Incomplete { needed } => {
                gathered.needed = needed;
                if rest.len() >= limits::TCP_FRAME_JUDGED_BYTES {
                    match foretell(rest, authorizer, verdicts) {
                        None => gathered.is_trusted = true,
                        Some(what) => {
                            Request::put_answered(requests, at, what, None);
                            (gathered.bytes, gathered.needed) = (at + needed, 0);
                        }
                    }
                }
                break;
            }
            Decoded::Request { frame, consumed } => {
                Request::gather(&frame, at, unread, authorizer, verdicts, requests);
                let added = requests.last().expect("one request a frame");
                if let Some(bill) = &added.bill {
                    bill.add(consumed);
                }
                let is_refused = matches!(added.what, What::Unauthorized);
                gathered.is_trusted |= !is_refused;
                gathered.bytes += consumed;
                if is_refused {
                    // Checking a signed token takes long, and unknown ones are not remembered: others get a turn.
                    break;
                }
            }
            Decoded::Refused { error, consumed } => {
                Request::put_refused(requests, at, &error.to_string(), None);
                gathered.bytes += consumed;
            }
            Decoded::Broken(error) => {
                Request::put_refused(requests, at, &error.to_string(), None);
                gathered.is_broken = true;
                break;
            }
        }
    }
    gathered
}

/// What a frame of which only the beginning is there will be refused with, if its sender may not do it or nobody can.
fn foretell(unread: &[u8], authorizer: &Authorizer, verdicts: &mut Verdicts) -> Option<What> {
    let frame = match frame::beginning(unread) {
        Ok(frame) => frame,
        Err(error) => return Some(What::Refused(error.to_string())),
    };
    let found = ops::find(frame.operation);
    let (right, on) = ops::required_by_beginning(found, frame.args);
    let (credentials, op) = (Credentials::token(frame.token), found.map_or("", |row| row.name));
    let question = |collection| Question { credentials, op, right, collection };
    let decided = match on {
        On::Collection(collection) => verdicts.allows(authorizer, &question(collection)),
        // Not all of the names have arrived, and those that have would be checked again with every further part of the frame.
        On::Aliases(_) => verdicts.recognise(authorizer, &question("")),
    };
    match decided {
        Err(Refusal::Unauthorized) => Some(What::Unauthorized),
        Err(Refusal::Limited(exceeded)) => Some(What::Refused(exceeded.to_string())),
        Ok(()) => found.is_none().then(|| What::Refused(UNKNOWN.to_owned())),
    }
}

/// Decides whether the sender of a whole frame may do what it asks for, as [`Verdicts::admit`] does.
#[inline]
fn admit(
    frame: &RequestFrame<'_>,
    found: Option<&'static Row>,
    (right, on): (Action, On<'_>),
    authorizer: &Authorizer,
    verdicts: &mut Verdicts,
) -> Result<(Allowed, Option<Bill>), Refusal> {
    let (credentials, op) = (Credentials::token(frame.token), found.map_or("", |row| row.name));
    let question = |collection| Question { credentials, op, right, collection };
    match on {
        On::Collection(collection) => verdicts.admit(authorizer, &question(collection)),
        On::Aliases(names) => {
            // A name that cannot be determined stands for the node. Too many changes are refused later, when they are carried out.
            let names = names.take(2 * limits::ALIAS_ACTIONS_MAX).map(|name| name.unwrap_or(""));
            verdicts.admit_to_all(authorizer, &question(""), names)
        }
    }
}

impl Request {
    /// Appends a request that is answered without being carried out. Kept out of the way of those that are.
    #[cold]
    #[inline(never)]
    fn put_answered(requests: &mut Vec<Request>, at: usize, what: What, bill: Option<Bill>) {
        requests.push(Request { at, what, args: 0..0, bill });
    }

    /// Appends a request that is answered with an ERROR of this text.
    fn put_refused(requests: &mut Vec<Request>, at: usize, text: &str, bill: Option<Bill>) {
        Request::put_answered(requests, at, What::Refused(text.to_owned()), bill);
    }

    /// Notes that `bytes` bytes in front of it have been consumed.
    pub fn consumed_before(&mut self, bytes: usize) {
        self.at = self.at.saturating_sub(bytes);
        // Requests that are not carried out have no arguments.
        self.args = self.args.start.saturating_sub(bytes)..self.args.end.saturating_sub(bytes);
    }

    /// Appends the request of a frame at `at` in `unread` to `requests`. It is built where it stays: to copy what was written a moment before costs more
    /// than to decide about it.
    #[inline]
    fn gather(
        frame: &RequestFrame<'_>,
        at: usize,
        unread: &[u8],
        authorizer: &Authorizer,
        verdicts: &mut Verdicts,
        requests: &mut Vec<Request>,
    ) {
        let found = ops::find(frame.operation);
        let required = ops::required_by(found, frame.args);
        let (allowed, bill) = match admit(frame, found, required, authorizer, verdicts) {
            Ok(admitted) => admitted,
            Err(Refusal::Unauthorized) => {
                return Request::put_answered(requests, at, What::Unauthorized, None);
            }
            Err(Refusal::Limited(exceeded)) => {
                return Request::put_refused(requests, at, &exceeded.to_string(), None);
            }
        };
        let (row, args) = match found {
            None => return Request::put_refused(requests, at, UNKNOWN, bill),
            Some(row) if row.op == Op::Process(ProcessOp::Envelope) => match unwrapped(frame.args) {
                Ok(inner) => inner,
                Err(text) => return Request::put_refused(requests, at, &text, bill),
            },
            Some(row) => (row, frame.args),
        };
        requests.push(Request { at, what: What::Run(allowed.grant(row)), args: place(unread, args), bill });
    }
}

/// The operation in an envelope and its arguments, or why there is none. It is carried out as if it had come alone: a single node has no other node to
/// wait for.
fn unwrapped(args: &[u8]) -> Result<(&'static Row, &[u8]), String> {
    let envelope = Envelope::decode(args).map_err(|error| error.to_string())?;
    let row = ops::find(envelope.operation).ok_or_else(|| UNKNOWN.to_owned())?;
    Ok((row, envelope.args))
}

/// Refuses those of `requests` whose API keys owe more bytes than a burst by now. They were let in together with others, whose responses are charged
/// since.
pub fn refuse_debtors(requests: &mut [Request], authorizer: &Authorizer) {
    for request in requests {
        let What::Run(_) = request.what else { continue };
        if let Some(Err(exceeded)) = request.bill.as_ref().map(Bill::check_debt) {
            authorizer.count_refusal(exceeded);
            (request.what, request.args) = (What::Refused(exceeded.to_string()), 0..0);
        }
    }
}

/// Charges the responses to `requests` to the API keys that have limits.
pub fn charge_responses(requests: &[Request], mut responses: &[u8]) {
    if requests.iter().all(|request| request.bill.is_none()) {
        return;
    }
    for request in requests {
        let response = frame::take_response(&mut responses);
        if let Some(bill) = &request.bill {
            bill.add(response.len());
        }
    }
}

/// Where `part` lies in `whole`, of which it is a part.
fn place(whole: &[u8], part: &[u8]) -> Range<usize> {
    let start = part.as_ptr().addr() - whole.as_ptr().addr();
    start..start + part.len()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::auth::key_limits::KeyLimits;
    use crate::auth::meter::Meter;
    use crate::auth::scope::Scope;
    use crate::auth::{Authenticator, Means, Open, Principal, Reason};
    use crate::op::KvOp;
    use std::sync::Arc;
    use std::sync::atomic::{AtomicU64, Ordering};

    fn framed(token: &[u8], name: &[u8], args: &[u8]) -> Vec<u8> {
        let form = if token.is_empty() { vec![] } else { [&[2, token.len() as u8], token].concat() };
        let body = [&form[..], &[name.len() as u8], name, &(args.len() as u32).to_be_bytes(), args].concat();
        [&(body.len() as u32).to_be_bytes()[..], &body].concat()
    }

    fn gathered(bytes: &[u8]) -> (Vec<Request>, Gathered) {
        let mut requests = Vec::new();
        let open = Authorizer::with_clock(Arc::new(Open), Box::new(|| 0));
        let gathered = gather(bytes, &open, &mut Verdicts::default(), &mut requests);
        (requests, gathered)
    }

    fn texts(requests: &[Request]) -> Vec<&str> {
        let refused = requests.iter().map(|request| match &request.what {
            What::Refused(text) => Some(&text[..]),
            _ => None,
        });
        refused.flatten().collect()
    }

    #[test]
    fn a_round_of_every_kind() {
        let get = framed(b"", b"get", b"\0\x01k");
        let inner = framed(b"t", b"__wc__", b"\x01\x01\x03get\0\0\0\x03\0\x01k");
        let nested = framed(b"", b"__wc__", b"\x01\x01\x06__wc__\0\0\0\0");
        let odd = framed(b"", b"__wc__", b"\x01\x01\x03odd\0\0\0\0");
        let unknown = framed(b"", b"nothing", b"");
        let short = b"\0\0\0\x02\x03g".to_vec();
        let all = [get.clone(), inner, nested, odd, unknown, short, get[..7].to_vec()].concat();
        let (requests, gathered) = gathered(&all);
        let args: Vec<&[u8]> = requests.iter().map(|request| &all[request.args.clone()]).collect();
        assert_eq!(args[..2], [b"\0\x01k", b"\0\x01k"]);
        assert!(
            requests[..2].iter().all(|request| {
                matches!(request.what, What::Run(grant) if grant.op() == Op::Kv(KvOp::Get))
            })
        );
        let refusals = ["an envelope inside an envelope", UNKNOWN, UNKNOWN, "frame truncated"];
        assert_eq!(texts(&requests), refusals);
        assert_eq!(requests[1].at, get.len());
        assert_eq!(
            gathered,
            Gathered { bytes: all.len() - 7, needed: get.len(), is_broken: false, is_trusted: true }
        );
    }

    #[test]
    fn a_round_ends_with_64_requests_or_what_cannot_be_told() {
        let get = framed(b"", b"get", b"\0\x01k");
        let (requests, found) = gathered(&get.repeat(65));
        assert_eq!((requests.len(), found.bytes, found.needed), (64, 64 * get.len(), 0));
        let (requests, found) = gathered(&[&get[..], b"GET / HTTP/1.1\r\n"].concat());
        assert_eq!((texts(&requests), found.is_broken), (vec!["frame too large"], true));
        let (requests, found) = gathered(b"\x02\0\0\0abc");
        assert_eq!((texts(&requests), found.bytes), (vec!["frame too large"], 4 + (32 << 20)));
    }

    /// Counts how often it is asked; the token `reader` may read.
    #[derive(Default)]
    struct Counting(AtomicU64);

    impl Authenticator for Counting {
        fn identify(&self, credentials: Credentials<'_>, _: u64) -> Result<Arc<Principal>, Reason> {
            self.0.fetch_add(1, Ordering::Relaxed);
            match credentials.token {
                Some(b"reader") => Ok(Arc::new(Principal {
                    scopes: vec![Scope::parse("read:default/docs").unwrap()],
                    ..Principal::unrestricted(Means::Key, "")
                })),
                _ => Err(Reason::TokenNotFound),
            }
        }
    }

    #[test]
    fn a_token_is_judged_once() {
        let auth = Arc::new(Counting::default());
        let authorizer = Authorizer::with_clock(auth.clone(), Box::new(|| 0));
        let mut verdicts = Verdicts::default();
        let mut allowed = |token: &[u8], right, collection| {
            let credentials = Credentials::token(Some(token));
            verdicts.allows(&authorizer, &Question { credentials, op: "", right, collection }).is_ok()
        };
        for _ in 0..3 {
            assert!(allowed(b"reader", Action::Read, "docs"));
            assert!(
                !allowed(b"reader", Action::Write, "docs") && !allowed(b"reader", Action::Read, "a/docs")
            );
        }
        assert_eq!(auth.0.load(Ordering::Relaxed), 1);
        assert!(!allowed(b"", Action::Read, "docs") && !allowed(b"other", Action::Read, "docs"));
        assert!(allowed(b"reader", Action::Read, "docs"));
        assert_eq!(auth.0.load(Ordering::Relaxed), 3, "only who is known is remembered");
    }

    /// Knows the token `limited`, whose requests and connections are limited, and the token `free`, which may do the same.
    struct Limited(Option<Arc<Meter>>);

    impl Authenticator for Limited {
        fn identify(&self, credentials: Credentials<'_>, _: u64) -> Result<Arc<Principal>, Reason> {
            let meter = match credentials.token {
                Some(b"limited") => self.0.clone(),
                Some(b"free") => None,
                _ => return Err(Reason::TokenNotFound),
            };
            let scopes = vec![Scope::parse("*:*").unwrap()];
            Ok(Arc::new(Principal { scopes, meter, ..Principal::unrestricted(Means::Key, "") }))
        }
    }

    #[test]
    fn each_request_is_charged_once_also_where_its_decision_is_repeated() {
        let limits = KeyLimits { requests_per_second: 5, bytes_per_second: 0, connections: 1 };
        let auth = Arc::new(Limited(Meter::new(limits)));
        let authorizer = Authorizer::with_clock(auth, Box::new(|| 0));
        let mut verdicts = Verdicts::default();
        let gathered = |verdicts: &mut Verdicts, bytes: &[u8]| {
            let mut requests = Vec::new();
            gather(bytes, &authorizer, verdicts, &mut requests);
            let refused: Vec<String> = texts(&requests).into_iter().map(str::to_owned).collect();
            (requests, refused)
        };
        let put =
            |token: &[u8]| framed(token, b"put", &[&b"\0\x01k\0\0\x08\0"[..], &[7; 2048], &[0; 8]].concat());
        // The beginning of a long frame is judged, and not charged, however often it is looked at.
        for _ in 0..20 {
            assert_eq!(gathered(&mut verdicts, &put(b"limited")[..1500]), (vec![], vec![]));
        }
        let (requests, refused) = gathered(&mut verdicts, &put(b"limited").repeat(8));
        assert_eq!((requests.len(), refused.len()), (8, 3));
        assert!(requests[..5].iter().all(|request| request.bill.is_some() && request.args.len() == 2063));
        assert!(requests[5..].iter().all(|request| request.bill.is_none()));
        assert_eq!(
            refused[0],
            "rate limited: the API key may send 5 requests per second; try again in 200 ms"
        );
        // The requests that are left stand in front of the buffer when others have been consumed.
        let mut left = requests[2].clone();
        left.consumed_before(requests[2].at);
        assert_eq!((left.at, left.args.len()), (0, 2063));
        // The connection counts until it shows the other token, also where the decision about that one was made at the beginning of a frame.
        let mut other = Verdicts::default();
        let get = framed(b"limited", b"get", b"\0\x01k");
        let connections =
            "rate limited: the API key may have 1 connection; close one, or try again in 1000 ms";
        assert_eq!(gathered(&mut other, &get).1, [connections]);
        assert_eq!(gathered(&mut verdicts, &put(b"free")[..1500]), (vec![], vec![]));
        assert_eq!(gathered(&mut other, &get).1, [connections]);
        assert_eq!(gathered(&mut verdicts, &put(b"free")).1, Vec::<String>::new());
        assert_eq!(gathered(&mut other, &get).1, [refused[0].clone()]);
        assert_eq!(gathered(&mut verdicts, &get).1, [connections]);
        drop(other);
        assert_eq!(gathered(&mut verdicts, &get).1, [refused[0].clone()]);
    }
}
