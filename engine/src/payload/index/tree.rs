//! An ordered dictionary that one owner changes and any core reads: a B+ tree of links.
//!
//! Nodes are copied when their entries change and the one word that leads to them is swung; a path is not copied, so a new
//! term costs one leaf. A reader that came by the old leaf sees the tree as it was then, which includes everything that was
//! there when it pinned. Beside every entry and every child stands its *weight*, the number of postings below it, changed in
//! place: the weight of a range of keys is read along two paths, whatever lies between.

use super::key::{Edge, Key, KeyRef, Span};
use crate::memory::{Attic, Held, Link, LinkCell, allocated};
use std::ops::ControlFlow;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

/// Most entries of a node: a copy of a full leaf is 1.5 KB.
const NODE_MAX: usize = 64;
/// A leaf with fewer looks for a sibling to be merged with.
const NODE_MIN: usize = 16;
/// Most entries of a merged leaf, so that it is not split again at once.
const MERGED_MAX: usize = 48;
/// Most keys that are entered into one leaf at a time.
const ENTERED_MAX: usize = 4 * NODE_MAX;
/// Most leaves after the first that a leaf with so many more keys becomes. A node with all of them is at most split in two.
const PIECES_MAX: usize = ENTERED_MAX / NODE_MAX;
const _: () = assert!(NODE_MAX + PIECES_MAX <= 2 * NODE_MAX);

/// See the module docs.
pub(super) struct Tree<V: Send + Sync> {
    root: LinkCell<Node<V>>,
    weight: AtomicU64,
    keys: AtomicU64,
}

enum Node<V> {
    Leaf(Box<[LeafSlot<V>]>),
    Inner(Box<[Child<V>]>),
}

/// An entry of a leaf.
struct LeafSlot<V> {
    prefix: u64,
    entry: Link<LeafEntry<V>>,
    weight: AtomicU32,
}

/// The rest of a key, and its value.
struct LeafEntry<V> {
    rest: Box<[u8]>,
    len: u8,
    value: V,
}

struct Child<V> {
    /// Keys of this child and those after it are not below; not kept for the first child of a node.
    low: Key,
    node: LinkCell<Node<V>>,
    weight: AtomicU64,
}

impl<V: Send + Sync> Held for Node<V> {
    fn held_bytes(&self) -> usize {
        allocated(size_of::<Self>())
            + match self {
                Node::Leaf(slots) => allocated(size_of_val(&**slots)),
                Node::Inner(children) => {
                    allocated(size_of_val(&**children))
                        + children.iter().map(|child| allocated(child.low.rest.len())).sum::<usize>()
                }
            }
    }
}

impl<V: Send + Sync> Held for LeafEntry<V> {
    fn held_bytes(&self) -> usize {
        allocated(size_of::<Self>()) + allocated(self.rest.len())
    }
}

impl<V> LeafSlot<V> {
    fn copy(&self) -> Self {
        let weight = AtomicU32::new(self.weight.load(Ordering::Relaxed));
        LeafSlot { prefix: self.prefix, entry: self.entry, weight }
    }

    /// # Safety
    /// As `Link::get`.
    #[inline]
    unsafe fn key<'a>(&self) -> KeyRef<'a>
    where
        V: 'a,
    {
        // SAFETY: the caller's.
        let entry = unsafe { self.entry.get() };
        KeyRef { prefix: self.prefix, rest: &entry.rest, len: entry.len }
    }

    /// The value and its weight. Without a look at the entry.
    ///
    /// # Safety
    /// As `Link::get`.
    #[inline]
    unsafe fn found<'a>(&self) -> (&'a V, u64)
    where
        V: 'a,
    {
        // SAFETY: the caller's.
        (&unsafe { self.entry.get() }.value, self.weight.load(Ordering::Relaxed).into())
    }

    /// Whether the key lies before `key`; follows the entry only when the first bytes are equal.
    ///
    /// # Safety
    /// As `Link::get`.
    #[inline]
    unsafe fn is_below(&self, key: KeyRef<'_>) -> bool {
        // SAFETY: the caller's.
        self.prefix < key.prefix || (self.prefix == key.prefix && unsafe { self.key() } < key)
    }
}

