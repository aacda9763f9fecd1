//! The value grammar of flags and environment variables: booleans, integers, durations, byte sizes.
use std::fmt;
use std::time::Duration;

/// `1 t T TRUE true True` and `0 f F FALSE false False`; nothing else.
pub fn parse_bool(text: &str) -> Result<bool, String> {
    match text {
        "1" | "t" | "T" | "TRUE" | "true" | "True" => Ok(true),
        "0" | "f" | "F" | "FALSE" | "false" | "False" => Ok(false),
        _ => Err(format!("{text:?} is not a boolean (true or false)")),
    }
}

/// Decimal, `0x`, `0o` or a leading `0` (octal), `0b`; `_` between digits or after the prefix; a sign in front.
pub fn parse_int(text: &str) -> Result<i64, String> {
    let bad = || format!("{text:?} is not an integer");
    let (negative, unsigned) = match text.as_bytes().first() {
        Some(b'-') => (true, &text[1..]),
        Some(b'+') => (false, &text[1..]),
        _ => (false, text),
    };
    let lower = unsigned.to_ascii_lowercase();
    let (radix, digits, prefixed) = match lower.as_bytes() {
        [b'0', b'x', ..] => (16, &lower[2..], true),
        [b'0', b'o', ..] => (8, &lower[2..], true),
        [b'0', b'b', ..] => (2, &lower[2..], true),
        [b'0', _, ..] => (8, &lower[1..], true),
        _ => (10, lower.as_str(), false),
    };
    // An underscore separates digits: never first (a prefix counts as something before it), last or doubled.
    let stray = digits.ends_with('_') || digits.contains("__") || (!prefixed && digits.starts_with('_'));
    let plain = digits.replace('_', "");
    if stray || plain.is_empty() || plain.starts_with(['+', '-']) {
        return Err(bad());
    }
    let magnitude = i128::from_str_radix(&plain, radix).map_err(|_| bad())?;
    let value = if negative { -magnitude } else { magnitude };
    i64::try_from(value).map_err(|_| format!("{text:?} is out of range"))
}

/// A signed span of time with nanosecond resolution, as flags write it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Span {
    /// Nanoseconds; negative spans parse, and mean "off" wherever zero does.
    pub nanos: i64,
}

impl Span {
    /// The span as a [`Duration`]; `None` when it is zero or negative.
    pub fn positive(self) -> Option<Duration> {
        u64::try_from(self.nanos).ok().filter(|&nanos| nanos > 0).map(Duration::from_nanos)
    }
}

impl fmt::Display for Span {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.nanos < 0 {
            f.write_str("-")?;
        }
        write!(f, "{:?}", Duration::from_nanos(self.nanos.unsigned_abs()))
    }
}

/// A sequence of number and unit (`ns us µs ms s m h`), fractions allowed, a sign in front; `0` needs no unit.
pub fn parse_span(text: &str) -> Result<Span, String> {
    let bad = || format!("{text:?} is not a duration (for example 30s, 1h30m or 50ms)");
    let (negative, mut rest) = match text.as_bytes().first() {
        Some(b'-') => (true, &text[1..]),
        Some(b'+') => (false, &text[1..]),
        _ => (false, text),
    };
    if rest == "0" {
        return Ok(Span::default());
    }
    if rest.is_empty() {
        return Err(bad());
    }
    let mut nanos: i128 = 0;
    while !rest.is_empty() {
        let number_len = rest.find(|c: char| !c.is_ascii_digit() && c != '.').ok_or_else(bad)?;
        let (number, tail) = rest.split_at(number_len);
        let unit_len = tail.find(|c: char| c.is_ascii_digit() || c == '.').unwrap_or(tail.len());
        let (unit, tail) = tail.split_at(unit_len);
        let unit_nanos: i128 = match unit {
            "ns" => 1,
            "us" | "µs" | "μs" => 1_000,
            "ms" => 1_000_000,
            "s" => 1_000_000_000,
            "m" => 60_000_000_000,
            "h" => 3_600_000_000_000,
            _ => return Err(bad()),
        };
        nanos = nanos.checked_add(scale(number, unit_nanos).ok_or_else(bad)?).ok_or_else(bad)?;
        rest = tail;
    }
    let value = if negative { -nanos } else { nanos };
    let nanos = i64::try_from(value).map_err(|_| format!("{text:?} is out of range"))?;
    Ok(Span { nanos })
}

