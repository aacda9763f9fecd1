//! Long texts that writes have put off.

use crate::env::Env;
use crate::slice::Slice;
use nigh_engine::collection::DenseWriter;
use std::cell::RefCell;
use std::rc::Rc;

/// Does what changes until now have put off with long texts, in slices. Others that wait for the same at the same time do a part of it.
pub async fn settle_texts(env: &Rc<dyn Env>, writer: &RefCell<DenseWriter>) {
    let (put_off, mut done) = writer.borrow().points().texts_progress();
    if done == put_off {
        return;
    }
    let mut slice = Slice::begin(env);
    while done < put_off && writer.borrow_mut().points_mut().text_step() {
        slice.check().await;
        // Another writer may be there by now, of a bulk build.
        done = writer.borrow().points().texts_progress().1;
    }
}
