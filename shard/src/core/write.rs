//! Writes: routed to the owner.

use super::Core;
use super::many::Selection;
use crate::env::{Busy, call};
use crate::error::{BatchError, OpError};
use crate::payload_change::PayloadChange;
use crate::points::{PointOperated, VectorsChange, WriteBatch, Written};
use nigh_engine::point_id::IdKind;
use std::rc::Rc;

impl From<Busy> for OpError {
    fn from(busy: Busy) -> Self {
        OpError::Busy(busy.to_string())
    }
}

impl Core {
    /// Writes points in order and answers when they are durable; results in input order.
    ///
    /// # Errors
    /// The first point's error that is no version conflict, with the outcomes of the points before it, which stay written.
    pub async fn write(self: &Rc<Self>, name: &str, batch: WriteBatch) -> Result<Vec<Written>, BatchError> {
        let nothing = |error| BatchError { written: Vec::new(), point: None, error };
        let written = async {
            let handle = self.ctx.handle(name).map_err(nothing)?;
            handle.healthy().map_err(nothing)?;
            let (uid, name) = (handle.uid, name.to_owned());
            call(self, handle.owner, move |there| async move {
                there.collections.owned_write(uid, &name, batch).await
            })
            .await
            .map_err(|busy| nothing(busy.into()))?
        };
        written.await.map_err(|stopped| BatchError { error: self.note_refusal(stopped.error), ..stopped })
    }

    /// Deletes one point; false when absent.
    ///
    /// # Errors
    /// Unknown collection, version conflict, or a log that takes no more.
    pub async fn delete(
        self: &Rc<Self>,
        name: &str,
        id: u64,
        expected_version: Option<u64>,
    ) -> Result<bool, OpError> {
        let handle = self.ctx.handle(name)?;
        let (uid, name) = (handle.uid, name.to_owned());
        call(self, handle.owner, move |there| async move {
            there.collections.owned_delete(uid, &name, id, expected_version).await
        })
        .await
        .unwrap_or_else(|busy| Err(busy.into()))
        .map_err(|error| self.note_refusal(error))
    }

    /// Changes the payload of one point; durable when it answers with the new version.
    ///
    /// # Errors
    /// Unknown collection, [`OpError::PointNotFound`], version conflict, a payload that would be too large, or a log that takes no
    /// more; nothing has changed.
    pub async fn change_payload(
        self: &Rc<Self>,
        name: &str,
        id: u64,
        change: PayloadChange,
        expected_version: Option<u64>,
    ) -> Result<u64, OpError> {
        let handle = self.ctx.handle(name)?;
        handle.healthy()?;
        let (uid, name) = (handle.uid, name.to_owned());
        call(self, handle.owner, move |there| async move {
            there.collections.owned_change_payload(uid, &name, id, change, expected_version).await
        })
        .await
        .unwrap_or_else(|busy| Err(busy.into()))
        .map_err(|error| self.note_refusal(error))
    }

    /// Changes vectors of one point of a collection of named spaces; payload, deadlines and its other vectors stay. Durable when it
    /// answers with the new version. Costs what a write of the point costs: its row and every vector that it keeps are copied.
    ///
    /// # Errors
    /// Unknown collection or one of another family, [`OpError::PointNotFound`], version conflict, a vector that its space does not
    /// take, no room, or a log that takes no more; nothing has changed.
    pub async fn change_vectors(
        self: &Rc<Self>,
        name: &str,
        id: u64,
        change: VectorsChange,
        expected_version: Option<u64>,
    ) -> Result<u64, OpError> {
        let handle = self.ctx.handle(name)?;
        handle.healthy()?;
        let (uid, name) = (handle.uid, name.to_owned());
        call(self, handle.owner, move |there| async move {
            there.collections.owned_change_vectors(uid, &name, id, change, expected_version).await
        })
        .await
        .unwrap_or_else(|busy| Err(busy.into()))
        .map_err(|error| self.note_refusal(error))
    }

