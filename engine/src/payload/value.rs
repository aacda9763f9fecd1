//! Tagged payload values.
/// One owned payload value.
#[derive(Clone, Debug, PartialEq)]
pub enum Value {
    /// Explicit null.
    None,
    /// Text.
    String(String),
    /// 64-bit integer.
    Int(i64),
    /// 64-bit float, never NaN from the wire.
    Float(f64),
    /// Boolean.
    Bool(bool),
    /// Array of text.
    Strings(Vec<String>),
    /// Array of integers.
    Ints(Vec<i64>),
    /// Array of floats.
    Floats(Vec<f64>),
    /// Degrees.
    Geo {
        /// Latitude.
        lat: f64,
        /// Longitude.
        lon: f64,
    },
}
/// One value read from a row without copying. (Array accessors over the row's bytes; design is the implementer's,
/// but iteration and `to_owned() -> Value` exist.)
#[derive(Clone, Copy, Debug)]
pub enum ValueRef<'a> {
    /// Explicit null.
    None,
    /// Text.
    String(&'a str),
    /// Integer.
    Int(i64),
    /// Float.
    Float(f64),
    /// Boolean.
    Bool(bool),
    /// Placeholder so the lifetime is used; arrays and geo to be added.
    Strings(&'a [u8]),
}
