//! Requests that name one collection in the place where their operation names what its right is needed on.
use nigh_net::op::table::{CollectionAt, GrpcMethod, GrpcScope, RestRoute};

/// The path and the body of a request to a route of REST, and whether it names the collection.
pub fn over_rest(route: &RestRoute, collection: &str) -> (String, String, bool) {
    let escaped = collection.replace('/', "%2F");
    let path = route.path.replace("{name}", &escaped).replace("{alias}", &escaped);
    let path = path.replace("{id}", "7").replace("{space}", "title");
    let body = match route.path {
        // There is no configuration, so nothing is created.
        "/v1/collections" => format!(r#"{{"name": "{collection}"}}"#),
        "/v1/aliases" => format!(r#"{{"alias": "{collection}", "collection": "{collection}"}}"#),
        "/v1/aliases/batch" => format!(r#"{{"actions": [{{"delete": {{"alias": "{collection}"}}}}]}}"#),
        _ => {
            assert!(!route.is_named_in_body, "{} has no body here", route.path);
            "{}".to_owned()
        }
    };
    (path, body, route.path.contains('{') || route.is_named_in_body)
}

/// The message of a call, and whether it names the collection.
pub fn over_grpc(method: &GrpcMethod, collection: &str) -> (Vec<u8>, bool) {
    let field = |number: u8, bytes: &[u8]| [&[number << 3 | 2, bytes.len() as u8], bytes].concat();
    let name = |number| field(number, collection.as_bytes());
    match (method.on, method.name) {
        (GrpcScope::Open | GrpcScope::Node, _) => (Vec::new(), false),
        (GrpcScope::Collection, _) => (name(1), true),
        (GrpcScope::Names, "CreateAlias") => ([name(1), name(2)].concat(), true),
        (GrpcScope::Names, "AliasBatch") => (field(1, &[name(1), name(2)].concat()), true),
        (GrpcScope::Names, other) => panic!("{other} has no message here"),
    }
}

/// The arguments of an operation of the binary protocol, and whether they name the collection.
pub fn over_binary(at: CollectionAt, collection: &str) -> (Vec<u8>, bool) {
    let short = [&[collection.len() as u8], collection.as_bytes()].concat();
    let long = [&[0], &short[..]].concat();
    match at {
        CollectionAt::Nowhere => (Vec::new(), false),
        CollectionAt::First => (short, true),
        CollectionAt::AfterFlags => ([&[0], &short[..]].concat(), true),
        CollectionAt::FirstLong => (long, true),
        CollectionAt::Aliases => ([&[0, 0, 0, 1], &long[..], &long, &[0]].concat(), true),
    }
}
