//! Large JSON bodies of the form `{"points":[…],…}`, decoded element by element as they arrive.
//!
//! A scanner finds where each element of the array ends (it follows only brackets and strings); the element's bytes go
//! to serde and are then forgotten. So memory holds decoded points and one element of text, never the whole body, and
//! the caller can let other work run between pieces.

use crate::op::ApiError;
use crate::wire::json::{GZIP_MAGIC, compressed, invalid_json};
use nigh_engine::quoted::quoted;

/// What is made of the parts of a body.
pub trait Envelope {
    /// Key of the array.
    const ARRAY: &'static str;
    /// The array starts, perhaps once more: the last of repeated keys wins.
    fn restart(&mut self);
    /// One element of the array.
    ///
    /// # Errors
    /// What is wrong with it.
    fn element(&mut self, json: &[u8]) -> Result<(), ApiError>;
    /// Another key of the body with its value; false = unknown key.
    ///
    /// # Errors
    /// What is wrong with it.
    fn field(&mut self, key: &str, json: &[u8]) -> Result<bool, ApiError>;
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum EnvelopeState {
    Start,
    FirstKeyOrEnd,
    Key,
    Colon,
    Value,
    FirstElementOrEnd,
    Element,
    ElementNext,
    Next,
    End,
}

/// Splits a body as it arrives.
pub struct EnvelopeReader<E> {
    envelope: E,
    state: EnvelopeState,
    key: String,
    /// Bytes not yet consumed; `at` of them are.
    buffer: Vec<u8>,
    at: usize,
    span: Span,
    received: usize,
}

/// Progress inside one value.
#[derive(Clone, Copy, Default)]
struct Span {
    /// Bytes looked at, from the value's start.
    scanned: usize,
    depth: usize,
    in_string: bool,
    escaped: bool,
}

/// Bytes that mean something to the scanner inside an array or object.
const STRUCTURAL: [bool; 256] = {
    let mut table = [false; 256];
    table[b'"' as usize] = true;
    table[b'{' as usize] = true;
    table[b'}' as usize] = true;
    table[b'[' as usize] = true;
    table[b']' as usize] = true;
    table
};

impl Span {
    /// Looks at more of the value that starts `bytes`; its length when it is complete. A scalar is complete only before
    /// the byte that ends it.
    fn advance(&mut self, bytes: &[u8]) -> Option<usize> {
        let mut at = self.scanned;
        while at < bytes.len() {
            if self.escaped {
                self.escaped = false;
                at += 1;
                continue;
            }
            // Nearly all bytes are digits or text; these two loops pass over them.
            let plain = if self.in_string {
                bytes[at..].iter().position(|byte| matches!(byte, b'"' | b'\\'))
            } else if self.depth > 0 {
                bytes[at..].iter().position(|byte| STRUCTURAL[*byte as usize])
            } else {
                Some(0)
            };
            let Some(plain) = plain else {
                at = bytes.len();
                break;
            };
            at += plain;
            match bytes[at] {
                b'\\' if self.in_string => self.escaped = true,
                b'"' if self.in_string => {
                    self.in_string = false;
                    if self.depth == 0 {
                        return Some(at + 1);
                    }
                }
                b'"' if self.depth > 0 || at == 0 => self.in_string = true,
                b'{' | b'[' if self.depth > 0 || at == 0 => self.depth += 1,
                b'}' | b']' if self.depth > 0 => {
                    self.depth -= 1;
                    if self.depth == 0 {
                        return Some(at + 1);
                    }
                }
                b',' | b'}' | b']' | b':' | b'"' | b'{' | b'[' => return Some(at),
                byte if byte.is_ascii_whitespace() => return Some(at),
                _ => {}
            }
            at += 1;
        }
        self.scanned = at;
        None
    }
}

impl<E: Envelope> EnvelopeReader<E> {
    /// Fills `envelope`.
    pub fn new(envelope: E) -> Self {
        EnvelopeReader {
            envelope,
            state: EnvelopeState::Start,
            key: String::new(),
            buffer: Vec::new(),
            at: 0,
            span: Span::default(),
            received: 0,
        }
    }

    /// Takes the next bytes of the body.
    ///
    /// # Errors
    /// `invalid JSON body: …`, or what the envelope refuses.
    pub fn feed(&mut self, bytes: &[u8]) -> Result<(), ApiError> {
        self.received += bytes.len();
        self.buffer.extend_from_slice(bytes);
        while self.step()? {}
        self.buffer.drain(..self.at);
        self.at = 0;
        Ok(())
    }

