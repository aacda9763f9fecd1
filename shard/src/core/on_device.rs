//! Searches that a device answers.

use super::Core;
use crate::catalog::CollectionHandle;
use crate::error::OpError;
use crate::points::{FoundPoint, SearchRequest};
use nigh_engine::device::RESULTS_MAX;
use std::rc::Rc;
use std::sync::Arc;

impl Core {
    /// Answers a search on the collection's device; `None` where the cores have to: more results than a device gives, no device, or
    /// none that is sure of the answer.
    pub(super) async fn search_on_device(
        self: &Rc<Self>,
        handle: &Arc<CollectionHandle>,
        request: &SearchRequest,
    ) -> Option<Result<Vec<FoundPoint>, OpError>> {
        if !(1..=RESULTS_MAX).contains(&request.k) {
            return None;
        }
        self.node().lane.search(handle.clone(), request.clone(), self.env().unix_ms()).await
    }
}
