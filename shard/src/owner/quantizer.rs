//! Trains a collection's quantizer and writes its codes: apart from the cores, from copies of vectors.

use crate::env::{Env, Length, train};
use crate::owner::{Collections, Owned};
use crate::slice::Slice;
use futures_lite::future::or;
use nigh_engine::collection::DenseWriter;
use nigh_engine::index::JobStep;
use std::cell::RefCell;
use std::rc::Rc;

/// Does what is due now for the quantizers of the spaces of `writer`, training whatever the number of points with `force`. `writer` is borrowed
/// only between awaits, and may be another one after each: results for the one before are dropped. Ends when the collection is
/// dropped.
///
/// What cannot be had (address space for codes) is logged; searches go on without codes.
pub async fn advance(env: &Rc<dyn Env>, owned: &Owned, writer: &RefCell<DenseWriter>, force: bool) {
    let spaces = writer.borrow().spaces().len();
    for space in 0..spaces {
        advance_space(env, owned, writer, space, force).await;
    }
}

async fn advance_space(
    env: &Rc<dyn Env>,
    owned: &Owned,
    writer: &RefCell<DenseWriter>,
    number: usize,
    force: bool,
) {
    let mut slice = Slice::begin(env);
    let from_ns = env.now_ns();
    let mut worked = false;
    while !owned.dropped.get() {
        let step = writer.borrow_mut().next_job(number, force);
        match step {
            JobStep::Idle => {
                let space = writer.borrow().shared().spaces()[number].clone();
                if worked {
                    let took_ms = (env.now_ns() - from_ns) / 1_000_000;
                    let (collection, walks) = (&owned.handle.name, space.walks_over());
                    tracing::info!(
                        collection,
                        walks,
                        points = space.vectors(),
                        took_ms,
                        "a quantizer is trained"
                    );
                }
                return;
            }
            JobStep::More => slice.check().await,
            JobStep::Run(job) => {
                worked |= !job.frees();
                let length = if job.is_training() { Length::Long } else { Length::Short };
                let (ticket, done) = (job.ticket(), train(env, length, move || job.run()).await);
                let finished = match done {
                    Some(done) => writer.borrow_mut().spaces_mut()[number].finish_job(done),
                    None => {
                        writer.borrow_mut().spaces_mut()[number].fail_job(ticket);
                        Ok(())
                    }
                };
                if let Err(error) = finished {
                    tracing::warn!(target: "nigh", collection = owned.handle.name, %error, "vectors are not quantized");
                }
                slice = Slice::begin(env);
            }
        }
    }
}

/// Which codes walks go over, for each space.
fn codes_numbers(owned: &Owned) -> Vec<u8> {
    owned.writer.borrow().shared().spaces().iter().map(|space| space.codes_number()).collect()
}

/// The quantizing task of one collection; ends when the collection is dropped.
pub async fn run(collections: Rc<Collections>, owned: Rc<Owned>) {
    let env = collections.env().clone();
    while !owned.dropped.get() {
        let (waiting, asked) = (owned.changed.wait(), owned.quantize.wait());
        let numbers = codes_numbers(&owned);
        advance(&env, &owned, &owned.writer, false).await;
        if owned.dropped.get() {
            return;
        }
        if codes_numbers(&owned) != numbers {
            // The indexer gives back what codes have taken the place of: vectors, or other codes.
            owned.changed.notify();
        }
        or(waiting, asked).await;
    }
}
