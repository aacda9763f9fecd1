//! Decisions on one core: whether a request may do what it asks for.

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

/// Decides on one core, and caches principals. Each front end of a core has one.
pub struct Authorizer {
    auth: Arc<dyn Authenticator>,
    /// Everybody may do everything, so that nothing is looked up.
    is_open: bool,
    /// The current time in seconds since 1970.
    now_s: Box<dyn Fn() -> u64>,
    known: RefCell<Known>,
}

/// Principals that have been looked up. No token is kept.
#[derive(Default)]
struct Known {
    generation: u64,
    /// By the SHA-256 digests of their tokens.
    by_token: HashMap<[u8; 32], Arc<Principal>>,
    /// By the common names in their certificates. Only requests without a token are looked up here.
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

/// Names of collections in one line of the audit log: a few of them, and how many there are.
fn several(collections: &BTreeSet<&str>) -> String {
    let shown =
        collections.iter().take(AUDITED_NAMES).map(|name| full_name(name)).collect::<Vec<_>>().join(",");
    match collections.len().saturating_sub(AUDITED_NAMES) {
        0 => shown,
        more => format!("{shown} and {more} more"),
    }
}

impl Authorizer {
    /// Decides with the principals of `auth` and the wall clock of `env`.
    pub fn new(auth: Arc<dyn Authenticator>, env: Rc<dyn Env>) -> Authorizer {
        Authorizer::with_clock(auth, Box::new(move || env.unix_ms() / 1000))
    }

    /// Decides with the principals of `auth` and with a clock that gives seconds since 1970.
    pub fn with_clock(auth: Arc<dyn Authenticator>, now_s: Box<dyn Fn() -> u64>) -> Authorizer {
        Authorizer { is_open: auth.is_open(), auth, now_s, known: RefCell::default() }
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
        (self.now_s)()
    }

    /// Checks that these credentials are somebody's.
    ///
    /// # Errors
    /// They are nobody's. This is a decision, so the audit log has it.
    pub fn identify(&self, credentials: Credentials<'_>) -> Result<(), Unauthorized> {
        if self.is_open {
            return Ok(());
        }
        self.with_principal(credentials, |principal| match principal {
            Ok(_) => Ok(()),
            Err(reason) => {
                if self.auth.audits() {
                    audit(credentials, None, reason, None);
                }
                Err(Unauthorized)
            }
        })
    }

    /// Checks that a request is of somebody who has the right that it needs on some collection, whichever that is. Only a refusal is a decision, which
    /// the audit log has.
    ///
    /// # Errors
    /// It is nobody's, or of somebody who has the right on nothing.
    pub fn identify_for(&self, question: &Question<'_>) -> Result<(), Unauthorized> {
        if self.is_open {
            return Ok(());
        }
        self.with_principal(question.credentials, |principal| {
            match principal.and_then(|principal| principal.has_somewhere(question.right)) {
                Ok(()) => Ok(()),
                Err(reason) => self.conclude(question, "", principal, Err(reason)).map(|_| ()),
            }
        })
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

    /// Decides whether a request may do what it asks for. Returns until when its sender is known, in seconds since 1970.
    ///
    /// # Errors
    /// [`Unauthorized`], whatever the reason is; the audit log says which.
    pub fn decide(&self, question: &Question<'_>) -> Result<u64, Unauthorized> {
        if self.is_open {
            return Ok(FOREVER);
        }
        let resource = full_name(question.collection);
        self.with_principal(question.credentials, |principal| {
            let decision = principal.and_then(|principal| principal.decide(question.right, &resource));
            self.conclude(question, &resource, principal, decision)
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
    pub fn decide_all(
        &self,
        question: &Question<'_>,
        collections: &BTreeSet<&str>,
    ) -> Result<(), Unauthorized> {
        if self.is_open {
            return Ok(());
        }
        let node = BTreeSet::from([""]);
        let collections = if collections.is_empty() { &node } else { collections };
        self.with_principal(question.credentials, |principal| {
            let mut refused = "";
            let mut decision = principal.map(|_| Reason::Everything);
            if let Ok(principal) = principal {
                for collection in collections {
                    decision = principal.decide(question.right, &full_name(collection));
                    if decision.is_err() {
                        refused = collection;
                        break;
                    }
                }
            }
            let resource = match decision {
                Ok(_) => several(collections),
                Err(_) => full_name(refused).into_owned(),
            };
            self.conclude(question, &resource, principal, decision).map(|_| ())
        })
    }

    /// Writes a decision about a principal, or the reason for which there is none, to the audit log. Returns until when the principal is known.
    fn conclude(
        &self,
        question: &Question<'_>,
        resource: &str,
        principal: Result<&Principal, Reason>,
        decision: Result<Reason, Reason>,
    ) -> Result<u64, Unauthorized> {
        if self.auth.audits() {
            let (Ok(reason) | Err(reason)) = decision;
            let asked = Asked { question, resource, is_allowed: decision.is_ok() };
            audit(question.credentials, principal.ok(), reason, Some(asked));
        }
        match (principal, decision) {
            (Ok(principal), Ok(_)) => Ok(principal.valid_until_s),
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
            authorizer.decide(&Question { credentials, op: "", right, collection: "docs" }).is_ok()
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
            authorizer.decide(&Question { credentials, op: "", right, collection: "docs" }).is_ok()
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
