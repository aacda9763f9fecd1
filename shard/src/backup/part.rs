//! The parts of a node, which a run stores beside the collections: small files of the whole node, each as the text of a snapshot without images.
//! The keys are a part too, with images: see [`super::keys`].

use super::collection::{Job, Stored, retire, times};
use super::error::BackupError;
use super::names::{Names, SNAPSHOT};
use super::pieces::put;
use super::snapshot::{Snapshot, StoreSnapshot};
use super::store::StoreError;
use crate::account::MemoryUse;
use crate::alias_file;
use crate::ctx::Ctx;
use crate::env::compute;
use crate::kv::index_file;
use crate::kv::indexes::IndexDefinition;
use std::collections::BTreeMap;
use std::rc::Rc;

/// A snapshot whose text has more bytes is encoded on a thread beside the cores.
const ENCODED_HERE_BYTES: u64 = 64 << 10;

/// A part of the node that a run stores beside the collections.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NodePart {
    /// The aliases of all tenants.
    Aliases,
    /// The definitions of the indexes of keys, without the keys.
    KeyIndexes,
    /// The API keys of `-keys-file`, without their tokens.
    ApiKeys,
    /// The keys with their values and expiry times, whose snapshot has files.
    Keys,
}

impl NodePart {
    /// All of them, in the order in which a run stores them.
    pub const ALL: [NodePart; 4] =
        [NodePart::Aliases, NodePart::KeyIndexes, NodePart::ApiKeys, NodePart::Keys];

    /// The name of the part in requests. Keys of objects have it in the place of the full name of a collection, which always has a slash, so the two
    /// cannot be confused.
    pub const fn name(self) -> &'static str {
        match self {
            NodePart::Aliases => "aliases",
            NodePart::KeyIndexes => "key-indexes",
            NodePart::ApiKeys => "api-keys",
            NodePart::Keys => "keys",
        }
    }

    /// The part of that name.
    pub fn of_name(name: &str) -> Option<NodePart> {
        NodePart::ALL.into_iter().find(|part| part.name() == name)
    }

    /// The name of its text in a snapshot.
    const fn file(self) -> &'static str {
        match self {
            NodePart::Aliases => alias_file::FILE,
            NodePart::KeyIndexes => "indexes.json",
            NodePart::ApiKeys => "api-keys.json",
            NodePart::Keys => super::keys::FILE,
        }
    }
}

/// The contents of a part.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum PartContent {
    Aliases(BTreeMap<String, String>),
    KeyIndexes(Vec<IndexDefinition>),
    /// The text of their file. Only the crate that has the registry of API keys understands it.
    ApiKeys(ApiKeysFile),
}

/// The text of a file of API keys. Logs must not have it.
#[derive(Clone, PartialEq, Eq)]
pub(crate) struct ApiKeysFile(pub String);

impl std::fmt::Debug for ApiKeysFile {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("ApiKeysFile")
    }
}

impl PartContent {
    pub(crate) fn part(&self) -> NodePart {
        match self {
            PartContent::Aliases(_) => NodePart::Aliases,
            PartContent::KeyIndexes(_) => NodePart::KeyIndexes,
            PartContent::ApiKeys(_) => NodePart::ApiKeys,
        }
    }

    fn is_empty(&self) -> bool {
        match self {
            PartContent::Aliases(aliases) => aliases.is_empty(),
            PartContent::KeyIndexes(indexes) => indexes.is_empty(),
            // An empty registry refuses all clients, which a restore must bring back too.
            PartContent::ApiKeys(_) => false,
        }
    }

    /// The text that a snapshot has of the part.
    fn into_text(self) -> String {
        let encoded = match self {
            PartContent::Aliases(aliases) => alias_file::encode(&aliases),
            PartContent::KeyIndexes(indexes) => index_file::encode(&indexes),
            PartContent::ApiKeys(ApiKeysFile(text)) => return text,
        };
        String::from_utf8_lossy(&encoded).into_owned()
    }

    /// Reads the contents of `part` from the snapshot under `key`.
    ///
    /// # Errors
    /// [`StoreError::Damaged`]: it is a snapshot of something else, or its text cannot be read.
    pub(crate) fn decode(key: &str, part: NodePart, snapshot: &Snapshot) -> Result<PartContent, StoreError> {
        let damaged = |why: String| StoreError::Damaged { key: key.to_owned(), why };
        let mut texts = snapshot.stores.iter().flat_map(|store| &store.texts);
        let text = texts.find(|(file, _)| file == part.file());
        let (_, text) = text.filter(|_| snapshot.name == part.name()).ok_or_else(|| {
            damaged(format!("it is not a snapshot of that part, or lacks the text {}", part.file()))
        })?;
        let unreadable = |why: crate::sealed_json::Unreadable| damaged(format!("{}: {why}", part.file()));
        Ok(match part {
            NodePart::Aliases => {
                PartContent::Aliases(alias_file::decode(text.as_bytes()).map_err(unreadable)?)
            }
            NodePart::KeyIndexes => {
                PartContent::KeyIndexes(index_file::decode(text.as_bytes()).map_err(unreadable)?)
            }
            // The checksum of the snapshot covers the text, and the registry of API keys checks it when it is restored.
            NodePart::ApiKeys => PartContent::ApiKeys(ApiKeysFile(text.clone())),
            NodePart::Keys => return Err(damaged("the keys are not stored as a text".to_owned())),
        })
    }
}

