//! Cursors: where the next page of a scroll begins, as text that only the server reads.
//!
//! ```text
//! cursor  = base64url without padding of
//!   1 id                                 in the order of ids
//!   2 flags hash number id               one key, numbers
//!   3 flags hash text id                 one key, strings
//!   4 flags hash n:u8 n*(kind:u8 part) id
//! flags   = bit 0: descending (first key)          hash = of the keys, u16
//! kind    = 0 number, 1 datetime, 2 text; bit 7: descending, bit 6: ascending    number = f64   text = len:u16 bytes   id = u64
//! ```
//! Big-endian.

use crate::op::ApiError;
use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use nigh_engine::quoted::quoted;
use nigh_shard::core::{OrderKey, Part, Position};

/// Version byte of a cursor that continues after an id.
const CURSOR_BY_ID: u8 = 1;

/// The cursor that continues after an id.
pub fn by_id(after: u64) -> String {
    let mut bytes = [CURSOR_BY_ID; 9];
    bytes[1..].copy_from_slice(&after.to_be_bytes());
    URL_SAFE_NO_PAD.encode(bytes)
}

/// The id that such a cursor continues after.
///
/// # Errors
/// 400.
pub fn after_id(cursor: &str) -> Result<u64, ApiError> {
    match URL_SAFE_NO_PAD.decode(cursor).as_deref() {
        Ok([CURSOR_BY_ID, id @ ..]) => {
            if let Ok(id) = id.try_into() {
                return Ok(u64::from_be_bytes(id));
            }
        }
        Ok([2..=4, ..]) => {
            return Err(ApiError::invalid(
                "scroll cursor order_by mismatch: the cursor was issued for another order_by",
            ));
        }
        _ => {}
    }
    Err(ApiError::invalid(format!("malformed scroll cursor {}", quoted(cursor))))
}

const NUMBER: u8 = 0;
/// Numbers are written as such, whatever they count; tokens that tell the two apart are read as well.
const DATETIME: u8 = 1;
const TEXT: u8 = 2;
const DESCENDING: u8 = 0x80;
const ASCENDING: u8 = 0x40;

/// FNV-1a of the keys, folded.
fn hash(keys: &[OrderKey]) -> u16 {
    let mut hash = 0x811c_9dc5_u32;
    for (index, key) in keys.iter().enumerate() {
        let separator = (index > 0).then_some(0x1f);
        for byte in separator.into_iter().chain(key.key.bytes()) {
            hash = (hash ^ u32::from(byte)).wrapping_mul(0x0100_0193);
        }
    }
    (hash >> 16) as u16 ^ hash as u16
}

fn version(keys: &[OrderKey]) -> u8 {
    match keys {
        [key] if key.is_string => 3,
        [_] => 2,
        _ => 4,
    }
}

fn kind(key: &OrderKey) -> u8 {
    (if key.is_string { TEXT } else { NUMBER }) | if key.desc { DESCENDING } else { ASCENDING }
}

/// Whether a cursor's kind is that of `key`. One that states no direction, as the interface has it, fits either.
fn is_kind(found: u8, key: &OrderKey) -> bool {
    let direction = found & (DESCENDING | ASCENDING);
    let of_type = match found & !(DESCENDING | ASCENDING) {
        NUMBER | DATETIME => !key.is_string,
        TEXT => key.is_string,
        _ => false,
    };
    of_type && [0, if key.desc { DESCENDING } else { ASCENDING }].contains(&direction)
}

/// The cursor that continues after `position`.
pub fn by_value(keys: &[OrderKey], position: &Position) -> String {
    let mut bytes = vec![version(keys), u8::from(keys[0].desc)];
    bytes.extend_from_slice(&hash(keys).to_be_bytes());
    let several = keys.len() > 1;
    if several {
        bytes.push(keys.len() as u8);
    }
    for (key, part) in keys.iter().zip(&position.parts) {
        if several {
            bytes.push(kind(key));
        }
        match part {
            Part::Number(number) => bytes.extend_from_slice(&number.to_be_bytes()),
            Part::Text(text) => {
                bytes.extend_from_slice(&(text.len() as u16).to_be_bytes());
                bytes.extend_from_slice(text);
            }
        }
    }
    bytes.extend_from_slice(&position.id.to_be_bytes());
    URL_SAFE_NO_PAD.encode(bytes)
}

