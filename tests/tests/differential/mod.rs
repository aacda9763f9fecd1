//! Collections of all three families, written and asked over all three transports, beside twins that are as simple as can be.
//!
//! Random writes of every kind, each over a transport that is drawn, with conditions and deadlines, restarts and kills between them; and
//! questions that all transports must answer with the same bits, which are those of the twin up to rounding. Some collections name their points
//! by numbers and some by strings. Collections stay so small that searches are exact. One run is one seed: printed when it fails, replayed with
//! `NIGH_TEST_SEED`. `NIGH_TEST_LONG=1` runs many seeds with thousands of operations each.
mod binary;
mod calls;
mod draws;
mod ids;
mod kills;
mod model;
mod rest;
mod transports;

use binary::Binary;
use calls::Calls;
use draws::{Draws, IDS, SPACES, SPARSE_SPACES};
use model::{Collection, Deadline, Doomed, Family, Hit, Matrix, Point, Stored, Twin, check_hits};
use nigh_tests::twin::{Payload, Val};
use nigh_tests::{Server, SplitMix, long};
use rest::Rest;
use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};
use transports::{FLAGS, NAMES, Transport, space_config, sparse_config};

/// What ends later than this does not end during a write.
const FAR: Duration = Duration::from_secs(600);

/// A connection of each.
fn all(server: &Server) -> [Box<dyn Transport>; 3] {
    [Box::new(Rest::new(server.api())), Box::new(Binary::new(server.tcp())), Box::new(Calls::new(server))]
}

/// A connection of one of them.
fn any(server: &Server, random: &mut SplitMix) -> Box<dyn Transport + Send> {
    match random.below(3) {
        0 => Box::new(Rest::new(server.api())),
        1 => Box::new(Binary::new(server.tcp())),
        _ => Box::new(Calls::new(server)),
    }
}

/// Collections with their twins, and connections to the server that has them.
struct Run {
    draws: Draws,
    collections: Vec<(Collection, Twin)>,
    transports: [Box<dyn Transport>; 3],
    rest: Rest,
    /// Spaces that may still be added: a number is never given twice.
    spaces_left: usize,
}

/// The place of the collection of named spaces.
const NAMED: usize = 1;

#[test]
fn answers_are_those_of_the_twin() {
    let seeds = if long() { 40 } else { 3 };
    let first = std::env::var("NIGH_TEST_SEED").ok().map(|text| text.parse().expect("a number"));
    let range = first.map_or(1..1 + seeds, |seed: u64| seed..seed + 1);
    for seed in range {
        println!("seed {seed}");
        run(seed, if long() { 6000 } else { 600 });
    }
}

fn run(seed: u64, operations: usize) {
    let data = tempfile::tempdir().expect("a temporary directory");
    let flags = [&FLAGS[..], &["-cores", ["1", "2"][seed as usize % 2]]].concat();
    let mut server = Server::start(Some(data.path()), &flags);
    let mut run = Run::new(&server, SplitMix(seed));
    run.create();
    for operation in 0..operations {
        let index = run.draws.below(3) as usize;
        match run.draws.below(400) {
            0 | 1 => {
                // The answers so far are those of the process that goes.
                if run.draws.chance(2) {
                    server.kill()
                } else {
                    drop(server.stop())
                }
                server = Server::start(Some(data.path()), &flags);
                run.connect(&server);
                (0..3).for_each(|index| run.check_points(index));
            }
            2..12 => run.change_spaces(),
            12..250 => run.write(index),
            250..300 => run.check_point(index),
            _ => run.ask(index),
        }
        if operation % 100 == 99 {
            (0..3).for_each(|index| run.check_points(index));
        }
    }
}

impl Run {
    fn new(server: &Server, random: SplitMix) -> Run {
        let mut draws = Draws(random);
        let collections = draws.collections().into_iter().map(|of| (of, Twin::default())).collect();
        let rest = Rest::new(server.api());
        Run { draws, collections, transports: all(server), rest, spaces_left: 55 }
    }

    /// Creates the collections, each over one of the transports.
    fn create(&mut self) {
        for (of, _) in &self.collections {
            self.transports[self.draws.below(3) as usize].create(of);
        }
    }

    fn connect(&mut self, server: &Server) {
        (self.transports, self.rest) = (all(server), Rest::new(server.api()));
    }

