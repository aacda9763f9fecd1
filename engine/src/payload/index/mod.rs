//! The payload index: from a value to the slots that hold it, for every key but `$content`, with nothing to declare.
//!
//! Per field ten ordered dictionaries ([`Class`]), each from a term to its postings. The owner files a slot before it shows
//! it and takes it out when it frees it, so the postings hold every slot a reader may see, and some it may not (dead,
//! expired, or born after its snapshot): what is found here is looked at again for visibility, and for the filter too where
//! a dictionary keeps less than the values say ([`View::is_exact`]). A slot whose row is replaced is filed under the terms of both
//! until no reader of the old row is left ([`PayloadIndex::supersede`]).
//!
//! A row files as much of its arrays and of the words of its texts as an [`Extent`] allows. A slot of which a field has not filed all elements
//! or words stands in the field's [`Class::Rest`], which every look-up of elements or words adds to what it finds.
//!
//! Cost: filing or taking out a term is one walk down a dictionary, or two where it is new or held by no other slot, about 0.3 µs; a term held by
//! one slot takes about 70 bytes with its share of a leaf, a further slot 2 to 5. Rows of a collection that is being opened are filed many at a
//! time (`batch.rs`).
//!
//! # Invariants
//!
//! 1. All parts of an index come from its one attic; readers reach them through [`View`], which checks that its pin is of
//!    the attic's domain.
//! 2. Only the owner changes anything, one call at a time (`Owned` panics otherwise).

mod batch;
mod buckets;
mod cells;
mod columns;
mod container;
mod key;
mod postings;
mod selection;
#[cfg(test)]
mod tests;
mod tree;

pub(crate) use columns::Column;
pub(crate) use selection::{Marked, Selection, Terms, Walk};

use super::words::{lowered, words};
use super::{CONTENT_KEY, FloatArray, IntArray, PayloadRow, StrArray, ValueRef};
use crate::memory::{Attic, Domain, LinkCell, Owned, Pin};
use crate::slot::Slot;
use ahash::RandomState;
use key::{Key, KeyRef, Span};
use postings::Postings;
use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering, fence};
use tree::Tree;

/// What the keys of a dictionary are made from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Class {
    /// Scalars, by kind.
    String,
    /// See above.
    Int,
    /// See above; not NaN.
    Float,
    /// See above.
    Bool,
    /// Elements of arrays, by kind.
    StringElement,
    /// See above.
    IntElement,
    /// See above; not NaN.
    FloatElement,
    /// Words of strings, alone or in arrays.
    Word,
    /// Cells of geo points.
    Cell,
    /// The classes of elements and words of which not everything is filed, by number.
    Rest,
}
const CLASSES: usize = Class::Rest as usize + 1;

/// How much is filed of the arrays and texts of a row, in the order of its entries: filing is done in one piece.
#[derive(Clone, Copy, Debug)]
struct Extent {
    /// Elements of arrays, and words.
    parts: usize,
    /// Bytes of texts that are searched for words.
    bytes: usize,
}

/// Some 15 ms. A row of at most 64 KiB has no more than that.
const ROW_EXTENT: Extent = Extent { parts: 32 << 10, bytes: 1 << 20 };

impl Extent {
    /// Whether a row may have more than that: a part of it takes at least two bytes.
    fn may_be_exceeded(self, row: PayloadRow<'_>) -> bool {
        row.as_bytes().len() > (2 * self.parts).min(self.bytes)
    }

    fn take_part(&mut self) -> bool {
        let has_room = self.parts > 0;
        self.parts -= usize::from(has_room);
        has_room
    }

    /// The beginning of `text` that is searched.
    fn take_bytes<'t>(&mut self, text: &'t str) -> &'t str {
        let searched = &text[..text.floor_char_boundary(self.bytes)];
        // A character that does not fit ends the search.
        self.bytes = if searched.len() < text.len() { 0 } else { self.bytes - text.len() };
        searched
    }
}

/// The dictionaries of one key.
struct Field {
    name: Box<str>,
    column: LinkCell<columns::Numbers>,
    /// A reader would have used a column.
    column_wanted: AtomicBool,
    /// The slots that have the key, whatever its value: a bit each where most do.
    holders: Postings,
    classes: [Tree<Postings>; CLASSES],
}

