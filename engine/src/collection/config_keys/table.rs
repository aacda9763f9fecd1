//! The table of keys. Its order is that in which errors list them; switches stand before what they switch on.

use super::super::config::DenseConfig;
use super::super::config_limits::{DIM_MAX, EF_MAX, M_MAX};
use super::super::first_stage::{BITS_MAX, EncodingConfig, FirstStage, REPETITIONS_MAX};
use super::super::index_type::{IndexType, IvfConfig, IvfProduct, VamanaConfig};
use super::super::quantizer_config::Quantizer;
use super::Floats::{AboveOne, Any, FromZero, Positive};
use super::Ints::{Count, OneOf, Within};
use super::{ConfigField, Family, Kind, Value, Word};
use crate::distance::Width;
use crate::payload::TokenCode;
use crate::quantizer::{CellProduct, Quantization};
use crate::text::Analyzer;

/// How a value is read and written.
#[derive(Clone, Copy)]
pub(super) enum Access {
    /// The place that it lies in, to read and to write; `None` where the key does not concern the configuration.
    ConfigField(fn(&mut DenseConfig) -> Option<&mut dyn ConfigField>),
    /// Two functions for a value that no single place holds. `get` is given a copy of the configuration, so that it may share helpers with
    /// `set`, which return places to write to.
    Own { get: fn(&mut DenseConfig) -> Option<Value>, set: fn(&mut DenseConfig, Value) -> bool },
}

/// A row of the table.
pub(super) struct Row {
    pub name: &'static str,
    pub kind: Kind,
    pub about: &'static str,
    pub default: Option<Value>,
    pub families: &'static [Family],
    pub access: Access,
    /// The value with defaults in place, where that differs from what was given.
    pub effective: Option<fn(&DenseConfig) -> Option<Value>>,
    /// Whether the value may change while the collection serves.
    pub is_live: bool,
    /// Whether it is a collection key, which collections of named spaces have as well.
    pub is_of_whole: bool,
}

const fn row(
    name: &'static str,
    kind: Kind,
    place: fn(&mut DenseConfig) -> Option<&mut dyn ConfigField>,
    about: &'static str,
) -> Row {
    let access = Access::ConfigField(place);
    Row {
        name,
        kind,
        about,
        default: None,
        families: &[Family::Dense],
        access,
        effective: None,
        is_live: false,
        is_of_whole: false,
    }
}

impl Row {
    /// Marks a key that dense spaces of named collections and the tokens of multi-vector collections have as well.
    const fn of_spaces(self) -> Row {
        Row { families: &[Family::Dense, Family::Named, Family::MultiVector], ..self }
    }

    /// Marks a key that dense spaces of named collections have as well.
    const fn of_named_spaces(self) -> Row {
        Row { families: &[Family::Dense, Family::Named], ..self }
    }

    /// Marks a key that the tokens of multi-vector collections have as well.
    const fn of_tokens(self) -> Row {
        Row { families: &[Family::Dense, Family::MultiVector], ..self }
    }

    /// Marks a collection key: collections of named spaces have it beside their spaces, and multi-vector collections beside the keys of their tokens.
    const fn of_whole(self) -> Row {
        Row { is_of_whole: true, ..self.of_tokens() }
    }

    /// Marks a key that only multi-vector collections have.
    const fn of_documents(self) -> Row {
        Row { families: &[Family::MultiVector], ..self }
    }

    /// Marks a key whose value may change while the collection serves. Nothing that is stored may depend on it.
    const fn live(self) -> Row {
        Row { is_live: true, ..self }
    }

    const fn or(self, default: Value) -> Row {
        Row { default: Some(default), ..self }
    }

    const fn own(
        self,
        get: fn(&mut DenseConfig) -> Option<Value>,
        set: fn(&mut DenseConfig, Value) -> bool,
    ) -> Row {
        Row { access: Access::Own { get, set }, ..self }
    }

    const fn effective(self, effective: fn(&DenseConfig) -> Option<Value>) -> Row {
        Row { effective: Some(effective), ..self }
    }
}

