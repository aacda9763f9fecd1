//! The `nigh` binary: an allocator, and everything else in the library beside it.

/// Searches allocate little, ingest allocates much and frees on other threads, where the system allocator queues.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    std::process::exit(nigh::run(&arguments));
}
