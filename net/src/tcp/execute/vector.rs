//! Carrying out operations on collections, through the door that serves REST as well.

use crate::door::Permit;
use crate::limits::{PAGE_BYTES, PAGE_POINTS};
use crate::op::{
    Action, ApiError, ChangePayloadIfPresent, GetPoints, SamplePoints, Scroll, SearchOptions, SentId,
    UpdateVectorsIfPresent,
};
use crate::paged::{PointReader, ScrollReader};
use crate::room::Room;
use crate::tcp::frame::{self, Begun};
use crate::tcp::vector::answers::{self, ScrollAnswer};
use crate::tcp::vector::{self, VectorRequest};
use crate::wire::info::information;
use crate::wire::value::write_json;
use nigh_engine::query::Source;
use nigh_shard::core::{
    ANSWERS_CROWDED, FoundGroup, FoundPoint, PointOperated, QueryAnswer, QueryOutcome, Written,
};
use nigh_shard::family::CollectionConfig;

/// How a request fits into a round.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Reads; any number of them at a time.
    Read,
    /// Writes a point without a condition; may become one batch with its neighbours.
    Upsert,
    /// Anything else: alone.
    Alone,
}

/// How `request`, which `permit` lets in, fits into a round. What needs the right to read and no other changes nothing; the door holds that.
pub fn kind(permit: &Permit, request: &VectorRequest) -> Kind {
    if permit.right() == Action::Read {
        return Kind::Read;
    }
    // With a condition an outcome of its own would be lost when a later point of the batch fails.
    let is_unconditional = match request {
        VectorRequest::Write(write, _) => {
            write.batch.points.iter().all(|point| point.expected_version.is_none())
        }
        VectorRequest::WriteNamed(write, _) => {
            write.points.iter().all(|point| point.fields.expected_version.is_none())
        }
        VectorRequest::AddDocuments(write, _) => {
            write.documents.iter().all(|document| document.fields.expected_version.is_none())
        }
        _ => false,
    };
    if is_unconditional { Kind::Upsert } else { Kind::Alone }
}

/// Whether `request` asks for what is nearest, by any lane.
pub fn is_search(request: &VectorRequest) -> bool {
    matches!(
        request,
        VectorRequest::Search(_)
            | VectorRequest::SearchDocs(_)
            | VectorRequest::SearchNamed(_)
            | VectorRequest::SearchGroups(_)
            | VectorRequest::Hybrid(_)
            | VectorRequest::HybridNamed(_)
            | VectorRequest::SearchText(_)
            | VectorRequest::Query(_)
            | VectorRequest::QueryNamed(_)
            | VectorRequest::SearchDocuments(_)
            | VectorRequest::HybridDocuments(_)
            | VectorRequest::QueryDocuments(_)
    )
}

/// Appends the response to a request, which that of a read has `room` for.
pub async fn carry_out(permit: &Permit, request: VectorRequest, room: &mut Room, out: &mut Vec<u8>) {
    let begun = Begun::at(out);
    let is_read = permit.right() == Action::Read;
    match answer(permit, request, &begun, room, out).await {
        // What has changed has to be answered.
        Ok(true) if is_read && !begun.is_too_long(out) && !room.holds(begun.bytes(out)) => {
            begun.abandon(out);
            frame::put_error(out, ANSWERS_CROWDED);
        }
        Ok(true) => begun.finish(out),
        Ok(false) => {
            begun.abandon(out);
            frame::put_not_found(out);
        }
        Err(error) => {
            begun.abandon(out);
            frame::put_refusal(out, &error);
        }
    }
}

