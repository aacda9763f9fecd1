#![no_main]
nigh_fuzz::target!("json_body");
