//! Point id to slot: extendible hashing in small segments; the owner writes, any core reads, no pause on growth.
//!
//! # Invariants
//!
//! 1. A *segment* is an array of lines of entries (`table`), at most four fifths claimed, so every probe meets an empty
//!    entry and ends. The *directory* has `2^g` pointers; the top `g` bits of a key's hash choose one. A segment of *depth*
//!    `d` stands in the `2^(g-d)` neighbouring places whose top `d` bits are its own. The low bits of the hash choose the
//!    line where probing starts; it goes on line by line.
//! 2. Every live key has exactly one live entry in exactly one reachable segment.
//! 3. An entry, once claimed by a key, is that key's until the segment is replaced: a removed key leaves its claim
//!    behind and takes it up again when it returns. A key therefore never moves inside a segment, and a reader can never
//!    attribute a slot to the wrong key (`table` has the argument).
//! 4. A segment that is replaced keeps its last content for readers that are still in it; it is freed when quiescent.
//!
//! # Writing
//!
//! Present key: one store to the entry's slot. New key: key, then slot (Release), in the first empty entry. When
//! four fifths are claimed the owner replaces the segment *before* it inserts:
//!
//! * if at most three quarters of the claims are live, by one fresh segment without the removed keys;
//! * else by two segments of depth `d + 1`. If `d = g` the directory is doubled first: a copy in which every pointer
//!   stands twice is published whole, and the old directory retired.
//!
//! It fills the new segments privately, stores their pointers into the directory (Release), then retires the old one. One
//! segment is replaced at a time, about a thousand entries, some ten microseconds; doubling copies eight bytes per
//! directory place, one place per ~700 ids.
//!
//! # Reading
//!
//! `directory` (Acquire), its place for the hash (Acquire), then probe. Think of any owner step in between:
//!
//! * *The directory is doubled:* the old one still leads to the same segments, until one of them is replaced.
//! * *The segment is replaced* after the reader chose it, through the current or an outdated directory: the reader finds
//!   the state of the moment of replacement. Its lookup began before that moment and ends after it, so this is an answer
//!   it could have had; all later lookups of that thread start at the directory again and see the new segment.
//! * *Half of the places* of a replaced segment are swung: a key's hash reads one place; either pointer is right.
//! * *The key is removed and inserted again:* same entry, so the reader sees the old slot, removed, or the new slot.
//!   A key that is only ever updated is found at every moment, because no step takes its entry away from a reader.
//! * *The segment or directory is freed:* not while the reader's pin lasts. A directory is retired before the segments
//!   that only it still names, so a reader that pins after a segment's retirement cannot find an older directory.
//!
//! # Crafted ids
//!
//! The hash is keyed, so nobody who does not know the seed can aim ids at one segment. Should it happen nevertheless
//! (the seed leaked), splitting would double the directory again and again; therefore a segment may be at most
//! `DEPTH_SLACK` deeper than an even spread needs, and beyond that it is rebuilt at twice the size instead. Memory
//! then stays proportional to the ids; only the bound on the pause is lost.
//!
//! Segments do not merge: after mass deletion the table keeps its size and reuses it.

use super::owned::Owned;
use super::sync::{AtomicPtr, AtomicUsize, Ordering};
use super::table::{Block, LINE_ENTRIES, Line, Probe, SLOT_MAX};
use super::{Domain, Limbo, Pin};
use ahash::RandomState;
use std::sync::Arc;

/// Lines of a segment that is not degenerate: 256 lines, 16 KiB, split at 1024 ids. Small enough that replacing one
/// delays nobody, large enough that the directory stays small (8 bytes per segment).
const SEGMENT_LINES_LOG2: u32 = 8;

/// How much deeper than the logarithm of their number segments may become. With an unbroken hash the deepest of
/// millions of segments is one or two above the mean.
const DEPTH_SLACK: u32 = 3;

/// Claimed entries per line, on average, at which a segment is replaced: four of five.
const CLAIMS_PER_LINE: usize = LINE_ENTRIES - 1;

/// Sizes that tests make small.
#[derive(Clone, Copy)]
struct Shape {
    segment_lines_log2: u32,
    depth_slack: u32,
}

/// A directory place: the tagged pointer of a `Block<Line>`.
type DirectoryCell = AtomicPtr<u8>;

/// Retired memory.
enum Retired {
    Segment(Block<Line>),
    Directory(Block<DirectoryCell>),
}

