//! From a parsed tree to an expression: every rule of the grammar is checked here.

use super::datetime::{date_text, unix_ms_of_rfc3339};
use super::expr::Expr;
use super::geo::{Area, BoundingBox, Circle, Polygon};
use super::ids::Ids;
use super::leaf::{Relation, Test};
use super::membership::{Floats, Members, Numbers, Texts};
use super::node::{FilterError, Geo, Node, Operator};
use super::pattern::{Pattern, PatternError};
use super::tokens::{MAX_QUERY_TOKENS, MAX_TOKEN_CHARS, QueryTokens, TokensError};
use crate::payload::Value;
use crate::point_id::IdKind;
use crate::quoted::quoted;
use std::fmt;

/// Deepest nesting of a filter, the root counted. Evaluation recurses, so this bounds the stack; filters that people and
/// client builders write stay below ten.
pub const MAX_DEPTH: usize = 64;

/// Most nodes of one filter; every one of them may be evaluated for every point.
pub const MAX_NODES: usize = 65_536;

/// Most vertices of a `geo_polygon`; each is visited for every point near the polygon.
pub const MAX_POLYGON_VERTICES: usize = 65_536;

/// Most regular expressions in one filter. All together take at most 1 MiB compiled, and each about 1 MiB more for the states that
/// are kept of it on a core.
pub const MAX_REGEXES: usize = 16;

/// Most ids in the lists of one filter. The planner looks all of them up in one piece, which takes a millisecond.
pub const MAX_IDS: usize = 10_000;

/// Most conditions of one `min_should`. Of how many of them a point fulfils the planner makes an estimate, whose cost grows with their square.
pub const MAX_CONDITIONS: usize = 256;

/// Longest regular expression in bytes.
const MAX_REGEX_BYTES: usize = 16 * 1024;

/// What all expressions of a filter together may become: a few milliseconds of compilation on the core that received the request.
const REGEX_PROGRAM_BYTES: usize = 1 << 20;

/// Where a node stands in the tree, kept on the stack and spelled only when something is wrong.
#[derive(Clone, Copy)]
struct NodePath<'a> {
    parent: Option<&'a NodePath<'a>>,
    step: Step,
}

#[derive(Clone, Copy)]
enum Step {
    Root,
    And(usize),
    Or(usize),
    Not,
    MinShould(usize),
}

impl NodePath<'_> {
    fn error(&self, problem: impl fmt::Display) -> FilterError {
        match self.parent {
            None => FilterError(problem.to_string()),
            Some(_) => FilterError(format!("{self}: {problem}")),
        }
    }
}

impl fmt::Display for NodePath<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(parent) = self.parent {
            parent.fmt(f)?;
            if parent.parent.is_some() {
                f.write_str(".")?;
            }
        }
        match self.step {
            Step::Root => Ok(()),
            Step::And(index) => write!(f, "and[{index}]"),
            Step::Or(index) => write!(f, "or[{index}]"),
            Step::Not => f.write_str("not"),
            Step::MinShould(index) => write!(f, "min_should.conditions[{index}]"),
        }
    }
}

/// Compiles one filter and counts what it may not have too much of.
#[derive(Default)]
pub(super) struct Compiler {
    nodes: usize,
    ids: usize,
    asks_for_ids: bool,
    id_kind: Option<IdKind>,
    regexes: usize,
    /// What they have become.
    regex_bytes: usize,
}

impl Compiler {
    pub(super) fn compile(&mut self, root: &Node) -> Result<Expr, FilterError> {
        self.node(root, NodePath { parent: None, step: Step::Root }, 1)
    }

    /// Whether a node asks for ids, even where that says nothing.
    pub(super) fn asks_for_ids(&self) -> bool {
        self.asks_for_ids
    }

    /// What the ids of its lists were sent as.
    pub(super) fn id_kind(&self) -> Option<IdKind> {
        self.id_kind
    }

