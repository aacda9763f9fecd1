//! Results of operations on points.
//!
//! ```text
//! hits12   u32 n, (u64 id, f32 distance)*
//! hits16   u32 n, (u64 id, f32 distance, f32 score)*
//! docs     u32 n, (u64 id, f32 distance, f32 score, s32 content, s32 metadata JSON)*       no metadata = length 0
//! groups   u32 n, (s32 key JSON, s32 docs)*
//! point    00; or 01, vec (dim 0 = not asked for), u64 ttlMs (0 = none), u8 metaPresent, ?s32 meta JSON,
//!          u8 sparsePresent, ?sparse, 01, u64 version
//!          of named spaces: 00; or 01, u32 n (0 = not asked for), (s16 space, vec)*, u64 ttlMs, u8 metaPresent, ?s32 meta JSON, 01, u64 version
//!          of a multi-vector collection: 00; or 01, u32 tokens (0 = not asked for), u32 dim, f32*, u8 metaPresent, ?s32 meta JSON, 01, u64 version
//! scored   u32 n, (u64 id, f32 score, s32 metadata JSON)*                                  no metadata = length 0
//! facet    u32 n, (s32 value JSON, u64 count)*
//! scroll   docs, u8 degraded, u16 n, s32 cursor                                             no cursor = the end
//! query    01, hits16; or groups
//! found    u32 n, (u64 id, f32 distance, f32 score, u8 metaPresent, ?s32 meta JSON, vectors)*
//!          vectors, all of length 0 = not asked for: vec, u8 sparsePresent, ?sparse; of named spaces u32 n, (s16 space, vec)*;
//!          of a multi-vector collection u32 tokens, u32 dim, f32*
//! ```
//! `found` stands in place of `hits12`, `hits16`, `docs` and `scored` if the options of a search ask for `with_payload`, `with_vector`, `with_score` or
//! `explain`. With `explain` the result ends with `s32` JSON, the report that `explain` is over REST; its length is 0 if nothing had to be searched.
//! One node is never degraded. Only a scroll says so, where the cursor follows; in the other results, whose readers take its
//! absence for a no, it would be three bytes of nothing.

use crate::door::Shape;
use crate::wire::config::{spaces_object, whole_object};
use crate::wire::explain::explanation;
use crate::wire::payloads::{WithId, content, write_in, write_metadata, write_payload};
use crate::wire::value::{facet_value, scalar, write_json};
use nigh_engine::collection::NamedConfig;
use nigh_engine::payload::{PayloadFormat, PayloadRow};
use nigh_shard::core::{Explained, FacetValue, FoundGroup, FoundPoint, QueryAnswer, StoredPoint};

/// Appends `u32 n`; memory holds fewer than 2^32 of anything here.
pub fn put_count(out: &mut Vec<u8>, count: usize) {
    out.extend_from_slice(&(count as u32).to_be_bytes());
}

/// Appends what `write` appends behind its length of four bytes.
fn put_framed(out: &mut Vec<u8>, write: impl FnOnce(&mut Vec<u8>)) {
    let start = begin_framed(out);
    write(out);
    end_framed(out, start);
}

/// Appends the place of a length, and returns where it is.
fn begin_framed(out: &mut Vec<u8>) -> usize {
    out.extend_from_slice(&[0; 4]);
    out.len() - 4
}

/// Writes the length of what was appended behind the place of a length at `start`, which [`begin_group`] returns.
pub fn end_framed(out: &mut [u8], start: usize) {
    let len = (out.len() - start - 4) as u32;
    out[start..start + 4].copy_from_slice(&len.to_be_bytes());
}

/// Appends a yes or no: `vector_delete`, `vector_exists`, `vector_insert_if_absent`, changes of payloads.
pub fn put_done(out: &mut Vec<u8>, done: bool) {
    out.push(done.into());
}

/// Appends whether a point was written, `u8`, and its version afterwards, `u64`: `vector_named_update_vectors`, and writes if absent that ask for it.
pub fn put_version(out: &mut Vec<u8>, version: Option<u64>) {
    out.push(version.is_some().into());
    out.extend(version.iter().flat_map(|version| version.to_be_bytes()));
}

