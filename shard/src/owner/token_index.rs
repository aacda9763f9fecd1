//! The index of a multi-vector collection, of tokens or of encodings.
//!
//! A document is a point whose row holds its token vectors. The index is a separate dense collection with the same owner, and it has a log, images
//! and tasks like any other collection. A point of the index is either a token or the encoding of all tokens of a document ([`Indexing`]). The row of
//! the document holds the number of the point of each token, and the id and the version of a point encode the document. The index is only a hint for
//! searches, which score documents by their rows alone. So it may hold points that no document has, but it must not lack any: a write adds the new
//! points before it changes the document, and removes the old ones afterwards. A crash between two records leaves points that belong to no document,
//! and the next start removes them.
//!
//! In memory each point also has the slot of its document, so that a search with a filter can tell quickly which points are worth a look. A point
//! without one is found as if there were no filter, and its document is asked later.

use super::effect::{self, Effect};
use super::{Collections, Owned};
use crate::catalog::CollectionHandle;
use crate::env::Env;
use crate::error::OpError;
use crate::journal::{Journal, Purpose, Ticket};
use crate::payload_change::{check_row, check_same_id, finish_row};
use crate::points::{NamedVectors, PointFields};
use crate::slice::{Slice, WRITE_SLICE_NS};
use nigh_engine::collection::{DenseWriter, Parts, TOKENS_MAX, WriteError, WriteMode};
use nigh_engine::distance::{Metric, prepare};
use nigh_engine::payload::{PayloadRow, Rotation, RowBuilder, TokenCode, TokenCodes};
use nigh_engine::query::{Indexing, token_of};
use std::borrow::Cow;
use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::sync::Arc;

/// The index of one collection.
pub struct TokenIndex {
    owned: Rc<Owned>,
    /// The collection; it knows whether the points of the index are tokens or encodings.
    documents: Arc<CollectionHandle>,
    numbers: RefCell<Numbers>,
    /// How rows store tokens.
    code: TokenCode,
    /// The number of tokens of all documents of this core.
    tokens: Cell<u64>,
}

/// Numbers that no point has.
#[derive(Default)]
struct Numbers {
    /// Every number from `next` on is free, and so are the numbers in `free`.
    next: u32,
    free: Vec<u32>,
}

impl Numbers {
    fn take(&mut self, count: usize) -> Vec<u32> {
        let mut taken = self.free.split_off(self.free.len().saturating_sub(count));
        let fresh = (count - taken.len()) as u32;
        taken.extend(self.next..self.next + fresh);
        self.next += fresh;
        taken
    }

    fn give(&mut self, numbers: &[u32]) {
        self.free.extend_from_slice(numbers);
        if self.free.len() == self.next as usize {
            // All numbers are free: the list, which may have grown long, is dropped.
            *self = Numbers::default();
        }
    }
}

impl TokenIndex {
    /// The dense collection that is the index.
    pub(super) fn owned(&self) -> &Rc<Owned> {
        &self.owned
    }

    /// Whether its points are tokens or encodings.
    pub(super) fn indexing(&self) -> &Indexing {
        &self.documents.indexing
    }

    /// Stores the current slot of a document in its points. It costs one look-up for each point.
    pub(super) fn follow(&self, documents: &DenseWriter, id: u64) {
        self.follow_in((documents, &self.owned.writer.borrow()), id);
    }

    /// As [`Self::follow`], for a writer of documents and one of their points.
    pub(super) fn follow_in(&self, (documents, points): (&DenseWriter, &DenseWriter), id: u64) {
        if let Some(slot) = documents.points().slot(id) {
            let numbers = self.indexing().numbers_of(row_of(documents, id).tokens());
            points.points().set_parent(numbers.map(|number| token_of(id, number).0), slot);
        }
    }

    /// Takes numbers that no point has.
    pub(super) fn take(&self, count: usize) -> Vec<u32> {
        self.numbers.borrow_mut().take(count)
    }

    /// Gives numbers back that no point has.
    pub(super) fn give(&self, numbers: &[u32]) {
        self.numbers.borrow_mut().give(numbers);
    }

