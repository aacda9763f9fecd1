#![no_main]
nigh_fuzz::target!("client_hello");