/// Stores a part of the node. Returns `None`, and stores nothing, if the part is empty and the store has no snapshot of it.
///
/// # Errors
/// The store of backups failed, or has a snapshot that is not older than this run.
pub(crate) async fn back_up_part(
    ctx: &Rc<Ctx>,
    job: &Job,
    content: PartContent,
) -> Result<Option<Stored>, BackupError> {
    let part = content.part();
    let store = job.target.stores.open();
    let names = Names::new(&job.target.prefix);
    let prefix = names.of_part(part.name());
    let newest = times(&*store, &prefix).await?.pop();
    match newest {
        None if content.is_empty() => return Ok(None),
        Some(newest) if newest >= job.time => {
            return Err(BackupError::Time { newest, time: job.time.clone() });
        }
        _ => {}
    }
    let text = content.into_text();
    let bytes = text.len() as u64;
    // This counts the text, the snapshot that contains it, and the copies that are sent.
    let _memory = ctx.node().account.hold(MemoryUse::Images, 4 * bytes);
    let texts = vec![(part.file().to_owned(), text)];
    let only = StoreSnapshot { uid: 0, seq: 0, texts, files: Vec::new() };
    let snapshot = Snapshot {
        name: part.name().to_owned(),
        taken_unix_ms: job.taken_unix_ms,
        cut_unix_ms: None,
        stores: vec![only],
    };
    let key = format!("{prefix}{}{SNAPSHOT}", job.time);
    let (snapshot, file) = match bytes > ENCODED_HERE_BYTES {
        true => {
            let encode = move || {
                let file = snapshot.encode();
                (snapshot, file)
            };
            compute(ctx.env(), encode).await
        }
        false => {
            let file = snapshot.encode();
            (snapshot, file)
        }
    };
    let sent_bytes = file.len() as u64;
    put(&*store, &key, file.into(), false).await?;
    // As with collections, the run does not fail if an old snapshot cannot be removed.
    if let Err(error) = retire(ctx.env(), &store, &names, &prefix, job.retention, &snapshot).await {
        tracing::warn!(part = part.name(), %error, "old snapshots could not be removed; the next run tries again");
    }
    Ok(Some(Stored { key, bytes, sent_bytes }))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_part_is_read_from_a_snapshot_of_itself_alone() {
        let aliases = BTreeMap::from([("default/live".to_owned(), "default/docs".to_owned())]);
        let content = PartContent::Aliases(aliases);
        let text = content.clone().into_text();
        let snapshot = |name: &str, text: &str| Snapshot {
            name: name.to_owned(),
            taken_unix_ms: 1,
            cut_unix_ms: None,
            stores: vec![StoreSnapshot {
                uid: 0,
                seq: 0,
                texts: vec![("aliases.json".to_owned(), text.to_owned())],
                files: Vec::new(),
            }],
        };
        let good = snapshot("aliases", &text);
        assert_eq!(Snapshot::decode("k", &good.encode()).unwrap(), good);
        assert_eq!(PartContent::decode("k", NodePart::Aliases, &good), Ok(content));
        for (part, bad) in [
            (NodePart::KeyIndexes, good.clone()),
            (NodePart::ApiKeys, good),
            (NodePart::Aliases, snapshot("default/docs", &text)),
            (NodePart::Aliases, snapshot("aliases", &text.replace("docs", "dogs"))),
        ] {
            let error = PartContent::decode("p/k.snap", part, &bad).unwrap_err();
            assert!(matches!(&error, StoreError::Damaged { key, .. } if key == "p/k.snap"), "{error}");
        }
    }

    #[test]
    fn no_collection_and_no_pieces_have_the_keys_of_a_part() {
        let names = Names::new("");
        for part in NodePart::ALL {
            let prefix = names.of_part(part.name());
            assert_eq!(NodePart::of_name(part.name()), Some(part));
            assert_ne!(prefix, names.all_pieces());
            // A collection has the full name `<tenant>/<name>`, and its slash is escaped.
            assert!(!prefix.contains("%2F"), "{prefix}");
            assert_ne!(prefix, names.of_collection(&format!("default/{}", part.name())));
        }
        assert_eq!(NodePart::of_name("docs"), None);
    }
}
