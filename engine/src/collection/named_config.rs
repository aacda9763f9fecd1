//! Configuration of a collection of named spaces.
use super::config::DenseConfig;
use super::config_limits::ConfigError;
use super::index_type::IndexType;
use crate::quoted::quoted;
use crate::text::TextConfig;

/// Spaces of a collection at most.
pub const SPACES_MAX: usize = 64;

/// Bytes of the name of a space at most.
pub const SPACE_NAME_MAX: usize = 255;

/// Bytes that a point counts for beside its vectors, as in [`DenseConfig::quota_bytes_per_point`].
const QUOTA_BYTES_PER_POINT: u64 = 32;

/// What a collection of named spaces is made with, defaults applied.
#[derive(Clone, Debug, PartialEq)]
pub struct NamedConfig {
    /// Its dense spaces. A space is known by its place here.
    pub spaces: Vec<NamedSpace>,
    /// The names of its sparse spaces. A space is known by its place here. Together with the dense ones there are 1 to [`SPACES_MAX`].
    pub sparse_spaces: Vec<String>,
    /// Points at most; 0 = any number.
    pub max_vectors: u64,
    /// Bytes at most, by [`Self::quota_bytes_per_point`]; 0 = any number.
    pub max_bytes: u64,
    /// How texts are analyzed and ranked; `None` where texts are not searched.
    pub full_text: Option<TextConfig>,
}

/// One dense space.
#[derive(Clone, Debug, PartialEq)]
pub struct NamedSpace {
    /// Its name: 1 to [`SPACE_NAME_MAX`] bytes, without `#`, `@` and `/`.
    pub name: String,
    /// What it is made with. What concerns points as a whole (quotas, texts, files) has no effect.
    pub config: DenseConfig,
}

impl NamedConfig {
    /// A collection with these spaces, without quotas and texts.
    pub fn new(spaces: Vec<NamedSpace>, sparse_spaces: Vec<String>) -> NamedConfig {
        NamedConfig { spaces, sparse_spaces, max_vectors: 0, max_bytes: 0, full_text: None }
    }

    /// The number of the dense space of that name.
    pub fn number_of(&self, name: &str) -> Option<usize> {
        self.spaces.iter().position(|space| space.name == name)
    }

    /// The number of the sparse space of that name.
    pub fn sparse_number_of(&self, name: &str) -> Option<usize> {
        self.sparse_spaces.iter().position(|space| space == name)
    }

    /// The names of all spaces.
    fn names(&self) -> impl Iterator<Item = &str> {
        self.spaces.iter().map(|space| &space.name).chain(&self.sparse_spaces).map(String::as_str)
    }

    /// Bytes that one point counts against `max_bytes`, as if it had a vector in every space.
    pub fn quota_bytes_per_point(&self) -> u64 {
        let vectors = self.spaces.iter().map(|space| space.config.quota_bytes_per_point());
        QUOTA_BYTES_PER_POINT + vectors.map(|bytes| bytes - QUOTA_BYTES_PER_POINT).sum::<u64>()
    }

    /// Whether a collection can be made with it.
    ///
    /// # Errors
    /// The first thing that does not fit, in the terms of the interface.
    pub fn validate(&self) -> Result<(), ConfigError> {
        let refuse = |text: String| Err(ConfigError(text));
        let found = self.names().count();
        if found == 0 {
            return refuse(format!("named_vectors names no space; a collection has 1 to {SPACES_MAX}"));
        }
        if found > SPACES_MAX {
            return refuse(format!("named_vectors names {found} spaces; a collection has 1 to {SPACES_MAX}"));
        }
        for (at, name) in self.names().enumerate() {
            if name.is_empty() {
                return refuse("the name of a space is empty".to_owned());
            }
            if name.len() > SPACE_NAME_MAX {
                let found = name.len();
                return refuse(format!(
                    "the name of a space has {found} bytes; up to {SPACE_NAME_MAX} are allowed"
                ));
            }
            if let Some(reserved) = name.chars().find(|character| "#@/".contains(*character)) {
                return refuse(format!(
                    "the name of space {} holds {reserved:?}, which is reserved",
                    quoted(name)
                ));
            }
            if self.names().take(at).any(|other| other == name) {
                return refuse(format!("two spaces have the name {}", quoted(name)));
            }
        }
        for NamedSpace { name, config } in &self.spaces {
            if let Err(ConfigError(text)) = config.validate() {
                return refuse(format!("space {}: {text}", quoted(name)));
            }
            if config.index == IndexType::Gpu {
                return refuse(format!(
                    "space {}: index_type gpu is for dense collections alone",
                    quoted(name)
                ));
            }
            if config.persistent {
                return refuse(format!(
                    "space {}: the vectors of a named space cannot lie in a file",
                    quoted(name)
                ));
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::distance::Metric;

    fn space(name: &str) -> NamedSpace {
        NamedSpace { name: name.to_owned(), config: DenseConfig::new(8, Metric::L2) }
    }

    #[test]
    fn names_are_checked() {
        let refused =
            |spaces: Vec<NamedSpace>| NamedConfig::new(spaces, vec![]).validate().unwrap_err().to_string();
        assert_eq!(
            NamedConfig::new(vec![space("title"), space("body text")], vec!["words".to_owned()]).validate(),
            Ok(())
        );
        assert!(refused(vec![]).contains("names no space"));
        assert!(refused((0..65).map(|at| space(&at.to_string())).collect()).contains("names 65 spaces"));
        assert!(refused(vec![space("")]).contains("is empty"));
        assert!(refused(vec![space(&"x".repeat(256))]).contains("256 bytes"));
        for reserved in ["a#b", "a@b", "a/b"] {
            assert!(refused(vec![space(reserved)]).contains("reserved"));
        }
        assert!(refused(vec![space("a"), space("b"), space("a")]).contains("two spaces have the name \"a\""));
        let both = NamedConfig::new(vec![space("a")], vec!["a".to_owned()]).validate().unwrap_err();
        assert!(both.to_string().contains("two spaces"), "{both}");
        let mut wrong = space("a");
        wrong.config.m = 129;
        let refusal = refused(vec![wrong]);
        assert!(refusal.contains("space \"a\": ") && refusal.contains("invalid M"), "{refusal}");
    }

    #[test]
    fn a_point_counts_with_all_its_vectors() {
        let one = NamedConfig::new(vec![space("a")], vec![]);
        assert_eq!(one.quota_bytes_per_point(), one.spaces[0].config.quota_bytes_per_point());
        assert_eq!(one.number_of("a"), Some(0));
        let three = NamedConfig::new(vec![space("a"), space("b"), space("c")], vec!["s".to_owned()]);
        assert_eq!(three.quota_bytes_per_point(), 3 * one.quota_bytes_per_point() - 64);
        assert_eq!((three.number_of("c"), three.number_of("s")), (Some(2), None));
        assert_eq!((three.sparse_number_of("s"), three.sparse_number_of("c")), (Some(0), None));
    }
}
