use super::*;
use proptest::prelude::*;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::AtomicBool;

/// Every shape: the real one, tiny segments that split all the time, and one that may not deepen at all.
const SHAPES: [Shape; 4] = [
    Shape { segment_lines_log2: SEGMENT_LINES_LOG2, depth_slack: DEPTH_SLACK },
    Shape { segment_lines_log2: 1, depth_slack: DEPTH_SLACK },
    Shape { segment_lines_log2: 2, depth_slack: 1 },
    Shape { segment_lines_log2: 1, depth_slack: 0 },
];

/// Compares with the twin both ways and checks the structure's own rules.
fn check(map: &IdMap, twin: &BTreeMap<u64, u32>, pin: &Pin<'_>, absent: impl Iterator<Item = u64>) {
    assert_eq!(map.len(), twin.len());
    assert_eq!(map.is_empty(), twin.is_empty());
    for (&id, &slot) in twin {
        assert_eq!((map.get(pin, id), map.get_owned(id)), (Some(slot), Some(slot)), "id {id}");
    }
    for id in absent.filter(|id| !twin.contains_key(id)) {
        assert_eq!((map.get(pin, id), map.get_owned(id)), (None, None), "id {id}");
    }
    check_structure(map);
}

fn check_structure(map: &IdMap) {
    let writer = map.writer.enter();
    let directory = map.directory(&writer);
    // SAFETY: the owner is inside.
    let places = unsafe { directory.values() };
    let (mut segments, mut live, mut bytes) = (BTreeSet::new(), 0, directory.bytes());
    for place in places {
        let segment = segment_of_place(place);
        if !segments.insert(segment.tagged()) {
            continue;
        }
        bytes += segment.bytes();
        // SAFETY: the owner is inside.
        let lines = unsafe { segment.values() };
        let depth = lines[1].note();
        let span = 1 << (directory.log2() - depth);
        let at = places.iter().position(|place| segment_of_place(place) == segment).unwrap();
        assert_eq!(at % span, 0, "a segment's places are aligned to their number");
        assert!(places[at..at + span].iter().all(|place| segment_of_place(place) == segment));
        for (id, _) in lines.iter().flat_map(Line::live) {
            assert_eq!(place_index(directory, map.hasher.hash_one(id)) / span, at / span);
            live += 1;
        }
        let empty = lines.iter().map(Line::unclaimed);
        assert_eq!(lines.len() * LINE_ENTRIES - empty.sum::<usize>(), lines[0].note() as usize);
        assert!(lines[0].note() as usize <= claims_max(segment.log2()));
    }
    assert_eq!(writer.segments, segments.len());
    assert_eq!(map.len(), live);
    bytes += writer.limbo.iter().map(Retired::bytes).sum::<usize>();
    assert_eq!(map.bytes(), bytes);
}

#[test]
fn extreme_ids_and_slots() {
    let domain = Domain::new(1);
    let map = IdMap::new(domain.clone(), 0);
    let reader = domain.participant(0);
    let pin = reader.pin();
    for id in [0, 1, u64::MAX, 1 << 63] {
        assert_eq!(map.get(&pin, id), None);
        assert_eq!(map.insert(id, SLOT_MAX), None);
        assert_eq!(map.insert(id, 0), Some(SLOT_MAX));
        assert_eq!(map.get(&pin, id), Some(0));
        assert_eq!((map.remove(id), map.remove(id)), (Some(0), None));
        assert_eq!((map.get(&pin, id), map.insert(id, 7)), (None, None));
    }
    assert_eq!(map.len(), 4);
    check_structure(&map);
}

#[test]
#[should_panic(expected = "slot 4294967294 is reserved")]
fn reserved_slots_are_refused() {
    IdMap::new(Domain::new(1), 1).insert(1, SLOT_MAX + 1);
}

#[test]
#[should_panic(expected = "the pin belongs to another domain")]
fn a_pin_of_another_domain_is_refused() {
    let other = Domain::new(1).participant(0);
    IdMap::new(Domain::new(1), 1).get(&other.pin(), 1);
}

#[test]
fn growth_keeps_every_id_and_stays_compact() {
    let ids = if cfg!(miri) { 3_000 } else { 200_000u32 };
    let domain = Domain::new(1);
    let reader = domain.participant(0);
    let map = IdMap::new(domain, 42);
    for id in 0..ids {
        assert_eq!(map.insert(u64::from(id) << 32, id), None);
    }
    map.reclaim();
    let pin = reader.pin();
    for id in 0..ids {
        assert_eq!(map.get(&pin, u64::from(id) << 32), Some(id));
        assert_eq!(map.get(&pin, u64::from(id) << 32 | 1), None);
    }
    check_structure(&map);
    assert!(map.bytes() < ids as usize * 30, "{} bytes for {ids} ids", map.bytes());
}

#[test]
fn memory_is_bounded_under_churn() {
    for shape in SHAPES {
        let domain = Domain::new(1);
        let reader = domain.participant(0);
        let map = IdMap::with_shape(domain, 7, shape);
        let (rounds, ids) = if cfg!(miri) { (4, 50) } else { (60, 2_000u64) };
        let mut settled = 0;
        for round in 0..rounds {
            // Even rounds bring the same ids back, odd ones fresh ids: neither may leave anything behind.
            let base = if round % 2 == 0 { 0 } else { round * ids };
            (0..ids).for_each(|id| assert_eq!(map.insert(base + id, id as u32), None));
            drop(reader.pin());
            (0..ids).for_each(|id| assert_eq!(map.remove(base + id), Some(id as u32)));
            map.reclaim();
            assert!(map.is_empty());
            check_structure(&map);
            if round == 2 {
                settled = map.bytes();
            }
        }
        assert!(map.bytes() <= 2 * settled, "{} bytes, {settled} after three rounds", map.bytes());
    }
}

