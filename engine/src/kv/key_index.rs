//! Keys in order, and in the order of what their records hold, for queries.

use super::operate::{FieldPath, StoredFields, StoredRecord};
use crate::filter::Bounds;
use crate::payload::ValueRef;
use std::collections::{BTreeMap, BTreeSet};
use std::ops::Bound::{Excluded, Included, Unbounded};
use std::rc::Rc;

/// A range takes as long to find as so many places in it to go through.
const RANGE_COST: usize = 4;
/// Bytes of a text by which it is filed: those that share them are told apart by whoever looks at the records.
const TEXT_BYTES: usize = 32;
/// About what a key costs beside its own bytes and a text: two places in trees and one allocation.
const KEY_COST: usize = 192;

/// The keys that begin with a prefix, ascending, and those of records with a value at a path, by that value.
///
/// It is told of changes ([`Self::note`], [`Self::forget`]), but not when keys expire or are evicted: whoever reads it looks each key
/// up and takes out those that are gone. What it says of values is where to look, too: it files numbers as f64 and texts by their
/// beginning, and a value that is neither not at all.
pub struct KeyIndex {
    prefix: Box<[u8]>,
    path: FieldPath,
    keys: BTreeMap<Rc<[u8]>, Option<Rank>>,
    ranked: BTreeSet<(Rank, Rc<[u8]>)>,
    bytes: usize,
}

/// A place in the order of values: numbers, then texts.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Rank(RankPosition);

#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum RankPosition {
    /// Bits in the order of the numbers.
    Number(u64),
    Text(Box<[u8]>),
}

impl Rank {
    fn of(value: ValueRef<'_>) -> Option<Rank> {
        match value {
            ValueRef::Int(value) => Some(Rank::number(value as f64)),
            ValueRef::Float(value) if !value.is_nan() => Some(Rank::number(value)),
            ValueRef::String(value) => Some(Rank::text(value)),
            _ => None,
        }
    }

    fn number(value: f64) -> Rank {
        // So that -0.0 is 0.0.
        let bits = (value + 0.0).to_bits();
        let sign = 1 << 63;
        Rank(RankPosition::Number(if bits & sign == 0 { bits | sign } else { !bits }))
    }

    fn text(value: &str) -> Rank {
        Rank(RankPosition::Text(value.as_bytes()[..value.len().min(TEXT_BYTES)].into()))
    }

    fn bytes(&self) -> usize {
        match &self.0 {
            RankPosition::Number(_) => 0,
            // In both trees.
            RankPosition::Text(text) => 2 * text.len(),
        }
    }
}

impl KeyIndex {
    /// An empty one.
    pub fn new(prefix: &[u8], path: FieldPath) -> KeyIndex {
        KeyIndex { prefix: prefix.into(), path, keys: BTreeMap::new(), ranked: BTreeSet::new(), bytes: 0 }
    }

    /// Whether the key is of those that are filed.
    pub fn covers(&self, key: &[u8]) -> bool {
        key.starts_with(&self.prefix)
    }

