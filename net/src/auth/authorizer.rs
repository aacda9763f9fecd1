//! Decisions on one core: whether a request may do what it asks for.

use super::meter::{Bill, Exceeded, Limit, Meter, Presence};
use super::principal::FOREVER;
use super::secret::{hex, listed_fingerprint};
use super::{Authenticator, Credentials, Principal, Reason, Unauthorized};
use crate::op::Action;
use nigh_shard::env::Env;
use sha2::{Digest, Sha256};
use std::borrow::{Borrow, Cow};
use std::cell::RefCell;
use std::collections::{BTreeSet, HashMap};
use std::hash::Hash;
use std::rc::Rc;
use std::sync::Arc;

/// The most principals that a core caches; the cache is cleared when it is full.
const REMEMBERED: usize = 4096;

/// The most names of collections that a line of the audit log shows.
const AUDITED_NAMES: usize = 8;

/// What is to be decided.
#[derive(Clone, Copy, Debug)]
pub struct Question<'a> {
    /// What the request shows of its sender.
    pub credentials: Credentials<'a>,
    /// The name of the operation, for the audit log; empty = unknown.
    pub op: &'a str,
    /// What the operation needs.
    pub right: Action,
    /// The collection that the request names, as sent; empty for the node as a whole.
    pub collection: &'a str,
}

/// Why a request is not let in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refusal {
    /// Its sender is unknown, or may not do it.
    Unauthorized,
    /// Its sender may do it, but not now.
    Limited(Exceeded),
}

impl From<Unauthorized> for Refusal {
    fn from(Unauthorized: Unauthorized) -> Refusal {
        Refusal::Unauthorized
    }
}

/// The decision that a request may do what it asks for.
#[derive(Debug)]
pub struct Decided {
    /// When what is known of its sender expires, in seconds since 1970.
    pub valid_until_s: u64,
    /// How much of the sender's limits has been used, if there are any.
    pub meter: Option<Arc<Meter>>,
    /// Whether the limits let it in. A request that is not charged is always let in.
    pub charged: Result<(), Exceeded>,
}

/// Decides on one core, and caches principals. Each front end of a core has one.
pub struct Authorizer {
    auth: Arc<dyn Authenticator>,
    /// Everybody may do everything, so that nothing is looked up.
    is_open: bool,
    clocks: Clocks,
    /// Counts a request that a limit has refused.
    count: Box<dyn Fn(Limit)>,
    known: RefCell<Known>,
}

/// The clocks of a core.
pub struct Clocks {
    /// The current time in seconds since 1970.
    pub now_s: Box<dyn Fn() -> u64>,
    /// Nanoseconds of a clock that all cores share, by which limits are measured.
    pub now_ns: Rc<dyn Fn() -> u64>,
}

impl Clocks {
    /// The clocks of `env`.
    pub fn of(env: Rc<dyn Env>) -> Clocks {
        let wall = env.clone();
        Clocks { now_s: Box::new(move || wall.unix_ms() / 1000), now_ns: Rc::new(move || env.now_ns()) }
    }
}

/// Principals that have been looked up. No token is kept.
#[derive(Default)]
struct Known {
    generation: u64,
    /// The principals with a token, by the SHA-256 digests of their tokens.
    by_token: HashMap<[u8; 32], Arc<Principal>>,
    /// The principals with a certificate, by the common names in it. Only requests without a token are looked up here.
    by_certificate: HashMap<String, Arc<Principal>>,
}

/// Calls `f` with the principal of `key` in `cache`, which is looked up where the cache does not have it or has one that has expired.
fn with_cached<K: Hash + Eq + Borrow<Q>, Q: Hash + Eq + ToOwned<Owned = K> + ?Sized, R>(
    cache: &mut HashMap<K, Arc<Principal>>,
    key: &Q,
    is_valid: impl FnOnce(&Principal) -> bool,
    look_up: impl FnOnce() -> Result<Arc<Principal>, Reason>,
    f: impl FnOnce(Result<&Principal, Reason>) -> R,
) -> R {
    if let Some(principal) = cache.get(key) {
        if is_valid(principal) {
            return f(Ok(principal));
        }
        cache.remove(key);
    }
    // Refusals are not cached, so that unknown tokens cannot evict principals.
    match look_up() {
        Ok(principal) => {
            if cache.len() >= REMEMBERED {
                cache.clear();
            }
            f(Ok(cache.entry(key.to_owned()).or_insert(principal)))
        }
        Err(reason) => f(Err(reason)),
    }
}

