//! Snapshot files: which files a collection had at one moment, and in which objects of a store their bytes lie.
//!
//! ```text
//! snapshot = magic [8], version u32, bytes u64 of the body, crc32c u32 of all the other bytes, body     little-endian; the body is JSON
//! ```
//!
//! The bytes themselves are in *pieces*: objects of at most [`PIECE_BYTES`] bytes, named by their SHA-256. A piece that an earlier run has stored
//! is not sent again, whichever snapshot it was for.

use super::store::StoreError;
use serde::{Deserialize, Serialize};
use sha2::{Digest as _, Sha256};

/// Bytes of each piece of a file but the last one, which may have fewer.
pub const PIECE_BYTES: usize = 4 << 20;
/// Bytes of the longest snapshot file that is read, which lists the pieces of some 15 TiB.
pub const SNAPSHOT_BYTES_MAX: usize = 256 << 20;

const MAGIC: &[u8; 8] = b"NIGHSNP\0";
pub(super) const VERSION: u32 = 1;
const CHECKSUM_AT: usize = 20;
const HEAD_BYTES: usize = CHECKSUM_AT + 4;

fn checksum(head: &[u8], body: &[u8]) -> u32 {
    crc32c::crc32c_append(crc32c::crc32c(head), body)
}

/// A collection at one moment.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Snapshot {
    /// The full name of the collection, `<tenant>/<name>`.
    pub name: String,
    /// When it was taken, Unix milliseconds by the clock of the server.
    pub taken_unix_ms: u64,
    /// Every change that it has was made by then, Unix milliseconds. Snapshots of earlier builds do not say it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cut_unix_ms: Option<u64>,
    /// The stores of images that it consists of: the collection, and behind it the index of its token vectors if it has one.
    pub stores: Vec<StoreSnapshot>,
}

/// A store of images: a collection, or the index of the tokens of one.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct StoreSnapshot {
    /// The uid that its files carry.
    pub uid: u64,
    /// The number of the last change that the images have.
    pub seq: u64,
    /// Small files, as text: `collection.json`.
    pub texts: Vec<(String, String)>,
    /// Images in the order in which they are read, then the file of vectors if there is one.
    pub files: Vec<FileSnapshot>,
}

/// A file, cut into pieces.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct FileSnapshot {
    /// Its name in the directory of its store.
    pub name: String,
    /// Its length.
    pub bytes: u64,
    /// The digests of its pieces, in order.
    pub pieces: Vec<Digest>,
}

/// The SHA-256 of a piece.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Digest([u8; 32]);

/// Computes a digest from bytes that arrive in parts.
#[derive(Default)]
pub struct Hasher(Sha256);

impl Hasher {
    /// Takes more bytes.
    pub fn update(&mut self, bytes: &[u8]) {
        self.0.update(bytes);
    }

    /// The digest of all bytes that were taken.
    pub fn finish(self) -> Digest {
        Digest(self.0.finalize().into())
    }
}

impl Digest {
    /// The digest of `bytes`, all of them at once.
    pub fn of(bytes: &[u8]) -> Digest {
        let mut hasher = Hasher::default();
        hasher.update(bytes);
        hasher.finish()
    }

    /// Reads 64 hexadecimal digits in lower case; `None` for anything else.
    pub fn parse(text: &str) -> Option<Digest> {
        let mut digest = [0; 32];
        if text.len() != 64 || !text.bytes().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f')) {
            return None;
        }
        for (index, byte) in digest.iter_mut().enumerate() {
            *byte = u8::from_str_radix(text.get(2 * index..2 * index + 2)?, 16).ok()?;
        }
        Some(Digest(digest))
    }
}

impl std::fmt::Display for Digest {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

impl Serialize for Digest {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for Digest {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Digest, D::Error> {
        let text = String::deserialize(deserializer)?;
        Digest::parse(&text).ok_or_else(|| serde::de::Error::custom("a digest has 64 hexadecimal digits"))
    }
}

impl FileSnapshot {
    /// Bytes of the piece at `index`.
    pub fn piece_bytes(&self, index: usize) -> usize {
        let begin = index as u64 * PIECE_BYTES as u64;
        self.bytes.saturating_sub(begin).min(PIECE_BYTES as u64) as usize
    }
}

impl Snapshot {
    /// Bytes of all its files.
    pub fn bytes(&self) -> u64 {
        self.stores.iter().flat_map(|store| &store.files).map(|file| file.bytes).sum()
    }

    /// The uid of each piece's store, and the piece.
    pub fn pieces(&self) -> impl Iterator<Item = (u64, Digest)> + '_ {
        let of_store = |store: &'_ StoreSnapshot| {
            let uid = store.uid;
            store
                .files
                .iter()
                .flat_map(|file| &file.pieces)
                .map(move |piece| (uid, *piece))
                .collect::<Vec<_>>()
        };
        self.stores.iter().flat_map(of_store)
    }

    /// The file as it is stored.
    pub fn encode(&self) -> Vec<u8> {
        let body = serde_json::to_vec(self).expect("plain fields encode");
        let mut file = Vec::with_capacity(HEAD_BYTES + body.len());
        file.extend_from_slice(MAGIC);
        file.extend_from_slice(&VERSION.to_le_bytes());
        file.extend_from_slice(&(body.len() as u64).to_le_bytes());
        file.extend_from_slice(&checksum(&file, &body).to_le_bytes());
        file.extend_from_slice(&body);
        file
    }

