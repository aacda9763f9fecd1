//! The writers that a bulk build fills beside those that serve: one for the collection and, if it has an index of tokens, one for that.

use super::texts::settle_texts;
use super::token_index::TokenIndex;
use super::write::batch_vector;
use super::{Collections, Owned};
use crate::account::Growth;
use crate::checkpoint::{VectorsFile, collection_dir};
use crate::env::Env;
use crate::error::{OpError, file_error};
use crate::points::{PointFields, Vectors};
use crate::slice::Slice;
use ahash::HashSet;
use nigh_engine::collection::{DenseWriter, Part, Parts, Write, WriteError};
use nigh_engine::memory::Pin;
use nigh_engine::payload::{PayloadRow, RowBuilder};
use nigh_engine::query::{document_of, token_of};
use std::cell::{Cell, RefCell};
use std::rc::Rc;

/// The most points that are copied before other tasks may run. This bounds the last copy before the swap as well, during which none may run. A
/// long text takes up to 100 us to file.
const POINTS_IN_ONE_GO: usize = 32;
/// The most documents, likewise: each has up to 4,096 points in the index.
const DOCUMENTS_IN_ONE_GO: usize = 1;
/// The most points of an index that are copied or removed, likewise: they have neither texts nor payloads.
const TOKENS_IN_ONE_GO: usize = 256;
/// The most vector components that are copied before other tasks may run. Up to two points are copied together even if they have more.
const COMPONENTS_IN_ONE_GO: usize = 32 << 10;
/// The number of ids of the index that are noted in one step.
const STEP: usize = 256;

/// A writer that will replace the one that serves.
pub(super) struct Aside {
    /// The collection, or the index of its tokens.
    pub owned: Rc<Owned>,
    pub writer: RefCell<DenseWriter>,
    /// The file of its vectors, if the collection is persistent.
    pub vectors: Option<Rc<VectorsFile>>,
    /// The sequence number of what is loaded, that of the serving writer at the start: whatever was logged later is newer.
    seq: u64,
}

impl Aside {
    /// Tells the account how much memory the writer holds.
    pub fn measure(&self) {
        self.owned.aside_bytes.set(self.writer.borrow().shared().stats().bytes);
    }

    /// The numbers of the dense spaces that were not dropped.
    pub fn spaces(&self) -> Vec<usize> {
        let writer = self.writer.borrow();
        (0..writer.spaces().len()).filter(|space| !writer.spaces()[*space].is_dropped()).collect()
    }

    /// Refuses so many points, each with a row of so many bytes, if there is no memory for them or no slot for the first.
    fn check_room(&self, collections: &Collections, points: usize, row_bytes: usize) -> Result<(), OpError> {
        let writer = self.writer.borrow();
        let bytes = writer.shared().bytes_of_point(row_bytes, true) * points as u64;
        collections.ctx().room_in_memory(bytes, Growth::New)?;
        if writer.points().has_slot() { Ok(()) } else { Err(WriteError::Full.into()) }
    }

    /// The most changes that are copied before other tasks may run.
    fn in_one_go(&self, build: &Build) -> usize {
        let most = match &build.index {
            None => POINTS_IN_ONE_GO,
            Some(index) if Rc::ptr_eq(&index.owned, &self.owned) => TOKENS_IN_ONE_GO,
            Some(_) => return DOCUMENTS_IN_ONE_GO,
        };
        let writer = self.writer.borrow();
        let components: usize = writer.shared().spaces().iter().map(|space| space.config().dim).sum();
        most.min(COMPONENTS_IN_ONE_GO / components.max(1)).max(2)
    }
}

/// What a build fills.
pub(super) struct Build {
    pub collection: Aside,
    /// The index of the tokens of a multi-vector collection.
    pub index: Option<Aside>,
    /// The staged documents that were loaded and that no client has replaced or deleted since. The build took the numbers of their points, so no
    /// point of the serving index has them.
    loaded: RefCell<HashSet<u64>>,
    /// Points in the new index that belong to staged documents which a client has replaced or deleted since. They still have to be removed. Each
    /// entry is a document and a number.
    replaced: RefCell<Vec<(u64, u32)>>,
    /// The number of tokens of all documents.
    tokens: Cell<u64>,
}

