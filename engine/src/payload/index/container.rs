//! Sets of slots that the owner changes while any core reads them.
//!
//! The layout is that of compressed bitmaps (Lemire et al., "Roaring bitmaps", arXiv:1603.06549): 65,536 slots make a
//! container, an ascending array of 16-bit values or, from 4097 members, a bitmap. Own code, because the `roaring` crate
//! keeps the containers of a bitmap in one private vector: a set cannot be published container by container, and one
//! more slot would cost a copy of the whole set.
//!
//! A published container changes in place only where a reader cannot tell when: a bit goes on or off with one atomic store,
//! and a value above all others is written behind the end before the length covers it. Every other change copies the
//! container. So a load in slot order copies nothing but for growth, and what waits for readers stays small.

use crate::distance::{prefetch_line, prefetch_row};
use crate::memory::{Held, allocated};
use std::sync::atomic::{AtomicU16, AtomicU32, AtomicU64, Ordering};

/// Most values of an array of 16 bits: from there on a bitmap is smaller.
pub(super) const ARRAY_MAX: usize = 4096;
/// A bitmap becomes an array again below this: half, so that a set at the border does not change back and forth.
const BITS_MIN: u32 = 2048;
const BITS_WORDS: usize = 1024;
/// Most bytes of values that are asked for ahead.
const PREFETCHED_MAX: usize = 512;

/// An atomic integer of a sorted array.
pub(super) trait AtomicValue: Send + Sync {
    type Value: Copy + Ord;
    fn new(value: Self::Value) -> Self;
    fn get(&self) -> Self::Value;
    fn put(&self, value: Self::Value);
    const ZERO: Self::Value;
}

macro_rules! atomic_value {
    ($atomic:ty, $value:ty) => {
        impl AtomicValue for $atomic {
            type Value = $value;
            const ZERO: $value = 0;
            fn new(value: $value) -> Self {
                <$atomic>::new(value)
            }
            #[inline]
            fn get(&self) -> $value {
                self.load(Ordering::Relaxed)
            }
            fn put(&self, value: $value) {
                self.store(value, Ordering::Relaxed);
            }
        }
    };
}
atomic_value!(AtomicU16, u16);
atomic_value!(AtomicU32, u32);

/// Ascending values with room behind the last.
pub(super) struct Sorted<A> {
    len: AtomicU32,
    values: Box<[A]>,
}

impl<A: AtomicValue> Sorted<A> {
    /// Of ascending values, with room for a quarter more, but for no more than `max` in all.
    pub fn of(values: impl Iterator<Item = A::Value>, len: usize, max: usize) -> Self {
        let room = (len + (len / 4).max(2)).min(max).max(len);
        let mut filled = Vec::with_capacity(room);
        filled.extend(values.map(A::new));
        let used = filled.len() as u32;
        filled.resize_with(room, || A::new(A::ZERO));
        Sorted { len: AtomicU32::new(used), values: filled.into_boxed_slice() }
    }

    #[inline]
    pub fn len(&self) -> usize {
        self.len.load(Ordering::Acquire) as usize
    }

    /// The members; those added meanwhile are not among them.
    #[inline]
    pub fn values(&self) -> &[A] {
        &self.values[..self.len()]
    }

    /// Position of the first value not below `value`.
    #[inline]
    pub fn position(&self, value: A::Value) -> usize {
        self.values().partition_point(|other| other.get() < value)
    }

    pub fn contains(&self, value: A::Value) -> bool {
        let at = self.position(value);
        self.values().get(at).is_some_and(|other| other.get() == value)
    }

    /// Owner: appends in place a value above all others; false when it is not, or there is no room.
    pub fn append(&self, value: A::Value) -> bool {
        let len = self.len();
        if len == self.values.len() || self.values[..len].last().is_some_and(|last| last.get() >= value) {
            return false;
        }
        self.values[len].put(value);
        self.len.store(len as u32 + 1, Ordering::Release);
        true
    }

    /// A copy that holds `value` too, which this does not.
    pub fn with(&self, value: A::Value, max: usize) -> Self {
        let values = self.values();
        let (below, above) = values.split_at(self.position(value));
        let all = below.iter().map(A::get).chain([value]).chain(above.iter().map(A::get));
        Self::of(all, values.len() + 1, max)
    }

    /// A copy without `value`.
    pub fn without(&self, value: A::Value, max: usize) -> Self {
        let values = self.values();
        Self::of(
            values.iter().map(A::get).filter(|&other| other != value),
            values.len().saturating_sub(1),
            max,
        )
    }

