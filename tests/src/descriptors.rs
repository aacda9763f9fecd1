//! Open files of a program of tests.
use std::sync::{Mutex, MutexGuard, PoisonError};

/// Descriptors for the other tests of the program, which run at the same time.
const BESIDE: u64 = 4_096;

/// Raises this process's limit of open files so that `count` connections fit, or says what it is. In the long form crowds are as large as
/// the limit bears, and who holds what is returned has it without another crowd.
///
/// # Panics
/// When the limit cannot be raised so far.
pub fn room_for_connections(count: u64) -> Option<MutexGuard<'static, ()>> {
    static CROWD: Mutex<()> = Mutex::new(());
    // A crowd whose test has failed is gone.
    let turn = crate::long().then(|| CROWD.lock().unwrap_or_else(PoisonError::into_inner));
    let mut limit = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
    let wanted = count + BESIDE;
    // SAFETY: both calls touch nothing but `limit`, which lives across them.
    unsafe {
        assert_eq!(libc::getrlimit(libc::RLIMIT_NOFILE, &mut limit), 0);
        assert!(limit.rlim_max >= wanted, "at most {} open files, {wanted} are needed", limit.rlim_max);
        if limit.rlim_cur < wanted {
            limit.rlim_cur = limit.rlim_max;
            assert_eq!(libc::setrlimit(libc::RLIMIT_NOFILE, &limit), 0);
        }
    }
    turn
}