    fn node(&mut self, node: &Node, place: NodePath<'_>, depth: usize) -> Result<Expr, FilterError> {
        self.nodes += 1;
        if self.nodes > MAX_NODES {
            return Err(FilterError(format!("more than {MAX_NODES} nodes")));
        }
        if depth > MAX_DEPTH {
            return Err(FilterError(format!("nested deeper than {MAX_DEPTH} levels")));
        }
        let operator = operator(node, &place)?;
        check_keys(node, operator, &place)?;
        let child = |step| NodePath { parent: Some(&place), step };
        match operator {
            Operator::And => {
                let children = node.and.iter().flatten().enumerate();
                let children: Result<Vec<Expr>, _> = children
                    .map(|(index, node)| self.node(node, child(Step::And(index)), depth + 1))
                    .collect();
                Ok(Expr::all(children?))
            }
            Operator::Or => {
                let children = node.or.iter().flatten().enumerate();
                let children: Result<Vec<Expr>, _> = children
                    .map(|(index, node)| self.node(node, child(Step::Or(index)), depth + 1))
                    .collect();
                Ok(Expr::any(children?))
            }
            Operator::Not => {
                let negated =
                    node.not.as_deref().ok_or_else(|| place.error("op \"not\" needs a node in \"not\""))?;
                Ok(Expr::not(self.node(negated, child(Step::Not), depth + 1)?))
            }
            Operator::MinShould => {
                let (wanted, conditions) = min_should(node, &place)?;
                let children = conditions
                    .iter()
                    .enumerate()
                    .map(|(index, node)| self.node(node, child(Step::MinShould(index)), depth + 1));
                Ok(Expr::at_least(wanted, children.collect::<Result<_, _>>()?))
            }
            Operator::HasId => self.ids(node, &place),
            leaf => self.leaf(node, leaf, &place),
        }
    }

    fn ids(&mut self, node: &Node, place: &NodePath<'_>) -> Result<Expr, FilterError> {
        let ids = node.has_id.as_deref();
        let ids = ids.ok_or_else(|| place.error("op \"has_id\" needs a list of ids in \"has_id\""))?;
        self.asks_for_ids = true;
        self.ids += ids.len();
        if self.ids > MAX_IDS {
            return Err(place.error(format!("more than {MAX_IDS} ids in \"has_id\" of one filter")));
        }
        if let Some(kind) = node.id_kind
            && *self.id_kind.get_or_insert(kind) != kind
        {
            return Err(
                place.error("the lists of ids in one filter hold strings and numbers; use one of them")
            );
        }
        let ids = Ids::new(ids.iter().copied());
        Ok(if ids.sorted().is_empty() { Expr::Never } else { Expr::HasId(ids) })
    }

