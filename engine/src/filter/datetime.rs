//! RFC 3339 times.

use jiff::ToSpan;
use jiff::civil::{Date, DateTime};

/// Unix milliseconds of an RFC 3339 date-time such as `2024-02-29T12:00:00.5+01:00`, rounded down.
///
/// Strictly RFC 3339: full date, full time, an offset; `T` and `Z` in either case, any number of fraction digits (those
/// past milliseconds are dropped). A leap second is refused, since Unix time has no place for it. `None` when malformed.
pub fn unix_ms_of_rfc3339(text: &str) -> Option<i64> {
    // The calendar library's own parser reads much more than RFC 3339 (other separators, missing seconds, zone names) and
    // its instants end before the last day of 9999, a common way to say "for ever". So it only does the calendar.
    let (head, tail) = text.as_bytes().split_at_checked(19)?;
    let shape = b"dddd-dd-ddTdd:dd:dd";
    let fits = head.iter().zip(shape).all(|(byte, expected)| match expected {
        b'd' => byte.is_ascii_digit(),
        b'T' => matches!(byte, b'T' | b't'),
        expected => byte == expected,
    });
    if !fits {
        return None;
    }
    let year = i16::try_from(number(&head[..4])).ok()?;
    let part = |at: usize| number(&head[at..at + 2]) as i8;
    let local = DateTime::new(year, part(5), part(8), part(11), part(14), part(17), 0).ok()?;

    let (fraction, offset) = match tail.strip_prefix(b".") {
        Some(rest) => {
            let digits = rest.iter().take_while(|byte| byte.is_ascii_digit()).count();
            if digits == 0 {
                return None;
            }
            rest.split_at(digits)
        }
        None => (&tail[..0], tail),
    };
    let fraction_ms =
        (0..3).fold(0, |ms, at| 10 * ms + fraction.get(at).map_or(0, |digit| digit - b'0') as i64);
    let offset_seconds = match offset {
        [b'Z' | b'z'] => 0,
        [sign @ (b'+' | b'-'), h1, h0, b':', m1, m0] => {
            let digits = [*h1, *h0, *m1, *m0];
            let (hours, minutes) = (number(&digits[..2]), number(&digits[2..]));
            if !digits.iter().all(u8::is_ascii_digit) || hours > 23 || minutes > 59 {
                return None;
            }
            let seconds = i64::from(3600 * hours + 60 * minutes);
            if *sign == b'-' { -seconds } else { seconds }
        }
        _ => return None,
    };
    let epoch = DateTime::constant(1970, 1, 1, 0, 0, 0, 0);
    let seconds = local.duration_since(epoch).as_secs() - offset_seconds;
    Some(1000 * seconds + fraction_ms)
}

/// The date in UTC of so many Unix milliseconds and `days` days, as RFC 3339 writes it. Before the year 0 it is a text below all dates,
/// after 9999 one above them.
pub(super) fn date_text(unix_ms: i64, days: i64) -> String {
    let days = unix_ms.div_euclid(86_400_000) + days;
    match Date::constant(1970, 1, 1).checked_add(days.days()) {
        Ok(date) if date.year() >= 0 => format!("{:04}-{:02}-{:02}", date.year(), date.month(), date.day()),
        Err(_) if days > 0 => ":".into(),
        _ => String::new(),
    }
}

/// Value of at most four decimal digits; anything for other bytes.
fn number(digits: &[u8]) -> u32 {
    digits.iter().fold(0, |value, digit| 10 * value + u32::from(digit.wrapping_sub(b'0')))
}

#[cfg(test)]
mod tests {
    use super::{date_text, unix_ms_of_rfc3339 as parse};

    #[test]
    fn times_are_read() {
        for (text, expected) in [
            ("1970-01-01T00:00:00Z", 0),
            ("1970-01-01T00:00:00.001Z", 1),
            ("1970-01-01T00:00:00.0019999999999Z", 1),
            ("1969-12-31T23:59:59.9999Z", -1),
            ("1970-01-01t01:00:00+01:00", 0),
            ("1970-01-01T00:00:00-00:00", 0),
            ("1969-12-31T16:00:00-08:00", 0),
            ("2024-02-29T12:00:00.5z", 1_709_208_000_500),
            ("0000-01-01T00:00:00Z", -62_167_219_200_000),
            ("9999-12-31T23:59:59.999Z", 253_402_300_799_999),
            ("9999-12-31T23:59:59-23:59", 253_402_387_139_000),
        ] {
            assert_eq!(parse(text), Some(expected), "{text}");
        }
    }

    #[test]
    fn dates_around_times() {
        for (time, days, expected) in [
            ("2024-03-01T00:30:00+01:00", 0, "2024-02-29"),
            ("2024-02-28T23:59:59Z", 2, "2024-03-01"),
            ("1969-12-31T23:59:59Z", -1, "1969-12-30"),
            ("0000-01-01T00:00:00Z", -1, ""),
            ("9999-12-31T00:00:00Z", 1, ":"),
            ("9999-12-31T23:59:59-23:59", -1, "9999-12-31"),
        ] {
            assert_eq!(date_text(parse(time).unwrap(), days), expected, "{time} {days}");
        }
    }

    #[test]
    fn anything_else_is_refused() {
        for text in [
            "",
            "2024-01-01",
            "2024-01-01T00:00Z",
            "2024-01-01T00:00:00",
            "2024-01-01 00:00:00Z",
            "2024-01-01T00:00:00.Z",
            "2024-01-01T00:00:00+1:00",
            "2024-01-01T00:00:00+0100",
            "2024-01-01T00:00:00+24:00",
            "2024-01-01T00:00:00+01:60",
            "2024-01-01T00:00:00Z ",
            " 2024-01-01T00:00:00Z",
            "2023-02-29T00:00:00Z",
            "2024-13-01T00:00:00Z",
            "2024-01-01T24:00:00Z",
            "2016-12-31T23:59:60Z",
            "+002024-01-01T00:00:00Z",
            "2024-01-01T00:00:00Z[UTC]",
            "2024-01-01T00:00:00\u{20ac}",
            "202\u{20ac}-01-01T00:00:00Z",
            "today",
            "1704067200000",
        ] {
            assert_eq!(parse(text), None, "{text}");
        }
    }
}
