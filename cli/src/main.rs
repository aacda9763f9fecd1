//! The `nigh` binary: an allocator, and everything else in the library beside it.

#![forbid(unsafe_code)]

/// Searches allocate little, ingest allocates much and frees on other threads, where the system allocator queues.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() {
    let mut arguments = Vec::new();
    for argument in std::env::args_os().skip(1) {
        match argument.into_string() {
            Ok(text) => arguments.push(text),
            Err(bytes) => {
                eprintln!("nigh: not UTF-8: {bytes:?}; the lines of nigh cli take any bytes as \"\\xff\"");
                std::process::exit(2);
            }
        }
    }
    std::process::exit(nigh::run(&arguments, nigh_shard::system::give_back_memory));
}
