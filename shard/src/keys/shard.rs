//! A shard's store on its owner core.

use super::indexes::Indexes;
use super::record;
use crate::core::OpError;
use crate::log::{Log, LogError, RecordKey, Ticket};
use nigh_engine::kv::{Effect, StoreError, Writer};

/// See the module.
pub(super) struct Shard {
    /// Of all shards of the node.
    pub number: usize,
    /// Of its log records.
    pub uid: u64,
    pub writer: Writer,
    /// Of its newest log record.
    pub seq: u64,
    pub touched: Touched,
    /// Effects that have happened and are not in the log yet: evictions.
    unlogged: Vec<u8>,
    /// Keys whose values did not fit while the store was read.
    left_out: Vec<Vec<u8>>,
    /// Body of the record being made.
    record: Vec<u8>,
}

/// A log record of what a start displaced stops growing here.
const DISPLACED_RECORD_BYTES: usize = 16 << 10;

/// Why a change did not happen.
#[derive(Debug)]
pub enum Refused {
    /// The log has no room for a record of so many bytes at this moment: wait for it and ask again.
    NoRoom(usize),
    /// For good.
    Error(OpError),
}

impl From<StoreError> for Refused {
    fn from(error: StoreError) -> Refused {
        Refused::Error(store_error(&error))
    }
}

/// As a front end is told.
pub(super) fn store_error(error: &StoreError) -> OpError {
    match error {
        StoreError::Full => OpError::StoreFull,
        StoreError::Memory(error) => OpError::NoMemory(error.to_string()),
        mistake => OpError::BadRequest(mistake.to_string()),
    }
}

impl Shard {
    pub(super) fn new(number: usize, uid: u64, writer: Writer) -> Shard {
        Shard {
            number,
            uid,
            writer,
            seq: 0,
            touched: Touched::default(),
            unlogged: Vec::new(),
            left_out: Vec::new(),
            record: Vec::new(),
        }
    }

    /// Logs and applies what was prepared at the same `now_ms`. What preparing has evicted stands before it in the record; what applying
    /// evicts, in a record of its own.
    ///
    /// What it takes and returns is small or behind a reference on purpose: a large result is copied, and a copy of what was stored just
    /// now in other pieces waits until all stores before it have reached memory, the cold lines of the entry among them.
    pub(super) fn commit(
        &mut self,
        log: Option<&Log>,
        effect: Option<&Effect<'_>>,
        now_ms: u64,
        indexes: &mut Indexes,
    ) -> Result<Option<Ticket>, Box<Refused>> {
        let mut ticket = None;
        self.note_evicted(log.is_some(), indexes);
        if let Some(log) = log {
            self.record.clear();
            self.record.extend_from_slice(&self.unlogged);
            if let Some(effect) = effect {
                record::put(&mut self.record, effect);
            }
            ticket = self.append(log)?;
            if let Some(effect) = effect {
                self.touched.note(effect);
            }
        }
        if let Some(effect) = effect {
            // Prepared just now, so it has room.
            self.writer.apply(effect, now_ms).map_err(|error| Box::new(error.into()))?;
        }
        self.note_evicted(log.is_some(), indexes);
        if let Some(effect) = effect
            && !indexes.is_empty()
        {
            // Behind what made room for it, which may have been an older value of the key.
            indexes.follow(effect);
        }
        if let Some(log) = log {
            self.record.clear();
            self.record.extend_from_slice(&self.unlogged);
            // Without room it stands before the next record.
            if let Ok(Some(later)) = self.append(log) {
                ticket = Some(later);
            }
        }
        Ok(ticket)
    }

    /// Appends `record`, which begins with what was unlogged.
    fn append(&mut self, log: &Log) -> Result<Option<Ticket>, Box<Refused>> {
        if self.record.is_empty() {
            return Ok(None);
        }
        let key = RecordKey { collection: self.uid, seq: self.seq + 1 };
        let appended = log.append(key, &self.record);
        let ticket = appended.map_err(|error| {
            Box::new(match error {
                LogError::NoSpace(_) => Refused::NoRoom(self.record.len()),
                error => Refused::Error(crate::owner::log_error(error)),
            })
        })?;
        self.seq += 1;
        self.unlogged.clear();
        Ok(Some(ticket))
    }

    /// Tells the log, if there is one, and indexes what has been evicted.
    fn note_evicted(&mut self, has_log: bool, indexes: &mut Indexes) {
        let Shard { writer, unlogged, touched, .. } = self;
        writer.take_evicted(|key| {
            if has_log {
                let effect = Effect::Delete { key };
                record::put(unlogged, &effect);
                touched.note(&effect);
            }
            indexes.forget(key);
        });
    }

