//! The one dispatcher: every transport's requests pass here, so their checks and errors cannot differ.

use crate::limits;
use crate::request::{
    Action, ApiError, BuildStaged, ChangeAliases, ChangePayload, CountPoints, CreateCollection,
    DeleteByFilter, DeletePoint, DropCollection, ErrorKind, FacetPoints, GetCollection, GetPoints,
    ListAliases, ListCollections, ListTasks, OperatePoint, Operation, SamplePoints, ScrollOrdered,
    ScrollPoints, SearchPoints, StagePoints, WritePoints, check_key_ttls, check_name,
};
use futures_lite::future::or;
use nigh_shard::core::{
    Alias, AliasChange, CollectionInfo, Core, FacetValue, FoundPoint, Ordered, PayloadChange, PointOperated,
    ScrollPage, SearchRequest, StoredPoint, TaskReport, Written,
};
use std::cell::RefCell;
use std::future::poll_fn;
use std::rc::Rc;
use std::task::{Poll, Waker};

/// Checks and carries out one operation. An operation that changes data runs as a task of its own, so a client that
/// goes away half-way does not cancel it between two of its steps.
///
/// # Errors
/// As the operation gives them; [`ErrorKind::Internal`] errors are logged here, once.
pub async fn dispatch<O: Operation>(core: &Rc<Core>, operation: O) -> Result<O::Output, ApiError> {
    check_name(operation.collection())?;
    operation.validate()?;
    let result = if O::MUTATES {
        let work = detached(core, operation.run(core.clone()));
        if O::LASTS {
            let stopping = async {
                core.runtime().stopping().await;
                Err(ApiError::new(ErrorKind::Unavailable, STOPPING))
            };
            or(work, stopping).await
        } else {
            work.await
        }
    } else {
        operation.run(core.clone()).await
    };
    if let Err(error) = &result
        && error.kind == ErrorKind::Internal
    {
        tracing::error!(target: "nigh", reason = %error.message, "internal error");
    }
    result
}

/// What a client is told who waits for an operation that lasts when the process stops.
const STOPPING: &str = "the server is stopping and does not wait for this to end";

/// Runs `work` as a task and waits for its result; dropping the wait leaves the task running.
async fn detached<T: 'static>(core: &Rc<Core>, work: impl Future<Output = T> + 'static) -> T {
    struct Slot<T> {
        value: Option<T>,
        waiter: Option<Waker>,
    }
    let slot = Rc::new(RefCell::new(Slot { value: None, waiter: None }));
    let fill = slot.clone();
    core.runtime().spawn(async move {
        let value = work.await;
        let waiter = {
            let mut slot = fill.borrow_mut();
            slot.value = Some(value);
            slot.waiter.take()
        };
        if let Some(waiter) = waiter {
            waiter.wake();
        }
    });
    poll_fn(|cx| {
        let mut slot = slot.borrow_mut();
        match slot.value.take() {
            Some(value) => Poll::Ready(value),
            None => {
                slot.waiter = Some(cx.waker().clone());
                Poll::Pending
            }
        }
    })
    .await
}

impl Operation for CreateCollection {
    type Output = ();
    const ACTION: Action = Action::Admin;
    const MUTATES: bool = true;
    fn collection(&self) -> &str {
        &self.collection
    }
    fn validate(&self) -> Result<(), ApiError> {
        Core::full_name(&self.collection)?;
        self.config.validate().map_err(|error| ApiError::invalid(error.to_string()))
    }
    async fn run(self, core: Rc<Core>) -> Result<(), ApiError> {
        Ok(core.create_collection(&self.collection, self.config).await?)
    }
}

impl Operation for DropCollection {
    type Output = bool;
    const ACTION: Action = Action::Admin;
    const MUTATES: bool = true;
    fn collection(&self) -> &str {
        &self.collection
    }
    fn validate(&self) -> Result<(), ApiError> {
        Core::full_name(&self.collection)?;
        Ok(())
    }
    async fn run(self, core: Rc<Core>) -> Result<bool, ApiError> {
        Ok(core.drop_collection(&self.collection).await?)
    }
}

impl Operation for ChangeAliases {
    type Output = Vec<bool>;
    const ACTION: Action = Action::Admin;
    const MUTATES: bool = true;
    fn collection(&self) -> &str {
        ""
    }
    fn validate(&self) -> Result<(), ApiError> {
        self.changes.iter().try_for_each(|change| match change {
            AliasChange::Create { alias, collection } => {
                check_name(alias).and_then(|()| check_name(collection))
            }
            AliasChange::Delete { alias } => check_name(alias),
        })
    }
    async fn run(self, core: Rc<Core>) -> Result<Vec<bool>, ApiError> {
        Ok(core.change_aliases(self.changes).await?)
    }
}

