//! Changes of configurations as clients send them: objects of the keys that a configuration is made with, of which those are accepted whose
//! values may change while a collection serves. Any other is refused with its value and with the keys that can be changed.

use super::config::{NAMED_VECTORS, SPARSE, integer};
use crate::op::ApiError;
use crate::wire::embedded::invalid;
use crate::wire::json::{self, decode, field, field_seed, one_of, unknown_field};
use nigh_engine::collection::SPACES_MAX;
use nigh_engine::collection::config_keys::{Family, Key, Kind, Settings};
use nigh_engine::quoted::quoted;
use nigh_shard::family::{ConfigChange, NamedChange};
use serde::de::{Deserialize, DeserializeSeed, Deserializer, Error, MapAccess, Visitor};
use serde_json::value::RawValue;
use std::fmt;

/// Bytes of a value that an error repeats.
const SHOWN_BYTES: usize = 60;

/// Body of `PATCH /v1/named/{n}/config`.
#[derive(Default)]
struct NamedChangeBody {
    spaces: SpaceChanges,
    whole: WholeChange,
}

/// The keys of the body of `PATCH /v1/named/{n}/config`.
#[cfg(test)]
pub fn named_change_keys() -> impl Iterator<Item = &'static str> {
    let live = Key::of_whole().filter(|key| key.is_live());
    [NAMED_VECTORS].into_iter().chain(live.map(Key::name))
}

/// A change of a dense collection.
#[derive(Default)]
struct DenseChange(Settings);

/// A change of a multi-vector collection.
#[derive(Default)]
struct TokensChange(Settings);

/// A change of the collection keys of a collection of named spaces.
#[derive(Default)]
struct WholeChange(Settings);

/// Changes of spaces by their names.
#[derive(Default)]
struct SpaceChanges(Vec<(String, Settings)>);

/// Decodes the body of `PATCH …/config` for a collection of a family.
///
/// # Errors
/// 400 for keys that cannot be changed and for values of other types.
pub fn decode_change(family: Family, body: &[u8]) -> Result<ConfigChange, ApiError> {
    Ok(match family {
        Family::Dense => ConfigChange::Dense(decode::<DenseChange>(body)?.0),
        Family::MultiVector => ConfigChange::MultiVector(decode::<TokensChange>(body)?.0),
        Family::Named => {
            let NamedChangeBody { spaces, whole } = decode(body)?;
            ConfigChange::Named(NamedChange { spaces: spaces.0, whole: whole.0 })
        }
    })
}

/// Decodes a change from the binary protocol or gRPC. For a collection of named spaces, `json` is the object `named_vectors` and `whole` holds the
/// collection keys; either may be empty. For other collections `whole` must be empty. Each text comes with the name that errors give it.
///
/// # Errors
/// Returns the errors of [`decode_change`], and refuses `whole` for other collections.
pub fn decode_bare_change(
    family: Family,
    (json_name, json): (&str, &[u8]),
    (whole_name, whole): (&str, &[u8]),
) -> Result<ConfigChange, ApiError> {
    let of_json = |error: ApiError| invalid(json_name, &error);
    let of_whole = |error: ApiError| invalid(whole_name, &error);
    let (has_json, has_whole) = (!json.trim_ascii().is_empty(), !whole.trim_ascii().is_empty());
    match family {
        Family::Named => {
            let mut change = NamedChange::default();
            if has_json || !has_whole {
                change.spaces = decode::<SpaceChanges>(json).map_err(of_json)?.0;
            }
            if has_whole {
                change.whole = decode::<WholeChange>(whole).map_err(of_whole)?.0;
            }
            Ok(ConfigChange::Named(change))
        }
        Family::Dense | Family::MultiVector if has_whole => Err(of_whole(ApiError::invalid(
            "collection keys were sent for a collection without named spaces; send all keys in one object (change_json over gRPC)",
        ))),
        Family::Dense | Family::MultiVector => decode_change(family, json).map_err(of_json),
    }
}

/// Reads the keys of one configuration.
struct Changed<'k> {
    /// The keys that it has.
    keys: &'k [Key],
    /// Whether it is that of a space, which has a key more.
    is_space: bool,
    /// Names of further keys that errors list as changeable.
    beside: &'static [&'static str],
}

