//! The start and the stop of a core's part of a node.

use super::{Core, checkpoints};
use crate::ctx::keep_reserve;
use crate::env::{Env, call_own};
use crate::kv::{index_tasks, upkeep};
use crate::node::NodeShared;
use crate::owner::{expiry, sweeper};
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

impl Core {
    /// Starts this core's part of the node and waits until the store is open on all cores.
    ///
    /// # Errors
    /// A sentence; the same failure is in [`NodeShared::failure`] for every core.
    pub async fn start(env: Rc<dyn Env>, shared: Arc<NodeShared>) -> Result<Rc<Core>, String> {
        let core = Core::begin(env, shared);
        Core::set_current(Some(core.clone()));
        core.finish_start().await
    }

    /// First half of [`Core::start`]: the core exists and can receive messages.
    pub(crate) fn begin(env: Rc<dyn Env>, shared: Arc<NodeShared>) -> Rc<Core> {
        Core::new(env, shared)
    }

    /// Second half: opens the store together with the other cores.
    pub(crate) async fn finish_start(self: Rc<Self>) -> Result<Rc<Core>, String> {
        let core = self;
        let (env, shared) = (core.env().clone(), core.ctx.shared_node());
        shared.cores_ready.fetch_add(1, Relaxed);
        if env.index() == 0 {
            while shared.cores_ready.load(Relaxed) < env.cores() {
                env.sleep_us(200).await;
            }
            shared.raise_uid(env.unix_ms().saturating_mul(1000));
            if let Err(error) = crate::recovery::open(&core).await {
                // What every attempt leaves would fill the disk.
                core.discard_logs().await;
                // The first failure is the one reported; it can only be set here.
                let _first = shared.failure.set(error);
            }
            for to in 0..env.cores() {
                call_own(&core, to, |there| async move {
                    there.is_open.set(true);
                    there.opened.notify();
                })
                .await;
            }
        }
        while !core.is_open.get() {
            core.opened.wait().await;
        }
        if let Some(failure) = shared.failure.get() {
            return Err(failure.clone());
        }
        env.spawn(Box::pin(core.clone().housekeeping()));
        if env.index() == 0 {
            env.spawn_background(Box::pin(keep_reserve(core.ctx.clone())));
            env.spawn_background(Box::pin(core.clone().back_up_periodically()));
        }
        env.spawn_background(Box::pin(checkpoints::run(core.clone())));
        env.spawn_background(Box::pin(expiry::run(core.collections.clone())));
        env.spawn_background(Box::pin(sweeper::run(
            core.collections.clone(),
            shared.options.sweep_interval_ms,
        )));
        env.spawn_background(Box::pin(upkeep::sweep(core.keys.clone(), shared.options.sweep_interval_ms)));
        env.spawn_background(Box::pin(upkeep::reserve(
            core.keys.clone(),
            shared.options.keys.reserve_interval_ms,
        )));
        env.spawn_background(Box::pin(upkeep::tidy(core.keys.clone())));
        if shared.options.keys.query {
            env.spawn_background(Box::pin(index_tasks::keep(core.keys.clone())));
        }
        Ok(core)
    }

    /// Flushes what is pending and ends this core's tasks. Call on every core once no request is in flight.
    pub async fn stop(self: &Rc<Self>) {
        self.begin_stop();
        // A search that waits between two pieces still reads what other cores' writers own.
        self.end_long_turns().await;
        if let Some(log) = self.ctx.log() {
            log.stop().await;
        }
        // After the log: a process that is killed while it stops has lost time, nothing else.
        checkpoints::finish(self).await;
        for owned in self.collections.all_owned() {
            owned.end_tasks();
        }
    }

    /// After a start that has failed, on core 0: removes the segments that it has made.
    pub(crate) async fn discard_logs(self: &Rc<Self>) {
        for to in 0..self.env().cores() {
            call_own(self, to, |there| async move {
                if let Some(log) = there.ctx.log() {
                    log.discard().await;
                }
            })
            .await;
        }
    }
}