impl Retired {
    fn bytes(&self) -> usize {
        match self {
            Retired::Segment(block) => block.bytes(),
            Retired::Directory(block) => block.bytes(),
        }
    }

    /// # Safety
    ///
    /// Quiescent, or no reader exists.
    unsafe fn free(self) {
        match self {
            // SAFETY: unlinked when it was retired, and not reachable (caller).
            Retired::Segment(block) => unsafe { block.free() },
            // SAFETY: likewise.
            Retired::Directory(block) => unsafe { block.free() },
        }
    }
}

/// The owner's state.
struct Writer {
    segments: usize,
    limbo: Limbo<Retired>,
}

/// Id to slot; see the module's chapter. Keys are any u64 (0 valid); slots are below `u32::MAX - 1`.
///
/// Lookups cost two dependent loads and, on average, little more than one cache line of entries. About 13 to 43 bytes
/// per id. Owner calls from two threads at the same time panic.
pub struct IdMap {
    directory: AtomicPtr<u8>,
    hasher: RandomState,
    domain: Arc<Domain>,
    len: AtomicUsize,
    bytes: AtomicUsize,
    shape: Shape,
    writer: Owned<Writer>,
}

impl IdMap {
    /// Empty; `seed` keys the hash so crafted ids cannot collide. One segment (16 KiB) is allocated.
    pub fn new(domain: Arc<Domain>, seed: u64) -> Self {
        let shape = Shape { segment_lines_log2: SEGMENT_LINES_LOG2, depth_slack: DEPTH_SLACK };
        Self::with_shape(domain, seed, shape)
    }

    fn with_shape(domain: Arc<Domain>, seed: u64, shape: Shape) -> Self {
        let segment = new_segment(shape.segment_lines_log2, 0);
        let directory = Block::new(0, |_| DirectoryCell::new(segment.tagged()));
        // Four words from one: odd constants keep them apart even for seed 0.
        let key = |n: u64| {
            (seed ^ n.wrapping_mul(0x9E37_79B9_7F4A_7C15)).wrapping_mul(0xD6E8_FEB8_6659_FD93 | n << 1)
        };
        IdMap {
            directory: AtomicPtr::new(directory.tagged()),
            hasher: RandomState::with_seeds(key(1), key(2), key(3), key(4)),
            domain,
            len: AtomicUsize::new(0),
            bytes: AtomicUsize::new(segment.bytes() + directory.bytes()),
            shape,
            writer: Owned::new(Writer { segments: 1, limbo: Limbo::new() }),
        }
    }

    /// Any core: the slot of `id`. Panics when `pin` is of another domain.
    #[inline]
    pub fn get(&self, pin: &Pin<'_>, id: u64) -> Option<u32> {
        pin.assert_of(&self.domain);
        let hash = self.hasher.hash_one(id);
        // SAFETY: the pin keeps whatever directory and segment are found from being freed.
        unsafe {
            let directory = Block::<DirectoryCell>::from_tagged(self.directory.load(Ordering::Acquire));
            match find(segment_of(directory, hash).values(), hash, id) {
                (_, _, Probe::Slot(slot)) => Some(slot),
                _ => None,
            }
        }
    }

    /// Owner only: the slot of `id` without a pin.
    pub fn get_owned(&self, id: u64) -> Option<u32> {
        let writer = self.writer.enter();
        let hash = self.hasher.hash_one(id);
        match find(self.lines(&writer, hash), hash, id) {
            (_, _, Probe::Slot(slot)) => Some(slot),
            _ => None,
        }
    }

    /// Owner only: maps `id` to `slot`, returns the previous slot. One atomic store for readers.
    ///
    /// # Panics
    ///
    /// When `slot` is not below `u32::MAX - 1`.
    pub fn insert(&self, id: u64, slot: u32) -> Option<u32> {
        assert!(slot <= SLOT_MAX, "slot {slot} is reserved");
        let mut writer = self.writer.enter();
        let hash = self.hasher.hash_one(id);
        loop {
            let lines = self.lines(&writer, hash);
            let (line, entry, found) = find(lines, hash, id);
            match found {
                Probe::Slot(old) => {
                    line.set(entry, Some(slot));
                    return Some(old);
                }
                Probe::Removed => line.set(entry, Some(slot)),
                _ if is_full(lines) => {
                    self.replace_segment(&mut writer, hash);
                    continue;
                }
                _ => {
                    line.claim(entry, id, slot);
                    lines[0].set_note(lines[0].note() + 1);
                }
            }
            self.len.store(self.len.load(Ordering::Relaxed) + 1, Ordering::Relaxed);
            return None;
        }
    }