macro_rules! keys {
    ($($key:ident = $row:expr;)*) => {
        /// A key of a configuration.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
        #[expect(missing_docs, reason = "the table says what each is for")]
        pub enum Key { $($key),* }

        impl Key {
            /// Every key, in the order of the table.
            pub const ALL: &'static [Key] = &[$(Key::$key),*];

            pub(super) fn row(self) -> &'static Row {
                &TABLE[self as usize]
            }
        }

        static TABLE: &[Row] = &[$($row),*];
    };
}

const NATURAL: Kind = Kind::Int(Within(0, i64::MAX as i128));
const INT64: Kind = Kind::Int(Within(i64::MIN as i128, i64::MAX as i128));
const UINT64: Kind = Kind::Int(Within(0, u64::MAX as i128));
const BEAM: Kind = Kind::Int(Count(1, EF_MAX as i128));

keys! {
    Dim = row("dim", Kind::Int(Within(1, DIM_MAX as i128)), |c| Some(&mut c.dim),
        "Components of every vector.").of_spaces();
    FirstStage = row("first_stage", Kind::Words(FIRST_STAGES), |_| None,
        "What finds the documents that are scored. `tokens`: a search of an index of all token vectors for each token of the query. \
         `encodings`: one search of an index that has one vector for each document, its fixed-dimensional encoding (MUVERA). The \
         keys of the index, such as `m` and `quant`, are for the vectors that it holds.").or(Value::Word("tokens"))
        .own(|c| Some(Value::Word(stage_name(c.first_stage))), |c, value| {
            let stage = match value {
                Value::Word("tokens") => FirstStage::Tokens,
                Value::Word("encodings") => FirstStage::Encodings(EncodingConfig::default()),
                _ => return false,
            };
            c.first_stage = stage;
            true
        }).of_documents();
    EncodingRepetitions = row("encoding_repetitions", Kind::Int(Within(0, REPETITIONS_MAX as i128)),
        |c| Some(&mut encodings(c)?.repetitions),
        "Needs `first_stage` `encodings`. The number of repetitions, each with its own random hyperplanes; 0 = 20. \
         An encoding has `encoding_repetitions * 2^encoding_bits * encoding_dim` components, at most 65,536.").of_documents();
    EncodingBits = row("encoding_bits", Kind::Int(Within(0, BITS_MAX as i128)), |c| Some(&mut encodings(c)?.bits),
        "Needs `first_stage` `encodings`. The number of hyperplanes of each repetition, which make `2^encoding_bits` buckets; 0 = 3. Long \
         documents gain by more buckets, short ones by fewer.").of_documents();
    EncodingDim = row("encoding_dim", Kind::Int(Within(0, DIM_MAX as i128)), |c| Some(&mut encodings(c)?.dim),
        "Needs `first_stage` `encodings`. The number of components of each bucket, at most `dim`; 0 = 8, or `dim` if that is less.").of_documents();
    TokenCodes = row("token_codes", Kind::Words(TOKEN_CODES), |_| None,
        "How the token vectors of documents are stored, from which scores are computed. `none`: as floats. `sq8`, `sq4`, `sq2`: as codes of 8, 4 or \
         2 bits per component and 4 bytes per token. Scores, and the vectors that are read back, are then approximations.")
        .or(Value::Word("none"))
        .own(|c| Some(Value::Word(token_code_name(c.token_code))), |c, value| {
            let codes = [TokenCode::Float, TokenCode::Bits8, TokenCode::Bits4, TokenCode::Bits2];
            let code = codes.into_iter().find(|code| value == Value::Word(token_code_name(*code)));
            c.token_code = code.unwrap_or_default();
            code.is_some()
        }).of_documents();
    Metric = row("metric", Kind::Words(METRICS), |c| Some(&mut c.metric),
        "Distance: 1 - cosine, squared Euclidean, or the negated dot product. Empty means `cosine`.")
        .or(Value::Word("cosine")).of_named_spaces();
    M = row("m", Kind::Int(Count(2, M_MAX as i128)), |c| Some(&mut c.m),
        "Most edges of a point on the upper levels of the graph, at least 2; the lowest level has up to three times as many. \
         Below 1 means the default.").or(Value::Int(16)).of_spaces();
    EfConstruction = row("ef_construction", BEAM, |c| Some(&mut c.ef_construction),
        "Candidates that are kept while a point is linked into the graph (the beam). Below 1 means the default.")
        .or(Value::Int(200)).of_spaces();
    EfSearch = row("ef_search", BEAM, |c| Some(&mut c.ef_search),
        "Candidates that a search keeps while it walks the graph (the beam), or `k` if that is larger. Below 1 means the default.")
        .or(Value::Int(64)).of_spaces().live();
    Seed = row("seed", INT64, |c| Some(&mut c.seed),
        "Seed of the random levels of points in the graph, and of the hyperplanes and projections of encodings.").or(Value::Int(0)).of_spaces();
    Quant = row("quant", Kind::Words(QUANTIZERS), |_| None,
        "Codes that searches walk on, kept beside the vectors. `sq8` and `sq`: steps per component. `bq1`: signs of the rotated \
         vector. `pq`: for each part of the vector the nearest pattern. `prq`: the same in layers. Distances in answers stay exact.")
        .own(|c| Some(Value::Word(c.quant.name())), set_quantizer).of_spaces();
    RescoreFactor = row("rescore_factor", NATURAL, |c| Some(&mut with_codes(c)?.rescore_factor),
        "With a quantizer at least this many times `k` candidates are kept and scored exactly; 0 = 3.")
        .effective(|c| Some(natural(c.rescored_per_result()))).of_spaces().live();
    SqBits = row("sq_bits", Kind::Int(OneOf(&[0, 4, 6, 8])), |c| match &mut c.quant {
        Quantizer::Trained(Quantization::Scalar { width }) => Some(width),
        _ => None,
    }, "Bits per component of `sq`; 0 = 8.");
    PrqLayers = row("prq_layers", NATURAL, |c| match &mut c.quant {
        Quantizer::Trained(Quantization::Residual { layers, .. }) => Some(layers),
        _ => None,
    }, "Layers of `prq`, at most 16; 0 = 2.");
    QuantPqM = row("quant_pq_m", NATURAL, |c| match &mut c.quant {
        Quantizer::Trained(Quantization::Product { parts, .. } | Quantization::Residual { parts, .. }) => Some(parts),
        _ => None,
    }, "Number of parts of `pq` and `prq`, a divisor of `dim`. 0 = parts of eight components, else the most of 16, 8, 4, 2 or 1 \
        parts that divide it.");
    PqNbits = row("pq_nbits", Kind::Int(OneOf(&[0, 4, 8])), |c| Some(coded(c)?.bits_and_eta?.0),
        "Bits per part of `pq` and `ivf_pq`; 0 = 8.");
    Opq = row("opq", Kind::Bool, |_| None, "Rotate vectors before `pq`, `prq` or `ivf_pq` encodes them.")
        .own(|c| Some(Value::Bool(*coded(c)?.rotations > 0)), |c, value| match (value, coded(c)) {
            // A random rotation, until `opq_iters` says how many rounds it is improved in.
            (Value::Bool(on), Some(Coded { rotations, .. })) => {
                *rotations = if on { (*rotations).max(1) } else { 0 };
                true
            }
            (value, _) => matches!(value, Value::Bool(_)),
        }).of_spaces();
    OpqIters = row("opq_iters", Kind::Int(Within(0, 20)), |c| Some(coded(c)?.rotations),
        "Rounds in which the rotation of `opq` is improved; with 0 or 1 it is random.").of_spaces();
    PqDropVecs = row("pq_drop_vecs", Kind::Bool, |c| Some(&mut c.pq_drop_vecs),
        "With `pq`: once it is trained, inserts are refused; once all points are linked, the vectors are given up, and distances \
         are those of the codes.").of_spaces();
    AnisotropicEta = row("anisotropic_eta", Kind::Float(FromZero), |c| Some(coded(c)?.bits_and_eta?.1),
        "For `pq` and `ivf_pq`. When codes are chosen, an error in the direction of the vector weighs this many times as much as \
         one across it. Up to 1 both weigh the same.");
    Persistent = row("persistent", Kind::Bool, |c| Some(&mut c.persistent),
        "Keep vectors in a mapped file below `-data`, which may be larger than memory. Needs a quantizer, or `index_type` `ivf`.")
        .of_tokens();
    // Nothing keeps it, because it can only say that there is one.
    Partitions = row("partitions", Kind::Int(Within(0, 1)), |_| None,
        "0 or 1: this build does not divide collections.").of_tokens();
    IndexType = row("index_type", Kind::Words(INDEXES), |_| None,
        "`hnsw`: a graph. `vamana`: a graph whose lowest level is chosen as DiskANN does. `ivf`: the cells of a clustering. `gpu`: plain \
         searches are exact, by a device for `k` up to 256; refused where the server has none. Everything else uses the graph, which \
         is built alongside. A dense collection with `vamana`, `ivf` or `gpu` cannot have `full_text`.").or(Value::Word("hnsw"))
        .own(|c| Some(Value::Word(c.index.name())), set_index).of_spaces();
    IvfNlist = row("ivf_nlist", NATURAL, |c| Some(&mut cells(c)?.nlist),
        "For `index_type` `ivf`. The vectors are divided into this many lists; 0 = four times the square root of the number of \
         points at training.").of_spaces();
    IvfNprobe = row("ivf_nprobe", NATURAL, |c| Some(&mut cells(c)?.nprobe),
        "For `index_type` `ivf`. A search looks through this many lists, and through more until it has `k` results; 0 = 8.")
        .effective(|c| Some(natural(c.ivf()?.probes()))).of_spaces();
    IvfPq = row("ivf_pq", Kind::Bool, |_| None,
        "Needs `index_type` `ivf`. Searches go by product codes of the differences between vectors and the centroids of their \
         lists.")
        .own(|c| Some(Value::Bool(cells(c)?.product.is_some())), set_product_of_cells).of_spaces();
    IvfRerank = row("ivf_rerank", Kind::Bool, |c| Some(&mut cells(c)?.product.as_mut()?.rerank),
        "Needs `index_type` `ivf`. With `ivf_pq` the vectors are kept too, and the best three times `k` candidates are scored \
         exactly. Without this key distances are those of the codes.").of_spaces();
    IvfPqM = row("ivf_pq_m", NATURAL, |c| Some(&mut cells(c)?.product.as_mut()?.code.parts),
        "For `ivf_pq`. A vector is divided into this many parts, a divisor of `dim`. 0 = parts of eight components, else the most \
         of 16, 8, 4, 2 or 1 parts that divide it.").of_spaces();
    IvfTrainThreshold = row("ivf_train_threshold", NATURAL, |c| match (&mut c.index, c.quant) {
        (IndexType::Ivf(ivf), _) => Some(&mut ivf.train_threshold),
        (_, Quantizer::Trained(_)) => Some(&mut c.train_threshold),
        _ => None,
    }, "Number of points at which the lists of `ivf` are made, or `bq1`, `sq`, `pq` and `prq` are trained, in the background; \
        0 = 2,048. Until lists are made, searches compare with every point. A bulk build makes them at once.")
        .effective(|c| Some(natural(c.ivf()?.trains_at()))).of_spaces();
    IvfDriftRetrain = row("ivf_drift_retrain", Kind::Bool, |c| Some(&mut cells(c)?.drift),
        "For `index_type` `ivf`. The centroids are computed anew when the points have moved away from them.").of_spaces();
    IvfDriftGrowthFactor = row("ivf_drift_growth_factor", Kind::Float(AboveOne), |c| Some(&mut cells(c)?.drift.as_mut()?.growth),
        "For `index_type` `ivf`. Drift is measured when the collection has this many times as many points as at the training \
         before; 0 = 2.")
        .effective(|c| Some(Value::Float(c.ivf()?.drift?.limits().0))).of_spaces();
    IvfDriftFactor = row("ivf_drift_factor", Kind::Float(AboveOne), |c| Some(&mut cells(c)?.drift.as_mut()?.factor),
        "For `index_type` `ivf`. The centroids are computed anew when points are this many times as far from them, on average; \
         0 = 1.5.")
        .effective(|c| Some(Value::Float(c.ivf()?.drift?.limits().1))).of_spaces();
    Soar = row("soar", Kind::Bool, |c| Some(&mut cells(c)?.soar),
        "Needs `index_type` `ivf`. Each point is filed in two lists, which raises recall.");
    SoarLambda = row("soar_lambda", Kind::Float(FromZero), |c| Some(cells(c)?.soar.as_mut()?),
        "For `soar`. The larger this is, the more the choice of the second list avoids the direction in which the point lies \
         from the first centroid; 0 = 1.5.")
        .effective(|c| Some(Value::Float(c.ivf()?.spills()?.into())));
    VamanaR = row("vamana_r", NATURAL, |c| Some(&mut vamana(c)?.degree),
        "For `vamana`. A point has at most this many edges, and never more than 256; 0 = 64.");
    VamanaL = row("vamana_l", NATURAL, |c| Some(&mut vamana(c)?.beam),
        "For `vamana`. Builds and searches keep at least this many candidates, not fewer than `vamana_r`; 0 = 100.");
    VamanaAlpha = row("vamana_alpha", Kind::Float(Any), |c| Some(&mut vamana(c)?.alpha),
        "For `vamana`. An edge is left out only if the way over another neighbour is shorter by this factor, at least 1; \
         0 = 1.2.");
    ExtendCandidates = row("extend_candidates", Kind::Bool, |c| Some(&mut c.extend_candidates),
        "Consider neighbours of neighbours as well when a point is linked.");
    ExtendCandidatesMax = row("extend_candidates_max", NATURAL, |c| Some(&mut c.extend_candidates_max),
        "Most neighbours of neighbours that are considered; 0 = all.");
    Level0FullDegree = row("level0_full_degree", Kind::Bool, |c| Some(&mut c.level0_full_degree),
        "Link a new point with `2 m` instead of `m` neighbours on the lowest level.");
    QuantizedBuild = row("quantized_build", Kind::Bool, |c| Some(&mut with_codes(c)?.quantized_build),
        "Needs a quantizer. With `sq` and `bq1` the edges of the graph are chosen by their codes.").of_named_spaces();
    FilterFirstRelativeBp = row("filter_first_relative_bp", Kind::Int(Within(0, 10_000)),
        |c| Some(&mut c.filter_first_relative_bp),
        "A search with a filter may look up this share of all points, in basis points, at least 10,000 points and at most \
         1,000,000, and score them, where that is estimated to be cheaper than walking the graph; 0 = 10,000 points.").of_spaces();
    TraversalCodes = row("traversal_codes", Kind::Bool, |c| Some(&mut c.traversal_codes),
        "Keep codes of one byte per component beside the vectors, and walk and build the graph on them. Distances in answers stay \
         exact.").or(Value::Bool(true));
    FullText = row("full_text", Kind::Object(&[Key::Analyzer, Key::K1, Key::B]), |c| Some(&mut c.full_text),
        "Full text over the content of points. Numbers not above 0 mean the default.").of_whole();
    Analyzer = row("analyzer", Kind::Words(ANALYZERS), |c| Some(&mut c.full_text.as_mut()?.analyzer),
        "How texts are cut into words. A language: stems, without stop words (`tamil` has none). `cjk`: pairs of characters of Chinese, \
         Japanese and Korean, and words of other scripts. `folding`: words without case and diacritics.")
        .or(Value::Word(ANALYZERS[0].name));
    K1 = row("k1", Kind::Float(Positive), |c| Some(&mut c.full_text.as_mut()?.k1),
        "How much a word counts more when it occurs more often (BM25); 0 means the default.").or(Value::Float(1.2));
    B = row("b", Kind::Float(Positive), |c| Some(&mut c.full_text.as_mut()?.b),
        "How much long texts are marked down, 0 to 1 (BM25); 0 means the default, and more than 1 counts as 1.").or(Value::Float(0.75));
    PayloadFormat = row("payload_format", Kind::Words(PAYLOAD_FORMATS), |c| Some(&mut c.payload_format),
        "How payloads are sent and answered. `tagged`: each value says of which kind it is. `plain`: any JSON object, which is answered with \
         the same values; filters address what is inside objects by paths such as `author.name` and `books[].year`.")
        .or(Value::Word("tagged")).of_whole();
    Ids = row("ids", Kind::Words(IDS), |c| Some(&mut c.ids),
        "The kind of ids. `number`: integers of 64 bits. `string`: strings of 1 to 512 bytes, such as UUIDs, which are compared byte by byte and \
         returned as they were sent.")
        .or(Value::Word("number")).of_whole();
    MaxVectors = row("max_vectors", UINT64, |c| Some(&mut c.max_vectors),
        "Most points of the collection; 0 = no limit.").of_whole().live();
    MaxBytes = row("max_bytes", UINT64, |c| Some(&mut c.max_bytes),
        "Most bytes of the collection, counted as `4 dim + 12 m + 32` per point; 0 = no limit. In a collection of named \
         spaces a point counts as `32` plus `4 dim + 12 m` for each dense space. In a multi-vector collection each document counts as `32`, \
         and each token as `4 dim + 12 m + 32`; with encodings each token counts as `4 dim`, and each document also as `4 n + 12 m + 32` \
         for its encoding of `n` components.").of_whole().live();
    MaxInsertsPerSecond = row("max_inserts_per_second", UINT64, |c| Some(&mut c.max_inserts_per_second),
        "Most points or documents written per second, including replacements and changes of single vectors; 0 = no limit. After a pause \
         of a second the writes of one second may come at once. A write that is refused for another reason may count \
         as well.").of_whole().live();
    MaxEfSearch = row("max_ef_search", UINT64, |c| Some(&mut c.max_ef_search),
        "A walk of the graph that asks the filter of each candidate is given up for a scan after `m` times this many refusals, \
         or a quarter of the points if that is more; 0 = 1,024.").of_named_spaces().live();
}

