use super::*;
use proptest::prelude::*;
use std::collections::VecDeque;
use std::os::fd::{AsFd, AsRawFd, FromRawFd, OwnedFd};
use std::sync::Arc;

/// Messages of the threaded tests.
fn messages(short: u64, long: u64) -> u64 {
    if std::env::var_os("NIGH_TEST_LONG").is_some() { long } else { short }
}

#[test]
#[should_panic(expected = "a ring of 12 messages: the capacity must be a power of two")]
fn the_capacity_is_a_power_of_two() {
    ring::<u8>(12);
}

#[test]
fn a_full_ring_gives_the_message_back() {
    let (mut producer, mut consumer) = ring(2);
    assert_eq!(producer.capacity(), 2);
    assert!(consumer.is_empty());
    assert_eq!((producer.push("a"), producer.push("b"), producer.push("c")), (Ok(()), Ok(()), Err("c")));
    assert_eq!(consumer.pop(), Some("a"));
    assert_eq!((producer.push("c"), producer.push("d")), (Ok(()), Err("d")));
    assert_eq!((consumer.pop(), consumer.pop(), consumer.pop()), (Some("b"), Some("c"), None));
}

#[test]
fn messages_left_behind_are_dropped_once() {
    struct Counted(Arc<()>);
    let counter = Arc::new(());
    let (mut producer, mut consumer) = ring(4);
    for _ in 0..4 {
        assert!(producer.push(Counted(counter.clone())).is_ok());
    }
    assert_eq!(Arc::strong_count(&consumer.pop().unwrap().0), 5);
    assert_eq!(Arc::strong_count(&counter), 4);
    drop(producer);
    assert_eq!(Arc::strong_count(&counter), 4, "the consumer may still take them");
    drop(consumer);
    assert_eq!(Arc::strong_count(&counter), 1);
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn behaves_like_a_bounded_queue(capacity in 0..5u32, pushes in proptest::collection::vec(any::<bool>(), 0..300)) {
        let capacity = 1 << capacity;
        let (mut producer, mut consumer) = ring(capacity);
        let mut twin = VecDeque::new();
        for (number, push) in pushes.into_iter().enumerate() {
            if push {
                let fits = twin.len() < capacity;
                prop_assert_eq!(producer.push(number), if fits { Ok(()) } else { Err(number) });
                if fits {
                    twin.push_back(number);
                }
            } else {
                prop_assert_eq!(consumer.pop(), twin.pop_front());
            }
            prop_assert_eq!(consumer.is_empty(), twin.is_empty());
        }
    }
}

#[test]
fn millions_cross_threads_in_order() {
    let count = messages(3_000_000, 100_000_000);
    let (mut producer, mut consumer) = ring(256);
    std::thread::scope(|scope| {
        scope.spawn(move || {
            for number in 0..count {
                let mut message = [number, !number, number ^ 0x55];
                while let Err(back) = producer.push(message) {
                    message = back;
                    std::thread::yield_now();
                }
            }
        });
        for number in 0..count {
            let message = loop {
                match consumer.pop() {
                    Some(message) => break message,
                    None => std::thread::yield_now(),
                }
            };
            assert_eq!(message, [number, !number, number ^ 0x55]);
        }
        assert!(consumer.is_empty());
    });
}

/// The consuming core's epoll, with the bell registered as the real loop does: edge-triggered, never read.
struct Sleeper(OwnedFd);

impl Sleeper {
    fn new(bell: &Bell) -> Sleeper {
        // SAFETY: no pointers; the result is checked.
        let fd = unsafe { libc::epoll_create1(libc::EPOLL_CLOEXEC) };
        assert!(fd >= 0);
        // SAFETY: a fresh descriptor.
        let epoll = unsafe { OwnedFd::from_raw_fd(fd) };
        let mut event = libc::epoll_event { events: (libc::EPOLLIN | libc::EPOLLET) as u32, u64: 0 };
        // SAFETY: both descriptors are open and the event outlives the call.
        let done = unsafe { libc::epoll_ctl(fd, libc::EPOLL_CTL_ADD, bell.as_fd().as_raw_fd(), &mut event) };
        assert_eq!(done, 0);
        Sleeper(epoll)
    }

