//! What the log of a shard comes to, known before any of it is applied.
//!
//! A key whose deadline has passed may have been given a later one further on, and one that was written may have been deleted: a store that
//! applied every record in turn would hold, on its way, what no store ever held, and evict what is needed for it. So the log is looked
//! through from its end first. Of each key only the last value counts, with the deadline that it has in the end; what images have
//! of a key that the log writes or deletes does not count at all.

use super::record;
use crate::slice::Slice;
use ahash::HashMap;
use nigh_engine::kv::Effect;
use std::borrow::Cow;

/// Log records of a shard above its images: sequence number and body.
pub(crate) type Records = Vec<(u64, Vec<u8>)>;

/// A record and an effect in it.
type Position = (usize, usize);

/// What becomes of a key that the log names.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Fate {
    /// Its last value stands there, and this is its deadline.
    Set { at: Position, deadline_ms: u64 },
    /// It is deleted.
    Deleted,
    /// If it was there before the log begins, its deadline is this one.
    Deadline(u64),
}

/// See the module.
#[derive(Default)]
pub(super) struct Outcome<'a> {
    /// Everything before the log's last flush is gone, images included.
    is_flushed: bool,
    fates: HashMap<&'a [u8], Fate>,
}

impl<'a> Outcome<'a> {
    /// Of records in the order of their sequence numbers.
    ///
    /// # Errors
    /// A sentence, when a record cannot be decoded.
    pub(super) fn of(records: &'a Records) -> Result<Outcome<'a>, String> {
        let mut outcome = Outcome::default();
        for (index, (_, body)) in records.iter().enumerate().rev() {
            if !outcome.precede_record(index, body)? {
                break;
            }
        }
        Ok(outcome)
    }

    /// As [`Self::of`], in slices.
    ///
    /// # Errors
    /// As [`Self::of`].
    pub(super) async fn of_slowly(records: &'a Records, slice: &mut Slice) -> Result<Outcome<'a>, String> {
        let mut outcome = Outcome::default();
        for (index, (_, body)) in records.iter().enumerate().rev() {
            if !outcome.precede_record(index, body)? {
                break;
            }
            slice.check().await;
        }
        Ok(outcome)
    }

    /// Takes the record that comes before all that were taken so far; false if nothing before it counts.
    fn precede_record(&mut self, index: usize, body: &'a [u8]) -> Result<bool, String> {
        let effects: Result<Vec<Effect<'a>>, _> = record::Effects::of(body).collect();
        let effects = effects.map_err(|error| error.to_string())?;
        Ok(effects.iter().enumerate().rev().all(|(part, effect)| self.precede((index, part), effect)))
    }

    /// Takes what comes before all that was taken so far; false for a flush, before which nothing counts.
    fn precede(&mut self, at: Position, effect: &Effect<'a>) -> bool {
        // Keys of the log are borrowed from its records, not from the effect.
        match *effect {
            Effect::Set { key, deadline_ms, .. } => match self.fates.get(key) {
                Some(Fate::Set { .. } | Fate::Deleted) => {}
                Some(&Fate::Deadline(deadline_ms)) => {
                    self.fates.insert(key, Fate::Set { at, deadline_ms });
                }
                None => {
                    self.fates.insert(key, Fate::Set { at, deadline_ms });
                }
            },
            Effect::Deadline { key, deadline_ms } => {
                self.fates.entry(key).or_insert(Fate::Deadline(deadline_ms));
            }
            Effect::Delete { key } => {
                let fate = self.fates.entry(key).or_insert(Fate::Deleted);
                if matches!(fate, Fate::Deadline(_)) {
                    *fate = Fate::Deleted;
                }
            }
            Effect::Flush => {
                self.is_flushed = true;
                return false;
            }
        }
        true
    }

    /// What an effect of an image comes to at `now_ms`: nothing when the log has the key, and a deletion when its deadline has passed, as an
    /// older image may have it with another.
    pub(super) fn of_image<'e>(&self, effect: Effect<'e>, now_ms: u64) -> Option<Effect<'e>> {
        if self.is_flushed {
            return None;
        }
        match effect {
            Effect::Set { key, value, deadline_ms } => {
                let deadline_ms = match self.fates.get(key) {
                    None => deadline_ms,
                    Some(&Fate::Deadline(deadline_ms)) => deadline_ms,
                    Some(Fate::Set { .. } | Fate::Deleted) => return None,
                };
                Some(match has_passed(deadline_ms, now_ms) {
                    true => Effect::Delete { key },
                    false => Effect::Set { key, value, deadline_ms },
                })
            }
            other => Some(other),
        }
    }