/// Reads the configuration of a whole collection.
fn whole<'de, D: Deserializer<'de>>(family: Family, deserializer: D) -> Result<Settings, D::Error> {
    let keys: Vec<Key> = Key::of(family).collect();
    deserializer.deserialize_map(Changed { keys: &keys, is_space: false, beside: &[] })
}

impl<'de> DeserializeSeed<'de> for Changed<'_> {
    type Value = Settings;
    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Settings, D::Error> {
        deserializer.deserialize_option(self)
    }
}

impl<'de> Visitor<'de> for Changed<'_> {
    type Value = Settings;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a JSON object")
    }

    fn visit_none<E>(self) -> Result<Settings, E> {
        Ok(Settings::default())
    }

    fn visit_some<D: Deserializer<'de>>(self, deserializer: D) -> Result<Settings, D::Error> {
        deserializer.deserialize_map(self)
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Settings, A::Error> {
        let mut settings = Settings::default();
        while let Some(json::Key(name)) = map.next_key()? {
            self.value(&name.to_ascii_lowercase(), &mut map, &mut settings)?;
        }
        Ok(settings)
    }
}

impl Changed<'_> {
    /// Reads the value of a key.
    fn value<'de, A: MapAccess<'de>>(
        &self,
        name: &str,
        map: &mut A,
        settings: &mut Settings,
    ) -> Result<(), A::Error> {
        let live = || self.keys.iter().copied().filter(|key| key.is_live());
        let names = || self.beside.iter().copied().chain(live().map(Key::name));
        let is_known = self.keys.iter().any(|key| key.name() == name) || (self.is_space && name == SPARSE);
        if let Some(key) = live().find(|key| key.name() == name) {
            // Every key whose value may change is a number without a fraction.
            let Kind::Int(ints) = key.kind() else { unreachable!("{key:?} has another type") };
            if let Some(value) = integer(ints, key.name(), map)? {
                settings.put(key, value);
            }
        } else if is_known {
            if let Some(value) = field::<_, &RawValue>(map, name)? {
                return Err(fixed(name, value.get(), names()));
            }
        } else {
            return Err(unknown_field(name, names()));
        }
        Ok(())
    }
}

/// The refusal of a key that a collection keeps as it was made.
fn fixed<'n, E: Error>(name: &str, value: &str, live: impl Iterator<Item = &'n str>) -> E {
    let shown = &value[..value.floor_char_boundary(SHOWN_BYTES)];
    let rest = if shown.len() < value.len() { "…" } else { "" };
    let name = quoted(name);
    E::custom(format_args!(
        "field {name} cannot be changed, found {shown}{rest}; {}",
        one_of(live).replacen("it must be", "what can be changed is", 1)
    ))
}

impl<'de> Deserialize<'de> for DenseChange {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        whole(Family::Dense, deserializer).map(DenseChange)
    }
}

impl<'de> Deserialize<'de> for TokensChange {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        whole(Family::MultiVector, deserializer).map(TokensChange)
    }
}

impl<'de> Deserialize<'de> for WholeChange {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let keys: Vec<Key> = Key::of_whole().collect();
        let changed = Changed { keys: &keys, is_space: false, beside: &[] };
        deserializer.deserialize_map(changed).map(WholeChange)
    }
}

impl<'de> Deserialize<'de> for NamedChangeBody {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Body;
        impl<'de> Visitor<'de> for Body {
            type Value = NamedChangeBody;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a JSON object")
            }
            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<NamedChangeBody, A::Error> {
                let keys: Vec<Key> = Key::of_whole().collect();
                let whole = Changed { keys: &keys, is_space: false, beside: &[NAMED_VECTORS] };
                let mut body = NamedChangeBody::default();
                while let Some(json::Key(name)) = map.next_key()? {
                    match &*name.to_ascii_lowercase() {
                        NAMED_VECTORS => {
                            body.spaces = field(&mut map, NAMED_VECTORS)?.unwrap_or(body.spaces);
                        }
                        name => whole.value(name, &mut map, &mut body.whole.0)?,
                    }
                }
                Ok(body)
            }
        }
        deserializer.deserialize_map(Body)
    }
}

