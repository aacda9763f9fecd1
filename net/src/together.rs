//! Futures that run at the same time.

use std::future::poll_fn;
use std::pin::Pin;
use std::task::Poll;

/// Runs the futures concurrently and returns their outputs in order. Other tasks have a chance after each that ends, as it may have taken a whole
/// time slice. Every wake-up polls each future that has not ended, so keep their number small.
pub async fn together<F: Future>(all: impl Iterator<Item = F>) -> Vec<F::Output> {
    let mut running: Vec<Pin<Box<F>>> = all.map(Box::pin).collect();
    let mut outputs: Vec<Option<F::Output>> = running.iter().map(|_| None).collect();
    poll_fn(|cx| {
        for (one, output) in running.iter_mut().zip(&mut outputs).filter(|(_, output)| output.is_none()) {
            if let Poll::Ready(ended) = one.as_mut().poll(cx) {
                *output = Some(ended);
                cx.waker().wake_by_ref();
                break;
            }
        }
        if outputs.iter().all(Option::is_some) { Poll::Ready(()) } else { Poll::Pending }
    })
    .await;
    outputs.into_iter().flatten().collect()
}
