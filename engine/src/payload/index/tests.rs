//! The index against a naive twin, under random changes and under readers.

use super::buckets::Buckets;
use super::*;
use crate::payload::{RowBuilder, Value};
use proptest::prelude::*;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::AtomicBool;

type Twin = BTreeMap<Slot, Vec<(&'static str, Value)>>;

fn row(payload: &[(&'static str, Value)]) -> Vec<u8> {
    let mut builder = RowBuilder::new();
    for (key, value) in payload {
        builder.set(key, value.clone(), 0);
    }
    builder.finish()
}

fn any_text() -> BoxedStrategy<String> {
    prop_oneof!["[ab]{0,2}", "[a-c ]{0,6}", Just("x".repeat(60)), Just("x".repeat(70)), Just("x".repeat(71))]
        .boxed()
}

fn any_value() -> BoxedStrategy<Value> {
    let float = prop_oneof![(-3..4i32).prop_map(|x| f64::from(x) / 2.0), Just(-0.0), Just(f64::NAN)].boxed();
    let int = prop_oneof![4 => -3..4i64, 1 => Just(i64::MAX), 1 => Just(i64::MIN)].boxed();
    prop_oneof![
        Just(Value::None),
        any_text().prop_map(Value::String),
        int.clone().prop_map(Value::Int),
        float.clone().prop_map(Value::Float),
        any::<bool>().prop_map(Value::Bool),
        prop::collection::vec(any_text(), 0..3).prop_map(Value::Strings),
        prop::collection::vec(int, 0..3).prop_map(Value::Ints),
        prop::collection::vec(float, 0..3).prop_map(Value::Floats),
        (-91..92i32, -181..182i32)
            .prop_map(|(lat, lon)| Value::Geo { lat: f64::from(lat) + 0.5, lon: f64::from(lon) + 0.5 }),
    ]
    .boxed()
}

/// What is filed of a row: all of it, or next to nothing.
fn any_extent() -> BoxedStrategy<Extent> {
    prop_oneof![Just(ROW_EXTENT), (0..6usize, 0..9usize).prop_map(|(parts, bytes)| Extent { parts, bytes })]
        .boxed()
}

fn any_payload() -> BoxedStrategy<Vec<(&'static str, Value)>> {
    let key = prop::sample::select(vec!["a", "b", CONTENT_KEY]);
    prop::collection::btree_map(key, any_value(), 0..4).prop_map(|map| map.into_iter().collect()).boxed()
}

fn slots_of(selection: &Selection<'_>) -> BTreeSet<Slot> {
    let (walk, exact) = selection.walk(usize::MAX).unwrap();
    assert!(exact);
    let found: Vec<Slot> = walk.rest(0, Slot::MAX).into_iter().collect();
    assert!(found.is_sorted_by(|a, b| a < b));
    found.into_iter().collect()
}

/// A walk taken in parts of any size up to any end, while nothing changes.
fn in_parts(selection: &Selection<'_>, all: &[Slot]) {
    let last = all.last().copied().unwrap_or_default();
    for (looks, end) in [(1, Slot::MAX), (7, last), (64, last / 2 + 3), (5, last + 1)] {
        let (mut walk, _) = selection.walk(usize::MAX).unwrap();
        let (mut found, mut from) = (Vec::new(), Some(0));
        while let Some(next) = from {
            let before = found.len();
            from = walk.part(next, end, looks, &mut found);
            assert!(found.len() <= before + looks && from.is_none_or(|from| from < end));
        }
        assert!(found.iter().eq(all.iter().filter(|&&slot| slot < end)), "{looks} to {end}");
    }
}

/// Slots whose value of `field` passes.
fn wanted(twin: &Twin, field: &str, test: impl Fn(&Value) -> bool) -> BTreeSet<Slot> {
    let has = |payload: &[(&str, Value)]| payload.iter().any(|(key, value)| *key == field && test(value));
    twin.iter().filter(|(_, payload)| has(payload)).map(|(&slot, _)| slot).collect()
}

fn number(value: &Value) -> Option<f64> {
    match value {
        Value::Int(number) => Some(*number as f64),
        Value::Float(number) => Some(*number),
        _ => None,
    }
}

fn check(index: &PayloadIndex, pin: &Pin<'_>, twin: &Twin) {
    let view = index.view(pin);
    for field in ["a", "b", "c", CONTENT_KEY] {
        let filed = |test: &dyn Fn(&Value) -> bool| {
            if field == CONTENT_KEY { BTreeSet::new() } else { wanted(twin, field, test) }
        };
        let same = |terms: Terms<'_>, test: &dyn Fn(&Value) -> bool| {
            let (wanted, selection) = (filed(test), Selection::Terms(terms));
            assert_eq!(slots_of(&selection), wanted, "{field}");
            in_parts(&selection, &wanted.iter().copied().collect::<Vec<_>>());
            assert!(selection.at_most() >= wanted.len() as u64);
            let mut words = vec![0; 4096 / 64];
            selection.mark(&mut words);
            assert_eq!(words.iter().map(|word| word.count_ones() as usize).sum::<usize>(), wanted.len());
        };
        // Where not everything is filed, others are found as well.
        let same_or_more = |(terms, exact): (Terms<'_>, bool), test: &dyn Fn(&Value) -> bool| match exact {
            true => same(terms, test),
            false => assert!(slots_of(&Selection::Terms(terms)).is_superset(&filed(test)), "{field}"),
        };
        same(view.holders(field), &|_| true);
        if let Some(column) = view.column(field) {
            for slot in 0..300 {
                let payload =
                    twin.get(&slot).and_then(|payload| payload.iter().find(|(key, _)| *key == field));
                let wanted = payload.and_then(|(_, value)| number(value)).filter(|number| !number.is_nan());
                assert_eq!(column.get(slot), wanted, "slot {slot} of {field}");
            }
            let bounds = [f64::NEG_INFINITY, -1.5, -0.0, 0.0, 1.0, 2.25, f64::INFINITY, f64::NAN];
            for (low, high) in bounds.iter().flat_map(|&low| bounds.map(|high| (low, high))) {
                let mut words = [u64::MAX; 8];
                words[1] = 0xf0f0;
                let asked = words;
                column.retain(&mut words, low, high);
                for slot in 0..512 {
                    let inside = column.get(slot).is_some_and(|number| number >= low && number <= high);
                    let bit = |words: &[u64; 8]| words[slot as usize / 64] >> (slot % 64) & 1 == 1;
                    assert_eq!(bit(&words), inside && bit(&asked), "slot {slot} in {low}..={high}");
                }
            }
        }
        for number in -4..5i64 {
            let (float, bound) = (number as f64 / 2.0, number as f64 / 2.0 + 0.25);
            same(view.int(field, Class::Int, number).0, &|value| *value == Value::Int(number));
            same(view.float(field, Class::Float, float).0, &|value| *value == Value::Float(float));
            same_or_more(
                view.int(field, Class::IntElement, number),
                &|value| matches!(value, Value::Ints(array) if array.contains(&number)),
            );
            same_or_more(
                view.float(field, Class::FloatElement, float),
                &|value| matches!(value, Value::Floats(array) if array.contains(&float)),
            );
            let (ints, floats) = ([number - 1, number, number + 3], [float, float + 1.0, -2.5]);
            same(view.among_ints(field, &ints), &|value| {
                super::tests::number(value).is_some_and(|x| ints.iter().any(|&int| int as f64 == x))
            });
            same(view.among_floats(field, floats.into_iter()), &|value| {
                super::tests::number(value).is_some_and(|x| floats.contains(&x))
            });
            for (low, high) in [(float, bound), (bound, 2.0), (-9e18, float), (float, i64::MAX as f64)] {
                let passes =
                    |value: &Value| super::tests::number(value).is_some_and(|x| x > low && x <= high);
                same(view.number_range(field, Some((low, false)), Some((high, true))), &passes);
                let passes =
                    |value: &Value| super::tests::number(value).is_some_and(|x| x >= low && x < high);
                same(view.number_range(field, Some((low, true)), Some((high, false))), &passes);
                let passes = |value: &Value| super::tests::number(value).is_some_and(|x| x >= low);
                same(view.number_range(field, Some((low, true)), None), &passes);
            }
        }
        same(view.number_range(field, Some((f64::NAN, true)), None), &|_| false);
        let large = [i64::MIN, (1 << 53) + 1, i64::MAX - 1, i64::MAX];
        let as_float = |value: &Value| super::tests::number(value);
        same(view.among_ints(field, &large), &|value| {
            // An integer is itself alone, a float whatever rounds to it.
            match value {
                Value::Int(int) => large.contains(int),
                value => as_float(value).is_some_and(|x| large.iter().any(|&int| int as f64 == x)),
            }
        });
        let large = [-(2f64.powi(63)), 2f64.powi(53), 2f64.powi(63), f64::INFINITY, f64::NAN];
        same(view.among_floats(field, large.into_iter()), &|value| {
            as_float(value).is_some_and(|x| large.contains(&x))
        });
        assert_eq!(view.has_texts(field), !filed(&|value| matches!(value, Value::String(_))).is_empty());
        same(view.bool(field, true), &|value| *value == Value::Bool(true));
        for text in ["", "a", "b", "ab", "abc", &"x".repeat(60), &"x".repeat(70)] {
            same(view.text(field, Class::String, text).0, &|value| *value == Value::String(text.into()));
            // A text that is longer than its key is alone there in these tests, so its term is exact.
            let is_whole = |(terms, exact), class| {
                let rest = &mut Terms::default();
                (terms, exact || (text.len() > 63 && view.add_rest(field, class, rest)))
            };
            same_or_more(
                is_whole(view.text(field, Class::StringElement, text), Class::StringElement),
                &|value| matches!(value, Value::Strings(array) if array.iter().any(|element| element == text)),
            );
            let holds = |sentence: &str| words(sentence).any(|word| word == text);
            same_or_more(is_whole(view.text(field, Class::Word, text), Class::Word), &|value| match value {
                Value::String(sentence) => holds(sentence),
                Value::Strings(array) => array.iter().any(|sentence| holds(sentence)),
                _ => false,
            });
            same_or_more(
                view.text_range(field, Some((text, false)), None),
                &|value| matches!(value, Value::String(stored) if stored.as_str() > text),
            );
            let begins = |stored: &String| stored.starts_with(text);
            same_or_more((view.beginning_with(field, std::iter::once(text)), false), &|value| match value {
                Value::String(stored) => begins(stored),
                Value::Strings(array) => array.iter().any(begins),
                _ => false,
            });
        }
        let [south, west, north, east] = [-5.0, -20.0, 4.9, 170.0];
        let terms = view.geo_box(field, [south, west, north, east], false).unwrap();
        same(terms, &|value| {
            let &Value::Geo { lat, lon } = value else { return false };
            (south..=north).contains(&lat) && (west..=east).contains(&lon)
        });
    }
    // Two fields together.
    let a = Selection::Terms(view.number_range("a", Some((0.0, true)), None));
    let b = Selection::Terms(view.number_range("b", None, Some((1.0, true))));
    let (in_a, in_b) = (slots_of(&a), slots_of(&b));
    let both = Selection::All(vec![a.clone(), b.clone()]);
    let (walk, exact) = both.walk(usize::MAX).unwrap();
    let found: BTreeSet<Slot> = walk.rest(0, Slot::MAX).into_iter().collect();
    in_parts(&both, &found.iter().copied().collect::<Vec<_>>());
    let intersection: BTreeSet<Slot> = in_a.intersection(&in_b).copied().collect();
    assert!(found.is_superset(&intersection) && (!exact || found == intersection));
    let mut words = vec![0; 4096 / 64];
    both.mark(&mut words);
    assert_eq!(words.iter().map(|word| word.count_ones() as usize).sum::<usize>(), intersection.len());
    let union: BTreeSet<Slot> = in_a.union(&in_b).copied().collect();
    assert_eq!(slots_of(&Selection::Any(vec![a, b])), union);
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 80, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn an_index_agrees_with_its_rows(
        ops in prop::collection::vec((0..4000u32, any_payload()), 1..400), extent in any_extent(),
    ) {
        let domain = Domain::new(1);
        let seat = domain.participant(0);
        let index = PayloadIndex::with_extent(1 << 16, domain, extent);
        let mut twin = Twin::new();
        for (round, chunk) in ops.chunks(100).enumerate() {
            for (slot, payload) in chunk {
                // Slots near each other, taken out as often as they are filed.
                let slot = slot % 300;
                if let Some(payload) = twin.remove(&slot) {
                    index.remove(slot, PayloadRow::trusted(&row(&payload)));
                } else {
                    index.insert(slot, PayloadRow::trusted(&row(payload)));
                    twin.insert(slot, payload.clone());
                }
            }
            if round % 2 == 0 {
                index.reclaim(usize::MAX);
            }
            check(&index, &seat.pin(), &twin);
            // Columns that the check of the round before asked for, in slices between changes.
            let rows: BTreeMap<Slot, Vec<u8>> = twin.iter().map(|(&slot, payload)| (slot, row(payload))).collect();
            let row_of = |slot: Slot| PayloadRow::trusted(rows.get(&slot).map_or(&[][..], |row| row));
            (0..4 * round).for_each(|_| index.column_step(300, 120, row_of));
        }
        if ops.len() > 100 && ["a", "b"].iter().any(|field| !wanted(&twin, field, |value| number(value).is_some()).is_empty()) {
            prop_assert!(index.column_bytes() > 0);
        }
        index.drop_columns();
        prop_assert_eq!(index.column_bytes(), 0);
        for (slot, payload) in twin {
            index.remove(slot, PayloadRow::trusted(&row(&payload)));
        }
        index.reclaim(usize::MAX);
        prop_assert_eq!(index.bytes(), 0, "everything comes back");
    }
}

proptest! {
    /// What is in some of several sets at least, by walks, bits, bounds and shares, also where a set is all that another one leaves.
    #[test]
    fn some_of_several_sets_are_counted_slot_by_slot(
        sets in prop::collection::vec(prop::collection::btree_set(0..200u32, 0..120), 1..9),
        wanted in any::<prop::sample::Index>(),
        complements in 0..3usize,
    ) {
        let wanted = wanted.index(sets.len()) + 1;
        let part = |(place, set): (usize, &BTreeSet<Slot>)| {
            let listed = Selection::Listed(set.iter().copied().collect());
            if place < complements { Selection::Not(Box::new(listed)) } else { listed }
        };
        let parts: Vec<Selection<'_>> = sets.iter().enumerate().map(part).collect();
        let holds = |slot: &Slot| {
            let count = sets.iter().enumerate().filter(|(place, set)| set.contains(slot) != (*place < complements));
            count.count() >= wanted
        };
        let expected: BTreeSet<Slot> = (0..256).filter(holds).collect();
        let selection = Selection::at_least(wanted, parts.clone());
        let mut words = vec![0; 4];
        selection.mark(&mut words);
        prop_assert!((0..256u32).filter(|slot| words[*slot as usize / 64] >> (slot % 64) & 1 == 1).eq(expected.iter().copied()));
        prop_assert!(selection.at_most() >= expected.len() as u64);
        prop_assert_eq!(selection.has_complement(), complements > 0);
        match selection.walk(usize::MAX) {
            Some((walk, exact)) => {
                let found = BTreeSet::from_iter(walk.rest(0, 256));
                prop_assert!(found.is_superset(&expected) && (!exact || found == expected));
                prop_assert!(exact || complements > 0);
                in_parts(&selection, &found.into_iter().collect::<Vec<_>>());
            }
            None => prop_assert!(complements >= wanted),
        }
        // The chance of every combination of sets that has enough.
        let shares: Vec<f64> = parts.iter().map(|part| part.share(256)).collect();
        let chance = |chosen: usize| -> f64 {
            let of = |(place, share): (usize, &f64)| if chosen >> place & 1 == 1 { *share } else { 1.0 - share };
            shares.iter().enumerate().map(of).product()
        };
        let enough = (0..1usize << shares.len()).filter(|chosen| chosen.count_ones() as usize >= wanted);
        prop_assert!((selection.share(256) - enough.map(chance).sum::<f64>()).abs() < 1e-9);
    }
}

/// Where few slots can be in enough of several sets, a range of many values is not collected.
#[test]
fn what_is_in_some_of_several_sets_is_looked_up_in_the_smallest() {
    const SLOTS: Slot = 4000;
    let domain = Domain::new(1);
    let seat = domain.participant(0);
    let index = PayloadIndex::new(SLOTS as usize, domain);
    for slot in 0..SLOTS {
        index.insert(slot, PayloadRow::trusted(&row(&[("price", Value::Int(slot.into()))])));
    }
    let pin = seat.pin();
    let view = index.view(&pin);
    let every = view.number_range("price", Some((0.0, true)), None);
    let few = |slots: &[Slot]| Selection::Listed(slots.iter().copied().collect());
    let parts = vec![Selection::Terms(every), few(&[3, 5, 7]), few(&[5, 9])];
    let selection = Selection::at_least(2, parts);
    assert_eq!((selection.at_most(), selection.collected()), (5, 20));
    let (walk, exact) = selection.walk(64).expect("the range is not walked");
    let found: Vec<Slot> = walk.rest(0, SLOTS);
    assert!(!exact && [3, 5, 7, 9].iter().all(|slot| found.contains(slot)) && found.len() == 4, "{found:?}");
}

/// Buckets are bounded when there are numbers enough, and again and again as these move away, while rows come and go.
#[test]
fn columns_are_read_by_buckets_that_follow_their_numbers() {
    const SLOTS: Slot = 2048;
    let domain = Domain::new(1);
    let seat = domain.participant(0);
    let index = PayloadIndex::new(SLOTS as usize, domain);
    let mut rows: BTreeMap<Slot, (f64, Vec<u8>)> = BTreeMap::new();
    let mut random = 7u64;
    let mut bounded = BTreeSet::new();
    for step in 0..3000u64 {
        random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        let slot = (random >> 33) as Slot % SLOTS;
        if let Some((_, row)) = rows.remove(&slot) {
            index.remove(slot, PayloadRow::trusted(&row));
        }
        if random >> 20 & 3 > 0 {
            // Growing, as times do.
            let number = (step + (random >> 40) % 50) as f64;
            let value = if random >> 21 & 1 == 0 { Value::Float(number) } else { Value::Int(number as i64) };
            let row = row(&[("a", value)]);
            index.insert(slot, PayloadRow::trusted(&row));
            rows.insert(slot, (number, row));
        }
        let pin = seat.pin();
        let column = index.view(&pin).column("a");
        if step % 40 == 0
            && let Some(column) = column
        {
            let (low, high) = ((random >> 35) as f64 % 3000.0, (random >> 34) as f64 % 3000.0);
            let mut words = vec![u64::MAX; SLOTS as usize / 64];
            column.retain(&mut words, low, high);
            for slot in 0..SLOTS {
                let inside = rows.get(&slot).is_some_and(|(number, _)| *number >= low && *number <= high);
                assert_eq!(words[slot as usize / 64] >> (slot % 64) & 1 == 1, inside, "{slot} at {step}");
            }
            bounded.extend(column.buckets_at());
        }
        drop(pin);
        let row_of = |slot: Slot| PayloadRow::trusted(rows.get(&slot).map_or(&[][..], |(_, row)| row));
        if step % 3 == 0 && index.column_due().is_some() {
            index.column_step(SLOTS as usize, 300, row_of);
        }
        index.reclaim(usize::MAX);
    }
    assert!(bounded.len() >= if Buckets::pay() { 2 } else { 0 }, "bounded anew");
    index.drop_columns();
    for (slot, (_, row)) in &rows {
        index.remove(*slot, PayloadRow::trusted(row));
    }
    index.reclaim(usize::MAX);
    assert_eq!(index.bytes(), 0, "everything comes back");
}

#[test]
fn eight_fields_have_columns_and_the_unused_make_room() {
    let domain = Domain::new(1);
    let seat = domain.participant(0);
    let index = PayloadIndex::new(1 << 10, domain);
    let names: Vec<String> = (0..12).map(|n| format!("field{n}")).collect();
    let mut builder = RowBuilder::new();
    names.iter().for_each(|name| builder.set(name, Value::Int(7), 0));
    let row = builder.finish();
    index.insert(3, PayloadRow::trusted(&row));
    let pin = seat.pin();
    let has = |name: &str| index.view(&pin).column(name).is_some_and(|column| column.get(3) == Some(7.0));
    let build = || {
        (0..20).for_each(|_| {
            index.column_step(4, 2, |slot| PayloadRow::trusted(if slot == 3 { &row } else { &[] }))
        })
    };
    assert!(!has("nothing") && index.column_due().is_none());
    names[..8].iter().for_each(|name| assert!(!has(name)));
    assert_eq!(index.column_due(), Some(1));
    build();
    assert!(names[..8].iter().all(|name| has(name)) && index.column_due().is_none());
    let slot_bytes = if Buckets::pay() { 9 } else { 8 };
    assert_eq!(index.column_bytes(), 8 * slot_bytes * 4);
    // The first to come finds all in use and takes the place that the hand began at; the next spare those used since.
    assert!(!has(&names[8]));
    build();
    assert!(has(&names[8]) && index.view(&pin).column(&names[0]).is_none());
    assert_eq!(index.column_bytes(), 8 * slot_bytes * 4);
    index.remove(3, PayloadRow::trusted(&row));
    assert!(!has(&names[8]), "a field that is gone has no column");
}

#[test]
fn rows_that_expire_make_terms_inexact() {
    let domain = Domain::new(1);
    let seat = domain.participant(0);
    let index = PayloadIndex::new(1 << 16, domain);
    let mut builder = RowBuilder::new();
    builder.set("a", Value::Int(1), 99);
    let row = builder.finish();
    let pin = seat.pin();
    assert!(index.view(&pin).is_exact("a"));
    index.insert(7, PayloadRow::trusted(&row));
    assert!(!index.view(&pin).is_exact("a"));
    index.remove(7, PayloadRow::trusted(&row));
    assert!(index.view(&pin).is_exact("a") && !index.view(&pin).is_exact(&"long".repeat(20)));
}

#[test]
fn churn_leaves_no_bytes_behind() {
    let domain = Domain::new(1);
    let index = PayloadIndex::new(1 << 16, domain);
    let at = |n: u64| {
        row(&[
            ("unique", Value::Int(n as i64)),
            ("group", Value::Int((n % 7) as i64)),
            ("text", Value::String(format!("word{} of {}", n % 50, n))),
        ])
    };
    let mut most = 0;
    for n in 0..30_000u64 {
        if n >= 1000 {
            index.remove(((n - 1000) % 1009) as Slot, PayloadRow::trusted(&at(n - 1000)));
        }
        index.insert((n % 1009) as Slot, PayloadRow::trusted(&at(n)));
        index.reclaim(64);
        if n == 2000 {
            most = index.bytes();
        }
    }
    assert!(index.bytes() < most * 3 / 2, "{} after {most}", index.bytes());
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 120, failure_persistence: None, ..ProptestConfig::default() })]

    /// While a row waits for its readers the slot is found under its terms as well; then it is as if the newest had been alone.
    #[test]
    fn replaced_rows_keep_their_terms_until_they_are_released(
        ops in prop::collection::vec((0..5u32, 0..3u32, any_payload()), 1..60), extent in any_extent(),
    ) {
        let domain = Domain::new(1);
        let seat = domain.participant(0);
        let index = PayloadIndex::with_extent(1 << 10, domain, extent);
        // Per slot its rows, oldest first; the last is the newest.
        let mut rows: BTreeMap<Slot, Vec<Vec<(&'static str, Value)>>> = BTreeMap::new();
        let release = |slot: Slot, rows: &mut Vec<Vec<(&'static str, Value)>>| {
            let oldest = row(&rows.remove(0));
            let newer: Vec<Vec<u8>> = rows.iter().map(|payload| row(payload)).collect();
            let newer: Vec<PayloadRow<'_>> = newer.iter().map(|row| PayloadRow::trusted(row)).collect();
            index.release(slot, PayloadRow::trusted(&oldest), &newer);
        };
        for (slot, op, payload) in ops {
            let next = row(&payload);
            match rows.get_mut(&slot) {
                None => {
                    index.insert(slot, PayloadRow::trusted(&next));
                    rows.insert(slot, vec![payload]);
                }
                Some(rows) if op == 0 && rows.len() > 1 => release(slot, rows),
                Some(rows) => {
                    let replaced = index.replacements();
                    index.supersede(slot, PayloadRow::trusted(&row(rows.last().unwrap())), PayloadRow::trusted(&next));
                    rows.push(payload);
                    prop_assert!(index.replacements() != replaced);
                }
            }
            let pin = seat.pin();
            let view = index.view(&pin);
            prop_assert_eq!(view.is_settled(), rows.values().all(|rows| rows.len() == 1));
            for field in ["a", "b"] {
                let found = slots_of(&Selection::Terms(view.number_range(field, None, None)));
                let is_number = |value: &Value| number(value).is_some_and(|number| !number.is_nan());
                let any = |rows: &Vec<Vec<(&str, Value)>>| {
                    rows.iter().flatten().any(|(key, value)| *key == field && is_number(value))
                };
                let wanted: BTreeSet<Slot> =
                    rows.iter().filter(|(_, rows)| any(rows)).map(|(&slot, _)| slot).collect();
                prop_assert_eq!(found, wanted);
                let holds = |rows: &Vec<Vec<(&str, Value)>>| rows.iter().flatten().any(|(key, _)| *key == field);
                let wanted: BTreeSet<Slot> =
                    rows.iter().filter(|(_, rows)| holds(rows)).map(|(&slot, _)| slot).collect();
                prop_assert_eq!(slots_of(&Selection::Terms(view.holders(field))), wanted);
            }
        }
        for (&slot, rows) in &mut rows {
            while rows.len() > 1 {
                release(slot, rows);
            }
        }
        let twin: Twin = rows.into_iter().map(|(slot, mut rows)| (slot, rows.remove(0))).collect();
        check(&index, &seat.pin(), &twin);
        let all: BTreeMap<Slot, Vec<u8>> = twin.iter().map(|(&slot, payload)| (slot, row(payload))).collect();
        let row_of = |slot: Slot| PayloadRow::trusted(all.get(&slot).map_or(&[][..], |row| row));
        (0..4).for_each(|_| index.column_step(5, 5, row_of));
        check(&index, &seat.pin(), &twin);
        index.drop_columns();
        for (slot, row) in &all {
            index.remove(*slot, PayloadRow::trusted(row));
        }
        index.reclaim(usize::MAX);
        prop_assert_eq!(index.bytes(), 0, "everything comes back");
    }
}

