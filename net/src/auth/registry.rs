//! The key registry: many API keys, each with a tenant and with scopes, in a file that changes with them.

use super::jwt::{JwtVerifier, looks_like_jwt};
use super::key_limits::KeyLimits;
use super::keys_file::{self, FILE_MAX_BYTES, KEYS_MAX, Key, TOKEN_MAX_BYTES};
use super::meter::Meter;
use super::principal::FOREVER;
use super::scope::Scope;
use super::secret::{Secret, SecretDigest, hex, listed_fingerprint};
use super::{Authenticator, Credentials, Means, Principal, Reason};
use crate::op::Action;
use std::collections::HashMap;
use std::fmt;
use std::io;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock};

/// The tenant of keys that are for the collections of all tenants.
pub const ALL_TENANTS: &str = "*";
/// Scopes of a key at most.
pub const SCOPES_MAX: usize = 1024;
/// Bytes of each other text of a key at most.
const TEXT_MAX_BYTES: usize = 1024;

/// Where the text of the API key file is kept.
pub trait KeysStore: Send + Sync {
    /// Replaces the text as a whole, durably. This may block.
    ///
    /// # Errors
    /// The write failed. The stored text may be the earlier one or the new one.
    fn replace(&self, text: &[u8]) -> io::Result<()>;
}

/// The API keys of one process. All cores share it.
pub struct Registry {
    keys: RwLock<Arc<Keys>>,
    /// Goes up with each change, after the change.
    generation: AtomicU64,
    store: Box<dyn KeysStore>,
    /// Held while a change is being written.
    changing: Mutex<()>,
    settings: RegistrySettings,
    /// The principal of the internal token.
    internal: Arc<Principal>,
    /// Checks signed tokens, where they count.
    jwt: RwLock<Option<Arc<JwtVerifier>>>,
}

/// How a registry decides.
#[derive(Clone, Debug, Default)]
pub struct RegistrySettings {
    /// The token that nodes of a cluster show each other, which may do everything.
    pub internal_token: Option<SecretDigest>,
    /// A key may only act on collections of its own tenant.
    pub isolates_tenants: bool,
    /// Each decision is written to the audit log.
    pub audits: bool,
}

/// The keys at one time.
#[derive(Default)]
struct Keys {
    /// In the order of the file.
    all: Vec<Arc<Known>>,
    /// The API keys that have a token, by the fingerprint of the token. Two tokens may have the same fingerprint, so each entry is a list.
    by_token: HashMap<[u8; 8], Vec<Arc<Known>>>,
    /// The principals of API keys with a certificate name, by that name. If several API keys have the same name, this has the last of them.
    by_certificate: HashMap<String, Arc<Principal>>,
}

/// An API key and its principal. Both stay the same, as does the use of its limits, when other API keys are added or revoked.
struct Known {
    key: Key,
    principal: Arc<Principal>,
}

impl Known {
    fn new(key: Key, isolates_tenants: bool) -> Arc<Known> {
        let principal = Arc::new(principal_of(&key, isolates_tenants));
        Arc::new(Known { key, principal })
    }
}

impl Keys {
    fn new(all: Vec<Arc<Known>>) -> Keys {
        let mut keys = Keys::default();
        for known in &all {
            let Known { key, principal } = &**known;
            if !key.cert_cn.is_empty() {
                keys.by_certificate.insert(key.cert_cn.clone(), principal.clone());
            }
            if key.digest.is_some() {
                keys.by_token.entry(key.fingerprint).or_default().push(known.clone());
            }
        }
        keys.all = all;
        keys
    }

    fn find(&self, token: &[u8]) -> Option<&Arc<Known>> {
        let alike = self.by_token.get(&listed_fingerprint(token))?;
        alike.iter().find(|known| known.key.is_of(token))
    }
}