impl<V> Child<V> {
    fn copy(&self) -> Self {
        Child::new(self.low.clone(), self.link(), self.weight.load(Ordering::Relaxed))
    }

    fn new(low: Key, node: Link<Node<V>>, weight: u64) -> Self {
        Child { low, node: LinkCell::new(Some(node)), weight: AtomicU64::new(weight) }
    }

    fn link(&self) -> Link<Node<V>> {
        self.node.load().expect("a child leads to a node")
    }
}

impl<V> Node<V> {
    fn weight(&self) -> u64 {
        match self {
            Node::Leaf(slots) => {
                slots.iter().map(|slot| u64::from(slot.weight.load(Ordering::Relaxed))).sum()
            }
            Node::Inner(children) => children.iter().map(|child| child.weight.load(Ordering::Relaxed)).sum(),
        }
    }
}

/// The child that holds `key`.
fn child_of<V>(children: &[Child<V>], key: KeyRef<'_>) -> usize {
    children[1..].partition_point(|child| child.low.as_ref() <= key)
}

/// A node on the way to a leaf, and the child taken.
type Step<V> = (Link<Node<V>>, usize);

/// What takes a node's place.
enum Instead<V> {
    Nothing,
    One(Link<Node<V>>),
    /// The first, and at most [`PIECES_MAX`] after it, each with the key that it begins at.
    Several(Link<Node<V>>, Vec<(Key, Link<Node<V>>)>),
}

impl<V: Send + Sync> Tree<V> {
    pub fn new() -> Self {
        Tree { root: LinkCell::new(None), weight: AtomicU64::new(0), keys: AtomicU64::new(0) }
    }

    /// Postings of all keys.
    pub fn weight(&self) -> u64 {
        self.weight.load(Ordering::Relaxed)
    }

    /// Number of keys.
    pub fn keys(&self) -> u64 {
        self.keys.load(Ordering::Relaxed)
    }

    /// Owner: passes the value of `key`, made first when there is none, to `change`, whose answer is what the weight changes
    /// by.
    ///
    /// # Safety
    /// `attic` is the one that made all parts of this tree, and its domain that of the readers.
    pub unsafe fn update<R>(
        &self,
        attic: &mut Attic,
        key: KeyRef<'_>,
        make: impl FnOnce() -> V,
        change: impl FnOnce(&V, &mut Attic) -> (i32, R),
    ) -> R {
        let mut path = Vec::with_capacity(8);
        if let Some(slot) = self.find(key, &mut path) {
            return self.change(attic, &path, slot, change);
        }
        self.insert(attic, key, make(), &path);
        path.clear();
        let slot = self.find(key, &mut path).expect("it has just been inserted");
        self.change(attic, &path, slot, change)
    }

