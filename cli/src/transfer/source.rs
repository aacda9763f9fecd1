//! Reads the points of a collection page by page: one thread requests pages of ids, another reads the points of each page, while earlier pages are
//! written.
use super::header::Family;
use super::remote::{Remote, Request};
use super::shape::Shape;
use crate::bench::client::Target;
use crate::bench::path_segment;
use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use serde::Deserialize;
use serde_json::value::RawValue;
use serde_json::{Map, Value};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};

/// Points of the first page.
const PAGE_POINTS_FIRST: usize = 32;
/// Most points of a page.
const PAGE_POINTS_MAX: usize = 2_000;
/// The number of points of a page is chosen so that an answer has about this many bytes.
const PAGE_BYTES: usize = 2 << 20;
/// Most bytes of an answer with more than one point in it.
const ANSWER_BYTES_MAX: usize = 64 << 20;
/// Pages that wait between two threads.
const PAGES_WAITING: usize = 2;

/// A collection of a server.
#[derive(Clone, Debug)]
pub struct Collection {
    /// Its family.
    pub family: Family,
    /// The first part of the paths of its routes, with its name.
    root: String,
    /// Its configuration as the server returns it; absent if the server does not.
    pub config: Option<Map<String, Value>>,
}

impl Collection {
    /// The collection `name` of the family, which may not exist.
    pub fn new(family: Family, name: &str, config: Option<Map<String, Value>>) -> Collection {
        Collection { family, root: format!("{}/{}", family.root(), path_segment(name)), config }
    }

    /// Looks the collection up, in every family.
    ///
    /// # Errors
    /// A sentence: there is none, or the server refuses to say.
    pub fn find(remote: &mut Remote, name: &str) -> Result<Collection, String> {
        for family in Family::ALL {
            if let Some(config) = config_of(remote, family, name)? {
                return Ok(Collection::new(family, name, Some(config)));
            }
        }
        // Not every server that has this interface returns configurations.
        for family in Family::ALL {
            let collection = Collection::new(family, name, None);
            let reply = remote.answer(&Request::post(&collection.scroll_path(), b"{\"limit\":1}"))?;
            match reply.status {
                200..300 => return Ok(collection),
                // Existing servers answer 500 for a multi-vector collection that they do not know.
                404 | 500 => {}
                _ => return Err(reply.sentence(&format!("collection {name:?}"))),
            }
        }
        Err(format!("{} has no collection {name:?}", remote.url()))
    }

    /// What its points look like, as far as it is known.
    pub fn shape(&self) -> Shape {
        self.config.as_ref().map(|config| Shape::of(self.family, config)).unwrap_or_default()
    }

    fn scroll_path(&self) -> String {
        format!("{}{}", self.root, if self.family == Family::Dense { "/points/scroll" } else { "/scroll" })
    }

    /// The path of the route that reads points by id.
    pub fn get_path(&self) -> String {
        format!("{}/points/batch-get", self.root)
    }

    /// The path of the route that creates it.
    pub fn create_path(&self) -> &str {
        if self.family == Family::Dense { self.family.root() } else { &self.root }
    }

    /// The path of the route that writes many points.
    pub fn write_path(&self) -> String {
        format!("{}/{}/batch", self.root, if self.family == Family::Multivector { "docs" } else { "points" })
    }

    /// The path of the route that deletes points by id.
    pub fn delete_path(&self) -> String {
        format!("{}/points/delete", self.root)
    }

    /// How many points and sparse vectors it has; `None` if the server does not say.
    ///
    /// # Errors
    /// A sentence: there is no answer.
    pub fn sizes(&self, remote: &mut Remote) -> Result<Option<Sizes>, String> {
        let reply = remote.answer(&Request::get(&self.root))?;
        Ok(serde_json::from_slice(&reply.body).ok().filter(|_| reply.is_success()))
    }
}

/// What a server says about a collection.
#[derive(Clone, Copy, Debug, Deserialize)]
pub struct Sizes {
    /// Points.
    pub points: u64,
    /// Sparse vectors.
    pub sparse_vectors: u64,
}

