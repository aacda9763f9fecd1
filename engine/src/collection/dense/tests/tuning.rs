//! Values of a configuration that change while a collection serves: whoever comes afterwards goes by the new ones, as in a collection that was
//! made with them.
use super::bed::{Bed, Rng, small_config};
use crate::collection::config_keys::{Family, Key, Settings, Value, with_live_values};
use crate::collection::{
    DenseConfig, DenseWriter, Explain, NamedConfig, NamedSpace, Part, Parts, Quantizer, Query, Write,
    WriteError, WriteMode,
};
use crate::distance::Metric;
use crate::filter::{Node, Predicate};
use crate::index::Scratch;
use crate::memory::{Domain, Participant};
use crate::payload::{RowBuilder, Value as Payload};
use std::sync::Arc;

const DIM: usize = 6;
const POINTS: u64 = 3000;

struct Made {
    writer: DenseWriter,
    seat: Participant,
}

/// A collection of points that are the same each time, all of them in the graph.
fn made(config: &DenseConfig) -> Made {
    let domain: Arc<Domain> = Domain::new(1);
    let seat = domain.participant(0);
    let mut writer = DenseWriter::create(config.clone(), 4096, domain).unwrap();
    let mut rng = Rng(5);
    for id in 0..POINTS {
        let mut row = RowBuilder::new();
        // Found by a question to each candidate alone.
        row.set("title", Payload::String(format!("title {}", if id % 50 == 0 { "red" } else { "blue" })), 0);
        let (vector, row) = (rng.vector(DIM), row.finish());
        writer.apply(Write {
            seq: id + 1,
            id,
            version: 1,
            parts: Parts::Only(&vector),
            row: &row,
            deadline_ms: 0,
        });
    }
    writer.index_all();
    Made { writer, seat }
}

impl Made {
    /// What some searches find, and how.
    fn answers(&self, filter: Option<&Predicate>) -> Vec<(Vec<(u64, f32)>, Explain)> {
        let mut rng = Rng(77);
        (0..20)
            .map(|_| {
                let vector = rng.vector(DIM);
                let query = Query { vector: &vector, k: 10, ef: 0, filter, exact: false, now_ms: 0 };
                let (mut hits, mut scratch) = (Vec::new(), Scratch::default());
                let space = self.writer.shared().space();
                let explain =
                    space.search_explained(&self.seat.pin(), &query, &mut scratch, &mut hits).unwrap();
                (hits.iter().map(|hit| (hit.id, hit.distance)).collect(), explain)
            })
            .collect()
    }
}

fn changed(config: &DenseConfig, values: &[(Key, i128)]) -> DenseConfig {
    let mut settings = Settings::default();
    values.iter().for_each(|(key, number)| settings.put(*key, Value::Int(*number)));
    settings.change(config).unwrap()
}

#[test]
fn a_search_goes_by_the_values_of_its_beginning() {
    let regex = Node {
        op: Some("regex".into()),
        field: Some("title".into()),
        value: Some(Payload::String("red$".into())),
        ..Node::default()
    };
    let regex = Predicate::compile(&regex).unwrap();
    let plain = small_config(DIM, Metric::L2);
    let coded = DenseConfig { quant: Quantizer::Sq8, rescore_factor: 1, ..plain.clone() };
    for (config, key, number, filter) in [
        (&plain, Key::EfSearch, 150, None),
        (&coded, Key::RescoreFactor, 30, None),
        (&plain, Key::MaxEfSearch, 1, Some(&regex)),
    ] {
        let other = changed(config, &[(key, number)]);
        let mut tuned = made(config);
        let (before, expected) = (tuned.answers(filter), made(&other).answers(filter));
        assert_ne!(before, expected, "{key:?} makes a difference");
        tuned.writer.tune(&other);
        assert_eq!(tuned.answers(filter), expected, "{key:?}");
        // Another writer of the collection, as a bulk build has one.
        let mut aside = made(config);
        aside.writer.tune(&other);
        assert_eq!(aside.answers(filter), expected, "{key:?}");
        tuned.writer.tune(config);
        assert_eq!(tuned.answers(filter), before, "{key:?} back");
    }
}

