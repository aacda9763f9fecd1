//! The account of memory: what the process holds, by use, against one limit.
//!
//! Whatever grows asks it first. What is taken for a while (a body, an answer, an image being written) is a [`Charge`], which gives it back
//! when it is dropped. What stays (points, keys) is a [`Share`] of each core: it is admitted write by write, and measured now and then.

use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, OnceLock};

/// What memory is held for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MemoryUse {
    /// Points of collections: vectors, payloads, indexes.
    Collections,
    /// The key-value store.
    Keys,
    /// Bytes of requests that are received or carried out.
    Requests,
    /// Heads of HTTP requests, which are received before anybody can know who sends them.
    Heads,
    /// Bytes of responses that are made and that the client has not taken.
    Answers,
    /// What a start reads from logs and images and has not applied.
    Replay,
    /// Images being written.
    Images,
    /// Open connections: their tasks, the buffers of idle ones, and responses too short to be counted by themselves.
    Connections,
}

impl MemoryUse {
    /// Every use, in the order of the metrics page.
    pub const ALL: [MemoryUse; 8] = [
        MemoryUse::Collections,
        MemoryUse::Keys,
        MemoryUse::Requests,
        MemoryUse::Heads,
        MemoryUse::Answers,
        MemoryUse::Replay,
        MemoryUse::Images,
        MemoryUse::Connections,
    ];

    /// Its name on the metrics page.
    pub fn name(self) -> &'static str {
        match self {
            MemoryUse::Collections => "collections",
            MemoryUse::Keys => "keys",
            MemoryUse::Requests => "requests",
            MemoryUse::Heads => "heads",
            MemoryUse::Answers => "answers",
            MemoryUse::Replay => "replay",
            MemoryUse::Images => "images",
            MemoryUse::Connections => "connections",
        }
    }
}

/// A part of the limit that points and keys leave alone, so that requests are received and answered, images written, points deleted and the
/// server stopped however full it is,
const RESERVE_PART: u64 = 8;
/// and its most: what all requests and answers together may take is bounded too.
const RESERVE_BYTES_MAX: u64 = 1 << 30;
/// The part of the limit that points leave to keys, if these may have so much: a store that has none could take no key at all.
const KEYS_PART: u64 = 16;
/// The part of the limit that may be used beyond what points may take by what reuses the place of a point that is gone.
const REUSE_PART: u64 = 32;
/// The part of the limit that connections may hold,
const CONNECTIONS_PART: u64 = 16;
/// the part of it that connections may go beyond it, because whoever looks after a server that is full has to reach it,
const CONNECTIONS_BEYOND_PART: u64 = 16;
/// and the part that short requests may go beyond it, because deletions have to be taken.
const SHORT_BEYOND_PART: u64 = 32;
/// A request up to this many bytes is short.
const SHORT_BYTES: u64 = 64 << 10;
/// The part of the reserve that stays free when keys take what is theirs.
const KEYS_RESERVE_PART: u64 = 4;
/// A core takes that part of the limit at once for what it is about to write, within these bytes.
const GRANT_PART: u64 = 2048;
const GRANT_BYTES: std::ops::RangeInclusive<u64> = 4 << 10..=1 << 20;
/// When at least this part of the limit is resident but unused, the allocator is asked to return memory.
const UNSEEN_PART: u64 = 32;
/// The resident set is looked at anew once that part of the limit has been taken, by whatever use.
const LOOK_PART: u64 = 64;

/// What the process holds, by use, and what the kernel says it has beyond that. Every operation is a few atomic ones; totals may be a moment
/// old.
///
/// What the account is not told (stacks, rings, buffers of the runtime, ends of pages, what the allocator keeps) is seen in the resident set
/// and counts as *unseen*. What the kernel holds for the process (sockets, tables of pages) is in neither: the limit is below what the machine
/// has by more than that.
#[derive(Debug)]
pub struct Account {
    limit_bytes: u64,
    keys_bytes: u64,
    held: [AtomicU64; MemoryUse::ALL.len()],
    unseen: AtomicU64,
    /// What collections will take that are not open yet, see [`Self::promise`].
    promised: AtomicU64,
    /// Taken since the last look at the resident set.
    unlooked: AtomicU64,
    /// What tells the resident set, see [`Self::look_with`].
    resident_bytes: OnceLock<fn() -> Option<u64>>,
}

