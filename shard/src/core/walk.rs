//! Walks over all points that match, on the owner core in slices, and sorting what they gave.

use super::Core;
use super::read::MATCHING_STEP;
use crate::error::OpError;
use crate::owner::Owned;
use crate::question::Asked;
use crate::question::OpenPoint;
use crate::slice::Slice;
use nigh_engine::collection::{MatchCursor, Point};
use nigh_engine::filter::Predicate;
use std::cmp::Ordering;

/// Items sorted or merged between two looks at the clock.
const SORT_STEP: usize = 512;

/// Sorts in slices: runs first, which are then merged two by two. Equal items keep no order.
pub(super) async fn sort_in_slices<T>(
    items: Vec<T>,
    slice: &mut Slice,
    compare: impl Fn(&T, &T) -> Ordering,
) -> Vec<T> {
    let mut runs: Vec<Vec<T>> = Vec::with_capacity(items.len().div_ceil(SORT_STEP));
    let mut items = items.into_iter();
    while items.len() > 0 {
        let mut run: Vec<T> = items.by_ref().take(SORT_STEP).collect();
        run.sort_unstable_by(&compare);
        runs.push(run);
        slice.check().await;
    }
    while runs.len() > 1 {
        let mut merged = Vec::with_capacity(runs.len().div_ceil(2));
        let mut pairs = runs.into_iter();
        while let Some(first) = pairs.next() {
            let Some(second) = pairs.next() else {
                merged.push(first);
                break;
            };
            let mut into = Vec::with_capacity(first.len() + second.len());
            let (mut first, mut second) = (first.into_iter().peekable(), second.into_iter().peekable());
            while let Some(next) = match (first.peek(), second.peek()) {
                (Some(a), Some(b)) if compare(b, a).is_lt() => second.next(),
                (Some(_), _) => first.next(),
                (None, _) => second.next(),
            } {
                into.push(next);
                if into.len().is_multiple_of(SORT_STEP) {
                    slice.check().await;
                }
            }
            merged.push(into);
        }
        runs = merged;
    }
    runs.pop().unwrap_or_default()
}

/// Points looked up by id between two looks at the clock.
const IDS_STEP: usize = 64;

impl Core {
    /// Hands on every point that matches, with the time of its look, in no order that a caller may rely on. The walk shows no single
    /// moment: what is written meanwhile may be met or missed. Without a filter no point that was there throughout is missed or met
    /// twice; with one a point may be when it is replaced meanwhile, as slots are walked then.
    ///
    /// # Errors
    /// The collection is dropped or damaged meanwhile; the filter takes too long.
    pub(super) async fn each_match(
        &self,
        owned: &Owned,
        filter: Option<&Predicate>,
        mut each: impl FnMut(&Point<'_>, u64),
    ) -> Result<(), OpError> {
        let mut slice = Slice::begin(self.env());
        let Some(filter) = filter.filter(|filter| !filter.is_trivially_true()) else {
            let mut next = Some(0);
            while let Some(from) = next {
                owned.usable()?;
                {
                    let writer = owned.writer.borrow();
                    let ids: Vec<u64> = writer.points().ids_from(from).take(IDS_STEP).collect();
                    let last = ids.last().filter(|_| ids.len() == IDS_STEP);
                    next = last.and_then(|id| id.checked_add(1));
                    let (pin, now_ms) = (self.pin(), self.env().unix_ms());
                    for id in ids {
                        if let Some(point) = writer.shared().get(&pin, id, now_ms) {
                            each(&point, now_ms);
                        }
                    }
                }
                slice.check().await;
            }
            return Ok(());
        };
        let (mut cursor, mut asked) = (MatchCursor::default(), Asked::default());
        while !cursor.is_done() {
            owned.usable()?;
            let open = asked.count(&slice, || {
                let (pin, now_ms) = (self.pin(), self.env().unix_ms());
                let dense = owned.handle.dense(&pin);
                dense.match_slice(&pin, filter, now_ms, &mut cursor, MATCHING_STEP, |slot| {
                    each(&dense.point(&pin, slot), now_ms);
                });
                cursor.take_open().map(|slot| OpenPoint::at(dense, &pin, slot))
            });
            slice.check().await;
            if let Some(open) = open {
                self.ctx.settle_point(owned, filter, &open, (&mut asked, &mut slice), &mut each).await?;
            }
            asked.check()?;
        }
        Ok(())
    }
}

/// What needs a slice, in a simulation.
#[cfg(test)]
pub(super) fn with_slice<T>(f: impl AsyncFnOnce(&mut Slice) -> T) -> T {
    use crate::env::Env;
    use crate::sim::{Cores, SimEnv};
    use std::rc::Rc;

    crate::sim::run(1, |sim| async move {
        let env: Rc<dyn Env> = SimEnv::new(sim, 0, Cores::new(1), None);
        f(&mut Slice::begin(&env)).await
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn sorts_as_the_library_does(mut items in prop::collection::vec(0u32..5000, 0..4000)) {
            let sorted = with_slice(async |slice| sort_in_slices(items.clone(), slice, |a, b| b.cmp(a)).await);
            items.sort_unstable_by(|a, b| b.cmp(a));
            prop_assert_eq!(sorted, items);
        }
    }
}
