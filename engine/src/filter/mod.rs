//! Payload filters: grammar, compilation, evaluation per point.
use crate::payload::{PayloadRow, Value};
/// A filter node as parsed from the wire (net turns JSON into this; `Default` = match all).
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
}
/// Geo operand.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Geo {
    /// Radius centre latitude.
    pub center_lat: Option<f64>,
    /// Radius centre longitude.
    pub center_lon: Option<f64>,
    /// Radius in metres.
    pub radius_m: Option<f64>,
    /// Box.
    pub min_lat: Option<f64>,
    /// Box.
    pub min_lon: Option<f64>,
    /// Box.
    pub max_lat: Option<f64>,
    /// Box.
    pub max_lon: Option<f64>,
    /// Polygon as lat, lon, lat, lon...
    pub polygon: Option<Vec<f64>>,
}
/// Why a filter does not compile; a bad request, the text names the node.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[error("invalid filter: {0}")]
pub struct FilterError(pub String);
/// A compiled filter, immutable and shareable.
#[derive(Clone, Debug)]
pub struct Predicate {}
impl Predicate {
    /// Compiles; see spec for each operator's needs.
    pub fn compile(node: &Node) -> Result<Predicate, FilterError> {
        let _ = node;
        todo!()
    }
    /// Whether every point matches whatever it holds (`{}`, empty `and`, `and` of such, `or` holding such, `not` of a trivially false one).
    pub fn is_trivially_true(&self) -> bool {
        todo!()
    }
    /// Whether a point with this payload (None = no payload) matches at `now_ms`.
    pub fn matches(&self, row: Option<PayloadRow<'_>>, now_ms: u64) -> bool {
        let _ = (row, now_ms);
        todo!()
    }
}