    /// The keys that were evicted while the store was read, and have not come back on the way.
    pub(super) fn displaced_at_start(&mut self) -> Vec<Vec<u8>> {
        let mut displaced = Vec::new();
        displaced.append(&mut self.left_out);
        self.writer.take_evicted(|key| displaced.push(key.to_vec()));
        displaced.sort_unstable();
        displaced.dedup();
        displaced.retain(|key| self.writer.peek(key, 0, &mut Vec::new()).is_none());
        displaced
    }

    /// Logs the last of `displaced` as deleted, as many as a record of a sensible size holds, and takes them out.
    pub(super) fn log_displaced(
        &mut self,
        log: &Log,
        displaced: &mut Vec<Vec<u8>>,
    ) -> Result<(), Box<Refused>> {
        self.record.clear();
        let mut rest = displaced.len();
        while rest > 0 && self.record.len() < DISPLACED_RECORD_BYTES {
            rest -= 1;
            record::put(&mut self.record, &Effect::Delete { key: &displaced[rest] });
        }
        self.append(log)?;
        for key in displaced.drain(rest..) {
            self.touched.note(&Effect::Delete { key: &key });
        }
        Ok(())
    }

    /// Applies a log record or a part of an image while the store opens.
    pub(super) fn restore(
        &mut self,
        effects: &[u8],
        mut each: impl FnMut(&mut Touched, &Effect<'_>),
    ) -> Result<u64, String> {
        let mut left_out = 0;
        for effect in record::Effects::of(effects) {
            let effect = effect.map_err(|error| error.to_string())?;
            each(&mut self.touched, &effect);
            match self.writer.apply(&effect, 0) {
                Ok(()) => {}
                // The budget has become smaller than the record: the value before must not pass for it.
                Err(StoreError::Full) => {
                    left_out += 1;
                    if let Effect::Set { key, .. } = effect {
                        self.writer.apply(&Effect::Delete { key }, 0).map_err(|error| error.to_string())?;
                        self.left_out.push(key.to_vec());
                    }
                }
                Err(error) => return Err(error.to_string()),
            }
        }
        Ok(left_out)
    }
}

/// Which keys an image has to tell of: those that log records since the last one have named. Some bytes per record of the log, which
/// bounds it.
#[derive(Default)]
pub(super) struct Touched {
    /// Before all keys below, everything was removed.
    flushed: bool,
    /// Each after its length; a key may be there many times.
    keys: Vec<u8>,
}

impl Touched {
    pub(super) fn note(&mut self, effect: &Effect<'_>) {
        match effect {
            Effect::Set { key, .. } | Effect::Deadline { key, .. } | Effect::Delete { key } => {
                self.keys.extend_from_slice(&(key.len() as u16).to_le_bytes());
                self.keys.extend_from_slice(key);
            }
            Effect::Flush => {
                self.flushed = true;
                self.keys.clear();
            }
        }
    }

    pub(super) fn is_empty(&self) -> bool {
        !self.flushed && self.keys.is_empty()
    }

    pub(super) fn is_flushed(&self) -> bool {
        self.flushed
    }

    /// The keys in order, with repeats.
    pub(super) fn keys(&self) -> impl Iterator<Item = &[u8]> {
        let mut rest = &self.keys[..];
        std::iter::from_fn(move || {
            let (len, after) = rest.split_first_chunk()?;
            let (key, after) = after.split_at(u16::from_le_bytes(*len).into());
            rest = after;
            Some(key)
        })
    }

    /// Puts `older` before what has been noted since.
    pub(super) fn put_back(&mut self, older: Touched) {
        if !self.flushed {
            let newer = std::mem::replace(self, older);
            self.keys.extend_from_slice(&newer.keys);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::borrow::Cow;

    #[test]
    fn changes_are_kept_since_the_last_flush_and_can_be_put_back() {
        let mut changes = Touched::default();
        assert!(changes.is_empty());
        changes.note(&Effect::Set { key: b"a", value: Cow::Borrowed(b"1"), deadline_ms: 0 });
        changes.note(&Effect::Delete { key: b"" });
        assert_eq!(changes.keys().collect::<Vec<_>>(), [&b"a"[..], b""]);
        let older = std::mem::take(&mut changes);
        changes.note(&Effect::Deadline { key: b"b", deadline_ms: 5 });
        changes.put_back(older);
        assert_eq!(changes.keys().collect::<Vec<_>>(), [&b"a"[..], b"", b"b"]);
        let older = std::mem::take(&mut changes);
        changes.note(&Effect::Flush);
        changes.note(&Effect::Delete { key: b"c" });
        changes.put_back(older);
        assert!(changes.is_flushed() && !changes.is_empty());
        assert_eq!(changes.keys().collect::<Vec<_>>(), [b"c"]);
    }
}
