#![no_main]
nigh_fuzz::target!("certificate_name");
