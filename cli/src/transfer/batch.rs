//! Writes a batch of points: makes the bodies of requests, and reads from the answers what became of each point.
use super::header::Family;
use super::options::OnConflict;
use super::point::Point;
use super::refusals::Refusal;
use super::remote::{JSON, Lost, Remote, Reply, Request};
use super::source::Collection;
use serde::Deserialize;
use serde_json::value::RawValue;
use std::collections::HashSet;
use std::io::Write;

/// Media type of the binary body.
const BINARY: &str = "application/octet-stream";
/// The longest payload that the binary body carries.
const BINARY_PAYLOAD_BYTES_MAX: usize = 1 << 20;
/// The message with which the server refuses a point that exists already.
const PRESENT: &str = "already present";

/// What became of a batch.
#[derive(Debug, Default)]
pub struct Outcome {
    /// Points that were written.
    pub written: u64,
    /// Points that were there already and were left as they are.
    pub skipped: u64,
    /// Points that were there already and are taken for points that an interrupted run, or a request whose answer was lost, has written.
    pub found: u64,
    /// Points that had expired.
    pub expired: u64,
    /// Lines that were refused.
    pub refusals: Vec<Refusal>,
    /// Why the import cannot continue.
    pub fatal: Option<Fatal>,
}

/// Why an import cannot continue.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fatal {
    /// The number of the first line of the batch that was not dealt with.
    pub line: u64,
    /// Whether the reason is that the point in that line exists already.
    pub is_conflict: bool,
    /// A sentence.
    pub reason: String,
}

/// How points of a request are written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Mode {
    /// The request fails at a point that exists.
    Insert,
    /// A point that exists is replaced.
    Upsert,
    /// A point that exists is kept, and the answer says so.
    IfAbsent,
}

/// Where points go.
pub struct Destination<'a> {
    /// The collection.
    pub collection: &'a Collection,
    /// What to do with points that exist already.
    pub on_conflict: OnConflict,
    /// The collection existed before this run, so points of the file may exist already.
    pub has_old_points: bool,
    /// The names of the sparse spaces.
    pub sparse_spaces: Vec<String>,
    /// Whether ids are known to be integers, which the binary body needs.
    pub has_number_ids: bool,
}

/// Points that are still to be written.
struct Work<'w, 'p> {
    points: Vec<&'w Point<'p>>,
    /// They may have been written before, by an interrupted run or by a request whose answer was lost.
    is_unsure: bool,
    /// It was looked up which of them exist.
    is_checked: bool,
}

