//! Indexes of keys: defined on core 0, kept by each core for the keys it owns, built and tidied in the background.
//!
//! A change of a key tells the indexes at once, and so does eviction. What expires stays listed until a query or the background finds that
//! the store has it no more.

use crate::error::OpError;
use nigh_engine::kv::operate::{FieldPath, StoredRecord};
use nigh_engine::kv::{Effect, KeyIndex, Rank};
use nigh_engine::quoted::quoted;
use std::rc::Rc;

/// Most indexes of a node (interface).
pub const INDEXES_MAX: usize = 64;

/// What an index of keys is about.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct IndexDefinition {
    /// 1 to 64 of `A-Z a-z 0-9 _ . : -`.
    pub name: String,
    /// What the keys begin with, up to 255 bytes; empty = all keys.
    pub prefix: Vec<u8>,
    /// Where in their records the value lies; see [`FieldPath`]. Up to 255 bytes.
    pub path: String,
    /// It is a number of rows, and the path ends in `#count`.
    pub is_count: bool,
}

impl IndexDefinition {
    /// Checks names, lengths and the path.
    ///
    /// # Errors
    /// What is wrong, as a bad request.
    pub fn check(&self) -> Result<FieldPath, OpError> {
        let refuse = |what: String| Err(self.refused(&what));
        self.check_name()?;
        if self.prefix.len() > 255 || self.path.len() > 255 {
            return refuse("prefix and path have at most 255 bytes".to_owned());
        }
        match FieldPath::parse(&self.path) {
            Err(why) => refuse(format!("path {} is {why}", quoted(&self.path))),
            Ok(path) if path.is_column() => {
                refuse("its path leads to a column, and must lead to a field".to_owned())
            }
            Ok(path) if path.is_count() != self.is_count => {
                refuse("kind 1, and no other, has a path that ends in #count".to_owned())
            }
            Ok(path) => Ok(path),
        }
    }
}

/// What a core's part of an index is worth.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum IndexState {
    /// It does not have all keys yet.
    Building,
    /// It has all keys.
    Ready,
    /// It has none: they took more than the core's share of memory.
    TooLarge,
}

/// A core's part of an index.
pub(super) struct Index {
    pub definition: IndexDefinition,
    /// Another one after each definition, so that whoever comes back to it knows whether it is the same.
    pub generation: u64,
    pub state: IndexState,
    pub content: KeyIndex,
    /// Keys that went unnoticed, as the store had counted when the round of tidying that is under way, or the last one, began.
    pub(super) gone: u64,
    /// The last key that round has looked at.
    pub(super) tidied: Option<Rc<[u8]>>,
}

/// A core's part of all indexes.
pub(super) struct Indexes {
    pub(super) list: Vec<Index>,
    /// What is not used any more and not taken down yet.
    pub(super) ruins: Vec<KeyIndex>,
    generations: u64,
    bytes_max: usize,
}

impl Indexes {
    /// None.
    pub fn new() -> Indexes {
        Indexes { list: Vec::new(), ruins: Vec::new(), generations: 0, bytes_max: 0 }
    }

    /// All together may take so many bytes on this core.
    pub fn set_bytes_max(&mut self, bytes_max: usize) {
        self.bytes_max = bytes_max;
    }

    /// The index of that name.
    pub fn find(&mut self, name: &str) -> Option<&mut Index> {
        self.list.iter_mut().find(|index| index.definition.name == name)
    }

    /// The index, if it has not been defined anew since.
    pub fn find_same(&mut self, generation: u64) -> Option<&mut Index> {
        self.list.iter_mut().find(|index| index.generation == generation)
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.list.is_empty()
    }

    /// Keys filed in all of them.
    pub fn keys(&self) -> usize {
        self.list.iter().map(|index| index.content.len()).sum()
    }

    /// About how many bytes they take, those that are being taken down included.
    pub fn bytes(&self) -> usize {
        self.used_bytes() + self.ruins.iter().map(KeyIndex::bytes).sum::<usize>()
    }

