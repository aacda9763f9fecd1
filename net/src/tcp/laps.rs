//! The time of a round, divided among its stages.
//!
//! One reading of the clock ends a stage and begins the next. A round has a handful of them, whatever the number of its requests:
//! four where nothing is waited for, two more for a wait.

use crate::tcp::counters::Stage;
use crate::tcp::here::Here;
use std::time::{Duration, Instant};

/// See the module. Of one connection; stages of several overlap, so that their sums may exceed the time that passed.
pub struct Laps<'a> {
    here: &'a Here,
    last: Instant,
}

impl<'a> Laps<'a> {
    /// The first stage begins now.
    pub fn new(here: &'a Here) -> Laps<'a> {
        Laps { here, last: Instant::now() }
    }

    /// Begins anew: the time since the last stage was the client's.
    pub fn restart(&mut self) {
        self.last = Instant::now();
    }

    /// When the last stage ended.
    pub fn last(&self) -> Instant {
        self.last
    }

    /// Ends `stage`.
    pub fn end(&mut self, stage: Stage) {
        self.end_with_log(stage, Duration::ZERO);
    }

    /// Ends `stage`, of which `log` was a wait for a log, elsewhere.
    pub fn end_with_log(&mut self, stage: Stage, log: Duration) {
        let now = Instant::now();
        let whole = now.saturating_duration_since(self.last);
        self.last = now;
        let log = log.min(whole);
        self.here.spend(stage, whole - log);
        if !log.is_zero() {
            self.here.spend(Stage::Log, log);
        }
    }
}
