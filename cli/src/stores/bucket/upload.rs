//! One object on its way to a bucket.
//!
//! An object of up to 8 MiB is sent by one request when it is finished; a longer one in parts while it is written. Either is published by a request
//! that fails where the key is taken.

use super::failure::store_call;
use super::write_once::By;
use super::{Bucket, TRIES, Task};
use bytes::Bytes;
use nigh_shard::backup::{StoreError, Upload};
use nigh_shard::disk::LocalBoxFuture;
use object_store::path::Path;
use object_store::{MultipartUpload, ObjectStore, PutMode, PutMultipartOptions, PutOptions, PutPayload};
use std::collections::VecDeque;

/// Bytes of the first parts, and of the longest object that has none.
pub(super) const PART_BYTES: usize = 8 << 20;
/// Parts get twice as long after so many, up to [`PART_BYTES_MAX`]: an object has at most 10,000 parts, which are 492 GiB then. The first 1000 have
/// one length, because some stores take no other objects.
const PARTS_OF_ONE_LENGTH: usize = 1000;
const PART_BYTES_MAX: usize = 64 << 20;
/// Parts that an object may have.
const PARTS_MAX: usize = 10_000;
/// Parts of one object that are sent at the same time. A third one is filled meanwhile.
const PARTS_IN_FLIGHT_MAX: usize = 2;

/// Bytes of part `number`, counted from 0.
fn part_bytes(number: usize) -> usize {
    let doublings = (number / PARTS_OF_ONE_LENGTH).min(PART_BYTES_MAX.ilog2() as usize);
    (PART_BYTES << doublings.min(8)).min(PART_BYTES_MAX)
}

pub(super) struct BucketUpload {
    bucket: Bucket,
    key: String,
    path: Path,
    /// Tells the object of this upload from others of its key.
    id: String,
    buffer: Vec<Bytes>,
    buffered: usize,
    parts: usize,
    multipart: Option<Multipart>,
    failed: Option<StoreError>,
}

/// A multipart upload that is neither completed nor aborted. Dropped, it is aborted.
pub(super) struct Multipart {
    bucket: Bucket,
    key: String,
    upload: Option<Box<dyn MultipartUpload>>,
    in_flight: VecDeque<Task<()>>,
}

impl Multipart {
    /// Sends a part, as soon as there is room for one more.
    async fn send(&mut self, part: PutPayload) -> Result<(), StoreError> {
        self.wait_for_room(PARTS_IN_FLIGHT_MAX - 1).await?;
        let Some(upload) = &mut self.upload else { return Ok(()) };
        let (sent, key) = (upload.put_part(part), self.key.clone());
        let task = self.bucket.spawn(&self.key, async move { store_call(&key, sent).await });
        self.in_flight.push_back(task);
        Ok(())
    }

    /// Waits until no more than `in_flight` parts are.
    async fn wait_for_room(&mut self, in_flight: usize) -> Result<(), StoreError> {
        while self.in_flight.len() > in_flight
            && let Some(first) = self.in_flight.front_mut()
        {
            // It leaves when it has ended, however it did, and not when whoever waits goes.
            let ended = first.await;
            self.in_flight.pop_front();
            ended?;
        }
        Ok(())
    }

    /// Publishes the object.
    async fn complete(mut self, path: &Path, id: &str) -> Result<(), StoreError> {
        let Some(upload) = &mut self.upload else { return Ok(()) };
        let ended = store_call(&self.key, upload.complete()).await.map(drop);
        match settle(&self.bucket, &self.key, path, id, ended).await {
            Settled::Ended(Ok(())) => {
                self.upload = None;
                Ok(())
            }
            Settled::Ended(Err(error)) => Err(error),
            Settled::Absent(error) => Err(match error {
                StoreError::Exists { key } | StoreError::NotFound { key } => StoreError::Io {
                    key,
                    why: "the store ended the upload, and there is no object".to_owned(),
                    is_temporary: true,
                },
                error => error,
            }),
        }
    }
}

impl Drop for Multipart {
    fn drop(&mut self) {
        let Some(mut upload) = self.upload.take() else { return };
        let in_flight = std::mem::take(&mut self.in_flight);
        let key = self.key.clone();
        self.bucket
            .spawn(&self.key, async move {
                // A part that arrives after the upload has been aborted would stay.
                for part in in_flight {
                    part.end().await;
                }
                if let Err(error) = store_call(&key, upload.abort()).await {
                    tracing::debug!("a multipart upload is left to the sweep: {error}");
                }
                Ok(())
            })
            .detach();
    }
}

/// What is known after a request that publishes an object.
enum Settled {
    Ended(Result<(), StoreError>),
    /// No object has the key, and this is what the request came to.
    Absent(StoreError),
}

/// Finds out what a request came to that was to publish the object of upload `id`. A request that is said to have failed may have had its effect, and
/// its repetition then finds an object, which is the one that it was to create.
async fn settle(bucket: &Bucket, key: &str, path: &Path, id: &str, ended: Result<(), StoreError>) -> Settled {
    let error = match ended {
        Ok(()) => return Settled::Ended(Ok(())),
        Err(error @ (StoreError::Refused { .. } | StoreError::BadKey { .. } | StoreError::Unfit { .. })) => {
            return Settled::Ended(Err(error));
        }
        Err(error) => error,
    };
    match bucket.upload_of(key, path).await {
        Ok(found) if found.as_deref() == Some(id) => Settled::Ended(Ok(())),
        Ok(_) => Settled::Ended(Err(StoreError::Exists { key: key.to_owned() })),
        Err(StoreError::NotFound { .. }) => Settled::Absent(error),
        Err(_) => Settled::Ended(Err(error)),
    }
}

