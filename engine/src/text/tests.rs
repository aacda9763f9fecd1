//! The index against a scan, and readers beside a writer.

use super::*;
use crate::memory::Domain;
use crate::postings::test_bed::{Bed, Rng, Stopper, best, plain};
use proptest::prelude::*;
use std::collections::HashMap;
use std::sync::atomic::AtomicBool;

/// Words no stemmer changes.
fn word(index: u64) -> String {
    format!("{}{}x{index}", (b'b' + (index % 7) as u8) as char, (b'k' + (index % 5) as u8) as char)
}

fn text(rng: &mut Rng, vocabulary: u64, longest: u64) -> String {
    let length = rng.skewed(longest + 1);
    let words: Vec<String> = (0..length)
        .map(|_| if rng.below(10) == 0 { "the".to_owned() } else { word(rng.skewed(vocabulary)) })
        .collect();
    words.join(" ")
}

struct Document {
    terms: HashMap<String, u32>,
    length: u32,
}

fn document(text: &str) -> Document {
    let mut terms = HashMap::new();
    let kept: Vec<&str> = text.split(' ').filter(|word| !word.is_empty() && *word != "the").collect();
    for word in &kept {
        *terms.entry((*word).to_owned()).or_insert(0) += 1;
    }
    Document { terms, length: kept.len() as u32 }
}

/// Documents of the twin, analyzed once per search.
fn twin(
    points: &HashMap<u64, (Slot, String)>,
    query: &TextQuery,
    stats: Option<&TextStats>,
    config: TextConfig,
    k: usize,
    keep: impl Fn(u64) -> bool,
) -> Vec<(u64, f32)> {
    let own = twin_stats(points, query);
    let stats = stats.unwrap_or(&own);
    let saturation = Saturation::new(config.k1, config.b, stats.docs, stats.tokens);
    let mut hits = Vec::new();
    for (&id, (_, text)) in points.iter().filter(|(id, _)| keep(**id)) {
        let document = document(text);
        let mut touched = false;
        let mut score = 0.0f64;
        for (at, term) in query.terms().iter().enumerate() {
            if let Some(&tf) = document.terms.get(&**term) {
                let weight = saturation.weight(idf(stats.docs, stats.df[at]));
                score += f64::from(saturation.score(weight, tf, document.length));
                touched = true;
            }
        }
        if touched {
            hits.push((id, score as f32));
        }
    }
    best(hits, k)
}

fn twin_stats(points: &HashMap<u64, (Slot, String)>, query: &TextQuery) -> TextStats {
    let mut stats = TextStats { docs: 0, tokens: 0, df: vec![0; query.terms().len()] };
    for (_, text) in points.values() {
        let document = document(text);
        stats.docs += u64::from(document.length > 0);
        stats.tokens += u64::from(document.length);
        for (df, term) in stats.df.iter_mut().zip(query.terms()) {
            *df += u64::from(document.terms.contains_key(&**term));
        }
    }
    stats
}

