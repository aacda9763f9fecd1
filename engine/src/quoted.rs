//! Texts of callers as errors quote them: shortened, since a text may be as long as a request.

use std::fmt;

/// Bytes of a text that an error shows. Enough to recognise it by; the caller has the whole.
const SHOWN_BYTES: usize = 100;

/// A caller's text for an error: in quotes, escaped, and with an ellipsis in place of what is beyond some 100 bytes.
pub fn quoted(text: &str) -> Quoted<'_> {
    Quoted(text)
}

/// See [`quoted`].
#[derive(Clone, Copy)]
pub struct Quoted<'t>(&'t str);

impl fmt::Display for Quoted<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let shown = &self.0[..self.0.floor_char_boundary(SHOWN_BYTES)];
        if shown.len() == self.0.len() {
            return write!(f, "{shown:?}");
        }
        let whole = format!("{shown:?}");
        f.write_str(whole.strip_suffix('"').unwrap_or(&whole))?;
        f.write_str("…\"")
    }
}

#[cfg(test)]
mod tests {
    use super::quoted;

    #[test]
    fn long_texts_are_cut_at_a_whole_character() {
        let check = |text: &str, shown: &str| assert_eq!(quoted(text).to_string(), shown);
        check("", "\"\"");
        check("a \"b\"\n", r#""a \"b\"\n""#);
        check("it's", "\"it's\"");
        check(&"x".repeat(100), &format!("{:?}", "x".repeat(100)));
        check(&"x".repeat(101), &format!("\"{}…\"", "x".repeat(100)));
        check(&"é".repeat(1 << 20), &format!("\"{}…\"", "é".repeat(50)));
        check(&format!("x{}", "é".repeat(50)), &format!("\"x{}…\"", "é".repeat(49)));
        check(&"\0".repeat(1 << 20), &format!("\"{}…\"", "\\0".repeat(100)));
    }
}
