//! The embeddable engine of Nigh: slices in, values out.
//!
//! No runtime, socket, thread, wall clock or file lives here: time (`now_ms`), randomness (`seed`) and memory limits
//! arrive as arguments, so property tests, fuzzers and simulation reach all of it.
//!
//! Rooms: [`memory`] (arenas, quiescence, published maps), [`distance`] (kernels), [`cluster`] (k-means), [`quantizer`] (vectors in fewer bytes), [`index`] (graph and exact
//! search), [`payload`] (tagged values and immutable rows), [`point_id`] (names of points), [`filter`] (grammar, compile, evaluate), [`collection`]
//! (the dense collection: ids, versions, deadlines, vectors, graph), [`sparse`] and [`text`] (inverted indexes over the
//! slots of a collection), [`query`] (lanes fused into one result), [`pace`] (long
//! searches in pieces), [`device`] (what an accelerator offers), [`record`] (bytes that reach a disk),
//! [`random`] (numbers from a seed), [`quoted`] (texts in errors),
//! [`kv`] (the key-value store of a shard).

pub mod cluster;
pub mod collection;
pub mod device;
pub mod distance;
pub mod filter;
pub mod index;
pub mod kv;
pub mod memory;
pub mod pace;
pub mod payload;
pub mod point_id;
mod postings;
pub mod quantizer;
pub mod query;
pub mod quoted;
pub mod random;
pub mod record;
mod slot;
pub mod sparse;
pub mod text;
mod top_k;
