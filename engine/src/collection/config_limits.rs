//! How large the numbers of a configuration may be, and the error of one that does not fit.

/// Largest vector length.
pub const DIM_MAX: usize = 65_536;
/// Widest beam, of builds and searches: more than any collection gains by, and what is computed from it cannot overflow.
pub const EF_MAX: usize = 1 << 20;
/// Largest degree.
pub const M_MAX: usize = 128;

/// Why a configuration is refused; text carries the fragment of the interface (`invalid Dim`, `unknown metric "x"` ...).
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("vector: {0}")]
pub struct ConfigError(pub String);
