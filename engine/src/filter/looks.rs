//! How much of a filter is looked up in the payload index while a plan is made.

use super::expr::Expr;
use super::leaf::Test;

/// Longest `in` list that is looked up while planning: each element is a search in a dictionary. Longer ones have been before, or are asked
/// as a predicate.
const IN_MAX: usize = 1024;

/// Looks into the index that planning may take in one piece, beside one for each leaf: some milliseconds.
const PLANNED_LOOKS: usize = 8_192;
/// From so many looks on a plan is kept.
const WIDE_LOOKS: usize = 128;

/// How many elements of a list, or words of a text, are looked up so that those of all leaves together stay within what planning may take.
/// Longer lists are looked up in pieces before, as far as that is worth it.
pub(super) fn looked_up_max(root: &Expr) -> usize {
    let mut max = IN_MAX;
    while max > 1 && looks_up_to(root, max) > PLANNED_LOOKS {
        max /= 4;
    }
    max
}

/// Looks that lists take which are not longer than `max`, and texts of which so many words are looked up; one for each other leaf.
fn looks_up_to(root: &Expr, max: usize) -> usize {
    let mut looks = 0;
    root.each_leaf(&mut |_, test| {
        looks += match test {
            Test::In(members) if members.len() > max => 0,
            Test::In(members) => members.len(),
            Test::Match(tokens) => tokens.len().min(max),
            _ => 1,
        }
    });
    looks
}

/// Whether planning, with lists and texts looked up as far as `max`, takes so many looks that a plan is kept.
pub(super) fn is_wide(root: &Expr, max: usize) -> bool {
    looks_up_to(root, max) > WIDE_LOOKS
}
