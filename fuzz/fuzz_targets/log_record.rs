#![no_main]
nigh_fuzz::target!("log_record");
