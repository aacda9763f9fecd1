//! Points, payloads, filters and questions by chance.
use super::ids::PLACES;
use super::model::{
    Ask, Change, Collection, Doomed, Family, Lane, Matrix, Put, Question, Space, Sparse, Vectors,
};
use nigh_tests::SplitMix;
use nigh_tests::twin::{Filter, Payload, Val};
use std::collections::BTreeMap;

/// Places of ids of points are below this.
pub const IDS: u64 = 120;

/// Names that dense spaces of the collection of named spaces have in turn.
pub const SPACES: [&str; 6] = ["image", "title", "page", "sound", "map", "cover"];

/// Names that its sparse spaces have in turn.
pub const SPARSE_SPACES: [&str; 4] = ["words", "codes", "tags", "links"];

/// Times to live that end between one question and the next, soon after it, or not in this test.
const TTLS_MS: [i64; 4] = [1, 60, 150, 3_600_000];

/// All points that have a component in a dimension of the first sparse space, and its value.
pub fn component(of: &Collection, at: u32) -> Ask {
    let lane = Lane::Sparse(of.sparse[0], Sparse::from([(at, 1.0)]));
    Ask { question: Question::One(lane), k: IDS as usize, filter: None }
}

pub struct Draws(pub SplitMix);

impl Draws {
    pub fn below(&mut self, bound: u64) -> u64 {
        self.0.below(bound)
    }

    pub fn chance(&mut self, one_in: u64) -> bool {
        self.0.below(one_in) == 0
    }

    pub fn one_of<T: Copy>(&mut self, all: &[T]) -> T {
        all[self.below(all.len() as u64) as usize]
    }

    /// A collection of each family. Each of them has strings as ids in one of two runs.
    pub fn collections(&mut self) -> Vec<Collection> {
        let metrics = ["cosine", "l2", "dot"];
        let mut space = |name, metric| Space { name, dim: 1 + self.below(12) as usize, metric };
        let dense = vec![space("", metrics[0])];
        let named = vec![space("image", metrics[1]), space("title", metrics[0]), space("page", metrics[2])];
        let tokens = vec![space("", metrics[0])];
        let dense = dense.into_iter().map(|space| Space { metric: self.one_of(&metrics), ..space }).collect();
        let seed = self.below(1 << 40);
        let one = |name, family, dense, sparse: &[&'static str]| Collection {
            name,
            family,
            dense,
            sparse: sparse.to_vec(),
            seed,
            is_encoded: family == Family::Documents && seed.is_multiple_of(2),
            has_text_ids: false,
        };
        let mut all = vec![
            one("dense", Family::Dense, dense, &[""]),
            one("named", Family::Named, named, &SPARSE_SPACES[..2]),
            one("documents", Family::Documents, tokens, &[""]),
        ];
        all.iter_mut().for_each(|of| of.has_text_ids = self.chance(2));
        all
    }

    /// A dense space that the collection of named spaces does not have.
    pub fn space(&mut self, of: &Collection) -> Space {
        let is_free = |name: &&str| of.dense.iter().all(|space| space.name != *name);
        let names: Vec<&'static str> = SPACES.into_iter().filter(is_free).collect();
        let metric = self.one_of(&["cosine", "l2", "dot"]);
        Space { name: self.one_of(&names), dim: 1 + self.below(12) as usize, metric }
    }

