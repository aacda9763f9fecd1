//! What is counted: answers and latencies by class, and the processor time and memory of both sides.
use super::workload::Class;
use crate::bench::latency::histogram;
use hdrhistogram::Histogram;
use rustix::time::{ClockId, clock_gettime};
use std::time::Duration;

/// What one generator thread saw, or all of them together.
pub struct Tally {
    /// Latency of GETs, nanoseconds.
    pub get: Histogram<u64>,
    /// Latency of SETs.
    pub set: Histogram<u64>,
    /// From the moment a request was due to the moment it was written, open loop.
    pub late: Histogram<u64>,
    /// Answers that came in the measured time, whenever their requests were due.
    pub completed: u64,
    /// GETs without a value, in the measured time.
    pub misses: u64,
    /// Unexpected answers, warm-up included.
    pub errors: u64,
    /// The first of them.
    pub first_error: Option<String>,
    /// Requests that were due and had no answer when the stretch was given up.
    pub unanswered: u64,
    /// Bytes written in the measured time.
    pub sent_bytes: u64,
    /// Bytes received in the measured time.
    pub received_bytes: u64,
}

impl Tally {
    /// Nothing yet.
    pub fn new() -> Tally {
        Tally {
            get: histogram(),
            set: histogram(),
            late: histogram(),
            completed: 0,
            misses: 0,
            errors: 0,
            first_error: None,
            unanswered: 0,
            sent_bytes: 0,
            received_bytes: 0,
        }
    }

    /// The histogram of a class.
    pub fn class(&mut self, class: Class) -> &mut Histogram<u64> {
        match class {
            Class::Get => &mut self.get,
            Class::Set => &mut self.set,
        }
    }

    /// An unexpected answer; `sentence` is asked for the first only.
    pub fn error(&mut self, sentence: impl FnOnce() -> String) {
        self.errors += 1;
        if self.first_error.is_none() {
            self.first_error = Some(sentence());
        }
    }

    /// Adds another thread's.
    pub fn add(&mut self, other: &Tally) {
        for (own, others) in
            [(&mut self.get, &other.get), (&mut self.set, &other.set), (&mut self.late, &other.late)]
        {
            // Both have the same bounds, so every value fits.
            let _fits = own.add(others);
        }
        self.completed += other.completed;
        self.misses += other.misses;
        self.errors += other.errors;
        self.unanswered += other.unanswered;
        self.sent_bytes += other.sent_bytes;
        self.received_bytes += other.received_bytes;
        if self.first_error.is_none() {
            self.first_error.clone_from(&other.first_error);
        }
    }
}

/// CPU time of this process so far, all threads.
pub fn own_cpu() -> Duration {
    let time = clock_gettime(ClockId::ProcessCPUTime);
    Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
}

/// Resident memory of process `pid`, bytes.
pub fn resident_of(pid: u32) -> Option<u64> {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"))?;
    let kib: u64 = line.trim().strip_suffix("kB")?.trim().parse().ok()?;
    Some(kib * 1024)
}

#[cfg(test)]
mod tests {
    use super::*;
    use nigh_shard::system::{PID_MAX, cpu_of};
    use std::time::Instant;

    #[test]
    fn processor_time_of_any_process() {
        let before = (own_cpu(), cpu_of(std::process::id()).unwrap());
        let start = Instant::now();
        // Until this thread has had a processor for a while, however long that takes.
        while own_cpu() - before.0 < Duration::from_millis(20) {
            assert!(start.elapsed() < Duration::from_secs(60), "no processor time is counted");
        }
        let own = cpu_of(std::process::id()).unwrap() - before.1;
        assert!(own >= Duration::from_millis(19), "{own:?}");
        assert!(resident_of(std::process::id()).unwrap() > 1 << 20);
        for pid in [0, PID_MAX + 1, 1 << 29, 1 << 30, u32::MAX] {
            assert_eq!((cpu_of(pid), resident_of(pid)), (None, None), "{pid}");
        }
    }

    #[test]
    fn tallies_add_up() {
        let mut one = Tally::new();
        one.class(Class::Get).saturating_record(1000);
        one.error(|| "first".into());
        one.error(|| unreachable!("only the first is told"));
        let mut other = Tally::new();
        other.class(Class::Set).saturating_record(5_000_000);
        other.class(Class::Get).saturating_record(2000);
        other.error(|| "second".into());
        (other.misses, other.completed, other.unanswered) = (3, 2, 1);
        one.add(&other);
        assert_eq!((one.get.len(), one.set.len(), one.errors), (2, 1, 3));
        assert_eq!((one.misses, one.completed, one.unanswered), (3, 2, 1));
        assert_eq!(one.first_error.as_deref(), Some("first"));
    }
}
