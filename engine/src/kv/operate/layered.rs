//! Sorted entries of which few are touched: those that are stored, still as bytes, under those that a call changed.
//!
//! A call reads a record once and writes it once, whatever it does in between. What it does not touch costs finding its
//! place, four bytes of memory and a copy; what it touches is parsed, and moves to a map above.

use super::cell::Type;
use super::wire::Reader;
use std::collections::BTreeMap;

/// Key of an entry. Entries of one list have keys of one kind.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Key<'a> {
    /// Little-endian in the bytes, ordered as a number.
    Number(u64),
    /// Ordered bytewise.
    Bytes(&'a [u8]),
}

impl<'a> Key<'a> {
    /// `bytes` as a key of a schema's table, which is of type `kind`; `None` when their number is not its width.
    pub(super) fn of(kind: Type, bytes: &'a [u8]) -> Option<Key<'a>> {
        if kind.width() != Some(bytes.len()) {
            return None;
        }
        if let Type::Fixed(_) = kind {
            return Some(Key::Bytes(bytes));
        }
        // Every width by itself, which is several times faster than a copy of some bytes.
        Some(Key::Number(match *bytes {
            [a] => a.into(),
            [a, b] => u16::from_le_bytes([a, b]).into(),
            [a, b, c, d] => u32::from_le_bytes([a, b, c, d]).into(),
            [a, b, c, d, e, f, g, h] => u64::from_le_bytes([a, b, c, d, e, f, g, h]),
            _ => return None,
        }))
    }

    /// Appends the key in `width` bytes if it is a number, else as it is.
    pub(super) fn put(&self, width: usize, out: &mut Vec<u8>) {
        match self {
            Key::Number(number) => out.extend_from_slice(&number.to_le_bytes()[..width]),
            Key::Bytes(bytes) => out.extend_from_slice(bytes),
        }
    }
}

/// Stored entries, in ascending order of keys.
#[derive(Clone, Debug)]
pub(super) enum Stored<'a> {
    /// All of `stride` bytes, of which the first are the key.
    Packed { bytes: &'a [u8], stride: usize, key: Type },
    /// Each with its key behind a byte of length; before that the length of the whole, if `framed`. `starts` has where each
    /// begins and, last, where they end: as many as entries and one.
    Keyed { bytes: &'a [u8], starts: Vec<u32>, framed: bool },
}

impl<'a> Stored<'a> {
    pub(super) fn none() -> Stored<'a> {
        Stored::Keyed { bytes: &[], starts: vec![0], framed: true }
    }

    pub(super) fn len(&self) -> usize {
        match self {
            Stored::Packed { bytes, stride, .. } => bytes.len() / stride,
            Stored::Keyed { starts, .. } => starts.len() - 1,
        }
    }

    /// Bytes of all entries.
    pub(super) fn bytes_len(&self) -> usize {
        match self {
            Stored::Packed { bytes, .. } | Stored::Keyed { bytes, .. } => bytes.len(),
        }
    }

    /// Entries `from` to `to` as they are stored.
    fn bytes(&self, from: usize, to: usize) -> &'a [u8] {
        match self {
            Stored::Packed { bytes, stride, .. } => &bytes[from * stride..to * stride],
            Stored::Keyed { bytes, starts, .. } => &bytes[starts[from] as usize..starts[to] as usize],
        }
    }

    /// Key of an entry, and what follows it.
    pub(super) fn entry(&self, at: usize) -> (Key<'a>, &'a [u8]) {
        let mut reader = Reader(self.bytes(at, at + 1));
        match self {
            Stored::Packed { key, .. } => {
                let width = key.width().expect("keys of packed rows have a width");
                let (key_bytes, body) = reader.0.split_at(width);
                (Key::of(*key, key_bytes).expect("a key of its width"), body)
            }
            Stored::Keyed { framed, .. } => {
                if *framed {
                    reader.uv().expect("read when the entry was found");
                }
                let key = reader.s8().expect("read when the entry was found");
                (Key::Bytes(key), reader.0)
            }
        }
    }

    /// The first entry whose key is not below `key`.
    fn lower_bound(&self, key: &Key<'_>) -> usize {
        let (mut low, mut high) = (0, self.len());
        while low < high {
            let middle = (low + high) / 2;
            if self.entry(middle).0 < *key { low = middle + 1 } else { high = middle }
        }
        low
    }

    /// Whether keys ascend strictly.
    pub(super) fn is_sorted(&self) -> bool {
        (0..self.len()).map(|at| self.entry(at).0).is_sorted_by(|a, b| a < b)
    }
}

/// Entries by key: `T` where a call has touched one, bytes where not.
#[derive(Clone, Debug)]
pub(super) struct Layered<'a, T> {
    stored: Stored<'a>,
    /// A bit for each stored entry that is removed or changed; empty while there is none.
    gone: Vec<u64>,
    /// Stored entries that are not gone; all of them lie in `low..high`.
    stored_len: usize,
    low: usize,
    high: usize,
    changed: BTreeMap<Key<'a>, T>,
}

/// An entry as it is held.
#[derive(Clone, Copy, Debug)]
pub(super) enum LayeredEntry<'a, T> {
    Stored(&'a [u8]),
    Changed(T),
}