/// Whether there is what was asked for: `out` has the result then.
async fn answer(
    permit: &Permit,
    request: VectorRequest,
    begun: &Begun,
    room: &mut Room,
    out: &mut Vec<u8>,
) -> Result<bool, ApiError> {
    match request {
        VectorRequest::Create(request) => permit.run(request).await?,
        VectorRequest::Drop(request) => drop(permit.run(request).await?),
        VectorRequest::AddSpace(request) => permit.run(request).await?,
        VectorRequest::DropSpace(request) => permit.run(request).await?,
        VectorRequest::ChangeConfig(request) => {
            let name = request.collection.clone();
            match &*permit.run(request).await?.config {
                CollectionConfig::Dense(config) => vector::put_config(out, config),
                CollectionConfig::Named(config) => answers::put_spaces(out, config),
                CollectionConfig::MultiVector(config) => vector::put_multi_vector_config(out, &name, config),
            }
        }
        VectorRequest::GetConfig(request) => {
            let info = permit.run(request).await?;
            vector::put_config(out, info.dense_config()?);
        }
        VectorRequest::Info(request) => write_json(out, &information(&permit.run(request).await?)),
        VectorRequest::Count(request) => answers::put_number(out, permit.run(request).await?),
        VectorRequest::Facet(request) => {
            let format = permit.payloads(&request.collection).format;
            let found = permit.run(request).await?;
            answers::put_count(out, found.len());
            for page in found.chunks(PAGE_POINTS) {
                page.iter().for_each(|(value, count)| answers::put_facet_value(out, format, value, *count));
                permit.env().breathe().await;
                if begun.is_full(out, room) {
                    break;
                }
            }
        }
        VectorRequest::Sample(request) => sample(permit, request, begun, room, out).await?,
        VectorRequest::ChangePayloads(request) => answers::put_number(out, permit.run(request).await?),
        VectorRequest::GetNamedConfig(request) => answers::put_spaces(out, &permit.run(request).await?),
        VectorRequest::GetMultiVectorConfig(request) => {
            let name = request.collection.clone();
            vector::put_multi_vector_config(out, &name, &permit.run(request).await?);
        }
        VectorRequest::Write(request, with_version) => {
            let id = request
                .batch
                .points
                .first()
                .map(|point| SentId::stored(point.id, &point.row))
                .unwrap_or_default();
            put_written(out, &permit.run(request).await?, with_version, id)?;
        }
        VectorRequest::WriteNamed(request, with_version) => {
            let id = request
                .points
                .first()
                .map(|point| SentId::stored(point.fields.id, &point.fields.row))
                .unwrap_or_default();
            put_written(out, &permit.run(request).await?, with_version, id)?;
        }
        VectorRequest::AddDocuments(request, with_version) => {
            let id = request
                .documents
                .first()
                .map(|document| SentId::stored(document.fields.id, &document.fields.row))
                .unwrap_or_default();
            put_written(out, &permit.run(request).await?, with_version, id)?;
        }
        VectorRequest::AddDocumentIfAbsent(request, with_version) => {
            put_written_if_absent(out, &permit.run(request).await?, with_version);
        }
        VectorRequest::WriteIfAbsent(request, with_version) => {
            put_written_if_absent(out, &permit.run(request).await?, with_version);
        }
        VectorRequest::Delete(request) => answers::put_done(out, permit.run(request).await?),
        VectorRequest::Exists(request) => {
            answers::put_done(out, permit.run(request).await?.iter().any(Option::is_some));
        }
        VectorRequest::Get(request) => {
            let shape = permit.shape(&request.collection)?;
            let points = permit.run(request).await?;
            let point = points.first().and_then(Option::as_ref);
            answers::put_point(out, point, &shape, permit.unix_ms());
        }
        VectorRequest::GetBatch(request) => get_batch(permit, request, begun, room, out).await?,
        VectorRequest::ChangePayload(request) => {
            answers::put_done(out, permit.run(ChangePayloadIfPresent(request)).await?);
        }
        VectorRequest::UpdateVectors(request) => {
            answers::put_version(out, permit.run(UpdateVectorsIfPresent(request)).await?);
        }
        VectorRequest::DeleteByFilter(request) => answers::put_deleted(out, permit.run(request).await?),
        VectorRequest::Search(request) => {
            let extended = extended(&request.options, &request.collection, HitLayout::Hits12);
            found(permit, extended, permit.run(request).await?, begun, room, out).await?;
        }
        VectorRequest::SearchDocs(request) => {
            let extended = extended(&request.options, &request.collection, HitLayout::Documents);
            found(permit, extended, permit.run(request).await?, begun, room, out).await?;
        }
        VectorRequest::SearchNamed(request) => {
            let layout = match (request.with_rows, &request.source) {
                (true, _) => HitLayout::Documents,
                (false, Source::Sparse(_)) => HitLayout::Hits16,
                (false, _) => HitLayout::Hits12,
            };
            let extended = extended(&request.options, &request.collection, layout);
            found(permit, extended, permit.run(request).await?, begun, room, out).await?;
        }
        VectorRequest::SearchGroups(request) => {
            let extended = extended(&request.options, &request.collection, HitLayout::Query);
            found(permit, extended, permit.run(request).await?, begun, room, out).await?;
        }
        VectorRequest::Hybrid(request) => {
            let extended = extended(&request.options, &request.collection, HitLayout::Hits16);
            found(permit, extended, permit.run(request).await?, begun, room, out).await?;
        }
        VectorRequest::HybridNamed(request) => {
            let extended = extended(&request.options, &request.collection, HitLayout::Hits16);
            found(permit, extended, permit.run(request).await?, begun, room, out).await?;
        }
        VectorRequest::SearchText(request) => {
            let extended = extended(&request.options, &request.collection, HitLayout::Documents);
            found(permit, extended, permit.run(request).await?, begun, room, out).await?;
        }
        VectorRequest::Query(request) => {
            let extended = extended(&request.options, &request.collection, HitLayout::Query);
            found(permit, extended, permit.run(request).await?, begun, room, out).await?;
        }
        VectorRequest::QueryNamed(request) => {
            let extended = extended(&request.0.options, &request.0.collection, HitLayout::Query);
            found(permit, extended, permit.run(request).await?, begun, room, out).await?;
        }
        VectorRequest::SearchDocuments(request) => {
            let extended = extended(&request.options, &request.collection, HitLayout::Scored);
            found(permit, extended, permit.run(request).await?, begun, room, out).await?;
        }
        VectorRequest::HybridDocuments(request) => {
            let extended = extended(&request.options, &request.collection, HitLayout::Hits16);
            found(permit, extended, permit.run(request).await?, begun, room, out).await?;
        }
        VectorRequest::QueryDocuments(request) => {
            let extended = extended(&request.0.options, &request.0.collection, HitLayout::Query);
            found(permit, extended, permit.run(request).await?, begun, room, out).await?;
        }
        VectorRequest::Scroll(request) => scroll(permit, request, begun, room, out).await?,
        VectorRequest::Stage(request) => drop(permit.run(request).await?),
        VectorRequest::Build(request) => drop(permit.run(request).await?),
        VectorRequest::Operate(request) => match permit.run(request).await? {
            PointOperated::NoPoint => answers::put_operated(out, None),
            PointOperated::NoRecord => return Ok(false),
            PointOperated::Done { result, version } => answers::put_operated(out, Some((&result, version))),
        },
    }
    Ok(true)
}

