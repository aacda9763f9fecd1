//! Points that consecutive requests write, as one batch.

use crate::door::Permit;
use crate::op::{BatchBuilder, WritePoints};
use crate::tcp::frame;
use nigh_engine::collection::WriteMode;
use nigh_shard::core::{Vectors, WriteBatch};

/// Points of consecutive requests that are written as one batch: the log is waited for once.
pub struct Upserts {
    collection: String,
    mode: WriteMode,
    points: BatchBuilder,
}

impl Upserts {
    /// Of no request yet, for those like `first`.
    pub fn like(first: &WritePoints) -> Upserts {
        Upserts { collection: first.collection.clone(), mode: first.batch.mode, points: BatchBuilder::new() }
    }

    /// Whether `write` can join.
    pub fn is_like(&self, write: &WritePoints) -> bool {
        self.collection == write.collection && self.mode == write.batch.mode
    }

    /// Adds the point of a request, which as the decoder makes it has one, and its floats.
    pub fn push(&mut self, write: WritePoints) {
        let WriteBatch { vectors, points, .. } = write.batch;
        if let (Vectors::Native(vector), Some(fields)) = (vectors, points.into_iter().next()) {
            self.points.push(vector, fields);
        }
    }

    /// Writes them and returns a response for each, in order. What one point is refused for does not stop the others.
    pub async fn carry_out(self, permit: Permit) -> Vec<u8> {
        let mut out = Vec::new();
        let mut rest = self.points.finish(self.mode);
        while !rest.points.is_empty() {
            let count = rest.points.len();
            let write = WritePoints { collection: self.collection.clone(), batch: rest.clone() };
            match permit.run(write).await {
                Ok(_) => {
                    (0..count).for_each(|_| frame::put_ok(&mut out, |_| {}));
                    break;
                }
                Err(error) => {
                    let done = error.committed.unwrap_or(0).min(count - 1);
                    (0..done).for_each(|_| frame::put_ok(&mut out, |_| {}));
                    frame::put_refusal(&mut out, &error);
                    drop_first(&mut rest, done + 1);
                }
            }
        }
        out
    }
}

/// Takes the first `count` points out of a batch.
fn drop_first(batch: &mut WriteBatch, count: usize) {
    batch.points.drain(..count);
    match &mut batch.vectors {
        Vectors::Native(flat) => drop(flat.drain(..count * batch.dim)),
        Vectors::PerPoint(vectors) => drop(vectors.drain(..count)),
        Vectors::Named(vectors) => drop(vectors.drain(..count)),
        Vectors::BigEndianRows(_) => {}
    }
}
