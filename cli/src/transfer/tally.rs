//! Adds up the outcomes of the batches of an import, in the order of the file, and keeps the state of the import.
use super::batch::{Fatal, Outcome};
use super::import_state::{ImportState, StateFile};
use super::progress::{Progress, grouped};
use super::refusals::Rejects;
use std::collections::BTreeMap;
use std::ops::Range;
use std::path::Path;
use std::time::{Duration, Instant};

/// How often the state is written to its file during the import.
const KEEP_INTERVAL: Duration = Duration::from_secs(1);
/// The state names this many batches in advance as possibly sent, so that it need not be written for each batch.
const RESERVED_BATCHES: u64 = 64;

/// The most outcomes that wait in memory while an earlier batch is tried again.
const EARLY_MAX: usize = 64;

/// What is known of an import so far.
pub struct Tally {
    file: StateFile,
    state: ImportState,
    rejects: Option<Rejects>,
    progress: Progress,
    kept: Instant,
    /// Outcomes that arrived before those of earlier batches, by their first lines.
    early: BTreeMap<u64, (Range<u64>, Outcome)>,
    /// The first line that stopped the import.
    fatal: Option<Fatal>,
    /// The lines that an earlier run may have sent.
    may_be_written: Range<u64>,
}

impl Tally {
    /// Begins an import, or continues one; the first `skip` lines after the header are left out.
    ///
    /// # Errors
    /// A sentence with the name of a file.
    pub fn begin(
        file: StateFile,
        mut state: ImportState,
        rejects: Option<&Path>,
        skip: u64,
        unit: &'static str,
    ) -> Result<Tally, String> {
        let rejects = rejects.map(|path| Rejects::open(path, state.rejects_bytes)).transpose()?;
        state.done.lines = state.done.lines.max(skip.saturating_add(1));
        let may_be_written = state.done.lines + 1..state.sent_lines.saturating_add(1);
        let progress = Progress::begin("nigh import", unit, state.done.lines - 1, None);
        Ok(Tally {
            file,
            state,
            rejects,
            progress,
            kept: Instant::now(),
            early: BTreeMap::new(),
            fatal: None,
            may_be_written,
        })
    }

    /// The number of the first line to be dealt with.
    pub fn first_line(&self) -> u64 {
        self.state.done.lines + 1
    }

    /// Whether an earlier run may have sent this line.
    pub fn may_be_written(&self, line: u64) -> bool {
        self.may_be_written.contains(&line) && self.state.conflict_line != Some(line)
    }

    /// Whether the import cannot continue.
    pub fn is_stopped(&self) -> bool {
        self.fatal.is_some()
    }

    /// Whether so many outcomes wait for that of an earlier batch that no further batch should be sent.
    pub fn is_far_ahead(&self) -> bool {
        self.early.len() >= EARLY_MAX
    }

    /// Records in the state that the next batch has these lines, before they are sent.
    ///
    /// # Errors
    /// A sentence with the name of a file.
    pub fn sending(&mut self, lines: &Range<u64>) -> Result<(), String> {
        match lines.end > self.state.sent_lines + 1 {
            false => Ok(()),
            true => {
                self.state.sent_lines = lines.end - 1 + RESERVED_BATCHES * (lines.end - lines.start);
                self.keep()
            }
        }
    }

    /// Adds the outcome of a batch.
    ///
    /// # Errors
    /// A sentence with the name of a file.
    pub fn add(&mut self, lines: Range<u64>, outcome: Outcome) -> Result<(), String> {
        self.early.insert(lines.start, (lines, outcome));
        while let Some((_, (lines, outcome))) = self.early.remove_entry(&self.first_line()) {
            if self.merge(&lines, outcome)? {
                return Ok(());
            }
        }
        // A batch whose predecessors are still being sent also stops the import, but the outcomes of its predecessors are added first.
        let mut stops = self.early.values().filter_map(|(_, outcome)| outcome.fatal.as_ref());
        if let Some(fatal) = stops.next() {
            self.fatal = Some(fatal.clone());
        }
        self.progress.reached(self.state.done.lines - 1);
        match self.kept.elapsed() < KEEP_INTERVAL {
            true => Ok(()),
            false => self.keep(),
        }
    }

