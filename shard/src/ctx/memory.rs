//! Memory as a core sees it: what its points may still take, and what the allocator keeps.

use super::Ctx;
use crate::account::{Growth, Refusal};
use crate::checkpoint::VectorsFile;
use crate::error::{OpError, io_error, refused_memory};
use crate::family::CollectionConfig;
use nigh_engine::collection::DenseWriter;

/// While the memory limit is exceeded or a write is refused, a core asks at most this often, in microseconds.
pub(crate) const GIVE_BACK_FULL_US: u64 = 1_000_000;

impl Ctx {
    /// Admits a write of points that takes about `bytes`, or refuses it at the memory limit.
    ///
    /// # Errors
    /// [`OpError::NoMemory`], or [`OpError::Busy`] where it is requests and answers that leave no room.
    pub(crate) fn room_in_memory(&self, bytes: u64, growth: Growth) -> Result<(), OpError> {
        if self.shared.account.wants_look() {
            self.look_at_memory();
        }
        if self.writes_awaited.replace(false) {
            self.writes.notify();
        }
        let mut taken = self.points.take(bytes, growth);
        if matches!(taken, Err(Refusal::Full { .. }))
            && self.keeps_much_unseen()
            && self.give_back_memory(GIVE_BACK_FULL_US)
        {
            taken = self.points.take(bytes, growth);
        }
        taken.map_err(refused_memory)
    }

    /// Resolves when this core next admits a write of points after this call.
    pub(crate) fn await_writes(&self) -> impl Future<Output = ()> + '_ {
        self.writes_awaited.set(true);
        self.writes.wait()
    }

    /// Whether the allocator should be asked again to return memory: there is much more that is unaccounted for than it left the last time.
    pub(crate) fn keeps_much_unseen(&self) -> bool {
        let account = &self.shared.account;
        self.unseen_left.set(self.unseen_left.get().min(account.unseen()));
        account.keeps_much_unseen(self.unseen_left.get())
    }

    /// Has the allocator return unused memory, and then has the account look at the resident set. Returns false, and does nothing, within
    /// `pause_us` of the last time on this core.
    pub(crate) fn give_back_memory(&self, pause_us: u64) -> bool {
        let now_us = self.env.now_ns() / 1000;
        if now_us < self.given_back_us.get() + pause_us {
            return false;
        }
        (self.shared.options.give_back_memory)();
        self.given_back_us.set(now_us);
        self.look_at_memory();
        self.unseen_left.set(self.shared.account.unseen());
        true
    }

    /// Has the account see what the kernel counts.
    pub(crate) fn look_at_memory(&self) {
        if let Some(bytes) = self.env.resident_bytes() {
            self.shared.account.note_resident(bytes);
        }
    }

    /// Makes an empty writer for `config` in this node's memory, or in `vectors` where they lie in a file, for at least `slots`
    /// points: what was stored once opens under a lower memory limit too.
    ///
    /// # Errors
    /// [`OpError::NoMemory`] when the address space for it cannot be reserved, or a file cannot be had.
    pub(crate) fn new_writer(
        &self,
        config: &CollectionConfig,
        vectors: Option<&VectorsFile>,
        slots: usize,
    ) -> Result<DenseWriter, OpError> {
        let slots = self.shared.slots_max(config, slots);
        let storage = match (vectors, self.env.disk()) {
            (Some(vectors), Some(disk)) => Some(vectors.storage(&*disk).map_err(|e| io_error(&e))?),
            _ => None,
        };
        let domain = self.shared.domain.clone();
        let made = match config {
            CollectionConfig::Dense(config) => DenseWriter::create_in(config.clone(), slots, domain, storage),
            CollectionConfig::Named(config) => DenseWriter::create_named(config, slots, domain),
            CollectionConfig::MultiVector(config) => {
                DenseWriter::create_named(&config.documents(), slots, domain)
            }
        };
        made.map_err(|error| OpError::NoMemory(error.to_string()))
    }

    /// Tells the account what the points hold of a collection that this core has from now on.
    pub(crate) fn add_points(&self, bytes: u64) {
        self.points.add(bytes);
    }

    /// Tells the account what the points of this core hold.
    pub(crate) fn measure_points(&self, bytes: u64) {
        self.points.measure(bytes);
    }
}
