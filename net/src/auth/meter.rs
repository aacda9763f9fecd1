//! What has been used of the limits of an API key. All cores share it.
//!
//! Rates are measured by the generic cell rate algorithm of ITU-T Recommendation I.371 (annex A), in its form of virtual scheduling: one number is
//! the time at which the next request would come if requests came evenly. Each request moves that time on by the interval between two requests,
//! and a request is refused while the time lies further ahead than a burst allows. A burst is what may come in one second.
//!
//! How many bytes a request takes is known only when it has been answered. They are added to a debt then, and requests are refused while the debt is
//! more than a burst.

use super::key_limits::KeyLimits;
use std::cell::RefCell;
use std::fmt;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

const SECOND_NS: u64 = 1_000_000_000;
const MS_NS: u64 = 1_000_000;
/// A clock that is further behind than this has jumped. Threads that read the clock and are interrupted are behind by less.
const JUMP_NS: u64 = SECOND_NS;
/// The precision of the latest time: it is written no more often than this, as each write takes the cache line from other cores.
const SEEN_STEP_NS: u64 = MS_NS;
/// How long a client with too many connections is told to wait. Nobody knows when one of them closes.
const CONNECTION_WAIT_NS: u64 = SECOND_NS;

/// A limit of an API key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Limit {
    /// Requests per second.
    Requests,
    /// Bytes per second.
    Bytes,
    /// Open connections.
    Connections,
}

impl Limit {
    /// Every limit, in the order of their numbers.
    pub const ALL: [Limit; 3] = [Limit::Requests, Limit::Bytes, Limit::Connections];

    /// The name in metrics.
    pub fn name(self) -> &'static str {
        match self {
            Limit::Requests => "requests",
            Limit::Bytes => "bytes",
            Limit::Connections => "connections",
        }
    }
}

/// A request is refused because its API key has reached a limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Exceeded {
    /// The limit that was reached.
    pub limit: Limit,
    /// What the limit allows.
    pub most: u64,
    /// After how long the limit lets a request in, if nothing else uses the API key.
    pub wait_ns: u64,
}

impl Exceeded {
    /// The wait in milliseconds, rounded up, at least 1.
    pub fn wait_ms(&self) -> u64 {
        self.wait_ns.div_ceil(MS_NS).max(1)
    }
}

impl fmt::Display for Exceeded {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (most, ms) = (self.most, self.wait_ms());
        let many = if most == 1 { "" } else { "s" };
        // By the first two words clients of the binary protocol know that they may try again.
        match self.limit {
            Limit::Requests => {
                write!(
                    f,
                    "rate limited: the API key may send {most} request{many} per second; try again in {ms} ms"
                )
            }
            Limit::Bytes => {
                write!(
                    f,
                    "rate limited: the API key may send and receive {most} byte{many} per second; try again in {ms} ms"
                )
            }
            Limit::Connections => {
                write!(
                    f,
                    "rate limited: the API key may have {most} connection{many}; close one, or try again in {ms} ms"
                )
            }
        }
    }
}

/// What has been used of the limits of one API key. It begins anew when the API key is revoked and added again.
pub struct Meter {
    limits: KeyLimits,
    /// The latest time that was seen, with a precision of [`SEEN_STEP_NS`].
    seen_ns: AtomicU64,
    /// When the next request would come if requests came evenly.
    next_request_ns: AtomicU64,
    /// When the debt of bytes is paid.
    paid_ns: AtomicU64,
    connections: AtomicU64,
}

/// Two meters are the same if they are one.
impl PartialEq for Meter {
    fn eq(&self, other: &Meter) -> bool {
        std::ptr::eq(self, other)
    }
}

impl Eq for Meter {}

impl fmt::Debug for Meter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Meter").field(&self.limits).finish()
    }
}

impl Meter {
    /// A meter of which nothing has been used; `None` where there is nothing to measure.
    pub fn new(limits: KeyLimits) -> Option<Arc<Meter>> {
        (!limits.is_unlimited()).then(|| {
            Arc::new(Meter {
                limits,
                seen_ns: AtomicU64::new(0),
                next_request_ns: AtomicU64::new(0),
                paid_ns: AtomicU64::new(0),
                connections: AtomicU64::new(0),
            })
        })
    }