impl Build {
    /// The writers in the order in which they become durable. The index comes first: a start removes points of the index that belong to no document,
    /// whereas it has to log points that the index lacks, for which the log may not have room.
    pub fn all(&self) -> impl Iterator<Item = &Aside> {
        self.index.iter().chain(std::iter::once(&self.collection))
    }

    /// The index of tokens, as the collection has it and as the build fills it.
    fn index(&self) -> Option<(&TokenIndex, &Aside)> {
        self.collection.owned.token_index.get().zip(self.index.as_ref())
    }

    /// Refuses to go on if the collection was dropped.
    pub fn check_dropped(&self) -> Result<(), OpError> {
        let owned = &self.collection.owned;
        if owned.dropped.get() { Err(OpError::UnknownCollection(owned.handle.name.clone())) } else { Ok(()) }
    }

    /// After a failure: gives the numbers back that the build took.
    pub async fn give_numbers(&self, env: &Rc<dyn Env>) {
        let Some((index, _)) = self.index() else { return };
        let mut slice = Slice::begin(env);
        for (_, number) in self.replaced.take() {
            index.give(&[number]);
        }
        for id in self.loaded.take() {
            let numbers = index.numbers_of(&self.collection.writer.borrow(), id);
            index.give(&numbers);
            slice.check().await;
        }
    }

    /// After a failure that could not be taken back. The next start may find the documents that were built, so their numbers are not given to others
    /// until then.
    pub fn keep_numbers(&self) {
        self.loaded.take();
        self.replaced.take();
    }

    /// Removes the points of replaced documents from the index. Returns only when nothing is left to remove; no other task has run between that check
    /// and the return.
    async fn unload_replaced(&self, slice: &mut Slice) {
        let Some((index, aside)) = self.index() else { return };
        loop {
            let some = {
                let mut replaced = self.replaced.borrow_mut();
                let rest = replaced.len().saturating_sub(TOKENS_IN_ONE_GO);
                replaced.split_off(rest)
            };
            for (document, number) in some {
                aside.writer.borrow_mut().unload(token_of(document, number).0);
                index.give(&[number]);
            }
            if self.replaced.borrow().is_empty() {
                return;
            }
            slice.check().await;
        }
    }

    /// The documents that are loaded now serve, with the points of the index.
    pub fn serves(&self) {
        if let Some((index, _)) = self.index() {
            index.set_count(self.tokens.get());
        }
    }
}

impl Collections {
    /// Creates the empty writers. The caller has already begun to record the ids that change.
    pub(super) async fn begin_build(&self, owned: &Rc<Owned>) -> Result<Build, OpError> {
        let index = match owned.token_index.get() {
            Some(index) => Some(self.begin_aside(index.owned()).await?),
            None => None,
        };
        let collection = self.begin_aside(owned).await?;
        if let Some(index) = &index {
            // The serving index may hold points although there are no documents: of documents that are being written or were just deleted. All of
            // them are recorded as changed, so that the replay copies those that are left.
            let (mut from, mut slice) = (0, Slice::begin(self.env()));
            loop {
                let ids: Vec<u64> = index.owned.writer.borrow().points().ids_from(from).take(STEP).collect();
                ids.iter().for_each(|id| index.owned.note_delta(*id));
                slice.check().await;
                let Some(last) = ids.last() else { break };
                from = last + 1;
            }
        }
        Ok(Build {
            collection,
            index,
            loaded: RefCell::default(),
            replaced: RefCell::default(),
            tokens: Cell::new(0),
        })
    }

    async fn begin_aside(&self, owned: &Rc<Owned>) -> Result<Aside, OpError> {
        let config = owned.handle.config(&self.ctx().pin()).clone();
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
        // It may grow as far as the one that it replaces, although others may have taken address space since: twice what is said to be held.
        let held = owned.writer.borrow().points().slots_max().div_ceil(2);
        let mut fresh = self.ctx().new_writer(&config, vectors.as_deref(), held)?;
        let serving = owned.writer.borrow();
        fresh.points_mut().inherit_versions(serving.points());
        fresh.points().follow_builds(serving.points());
        Ok(Aside { owned: owned.clone(), writer: RefCell::new(fresh), vectors, seq: serving.seq() })
    }

