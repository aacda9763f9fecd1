//! Lists alone against a map, through every shape they take.

use super::test_bed::{Rng, best, plain};
use super::*;
use crate::memory::Domain;
use crate::slot::Slot;
use proptest::prelude::*;
use std::collections::BTreeMap;
use std::sync::Arc;

/// A lane without bounds: each posting contributes its value.
#[derive(Clone, Copy, PartialEq, Debug)]
struct Most(u32);

impl Summary for Most {
    const WORDS: usize = 1;
    const EMPTY: Most = Most(0);
    fn merge(&mut self, other: &Most) {
        self.0 = self.0.max(other.0);
    }
    fn store(&self, words: &[AtomicU32]) {
        words[0].store(self.0, std::sync::atomic::Ordering::Relaxed);
    }
    fn load(words: &[AtomicU32]) -> Most {
        Most(words[0].load(std::sync::atomic::Ordering::Relaxed))
    }
}

struct Plain;
impl Scorer for Plain {
    type Summary = Most;
    fn score(&self, _: usize, _: Slot, value: u32) -> f64 {
        f64::from(value)
    }
    fn bounds(&self, _: usize, summary: &Most) -> (f64, f64) {
        (0.0, f64::from(summary.0))
    }
    fn summarize(&self, _: Slot, value: u32) -> Most {
        Most(value)
    }
}

fn content(lists: &Lists, list: ListId, scratch: &mut LaneScratch) -> BTreeMap<Slot, u32> {
    let mut out = Vec::new();
    let search = LaneSearch { k: usize::MAX, admit: |_| true, id_of: u64::from, scratch, out: &mut out };
    search.run(lists, &[list], &Plain);
    out.iter().map(|hit| (hit.slot, hit.score as u32)).collect()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(40))]

    /// Insertions and removals in random, ascending and descending order leave what they leave in a map; memory is
    /// reused.
    #[test]
    fn a_list_is_a_map(seed: u64, slots in 1u64..3000, order in 0..3, rounds in 1usize..6) {
        let domain = Domain::new(1);
        let lists = Arc::new(Lists::new());
        let mut writer = ListsWriter::<Most>::new(lists.clone(), domain);
        let list = writer.new_list();
        let mut rng = Rng(seed);
        let mut scratch = LaneScratch::default();
        let mut twin: BTreeMap<Slot, u32> = BTreeMap::new();
        let of = |_: Slot, value: u32| Most(value);
        for _ in 0..rounds {
            for i in 0..slots {
                let slot = match order { 0 => rng.below(slots), 1 => i, _ => slots - 1 - i } as Slot * 3;
                let value = rng.below(1000) as u32;
                if twin.insert(slot, value).is_some() {
                    prop_assert!(writer.remove(list, slot, &of));
                }
                writer.insert(list, slot, value, &of);
                if rng.below(3) == 0 {
                    let gone = rng.below(slots) as Slot * 3;
                    prop_assert_eq!(writer.remove(list, gone, &of), twin.remove(&gone).is_some());
                }
                writer.seal(0);
            }
            prop_assert_eq!(lists.postings(list) as usize, twin.len());
            prop_assert_eq!(&content(&lists, list, &mut scratch), &twin);
            // Down to a few, which changes the shape back.
            let keep = rng.below(slots + 1);
            let gone: Vec<Slot> = twin.keys().copied().filter(|_| rng.below(slots) >= keep).collect();
            for slot in gone {
                twin.remove(&slot);
                prop_assert!(writer.remove(list, slot, &of));
                prop_assert!(!writer.remove(list, slot, &of));
                writer.seal(0);
            }
            prop_assert_eq!(&content(&lists, list, &mut scratch), &twin);
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(60))]

    /// In parts of any size a walk finds what a loop over all slots finds, each slot is asked about once, in order, and so is each that was put off.
    #[test]
    fn a_walk_in_parts_finds_what_a_scan_finds(
        seed: u64,
        slots in 1u64..9000,
        percents in proptest::collection::vec(1u64..100, 1..5),
        required in 0usize..4,
        k in prop_oneof![Just(0usize), Just(1), Just(10), Just(5000)],
        put_off_max in 1usize..50,
    ) {
        let lists = Arc::new(Lists::new());
        let mut writer = ListsWriter::<Most>::new(lists.clone(), Domain::new(1));
        let mut rng = Rng(seed);
        let (mut made, mut twins) = (Vec::new(), Vec::new());
        for percent in percents {
            let list = writer.new_list();
            let mut twin = BTreeMap::new();
            for slot in 0..slots as Slot {
                if rng.below(100) >= percent {
                    continue;
                }
                let value = rng.below(50) as u32;
                writer.insert(list, slot, value, &|_, value| Most(value));
                writer.seal(0);
                twin.insert(slot, value);
            }
            made.push(list);
            twins.push(twin);
        }
        let required = required.min(made.len());
        let is_hit = |slot: Slot| !(seed ^ u64::from(slot)).is_multiple_of(3);
        let scan = (0..slots as Slot).filter_map(|slot| {
            let values: Vec<Option<&u32>> = twins.iter().map(|twin| twin.get(&slot)).collect();
            let is_found = values[..required].iter().all(Option::is_some) && values.iter().any(Option::is_some);
            (is_found && is_hit(slot)).then(|| (u64::from(slot), values.into_iter().flatten().sum::<u32>() as f32))
        });
        let truth = best(scan.collect(), k);
        let (mut scratch, mut out, mut last) = (LaneScratch::default(), Vec::new(), None);
        let lane = Lane { index: &lists, lists: &made, scorer: &Plain, required };
        let mut walk = LaneWalk::new(k, &mut scratch).pausing_after(put_off_max);
        while !walk.is_over() {
            walk.go_on(&lane, |slot| {
                assert!(last.replace(slot).is_none_or(|before| before < slot));
                match (seed ^ u64::from(slot)) % 5 {
                    0 | 1 => Admission::PutOff,
                    _ if is_hit(slot) => Admission::Enters,
                    _ => Admission::StaysOut,
                }
            }, u64::from);
            let put_off = walk.take_put_off();
            prop_assert!(put_off.len() <= put_off_max);
            for hit in put_off {
                if !walk.could_enter(&hit) {
                    break;
                }
                if is_hit(hit.slot) {
                    walk.offer(hit);
                }
            }
        }
        walk.finish(&mut out);
        prop_assert_eq!(plain(&out), truth);
    }
}

