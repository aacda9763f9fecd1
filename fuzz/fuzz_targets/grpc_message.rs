#![no_main]
nigh_fuzz::target!("grpc_message");
