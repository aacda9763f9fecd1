//! Long pieces of work that go on without a request that waits for them, and how far they are. Each core remembers those it
//! carries out; a list of all asks every core.

use crate::ctx::Ctx;
use crate::error::OpError;
use std::cell::RefCell;
use std::collections::VecDeque;
use std::rc::Rc;

/// Ended tasks that a core remembers.
const ENDED_MAX: usize = 100;

/// A task as it is now.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TaskReport {
    /// Of this process; `None` for what a collection does by itself.
    pub id: Option<u64>,
    /// `build` or `index`.
    pub kind: &'static str,
    /// `<tenant>/<name>`.
    pub collection: String,
    /// What it is at: `loading`, `linking`, `saving`, and at the end `done` or `failed`.
    pub stage: &'static str,
    /// Vectors linked so far.
    pub done: u64,
    /// Vectors to be linked: in a collection of named spaces, one for each dense vector of a point.
    pub total: u64,
    /// Unix milliseconds; 0 when it has no beginning.
    pub began_ms: u64,
    /// Unix milliseconds.
    pub ended_ms: Option<u64>,
    /// Why it failed.
    pub error: Option<String>,
}

/// Of one core.
#[derive(Default)]
pub(crate) struct Tasks(RefCell<VecDeque<TaskReport>>);

/// A task under way: whoever carries it out says how far it is.
pub(crate) struct Task {
    tasks: Rc<Tasks>,
    ctx: Rc<Ctx>,
    id: u64,
}

impl Task {
    fn update(&self, change: impl FnOnce(&mut TaskReport)) {
        let mut tasks = self.tasks.0.borrow_mut();
        if let Some(task) = tasks.iter_mut().find(|task| task.id == Some(self.id)) {
            change(task);
        }
    }

    /// The number under which it is listed.
    pub fn id(&self) -> u64 {
        self.id
    }

    /// Begins another stage.
    pub fn stage(&self, stage: &'static str) {
        self.update(|task| task.stage = stage);
    }

    /// So many more vectors are linked.
    pub fn advance(&self, vectors: u64) {
        self.update(|task| task.done = (task.done + vectors).min(task.total));
    }

    /// It is over.
    pub fn end<T>(self, result: &Result<T, OpError>) {
        let now_ms = self.ctx.unix_ms();
        self.update(|task| {
            task.ended_ms = Some(now_ms);
            task.error = result.as_ref().err().map(ToString::to_string);
            task.stage = if task.error.is_some() { "failed" } else { "done" };
            if task.error.is_none() {
                // Vectors in spaces that were dropped before the build were not linked.
                task.done = task.total;
            }
        });
    }
}

impl Tasks {
    /// Begins a task on this core for `total` vectors.
    pub(crate) fn begin(
        self: &Rc<Self>,
        ctx: &Rc<Ctx>,
        kind: &'static str,
        collection: &str,
        total: u64,
    ) -> Task {
        let id = ctx.node().next_task_id();
        let mut tasks = self.0.borrow_mut();
        tasks.push_back(TaskReport {
            id: Some(id),
            kind,
            collection: collection.to_owned(),
            stage: "loading",
            done: 0,
            total,
            began_ms: ctx.unix_ms(),
            ended_ms: None,
            error: None,
        });
        if tasks.iter().filter(|task| task.ended_ms.is_some()).count() > ENDED_MAX
            && let Some(oldest) = tasks.iter().position(|task| task.ended_ms.is_some())
        {
            tasks.remove(oldest);
        }
        drop(tasks);
        Task { tasks: self.clone(), ctx: ctx.clone(), id }
    }

    /// Tasks of this core, the oldest first.
    pub(crate) fn reports(&self) -> Vec<TaskReport> {
        self.0.borrow().iter().cloned().collect()
    }
}