/// The full name of a collection as sent, `<tenant>/<name>`; empty for the node as a whole.
fn full_name(collection: &str) -> Cow<'_, str> {
    match collection.is_empty() || collection.contains('/') {
        true => collection.into(),
        false => format!("default/{collection}").into(),
    }
}

/// The reason in the audit log for a request that a limit refused.
fn reason_of(exceeded: Exceeded) -> Reason {
    match exceeded.limit {
        Limit::Connections => Reason::ConnectionLimit,
        Limit::Requests | Limit::Bytes => Reason::RateLimit,
    }
}

/// The text for several names of collections in a line of the audit log: a few of them, and how many there are.
fn several(collections: &BTreeSet<&str>) -> String {
    let shown =
        collections.iter().take(AUDITED_NAMES).map(|name| full_name(name)).collect::<Vec<_>>().join(",");
    match collections.len().saturating_sub(AUDITED_NAMES) {
        0 => shown,
        more => format!("{shown} and {more} more"),
    }
}

impl Authorizer {
    /// Decides with the principals of `auth` and with `clocks`, and calls `count` for each request that a limit refuses.
    pub fn new(auth: Arc<dyn Authenticator>, clocks: Clocks, count: Box<dyn Fn(Limit)>) -> Authorizer {
        Authorizer { is_open: auth.is_open(), auth, clocks, count, known: RefCell::default() }
    }

    /// Decides with the principals of `auth` and with a clock that gives seconds since 1970; the clock of limits stands still.
    #[cfg(test)]
    pub fn with_clock(auth: Arc<dyn Authenticator>, now_s: Box<dyn Fn() -> u64>) -> Authorizer {
        Authorizer::new(auth, Clocks { now_s, now_ns: Rc::new(|| 0) }, Box::new(|_| {}))
    }

    /// The authenticator that knows the principals.
    pub fn authenticator(&self) -> &Arc<dyn Authenticator> {
        &self.auth
    }

    /// Whether everybody may do everything.
    pub fn is_open(&self) -> bool {
        self.is_open
    }

    /// A number that changes whenever an earlier decision may be wrong.
    pub fn generation(&self) -> u64 {
        self.auth.generation()
    }

    /// Whether a decision about somebody who is valid until then may be repeated for the same question. With an audit log it may not, since
    /// each decision is written there.
    pub fn is_repeatable(&self, valid_until_s: u64) -> bool {
        !self.auth.audits() && self.is_before(valid_until_s)
    }

    fn is_before(&self, end_s: u64) -> bool {
        end_s == FOREVER || self.now_s() < end_s
    }

    /// The current time in seconds since 1970.
    pub fn now_s(&self) -> u64 {
        (self.clocks.now_s)()
    }

    /// Charges a request of a connection to the limits of its sender.
    ///
    /// # Errors
    /// The sender has reached a limit.
    pub fn charge(&self, meter: &Arc<Meter>, presence: &Presence) -> Result<(), Exceeded> {
        meter.charge(presence, (self.clocks.now_ns)()).inspect_err(|exceeded| (self.count)(exceeded.limit))
    }

    /// Checks whether a request of a sender would be let in by its limits now, and takes nothing.
    ///
    /// # Errors
    /// A limit is reached.
    pub fn check(&self, meter: &Meter) -> Result<(), Exceeded> {
        meter.check((self.clocks.now_ns)()).inspect_err(|exceeded| (self.count)(exceeded.limit))
    }

    /// Counts a request that was charged and is refused all the same, because its sender owes more than a limit allows by now.
    pub fn count_refusal(&self, exceeded: Exceeded) {
        (self.count)(exceeded.limit);
    }

    /// What charges bytes of a request to its sender.
    pub fn bill(&self, meter: Arc<Meter>) -> Bill {
        Bill::new(meter, self.clocks.now_ns.clone())
    }