/// Appends the result of `vector_delete_by_filter`, `u32 deleted`, at most what 32 bits hold.
pub fn put_deleted(out: &mut Vec<u8>, deleted: u64) {
    out.extend_from_slice(&u32::try_from(deleted).unwrap_or(u32::MAX).to_be_bytes());
}

/// Appends how many points there are, `u64`: `vector_count`, and changes of payloads by a filter; or the version of a point that was written.
pub fn put_number(out: &mut Vec<u8>, number: u64) {
    out.extend_from_slice(&number.to_be_bytes());
}

/// Appends one value of `facet`; how many there are stands before the first.
pub fn put_facet_value(out: &mut Vec<u8>, format: PayloadFormat, value: &FacetValue, count: u64) {
    put_framed(out, |out| write_in(format, out, &facet_value(value)));
    put_number(out, count);
}

/// Appends the result of `vector_search`: `hits12`.
pub fn put_hits12(out: &mut Vec<u8>, hits: &[FoundPoint]) {
    out.reserve(4 + 12 * hits.len());
    put_count(out, hits.len());
    for hit in hits {
        out.extend_from_slice(&hit.id.to_be_bytes());
        out.extend_from_slice(&hit.distance.to_be_bytes());
    }
}

/// Appends the result of a search by lanes: `hits16`.
pub fn put_hits16(out: &mut Vec<u8>, hits: &[FoundPoint]) {
    out.reserve(4 + 16 * hits.len());
    put_count(out, hits.len());
    for hit in hits {
        put_hit16(out, hit.id, hit.distance, hit.score);
    }
}

fn put_hit16(out: &mut Vec<u8>, id: u64, distance: f32, score: f32) {
    out.extend_from_slice(&id.to_be_bytes());
    out.extend_from_slice(&distance.to_be_bytes());
    out.extend_from_slice(&score.to_be_bytes());
}

/// Appends the result of `vector_search_docs` and `vector_search_text`: `docs`, as their rows are at `now_ms`.
pub fn put_docs(out: &mut Vec<u8>, hits: &[FoundPoint], now_ms: u64) {
    put_count(out, hits.len());
    hits.iter().for_each(|hit| put_doc(out, hit, now_ms));
}

/// Appends one of `docs`; how many there are stands before the first.
pub fn put_doc(out: &mut Vec<u8>, hit: &FoundPoint, now_ms: u64) {
    put_hit16(out, hit.id, hit.distance, hit.score);
    put_document(out, &hit.row, now_ms);
}

fn put_document(out: &mut Vec<u8>, row: &[u8], now_ms: u64) {
    put_framed(out, |out| out.extend_from_slice(content(row, now_ms).unwrap_or_default().as_bytes()));
    put_framed(out, |out| write_metadata(out, row, WithId::Yes, now_ms));
}

/// Appends one of `scored`; how many there are stands before the first.
pub fn put_scored(out: &mut Vec<u8>, hit: &FoundPoint, now_ms: u64) {
    out.extend_from_slice(&hit.id.to_be_bytes());
    out.extend_from_slice(&hit.score.to_be_bytes());
    put_framed(out, |out| {
        let start = out.len();
        write_payload(out, &hit.row, WithId::Yes, now_ms);
        if out[start..] == *b"null" {
            out.truncate(start);
        }
    });
}

/// Appends the result of `vector_search_groups`: `groups`.
pub fn put_groups(out: &mut Vec<u8>, groups: &[FoundGroup], now_ms: u64) {
    put_count(out, groups.len());
    groups.iter().for_each(|group| put_group(out, group, now_ms));
}

/// Appends one of `groups`; how many there are stands before the first.
fn put_group(out: &mut Vec<u8>, group: &FoundGroup, now_ms: u64) {
    let hits = begin_group(out, group);
    group.hits.iter().for_each(|hit| put_doc(out, hit, now_ms));
    end_framed(out, hits);
}

/// Appends one of `groups` up to its hits, which are `docs` or `found`. [`end_framed`] ends it with what this returns.
pub fn begin_group(out: &mut Vec<u8>, group: &FoundGroup) -> usize {
    put_framed(out, |out| write_in(group.format, out, &scalar(&group.key)));
    let hits = begin_framed(out);
    put_count(out, group.hits.len());
    hits
}

