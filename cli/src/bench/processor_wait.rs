//! How long a thread has waited for a processor.
//!
//! A load generator that shares processors with the server waits for them itself, and a client's clock charges that to
//! the server. The kernel counts these waits per thread, so they can be taken out again.
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::time::Duration;

/// The kernel's count for one thread.
pub struct ProcessorWait(Option<File>);

impl ProcessorWait {
    /// Of the calling thread; another thread may read it too.
    pub fn of_this_thread() -> ProcessorWait {
        // The link names the thread that opens it, for good.
        ProcessorWait(File::open("/proc/thread-self/schedstat").ok())
    }

    /// Time spent ready to run without running, since the thread began. `None` where the kernel does not count it.
    /// Costs a system call, about a microsecond.
    pub fn total(&self) -> Option<Duration> {
        let mut text = [0; 96];
        let len = self.0.as_ref()?.read_at(&mut text, 0).ok()?;
        // Time running, time waiting, turns.
        let waited = std::str::from_utf8(&text[..len]).ok()?.split_ascii_whitespace().nth(1)?;
        Some(Duration::from_nanos(waited.parse().ok()?))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::{AtomicBool, Ordering};

    #[test]
    fn a_thread_that_shares_its_processor_waits() {
        if ProcessorWait::of_this_thread().total().is_none() {
            return;
        }
        // One more thread than processors: somebody waits.
        let threads = std::thread::available_parallelism().map_or(1, usize::from) + 1;
        let stop = AtomicBool::new(false);
        std::thread::scope(|scope| {
            let spin = || {
                let wait = ProcessorWait::of_this_thread();
                while !stop.load(Ordering::Relaxed) {
                    std::hint::spin_loop();
                }
                wait.total().expect("it was there before")
            };
            let workers: Vec<_> = (0..threads).map(|_| scope.spawn(spin)).collect();
            std::thread::sleep(Duration::from_millis(200));
            stop.store(true, Ordering::Relaxed);
            let waited: Duration = workers.into_iter().map(|worker| worker.join().unwrap()).sum();
            assert!(waited > Duration::from_millis(50), "{waited:?}");
        });
    }
}
