#![no_main]
nigh_fuzz::target!("keys_indexes");
