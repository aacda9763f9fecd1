//! The public keys that tokens are verified with, and the two forms of file that they are read from.

use super::JwtRefusal;
use super::json::{self, Object};
use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use pkcs1::RsaPublicKeyRef;
use ring::agreement;
use ring::rand::SystemRandom;
use ring::signature::{self, RsaPublicKeyComponents, UnparsedPublicKey};
use serde_json::Value;
use spki::der::{Decode, pem};
use spki::{ObjectIdentifier, SubjectPublicKeyInfoRef};
use std::ops::RangeInclusive;

/// The most keys of one file, those that are skipped included.
const KEYS_MAX: usize = 64;
/// The most keys whose signature is tried for one token. A token that names no key costs at most as many checks.
const TRIES_MAX: usize = 8;
/// The sizes of an RSA modulus, in bits: less is too weak, and more costs too much for every token.
const RSA_BITS: RangeInclusive<usize> = 2048..=8192;
/// The public exponents of RSA, which must be odd too. `ring` refuses to compute with others.
const RSA_EXPONENTS: RangeInclusive<u64> = 3..=(1 << 33) - 1;
/// The bytes of one coordinate on P-256, and of a key of Ed25519.
const FIELD_BYTES: usize = 32;
/// The bytes of a signature of ES256, which is r and s of 32 bytes each, and of one of Ed25519.
const SIGNATURE_BYTES: usize = 64;

const RSA: ObjectIdentifier = pkcs1::ALGORITHM_OID;
const RSA_PSS: ObjectIdentifier = ObjectIdentifier::new_unwrap("1.2.840.113549.1.1.10");
const EC: ObjectIdentifier = ObjectIdentifier::new_unwrap("1.2.840.10045.2.1");
const P256: ObjectIdentifier = ObjectIdentifier::new_unwrap("1.2.840.10045.3.1.7");
const ED25519: ObjectIdentifier = ObjectIdentifier::new_unwrap("1.3.101.112");

/// The members of a JWK that belong to private or shared keys (RFC 7518, sections 6.2.2, 6.3.2 and 6.4.1).
const SECRETS: [&str; 8] = ["d", "p", "q", "dp", "dq", "qi", "oth", "k"];

/// What is wanted instead of a key of another kind.
const WANTED: &str = "only RSA of 2048 to 8192 bits, P-256 and Ed25519 are supported";

/// An algorithm of signatures. There is no symmetric one, and no `none`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Algorithm {
    Rs256,
    Es256,
    EdDsa,
}

impl Algorithm {
    /// The algorithm with that name in `alg`, upper and lower case as they are there.
    pub(super) fn named(name: &str) -> Option<Self> {
        [Self::Rs256, Self::Es256, Self::EdDsa].into_iter().find(|algorithm| algorithm.name() == name)
    }

    fn name(self) -> &'static str {
        match self {
            Self::Rs256 => "RS256",
            Self::Es256 => "ES256",
            Self::EdDsa => "EdDSA",
        }
    }
}

/// The numbers of a key, in the form that `ring` takes.
#[derive(Clone, Debug)]
enum Material {
    /// Modulus and exponent, the highest byte first and not zero.
    Rsa { modulus: Vec<u8>, exponent: Vec<u8> },
    /// The point in its uncompressed form of 65 bytes; it is one on the curve.
    P256(Vec<u8>),
    /// The 32 bytes of RFC 8032.
    Ed25519(Vec<u8>),
}

impl Material {
    /// Whether `signature` is one of `message` by this key.
    fn verifies(&self, message: &[u8], signature: &[u8]) -> bool {
        match self {
            Self::Rsa { modulus, exponent } => RsaPublicKeyComponents { n: modulus, e: exponent }
                .verify(&signature::RSA_PKCS1_2048_8192_SHA256, message, signature)
                .is_ok(),
            // FIXED is r and s and nothing else, so no second encoding of them passes.
            Self::P256(point) => {
                signature.len() == SIGNATURE_BYTES
                    && UnparsedPublicKey::new(&signature::ECDSA_P256_SHA256_FIXED, point)
                        .verify(message, signature)
                        .is_ok()
            }
            Self::Ed25519(key) => {
                signature.len() == SIGNATURE_BYTES
                    && UnparsedPublicKey::new(&signature::ED25519, key).verify(message, signature).is_ok()
            }
        }
    }
}