    /// The number of tokens of a document; 0 if it does not exist.
    pub(super) fn tokens_of(&self, documents: &DenseWriter, id: u64) -> usize {
        row_of(documents, id).tokens().len()
    }

    /// Counts the tokens of a document that has `after` tokens instead of `before`.
    pub(super) fn count(&self, before: usize, after: usize) {
        self.tokens.set((self.tokens.get() + after as u64).saturating_sub(before as u64));
    }

    /// All documents together have so many tokens now.
    pub(super) fn set_count(&self, tokens: u64) {
        self.tokens.set(tokens);
    }

    /// The numbers of the points of a document.
    pub(super) fn numbers_of(&self, documents: &DenseWriter, id: u64) -> Vec<u32> {
        self.indexing().numbers_of(row_of(documents, id).tokens()).collect()
    }

    /// The number of bytes that these tokens take in a row.
    pub(super) fn row_bytes(&self, tokens: &[Vec<f32>]) -> usize {
        /// Fields and alignment of codes.
        const CODES: usize = 64;
        tokens.iter().map(|token| size_of::<u32>() + self.code.bytes(token.len())).sum::<usize>() + CODES
    }

    /// The number of bytes of the log records that add the points of a document with so many tokens.
    pub(super) fn record_bytes(&self, tokens: usize) -> usize {
        self.indexing().points(tokens) * effect::write_bytes(self.dim(), &[])
    }

    /// Components of the vector of a point.
    fn dim(&self) -> usize {
        self.owned.writer.borrow().shared().config().dim
    }

    /// The vectors of the points of a document, one after the other. Encoding its tokens is done in slices, between which other tasks run.
    pub(super) async fn vectors<'t>(&self, env: &Rc<dyn Env>, tokens: &'t [f32]) -> Cow<'t, [f32]> {
        let Some(mut encoding) = self.indexing().begin(tokens) else { return Cow::Borrowed(tokens) };
        let mut slice_start = env.now_ns();
        while encoding.advance() > 0 {
            if env.now_ns() - slice_start > WRITE_SLICE_NS {
                env.yield_now().await;
                slice_start = env.now_ns();
            }
        }
        Cow::Owned(encoding.finish())
    }
}

/// The row of a document that is present, expired or not; an empty one if there is none.
fn row_of(documents: &DenseWriter, id: u64) -> PayloadRow<'_> {
    match documents.points().check_rewrite(id, None, 0) {
        Ok(Some((row, _))) => PayloadRow::trusted(row),
        _ => PayloadRow::trusted(&[]),
    }
}

/// Checks the tokens and returns them as they are stored, one after the other: each has length 1, unless it is zero.
fn prepared(tokens: &[Vec<f32>], dim: usize) -> Result<Vec<f32>, OpError> {
    let refuse = |text: String| Err(OpError::BadRequest(text));
    if tokens.is_empty() {
        return refuse("a document needs at least one token vector".to_owned());
    }
    if tokens.len() > TOKENS_MAX {
        let found = tokens.len();
        return refuse(format!("a document may have at most {TOKENS_MAX} token vectors, found {found}"));
    }
    let mut stored = vec![0.0; tokens.len() * dim];
    for ((index, token), row) in tokens.iter().enumerate().zip(stored.chunks_exact_mut(dim)) {
        if token.len() != dim {
            let found = token.len();
            return refuse(format!(
                "dimension mismatch in tokens[{index}]: expected {dim} components, found {found}"
            ));
        }
        if let Some(at) = token.iter().position(|component| !component.is_finite()) {
            return refuse(format!("tokens[{index}]: component {at} is not a finite number"));
        }
        prepare(Metric::Cosine, token, row);
    }
    Ok(stored)
}

