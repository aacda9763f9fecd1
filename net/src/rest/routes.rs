//! Paths and methods to rows of the [table](crate::op::table).

use crate::door::Permit;
use crate::op::table::{RestRoute, Row, TABLE, Verb};
use crate::op::{Action, ApiError, Op, ProcessOp, SentId, check_name};
use crate::rest::parameters::Query;
use http::Method;
use matchit::Router;
use nigh_engine::point_id::IdKind;
use nigh_engine::quoted::quoted;
use percent_encoding::percent_decode_str;
use std::borrow::Cow;
use std::collections::BTreeSet;
use std::sync::LazyLock;

/// A route that a request has reached, with what its path names.
#[derive(Clone, Debug)]
pub struct Reached<'p> {
    /// The operation.
    pub row: &'static Row,
    /// How REST calls it.
    pub route: &'static RestRoute,
    /// The name of the collection, empty when the route has none.
    pub collection: Cow<'p, str>,
    /// The alias, empty when the route has none.
    pub alias: Cow<'p, str>,
    /// The id of the point as it was sent, empty when the route has none.
    pub id: Cow<'p, str>,
    /// The name of the vector space as it was sent, empty when the route has none.
    pub space: Cow<'p, str>,
}

impl Reached<'_> {
    /// The right that the request needs on its collection; `None` when everybody may.
    pub fn right(&self) -> Option<Action> {
        self.row.right_of(self.route)
    }

    /// What the right is needed on, as sent, unless the body names it: a collection, an alias, or nothing, which stands for the node as a whole.
    pub fn resource(&self, query: Query<'_>) -> Cow<'_, str> {
        match self.row.op {
            Op::Process(ProcessOp::AliasDelete) => Cow::Borrowed(&self.alias),
            Op::Process(ProcessOp::AliasList) => query.get("collection").unwrap_or_default().into(),
            _ => Cow::Borrowed(&self.collection),
        }
    }
}

/// Where a request goes.
#[derive(Clone, Debug)]
pub enum Resolved<'p> {
    /// To a route.
    Route(Reached<'p>),
    /// The path exists under these methods only.
    WrongMethod(String),
    /// Nowhere.
    NotFound,
}

/// The routes of one path: those whose path it is, then those with an id or an alias where this path has a word of its own.
type Routes = Vec<(&'static Row, &'static RestRoute)>;

/// Every path of the table.
static ROUTER: LazyLock<Router<Routes>> = LazyLock::new(|| {
    let all = || TABLE.iter().flat_map(|row| row.routes().map(move |route| (row, route)));
    let paths: BTreeSet<&str> = all().map(|(_, route)| route.path).collect();
    let mut router = Router::new();
    for path in paths {
        let own = all().filter(|(_, route)| route.path == path);
        let wider = all().filter(|(_, route)| route.path != path && includes(route.path, path));
        let routes: Routes = own.chain(wider).collect();
        // A fault of the table, which every test of a route finds.
        router.insert(path, routes).unwrap_or_else(|error| panic!("the path {path}: {error}"));
    }
    router
});

/// Whether every path of the form `narrow` is one of the form `wide` as well.
fn includes(wide: &str, narrow: &str) -> bool {
    wide.split('/').count() == narrow.split('/').count()
        && wide
            .split('/')
            .zip(narrow.split('/'))
            .all(|(wide, narrow)| wide.starts_with('{') || wide == narrow)
}

