//! Sizes, times and keys at their limits.

use super::super::entry::Head;
use super::super::words::WORD;
use super::super::{Action, Config, Effect, Op, Reply, StoreError, VALUE_BYTES_MAX};
use super::bed::{Bed, NOW, config, get, put, store};

fn pattern(len: usize, salt: usize) -> Vec<u8> {
    (0..len).map(|at| (at.wrapping_mul(31) ^ (at >> 9) ^ salt) as u8).collect()
}

#[test]
fn values_of_all_sizes_whatever_the_page() {
    let mib = 1 << 20;
    // Pages of 1 MiB, 4 MiB and 64 MiB: values are in one entry, or mostly in pages of their own.
    for budget in [40 * mib, 64 * mib, 1024 * mib] {
        let (mut writer, view, seat) = store(Config::new(budget));
        let page = writer.stats().page_bytes;
        let mut sizes = vec![0, 1, 7, 8, 9, 63, 4096, mib, VALUE_BYTES_MAX - 1, VALUE_BYTES_MAX];
        sizes.extend([page / 2 - 40, page / 2 - 32, page / 2 - 31, page - 1, page, page + 1, 3 * page / 2]);
        for size in sizes.into_iter().filter(|&size| size <= VALUE_BYTES_MAX) {
            let value = pattern(size, 1);
            put(&mut writer, b"k", &value, 0, NOW);
            assert!(get(&view, &seat, b"k", NOW).unwrap() == value, "{size} bytes, pages of {page}");
            let other = pattern(size, 2);
            let cas = Op::Cas { key: b"k", value: &other, expected: Some(&value), ttl_ms: 0 };
            let prepared = writer.prepare(&cas, NOW).unwrap();
            assert_eq!(prepared.reply, Reply::Flag(true));
            writer.apply(&prepared.effect.unwrap(), NOW).unwrap();
            assert!(get(&view, &seat, b"k", NOW).unwrap() == other);
            assert_eq!(writer.stats().evictions_live, 0, "{size}");
        }
        let live = writer.stats().live_bytes;
        writer.apply(&Effect::Delete { key: b"k" }, NOW).unwrap();
        assert!(live > 0 && writer.stats().live_bytes == 0 && writer.stats().keys == 0);
    }
}

#[test]
fn keys_of_all_sizes() {
    let (mut writer, view, seat) = store(Config::new(16 << 20));
    let lengths = [0usize, 1, 7, 8, 9, 255, 256, 65_534, 65_535];
    for &len in &lengths {
        put(&mut writer, &pattern(len, 0), &pattern(len % 300, len), 0, NOW);
    }
    for &len in &lengths {
        assert_eq!(get(&view, &seat, &pattern(len, 0), NOW), Some(pattern(len % 300, len)), "{len}");
    }
    // Only the last byte differs, or the filling of the last word.
    assert_eq!(get(&view, &seat, &[0; 2], NOW), None);
    let mut almost = pattern(65_535, 0);
    *almost.last_mut().unwrap() ^= 1;
    assert_eq!(get(&view, &seat, &almost, NOW), None);
    let refused = writer.prepare(&Op::Put { key: &[0; 65_536], value: b"", ttl_ms: 0 }, NOW);
    assert!(matches!(refused, Err(StoreError::KeyTooLarge)));
}

#[test]
fn what_fits_no_store_is_refused_and_changes_nothing() {
    let (mut writer, view, seat) = store(config(16 << 10, 1024, 0));
    put(&mut writer, b"k", b"v", 0, NOW);
    let put_of = |len: usize| pattern(len, 0);
    let too_large = put_of(VALUE_BYTES_MAX + 1);
    let refused = writer.prepare(&Op::Put { key: b"k", value: &too_large, ttl_ms: 0 }, NOW);
    assert_eq!(refused.unwrap_err().to_string(), "value too large");
    let full = put_of(17 << 10);
    let refused = writer.prepare(&Op::Put { key: b"k", value: &full, ttl_ms: 0 }, NOW);
    assert_eq!(refused.unwrap_err().to_string(), "store full");
    assert_eq!(get(&view, &seat, b"k", NOW), Some(b"v".to_vec()));
    // All pages but the open one are a value's at most.
    let most = put_of(15 << 10);
    put(&mut writer, b"k", &most, 0, NOW);
    assert_eq!(get(&view, &seat, b"k", NOW), Some(most));
    put(&mut writer, b"j", b"w", 0, NOW);
    assert_eq!(get(&view, &seat, b"j", NOW), Some(b"w".to_vec()));
}

