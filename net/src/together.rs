//! Futures that run at the same time.

use nigh_shard::env::Env;
use std::collections::VecDeque;
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
    poll: impl FnMut(&mut T, &mut Context<'_>) -> Poll<()>,
) -> bool {
    turn(all, next, is_running, poll, |_| false).await
}

/// Does what [`for_a_turn`] does, until `is_enough` as well.
async fn turn<T>(
    all: &mut [T],
    next: &mut usize,
    is_running: impl Fn(&T) -> bool,
    mut poll: impl FnMut(&mut T, &mut Context<'_>) -> Poll<()>,
    is_enough: impl Fn(&[T]) -> bool,
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
        if have_ended || is_enough(all) { Poll::Ready(true) } else { Poll::Pending }
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

/// A future that runs in a [`Window`], and its output once it has ended.
type Running<T> = (Pin<Box<dyn Future<Output = T>>>, Option<T>);

/// Futures that run at the same time and whose outputs are taken in order, each as soon as it is there, so that another one can begin in its
/// place. They make progress only while one of the functions here runs.
pub struct Window<T> {
    all: VecDeque<Running<T>>,
    next: usize,
    /// When other tasks of the core had a turn.
    yielded_ns: u64,
}

impl<T> Window<T> {
    /// None yet.
    pub fn new() -> Self {
        Window { all: VecDeque::new(), next: 0, yielded_ns: 0 }
    }

    /// The number of futures whose outputs have not been taken.
    pub fn len(&self) -> usize {
        self.all.len()
    }

    /// Adds a future behind the others.
    pub fn push(&mut self, one: impl Future<Output = T> + 'static) {
        self.all.push_back((Box::pin(one), None));
    }

    /// Gives up all futures.
    pub fn clear(&mut self) {
        (self.all, self.next) = (VecDeque::new(), 0);
    }

    /// Runs all until the first has ended, and takes its output; `None` if there is none. Other tasks have a turn after 300 µs.
    pub async fn first(&mut self, env: &dyn Env) -> Option<T> {
        if env.now_ns().saturating_sub(self.yielded_ns) > TURN.as_nanos() as u64 {
            env.yield_now().await;
            self.yielded_ns = env.now_ns();
        }
        while let (_, None) = self.all.front()? {
            if !self.turn(|all| all[0].1.is_some()).await {
                env.yield_now().await;
                self.yielded_ns = env.now_ns();
            }
        }
        self.next = self.next.saturating_sub(1);
        self.all.pop_front()?.1
    }

    /// Runs all to their ends; their outputs stay.
    pub async fn settle(&mut self, env: &dyn Env) {
        while !self.turn(|_| false).await {
            env.yield_now().await;
        }
    }

    async fn turn(&mut self, is_enough: impl Fn(&[Running<T>]) -> bool) -> bool {
        let (all, next) = (self.all.make_contiguous(), &mut self.next);
        let poll = |(one, output): &mut Running<T>, cx: &mut Context<'_>| {
            one.as_mut().poll(cx).map(|ended| *output = Some(ended))
        };
        turn(all, next, |(_, output)| output.is_none(), poll, is_enough).await
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::cell::RefCell;
    use std::rc::Rc;
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
    #[test]
    fn a_window_ends_a_turn_with_its_first() {
        let polled = Rc::new(RefCell::new(Vec::new()));
        let mut window = Window::new();
        for (name, left) in [(0, 2), (1, 1), (2, 3)] {
            let (polled, mut left) = (polled.clone(), left);
            window.push(poll_fn(move |cx| {
                polled.borrow_mut().push(name);
                left -= 1;
                cx.waker().wake_by_ref();
                if left == 0 { Poll::Ready(name) } else { Poll::Pending }
            }));
        }
        let cx = &mut Context::from_waker(Waker::noop());
        // A turn may also be over because this thread was interrupted.
        while std::pin::pin!(window.turn(|all| all[0].1.is_some())).poll(cx) != Poll::Ready(true) {}
        // The second has ended before the first, and was not polled again; the third is not waited for.
        let polls = |name| polled.borrow().iter().filter(|polled| **polled == name).count();
        assert!(polls(0) == 2 && polls(1) == 1 && polls(2) < 3, "{:?}", polled.borrow());
        assert_eq!(window.all.pop_front().and_then(|(_, output)| output), Some(0));
        assert_eq!((window.len(), window.all[0].1), (2, Some(1)));
        while std::pin::pin!(window.turn(|_| false)).poll(cx) != Poll::Ready(true) {}
        assert_eq!(window.all[1].1, Some(2));
    }
}
