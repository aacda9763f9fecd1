//! Routes that collections of several families have in common: they read and delete points, change payloads and records in them, and scroll,
//! count, facet or sample the points that match a filter.

use super::delete::{Deletion, decode_one_or_many};
use super::parameters::{ConditionsBody, Query, ReadParameters, WriteParameters, with_version};
use super::routes::point_id;
use super::{
    build_options, decode_body, inspect, json_body, ok, optional_body, payload, points, read, records,
    scroll, stream_pages,
};
use crate::door::Permit;
use crate::http::{BodyReader, Reply, ReplyBody, json_reply};
use crate::limits;
use crate::op::{
    ApiError, BuildStaged, ChangeConfig, ChangePayload, DeletePoint, GetCollection, VectorOp, operated,
};
use crate::rest::pages::Pages;
use crate::wire::config_change::decode_change;
use http::StatusCode;

/// Deletes a point that the path names.
pub async fn delete(
    permit: &Permit,
    collection: String,
    id: &str,
    query: Query<'_>,
    mut body: BodyReader,
) -> Result<Reply, ApiError> {
    let (id, write) = (point_id(permit, &collection, id)?, WriteParameters::of(query)?);
    let stated = optional_body::<ConditionsBody>(&mut body).await?;
    let write = write.with_body(stated.parameters())?;
    let deleted = permit.run(DeletePoint { collection, id, write }).await?;
    Ok(ok(format!("{{\"deleted\":{deleted}}}\n")))
}

/// Deletes the point with the `id` in the body, or all points that its `ids` or `filter` select.
pub async fn delete_points(
    permit: &Permit,
    collection: String,
    query: Query<'_>,
    mut body: BodyReader,
) -> Result<Reply, ApiError> {
    let write = WriteParameters::of(query)?;
    let body = json_body(&mut body).await?;
    let decode = move |body: &[u8]| decode_one_or_many(collection, body, write);
    let answer = match decode_body(permit, body, decode).await? {
        Deletion::One(request) => format!("{{\"deleted\":{}}}\n", permit.run(request).await?),
        Deletion::Many(request) => format!("{{\"deleted\":{}}}\n", permit.run(request).await?),
    };
    Ok(ok(answer))
}

/// Builds what is staged.
pub async fn build(
    permit: &Permit,
    collection: String,
    query: Query<'_>,
    mut body: BodyReader,
) -> Result<Reply, ApiError> {
    let (workers, wait) = build_options(query, &mut body).await?;
    match permit.run(BuildStaged { collection, workers, wait }).await? {
        Some(task) if !wait => {
            let answer = format!("{{\"status\":\"building\",\"task\":{task}}}\n");
            Ok(json_reply(StatusCode::ACCEPTED, ReplyBody::whole(answer)))
        }
        _ => Ok(ok(&b"{\"status\":\"built\"}\n"[..])),
    }
}

/// Reads a point.
pub async fn get(
    permit: &Permit,
    collection: String,
    id: &str,
    query: Query<'_>,
    mut body: BodyReader,
) -> Result<Reply, ApiError> {
    let stated = optional_body::<read::GetBody>(&mut body).await?;
    read::get(permit, collection, id, query, stated).await
}

/// Reads points by their ids.
pub async fn get_batch(
    permit: &Permit,
    collection: String,
    query: Query<'_>,
    mut body: BodyReader,
) -> Result<Reply, ApiError> {
    let projection = read::Projection::of(query)?;
    body.limit(limits::JSON_BULK_BODY_MAX_BYTES)?;
    let wanted = points::read_envelope(&mut body, read::BatchGetBody::default()).await?;
    read::batch_get(permit, collection, projection, wanted).await
}

/// Changes a payload, as the operation `op` does in a dense collection.
pub async fn change_payload(
    permit: &Permit,
    op: VectorOp,
    collection: String,
    id: &str,
    query: Query<'_>,
    mut body: BodyReader,
) -> Result<Reply, ApiError> {
    let (id, write, with_version) =
        (point_id(permit, &collection, id)?, WriteParameters::of(query)?, with_version(query)?);
    let body = json_body(&mut body).await?;
    let format = permit.payloads(&collection).format;
    let decode = move |body: &[u8]| payload::decode_change(op, body, write, format);
    let (change, write) = decode_body(permit, body, decode).await?;
    let version = permit.run(ChangePayload { collection, id, change, write }).await?;
    Ok(match with_version {
        true => ok(format!("{{\"applied\":true,\"version\":{version}}}\n")),
        false => ok(&b"{\"applied\":true}\n"[..]),
    })
}