/// One public key. It has one algorithm.
#[derive(Clone, Debug)]
pub(super) struct Key {
    kid: Option<String>,
    material: Material,
}

impl Key {
    fn algorithm(&self) -> Algorithm {
        match self.material {
            Material::Rsa { .. } => Algorithm::Rs256,
            Material::P256(_) => Algorithm::Es256,
            Material::Ed25519(_) => Algorithm::EdDsa,
        }
    }

    fn is_named(&self, kid: &str) -> bool {
        self.kid.as_deref() == Some(kid)
    }

    /// Whether `signature` is one of `message` by this key.
    pub(super) fn verifies(&self, message: &[u8], signature: &[u8]) -> bool {
        self.material.verifies(message, signature)
    }
}

/// The public keys of one file: at least one, and at most 64.
#[derive(Clone, Debug)]
pub struct JwtKeys {
    keys: Vec<Key>,
    warnings: Vec<String>,
}

impl JwtKeys {
    /// Reads the keys of a file, which is either a JWKS (RFC 7517), if its first character is a brace, or one or more PEM blocks `PUBLIC KEY` or
    /// `RSA PUBLIC KEY` (RFC 7468) with any text around them.
    ///
    /// # Errors
    /// A text to follow the name of the file: what is wrong with it, and with which of its keys. A file with anything private in it is refused, so
    /// that it is noticed; so are a key too weak to trust, and a file without a key that can be used.
    pub fn read(text: &[u8]) -> Result<Self, String> {
        let mut warnings = Vec::new();
        let keys = match text.trim_ascii_start() {
            [] => return Err("it is empty, and a PEM block or a JWKS is wanted".to_owned()),
            json @ [b'{', ..] => keys_of_jwks(json, &mut warnings)?,
            pem => keys_of_pem(pem)?,
        };
        if keys.is_empty() {
            let mut all = vec!["it has no key that can be used".to_owned()];
            all.append(&mut warnings);
            return Err(all.join("; "));
        }
        for algorithm in [Algorithm::Rs256, Algorithm::Es256, Algorithm::EdDsa] {
            let count = keys.iter().filter(|key| key.algorithm() == algorithm).count();
            if count > TRIES_MAX {
                warnings.push(format!(
                    "it has {count} keys for {}, and only the first {TRIES_MAX} are tried for a token whose \
                     `kid` chooses none",
                    algorithm.name()
                ));
            }
        }
        Ok(Self { keys, warnings })
    }

    /// What a person should know about the file that is no error: the keys that were skipped and why, and those that are not always tried.
    #[must_use]
    pub fn warnings(&self) -> &[String] {
        &self.warnings
    }

    /// How many keys can be used: from 1 to 64.
    #[must_use]
    pub fn count(&self) -> usize {
        self.keys.len()
    }

    /// The keys that may have signed a token with this header: the one that it names, or all of its algorithm, up to the limit, when it names none or
    /// the keys have no names.
    ///
    /// # Errors
    /// [`JwtRefusal::Key`] when no key has that name, [`JwtRefusal::Algorithm`] when that key, or every key, is one for another algorithm.
    pub(super) fn candidates<'a>(
        &'a self,
        algorithm: Algorithm,
        kid: Option<&'a str>,
    ) -> Result<impl Iterator<Item = &'a Key>, JwtRefusal> {
        let kid = kid.filter(|_| self.keys.iter().any(|key| key.kid.is_some()));
        if kid.is_some_and(|kid| !self.keys.iter().any(|key| key.is_named(kid))) {
            return Err(JwtRefusal::Key);
        }
        let meant = move |key: &&Key| key.algorithm() == algorithm && kid.is_none_or(|kid| key.is_named(kid));
        let mut keys = self.keys.iter().filter(meant).take(TRIES_MAX).peekable();
        if keys.peek().is_none() { Err(JwtRefusal::Algorithm) } else { Ok(keys) }
    }
}

