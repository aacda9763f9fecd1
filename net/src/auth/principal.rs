//! Principals: who sends requests, and what they may do.

use super::fingerprint;
use super::meter::Meter;
use super::scope::Scope;
use crate::op::Action;
use std::fmt;
use std::sync::Arc;

/// What a request says about who sent it.
#[derive(Clone, Copy, Debug, Default)]
pub struct Credentials<'a> {
    /// The token, as the transport carried it. An empty one counts as none.
    pub token: Option<&'a [u8]>,
    /// The common name in the client certificate of the connection. The certificate has been verified.
    pub certificate: Option<&'a str>,
}

impl<'a> Credentials<'a> {
    /// The credentials of a request that has only a token.
    pub fn token(token: Option<&'a [u8]>) -> Credentials<'a> {
        Credentials { token: token.filter(|token| !token.is_empty()), certificate: None }
    }

    /// The name of the sender in the access log: by a digest of the token, or by the common name where there is no token.
    pub fn name(&self) -> String {
        match (self.token, self.certificate) {
            (Some(token), _) => format!("token:{}", fingerprint(token)),
            (None, Some(common_name)) => format!("cn:{common_name}"),
            (None, None) => String::new(),
        }
    }
}

/// How a principal was recognised.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Means {
    /// The server has no keys, or one that may do everything.
    Everything,
    /// By the token that the nodes of a cluster show each other.
    InternalToken,
    /// By a key of the registry.
    Key,
    /// By a signed token.
    Jwt,
}

/// Somebody who sends requests.
#[derive(Clone, Debug)]
pub struct Principal {
    /// The name in the audit log.
    pub name: String,
    /// How it was recognised.
    pub means: Means,
    /// The tenant; an empty string stands for none.
    pub tenant: String,
    /// What it may do, unless it may do everything.
    pub scopes: Vec<Scope>,
    /// Whether it may act only on collections of its tenant.
    pub is_isolated: bool,
    /// The time at which it expires, in seconds since 1970.
    pub valid_until_s: u64,
    /// How much of its limits has been used, if it has any.
    pub meter: Option<Arc<Meter>>,
}

/// A [`Principal::valid_until_s`] that never comes.
pub const FOREVER: u64 = u64::MAX;

/// Why a request was let in or refused, in the words of the audit log. Clients are not told.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reason {
    /// The server has no API keys, or the request has the only one.
    Everything,
    /// The request has the internal token.
    InternalToken,
    /// The request has neither a token nor a certificate.
    NoPrincipal,
    /// No key has its token.
    TokenNotFound,
    /// No key has its certificate.
    CertNotFound,
    /// A scope of the key allows it.
    ScopeMatch,
    /// No scope of the key allows it.
    ScopeMiss,
    /// It is outside of the tenant of the key.
    TenantMismatch,
    /// The signed token is not valid.
    JwtInvalid,
    /// A scope of the signed token allows it.
    JwtScopeMatch,
    /// No scope of the signed token allows it.
    JwtScopeMiss,
    /// It is outside of the tenant of the signed token.
    JwtTenantMismatch,
    /// The API key may do it, but has reached a limit on requests or bytes.
    RateLimit,
    /// The API key may do it, but has reached its limit on connections.
    ConnectionLimit,
}

impl Reason {
    /// The word in the audit log.
    pub fn word(self) -> &'static str {
        match self {
            Reason::Everything => "unrestricted",
            Reason::InternalToken => "internal-token",
            Reason::NoPrincipal => "no-principal",
            Reason::TokenNotFound => "token-not-found",
            Reason::CertNotFound => "cert-not-found",
            Reason::ScopeMatch => "scope-match",
            Reason::ScopeMiss => "scope-miss",
            Reason::TenantMismatch => "tenant-mismatch",
            Reason::JwtInvalid => "jwt-invalid",
            Reason::JwtScopeMatch => "jwt-scope-match",
            Reason::JwtScopeMiss => "jwt-scope-miss",
            Reason::JwtTenantMismatch => "jwt-tenant-mismatch",
            Reason::RateLimit => "rate-limit",
            Reason::ConnectionLimit => "connection-limit",
        }
    }
}

impl fmt::Display for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.word())
    }
}

impl Principal {
    /// A principal that may do everything.
    pub fn unrestricted(means: Means, name: &str) -> Principal {
        Principal {
            name: name.to_owned(),
            means,
            tenant: String::new(),
            scopes: Vec::new(),
            is_isolated: false,
            valid_until_s: FOREVER,
            meter: None,
        }
    }

    /// Decides whether it may do what needs `action` on `resource`, the full name of a collection, or empty for what has none.
    ///
    /// # Errors
    /// The reason for which it may not.
    pub fn decide(&self, action: Action, resource: &str) -> Result<Reason, Reason> {
        let (matched, missed, mismatched) = match self.means {
            Means::Everything => return Ok(Reason::Everything),
            Means::InternalToken => return Ok(Reason::InternalToken),
            Means::Key => (Reason::ScopeMatch, Reason::ScopeMiss, Reason::TenantMismatch),
            Means::Jwt => (Reason::JwtScopeMatch, Reason::JwtScopeMiss, Reason::JwtTenantMismatch),
        };
        if !self.scopes.iter().any(|scope| scope.allows(action, resource)) {
            return Err(missed);
        }
        if self.is_isolated && !self.owns(resource) {
            return Err(mismatched);
        }
        Ok(matched)
    }

    /// Checks that the principal has the right `action` on something.
    ///
    /// # Errors
    /// The reason for which it has the right on nothing.
    pub fn has_somewhere(&self, action: Action) -> Result<(), Reason> {
        let missed = match self.means {
            Means::Everything | Means::InternalToken => return Ok(()),
            Means::Key => Reason::ScopeMiss,
            Means::Jwt => Reason::JwtScopeMiss,
        };
        if self.scopes.iter().any(|scope| scope.has(action)) { Ok(()) } else { Err(missed) }
    }

    /// Whether `resource` is a collection of its tenant.
    fn owns(&self, resource: &str) -> bool {
        resource.split_once('/').is_some_and(|(tenant, _)| tenant == self.tenant)
    }
}
