//! Query strings, and the options that a request may state there as well as in its body.
//!
//! A parameter that a route does not have is refused by name: it is nearly always a condition that was misspelt, and without it the
//! request would do more than it was meant to. An option stated twice, in whatever places, has one value or is refused.

use crate::op::{ApiError, ReadOptions, WriteOptions};
use crate::wire::json::{json_object, one_of};
use nigh_engine::quoted::quoted;
use percent_encoding::percent_decode_str;
use std::fmt::Display;

/// The parameters of a query string; an empty value counts as absent.
#[derive(Clone, Copy)]
pub struct Query<'q>(&'q str);

impl<'q> Query<'q> {
    /// Of a request, `None` = no query string.
    pub fn new(query: Option<&'q str>) -> Self {
        Query(query.unwrap_or(""))
    }

    fn pairs(&self) -> impl Iterator<Item = (String, &'q str)> {
        self.0.split('&').filter(|pair| !pair.is_empty()).map(|pair| {
            let (key, value) = pair.split_once('=').unwrap_or((pair, ""));
            (decoded(key), value)
        })
    }

    /// Refuses parameters that are not among `known`, and one that is there with two values.
    ///
    /// # Errors
    /// Names the parameter, and those that exist.
    pub fn check(&self, known: &[&str]) -> Result<(), ApiError> {
        if self.0.is_empty() {
            return Ok(());
        }
        for (key, value) in self.pairs() {
            if !known.contains(&key.as_str()) {
                let known = match known {
                    [] => "this route takes none".to_owned(),
                    known => one_of(known.iter().copied()),
                };
                return Err(ApiError::invalid(format!("unknown query parameter {}; {known}", quoted(&key))));
            }
            let value = decoded(value);
            if let Some(first) = self.get(&key)
                && !value.is_empty()
                && first != value
            {
                return Err(ApiError::invalid(format!(
                    "the query parameter {key} is there twice, as {} and as {}",
                    quoted(&first),
                    quoted(&value)
                )));
            }
        }
        Ok(())
    }

    /// The decoded value of `name`.
    pub fn get(&self, name: &str) -> Option<String> {
        let mut named = self.pairs().filter(|(key, value)| key == name && !value.is_empty());
        named.next().map(|(_, value)| decoded(value))
    }

    /// The number under `name`.
    ///
    /// # Errors
    /// Names the parameter.
    pub fn number<T: std::str::FromStr>(&self, name: &str) -> Result<Option<T>, ApiError> {
        match self.get(name) {
            None => Ok(None),
            Some(text) => match text.parse() {
                Ok(value) => Ok(Some(value)),
                Err(_) => Err(ApiError::invalid(format!("{name}: {} is not a valid number", quoted(&text)))),
            },
        }
    }

    /// The boolean under `name`.
    ///
    /// # Errors
    /// Names the parameter.
    pub fn boolean(&self, name: &str) -> Result<Option<bool>, ApiError> {
        let text = self.get(name);
        match text.as_deref().map(str::to_ascii_lowercase).as_deref() {
            None => Ok(None),
            Some("1" | "t" | "true") => Ok(Some(true)),
            Some("0" | "f" | "false") => Ok(Some(false)),
            Some(text) => Err(ApiError::invalid(format!(
                "{name}: {} is not a boolean; it must be true or false",
                quoted(text)
            ))),
        }
    }
}

fn decoded(text: &str) -> String {
    let spaced = text.replace('+', " ");
    percent_decode_str(&spaced).decode_utf8_lossy().into_owned()
}

/// One option, stated in the query string, in the body, in both alike, or nowhere.
///
/// # Errors
/// Two values.
pub fn agreed<T: PartialEq + Display>(
    name: &str,
    query: Option<T>,
    body: Option<T>,
) -> Result<Option<T>, ApiError> {
    match (query, body) {
        (Some(query), Some(body)) if query != body => Err(ApiError::invalid(format!(
            "{name} is {query} in the query string and {body} in the body; state it once"
        ))),
        (query, body) => Ok(query.or(body)),
    }
}