/// The keys of the PEM blocks of a text.
fn keys_of_pem(text: &[u8]) -> Result<Vec<Key>, String> {
    let text = str::from_utf8(text)
        .map_err(|_| "it is neither PEM nor JSON, but has bytes that are no UTF-8".to_owned())?;
    let blocks = pem_blocks(text)?;
    if blocks.is_empty() {
        return Err("it has no PEM block (\"-----BEGIN PUBLIC KEY-----\") and is no JSON object".to_owned());
    }
    let read = |(number, block): (usize, &String)| {
        key_of_block(block)
            .map(|material| Key { kid: None, material })
            .map_err(|wrong| format!("PEM block {}: {wrong}", number + 1))
    };
    blocks.iter().enumerate().map(read).collect()
}

/// The blocks of a text, each from its line BEGIN to its line END, without the white space around lines. `pem` reads one block and no more.
fn pem_blocks(text: &str) -> Result<Vec<String>, String> {
    let (mut blocks, mut open) = (Vec::new(), None::<String>);
    let unfinished = |number: usize| format!("PEM block {} has a line BEGIN and no line END", number + 1);
    for line in text.lines().map(str::trim) {
        match (&mut open, line.starts_with("-----BEGIN ")) {
            (Some(_), true) => return Err(unfinished(blocks.len())),
            (None, true) if blocks.len() == KEYS_MAX => return Err(too_many()),
            (None, true) => open = Some(line.to_owned()),
            (None, false) => {}
            (Some(block), false) => {
                block.push('\n');
                block.push_str(line);
                if line.starts_with("-----END ") {
                    blocks.extend(open.take());
                }
            }
        }
    }
    if open.is_some() { Err(unfinished(blocks.len())) } else { Ok(blocks) }
}

fn too_many() -> String {
    format!("it has more than {KEYS_MAX} keys, and at most {KEYS_MAX} are read")
}

/// The key of one PEM block. The kind is looked at first, so that nothing private is even decoded.
fn key_of_block(block: &str) -> Result<Material, String> {
    let malformed = |error: pem::Error| format!("it is malformed: {error}");
    let label = pem::decode_label(block.as_bytes()).map_err(malformed)?;
    if label != "PUBLIC KEY" && label != "RSA PUBLIC KEY" {
        return Err(format!(
            "it is of the kind {label:?}, and only \"PUBLIC KEY\" and \"RSA PUBLIC KEY\" are read"
        ));
    }
    let mut der = Vec::new();
    pem::Decoder::new_detect_wrap(block.as_bytes())
        .and_then(|mut decoder| decoder.decode_to_end(&mut der).map(drop))
        .map_err(malformed)?;
    if label == "PUBLIC KEY" { pkix(&der) } else { pkcs1(&der) }
}

/// The key of a SubjectPublicKeyInfo (RFC 5280), the form that PKIX has for all kinds of keys.
fn pkix(der: &[u8]) -> Result<Material, String> {
    let info =
        SubjectPublicKeyInfoRef::from_der(der).map_err(|error| format!("its DER is malformed: {error}"))?;
    let key = info.subject_public_key.as_bytes().ok_or("its key is not of whole bytes")?;
    let parameters = info.algorithm.parameters;
    match info.algorithm.oid {
        RSA if parameters.is_none_or(|parameters| parameters.is_null()) => pkcs1(key),
        RSA_PSS => Err(format!("its key is for RSASSA-PSS alone, and {WANTED}")),
        EC => match info.algorithm.parameters_oid() {
            Ok(P256) => p256(key),
            Ok(curve) => {
                Err(format!("its key is one on another curve than P-256 (OID {curve}), and {WANTED}"))
            }
            Err(_) => Err(format!("its key is on a curve without a name, and {WANTED}")),
        },
        ED25519 if parameters.is_none() => ed25519(key),
        RSA | ED25519 => Err("its key has parameters that such a key has not".to_owned()),
        other => Err(format!("its key is of another kind (OID {other}), and {WANTED}")),
    }
}

/// The key of an RSAPublicKey (RFC 8017).
fn pkcs1(der: &[u8]) -> Result<Material, String> {
    let key = RsaPublicKeyRef::from_der(der)
        .map_err(|error| format!("the DER of its RSA key is malformed: {error}"))?;
    rsa(key.modulus.as_bytes(), key.public_exponent.as_bytes())
}