    /// Checks that the sender of a request is known and has not reached a limit. Nothing is charged. Only a refusal is a decision, of which the audit log
    /// has a line.
    ///
    /// # Errors
    /// The sender is unknown or has reached a limit.
    pub fn identify(&self, credentials: Credentials<'_>) -> Result<(), Refusal> {
        if self.is_open {
            return Ok(());
        }
        self.with_principal(credentials, |principal| match principal {
            Ok(found) => match &found.meter {
                None => Ok(()),
                Some(meter) => self.check(meter).inspect_err(|exceeded| {
                    if self.auth.audits() {
                        audit(credentials, Some(found), reason_of(*exceeded), None);
                    }
                }),
            }
            .map_err(Refusal::Limited),
            Err(reason) => {
                if self.auth.audits() {
                    audit(credentials, None, reason, None);
                }
                Err(Refusal::Unauthorized)
            }
        })
    }

    /// Checks that the sender of a request is known and has the right that it needs on at least one collection. If `charged_by` has the connection of
    /// the request, the request is charged to its sender; otherwise the limits of the sender are only checked. Returns the meter of the sender, if
    /// the sender has limits. Only a refusal is a decision, of which the audit log has a line.
    ///
    /// # Errors
    /// The sender is unknown, has the right on nothing, or has reached a limit.
    pub fn identify_for(
        &self,
        question: &Question<'_>,
        charged_by: Option<&Presence>,
    ) -> Result<Option<Arc<Meter>>, Refusal> {
        if self.is_open {
            return Ok(None);
        }
        self.with_principal(question.credentials, |principal| {
            let found = principal.and_then(|found| found.has_somewhere(question.right).map(|()| found));
            let found = match found {
                Ok(found) => found,
                Err(reason) => {
                    self.conclude(question, "", principal, Err(reason), None)?;
                    return Err(Refusal::Unauthorized);
                }
            };
            let charged = match (&found.meter, charged_by) {
                (Some(meter), Some(presence)) => self.charge(meter, presence),
                (Some(meter), None) => self.check(meter),
                (None, Some(presence)) => {
                    presence.leave();
                    Ok(())
                }
                (None, None) => Ok(()),
            };
            if let (Err(exceeded), true) = (charged, self.auth.audits()) {
                let asked = Asked { question, resource: "", is_allowed: false };
                audit(question.credentials, Some(found), reason_of(exceeded), Some(asked));
            }
            charged.map(|()| found.meter.clone()).map_err(Refusal::Limited)
        })
    }

    /// Charges a request that is refused because something is wrong with it to the sender with these credentials. Returns a bill for its bytes, if the
    /// sender has limits.
    pub fn charge_anyway(&self, credentials: Credentials<'_>, presence: &Presence) -> Option<Bill> {
        if self.is_open {
            return None;
        }
        let meter = self
            .with_principal(credentials, |principal| principal.ok().and_then(|found| found.meter.clone()))?;
        // The request is refused in any case.
        let _exceeded = self.charge(&meter, presence);
        Some(self.bill(meter))
    }

    /// Calls `f` with the principal who has these credentials, or with the reason for which there is none.
    fn with_principal<R>(
        &self,
        credentials: Credentials<'_>,
        f: impl FnOnce(Result<&Principal, Reason>) -> R,
    ) -> R {
        // It is read before anybody is looked up: a change that comes meanwhile is noticed at the next request.
        let generation = self.auth.generation();
        let known = &mut *self.known.borrow_mut();
        if known.generation != generation {
            *known = Known { generation, ..Known::default() };
        }
        let is_valid = |principal: &Principal| self.is_before(principal.valid_until_s);
        let look_up = || self.auth.identify(credentials, self.now_s());
        match (credentials.token.filter(|token| !token.is_empty()), credentials.certificate) {
            (Some(token), _) => {
                let digest: [u8; 32] = Sha256::digest(token).into();
                with_cached(&mut known.by_token, &digest, is_valid, look_up, f)
            }
            (None, Some(name)) => with_cached(&mut known.by_certificate, name, is_valid, look_up, f),
            (None, None) => f(look_up().as_deref().map_err(|reason| *reason)),
        }
    }