/// Read options as stated in one place.
#[derive(Clone, Copy, Debug, Default)]
pub struct ReadParameters {
    /// See [`ReadOptions`].
    pub read_consistency: Option<u8>,
    /// See [`ReadOptions`].
    pub on_partition_unavailable: Option<u8>,
    /// See [`ReadOptions`].
    pub max_staleness: Option<u64>,
}

impl ReadParameters {
    /// Those of a query string.
    ///
    /// # Errors
    /// A value that is no number; names the parameter.
    pub fn of(query: Query<'_>) -> Result<Self, ApiError> {
        Ok(ReadParameters {
            read_consistency: query.number("read_consistency")?,
            on_partition_unavailable: query.number("on_partition_unavailable")?,
            max_staleness: query.number("max_staleness")?,
        })
    }

    /// The options of a request whose query string states `self`.
    ///
    /// # Errors
    /// An option with two values.
    pub fn with_body(self, body: ReadParameters) -> Result<ReadOptions, ApiError> {
        let unavailable = (self.on_partition_unavailable, body.on_partition_unavailable);
        Ok(ReadOptions {
            read_consistency: agreed("read_consistency", self.read_consistency, body.read_consistency)?
                .unwrap_or_default(),
            on_partition_unavailable: agreed("on_partition_unavailable", unavailable.0, unavailable.1)?
                .unwrap_or_default(),
            max_staleness: agreed("max_staleness", self.max_staleness, body.max_staleness)?
                .unwrap_or_default(),
        })
    }

    /// The same for a binary body, whose zeros state nothing.
    ///
    /// # Errors
    /// An option with two values.
    pub fn with_header(self, header: ReadOptions) -> Result<ReadOptions, ApiError> {
        self.with_body(ReadParameters {
            read_consistency: Some(header.read_consistency).filter(|level| *level != 0),
            on_partition_unavailable: Some(header.on_partition_unavailable).filter(|mode| *mode != 0),
            max_staleness: Some(header.max_staleness).filter(|bound| *bound != 0),
        })
    }
}

/// Whether the answer to a write is to say which version it has made.
///
/// # Errors
/// A value that is no boolean.
pub fn with_version(query: Query<'_>) -> Result<bool, ApiError> {
    Ok(query.boolean("with_version")?.unwrap_or(false))
}

/// Write options as stated in one place.
#[derive(Clone, Copy, Debug, Default)]
pub struct WriteParameters {
    /// See [`WriteOptions`].
    pub write_consistency_factor: Option<i64>,
    /// Without effect on one node, where an answer always means durable.
    pub wait: Option<bool>,
    /// See [`WriteOptions`].
    pub expected_version: Option<u64>,
}

impl WriteParameters {
    /// Those of a query string.
    ///
    /// # Errors
    /// A value of the wrong type; names the parameter.
    pub fn of(query: Query<'_>) -> Result<Self, ApiError> {
        Ok(WriteParameters {
            write_consistency_factor: query.number("write_consistency_factor")?,
            wait: query.boolean("wait")?,
            expected_version: query.number("expected_version")?,
        })
    }

    /// The options of a request whose query string states `self`.
    ///
    /// # Errors
    /// An option with two values.
    pub fn with_body(self, body: WriteParameters) -> Result<WriteOptions, ApiError> {
        agreed("wait", self.wait, body.wait)?;
        let factors = (self.write_consistency_factor, body.write_consistency_factor);
        Ok(WriteOptions {
            write_consistency_factor: agreed("write_consistency_factor", factors.0, factors.1)?
                .unwrap_or_default(),
            expected_version: agreed("expected_version", self.expected_version, body.expected_version)?,
        })
    }
}

json_object! {
    /// Body of `DELETE …/points/{id}` and `…/payload/clear`, where there is one.
    pub struct ConditionsBody {
        "write_consistency_factor" => write_consistency_factor: i64,
        "wait" => wait: bool,
        "expected_version" => expected_version: u64,
    }
}

