//! CPU time, so that figures hold on a machine that other programs share.
use std::time::Duration;

/// CPU time of the calling thread.
pub fn thread_time() -> Duration {
    clock(libc::CLOCK_THREAD_CPUTIME_ID)
}

/// CPU time of all threads of the process.
pub fn process_time() -> Duration {
    clock(libc::CLOCK_PROCESS_CPUTIME_ID)
}

fn clock(id: libc::clockid_t) -> Duration {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: the pointer is to a live timespec that the call fills.
    let rc = unsafe { libc::clock_gettime(id, &mut time) };
    assert_eq!(rc, 0, "the kernel has no clock {id}");
    Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
}
