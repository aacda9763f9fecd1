//! Attacks on tokens and on files of keys.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing)]

use super::*;
use base64::engine::general_purpose::STANDARD;
use ring::rand::SystemRandom;
use ring::signature::{ECDSA_P256_SHA256_FIXED_SIGNING, EcdsaKeyPair, Ed25519KeyPair, KeyPair, RsaKeyPair};
use std::sync::LazyLock;

/// A PKCS#8 key of 2048 bits, made by `openssl genrsa` for these tests and used for nothing else, in base64.
const RSA_PRIVATE: &str = "\
    MIIEvQIBADANBgkqhkiG9w0BAQEFAASCBKcwggSjAgEAAoIBAQCss7xlsSZ1m40qisHI9jOczdT6+sDbTTttiiJPxBblBGfxULz0\
    /CVnAcnneOxK/paLUble8Z4/AXK+z7ct4O4ngwOQUSFWPFxjEMheE4w/Wk3Kw1jKPXPfs2vJUw16TVouUTbFi1TQMEl4TIjzMrEw\
    4lXOOKAs0Ky3IRuWEE+Sd7yLgUltiOiK8Kuk+Q5blKhAHtiAcHQFQ7JJHgchU9R26MNbzC1sGW1JKi3Qk1USh7f9ijYje9iw26Ez\
    P6FvmpA8py6D5zy3VPlsYLdg+DG8Vl35z/xqTK1FyBGn+Xha8ooJY/S7A5kVFXnLz+oo91Jf9bdLDhMxdpj4JN26lr8FAgMBAAEC\
    ggEAG/yqmL47Ec8J8u12lvcTCSOwEpYlP8TFzywWAGAyJ53trEUdwgPEmetHyXumq0aTpfMx+6ljMCmvay2lLUmovn10S+Rh5yQ0\
    ApfbKKe5UCD1v1il4GxSBVwBqSgM5Jd5eE0P97ZrIavZlCWvAd5iqZ3cMuWpS2nru2ehnVF6W61IepSJC9wO6z2oONElxIOAubV1\
    3D/5eJHMQCwhvV/P3vb+Lro+VrEKjrTEMTQxAB+7Meq81gaT6nciCGtI84crr/flZTEvuyvse7u3h5ck2buqj8cJvoDRHiVDU4oa\
    L0y0kZyQPm9g7o/z+PG8+8oUgWCHMe5hLW4SwTonR1+I4QKBgQDfQYRw+91jaLaQ0yTaoSEP1Zw0rkkozrofLtlz+LML/Rl5Pgma\
    mP6JOtF1BK3zqQF6znfeRq1zJWztoVZG5PUPF6+IgVbO8P+WycekaUYcjQMjrD4rGD5fmBzovjpvnPN89y9NCZJcMNzRQBzXlsaP\
    ULmKmcRnIdWj1u9E0D7YFQKBgQDGCBkg/RATm28J7FKde2+yXw5oPfO3nwXu5IGJa5/yEr4vFwlnCmpSFhmxBgbClMk6spMN4UeY\
    ORQtfQePPPelljg0AaiF3tT0JjDRCOn7a5j6gyOZoGGkJ1BfHc0eIxrDHITm3uBD/dvqiKUtmngB2jFTbd2+DCbUGXxzrG+XMQKB\
    gQDN0/SLydk5HkA60z9GBYmatKB3/Trb0YPM3f+DKQXBhs3mdqiaDHWXBVA4p2DMpMMFercOiXC+GQINL1KAt/Oqv3aIzl2/Gnc5\
    iLxzus714ZfEWrdSOd6/eVklxsPPRQ9C5g2I48s5DZ93l7k/lfVoCc+VleB6CLqTe8RKWAeoZQKBgEZH+3sctQbwZBEWgR+I/lRE\
    rh1K12M0met1x49Y1fQYuMyHlXuvU5p8Y3PTGrUWDvC5Db2gVUNuBn46YGNylMV8scerSv7v3Y4ku7CERF5Jiopl3k2YgO68USbg\
    sbpfZREX3wb81ITs5I6xHkY4Cx1FLbpZRJg9Qc6GmQeIjDYRAoGAUZH0Q6MbdVSoZYE0Nt2SmB61NyfX6j43ChvRWtZhcGwUXatm\
    z6cw5E3fSku6YyNNH2K2apsEr97J2y64OcyWO532WSEtNVZ03zQPyXbxRIr6b1YA3/eXCk/GwxSndAY80Uf6zza4KDWHgo44aao/\
    tuTlU1ApaSOAzUoNvw8r9hQ=";