/// Changes the payloads of many points, as the operation `op` does in a dense collection.
pub async fn change_payloads(
    permit: &Permit,
    op: VectorOp,
    collection: String,
    query: Query<'_>,
    mut body: BodyReader,
) -> Result<Reply, ApiError> {
    let write = WriteParameters::of(query)?;
    let body = json_body(&mut body).await?;
    let payloads = permit.payloads(&collection);
    let decode = move |body: &[u8]| payload::decode_changes(op, collection, body, write, payloads);
    let changed = permit.run(decode_body(permit, body, decode).await?).await?;
    Ok(ok(format!("{{\"changed\":{changed}}}\n")))
}

/// Carries out a call on a record in the payload of a point.
pub async fn operate(
    permit: &Permit,
    collection: String,
    id: &str,
    query: Query<'_>,
    mut body: BodyReader,
) -> Result<Reply, ApiError> {
    let (id, write) = (point_id(permit, &collection, id)?, WriteParameters::of(query)?);
    let body = json_body(&mut body).await?;
    let decode = move |body: &[u8]| records::decode_operate(collection, id, body, write);
    let request = decode_body(permit, body, decode).await?;
    let (id, key) = (request.id.clone(), request.key.clone());
    let (result, version) = operated(&id, &key, permit.run(request).await?)?;
    Ok(ok(records::operated_answer(&result, version)))
}

/// Tells all that there is to know of a collection.
pub async fn info(permit: &Permit, collection: String) -> Result<Reply, ApiError> {
    Ok(ok(inspect::info_answer(&permit.run(GetCollection { collection }).await?)))
}

/// Tells the configuration.
pub async fn config(permit: &Permit, collection: String) -> Result<Reply, ApiError> {
    let info = permit.run(GetCollection { collection: collection.clone() }).await?;
    Ok(ok(inspect::config_answer(&collection, &info)))
}

/// Changes the configuration, and tells the whole of it.
pub async fn change_config(
    permit: &Permit,
    collection: String,
    mut body: BodyReader,
) -> Result<Reply, ApiError> {
    let (body, family) = (json_body(&mut body).await?, permit.family());
    let change = decode_body(permit, body, move |body: &[u8]| decode_change(family, body)).await?;
    let info = permit.run(ChangeConfig { collection: collection.clone(), change }).await?;
    Ok(ok(inspect::config_answer(&collection, &info)))
}

/// Reads the points that match a filter, page by page.
pub async fn scroll(
    permit: &Permit,
    collection: String,
    query: Query<'_>,
    mut body: BodyReader,
) -> Result<Reply, ApiError> {
    let read = ReadParameters::of(query)?;
    let body = json_body(&mut body).await?;
    let decode = move |body: &[u8]| scroll::decode_scroll(collection, body, read);
    scroll::scroll(permit, decode_body(permit, body, decode).await?).await
}

/// Counts the points that match a filter.
pub async fn count(permit: &Permit, collection: String, mut body: BodyReader) -> Result<Reply, ApiError> {
    let decode = move |body: &[u8]| inspect::decode_count(collection, body);
    let request = decode_body(permit, json_body(&mut body).await?, decode).await?;
    Ok(ok(format!("{{\"count\":{}}}\n", permit.run(request).await?)))
}

/// Counts the points for each value of a payload key.
pub async fn facet(permit: &Permit, collection: String, mut body: BodyReader) -> Result<Reply, ApiError> {
    let decode = move |body: &[u8]| inspect::decode_facet(collection, body);
    let request = decode_body(permit, json_body(&mut body).await?, decode).await?;
    let format = permit.payloads(&request.collection).format;
    let found = permit.run(request).await?;
    let bytes = size_of_val(&found[..]);
    let mut pages = inspect::FacetPages::new(found, format);
    let mut first = Vec::new();
    pages.next(&mut first).await?;
    Ok(json_reply(StatusCode::OK, stream_pages(permit, first, pages, bytes)?))
}

/// Draws points at random.
pub async fn sample(permit: &Permit, collection: String, mut body: BodyReader) -> Result<Reply, ApiError> {
    let (body, now_ms) = (json_body(&mut body).await?, permit.unix_ms());
    let decode = move |body: &[u8]| inspect::decode_sample(collection, body, now_ms);
    let request = decode_body(permit, body, decode).await?;
    let (collection, filter) = (request.collection.clone(), request.filter.clone());
    let ids = permit.run(request).await?;
    scroll::documents(permit, collection, filter, ids).await
}
