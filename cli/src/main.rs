//! The `nigh` binary: flags to configuration to calls.
//!
//! Without a subcommand it is the server; `nigh bench vector` is the load generator.
mod config_file;
mod exposure;
mod flags;
mod logging;
mod memory_limit;

#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    println!("{:?}", flags::parse(&arguments));
}
