//! Operations on keys that a client has asked for one after the other, without waiting for the results.
//!
//! No client can tell how its operations were carried out from one after the other: none overtakes an earlier one on the same key.
//! A key is read on the spot, from the published table of its owner, and changed on the spot where this core owns it. What is for
//! another core is gathered in one batch for that core; a read of a key joins the batch when there is one, as it would otherwise
//! overtake the changes in it.

use super::apply::{apply_later, apply_now, read};
use super::key_batch::KeyBatch;
use super::op::{Answers, KeyOp, KeyResult};
use super::settling::Unsettled;
use crate::kv::change::Moment;
use crate::kv::shard::Refused;
use crate::kv::store::KeyHome;
use crate::kv::store::Keys;

/// See the module.
#[derive(Debug, Default)]
pub struct Pipeline {
    moment: Moment,
    unsettled: Unsettled,
    /// At most one per core.
    gathered: Vec<KeyBatch>,
}

/// What became of an operation.
#[derive(Debug)]
pub enum Taken {
    /// It has been answered. If it is a change, its result holds once [`Pipeline::take_unsettled`] has been settled.
    Answered,
    /// It is a change of a key of this core that waits for the log: [`Pipeline::take_later`].
    Waits(Box<Refused>, KeyHome),
    /// It has been copied to the end of a batch, and its result is the next one of that batch.
    Joined {
        /// The core that the batch is for: [`Pipeline::batch_for`].
        owner: usize,
        /// About how many bytes of values the results of the batch have altogether.
        asked: usize,
    },
}

impl Pipeline {
    /// Something has happened that may have taken long.
    pub fn passes(&mut self) {
        self.moment.passes();
    }

    /// Carries out an operation on the spot or adds it to a batch. If its result is promised and cannot be kept, `at` tells its caller
    /// which one it is; they ascend. `op` is looked at where it lies: a copy would have to wait for the stores that have just written it, and for
    /// all that are before these.
    #[inline]
    pub fn take(&mut self, kv: &Keys, op: &KeyOp<'_>, at: usize, answers: &mut impl Answers) -> Taken {
        let keys = kv;
        // Until the keys are open, it is not known where a key lies.
        if let Err(error) = keys.served() {
            answers.answer(KeyResult::Refused(&error));
            return Taken::Answered;
        }
        let place = keys.place_of(op.key());
        if place.core == keys.index {
            return match apply_now(kv, place, op, &mut self.moment, answers) {
                Ok(ticket) => {
                    self.unsettled.note(at, ticket);
                    Taken::Answered
                }
                Err(refused) => Taken::Waits(refused, place),
            };
        }
        let gathering = self.gathered.iter().position(|batch| batch.owner() == place.core);
        if gathering.is_none() && op.is_read() && read(kv, place, op, &mut self.moment, answers) {
            return Taken::Answered;
        }
        let gathering = gathering.unwrap_or_else(|| {
            self.gathered.push(KeyBatch::new(place.core));
            self.gathered.len() - 1
        });
        let batch = &mut self.gathered[gathering];
        batch.push(place, op);
        let asked = match op.returns_value() {
            true => batch.asks_for(keys.value_len(place, op.key())),
            false => batch.asked(),
        };
        Taken::Joined { owner: place.core, asked }
    }

    /// Carries out an operation that [`Self::take`] has said [`Taken::Waits`] of; nothing else may have been taken meanwhile.
    pub async fn take_later(
        &mut self,
        (refused, place): (Box<Refused>, KeyHome),
        kv: &Keys,
        op: KeyOp<'_>,
        at: usize,
        answers: &mut impl Answers,
    ) {
        let ticket = apply_later(refused, kv, place, op, &mut self.moment, answers).await;
        self.unsettled.note(at, ticket);
    }

    /// Takes out the batch for a core, to be [carried out](KeyBatch::carry_out) before anything that it must not be overtaken by.
    pub fn batch_for(&mut self, owner: usize) -> KeyBatch {
        match self.gathered.iter().position(|batch| batch.owner() == owner) {
            Some(place) => self.gathered.swap_remove(place),
            None => KeyBatch::new(owner),
        }
    }

    /// Takes out what has to be waited for before the results on the spot hold.
    pub fn take_unsettled(&mut self) -> Unsettled {
        std::mem::take(&mut self.unsettled)
    }
}
