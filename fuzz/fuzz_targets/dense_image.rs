#![no_main]
nigh_fuzz::target!("dense_image");
