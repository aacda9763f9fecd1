//! Readiness of sockets on one core: one epoll instance, edge-triggered, driven by the core loop.
//!
//! Everything lives on one thread: [`Reactor::turn`] marks sources ready and wakes their tasks on the thread that also runs
//! them, so no state here is atomic. Interest is registered once, for both directions, and never changed: a source costs
//! one `epoll_ctl` in its life.
//!
//! An event carries the slot of its source and the slot's generation. A source dropped while its event is already in the
//! batch leaves a newer generation behind, so a stale event never wakes the source that reuses the slot.

use std::cell::{Cell, RefCell};
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd, RawFd};
use std::rc::Rc;
use std::task::{Context, Poll, Waker};

/// Events taken from the kernel per turn. More stay queued there (in order) and come with the next turn: 256 bounds the work
/// before the mesh is looked at again, at 12 bytes each.
const EVENTS_PER_TURN: usize = 256;
/// Token of descriptors that only interrupt the wait (the bell): no source, nobody to wake.
const TOKEN_WATCHED: u64 = u64::MAX;

/// One per core.
pub struct Reactor {
    epoll: OwnedFd,
    slots: RefCell<Slots>,
    /// Reused buffer; taken out while its events are handled.
    events: Cell<Vec<libc::epoll_event>>,
    /// The kernel predates `epoll_pwait2` (5.11): waits are rounded up to milliseconds.
    coarse_wait: Cell<bool>,
}

#[derive(Default)]
struct Slots {
    slots: Vec<SourceSlot>,
    free: Vec<u32>,
}

#[derive(Default)]
struct SourceSlot {
    generation: u32,
    read: Direction,
    write: Direction,
}

/// Readiness of one direction of one source.
#[derive(Default)]
struct Direction {
    ready: bool,
    /// The peer hung up: this direction stays ready, so that a reader which stops at a short read still meets the end of
    /// the stream (its event may have been merged into the one of the data before it).
    hung_up: bool,
    waker: Option<Waker>,
}

impl Reactor {
    /// Makes the epoll instance.
    ///
    /// # Errors
    /// Those of `epoll_create1`: the process or system is out of descriptors, or of memory.
    pub fn new() -> io::Result<Rc<Reactor>> {
        // SAFETY: no pointers; the result is checked before it is owned.
        let fd = unsafe { libc::epoll_create1(libc::EPOLL_CLOEXEC) };
        if fd < 0 {
            return Err(io::Error::last_os_error());
        }
        // SAFETY: `fd` was just created and nothing else owns it.
        let epoll = unsafe { OwnedFd::from_raw_fd(fd) };
        Ok(Rc::new(Reactor {
            epoll,
            slots: RefCell::default(),
            events: Cell::new(Vec::with_capacity(EVENTS_PER_TURN)),
            coarse_wait: Cell::new(false),
        }))
    }

    /// Registers a non-blocking descriptor for edge-triggered reading and writing; deregisters and closes on drop.
    ///
    /// Both directions start out ready: the first attempt finds out, and usually succeeds (a client has mostly sent its
    /// request by the time its connection is accepted).
    ///
    /// # Errors
    /// Those of `epoll_ctl`: the descriptor cannot be polled (a file), or the watch limit is reached. The descriptor is closed.
    pub fn register(self: &Rc<Self>, fd: OwnedFd) -> io::Result<Source> {
        let (index, generation) = self.slots.borrow_mut().allocate();
        let flags = libc::EPOLLIN | libc::EPOLLOUT | libc::EPOLLRDHUP | libc::EPOLLET;
        if let Err(error) = self.control(libc::EPOLL_CTL_ADD, fd.as_raw_fd(), flags, token(index, generation))
        {
            self.slots.borrow_mut().release(index);
            return Err(error);
        }
        Ok(Source { reactor: self.clone(), fd, index })
    }

    /// Lets `fd` cut a wait short (edge-triggered, never read). The caller keeps it open while the reactor is in use.
    pub(crate) fn watch(&self, fd: BorrowedFd<'_>) -> io::Result<()> {
        self.control(libc::EPOLL_CTL_ADD, fd.as_raw_fd(), libc::EPOLLIN | libc::EPOLLET, TOKEN_WATCHED)
    }

    /// Polls once (`timeout_us` 0 = do not wait), marks sources ready and wakes their tasks; returns events handled. EINTR counts as none.
    ///
    /// # Errors
    /// Those of `epoll_wait`, which for a valid instance and buffer do not happen.
    pub fn turn(&self, timeout_us: u64) -> io::Result<usize> {
        self.poll(timeout_us.saturating_mul(1000))
    }

