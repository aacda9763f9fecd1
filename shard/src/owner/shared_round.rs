//! Work of an owner that other cores share: each takes the next part until none is left.

use super::Collections;
use crate::env::{Env, call};
use crate::event::Event;
use std::cell::RefCell;
use std::rc::Rc;
use std::sync::{Arc, OnceLock};

/// Rounds smaller than this are planned by the owner alone: a message each way costs more than it saves.
pub(super) const SHARED_ROUND_MIN: usize = 4;

/// Runs `part` here and on up to `workers - 1` other cores, and waits for all of them.
pub(super) async fn on_cores<F>(
    collections: &Rc<Collections>,
    workers: usize,
    part: impl Fn(Rc<dyn Env>) -> F + Clone + Send + 'static,
) where
    F: Future<Output = ()> + 'static,
{
    let cores = collections.env().cores();
    let me = collections.env().index();
    let helpers: Vec<_> = (1..workers.min(cores))
        .map(|step| {
            let part = part.clone();
            let collections = collections.clone();
            let done = Rc::new((RefCell::new(false), Event::default()));
            let signal = done.clone();
            // A task of its own, so that asking the others starts before this core's own part.
            collections.env().clone().spawn(Box::pin(async move {
                // A busy mesh means the peer does not help; the work is taken from the shared counter, so nothing is lost.
                let _busy_peer_is_fine = call(&collections, (me + step) % cores, move |there| {
                    let finished = Rc::new((RefCell::new(false), Event::default()));
                    let signal = finished.clone();
                    let work = part(there.env().clone());
                    there.env().spawn_background(Box::pin(async move {
                        work.await;
                        *signal.0.borrow_mut() = true;
                        signal.1.notify();
                    }));
                    async move {
                        while !*finished.0.borrow() {
                            finished.1.wait().await;
                        }
                    }
                })
                .await;
                *signal.0.borrow_mut() = true;
                signal.1.notify();
            }));
            done
        })
        .collect();
    part(collections.env().clone()).await;
    for done in helpers {
        while !*done.0.borrow() {
            done.1.wait().await;
        }
    }
}

/// Takes the filled places out of shared work; every helper has finished, so ours is the last reference or the
/// others are only being dropped.
pub(super) fn collect<W, P>(mut work: Arc<W>, plans: impl Fn(&mut W) -> &mut Vec<OnceLock<P>>) -> Vec<P> {
    loop {
        match Arc::try_unwrap(work) {
            Ok(mut work) => {
                let plans = std::mem::take(plans(&mut work));
                return plans.into_iter().map(|p| p.into_inner().expect("every place was filled")).collect();
            }
            // A helper core has signalled the end and is about to drop its reference.
            Err(shared) => {
                work = shared;
                std::hint::spin_loop();
            }
        }
    }
}
