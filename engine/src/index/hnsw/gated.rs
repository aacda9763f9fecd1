//! A beam among the nodes that pass a gate.
//!
//! A walk that scores every neighbour and refuses most spends its distances on what it may not return: with one node in ten
//! passing, ten times as many as an unfiltered walk. Here a node that does not pass is not scored but looked through: what
//! passes among *its* neighbours is scored instead (ACORN-1, arXiv:2403.04871). A bit costs a hundredth of a distance, so the
//! way through stays cheap until almost nothing passes; then the planner scans.
//!
//! Deviations from the paper: no pruned degree at build time; the neighbours looked through are only as many as it takes to
//! find enough; and where nothing passes for two steps around, the walk goes on over nodes that do not, so that an island of
//! passing nodes is reached from afar.
use super::links::Links;
use super::search::{EXPANSIONS_PER_STEP, Probe};
use super::{Admit, Graph, Scratch};
use crate::index::{Neighbor, Slot};
use crate::pace::{Pace, TooLong};

/// Edge lists fetched ahead of the one being looked through.
const LOOKED_THROUGH_AHEAD: usize = 6;

impl Graph {
    /// As [`Self::search_paced`], for nodes that pass `gate`, which is asked many times and must be cheap; `admit` is asked once
    /// about those that come near. `None` when `effort` distances were not enough: there are too few, too far.
    ///
    /// Cost: about that of an unfiltered search down to one passing node in ten, twice that at one in thirty.
    ///
    /// # Errors
    /// [`TooLong`].
    ///
    /// # Panics
    /// When `query` is not a padded row.
    #[allow(clippy::too_many_arguments)] // One call site; a struct would only rename the list.
    pub async fn search_gated<'s>(
        &self,
        query: &[f32],
        k: usize,
        ef: usize,
        effort: usize,
        pace: &mut impl Pace,
        scratch: &'s mut Scratch,
        gate: impl Fn(Slot) -> bool,
        admit: &mut impl Admit,
    ) -> Result<Option<&'s [Neighbor]>, TooLong> {
        self.begin_search(query, scratch);
        if ef == 0 || self.entry().is_none() {
            return Ok(Some(&scratch.found));
        }
        let mut forms = std::mem::take(&mut scratch.query);
        let probe = self.probe(query, &mut forms);
        let walked = self.walk_gated(probe, ef, effort, pace, scratch, &gate, admit).await;
        let finished = match walked {
            Ok(true) => self.finish_search(query, probe, k, pace, scratch).await,
            _ => Ok(()),
        };
        scratch.query = forms;
        finished?;
        Ok(walked?.then_some(&scratch.found))
    }

    /// False when `effort` distances were not enough.
    #[allow(clippy::too_many_arguments)] // As above.
    async fn walk_gated(
        &self,
        probe: Probe<'_>,
        ef: usize,
        effort: usize,
        pace: &mut impl Pace,
        scratch: &mut Scratch,
        gate: &impl Fn(Slot) -> bool,
        admit: &mut impl Admit,
    ) -> Result<bool, TooLong> {
        let Some((entry, top)) = self.entry() else { return Ok(true) };
        let mut at = self.begin_descent(probe, entry, scratch);
        for level in (1..=top).rev() {
            while let Some(nearer) = self.hop(probe, level, at, scratch) {
                at = nearer;
            }
        }
        // `walk_copies` looks for copies, so that the beam need not.
        self.begin_beam(at, (ef, 0), scratch, &mut |slot: Slot| gate(slot) && admit.admits(slot));
        let (mut open, mut counted) = (true, 0);
        while open {
            open = (0..EXPANSIONS_PER_STEP).all(|_| self.expand_gated(probe, scratch, gate, admit));
            let distances = scratch.stats.distances;
            if open && distances > effort as u64 {
                return Ok(false);
            }
            pace.step((distances - counted) as usize).await?;
            counted = distances;
        }
        self.walk_copies(probe, (ef, effort), pace, scratch, gate, admit).await?;
        Ok(true)
    }

    /// Looks for more copies of the vectors that were found more than once. The beam above finds only some of the copies of a vector that pass:
    /// copies hang below each other in the tree, and the beam does not look further than two steps through those that do not pass. This walk
    /// goes from copy to copy whether they pass or not.
    ///
    /// Cost: nothing where no vector was found twice, else the distances to the neighbours of up to `ef` copies, within `effort`.
    async fn walk_copies(
        &self,
        probe: Probe<'_>,
        (ef, effort): (usize, usize),
        pace: &mut impl Pace,
        scratch: &mut Scratch,
        gate: &impl Fn(Slot) -> bool,
        admit: &mut impl Admit,
    ) -> Result<(), TooLong> {
        let found = scratch.pool.copies();
        if found.is_empty() {
            return Ok(());
        }
        scratch.visited.reset(self.slots_end());
        let Scratch { visited, pool, .. } = &mut *scratch;
        pool.held().for_each(|near| {
            visited.insert(near.slot);
        });
        let mut expansions = 0;
        for (fingerprint, copies) in found {
            let Some(&first) = copies.first() else { continue };
            let mut open: Vec<Slot> = copies.iter().map(|near| near.slot).collect();
            while let Some(copy) = open.pop() {
                if expansions == ef || scratch.stats.distances > effort as u64 {
                    return Ok(());
                }
                expansions += 1;
                let Scratch { visited, fresh, .. } = &mut *scratch;
                fresh.clear();
                self.links.for_each(copy, 0, |edge| {
                    if visited.insert(edge) {
                        fresh.push(edge);
                    }
                });
                Links::acquire();
                self.score(probe, scratch);
                scratch.stats.expanded += 1;
                let Scratch { fresh, distances, pool, .. } = &mut *scratch;
                for (&slot, &distance) in fresh.iter().zip(distances.iter()) {
                    let near = Neighbor { distance, slot };
                    if near.is_as_far_as(first) && self.fingerprint(slot) == fingerprint {
                        open.push(slot);
                        if gate(slot) && pool.wants(near.order()) && admit.admits(slot) {
                            pool.insert(near.order(), true, &|slot| self.fingerprint(slot));
                        }
                    }
                }
                pace.step(scratch.fresh.len()).await?;
            }
        }
        Ok(())
    }

    /// Expands the nearest open node; false when none is left that could matter.
    fn expand_gated(
        &self,
        probe: Probe<'_>,
        scratch: &mut Scratch,
        gate: &impl Fn(Slot) -> bool,
        admit: &mut impl Admit,
    ) -> bool {
        let fingerprint = |slot| self.fingerprint(slot);
        let Some(nearest) = scratch.pool.pop(&fingerprint) else { return false };
        self.gather_gated(nearest, scratch, gate);
        let passing = !scratch.fresh.is_empty();
        if !passing {
            let Scratch { fresh, blocked, .. } = scratch;
            fresh.append(blocked);
        }
        if passing {
            self.score_and_look(probe, scratch, admit);
        } else {
            self.score(probe, scratch);
        }
        scratch.stats.expanded += 1;
        for (&slot, &distance) in scratch.fresh.iter().zip(&scratch.distances) {
            let order = Neighbor { distance, slot }.order();
            if scratch.pool.wants(order) {
                self.links.prefetch(slot);
                scratch.pool.insert(order, passing && admit.admits(slot), &fingerprint);
            }
        }
        true
    }

    /// Collects neighbours that pass, at one step or two. Nodes looked through count as met; those that were not needed any
    /// more do not.
    fn gather_gated(&self, slot: Slot, scratch: &mut Scratch, gate: &impl Fn(Slot) -> bool) {
        let Scratch { visited, fresh, blocked, passing, .. } = scratch;
        fresh.clear();
        blocked.clear();
        passing.resize(self.links.base_degree() + 1, 0);
        self.links.for_each(slot, 0, |edge| {
            if !visited.contains(edge) {
                if gate(edge) {
                    visited.insert(edge);
                    fresh.push(edge);
                } else {
                    blocked.push(edge);
                }
            }
        });
        // Half the edges of a node, about as many as lead to something new in an unfiltered walk. Twice as many cost half as many
        // distances again for a recall that was above the unfiltered one already.
        let enough = self.config.m;
        if fresh.len() < enough {
            blocked.iter().take(LOOKED_THROUGH_AHEAD).for_each(|&through| self.links.prefetch(through));
        }
        for (index, &through) in blocked.iter().enumerate() {
            if fresh.len() >= enough {
                break;
            }
            if let Some(&later) = blocked.get(index + LOOKED_THROUGH_AHEAD) {
                self.links.prefetch(later);
            }
            visited.insert(through);
            // Few pass, and which cannot be foreseen: without a branch for each.
            let mut count = 0;
            self.links.for_each(through, 0, |edge| {
                passing[count] = edge;
                count += usize::from(gate(edge));
            });
            fresh.extend(passing[..count].iter().filter(|&&edge| visited.insert(edge)));
        }
        Links::acquire();
    }
}