impl BucketUpload {
    pub fn new(bucket: Bucket, key: String, path: Path) -> BucketUpload {
        let id = bucket.new_upload_id();
        BucketUpload {
            bucket,
            key,
            path,
            id,
            buffer: Vec::new(),
            buffered: 0,
            parts: 0,
            multipart: None,
            failed: None,
        }
    }

    async fn send_part(&mut self, bytes: usize) -> Result<(), StoreError> {
        if self.parts == PARTS_MAX {
            let why = "it is longer than 492 GiB, the most that fits into the parts of an upload".to_owned();
            return Err(StoreError::Io { key: self.key.clone(), why, is_temporary: false });
        }
        let part = self.take(bytes);
        self.parts += 1;
        if self.multipart.is_none() {
            self.multipart = Some(self.begin().await?);
        }
        match &mut self.multipart {
            Some(multipart) => multipart.send(part).await,
            None => Ok(()),
        }
    }

    /// Begins a multipart upload. It is aborted also where the caller goes meanwhile.
    async fn begin(&self) -> Result<Multipart, StoreError> {
        let (bucket, key, path, id) =
            (self.bucket.clone(), self.key.clone(), self.path.clone(), self.id.clone());
        let begun = async move {
            bucket.check_write_once(By::Completing).await?;
            let options = PutMultipartOptions { attributes: bucket.attributes(&id), ..Default::default() };
            let upload = store_call(&key, bucket.client.put_multipart_opts(&path, options)).await?;
            Ok(Multipart { bucket, key, upload: Some(upload), in_flight: VecDeque::new() })
        };
        self.bucket.spawn(&self.key, begun).detached_on_drop().await
    }

    /// Takes the first `bytes` of the buffer.
    fn take(&mut self, bytes: usize) -> PutPayload {
        let (mut taken, mut missing) = (Vec::new(), bytes);
        let mut rest = std::mem::take(&mut self.buffer).into_iter();
        while missing > 0
            && let Some(mut next) = rest.next()
        {
            if next.len() > missing {
                let first = next.split_to(missing);
                self.buffer.push(next);
                next = first;
            }
            missing -= next.len();
            taken.push(next);
        }
        self.buffer.extend(rest);
        self.buffered -= bytes - missing;
        PutPayload::from_iter(taken)
    }

    async fn append(&mut self, bytes: Bytes) -> Result<(), StoreError> {
        self.buffered += bytes.len();
        if !bytes.is_empty() {
            self.buffer.push(bytes);
        }
        // What fills a part exactly may be all of a small object.
        while self.buffered > part_bytes(self.parts) {
            self.send_part(part_bytes(self.parts)).await?;
        }
        Ok(())
    }

    async fn publish(mut self) -> Result<(), StoreError> {
        if self.multipart.is_some() && self.buffered > 0 {
            self.send_part(self.buffered).await?;
        }
        let Some(mut multipart) = self.multipart.take() else { return self.put().await };
        multipart.wait_for_room(0).await?;
        let (path, id) = (self.path, self.id);
        let completed = async move { multipart.complete(&path, &id).await };
        self.bucket.spawn(&self.key, completed).await
    }

    /// Sends all of a small object.
    async fn put(mut self) -> Result<(), StoreError> {
        let payload = self.take(self.buffered);
        let (bucket, key, path, id) = (self.bucket.clone(), self.key.clone(), self.path, self.id);
        let sent = async move {
            let mut tries = 1;
            loop {
                let attributes = bucket.attributes(&id);
                let options = PutOptions { mode: PutMode::Create, attributes, ..PutOptions::default() };
                let ended = store_call(&key, bucket.client.put_opts(&path, payload.clone(), options)).await;
                let error = match settle(&bucket, &key, &path, &id, ended.map(drop)).await {
                    Settled::Ended(ended) => return ended,
                    Settled::Absent(error) => error,
                };
                // Whatever had the key, or was about to, is gone again.
                let is_worth_it = error.is_temporary() || matches!(error, StoreError::Exists { .. });
                if tries == TRIES || !is_worth_it {
                    return Err(error);
                }
                bucket.pause(tries).await;
                tries += 1;
            }
        };
        self.bucket.spawn(&self.key, sent).await
    }
}

impl Upload for BucketUpload {
    fn write(&mut self, bytes: Bytes) -> LocalBoxFuture<'_, Result<(), StoreError>> {
        Box::pin(async move {
            if let Some(error) = &self.failed {
                return Err(error.clone());
            }
            let why = "the wait for an earlier write was given up".to_owned();
            self.failed = Some(StoreError::Io { key: self.key.clone(), why, is_temporary: false });
            let ended = self.append(bytes).await;
            self.failed = ended.clone().err();
            ended
        })
    }

    fn finish(self: Box<Self>) -> LocalBoxFuture<'static, Result<(), StoreError>> {
        Box::pin(async move {
            match self.failed {
                Some(error) => Err(error),
                None => self.publish().await,
            }
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_hold_what_is_promised() {
        let (sizes, mut total) = ([0, 999, 1000, 2000, 3000, 9999].map(part_bytes), 0u64);
        assert_eq!(sizes.map(|bytes| bytes >> 20), [8, 8, 16, 32, 64, 64]);
        for number in 0..PARTS_MAX {
            total += part_bytes(number) as u64;
        }
        assert_eq!(total >> 30, 492);
    }
}
