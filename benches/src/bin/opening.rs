//! What opening a collection costs the core that owns it: the image is decoded, and every point is entered into what finds it.
//!
//! `opening [--points N] [--dim D] [--ef-construction E] [--payloads 0|1] [--threads N] [--turns N] [--image FILE]` makes a collection of random
//! vectors with payloads of sixteen terms a point in seven keys, takes its image, and restores it as a server does, one line of JSON per turn. Such a
//! turn is one thread, and the image is in memory. `decode_ms` is the time of the records of the image, `enter_ms` that of all steps after the last
//! record, `longest_us` that of the longest of these, and `rss_mb` what the collection takes when it is open, with `peak_mb` the most so far. With
//! `--image` the image is kept in that file, and used if it is there. The vectors are indexed with a narrow beam by default: edges take as long
//! to read whatever search they came from. `--payloads 0` leaves the payloads out, so that the difference is what they cost.
use nigh_benches::cpu::thread_time;
use nigh_benches::parallel::{index_tail, workers};
use nigh_benches::resident::resident_mb;
use nigh_engine::collection::{DenseConfig, DenseWriter, Parts, Write};
use nigh_engine::distance::Metric;
use nigh_engine::memory::Domain;
use nigh_engine::payload::{RowBuilder, Value};
use serde_json::json;
use std::collections::HashMap;
use std::path::PathBuf;
use std::time::{Duration, Instant};

/// Slots that a server enters between two looks at the clock.
const STEP: u32 = 64;
/// Bytes of an image that are handed over at once, about.
const PIECE: usize = 1 << 20;
/// Points per round of the build.
const ROUND: usize = 256;

