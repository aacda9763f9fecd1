//! The registry of keys: many keys, each of a tenant and with scopes, in a file that changes with them.

use super::keys_file::{self, FILE_MAX_BYTES, KEYS_MAX, Key, TOKEN_MAX_BYTES};
use super::scope::Scope;
use super::secret::{SecretDigest, listed_fingerprint};
use super::{Authenticator, Unauthorized};
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

/// Where the text of the file of keys is kept.
pub trait KeysStore: Send + Sync {
    /// Replaces the text as a whole, durably. This may block.
    ///
    /// # Errors
    /// The text is as before, or as it should be: which of the two is open.
    fn replace(&self, text: &[u8]) -> io::Result<()>;
}

/// Knows the keys of one process. All cores share it.
pub struct Registry {
    keys: RwLock<Arc<Keys>>,
    /// Goes up with each change, after the change.
    generation: AtomicU64,
    store: Box<dyn KeysStore>,
    /// Held while a change is being written.
    changing: Mutex<()>,
    settings: RegistrySettings,
}

/// How a registry decides.
#[derive(Clone, Debug, Default)]
pub struct RegistrySettings {
    /// The token that nodes of a cluster show each other, which may do everything.
    pub internal_token: Option<SecretDigest>,
    /// A key may only act on collections of its own tenant.
    pub isolates_tenants: bool,
}

/// The keys at one time.
#[derive(Default)]
struct Keys {
    /// In the order of the file.
    all: Vec<Arc<Key>>,
    /// Those that have a token, by its fingerprint. Two tokens may have one fingerprint.
    by_token: HashMap<[u8; 8], Vec<Arc<Key>>>,
}

impl Keys {
    fn new(all: Vec<Arc<Key>>) -> Keys {
        let mut by_token: HashMap<[u8; 8], Vec<Arc<Key>>> = HashMap::default();
        for key in all.iter().filter(|key| key.digest.is_some()) {
            by_token.entry(key.fingerprint).or_default().push(key.clone());
        }
        Keys { all, by_token }
    }

