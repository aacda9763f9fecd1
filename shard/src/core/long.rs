//! Searches that take too long for one piece: they take turns, so that one seat is enough for their pins, and run in slices.

use super::Core;
use super::turns::{LongTurns, Turn, Waiting};
use crate::error::OpError;
use nigh_engine::collection::SearchError;
use nigh_engine::memory::Pin;
use nigh_engine::pace::{Pace, Pieces, TooLong};
use std::rc::Rc;

/// Searches of one core that may wait for their turn.
const WAITING_MAX: usize = 64;
/// Steps between two looks at the clock.
const PIECE_STEPS: usize = 500;
/// Shortest and longest slice. It is a ninth of what others took before it: a tenth of a busy core, as background work gets, so
/// that a search ends and its pin with it.
const SLICE_MIN_NS: u64 = 300_000;
const SLICE_MAX_NS: u64 = 3_000_000;
const OTHERS_SHARE: u64 = 9;
/// Longest search: while its pin lives nothing that is retired is used again.
const SEARCH_MAX_NS: u64 = 30_000_000_000;

impl Core {
    /// Waits for the turn of a long search.
    ///
    /// One at a time: pins that overlapped without end would keep everything that is retired meanwhile.
    ///
    /// # Errors
    /// [`OpError::Busy`] when too many wait, or the node stops.
    pub(super) async fn long_turn(&self) -> Result<Turn, OpError> {
        let LongTurns { lock, waiting, .. } = &self.long;
        if waiting.get() >= WAITING_MAX {
            return Err(OpError::Busy(format!(
                "{WAITING_MAX} long searches wait for their turn; ask again later"
            )));
        }
        if self.is_stopping() {
            return Err(stopping());
        }
        waiting.set(waiting.get() + 1);
        let _waiting = Waiting(waiting);
        let guard = lock.lock().await;
        if self.is_stopping() { Err(stopping()) } else { Ok(Turn(guard)) }
    }

    /// Waits for the long search under way to end, which it does at its next pause; none begins any more.
    pub(crate) async fn end_long_turns(&self) {
        self.long.last.set(Some(self.long.lock.lock().await));
    }

    /// The pin of the search whose turn it is, on a seat of its own. It may live across awaits.
    pub(super) fn long_pin<'a>(&'a self, _turn: &'a Turn) -> Pin<'a> {
        self.long_seat.pin()
    }

    /// The pace of a search on its turn: others run when its slice is used up. It refuses when the search has taken too long
    /// altogether, and when the node stops.
    pub(super) fn pieces(self: &Rc<Self>) -> impl Pace + use<> {
        let core = self.clone();
        let began_ns = core.env().now_ns();
        let mut until_ns = began_ns + SLICE_MIN_NS;
        Pieces::new(PIECE_STEPS, async move || {
            let paused_ns = core.env().now_ns();
            if paused_ns < until_ns {
                return Ok(());
            }
            if core.is_stopping() || paused_ns - began_ns > SEARCH_MAX_NS {
                return Err(TooLong);
            }
            core.env().breathe().await;
            let now_ns = core.env().now_ns();
            until_ns = now_ns + ((now_ns - paused_ns) / OTHERS_SHARE).clamp(SLICE_MIN_NS, SLICE_MAX_NS);
            Ok(())
        })
    }

    /// What a search on its turn is answered: that its pace refused is no error of the client's.
    pub(super) fn long_error(&self, error: OpError) -> OpError {
        match error {
            OpError::Search(SearchError::TooLong(_)) if self.is_stopping() => stopping(),
            OpError::Search(SearchError::TooLong(_)) => OpError::Busy(format!(
                "the search took longer than {} s; narrow its filter or ask for fewer points",
                SEARCH_MAX_NS / 1_000_000_000
            )),
            error => error,
        }
    }
}

fn stopping() -> OpError {
    OpError::Busy("the server is stopping".into())
}