/// Finds the route of a path. Segments are decoded after splitting, so an encoded slash stays inside its segment.
///
/// # Errors
/// Escapes that are not text, or a collection name that is too long.
pub fn resolve<'p>(method: &Method, path: &'p str) -> Result<Resolved<'p>, ApiError> {
    let normal = normalized(path)?;
    let Ok(found) = ROUTER.at(&normal) else { return Ok(Resolved::NotFound) };
    let routes = found.value;
    let asked = if *method == Method::HEAD { "GET" } else { method.as_str() };
    let Some(&(row, route)) = routes.iter().find(|(_, route)| route.method.name() == asked) else {
        return wrong_method(routes, path);
    };
    let part = |name| part(path, route.path, name);
    let (collection, alias) = (part("{name}")?, part("{alias}")?);
    let (id, space) = (part("{id}")?, part("{space}")?);
    check_name(&collection)?;
    check_name(&alias)?;
    Ok(Resolved::Route(Reached { row, route, collection, alias, id, space }))
}

/// What is said of a path that has no such method.
fn wrong_method<'p>(routes: &Routes, path: &'p str) -> Result<Resolved<'p>, ApiError> {
    // A word that is neither a route nor an id: there is nothing here that another method would find.
    if routes.iter().all(|(_, route)| route.path.ends_with("{id}")) {
        let id = part(path, routes[0].1.path, "{id}")?;
        if parse_id(&id).is_err() {
            return Ok(Resolved::NotFound);
        }
    }
    for (_, route) in routes {
        check_name(&part(path, route.path, "{name}")?)?;
    }
    let mut methods: BTreeSet<&str> = routes.iter().map(|(_, route)| route.method.name()).collect();
    if methods.contains(Verb::Get.name()) {
        methods.insert("HEAD");
    }
    Ok(Resolved::WrongMethod(methods.into_iter().collect::<Vec<_>>().join(", ")))
}

/// The decoded segment of `path` that stands where `form` has `name`; empty where it has none.
fn part<'p>(path: &'p str, form: &str, name: &str) -> Result<Cow<'p, str>, ApiError> {
    match form.split('/').position(|segment| segment == name).and_then(|at| path.split('/').nth(at)) {
        Some(segment) => decode_segment(segment),
        None => Ok("".into()),
    }
}

/// A path whose segments are decoded, all but slashes and percent signs within one.
fn normalized(path: &str) -> Result<Cow<'_, str>, ApiError> {
    if !path.contains('%') {
        return Ok(path.into());
    }
    let segments: Result<Vec<String>, ApiError> = path
        .split('/')
        .map(|segment| Ok(decode_segment(segment)?.replace('%', "%25").replace('/', "%2F")))
        .collect();
    Ok(segments?.join("/").into())
}

fn decode_segment(segment: &str) -> Result<Cow<'_, str>, ApiError> {
    let bytes = segment.as_bytes();
    for (at, byte) in bytes.iter().enumerate() {
        if *byte == b'%' && !(bytes.len() > at + 2 && bytes[at + 1..at + 3].iter().all(u8::is_ascii_hexdigit))
        {
            return Err(ApiError::invalid(format!(
                "invalid path: {} holds a malformed escape",
                quoted(segment)
            )));
        }
    }
    percent_decode_str(segment).decode_utf8().map_err(|_| {
        ApiError::invalid(format!("invalid path: {} is not UTF-8 once decoded", quoted(segment)))
    })
}

/// The id of a point that a path names, as the collection names its points.
///
/// # Errors
/// `invalid id: …` for what names no point; 404 if there is no such collection.
pub fn point_id(permit: &Permit, collection: &str, text: &str) -> Result<SentId, ApiError> {
    match permit.ids(collection) {
        IdKind::Number => parse_id(text).map(SentId::integer).or_else(|error| {
            // Where there is no such collection, nobody knows what its ids are.
            permit.expect(collection)?;
            Err(error)
        }),
        IdKind::String => {
            SentId::string(text).map_err(|error| ApiError::invalid(format!("invalid id: {error}")))
        }
    }
}

