//! Inverted file (Jégou, Douze, Schmid: Product quantization for nearest neighbor search, TPAMI 2011): vectors lie in the cells of
//! a clustering, and a search looks through the cells whose centroids are nearest.
//!
//! One owner files and takes out, any core looks: the lists are those of [`crate::postings`], with all they say about readers.
//! Centroids never change; a new clustering is a new [`Cells`], filled aside and published whole.
//!
//! With spilling (SOAR: Sun, Simcha, Dopson, Guo, Kumar, NeurIPS 2023) a slot is filed in two cells. The posting in each names the
//! other, so that a search that looks through both meets the slot once, in the first.
//!
//! With a product quantizer each posting carries a code of what the vector differs from the centroid by (`coded`), in lists of another
//! shape: blocks of codes that are scored together.
mod cells;
mod coded;
mod coded_writer;
mod order;
mod writer;

#[cfg(test)]
mod tests;

pub(crate) use cells::Measured;
pub use cells::{Cells, FiledAt};
pub(crate) use coded::{CodeBlock, Coded};
pub(crate) use order::Order;
pub(crate) use writer::CellsWriter;
