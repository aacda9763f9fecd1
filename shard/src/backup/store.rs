//! Objects under keys, behind a trait: a directory, a bucket of an object store, or memory.

use crate::disk::LocalBoxFuture;
use bytes::Bytes;

/// The longest key, bytes: object stores take no longer one.
pub const KEY_MAX_BYTES: usize = 1024;

/// The most bytes that one call of [`Store::read`] is asked for.
pub const READ_MAX_BYTES: usize = 16 << 20;

/// Objects that are written once, under keys such as `default/films/2025-01-31T10:00:00Z.snap`.
///
/// A key is text of 1 to [`KEY_MAX_BYTES`] bytes that [`check_key`] accepts. Each call is made on the thread of a core and returns at once; blocking
/// work is done on another thread, which wakes the core. Requests over a network have time limits, and are repeated only if that is safe, so each
/// call ends after a bounded time, with an error if necessary. The calls of a directory take as long as its file system does. If a future is dropped
/// before it is ready, its request may be carried out or not.
pub trait Store {
    /// Begins an object of unknown length. Nothing is visible under `key` until [`Upload::finish`].
    ///
    /// # Errors
    /// [`StoreError::BadKey`], [`StoreError::Refused`], [`StoreError::Unfit`], [`StoreError::Io`]. An object that has the key already is noticed by
    /// `finish`, not necessarily here.
    fn create(&self, key: &str) -> LocalBoxFuture<'_, Result<Box<dyn Upload>, StoreError>>;

    /// Reads `len` bytes of an object, from the offset `at`; fewer only if the object ends before that. `len` is at most [`READ_MAX_BYTES`].
    ///
    /// # Errors
    /// [`StoreError::NotFound`] and the errors of [`Self::create`].
    fn read(&self, key: &str, at: u64, len: usize) -> LocalBoxFuture<'_, Result<Bytes, StoreError>>;

    /// Returns a page of the objects whose keys begin with `prefix` (which ends with a slash or is empty), in the order of the bytes of their keys,
    /// after the key `after`. The next page is the one after [`Listing::next`].
    ///
    /// # Errors
    /// The errors of [`Self::create`]; they name `prefix` as the key.
    fn list(&self, prefix: &str, after: Option<&str>) -> LocalBoxFuture<'_, Result<Listing, StoreError>>;

    /// Removes an object. It is no error if there is none.
    ///
    /// # Errors
    /// The errors of [`Self::create`].
    fn delete(&self, key: &str) -> LocalBoxFuture<'_, Result<(), StoreError>>;
}

/// An object that is being written.
///
/// If an upload is dropped before [`Self::finish`], nothing of it stays: a multipart upload is aborted, a temporary file removed. What cannot be
/// removed then is removed by a later sweep.
pub trait Upload {
    /// Appends `bytes`. An upload holds a bounded amount in memory. The future is ready when the upload has accepted the bytes, which are not durable
    /// yet. After an error every further call fails in the same way.
    ///
    /// # Errors
    /// [`StoreError::Refused`], [`StoreError::Io`].
    fn write(&mut self, bytes: Bytes) -> LocalBoxFuture<'_, Result<(), StoreError>>;

    /// Makes the object durable and visible, only if no object has the key. After an error other than [`StoreError::Exists`] the object may be
    /// visible as a whole, but never in part: the answer to the last request may have been lost.
    ///
    /// # Errors
    /// [`StoreError::Exists`], which leaves the object that is there as it is, [`StoreError::Refused`], [`StoreError::Io`].
    fn finish(self: Box<Self>) -> LocalBoxFuture<'static, Result<(), StoreError>>;
}

/// A page of objects.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Listing {
    /// The objects, in the order of the bytes of their keys. A page may be empty although more follow.
    pub objects: Vec<Object>,
    /// What [`Store::list`] takes as `after` for the next page, if there is one.
    pub next: Option<String>,
}

/// What a store says about an object.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Object {
    /// Its key, in full.
    pub key: String,
    /// Its length, bytes.
    pub bytes: u64,
    /// When it became visible, by the clock of the store, Unix milliseconds; many stores know whole seconds only.
    pub modified_unix_ms: u64,
}