/// Why points or keys may not take more memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refusal {
    /// What stays in memory has reached its limit.
    Full {
        /// Bytes of points and keys, and unseen ones.
        used_bytes: u64,
        /// The limit for them.
        limit_bytes: u64,
    },
    /// Collections that are being opened will need what is left.
    Promised {
        /// Bytes of points and keys, unseen ones, and those that will be needed.
        used_bytes: u64,
        /// The limit for them.
        limit_bytes: u64,
    },
    /// Requests and answers leave no room at this moment.
    Crowded {
        /// Bytes of all uses.
        used_bytes: u64,
        /// The limit for them.
        limit_bytes: u64,
    },
}

/// What a write does with the memory that it takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Growth {
    /// It is new.
    New,
    /// It takes the place of a deleted point and may go a little beyond the limit (its payload may be larger): otherwise a full node could
    /// not even replace.
    Reuse,
}

impl Account {
    /// An account of which nothing is used, with a limit in bytes.
    pub fn new(limit_bytes: u64) -> Arc<Account> {
        Self::with_keys(limit_bytes, 0)
    }

    /// The same for a node whose keys have a budget.
    pub fn with_keys(limit_bytes: u64, keys_budget_bytes: u64) -> Arc<Account> {
        Arc::new(Account {
            limit_bytes,
            keys_bytes: keys_budget_bytes.min(limit_bytes / KEYS_PART),
            held: Default::default(),
            unseen: AtomicU64::new(0),
            promised: AtomicU64::new(0),
            unlooked: AtomicU64::new(0),
            resident_bytes: OnceLock::new(),
        })
    }

    /// From now on the account itself looks at the resident set by `resident_bytes` before it lets requests, answers and images take more, once
    /// enough has been taken: what clients make the process allocate and free within moments is counted for as long as the allocator keeps it.
    pub fn look_with(&self, resident_bytes: fn() -> Option<u64>) {
        // A node is started once.
        let _set_before = self.resident_bytes.set(resident_bytes);
    }

    fn look_if_due(&self) {
        if self.wants_look() {
            self.look();
        }
    }

    /// Looks at the resident set, if there is something to look with.
    fn look(&self) {
        if let Some(bytes) = self.resident_bytes.get().and_then(|resident_bytes| resident_bytes()) {
            self.note_resident(bytes);
        }
    }

    /// The limit in bytes.
    pub fn limit_bytes(&self) -> u64 {
        self.limit_bytes
    }

    /// Bytes held for one use.
    pub fn held(&self, of: MemoryUse) -> u64 {
        self.held[of as usize].load(Relaxed)
    }

    /// Bytes that the kernel said the process has beyond what was held.
    pub fn unseen(&self) -> u64 {
        self.unseen.load(Relaxed)
    }

    /// Bytes held for all uses, and unseen ones.
    pub fn total(&self) -> u64 {
        self.all_held() + self.unseen()
    }

    fn all_held(&self) -> u64 {
        MemoryUse::ALL.iter().map(|of| self.held(*of)).sum()
    }

    /// Bytes that stay: points, keys, and what is unseen.
    fn lasting(&self) -> u64 {
        self.held(MemoryUse::Collections) + self.held(MemoryUse::Keys) + self.unseen()
    }

    fn reserve_bytes(&self) -> u64 {
        (self.limit_bytes / RESERVE_PART).min(RESERVE_BYTES_MAX)
    }

    /// Bytes that may stay in memory when `of` takes `more_bytes`. Keys have their part also where something has grown that nobody asked for
    /// (a quantizer that was trained, the allocator).
    fn lasting_max(&self, of: MemoryUse, more_bytes: u64) -> u64 {
        let keys_left = self.keys_bytes.saturating_sub(self.held(MemoryUse::Keys));
        let reserve = self.reserve_bytes();
        self.limit_bytes
            - match of {
                MemoryUse::Keys if more_bytes <= keys_left => reserve / KEYS_RESERVE_PART,
                MemoryUse::Keys => reserve,
                _ => reserve + keys_left,
            }
    }

    /// The kernel says that the process has `resident_bytes` of memory that no file can take back.
    pub fn note_resident(&self, resident_bytes: u64) {
        self.unlooked.store(0, Relaxed);
        self.unseen.store(resident_bytes.saturating_sub(self.all_held()), Relaxed);
    }