/// What stands before the hits of `query` that are not grouped.
pub const QUERY_HITS: u8 = 1;

/// Appends the result of `vector_query`: `query`.
pub fn put_query(out: &mut Vec<u8>, answer: &QueryAnswer, now_ms: u64) {
    match answer {
        QueryAnswer::Hits(hits) => {
            out.push(QUERY_HITS);
            put_hits16(out, hits);
        }
        QueryAnswer::Groups(groups) => put_groups(out, groups, now_ms),
    }
}

/// Appends one of `found`; how many there are stands before the first.
pub fn put_found(out: &mut Vec<u8>, hit: &FoundPoint, shape: &Shape, now_ms: u64) {
    put_hit16(out, hit.id, hit.distance, hit.score);
    put_meta(out, &hit.row, now_ms);
    let vectors: Vec<_> = hit.vectors.iter().collect();
    put_vectors(out, &vectors, shape);
    if *shape == Shape::One {
        put_sparse(out, !vectors.is_empty(), &hit.row);
    }
}

/// Appends the report of a search, the end of its result: `s32` JSON, empty if nothing had to be searched.
pub fn put_explanation(out: &mut Vec<u8>, explained: Option<&Explained>) {
    put_framed(out, |out| {
        if let Some(explained) = explained {
            write_json(out, &explanation(explained));
        }
    });
}

/// Appends vectors, each with its number, as a point of this shape has them.
fn put_vectors(out: &mut Vec<u8>, vectors: &[(usize, Vec<f32>)], shape: &Shape) {
    let first = vectors.first().map(|(_, vector)| &vector[..]).unwrap_or_default();
    match shape {
        Shape::One => put_vector(out, first),
        Shape::Spaces(spaces) => {
            let vectors = spaces.dense_of(vectors);
            put_count(out, vectors.clone().count());
            for (name, vector) in vectors {
                put_name(out, name);
                put_vector(out, vector);
            }
        }
        Shape::Tokens => {
            put_count(out, vectors.len());
            put_count(out, first.len());
            vectors.iter().for_each(|(_, vector)| put_components(out, vector));
        }
    }
}

/// Appends the result of `vector_get`, `vector_named_get` or `vector_mv_get`: `point`, whose vectors are of this shape.
pub fn put_point(out: &mut Vec<u8>, point: Option<&StoredPoint>, shape: &Shape, now_ms: u64) {
    let Some(point) = point else {
        out.push(0);
        return;
    };
    out.push(1);
    match (shape, &point.vector) {
        (Shape::One, vector) => put_vector(out, vector.as_deref().unwrap_or_default()),
        _ => put_vectors(out, &point.vectors, shape),
    }
    if *shape != Shape::Tokens {
        out.extend_from_slice(&point.ttl_ms.to_be_bytes());
    }
    put_meta(out, &point.row, now_ms);
    if *shape == Shape::One {
        put_sparse(out, point.vector.is_some(), &point.row);
    }
    out.push(1);
    out.extend_from_slice(&point.version.to_be_bytes());
}

/// Appends `vec`.
fn put_vector(out: &mut Vec<u8>, vector: &[f32]) {
    put_count(out, vector.len());
    put_components(out, vector);
}

fn put_components(out: &mut Vec<u8>, vector: &[f32]) {
    out.reserve(4 * vector.len());
    for component in vector {
        out.extend_from_slice(&component.to_be_bytes());
    }
}

/// Appends the name of a space, which is short.
fn put_name(out: &mut Vec<u8>, name: &str) {
    let len = name.len().min(u16::MAX.into());
    out.extend_from_slice(&(len as u16).to_be_bytes());
    out.extend_from_slice(&name.as_bytes()[..len]);
}

/// Appends the result of `vector_named_get_config`: `s32` JSON of the spaces by their names.
pub fn put_spaces(out: &mut Vec<u8>, config: &NamedConfig) {
    put_framed(out, |out| write_json(out, &spaces_object(config)));
    let whole = whole_object(&config.whole);
    if !whole.is_empty() {
        put_framed(out, |out| write_json(out, &whole));
    }
}

