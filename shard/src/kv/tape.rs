//! A *tape* has what becomes of the keys of a shard while they are backed up: copies of its log records in memory, from the beginning of the
//! images of the backup up to the moment of the backup.
//!
//! Keys change while an image is written, so an image has each key as it was at some time after the image was begun. The records on the tape,
//! applied in order, bring all keys to one moment. This moment is the same on all cores: core 0 stores the number of the backup in [`Cut`], and
//! once a core sees that number, it puts no further record onto its tapes. If a client sends a write after it has received the answer to an
//! earlier one, and the later write is in the backup, so is the earlier one.

use crate::account::Charge;
use crate::journal::Ticket;
use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::SeqCst};

/// The number of the newest backup whose moment has passed. All cores share it.
#[derive(Debug, Default)]
pub(super) struct Cut(AtomicU64);

impl Cut {
    /// Whether the moment of the backup with this number has passed.
    fn has_passed(&self, number: u64) -> bool {
        self.0.load(SeqCst) >= number
    }

    /// The moment of the backup with this number is now.
    pub(super) fn pass(&self, number: u64) {
        self.0.fetch_max(number, SeqCst);
    }
}

/// The memory that the tapes of one core may take together.
pub(super) struct TapeRoom {
    left: Cell<usize>,
    charge: RefCell<Charge>,
    is_torn: Cell<bool>,
}

impl TapeRoom {
    /// A room of `most` bytes. `charge` counts in the account of memory what is taken.
    pub(super) fn new(most: usize, charge: Charge) -> Rc<TapeRoom> {
        Rc::new(TapeRoom { left: Cell::new(most), charge: RefCell::new(charge), is_torn: Cell::new(false) })
    }

    /// Whether the tapes were given up because they became too long.
    pub(super) fn is_torn(&self) -> bool {
        self.is_torn.get()
    }

    /// Takes `bytes` bytes. If there is no room, the tapes are given up, and this returns false.
    fn take(&self, bytes: usize) -> bool {
        match self.left.get().checked_sub(bytes) {
            Some(left) if !self.is_torn() => {
                self.left.set(left);
                let mut charge = self.charge.borrow_mut();
                let held = charge.bytes();
                charge.set(held + bytes as u64);
                true
            }
            _ => {
                self.is_torn.set(true);
                self.charge.borrow_mut().set(0);
                false
            }
        }
    }
}

/// The tape of one shard, see the module.
pub(super) struct Tape {
    number: u64,
    cut: Arc<Cut>,
    room: Rc<TapeRoom>,
    records: Vec<Vec<u8>>,
    /// The ticket of the last record.
    ticket: Option<Ticket>,
}

impl Tape {
    /// Begins a tape for the backup with this number.
    pub(super) fn begin(number: u64, cut: Arc<Cut>, room: Rc<TapeRoom>) -> Tape {
        Tape { number, cut, room, records: Vec::new(), ticket: None }
    }

    /// Takes a copy of a record that was appended to the log and is about to be applied.
    #[cold]
    pub(super) fn note(&mut self, record: &[u8], ticket: Ticket) {
        if self.cut.has_passed(self.number) {
            return;
        }
        if self.room.take(record.len() + size_of::<Vec<u8>>()) {
            self.records.push(record.to_vec());
            self.ticket = Some(ticket);
        } else {
            self.records = Vec::new();
        }
    }

    /// Returns the records in order, and the ticket to wait for until the last of them is durable.
    pub(super) fn end(self) -> (Vec<Vec<u8>>, Option<Ticket>) {
        (self.records, self.ticket)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::account::{Account, MemoryUse};
    use std::num::NonZeroU64;

    #[test]
    fn tapes_end_at_the_moment_of_their_backup_and_are_given_up_together() {
        let account = Account::new(1 << 30);
        let ticket = crate::log::Ticket::for_tests(NonZeroU64::MIN);
        let cut = Arc::new(Cut::default());
        let room = TapeRoom::new(1000, account.hold(MemoryUse::Images, 0));
        let mut tapes = [1, 1].map(|number| Tape::begin(number, cut.clone(), room.clone()));
        tapes[0].note(b"one", ticket);
        tapes[1].note(b"two", ticket);
        assert!(account.held(MemoryUse::Images) > 0);
        cut.pass(1);
        tapes[0].note(b"three", ticket);
        let [first, second] = tapes.map(|tape| tape.end().0);
        assert_eq!((first, second), (vec![b"one".to_vec()], vec![b"two".to_vec()]));
        // An earlier backup does not take the moment back.
        cut.pass(0);
        let mut tapes = [2, 2].map(|number| Tape::begin(number, cut.clone(), room.clone()));
        tapes[0].note(&[7; 500], ticket);
        tapes[1].note(&[7; 500], ticket);
        tapes[0].note(b"", ticket);
        assert!(room.is_torn());
        assert_eq!(account.held(MemoryUse::Images), 0);
    }
}
