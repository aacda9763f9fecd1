//! What a filter says of the value of one field, for indexes that keep values in order.

use super::expr::Expr;
use super::leaf::{Relation, Test};
use super::membership::Members;
use super::predicate::Predicate;
use crate::payload::Value;

/// Values that are neighbours in order. Both ends belong to it, even where the filter excludes them.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Bounds<'p> {
    /// Ints and floats, as numbers. Empty when the first is above the second.
    Numbers(f64, f64),
    /// Texts by their bytes; `None` has no end.
    Texts(&'p str, Option<&'p str>),
}

impl Predicate {
    /// Where the value of `field` lies in everything that matches: in one of these. `None` when the filter does not say.
    ///
    /// No places at all where nothing can match.
    pub fn bounds_of(&self, field: &str) -> Option<Vec<Bounds<'_>>> {
        bounds_in(self.expr(), field)
    }
}

fn bounds_in<'p>(expr: &'p Expr, field: &str) -> Option<Vec<Bounds<'p>>> {
    match expr {
        Expr::Always | Expr::Not(_) | Expr::HasId(_) => None,
        Expr::Never => Some(Vec::new()),
        Expr::All(children) => children.iter().filter_map(|child| bounds_in(child, field)).reduce(both),
        // Where one of them matches at least.
        Expr::Any(children) | Expr::AtLeast(_, children) => {
            let each: Option<Vec<_>> = children.iter().map(|child| bounds_in(child, field)).collect();
            each.map(|each| each.concat())
        }
        Expr::Leaf { field: tested, test } if **tested == *field => bounds_of(test),
        Expr::Leaf { .. } => None,
    }
}

/// `None` for tests that pass values from all over the order.
fn bounds_of(test: &Test) -> Option<Vec<Bounds<'_>>> {
    let number = |number: f64| Bounds::Numbers(number, number);
    Some(match test {
        Test::Eq(Value::Int(value)) => vec![number(*value as f64)],
        Test::Eq(Value::Float(value)) => vec![number(*value)],
        Test::Eq(Value::String(value)) => vec![Bounds::Texts(value, Some(value))],
        Test::Number(Relation::Greater | Relation::GreaterOrEqual, bound, times) => {
            let texts = times.iter().map(|edge| Bounds::Texts(edge, None));
            std::iter::once(Bounds::Numbers(*bound, f64::INFINITY)).chain(texts).collect()
        }
        Test::Number(Relation::Less | Relation::LessOrEqual, bound, times) => {
            let texts = times.iter().map(|edge| Bounds::Texts("", Some(edge)));
            std::iter::once(Bounds::Numbers(f64::NEG_INFINITY, *bound)).chain(texts).collect()
        }
        Test::Text(Relation::Greater | Relation::GreaterOrEqual, bound) => vec![Bounds::Texts(bound, None)],
        Test::Text(Relation::Less | Relation::LessOrEqual, bound) => vec![Bounds::Texts("", Some(bound))],
        Test::In(members) => match members {
            Members::Strings(texts) => {
                texts.part(0, members.len()).map(|text| Bounds::Texts(text, Some(text))).collect()
            }
            Members::Ints(numbers) => numbers.sorted().iter().map(|&value| number(value as f64)).collect(),
            Members::Floats(floats) => floats.part(0, members.len()).map(number).collect(),
        },
        _ => return None,
    })
}

/// What is in both, or more: in one of either where they are lists.
fn both<'p>(one: Vec<Bounds<'p>>, other: Vec<Bounds<'p>>) -> Vec<Bounds<'p>> {
    if one.len() * other.len() <= PAIRS_MAX {
        let pairs = one.iter().flat_map(|&one| other.iter().map(move |&other| (one, other)));
        return pairs.filter_map(|(one, other)| overlap(one, other)).collect();
    }
    // A list is the narrower one, as a rule.
    if one.len() > 1 { one } else { other }
}

/// Most pairs of bounds that are compared: two conditions on times are four.
const PAIRS_MAX: usize = 16;