    /// Charges a request of a connection to the limits, at a time of the monotonic clock. From then on the connection counts for this API key alone.
    ///
    /// # Errors
    /// A limit is reached. Then nothing is taken from the limits on requests and bytes.
    pub fn charge(self: &Arc<Self>, presence: &Presence, now_ns: u64) -> Result<(), Exceeded> {
        self.enter(presence)?;
        self.notice(now_ns);
        self.check_debt(now_ns)?;
        self.take_request(now_ns)
    }

    /// Checks whether a request would be let in at a time of the monotonic clock, and takes nothing. Connections are not looked at.
    ///
    /// # Errors
    /// A limit is reached.
    pub fn check(&self, now_ns: u64) -> Result<(), Exceeded> {
        self.notice(now_ns);
        self.check_debt(now_ns)?;
        let most = self.limits.requests_per_second;
        let latest_ns = latest_ns(most, now_ns);
        match self.next_request_ns.load(Ordering::Relaxed).checked_sub(latest_ns) {
            Some(wait_ns @ 1..) if most > 0 => Err(Exceeded { limit: Limit::Requests, most, wait_ns }),
            _ => Ok(()),
        }
    }

    /// Counts a connection, unless it is counted already.
    fn enter(self: &Arc<Self>, presence: &Presence) -> Result<(), Exceeded> {
        let most = self.limits.connections;
        let mut counted = presence.0.borrow_mut();
        if counted.as_ref().is_some_and(|counted| Arc::ptr_eq(&counted.0, self)) {
            return Ok(());
        }
        // The connection uses this API key now, and no longer the one before.
        *counted = None;
        if most == 0 {
            return Ok(());
        }
        let more = |open| (open < most).then_some(open + 1);
        match self.connections.fetch_update(Ordering::Relaxed, Ordering::Relaxed, more) {
            Ok(_) => {
                *counted = Some(Counted(self.clone()));
                Ok(())
            }
            Err(_) => Err(Exceeded { limit: Limit::Connections, most, wait_ns: CONNECTION_WAIT_NS }),
        }
    }

    /// Notices a clock that has jumped back. The times that were measured by it are moved back as far, so that waits stay what they were: otherwise
    /// the API key would be refused until the clock is where it was.
    fn notice(&self, now_ns: u64) {
        let seen_ns = self.seen_ns.load(Ordering::Relaxed);
        let is_later = now_ns >= seen_ns.saturating_add(SEEN_STEP_NS);
        let has_jumped = now_ns.saturating_add(JUMP_NS) < seen_ns;
        if !is_later && !has_jumped {
            return;
        }
        let written =
            self.seen_ns.compare_exchange(seen_ns, now_ns, Ordering::Relaxed, Ordering::Relaxed).is_ok();
        // One of the cores that notice it moves the times.
        if has_jumped && written {
            let back_ns = seen_ns - now_ns;
            for time_ns in [&self.next_request_ns, &self.paid_ns] {
                update(time_ns, |time_ns| time_ns.saturating_sub(back_ns));
            }
        }
    }

    fn check_debt(&self, now_ns: u64) -> Result<(), Exceeded> {
        let most = self.limits.bytes_per_second;
        if most == 0 {
            return Ok(());
        }
        let burst_ends_ns = now_ns.saturating_add(SECOND_NS);
        match self.paid_ns.load(Ordering::Relaxed).saturating_sub(burst_ends_ns) {
            0 => Ok(()),
            wait_ns => Err(Exceeded { limit: Limit::Bytes, most, wait_ns }),
        }
    }

    fn take_request(&self, now_ns: u64) -> Result<(), Exceeded> {
        let most = self.limits.requests_per_second;
        if most == 0 {
            return Ok(());
        }
        let (interval_ns, latest_ns) = (SECOND_NS.div_ceil(most), latest_ns(most, now_ns));
        let next =
            |next_ns: u64| (next_ns <= latest_ns).then(|| next_ns.max(now_ns).saturating_add(interval_ns));
        match self.next_request_ns.fetch_update(Ordering::Relaxed, Ordering::Relaxed, next) {
            Ok(_) => Ok(()),
            Err(next_ns) => Err(Exceeded { limit: Limit::Requests, most, wait_ns: next_ns - latest_ns }),
        }
    }