impl Operation for ListAliases {
    type Output = Vec<Alias>;
    const ACTION: Action = Action::Admin;
    const MUTATES: bool = false;
    fn collection(&self) -> &str {
        self.target.as_deref().unwrap_or_default()
    }
    async fn run(self, core: Rc<Core>) -> Result<Vec<Alias>, ApiError> {
        Ok(core.aliases(self.target.as_deref()))
    }
}

impl Operation for WritePoints {
    type Output = Vec<Written>;
    const ACTION: Action = Action::Write;
    const MUTATES: bool = true;
    fn collection(&self) -> &str {
        &self.collection
    }
    async fn run(self, core: Rc<Core>) -> Result<Vec<Written>, ApiError> {
        let of_several = self.batch.points.len() > 1;
        core.write(&self.collection, self.batch).await.map_err(|stopped| {
            let (error, at) = (ApiError::from(stopped.error), stopped.committed);
            let message = match stopped.point {
                Some(id) if of_several => format!("points[{at}] with id {id}: {error}"),
                _ => error.message,
            };
            ApiError { kind: error.kind, message, committed: Some(at) }
        })
    }
}

impl Operation for StagePoints {
    type Output = usize;
    const ACTION: Action = Action::Write;
    const MUTATES: bool = true;
    fn collection(&self) -> &str {
        &self.collection
    }
    async fn run(self, core: Rc<Core>) -> Result<usize, ApiError> {
        Ok(core.stage(&self.collection, self.batch).await?)
    }
}

impl Operation for BuildStaged {
    type Output = Option<u64>;
    const ACTION: Action = Action::Write;
    const MUTATES: bool = true;
    fn collection(&self) -> &str {
        &self.collection
    }
    const LASTS: bool = true;
    async fn run(self, core: Rc<Core>) -> Result<Option<u64>, ApiError> {
        Ok(core.build(&self.collection, self.workers, self.wait).await?)
    }
}

impl Operation for GetPoints {
    type Output = Vec<Option<StoredPoint>>;
    const ACTION: Action = Action::Read;
    const MUTATES: bool = false;
    fn collection(&self) -> &str {
        &self.collection
    }
    fn validate(&self) -> Result<(), ApiError> {
        self.read.validate()
    }
    async fn run(self, core: Rc<Core>) -> Result<Vec<Option<StoredPoint>>, ApiError> {
        Ok(core.get(&self.collection, self.ids, self.with_vector, self.with_payload).await?)
    }
}

impl Operation for DeletePoint {
    type Output = bool;
    const ACTION: Action = Action::Write;
    const MUTATES: bool = true;
    fn collection(&self) -> &str {
        &self.collection
    }
    fn validate(&self) -> Result<(), ApiError> {
        self.write.validate()
    }
    async fn run(self, core: Rc<Core>) -> Result<bool, ApiError> {
        Ok(core.delete(&self.collection, self.id, self.write.expected_version).await?)
    }
}

impl Operation for ChangePayload {
    type Output = ();
    const ACTION: Action = Action::Write;
    const MUTATES: bool = true;
    fn collection(&self) -> &str {
        &self.collection
    }
    fn validate(&self) -> Result<(), ApiError> {
        if let PayloadChange::Merge { key_ttl_ms, .. } | PayloadChange::Overwrite { key_ttl_ms, .. } =
            &self.change
        {
            check_key_ttls(key_ttl_ms)?;
        }
        self.write.validate()
    }
    async fn run(self, core: Rc<Core>) -> Result<(), ApiError> {
        let expected = self.write.expected_version;
        core.change_payload(&self.collection, self.id, self.change, expected).await?;
        Ok(())
    }
}

impl Operation for OperatePoint {
    type Output = PointOperated;
    const ACTION: Action = Action::Write;
    const MUTATES: bool = true;
    fn collection(&self) -> &str {
        &self.collection
    }
    fn validate(&self) -> Result<(), ApiError> {
        self.write.validate()
    }
    async fn run(self, core: Rc<Core>) -> Result<PointOperated, ApiError> {
        let OperatePoint { collection, id, key, call, write } = self;
        Ok(core.operate_point(&collection, id, key, call, write.expected_version).await?)
    }
}

