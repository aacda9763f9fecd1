//! One call on its connection: what is sent for it, and when it is given up.

use super::answers::{Answer, UNCOUNTED_BYTES};
use super::connection::Connection;
use super::head;
use super::here::Here;
use super::message::Fault;
use super::status::{Code, Status};
use super::unsent::Unsent;
use crate::auth::{Bill, Presence};
use crate::limits;
use bytes::Bytes;
use futures_lite::future::{or, poll_once};
use h2::server::SendResponse;
use h2::{Reason, SendStream};
use http::header::{CONTENT_TYPE, HeaderName, HeaderValue};
use http::{HeaderMap, Response, StatusCode};
use std::cell::{Cell, RefCell};
use std::future::poll_fn;
use std::pin::pin;
use std::rc::Rc;
use std::task::Poll;
use std::time::Duration;

/// The header that names a call in the access log.
pub const REQUEST_ID: HeaderName = HeaderName::from_static("x-request-id");

const GRPC_ACCEPT_ENCODING: HeaderName = HeaderName::from_static("grpc-accept-encoding");

/// Where the answer to a call goes: nothing of it has been sent, or its headers have.
enum Way {
    Unanswered(SendResponse<Bytes>),
    Answering(SendStream<Bytes>),
    /// All of it has been sent.
    Done,
}

/// A call that is being answered.
pub struct Call {
    here: Rc<Here>,
    connection: Rc<Connection>,
    way: RefCell<Way>,
    request_id: Option<HeaderValue>,
    deadline_ns: Option<u64>,
    /// Bytes of messages that HTTP/2 has taken, and how long it was waited for.
    sent: Cell<u64>,
    waited_us: Cell<u64>,
    /// How many bytes its client has sent.
    received: Cell<u64>,
    /// What charges its bytes, if its sender has limits.
    bill: RefCell<Option<Bill>>,
    /// A message has been sent in part.
    is_cut: Cell<bool>,
    /// What HTTP/2 holds of the answer.
    unsent: Unsent,
}

fn late() -> Fault {
    Fault::Status(Status::new(Code::DeadlineExceeded, "deadline exceeded"))
}

impl Call {
    /// A call that nothing has been sent for. `deadline_ns` is how long its client waits.
    pub fn new(
        here: Rc<Here>,
        connection: Rc<Connection>,
        respond: SendResponse<Bytes>,
        request_id: Option<HeaderValue>,
        deadline_ns: Option<u64>,
    ) -> Call {
        let way = RefCell::new(Way::Unanswered(respond));
        let (sent, waited_us, is_cut) = (Cell::new(0), Cell::new(0), Cell::new(false));
        Call {
            here,
            connection,
            way,
            request_id,
            deadline_ns,
            sent,
            waited_us,
            received: Cell::new(0),
            bill: RefCell::new(None),
            is_cut,
            unsent: Unsent::default(),
        }
    }

    /// Notes that its client has sent `bytes` bytes so far.
    pub fn received(&self, bytes: u64) {
        self.received.set(bytes);
    }

    /// Which API key its connection counts for.
    pub fn presence(&self) -> &Presence {
        self.connection.presence()
    }

    /// Charges what it has received, and what it sends from now on, by `bill`.
    pub fn charge_to(&self, bill: Option<Bill>) {
        if let Some(bill) = &bill {
            bill.add(usize::try_from(self.received.get()).unwrap_or(usize::MAX));
        }
        *self.bill.borrow_mut() = bill;
    }

    /// What the calls of the core share.
    pub fn here(&self) -> &Here {
        &self.here
    }

    /// Waits for `work` until the client has waited as long as it wanted to, or gives up.
    pub async fn cancellable<T>(&self, work: impl Future<Output = Result<T, Fault>>) -> Result<T, Fault> {
        let late = async {
            match self.deadline_ns {
                Some(deadline_ns) => {
                    let env = self.here.door.env();
                    env.sleep_us(deadline_ns.saturating_sub(env.now_ns()).div_ceil(1000)).await;
                    Err(late())
                }
                None => std::future::pending().await,
            }
        };
        let given_up = async {
            let _reason = poll_fn(|cx| match &mut *self.way.borrow_mut() {
                Way::Unanswered(respond) => respond.poll_reset(cx),
                Way::Answering(stream) => stream.poll_reset(cx),
                Way::Done => Poll::Pending,
            })
            .await;
            Err(Fault::Gone)
        };
        or(work, or(late, given_up)).await
    }

