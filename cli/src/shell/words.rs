//! How a line is read: words, quotes and escapes; and how bytes are shown.
use std::fmt::Write;

/// Splits a line into words of any bytes. Words are separated by spaces; `"..."` and `'...'` keep spaces, and in `"..."` and bare
/// words `\n \r \t \0 \\ \" \'`, `\ ` and `\xHH` stand for bytes. In `'...'` nothing does, so JSON can be pasted.
///
/// # Errors
/// A sentence: a quote without an end, an unknown escape.
pub fn split(line: &str) -> Result<Vec<Vec<u8>>, String> {
    let mut words = Vec::new();
    let mut word: Option<Vec<u8>> = None;
    let mut quote = None;
    let mut bytes = line.bytes();
    while let Some(byte) = bytes.next() {
        match (byte, quote) {
            (b' ' | b'\t', None) => words.extend(word.take()),
            (b'"' | b'\'', None) => {
                quote = Some(byte);
                word.get_or_insert_default();
            }
            (byte, Some(open)) if byte == open => quote = None,
            (b'\\', None | Some(b'"')) => {
                let escaped = escape(&mut bytes)?;
                word.get_or_insert_default().push(escaped);
            }
            _ => word.get_or_insert_default().push(byte),
        }
    }
    if quote.is_some() {
        return Err("a quote without an end".into());
    }
    words.extend(word);
    Ok(words)
}

/// The byte that what follows a backslash stands for.
fn escape(bytes: &mut impl Iterator<Item = u8>) -> Result<u8, String> {
    match bytes.next() {
        Some(b'n') => Ok(b'\n'),
        Some(b'r') => Ok(b'\r'),
        Some(b't') => Ok(b'\t'),
        Some(b'0') => Ok(0),
        Some(byte @ (b'\\' | b'"' | b'\'' | b' ')) => Ok(byte),
        Some(b'x') => {
            let mut digit = || bytes.next().and_then(|byte| char::from(byte).to_digit(16));
            match (digit(), digit()) {
                (Some(high), Some(low)) => Ok((high * 16 + low) as u8),
                _ => Err("\\x takes two hexadecimal digits".into()),
            }
        }
        Some(byte) => Err(format!("\\{} is no escape", char::from(byte))),
        None => Err("a backslash at the end".into()),
    }
}

/// `bytes` in quotes, as [`split`] reads them back.
pub fn quoted(bytes: &[u8]) -> String {
    let mut out = String::from("\"");
    for chunk in bytes.utf8_chunks() {
        for character in chunk.valid().chars() {
            match character {
                '"' => out.push_str("\\\""),
                '\\' => out.push_str("\\\\"),
                '\n' => out.push_str("\\n"),
                '\r' => out.push_str("\\r"),
                '\t' => out.push_str("\\t"),
                character if character.is_control() => {
                    let mut buffer = [0; 4];
                    put_hex(&mut out, character.encode_utf8(&mut buffer).as_bytes());
                }
                character => out.push(character),
            }
        }
        put_hex(&mut out, chunk.invalid());
    }
    out.push('"');
    out
}

fn put_hex(out: &mut String, bytes: &[u8]) {
    for byte in bytes {
        // Writing to a String cannot fail.
        let _ = write!(out, "\\x{byte:02x}");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(line: &str, words: &[&[u8]]) {
        assert_eq!(split(line).unwrap(), words, "{line}");
    }

    #[test]
    fn words() {
        check("", &[]);
        check("  get   k ", &[b"get", b"k"]);
        check(r#"put "a key" ''"#, &[b"put", b"a key", b""]);
        check(r#"put k\ 1 "\x00\xfF\n\"" '\x00'"#, &[b"put", b"k 1", b"\0\xff\n\"", b"\\x00"]);
        check(r#"upsert c 1 1,2 '{"a":"b c"}'"#, &[b"upsert", b"c", b"1", b"1,2", br#"{"a":"b c"}"#]);
        check("a\"b c\"d", &[b"ab cd"]);
        check("ä", &["ä".as_bytes()]);
        for bad in ["\"a", "'a", "a\\", "\\q", "\\x1", "\\xgg"] {
            assert!(split(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn what_is_shown_can_be_typed() {
        let every: Vec<u8> = (0..=255).collect();
        for bytes in [&every[..], b"", "ä€\u{85}\0\n\"'\\".as_bytes(), b"plain text"] {
            let shown = quoted(bytes);
            assert!(!shown.chars().any(char::is_control));
            assert_eq!(split(&shown).unwrap(), [bytes], "{shown}");
        }
        assert_eq!(quoted(b"plain"), "\"plain\"");
    }
}
