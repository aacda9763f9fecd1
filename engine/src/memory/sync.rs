//! The atomics of this room and of `kv`: the standard library's, or loom's when the models run (`--cfg loom`).
//!
//! Only what the models explore comes through here. The arena stays on the standard types: the kernel hands it zeroed
//! pages, and loom's atomics are not valid as zero bytes.

#[cfg(loom)]
pub(crate) use loom::sync::atomic::{
    AtomicBool, AtomicPtr, AtomicU32, AtomicU64, AtomicUsize, Ordering, fence,
};
#[cfg(not(loom))]
pub(crate) use std::sync::atomic::{
    AtomicBool, AtomicPtr, AtomicU32, AtomicU64, AtomicUsize, Ordering, fence,
};