    /// Loads the staged points. They are not indexed yet.
    pub(super) async fn load_staged(&self, build: &Build) -> Result<(), OpError> {
        let aside = &build.collection;
        let batches = aside.owned.staged.borrow().batches.clone();
        let mut slice = Slice::begin(self.env());
        let mut buffer = Vec::new();
        for batch in &batches {
            for (index, point) in batch.points.iter().enumerate() {
                build.check_dropped()?;
                if let Some(tokens) = build.index() {
                    self.load_document(build, tokens, point, &mut slice).await?;
                } else {
                    aside.check_room(self, 1, point.row.len())?;
                    let spaces = aside.writer.borrow().spaces().len();
                    let each;
                    let parts = match &batch.vectors {
                        Vectors::Named(all) => {
                            each = each_space(spaces, &all[index].dense);
                            Parts::Each(&each)
                        }
                        vectors => Parts::Only(batch_vector(vectors, batch.dim, index, &mut buffer)),
                    };
                    load_point(aside, point.id, parts, &point.row)?;
                }
                aside.measure();
                slice.check().await;
                settle_texts(self.env(), &aside.writer).await;
            }
        }
        build.all().for_each(Aside::measure);
        Ok(())
    }

    /// Loads a document and its points in the index.
    async fn load_document(
        &self,
        build: &Build,
        (index, aside): (&TokenIndex, &Aside),
        point: &PointFields,
        slice: &mut Slice,
    ) -> Result<(), OpError> {
        let stored = PayloadRow::trusted(&point.row).tokens();
        let mut tokens = Vec::with_capacity(stored.len() * stored.dim());
        for token in stored.vectors() {
            tokens.extend(token);
            slice.check().await;
        }
        let vectors = index.vectors(self.env(), &tokens).await;
        let count = index.indexing().points(stored.len());
        build.collection.check_room(self, 1, point.row.len())?;
        aside.check_room(self, count, 0)?;
        let numbers = index.take(count);
        let loaded = self.load_tokens(aside, point.id, &numbers, &vectors, slice).await;
        loaded.inspect_err(|_| index.give(&numbers))?;
        let mut row = RowBuilder::from(PayloadRow::trusted(&point.row));
        row.number_tokens(index.indexing().numbers_in_row(&numbers, stored.len()));
        load_point(&build.collection, point.id, Parts::Each(&[]), &row.finish())
            .inspect_err(|_| index.give(&numbers))?;
        build.loaded.borrow_mut().insert(point.id);
        build.tokens.set(build.tokens.get() + stored.len() as u64);
        index.follow_in((&build.collection.writer.borrow(), &aside.writer.borrow()), point.id);
        aside.measure();
        Ok(())
    }

    /// Loads the points of a document into its index.
    async fn load_tokens(
        &self,
        aside: &Aside,
        document: u64,
        numbers: &[u32],
        vectors: &[f32],
        slice: &mut Slice,
    ) -> Result<(), OpError> {
        let dim = vectors.len() / numbers.len().max(1);
        for (number, vector) in numbers.iter().zip(vectors.chunks_exact(dim.max(1))) {
            {
                let mut writer = aside.writer.borrow_mut();
                if !writer.points().has_slot() {
                    return Err(WriteError::Full.into());
                }
                writer.commit_next()?;
                let (id, version) = token_of(document, *number);
                let (seq, parts) = (aside.seq, Parts::Only(vector));
                writer.load(Write { seq, id, version, parts, row: &[], deadline_ms: 0 });
                // Ids of points of the index repeat: a client may have deleted the point that had this id before, which freed its number for the
                // build. That deletion is still to be replayed, and would remove the new point.
                aside.owned.build_delta.borrow_mut().as_mut().map(|ids| ids.remove(&id));
            }
            slice.check().await;
        }
        Ok(())
    }

