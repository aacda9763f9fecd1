#![no_main]
nigh_fuzz::target!("signed_token");
