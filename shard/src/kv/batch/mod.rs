//! Operations on single keys as values, and batches of them that travel to the core that owns their keys.
//!
//! A front end decodes a [`KeyOp`] over bytes of its client and hands it to the [`Pipeline`] of that client, which carries it out on
//! the spot or copies it into the [`KeyBatch`] for its owner. Results come back as values too: a front end that implements [`Answers`]
//! encodes what is answered on the spot as it comes, and reads the [`KeyResults`] of a batch.
//!
//! A batch is one buffer with the bytes of all its operations and an entry of 40 bytes for each. No key allocates: both grow, and that
//! is all. The values of the results lie in one buffer likewise.

mod apply;
mod key_batch;
mod lists;
mod op;
mod pipeline;
mod results;
mod settling;
mod turn;

pub use key_batch::KeyBatch;
pub use lists::ListResults;
pub use op::{Answers, KeyOp, KeyResult};
pub use pipeline::{Pipeline, Taken};
pub use results::{KeyResults, KeyResultsIter};
pub use settling::{Unkept, Unsettled};
pub use turn::{Turn, may_take_long};