impl Field {
    fn new(name: &str) -> Field {
        Field {
            name: name.into(),
            column: LinkCell::new(None),
            column_wanted: AtomicBool::new(false),
            holders: Postings::new(),
            classes: std::array::from_fn(|_| Tree::new()),
        }
    }

    fn class(&self, class: Class) -> &Tree<Postings> {
        &self.classes[class as usize]
    }
}

/// The index of one collection. `Sync`: one owner, any readers.
pub(crate) struct PayloadIndex {
    domain: Arc<Domain>,
    /// By name; a field's weight is the number of filed rows that have the key, whatever its value.
    fields: Tree<Field>,
    /// Hashes long texts, with a seed of its own: nobody may craft texts that meet.
    hasher: RandomState,
    /// Filed rows of which some key expires.
    expiring: AtomicU64,
    /// Rows that are filed beside a newer one of their slot.
    superseded: AtomicU64,
    /// Rows that have ever been superseded.
    replacements: AtomicU64,
    bytes: AtomicU64,
    column_bytes: AtomicU64,
    /// Some field's column is wanted.
    column_wanted: AtomicBool,
    slots_max: usize,
    extent: Extent,
    owner: Owned<Filing>,
}

/// What the owner needs.
struct Filing {
    attic: Attic,
    columns: columns::Columns,
    /// The word at hand, lower-cased.
    word: String,
    /// Terms filed or taken out by the call under way.
    steps: usize,
    /// What the row at hand may still file.
    left: Extent,
    /// Terms of rows that are yet to be filed.
    batch: batch::Batch,
}

impl PayloadIndex {
    /// Empty, for slots below `slots_max` and readers of `domain`.
    pub fn new(slots_max: usize, domain: Arc<Domain>) -> PayloadIndex {
        Self::with_extent(slots_max, domain, ROW_EXTENT)
    }

    fn with_extent(slots_max: usize, domain: Arc<Domain>, extent: Extent) -> PayloadIndex {
        let filing = Filing {
            attic: Attic::new(domain.clone()),
            columns: columns::Columns::default(),
            word: String::new(),
            steps: 0,
            left: extent,
            batch: batch::Batch::default(),
        };
        PayloadIndex {
            fields: Tree::new(),
            hasher: RandomState::new(),
            expiring: AtomicU64::new(0),
            superseded: AtomicU64::new(0),
            replacements: AtomicU64::new(0),
            bytes: AtomicU64::new(0),
            column_bytes: AtomicU64::new(0),
            column_wanted: AtomicBool::new(false),
            slots_max,
            extent,
            owner: Owned::new(filing),
            domain,
        }
    }

    /// Owner: files a slot under everything its row holds; the number of terms. A slot is filed once until it is taken out.
    pub fn insert(&self, slot: Slot, row: PayloadRow<'_>) -> usize {
        self.file(slot, row, true, |_, _| Turn::WHOLE)
    }

    /// Owner: takes a slot out, which was filed with this row and no other; the number of terms.
    pub fn remove(&self, slot: Slot, row: PayloadRow<'_>) -> usize {
        self.file(slot, row, false, |_, _| Turn::WHOLE)
    }

    /// Owner: files a slot under what its next row, `new`, holds and `old`, its row so far, does not; the number of terms. Those of
    /// `old` stay until [`Self::release`]: a reader that has looked some of them up must not miss the point under the others. To
    /// be called before readers can find `new`.
    pub fn supersede(&self, slot: Slot, old: PayloadRow<'_>, new: PayloadRow<'_>) -> usize {
        self.replacements.store(self.replacements.load(Ordering::Relaxed) + 1, Ordering::Relaxed);
        // Whoever sees this count sees the other, and whoever sees one of the new terms sees both (`is_settled`, `replacements`).
        self.superseded.store(self.superseded.load(Ordering::Relaxed) + 1, Ordering::Release);
        fence(Ordering::Release);
        // What is equal is filed alike, unless there may be too much of it.
        let may_differ = self.extent.may_be_exceeded(old) || self.extent.may_be_exceeded(new);
        // At time 0 no key has expired.
        let terms = self.file(slot, new, true, |key, value| {
            if !may_differ && old.get(key, 0) == Some(value) { Turn::NOTHING } else { Turn::WHOLE }
        });
        let gone = |entry: &super::RowEntry<'_>| new.get(entry.key, 0).is_none();
        self.owner.enter().columns.forget(slot, old.stored_entries().filter(gone).map(|entry| entry.key));
        terms
    }