    fn used_bytes(&self) -> usize {
        self.list.iter().map(|index| index.content.bytes()).sum()
    }

    /// How many were given up.
    pub fn given_up(&self) -> usize {
        self.list.iter().filter(|index| index.state == IndexState::TooLarge).count()
    }

    /// Follows a change of a key of this core's, or a flush of one of its stores: then indexes are built anew, which is short.
    pub fn follow(&mut self, effect: &Effect<'_>) {
        match effect {
            Effect::Set { key, value, .. } => self.note(key, value, |_| true),
            Effect::Delete { key } => self.forget(key),
            Effect::Flush => (0..self.list.len()).for_each(|at| self.begin(at)),
            Effect::Deadline { .. } => {}
        }
    }

    /// Takes out a key that is gone.
    pub fn forget(&mut self, key: &[u8]) {
        self.list.iter_mut().for_each(|index| index.content.forget(key));
    }

    /// Files a key that has this value in those of the indexes that cover it. The record is read once.
    pub(super) fn note(&mut self, key: &[u8], value: &[u8], wanted: impl Fn(&Index) -> bool) {
        let is_filed = |index: &&Index| {
            index.state != IndexState::TooLarge && index.content.covers(key) && wanted(index)
        };
        if !self.list.iter().any(|index| is_filed(&index)) {
            return;
        }
        let mut ranks: Vec<(u64, Option<Rank>)> = Vec::new();
        {
            let list = &self.list;
            let record = StoredRecord::of(value);
            let fields = record.as_ref().and_then(StoredRecord::fields);
            for index in list.iter().filter(is_filed) {
                ranks.push((index.generation, index.content.rank_of(fields.as_ref())));
            }
        }
        for (generation, rank) in ranks {
            if let Some(index) = self.find_same(generation) {
                index.content.file(key, rank);
            }
        }
        while self.used_bytes() > self.bytes_max && self.give_up() {}
    }

    /// Gives one index up: the newest that is being built, or the largest.
    fn give_up(&mut self) -> bool {
        let rank = |index: &Index| match index.state {
            IndexState::Building => (1, index.generation as usize),
            IndexState::Ready => (0, index.content.bytes()),
            IndexState::TooLarge => unreachable!("filtered out"),
        };
        let kept = self.list.iter_mut().filter(|index| index.state != IndexState::TooLarge);
        let Some(index) = kept.max_by_key(|index| rank(index)) else { return false };
        tracing::warn!(
            index = index.definition.name,
            most = self.bytes_max,
            "indexes of keys do not fit into this core's part of a quarter of max_memory: one is given up"
        );
        index.state = IndexState::TooLarge;
        let content = std::mem::replace(&mut index.content, index.definition.empty());
        self.ruins.push(content);
        true
    }

    /// Begins an index anew.
    fn begin(&mut self, at: usize) {
        self.generations += 1;
        let index = &mut self.list[at];
        (index.generation, index.state, index.tidied) = (self.generations, IndexState::Building, None);
        if !index.content.is_empty() {
            let content = std::mem::replace(&mut index.content, index.definition.empty());
            self.ruins.push(content);
        }
    }

    /// Makes these the indexes. Those that were defined like this before stay as they are; if the one called `set` was given up, it is
    /// tried again.
    pub(super) fn define(&mut self, definitions: &[IndexDefinition], set: Option<&str>) {
        let mut before = std::mem::take(&mut self.list);
        for definition in definitions {
            let is_tried_again =
                |index: &Index| index.state == IndexState::TooLarge && set == Some(definition.name.as_str());
            let same = |index: &Index| index.definition == *definition && !is_tried_again(index);
            let index = match before.iter().position(same) {
                Some(at) => before.swap_remove(at),
                None => {
                    self.generations += 1;
                    Index {
                        definition: definition.clone(),
                        generation: self.generations,
                        state: IndexState::Building,
                        content: definition.empty(),
                        gone: 0,
                        tidied: None,
                    }
                }
            };
            self.list.push(index);
        }
        self.ruins.extend(before.into_iter().map(|index| index.content));
    }

