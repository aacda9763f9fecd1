//! Bulk loads of dense collections and of collections of named spaces: points staged in memory, built aside on every core, published in one step.
//!
//! Reads and other writes go on during a build: it fills a second writer, made durable by a base image, and replays
//! onto it the ids that changed meanwhile. If anything fails the staged points stay. Spaces are neither added nor dropped during a build.

use crate::account::Growth;
use crate::checkpoint::collection_dir;
use crate::checkpoint::{CheckpointError, VectorsFile};
use crate::error::{OpError, file_error};
use crate::family::CollectionConfig;
use crate::owner::checkpointer::capture_image;
use crate::owner::filer::train_now;
use crate::owner::indexer::{ROUND_BULK, run_relinking, run_round};
use crate::owner::quantizer::advance;
use crate::owner::staged::{ID_BYTES, Staged, staged_bytes, staged_vectors};
use crate::owner::sweeper::sweep_points;
use crate::owner::tasks::Task;
use crate::owner::texts::settle_texts;
use crate::owner::write::batch_vector;
use crate::owner::{Collections, Owned};
use crate::payload_change::{check_row, finish_row};
use crate::points::{NamedVectors, PointFields, Vectors, WriteBatch};
use crate::slice::Slice;
use ahash::HashSet;
use nigh_engine::collection::{DenseWriter, Part, Parts, Write, WriteError};
use nigh_engine::memory::Pin;
use nigh_engine::payload::{PayloadRow, RowBuilder};
use nigh_engine::point_id::SentId;
use std::cell::RefCell;
use std::collections::BTreeSet;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

/// Changes replayed without a pause, so also at the end of a build, when the swap must be in one piece: long texts take up to
/// 100 us each to file.
const DELTA_IN_ONE_GO: usize = 32;

impl Owned {
    /// Refuses what a build needs an empty collection for.
    fn is_empty_for_build(&self, name: &str) -> Result<(), OpError> {
        match self.writer.borrow().shared().stats().live {
            0 => Ok(()),
            live => Err(OpError::Conflict(format!(
                "collection {name:?} is not empty: a bulk build needs an empty one, and it has {live} points"
            ))),
        }
    }

    /// Refuses points that no build would take. None at all are always taken.
    fn takes_staging(&self, name: &str, points: usize) -> Result<(), OpError> {
        if self.build_delta.borrow().is_some() {
            return Err(OpError::Conflict(format!("a bulk build of collection {name:?} is running")));
        }
        if points == 0 { Ok(()) } else { self.is_empty_for_build(name) }
    }
}

impl Collections {
    /// The current configuration of a collection.
    ///
    /// # Errors
    /// [`OpError::UnknownCollection`] if its family has no bulk builds.
    fn built_config(&self, owned: &Owned) -> Result<Arc<CollectionConfig>, OpError> {
        let config = owned.handle.config(&self.ctx().pin()).clone();
        match config.multi_vector() {
            Some(_) => Err(OpError::UnknownCollection(owned.handle.name.clone())),
            None => Ok(config),
        }
    }

    /// Checks one point that is to be staged. Its sparse vectors move into its row.
    fn check_staged(
        &self,
        owned: &Owned,
        point: &mut PointFields,
        vectors: StagedVectors<'_>,
    ) -> Result<(), OpError> {
        check_row(&point.row, &owned.handle)?;
        let writer = owned.writer.borrow();
        match vectors {
            StagedVectors::Only(vector) => writer.space().check_vector(point.id, vector)?,
            StagedVectors::Named(vectors) => {
                self.check_spaces(owned, &writer, vectors, &[])?;
                for (number, vector) in &vectors.dense {
                    writer.spaces()[*number].check_vector(point.id, vector)?;
                }
                if !vectors.sparse.is_empty() {
                    let mut row = RowBuilder::from(PayloadRow::trusted(&point.row));
                    for (space, vector) in std::mem::take(&mut vectors.sparse) {
                        row.set_sparse_of(space, vector).map_err(|error| OpError::Search(error.into()))?;
                    }
                    point.row = finish_row(row)?;
                }
            }
        }
        Ok(())
    }