    /// Owner: makes a value of weight 0 for each of these keys that is absent. The keys ascend, and all that belong to one leaf cost one copy of it.
    ///
    /// # Safety
    /// As [`Self::update`].
    pub unsafe fn enter<'k>(
        &self,
        attic: &mut Attic,
        keys: impl Iterator<Item = KeyRef<'k>>,
        mut make: impl FnMut() -> V,
    ) {
        let (mut keys, mut path) = (keys.peekable(), Vec::with_capacity(8));
        while let Some(&first) = keys.peek() {
            path.clear();
            self.find(first, &mut path);
            let Some((&(leaf, at), above)) = path.split_last() else {
                self.insert(attic, first, make(), &[]);
                continue;
            };
            // SAFETY: the owner, on the way just taken.
            let Node::Leaf(slots) = (unsafe { leaf.get() }) else { unreachable!("a path ends at a leaf") };
            let end = end_of(above);
            let mut more: Vec<LeafSlot<V>> = Vec::with_capacity(slots.len() + 1);
            more.extend(slots[..at].iter().map(LeafSlot::copy));
            let (mut others, mut entered) = (slots[at..].iter().peekable(), 0);
            while let Some(&key) = keys.peek()
                && end.is_none_or(|end| key < end)
            {
                // SAFETY: the entry is linked from the leaf, which is freed only after `retire` below.
                while let Some(other) = others.next_if(|other| unsafe { other.key() } < key) {
                    more.push(other.copy());
                }
                // SAFETY: the entry is linked from the leaf, which is freed only after `retire` below.
                if others.peek().is_none_or(|other| unsafe { other.key() } != key) {
                    if entered == ENTERED_MAX {
                        break;
                    }
                    entered += 1;
                    more.push(new_slot(attic, key, make()));
                }
                keys.next();
            }
            if entered == 0 {
                continue;
            }
            more.extend(others.map(LeafSlot::copy));
            self.keys.store(self.keys() + entered as u64, Ordering::Relaxed);
            // Keys that come in order leave full leaves behind; others leave room in all of them.
            let is_end = at == slots.len();
            let each = if is_end { NODE_MAX } else { more.len().div_ceil(more.len().div_ceil(NODE_MAX)) };
            let mut more = more.into_iter();
            let mut piece = || -> Box<[LeafSlot<V>]> { more.by_ref().take(each).collect() };
            let first = attic.make(Node::Leaf(piece()));
            let mut pieces = Vec::new();
            loop {
                let slots = piece();
                // SAFETY: linked, or made just now.
                let Some(low) = slots.first().map(|slot| unsafe { slot.key() }.to_owned()) else { break };
                pieces.push((low, attic.make(Node::Leaf(slots))));
            }
            let instead =
                if pieces.is_empty() { Instead::One(first) } else { Instead::Several(first, pieces) };
            self.put(attic, above, instead);
            // SAFETY: `put` has linked what takes its place.
            unsafe { attic.retire(leaf) };
        }
    }

    /// Owner: as [`Self::update`] for a key that may be absent, which is answered by `None`.
    ///
    /// # Safety
    /// As [`Self::update`].
    pub unsafe fn update_existing<R>(
        &self,
        attic: &mut Attic,
        key: KeyRef<'_>,
        change: impl FnOnce(&V, &mut Attic) -> (i32, R),
    ) -> Option<R> {
        let mut path = Vec::with_capacity(8);
        let slot = self.find(key, &mut path)?;
        Some(self.change(attic, &path, slot, change))
    }

    fn change<R>(
        &self,
        attic: &mut Attic,
        path: &[Step<V>],
        slot: &LeafSlot<V>,
        change: impl FnOnce(&V, &mut Attic) -> (i32, R),
    ) -> R {
        // SAFETY: the owner, and an entry that is linked; `change` has no way to this tree.
        let (by, answer) = change(&unsafe { slot.entry.get() }.value, attic);
        if by != 0 {
            slot.weight.store(slot.weight.load(Ordering::Relaxed).wrapping_add_signed(by), Ordering::Relaxed);
            for &(node, index) in path {
                // SAFETY: the owner, on the way just taken.
                if let Node::Inner(children) = unsafe { node.get() } {
                    shift(&children[index].weight, by);
                }
            }
            shift(&self.weight, by);
        }
        answer
    }

    /// The way to the leaf of `key`, and its slot there. Owner.
    fn find<'a>(&'a self, key: KeyRef<'_>, path: &mut Vec<Step<V>>) -> Option<&'a LeafSlot<V>> {
        let mut link = self.root.load()?;
        // SAFETY: the owner frees nothing while it walks.
        unsafe {
            loop {
                match link.get() {
                    Node::Inner(children) => {
                        let index = child_of(children, key);
                        path.push((link, index));
                        link = children[index].link();
                    }
                    Node::Leaf(slots) => {
                        let at = slots.partition_point(|slot| slot.is_below(key));
                        path.push((link, at));
                        return slots.get(at).filter(|slot| slot.key() == key);
                    }
                }
            }
        }
    }

    /// Puts a new entry into the leaf that `path` ends at.
    fn insert(&self, attic: &mut Attic, key: KeyRef<'_>, value: V, path: &[Step<V>]) {
        let new = new_slot(attic, key, value);
        self.keys.store(self.keys() + 1, Ordering::Relaxed);
        let Some((&(leaf, at), path)) = path.split_last() else {
            let root = attic.make(Node::Leaf(Box::new([new])));
            self.root.store(Some(root));
            return;
        };
        // SAFETY: the owner, on the way just taken.
        let Node::Leaf(slots) = (unsafe { leaf.get() }) else { unreachable!("a path ends at a leaf") };
        let mut more = Vec::with_capacity(slots.len() + 1);
        more.extend(slots[..at].iter().map(LeafSlot::copy));
        more.push(new);
        more.extend(slots[at..].iter().map(LeafSlot::copy));
        let instead = if more.len() <= NODE_MAX {
            Instead::One(attic.make(Node::Leaf(more.into())))
        } else {
            // Keys that come in order leave full leaves behind.
            let middle = if at == slots.len() { more.len() - 1 } else { more.len() / 2 };
            let right = more.split_off(middle);
            // SAFETY: linked, or made just now.
            let low = unsafe { right[0].key() }.to_owned();
            let left = attic.make(Node::Leaf(more.into()));
            Instead::Several(left, vec![(low, attic.make(Node::Leaf(right.into())))])
        };
        self.put(attic, path, instead);
        // SAFETY: `put` has linked what takes its place.
        unsafe { attic.retire(leaf) };
    }

    /// Links `instead` where `path` ends.
    fn put(&self, attic: &mut Attic, path: &[Step<V>], instead: Instead<V>) {
        // SAFETY: linked by the caller's doing, or made just now.
        let weight = |node: Link<Node<V>>| unsafe { node.get() }.weight();
        let Some((&(parent, index), above)) = path.split_last() else {
            let root = match instead {
                Instead::Nothing => None,
                Instead::One(node) => Some(node),
                Instead::Several(first, others) => {
                    let first = Child::new(KeyRef::number(0).to_owned(), first, weight(first));
                    let others = others.into_iter().map(|(low, node)| Child::new(low, node, weight(node)));
                    Some(attic.make(Node::Inner([first].into_iter().chain(others).collect())))
                }
            };
            self.root.store(root);
            return;
        };
        // SAFETY: the owner, on the way just taken.
        let Node::Inner(children) = (unsafe { parent.get() }) else { unreachable!("a leaf has no children") };
        let mut changed: Vec<Child<V>>;
        match instead {
            Instead::One(node) => {
                children[index].node.store(Some(node));
                return;
            }
            Instead::Nothing => {
                let others = children.iter().enumerate().filter(|&(other, _)| other != index);
                changed = others.map(|(_, child)| child.copy()).collect();
            }
            Instead::Several(first, others) => {
                changed = children.iter().map(Child::copy).collect();
                changed[index] = Child::new(children[index].low.clone(), first, weight(first));
                let others = others.into_iter().map(|(low, node)| Child::new(low, node, weight(node)));
                changed.splice(index + 1..index + 1, others);
            }
        }
        self.put_children(attic, parent, above, changed);
    }

    /// Links a node of `changed` children where `parent` was.
    fn put_children(
        &self,
        attic: &mut Attic,
        parent: Link<Node<V>>,
        above: &[Step<V>],
        mut changed: Vec<Child<V>>,
    ) {
        let instead = match changed.len() {
            0 => Instead::Nothing,
            // A root with one child is a level too many.
            1 if above.is_empty() => Instead::One(changed[0].link()),
            len if len <= NODE_MAX => Instead::One(attic.make(Node::Inner(changed.into()))),
            len => {
                let right = changed.split_off(len / 2);
                let low = right[0].low.clone();
                let left = attic.make(Node::Inner(changed.into()));
                Instead::Several(left, vec![(low, attic.make(Node::Inner(right.into())))])
            }
        };
        self.put(attic, above, instead);
        // SAFETY: unlinked by `put`.
        unsafe { attic.retire(parent) };
    }

    /// Owner: takes `key` out, whose weight is 0.
    ///
    /// # Safety
    /// As [`Self::update`].
    pub unsafe fn remove(&self, attic: &mut Attic, key: KeyRef<'_>) {
        let mut path = Vec::with_capacity(8);
        let Some(slot) = self.find(key, &mut path) else { return };
        debug_assert_eq!(slot.weight.load(Ordering::Relaxed), 0);
        let gone = slot.entry;
        let (leaf, at) = path.pop().expect("a found key has a leaf");
        // SAFETY: the owner, on the way just taken.
        let Node::Leaf(slots) = (unsafe { leaf.get() }) else { unreachable!("a path ends at a leaf") };
        let mut fewer: Vec<LeafSlot<V>> = Vec::with_capacity(slots.len() - 1);
        fewer.extend(slots[..at].iter().chain(&slots[at + 1..]).map(LeafSlot::copy));
        if fewer.is_empty() {
            self.put(attic, &path, Instead::Nothing);
        } else if fewer.len() >= NODE_MIN || !self.merge(attic, &path, &mut fewer) {
            let leaf = attic.make(Node::Leaf(fewer.into()));
            self.put(attic, &path, Instead::One(leaf));
        }
        self.keys.store(self.keys() - 1, Ordering::Relaxed);
        // SAFETY: the leaf has been replaced, and with it the only way to the entry.
        unsafe {
            attic.retire(leaf);
            attic.retire(gone);
        }
    }

    /// Joins what is left of the leaf at the end of `path` with a sibling, if the two are small enough.
    fn merge(&self, attic: &mut Attic, path: &[Step<V>], left_over: &mut Vec<LeafSlot<V>>) -> bool {
        let Some((&(parent, index), above)) = path.split_last() else { return false };
        // SAFETY: the owner, on the way just taken.
        let Node::Inner(children) = (unsafe { parent.get() }) else { unreachable!("a leaf has no children") };
        for sibling in [index + 1, index.wrapping_sub(1)] {
            let Some(child) = children.get(sibling) else { continue };
            let link = child.link();
            // SAFETY: as above.
            let Node::Leaf(slots) = (unsafe { link.get() }) else { unreachable!("leaves are on one level") };
            if slots.len() + left_over.len() > MERGED_MAX {
                continue;
            }
            let others = slots.iter().map(LeafSlot::copy);
            let at = if sibling > index { left_over.len() } else { 0 };
            left_over.splice(at..at, others);
            let merged = attic.make(Node::Leaf(std::mem::take(left_over).into()));
            let mut changed: Vec<Child<V>> = children.iter().map(Child::copy).collect();
            let first = index.min(sibling);
            let low = changed[first].low.clone();
            // SAFETY: made just now.
            changed[first] = Child::new(low, merged, unsafe { merged.get() }.weight());
            changed.remove(first + 1);
            self.put_children(attic, parent, above, changed);
            // SAFETY: unlinked with its parent.
            unsafe { attic.retire(link) };
            return true;
        }
        false
    }

    /// The value of a key and its weight.
    ///
    /// # Safety
    /// A pin taken before this call outlives `'p` and is of the owner's domain; or the caller is the owner, and changes nothing
    /// during `'p`.
    pub unsafe fn get<'p>(&'p self, key: KeyRef<'_>) -> Option<(&'p V, u64)> {
        // SAFETY: the caller's pin, under which the leaf, its slots and their entries are reached.
        unsafe {
            let slots = self.leaf(key)?;
            let slot = slots.get(slots.partition_point(|slot| slot.is_below(key)))?;
            (slot.key() == key).then(|| slot.found())
        }
    }

    /// As [`Self::get`], of a tree whose keys are all numbers ([`KeyRef::number`]). The value is not looked at, nor the line that
    /// holds it fetched.
    ///
    /// # Safety
    /// As [`Self::get`], as long as the answer is held.
    pub unsafe fn get_number(&self, number: u64) -> Option<(&V, u64)> {
        // SAFETY: the caller's pin, under which the leaf, its slots and their entries are reached.
        unsafe {
            let slots = self.leaf(KeyRef::number(number))?;
            let slot = slots.get(slots.partition_point(|slot| slot.prefix < number))?;
            (slot.prefix == number).then(|| slot.found())
        }
    }

    /// The leaf that holds a key if any does.
    ///
    /// # Safety
    /// As [`Self::get`].
    unsafe fn leaf<'p>(&'p self, key: KeyRef<'_>) -> Option<&'p [LeafSlot<V>]> {
        let mut link = self.root.load()?;
        loop {
            // SAFETY: reached under the pin.
            match unsafe { link.get() } {
                Node::Inner(children) => link = children[child_of(children, key)].link(),
                Node::Leaf(slots) => return Some(slots),
            }
        }
    }

    /// Passes the values of a span to `visit`, by ascending key, until it breaks.
    ///
    /// # Safety
    /// As [`Self::get`].
    pub unsafe fn for_each<'p>(
        &'p self,
        span: &Span,
        visit: &mut impl FnMut(&'p V) -> ControlFlow<()>,
    ) -> ControlFlow<()> {
        match self.root.load() {
            // SAFETY: the caller's.
            Some(root) => unsafe { walk(root, span.low.as_ref(), span.high.as_ref(), visit) },
            None => ControlFlow::Continue(()),
        }
    }

    /// Postings of a span's keys, about (the owner may be changing it). Two paths' work.
    ///
    /// # Safety
    /// As [`Self::get`].
    pub unsafe fn weight_of(&self, span: &Span) -> u64 {
        match self.root.load() {
            // SAFETY: the caller's.
            Some(root) => unsafe { weigh(root, span.low.as_ref(), span.high.as_ref()) },
            None => 0,
        }
    }
}

