//! Sentences about connections that failed because of TLS, for whoever wrote the flags.
use jiff::Timestamp;
use rustls::pki_types::UnixTime;
use rustls::{AlertDescription, CertificateError, Error, InvalidMessage};
use std::io;

/// How to reach a server that expects TLS.
const USE_TLS: &str = "-tls speaks TLS, and -tls-ca names a file of certificates to trust";
/// What a client says when it has sent plain text and was answered in TLS.
pub const EXPECTS_TLS: &str =
    "the server expects TLS: -tls speaks it, and -tls-ca names a file of certificates to trust";
/// What a client says when it speaks TLS and the server does not.
const SPEAKS_PLAIN_TEXT: &str = "the server does not speak TLS there: leave out the flags of TLS (and write http:// in a URL), \
                                 or give the address of its TLS port";
/// What a client says when its handshake was cut short.
pub const CLOSED_HANDSHAKE: &str = "the server closed the connection during the TLS handshake; \
                                    if it speaks plain text there, leave out the flags of TLS";

/// Which certificates are trusted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Trusted {
    /// The certificates in the file of `-tls-ca` are trusted, and no others.
    File(String),
    /// The certificates that the machine trusts are trusted.
    Machine,
}

/// What decides which advice helps.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Circumstances {
    /// Which certificates are trusted.
    pub trusted: Trusted,
    /// Whether the client has a certificate to show.
    pub has_certificate: bool,
}

/// The sentence about an error of TLS, during the handshake or after it.
pub fn sentence(error: &Error, is_handshaking: bool, circumstances: &Circumstances) -> String {
    match error {
        Error::InvalidMessage(
            InvalidMessage::InvalidContentType
            | InvalidMessage::UnknownProtocolVersion
            | InvalidMessage::MessageTooLarge
            | InvalidMessage::InvalidEmptyPayload,
        ) if is_handshaking => SPEAKS_PLAIN_TEXT.into(),
        Error::InvalidCertificate(fault) => certificate(fault, &circumstances.trusted),
        Error::AlertReceived(alert) => alerted(*alert, circumstances),
        Error::PeerIncompatible(_) => {
            format!("the server and this client have no TLS version or cipher in common ({error})")
        }
        _ => format!("TLS failed: {error}"),
    }
}

/// What is wrong with the certificate of the server.
fn certificate(fault: &CertificateError, trusted: &Trusted) -> String {
    match fault {
        // An authority of the same name and another key is found as the issuer, but its signature does not match.
        CertificateError::UnknownIssuer | CertificateError::BadSignature => match trusted {
            Trusted::File(path) => {
                format!("the certificate of the server is not trusted: no certificate in -tls-ca {path} has signed it")
            }
            Trusted::Machine => "the certificate of the server is not trusted: nothing that this machine trusts has signed it; \
                                 -tls-ca names a file of certificates to trust instead"
                .into(),
        },
        CertificateError::NotValidForNameContext { expected, presented } => {
            let expected = expected.to_str();
            let names: Vec<&str> = presented.iter().map(|name| bare(name)).collect();
            match names.is_empty() {
                true => format!(
                    "the certificate of the server holds no name of a server (subjectAltName), and {expected} is asked for"
                ),
                false => format!(
                    "the certificate of the server is for {}, not for {expected}; -tls-server-name says which name to expect",
                    names.join(", ")
                ),
            }
        }
        CertificateError::ExpiredContext { not_after, .. } => {
            format!("the certificate of the server, or of an authority that it needs, expired at {}", moment(*not_after))
        }
        CertificateError::NotValidYetContext { not_before, .. } => format!(
            "the certificate of the server, or of an authority that it needs, is not valid before {}; is the clock right?",
            moment(*not_before)
        ),
        CertificateError::InvalidPurpose | CertificateError::InvalidPurposeContext { .. } => {
            "the certificate of the server may not be used by servers (extended key usage)".into()
        }
        // The library has no error of its own for this case, which is common: `openssl req -x509` makes such certificates.
        CertificateError::Other(other) if other.to_string().contains("CaUsedAsEndEntity") => {
            "the certificate of the server is that of an authority (CA:TRUE), which may sign others and not be a server's own; \
             make one with CA:FALSE"
                .into()
        }
        other => format!("the certificate of the server cannot be accepted: {other}"),
    }
}

