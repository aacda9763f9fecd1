//! Answers on their way: one slot per request that another core or thread works on.
//!
//! The answer travels as a message and fills the slot on the thread that waits, so the waiting task is woken by its own
//! thread. A slot carries a generation: an answer to a caller that has gone finds the slot abandoned and frees it.

use std::any::Any;
use std::cell::RefCell;
use std::task::{Context, Poll, Waker};

/// What an answer brings: the value, or nothing when whoever worked on it went away.
pub(super) type Answer = Option<Box<dyn Any + Send>>;

/// Names a slot; travels with the request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Ticket {
    index: u32,
    generation: u32,
}

#[derive(Default)]
pub(super) struct Calls {
    slots: RefCell<Vec<CallSlot>>,
    free: RefCell<Vec<u32>>,
}

struct CallSlot {
    generation: u32,
    state: SlotState,
}

enum SlotState {
    Free,
    Waiting(Option<Waker>),
    Answered(Answer),
    /// The caller has gone; the answer is still on its way.
    Abandoned,
}

impl Calls {
    /// Opens a slot.
    pub(super) fn open(&self) -> Ticket {
        let mut slots = self.slots.borrow_mut();
        let index = self.free.borrow_mut().pop().unwrap_or_else(|| {
            slots.push(CallSlot { generation: 0, state: SlotState::Free });
            (slots.len() - 1) as u32
        });
        let slot = &mut slots[index as usize];
        slot.state = SlotState::Waiting(None);
        Ticket { index, generation: slot.generation }
    }

    /// The answer has arrived.
    pub(super) fn answer(&self, ticket: Ticket, answer: Answer) {
        let mut slots = self.slots.borrow_mut();
        let slot = &mut slots[ticket.index as usize];
        debug_assert_eq!(slot.generation, ticket.generation, "a request was answered twice");
        if slot.generation != ticket.generation {
            return;
        }
        match std::mem::replace(&mut slot.state, SlotState::Answered(answer)) {
            SlotState::Waiting(waker) => {
                drop(slots);
                if let Some(waker) = waker {
                    waker.wake();
                }
            }
            SlotState::Abandoned => {
                let unwanted = self.release(&mut slots, ticket);
                drop(slots);
                drop(unwanted);
            }
            SlotState::Free | SlotState::Answered(_) => unreachable!("a request was answered twice"),
        }
    }

    /// Waits for the answer.
    pub(super) fn poll(&self, ticket: Ticket, cx: &mut Context<'_>) -> Poll<Answer> {
        let mut slots = self.slots.borrow_mut();
        let slot = &mut slots[ticket.index as usize];
        debug_assert_eq!(slot.generation, ticket.generation, "an answer was asked for twice");
        match &mut slot.state {
            SlotState::Waiting(waker) => {
                *waker = Some(cx.waker().clone());
                Poll::Pending
            }
            SlotState::Answered(answer) => {
                let answer = answer.take();
                self.release(&mut slots, ticket);
                Poll::Ready(answer)
            }
            SlotState::Free | SlotState::Abandoned => unreachable!("the slot outlives its caller's interest"),
        }
    }

    /// The caller goes. `expected`: an answer will still come.
    pub(super) fn abandon(&self, ticket: Ticket, expected: bool) {
        let mut slots = self.slots.borrow_mut();
        let slot = &mut slots[ticket.index as usize];
        if slot.generation != ticket.generation {
            return;
        }
        let left = if expected && matches!(slot.state, SlotState::Waiting(_)) {
            std::mem::replace(&mut slot.state, SlotState::Abandoned)
        } else {
            self.release(&mut slots, ticket)
        };
        drop(slots);
        // Outside the borrow: dropping a waker or an answer may run code that calls again.
        drop(left);
    }

    fn release(&self, slots: &mut [CallSlot], ticket: Ticket) -> SlotState {
        let slot = &mut slots[ticket.index as usize];
        slot.generation = slot.generation.wrapping_add(1);
        self.free.borrow_mut().push(ticket.index);
        std::mem::replace(&mut slot.state, SlotState::Free)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn poll(calls: &Calls, ticket: Ticket) -> Poll<Option<u32>> {
        calls
            .poll(ticket, &mut Context::from_waker(Waker::noop()))
            .map(|answer| answer.map(|value| *value.downcast::<u32>().unwrap()))
    }

    #[test]
    fn an_answer_reaches_its_caller_and_frees_the_slot() {
        let calls = Calls::default();
        let first = calls.open();
        assert_eq!(poll(&calls, first), Poll::Pending);
        calls.answer(first, Some(Box::new(7u32)));
        assert_eq!(poll(&calls, first), Poll::Ready(Some(7)));
        let second = calls.open();
        assert_eq!(second.index, first.index);
        assert_ne!(second.generation, first.generation);
        calls.answer(second, None);
        assert_eq!(poll(&calls, second), Poll::Ready(None));
    }

    #[test]
    fn an_abandoned_slot_is_reused_only_after_its_answer() {
        let calls = Calls::default();
        let gone = calls.open();
        calls.abandon(gone, true);
        let next = calls.open();
        assert_ne!(next.index, gone.index, "the answer to the first is still on its way");
        calls.answer(gone, Some(Box::new(1u32)));
        assert_eq!(calls.open().index, gone.index);
        calls.abandon(next, false);
        assert_eq!(calls.open().index, next.index);
        calls.abandon(next, false);
    }
}