const fn word(name: &'static str, aliases: &'static [&'static str], code: u8) -> Word {
    Word { name, aliases, code }
}

const METRICS: &[Word] =
    &[word("cosine", &[], 0), word("l2", &["euclidean"], 1), word("dot", &["dotproduct", "ip"], 2)];
const QUANTIZERS: &[Word] = &[
    word("none", &[], 0),
    word("sq8", &[], 1),
    word("bq1", &[], 2),
    word("sq", &[], 4),
    word("pq", &[], 3),
    word("prq", &[], 5),
];
const INDEXES: &[Word] = &[
    word("hnsw", &[], 0),
    word("vamana", &["diskann"], 2),
    word("ivf", &["ivf-flat", "ivfflat"], 1),
    word("gpu", &[], 3),
];

const PAYLOAD_FORMATS: &[Word] = &[word("tagged", &[], 0), word("plain", &[], 1)];
const IDS: &[Word] = &[word("number", &[], 0), word("string", &[], 1)];
const FIRST_STAGES: &[Word] = &[word("tokens", &[], 0), word("encodings", &[], 1)];

fn stage_name(stage: FirstStage) -> &'static str {
    match stage {
        FirstStage::Tokens => "tokens",
        FirstStage::Encodings(_) => "encodings",
    }
}