/// Where lists are required, only the places are looked at where they meet, in parts of bounded length.
#[test]
fn required_lists_are_walked_where_they_meet() {
    let lists = Arc::new(Lists::new());
    let mut writer = ListsWriter::<Most>::new(lists.clone(), Domain::new(1));
    let mut list_of = |slots: &mut dyn Iterator<Item = Slot>| {
        let list = writer.new_list();
        for slot in slots {
            writer.insert(list, slot, 1, &|_, value| Most(value));
            writer.seal(0);
        }
        list
    };
    let common = list_of(&mut (0..200_000));
    let rare = list_of(&mut [150_000].into_iter());
    let even = list_of(&mut (0..200_000).step_by(2));
    let odd = list_of(&mut (1..200_000).step_by(2));
    let mut scratch = LaneScratch::default();
    let mut walked = |pair: [ListId; 2]| {
        let lane = Lane { index: &lists, lists: &pair, scorer: &Plain, required: 2 };
        let (mut asked, mut parts) = (Vec::new(), Vec::new());
        let mut walk = LaneWalk::new(10, &mut scratch);
        while !walk.is_over() {
            let admit = |slot| {
                asked.push(slot);
                Admission::PutOff
            };
            parts.push(walk.go_on(&lane, admit, u64::from));
            assert!(walk.take_put_off().len() <= 4096);
        }
        (asked, parts)
    };
    for pair in [[rare, common], [common, rare]] {
        let (asked, parts) = walked(pair);
        assert_eq!(asked, [150_000]);
        assert!(parts.iter().sum::<u64>() < 5000, "{parts:?} postings");
    }
    let (asked, parts) = walked([even, odd]);
    assert!(asked.is_empty() && parts.len() > 2, "{parts:?}");
    assert!(parts.iter().all(|looked| *looked < 100_000), "{parts:?}");
    let (asked, parts) = walked([common, even]);
    assert_eq!((asked.len(), parts.len() > 24), (100_000, true), "{parts:?}");
}

#[test]
fn ascending_slots_are_never_copied() {
    let domain = Domain::new(1);
    let lists = Arc::new(Lists::new());
    let mut writer = ListsWriter::<Most>::new(lists.clone(), domain);
    let list = writer.new_list();
    for slot in 0..100_000 {
        writer.insert(list, slot, 1, &|_, value| Most(value));
        writer.seal(0);
    }
    // 8 bytes per posting, and a directory twice as it doubled.
    let bytes = lists.bytes() as f64 / 100_000.0;
    assert!(bytes < 9.0, "{bytes} bytes per posting");
}

#[test]
fn many_lists_come_and_go_in_the_same_memory() {
    let domain = Domain::new(1);
    let lists = Arc::new(Lists::new());
    let mut writer = ListsWriter::<Most>::new(lists.clone(), domain);
    let of = |_: Slot, value: u32| Most(value);
    let mut rng = Rng(5);
    let mut settled = 0;
    for round in 0..40 {
        let made: Vec<ListId> = (0..200).map(|_| writer.new_list()).collect();
        for &list in &made {
            let len = rng.skewed(800) as Slot;
            (0..len).for_each(|slot| writer.insert(list, slot, 1, &of));
            (0..len).for_each(|slot| assert!(writer.remove(list, slot, &of)));
            writer.drop_list(list);
            writer.seal(0);
        }
        writer.reclaim(0);
        if round == 10 {
            settled = lists.bytes();
        }
    }
    assert!(lists.bytes() < settled * 5 / 4, "{settled} grew to {}", lists.bytes());
    assert!(writer.lists_used() <= 400, "{} numbers for 200 lists", writer.lists_used());
}