    fn leaf(&mut self, node: &Node, operator: Operator, place: &NodePath<'_>) -> Result<Expr, FilterError> {
        let op = operator.name();
        // An empty name could be stored as a key, but here it is nearly always a variable that was not set, and
        // `is_empty` on it would match (and delete) every point.
        let field = node
            .field
            .as_deref()
            .filter(|field| !field.is_empty())
            .ok_or_else(|| place.error(format!("op {op:?} needs a field")))?;
        if takes_value(operator) && node.value.is_none() {
            // Nearly always a variable that was not set; compared with null, `ne` would match whatever has the field.
            return Err(place.error(format!(
                "op {op:?} needs a value; op \"is_null\" finds fields that hold null, op \"is_empty\" those that are absent as well"
            )));
        }
        let value = node.value.as_ref().unwrap_or(&Value::None);
        let wrong_kind =
            |wanted: &str| place.error(format!("op {op:?} needs {wanted}, not {}", value.kind()));
        if matches!(value, Value::Record(_) | Value::Json(_)) {
            // Filters do not look into records, and into JSON values by path: nothing is equal to one as a whole.
            return Err(wrong_kind("a value of another kind"));
        }
        let test = match operator {
            Operator::And | Operator::Or | Operator::Not | Operator::MinShould | Operator::HasId => {
                unreachable!("handled by the caller")
            }
            Operator::Eq => Test::Eq(value.clone()),
            Operator::Ne => Test::Ne(value.clone()),
            Operator::Gt | Operator::Gte | Operator::Lt | Operator::Lte => {
                let relation = relation(operator);
                match value {
                    Value::Int(bound) => Test::Number(relation, *bound as f64, None),
                    Value::Float(bound) => Test::Number(relation, *bound, None),
                    Value::String(bound) => Test::Text(relation, bound.as_str().into()),
                    // Values of the other kinds have no order: nothing is above or below them.
                    _ => return Ok(Expr::Never),
                }
            }
            Operator::In => match value {
                Value::Strings(list) => Test::In(Members::Strings(Texts::new(list))),
                Value::Ints(list) => Test::In(Members::Ints(Numbers::new(list.iter().copied()))),
                Value::Floats(list) => Test::In(Members::Floats(Floats::new(list))),
                _ => return Err(wrong_kind("a value of kind strings, ints or floats")),
            },
            Operator::Contains => match value {
                Value::String(text) => Test::ContainsString(text.as_str().into()),
                Value::Int(number) => Test::ContainsInt(*number),
                Value::Float(number) => Test::ContainsFloat(*number),
                Value::Bool(flag) => Test::ContainsBool(*flag),
                _ => return Err(wrong_kind("a value of kind string, int, float or bool")),
            },
            Operator::Match => match value {
                Value::String(query) => Test::Match(QueryTokens::new(query).map_err(|error| {
                    place.error(match error {
                        TokensError::TooMany => {
                            format!("op \"match\" takes at most {MAX_QUERY_TOKENS} distinct words")
                        }
                        TokensError::TooLong => {
                            format!("op \"match\" takes words of at most {MAX_TOKEN_CHARS} characters")
                        }
                    })
                })?),
                _ => return Err(wrong_kind("a value of kind string")),
            },
            Operator::Regex => match value {
                Value::String(pattern) => Test::Regex(Box::new(self.regex(pattern, place)?)),
                _ => return Err(wrong_kind("a value of kind string")),
            },
            Operator::IsEmpty => Test::IsEmpty,
            Operator::IsNull => Test::IsNull,
            Operator::Exists => Test::Exists,
            Operator::DtGt | Operator::DtGte | Operator::DtLt | Operator::DtLte => match value {
                Value::String(time) => {
                    let bound = unix_ms_of_rfc3339(time).ok_or_else(|| {
                        place.error(format!("op {op:?} needs an RFC 3339 time, not {}", quoted(time)))
                    })?;
                    let is_lower = matches!(operator, Operator::DtGt | Operator::DtGte);
                    let edge = date_text(bound, if is_lower { -1 } else { 2 });
                    Test::Number(relation(operator), bound as f64, Some(edge.into()))
                }
                _ => return Err(wrong_kind("an RFC 3339 time of kind string")),
            },
            Operator::GeoRadius | Operator::GeoBoundingBox | Operator::GeoPolygon => {
                let geo = node.geo.as_ref().ok_or_else(|| place.error(format!("op {op:?} needs \"geo\"")))?;
                Test::Inside(area(geo, operator, place)?)
            }
        };
        match test {
            Test::In(members) if members.len() == 0 => Ok(Expr::Never),
            test => Ok(Expr::Leaf { field: field.into(), test }),
        }
    }

    fn regex(&mut self, pattern: &str, place: &NodePath<'_>) -> Result<Pattern, FilterError> {
        self.regexes += 1;
        if self.regexes > MAX_REGEXES {
            return Err(place.error(format!("more than {MAX_REGEXES} regular expressions in one filter")));
        }
        if pattern.len() > MAX_REGEX_BYTES {
            return Err(place.error(format!("regular expression longer than {MAX_REGEX_BYTES} bytes")));
        }
        let bad = |problem: &dyn fmt::Display| {
            place.error(format!("bad regular expression {}: {problem}", quoted(pattern)))
        };
        let left = REGEX_PROGRAM_BYTES - self.regex_bytes;
        let (compiled, bytes) = Pattern::new(pattern, left).map_err(|error| match error {
            PatternError::Syntax(problem) => bad(&problem),
            PatternError::TooLarge => bad(&format_args!(
                "too large once compiled: all expressions of a filter together may become {REGEX_PROGRAM_BYTES} bytes"
            )),
        })?;
        self.regex_bytes += bytes.min(left);
        Ok(compiled)
    }
}

