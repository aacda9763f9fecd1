//! Scrolling in the order of payload values.
//!
//! There is no index in this order: a page walks every match once and keeps the first so many, so memory is that of the page. A
//! caller that wants more than one page's worth goes on after the last position.

use super::Core;
use super::content_hint::check_not_id;
use super::walk::sort_in_slices;
use crate::env::call;
use crate::error::OpError;
use crate::slice::Slice;
use nigh_engine::filter::{Predicate, unix_ms_of_rfc3339};
use nigh_engine::payload::{CONTENT_KEY, PayloadRow, ValueRef};
use nigh_engine::quoted::quoted;
use std::cmp::Ordering;
use std::rc::Rc;
use std::sync::Arc;

/// Bytes of a text that count for its place: longer ones that share these are in the order of their ids. Positions are kept for
/// a whole page and travel in cursors.
pub const ORDER_TEXT_MAX_BYTES: usize = u16::MAX as usize;
/// Most positions of one answer.
const ORDERED_MAX: usize = 16_384;
/// Most bytes of texts that an answer holds; fewer positions beyond.
const ORDERED_TEXT_MAX_BYTES: usize = 32 << 20;

/// One key of an order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OrderKey {
    /// Payload key.
    pub key: String,
    /// Greatest value first; ids ascend all the same.
    pub desc: bool,
    /// By bytes of a string, else by a number (int or float, compared as f64).
    pub is_string: bool,
    /// A string that is an RFC 3339 time stands for its Unix milliseconds, among the numbers.
    pub is_datetime: bool,
}

/// Which points in which order: those that have all keys, in the kinds the order asks for, NaN not counted.
#[derive(Clone, Debug)]
pub struct OrderedScroll {
    /// Which points.
    pub filter: Option<Arc<Predicate>>,
    /// At least one key.
    pub keys: Vec<OrderKey>,
    /// Continue after this position.
    pub after: Option<Position>,
    /// First value of the first key, included, when that is a number.
    pub start_from: Option<f64>,
    /// Positions wanted, at least 1.
    pub limit: usize,
}

/// The value of one key.
#[derive(Clone, Debug, PartialEq)]
pub enum Part {
    /// Not NaN.
    Number(f64),
    /// At most [`ORDER_TEXT_MAX_BYTES`].
    Text(Vec<u8>),
}

/// Where a point stands.
#[derive(Clone, Debug, PartialEq)]
pub struct Position {
    /// One per key.
    pub parts: Vec<Part>,
    /// Decides among equals.
    pub id: u64,
}

impl Position {
    /// Bytes that it takes, what it owns included.
    pub fn bytes(&self) -> usize {
        let text = |part: &Part| match part {
            Part::Number(_) => 0,
            Part::Text(text) => text.capacity(),
        };
        let parts = self.parts.capacity() * size_of::<Part>();
        size_of::<Position>() + parts + self.parts.iter().map(text).sum::<usize>()
    }
}

/// The first positions in order.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Ordered {
    /// At most as many as asked for; a server may give fewer.
    pub positions: Vec<Position>,
    /// There are more.
    pub more: bool,
}

/// A value as it lies in a row.
#[derive(Clone, Copy)]
enum PartRef<'a> {
    Number(f64),
    Text(&'a [u8]),
}

impl Part {
    fn as_ref(&self) -> PartRef<'_> {
        match self {
            Part::Number(number) => PartRef::Number(*number),
            Part::Text(text) => PartRef::Text(text),
        }
    }
}

impl PartRef<'_> {
    fn order(self, other: PartRef<'_>) -> Ordering {
        match (self, other) {
            // Neither is NaN.
            (PartRef::Number(a), PartRef::Number(b)) => a.partial_cmp(&b).unwrap_or(Ordering::Equal),
            (PartRef::Text(a), PartRef::Text(b)) => a.cmp(b),
            // One order has one kind per key.
            (PartRef::Number(_), PartRef::Text(_)) => Ordering::Less,
            (PartRef::Text(_), PartRef::Number(_)) => Ordering::Greater,
        }
    }

    fn to_owned(self) -> Part {
        match self {
            PartRef::Number(number) => Part::Number(number),
            PartRef::Text(text) => Part::Text(text.to_vec()),
        }
    }
}

