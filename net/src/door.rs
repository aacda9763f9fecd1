//! The door: the only way from a transport to the core.
//!
//! A transport finds the [row](Row) of the requested operation in the table, and passes the token of the request and the name of the collection to
//! the door. If the sender has the right that the row names, the door returns a [`Grant`]. For the time of the request there is a [`Permit`], which
//! carries out operations and offers what a codec needs of the core: time, tasks, and the account of memory.
//!
//! Operations on keys are too short for a permit: their path takes the keys themselves from [`Door::kv`], which also needs a grant.

use crate::auth::secret::Secret;
use crate::auth::{
    Authenticator, Authorizer, Bill, Clocks, Credentials, Decided, Presence, Question, Refusal, Unauthorized,
};
use crate::metrics::Telemetry;
use crate::op::Op;
use crate::op::table::Row;
use crate::op::{Action, ApiError, ErrorKind, Operation, check_name};
use crate::wire::payloads::{Decoding, Payloads};
use futures_lite::future::or;
use nigh_engine::filter::Predicate;
use nigh_engine::point_id::IdKind;
use nigh_shard::access::Access;
use nigh_shard::account::Account;
use nigh_shard::core::{Asked, Core, OpError};
use nigh_shard::env::{self, Env};
use nigh_shard::family::{CollectionConfig, Family};
use nigh_shard::kv::Keys;
use std::cell::RefCell;
use std::future::poll_fn;
use std::rc::Rc;
use std::sync::Arc;
use std::task::{Poll, Waker};

/// Authorizes requests and carries them out. There is one for each core and transport.
pub struct Door {
    core: Rc<Core>,
    authorizer: Authorizer,
}

/// The decision that a request may do what needs this right. Only this module makes it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Allowed(Action);

/// The decision that a request may carry out an operation. It has only a few bytes, because each request of a round has one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Grant {
    op: Op,
    right: Action,
}

/// Carries out the operations of one request that was admitted, as far as the right that was checked allows them.
#[derive(Clone)]
pub struct Permit {
    core: Rc<Core>,
    right: Action,
    family: Family,
}

/// A request that was admitted.
pub struct Admitted {
    /// Carries it out.
    pub permit: Permit,
    /// Charges its bytes to its sender, if the sender has limits.
    pub bill: Option<Bill>,
}

/// The decisions about the last token of a connection, so that not every request costs a digest of it. They hold as long as the connection keeps its
/// credentials and the authenticator its generation.
#[derive(Default)]
pub struct Verdicts {
    /// The common name in the certificate of the connection, which stands for requests without a token.
    certificate: Option<String>,
    generation: u64,
    token: Secret,
    /// For each right, the collection of the last decision, and the decision.
    last: [Option<Verdict>; 3],
    /// The bill of the token's API key, if that has limits.
    bill: Option<Bill>,
    /// Which API key the connection counts for.
    presence: Presence,
}

struct Verdict {
    collection: String,
    allowed: Option<Allowed>,
    /// It may be repeated until then, in seconds since 1970.
    valid_until_s: u64,
}

impl Verdicts {
    /// For a connection whose client has shown a certificate with this common name, or none.
    pub fn of(certificate: Option<String>) -> Verdicts {
        Verdicts { certificate, ..Verdicts::default() }
    }

    /// The common name in the certificate of the connection.
    pub fn certificate(&self) -> Option<&str> {
        self.certificate.as_deref()
    }

    /// Decides whether a request that has not been received as a whole is allowed. It is not charged, but it is refused if its sender has reached a
    /// limit.
    ///
    /// # Errors
    /// The request is not allowed, or not now.
    pub fn allows(&mut self, authorizer: &Authorizer, question: &Question<'_>) -> Result<(), Refusal> {
        self.decide(authorizer, question, false)?;
        self.bill.as_ref().map_or(Ok(()), |bill| authorizer.check(bill.meter()).map_err(Refusal::Limited))
    }

    /// Decides whether a request is allowed, and charges it to its sender. If its sender has limits, the decision comes with a bill for its bytes.
    ///
    /// # Errors
    /// The request is not allowed, or not now.
    #[inline]
    pub fn admit(
        &mut self,
        authorizer: &Authorizer,
        question: &Question<'_>,
    ) -> Result<(Allowed, Option<Bill>), Refusal> {
        if authorizer.is_open() {
            return Ok((Allowed(question.right), None));
        }
        let allowed = self.decide(authorizer, question, true)?;
        Ok((allowed, self.bill.clone()))
    }

