//! A shard's store on its owner core.

use super::indexes::Indexes;
use super::record;
use super::tape::Tape;
use crate::error::OpError;
use crate::journal::{Journal, Purpose, RecordKey, Ticket};
use ahash::HashSet;
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
    /// Bytes of log records that no image covers and that the next one is to: a start holds them in memory.
    pub unsaved_bytes: u64,
    /// Effects that have happened and are not in the log yet: evictions.
    unlogged: Vec<u8>,
    /// Keys that had no room while the store was read: left out, or evicted on the way.
    left_out: HashSet<Vec<u8>>,
    /// The store is being read for the second time.
    second_look: Option<SecondLook>,
    /// Body of the record being made.
    record: Vec<u8>,
    /// While a backup is made of the keys: what has become of them since its images were begun.
    pub tape: Option<Box<Tape>>,
}

/// A log record of what a start displaced stops growing here.
const DISPLACED_RECORD_BYTES: usize = 16 << 10;

/// As much of what is owed to the log stands in one record, and a key more: far below what a record may hold, so that a change and
/// what it has evicted fit one in most cases, and a value of any size fits beside it always.
const OWED_RECORD_BYTES: usize = 1 << 20;

/// Why a change did not happen.
#[derive(Debug)]
pub enum Refused {
    /// The log has no room for a record of so many bytes at this moment: wait for it and ask again.
    NoRoom(Purpose, usize),
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
            unsaved_bytes: 0,
            unlogged: Vec::new(),
            left_out: HashSet::default(),
            second_look: None,
            record: Vec::new(),
            tape: None,
        }
    }

    /// What the record of an effect is for: a key that is to expire earlier than before frees room too. Without an effect it has evictions
    /// alone.
    pub(super) fn purpose_of(&mut self, effect: Option<&Effect<'_>>, now_ms: u64) -> Purpose {
        match effect {
            Some(Effect::Set { .. }) => Purpose::Grow,
            Some(Effect::Deadline { key, deadline_ms }) => {
                let expires = |deadline_ms: u64| if deadline_ms == 0 { u64::MAX } else { deadline_ms };
                let before = self.writer.deadline(key, now_ms).unwrap_or(0);
                if expires(*deadline_ms) < expires(before) { Purpose::Free } else { Purpose::Grow }
            }
            Some(Effect::Delete { .. } | Effect::Flush) | None => Purpose::Free,
        }
    }

    /// Appends the effect of a decision to the journal and applies it. The decision was made at the same `now_ms`, and nothing has come
    /// between. What making it has evicted stands before the effect in the record, or in records of its own before that one where it is much;
    /// what applying evicts, in records behind it.
    ///
    /// What it takes and returns is small or behind a reference on purpose: a large result is copied, and a copy of what was stored just
    /// now in other pieces waits until all stores before it have reached memory, the cold lines of the entry among them.
    pub(super) fn commit(
        &mut self,
        journal: &impl Journal,
        effect: Option<&Effect<'_>>,
        now_ms: u64,
        indexes: &mut Indexes,
    ) -> Result<Option<Ticket>, Box<Refused>> {
        let (is_kept, mut ticket) = (journal.keeps_records(), None);
        self.note_evicted(is_kept, indexes);
        if self.unlogged.len() > OWED_RECORD_BYTES {
            ticket = self.log_owed(journal)?;
        }
        // Where nothing is appended, the last record has no bytes.
        self.record.clear();
        if is_kept && (effect.is_some() || self.owes()) {
            let purpose = self.purpose_of(effect, now_ms);
            ticket = self.append(journal, purpose, |owed, record| {
                record.extend_from_slice(owed);
                if let Some(effect) = effect {
                    record::put(record, effect);
                }
            })?;
            self.unlogged.clear();
            if let Some(effect) = effect {
                self.touched.note(effect);
            }
        }
        if let Some(effect) = effect {
            // Prepared just now, so it has room.
            self.writer.apply(effect, now_ms).map_err(|error| Box::new(error.into()))?;
        }
        self.note_evicted(is_kept, indexes);
        if let Some(effect) = effect
            && !indexes.is_empty()
        {
            // Behind what made room for it, which may have been an older value of the key.
            indexes.follow(effect);
        }
        if self.owes() {
            ticket = self.log_rest(journal)?.or(ticket);
        }
        Ok(ticket)
    }

    /// Logs what applying a change has evicted. A log that has no room now is no error: the deletions stand before the next record, or are
    /// logged by the owner's upkeep if there is none soon.
    fn log_rest(&mut self, journal: &impl Journal) -> Result<Option<Ticket>, Box<Refused>> {
        match self.log_owed(journal).map_err(|refused| *refused) {
            Ok(ticket) => Ok(ticket),
            Err(Refused::NoRoom(..)) => Ok(None),
            Err(refused) => Err(Box::new(refused)),
        }
    }

    /// Bytes of what the log and the next image have not been told of yet.
    pub(super) fn owed_bytes(&self) -> usize {
        self.unlogged.capacity() + self.touched.keys.capacity()
    }

    /// After a change that is refused on a full disk: logs at once what preparing it has evicted, if that is possible, as nothing may be written
    /// for long.
    pub(super) fn tell_evicted(&mut self, journal: &impl Journal, indexes: &mut Indexes) {
        self.note_evicted(journal.keeps_records(), indexes);
        // What is not taken stays owed.
        let _owed = self.log_owed(journal);
    }

    /// Bytes of the last record that was made.
    pub(super) fn record_bytes(&self) -> usize {
        self.record.len()
    }

    /// Whether something has happened that the log has not been told of yet.
    pub(super) fn owes(&self) -> bool {
        !self.unlogged.is_empty()
    }

    /// Tells the log what it has not been told of yet, in as many records as that takes; the ticket of the last.
    ///
    /// # Errors
    /// What has been taken is not owed any more, the rest still is.
    pub(super) fn log_owed(&mut self, journal: &impl Journal) -> Result<Option<Ticket>, Box<Refused>> {
        let (mut ticket, mut told) = (None, 0);
        let mut refused = None;
        while told < self.unlogged.len() && refused.is_none() {
            let len = whole_effects(&self.unlogged[told..], OWED_RECORD_BYTES);
            let appended = self.append(journal, Purpose::Free, |owed, record| {
                record.extend_from_slice(&owed[told..told + len]);
            });
            match appended {
                Ok(later) => {
                    told += len;
                    ticket = later.or(ticket);
                }
                Err(error) => refused = Some(error),
            }
        }
        self.unlogged.drain(..told);
        refused.map_or(Ok(ticket), Err)
    }

    /// Appends a record that `encode` writes, which is given what is owed to the log.
    fn append(
        &mut self,
        journal: &impl Journal,
        purpose: Purpose,
        encode: impl FnOnce(&[u8], &mut Vec<u8>),
    ) -> Result<Option<Ticket>, Box<Refused>> {
        let Shard { unlogged, record, .. } = self;
        let key = RecordKey { collection: self.uid, seq: self.seq + 1 };
        let appended = journal.append(purpose, key, record, |record| {
            record.clear();
            encode(unlogged, record);
        });
        let ticket = appended.map_err(|error| {
            Box::new(match error {
                OpError::NoSpace(_) => Refused::NoRoom(purpose, self.record.len()),
                error => Refused::Error(error),
            })
        })?;
        if let Some(ticket) = ticket {
            self.note_record(key.seq, self.record.len());
            if let Some(tape) = &mut self.tape {
                tape.note(&self.record, ticket);
            }
        }
        Ok(ticket)
    }

    /// Record `seq` of the log, with so many bytes, is one of this shard's: appended just now, or found by a start above the images.
    pub(super) fn note_record(&mut self, seq: u64, bytes: usize) {
        self.seq = seq;
        self.unsaved_bytes += bytes as u64;
    }

    /// Owes the log, where records are kept, what has been evicted, and tells the indexes.
    fn note_evicted(&mut self, is_kept: bool, indexes: &mut Indexes) {
        let Shard { writer, unlogged, touched, .. } = self;
        writer.take_evicted(|key| {
            if is_kept {
                let effect = Effect::Delete { key };
                record::put(unlogged, &effect);
                touched.note(&effect);
            }
            indexes.forget(key);
        });
    }

    /// Empties the shard, of which images have everything, and prepares to read other keys into it. The log is told nothing: what it was owed is in
    /// these images.
    ///
    /// # Errors
    /// A sentence, if the kernel gives no address space. The shard has its keys then.
    pub(super) fn begin_anew(&mut self, now_ms: u64) -> Result<(), String> {
        self.writer.apply(&Effect::Flush, now_ms).map_err(|error| error.to_string())?;
        self.writer.take_evicted(|_| {});
        self.unlogged.clear();
        self.left_out.clear();
        self.begin_restore();
        Ok(())
    }

    /// Notes what has been evicted and no commit has noted yet, for the next image.
    pub(super) fn settle_evicted(&mut self, is_kept: bool, indexes: &mut Indexes) {
        self.note_evicted(is_kept, indexes);
    }

    /// Prepares to read what the disk has of the shard.
    pub(super) fn begin_restore(&mut self) {
        self.writer.begin_restore();
        self.second_look = None;
    }

    /// What the disk has of the shard has been applied. Whether keys have been displaced on the way that have room now that everything is
    /// known: then all of it is to be applied once more, and only those keys are looked at.
    pub(super) fn wants_second_look(&mut self) -> bool {
        if self.second_look.is_some() {
            return false;
        }
        let displaced = self.displaced();
        let is_worth_it = self.writer.refill() && !displaced.is_empty();
        self.second_look = Some(SecondLook { is_wanted: is_worth_it, keys: displaced.into_iter().collect() });
        is_worth_it
    }

    /// From now on keys expire. The keys that were evicted while the store was read, and have not come back on the way.
    pub(super) fn finish_restore(&mut self) -> Vec<Vec<u8>> {
        if let Some(looked) = self.second_look.take() {
            self.left_out.extend(looked.keys);
        }
        let displaced = self.displaced();
        self.writer.finish_restore(displaced.len() as u64);
        displaced
    }

    fn displaced(&mut self) -> Vec<Vec<u8>> {
        let left_out = &mut self.left_out;
        self.writer.take_evicted(|key| left_out.extend([key.to_vec()]));
        let mut displaced: Vec<_> = left_out.drain().collect();
        displaced.sort_unstable();
        displaced.retain(|key| self.writer.peek(key, 0, &mut Vec::new()).is_none());
        displaced
    }

    /// Logs the last of `displaced` as deleted, as many as a record of a sensible size holds, and takes them out.
    pub(super) fn log_displaced(
        &mut self,
        journal: &impl Journal,
        displaced: &mut Vec<Vec<u8>>,
    ) -> Result<(), Box<Refused>> {
        let mut rest = displaced.len();
        self.append(journal, Purpose::Free, |_, record| {
            while rest > 0 && record.len() < DISPLACED_RECORD_BYTES {
                rest -= 1;
                record::put(record, &Effect::Delete { key: &displaced[rest] });
            }
        })?;
        for key in displaced.drain(rest..) {
            self.touched.note(&Effect::Delete { key: &key });
        }
        Ok(())
    }

    /// Applies an effect while the store opens; `now_ms` is the same for all. Whether it was left out for want of room.
    pub(super) fn restore(&mut self, effect: &Effect<'_>, now_ms: u64) -> Result<bool, String> {
        let Shard { second_look, writer, .. } = &mut *self;
        if let Some(looked) = second_look {
            let is_wanted = match effect {
                Effect::Set { key, .. } | Effect::Deadline { key, .. } | Effect::Delete { key } => {
                    looked.is_wanted && looked.keys.contains(*key)
                }
                Effect::Flush => {
                    // What was read again before it goes with it; what else is there now came after it.
                    for key in &looked.keys {
                        writer.apply(&Effect::Delete { key }, now_ms).map_err(|error| error.to_string())?;
                    }
                    false
                }
            };
            if !is_wanted {
                return Ok(false);
            }
        }
        if let Effect::Delete { key } = effect {
            // A key that a newer image deletes is not missing, even if it was displaced after an older image had set it.
            let left_out = &mut self.left_out;
            self.writer.take_evicted(|key| left_out.extend([key.to_vec()]));
            left_out.remove(*key);
        }
        match self.writer.apply(effect, now_ms) {
            Ok(()) => Ok(false),
            // The budget has become smaller than the record: the value before must not pass for it.
            Err(StoreError::Full) => {
                if let Effect::Set { key, .. } = effect {
                    let gone = self.writer.apply(&Effect::Delete { key }, now_ms);
                    gone.map_err(|error| error.to_string())?;
                    if self.second_look.is_none() {
                        self.left_out.insert(key.to_vec());
                    }
                }
                Ok(self.second_look.is_none())
            }
            Err(error) => Err(error.to_string()),
        }
    }
}