#[test]
fn what_a_pin_may_see_is_held_and_counted() {
    let domain = Domain::new(1);
    let reader = domain.participant(0);
    let map = IdMap::with_shape(domain, 3, SHAPES[1]);
    let pin = reader.pin();
    (0..500).for_each(|id| assert_eq!(map.insert(id, 1), None));
    map.reclaim();
    check_structure(&map);
    let held = map.bytes();
    drop(pin);
    map.reclaim();
    check_structure(&map);
    assert!(map.bytes() < held);
    assert!(map.writer.enter().limbo.is_empty());
}

#[derive(Clone, Copy, Debug)]
enum Op {
    Insert(u64, u32),
    Remove(u64),
    Reclaim,
    Repin,
}

/// Ids that are dense, that differ in the top bits only, and that differ in a stride only: all collide under a weak hash.
fn id() -> impl Strategy<Value = u64> {
    prop_oneof![0..60u64, (0..60u64).prop_map(|n| n << 58), (0..60u64).prop_map(|n| n * 1024), Just(u64::MAX)]
}

fn ops() -> impl Strategy<Value = Vec<Op>> {
    let op = prop_oneof![
        6 => (id(), 0..=SLOT_MAX).prop_map(|(id, slot)| Op::Insert(id, slot)),
        3 => id().prop_map(Op::Remove),
        1 => Just(Op::Reclaim),
        1 => Just(Op::Repin),
    ];
    proptest::collection::vec(op, 0..if cfg!(miri) { 60 } else { 600 })
}

proptest! {
    #![proptest_config(ProptestConfig {
        cases: if cfg!(miri) { 4 } else if std::env::var_os("NIGH_TEST_LONG").is_some() { 5_000 } else { 200 },
        failure_persistence: None,
        ..ProptestConfig::default()
    })]

    #[test]
    fn behaves_like_a_map(ops in ops(), seed: u64, shape in 0..SHAPES.len()) {
        let domain = Domain::new(1);
        let reader = domain.participant(0);
        let map = IdMap::with_shape(domain, seed, SHAPES[shape]);
        let mut twin = BTreeMap::new();
        let mut pin = reader.pin();
        for op in ops {
            match op {
                Op::Insert(id, slot) => prop_assert_eq!(map.insert(id, slot), twin.insert(id, slot)),
                Op::Remove(id) => prop_assert_eq!(map.remove(id), twin.remove(&id)),
                Op::Reclaim => map.reclaim(),
                Op::Repin => { drop(pin); pin = reader.pin(); }
            }
        }
        check(&map, &twin, &pin, (0..100).chain((0..64).map(|n| n << 58)));
    }
}

/// Pseudo-random numbers for the stress below: fixed seeds, no allocation.
fn next(state: &mut u64) -> u64 {
    *state = state.wrapping_add(0x9E37_79B9_7F4A_7C15);
    let mixed = (*state ^ (*state >> 32)).wrapping_mul(0xD6E8_FEB8_6659_FD93);
    mixed ^ (mixed >> 32)
}

/// One owner, two readers. Slot and id are tied (slot % IDS == id), so a reader notices at once when it is given another
/// id's slot; even ids are never removed, so it notices when one is missing.
#[test]
fn readers_always_find_what_is_always_there() {
    const IDS: u64 = 512;
    let steps = match (cfg!(miri), std::env::var_os("NIGH_TEST_LONG")) {
        (true, _) => 60,
        (_, None) => 300_000,
        (_, Some(_)) => 20_000_000,
    };
    for (number, shape) in SHAPES.into_iter().enumerate() {
        let domain = Domain::new(2);
        let map = IdMap::with_shape(domain.clone(), number as u64, shape);
        (0..IDS).step_by(2).for_each(|id| assert_eq!(map.insert(id, id as u32), None));
        let done = AtomicBool::new(false);
        std::thread::scope(|scope| {
            for index in 0..2 {
                let reader = domain.participant(index);
                let (map, done) = (&map, &done);
                scope.spawn(move || {
                    let mut state = index as u64;
                    while !done.load(Ordering::Relaxed) {
                        let pin = reader.pin();
                        for _ in 0..64 {
                            let id = next(&mut state) % IDS;
                            match map.get(&pin, id) {
                                Some(slot) => assert_eq!(u64::from(slot) % IDS, id, "another id's slot"),
                                None => assert_eq!(id % 2, 1, "id {id} was always there"),
                            }
                        }
                    }
                });
            }
            let mut state = 99;
            let mut twin: BTreeMap<u64, u32> = (0..IDS).step_by(2).map(|id| (id, id as u32)).collect();
            for step in 0..steps {
                let id = next(&mut state) % IDS;
                let slot = (id + IDS * (next(&mut state) % 1000)) as u32;
                if id % 2 == 1 && next(&mut state).is_multiple_of(2) {
                    assert_eq!(map.remove(id), twin.remove(&id));
                } else {
                    assert_eq!(map.insert(id, slot), twin.insert(id, slot));
                }
                // Fresh ids come and go, so segments are replaced all the time.
                let passing = IDS + step as u64;
                map.insert(passing, (passing % IDS) as u32);
                map.remove(passing);
            }
            done.store(true, Ordering::Relaxed);
        });
        map.reclaim();
        check_structure(&map);
        assert!(map.writer.enter().limbo.is_empty());
    }
}
