//! The start and the stop of a core's part of a node.

use super::{Core, checkpoints};
use crate::archive;
use crate::ctx::keep_reserve;
use crate::env::{Env, call_own};
use crate::kv::{index_tasks, upkeep};
use crate::node::NodeShared;
use crate::opening::ENDING;
use crate::owner::{expiry, sweeper};
use futures_lite::future::or;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::Ordering::SeqCst;

impl Core {
    /// Makes this core's part of the node, which can receive messages from now on. It serves what is open ([`Core::open_store`]).
    pub fn begin(env: Rc<dyn Env>, shared: Arc<NodeShared>) -> Rc<Core> {
        Core::new(env, shared)
    }

    /// Waits until every core can receive messages: before that, none may be sent to it.
    pub async fn wait_for_peers(&self) {
        let ready = &self.node().cores_ready;
        ready.fetch_add(1, SeqCst);
        while ready.load(SeqCst) < self.env().cores() {
            self.env().sleep_us(200).await;
        }
    }

    /// Opens the store together with the other cores, which call this as well after [`Core::wait_for_peers`]. What is open is served
    /// meanwhile. Resolves once all is open on all cores.
    ///
    /// # Errors
    /// A sentence; the same failure is in [`NodeShared::failure`] for every core. If the process is asked to stop meanwhile, that is the failure.
    pub async fn open_store(self: &Rc<Self>) -> Result<(), String> {
        let (env, shared) = (self.env().clone(), self.ctx.shared_node());
        if env.index() == 0 {
            shared.raise_uid(env.unix_ms().saturating_mul(1000));
            shared.progress.begin(env.now_ns());
            // Every step leaves the disk as a crash at that moment may leave it, so that it can be given up anywhere.
            let stopped = async {
                env.stopping().await;
                Err(ENDING.to_owned())
            };
            if let Err(error) = or(crate::recovery::open(self), stopped).await {
                // Whatever other cores are loading ends soon.
                shared.progress.end();
                // The first failure is the one reported; it can only be set here.
                let _first = shared.failure.set(error);
            }
            for to in 0..env.cores() {
                let opened = shared.failure.get().is_none();
                call_own(self, to, move |there| async move {
                    there.is_open.set(opened);
                    there.is_decided.set(true);
                    there.opened.notify();
                })
                .await;
            }
        }
        while !self.is_decided.get() {
            self.opened.wait().await;
        }
        if let Some(failure) = shared.failure.get() {
            return Err(failure.clone());
        }
        // Expired points are in no answer; the memory that they hold can wait until nothing is being loaded beside them.
        env.spawn_background(Box::pin(sweeper::run(
            self.collections.clone(),
            shared.options.sweep_interval_ms,
        )));
        if self.ctx.is_archived() {
            env.spawn_background(Box::pin(archive::run(self.clone())));
            if env.index() == 0 {
                env.spawn_background(Box::pin(archive::keep_bound(self.clone())));
            }
        }
        if env.index() == 0 {
            env.spawn_background(Box::pin(self.clone().back_up_periodically()));
            if shared.options.backup.cold_after_ms > 0 {
                env.spawn_background(Box::pin(self.clone().sweep_unused()));
            }
        }
        Ok(())
    }

    /// Starts the tasks of this core. Its log is there, and the keys are loaded: images of keys would else be written of a part of them.
    pub(crate) fn start_tasks(self: &Rc<Self>) {
        let (env, shared) = (self.env().clone(), self.ctx.shared_node());
        env.spawn(Box::pin(self.clone().housekeeping()));
        if env.index() == 0 {
            env.spawn_background(Box::pin(keep_reserve(self.ctx.clone())));
        }
        env.spawn_background(Box::pin(checkpoints::run(self.clone())));
        env.spawn_background(Box::pin(expiry::run(self.collections.clone())));
        env.spawn_background(Box::pin(upkeep::sweep(self.keys.clone(), shared.options.sweep_interval_ms)));
        env.spawn_background(Box::pin(upkeep::reserve(
            self.keys.clone(),
            shared.options.keys.reserve_interval_ms,
        )));
        env.spawn_background(Box::pin(upkeep::tidy(self.keys.clone())));
        if shared.options.keys.query {
            env.spawn_background(Box::pin(index_tasks::keep(self.keys.clone())));
        }
    }

    /// Flushes what is pending and ends this core's tasks. Call on every core once no request is in flight.
    pub async fn stop(self: &Rc<Self>) {
        self.begin_stop();
        // A search that waits between two pieces still reads what other cores' writers own.
        self.end_long_turns().await;
        match self.ctx.log() {
            Some(log) if self.is_open.get() => log.stop().await,
            // What every attempt to start leaves would fill the disk. A log that has taken a record stays.
            Some(log) => log.discard().await,
            None => {}
        }
        // After the log: a process that is killed while it stops has lost time, nothing else.
        checkpoints::finish(self).await;
        for owned in self.collections.all_owned() {
            owned.end_tasks();
        }
    }
}