/// Why a row has no place in an order.
#[derive(Clone, Copy)]
enum Unfit {
    /// It has no such key, or one whose value has no order.
    Absent,
    /// It has no such key but a document text, and the name of the key is one that is easily taken for it.
    ContentInstead,
    /// The value is a string.
    Text,
    /// The value is a number.
    Number,
}

impl Unfit {
    /// What the order should have asked for.
    fn advice(self, key: &OrderKey) -> String {
        let OrderKey { key, is_datetime, .. } = key;
        let key = quoted(key);
        match self {
            Unfit::Absent => format!("order_by: no point has key {key}"),
            Unfit::ContentInstead => {
                format!("order_by: no point has key {key}; the text of points has key {CONTENT_KEY:?}")
            }
            Unfit::Text if *is_datetime => format!(
                "order_by: key {key} holds strings that are not RFC 3339 times; is_string orders by their bytes"
            ),
            Unfit::Text => format!(
                "order_by: key {key} holds strings; is_string orders by their bytes, is_datetime by RFC 3339 times"
            ),
            Unfit::Number => format!("order_by: key {key} holds numbers; is_string is for strings alone"),
        }
    }
}

/// The value of `key` in a row, if it has one of the kind.
fn part<'r>(key: &OrderKey, row: &PayloadRow<'r>, now_ms: u64) -> Result<PartRef<'r>, Unfit> {
    let Some(value) = row.get(&key.key, now_ms) else {
        let instead = key.key == "content" && row.get(CONTENT_KEY, now_ms).is_some();
        return Err(if instead { Unfit::ContentInstead } else { Unfit::Absent });
    };
    match (value, key.is_string) {
        (ValueRef::Int(number), false) => Ok(PartRef::Number(number as f64)),
        (ValueRef::Float(number), false) if !number.is_nan() => Ok(PartRef::Number(number)),
        (ValueRef::String(text), true) => {
            Ok(PartRef::Text(&text.as_bytes()[..text.len().min(ORDER_TEXT_MAX_BYTES)]))
        }
        (ValueRef::String(text), false) if key.is_datetime => {
            let unix_ms = unix_ms_of_rfc3339(text).ok_or(Unfit::Text)?;
            Ok(PartRef::Number(unix_ms as f64))
        }
        (ValueRef::String(_), false) => Err(Unfit::Text),
        (ValueRef::Int(_) | ValueRef::Float(_), true) => Err(Unfit::Number),
        // Values of the other kinds, NaN among them, never have a place.
        _ => Err(Unfit::Absent),
    }
}

fn compare<'a>(keys: &[OrderKey], a: (impl Iterator<Item = PartRef<'a>>, u64), b: &Position) -> Ordering {
    for (key, (a, b)) in keys.iter().zip(a.0.zip(&b.parts)) {
        let order = a.order(b.as_ref());
        if order != Ordering::Equal {
            return if key.desc { order.reverse() } else { order };
        }
    }
    a.1.cmp(&b.id)
}

fn compare_positions(keys: &[OrderKey], a: &Position, b: &Position) -> Ordering {
    compare(keys, (a.parts.iter().map(Part::as_ref), a.id), b)
}

/// Keeps the first positions of those offered, twice as many at times.
struct First<'r> {
    request: &'r OrderedScroll,
    /// How many are wanted.
    count: usize,
    kept: Vec<Position>,
    text_bytes: usize,
    /// What comes after this one is not among the first.
    last: Option<Position>,
    /// Something was left out.
    more: bool,
    /// Some row has a place in the order, whether it was left out or not.
    any: bool,
    /// Why the first row has none that has a value, or a text instead; and for which key.
    unfit: Option<(usize, Unfit)>,
}