/// The configuration of a collection as the server returns it, without the name; `None` if there is no such collection.
///
/// # Errors
/// A sentence: the server refuses to say.
pub fn config_of(
    remote: &mut Remote,
    family: Family,
    name: &str,
) -> Result<Option<Map<String, Value>>, String> {
    let path = format!("{}/{}/config", family.root(), path_segment(name));
    let reply = remote.answer(&Request::get(&path))?;
    match reply.status {
        200..300 => {
            let told: Map<String, Value> = serde_json::from_slice(&reply.body)
                .map_err(|error| format!("the configuration of {name:?}: {error}"))?;
            Ok(Some(match told.get("config") {
                Some(Value::Object(config)) => config.clone(),
                _ => told.into_iter().filter(|(key, _)| key != "name").collect(),
            }))
        }
        // An old server does not know the route, or knows it under another method.
        404 | 405 => Ok(None),
        _ => Err(reply.sentence(&format!("the configuration of {name:?}"))),
    }
}

/// A page of points as the server answered it, in parts.
pub struct Page {
    /// Answers of `batch-get`, one or more.
    pub answers: Vec<Vec<u8>>,
    /// Where the next page begins; empty behind the last one.
    pub next: String,
}

/// A page of ids.
struct Ids {
    /// Each as JSON.
    ids: Vec<String>,
    next: String,
}

/// Reads the pages of `collection` from `cursor` on (empty for the first one), and gives each to `take`.
///
/// # Errors
/// A sentence: of the server, or of `take`.
pub fn read_pages(
    target: &Target,
    retries: u32,
    collection: &Collection,
    cursor: String,
    mut take: impl FnMut(Page) -> Result<(), String>,
) -> Result<(), String> {
    let page_points = AtomicUsize::new(PAGE_POINTS_FIRST);
    std::thread::scope(|scope| {
        let (ids_to, ids_from) = sync_channel(PAGES_WAITING);
        let (pages_to, pages_from) = sync_channel(PAGES_WAITING);
        let connection = || Remote::new(target.clone(), retries);
        let (mut first, mut second) = (connection(), connection());
        let page_points = &page_points;
        scope.spawn(move || scroll(&mut first, collection, cursor, page_points, &ids_to));
        scope.spawn(move || get(&mut second, collection, page_points, &ids_from, &pages_to));
        // Whoever waits to send to this thread ends when the receiver is dropped, which this closure does.
        let pages: Receiver<Result<Page, String>> = pages_from;
        for page in pages {
            take(page?)?;
        }
        Ok(())
    })
}

/// Asks for pages of ids until the last one, or until nobody takes them.
fn scroll(
    remote: &mut Remote,
    collection: &Collection,
    mut cursor: String,
    page_points: &AtomicUsize,
    to: &SyncSender<Result<Ids, String>>,
) {
    loop {
        let limit = page_points.load(Ordering::Relaxed);
        let page = scroll_page(remote, collection, &cursor, limit);
        let next = page.as_ref().map(|page| page.next.clone()).unwrap_or_default();
        if to.send(page).is_err() || next.is_empty() {
            return;
        }
        cursor = next;
    }
}

/// Asks the server for a page of ids.
fn scroll_page(
    remote: &mut Remote,
    collection: &Collection,
    cursor: &str,
    mut limit: usize,
) -> Result<Ids, String> {
    #[derive(Deserialize)]
    struct Answer<'a> {
        #[serde(borrow)]
        documents: Vec<Document<'a>>,
        next_cursor: Option<String>,
    }
    #[derive(Deserialize)]
    struct Document<'a> {
        #[serde(borrow)]
        id: &'a RawValue,
    }
    let path = collection.scroll_path();
    loop {
        let body = serde_json::json!({"limit": limit, "cursor": cursor}).to_string();
        let most = if limit > 1 { ANSWER_BYTES_MAX } else { usize::MAX };
        let Some(reply) = remote.ask(&Request::post(&path, body.as_bytes()), most)? else {
            if limit == 1 {
                return Err("a page with one point in it is too large".into());
            }
            limit = (limit / 8).max(1);
            continue;
        };
        if !reply.is_success() {
            return Err(reply.sentence("reading the ids of a page"));
        }
        let answer: Answer<'_> = serde_json::from_slice(&reply.body)
            .map_err(|error| format!("the answer to {path} is no page: {error}"))?;
        let ids: Vec<String> = answer.documents.iter().map(|document| document.id.get().to_owned()).collect();
        let mut next = answer.next_cursor.unwrap_or_default();
        if next.is_empty() && ids.len() >= limit {
            next = checked_cursor(remote, collection, &ids)?;
        }
        return Ok(Ids { ids, next });
    }
}