    /// The filled envelope, once the body has ended.
    ///
    /// # Errors
    /// When it ended too early.
    pub fn finish(mut self) -> Result<E, ApiError> {
        // A scalar at the very end has no byte behind it that ends it; white space changes nothing else.
        self.feed(b" ")?;
        match self.state {
            EnvelopeState::End => Ok(self.envelope),
            EnvelopeState::Start => Err(invalid_json("the body is empty")),
            _ => Err(invalid_json(format_args!("the body ends early, after {} bytes", self.received - 1))),
        }
    }

    /// Consumes one token or value; false = more bytes are needed.
    fn step(&mut self) -> Result<bool, ApiError> {
        while self.buffer.get(self.at).is_some_and(u8::is_ascii_whitespace) && self.span.scanned == 0 {
            self.at += 1;
        }
        let Some(&next) = self.buffer.get(self.at) else { return Ok(false) };
        match (self.state, next) {
            (EnvelopeState::Start, b'{') => self.punctuation(EnvelopeState::FirstKeyOrEnd),
            (EnvelopeState::Start, byte) if byte == GZIP_MAGIC[0] => Err(compressed()),
            (EnvelopeState::Start, _) => self.value(|_, json| match json {
                b"null" => Ok(EnvelopeState::End),
                _ => Err(invalid_json("expected an object")),
            }),
            (EnvelopeState::FirstKeyOrEnd | EnvelopeState::Next, b'}') => {
                self.punctuation(EnvelopeState::End)
            }
            (EnvelopeState::FirstKeyOrEnd | EnvelopeState::Key, b'"') => self.value(|reader, json| {
                reader.key = serde_json::from_slice(json).map_err(invalid_json)?;
                Ok(EnvelopeState::Colon)
            }),
            (EnvelopeState::Colon, b':') => self.punctuation(EnvelopeState::Value),
            (EnvelopeState::Value, b'[') if self.is_array_key() => {
                self.envelope.restart();
                self.punctuation(EnvelopeState::FirstElementOrEnd)
            }
            (EnvelopeState::Value, _) => self.value(|reader, json| {
                if reader.is_array_key() {
                    if json != b"null" {
                        return Err(invalid_json(format_args!("field {:?}: expected an array", E::ARRAY)));
                    }
                } else if !reader.envelope.field(&reader.key, json)? {
                    return Err(invalid_json(format_args!("unknown field {}", quoted(&reader.key))));
                }
                Ok(EnvelopeState::Next)
            }),
            (EnvelopeState::FirstElementOrEnd | EnvelopeState::ElementNext, b']') => {
                self.punctuation(EnvelopeState::Next)
            }
            (EnvelopeState::FirstElementOrEnd | EnvelopeState::Element, _) => self.value(|reader, json| {
                reader.envelope.element(json)?;
                Ok(EnvelopeState::ElementNext)
            }),
            (EnvelopeState::ElementNext, b',') => self.punctuation(EnvelopeState::Element),
            (EnvelopeState::Next, b',') => self.punctuation(EnvelopeState::Key),
            (EnvelopeState::End, _) => Err(invalid_json(self.position("unexpected bytes after the body"))),
            _ => Err(invalid_json(self.position("unexpected character"))),
        }
    }

    fn position(&self, what: &str) -> String {
        let offset = self.received - (self.buffer.len() - self.at);
        format!("{what} {:?} at byte {offset}", char::from(self.buffer[self.at]))
    }

    fn is_array_key(&self) -> bool {
        self.key.eq_ignore_ascii_case(E::ARRAY)
    }

    fn punctuation(&mut self, state: EnvelopeState) -> Result<bool, ApiError> {
        self.at += 1;
        self.state = state;
        Ok(true)
    }

