//! Configuration of a collection of named spaces.
use super::config::DenseConfig;
use super::config_limits::ConfigError;
use super::index_type::IndexType;
use super::whole_config::WholeConfig;
use crate::distance::Metric;
use crate::quoted::quoted;

/// Spaces of a collection at most, those that were dropped included: a number is never given twice.
pub const SPACES_MAX: usize = 64;

/// Bytes of the name of a space at most.
pub const SPACE_NAME_MAX: usize = 255;

/// Bytes that a point counts for beside its vectors, as in [`DenseConfig::quota_bytes_per_point`].
const QUOTA_BYTES_PER_POINT: u64 = 32;

/// What a collection of named spaces is made with, defaults applied.
#[derive(Clone, Debug, PartialEq)]
pub struct NamedConfig {
    /// Its dense spaces, and those that were dropped. A space is known by its place here.
    pub spaces: Vec<NamedSpace>,
    /// Its sparse spaces, and those that were dropped. A space is known by its place here. Together with the dense ones there are 1 to
    /// [`SPACES_MAX`].
    pub sparse_spaces: Vec<NamedSparseSpace>,
    /// Quotas, full text and the format of payloads. Bytes are counted by [`Self::quota_bytes_per_point`].
    pub whole: WholeConfig,
}

/// One dense space.
#[derive(Clone, Debug, PartialEq)]
pub struct NamedSpace {
    /// Its name: 1 to [`SPACE_NAME_MAX`] bytes, without `#`, `@` and `/`. Of a dropped space, the name that it had; another one may have it.
    pub name: String,
    /// What it is made with. What concerns points as a whole (quotas, texts, files) has no effect.
    pub config: DenseConfig,
    /// It was dropped. It keeps its place, because logs and images know spaces by their numbers.
    pub is_dropped: bool,
}

/// One sparse space.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NamedSparseSpace {
    /// Its name, as of a [`NamedSpace`].
    pub name: String,
    /// It was dropped. It keeps its place, because the rows of points know sparse spaces by their numbers.
    pub is_dropped: bool,
}

/// Which of the spaces of a collection: dense and sparse ones are numbered apart.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SpaceNumber {
    /// The place in [`NamedConfig::spaces`].
    Dense(usize),
    /// The place in [`NamedConfig::sparse_spaces`].
    Sparse(usize),
}

/// Why a space cannot be added or dropped.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SpaceChangeError {
    /// The name is in use.
    #[error("the vector space {} already exists", quoted(.0))]
    Exists(String),
    /// There is no space of that name.
    #[error("the vector space {} does not exist", quoted(.0))]
    Unknown(String),
    /// All numbers are given.
    #[error(
        "no more vector spaces can be added: a collection has at most {SPACES_MAX} in its lifetime, those that were dropped included"
    )]
    TooMany,
    /// A collection has at least one space.
    #[error(
        "the vector space {} is the only one of its collection and cannot be dropped; add another one first, or drop the collection",
        quoted(.0)
    )]
    Last(String),
    /// No space can be like that.
    #[error(transparent)]
    Config(#[from] ConfigError),
}

impl NamedSpace {
    /// A space of that name.
    pub fn new(name: impl Into<String>, config: DenseConfig) -> NamedSpace {
        NamedSpace { name: name.into(), config, is_dropped: false }
    }

    /// The place of a space that was dropped and had that name. What it was made with is not kept.
    pub fn dropped(name: impl Into<String>) -> NamedSpace {
        NamedSpace { is_dropped: true, ..NamedSpace::new(name, DenseConfig::new(1, Metric::L2)) }
    }
}

impl NamedSparseSpace {
    /// A sparse space of that name.
    pub fn new(name: impl Into<String>) -> NamedSparseSpace {
        NamedSparseSpace { name: name.into(), is_dropped: false }
    }

    /// The place of a sparse space that was dropped and had that name.
    pub fn dropped(name: impl Into<String>) -> NamedSparseSpace {
        NamedSparseSpace { name: name.into(), is_dropped: true }
    }
}

impl NamedConfig {
    /// A collection with these dense spaces and sparse spaces of these names, without quotas and texts.
    pub fn new(spaces: Vec<NamedSpace>, sparse_names: Vec<String>) -> NamedConfig {
        let sparse_spaces = sparse_names.into_iter().map(NamedSparseSpace::new).collect();
        NamedConfig { spaces, sparse_spaces, whole: WholeConfig::default() }
    }

    /// The number of the dense space of that name.
    pub fn number_of(&self, name: &str) -> Option<usize> {
        self.spaces.iter().position(|space| !space.is_dropped && space.name == name)
    }

