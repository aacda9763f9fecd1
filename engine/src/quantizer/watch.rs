//! Whether it is time to look if what was learned from points still fits those that are there.
//!
//! A look is a training on a sample of the points of now, whose outcome takes the place of what was learned before if it is clearly better
//! on vectors that neither has learned from. It costs seconds of a thread that gives way to the cores, so how often it comes is bounded
//! by what is written: it comes when, of the points that there are, so many were not there at the training: an eighth, a quarter, a half, and
//! so on to all of them, when none is left of those that were learned from (with few of these left it may still be they that outweigh
//! others). From a 64th on where nothing is being written any more. Where a whole generation of points has brought nothing better, looks
//! are fewer. And whatever was found before, one comes when an eighth was written and errors tell that points lie elsewhere: of those
//! that are written some are measured, by the squared error of their codes, and in cells by the squared distance to their centroid. Errors
//! that have shrunk ask for one too, unless looks have brought nothing: points that lie close together need finer codes, and as long as a
//! few of those from before are among what is learned from these decide how fine codes are.

/// By how much the mean error of codes over all points must have grown to ask for a look.
const GROWN: f64 = 1.2;
/// By how much the mean error of later points must have shrunk: codes that are too coarse for them lose little of each, but more than
/// they differ by.
const SHRUNK: f64 = 2.0;
/// One in so many of the points that were learned from is written before a look at rest because of that.
const RESTING: u64 = 64;
/// Points written before the first look, so that few do not decide. In tests there are few.
const WRITTEN_MIN: u64 = if cfg!(test) { 16 } else { 256 };
/// Points measured before errors are believed.
const MEASURED_MIN: u64 = WRITTEN_MIN / 8;
/// One in so many of the points that were learned from is written before a look because of errors.
const EARLY: u64 = 8;
/// And before they are believed to have shrunk: a few that lie far off make the mean.
const SHRUNK_MEASURED_MIN: u64 = 4 * MEASURED_MIN;
/// One in so many written points is measured, as decoding a code costs about as much as making it.
const MEASURED_EVERY: u64 = 8;

/// Shares of the points that were there at the training, in 64ths, from which on there is a look.
const LEVELS: [u64; 12] = [63, 62, 60, 56, 48, 32, 16, 8, 4, 2, 1, 0];
/// The first of these while there are writes.
const WRITING: u8 = 3;
/// Those that are left where a whole generation of points has brought nothing better.
const CALM: [u8; 3] = [5, 7, 11];

/// What was learned makes place for what loses so much of what it loses, in the geometric mean: codes of all points are written anew.
const BETTER: f64 = 0.9;
/// One vector counts for no more than this, either way (a factor, as a logarithm).
const COUNTS_MOST: f64 = 2.0;

/// Whether `new` errors of vectors are clearly below the `old` ones of the same, for most of them: a mean of squares would go by those few
/// that lie far from the others.
pub(crate) fn is_better(old: &[f64], new: &[f64]) -> bool {
    let ratio = |(&old, &new): (&f64, &f64)| match (old > 0.0, new > 0.0) {
        (true, true) => (new / old).ln().clamp(-COUNTS_MOST, COUNTS_MOST),
        (false, false) => 0.0,
        (true, false) => -COUNTS_MOST,
        (false, true) => COUNTS_MOST,
    };
    !old.is_empty() && old.iter().zip(new).map(ratio).sum::<f64>() < BETTER.ln() * old.len() as f64
}

/// NaN of nothing.
pub(crate) fn mean(errors: &[f64]) -> f64 {
    errors.iter().sum::<f64>() / errors.len() as f64
}

/// A mean of the training, and what has been summed up since.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Level {
    /// At the training; NaN when it is not known.
    pub trained: f64,
    /// Sum over the points measured since the last look.
    pub sum: f64,
}

impl Level {
    /// Measured so at a training.
    pub fn trained(mean: f64) -> Level {
        Level { trained: mean, sum: 0.0 }
    }

