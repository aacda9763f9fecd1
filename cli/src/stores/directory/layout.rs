//! Keys to paths and back.
//!
//! The parts of a key are directories and the last is a file; `:` in a part is written as `%3A`, because not every file system takes it. So a key
//! with `%3A` would have the file of another key, and is refused.

use nigh_shard::backup::{StoreError, check_key};
use std::path::{Path, PathBuf};

/// Holds files that are being written. No key begins with it.
pub(super) const UPLOADS: &str = ".nigh-uploads";

const COLON: &str = "%3A";

/// The longest name of a file that all usual file systems take, bytes.
const NAME_MAX_BYTES: usize = 255;

/// The file of the object `key`, below `root`.
///
/// # Errors
/// [`StoreError::BadKey`].
pub(super) fn path_of(root: &Path, key: &str) -> Result<PathBuf, StoreError> {
    check_key(key)?;
    let bad = |why: &str| Err(StoreError::BadKey { key: key.to_owned(), why: why.to_owned() });
    if key.contains(COLON) {
        return bad("it has \"%3A\", which stands for a colon in names of files");
    }
    if key.split('/').next() == Some(UPLOADS) {
        return bad("its first part is the directory of unfinished files");
    }
    let mut path = root.to_owned();
    for part in key.split('/') {
        let name = name_of(part);
        if name.len() > NAME_MAX_BYTES {
            return bad("a part between slashes has more than 255 bytes as the name of a file");
        }
        path.push(name);
    }
    Ok(path)
}

/// The name of a file or directory for a part of a key.
fn name_of(part: &str) -> String {
    part.replace(':', COLON)
}

/// The part of a key that a file or directory stands for; `None` for one that no key has.
pub(super) fn part_of(name: &str) -> Option<String> {
    let part = name.replace(COLON, ":");
    (!name.contains(':') && check_key(&part).is_ok()).then_some(part)
}

/// The directory of a prefix, which ends with a slash or is empty.
///
/// # Errors
/// [`StoreError::BadKey`].
pub(super) fn directory_of(root: &Path, prefix: &str) -> Result<PathBuf, StoreError> {
    match prefix.strip_suffix('/') {
        Some(key) => path_of(root, key),
        None if prefix.is_empty() => Ok(root.to_owned()),
        None => {
            Err(StoreError::BadKey { key: prefix.to_owned(), why: "a prefix ends with a slash".to_owned() })
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_become_paths_below_the_root() {
        let root = Path::new("/r");
        for (key, path) in [
            ("a", "/r/a"),
            ("default/f%2Fg/2025-01-31T10:00:00Z.snap", "/r/default/f%2Fg/2025-01-31T10%3A00%3A00Z.snap"),
            (".a/..b", "/r/.a/..b"),
        ] {
            assert_eq!(path_of(root, key).unwrap(), Path::new(path), "{key}");
            let name = path.rsplit('/').next().unwrap();
            assert_eq!(part_of(name).as_deref(), key.rsplit('/').next(), "{key}");
        }
        let long = "a".repeat(256);
        let colons = ":".repeat(86);
        for key in ["../a", "/a", "a/../../b", "a%3Ab", ".nigh-uploads/x", ".nigh-uploads", &long, &colons] {
            assert!(matches!(path_of(root, key), Err(StoreError::BadKey { .. })), "{key}");
        }
        for name in ["a:b", "a\nb", "a\\b"] {
            assert_eq!(part_of(name), None, "{name}");
        }
    }

    #[test]
    fn prefixes_are_directories() {
        let root = Path::new("/r");
        assert_eq!(directory_of(root, "").unwrap(), root);
        assert_eq!(directory_of(root, "a/b:/").unwrap(), Path::new("/r/a/b%3A"));
        for prefix in ["a", "/", "a//", "../"] {
            assert!(directory_of(root, prefix).is_err(), "{prefix}");
        }
    }
}