    /// Carries out a call of `operate` (its arguments as clients send them) on the record under `key` in the payload of one point,
    /// atomically; durable when it answers.
    ///
    /// # Errors
    /// What is wrong with the call or with what lies under the key; else as [`Core::change_payload`]. Nothing has changed.
    pub async fn operate_point(
        self: &Rc<Self>,
        name: &str,
        id: u64,
        key: String,
        args: Vec<u8>,
        expected_version: Option<u64>,
    ) -> Result<PointOperated, OpError> {
        let handle = self.ctx.handle(name)?;
        handle.healthy()?;
        let (uid, name) = (handle.uid, name.to_owned());
        call(self, handle.owner, move |there| async move {
            there.collections.owned_operate(uid, &name, id, &key, &args, expected_version).await
        })
        .await
        .unwrap_or_else(|busy| Err(busy.into()))
        .map_err(|error| self.note_refusal(error))
    }

    /// Deletes the selected points, one by one; the count removed.
    ///
    /// # Errors
    /// As [`Core::delete`]; points removed before stay removed.
    pub async fn delete_many(self: &Rc<Self>, name: &str, selection: Selection) -> Result<u64, OpError> {
        let handle = self.ctx.handle(name)?;
        if let Selection::Matching(filter) = &selection {
            self.check_filter(&handle, Some(filter))?;
        }
        let (uid, name) = (handle.uid, name.to_owned());
        call(
            self,
            handle.owner,
            move |there| async move { there.owned_delete_many(uid, &name, &selection).await },
        )
        .await
        .unwrap_or_else(|busy| Err(busy.into()))
        .map_err(|error| self.note_refusal(error))
    }

    /// Changes the payloads of the selected points, one by one, each once; how many there were. Durable when it answers.
    ///
    /// # Errors
    /// As [`Core::change_payload`], but that points which are not there are passed over; points changed before stay changed.
    pub async fn change_payloads(
        self: &Rc<Self>,
        name: &str,
        selection: Selection,
        change: PayloadChange,
    ) -> Result<u64, OpError> {
        let handle = self.ctx.handle(name)?;
        handle.healthy()?;
        if let Selection::Matching(filter) = &selection {
            self.check_filter(&handle, Some(filter))?;
        }
        if handle.ids == IdKind::String {
            change.check_without_id()?;
        }
        let (uid, name) = (handle.uid, name.to_owned());
        call(self, handle.owner, move |there| async move {
            there.owned_change_many(uid, &name, &selection, change).await
        })
        .await
        .unwrap_or_else(|busy| Err(busy.into()))
        .map_err(|error| self.note_refusal(error))
    }

    /// Stages points or documents for a bulk build, all or none, and returns how many.
    ///
    /// # Errors
    /// If the collection is unknown, is not empty or is being built, if a vector has the wrong dimension or a component that is not finite, if a
    /// document has no tokens, or if an id is staged twice. Nothing of the request is staged then.
    pub async fn stage(self: &Rc<Self>, name: &str, batch: WriteBatch) -> Result<usize, OpError> {
        let handle = self.ctx.handle(name)?;
        let (uid, name) = (handle.uid, name.to_owned());
        call(self, handle.owner, move |there| async move {
            there.collections.owned_stage(uid, &name, batch).await
        })
        .await
        .unwrap_or_else(|busy| Err(busy.into()))
        .map_err(|error| self.note_refusal(error))
    }

    /// Builds what is staged on `workers` cores (0 = all). Durable when it returns; or, with `wait` off, begun: then the task's
    /// id in [`Core::tasks`], `None` when nothing is staged.
    ///
    /// # Errors
    /// [`OpError::Conflict`] when the collection is not empty; whatever fails, the staged points stay.
    pub async fn build(
        self: &Rc<Self>,
        name: &str,
        workers: usize,
        wait: bool,
    ) -> Result<Option<u64>, OpError> {
        let handle = self.ctx.handle(name)?;
        let (uid, name) = (handle.uid, name.to_owned());
        call(self, handle.owner, move |there| async move {
            there.collections.owned_build(uid, &name, workers, wait).await
        })
        .await
        .unwrap_or_else(|busy| Err(busy.into()))
        .map_err(|error| self.note_refusal(error))
    }
}
