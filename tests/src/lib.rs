//! Whole-system tests of Nigh.