    /// Whether the mean over `learned` points of the training and `written` later ones is above the trained one by `factor`.
    fn has_grown(&self, factor: f64, learned: u64, written: u64, measured: u64) -> bool {
        let later = self.sum / measured as f64;
        let all = (self.trained * learned as f64 + later * written as f64) / (learned + written) as f64;
        // A level that is not known is NaN, for which this is false.
        all > factor * self.trained
    }

    /// Whether the mean of later points is far below the trained one: they lie closer together than what was learned from.
    fn has_shrunk(&self, measured: u64) -> bool {
        SHRUNK * self.sum / (measured as f64) < self.trained
    }
}

/// See the module.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Watch {
    /// Sequence number of the training: points born up to there count as learned from.
    pub seq: u64,
    /// How many of the points learned from are still there.
    pub left: u64,
    /// Points that there were at the last look.
    pub learned_from: u64,
    /// Points written since.
    pub written: u64,
    /// How many of the written points were measured.
    pub measured: u64,
    /// Which level asks for the next look.
    pub level: u8,
    /// Nothing better was found while all points were replaced once.
    pub calm: bool,
    /// Squared errors of codes.
    pub error: Level,
    /// Squared distances to centroids.
    pub spread: Level,
    /// Nothing has been written for a while. Not kept in images.
    pub resting: bool,
}

impl Watch {
    /// From a training of `points`, all that there were at `seq`.
    pub fn new(seq: u64, points: u64, error: f64, spread: f64) -> Watch {
        Watch {
            seq,
            left: points,
            learned_from: points,
            error: Level::trained(error),
            spread: Level::trained(spread),
            ..Watch::default()
        }
    }

    /// Of something that was learned before this was kept: a look is due at once.
    pub fn unknown(points: u64) -> Watch {
        Watch { left: 0, written: points, ..Watch::new(0, points, f64::NAN, f64::NAN) }
    }

    /// A point is written; whether it is to be measured.
    pub fn write(&mut self) -> bool {
        self.written += 1;
        self.resting = false;
        self.written.is_multiple_of(MEASURED_EVERY)
    }

    /// What was measured of a point.
    pub fn measure(&mut self, error: f64, spread: f64) {
        self.measured += 1;
        self.error.sum += error;
        self.spread.sum += spread;
    }

    /// A point that was born at `born` is gone.
    pub fn bury(&mut self, born: u64) {
        if born <= self.seq {
            self.left = self.left.saturating_sub(1);
        }
    }

    /// Whether a look is due, of `points` that there are. `spread`: by how much distances to centroids must have grown to ask for one.
    pub fn is_due(&self, points: u64, spread: f64) -> bool {
        let Watch { learned_from, written, measured, .. } = *self;
        if written < WRITTEN_MIN.min(points) {
            return false;
        }
        let level = if self.resting { self.level } else { self.level.max(WRITING) };
        if LEVELS.get(usize::from(level)).is_some_and(|level| 64 * self.left <= level * points) {
            return true;
        }
        let grown = |level: &Level, factor| level.has_grown(factor, learned_from, written, measured);
        let shrunk = |level: &Level| level.has_shrunk(measured);
        let may_be_finer =
            !self.calm && (self.is_early() || (self.resting && written >= learned_from / RESTING));
        measured >= MEASURED_MIN
            && ((self.is_early() && (grown(&self.error, GROWN) || grown(&self.spread, spread)))
                || (may_be_finer
                    && measured >= SHRUNK_MEASURED_MIN
                    && (shrunk(&self.error) || shrunk(&self.spread))))
    }

    /// Whether so much was written that a look is of use, though it may come later.
    pub fn is_early(&self) -> bool {
        self.written >= (self.learned_from / EARLY).max(WRITTEN_MIN)
    }

    /// Whether codes lose about as much of what was written since the last look as of what was learned from; `None` where too few were
    /// measured to tell.
    pub fn fits(&self) -> Option<bool> {
        let is_known = self.measured >= MEASURED_MIN && !self.error.trained.is_nan();
        let has_grown = || self.error.sum / self.measured as f64 > GROWN * self.error.trained;
        is_known.then(|| !has_grown() && !self.error.has_shrunk(self.measured))
    }