    /// Waits until each deadline has passed that may have passed, and lets the twin know.
    fn settle(&mut self, index: usize) {
        let twin = &mut self.collections[index].1;
        loop {
            let now = Instant::now();
            let begun = twin.deadlines().filter(|(_, end)| end.earliest <= now);
            let Some(last) = begun.map(|(_, end)| end.latest).max() else { return };
            std::thread::sleep(last.saturating_duration_since(now));
            twin.end(Instant::now());
        }
    }

    /// Waits until nothing of these points ends while they are written.
    fn wait_for(&mut self, index: usize, is_one: &dyn Fn(u64) -> bool) {
        let now = Instant::now();
        let near = |(id, end): &(u64, Deadline)| is_one(*id) && end.earliest < now + FAR;
        let last = self.collections[index].1.deadlines().filter(near).map(|(_, end)| end.latest).max();
        if let Some(last) = last {
            std::thread::sleep(last.saturating_duration_since(now));
        }
        self.settle(index);
    }

    /// What all transports answer at a time when nothing ends, one beside the other.
    fn answers<T>(
        &mut self,
        index: usize,
        mut ask: impl FnMut(&mut dyn Transport, &Collection, usize) -> T,
    ) -> Vec<T> {
        loop {
            self.settle(index);
            let (of, twin) = &self.collections[index];
            let transports = self.transports.iter_mut().enumerate();
            let answers = transports.map(|(at, transport)| ask(&mut **transport, of, at)).collect();
            let now = Instant::now();
            if twin.deadlines().all(|(_, end)| end.earliest > now) {
                return answers;
            }
        }
    }

    fn write(&mut self, index: usize) {
        match self.draws.below(16) {
            0..=4 => self.put(index),
            5..=8 => self.put_many(index),
            9 | 10 => self.delete(index),
            11 => self.delete_many(index),
            _ => self.change(index),
        }
    }

    fn put(&mut self, index: usize) {
        let of = self.collections[index].0.clone();
        let id = self.draws.id(&of);
        let mut put = self.draws.put(&of, id);
        let is_conditional = self.draws.chance(3);
        put.create_only = of.family == Family::Dense && !is_conditional && self.draws.chance(4);
        // A point that is replaced as a whole may end meanwhile, since that changes nothing of what comes out.
        if of.family == Family::Named || is_conditional || put.create_only {
            self.wait_for(index, &|other| other == id);
        }
        self.settle(index);
        let twin = &mut self.collections[index].1;
        let version = twin.version(id);
        let mut refusal = (put.create_only && version > 0).then_some("already present");
        if is_conditional {
            let wrong = self.draws.chance(3);
            put.expected = Some(version + u64::from(wrong));
            refusal = wrong.then_some("version conflict");
        }
        let at = self.draws.below(3) as usize;
        let sent = Instant::now();
        let told = self.transports[at].put(&of, &put).expect("an answer");
        let answered = Instant::now();
        match refusal {
            Some(part) => {
                assert!(told.is_err_and(|text| text.contains(part)), "{} {put:?}: not {part}", NAMES[at])
            }
            None => {
                told.unwrap_or_else(|refusal| panic!("{} {put:?}: {refusal}", NAMES[at]));
                let point = twin.after(&of, &put, sent, answered);
                twin.insert(id, point);
            }
        }
    }

    fn put_many(&mut self, index: usize) {
        let of = self.collections[index].0.clone();
        let ids: Vec<u64> = (0..1 + self.draws.below(12)).map(|_| self.draws.id(&of)).collect();
        let mut puts: Vec<_> = ids.iter().map(|id| self.draws.put(&of, *id)).collect();
        if of.family == Family::Named {
            // A point keeps the vectors that are not sent, unless it has ended: nobody can tell whether one that was written a moment ago has.
            let mut written = BTreeSet::new();
            puts.retain(|put| written.insert(put.id));
            self.wait_for(index, &|id| ids.contains(&id));
        }
        self.settle(index);
        let twin = &mut self.collections[index].1;
        let at = self.draws.below(3) as usize;
        let sent = Instant::now();
        let told = self.transports[at].put_many(&of, &puts).expect("an answer");
        let answered = Instant::now();
        told.unwrap_or_else(|refusal| panic!("{} {puts:?}: {refusal}", NAMES[at]));
        for put in &puts {
            let point = twin.after(&of, put, sent, answered);
            twin.insert(put.id, point);
        }
    }