    /// Reads a snapshot file, which was stored under `key`.
    ///
    /// # Errors
    /// [`StoreError::Damaged`]: it is not one, is of a newer version, is cut or altered, or names files that no directory of a server has.
    pub fn decode(key: &str, file: &[u8]) -> Result<Snapshot, StoreError> {
        let damaged = |why: String| StoreError::Damaged { key: key.to_owned(), why };
        let (head, body) = file.split_at_checked(HEAD_BYTES).ok_or_else(|| {
            damaged(format!(
                "it has {} bytes, and the header of a snapshot alone has {HEAD_BYTES}",
                file.len()
            ))
        })?;
        if !head.starts_with(MAGIC) {
            return Err(damaged("it does not begin like a snapshot of this server".to_owned()));
        }
        let number = |at: usize, len: usize| {
            head[at..at + len].iter().rev().fold(0u64, |number, byte| number << 8 | u64::from(*byte))
        };
        let (version, bytes, crc) = (number(8, 4), number(12, 8), number(CHECKSUM_AT, 4));
        if version > u64::from(VERSION) {
            return Err(damaged(format!(
                "it has version {version}, newer than {VERSION}, the newest that this build reads"
            )));
        }
        if bytes != body.len() as u64 {
            return Err(damaged(format!("its body has {} bytes, and {bytes} were written", body.len())));
        }
        if crc != u64::from(checksum(&head[..CHECKSUM_AT], body)) {
            return Err(damaged("its checksum does not match".to_owned()));
        }
        let snapshot: Snapshot =
            serde_json::from_slice(body).map_err(|error| damaged(format!("it is no snapshot: {error}")))?;
        snapshot.check().map_err(damaged)?;
        Ok(snapshot)
    }

    /// Checks what a checksum that matches does not guarantee: the names of files, and how many pieces they have.
    fn check(&self) -> Result<(), String> {
        for file in self.stores.iter().flat_map(|store| &store.files) {
            let stem = file.name.strip_suffix(".img").or_else(|| file.name.strip_suffix(".vec"));
            if !stem.is_some_and(|stem| !stem.is_empty() && stem.bytes().all(|byte| byte.is_ascii_hexdigit()))
            {
                return Err(format!(
                    "it names a file {:?}; files of a server are called by hexadecimal digits with .img or .vec behind them",
                    file.name
                ));
            }
            if file.pieces.len() as u64 != file.bytes.div_ceil(PIECE_BYTES as u64) {
                return Err(format!(
                    "it names {} pieces of the file {:?} of {} bytes",
                    file.pieces.len(),
                    file.name,
                    file.bytes
                ));
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn snapshot() -> Snapshot {
        let file = |name: &str, bytes: u64| FileSnapshot {
            name: name.to_owned(),
            bytes,
            pieces: (0..bytes.div_ceil(PIECE_BYTES as u64)).map(|n| Digest::of(&n.to_le_bytes())).collect(),
        };
        let files = vec![file("00000001.img", 4096), file("00000000.vec", (PIECE_BYTES as u64) * 2 + 5)];
        let texts = vec![("collection.json".to_owned(), "{}\n".to_owned())];
        Snapshot {
            name: "default/docs".to_owned(),
            taken_unix_ms: u64::MAX,
            cut_unix_ms: Some(7),
            stores: vec![StoreSnapshot { uid: u64::MAX - 1, seq: 7, texts, files }],
        }
    }

    #[test]
    fn a_snapshot_round_trips_and_any_cut_or_flipped_bit_is_noticed() {
        let snapshot = snapshot();
        let bytes = snapshot.encode();
        assert_eq!(Snapshot::decode("k", &bytes).unwrap(), snapshot);
        assert_eq!(snapshot.stores[0].files[1].piece_bytes(2), 5);
        assert_eq!(snapshot.bytes(), 4096 + 2 * PIECE_BYTES as u64 + 5);
        for cut in 0..bytes.len() {
            let error = Snapshot::decode("docs/x.snap", &bytes[..cut]).unwrap_err();
            assert!(error.to_string().contains("docs/x.snap"), "cut at {cut}: {error}");
        }
        for bit in 0..bytes.len() * 8 {
            let mut other = bytes.clone();
            other[bit / 8] ^= 1 << (bit % 8);
            assert!(Snapshot::decode("k", &other).is_err(), "bit {bit}");
        }
        let mut newer = bytes.clone();
        newer[8] = 2;
        assert!(Snapshot::decode("k", &newer).unwrap_err().to_string().contains("newer"));
    }

    #[test]
    fn names_that_leave_the_directory_are_refused() {
        for name in ["../x.img", "x.img", ".img", "00000001.json", "1/2.img"] {
            let mut other = snapshot();
            other.stores[0].files[0].name = name.to_owned();
            assert!(Snapshot::decode("k", &other.encode()).is_err(), "{name}");
        }
        let mut other = snapshot();
        other.stores[0].files[1].pieces.pop();
        assert!(Snapshot::decode("k", &other.encode()).is_err());
    }

    #[test]
    fn digests_are_written_as_hexadecimal_digits() {
        let digest = Digest::of(b"abc");
        assert_eq!(digest.to_string(), "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
        assert_eq!(Digest::parse(&digest.to_string()), Some(digest));
        for text in ["", "ba", &"g".repeat(64), &"A".repeat(64), &"é".repeat(32)] {
            assert_eq!(Digest::parse(text), None);
        }
    }
}
