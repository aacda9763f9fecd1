//! Many searches of one collection in one request, `…/search/batch`: some at a time are carried out together, and each has the answer that it would
//! have alone, or says why it was refused. A search with `prefetch` is a query of lanes.
//!
//! A search is decoded when its turn comes, and what it found is forgotten when it has been written. So memory holds the text of the request,
//! a page of the answer, and the searches that are under way together. The next one begins when the answer to the first of them has been written.

use super::binary_searches::{decode_common, read_searches, vector_of};
use super::envelope::Envelope;
use super::error::write_failure;
use super::lanes::{GroupPages, groups_bytes};
use super::pages::{Pages, Room};
use super::parameters::{Query, ReadParameters};
use super::points::read_envelope;
use super::search::{CommonSearch, FoundPages, HitFormat, HitKind, decode_json};
use super::{RestService, lane_bodies, multi_vector_bodies, named_bodies};
use crate::door::Permit;
use crate::http::{BodyReader, HttpConfig, Reply, json_reply};
use crate::limits;
use crate::op::{ApiError, Operation};
use crate::together::Window;
use crate::wire::json::Key;
use bytes::Bytes;
use http::StatusCode;
use nigh_shard::account::{Charge, MemoryUse};
use nigh_shard::core::{ANSWERS_CROWDED, QueryAnswer, QueryOutcome, charge_answer};
use nigh_shard::family::Family;
use serde::Deserializer;
use serde::de::{IgnoredAny, MapAccess, Visitor};
use std::fmt;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Instant;

/// How long searches begin before what has been found is sent. The longer, the less often idle cores wait for the last ones.
const PAGE_NS: u64 = 10_000_000;
/// The key that tells a query of lanes from a search.
const PREFETCH: &str = "prefetch";

/// The searches of a body as they came.
#[derive(Default)]
struct Searches(Vec<Bytes>);

impl Envelope for Searches {
    const ARRAY: &'static str = "searches";

    fn restart(&mut self) {
        self.0.clear();
    }

    fn element(&mut self, json: &[u8]) -> Result<(), ApiError> {
        if self.0.len() >= limits::SEARCHES_MAX {
            return Err(ApiError::too_many("searches", limits::SEARCHES_MAX as u64));
        }
        self.0.push(Bytes::copy_from_slice(json));
        Ok(())
    }

    fn field(&mut self, _: &str, _: &[u8]) -> Result<bool, ApiError> {
        Ok(false)
    }
}

impl RestService {
    /// Answers many searches; those of a dense collection may come in the binary form.
    ///
    /// # Errors
    /// 400 when the body is not an object with the array of the searches, or not a binary one; 404; 413; 503 when other answers leave no room. What
    /// is wrong with a search is said in its place of the answer.
    pub(super) async fn search_batch(
        &self,
        permit: &Permit,
        collection: String,
        query: Query<'_>,
        mut body: BodyReader,
        binary: bool,
    ) -> Result<Reply, ApiError> {
        let read = ReadParameters::of(query)?;
        read.with_body(ReadParameters::default())?.validate()?;
        body.limit(limits::JSON_BODY_MAX_BYTES)?;
        let (form, searches) = if binary {
            let (common, rows) = read_searches(&mut body).await?;
            (Form::Rows(common_of(permit, common, read).await?), rows)
        } else {
            let Searches(searches) = read_envelope(&mut body, Searches::default()).await?;
            (Form::Json(read), searches)
        };
        permit.expect(&collection)?;
        let bytes = searches.iter().map(|search| search.len() + size_of_val(search)).sum::<usize>();
        let held = Arc::new(permit.account().hold(MemoryUse::Requests, bytes as u64));
        let batch = Batch { permit: permit.clone(), config: self.config.clone(), collection, form, held };
        let mut pages = BatchPages {
            batch: batch.into(),
            searches,
            at: 0,
            most: limits::SEARCHES_TOGETHER_MAX,
            found: Window::new(),
            current: None,
            written: 0,
            is_done: false,
        };
        // The memory of hits is counted for each answer, in `answer`. That of pages is taken before there are answers, which might leave none.
        let room = Room::take(permit, 0)?;
        let mut first = Vec::new();
        pages.next(&mut first).await?;
        Ok(json_reply(StatusCode::OK, room.stream(first, pages)?))
    }
}

/// The answer to one search.
enum Answer {
    /// What was found.
    Found {
        pages: AnswerPages,
        #[allow(dead_code, reason = "held until the hits have been written")]
        charge: Option<Charge>,
    },
    /// Why it was refused.
    Refused(ApiError),
}

/// What one search has found, written page by page.
enum AnswerPages {
    Hits(FoundPages),
    Groups(GroupPages),
}