    /// Decides whether a request may do what it asks for. If it may and `charged_by` is its connection, it is charged to its sender.
    ///
    /// # Errors
    /// [`Unauthorized`], whatever the reason is; the audit log says which.
    pub fn decide(
        &self,
        question: &Question<'_>,
        charged_by: Option<&Presence>,
    ) -> Result<Decided, Unauthorized> {
        if self.is_open {
            return Ok(Decided { valid_until_s: FOREVER, meter: None, charged: Ok(()) });
        }
        let resource = full_name(question.collection);
        self.with_principal(question.credentials, |principal| {
            let decision = principal.and_then(|principal| principal.decide(question.right, &resource));
            self.conclude(question, &resource, principal, decision, charged_by)
        })
    }

    /// Decides whether a request may do what it asks for with each of these collections, or, where there is none, with the node as a whole; the
    /// collection of `question` does not count. This is one decision, and the audit log names the first collection that it was refused for, or the
    /// first few that it was allowed for.
    ///
    /// Cost: in proportion to the number of collections times that of scopes.
    ///
    /// # Errors
    /// As [`Authorizer::decide`].
    pub fn decide_all<'n>(
        &self,
        question: &Question<'_>,
        collections: impl Iterator<Item = &'n str>,
        charged_by: Option<&Presence>,
    ) -> Result<Decided, Unauthorized> {
        if self.is_open {
            return Ok(Decided { valid_until_s: FOREVER, meter: None, charged: Ok(()) });
        }
        let collections: BTreeSet<&str> = collections.collect();
        let node = BTreeSet::from([""]);
        let collections = if collections.is_empty() { node } else { collections };
        self.with_principal(question.credentials, |principal| {
            let mut refused = "";
            let mut decision = principal.map(|_| Reason::Everything);
            if let Ok(principal) = principal {
                for collection in &collections {
                    decision = principal.decide(question.right, &full_name(collection));
                    if decision.is_err() {
                        refused = collection;
                        break;
                    }
                }
            }
            let resource = match decision {
                Ok(_) => several(&collections),
                Err(_) => full_name(refused).into_owned(),
            };
            self.conclude(question, &resource, principal, decision, charged_by)
        })
    }

    /// Charges a request that was allowed to its sender if `charged_by` is its connection, and writes the decision to the audit log. `principal` is
    /// the sender, or the reason for which there is none.
    fn conclude(
        &self,
        question: &Question<'_>,
        resource: &str,
        principal: Result<&Principal, Reason>,
        decision: Result<Reason, Reason>,
        charged_by: Option<&Presence>,
    ) -> Result<Decided, Unauthorized> {
        let meter = principal.ok().and_then(|principal| principal.meter.clone());
        let charged = match (decision, charged_by, &meter) {
            (Ok(_), Some(presence), Some(meter)) => self.charge(meter, presence),
            (Ok(_), Some(presence), None) => {
                presence.leave();
                Ok(())
            }
            _ => Ok(()),
        };
        if self.auth.audits() {
            let reason = match (decision, charged) {
                (Err(reason), _) | (Ok(reason), Ok(())) => reason,
                (Ok(_), Err(exceeded)) => reason_of(exceeded),
            };
            let asked = Asked { question, resource, is_allowed: decision.is_ok() && charged.is_ok() };
            audit(question.credentials, principal.ok(), reason, Some(asked));
        }
        match (principal, decision) {
            (Ok(principal), Ok(_)) => Ok(Decided { valid_until_s: principal.valid_until_s, meter, charged }),
            _ => Err(Unauthorized),
        }
    }
}

/// What the audit log says of a request beside who sent it.
struct Asked<'a> {
    question: &'a Question<'a>,
    resource: &'a str,
    is_allowed: bool,
}

/// Writes a decision to the audit log.
fn audit(
    credentials: Credentials<'_>,
    principal: Option<&Principal>,
    reason: Reason,
    asked: Option<Asked<'_>>,
) {
    let token_fp = credentials.token.map(|token| hex(&listed_fingerprint(token)));
    let (op, action, resource, is_allowed) = match &asked {
        Some(Asked { question, resource, is_allowed }) => {
            (question.op, question.right.word(), *resource, *is_allowed)
        }
        None => ("", "", "", false),
    };
    tracing::info!(
        target: "audit",
        principal = principal.map_or("unknown", |principal| &principal.name),
        token_fp = token_fp.unwrap_or_default(),
        tenant = principal.map_or("", |principal| &principal.tenant),
        action,
        resource,
        op,
        decision = if is_allowed { "allow" } else { "deny" },
        reason = reason.word(),
    );
}