const TOKEN_CODES: &[Word] =
    &[word("none", &[], 0), word("sq8", &[], 1), word("sq4", &[], 2), word("sq2", &[], 3)];

fn token_code_name(code: TokenCode) -> &'static str {
    match code {
        TokenCode::Float => "none",
        TokenCode::Bits8 => "sq8",
        TokenCode::Bits4 => "sq4",
        TokenCode::Bits2 => "sq2",
    }
}

const ANALYZERS: &[Word] = &{
    let mut words = [const { word("", &[], 0) }; Analyzer::ALL.len()];
    let mut at = 0;
    while at < words.len() {
        words[at] = word(Analyzer::ALL[at].name(), &[], at as u8);
        at += 1;
    }
    words
};

fn natural(number: usize) -> Value {
    Value::Int(number as i128)
}

/// The configuration, where it has a quantizer.
fn with_codes(config: &mut DenseConfig) -> Option<&mut DenseConfig> {
    (config.quant != Quantizer::None).then_some(config)
}

fn cells(config: &mut DenseConfig) -> Option<&mut IvfConfig> {
    if let IndexType::Ivf(ivf) = &mut config.index { Some(ivf) } else { None }
}

fn encodings(config: &mut DenseConfig) -> Option<&mut EncodingConfig> {
    if let FirstStage::Encodings(encodings) = &mut config.first_stage { Some(encodings) } else { None }
}