/// The principal of an API key.
fn principal_of(key: &Key, isolates_tenants: bool) -> Principal {
    let name = match (key.cert_cn.as_str(), &key.digest) {
        ("", Some(_)) => format!("token:{}", hex(&key.fingerprint)),
        (common_name, _) => common_name.to_owned(),
    };
    Principal {
        name,
        means: Means::Key,
        tenant: key.tenant.clone(),
        scopes: key.allowed(),
        is_isolated: isolates_tenants && key.tenant != ALL_TENANTS,
        valid_until_s: FOREVER,
        meter: Meter::new(key.limits),
    }
}

/// A key that is to be added.
#[derive(Clone, PartialEq, Eq)]
pub struct NewKey {
    /// The secret.
    pub token: String,
    /// Whose collections it is for; [`ALL_TENANTS`] = everybody's.
    pub tenant: String,
    /// What it may do.
    pub scopes: Vec<String>,
    /// The common name of a client certificate that stands for it; empty = none.
    pub cert_cn: String,
    /// How much may be asked of the server with the API key.
    pub limits: KeyLimits,
}

/// The token is a secret.
impl fmt::Debug for NewKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let NewKey { token: _, tenant, scopes, cert_cn, limits } = self;
        let mut shown = f.debug_struct("NewKey");
        shown.field("tenant", tenant).field("scopes", scopes).field("cert_cn", cert_cn);
        shown.field("limits", limits).finish()
    }
}

/// A key as listings show it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ListedKey {
    /// The first 8 bytes of the SHA-256 digest of the token.
    pub fingerprint: [u8; 8],
    /// See [`NewKey::tenant`].
    pub tenant: String,
    /// See [`NewKey::scopes`].
    pub scopes: Vec<String>,
    /// See [`NewKey::cert_cn`].
    pub cert_cn: String,
    /// How much may be asked of the server with the API key.
    pub limits: KeyLimits,
}

/// Who sends a request, as long as it is carried out.
#[derive(Debug, Default)]
pub struct Caller {
    token: Secret,
    certificate: Option<String>,
}

impl Caller {
    /// The sender with these credentials.
    pub fn new(credentials: Credentials<'_>) -> Caller {
        let certificate = credentials.certificate.map(str::to_owned);
        Caller { token: Secret::new(credentials.token.unwrap_or_default()), certificate }
    }
}

/// Why a change of the registry was refused.
#[derive(Debug)]
pub enum KeyError {
    /// The key is wrong, in a sentence.
    Invalid(String),
    /// There is a key with this token.
    Exists,
    /// There is no key with this token.
    Unknown,
    /// The sender of the request would lose the right to change API keys.
    WouldLockOut,
    /// The file could not be written. The registry is as before; after a restart it is what the file says.
    Unwritten(io::Error),
}

impl NewKey {
    /// Checks a key by itself.
    ///
    /// # Errors
    /// A sentence that names the field.
    pub fn check(&self) -> Result<(), String> {
        for (field, text, most) in [
            ("token", &self.token, TOKEN_MAX_BYTES),
            ("tenant", &self.tenant, TEXT_MAX_BYTES),
            ("cert_cn", &self.cert_cn, TEXT_MAX_BYTES),
        ] {
            if text.is_empty() && field == "token" {
                return Err("key: token is required".to_owned());
            }
            if text.len() > most {
                return Err(format!("key: {field} has {} bytes; at most {most} are allowed", text.len()));
            }
        }
        if self.scopes.len() > SCOPES_MAX {
            return Err(format!("key: {} scopes; a key may have at most {SCOPES_MAX}", self.scopes.len()));
        }
        for scope in &self.scopes {
            if scope.len() > TEXT_MAX_BYTES {
                return Err(format!(
                    "key: a scope has {} bytes; at most {TEXT_MAX_BYTES} are allowed",
                    scope.len()
                ));
            }
            Scope::parse(scope).map_err(|reason| format!("key: {reason}"))?;
        }
        self.limits.check().map_err(|reason| format!("key: {reason}"))
    }
}