    /// A look has begun: what is written from now on is not learned from.
    pub fn begin_look(&mut self, points: u64) {
        (self.learned_from, self.written, self.measured) = (points, 0, 0);
        (self.error.sum, self.spread.sum) = (0.0, 0.0);
    }

    /// A look that began at `seq`, and at so many `points`, has found nothing better. `error` and `spread`: what is lost of the points that
    /// there are now, to which later ones are held.
    pub fn keep(&mut self, seq: u64, points: u64, error: f64, spread: f64) {
        let was_known = !self.error.trained.is_nan();
        (self.error.trained, self.spread.trained) = (error, spread);
        if self.left == 0 {
            (self.seq, self.left, self.calm) = (seq, points, was_known);
        }
        let is_next = |level: &u8| 64 * self.left > LEVELS[usize::from(*level)] * points;
        self.level = match self.calm {
            true => CALM.into_iter().find(is_next),
            false => (0..LEVELS.len() as u8).find(is_next),
        }
        .unwrap_or(LEVELS.len() as u8 - 1);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Replaces points, all that there are of them; after how many looks came that found nothing better.
    fn looks(watch: &mut Watch, from: u64, points: u64, error: f64, rest: bool) -> Vec<u64> {
        let mut looks = Vec::new();
        for at in 1..=points {
            watch.bury(from - points + at);
            if watch.write() {
                watch.measure(error, 1.0);
            }
            watch.resting = rest;
            if watch.is_due(points, 1.5) {
                looks.push(at);
                watch.begin_look(points);
                watch.keep(from + at, points, error, 1.0);
            }
        }
        looks
    }

    #[test]
    fn looks_come_with_the_end_of_what_was_learned_from_and_fewer_where_they_find_nothing() {
        for rest in [false, true] {
            let points = 6400;
            let mut watch = Watch::new(points, points, 2.0, 1.0);
            let early: &[u64] = if rest { &[100, 200, 400] } else { &[] };
            let wanted = [early, &[800, 1600, 3200, 4800, 5600, 6000, 6200, 6300, 6400]].concat();
            assert_eq!(looks(&mut watch, points, points, 2.1, rest), wanted);
            for from in [2 * points, 3 * points] {
                assert_eq!(looks(&mut watch, from, points, 2.1, rest), [3200, 5600, 6400]);
            }
        }
    }

    #[test]
    fn errors_that_have_grown_ask_for_one_whatever_was_found_before() {
        let mut watch = Watch { calm: true, level: 11, ..Watch::new(6400, 6400, 2.0, 1.0) };
        assert_eq!(looks(&mut watch, 6400, 6400, 1e9, false)[0], 800, "never at once");
        let mut watch = Watch { calm: true, level: 11, ..Watch::new(6400, 6400, 2.0, 1.0) };
        let points = looks(&mut watch, 6400, 6400, 4.0, false)[0];
        assert!((1500..1700).contains(&points), "a fifth at twice the error: {points}");
        assert!(Watch::unknown(500).is_due(500, 1.5) && !Watch::new(1, 1, 0.0, 0.0).is_due(1, 1.5));
    }

    #[test]
    fn what_is_better_is_so_for_most_vectors() {
        assert!(is_better(&[1.0, 1.0, 1e9], &[0.5, 0.5, 1.1e9]));
        let (mut old, mut new) = ([1.0; 8], [1.2; 8]);
        (old[7], new[7]) = (1e9, 1.0);
        assert!(!is_better(&old, &new), "however much one gains");
        assert!(!is_better(&[1.0; 4], &[0.95; 4]) && is_better(&[1.0; 4], &[0.85; 4]));
        assert!(!is_better(&[], &[]) && !is_better(&[0.0], &[0.0]) && is_better(&[1.0], &[0.0]));
    }
}