/// Its public half as PKIX.
const RSA_PEM: &str = "\
-----BEGIN PUBLIC KEY-----\n\
MIIBIjANBgkqhkiG9w0BAQEFAAOCAQ8AMIIBCgKCAQEArLO8ZbEmdZuNKorByPYz\n\
nM3U+vrA2007bYoiT8QW5QRn8VC89PwlZwHJ53jsSv6Wi1G5XvGePwFyvs+3LeDu\n\
J4MDkFEhVjxcYxDIXhOMP1pNysNYyj1z37NryVMNek1aLlE2xYtU0DBJeEyI8zKx\n\
MOJVzjigLNCstyEblhBPkne8i4FJbYjoivCrpPkOW5SoQB7YgHB0BUOySR4HIVPU\n\
dujDW8wtbBltSSot0JNVEoe3/Yo2I3vYsNuhMz+hb5qQPKcug+c8t1T5bGC3YPgx\n\
vFZd+c/8akytRcgRp/l4WvKKCWP0uwOZFRV5y8/qKPdSX/W3Sw4TMXaY+CTdupa/\n\
BQIDAQAB\n\
-----END PUBLIC KEY-----\n";
/// The same as PKCS#1.
const RSA_PKCS1_PEM: &str = "\
-----BEGIN RSA PUBLIC KEY-----\n\
MIIBCgKCAQEArLO8ZbEmdZuNKorByPYznM3U+vrA2007bYoiT8QW5QRn8VC89Pwl\n\
ZwHJ53jsSv6Wi1G5XvGePwFyvs+3LeDuJ4MDkFEhVjxcYxDIXhOMP1pNysNYyj1z\n\
37NryVMNek1aLlE2xYtU0DBJeEyI8zKxMOJVzjigLNCstyEblhBPkne8i4FJbYjo\n\
ivCrpPkOW5SoQB7YgHB0BUOySR4HIVPUdujDW8wtbBltSSot0JNVEoe3/Yo2I3vY\n\
sNuhMz+hb5qQPKcug+c8t1T5bGC3YPgxvFZd+c/8akytRcgRp/l4WvKKCWP0uwOZ\n\
FRV5y8/qKPdSX/W3Sw4TMXaY+CTdupa/BQIDAQAB\n\
-----END RSA PUBLIC KEY-----\n";
/// An RSA key of 1024 bits.
const RSA_1024_PEM: &str = "\
-----BEGIN PUBLIC KEY-----\n\
MIGfMA0GCSqGSIb3DQEBAQUAA4GNADCBiQKBgQCwVO5V+u+qONh+sQKBn7Cx+b1Y\n\
lVSG3QuT0DiGQsCD0JUrfeOOS8OxY/0fNMHCFUzJDE5eaGYGgfPk1prDGVGtJgSr\n\
OQ6gY/L/2k8rjaSfVh6dyozURv0Z7kXne3DrmZfLfbA9qiyQCuEzMDMXrVgBMqoA\n\
vk99XbZ4Pen8Za430wIDAQAB\n\
-----END PUBLIC KEY-----\n";
/// A key on P-384.
const P384_PEM: &str = "\
-----BEGIN PUBLIC KEY-----\n\
MHYwEAYHKoZIzj0CAQYFK4EEACIDYgAEIRSsh373E6it4GIbdaGApCQVGiOW6enu\n\
iRU6wp0JhW1EZ2wjYHNtWfE4trdICVsXE57ja7uFodlMkeEKGyOqFIJ7Vrfx4DK6\n\
e2ZXvN92+/rvKN32WYS7tc7KbD6j0mWj\n\
-----END PUBLIC KEY-----\n";
/// A key on P-256 as OpenSSL writes it.
const P256_PEM: &str = "\
-----BEGIN PUBLIC KEY-----\n\
MFkwEwYHKoZIzj0CAQYIKoZIzj0DAQcDQgAEAZonb5Cor4aZ/LPjK7DKstewzduD\n\
SaDtHlEhqgCd/AxIRysIdWqugT+aXC3QiPUopb8Lg05ff5s9qY0FxwiTSA==\n\
-----END PUBLIC KEY-----\n";
/// A key of Ed25519 as OpenSSL writes it.
const ED25519_PEM: &str = "\
-----BEGIN PUBLIC KEY-----\n\
MCowBQYDK2VwAyEAoqZ2euPB8LZZPtGgxI081NVjX7j1oAiIgDfu/yzU53E=\n\
-----END PUBLIC KEY-----\n";
/// A token that OpenSSL signed with the key of [`RSA_PEM`]; its claims are `{"tenant":"acme","scopes":"read","exp":2000}`.
const RSA_TOKEN: &str = "\
    eyJhbGciOiJSUzI1NiIsInR5cCI6IkpXVCJ9.eyJ0ZW5hbnQiOiJhY21lIiwic2NvcGVzIjoicmVhZCIsImV4cCI6MjAwMH0.JSc\
    d2xuC0rQEReXYLplYLWnYdqSp4z84F76TrOGeQDk0RpMOxMMdXYoq75znwaLO43KTWofbAH79ZwXQXzlVCUbssIoi5CvXOgC_O7V\
    Dp7iLlX5zts5h_4thMHLn8C3RBqAjB67aYFe5JKxpEy5-\
    dq0CLDK5np2xgYOUi7qNpLHqAIHtqFvgjT_WdqEtSeKBeCYKbuC_j6278xpUfeLLgk6hEKl4v-\
    30oZXbRt8s9Br8jKGCstTjcSxosICfr1woM8ocg3fMDMnTFg0Bk_q4omTT_UNmJ4tzSyTmXX6Gs3-\
    ZWSZ5EiymbmcEUqKPam7Ax0jZbiMZ-w6ujvLJzUcQGw";
/// The same with the key of [`ED25519_PEM`].
const ED25519_TOKEN: &str = "\
    eyJhbGciOiJFZERTQSIsInR5cCI6IkpXVCJ9.eyJ0ZW5hbnQiOiJhY21lIiwic2NvcGVzIjoicmVhZCIsImV4cCI6MjAwMH0.2o-\
    Irxy040fAbR3vdEGba0ti18fod3HDLj4_vSmjM1UmvgDr8QzfkVk_K3PKuZLBeuqonSoij-Ud7yi0iU3uCw";

/// The second at which tokens are looked at, unless a test says otherwise.
const NOW: u64 = 1_000;
const GOOD: &str = r#"{"tenant":"acme","scopes":"read write","exp":2000,"sub":"ann"}"#;

/// The private half of a key.
enum Signer {
    Rsa(RsaKeyPair),
    P256(EcdsaKeyPair),
    Ed25519(Ed25519KeyPair),
}

impl Signer {
    fn rsa() -> Self {
        Self::Rsa(RsaKeyPair::from_pkcs8(&STANDARD.decode(RSA_PRIVATE).unwrap()).unwrap())
    }

    fn p256() -> Self {
        let (random, kind) = (SystemRandom::new(), &ECDSA_P256_SHA256_FIXED_SIGNING);
        let document = EcdsaKeyPair::generate_pkcs8(kind, &random).unwrap();
        Self::P256(EcdsaKeyPair::from_pkcs8(kind, document.as_ref(), &random).unwrap())
    }

    fn ed25519() -> Self {
        let document = Ed25519KeyPair::generate_pkcs8(&SystemRandom::new()).unwrap();
        Self::Ed25519(Ed25519KeyPair::from_pkcs8(document.as_ref()).unwrap())
    }