impl Registry {
    /// A registry of these keys, which are those of `store`.
    ///
    /// # Errors
    /// A key belongs to one tenant and nothing would hold it to that: without isolation only scopes decide.
    pub fn new(
        keys: Vec<Key>,
        store: Box<dyn KeysStore>,
        settings: RegistrySettings,
    ) -> Result<Registry, String> {
        check_tenants(&keys, &settings)?;
        let known = |key| Known::new(key, settings.isolates_tenants);
        let keys = Keys::new(keys.into_iter().map(known).collect());
        Ok(Registry {
            keys: RwLock::new(Arc::new(keys)),
            generation: AtomicU64::new(0),
            store,
            changing: Mutex::new(()),
            settings,
            internal: Arc::new(Principal::unrestricted(Means::InternalToken, "internal")),
            jwt: RwLock::new(None),
        })
    }

    fn keys(&self) -> Arc<Keys> {
        self.keys.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// From now on tokens that `verifier` accepts count, and no others that are signed.
    pub fn accept_jwt(&self, verifier: JwtVerifier) {
        *self.jwt.write().unwrap_or_else(PoisonError::into_inner) = Some(Arc::new(verifier));
        self.generation.fetch_add(1, Ordering::Release);
    }

    /// The principal of a signed token.
    fn signed(&self, token: &[u8], now_s: u64) -> Result<Arc<Principal>, Reason> {
        let verifier = self.jwt.read().unwrap_or_else(PoisonError::into_inner).clone();
        let verifier = verifier.filter(|_| looks_like_jwt(token)).ok_or(Reason::TokenNotFound)?;
        let claims = verifier.verify(token, now_s).map_err(|refusal| {
            tracing::debug!(target: "nigh", %refusal, "a signed token was refused");
            Reason::JwtInvalid
        })?;
        let name = match claims.subject.as_str() {
            "" => format!("jwt:{}", hex(&listed_fingerprint(token))),
            subject => subject.to_owned(),
        };
        Ok(Arc::new(Principal {
            name,
            means: Means::Jwt,
            is_isolated: self.settings.isolates_tenants && claims.tenant != ALL_TENANTS,
            tenant: claims.tenant,
            // What is no scope allows nothing.
            scopes: claims.scopes.iter().filter_map(|scope| Scope::parse(scope).ok()).collect(),
            valid_until_s: claims.valid_until_s,
            meter: None,
        }))
    }

    /// All keys, in the order in which they were added.
    pub fn list(&self) -> Vec<ListedKey> {
        let listed = |key: &Key| ListedKey {
            fingerprint: key.fingerprint,
            tenant: key.tenant.clone(),
            scopes: key.scopes.clone(),
            cert_cn: key.cert_cn.clone(),
            limits: key.limits,
        };
        self.keys().all.iter().map(|known| listed(&known.key)).collect()
    }

    /// Adds a key. It is durable when this returns, which may block.
    ///
    /// # Errors
    /// See [`KeyError`].
    pub fn add(&self, key: &NewKey) -> Result<(), KeyError> {
        key.check().map_err(KeyError::Invalid)?;
        if !self.settings.isolates_tenants && !is_for_all(&key.tenant) {
            return Err(KeyError::Invalid(format!(
                "key: the tenant must be {ALL_TENANTS:?}, because the server runs without -tenant-isolation and would not confine the API key to {:?}",
                key.tenant
            )));
        }
        self.change(|keys| {
            if keys.find(key.token.as_bytes()).is_some() {
                return Err(KeyError::Exists);
            }
            if keys.all.len() >= KEYS_MAX {
                return Err(KeyError::Invalid(format!(
                    "key: there are {KEYS_MAX} keys already, and more are not allowed"
                )));
            }
            let added = Key::new(key.token.as_bytes(), &key.tenant, key.scopes.clone(), &key.cert_cn);
            let added = Known::new(added.with_limits(key.limits), self.settings.isolates_tenants);
            Ok(keys.all.iter().cloned().chain([added]).collect())
        })
    }

    /// Revokes a key. When this returns, which may block, the change is durable and every decision from now on knows of it.
    ///
    /// # Errors
    /// See [`KeyError`].
    pub fn revoke(&self, token: &str) -> Result<(), KeyError> {
        self.change(|keys| {
            let revoked = keys.find(token.as_bytes()).ok_or(KeyError::Unknown)?.key.fingerprint;
            // A file that was written by hand may have the token twice, once as a digest.
            let is_revoked = |key: &Key| key.fingerprint == revoked && key.is_of(token.as_bytes());
            Ok(keys.all.iter().filter(|known| !is_revoked(&known.key)).cloned().collect())
        })
    }

    /// The text of the API key file as it is now, without tokens.
    pub fn text(&self) -> Vec<u8> {
        keys_file::write(&self.keys().all.iter().map(|known| &known.key).collect::<Vec<_>>())
    }

    /// Replaces all API keys by those of a file. When this returns, which may block, the change is durable and every decision from now on knows of it.
    /// API keys with tokens that are in both keep what was used of their limits.
    ///
    /// # Errors
    /// [`KeyError::Invalid`] if the text is not that of a file that this server would start with; [`KeyError::WouldLockOut`] if `caller` had not the right
    /// `admin` on everything at `now_s` by the new API keys; [`KeyError::Unwritten`].
    pub fn replace(&self, text: &[u8], caller: &Caller, now_s: u64) -> Result<(), KeyError> {
        let keys = keys_file::read(text).map_err(KeyError::Invalid)?.keys;
        check_tenants(&keys, &self.settings).map_err(KeyError::Invalid)?;
        self.change(|present| {
            let as_present = |key: Key| {
                let mut alike = present.by_token.get(&key.fingerprint).into_iter().flatten();
                let found = alike.find(|known| known.key == key).cloned();
                found.unwrap_or_else(|| Known::new(key, self.settings.isolates_tenants))
            };
            let all: Vec<Arc<Known>> = keys.into_iter().map(as_present).collect();
            let credentials =
                Credentials { token: Some(caller.token.bytes()), certificate: caller.certificate.as_deref() };
            let principal = self.identify_among(&Keys::new(all.clone()), credentials, now_s);
            match principal.is_ok_and(|principal| principal.decide(Action::Admin, "").is_ok()) {
                true => Ok(all),
                false => Err(KeyError::WouldLockOut),
            }
        })
    }

    fn change(
        &self,
        changed: impl FnOnce(&Keys) -> Result<Vec<Arc<Known>>, KeyError>,
    ) -> Result<(), KeyError> {
        let _one_at_a_time: MutexGuard<'_, ()> = self.changing.lock().unwrap_or_else(PoisonError::into_inner);
        let all = changed(&self.keys())?;
        let text = keys_file::write(&all.iter().map(|known| &known.key).collect::<Vec<_>>());
        if text.len() as u64 > FILE_MAX_BYTES {
            return Err(KeyError::Invalid(format!(
                "key: the API key file would have {} bytes; at most {FILE_MAX_BYTES} are allowed",
                text.len()
            )));
        }
        self.store.replace(&text).map_err(KeyError::Unwritten)?;
        *self.keys.write().unwrap_or_else(PoisonError::into_inner) = Arc::new(Keys::new(all));
        self.generation.fetch_add(1, Ordering::Release);
        Ok(())
    }

    /// Says whose credentials are where the API keys are `keys`.
    fn identify_among(
        &self,
        keys: &Keys,
        credentials: Credentials<'_>,
        now_s: u64,
    ) -> Result<Arc<Principal>, Reason> {
        let Some(token) = credentials.token.filter(|token| !token.is_empty()) else {
            // Only who shows no token is known by a certificate.
            let common_name = credentials.certificate.ok_or(Reason::NoPrincipal)?;
            return keys.by_certificate.get(common_name).cloned().ok_or(Reason::CertNotFound);
        };
        if self.is_internal(token) {
            return Ok(self.internal.clone());
        }
        match keys.find(token) {
            Some(known) => Ok(known.principal.clone()),
            None => self.signed(token, now_s),
        }
    }

    fn is_internal(&self, token: &[u8]) -> bool {
        self.settings.internal_token.as_ref().is_some_and(|internal| internal.is_of(token))
    }
}

/// Refuses API keys that belong to one tenant where nothing would hold them to that.
fn check_tenants(keys: &[Key], settings: &RegistrySettings) -> Result<(), String> {
    match keys.iter().find(|key| !settings.isolates_tenants && !is_for_all(&key.tenant)) {
        None => Ok(()),
        Some(key) => Err(format!(
            "an API key has the tenant {:?}, which has no effect without -tenant-isolation: set that flag, or give the API key the tenant {ALL_TENANTS:?}",
            key.tenant
        )),
    }
}

/// Whether a key of this tenant is for the collections of all tenants. The empty tenant is, unless tenants are isolated.
fn is_for_all(tenant: &str) -> bool {
    tenant.is_empty() || tenant == ALL_TENANTS
}

impl Authenticator for Registry {
    fn identify(&self, credentials: Credentials<'_>, now_s: u64) -> Result<Arc<Principal>, Reason> {
        self.identify_among(&self.keys(), credentials, now_s)
    }