/// The row of a document as it is written: its payload, its sparse vector if one is sent, and its tokens, whose points have these numbers.
///
/// # Errors
/// A row that is too large; a vector that does not ascend.
fn finished_document(
    point: &PointFields,
    vectors: &NamedVectors,
    numbers: Vec<u32>,
    (codes, tokens): (Option<TokenCodes>, &[f32]),
) -> Result<Vec<u8>, OpError> {
    let mut row = RowBuilder::from(PayloadRow::trusted(&point.row));
    for (space, vector) in &vectors.sparse {
        row.set_sparse_of(*space, vector.clone()).map_err(|error| OpError::Search(error.into()))?;
    }
    match codes {
        Some(codes) => row.set_token_codes(numbers, codes),
        None => row.set_tokens(numbers, tokens.to_vec()),
    }
    finish_row(row)
}

impl Collections {
    /// Connects a multi-vector collection of this core with its index.
    pub(crate) fn join_tokens(&self, uid: u64) {
        let (owned, tokens) = (self.owned(uid), self.owned(crate::family::tokens_of(uid)));
        if let (Some(owned), Some(tokens)) = (owned, tokens) {
            let documents = owned.handle.clone();
            let config =
                documents.config(&self.ctx().pin()).multi_vector().map(|config| config.tokens.token_code);
            let code = config.unwrap_or_default();
            let index = TokenIndex {
                owned: tokens,
                documents,
                numbers: RefCell::default(),
                code,
                tokens: Cell::new(0),
            };
            assert!(owned.token_index.set(index).is_ok(), "a collection has one index");
        }
    }

    /// Writes a document. Its points are added to the index and removed from it in slices, between which other tasks run; the document itself is
    /// checked and committed without an await in between. Two writes of one document may overlap: each has points of its own, and the write that
    /// commits last removes the points of the other.
    pub(super) async fn write_document(
        &self,
        owned: &Owned,
        index: &TokenIndex,
        (point, vectors): (&PointFields, &NamedVectors),
        record: &mut Vec<u8>,
    ) -> Result<(u64, Option<Ticket>), OpError> {
        index.owned.usable()?;
        let tokens = prepared(&vectors.tokens, index.indexing().token_dim(index.dim()))?;
        check_row(&point.row, &owned.handle)?;
        // A write that must fail is refused before any points are added.
        self.check_document(owned, point, owned.has_rate(self.env()))?;
        let count = vectors.tokens.len();
        let points = index.indexing().points(count);
        self.check_bytes(owned, index, point.id, count)?;
        let (codes, tokens) = self.stored_tokens(index, tokens).await;
        let numbers = index.take(points);
        let in_row = index.indexing().numbers_in_row(&numbers, count);
        let row = finished_document(point, vectors, in_row, (codes, &tokens))
            .inspect_err(|_| index.give(&numbers))?;
        let points = index.vectors(self.env(), &tokens).await;
        self.add_tokens(index, point.id, &numbers, &points, record).await?;
        match self.commit_document(owned, index, point, &row, record) {
            Ok((version, ticket, before)) => {
                self.remove_tokens(index, point.id, before, record).await;
                Ok((version, ticket))
            }
            Err(error) => {
                self.remove_tokens(index, point.id, numbers, record).await;
                Err(error)
            }
        }
    }

    /// The row of a document as it is staged, with its vectors: each token has the number 0.
    pub(super) async fn document_row(
        &self,
        index: &TokenIndex,
        point: &PointFields,
        vectors: NamedVectors,
    ) -> Result<Vec<u8>, OpError> {
        let tokens = prepared(&vectors.tokens, index.indexing().token_dim(index.dim()))?;
        let numbers = vec![0; vectors.tokens.len()];
        let (codes, tokens) = self.stored_tokens(index, tokens).await;
        finished_document(point, &vectors, numbers, (codes, &tokens))
    }

