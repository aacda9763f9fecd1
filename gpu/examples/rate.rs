//! How fast the first device searches, and what part of its memory's bandwidth that is:
//! `cargo run --release -p nigh-gpu --features cuda --example rate -- [ROWS] [DIM]`. Ends with 2 where there is no device.
use nigh_engine::distance::Metric;
use nigh_gpu::open;
use std::time::{Duration, Instant};

const MEASURED: Duration = Duration::from_secs(2);
const K: usize = 10;

fn main() {
    let mut numbers = std::env::args().skip(1).map(|text| text.parse().expect("a number"));
    let rows: usize = numbers.next().unwrap_or(1_000_000);
    let dim: usize = numbers.next().unwrap_or(768);
    let mut device = open(dim, Metric::Cosine).unwrap_or_else(|error| {
        eprintln!("{error}");
        std::process::exit(2);
    });
    println!("{}: {rows} rows of {dim}, k = {K}", device.name());

    let mut state = 1u64;
    let mut value = || {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 40) as f32 / (1u64 << 24) as f32 - 0.5
    };
    let began = Instant::now();
    let mut sending = Duration::ZERO;
    for first in (0..rows).step_by(65_536) {
        let numbers: Vec<u32> = (first as u32..rows.min(first + 65_536) as u32).collect();
        let values: Vec<f32> = (0..numbers.len() * dim).map(|_| value()).collect();
        let began = Instant::now();
        device.write(&numbers, &values).expect("rows fit");
        sending += began.elapsed();
    }
    let bytes = (rows * dim * size_of::<f32>()) as f64;
    println!(
        "sent in {:.2?} ({:.1} GB/s), with making them {:.2?}",
        sending,
        bytes / sending.as_secs_f64() / 1e9,
        began.elapsed()
    );

    let live = vec![u64::MAX; rows.div_ceil(64)];
    for batch in [1, 8, 64] {
        let queries: Vec<f32> = (0..batch * dim).map(|_| value()).collect();
        device.search(&queries, K, &live).expect("a search");
        let (began, mut searches) = (Instant::now(), 0);
        while began.elapsed() < MEASURED {
            device.search(&queries, K, &live).expect("a search");
            searches += 1;
        }
        let seconds = began.elapsed().as_secs_f64() / f64::from(searches);
        // Up to 8 queries share one reading of all rows.
        let read = bytes * batch.div_ceil(8) as f64 / seconds;
        let part = device
            .peak_bytes_per_s()
            .map_or("an unknown part".into(), |peak| format!("{:.0} %", 100.0 * read / peak));
        println!(
            "{batch:3} queries at once: {:8.1} queries/s, {:.2} ms each call, {:.0} GB/s read, {part} of the peak",
            batch as f64 / seconds,
            seconds * 1e3,
            read / 1e9
        );
    }
}
