//! Bounded message rings between cores, and the bell that wakes a sleeping one.
mod bell;
mod ring;
pub use bell::Bell;
pub use ring::{Consumer, Producer, ring};