/// The whole payload, the document text among the rest; absent when nothing lives in it.
fn put_meta(out: &mut Vec<u8>, row: &[u8], now_ms: u64) {
    let start = out.len();
    out.push(1);
    put_framed(out, |out| write_payload(out, row, WithId::Yes, now_ms));
    if out.ends_with(b"null") && out.len() == start + 1 + 4 + 4 {
        out.truncate(start);
        out.push(0);
    }
}

/// The sparse vector, where vectors were asked for.
fn put_sparse(out: &mut Vec<u8>, asked: bool, row: &[u8]) {
    let asked = asked && !row.is_empty();
    let sparse = asked.then(|| PayloadRow::trusted(row).sparse()).filter(|sparse| sparse.len() > 0);
    out.push(sparse.is_some().into());
    if let Some(sparse) = sparse {
        put_count(out, sparse.len());
        for (index, value) in sparse {
            out.extend_from_slice(&index.to_be_bytes());
            out.extend_from_slice(&value.to_be_bytes());
        }
    }
}

/// Appends one point of the result of a `get_batch`, `u32 n, (u64 id, point)*`; how many there are stands before the first.
pub fn put_point_of(out: &mut Vec<u8>, id: u64, point: Option<&StoredPoint>, shape: &Shape, now_ms: u64) {
    out.extend_from_slice(&id.to_be_bytes());
    put_point(out, point, shape, now_ms);
}

/// A page of a scroll being appended, document by document; how many there are is known at the end.
#[derive(Debug)]
pub struct ScrollAnswer {
    start: usize,
    count: u32,
}

impl ScrollAnswer {
    /// Begins one at the end of `out`, into which all of it goes.
    pub fn begin(out: &mut Vec<u8>) -> ScrollAnswer {
        let start = out.len();
        put_count(out, 0);
        ScrollAnswer { start, count: 0 }
    }

    /// Appends a document that no score ranks.
    pub fn push(&mut self, out: &mut Vec<u8>, id: u64, row: &[u8], now_ms: u64) {
        put_hit16(out, id, 0.0, 0.0);
        put_document(out, row, now_ms);
        self.count += 1;
    }

    /// Ends it with the documents alone, which are not of a scroll.
    pub fn finish_docs(self, out: &mut [u8]) {
        if let Some(count) = out.get_mut(self.start..self.start + 4) {
            count.copy_from_slice(&self.count.to_be_bytes());
        }
    }

    /// Ends it with a cursor, empty = there is no more.
    pub fn finish(self, out: &mut Vec<u8>, cursor: &str) {
        self.finish_docs(out);
        out.extend_from_slice(&[0, 0, 0]);
        put_framed(out, |out| out.extend_from_slice(cursor.as_bytes()));
    }
}