    /// The tokens of a document as its row stores them: their codes, unless they are floats, and the components that are read from these. The
    /// index has the same, so that it can be made anew from rows. This is done in slices of
    /// whole tokens, between which other tasks run.
    async fn stored_tokens(&self, index: &TokenIndex, tokens: Vec<f32>) -> (Option<TokenCodes>, Vec<f32>) {
        let code = index.code;
        if code == TokenCode::Float {
            return (None, tokens);
        }
        let dim = index.indexing().token_dim(index.dim());
        let (rotation, mut codes) = (Rotation::of(dim), TokenCodes::new(code, dim));
        let mut decoded = Vec::with_capacity(tokens.len());
        let (env, mut slice_start) = (self.env().clone(), self.env().now_ns());
        for (at, token) in tokens.chunks_exact(dim).enumerate() {
            codes.push(token, &rotation);
            decoded.extend(codes.decoded(at, &rotation));
            if env.now_ns() - slice_start > WRITE_SLICE_NS {
                env.yield_now().await;
                slice_start = env.now_ns();
            }
        }
        (Some(codes), decoded)
    }

    /// The version that a document gets if it is written now.
    fn check_document(
        &self,
        owned: &Owned,
        point: &PointFields,
        has_rate: impl FnOnce() -> bool,
    ) -> Result<u64, OpError> {
        owned.usable()?;
        let documents = owned.writer.borrow();
        let (parts, now_ms) = (Parts::Each(&[]), self.env().unix_ms());
        check_same_id(&documents, point.id, &point.row, now_ms)?;
        Ok(documents.check_write(
            point.id,
            parts,
            WriteMode::Upsert,
            point.expected_version,
            has_rate,
            now_ms,
        )?)
    }

    /// Checks the quota of bytes for a document with `tokens` tokens. A document that does not grow is replaced even if the collection exceeds
    /// the quota.
    fn check_bytes(&self, owned: &Owned, index: &TokenIndex, id: u64, tokens: usize) -> Result<(), OpError> {
        let config = owned.handle.config(&self.ctx().pin()).clone();
        let Some(config) = config.multi_vector().filter(|config| config.whole.max_bytes > 0) else {
            return Ok(());
        };
        let documents = owned.writer.borrow();
        let (is_new, before) = (documents.points().slot(id).is_none(), index.tokens_of(&documents, id));
        let live = documents.shared().stats().live + u64::from(is_new);
        let all = (index.tokens.get() + tokens as u64).saturating_sub(before as u64);
        match (is_new || tokens > before) && config.quota_bytes(live, all) > config.whole.max_bytes {
            true => Err(WriteError::Full.into()),
            false => Ok(()),
        }
    }

    /// Commits a document whose points are in the index; returns its version and the numbers of its previous points.
    fn commit_document(
        &self,
        owned: &Owned,
        index: &TokenIndex,
        point: &PointFields,
        row: &[u8],
        record: &mut Vec<u8>,
    ) -> Result<(u64, Option<Ticket>, Vec<u32>), OpError> {
        index.owned.usable()?;
        // The first check has counted this write against the rate.
        let version = self.check_document(owned, point, || true)?;
        // Other documents may have been written since the first check.
        let tokens = PayloadRow::trusted(row).tokens().len();
        self.check_bytes(owned, index, point.id, tokens)?;
        let mut documents = owned.writer.borrow_mut();
        self.room_for(&documents, row.len())?;
        let (before, tokens_before) =
            (index.numbers_of(&documents, point.id), index.tokens_of(&documents, point.id));
        let document = Effect::WriteNamed { id: point.id, version, deadline_ms: 0, parts: Vec::new(), row };
        let ticket = self.commit(owned, &mut documents, &document, Purpose::Grow, record)?;
        index.count(tokens_before, tokens);
        Ok((version, ticket, before))
    }

    /// Adds the points of a document to the index. After an error the points added so far are removed, as far as the log allows, and numbers that
    /// have not been used are given back.
    async fn add_tokens(
        &self,
        index: &TokenIndex,
        document: u64,
        numbers: &[u32],
        vectors: &[f32],
        record: &mut Vec<u8>,
    ) -> Result<(), OpError> {
        let dim = vectors.len() / numbers.len().max(1);
        let (env, mut slice_start) = (self.env().clone(), self.env().now_ns());
        for (added, (number, vector)) in numbers.iter().zip(vectors.chunks_exact(dim.max(1))).enumerate() {
            let outcome = self.add_token(index, document, *number, vector, record);
            if let Err(error) = outcome {
                let (added, rest) = numbers.split_at(added);
                index.give(rest);
                self.remove_tokens(index, document, added.to_vec(), record).await;
                return Err(error);
            }
            if env.now_ns() - slice_start > WRITE_SLICE_NS {
                index.owned.changed.notify();
                env.yield_now().await;
                slice_start = env.now_ns();
            }
        }
        Ok(())
    }

