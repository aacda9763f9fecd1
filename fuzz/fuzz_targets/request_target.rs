#![no_main]
nigh_fuzz::target!("request_target");