/// An entry of weight 0.
fn new_slot<V: Send + Sync>(attic: &mut Attic, key: KeyRef<'_>, value: V) -> LeafSlot<V> {
    let entry = attic.make(LeafEntry { rest: key.rest.into(), len: key.len, value });
    LeafSlot { prefix: key.prefix, entry, weight: AtomicU32::new(0) }
}

/// The first key that belongs to another leaf than the one that the way `above` leads to. For the owner, who changes nothing on the way meanwhile.
fn end_of<'a, V: 'a>(above: &[Step<V>]) -> Option<KeyRef<'a>> {
    above.iter().rev().find_map(|&(node, index)| {
        // SAFETY: the owner, on the way just taken; a node that is replaced is freed only when the owner reclaims.
        let Node::Inner(children) = (unsafe { node.get() }) else { unreachable!("a leaf has no children") };
        children.get(index + 1).map(|child| child.low.as_ref())
    })
}

fn shift(weight: &AtomicU64, by: i32) {
    weight.store(weight.load(Ordering::Relaxed).wrapping_add_signed(by.into()), Ordering::Relaxed);
}

/// The slots of a leaf between two edges.
///
/// # Safety
/// As `Link::get`.
unsafe fn within<'a, V>(
    slots: &'a [LeafSlot<V>],
    low: Option<&Edge>,
    high: Option<&Edge>,
) -> &'a [LeafSlot<V>] {
    let place = |edge: &Edge| {
        // SAFETY: the caller's.
        slots.partition_point(|slot| !edge.is_before(unsafe { slot.key() }))
    };
    let from = low.map_or(0, place);
    let to = high.map_or(slots.len(), place);
    &slots[from..to.max(from)]
}