    /// Owner only: forgets `id`, returns its slot. One atomic store.
    pub fn remove(&self, id: u64) -> Option<u32> {
        let writer = self.writer.enter();
        let hash = self.hasher.hash_one(id);
        let (line, entry, found) = find(self.lines(&writer, hash), hash, id);
        let Probe::Slot(old) = found else { return None };
        line.set(entry, None);
        self.len.store(self.len.load(Ordering::Relaxed) - 1, Ordering::Relaxed);
        Some(old)
    }

    /// Entries. Any core; exact for the owner.
    pub fn len(&self) -> usize {
        self.len.load(Ordering::Relaxed)
    }

    /// No entries.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Bytes of directory and segments, retired ones included. Any core; exact for the owner.
    pub fn bytes(&self) -> usize {
        self.bytes.load(Ordering::Relaxed)
    }

    /// Owner only: frees quiescent retired segments. Growth does so by itself; call it when the table rests.
    pub fn reclaim(&self) {
        self.free_quiescent(&mut self.writer.enter());
    }

    fn free_quiescent(&self, writer: &mut Writer) {
        while let Some(retired) = writer.limbo.pop(&self.domain) {
            self.account(0, retired.bytes());
            // SAFETY: quiescent, says the limbo.
            unsafe { retired.free() };
        }
    }

    fn account(&self, more: usize, less: usize) {
        self.bytes.store(self.bytes.load(Ordering::Relaxed) + more - less, Ordering::Relaxed);
    }

    fn directory(&self, _inside: &Writer) -> Block<DirectoryCell> {
        Block::from_tagged(self.directory.load(Ordering::Relaxed))
    }

    /// The lines of the segment that `hash` leads to, for the owner, who cannot replace it while they are borrowed.
    fn lines<'w>(&self, writer: &'w Writer, hash: u64) -> &'w [Line] {
        // SAFETY: the owner is inside (`writer` is behind the gate) and only the owner retires, by exclusive reference.
        unsafe { segment_of(self.directory(writer), hash).values() }
    }

    /// Replaces the segment that `hash` leads to by one or two with free entries, and retires it.
    fn replace_segment(&self, writer: &mut Writer, hash: u64) {
        let lines = self.lines(writer, hash);
        let depth = lines[1].note();
        let live: Vec<(u64, u32)> = lines.iter().flat_map(Line::live).collect();
        let lines_log2 = lines.len().ilog2();
        let split_is_allowed = depth < writer.segments.ilog2() + self.shape.depth_slack;
        let split = 4 * live.len() > 3 * claims_max(lines_log2) && split_is_allowed;

        if split && depth == self.directory(writer).log2() {
            self.double_directory(writer);
        }
        let directory = self.directory(writer);
        // SAFETY: the current directory, and only the owner retires it.
        let places = unsafe { directory.values() };
        let old = segment_of_place(&places[place_index(directory, hash)]);

        // The places of the old segment: all whose top `depth` bits are those of `hash`.
        let span = 1usize << (directory.log2() - depth);
        let first = place_index(directory, hash) & !(span - 1);
        let halves = if split { 2 } else { 1 };
        for half in 0..halves {
            let of_half = |hash: u64| !split || (hash >> (63 - depth)) & 1 == half as u64;
            let entries = live.iter().filter(|(id, _)| of_half(self.hasher.hash_one(id)));
            let fresh = self.filled_segment(depth + u32::from(split), entries.copied());
            self.account(fresh.bytes(), 0);
            for place in &places[first + half * (span / halves)..][..span / halves] {
                place.store(fresh.tagged(), Ordering::Release);
            }
        }
        writer.segments += halves - 1;
        writer.limbo.push(&self.domain, Retired::Segment(old));
        self.free_quiescent(writer);
    }

    /// A private segment that holds `entries` and has room for a quarter more.
    fn filled_segment(&self, depth: u32, entries: impl Iterator<Item = (u64, u32)> + Clone) -> Block<Line> {
        let count = entries.clone().count();
        let mut lines_log2 = self.shape.segment_lines_log2;
        while 4 * count > 3 * claims_max(lines_log2) {
            lines_log2 += 1;
        }
        let segment = new_segment(lines_log2, depth);
        // SAFETY: fresh, nobody else knows it.
        let lines = unsafe { segment.values() };
        for (id, slot) in entries {
            let (line, entry, found) = find(lines, self.hasher.hash_one(id), id);
            debug_assert_eq!(found, Probe::Empty, "a key is live once");
            line.claim(entry, id, slot);
        }
        lines[0].set_note(u32::try_from(count).expect("slots are 32-bit, so ids are fewer"));
        segment
    }

    /// Publishes a directory of twice the size with the same segments, and retires the present one.
    fn double_directory(&self, writer: &mut Writer) {
        let old = self.directory(writer);
        // SAFETY: the current directory, and only the owner retires it.
        let places = unsafe { old.values() };
        let copy = |index: usize| DirectoryCell::new(places[index / 2].load(Ordering::Relaxed));
        let doubled = Block::new(old.log2() + 1, copy);
        self.account(doubled.bytes(), 0);
        self.directory.store(doubled.tagged(), Ordering::Release);
        writer.limbo.push(&self.domain, Retired::Directory(old));
    }
}