    /// Whether so much has been taken since the last [`Self::note_resident`] that another is due.
    pub fn wants_look(&self) -> bool {
        self.unlooked.load(Relaxed) >= self.limit_bytes / LOOK_PART
    }

    /// Whether so much resident memory is unaccounted for that the allocator should be asked to return some, where it last left `left_bytes`:
    /// stacks, programs and devices have memory that no allocator returns.
    pub fn keeps_much_unseen(&self, left_bytes: u64) -> bool {
        self.unseen() >= left_bytes + self.limit_bytes / UNSEEN_PART
    }

    /// Takes `bytes` for a use that may hold `most` in all; `None`, and nothing is taken, when that or the limit would be exceeded.
    pub fn charge(self: &Arc<Self>, of: MemoryUse, bytes: u64, most: u64) -> Option<Charge> {
        let mut charge = Charge { account: self.clone(), of, bytes: 0 };
        charge.resize(bytes, most).then_some(charge)
    }

    /// Bytes that connections may hold.
    pub fn connections_most(&self) -> u64 {
        self.limit_bytes / CONNECTIONS_PART
    }

    /// Takes `bytes` for a connection that begins; `None` when connections hold as much as they may.
    pub fn charge_connection(self: &Arc<Self>, bytes: u64) -> Option<Charge> {
        let most = self.connections_most();
        let beyond = self.limit_bytes / CONNECTIONS_BEYOND_PART;
        let taken = self.take_or_look(MemoryUse::Connections, bytes, most, beyond);
        taken.then(|| Charge { account: self.clone(), of: MemoryUse::Connections, bytes })
    }

    /// Takes `bytes` whatever there is: for what is small and has to be done, or is there already.
    pub fn hold(self: &Arc<Self>, of: MemoryUse, bytes: u64) -> Charge {
        let mut charge = Charge { account: self.clone(), of, bytes: 0 };
        charge.set(bytes);
        charge
    }

    /// Replaces what one holder had been measured at by what it has now.
    pub fn measured(&self, of: MemoryUse, before: u64, now: u64) {
        self.held[of as usize].fetch_add(now.wrapping_sub(before), Relaxed);
        self.unlooked.fetch_add(now.saturating_sub(before), Relaxed);
    }

    /// Whether what is being opened still fits. It may use the reserve, because what was served before must open again although it may need
    /// more now: quantizers and edges have grown since its points were admitted. Large requests find room again as soon as something is
    /// deleted.
    ///
    /// # Errors
    /// It does not.
    pub fn fits_opening(&self, more_bytes: u64) -> Result<(), Refusal> {
        let (used_bytes, limit_bytes) = (self.lasting() + more_bytes, self.limit_bytes);
        if used_bytes > limit_bytes { Err(Refusal::Full { used_bytes, limit_bytes }) } else { Ok(()) }
    }

    /// By how many bytes what stays in memory has to shrink before new points may take `more_bytes`; 0 if they may now.
    pub fn lacks_for_points(&self, more_bytes: u64) -> u64 {
        let of = MemoryUse::Collections;
        self.lasting().saturating_add(more_bytes).saturating_sub(self.lasting_max(of, more_bytes))
    }

    /// Keeps so many bytes for collections that are not open yet: what is open already must not grow into the room that they need, or they would
    /// stay closed. It replaces what was promised before.
    pub fn promise(&self, bytes: u64) {
        self.promised.store(bytes, Relaxed);
    }

    /// What writes may not take because of [`Self::promise`]. Keys have the part that is theirs all the same.
    fn promised_to_others(&self, of: MemoryUse, more_bytes: u64) -> u64 {
        let keys_left = self.keys_bytes.saturating_sub(self.held(MemoryUse::Keys));
        if of == MemoryUse::Keys && more_bytes <= keys_left { 0 } else { self.promised.load(Relaxed) }
    }

    /// Whether keys get no more memory because collections that are not open yet need it. A store without another page evicts keys, and these would be
    /// lost although there is room for all once the collections are open.
    #[inline]
    pub fn holds_keys_back(&self) -> bool {
        if self.promised.load(Relaxed) == 0 {
            return false;
        }
        let step = self.step();
        let promised = self.promised_to_others(MemoryUse::Keys, step);
        promised > 0
            && (self.lasting() + step).saturating_add(promised) > self.lasting_max(MemoryUse::Keys, step)
    }

