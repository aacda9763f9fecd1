//! Lists of operations on keys that several cores own.

use super::key_batch::KeyBatch;
use super::op::{Answers, KeyOp, KeyResult};
use super::results::{KeyResults, KeyResultsIter};
use crate::error::OpError;
use crate::event::together;
use crate::kv::store::Keys;
use nigh_engine::kv::Read;
use std::rc::Rc;

/// Keys read between two chances for other work.
const SLICE_KEYS: usize = 64;
/// Operations sorted by owner between two chances for other work.
const SLICE_SORTED: usize = 16 * SLICE_KEYS;
/// Bytes copied between two chances for other work.
const SLICE_BYTES: usize = 1 << 20;

/// Results of a list, each with the batch of its owner.
#[derive(Debug)]
pub struct ListResults {
    /// Per core.
    results: Vec<KeyResults>,
    /// Of each operation.
    owners: Vec<usize>,
}

impl ListResults {
    /// How many.
    pub fn len(&self) -> usize {
        self.owners.len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.owners.is_empty()
    }

    /// The longest of the waits for logs, in nanoseconds, as far as is known.
    pub fn log_ns(&self) -> u64 {
        self.results.iter().map(KeyResults::log_ns).max().unwrap_or_default()
    }

    /// The results in the order of their operations.
    pub fn iter(&self) -> impl Iterator<Item = KeyResult<'_>> {
        let mut results: Vec<KeyResultsIter<'_>> = self.results.iter().map(KeyResults::iter).collect();
        self.owners.iter().filter_map(move |&owner| results[owner].next())
    }

    /// The first refusal in the order of the operations.
    ///
    /// # Errors
    /// There is one.
    pub fn all_done(&self) -> Result<(), OpError> {
        for result in self.iter() {
            if let KeyResult::Refused(error) | KeyResult::Failed(error) = result {
                return Err(error.clone());
            }
        }
        Ok(())
    }
}

impl Keys {
    /// Carries out each operation on its own, those of one owner in their order, all owners at the same time. What has changed is
    /// durable then.
    pub async fn carry_out_keys<'k>(self: &Rc<Self>, ops: impl Iterator<Item = KeyOp<'k>>) -> ListResults {
        let mut batches: Vec<KeyBatch> = (0..self.ctx.env().cores()).map(KeyBatch::new).collect();
        let mut owners = Vec::with_capacity(ops.size_hint().0);
        let mut copied = 0;
        if let Err(error) = self.served() {
            let mut refused = KeyResults::default();
            let count = ops.map(|_| refused.answer(KeyResult::Refused(&error))).count();
            owners.resize(count, 0);
            let results = (0..batches.len()).map(|_| std::mem::take(&mut refused)).collect();
            return ListResults { results, owners };
        }
        for op in ops {
            let place = self.place_of(op.key());
            owners.push(place.core);
            copied += batches[place.core].push(place, &op);
            if owners.len().is_multiple_of(SLICE_SORTED) || copied > SLICE_BYTES {
                copied = 0;
                self.ctx.env().breathe().await;
            }
        }
        let running = batches.into_iter().map(|batch| {
            let kv = self.clone();
            async move { if batch.is_empty() { KeyResults::default() } else { batch.carry_out(kv).await } }
        });
        ListResults { results: together(running.collect()).await, owners }
    }

    /// Answers with the value of each key as it is when its turn comes, until the answers [are full](Answers::is_full).
    ///
    /// # Errors
    /// [`OpError::Damaged`]: while the keys are damaged their views are empty, and an answer from them would say that there are no keys.
    /// [`OpError::Busy`].
    pub async fn get_keys(
        self: &Rc<Self>,
        wanted: &[&[u8]],
        answers: &mut impl Answers,
    ) -> Result<(), OpError> {
        let keys = self;
        keys.healthy()?;
        for (slice, some) in wanted.chunks(SLICE_KEYS).enumerate() {
            if slice > 0 {
                self.ctx.env().breathe().await;
            }
            keys.prefetch(some.iter().copied());
            for key in some {
                // Damage may have been noticed, and a restore may have emptied the tables, while others ran.
                keys.healthy()?;
                if !self.get_from_view(key, answers) {
                    let mut value = Vec::new();
                    let is_there = self.key_value(key, &mut value).await?;
                    answers.answer(if is_there { KeyResult::Value(&value) } else { KeyResult::Missing });
                }
                if answers.is_full() {
                    return Ok(());
                }
            }
        }
        Ok(())
    }

    /// Answers with what the published table says of a key; false when only its owner can tell.
    fn get_from_view(&self, key: &[u8], answers: &mut impl Answers) -> bool {
        let (keys, now_ms) = (self, self.ctx.unix_ms());
        let pin = keys.pin();
        let read = answers.value(|out| keys.get(&pin, keys.place_of(key), key, now_ms, out));
        !matches!(read, Read::Contended)
    }
}
