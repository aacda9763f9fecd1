//! What there is: collections with their figures, and counts, facets and samples of points, by a walk over all that match.

use super::Core;
use super::walk::sort_in_slices;
use crate::catalog::{CollectionHandle, full_name};
use crate::env::call;
use crate::error::OpError;
use crate::family::CollectionConfig;
use crate::slice::Slice;
use ahash::HashMap;
use nigh_engine::collection::{CellsInfo, DenseConfig, Point, Stats, Usage};
use nigh_engine::filter::Predicate;
use nigh_engine::memory::Pin;
use nigh_engine::payload::{PayloadRow, ValueRef};
use nigh_engine::quoted::quoted;
use nigh_engine::random::hash;
use std::collections::BTreeSet;
use std::rc::Rc;
use std::sync::Arc;

/// Most distinct values that a facet counts, and most bytes of their texts: what one request may hold in memory.
pub const FACET_VALUES_MAX: usize = 100_000;
const FACET_TEXT_MAX_BYTES: usize = 64 << 20;

/// A collection as it is now.
#[derive(Clone, Debug)]
pub struct CollectionInfo {
    /// `<tenant>/<name>`.
    pub name: String,
    /// Its configuration.
    pub config: Arc<CollectionConfig>,
    /// Counters and gauges.
    pub stats: Stats,
    /// Memory by part.
    pub usage: Usage,
    /// Vectors in the index of a multi-vector collection: token vectors, or one for each document where encodings find documents.
    pub tokens: u64,
    /// Of the vectors in a file, bytes that are in memory now; looked at for one collection only, not for a list of them.
    pub resident_vectors: u64,
    /// What walks go over by now: `float`, `int8`, or the codes of a quantizer.
    pub walks: &'static str,
    /// Where the index is one of cells.
    pub cells: Option<CellsInfo>,
    /// The same of each dense space in the order of the configuration; of a multi-vector collection that of the index of its tokens.
    pub spaces: Vec<SpaceInfo>,
    /// Why it answers nothing, if so.
    pub damage: Option<String>,
    /// Whether it serves nothing because it did not fit into memory; its files are intact then.
    pub is_closed: bool,
    /// Whether it serves nothing yet because it is being opened. Its figures are not known then.
    pub is_opening: bool,
}

/// A dense space as it is now.
#[derive(Clone, Copy, Debug)]
pub struct SpaceInfo {
    /// What walks go over by now, see [`CollectionInfo::walks`].
    pub walks: &'static str,
    /// Where its index is one of cells.
    pub cells: Option<CellsInfo>,
}

/// A value that points have in common. Orders by kind, then by value.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum FacetValue {
    /// Boolean.
    Bool(bool),
    /// Integer.
    Int(i64),
    /// Float.
    Float(OrderedFloat),
    /// Text.
    String(String),
}

/// A float that is not NaN; both zeros are one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct OrderedFloat(i64);

impl OrderedFloat {
    fn new(number: f64) -> Option<OrderedFloat> {
        // The bits of negative floats order the other way round.
        let bits = (number + 0.0).to_bits() as i64;
        (!number.is_nan()).then_some(OrderedFloat(bits ^ ((bits >> 63) as u64 >> 1) as i64))
    }

    /// The number.
    pub fn get(self) -> f64 {
        f64::from_bits((self.0 ^ ((self.0 >> 63) as u64 >> 1) as i64) as u64)
    }
}