#[cfg(test)]
mod tests {
    use super::super::key_limits::KeyLimits;
    use super::super::principal::Means;
    use super::super::scope::Scope;
    use super::*;
    use std::cell::Cell;
    use std::sync::atomic::{AtomicU64, Ordering};

    /// Knows the token `reader`, who may read and is valid up to the second 100; counts how often it is asked.
    #[derive(Default)]
    struct Counting {
        asked: AtomicU64,
        generation: AtomicU64,
    }

    impl Authenticator for Counting {
        fn identify(&self, credentials: Credentials<'_>, now_s: u64) -> Result<Arc<Principal>, Reason> {
            self.asked.fetch_add(1, Ordering::Relaxed);
            match credentials.token {
                Some(b"reader") if now_s < 100 => Ok(Arc::new(Principal {
                    scopes: vec![Scope::parse("read:*").unwrap()],
                    valid_until_s: 100,
                    ..Principal::unrestricted(Means::Jwt, "reader")
                })),
                Some(b"root") => Ok(Arc::new(Principal::unrestricted(Means::InternalToken, "internal"))),
                Some(_) => Err(Reason::TokenNotFound),
                None => Err(Reason::NoPrincipal),
            }
        }
        fn generation(&self) -> u64 {
            self.generation.load(Ordering::Relaxed)
        }
    }

    #[test]
    fn principals_are_remembered_until_they_end_or_the_generation_changes() {
        let (auth, clock) = (Arc::new(Counting::default()), Rc::new(Cell::new(0)));
        let authorizer = {
            let clock = clock.clone();
            Authorizer::with_clock(auth.clone(), Box::new(move || clock.get()))
        };
        let may = |token: &str, right| {
            let credentials = Credentials::token(Some(token.as_bytes()));
            authorizer.decide(&Question { credentials, op: "", right, collection: "docs" }, None).is_ok()
        };
        let asked = || auth.asked.load(Ordering::Relaxed);
        for _ in 0..3 {
            assert!(
                may("reader", Action::Read) && !may("reader", Action::Write) && may("root", Action::Admin)
            );
        }
        assert_eq!(asked(), 2);
        // Strangers are looked up each time.
        for _ in 0..3 {
            assert!(!may("nobody", Action::Read) && !may("", Action::Read));
        }
        assert_eq!(asked(), 8);
        auth.generation.fetch_add(1, Ordering::Relaxed);
        assert!(may("reader", Action::Read) && may("reader", Action::Read));
        assert_eq!(asked(), 9);
        clock.set(99);
        assert!(may("reader", Action::Read));
        clock.set(100);
        assert!(!may("reader", Action::Read) && !may("reader", Action::Read));
        assert!(
            authorizer.is_repeatable(FOREVER)
                && authorizer.is_repeatable(101)
                && !authorizer.is_repeatable(100)
        );
    }

    /// Knows the certificate `worker` and the token of the same text; counts how often it is asked.
    #[derive(Default)]
    struct Worker {
        asked: AtomicU64,
        generation: AtomicU64,
    }

    impl Authenticator for Worker {
        fn identify(&self, credentials: Credentials<'_>, _: u64) -> Result<Arc<Principal>, Reason> {
            self.asked.fetch_add(1, Ordering::Relaxed);
            let of = |scope: &str| {
                let scopes = vec![Scope::parse(scope).unwrap()];
                Ok(Arc::new(Principal { scopes, ..Principal::unrestricted(Means::Key, scope) }))
            };
            match (credentials.token, credentials.certificate) {
                (Some(b"worker"), _) => of("write:*"),
                (None, Some("worker")) => of("read:*"),
                _ => Err(Reason::CertNotFound),
            }
        }
        fn generation(&self) -> u64 {
            self.generation.load(Ordering::Relaxed)
        }
    }

