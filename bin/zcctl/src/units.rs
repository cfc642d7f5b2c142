//! Numbers for people: sizes in binary units, counts with separators, times.
//!
//! Invariant: displayed values are rounded to three digits or more. It does not handle locales; parsing and exact
//! formatting are in [`zc_core::units`].

const UNITS: [(&str, u32); 5] = [("KiB", 10), ("MiB", 20), ("GiB", 30), ("TiB", 40), ("PiB", 50)];

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

const BAR_CELLS: u64 = 30;

/// A bar of which the done part is full.
pub(crate) fn bar(done: u64, whole: u64) -> String {
    let cells = u64::try_from(u128::from(done) * u128::from(BAR_CELLS) / u128::from(whole.max(1)))
        .unwrap_or(BAR_CELLS);
    (0..BAR_CELLS).map(|cell| if cell < cells { '#' } else { '.' }).collect()
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

/// "97.3 %" of `whole`; "-" if `whole` is 0.
pub(crate) fn share(part: u64, whole: u64) -> String {
    (u128::from(part) * 1000)
        .checked_div(u128::from(whole))
        .map_or_else(|| "-".to_owned(), |permille| format!("{}.{} %", permille / 10, permille % 10))
}

/// "2.41 : 1"; "-" if `small` is 0.
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