    /// [`Self::turn`] with the wait in nanoseconds.
    pub(crate) fn poll(&self, timeout_ns: u64) -> io::Result<usize> {
        let mut events = self.events.take();
        let handled = match self.wait(&mut events, timeout_ns) {
            Ok(()) => {
                for event in &events {
                    self.handle(event.u64, event.events as i32);
                }
                Ok(events.len())
            }
            // A signal, or a completion of the thread's io_uring.
            Err(error) if error.kind() == io::ErrorKind::Interrupted => Ok(0),
            Err(error) => Err(error),
        };
        events.clear();
        self.events.set(events);
        handled
    }

    /// Fills `events` from the kernel.
    fn wait(&self, events: &mut Vec<libc::epoll_event>, timeout_ns: u64) -> io::Result<()> {
        // A turn inside a turn (a waker that turns) finds the buffer taken; it gets one of its own.
        events.reserve(EVENTS_PER_TURN);
        let epoll = self.epoll.as_raw_fd();
        let mut count = -1;
        if !self.coarse_wait.get() {
            let timeout = libc::timespec {
                tv_sec: (timeout_ns / 1_000_000_000) as libc::time_t,
                tv_nsec: (timeout_ns % 1_000_000_000) as libc::c_long,
            };
            // SAFETY: `events` has room for EVENTS_PER_TURN entries (reserved above), `timeout` outlives the call, and a null
            // signal mask is allowed.
            count = unsafe {
                libc::syscall(
                    libc::SYS_epoll_pwait2,
                    epoll,
                    events.as_mut_ptr(),
                    EVENTS_PER_TURN,
                    &raw const timeout,
                    std::ptr::null::<libc::sigset_t>(),
                    0usize,
                )
            };
            if count < 0 && io::Error::last_os_error().raw_os_error() == Some(libc::ENOSYS) {
                self.coarse_wait.set(true);
            }
        }
        if self.coarse_wait.get() {
            let timeout_ms = timeout_ns.div_ceil(1_000_000).min(i32::MAX as u64) as i32;
            // SAFETY: as above.
            count =
                unsafe { libc::epoll_wait(epoll, events.as_mut_ptr(), EVENTS_PER_TURN as i32, timeout_ms) }
                    .into();
        }
        if count < 0 {
            return Err(io::Error::last_os_error());
        }
        // SAFETY: the kernel has initialised the first `count <= EVENTS_PER_TURN` entries of the reserved room.
        unsafe { events.set_len(count as usize) };
        Ok(())
    }

    fn handle(&self, token: u64, flags: i32) {
        if token == TOKEN_WATCHED {
            return;
        }
        let (index, generation) = (token as u32, (token >> 32) as u32);
        let hung_up = flags & libc::EPOLLHUP != 0;
        let failed = flags & libc::EPOLLERR != 0;
        let (reader, writer) = {
            let mut slots = self.slots.borrow_mut();
            let slot = &mut slots.slots[index as usize];
            if slot.generation != generation {
                return;
            }
            let end = hung_up || flags & libc::EPOLLRDHUP != 0;
            (
                slot.read.on_event(flags & libc::EPOLLIN != 0 || end || failed, end),
                slot.write.on_event(flags & libc::EPOLLOUT != 0 || hung_up || failed, hung_up),
            )
        };
        // Woken outside the borrow: a waker may run code that registers or drops sources.
        if let Some(waker) = reader {
            waker.wake();
        }
        if let Some(waker) = writer {
            waker.wake();
        }
    }

    fn control(&self, operation: i32, fd: RawFd, flags: i32, token: u64) -> io::Result<()> {
        let mut event = libc::epoll_event { events: flags as u32, u64: token };
        // SAFETY: `event` outlives the call; the kernel checks both descriptors.
        let result = unsafe { libc::epoll_ctl(self.epoll.as_raw_fd(), operation, fd, &mut event) };
        if result < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
    }
}

impl AsFd for Reactor {
    /// The epoll descriptor: readable when a turn would find events.
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.epoll.as_fd()
    }
}

fn token(index: u32, generation: u32) -> u64 {
    u64::from(generation) << 32 | u64::from(index)
}

impl Slots {
    /// A slot with both directions ready, and its generation.
    fn allocate(&mut self) -> (u32, u32) {
        let index = self.free.pop().unwrap_or_else(|| {
            self.slots.push(SourceSlot::default());
            (self.slots.len() - 1) as u32
        });
        let slot = &mut self.slots[index as usize];
        slot.read.ready = true;
        slot.write.ready = true;
        (index, slot.generation)
    }