    /// Takes `bytes` for points or keys, or `grant` where there is so much.
    fn take_lasting(&self, of: MemoryUse, bytes: u64, grant: u64, growth: Growth) -> Result<u64, Refusal> {
        let beyond = match growth {
            Growth::New => 0,
            Growth::Reuse => self.limit_bytes / REUSE_PART,
        };
        // The second try takes no more than is needed.
        let mut refused = None;
        for wanted in [grant.max(bytes), bytes] {
            let used_bytes = self.lasting() + wanted;
            let limit_bytes = self.lasting_max(of, wanted) + beyond;
            if used_bytes > limit_bytes {
                refused = Some(Refusal::Full { used_bytes, limit_bytes });
                continue;
            }
            let used_bytes = used_bytes.saturating_add(self.promised_to_others(of, wanted));
            if used_bytes > limit_bytes {
                refused = Some(Refusal::Promised { used_bytes, limit_bytes });
                continue;
            }
            if self.take(of, wanted, u64::MAX, beyond) {
                return Ok(wanted);
            }
            refused =
                Some(Refusal::Crowded { used_bytes: self.total() + wanted, limit_bytes: self.limit_bytes });
        }
        Err(refused.expect("refused twice"))
    }

    /// Bytes that a core takes ahead of need.
    fn step(&self) -> u64 {
        (self.limit_bytes / GRANT_PART).clamp(*GRANT_BYTES.start(), *GRANT_BYTES.end())
    }

    /// Takes `bytes` as [`Self::take`] does, and before it says no makes sure that what is unseen is no figure of a moment ago: memory that was
    /// given back and taken again since counts twice.
    fn take_or_look(&self, of: MemoryUse, bytes: u64, most: u64, beyond: u64) -> bool {
        if self.take(of, bytes, most, beyond) {
            return true;
        }
        // Nobody has taken anything since the last look, so another would find the same: a crowd that is turned away costs no system calls.
        if self.unlooked.load(Relaxed) == 0 || self.held(of).saturating_add(bytes) > most {
            return false;
        }
        self.look();
        self.take(of, bytes, most, beyond)
    }

    fn take(&self, of: MemoryUse, bytes: u64, most: u64, beyond: u64) -> bool {
        let limit = self.limit_bytes.saturating_add(beyond);
        // What clearly does not fit is not added even for a moment, in which others would be refused because of it.
        if self.held(of).saturating_add(bytes) > most || self.total().saturating_add(bytes) > limit {
            return false;
        }
        let of_use = self.held[of as usize].fetch_add(bytes, Relaxed).saturating_add(bytes);
        let fits = of_use <= most && self.total() <= limit;
        if fits {
            self.unlooked.fetch_add(bytes, Relaxed);
        } else {
            self.held[of as usize].fetch_sub(bytes, Relaxed);
        }
        fits
    }
}

/// What one core holds of points or of keys: what was measured last, and what has been admitted since. Written by its core alone.
#[derive(Debug)]
pub struct Share {
    account: Arc<Account>,
    of: MemoryUse,
    /// As the account has it.
    counted: AtomicU64,
    /// Taken from the account ahead of need.
    left: AtomicU64,
    grant: u64,
}

impl Share {
    /// Nothing of a use yet.
    pub fn new(account: &Arc<Account>, of: MemoryUse) -> Share {
        let grant = account.step();
        Share { account: account.clone(), of, counted: AtomicU64::new(0), left: AtomicU64::new(0), grant }
    }

    /// Admits a write that takes about `bytes`. A load and a store most of the time.
    ///
    /// # Errors
    /// [`Refusal`]; nothing is taken.
    #[inline]
    pub fn take(&self, bytes: u64, growth: Growth) -> Result<(), Refusal> {
        match self.left.load(Relaxed).checked_sub(bytes) {
            Some(left) => {
                self.left.store(left, Relaxed);
                Ok(())
            }
            None => self.take_more(bytes, growth),
        }
    }

    #[cold]
    fn take_more(&self, bytes: u64, growth: Growth) -> Result<(), Refusal> {
        let left = self.left.load(Relaxed);
        let taken = self.account.take_lasting(self.of, bytes - left, self.grant, growth)?;
        self.counted.store(self.counted.load(Relaxed) + taken, Relaxed);
        self.left.store(left + taken - bytes, Relaxed);
        Ok(())
    }