impl<'r> First<'r> {
    fn new(request: &'r OrderedScroll) -> First<'r> {
        let count = request.limit.clamp(1, ORDERED_MAX);
        First {
            request,
            count,
            kept: Vec::new(),
            text_bytes: 0,
            last: None,
            more: false,
            any: false,
            unfit: None,
        }
    }

    fn offer(&mut self, id: u64, row: &PayloadRow<'_>, now_ms: u64) {
        let keys = &self.request.keys;
        let mut parts = Vec::with_capacity(keys.len());
        for (index, key) in keys.iter().enumerate() {
            match part(key, row, now_ms) {
                Ok(part) => parts.push(part),
                Err(Unfit::Absent) => return,
                Err(unfit) => {
                    self.unfit.get_or_insert((index, unfit));
                    return;
                }
            }
        }
        self.any = true;
        if let Some(after) = &self.request.after {
            if compare(keys, (parts.iter().copied(), id), after) != Ordering::Greater {
                return;
            }
        } else if let (Some(start), Some(PartRef::Number(number))) = (self.request.start_from, parts.first())
            && (if keys[0].desc { *number > start } else { *number < start })
        {
            return;
        }
        if let Some(last) = &self.last
            && compare(keys, (parts.iter().copied(), id), last) != Ordering::Less
        {
            self.more = true;
            return;
        }
        let position = Position { parts: parts.into_iter().map(PartRef::to_owned).collect(), id };
        self.text_bytes += text_bytes(&position);
        self.kept.push(position);
        if self.text_bytes > ORDERED_TEXT_MAX_BYTES {
            self.count = self.count.min(self.kept.len() / 2).max(1);
        }
        if self.kept.len() >= 2 * self.count {
            self.cut();
        }
    }

    /// Lets go of all but the first `count`.
    fn cut(&mut self) {
        if self.kept.len() <= self.count {
            return;
        }
        let keys = &self.request.keys;
        self.kept.select_nth_unstable_by(self.count - 1, |a, b| compare_positions(keys, a, b));
        self.kept.truncate(self.count);
        self.text_bytes = self.kept.iter().map(text_bytes).sum();
        self.last = self.kept.last().cloned();
        self.more = true;
    }

    /// # Errors
    /// None of the points has a place in the order, and those that have its keys show what was meant.
    async fn finish(mut self, slice: &mut Slice) -> Result<Ordered, OpError> {
        if let Some((index, unfit)) = self.unfit.filter(|_| !self.any && self.request.after.is_none()) {
            return Err(OpError::BadRequest(unfit.advice(&self.request.keys[index])));
        }
        self.cut();
        let keys = &self.request.keys;
        let mut positions = sort_in_slices(self.kept, slice, |a, b| compare_positions(keys, a, b)).await;
        // A point that was replaced on the way may have been met twice.
        let mut seen = ahash::HashSet::default();
        positions.retain(|position| seen.insert(position.id));
        Ok(Ordered { positions, more: self.more })
    }
}

fn text_bytes(position: &Position) -> usize {
    let bytes = |part: &Part| if let Part::Text(text) = part { text.len() } else { 0 };
    position.parts.iter().map(bytes).sum()
}

impl Core {
    /// The first positions of an order; the points themselves are read by id. Walks every match, see `each_match`.
    ///
    /// # Errors
    /// Unknown or damaged collection; an order of other kinds than the keys hold, when it has no place for any point.
    pub async fn ordered(self: &Rc<Self>, name: &str, request: OrderedScroll) -> Result<Ordered, OpError> {
        let handle = self.ctx.handle(name)?;
        handle.healthy()?;
        self.check_filter(&handle, request.filter.as_deref())?;
        request.keys.iter().try_for_each(|by| check_not_id(&handle, &by.key, "order_by"))?;
        let (uid, name) = (handle.uid, name.to_owned());
        call(self, handle.owner, move |there| async move {
            let owned = there.collections.owned(uid).ok_or(OpError::UnknownCollection(name))?;
            let mut first = First::new(&request);
            let each = |point: &nigh_engine::collection::Point<'_>, now_ms| {
                first.offer(point.id, &PayloadRow::trusted(point.row), now_ms);
            };
            there.each_match(&owned, request.filter.as_deref(), each).await?;
            first.finish(&mut Slice::begin(there.env())).await
        })
        .await?
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::core::walk::with_slice;
    use nigh_engine::payload::{RowBuilder, Value};
    use proptest::prelude::*;

