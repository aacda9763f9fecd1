//! The document beside the router and the decoders: nothing may be in one of them alone.

use super::document::{operations, schemas};
use super::values::filter_operators;
use crate::op::table::TABLE;
use crate::rest::routes::{Resolved, resolve};
use crate::rest::{
    aliases, collections, inspect, lane_bodies, manage, multi_vector_bodies, named_bodies, points, scroll,
    search,
};
use crate::wire::config::NamedConfigBody;
use crate::wire::config_change::named_change_keys;
use crate::wire::json::SparseBody;
use nigh_engine::collection::config_keys::{Family, Key};
use nigh_engine::filter::operator_names;
use std::collections::BTreeSet;

#[test]
fn every_route_is_documented_once() {
    let operations = operations();
    let ids: BTreeSet<_> = operations.iter().map(|operation| operation.id).collect();
    assert_eq!(ids.len(), operations.len(), "two operations have one id");
    for row in TABLE {
        for route in row.routes() {
            let documented = operations.iter().filter(|operation| operation.route == route);
            assert_eq!(documented.count(), 1, "{} {}", route.method.name(), route.path);
        }
    }
}

#[test]
fn examples_lead_to_their_operations() {
    for operation in operations() {
        let (method, path) = (operation.route.method.name(), operation.example_path());
        let resolved = resolve(&method.parse().unwrap(), &path);
        let Ok(Resolved::Route(reached)) = resolved else { panic!("{method} {path} leads nowhere") };
        assert_eq!(reached.route, operation.route, "{method} {path}");
    }
}

#[test]
fn schemas_have_the_keys_of_the_decoders() {
    let schemas = schemas();
    let config: Vec<&str> = Key::of(Family::Dense).map(Key::name).collect();
    let space: Vec<&str> = Key::of(Family::Named).map(Key::name).chain(["sparse"]).collect();
    let tokens: Vec<&str> = Key::of(Family::MultiVector).map(Key::name).collect();
    let live = |family| Key::live_of(family).map(Key::name).collect::<Vec<_>>();
    let text: Vec<&str> = Key::FullText.members().unwrap().iter().map(|key| key.name()).collect();
    // A lane with this key has no other, so that the lanes that rank by themselves have a schema without it.
    let ranking =
        |keys: &[&'static str]| keys.iter().copied().filter(|key| *key != "query").collect::<Vec<_>>();
    let leaf = ranking(lane_bodies::LeafBody::KEYS);
    let named_leaf = ranking(named_bodies::NamedLeafBody::KEYS);
    let token_leaf = ranking(multi_vector_bodies::LeafBody::KEYS);
    for (schema, keys) in [
        ("CreateCollection", collections::CreateBody::KEYS),
        ("Config", &config),
        ("ConfigChange", &live(Family::Dense)),
        ("SpaceChange", &live(Family::Named)),
        ("TokensChange", &live(Family::MultiVector)),
        ("SpacesChange", &named_change_keys().collect::<Vec<_>>()),
        ("FullText", &text),
        ("Alias", aliases::AliasBody::KEYS),
        ("AliasName", aliases::NameBody::KEYS),
        ("AliasAction", aliases::ActionBody::KEYS),
        ("AliasChanges", aliases::BatchBody::KEYS),
        ("Partitions", manage::PartitionsBody::KEYS),
        ("NewKey", manage::KeyBody::KEYS),
        ("Restore", manage::RestoreBody::KEYS),
        ("Verify", manage::VerifyBody::KEYS),
        ("KeyToken", manage::TokenBody::KEYS),
        ("Sparse", SparseBody::KEYS),
        ("Point", points::PointBody::KEYS),
        ("BatchPoint", points::PointBody::KEYS),
        ("StagedPoint", points::PointBody::KEYS),
        ("Build", crate::rest::BuildBody::KEYS),
        ("DeleteByFilter", crate::rest::delete::DeleteBody::KEYS),
        ("Scroll", scroll::ScrollBody::KEYS),
        ("OrderBy", scroll::OrderBody::KEYS),
        ("OrderKey", scroll::TailBody::KEYS),
        ("Count", inspect::CountBody::KEYS),
        ("Facet", inspect::FacetBody::KEYS),
        ("Sample", inspect::SampleBody::KEYS),
        ("PayloadKeys", crate::rest::payload::KeysBody::KEYS),
        ("SetPayloads", crate::rest::payload::SetManyBody::KEYS),
        ("DeleteKeysOfPayloads", crate::rest::payload::DeleteKeysOfManyBody::KEYS),
        ("ClearPayloads", crate::rest::payload::ClearManyBody::KEYS),
        ("Operate", crate::rest::records::OperateBody::KEYS),
        ("Search", search::SearchBody::KEYS),
        ("HybridSearch", lane_bodies::HybridBody::KEYS),
        ("TextMatch", lane_bodies::MatchBody::KEYS),
        ("TextSearch", lane_bodies::TextBody::KEYS),
        ("HybridTextSearch", lane_bodies::HybridTextBody::KEYS),
        ("GroupSearch", lane_bodies::GroupsBody::KEYS),
        ("MmrSearch", lane_bodies::MmrBody::KEYS),
        ("Query", lane_bodies::QueryBody::KEYS),
        ("Leaf", &leaf),
        ("InnerQuery", lane_bodies::InnerQueryBody::KEYS),
        ("Recommend", lane_bodies::RecommendBody::KEYS),
        ("Discover", lane_bodies::DiscoverBody::KEYS),
        ("ExamplePair", lane_bodies::PairBody::KEYS),
        ("NamedSpaces", &NamedConfigBody::keys().collect::<Vec<_>>()),
        ("NamedSpace", &space),
        ("AddedSpace", named_bodies::AddSpaceBody::KEYS),
        ("NamedPoint", named_bodies::UpsertBody::KEYS),
        ("VectorsChange", named_bodies::UpdateVectorsBody::KEYS),
        ("NamedBatchPoint", named_bodies::UpsertBody::KEYS),
        ("NamedStagedPoint", named_bodies::UpsertBody::KEYS),
        ("NamedDelete", crate::rest::delete::OneOrManyBody::KEYS),
        ("NamedSearch", named_bodies::SearchBody::KEYS),
        ("NamedBatchSearch", named_bodies::BatchSearchBody::KEYS),
        ("NamedMmrSearch", named_bodies::MmrBody::KEYS),
        ("NamedSparseSearch", named_bodies::SparseSearchBody::KEYS),
        ("NamedHybridSearch", named_bodies::HybridBody::KEYS),
        ("NamedQuery", named_bodies::QueryBody::KEYS),
        ("NamedLeaf", &named_leaf),
        ("NamedInnerQuery", named_bodies::InnerQueryBody::KEYS),
        ("TokensConfig", &tokens),
        ("TokenDocument", multi_vector_bodies::AddBody::KEYS),
        ("TokenBatchDocument", multi_vector_bodies::AddBody::KEYS),
        ("TokenStagedDocument", multi_vector_bodies::AddBody::KEYS),
        ("TokenDelete", crate::rest::delete::OneOrManyBody::KEYS),
        ("TokenSearch", multi_vector_bodies::SearchBody::KEYS),
        ("TokenHybridSearch", multi_vector_bodies::HybridBody::KEYS),
        ("TokenQuery", multi_vector_bodies::QueryBody::KEYS),
        ("TokenLeaf", &token_leaf),
        ("TokenInnerQuery", multi_vector_bodies::InnerQueryBody::KEYS),
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