/// A key of RSA with a modulus and an exponent that `ring` computes with. `ring` would round the size of the modulus up to whole bytes.
fn rsa(modulus: &[u8], exponent: &[u8]) -> Result<Material, String> {
    let (modulus, exponent) = (without_zeros(modulus), without_zeros(exponent));
    let bits = modulus.len() * 8 - modulus.first().map_or(0, |byte| byte.leading_zeros() as usize);
    if !RSA_BITS.contains(&bits) {
        return Err(format!("its RSA key has {bits} bits, and {WANTED}"));
    }
    let odd = |number: &[u8]| number.last().is_some_and(|byte| byte % 2 == 1);
    let value =
        exponent.iter().try_fold(0_u64, |value, byte| Some(value.checked_mul(256)? + u64::from(*byte)));
    if !odd(modulus) || !odd(exponent) || !value.is_some_and(|value| RSA_EXPONENTS.contains(&value)) {
        return Err("its RSA key has a modulus or an exponent that no such key can have".to_owned());
    }
    Ok(Material::Rsa { modulus: modulus.to_vec(), exponent: exponent.to_vec() })
}

/// The number without the zeros before its first other byte. A JWK should have none, and some have (RFC 7518, section 6.3.1.1).
fn without_zeros(number: &[u8]) -> &[u8] {
    let zeros = number.iter().take_while(|byte| **byte == 0).count();
    number.get(zeros..).unwrap_or_default()
}

/// A key on P-256 from the uncompressed form of its point, checked to be on the curve: an exchange of keys is the one thing in `ring` that says so.
fn p256(point: &[u8]) -> Result<Material, String> {
    if point.len() != 1 + 2 * FIELD_BYTES || point.first() != Some(&4) {
        return Err("its point is not in the uncompressed form of 65 bytes".to_owned());
    }
    let peer = agreement::UnparsedPublicKey::new(&agreement::ECDH_P256, point);
    let throwaway = agreement::EphemeralPrivateKey::generate(&agreement::ECDH_P256, &SystemRandom::new())
        .map_err(|_| "the system gave no random numbers to check its point with".to_owned())?;
    agreement::agree_ephemeral(throwaway, &peer, |_| ())
        .map_err(|_| "its point is not one on the curve P-256".to_owned())?;
    Ok(Material::P256(point.to_vec()))
}

/// A key of Ed25519. One that is no point verifies nothing, and does no harm. One of small order verifies signatures that anyone can make: a file
/// whose key was left at zeros must not let everyone in.
fn ed25519(key: &[u8]) -> Result<Material, String> {
    if key.len() != FIELD_BYTES {
        return Err(format!("its Ed25519 key has {} bytes, and {FIELD_BYTES} are wanted", key.len()));
    }
    let key = Material::Ed25519(key.to_vec());
    if anyone_signs(&key) {
        return Err("its Ed25519 key is a point of small order, whose signatures anyone can make".to_owned());
    }
    Ok(key)
}

/// Whether the signature (R = neutral point, s = 0), which needs no private key, passes for one of 256 messages. For a key of the order 1, 2, 4 or 8
/// it passes for one in so many messages, for another key it never does.
fn anyone_signs(key: &Material) -> bool {
    let mut forged = [0; SIGNATURE_BYTES];
    forged[0] = 1;
    (0..=u8::MAX).any(|message| key.verifies(&[message], &forged))
}

/// The keys of a JWKS, with a warning for each that is of no use here.
fn keys_of_jwks(text: &[u8], warnings: &mut Vec<String>) -> Result<Vec<Key>, String> {
    let jwks = json::object(text).map_err(|error| format!("its JSON is malformed: {error}"))?;
    let Some(Value::Array(values)) = jwks.get("keys") else {
        return Err("its JSON object has no array \"keys\", so it is no JWKS".to_owned());
    };
    if values.len() > KEYS_MAX {
        return Err(too_many());
    }
    let mut keys = Vec::<Key>::new();
    for (number, value) in values.iter().enumerate() {
        let whose = |text: String| match value.get("kid").and_then(Value::as_str) {
            Some(kid) => format!("key {} (`kid` {kid:?}): {text}", number + 1),
            None => format!("key {}: {text}", number + 1),
        };
        let jwk = value.as_object().ok_or_else(|| whose("it is no JSON object".to_owned()))?;
        match key_of_jwk(jwk).map_err(whose)? {
            Jwk::Key(key) if key.kid.is_some() && keys.iter().any(|other| other.kid == key.kid) => {
                return Err(whose("another key has the same `kid`".to_owned()));
            }
            Jwk::Key(key) => keys.push(key),
            Jwk::Skipped(why) => warnings.push(whose(format!("it was skipped, as {why}"))),
        }
    }
    Ok(keys)
}