    /// Whether the client still waits.
    ///
    /// # Errors
    /// It has waited as long as it wanted to, or has given up.
    pub async fn check(&self) -> Result<(), Fault> {
        if self.deadline_ns.is_some_and(|deadline_ns| deadline_ns <= self.here.door.env().now_ns()) {
            return Err(late());
        }
        match poll_once(self.cancellable(std::future::pending())).await {
            Some(given_up) => given_up,
            None => Ok(()),
        }
    }

    /// Bytes of messages that were sent.
    pub fn sent(&self) -> u64 {
        self.sent.get()
    }

    /// A search that it asked for has taken so long.
    pub fn searched(&self, took: Duration) {
        let here = &self.here;
        here.config.telemetry.core(here.door.env().index()).grpc_searches.record(took);
    }

    /// Sends a message, behind the headers of the answer where it is the first.
    pub async fn send(&self, answer: Answer) -> Result<(), Fault> {
        self.send_message(answer.finish().map_err(Fault::from)?).await
    }

    /// Sends a message that is finished.
    pub async fn send_message(&self, message: Bytes) -> Result<(), Fault> {
        self.send_pieces([message]).await
    }

    /// Sends a message that lies in pieces.
    pub async fn send_pieces(&self, pieces: impl IntoIterator<Item = Bytes>) -> Result<(), Fault> {
        self.begin()?;
        self.is_cut.set(true);
        for mut rest in pieces {
            // A short answer that is sent at once is counted by its call, and most answers are short.
            let is_short = self.sent.get() == 0 && rest.len() <= UNCOUNTED_BYTES;
            let is_counted = !is_short || self.connection.is_blocked();
            // As often as HTTP/2 has room for some of it: what waits there is charged all the same, but could not be given up.
            while !rest.is_empty() {
                self.unsent_at_most(limits::GRPC_PIECES_MAX - 1).await?;
                let room = self.room(rest.len()).await?;
                let piece = rest.split_to(room.min(rest.len()));
                self.sent.set(self.sent.get() + piece.len() as u64);
                if let Some(bill) = &*self.bill.borrow() {
                    bill.add(piece.len());
                }
                let piece = if is_counted { self.unsent.count(piece) } else { piece };
                self.with_stream(|stream| stream.send_data(piece, false))?;
            }
        }
        self.is_cut.set(false);
        Ok(())
    }

    /// Sends the headers of the answer, if that has not been done.
    fn begin(&self) -> Result<(), Fault> {
        let mut way = self.way.borrow_mut();
        if let Way::Unanswered(respond) = &mut *way {
            let stream = respond.send_response(self.response(), false).map_err(|_| Fault::Gone)?;
            *way = Way::Answering(stream);
        }
        Ok(())
    }

    fn with_stream<T>(
        &self,
        act: impl FnOnce(&mut SendStream<Bytes>) -> Result<T, h2::Error>,
    ) -> Result<T, Fault> {
        match &mut *self.way.borrow_mut() {
            Way::Answering(stream) => act(stream).map_err(|_| Fault::Gone),
            Way::Unanswered(_) | Way::Done => Err(Fault::Gone),
        }
    }

    /// Waits until HTTP/2 has sent all that it holds of the answer.
    ///
    /// # Errors
    /// The client does not take it.
    pub async fn taken(&self) -> Result<(), Fault> {
        self.unsent_at_most(0).await
    }

    /// Waits until HTTP/2 holds no more than so many pieces of the answer.
    async fn unsent_at_most(&self, pieces: usize) -> Result<(), Fault> {
        let few = async {
            self.unsent.at_most(pieces).await;
            Ok(())
        };
        self.unless_stalled(few).await
    }

