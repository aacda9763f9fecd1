//! Futures that run at the same time.

use nigh_shard::env::Env;
use std::future::poll_fn;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

/// How long a core works on futures that run at the same time before its other tasks have a turn.
const TURN: Duration = Duration::from_micros(300);

/// Polls each of `all` that is running, until all have ended or this core has worked on them for [`TURN`]; returns whether all have ended. A turn
/// begins with the place `next`, where the one before was interrupted.
///
/// A future may take a whole time slice in one poll, whether or not it ends. Without the bound the other tasks of the core would wait for the slices of
/// all of them. If each turn began with the first, one that takes a slice in every poll would keep those behind it from being polled.
pub async fn for_a_turn<T>(
    all: &mut [T],
    next: &mut usize,
    is_running: impl Fn(&T) -> bool,
    mut poll: impl FnMut(&mut T, &mut Context<'_>) -> Poll<()>,
) -> bool {
    poll_fn(|cx| {
        let began = Instant::now();
        let mut have_ended = true;
        let count = all.len();
        for place in (*next..count).chain(0..*next) {
            let one = &mut all[place];
            if !is_running(one) {
                continue;
            }
            if began.elapsed() > TURN {
                *next = place;
                return Poll::Ready(false);
            }
            have_ended &= poll(one, cx).is_ready();
        }
        if have_ended { Poll::Ready(true) } else { Poll::Pending }
    })
    .await
}

/// A future and what it came to.
type Polled<F> = (Pin<Box<F>>, Option<<F as Future>::Output>);

/// Runs the futures concurrently and returns their outputs in order. Other tasks have a turn after 300 µs of work, or after the poll during which
/// these have passed. Every wake-up polls each future that has not ended, so keep their number small.
pub async fn together<F: Future>(env: &dyn Env, all: impl Iterator<Item = F>) -> Vec<F::Output> {
    let mut all: Vec<Polled<F>> = all.map(|one| (Box::pin(one), None)).collect();
    let mut next = 0;
    let is_running = |(_, output): &Polled<F>| output.is_none();
    while !for_a_turn(&mut all, &mut next, is_running, |(one, output), cx| {
        one.as_mut().poll(cx).map(|ended| *output = Some(ended))
    })
    .await
    {
        env.yield_now().await;
    }
    all.into_iter().filter_map(|(_, output)| output).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::cell::RefCell;
    use std::task::Waker;

    /// A future that takes a slice of time in each poll, until it has been polled so often.
    struct Slices<'a> {
        name: usize,
        left: usize,
        polled: &'a RefCell<Vec<usize>>,
    }

    impl Slices<'_> {
        fn poll(&mut self, cx: &mut Context<'_>) -> Poll<()> {
            let began = Instant::now();
            while began.elapsed() <= TURN {}
            self.polled.borrow_mut().push(self.name);
            self.left -= 1;
            cx.waker().wake_by_ref();
            if self.left == 0 { Poll::Ready(()) } else { Poll::Pending }
        }
    }

    #[test]
    fn a_turn_ends_after_a_long_poll_and_the_next_goes_on_behind_it() {
        let polled = RefCell::new(Vec::new());
        let mut all: Vec<Slices<'_>> = [3, 1, 2]
            .iter()
            .enumerate()
            .map(|(name, &left)| Slices { name, left, polled: &polled })
            .collect();
        let (mut next, mut turns) = (0, 0);
        let cx = &mut Context::from_waker(Waker::noop());
        loop {
            let mut turn =
                std::pin::pin!(for_a_turn(&mut all, &mut next, |one| one.left > 0, |one, cx| one.poll(cx)));
            turns += 1;
            match turn.as_mut().poll(cx) {
                Poll::Ready(true) => break,
                Poll::Ready(false) => {}
                // The last one that runs waits for its own wake-up.
                Poll::Pending => assert!(polled.borrow().len() >= 5, "{:?}", polled.borrow()),
            }
            assert!(polled.borrow().len() <= turns, "one long poll a turn");
        }
        assert_eq!(*polled.borrow(), [0, 1, 2, 0, 2, 0]);
    }
}
