//! The collections that a core owns.

use super::Owned;
use super::tasks::Tasks;
use crate::ctx::Ctx;
use crate::env::{Env, Home, Replies};
use ahash::HashMap;
use nigh_engine::collection::{Dense, DenseWriter, DroppedSpace};
use nigh_engine::memory::Limbo;
use std::cell::RefCell;
use std::rc::Rc;
use std::sync::Arc;

thread_local! {
    static CURRENT: RefCell<Option<Rc<Collections>>> = const { RefCell::new(None) };
}

/// See the module.
pub struct Collections {
    ctx: Rc<Ctx>,
    owned: RefCell<HashMap<u64, Rc<Owned>>>,
    /// Writers replaced by a bulk build or dropped, until no reader can hold what they published.
    old_writers: RefCell<Limbo<DenseWriter>>,
    /// Dropped spaces, until no reader can hold them.
    old_spaces: RefCell<Limbo<DroppedSpace>>,
    pub(crate) tasks: Rc<Tasks>,
}

impl Collections {
    pub(crate) fn new(ctx: Rc<Ctx>) -> Rc<Collections> {
        Rc::new(Collections {
            ctx,
            owned: RefCell::default(),
            old_writers: RefCell::new(Limbo::new()),
            old_spaces: RefCell::new(Limbo::new()),
            tasks: Rc::default(),
        })
    }

    /// Names the collections of this thread's core.
    pub(crate) fn set_current(collections: Option<Rc<Collections>>) {
        CURRENT.set(collections);
    }

    /// The core's surroundings.
    pub fn env(&self) -> &Rc<dyn Env> {
        self.ctx.env()
    }

    /// What the core works with.
    pub fn ctx(&self) -> &Rc<Ctx> {
        &self.ctx
    }

    pub(crate) fn owned(&self, uid: u64) -> Option<Rc<Owned>> {
        self.owned.borrow().get(&uid).cloned()
    }

    pub(crate) fn all_owned(&self) -> Vec<Rc<Owned>> {
        self.owned.borrow().values().cloned().collect()
    }

    pub(crate) fn insert_owned(&self, owned: Rc<Owned>) {
        self.owned.borrow_mut().insert(owned.handle.uid, owned);
    }

    pub(crate) fn remove_owned(&self, uid: u64) -> Option<Rc<Owned>> {
        self.owned.borrow_mut().remove(&uid)
    }

    /// Swings the view of a collection to a new writer's and retires the old writer.
    pub(crate) fn publish_view(&self, owned: &Owned, view: Arc<Dense>, old_writer: DenseWriter) {
        owned.handle.view.swap(view);
        self.retire_writer(old_writer);
    }

    /// Drops a writer once no reader can hold what it published.
    pub(crate) fn retire_writer(&self, writer: DenseWriter) {
        self.old_writers.borrow_mut().push(&self.ctx.node().domain, writer);
    }

    /// Drops a space that was taken out of a writer, once no reader can hold what it published.
    pub(crate) fn retire_space(&self, space: DroppedSpace) {
        self.old_spaces.borrow_mut().push(&self.ctx.node().domain, space);
    }

    /// Drops the writers and spaces that no reader can hold any more.
    pub(crate) fn drop_old_writers(&self) {
        while let Some(writer) = self.old_writers.borrow_mut().pop(&self.ctx.node().domain) {
            drop(writer);
        }
        while let Some(space) = self.old_spaces.borrow_mut().pop(&self.ctx.node().domain) {
            drop(space);
        }
    }

    /// Bytes that the collections of this core hold.
    pub(crate) fn measure_memory(&self) {
        self.ctx.measure_points(self.owned.borrow().values().map(|owned| bytes_of(owned)).sum());
    }

    /// Counts the bytes of a collection that was just opened, until all are measured again: a start that measured all each time would take the
    /// longer, the more there are.
    pub(crate) fn count_opened(&self, owned: &Owned) {
        self.ctx.add_points(bytes_of(owned));
    }
}

/// Bytes that a collection holds.
fn bytes_of(owned: &Owned) -> u64 {
    owned.writer.borrow().shared().stats().bytes + owned.staged.borrow().bytes() + owned.aside_bytes.get()
}

impl Home for Collections {
    fn here() -> Rc<Collections> {
        CURRENT.with_borrow(|current| current.clone()).expect("this thread runs no core")
    }

    fn env(&self) -> &Rc<dyn Env> {
        self.ctx.env()
    }

    fn replies(&self) -> &Replies {
        self.ctx.replies()
    }
}
