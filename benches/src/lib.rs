//! Whole-system benches of Nigh.

pub mod corpus;
pub mod cpu;
pub mod parallel;
pub mod resident;
