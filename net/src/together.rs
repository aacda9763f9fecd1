//! Futures that run at the same time.

use std::future::poll_fn;
use std::pin::Pin;
use std::task::Poll;

/// Waits for all of them, which run at the same time; what they come to, in their order. Each is polled whenever any of them may go on, so they
/// should be few.
pub async fn together<F: Future>(all: impl Iterator<Item = F>) -> Vec<F::Output> {
    let mut running: Vec<Pin<Box<F>>> = all.map(Box::pin).collect();
    let mut outputs: Vec<Option<F::Output>> = running.iter().map(|_| None).collect();
    poll_fn(|cx| {
        let mut is_ready = true;
        for (one, output) in running.iter_mut().zip(&mut outputs).filter(|(_, output)| output.is_none()) {
            match one.as_mut().poll(cx) {
                Poll::Ready(ended) => *output = Some(ended),
                Poll::Pending => is_ready = false,
            }
        }
        if is_ready { Poll::Ready(()) } else { Poll::Pending }
    })
    .await;
    outputs.into_iter().flatten().collect()
}