    /// Asks for the values, up to some lines: the CPU goes on by itself from there.
    pub fn prefetch(&self) {
        let bytes = size_of_val(&*self.values).min(PREFETCHED_MAX);
        prefetch_row(self.values.as_ptr(), bytes);
    }

    pub fn heap_bytes(&self) -> usize {
        allocated(size_of_val(&*self.values))
    }
}

/// The members among 65,536 consecutive slots, by their low 16 bits.
pub(super) enum Container {
    Array(Sorted<AtomicU16>),
    Bits(Box<Bits>),
}

/// One bit per slot.
pub(super) struct Bits {
    len: AtomicU32,
    words: [AtomicU64; BITS_WORDS],
}

/// What a change of a container amounts to.
pub(super) enum Change {
    /// It was so already.
    None,
    /// Done in place.
    Done,
    /// This one takes its place.
    Replace(Container),
    /// The last member is gone.
    Empty,
}

impl Container {
    /// Of ascending values.
    pub fn of(values: &[u16]) -> Container {
        if values.len() <= ARRAY_MAX {
            return Container::Array(Sorted::of(values.iter().copied(), values.len(), ARRAY_MAX));
        }
        let bits = Bits { len: AtomicU32::new(0), words: std::array::from_fn(|_| AtomicU64::new(0)) };
        values.iter().for_each(|&value| bits.set(value, true));
        Container::Bits(Box::new(bits))
    }

    pub fn contains(&self, low: u16) -> bool {
        match self {
            Container::Array(array) => array.contains(low),
            Container::Bits(bits) => bits.contains(low),
        }
    }

    /// Owner.
    pub fn insert(&self, low: u16) -> Change {
        match self {
            Container::Bits(bits) if bits.contains(low) => Change::None,
            Container::Bits(bits) => {
                bits.set(low, true);
                Change::Done
            }
            Container::Array(array) if array.append(low) => Change::Done,
            Container::Array(array) if array.contains(low) => Change::None,
            Container::Array(array) if array.len() < ARRAY_MAX => {
                Change::Replace(Container::Array(array.with(low, ARRAY_MAX)))
            }
            Container::Array(array) => {
                let mut values: Vec<u16> = array.values().iter().map(AtomicValue::get).collect();
                values.insert(array.position(low), low);
                Change::Replace(Container::of(&values))
            }
        }
    }

    /// Owner.
    pub fn remove(&self, low: u16) -> Change {
        if !self.contains(low) {
            return Change::None;
        }
        match self {
            Container::Array(array) if array.len() == 1 => Change::Empty,
            Container::Array(array) => Change::Replace(Container::Array(array.without(low, ARRAY_MAX))),
            Container::Bits(bits) if bits.len() > BITS_MIN => {
                bits.set(low, false);
                Change::Done
            }
            Container::Bits(bits) => {
                let mut values = Vec::with_capacity(bits.len() as usize);
                bits.for_each(|value| values.push(value));
                values.retain(|&value| value != low);
                Change::Replace(Container::of(&values))
            }
        }
    }

    /// The first member at or after `low`.
    pub fn next(&self, low: u16) -> Option<u16> {
        match self {
            Container::Array(array) => array.values().get(array.position(low)).map(AtomicValue::get),
            Container::Bits(bits) => bits.next(low),
        }
    }

    /// Appends up to `max` members from `low` on, in ascending order, each with `high` above it.
    pub fn append_to(&self, high: u32, low: u16, max: usize, slots: &mut Vec<u32>) {
        match self {
            Container::Array(array) => {
                let from = &array.values()[array.position(low)..];
                slots.extend(from.iter().take(max).map(|value| high | u32::from(value.get())));
            }
            Container::Bits(bits) => bits.append_to(high, low, max, slots),
        }
    }

    /// Asks for the first of the memory that [`Self::mark`] reads.
    pub fn prefetch(&self) {
        match self {
            Container::Array(array) => array.prefetch(),
            Container::Bits(bits) => prefetch_line(&bits.words),
        }
    }

    /// Members in ascending order.
    pub fn for_each(&self, mut visit: impl FnMut(u16)) {
        match self {
            Container::Array(array) => array.values().iter().for_each(|value| visit(value.get())),
            Container::Bits(bits) => bits.for_each(visit),
        }
    }

    /// Adds the members to a bitset whose first word holds the container's first slots; those beyond its end are left out.
    pub fn mark(&self, words: &mut [u64]) {
        match self {
            Container::Array(array) => {
                for value in array.values() {
                    let low = value.get();
                    if let Some(word) = words.get_mut(usize::from(low) / 64) {
                        *word |= 1 << (low % 64);
                    }
                }
            }
            Container::Bits(bits) => {
                for (word, more) in words.iter_mut().zip(&bits.words) {
                    *word |= more.load(Ordering::Relaxed);
                }
            }
        }
    }
}