    fn delete(&mut self, index: usize) {
        let id = self.draws.id(&self.collections[index].0);
        self.wait_for(index, &|other| other == id);
        let (of, twin) = &mut self.collections[index];
        let version = twin.version(id);
        let expected = self.draws.chance(3).then(|| version + u64::from(self.draws.chance(3)));
        let at = self.draws.below(3) as usize;
        let told = self.transports[at].delete(of, id, expected).expect("an answer");
        if expected.is_none_or(|expected| expected == version) {
            assert_eq!(told, Ok(twin.points.remove(&id).is_some()), "{} {id}", NAMES[at]);
        } else {
            assert!(told.is_err_and(|text| text.contains("version conflict")), "{} {id}", NAMES[at]);
        }
    }

    fn delete_many(&mut self, index: usize) {
        let doomed = self.draws.doomed(&self.collections[index].0);
        self.wait_for(index, &|_| true);
        let (of, twin) = &mut self.collections[index];
        let mut told = None;
        let mut at = self.draws.below(3) as usize;
        while told.is_none() {
            at = (at + 1) % 3;
            told = self.transports[at].delete_many(of, &doomed);
        }
        let told = told.expect("some transport has it").expect("an answer");
        let ids = match &doomed {
            Doomed::Matching(filter) => twin.matching(Some(filter)),
            Doomed::Ids(ids) => {
                let mut ids: Vec<u64> =
                    ids.iter().copied().filter(|id| twin.points.contains_key(id)).collect();
                ids.sort_unstable();
                ids.dedup();
                ids
            }
        };
        match told {
            Ok(count) => assert_eq!(count, ids.len() as u64, "{} {doomed:?}", NAMES[at]),
            // What is true of everything is no filter.
            Err(text) => {
                let is_all = matches!(doomed, Doomed::Matching(_)) && ids.len() == twin.points.len();
                assert!(is_all && text.contains("filter"), "{} {doomed:?}: {text}", NAMES[at]);
                return;
            }
        }
        ids.iter().for_each(|id| _ = twin.points.remove(id));
    }

    /// Adds a space, in which no point has a vector, or drops one with its vectors; points and their versions stay.
    fn change_spaces(&mut self) {
        let (of, twin) = &mut self.collections[NAMED];
        let at = self.draws.below(3) as usize;
        let transport = &mut self.transports[at];
        let known = &of.dense[self.draws.below(of.dense.len() as u64) as usize];
        match self.draws.below(11) {
            0 => {
                for (name, config) in [(known.name, space_config(of, known)), (of.sparse[0], sparse_config())]
                {
                    let told = transport.add_space(of, name, &config).expect("an answer");
                    assert!(told.is_err_and(|text| text.contains("already exists")), "{}", NAMES[at]);
                }
            }
            1..4 if of.dense.len() < SPACES.len() && self.spaces_left > 0 => {
                let space = self.draws.space(of);
                let told = transport.add_space(of, space.name, &space_config(of, &space)).expect("an answer");
                told.unwrap_or_else(|refusal| panic!("{} {space:?}: {refusal}", NAMES[at]));
                of.dense.push(space);
                self.spaces_left -= 1;
            }
            4..7 if of.dense.len() > 1 => {
                let name = known.name;
                let told = transport.drop_space(of, name).expect("an answer");
                told.unwrap_or_else(|refusal| panic!("{} {name}: {refusal}", NAMES[at]));
                of.dense.retain(|space| space.name != name);
                twin.points.values_mut().for_each(|point| _ = point.dense.remove(name));
                let told = transport.drop_space(of, name).expect("an answer");
                assert!(told.is_err_and(|text| text.contains("does not exist")), "{} {name}", NAMES[at]);
            }
            7 | 8 if of.sparse.len() < SPARSE_SPACES.len() && self.spaces_left > 0 => {
                let name = self.draws.sparse_space(of);
                let told = transport.add_space(of, name, &sparse_config()).expect("an answer");
                told.unwrap_or_else(|refusal| panic!("{} {name}: {refusal}", NAMES[at]));
                of.sparse.push(name);
                self.spaces_left -= 1;
            }
            9 | 10 if of.sparse.len() > 1 => {
                let name = self.draws.one_of(&of.sparse);
                let told = transport.drop_space(of, name).expect("an answer");
                told.unwrap_or_else(|refusal| panic!("{} {name}: {refusal}", NAMES[at]));
                of.sparse.retain(|other| *other != name);
                twin.points.values_mut().for_each(|point| _ = point.sparse.remove(name));
                let told = transport.drop_space(of, name).expect("an answer");
                assert!(told.is_err_and(|text| text.contains("does not exist")), "{} {name}", NAMES[at]);
            }
            _ => {}
        }
    }