    fn any_value() -> impl Strategy<Value = Value> {
        prop_oneof![
            (-3i64..4).prop_map(Value::Int),
            (-6i32..7).prop_map(|n| Value::Float(f64::from(n) / 2.0)),
            Just(Value::Float(f64::NAN)),
            Just(Value::Float(-0.0)),
            "[ab]{0,2}".prop_map(Value::String),
            Just(Value::Bool(true)),
            prop::sample::select(vec!["1970-01-01T00:00:00.001Z", "1970-01-01T01:00:00.002+01:00"])
                .prop_map(|time| Value::String(time.into())),
            prop::collection::vec("[ab]", 0..2).prop_map(Value::Strings),
        ]
    }

    #[test]
    fn a_position_counts_what_it_owns() {
        let of = |parts: Vec<Part>| Position { parts, id: 1 }.bytes();
        assert_eq!(of(Vec::new()), size_of::<Position>());
        let both = of(vec![Part::Number(1.0), Part::Text(vec![b'a'; 1000])]);
        assert!(both >= size_of::<Position>() + 2 * size_of::<Part>() + 1000, "{both}");
    }

    fn any_key() -> impl Strategy<Value = OrderKey> {
        (prop::sample::select(vec!["a", "b"]), any::<bool>(), 0..3).prop_map(|(key, desc, kind)| OrderKey {
            key: key.into(),
            desc,
            is_string: kind == 1,
            is_datetime: kind == 2,
        })
    }

    /// What stands at a place in the order: by hand, without positions.
    fn twin(rows: &[Vec<u8>], keys: &[OrderKey], start_from: Option<f64>) -> Vec<u64> {
        let value = |id: u64, key: &OrderKey| PayloadRow::trusted(&rows[id as usize]).get(&key.key, 0);
        let number = |id: u64, key: &OrderKey| match value(id, key) {
            Some(ValueRef::Int(number)) => Some(number as f64),
            Some(ValueRef::Float(number)) if !number.is_nan() => Some(number),
            Some(ValueRef::String(text)) if key.is_datetime => unix_ms_of_rfc3339(text).map(|ms| ms as f64),
            _ => None,
        };
        let text = |id: u64, key: &OrderKey| match value(id, key) {
            Some(ValueRef::String(text)) => Some(text.to_owned()),
            _ => None,
        };
        let has = |id: u64, key: &OrderKey| {
            if key.is_string { text(id, key).is_some() } else { number(id, key).is_some() }
        };
        let mut ids: Vec<u64> =
            (0..rows.len() as u64).filter(|&id| keys.iter().all(|key| has(id, key))).collect();
        if let Some(start) = start_from
            && !keys[0].is_string
        {
            let desc = keys[0].desc;
            ids.retain(|&id| {
                number(id, &keys[0]).is_some_and(|n| if desc { n <= start } else { n >= start })
            });
        }
        ids.sort_by(|&a, &b| {
            let mut order = Ordering::Equal;
            for key in keys {
                let by = match key.is_string {
                    true => text(a, key).cmp(&text(b, key)),
                    false => number(a, key).partial_cmp(&number(b, key)).unwrap(),
                };
                order = order.then(if key.desc { by.reverse() } else { by });
            }
            order.then(a.cmp(&b))
        });
        ids
    }

    /// All points that have a place.
    fn all(rows: &[Vec<u8>], keys: &[OrderKey]) -> Vec<u64> {
        twin(rows, keys, None)
    }

