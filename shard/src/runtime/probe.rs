//! What the kernel must grant before an executor can run, asked up front so that a refusal names its cause and its remedy.

use super::StartError;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use std::io;

/// The executor refuses to start below this; older kernels charge its rings to the limit.
const MEMLOCK_MIN: u64 = 512 * 1024;
/// I/O buffers an executor registers, when the limit allows: a few log writes at once. Larger operations use the heap.
const IO_MEMORY_MAX: u64 = 1024 * 1024;
/// The executor's own minimum.
const IO_MEMORY_MIN: u64 = 64 * 1024;
/// Each executor registers its buffers with three rings, and each registration is charged.
const RINGS_PER_EXECUTOR: u64 = 3;

/// Checks io_uring and the memlock limit for `cores` executors; the bytes of I/O memory each may register.
pub(super) fn probe(cores: usize) -> Result<usize, StartError> {
    let io_memory = io_memory(raise_memlock(), cores)?;
    io_uring::IoUring::new(8).map(drop).map_err(|error| {
        let sysctl = std::fs::read_to_string("/proc/sys/kernel/io_uring_disabled").ok();
        StartError(explain(&error, sysctl.as_deref().map(str::trim)))
    })?;
    Ok(io_memory)
}

/// Raises the soft limit to the hard one, which needs no privilege; the resulting soft limit.
fn raise_memlock() -> u64 {
    let limit = getrlimit(Resource::Memlock);
    // Without a limit there is no number.
    let number = |limit: Option<u64>| limit.unwrap_or(u64::MAX);
    let (current, maximum) = (number(limit.current), number(limit.maximum));
    // A refusal leaves the limit as it was, which is checked by the caller.
    if current < maximum && setrlimit(Resource::Memlock, Rlimit { current: limit.maximum, ..limit }).is_ok() {
        return maximum;
    }
    current
}

/// `limit / (3 * cores)`, at most 1 MiB.
fn io_memory(limit: u64, cores: usize) -> Result<usize, StartError> {
    let share = limit / (RINGS_PER_EXECUTOR * cores as u64);
    if limit < MEMLOCK_MIN || share < IO_MEMORY_MIN {
        let needed = MEMLOCK_MIN.max(RINGS_PER_EXECUTOR * cores as u64 * IO_MEMORY_MIN);
        return Err(StartError(format!(
            "the locked-memory limit is {} KiB, and {cores} executors need {} KiB for their I/O buffers: raise it \
             (ulimit -l {}; LimitMEMLOCK= in a systemd unit; --ulimit memlock=-1 for a container), or use fewer cores",
            limit / 1024,
            needed / 1024,
            needed / 1024,
        )));
    }
    Ok(share.min(IO_MEMORY_MAX) as usize)
}

/// Why `io_uring_setup` failed, and what to do. `sysctl` is kernel.io_uring_disabled where it exists.
fn explain(error: &io::Error, sysctl: Option<&str>) -> String {
    let (cause, remedy) = match error.raw_os_error() {
        Some(libc::EPERM | libc::EACCES) => match sysctl {
            Some("2") => (
                "the sysctl kernel.io_uring_disabled is 2, which disables it for everybody".to_owned(),
                "set it to 0: sysctl -w kernel.io_uring_disabled=0",
            ),
            Some("1") => (
                "the sysctl kernel.io_uring_disabled is 1, which allows it to members of kernel.io_uring_group only"
                    .to_owned(),
                "set it to 0, or add this process's group to kernel.io_uring_group",
            ),
            _ => (
                "a seccomp filter or security module forbids it (Docker's default profile does)".to_owned(),
                "run the container with a profile that allows io_uring_setup, io_uring_enter and io_uring_register \
                 (--security-opt seccomp=unconfined to try)",
            ),
        },
        Some(libc::ENOSYS) => (
            "this kernel has no io_uring, or a seccomp filter hides it".to_owned(),
            "use Linux 5.11 or newer with CONFIG_IO_URING, and a seccomp profile that allows it",
        ),
        Some(libc::ENOMEM) => (
            "there is not enough lockable memory".to_owned(),
            "raise the locked-memory limit (ulimit -l; LimitMEMLOCK= in a systemd unit)",
        ),
        Some(libc::EMFILE | libc::ENFILE) => {
            ("no file descriptor is left".to_owned(), "raise the limit on open files (ulimit -n)")
        }
        _ => (error.to_string(), "see io_uring_setup(2) for this error"),
    };
    format!("io_uring is not available: {cause}. Remedy: {remedy}.")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_is_shared_among_three_rings_per_core() {
        let mib = 1024 * 1024;
        assert_eq!(io_memory(8 * mib, 2), Ok(mib as usize));
        assert_eq!(io_memory(3 * mib, 2), Ok((mib / 2) as usize));
        assert_eq!(io_memory(u64::MAX, 512), Ok(mib as usize));
        for (limit, cores) in [(64 * 1024, 1), (mib, 64)] {
            let error = io_memory(limit, cores).unwrap_err().to_string();
            assert!(error.contains("ulimit -l"), "{error}");
        }
    }

    #[test]
    fn every_refusal_has_cause_and_remedy() {
        for (code, sysctl, expected) in [
            (libc::EPERM, Some("2"), "kernel.io_uring_disabled=0"),
            (libc::EPERM, Some("1"), "io_uring_group"),
            (libc::EPERM, Some("0"), "seccomp"),
            (libc::EPERM, None, "seccomp"),
            (libc::ENOSYS, None, "5.11"),
            (libc::ENOMEM, None, "ulimit -l"),
            (libc::EMFILE, None, "ulimit -n"),
            (libc::EINVAL, None, "io_uring_setup(2)"),
        ] {
            let text = explain(&io::Error::from_raw_os_error(code), sysctl);
            assert!(text.contains(expected) && text.contains("Remedy"), "{text}");
        }
    }
}