    /// The same as [`Verdicts::admit`] for a request that names several collections, or, if it names none, for the node as a whole. No
    /// earlier decision is repeated.
    ///
    /// # Errors
    /// As [`Verdicts::admit`].
    pub fn admit_to_all<'n>(
        &self,
        authorizer: &Authorizer,
        question: &Question<'_>,
        names: impl Iterator<Item = &'n str>,
    ) -> Result<(Allowed, Option<Bill>), Refusal> {
        let decided = authorizer.decide_all(&self.complete(question), names, Some(&self.presence))?;
        decided.charged.map_err(Refusal::Limited)?;
        Ok((Allowed(question.right), decided.meter.map(|meter| authorizer.bill(meter))))
    }

    /// Checks that the sender of a request is known, has the right that the request needs on at least one collection, and has not reached a limit.
    /// The request is not charged.
    ///
    /// # Errors
    /// The sender does not fulfil one of these conditions.
    pub fn recognise(&self, authorizer: &Authorizer, question: &Question<'_>) -> Result<(), Refusal> {
        authorizer.identify_for(&self.complete(question), None).map(|_| ())
    }

    /// The question with the certificate of the connection.
    fn complete<'q>(&'q self, question: &Question<'q>) -> Question<'q> {
        let certificate = self.certificate.as_deref();
        Question { credentials: Credentials { certificate, ..question.credentials }, ..*question }
    }

    /// Decides, or repeats the decision about the same token, right and collection. With `is_charged` the request is charged in either case.
    fn decide(
        &mut self,
        authorizer: &Authorizer,
        question: &Question<'_>,
        is_charged: bool,
    ) -> Result<Allowed, Refusal> {
        let right = question.right;
        if authorizer.is_open() {
            return Ok(Allowed(right));
        }
        let bytes = question.credentials.token.unwrap_or_default();
        // It is read before anything is decided, so that the next request notices a change that happens meanwhile.
        let generation = authorizer.generation();
        if self.token.bytes() != bytes || self.generation != generation {
            (self.generation, self.token, self.last) = (generation, Secret::new(bytes), Default::default());
            self.bill = None;
        }
        match &self.last[right as usize] {
            Some(verdict)
                if verdict.collection == question.collection
                    && authorizer.is_repeatable(verdict.valid_until_s) =>
            {
                let allowed = verdict.allowed.ok_or(Refusal::Unauthorized)?;
                match &self.bill {
                    Some(bill) if is_charged => {
                        authorizer.charge(bill.meter(), &self.presence).map_err(Refusal::Limited)?;
                    }
                    None if is_charged => self.presence.leave(),
                    _ => {}
                }
                Ok(allowed)
            }
            _ => {
                let charged_by = is_charged.then_some(&self.presence);
                let decided = authorizer.decide(&self.complete(question), charged_by);
                // A signed token may become valid later, so a refusal is remembered only for a moment.
                let valid_until_s =
                    decided.as_ref().map_or_else(|_| authorizer.now_s() + 1, |decided| decided.valid_until_s);
                let allowed = decided.is_ok().then_some(Allowed(right));
                let collection = question.collection.to_owned();
                self.last[right as usize] = Some(Verdict { collection, allowed, valid_until_s });
                let decided = decided?;
                self.bill = decided.meter.map(|meter| authorizer.bill(meter));
                decided.charged.map_err(Refusal::Limited)?;
                Ok(Allowed(right))
            }
        }
    }
}

impl Allowed {
    /// The grant for an operation that needs no more than what was decided.
    pub fn grant(self, row: &Row) -> Grant {
        Grant { op: row.op, right: self.0 }
    }
}

fn refused(refusal: Refusal) -> ApiError {
    match refusal {
        Refusal::Unauthorized => ApiError::new(ErrorKind::Unauthorized, "unauthorized"),
        Refusal::Limited(exceeded) => ApiError {
            retry_after_ms: Some(exceeded.wait_ms()),
            ..ApiError::new(ErrorKind::Exhausted, exceeded.to_string())
        },
    }
}

impl Grant {
    /// The operation that may be carried out.
    pub fn op(self) -> Op {
        self.op
    }
}

impl Door {
    /// Makes the door of a core. `auth` knows who may do what. Requests that a limit refuses are counted in `telemetry`.
    pub fn new(core: Rc<Core>, auth: Arc<dyn Authenticator>, telemetry: Arc<Telemetry>) -> Door {
        let (clocks, index) = (Clocks::of(core.env().clone()), core.env().index());
        let count = Box::new(move |limit| telemetry.core(index).limited(limit));
        Door { authorizer: Authorizer::new(auth, clocks, count), core }
    }