    /// Adds one point to the index.
    fn add_token(
        &self,
        index: &TokenIndex,
        document: u64,
        number: u32,
        token: &[f32],
        record: &mut Vec<u8>,
    ) -> Result<(), OpError> {
        index.owned.usable()?;
        let mut writer = index.owned.writer.borrow_mut();
        self.room_for(&writer, 0)?;
        self.put_token(index, &mut writer, document, number, token, record)?;
        let pages_due = writer.pages_due().map(|slots| (writer.shared().clone(), slots));
        drop(writer);
        if let Some((dense, slots)) = pages_due {
            self.env().spawn_compute(Box::new(move || dense.populate(slots)));
        }
        Ok(())
    }

    fn put_token(
        &self,
        index: &TokenIndex,
        writer: &mut DenseWriter,
        document: u64,
        number: u32,
        token: &[f32],
        record: &mut Vec<u8>,
    ) -> Result<(), OpError> {
        let ((id, version), now_ms) = (token_of(document, number), self.env().unix_ms());
        writer.check_write(id, Parts::Only(token), WriteMode::Upsert, None, || true, now_ms)?;
        let effect = Effect::Write { id, version, deadline_ms: 0, vector: Cow::Borrowed(token), row: &[] };
        self.commit(&index.owned, writer, &effect, Purpose::Grow, record).map(drop)
    }

    /// Removes points of a document from the index, in slices. A point whose deletion the log refuses stays in the index until the next start, and
    /// its number is not used again until then.
    pub(super) async fn remove_tokens(
        &self,
        index: &TokenIndex,
        document: u64,
        numbers: Vec<u32>,
        record: &mut Vec<u8>,
    ) {
        let (env, mut slice_start) = (self.env().clone(), self.env().now_ns());
        for number in numbers {
            if index.owned.usable().is_err() {
                // The index has been dropped, or is damaged.
                break;
            }
            let effect = Effect::Delete { id: token_of(document, number).0 };
            let removed = {
                let mut writer = index.owned.writer.borrow_mut();
                self.commit(&index.owned, &mut writer, &effect, Purpose::Free, record)
            };
            if removed.is_ok() {
                index.give(&[number]);
            }
            if env.now_ns() - slice_start > WRITE_SLICE_NS {
                env.yield_now().await;
                slice_start = env.now_ns();
            }
        }
        index.owned.changed.notify();
    }

