//! Which deadlines have passed: a hierarchical timing wheel that belongs to the owner.
//!
//! # Invariants
//!
//! 1. There is one item per key that has a deadline, whatever is done to that key: its entry names the item (a [`Timer`]), and
//!    whoever removes the key cancels it. Memory is therefore bounded by the keys, not by the history.
//! 2. An item is filed at or before its key's deadline. A deadline that moves away leaves the item where it is; when it fires,
//!    [`Due`] says for which key, and the owner files it anew. So a key whose deadline is pushed out a million times costs no
//!    work here until it would first have ended.
//! 3. The hand (`now`) moves back only in [`Wheel::follow_back`], which files every item anew.
//!
//! # Filing
//!
//! Time is counted in ticks of 64 ms: a deadline is kept exactly in its entry and everybody judges by that, so the wheel only
//! decides how soon memory is freed. A level has 64 slots, each a doubly linked list; an item lies on the level of the highest
//! group of six bits in which its tick differs from the hand, in the slot that group names. When the hand arrives at a slot of
//! an upper level its items are filed anew and land lower; one comes down at most seven levels in all, so an item costs its
//! filing and seven moves at worst, whatever the horizon. A bit per slot says which are not empty, so the hand jumps over
//! empty time.
//!
//! After Varghese and Lauck, "Hashed and hierarchical timing wheels" (1987).

/// Milliseconds of a tick, as a power of two: finer than any sensible interval between sweeps.
const TICK_LOG2: u32 = 6;
const SLOTS_LOG2: u32 = 6;
const SLOTS: usize = 1 << SLOTS_LOG2;
/// Enough for 2^48 ms, almost 9000 years; later deadlines are filed at the end.
const LEVELS: usize = 7;
const TICK_MAX: u64 = (1 << (LEVELS as u32 * SLOTS_LOG2)) - 1;

/// Items are made in blocks of so many: growth never copies what is there.
const BLOCK: usize = 4096;

/// No item.
const NONE: u32 = 0;

/// The tick of an item that is free; none is filed so late.
const FREE: u64 = u64::MAX;

/// Ticks that the clock may be behind the hand before everything is filed anew, one second: so much later than their deadline keys may be
/// freed meanwhile.
const LAG_TICKS: u64 = 16;

/// Names an item. Fits an entry's word; 0 is none.
pub(super) type Timer = u32;

#[derive(Clone, Copy)]
struct Item {
    hash: u64,
    tick: u64,
    next: u32,
    prev: u32,
}

/// An item that has fired. It is in no slot until it is filed or cancelled.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Due {
    pub(super) timer: Timer,
    /// Of the key, as it was given.
    pub(super) hash: u64,
}

/// The wheel.
pub(super) struct Wheel {
    blocks: Vec<Box<[Item]>>,
    /// Items made; item 0 is none's and stays unused.
    made: u32,
    /// Cancelled items, linked by `next`.
    free: u32,
    filed: usize,
    slots: Box<[[u32; SLOTS]; LEVELS]>,
    occupied: [u64; LEVELS],
    hand: u64,
}

impl Wheel {
    pub(super) fn new() -> Wheel {
        Wheel {
            blocks: Vec::new(),
            made: 1,
            free: NONE,
            filed: 0,
            slots: Box::new([[NONE; SLOTS]; LEVELS]),
            occupied: [0; LEVELS],
            hand: 0,
        }
    }

    /// Files an item for a key; `None` when there are 2^32 already, and then nobody is told when the key ends.
    pub(super) fn file(&mut self, hash: u64, deadline_ms: u64) -> Option<Timer> {
        let timer = self.take()?;
        let tick = tick_of(deadline_ms);
        *self.item(timer) = Item { hash, tick, next: NONE, prev: NONE };
        self.link(timer);
        self.filed += 1;
        Some(timer)
    }

    /// The key's deadline is another one.
    pub(super) fn refile(&mut self, timer: Timer, deadline_ms: u64) {
        let tick = tick_of(deadline_ms);
        if tick < self.item(timer).tick {
            self.unlink(timer);
            self.item(timer).tick = tick;
            self.link(timer);
        }
    }

    /// The key is gone, or has no deadline any more.
    pub(super) fn cancel(&mut self, timer: Timer) {
        self.unlink(timer);
        self.discard(timer);
    }