    /// The authorizer of this core.
    pub fn authorizer(&self) -> &Authorizer {
        &self.authorizer
    }

    /// Knows the principals.
    pub fn auth(&self) -> &Arc<dyn Authenticator> {
        self.authorizer.authenticator()
    }

    /// Checks that the sender of a request is known and has the right that it needs on at least one collection, and charges the request. Returns a bill for
    /// its bytes, if the sender has limits.
    ///
    /// # Errors
    /// [`ErrorKind::Unauthorized`], with one text whatever the reason is; [`ErrorKind::Exhausted`] if its sender has reached a limit.
    pub fn recognise_for(
        &self,
        question: &Question<'_>,
        presence: &Presence,
    ) -> Result<Option<Bill>, ApiError> {
        let meter = self.authorizer.identify_for(question, Some(presence)).map_err(refused)?;
        Ok(meter.map(|meter| self.authorizer.bill(meter)))
    }

    /// Checks that the sender of a request is known and has not reached a limit.
    ///
    /// # Errors
    /// As [`Door::admit`].
    pub fn recognise(&self, credentials: Credentials<'_>) -> Result<(), ApiError> {
        self.authorizer.identify(credentials).map_err(refused)
    }

    /// Admits a request if it is allowed, and charges it to its sender. `presence` is that of its connection.
    ///
    /// # Errors
    /// [`ErrorKind::Unauthorized`], with one text whatever the reason is; [`ErrorKind::Exhausted`] if its sender has reached a limit.
    pub fn admit(&self, question: &Question<'_>, presence: &Presence) -> Result<Admitted, ApiError> {
        self.admitted(question.right, self.authorizer.decide(question, Some(presence)))
    }

    fn admitted(&self, right: Action, decided: Result<Decided, Unauthorized>) -> Result<Admitted, ApiError> {
        let decided = decided.map_err(|unauthorized| refused(unauthorized.into()))?;
        decided.charged.map_err(|exceeded| refused(Refusal::Limited(exceeded)))?;
        let permit = Permit { core: self.core.clone(), right, family: Family::Dense };
        Ok(Admitted { permit, bill: decided.meter.map(|meter| self.authorizer.bill(meter)) })
    }

    /// Admits a request if it is allowed on each of these names, or, if there is no name, on the node as a whole. `question` has everything else that
    /// the decision needs. This is one decision. If `charged_by` has the connection of the request, the request is charged to its sender.
    ///
    /// # Errors
    /// As [`Door::admit`].
    pub fn admit_to_all<'a>(
        &self,
        question: &Question<'a>,
        names: impl Iterator<Item = &'a str>,
        charged_by: Option<&Presence>,
    ) -> Result<Admitted, ApiError> {
        self.admitted(question.right, self.authorizer.decide_all(question, names, charged_by))
    }

    /// Admits a request for an operation that needs no API key.
    pub fn admit_anybody(&self) -> Permit {
        Permit { core: self.core.clone(), right: Action::Read, family: Family::Dense }
    }

    /// Makes the permit of a granted request, for the family of its operation.
    pub fn permit(&self, grant: Grant) -> Permit {
        Permit { core: self.core.clone(), right: grant.right, family: grant.op.family() }
    }

    /// The keys of the core, for an operation on keys that was granted.
    pub fn kv(&self, grant: Grant) -> &Rc<Keys> {
        debug_assert!(matches!(grant.op(), Op::Kv(_)), "{grant:?}");
        self.core.keys()
    }

    /// Surroundings of the core: tasks and time.
    pub fn env(&self) -> &Rc<dyn Env> {
        self.core.env()
    }

    /// The account of the process's memory.
    pub fn account(&self) -> &Arc<Account> {
        &self.core.node().account
    }

    /// Whether it is known how requests about collections are decoded ([`Self::decoding`]); asked before they are.
    ///
    /// # Errors
    /// The server has been started a moment ago.
    pub fn knows_collections(&self) -> Result<(), ApiError> {
        Ok(self.core.knows_collections()?)
    }

    /// What decoding a request needs beside its bytes.
    pub fn decoding(&self) -> Decoding {
        Decoding { now_ms: self.env().unix_ms(), conventions: self.core.conventions() }
    }

    /// Whether the server was asked to serve queries over keys.
    pub fn serves_key_queries(&self) -> bool {
        self.core.options().keys.query
    }
}

impl Permit {
    /// The right that the request needed and has. A request with [`Action::Read`] cannot change anything.
    pub fn right(&self) -> Action {
        self.right
    }