    /// Reconciles the index with the rows after a start: points that belong to no document are removed, points that the index lacks are added, and
    /// the numbers that no point has become free. If a point that is missing cannot be added, the index is marked as damaged; a point that cannot be
    /// removed remains until the next start.
    pub(crate) async fn reconcile_tokens(self: &Rc<Self>, uid: u64) {
        let Some(owned) = self.owned(uid) else { return };
        let Some(index) = owned.token_index.get() else { return };
        if owned.handle.healthy().is_err() {
            return;
        }
        let mut slice = Slice::begin(self.env());
        index.tokens.set(0);
        let (mut record, mut named, mut from) = (Vec::new(), Marks::default(), 0);
        let (mut added, mut removed, mut stays) = (0_u64, 0_u64, 0_u64);
        loop {
            let ids: Vec<u64> = owned.writer.borrow().points().ids_from(from).take(STEP).collect();
            for id in &ids {
                let (lacking, tokens) = {
                    let (documents, points) = (owned.writer.borrow(), index.owned.writer.borrow());
                    let stored = row_of(&documents, *id).tokens();
                    index.count(0, stored.len());
                    let mut lacking = Vec::new();
                    for (place, number) in index.indexing().numbers_of(stored).enumerate() {
                        let (point, version) = token_of(*id, number);
                        named.insert(point);
                        // With another version the point belongs to another document.
                        if points.points().known_version(point) != (true, version) {
                            lacking.push((place, number));
                        }
                    }
                    let tokens: Vec<f32> = match lacking.is_empty() {
                        true => Vec::new(),
                        false => stored.decoded(),
                    };
                    (lacking, tokens)
                };
                let vectors = match lacking.is_empty() {
                    true => Cow::Borrowed(&[][..]),
                    false => index.vectors(self.env(), &tokens).await,
                };
                let dim = index.dim();
                for (place, number) in lacking {
                    let vector = &vectors[place * dim..][..dim];
                    if let Err(error) = self.add_lacking(index, *id, number, vector, &mut record).await {
                        let why = format!(
                            "the index lacks a point of document {id}, and it could not be added: {error}"
                        );
                        tracing::error!(target: "nigh", collection = owned.handle.name, reason = why, "damaged index of a multi-vector collection");
                        let _first_reason_counts = index.owned.handle.damage.set(why);
                        return;
                    }
                    added += 1;
                }
                index.follow(&owned.writer.borrow(), *id);
                slice.check().await;
            }
            let Some(last) = ids.last().filter(|id| **id < u64::MAX) else { break };
            from = last + 1;
        }
        let mut from = 0;
        loop {
            let ids: Vec<u64> = index.owned.writer.borrow().points().ids_from(from).take(STEP).collect();
            let strays: Vec<u64> = ids.iter().copied().filter(|id| !named.contains(*id)).collect();
            for id in strays {
                let room = match stays {
                    0 => self.ctx().wait_for_room(Purpose::Free, effect::DELETE_BYTES).await,
                    // There was no room a moment ago, and each further token would wait as long.
                    _ => Err(OpError::NoSpace("the log is full".to_owned())),
                };
                let mut writer = index.owned.writer.borrow_mut();
                let outcome = room.and_then(|()| {
                    self.commit(&index.owned, &mut writer, &Effect::Delete { id }, Purpose::Free, &mut record)
                });
                match outcome {
                    Ok(_) => removed += 1,
                    Err(_) => {
                        named.insert(id);
                        stays += 1;
                    }
                }
            }
            slice.check().await;
            let Some(last) = ids.last() else { break };
            from = last + 1;
        }
        let numbers = named.rest();
        *index.numbers.borrow_mut() = numbers;
        if added + removed + stays > 0 {
            tracing::info!(
                collection = owned.handle.name,
                added,
                removed,
                stays,
                "the index was reconciled with the documents"
            );
            index.owned.changed.notify();
        }
    }

    /// Adds a point that the index lacks.
    async fn add_lacking(
        &self,
        index: &TokenIndex,
        document: u64,
        number: u32,
        token: &[f32],
        record: &mut Vec<u8>,
    ) -> Result<(), OpError> {
        let bytes = effect::write_bytes(token.len(), &[]);
        self.ctx().wait_for_room(Purpose::Grow, bytes).await?;
        let mut writer = index.owned.writer.borrow_mut();
        self.put_token(index, &mut writer, document, number, token, record)
    }
}

/// The number of ids that are examined together.
const STEP: usize = 256;

/// A set of ids of points. Each number has two bits, one for each of the two ids that contain it.
#[derive(Default)]
struct Marks(Vec<u64>);

impl Marks {
    /// The word and the bit of an id.
    fn place(id: u64) -> (usize, u64) {
        let bit = u64::from(id as u32) << 1 | id >> u32::BITS & 1;
        ((bit / 64) as usize, bit % 64)
    }

    fn insert(&mut self, id: u64) {
        let (word, bit) = Marks::place(id);
        if word >= self.0.len() {
            self.0.resize(word + 1, 0);
        }
        self.0[word] |= 1 << bit;
    }

    fn contains(&self, id: u64) -> bool {
        let (word, bit) = Marks::place(id);
        self.0.get(word).is_some_and(|word| word >> bit & 1 == 1)
    }

