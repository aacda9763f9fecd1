//! What the parts of a collection name a point by among themselves.

/// A slot: row number of a point in every arena of its collection.
pub type Slot = u32;
