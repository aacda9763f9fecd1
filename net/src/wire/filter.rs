//! Filters as JSON.

use crate::limits::FILTER_NODES_MAX;
use crate::op::SentIds;
use crate::wire::ids::read_ids;
use crate::wire::json::{json_object, one_of};
use crate::wire::value::{UnknownKeys, ValueSeed};
use nigh_engine::filter::{Geo, MAX_IDS, MinShould, Node, is_operator, operator_names};
use nigh_engine::payload::Value;
use nigh_engine::quoted::quoted;
use serde::de::{self, Deserialize, DeserializeSeed, Deserializer, Error as _, SeqAccess, Visitor};
use std::cell::Cell;
use std::fmt;

/// A filter node as sent.
#[derive(Default)]
pub struct WireFilter(pub Node);

/// A filter operand; unlike a payload entry, `null` means it was not sent.
struct Operand(Value);

impl<'de> Deserialize<'de> for Operand {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        ValueSeed(UnknownKeys::Refused).deserialize(deserializer).map(Operand)
    }
}

json_object! {
    struct NodeBody {
        "op" => op: String,
        "field" => field: String,
        "value" => value: Operand,
        "and" => and: Vec<WireFilter>,
        "or" => or: Vec<WireFilter>,
        "not" => not: Box<WireFilter>,
        "geo" => geo: GeoBody,
        "has_id" => has_id: ListedIds,
        "min_should" => min_should: MinShouldBody,
    }
}

/// Ids of one list, of which no more are read than a filter may have.
struct ListedIds(SentIds);

impl<'de> Deserialize<'de> for ListedIds {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct IdsVisitor;
        impl<'de> Visitor<'de> for IdsVisitor {
            type Value = ListedIds;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an array of ids")
            }
            fn visit_seq<A: SeqAccess<'de>>(self, items: A) -> Result<ListedIds, A::Error> {
                let check = |count| match count > MAX_IDS {
                    true => Err(A::Error::custom(format_args!("more than {MAX_IDS} ids in a list"))),
                    false => Ok(()),
                };
                read_ids(items, check).map(ListedIds)
            }
        }
        deserializer.deserialize_seq(IdsVisitor)
    }
}

json_object! {
    struct MinShouldBody {
        "conditions" => conditions: Vec<WireFilter>,
        "min_count" => min_count: u64,
    }
}

json_object! {
    struct GeoBody {
        "center_lat" => center_lat: f64,
        "center_lon" => center_lon: f64,
        "radius_m" => radius_m: f64,
        "min_lat" => min_lat: f64,
        "min_lon" => min_lon: f64,
        "max_lat" => max_lat: f64,
        "max_lon" => max_lon: f64,
        "polygon" => polygon: Vec<f64>,
    }
}

thread_local! {
    /// Nodes of the filter being read, and how deep the reader is in it.
    static READING: Cell<(usize, usize)> = const { Cell::new((0, 0)) };
}

/// One node being read: counts it, while there is room, in the filter it belongs to.
struct Reading;

impl Reading {
    fn begin() -> Result<Reading, &'static str> {
        let (nodes, depth) = READING.get();
        let nodes = if depth == 0 { 0 } else { nodes };
        if nodes >= FILTER_NODES_MAX {
            return Err("the filter has too many nodes");
        }
        READING.set((nodes + 1, depth + 1));
        Ok(Reading)
    }
}

impl Drop for Reading {
    fn drop(&mut self) {
        let (nodes, depth) = READING.get();
        READING.set((nodes, depth - 1));
    }
}