#[test]
fn each_space_goes_by_its_own_values() {
    let space = |name: &str, ef_search| {
        let config = DenseConfig { ef_search, ..small_config(2, Metric::L2) };
        NamedSpace::new(name, config)
    };
    let config = |a, b| NamedConfig::new(vec![space("a", a), space("b", b)], vec![]);
    let domain = Domain::new(1);
    let mut writer = DenseWriter::create_named(&config(10, 10), 4096, domain.clone()).unwrap();
    let seat = domain.participant(0);
    let mut rng = Rng(3);
    for id in 0..1000 {
        let vectors = [rng.vector(2), rng.vector(2)];
        let parts = [Part::Given(&vectors[0]), Part::Given(&vectors[1])];
        let parts = Parts::Each(&parts);
        writer.apply(Write { seq: id + 1, id, version: 1, parts, row: &[], deadline_ms: 0 });
    }
    writer.index_all();
    let distances = |writer: &DenseWriter, space: usize| {
        let query = Query { vector: &[0.5, 0.5], k: 5, ef: 0, filter: None, exact: false, now_ms: 0 };
        let space = &writer.shared().spaces()[space];
        space
            .search_explained(&seat.pin(), &query, &mut Scratch::default(), &mut Vec::new())
            .unwrap()
            .distances
    };
    let before = [distances(&writer, 0), distances(&writer, 1)];
    writer.tune_named(&config(10, 100));
    assert_eq!(distances(&writer, 0), before[0]);
    assert!(distances(&writer, 1) > before[1]);
}

#[test]
fn a_smaller_quota_keeps_what_is_there() {
    let mut bed = Bed::new(small_config(2, Metric::L2), 16_384);
    for id in 0..6_000 {
        bed.write(WriteMode::Insert, id, &[id as f32, 1.0], 0, if id < 5_000 { 2_000 } else { 0 });
    }
    let check = |bed: &Bed, id, mode| {
        bed.writer.check_write(id, Parts::Only(&[0.0, 0.0]), mode, None, || true, bed.now_ms)
    };
    let bytes = bed.config.quota_bytes_per_point();
    for (points, bytes) in [(3, 0), (0, 3 * bytes), (5_999, 10_000 * bytes), (6_000, 0)] {
        bed.writer.tune(&DenseConfig { max_vectors: points, max_bytes: bytes, ..bed.config.clone() });
        assert_eq!(bed.writer.shared().stats().live, 6_000);
        assert_eq!(
            check(&bed, 6_000, WriteMode::Insert),
            Err(WriteError::Full),
            "{points} points, {bytes} bytes"
        );
        assert_eq!(check(&bed, 5_999, WriteMode::Upsert), Ok(2), "a replacement needs no room");
    }
    bed.writer.tune(&DenseConfig { max_vectors: 6_001, ..bed.config.clone() });
    assert_eq!(check(&bed, 6_000, WriteMode::Insert), Ok(1));
    bed.now_ms = 2_000;
    bed.writer.tune(&DenseConfig { max_vectors: 4_000, ..bed.config.clone() });
    assert_eq!(check(&bed, 6_000, WriteMode::Insert), Ok(1), "expired points give their room");
    bed.writer.tune(&DenseConfig { max_vectors: 1_001, ..bed.config.clone() });
    let full = Err(WriteError::Full);
    assert_eq!(
        check(&bed, 6_000, WriteMode::Insert),
        full,
        "so many of them once they have left the figures"
    );
    while bed.writer.points_mut().follow_expiry(bed.now_ms) {}
    assert_eq!(check(&bed, 6_000, WriteMode::Insert), Ok(1));
    bed.writer.tune(&DenseConfig { max_vectors: 1_000, ..bed.config.clone() });
    assert_eq!(check(&bed, 6_000, WriteMode::Insert), full);
    // A clock that was set back brings them back, whether the figures have followed or not.
    bed.writer.tune(&DenseConfig { max_vectors: 4_000, ..bed.config.clone() });
    assert_eq!(check(&bed, 6_000, WriteMode::Insert), Ok(1));
    bed.now_ms = 1_999;
    assert_eq!(check(&bed, 6_000, WriteMode::Insert), full);
    while bed.writer.points_mut().follow_expiry(bed.now_ms) {}
    assert_eq!(check(&bed, 6_000, WriteMode::Insert), full);
    bed.now_ms = 2_000;
    bed.writer.tune(&DenseConfig { max_vectors: 1_001, ..bed.config.clone() });
    for id in 0..5_000 {
        bed.delete(id, true);
    }
    assert_eq!(check(&bed, 6_000, WriteMode::Insert), Ok(1));
}

