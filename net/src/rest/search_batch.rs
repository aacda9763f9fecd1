//! Many searches of one collection in one request, `…/search/batch`: some at a time are carried out together, and each has the answer that it would
//! have alone, or says why it was refused. A search with `prefetch` is a query of lanes.
//!
//! A search is decoded when its turn comes, and what it found is forgotten when it has been written. So memory holds the text of the request,
//! and the searches that are under way together.

use super::envelope::Envelope;
use super::error::write_failure;
use super::lanes::{GroupPages, groups_bytes};
use super::pages::{Pages, Room};
use super::parameters::{Query, ReadParameters};
use super::points::read_envelope;
use super::search::{FoundPages, HitFormat, HitKind, decode_json};
use super::{RestService, lane_bodies, multi_vector_bodies, named_bodies};
use crate::door::Permit;
use crate::http::{BodyReader, HttpConfig, Reply, json_reply};
use crate::limits;
use crate::op::{ApiError, Operation};
use crate::together::together;
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
    /// Answers many searches.
    ///
    /// # Errors
    /// 400 when the body is not an object with the array of the searches; 404; 413; 503 when other answers leave no room. What is wrong with a
    /// search is said in its place of the answer.
    pub(super) async fn search_batch(
        &self,
        permit: &Permit,
        collection: String,
        query: Query<'_>,
        mut body: BodyReader,
    ) -> Result<Reply, ApiError> {
        let read = ReadParameters::of(query)?;
        read.with_body(ReadParameters::default())?.validate()?;
        body.limit(limits::JSON_BODY_MAX_BYTES)?;
        let Searches(searches) = read_envelope(&mut body, Searches::default()).await?;
        permit.expect(&collection)?;
        let bytes = searches.iter().map(|search| search.len() + size_of_val(search)).sum::<usize>();
        let mut pages = BatchPages {
            permit: permit.clone(),
            config: self.config.clone(),
            collection,
            read,
            searches,
            at: 0,
            most: limits::SEARCHES_TOGETHER_MAX,
            found: Vec::new().into_iter(),
            current: None,
            written: 0,
            is_done: false,
            held: Arc::new(permit.account().hold(MemoryUse::Requests, bytes as u64)),
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

/// The answer to a batch, written page by page.
struct BatchPages {
    permit: Permit,
    config: Rc<HttpConfig>,
    collection: String,
    read: ReadParameters,
    /// The searches, of which those whose answers have been written are empty.
    searches: Vec<Bytes>,
    /// The first search whose turn has not come.
    at: usize,
    /// The number of searches that are carried out together.
    most: usize,
    /// The results of the last group of searches that have not been written yet.
    found: std::vec::IntoIter<Answer>,
    /// The answer that is being written.
    current: Option<Answer>,
    /// The answers that have been written.
    written: usize,
    is_done: bool,
    /// Counts the text of the searches, also while a search goes on whose client has gone away.
    held: Arc<Charge>,
}

impl BatchPages {
    /// Carries out the next searches, all of them at the same time.
    async fn search(&mut self) {
        let end = self.searches.len().min(self.at + self.most);
        let (permit, config, read) = (&self.permit, &self.config, self.read);
        let searches = self.searches[self.at..end].iter().map(|body| {
            let (collection, text) = (self.collection.clone(), (body.clone(), self.held.clone()));
            async move {
                let began = Instant::now();
                let answer = answer(permit, collection, text, read).await;
                if answer.is_ok() {
                    config.telemetry.core(permit.env().index()).searches.record(began.elapsed());
                }
                answer.unwrap_or_else(Answer::Refused)
            }
        });
        let mut found = together(&**permit.env(), searches).await;
        let is_crowded =
            |answer: &Answer| matches!(answer, Answer::Refused(error) if error.message == ANSWERS_CROWDED);
        // If there is no memory for the answers of all, those that lack it and all behind them are searched for again one at a time, each after the
        // answer before it has been written.
        if self.most > 1
            && let Some(crowded) = found.iter().position(is_crowded)
        {
            found.truncate(crowded);
            self.most = 1;
        }
        self.at += found.len();
        self.found = found.into_iter();
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

/// Carries out a search whose text is given.
async fn answer(
    permit: &Permit,
    collection: String,
    text: Text,
    read: ReadParameters,
) -> Result<Answer, ApiError> {
    let name = collection.clone();
    let of_lanes = match text.0.len() <= limits::INLINE_JSON_MAX_BYTES {
        true => is_query(&text.0),
        false => {
            let long = text.0.clone();
            permit.compute(move || is_query(&long)).await
        }
    };
    let (outcome, kind, says_missing) = match permit.family() {
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
    };
    let QueryOutcome { answer, explained, shown, incomplete } = outcome;
    let shape = if shown.vectors { Some(permit.shape(&name)?) } else { None };
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
        // Once if there is memory for the first answer, otherwise twice.
        while self.current.is_none() && self.found.len() == 0 && self.at < self.searches.len() {
            self.search().await;
        }
        // Each answer is at least one page of its own for the work that it makes; short ones share a page until it is full.
        let start = out.len();
        while out.len() - start < limits::PAGE_BYTES {
            let mut answer = match self.current.take() {
                Some(answer) => answer,
                None => match self.found.next() {
                    Some(answer) => {
                        if self.written > 0 {
                            out.push(b',');
                        }
                        answer
                    }
                    None => break,
                },
            };
            if !Self::write(&mut answer, out) {
                self.current = Some(answer);
                break;
            }
            self.searches[self.written] = Bytes::new();
            self.written += 1;
        }
        if self.current.is_none() && self.found.len() == 0 && self.at == self.searches.len() {
            out.extend_from_slice(b"]}\n");
            self.is_done = true;
        }
        Ok(())
    }

    fn is_done(&self) -> bool {
        self.is_done
    }

    /// Forgets the answers behind the one that is being written. Their searches are carried out again, one at a time.
    fn shrink(&mut self) {
        if self.is_done {
            return;
        }
        self.found = Vec::new().into_iter();
        self.at = self.written + usize::from(self.current.is_some());
        self.most = 1;
    }
}
