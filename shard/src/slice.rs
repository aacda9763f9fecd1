//! Slices of background work: it goes on until its slice is used up, and then others run.

use crate::env::Env;
use std::rc::Rc;

/// A background slice ends at the first chance after this, nanoseconds.
pub const SLICE_NS: u64 = 250_000;

/// Longest stretch of unbroken work of one write batch, nanoseconds.
pub(crate) const WRITE_SLICE_NS: u64 = 250_000;

/// Background work notices the passage of a slice.
pub struct Slice {
    env: Rc<dyn Env>,
    start_ns: u64,
    /// Nanoseconds used in the slices before this one.
    used_ns: u64,
}

impl Slice {
    /// Starts now.
    pub fn begin(env: &Rc<dyn Env>) -> Slice {
        Slice { env: env.clone(), start_ns: env.now_ns(), used_ns: 0 }
    }

    /// Lets others run when the slice is used up.
    pub async fn check(&mut self) {
        let slice_ns = self.env.now_ns() - self.start_ns;
        if slice_ns >= SLICE_NS {
            self.used_ns += slice_ns;
            self.env.breathe().await;
            self.start_ns = self.env.now_ns();
        }
    }

    /// How long it has run, without the time that others had between its slices.
    pub fn used_ns(&self) -> u64 {
        self.used_ns + (self.env.now_ns() - self.start_ns)
    }
}