    /// What an effect of the log comes to at `now_ms`: a set where it is the last one of its key and that is alive.
    pub(super) fn of_log<'e>(&self, at: Position, effect: &'e Effect<'e>, now_ms: u64) -> Option<Effect<'e>> {
        let Effect::Set { key, value, .. } = effect else { return None };
        match self.fates.get(key) {
            Some(&Fate::Set { at: last, deadline_ms }) if last == at && !has_passed(deadline_ms, now_ms) => {
                Some(Effect::Set { key, value: Cow::Borrowed(value), deadline_ms })
            }
            _ => None,
        }
    }
}

fn has_passed(deadline_ms: u64, now_ms: u64) -> bool {
    deadline_ms != 0 && deadline_ms <= now_ms
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sim::Random;
    use std::collections::BTreeMap;

    fn applied(to: &mut BTreeMap<Vec<u8>, (Vec<u8>, u64)>, effect: &Effect<'_>) {
        match effect {
            Effect::Set { key, value, deadline_ms } => {
                to.insert(key.to_vec(), (value.to_vec(), *deadline_ms));
            }
            Effect::Deadline { key, deadline_ms } => {
                if let Some((_, deadline)) = to.get_mut(*key) {
                    *deadline = *deadline_ms;
                }
            }
            Effect::Delete { key } => drop(to.remove(*key)),
            Effect::Flush => to.clear(),
        }
    }

    fn random_effect<'k>(random: &Random, keys: &'k [Vec<u8>], n: u8) -> Effect<'k> {
        let key = &keys[random.index(keys.len())][..];
        let deadline_ms = [0, 50, 100, 101, 200][random.index(5)];
        match random.below(40) {
            0 => Effect::Flush,
            1..=15 => Effect::Set { key, value: Cow::Owned(vec![n]), deadline_ms },
            16..=30 => Effect::Deadline { key, deadline_ms },
            _ => Effect::Delete { key },
        }
    }

    /// Images of two and a log, as they come to what each of them applied in turn comes to, of which what has expired is taken out at the end.
    #[test]
    fn the_outcome_is_what_every_effect_in_turn_comes_to() {
        let keys: Vec<Vec<u8>> = (0..6u8).map(|n| vec![n; n.into()]).collect();
        for seed in 0..20_000 {
            let random = Random::new(seed);
            let now_ms = 100;
            let (mut expected, mut found) = (BTreeMap::new(), BTreeMap::new());
            let mut images: Vec<Effect<'_>> = Vec::new();
            for n in 0..random.below(12) as u8 {
                // Images have no changes of a deadline alone.
                let effect = random_effect(&random, &keys, n);
                if !matches!(effect, Effect::Deadline { .. }) {
                    images.push(effect);
                }
            }
            let mut records = Records::new();
            let mut log: Vec<Effect<'_>> = Vec::new();
            for seq in 0..random.below(10) {
                let mut body = Vec::new();
                for n in 0..1 + random.below(3) {
                    let effect = random_effect(&random, &keys, (100 + 3 * seq + n) as u8);
                    record::put(&mut body, &effect);
                    log.push(effect);
                }
                records.push((seq, body));
            }
            images.iter().chain(&log).for_each(|effect| applied(&mut expected, effect));
            expected.retain(|_, (_, deadline_ms)| !has_passed(*deadline_ms, now_ms));

            let outcome = Outcome::of(&records).unwrap();
            for effect in images {
                if let Some(effect) = outcome.of_image(effect, now_ms) {
                    applied(&mut found, &effect);
                }
            }
            let mut sets = 0;
            for (index, (_, body)) in records.iter().enumerate() {
                for (part, effect) in record::Effects::of(body).enumerate() {
                    let effect = effect.unwrap();
                    if let Some(effect) = outcome.of_log((index, part), &effect, now_ms) {
                        applied(&mut found, &effect);
                        sets += 1;
                    }
                }
            }
            assert_eq!(found, expected, "seed {seed}");
            assert!(sets <= keys.len(), "each key is written once at most");
        }
    }
}
