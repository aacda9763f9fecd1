//! Arrays of numbers as `f32`: the bulk of every JSON body that carries vectors.
//!
//! serde_json has checked the grammar when the text arrives here; what is left is to turn digits into floats, exactly
//! and three to four times faster than through a visitor per number.

/// Powers of ten that `f64` holds exactly.
const EXACT_POWERS: [f64; 23] = [
    1e0, 1e1, 1e2, 1e3, 1e4, 1e5, 1e6, 1e7, 1e8, 1e9, 1e10, 1e11, 1e12, 1e13, 1e14, 1e15, 1e16, 1e17, 1e18,
    1e19, 1e20, 1e21, 1e22,
];

/// Parses a JSON array of numbers, each rounded once to the nearest `f32` (ties to even).
///
/// `json` is one complete, well-formed JSON value.
///
/// # Errors
/// When it is no array, an element is no number, or a number is beyond the range of `f32`; names the element.
pub fn parse_floats(json: &str) -> Result<Vec<f32>, String> {
    let bytes = json.as_bytes();
    if bytes.first() != Some(&b'[') {
        return Err("expected an array of numbers".to_owned());
    }
    // Components take some ten bytes each; a wrong guess costs a few copies.
    let mut values = Vec::with_capacity(bytes.len() / 10 + 1);
    let mut at = 1;
    loop {
        match bytes.get(at) {
            Some(b'-' | b'0'..=b'9') => {
                let (value, end) = parse_number(json, at);
                if !value.is_finite() {
                    return Err(format!(
                        "element {}: {} is out of the range of a 32-bit float",
                        values.len(),
                        &json[at..end]
                    ));
                }
                values.push(value);
                at = end;
            }
            Some(b',' | b' ' | b'\t' | b'\r' | b'\n') => at += 1,
            Some(b']') | None => return Ok(values),
            Some(_) => return Err(format!("element {} is not a number", values.len())),
        }
    }
}

/// The number at `start` (infinite when out of range) and where it ends.
fn parse_number(json: &str, start: usize) -> (f32, usize) {
    let bytes = json.as_bytes();
    let digit_at = |at: usize| bytes.get(at).map(|byte| byte.wrapping_sub(b'0')).filter(|digit| *digit < 10);
    let mut at = start;
    let negative = bytes[at] == b'-';
    at += usize::from(negative);
    let mut mantissa = 0_u64;
    let digits_start = at;
    while let Some(digit) = digit_at(at) {
        mantissa = mantissa.wrapping_mul(10).wrapping_add(u64::from(digit));
        at += 1;
    }
    let mut digits = at - digits_start;
    let mut exponent = 0_i64;
    if bytes.get(at) == Some(&b'.') {
        at += 1;
        let fraction_start = at;
        while let Some(digit) = digit_at(at) {
            mantissa = mantissa.wrapping_mul(10).wrapping_add(u64::from(digit));
            at += 1;
        }
        digits += at - fraction_start;
        exponent = -((at - fraction_start) as i64);
    }
    if matches!(bytes.get(at), Some(b'e' | b'E')) {
        at += 1;
        let minus = bytes.get(at) == Some(&b'-');
        at += usize::from(matches!(bytes.get(at), Some(b'-' | b'+')));
        let mut power = 0_i64;
        while let Some(digit) = digit_at(at) {
            power = (power * 10 + i64::from(digit)).min(1_000_000);
            at += 1;
        }
        exponent += if minus { -power } else { power };
    }
    let value = match exact(mantissa, digits, exponent) {
        Some(value) if negative => -value,
        Some(value) => value,
        // The standard library reads every JSON number and rounds it correctly; too large ones become infinite.
        None => json[start..at].parse().unwrap_or(f32::INFINITY),
    };
    (value, at)
}