impl<'de> Deserialize<'de> for WireFilter {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let _counted = Reading::begin().map_err(de::Error::custom)?;
        let body = NodeBody::deserialize(deserializer)?;
        if let Some(op) = &body.op
            && !is_operator(op)
        {
            return Err(de::Error::custom(format_args!(
                "unknown op {}; {}",
                quoted(op),
                one_of(operator_names())
            )));
        }
        let children = |nodes: Vec<WireFilter>| nodes.into_iter().map(|node| node.0).collect();
        Ok(WireFilter(Node {
            op: body.op,
            field: body.field,
            value: body.value.map(|operand| operand.0),
            and: body.and.map(children),
            or: body.or.map(children),
            not: body.not.map(|node| Box::new(node.0)),
            geo: body.geo.map(|geo| Geo {
                center_lat: geo.center_lat,
                center_lon: geo.center_lon,
                radius_m: geo.radius_m,
                min_lat: geo.min_lat,
                min_lon: geo.min_lon,
                max_lat: geo.max_lat,
                max_lon: geo.max_lon,
                polygon: geo.polygon,
            }),
            id_kind: body.has_id.as_ref().and_then(|ids| ids.0.kind),
            has_id: body.has_id.map(|ids| ids.0.numbers),
            min_should: body.min_should.map(|some| MinShould {
                conditions: some.conditions.map(children),
                min_count: some.min_count,
            }),
        }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wire::json::decode;
    use nigh_engine::filter::Predicate;
    use nigh_engine::point_id::{IdKind, number_of};

    fn parse(body: &str) -> Node {
        decode::<WireFilter>(body.as_bytes()).unwrap().0
    }

    #[test]
    fn nodes_are_counted_per_filter() {
        let filter = |nodes: usize| format!(r#"{{"op":"and","and":[{}]}}"#, vec!["{}"; nodes].join(","));
        for _ in 0..2 {
            assert!(decode::<WireFilter>(filter(FILTER_NODES_MAX - 1).as_bytes()).is_ok());
            let error = decode::<WireFilter>(filter(FILTER_NODES_MAX).as_bytes()).err().unwrap();
            assert!(error.message.contains("too many nodes"), "{error}");
        }
    }

    #[test]
    fn an_unknown_op_is_answered_with_the_known_ones() {
        let error = decode::<WireFilter>(br#"{"op":"and","and":[{"op":"equals"}]}"#).err().unwrap().message;
        assert!(error.starts_with("invalid JSON body: "), "{error}");
        assert!(error.contains(r#"unknown op "equals"; it must be one of and, or, not, eq, ne,"#), "{error}");
        assert!(error.contains(", geo_polygon"), "{error}");
    }

    #[test]
    fn the_clients_forms() {
        let node = parse(
            r#"{"op":"and","and":[{"op":"eq","field":"city","value":{"kind":"string","str":"Oslo"}},
                {"op":"not","not":{"op":"in","field":"n","value":{"kind":"ints","ints":[1,2]}}}]}"#,
        );
        let children = node.and.unwrap();
        assert_eq!(children[0].value, Some(Value::String("Oslo".into())));
        assert_eq!(children[0].field.as_deref(), Some("city"));
        assert_eq!(children[1].not.as_ref().unwrap().value, Some(Value::Ints(vec![1, 2])));
    }

    #[test]
    fn native_values_and_absent_parts() {
        let node = parse(r#"{"op":"eq","field":"tenant","value":"acme","not":null}"#);
        assert_eq!(node.value, Some(Value::String("acme".into())));
        assert!(node.not.is_none());
        assert_eq!(parse("{}"), Node::default());
        assert_eq!(parse("null"), Node::default());
    }

    #[test]
    fn conditions_of_which_some_hold() {
        let node = parse(
            r#"{"op":"min_should","min_should":{"min_count":2,"conditions":[{"op":"exists","field":"a"},{},
                {"op":"min_should","min_should":{"conditions":[{}],"min_count":1}}]}}"#,
        );
        let some = node.min_should.unwrap();
        let conditions = some.conditions.unwrap();
        assert_eq!((some.min_count, conditions.len()), (Some(2), 3));
        assert_eq!(conditions[0].op.as_deref(), Some("exists"));
        assert_eq!(conditions[2].min_should.as_ref().unwrap().conditions, Some(vec![Node::default()]));
        for (body, fragment) in [
            (r#"{"op":"min_should","min_should":{"min_count":-1}}"#, r#"field "min_count": "#),
            (
                r#"{"op":"min_should","min_should":{"min":1}}"#,
                r#"unknown field "min"; it must be one of conditions"#,
            ),
            (r#"{"op":"min_should","min_should":[{}]}"#, r#"field "min_should": "#),
        ] {
            let error = decode::<WireFilter>(body.as_bytes()).err().expect(body);
            assert!(error.message.contains(fragment), "{body}: {}", error.message);
        }
        // They count like others.
        let nodes = vec!["{}"; FILTER_NODES_MAX].join(",");
        let body = format!(r#"{{"op":"min_should","min_should":{{"conditions":[{nodes}]}}}}"#);
        assert!(decode::<WireFilter>(body.as_bytes()).err().unwrap().message.contains("too many nodes"));
    }

    #[test]
    fn lists_of_ids() {
        let node = parse(r#"{"op":"has_id","has_id":[0,18446744073709551615]}"#);
        assert_eq!((node.has_id, node.id_kind), (Some(vec![0, u64::MAX]), Some(IdKind::Number)));
        let node = parse(r#"{"op":"has_id","has_id":["1"]}"#);
        assert_eq!(
            (node.has_id, node.id_kind),
            (number_of("1").ok().map(|id| vec![id]), Some(IdKind::String))
        );
        let mixed = r#"{"op":"or","or":[{"op":"has_id","has_id":["1"]},{"op":"has_id","has_id":[1]}]}"#;
        let refused = Predicate::compile(&parse(mixed)).expect_err("kinds are mixed");
        assert!(
            refused.to_string().contains("or[1]: the lists of ids in one filter hold strings and numbers"),
            "{refused}"
        );
        for ids in ["[-1]", "[1.5]", r#"["1",1]"#, "7", "[18446744073709551616]", "[null]"] {
            let body = format!(r#"{{"op":"has_id","has_id":{ids}}}"#);
            let error = decode::<WireFilter>(body.as_bytes()).err().expect(ids);
            assert!(error.message.contains(r#"field "has_id": "#), "{ids}: {}", error.message);
        }
    }

    #[test]
    fn geo_parts() {
        let node = parse(r#"{"op":"geo_polygon","field":"p","geo":{"polygon":[0,0,0,1,1,1],"radius_m":5}}"#);
        let geo = node.geo.unwrap();
        assert_eq!(geo.polygon, Some(vec![0.0, 0.0, 0.0, 1.0, 1.0, 1.0]));
        assert_eq!((geo.radius_m, geo.min_lat), (Some(5.0), None));
    }

    #[test]
    fn unknown_keys_at_any_depth() {
        for body in [
            r#"{"opp":"eq"}"#,
            r#"{"op":"like","field":"x","value":1}"#,
            r#"{"op":"and","and":[{"op":"EQ"}]}"#,
            r#"{"op":"and","and":[{"op":"eq","fields":"x"}]}"#,
            r#"{"op":"eq","field":"x","value":{"kind":"int","int":1,"unit":"m"}}"#,
            r#"{"op":"geo_radius","field":"x","geo":{"lat":1}}"#,
            r#"{"op":"eq","field":"x","value":{"int":1}}"#,
            r#"{"op":"eq","field":"x","value":{"kind":"blob"}}"#,
        ] {
            let error = decode::<WireFilter>(body.as_bytes()).err().expect(body);
            assert!(error.message.starts_with("invalid JSON body: "), "{body}: {}", error.message);
        }
    }

    #[test]
    fn deep_nesting_is_refused_not_fatal() {
        let body = format!("{}{}{}", r#"{"op":"not","not":"#.repeat(100_000), "{}", "}".repeat(100_000));
        let error = decode::<WireFilter>(body.as_bytes()).err().unwrap();
        assert!(error.message.contains("recursion limit"), "{}", error.message);
    }
}
