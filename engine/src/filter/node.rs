//! The grammar: filter nodes as they come from the wire.

use crate::payload::Value;
use crate::point_id::IdKind;

/// A filter node as parsed from the wire (net turns JSON into this; `Default` = match all).
///
/// Which keys must, may and must not be present depends on `op`; [`Predicate::compile`](super::Predicate::compile) checks
/// it. An absent `op` means `and`.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Node {
    /// Operator as sent; `None` when the key was absent.
    pub op: Option<String>,
    /// Field name, if sent.
    pub field: Option<String>,
    /// Operand, if sent.
    pub value: Option<Value>,
    /// Children of `and`, if sent.
    pub and: Option<Vec<Node>>,
    /// Children of `or`, if sent.
    pub or: Option<Vec<Node>>,
    /// Child of `not`, if sent.
    pub not: Option<Box<Node>>,
    /// Geo operand, if sent.
    pub geo: Option<Geo>,
    /// Ids of points, if sent.
    pub has_id: Option<Vec<u64>>,
    /// What these ids were sent as; `None` where numbers stand for ids of either kind.
    pub id_kind: Option<IdKind>,
    /// Conditions of which some must hold, if sent.
    pub min_should: Option<MinShould>,
}

impl Node {
    /// The nodes right below it, whatever its operator.
    pub fn children(&self) -> impl Iterator<Item = &Node> {
        let lists = [&self.and, &self.or, self.min_should.as_ref().map_or(&None, |some| &some.conditions)];
        lists.into_iter().flatten().flatten().chain(self.not.as_deref())
    }
}

/// Conditions, and how many of them must hold at least.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct MinShould {
    /// The conditions, if sent.
    pub conditions: Option<Vec<Node>>,
    /// How many, if sent.
    pub min_count: Option<u64>,
}

/// Geo operand. Coordinates are degrees; like payload values on the wire, one that is 0 may be left out.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Geo {
    /// Radius centre latitude.
    pub center_lat: Option<f64>,
    /// Radius centre longitude.
    pub center_lon: Option<f64>,
    /// Radius in metres.
    pub radius_m: Option<f64>,
    /// Southern edge of the box.
    pub min_lat: Option<f64>,
    /// Western edge of the box.
    pub min_lon: Option<f64>,
    /// Northern edge of the box.
    pub max_lat: Option<f64>,
    /// Eastern edge of the box.
    pub max_lon: Option<f64>,
    /// Polygon as lat, lon, lat, lon...
    pub polygon: Option<Vec<f64>>,
}

/// Why a filter does not compile; a bad request, the text names the node (`and[1].not: ...`).
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[error("invalid filter: {0}")]
pub struct FilterError(pub String);

/// The operators of the grammar.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Operator {
    And,
    Or,
    Not,
    Eq,
    Ne,
    Gt,
    Gte,
    Lt,
    Lte,
    In,
    Contains,
    Match,
    Regex,
    IsEmpty,
    IsNull,
    Exists,
    HasId,
    MinShould,
    DtGt,
    DtGte,
    DtLt,
    DtLte,
    GeoRadius,
    GeoBoundingBox,
    GeoPolygon,
}

impl Operator {
    pub(super) const ALL: [(&'static str, Operator); 25] = [
        ("and", Operator::And),
        ("or", Operator::Or),
        ("not", Operator::Not),
        ("eq", Operator::Eq),
        ("ne", Operator::Ne),
        ("gt", Operator::Gt),
        ("gte", Operator::Gte),
        ("lt", Operator::Lt),
        ("lte", Operator::Lte),
        ("in", Operator::In),
        ("contains", Operator::Contains),
        ("match", Operator::Match),
        ("regex", Operator::Regex),
        ("is_empty", Operator::IsEmpty),
        ("is_null", Operator::IsNull),
        ("exists", Operator::Exists),
        ("has_id", Operator::HasId),
        ("min_should", Operator::MinShould),
        ("dt_gt", Operator::DtGt),
        ("dt_gte", Operator::DtGte),
        ("dt_lt", Operator::DtLt),
        ("dt_lte", Operator::DtLte),
        ("geo_radius", Operator::GeoRadius),
        ("geo_bounding_box", Operator::GeoBoundingBox),
        ("geo_polygon", Operator::GeoPolygon),
    ];

    pub(super) fn from_name(name: &str) -> Option<Operator> {
        Self::ALL.iter().find(|entry| entry.0 == name).map(|entry| entry.1)
    }

    pub(super) fn name(self) -> &'static str {
        Self::ALL.iter().find(|entry| entry.1 == self).expect("every operator is listed").0
    }
}

/// Whether `name` is an operator of the grammar, for decoders that report an unknown one as malformed input.
pub fn is_operator(name: &str) -> bool {
    Operator::from_name(name).is_some()
}

/// The operators of the grammar, for whoever sent another.
pub fn operator_names() -> impl Iterator<Item = &'static str> {
    Operator::ALL.iter().map(|entry| entry.0)
}
