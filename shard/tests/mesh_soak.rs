//! The mesh under a long game of catch, and the watchdog under the conditions it exists for.
//!
//! Messages bounce between cores, now and then after a random pause, so that cores fall asleep and are woken in every
//! possible moment. A lost wake-up shows as a game that never ends. `NIGH_SOAK_MESSAGES` sets the number of messages
//! (`NIGH_TEST_LONG=1` means 10^8).

use nigh_shard::cores::Placement;
use nigh_shard::runtime::{Cluster, ClusterOptions, CoreMain, CoreRuntime, Health};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::time::{Duration, Instant};

/// Balls in the air. Few, so that a core often waits for one of them alone.
const BALLS: u64 = 6;
/// No message for this long, with balls in the air whose pauses are below a millisecond, means one was lost.
const PATIENCE: Duration = Duration::from_secs(60);

struct Game {
    throws: u64,
    caught: AtomicU64,
    balls_down: AtomicU64,
}

/// A well mixed number from two.
fn mix(a: u64, b: u64) -> u64 {
    let mut x = a.wrapping_mul(0x9E37_79B9_7F4A_7C15) ^ b.wrapping_add(0x2545_F491_4F6C_DD1D);
    x = (x ^ (x >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    x = (x ^ (x >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    x ^ (x >> 31)
}

/// A ball arrives at this core, having been thrown `throw` times.
fn catch(game: Arc<Game>, ball: u64, throw: u64) {
    let here = CoreRuntime::current().expect("messages run on cores");
    game.caught.fetch_add(1, Relaxed);
    if throw >= game.throws {
        if game.balls_down.fetch_add(1, Relaxed) + 1 == BALLS {
            here.remote().request_stop();
        }
        return;
    }
    let luck = mix(ball, throw);
    let pause_us = (luck >> 8) % 300;
    match luck % 1024 {
        // Long enough, now and then, for both cores to park.
        0 => here.clone().spawn(async move {
            here.sleep_us(10_000 + pause_us).await;
            toss(here, game, ball, throw).await;
        }),
        1..24 => here.clone().spawn(async move {
            here.sleep_us(pause_us).await;
            toss(here, game, ball, throw).await;
        }),
        // Executor timers and slices, so that the executor parks and polls its rings.
        24..32 => here.clone().spawn_background(async move {
            here.breathe().await;
            toss(here, game, ball, throw).await;
        }),
        32..64 => here.clone().spawn(async move {
            here.yield_now().await;
            toss(here, game, ball, throw).await;
        }),
        _ => {
            let to = target(&here);
            assert!(
                here.send(to, Box::new(move || catch(game, ball, throw + 1))),
                "a few balls cannot fill a ring"
            );
        }
    }
}

async fn toss(here: CoreRuntime, game: Arc<Game>, ball: u64, throw: u64) {
    let sent = here.send(target(&here), Box::new(move || catch(game, ball, throw + 1)));
    assert!(sent, "a few balls cannot fill a ring");
}

fn target(here: &CoreRuntime) -> usize {
    (here.index() + 1) % here.cores()
}

/// Plays until `messages` have arrived; the health of the cores at the end.
fn play(messages: u64, options: ClusterOptions) -> Health {
    let game =
        Arc::new(Game { throws: messages / BALLS, caught: AtomicU64::new(0), balls_down: AtomicU64::new(0) });
    let players = game.clone();
    let main: CoreMain = Arc::new(move |here| {
        let game = players.clone();
        Box::pin(async move {
            for ball in (0..BALLS).filter(|ball| *ball as usize % here.cores() == here.index()) {
                toss(here.clone(), game.clone(), ball, 0).await;
            }
            here.stopping().await;
        })
    });
    let cluster = Cluster::start_with(&Placement::unpinned(2), main, options).unwrap();
    let (mut seen, mut since) = (0, Instant::now());
    while game.balls_down.load(Relaxed) < BALLS {
        std::thread::sleep(Duration::from_millis(2));
        let caught = game.caught.load(Relaxed);
        if caught != seen {
            (seen, since) = (caught, Instant::now());
        }
        assert!(since.elapsed() < PATIENCE, "a message was lost after {seen}; {:?}", cluster.health());
    }
    let health = cluster.health();
    cluster.stop().unwrap();
    assert_eq!(game.caught.load(Relaxed), game.throws * BALLS, "every throw is caught once");
    health
}

fn messages(default: u64) -> u64 {
    let set =
        std::env::var("NIGH_SOAK_MESSAGES").ok().map(|text| text.parse().expect("a number of messages"));
    let long = std::env::var("NIGH_TEST_LONG").is_ok_and(|value| value == "1");
    set.unwrap_or(if long { 100_000_000 } else { default })
}

#[test]
fn no_message_is_lost_and_nobody_needs_rescue() {
    let started = Instant::now();
    let messages = messages(200_000);
    let health = play(messages, ClusterOptions::default());
    eprintln!("{messages} messages in {:.1} s: {:?}", started.elapsed().as_secs_f64(), health.total());
    assert_eq!(health.total().rescues, 0, "{health:?}");
}

#[test]
fn the_watchdog_keeps_a_parking_executor_going() {
    let quit = Arc::new(AtomicBool::new(false));
    // One hog more than the two cores have CPUs, so that core threads are often off their CPU when the timer fires.
    let hogs: Vec<_> = (0..3)
        .map(|_| {
            let quit = quit.clone();
            std::thread::spawn(move || {
                while !quit.load(Relaxed) {
                    std::hint::spin_loop();
                }
            })
        })
        .collect();
    let started = Instant::now();
    let messages = messages(100_000).min(10_000_000);
    let options =
        ClusterOptions { preempt_timer: Some(Duration::from_micros(30)), ..ClusterOptions::default() };
    let health = play(messages, options);
    quit.store(true, Relaxed);
    for hog in hogs {
        hog.join().unwrap();
    }
    // How many rescues there are depends on the machine; that the game ended is the point.
    eprintln!("{messages} messages in {:.1} s: {:?}", started.elapsed().as_secs_f64(), health.total());
}