    /// Stages a batch on the owner core; all or nothing.
    pub(crate) async fn owned_stage(
        self: &Rc<Self>,
        uid: u64,
        name: &str,
        mut batch: WriteBatch,
    ) -> Result<usize, OpError> {
        let unknown = || OpError::UnknownCollection(name.to_owned());
        let owned = self.owned(uid).ok_or_else(unknown)?;
        owned.usable()?;
        let is_named = self.built_config(&owned)?.named().is_some();
        if is_named != matches!(batch.vectors, Vectors::Named(_)) {
            return Err(unknown());
        }
        let bytes = staged_bytes(&batch) + batch.points.len() as u64 * ID_BYTES;
        self.ctx().room_in_memory(bytes, Growth::New)?;
        if !batch.points.is_empty() && owned.is_empty_for_build(name).is_err() {
            // What has expired is not in the way.
            sweep_points(self, &owned).await;
            owned.usable()?;
        }
        owned.takes_staging(name, batch.points.len())?;
        let mut slice = Slice::begin(self.env());
        let mut buffer = Vec::new();
        let mut fresh = HashSet::default();
        let WriteBatch { vectors, points, dim, .. } = &mut batch;
        for (index, point) in points.iter_mut().enumerate() {
            let vectors = match &mut *vectors {
                Vectors::Named(all) => StagedVectors::Named(&mut all[index]),
                vectors => StagedVectors::Only(batch_vector(vectors, *dim, index, &mut buffer)),
            };
            self.check_staged(&owned, point, vectors).map_err(|error| {
                let id = SentId::stored(point.id, &point.row);
                OpError::BadRequest(match error {
                    OpError::Write(WriteError::NotFinite { index, .. }) => {
                        format!("vector: component {index} of id {id} is not a finite number")
                    }
                    error => format!("points[{index}] with id {id}: {error}"),
                })
            })?;
            if owned.staged.borrow().ids.contains(&point.id) || !fresh.insert(point.id) {
                return Err(OpError::BadRequest(format!(
                    "id {} is staged twice; nothing of this request was staged",
                    SentId::stored(point.id, &point.row)
                )));
            }
            slice.check().await;
        }
        let count = batch.points.len();
        // What began while this request was checked in slices: a build would not see these points, and empty the stage.
        owned.usable()?;
        owned.takes_staging(name, count)?;
        let mut staged = owned.staged.borrow_mut();
        // Another request may have staged the same id while this one was being checked in slices.
        let is_again = |point: &&PointFields| staged.ids.contains(&point.id);
        if let Some(point) = batch.points.iter().find(is_again) {
            let id = SentId::stored(point.id, &point.row);
            return Err(OpError::BadRequest(format!(
                "id {id} is staged twice; nothing of this request was staged"
            )));
        }
        staged.ids.extend(fresh);
        staged.bytes += staged_bytes(&batch);
        staged.vectors += staged_vectors(&batch);
        staged.batches.push(Rc::new(batch));
        Ok(count)
    }

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
        let changes = match self.built_config(&owned)?.named() {
            Some(_) => Some(owned.checkpoint_lock.lock().await),
            None => None,
        };
        owned.usable()?;
        if owned.build_delta.borrow().is_some() {
            return Err(OpError::Conflict(format!("a bulk build of collection {name:?} is already running")));
        }
        owned.is_empty_for_build(name)?;
        if owned.staged.borrow().is_empty() {
            return Ok(None);
        }
        let began_ns = self.env().now_ns();
        let config = self.built_config(&owned)?;
        let (quota, quota_bytes) = (config.max_vectors(), config.max_bytes());
        let points = owned.staged.borrow().len() as u64;
        let bytes = points.saturating_mul(config.quota_bytes_per_point());
        if (quota > 0 && points > quota) || (quota_bytes > 0 && bytes > quota_bytes) {
            return Err(self.refused_build(&owned, began_ns));
        }
        if points > owned.writer.borrow().points().slots_max() as u64 {
            return Err(self.refused_build(&owned, began_ns));
        }
        *owned.build_delta.borrow_mut() = Some(BTreeSet::new());
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