    fn audits(&self) -> bool {
        self.settings.audits
    }

    fn generation(&self) -> u64 {
        self.generation.load(Ordering::Acquire)
    }

    fn registry(&self) -> Option<&Registry> {
        Some(self)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::auth::meter::{Limit, Presence};
    use std::sync::atomic::AtomicBool;

    /// Keeps the text in memory and can be told to fail.
    #[derive(Default)]
    struct Memory {
        text: Mutex<Vec<u8>>,
        fails: AtomicBool,
    }

    impl KeysStore for Arc<Memory> {
        fn replace(&self, text: &[u8]) -> io::Result<()> {
            if self.fails.load(Ordering::Relaxed) {
                return Err(io::Error::other("the disk is full"));
            }
            *self.text.lock().unwrap() = text.to_vec();
            Ok(())
        }
    }

    fn key(token: &str, tenant: &str, scopes: &[&str]) -> NewKey {
        let scopes = scopes.iter().map(|&scope| scope.to_owned()).collect();
        let (token, tenant, cert_cn) = (token.to_owned(), tenant.to_owned(), String::new());
        NewKey { token, tenant, scopes, cert_cn, limits: KeyLimits::default() }
    }

    fn registry(isolates_tenants: bool) -> (Registry, Arc<Memory>) {
        let store = Arc::new(Memory::default());
        let settings = RegistrySettings {
            internal_token: Some(SecretDigest::of(b"inside")),
            isolates_tenants,
            audits: false,
        };
        (Registry::new(Vec::new(), Box::new(store.clone()), settings).unwrap(), store)
    }

    fn may(registry: &Registry, token: &str, action: Action, resource: &str) -> bool {
        let principal = registry.identify(Credentials::token(Some(token.as_bytes())), 0);
        principal.is_ok_and(|principal| principal.decide(action, resource).is_ok())
    }

    #[test]
    fn scopes_and_tenants_decide() {
        use Action::{Admin, Read, Write};
        let (registry, _) = registry(true);
        registry.add(&key("acme", "acme", &["read:*", "write:acme/docs", "admin:other/*"])).unwrap();
        registry.add(&key("all", "*", &["read:*"])).unwrap();
        for (token, action, resource, expected) in [
            ("acme", Read, "acme/docs", true),
            ("acme", Write, "acme/docs", true),
            ("acme", Write, "acme/notes", false),
            ("acme", Read, "default/docs", false),
            // A scope does not reach over the boundary of the tenant.
            ("acme", Admin, "other/docs", false),
            // What has no collection is outside of every tenant.
            ("acme", Read, "", false),
            ("all", Read, "acme/docs", true),
            ("all", Read, "", true),
            ("all", Write, "acme/docs", false),
            ("inside", Admin, "", true),
            ("nobody", Read, "acme/docs", false),
            ("", Read, "acme/docs", false),
        ] {
            assert_eq!(may(&registry, token, action, resource), expected, "{token} {action:?} {resource}");
        }
        let reason = |token: &str, action, resource| {
            let principal = registry.identify(Credentials::token(Some(token.as_bytes())), 0)?;
            principal.decide(action, resource)
        };
        assert_eq!(reason("acme", Read, "acme/docs"), Ok(Reason::ScopeMatch));
        assert_eq!(reason("acme", Write, "acme/notes"), Err(Reason::ScopeMiss));
        assert_eq!(reason("acme", Read, "default/docs"), Err(Reason::TenantMismatch));
        assert_eq!(reason("nobody", Read, "acme/docs"), Err(Reason::TokenNotFound));
        assert_eq!(reason("", Read, "acme/docs"), Err(Reason::NoPrincipal));
        assert_eq!(reason("inside", Admin, ""), Ok(Reason::InternalToken));
    }

    #[test]
    fn a_certificate_counts_only_without_a_token() {
        let (registry, _) = registry(false);
        let with_certificate = |token: &str| {
            let cert_cn = "worker".to_owned();
            NewKey { cert_cn, ..key(token, "*", &["read:*"]) }
        };
        registry.add(&with_certificate("first")).unwrap();
        registry.add(&NewKey { scopes: vec!["write:*".to_owned()], ..with_certificate("second") }).unwrap();
        let may = |token: Option<&[u8]>, certificate, action| {
            let principal = registry.identify(Credentials { token, certificate }, 0)?;
            principal.decide(action, "default/docs")
        };
        assert_eq!(may(None, Some("worker"), Action::Write), Ok(Reason::ScopeMatch), "the last key with it");
        assert_eq!(may(Some(b""), Some("worker"), Action::Read), Err(Reason::ScopeMiss));
        assert_eq!(
            may(Some(b"first"), Some("worker"), Action::Read),
            Ok(Reason::ScopeMatch),
            "the token decides"
        );
        assert_eq!(may(Some(b"wrong"), Some("worker"), Action::Write), Err(Reason::TokenNotFound));
        assert_eq!(may(None, Some("other"), Action::Write), Err(Reason::CertNotFound));
        registry.revoke("second").unwrap();
        assert_eq!(
            may(None, Some("worker"), Action::Read),
            Ok(Reason::ScopeMatch),
            "the earlier key has it again"
        );
        assert_eq!(registry.identify(Credentials::default(), 0).unwrap_err(), Reason::NoPrincipal);
        let named = registry.identify(Credentials { token: None, certificate: Some("worker") }, 0).unwrap();
        assert_eq!(named.name, "worker");
    }

    #[test]
    fn changes_count_at_once_and_are_in_the_file() {
        let (registry, store) = registry(false);
        let before = registry.generation();
        registry.add(&key("one", "*", &["read:*"])).unwrap();
        registry.add(&key("two", "*", &["*:*"])).unwrap();
        assert!(matches!(registry.add(&key("one", "*", &[])), Err(KeyError::Exists)));
        assert!(may(&registry, "one", Action::Read, "default/docs"));
        assert!(registry.generation() > before);
        let kept = || keys_file::read(&store.text.lock().unwrap()).unwrap().keys;
        assert_eq!(kept().len(), 2);
        store.fails.store(true, Ordering::Relaxed);
        let before = registry.generation();
        assert!(matches!(registry.revoke("one"), Err(KeyError::Unwritten(_))));
        assert!(may(&registry, "one", Action::Read, "default/docs") && registry.generation() == before);
        store.fails.store(false, Ordering::Relaxed);
        registry.revoke("one").unwrap();
        assert!(!may(&registry, "one", Action::Read, "default/docs"));
        assert!(matches!(registry.revoke("one"), Err(KeyError::Unknown)));
        let left = kept();
        assert!(left.len() == 1 && left[0].is_of(b"two"));
        assert_eq!(registry.list().len(), 1);
        // A registry that opens the file decides the same.
        let settings = RegistrySettings::default();
        let opened = Registry::new(left, Box::new(store.clone()), settings).unwrap();
        assert!(may(&opened, "two", Action::Admin, "") && !may(&opened, "one", Action::Read, "default/docs"));
    }

    #[test]
    fn what_is_used_of_limits_lasts_as_long_as_the_key() {
        let (registry, store) = registry(false);
        let limits = KeyLimits { requests_per_second: 1, bytes_per_second: 0, connections: 1 };
        registry.add(&NewKey { limits, ..key("limited", "*", &["read:*"]) }).unwrap();
        let meter = |token: &str| {
            let principal = registry.identify(Credentials::token(Some(token.as_bytes())), 0).unwrap();
            principal.meter.clone()
        };
        let (first, connection) = (meter("limited").unwrap(), Presence::default());
        assert_eq!(first.charge(&connection, 0), Ok(()));
        assert!(first.charge(&connection, 0).is_err());
        registry.add(&key("other", "*", &["read:*"])).unwrap();
        assert!(meter("other").is_none());
        assert_eq!(meter("limited"), Some(first.clone()), "another key does not change what was used of it");
        assert_eq!(registry.list()[0].limits, limits);
        let kept = keys_file::read(&store.text.lock().unwrap()).unwrap().keys;
        assert_eq!((kept[0].limits, kept[1].limits), (limits, KeyLimits::default()));
        // It begins anew, whatever the connections of the old one do.
        registry.revoke("limited").unwrap();
        registry.add(&NewKey { limits, ..key("limited", "*", &["read:*"]) }).unwrap();
        let (second, other) = (meter("limited").unwrap(), Presence::default());
        assert_ne!(second, first);
        assert_eq!(second.charge(&connection, 0), Ok(()), "the connection moves to the new one");
        assert_eq!(second.charge(&other, 0).unwrap_err().limit, Limit::Connections);
        assert_eq!(first.charge(&other, 2_000_000_000), Ok(()), "nothing counts for the old one any more");
        drop(connection);
        assert_eq!(second.charge(&other, 2_000_000_000), Ok(()));
    }

    #[test]
    fn a_token_that_is_in_the_file_twice_is_revoked_twice() {
        let keys =
            vec![Key::new(b"a", "*", vec!["read:*".to_owned()], ""), Key::new(b"a", "*", Vec::new(), "")];
        let store = Box::new(Arc::new(Memory::default()));
        let registry = Registry::new(keys, store, RegistrySettings::default()).unwrap();
        registry.revoke("a").unwrap();
        assert!(registry.list().is_empty() && !may(&registry, "a", Action::Read, "default/docs"));
    }

    #[test]
    fn a_file_replaces_all_keys_at_once_or_changes_nothing() {
        let (registry, store) = registry(false);
        let certificate = NewKey { cert_cn: "boss".to_owned(), ..key("boss", "*", &["*:*"]) };
        let limits = KeyLimits { connections: 5, ..KeyLimits::default() };
        let limited = NewKey { limits, ..key("kept", "*", &["read:*"]) };
        for key in [&key("admin", "*", &["admin:*"]), &limited, &certificate] {
            registry.add(key).unwrap();
        }
        let text = registry.text();
        assert_eq!(text, *store.text.lock().unwrap());
        assert!(!String::from_utf8(text.clone()).unwrap().contains("admin\","), "no token is in it");
        let meter = |registry: &Registry| {
            registry.identify(Credentials::token(Some(b"kept")), 0).unwrap().meter.clone().unwrap()
        };
        let used = meter(&registry);
        registry.revoke("boss").unwrap();
        registry.add(&key("later", "*", &["*:*"])).unwrap();
        let of = |token: &str| Caller::new(Credentials::token(Some(token.as_bytes())));
        let changed = (registry.text(), registry.generation());
        let unchanged = |registry: &Registry| {
            assert_eq!((registry.text(), registry.generation()), changed);
            assert_eq!(*store.text.lock().unwrap(), changed.0);
            assert!(may(registry, "later", Action::Admin, "") && !may(registry, "boss", Action::Admin, ""));
        };
        // Whoever would not be an administrator by the file may not bring it back, whatever he is now.
        let nobody = Caller::default();
        let by_certificate = |name| Caller::new(Credentials { token: None, certificate: Some(name) });
        for caller in [of("later"), of("kept"), of("nobody"), nobody, by_certificate("other")] {
            assert!(matches!(registry.replace(&text, &caller, 0), Err(KeyError::WouldLockOut)));
            unchanged(&registry);
        }
        for (bad, why) in [
            (&b"{"[..], "it is not JSON"),
            (b"[1]", "record 0 must be an object"),
            (br#"[{"token": "admin", "tenant": "acme", "scopes": ["*:*"]}]"#, "-tenant-isolation"),
        ] {
            match registry.replace(bad, &of("admin"), 0) {
                Err(KeyError::Invalid(reason)) => assert!(reason.contains(why), "{reason}"),
                other => panic!("{other:?}"),
            }
            unchanged(&registry);
        }
        store.fails.store(true, Ordering::Relaxed);
        assert!(matches!(registry.replace(&text, &of("admin"), 0), Err(KeyError::Unwritten(_))));
        unchanged(&registry);
        store.fails.store(false, Ordering::Relaxed);
        for caller in [of("admin"), of("boss"), of("inside"), by_certificate("boss")] {
            registry.replace(&text, &caller, 0).unwrap();
            assert_eq!((registry.text(), &*store.text.lock().unwrap()), (text.clone(), &text));
            assert!(may(&registry, "boss", Action::Admin, "") && !may(&registry, "later", Action::Admin, ""));
        }
        assert!(registry.generation() > changed.1);
        assert_eq!(meter(&registry), used, "an API key that was there keeps what was used of its limits");
        assert!(!format!("{:?}", of("s3cret")).contains("s3cret"));
    }

    #[test]
    fn wrong_keys_are_refused_by_their_fields() {
        let (registry, _) = registry(false);
        let long = "x".repeat(TOKEN_MAX_BYTES + 1);
        for (wrong, reason) in [
            (key("", "*", &[]), "token is required"),
            (key(&long, "*", &[]), "token has 4097 bytes; at most 4096"),
            (key("t", "*", &["reads:*"]), "\"reads:*\" is not a scope"),
            (
                NewKey {
                    limits: KeyLimits { connections: 1_000_001, ..KeyLimits::default() },
                    ..key("t", "*", &[])
                },
                "key: connections is 1000001; it must be between 1 and 1000000, or 0 for no limit",
            ),
            (key("t", "*", &["read:*"; SCOPES_MAX + 1]), "1025 scopes; a key may have at most 1024"),
            (
                key("t", "acme", &[]),
                "the tenant must be \"*\", because the server runs without -tenant-isolation",
            ),
        ] {
            match registry.add(&wrong) {
                Err(KeyError::Invalid(found)) => assert!(found.contains(reason), "{found}"),
                other => panic!("{wrong:?}: {other:?}"),
            }
        }
        assert!(!format!("{:?}", key("t0p", "*", &[])).contains("t0p"));
        let keys = vec![Key::new(b"t", "acme", Vec::new(), "")];
        let store = Box::new(Arc::new(Memory::default()));
        let refusal = Registry::new(keys, store, RegistrySettings::default()).err().unwrap();
        assert!(refusal.contains("\"acme\"") && refusal.contains("-tenant-isolation"), "{refusal}");
    }
}