/// The values a payload value counts for: itself, or each element of an array once.
fn facet_values(value: ValueRef<'_>) -> Vec<FacetValue> {
    let mut values: Vec<FacetValue> = match value {
        ValueRef::Bool(flag) => vec![FacetValue::Bool(flag)],
        ValueRef::Int(number) => vec![FacetValue::Int(number)],
        ValueRef::Float(number) => OrderedFloat::new(number).map(FacetValue::Float).into_iter().collect(),
        ValueRef::String(text) => vec![FacetValue::String(text.to_owned())],
        ValueRef::Ints(array) => array.iter().map(FacetValue::Int).collect(),
        ValueRef::Floats(array) => {
            array.iter().filter_map(OrderedFloat::new).map(FacetValue::Float).collect()
        }
        ValueRef::Strings(array) => array.iter().map(|text| FacetValue::String(text.to_owned())).collect(),
        ValueRef::Json(json) => {
            let flags = [false, true].into_iter().filter(|flag| json.marks().has(*flag));
            let arrays = [
                ValueRef::Ints(json.ints()),
                ValueRef::Floats(json.floats()),
                ValueRef::Strings(json.strings()),
            ];
            flags.map(FacetValue::Bool).chain(arrays.into_iter().flat_map(facet_values)).collect()
        }
        ValueRef::None | ValueRef::Geo { .. } | ValueRef::Record(_) => Vec::new(),
    };
    values.sort_unstable();
    values.dedup();
    values
}

/// Counts of values, as far as there is room.
#[derive(Default)]
struct Facet {
    counts: HashMap<FacetValue, u64>,
    text_bytes: usize,
    overflow: bool,
}

impl Facet {
    fn add(&mut self, value: FacetValue) {
        if let Some(count) = self.counts.get_mut(&value) {
            *count += 1;
        } else if self.counts.len() >= FACET_VALUES_MAX || self.text_bytes > FACET_TEXT_MAX_BYTES {
            self.overflow = true;
        } else {
            self.text_bytes += if let FacetValue::String(text) = &value { text.len() } else { 0 };
            self.counts.insert(value, 1);
        }
    }

    /// The most frequent, ties by value.
    async fn finish(self, limit: usize, slice: &mut Slice) -> Vec<(FacetValue, u64)> {
        let counts: Vec<(FacetValue, u64)> = self.counts.into_iter().collect();
        slice.check().await;
        let mut counts =
            sort_in_slices(counts, slice, |a, b| b.1.cmp(&a.1).then_with(|| a.0.cmp(&b.0))).await;
        counts.truncate(limit);
        counts
    }
}

/// A number that decides whether an id is in the sample of `seed`.
fn lot(seed: u64, id: u64) -> u64 {
    hash(hash(hash(seed) ^ id))
}

impl CollectionInfo {
    /// The configuration of a dense collection.
    ///
    /// # Errors
    /// [`OpError::UnknownCollection`] for one of another family.
    pub fn dense_config(&self) -> Result<&DenseConfig, OpError> {
        self.config.dense().ok_or_else(|| OpError::UnknownCollection(self.name.clone()))
    }
}

fn info(handle: &CollectionHandle, pin: &Pin<'_>) -> CollectionInfo {
    let dense = handle.dense(pin);
    let (mut stats, mut usage) = (dense.stats(), dense.usage());
    let mut spaces = dense.spaces();
    let mut tokens = 0;
    if let Some(index) = handle.tokens.get() {
        let index = index.dense(pin);
        spaces = index.spaces();
        stats.add_index(&index.stats());
        usage.add_index(&index.usage());
        tokens = index.stats().live;
    }
    let spaces: Vec<SpaceInfo> = spaces
        .iter()
        .map(|space| SpaceInfo { walks: space.walks_over(), cells: space.cells_info() })
        .collect();
    let (first, failure) = (spaces.first().copied(), handle.failure());
    CollectionInfo {
        name: handle.name.clone(),
        config: handle.config(pin).clone(),
        stats,
        usage,
        tokens,
        resident_vectors: 0,
        walks: first.map_or("float", |space| space.walks),
        cells: first.and_then(|space| space.cells),
        spaces,
        is_closed: failure.as_ref().is_some_and(|(_, is_closed)| *is_closed),
        damage: failure.map(|(why, _)| why),
        is_opening: false,
    }
}