    fn find(&self, token: &[u8]) -> Option<&Arc<Key>> {
        let alike = self.by_token.get(&listed_fingerprint(token))?;
        alike.iter().find(|key| key.is_of(token))
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
}

/// The token is a secret.
impl fmt::Debug for NewKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let NewKey { token: _, tenant, scopes, cert_cn } = self;
        write!(f, "NewKey {{ tenant: {tenant:?}, scopes: {scopes:?}, cert_cn: {cert_cn:?} }}")
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
    /// The file could not be written. The registry is as before.
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
        Ok(())
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
        if !settings.isolates_tenants
            && let Some(key) = keys.iter().find(|key| !is_for_all(&key.tenant))
        {
            return Err(format!(
                "a key belongs to the tenant {:?}, and nothing would hold it to that: set -tenant-isolation, or give the key the tenant {ALL_TENANTS:?}",
                key.tenant
            ));
        }
        let keys = Keys::new(keys.into_iter().map(Arc::new).collect());
        Ok(Registry {
            keys: RwLock::new(Arc::new(keys)),
            generation: AtomicU64::new(0),
            store,
            changing: Mutex::new(()),
            settings,
        })
    }

    fn keys(&self) -> Arc<Keys> {
        self.keys.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// All keys, in the order in which they were added.
    pub fn list(&self) -> Vec<ListedKey> {
        let listed = |key: &Arc<Key>| ListedKey {
            fingerprint: key.fingerprint,
            tenant: key.tenant.clone(),
            scopes: key.scopes.clone(),
            cert_cn: key.cert_cn.clone(),
        };
        self.keys().all.iter().map(listed).collect()
    }

    /// Adds a key. It is durable when this returns, which may block.
    ///
    /// # Errors
    /// See [`KeyError`].
    pub fn add(&self, key: &NewKey) -> Result<(), KeyError> {
        key.check().map_err(KeyError::Invalid)?;
        if !self.settings.isolates_tenants && !is_for_all(&key.tenant) {
            return Err(KeyError::Invalid(format!(
                "key: the tenant must be {ALL_TENANTS:?}, as the server was started without -tenant-isolation and would not hold the key to {:?}",
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
            Ok(keys.all.iter().cloned().chain([Arc::new(added)]).collect())
        })
    }

    /// Revokes a key. When this returns, which may block, the change is durable and every decision from now on knows of it.
    ///
    /// # Errors
    /// See [`KeyError`].
    pub fn revoke(&self, token: &str) -> Result<(), KeyError> {
        self.change(|keys| {
            let revoked = keys.find(token.as_bytes()).ok_or(KeyError::Unknown)?;
            Ok(keys.all.iter().filter(|key| !Arc::ptr_eq(key, revoked)).cloned().collect())
        })
    }

    fn change(&self, changed: impl FnOnce(&Keys) -> Result<Vec<Arc<Key>>, KeyError>) -> Result<(), KeyError> {
        let _one_at_a_time: MutexGuard<'_, ()> = self.changing.lock().unwrap_or_else(PoisonError::into_inner);
        let all = changed(&self.keys())?;
        let text = keys_file::write(&all.iter().map(|key| &**key).collect::<Vec<_>>());
        if text.len() as u64 > FILE_MAX_BYTES {
            return Err(KeyError::Invalid(format!(
                "key: the file of keys would have {} bytes; at most {FILE_MAX_BYTES} are allowed",
                text.len()
            )));
        }
        self.store.replace(&text).map_err(KeyError::Unwritten)?;
        *self.keys.write().unwrap_or_else(PoisonError::into_inner) = Arc::new(Keys::new(all));
        self.generation.fetch_add(1, Ordering::Release);
        Ok(())
    }

    /// Whether a key may act on `resource` as far as its tenant goes.
    fn is_in_bounds(&self, key: &Key, resource: &str) -> bool {
        if !self.settings.isolates_tenants || key.tenant == ALL_TENANTS {
            return true;
        }
        resource.split_once('/').is_some_and(|(tenant, _)| tenant == key.tenant)
    }

    fn is_internal(&self, token: &[u8]) -> bool {
        self.settings.internal_token.as_ref().is_some_and(|internal| internal.is_of(token))
    }
}

/// Whether a key of this tenant is for the collections of all tenants. The empty tenant is, unless tenants are isolated.
fn is_for_all(tenant: &str) -> bool {
    tenant.is_empty() || tenant == ALL_TENANTS
}

impl Authenticator for Registry {
    fn authenticate(&self, token: Option<&[u8]>) -> Result<(), Unauthorized> {
        let token = token.filter(|token| !token.is_empty()).ok_or(Unauthorized)?;
        if self.is_internal(token) || self.keys().find(token).is_some() { Ok(()) } else { Err(Unauthorized) }
    }

    fn authorize(&self, token: Option<&[u8]>, action: Action, resource: &str) -> Result<(), Unauthorized> {
        let token = token.filter(|token| !token.is_empty()).ok_or(Unauthorized)?;
        if self.is_internal(token) {
            return Ok(());
        }
        let keys = self.keys();
        let key = keys.find(token).ok_or(Unauthorized)?;
        let is_allowed = key.allowed.iter().any(|scope| scope.allows(action, resource));
        if is_allowed && self.is_in_bounds(key, resource) { Ok(()) } else { Err(Unauthorized) }
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
        NewKey { token: token.to_owned(), tenant: tenant.to_owned(), scopes, cert_cn: String::new() }
    }

    fn registry(isolates_tenants: bool) -> (Registry, Arc<Memory>) {
        let store = Arc::new(Memory::default());
        let settings =
            RegistrySettings { internal_token: Some(SecretDigest::of(b"inside")), isolates_tenants };
        (Registry::new(Vec::new(), Box::new(store.clone()), settings).unwrap(), store)
    }

    fn may(registry: &Registry, token: &str, action: Action, resource: &str) -> bool {
        registry.authorize(Some(token.as_bytes()), action, resource).is_ok()
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
        assert_eq!(registry.authorize(None, Read, "acme/docs"), Err(Unauthorized));
        assert!(registry.authenticate(Some(b"acme")).is_ok() && registry.authenticate(Some(b"acm")).is_err());
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
    fn wrong_keys_are_refused_by_their_fields() {
        let (registry, _) = registry(false);
        let long = "x".repeat(TOKEN_MAX_BYTES + 1);
        for (wrong, reason) in [
            (key("", "*", &[]), "token is required"),
            (key(&long, "*", &[]), "token has 4097 bytes; at most 4096"),
            (key("t", "*", &["reads:*"]), "\"reads:*\" is not a scope"),
            (key("t", "*", &["read:*"; SCOPES_MAX + 1]), "1025 scopes; a key may have at most 1024"),
            (
                key("t", "acme", &[]),
                "the tenant must be \"*\", as the server was started without -tenant-isolation",
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
