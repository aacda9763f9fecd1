//! What a file holds now, what of it is certain, and what lies between.
use crate::disk::BLOCK;
use crate::sim::Random;

/// Bytes of one file.
#[derive(Clone, Default)]
pub(super) struct Contents {
    current: Vec<u8>,
    durable: Vec<u8>,
    /// Changes since the last sync with the number of each, in order.
    unsynced: Vec<(u64, Change)>,
    written: u64,
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
        let mut bytes = self.durable.clone();
        for (index, (_, change)) in self.unsynced.iter().enumerate() {
            change.apply_in_part(&mut bytes, random, index + 1 == self.unsynced.len());
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