/// Has a task done in pieces.
fn do_later(writer: &mut TextWriter, slot: Slot, task: Task, text: &str) {
    writer.later(slot, task, text);
    while writer.step() {}
    assert!(!writer.has_waiting());
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(32))]

    /// Any history of writes: statistics are those of the live documents at every moment, and searches find what a scan
    /// finds, bit for bit, with their own statistics and with foreign ones; also when terms' hashes collide.
    #[test]
    fn searches_equal_scans(
        seed: u64,
        ids in 1u64..1500,
        vocabulary in 1u64..200,
        longest in 1u64..25,
        hash_bits in prop_oneof![Just(u64::MAX), Just(0xFu64)],
        (k1, b) in prop_oneof![Just((0.0f32, 0.0f32)), (0.1f32..3.0, 0.1f32..1.0)],
        steps in 1usize..3000,
    ) {
        let mut rng = Rng(seed);
        let domain = Domain::new(2);
        let (old_seat, seat) = (domain.participant(0), domain.participant(1));
        let config = TextConfig { k1, b, ..TextConfig::default() };
        let mut writer = TextWriter::with_hash_bits(config, domain.clone(), seed, hash_bits);
        let index = writer.shared().clone();
        let config = config.effective();
        let mut bed: Bed<String> = Bed::new(domain.clone(), 20_000);
        let lives = bed.lives.clone();
        let mut scratch = LaneScratch::default();
        let mut out = Vec::new();
        let mut old = None;
        for step in 0..steps {
            let id = rng.below(ids);
            let replaced = if rng.below(4) == 0 {
                bed.delete(id)
            } else {
                let text = text(&mut rng, vocabulary, longest);
                let length = document(&text).length;
                bed.put(&mut rng, id, text, |slot, text| match length % 3 {
                    0 => do_later(&mut writer, slot, Task::Insert, text),
                    _ => assert_eq!(writer.insert(slot, text), length),
                })
            };
            // Sometimes forgotten late, by `remove`.
            let mut late = replaced.filter(|(slot, text)| match rng.below(4) {
                0 => true,
                1 => { do_later(&mut writer, *slot, Task::Forget, text); false }
                _ => { writer.forget(*slot, text); false }
            });
            if rng.below(8) == 0 {
                bed.reclaim(|slot, text| match text.len() % 2 {
                    0 => {
                        do_later(&mut writer, slot, Task::Remove, text);
                        assert_eq!(writer.take_removed(), [slot]);
                    }
                    _ => assert_eq!(writer.remove(slot, text), document(text).length > 0),
                });
            }
            if let Some((slot, text)) = late.take() {
                writer.forget(slot, &text);
                prop_assert!(!writer.forget(slot, &text));
            }
            if rng.below(400) == 0 {
                drop(old.take());
                let pin = old_seat.pin();
                old = Some((pin, lives.snapshot(), bed.points.clone()));
            }
            if step + 1 < steps && rng.below(200) != 0 {
                continue;
            }
            let query = TextQuery::new(Analyzer::English, &text(&mut rng, vocabulary, 8));
            let k = [1, 3, 10, 100, 5000][rng.below(5) as usize];
            let modulus = 1 + rng.below(3);
            let pin = seat.pin();
            let now = lives.snapshot();
            let stats = index.text_stats(&pin, &query);
            prop_assert_eq!(&stats, &twin_stats(&bed.points, &query));
            let mut foreign = stats.clone();
            foreign.add(&TextStats { docs: 1000, tokens: 9000, df: stats.df.iter().map(|df| df % 7).collect() });
            let foreign = (rng.below(2) == 0).then_some(&foreign);
            let admit = |slot| lives.admits(slot, now) && lives.id(slot).is_multiple_of(modulus);
            let search = LaneSearch { k, admit, id_of: |slot| lives.id(slot), scratch: &mut scratch, out: &mut out };
            index.search(&pin, &query, foreign, search);
            let found = plain(&out);
            prop_assert_eq!(found, twin(&bed.points, &query, foreign, config, k, |id| id.is_multiple_of(modulus)));
            if let Some((pin, then, points)) = &old {
                // The documents of then under the statistics of now.
                let stats = foreign.unwrap_or(&stats);
                if stats.docs > 0 {
                    let admit = |slot| lives.admits(slot, *then);
                    let search = LaneSearch { k, admit, id_of: |slot| lives.id(slot), scratch: &mut scratch, out: &mut out };
                    index.search(pin, &query, Some(stats), search);
                    prop_assert_eq!(plain(&out), twin(points, &query, Some(stats), config, k, |_| true));
                }
            }
        }
        drop(old);
        let ids: Vec<u64> = bed.points.keys().copied().collect();
        for id in ids {
            bed.delete(id);
        }
        bed.reclaim(|slot, text| { writer.remove(slot, text); });
        let stats = index.stats();
        prop_assert_eq!((stats.docs, stats.tokens), (0, 0));
        if hash_bits == u64::MAX {
            prop_assert_eq!(stats.terms, 0);
        }
    }
}

/// A text of the most tokens, all different, is filed, forgotten, recalled and taken out in pieces of a bounded number of terms, and what is
/// put off for other slots meanwhile comes after it.
#[test]
fn long_documents_come_in_pieces() {
    let domain = Domain::new(1);
    let mut writer = TextWriter::new(TextConfig::default(), domain.clone(), 1);
    let words = 100_000;
    let long: String = (0..words).map(|at| word(at) + " ").collect();
    let steps = |writer: &mut TextWriter| (0..).take_while(|_| writer.step()).count();
    writer.later(3, Task::Insert, &long);
    writer.later(4, Task::Insert, "river");
    assert!(writer.has_document(3) && writer.has_document(4) && !writer.has_document(5));
    let took = steps(&mut writer);
    assert!((600..3000).contains(&took), "{took} steps");
    let figures = |writer: &TextWriter| {
        let stats = writer.shared().stats();
        (stats.docs, stats.tokens, stats.terms)
    };
    assert_eq!(figures(&writer), (2, words + 1, words + 1));
    // What is so already is not put off.
    writer.later(3, Task::Recall, &long);
    assert!(!writer.has_waiting());
    writer.later(3, Task::Forget, &long);
    writer.later(3, Task::Recall, &long);
    writer.later(3, Task::Forget, &long);
    steps(&mut writer);
    assert_eq!(figures(&writer), (1, 1, words + 1));
    writer.later(3, Task::Remove, &long);
    writer.later(4, Task::Retract, "river");
    steps(&mut writer);
    assert_eq!((figures(&writer), writer.take_removed()), ((0, 0, 0), vec![3]));
}