/// Appends the result of an operation on a record in a point: `00`, or `01, s32 result, u64 version`.
pub fn put_operated(out: &mut Vec<u8>, outcome: Option<(&[u8], u64)>) {
    out.push(outcome.is_some().into());
    if let Some((result, version)) = outcome {
        put_framed(out, |out| out.extend_from_slice(result));
        out.extend_from_slice(&version.to_be_bytes());
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::door::SpaceNames;
    use crate::tcp::reader::{ArgsError, ArgsReader};
    use crate::wire::cursors;
    use nigh_engine::payload::{RowBuilder, Value};
    use nigh_shard::core::{FoundVectors, OrderKey, Part, Position};

    const NOW_MS: u64 = 5;

    fn row(content: &str, number: Option<i64>, sparse: &[(u32, f32)]) -> Vec<u8> {
        let mut row = RowBuilder::new();
        if !content.is_empty() {
            row.set("$content", Value::String(content.into()), 0);
        }
        if let Some(number) = number {
            row.set("n", Value::Int(number), 0);
        }
        row.set_sparse(sparse.to_vec()).unwrap();
        row.finish()
    }

    fn hit(id: u64, distance: f32, score: f32, row: Vec<u8>) -> FoundPoint {
        FoundPoint { id, distance, score, row: row.into(), vectors: FoundVectors::default() }
    }

    fn written(write: impl FnOnce(&mut Vec<u8>)) -> Vec<u8> {
        let mut out = b"before".to_vec();
        write(&mut out);
        out.split_off(6)
    }

    #[test]
    fn hits() {
        let hits = [hit(1, 0.5, 0.0, vec![]), hit(u64::MAX, -1.0, 2.0, vec![])];
        let twelve = written(|out| put_hits12(out, &hits));
        assert_eq!(
            twelve,
            b"\0\0\0\x02\0\0\0\0\0\0\0\x01\x3f\0\0\0\xff\xff\xff\xff\xff\xff\xff\xff\xbf\x80\0\0"
        );
        let sixteen = written(|out| put_hits16(out, &hits[1..]));
        assert_eq!(sixteen, b"\0\0\0\x01\xff\xff\xff\xff\xff\xff\xff\xff\xbf\x80\0\0\x40\0\0\0");
        let answer = QueryAnswer::Hits(hits[1..].to_vec());
        assert_eq!(written(|out| put_query(out, &answer, NOW_MS)), [&[1], &sixteen[..]].concat());
        assert_eq!(written(|out| put_hits12(out, &[])), [0; 4]);
    }

    #[test]
    fn explanations() {
        let explained = Explained { lanes: vec![], us: 7, waited_us: 1, combined_us: 2, copied_us: 3 };
        let json = br#"{"microseconds":7,"stages":{"waiting":1,"combining":2,"copying":3},"lanes":[]}"#;
        let bytes = written(|out| put_explanation(out, Some(&explained)));
        assert_eq!(bytes, [&b"\0\0\0\x4e"[..], json].concat());
        assert_eq!(written(|out| put_explanation(out, None)), [0; 4]);
    }

    /// Id, distance, score, content, metadata of each, as a client reads them.
    type Documents<'a> = Vec<(u64, f32, f32, &'a str, &'a str)>;

    fn documents<'a>(args: &mut ArgsReader<'a>) -> Result<Documents<'a>, ArgsError> {
        (0..args.u32("n")?)
            .map(|_| {
                let (id, distance, score) = (args.u64("id")?, args.f32("distance")?, args.f32("score")?);
                Ok((id, distance, score, args.text32("content")?, args.text32("metadata")?))
            })
            .collect()
    }

    const N_IS_7: &str = r#"{"n":{"kind":"int","int":7}}"#;

    #[test]
    fn docs_and_groups() {
        let hits = vec![
            hit(1, 0.5, 0.25, row("text", Some(7), &[(1, 1.0)])),
            hit(2, 0.0, 0.0, row("text", None, &[])),
            hit(3, 0.0, 0.0, row("", Some(7), &[])),
            hit(4, 0.0, 0.0, vec![]),
        ];
        let expected = vec![
            (1, 0.5, 0.25, "text", N_IS_7),
            (2, 0.0, 0.0, "text", ""),
            (3, 0.0, 0.0, "", N_IS_7),
            (4, 0.0, 0.0, "", ""),
        ];
        let bytes = written(|out| put_docs(out, &hits, NOW_MS));
        let mut args = ArgsReader::new(&bytes);
        assert_eq!((documents(&mut args), args.is_empty()), (Ok(expected.clone()), true));
        let groups = vec![
            FoundGroup { key: Value::String("a".into()), format: PayloadFormat::Tagged, hits: hits.clone() },
            FoundGroup { key: Value::Int(0), format: PayloadFormat::Tagged, hits: vec![] },
        ];
        let bytes = written(|out| put_groups(out, &groups, NOW_MS));
        let mut args = ArgsReader::new(&bytes);
        assert_eq!(args.u32("n"), Ok(2));
        assert_eq!(args.text32("key"), Ok(r#"{"kind":"string","str":"a"}"#));
        let mut docs = ArgsReader::new(args.s32("docs").unwrap());
        assert_eq!((documents(&mut docs), docs.is_empty()), (Ok(expected), true));
        assert_eq!((args.text32("key"), args.s32("docs")), (Ok(r#"{"kind":"int"}"#), Ok(&[0; 4][..])));
        assert!(args.is_empty());
        // In a query no mode stands before groups.
        assert_eq!(written(|out| put_query(out, &QueryAnswer::Groups(groups), NOW_MS)), bytes);
    }

    #[test]
    fn points() {
        let stored = |vector: Option<Vec<f32>>, row| StoredPoint {
            id: 9,
            vector,
            row,
            ttl_ms: 3,
            version: 2,
            vectors: vec![],
        };
        let read = |point: &StoredPoint| {
            let bytes = written(|out| put_point(out, Some(point), &Shape::One, NOW_MS));
            let mut args = ArgsReader::new(&bytes);
            assert_eq!(args.u8("found"), Ok(1));
            let (vector, ttl_ms) = (args.vector("vector").unwrap(), args.u64("ttlMs").unwrap());
            let meta = args.flag("metaPresent").unwrap().then(|| args.text32("meta").unwrap().to_owned());
            let sparse = args.flag("sparsePresent").unwrap().then(|| {
                let count = args.u32("nnz").unwrap();
                (0..count)
                    .map(|_| (args.u32("index").unwrap(), args.f32("value").unwrap()))
                    .collect::<Vec<_>>()
            });
            assert_eq!((args.u8("versioned"), args.u64("version"), ttl_ms), (Ok(1), Ok(2), 3));
            assert!(args.is_empty());
            (vector, meta, sparse)
        };
        let both = r#"{"$content":{"kind":"string","str":"t"},"n":{"kind":"int","int":7}}"#;
        let sparse = [(3, 0.5), (9, 1.0)];
        assert_eq!(
            read(&stored(Some(vec![1.0, 2.0]), row("t", Some(7), &sparse))),
            (vec![1.0, 2.0], Some(both.to_owned()), Some(sparse.to_vec()))
        );
        // Without vectors the sparse one is none; a row of it alone is no payload.
        assert_eq!(read(&stored(None, row("", Some(7), &sparse))), (vec![], Some(N_IS_7.to_owned()), None));
        assert_eq!(read(&stored(Some(vec![1.0]), row("", None, &sparse))).1, None);
        assert_eq!(read(&stored(Some(vec![1.0]), vec![])), (vec![1.0], None, None));
        assert_eq!(written(|out| put_point(out, None, &Shape::One, NOW_MS)), [0]);
        let point = stored(None, vec![]);
        let one = written(|out| put_point(out, Some(&point), &Shape::One, NOW_MS));
        let of = |id, point| written(|out| put_point_of(out, id, point, &Shape::One, NOW_MS));
        let id = |id: u64| id.to_be_bytes();
        assert_eq!(
            [of(9, Some(&point)), of(10, None)],
            [[&id(9)[..], &one].concat(), [&id(10)[..], &[0]].concat()]
        );
    }

    /// Vectors stand behind the names of their spaces, and there is no sparse part.
    #[test]
    fn points_of_named_spaces() {
        let point = StoredPoint {
            id: 9,
            vector: None,
            vectors: vec![(1, vec![0.5]), (0, vec![1.0, -2.0]), (7, vec![3.0])],
            row: row("", Some(7), &[(3, 0.5)]),
            ttl_ms: 3,
            version: 2,
        };
        let spaces = SpaceNames { dense: vec!["a".into(), "ü".into()], sparse: vec!["s".into()] };
        let spaces = Shape::Spaces(spaces);
        let bytes = written(|out| put_point(out, Some(&point), &spaces, NOW_MS));
        let mut args = ArgsReader::new(&bytes);
        assert_eq!((args.u8("found"), args.u32("n")), (Ok(1), Ok(2)));
        assert_eq!((args.text16("space"), args.vector("vector")), (Ok("ü"), Ok(vec![0.5])));
        assert_eq!((args.text16("space"), args.vector("vector")), (Ok("a"), Ok(vec![1.0, -2.0])));
        assert_eq!(
            (args.u64("ttlMs"), args.flag("meta"), args.text32("meta")),
            (Ok(3), Ok(true), Ok(N_IS_7))
        );
        assert_eq!((args.u8("versioned"), args.u64("version"), args.is_empty()), (Ok(1), Ok(2), true));
        let bare = StoredPoint { vectors: vec![], row: vec![], ..point };
        let bytes = written(|out| put_point(out, Some(&bare), &spaces, NOW_MS));
        assert_eq!(
            bytes,
            [&[1, 0, 0, 0, 0][..], &3_u64.to_be_bytes(), &[0, 1], &2_u64.to_be_bytes()].concat()
        );
    }

    /// The tokens are a matrix without a dimension for each row, and there is no time to live.
    #[test]
    fn documents_of_tokens() {
        let point = StoredPoint {
            id: 9,
            vector: None,
            vectors: vec![(0, vec![0.5, 1.0]), (1, vec![1.0, -2.0])],
            row: row("", Some(7), &[(3, 0.5)]),
            ttl_ms: 0,
            version: 2,
        };
        let bytes = written(|out| put_point(out, Some(&point), &Shape::Tokens, NOW_MS));
        let mut args = ArgsReader::new(&bytes);
        assert_eq!((args.u8("found"), args.u32("tokens"), args.u32("dim")), (Ok(1), Ok(2), Ok(2)));
        assert_eq!(args.floats(4, "tokens"), Ok(vec![0.5, 1.0, 1.0, -2.0]));
        assert_eq!((args.flag("meta"), args.text32("meta")), (Ok(true), Ok(N_IS_7)));
        assert_eq!((args.u8("versioned"), args.u64("version"), args.is_empty()), (Ok(1), Ok(2), true));
        let bare = StoredPoint { vectors: vec![], row: vec![], ..point };
        let bytes = written(|out| put_point(out, Some(&bare), &Shape::Tokens, NOW_MS));
        assert_eq!(bytes, [&[1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1][..], &2_u64.to_be_bytes()].concat());
        let hits = [hit(1, 0.5, 2.0, row("text", Some(7), &[])), hit(2, 0.0, -1.0, vec![])];
        let bytes = written(|out| hits.iter().for_each(|hit| put_scored(out, hit, NOW_MS)));
        let mut args = ArgsReader::new(&bytes);
        let both = r#"{"$content":{"kind":"string","str":"text"},"n":{"kind":"int","int":7}}"#;
        assert_eq!((args.u64("id"), args.f32("score"), args.text32("meta")), (Ok(1), Ok(2.0), Ok(both)));
        assert_eq!((args.u64("id"), args.f32("score"), args.text32("meta")), (Ok(2), Ok(-1.0), Ok("")));
        assert!(args.is_empty());
    }

    #[test]
    fn scrolls() {
        let bytes = written(|out| {
            let mut answer = ScrollAnswer::begin(out);
            answer.push(out, 1, &row("text", Some(7), &[]), NOW_MS);
            answer.push(out, 2, &[], NOW_MS);
            answer.finish(out, &cursors::by_id(2));
        });
        let mut args = ArgsReader::new(&bytes);
        let expected = vec![(1, 0.0, 0.0, "text", N_IS_7), (2, 0.0, 0.0, "", "")];
        assert_eq!(documents(&mut args), Ok(expected));
        assert_eq!(
            (args.u8("degraded"), args.u16("n"), args.text32("cursor")),
            (Ok(0), Ok(0), Ok("AQAAAAAAAAAC"))
        );
        assert!(args.is_empty());
        let nothing = written(|out| ScrollAnswer::begin(out).finish(out, ""));
        assert_eq!(nothing, [0; 4 + 3 + 4]);
        let keys = [OrderKey { key: "n".into(), desc: true, is_string: false, is_datetime: false }];
        let after = Position { parts: vec![Part::Number(1.5)], id: 2 };
        let cursor = cursors::by_value(&keys, &after);
        let bytes = written(|out| ScrollAnswer::begin(out).finish(out, &cursor));
        let cursor = ArgsReader::new(&bytes[7..]).text32("cursor").unwrap();
        assert_eq!(cursors::position_of(&keys, cursor), Ok(after));
    }

    #[test]
    fn small_results() {
        assert_eq!(written(|out| put_done(out, true)), [1]);
        assert_eq!(written(|out| put_deleted(out, 258)), [0, 0, 1, 2]);
        assert_eq!(written(|out| put_deleted(out, 1 << 40)), [0xff; 4]);
        assert_eq!(written(|out| put_operated(out, None)), [0]);
        assert_eq!(written(|out| put_operated(out, Some((b"ab", 3)))), b"\x01\0\0\0\x02ab\0\0\0\0\0\0\0\x03");
    }
}