impl Destination<'_> {
    /// Writes `points` in their order, each with whether an interrupted run may have written it; adds what became of them to `outcome`.
    pub fn write(&self, remote: &mut Remote, points: &[(Point<'_>, bool)], outcome: &mut Outcome) {
        let mut work: Vec<Work<'_, '_>> = points
            .chunk_by(|one, other| one.1 == other.1)
            .map(|chunk| Work {
                points: chunk.iter().map(|(point, _)| point).collect(),
                is_unsure: chunk[0].1,
                is_checked: false,
            })
            .collect();
        work.reverse();
        while let Some(next) = work.pop() {
            match self.step(remote, next, outcome) {
                // The work that is left comes before the rest, in order.
                Ok(left) => work.extend(left.into_iter().rev().filter(|work| !work.points.is_empty())),
                Err(fatal) => {
                    outcome.fatal = Some(fatal);
                    return;
                }
            }
        }
    }

    /// Sends one request, or several about the same points, and returns the work that is left.
    fn step<'w, 'p>(
        &self,
        remote: &mut Remote,
        work: Work<'w, 'p>,
        outcome: &mut Outcome,
    ) -> Result<Vec<Work<'w, 'p>>, Fatal> {
        let Work { mut points, is_unsure, is_checked } = work;
        let at = |line: u64| move |reason: String| Fatal { line, is_conflict: false, reason };
        let first = points[0].number;
        if self.must_look(is_unsure) && !is_checked {
            let present = self.present(remote, &points).map_err(at(first))?;
            if self.on_conflict == OnConflict::Fail
                && !is_unsure
                && let Some(taken) = points.iter().position(|point| present.contains(&canonical(point.id)))
            {
                // The points before it are written first.
                let rest = Work { points: points.split_off(taken), is_unsure, is_checked: true };
                let before = Work { points, is_unsure, is_checked: true };
                return if taken == 0 {
                    Err(conflict(rest.points[0]))
                } else {
                    Ok(vec![before, Work { is_checked: false, ..rest }])
                };
            }
            let before = points.len();
            points.retain(|point| !present.contains(&canonical(point.id)));
            self.count_present(before - points.len(), is_unsure, outcome);
            return Ok(vec![Work { points, is_unsure, is_checked: true }]);
        }
        let mode = self.mode();
        self.make_room(remote, &points, mode).map_err(at(first))?;
        let reply = match self.send(remote, &points, mode) {
            Ok(reply) if !reply.is_busy() => reply,
            failure => {
                let done = failure.as_ref().ok().and_then(Reply::committed).unwrap_or(0).min(points.len());
                outcome.written += done as u64;
                let left = points.split_off(done);
                let Some(line) = left.first().map(|point| point.number) else { return Ok(Vec::new()) };
                remote.wait(&failure).map_err(at(line))?;
                let is_lost = failure.is_err();
                return Ok(vec![Work {
                    points: left,
                    is_unsure: is_unsure || is_lost,
                    is_checked: is_checked && !is_lost,
                }]);
            }
        };
        if reply.is_success() {
            self.tally(&reply, &points, mode, is_unsure, outcome)?;
            return Ok(Vec::new());
        }
        let is_about_points = matches!(reply.status, 400 | 409 | 413 | 422);
        match reply.committed().filter(|done| *done < points.len()) {
            Some(done) => {
                outcome.written += done as u64;
                let bad = points[done];
                if !is_about_points {
                    return Err(at(bad.number)(reply.sentence("writing points")));
                }
                let left = points.split_off(done + 1);
                match reply.status == 409 && reply.reason().contains(PRESENT) {
                    true if self.on_conflict == OnConflict::Fail && !is_unsure => return Err(conflict(bad)),
                    true => self.count_present(1, is_unsure, outcome),
                    false => outcome.refusals.push(refusal(bad, &reply)),
                }
                Ok(vec![Work { points: left, is_unsure, is_checked }])
            }
            None if !is_about_points => Err(at(first)(reply.sentence("writing points"))),
            // The body as a whole was refused, so each half is tried on its own.
            None if points.len() > 1 => {
                let other = points.split_off(points.len() / 2);
                Ok(vec![
                    Work { points, is_unsure, is_checked },
                    Work { points: other, is_unsure, is_checked },
                ])
            }
            None => {
                outcome.refusals.push(refusal(points[0], &reply));
                Ok(Vec::new())
            }
        }
    }

    /// Whether existing points have to be found before the others are written. Only dense collections have a request that fails at an existing point.
    fn must_look(&self, is_unsure: bool) -> bool {
        let may_be_there = self.has_old_points || is_unsure;
        match self.on_conflict {
            OnConflict::Replace => false,
            OnConflict::Skip => may_be_there,
            OnConflict::Fail => is_unsure || may_be_there && self.collection.family != Family::Dense,
        }
    }

    fn mode(&self) -> Mode {
        match self.on_conflict {
            OnConflict::Replace => Mode::Upsert,
            _ if self.collection.family == Family::Dense => Mode::Insert,
            _ => Mode::IfAbsent,
        }
    }

    /// Asks which of these points the collection has, and returns their ids.
    fn present(&self, remote: &mut Remote, points: &[&Point<'_>]) -> Result<HashSet<String>, String> {
        #[derive(Deserialize)]
        struct Answer<'a> {
            #[serde(borrow)]
            points: Vec<Present<'a>>,
        }
        #[derive(Deserialize)]
        struct Present<'a> {
            #[serde(borrow)]
            id: &'a RawValue,
        }
        let ids: Vec<&str> = points.iter().map(|point| point.id).collect();
        let body = format!("{{\"ids\":[{}],\"with_vector\":false,\"with_payload\":false}}", ids.join(","));
        let reply = remote.answer(&Request::post(&self.collection.get_path(), body.as_bytes()))?;
        if !reply.is_success() {
            return Err(reply.sentence("looking for points that are there already"));
        }
        let answer: Answer<'_> = serde_json::from_slice(&reply.body)
            .map_err(|error| format!("the answer has no points: {error}"))?;
        Ok(answer.points.iter().map(|point| canonical(point.id.get())).collect())
    }

    /// Counts points that existed already.
    fn count_present(&self, count: usize, is_unsure: bool, outcome: &mut Outcome) {
        match is_unsure {
            true => outcome.found += count as u64,
            false => outcome.skipped += count as u64,
        }
    }

    /// Deletes points that are to be replaced by points without a vector in some dense space, because a write keeps the vectors of spaces that it
    /// does not name.
    fn make_room(&self, remote: &mut Remote, points: &[&Point<'_>], mode: Mode) -> Result<(), String> {
        if mode != Mode::Upsert || !self.has_old_points {
            return Ok(());
        }
        let lacking = points.iter().filter(|point| !point.missing_spaces.is_empty());
        let ids: Vec<&str> = lacking.map(|point| point.id).collect();
        if ids.is_empty() {
            return Ok(());
        }
        let body = format!("{{\"ids\":[{}]}}", ids.join(","));
        let reply = remote.answer(&Request::post(&self.collection.delete_path(), body.as_bytes()))?;
        match reply.is_success() {
            true => Ok(()),
            false => Err(reply.sentence("deleting points that are to be replaced")),
        }
    }

    fn send(&self, remote: &mut Remote, points: &[&Point<'_>], mode: Mode) -> Result<Reply, Lost> {
        let path = self.collection.write_path();
        let (media, body) = match self.fits_binary(points, mode) {
            true => (BINARY, binary(points, mode)),
            false => (JSON, self.json(points, mode)),
        };
        remote.once(&Request { method: "POST", path: &path, media, body: &body }, usize::MAX)
    }

    /// Whether the binary body can carry everything that these points have.
    fn fits_binary(&self, points: &[&Point<'_>], mode: Mode) -> bool {
        let fits = |point: &&Point<'_>| {
            let payload = point.line.payload.map_or(0, |payload| payload.get().len());
            point.line.sparse.is_none()
                && point.ttl_ms.is_none()
                && point.key_ttls_ms.is_empty()
                && point.vector.len() == points[0].vector.len()
                && payload <= BINARY_PAYLOAD_BYTES_MAX
        };
        self.collection.family == Family::Dense
            && self.has_number_ids
            && mode != Mode::IfAbsent
            && points.iter().all(fits)
    }

    fn json(&self, points: &[&Point<'_>], mode: Mode) -> Vec<u8> {
        let mut body = match self.collection.family {
            Family::Dense if mode == Mode::Upsert => b"{\"upsert\":true,\"points\":[".to_vec(),
            Family::Dense | Family::Named => b"{\"points\":[".to_vec(),
            Family::Multivector => b"{\"docs\":[".to_vec(),
        };
        for (at, point) in points.iter().enumerate() {
            if at > 0 {
                body.push(b',');
            }
            self.json_point(&mut body, point, mode);
        }
        body.extend_from_slice(b"]}");
        body
    }

    fn json_point(&self, body: &mut Vec<u8>, point: &Point<'_>, mode: Mode) {
        let line = &point.line;
        body.extend_from_slice(format!("{{\"id\":{}", point.id).as_bytes());
        if self.collection.family == Family::Dense {
            body.extend_from_slice(b",\"vector\":");
            // Finite floats always have a JSON form, and writing to memory does not fail.
            let _ = serde_json::to_writer(&mut *body, &point.vector);
        }
        let parts = [
            ("vectors", line.vectors),
            ("tokens", line.tokens),
            ("sparse", line.sparse),
            ("sparse_vectors", line.sparse_vectors),
            ("metadata", line.payload),
        ];
        for (name, part) in parts.iter().filter_map(|(name, part)| Some((name, (*part)?))) {
            body.extend_from_slice(format!(",\"{name}\":{}", part.get()).as_bytes());
        }
        // A write keeps the vectors of spaces that it does not name.
        if mode == Mode::Upsert
            && self.has_old_points
            && line.sparse_vectors.is_none()
            && !self.sparse_spaces.is_empty()
        {
            let spaces = self.sparse_spaces.iter().map(|space| (space.clone(), serde_json::Value::Null));
            let none: serde_json::Map<_, _> = spaces.collect();
            let _ = write!(body, ",\"sparse_vectors\":{}", serde_json::Value::Object(none));
        }
        if let Some(ms) = point.ttl_ms {
            let _ = write!(body, ",\"ttl_ms\":{ms}");
        }
        if !point.key_ttls_ms.is_empty() {
            body.extend_from_slice(b",\"key_ttl_ms\":");
            let _ = serde_json::to_writer(&mut *body, &point.key_ttls_ms);
        }
        if mode == Mode::IfAbsent {
            body.extend_from_slice(b",\"expected_version\":0");
        }
        body.push(b'}');
    }

    /// Counts the points of a request that was carried out.
    fn tally(
        &self,
        reply: &Reply,
        points: &[&Point<'_>],
        mode: Mode,
        is_unsure: bool,
        outcome: &mut Outcome,
    ) -> Result<(), Fatal> {
        #[derive(Deserialize)]
        struct Answer {
            count: Option<u64>,
            results: Option<Vec<Written>>,
        }
        #[derive(Deserialize)]
        struct Written {
            status: String,
        }
        let odd = |answer: &[u8]| Fatal {
            line: points[0].number,
            is_conflict: false,
            reason: format!(
                "{} points were sent, and the server answered {}",
                points.len(),
                String::from_utf8_lossy(answer).trim()
            ),
        };
        let answer: Answer = serde_json::from_slice(&reply.body).map_err(|_| odd(&reply.body))?;
        match (mode, answer.count, answer.results) {
            (Mode::Insert | Mode::Upsert, Some(count), _) if count == points.len() as u64 => {
                outcome.written += count
            }
            (Mode::IfAbsent, _, Some(results)) if results.len() == points.len() => {
                let mut taken = None;
                for (point, result) in points.iter().zip(results) {
                    match result.status == "ok" {
                        true => outcome.written += 1,
                        false if self.on_conflict == OnConflict::Fail && !is_unsure => {
                            taken = taken.or(Some(point))
                        }
                        false => self.count_present(1, is_unsure, outcome),
                    }
                }
                if let Some(point) = taken {
                    return Err(conflict(point));
                }
            }
            _ => return Err(odd(&reply.body)),
        }
        Ok(())
    }
}

/// The end of an import at a point that exists already.
fn conflict(point: &Point<'_>) -> Fatal {
    Fatal {
        line: point.number,
        is_conflict: true,
        reason: format!("line {}: the point {} is in the collection already", point.number, point.id),
    }
}

fn refusal(point: &Point<'_>, reply: &Reply) -> Refusal {
    Refusal { line: point.number, reason: reply.reason(), text: point.text.to_owned() }
}

/// An id as JSON, in a form in which equal ids are equal texts.
fn canonical(id: &str) -> String {
    serde_json::from_str::<serde_json::Value>(id).map_or_else(|_| id.to_owned(), |id| id.to_string())
}

/// An `RVB1` body.
fn binary(points: &[&Point<'_>], mode: Mode) -> Vec<u8> {
    let has_payloads = points.iter().any(|point| point.line.payload.is_some());
    let dim = points.first().map_or(0, |point| point.vector.len());
    let mut body = b"RVB1".to_vec();
    for word in
        [u32::from(has_payloads) | u32::from(mode == Mode::Upsert) << 1, points.len() as u32, dim as u32]
    {
        body.extend_from_slice(&word.to_be_bytes());
    }
    for point in points {
        body.extend_from_slice(&point.id.parse::<u64>().unwrap_or_default().to_be_bytes());
        body.extend(point.vector.iter().flat_map(|value| value.to_be_bytes()));
    }
    if has_payloads {
        for point in points {
            let payload = point.line.payload.map_or("", |payload| payload.get());
            body.extend_from_slice(&(payload.len() as u32).to_be_bytes());
            body.extend_from_slice(payload.as_bytes());
        }
    }
    body
}