    /// Brings all writers up to date with what changed in the serving ones. Returns only when nothing is left to copy; no other task has run between
    /// that check and the return.
    pub(super) async fn replay_deltas(&self, build: &Build) -> Result<(), OpError> {
        let mut slice = Slice::begin(self.env());
        loop {
            build.unload_replaced(&mut slice).await;
            for aside in build.all() {
                self.replay_delta(build, aside, &mut slice).await?;
            }
            // Others may have run while the later ones were brought up to date.
            let is_done =
                |aside: &Aside| aside.owned.build_delta.borrow().as_ref().is_none_or(|ids| ids.is_empty());
            if build.all().all(is_done) && build.replaced.borrow().is_empty() {
                return Ok(());
            }
        }
    }

    /// Brings one writer up to date. Returns only when nothing is left to copy; no other task has run between that check and the return.
    async fn replay_delta(&self, build: &Build, aside: &Aside, slice: &mut Slice) -> Result<(), OpError> {
        let most = aside.in_one_go(build);
        loop {
            let ids: Vec<u64> = {
                let mut delta = aside.owned.build_delta.borrow_mut();
                let delta = delta.as_mut().expect("a running build keeps its delta");
                let in_one_go = delta.len() <= most;
                let ids: Vec<u64> = delta.iter().copied().take(most).collect();
                for id in &ids {
                    delta.remove(id);
                }
                if in_one_go {
                    return self.copy_all(build, aside, &ids);
                }
                ids
            };
            self.copy_all(build, aside, &ids)?;
            slice.check().await;
            settle_texts(self.env(), &aside.writer).await;
        }
    }

    /// Copies the current state of these ids from the serving writer, and keeps the parents and the number of tokens up to date.
    ///
    /// # Errors
    /// [`WriteError::Full`] if the new writer has no slot left, since it still holds slots that the serving one has freed; [`WriteError::NoSpace`].
    fn copy_all(&self, build: &Build, aside: &Aside, ids: &[u64]) -> Result<(), OpError> {
        let Some((index, tokens)) = build.index() else {
            return self.copy_points(aside, ids);
        };
        if Rc::ptr_eq(&aside.owned, &tokens.owned) {
            self.copy_points(aside, ids)?;
            // A document may have been copied before its points.
            let (documents, tokens) = (build.collection.writer.borrow(), tokens.writer.borrow());
            for id in ids {
                let (is_there, version) = tokens.points().known_version(*id);
                let slot = documents.points().slot(document_of(*id, version)).filter(|_| is_there);
                if let Some(slot) = slot {
                    tokens.points().set_parent([*id], slot);
                }
            }
            return Ok(());
        }
        for id in ids {
            let (tokens_before, numbers) = {
                let documents = aside.writer.borrow();
                (index.tokens_of(&documents, *id) as u64, index.numbers_of(&documents, *id))
            };
            self.copy_points(aside, &[*id])?;
            if build.loaded.borrow_mut().remove(id) {
                build.replaced.borrow_mut().extend(numbers.into_iter().map(|number| (*id, number)));
            }
            let (documents, points) = (aside.writer.borrow(), tokens.writer.borrow());
            let tokens_after = index.tokens_of(&documents, *id) as u64;
            build.tokens.set(build.tokens.get() + tokens_after - tokens_before);
            index.follow_in((&documents, &points), *id);
        }
        Ok(())
    }

    fn copy_points(&self, aside: &Aside, ids: &[u64]) -> Result<(), OpError> {
        let serving = aside.owned.writer.borrow();
        let mut aside = aside.writer.borrow_mut();
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

/// Loads a point, for which there is room, with the version that follows.
fn load_point(aside: &Aside, id: u64, parts: Parts<'_>, row: &[u8]) -> Result<(), OpError> {
    let mut writer = aside.writer.borrow_mut();
    writer.commit_next()?;
    let (seq, version) = (aside.seq, writer.points().next_version(id));
    writer.load(Write { seq, id, version, parts, row, deadline_ms: 0 });
    Ok(())
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
