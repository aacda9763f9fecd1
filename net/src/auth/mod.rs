//! Who may do what. A front end extracts a token; an [`Authenticator`] decides.
//!
//! There are three: [`Open`] lets everyone in, [`SingleKey`] knows one key that may do everything, and a [`Registry`] knows many keys, each with a
//! tenant and with scopes, which are kept in a file and change while the server runs.

pub mod keys_file;
pub mod registry;
pub mod scope;
pub mod secret;

pub use registry::Registry;

use crate::op::Action;
use sha2::{Digest, Sha256};
use std::hash::{BuildHasher, RandomState};
use std::sync::LazyLock;

/// No or wrong credentials, or a right the principal lacks: one text for all, so that nothing can be learned from it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Unauthorized;

/// Decides about credentials. One per process, shared by all cores.
pub trait Authenticator: Send + Sync {
    /// Whether `token` (as the transport carried it) names someone.
    ///
    /// # Errors
    /// [`Unauthorized`] when it does not.
    fn authenticate(&self, token: Option<&[u8]>) -> Result<(), Unauthorized>;
    /// Whether the bearer of `token` may do `action` on `resource` (a full collection name, empty = none).
    ///
    /// # Errors
    /// [`Unauthorized`] when not.
    fn authorize(&self, token: Option<&[u8]>, action: Action, resource: &str) -> Result<(), Unauthorized>;
    /// Another number whenever something may be decided otherwise than before. What was decided earlier counts no more then.
    fn generation(&self) -> u64 {
        0
    }
    /// The registry of keys, where there is one.
    fn registry(&self) -> Option<&Registry> {
        None
    }
}

/// Everyone may do everything.
pub struct Open;

impl Authenticator for Open {
    fn authenticate(&self, _token: Option<&[u8]>) -> Result<(), Unauthorized> {
        Ok(())
    }
    fn authorize(&self, _token: Option<&[u8]>, _: Action, _: &str) -> Result<(), Unauthorized> {
        Ok(())
    }
}

/// One key that may do everything.
pub struct SingleKey {
    digest: [u8; 32],
}

impl SingleKey {
    /// Takes the key; only its digest is kept.
    pub fn new(key: &str) -> Self {
        SingleKey { digest: Sha256::digest(key.as_bytes()).into() }
    }
}

impl Authenticator for SingleKey {
    fn authenticate(&self, token: Option<&[u8]>) -> Result<(), Unauthorized> {
        let token = token.ok_or(Unauthorized)?;
        let digest: [u8; 32] = Sha256::digest(token).into();
        // Every byte is compared whatever the first ones are; equal-length digests also hide the key's length.
        let difference = digest.iter().zip(&self.digest).fold(0_u8, |sum, (a, b)| sum | (a ^ b));
        if std::hint::black_box(difference) == 0 { Ok(()) } else { Err(Unauthorized) }
    }
    fn authorize(&self, token: Option<&[u8]>, _: Action, _: &str) -> Result<(), Unauthorized> {
        self.authenticate(token)
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
        let check = |token: Option<&[u8]>| auth.authorize(token, Action::Read, "default/docs");
        assert_eq!(check(Some(b"s3cret")), Ok(()));
        for wrong in [None, Some(&b""[..]), Some(b"s3cre"), Some(b"s3cret "), Some(b"S3cret")] {
            assert_eq!(check(wrong), Err(Unauthorized), "{wrong:?}");
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
