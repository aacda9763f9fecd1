//! One epoll instance of one generator thread.
//!
//! The server's own reactor wakes tasks; a generator has none, it wants the list of connections that have something. So
//! this is level-triggered: a connection is read once per event, and one read less than the usual "until it would block".
use rustix::buffer::spare_capacity;
use rustix::event::Timespec;
use rustix::event::epoll::{self, CreateFlags, EventData, EventFlags};
use rustix::io::Errno;
use rustix::thread::set_current_timer_slack;
use std::io;
use std::num::NonZeroU64;
use std::os::fd::{AsFd, OwnedFd};
use std::time::Duration;

/// Events taken per wait; more come with the next one.
const EVENTS_MAX: usize = 256;

/// See the module.
pub struct Poll {
    epoll: OwnedFd,
    events: Vec<epoll::Event>,
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
        // A kernel that refuses exact timers keeps its own.
        let _refused = set_current_timer_slack(NonZeroU64::new(1));
        let epoll = epoll::create(CreateFlags::CLOEXEC)?;
        Ok(Poll { epoll, events: Vec::with_capacity(EVENTS_MAX) })
    }

    /// Watches `source` for reading.
    ///
    /// # Errors
    /// Of `epoll_ctl`.
    pub fn add(&self, source: &impl AsFd, token: usize) -> io::Result<()> {
        Ok(epoll::add(&self.epoll, source, EventData::new_u64(token as u64), EventFlags::IN)?)
    }

    /// Watches `source` for writing as well, or no longer.
    ///
    /// # Errors
    /// Of `epoll_ctl`.
    pub fn watch_writing(&self, source: &impl AsFd, token: usize, writing: bool) -> io::Result<()> {
        let flags = if writing { EventFlags::IN | EventFlags::OUT } else { EventFlags::IN };
        Ok(epoll::modify(&self.epoll, source, EventData::new_u64(token as u64), flags)?)
    }

    /// Waits for events, at most `timeout`; how many there are. A signal counts as none.
    ///
    /// # Errors
    /// Of `epoll_pwait2`: the kernel is older than 5.11.
    pub fn wait(&mut self, timeout: Duration) -> io::Result<usize> {
        self.events.clear();
        let timeout = Timespec { tv_sec: timeout.as_secs() as i64, tv_nsec: timeout.subsec_nanos().into() };
        match epoll::wait(&self.epoll, spare_capacity(&mut self.events), Some(&timeout)) {
            Ok(count) => Ok(count),
            Err(Errno::INTR) => Ok(0),
            Err(error) => Err(error.into()),
        }
    }

    /// Event `index` of the last wait.
    pub fn event(&self, index: usize) -> Event {
        let event = self.events[index];
        let (flags, token) = (event.flags, event.data.u64());
        let ended = flags.intersects(EventFlags::ERR | EventFlags::HUP);
        Event {
            token: token as usize,
            readable: ended || flags.contains(EventFlags::IN),
            writable: ended || flags.contains(EventFlags::OUT),
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
