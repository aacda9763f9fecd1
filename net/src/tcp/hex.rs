//! Bytes of tests as text.

/// The bytes that `text` spells, two digits each; spaces are for the reader.
pub fn hex(text: &str) -> Vec<u8> {
    let digits: Vec<u8> = text.bytes().filter(|byte| *byte != b' ').collect();
    assert!(digits.len().is_multiple_of(2), "{text}");
    let digit = |byte: u8| char::from(byte).to_digit(16).expect("a hexadecimal digit") as u8;
    digits.chunks(2).map(|pair| 16 * digit(pair[0]) + digit(pair[1])).collect()
}