    /// Where the value of these fields belongs: for [`Self::file`].
    pub fn rank_of<'a>(&'a self, fields: Option<&StoredFields<'a>>) -> Option<Rank> {
        fields.and_then(|fields| fields.get(&self.path)).and_then(Rank::of)
    }

    /// Files a key that has this value now. Costs reading the record, and [`Self::file`].
    pub fn note(&mut self, key: &[u8], value: &[u8]) {
        if self.covers(key) {
            let rank = {
                let record = StoredRecord::of(value);
                let fields = record.as_ref().and_then(StoredRecord::fields);
                self.rank_of(fields.as_ref())
            };
            self.file(key, rank);
        }
    }

    /// Files a key whose value belongs there now. Costs two searches in trees of keys, some µs in large ones.
    pub fn file(&mut self, key: &[u8], rank: Option<Rank>) {
        match self.keys.get_key_value(key) {
            Some((_, known)) if *known == rank => {}
            Some((shared, _)) => {
                let shared = shared.clone();
                self.forget(key);
                self.insert(shared, rank);
            }
            None => self.insert(key.into(), rank),
        }
    }

    /// Takes a key out, if it is there.
    pub fn forget(&mut self, key: &[u8]) {
        let Some((key, rank)) = self.keys.remove_entry(key) else { return };
        self.bytes -= cost(&key, rank.as_ref());
        if let Some(rank) = rank {
            self.ranked.remove(&(rank, key));
        }
    }

    fn insert(&mut self, key: Rc<[u8]>, rank: Option<Rank>) {
        self.bytes += cost(&key, rank.as_ref());
        if let Some(rank) = &rank {
            self.ranked.insert((rank.clone(), key.clone()));
        }
        self.keys.insert(key, rank);
    }

    /// Takes down an index that is not used any more, about `count` keys of it; whether there is more. Dropping a large one at once takes
    /// as long as a second.
    pub fn take_down(&mut self, count: usize) -> bool {
        for _ in 0..count {
            let _one_of_each = self.ranked.pop_first();
            match self.keys.pop_first() {
                Some((key, rank)) => self.bytes -= cost(&key, rank.as_ref()),
                None => return !self.ranked.is_empty(),
            }
        }
        true
    }

    /// Keys filed.
    pub fn len(&self) -> usize {
        self.keys.len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.keys.is_empty()
    }

    /// About how many bytes it takes.
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// The next `count` keys behind `after` (from the first on where that is `None`), ascending.
    pub fn keys_after(&self, after: Option<&[u8]>, count: usize) -> Vec<Rc<[u8]>> {
        let from = after.map_or(Unbounded, Excluded);
        self.keys.range::<[u8], _>((from, Unbounded)).take(count).map(|(key, _)| key.clone()).collect()
    }

    /// The keys behind `after` of which some value lies within `bounds`, ascending; all that do are among them. `None` when that
    /// means looking at more than about `most` places, some 100 ns each.
    pub fn keys_within(
        &self,
        bounds: &[Bounds<'_>],
        after: Option<&[u8]>,
        most: usize,
    ) -> Option<Vec<Rc<[u8]>>> {
        let nobody: Rc<[u8]> = Rc::default();
        let (mut found, mut left) = (Vec::new(), most);
        for bounds in bounds {
            left = left.checked_sub(RANGE_COST)?;
            let (from, to) = match *bounds {
                Bounds::Numbers(from, to) if from <= to => (Rank::number(from), Some(Rank::number(to))),
                // Also where one of them is NaN, to which nothing compares.
                Bounds::Numbers(..) => continue,
                Bounds::Texts(from, to) => (Rank::text(from), to.map(Rank::text)),
            };
            for (rank, key) in self.ranked.range((Included((from, nobody.clone())), Unbounded)) {
                if to.as_ref().is_some_and(|to| rank > to) {
                    break;
                }
                left = left.checked_sub(1)?;
                if after.is_none_or(|after| **key > *after) {
                    found.push(key.clone());
                }
            }
        }
        found.sort_unstable();
        found.dedup();
        Some(found)
    }
}