/// Why a request to a store failed. No text contains a credential.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum StoreError {
    /// The object that was to be created exists already.
    #[error("The object {key:?} exists already, and objects of backups are not overwritten.")]
    Exists {
        /// Its key.
        key: String,
    },
    /// There is no such object.
    #[error("The store has no object {key:?}.")]
    NotFound {
        /// The key that no object has.
        key: String,
    },
    /// The store refuses this server access; other credentials or rights are needed.
    #[error("The store refuses access to {key:?}: {why}.")]
    Refused {
        /// The object, or the prefix of a listing.
        key: String,
        /// What the store says, without a full stop.
        why: String,
    },
    /// No object can have this key.
    #[error("{key:?} cannot be the key of an object: {why}.")]
    BadKey {
        /// What was given.
        key: String,
        /// The rule that it breaks, without a full stop.
        why: String,
    },
    /// The store lacks a feature that backups need, or has data that must not be mixed with those of this server. No object was written.
    #[error("The store cannot take {key:?}: {why}.")]
    Unfit {
        /// The object that was to be written.
        key: String,
        /// What it lacks, without a full stop.
        why: String,
    },
    /// The object is not what was stored: it is cut or altered, of a newer build, or of another product.
    #[error("The object {key:?} is damaged: {why}.")]
    Damaged {
        /// Its key.
        key: String,
        /// What is wrong, without a full stop.
        why: String,
    },
    /// Reading or writing failed.
    #[error("The store failed at {key:?}: {why}.")]
    Io {
        /// The object, or the prefix of a listing.
        key: String,
        /// What failed, without a full stop.
        why: String,
        /// Whether the same call may succeed later.
        is_temporary: bool,
    },
}

impl StoreError {
    /// Whether the same call may succeed later without intervention.
    pub fn is_temporary(&self) -> bool {
        matches!(self, StoreError::Io { is_temporary: true, .. })
    }

    /// The object, or the prefix of a listing.
    pub fn key(&self) -> &str {
        match self {
            StoreError::Exists { key }
            | StoreError::NotFound { key }
            | StoreError::Refused { key, .. }
            | StoreError::BadKey { key, .. }
            | StoreError::Unfit { key, .. }
            | StoreError::Damaged { key, .. }
            | StoreError::Io { key, .. } => key,
        }
    }
}

/// Whether an object can have this key. Names from outside are escaped before they become parts of keys.
///
/// # Errors
/// [`StoreError::BadKey`]: the key is empty or too long, has an empty part, `.` or `..` between slashes, a backslash or a control character.
pub fn check_key(key: &str) -> Result<(), StoreError> {
    let why = if key.is_empty() {
        "it is empty"
    } else if key.len() > KEY_MAX_BYTES {
        "it is longer than 1024 bytes"
    } else if key.contains('\\') {
        "it has a backslash"
    } else if key.chars().any(char::is_control) {
        "it has a control character"
    } else if key.split('/').any(str::is_empty) {
        "a part between slashes is empty"
    } else if key.split('/').any(|part| part == "." || part == "..") {
        "a part between slashes is \".\" or \"..\""
    } else {
        return Ok(());
    };
    Err(StoreError::BadKey { key: key.to_owned(), why: why.to_owned() })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys() {
        for good in ["a", "default/films/2025-01-31T10:00:00Z.snap", "a%2Fb/.c/..d", "é/ü", &"k".repeat(1024)]
        {
            assert_eq!(check_key(good), Ok(()), "{good}");
        }
        for (bad, why) in [
            ("", "empty"),
            ("/a", "empty"),
            ("a//b", "empty"),
            ("a/", "empty"),
            ("..", "\"..\""),
            ("a/../b", "\"..\""),
            ("a/./b", "\".\""),
            ("a\\b", "backslash"),
            ("a\0", "control"),
            ("a\nb", "control"),
            (&"k".repeat(1025), "longer"),
        ] {
            let error = check_key(bad).unwrap_err();
            assert!(matches!(&error, StoreError::BadKey { key, .. } if key == bad), "{error}");
            assert!(error.to_string().contains(why), "{error}");
        }
    }

    #[test]
    fn errors_name_the_object_in_whole_sentences() {
        let (key, why) = ("t/a.snap".to_owned(), "the answer was 503".to_owned());
        for error in [
            StoreError::Exists { key: key.clone() },
            StoreError::NotFound { key: key.clone() },
            StoreError::Refused { key: key.clone(), why: why.clone() },
            StoreError::BadKey { key: key.clone(), why: why.clone() },
            StoreError::Unfit { key: key.clone(), why: why.clone() },
            StoreError::Damaged { key: key.clone(), why: why.clone() },
            StoreError::Io { key: key.clone(), why, is_temporary: true },
        ] {
            let text = error.to_string();
            assert!(text.contains("\"t/a.snap\"") && text.ends_with('.'), "{text}");
            assert_eq!(error.key(), key);
            assert_eq!(error.is_temporary(), matches!(error, StoreError::Io { .. }));
        }
    }
}
