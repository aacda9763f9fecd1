//! The three transports behind one face: each turns what is asked into its own format, and what is answered into a common one.
use super::ids::filter_json;
use super::model::{Ask, Change, Collection, Doomed, ENCODING_REPETITIONS, Family, Hit, Put, Space, Stored};
use nigh_tests::twin::{Filter, Payload, Val};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::io;

/// What a write came to, or the sentence of its refusal. The outer error is a broken connection.
pub type Told<T> = io::Result<Result<T, String>>;

/// What to order a scroll by, and whether from the greatest.
pub type Order = Option<(&'static str, bool)>;

/// A connection.
pub trait Transport {
    fn create(&mut self, of: &Collection);
    /// Adds a space to a collection of named spaces.
    fn add_space(&mut self, of: &Collection, name: &str, config: &Value) -> Told<()>;
    /// Drops one.
    fn drop_space(&mut self, of: &Collection, name: &str) -> Told<()>;
    fn put(&mut self, of: &Collection, put: &Put) -> Told<()>;
    /// Several points in one request where there is one for that, or else in requests that do not wait for each other.
    fn put_many(&mut self, of: &Collection, puts: &[Put]) -> Told<()>;
    /// Whether a point was there.
    fn delete(&mut self, of: &Collection, id: u64, expected: Option<u64>) -> Told<bool>;
    /// How many were there; `None` where the transport has no such request.
    fn delete_many(&mut self, of: &Collection, doomed: &Doomed) -> Option<Told<u64>>;
    /// Whether the point is there.
    fn change(&mut self, of: &Collection, id: u64, change: &Change, expected: Option<u64>) -> Told<bool>;
    fn point(&mut self, of: &Collection, id: u64) -> Option<Stored>;
    fn points(&mut self, of: &Collection, ids: &[u64]) -> BTreeMap<u64, Stored>;
    fn ask(&mut self, of: &Collection, ask: &Ask) -> Vec<Hit>;
    /// A page and the cursor behind it, empty at the end.
    fn page(
        &mut self,
        of: &Collection,
        filter: Option<&Filter>,
        limit: usize,
        cursor: &str,
        order: Order,
    ) -> (Vec<Hit>, String);
}

pub const NAMES: [&str; 3] = ["REST", "TCP", "gRPC"];

/// The flags of a server that has all of them.
pub const FLAGS: [&str; 6] = ["-tcp", "127.0.0.1:0", "-grpc", "127.0.0.1:0", "-ttl-sweep-interval", "50ms"];

/// The keys of a named collection beside its spaces.
pub fn whole(of: &Collection) -> Value {
    let mut whole = json!({"full_text": {}});
    if of.has_text_ids {
        whole["ids"] = json!("string");
    }
    whole
}

/// The configuration of a space.
pub fn space_config(of: &Collection, space: &Space) -> Value {
    json!({"dim": space.dim, "metric": space.metric, "seed": of.seed})
}

/// The configuration of a sparse space.
pub fn sparse_config() -> Value {
    json!({"sparse": true})
}

/// The spaces of a named collection, or the configuration of any other.
pub fn config(of: &Collection) -> Value {
    let space = |metric: bool| {
        let space = &of.dense[0];
        let mut config = json!({"dim": space.dim, "seed": of.seed});
        if metric {
            config["metric"] = json!(space.metric);
        }
        config
    };
    match of.family {
        Family::Documents | Family::Dense => {
            let mut config = space(of.family == Family::Dense);
            if of.is_encoded {
                config["first_stage"] = json!("encodings");
                config["encoding_repetitions"] = json!(ENCODING_REPETITIONS);
            }
            config["full_text"] = json!({});
            if of.has_text_ids {
                config["ids"] = json!("string");
            }
            config
        }
        Family::Named => {
            let dense = of.dense.iter().map(|space| (space.name.to_owned(), space_config(of, space)));
            let sparse = of.sparse.iter().map(|name| ((*name).to_owned(), sparse_config()));
            Value::Object(dense.chain(sparse).collect())
        }
    }
}

/// A payload as answers have it; what is left out is zero or empty.
#[track_caller]
pub fn payload_of(json: &Value) -> Payload {
    let entries = json.as_object().into_iter().flatten();
    entries.map(|(key, value)| (key.clone(), Val::read(value).expect("a kind the twin writes"))).collect()
}

/// Behind a length that is 0 where there is none, or in a string that is empty.
#[track_caller]
pub fn payload_in(text: &str) -> Payload {
    match text {
        "" => Payload::new(),
        text => payload_of(&serde_json::from_str(text).expect("JSON")),
    }
}

/// A payload with its document.
pub fn with_content(mut payload: Payload, content: &str) -> Payload {
    if !content.is_empty() {
        payload.insert("$content".to_owned(), Val::Str(content.to_owned()));
    }
    payload
}

/// A payload without its document, which stands beside it in some formats, and the document.
pub fn without_content(payload: &Payload) -> (Payload, String) {
    let mut payload = payload.clone();
    match payload.remove("$content") {
        Some(Val::Str(content)) => (payload, content),
        _ => (payload, String::new()),
    }
}

/// The JSON of a filter, if there is one.
pub fn filter_text(of: &Collection, filter: Option<&Filter>) -> String {
    filter.map_or(String::new(), |filter| filter_json(of, filter).to_string())
}
