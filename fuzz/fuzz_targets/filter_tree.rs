#![no_main]
nigh_fuzz::target!("filter_tree");