    /// The numbers for which the set contains no id.
    fn rest(&self) -> Numbers {
        let next = 32 * self.0.len() as u32;
        let is_free = |number: &u32| self.0[*number as usize / 32] >> (2 * (number % 32)) & 3 == 0;
        Numbers { next, free: (0..next).filter(is_free).collect() }
    }
}

#[cfg(test)]
impl Collections {
    /// Checks that the index of a collection of this core holds the points of its documents and no others.
    pub(crate) fn check_tokens(&self, uid: u64) {
        let Some(owned) = self.owned(uid) else { return };
        let index = owned.token_index.get().expect("an index of tokens");
        let (documents, tokens) = (owned.writer.borrow(), index.owned.writer.borrow());
        let mut found: Vec<(u64, u64)> = Vec::new();
        for id in documents.points().ids_from(0) {
            let numbers = index.numbers_of(&documents, id);
            assert!(!numbers.is_empty(), "document {id} has tokens");
            if let Indexing::Encodings(_) = index.indexing() {
                assert_eq!(numbers.len(), 1, "document {id} has one encoding");
                let stored = row_of(&documents, id).tokens().decoded();
                let mut encoding = index.indexing().begin(&stored).expect("documents are encoded");
                while encoding.advance() > 0 {}
                let (pin, dense) = (self.ctx().pin(), tokens.shared());
                let point = tokens.points().slot(token_of(id, numbers[0]).0).expect("it is in the index");
                let found = dense.vector(&pin, point, 0).expect("a point has a vector");
                assert_eq!(*found, encoding.finish(), "the encoding of document {id}");
            }
            let slot = documents.points().slot(id);
            for (token, version) in numbers.into_iter().map(|number| token_of(id, number)) {
                assert_eq!(tokens.points().parent(token), slot, "a token of document {id} knows it");
                found.push((token, version));
            }
        }
        found.sort_unstable();
        let version = |id| tokens.points().known_version(id).1;
        let stored: Vec<(u64, u64)> = tokens.points().ids_from(0).map(|id| (id, version(id))).collect();
        assert_eq!(found, stored, "the tokens of the documents are in the index");
        let free = &index.numbers.borrow().free;
        assert!(
            free.iter().all(|number| found.binary_search_by_key(&u64::from(*number), |pair| pair.0).is_err())
        );
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_given_once() {
        let mut numbers = Numbers::default();
        assert_eq!(numbers.take(3), [0, 1, 2]);
        numbers.give(&[1, 0]);
        assert_eq!((numbers.take(1), numbers.take(2), numbers.take(0)), (vec![0], vec![1, 3], vec![]));
        let mut marks = Marks::default();
        assert!(!marks.contains(0));
        let (even, odd) = (token_of(4, 33).0, token_of(5, 33).0);
        marks.insert(odd);
        assert!(marks.contains(odd) && !marks.contains(even) && !marks.contains(1 << 20));
        let rest = marks.rest();
        assert_eq!((rest.next, rest.free.len(), rest.free.contains(&33)), (64, 63, false));
        numbers.give(&[0, 1, 2, 3]);
        assert_eq!((numbers.next, numbers.free.len()), (0, 0));
    }

    #[test]
    fn tokens_are_checked_and_brought_to_length_1() {
        assert_eq!(prepared(&[vec![3.0, 4.0], vec![0.0, 0.0]], 2).unwrap(), [0.6, 0.8, 0.0, 0.0]);
        for (tokens, fragment) in [
            (vec![], "at least one token"),
            (vec![vec![1.0, 0.0], vec![1.0]], "tokens[1]: expected 2 components, found 1"),
            (vec![vec![f32::NAN, 0.0]], "tokens[0]: component 0 is not a finite number"),
            (vec![vec![0.0, 1.0]; TOKENS_MAX + 1], "at most 4096 token vectors, found 4097"),
        ] {
            let refused = prepared(&tokens, 2).unwrap_err().to_string();
            assert!(refused.contains(fragment), "{refused}");
        }
    }
}