#[test]
fn ranks_as_bm25_does() {
    let domain = Domain::new(1);
    let seat = domain.participant(0);
    let mut writer = TextWriter::new(TextConfig::default(), domain.clone(), 1);
    for (slot, text) in [
        "The quick brown fox jumps over the lazy dog",
        "A fox is a fox, and foxes are quick.",
        "Nothing of interest",
        "dogs",
        "",
        "it was there",
    ]
    .iter()
    .enumerate()
    {
        writer.insert(slot as Slot, text);
    }
    let index = writer.shared().clone();
    let (mut scratch, mut out) = (LaneScratch::default(), Vec::new());
    let mut ids = |query: &str| {
        let query = TextQuery::new(Analyzer::English, query);
        index.search(
            &seat.pin(),
            &query,
            None,
            LaneSearch { k: 10, admit: |_| true, id_of: u64::from, scratch: &mut scratch, out: &mut out },
        );
        out.iter().map(|hit| hit.id).collect::<Vec<_>>()
    };
    assert_eq!(ids("fox"), [1, 0]);
    assert_eq!(ids("Quick dog!"), [0, 3, 1]);
    assert_eq!(ids("the"), [0u64; 0]);
    assert_eq!(ids("unicorn"), [0u64; 0]);
    assert_eq!(index.stats().docs, 4);
}

/// Between two looks at a list it may have been given to another term.
#[test]
fn a_list_stands_for_a_prefix_by_the_name_that_it_has_now() {
    let domain = Domain::new(1);
    let seat = domain.participant(0);
    let mut writer = TextWriter::new(TextConfig::default(), domain.clone(), 1);
    writer.insert(0, "river stone");
    let (pin, index) = (seat.pin(), writer.shared());
    let list = |term: &str| index.dictionary.find(&pin, &index.lists, term).unwrap();
    let named = |list, prefix: &str| index.term_beginning_with(&pin, list, &[prefix]);
    assert_eq!(named(list("river"), "riv"), Some("river".into()));
    assert_eq!(named(list("stone"), "riv"), None);
}

#[test]
fn statistics_of_parts_add_up_to_the_whole() {
    let domain = Domain::new(1);
    let seat = domain.participant(0);
    let mut rng = Rng(8);
    let mut whole = TextWriter::new(TextConfig::default(), domain.clone(), 1);
    let mut parts: Vec<TextWriter> =
        (0..3).map(|seed| TextWriter::new(TextConfig::default(), domain.clone(), seed)).collect();
    for slot in 0..900 {
        let text = text(&mut rng, 60, 12);
        whole.insert(slot, &text);
        parts[slot as usize % 3].insert(slot, &text);
    }
    let (mut scratch, mut out) = (LaneScratch::default(), Vec::new());
    for _ in 0..30 {
        let query = TextQuery::new(Analyzer::English, &text(&mut rng, 60, 6));
        let pin = seat.pin();
        let mut stats = TextStats::default();
        parts.iter().for_each(|part| stats.add(&part.shared().text_stats(&pin, &query)));
        let mut merged = Vec::new();
        for part in &parts {
            let index = part.shared();
            index.search(
                &pin,
                &query,
                Some(&stats),
                LaneSearch { k: 10, admit: |_| true, id_of: u64::from, scratch: &mut scratch, out: &mut out },
            );
            merged.extend(plain(&out));
        }
        whole.shared().search(
            &pin,
            &query,
            None,
            LaneSearch { k: 10, admit: |_| true, id_of: u64::from, scratch: &mut scratch, out: &mut out },
        );
        assert_eq!(best(merged, 10), plain(&out));
    }
}

