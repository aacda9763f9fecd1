#![no_main]
nigh_fuzz::target!("binary_ingest");