    fn alg(&self) -> &'static str {
        match self {
            Self::Rsa(_) => "RS256",
            Self::P256(_) => "ES256",
            Self::Ed25519(_) => "EdDSA",
        }
    }

    /// The members of the JWK of its public half, with `more` of them before.
    fn jwk(&self, more: &str) -> String {
        match self {
            Self::Rsa(pair) => {
                let public = pair.public();
                let ring::rsa::PublicKeyComponents::<Vec<u8>> { n, e } = public.into();
                format!(r#"{{{more}"kty":"RSA","n":"{}","e":"{}"}}"#, b64(&n), b64(&e))
            }
            Self::P256(pair) => {
                let (x, y) = pair.public_key().as_ref()[1..].split_at(32);
                format!(r#"{{{more}"kty":"EC","crv":"P-256","x":"{}","y":"{}"}}"#, b64(x), b64(y))
            }
            Self::Ed25519(pair) => {
                format!(r#"{{{more}"kty":"OKP","crv":"Ed25519","x":"{}"}}"#, b64(pair.public_key().as_ref()))
            }
        }
    }

    fn sign(&self, message: &[u8]) -> Vec<u8> {
        let random = SystemRandom::new();
        match self {
            Self::Rsa(pair) => {
                let mut signature = vec![0; pair.public().modulus_len()];
                pair.sign(&ring::signature::RSA_PKCS1_SHA256, &random, message, &mut signature).unwrap();
                signature
            }
            Self::P256(pair) => pair.sign(&random, message).unwrap().as_ref().to_vec(),
            Self::Ed25519(pair) => pair.sign(message).as_ref().to_vec(),
        }
    }

    /// A token of these two texts.
    fn token(&self, header: &str, payload: &str) -> String {
        let signed = format!("{}.{}", b64(header), b64(payload));
        let signature = self.sign(signed.as_bytes());
        format!("{signed}.{}", b64(signature))
    }

    /// A token with its own header.
    fn says(&self, payload: &str) -> String {
        self.token(&format!(r#"{{"alg":"{}"}}"#, self.alg()), payload)
    }

    fn verifier(&self) -> JwtVerifier {
        verifier(jwks(&[self.jwk("")]).as_bytes())
    }
}

/// One key for the tests that are about something else.
static ED: LazyLock<(Signer, JwtVerifier)> = LazyLock::new(|| {
    let signer = Signer::ed25519();
    let verifier = signer.verifier();
    (signer, verifier)
});

fn b64(bytes: impl AsRef<[u8]>) -> String {
    URL_SAFE_NO_PAD.encode(bytes)
}

fn jwks(keys: &[String]) -> String {
    format!(r#"{{"keys":[{}]}}"#, keys.join(","))
}

fn verifier(keys: &[u8]) -> JwtVerifier {
    JwtVerifier { keys: JwtKeys::read(keys).unwrap(), issuer: None, audience: None }
}

/// What becomes of a signed token with this header.
fn with_header(header: &str) -> Result<Claims, JwtRefusal> {
    ED.1.verify(ED.0.token(header, GOOD).as_bytes(), NOW)
}

/// What becomes of a signed token with these claims and some that are good.
fn with_claims(more: &str) -> Result<Claims, JwtRefusal> {
    says(&format!(r#"{{"tenant":"acme","scopes":"read","exp":2000,{more}}}"#))
}

fn says(payload: &str) -> Result<Claims, JwtRefusal> {
    ED.1.verify(ED.0.says(payload).as_bytes(), NOW)
}

fn refusal(keys: &str) -> String {
    JwtKeys::read(keys.as_bytes()).expect_err(keys)
}

fn assert_names(error: &str, what: &str) {
    assert!(error.contains(what), "{error:?} does not name {what:?}");
}

fn pem(label: &str, der: &[u8]) -> String {
    format!("-----BEGIN {label}-----\n{}\n-----END {label}-----\n", STANDARD.encode(der))
}

/// The DER of a PEM block.
fn der(pem: &str) -> Vec<u8> {
    STANDARD.decode(pem.lines().filter(|line| !line.starts_with('-')).collect::<String>()).unwrap()
}

fn signers() -> [Signer; 3] {
    [Signer::rsa(), Signer::p256(), Signer::ed25519()]
}

#[test]
fn good_tokens_pass() {
    for signer in signers() {
        let claims = signer.verifier().verify(signer.says(GOOD).as_bytes(), NOW).unwrap();
        let scopes = vec!["read".to_owned(), "write".to_owned()];
        let (subject, tenant) = ("ann".to_owned(), "acme".to_owned());
        assert_eq!(claims, Claims { subject, tenant, scopes, valid_until_s: 2030, valid_from_s: 0 });
    }
    assert_eq!(
        with_header(r#"{"alg":"EdDSA","typ":"jwt","jku":"http://evil","x5u":[]}"#).unwrap().tenant,
        "acme"
    );
}

#[test]
fn tokens_of_other_implementations_pass() {
    let bundle =
        format!("Some text\n\n{RSA_PEM}more text\r\n{}{ED25519_PEM}", P256_PEM.replace('\n', "\r\n"));
    for keys in [bundle, RSA_PKCS1_PEM.to_owned() + ED25519_PEM] {
        let verifier = verifier(keys.as_bytes());
        assert!(verifier.keys.warnings().is_empty());
        for token in [RSA_TOKEN, ED25519_TOKEN] {
            assert_eq!(verifier.verify(token.as_bytes(), NOW).unwrap().scopes, ["read"]);
        }
    }
    // RFC 7515, appendix A.3, and RFC 8037, appendix A.4: the refusals are about what the signatures are of.
    let keys = r#"{"keys":[
        {"kty":"EC","crv":"P-256","x":"f83OJ3D2xF1Bg8vub9tLe1gHMzV76e8Tus9uPHvRVEU",
         "y":"x_FEzRu9m36HLN_tue659LNpXW6pCyStikYjKIWI5a0"},
        {"kty":"OKP","crv":"Ed25519","x":"11qYAYKxCrfVS_7TyWQHOg7hcvPapiMlrwIaaPcHURo"}]}"#;
    let es256 = "eyJhbGciOiJFUzI1NiJ9.\
        eyJpc3MiOiJqb2UiLA0KICJleHAiOjEzMDA4MTkzODAsDQogImh0dHA6Ly9leGFtcGxlLmNvbS9pc19yb290Ijp0cnVlfQ.\
        DtEhU3ljbEg8L38VWAfUAqOyKAM6-Xx-F4GawxaepmXFCgfTjDxw5djxLa8ISlSApmWQxfKTUJqPP3-Kg6NU1Q";
    let eddsa = "eyJhbGciOiJFZERTQSJ9.RXhhbXBsZSBvZiBFZDI1NTE5IHNpZ25pbmc.\
        hgyY0il_MGCjP0JzlnLWG1PPOt7-09PGcvMg3AIbQR6dWbhijcNR4ki4iylGjg5BhVsPt9g7sVvpAr_MuM0KAg";
    let verifier = verifier(keys.as_bytes());
    assert_eq!(verifier.verify(es256.as_bytes(), 1_300_819_409), Err(JwtRefusal::Claims));
    assert_eq!(verifier.verify(es256.as_bytes(), 1_300_819_410), Err(JwtRefusal::Expired));
    assert_eq!(verifier.verify(eddsa.as_bytes(), NOW), Err(JwtRefusal::Malformed));
}

#[test]
fn the_outer_form_is_three_parts() {
    for good in ["a.b.c", "\u{0}. .=", "eyJ.eyJ.sig"] {
        assert!(looks_like_jwt(good.as_bytes()), "{good:?}");
    }
    for bad in ["", ".", "..", "a.b", "a.b.", ".b.c", "a..c", "a.b.c.", "a.b.c.d", "key"] {
        assert!(!looks_like_jwt(bad.as_bytes()), "{bad:?}");
    }
}

#[test]
fn no_other_algorithm_passes() {
    for alg in [
        "none", "None", "NONE", "nOnE", "HS256", "RS512", "PS256", "ES384", "ES256", "RS256", "eddsa",
        "EdDSA ", "",
    ] {
        let header = format!(r#"{{"alg":"{alg}"}}"#);
        assert_eq!(with_header(&header), Err(JwtRefusal::Algorithm), "{alg:?}");
        let unsigned = format!("{}.{}.", b64(header), b64(GOOD));
        assert_eq!(ED.1.verify(unsigned.as_bytes(), NOW), Err(JwtRefusal::Malformed));
    }
    assert_eq!(with_header("{}"), Err(JwtRefusal::Algorithm));
    for alg in ["null", "1", "[]", r#"["EdDSA"]"#, "{}"] {
        assert_eq!(with_header(&format!(r#"{{"alg":{alg}}}"#)), Err(JwtRefusal::Malformed), "{alg}");
    }
}

#[test]
fn the_public_key_is_no_secret_of_an_hmac() {
    let verifier = verifier(RSA_PEM.as_bytes());
    for alg in ["HS256", "RS256"] {
        for secret in [RSA_PEM.as_bytes(), RSA_PEM.trim_end().as_bytes(), &der(RSA_PEM)] {
            let signed = format!("{}.{}", b64(format!(r#"{{"alg":"{alg}"}}"#)), b64(GOOD));
            let tag =
                ring::hmac::sign(&ring::hmac::Key::new(ring::hmac::HMAC_SHA256, secret), signed.as_bytes());
            assert!(verifier.verify(format!("{signed}.{}", b64(tag)).as_bytes(), NOW).is_err());
        }
    }
}

#[test]
fn another_key_does_not_pass() {
    for (mine, other) in [(Signer::p256(), Signer::p256()), (Signer::ed25519(), Signer::ed25519())] {
        let refused = mine.verifier().verify(other.says(GOOD).as_bytes(), NOW);
        assert_eq!(refused, Err(JwtRefusal::Signature));
    }
    let rsa = verifier(RSA_PEM.as_bytes());
    for length in [1, 64, 255, 256, 257] {
        for byte in [0, 1, 255] {
            let token = format!("{}.{}.{}", b64(r#"{"alg":"RS256"}"#), b64(GOOD), b64(vec![byte; length]));
            assert_eq!(rsa.verify(token.as_bytes(), NOW), Err(JwtRefusal::Signature));
        }
    }
}

#[test]
fn every_altered_byte_is_noticed() {
    for signer in signers() {
        let (verifier, token) = (signer.verifier(), signer.says(GOOD).into_bytes());
        for at in 0..token.len() {
            for by in [1, 2, 32, 128] {
                let mut altered = token.clone();
                altered[at] ^= by;
                assert!(verifier.verify(&altered, NOW).is_err(), "{} byte {at} by {by}", signer.alg());
            }
            assert!(verifier.verify(&token[..at], NOW).is_err(), "{} bytes", at);
            assert!(at == 0 || verifier.verify(&token[at..], NOW).is_err(), "from byte {at}");
            for more in *b"=A. \n\0" {
                let mut altered = token.clone();
                altered.insert(at, more);
                assert!(verifier.verify(&altered, NOW).is_err(), "{more:?} before byte {at}");
            }
        }
        for more in ["=", "==", " ", "\n", "A", "AA", ".", ".A", "\0"] {
            let longer = [token.as_slice(), more.as_bytes()].concat();
            assert!(verifier.verify(&longer, NOW).is_err(), "{more:?} at the end");
        }
    }
}

#[test]
fn a_signature_has_one_encoding() {
    // The last of the 86 characters of 64 bytes has 4 bits that count; the other 2 must be zero.
    let token = ED.0.says(GOOD);
    let (rest, last) = token.split_at(token.len() - 1);
    let alphabet = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_";
    let at = alphabet.find(last).unwrap();
    assert_eq!(at % 16, 0);
    for other in &alphabet[at + 1..at + 16].chars().collect::<Vec<_>>() {
        assert_eq!(ED.1.verify(format!("{rest}{other}").as_bytes(), NOW), Err(JwtRefusal::Malformed));
    }
    assert!(STANDARD.encode([255; 3]).contains('/'));
    let standard = format!("{}.{}.////", b64(r#"{"alg":"EdDSA"}"#), b64(GOOD));
    assert_eq!(ED.1.verify(standard.as_bytes(), NOW), Err(JwtRefusal::Malformed));
}

#[test]
fn degenerate_signatures_of_ecdsa_are_refused() {
    let signer = Signer::p256();
    let (verifier, token) = (signer.verifier(), signer.says(GOOD));
    let (signed, _) = token.rsplit_once('.').unwrap();
    let good = signer.sign(signed.as_bytes());
    let (r, s) = good.split_at(32);
    let (zero, most) = ([0; 32], [255; 32]);
    // The order of the curve.
    let n = *b"\xff\xff\xff\xff\0\0\0\0\xff\xff\xff\xff\xff\xff\xff\xff\
            \xbc\xe6\xfa\xad\xa7\x17\x9e\x84\xf3\xb9\xca\xc2\xfc\x63\x25\x51";
    let long = [&good[..], &[0]].concat();
    let pairs = [
        (r, &zero[..]),
        (&zero, s),
        (&zero, &zero),
        (&n, s),
        (r, &n),
        (&most, &most),
        (&long, &[]),
        (r, &s[1..]),
    ];
    for (r, s) in pairs {
        let forged = format!("{signed}.{}", b64([r, s].concat()));
        assert_eq!(verifier.verify(forged.as_bytes(), NOW), Err(JwtRefusal::Signature));
    }
    assert!(verifier.verify(format!("{signed}.{}", b64(&good)).as_bytes(), NOW).is_ok());
}

#[test]
fn headers_are_strict() {
    for header in [
        r#"{"alg":"EdDSA","typ":"JWE"}"#,
        r#"{"alg":"EdDSA","typ":"at+jwt"}"#,
        r#"{"alg":"EdDSA","typ":null}"#,
        r#"{"alg":"EdDSA","crit":[]}"#,
        r#"{"alg":"EdDSA","crit":["exp"],"exp":1}"#,
        r#"{"alg":"EdDSA","crit":null}"#,
        r#"{"alg":"EdDSA","b64":false,"crit":["b64"]}"#,
        r#"{"alg":"EdDSA","kid":1}"#,
        r#"{"alg":"EdDSA","kid":["a"]}"#,
        r#"{"alg":"none","alg":"EdDSA"}"#,
        r#"{"alg":"EdDSA","alg":"EdDSA"}"#,
        r#"{"alg":"EdDSA","\u0061lg":"none"}"#,
        r#"{"alg":"EdDSA","jwk":{"a":1,"a":2}}"#,
        r#"{"alg":"EdDSA"} {}"#,
        r#"{"alg":"EdDSA","#,
        r#"["EdDSA"]"#,
        r#""EdDSA""#,
        "null",
        "",
        "\u{feff}{}",
    ] {
        assert_eq!(with_header(header), Err(JwtRefusal::Malformed), "{header}");
    }
}

#[test]
fn a_kid_chooses_one_key() {
    let (old, new, third) = (Signer::ed25519(), Signer::ed25519(), Signer::p256());
    let keys = jwks(&[old.jwk(r#""kid":"old","#), new.jwk(r#""kid":"new","#), third.jwk(r#""kid":"ec","#)]);
    let verifier = verifier(keys.as_bytes());
    let verify = |signer: &Signer, kid: &str| {
        let token = signer.token(&format!(r#"{{"alg":"{}","kid":{kid}}}"#, signer.alg()), GOOD);
        verifier.verify(token.as_bytes(), NOW).map(|claims| claims.tenant)
    };
    assert!(
        verify(&old, r#""old""#).is_ok()
            && verify(&new, r#""new""#).is_ok()
            && verify(&third, r#""ec""#).is_ok()
    );
    assert_eq!(verify(&old, r#""new""#), Err(JwtRefusal::Signature));
    assert_eq!(verify(&old, r#""ec""#), Err(JwtRefusal::Algorithm));
    for kid in ["../../etc/passwd", "/dev/null", "old\\u0000", "OLD", "", "' OR 1=1 --", "http://evil/key"] {
        assert_eq!(verify(&old, &format!("\"{kid}\"")), Err(JwtRefusal::Key), "{kid}");
    }
    // Without a kid, all keys of the algorithm are tried.
    for signer in [&old, &new, &third] {
        assert!(verifier.verify(signer.says(GOOD).as_bytes(), NOW).is_ok());
    }
    // Where no key has a name, a name means nothing.
    assert!(with_header(r#"{"alg":"EdDSA","kid":"../x"}"#).is_ok());
}

#[test]
fn keys_rotate() {
    let (old, new) = (Signer::p256(), Signer::p256());
    let both = verifier(jwks(&[old.jwk(""), new.jwk("")]).as_bytes());
    for signer in [&old, &new] {
        assert!(both.verify(signer.says(GOOD).as_bytes(), NOW).is_ok());
    }
    assert_eq!(new.verifier().verify(old.says(GOOD).as_bytes(), NOW), Err(JwtRefusal::Signature));
    // At most 8 keys are tried, and the file's reader is told so.
    let many: Vec<Signer> = (0..9).map(|_| Signer::p256()).collect();
    let many_keys: Vec<String> = many.iter().map(|signer| signer.jwk("")).collect();
    let verifier = verifier(jwks(&many_keys).as_bytes());
    assert_names(&verifier.keys.warnings().join("\n"), "9 keys for ES256");
    assert!(verifier.verify(many[7].says(GOOD).as_bytes(), NOW).is_ok());
    assert_eq!(verifier.verify(many[8].says(GOOD).as_bytes(), NOW), Err(JwtRefusal::Signature));
}

#[test]
fn times_count_to_the_second() {
    let at = |payload: &str, now_s| {
        ED.1.verify(ED.0.says(payload).as_bytes(), now_s).map(|claims| claims.valid_until_s)
    };
    assert_eq!(at(GOOD, 0), Ok(2030));
    assert_eq!(at(GOOD, 2029), Ok(2030));
    assert_eq!(at(GOOD, 2030), Err(JwtRefusal::Expired));
    assert_eq!(at(GOOD, u64::MAX), Err(JwtRefusal::Expired));
    let from = r#"{"tenant":"a","scopes":"","exp":3000,"nbf":1500}"#;
    assert_eq!(at(from, 1469), Err(JwtRefusal::NotYetValid));
    assert_eq!(at(from, 1470), Ok(3030));
    // Fractions: 2030 is before 2000.5 + 30, and 2031 is not.
    let until = |exp: &str, now_s| at(&format!(r#"{{"tenant":"a","scopes":"","exp":{exp}}}"#), now_s);
    assert_eq!(until("2000.5", 2030), Ok(2031));
    assert_eq!(until("2000.5", 2031), Err(JwtRefusal::Expired));
    assert_eq!(until("1999.5", 2029), Ok(2030));
    assert_eq!(until("2e3", 2029), Ok(2030));
    assert_eq!(until("0", 29), Ok(30));
    assert_eq!(until("0", 30), Err(JwtRefusal::Expired));
    for huge in ["18446744073709551615", "18446744073709551616", "1e300", "1.7976931348623157e308"] {
        assert_eq!(until(huge, NOW), Ok(u64::MAX), "{huge}");
    }
    let valid_from = |nbf: &str| with_claims(&format!(r#""nbf":{nbf}"#)).map(|claims| claims.valid_from_s);
    assert_eq!(valid_from("1000"), Ok(970));
    assert_eq!(valid_from("1029.5"), Ok(1000));
    assert_eq!(valid_from("1030.5"), Err(JwtRefusal::NotYetValid));
    assert_eq!(valid_from("5"), Ok(0));
    assert_eq!(valid_from("1e300"), Err(JwtRefusal::NotYetValid));
}

#[test]
fn times_of_wrong_types_are_refused() {
    assert_eq!(says(r#"{"tenant":"a","scopes":""}"#), Err(JwtRefusal::Claims));
    for time in [
        "\"2000\"",
        "-1",
        "-1.5",
        "-9223372036854775809",
        "null",
        "true",
        "[2000]",
        "{}",
        "\"NaN\"",
        "\"inf\"",
    ] {
        let exp = format!(r#"{{"tenant":"a","scopes":"","exp":{time}}}"#);
        assert_eq!(says(&exp), Err(JwtRefusal::Claims), "exp {time}");
        assert_eq!(with_claims(&format!(r#""nbf":{time}"#)), Err(JwtRefusal::Claims), "nbf {time}");
    }
    for time in ["NaN", "Infinity", "-Infinity", "1e400", "0x10", "+1", "01", "1_000"] {
        let exp = format!(r#"{{"tenant":"a","scopes":"","exp":{time}}}"#);
        assert_eq!(says(&exp), Err(JwtRefusal::Malformed), "exp {time}");
    }
}

#[test]
fn issuer_and_audience_must_agree() {
    let verify = |issuer: Option<&str>, audience: Option<&str>, more: &str| {
        let (issuer, audience) = (issuer.map(str::to_owned), audience.map(str::to_owned));
        let verifier = JwtVerifier { issuer, audience, ..ED.1.clone() };
        let payload = format!(r#"{{{more}"tenant":"acme","scopes":"read","exp":2000}}"#);
        verifier.verify(ED.0.says(&payload).as_bytes(), NOW).map(drop)
    };
    let issuer = Some("https://id.example/");
    assert_eq!(verify(issuer, None, r#""iss":"https://id.example/","#), Ok(()));
    for wrong in ["", r#""iss":"https://id.example","#, r#""iss":"HTTPS://ID.EXAMPLE/","#, r#""iss":"","#] {
        assert_eq!(verify(issuer, None, wrong), Err(JwtRefusal::Issuer), "{wrong}");
    }
    assert_eq!(verify(issuer, None, r#""iss":["https://id.example/"],"#), Err(JwtRefusal::Claims));
    assert_eq!(verify(None, None, r#""iss":"anyone","aud":"anyone","#), Ok(()));
    for good in [r#""aud":"search","#, r#""aud":["search"],"#, r#""aud":["mail","search"],"#] {
        assert_eq!(verify(None, Some("search"), good), Ok(()), "{good}");
    }
    for wrong in [
        "",
        r#""aud":"searches","#,
        r#""aud":"search ","#,
        r#""aud":"mail search","#,
        r#""aud":[],"#,
        r#""aud":["mail"],"#,
    ] {
        assert_eq!(verify(None, Some("search"), wrong), Err(JwtRefusal::Audience), "{wrong}");
    }
    for wrong in [
        r#""aud":1,"#,
        r#""aud":null,"#,
        r#""aud":["search",1],"#,
        r#""aud":[["search"]],"#,
        r#""aud":{"search":1},"#,
    ] {
        assert_eq!(verify(None, Some("search"), wrong), Err(JwtRefusal::Claims), "{wrong}");
    }
}

#[test]
fn tenant_scopes_and_subject_have_their_forms() {
    let base = |claims: &str| says(&format!(r#"{{"exp":2000,{claims}}}"#));
    for tenant in [
        "",
        r#""tenant":"","#,
        r#""tenant":null,"#,
        r#""tenant":1,"#,
        r#""tenant":["a"],"#,
        r#""Tenant":"a","#,
    ] {
        assert_eq!(base(&format!(r#"{tenant}"scopes":"read""#)), Err(JwtRefusal::Claims), "{tenant}");
    }
    let scopes = |json: &str| base(&format!(r#""tenant":"a","scopes":{json}"#)).map(|claims| claims.scopes);
    let many = |count: usize| format!("[{}]", vec!["\"r\""; count].join(","));
    let long = |length: usize| format!("[{:?}]", "r".repeat(length));
    assert_eq!(scopes("\"\"").unwrap(), [""; 0]);
    assert_eq!(scopes("[]").unwrap(), [""; 0]);
    assert_eq!(scopes("\"  read:a   write:b* \"").unwrap(), ["read:a", "write:b*"]);
    assert_eq!(scopes(r#"["read:a b","write"]"#).unwrap(), ["read:a b", "write"]);
    assert_eq!(scopes(&many(1024)).unwrap().len(), 1024);
    assert_eq!(scopes(&long(1024)).unwrap().len(), 1);
    for wrong in [
        "null",
        "1",
        "{}",
        "[1]",
        "[null]",
        r#"[["read"]]"#,
        r#"[""]"#,
        r#"["read",""]"#,
        &many(1025),
        &long(1025),
    ] {
        assert_eq!(scopes(wrong), Err(JwtRefusal::Claims), "{wrong}");
    }
    assert_eq!(base(r#""tenant":"a""#), Err(JwtRefusal::Claims));
    assert_eq!(with_claims(r#""jti":1"#).unwrap().subject, "");
    for subject in ["null", "1", r#"["ann"]"#] {
        assert_eq!(with_claims(&format!(r#""sub":{subject}"#)), Err(JwtRefusal::Claims), "{subject}");
    }
}

#[test]
fn ambiguous_and_broken_claims_are_refused() {
    for more in [
        r#""tenant":"b""#,
        r#""t\u0065nant":"b""#,
        r#""exp":9000"#,
        r#""scopes":[]"#,
        r#""x":{"y":[{"a":1,"a":1}]}"#,
    ] {
        assert_eq!(with_claims(more), Err(JwtRefusal::Malformed), "{more}");
    }
    for payload in ["", "null", "[]", "\"a\"", "{", "{}{}", "{\"a\":\"\\ud800\"}", "{'a':1}", "{\"a\":1,}"] {
        assert_eq!(says(payload), Err(JwtRefusal::Malformed), "{payload}");
    }
    let signed = format!("{}.{}", b64(r#"{"alg":"EdDSA"}"#), b64(b"{\"tenant\":\"\xff\"}"));
    let token = format!("{signed}.{}", b64(ED.0.sign(signed.as_bytes())));
    assert_eq!(ED.1.verify(token.as_bytes(), NOW), Err(JwtRefusal::Malformed));
    // The member by which `serde_json` recognises its own raw values is one like others.
    assert!(with_claims(r#""x":{"$serde_json::private::RawValue":"{"}"#).is_ok());
}

#[test]
fn nesting_and_length_are_bounded() {
    for (open, close) in [("[", "]"), (r#"{"a":"#, "}")] {
        for depth in [200, 1_500] {
            for bomb in [open.repeat(depth), format!("{}1{}", open.repeat(depth), close.repeat(depth))] {
                assert_eq!(with_claims(&format!("\"x\":{bomb}")), Err(JwtRefusal::Malformed));
                assert_eq!(
                    with_header(&format!(r#"{{"alg":"EdDSA","x":{bomb}}}"#)),
                    Err(JwtRefusal::Malformed)
                );
            }
        }
    }
    assert!(with_claims(&format!("\"x\":{}1{}", "[".repeat(100), "]".repeat(100))).is_ok());
    let padded = |length: usize| {
        ED.0.says(&format!(r#"{{"tenant":"a","scopes":"","exp":2000,"x":{:?}}}"#, "x".repeat(length)))
    };
    let most = (12_000..13_000).map(padded).take_while(|token| token.len() <= JWT_MAX_BYTES).last().unwrap();
    assert!(most.len() > JWT_MAX_BYTES - 4 && ED.1.verify(most.as_bytes(), NOW).is_ok());
    let long = padded(12_500);
    assert!(long.len() > JWT_MAX_BYTES);
    assert_eq!(ED.1.verify(long.as_bytes(), NOW), Err(JwtRefusal::Malformed));
    assert_eq!(ED.1.verify(&vec![b'.'; 1 << 24], NOW), Err(JwtRefusal::Malformed));
}

#[test]
fn pem_files_are_strict() {
    for empty in ["", " \n\t", "\r\n"] {
        assert_names(&refusal(empty), "it is empty");
    }
    for none in ["text", "\u{feff}{}", "MCowBQYDK2VwAyEA", "-----END PUBLIC KEY-----", "[]"] {
        assert_names(&refusal(none), "no PEM block");
    }
    assert_names(&JwtKeys::read(b"\xff\xfe").unwrap_err(), "UTF-8");
    for kind in [
        "PRIVATE KEY",
        "RSA PRIVATE KEY",
        "EC PRIVATE KEY",
        "ENCRYPTED PRIVATE KEY",
        "OPENSSH PRIVATE KEY",
        "CERTIFICATE",
    ] {
        let block = pem(kind, &der(RSA_PEM));
        assert_names(&refusal(&block), kind);
        let second = refusal(&format!("{RSA_PEM}{block}"));
        assert_names(&second, "PEM block 2");
        assert_names(&second, kind);
    }
    let private = pem("PUBLIC KEY", &STANDARD.decode(RSA_PRIVATE).unwrap());
    assert_names(&refusal(&private), "malformed");
    assert_names(&refusal(RSA_1024_PEM), "1024 bits");
    assert_names(&refusal(P384_PEM), "1.3.132.0.34");
    for broken in [
        RSA_PEM.replace("END PUBLIC", "END PRIVATE"),
        RSA_PEM.replace("MII", "M I"),
        RSA_PEM.replace("MIIB", "MIIC"),
        RSA_PEM.replace("RSA", "").replace("AQAB", "AQA="),
        pem("PUBLIC KEY", &[]),
        pem("RSA PUBLIC KEY", &der(RSA_PEM)),
        pem("PUBLIC KEY", &der(RSA_PKCS1_PEM)),
        pem("PUBLIC KEY", &[der(RSA_PEM), vec![0]].concat()),
        pem("PUBLIC KEY", &der(ED25519_PEM)[..43]),
    ] {
        assert_names(&refusal(&broken), "PEM block 1");
    }
    assert_names(&refusal(RSA_PEM.split("-----END").next().unwrap()), "no line END");
    assert_names(&refusal(&RSA_PEM.replace("-----END", "-----BEGIN")), "no line END");
    assert!(JwtKeys::read(ED25519_PEM.repeat(64).as_bytes()).is_ok());
    assert_names(&refusal(&ED25519_PEM.repeat(65)), "more than 64 keys");
}

#[test]
fn points_that_are_no_keys_are_refused() {
    let mut off_curve = der(P256_PEM);
    *off_curve.last_mut().unwrap() ^= 1;
    assert_names(&refusal(&pem("PUBLIC KEY", &off_curve)), "not one on the curve");
    let prefix = &der(ED25519_PEM)[..12];
    // The points of the orders 4, 1, 2, 8 and 8.
    for point in [
        [0; 32],
        std::array::from_fn(|at| u8::from(at == 0)),
        std::array::from_fn(|at| match at {
            0 => 0xec,
            31 => 0x7f,
            _ => 0xff,
        }),
        *b"\x26\xe8\x95\x8f\xc2\xb2\x27\xb0\x45\xc3\xf4\x89\xf2\xef\x98\xf0\
            \xd5\xdf\xac\x05\xd3\xc6\x33\x39\xb1\x38\x02\x88\x6d\x53\xfc\x05",
        *b"\xc7\x17\x6a\x70\x3d\x4d\xd8\x4f\xba\x3c\x0b\x76\x0d\x10\x67\x0f\
            \x2a\x20\x53\xfa\x2c\x39\xcc\xc6\x4e\xc7\xfd\x77\x92\xac\x03\x7a",
    ] {
        for sign in [0, 0x80] {
            let mut point: [u8; 32] = point;
            point[31] |= sign;
            let read = JwtKeys::read(pem("PUBLIC KEY", &[prefix, &point].concat()).as_bytes());
            // The points of the orders 1 and 2 have one sign; with the other, they are none at all, and verify nothing.
            let one_sign = sign != 0 && (point[0] == 1 || point[0] == 0xec);
            assert!(one_sign || read.is_err(), "{point:x?}");
        }
    }
}

#[test]
fn jwks_files_are_strict() {
    let (rsa, ec, ed) = (Signer::rsa().jwk(""), Signer::p256().jwk(""), Signer::ed25519().jwk(""));
    for secret in ["d", "p", "qi", "k"] {
        for key in [&rsa, &ec, &ed, &ec.replace("P-256", "P-384"), &"{\"kty\":\"oct\"}".to_owned()] {
            let private = key.replacen('{', &format!("{{\"{secret}\":\"AQAB\","), 1);
            assert_names(&refusal(&jwks(&[rsa.clone(), private])), "key 2: it has the private parameter");
        }
    }
    let weak = format!(r#"{{"kty":"RSA","e":"AQAB","n":"{}"}}"#, b64([255; 128]));
    assert_names(&refusal(&jwks(&[weak])), "1024 bits");
    let bits = |first: u8, bytes: usize| {
        let n = [vec![0, first], vec![255; bytes - 1]].concat();
        JwtKeys::read(jwks(&[format!(r#"{{"kty":"RSA","e":"AQAB","n":"{}"}}"#, b64(n))]).as_bytes()).map(drop)
    };
    assert_names(&bits(0x7f, 256).unwrap_err(), "2047 bits");
    assert_names(&bits(1, 1025).unwrap_err(), "8193 bits");
    assert!(bits(0x80, 256).is_ok() && bits(0x80, 1024).is_ok());
    for e in ["", "AA", "AQ", "Ag", "AQAA", "A___________"] {
        assert_names(
            &refusal(&jwks(&[rsa.replace("AQAB", e)])),
            "key 1: its RSA key has a modulus or an exponent",
        );
    }
    for broken in [
        "{",
        "{}",
        r#"{"keys":{}}"#,
        r#"{"keys":[1]}"#,
        r#"{"keys":[{}]}"#,
        r#"{"keys":[],"keys":[]}"#,
        r#"{"keys":[]}"#,
    ] {
        refusal(broken);
    }
    for (from, to) in [
        (r#""kty":"#, r#""kty":1,"x":"#),
        (r#""x":""#, r#""x":"AAAA"#),
        (r#""y":""#, r#""y":"="#),
        (r#""y""#, r#""z""#),
        (r#""kty""#, r#""kid":1,"kty""#),
        (r#""kty""#, r#""alg":1,"kty""#),
        (r#""kty""#, r#""kty":"EC","kty""#),
    ] {
        assert_ne!(ec, ec.replace(from, to));
        refusal(&jwks(&[ec.replace(from, to)]));
    }
    assert_names(&refusal(&jwks(&[ed.replace(r#""x":""#, r#""x":"AAAA"#)])), "35 bytes");
    let named = |key: &str| key.replacen('{', r#"{"kid":"a","#, 1);
    assert_names(
        &refusal(&jwks(&[named(&ec), named(&ed)])),
        "key 2 (`kid` \"a\"): another key has the same `kid`",
    );
    assert!(JwtKeys::read(jwks(&[ec.clone(), ec.clone()]).as_bytes()).is_ok());
    assert_names(&refusal(&jwks(&vec![ec; 65])), "more than 64 keys");
}

#[test]
fn keys_for_other_things_are_skipped_and_named() {
    let ed = Signer::ed25519().jwk("");
    let with = |more: &str| ed.replacen('{', &format!("{{{more},"), 1);
    let others = [
        (
            r#"{"kty":"EC","crv":"P-384","kid":"big"}"#.to_owned(),
            "key 2 (`kid` \"big\"): it was skipped, as it is of the kind \"EC\" \"P-384\"",
        ),
        (r#"{"kty":"OKP","crv":"X25519"}"#.to_owned(), "X25519"),
        (r#"{"kty":"AKP"}"#.to_owned(), "AKP"),
        (with(r#""use":"enc""#), "\"enc\""),
        (with(r#""alg":"ES256""#), "\"ES256\""),
        (with(r#""key_ops":["sign"]"#), "key_ops"),
    ];
    for (other, what) in others {
        let keys = JwtKeys::read(jwks(&[ed.clone(), other.clone()]).as_bytes()).unwrap();
        assert_eq!((keys.warnings().len(), keys.count()), (1, 1));
        assert_names(&keys.warnings()[0], what);
        assert_names(&refusal(&jwks(&[other])), "no key that can be used");
    }
    let good = with(r#""use":"sig","alg":"EdDSA","key_ops":["verify"],"kid":"k""#);
    assert!(JwtKeys::read(jwks(&[good]).as_bytes()).unwrap().warnings().is_empty());
}

/// Numbers that are the same in every run (xorshift).
struct Dice(u64);

impl Dice {
    fn below(&mut self, end: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 % end.max(1) as u64) as usize
    }

    /// Alters some bytes in a few places.
    fn alter(&mut self, bytes: &mut Vec<u8>) {
        for _ in 0..=self.below(3) {
            let (at, byte) = (self.below(bytes.len()), self.below(256) as u8);
            let to = at + self.below(bytes.len() + 1 - at);
            match self.below(6) {
                0 => bytes.insert(at, byte),
                1 => drop(bytes.drain(at..to.min(at + 4))),
                2 => bytes.truncate(to),
                3 => bytes.extend_from_within(at..to),
                _ if at < bytes.len() && self.below(2) == 0 => bytes[at] = byte,
                _ if at < bytes.len() => bytes[at] ^= 1 << (byte % 8),
                _ => bytes.push(byte),
            }
        }
    }
}

#[test]
fn nothing_altered_passes_or_panics() {
    let mut dice = Dice(0x9e37_79b9_7f4a_7c15);
    for signer in signers() {
        let (verifier, good) = (signer.verifier(), signer.says(GOOD).into_bytes());
        for _ in 0..3_000 {
            let mut token = good.clone();
            dice.alter(&mut token);
            assert!(token == good || verifier.verify(&token, NOW).is_err());
        }
    }
    // Signed, so that what reads the claims sees them.
    for _ in 0..3_000 {
        let (mut header, mut payload) =
            (br#"{"alg":"EdDSA","typ":"JWT","kid":"a"}"#.to_vec(), GOOD.as_bytes().to_vec());
        if dice.below(2) == 0 {
            dice.alter(&mut header)
        } else {
            dice.alter(&mut payload)
        }
        let signed = format!("{}.{}", b64(header), b64(payload));
        let token = format!("{signed}.{}", b64(ED.0.sign(signed.as_bytes())));
        if let Ok(claims) = ED.1.verify(token.as_bytes(), NOW) {
            assert!(!claims.tenant.is_empty() && claims.valid_until_s > NOW);
        }
    }
}

#[test]
fn no_altered_file_panics() {
    let mut dice = Dice(0x2545_f491_4f6c_dd1d);
    let pems = [RSA_PEM, RSA_PKCS1_PEM, P256_PEM, P384_PEM, ED25519_PEM];
    let mut files: Vec<String> = pems.map(str::to_owned).to_vec();
    files.push(pems[2..].concat());
    files.push(jwks(&signers().map(|signer| signer.jwk(r#""kid":"a","#))));
    for file in &files {
        for _ in 0..1_000 {
            let mut file = file.clone().into_bytes();
            dice.alter(&mut file);
            drop(JwtKeys::read(&file));
        }
    }
    for pem_block in pems {
        let label = if pem_block == RSA_PKCS1_PEM { "RSA PUBLIC KEY" } else { "PUBLIC KEY" };
        for _ in 0..1_000 {
            let mut der = der(pem_block);
            dice.alter(&mut der);
            drop(JwtKeys::read(pem(label, &der).as_bytes()));
        }
    }
}