    /// Owner: takes a slot out of the terms that `old` has and no row of `newer` has, in which are all rows the slot is filed with
    /// beside `old`; the number of terms looked at.
    pub fn release(&self, slot: Slot, old: PayloadRow<'_>, newer: &[PayloadRow<'_>]) -> usize {
        let may_differ = newer.iter().chain([&old]).any(|&row| self.extent.may_be_exceeded(row));
        let filed = may_differ.then(|| self.terms_filed(newer));
        let terms = self.file(slot, old, false, |key, value| {
            let others = newer.iter().filter_map(|row| row.get(key, 0));
            if !may_differ && others.clone().any(|other| other == value) {
                return Turn::NOTHING;
            }
            let kept_by_none = others.clone().next().is_none();
            let mut kept = match &filed {
                Some(filed) => filed.get(key).cloned().unwrap_or_default(),
                None => {
                    let (mut kept, mut word, mut left) = (Vec::new(), String::new(), self.extent);
                    for other in others {
                        terms_of(other, &self.hasher, &mut left, &mut word, &mut |class, key| {
                            kept.push((class, key.to_owned()))
                        });
                    }
                    kept
                }
            };
            kept.sort_unstable_by(|a, b| order(a, (b.0, b.1.as_ref())));
            Turn { column: false, holder: kept_by_none, terms: true, kept }
        });
        // Whoever sees the lower count sees the terms gone (`is_exact`).
        self.superseded.store(self.superseded.load(Ordering::Relaxed) - 1, Ordering::Release);
        terms
    }

    /// The terms that rows are filed under, by field.
    fn terms_filed<'r>(&self, rows: &[PayloadRow<'r>]) -> HashMap<&'r str, Vec<(Class, Key)>> {
        let (mut filed, mut word) = (HashMap::new(), String::new());
        for row in rows {
            let mut left = self.extent;
            for entry in row.stored_entries().filter(|entry| entry.key != CONTENT_KEY) {
                let terms: &mut Vec<_> = filed.entry(entry.key).or_default();
                terms_of(entry.value, &self.hasher, &mut left, &mut word, &mut |class, key| {
                    terms.push((class, key.to_owned()));
                });
            }
        }
        filed
    }

    /// Any core: how many rows have been replaced so far. When it is what it was before terms were looked up, none of them was that
    /// of a row yet to come.
    #[inline]
    pub fn replacements(&self) -> u64 {
        fence(Ordering::Acquire);
        self.replacements.load(Ordering::Relaxed)
    }

    fn file(
        &self,
        slot: Slot,
        row: PayloadRow<'_>,
        insert: bool,
        turn: impl Fn(&str, ValueRef<'_>) -> Turn,
    ) -> usize {
        let mut filing = self.owner.enter();
        filing.steps = 0;
        filing.left = self.extent;
        for entry in row.stored_entries().filter(|entry| entry.key != CONTENT_KEY) {
            let turn = turn(entry.key, entry.value);
            self.file_entry(slot, entry.key, entry.value, insert, &turn, &mut filing);
        }
        if row.next_deadline().is_some() {
            let expiring = self.expiring.load(Ordering::Relaxed);
            self.expiring.store(if insert { expiring + 1 } else { expiring - 1 }, Ordering::Relaxed);
        }
        self.bytes.store(filing.attic.held_bytes() as u64, Ordering::Relaxed);
        filing.steps
    }

    fn file_entry(
        &self,
        slot: Slot,
        name: &str,
        value: ValueRef<'_>,
        insert: bool,
        turn: &Turn,
        filing: &mut Filing,
    ) {
        let Filing { attic, columns, word, steps, left, .. } = filing;
        let hasher = &self.hasher;
        key::of_text(name, hasher, |key| {
            let mut file = |field: &Field, attic: &mut Attic| {
                if turn.column
                    && let Some(column) = field.column.load()
                {
                    // SAFETY: the owner, and a column that is linked.
                    unsafe { column.get() }.set(slot, columns::number(value).filter(|_| insert));
                }
                if turn.holder {
                    // SAFETY: the one attic of the index this field is part of; readers are checked in `view`.
                    unsafe {
                        match insert {
                            true => field.holders.insert(slot, attic),
                            false => field.holders.remove(slot, attic),
                        };
                    }
                }
                if turn.terms {
                    let mut filer = Filer { field, slot, insert, kept: &turn.kept, attic, steps };
                    terms_of(value, hasher, left, word, &mut |class, key| filer.term(class, key));
                }
            };
            // SAFETY: the one attic; readers are checked in `view`.
            unsafe {
                if insert {
                    self.fields.update(
                        attic,
                        key,
                        || Field::new(name),
                        |field, attic| {
                            file(field, attic);
                            (1, ())
                        },
                    );
                } else {
                    self.fields.update_existing(attic, key, |field, attic| {
                        file(field, attic);
                        (-1, ())
                    });
                    if let Some((field, 0)) = self.fields.get(key) {
                        self.forget_column(field, columns, attic);
                        field.holders.clear(attic);
                        self.fields.remove(attic, key);
                    }
                }
            }
        });
    }

    /// Owner: the field has these slots as holders, too. It is made if it is not there.
    fn file_holders(&self, name: &str, slots: &[Slot], attic: &mut Attic) {
        let file = |field: &Field, attic: &mut Attic| {
            // SAFETY: the one attic of the index this field is part of; readers are checked in `view`.
            let is_new = |slot: &&Slot| unsafe { field.holders.insert(**slot, attic) };
            (slots.iter().filter(is_new).count() as i32, ())
        };
        // SAFETY: the one attic of the index, used by its owner alone; readers are checked in `view`.
        key::of_text(name, &self.hasher, |key| unsafe {
            self.fields.update(attic, key, || Field::new(name), file);
        });
    }

    /// Owner: files terms of a class of a field that has holders, in the order of the keys and, under one key, of the slots. A term that occurs
    /// twice in a row changes nothing the second time.
    fn file_terms(&self, name: &str, class: usize, terms: &[batch::Term], rests: &[u8], attic: &mut Attic) {
        // SAFETY: the owner, which changes no field meanwhile.
        let found = key::of_text(name, &self.hasher, |key| unsafe { self.fields.get(key) });
        let (field, _) = found.expect("its holders were filed first");
        let tree = &field.classes[class];
        let groups = || terms.chunk_by(|a, b| a.key(rests) == b.key(rests));
        // SAFETY: the one attic of the index this dictionary is part of; readers are checked in `view`.
        unsafe {
            tree.enter(attic, groups().map(|group| group[0].key(rests)), Postings::new);
            for group in groups() {
                tree.update_existing(attic, group[0].key(rests), |postings, attic| {
                    let added = group.iter().filter(|term| postings.insert(term.slot, attic)).count();
                    (added as i32, ())
                });
            }
        }
    }

    /// Owner: frees up to `max` replaced parts that no reader can hold any more.
    pub fn reclaim(&self, max: usize) {
        let mut filing = self.owner.enter();
        filing.attic.reclaim(max);
        self.bytes.store(filing.attic.held_bytes() as u64 + filing.batch.bytes(), Ordering::Relaxed);
    }

    /// Bytes, columns and parts that wait for readers included, about (allocations are counted in classes of 16).
    pub fn bytes(&self) -> u64 {
        self.bytes.load(Ordering::Relaxed) + self.column_bytes()
    }

    /// Any core: what may be looked up while `pin` lives. Panics when the pin is of another domain.
    pub fn view<'p>(&'p self, pin: &'p Pin<'_>) -> View<'p> {
        pin.assert_of(&self.domain);
        View { index: self }
    }
}

