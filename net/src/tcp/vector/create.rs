//! Creating collections: the arguments of `vector_create_collection`.
//!
//! A fixed part, then blocks that may be missing from the end. A reader takes them in this order, each when enough bytes
//! for it are left:
//!
//! ```text
//! fixed  C u32 dim, u8 metric (0 cosine, 1 l2, 2 dot), u32 m, u32 efConstruction, u32 efSearch, i64 seed
//!  1     u8 quant (0 none, 1 sq8, 2 bq1, 3 pq, 4 sq, 5 prq), u8 persistent, u32 rescore
//!  2     u8 extend, u32 extendMax                  3  u8 level0Full             4  u8 quantizedBuild
//!  5     u32 partitions                            6  u8 index (0 hnsw, 1 ivf, 2 vamana, 3 gpu), u32 nlist, u32 nprobe
//!  7     u8 ivfPq, u32 ivfPqM, u8 ivfRerank, only after 6
//!  8     u32 quantPqM                              9  u8 opq                   10  u8 pqDropVecs
//! 11     u32 ivfTrainThreshold                    12  u8 driftRetrain, f64 growth, f64 factor
//! 13     u32 filterFirstRelativeBp                14  u32 opqIters
//! 15     u8 fullText; if set s8 analyzer, f32 k1, f32 b
//! 16     u32 sqBits      17  u32 prqLayers        18  u32 vamanaR, u32 vamanaL, f32 vamanaAlpha, each a block
//! 19     f32 anisotropicEta   20  u8 soar   21  f32 soarLambda   22  u32 pqNbits
//! ```
//! Six bytes behind block 6 can be block 7, or 8, 9 and 10 together: the former where the index is one of cells, which block
//! 7 is about, else the latter. A block that is begun and not finished is an error: no sender leaves one.

use crate::request::{ApiError, CreateCollection};
use crate::rest::collections::{ConfigBody, FullTextBody};
use crate::tcp::reader::{ArgsError, ArgsReader, invalid};
use crate::tcp::vector::parts::collection;

/// A collection to be made, its configuration as that of a JSON body: the same defaults, the same refusals.
///
/// # Errors
/// `args too short`, and what is wrong with a configuration.
pub fn create(args: &mut ArgsReader<'_>) -> Result<CreateCollection, ApiError> {
    let collection = collection(args)?;
    let mut body = fixed(args)?;
    blocks(args, &mut body)?;
    Ok(CreateCollection { collection, config: body.into_config()? })
}

fn named(field: &str, code: u8, names: &[&str]) -> Result<Option<String>, ApiError> {
    match names.get(usize::from(code)) {
        Some(name) => Ok(Some((*name).to_owned())),
        None => Err(ApiError::invalid(format!("vector: invalid {field}: unknown code {code}"))),
    }
}

fn fixed(args: &mut ArgsReader<'_>) -> Result<ConfigBody, ApiError> {
    Ok(ConfigBody {
        dim: number(args, "dim")?,
        metric: named("metric", args.u8("metric")?, &["cosine", "l2", "dot"])?,
        m: number(args, "m")?,
        ef_construction: number(args, "efConstruction")?,
        ef_search: number(args, "efSearch")?,
        seed: Some(args.i64("seed")?),
        ..ConfigBody::default()
    })
}

/// The blocks in their order. A reader that meets the end is done.
fn blocks(args: &mut ArgsReader<'_>, body: &mut ConfigBody) -> Result<(), ApiError> {
    if args.is_empty() {
        return Ok(());
    }
    let quants = ["none", "sq8", "bq1", "pq", "sq", "prq"];
    body.quant = named("quant", args.u8("quant")?, &quants)?;
    body.persistent = flag(args, "persistent")?;
    body.rescore_factor = number(args, "rescore")?;
    if args.is_empty() {
        return Ok(());
    }
    body.extend_candidates = flag(args, "extend")?;
    body.extend_candidates_max = number(args, "extendMax")?;
    if args.is_empty() {
        return Ok(());
    }
    body.level0_full_degree = flag(args, "level0Full")?;
    if args.is_empty() {
        return Ok(());
    }
    body.quantized_build = flag(args, "quantizedBuild")?;
    if args.is_empty() {
        return Ok(());
    }
    body.partitions = number(args, "partitions")?;
    // Fewer bytes are those of block 8 and what follows it.
    if args.remaining() >= 9 {
        index(args, body)?;
    }
    codes(args, body)
}

