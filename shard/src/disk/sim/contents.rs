//! What a file holds now, what of it is certain, and what lies between.
use crate::disk::BLOCK;
use crate::sim::Random;
use rustix::fs::{MemfdFlags, memfd_create};
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::rc::Rc;

/// Bytes of a mapped file that are read at once: a buffer for all of it, made for each look, takes longer than the comparison.
const LOOK: usize = 16 * BLOCK;

/// A file in memory without a name.
pub(super) fn memory_file() -> io::Result<File> {
    Ok(memfd_create(c"nigh-sim", MemfdFlags::CLOEXEC)?.into())
}

/// Bytes of one file.
#[derive(Clone, Default)]
pub(super) struct Contents {
    current: Vec<u8>,
    durable: Vec<u8>,
    /// Changes since the last sync with the number of each, in order.
    unsynced: Vec<(u64, Change)>,
    written: u64,
    /// Where it is mapped, the same bytes as `current` up to the last look.
    mapped: Option<Rc<File>>,
}

#[derive(Clone)]
enum Change {
    Write { offset: usize, bytes: Vec<u8> },
    SetLen(usize),
}

impl Contents {
    /// Contents that were synced before.
    pub(super) fn durable(bytes: Vec<u8>) -> Contents {
        Contents { current: bytes.clone(), durable: bytes, ..Contents::default() }
    }

    pub(super) fn current(&self) -> &[u8] {
        &self.current
    }

    /// The file to map: a copy in memory, whose changes [`Self::look`] takes over.
    pub(super) fn map(&mut self) -> io::Result<File> {
        if self.mapped.is_none() {
            let file = memory_file()?;
            file.set_len(self.current.len() as u64)?;
            // What nobody has written yet takes no memory.
            for (index, block) in self.current.chunks(BLOCK).enumerate() {
                if block.iter().any(|&byte| byte != 0) {
                    file.write_all_at(block, (index * BLOCK) as u64)?;
                }
            }
            self.mapped = Some(Rc::new(file));
        }
        self.mapped.as_ref().expect("made above").try_clone()
    }

    /// Takes over what was written to it by way of memory since the last look: as one change per block, in order.
    pub(super) fn look(&mut self) {
        let Some(file) = self.mapped.clone() else { return };
        let len = file.metadata().expect("it is open").len() as usize;
        if len != self.current.len() {
            self.change(Change::SetLen(len));
        }
        let mut bytes = [0; LOOK];
        for start in (0..len).step_by(LOOK) {
            let bytes = &mut bytes[..LOOK.min(len - start)];
            file.read_exact_at(bytes, start as u64).expect("it is memory");
            if self.current[start..start + bytes.len()] == *bytes {
                continue;
            }
            for (index, block) in bytes.chunks(BLOCK).enumerate() {
                let offset = start + index * BLOCK;
                if self.current[offset..offset + block.len()] != *block {
                    self.change(Change::Write { offset, bytes: block.to_vec() });
                }
            }
        }
    }

    /// Changes made so far; pass to [`Contents::synced`].
    pub(super) fn written(&self) -> u64 {
        self.written
    }

    pub(super) fn write(&mut self, offset: u64, bytes: &[u8]) {
        self.change(Change::Write { offset: offset as usize, bytes: bytes.to_vec() });
    }

    pub(super) fn set_len(&mut self, len: u64) {
        self.change(Change::SetLen(len as usize));
    }

    fn change(&mut self, change: Change) {
        change.apply(&mut self.current);
        if let (Some(file), Change::SetLen(len)) = (&self.mapped, &change) {
            file.set_len(*len as u64).expect("it is memory");
        }
        if let (Some(file), Change::Write { offset, bytes }) = (&self.mapped, &change) {
            file.write_all_at(bytes, *offset as u64).expect("it is memory");
        }
        self.written += 1;
        self.unsynced.push((self.written, change));
    }

    /// Makes the first `upto` changes certain.
    pub(super) fn synced(&mut self, upto: u64) {
        let rest = self.unsynced.partition_point(|&(number, _)| number <= upto);
        for (_, change) in self.unsynced.drain(..rest) {
            change.apply(&mut self.durable);
        }
    }

    /// After a failed sync: each change reached the device or will never reach it, whatever later syncs say.
    pub(super) fn forget_unsynced(&mut self, random: &Random) {
        for (_, change) in std::mem::take(&mut self.unsynced) {
            change.apply_in_part(&mut self.durable, random, false);
        }
    }

    /// What a crash leaves, certain from then on.
    pub(super) fn after_crash(&self, random: &Random) -> Contents {
        let mut looked_at = None;
        if self.mapped.is_some() {
            looked_at.insert(self.clone()).look();
        }
        let before = looked_at.as_ref().unwrap_or(self);
        let mut bytes = before.durable.clone();
        for (index, (_, change)) in before.unsynced.iter().enumerate() {
            change.apply_in_part(&mut bytes, random, index + 1 == before.unsynced.len());
        }
        Contents::durable(bytes)
    }
}

impl Change {
    fn apply(&self, to: &mut Vec<u8>) {
        match self {
            Change::Write { offset, bytes } => write(to, *offset, bytes),
            Change::SetLen(len) => to.resize(*len, 0),
        }
    }

    /// All, nothing, some blocks, or (for the last one) up to some byte.
    fn apply_in_part(&self, to: &mut Vec<u8>, random: &Random, last: bool) {
        match (random.below(if last { 4 } else { 3 }), self) {
            (0, _) => {}
            (1, _) => self.apply(to),
            (2, Change::Write { offset, bytes }) => {
                for (index, block) in bytes.chunks(BLOCK).enumerate() {
                    if random.chance(1, 2) {
                        write(to, offset + index * BLOCK, block);
                    }
                }
            }
            (_, Change::Write { offset, bytes }) => {
                write(to, *offset, &bytes[..random.index(bytes.len() + 1)]);
            }
            (_, Change::SetLen(len)) => {
                let (low, high) = (to.len().min(*len), to.len().max(*len));
                to.resize(low + random.index(high - low + 1) / BLOCK * BLOCK, 0);
            }
        }
    }
}

fn write(to: &mut Vec<u8>, offset: usize, bytes: &[u8]) {
    let end = offset + bytes.len();
    if to.len() < end {
        to.resize(end, 0);
    }
    to[offset..end].copy_from_slice(bytes);
}