    /// Takes out one item whose time has come and that the hand has reached; `None` when there is none up to `now_ms`. Each call
    /// handles at most `steps` items, counted down, most of them on their way to a lower level.
    pub(super) fn pop(&mut self, now_ms: u64, steps: &mut usize) -> Option<Due> {
        // Short of the end, so that there is always a tick after the hand.
        let now = (now_ms >> TICK_LOG2).min(TICK_MAX - 1);
        while *steps > 0 {
            if let Some(level) = (0..LEVELS).find(|&level| self.occupied[level] & self.bit(level) != 0) {
                *steps -= 1;
                let timer = self.slots[level][self.place(level)];
                self.unlink(timer);
                let Item { hash, tick, .. } = *self.item(timer);
                if tick <= self.hand {
                    return Some(Due { timer, hash });
                }
                self.link(timer);
            } else if !self.advance(now) {
                return None;
            }
        }
        None
    }

    /// Follows a clock that was set back by more than a second: without it nothing would fire until the clock has caught up. Costs some 10 ns
    /// per item then. What [`Self::pop`] gave has been filed or discarded.
    pub(super) fn follow_back(&mut self, now_ms: u64) {
        let now = (now_ms >> TICK_LOG2).min(TICK_MAX - 1);
        if now + LAG_TICKS >= self.hand {
            return;
        }
        self.hand = now;
        *self.slots = [[NONE; SLOTS]; LEVELS];
        self.occupied = [0; LEVELS];
        for timer in 1..self.made {
            if self.item(timer).tick != FREE {
                self.link(timer);
            }
        }
    }

    /// The tick in which `now_ms` lies. What has expired in it fires with the next one.
    pub(super) fn tick_at(now_ms: u64) -> u64 {
        now_ms >> TICK_LOG2
    }

    /// Files what [`Self::pop`] gave: its key has a later deadline now.
    pub(super) fn file_again(&mut self, due: Due, deadline_ms: u64) {
        // Where the clock was set back the deadline lies before the hand: looked at again with the next tick.
        let tick = tick_of(deadline_ms).max(self.hand + 1);
        self.item(due.timer).tick = tick;
        self.link(due.timer);
    }

    /// Forgets what [`Self::pop`] gave.
    pub(super) fn discard(&mut self, timer: Timer) {
        let free = self.free;
        *self.item(timer) = Item { hash: 0, tick: FREE, next: free, prev: NONE };
        self.free = timer;
        self.filed -= 1;
    }

    /// Items.
    pub(super) fn len(&self) -> usize {
        self.filed
    }

    /// Heap bytes.
    pub(super) fn bytes(&self) -> usize {
        self.blocks.len() * BLOCK * size_of::<Item>() + size_of::<[[u32; SLOTS]; LEVELS]>()
    }

    /// Takes one block of memory away from a wheel that nobody uses any more; `false` when it has none.
    pub(super) fn dismantle(&mut self) -> bool {
        self.blocks.pop().is_some()
    }

    /// Moves the hand to the next slot that is not empty, or to `now`. `false` when it is there already.
    fn advance(&mut self, now: u64) -> bool {
        for level in 0..LEVELS {
            let place = self.place(level);
            let later = self.occupied[level] & (u64::MAX << place);
            if later != 0 {
                // The groups below are zero at the start of a slot; those above are the hand's.
                let shift = level as u32 * SLOTS_LOG2;
                let above = self.hand >> shift >> SLOTS_LOG2 << SLOTS_LOG2;
                let start = (above | u64::from(later.trailing_zeros())) << shift;
                if start <= now {
                    self.hand = start;
                    return true;
                }
                break;
            }
        }
        self.hand = self.hand.max(now);
        false
    }

    fn place(&self, level: usize) -> usize {
        (self.hand >> (level as u32 * SLOTS_LOG2)) as usize % SLOTS
    }

    fn bit(&self, level: usize) -> u64 {
        1 << self.place(level)
    }

    fn slot_of(&self, tick: u64) -> (usize, usize) {
        // What is due lies in the slot of the hand itself.
        let tick = tick.max(self.hand);
        let differs = tick ^ self.hand;
        let level = (63 - (differs | 1).leading_zeros()) / SLOTS_LOG2;
        (level as usize, (tick >> (level * SLOTS_LOG2)) as usize % SLOTS)
    }