/// What became of one JWK.
enum Jwk {
    Key(Key),
    /// It is a sound key for something else, and this is why.
    Skipped(String),
}

/// The key of one JWK. Whatever its kind, it is refused when it has something private.
fn key_of_jwk(jwk: &Object) -> Result<Jwk, String> {
    if let Some(secret) = SECRETS.iter().find(|name| jwk.contains_key(**name)) {
        return Err(format!("it has the private parameter {secret:?}, and only public keys belong here"));
    }
    let kid = text(jwk, "kid")?.map(str::to_owned);
    let kty = text(jwk, "kty")?.ok_or("it has no \"kty\"")?;
    let crv = text(jwk, "crv")?.unwrap_or_default();
    let algorithm = match (kty, crv) {
        ("RSA", _) => Algorithm::Rs256,
        ("EC", "P-256") => Algorithm::Es256,
        ("OKP", "Ed25519") => Algorithm::EdDsa,
        _ => return Ok(Jwk::Skipped(format!("it is of the kind {kty:?} {crv:?}, and {WANTED}"))),
    };
    if let Some(why) = other_purpose(jwk, algorithm)? {
        return Ok(Jwk::Skipped(why));
    }
    let material = match algorithm {
        Algorithm::Rs256 => rsa(&number(jwk, "n")?, &number(jwk, "e")?),
        Algorithm::Es256 => p256(&[vec![4], coordinate(jwk, "x")?, coordinate(jwk, "y")?].concat()),
        Algorithm::EdDsa => ed25519(&number(jwk, "x")?),
    }?;
    Ok(Jwk::Key(Key { kid, material }))
}

/// Why a key is not one for the signatures of `algorithm`, `None` when it is.
fn other_purpose(jwk: &Object, algorithm: Algorithm) -> Result<Option<String>, String> {
    if let Some(other) = text(jwk, "use")?.filter(|found| *found != "sig") {
        return Ok(Some(format!("its `use` is {other:?} and not \"sig\"")));
    }
    if let Some(other) = text(jwk, "alg")?.filter(|found| *found != algorithm.name()) {
        return Ok(Some(format!("its `alg` is {other:?} and not {:?}", algorithm.name())));
    }
    match jwk.get("key_ops") {
        None => Ok(None),
        Some(Value::Array(operations)) if operations.iter().any(|operation| operation == "verify") => {
            Ok(None)
        }
        Some(_) => Ok(Some("its `key_ops` do not contain \"verify\"".to_owned())),
    }
}

fn text<'a>(jwk: &'a Object, name: &str) -> Result<Option<&'a str>, String> {
    json::text(jwk, name).map_err(|_| format!("its {name:?} is no string"))
}

/// The bytes of a number in base64url, which a JWK writes without padding.
fn number(jwk: &Object, name: &str) -> Result<Vec<u8>, String> {
    let text = text(jwk, name)?.ok_or_else(|| format!("it has no {name:?}"))?;
    URL_SAFE_NO_PAD
        .decode(text)
        .map_err(|error| format!("its {name:?} is no base64url without padding: {error}"))
}

/// A number that has the full length of a coordinate, as RFC 7518 (section 6.2.1.2) demands.
fn coordinate(jwk: &Object, name: &str) -> Result<Vec<u8>, String> {
    let bytes = number(jwk, name)?;
    if bytes.len() != FIELD_BYTES {
        return Err(format!("its {name:?} has {} bytes, and {FIELD_BYTES} are wanted", bytes.len()));
    }
    Ok(bytes)
}