/// `number` (digits with at most one point) times `unit_nanos`, the fraction cut below a nanosecond.
fn scale(number: &str, unit_nanos: i128) -> Option<i128> {
    let (whole, fraction) = number.split_once('.').unwrap_or((number, ""));
    if (whole.is_empty() && fraction.is_empty()) || fraction.contains('.') {
        return None;
    }
    let whole: i128 = if whole.is_empty() { 0 } else { whole.parse().ok()? };
    // Eighteen digits are more than an hour has nanoseconds for; what follows cannot matter.
    let fraction = &fraction[..fraction.len().min(18)];
    let part = match fraction.is_empty() {
        true => 0,
        false => fraction.parse::<i128>().ok()? * unit_nanos / 10i128.pow(fraction.len() as u32),
    };
    whole.checked_mul(unit_nanos)?.checked_add(part)
}

/// Whether the server gives up what it does not need.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Confine {
    /// The server gives it up, as far as the kernel can enforce that.
    On,
    /// The server gives up nothing.
    Off,
    /// A server that the kernel cannot confine does not start.
    Required,
}

/// Reads `on`, `off` or `required`.
pub fn parse_confine(text: &str) -> Result<Confine, String> {
    match text {
        "on" => Ok(Confine::On),
        "off" => Ok(Confine::Off),
        "required" => Ok(Confine::Required),
        _ => Err(format!("{text:?} does not say whether to confine the server (on, off or required)")),
    }
}

/// Longest prefix of metrics; every line repeats it.
const METRICS_PREFIX_MAX_BYTES: usize = 64;

/// What a metric's name may begin with: letters, digits and underscores, no digit first. (Colons are for rules of the reader.)
pub fn parse_metrics_prefix(text: &str) -> Result<String, String> {
    let known = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'_';
    if text.is_empty() || !text.bytes().all(known) || text.starts_with(|first: char| first.is_ascii_digit()) {
        return Err(format!(
            "{text:?} begins no metric's name: letters, digits and underscores, no digit first"
        ));
    }
    if text.ends_with('_') {
        return Err(format!("{text:?} ends with an underscore, and one follows by itself"));
    }
    if text.len() > METRICS_PREFIX_MAX_BYTES {
        return Err(format!("{text:?} is longer than {METRICS_PREFIX_MAX_BYTES} bytes"));
    }
    Ok(text.to_owned())
}

/// A positive byte count: an integer and an optional suffix. `KiB MiB GiB TiB` and `K M G T` are powers of 1024,
/// `KB MB GB TB` powers of 1000, `B` or nothing bytes; any case, spaces before the suffix allowed.
pub fn parse_bytes(text: &str) -> Result<u64, String> {
    let bad = || format!("{text:?} is not a positive byte size (for example 8GiB)");
    let trimmed = text.trim();
    let digits = trimmed.find(|c: char| !c.is_ascii_digit()).unwrap_or(trimmed.len());
    let (number, suffix) = trimmed.split_at(digits);
    let unit: u64 = match suffix.trim_start().to_ascii_lowercase().as_str() {
        "" | "b" => 1,
        "kib" | "k" => 1 << 10,
        "mib" | "m" => 1 << 20,
        "gib" | "g" => 1 << 30,
        "tib" | "t" => 1 << 40,
        "kb" => 1_000,
        "mb" => 1_000_000,
        "gb" => 1_000_000_000,
        "tb" => 1_000_000_000_000,
        _ => return Err(bad()),
    };
    let number: u64 = number.parse().map_err(|_| bad())?;
    let bytes = number.checked_mul(unit).ok_or_else(|| format!("{text:?} is out of range"))?;
    if bytes == 0 { Err(bad()) } else { Ok(bytes) }
}

/// Bytes per second, as [`parse_bytes`] reads them, or 0.
pub fn parse_rate(text: &str) -> Result<u64, String> {
    match text.trim() {
        "0" => Ok(0),
        _ => parse_bytes(text)
            .map_err(|_| format!("{text:?} is not a size in bytes per second (for example 50MiB), or 0")),
    }
}

/// When an acknowledged write is durable.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WalSync {
    /// Before the answer.
    Always,
    /// Within this many milliseconds.
    Interval(u64),
    /// When the kernel pleases.
    None,
}

impl fmt::Display for WalSync {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            WalSync::Always => f.write_str("always"),
            WalSync::Interval(ms) => write!(f, "interval:{ms}"),
            WalSync::None => f.write_str("none"),
        }
    }
}

/// Milliseconds of `interval` without a number.
const WAL_SYNC_INTERVAL_MS: u64 = 1000;

