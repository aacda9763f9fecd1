//! Rows: round trips against a map, edits, deadlines, golden bytes, and bytes that are not rows.

use super::*;
use proptest::prelude::*;
use std::collections::BTreeMap;

const NOW: u64 = 1_000;

/// Any value, edge values and empties often.
pub(crate) fn any_value() -> impl Strategy<Value = Value> {
    let float = prop_oneof![
        Just(0.0),
        Just(-0.0),
        Just(1.0),
        Just(f64::MAX),
        Just(f64::INFINITY),
        any::<f64>().prop_filter("payload floats are numbers", |x| !x.is_nan())
    ];
    let int = prop_oneof![Just(0), Just(i64::MIN), Just(i64::MAX), -3..4i64, any::<i64>()];
    prop_oneof![
        Just(Value::None),
        "\\PC{0,12}".prop_map(Value::String),
        int.clone().prop_map(Value::Int),
        float.clone().prop_map(Value::Float),
        any::<bool>().prop_map(Value::Bool),
        prop::collection::vec("\\PC{0,5}", 0..5).prop_map(Value::Strings),
        prop::collection::vec(int, 0..6).prop_map(Value::Ints),
        prop::collection::vec(float.clone(), 0..6).prop_map(Value::Floats),
        (float.clone(), float).prop_map(|(lat, lon)| Value::Geo { lat, lon }),
        prop::collection::vec(any::<u8>(), 0..9).prop_map(Value::Record),
    ]
}

fn any_entries() -> impl Strategy<Value = Vec<(String, Value, u64)>> {
    let key = prop_oneof!["[a-c]{0,2}", "\\PC{0,8}", Just(CONTENT_KEY.to_owned())];
    let deadline = prop_oneof![3 => Just(0), 1 => NOW - 2..NOW + 3, 1 => any::<u64>()];
    prop::collection::vec((key, any_value(), deadline), 0..12)
}

fn build(entries: &[(String, Value, u64)]) -> Vec<u8> {
    let mut builder = RowBuilder::new();
    for (key, value, deadline_ms) in entries {
        builder.set(key, value.clone(), *deadline_ms);
    }
    let bound = builder.encoded_bound();
    let row = builder.finish();
    assert!(row.len() <= bound, "{} bytes, bound {bound}", row.len());
    row
}

fn live(deadline_ms: u64) -> bool {
    deadline_ms == 0 || deadline_ms > NOW
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 300, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn a_row_reads_like_a_map(entries in any_entries(), probe in "[a-c]{0,2}") {
        let bytes = build(&entries);
        let twin: BTreeMap<&str, (&Value, u64)> =
            entries.iter().map(|(key, value, deadline)| (key.as_str(), (value, *deadline))).collect();
        let row = PayloadRow::verify(&bytes).unwrap();

        prop_assert_eq!(row.stored_len(), twin.len());
        prop_assert_eq!(row.next_deadline(), twin.values().map(|x| x.1).filter(|&x| x != 0).min());
        let stored: Vec<_> = row.stored_entries().map(|e| (e.key, (e.value.to_owned(), e.deadline_ms))).collect();
        let expected: Vec<_> = twin.iter().map(|(key, (value, deadline))| (*key, ((*value).clone(), *deadline))).collect();
        // Debug text tells -0.0 from 0.0, equality does not.
        prop_assert_eq!(format!("{stored:?}"), format!("{expected:?}"));
        let read: Vec<_> = row.entries(NOW).map(|(key, value)| (key, value.to_owned())).collect();
        let expected: Vec<_> = twin.iter().filter(|(_, x)| live(x.1)).map(|(key, x)| (*key, x.0.clone())).collect();
        prop_assert_eq!(read, expected);
        for key in twin.keys().copied().chain([probe.as_str()]) {
            let expected = twin.get(key).filter(|x| live(x.1)).map(|x| x.0);
            let found = row.get(key, NOW);
            let owned = found.map(|value| value.to_owned());
            prop_assert_eq!(owned.as_ref(), expected);
            prop_assert!(found.is_none_or(|value| value == *expected.unwrap() && value.kind() == expected.unwrap().kind()));
        }
        let content = twin.get(CONTENT_KEY).filter(|x| live(x.1)).and_then(|x| match x.0 {
            Value::String(text) => Some(text.as_str()),
            _ => None,
        });
        prop_assert_eq!(row.content(NOW), content);
    }

    #[test]
    fn bytes_depend_on_the_entries_only(entries in any_entries()) {
        let bytes = build(&entries);
        let row = PayloadRow::trusted(&bytes);
        prop_assert_eq!(&RowBuilder::from(row).finish(), &bytes);
        let mut reversed = RowBuilder::new();
        for entry in row.stored_entries().collect::<Vec<_>>().into_iter().rev() {
            reversed.set(entry.key, entry.value.to_owned(), entry.deadline_ms);
        }
        prop_assert_eq!(&reversed.finish(), &bytes);
        prop_assert_eq!(row, PayloadRow::verify(&bytes).unwrap());
    }

    #[test]
    fn random_bytes_never_panic(mut bytes in prop::collection::vec(any::<u8>(), 0..200), small in any::<bool>()) {
        if small {
            // Small numbers make offsets that stay inside.
            bytes.iter_mut().for_each(|byte| *byte &= 0x1f);
        }
        if let Some(place) = bytes.get_mut(4..8) {
            place.copy_from_slice(b"NPR1");
        }
        read_if_valid(&bytes);
    }

    #[test]
    fn damaged_rows_never_panic(entries in any_entries(), damage in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..4)) {
        let mut bytes = build(&entries);
        if !bytes.is_empty() {
            for (index, byte) in damage {
                let index = index.index(bytes.len());
                bytes[index] = byte;
            }
        }
        read_if_valid(&bytes);
    }
}

