//! Points that consecutive requests write, as one batch.

use crate::door::Permit;
use crate::op::{
    AddDocuments, ApiError, BatchBuilder, Document, NamedPoint, UpsertNamed, WriteOptions, WritePoints,
};
use crate::tcp::frame;
use crate::tcp::vector::VectorRequest;
use nigh_engine::collection::WriteMode;
use nigh_shard::core::{Vectors, WriteBatch};

/// Points of consecutive requests that are written as one batch: the log is waited for once.
pub struct Upserts {
    collection: String,
    points: Points,
}

/// The points of the batch, as the family of the collection has them.
enum Points {
    Dense(WriteMode, BatchBuilder),
    Named(Vec<NamedPoint>),
    MultiVector(Vec<Document>),
}

impl Upserts {
    /// Starts an empty batch for requests that are like `first`; `None` if `first` does not write points.
    pub fn like(first: &VectorRequest) -> Option<Upserts> {
        match first {
            VectorRequest::Write(write) => Some(Upserts {
                collection: write.collection.clone(),
                points: Points::Dense(write.batch.mode, BatchBuilder::new()),
            }),
            VectorRequest::WriteNamed(write) => {
                Some(Upserts { collection: write.collection.clone(), points: Points::Named(Vec::new()) })
            }
            VectorRequest::AddDocuments(write) => Some(Upserts {
                collection: write.collection.clone(),
                points: Points::MultiVector(Vec::new()),
            }),
            _ => None,
        }
    }

    /// Whether `request` can join.
    pub fn is_like(&self, request: &VectorRequest) -> bool {
        match (&self.points, request) {
            (Points::Dense(mode, _), VectorRequest::Write(write)) => {
                self.collection == write.collection && *mode == write.batch.mode
            }
            (Points::Named(_), VectorRequest::WriteNamed(write)) => self.collection == write.collection,
            (Points::MultiVector(_), VectorRequest::AddDocuments(write)) => {
                self.collection == write.collection
            }
            _ => false,
        }
    }

    /// Adds the point of a request that [is like](Self::is_like) these; as the decoder makes it, it has one.
    pub fn push(&mut self, request: VectorRequest) {
        match (&mut self.points, request) {
            (Points::Dense(_, points), VectorRequest::Write(write)) => {
                let WriteBatch { vectors, points: fields, .. } = write.batch;
                if let (Vectors::Native(vector), Some(fields)) = (vectors, fields.into_iter().next()) {
                    points.push(vector, fields);
                }
            }
            (Points::Named(points), VectorRequest::WriteNamed(write)) => points.extend(write.points),
            (Points::MultiVector(documents), VectorRequest::AddDocuments(write)) => {
                documents.extend(write.documents);
            }
            _ => {}
        }
    }

    /// Writes them and returns a response for each, in order. What one point is refused for does not stop the others.
    pub async fn carry_out(self, permit: Permit) -> Vec<u8> {
        let mut out = Vec::new();
        let mut rest = match self.points {
            Points::Dense(mode, points) => Rest::Dense(points.finish(mode)),
            Points::Named(points) => Rest::Named(points),
            Points::MultiVector(documents) => Rest::MultiVector(documents),
        };
        while rest.len() > 0 {
            let count = rest.len();
            match rest.write(&permit, &self.collection).await {
                Ok(()) => {
                    (0..count).for_each(|_| frame::put_ok(&mut out, |_| {}));
                    break;
                }
                Err(error) => {
                    let done = error.committed.unwrap_or(0).min(count - 1);
                    (0..done).for_each(|_| frame::put_ok(&mut out, |_| {}));
                    frame::put_refusal(&mut out, &error);
                    rest.drop_first(done + 1);
                }
            }
        }
        out
    }
}

/// Points that are still to be written.
enum Rest {
    Dense(WriteBatch),
    Named(Vec<NamedPoint>),
    MultiVector(Vec<Document>),
}

impl Rest {
    fn len(&self) -> usize {
        match self {
            Rest::Dense(batch) => batch.points.len(),
            Rest::Named(points) => points.len(),
            Rest::MultiVector(documents) => documents.len(),
        }
    }

    async fn write(&self, permit: &Permit, collection: &str) -> Result<(), ApiError> {
        let collection = collection.to_owned();
        match self {
            Rest::Dense(batch) => {
                permit.run(WritePoints { collection, batch: batch.clone() }).await.map(drop)
            }
            Rest::Named(points) => {
                let (points, write) = (points.clone(), WriteOptions::default());
                permit.run(UpsertNamed { collection, points, write }).await.map(drop)
            }
            Rest::MultiVector(documents) => {
                let (documents, write) = (documents.clone(), WriteOptions::default());
                permit.run(AddDocuments { collection, documents, write }).await.map(drop)
            }
        }
    }

    fn drop_first(&mut self, count: usize) {
        match self {
            Rest::Dense(batch) => {
                batch.points.drain(..count);
                match &mut batch.vectors {
                    Vectors::Native(flat) => drop(flat.drain(..count * batch.dim)),
                    Vectors::PerPoint(vectors) => drop(vectors.drain(..count)),
                    Vectors::Named(vectors) => drop(vectors.drain(..count)),
                    Vectors::BigEndianRows(_) => {}
                }
            }
            Rest::Named(points) => drop(points.drain(..count)),
            Rest::MultiVector(documents) => drop(documents.drain(..count)),
        }
    }
}