impl AnswerPages {
    fn write(&mut self, out: &mut Vec<u8>) {
        match self {
            AnswerPages::Hits(pages) => pages.write(out),
            AnswerPages::Groups(pages) => pages.write(out),
        }
    }

    fn is_done(&self) -> bool {
        match self {
            AnswerPages::Hits(pages) => pages.is_done(),
            AnswerPages::Groups(pages) => pages.is_done(),
        }
    }
}

/// What all searches of a batch need.
struct Batch {
    permit: Permit,
    config: Rc<HttpConfig>,
    collection: String,
    form: Form,
    /// Counts the text of the searches, also while a search goes on whose client has gone away.
    held: Arc<Charge>,
}

/// The answer to a batch, written page by page.
struct BatchPages {
    batch: Rc<Batch>,
    /// The searches, of which those whose answers have been written are empty.
    searches: Vec<Bytes>,
    /// The first search whose turn has not come.
    at: usize,
    /// The number of searches that are carried out together.
    most: usize,
    /// The searches that are carried out, and those whose answers have not been written yet.
    found: Window<Answer>,
    /// The answer that is being written.
    current: Option<Answer>,
    /// The answers that have been written.
    written: usize,
    is_done: bool,
}

impl BatchPages {
    /// Begins searches until as many are under way as may be.
    fn begin(&mut self) {
        let end = self.searches.len().min(self.at + self.most - self.found.len().min(self.most));
        for search in &self.searches[self.at..end] {
            let (batch, text) = (self.batch.clone(), search.clone());
            self.found.push(async move {
                let began = Instant::now();
                let answer = answer(&batch, text).await;
                if answer.is_ok() {
                    let core = batch.permit.env().index();
                    batch.config.telemetry.core(core).searches.record(began.elapsed());
                }
                answer.unwrap_or_else(Answer::Refused)
            });
        }
        self.at = end;
    }

    /// Forgets the answers that have not been written, nor begun to be. Their searches are carried out again, one at a time, each after the answer
    /// before it has been written.
    fn restart(&mut self) {
        self.found.clear();
        self.at = self.written + usize::from(self.current.is_some());
        self.most = 1;
    }

    /// Appends the rest of the answer that is being written, or as much of it as a page may have; whether it is at its end.
    fn write(answer: &mut Answer, out: &mut Vec<u8>) -> bool {
        match answer {
            Answer::Refused(error) => write_failure(out, error),
            Answer::Found { pages, .. } => {
                pages.write(out);
                if !pages.is_done() {
                    return false;
                }
                // Answers of their own end with a line feed.
                out.truncate(out.trim_ascii_end().len());
            }
        }
        true
    }
}

/// The text of a search, and what counts it.
type Text = (Bytes, Arc<Charge>);

/// How the searches came.
enum Form {
    /// Each as a JSON object, beside what the query string says.
    Json(ReadParameters),
    /// Each as a vector, beside what all have in common.
    Rows(CommonSearch),
}

/// Decodes what all searches have in common, which may hold a long filter.
async fn common_of(permit: &Permit, json: Bytes, read: ReadParameters) -> Result<CommonSearch, ApiError> {
    match json.len() <= limits::INLINE_JSON_MAX_BYTES {
        true => decode_common(&json, read),
        false => permit.compute(move || decode_common(&json, read)).await,
    }
}

/// Carries out a search whose text is given.
async fn answer(batch: &Batch, text: Bytes) -> Result<Answer, ApiError> {
    let Batch { permit, collection: name, .. } = batch;
    let (outcome, kind, says_missing) = match &batch.form {
        Form::Rows(common) => {
            (permit.run(common.of(name.clone(), vector_of(&text))).await?, HitKind::Result, true)
        }
        Form::Json(read) => decoded(permit, name.clone(), (text, batch.held.clone()), *read).await?,
    };
    let QueryOutcome { answer, explained, shown, incomplete } = outcome;
    let shape = if shown.vectors { Some(permit.shape(name)?) } else { None };
    let format = HitFormat { kind, shown, shape, now_ms: permit.unix_ms() };
    let (bytes, pages) = match answer {
        QueryAnswer::Hits(hits) => {
            let bytes = size_of_val(&hits[..]);
            (bytes, AnswerPages::Hits(FoundPages::new(hits, format, says_missing, explained)))
        }
        QueryAnswer::Groups(groups) => {
            let bytes = groups_bytes(&groups);
            (bytes, AnswerPages::Groups(GroupPages::new(groups, format, incomplete, explained)))
        }
    };
    let charge = charge_answer(permit.account(), bytes)?;
    Ok(Answer::Found { pages, charge })
}