    fn change(&mut self, index: usize) {
        let of = self.collections[index].0.clone();
        let id = self.draws.id(&of);
        let change = self.draws.change(&of);
        self.wait_for(index, &|other| other == id);
        let twin = &mut self.collections[index].1;
        let version = twin.version(id);
        let wrong = self.draws.chance(3);
        let expected =
            (version > 0 && self.draws.chance(3)).then(|| if wrong { version + 1 } else { version });
        let at = self.draws.below(3) as usize;
        let sent = Instant::now();
        let told = self.transports[at].change(&of, id, &change, expected).expect("an answer");
        let about = || format!("{} {} {id} {expected:?} {change:?}", NAMES[at], of.name);
        if expected.is_some_and(|expected| expected != version) {
            return assert!(told.is_err_and(|text| text.contains("version conflict")), "{}", about());
        }
        let changed = twin.changed(id, &change, sent, Instant::now());
        assert_eq!(told, Ok(changed.is_some()), "{}", about());
        if let Some(point) = changed {
            twin.insert(id, point);
        }
    }

    fn ask(&mut self, index: usize) {
        match self.draws.below(8) {
            0 => self.scroll(index),
            1 => self.count(index),
            _ => self.search(index),
        }
    }

    fn search(&mut self, index: usize) {
        let ask = self.draws.ask(&self.collections[index].0);
        let answers = self.answers(index, |transport, of, _| transport.ask(of, &ask));
        let (of, twin) = &self.collections[index];
        let about = || format!("{}: {ask:?}", of.name);
        for (at, answer) in answers.iter().enumerate().skip(1) {
            assert_eq!(*answer, answers[0], "{} says something else: {}", NAMES[at], about());
        }
        let (figure, all) = twin.answer(of, &ask);
        check_hits(&answers[0], figure, &all, ask.k, &about);
        // Whoever sends documents sends what is stored.
        let with_documents = answers[0].iter().any(|hit| !hit.payload.is_empty());
        for hit in answers[0].iter().filter(|_| with_documents) {
            assert_eq!(hit.payload, told(&twin.points[&hit.id].payload), "{hit:?} {}", about());
        }
    }

    fn count(&mut self, index: usize) {
        let filter = self.draws.maybe_filter(&self.collections[index].0);
        let key = self.draws.one_of(&["s", "b", "t"]);
        loop {
            self.settle(index);
            let (of, twin) = &self.collections[index];
            let count = self.rest.count(of, filter.as_ref());
            let facet = self.rest.facet(of, key, filter.as_ref());
            let now = Instant::now();
            if twin.deadlines().any(|(_, end)| end.earliest <= now) {
                continue;
            }
            let ids = twin.matching(filter.as_ref());
            assert_eq!(count, ids.len() as u64, "{} {filter:?}", of.name);
            let mut values: BTreeMap<String, u64> = BTreeMap::new();
            for value in ids.iter().filter_map(|id| twin.points[id].payload.get(key)) {
                // Each element of an array counts, once in a point.
                let elements = match value {
                    Val::Strs(all) => all.iter().map(|text| Val::Str(text.clone())).collect(),
                    Val::Null => Vec::new(),
                    value => vec![value.clone()],
                };
                let elements: BTreeSet<String> = elements.iter().map(|value| format!("{value:?}")).collect();
                elements.into_iter().for_each(|value| *values.entry(value).or_default() += 1);
            }
            let found: BTreeMap<String, u64> =
                facet.into_iter().map(|(value, count)| (format!("{value:?}"), count)).collect();
            assert_eq!(found, values, "{} {key} {filter:?}", of.name);
            return;
        }
    }

