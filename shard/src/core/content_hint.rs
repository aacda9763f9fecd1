//! What is checked of a filter before it is used on a collection: the kind of the ids in it, and the one name that is easily mistaken. Points are
//! written with `content`, and filters know their text as `$content`.

use super::Core;
use crate::catalog::CollectionHandle;
use crate::error::OpError;
use crate::payload_change::check_id_kind;
use nigh_engine::filter::Predicate;
use nigh_engine::payload::CONTENT_KEY;
use nigh_engine::point_id::{ID_KEY, IdKind};

/// The word for a filter in errors.
const FILTER: &str = "filter";
/// What the text of a point is called where it is written.
const WRITTEN: &str = "content";

impl Core {
    /// Refuses three filters: with ids of another kind than the collection's; on `$id`, where ids are strings; and on `content`, where points have a
    /// text but no payload key of that name. The last would match nothing, or everything with `not`.
    pub(super) fn check_filter(
        &self,
        handle: &CollectionHandle,
        filter: Option<&Predicate>,
    ) -> Result<(), OpError> {
        if let Some(kind) = filter.and_then(Predicate::id_kind) {
            check_id_kind(kind, handle)?;
        }
        if handle.ids == IdKind::String {
            let fields = filter.map(Predicate::fields).unwrap_or_default();
            fields.into_iter().try_for_each(|field| self.check_key(handle, field, FILTER))?;
        }
        match filter {
            Some(filter) if filter.tests_field(WRITTEN) => self.check_key(handle, WRITTEN, FILTER),
            _ => Ok(()),
        }
    }

    /// As [`Self::check_filter`], for a key that `what` asks for.
    pub(super) fn check_key(&self, handle: &CollectionHandle, key: &str, what: &str) -> Result<(), OpError> {
        check_not_id(handle, key, what)?;
        if key == WRITTEN {
            let (pin, now_ms) = (self.pin(), self.env().unix_ms());
            if handle.dense(&pin).points().has_texts_but_no(&pin, WRITTEN, now_ms) {
                return Err(OpError::BadRequest(format!(
                    "{what}: no point has a payload key {WRITTEN:?}; the text of points has key {CONTENT_KEY:?}"
                )));
            }
        }
        Ok(())
    }
}

/// Refuses `$id`, or a path below it, where `what` expects a key of payloads and the ids of the collection are strings. Some messages carry the id
/// under this key, but no payload contains it.
///
/// # Errors
/// [`OpError::BadRequest`].
pub(super) fn check_not_id(handle: &CollectionHandle, key: &str, what: &str) -> Result<(), OpError> {
    let below = key.strip_prefix(ID_KEY);
    if handle.ids == IdKind::String
        && below.is_some_and(|path| matches!(path.chars().next(), None | Some('.' | '[')))
    {
        let advice = if what == FILTER { "; to filter by id, use op \"has_id\"" } else { "" };
        return Err(OpError::BadRequest(format!(
            "{what}: {ID_KEY:?} is not a payload key in a collection whose ids are strings{advice}"
        )));
    }
    Ok(())
}
