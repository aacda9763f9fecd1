//! The tasks of a collection: begun when its owner takes it, ended when it is dropped.

use super::{Collections, Owned, indexer, quantizer};
use crate::family::{CollectionConfig, tokens_of};
use std::rc::Rc;
use std::sync::Arc;

impl Collections {
    /// Registers a collection of this core and starts its tasks.
    pub(crate) fn start_owned(self: &Rc<Self>, owned: Rc<Owned>) {
        self.insert_owned(owned.clone());
        let has_quantizer = owned.handle.config(&self.ctx().pin()).has_quantizer();
        if has_quantizer {
            self.start_quantizing(&owned);
        }
        self.env().spawn_background(Box::pin(indexer::run(self.clone(), owned)));
    }

    /// Starts the quantizing task of a collection of this core, unless it has one.
    pub(super) fn start_quantizing(self: &Rc<Self>, owned: &Rc<Owned>) {
        if !owned.has_quantizing_task.replace(true) {
            self.env().spawn_background(Box::pin(quantizer::run(self.clone(), owned.clone())));
        }
    }

    /// Has a collection of this core, and the index of its tokens, go by another configuration, which is durable. It differs from theirs in
    /// values alone that may change while a collection serves.
    pub(crate) fn reconfigure(&self, uid: u64, config: CollectionConfig) {
        let now_ns = self.env().now_ns();
        if let (Some(config), Some(tokens)) = (config.multi_vector(), self.owned(tokens_of(uid))) {
            tokens.reconfigure(Arc::new(config.index().into()), now_ns);
        }
        if let Some(owned) = self.owned(uid) {
            owned.reconfigure(Arc::new(config), now_ns);
        }
    }

    /// Ends a collection's tasks on its owner core and gives its memory back once no reader holds it.
    pub(crate) async fn disown(self: &Rc<Self>, uid: u64) {
        let Some(owned) = self.remove_owned(uid) else { return };
        owned.end_tasks();
        // A backup that waits for its snapshot finds that the collection is gone.
        owned.sealed.take();
        if let Some(index) = owned.token_index.get() {
            // A build may be capturing the index, and a capture checks only whether its own collection was dropped. Without this, the lock
            // below would be held until the whole image is written.
            index.owned().end_tasks();
        }
        owned.tail_room.ended(&owned.changed).await;
        // A checkpoint in flight writes into the renamed directory's open file; it must end before the files go.
        drop(owned.checkpoint_lock.lock().await);
    }
}