/// What is in both; nothing is a number and a text.
fn overlap<'p>(one: Bounds<'p>, other: Bounds<'p>) -> Option<Bounds<'p>> {
    match (one, other) {
        (Bounds::Numbers(from, to), Bounds::Numbers(least, most)) => {
            Some(Bounds::Numbers(from.max(least), to.min(most)))
        }
        (Bounds::Texts(from, to), Bounds::Texts(least, most)) => {
            let to = match (to, most) {
                (Some(to), Some(most)) => Some(to.min(most)),
                (to, most) => to.or(most),
            };
            Some(Bounds::Texts(from.max(least), to))
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::super::{MinShould, Node};
    use super::*;

    fn leaf(op: &str, field: &str, value: Value) -> Node {
        Node { op: Some(op.into()), field: Some(field.into()), value: Some(value), ..Node::default() }
    }

    fn all(nodes: Vec<Node>) -> Node {
        Node { op: Some("and".into()), and: Some(nodes), ..Node::default() }
    }

    fn check(node: &Node, expected: Option<Vec<Bounds<'_>>>) {
        assert_eq!(Predicate::compile(node).unwrap().bounds_of("a"), expected, "{node:?}");
    }

    #[test]
    fn what_is_said_of_a_field() {
        use Bounds::{Numbers, Texts};
        let (least, most) = (f64::NEG_INFINITY, f64::INFINITY);
        let text = |text: &str| Value::String(text.to_owned());
        check(&leaf("eq", "a", Value::Int(3)), Some(vec![Numbers(3.0, 3.0)]));
        check(&leaf("eq", "b", Value::Int(3)), None);
        check(&leaf("eq", "a", Value::Bool(true)), None);
        check(&leaf("ne", "a", Value::Int(3)), None);
        check(&leaf("gt", "a", Value::Float(0.5)), Some(vec![Numbers(0.5, most)]));
        check(&leaf("lte", "a", Value::Int(7)), Some(vec![Numbers(least, 7.0)]));
        check(&leaf("gte", "a", text("m")), Some(vec![Texts("m", None)]));
        check(&leaf("in", "a", Value::Ints(vec![5, 2])), Some(vec![Numbers(2.0, 2.0), Numbers(5.0, 5.0)]));
        check(
            &leaf("in", "a", Value::Strings(vec!["y".into(), "x".into()])),
            Some(vec![Texts("x", Some("x")), Texts("y", Some("y"))]),
        );
        let from = || leaf("gte", "a", Value::Int(2));
        let between = all(vec![from(), leaf("ne", "b", Value::Int(1)), leaf("lt", "a", Value::Int(9))]);
        check(&between, Some(vec![Numbers(2.0, 9.0)]));
        check(
            &all(vec![leaf("lt", "a", text("m")), leaf("gt", "a", text("b"))]),
            Some(vec![Texts("b", Some("m"))]),
        );
        check(&all(vec![from(), leaf("eq", "a", text("b"))]), Some(vec![]));
        let list = || leaf("in", "a", Value::Ints(vec![5, 7]));
        let both = Some(vec![Numbers(5.0, 5.0), Numbers(7.0, 7.0)]);
        check(&all(vec![from(), list()]), both.clone());
        check(&all(vec![list(), from()]), both);
        let either = Node { op: Some("or".into()), or: Some(vec![from(), list()]), ..Node::default() };
        check(&either, Some(vec![Numbers(2.0, most), Numbers(5.0, 5.0), Numbers(7.0, 7.0)]));
        let some = MinShould { conditions: Some(vec![from(), list(), list()]), min_count: Some(2) };
        let some = Node { op: Some("min_should".into()), min_should: Some(some), ..Node::default() };
        let of_any = [Numbers(2.0, most), Numbers(5.0, 5.0), Numbers(7.0, 7.0)];
        check(&some, Some([&of_any[..], &of_any[1..]].concat()));
        let other = || leaf("eq", "b", Value::Int(1));
        check(&Node { op: Some("or".into()), or: Some(vec![from(), other()]), ..Node::default() }, None);
        check(&all(vec![other(), all(vec![other(), from()])]), Some(vec![Numbers(2.0, most)]));
        // Times are numbers, or texts that begin with a date.
        let time = |op: &str, text: &str| leaf(op, "a", Value::String(text.to_owned()));
        check(
            &all(vec![time("dt_gte", "1970-01-03T00:00:00Z"), time("dt_lt", "1970-01-04T00:00:00Z")]),
            Some(vec![Numbers(172_800_000.0, 259_200_000.0), Texts("1970-01-02", Some("1970-01-06"))]),
        );
        // What matches nothing.
        check(&leaf("in", "b", Value::Ints(vec![])), Some(vec![]));
        check(&all(vec![other(), leaf("gt", "b", Value::Bool(true))]), Some(vec![]));
        check(&Node { op: Some("not".into()), not: Some(from().into()), ..Node::default() }, None);
    }
}
