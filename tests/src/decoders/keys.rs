//! Decoders of what a data directory has of keys.

use nigh_engine::kv::Effect;
use nigh_shard::kv::index_file;
use nigh_shard::kv::indexes::IndexDefinition;
use nigh_shard::kv::manifest::{self, Image, Manifest};
use nigh_shard::kv::record::{Effects, put};
use std::borrow::Cow;

/// Any bytes as effects: those before the first error are written again as they were.
pub(super) fn keys_record(bytes: &[u8]) {
    let mut again = Vec::new();
    for effect in Effects::of(bytes) {
        match effect {
            Ok(effect) => put(&mut again, &effect),
            Err(_) => break,
        }
    }
    assert!(bytes.starts_with(&again), "{} bytes come out otherwise", again.len());
}

pub(super) fn keys_record_seeds() -> Vec<Vec<u8>> {
    let effects = [
        Effect::Set { key: b"key", value: Cow::Borrowed(b"value"), deadline_ms: 1_790_000_000_000 },
        Effect::Deadline { key: b"key", deadline_ms: 0 },
        Effect::Delete { key: b"" },
        Effect::Flush,
    ];
    let encoded = |effects: &[Effect<'_>]| {
        let mut bytes = Vec::new();
        effects.iter().for_each(|effect| put(&mut bytes, effect));
        bytes
    };
    let mut seeds: Vec<Vec<u8>> = effects.chunks(1).map(encoded).collect();
    seeds.push(encoded(&effects));
    seeds
}

/// Any bytes as a manifest, its checksum made right: names stay in their directory, and what is read comes out the same.
pub(super) fn keys_manifest(bytes: &[u8]) {
    for bytes in [Some(bytes.to_vec()), with_right_sum(bytes)].into_iter().flatten() {
        let Ok(found) = manifest::decode(&bytes) else { continue };
        assert_eq!(found.covered().len(), found.shards);
        for image in &found.images {
            assert!(
                !image.name.contains(['/', '\\', '\0']) && image.name.len() > ".img".len(),
                "{:?}",
                image.name
            );
        }
        assert_eq!(manifest::decode(&manifest::encode(&found)).as_ref(), Ok(&found));
        let mut fewer = found.clone();
        let dropped = fewer.drop_superseded();
        assert_eq!(dropped.len() + fewer.images.len(), found.images.len());
    }
}

fn with_right_sum(bytes: &[u8]) -> Option<Vec<u8>> {
    let mut value: serde_json::Value = serde_json::from_slice(bytes).ok()?;
    let fields = value.as_object_mut()?;
    fields.insert("checksum".to_owned(), 0.into());
    let sum = crc32c::crc32c(value.to_string().as_bytes());
    value["checksum"] = sum.into();
    serde_json::to_vec(&value).ok()
}

pub(super) fn keys_manifest_seeds() -> Vec<Vec<u8>> {
    let image = |number: u64, is_base| Image {
        name: format!("{number:08x}.img"),
        bytes: 4096,
        is_base,
        shards: vec![(0, 7), (2, number)],
    };
    let mut several = Manifest::new(u64::MAX, 4, 1 << 50);
    several.images = vec![image(1, true), image(2, false), image(u64::MAX, true)];
    vec![manifest::encode(&Manifest::new(1, 1, 9)), manifest::encode(&several)]
}

/// Any bytes as a file of indexes, its checksum made right: what is read can be an index, and comes out the same.
pub(super) fn keys_indexes(bytes: &[u8]) {
    for bytes in [Some(bytes.to_vec()), with_right_sum(bytes)].into_iter().flatten() {
        let Ok(found) = index_file::decode(&bytes) else { continue };
        assert!(found.iter().all(|index| index.check().is_ok()));
        assert_eq!(index_file::decode(&index_file::encode(&found)), Ok(found));
    }
}

pub(super) fn keys_indexes_seeds() -> Vec<Vec<u8>> {
    let index = |name: &str, prefix: &[u8], path: &str| IndexDefinition {
        name: name.to_owned(),
        prefix: prefix.to_vec(),
        path: path.to_owned(),
        is_count: path.ends_with("#count"),
    };
    let both = [index("by.age", b"user:\xff", "age"), index("rows", b"", "#3#count")];
    vec![index_file::encode(&[]), index_file::encode(&both)]
}
