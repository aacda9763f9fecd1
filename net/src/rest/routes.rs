//! Paths and methods.

use crate::request::{Action, ApiError, check_name};
use crate::rest::lanes::LaneRoute;
use crate::rest::parameters::{CONDITIONS, POINT_OPTIONS, PROJECTION, READ_OPTIONS, WRITE_OPTIONS};
use http::Method;
use percent_encoding::percent_decode_str;
use std::borrow::Cow;

/// A route of the interface, with what its path names.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Route<'p> {
    /// `GET /v1/health`.
    Health,
    /// `GET /v1/ready`.
    Ready,
    /// `GET /v1/replication`.
    Replication,
    /// `GET /v1/openapi.json`.
    OpenApi,
    /// `GET /metrics`, `GET /v1/metrics`.
    Metrics,
    /// `GET /kv-metrics`, `GET /v1/kv-metrics`.
    KvMetrics,
    /// `POST /v1/collections`.
    Create,
    /// `GET /v1/tasks`.
    Tasks,
    /// `GET /v1/collections`.
    List,
    /// `GET /v1/collections/{name}`.
    Info(Cow<'p, str>),
    /// `DELETE /v1/collections/{name}`.
    Drop(Cow<'p, str>),
    /// `POST /v1/collections/{name}/query`.
    Query(Cow<'p, str>),
    /// `POST /v1/aliases`.
    CreateAlias,
    /// `GET /v1/aliases`.
    ListAliases,
    /// `POST /v1/aliases/batch`.
    ChangeAliases,
    /// `DELETE /v1/aliases/{alias}`.
    DeleteAlias(Cow<'p, str>),
    /// A `POST` that moves or splits a collection.
    Manage(Cow<'p, str>, ManageRoute),
    /// `POST /v1/admin/backup`.
    Backup,
    /// `GET /v1/admin/backups`.
    ListBackups,
    /// `POST /v1/admin/keys`.
    AddKey,
    /// `GET /v1/admin/keys`.
    ListKeys,
    /// `DELETE /v1/admin/keys`; the key is in the body.
    RevokeKey,
    /// A route under `/v1/collections/{name}/points`.
    Points(Cow<'p, str>, PointsRoute<'p>),
}

/// What is to become of a whole collection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ManageRoute {
    /// `…/evict`.
    Evict,
    /// `…/restore`.
    Restore,
    /// `…/resplit`.
    Resplit,
    /// `…/resplit/cleanup`.
    CleanUpResplit,
    /// `…/reshard`.
    Reshard,
    /// `…/reshard/abort`.
    AbortReshard,
}

/// What follows `points`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PointsRoute<'p> {
    /// `POST …`.
    Write,
    /// `POST …/batch`.
    Batch,
    /// `POST …/bulk`.
    Stage,
    /// `POST …/bulk/build`.
    Build,
    /// `POST …/batch-get`.
    BatchGet,
    /// `POST …/delete`.
    DeleteByFilter,
    /// `POST …/scroll`.
    Scroll,
    /// `POST …/count`.
    Count,
    /// `POST …/facet`.
    Facet,
    /// `POST …/sample`.
    Sample,
    /// `POST …/search`.
    Search,
    /// `POST …/search/docs`.
    SearchDocs,
    /// `POST …/search/…` by lanes.
    Lanes(LaneRoute),
    /// `GET …/{id}`.
    Get(Cow<'p, str>),
    /// `DELETE …/{id}`.
    Delete(Cow<'p, str>),
    /// Under `…/{id}/payload`.
    Payload(Cow<'p, str>, PayloadRoute),
}

/// What is to become of a payload.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PayloadRoute {
    /// `POST …/payload`.
    Merge,
    /// `POST …/payload/overwrite`, `PUT …/payload`.
    Overwrite,
    /// `POST …/payload/delete`.
    Delete,
    /// `POST …/payload/clear`.
    Clear,
}

/// Where a request goes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Resolved<'p> {
    /// To a route.
    Route(Route<'p>),
    /// The path exists under these methods only.
    WrongMethod(&'static str),
    /// Nowhere.
    NotFound,
}

impl Route<'_> {
    /// The right the route needs and the collection it is about; `None` = everyone may.
    pub fn action(&self) -> Option<(Action, &str)> {
        match self {
            Route::Health | Route::Ready | Route::Replication | Route::OpenApi => None,
            Route::Metrics | Route::KvMetrics | Route::Tasks | Route::List => Some((Action::Read, "")),
            Route::Info(name) => Some((Action::Read, name)),
            Route::Create
            | Route::CreateAlias
            | Route::ListAliases
            | Route::ChangeAliases
            | Route::DeleteAlias(_)
            | Route::Backup
            | Route::ListBackups
            | Route::AddKey
            | Route::ListKeys
            | Route::RevokeKey => Some((Action::Admin, "")),
            Route::Drop(name) | Route::Manage(name, _) => Some((Action::Admin, name)),
            Route::Query(name) => Some((Action::Read, name)),
            Route::Points(name, route) => Some((route.action(), name)),
        }
    }
}

impl Route<'_> {
    /// The query parameters that it takes; any other is refused.
    pub fn parameters(&self) -> &'static [&'static str] {
        match self {
            Route::ListAliases => &["collection"],
            Route::Query(_) => READ_OPTIONS,
            Route::Points(_, route) => route.parameters(),
            Route::Health
            | Route::Ready
            | Route::Replication
            | Route::OpenApi
            | Route::Metrics
            | Route::KvMetrics
            | Route::Create
            | Route::Tasks
            | Route::List
            | Route::Info(_)
            | Route::Drop(_)
            | Route::CreateAlias
            | Route::ChangeAliases
            | Route::DeleteAlias(_)
            | Route::Manage(..)
            | Route::Backup
            | Route::ListBackups
            | Route::AddKey
            | Route::ListKeys
            | Route::RevokeKey => &[],
        }
    }
}

impl PointsRoute<'_> {
    fn parameters(&self) -> &'static [&'static str] {
        match self {
            PointsRoute::Write | PointsRoute::Delete(_) | PointsRoute::Payload(..) => CONDITIONS,
            // Many points have no version in common.
            PointsRoute::DeleteByFilter | PointsRoute::Batch | PointsRoute::Stage => WRITE_OPTIONS,
            PointsRoute::Build => &["workers", "wait"],
            PointsRoute::BatchGet => PROJECTION,
            PointsRoute::Get(_) => POINT_OPTIONS,
            PointsRoute::Scroll | PointsRoute::Search | PointsRoute::SearchDocs | PointsRoute::Lanes(_) => {
                READ_OPTIONS
            }
            PointsRoute::Count | PointsRoute::Facet | PointsRoute::Sample => &[],
        }
    }

    fn action(&self) -> Action {
        match self {
            PointsRoute::Write
            | PointsRoute::Batch
            | PointsRoute::Stage
            | PointsRoute::Build
            | PointsRoute::DeleteByFilter
            | PointsRoute::Delete(_)
            | PointsRoute::Payload(..) => Action::Write,
            PointsRoute::BatchGet
            | PointsRoute::Scroll
            | PointsRoute::Count
            | PointsRoute::Facet
            | PointsRoute::Sample
            | PointsRoute::Search
            | PointsRoute::SearchDocs
            | PointsRoute::Lanes(_)
            | PointsRoute::Get(_) => Action::Read,
        }
    }
}

