//! Secrets as they are kept: a salted digest of each, which tells whether a secret is the right one and nothing else.

use sha2::{Digest, Sha256};
use std::fmt;
use std::hash::{BuildHasher, RandomState};
use std::sync::atomic::{AtomicU64, Ordering};
use zeroize::Zeroizing;

/// Bytes of a salt.
const SALT_BYTES: usize = 16;
/// What the text of a digest begins with.
const KIND: &str = "sha256";

/// A secret that has to be kept for a while. Its bytes are overwritten when it is dropped.
#[derive(Default)]
pub struct Secret(Zeroizing<Vec<u8>>);

impl Secret {
    /// A copy of a secret.
    pub fn new(bytes: &[u8]) -> Secret {
        Secret(Zeroizing::new(bytes.to_vec()))
    }

    /// The secret.
    pub fn bytes(&self) -> &[u8] {
        &self.0
    }
}

/// The secret is not shown.
impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Secret")
    }
}

/// A salted SHA-256 digest of a secret. Its text is `sha256:<salt>:<digest>`, both in hexadecimal digits.
#[derive(Clone, PartialEq, Eq)]
pub struct SecretDigest {
    salt: [u8; SALT_BYTES],
    digest: [u8; 32],
}

/// The digest is nothing that a log should have.
impl fmt::Debug for SecretDigest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("SecretDigest")
    }
}

impl SecretDigest {
    /// The digest of a secret, with a salt of its own.
    pub fn of(secret: &[u8]) -> SecretDigest {
        let salt = fresh_salt();
        SecretDigest { salt, digest: digest(&salt, secret) }
    }

    /// Whether `secret` is the one. Every byte is compared, whatever the first ones are.
    pub fn is_of(&self, secret: &[u8]) -> bool {
        let found = digest(&self.salt, secret);
        let difference = found.iter().zip(&self.digest).fold(0_u8, |sum, (a, b)| sum | (a ^ b));
        std::hint::black_box(difference) == 0
    }

    /// Its text.
    pub fn to_text(&self) -> String {
        format!("{KIND}:{}:{}", hex(&self.salt), hex(&self.digest))
    }

    /// Reads its text; `None` if that is none.
    pub fn from_text(text: &str) -> Option<SecretDigest> {
        let (salt, digest) = text.strip_prefix(KIND)?.strip_prefix(':')?.split_once(':')?;
        Some(SecretDigest { salt: unhex(salt)?, digest: unhex(digest)? })
    }
}

fn digest(salt: &[u8], secret: &[u8]) -> [u8; 32] {
    Sha256::new().chain_update(salt).chain_update(secret).finalize().into()
}

/// A salt that no other digest of this machine has.
fn fresh_salt() -> [u8; SALT_BYTES] {
    static COUNT: AtomicU64 = AtomicU64::new(0);
    let count = COUNT.fetch_add(1, Ordering::Relaxed);
    let mut salt = [0; SALT_BYTES];
    // The standard library keys the first state of a thread from the random source of the system.
    for (part, half) in salt.chunks_exact_mut(8).zip([0_u64, 1]) {
        part.copy_from_slice(&RandomState::new().hash_one((count, half)).to_le_bytes());
    }
    salt
}

/// The first 8 bytes of the SHA-256 digest of a token, as the interface shows them in listings of keys.
pub fn listed_fingerprint(token: &[u8]) -> [u8; 8] {
    let digest: [u8; 32] = Sha256::digest(token).into();
    let mut first = [0; 8];
    first.copy_from_slice(&digest[..8]);
    first
}

/// Bytes in lower-case hexadecimal digits.
pub fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// The bytes of exactly as many hexadecimal digits as needed.
pub fn unhex<const N: usize>(text: &str) -> Option<[u8; N]> {
    let digits = text.as_bytes();
    if digits.len() != 2 * N || !digits.iter().all(u8::is_ascii_hexdigit) {
        return None;
    }
    let mut bytes = [0; N];
    for (byte, pair) in bytes.iter_mut().zip(digits.chunks_exact(2)) {
        *byte = u8::from_str_radix(std::str::from_utf8(pair).ok()?, 16).ok()?;
    }
    Some(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_digest_knows_its_secret_alone() {
        let kept = SecretDigest::of(b"s3cret");
        assert!(kept.is_of(b"s3cret"));
        for wrong in [&b""[..], b"s3cre", b"s3cret ", b"S3cret"] {
            assert!(!kept.is_of(wrong), "{wrong:?}");
        }
        assert_ne!(kept.to_text(), SecretDigest::of(b"s3cret").to_text(), "salts differ");
        assert_eq!(format!("{kept:?}"), "SecretDigest");
    }

    #[test]
    fn a_digest_survives_its_text() {
        let kept = SecretDigest::of(b"s3cret");
        let text = kept.to_text();
        assert_eq!(SecretDigest::from_text(&text), Some(kept));
        let mut wrong = vec![
            String::new(),
            "sha256".into(),
            text.replace("sha256", "md5"),
            format!("{text}0"),
            text.replace(':', ""),
        ];
        wrong.extend((0..text.len()).map(|end| text[..end].to_owned()));
        for text in wrong {
            assert_eq!(SecretDigest::from_text(&text), None, "{text}");
        }
        assert_eq!(unhex::<2>("+1ff"), None);
    }

    #[test]
    fn fingerprints_are_those_of_the_interface() {
        assert_eq!(hex(&listed_fingerprint(b"abc")), "ba7816bf8f01cfea");
    }
}