    /// The error of a build that a quota refuses, counted.
    fn refused_build(&self, owned: &Owned, began_ns: u64) -> OpError {
        owned.handle.counters.quota_rejects.fetch_add(1, Relaxed);
        self.observe_build(owned, began_ns);
        WriteError::Full.into()
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
        *owned.build_delta.borrow_mut() = None;
        owned.aside_bytes.set(0);
        if result.is_ok() {
            let built = owned.staged.take();
            self.free_staged(built).await;
            owned.handle.counters.insert_ops.fetch_add(points, Relaxed);
        }
        self.observe_build(owned, began_ns);
        owned.changed.notify();
        // The tail is another one now.
        owned.tail_room.note_round(0);
        task.end(&result);
        result
    }

    /// Frees what was built, in slices: a point of named spaces has several allocations.
    async fn free_staged(&self, staged: Staged) {
        let mut slice = Slice::begin(self.env());
        for batch in staged.batches {
            let Ok(WriteBatch { vectors, points, .. }) = Rc::try_unwrap(batch) else { continue };
            if let Vectors::Named(all) = vectors {
                for vectors in all {
                    drop(vectors);
                    slice.check().await;
                }
            }
            for point in points {
                drop(point);
                slice.check().await;
            }
        }
    }

    async fn build_aside(
        self: &Rc<Self>,
        owned: &Rc<Owned>,
        workers: usize,
        task: &Task,
    ) -> Result<(), OpError> {
        let env = self.env().clone();
        let config = self.built_config(owned)?;
        let in_file = owned.vectors.borrow().is_some();
        let vectors = match (config.dense().filter(|_| in_file), self.env().disk()) {
            (Some(config), Some(disk)) => {
                let number = owned.checkpoint.borrow_mut().next_file();
                let dir = collection_dir(owned.handle.uid);
                // Nobody names it before the image does; if that fails the next start removes it.
                Some(Rc::new(
                    VectorsFile::create(&*disk, &dir, number, owned.handle.uid, config)
                        .await
                        .map_err(file_error)?,
                ))
            }
            _ => None,
        };
        let mut fresh = self.ctx().new_writer(&config, vectors.as_deref(), 0)?;
        fresh.points_mut().inherit_versions(owned.writer.borrow().points());
        let aside = RefCell::new(fresh);
        let mut slice = Slice::begin(&env);
        let batches = owned.staged.borrow().batches.clone();
        let mut buffer = Vec::new();
        // The staged points carry the sequence number at the start: whatever was logged later is newer than they are.
        let seq = owned.writer.borrow().seq();
        for batch in &batches {
            for (index, point) in batch.points.iter().enumerate() {
                if owned.dropped.get() {
                    return Err(OpError::UnknownCollection(owned.handle.name.clone()));
                }
                {
                    let mut writer = aside.borrow_mut();
                    let bytes = writer.shared().bytes_of_point(point.row.len(), true);
                    self.ctx().room_in_memory(bytes, Growth::New)?;
                    if !writer.points().has_slot() {
                        return Err(WriteError::Full.into());
                    }
                    writer.commit_next()?;
                    let (id, row, version) =
                        (point.id, &point.row[..], writer.points().next_version(point.id));
                    let each;
                    let parts = match &batch.vectors {
                        Vectors::Named(all) => {
                            each = each_space(writer.spaces().len(), &all[index].dense);
                            Parts::Each(&each)
                        }
                        vectors => Parts::Only(batch_vector(vectors, batch.dim, index, &mut buffer)),
                    };
                    writer.load(Write { seq, id, version, parts, row, deadline_ms: 0 });
                    owned.aside_bytes.set(writer.shared().stats().bytes);
                }
                slice.check().await;
                settle_texts(&env, &aside).await;
            }
            owned.aside_bytes.set(aside.borrow().shared().stats().bytes);
        }
        let spaces = there(&aside.borrow());
        for space in spaces {
            self.link_space(owned, &aside, space, workers, task).await?;
        }

        if config.has_quantizer() {
            task.stage("quantizing");
            advance(&env, owned, &aside, true).await;
            owned.aside_bytes.set(aside.borrow().shared().stats().bytes);
        }

        task.stage("saving");
        // The image is consistent as of the moment its capture ends: all changes so far are on it, later ones are in the log above its
        // sequence number.
        let _held = owned.checkpoint_lock.lock().await;
        self.replay_delta(owned, &aside, &mut slice).await?;
        let not_durable = |error: CheckpointError| {
            let text = format!("the built collection could not be made durable: {error}");
            if error.is_full() { OpError::NoSpace(text) } else { OpError::Unavailable(text) }
        };
        let image = match env.disk() {
            Some(_) => {
                let captured = capture_image(self, owned, &aside, vectors.as_deref(), true).await;
                Some(captured.map_err(not_durable)?)
            }
            None => None,
        };
        // Most of what can fail yet fails here, while no manifest names the image: the next start removes it.
        if let Err(error) = self.replay_delta(owned, &aside, &mut slice).await {
            if let Some(image) = &image {
                image.discard(self, owned).await;
            }
            return Err(error);
        }
        let _round = owned.round_lock.lock().await;
        let mut decided = match (&image, env.disk()) {
            (Some(image), Some(disk)) => image.publish(&*disk, owned).await.map_err(not_durable),
            _ => Ok(()),
        };
        if owned.dropped.get() {
            decided = Err(OpError::UnknownCollection(owned.handle.name.clone()));
        }
        if decided.is_ok() {
            decided = self.replay_delta(owned, &aside, &mut slice).await;
        }
        if let Err(error) = decided {
            // What is told to have failed must not be there after the next start.
            // A stop ends the tasks of a collection as a drop does, but leaves its files.
            if let Some(image) = &image
                && (!owned.dropped.get() || self.ctx().is_stopping())
                && !image.withdraw(self, owned).await
            {
                let open =
                    format!("{error}; that could not be taken back, so that a restart now may find it done");
                return Err(OpError::Unavailable(open));
            }
            return Err(error);
        }
        // No await from the last replay to the swap, and the delta is empty: both writers hold the same points.
        aside.borrow_mut().end_capture(true);
        let mut fresh = aside.into_inner();
        // It was made with the configuration of when the build began, some of which may have changed since.
        owned.handle.config(&self.ctx().pin()).tune(&mut fresh);
        let view = fresh.shared().clone();
        let old_writer = std::mem::replace(&mut *owned.writer.borrow_mut(), fresh);
        owned.vectors.replace(vectors);
        let before = old_writer.shared().stats().distances;
        owned.handle.counters.distances_before.fetch_add(before, Relaxed);
        self.publish_view(owned, view, old_writer);
        // Of what was copied last.
        settle_texts(&env, &owned.writer).await;
        // The log counts as covered only now: until here the manifest before might have been put back.
        if let (Some(image), Some(disk)) = (image, env.disk()) {
            image.conclude(&*disk, owned).await;
        }
        Ok(())
    }

