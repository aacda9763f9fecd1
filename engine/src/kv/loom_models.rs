//! Models of what readers and the owner of a store do at the same time; see `memory::loom_models` for how they run.
//!
//! `RUSTFLAGS="--cfg loom" cargo test -p nigh-engine --release --lib loom_kv`

use super::entry::{Entry, Head};
use super::index::Index;
use super::table::EntryOffset;
use super::words::{append_bytes, store_bytes};
use super::{Config, KeyHasher, Op, Read, Writer};
use crate::memory::Domain;
use loom::sync::atomic::AtomicU64;
use loom::thread;
use std::sync::Arc;

fn model(preemptions: usize, body: impl Fn() + Sync + Send + 'static) {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound.get_or_insert(preemptions);
    builder.check(body);
}

const PAGE_WORDS: usize = 64;

fn value_of(version: u8) -> [u8; 16] {
    [version; 16]
}

/// A reader copies a value of two words, and its deadline, while the owner rewrites both.
#[test]
fn loom_kv_a_rewritten_value_is_never_torn() {
    model(3, || {
        let head = Head::layout(1, 16, PAGE_WORDS).unwrap();
        let cells: Arc<[AtomicU64]> = (0..head.words(PAGE_WORDS)).map(|_| AtomicU64::new(0)).collect();
        let entry = Entry::new(head, &cells);
        entry.write(b"k", 1, 5);
        store_bytes(entry.value(), &value_of(1));
        let reading = {
            let cells = cells.clone();
            thread::spawn(move || {
                let entry = Entry::new(head, &cells);
                let (_, read) = entry.read(|| {
                    let mut value = Vec::new();
                    append_bytes(entry.value(), 16, &mut value);
                    (value, entry.deadline_ms())
                });
                if let Ok((value, deadline_ms)) = read {
                    assert!(
                        value.iter().all(|&byte| u64::from(byte) == deadline_ms),
                        "{value:?} {deadline_ms}"
                    );
                }
            })
        };
        entry.rewrite(&value_of(2), 2, 5);
        entry.rewrite(&value_of(3), 3, 6);
        reading.join().unwrap();
        assert_eq!((entry.timer(), entry.deadline_ms()), (6, 3));
    });
}

/// Keys by place. Bucket 0 splits into 0 and 1, then 0 into 0 and 2: of the first three, each ends in another bucket.
const HASHES: [u64; 10] = [0b00, 0b01, 0b10, 0b100, 0b1000, 0b1100, 0b11, 0b10000, 0b101, 0b110];

fn hash_of(place: EntryOffset) -> u64 {
    HASHES[place as usize]
}

fn filled(domain: &Arc<Domain>, keys: EntryOffset) -> Index {
    let mut index = Index::new(0, domain.clone()).unwrap();
    // The bucket is not split before the model says so.
    (0..keys).for_each(|place| index.insert_without_split(hash_of(place), place));
    index
}

/// A reader looks for keys that are there all the time while their bucket is split twice.
#[test]
fn loom_kv_a_split_hides_no_key() {
    model(2, || {
        let domain = Domain::new(1);
        let mut index = filled(&domain, 3);
        let reading = {
            let (table, reader) = (index.table().clone(), domain.participant(0));
            thread::spawn(move || {
                let _pin = reader.pin();
                for place in [1, 2] {
                    let found = table.find(hash_of(place), |found| (found == place).then_some(()));
                    assert!(found.is_some(), "key {place}");
                }
            })
        };
        index.split(hash_of);
        index.split(hash_of);
        reading.join().unwrap();
    });
}

