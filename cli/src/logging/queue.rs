//! Lines on their way from the threads that log to those that write. Nobody waits: a line that finds no room is thrown away and counted.
//!
//! Each log has bounds of its own, so that a flood of requests crowds out neither decisions nor the server's own log.
use super::line::Log;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::mpsc::Sender;

/// The most lines of one log that may wait, and the most bytes of these: enough for thousands of usual lines, and a bound for long ones.
const LINES_WAITING_MAX: usize = 8192;
const BYTES_WAITING_MAX: usize = 4 << 20;

/// What a thread that writes lines is told.
pub enum Word {
    /// To write a line, which ends with a newline.
    Line(Log, String),
    /// That its file has been reopened.
    Reopened,
    /// To end when everything before has been written.
    Stop,
}

/// How much of one log waits, and how many of its lines were thrown away.
#[derive(Default)]
struct Count {
    lines: AtomicUsize,
    bytes: AtomicUsize,
    lost: AtomicU64,
}

/// The counts of every log.
#[derive(Default)]
pub struct Counts([Count; Log::ALL.len()]);

impl Counts {
    fn of(&self, log: Log) -> &Count {
        &self.0[log as usize]
    }

    /// Counts a line that is to wait; false when there is no room for it.
    fn begin(&self, log: Log, bytes: usize) -> bool {
        let count = self.of(log);
        let lines_before = count.lines.fetch_add(1, Ordering::Relaxed);
        let bytes_before = count.bytes.fetch_add(bytes, Ordering::Relaxed);
        let has_room = lines_before < LINES_WAITING_MAX && bytes_before + bytes <= BYTES_WAITING_MAX;
        if !has_room {
            self.end(log, bytes);
        }
        has_room
    }

    /// Notes that a line waits no longer.
    pub fn end(&self, log: Log, bytes: usize) {
        let count = self.of(log);
        count.lines.fetch_sub(1, Ordering::Relaxed);
        count.bytes.fetch_sub(bytes, Ordering::Relaxed);
    }

    /// Notes that a line was thrown away.
    pub fn lose(&self, log: Log) {
        self.of(log).lost.fetch_add(1, Ordering::Relaxed);
    }

    /// How many lines have been thrown away so far.
    pub fn lost(&self, log: Log) -> u64 {
        self.of(log).lost.load(Ordering::Relaxed)
    }
}

/// The sending ends of all queues.
pub struct Queues {
    counts: Arc<Counts>,
    /// The queue of each log; several may be the same.
    to: [Sender<Word>; Log::ALL.len()],
}

impl Queues {
    /// Queues to the threads that write each log.
    pub fn new(counts: Arc<Counts>, to: [Sender<Word>; Log::ALL.len()]) -> Queues {
        Queues { counts, to }
    }

    /// Has a line written, or counts it as lost.
    pub fn push(&self, log: Log, line: String) {
        let bytes = line.len();
        if !self.counts.begin(log, bytes) {
            return self.counts.lose(log);
        }
        if self.to[log as usize].send(Word::Line(log, line)).is_err() {
            // The thread has ended.
            self.counts.end(log, bytes);
            self.counts.lose(log);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::mpsc::channel;

    #[test]
    fn each_log_has_bounds_of_its_own() {
        let counts = Arc::new(Counts::default());
        let (send, receive) = channel();
        let queues = Queues::new(counts.clone(), [send.clone(), send.clone(), send]);
        for _ in 0..LINES_WAITING_MAX + 10 {
            queues.push(Log::Access, "x\n".to_owned());
        }
        queues.push(Log::Audit, "decision\n".to_owned());
        queues.push(Log::Server, "y".repeat(BYTES_WAITING_MAX));
        queues.push(Log::Server, "z\n".to_owned());
        assert_eq!(Log::ALL.map(|log| counts.lost(log)), [1, 10, 0]);
        let mut waiting = [0; 3];
        for word in receive.try_iter() {
            let Word::Line(log, line) = word else { panic!("a line") };
            waiting[log as usize] += 1;
            counts.end(log, line.len());
        }
        assert_eq!(waiting, [1, LINES_WAITING_MAX, 1]);
        // There is room again.
        queues.push(Log::Access, "x\n".to_owned());
        queues.push(Log::Server, "z\n".to_owned());
        assert_eq!((receive.try_iter().count(), counts.lost(Log::Access)), (2, 10));
    }

    #[test]
    fn lines_without_a_reader_are_lost() {
        let counts = Arc::new(Counts::default());
        let (send, receive) = channel();
        let queues = Queues::new(counts.clone(), [send.clone(), send.clone(), send]);
        drop(receive);
        queues.push(Log::Audit, "x\n".to_owned());
        assert_eq!(counts.lost(Log::Audit), 1);
    }
}