    /// There are so many more bytes, which nobody has admitted.
    pub fn add(&self, bytes: u64) {
        let before = self.counted.load(Relaxed);
        self.counted.store(before + bytes, Relaxed);
        self.account.measured(self.of, before, before + bytes);
    }

    /// There are `bytes`, all that was admitted so far included.
    pub fn measure(&self, bytes: u64) {
        let now = bytes + self.left.load(Relaxed);
        self.account.measured(self.of, self.counted.swap(now, Relaxed), now);
    }
}

/// Memory that is taken from an [`Account`] until it is dropped.
#[derive(Debug)]
pub struct Charge {
    account: Arc<Account>,
    of: MemoryUse,
    bytes: u64,
}

impl Charge {
    /// Bytes taken.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Holds `bytes` from now on; false, and nothing has changed, when that is more and the use would hold more than `most` or the process more
    /// than its limit.
    pub fn resize(&mut self, bytes: u64, most: u64) -> bool {
        self.resize_beyond(bytes, most, 0)
    }

    /// The same with a limit of the process that is higher by `beyond` bytes.
    fn resize_beyond(&mut self, bytes: u64, most: u64, beyond: u64) -> bool {
        if bytes > self.bytes {
            self.account.look_if_due();
            if !self.account.take_or_look(self.of, bytes - self.bytes, most, beyond) {
                return false;
            }
        }
        if bytes < self.bytes {
            self.account.held[self.of as usize].fetch_sub(self.bytes - bytes, Relaxed);
        }
        self.bytes = bytes;
        true
    }

    /// Holds `bytes` from now on, whatever there is.
    pub fn set(&mut self, bytes: u64) {
        self.account.measured(self.of, self.bytes, bytes);
        self.bytes = bytes;
    }

    /// Holds what `other`, of the same use of the same account, has held as well.
    pub fn absorb(&mut self, mut other: Charge) {
        debug_assert!(self.of == other.of && Arc::ptr_eq(&self.account, &other.account));
        self.bytes += std::mem::take(&mut other.bytes);
    }
}

impl Drop for Charge {
    fn drop(&mut self) {
        self.account.held[self.of as usize].fetch_sub(self.bytes, Relaxed);
    }
}

/// What the requests of one core hold for one use. It is taken from the account in steps, so that a short request, of which there are
/// hundreds of thousands a second, costs no atomic operation.
#[derive(Debug)]
pub struct CoreCharges {
    most: u64,
    step: u64,
    held: Cell<u64>,
    /// At least what is held, and at most two steps more.
    charge: RefCell<Charge>,
}

impl CoreCharges {
    /// Nothing yet; the process may hold `most` bytes for this use.
    pub fn new(account: &Arc<Account>, of: MemoryUse, most: u64) -> Rc<CoreCharges> {
        // Many cores together must not take all of it ahead of need.
        let step = account.step().min(most / 1024);
        Rc::new(CoreCharges { most, step, held: Cell::new(0), charge: RefCell::new(account.hold(of, 0)) })
    }

    /// A holder of nothing.
    pub fn holder(self: &Rc<Self>) -> CoreCharge {
        CoreCharge { of: self.clone(), bytes: 0 }
    }

    /// Gives back what was taken ahead of need, if nothing is held. Called now and then.
    pub fn settle(&self) {
        if self.held.get() == 0 {
            self.charge.borrow_mut().set(0);
        }
    }

    fn set(&self, held: u64, is_short: bool) -> bool {
        let mut charge = self.charge.borrow_mut();
        if held > charge.bytes() {
            let beyond = if is_short { charge.account.limit_bytes / SHORT_BEYOND_PART } else { 0 };
            // The second try takes no more than is needed.
            if !charge.resize(held + self.step, self.most) && !charge.resize_beyond(held, self.most, beyond) {
                return false;
            }
        } else if charge.bytes() - held > 2 * self.step {
            charge.set(held + self.step);
        }
        self.held.set(held);
        true
    }
}

/// What one request holds of its core's [`CoreCharges`] until it is dropped.
#[derive(Debug)]
pub struct CoreCharge {
    of: Rc<CoreCharges>,
    bytes: u64,
}