    /// The name of a sparse space that the collection of named spaces does not have.
    pub fn sparse_space(&mut self, of: &Collection) -> &'static str {
        let is_free = |name: &&str| !of.sparse.contains(name);
        let names: Vec<&'static str> = SPARSE_SPACES.into_iter().filter(is_free).collect();
        self.one_of(&names)
    }

    /// Two letters that no stemmer touches and no list of stop words has.
    fn word(&mut self) -> String {
        // The product makes some words much more frequent than others.
        let letter = self.below(5) * self.below(5);
        format!("q{}", (b'b' + letter as u8) as char)
    }

    fn words(&mut self, count: u64) -> String {
        (0..count).map(|_| self.word()).collect::<Vec<_>>().join(" - ")
    }

    fn text(&mut self, most: u64) -> String {
        let count = self.below(most + 1);
        self.words(count)
    }

    fn number(&mut self) -> Val {
        let value = self.below(20) as i64 - 6;
        if self.chance(3) { Val::Float(value as f64 / 2.0) } else { Val::Int(value) }
    }

    fn value(&mut self, field: &str) -> Val {
        if self.chance(15) {
            return Val::Null;
        }
        match field {
            "n" => self.number(),
            "m" => Val::Int(self.below(1 << 40) as i64),
            "s" => Val::Str(self.text(2)),
            "b" => Val::Bool(self.chance(2)),
            "t" => Val::Strs((0..self.below(4)).map(|_| self.text(2)).collect()),
            _ => Val::Ints((0..self.below(4)).map(|_| self.below(5) as i64).collect()),
        }
    }

    fn payload(&mut self) -> Payload {
        let mut payload = Payload::new();
        if self.chance(10) {
            return payload;
        }
        for field in ["n", "m", "s", "b", "t", "z"] {
            if self.below(10) < 7 {
                payload.insert(field.to_owned(), self.value(field));
            }
        }
        if !self.chance(4) {
            let count = 1 + self.below(12);
            payload.insert("$content".to_owned(), Val::Str(self.words(count)));
        }
        payload
    }

    /// Deadlines for some keys of a payload.
    fn key_ttl_ms(&mut self, payload: &Payload) -> BTreeMap<String, i64> {
        let mut keys: Vec<&String> = payload.keys().filter(|key| !key.starts_with('$')).collect();
        if keys.is_empty() || !self.chance(6) {
            return BTreeMap::new();
        }
        keys.truncate(1 + self.below(2) as usize);
        keys.into_iter().map(|key| (key.clone(), self.one_of(&TTLS_MS))).collect()
    }

    /// Eighths, so that products and sums of few are exact.
    fn sparse(&mut self, least: u64) -> Sparse {
        let count = least + self.below(6);
        (0..count)
            .map(|_| ((self.below(6) * self.below(6)) as u32, 0.125 * (1 + self.below(16)) as f32))
            .collect()
    }

    fn matrix(&mut self, of: &Collection, space: &Space) -> Matrix {
        let count = if of.family == Family::Documents { 1 + self.below(5) } else { 1 };
        (0..count).map(|_| self.0.vector(space.dim)).collect()
    }

    pub fn id(&mut self, of: &Collection) -> u64 {
        of.id(self.below(IDS))
    }

    /// An id that perhaps no point ever has.
    fn any_id(&mut self, of: &Collection) -> u64 {
        of.id(self.below(PLACES))
    }

    /// A point without conditions and deadlines.
    pub fn lasting(&mut self, of: &Collection, id: u64) -> Put {
        let all = of.family != Family::Named;
        let mut put = Put { id, payload: self.payload(), ..Put::default() };
        for space in &of.dense {
            if all || !self.chance(3) {
                put.dense.insert(space.name, self.matrix(of, space));
            }
        }
        for name in of.sparse.iter().copied() {
            if all || self.chance(2) {
                put.sparse.insert(name, self.sparse(0));
            }
        }
        put
    }

    /// A point, some of them with deadlines.
    pub fn put(&mut self, of: &Collection, id: u64) -> Put {
        let mut put = self.lasting(of, id);
        put.key_ttl_ms = self.key_ttl_ms(&put.payload);
        if of.family != Family::Documents && self.chance(8) {
            put.ttl_ms = self.one_of(&TTLS_MS);
            // The statistics of a text search count the documents that have ended until they are swept.
            put.payload.remove("$content");
        }
        put
    }

    /// Other vectors in at least one space.
    fn vectors(&mut self, of: &Collection) -> Vectors {
        let mut change = Vectors::default();
        for space in &of.dense {
            match self.below(4) {
                0 => drop(change.dense.insert(space.name, self.matrix(of, space))),
                1 => change.delete.push(space.name),
                _ => {}
            }
        }
        for name in of.sparse.iter().copied() {
            match self.below(4) {
                0 => drop(change.sparse.insert(name, self.sparse(0))),
                1 => change.delete.push(name),
                _ => {}
            }
        }
        if change.dense.len() + change.sparse.len() + change.delete.len() == 0 {
            change.dense.insert(of.dense[0].name, self.matrix(of, &of.dense[0]));
        }
        change
    }

    /// A change of a payload without deadlines, or in a collection of named spaces of vectors.
    pub fn lasting_change(&mut self, of: &Collection) -> Change {
        if of.family == Family::Named && self.chance(2) {
            return Change::Vectors(self.vectors(of));
        }
        match self.below(4) {
            0 => Change::Merge(self.payload(), BTreeMap::new()),
            1 => Change::Overwrite(self.payload(), BTreeMap::new()),
            2 => {
                let keys = ["n", "s", "$content", "absent"];
                let keys = &keys[..1 + self.below(4) as usize];
                Change::DeleteKeys(keys.iter().map(|key| (*key).to_owned()).collect())
            }
            _ => Change::Clear,
        }
    }

    pub fn change(&mut self, of: &Collection) -> Change {
        match self.lasting_change(of) {
            Change::Merge(payload, _) => {
                let ttl_ms = self.key_ttl_ms(&payload);
                Change::Merge(payload, ttl_ms)
            }
            Change::Overwrite(payload, _) => {
                let ttl_ms = self.key_ttl_ms(&payload);
                Change::Overwrite(payload, ttl_ms)
            }
            other => other,
        }
    }

    pub fn doomed(&mut self, of: &Collection) -> Doomed {
        if self.chance(2) {
            return Doomed::Ids((0..1 + self.below(6)).map(|_| self.any_id(of)).collect());
        }
        // Few of those that are there.
        let rare = Filter::Leaf("gt", "m", Val::Int((1 << 40) / 10 * 8));
        Doomed::Matching(match self.below(4) {
            0 => self.filter(of, 2),
            _ => Filter::And(vec![rare, self.filter(of, 2)]),
        })
    }

    pub fn filter(&mut self, of: &Collection, depth: u64) -> Filter {
        if depth > 0 && self.chance(3) {
            let count = self.below(4);
            let mut filters: Vec<Filter> = (0..count).map(|_| self.filter(of, depth - 1)).collect();
            return match self.below(4) {
                0 => Filter::And(filters),
                1 => Filter::Or(filters),
                2 if count > 0 => Filter::AtLeast(1 + self.below(count) as usize, filters),
                _ => Filter::Not(Box::new(filters.pop().unwrap_or(Filter::Or(Vec::new())))),
            };
        }
        match self.below(12) {
            10 => Filter::HasId((0..self.below(60)).map(|_| self.any_id(of)).collect()),
            0 | 1 => Filter::Leaf(self.one_of(&["gt", "gte", "lt", "lte"]), "n", self.number()),
            2 => Filter::Leaf(self.one_of(&["gt", "lte"]), "m", Val::Int(self.below(1 << 40) as i64)),
            3 => Filter::Leaf(self.one_of(&["gt", "gte", "lt", "lte"]), "s", Val::Str(self.text(1))),
            4 | 5 => {
                let field = self.one_of(&["n", "s", "b", "t", "z"]);
                let op = if self.chance(3) { "ne" } else { "eq" };
                Filter::Leaf(op, field, self.value(field))
            }
            6 => {
                let all = (0..self.below(5)).map(|_| self.below(14) as i64).collect();
                Filter::Leaf("in", "n", Val::Ints(all))
            }
            7 => Filter::Leaf("in", "s", Val::Strs((0..self.below(4)).map(|_| self.text(1)).collect())),
            8 => Filter::Leaf("contains", "z", Val::Int(self.below(5) as i64)),
            9 => Filter::Leaf("match", self.one_of(&["s", "t"]), Val::Str(self.text(2))),
            _ => {
                let op = self.one_of(&["is_empty", "is_null", "exists"]);
                Filter::Leaf(op, self.one_of(&["n", "s", "t", "z"]), Val::Null)
            }
        }
    }

    pub fn maybe_filter(&mut self, of: &Collection) -> Option<Filter> {
        (!self.chance(3)).then(|| self.filter(of, 2))
    }

    fn dense_lane(&mut self, of: &Collection) -> Lane {
        let space = &of.dense[self.below(of.dense.len() as u64) as usize];
        Lane::Dense(space.name, self.matrix(of, space))
    }

    /// Never empty, since an empty one is none.
    fn sparse_lane(&mut self, of: &Collection) -> Lane {
        let name = self.one_of(&of.sparse);
        Lane::Sparse(name, self.sparse(1))
    }

    fn text_lane(&mut self) -> Lane {
        let count = 1 + self.below(4);
        Lane::Text(self.words(count))
    }

    fn any_lane(&mut self, of: &Collection) -> Lane {
        match self.below(6) {
            0 => self.text_lane(),
            1 | 2 => self.sparse_lane(of),
            _ => self.dense_lane(of),
        }
    }

    /// A lane that may be a query, as deep as that.
    fn deep_lane(&mut self, of: &Collection, depth: u64) -> Lane {
        if depth == 0 || self.chance(3) {
            return self.any_lane(of);
        }
        Lane::Query((0..1 + self.below(3)).map(|_| self.deep_lane(of, depth - 1)).collect())
    }

    pub fn ask(&mut self, of: &Collection) -> Ask {
        // The others find texts by lanes of queries alone.
        let has_text_search = of.family == Family::Dense;
        let question = match self.below(11) {
            0 => Question::One(self.dense_lane(of)),
            1 => Question::WithDocuments(self.dense_lane(of)),
            2 if has_text_search => Question::One(self.text_lane()),
            2 => Question::Query(vec![self.text_lane()]),
            3 => Question::One(self.sparse_lane(of)),
            4 => Question::Hybrid(self.dense_lane(of), self.text_lane()),
            5 => Question::Hybrid(self.dense_lane(of), self.sparse_lane(of)),
            6 => Question::Query(vec![self.any_lane(of)]),
            7 => Question::Query(vec![self.any_lane(of), self.any_lane(of)]),
            8 => Question::Query(vec![self.deep_lane(of, 4), self.any_lane(of)]),
            9 => Question::Rerank(vec![self.deep_lane(of, 2), self.any_lane(of)], self.any_lane(of)),
            _ => Question::Rerank(vec![self.any_lane(of), self.any_lane(of)], self.any_lane(of)),
        };
        Ask { question, k: 1 + self.below(20) as usize, filter: self.maybe_filter(of) }
    }
}
