//! Bulk loads: points staged in memory, built aside on every core, published in one step.
//!
//! Reads and other writes go on during a build: it fills a second writer, made durable by a base image, and replays
//! onto it the ids that changed meanwhile. For a multi-vector collection there is another writer for the index of its tokens, and both
//! are published without an await in between. If anything fails the staged points stay. Spaces are neither added nor dropped during a build.

use super::aside::{Aside, Build};
use crate::archive::Unlogged;
use crate::checkpoint::CheckpointError;
use crate::env::call_own;
use crate::error::OpError;
use crate::event::LockGuard;
use crate::family::CollectionConfig;
use crate::owner::checkpointer::{NewImage, capture_image};
use crate::owner::filer::train_now;
use crate::owner::indexer::{ROUND_BULK, run_relinking, run_round};
use crate::owner::quantizer::advance;
use crate::owner::sweeper::sweep_points;
use crate::owner::tasks::Task;
use crate::owner::texts::settle_texts;
use crate::owner::{Collections, Owned};
use crate::slice::Slice;
use nigh_engine::collection::WriteError;
use std::collections::BTreeSet;
use std::rc::Rc;
use std::sync::atomic::Ordering::Relaxed;

impl Collections {
    /// Builds what is staged, or begins to: see [`crate::core::Core::build`]. The collection must hold no live point when it starts.
    pub(crate) async fn owned_build(
        self: &Rc<Self>,
        uid: u64,
        name: &str,
        workers: usize,
        wait: bool,
    ) -> Result<Option<u64>, OpError> {
        let owned = self.owned(uid).ok_or_else(|| OpError::UnknownCollection(name.to_owned()))?;
        owned.usable()?;
        // What has expired is not in the way, and the new writer is told of all versions that were given to it.
        sweep_points(self, &owned).await;
        // A change of spaces that is under way ends before the build looks at them; later ones are refused.
        let changes = owned.checkpoint_lock.lock().await;
        owned.usable()?;
        owned.token_index.get().map_or(Ok(()), |index| index.owned().usable())?;
        if owned.build_delta.borrow().is_some() {
            return Err(OpError::Conflict(format!("a bulk build of collection {name:?} is already running")));
        }
        owned.is_empty_for_build(name)?;
        if owned.staged.borrow().is_empty() {
            return Ok(None);
        }
        let began_ns = self.env().now_ns();
        if !self.fits_quotas(&owned) {
            owned.handle.counters.quota_rejects.fetch_add(1, Relaxed);
            self.observe_build(&owned, began_ns);
            return Err(WriteError::Full.into());
        }
        for owned in owned.index_first() {
            *owned.build_delta.borrow_mut() = Some(BTreeSet::new());
        }
        drop(changes);
        let workers = if workers == 0 { self.env().cores() } else { workers };
        let vectors = owned.staged.borrow().vectors;
        let task = self.tasks.begin(self.ctx(), "build", &owned.handle.name, vectors);
        let id = task.id();
        let collections = self.clone();
        let building = async move { collections.finish_build(&owned, workers, task, began_ns).await };
        if wait {
            building.await?;
        } else {
            self.env().spawn_background(Box::pin(async move {
                if let Err(error) = building.await {
                    tracing::warn!(target: "nigh", task = id, %error, "a bulk build failed; what was staged is still staged");
                }
            }));
        }
        Ok(Some(id))
    }

    /// Whether the quotas of the collection, and the numbers of slots of the collection and of its index, allow what is staged.
    fn fits_quotas(&self, owned: &Owned) -> bool {
        let pin = self.ctx().pin();
        let (config, staged) = (owned.handle.config(&pin), owned.staged.borrow());
        let points = staged.len() as u64;
        let bytes = match &**config {
            CollectionConfig::MultiVector(config) => config.quota_bytes(points, staged.tokens),
            config => points.saturating_mul(config.quota_bytes_per_point()),
        };
        let fits = |count: u64, most: u64| most == 0 || count <= most;
        let slots = |owned: &Owned| owned.writer.borrow().points().slots_max() as u64;
        let index = owned.token_index.get();
        fits(points, config.max_vectors())
            && fits(bytes, config.max_bytes())
            && points <= slots(owned)
            && index.is_none_or(|index| staged.vectors <= slots(index.owned()))
    }

    /// A build is one observation among those of inserts, whatever became of it.
    fn observe_build(&self, owned: &Owned, began_ns: u64) {
        let us = self.env().now_ns().saturating_sub(began_ns) / 1000;
        owned.handle.counters.insert_latency.record_us(us);
    }

