//! The `nigh` binary: an allocator, and everything else in the library beside it.

/// Searches allocate little, ingest allocates much and frees on other threads, where the system allocator queues.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// Has the allocator return to the kernel what this thread has freed, and the unused memory of its arenas.
fn give_back_memory() {
    // SAFETY: the function may be called from any thread at any time. It frees nothing that is in use.
    unsafe { libmimalloc_sys::mi_collect(true) };
}

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
    std::process::exit(nigh::run(&arguments, give_back_memory));
}
