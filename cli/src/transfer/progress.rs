//! Shows the progress of a transfer: on a terminal in a line that changes, elsewhere in a new line every few seconds.
use indicatif::{ProgressBar, ProgressStyle};
use std::io::{IsTerminal, Write};
use std::time::{Duration, Instant};

/// The time between two lines if stderr is no terminal.
const LINE_INTERVAL: Duration = Duration::from_secs(5);

/// The progress of one transfer, on stderr.
pub struct Progress {
    program: &'static str,
    /// What is counted: points or keys.
    unit: &'static str,
    bar: Option<ProgressBar>,
    total: Option<u64>,
    begun: Instant,
    said: Instant,
    /// Counted before this run.
    before: u64,
    now: u64,
}

impl Progress {
    /// Begins at `before`, the number that an interrupted run had reached. `total` is the number of all, if that is known.
    pub fn begin(program: &'static str, unit: &'static str, before: u64, total: Option<u64>) -> Progress {
        let bar = std::io::stderr().is_terminal().then(|| {
            let (bar, template) = match total {
                Some(total) => (
                    ProgressBar::new(total),
                    "{msg} {wide_bar} {human_pos}/{human_len} {percent:>3}% {per_sec} {eta}",
                ),
                None => (ProgressBar::no_length(), "{msg} {human_pos} {per_sec}"),
            };
            if let Ok(style) = ProgressStyle::with_template(template) {
                bar.set_style(style);
            }
            bar.with_position(before).with_message(program)
        });
        let now = Instant::now();
        Progress { program, unit, bar, total, begun: now, said: now, before, now: before }
    }

    /// Reports how many points or keys have been dealt with so far.
    pub fn reached(&mut self, count: u64) {
        self.now = count;
        match &self.bar {
            Some(bar) => bar.set_position(count),
            None if self.said.elapsed() >= LINE_INTERVAL => {
                self.said = Instant::now();
                let of = self.total.map_or_else(String::new, |total| format!(" of {}", grouped(total)));
                let line = format!(
                    "{}: {}{of} {}, {}/s\n",
                    self.program,
                    grouped(count),
                    self.unit,
                    grouped(self.rate() as u64)
                );
                // A reader that has gone away is no reason to fail.
                let _ = std::io::stderr().write_all(line.as_bytes());
            }
            None => {}
        }
    }

    /// Points or keys per second of this run.
    fn rate(&self) -> f64 {
        (self.now - self.before.min(self.now)) as f64 / self.begun.elapsed().as_secs_f64().max(1e-9)
    }

    /// Removes the line from the terminal. Returns a text with the duration of this run and its rate.
    pub fn end(self) -> String {
        if let Some(bar) = &self.bar {
            bar.finish_and_clear();
        }
        format!("{:.1} s, {}/s", self.begun.elapsed().as_secs_f64(), grouped(self.rate() as u64))
    }
}

/// A number with a comma between each three digits.
pub fn grouped(number: u64) -> String {
    let digits = number.to_string();
    let mut text = String::new();
    for (at, digit) in digits.chars().enumerate() {
        if at > 0 && (digits.len() - at).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

/// Now, in milliseconds since 1970.
pub fn now_ms() -> u64 {
    u64::try_from(jiff::Timestamp::now().as_millisecond()).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_grouped() {
        for (number, text) in [(0, "0"), (999, "999"), (1000, "1,000"), (1_234_567, "1,234,567")] {
            assert_eq!(grouped(number), text);
        }
    }

    #[test]
    fn an_end_is_a_rate() {
        let mut progress = Progress::begin("nigh test", "points", 10, Some(20));
        progress.reached(20);
        assert!(progress.end().ends_with("/s"));
    }
}