/// Reads everything of a row that verifies.
fn read_if_valid(bytes: &[u8]) {
    if let Ok(row) = PayloadRow::verify(bytes) {
        let again = RowBuilder::from(row).finish();
        // NaN may appear by damage and is not equal to itself.
        assert_eq!(format!("{:?}", PayloadRow::verify(&again).unwrap()), format!("{row:?}"));
    }
}

/// As [`sample`], with the kind that came later.
fn sample_2() -> Vec<(String, Value, u64)> {
    let mut entries = sample();
    entries.push(("~bytes".to_owned(), Value::Record(vec![2, 1, 1, b'n', 0, 255]), 0));
    entries.push(("~no bytes".to_owned(), Value::Record(Vec::new()), 5));
    entries
}

/// One entry of every kind of version 1, in key order.
fn sample() -> Vec<(String, Value, u64)> {
    let text = |s: &str| s.to_owned();
    vec![
        (text(""), Value::None, 0),
        (text("$content"), Value::String(text("Der Text, größer")), 0),
        (text("a.b"), Value::Int(-5), 0),
        (text("bool"), Value::Bool(true), 7),
        (text("float"), Value::Float(2.5), 0),
        (text("floats"), Value::Floats(vec![0.5, -1.0]), 0),
        (text("geo"), Value::Geo { lat: 48.25, lon: -11.5 }, 0),
        (text("ints"), Value::Ints(vec![1, i64::MAX]), 9_000_000_000_000),
        (text("string"), Value::String(text("acme")), 0),
        (text("strings"), Value::Strings(vec![text("x"), text(""), text("yy")]), 0),
        (text("zero"), Value::Int(0), 0),
    ]
}

#[test]
fn every_truncation_is_refused() {
    let bytes = build(&sample());
    let whole = PayloadRow::verify(&bytes).unwrap();
    for len in 1..bytes.len() {
        match PayloadRow::verify(&bytes[..len]) {
            Err(_) => {}
            // Only the padding behind the last string may go.
            Ok(row) => assert!(len + 4 > bytes.len() && row == whole, "{len} of {} bytes", bytes.len()),
        }
    }
}

#[test]
fn every_bit_flip_is_refused_or_reads() {
    let bytes = build(&sample());
    let mut refused = 0;
    for bit in 0..8 * bytes.len() {
        let mut flipped = bytes.clone();
        flipped[bit / 8] ^= 1 << (bit % 8);
        match PayloadRow::verify(&flipped) {
            Ok(_) => read_if_valid(&flipped),
            Err(_) => refused += 1,
        }
    }
    assert!(refused > bytes.len(), "only {refused} of {} flips were noticed", 8 * bytes.len());
}

#[test]
fn appended_bytes_change_nothing() {
    let mut bytes = build(&sample());
    let len = bytes.len();
    bytes.extend([0; 64]);
    assert_eq!(PayloadRow::verify(&bytes).unwrap(), PayloadRow::verify(&bytes[..len]).unwrap());
}

