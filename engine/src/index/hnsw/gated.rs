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
use super::search::{EXPANSIONS_PER_STEP, Probe, Wanted};
use super::{Admit, Graph, Scratch};
use crate::index::Neighbor;
use crate::pace::{Pace, TooLong};
use crate::slot::Slot;

/// Edge lists fetched ahead of the one being looked through.
const LOOKED_THROUGH_AHEAD: usize = 6;

/// The beam of one search behind a gate: which nodes it takes, how many, and how far the walk goes to find them.
pub struct GatedBeam<'a, G, A> {
    /// How many nodes that pass and are admitted the beam holds. The walk ends when none that is still open is nearer than the last of them.
    pub ef: usize,
    /// How many distances the walk may compute before it is given up.
    pub effort: usize,
    /// Whether a node passes. It is asked of nearly every edge that the walk meets, so it must be cheap.
    pub gate: G,
    /// Whether a node that passes may be returned. It is asked once about each that comes near enough to matter.
    pub admit: &'a mut A,
}

impl Graph {
    /// As [`Self::search_paced`], for nodes that pass the gate of `beam`. `None` when its effort was not enough: there are too few that
    /// pass, too far away.
    ///
    /// Cost: about that of an unfiltered search down to one passing node in ten, twice that at one in thirty.
    ///
    /// # Errors
    /// [`TooLong`].
    ///
    /// # Panics
    /// When `query` is not a padded row.
    pub async fn search_gated<'s>(
        &self,
        query: &[f32],
        wanted: Wanted,
        beam: GatedBeam<'_, impl Fn(Slot) -> bool, impl Admit>,
        pace: &mut impl Pace,
        scratch: &'s mut Scratch,
    ) -> Result<Option<&'s [Neighbor]>, TooLong> {
        self.begin_search(query, scratch);
        if beam.ef == 0 || self.entry().is_none() {
            return Ok(Some(&scratch.found));
        }
        let mut forms = std::mem::take(&mut scratch.query);
        let probe = self.probe(query, &mut forms);
        let walk = GatedWalk { graph: self, probe, beam, pace: &mut *pace, scratch: &mut *scratch };
        let walked = walk.run().await;
        let finished = match walked {
            Ok(true) => self.finish_search(query, probe, wanted, pace, scratch).await,
            _ => Ok(()),
        };
        scratch.query = forms;
        finished?;
        Ok(walked?.then_some(&scratch.found))
    }
}

/// One walk behind a gate. It leaves what it finds in the pool of its scratch.
struct GatedWalk<'a, G, A, P> {
    graph: &'a Graph,
    /// The query in the form that this walk scores.
    probe: Probe<'a>,
    beam: GatedBeam<'a, G, A>,
    /// Is told the distances that were computed.
    pace: &'a mut P,
    scratch: &'a mut Scratch,
}