/// The children that may hold keys between two edges: first, and last inclusive.
fn between<V>(children: &[Child<V>], low: Option<&Edge>, high: Option<&Edge>) -> (usize, usize) {
    let first = low.map_or(0, |edge| child_of(children, edge.key.as_ref()));
    let last = high.map_or(children.len() - 1, |edge| child_of(children, edge.key.as_ref()));
    (first, last)
}

/// # Safety
/// As `Tree::get`.
unsafe fn walk<'p, V>(
    node: Link<Node<V>>,
    low: Option<&Edge>,
    high: Option<&Edge>,
    visit: &mut impl FnMut(&'p V) -> ControlFlow<()>,
) -> ControlFlow<()>
where
    V: 'p,
{
    // SAFETY: the caller's.
    unsafe {
        match node.get() {
            Node::Leaf(slots) => {
                for slot in within(slots, low, high) {
                    visit(&slot.entry.get().value)?;
                }
            }
            Node::Inner(children) => {
                let (first, last) = between(children, low, high);
                for (index, child) in children.iter().enumerate().take(last + 1).skip(first) {
                    let low = low.filter(|_| index == first);
                    let high = high.filter(|_| index == last);
                    walk(child.link(), low, high, visit)?;
                }
            }
        }
    }
    ControlFlow::Continue(())
}