impl<'a, T> Layered<'a, T> {
    pub(super) fn new(stored: Stored<'a>) -> Layered<'a, T> {
        let len = stored.len();
        Layered { stored, gone: Vec::new(), stored_len: len, low: 0, high: len, changed: BTreeMap::new() }
    }

    pub(super) fn len(&self) -> usize {
        self.stored_len + self.changed.len()
    }

    fn is_gone(&self, at: usize) -> bool {
        self.gone.get(at / 64).is_some_and(|word| word >> (at % 64) & 1 == 1)
    }

    fn retire(&mut self, at: usize) {
        if self.gone.is_empty() {
            self.gone.resize(self.stored.len().div_ceil(64), 0);
        }
        self.gone[at / 64] |= 1 << (at % 64);
        self.stored_len -= 1;
    }

    /// The stored entry with this key that is not gone.
    fn position(&self, key: &Key<'_>) -> Option<usize> {
        let at = self.stored.lower_bound(key);
        (at < self.stored.len() && self.stored.entry(at).0 == *key && !self.is_gone(at)).then_some(at)
    }

    pub(super) fn get(&self, key: &Key<'a>) -> Option<LayeredEntry<'a, &T>> {
        if let Some(value) = self.changed.get(key) {
            return Some(LayeredEntry::Changed(value));
        }
        self.position(key).map(|at| LayeredEntry::Stored(self.stored.entry(at).1))
    }

    /// The entry with this key, parsed by `read` if it is still bytes. Two searches; keeps the entry parsed.
    ///
    /// # Errors
    /// That of `read`.
    pub(super) fn load<E>(
        &mut self,
        key: &Key<'a>,
        read: impl FnOnce(&'a [u8]) -> Result<T, E>,
    ) -> Result<Option<&mut T>, E> {
        if !self.changed.contains_key(key)
            && let Some(at) = self.position(key)
        {
            let (key, body) = self.stored.entry(at);
            let value = read(body)?;
            self.retire(at);
            self.changed.insert(key, value);
        }
        Ok(self.changed.get_mut(key))
    }

    /// Adds an entry, whose key must be new.
    pub(super) fn insert(&mut self, key: Key<'a>, value: T) {
        let replaced = self.changed.insert(key, value);
        debug_assert!(replaced.is_none() && self.position(&key).is_none(), "{key:?} was there");
    }

    /// Takes an entry out.
    pub(super) fn remove(&mut self, key: &Key<'a>) -> Option<LayeredEntry<'a, T>> {
        if let Some(value) = self.changed.remove(key) {
            return Some(LayeredEntry::Changed(value));
        }
        let at = self.position(key)?;
        self.retire(at);
        Some(LayeredEntry::Stored(self.stored.entry(at).1))
    }

    /// The least key. Passes each gone entry once in the life of the list.
    pub(super) fn first(&mut self) -> Option<Key<'a>> {
        while self.low < self.high && self.is_gone(self.low) {
            self.low += 1;
        }
        let stored = (self.low < self.high).then(|| self.stored.entry(self.low).0);
        let changed = self.changed.first_key_value().map(|(key, _)| *key);
        stored.into_iter().chain(changed).min()
    }

    /// The greatest key; as [`Self::first`].
    pub(super) fn last(&mut self) -> Option<Key<'a>> {
        while self.low < self.high && self.is_gone(self.high - 1) {
            self.high -= 1;
        }
        let stored = (self.low < self.high).then(|| self.stored.entry(self.high - 1).0);
        let changed = self.changed.last_key_value().map(|(key, _)| *key);
        stored.into_iter().chain(changed).max()
    }

    /// Bytes of entries that were stored, gone ones included.
    pub(super) fn stored_bytes(&self) -> usize {
        self.stored.bytes_len()
    }

    /// Entries that are still bytes, ascending.
    pub(super) fn stored(&self) -> impl Iterator<Item = (Key<'a>, &'a [u8])> {
        let mut at = self.low;
        std::iter::from_fn(move || {
            let live = self.next(at, self.high, false);
            at = live + 1;
            (live < self.high).then(|| self.stored.entry(live))
        })
    }

    /// Entries that are parsed, ascending.
    pub(super) fn changed(&self) -> impl Iterator<Item = (&Key<'a>, &T)> {
        self.changed.iter()
    }

    /// Appends all entries in order: runs of stored ones as they are, others by `put`.
    pub(super) fn put(&self, out: &mut Vec<u8>, put: impl Fn(&mut Vec<u8>, &Key<'a>, &T)) {
        let mut at = 0;
        for (key, value) in &self.changed {
            let to = self.stored.lower_bound(key);
            self.put_stored(at, to, out);
            put(out, key, value);
            at = to;
        }
        self.put_stored(at, self.stored.len(), out);
    }

    fn put_stored(&self, mut from: usize, to: usize, out: &mut Vec<u8>) {
        while from < to {
            let start = self.next(from, to, false);
            from = self.next(start, to, true);
            out.extend_from_slice(self.stored.bytes(start, from));
        }
    }

    /// The first stored entry of `from..to` that is gone, or is not, as asked; else `to`. 64 at a step.
    fn next(&self, from: usize, to: usize, gone: bool) -> usize {
        let mut at = from;
        while at < to {
            let word = self.gone.get(at / 64).copied().unwrap_or(0);
            let rest = if gone { word } else { !word } >> (at % 64);
            if rest != 0 {
                return to.min(at + rest.trailing_zeros() as usize);
            }
            at = (at / 64 + 1) * 64;
        }
        to
    }
}