#[test]
fn layouts_waste_at_most_half_a_page() {
    for page_words in [64, 128, 1 << 17] {
        for value_len in (0..40_000).step_by(17).chain([1 << 20, VALUE_BYTES_MAX]) {
            for key_len in [0, 1, 30, 200] {
                let Some(head) = Head::layout(key_len, value_len, page_words) else {
                    assert!(3 + key_len.div_ceil(8) + value_len / (8 * page_words) >= page_words / 2 - 1);
                    continue;
                };
                assert_eq!((head.key_len(), head.value_len()), (key_len, value_len));
                assert!(head.words(page_words) <= page_words / 2);
                let in_bodies = value_len - head.inline_len(page_words);
                assert_eq!(in_bodies.div_ceil(page_words * WORD), head.bodies());
                let last = in_bodies % (page_words * WORD);
                let others = 3 + key_len.div_ceil(8) + head.bodies();
                assert!(last == 0 || last.div_ceil(8) + others > page_words / 2 - 1, "it would have fitted");
            }
        }
    }
}

#[test]
fn crafted_marks_do_not_confuse_keys() {
    // With every key in few buckets and of few marks, nearly every lookup meets others' entries first.
    let (mut writer, view, seat) = store(Config::new(16 << 20));
    let mut by_mark: std::collections::HashMap<u64, Vec<u64>> = Default::default();
    for n in 0..400_000u64 {
        let hash = view.hash_of(&n.to_le_bytes()).0;
        // 7 buckets' bits and the 16 of the mark.
        by_mark.entry(hash & 0x7F | hash >> 48 << 7).or_default().push(n);
    }
    let most = by_mark.values().max_by_key(|keys| keys.len()).unwrap();
    assert!(most.len() >= 3, "{most:?}");
    for &n in most {
        put(&mut writer, &n.to_le_bytes(), &(n * 3).to_le_bytes(), 0, NOW);
    }
    assert!(writer.stats().collisions > 0);
    for (index, &n) in most.iter().enumerate() {
        assert_eq!(get(&view, &seat, &n.to_le_bytes(), NOW), Some((n * 3).to_le_bytes().to_vec()));
        writer.apply(&Effect::Delete { key: &n.to_le_bytes() }, NOW).unwrap();
        assert_eq!(get(&view, &seat, &n.to_le_bytes(), NOW), None);
        assert!(most[index + 1..].iter().all(|n| get(&view, &seat, &n.to_le_bytes(), NOW).is_some()));
    }
}

#[test]
fn a_deadline_is_exact_for_everybody() {
    let (mut writer, view, seat) = store(Config::new(16 << 20));
    put(&mut writer, b"k", b"12345678", 100, NOW);
    let end = NOW + 100;
    assert!(get(&view, &seat, b"k", end - 1).is_some());
    assert_eq!(get(&view, &seat, b"k", end), None);
    for (op, reply) in [
        (Op::Del { key: b"k" }, Reply::Flag(false)),
        (Op::Expire { key: b"k", ttl_ms: 5 }, Reply::Missing),
        (Op::Persist { key: b"k" }, Reply::Flag(false)),
        (Op::GetDel { key: b"k" }, Reply::Value(None)),
        (Op::Cad { key: b"k", expected: b"12345678" }, Reply::Flag(false)),
        (Op::Caex { key: b"k", expected: b"12345678", ttl_ms: 0 }, Reply::Flag(false)),
    ] {
        let prepared = writer.prepare(&op, end).unwrap();
        assert_eq!((prepared.reply, prepared.effect), (reply, None), "{op:?}");
    }
    assert_eq!(writer.prepare(&Op::Incr { key: b"k", delta: 2 }, end).unwrap().reply, Reply::Number(2));
    let absent = Op::Cas { key: b"k", value: b"", expected: None, ttl_ms: 0 };
    assert_eq!(writer.prepare(&absent, end).unwrap().reply, Reply::Flag(true));
    let seen = writer.prepare_update(b"k", end, |found| (Action::Keep, found.is_some())).unwrap();
    assert!(!seen.reply);
}

#[test]
fn a_deadline_pushed_out_a_million_times_is_one_item() {
    let (mut writer, _, _) = store(Config::new(16 << 20));
    let ttl = 60_000;
    for n in 0..1_000_000u64 {
        let now = NOW + n;
        match n % 4 {
            0 => put(&mut writer, b"k", b"v", ttl, now),
            1 => writer.apply(&Effect::Deadline { key: b"k", deadline_ms: now + ttl }, now).unwrap(),
            // Shorter, longer and none.
            2 => writer.apply(&Effect::Deadline { key: b"k", deadline_ms: now + 10 }, now).unwrap(),
            _ => writer.apply(&Effect::Deadline { key: b"k", deadline_ms: 0 }, now).unwrap(),
        }
        if n % 1000 == 1 {
            writer.sweep(now, 100);
            assert_eq!((writer.stats().keys, writer.stats().keys_with_deadline), (1, 1));
        }
    }
    assert!(writer.stats().wheel_bytes < 200_000, "{}", writer.stats().wheel_bytes);
    // And keys that come with a distant end and go at once.
    for n in 0..200_000u64 {
        put(&mut writer, &n.to_le_bytes(), b"v", 1 << 40, NOW);
        writer.apply(&Effect::Delete { key: &n.to_le_bytes() }, NOW).unwrap();
    }
    assert!(writer.stats().wheel_bytes < 200_000, "{}", writer.stats().wheel_bytes);
}

