#![no_main]
nigh_fuzz::target!("stored_row_answer");