/// Random numbers of a fixed seed (SplitMix64).
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut word = self.0;
        word = (word ^ (word >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        word = (word ^ (word >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        word ^ (word >> 31)
    }
}

/// Sixteen terms: few values, many, one per point, in order and not.
fn payload(number: u64, random: &mut Random) -> Vec<u8> {
    let mut row = RowBuilder::new();
    let tag = |word: u64| format!("tag{}", word % 50);
    row.set("group", Value::Int((number % 1000) as i64), 0);
    row.set("price", Value::Float((random.next() % 5000) as f64 * 0.25), 0);
    row.set("is_new", Value::Bool(number.is_multiple_of(3)), 0);
    row.set("name", Value::String(format!("item {number}")), 0);
    row.set("category", Value::String(format!("category {}", random.next() % 100)), 0);
    row.set("sold_at", Value::Int((random.next() >> 1) as i64), 0);
    row.set("tags", Value::Strings((0..3).map(|_| tag(random.next())).collect()), 0);
    row.finish()
}

fn config(dim: usize, ef_construction: usize) -> DenseConfig {
    let mut config = DenseConfig::new(dim, Metric::Cosine);
    config.ef_construction = ef_construction;
    config
}

/// Pieces of whole records, each led by its length.
fn make(options: &HashMap<String, usize>) -> Vec<Vec<u8>> {
    let (points, dim) = (options["points"], options["dim"]);
    let mut random = Random(5);
    let mut writer = DenseWriter::create(config(dim, options["ef-construction"]), points, Domain::new(1))
        .unwrap_or_else(|error| fail(&error.to_string()));
    let started = Instant::now();
    let mut vector = vec![0.0; dim];
    for id in 0..points as u64 {
        vector.fill_with(|| (random.next() >> 40) as f32 / (1 << 23) as f32 - 1.0);
        let row = if options["payloads"] == 0 { Vec::new() } else { payload(id, &mut random) };
        let write =
            Write { seq: id + 1, id, version: 1, parts: Parts::Only(&vector), row: &row, deadline_ms: 0 };
        writer.apply(write);
    }
    let filled = started.elapsed();
    index_tail(&mut writer, &mut workers(options["threads"]), ROUND);
    let mut pieces = vec![Vec::new()];
    writer.begin_capture(true);
    while !writer.capture_step(PIECE, pieces.last_mut().expect("the first is there")) {
        pieces.push(Vec::new());
    }
    writer.end_capture(true);
    say(
        "made",
        json!({"points": points, "filled_s": filled.as_secs_f64(), "indexed_s": (started.elapsed() - filled).as_secs_f64()}),
    );
    pieces
}

fn read_pieces(bytes: &[u8]) -> Option<Vec<Vec<u8>>> {
    let (mut pieces, mut left) = (Vec::new(), bytes);
    while let Some((len, rest)) = left.split_first_chunk() {
        let (piece, rest) = rest.split_at_checked(u64::from_le_bytes(*len) as usize)?;
        pieces.push(piece.to_vec());
        left = rest;
    }
    left.is_empty().then_some(pieces)
}

fn turn(options: &HashMap<String, usize>, number: usize, pieces: &[Vec<u8>]) {
    let (points, dim) = (options["points"], options["dim"]);
    let mut writer = DenseWriter::create(config(dim, options["ef-construction"]), points, Domain::new(1))
        .unwrap_or_else(|error| fail(&error.to_string()));
    let (before, started) = (thread_time(), Instant::now());
    for piece in pieces {
        writer.restore(piece).unwrap_or_else(|error| fail(&error.to_string()));
    }
    let (decoded, decoded_cpu) = (started.elapsed(), thread_time() - before);
    let (mut longest, mut steps, mut opened_most) = (Duration::ZERO, 0, 0);
    loop {
        let began = thread_time();
        let more = writer.finish_restore_step(points as u64, STEP).unwrap_or_else(|e| fail(&e.to_string()));
        longest = longest.max(thread_time() - began);
        steps += 1;
        opened_most = opened_most.max(writer.bytes_while_opened());
        if !more {
            break;
        }
    }
    let (wall, cpu) = (started.elapsed(), thread_time() - before);
    let (stats, usage, (rss, peak)) = (writer.shared().stats(), writer.shared().usage(), resident_mb());
    let ms = |time: Duration| (time.as_secs_f64() * 1e4).round() / 10.0;
    let figures = json!({
        "turn": number, "points": stats.live, "decode_ms": ms(decoded), "enter_ms": ms(wall - decoded), "all_ms": ms(wall),
        "decode_cpu_ms": ms(decoded_cpu), "enter_cpu_ms": ms(cpu - decoded_cpu), "steps": steps,
        "longest_us": longest.as_micros() as u64, "payload_index_mb": usage.payload_index >> 20, "bytes_mb": stats.bytes >> 20,
        "most_bytes_mb": opened_most >> 20, "rss_mb": rss, "peak_mb": peak,
    });
    say("opened", figures);
}

fn main() {
    let defaults = [
        ("points", 200_000),
        ("dim", 128),
        ("ef-construction", 16),
        ("payloads", 1),
        ("threads", 2),
        ("turns", 3),
    ];
    let mut options: HashMap<String, usize> =
        defaults.into_iter().map(|(name, value)| (name.to_owned(), value)).collect();
    let mut file = None;
    let mut arguments = std::env::args().skip(1);
    while let Some(argument) = arguments.next() {
        let name =
            argument.strip_prefix("--").unwrap_or_else(|| fail(&format!("unknown argument {argument}")));
        let value = arguments.next().unwrap_or_else(|| fail(&format!("--{name} needs a value")));
        if name == "image" {
            file = Some(PathBuf::from(value));
            continue;
        }
        let known = options.get_mut(name).unwrap_or_else(|| fail(&format!("unknown option --{name}")));
        *known = value.parse().unwrap_or_else(|_| fail(&format!("--{name} {value} is not a number")));
    }
    let pieces = match file.as_ref().filter(|file| file.exists()) {
        Some(file) => std::fs::read(file).ok().and_then(|bytes| read_pieces(&bytes)),
        None => Some(make(&options)),
    };
    let pieces = pieces.unwrap_or_else(|| fail("--image is not a file that this program wrote"));
    if let Some(file) = file.filter(|file| !file.exists()) {
        let led = pieces.iter().flat_map(|piece| [&(piece.len() as u64).to_le_bytes()[..], piece].concat());
        std::fs::write(file, led.collect::<Vec<u8>>()).unwrap_or_else(|error| fail(&error.to_string()));
    }
    say("image", json!({"bytes": pieces.iter().map(Vec::len).sum::<usize>(), "pieces": pieces.len()}));
    for number in 0..options["turns"] {
        turn(&options, number, &pieces);
    }
}

fn say(step: &str, mut figures: serde_json::Value) {
    figures["step"] = step.into();
    println!("{figures}");
}

fn fail(why: &str) -> ! {
    eprintln!("opening: {why}");
    std::process::exit(1)
}