fn vamana(config: &mut DenseConfig) -> Option<&mut VamanaConfig> {
    if let IndexType::Vamana(vamana) = &mut config.index { Some(vamana) } else { None }
}

/// The parameters that product quantizers of vectors and of cells have in common. No valid configuration has both quantizers.
struct Coded<'c> {
    rotations: &'c mut usize,
    /// Bits of a part and weight of errors along the vector, which products in layers do without.
    bits_and_eta: Option<(&'c mut usize, &'c mut f32)>,
}

fn coded(config: &mut DenseConfig) -> Option<Coded<'_>> {
    if let IndexType::Ivf(IvfConfig { product: Some(IvfProduct { code, .. }), .. }) = &mut config.index {
        let CellProduct { rotations, bits, eta, .. } = code;
        return Some(Coded { rotations, bits_and_eta: Some((bits, eta)) });
    }
    match &mut config.quant {
        Quantizer::Trained(Quantization::Product { rotations, bits, eta, .. }) => {
            Some(Coded { rotations, bits_and_eta: Some((bits, eta)) })
        }
        Quantizer::Trained(Quantization::Residual { rotations, .. }) => {
            Some(Coded { rotations, bits_and_eta: None })
        }
        _ => None,
    }
}

/// Bits of a part, unless they are configured.
const BITS_DEFAULT: usize = 8;
/// Layers of a residual quantizer, unless they are configured.
const LAYERS_DEFAULT: usize = 2;

