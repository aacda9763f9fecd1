//! `keys/manifest.json`: how keys are spread over shards, and the images that hold them; replaced as a whole.
//!
//! As [`crate::sealed_json`] has it, with what [`Manifest`] has.

use crate::sealed_json::{self, Layout, Unreadable};
use nigh_engine::kv::KeyHasher;
use serde::{Deserialize, Serialize};
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

/// Directory of keys inside the data directory.
pub const DIR: &str = "keys";
/// File name inside it.
pub const FILE: &str = "manifest.json";
/// Where the files of a backup of keys lie while they are restored; a start removes what a kill leaves there.
pub const RESTORE_DIR: &str = "keys/restore";
/// Newest format this build reads and the one it writes.
pub const FORMAT: u32 = 1;

/// How the keys of a directory are kept.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Manifest {
    /// Of the hash that spreads keys over shards. Secret: who knows it can choose keys that share a bucket.
    pub seed: u64,
    /// Hash of a fixed key under `seed`: a build or a machine that hashes otherwise finds keys in other shards.
    pub probe: u64,
    /// Number of shards.
    pub shards: usize,
    /// Log records of shard `n` carry the uid `uid_base + n`.
    pub uid_base: u64,
    /// Oldest first.
    pub images: Vec<Image>,
}

/// One image file: the state or the changes of some shards.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Image {
    /// File in the directory.
    pub name: String,
    /// Its length.
    pub bytes: u64,
    /// It has all of these shards, so what older images have of them counts for nothing.
    pub is_base: bool,
    /// Shard, and the sequence number from which on the log is needed above the image.
    pub shards: Vec<(usize, u64)>,
}

impl Manifest {
    /// Of an empty store.
    pub fn new(seed: u64, shards: usize, uid_base: u64) -> Manifest {
        Manifest { seed, probe: probe_of(seed), shards, uid_base, images: Vec::new() }
    }

    /// Whether keys are where this process looks for them with so many shards.
    pub fn fits(&self, shards: usize) -> bool {
        self.shards == shards && self.probe == probe_of(self.seed)
    }

    /// The shard whose log records carry `uid`.
    pub fn shard_of(&self, uid: u64) -> Option<usize> {
        let shard = usize::try_from(uid.checked_sub(self.uid_base)?).ok()?;
        (shard < self.shards).then_some(shard)
    }

    /// Up to which sequence number images cover each shard.
    pub fn covered(&self) -> Vec<u64> {
        let mut covered = vec![0; self.shards];
        for (shard, seq) in self.images.iter().flat_map(|image| &image.shards) {
            if let Some(known) = covered.get_mut(*shard) {
                *known = seq.max(known).to_owned();
            }
        }
        covered
    }

    /// Takes out the images of whose shards a newer base has all, and returns their names.
    pub fn drop_superseded(&mut self) -> Vec<String> {
        let (mut based, mut dropped) = (BTreeSet::new(), Vec::new());
        for index in (0..self.images.len()).rev() {
            let image = &self.images[index];
            if image.shards.iter().all(|(shard, _)| based.contains(shard)) {
                dropped.push(self.images.remove(index).name);
            } else if image.is_base {
                based.extend(image.shards.iter().map(|(shard, _)| *shard));
            }
        }
        dropped
    }
}

fn probe_of(seed: u64) -> u64 {
    KeyHasher::new(seed)
        .hash_of(b"the hash of this key under a seed tells one hash function from another")
        .to_u64()
}

/// Encodes the file.
pub fn encode(manifest: &Manifest) -> Vec<u8> {
    sealed_json::encode(FORMAT, manifest, Layout::Compact)
}

/// Decodes the file.
///
/// # Errors
/// As [`sealed_json::decode`]; sizes and names that none has.
pub fn decode(bytes: &[u8]) -> Result<Manifest, Unreadable> {
    let manifest: Manifest = sealed_json::decode(FORMAT, bytes, "a manifest of keys")?;
    manifest.checked().map_err(|what| Unreadable::Damaged(what.to_owned()))
}

/// As many as a hash tells apart.
const SHARDS_MAX: usize = 1 << 16;