/// One owner files and takes out; a slot below `STABLE` keeps its terms throughout and is found by every look-up.
#[test]
fn readers_find_what_stays_while_the_rest_changes() {
    const STABLE: u32 = 500;
    let domain = Domain::new(3);
    let index = PayloadIndex::new(1 << 16, domain.clone());
    let at = |slot: u32| {
        row(&[("group", Value::Int(i64::from(slot % 5))), ("unique", Value::Int(i64::from(slot)))])
    };
    for slot in 0..STABLE {
        index.insert(slot * 37, PayloadRow::trusted(&at(slot * 37)));
    }
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let readers: Vec<_> = (0..2)
            .map(|seat| {
                let (seat, index, stop) = (domain.participant(seat), &index, &stop);
                scope.spawn(move || {
                    let mut looks = 0;
                    while !stop.load(Ordering::Relaxed) || looks < 50 {
                        let pin = seat.pin();
                        let view = index.view(&pin);
                        for group in 0..5 {
                            let found = slots_of(&Selection::Terms(view.int("group", Class::Int, group).0));
                            let stay =
                                (0..STABLE).map(|n| n * 37).filter(|slot| i64::from(slot % 5) == group);
                            assert!(stay.into_iter().all(|slot| found.contains(&slot)));
                            assert!(found.iter().all(|slot| i64::from(slot % 5) == group));
                        }
                        let found = slots_of(&Selection::Terms(view.number_range(
                            "unique",
                            Some((100.0, true)),
                            Some((9000.0, true)),
                        )));
                        assert!(
                            (0..STABLE)
                                .map(|n| n * 37)
                                .filter(|n| (100..=9000).contains(n))
                                .all(|slot| found.contains(&slot))
                        );
                        assert!(found.iter().all(|slot| (100..=9000).contains(slot)));
                        looks += 1;
                    }
                })
            })
            .collect();
        let mut filed = BTreeSet::new();
        let mut state = 1u64;
        for step in 0..40_000 {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            let slot = (state >> 40) as u32 % 20_000;
            if slot.is_multiple_of(37) {
                continue;
            }
            if filed.remove(&slot) {
                index.remove(slot, PayloadRow::trusted(&at(slot)));
            } else {
                index.insert(slot, PayloadRow::trusted(&at(slot)));
                filed.insert(slot);
            }
            if step % 16 == 0 {
                index.reclaim(1000);
            }
        }
        stop.store(true, Ordering::Relaxed);
        readers.into_iter().for_each(|reader| reader.join().unwrap());
    });
}

