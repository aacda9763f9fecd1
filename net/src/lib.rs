//! Nigh net.