impl Drop for IdMap {
    fn drop(&mut self) {
        let mut writer = self.writer.enter();
        let directory = self.directory(&writer);
        // SAFETY: exclusive access, so no reader exists (lookups borrow the map), and each block is freed once: a
        // segment stands in neighbouring places, retired ones stand in none.
        unsafe {
            let mut last = None;
            for place in directory.values() {
                let segment = segment_of_place(place);
                if last != Some(segment) {
                    if let Some(last) = last {
                        last.free();
                    }
                    last = Some(segment);
                }
            }
            if let Some(last) = last {
                last.free();
            }
            directory.free();
            for retired in std::mem::take(&mut writer.limbo).into_items() {
                retired.free();
            }
        }
    }
}

/// Claims that a segment takes before it is replaced.
fn claims_max(lines_log2: u32) -> usize {
    CLAIMS_PER_LINE << lines_log2
}

fn is_full(lines: &[Line]) -> bool {
    lines[0].note() as usize >= claims_max(lines.len().ilog2())
}

fn new_segment(lines_log2: u32, depth: u32) -> Block<Line> {
    assert!(lines_log2 > 0, "two lines hold the notes");
    let segment = Block::new(lines_log2, |_| Line::new());
    // SAFETY: fresh, nobody else knows it.
    let lines = unsafe { segment.values() };
    lines[1].set_note(depth);
    segment
}

/// Place of `hash` in a directory: its top bits. (Two shifts, because a shift by 64 is none.)
#[inline]
fn place_index(directory: Block<DirectoryCell>, hash: u64) -> usize {
    ((hash >> 1) >> (63 - directory.log2())) as usize
}

#[inline]
fn segment_of_place(place: &DirectoryCell) -> Block<Line> {
    Block::from_tagged(place.load(Ordering::Acquire))
}

/// # Safety
///
/// The directory is not freed during the call.
#[inline]
unsafe fn segment_of(directory: Block<DirectoryCell>, hash: u64) -> Block<Line> {
    // SAFETY: alive (caller).
    let places = unsafe { directory.values() };
    segment_of_place(&places[place_index(directory, hash)])
}

/// Probes for `id`: its entry, or the empty one where it would be claimed.
#[inline]
fn find(lines: &[Line], hash: u64, id: u64) -> (&Line, usize, Probe) {
    let mask = lines.len() - 1;
    let mut index = hash as usize & mask;
    loop {
        let line = &lines[index];
        for entry in 0..LINE_ENTRIES {
            match line.probe(entry, id) {
                Probe::Other => {}
                found => return (line, entry, found),
            }
        }
        // Ends: a fifth of the entries is empty.
        index = (index + 1) & mask;
    }
}

#[cfg(all(test, not(loom)))]
mod tests;

/// A map of two-line segments, for the models.
#[cfg(all(test, loom))]
pub(super) fn tiny(domain: Arc<Domain>, seed: u64) -> IdMap {
    IdMap::with_shape(domain, seed, Shape { segment_lines_log2: 1, depth_slack: DEPTH_SLACK })
}

/// Ids that fill a segment of [`tiny`]: the next one splits it.
#[cfg(all(test, loom))]
pub(super) const TINY_CLAIMS: u64 = (CLAIMS_PER_LINE << 1) as u64;

/// Where probing for `id` starts in a map of [`tiny`] segments.
#[cfg(all(test, loom))]
pub(super) fn first_line(map: &IdMap, id: u64) -> u64 {
    map.hasher.hash_one(id) & 1
}
