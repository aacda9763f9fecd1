//! What the operating system and the allocator are asked for that no safe library offers. Front ends and the program itself have no unsafe
//! code; what they need of this kind is here.

use std::io;
use std::time::Duration;

/// Nice value of threads that compute, or store backups, beside the cores: where they share a processor with a core, the core gets nine tenths of it.
const BESIDE_CORES_NICE: i32 = 10;

/// Greatest id of a process that the kernel gives.
pub const PID_MAX: u32 = 1 << 22;

/// Blocks signals on this thread and on those that it starts afterwards.
///
/// # Errors
/// The kernel's, for a number that is no signal.
pub fn block_signals(signals: &[i32]) -> io::Result<()> {
    // SAFETY: `set` is written by sigemptyset before it is read, and the calls touch nothing else of ours.
    unsafe {
        let mut set = std::mem::zeroed();
        libc::sigemptyset(&mut set);
        for signal in signals {
            if libc::sigaddset(&mut set, *signal) != 0 {
                return Err(io::Error::last_os_error());
            }
        }
        match libc::pthread_sigmask(libc::SIG_BLOCK, &set, std::ptr::null_mut()) {
            0 => Ok(()),
            error => Err(io::Error::from_raw_os_error(error)),
        }
    }
}

/// CPU time of process `pid` so far, threads that have ended included, to the nanosecond; `/proc/<pid>/stat` has the same in
/// hundredths of a second. `None` when there is no such process.
pub fn cpu_of(pid: u32) -> Option<Duration> {
    // A clock's number has 29 bits for the process, and 0 there is whoever asks.
    if pid == 0 || pid > PID_MAX {
        return None;
    }
    let (mut clock, mut time) = (0, libc::timespec { tv_sec: 0, tv_nsec: 0 });
    // SAFETY: both places outlive the calls, which write nothing else.
    let failed = unsafe {
        libc::clock_getcpuclockid(libc::pid_t::try_from(pid).ok()?, &mut clock) != 0
            || libc::clock_gettime(clock, &mut time) != 0
    };
    (!failed).then(|| Duration::new(time.tv_sec as u64, time.tv_nsec as u32))
}

/// Has the allocator return to the kernel what this thread has freed, and the unused memory of its arenas. Does nothing where another
/// allocator than mimalloc is used.
pub fn give_back_memory() {
    // SAFETY: the function may be called from any thread at any time. It frees nothing that is in use.
    unsafe { libmimalloc_sys::mi_collect(true) };
}

/// Lets the calling thread, and those that it starts afterwards, give way to the cores.
pub fn give_way() {
    // No process means the calling thread. Being nicer needs no privilege; without it only tails get worse.
    let _as_it_was = rustix::process::setpriority_process(None, BESIDE_CORES_NICE);
}

/// Binds the calling thread to one CPU. Of any number: the sets of CPUs that libraries offer end at 1,024.
///
/// # Errors
/// The kernel's: there is no such CPU, or this process may not run on it.
pub fn pin(cpu: usize) -> io::Result<()> {
    let mut words = vec![0u64; cpu / 64 + 1];
    words[cpu / 64] = 1 << (cpu % 64);
    // SAFETY: the kernel reads `words.len() * 8` bytes of `words`, which outlives the call.
    let result = unsafe {
        libc::syscall(libc::SYS_sched_setaffinity, 0, size_of_val(words.as_slice()), words.as_ptr())
    };
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}

/// CPUs the calling thread may run on, ascending.
pub fn affinity_mask() -> Vec<usize> {
    /// 65,536 CPUs: more than any kernel configuration offers, so EINVAL (mask too short) cannot happen.
    const MASK_WORDS: usize = 1024;
    let mut words = [0u64; MASK_WORDS];
    // SAFETY: the kernel writes at most `size_of_val(&words)` bytes into `words`, which outlives the call.
    let bytes =
        unsafe { libc::syscall(libc::SYS_sched_getaffinity, 0, size_of_val(&words), words.as_mut_ptr()) };
    if bytes <= 0 {
        // Only a seccomp filter refuses this call; one unpinnable core is the honest answer then.
        return vec![0];
    }
    let cpus: Vec<usize> =
        (0..MASK_WORDS * 64).filter(|&cpu| words[cpu / 64] >> (cpu % 64) & 1 == 1).collect();
    if cpus.is_empty() { vec![0] } else { cpus }
}

/// Sends a signal to a thread of this process. The thread may have ended in the meantime; then nobody gets it.
pub fn signal_thread(thread: i32, signal: i32) {
    // SAFETY: no pointers.
    unsafe {
        libc::syscall(libc::SYS_tgkill, libc::getpid(), thread, signal);
    }
}

/// Gives a signal a handler that does nothing, without SA_RESTART, so that it interrupts waits. False when it may not be handled.
pub fn interrupt_by(signal: i32) -> bool {
    extern "C" fn ignore(_signal: libc::c_int) {}
    // SAFETY: zero is a valid sigaction: no flags, empty mask.
    let mut action: libc::sigaction = unsafe { std::mem::zeroed() };
    action.sa_sigaction = ignore as extern "C" fn(libc::c_int) as libc::sighandler_t;
    // SAFETY: `action` outlives the call, and the handler is async-signal-safe, since it does nothing.
    unsafe { libc::sigaction(signal, &action, std::ptr::null_mut()) == 0 }
}
