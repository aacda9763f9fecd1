//! Answers of any length, made page by page while they are sent: a page is what a core may do in one go, and memory
//! holds one of them.

use crate::http::ReplyBody;
use crate::request::ApiError;
use bytes::Bytes;
use futures_lite::stream;
use nigh_shard::runtime::CoreRuntime;
use std::io;

/// Something that is written page by page.
pub trait Pages: 'static {
    /// Appends the next page; the last one with the end of the body.
    ///
    /// # Errors
    /// Of storage.
    async fn next(&mut self, out: &mut Vec<u8>) -> Result<(), ApiError>;
    /// Whether the last page was appended.
    fn is_done(&self) -> bool;
}

/// A body that starts with `first` and goes on with the pages not yet written.
pub fn stream_pages<P: Pages>(runtime: CoreRuntime, first: Vec<u8>, pages: P) -> ReplyBody {
    if pages.is_done() {
        return ReplyBody::whole(first);
    }
    ReplyBody::pages(stream::unfold(
        (Some(first), pages, runtime),
        |(first, mut pages, runtime)| async move {
            if let Some(first) = first {
                return Some((Ok(Bytes::from(first)), (None, pages, runtime)));
            }
            if pages.is_done() {
                return None;
            }
            runtime.breathe().await;
            let mut out = Vec::new();
            match pages.next(&mut out).await {
                Ok(()) => Some((Ok(Bytes::from(out)), (None, pages, runtime))),
                // The status is long gone; a cut connection is the only honest answer left.
                Err(error) => Some((Err(io::Error::other(error)), (None, pages, runtime))),
            }
        },
    ))
}
