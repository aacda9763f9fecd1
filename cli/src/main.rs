//! The nigh binary.
fn main() {}