/// # Safety
/// As `Tree::get`.
unsafe fn weigh<V>(node: Link<Node<V>>, low: Option<&Edge>, high: Option<&Edge>) -> u64 {
    // SAFETY: the caller's.
    unsafe {
        match node.get() {
            Node::Leaf(slots) => {
                let slots = within(slots, low, high);
                slots.iter().map(|slot| u64::from(slot.weight.load(Ordering::Relaxed))).sum()
            }
            Node::Inner(children) => {
                let (first, last) = between(children, low, high);
                let part = |(index, child): (usize, &Child<V>)| {
                    let low = low.filter(|_| index == first);
                    let high = high.filter(|_| index == last);
                    match (low, high) {
                        (None, None) => child.weight.load(Ordering::Relaxed),
                        _ => weigh(child.link(), low, high),
                    }
                };
                children.iter().enumerate().take(last + 1).skip(first).map(part).sum()
            }
        }
    }
}

impl<V: Send + Sync> Drop for Tree<V> {
    fn drop(&mut self) {
        /// # Safety
        /// Nobody else uses the nodes below.
        unsafe fn free<V>(node: Link<Node<V>>) {
            // SAFETY: the caller's; every part is linked from one place.
            unsafe {
                match node.get() {
                    Node::Leaf(slots) => slots.iter().for_each(|slot| slot.entry.free()),
                    Node::Inner(children) => children.iter().for_each(|child| free(child.link())),
                }
                node.free();
            }
        }
        if let Some(root) = self.root.load() {
            // SAFETY: exclusive access; what waits in the attic is not linked from here.
            unsafe { free(root) };
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::memory::Domain;
    use proptest::prelude::*;
    use std::collections::{BTreeMap, BTreeSet};

    proptest! {
        #![proptest_config(ProptestConfig { cases: 40, failure_persistence: None, ..ProptestConfig::default() })]

        #[test]
        fn a_tree_is_a_sorted_map_with_sums(
            batches in prop::collection::vec(prop_oneof![
                prop::collection::vec(0..4000u64, 0..800),
                (0..4000u64, 0..2500u64).prop_map(|(from, count)| (from..(from + count).min(4000)).collect()),
            ], 0..4),
            ascending in 0..3000u64,
            ops in prop::collection::vec((0..4000u64, 0..4u8), 0..1500),
            spans in prop::collection::vec((0..4200u64, any::<bool>(), 0..4200u64, any::<bool>()), 10),
            texts in any::<bool>(),
        ) {
            let text = |n: u64| format!("key-{n:04}-{}", "x".repeat((n % 5) as usize));
            let with_key = |n: u64, f: &mut dyn FnMut(KeyRef<'_>)| {
                if texts { f(KeyRef::new(text(n).as_bytes())) } else { f(KeyRef::number(n)) }
            };
            let mut attic = Attic::new(Domain::new(1));
            let tree: Tree<u64> = Tree::new();
            let mut twin: BTreeMap<u64, i64> = BTreeMap::new();
            for batch in batches {
                let batch: BTreeSet<u64> = batch.into_iter().collect();
                let owned: Vec<Key> = batch.iter().map(|&n| {
                    let mut owned = None;
                    with_key(n, &mut |key| owned = Some(key.to_owned()));
                    owned.unwrap()
                }).collect();
                let mut makes = batch.iter().copied().filter(|n| !twin.contains_key(n)).collect::<Vec<_>>().into_iter();
                // SAFETY: one attic, one thread.
                unsafe { tree.enter(&mut attic, owned.iter().map(Key::as_ref), || makes.next().unwrap()) };
                prop_assert_eq!(makes.next(), None, "each absent key is made once, in order");
                twin.extend(batch.into_iter().map(|n| (n, 0)).filter(|(n, _)| !twin.contains_key(n)).collect::<Vec<_>>());
                prop_assert_eq!(tree.keys(), twin.len() as u64);
            }
            let mut add = |twin: &mut BTreeMap<u64, i64>, n: u64, by: i32| {
                // SAFETY: one attic, one thread.
                with_key(n, &mut |key| unsafe { tree.update(&mut attic, key, || n, |_, _| (by, ())) });
                *twin.entry(n).or_default() += i64::from(by);
            };
            for n in 0..ascending {
                add(&mut twin, n, 1);
            }
            for (n, op) in ops {
                match op {
                    0..2 => add(&mut twin, n, 2),
                    _ => {
                        let Some((&n, &weight)) = twin.range(n..).next() else { continue };
                        add(&mut twin, n, -(weight as i32));
                    }
                }
            }
            let empty: Vec<u64> = twin.iter().filter(|(_, weight)| **weight == 0).map(|(&n, _)| n).collect();
            for n in empty {
                // SAFETY: as above.
                with_key(n, &mut |key| unsafe { tree.remove(&mut attic, key) });
                twin.remove(&n);
            }
            prop_assert_eq!(tree.keys(), twin.len() as u64);
            prop_assert_eq!(tree.weight() as i64, twin.values().sum::<i64>());
            for (from, from_after, to, to_after) in spans {
                let mut span = Span::default();
                with_key(from, &mut |key| span.low = Some(Edge { key: key.to_owned(), after: from_after }));
                with_key(to, &mut |key| span.high = Some(Edge { key: key.to_owned(), after: to_after }));
                let inside = |n: u64| (n > from || (n == from && !from_after)) && (n < to || (n == to && to_after));
                let wanted: Vec<u64> = twin.keys().copied().filter(|&n| inside(n)).collect();
                let mut found = Vec::new();
                // SAFETY: nothing changes meanwhile.
                let _ = unsafe { tree.for_each(&span, &mut |&n| { found.push(n); ControlFlow::Continue(()) }) };
                prop_assert_eq!(&found, &wanted);
                let weight: i64 = wanted.iter().map(|n| twin[n]).sum();
                // SAFETY: as above.
                prop_assert_eq!(unsafe { tree.weight_of(&span) } as i64, weight);
            }
            for (&n, &weight) in &twin {
                with_key(n, &mut |key| {
                    // SAFETY: as above.
                    let found = unsafe { tree.get(key) }.map(|(&value, weight)| (value, weight as i64));
                    assert_eq!(found, Some((n, weight)));
                });
            }
            let all: Vec<u64> = twin.keys().copied().collect();
            for n in all {
                let weight = twin.remove(&n).unwrap() as i32;
                with_key(n, &mut |key| {
                    // SAFETY: as above.
                    unsafe {
                        tree.update_existing(&mut attic, key, |_, _| (-weight, ())).unwrap();
                        tree.remove(&mut attic, key);
                    }
                });
            }
            attic.reclaim(usize::MAX);
            prop_assert_eq!((tree.keys(), tree.weight(), attic.held_bytes()), (0, 0, 0));
        }
    }
}