/// Decodes a search of JSON and carries it out: what it has found, as what that is written, and whether missing partitions are said.
async fn decoded(
    permit: &Permit,
    collection: String,
    text: Text,
    read: ReadParameters,
) -> Result<(QueryOutcome, HitKind, bool), ApiError> {
    let of_lanes = match text.0.len() <= limits::INLINE_JSON_MAX_BYTES {
        true => is_query(&text.0),
        false => {
            let long = text.0.clone();
            permit.compute(move || is_query(&long)).await
        }
    };
    Ok(match permit.family() {
        Family::Dense if of_lanes => {
            let decode = move |body: &[u8]| lane_bodies::decode_query(collection, body, read);
            (run(permit, text, decode).await?, HitKind::Result, true)
        }
        Family::Dense => {
            let decode = move |body: &[u8]| decode_json(collection, body, read, false);
            (run(permit, text, decode).await?, HitKind::Result, true)
        }
        Family::Named if of_lanes => {
            let decode = move |body: &[u8]| named_bodies::decode_query(collection, body, read);
            (run(permit, text, decode).await?, HitKind::Result, true)
        }
        Family::Named => {
            let decode = move |body: &[u8]| named_bodies::decode_batch_search(collection, body, read);
            (run(permit, text, decode).await?, HitKind::Result, false)
        }
        Family::MultiVector if of_lanes => {
            let decode = move |body: &[u8]| multi_vector_bodies::decode_query(collection, body, read);
            (run(permit, text, decode).await?, HitKind::Result, true)
        }
        Family::MultiVector => {
            let decode = move |body: &[u8]| multi_vector_bodies::decode_search(collection, body, read);
            (run(permit, text, decode).await?, HitKind::Scored, true)
        }
    })
}

/// Whether the text is an object with the key `prefetch`, as that of a query of lanes. Most searches have neither the word nor a backslash
/// anywhere, which costs no more than a look at each byte.
fn is_query(text: &[u8]) -> bool {
    struct Keys;
    impl<'de> Visitor<'de> for Keys {
        type Value = bool;
        fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            f.write_str("a JSON object")
        }
        fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<bool, A::Error> {
            let mut found = false;
            while let Some(Key(key)) = map.next_key()? {
                found |= key.eq_ignore_ascii_case(PREFETCH);
                map.next_value::<IgnoredAny>()?;
            }
            Ok(found)
        }
    }
    // A key may be written with escapes.
    let may_be = text.contains(&b'\\')
        || text.windows(PREFETCH.len()).any(|word| word.eq_ignore_ascii_case(PREFETCH.as_bytes()));
    may_be && serde_json::Deserializer::from_slice(text).deserialize_map(Keys).unwrap_or(false)
}

/// Decodes a search here, or a very large one on a thread that may be busy for long, and runs it.
async fn run<O: Operation<Output = QueryOutcome> + Send>(
    permit: &Permit,
    text: Text,
    decode: impl FnOnce(&[u8]) -> Result<O, ApiError> + Send + 'static,
) -> Result<QueryOutcome, ApiError> {
    let search = match text.0.len() <= limits::INLINE_JSON_MAX_BYTES {
        true => decode(&text.0)?,
        false => permit.compute(move || decode(&text.0)).await?,
    };
    permit.run(search).await
}

impl Pages for BatchPages {
    async fn next(&mut self, out: &mut Vec<u8>) -> Result<(), ApiError> {
        if self.written == 0 && self.current.is_none() {
            out.extend_from_slice(b"{\"results\":[");
        }
        let batch = self.batch.clone();
        let env = &**batch.permit.env();
        let (start, end_ns) = (out.len(), env.now_ns() + PAGE_NS);
        // Each answer is at least one page of its own for the work that it makes; short ones share a page until it is full.
        while out.len() - start < limits::PAGE_BYTES {
            let mut answer = match self.current.take() {
                Some(answer) => answer,
                None => {
                    if self.found.len() == 0 || env.now_ns() < end_ns {
                        self.begin();
                    }
                    let Some(answer) = self.found.first(env).await else { break };
                    // If there is no memory for the answers of all.
                    if self.most > 1
                        && matches!(&answer, Answer::Refused(error) if error.message == ANSWERS_CROWDED)
                    {
                        self.found.settle(env).await;
                        self.restart();
                        continue;
                    }
                    if self.written > 0 {
                        out.push(b',');
                    }
                    answer
                }
            };
            if !Self::write(&mut answer, out) {
                self.current = Some(answer);
                break;
            }
            self.searches[self.written] = Bytes::new();
            self.written += 1;
        }
        // A search that waited while the client takes its time might keep what other searches wait for.
        self.found.settle(env).await;
        if self.written == self.searches.len() {
            out.extend_from_slice(b"]}\n");
            self.is_done = true;
        }
        Ok(())
    }

    fn is_done(&self) -> bool {
        self.is_done
    }

    fn shrink(&mut self) {
        if !self.is_done {
            self.restart();
        }
    }
}