    /// Consumes the value at the front once it is complete.
    fn value(
        &mut self,
        take: impl FnOnce(&mut Self, &[u8]) -> Result<EnvelopeState, ApiError>,
    ) -> Result<bool, ApiError> {
        let Some(length) = self.span.advance(&self.buffer[self.at..]) else { return Ok(false) };
        self.span = Span::default();
        if length == 0 {
            return Err(invalid_json(self.position("unexpected character")));
        }
        // Lent out while the closure has `self`; the closure does not touch the buffer.
        let buffer = std::mem::take(&mut self.buffer);
        let result = take(self, &buffer[self.at..self.at + length]);
        self.buffer = buffer;
        self.state = result?;
        self.at += length;
        Ok(true)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use serde_json::Value;

    #[derive(Default, Debug, PartialEq)]
    struct Sample {
        elements: Vec<Value>,
        fields: Vec<(String, Value)>,
    }

    impl Envelope for Sample {
        const ARRAY: &'static str = "points";
        fn restart(&mut self) {
            self.elements.clear();
        }
        fn element(&mut self, json: &[u8]) -> Result<(), ApiError> {
            self.elements.push(serde_json::from_slice(json).map_err(invalid_json)?);
            Ok(())
        }
        fn field(&mut self, key: &str, json: &[u8]) -> Result<bool, ApiError> {
            self.fields.push((key.to_owned(), serde_json::from_slice(json).map_err(invalid_json)?));
            Ok(key != "nope")
        }
    }

    fn read(body: &[u8], piece: usize) -> Result<Sample, String> {
        let mut reader = EnvelopeReader::new(Sample::default());
        for bytes in body.chunks(piece) {
            reader.feed(bytes).map_err(|error| error.message)?;
        }
        reader.finish().map_err(|error| error.message)
    }

    #[test]
    fn bodies_that_hold() {
        for (body, elements, fields) in [
            (r#"{"points":[1,{"a":"]}\"["},[2,[3]]],"upsert":true}"#, 3, 1),
            (r#" { "upsert" : null , "points" : [ ] } "#, 0, 1),
            (r#"{"points":[1,2],"points":[3]}"#, 1, 0),
            (r#"{"points":null}"#, 0, 0),
            (r#"{"Points":["a\\",null,true,-1.5e3]}"#, 4, 0),
            ("{\"up\\u0073ert\":1}", 0, 1),
            ("{}", 0, 0),
            ("null", 0, 0),
        ] {
            for piece in 1..=body.len() {
                let sample = read(body.as_bytes(), piece).unwrap_or_else(|error| panic!("{body}: {error}"));
                assert_eq!((sample.elements.len(), sample.fields.len()), (elements, fields), "{body}");
            }
        }
    }

    #[test]
    fn bodies_that_do_not() {
        for body in [
            "",
            "  ",
            "[",
            "[]",
            "3",
            "\"points\"",
            "nul",
            "nulll",
            "{",
            "{]",
            "{,}",
            "{\"a\"}",
            "{\"a\":}",
            "{\"a\":1,}",
            "{\"points\":[1,]}",
            "{\"points\":[,1]}",
            "{\"points\":[1 2]}",
            "{\"points\":[1}",
            "{\"points\":[1]",
            "{\"points\":[{\"a\":1]}]}",
            "{\"points\":{}}",
            "{\"points\":3}",
            "{\"nope\":1}",
            "{} x",
            "{}{}",
            "{\"points\":[1]]}",
            "{\"points\":[\"a]}",
            "{\"a\" 1}",
            "{a:1}",
            "{\"points\":[:]}",
            "{\"a\":1\"b\":2}",
        ] {
            for piece in [1, 3, 100] {
                let message = read(body.as_bytes(), piece).expect_err(body);
                assert!(message.starts_with("invalid JSON body: "), "{body}: {message}");
            }
        }
    }

    fn json() -> impl Strategy<Value = Value> {
        let leaf = prop_oneof![
            Just(Value::Null),
            any::<bool>().prop_map(Value::from),
            any::<i32>().prop_map(Value::from),
            (-1e3..1e3_f64).prop_map(Value::from),
            "[\\PC\"\\\\\\]\\[{}, \t]{0,8}".prop_map(Value::from),
        ];
        leaf.prop_recursive(3, 16, 4, |inner| {
            prop_oneof![
                prop::collection::vec(inner.clone(), 0..4).prop_map(Value::from),
                prop::collection::vec(("[\\PC\"]{0,4}", inner), 0..4)
                    .prop_map(|entries| Value::Object(entries.into_iter().collect())),
            ]
        })
    }

    proptest! {
        /// Whatever the elements hold and however the body is cut, the parts come out as serde sees them.
        #[test]
        fn agrees_with_serde(
            elements in prop::collection::vec(json(), 0..6),
            upsert in json(),
            first in any::<bool>(),
            pretty in any::<bool>(),
            piece in 1_usize..40,
        ) {
            let mut body = serde_json::Map::new();
            if first {
                body.insert("upsert".into(), upsert.clone());
            }
            body.insert("points".into(), Value::Array(elements.clone()));
            if !first {
                body.insert("upsert".into(), upsert.clone());
            }
            let text = if pretty { serde_json::to_string_pretty(&body) } else { serde_json::to_string(&body) };
            let sample = read(text.unwrap().as_bytes(), piece);
            prop_assert_eq!(sample, Ok(Sample { elements, fields: vec![("upsert".into(), upsert)] }));
        }

        #[test]
        fn any_bytes_are_answered(text in "[{}\\[\\]\",:\\\\ a1]{0,40}", piece in 1_usize..10) {
            if let Ok(sample) = read(text.as_bytes(), piece) {
                prop_assert!(serde_json::from_str::<Value>(&text).is_ok(), "{} read as {:?}", text, sample);
            }
        }
    }
}
