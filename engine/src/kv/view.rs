//! What any core reads of a store.

use super::entry::{Entry, Head, Torn};
use super::hash::{KeyHash, KeyHasher};
use super::pages::bodies_of;
use super::table::{EntryOffset, Table};
use super::words::{WORD, Words, append_bytes, equal_bytes, words_of};
use crate::memory::sync::{AtomicU64, Ordering::Relaxed};
use crate::memory::{Domain, Pin, Published};
use std::sync::Arc;

/// What the owner and all readers share.
pub(super) struct Shared {
    pub(super) domain: Arc<Domain>,
    pub(super) hasher: KeyHasher,
    pub(super) table: Published<Arc<Table>>,
    pub(super) words: Words,
    pub(super) page_words: usize,
    /// Values may be rewritten where they lie.
    pub(super) in_place: bool,
    /// Readers mark what they read.
    pub(super) sieve: bool,
    pub(super) read_retries: AtomicU64,
    pub(super) read_fallbacks: AtomicU64,
}

impl Shared {
    /// The entry at a place that a slot names.
    #[inline]
    pub(super) fn entry(&self, place: EntryOffset) -> Entry<'_> {
        let first = place as usize;
        let head = self.head(place);
        Entry::new(head, self.words.cells(first, first + head.words(self.page_words)))
    }

    #[inline]
    pub(super) fn head(&self, place: EntryOffset) -> Head {
        Entry::head_at(&self.words.cells(place as usize, place as usize + 1)[0])
    }

    /// The entry if it is the key's.
    #[inline]
    pub(super) fn entry_of(&self, place: EntryOffset, key: &[u8]) -> Option<Entry<'_>> {
        Some(self.entry(place)).filter(|entry| entry.has_key(key))
    }

    /// Hash of the key of an entry; `key` is room for it.
    pub(super) fn hash_at(&self, place: EntryOffset, key: &mut Vec<u8>) -> u64 {
        key.clear();
        self.entry(place).append_key(key);
        self.hasher.hash_of(key).0
    }

    /// Appends a value.
    #[inline]
    pub(super) fn append_value(&self, entry: &Entry<'_>, out: &mut Vec<u8>) {
        if entry.head().bodies() > 0 {
            out.reserve(entry.head().value_len());
            for (cells, len) in self.body_cells(entry) {
                append_bytes(cells, len, out);
            }
        }
        append_bytes(entry.value(), entry.head().inline_len(self.page_words), out);
    }

    /// Whether the value is `expected`.
    pub(super) fn has_value(&self, entry: &Entry<'_>, expected: &[u8]) -> bool {
        if entry.head().value_len() != expected.len() {
            return false;
        }
        let mut rest = expected;
        self.body_cells(entry).all(|(cells, len)| {
            let (part, after) = rest.split_at(len);
            rest = after;
            equal_bytes(cells, part)
        }) && equal_bytes(entry.value(), rest)
    }

    /// Cells of the bodies of a value, with the bytes in each.
    pub(super) fn body_cells<'a>(
        &'a self,
        entry: &Entry<'a>,
    ) -> impl Iterator<Item = (&'a [AtomicU64], usize)> {
        let page_bytes = self.page_words * WORD;
        let value_len = entry.head().value_len();
        bodies_of(entry).enumerate().map(move |(part, page)| {
            let (first, len) =
                (page as usize * self.page_words, page_bytes.min(value_len - part * page_bytes));
            (self.words.cells(first, first + words_of(len)), len)
        })
    }
}

/// Answer of [`View::get`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Read {
    /// The value was appended.
    Found {
        /// When it ends, ms since 1970; 0 = never.
        deadline_ms: u64,
    },
    /// There is no such key at that time.
    Missing,
    /// The owner was rewriting the value each time it was looked at, perhaps because it has been descheduled meanwhile. Nothing was
    /// appended. Ask the owner, who can always tell. Never without `in_place_same_size`.
    Contended,
}

/// The read side of a store, for any core. Cheap to clone.
///
/// All methods are lock-free and never wait for the owner. A key is *there* from its deadline's point of view while `now_ms`
/// is before it. Pins must be of the domain that the store was made with.
#[derive(Clone)]
pub struct View {
    pub(super) shared: Arc<Shared>,
}

impl View {
    /// The hash of a key, by which the other methods find it.
    #[inline]
    pub fn hash_of(&self, key: &[u8]) -> KeyHash {
        self.shared.hasher.hash_of(key)
    }

