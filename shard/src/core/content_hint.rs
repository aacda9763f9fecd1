//! The one name that is easily mistaken: points are written with `content`, and filters know their text as `$content`.

use super::Core;
use crate::catalog::CollectionHandle;
use crate::error::OpError;
use nigh_engine::filter::Predicate;
use nigh_engine::payload::CONTENT_KEY;

/// What the text of a point is called where it is written.
const WRITTEN: &str = "content";

impl Core {
    /// Refuses a filter on `content` where points have a text and no such payload key: it would match nothing, or everything with
    /// `not`. A payload may well have a key of that name.
    pub(super) fn check_filter(
        &self,
        handle: &CollectionHandle,
        filter: Option<&Predicate>,
    ) -> Result<(), OpError> {
        match filter {
            Some(filter) if filter.tests_field(WRITTEN) => self.check_key(handle, WRITTEN, "filter"),
            _ => Ok(()),
        }
    }

    /// As [`Self::check_filter`], for a key that `what` asks for.
    pub(super) fn check_key(&self, handle: &CollectionHandle, key: &str, what: &str) -> Result<(), OpError> {
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