/// What is looked at when everything is applied a second time.
struct SecondLook {
    is_wanted: bool,
    /// Displaced the first time.
    keys: HashSet<Vec<u8>>,
}

/// Bytes of the first deletions of `owed`, at least one: as many whole ones as `most` has room for.
fn whole_effects(owed: &[u8], most: usize) -> usize {
    if owed.len() <= most {
        return owed.len();
    }
    let mut len = 0;
    for effect in record::Effects::of(owed) {
        let bytes = record::effect_bytes(&effect.expect("they were encoded here"));
        if len > 0 && len + bytes > most {
            break;
        }
        len += bytes;
    }
    len
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

    /// Far more is owed to the log than a record may hold: it takes records of its own, of whole deletions, the last before the change.
    #[test]
    fn what_is_owed_to_the_log_is_split() {
        use crate::ctx::Ctx;
        use crate::disk::SimDisk;
        use crate::log::{OldSegments, RECORD_BYTES_MAX, scan};
        use crate::node::{NodeOptions, NodeShared};
        use crate::sim::node::node_options;
        use crate::sim::{Cores, SimEnv};
        use nigh_engine::kv::{Config, KeyHasher};
        use nigh_engine::memory::Domain;
        use std::path::Path;
        use std::rc::Rc;

        let key_of = |n: u32| n.to_be_bytes().repeat(1000);
        let disk = Rc::new(SimDisk::new(1));
        let log_disk = disk.clone();
        let (owed, told) = crate::sim::run(1, |sim| async move {
            // A node without a data directory has no reserve, and misses none.
            let options =
                NodeOptions { data: None, segment_bytes: 1 << 20, log_bytes_soft: 1 << 30, ..node_options() };
            let env = SimEnv::new(sim.clone(), 0, Cores::new(1), Some(log_disk));
            let ctx = Ctx::new(env, NodeShared::new(options, 1));
            ctx.create_log(1, OldSegments::default()).await.unwrap();
            let journal = &*ctx;
            let writer = Writer::new(Config::new(64 << 20), KeyHasher::new(1), Domain::new(1)).unwrap();
            let mut shard = Shard::new(0, 7, writer);
            let mut owed = 0;
            while shard.unlogged.len() <= RECORD_BYTES_MAX {
                record::put(&mut shard.unlogged, &Effect::Delete { key: &key_of(owed) });
                owed += 1;
            }
            let mut indexes = Indexes::new();
            let value = vec![1; 10_000];
            let ticket = loop {
                let op = nigh_engine::kv::Op::Put { key: b"key", value: &value, ttl_ms: 0 };
                let effect = shard.writer.prepare(&op, 1).unwrap().effect;
                match shard.commit(journal, effect.as_ref(), 1, &mut indexes).map_err(|refused| *refused) {
                    Ok(ticket) => break ticket.unwrap(),
                    Err(Refused::NoRoom(purpose, bytes)) => {
                        assert!(bytes <= 2 * OWED_RECORD_BYTES, "{bytes} bytes in one record");
                        journal.wait_for_room(purpose, bytes).await.unwrap();
                    }
                    Err(refused) => panic!("{refused:?}"),
                }
            };
            journal.wait_durable(Some(ticket)).await.unwrap();
            assert!(!shard.owes());
            let logged = shard.seq;
            // What applying a change evicts comes behind it. Where the log is full it waits; an error of that append is the caller's.
            while shard.log_rest(journal).map_err(|refused| *refused).unwrap().is_some() || !shard.owes() {
                record::put(&mut shard.unlogged, &Effect::Delete { key: &key_of(owed) });
            }
            ctx.log().expect("made above").stop().await;
            assert!(matches!(shard.log_rest(journal).map_err(|refused| *refused), Err(Refused::Error(_))));
            assert!(shard.owes());
            (owed, logged)
        });
        let (mut deleted, mut records) = (0, 0);
        crate::sim::run(2, |_| async move {
            let mut last = None;
            scan(&*disk, Path::new("log"), &mut |key, body| {
                if key.seq > told {
                    return;
                }
                records += 1;
                assert_eq!((key.collection, key.seq), (7, records));
                for effect in record::Effects::of(body) {
                    match effect.unwrap() {
                        Effect::Delete { key } => {
                            assert_eq!(key, key_of(deleted));
                            deleted += 1;
                        }
                        other => {
                            last = Some(other.clone()).map(|effect| matches!(effect, Effect::Set { .. }))
                        }
                    }
                }
            })
            .await
            .unwrap();
            assert_eq!((deleted, records, last), (owed, told, Some(true)));
        });
    }

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