impl ConditionsBody {
    /// What it states.
    pub fn parameters(&self) -> WriteParameters {
        WriteParameters {
            write_consistency_factor: self.write_consistency_factor,
            wait: self.wait,
            expected_version: self.expected_version,
        }
    }
}

/// The read options that a body states.
macro_rules! read_parameters {
    ($body:ident) => {
        $crate::rest::parameters::ReadParameters {
            read_consistency: $body.read_consistency,
            on_partition_unavailable: $body.on_partition_unavailable,
            max_staleness: $body.max_staleness,
        }
    };
}
pub(crate) use read_parameters;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::op::table::CONDITIONS;

    #[test]
    fn query_strings() {
        let query = Query::new(Some("with_vector=FALSE&with_payload=&wait=T&expected_version=3&a+b=c%20d&&"));
        assert_eq!(query.boolean("with_vector").unwrap(), Some(false));
        assert_eq!(query.boolean("with_payload").unwrap(), None);
        assert_eq!(query.get("a b").as_deref(), Some("c d"));
        assert_eq!(WriteParameters::of(query).unwrap().expected_version, Some(3));
        for (bad, name) in [
            ("read_consistency=256", "read_consistency"),
            ("read_consistency=x", "read_consistency"),
            ("max_staleness=-1", "max_staleness"),
            ("on_partition_unavailable=1.0", "on_partition_unavailable"),
        ] {
            let error = ReadParameters::of(Query::new(Some(bad))).unwrap_err();
            assert!(error.message.contains(name), "{bad}");
        }
        for (bad, name) in [
            ("wait=yes", "wait"),
            ("expected_version=-1", "expected_version"),
            ("write_consistency_factor=a", "write_"),
        ] {
            let error = WriteParameters::of(Query::new(Some(bad))).unwrap_err();
            assert!(error.message.contains(name), "{bad}");
        }
    }

    #[test]
    fn unknown_parameters_are_refused_with_those_that_exist() {
        let check =
            |query: &str, known: &[&str]| Query::new(Some(query)).check(known).map_err(|error| error.message);
        for query in ["", "&", "wait=", "wait=1&wait=1", "wait=&wait=1", "expected%5Fversion=3"] {
            assert_eq!(check(query, CONDITIONS), Ok(()), "{query}");
        }
        let refused = check("expected_verison=99", CONDITIONS).unwrap_err();
        assert_eq!(
            refused,
            "unknown query parameter \"expected_verison\"; \
             it must be one of write_consistency_factor, wait, expected_version"
        );
        assert_eq!(check("x", &[]).unwrap_err(), "unknown query parameter \"x\"; this route takes none");
        for query in ["Wait=1", "wait=1&nope", "=1"] {
            assert!(check(query, CONDITIONS).unwrap_err().starts_with("unknown query parameter"), "{query}");
        }
        assert!(check("wait=1&wait=0", CONDITIONS).unwrap_err().contains("twice"));
    }

    #[test]
    fn an_option_has_one_value() {
        assert_eq!(agreed("k", None::<u8>, None), Ok(None));
        assert_eq!(agreed("k", Some(1), None), Ok(Some(1)));
        assert_eq!(agreed("k", None, Some(2)), Ok(Some(2)));
        assert_eq!(agreed("k", Some(2), Some(2)), Ok(Some(2)));
        let error = agreed("k", Some(1), Some(2)).unwrap_err();
        assert_eq!(error.message, "k is 1 in the query string and 2 in the body; state it once");
        let query = ReadParameters { max_staleness: Some(5), ..ReadParameters::default() };
        assert_eq!(query.with_header(ReadOptions::default()).unwrap().max_staleness, 5);
        let other = ReadOptions { max_staleness: 6, ..ReadOptions::default() };
        assert!(query.with_header(other).is_err());
    }
}
