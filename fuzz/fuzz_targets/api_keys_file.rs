#![no_main]
nigh_fuzz::target!("api_keys_file");