/// Blocks 6 and 7.
fn index(args: &mut ArgsReader<'_>, body: &mut ConfigBody) -> Result<(), ApiError> {
    const IVF: u8 = 1;
    let code = args.u8("index")?;
    body.index_type = named("index", code, &["hnsw", "ivf", "vamana", "gpu"])?;
    body.ivf_nlist = number(args, "nlist")?;
    body.ivf_nprobe = number(args, "nprobe")?;
    if args.remaining() > 6 || (args.remaining() == 6 && code == IVF) {
        body.ivf_pq = flag(args, "ivfPq")?;
        body.ivf_pq_m = number(args, "ivfPqM")?;
        body.ivf_rerank = flag(args, "ivfRerank")?;
    }
    Ok(())
}

/// Blocks 8 to 15.
fn codes(args: &mut ArgsReader<'_>, body: &mut ConfigBody) -> Result<(), ApiError> {
    if args.is_empty() {
        return Ok(());
    }
    body.quant_pq_m = number(args, "quantPqM")?;
    if args.is_empty() {
        return Ok(());
    }
    body.opq = flag(args, "opq")?;
    if args.is_empty() {
        return Ok(());
    }
    body.pq_drop_vecs = flag(args, "pqDropVecs")?;
    if args.is_empty() {
        return Ok(());
    }
    body.ivf_train_threshold = number(args, "ivfTrainThreshold")?;
    if args.is_empty() {
        return Ok(());
    }
    body.ivf_drift_retrain = flag(args, "driftRetrain")?;
    body.ivf_drift_growth_factor = Some(finite("growth", args.f64("growth")?)?);
    body.ivf_drift_factor = Some(finite("factor", args.f64("factor")?)?);
    if args.is_empty() {
        return Ok(());
    }
    body.filter_first_relative_bp = number(args, "filterFirstRelativeBp")?;
    if args.is_empty() {
        return Ok(());
    }
    body.opq_iters = number(args, "opqIters")?;
    if args.is_empty() {
        return Ok(());
    }
    if args.flag("fullText")? {
        body.full_text = Some(FullTextBody {
            analyzer: Some(args.text8("analyzer")?.to_owned()),
            k1: float(args, "k1")?,
            b: float(args, "b")?,
        });
    }
    later(args, body)
}

/// Blocks 16 to 22.
fn later(args: &mut ArgsReader<'_>, body: &mut ConfigBody) -> Result<(), ApiError> {
    for (field, place) in [
        ("sqBits", &mut body.sq_bits),
        ("prqLayers", &mut body.prq_layers),
        ("vamanaR", &mut body.vamana_r),
        ("vamanaL", &mut body.vamana_l),
    ] {
        if args.is_empty() {
            return Ok(());
        }
        *place = number(args, field)?;
    }
    for (field, place) in
        [("vamanaAlpha", &mut body.vamana_alpha), ("anisotropicEta", &mut body.anisotropic_eta)]
    {
        if args.is_empty() {
            return Ok(());
        }
        *place = float(args, field)?;
    }
    if args.is_empty() {
        return Ok(());
    }
    body.soar = flag(args, "soar")?;
    if args.is_empty() {
        return Ok(());
    }
    body.soar_lambda = float(args, "soarLambda")?;
    if args.is_empty() {
        return Ok(());
    }
    body.pq_nbits = number(args, "pqNbits")?;
    Ok(())
}

fn number(args: &mut ArgsReader<'_>, field: &'static str) -> Result<Option<i64>, ArgsError> {
    Ok(Some(args.u32(field)?.into()))
}

fn flag(args: &mut ArgsReader<'_>, field: &'static str) -> Result<Option<bool>, ArgsError> {
    Ok(Some(args.flag(field)?))
}

/// A float of 32 bits, which is what configurations keep of those that arrive this way.
fn float(args: &mut ArgsReader<'_>, field: &'static str) -> Result<Option<f64>, ApiError> {
    Ok(Some(finite(field, args.f32(field)?.into())?))
}

fn finite(field: &str, number: f64) -> Result<f64, ApiError> {
    match number.is_finite() {
        true => Ok(number),
        false => Err(invalid(field, "not a finite number")),
    }
}