/// What is to be done about one entry of a row.
struct Turn {
    /// Set or clear the number in the field's column.
    column: bool,
    /// File the slot under the field, or take it out.
    holder: bool,
    /// File or take out its terms.
    terms: bool,
    /// But for these, in order.
    kept: Vec<(Class, Key)>,
}

impl Turn {
    const WHOLE: Turn = Turn { column: true, holder: true, terms: true, kept: Vec::new() };
    /// Another row of the slot has the same.
    const NOTHING: Turn = Turn { column: false, holder: false, terms: false, kept: Vec::new() };
}

/// Order of terms, for those that are kept.
fn order(a: &(Class, Key), b: (Class, KeyRef<'_>)) -> std::cmp::Ordering {
    (a.0 as usize).cmp(&(b.0 as usize)).then_with(|| a.1.as_ref().cmp(&b.1))
}

/// Files one slot under the terms of one field, or takes it out.
struct Filer<'a> {
    field: &'a Field,
    slot: Slot,
    insert: bool,
    kept: &'a [(Class, Key)],
    attic: &'a mut Attic,
    steps: &'a mut usize,
}

impl Filer<'_> {
    /// A term that occurs twice in a row changes nothing the second time.
    fn term(&mut self, class: Class, key: KeyRef<'_>) {
        let (tree, slot) = (self.field.class(class), self.slot);
        *self.steps += 1;
        if self.kept.binary_search_by(|term| order(term, (class, key))).is_ok() {
            return;
        }
        // SAFETY: the one attic of the index this field is part of; readers are checked in `PayloadIndex::view`.
        unsafe {
            if self.insert {
                tree.update(self.attic, key, Postings::new, |postings, attic| {
                    (postings.insert(slot, attic).into(), ())
                });
                return;
            }
            let is_last = tree.update_existing(self.attic, key, |postings, attic| {
                let removed = postings.remove(slot, attic);
                let is_last = removed && postings.is_empty();
                if is_last {
                    postings.clear(attic);
                }
                (-i32::from(removed), is_last)
            });
            if is_last == Some(true) {
                tree.remove(self.attic, key);
            }
        }
    }
}