    #[test]
    fn an_order_of_another_kind_than_the_values_is_refused() {
        let key = |key: &str, is_string, is_datetime| OrderKey {
            key: key.into(),
            desc: false,
            is_string,
            is_datetime,
        };
        let page = |keys: Vec<OrderKey>| {
            let request = OrderedScroll { filter: None, keys, after: None, start_from: None, limit: 9 };
            let mut first = First::new(&request);
            for id in 0..3u64 {
                let mut row = RowBuilder::new();
                row.set("name", Value::String(format!("n{id}")), 0);
                row.set("n", Value::Int(id as i64), 0);
                row.set("tags", Value::Strings(vec!["x".into()]), 0);
                row.set(CONTENT_KEY, Value::String("text".into()), 0);
                if id == 2 {
                    row.set("mixed", Value::Float(0.5), 0);
                } else {
                    row.set("mixed", Value::String("half".into()), 0);
                }
                first.offer(id, &PayloadRow::trusted(&row.finish()), 0);
            }
            let page = with_slice(async |slice| first.finish(slice).await);
            page.map(|page| page.positions.len()).map_err(|error| error.to_string())
        };
        for (keys, fragment) in [
            (vec![key("name", false, false)], "key \"name\" holds strings; is_string orders by their bytes"),
            (vec![key("name", false, true)], "key \"name\" holds strings that are not RFC 3339 times"),
            (vec![key("n", true, false)], "key \"n\" holds numbers; is_string is for strings alone"),
            (vec![key("n", false, false), key("name", false, false)], "key \"name\" holds strings"),
            (vec![key("content", true, false)], "the text of points has key \"$content\""),
        ] {
            let refused = page(keys).expect_err(fragment);
            assert!(refused.contains(fragment), "{refused}");
        }
        for (keys, count) in [
            (vec![key("name", true, false)], 3),
            (vec![key(CONTENT_KEY, true, false)], 3),
            // What some points have is ordered, and the others are left out, as the interface has it.
            (vec![key("mixed", false, false)], 1),
            (vec![key("mixed", true, false)], 2),
            (vec![key("none", false, false)], 0),
            (vec![key("tags", true, false)], 0),
        ] {
            assert_eq!(page(keys.clone()), Ok(count), "{keys:?}");
        }
    }

    proptest! {
        #[test]
        fn pages_are_those_of_a_sorted_list(
            payloads in prop::collection::vec(prop::collection::btree_map("[abc]", any_value(), 0..4), 0..60),
            keys in prop::collection::vec(any_key(), 1..4),
            limit in 1usize..20,
            start in prop::option::of(-3i32..4),
        ) {
            let rows: Vec<Vec<u8>> = payloads.into_iter().map(|payload| {
                let mut row = RowBuilder::new();
                payload.into_iter().for_each(|(key, value)| row.set(&key, value, 0));
                row.finish()
            }).collect();
            let start_from = start.map(f64::from);
            let expected = twin(&rows, &keys, start_from);
            let (mut found, mut after) = (Vec::new(), None);
            loop {
                let request = OrderedScroll { filter: None, keys: keys.clone(), after: after.clone(), start_from, limit };
                let mut first = First::new(&request);
                // In an order that is not that of ids.
                for id in (0..rows.len()).rev().step_by(2).chain((0..rows.len()).rev().skip(1).step_by(2)) {
                    first.offer(id as u64, &PayloadRow::trusted(&rows[id]), 0);
                }
                let page = match with_slice(async |slice| first.finish(slice).await) {
                    Ok(page) => page,
                    Err(refused) => {
                        prop_assert!(all(&rows, &keys).is_empty() && after.is_none());
                        prop_assert!(refused.to_string().contains("order_by: key"), "{refused}");
                        return Ok(());
                    }
                };
                prop_assert!(page.positions.len() <= limit);
                found.extend(page.positions.iter().map(|position| position.id));
                prop_assert_eq!(page.more, found.len() < expected.len());
                if !page.more {
                    break;
                }
                after = page.positions.last().cloned();
            }
            prop_assert_eq!(found, expected);
        }
    }

    #[test]
    fn long_texts_take_no_more_than_their_share() {
        let request = OrderedScroll {
            filter: None,
            keys: vec![OrderKey { key: "t".into(), desc: false, is_string: true, is_datetime: false }],
            after: None,
            start_from: None,
            limit: ORDERED_MAX,
        };
        let mut first = First::new(&request);
        let row_of = |id: u64| {
            let mut row = RowBuilder::new();
            row.set("t", Value::String(format!("{:04}{}", 1999 - id, "x".repeat(100_000))), 0);
            row.finish()
        };
        for id in 0..2000 {
            first.offer(id, &PayloadRow::trusted(&row_of(id)), 0);
            assert!(first.text_bytes <= ORDERED_TEXT_MAX_BYTES + ORDER_TEXT_MAX_BYTES);
        }
        let page = with_slice(async |slice| first.finish(slice).await).unwrap();
        assert!(page.more && page.positions.len() > 100, "{}", page.positions.len());
        let ids: Vec<u64> = page.positions.iter().map(|position| position.id).collect();
        assert!(ids.iter().copied().eq((0..2000).rev().take(ids.len())));
    }
}