    /// Checks and carries out one operation. An operation that changes data runs as a task of its own, so it is not cancelled between two of its
    /// steps if the client closes the connection.
    ///
    /// # Errors
    /// As the operation gives them; [`ErrorKind::Internal`] errors are logged here, once.
    pub async fn run<O: Operation>(&self, operation: O) -> Result<O::Output, ApiError> {
        self.checked(operation).await.map_err(logged)
    }

    async fn checked<O: Operation>(&self, operation: O) -> Result<O::Output, ApiError> {
        const { assert!(!(O::MUTATES && matches!(O::RIGHT, Action::Read)), "who may only read could change data") };
        if self.right < O::RIGHT {
            // The table and the operation disagree.
            let text = format!("{:?} was granted for what needs {:?}", self.right, O::RIGHT);
            return Err(ApiError::new(ErrorKind::Internal, text));
        }
        check_name(operation.collection())?;
        operation.validate()?;
        // It ends with the work, which continues if the client closes the connection.
        let access = match O::ENTERS && !operation.collection().is_empty() {
            true => self.core.enter(operation.collection()).await?,
            false => Access::uncounted(),
        };
        if O::OF_FAMILY && !operation.collection().is_empty() {
            self.core.expect_family(operation.collection(), self.family)?;
        }
        if let Some(kind) = operation.id_kind() {
            self.core.expect_ids(operation.collection(), kind)?;
        }
        let point = operation.point().filter(|id| id.text().is_some()).cloned();
        let named = |error: ApiError| match &point {
            Some(id) => error.naming(id),
            None => error,
        };
        // In a box: otherwise a caller that waits for one of many operations would hold, and copy, the state of the largest.
        let core = self.core.clone();
        let work = Box::pin(async move {
            let _access = access;
            operation.run(core).await
        });
        if !O::MUTATES {
            return work.await.map_err(named);
        }
        let work = detached(self.env(), work);
        if !O::LASTS {
            return work.await.map_err(named);
        }
        let stopping = async {
            self.env().stopping().await;
            Err(ApiError::new(ErrorKind::Unavailable, STOPPING))
        };
        or(work, stopping).await
    }

    /// Surroundings of the core: tasks and time.
    pub fn env(&self) -> &Rc<dyn Env> {
        self.core.env()
    }

    /// Wall clock, Unix milliseconds.
    pub fn unix_ms(&self) -> u64 {
        self.core.unix_ms()
    }

    /// Like [`Door::knows_collections`].
    ///
    /// # Errors
    /// As for that function.
    pub fn knows_collections(&self) -> Result<(), ApiError> {
        Ok(self.core.knows_collections()?)
    }

    /// How the payloads of a collection are decoded in a request that arrives now.
    pub fn payloads(&self, collection: &str) -> Payloads {
        self.decoding().of(collection)
    }

    /// The kind of the ids of a collection; numbers if there is no such collection.
    pub fn ids(&self, collection: &str) -> IdKind {
        self.core.conventions().ids_of(collection)
    }

    /// What decoding needs that finds the collection in the request.
    pub fn decoding(&self) -> Decoding {
        Decoding { now_ms: self.unix_ms(), conventions: self.core.conventions() }
    }

    /// The account of the process's memory.
    pub fn account(&self) -> &Arc<Account> {
        &self.core.node().account
    }