    async fn finish_build(
        self: &Rc<Self>,
        owned: &Rc<Owned>,
        workers: usize,
        task: Task,
        began_ns: u64,
    ) -> Result<(), OpError> {
        let points = owned.staged.borrow().len() as u64;
        let result = self.build_aside(owned, workers, &task).await;
        for owned in owned.index_first() {
            *owned.build_delta.borrow_mut() = None;
            owned.aside_bytes.set(0);
        }
        for owned in owned.index_first() {
            // The tail is another one now. Whoever waits for room in it does not wait until what was built is freed.
            owned.changed.notify();
            owned.tail_room.note_round(0);
        }
        if result.is_ok() {
            let built = owned.staged.take();
            self.free_staged(built).await;
            owned.handle.counters.insert_ops.fetch_add(points, Relaxed);
        }
        self.observe_build(owned, began_ns);
        task.end(&result);
        result
    }

    async fn build_aside(
        self: &Rc<Self>,
        owned: &Rc<Owned>,
        workers: usize,
        task: &Task,
    ) -> Result<(), OpError> {
        let build = self.begin_build(owned).await?;
        let filled = match self.fill(&build, workers, task).await {
            // Before a start can find it: the log has nothing of it.
            Ok(()) => match self.note_before_unlogged(&build.collection.owned).await {
                Ok(()) => self.save(&build, task).await,
                Err(error) => Err(error),
            },
            Err(error) => Err(error),
        };
        match filled {
            Ok(images) => {
                let owned = build.collection.owned.clone();
                self.serve(build, images).await;
                // Snapshots from now on have it.
                self.note_unlogged(&owned).await;
                Ok(())
            }
            Err(error) => {
                build.give_numbers(self.env()).await;
                Err(error)
            }
        }
    }

    /// Tells the archive of the log, if there is one, that the collection is about to get data which no log has.
    async fn note_before_unlogged(self: &Rc<Self>, owned: &Rc<Owned>) -> Result<(), OpError> {
        if !self.ctx().is_archived() {
            return Ok(());
        }
        let name = owned.handle.name.clone();
        let noted = call_own(self, 0, move |there| async move {
            there.ctx().log_before_unlogged(Unlogged::Collection(&name)).await
        });
        noted.await
    }

    /// Tells it that the collection has got them.
    async fn note_unlogged(self: &Rc<Self>, owned: &Rc<Owned>) {
        if self.ctx().is_archived() {
            let name = owned.handle.name.clone();
            let noted = call_own(self, 0, move |there| async move {
                there.ctx().log_unlogged(Unlogged::Collection(&name)).await;
            });
            noted.await;
        }
    }

    /// Loads and indexes what is staged.
    async fn fill(self: &Rc<Self>, build: &Build, workers: usize, task: &Task) -> Result<(), OpError> {
        self.load_staged(build).await?;
        for aside in build.all() {
            for space in aside.spaces() {
                self.link_space(build, aside, space, workers, task).await?;
            }
            let has_quantizer = aside.owned.handle.config(&self.ctx().pin()).has_quantizer();
            if has_quantizer {
                task.stage("quantizing");
                advance(self.env(), &aside.owned, &aside.writer, true).await;
                aside.measure();
            }
        }
        Ok(())
    }

    /// Indexes the loaded vectors of one space: trains its cells if it has any, links, and relinks if its index needs it.
    async fn link_space(
        self: &Rc<Self>,
        build: &Build,
        aside: &Aside,
        space: usize,
        workers: usize,
        task: &Task,
    ) -> Result<(), OpError> {
        let env = self.env().clone();
        let mut slice = Slice::begin(&env);
        let writer = &aside.writer;
        let files_cells = writer.borrow().spaces()[space].files_cells();
        if files_cells {
            task.stage("training");
            train_now(&env, writer, space).await;
        }
        task.stage("linking");
        while let Some(linked) = run_round(self, writer, space, ROUND_BULK, workers).await {
            task.advance(linked as u64);
            build.check_dropped()?;
            aside.measure();
            slice.check().await;
        }
        let links_twice = writer.borrow().spaces()[space].links_twice();
        if links_twice {
            task.stage("relinking");
            let mut next = 0;
            while run_relinking(self, writer, space, &mut next, workers).await.is_some() {
                build.check_dropped()?;
                slice.check().await;
            }
        }
        Ok(())
    }

    /// Makes what was filled durable. When this returns, the new writers hold what changed in the serving ones, and no other task has run since
    /// they were compared.
    ///
    /// # Errors
    /// The disk fails or is full, or the collection was dropped. What failed is not there after the next start, unless the error says that it may be.
    async fn save(self: &Rc<Self>, build: &Build, task: &Task) -> Result<Saved, OpError> {
        task.stage("saving");
        let mut saved = Saved::default();
        for aside in build.all() {
            saved.locks.push(aside.owned.checkpoint_lock.lock().await);
        }
        self.replay_deltas(build).await?;
        // Most of what can fail fails here, while no manifest names the images: the next start removes them.
        if let Err(error) = self.capture(build, &mut saved.images).await {
            for (aside, image) in build.all().zip(&saved.images) {
                image.discard(self, &aside.owned).await;
            }
            return Err(error);
        }
        for aside in build.all() {
            saved.locks.push(aside.owned.round_lock.lock().await);
        }
        let mut tried = 0;
        let mut decided = self.publish(build, &saved.images, &mut tried).await;
        if decided.is_ok() {
            decided = build.check_dropped();
        }
        if decided.is_ok() {
            decided = self.replay_deltas(build).await;
        }
        match decided {
            Ok(()) => Ok(saved),
            Err(error) => Err(self.take_back(build, &saved.images, tried, error).await),
        }
    }

