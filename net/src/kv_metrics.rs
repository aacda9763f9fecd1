//! The metrics of keys and values: names that existing readers know, one integer each and no label.

use crate::exposition::Page;
use nigh_shard::kv::KeysStats;

type Value = fn(&KeysStats) -> u64;

/// What this engine has no such thing of.
const NOTHING: Value = |_| 0;

const COUNTERS: [(&str, &str, Value); 27] = [
    ("gets_total", "Reads of values.", |s| s.gets),
    ("hits_total", "Reads that found a value.", |s| s.hits),
    ("misses_total", "Reads that found no value.", |s| s.gets.saturating_sub(s.hits)),
    ("puts_total", "Values set, and attempts refused for lack of room.", |s| s.store.sets + s.store.rejects),
    ("dels_total", "Keys removed by an operation.", |s| s.store.deletes),
    ("expirations_total", "Expired keys removed.", |s| s.store.expired),
    ("evictions_total", "Keys evicted to make room, including expired keys.", |s| s.store.evictions),
    ("evictions_live_total", "Keys that had not expired and were evicted to make room.", |s| {
        s.store.evictions_live
    }),
    ("rejects_total", "Writes refused for lack of room.", |s| s.store.rejects),
    ("eviction_relocations_total", "Records copied out of pages that were emptied to make room.", |s| {
        s.store.eviction_relocations
    }),
    (
        "eviction_bytes_relocated_total",
        "Bytes of records copied out of pages that were emptied to make room.",
        |s| s.store.eviction_bytes_relocated,
    ),
    ("reserve_relocations_total", "Records copied ahead of need to keep pages free.", |s| {
        s.store.reserve_relocations
    }),
    ("reserve_bytes_relocated_total", "Bytes of records copied ahead of need to keep pages free.", |s| {
        s.store.reserve_bytes_relocated
    }),
    ("reserve_pages_freed_total", "Pages freed by copying records ahead of need.", |s| {
        s.store.reserve_pages_freed
    }),
    ("inplace_updates_total", "Values overwritten in place.", |s| s.store.in_place_updates),
    ("seqlock_retries_total", "Reads that were repeated because the value was being overwritten.", |s| {
        s.store.read_retries
    }),
    ("seqlock_fallbacks_total", "Reads that asked the owner of the key after too many repetitions.", |s| {
        s.store.read_fallbacks
    }),
    ("corruption_errors_total", "Damaged records found.", |s| s.corruption_errors),
    ("corruption_bytes_discarded_total", "Bytes skipped as damaged.", |s| s.corruption_bytes),
    ("compactions_total", "Images of all keys written.", |s| s.compactions),
    ("compactions_aborted_total", "Images of keys that could not be completed.", |s| s.compactions_aborted),
    (
        "compaction_bytes_reclaimed_total",
        "Bytes of older images that images of all keys have replaced.",
        |s| s.compaction_bytes_reclaimed,
    ),
    ("compaction_duration_ms_total", "Time spent on images of all keys.", |s| s.compaction_ms),
    (
        "online_relocations_total",
        "Always 0: records are copied only when a page is emptied, which other counters count.",
        NOTHING,
    ),
    ("online_bytes_relocated_total", "Always 0, likewise.", NOTHING),
    ("online_pages_retired_total", "Always 0, likewise.", NOTHING),
    ("online_pages_recycled_total", "Always 0, likewise.", NOTHING),
];

const GAUGES: [(&str, &str, Value); 9] = [
    ("pages_allocated", "Pages of keys that have memory.", |s| s.store.pages_allocated as u64),
    ("bytes_allocated", "Bytes of the pages that have memory.", |s| s.allocated_bytes),
    ("bytes_used", "Bytes written in pages, including those of replaced and removed values.", |s| {
        s.store.used_bytes as u64
    }),
    ("entries", "Keys that the server has.", |s| s.store.keys as u64),
    ("tombstones", "Always 0: removed keys leave no records.", NOTHING),
    ("index_entries", "Keys in indexes.", |s| s.index_keys),
    ("index_bytes", "Bytes of indexes of keys.", |s| s.index_bytes),
    (
        "indexes_given_up",
        "Parts of key indexes, one per core, that were given up because memory had no room for them.",
        |s| s.indexes_given_up,
    ),
    ("reclaimable_bytes", "Bytes of replaced and removed values that eviction can free.", |s| {
        s.reclaimable_bytes
    }),
];

/// Appends every family.
pub fn put(page: &mut Page<'_>, stats: &KeysStats) {
    for (families, kind) in [(&COUNTERS[..], "counter"), (&GAUGES[..], "gauge")] {
        for (name, help, value) in families {
            let name = format!("kv_{name}");
            page.family(&name, kind, help);
            page.sample(&name, &[], value(stats));
        }
    }
}

/// A page of nothing else, with `prefix` in front of every name.
pub fn page(prefix: &str, stats: &KeysStats) -> String {
    let mut page = Page::new(prefix, 4096);
    put(&mut page, stats);
    page.into_text()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// One existing reader takes nothing else.
    #[test]
    fn every_sample_is_one_name_and_one_integer() {
        let text = page("acme", &KeysStats::default());
        let samples: Vec<&str> = text.lines().filter(|line| !line.starts_with('#')).collect();
        assert_eq!(samples.len(), 36);
        for (place, sample) in samples.iter().enumerate() {
            let (name, value) = sample.split_once(' ').unwrap();
            assert!(name.starts_with("acme_kv_") && !name.contains('{'), "{sample}");
            assert!(value.parse::<u64>().is_ok(), "{sample}");
            assert!(
                !samples[..place].iter().any(|other| other.starts_with(&format!("{name} "))),
                "{name} twice"
            );
        }
    }
}