    /// Runs `f`, which takes long and cannot be cut into slices, on a thread of lower priority than the cores.
    pub async fn compute<R: Send + 'static>(&self, f: impl FnOnce() -> R + Send + 'static) -> R {
        env::compute(self.env(), f).await
    }

    /// Components of all vectors that a point of a collection may have.
    ///
    /// # Errors
    /// No such collection, or none that is served.
    pub fn components(&self, collection: &str) -> Result<usize, ApiError> {
        check_name(collection)?;
        Ok(match &*self.core.config(collection)? {
            CollectionConfig::Dense(config) => config.dim,
            CollectionConfig::Named(config) => config.dense_spaces().map(|space| space.config.dim).sum(),
            // The number of tokens differs from document to document, so the bytes of documents bound a page.
            CollectionConfig::MultiVector(_) => 0,
        })
    }

    /// Checks that a collection exists, for a request that may not run any operation on it, such as an empty batch.
    ///
    /// # Errors
    /// There is no such collection of the family of the permit.
    pub fn expect(&self, collection: &str) -> Result<(), ApiError> {
        check_name(collection)?;
        Ok(self.core.expect_family(collection, self.family)?)
    }

    /// What vectors the points of a collection have.
    ///
    /// # Errors
    /// There is no such collection of named spaces, or it is not served. In other families the collection is not looked up.
    pub fn shape(&self, collection: &str) -> Result<Shape, ApiError> {
        match self.family {
            Family::Dense => return Ok(Shape::One),
            Family::MultiVector => return Ok(Shape::Tokens),
            Family::Named => {}
        }
        check_name(collection)?;
        let config = self.core.config(collection)?;
        let named = config.named().ok_or_else(|| OpError::UnknownCollection(collection.to_owned()))?;
        let name = |name: &String, is_dropped: bool| if is_dropped { String::new() } else { name.clone() };
        let dense = named.spaces.iter().map(|space| name(&space.name, space.is_dropped)).collect();
        let sparse = named.sparse_spaces.iter().map(|space| name(&space.name, space.is_dropped)).collect();
        Ok(Shape::Spaces(SpaceNames { dense, sparse }))
    }

    /// Makes the permit one for operations on collections of this family; without this call it is for dense collections.
    pub fn of(&self, family: Family) -> Permit {
        Permit { family, ..self.clone() }
    }

    /// The family of the collections that its operations are on.
    pub fn family(&self) -> Family {
        self.family
    }

    /// Whether a point, by its id and payload row, still matches the filter by which it was found.
    ///
    /// # Errors
    /// The filters of the request have taken longer than they may.
    pub async fn row_matches(
        &self,
        filter: Option<&Predicate>,
        point: (u64, &[u8]),
        now_ms: u64,
        asked: &mut Asked,
    ) -> Result<bool, ApiError> {
        Ok(self.core.ctx().row_matches(filter, point, now_ms, asked).await?)
    }
}

/// What vectors a point has.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Shape {
    /// A point has one dense vector, and may have one sparse vector.
    One,
    /// A point has at most one vector in each of these spaces.
    Spaces(SpaceNames),
    /// A point has one vector for each of its tokens.
    Tokens,
}

/// The names of the spaces of a collection, by their numbers.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SpaceNames {
    /// The names of the dense spaces; a dropped space has an empty string here.
    pub dense: Vec<String>,
    /// The names of the sparse spaces; a dropped space has an empty string here.
    pub sparse: Vec<String>,
}

impl SpaceNames {
    /// The sparse spaces that were not dropped: their numbers and names.
    pub fn sparse_spaces(&self) -> impl Iterator<Item = (usize, &str)> {
        self.sparse.iter().map(String::as_str).enumerate().filter(|(_, name)| !name.is_empty())
    }

    /// The vectors of a point, each with its number, by the names of their spaces. A number without a name is of a
    /// space that was dropped, or of a collection that had this one's name before.
    pub fn dense_of<'a>(
        &'a self,
        vectors: &'a [(usize, Vec<f32>)],
    ) -> impl Iterator<Item = (&'a str, &'a [f32])> + Clone {
        let name = |number: usize| self.dense.get(number).map(String::as_str).filter(|name| !name.is_empty());
        vectors.iter().filter_map(move |(number, vector)| Some((name(*number)?, &vector[..])))
    }
}

/// Logs the cause of what the client sees as an internal error.
pub fn logged(error: ApiError) -> ApiError {
    if error.kind == ErrorKind::Internal {
        tracing::error!(target: "nigh", reason = %error.message, "internal error");
    }
    error
}

/// The message for a client that waits for a long operation when the process stops.
const STOPPING: &str = "the server is stopping and does not wait for this to end";

/// Runs `work` as a task and waits for its result. If the wait is dropped, the task continues.
async fn detached<T: 'static>(env: &Rc<dyn Env>, work: impl Future<Output = T> + 'static) -> T {
    struct ResultCell<T> {
        value: Option<T>,
        waiter: Option<Waker>,
    }
    let slot = Rc::new(RefCell::new(ResultCell { value: None, waiter: None }));
    let fill = slot.clone();
    env.spawn(Box::pin(async move {
        let value = work.await;
        let waiter = {
            let mut slot = fill.borrow_mut();
            slot.value = Some(value);
            slot.waiter.take()
        };
        if let Some(waiter) = waiter {
            waiter.wake();
        }
    }));
    poll_fn(|cx| {
        let mut slot = slot.borrow_mut();
        match slot.value.take() {
            Some(value) => Poll::Ready(value),
            None => {
                slot.waiter = Some(cx.waker().clone());
                Poll::Pending
            }
        }
    })
    .await
}
