//! Makes room in memory, on core 0, by evicting the collections that were not used for longest: for collections that are promoted, and, if the
//! server evicts unused collections by itself, for writes as well.

use super::Core;
use super::cold::Cause;
use crate::account::MemoryUse;
use crate::catalog::CollectionHandle;
use crate::env::call_own;
use crate::error::OpError;
use std::rc::Rc;
use std::sync::{Arc, Weak};

/// The part of the memory limit that is kept free for writes when room is made.
const HEADROOM_PART: u64 = 16;
/// How many looks core 0 takes until the memory of an evicted collection is free, and the microseconds between two looks. The tasks of the
/// collection end and its readers leave within milliseconds.
const GONE_LOOKS: usize = 500;
const GONE_POLL_US: u64 = 1_000;
/// After an eviction, the core that owned the collection asks the allocator to return memory, at most once in this many microseconds.
const GIVE_BACK_US: u64 = 50_000;

/// Room in memory that is reserved for a promotion, until this is dropped.
pub(super) struct Reserved {
    core: Rc<Core>,
    bytes: u64,
}

impl Drop for Reserved {
    fn drop(&mut self) {
        let reserved = &self.core.cold.reserved;
        reserved.set(reserved.get() - self.bytes);
    }
}

/// Which of the collections that are not in use are kept all the same.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Spared {
    /// None.
    Nothing,
    /// The one that was used last: its next request would only bring it back.
    LastUsed,
}

/// What an attempt to evict a collection has come to.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Attempt {
    /// A collection has left.
    Left,
    /// Evictions were begun, and none has left.
    InVain,
    /// There was none that could leave, or none had to. That costs nothing.
    NoneIdle,
}

impl Core {
    /// Makes room for the promotion of a collection of `bytes` bytes, and for writes to it. The room is reserved until the returned value is
    /// dropped.
    ///
    /// # Errors
    /// [`OpError::NoMemory`] if the collection does not fit beside those that are in use.
    pub(super) async fn make_room_for(self: &Rc<Self>, bytes: u64) -> Result<Reserved, OpError> {
        let account = &self.node().account;
        let others = account.held(MemoryUse::Keys) + account.held(MemoryUse::Connections);
        if bytes.saturating_add(others) > account.limit_bytes() {
            // Evicting all collections would not make enough room, so none is evicted in vain.
            return Err(no_room());
        }
        // One at a time: if several made room at once, each would evict for all of them.
        let _room = self.cold.room.lock().await;
        while self.lacks_room(bytes) {
            if self.evict_least_recent(Spared::Nothing).await != Attempt::Left {
                // It may still fit, without room for writes. Loading it shows that.
                account
                    .fits_opening(bytes.saturating_add(self.cold.reserved.get()))
                    .map_err(|_| no_room())?;
                break;
            }
        }
        self.cold.reserved.set(self.cold.reserved.get() + bytes);
        Ok(Reserved { core: self.clone(), bytes })
    }

    /// Makes room for writes by evicting collections. None is evicted if evicting all of them would not be enough.
    pub(super) async fn make_room_for_writes(self: &Rc<Self>) -> Attempt {
        if self.missing_bytes(0) == 0 {
            return Attempt::NoneIdle;
        }
        let _room = self.cold.room.lock().await;
        let mut made = Attempt::NoneIdle;
        while self.lacks_room(0) && self.missing_bytes(0) < self.node().account.held(MemoryUse::Collections) {
            if self.is_stopping() {
                return made;
            }
            match (self.evict_least_recent(Spared::LastUsed).await, made) {
                (Attempt::Left, _) => made = Attempt::Left,
                (_, Attempt::Left) => return made,
                (in_vain, _) => return in_vain,
            }
        }
        made
    }

    /// Bytes that have to be freed before a collection of `bytes` bytes fits, beside those for which room is reserved, and with some room for
    /// writes.
    fn missing_bytes(&self, bytes: u64) -> u64 {
        let account = &self.node().account;
        let headroom = account.limit_bytes() / HEADROOM_PART;
        account.lacks_for_points(bytes.saturating_add(self.cold.reserved.get()).saturating_add(headroom))
    }

    /// Whether collections have to be evicted to free memory, by what the process holds now, after the allocator has returned what it need not
    /// keep.
    fn lacks_room(&self, bytes: u64) -> bool {
        if self.missing_bytes(bytes) == 0 {
            return false;
        }
        self.ctx.look_at_memory();
        if self.missing_bytes(bytes) > 0 && self.ctx.keeps_much_unseen() {
            self.ctx.give_back_memory(GIVE_BACK_US);
        }
        self.missing_bytes(bytes) > 0
    }

    /// Evicts the collection that was not used for longest, of those that can leave, and waits until its memory is free.
    pub(super) async fn evict_least_recent(self: &Rc<Self>, spared: Spared) -> Attempt {
        let mut idle: Vec<(u64, String, Weak<CollectionHandle>, usize)> = {
            let pin = self.pin();
            let catalog = self.node().catalog.load(&pin);
            let last_used =
                catalog.by_name.values().filter_map(|handle| handle.activity.as_ref()?.last_ns().into());
            let spared_ns = match spared {
                Spared::Nothing => u64::MAX,
                Spared::LastUsed => last_used.max().unwrap_or(0),
            };
            let idle = catalog.by_name.values().filter_map(|handle| {
                let activity = handle.activity.as_ref().filter(|activity| activity.is_quiet())?;
                handle.healthy().ok()?;
                let last_ns = activity.last_ns();
                (last_ns < spared_ns)
                    .then(|| (last_ns, handle.name.clone(), Arc::downgrade(handle), handle.owner))
            });
            idle.collect()
        };
        if idle.is_empty() {
            return Attempt::NoneIdle;
        }
        idle.sort_unstable_by(|one, other| (one.0, &one.1).cmp(&(other.0, &other.1)));
        for (last_ns, name, handle, owner) in idle {
            match self.evict(&name, Cause::Unused { last_ns }).await {
                Ok(true) => {
                    self.await_gone(&handle, owner).await;
                    return Attempt::Left;
                }
                Ok(false) => {}
                // The store has failed, and the next collection needs it too.
                Err(error @ OpError::Backup(_)) => {
                    tracing::warn!(collection = name, %error, "an unused collection could not be evicted to make room for another one");
                    return Attempt::InVain;
                }
                Err(error) => {
                    tracing::info!(collection = name, %error, "an unused collection cannot be evicted now to make room for another one");
                }
            }
        }
        Attempt::InVain
    }

    /// Waits until nothing refers to a collection that has left, and has its memory counted as free.
    async fn await_gone(self: &Rc<Self>, handle: &Weak<CollectionHandle>, owner: usize) {
        for _ in 0..GONE_LOOKS {
            // Old versions of the catalog refer to it as well.
            self.node().catalog.reclaim();
            if handle.strong_count() == 0 {
                break;
            }
            self.env().sleep_us(GONE_POLL_US).await;
        }
        call_own(self, owner, move |there| async move {
            there.collections.drop_old_writers();
            there.measure_memory();
            if there.ctx.keeps_much_unseen() {
                there.ctx.give_back_memory(GIVE_BACK_US);
            }
        })
        .await;
        self.ctx.look_at_memory();
    }
}

pub(super) fn no_room() -> OpError {
    OpError::NoMemory("the collection does not fit beside those that are in use".to_owned())
}