    #[test]
    fn principals_of_certificates_are_remembered_apart_from_those_of_tokens() {
        let auth = Arc::new(Worker::default());
        let authorizer = Authorizer::with_clock(auth.clone(), Box::new(|| 0));
        let may = |token: Option<&[u8]>, certificate, right| {
            let credentials = Credentials { token, certificate };
            authorizer.decide(&Question { credentials, op: "", right, collection: "docs" }, None).is_ok()
        };
        let asked = || auth.asked.load(Ordering::Relaxed);
        for _ in 0..3 {
            assert!(may(None, Some("worker"), Action::Read) && !may(None, Some("worker"), Action::Write));
            // A token is never known by a certificate, nor a certificate by a token of the same text.
            assert!(may(Some(b"worker"), None, Action::Write) && !may(Some(b"worker"), None, Action::Read));
            assert!(!may(Some(b"other"), Some("worker"), Action::Read));
        }
        assert_eq!(asked(), 2 + 3);
        assert!(!may(None, Some("other"), Action::Read) && !may(None, Some("other"), Action::Read));
        assert_eq!(asked(), 7, "strangers are looked up each time");
        auth.generation.fetch_add(1, Ordering::Relaxed);
        assert!(may(None, Some("worker"), Action::Read) && may(None, Some("worker"), Action::Read));
        assert_eq!(asked(), 8);
    }

    #[test]
    fn only_who_may_is_charged_and_refusals_are_counted() {
        /// Knows one token, which may read and send two requests per second.
        struct Limited(Arc<Principal>);
        impl Authenticator for Limited {
            fn identify(&self, credentials: Credentials<'_>, _: u64) -> Result<Arc<Principal>, Reason> {
                (credentials.token == Some(b"t")).then(|| self.0.clone()).ok_or(Reason::TokenNotFound)
            }
        }
        let meter = Meter::new(KeyLimits { requests_per_second: 2, ..KeyLimits::default() });
        let scopes = vec![Scope::parse("read:*").unwrap()];
        let limited = Principal { scopes, meter, ..Principal::unrestricted(Means::Key, "") };
        let (clock, refused) = (Rc::new(Cell::new(0)), Rc::new(Cell::new(0)));
        let (now, count) = (clock.clone(), refused.clone());
        let clocks = Clocks { now_s: Box::new(|| 0), now_ns: Rc::new(move || now.get()) };
        let count = Box::new(move |_| count.set(count.get() + 1));
        let authorizer = Authorizer::new(Arc::new(Limited(Arc::new(limited))), clocks, count);
        let presence = Presence::default();
        let ask = |token: &[u8], right, charged_by| {
            let question =
                Question { credentials: Credentials::token(Some(token)), op: "", right, collection: "" };
            let decided = authorizer.decide(&question, charged_by).map_err(|_| "unauthorized")?;
            decided.charged.map_err(|exceeded| exceeded.limit.name())
        };
        for _ in 0..5 {
            assert_eq!(ask(b"other", Action::Read, Some(&presence)), Err("unauthorized"));
            assert_eq!(ask(b"t", Action::Write, Some(&presence)), Err("unauthorized"));
            assert_eq!(ask(b"t", Action::Read, None), Ok(()), "a question alone is not charged");
        }
        for expected in [Ok(()), Ok(()), Err("requests"), Err("requests")] {
            assert_eq!(ask(b"t", Action::Read, Some(&presence)), expected);
        }
        assert_eq!(refused.get(), 2);
        clock.set(500_000_000);
        assert_eq!(ask(b"t", Action::Read, Some(&presence)), Ok(()));
    }

    #[test]
    fn what_is_remembered_has_a_bound() {
        struct Everybody;
        impl Authenticator for Everybody {
            fn identify(&self, _: Credentials<'_>, _: u64) -> Result<Arc<Principal>, Reason> {
                Ok(Arc::new(Principal::unrestricted(Means::InternalToken, "")))
            }
        }
        let authorizer = Authorizer::with_clock(Arc::new(Everybody), Box::new(|| 0));
        for number in 0..3 * REMEMBERED {
            let token = number.to_string();
            assert!(authorizer.identify(Credentials::token(Some(token.as_bytes()))).is_ok());
            let certificate = Credentials { token: None, certificate: Some(&token) };
            assert!(authorizer.identify(certificate).is_ok());
            let known = authorizer.known.borrow();
            assert!(known.by_token.len() <= REMEMBERED && known.by_certificate.len() <= REMEMBERED);
        }
    }
}