/// `always`, `interval`, `interval:<ms>` or `none`.
pub fn parse_wal_sync(text: &str) -> Result<WalSync, String> {
    match text {
        "always" => return Ok(WalSync::Always),
        "interval" => return Ok(WalSync::Interval(WAL_SYNC_INTERVAL_MS)),
        "none" => return Ok(WalSync::None),
        _ => {}
    }
    text.strip_prefix("interval:")
        .and_then(|ms| ms.parse().ok())
        .filter(|&ms| ms > 0)
        .map(WalSync::Interval)
        .ok_or_else(|| format!("{text:?} is not a sync mode (always, interval, interval:<ms> or none)"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn booleans_take_six_words_each() {
        for word in ["1", "t", "T", "TRUE", "true", "True"] {
            assert_eq!(parse_bool(word), Ok(true), "{word}");
        }
        for word in ["0", "f", "F", "FALSE", "false", "False"] {
            assert_eq!(parse_bool(word), Ok(false), "{word}");
        }
        for word in ["", "yes", "tRUE", " true"] {
            assert!(parse_bool(word).is_err(), "{word}");
        }
    }

    #[test]
    fn integers_take_every_base() {
        let good = [
            ("0", 0),
            ("42", 42),
            ("-7", -7),
            ("+7", 7),
            ("0x1F", 31),
            ("0o17", 15),
            ("017", 15),
            ("0b101", 5),
        ];
        for (text, value) in good {
            assert_eq!(parse_int(text), Ok(value), "{text}");
        }
        assert_eq!(parse_int("1_000_000"), Ok(1_000_000));
        assert_eq!(parse_int("0x_ff"), Ok(255));
        assert_eq!(parse_int("-9223372036854775808"), Ok(i64::MIN));
        for text in
            ["", "-", "0x", "1_", "_1", "1__0", "08", "7.0", "1e3", "+-1", "0x-1", "9223372036854775808"]
        {
            assert!(parse_int(text).is_err(), "{text}");
        }
    }

    #[test]
    fn durations_are_sums_of_units() {
        let good = [
            ("0", 0),
            ("30s", 30_000_000_000),
            ("1h30m", 5_400_000_000_000),
            ("-5s", -5_000_000_000),
            ("1.5ms", 1_500_000),
            (".5s", 500_000_000),
            ("2us", 2_000),
            ("2µs", 2_000),
            ("7ns", 7),
            ("0.3ns", 0),
        ];
        for (text, nanos) in good {
            assert_eq!(parse_span(text), Ok(Span { nanos }), "{text}");
        }
        for text in ["", "-", "5", "s", "1.2.3s", ".s", "1d", "1 s", "9999999h"] {
            assert!(parse_span(text).is_err(), "{text}");
        }
    }

    #[test]
    fn byte_sizes_have_binary_and_decimal_suffixes() {
        let good = [
            ("8GiB", 8 << 30),
            ("8 gib", 8 << 30),
            ("1k", 1024),
            ("1KB", 1000),
            ("3tb", 3_000_000_000_000),
            ("77", 77),
            ("77 B", 77),
        ];
        for (text, bytes) in good {
            assert_eq!(parse_bytes(text), Ok(bytes), "{text}");
        }
        for text in ["", " ", "0", "-1", "1.5GiB", "GiB", "1 G B", "1gigabyte", "99999999999TiB"] {
            assert!(parse_bytes(text).is_err(), "{text}");
        }
    }

    #[test]
    fn rates_may_be_zero() {
        for (text, rate) in [("0", 0), (" 0 ", 0), ("50MiB", 50 << 20), ("1 kb", 1000)] {
            assert_eq!(parse_rate(text), Ok(rate), "{text}");
        }
        for text in ["", "-1", "0.5MiB", "50MiB/s", "fast"] {
            assert!(parse_rate(text).unwrap_err().contains("per second"), "{text}");
        }
    }

    #[test]
    fn sync_modes() {
        assert_eq!(parse_wal_sync("always"), Ok(WalSync::Always));
        assert_eq!(parse_wal_sync("interval"), Ok(WalSync::Interval(1000)));
        assert_eq!(parse_wal_sync("interval:20"), Ok(WalSync::Interval(20)));
        assert_eq!(parse_wal_sync("none"), Ok(WalSync::None));
        for text in ["", "interval:", "interval:0", "interval:1s", "Always"] {
            assert!(parse_wal_sync(text).is_err(), "{text}");
        }
    }

    #[test]
    fn prefixes_of_metrics() {
        for text in ["svc", "a", "_x", "Acme_2_cache", &"p".repeat(64)] {
            assert_eq!(parse_metrics_prefix(text).as_deref(), Ok(text));
        }
        for text in ["", "2x", "a-b", "a:b", "a b", "é", "a_", "_", "a\n", &"p".repeat(65)] {
            assert!(parse_metrics_prefix(text).is_err(), "{text:?}");
        }
    }
}
