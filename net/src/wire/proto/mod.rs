//! Messages of protocol buffers: what an encoder outside of this program has written becomes a message here, within bounds.

mod batch;
mod bounds;
pub mod messages;
mod query;

pub use batch::{NamedUpsertBatchParts, SearchBatchParts, UpsertBatchParts};
pub use query::*;

use crate::op::ApiError;
use prost::Message;
use prost::encoding::decode_varint;

/// A message that may come from a client.
pub trait Bounded: Message + Default {
    /// Its name in errors.
    const NAME: &'static str;
    /// What it may hold at most.
    const BOUNDS: &'static [Bound];
}

/// What one field of a message may hold at most. Fields without a bound are numbers, texts, bytes and lists of floats, which take no
/// more memory than a small multiple of their bytes.
pub struct Bound {
    /// The number of the field.
    pub number: u32,
    /// How many items it may have: 1 where the field is not repeated.
    pub most: usize,
    /// The sentence that refuses more: what comes before and behind the number.
    pub refusal: (&'static str, &'static str),
    /// What an item is.
    pub item: Item,
}

/// What a bounded field is of.
#[derive(Clone, Copy)]
pub enum Item {
    /// An integer, alone or packed with others.
    Integer,
    /// An integer of 32 bits, alone or packed with others. A decoder would cut one of more bits, so that it meant another dimension.
    Index,
    /// A text.
    Text,
    /// A message with these bounds, which may be none.
    Message(&'static [Bound]),
}

impl Bound {
    /// A field with one message, called `name` in errors. Decoders merge a message that is there twice, and with it lists that are each within
    /// their bounds. No encoder writes that.
    pub const fn one(number: u32, name: &'static str, bounds: &'static [Bound]) -> Bound {
        Bound { number, most: 1, refusal: (name, "time in a message"), item: Item::Message(bounds) }
    }
}

/// Bounds of one message. The counts of its lists lie on the stack, because a hostile message may hold millions of others.
const BOUNDS_MAX: usize = 8;

/// Decodes a message.
///
/// The bytes are looked through before: a message in a list has two bytes at least and takes a hundred in memory, an integer one and eight,
/// and the decoder knows no limit but that of depth. What is cut or of no known type is found on the same way and told in our words.
///
/// # Errors
/// A bad request that names the message, and its field where that is wrong.
pub fn decode<M: Bounded>(bytes: &[u8]) -> Result<M, ApiError> {
    check::<M>(bytes, M::BOUNDS)?;
    M::decode(bytes).map_err(|error| malformed::<M>(&in_words(&error.to_string())))
}

/// Decodes a message of type `M` into parts of it that are left as they came.
///
/// # Errors
/// As of [`decode`].
pub fn decode_parts<M: Bounded, P: Message + Default>(bytes: &[u8]) -> Result<P, ApiError> {
    check::<M>(bytes, M::BOUNDS)?;
    decode_part::<M, P>(bytes)
}

/// Decodes a message that lies in an `M`, and was looked through with it.
///
/// # Errors
/// As of [`decode`].
pub fn decode_part<M: Bounded, P: Message + Default>(bytes: &[u8]) -> Result<P, ApiError> {
    P::decode(bytes).map_err(|error| malformed::<M>(&in_words(&error.to_string())))
}

/// An error of the decoder: from the inside out, the fields that it lies in, and what is wrong. Lengths of messages are known to be right, so
/// that what does not end where it must is a packed list.
fn in_words(error: &str) -> String {
    let error = error.strip_prefix("failed to decode Protobuf message: ").unwrap_or(error);
    let cut = ["buffer underflow", "delimited length exceeded", "invalid varint"];
    match cut.into_iter().find_map(|cut| error.strip_suffix(cut)) {
        Some(field) => format!("{field}the list ends within a number"),
        None => error.to_owned(),
    }
}

fn malformed<M: Bounded>(reason: &str) -> ApiError {
    ApiError::invalid(format!("{}: {reason}", M::NAME))
}

fn check<M: Bounded>(mut bytes: &[u8], bounds: &'static [Bound]) -> Result<(), ApiError> {
    let mut counts = [0; BOUNDS_MAX];
    while !bytes.is_empty() {
        let key = varint::<M>(&mut bytes)?;
        let mut field: &[u8] = &[];
        let mut number = 0;
        match key & 7 {
            _ if key >> 3 == 0 => return Err(malformed::<M>("a field without a number")),
            0 => number = varint::<M>(&mut bytes)?,
            1 => drop(take::<M>(&mut bytes, 8)?),
            2 => {
                let len = varint::<M>(&mut bytes)?;
                field = take::<M>(&mut bytes, len)?;
            }
            5 => drop(take::<M>(&mut bytes, 4)?),
            _ => return Err(malformed::<M>("a field of no known type")),
        }
        let Some(index) = bounds.iter().position(|bound| u64::from(bound.number) == key >> 3) else {
            continue;
        };
        let Bound { most, refusal: (before, behind), item, .. } = &bounds[index];
        counts[index] += match item {
            // Of packed ones each ends with the only byte of its own that has no highest bit.
            Item::Integer | Item::Index if key & 7 == 2 => field.iter().filter(|byte| **byte < 0x80).count(),
            _ => 1,
        };
        if counts[index] > *most {
            return Err(ApiError::invalid(format!("{before} at most {most} {behind}")));
        }
        match item {
            Item::Message(bounds) => check::<M>(field, bounds)?,
            Item::Index => check_indices(number, field)?,
            Item::Integer | Item::Text => {}
        }
    }
    Ok(())
}

/// Refuses numbers of more than 32 bits, alone or packed; what is cut is for the decoder to find.
fn check_indices(number: u64, mut packed: &[u8]) -> Result<(), ApiError> {
    let mut most = number;
    while let Ok(index) = decode_varint(&mut packed) {
        most = most.max(index);
    }
    match u32::try_from(most) {
        Ok(_) => Ok(()),
        Err(_) => Err(ApiError::invalid(format!("sparse: the index {most} has more than 32 bits"))),
    }
}

fn varint<M: Bounded>(bytes: &mut &[u8]) -> Result<u64, ApiError> {
    let is_cut = bytes.len() < 10 && bytes.iter().all(|byte| *byte >= 0x80);
    decode_varint(bytes).map_err(|_| {
        malformed::<M>(if is_cut { "truncated" } else { "a number of more than ten bytes or 64 bits" })
    })
}

fn take<'a, M: Bounded>(bytes: &mut &'a [u8], len: u64) -> Result<&'a [u8], ApiError> {
    let len = usize::try_from(len).unwrap_or(usize::MAX);
    let (taken, rest) = bytes.split_at_checked(len).ok_or_else(|| malformed::<M>("truncated"))?;
    *bytes = rest;
    Ok(taken)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::limits::{QUERY_DIMENSIONS_MAX, QUERY_EXAMPLES_MAX, QUERY_LANES_MAX};
    use proptest::prelude::*;

    /// A field of bytes.
    fn field(number: u8, bytes: &[u8]) -> Vec<u8> {
        let mut out = vec![number << 3 | 2];
        prost::encoding::encode_varint(bytes.len() as u64, &mut out);
        out.extend_from_slice(bytes);
        out
    }

    fn lane(leaf: u8, bytes: &[u8]) -> Vec<u8> {
        field(2, &field(leaf, bytes))
    }

    fn refusal(bytes: &[u8]) -> String {
        decode::<QuerySpec>(bytes).expect_err("refused").message
    }

    #[test]
    fn what_is_encoded_is_decoded() {
        let discover = DiscoverLeaf {
            context: vec![ContextPair { positive: vec![1.0], negative: vec![-1.0, 0.5] }],
            context_ids: vec![ContextPairIds { positive: u64::MAX, negative: 0 }],
            target_id: vec![0],
            ..DiscoverLeaf::default()
        };
        let sparse =
            SparseLeaf { indices: vec![1, 300, u32::MAX], values: vec![0.5; 3], ..Default::default() };
        let recommend = RecommendLeaf {
            positive: (0..QUERY_EXAMPLES_MAX as u64).collect(),
            strategy: RecommendStrategy::BestScore.into(),
            ..Default::default()
        };
        let lanes = [Leaf::Discover(discover), Leaf::Sparse(sparse), Leaf::Recommend(recommend)];
        let spec = QuerySpec {
            root: Some(QueryLeaf { leaf: Some(Leaf::Dense(DenseLeaf { k: -1, ..DenseLeaf::default() })) }),
            prefetch: lanes.into_iter().map(|leaf| QueryLeaf { leaf: Some(leaf) }).collect(),
            mode: QueryMode::Rerank.into(),
            alpha: Some(0.0),
            group_by: "key".to_owned(),
            ..QuerySpec::default()
        };
        assert_eq!(decode::<QuerySpec>(&spec.encode_to_vec()).ok(), Some(spec));
    }

    #[test]
    fn lists_end_at_their_bounds() {
        for (number, most, refused) in [
            (2, QUERY_LANES_MAX, "prefetch must hold at most 64 lanes"),
            (8, QUERY_LANES_MAX, "prefetch must hold at most 64 lanes"),
        ] {
            assert!(decode::<QuerySpec>(&field(number, &[]).repeat(most)).is_ok());
            assert_eq!(refusal(&field(number, &[]).repeat(most + 1)), refused);
        }
        for (leaf, number, most, refused) in [
            (2, 1, QUERY_DIMENSIONS_MAX, "a lane may have at most 16384 dimensions"),
            (6, 1, QUERY_EXAMPLES_MAX, "a lane may have at most 256 example ids"),
            (6, 2, QUERY_EXAMPLES_MAX, "a lane may have at most 256 example ids"),
            (7, 5, 1, "a lane may have at most 1 target ids"),
        ] {
            // Packed, in two pieces, one by one; numbers of one byte and of two.
            let halves = |count: usize| {
                [field(number, &vec![1; count / 2]), field(number, &[0x80, 1].repeat(count - count / 2))]
                    .concat()
            };
            let one_by_one = |count: usize| [number << 3, 1].repeat(count);
            for made in [&halves as &dyn Fn(usize) -> Vec<u8>, &one_by_one] {
                assert!(decode::<QuerySpec>(&lane(leaf, &made(most))).is_ok());
                assert_eq!(refusal(&lane(leaf, &made(most + 1))), refused);
                let root = field(1, &field(leaf, &made(most + 1)));
                assert_eq!(refusal(&root), refused);
            }
        }
        // A decoder would merge these.
        let root = field(1, &field(6, &field(1, &[1; 200])));
        assert!(decode::<QuerySpec>(&root).is_ok());
        assert_eq!(refusal(&root.repeat(2)), "a query may have its root at most 1 time in a message");
        let twice = field(6, &field(1, &[1; 200])).repeat(2);
        assert_eq!(refusal(&field(2, &twice)), "a leaf may have its recommend at most 1 time in a message");
        for (leaf, number, what) in
            [(6, 6, "examples"), (6, 7, "examples"), (7, 2, "pairs of examples"), (7, 6, "pairs of examples")]
        {
            let made = |count: usize| lane(leaf, &field(number, &[]).repeat(count));
            assert!(decode::<QuerySpec>(&made(QUERY_EXAMPLES_MAX)).is_ok());
            assert_eq!(refusal(&made(QUERY_EXAMPLES_MAX + 1)), format!("a lane may have at most 256 {what}"));
        }
    }

    #[test]
    fn unknown_fields_are_skipped_and_of_repeated_scalars_the_last_counts() {
        let spec =
            [&[0x38, 5][..], &[0x78, 1], &field(14, b"x"), &[0x79], &[0; 8], &[0x7d], &[0; 4], &[0x38, 7]];
        let spec: QuerySpec = decode(&spec.concat()).unwrap();
        assert_eq!(spec, QuerySpec { k: 7, ..QuerySpec::default() });
    }

    #[test]
    fn refusals_name_what_is_wrong() {
        for (bytes, parts) in [
            (vec![0x80], &["QuerySpec: ", "truncated"][..]),
            (lane(1, &[0x10]), &["QuerySpec: ", "truncated"]),
            (lane(1, &[0x0a, 9]), &["truncated"]),
            (lane(1, &[0x0d, 0, 0]), &["truncated"]),
            (vec![0x02, 0], &["a field without a number"]),
            (lane(1, &[0x0b]), &["a field of no known type"]),
            (lane(1, &[0x11, 0, 0, 0, 0, 0, 0, 0, 0]), &["DenseLeaf.k", "wire type"]),
            (lane(1, &field(3, &[0xff])), &["DenseLeaf.filter_json", "UTF-8"]),
            (field(9, &[0xff]), &["QuerySpec.group_by", "UTF-8"]),
            (lane(1, &field(1, &[0; 7])), &["DenseLeaf.dense", "within a number"]),
            (lane(6, &field(1, &[0x80])), &["RecommendLeaf.positive", "within a number"]),
            (
                lane(6, &[field(1, &[0x80]), vec![0x18, 1]].concat()),
                &["RecommendLeaf.positive", "within a number"],
            ),
        ] {
            let text = refusal(&bytes);
            assert!(parts.iter().all(|part| text.contains(part)), "{text} lacks one of {parts:?}");
        }
    }

    proptest! {
        /// Whatever the bytes are, nothing panics, and what is decoded is within the bounds.
        #[test]
        fn any_bytes(bytes in prop::collection::vec(any::<u8>(), 0..200), leaf in 1..8_u8) {
            for bytes in [bytes.clone(), lane(leaf, &bytes)] {
                if let Ok(spec) = decode::<QuerySpec>(&bytes) {
                    // As bytes, because no NaN is equal to itself.
                    let encoded = spec.encode_to_vec();
                    let again = decode::<QuerySpec>(&encoded).map_err(|error| error.message);
                    prop_assert_eq!(again.map(|spec| spec.encode_to_vec()), Ok(encoded));
                }
            }
        }
    }
}
