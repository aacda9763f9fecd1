//! Who may do what. A front end extracts [`Credentials`]; an [`Authenticator`] says whose they are, and the [`Principal`] knows what it may do.
//!
//! There are three authenticators: [`Open`] lets everyone in, [`SingleKey`] knows one key that may do everything, and a [`Registry`] knows many keys,
//! each with a tenant and with scopes, which are kept in a file and change while the server runs.
//!
//! An API key of a registry may have limits ([`key_limits`]); a [`meter`] counts how much of them has been used.
//!
//! Front ends ask an [`Authorizer`], of which each core has its own. It remembers principals, so that a request costs one digest of its token at most.

pub mod authorizer;
pub mod jwt;
pub mod key_limits;
pub mod keys_file;
pub mod meter;
pub mod principal;
pub mod registry;
pub mod scope;
pub mod secret;

pub use authorizer::{Authorizer, Clocks, Decided, Question, Refusal};
pub use meter::{Bill, Presence};
pub use principal::{Credentials, Means, Principal, Reason};
pub use registry::Registry;

use secret::SecretDigest;
use sha2::{Digest, Sha256};
use std::hash::{BuildHasher, RandomState};
use std::sync::{Arc, LazyLock};

/// No or wrong credentials, or a right the principal lacks: one text for all, so that nothing can be learned from it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Unauthorized;

/// Says whose credentials are. One per process, shared by all cores.
pub trait Authenticator: Send + Sync {
    /// The principal with these credentials, at a time in seconds since 1970.
    ///
    /// # Errors
    /// The reason for which there is none.
    fn identify(&self, credentials: Credentials<'_>, now_s: u64) -> Result<Arc<Principal>, Reason>;
    /// A number that changes whenever the same credentials may identify another principal, or none. Principals that were found under an earlier number
    /// must be looked up again.
    fn generation(&self) -> u64 {
        0
    }
    /// Whether credentials do not matter, since everybody may do everything.
    fn is_open(&self) -> bool {
        false
    }
    /// Whether each decision is to be written to the audit log.
    fn audits(&self) -> bool {
        false
    }
    /// The registry of keys, where there is one.
    fn registry(&self) -> Option<&Registry> {
        None
    }
}

/// Everyone may do everything.
pub struct Open;

impl Authenticator for Open {
    fn identify(&self, _: Credentials<'_>, _: u64) -> Result<Arc<Principal>, Reason> {
        Ok(Arc::new(Principal::unrestricted(Means::Everything, "")))
    }
    fn is_open(&self) -> bool {
        true
    }
}

/// One key that may do everything.
pub struct SingleKey {
    digest: SecretDigest,
}

impl SingleKey {
    /// Takes the key; only its digest is kept.
    pub fn new(key: &str) -> Self {
        SingleKey { digest: SecretDigest::of(key.as_bytes()) }
    }
}

impl Authenticator for SingleKey {
    fn identify(&self, credentials: Credentials<'_>, _: u64) -> Result<Arc<Principal>, Reason> {
        let token = credentials.token.ok_or(Reason::NoPrincipal)?;
        match self.digest.is_of(token) {
            true => Ok(Arc::new(Principal::unrestricted(Means::Everything, ""))),
            false => Err(Reason::TokenNotFound),
        }
    }
}

/// The token inside an `Authorization` header value: what follows `Bearer ` (exact case), else the whole value.
pub fn bearer_token(header: &[u8]) -> &[u8] {
    header.strip_prefix(b"Bearer ").unwrap_or(header)
}

/// What a log may show of a token: 16 hex digits of its SHA-256 with a salt of this process.
///
/// The lines of one process can be told apart by token, but whoever has the log cannot try out keys against it.
pub fn fingerprint(token: &[u8]) -> String {
    static SALT: LazyLock<[u8; 32]> = LazyLock::new(|| {
        // The standard library keys each state from the system's random source.
        let words: Vec<u8> = (0..4).flat_map(|_| RandomState::new().hash_one(0).to_le_bytes()).collect();
        Sha256::digest(words).into()
    });
    let digest = Sha256::new().chain_update(*SALT).chain_update(token).finalize();
    digest.iter().take(8).map(|byte| format!("{byte:02x}")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_key_passes() {
        let auth = SingleKey::new("s3cret");
        let check = |token: Option<&[u8]>| auth.identify(Credentials::token(token), 0).map(drop);
        assert_eq!(check(Some(b"s3cret")), Ok(()));
        for wrong in [&b"s3cre"[..], b"s3cret ", b"S3cret"] {
            assert_eq!(check(Some(wrong)), Err(Reason::TokenNotFound), "{wrong:?}");
        }
        for none in [None, Some(&b""[..])] {
            assert_eq!(check(none), Err(Reason::NoPrincipal));
        }
    }

    #[test]
    fn header_with_and_without_prefix() {
        assert_eq!(bearer_token(b"Bearer abc"), b"abc");
        assert_eq!(bearer_token(b"abc"), b"abc");
        assert_eq!(bearer_token(b"bearer abc"), b"bearer abc");
    }

    #[test]
    fn a_fingerprint_names_a_token_and_cannot_be_looked_up() {
        assert_eq!(fingerprint(b"abc"), fingerprint(b"abc"));
        assert_ne!(fingerprint(b"abc"), fingerprint(b"abd"));
        assert_eq!(fingerprint(b"abc").len(), 16);
        // The SHA-256 of "abc" starts with ba7816bf 8f01cfea; whoever knows the key could find that in a log.
        assert_ne!(fingerprint(b"abc"), "ba7816bf8f01cfea");
    }
}