    /// Adds bytes of a request that was let in, or of its answer, to the debt.
    fn debit(&self, bytes: usize, now_ns: u64) {
        let rate = self.limits.bytes_per_second;
        if rate == 0 {
            return;
        }
        let cost_ns = (bytes as u128 * u128::from(SECOND_NS)).div_ceil(rate.into());
        let cost_ns = u64::try_from(cost_ns).unwrap_or(u64::MAX);
        update(&self.paid_ns, |paid_ns| paid_ns.max(now_ns).saturating_add(cost_ns));
    }
}

/// How far ahead the time of the next request may lie at most for it to be let in. The last request of a burst is let in, and the one behind it is not.
fn latest_ns(requests_per_second: u64, now_ns: u64) -> u64 {
    let interval_ns = SECOND_NS.div_ceil(requests_per_second.max(1));
    now_ns.saturating_add(requests_per_second.saturating_sub(1).saturating_mul(interval_ns))
}

fn update(time_ns: &AtomicU64, changed: impl Fn(u64) -> u64) {
    // The closure always has a value.
    let _updated =
        time_ns.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |time_ns| Some(changed(time_ns)));
}

/// Which API key a connection counts for. Each connection has one of these.
#[derive(Default)]
pub struct Presence(RefCell<Option<Counted>>);

/// A connection that counts for an API key, until this is dropped.
struct Counted(Arc<Meter>);

impl Drop for Counted {
    fn drop(&mut self) {
        self.0.connections.fetch_sub(1, Ordering::Relaxed);
    }
}

impl Presence {
    /// Notes that the connection counts for no API key any more: it has used one that has no limits.
    pub fn leave(&self) {
        drop(self.0.take());
    }
}

/// What charges bytes of a request, or of its answer, to the API key of the request. One word, because each request of a pipeline holds one or none,
/// and is copied several times before it is carried out.
#[derive(Clone)]
pub struct Bill(Rc<Payer>);

struct Payer {
    meter: Arc<Meter>,
    now_ns: Rc<dyn Fn() -> u64>,
}

/// Two bills are the same if they go to the same API key.
impl PartialEq for Bill {
    fn eq(&self, other: &Bill) -> bool {
        self.0.meter == other.0.meter
    }
}

impl Eq for Bill {}

impl fmt::Debug for Bill {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Bill").field(&self.0.meter).finish()
    }
}

impl Bill {
    /// A bill to the API key of `meter`, by a monotonic clock.
    pub fn new(meter: Arc<Meter>, now_ns: Rc<dyn Fn() -> u64>) -> Bill {
        Bill(Rc::new(Payer { meter, now_ns }))
    }

    /// How much has been used of the limits of the API key.
    pub fn meter(&self) -> &Arc<Meter> {
        &self.0.meter
    }

    /// Checks whether the API key owes more bytes than a burst.
    ///
    /// # Errors
    /// It owes more.
    pub fn check_debt(&self) -> Result<(), Exceeded> {
        self.0.meter.check_debt((self.0.now_ns)())
    }

