//! One epoll instance of one generator thread.
//!
//! The server's own reactor wakes tasks; a generator has none, it wants the list of connections that have something. So
//! this is level-triggered: a connection is read once per event, and one read less than the usual "until it would block".
use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::time::Duration;

/// Events taken per wait; more come with the next one.
const EVENTS_MAX: usize = 256;

/// See the module.
pub struct Poll {
    epoll: OwnedFd,
    events: Vec<libc::epoll_event>,
}

/// What happened to one descriptor.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Event {
    /// The token it was added with.
    pub token: usize,
    /// Reading finds bytes, the end, or an error.
    pub readable: bool,
    /// Writing finds room, or an error.
    pub writable: bool,
}

impl Poll {
    /// Makes an instance, and asks for exact timers on this thread: by default the kernel may add 50 µs to each wait.
    ///
    /// # Errors
    /// Of `epoll_create1`.
    pub fn new() -> io::Result<Poll> {
        // SAFETY: neither call takes a pointer. A kernel that refuses exact timers keeps its own.
        let fd = unsafe {
            libc::prctl(libc::PR_SET_TIMERSLACK, 1 as libc::c_ulong);
            libc::epoll_create1(libc::EPOLL_CLOEXEC)
        };
        if fd < 0 {
            return Err(io::Error::last_os_error());
        }
        // SAFETY: `fd` was just made, and nothing else owns it.
        let epoll = unsafe { OwnedFd::from_raw_fd(fd) };
        Ok(Poll { epoll, events: Vec::with_capacity(EVENTS_MAX) })
    }

    /// Watches `source` for reading.
    ///
    /// # Errors
    /// Of `epoll_ctl`.
    pub fn add(&self, source: &impl AsRawFd, token: usize) -> io::Result<()> {
        self.control(libc::EPOLL_CTL_ADD, source, libc::EPOLLIN, token)
    }

    /// Watches `source` for writing as well, or no longer.
    ///
    /// # Errors
    /// Of `epoll_ctl`.
    pub fn watch_writing(&self, source: &impl AsRawFd, token: usize, writing: bool) -> io::Result<()> {
        let flags = if writing { libc::EPOLLIN | libc::EPOLLOUT } else { libc::EPOLLIN };
        self.control(libc::EPOLL_CTL_MOD, source, flags, token)
    }

    fn control(&self, operation: i32, source: &impl AsRawFd, flags: i32, token: usize) -> io::Result<()> {
        let mut event = libc::epoll_event { events: flags as u32, u64: token as u64 };
        // SAFETY: `event` outlives the call; the kernel checks both descriptors.
        let result =
            unsafe { libc::epoll_ctl(self.epoll.as_raw_fd(), operation, source.as_raw_fd(), &mut event) };
        if result < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
    }

    /// Waits for events, at most `timeout`; how many there are. A signal counts as none.
    ///
    /// # Errors
    /// Of `epoll_pwait2`: the kernel is older than 5.11.
    pub fn wait(&mut self, timeout: Duration) -> io::Result<usize> {
        self.events.clear();
        let timeout = libc::timespec {
            tv_sec: timeout.as_secs() as libc::time_t,
            tv_nsec: timeout.subsec_nanos().into(),
        };
        // SAFETY: the vector was made with room for EVENTS_MAX entries and never shrinks, `timeout` outlives the call, and a
        // null signal mask is allowed.
        let count = unsafe {
            libc::syscall(
                libc::SYS_epoll_pwait2,
                self.epoll.as_raw_fd(),
                self.events.as_mut_ptr(),
                EVENTS_MAX,
                &raw const timeout,
                std::ptr::null::<libc::sigset_t>(),
                0usize,
            )
        };
        if count < 0 {
            let error = io::Error::last_os_error();
            return if error.kind() == io::ErrorKind::Interrupted { Ok(0) } else { Err(error) };
        }
        // SAFETY: the kernel has written the first `count <= EVENTS_MAX` entries.
        unsafe { self.events.set_len(count as usize) };
        Ok(self.events.len())
    }

    /// Event `index` of the last wait.
    pub fn event(&self, index: usize) -> Event {
        let event = self.events[index];
        let (flags, token) = (event.events as i32, event.u64);
        let ended = flags & (libc::EPOLLERR | libc::EPOLLHUP) != 0;
        Event {
            token: token as usize,
            readable: ended || flags & libc::EPOLLIN != 0,
            writable: ended || flags & libc::EPOLLOUT != 0,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::{Read, Write};
    use std::os::unix::net::UnixStream;

    #[test]
    fn readiness_is_told_until_it_is_used() {
        let (mut near, mut far) = UnixStream::pair().unwrap();
        let mut poll = Poll::new().unwrap();
        poll.add(&near, 7).unwrap();
        assert_eq!(poll.wait(Duration::ZERO).unwrap(), 0);
        far.write_all(b"xy").unwrap();
        for _ in 0..2 {
            assert_eq!(poll.wait(Duration::from_secs(5)).unwrap(), 1);
            assert_eq!(poll.event(0), Event { token: 7, readable: true, writable: false });
        }
        near.read_exact(&mut [0; 2]).unwrap();
        assert_eq!(poll.wait(Duration::from_micros(10)).unwrap(), 0);
        poll.watch_writing(&near, 7, true).unwrap();
        assert_eq!(poll.wait(Duration::from_secs(5)).unwrap(), 1);
        assert!(poll.event(0).writable && !poll.event(0).readable);
        poll.watch_writing(&near, 7, false).unwrap();
        assert_eq!(poll.wait(Duration::ZERO).unwrap(), 0);
        drop(far);
        assert_eq!(poll.wait(Duration::from_secs(5)).unwrap(), 1);
        assert!(poll.event(0).readable);
    }
}
