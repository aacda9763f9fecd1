//! Deleting many points: those that match a filter, or those that are named.

use crate::op::{ApiError, DeletePoint, DeletePoints, SentId, SentIds, check_ids, compile_filter};
use crate::rest::parameters::WriteParameters;
use crate::wire::filter::WireFilter;
use crate::wire::ids::read_ids;
use crate::wire::json::{decode, json_object};
use serde::de::{self, Deserialize, Deserializer, SeqAccess, Visitor};
use std::fmt;

json_object! {
    /// Body of `…/points/delete`.
    pub struct DeleteBody {
        "filter" => filter: WireFilter,
        "ids" => ids: Ids,
        "write_consistency_factor" => write_consistency_factor: i64,
        "wait" => wait: bool,
    }
}

/// Ids, of which there are at most [`DELETE_IDS_MAX`](crate::limits::DELETE_IDS_MAX): the shortest has 2 bytes of text and 8 in memory.
pub struct Ids(pub SentIds);

impl<'de> Deserialize<'de> for Ids {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct IdsVisitor;
        impl<'de> Visitor<'de> for IdsVisitor {
            type Value = Ids;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an array of ids")
            }
            fn visit_seq<A: SeqAccess<'de>>(self, items: A) -> Result<Ids, A::Error> {
                read_ids(items, |count| check_ids(count).map_err(de::Error::custom)).map(Ids)
            }
        }
        deserializer.deserialize_seq(IdsVisitor)
    }
}

/// Decodes the body of `…/points/delete`, whose query string states `write`.
///
/// # Errors
/// 400.
pub fn decode_delete(
    collection: String,
    body: &[u8],
    write: WriteParameters,
) -> Result<DeletePoints, ApiError> {
    let body: DeleteBody = decode(body)?;
    Ok(DeletePoints {
        collection,
        filter: compile_filter(body.filter.map(|filter| filter.0))?,
        ids: body.ids.map(|ids| ids.0),
        write: write.with_body(WriteParameters {
            write_consistency_factor: body.write_consistency_factor,
            wait: body.wait,
            expected_version: None,
        })?,
    })
}

json_object! {
    /// Body of `…/points/delete` of collections of named spaces and of `…/docs/delete`.
    pub struct OneOrManyBody {
        "id" => id: SentId,
        "ids" => ids: Ids,
        "filter" => filter: WireFilter,
        "write_consistency_factor" => write_consistency_factor: i64,
        "wait" => wait: bool,
    }
}

/// What such a body asks for.
pub enum Deletion {
    /// Deletes one point by its id.
    One(DeletePoint),
    /// Deletes all points that a list of ids names or that a filter matches.
    Many(DeletePoints),
}

/// Decodes such a body, whose query string states `write`.
///
/// # Errors
/// 400.
pub fn decode_one_or_many(
    collection: String,
    body: &[u8],
    write: WriteParameters,
) -> Result<Deletion, ApiError> {
    let body: OneOrManyBody = decode(body)?;
    let write = write.with_body(WriteParameters {
        write_consistency_factor: body.write_consistency_factor,
        wait: body.wait,
        expected_version: None,
    })?;
    let of_many = body.ids.is_some() || body.filter.is_some();
    match body.id {
        Some(_) if of_many => Err(ApiError::invalid("id is set beside ids or filter; delete by one of them")),
        Some(id) => Ok(Deletion::One(DeletePoint { collection, id, write })),
        // An id that was left out by mistake must not cost the point 0.
        None if !of_many => {
            Err(ApiError::invalid("id is required: the point to delete; or else ids or filter"))
        }
        None if write.expected_version.is_some() => {
            Err(ApiError::invalid("expected_version needs id: many points have no version in common"))
        }
        None => Ok(Deletion::Many(DeletePoints {
            collection,
            filter: compile_filter(body.filter.map(|filter| filter.0))?,
            ids: body.ids.map(|ids| ids.0),
            write,
        })),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::limits::DELETE_IDS_MAX;
    use crate::op::Operation;

    fn ids(body: &str) -> Result<Option<Vec<u64>>, String> {
        let request = decode_delete("docs".into(), body.as_bytes(), WriteParameters::default());
        let request = request.and_then(|request| request.validate().map(|()| request.ids));
        request.map(|ids| ids.map(|ids| ids.numbers)).map_err(|error| error.message)
    }

    #[test]
    fn a_filter_or_ids() {
        assert_eq!(ids(r#"{"ids":[3,1,3,18446744073709551615]}"#), Ok(Some(vec![3, 1, 3, u64::MAX])));
        assert_eq!(ids(r#"{"ids":[],"filter":{}}"#), Ok(Some(vec![])));
        assert_eq!(ids(r#"{"ids":null,"filter":{"op":"is_null","field":"n"}}"#), Ok(None));
        let list = |count: usize| format!(r#"{{"ids":[{}]}}"#, vec!["7"; count].join(","));
        assert_eq!(ids(&list(DELETE_IDS_MAX)).map(|ids| ids.map(|ids| ids.len())), Ok(Some(DELETE_IDS_MAX)));
        for (body, fragment) in [
            (r#"{"ids":null}"#, "needs a filter"),
            (r#"{"ids":[1],"filter":{"op":"is_null","field":"n"}}"#, "filter and ids are both set"),
            (r#"{"ids":[-1]}"#, "field \"ids\": "),
            (r#"{"ids":[true]}"#, "field \"ids\": "),
            (r#"{"ids":["1",1]}"#, "one list holds ids that are integers and ids that are strings"),
            (r#"{"ids":7}"#, "field \"ids\": "),
            (&list(DELETE_IDS_MAX + 1), "field \"ids\": ids: at most 1048576 in one request"),
        ] {
            let refused = ids(body).unwrap_err();
            assert!(refused.contains(fragment), "{refused}");
        }
    }
}
