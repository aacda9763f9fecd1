#![no_main]
nigh_fuzz::target!("payload_row");
