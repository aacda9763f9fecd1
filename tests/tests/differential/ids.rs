//! What points are named by. The model knows numbers alone: in a collection whose ids are strings, an id is the number of its string.
use super::draws::IDS;
use super::model::Collection;
use nigh_engine::point_id::{ID_KEY, TEXT_ID_MAX_BYTES, number_of};
use nigh_tests::twin::{Filter, Payload, Val, tagged};
use percent_encoding::{NON_ALPHANUMERIC, utf8_percent_encode};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::sync::LazyLock;

/// Places of ids that requests name are below this. No point has an id at a place from [`IDS`] on.
pub const PLACES: u64 = IDS + 9;

/// All strings by their numbers.
static TEXTS: LazyLock<BTreeMap<u64, String>> = LazyLock::new(|| {
    let texts: BTreeMap<u64, String> = (0..PLACES).map(|place| (number_at(place), text_at(place))).collect();
    assert_eq!(texts.len() as u64, PLACES, "two places have the same string");
    texts
});

/// The string at a place: JSON and paths escape parts of it, or it looks like something else.
fn text_at(place: u64) -> String {
    match place % 8 {
        0 => format!("p/{place} ü"),
        1 => format!("550e8400-e29b-41d4-a716-{place:012}"),
        2 => format!("a b%{place}"),
        3 => place.to_string(),
        4 => format!("\"😀\\{place}\n"),
        5 => format!("{place:x<TEXT_ID_MAX_BYTES$}"),
        6 => format!("../%2F{place}?a=b&c#+"),
        // These come in pairs that differ only in how an accent is written.
        _ => format!("{}{}", ["é", "e\u{301}"][(place / 8 % 2) as usize], place / 16),
    }
}

fn number(text: &str) -> u64 {
    number_of(text).expect("a string that may name a point")
}

fn number_at(place: u64) -> u64 {
    number(&text_at(place))
}

impl Collection {
    /// The id at a place, which is below [`PLACES`].
    pub fn id(&self, place: u64) -> u64 {
        if self.has_text_ids { number_at(place) } else { place }
    }

    /// The string that an id is the number of, where ids are strings.
    pub fn text_id(&self, id: u64) -> Option<&'static str> {
        self.has_text_ids.then(|| TEXTS.get(&id).expect("the number of one of the strings").as_str())
    }
}

/// An id in a body of REST.
pub fn id_json(of: &Collection, id: u64) -> Value {
    of.text_id(id).map_or_else(|| json!(id), |text| json!(text))
}

/// Ids in a body of REST.
pub fn ids_json(of: &Collection, ids: &[u64]) -> Value {
    ids.iter().map(|id| id_json(of, *id)).collect()
}

/// An id in a path of REST.
pub fn id_in_path(of: &Collection, id: u64) -> String {
    match of.text_id(id) {
        Some(text) => utf8_percent_encode(text, NON_ALPHANUMERIC).to_string(),
        None => id.to_string(),
    }
}

/// An id in an answer of REST, which must be of the kind that the collection has.
#[track_caller]
pub fn id_of(of: &Collection, json: &Value) -> u64 {
    match of.has_text_ids {
        true => number(json.as_str().expect("an id that is a string")),
        false => json.as_u64().expect("an id that is a number"),
    }
}

/// A filter as all transports have it: the ids in it are strings where points are named by strings.
pub fn filter_json(of: &Collection, filter: &Filter) -> Value {
    let mut json = filter.json();
    if of.has_text_ids {
        name_ids(of, &mut json);
    }
    json
}

fn name_ids(of: &Collection, json: &mut Value) {
    match json {
        Value::Array(all) => all.iter_mut().for_each(|json| name_ids(of, json)),
        Value::Object(entries) => entries.iter_mut().for_each(|(key, json)| match (key.as_str(), json) {
            ("has_id", Value::Array(ids)) => {
                ids.iter_mut().for_each(|id| *id = id_json(of, id.as_u64().expect("a number")));
            }
            (_, json) => name_ids(of, json),
        }),
        _ => {}
    }
}

/// The number of a point in a message that writes it. Where the payload has the string it may be left out, and half of the points do so.
pub fn sent_number(of: &Collection, id: u64) -> u64 {
    if of.has_text_ids && id.is_multiple_of(2) { 0 } else { id }
}

/// A payload in a message that writes a point: it has the string of the id where ids are strings.
pub fn payload_with_id(of: &Collection, id: u64, payload: &Payload) -> String {
    let mut payload = payload.clone();
    if let Some(text) = of.text_id(id) {
        payload.insert(ID_KEY.to_owned(), Val::Str(text.to_owned()));
    }
    tagged(&payload).to_string()
}

/// A payload without the string of the id, which stands in it where an answer has a number in place of a string. It must be there.
#[track_caller]
pub fn without_id(of: &Collection, id: u64, mut payload: Payload) -> Payload {
    let text = of.text_id(id).map(|text| Val::Str(text.to_owned()));
    assert_eq!(payload.remove(ID_KEY), text, "the string of the id {id} in {}", of.name);
    payload
}
