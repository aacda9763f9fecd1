//! What becomes of the keys of a shard while a backup is made of them: the bodies of its log records since the images of the backup were begun, up to
//! the moment of the backup.
//!
//! Images have of each key some state from their beginning on, and the records since then make it that of one moment. This moment is the same on all
//! cores: core 0 stores the number of the backup in [`Cut`], and no core takes a record onto its tape any more once it sees that. A client that has
//! an answer to one write and then sends another one finds the first on a tape if it finds the second.

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
    /// Of `most` bytes; `charge` holds what is taken.
    pub(super) fn new(most: usize, charge: Charge) -> Rc<TapeRoom> {
        Rc::new(TapeRoom { left: Cell::new(most), charge: RefCell::new(charge), is_torn: Cell::new(false) })
    }

    /// Whether the tapes were given up because they became too long.
    pub(super) fn is_torn(&self) -> bool {
        self.is_torn.get()
    }

    /// Takes `bytes`; false, and the tapes are given up, if there is no room.
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

/// See the module.
pub(super) struct Tape {
    number: u64,
    cut: Arc<Cut>,
    room: Rc<TapeRoom>,
    records: Vec<Vec<u8>>,
    /// Of the last record.
    ticket: Option<Ticket>,
}

impl Tape {
    /// Begins for the backup with this number.
    pub(super) fn begin(number: u64, cut: Arc<Cut>, room: Rc<TapeRoom>) -> Tape {
        Tape { number, cut, room, records: Vec::new(), ticket: None }
    }

    /// A record was appended to the log, and what it says is about to be applied.
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

    /// The records in order, and what to wait for until the last of them is durable.
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