/// The node's operator; absent (or empty, as some encoders send an unset string) means `and`.
fn operator(node: &Node, place: &NodePath<'_>) -> Result<Operator, FilterError> {
    match node.op.as_deref() {
        None | Some("") => Ok(Operator::And),
        Some(name) => {
            Operator::from_name(name).ok_or_else(|| place.error(format!("unknown operator {}", quoted(name))))
        }
    }
}

/// How many of which conditions must hold.
fn min_should<'n>(node: &'n Node, place: &NodePath<'_>) -> Result<(usize, &'n [Node]), FilterError> {
    let some = node.min_should.as_ref();
    let some = some.ok_or_else(|| {
        place.error("op \"min_should\" needs \"min_should\" with \"conditions\" and \"min_count\"")
    })?;
    let conditions = some.conditions.as_deref();
    let conditions =
        conditions.ok_or_else(|| place.error("op \"min_should\" needs a list of \"conditions\""))?;
    let count = conditions.len();
    if !(1..=MAX_CONDITIONS).contains(&count) {
        return Err(place
            .error(format!("op \"min_should\" has {count} conditions, allowed are 1 to {MAX_CONDITIONS}")));
    }
    let min_count = some.min_count.ok_or_else(|| place.error("op \"min_should\" needs a \"min_count\""))?;
    // With 0 all points would match, with more than there are conditions none: either is a mistake.
    match usize::try_from(min_count) {
        Ok(wanted) if (1..=count).contains(&wanted) => Ok((wanted, conditions)),
        _ => Err(place.error(format!(
            "min_count {min_count} of op \"min_should\" is not one of 1 to {count}, the number of its conditions"
        ))),
    }
}

/// Refuses keys that the operator would not look at: a node such as `{"or":[...]}` without `op` would otherwise be an empty
/// `and`, which matches everything.
fn check_keys(node: &Node, operator: Operator, place: &NodePath<'_>) -> Result<(), FilterError> {
    let Node { op, field, value, and, or, not, geo, has_id, id_kind: _, min_should } = node;
    let is_geo = is_geo(operator);
    let keys = [
        ("field", field.is_some(), takes_field(operator)),
        ("value", value.is_some(), takes_value(operator)),
        ("and", and.is_some(), operator == Operator::And),
        ("or", or.is_some(), operator == Operator::Or),
        ("not", not.is_some(), operator == Operator::Not),
        ("geo", geo.is_some(), is_geo),
        ("has_id", has_id.is_some(), operator == Operator::HasId),
        ("min_should", min_should.is_some(), operator == Operator::MinShould),
    ];
    let Some((key, ..)) = keys.into_iter().find(|(_, present, belongs)| *present && !belongs) else {
        return Ok(());
    };
    Err(place.error(match op.as_deref() {
        None | Some("") => format!("key {key:?} without \"op\""),
        Some(op) => format!("key {key:?} does not belong to op {op:?}"),
    }))
}

fn is_geo(operator: Operator) -> bool {
    matches!(operator, Operator::GeoRadius | Operator::GeoBoundingBox | Operator::GeoPolygon)
}

/// Whether the operator asks about a payload key.
fn takes_field(operator: Operator) -> bool {
    let is_group = matches!(operator, Operator::And | Operator::Or | Operator::Not | Operator::MinShould);
    !is_group && operator != Operator::HasId
}

/// Whether the operator compares with a value.
fn takes_value(operator: Operator) -> bool {
    takes_field(operator)
        && !is_geo(operator)
        && !matches!(operator, Operator::IsEmpty | Operator::IsNull | Operator::Exists)
}