    fn link(&mut self, timer: Timer) {
        let tick = self.item(timer).tick;
        let (level, place) = self.slot_of(tick);
        let first = self.slots[level][place];
        if first != NONE {
            self.item(first).prev = timer;
        }
        let item = self.item(timer);
        (item.next, item.prev) = (first, NONE);
        self.slots[level][place] = timer;
        self.occupied[level] |= 1 << place;
    }

    fn unlink(&mut self, timer: Timer) {
        let Item { tick, next, prev, .. } = *self.item(timer);
        if next != NONE {
            self.item(next).prev = prev;
        }
        if prev != NONE {
            self.item(prev).next = next;
            return;
        }
        // The first of its slot. The hand may have moved since it was filed, but not past the slot, so it is where it was filed
        // or, on the way down, in the slot of the hand on some level.
        let (level, place) = self.slot_with(timer, tick);
        self.slots[level][place] = next;
        if next == NONE {
            self.occupied[level] &= !(1 << place);
        }
    }

    /// Slot whose first item `timer` is.
    fn slot_with(&self, timer: Timer, tick: u64) -> (usize, usize) {
        let (level, place) = self.slot_of(tick);
        if self.slots[level][place] == timer {
            return (level, place);
        }
        (0..LEVELS)
            .map(|level| (level, self.place(level)))
            .find(|&(level, place)| self.slots[level][place] == timer)
            .expect("an item lies in the slot of its tick or of the hand")
    }

    fn take(&mut self) -> Option<Timer> {
        if self.free != NONE {
            let timer = self.free;
            self.free = self.item(timer).next;
            return Some(timer);
        }
        let timer = self.made;
        if timer as usize / BLOCK == self.blocks.len() {
            self.blocks.push(vec![Item { hash: 0, tick: FREE, next: NONE, prev: NONE }; BLOCK].into());
        }
        self.made = timer.checked_add(1)?;
        Some(timer)
    }

    fn item(&mut self, timer: Timer) -> &mut Item {
        &mut self.blocks[timer as usize / BLOCK][timer as usize % BLOCK]
    }
}