fn cost(key: &[u8], rank: Option<&Rank>) -> usize {
    KEY_COST + key.len() + rank.map_or(0, Rank::bytes)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::filter::{Allowance, Node, Predicate};
    use crate::payload::Value;
    use proptest::prelude::*;

    /// A dynamic record with one field `f`.
    fn record(value: &Value) -> Vec<u8> {
        let (code, data) = match value {
            Value::Int(value) => (7, value.to_le_bytes().to_vec()),
            Value::Float(value) => (9, value.to_le_bytes().to_vec()),
            Value::String(value) => (12, [&[value.len() as u8], value.as_bytes()].concat()),
            _ => unreachable!("not made by these tests"),
        };
        [&[2, 1, 1, b'f', code][..], &data].concat()
    }

    fn value() -> impl Strategy<Value = Value> {
        prop_oneof![
            (-3i64..3).prop_map(Value::Int),
            prop_oneof![Just(-0.0), Just(0.5), Just(-2.0), Just(f64::INFINITY), Just(f64::NAN)]
                .prop_map(Value::Float),
            ("[ab]{0,3}", 0..2usize).prop_map(|(end, long)| Value::String("x".repeat(40 * long) + &end)),
        ]
    }

    fn leaf() -> impl Strategy<Value = Node> {
        let op = prop_oneof!["eq", "gt", "gte", "lt", "lte"];
        (op, value()).prop_map(|(op, value)| Node {
            op: Some(op),
            field: Some("f".into()),
            value: Some(value),
            ..Node::default()
        })
    }

    #[derive(Clone, Debug)]
    enum Step {
        Note(u8, Option<Value>),
        Forget(u8),
    }

    fn step() -> impl Strategy<Value = Step> {
        prop_oneof![
            4 => (0u8..20, proptest::option::weighted(0.8, value())).prop_map(|(key, value)| Step::Note(key, value)),
            1 => (0u8..20).prop_map(Step::Forget),
        ]
    }

    proptest! {
        #[test]
        fn everything_that_matches_is_found(
            steps in proptest::collection::vec(step(), 0..60),
            leaves in proptest::collection::vec(leaf(), 1..3),
            after in proptest::option::of(0u8..20),
        ) {
            let mut index = KeyIndex::new(b"p", FieldPath::parse("f").unwrap());
            let mut twin: BTreeMap<Vec<u8>, Vec<u8>> = BTreeMap::new();
            for step in steps {
                match step {
                    Step::Note(key, value) => {
                        let stored = value.map_or_else(|| b"plain".to_vec(), |value| record(&value));
                        index.note(&[b'p', key], &stored);
                        index.note(&[b'q', key], &stored);
                        twin.insert(vec![b'p', key], stored);
                    }
                    Step::Forget(key) => {
                        index.forget(&[b'p', key]);
                        twin.remove(&[b'p', key][..]);
                    }
                }
            }
            prop_assert_eq!(index.len(), twin.len());
            let after = after.map(|key| [b'p', key]);
            let after = after.as_ref().map(|key| &key[..]);
            let behind = |key: &[u8]| after.is_none_or(|after| key > after);
            let all: Vec<&[u8]> = twin.keys().map(|key| &key[..]).filter(|key| behind(key)).collect();
            let listed = index.keys_after(after, 7);
            prop_assert_eq!(listed.iter().map(|key| &**key).collect::<Vec<_>>(), &all[..all.len().min(7)]);

            let node = Node { op: Some("and".into()), and: Some(leaves), ..Node::default() };
            let predicate = Predicate::compile(&node).unwrap();
            let path = FieldPath::parse("f").unwrap();
            let matches = |stored: &[u8]| {
                let Some(record) = StoredRecord::of(stored) else { return false };
                record.fields().is_some_and(|fields| predicate.ask_values(|_| fields.get(&path), &Allowance::unbounded()) == Some(true))
            };
            if let Some(bounds) = predicate.bounds_of("f") {
                let found = index.keys_within(&bounds, after, usize::MAX).unwrap();
                prop_assert!(found.is_sorted_by(|a, b| a < b) && found.iter().all(|key| behind(key)));
                let matching = all.iter().filter(|key| matches(&twin[**key]));
                for key in matching {
                    prop_assert!(found.iter().any(|found| **found == **key), "{key:?} of {found:?}");
                }
                let looked_at = index.keys_within(&bounds, None, usize::MAX).unwrap().len();
                let cost = RANGE_COST * bounds.len() + looked_at;
                prop_assert!(index.keys_within(&bounds, None, cost).is_some());
                prop_assert!(cost == 0 || index.keys_within(&bounds, None, cost - 1).is_none());
            }
            let mut other = KeyIndex::new(b"p", FieldPath::parse("f").unwrap());
            twin.iter().for_each(|(key, value)| other.note(key, value));
            prop_assert_eq!((other.len(), other.bytes()), (index.len(), index.bytes()));
            while other.take_down(3) {}
            prop_assert_eq!((other.len(), other.bytes(), other.ranked.len()), (0, 0, 0));
            for key in twin.keys() {
                index.forget(key);
            }
            prop_assert_eq!((index.len(), index.bytes(), index.ranked.len()), (0, 0, 0));
        }
    }
}
