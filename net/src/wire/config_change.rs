//! Changes of configurations as clients send them: objects of the keys that a configuration is made with, of which those are accepted whose
//! values may change while a collection serves. Any other is refused with its value and with the keys that can be changed.

use super::config::{SPARSE, integer};
use crate::op::ApiError;
use crate::wire::json::{self, decode, field, field_seed, json_object, one_of, unknown_field};
use nigh_engine::collection::SPACES_MAX;
use nigh_engine::collection::config_keys::{Family, Key, Kind, Settings};
use nigh_engine::quoted::quoted;
use nigh_shard::family::ConfigChange;
use serde::de::{Deserialize, DeserializeSeed, Deserializer, Error, MapAccess, Visitor};
use serde_json::value::RawValue;
use std::fmt;

/// Bytes of a value that an error repeats.
const SHOWN_BYTES: usize = 60;

json_object! {
    /// Body of `PATCH /v1/named/{n}/config`.
    pub struct NamedChangeBody {
        "named_vectors" => named_vectors: SpaceChanges,
    }
}

/// A change of a dense collection.
#[derive(Default)]
struct DenseChange(Settings);

/// A change of a multi-vector collection.
#[derive(Default)]
struct TokensChange(Settings);

/// Changes of spaces by their names.
#[derive(Default)]
pub struct SpaceChanges(Vec<(String, Settings)>);

/// Decodes the body of `PATCH …/config` for a collection of a family.
///
/// # Errors
/// 400 for keys that cannot be changed and for values of other types.
pub fn decode_change(family: Family, body: &[u8]) -> Result<ConfigChange, ApiError> {
    Ok(match family {
        Family::Dense => ConfigChange::Dense(decode::<DenseChange>(body)?.0),
        Family::MultiVector => ConfigChange::MultiVector(decode::<TokensChange>(body)?.0),
        Family::Named => {
            let body: NamedChangeBody = decode(body)?;
            ConfigChange::Named(body.named_vectors.unwrap_or_default().0)
        }
    })
}

/// Decodes the JSON that the binary protocol and gRPC carry: of a collection of named spaces it is the object `named_vectors` alone, as when
/// the collection is made.
///
/// # Errors
/// Returns the errors of [`decode_change`].
pub fn decode_bare_change(family: Family, json: &[u8]) -> Result<ConfigChange, ApiError> {
    match family {
        Family::Named => Ok(ConfigChange::Named(decode::<SpaceChanges>(json)?.0)),
        Family::Dense | Family::MultiVector => decode_change(family, json),
    }
}

/// Reads the keys of one configuration.
struct Changed<'k> {
    /// The keys that it has.
    keys: &'k [Key],
    /// Whether it is that of a space, which has a key more.
    is_space: bool,
}

/// Reads the configuration of a whole collection.
fn whole<'de, D: Deserializer<'de>>(family: Family, deserializer: D) -> Result<Settings, D::Error> {
    let keys: Vec<Key> = Key::of(family).collect();
    deserializer.deserialize_map(Changed { keys: &keys, is_space: false })
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
            let folded = name.to_ascii_lowercase();
            let live = || self.keys.iter().copied().filter(|key| key.is_live());
            let is_known =
                self.keys.iter().any(|key| key.name() == folded) || (self.is_space && folded == SPARSE);
            if let Some(key) = live().find(|key| key.name() == folded) {
                // Every key whose value may change is a number without a fraction.
                let Kind::Int(ints) = key.kind() else { unreachable!("{key:?} has another type") };
                if let Some(value) = integer(ints, key.name(), &mut map)? {
                    settings.put(key, value);
                }
            } else if is_known {
                if let Some(value) = field::<_, &RawValue>(&mut map, &folded)? {
                    return Err(fixed(&folded, value.get(), live().map(Key::name)));
                }
            } else {
                return Err(unknown_field(&folded, live().map(Key::name)));
            }
        }
        Ok(settings)
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
                    let settings = field_seed(&mut map, &name, Changed { keys: &keys, is_space: true })?;
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
            ConfigChange::Named(mut spaces) => {
                spaces.pop().map_or_else(Settings::default, |(_, settings)| settings)
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
        assert!(matches!(
            decode_bare_change(Family::Named, br#"{"title":{"ef_search":5}}"#),
            Ok(ConfigChange::Named(spaces)) if spaces.len() == 1 && spaces[0].0 == "title"
        ));
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
        refused(Family::MultiVector, r#"{"max_vectors":7}"#, "unknown field \"max_vectors\"");
        refused(
            Family::Named,
            r#"{"named_vectors":{"title":{"max_bytes":7}}}"#,
            "unknown field \"max_bytes\"",
        );
        refused(Family::Named, r#"{"ef_search":7}"#, "unknown field \"ef_search\"; it must be named_vectors");
        refused(Family::Dense, "[]", "expected a JSON object");
        let many: Vec<String> = (0..=SPACES_MAX).map(|at| format!("\"{at}\":{{}}")).collect();
        refused(
            Family::Named,
            &format!(r#"{{"named_vectors":{{{}}}}}"#, many.join(",")),
            "more than 64 spaces",
        );
    }
}