    /// Waits until HTTP/2 takes some of `wanted` bytes.
    async fn room(&self, wanted: usize) -> Result<usize, Fault> {
        let room = poll_fn(|cx| {
            self.with_stream(|stream| {
                stream.reserve_capacity(wanted.min(limits::GRPC_SEND_BUFFER_BYTES));
                loop {
                    // Capacity that is there already is not announced again.
                    match stream.capacity() {
                        0 => match stream.poll_capacity(cx) {
                            Poll::Ready(Some(Ok(_))) => {}
                            Poll::Ready(Some(Err(error))) => return Err(error),
                            Poll::Ready(None) => return Err(Reason::CANCEL.into()),
                            Poll::Pending => return Ok(Poll::Pending),
                        },
                        room => return Ok(Poll::Ready(room)),
                    }
                }
            })
            .map_or_else(|fault| Poll::Ready(Err(fault)), |poll| poll.map(Ok))
        });
        self.unless_stalled(room).await
    }

    /// Waits for something that the client does. One that takes nothing for too long, or too little in all the time that its call has
    /// waited, has its call ended.
    async fn unless_stalled<T>(&self, wait: impl Future<Output = Result<T, Fault>>) -> Result<T, Fault> {
        let mut wait = pin!(wait);
        if let Some(done) = poll_once(wait.as_mut()).await {
            return done;
        }
        let env = self.here.door.env();
        let _waiting = self.connection.wait();
        let earned = self.sent.get() / limits::BODY_BYTES_PER_EXTRA_SECOND;
        let seconds = u64::from(limits::WRITE_STALL_MAX_SECONDS) + earned;
        let second_us = self.here.config.second.as_micros() as u64;
        let left_us = (seconds * second_us).saturating_sub(self.waited_us.get());
        let left_us = left_us.min(u64::from(limits::WRITE_STALL_MAX_SECONDS) * second_us);
        let began_ns = env.now_ns();
        let late = async {
            env.sleep_us(left_us).await;
            Err(Fault::Gone)
        };
        let done = or(wait, late).await;
        self.waited_us.set(self.waited_us.get() + (env.now_ns() - began_ns) / 1000);
        done
    }

    fn response(&self) -> Response<()> {
        let mut response = Response::new(());
        let headers = response.headers_mut();
        headers.insert(CONTENT_TYPE, HeaderValue::from_static(head::MEDIA_TYPE));
        if let Some(id) = &self.request_id {
            headers.insert(REQUEST_ID, id.clone());
        }
        response
    }

    /// Answers what is no call with a status of HTTP.
    pub fn refuse(&mut self, status: StatusCode) {
        let mut response = Response::new(());
        *response.status_mut() = status;
        self.answer_alone(response);
    }

    /// Sends headers that nothing follows. A client that is gone needs no answer.
    fn answer_alone(&mut self, response: Response<()>) {
        if let Way::Unanswered(mut respond) = std::mem::replace(self.way.get_mut(), Way::Done) {
            let _gone = respond.send_response(response, true);
        }
    }

    /// Ends the call; without effect where the client has.
    pub fn end(&mut self, status: &Status) {
        match self.way.get_mut() {
            Way::Unanswered(_) => {
                let mut response = self.response();
                status.put(response.headers_mut());
                if status.code == Code::Unimplemented {
                    let known = HeaderValue::from_static("gzip, identity");
                    response.headers_mut().insert(GRPC_ACCEPT_ENCODING, known);
                }
                self.answer_alone(response);
            }
            // Trailers would make a message that is cut look like a mistake of ours.
            Way::Answering(stream) if status.code == Code::Cancelled || self.is_cut.get() => {
                stream.send_reset(Reason::CANCEL);
            }
            Way::Answering(stream) => {
                let mut trailers = HeaderMap::new();
                status.put(&mut trailers);
                let _gone = stream.send_trailers(trailers);
            }
            Way::Done => {}
        }
    }

    /// Takes back what HTTP/2 still holds of an answer that has ended.
    pub fn reset(&mut self) {
        if let Way::Answering(stream) = self.way.get_mut() {
            stream.send_reset(Reason::CANCEL);
        }
    }
}