/// The cursor behind a full page for which the server gave none: it was the last page, or the server never gives one. The ids of such a server are
/// integers, and the layout of its cursors is known.
fn checked_cursor(remote: &mut Remote, collection: &Collection, ids: &[String]) -> Result<String, String> {
    let Some(last) = ids.last().and_then(|id| id.parse::<u64>().ok()) else { return Ok(String::new()) };
    let mut bytes = vec![1];
    bytes.extend_from_slice(&last.to_be_bytes());
    let cursor = URL_SAFE_NO_PAD.encode(bytes);
    #[derive(Deserialize)]
    struct Answer {
        documents: Vec<Document>,
    }
    #[derive(Deserialize)]
    struct Document {
        id: u64,
    }
    let body = serde_json::json!({"limit": 1, "cursor": cursor}).to_string();
    let reply = remote.answer(&Request::post(&collection.scroll_path(), body.as_bytes()))?;
    let answer: Answer = match reply.is_success() {
        true => serde_json::from_slice(&reply.body).map_err(|error| format!("no page: {error}"))?,
        false => return Err(reply.sentence("looking for the page behind the last one")),
    };
    match answer.documents.first() {
        None => Ok(String::new()),
        Some(document) if document.id > last => Ok(cursor),
        Some(_) => Err(format!(
            "the server gives no cursor with a full page of {} points and takes none, so that it cannot be read page by page",
            ids.len()
        )),
    }
}

/// Reads the points of each page of ids.
fn get(
    remote: &mut Remote,
    collection: &Collection,
    page_points: &AtomicUsize,
    from: &Receiver<Result<Ids, String>>,
    to: &SyncSender<Result<Page, String>>,
) {
    for ids in from {
        let page = ids.and_then(|Ids { ids, next }| {
            let answers = get_points(remote, collection, &ids)?;
            let bytes: usize = answers.iter().map(Vec::len).sum();
            let fitting = (PAGE_BYTES * ids.len()).checked_div(bytes).unwrap_or(PAGE_POINTS_FIRST);
            let now = page_points.load(Ordering::Relaxed);
            page_points.store(fitting.min(now * 2).clamp(1, PAGE_POINTS_MAX), Ordering::Relaxed);
            Ok(Page { answers, next })
        });
        let has_failed = page.is_err();
        if to.send(page).is_err() || has_failed {
            return;
        }
    }
}

/// The points with these ids, in one answer, or in more if they are too many for one.
fn get_points(remote: &mut Remote, collection: &Collection, ids: &[String]) -> Result<Vec<Vec<u8>>, String> {
    let mut answers = Vec::new();
    let mut left = vec![ids];
    while let Some(ids) = left.pop() {
        if ids.is_empty() {
            continue;
        }
        let body = format!("{{\"ids\":[{}],\"with_vector\":true,\"with_payload\":true}}", ids.join(","));
        let most = if ids.len() > 1 { ANSWER_BYTES_MAX } else { usize::MAX };
        match remote.ask(&Request::post(&collection.get_path(), body.as_bytes()), most)? {
            Some(reply) if reply.is_success() => answers.push(reply.body),
            Some(reply) => return Err(reply.sentence("reading the points of a page")),
            None if ids.len() == 1 => return Err(format!("the point {} is too large for an answer", ids[0])),
            None => {
                let (one, other) = ids.split_at(ids.len() / 2);
                // The first half is read first.
                left.extend([other, one]);
            }
        }
    }
    Ok(answers)
}