/// The position of a cursor that was issued for these keys.
///
/// # Errors
/// 400.
pub fn position_of(keys: &[OrderKey], cursor: &str) -> Result<Position, ApiError> {
    let malformed = || ApiError::invalid(format!("malformed scroll cursor {}", quoted(cursor)));
    let other = || {
        ApiError::invalid(
            "scroll cursor order_by mismatch: the cursor was issued for another order_by, or for none",
        )
    };
    let bytes = URL_SAFE_NO_PAD.decode(cursor).map_err(|_| malformed())?;
    let mut rest = &bytes[..];
    let mut take = |n: usize| -> Result<&[u8], ApiError> {
        let (head, tail) = rest.split_at_checked(n).ok_or_else(malformed)?;
        rest = tail;
        Ok(head)
    };
    let found = take(1)?[0];
    if !(1..=4).contains(&found) {
        return Err(malformed());
    }
    let several = keys.len() > 1;
    if found != version(keys)
        || take(1)? != [u8::from(keys[0].desc)]
        || take(2)? != hash(keys).to_be_bytes()
        || (several && usize::from(take(1)?[0]) != keys.len())
    {
        return Err(other());
    }
    let mut parts = Vec::with_capacity(keys.len());
    for key in keys {
        if several && !is_kind(take(1)?[0], key) {
            return Err(other());
        }
        parts.push(if key.is_string {
            let len = u16::from_be_bytes(take(2)?.try_into().map_err(|_| malformed())?);
            Part::Text(take(usize::from(len))?.to_vec())
        } else {
            let number = f64::from_be_bytes(take(8)?.try_into().map_err(|_| malformed())?);
            if number.is_nan() {
                return Err(malformed());
            }
            Part::Number(number)
        });
    }
    let id = u64::from_be_bytes(take(8)?.try_into().map_err(|_| malformed())?);
    if rest.is_empty() { Ok(Position { parts, id }) } else { Err(malformed()) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::op::ErrorKind;
    use proptest::prelude::*;

    #[test]
    fn cursors_read_back() {
        for after in [0, 1, u64::MAX] {
            assert_eq!(after_id(&by_id(after)), Ok(after));
        }
        for bad in ["x", "AQ", "AQAAAAAAAAAAAA", "!!!!", "BQAAAAAAAAAA", &by_id(1)[1..]] {
            assert_eq!(after_id(bad).unwrap_err().kind, ErrorKind::Invalid, "{bad}");
        }
        let ordered = URL_SAFE_NO_PAD.encode([2, 0, 0, 0]);
        assert!(after_id(&ordered).unwrap_err().message.contains("order_by"));
    }

    /// Kinds as the interface has them, without a direction, were taken for those of another order.
    #[test]
    fn cursors_with_the_kinds_of_the_interface() {
        let number =
            |key: &str, desc| OrderKey { key: key.into(), desc, is_string: false, is_datetime: false };
        let keys =
            [number("at", true), number("n", false), OrderKey { is_string: true, ..number("t", true) }];
        let token = |kinds: [u8; 3]| {
            let mut bytes = vec![4, 1];
            bytes.extend_from_slice(&hash(&keys).to_be_bytes());
            bytes.extend_from_slice(&[3, kinds[0]]);
            bytes.extend_from_slice(&5.0_f64.to_be_bytes());
            bytes.push(kinds[1]);
            bytes.extend_from_slice(&(-1.5_f64).to_be_bytes());
            bytes.extend_from_slice(&[kinds[2], 0, 1, b'x', 0, 0, 0, 0, 0, 0, 0, 9]);
            URL_SAFE_NO_PAD.encode(bytes)
        };
        let parts = vec![Part::Number(5.0), Part::Number(-1.5), Part::Text(b"x".to_vec())];
        let position = Position { parts, id: 9 };
        for kinds in [[1, 0, 2], [0, 1, 2], [0x81, 1, 0x82], [0x80, 0x40, 0x82]] {
            assert_eq!(position_of(&keys, &token(kinds)).as_ref(), Ok(&position), "{kinds:?}");
        }
        assert_eq!(by_value(&keys, &position), token([0x80, 0x40, 0x82]));
        for kinds in [[2, 0, 2], [0, 0, 0], [0, 0x80, 2], [0x40, 0, 2], [3, 0, 2], [0xc0, 0, 2]] {
            let error = position_of(&keys, &token(kinds)).unwrap_err();
            assert!(error.message.contains("another order_by"), "{kinds:?}: {error}");
        }
    }

    fn any_key() -> impl Strategy<Value = OrderKey> {
        ("[ab]{1,2}", any::<bool>(), any::<bool>()).prop_map(|(key, desc, is_string)| OrderKey {
            key,
            desc,
            is_string,
            is_datetime: false,
        })
    }

    proptest! {
        #[test]
        fn cursors_read_back_for_their_order_alone(
            keys in prop::collection::vec(any_key(), 1..4),
            others in prop::collection::vec(any_key(), 1..4),
            numbers in prop::collection::vec(prop::num::f64::ANY, 4),
            text in prop::collection::vec(any::<u8>(), 0..40),
            id in any::<u64>(),
        ) {
            let number = |n: f64| Part::Number(if n.is_nan() { 0.0 } else { n });
            let parts = keys.iter().zip(numbers);
            let parts = parts.map(|(key, n)| if key.is_string { Part::Text(text.clone()) } else { number(n) });
            let position = Position { parts: parts.collect(), id };
            let cursor = by_value(&keys, &position);
            prop_assert_eq!(position_of(&keys, &cursor), Ok(position));
            let for_others = position_of(&others, &cursor);
            prop_assert_eq!(for_others.is_ok(), keys == others);
            let bytes = URL_SAFE_NO_PAD.decode(&cursor).unwrap();
            for cut in 0..bytes.len() {
                let cut = URL_SAFE_NO_PAD.encode(&bytes[..cut]);
                prop_assert_eq!(position_of(&keys, &cut).unwrap_err().kind, ErrorKind::Invalid);
            }
            prop_assert!(position_of(&keys, "!").is_err());
        }
    }
}