/// Finds the route of a path. Segments are decoded after splitting, so an encoded slash stays inside its segment.
///
/// # Errors
/// Escapes that are not text, or a collection name that is too long.
pub fn resolve<'p>(method: &Method, path: &'p str) -> Result<Resolved<'p>, ApiError> {
    // The longest path of the interface has seven segments; one more tells that a path is none of them.
    let mut segments: [Cow<'p, str>; 8] = Default::default();
    let mut count = 0;
    for segment in path.strip_prefix('/').unwrap_or(path).split('/') {
        if count == segments.len() {
            return Ok(Resolved::NotFound);
        }
        segments[count] = decode_segment(segment)?;
        count += 1;
    }
    let read = *method == Method::GET || *method == Method::HEAD;
    let post = *method == Method::POST;
    let delete = *method == Method::DELETE;
    let when = |allowed: bool, route: Route<'p>, allow: &'static str| {
        if allowed { Resolved::Route(route) } else { Resolved::WrongMethod(allow) }
    };
    let names: Vec<&str> = segments[..count].iter().map(AsRef::as_ref).collect();
    Ok(match names.as_slice() {
        ["metrics"] | ["v1", "metrics"] => when(read, Route::Metrics, "GET, HEAD"),
        ["kv-metrics"] | ["v1", "kv-metrics"] => when(read, Route::KvMetrics, "GET, HEAD"),
        ["v1", "health"] => when(read, Route::Health, "GET, HEAD"),
        ["v1", "ready"] => when(read, Route::Ready, "GET, HEAD"),
        ["v1", "replication"] => when(read, Route::Replication, "GET, HEAD"),
        ["v1", "openapi.json"] => when(read, Route::OpenApi, "GET, HEAD"),
        ["v1", "tasks"] => when(read, Route::Tasks, "GET, HEAD"),
        ["v1", "collections"] if post => Resolved::Route(Route::Create),
        ["v1", "collections"] => when(read, Route::List, "GET, HEAD, POST"),
        ["v1", "aliases"] if post => Resolved::Route(Route::CreateAlias),
        ["v1", "aliases"] => when(read, Route::ListAliases, "GET, HEAD, POST"),
        ["v1", "aliases", "batch"] if post => Resolved::Route(Route::ChangeAliases),
        ["v1", "aliases", alias] if !alias.is_empty() => {
            check_name(alias)?;
            let allow = if *alias == "batch" { "DELETE, POST" } else { "DELETE" };
            let alias = std::mem::take(&mut segments[2]);
            when(delete, Route::DeleteAlias(alias), allow)
        }
        ["v1", "admin", "backup"] => when(post, Route::Backup, "POST"),
        ["v1", "admin", "backups"] => when(read, Route::ListBackups, "GET, HEAD"),
        ["v1", "admin", "keys"] if post => Resolved::Route(Route::AddKey),
        ["v1", "admin", "keys"] if delete => Resolved::Route(Route::RevokeKey),
        ["v1", "admin", "keys"] => when(read, Route::ListKeys, "DELETE, GET, HEAD, POST"),
        ["v1", "collections", name] if !name.is_empty() => {
            check_name(name)?;
            let name = std::mem::take(&mut segments[2]);
            if read {
                return Ok(Resolved::Route(Route::Info(name)));
            }
            when(delete, Route::Drop(name), "DELETE, GET, HEAD")
        }
        ["v1", "collections", name, "points", id, "payload", rest @ ..]
            if !name.is_empty() && !id.is_empty() =>
        {
            let (route, allow) = match rest {
                [] if *method == Method::PUT => (PayloadRoute::Overwrite, "POST, PUT"),
                [] => (PayloadRoute::Merge, "POST, PUT"),
                ["overwrite"] => (PayloadRoute::Overwrite, "POST"),
                ["delete"] => (PayloadRoute::Delete, "POST"),
                ["clear"] => (PayloadRoute::Clear, "POST"),
                _ => return Ok(Resolved::NotFound),
            };
            check_name(name)?;
            let allowed = post || (rest.is_empty() && *method == Method::PUT);
            let (name, id) = (std::mem::take(&mut segments[2]), std::mem::take(&mut segments[4]));
            when(allowed, Route::Points(name, PointsRoute::Payload(id, route)), allow)
        }
        ["v1", "collections", name, "query"] if !name.is_empty() => {
            check_name(name)?;
            let name = std::mem::take(&mut segments[2]);
            when(post, Route::Query(name), "POST")
        }
        ["v1", "collections", name, rest @ ..] if !name.is_empty() && manage_route(rest).is_some() => {
            let Some(route) = manage_route(rest) else { return Ok(Resolved::NotFound) };
            check_name(name)?;
            let name = std::mem::take(&mut segments[2]);
            when(post, Route::Manage(name, route), "POST")
        }
        ["v1", "collections", name, "points", rest @ ..] if !name.is_empty() => {
            let literal = match rest {
                [] => Some(PointsRoute::Write),
                ["batch"] => Some(PointsRoute::Batch),
                ["bulk"] => Some(PointsRoute::Stage),
                ["bulk", "build"] => Some(PointsRoute::Build),
                ["batch-get"] => Some(PointsRoute::BatchGet),
                ["delete"] => Some(PointsRoute::DeleteByFilter),
                ["scroll"] => Some(PointsRoute::Scroll),
                ["count"] => Some(PointsRoute::Count),
                ["facet"] => Some(PointsRoute::Facet),
                ["sample"] => Some(PointsRoute::Sample),
                ["search"] => Some(PointsRoute::Search),
                ["search", "docs"] => Some(PointsRoute::SearchDocs),
                ["search", "hybrid"] => Some(PointsRoute::Lanes(LaneRoute::Hybrid)),
                ["search", "text"] => Some(PointsRoute::Lanes(LaneRoute::Text)),
                ["search", "hybrid-text"] => Some(PointsRoute::Lanes(LaneRoute::HybridText)),
                ["search", "groups"] => Some(PointsRoute::Lanes(LaneRoute::Groups)),
                ["search", "mmr"] => Some(PointsRoute::Lanes(LaneRoute::Mmr)),
                _ => None,
            };
            // `…/points/batch` is also the point whose id is "batch", for the methods that take ids.
            let is_id = matches!(rest, [id] if !id.is_empty());
            // A word that is neither a route nor an id: there is nothing here that another method would find. Only GET and DELETE
            // go on, so as to name the id that they were given.
            let is_word = literal.is_none() && rest.first().is_some_and(|id| parse_id(id).is_err());
            if (literal.is_none() && !is_id) || (is_word && !read && !delete) {
                return Ok(Resolved::NotFound);
            }
            check_name(name)?;
            let name = std::mem::take(&mut segments[2]);
            let id = std::mem::take(&mut segments[4]);
            match literal {
                Some(route) if post => Resolved::Route(Route::Points(name, route)),
                _ if is_id && read => Resolved::Route(Route::Points(name, PointsRoute::Get(id))),
                _ if is_id && delete => Resolved::Route(Route::Points(name, PointsRoute::Delete(id))),
                Some(_) if is_id => Resolved::WrongMethod("DELETE, GET, HEAD, POST"),
                Some(_) => Resolved::WrongMethod("POST"),
                None => Resolved::WrongMethod("DELETE, GET, HEAD"),
            }
        }
        _ => Resolved::NotFound,
    })
}

