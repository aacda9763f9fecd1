//! Alias bodies and answers.

use crate::limits;
use crate::op::{ApiError, ChangeAliases, check_actions};
use crate::wire::json::{UpTo, decode, json_object};
use crate::wire::value::write_string;
use nigh_shard::core::{Alias, AliasChange};

json_object! {
    /// Body of `POST /v1/aliases`.
    pub struct AliasBody {
        "alias" => alias: String,
        "collection" => collection: String,
    }
}

json_object! {
    /// An alias.
    pub struct NameBody {
        "alias" => alias: String,
    }
}

json_object! {
    /// One of the two.
    pub struct ActionBody {
        "create" => create: AliasBody,
        "delete" => delete: NameBody,
    }
}

json_object! {
    /// Body of `POST /v1/aliases/batch`.
    pub struct BatchBody {
        "actions" => actions: UpTo<ActionBody, { limits::ALIAS_ACTIONS_MAX }>,
    }
}

impl AliasBody {
    /// Both names.
    ///
    /// # Errors
    /// 400 when one is missing.
    pub fn into_names(self) -> Result<(String, String), ApiError> {
        let present = |name: Option<String>, key: &str| {
            name.filter(|name| !name.is_empty())
                .ok_or_else(|| ApiError::invalid(format!("alias: {key} is required")))
        };
        Ok((present(self.alias, "alias")?, present(self.collection, "collection")?))
    }
}

/// Decodes the body of `POST /v1/aliases`: the names, for the answer.
///
/// # Errors
/// 400.
pub fn decode_create(body: &[u8]) -> Result<(String, String), ApiError> {
    decode::<AliasBody>(body)?.into_names()
}

/// Decodes the body of `POST /v1/aliases/batch`.
///
/// # Errors
/// 400.
pub fn decode_batch(body: &[u8]) -> Result<ChangeAliases, ApiError> {
    let body: BatchBody = decode(body)?;
    let (mut changes, actions) = (Vec::new(), body.actions.unwrap_or_default().0);
    // If there are too many, the rest of them were not decoded.
    check_actions(actions.len())?;
    for (index, action) in actions.into_iter().enumerate() {
        let located = |error: ApiError| ApiError::invalid(format!("actions[{index}]: {error}"));
        changes.push(match (action.create, action.delete) {
            (Some(create), None) => {
                let (alias, collection) = create.into_names().map_err(located)?;
                AliasChange::Create { alias, collection }
            }
            (None, Some(NameBody { alias: Some(alias) })) if !alias.is_empty() => {
                AliasChange::Delete { alias }
            }
            (None, Some(_)) => return Err(located(ApiError::invalid("alias: alias is required"))),
            _ => return Err(located(ApiError::invalid("expected exactly one of create and delete"))),
        });
    }
    Ok(ChangeAliases { changes })
}

/// `{"alias":…,"collection":…}`.
pub fn write_alias(out: &mut Vec<u8>, alias: &str, collection: &str) {
    out.extend_from_slice(b"{\"alias\":");
    write_string(out, alias);
    out.extend_from_slice(b",\"collection\":");
    write_string(out, collection);
    out.push(b'}');
}

/// The answer of `POST /v1/aliases/batch`: how many changes were made, and which aliases that were to be deleted were not there.
pub fn change_answer(changes: &[AliasChange], existed: &[bool]) -> Vec<u8> {
    let mut out = format!("{{\"applied\":{},\"absent\":[", changes.len()).into_bytes();
    let mut separator = "";
    for (change, existed) in changes.iter().zip(existed) {
        if let AliasChange::Delete { alias } = change
            && !existed
        {
            out.extend_from_slice(separator.as_bytes());
            separator = ",";
            write_string(&mut out, alias);
        }
    }
    out.extend_from_slice(b"]}\n");
    out
}

/// The answer of `GET /v1/aliases`, without the tenant that a bare name has.
pub fn list_answer(aliases: &[Alias]) -> Vec<u8> {
    let bare = |name: &str| name.strip_prefix("default/").unwrap_or(name).to_owned();
    let mut out = b"{\"aliases\":[".to_vec();
    for (index, alias) in aliases.iter().enumerate() {
        if index > 0 {
            out.push(b',');
        }
        write_alias(&mut out, &bare(&alias.alias), &bare(&alias.collection));
    }
    out.extend_from_slice(b"]}\n");
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn batches_as_sent() {
        let batch =
            |json: &str| decode_batch(json.as_bytes()).map(|batch| batch.changes).map_err(|e| e.message);
        let create = AliasChange::Create { alias: "a".into(), collection: "c".into() };
        let delete = AliasChange::Delete { alias: "b".into() };
        let json = r#"{"actions":[{"create":{"alias":"a","collection":"c"}},{"delete":{"alias":"b"},"create":null}]}"#;
        assert_eq!(batch(json), Ok(vec![create, delete]));
        assert_eq!(batch("{}"), Ok(Vec::new()));
        let many = format!(r#"{{"actions":[{}]}}"#, vec!["{}"; limits::ALIAS_ACTIONS_MAX + 2].join(","));
        for (json, fragment) in [
            (&many[..], "at most 65536 actions"),
            (r#"{"actions":[{}]}"#, "actions[0]: expected exactly one"),
            (
                r#"{"actions":[{"delete":{"alias":"b"}},{"create":{"alias":"a","collection":"c"},"delete":{"alias":"b"}}]}"#,
                "actions[1]: expected exactly one",
            ),
            (r#"{"actions":[{"create":{"alias":"a"}}]}"#, "collection is required"),
            (r#"{"actions":[{"delete":{}}]}"#, "alias is required"),
            (r#"{"actions":[{"rename":{}}]}"#, "unknown field \"rename\""),
            (r#"{"action":[]}"#, "unknown field \"action\""),
        ] {
            let message = batch(json).expect_err(json);
            assert!(message.contains(fragment), "{json}: {message}");
        }
    }
}