/// A row of version 1 as it was written on the first day. It must read the same for ever; a failure here means that
/// stored payloads of running servers became unreadable. Never change the bytes, add a new one beside them.
#[test]
fn golden_row_version_1() {
    check_golden(include_str!("golden_row_v1.hex"), &sample());
}

/// Likewise, from when records came.
#[test]
fn golden_row_version_2() {
    if std::env::var_os("NIGH_WRITE_GOLDEN").is_some() {
        let digits: Vec<String> = build(&sample_2()).iter().map(|byte| format!("{byte:02x}")).collect();
        let lines: Vec<String> = digits.chunks(32).map(|line| line.concat() + "\n").collect();
        std::fs::write(concat!(env!("CARGO_MANIFEST_DIR"), "/src/payload/golden_row_v2.hex"), lines.concat())
            .unwrap();
        return;
    }
    check_golden(include_str!("golden_row_v2.hex"), &sample_2());
}

fn check_golden(golden: &str, entries: &[(String, Value, u64)]) {
    let digits: Vec<u8> = golden.bytes().filter(u8::is_ascii_hexdigit).collect();
    let bytes: Vec<u8> = digits
        .chunks(2)
        .map(|pair| u8::from_str_radix(std::str::from_utf8(pair).unwrap(), 16).unwrap())
        .collect();
    let row = PayloadRow::verify(&bytes).unwrap();
    let read: Vec<_> = row
        .stored_entries()
        .map(|entry| (entry.key.to_owned(), entry.value.to_owned(), entry.deadline_ms))
        .collect();
    assert_eq!(read, entries);
    assert_eq!(build(entries), bytes, "what is written today has drifted from the golden row");
}

#[test]
fn unsorted_duplicate_or_mislabelled_rows_are_refused() {
    let error = |bytes: &[u8]| PayloadRow::verify(bytes).unwrap_err().to_string();
    let entry = |key: &str, deadline| (key.to_owned(), Value::None, deadline);
    let bytes = build(&[entry("kx", 0), entry("ky", 0)]);
    let replace = |from: &[u8], to: &[u8]| {
        let at = bytes.windows(from.len()).position(|window| window == from).unwrap();
        let mut bytes = bytes.clone();
        bytes[at..at + to.len()].copy_from_slice(to);
        bytes
    };
    assert!(error(&replace(b"kx", b"kz")).contains("entry 1 is not above"));
    assert!(error(&replace(b"kx", b"ky")).contains("entry 1 is not above"));
    assert!(error(&replace(b"kx", b"k\xff")).contains("Utf8"));
    assert!(error(&replace(b"NPR1", b"NPR2")).contains("NPR1"));

    let bytes = build(&[(String::new(), Value::Bool(false), 0)]);
    // The kind is one of the few bytes that hold a 4; setting another of them to 99 gives other errors.
    let refused = (0..bytes.len()).filter(|&at| bytes[at] == Kind::Bool as u8).any(|at| {
        let mut bytes = bytes.clone();
        bytes[at] = 99;
        PayloadRow::verify(&bytes).is_err_and(|error| error.0.contains("unknown kind 99"))
    });
    assert!(refused, "an unknown kind was accepted");

    let with_deadline = build(&[entry("k", 77)]);
    let at = with_deadline.iter().position(|&byte| byte == 77).unwrap();
    let mut lying = with_deadline.clone();
    lying[at] = 78;
    assert!(error(&lying).contains("deadline"));
}

#[test]
fn the_empty_row_is_no_bytes() {
    assert!(RowBuilder::new().is_empty());
    assert!(RowBuilder::new().finish().is_empty());
    let row = PayloadRow::verify(&[]).unwrap();
    assert_eq!((row.stored_len(), row.next_deadline(), row.get("", NOW)), (0, None, None));
    assert_eq!(row.entries(NOW).count(), 0);
}

#[test]
fn an_expired_key_is_absent_from_its_deadline_on() {
    let bytes = build(&[("k".into(), Value::Int(1), 50)]);
    let row = PayloadRow::trusted(&bytes);
    assert!(row.get("k", 49).is_some());
    assert!(row.get("k", 50).is_none());
    assert_eq!(row.entries(50).count(), 0);
    assert_eq!(row.next_deadline(), Some(50));
}