/// A point id of a path: decimal digits only.
///
/// # Errors
/// `invalid id: …`.
pub fn parse_id(text: &str) -> Result<u64, ApiError> {
    let digits = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    match text.parse() {
        Ok(id) if digits => Ok(id),
        _ => Err(ApiError::invalid(format!("invalid id: {}", quoted(text)))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(method: &str, path: &str) -> Resolved<'static> {
        resolve(&method.parse().unwrap(), path.to_owned().leak()).unwrap()
    }

    /// The operation, and what the path names; a space in the place of an id.
    fn reached(method: &str, path: &str) -> (&'static str, String, String, String) {
        match at(method, path) {
            Resolved::Route(Reached { row, collection, alias, id, space, .. }) => {
                let id = if id.is_empty() { space } else { id };
                (row.name, collection.into_owned(), alias.into_owned(), id.into_owned())
            }
            other => panic!("{method} {path}: {other:?}"),
        }
    }

    fn leads_nowhere(method: &str, path: &str) -> bool {
        matches!(at(method, path), Resolved::NotFound)
    }

    /// Every route of the table is reached by a path of its form, with what stands where it names something.
    #[test]
    fn every_route() {
        for row in TABLE {
            for route in row.routes() {
                let path = route.path.replace("{name}", "docs").replace("{alias}", "live");
                let path = path.replace("{id}", "7").replace("{space}", "title");
                let named = |name, value: &str| {
                    if route.path.contains(name) { value.to_owned() } else { String::new() }
                };
                let id = named("{id}", "7") + &named("{space}", "title");
                let expected = (row.name, named("{name}", "docs"), named("{alias}", "live"), id);
                assert_eq!(reached(route.method.name(), &path), expected, "{path}");
                if route.method == Verb::Get {
                    assert_eq!(reached("HEAD", &path), expected, "{path}");
                }
            }
        }
    }

    #[test]
    fn words_in_the_place_of_ids_and_encoded_names() {
        let points = "/v1/collections/acme%2Fdocs/points";
        let none = String::new;
        for (method, path, name, alias, id) in [
            ("POST", "/v1/collections/acme%2Fdocs/query", "vector_query", "", ""),
            ("POST", &format!("{points}/batch"), "vector_write_batch", "", ""),
            ("GET", &format!("{points}/batch"), "vector_get", "", "batch"),
            ("DELETE", &format!("{points}/%37"), "vector_delete", "", "7"),
            ("DELETE", "/v1/named/acme%2Fdocs/spaces/a%20b", "vector_named_drop_space", "", "a b"),
            ("PUT", &format!("{points}/7/payload"), "vector_overwrite_payload", "", "7"),
            ("POST", &format!("{points}/7/payl%6Fad"), "vector_set_payload", "", "7"),
        ] {
            let expected = (name, "acme/docs".to_owned(), alias.to_owned(), id.to_owned());
            assert_eq!(reached(method, path), expected, "{method} {path}");
        }
        for (path, alias) in [("/v1/aliases/batch", "batch"), ("/v1/aliases/acme%2Flive%25", "acme/live%")] {
            assert_eq!(reached("DELETE", path), ("alias_delete", none(), alias.to_owned(), none()), "{path}");
        }
        assert_eq!(reached("POST", "/v1/aliases/batch").0, "alias_batch");
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
            let Resolved::WrongMethod(methods) = at(method, path) else { panic!("{method} {path}") };
            assert_eq!(methods, allow, "{method} {path}");
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
            assert!(leads_nowhere("GET", path), "{path}");
        }
    }

    /// They were 405 with the methods of a point whose id is that word.
    #[test]
    fn a_word_that_is_no_route_leads_nowhere() {
        for method in ["POST", "PUT", "PATCH", "OPTIONS"] {
            for word in ["recommend", "discover", "upsert", "18446744073709551616", "-1"] {
                let path = format!("/v1/collections/docs/points/{word}");
                assert!(leads_nowhere(method, &path), "{method} {path}");
            }
        }
        let (name, _, _, id) = reached("GET", "/v1/collections/docs/points/recommend");
        assert_eq!((name, id.as_str()), ("vector_get", "recommend"));
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
