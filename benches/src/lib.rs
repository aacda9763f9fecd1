//! Whole-system benches of Nigh.