/// All that is filed: of each field its weight, its holders and, class by class, the number of keys, the weight, and the slots of each term in
/// the order of the keys, with what the planner would expect of some ranges.
fn filed(index: &PayloadIndex, pin: &Pin<'_>) -> Vec<String> {
    let view = index.view(pin);
    let of_field = |name: &&str| {
        let holders = view.holders(name);
        let ranges =
            [(None, Some((0.0, true))), (Some((-1.0, false)), None), (Some((0.5, true)), Some((2.0, false)))];
        let expected: Vec<u64> =
            ranges
                .map(|(low, high)| Selection::Terms(view.number_range(name, low, high)).at_most())
                .into_iter()
                .chain(["a", "b", "x"].map(|text| {
                    Selection::Terms(view.text_range(name, Some((text, true)), None).0).at_most()
                }))
                .collect();
        let classes = [
            Class::String,
            Class::Int,
            Class::Float,
            Class::Bool,
            Class::StringElement,
            Class::IntElement,
            Class::FloatElement,
            Class::Word,
            Class::Cell,
            Class::Rest,
        ];
        let class = |class: Class| {
            let tree = view.tree(name, class)?;
            let mut terms: Vec<Vec<Slot>> = Vec::new();
            let mut visit = |postings: &Postings| {
                let mut slots = Vec::new();
                // SAFETY: the owner changes nothing meanwhile.
                unsafe { postings.cursor() }.for_each(|slot| slots.push(slot));
                terms.push(slots);
                std::ops::ControlFlow::Continue(())
            };
            // SAFETY: the owner is this thread, and it changes nothing while the tree is walked.
            let _ = unsafe { tree.for_each(&Span::default(), &mut visit) };
            Some((tree.keys(), tree.weight(), terms))
        };
        format!(
            "{name} {} {:?} {expected:?} {} {:?}",
            Selection::Terms(holders.clone()).at_most(),
            slots_of(&Selection::Terms(holders)),
            view.scalar_values(name),
            classes.map(class)
        )
    };
    ["a", "b", "c", CONTENT_KEY].iter().map(of_field).collect()
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 120, failure_persistence: None, ..ProptestConfig::default() })]

    /// Rows that are collected and filed together are filed as rows one by one are, and whatever comes later finds them so.
    #[test]
    fn rows_that_are_filed_together_are_as_if_filed_one_by_one(
        rows in prop::collection::vec((any_payload(), prop_oneof![6 => Just(0u64), 1 => Just(99u64)]), 0..400),
        ops in prop::collection::vec((0..500u32, any::<bool>(), any_payload()), 0..120),
        extent in any_extent(),
        max in 1..500usize,
    ) {
        let domain = Domain::new(1);
        let seat = domain.participant(0);
        let one_by_one = PayloadIndex::with_extent(1 << 10, domain.clone(), extent);
        let mut together = PayloadIndex::with_extent(1 << 10, domain, extent);
        // Keys of long texts are in one order.
        together.hasher = one_by_one.hasher.clone();
        let mut all: BTreeMap<Slot, Vec<u8>> = BTreeMap::new();
        for (slot, (payload, deadline_ms)) in rows.iter().enumerate() {
            let mut builder = RowBuilder::new();
            payload.iter().for_each(|(key, value)| builder.set(key, value.clone(), *deadline_ms));
            all.insert(slot as Slot, builder.finish());
        }
        for (&slot, row) in &all {
            one_by_one.insert(slot, PayloadRow::trusted(row));
            if together.collected().1 {
                while together.file_step(max) {}
                prop_assert_eq!(together.collected(), (false, false));
            }
            together.insert_later(slot, PayloadRow::trusted(row));
            together.reclaim(usize::MAX);
        }
        while together.file_step(max) {}
        prop_assert_eq!(together.collected(), (false, false));
        one_by_one.reclaim(usize::MAX);
        let same = || {
            let pin = seat.pin();
            assert_eq!(filed(&together, &pin), filed(&one_by_one, &pin));
            for field in ["a", "b", "c"] {
                assert_eq!(together.view(&pin).is_exact(field), one_by_one.view(&pin).is_exact(field));
            }
        };
        same();
        for (slot, replaces, payload) in ops {
            let next = row(&payload);
            let old = all.remove(&slot);
            for index in [&one_by_one, &together] {
                match &old {
                    Some(old) if replaces => {
                        let (old, new) = (PayloadRow::trusted(old), PayloadRow::trusted(&next));
                        index.supersede(slot, old, new);
                        index.release(slot, old, &[new]);
                    }
                    Some(old) => _ = index.remove(slot, PayloadRow::trusted(old)),
                    None => _ = index.insert(slot, PayloadRow::trusted(&next)),
                }
                index.reclaim(usize::MAX);
            }
            if old.is_none() || replaces {
                all.insert(slot, next);
            }
        }
        same();
        for (slot, row) in &all {
            for index in [&one_by_one, &together] {
                index.remove(*slot, PayloadRow::trusted(row));
            }
        }
        for index in [&one_by_one, &together] {
            index.reclaim(usize::MAX);
            prop_assert_eq!(index.bytes(), 0, "everything comes back");
        }
    }
}

/// However many rows come, and however unlike they are, what is collected of them stays below a bound.
#[test]
fn what_is_collected_is_bounded() {
    let domain = Domain::new(1);
    let index = PayloadIndex::new(1 << 16, domain);
    let (mut most, mut filings) = (0, 0);
    for slot in 0..5000 {
        let (name, text) = (format!("field {}", slot / 3), "long ".repeat(1 + slot as usize % 30));
        let mut builder = RowBuilder::new();
        builder.set(&name, Value::String(text), 0);
        builder.set("n", Value::Int(slot.into()), 0);
        index.insert_later(slot, PayloadRow::trusted(&builder.finish()));
        most = most.max(index.owner.enter().batch.bytes());
        if index.collected().1 {
            filings += 1;
            while index.file_step(64) {}
        }
    }
    assert!(filings > 50 && most < 64 << 10, "{filings} filings, {most} bytes");
}