/// Appends the result of a write of the point with this id: its version where that is asked for, else nothing.
///
/// # Errors
/// The version that the write expects is not the stored one.
fn put_written(
    out: &mut Vec<u8>,
    written: &[Written],
    with_version: bool,
    id: SentId,
) -> Result<(), ApiError> {
    match written.first() {
        Some(Written::Conflict) => return Err(ApiError::version_conflict(id)),
        Some(Written::Ok { version }) if with_version => answers::put_number(out, *version),
        Some(Written::Ok { .. }) | None => {}
    }
    Ok(())
}

/// Appends the result of a write of a point that was to be absent: whether it was, and then its version where that is asked for.
fn put_written_if_absent(out: &mut Vec<u8>, written: &[Written], with_version: bool) {
    match written.first() {
        Some(Written::Ok { version }) if with_version => answers::put_version(out, Some(*version)),
        first => answers::put_done(out, first != Some(&Written::Conflict)),
    }
}

/// How the hits of an operation are laid out.
#[derive(Clone, Copy, PartialEq, Eq)]
enum HitLayout {
    /// `hits12`
    Hits12,
    /// `hits16`
    Hits16,
    /// `docs`
    Documents,
    /// `scored`
    Scored,
    /// `query`, or `groups` where they are grouped
    Query,
}