    /// All pages of a scroll, one after the other.
    fn scroll(&mut self, index: usize) {
        let filter = self.draws.maybe_filter(&self.collections[index].0);
        let order = (!self.draws.chance(3)).then(|| ("n", self.draws.chance(2)));
        let limit = self.draws.below(40) as usize;
        let filter = filter.as_ref();
        let answers = self.answers(index, |transport, of, _| {
            let (mut found, mut cursor): (Vec<Hit>, String) = Default::default();
            loop {
                let (page, next) = transport.page(of, filter, limit, &cursor, order);
                assert!(next.is_empty() || page.len() == limit, "{} of {limit}", page.len());
                found.extend(page);
                if next.is_empty() {
                    return found;
                }
                cursor = next;
            }
        });
        let (of, twin) = &self.collections[index];
        let about = || format!("{} {order:?} {filter:?}, pages of {limit}", of.name);
        let expected = match order {
            None => twin.matching(filter),
            Some((key, desc)) => twin.ordered(filter, key, desc),
        };
        for (at, answer) in answers.iter().enumerate() {
            let found: Vec<u64> = answer.iter().map(|hit| hit.id).collect();
            assert_eq!(found, expected, "{}: {}", NAMES[at], about());
            for hit in answer {
                let payload = told(&twin.points[&hit.id].payload);
                let expected = Hit { id: hit.id, distance: 0.0, score: 0.0, payload };
                assert_eq!(*hit, expected, "{}: {}", NAMES[at], about());
            }
        }
    }

    /// A point, or that there is none.
    fn check_point(&mut self, index: usize) {
        let id = self.draws.id(&self.collections[index].0);
        let answers = self.answers(index, |transport, of, _| transport.point(of, id));
        let (of, twin) = &self.collections[index];
        for (at, answer) in answers.iter().enumerate() {
            let about = format!("{} {} {id}", NAMES[at], of.name);
            assert_eq!(answer.is_some(), twin.points.contains_key(&id), "{about}: {answer:?}");
            if let (Some(found), Some(point)) = (answer, twin.points.get(&id)) {
                assert_eq!(differs(of, found, point), None, "{about}");
            }
        }
    }

    /// Every point as it is stored.
    fn check_points(&mut self, index: usize) {
        let ids: Vec<u64> = (0..IDS).map(|place| self.collections[index].0.id(place)).collect();
        let answers = self.answers(index, |transport, of, _| transport.points(of, &ids));
        let (of, twin) = &self.collections[index];
        for (at, answer) in answers.iter().enumerate() {
            assert!(answer.keys().eq(twin.points.keys()), "{} {}: {answer:?}", NAMES[at], of.name);
            for (id, found) in answer {
                let about = format!("{} {} {id}", NAMES[at], of.name);
                assert_eq!(differs(of, found, &twin.points[id]), None, "{about}");
                assert_eq!(found.dense, answers[0][id].dense, "{about}");
            }
        }
    }
}

/// A payload as answers show it, which have no empty document.
fn told(payload: &Payload) -> Payload {
    let mut payload = payload.clone();
    if payload.get("$content") == Some(&Val::Str(String::new())) {
        payload.remove("$content");
    }
    payload
}

/// What is not as it was written, if anything is not.
fn differs(of: &Collection, found: &Stored, point: &Point) -> Option<String> {
    let same = |name: &str, found: &Matrix, written: &Matrix| {
        let is_scaled = of.space(name).metric == "cosine";
        found.len() == written.len()
            && found.iter().zip(written).all(|(found, written)| {
                let norm = written.iter().map(|x| x * x).sum::<f32>().sqrt();
                let scale = if is_scaled { norm } else { 1.0 };
                let close =
                    |(a, b): (&f32, &f32)| if is_scaled { (a - b / scale).abs() < 1e-5 } else { a == b };
                found.len() == written.len() && found.iter().zip(written).all(close)
            })
    };
    let has_spaces = found.dense.keys().eq(point.dense.keys());
    if !has_spaces || !point.dense.iter().all(|(name, written)| same(name, &found.dense[*name], written)) {
        return Some(format!("vectors {:?} for {:?}", found.dense, point.dense));
    }
    if let Some(sparse) = &found.sparse
        && !sparse
            .iter()
            .map(|(name, vector)| (name.as_str(), vector))
            .eq(point.sparse.iter().map(|(name, vector)| (*name, vector)))
    {
        return Some(format!("sparse vectors {sparse:?} for {:?}", point.sparse));
    }
    let payload = (told(&found.payload), told(&point.payload));
    if payload.0 != payload.1 {
        return Some(format!("payload {:?} for {:?}", payload.0, payload.1));
    }
    let version = (found.version, point.version);
    if version.0 != version.1 {
        return Some(format!("version {} for {}", version.0, version.1));
    }
    let ends = point.ends.is_some();
    (found.ends.is_some_and(|found| found != ends)).then(|| format!("an end {:?} for {:?}", found.ends, ends))
}