/// A quantizer with its defaults, which other keys then change.
fn set_quantizer(config: &mut DenseConfig, value: Value) -> bool {
    let (parts, bits) = (Quantizer::parts_default(config.indexed_dim()), BITS_DEFAULT);
    let trained = Quantizer::Trained;
    config.quant = match value {
        Value::Word("none") => Quantizer::None,
        Value::Word("sq8") => Quantizer::Sq8,
        Value::Word("bq1") => trained(Quantization::Sign),
        Value::Word("sq") => trained(Quantization::Scalar { width: Width::Eight }),
        Value::Word("pq") => trained(Quantization::Product { parts, bits, rotations: 0, eta: 0.0 }),
        Value::Word("prq") => trained(Quantization::Residual { parts, layers: LAYERS_DEFAULT, rotations: 0 }),
        _ => return false,
    };
    true
}

/// An index with its defaults, which other keys then change.
fn set_index(config: &mut DenseConfig, value: Value) -> bool {
    config.index = match value {
        Value::Word("hnsw") => IndexType::Hnsw,
        Value::Word("vamana") => IndexType::Vamana(VamanaConfig::default()),
        Value::Word("ivf") => IndexType::Ivf(IvfConfig::default()),
        Value::Word("gpu") => IndexType::Gpu,
        _ => return false,
    };
    true
}

fn set_product_of_cells(config: &mut DenseConfig, value: Value) -> bool {
    let parts = Quantizer::parts_default(config.indexed_dim());
    let code = CellProduct { parts, bits: BITS_DEFAULT, rotations: 0, eta: 0.0 };
    match (value, cells(config)) {
        (Value::Bool(on), Some(cells)) => {
            cells.product = on.then_some(IvfProduct { code, rerank: false });
            true
        }
        (value, _) => matches!(value, Value::Bool(_)),
    }
}
