//! Results of a batch, on their way from the owner to who has asked.

use super::op::{Answers, KeyResult};
use crate::error::OpError;
use nigh_engine::kv::Read;

/// About how many bytes the text of a reason has.
const REASON_BYTES: usize = 100;

/// Results in the order of their operations: one buffer with the bytes of all values, and a small entry for each result.
#[derive(Debug, Default)]
pub struct KeyResults {
    told: Vec<Told>,
    bytes: Vec<u8>,
    refusals: Vec<OpError>,
    failure: Option<OpError>,
    /// What of the time they took was a wait for the log of the core that carried them out, in nanoseconds.
    pub(super) log_ns: u64,
}

/// One result. Lengths count bytes of the buffer, each after those of the results before.
#[derive(Clone, Copy, Debug)]
enum Told {
    Done,
    Missing,
    Flag(bool),
    Number(i64),
    Value(usize),
    Before(usize),
    NoneBefore,
    /// The place of the reason.
    Refused(usize),
    /// What the bytes of this length would have told does not hold.
    Failed(usize),
}

impl KeyResults {
    /// Makes room for so many.
    pub(super) fn with_capacity(count: usize) -> KeyResults {
        KeyResults { told: Vec::with_capacity(count), ..KeyResults::default() }
    }

    /// So many operations that have not been carried out.
    pub(super) fn failed(count: usize, error: OpError) -> KeyResults {
        KeyResults { told: vec![Told::Failed(0); count], failure: Some(error), ..KeyResults::default() }
    }

    /// Takes back the results at these places, which ascend.
    pub(super) fn take_back(&mut self, places: &[usize], error: OpError) {
        for &place in places {
            let skipped = match self.told[place] {
                Told::Value(len) | Told::Before(len) | Told::Failed(len) => len,
                _ => 0,
            };
            self.told[place] = Told::Failed(skipped);
        }
        self.failure = Some(error);
    }

    /// How many.
    pub fn len(&self) -> usize {
        self.told.len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.told.is_empty()
    }

    /// Bytes of values in them.
    pub fn value_bytes(&self) -> usize {
        self.bytes.len()
    }

    /// Bytes of memory that they fill.
    pub fn held_bytes(&self) -> usize {
        self.bytes.len()
            + self.told.len() * size_of::<Told>()
            + self.refusals.len() * (size_of::<OpError>() + REASON_BYTES)
    }

    /// Why those failed that did so together ([`KeyResult::Failed`]).
    pub fn failure(&self) -> Option<&OpError> {
        self.failure.as_ref()
    }

    /// The wait for the log of the core that carried them out, in nanoseconds, as far as is known.
    pub fn log_ns(&self) -> u64 {
        self.log_ns
    }

    /// The results in order.
    pub fn iter(&self) -> KeyResultsIter<'_> {
        KeyResultsIter { results: self, told: self.told.iter(), bytes: &self.bytes }
    }
}

impl<'a> IntoIterator for &'a KeyResults {
    type Item = KeyResult<'a>;
    type IntoIter = KeyResultsIter<'a>;
    fn into_iter(self) -> KeyResultsIter<'a> {
        self.iter()
    }
}

impl Answers for KeyResults {
    fn answer(&mut self, result: KeyResult<'_>) {
        let told = match result {
            KeyResult::Done => Told::Done,
            KeyResult::Missing => Told::Missing,
            KeyResult::Flag(flag) => Told::Flag(flag),
            KeyResult::Number(number) => Told::Number(number),
            KeyResult::Value(value) => {
                self.bytes.extend_from_slice(value);
                Told::Value(value.len())
            }
            KeyResult::Before(None) => Told::NoneBefore,
            KeyResult::Before(Some(value)) => {
                self.bytes.extend_from_slice(value);
                Told::Before(value.len())
            }
            KeyResult::Refused(error) | KeyResult::Failed(error) => {
                // One after the other for the same reason, as on a full disk, have it in common: there may be a million of them.
                let is_known = self.refusals.last().is_some_and(|last| last.to_string() == error.to_string());
                if !is_known {
                    self.refusals.push(error.clone());
                }
                Told::Refused(self.refusals.len() - 1)
            }
        };
        self.told.push(told);
    }

    fn value(&mut self, append: impl FnOnce(&mut Vec<u8>) -> Read) -> Read {
        let start = self.bytes.len();
        let read = append(&mut self.bytes);
        match read {
            Read::Found { .. } => self.told.push(Told::Value(self.bytes.len() - start)),
            Read::Missing => {
                self.bytes.truncate(start);
                self.told.push(Told::Missing);
            }
            Read::Contended => self.bytes.truncate(start),
        }
        read
    }
}

/// See [`KeyResults::iter`].
#[derive(Clone, Debug)]
pub struct KeyResultsIter<'a> {
    results: &'a KeyResults,
    told: std::slice::Iter<'a, Told>,
    bytes: &'a [u8],
}

impl<'a> KeyResultsIter<'a> {
    fn take(&mut self, len: usize) -> &'a [u8] {
        let (taken, rest) = self.bytes.split_at(len);
        self.bytes = rest;
        taken
    }
}

impl<'a> Iterator for KeyResultsIter<'a> {
    type Item = KeyResult<'a>;

    fn next(&mut self) -> Option<KeyResult<'a>> {
        Some(match *self.told.next()? {
            Told::Done => KeyResult::Done,
            Told::Missing => KeyResult::Missing,
            Told::Flag(flag) => KeyResult::Flag(flag),
            Told::Number(number) => KeyResult::Number(number),
            Told::Value(len) => KeyResult::Value(self.take(len)),
            Told::Before(len) => KeyResult::Before(Some(self.take(len))),
            Told::NoneBefore => KeyResult::Before(None),
            Told::Refused(place) => KeyResult::Refused(&self.results.refusals[place]),
            Told::Failed(skipped) => {
                self.take(skipped);
                let failure = self.results.failure.as_ref();
                KeyResult::Failed(failure.expect("there is a reason where there are failures"))
            }
        })
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        self.told.size_hint()
    }
}
