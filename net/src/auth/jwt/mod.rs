//! Verification of JSON Web Tokens (RFC 7519) that are signed (JWS compact serialisation, RFC 7515) with one of three public-key algorithms:
//! RS256 and ES256 of RFC 7518 and EdDSA with Ed25519 of RFC 8037. The public keys come from a file of PEM blocks or from a JWKS (RFC 7517).
//!
//! The algorithm belongs to the key and never to the token: a token whose `alg` names another algorithm than that of the key is refused before any
//! signature is computed, so neither `none` nor an HMAC keyed with the public key can pass. Nothing else in a token chooses a key: `kid` is
//! compared with the names that the keys have, and `jwk`, `jku`, `x5c` and `x5u` are not looked at. Claims are read once the signature is good.
//!
//! One token can have several spellings of its signature (ECDSA has two for every one), so a token is no name for itself: do not list refused
//! tokens by their bytes.

mod json;
mod keys;
#[cfg(test)]
mod tests;

pub use keys::JwtKeys;

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use json::{Object, WrongType};
use keys::Algorithm;
use serde_json::Value;
use std::fmt;

/// The longest token that is looked at, in bytes.
pub const JWT_MAX_BYTES: usize = 16 << 10;
/// How far the clocks of issuer and server may differ, in seconds: a token counts that much longer and that much earlier than it says.
pub const LEEWAY_S: u64 = 30;
/// The most scopes of one token.
const SCOPES_MAX: usize = 1024;
/// The longest scope, in bytes.
const SCOPE_MAX_BYTES: usize = 1024;

/// Whether `token` has the outer form of a signed token: exactly three parts, none of them empty, with dots between them. It says nothing about
/// what is in the parts.
#[must_use]
pub fn looks_like_jwt(token: &[u8]) -> bool {
    parts(token).is_some()
}

/// Why a token was refused. It is for logs alone: a client learns only that it is not let in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum JwtRefusal {
    /// It is too long, or not three parts of base64url with JSON objects without repeated names in them, or its header asks for an extension.
    Malformed,
    /// It has no `alg`, or one that its key, or every key, does not have.
    Algorithm,
    /// Its `kid` names no key.
    Key,
    /// The signature is not one of header and claims by a key that may be meant.
    Signature,
    /// `exp` has passed, the leeway included.
    Expired,
    /// `nbf` is yet to come, the leeway included.
    NotYetValid,
    /// `iss` is missing or names another issuer.
    Issuer,
    /// `aud` is missing or does not contain this audience.
    Audience,
    /// A claim that must be there is missing, or one has the wrong type or is out of bounds.
    Claims,
}

impl fmt::Display for JwtRefusal {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        to.write_str(match self {
            Self::Malformed => "the token is malformed",
            Self::Algorithm => "the token's algorithm matches no key",
            Self::Key => "the token names a key that is not known",
            Self::Signature => "the token's signature is wrong",
            Self::Expired => "the token has expired",
            Self::NotYetValid => "the token is not valid yet",
            Self::Issuer => "the token is from another issuer",
            Self::Audience => "the token is for another audience",
            Self::Claims => "a claim of the token is missing, of the wrong type or out of bounds",
        })
    }
}

impl std::error::Error for JwtRefusal {}

/// What a token whose signature and times are good says about its bearer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Claims {
    /// `sub`; empty when the token has none.
    pub subject: String,
    /// `tenant`; never empty.
    pub tenant: String,
    /// `scopes`, in the order of the token, none of them empty; there may be no scope at all. What they mean is not checked here.
    pub scopes: Vec<String>,
    /// The first second since 1970 at which the token counts no more, the leeway included.
    pub valid_until_s: u64,
    /// The first second since 1970 at which the token counts, the leeway included; 0 when it says nothing of it.
    pub valid_from_s: u64,
}

/// Decides about tokens. It keeps no state between tokens.
#[derive(Clone, Debug)]
pub struct JwtVerifier {
    /// The keys, one of which must have signed a token.
    pub keys: JwtKeys,
    /// What `iss` must be; with `None` every issuer that has a key's private half is believed.
    pub issuer: Option<String>,
    /// What `aud` must contain; with `None` nobody looks at who a token is for.
    pub audience: Option<String>,
}

impl JwtVerifier {
    /// The claims of `token` when it is good at the second `now_s` since 1970.
    ///
    /// # Errors
    /// The first reason found to refuse it. Its signature is checked before its claims are read, so all reasons from [`JwtRefusal::Expired`] on
    /// concern tokens that a key did sign.
    pub fn verify(&self, token: &[u8], now_s: u64) -> Result<Claims, JwtRefusal> {
        if token.len() > JWT_MAX_BYTES {
            return Err(JwtRefusal::Malformed);
        }
        let [header, payload, signature] = parts(token).ok_or(JwtRefusal::Malformed)?;
        let signed = token.get(..header.len() + 1 + payload.len()).ok_or(JwtRefusal::Malformed)?;
        let header = Header::read(&decoded(header)?)?;
        let (payload, signature) = (decoded(payload)?, decoded(signature)?);
        self.check_signature(&header, signed, &signature)?;
        let payload = json::object(&payload).map_err(|_| JwtRefusal::Malformed)?;
        let claims = claims(&payload, now_s)?;
        self.check_issuer(&payload)?;
        self.check_audience(&payload)?;
        Ok(claims)
    }