/// What the options of a search make of its result.
struct Extended {
    /// The layout of the hits without options.
    layout: HitLayout,
    /// The collection whose family decides how vectors are laid out, if the hits are laid out as `found`.
    collection: Option<String>,
    /// Whether the report of the search follows the hits.
    explains: bool,
}

fn extended(options: &SearchOptions, collection: &str, layout: HitLayout) -> Extended {
    let explains = options.explain;
    let is_extended = options.extends_hits() || explains;
    Extended { layout, collection: is_extended.then(|| collection.to_owned()), explains }
}

/// Appends the result of a search.
async fn found(
    permit: &Permit,
    extended: Extended,
    mut outcome: QueryOutcome,
    begun: &Begun,
    room: &mut Room,
    out: &mut Vec<u8>,
) -> Result<(), ApiError> {
    let explained = outcome.explained.take();
    let explains = extended.explains;
    put_hits(permit, extended, outcome, begun, room, out).await?;
    if explains {
        answers::put_explanation(out, explained.as_ref());
    }
    Ok(())
}

/// Appends the hits of a search, with a chance for others after each page.
async fn put_hits(
    permit: &Permit,
    Extended { layout, collection, .. }: Extended,
    outcome: QueryOutcome,
    begun: &Begun,
    room: &mut Room,
    out: &mut Vec<u8>,
) -> Result<(), ApiError> {
    let shape = collection.map(|collection| permit.shape(&collection)).transpose()?;
    let hits = match (&outcome.answer, &shape) {
        (QueryAnswer::Groups(groups), None) => {
            put_groups(permit, groups, answers::put_doc, begun, room, out).await;
            return Ok(());
        }
        (QueryAnswer::Groups(groups), Some(shape)) => {
            let put = |out: &mut Vec<u8>, hit: &FoundPoint, now_ms| {
                answers::put_found(out, hit, shape, now_ms);
            };
            put_groups(permit, groups, put, begun, room, out).await;
            return Ok(());
        }
        (QueryAnswer::Hits(hits), _) => hits,
    };
    match (layout, &shape) {
        (_, Some(shape)) => {
            if layout == HitLayout::Query {
                out.push(answers::QUERY_HITS);
            }
            let put = |out: &mut Vec<u8>, hit: &FoundPoint, now_ms| {
                answers::put_found(out, hit, shape, now_ms);
            };
            put_pages(permit, hits, put, begun, room, out).await;
        }
        (HitLayout::Hits12, None) => answers::put_hits12(out, hits),
        (HitLayout::Hits16, None) => answers::put_hits16(out, hits),
        (HitLayout::Documents, None) => put_pages(permit, hits, answers::put_doc, begun, room, out).await,
        (HitLayout::Scored, None) => put_pages(permit, hits, answers::put_scored, begun, room, out).await,
        (HitLayout::Query, None) => answers::put_query(out, &outcome.answer, permit.unix_ms()),
    }
    Ok(())
}

/// Appends hits as `put` does, likewise.
async fn put_pages(
    permit: &Permit,
    hits: &[FoundPoint],
    put: impl Fn(&mut Vec<u8>, &FoundPoint, u64),
    begun: &Begun,
    room: &mut Room,
    out: &mut Vec<u8>,
) {
    let now_ms = permit.unix_ms();
    let mut page = Page::begin(out);
    answers::put_count(out, hits.len());
    for hit in hits {
        put(out, hit, now_ms);
        if !page.goes_on(permit, begun, room, out).await {
            return;
        }
    }
}