impl CoreCharge {
    /// Bytes held.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Holds `bytes` from now on; false, and nothing has changed, when that is more and the use would hold more than it may or the process
    /// more than its limit. Short requests may go a little beyond that limit.
    pub fn resize(&mut self, bytes: u64) -> bool {
        let fits = self.of.set(self.of.held.get() - self.bytes + bytes, bytes <= SHORT_BYTES);
        if fits {
            self.bytes = bytes;
        }
        fits
    }
}

impl Drop for CoreCharge {
    fn drop(&mut self) {
        self.resize(0);
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use crate::sim::Random;

    /// Holders of two cores grow and shrink at random: the account is never below what they hold, never far above, and refuses only what
    /// would pass the limit of the use.
    #[test]
    fn charges_of_a_core_are_in_the_account() {
        let account = Account::new(64 << 20);
        let most = 8 << 20;
        let cores = [(); 2].map(|()| CoreCharges::new(&account, MemoryUse::Requests, most));
        let mut holders: Vec<CoreCharge> = (0..64).map(|n| cores[n % 2].holder()).collect();
        let slack = 2 * 2 * cores[0].step;
        let random = Random::new(7);
        let mut refused = 0;
        for _ in 0..20_000 {
            let n = random.index(holders.len());
            let bytes = random.below(if random.chance(1, 4) { 1 << 20 } else { 1 << 14 });
            let before = holders[n].bytes();
            let held: u64 = holders.iter().map(CoreCharge::bytes).sum();
            if holders[n].resize(bytes) {
                assert_eq!(holders[n].bytes(), bytes);
            } else {
                refused += 1;
                assert!(held - before + bytes + slack > most, "{held} are held, and {bytes} are refused");
                assert_eq!(holders[n].bytes(), before);
            }
            let held: u64 = holders.iter().map(CoreCharge::bytes).sum();
            let counted = account.held(MemoryUse::Requests);
            assert!((held..=held + slack).contains(&counted) && counted <= most, "{counted} for {held}");
        }
        assert!(refused > 100, "{refused}");
        holders.clear();
        assert!(account.total() <= slack);
        cores.iter().for_each(|core| core.settle());
        assert_eq!(account.total(), 0);
    }

    #[test]
    fn a_full_server_takes_connections_and_short_requests() {
        let limit = 64 << 20;
        let account = Account::new(limit);
        let requests = CoreCharges::new(&account, MemoryUse::Requests, limit);
        account.measured(MemoryUse::Collections, 0, limit);
        let mut long = requests.holder();
        assert!(!long.resize(SHORT_BYTES + 1), "a long request");
        let mut short = Vec::new();
        loop {
            let mut holder = requests.holder();
            if !holder.resize(SHORT_BYTES) {
                break;
            }
            short.push(holder);
        }
        assert_eq!(short.len() as u64, limit / SHORT_BEYOND_PART / SHORT_BYTES, "short ones are bounded too");
        let connections: Vec<Charge> = std::iter::from_fn(|| account.charge_connection(32 << 10)).collect();
        assert_eq!(
            connections.len() as u64,
            (limit / CONNECTIONS_BEYOND_PART - limit / SHORT_BEYOND_PART) / (32 << 10)
        );
        drop((short, connections));
        account.measured(MemoryUse::Collections, limit, 0);
        let connections: Vec<Charge> = std::iter::from_fn(|| account.charge_connection(32 << 10)).collect();
        assert_eq!(
            connections.len() as u64,
            limit / CONNECTIONS_PART / (32 << 10),
            "they have a part of their own"
        );
    }

    #[test]
    fn charges_are_bounded_by_use_and_in_all_and_given_back() {
        let account = Account::new(1000);
        account.measured(MemoryUse::Collections, 0, 700);
        let mut one = account.charge(MemoryUse::Answers, 150, 200).expect("it fits");
        assert!(account.charge(MemoryUse::Answers, 100, 200).is_none(), "more than the use may hold");
        assert!(account.charge(MemoryUse::Requests, 151, 1000).is_none(), "more than the limit");
        assert!(one.resize(200, 200) && !one.resize(201, 200) && one.bytes() == 200);
        assert!(one.resize(10, 200));
        assert_eq!((account.held(MemoryUse::Answers), account.total()), (10, 710));
        account.measured(MemoryUse::Collections, 700, 2000);
        assert!(one.resize(5, 200), "giving back is never refused");
        assert!(!one.resize(6, 200));
        account.measured(MemoryUse::Collections, 2000, 0);
        let other = account.charge(MemoryUse::Answers, 7, 200).expect("it fits");
        one.absorb(other);
        assert_eq!((one.bytes(), account.total()), (12, 12));
        drop(one);
        assert_eq!(account.total(), 0);
    }

    /// What is admitted counts at once, whatever is measured when, and what was measured replaces it.
    #[test]
    fn what_stays_is_refused_below_the_limit() {
        let account = Account::with_keys(16 << 20, 8 << 20);
        let (points, keys) =
            (Share::new(&account, MemoryUse::Collections), Share::new(&account, MemoryUse::Keys));
        let mut taken = 0;
        let refused = loop {
            match points.take(1000, Growth::New) {
                Ok(()) => taken += 1000,
                Err(refused) => break refused,
            }
            assert!(taken <= account.held(MemoryUse::Collections));
        };
        let most = (16 << 20) / 16 * 13;
        assert!(matches!(refused, Refusal::Full { limit_bytes, .. } if limit_bytes == most), "{refused:?}");
        assert!(taken <= most && taken > most - 2000, "{taken}");
        assert!(points.take(1000, Growth::Reuse).is_ok(), "what replaces may go a little beyond");
        // A sixteenth is left for keys, and an eighth for everything else.
        let mut of_keys = 0;
        while keys.take(1000, Growth::New).is_ok() {
            of_keys += 1000;
        }
        assert!((of_keys as i64 - (1 << 20)).abs() < 20_000, "{of_keys}");
        assert!(account.charge(MemoryUse::Requests, 1 << 20, u64::MAX).is_some());
        let measured = 5 << 20;
        points.measure(measured);
        assert!(account.held(MemoryUse::Collections) - measured < 2 * points.grant);
        // What requests hold is no reason to say that the node is full.
        let bodies =
            account.charge(MemoryUse::Requests, (9 << 20) + (1 << 19), u64::MAX).expect("there is room");
        let crowded = points.take(1 << 20, Growth::New).unwrap_err();
        assert!(matches!(crowded, Refusal::Crowded { .. }), "{crowded:?}");
        drop(bodies);
        assert!(points.take(1 << 20, Growth::New).is_ok());
    }

    /// What was taken and given back may still be resident, which a request finds that takes more.
    #[test]
    fn requests_find_what_the_allocator_keeps() {
        let account = Account::new(1 << 20);
        account.look_with(|| Some(1 << 20));
        assert!(account.charge(MemoryUse::Requests, 16 << 10, u64::MAX).is_some());
        assert!(
            account.charge(MemoryUse::Requests, 1, u64::MAX).is_none(),
            "a sixty-fourth has been taken since"
        );
        assert_eq!(account.unseen(), 1 << 20);
    }

    /// A connection is not turned away because of what was resident a moment ago and has been taken again since.
    #[test]
    fn what_was_given_back_and_taken_again_counts_once() {
        let account = Account::new(1 << 20);
        account.look_with(|| Some(900 << 10));
        account.note_resident(900 << 10);
        assert!(account.charge_connection(200 << 10).is_none(), "connections may not hold so much");
        let held = account.hold(MemoryUse::Answers, 150 << 10);
        assert_eq!(account.total(), 1050 << 10);
        assert!(account.charge_connection(50 << 10).is_some());
        assert_eq!(account.total(), 900 << 10);
        drop(held);
    }

    /// What nobody has told the account of is in the resident set.
    #[test]
    fn the_larger_of_what_is_held_and_what_is_resident_counts() {
        let account = Account::new(1 << 20);
        let points = Share::new(&account, MemoryUse::Collections);
        points.measure(300 << 10);
        account.note_resident(200 << 10);
        assert_eq!((account.unseen(), account.total()), (0, 300 << 10));
        account.note_resident(900 << 10);
        assert_eq!((account.unseen(), account.total()), (600 << 10, 900 << 10));
        assert!(!account.wants_look());
        let refused = points.take(100 << 10, Growth::New).unwrap_err();
        assert!(matches!(refused, Refusal::Full { .. }), "{refused:?}");
        assert!(account.fits_opening(100 << 10).is_ok() && account.fits_opening(150 << 10).is_err());
        account.note_resident(400 << 10);
        assert!(points.take(100 << 10, Growth::New).is_ok());
        assert!(account.wants_look(), "much has been taken since");
        assert_eq!(account.total(), 500 << 10);
    }
}
