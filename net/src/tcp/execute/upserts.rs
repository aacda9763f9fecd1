//! Points that consecutive requests write, as one batch.

use crate::door::Permit;
use crate::op::{
    AddDocuments, ApiError, BatchBuilder, Document, NamedPoint, UpsertNamed, WriteOptions, WritePoints,
};
use crate::tcp::frame;
use crate::tcp::vector::{VectorRequest, answers};
use nigh_engine::collection::WriteMode;
use nigh_shard::core::{Vectors, WriteBatch, Written};

/// Points of consecutive requests that are written as one batch: the log is waited for once.
pub struct Upserts {
    collection: String,
    points: Points,
    /// Of each point whether its answer has the version.
    with_version: Vec<bool>,
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
        let (collection, points) = match first {
            VectorRequest::Write(write, _) => {
                (&write.collection, Points::Dense(write.batch.mode, BatchBuilder::new()))
            }
            VectorRequest::WriteNamed(write, _) => (&write.collection, Points::Named(Vec::new())),
            VectorRequest::AddDocuments(write, _) => (&write.collection, Points::MultiVector(Vec::new())),
            _ => return None,
        };
        Some(Upserts { collection: collection.clone(), points, with_version: Vec::new() })
    }

    /// Whether `request` can join. Whether it asks for its version makes no difference.
    pub fn is_like(&self, request: &VectorRequest) -> bool {
        match (&self.points, request) {
            (Points::Dense(mode, _), VectorRequest::Write(write, _)) => {
                self.collection == write.collection && *mode == write.batch.mode
            }
            (Points::Named(_), VectorRequest::WriteNamed(write, _)) => self.collection == write.collection,
            (Points::MultiVector(_), VectorRequest::AddDocuments(write, _)) => {
                self.collection == write.collection
            }
            _ => false,
        }
    }

    /// Adds the point of a request that [is like](Self::is_like) these; as the decoder makes it, it has one.
    pub fn push(&mut self, request: VectorRequest) {
        let with_version = match (&mut self.points, request) {
            (Points::Dense(_, points), VectorRequest::Write(write, with_version)) => {
                let WriteBatch { vectors, points: fields, .. } = write.batch;
                if let (Vectors::Native(vector), Some(fields)) = (vectors, fields.into_iter().next()) {
                    points.push(vector, fields);
                }
                with_version
            }
            (Points::Named(points), VectorRequest::WriteNamed(write, with_version)) => {
                points.extend(write.points);
                with_version
            }
            (Points::MultiVector(documents), VectorRequest::AddDocuments(write, with_version)) => {
                documents.extend(write.documents);
                with_version
            }
            _ => return,
        };
        self.with_version.push(with_version);
    }

    /// Writes them and returns a response for each, in order. What one point is refused for does not stop the others.
    pub async fn carry_out(self, permit: Permit) -> Vec<u8> {
        let mut out = Vec::new();
        let mut rest = match self.points {
            Points::Dense(mode, points) => Rest::Dense(points.finish(mode)),
            Points::Named(points) => Rest::Named(points),
            Points::MultiVector(documents) => Rest::MultiVector(documents),
        };
        let mut asked = &self.with_version[..];
        while rest.len() > 0 {
            let count = rest.len();
            match rest.write(&permit, &self.collection).await {
                Ok(written) => {
                    put_written(&mut out, &written, &mut asked, count);
                    break;
                }
                Err(error) => {
                    let done = error.committed.unwrap_or(0).min(count - 1);
                    put_written(&mut out, &error.written, &mut asked, done);
                    frame::put_refusal(&mut out, &error);
                    asked.split_off_first();
                    rest.drop_first(done + 1);
                }
            }
        }
        out
    }
}

/// Appends responses of the next `count` points, which were written; those that have `asked` for it have the version.
fn put_written(out: &mut Vec<u8>, written: &[Written], asked: &mut &[bool], count: usize) {
    for index in 0..count {
        let with_version = asked.split_off_first() == Some(&true);
        frame::put_ok(out, |out| match written.get(index) {
            Some(Written::Ok { version }) if with_version => answers::put_number(out, *version),
            // Points without a condition have no conflicts.
            _ => {}
        });
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

    async fn write(&self, permit: &Permit, collection: &str) -> Result<Vec<Written>, ApiError> {
        let collection = collection.to_owned();
        match self {
            Rest::Dense(batch) => permit.run(WritePoints { collection, batch: batch.clone() }).await,
            Rest::Named(points) => {
                let (points, write) = (points.clone(), WriteOptions::default());
                permit.run(UpsertNamed { collection, points, write }).await
            }
            Rest::MultiVector(documents) => {
                let (documents, write) = (documents.clone(), WriteOptions::default());
                permit.run(AddDocuments { collection, documents, write }).await
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
