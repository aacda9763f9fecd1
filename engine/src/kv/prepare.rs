//! What operations mean: the owner decides about one here, without changing a key, and applies what it came to.

use super::op::{Action, Effect, Op, Prepared, Reply, StoreError, deadline_of};
use super::table::EntryOffset;
use super::view::is_live;
use super::writer::Writer;
use crate::memory::sync::Ordering::Relaxed;
use std::borrow::Cow;

impl Writer {
    /// Decides about an operation. The effect is appended to the log, if there is one, and then applied; the owner does nothing
    /// else with this store between the two. What the effect needs room for has room when this returns, so that it can be
    /// applied whatever happens.
    ///
    /// A key whose deadline has come is absent. An effect is there only when something changes, but for a `put`, which always
    /// has one, and a flush.
    ///
    /// # Errors
    /// As [`StoreError`] says.
    pub fn prepare<'a>(&mut self, op: &Op<'a>, now_ms: u64) -> Result<Prepared<'a>, StoreError> {
        let flag = |flag| Ok(Prepared::unchanged(Reply::Flag(flag)));
        match *op {
            Op::Put { key, value, ttl_ms } => {
                self.prepare_set(key, value, deadline_of(now_ms, ttl_ms)?, Reply::Done, now_ms)
            }
            Op::SetNx { key, value, ttl_ms } => {
                let deadline_ms = deadline_of(now_ms, ttl_ms)?;
                if self.live(key, now_ms).is_some() {
                    return flag(false);
                }
                self.prepare_set(key, value, deadline_ms, Reply::Flag(true), now_ms)
            }
            Op::GetSet { key, value, ttl_ms } => {
                let deadline_ms = deadline_of(now_ms, ttl_ms)?;
                let before = self.live(key, now_ms).map(|place| self.value_at(place));
                self.prepare_set(key, value, deadline_ms, Reply::Value(before), now_ms)
            }
            Op::Cas { key, value, expected, ttl_ms } => {
                let deadline_ms = deadline_of(now_ms, ttl_ms)?;
                let is_as_expected = match (self.live(key, now_ms), expected) {
                    (None, None) => true,
                    (Some(place), Some(expected)) => self.has_value(place, expected),
                    _ => false,
                };
                if !is_as_expected {
                    return flag(false);
                }
                self.prepare_set(key, value, deadline_ms, Reply::Flag(true), now_ms)
            }
            Op::Incr { key, delta } => self.prepare_sum(key, delta, None, now_ms),
            Op::IncrEx { key, delta, ttl_ms } => {
                self.prepare_sum(key, delta, Some(deadline_of(now_ms, ttl_ms)?), now_ms)
            }
            Op::Del { key } => {
                let effect = self.live(key, now_ms).map(|_| Effect::Delete { key });
                Ok(Prepared { reply: Reply::Flag(effect.is_some()), effect })
            }
            Op::GetDel { key } => {
                let Some(place) = self.live(key, now_ms) else {
                    return Ok(Prepared::unchanged(Reply::Value(None)));
                };
                Ok(Prepared::with(Effect::Delete { key }, Reply::Value(Some(self.value_at(place)))))
            }
            Op::Cad { key, expected } => match self.live(key, now_ms) {
                Some(place) if self.has_value(place, expected) => {
                    Ok(Prepared::with(Effect::Delete { key }, Reply::Flag(true)))
                }
                _ => flag(false),
            },
            Op::Expire { key, ttl_ms } => {
                let deadline_ms = deadline_of(now_ms, ttl_ms)?;
                Ok(match self.live(key, now_ms) {
                    None => Prepared::unchanged(Reply::Missing),
                    Some(place) => self.prepare_deadline(key, place, deadline_ms, Reply::Done),
                })
            }
            Op::Caex { key, expected, ttl_ms } => {
                let deadline_ms = deadline_of(now_ms, ttl_ms)?;
                match self.live(key, now_ms) {
                    Some(place) if self.has_value(place, expected) => {
                        Ok(self.prepare_deadline(key, place, deadline_ms, Reply::Flag(true)))
                    }
                    _ => flag(false),
                }
            }
            Op::Persist { key } => match self.live(key, now_ms) {
                Some(place) if self.deadline_at(place) != 0 => {
                    Ok(self.prepare_deadline(key, place, 0, Reply::Flag(true)))
                }
                _ => flag(false),
            },
            Op::Flush => {
                self.prepare_flush()?;
                Ok(Prepared::with(Effect::Flush, Reply::Done))
            }
        }
    }

    /// Any atomic read-modify-write of one key: `decide` is given value and deadline (ms since 1970, 0 = never), or `None` for a
    /// key that is absent, and says what becomes of it and what to answer. As for [`Self::prepare`].
    ///
    /// # Errors
    /// As [`StoreError`] says of what is to be set; `decide` answers its own refusals with [`Action::Keep`].
    pub fn prepare_update<'a, R>(
        &mut self,
        key: &'a [u8],
        now_ms: u64,
        decide: impl FnOnce(Option<(&[u8], u64)>) -> (Action, R),
    ) -> Result<Prepared<'a, R>, StoreError> {
        let found = self.live(key, now_ms);
        let mut value = std::mem::take(&mut self.value);
        value.clear();
        let (action, reply) = decide(found.map(|place| {
            self.shared.append_value(&self.shared.entry(place), &mut value);
            (&value[..], self.deadline_at(place))
        }));
        self.keep_scratch(value);
        Ok(match (action, found) {
            (Action::Set { value, deadline_ms }, _) => {
                self.ensure_room(key.len(), value.len(), now_ms)?;
                Prepared::with(Effect::Set { key, value: Cow::Owned(value), deadline_ms }, reply)
            }
            (Action::Deadline { deadline_ms }, Some(place)) => {
                self.prepare_deadline(key, place, deadline_ms, reply)
            }
            (Action::Delete, Some(_)) => Prepared::with(Effect::Delete { key }, reply),
            (Action::Keep | Action::Delete | Action::Deadline { .. }, _) => Prepared::unchanged(reply),
        })
    }

    /// Reads on the owner's core, when a view is [`Contended`](super::Read::Contended) or no pin is at hand: appends the value and
    /// tells the deadline.
    pub fn get(&mut self, key: &[u8], now_ms: u64, out: &mut Vec<u8>) -> Option<u64> {
        let place = self.live(key, now_ms)?;
        let entry = self.shared.entry(place);
        self.shared.append_value(&entry, out);
        if self.config.sieve_visited_bit {
            entry.visit();
        }
        Some(entry.deadline_ms())
    }

    /// As [`Self::get`], but it does not count as a use of the value: for images.
    pub fn peek(&mut self, key: &[u8], now_ms: u64, out: &mut Vec<u8>) -> Option<u64> {
        let place = self.live(key, now_ms)?;
        let entry = self.shared.entry(place);
        self.shared.append_value(&entry, out);
        Some(entry.deadline_ms())
    }

    /// Makes sure that a record can be set.
    fn ensure_room(&mut self, key_len: usize, value_len: usize, now_ms: u64) -> Result<(), StoreError> {
        let head = self.layout(key_len, value_len)?;
        if !self.has_room(head) {
            self.make_room(head, now_ms)?;
        }
        // Perhaps with spare pages: whether they would be needed still is not asked again when the effect is applied.
        self.ready = Some(head);
        Ok(())
    }

    fn prepare_set<'a>(
        &mut self,
        key: &'a [u8],
        value: &'a [u8],
        deadline_ms: u64,
        reply: Reply,
        now_ms: u64,
    ) -> Result<Prepared<'a>, StoreError> {
        self.ensure_room(key.len(), value.len(), now_ms)?;
        Ok(Prepared::with(Effect::Set { key, value: Cow::Borrowed(value), deadline_ms }, reply))
    }

    /// `created`: deadline of a key that was absent, and one that is there keeps its own; `None`: no deadline afterwards.
    fn prepare_sum<'a>(
        &mut self,
        key: &'a [u8],
        delta: i64,
        created: Option<u64>,
        now_ms: u64,
    ) -> Result<Prepared<'a>, StoreError> {
        let (before, deadline_ms) = match self.live(key, now_ms) {
            None => (0, created.unwrap_or(0)),
            Some(place) => {
                let bytes = self.number_at(place).ok_or(StoreError::NotANumber)?;
                (i64::from_be_bytes(bytes), created.map_or(0, |_| self.deadline_at(place)))
            }
        };
        let sum = before.wrapping_add(delta);
        self.ensure_room(key.len(), size_of::<i64>(), now_ms)?;
        let value = Cow::Owned(sum.to_be_bytes().to_vec());
        Ok(Prepared::with(Effect::Set { key, value, deadline_ms }, Reply::Number(sum)))
    }

    /// The deadline of a key that is there, in ms since 1970, 0 for never.
    pub fn deadline(&mut self, key: &[u8], now_ms: u64) -> Option<u64> {
        self.live(key, now_ms).map(|place| self.deadline_at(place))
    }

    fn prepare_deadline<'a, R>(
        &self,
        key: &'a [u8],
        place: EntryOffset,
        deadline_ms: u64,
        reply: R,
    ) -> Prepared<'a, R> {
        if self.deadline_at(place) == deadline_ms {
            return Prepared::unchanged(reply);
        }
        Prepared::with(Effect::Deadline { key, deadline_ms }, reply)
    }

    /// The entry of a key that is there.
    fn live(&mut self, key: &[u8], now_ms: u64) -> Option<EntryOffset> {
        let hash = self.shared.hasher.hash_of(key).0;
        let (_, place) = self.locate(hash, key)?;
        is_live(self.deadline_at(place), now_ms).then_some(place)
    }

    fn deadline_at(&self, place: EntryOffset) -> u64 {
        self.shared.entry(place).deadline_ms()
    }

    fn has_value(&self, place: EntryOffset, expected: &[u8]) -> bool {
        self.shared.has_value(&self.shared.entry(place), expected)
    }

    fn value_at(&self, place: EntryOffset) -> Vec<u8> {
        let mut value = Vec::new();
        self.shared.append_value(&self.shared.entry(place), &mut value);
        value
    }

    fn number_at(&self, place: EntryOffset) -> Option<[u8; 8]> {
        let entry = self.shared.entry(place);
        // Eight bytes are one word, and never lie in a page of their own.
        (entry.head().value_len() == size_of::<i64>()).then(|| entry.value()[0].load(Relaxed).to_le_bytes())
    }
}