/// `mantissa * 10^exponent` as `f32` where plain arithmetic provably rounds it correctly.
///
/// The mantissa and the power are exact in `f64`, so their product or quotient is the true value rounded once (Clinger
/// 1990). Rounding that again to `f32` can only go wrong when the first rounding landed on the middle between two
/// floats, whose spacing is the usual one outside the subnormal range.
fn exact(mantissa: u64, digits: usize, exponent: i64) -> Option<f32> {
    const MIDDLE_MASK: u64 = (1 << 29) - 1;
    const MIDDLE: u64 = 1 << 28;
    if digits > 19 || mantissa >= 1 << 53 {
        return None;
    }
    let power = EXACT_POWERS.get(exponent.unsigned_abs() as usize)?;
    let value = if exponent < 0 { mantissa as f64 / power } else { mantissa as f64 * power };
    let usual = value == 0.0 || (f64::from(f32::MIN_POSITIVE)..=f64::from(f32::MAX)).contains(&value);
    (usual && value.to_bits() & MIDDLE_MASK != MIDDLE).then_some(value as f32)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn one(text: &str) -> Result<f32, String> {
        parse_floats(&format!("[{text}]")).map(|values| {
            assert_eq!(values.len(), 1, "{text}");
            values[0]
        })
    }

    #[test]
    fn arrays() {
        assert_eq!(parse_floats("[]"), Ok(vec![]));
        assert_eq!(parse_floats("[ 1 ,\t-2.5,\n3e2, 0.0, 4E-1 ]"), Ok(vec![1.0, -2.5, 300.0, 0.0, 0.4]));
        assert_eq!(one("-0").map(f32::to_bits), Ok((-0.0_f32).to_bits()));
    }

    #[test]
    fn refusals() {
        for (json, fragment) in [
            ("3", "array"),
            ("{}", "array"),
            ("null", "array"),
            ("[1,null]", "element 1"),
            ("[\"1\"]", "element 0"),
            ("[[1]]", "element 0"),
            ("[true]", "element 0"),
            ("[1,2,1e39]", "element 2: 1e39"),
            ("[-1e400]", "range"),
            ("[3.4028236e38]", "range"),
            ("[1e99999999999999999999]", "range"),
        ] {
            let error = parse_floats(json).expect_err(json);
            assert!(error.contains(fragment), "{json}: {error}");
        }
    }

    /// Numbers whose value lies next to the middle of two floats: rounding to `f64` first gets them wrong.
    #[test]
    fn floats_round_once() {
        for text in [
            "0.1",
            "16777217",
            "16777217.000000001",
            "16777216.999999999",
            "16777219",
            "1.00000005960464477539062",
            "1.00000017881393432617187499",
            "1.000000178813934326171875",
            "7.006492321624085e-46",
            "1e-50",
            "1e-45",
            "1.1754943508222875e-38",
            "1.1754942e-38",
            "3.4028235e38",
            "123456789012345678901234567890",
            "0.000000000000000000000000000001",
            "9007199254740993",
            "0.30000000000000004",
            "-3.5e-10",
            "1e22",
            "1e23",
            "0e999",
            "0.00000000000000000000000000000000000000000000000000001e50",
        ] {
            let expected: f32 = text.parse().unwrap();
            assert_eq!(one(text).map(f32::to_bits), Ok(expected.to_bits()), "{text}");
        }
    }

    proptest! {
        #[test]
        fn shortest_form_reads_back(bits in any::<u32>()) {
            let value = f32::from_bits(bits);
            if value.is_finite() {
                let text = serde_json::to_string(&value).unwrap();
                prop_assert_eq!(one(&text).map(f32::to_bits), Ok(bits));
            }
        }

        #[test]
        fn agrees_with_the_standard_library(text in "-?(0|[1-9][0-9]{0,20})(\\.[0-9]{1,20})?([eE][-+]?[0-9]{1,2})?") {
            let expected: f32 = text.parse().unwrap();
            match one(&text) {
                Ok(value) => prop_assert_eq!(value.to_bits(), expected.to_bits()),
                Err(_) => prop_assert!(expected.is_infinite()),
            }
        }

        /// Around the middle of neighbouring floats, where one rounding and two differ.
        #[test]
        fn agrees_next_to_the_middle(bits in 0x0080_0000_u32..0x7f00_0000, offset in -3_i64..4) {
            let (low, high) = (f64::from(f32::from_bits(bits)), f64::from(f32::from_bits(bits + 1)));
            let middle = f64::from_bits((low.midpoint(high).to_bits() as i64 + offset) as u64);
            let text = format!("{middle:e}");
            let expected: f32 = text.parse().unwrap();
            prop_assert_eq!(one(&text).map(f32::to_bits), Ok(expected.to_bits()));
        }
    }
}
