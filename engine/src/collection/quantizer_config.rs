//! Which codes of its vectors a collection keeps, and what is configured of them.
use super::config_limits::ConfigError;
use crate::distance::Width;
use crate::quantizer::{CellProduct, Quantization};

/// What is kept beside the vectors of a collection, to walk on.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub enum Quantizer {
    /// Whatever the engine sees fit: see [`DenseConfig::traversal_codes`](super::DenseConfig::traversal_codes).
    #[default]
    None,
    /// Int8 codes, one step for all components, chosen from the vectors: for every metric, unlike a step of 1/127.
    Sq8,
    /// Codes that are learned from the vectors, in the background once there are [`DenseConfig::train_threshold`](super::DenseConfig::train_threshold) of them.
    Trained(Quantization),
}

impl Quantizer {
    /// Its name in configurations.
    pub fn name(self) -> &'static str {
        match self {
            Quantizer::None => "none",
            Quantizer::Sq8 => "sq8",
            Quantizer::Trained(Quantization::Scalar { .. }) => "sq",
            Quantizer::Trained(Quantization::Sign) => "bq1",
            Quantizer::Trained(Quantization::Product { .. }) => "pq",
            Quantizer::Trained(Quantization::Residual { .. }) => "prq",
        }
    }

    /// Parts of a vector for products, where the configuration leaves them at 0: of eight components if that divides `dim`, else
    /// 16, 8, 4, 2 or 1.
    pub fn parts_default(dim: usize) -> usize {
        [dim / 8, 16, 8, 4, 2].into_iter().find(|&parts| parts > 0 && dim.is_multiple_of(parts)).unwrap_or(1)
    }

    pub(super) fn validate(self, dim: usize) -> Result<(), ConfigError> {
        let Quantizer::Trained(quantization) = self else { return Ok(()) };
        let refuse = |reason: String| Err(ConfigError(reason));
        match quantization {
            Quantization::Product { parts, bits, rotations, eta } => {
                validate_product("QuantPQM", &CellProduct { parts, bits, rotations, eta }, dim)
            }
            Quantization::Residual { parts, .. } if parts == 0 || !dim.is_multiple_of(parts) => {
                refuse(not_dividing("QuantPQM", parts, dim))
            }
            Quantization::Residual { layers, .. } if layers == 0 || layers > LAYERS_MAX => {
                refuse(format!("PRQLayers must be in 1..={LAYERS_MAX}, found {layers}"))
            }
            Quantization::Residual { parts, layers, .. } if parts * layers > PARTS_MAX => refuse(format!(
                "QuantPQM must be at most {PARTS_MAX} over all layers, found {parts} in each of {layers}"
            )),
            Quantization::Residual { rotations, .. } => validate_rotations(rotations, dim),
            Quantization::Scalar { width: Width::One } => refuse("invalid Quant mode: sq_bits is 1".into()),
            _ => Ok(()),
        }
    }
}

/// Checks the parameters of product codes of vectors or of residuals. Errors call the number of parts `key`.
pub(super) fn validate_product(key: &str, product: &CellProduct, dim: usize) -> Result<(), ConfigError> {
    let refuse = |reason: String| Err(ConfigError(reason));
    match *product {
        CellProduct { parts, .. } if parts == 0 || !dim.is_multiple_of(parts) => {
            refuse(not_dividing(key, parts, dim))
        }
        CellProduct { bits, .. } if bits != 4 && bits != 8 => {
            refuse(format!("PQNBits must be 4 or 8, found {bits}"))
        }
        CellProduct { rotations, .. } if validate_rotations(rotations, dim).is_err() => {
            validate_rotations(rotations, dim)
        }
        CellProduct { eta, .. } if !(0.0..=f32::MAX).contains(&eta) => {
            refuse(format!("AnisotropicEta must be a number that is not negative, found {eta}"))
        }
        CellProduct { parts, .. } if parts > PARTS_MAX => refuse(format!(
            "{key} must be at most {PARTS_MAX}, found {parts}: a search has a table for each part"
        )),
        CellProduct { parts, eta, .. } if eta > 1.0 && dim / parts > WEIGHED_MAX => refuse(format!(
            "AnisotropicEta must be at most 1 for parts of more than {WEIGHED_MAX} components, and these have {}",
            dim / parts
        )),
        _ => Ok(()),
    }
}

fn not_dividing(key: &str, parts: usize, dim: usize) -> String {
    format!("{key} must be positive and divide Dim: {parts} does not divide {dim}")
}

fn validate_rotations(rotations: usize, dim: usize) -> Result<(), ConfigError> {
    match rotations {
        0..=1 => Ok(()),
        _ if rotations > ROTATIONS_MAX => {
            Err(ConfigError(format!("OPQIters must be in 0..={ROTATIONS_MAX}, found {rotations}")))
        }
        _ if dim > ROTATED_MAX => Err(ConfigError(format!(
            "OPQIters must be at most 1 above {ROTATED_MAX} components: a rotation has their square"
        ))),
        _ => Ok(()),
    }
}

/// Layers of a residual quantizer at most: each is another table of 256 entries a part for every query.
const LAYERS_MAX: usize = 16;
/// Rounds of finding a rotation at most.
const ROTATIONS_MAX: usize = 20;
/// Numbers of a code at most.
const PARTS_MAX: usize = 2048;
/// Components of a vector for which a rotation is learned: the work grows with their cube.
const ROTATED_MAX: usize = 2048;
/// Components of a part whose errors are weighed: each centroid has a matrix of their square.
const WEIGHED_MAX: usize = 64;