/// Hands on the terms of a value, repeats included, as far as `left` goes. `word` is room for one, lower-cased.
fn terms_of(
    value: ValueRef<'_>,
    hasher: &RandomState,
    left: &mut Extent,
    word: &mut String,
    term: &mut dyn FnMut(Class, KeyRef<'_>),
) {
    let mut number =
        |class, order: Option<u64>| order.into_iter().for_each(|n| term(class, KeyRef::number(n)));
    match value {
        // Nothing asks for what is in a record.
        ValueRef::None | ValueRef::Record(_) => {}
        ValueRef::Int(value) => number(Class::Int, Some(key::of_int(value))),
        ValueRef::Float(value) => number(Class::Float, key::of_float(value)),
        ValueRef::Bool(flag) => number(Class::Bool, Some(flag.into())),
        ValueRef::Ints(array) => int_terms(array, left, term),
        ValueRef::Floats(array) => float_terms(array, left, term),
        ValueRef::Geo { lat, lon } => number(Class::Cell, Some(cells::cell(lat, lon).into())),
        ValueRef::String(text) => {
            key::of_text(text, hasher, |key| term(Class::String, key));
            if !word_terms(text, hasher, left, word, term) {
                term(Class::Rest, rest_of(Class::Word));
            }
        }
        ValueRef::Strings(array) => string_terms(array, hasher, left, word, term),
        // Booleans among its elements are not filed.
        ValueRef::Json(json) => {
            if let Some((lat, lon)) = json.geo() {
                number(Class::Cell, Some(cells::cell(lat, lon).into()));
            }
            int_terms(json.ints(), left, term);
            float_terms(json.floats(), left, term);
            string_terms(json.strings(), hasher, left, word, term);
        }
    }
}

fn int_terms(array: IntArray<'_>, left: &mut Extent, term: &mut dyn FnMut(Class, KeyRef<'_>)) {
    for number in array.iter() {
        if !left.take_part() {
            return term(Class::Rest, rest_of(Class::IntElement));
        }
        term(Class::IntElement, KeyRef::number(key::of_int(number)));
    }
}

