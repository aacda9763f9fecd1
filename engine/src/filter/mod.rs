//! Payload filters: grammar, compilation, evaluation per point.
//!
//! A request carries a tree of [`Node`]s as it was parsed. [`Predicate::compile`] checks every rule of the grammar
//! once and keeps what evaluation needs (parsed times, hashed lists, compiled expressions), so that
//! [`Predicate::matches`] only compares: it neither fails nor allocates.
//!
//! `planner` chooses how a search answers a filter, by what the ways cost (`cost`); `narrow` finds the slots that can match in the payload index.
//!
//! A leaf reads one payload key, or asks which id the point has. A key that is missing or expired is *absent*; how absence is judged belongs to
//! each operator and is stated at `leaf::Test`.

mod allowance;
mod bounds;
mod compile;
pub(crate) mod cost;
mod course;
mod datetime;
mod expr;
mod geo;
pub(crate) mod ids;
mod leaf;
pub(crate) mod lists;
mod looks;
mod membership;
pub(crate) mod narrow;
mod node;
mod pattern;
pub(crate) mod planner;
mod predicate;
mod re2;
mod tokens;

#[cfg(test)]
mod operator_tests;
#[cfg(test)]
mod refusal_tests;
#[cfg(test)]
mod twin_tests;

pub use allowance::Allowance;
pub use bounds::Bounds;
pub use compile::{MAX_CONDITIONS, MAX_DEPTH, MAX_IDS, MAX_NODES, MAX_POLYGON_VERTICES, MAX_REGEXES};
pub use datetime::unix_ms_of_rfc3339;
pub use node::{FilterError, Geo, MinShould, Node, is_operator, operator_names};
pub use planner::{Estimate, Path};
pub use predicate::Predicate;
