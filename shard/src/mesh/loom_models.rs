//! Models of ring and bell: loom runs them under every interleaving, and every value the memory model lets a load
//! return, up to a bound on preemptions.
//!
//! `RUSTFLAGS="--cfg loom" cargo test -p nigh-shard --release --lib loom_`
//!
//! The eventfd is played by `loom::sync::Notify`: like an edge-triggered descriptor it remembers one wake-up until a wait
//! takes it, and it may wake for nothing. A lost wake-up is a deadlock, which loom reports. Loom treats SeqCst
//! accesses as AcqRel; that makes the models stricter than the machine, since the protocol rests on its SeqCst fences,
//! which loom has.

use super::bell::SleepFlag;
use super::ring::ring;
use loom::sync::Notify;
use loom::sync::atomic::{AtomicUsize, Ordering};
use loom::thread;
use std::sync::Arc;

fn model(preemptions: usize, body: impl Fn() + Sync + Send + 'static) {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound.get_or_insert(preemptions);
    builder.check(body);
}

#[test]
fn loom_ring_delivers_each_message_once_in_order() {
    model(3, || {
        const MESSAGES: usize = 4;
        let (mut producer, mut consumer) = ring(2);
        let sending = thread::spawn(move || {
            for number in 0..MESSAGES {
                let mut message = Box::new(number);
                while let Err(back) = producer.push(message) {
                    message = back;
                    thread::yield_now();
                }
            }
        });
        for number in 0..MESSAGES {
            let message = loop {
                match consumer.pop() {
                    Some(message) => break message,
                    None => thread::yield_now(),
                }
            };
            assert_eq!(*message, number);
        }
        assert!(consumer.is_empty() && consumer.pop().is_none());
        sending.join().unwrap();
    });
}

#[test]
fn loom_ring_drops_what_is_left() {
    model(3, || {
        let counter = Arc::new(());
        let (mut producer, mut consumer) = ring(2);
        let message = counter.clone();
        let sending = thread::spawn(move || {
            for _ in 0..3 {
                let _ = producer.push(message.clone());
            }
        });
        drop(consumer.pop());
        drop(consumer);
        sending.join().unwrap();
        assert_eq!(Arc::strong_count(&counter), 1);
    });
}

/// A consumer that sleeps whenever it is idle, and `producers` that push a message and ring, `rounds` times each.
fn bell_model(producers: usize, rounds: usize, preemptions: usize) {
    model(preemptions, move || {
        let flag = Arc::new(SleepFlag::new());
        let descriptor = Arc::new(Notify::new());
        let writes = Arc::new(AtomicUsize::new(0));
        let (mut consumers, mut threads) = (Vec::new(), Vec::new());
        for _ in 0..producers {
            let (mut producer, consumer) = ring(rounds.next_power_of_two());
            consumers.push(consumer);
            let (flag, descriptor, writes) = (flag.clone(), descriptor.clone(), writes.clone());
            threads.push(thread::spawn(move || {
                for number in 0..rounds {
                    producer.push(number).expect("there is room for all");
                    if flag.take() {
                        writes.fetch_add(1, Ordering::Relaxed);
                        descriptor.notify();
                    }
                }
            }));
        }
        let (mut received, mut armed) = (0, 0);
        loop {
            for consumer in &mut consumers {
                while consumer.pop().is_some() {
                    received += 1;
                }
            }
            if received == producers * rounds {
                break;
            }
            armed += 1;
            flag.raise();
            if consumers.iter().all(super::Consumer::is_empty) {
                descriptor.wait();
            }
            flag.lower();
        }
        for thread in threads {
            thread.join().unwrap();
        }
        assert!(writes.load(Ordering::Relaxed) <= armed, "at most one write per sleep");
    });
}

#[test]
fn loom_bell_loses_no_wake_up() {
    bell_model(1, 2, 4);
}

#[test]
fn loom_bell_loses_no_wake_up_of_two_producers() {
    bell_model(2, 1, 3);
}
