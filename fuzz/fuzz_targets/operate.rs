#![no_main]
nigh_fuzz::target!("operate");
