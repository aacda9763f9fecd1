//! The document beside the router and the decoders: nothing may be in one of them alone.

use super::document::{operations, schemas};
use super::values::filter_operators;
use crate::rest::json::SparseBody;
use crate::rest::lanes::LaneRoute;
use crate::rest::routes::{ManageRoute, PayloadRoute, PointsRoute, Resolved, Route, resolve};
use crate::rest::{aliases, collections, inspect, lane_bodies, manage, order, points, read, search};
use http::Method;
use nigh_engine::filter::operator_names;
use std::collections::BTreeSet;

/// Names every route. A new route does not compile until it has a name here, and then fails the test below until an
/// operation of the document leads to it.
macro_rules! name_routes {
    ($($route:pat => $name:literal,)*) => {
        fn name(route: &Route<'_>) -> &'static str {
            match route { $($route => $name,)* }
        }
        const NAMES: &[&str] = &[$($name),*];
    };
}

name_routes! {
    Route::Health => "health",
    Route::Ready => "ready",
    Route::Replication => "replication",
    Route::OpenApi => "openapi",
    Route::Metrics => "metrics",
    Route::KvMetrics => "figures of keys",
    Route::Create => "create",
    Route::Tasks => "tasks",
    Route::List => "list",
    Route::Info(_) => "info",
    Route::Drop(_) => "drop",
    Route::Query(_) => "query",
    Route::CreateAlias => "create alias",
    Route::ListAliases => "list aliases",
    Route::ChangeAliases => "change aliases",
    Route::DeleteAlias(_) => "delete alias",
    Route::Manage(_, ManageRoute::Evict) => "evict",
    Route::Manage(_, ManageRoute::Restore) => "restore",
    Route::Manage(_, ManageRoute::Resplit) => "resplit",
    Route::Manage(_, ManageRoute::CleanUpResplit) => "clean up resplit",
    Route::Manage(_, ManageRoute::Reshard) => "reshard",
    Route::Manage(_, ManageRoute::AbortReshard) => "abort reshard",
    Route::Backup => "backup",
    Route::ListBackups => "list backups",
    Route::AddKey => "add key",
    Route::ListKeys => "list keys",
    Route::RevokeKey => "revoke key",
    Route::Points(_, PointsRoute::Write) => "write",
    Route::Points(_, PointsRoute::Batch) => "batch",
    Route::Points(_, PointsRoute::Stage) => "stage",
    Route::Points(_, PointsRoute::Build) => "build",
    Route::Points(_, PointsRoute::BatchGet) => "batch get",
    Route::Points(_, PointsRoute::DeleteByFilter) => "delete by filter",
    Route::Points(_, PointsRoute::Scroll) => "scroll",
    Route::Points(_, PointsRoute::Count) => "count",
    Route::Points(_, PointsRoute::Facet) => "facet",
    Route::Points(_, PointsRoute::Sample) => "sample",
    Route::Points(_, PointsRoute::Search) => "search",
    Route::Points(_, PointsRoute::SearchDocs) => "search docs",
    Route::Points(_, PointsRoute::Lanes(LaneRoute::Hybrid)) => "hybrid",
    Route::Points(_, PointsRoute::Lanes(LaneRoute::Text)) => "text",
    Route::Points(_, PointsRoute::Lanes(LaneRoute::HybridText)) => "hybrid text",
    Route::Points(_, PointsRoute::Lanes(LaneRoute::Groups)) => "groups",
    Route::Points(_, PointsRoute::Lanes(LaneRoute::Mmr)) => "mmr",
    // Reached as `Route::Query`.
    Route::Points(_, PointsRoute::Lanes(LaneRoute::Query)) => "query",
    Route::Points(_, PointsRoute::Get(_)) => "get",
    Route::Points(_, PointsRoute::Delete(_)) => "delete",
    Route::Points(_, PointsRoute::Payload(_, PayloadRoute::Merge)) => "merge payload",
    Route::Points(_, PointsRoute::Payload(_, PayloadRoute::Overwrite)) => "overwrite payload",
    Route::Points(_, PointsRoute::Payload(_, PayloadRoute::Delete)) => "delete payload keys",
    Route::Points(_, PointsRoute::Payload(_, PayloadRoute::Clear)) => "clear payload",
}

fn route(method: &str, path: &str) -> Option<&'static str> {
    match resolve(&method.parse::<Method>().unwrap(), path).unwrap() {
        Resolved::Route(route) => Some(name(&route)),
        Resolved::WrongMethod(_) | Resolved::NotFound => None,
    }
}