impl Manifest {
    /// What a good checksum does not say: that sizes are sensible, and that names lead nowhere else.
    fn checked(self) -> Result<Manifest, &'static str> {
        let is_name = |name: &str| {
            let number = name.strip_suffix(".img");
            number.is_some_and(|number| {
                !number.is_empty() && number.bytes().all(|byte| byte.is_ascii_hexdigit())
            })
        };
        if !(1..=SHARDS_MAX).contains(&self.shards) || self.uid_base.checked_add(self.shards as u64).is_none()
        {
            return Err("no such number of shards");
        }
        for image in &self.images {
            if !is_name(&image.name) {
                return Err("an image with a name that none has");
            }
            if image.shards.iter().any(|(shard, _)| *shard >= self.shards) {
                return Err("an image of a shard that is not there");
            }
        }
        Ok(self)
    }
}

/// Where a damaged image goes when it is not needed any more: somebody may want to look at it.
pub(super) fn kept_name(name: &Path, unix_ms: u64) -> PathBuf {
    Path::new(DIR).join(format!("{}.bad-{unix_ms}", name.display()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn image(name: &str, is_base: bool, shards: &[(usize, u64)]) -> Image {
        Image { name: name.to_owned(), bytes: 4096, is_base, shards: shards.to_vec() }
    }

    #[test]
    fn a_manifest_round_trips_and_damage_is_named() {
        let mut manifest = Manifest::new(u64::MAX - 3, 4, 1 << 60);
        manifest.images.push(image("00000001.img", true, &[(0, 5), (3, u64::MAX)]));
        let bytes = encode(&manifest);
        assert_eq!(decode(&bytes), Ok(manifest.clone()));
        assert!(manifest.fits(4) && !manifest.fits(8));
        assert!(!Manifest { probe: 1, ..manifest.clone() }.fits(4));
        assert_eq!(
            [1 << 60, (1 << 60) + 3, (1 << 60) + 4, 7].map(|uid| manifest.shard_of(uid)),
            [Some(0), Some(3), None, None]
        );
        let text = String::from_utf8(bytes.clone()).unwrap();
        let flipped = text.replace("\"format\":1", "\"format\":2");
        assert!(
            matches!(decode(flipped.as_bytes()), Err(Unreadable::Damaged(_))),
            "a digit that was flipped"
        );
        let newer = crate::sealed_json::seal(&flipped);
        assert_eq!(decode(newer.as_bytes()), Err(Unreadable::Newer { found: 2, known: 1 }));
        let edited = text.replace("00000001", "00000002");
        assert!(decode(edited.as_bytes()).unwrap_err().to_string().contains("checksum"));
        for cut in 0..bytes.len() - 1 {
            assert!(decode(&bytes[..cut]).is_err(), "cut at {cut}");
        }
        let refused = |change: fn(&mut Manifest)| {
            let mut other = manifest.clone();
            change(&mut other);
            assert!(matches!(decode(&encode(&other)), Err(Unreadable::Damaged(_))), "{other:?}");
        };
        refused(|other| other.shards = 0);
        refused(|other| other.shards = SHARDS_MAX + 1);
        refused(|other| other.uid_base = u64::MAX);
        refused(|other| other.shards = 3);
        refused(|other| other.images[0].name = "../x.img".to_owned());
        refused(|other| other.images[0].name = ".img".to_owned());
    }

    #[test]
    fn an_image_goes_when_newer_bases_have_all_its_shards() {
        let mut manifest = Manifest::new(1, 4, 100);
        manifest.images = vec![
            image("1", true, &[(0, 1), (1, 1)]),
            image("2", false, &[(1, 2), (2, 2)]),
            image("3", true, &[(1, 3)]),
            image("4", false, &[(0, 4)]),
        ];
        assert_eq!(manifest.drop_superseded(), Vec::<String>::new());
        assert_eq!(manifest.covered(), [4, 3, 2, 0]);
        manifest.images.push(image("5", true, &[(0, 9), (2, 9)]));
        let mut dropped = manifest.drop_superseded();
        dropped.sort();
        assert_eq!(dropped, ["1", "2", "4"]);
        assert_eq!(manifest.covered(), [9, 3, 9, 0]);
    }
}
