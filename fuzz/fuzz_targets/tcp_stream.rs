#![no_main]
nigh_fuzz::target!("tcp_stream");