impl<G: Fn(Slot) -> bool, A: Admit, P: Pace> GatedWalk<'_, G, A, P> {
    /// Walks from the entry point until the beam is done. False when the effort was not enough.
    async fn run(mut self) -> Result<bool, TooLong> {
        let GatedWalk { graph, probe, beam, scratch, .. } = &mut self;
        let Some((entry, top)) = graph.entry() else { return Ok(true) };
        let mut at = graph.begin_descent(*probe, entry, scratch);
        for level in (1..=top).rev() {
            while let Some(nearer) = graph.hop(*probe, level, at, scratch) {
                at = nearer;
            }
        }
        let GatedBeam { ef, effort, gate, admit } = beam;
        let effort = *effort as u64;
        // `walk_copies` looks for copies, so that the beam need not.
        graph.begin_beam(at, (*ef, 0), scratch, &mut |slot: Slot| gate(slot) && admit.admits(slot));
        let (mut open, mut counted, steps) = (true, 0, self.graph.steps_per_distance(self.probe));
        let expansions = (EXPANSIONS_PER_STEP / steps).max(1);
        while open {
            open = (0..expansions).all(|_| self.expand());
            let distances = self.scratch.stats.distances;
            if open && distances > effort {
                return Ok(false);
            }
            self.pace.step((distances - counted) as usize * steps).await?;
            counted = distances;
        }
        self.walk_copies().await?;
        Ok(true)
    }

    /// Looks for more copies of the vectors that were found more than once. The beam above finds only some of the copies of a vector that pass:
    /// copies hang below each other in the tree, and the beam does not look further than two steps through those that do not pass. This walk
    /// goes from copy to copy whether they pass or not.
    ///
    /// Cost: nothing where no vector was found twice, else the distances to the neighbours of up to `ef` copies, within `effort`.
    async fn walk_copies(&mut self) -> Result<(), TooLong> {
        let GatedWalk { graph, probe, beam: GatedBeam { ef, effort, gate, admit }, pace, scratch } = self;
        let found = scratch.pool.copies();
        if found.is_empty() {
            return Ok(());
        }
        scratch.visited.reset(graph.slots_end());
        let Scratch { visited, pool, .. } = &mut **scratch;
        pool.held().for_each(|near| {
            visited.insert(near.slot);
        });
        let mut expansions = 0;
        for (fingerprint, copies) in found {
            let Some(&first) = copies.first() else { continue };
            let mut open: Vec<Slot> = copies.iter().map(|near| near.slot).collect();
            while let Some(copy) = open.pop() {
                if expansions == *ef || scratch.stats.distances > *effort as u64 {
                    return Ok(());
                }
                expansions += 1;
                let Scratch { visited, fresh, .. } = &mut **scratch;
                fresh.clear();
                graph.links.for_each(copy, 0, |edge| {
                    if visited.insert(edge) {
                        fresh.push(edge);
                    }
                });
                Links::acquire();
                graph.score(*probe, scratch);
                scratch.stats.expanded += 1;
                let Scratch { fresh, distances, pool, .. } = &mut **scratch;
                for (&slot, &distance) in fresh.iter().zip(distances.iter()) {
                    let near = Neighbor { distance, slot };
                    if near.is_as_far_as(first) && graph.fingerprint(slot) == fingerprint {
                        open.push(slot);
                        if gate(slot) && pool.wants(near.order()) && admit.admits(slot) {
                            pool.insert(near.order(), true, &|slot| graph.fingerprint(slot));
                        }
                    }
                }
                pace.step(scratch.fresh.len() * graph.steps_per_distance(*probe)).await?;
            }
        }
        Ok(())
    }

    /// Expands the nearest open node; false when none is left that could matter.
    fn expand(&mut self) -> bool {
        let (graph, probe) = (self.graph, self.probe);
        let fingerprint = |slot| graph.fingerprint(slot);
        let Some(nearest) = self.scratch.pool.pop(&fingerprint) else { return false };
        self.gather(nearest);
        let (scratch, admit) = (&mut *self.scratch, &mut *self.beam.admit);
        let passing = !scratch.fresh.is_empty();
        if !passing {
            let Scratch { fresh, blocked, .. } = scratch;
            fresh.append(blocked);
        }
        if passing {
            graph.score_and_look(probe, scratch, admit);
        } else {
            graph.score(probe, scratch);
        }
        scratch.stats.expanded += 1;
        for (&slot, &distance) in scratch.fresh.iter().zip(&scratch.distances) {
            let order = Neighbor { distance, slot }.order();
            if scratch.pool.wants(order) {
                graph.links.prefetch(slot);
                scratch.pool.insert(order, passing && admit.admits(slot), &fingerprint);
            }
        }
        true
    }

    /// Collects neighbours that pass, at one step or two. Nodes looked through count as met; those that were not needed any
    /// more do not.
    fn gather(&mut self, slot: Slot) {
        let (graph, gate) = (self.graph, &self.beam.gate);
        let Scratch { visited, fresh, blocked, passing, .. } = &mut *self.scratch;
        fresh.clear();
        blocked.clear();
        passing.resize(graph.links.base_degree() + 1, 0);
        graph.links.for_each(slot, 0, |edge| {
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
        let enough = graph.config.m;
        if fresh.len() < enough {
            blocked.iter().take(LOOKED_THROUGH_AHEAD).for_each(|&through| graph.links.prefetch(through));
        }
        for (index, &through) in blocked.iter().enumerate() {
            if fresh.len() >= enough {
                break;
            }
            if let Some(&later) = blocked.get(index + LOOKED_THROUGH_AHEAD) {
                graph.links.prefetch(later);
            }
            visited.insert(through);
            // Few pass, and which cannot be foreseen: without a branch for each.
            let mut count = 0;
            graph.links.for_each(through, 0, |edge| {
                passing[count] = edge;
                count += usize::from(gate(edge));
            });
            fresh.extend(passing[..count].iter().filter(|&&edge| visited.insert(edge)));
        }
        Links::acquire();
    }
}