    /// Charges `bytes` bytes.
    pub fn add(&self, bytes: usize) {
        self.0.meter.debit(bytes, (self.0.now_ns)());
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::thread;

    fn meter(requests_per_second: u64, bytes_per_second: u64, connections: u64) -> Arc<Meter> {
        Meter::new(KeyLimits { requests_per_second, bytes_per_second, connections }).unwrap()
    }

    /// The continuous-state leaky bucket, the other form of the algorithm in the recommendation: what is in the bucket leaks out as time passes.
    struct Bucket {
        level_ns: u128,
        at_ns: u64,
    }

    impl Bucket {
        fn leak(&mut self, now_ns: u64) {
            self.level_ns = self.level_ns.saturating_sub((now_ns - self.at_ns).into());
            self.at_ns = now_ns;
        }

        /// Puts a request into a bucket of so many a second, or says how long it takes until there is room.
        fn put(&mut self, rate: u64, now_ns: u64) -> Result<(), u64> {
            self.leak(now_ns);
            let interval = u128::from(SECOND_NS).div_ceil(rate.into());
            let most = interval * u128::from(rate - 1);
            if self.level_ns > most {
                return Err((self.level_ns - most) as u64);
            }
            self.level_ns += interval;
            Ok(())
        }
    }

    fn steps() -> impl Strategy<Value = Vec<u64>> {
        // Frozen clocks, steps around the interval of the rate, and pauses.
        let step = prop_oneof![3 => Just(0), 4 => 0..5_000_000_u64, 2 => 0..700_000_000_u64, 1 => 0..5_000_000_000_u64];
        prop::collection::vec(step, 1..400)
    }

    proptest! {
        #[test]
        fn requests_are_let_in_as_by_a_leaky_bucket(rate in 1..2_000_u64, begin in 0..3 * SECOND_NS, steps in steps()) {
            let (meter, presence) = (meter(rate, 0, 0), Presence::default());
            let (mut bucket, mut now) = (Bucket { level_ns: 0, at_ns: begin }, begin);
            for step in steps {
                now += step;
                let found = meter.charge(&presence, now).map_err(|exceeded| exceeded.wait_ns);
                prop_assert_eq!(found, bucket.put(rate, now));
            }
        }

        #[test]
        fn bytes_are_let_in_while_the_debt_is_a_burst(
            rate in 1..100_000_u64,
            work in prop::collection::vec((0..2 * SECOND_NS, 0..50_000_usize), 1..200),
        ) {
            let (meter, presence) = (meter(0, rate, 0), Presence::default());
            let (mut debt, mut now) = (Bucket { level_ns: 0, at_ns: 7 }, 7);
            for (step, bytes) in work {
                now += step;
                debt.leak(now);
                let wait = debt.level_ns.saturating_sub(SECOND_NS.into()) as u64;
                let expected = if wait == 0 { Ok(()) } else { Err(wait) };
                let found = meter.charge(&presence, now);
                prop_assert_eq!(found.map_err(|exceeded| exceeded.wait_ns), expected);
                if found.is_ok() {
                    meter.debit(bytes, now);
                    debt.level_ns += (bytes as u128 * u128::from(SECOND_NS)).div_ceil(rate.into());
                }
            }
        }

        /// A clock that jumps. No wait is longer than a burst and what a clock may be behind without having jumped, each wait is enough, and what
        /// is let in is a burst and what comes in the time that has passed.
        #[test]
        fn a_jumping_clock_neither_locks_out_nor_lets_all_in(
            rate in 1..500_u64,
            moves in prop::collection::vec((-20_000_000_000_i64..3_000_000_000, 1..40_usize), 1..60),
        ) {
            let (meter, presence) = (meter(rate, 0, 0), Presence::default());
            let (mut now, mut passed_ns, mut admitted, mut jumps) = (100 * SECOND_NS, 0_u64, 0_u64, 0_u64);
            for (step, tries) in moves {
                now = now.checked_add_signed(step).unwrap_or(0);
                passed_ns += u64::try_from(step).unwrap_or(0);
                jumps += 1;
                for _ in 0..tries {
                    match meter.charge(&presence, now) {
                        Ok(()) => admitted += 1,
                        Err(exceeded) => {
                            prop_assert!(exceeded.wait_ns <= SECOND_NS + JUMP_NS + SEEN_STEP_NS, "{}", exceeded);
                            now += exceeded.wait_ns;
                            passed_ns += exceeded.wait_ns;
                            prop_assert!(meter.charge(&presence, now).is_ok());
                            admitted += 1;
                        }
                    }
                }
            }
            let allowed = u128::from(rate) + u128::from(passed_ns) * u128::from(rate) / u128::from(SECOND_NS) + u128::from(jumps);
            prop_assert!(u128::from(admitted) <= allowed, "{} of {}", admitted, allowed);
        }
    }

    #[test]
    fn a_debt_is_what_it_was_when_the_clock_jumps_back() {
        let (meter, presence) = (meter(0, 1000, 0), Presence::default());
        let now = 1_000_000 * SECOND_NS;
        assert_eq!(meter.charge(&presence, now), Ok(()));
        meter.debit(31_000, now);
        let wait_s = |now| meter.charge(&presence, now).unwrap_err().wait_ns / SECOND_NS;
        assert_eq!(wait_s(now), 30);
        assert_eq!(wait_s(now - 500_000 * SECOND_NS), 30);
        assert_eq!(wait_s(3 * SECOND_NS), 30);
        assert_eq!(wait_s(13 * SECOND_NS), 20);
        assert_eq!(meter.charge(&presence, 33 * SECOND_NS), Ok(()));
    }

    #[test]
    fn threads_get_together_what_one_would_get() {
        const THREADS: u64 = 8;
        let meter = meter(1000, 0, 3);
        // The clock stands still, then moves on by half a second.
        for (now_ns, expected) in [(5 * SECOND_NS, 1000), (5 * SECOND_NS + SECOND_NS / 2, 500)] {
            let admitted: usize = thread::scope(|scope| {
                let run = || {
                    let presence = Presence::default();
                    let let_in = |_: &u64| loop {
                        match meter.charge(&presence, now_ns) {
                            // Another thread has the connections: it goes on when that one has ended.
                            Err(Exceeded { limit: Limit::Connections, .. }) => thread::yield_now(),
                            other => break other.is_ok(),
                        }
                    };
                    (0..500_u64).filter(let_in).count()
                };
                let threads: Vec<_> = (0..THREADS).map(|_| scope.spawn(run)).collect();
                threads.into_iter().map(|thread| thread.join().unwrap()).sum()
            });
            assert_eq!(admitted, expected);
            assert_eq!(meter.connections.load(Ordering::Relaxed), 0);
        }
    }

    #[test]
    fn connections_count_until_they_close_or_show_another_api_key() {
        let (first, second, free) = (meter(0, 0, 2), meter(0, 0, 2), meter(0, 1000, 0));
        let open = |meter: &Meter| meter.connections.load(Ordering::Relaxed);
        let mut connections: Vec<Presence> = (0..3).map(|_| Presence::default()).collect();
        let limits = |meter: &Arc<Meter>, place: &Presence| meter.charge(place, 0).map_err(|e| e.limit);
        for _ in 0..3 {
            assert_eq!(limits(&first, &connections[0]), Ok(()));
            assert_eq!(limits(&first, &connections[1]), Ok(()));
            assert_eq!(limits(&first, &connections[2]), Err(Limit::Connections));
        }
        assert_eq!(limits(&second, &connections[0]), Ok(()));
        assert_eq!((open(&first), open(&second)), (1, 1));
        assert_eq!(limits(&first, &connections[2]), Ok(()));
        assert_eq!(limits(&first, &connections[0]), Err(Limit::Connections));
        assert_eq!((open(&first), open(&second)), (2, 0), "it no longer shows the second one");
        connections.pop();
        assert_eq!(limits(&free, &connections[1]), Ok(()), "without a limit on connections");
        assert_eq!(open(&first), 0);
        assert_eq!(limits(&second, &connections[1]), Ok(()));
        connections[1].leave();
        assert_eq!((open(&first), open(&second)), (0, 0));
    }

    #[test]
    fn refusals_take_nothing_and_say_what_to_do() {
        let (meter, presence) = (meter(100, 1000, 1), Presence::default());
        let told = |now_ns| meter.charge(&presence, now_ns).unwrap_err().to_string();
        for _ in 0..100 {
            assert_eq!(meter.charge(&presence, 0), Ok(()));
        }
        for _ in 0..10 {
            assert_eq!(
                told(0),
                "rate limited: the API key may send 100 requests per second; try again in 10 ms"
            );
        }
        assert_eq!(meter.charge(&presence, 10 * MS_NS), Ok(()));
        meter.debit(1500, SECOND_NS);
        let before = meter.next_request_ns.load(Ordering::Relaxed);
        let text =
            "rate limited: the API key may send and receive 1000 bytes per second; try again in 500 ms";
        assert_eq!(told(SECOND_NS), text);
        let other = meter.charge(&Presence::default(), SECOND_NS).unwrap_err();
        let text = "rate limited: the API key may have 1 connection; close one, or try again in 1000 ms";
        assert_eq!(other.to_string(), text);
        assert_eq!(meter.next_request_ns.load(Ordering::Relaxed), before);
        assert_eq!(Exceeded { limit: Limit::Requests, most: 1, wait_ns: 1 }.wait_ms(), 1);
    }

    #[test]
    fn extremes_do_not_overflow() {
        use super::super::key_limits::{BYTES_PER_SECOND_MAX, CONNECTIONS_MAX, REQUESTS_PER_SECOND_MAX};
        for meter in [meter(1, 1, 1), meter(REQUESTS_PER_SECOND_MAX, BYTES_PER_SECOND_MAX, CONNECTIONS_MAX)] {
            let presence = Presence::default();
            for now_ns in [0, u64::MAX - 2 * SECOND_NS, 1, u64::MAX / 2] {
                let _any = meter.charge(&presence, now_ns);
                meter.debit(usize::MAX, now_ns);
                let _any = meter.charge(&presence, now_ns);
            }
        }
    }
}