impl Operation for DeleteByFilter {
    type Output = u64;
    const ACTION: Action = Action::Write;
    const MUTATES: bool = true;
    fn collection(&self) -> &str {
        &self.collection
    }
    fn validate(&self) -> Result<(), ApiError> {
        self.write.validate()?;
        match &self.filter {
            None => Err(ApiError::invalid("delete by filter needs a filter")),
            Some(filter) if filter.is_trivially_true() => Err(ApiError::invalid(
                "delete by filter refuses a filter that matches every point; drop the collection instead",
            )),
            Some(_) => Ok(()),
        }
    }
    async fn run(self, core: Rc<Core>) -> Result<u64, ApiError> {
        match self.filter {
            Some(filter) => Ok(core.delete_by_filter(&self.collection, filter).await?),
            None => Ok(0),
        }
    }
}

impl Operation for ScrollPoints {
    type Output = ScrollPage;
    const ACTION: Action = Action::Read;
    const MUTATES: bool = false;
    fn collection(&self) -> &str {
        &self.collection
    }
    fn validate(&self) -> Result<(), ApiError> {
        self.read.validate()
    }
    async fn run(self, core: Rc<Core>) -> Result<ScrollPage, ApiError> {
        Ok(core.scroll(&self.collection, self.filter, self.after, self.limit).await?)
    }
}

impl Operation for ScrollOrdered {
    type Output = Ordered;
    const ACTION: Action = Action::Read;
    const MUTATES: bool = false;
    fn collection(&self) -> &str {
        &self.collection
    }
    fn validate(&self) -> Result<(), ApiError> {
        self.read.validate()
    }
    async fn run(self, core: Rc<Core>) -> Result<Ordered, ApiError> {
        Ok(core.ordered(&self.collection, self.order).await?)
    }
}

impl Operation for ListTasks {
    type Output = Vec<TaskReport>;
    const ACTION: Action = Action::Read;
    const MUTATES: bool = false;
    fn collection(&self) -> &str {
        ""
    }
    async fn run(self, core: Rc<Core>) -> Result<Vec<TaskReport>, ApiError> {
        Ok(core.tasks().await?)
    }
}

impl Operation for ListCollections {
    type Output = Vec<CollectionInfo>;
    const ACTION: Action = Action::Read;
    const MUTATES: bool = false;
    fn collection(&self) -> &str {
        ""
    }
    async fn run(self, core: Rc<Core>) -> Result<Vec<CollectionInfo>, ApiError> {
        Ok(core.collections())
    }
}

impl Operation for GetCollection {
    type Output = CollectionInfo;
    const ACTION: Action = Action::Read;
    const MUTATES: bool = false;
    fn collection(&self) -> &str {
        &self.collection
    }
    async fn run(self, core: Rc<Core>) -> Result<CollectionInfo, ApiError> {
        Ok(core.collection_info(&self.collection)?)
    }
}

impl Operation for CountPoints {
    type Output = u64;
    const ACTION: Action = Action::Read;
    const MUTATES: bool = false;
    fn collection(&self) -> &str {
        &self.collection
    }
    async fn run(self, core: Rc<Core>) -> Result<u64, ApiError> {
        Ok(core.count(&self.collection, self.filter).await?)
    }
}

impl Operation for FacetPoints {
    type Output = Vec<(FacetValue, u64)>;
    const ACTION: Action = Action::Read;
    const MUTATES: bool = false;
    fn collection(&self) -> &str {
        &self.collection
    }
    async fn run(self, core: Rc<Core>) -> Result<Vec<(FacetValue, u64)>, ApiError> {
        Ok(core.facet(&self.collection, self.key, self.filter, self.limit).await?)
    }
}

impl Operation for SamplePoints {
    type Output = Vec<u64>;
    const ACTION: Action = Action::Read;
    const MUTATES: bool = false;
    fn collection(&self) -> &str {
        &self.collection
    }
    async fn run(self, core: Rc<Core>) -> Result<Vec<u64>, ApiError> {
        Ok(core.sample(&self.collection, self.filter, self.limit, self.seed).await?)
    }
}

impl Operation for SearchPoints {
    type Output = Vec<FoundPoint>;
    const ACTION: Action = Action::Read;
    const MUTATES: bool = false;
    fn collection(&self) -> &str {
        &self.collection
    }
    fn validate(&self) -> Result<(), ApiError> {
        if !(1..=limits::K_MAX).contains(&self.k) {
            return Err(ApiError::invalid(format!(
                "k must be between 1 and {}, found {}",
                limits::K_MAX,
                self.k
            )));
        }
        self.read.validate()
    }
    async fn run(self, core: Rc<Core>) -> Result<Vec<FoundPoint>, ApiError> {
        let request = SearchRequest {
            vector: self.vector,
            k: self.k as usize,
            filter: self.filter,
            with_rows: self.with_rows,
        };
        Ok(core.search(&self.collection, request).await?)
    }
}
