//! Numbers for people: sizes in binary units, counts with separators, times.
//!
//! Invariant: parsing is exact or an error; showing rounds to three digits or more. What it does not do: locales.

const UNITS: [(&str, u32); 5] = [("KiB", 10), ("MiB", 20), ("GiB", 30), ("TiB", 40), ("PiB", 50)];

/// Parses "4096", "8 KiB", "2M", "10GiB".
///
/// # Errors
/// One sentence on what is expected.
pub(crate) fn parse_size(text: &str) -> Result<u64, String> {
    let text = text.trim();
    let digits = text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
    let (number, unit) = text.split_at(digits);
    let unit = unit.trim();
    let shift = if unit.is_empty() || unit == "B" {
        Some(0)
    } else {
        UNITS.iter().find(|(name, _)| unit == *name || Some(unit) == name.get(..1)).map(|(_, shift)| *shift)
    };
    let value: Option<u64> = number.parse().ok();
    value
        .zip(shift)
        .and_then(|(value, shift)| value.checked_mul(1 << shift))
        .ok_or_else(|| format!("\"{text}\" is no size; write bytes, or such as 512 KiB, 2 MiB, 10 GiB"))
}

/// Parses "500ms", "90 s", "10min", "1h", "2d" as milliseconds.
///
/// # Errors
/// One sentence on what is expected.
pub(crate) fn parse_duration_ms(text: &str) -> Result<u64, String> {
    let text = text.trim();
    let digits = text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
    let (number, unit) = text.split_at(digits);
    let units = [("ms", 1), ("s", 1000), ("min", 60_000), ("h", 3_600_000), ("d", 86_400_000)];
    let unit = units.iter().find(|(name, _)| unit.trim() == *name);
    let value: Option<u64> = number.parse().ok();
    value
        .zip(unit)
        .and_then(|(value, (_, ms))| value.checked_mul(*ms))
        .ok_or_else(|| format!("\"{text}\" is no time; write such as 500 ms, 90 s, 10 min, 1 h or 2 d"))
}

/// Tenths of a unit, rounded down, without floating point.
fn tenths(value: u64, shift: u32) -> (u64, u64) {
    let whole = value >> shift;
    let rest = value & ((1 << shift) - 1);
    (whole, ((u128::from(rest) * 10) >> shift).try_into().unwrap_or(9))
}

/// "17.3 MiB", "512 B".
pub(crate) fn size(bytes: u64) -> String {
    let fitting = UNITS.iter().rev().find(|(_, shift)| bytes >> shift > 0);
    fitting.map_or_else(
        || format!("{bytes} B"),
        |(name, shift)| {
            let (whole, tenth) = tenths(bytes, *shift);
            format!("{whole}.{tenth} {name}")
        },
    )
}

/// "12,345,678".
pub(crate) fn count(value: u64) -> String {
    let digits = value.to_string();
    let mut out = String::new();
    for (i, digit) in digits.chars().enumerate() {
        if i > 0 && (digits.len() - i).is_multiple_of(3) {
            out.push(',');
        }
        out.push(digit);
    }
    out
}

/// "97.3 %" of `whole`, "-" of nothing.
pub(crate) fn share(part: u64, whole: u64) -> String {
    (u128::from(part) * 1000)
        .checked_div(u128::from(whole))
        .map_or_else(|| "-".to_owned(), |permille| format!("{}.{} %", permille / 10, permille % 10))
}

/// "2.41 : 1", "-" of nothing.
pub(crate) fn ratio(large: u64, small: u64) -> String {
    (u128::from(large) * 100)
        .checked_div(u128::from(small))
        .map_or_else(|| "-".to_owned(), |percent| format!("{}.{:02} : 1", percent / 100, percent % 100))
}

/// "2 d 3 h", "4 min 5 s", "17 ms".
pub(crate) fn duration(ms: u64) -> String {
    let s = ms / 1000;
    match s {
        0 => format!("{ms} ms"),
        1..60 => format!("{s}.{} s", ms % 1000 / 100),
        60..3600 => format!("{} min {} s", s / 60, s % 60),
        3600..86400 => format!("{} h {} min", s / 3600, s / 60 % 60),
        _ => format!("{} d {} h", s / 86400, s / 3600 % 24),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_parsed_or_refused() {
        for (text, bytes) in [("0", 0), ("4096", 4096), ("8 KiB", 8192), ("2M", 2 << 20), (" 7GiB ", 7 << 30)]
        {
            assert_eq!(parse_size(text), Ok(bytes), "{text}");
        }
        for text in ["", "K", "1.5 GiB", "8 kb", "-1", "99999999 PiB"] {
            assert!(parse_size(text).is_err(), "{text}");
        }
    }

    #[test]
    fn times_are_parsed_or_refused() {
        for (text, ms) in
            [("500ms", 500), ("90 s", 90_000), ("10min", 600_000), (" 2 h", 7_200_000), ("1d", 86_400_000)]
        {
            assert_eq!(parse_duration_ms(text), Ok(ms), "{text}");
        }
        for text in ["", "10", "s", "1.5 h", "-1 s", "10 m", "999999999999999 d"] {
            assert!(parse_duration_ms(text).is_err(), "{text}");
        }
    }

    #[test]
    fn numbers_are_shown() {
        assert_eq!(
            [size(0), size(1023), size(1536), size(u64::MAX)],
            ["0 B", "1023 B", "1.5 KiB", "16383.9 PiB"]
        );
        assert_eq!([count(0), count(999), count(1_234_567)], ["0", "999", "1,234,567"]);
        assert_eq!([share(1, 3), share(0, 0)], ["33.3 %", "-"]);
        assert_eq!([ratio(241, 100), ratio(1, 0)], ["2.41 : 1", "-"]);
        assert_eq!(
            [5, 61_000, 3_600_000, 90_000_000].map(duration),
            ["5 ms", "1 min 1 s", "1 h 0 min", "1 d 1 h"]
        );
    }
}