    /// Asks the memory for the line of the key's bucket. For batches of reads or writes: first this for each key, then
    /// [`Self::prefetch_entry`] for each, then the operations. The waits for memory then overlap, which halves the time of
    /// lookups and makes a third of that of writes, as a write alone waits for one line after the other.
    #[inline]
    pub fn prefetch_bucket(&self, pin: &Pin<'_>, hash: KeyHash) {
        self.shared.table.load(pin).prefetch(hash.0);
    }

    /// Asks the memory for the first lines of the entry that is probably the key's.
    #[inline]
    pub fn prefetch_entry(&self, pin: &Pin<'_>, hash: KeyHash) {
        for place in self.shared.table.load(pin).likely(hash.0) {
            // Three lines: an entry of a short key and 64 bytes begins anywhere in the first.
            self.shared.words.prefetch(place as usize);
            self.shared.words.prefetch(place as usize + 8);
            self.shared.words.prefetch(place as usize + 16);
        }
    }

    /// Appends the value of `key` to `out`: two cache misses and the copy. `hash` is [`Self::hash_of`] of the key.
    #[inline]
    pub fn get(&self, pin: &Pin<'_>, hash: KeyHash, key: &[u8], now_ms: u64, out: &mut Vec<u8>) -> Read {
        let shared = &*self.shared;
        let Some(entry) = self.find(pin, hash, key) else { return Read::Missing };
        let start = out.len();
        let mut copy = || {
            out.truncate(start);
            let deadline_ms = entry.deadline_ms();
            is_live(deadline_ms, now_ms).then(|| {
                shared.append_value(&entry, out);
                Read::Found { deadline_ms }
            })
        };
        let read = if shared.in_place { self.read(&entry, copy) } else { Ok(copy()) };
        match read {
            Ok(Some(found)) => {
                if shared.sieve {
                    entry.visit();
                }
                found
            }
            Ok(None) => Read::Missing,
            Err(Torn) => {
                out.truncate(start);
                Read::Contended
            }
        }
    }

    /// Bytes of the value of `key` as far as is known here, 0 where there is none: the owner may be about to change it.
    #[inline]
    pub fn value_len(&self, pin: &Pin<'_>, hash: KeyHash, key: &[u8]) -> usize {
        // The length of an entry never changes, not even when its value is rewritten where it lies.
        self.find(pin, hash, key).map_or(0, |entry| entry.head().value_len())
    }

    /// Whether `key` is there. Does not count as a read of the value.
    #[inline]
    pub fn exists(&self, pin: &Pin<'_>, hash: KeyHash, key: &[u8], now_ms: u64) -> bool {
        self.deadline_ms(pin, hash, key, now_ms).is_some()
    }

    /// When `key` ends, ms since 1970 (0 = never), or `None` when it is not there.
    #[inline]
    pub fn deadline_ms(&self, pin: &Pin<'_>, hash: KeyHash, key: &[u8], now_ms: u64) -> Option<u64> {
        let deadline_ms = self.find(pin, hash, key)?.deadline_ms();
        is_live(deadline_ms, now_ms).then_some(deadline_ms)
    }

    /// Milliseconds that `key` has left, −1 when it has no expiry, −2 when it is not there.
    #[inline]
    pub fn ttl(&self, pin: &Pin<'_>, hash: KeyHash, key: &[u8], now_ms: u64) -> i64 {
        match self.deadline_ms(pin, hash, key, now_ms) {
            None => -2,
            Some(0) => -1,
            Some(deadline_ms) => i64::try_from(deadline_ms - now_ms).unwrap_or(i64::MAX),
        }
    }

    #[inline]
    fn find<'p>(&'p self, pin: &'p Pin<'_>, hash: KeyHash, key: &[u8]) -> Option<Entry<'p>> {
        let table: &Table = self.shared.table.load(pin);
        table.find(hash.0, |place| self.shared.entry_of(place, key))
    }

    fn read<R>(&self, entry: &Entry<'_>, copy: impl FnMut() -> R) -> Result<R, Torn> {
        let (vain, read) = entry.read(copy);
        if vain > 0 {
            self.shared.read_retries.fetch_add(vain as u64, Relaxed);
            self.shared.read_fallbacks.fetch_add(u64::from(read.is_err()), Relaxed);
        }
        read
    }
}

/// Whether a key with that deadline is there at `now_ms`.
#[inline]
pub(super) fn is_live(deadline_ms: u64, now_ms: u64) -> bool {
    deadline_ms == 0 || now_ms < deadline_ms
}