/// The first tick at which the deadline has passed.
fn tick_of(deadline_ms: u64) -> u64 {
    deadline_ms.div_ceil(1 << TICK_LOG2).min(TICK_MAX)
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use std::collections::BTreeMap;

    /// Wheel and a map of what is filed, by timer.
    struct Bed {
        wheel: Wheel,
        filed: BTreeMap<Timer, (u64, u64)>,
        serial: u64,
    }

    impl Bed {
        fn new() -> Bed {
            Bed { wheel: Wheel::new(), filed: BTreeMap::new(), serial: 0 }
        }

        fn file(&mut self, deadline_ms: u64) -> Timer {
            self.serial += 1;
            let timer = self.wheel.file(self.serial, deadline_ms).unwrap();
            assert!(self.filed.insert(timer, (self.serial, deadline_ms)).is_none());
            timer
        }

        /// Fires everything up to `now_ms` and checks that it is what should fire.
        fn fire(&mut self, now_ms: u64) -> usize {
            let (mut fired, mut steps) = (0, usize::MAX);
            while let Some(due) = self.wheel.pop(now_ms, &mut steps) {
                let (hash, deadline_ms) = self.filed.remove(&due.timer).unwrap();
                assert_eq!(hash, due.hash);
                assert!(deadline_ms <= now_ms, "{deadline_ms} fired at {now_ms}");
                self.wheel.discard(due.timer);
                fired += 1;
            }
            let tick = 1 << TICK_LOG2;
            assert!(
                self.filed.values().all(|&(_, deadline_ms)| deadline_ms.saturating_add(tick) > now_ms),
                "all has fired"
            );
            assert_eq!(self.wheel.len(), self.filed.len());
            fired
        }
    }

    #[test]
    fn deadlines_fire_in_time_after_the_clock_was_set_back() {
        let mut bed = Bed::new();
        let now = 1_790_000_000_000;
        for n in 0..10_000u64 {
            bed.file(now + n * n);
        }
        let cancelled = bed.file(now + 70);
        bed.filed.remove(&cancelled);
        bed.wheel.cancel(cancelled);
        assert!(bed.fire(now + 3_600_000) > 0);
        for back_ms in [5_000, 3_000_000, 3_600_000] {
            let set_back = now + 3_600_000 - back_ms;
            for n in 0..1000 {
                bed.file(set_back + 1 + n);
            }
            bed.wheel.follow_back(set_back);
            assert_eq!(bed.fire(set_back), 0);
            let fired = bed.fire(set_back + 1064);
            assert!(fired >= 1000, "{fired} fired, the clock being {back_ms} ms back");
        }
        bed.fire(now + 1_000_000_000);
        assert_eq!(bed.wheel.len(), 0);
    }

    #[test]
    fn deadlines_fire_on_every_level_and_not_before() {
        let mut bed = Bed::new();
        let now = 1_790_000_000_000;
        bed.fire(now);
        let mut deadlines = Vec::new();
        for level in 0..43 {
            for offset in [-1i64, 0, 1, 63] {
                let deadline = now.saturating_add_signed((1i64 << level) + offset);
                deadlines.push(deadline);
                bed.file(deadline);
            }
        }
        bed.file(0);
        bed.file(now - 5000);
        deadlines.sort_unstable();
        let mut latest = now;
        for deadline in deadlines {
            latest = latest.max(deadline - 1);
            bed.fire(latest);
            latest = latest.max(deadline + 64);
            bed.fire(latest);
        }
        assert!(bed.filed.is_empty());
        bed.file(u64::MAX);
        assert_eq!(bed.fire(u64::MAX >> 1), 0, "beyond the horizon: kept");
    }

    #[test]
    fn random_filing_against_a_map() {
        let mut random = 7u64;
        let mut next = move || {
            random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            random >> 20
        };
        let mut bed = Bed::new();
        let mut now = 5_000_000u64;
        for _ in 0..60_000 {
            let far = 1 << (next() % 34);
            match next() % 8 {
                0..=3 => {
                    bed.file(now + next() % far);
                }
                4 => {
                    if let Some((&timer, _)) = bed.filed.iter().nth(next() as usize % 50) {
                        bed.filed.remove(&timer);
                        bed.wheel.cancel(timer);
                    }
                }
                5 => {
                    let deadline = now + next() % far;
                    if let Some((&timer, filed)) = bed.filed.iter_mut().nth(next() as usize % 50) {
                        // Earlier ones move, later ones stay.
                        filed.1 = filed.1.min(deadline);
                        bed.wheel.refile(timer, deadline);
                    }
                }
                _ => {
                    now += next() % far.min(1 << 24);
                    bed.fire(now);
                }
            }
        }
        assert!(bed.fire(now + (1 << 40)) > 0 && bed.filed.is_empty());
        assert!(bed.wheel.bytes() < 4 << 20, "cancelled items are used again: {}", bed.wheel.bytes());
    }

    #[test]
    fn work_is_cut_in_steps() {
        let mut bed = Bed::new();
        for n in 0..1000 {
            bed.file(n);
        }
        let (mut fired, mut calls) = (0, 0);
        loop {
            let mut steps = 100;
            calls += 1;
            while let Some(due) = bed.wheel.pop(2000, &mut steps) {
                bed.wheel.discard(due.timer);
                fired += 1;
            }
            if steps > 0 {
                break;
            }
        }
        assert_eq!(fired, 1000);
        assert!(calls >= 10, "{calls}");
        let mut steps = 10;
        assert_eq!(bed.wheel.pop(1 << 45, &mut steps), None);
        assert_eq!(steps, 10, "empty time costs nothing");
    }

    #[test]
    fn a_clock_that_goes_back_neither_hangs_nor_fires_early() {
        let mut bed = Bed::new();
        bed.fire(1_000_000);
        let timer = bed.file(500_100);
        let mut steps = 100;
        let due = bed.wheel.pop(500_000, &mut steps).expect("due as far as the hand knows");
        bed.wheel.file_again(due, 500_100);
        assert_eq!(bed.wheel.pop(500_000, &mut steps), None);
        assert_eq!(bed.wheel.pop(600_000, &mut steps), None, "freed when the clock has caught up");
        assert_eq!(bed.wheel.pop(1_000_200, &mut steps).map(|due| due.timer), Some(timer));
        assert!(steps > 90);
    }
}