/// What follows the name of a collection on the routes about it as a whole.
fn manage_route(rest: &[&str]) -> Option<ManageRoute> {
    Some(match rest {
        ["evict"] => ManageRoute::Evict,
        ["restore"] => ManageRoute::Restore,
        ["resplit"] => ManageRoute::Resplit,
        ["resplit", "cleanup"] => ManageRoute::CleanUpResplit,
        ["reshard"] => ManageRoute::Reshard,
        ["reshard", "abort"] => ManageRoute::AbortReshard,
        _ => return None,
    })
}

fn decode_segment(segment: &str) -> Result<Cow<'_, str>, ApiError> {
    let bytes = segment.as_bytes();
    for (at, byte) in bytes.iter().enumerate() {
        if *byte == b'%' && !(bytes.len() > at + 2 && bytes[at + 1..at + 3].iter().all(u8::is_ascii_hexdigit))
        {
            return Err(ApiError::invalid(format!("invalid path: {segment:?} holds a malformed escape")));
        }
    }
    percent_decode_str(segment)
        .decode_utf8()
        .map_err(|_| ApiError::invalid(format!("invalid path: {segment:?} is not UTF-8 once decoded")))
}

/// A point id of a path: decimal digits only.
///
/// # Errors
/// `invalid id: …`.
pub fn parse_id(text: &str) -> Result<u64, ApiError> {
    let digits = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    match text.parse() {
        Ok(id) if digits => Ok(id),
        _ => Err(ApiError::invalid(format!("invalid id: {text:?}"))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(method: &str, path: &str) -> Resolved<'static> {
        resolve(&method.parse().unwrap(), path.to_owned().leak()).unwrap()
    }

    fn points(route: PointsRoute<'static>) -> Resolved<'static> {
        Resolved::Route(Route::Points("docs".into(), route))
    }

    #[test]
    fn every_route() {
        for (method, path, route) in [
            ("GET", "/v1/health", Route::Health),
            ("HEAD", "/v1/health", Route::Health),
            ("GET", "/v1/ready", Route::Ready),
            ("GET", "/v1/replication", Route::Replication),
            ("GET", "/v1/openapi.json", Route::OpenApi),
            ("GET", "/metrics", Route::Metrics),
            ("GET", "/v1/metrics", Route::Metrics),
            ("GET", "/kv-metrics", Route::KvMetrics),
            ("GET", "/v1/kv-metrics", Route::KvMetrics),
            ("POST", "/v1/collections", Route::Create),
            ("POST", "/v1/collections/acme%2Fdocs/query", Route::Query("acme/docs".into())),
            ("GET", "/v1/tasks", Route::Tasks),
            ("GET", "/v1/collections", Route::List),
            ("HEAD", "/v1/collections/docs", Route::Info("docs".into())),
            ("DELETE", "/v1/collections/acme%2Fdocs", Route::Drop("acme/docs".into())),
            ("POST", "/v1/aliases", Route::CreateAlias),
            ("GET", "/v1/aliases", Route::ListAliases),
            ("POST", "/v1/aliases/batch", Route::ChangeAliases),
            ("DELETE", "/v1/aliases/batch", Route::DeleteAlias("batch".into())),
            ("DELETE", "/v1/aliases/acme%2Flive", Route::DeleteAlias("acme/live".into())),
            ("POST", "/v1/collections/docs/evict", Route::Manage("docs".into(), ManageRoute::Evict)),
            ("POST", "/v1/collections/docs/restore", Route::Manage("docs".into(), ManageRoute::Restore)),
            ("POST", "/v1/collections/docs/resplit", Route::Manage("docs".into(), ManageRoute::Resplit)),
            (
                "POST",
                "/v1/collections/docs/resplit/cleanup",
                Route::Manage("docs".into(), ManageRoute::CleanUpResplit),
            ),
            ("POST", "/v1/collections/docs/reshard", Route::Manage("docs".into(), ManageRoute::Reshard)),
            (
                "POST",
                "/v1/collections/docs/reshard/abort",
                Route::Manage("docs".into(), ManageRoute::AbortReshard),
            ),
            ("POST", "/v1/admin/backup", Route::Backup),
            ("GET", "/v1/admin/backups", Route::ListBackups),
            ("POST", "/v1/admin/keys", Route::AddKey),
            ("HEAD", "/v1/admin/keys", Route::ListKeys),
            ("DELETE", "/v1/admin/keys", Route::RevokeKey),
        ] {
            assert_eq!(at(method, path), Resolved::Route(route), "{method} {path}");
        }
        for (method, rest, route) in [
            ("POST", "", PointsRoute::Write),
            ("POST", "/batch", PointsRoute::Batch),
            ("POST", "/bulk", PointsRoute::Stage),
            ("POST", "/bulk/build", PointsRoute::Build),
            ("POST", "/batch-get", PointsRoute::BatchGet),
            ("POST", "/delete", PointsRoute::DeleteByFilter),
            ("POST", "/scroll", PointsRoute::Scroll),
            ("POST", "/count", PointsRoute::Count),
            ("POST", "/facet", PointsRoute::Facet),
            ("POST", "/sample", PointsRoute::Sample),
            ("POST", "/search", PointsRoute::Search),
            ("POST", "/search/docs", PointsRoute::SearchDocs),
            ("POST", "/search/hybrid", PointsRoute::Lanes(LaneRoute::Hybrid)),
            ("POST", "/search/text", PointsRoute::Lanes(LaneRoute::Text)),
            ("POST", "/search/hybrid-text", PointsRoute::Lanes(LaneRoute::HybridText)),
            ("POST", "/search/groups", PointsRoute::Lanes(LaneRoute::Groups)),
            ("POST", "/search/mmr", PointsRoute::Lanes(LaneRoute::Mmr)),
            ("GET", "/7", PointsRoute::Get("7".into())),
            ("HEAD", "/7", PointsRoute::Get("7".into())),
            ("GET", "/batch", PointsRoute::Get("batch".into())),
            ("DELETE", "/%37", PointsRoute::Delete("7".into())),
            ("POST", "/7/payload", PointsRoute::Payload("7".into(), PayloadRoute::Merge)),
            ("PUT", "/7/payload", PointsRoute::Payload("7".into(), PayloadRoute::Overwrite)),
            ("POST", "/7/payload/overwrite", PointsRoute::Payload("7".into(), PayloadRoute::Overwrite)),
            ("POST", "/7/payload/delete", PointsRoute::Payload("7".into(), PayloadRoute::Delete)),
            ("POST", "/7/payload/clear", PointsRoute::Payload("7".into(), PayloadRoute::Clear)),
        ] {
            let path = format!("/v1/collections/docs/points{rest}");
            assert_eq!(at(method, &path), points(route), "{method} {path}");
        }
    }

    #[test]
    fn wrong_methods_name_the_right_ones() {
        for (method, path, allow) in [
            ("POST", "/v1/health", "GET, HEAD"),
            ("OPTIONS", "/v1/collections", "GET, HEAD, POST"),
            ("POST", "/v1/collections/docs", "DELETE, GET, HEAD"),
            ("GET", "/v1/collections/docs/points", "POST"),
            ("GET", "/v1/collections/docs/query", "POST"),
            ("GET", "/v1/collections/docs/points/search/text", "POST"),
            ("PUT", "/v1/collections/docs/points/search", "DELETE, GET, HEAD, POST"),
            ("PUT", "/v1/collections/docs/points/search/docs", "POST"),
            ("POST", "/v1/collections/docs/points/7", "DELETE, GET, HEAD"),
            ("PATCH", "/v1/collections/docs/points/18446744073709551615", "DELETE, GET, HEAD"),
            ("GET", "/v1/collections/docs/points/7/payload", "POST, PUT"),
            ("PUT", "/v1/collections/docs/points/7/payload/clear", "POST"),
            ("GET", "/v1/collections/docs/reshard/abort", "POST"),
            ("PUT", "/v1/admin/keys", "DELETE, GET, HEAD, POST"),
            ("GET", "/v1/admin/backup", "POST"),
            ("POST", "/v1/admin/backups", "GET, HEAD"),
        ] {
            assert_eq!(at(method, path), Resolved::WrongMethod(allow), "{method} {path}");
        }
    }

    #[test]
    fn paths_that_lead_nowhere() {
        for path in [
            "/",
            "",
            "/v1",
            "/v1/",
            "/v1/health/",
            "/v2/health",
            "/v1/collections/",
            "/v1/collections//points",
            "/v1/collections/docs/",
            "/v1/collections/docs/points/",
            "/v1/collections/docs/points/7/8/9/10",
            "/v1/collections/docs/points/7/payload/none",
            "/v1/collections/docs/points/7/payload/clear/all",
            "/v1/collections/docs/points//payload",
            "/v1/collections/docs/points/bulk/",
            "/V1/health",
            "/v1/collections/docs/point",
            "/v1/collections/docs/evict/all",
            "/v1/collections//evict",
            "/v1/admin",
            "//v1/health",
        ] {
            assert_eq!(at("GET", path), Resolved::NotFound, "{path}");
        }
    }

    /// They were 405 with the methods of a point whose id is that word.
    #[test]
    fn a_word_that_is_no_route_leads_nowhere() {
        for method in ["POST", "PUT", "PATCH", "OPTIONS"] {
            for word in ["recommend", "discover", "upsert", "18446744073709551616", "-1"] {
                let path = format!("/v1/collections/docs/points/{word}");
                assert_eq!(at(method, &path), Resolved::NotFound, "{method} {path}");
            }
        }
        let named = points(PointsRoute::Get("recommend".into()));
        assert_eq!(at("GET", "/v1/collections/docs/points/recommend"), named);
    }

    #[test]
    fn long_names_and_bad_escapes() {
        let path = |length: usize| format!("/v1/collections/{}/points", "x".repeat(length));
        assert!(resolve(&Method::POST, &path(247)).is_ok());
        let error = resolve(&Method::POST, &path(248)).unwrap_err();
        assert!(error.message.contains("collection name too long"), "{error}");
        for bad in ["/v1/collections/%/points", "/v1/collections/%4/points", "/v1/collections/%ff/points"] {
            assert!(resolve(&Method::POST, bad).unwrap_err().message.contains("invalid path"), "{bad}");
        }
    }

    #[test]
    fn ids_are_plain_decimal() {
        assert_eq!(parse_id("0"), Ok(0));
        assert_eq!(parse_id("18446744073709551615"), Ok(u64::MAX));
        for bad in ["", "-1", "+1", "1.0", "1e3", "0x1", "18446744073709551616", "abc", " 1"] {
            assert!(parse_id(bad).unwrap_err().message.starts_with("invalid id:"), "{bad}");
        }
    }
}