#[test]
fn edits_keep_or_drop_deadlines_as_the_interface_says() {
    let stored = build(&[
        ("live".into(), Value::Int(1), NOW + 10),
        ("dead".into(), Value::Int(2), NOW),
        ("plain".into(), Value::Int(3), 0),
    ]);
    let mut merge = RowBuilder::from(PayloadRow::trusted(&stored));
    assert_eq!(merge.drop_expired(NOW), 1);
    merge.set_value("live", Value::Int(10));
    merge.set_value("dead", Value::Int(20));
    assert!(merge.set_deadline("plain", NOW + 5));
    assert!(!merge.set_deadline("absent", NOW + 5));
    assert!(!merge.remove("absent"));
    assert_eq!(merge.get("dead"), Some(&Value::Int(20)));
    let bytes = merge.finish();
    let row = PayloadRow::verify(&bytes).unwrap();
    let stored: Vec<_> = row.stored_entries().map(|e| (e.key, e.value.to_owned(), e.deadline_ms)).collect();
    let expected =
        [("dead", Value::Int(20), 0), ("live", Value::Int(10), NOW + 10), ("plain", Value::Int(3), NOW + 5)];
    assert_eq!(stored, expected);

    let mut delete = RowBuilder::from(row);
    assert!(delete.remove("live") && delete.remove("plain"));
    let bytes = delete.finish();
    assert_eq!(PayloadRow::trusted(&bytes).next_deadline(), None);
}

#[test]
fn a_small_row_is_small() {
    let bytes =
        build(&[("lang".into(), Value::String("en".into()), 0), ("year".into(), Value::Int(1999), 0)]);
    assert!(bytes.len() <= 144, "{} bytes", bytes.len());
}

#[test]
fn kinds_have_names() {
    for (number, kind) in Kind::ALL.into_iter().enumerate() {
        assert_eq!(kind as usize, number);
        assert_eq!(Kind::from_name(kind.name()), Some(kind));
    }
    assert_eq!(Kind::from_name("String"), None);
}

#[test]
fn the_id_of_a_point_stays_with_its_row() {
    let mut row = RowBuilder::new();
    row.set_id("é/1".into());
    let alone = row.clone().finish();
    assert_eq!(PayloadRow::verify(&alone).expect("a row").id(), Some("é/1"));
    assert_eq!(only_id(&alone), alone);
    row.set("n", Value::Int(1), 5);
    row.set_sparse(vec![(3, 1.0)]).expect("it ascends");
    row.set_tokens(vec![1], vec![1.0, 2.0]);
    assert!(row.clone().finish().len() <= row.encoded_bound());
    let bytes = row.finish();
    let id_of = |bytes: &[u8]| PayloadRow::verify(bytes).expect("a row").id().map(str::to_owned);
    for kept in [
        bytes.clone(),
        RowBuilder::from(PayloadRow::trusted(&bytes)).finish(),
        without_tokens(&bytes).into_owned(),
        narrowed(&bytes, |_| false, false),
        only_id(&bytes),
    ] {
        assert_eq!(id_of(&kept), Some("é/1".to_owned()));
    }
    let mut cleared = RowBuilder::from(PayloadRow::trusted(&bytes));
    cleared.remove_all();
    cleared.drop_expired(9);
    assert_eq!(id_of(&cleared.finish()), Some("é/1".to_owned()));
    let mut other = RowBuilder::new();
    other.set_id("e/1".into());
    assert_ne!(PayloadRow::trusted(&alone), PayloadRow::trusted(&other.finish()));
    for bad in [String::new(), "x".repeat(513)] {
        let mut row = RowBuilder::new();
        row.set_id(bad.into());
        assert!(PayloadRow::verify(&row.finish()).is_err());
    }
    let mut without = RowBuilder::new();
    without.set("n", Value::Int(1), 0);
    let without = without.finish();
    assert_eq!((id_of(&without), only_id(&without), only_id(&[])), (None, Vec::new(), Vec::new()));
    // What is cut is refused, unless nothing but padding at the end is missing.
    for end in 1..bytes.len() {
        if let Ok(row) = PayloadRow::verify(&bytes[..end]) {
            assert!(end + 8 > bytes.len() && row == PayloadRow::trusted(&bytes), "cut at {end}");
        }
    }
}