    /// Writes the images of the new writers, then replays what changed meanwhile. Each image is consistent as of the end of its capture: it has
    /// all changes up to its sequence number, and later ones are in the log.
    async fn capture(self: &Rc<Self>, build: &Build, images: &mut Vec<NewImage>) -> Result<(), OpError> {
        if self.env().disk().is_none() {
            return Ok(());
        }
        for aside in build.all() {
            let image = capture_image(self, &aside.owned, &aside.writer, aside.vectors.as_deref(), true);
            images.push(image.await.map_err(not_durable)?);
        }
        self.replay_deltas(build).await
    }

    /// Stores the manifests that name the images. `tried` counts the manifests that it began to store, which may be on the disk even if this fails.
    async fn publish(&self, build: &Build, images: &[NewImage], tried: &mut usize) -> Result<(), OpError> {
        let Some(disk) = self.env().disk() else { return Ok(()) };
        for (aside, image) in build.all().zip(images) {
            *tried += 1;
            image.publish(&*disk, &aside.owned).await.map_err(not_durable)?;
        }
        Ok(())
    }

    /// Undoes the build after `error`, so that the next start does not find it. Returns the error for the caller, which says so if this was not
    /// possible.
    async fn take_back(
        self: &Rc<Self>,
        build: &Build,
        images: &[NewImage],
        tried: usize,
        error: OpError,
    ) -> OpError {
        // A drop removes all files of the collection. A stop also sets `dropped`, but it leaves the files, so the images must be taken back.
        if build.collection.owned.dropped.get() && !self.ctx().is_stopping() {
            return error;
        }
        // The collection comes first, so that a crash in between does not leave documents without their index. If the manifest of the
        // collection cannot be taken back, that of the index is left in place for the same reason. If only that of the index cannot be taken
        // back, its points belong to no document, and the next start removes them.
        let mut is_open = false;
        let of_asides: Vec<_> = build.all().zip(images).enumerate().collect();
        for (number, (aside, image)) in of_asides.into_iter().rev() {
            if number >= tried {
                image.discard(self, &aside.owned).await;
            } else if is_open {
                image.remain(&aside.owned);
            } else if !image.withdraw(self, &aside.owned).await {
                is_open = Rc::ptr_eq(&aside.owned, &build.collection.owned);
            }
        }
        if is_open {
            build.keep_numbers();
        }
        match is_open {
            true => OpError::Unavailable(format!(
                "{error}; that could not be taken back, so that a restart now may find it done"
            )),
            false => error,
        }
    }

    /// Puts the writers in the place of those that serve. There was no await since the last replay, and there is none until all are in place.
    async fn serve(self: &Rc<Self>, build: Build, saved: Saved) {
        build.serves();
        let collection = build.collection.owned.clone();
        // A search reads the view of the index first and then that of the collection. If it has the new index, it has the new documents as well.
        for Aside { owned, writer, vectors, .. } in std::iter::once(build.collection).chain(build.index) {
            writer.borrow_mut().end_capture(true);
            let mut fresh = writer.into_inner();
            // It was made with the configuration of when the build began, some of which may have changed since.
            owned.handle.config(&self.ctx().pin()).tune(&mut fresh);
            let view = fresh.shared().clone();
            let old_writer = std::mem::replace(&mut *owned.writer.borrow_mut(), fresh);
            owned.vectors.replace(vectors);
            let before = old_writer.shared().stats().distances;
            collection.handle.counters.distances_before.fetch_add(before, Relaxed);
            self.publish_view(&owned, view, old_writer);
        }
        // This files the texts of the points that were copied last.
        settle_texts(self.env(), &collection.writer).await;
        // The log counts as covered only now: until here the manifest before might have been put back.
        if let Some(disk) = self.env().disk() {
            for (owned, image) in collection.index_first().zip(saved.images) {
                image.conclude(&*disk, owned).await;
            }
        }
    }
}

/// What makes a build durable.
#[derive(Default)]
struct Saved {
    /// The images, in the order of [`Build::all`].
    images: Vec<NewImage>,
    /// No image of the serving writers is written, and nothing of them is indexed, until the new ones serve.
    locks: Vec<LockGuard>,
}

fn not_durable(error: CheckpointError) -> OpError {
    let text = format!("the built collection could not be made durable: {error}");
    if error.is_full() { OpError::NoSpace(text) } else { OpError::Unavailable(text) }
}