/// The bucket has an overflow bucket, which a split empties and takes out, and which is used again at once where no reader is in
/// it. The reader's key is in it until the split, and in the other bucket afterwards.
#[test]
fn loom_kv_an_overflow_bucket_is_not_reused_under_a_reader() {
    model(2, || {
        let domain = Domain::new(1);
        let mut index = Index::new(0, domain.clone()).unwrap();
        // Bucket 0 keeps seven, and what lies in the overflow bucket goes to bucket 1.
        let hash_of = |place: EntryOffset| if place < 7 { place << 1 } else { place << 1 | 1 };
        (0..8).for_each(|place| index.insert_without_split(hash_of(place), place));
        let reading = {
            let (table, reader) = (index.table().clone(), domain.participant(0));
            thread::spawn(move || {
                let _pin = reader.pin();
                assert!(table.find(hash_of(7), |found| (found == 7).then_some(())).is_some());
            })
        };
        index.split(hash_of);
        // An eighth key of bucket 0: it needs an overflow bucket.
        index.insert_without_split(16, 8);
        reading.join().unwrap();
        assert!(index.table().find(16, |found| (found == 8).then_some(())).is_some());
    });
}

/// The whole way: a key is replaced, its page emptied and written again, while a reader gets it.
#[test]
fn loom_kv_pages_are_not_reused_under_a_reader() {
    model(2, || {
        let domain = Domain::new(1);
        let config = Config { page_bytes_min: 512, ..Config::new(1024) };
        let mut writer = Writer::new(config, KeyHasher::new(1), domain.clone()).unwrap();
        let put = |writer: &mut Writer, key: &[u8], byte: u8| {
            let value = [byte; 200];
            let prepared = writer.prepare(&Op::Put { key, value: &value, ttl_ms: 0 }, 1).unwrap();
            writer.apply(&prepared.effect.unwrap(), 1).unwrap();
        };
        put(&mut writer, b"a", 1);
        let reading = {
            let (view, reader) = (writer.view(), domain.participant(0));
            thread::spawn(move || {
                let pin = reader.pin();
                let mut value = Vec::new();
                match view.get(&pin, view.hash_of(b"a"), b"a", 1, &mut value) {
                    Read::Found { .. } => assert!(value == [1; 200] || value == [2; 200], "{value:?}"),
                    Read::Missing => {}
                    Read::Contended => unreachable!(),
                }
            })
        };
        for (key, byte) in [(b"a", 2), (b"b", 3), (b"c", 4), (b"d", 5), (b"e", 6)] {
            put(&mut writer, key, byte);
        }
        reading.join().unwrap();
    });
}

/// A reader gets a key while the store is emptied, and the memory of what was there is written again.
#[test]
fn loom_kv_a_flush_leaves_readers_what_they_have_found() {
    model(2, || {
        let domain = Domain::new(1);
        let config = Config { page_bytes_min: 512, ..Config::new(1024) };
        let mut writer = Writer::new(config, KeyHasher::new(1), domain.clone()).unwrap();
        let run = |writer: &mut Writer, op: Op<'_>| {
            let prepared = writer.prepare(&op, 1).unwrap();
            writer.apply(&prepared.effect.unwrap(), 1).unwrap();
        };
        let put = |writer: &mut Writer, key: &[u8], byte: u8| {
            run(writer, Op::Put { key, value: &[byte; 200], ttl_ms: 0 });
        };
        // The first page is full when the flush comes, and closed.
        put(&mut writer, b"a", 1);
        put(&mut writer, b"b", 2);
        put(&mut writer, b"c", 3);
        let reading = {
            let (view, reader) = (writer.view(), domain.participant(0));
            thread::spawn(move || {
                let pin = reader.pin();
                let mut value = Vec::new();
                match view.get(&pin, view.hash_of(b"a"), b"a", 1, &mut value) {
                    Read::Found { .. } => assert!(value == [1; 200] || value == [9; 200], "{value:?}"),
                    Read::Missing => assert!(value.is_empty()),
                    Read::Contended => unreachable!(),
                }
            })
        };
        run(&mut writer, Op::Flush);
        for byte in 5..10 {
            put(&mut writer, if byte == 9 { b"a" } else { b"d" }, byte);
        }
        reading.join().unwrap();
        while writer.tidy() {}
        assert_eq!(writer.stats().keys, 2);
    });
}
