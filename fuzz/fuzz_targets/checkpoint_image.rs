#![no_main]
nigh_fuzz::target!("checkpoint_image");
