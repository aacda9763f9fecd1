//! Bytes of tests as text.

/// The bytes that `text` spells, two digits each.
pub fn hex(text: &str) -> Vec<u8> {
    assert!(text.len().is_multiple_of(2), "{text}");
    let digit = |byte: u8| char::from(byte).to_digit(16).expect("a hexadecimal digit") as u8;
    text.as_bytes().chunks(2).map(|pair| 16 * digit(pair[0]) + digit(pair[1])).collect()
}