/// A name as the library shows it, such as `DnsName("localhost")` or `IpAddress(127.0.0.1)`, without what is around it.
fn bare(name: &str) -> &str {
    let inner = name.split_once('(').and_then(|(_, rest)| rest.strip_suffix(')'));
    inner.map_or(name, |inner| inner.trim_matches('"'))
}

fn moment(time: UnixTime) -> String {
    let seconds = i64::try_from(time.as_secs()).ok().and_then(|seconds| Timestamp::from_second(seconds).ok());
    seconds.map_or_else(|| format!("{} s after 1970", time.as_secs()), |time| time.to_string())
}

/// Says why the server has ended TLS.
fn alerted(alert: AlertDescription, circumstances: &Circumstances) -> String {
    use AlertDescription as Alert;
    let name = format!("{alert:?}");
    match alert {
        Alert::CertificateRequired => match circumstances.has_certificate {
            true => "the server asks for another client certificate than that of -tls-cert".into(),
            false => "the server asks for a client certificate: -tls-cert and -tls-key show one".into(),
        },
        Alert::BadCertificate
        | Alert::UnsupportedCertificate
        | Alert::CertificateRevoked
        | Alert::CertificateExpired
        | Alert::CertificateUnknown
        | Alert::UnknownCA
        | Alert::AccessDenied
        | Alert::DecryptError
            if circumstances.has_certificate =>
        {
            let reason = match alert {
                Alert::UnknownCA => "no authority that it trusts has signed it",
                Alert::CertificateExpired => "it has expired, or is not valid yet",
                Alert::CertificateRevoked => "it has been revoked",
                Alert::UnsupportedCertificate => "it is not one for clients",
                _ => "it does not say why",
            };
            format!("the server refuses the client certificate of -tls-cert: {reason} ({name})")
        }
        Alert::HandshakeFailure | Alert::ProtocolVersion | Alert::InsufficientSecurity => {
            let certificate = match circumstances.has_certificate {
                true => "",
                false => ", or it asks for a client certificate (-tls-cert, -tls-key)",
            };
            format!(
                "the server and this client have no TLS version or cipher in common ({name}){certificate}"
            )
        }
        Alert::NoApplicationProtocol => {
            format!("the server does not speak HTTP/1.1 there, so this may be the port of its gRPC ({name})")
        }
        Alert::UnrecognisedName => {
            format!(
                "the server does not know the name that it was called by ({name}); -tls-server-name gives another"
            )
        }
        Alert::InternalError => {
            format!("the server has ended the TLS handshake because it is too busy or has failed ({name})")
        }
        _ => format!("the server has ended TLS with the alert {name}"),
    }
}

/// Whether the bytes that answer plain text are a TLS alert. No other protocol here has answers that begin with these bytes.
pub fn is_alert(bytes: &[u8]) -> bool {
    matches!(bytes, [21, 3, 0..=4, 0, 2, ..])
}

/// What a server has answered to plain text, with a hint about the flags of TLS if it asks for TLS.
pub fn with_hint(text: &str) -> String {
    match text.contains("expects TLS") || text.contains("HTTPS") {
        true => format!("{text}; {USE_TLS}"),
        false => text.to_owned(),
    }
}

/// The sentence about a server at `address`, given by `flag`, that could not be reached.
pub fn not_connected(address: &str, error: &io::Error, flag: &str) -> String {
    match is_reason(error) {
        true => format!("{address}: {error}"),
        false => format!("{address}: {error}; {flag} names the server"),
    }
}

/// Whether an error says what the server has answered, and not only that the connection failed.
pub fn is_reason(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::InvalidData | io::ErrorKind::UnexpectedEof)
}

/// The error of a connection that the server has closed after `rest`, which is not a whole answer.
pub fn closed(rest: &[u8]) -> io::Error {
    let text = if is_alert(rest) { EXPECTS_TLS } else { "the server closed the connection" };
    io::Error::new(io::ErrorKind::UnexpectedEof, text)
}