    /// Whether the bell fired within `timeout_ms` (-1: for ever).
    fn sleep(&self, timeout_ms: i32) -> bool {
        let mut event = libc::epoll_event { events: 0, u64: 0 };
        loop {
            // SAFETY: room for the one event asked for.
            let events = unsafe { libc::epoll_wait(self.0.as_raw_fd(), &mut event, 1, timeout_ms) };
            match events {
                0 => return false,
                1 => return true,
                _ => assert_eq!(std::io::Error::last_os_error().kind(), std::io::ErrorKind::Interrupted),
            }
        }
    }
}

#[test]
fn one_write_per_sleep_and_each_is_an_edge() {
    let bell = Bell::new().unwrap();
    let sleeper = Sleeper::new(&bell);
    bell.ring();
    assert!(!sleeper.sleep(0), "an awake consumer is not rung for");
    for _ in 0..3 {
        bell.arm();
        assert!(bell.is_armed());
        bell.ring();
        assert!(!bell.is_armed(), "the first producer takes the flag");
        bell.ring();
        assert!(sleeper.sleep(0));
        assert!(!sleeper.sleep(0), "edge-triggered");
        bell.disarm();
    }
    bell.arm();
    bell.disarm();
    bell.ring();
    assert!(!sleeper.sleep(0));
    bell.ring_always();
    assert!(sleeper.sleep(0));
}

/// Three producers with idle gaps, one consumer that sleeps whenever its rings are empty. A lost wake-up would leave it
/// asleep with messages waiting: the sleep has a (very long) limit only to say so.
#[test]
fn no_wake_up_is_lost() {
    const PRODUCERS: usize = 3;
    let count = messages(150_000, 35_000_000);
    let bell = Arc::new(Bell::new().unwrap());
    let sleeper = Sleeper::new(&bell);
    let mut consumers = Vec::new();
    std::thread::scope(|scope| {
        for number in 0..PRODUCERS as u64 {
            let (mut producer, consumer) = ring(64);
            consumers.push(consumer);
            let bell = bell.clone();
            scope.spawn(move || {
                let mut state = number;
                for message in 0..count {
                    while producer.push(message).is_err() {
                        // Never wait for room without having rung for what was pushed.
                        bell.ring();
                        std::thread::yield_now();
                    }
                    state = state.wrapping_mul(0x5851_F42D_4C95_7F2D).wrapping_add(number | 1);
                    // Batches of about four, then a gap between none and a few microseconds.
                    if state >> 62 == 0 {
                        bell.ring();
                        for _ in 0..(state >> 52) & 1023 {
                            std::hint::spin_loop();
                        }
                    }
                }
                bell.ring();
            });
        }
        let mut next = [0u64; PRODUCERS];
        let mut sleeps = 0u64;
        while next.iter().any(|&next| next < count) {
            let mut worked = false;
            for (consumer, next) in consumers.iter_mut().zip(&mut next) {
                while let Some(message) = consumer.pop() {
                    assert_eq!(message, *next);
                    *next += 1;
                    worked = true;
                }
            }
            if worked {
                continue;
            }
            bell.arm();
            if consumers.iter().all(Consumer::is_empty) {
                sleeps += 1;
                assert!(sleeper.sleep(60_000), "asleep for a minute with {next:?} of {count} received");
            }
            bell.disarm();
        }
        assert!(sleeps > 0, "the test must reach the sleep");
    });
}

#[test]
fn halves_may_move_between_threads() {
    fn is_send<T: Send>() {}
    is_send::<Producer<Box<u8>>>();
    is_send::<Consumer<Box<u8>>>();
    is_send::<Bell>();
}