fn relation(operator: Operator) -> Relation {
    match operator {
        Operator::Gt | Operator::DtGt => Relation::Greater,
        Operator::Gte | Operator::DtGte => Relation::GreaterOrEqual,
        Operator::Lt | Operator::DtLt => Relation::Less,
        Operator::Lte | Operator::DtLte => Relation::LessOrEqual,
        other => unreachable!("{} is not a range", other.name()),
    }
}

fn area(geo: &Geo, operator: Operator, place: &NodePath<'_>) -> Result<Area, FilterError> {
    let op = operator.name();
    let Geo { center_lat, center_lon, radius_m, min_lat, min_lon, max_lat, max_lon, polygon } = geo;
    let circle = operator == Operator::GeoRadius;
    let bounds = operator == Operator::GeoBoundingBox;
    let keys = [
        ("center_lat", center_lat.is_some(), circle),
        ("center_lon", center_lon.is_some(), circle),
        ("radius_m", radius_m.is_some(), circle),
        ("min_lat", min_lat.is_some(), bounds),
        ("min_lon", min_lon.is_some(), bounds),
        ("max_lat", max_lat.is_some(), bounds),
        ("max_lon", max_lon.is_some(), bounds),
        ("polygon", polygon.is_some(), operator == Operator::GeoPolygon),
    ];
    if let Some((key, ..)) = keys.iter().find(|(_, present, belongs)| *present && !belongs) {
        return Err(place.error(format!("geo key {key:?} does not belong to op {op:?}")));
    }
    if !keys.iter().any(|(_, present, _)| *present) {
        return Err(place.error(format!("op {op:?} needs coordinates in \"geo\"")));
    }
    let coordinate = |name: &str, degrees: f64, limit: f64| {
        // NaN is in no range.
        if (-limit..=limit).contains(&degrees) {
            Ok(degrees)
        } else {
            Err(place.error(format!("{name} {degrees} is outside -{limit}..{limit}")))
        }
    };
    let lat = |name: &str, value: &Option<f64>| coordinate(name, value.unwrap_or(0.0), 90.0);
    let lon = |name: &str, value: &Option<f64>| coordinate(name, value.unwrap_or(0.0), 180.0);
    match operator {
        Operator::GeoRadius => {
            let (lat, lon) = (lat("center_lat", center_lat)?, lon("center_lon", center_lon)?);
            let radius_m = radius_m.unwrap_or(0.0);
            if !(radius_m.is_finite() && radius_m > 0.0) {
                return Err(place.error(format!("radius_m {radius_m} is not a positive number of metres")));
            }
            Ok(Area::Circle(Circle::new(lat, lon, radius_m)))
        }
        Operator::GeoBoundingBox => {
            let bounds = BoundingBox {
                min_lat: lat("min_lat", min_lat)?,
                min_lon: lon("min_lon", min_lon)?,
                max_lat: lat("max_lat", max_lat)?,
                max_lon: lon("max_lon", max_lon)?,
            };
            for (axis, min, max) in
                [("lat", bounds.min_lat, bounds.max_lat), ("lon", bounds.min_lon, bounds.max_lon)]
            {
                if min > max {
                    return Err(place.error(format!("min_{axis} {min} is above max_{axis} {max}")));
                }
            }
            Ok(Area::Box(bounds))
        }
        _ => {
            let coordinates = polygon.as_deref().unwrap_or_default();
            if !coordinates.len().is_multiple_of(2) {
                return Err(place.error(format!(
                    "polygon has {} numbers, not pairs of latitude and longitude",
                    coordinates.len()
                )));
            }
            let vertices = coordinates.len() / 2;
            if !(3..=MAX_POLYGON_VERTICES).contains(&vertices) {
                return Err(place.error(format!(
                    "polygon has {vertices} vertices, allowed are 3 to {MAX_POLYGON_VERTICES}"
                )));
            }
            for (index, &[lat, lon]) in coordinates.as_chunks().0.iter().enumerate() {
                coordinate(&format!("latitude of polygon vertex {index}"), lat, 90.0)?;
                coordinate(&format!("longitude of polygon vertex {index}"), lon, 180.0)?;
            }
            Ok(Area::Polygon(Polygon::new(coordinates)))
        }
    }
}
