//! A search that waits for the device.

use crate::account::Account;
use crate::answer::Answer;
use crate::catalog::CollectionHandle;
use crate::error::OpError;
use crate::points::{FoundPoint, SearchRequest};
use std::sync::Arc;

/// What a search comes to; `None`: the cores have to answer it.
pub(super) type Outcome = Option<Result<Vec<FoundPoint>, OpError>>;

/// A search that waits.
pub(super) struct Search {
    pub handle: Arc<CollectionHandle>,
    pub request: SearchRequest,
    pub now_ms: u64,
    /// Pays for the rows of the answer.
    pub account: Arc<Account>,
    pub answer: Answer<Outcome>,
}