fn float_terms(array: FloatArray<'_>, left: &mut Extent, term: &mut dyn FnMut(Class, KeyRef<'_>)) {
    for number in array.iter() {
        if !left.take_part() {
            return term(Class::Rest, rest_of(Class::FloatElement));
        }
        key::of_float(number).into_iter().for_each(|n| term(Class::FloatElement, KeyRef::number(n)));
    }
}

fn string_terms(
    array: StrArray<'_>,
    hasher: &RandomState,
    left: &mut Extent,
    word: &mut String,
    term: &mut dyn FnMut(Class, KeyRef<'_>),
) {
    let (mut has_elements, mut has_words) = (true, true);
    for text in array.iter() {
        if !left.take_part() {
            (has_elements, has_words) = (false, false);
            break;
        }
        key::of_text(text, hasher, |key| term(Class::StringElement, key));
        has_words &= word_terms(text, hasher, left, word, term);
    }
    for (class, has_all) in [(Class::StringElement, has_elements), (Class::Word, has_words)] {
        if !has_all {
            term(Class::Rest, rest_of(class));
        }
    }
}

/// The term that stands for all that is not filed of a class.
fn rest_of(class: Class) -> KeyRef<'static> {
    KeyRef::number(class as u64)
}

/// The words of a text, as far as `left` goes; whether these were all.
fn word_terms(
    text: &str,
    hasher: &RandomState,
    left: &mut Extent,
    word: &mut String,
    term: &mut dyn FnMut(Class, KeyRef<'_>),
) -> bool {
    let searched = left.take_bytes(text);
    for spelled in words(searched) {
        if !left.take_part() {
            return false;
        }
        word.clear();
        word.extend(lowered(spelled));
        key::of_text(word, hasher, |key| term(Class::Word, key));
    }
    searched.len() == text.len()
}

/// The index as a reader sees it.
#[derive(Clone, Copy)]
pub(crate) struct View<'p> {
    index: &'p PayloadIndex,
}

/// A bound of a range and whether it is inside.
pub(crate) type Bound<T> = Option<(T, bool)>;

impl<'p> View<'p> {
    /// Whether terms stand for values of `field`: no filed row has a key that expires, none has been replaced, and the name is its
    /// own key. Rows may be replaced right after: see [`PayloadIndex::replacements`].
    pub fn is_exact(self, field: &str) -> bool {
        self.index.expiring.load(Ordering::Relaxed) == 0
            && self.is_settled()
            && field.len() <= key::WHOLE_BYTES
    }

    /// Whether every slot is filed under the terms of one row. If not, a slot outside of some terms may be inside as well, by
    /// the row that came after.
    pub fn is_settled(self) -> bool {
        self.index.superseded.load(Ordering::Acquire) == 0
    }