impl Held for Container {
    fn held_bytes(&self) -> usize {
        allocated(size_of::<Self>())
            + match self {
                Container::Array(array) => array.heap_bytes(),
                Container::Bits(_) => allocated(size_of::<Bits>()),
            }
    }
}

impl Bits {
    fn len(&self) -> u32 {
        self.len.load(Ordering::Relaxed)
    }

    #[inline]
    fn contains(&self, low: u16) -> bool {
        self.words[usize::from(low) / 64].load(Ordering::Relaxed) >> (low % 64) & 1 == 1
    }

    /// Owner: the bit changes.
    fn set(&self, low: u16, on: bool) {
        let word = &self.words[usize::from(low) / 64];
        word.store(word.load(Ordering::Relaxed) ^ 1 << (low % 64), Ordering::Relaxed);
        let len = self.len();
        self.len.store(if on { len + 1 } else { len - 1 }, Ordering::Relaxed);
    }

    fn next(&self, low: u16) -> Option<u16> {
        let first = usize::from(low) / 64;
        let mut mask = u64::MAX << (low % 64);
        for (index, word) in self.words.iter().enumerate().skip(first) {
            let found = word.load(Ordering::Relaxed) & mask;
            if found != 0 {
                return Some((index * 64) as u16 + found.trailing_zeros() as u16);
            }
            mask = u64::MAX;
        }
        None
    }

    fn append_to(&self, high: u32, low: u16, max: usize, slots: &mut Vec<u32>) {
        let end = slots.len() + max;
        let mut mask = u64::MAX << (low % 64);
        for (index, word) in self.words.iter().enumerate().skip(usize::from(low) / 64) {
            let mut left = word.load(Ordering::Relaxed) & mask;
            mask = u64::MAX;
            while left != 0 {
                if slots.len() >= end {
                    return;
                }
                slots.push(high | (index * 64) as u32 | left.trailing_zeros());
                left &= left - 1;
            }
        }
    }

    fn for_each(&self, mut visit: impl FnMut(u16)) {
        for (index, word) in self.words.iter().enumerate() {
            let mut left = word.load(Ordering::Relaxed);
            while left != 0 {
                visit((index * 64) as u16 + left.trailing_zeros() as u16);
                left &= left - 1;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeSet;

    proptest! {
        #![proptest_config(ProptestConfig { cases: 40, failure_persistence: None, ..ProptestConfig::default() })]

        /// Around the border between the two forms, against a set.
        #[test]
        fn a_container_is_a_set(
            start in prop_oneof![Just(0u16), Just(4090), Just(4200)],
            ops in prop::collection::vec((any::<u16>(), 0..3u8), 0..300),
        ) {
            let mut twin: BTreeSet<u16> = (0..start).map(|i| i.wrapping_mul(7)).collect();
            let mut container = Container::of(&twin.iter().copied().collect::<Vec<_>>());
            for (low, op) in ops {
                let low = if op == 2 { twin.iter().next().copied().unwrap_or(low) } else { low };
                let change = if op == 0 { container.insert(low) } else { container.remove(low) };
                let changed = if op == 0 { twin.insert(low) } else { twin.remove(&low) };
                match change {
                    Change::None => prop_assert!(!changed),
                    Change::Done => prop_assert!(changed),
                    Change::Replace(other) => container = other,
                    Change::Empty => {
                        prop_assert!(twin.is_empty());
                        break;
                    }
                }
                prop_assert_eq!(container.contains(low), twin.contains(&low));
                prop_assert_eq!(container.next(low), twin.range(low..).next().copied());
                let mut part = vec![7];
                container.append_to(3 << 16, low, 9, &mut part);
                let wanted = twin.range(low..).take(9).map(|&low| 3 << 16 | u32::from(low));
                prop_assert!(part.iter().copied().eq([7].into_iter().chain(wanted)));
            }
            let mut found = Vec::new();
            container.for_each(|low| found.push(low));
            if !twin.is_empty() {
                prop_assert!(found.iter().eq(&twin));
            }
            let mut words = vec![0; 512];
            container.mark(&mut words);
            prop_assert_eq!(
                words.iter().map(|word| word.count_ones() as usize).sum::<usize>(),
                found.iter().filter(|&&low| low < 512 * 64).count()
            );
        }
    }
}