    /// Adds the outcome of the next lines. Returns whether one of them stopped the import.
    fn merge(&mut self, lines: &Range<u64>, mut outcome: Outcome) -> Result<bool, String> {
        let done = &mut self.state.done;
        done.written += outcome.written;
        done.skipped += outcome.skipped;
        done.found += outcome.found;
        done.expired += outcome.expired;
        outcome.refusals.sort_by_key(|refusal| refusal.line);
        for refusal in &outcome.refusals {
            done.refusals.add(refusal);
            if let Some(rejects) = &mut self.rejects {
                rejects.add(refusal)?;
            }
        }
        match outcome.fatal {
            None => {
                done.lines = lines.end - 1;
                Ok(false)
            }
            Some(fatal) => {
                done.lines = fatal.line - 1;
                self.state.conflict_line = fatal.is_conflict.then_some(fatal.line);
                self.fatal = Some(fatal);
                Ok(true)
            }
        }
    }

    fn keep(&mut self) -> Result<(), String> {
        self.kept = Instant::now();
        if let Some(rejects) = &mut self.rejects {
            self.state.rejects_bytes = rejects.flush()?;
        }
        self.file.keep(&self.state)
    }

    /// Ends the import. `failed` says why the file was not read to its end, and `broken` what is wrong with the file as a whole. Returns a summary,
    /// and whether everything was imported.
    pub fn end(
        mut self,
        what: &str,
        failed: Option<String>,
        broken: Option<String>,
    ) -> (String, Result<(), String>) {
        let kept = match self.is_stopped() || failed.is_some() {
            true => self.keep(),
            false => self.keep().and_then(|()| self.file.end()),
        };
        let done = &self.state.done;
        let mut text = format!("imported into {what}: {} written", grouped(done.written));
        for (count, name) in [
            (done.skipped, "were there already and were left"),
            (done.found, "were there already from an interrupted run"),
            (done.expired, "had expired"),
            (done.refusals.count(), "refused"),
        ] {
            if count > 0 {
                text += &format!(", {} {name}", grouped(count));
            }
        }
        text += &format!(" ({} lines, {})\n", grouped(done.lines - 1), self.progress.end());
        text += &done.refusals.summary();
        // An import that was repeated with the same choice would end at the same point or key again.
        let choice = match &self.fatal {
            Some(fatal) if fatal.is_conflict => " with -on-conflict skip or -on-conflict replace",
            _ => "",
        };
        let stopped = self.fatal.map(|fatal| fatal.reason).or(failed).map(|reason| {
            let lines = done.lines - 1;
            let flag = if self.file.is_kept() { "-resume".to_owned() } else { format!("-skip {lines}") };
            format!(
                "{reason}: {lines} lines behind the header are dealt with; {flag}{choice} goes on behind them"
            )
        });
        let refused = (done.refusals.count() > 0)
            .then(|| format!("{} points or keys were refused", done.refusals.count()));
        let problems: Vec<String> =
            stopped.into_iter().chain(broken).chain(kept.err()).chain(refused).collect();
        match problems.is_empty() {
            true => (text, Ok(())),
            false => (text, Err(problems.join("; "))),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn written(count: u64) -> Outcome {
        Outcome { written: count, ..Outcome::default() }
    }

    #[test]
    fn batches_count_in_the_order_of_the_file() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("f");
        let name = path.to_str().unwrap();
        let begin = |resume| {
            let file = StateFile::of(name);
            let state = file.begin(resume, "it").unwrap();
            Tally::begin(file, state, None, 0, "points").unwrap()
        };
        let mut tally = begin(false);
        assert_eq!(tally.first_line(), 2);
        tally.sending(&(2..12)).unwrap();
        tally.sending(&(12..22)).unwrap();
        tally.sending(&(22..32)).unwrap();
        // The second one is dealt with first, and the third one stops at its fifth line.
        tally.add(12..22, written(10)).unwrap();
        assert_eq!(tally.first_line(), 2);
        let fatal = Fatal { line: 26, is_conflict: true, reason: "it is there".into() };
        tally.add(22..32, Outcome { fatal: Some(fatal), ..written(4) }).unwrap();
        assert!(tally.is_stopped());
        tally.add(2..12, written(9)).unwrap();
        assert_eq!(tally.first_line(), 26);
        let (text, ended) = tally.end("films", None, None);
        assert!(text.starts_with("imported into films: 23 written (24 lines"), "{text}");
        assert!(
            ended.unwrap_err().contains("it is there: 24 lines behind the header are dealt with; -resume")
        );

        let tally = begin(true);
        assert_eq!(tally.first_line(), 26);
        assert!(!tally.may_be_written(25) && !tally.may_be_written(26) && tally.may_be_written(27));
        // Reserved when the first batch was sent: its last line and 64 more batches of ten.
        assert!(tally.may_be_written(11 + 640) && !tally.may_be_written(12 + 640));
        let (_, ended) = tally.end("films", None, Some("it is cut short".into()));
        assert_eq!(ended, Err("it is cut short".into()));
        assert!(!StateFile::of(name).is_kept() || !path.with_extension("import").exists());
    }
}