    /// Hands the wakers back: they are dropped outside the borrow, as the last one may drop a task and its sources.
    fn release(&mut self, index: u32) -> [Option<Waker>; 2] {
        let slot = &mut self.slots[index as usize];
        // The token of watched descriptors needs generation and index u32::MAX together; 2^32 slots never exist.
        slot.generation = slot.generation.wrapping_add(1);
        let wakers = [slot.read.waker.take(), slot.write.waker.take()];
        slot.read = Direction::default();
        slot.write = Direction::default();
        self.free.push(index);
        wakers
    }
}

impl Direction {
    fn on_event(&mut self, ready: bool, hung_up: bool) -> Option<Waker> {
        if !ready {
            return None;
        }
        self.ready = true;
        self.hung_up |= hung_up;
        self.waker.take()
    }

    fn poll(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        if self.ready {
            return Poll::Ready(());
        }
        match &mut self.waker {
            Some(waker) => waker.clone_from(cx.waker()),
            none => *none = Some(cx.waker().clone()),
        }
        Poll::Pending
    }

    fn clear(&mut self) {
        self.ready = self.hung_up;
    }
}

/// A registered descriptor. One task at a time waits per direction: the latest to poll is the one woken.
pub struct Source {
    reactor: Rc<Reactor>,
    fd: OwnedFd,
    index: u32,
}

impl Source {
    /// Ready when reading may make progress; call again after `clear_readable` on WouldBlock.
    pub fn poll_readable(&self, cx: &mut Context<'_>) -> Poll<()> {
        self.with_slot(|slot| slot.read.poll(cx))
    }

    /// Likewise for writing.
    pub fn poll_writable(&self, cx: &mut Context<'_>) -> Poll<()> {
        self.with_slot(|slot| slot.write.poll(cx))
    }

    /// Reading gave WouldBlock, or fewer bytes than asked for. Call it before anything that awaits: an edge reported in
    /// between would be forgotten. After the peer has hung up the source stays readable.
    pub fn clear_readable(&self) {
        self.with_slot(|slot| slot.read.clear());
    }

    /// Writing gave WouldBlock. Call it before anything that awaits.
    pub fn clear_writable(&self) {
        self.with_slot(|slot| slot.write.clear());
    }

    fn with_slot<R>(&self, f: impl FnOnce(&mut SourceSlot) -> R) -> R {
        f(&mut self.reactor.slots.borrow_mut().slots[self.index as usize])
    }
}

impl AsRawFd for Source {
    fn as_raw_fd(&self) -> RawFd {
        self.fd.as_raw_fd()
    }
}