    fn tree(self, field: &str, class: Class) -> Option<&'p Tree<Postings>> {
        // SAFETY: `view` has checked the pin, which outlives `'p`.
        let found = key::of_text(field, &self.index.hasher, |name| unsafe { self.index.fields.get(name) });
        found.map(|(field, _)| field.class(class))
    }

    fn terms(self, field: &str, class: Class, spans: impl IntoIterator<Item = Span>) -> Terms<'p> {
        let mut terms = Terms::default();
        if let Some(tree) = self.tree(field, class) {
            spans.into_iter().for_each(|span| terms.add(tree, span));
        }
        terms
    }

    fn numbers(self, field: &str, class: Class, numbers: impl Iterator<Item = u64>) -> Terms<'p> {
        let mut terms = Terms::default();
        if let Some(tree) = self.tree(field, class) {
            numbers.for_each(|number| terms.add_number(tree, number));
        }
        terms
    }

    /// All texts are asked for, whether there is such a field or not.
    fn texts_of<'t>(self, field: &str, class: Class, texts: impl Iterator<Item = &'t str>) -> Terms<'p> {
        let mut terms = Terms::default();
        let tree = self.tree(field, class);
        for text in texts {
            if let Some(tree) = tree {
                key::of_text(text, &self.index.hasher, |key| _ = terms.add_key(tree, key));
            }
        }
        terms
    }

    /// Adds the slots of which not everything of a class of elements or words is filed; whether there are none.
    fn add_rest(self, field: &str, class: Class, terms: &mut Terms<'p>) -> bool {
        self.tree(field, Class::Rest).is_none_or(|tree| !terms.add_key(tree, rest_of(class)))
    }

    /// Slots with this text as the value, or as an element or a word, and perhaps others; and whether there are no others.
    pub fn text(self, field: &str, class: Class, text: &str) -> (Terms<'p>, bool) {
        let mut terms = self.texts_of(field, class, std::iter::once(text));
        let has_all = self.add_rest(field, class, &mut terms);
        (terms, has_all && text.len() <= key::WHOLE_BYTES)
    }

    /// Slots whose string lies between two bounds by bytes; and whether they hold no other.
    pub fn text_range(self, field: &str, low: Bound<&str>, high: Bound<&str>) -> (Terms<'p>, bool) {
        let (span, exact) = key::text_span(low, high);
        (self.terms(field, Class::String, [span]), exact)
    }

    /// Slots with a text, alone or in an array, that begins with one of `beginnings`, and others.
    pub fn beginning_with<'t>(
        self,
        field: &str,
        beginnings: impl Iterator<Item = &'t str> + Clone,
    ) -> Terms<'p> {
        let mut terms = Terms::default();
        for class in [Class::String, Class::StringElement] {
            if let Some(tree) = self.tree(field, class) {
                beginnings.clone().for_each(|text| terms.add(tree, key::beginning_span(text)));
            }
        }
        self.add_rest(field, Class::StringElement, &mut terms);
        terms
    }

    /// Slots with a number as the value that one of these integers, ascending, is as f64.
    pub fn among_ints(self, field: &str, values: &[i64]) -> Terms<'p> {
        let mut terms = self.numbers(field, Class::Int, values.iter().map(|&value| key::of_int(value)));
        if let Some(tree) = self.tree(field, Class::Float).filter(|tree| tree.weight() > 0) {
            let mut last = None;
            for number in values.iter().filter_map(|&value| key::of_float(value as f64)) {
                // Integers beyond 2^53 may be one float.
                if last.replace(number) != Some(number) {
                    terms.add_number(tree, number);
                }
            }
        }
        terms
    }

    /// Slots with a number as the value that, as f64, is one of these.
    pub fn among_floats(self, field: &str, values: impl Iterator<Item = f64> + Clone) -> Terms<'p> {
        let mut terms = self.numbers(field, Class::Float, values.clone().filter_map(key::of_float));
        if let Some(tree) = self.tree(field, Class::Int).filter(|tree| tree.weight() > 0) {
            for value in values.filter(|value| value.fract() == 0.0) {
                if value.abs() < INTS_EXACT_BELOW {
                    terms.add_number(tree, key::of_int(value as i64));
                    continue;
                }
                let edge = |value: i64| (KeyRef::number(key::of_int(value)), false);
                if let Some(first) = first_int(value, true) {
                    terms.add(tree, Span::between(Some(edge(first)), first_int(value, false).map(edge)));
                }
            }
        }
        terms
    }

    /// How many different strings, numbers and booleans the field has, NaN not counted; more while rows are being replaced.
    pub fn scalar_values(self, field: &str) -> u64 {
        let keys = |class| self.tree(field, class).map_or(0, Tree::keys);
        [Class::String, Class::Int, Class::Float, Class::Bool].into_iter().map(keys).sum()
    }

    /// Whether the field has a string in any row.
    pub fn has_texts(self, field: &str) -> bool {
        self.tree(field, Class::String).is_some_and(|tree| tree.weight() > 0)
    }

    /// Slots with any of these texts as the value; and whether the terms stand for nothing longer.
    pub fn texts<'t>(self, field: &str, values: impl Iterator<Item = &'t str>) -> (Terms<'p>, bool) {
        let mut exact = true;
        let texts = values.inspect(|text| exact &= text.len() <= key::WHOLE_BYTES);
        let terms = self.texts_of(field, Class::String, texts);
        (terms, exact)
    }

    /// Slots with this integer as the value or an element, and perhaps others; and whether there are no others.
    pub fn int(self, field: &str, class: Class, value: i64) -> (Terms<'p>, bool) {
        let mut terms = self.numbers(field, class, std::iter::once(key::of_int(value)));
        let has_all = self.add_rest(field, class, &mut terms);
        (terms, has_all)
    }

    /// The same with a float; none has NaN.
    pub fn float(self, field: &str, class: Class, value: f64) -> (Terms<'p>, bool) {
        let mut terms = self.numbers(field, class, key::of_float(value).into_iter());
        let has_all = self.add_rest(field, class, &mut terms);
        (terms, has_all)
    }

    /// Slots with this boolean as the value.
    pub fn bool(self, field: &str, value: bool) -> Terms<'p> {
        self.numbers(field, Class::Bool, std::iter::once(value.into()))
    }

    /// Slots whose int or float, as f64, lies between two bounds; none when one is NaN.
    pub fn number_range(self, field: &str, low: Bound<f64>, high: Bound<f64>) -> Terms<'p> {
        let mut terms = Terms::default();
        let is_nan = |bound: Bound<f64>| bound.is_some_and(|(bound, _)| bound.is_nan());
        if is_nan(low) || is_nan(high) {
            return terms;
        }
        if let Some(tree) = self.tree(field, Class::Float) {
            let number = |(bound, _)| KeyRef::number(key::of_float(bound).unwrap_or_default());
            let low = low.map(|bound| (number(bound), !bound.1));
            terms.add(tree, Span::between(low, high.map(|bound| (number(bound), bound.1))));
        }
        if let Some(tree) = self.tree(field, Class::Int) {
            let first = low.map_or(Some(i64::MIN), |(bound, inclusive)| first_int(bound, inclusive));
            // Ints from here on are above the bound.
            let end = high.and_then(|(bound, inclusive)| first_int(bound, !inclusive));
            let edge = |value: i64| (KeyRef::number(key::of_int(value)), false);
            if let Some(first) = first {
                terms.add(tree, Span::between(Some(edge(first)), end.map(edge)));
            }
        }
        terms
    }

    /// Slots in the cells of a box in degrees, and all points that are off the map when asked for; `None` when the box is
    /// too tall.
    pub fn geo_box(
        self,
        field: &str,
        [south, west, north, east]: [f64; 4],
        off_the_map: bool,
    ) -> Option<Terms<'p>> {
        let number = |cell: u32| KeyRef::number(cell.into());
        let between = |(west, east)| Span::between(Some((number(west), false)), Some((number(east), true)));
        let outside = off_the_map.then(|| Span::only(number(cells::OUTSIDE)));
        let rows = cells::rows_of(south, west, north, east)?;
        Some(self.terms(field, Class::Cell, rows.map(between).chain(outside)))
    }

    /// Slots that have the key, whatever its value.
    pub fn holders(self, field: &str) -> Terms<'p> {
        let mut terms = Terms::default();
        // SAFETY: as in `tree`.
        let found = key::of_text(field, &self.index.hasher, |name| unsafe { self.index.fields.get(name) });
        if let Some((field, rows)) = found {
            terms.add_set(&field.holders, rows);
        }
        terms
    }
}

/// Integers nearer to zero are each a float of their own.
const INTS_EXACT_BELOW: f64 = (1u64 << 53) as f64;

/// The least integer that, as f64, is above `bound`, or equal to it when `inclusive`. Integers near 2^63 round, so the
/// comparison itself is searched.
fn first_int(bound: f64, inclusive: bool) -> Option<i64> {
    let fits = |value: i64| value as f64 > bound || (inclusive && value as f64 == bound);
    let (mut low, mut high) = (i128::from(i64::MIN), i128::from(i64::MAX) + 1);
    while low < high {
        let middle = (low + high) >> 1;
        if fits(middle as i64) {
            high = middle;
        } else {
            low = middle + 1;
        }
    }
    i64::try_from(low).ok()
}
