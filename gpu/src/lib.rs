//! Nigh gpu.