#[test]
fn memory_does_not_grow_under_churn() {
    let domain = Domain::new(1);
    let mut writer = TextWriter::new(TextConfig::default(), domain.clone(), 1);
    let mut bed: Bed<String> = Bed::new(domain.clone(), 10_000);
    let mut rng = Rng(3);
    let mut settled = 0;
    for round in 0..30 {
        for _ in 0..3000 {
            let id = rng.below(3000);
            // Each round has words of its own beside the common ones.
            let text =
                format!("{} {}", text(&mut rng, 2000, 20), word(100_000 + round * 500 + rng.below(500)));
            bed.put(&mut rng, id, text, |slot, text| {
                writer.insert(slot, text);
            });
            bed.reclaim(|slot, text| assert!(writer.remove(slot, text)));
        }
        writer.reclaim();
        if round == 10 {
            settled = writer.shared().bytes();
        }
    }
    let bytes = writer.shared().bytes();
    assert!(bytes < settled * 5 / 4, "{settled} bytes after ten rounds, {bytes} after thirty");
}

#[test]
#[should_panic(expected = "slot 2 still has a document")]
fn a_slot_is_emptied_before_it_is_filled_again() {
    let mut writer = TextWriter::new(TextConfig::default(), Domain::new(1), 1);
    writer.insert(2, "first");
    writer.insert(2, "second");
}

/// Readers on other threads: each document is found exactly once by its own word while it moves from slot to slot and words
/// come and go around it.
#[test]
fn readers_find_each_document_once_while_it_moves() {
    const IDS: u64 = 200;
    let domain = Domain::new(3);
    let mut writer = TextWriter::new(TextConfig::default(), domain.clone(), 9);
    let mut bed: Bed<String> = Bed::new(domain.clone(), 60_000);
    let lives = bed.lives.clone();
    let mut rng = Rng(77);
    let make = |rng: &mut Rng, id: u64| format!("common {} own{id}", text(rng, 300, 6));
    for id in 0..IDS {
        let text = make(&mut rng, id);
        bed.put(&mut rng, id, text, |slot, text| {
            writer.insert(slot, text);
        });
    }
    let index = writer.shared().clone();
    let stop = AtomicBool::new(false);
    let searches = AtomicU64::new(0);
    std::thread::scope(|scope| {
        for reader in 0..2 {
            let (seat, index, lives) = (domain.participant(reader), index.clone(), lives.clone());
            let (stop, searches) = (&stop, &searches);
            scope.spawn(move || {
                let mut rng = Rng(1000 + reader as u64);
                let (mut scratch, mut out) = (LaneScratch::default(), Vec::new());
                while !stop.load(Ordering::Relaxed) {
                    let id = rng.below(IDS);
                    let own = TextQuery::new(Analyzer::English, &format!("own{id}"));
                    let all = TextQuery::new(
                        Analyzer::English,
                        &format!("common own{id} {}", word(rng.below(300))),
                    );
                    let pin = seat.pin();
                    let now = lives.snapshot();
                    let admit = |slot| lives.admits(slot, now);
                    index.search(
                        &pin,
                        &own,
                        None,
                        LaneSearch {
                            k: 5,
                            admit,
                            id_of: |slot| lives.id(slot),
                            scratch: &mut scratch,
                            out: &mut out,
                        },
                    );
                    assert_eq!(out.iter().map(|hit| hit.id).collect::<Vec<_>>(), [id]);
                    let k = if rng.below(4) == 0 { 1000 } else { 10 };
                    index.search(
                        &pin,
                        &all,
                        None,
                        LaneSearch {
                            k,
                            admit,
                            id_of: |slot| lives.id(slot),
                            scratch: &mut scratch,
                            out: &mut out,
                        },
                    );
                    assert_eq!(out.len(), k.min(IDS as usize));
                    assert!(k == 10 || out.iter().any(|hit| hit.id == id));
                    let mut ids: Vec<u64> = out.iter().map(|hit| hit.id).collect();
                    ids.sort_unstable();
                    ids.dedup();
                    assert_eq!(ids.len(), out.len(), "an id twice");
                    assert!(out.iter().all(|hit| hit.score.is_finite()));
                    searches.fetch_add(1, Ordering::Relaxed);
                }
            });
        }
        let stopper = Stopper(&stop);
        let mut writes = 0;
        while searches.load(Ordering::Relaxed) < 3000 && writes < 3_000_000 && bed.slots_used() < 50_000 {
            writes += 1;
            let id = rng.below(IDS);
            let text = make(&mut rng, id);
            if let Some((slot, text)) = bed.put(&mut rng, id, text, |slot, text| {
                writer.insert(slot, text);
            }) {
                writer.forget(slot, &text);
            }
            bed.reclaim(|slot, text| assert!(writer.remove(slot, text)));
        }
        drop(stopper);
    });
    assert_eq!(index.stats().docs, IDS);
}