/// What is known of a collection that is being opened or is cold.
fn info_of_absent(name: &str, config: &Arc<CollectionConfig>, points: u64) -> CollectionInfo {
    CollectionInfo {
        name: name.to_owned(),
        config: config.clone(),
        stats: Stats { live: points, ..Stats::default() },
        usage: Usage::default(),
        tokens: 0,
        resident_vectors: 0,
        walks: "float",
        cells: None,
        spaces: Vec::new(),
        damage: None,
        is_closed: false,
        is_opening: false,
    }
}

impl Core {
    /// Every collection, by name; also those that are being opened, which come without figures, and those that are cold, with the number of points
    /// that they had. Reads shared counters, sends no message.
    ///
    /// # Errors
    /// [`OpError::Opening`] until their names are known.
    pub fn collections(&self) -> Result<Vec<CollectionInfo>, OpError> {
        self.knows_collections()?;
        let pin = self.pin();
        let catalog = self.node().catalog.load(&pin);
        let open = catalog.by_name.values().map(|handle| info(handle, &pin));
        let opening = catalog.opening.values().map(|opening| CollectionInfo {
            is_opening: true,
            ..info_of_absent(&opening.name, &opening.config, 0)
        });
        let cold = catalog
            .cold
            .values()
            .map(|cold| info_of_absent(&cold.name, &cold.config, cold.stub.points.unwrap_or(0)));
        let mut all: Vec<CollectionInfo> = open.chain(opening).chain(cold).collect();
        all.sort_by(|a, b| a.name.cmp(&b.name));
        Ok(all)
    }

    /// One collection, a damaged one too.
    ///
    /// # Errors
    /// Unknown collection.
    pub fn collection_info(&self, name: &str) -> Result<CollectionInfo, OpError> {
        let (handle, pin) = (self.ctx.handle(name)?, self.pin());
        let spaces = match handle.tokens.get() {
            Some(tokens) => tokens.dense(&pin).spaces().iter(),
            None => handle.dense(&pin).spaces().iter(),
        };
        let resident_vectors = spaces.map(|space| space.resident_vector_bytes()).sum();
        Ok(CollectionInfo { resident_vectors, ..info(&handle, &pin) })
    }

    /// Whether there is a collection of that name, cold or damaged as it may be. An alias is none.
    ///
    /// # Errors
    /// [`OpError::UnknownCollection`]; [`OpError::Opening`] while it is not known yet.
    pub fn expect_collection(&self, name: &str) -> Result<(), OpError> {
        let full = full_name(name).ok_or_else(|| OpError::UnknownCollection(name.to_owned()))?;
        let pin = self.pin();
        let catalog = self.node().catalog.load(&pin);
        match catalog.by_name.contains_key(&full) || catalog.cold.contains_key(&full) {
            true => Ok(()),
            false => Err(catalog.lacks(&full, name)),
        }
    }

    /// How many points match. Walks all of them, see `each_match`.
    ///
    /// # Errors
    /// Unknown or damaged collection.
    pub async fn count(self: &Rc<Self>, name: &str, filter: Option<Arc<Predicate>>) -> Result<u64, OpError> {
        self.walked(name, filter, 0, |count: &mut u64, _, _| *count += 1).await
    }