/// What was appended since others had a chance.
struct Page {
    start: usize,
    points: usize,
}

impl Page {
    fn begin(out: &[u8]) -> Page {
        Page { start: out.len(), points: 0 }
    }

    /// Counts one more point, and gives others a chance when there are enough of them, or enough bytes. False when the answer is not to be
    /// continued.
    async fn goes_on(&mut self, permit: &Permit, begun: &Begun, room: &mut Room, out: &[u8]) -> bool {
        self.points += 1;
        if self.points < PAGE_POINTS && out.len() - self.start < PAGE_BYTES {
            return true;
        }
        *self = Page::begin(out);
        permit.env().breathe().await;
        !begun.is_full(out, room)
    }
}

/// Appends groups as `put` does, likewise.
async fn put_groups(
    permit: &Permit,
    groups: &[FoundGroup],
    put: impl Fn(&mut Vec<u8>, &FoundPoint, u64),
    begun: &Begun,
    room: &mut Room,
    out: &mut Vec<u8>,
) {
    let now_ms = permit.unix_ms();
    let mut page = Page::begin(out);
    answers::put_count(out, groups.len());
    for group in groups {
        let hits = answers::begin_group(out, group);
        for hit in &group.hits {
            put(out, hit, now_ms);
            if !page.goes_on(permit, begun, room, out).await {
                return;
            }
        }
        answers::end_framed(out, hits);
    }
}

/// Points by id, page by page: a request may name millions.
async fn get_batch(
    permit: &Permit,
    request: GetPoints,
    begun: &Begun,
    room: &mut Room,
    out: &mut Vec<u8>,
) -> Result<(), ApiError> {
    let shape = permit.shape(&request.collection)?;
    let mut reader = PointReader::new(permit, request)?;
    answers::put_count(out, reader.points());
    loop {
        let before = out.len();
        let page = reader.next().await?;
        let now_ms = permit.unix_ms();
        for (id, point) in page {
            answers::put_point_of(out, id, point.as_ref(), &shape, now_ms);
        }
        if reader.is_done() || begun.is_full(out, room) {
            return Ok(());
        }
        reader.wrote(out.len() - before);
        permit.env().breathe().await;
    }
}

/// Points drawn at random, as documents.
async fn sample(
    permit: &Permit,
    request: SamplePoints,
    begun: &Begun,
    room: &mut Room,
    out: &mut Vec<u8>,
) -> Result<(), ApiError> {
    let (collection, filter) = (request.collection.clone(), request.filter.clone());
    let ids = permit.run(request).await?;
    let mut reader = ScrollReader::of_ids(permit, collection, filter, ids);
    let mut drawn = ScrollAnswer::begin(out);
    loop {
        let before = out.len();
        let page = reader.next().await?;
        let now_ms = permit.unix_ms();
        for point in &page {
            drawn.push(out, point.id, &point.row, now_ms);
        }
        if reader.is_done() || begun.is_full(out, room) {
            drawn.finish_docs(out);
            return Ok(());
        }
        reader.wrote(out.len() - before);
        permit.env().breathe().await;
    }
}

async fn scroll(
    permit: &Permit,
    request: Scroll,
    begun: &Begun,
    room: &mut Room,
    out: &mut Vec<u8>,
) -> Result<(), ApiError> {
    let (mut reader, mut scrolled) = (ScrollReader::new(permit, request), ScrollAnswer::begin(out));
    loop {
        let before = out.len();
        let page = reader.next().await?;
        let now_ms = permit.unix_ms();
        for point in &page {
            scrolled.push(out, point.id, &point.row, now_ms);
        }
        // What does not fit is answered with an error, whatever its end is.
        if reader.is_done() || begun.is_full(out, room) {
            scrolled.finish(out, reader.cursor());
            return Ok(());
        }
        reader.wrote(out.len() - before);
        permit.env().breathe().await;
    }
}
