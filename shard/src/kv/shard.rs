//! A shard's store on its owner core.

use super::indexes::Indexes;
use super::record;
use crate::error::OpError;
use crate::log::{Log, LogError, Purpose, RecordKey, Ticket};
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

    /// Logs and applies what was prepared at the same `now_ms`. What preparing has evicted stands before it in the record, or in records of its
    /// own before that one where it is much; what applying evicts, in records behind it.
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
            if self.unlogged.len() > OWED_RECORD_BYTES {
                ticket = self.log_owed(log)?;
            }
            self.record.clear();
            self.record.extend_from_slice(&self.unlogged);
            if let Some(effect) = effect {
                record::put(&mut self.record, effect);
            }
            let purpose = self.purpose_of(effect, now_ms);
            match self.append(log, purpose) {
                Ok(None) => {}
                Ok(later) => {
                    ticket = later;
                    self.unlogged.clear();
                }
                Err(refused) => {
                    if log.refuses_new_data() {
                        self.tell_evicted(Some(log), indexes);
                    }
                    return Err(refused);
                }
            }
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
        if let Some(log) = log
            && self.owes()
        {
            ticket = self.log_rest(log)?.or(ticket);
        }
        Ok(ticket)
    }

    /// Logs what applying a change has evicted. A log that has no room now is no error: the deletions stand before the next record, or are
    /// logged by the owner's upkeep if there is none soon.
    fn log_rest(&mut self, log: &Log) -> Result<Option<Ticket>, Box<Refused>> {
        match self.log_owed(log).map_err(|refused| *refused) {
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
    pub(super) fn tell_evicted(&mut self, log: Option<&Log>, indexes: &mut Indexes) {
        self.note_evicted(log.is_some(), indexes);
        if let Some(log) = log {
            // What is not taken stays owed.
            let _owed = self.log_owed(log);
        }
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
    pub(super) fn log_owed(&mut self, log: &Log) -> Result<Option<Ticket>, Box<Refused>> {
        let (mut ticket, mut told) = (None, 0);
        let mut refused = None;
        while told < self.unlogged.len() && refused.is_none() {
            let len = whole_effects(&self.unlogged[told..], OWED_RECORD_BYTES);
            self.record.clear();
            self.record.extend_from_slice(&self.unlogged[told..told + len]);
            match self.append(log, Purpose::Free) {
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

    /// Appends `record`.
    fn append(&mut self, log: &Log, purpose: Purpose) -> Result<Option<Ticket>, Box<Refused>> {
        if self.record.is_empty() {
            return Ok(None);
        }
        let key = RecordKey { collection: self.uid, seq: self.seq + 1 };
        let appended = log.append_for(purpose, key, &self.record);
        let ticket = appended.map_err(|error| {
            Box::new(match error {
                LogError::NoSpace(_) => Refused::NoRoom(purpose, self.record.len()),
                error => Refused::Error(crate::error::log_error(error)),
            })
        })?;
        self.seq += 1;
        self.unsaved_bytes += self.record.len() as u64;
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
        log: &Log,
        displaced: &mut Vec<Vec<u8>>,
    ) -> Result<(), Box<Refused>> {
        self.record.clear();
        let mut rest = displaced.len();
        while rest > 0 && self.record.len() < DISPLACED_RECORD_BYTES {
            rest -= 1;
            record::put(&mut self.record, &Effect::Delete { key: &displaced[rest] });
        }
        self.append(log, Purpose::Free)?;
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
        use crate::disk::{Disk, SimDisk};
        use crate::log::{LogConfig, RECORD_BYTES_MAX, SyncMode, scan};
        use nigh_engine::kv::{Config, KeyHasher};
        use nigh_engine::memory::Domain;
        use std::path::Path;
        use std::rc::Rc;

        let key_of = |n: u32| n.to_be_bytes().repeat(1000);
        let disk: Rc<dyn Disk> = Rc::new(SimDisk::new(1));
        let log_disk = disk.clone();
        let (owed, told) = crate::sim::run(1, |sim| async move {
            let config = LogConfig {
                dir: "log/0000".into(),
                generation: 1,
                segment_bytes: 1 << 20,
                sync: SyncMode::Always,
                owners: None,
            };
            let log = Log::create(log_disk, config).await.unwrap();
            let timer = sim.clone();
            sim.spawn(log.clone().flush_loop(Rc::new(move |us| Box::pin(timer.sleep_us(us)))));
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
                let effect = shard.writer.prepare(op, 1).unwrap().effect;
                match shard.commit(Some(&log), effect.as_ref(), 1, &mut indexes).map_err(|refused| *refused) {
                    Ok(ticket) => break ticket.unwrap(),
                    Err(Refused::NoRoom(_, bytes)) => {
                        assert!(bytes <= 2 * OWED_RECORD_BYTES, "{bytes} bytes in one record");
                        log.make_room(bytes).await.unwrap();
                    }
                    Err(refused) => panic!("{refused:?}"),
                }
            };
            log.durable(ticket).await.unwrap();
            assert!(!shard.owes());
            let logged = shard.seq;
            // What applying a change evicts comes behind it. Where the log is full it waits; an error of that append is the caller's.
            while shard.log_rest(&log).map_err(|refused| *refused).unwrap().is_some() || !shard.owes() {
                record::put(&mut shard.unlogged, &Effect::Delete { key: &key_of(owed) });
            }
            log.stop().await;
            assert!(matches!(shard.log_rest(&log).map_err(|refused| *refused), Err(Refused::Error(_))));
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