    /// How many matching points have each value of a payload key, the most frequent `limit` first, ties by value. Arrays count for
    /// each of their elements; null, geo and NaN for nothing.
    ///
    /// # Errors
    /// Unknown or damaged collection; more values than [`FACET_VALUES_MAX`].
    pub async fn facet(
        self: &Rc<Self>,
        name: &str,
        key: String,
        filter: Option<Arc<Predicate>>,
        limit: usize,
    ) -> Result<Vec<(FacetValue, u64)>, OpError> {
        let handle = self.ctx.handle(name)?;
        self.check_key(&handle, &key, "facet")?;
        let named = key.clone();
        let add = move |facet: &mut Facet, point: &Point<'_>, now_ms| {
            if let Some(value) = PayloadRow::trusted(point.row).get(&key, now_ms) {
                facet_values(value).into_iter().for_each(|value| facet.add(value));
            }
        };
        let facet = self.walked(name, filter, Facet::default(), add).await?;
        if facet.overflow {
            return Err(OpError::BadRequest(format!(
                "facet: key {} has more than {FACET_VALUES_MAX} values or too long ones; narrow it by a filter",
                quoted(&named)
            )));
        }
        Ok(facet.finish(limit, &mut Slice::begin(self.env())).await)
    }

    /// Ids of `limit` matching points drawn by `seed`, in the order they were drawn: the same ones as long as the points are the
    /// same.
    ///
    /// # Errors
    /// Unknown or damaged collection.
    pub async fn sample(
        self: &Rc<Self>,
        name: &str,
        filter: Option<Arc<Predicate>>,
        limit: usize,
        seed: u64,
    ) -> Result<Vec<u64>, OpError> {
        let draw = move |drawn: &mut BTreeSet<(u64, u64)>, point: &Point<'_>, _| {
            drawn.insert((lot(seed, point.id), point.id));
            if drawn.len() > limit {
                drawn.pop_last();
            }
        };
        let drawn = self.walked(name, filter, BTreeSet::new(), draw).await?;
        Ok(drawn.into_iter().map(|(_, id)| id).collect())
    }

    /// What a walk over all that matches, on the owner, makes of `into`.
    async fn walked<T: Send + 'static>(
        self: &Rc<Self>,
        name: &str,
        filter: Option<Arc<Predicate>>,
        mut into: T,
        mut each: impl FnMut(&mut T, &Point<'_>, u64) + Send + 'static,
    ) -> Result<T, OpError> {
        let handle = self.ctx.handle(name)?;
        handle.healthy()?;
        self.check_filter(&handle, filter.as_deref())?;
        let (uid, name) = (handle.uid, name.to_owned());
        call(self, handle.owner, move |there| async move {
            let owned = there.collections.owned(uid).ok_or(OpError::UnknownCollection(name))?;
            let walk = |point: &Point<'_>, now_ms| each(&mut into, point, now_ms);
            there.each_match(&owned, filter.as_deref(), walk).await?;
            Ok(into)
        })
        .await?
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::core::walk::with_slice;

    #[test]
    fn floats_order_and_read_back() {
        let numbers = [f64::NEG_INFINITY, -1.5, -1e-300, 0.0, 2.0, 1e300, f64::INFINITY];
        let ordered: Vec<OrderedFloat> = numbers.iter().map(|&n| OrderedFloat::new(n).unwrap()).collect();
        assert!(ordered.is_sorted_by(|a, b| a < b));
        assert!(ordered.iter().zip(numbers).all(|(ordered, n)| ordered.get() == n));
        assert_eq!(OrderedFloat::new(-0.0), OrderedFloat::new(0.0));
        assert_eq!(OrderedFloat::new(f64::NAN), None);
    }

    #[test]
    fn a_facet_counts_the_most_frequent_first_and_says_when_there_are_too_many() {
        let mut facet = Facet::default();
        for n in [3, 1, 2, 1, 2, 5] {
            facet.add(FacetValue::Int(n));
        }
        facet.add(FacetValue::String("1".into()));
        assert!(!facet.overflow);
        let found: Vec<(FacetValue, u64)> = with_slice(async |slice| facet.finish(4, slice).await);
        let int = |n, count| (FacetValue::Int(n), count);
        assert_eq!(found, [int(1, 2), int(2, 2), int(3, 1), int(5, 1)]);
        let mut facet = Facet::default();
        (0..=FACET_VALUES_MAX as i64).for_each(|n| facet.add(FacetValue::Int(n)));
        assert!(facet.overflow && facet.counts.len() == FACET_VALUES_MAX);
    }
}
