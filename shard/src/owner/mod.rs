//! The owner's side of a collection: what only the core that holds its shard may do.
//!
//! Life of a write: checks against the writer, append to the core's log, apply (visible at once through the tail),
//! answer when the log is durable. From append to apply there is no await, so the order in the log is the order in
//! memory. Tasks of a collection: [`indexer`] moves the tail into the graph and repairs around the dead ([`filer`]: into cells, which it
//! trains),
//! [`checkpointer`] writes the images that bound the log, when `core/checkpoints` says so, [`scrubber`]
//! reads the vectors of a file once, [`expiry`] takes the expired out of the figures and [`sweeper`] out of memory,
//! `staged` holds points for a bulk build, `aside` loads them into new writers, and [`build`] indexes them, makes them durable and puts the new
//! writers into service.
//! `token_index` keeps the index of the tokens of a multi-vector collection, which is a dense collection beside it.

mod aside;
pub mod build;
pub mod checkpointer;
mod cold;
mod collections;
pub mod effect;
pub mod expiry;
pub mod filer;
pub mod indexer;
mod life;
pub(crate) mod load;
mod owned;
mod payload;
pub mod quantizer;
pub mod scrubber;
mod shared_round;
mod snapshot;
mod spaces;
mod staged;
pub mod sweeper;
mod tail_room;
pub mod tasks;
mod texts;
mod token_index;
mod vectors;
mod write;

pub use collections::Collections;
pub use owned::{CheckpointState, Owned, TokenBucket};
pub(crate) use snapshot::{HeldCollection, SnapshotError};
pub use tail_room::TAIL_MAX;
pub(crate) use texts::settle_texts;