    pub(super) fn definitions(&self) -> Vec<IndexDefinition> {
        self.list.iter().map(|index| index.definition.clone()).collect()
    }
}

impl IndexDefinition {
    pub(super) fn check_name(&self) -> Result<(), OpError> {
        let is_name = |byte: u8| byte.is_ascii_alphanumeric() || b"_.:-".contains(&byte);
        match (1..=64).contains(&self.name.len()) && self.name.bytes().all(is_name) {
            true => Ok(()),
            false => Err(self.refused("a name is 1 to 64 of A-Z a-z 0-9 _ . : -")),
        }
    }

    fn refused(&self, what: &str) -> OpError {
        OpError::BadRequest(format!("index {}: {what}", quoted(&self.name)))
    }

    fn empty(&self) -> KeyIndex {
        KeyIndex::new(&self.prefix, self.check().expect("checked before it was defined"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::borrow::Cow;

    fn index(name: &str, prefix: &[u8]) -> IndexDefinition {
        IndexDefinition { name: name.into(), prefix: prefix.into(), path: "n".into(), is_count: false }
    }

    fn put(indexes: &mut Indexes, key: String) {
        // A record with an unsigned byte `n`.
        let value = Cow::Borrowed(&[2, 1, 1, b'n', 0, 7][..]);
        indexes.follow(&Effect::Set { key: key.as_bytes(), value, deadline_ms: 0 });
    }

    fn states(indexes: &Indexes) -> Vec<(&str, IndexState, usize)> {
        let state = |index: &'_ Index| (index.state, index.content.len());
        indexes
            .list
            .iter()
            .map(|index| (&index.definition.name[..], state(index).0, state(index).1))
            .collect()
    }

    #[test]
    fn the_newest_that_is_being_built_or_the_largest_is_given_up() {
        let mut indexes = Indexes::new();
        indexes.set_bytes_max(20_000);
        let [small, large, all] = [index("small", b"s"), index("large", b"l"), index("all", b"")];
        indexes.define(&[large.clone(), small.clone()], Some("small"));
        (0..10).for_each(|n| put(&mut indexes, format!("s{n}")));
        (0..40).for_each(|n| put(&mut indexes, format!("l{n}")));
        indexes.list.iter_mut().for_each(|index| index.state = IndexState::Ready);
        assert_eq!(states(&indexes), [("large", IndexState::Ready, 40), ("small", IndexState::Ready, 10)]);

        // One that is being built pushes no other out.
        indexes.define(&[all.clone(), large.clone(), small.clone()], Some("all"));
        (0..60).for_each(|n| put(&mut indexes, format!("s{n}")));
        let (gone, there) = (IndexState::TooLarge, IndexState::Ready);
        assert_eq!(states(&indexes), [("all", gone, 0), ("large", there, 40), ("small", there, 60)][..]);
        // Among those that are built the largest goes, whichever grows.
        put(&mut indexes, "l40".to_owned());
        (60..70).for_each(|n| put(&mut indexes, format!("s{n}")));
        assert_eq!(states(&indexes), [("all", gone, 0), ("large", there, 41), ("small", gone, 0)]);
        assert_eq!((indexes.given_up(), indexes.keys()), (2, 41));

        // What is set again is tried again, nothing else.
        indexes.define(&[all.clone(), large.clone(), small.clone()], Some("small"));
        let again = IndexState::Building;
        assert_eq!(states(&indexes), [("all", gone, 0), ("large", there, 41), ("small", again, 0)]);
        indexes.define(&[large, small], Some("all"));
        assert_eq!(states(&indexes), [("large", there, 41), ("small", again, 0)]);

        // A flush begins all anew; what was there is taken down.
        indexes.follow(&Effect::Flush);
        assert_eq!(states(&indexes), [("large", again, 0), ("small", again, 0)]);
        assert!(indexes.bytes() > 0);
        for ruin in &mut indexes.ruins {
            while ruin.take_down(7) {}
        }
        assert_eq!(indexes.bytes(), 0);
    }
}