    /// Whether a key that may be meant made `signature` of `signed`.
    fn check_signature(&self, header: &Header, signed: &[u8], signature: &[u8]) -> Result<(), JwtRefusal> {
        let mut keys = self.keys.candidates(header.algorithm, header.kid.as_deref())?;
        if keys.any(|key| key.verifies(signed, signature)) { Ok(()) } else { Err(JwtRefusal::Signature) }
    }

    /// Whether the token is from the issuer, where one is set.
    fn check_issuer(&self, payload: &Object) -> Result<(), JwtRefusal> {
        let found = json::text(payload, "iss")?;
        match &self.issuer {
            Some(wanted) if found != Some(wanted) => Err(JwtRefusal::Issuer),
            _ => Ok(()),
        }
    }

    /// Whether the token is for the audience, where one is set.
    fn check_audience(&self, payload: &Object) -> Result<(), JwtRefusal> {
        let found = match payload.get("aud") {
            None => Vec::new(),
            Some(Value::String(one)) => vec![one.as_str()],
            Some(Value::Array(several)) => json::texts(several)?,
            Some(_) => return Err(JwtRefusal::Claims),
        };
        match &self.audience {
            Some(wanted) if !found.contains(&wanted.as_str()) => Err(JwtRefusal::Audience),
            _ => Ok(()),
        }
    }
}

/// The wrong type of a member is a matter of the claims, unless whoever reads the member says otherwise.
impl From<WrongType> for JwtRefusal {
    fn from(_: WrongType) -> Self {
        Self::Claims
    }
}

/// The three parts of a token, `None` when there are more or fewer or one of them is empty. It stops at the fourth part.
fn parts(token: &[u8]) -> Option<[&[u8]; 3]> {
    let mut parts = token.split(|byte| *byte == b'.');
    let three = [parts.next()?, parts.next()?, parts.next()?];
    let good = parts.next().is_none() && three.iter().all(|part| !part.is_empty());
    good.then_some(three)
}

/// The bytes of a part. There is one spelling for every sequence of bytes: no padding, no white space, and no bits left over at the end.
fn decoded(part: &[u8]) -> Result<Vec<u8>, JwtRefusal> {
    URL_SAFE_NO_PAD.decode(part).map_err(|_| JwtRefusal::Malformed)
}

/// What counts of the header of a token.
struct Header {
    algorithm: Algorithm,
    kid: Option<String>,
}

impl Header {
    /// Reads the header. An extension that it calls critical is one that we do not know, as we know none.
    fn read(text: &[u8]) -> Result<Self, JwtRefusal> {
        let header = json::object(text).map_err(|_| JwtRefusal::Malformed)?;
        let text = |name| json::text(&header, name).map_err(|WrongType| JwtRefusal::Malformed);
        if header.contains_key("crit") || !text("typ")?.is_none_or(|typ| typ.eq_ignore_ascii_case("JWT")) {
            return Err(JwtRefusal::Malformed);
        }
        let algorithm = text("alg")?.and_then(Algorithm::named).ok_or(JwtRefusal::Algorithm)?;
        Ok(Self { algorithm, kid: text("kid")?.map(str::to_owned) })
    }
}

/// The claims that are handed on, when the token is good at `now_s`.
fn claims(payload: &Object, now_s: u64) -> Result<Claims, JwtRefusal> {
    let valid_until_s = seconds(payload, "exp")?.ok_or(JwtRefusal::Claims)?.saturating_add(LEEWAY_S);
    let valid_from_s = seconds(payload, "nbf")?.map_or(0, |nbf| nbf.saturating_sub(LEEWAY_S));
    if now_s >= valid_until_s {
        return Err(JwtRefusal::Expired);
    }
    if now_s < valid_from_s {
        return Err(JwtRefusal::NotYetValid);
    }
    let tenant =
        json::text(payload, "tenant")?.filter(|tenant| !tenant.is_empty()).ok_or(JwtRefusal::Claims)?;
    Ok(Claims {
        subject: json::text(payload, "sub")?.unwrap_or_default().to_owned(),
        tenant: tenant.to_owned(),
        scopes: scopes(payload)?,
        valid_until_s,
        valid_from_s,
    })
}

/// The time called `name`, in seconds since 1970, a fraction rounded up: a whole second is before a fraction exactly when it is before the next
/// whole second. What lies beyond 64 bits is the last second there is.
fn seconds(payload: &Object, name: &str) -> Result<Option<u64>, JwtRefusal> {
    let Some(value) = payload.get(name) else { return Ok(None) };
    if let Some(whole) = value.as_u64() {
        return Ok(Some(whole));
    }
    let float =
        value.as_f64().filter(|float| float.is_finite() && *float >= 0.0).ok_or(JwtRefusal::Claims)?;
    Ok(Some(float.ceil() as u64))
}

/// The scopes: the words between the spaces of a string, or the strings of an array, which may be of any form but empty.
fn scopes(payload: &Object) -> Result<Vec<String>, JwtRefusal> {
    let found = match payload.get("scopes") {
        Some(Value::String(words)) => words.split(' ').filter(|word| !word.is_empty()).collect(),
        Some(Value::Array(several)) => json::texts(several)?,
        _ => return Err(JwtRefusal::Claims),
    };
    let bounded = |scope: &&str| (1..=SCOPE_MAX_BYTES).contains(&scope.len());
    if found.len() > SCOPES_MAX || !found.iter().all(bounded) {
        return Err(JwtRefusal::Claims);
    }
    Ok(found.into_iter().map(str::to_owned).collect())
}
