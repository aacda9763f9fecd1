//! How a long search gives way to others.
//!
//! A search runs in one piece as long as it is short. Work whose length nobody knows beforehand (a scan, a walk that refuses most of
//! what it meets, a list of a million values) counts its steps against a [`Pace`], which lets it go on, makes it wait a
//! moment, or refuses: then the caller asks again at a pace that waits. The engine has no runtime; what waiting means is the
//! caller's.

use std::task::{Context, Poll, Waker};

/// The search takes longer than its pace allows. Ask again at one that waits.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the search takes too long for one piece")]
pub struct TooLong;

/// Asked during a search. A step is about 100 ns of work: a distance, a row asked.
pub trait Pace {
    /// So many more steps have been made, and more are to come.
    ///
    /// # Errors
    /// [`TooLong`].
    fn step(&mut self, steps: usize) -> impl Future<Output = Result<(), TooLong>>;

    /// So many steps are to come: refused before they are made in vain.
    ///
    /// # Errors
    /// [`TooLong`].
    fn foresee(&self, steps: usize) -> Result<(), TooLong>;
}

/// In one piece of at most so many steps.
#[derive(Clone, Copy, Debug)]
pub struct Whole {
    left: usize,
}

impl Whole {
    /// At most so many.
    pub const fn of(steps: usize) -> Whole {
        Whole { left: steps }
    }

    /// Whatever it takes.
    pub const fn unbounded() -> Whole {
        Whole::of(usize::MAX)
    }
}

impl Pace for Whole {
    async fn step(&mut self, steps: usize) -> Result<(), TooLong> {
        self.foresee(steps)?;
        if self.left != usize::MAX {
            self.left -= steps;
        }
        Ok(())
    }

    fn foresee(&self, steps: usize) -> Result<(), TooLong> {
        if steps > self.left { Err(TooLong) } else { Ok(()) }
    }
}

/// In pieces, with a pause after each; the pause may end the search.
pub struct Pieces<F> {
    /// Steps of a piece.
    piece: usize,
    made: usize,
    pause: F,
}

impl<F: AsyncFnMut() -> Result<(), TooLong>> Pieces<F> {
    /// Pauses after about `piece` steps each.
    pub fn new(piece: usize, pause: F) -> Pieces<F> {
        Pieces { piece, made: 0, pause }
    }
}

impl<F: AsyncFnMut() -> Result<(), TooLong>> Pace for Pieces<F> {
    async fn step(&mut self, steps: usize) -> Result<(), TooLong> {
        self.made = self.made.saturating_add(steps);
        if self.made >= self.piece {
            self.made = 0;
            return (self.pause)().await;
        }
        Ok(())
    }

    fn foresee(&self, _steps: usize) -> Result<(), TooLong> {
        Ok(())
    }
}

/// The value of a future that never waits, as of a search at the pace [`Whole`].
///
/// # Panics
/// When it waits.
pub fn at_once<T>(future: impl Future<Output = T>) -> T {
    let future = std::pin::pin!(future);
    match future.poll(&mut Context::from_waker(Waker::noop())) {
        Poll::Ready(value) => value,
        Poll::Pending => panic!("a search in one piece waited"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::cell::Cell;

    #[test]
    fn whole_counts_down() {
        let mut pace = Whole::of(10);
        assert_eq!(at_once(pace.step(7)), Ok(()));
        assert_eq!((pace.foresee(3), pace.foresee(4)), (Ok(()), Err(TooLong)));
        assert_eq!(at_once(pace.step(4)), Err(TooLong));
        assert_eq!(at_once(pace.step(3)), Ok(()));
        let mut unbounded = Whole::unbounded();
        assert_eq!(at_once(unbounded.step(usize::MAX)), Ok(()));
        assert_eq!(at_once(unbounded.step(usize::MAX)), Ok(()));
    }

    #[test]
    fn pieces_pause() {
        let pauses = Cell::new(0);
        let mut pace = Pieces::new(10, async || {
            pauses.set(pauses.get() + 1);
            if pauses.get() < 4 { Ok(()) } else { Err(TooLong) }
        });
        for (steps, paused) in [(4, 0), (5, 0), (1, 1), (9, 1), (100, 2), (10, 3)] {
            assert_eq!(at_once(pace.step(steps)), Ok(()));
            assert_eq!(pauses.get(), paused, "after {steps}");
        }
        assert_eq!((pace.foresee(usize::MAX), at_once(pace.step(10))), (Ok(()), Err(TooLong)));
    }
}