    /// Indexes the loaded vectors of one space: trains its cells if it has any, links, and relinks if its index needs it.
    async fn link_space(
        self: &Rc<Self>,
        owned: &Rc<Owned>,
        aside: &RefCell<DenseWriter>,
        space: usize,
        workers: usize,
        task: &Task,
    ) -> Result<(), OpError> {
        let env = self.env().clone();
        let mut slice = Slice::begin(&env);
        let dropped = || OpError::UnknownCollection(owned.handle.name.clone());
        if aside.borrow().spaces()[space].files_cells() {
            task.stage("training");
            train_now(&env, aside, space).await;
        }
        task.stage("linking");
        while let Some(linked) = run_round(self, aside, space, ROUND_BULK, workers).await {
            task.advance(linked as u64);
            if owned.dropped.get() {
                return Err(dropped());
            }
            owned.aside_bytes.set(aside.borrow().shared().stats().bytes);
            slice.check().await;
        }
        if aside.borrow().spaces()[space].links_twice() {
            task.stage("relinking");
            let mut next = 0;
            while run_relinking(self, aside, space, &mut next, workers).await.is_some() {
                if owned.dropped.get() {
                    return Err(dropped());
                }
                slice.check().await;
            }
        }
        Ok(())
    }

    /// Brings `aside` up to date with what changed in the serving writer; returns with nothing left and no await since.
    async fn replay_delta(
        self: &Rc<Self>,
        owned: &Rc<Owned>,
        aside: &RefCell<DenseWriter>,
        slice: &mut Slice,
    ) -> Result<(), OpError> {
        loop {
            let ids: Vec<u64> = {
                let mut delta = owned.build_delta.borrow_mut();
                let delta = delta.as_mut().expect("a running build keeps its delta");
                let in_one_go = delta.len() <= DELTA_IN_ONE_GO;
                let ids: Vec<u64> = delta.iter().copied().take(DELTA_IN_ONE_GO).collect();
                for id in &ids {
                    delta.remove(id);
                }
                if in_one_go {
                    return self.copy_points(owned, aside, &ids);
                }
                ids
            };
            self.copy_points(owned, aside, &ids)?;
            slice.check().await;
            settle_texts(self.env(), aside).await;
        }
    }