#[test]
fn every_route_is_documented_and_every_operation_is_a_route() {
    let mut documented = BTreeSet::new();
    let mut ids = BTreeSet::new();
    for operation in operations() {
        let (method, path) = (operation.method, operation.example_path());
        let found = route(method, &path).unwrap_or_else(|| panic!("{method} {path} leads nowhere"));
        documented.insert(found);
        assert!(ids.insert(operation.id), "two operations are called {}", operation.id);
    }
    for name in NAMES {
        assert!(documented.contains(name), "the route {name:?} is not in the document");
    }
}

#[test]
fn operations_have_the_query_parameters_of_their_routes() {
    for operation in operations() {
        let path = operation.example_path();
        let method = operation.method.parse::<Method>().unwrap();
        let Resolved::Route(route) = resolve(&method, &path).unwrap() else { panic!("{path} leads nowhere") };
        assert_eq!(operation.query, route.parameters(), "{} {path}", operation.method);
    }
}

#[test]
fn every_method_of_a_documented_path_is_documented() {
    let operations = operations();
    for operation in &operations {
        for method in ["GET", "POST", "PUT", "DELETE", "PATCH"] {
            let Some(found) = route(method, &operation.example_path()) else { continue };
            let documented =
                operations.iter().any(|other| other.path == operation.path && other.method == method);
            // `batch`, in the place of an id, is one for the router and refused as such, and as an alias.
            let by_id = ["get", "delete", "delete alias"].contains(&found) && !operation.path.ends_with('}');
            assert!(documented || by_id, "{method} {} ({found}) is not in the document", operation.path);
        }
    }
}

#[test]
fn schemas_have_the_keys_of_the_decoders() {
    let schemas = schemas();
    for (schema, keys) in [
        ("CreateCollection", collections::CreateBody::KEYS),
        ("Config", collections::ConfigBody::KEYS),
        ("FullText", collections::FullTextBody::KEYS),
        ("Alias", aliases::AliasBody::KEYS),
        ("AliasName", aliases::NameBody::KEYS),
        ("AliasAction", aliases::ActionBody::KEYS),
        ("AliasChanges", aliases::BatchBody::KEYS),
        ("Partitions", manage::PartitionsBody::KEYS),
        ("NewKey", manage::KeyBody::KEYS),
        ("KeyToken", manage::TokenBody::KEYS),
        ("Sparse", SparseBody::KEYS),
        ("Point", points::PointBody::KEYS),
        ("BatchPoint", points::PointBody::KEYS),
        ("StagedPoint", points::PointBody::KEYS),
        ("Build", crate::rest::BuildBody::KEYS),
        ("DeleteByFilter", crate::rest::DeleteBody::KEYS),
        ("Scroll", read::ScrollBody::KEYS),
        ("OrderBy", order::OrderBody::KEYS),
        ("OrderKey", order::TailBody::KEYS),
        ("Count", inspect::CountBody::KEYS),
        ("Facet", inspect::FacetBody::KEYS),
        ("Sample", inspect::SampleBody::KEYS),
        ("PayloadKeys", crate::rest::payload::KeysBody::KEYS),
        ("Search", search::SearchBody::KEYS),
        ("HybridSearch", lane_bodies::HybridBody::KEYS),
        ("TextSearch", lane_bodies::TextBody::KEYS),
        ("HybridTextSearch", lane_bodies::HybridTextBody::KEYS),
        ("GroupSearch", lane_bodies::GroupsBody::KEYS),
        ("MmrSearch", lane_bodies::MmrBody::KEYS),
        ("Query", lane_bodies::QueryBody::KEYS),
        ("Leaf", lane_bodies::LeafBody::KEYS),
        ("Recommend", lane_bodies::RecommendBody::KEYS),
        ("Discover", lane_bodies::DiscoverBody::KEYS),
        ("ExamplePair", lane_bodies::PairBody::KEYS),
    ] {
        let whole = &schemas[schema];
        let form = whole.get("oneOf").map_or(whole, |forms| &forms[0]);
        let documented: BTreeSet<&str> =
            form["properties"].as_object().unwrap().keys().map(String::as_str).collect();
        assert_eq!(documented, keys.iter().copied().collect(), "keys of {schema}");
    }
}

#[test]
fn filters_have_the_operators_of_the_grammar() {
    let documented: BTreeSet<String> = filter_operators().into_iter().collect();
    assert_eq!(documented, operator_names().map(str::to_owned).collect());
}
