//! The options of a search as every transport says them: keys of a body of REST, or one JSON object beside the arguments of the others.

use crate::op::{ApiError, SearchOptions};
use crate::wire::json::{UpTo, json_object};
use nigh_shard::core::ShownPayload;
use serde::de::{self, Deserialize, Deserializer, SeqAccess, Visitor};
use std::fmt;

/// Keys that a search may ask for, so that each hit is compared with few.
pub const SHOWN_KEYS_MAX: usize = 256;

json_object! {
    /// The options of a search.
    pub struct OptionsBody {
        "ef_search" => ef_search: i64,
        "exact" => exact: bool,
        "offset" => offset: i64,
        "score_threshold" => score_threshold: f64,
        "distance_threshold" => distance_threshold: f64,
        "with_score" => with_score: bool,
        "with_payload" => with_payload: WithPayload,
        "with_vector" => with_vector: bool,
        "explain" => explain: bool,
    }
}

/// `true`, `false`, or the keys of a payload.
pub struct WithPayload(pub ShownPayload);

impl<'de> Deserialize<'de> for WithPayload {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Shown;
        impl<'de> Visitor<'de> for Shown {
            type Value = WithPayload;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("true, false, or an array of payload keys")
            }
            fn visit_bool<E: de::Error>(self, all: bool) -> Result<WithPayload, E> {
                Ok(WithPayload(if all { ShownPayload::All } else { ShownPayload::None }))
            }
            fn visit_seq<A: SeqAccess<'de>>(self, array: A) -> Result<WithPayload, A::Error> {
                let array = de::value::SeqAccessDeserializer::new(array);
                let UpTo(mut keys) = UpTo::<String, SHOWN_KEYS_MAX>::deserialize(array)?;
                if keys.len() > SHOWN_KEYS_MAX {
                    return Err(de::Error::custom(format_args!(
                        "at most {SHOWN_KEYS_MAX} keys may be listed"
                    )));
                }
                // Hits look their keys up.
                keys.sort_unstable();
                Ok(WithPayload(ShownPayload::Keys(keys)))
            }
        }
        deserializer.deserialize_any(Shown)
    }
}

impl OptionsBody {
    /// The options. Whether their values are allowed is for the operation to say.
    pub fn into_options(self) -> SearchOptions {
        SearchOptions {
            ef_search: self.ef_search,
            exact: self.exact.unwrap_or(false),
            offset: self.offset.unwrap_or(0),
            score_threshold: self.score_threshold,
            distance_threshold: self.distance_threshold,
            with_score: self.with_score.unwrap_or(false),
            with_payload: self.with_payload.map(|shown| shown.0),
            with_vector: self.with_vector.unwrap_or(false),
            explain: self.explain.unwrap_or(false),
        }
    }
}

/// The options of a JSON object, which an argument of that name holds; none at all are the default.
///
/// # Errors
/// 400 that names the argument and the key.
pub fn options_of(argument: &'static str, json: &[u8]) -> Result<SearchOptions, ApiError> {
    if json.trim_ascii().is_empty() {
        return Ok(SearchOptions::default());
    }
    match serde_json::from_slice::<Option<OptionsBody>>(json) {
        Ok(body) => Ok(body.unwrap_or_default().into_options()),
        Err(error) => Err(crate::wire::embedded::invalid(argument, crate::wire::json::in_words(&error))),
    }
}

/// Defines the body of a search: its own keys, and those that every search takes.
macro_rules! search_body {
    ($(#[$meta:meta])* $vis:vis struct $name:ident { $($(#[$field_meta:meta])* $key:literal => $field:ident: $type:ty),* $(,)? }) => {
        $crate::wire::json::json_object! {
            $(#[$meta])*
            $vis struct $name {
                $($(#[$field_meta])* $key => $field: $type,)*
                "ef_search" => ef_search: i64,
                "exact" => exact: bool,
                "offset" => offset: i64,
                "score_threshold" => score_threshold: f64,
                "distance_threshold" => distance_threshold: f64,
                "with_score" => with_score: bool,
                "with_payload" => with_payload: $crate::wire::search_options::WithPayload,
                "with_vector" => with_vector: bool,
                "explain" => explain: bool,
                "read_consistency" => read_consistency: u8,
                "on_partition_unavailable" => on_partition_unavailable: u8,
                "max_staleness" => max_staleness: u64,
            }
        }

        impl $name {
            /// Takes the options out of the body.
            fn options(&mut self) -> $crate::op::SearchOptions {
                let body = $crate::wire::search_options::OptionsBody {
                    ef_search: self.ef_search.take(),
                    exact: self.exact.take(),
                    offset: self.offset.take(),
                    score_threshold: self.score_threshold.take(),
                    distance_threshold: self.distance_threshold.take(),
                    with_score: self.with_score.take(),
                    with_payload: self.with_payload.take(),
                    with_vector: self.with_vector.take(),
                    explain: self.explain.take(),
                };
                body.into_options()
            }
        }
    };
}
pub(crate) use search_body;

#[cfg(test)]
mod tests {
    use super::*;

    fn options(json: &str) -> Result<SearchOptions, String> {
        options_of("options", json.as_bytes()).map_err(|error| error.message)
    }

    #[test]
    fn options_as_json() {
        assert_eq!(options(""), Ok(SearchOptions::default()));
        assert_eq!(options("null"), Ok(SearchOptions::default()));
        assert_eq!(options("{}"), Ok(SearchOptions::default()));
        let all = r#"{"ef_search":9,"exact":true,"offset":3,"score_threshold":0.5,"distance_threshold":-1,
            "with_score":true,"with_payload":["b","a"],"with_vector":true,"explain":true}"#;
        let keys = ShownPayload::Keys(vec!["a".into(), "b".into()]);
        assert_eq!(
            options(all),
            Ok(SearchOptions {
                ef_search: Some(9),
                exact: true,
                offset: 3,
                score_threshold: Some(0.5),
                distance_threshold: Some(-1.0),
                with_score: true,
                with_payload: Some(keys),
                with_vector: true,
                explain: true,
            })
        );
        let with_payload =
            |json: &str| options(&format!(r#"{{"with_payload":{json}}}"#)).unwrap().with_payload;
        assert_eq!(with_payload("true"), Some(ShownPayload::All));
        assert_eq!(with_payload("false"), Some(ShownPayload::None));
        assert_eq!(with_payload("[]"), Some(ShownPayload::Keys(vec![])));
        assert_eq!(with_payload("null"), None);
    }

    #[test]
    fn refusals_name_the_key() {
        let many = format!(r#"{{"with_payload":{:?}}}"#, vec!["k"; SHOWN_KEYS_MAX + 1]);
        for (json, fragment) in [
            (r#"{"ef":1}"#, "unknown field \"ef\"; it must be one of ef_search, exact, offset"),
            (r#"{"offset":1.5}"#, "field \"offset\""),
            (r#"{"exact":1}"#, "field \"exact\""),
            (r#"{"with_payload":1}"#, "expected true, false, or an array of payload keys"),
            (r#"{"with_payload":[1]}"#, "field \"with_payload\""),
            (many.as_str(), "at most 256 keys may be listed"),
            ("[]", "a JSON object"),
            ("{", "EOF"),
        ] {
            let refused = options(json).expect_err(json);
            assert!(refused.contains(fragment) && refused.contains("options"), "{json}: {refused}");
        }
    }
}