    /// # Errors
    /// Full: the serving writer has freed slots that the new one still holds. No space.
    fn copy_points(&self, owned: &Owned, aside: &RefCell<DenseWriter>, ids: &[u64]) -> Result<(), OpError> {
        let serving = owned.writer.borrow();
        let mut aside = aside.borrow_mut();
        let now_ms = self.env().unix_ms();
        let seq = serving.seq();
        let pin = self.ctx().pin();
        for &id in ids {
            match serving.shared().get(&pin, id, now_ms) {
                Some(_) if !aside.points().has_slot() => return Err(WriteError::Full.into()),
                Some(point) => {
                    aside.commit_next()?;
                    let (named, each);
                    let parts = match serving.shared().is_named() {
                        true => {
                            named = named_vectors(&serving, &pin, id, now_ms);
                            each = each_space(aside.spaces().len(), &named);
                            Parts::Each(&each)
                        }
                        false => Parts::Only(&point.vector),
                    };
                    let (version, row, deadline_ms) = (point.version, point.row, point.deadline_ms);
                    aside.load(Write { seq, id, version, parts, row, deadline_ms });
                }
                None => {
                    aside.unload(id);
                    aside.points_mut().inherit_version(serving.points(), id);
                }
            }
        }
        aside.points_mut().advance_seq(seq);
        Ok(())
    }
}

/// The vectors of one point as they are staged.
enum StagedVectors<'a> {
    Only(&'a [f32]),
    Named(&'a mut NamedVectors),
}

/// The numbers of the dense spaces that were not dropped.
fn there(writer: &DenseWriter) -> Vec<usize> {
    (0..writer.spaces().len()).filter(|space| !writer.spaces()[*space].is_dropped()).collect()
}

/// The part of each dense space, from the vectors that the point has; `Absent` where it has none.
fn each_space(spaces: usize, vectors: &[(usize, Vec<f32>)]) -> Vec<Part<'_>> {
    let mut each = vec![Part::Absent; spaces];
    for (number, vector) in vectors {
        each[*number] = Part::Given(vector);
    }
    each
}

/// The dense vectors of a live point.
fn named_vectors(writer: &DenseWriter, pin: &Pin<'_>, id: u64, now_ms: u64) -> Vec<(usize, Vec<f32>)> {
    let shared = writer.shared();
    let slot = shared.points().find(pin, id, now_ms);
    slot.map_or_else(Vec::new, |slot| shared.named_vectors(pin, slot))
}