    /// The number of the sparse space of that name.
    pub fn sparse_number_of(&self, name: &str) -> Option<usize> {
        self.sparse_spaces.iter().position(|space| !space.is_dropped && space.name == name)
    }

    /// The names of the sparse spaces that were not dropped.
    pub fn sparse_names(&self) -> impl Iterator<Item = &str> {
        self.sparse_spaces.iter().filter(|space| !space.is_dropped).map(|space| &space.name[..])
    }

    /// The dense spaces that were not dropped.
    pub fn dense_spaces(&self) -> impl Iterator<Item = &NamedSpace> + Clone {
        self.spaces.iter().filter(|space| !space.is_dropped)
    }

    /// The names of all spaces, the dense ones first, without those that were dropped.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.dense_spaces().map(|space| &space.name[..]).chain(self.sparse_names())
    }

    /// The configuration with one more dense space, which gets the next number.
    ///
    /// # Errors
    /// The name is in use, no number is left, or no space can be like that.
    pub fn with_space(&self, name: &str, config: DenseConfig) -> Result<NamedConfig, SpaceChangeError> {
        self.grown(name, |grown| grown.spaces.push(NamedSpace::new(name, config)))
    }

    /// The configuration with one more sparse space, which gets the next number.
    ///
    /// # Errors
    /// As [`Self::with_space`].
    pub fn with_sparse_space(&self, name: &str) -> Result<NamedConfig, SpaceChangeError> {
        self.grown(name, |grown| grown.sparse_spaces.push(NamedSparseSpace::new(name)))
    }

    fn grown(
        &self,
        name: &str,
        push: impl FnOnce(&mut NamedConfig),
    ) -> Result<NamedConfig, SpaceChangeError> {
        if self.names().any(|other| other == name) {
            return Err(SpaceChangeError::Exists(name.to_owned()));
        }
        if self.spaces.len() + self.sparse_spaces.len() >= SPACES_MAX {
            return Err(SpaceChangeError::TooMany);
        }
        let mut grown = self.clone();
        push(&mut grown);
        grown.validate()?;
        Ok(grown)
    }

    /// The configuration without a dense or sparse space, whose number is never given again, and the number.
    ///
    /// # Errors
    /// There is no such space, or it is the only one.
    pub fn without_space(&self, name: &str) -> Result<(NamedConfig, SpaceNumber), SpaceChangeError> {
        let number = (self.number_of(name).map(SpaceNumber::Dense))
            .or_else(|| self.sparse_number_of(name).map(SpaceNumber::Sparse))
            .ok_or_else(|| SpaceChangeError::Unknown(name.to_owned()))?;
        if self.names().count() == 1 {
            return Err(SpaceChangeError::Last(name.to_owned()));
        }
        let mut left = self.clone();
        match number {
            SpaceNumber::Dense(number) => left.spaces[number] = NamedSpace::dropped(name),
            SpaceNumber::Sparse(number) => left.sparse_spaces[number] = NamedSparseSpace::dropped(name),
        }
        Ok((left, number))
    }

    /// Bytes that one point counts against `max_bytes`, as if it had a vector in every space.
    pub fn quota_bytes_per_point(&self) -> u64 {
        let vectors = self.dense_spaces().map(|space| space.config.quota_bytes_per_point());
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
        let numbers = self.spaces.len() + self.sparse_spaces.len();
        if numbers > SPACES_MAX {
            return refuse(format!(
                "the collection has {numbers} spaces, those that were dropped included; at most {SPACES_MAX} are possible"
            ));
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
        for NamedSpace { name, config, .. } in self.dense_spaces() {
            if let Err(ConfigError(text)) = config.validate() {
                return refuse(format!("space {}: {text}", quoted(name)));
            }
            if config.index == IndexType::Gpu {
                return refuse(format!(
                    "space {}: index_type gpu is for dense collections alone",
                    quoted(name)
                ));
            }
            // A changed text moves the point to a new slot, and its vectors are written there again.
            if config.pq_drop_vecs && self.whole.full_text.is_some() {
                return refuse(format!(
                    "space {}: pq_drop_vecs is not allowed in a collection with full_text",
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
    use crate::collection::Quantizer;
    use crate::quantizer::Quantization;
    use crate::text::TextConfig;

    fn space(name: &str) -> NamedSpace {
        NamedSpace::new(name, DenseConfig::new(8, Metric::L2))
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
        let mut texts = NamedConfig::new(vec![space("a")], vec![]);
        texts.whole.full_text = Some(TextConfig::default());
        assert_eq!(texts.validate(), Ok(()));
        let product = Quantization::Product { parts: 2, bits: 8, rotations: 0, eta: 0.0 };
        let drops = DenseConfig {
            quant: Quantizer::Trained(product),
            pq_drop_vecs: true,
            ..DenseConfig::new(8, Metric::L2)
        };
        let refusal = texts.with_space("b", drops.clone()).unwrap_err().to_string();
        assert!(
            refusal.contains("space \"b\": pq_drop_vecs is not allowed in a collection with full_text"),
            "{refusal}"
        );
        assert!(NamedConfig::new(vec![space("a")], vec![]).with_space("b", drops).is_ok());
        let mut wrong = space("a");
        wrong.config.m = 129;
        let refusal = refused(vec![wrong]);
        assert!(refusal.contains("space \"a\": ") && refusal.contains("invalid M"), "{refusal}");
    }

    #[test]
    fn a_dropped_space_keeps_its_number_and_gives_its_name_back() {
        let two = NamedConfig::new(vec![space("a"), space("b")], vec!["s".to_owned()]);
        let (left, number) = two.without_space("a").unwrap();
        assert_eq!(
            (number, left.number_of("a"), left.number_of("b")),
            (SpaceNumber::Dense(0), None, Some(1))
        );
        assert_eq!(left.names().collect::<Vec<_>>(), ["b", "s"]);
        assert_eq!(
            left.quota_bytes_per_point(),
            NamedConfig::new(vec![space("b")], vec![]).quota_bytes_per_point()
        );
        let again = left.with_space("a", DenseConfig::new(3, Metric::Dot)).unwrap();
        assert_eq!((again.number_of("a"), again.spaces[2].config.dim), (Some(2), 3));
        assert_eq!(again.validate(), Ok(()));
        for (name, refusal) in
            [("b", SpaceChangeError::Exists("b".to_owned())), ("s", SpaceChangeError::Exists("s".to_owned()))]
        {
            assert_eq!(left.with_space(name, DenseConfig::new(3, Metric::Dot)), Err(refusal));
        }
        for name in ["", "a/b", "a#b"] {
            let refused = left.with_space(name, DenseConfig::new(3, Metric::Dot)).unwrap_err();
            assert!(matches!(refused, SpaceChangeError::Config(_)), "{refused}");
        }
        assert_eq!(left.without_space("a"), Err(SpaceChangeError::Unknown("a".to_owned())));
        let (sparse, number) = left.without_space("s").unwrap();
        assert_eq!((number, sparse.sparse_number_of("s")), (SpaceNumber::Sparse(0), None));
        assert_eq!(sparse.names().collect::<Vec<_>>(), ["b"]);
        assert_eq!(sparse.without_space("s"), Err(SpaceChangeError::Unknown("s".to_owned())));
        assert_eq!(sparse.without_space("b"), Err(SpaceChangeError::Last("b".to_owned())));
        let other = sparse.with_sparse_space("s").unwrap();
        assert_eq!((other.sparse_number_of("s"), other.validate()), (Some(1), Ok(())));
        assert_eq!(other.with_sparse_space("b"), Err(SpaceChangeError::Exists("b".to_owned())));
        assert_eq!(
            other.with_space("s", DenseConfig::new(3, Metric::Dot)),
            Err(SpaceChangeError::Exists("s".to_owned()))
        );
        assert!(matches!(other.with_sparse_space("a/b"), Err(SpaceChangeError::Config(_))));
        let only_sparse = other.without_space("b").unwrap().0;
        assert_eq!(only_sparse.without_space("s"), Err(SpaceChangeError::Last("s".to_owned())));
        let only = NamedConfig::new(vec![space("a")], vec![]);
        assert_eq!(only.without_space("a"), Err(SpaceChangeError::Last("a".to_owned())));
        let mut config = only;
        for turn in 0..SPACES_MAX - 1 {
            let (old, new) = (format!("x{turn}"), format!("x{}", turn + 1));
            config = config.with_space(&new, DenseConfig::new(3, Metric::Dot)).unwrap();
            if turn > 0 {
                config = config.without_space(&old).unwrap().0;
            }
        }
        assert_eq!((config.names().count(), config.spaces.len(), config.validate()), (2, SPACES_MAX, Ok(())));
        let refused = config.with_space("more", DenseConfig::new(3, Metric::Dot));
        assert_eq!(refused, Err(SpaceChangeError::TooMany));
        assert_eq!(config.with_sparse_space("more"), Err(SpaceChangeError::TooMany));
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
