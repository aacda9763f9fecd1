//! Random operations on a store and on a map.

use super::super::{Action, Op};
use super::bed::{Bed, config};
use proptest::prelude::*;

#[derive(Clone, Debug)]
struct Step {
    what: u8,
    key: usize,
    /// Length and content of values.
    len: usize,
    content: u8,
    ttl_ms: u64,
    amount: u64,
}

fn steps(keys: usize, len_max: usize) -> impl Strategy<Value = Vec<Step>> {
    let len = prop_oneof![
        4 => Just(8usize),
        2 => Just(20usize),
        3 => 0..100usize.min(len_max),
        2 => 0..len_max,
    ];
    let ttl = prop_oneof![
        3 => Just(0u64),
        4 => 1..200u64,
        2 => 1..100_000u64,
        1 => Just(9_223_372_036_854u64),
        1 => Just(9_223_372_036_855u64),
    ];
    let step = (any::<u8>(), 0..keys, len, 0..3u8, ttl, 0..1000u64).prop_map(
        |(what, key, len, content, ttl_ms, amount)| Step { what, key, len, content, ttl_ms, amount },
    );
    prop::collection::vec(step, 1..400)
}

/// Keys of all lengths, some with common beginnings.
fn key_set(count: usize, len_max: usize) -> Vec<Vec<u8>> {
    let key = |n: usize| -> Vec<u8> {
        let len = if n < 4 { n } else { (n * 7) % len_max.max(1) };
        (0..len).map(|at| if at + 1 == len { n as u8 } else { at as u8 }).collect()
    };
    let mut keys: Vec<_> = (0..count).map(key).collect();
    keys.sort();
    keys.dedup();
    keys
}

fn perform(bed: &mut Bed, keys: &[Vec<u8>], step: &Step) {
    let key = &keys[step.key % keys.len()][..];
    let value: Vec<u8> = (0..step.len).map(|at| step.content.wrapping_add((at / 3) as u8)).collect();
    let current = bed.model.get(key).map(|(value, _)| value.clone());
    // What is compared is often, and not always, what is there.
    let expected = match &current {
        Some(current) if !step.amount.is_multiple_of(4) => current.clone(),
        _ => value.clone(),
    };
    let (ttl_ms, delta) = (step.ttl_ms, (step.amount as i64 - 500) << (step.amount % 54));
    match step.what % 40 {
        0..=11 => bed.run(Op::Put { key, value: &value, ttl_ms }),
        12 | 13 => bed.run(Op::Del { key }),
        14 | 15 => bed.run(Op::Expire { key, ttl_ms }),
        16 | 17 => bed.run(Op::Incr { key, delta }),
        18 | 19 => bed.run(Op::IncrEx { key, delta, ttl_ms }),
        20 | 21 => bed.run(Op::SetNx { key, value: &value, ttl_ms }),
        22 => bed.run(Op::GetSet { key, value: &value, ttl_ms }),
        23 => bed.run(Op::GetDel { key }),
        24 => bed.run(Op::Persist { key }),
        25 => bed.run(Op::Cas { key, value: &value, expected: Some(&expected), ttl_ms }),
        26 => bed.run(Op::Cas { key, value: &value, expected: None, ttl_ms }),
        27 => bed.run(Op::Cad { key, expected: &expected }),
        28 => bed.run(Op::Caex { key, expected: &expected, ttl_ms }),
        29 => bed.update(key, Action::Keep),
        30 => bed.update(key, Action::Set { value, deadline_ms: bed.now + step.amount }),
        31 => bed.update(key, Action::Deadline { deadline_ms: bed.now + step.amount }),
        32 => bed.update(key, Action::Delete),
        33 | 34 => bed.now += step.amount,
        35..=37 => drop(bed.writer.sweep(bed.now, step.amount as usize)),
        38 => drop(bed.writer.relocate_step(bed.now, 1 + step.amount as usize)),
        _ if step.amount < 100 => bed.run(Op::Flush),
        _ => drop(bed.writer.tidy()),
    }
    bed.note_evictions();
    bed.check_key(key);
}

/// What the log says, in another store with room for everything.
fn replay(bed: &Bed, knobs: u32, keys: &[Vec<u8>]) {
    let mut second = Bed::new(config(64 << 20, 1 << 20, knobs), true);
    second.now = bed.now;
    for (count, effect) in bed.log.iter().enumerate() {
        second.writer.apply(effect, 0).unwrap();
        if count % 50 == 49 {
            // Idempotent from any earlier point on; here: from the last one.
            second.writer.apply(effect, 0).unwrap();
            while second.writer.sweep(0, 10) {}
        }
    }
    second.model = bed.model.clone();
    second.check_all(keys);
}

/// The same in a store that has no room for everything, where nothing is prepared: as the map but for what it says it lost.
fn replay_without_room(bed: &Bed, knobs: u32, keys: &[Vec<u8>]) {
    let mut second = Bed::new(config(8 << 10, 1024, knobs), false);
    second.now = 0;
    for effect in &bed.log {
        second.replay(effect);
    }
    second.now = bed.now;
    second.check_all(keys);
}

fn twin(is_roomy: bool, knobs: u32, steps: &[Step]) {
    let (budget, keys) = if is_roomy { (1 << 20, key_set(60, 300)) } else { (16 << 10, key_set(120, 150)) };
    let mut bed = Bed::new(config(budget, 1024, knobs), is_roomy);
    for (count, step) in steps.iter().enumerate() {
        perform(&mut bed, &keys, step);
        if count % 40 == 0 {
            bed.check_all(&keys);
        }
    }
    bed.check_all(&keys);
    replay(&bed, knobs, &keys);
    replay_without_room(&bed, knobs, &keys);
    // Everything that has a deadline ends, and the wheel is empty then.
    bed.now += 1 << 45;
    while bed.writer.sweep(bed.now, 100) {}
    bed.check_all(&keys);
    let permanent = bed.model.values().filter(|&&(_, deadline)| deadline == 0).count();
    let stats = bed.writer.stats();
    assert_eq!((stats.keys, stats.keys_with_deadline), (permanent, 0));
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 250, ..ProptestConfig::default() })]

    #[test]
    fn with_room_a_store_is_a_map(knobs in 0..8u32, steps in steps(60, 20_000)) {
        // 400 steps of 20 KB do not fit a megabyte: the average is a tenth of that, and dead entries need room too.
        let bytes: usize = steps.iter().map(|step| step.len + 400).sum();
        prop_assume!(bytes < 900_000);
        twin(true, knobs, &steps);
    }

    #[test]
    fn at_capacity_a_store_is_a_map_but_for_what_it_says_it_lost(knobs in 0..8u32, steps in steps(120, 6_000)) {
        twin(false, knobs, &steps);
    }
}