#[test]
fn sweeping_costs_what_expires_and_stops_at_its_budget() {
    let (mut writer, _, _) = store(Config::new(64 << 20));
    for n in 0..10_000u64 {
        put(&mut writer, &n.to_le_bytes(), b"v", if n % 2 == 0 { 1000 + n } else { 1 << 30 }, NOW);
    }
    while writer.sweep(NOW + 999, 1) {}
    assert_eq!(writer.stats().expired, 0, "nothing is due");
    let mut calls = 0;
    while writer.sweep(NOW + 20_000, 500) {
        calls += 1;
    }
    assert_eq!((writer.stats().expired, writer.stats().keys), (5000, 5000));
    assert!((10..40).contains(&calls), "{calls}");
}

#[test]
fn a_clock_that_goes_back_loses_nothing() {
    let (mut writer, view, seat) = store(Config::new(16 << 20));
    writer.sweep(NOW, 100);
    let before = NOW - 3_600_000;
    put(&mut writer, b"k", b"v", 1000, before);
    while writer.sweep(before, 10) {}
    assert!(get(&view, &seat, b"k", before + 999).is_some());
    while writer.sweep(before + 1000, 10) {}
    assert!(get(&view, &seat, b"k", before + 1000).is_none(), "absent on time, though not freed yet");
    while writer.sweep(NOW + 1000, 10) {}
    assert_eq!(writer.stats().keys, 0);
}

#[test]
fn flushing_is_cheap_and_leaves_nothing() {
    let mut bed = Bed::new(config(32 << 20, 1 << 16, 7), true);
    for n in 0..100_000u64 {
        bed.run(Op::Put { key: &n.to_le_bytes(), value: &[7; 40], ttl_ms: n % 3 * 1000 });
    }
    let before = bed.writer.stats();
    let mut cursor = bed.writer.snapshot();
    assert!(bed.writer.snapshot_step(&mut cursor, NOW, 1000, |_, _, _| {}));
    bed.run(Op::Flush);
    assert!(!bed.writer.snapshot_step(&mut cursor, NOW, 1000, |_, _, _| unreachable!("an earlier era")));
    let after = bed.writer.stats();
    assert_eq!((after.keys, after.live_bytes, after.keys_with_deadline), (0, 0, 0));
    assert!(after.table_bytes >= before.table_bytes && after.wheel_bytes >= before.wheel_bytes, "not yet");
    let mut slices = 0;
    while bed.writer.tidy() {
        slices += 1;
    }
    assert!(slices >= 3, "{slices}");
    let tidied = bed.writer.stats();
    assert!(tidied.table_bytes < 1000 && tidied.wheel_bytes < 10_000, "{tidied:?}");
    bed.run(Op::Put { key: b"k", value: b"v", ttl_ms: 0 });
    bed.check_all(&[b"k".to_vec(), 5u64.to_le_bytes().to_vec()]);
    for _ in 0..1000 {
        bed.run(Op::Flush);
    }
    while bed.writer.tidy() {}
}

/// A page without memory is not written unless somebody grants it; a store that is refused evicts as it does at its budget, and one that
/// has no page at all is full.
#[test]
fn pages_get_memory_as_it_is_granted() {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
    for knobs in 0..8 {
        let (mut writer, view, seat) = store(config(64 << 10, 1024, knobs));
        let granted = Arc::new(AtomicUsize::new(0));
        let left = granted.clone();
        writer.grow_with(Arc::new(move |bytes| {
            assert_eq!(bytes, 1024);
            left.fetch_update(Relaxed, Relaxed, |left| left.checked_sub(1)).is_ok()
        }));
        let refused = writer.prepare(&Op::Put { key: b"k", value: b"v", ttl_ms: 0 }, NOW).unwrap_err();
        assert!(matches!(refused, StoreError::Full), "{refused:?}");
        let mut all = 0;
        for pages in [4, 9, 0] {
            granted.store(pages, Relaxed);
            all += pages;
            for n in 0..1000u32 {
                put(&mut writer, &n.to_be_bytes(), &pattern(60, n as usize), 0, NOW);
                let stats = writer.stats();
                assert!(stats.pages_allocated <= all + 2, "{stats:?}, {all} granted");
                assert_eq!(get(&view, &seat, &n.to_be_bytes(), NOW).unwrap(), pattern(60, n as usize));
            }
            let stats = writer.stats();
            assert!(stats.evictions_live > 0 && stats.pages_allocated >= all, "{stats:?}");
            assert_eq!(granted.load(Relaxed), 0, "it takes what there is");
        }
    }
}