/// Without a sweep, each point that expires gives its room to another, however many have.
#[test]
fn expired_points_give_their_room_without_a_sweep() {
    let mut bed = Bed::new(DenseConfig { max_vectors: 3_000, ..small_config(2, Metric::L2) }, 65_536);
    for id in 0..30_000 {
        bed.now_ms = 1_000 + id;
        while bed.writer.points_mut().follow_expiry(bed.now_ms) {}
        let (parts, now_ms) = (Parts::Only(&[0.0, 0.0]), bed.now_ms);
        let check =
            |bed: &Bed, id| bed.writer.check_write(id, parts, WriteMode::Insert, None, || true, now_ms);
        assert!(check(&bed, id).is_ok(), "{id}: {:?}", check(&bed, id));
        // Three thousand are alive once the first expires.
        bed.write(WriteMode::Insert, id, &[id as f32, 1.0], 0, bed.now_ms + 3_000);
        if id >= 3_000 {
            assert_eq!(check(&bed, 40_000), Err(WriteError::Full), "{id}");
        }
    }
}

#[test]
fn a_change_is_within_the_bounds_of_its_keys() {
    let config = DenseConfig { quant: Quantizer::Sq8, ..small_config(DIM, Metric::L2) };
    let change = |config: &DenseConfig, key, number| {
        let mut settings = Settings::default();
        settings.put(key, Value::Int(number));
        settings.change(config).map_err(|error| error.0)
    };
    for (key, number, expected) in [
        (Key::EfSearch, 0, 64),
        (Key::EfSearch, -5, 64),
        (Key::EfSearch, 65_536, 65_536),
        (Key::RescoreFactor, 0, 0),
        (Key::RescoreFactor, i128::from(i64::MAX), i128::from(i64::MAX)),
        (Key::MaxVectors, u64::MAX.into(), u64::MAX.into()),
        (Key::MaxEfSearch, 0, 0),
    ] {
        let made = change(&config, key, number).unwrap();
        assert_eq!(key.get(&made), Some(Value::Int(expected)), "{key:?} {number}");
        // No other key is live.
        assert_eq!(change(&made, key, 7), change(&config, key, 7));
        assert_eq!(with_live_values(&config, &made), made);
    }
    for (key, number, text) in [
        (Key::EfSearch, 1_048_577, "invalid ef_search: it must be at most 1048576, found 1048577"),
        (Key::RescoreFactor, -1, "invalid rescore_factor: must not be negative"),
        (Key::Dim, 6, "invalid dim: it cannot be changed"),
        (Key::M, 6, "invalid m: it cannot be changed"),
    ] {
        assert_eq!(change(&config, key, number), Err(text.to_owned()), "{key:?}");
    }
    let plain = small_config(DIM, Metric::L2);
    let text = "invalid rescore_factor: it has no effect with quant \"none\"";
    assert_eq!(change(&plain, Key::RescoreFactor, 4), Err(text.to_owned()));
    let names = |family| Key::live_of(family).map(Key::name).collect::<Vec<_>>();
    assert_eq!(
        names(Family::Dense),
        [
            "ef_search",
            "rescore_factor",
            "max_vectors",
            "max_bytes",
            "max_inserts_per_second",
            "max_ef_search"
        ]
    );
    assert_eq!(names(Family::Named), ["ef_search", "rescore_factor", "max_ef_search"]);
    assert_eq!(
        names(Family::MultiVector),
        ["ef_search", "rescore_factor", "max_vectors", "max_bytes", "max_inserts_per_second"]
    );
}