impl<'de> Deserialize<'de> for SpaceChanges {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Spaces;
        impl<'de> Visitor<'de> for Spaces {
            type Value = SpaceChanges;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an object of spaces by their names")
            }
            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<SpaceChanges, A::Error> {
                let keys: Vec<Key> = Key::of(Family::Named).collect();
                let mut spaces: Vec<(String, Settings)> = Vec::new();
                while let Some(json::Key(name)) = map.next_key()? {
                    let changed = Changed { keys: &keys, is_space: true, beside: &[] };
                    let settings = field_seed(&mut map, &name, changed)?;
                    match spaces.iter().position(|(other, _)| *other == name) {
                        Some(at) => spaces[at].1 = settings,
                        // A collection has no more spaces than that, so that nobody looks through many names for each.
                        None if spaces.len() >= SPACES_MAX => {
                            return Err(A::Error::custom(format_args!("more than {SPACES_MAX} spaces")));
                        }
                        None => spaces.push((name.into_owned(), settings)),
                    }
                }
                Ok(SpaceChanges(spaces))
            }
        }
        deserializer.deserialize_map(Spaces)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use nigh_engine::collection::config_keys::Value;

    fn settings(family: Family, json: &str) -> Result<Vec<(Key, Value)>, String> {
        let settings = match decode_change(family, json.as_bytes()).map_err(|error| error.message)? {
            ConfigChange::Dense(settings) | ConfigChange::MultiVector(settings) => settings,
            ConfigChange::Named(NamedChange { whole, mut spaces }) => {
                spaces.pop().map_or(whole, |(_, settings)| settings)
            }
        };
        Ok(Key::ALL.iter().filter_map(|key| Some((*key, settings.get(*key)?))).collect())
    }

    fn check(family: Family, json: &str, expected: &[(Key, i128)]) {
        let expected: Vec<_> = expected.iter().map(|(key, number)| (*key, Value::Int(*number))).collect();
        assert_eq!(settings(family, json), Ok(expected), "{json}");
    }

    fn refused(family: Family, json: &str, text: &str) {
        let error = settings(family, json).expect_err(json);
        assert!(error.contains(text), "{json}: {error}");
    }

    #[test]
    fn what_can_be_changed_is_read() {
        let all = r#"{"ef_search":200,"rescore_factor":4,"max_vectors":18446744073709551615,"max_bytes":0,
            "max_inserts_per_second":7,"Max_EF_Search":9,"seed":null}"#;
        check(
            Family::Dense,
            all,
            &[
                (Key::EfSearch, 200),
                (Key::RescoreFactor, 4),
                (Key::MaxVectors, u64::MAX.into()),
                (Key::MaxBytes, 0),
                (Key::MaxInsertsPerSecond, 7),
                (Key::MaxEfSearch, 9),
            ],
        );
        check(
            Family::MultiVector,
            r#"{"ef_search":5,"ef_search":6,"rescore_factor":null}"#,
            &[(Key::EfSearch, 6)],
        );
        let space = r#"{"named_vectors":{"title":{"ef_search":5,"max_ef_search":6}}}"#;
        check(Family::Named, space, &[(Key::EfSearch, 5), (Key::MaxEfSearch, 6)]);
        check(Family::Named, r#"{"named_vectors":{"title":null}}"#, &[]);
        check(
            Family::Named,
            r#"{"named_vectors":null,"Max_Bytes":7,"max_vectors":8,"max_vectors":9,"full_text":null,"max_inserts_per_second":6}"#,
            &[(Key::MaxVectors, 9), (Key::MaxBytes, 7), (Key::MaxInsertsPerSecond, 6)],
        );
        check(
            Family::MultiVector,
            r#"{"ef_search":5,"max_vectors":6,"max_bytes":18446744073709551615,"max_inserts_per_second":7}"#,
            &[
                (Key::EfSearch, 5),
                (Key::MaxVectors, 6),
                (Key::MaxBytes, u64::MAX.into()),
                (Key::MaxInsertsPerSecond, 7),
            ],
        );
    }

    /// The spaces and the collection keys are sent as two JSON texts, and either may be left out.
    #[test]
    fn bare_changes_are_in_two_parts() {
        let bare = |spaces: &str, whole: &str| match decode_bare_change(
            Family::Named,
            ("change", spaces.as_bytes()),
            ("collectionKeys", whole.as_bytes()),
        ) {
            Ok(ConfigChange::Named(change)) => {
                let names: Vec<String> = change.spaces.into_iter().map(|(name, _)| name).collect();
                Ok((names, change.whole.get(Key::MaxVectors)))
            }
            Ok(other) => panic!("{other:?}"),
            Err(error) => Err(error.message),
        };
        let (space, quota) = (r#"{"title":{"ef_search":5}}"#, r#"{"max_vectors":3}"#);
        let names = vec!["title".to_owned()];
        assert_eq!(bare(space, ""), Ok((names.clone(), None)));
        assert_eq!(bare(space, quota), Ok((names, Some(Value::Int(3)))));
        assert_eq!(bare(" ", quota), Ok((vec![], Some(Value::Int(3)))));
        for (spaces, whole, text) in [
            ("", "", "change: invalid JSON body: the body is empty"),
            (
                space,
                r#"{"full_text":{}}"#,
                "collectionKeys: invalid JSON body: field \"full_text\" cannot be changed, found {}; what can be changed is one of max_vectors",
            ),
            (
                space,
                r#"{"dim":3}"#,
                "collectionKeys: invalid JSON body: unknown field \"dim\"; it must be one of max_vectors, max_bytes",
            ),
            (r#"{"max_vectors":3}"#, "", "change: invalid JSON body: field \"max_vectors\""),
        ] {
            let error = bare(spaces, whole).expect_err(whole);
            assert!(error.contains(text), "{spaces} {whole}: {error}");
        }
        for family in [Family::Dense, Family::MultiVector] {
            let bare = |json, whole| {
                decode_bare_change(family, ("change", json), ("collectionKeys", whole))
                    .map_err(|error| error.message)
            };
            let error = bare(b"{}", quota.as_bytes()).expect_err("two parts");
            assert!(
                error.starts_with("collectionKeys: collection keys were sent for a collection without"),
                "{error}"
            );
            let error = bare(br#"{"dim":5}"#, b"").expect_err("a key that cannot be changed");
            assert!(
                error.starts_with("change: invalid JSON body: field \"dim\" cannot be changed"),
                "{error}"
            );
            assert!(bare(br#"{"ef_search":5}"#, b" ").is_ok());
        }
    }

    /// Every key that a collection of the family can be made with is either changed or named in the refusal, with its value.
    #[test]
    fn what_cannot_be_changed_is_refused_by_name() {
        for family in [Family::Dense, Family::Named, Family::MultiVector] {
            let around = |json: String| match family {
                Family::Named => format!(r#"{{"named_vectors":{{"title":{json}}}}}"#),
                _ => json,
            };
            let live: Vec<&str> = Key::live_of(family).map(Key::name).collect();
            let names = Key::of(family).map(Key::name).chain((family == Family::Named).then_some(SPARSE));
            for name in names.filter(|name| !live.contains(name)) {
                for value in ["7", "\"seven\"", "true", "{\"a\":[1,2]}"] {
                    let json = around(format!(r#"{{"ef_search":9,"{name}":{value}}}"#));
                    let text = format!(
                        "field {name:?} cannot be changed, found {value}; what can be changed is one of {}",
                        live.join(", ")
                    );
                    refused(family, &json, &text);
                }
            }
            for name in &live {
                for value in ["\"seven\"", "true", "1.5", "1e3", "[1]", "18446744073709551616"] {
                    refused(family, &around(format!(r#"{{"{name}":{value}}}"#)), &format!("field {name:?}"));
                }
            }
            let json = around(r#"{"ef":7}"#.to_owned());
            refused(family, &json, &format!("unknown field \"ef\"; it must be one of {}", live.join(", ")));
        }
        refused(Family::Dense, &format!(r#"{{"metric":"{}"}}"#, "x".repeat(1000)), "xxx…; what");
        // Keys of other families.
        refused(Family::MultiVector, r#"{"max_ef_search":7}"#, "unknown field \"max_ef_search\"");
        refused(
            Family::Named,
            r#"{"full_text":{"k1":1}}"#,
            "field \"full_text\" cannot be changed, found {\"k1\":1}; what can be changed is one of named_vectors, max_vectors, max_bytes",
        );
        refused(
            Family::Named,
            r#"{"named_vectors":{"title":{"max_bytes":7}}}"#,
            "unknown field \"max_bytes\"",
        );
        refused(
            Family::Named,
            r#"{"ef_search":7}"#,
            "unknown field \"ef_search\"; it must be one of named_vectors, max_vectors, max_bytes",
        );
        refused(Family::Dense, "[]", "expected a JSON object");
        let many: Vec<String> = (0..=SPACES_MAX).map(|at| format!("\"{at}\":{{}}")).collect();
        refused(
            Family::Named,
            &format!(r#"{{"named_vectors":{{{}}}}}"#, many.join(",")),
            "more than 64 spaces",
        );
    }
}