impl AsFd for Source {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

impl Drop for Source {
    fn drop(&mut self) {
        // Closing alone would leave the registration alive if the descriptor was duplicated (a child process, TLS handover).
        // It can only fail for a descriptor that is not registered, which this one is.
        let deregistered = self.reactor.control(libc::EPOLL_CTL_DEL, self.fd.as_raw_fd(), 0, 0);
        debug_assert!(deregistered.is_ok(), "deregistering a source failed: {deregistered:?}");
        let wakers = self.reactor.slots.borrow_mut().release(self.index);
        drop(wakers);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::{Read, Write};
    use std::os::unix::net::UnixStream;
    use std::sync::Arc;
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::task::Wake;

    #[derive(Default)]
    struct Count(AtomicUsize);
    impl Wake for Count {
        fn wake(self: Arc<Self>) {
            self.0.fetch_add(1, Ordering::Relaxed);
        }
    }
    impl Count {
        fn get(&self) -> usize {
            self.0.load(Ordering::Relaxed)
        }
    }

    fn pair(reactor: &Rc<Reactor>) -> (Source, UnixStream) {
        let (ours, theirs) = UnixStream::pair().unwrap();
        ours.set_nonblocking(true).unwrap();
        (reactor.register(ours.into()).unwrap(), theirs)
    }

    fn read(source: &Source, buffer: &mut [u8]) -> io::Result<usize> {
        UnixStream::from(source.as_fd().try_clone_to_owned().unwrap()).read(buffer)
    }

    #[test]
    fn an_edge_wakes_the_waiting_reader_once() {
        let reactor = Reactor::new().unwrap();
        let (source, mut peer) = pair(&reactor);
        let count = Arc::new(Count::default());
        let waker = Waker::from(count.clone());
        let cx = &mut Context::from_waker(&waker);

        assert!(source.poll_readable(cx).is_ready(), "sources start out ready");
        assert_eq!(read(&source, &mut [0; 8]).unwrap_err().kind(), io::ErrorKind::WouldBlock);
        source.clear_readable();
        assert!(source.poll_readable(cx).is_pending());
        reactor.turn(0).unwrap();
        assert_eq!(count.get(), 0, "only the writing direction had an edge");

        peer.write_all(b"hello").unwrap();
        assert_eq!(reactor.turn(1_000_000).unwrap(), 1);
        assert_eq!(count.get(), 1);
        assert!(source.poll_readable(cx).is_ready());
        assert_eq!(reactor.turn(0).unwrap(), 0, "an edge is reported once");
        assert!(source.poll_writable(cx).is_ready());
    }

    #[test]
    fn a_full_socket_wakes_the_writer_when_drained() {
        let reactor = Reactor::new().unwrap();
        let (source, mut peer) = pair(&reactor);
        let count = Arc::new(Count::default());
        let waker = Waker::from(count.clone());
        let cx = &mut Context::from_waker(&waker);
        let mut stream = UnixStream::from(source.as_fd().try_clone_to_owned().unwrap());
        let mut sent = 0;
        while let Ok(n) = stream.write(&[7; 65536]) {
            sent += n;
        }
        source.clear_writable();
        reactor.turn(0).unwrap();
        source.clear_writable();
        assert!(source.poll_writable(cx).is_pending());
        let mut received = vec![0; sent];
        peer.read_exact(&mut received).unwrap();
        reactor.turn(1_000_000).unwrap();
        assert_eq!(count.get(), 1);
        assert!(source.poll_writable(cx).is_ready());
    }

    #[test]
    fn the_end_of_a_stream_is_not_lost_behind_a_short_read() {
        let reactor = Reactor::new().unwrap();
        let (source, mut peer) = pair(&reactor);
        peer.write_all(b"bye").unwrap();
        drop(peer);
        reactor.turn(1_000_000).unwrap();
        assert_eq!(read(&source, &mut [0; 64]).unwrap(), 3);
        source.clear_readable();
        assert!(source.poll_readable(&mut Context::from_waker(Waker::noop())).is_ready());
        assert_eq!(read(&source, &mut [0; 64]).unwrap(), 0);
    }

    thread_local! {
        static VICTIM: RefCell<Option<Source>> = const { RefCell::new(None) };
        static HEIR: RefCell<Option<(Source, UnixStream)>> = const { RefCell::new(None) };
    }

    /// On wake, drops the other source and registers one that takes its slot.
    struct Replace;
    impl Wake for Replace {
        fn wake(self: Arc<Self>) {
            let Some(victim) = VICTIM.take() else { return };
            let reactor = victim.reactor.clone();
            let index = victim.index;
            drop(victim);
            let heir = pair(&reactor);
            assert_eq!(heir.0.index, index, "the slot is reused at once");
            heir.0.clear_readable();
            HEIR.set(Some(heir));
        }
    }

    #[test]
    fn a_stale_event_never_reaches_the_source_that_reuses_its_slot() {
        let reactor = Reactor::new().unwrap();
        let (first, mut first_peer) = pair(&reactor);
        let (second, mut second_peer) = pair(&reactor);
        reactor.turn(0).unwrap();
        let waker = Waker::from(Arc::new(Replace));
        let cx = &mut Context::from_waker(&waker);
        for source in [&first, &second] {
            source.clear_readable();
            assert!(source.poll_readable(cx).is_pending());
        }
        VICTIM.set(Some(second));
        first_peer.write_all(b"1").unwrap();
        second_peer.write_all(b"2").unwrap();
        // One batch with both events: the first wake replaces the second's source.
        assert_eq!(reactor.turn(1_000_000).unwrap(), 2);
        HEIR.with_borrow(|heir| {
            let (heir, _) = heir.as_ref().unwrap();
            assert!(
                heir.poll_readable(&mut Context::from_waker(Waker::noop())).is_pending(),
                "an event of the dropped source made its heir readable"
            );
        });
        HEIR.set(None);
    }

    #[test]
    fn dropping_a_source_closes_and_forgets_it() {
        let reactor = Reactor::new().unwrap();
        let (source, mut peer) = pair(&reactor);
        drop(source);
        assert_eq!(peer.read(&mut [0; 1]).unwrap(), 0);
        assert_eq!(reactor.turn(0).unwrap(), 0);
        let file = tempfile::tempfile().unwrap();
        assert!(reactor.register(file.into()).is_err(), "regular files cannot be polled");
        assert_eq!(reactor.slots.borrow().free.len(), 1);
    }

    #[test]
    fn a_watched_descriptor_interrupts_each_time_it_is_written() {
        let reactor = Reactor::new().unwrap();
        let (ours, mut theirs) = UnixStream::pair().unwrap();
        reactor.watch(ours.as_fd()).unwrap();
        for _ in 0..3 {
            assert_eq!(reactor.turn(0).unwrap(), 0);
            theirs.write_all(b"!").unwrap();
            assert_eq!(reactor.turn(1_000_000).unwrap(), 1);
        }
    }
}
