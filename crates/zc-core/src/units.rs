//! Sizes, shares and durations as people write them: `8 KiB`, `2M`, `30 %`, `500 ms`.
//!
//! Job: parse and print them identically in the configuration, on every command line and in output; printed values
//! parse to the same value.
//!
//! A value is a whole number in decimal digits and a unit, optionally separated by spaces; a fraction is written in
//! the next smaller unit. Case is significant.
//!
//! | Value | Units |
//! |---|---|
//! | [`ByteSize`] | none or `B`: bytes; `KiB`, `MiB`, `GiB`, `TiB`, `PiB` or `K`, `M`, `G`, `T`, `P`: powers of 1024 |
//! | [`ByteSpan`] | two sizes with `-` between them; the second may be missing |
//! | [`Percent`] | `%`, at most 100 |
//! | [`SizeOrShare`] | those of a size, or `%` with at most two decimals |
//! | [`Millis`] | `ms`, `s`, `min`, `h`, `d` |
//! | [`Micros`] | `us`, `ms`, `s` |
//!
//! `KB` is refused rather than guessed at, and so is a duration without a unit.
//!
//! It does not judge whether a value is sensible.

use core::fmt;
use core::ops::Range;
use core::str::FromStr;

const SIZES: [(&str, u64); 6] =
    [("PiB", 1 << 50), ("TiB", 1 << 40), ("GiB", 1 << 30), ("MiB", 1 << 20), ("KiB", 1 << 10), ("B", 1)];
const SHORT_TIMES: [(&str, u64); 3] = [("s", 1_000_000), ("ms", 1000), ("us", 1)];
const TIMES: [(&str, u64); 5] =
    [("d", 86_400_000), ("h", 3_600_000), ("min", 60_000), ("s", 1000), ("ms", 1)];

/// A size in bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct ByteSize(pub u64);

/// A size in bytes, or a share of something.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SizeOrShare {
    /// Bytes.
    Bytes(u64),
    /// Hundredths of a per cent.
    Permyriad(u64),
}

/// Part of a whole, in bytes: `START-END`, or `START-` up to the end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ByteSpan {
    /// Its first byte.
    pub start_bytes: u64,
    /// First byte after the span; `None` for the end of the whole.
    pub end_bytes: Option<u64>,
}

/// A share in per cent, 0 to 100.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Percent(pub u8);

/// A duration in milliseconds.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Millis(pub u64);

/// A short duration in microseconds.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Micros(pub u64);

/// Text that is not a value of the expected kind, or exceeds 64 bits.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{text:?} is not {expected}")]
pub struct Unreadable {
    text: String,
    expected: &'static str,
}

/// Splits `text` into number and unit.
fn split(text: &str) -> Option<(u64, &str)> {
    let text = text.trim();
    let end = text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
    let (digits, unit) = text.split_at_checked(end)?;
    Some((digits.parse().ok()?, unit.trim_start()))
}

fn scaled(text: &str, units: &[(&str, u64)]) -> Option<u64> {
    let (number, unit) = split(text)?;
    let (_, factor) = units.iter().find(|(name, _)| *name == unit)?;
    number.checked_mul(*factor)
}

fn bytes(text: &str) -> Option<u64> {
    let (number, unit) = split(text)?;
    let named = |(name, _): &&(&str, u64)| unit == *name || Some(unit) == name.get(..1);
    let factor = if unit.is_empty() { 1 } else { SIZES.iter().find(named)?.1 };
    number.checked_mul(factor)
}

/// Prints `value` in the largest unit that divides it; the last unit is 1.
fn show(f: &mut fmt::Formatter<'_>, value: u64, units: &[(&str, u64)]) -> fmt::Result {
    let fits = |(_, factor): &&(&str, u64)| value >= *factor && value.is_multiple_of(*factor);
    match units.iter().find(fits).or_else(|| units.last()) {
        Some((unit, factor)) => write!(f, "{} {unit}", value / factor),
        None => write!(f, "{value}"),
    }
}

impl Unreadable {
    fn new(text: &str, expected: &'static str) -> Self {
        Self { text: text.to_owned(), expected }
    }
}

impl ByteSize {
    /// Description of accepted values; it follows "is not" in messages.
    pub const EXPECTED: &str =
        "a size such as \"8 KiB\": a whole number of bytes, or of K, M, G, T or P, KiB to PiB";
}

/// Parses a number with at most two decimals as hundredths, and returns it with the unit after it.
fn hundredths(text: &str) -> Option<(u64, &str)> {
    let (whole, rest) = split(text)?;
    let (decimals, unit) = match rest.strip_prefix('.') {
        Some(rest) => rest.split_at(rest.find(|c: char| !c.is_ascii_digit()).unwrap_or(rest.len())),
        None => ("", rest),
    };
    let tens: u64 = match decimals.len() {
        0 if rest == unit => 0,
        1 => decimals.parse::<u64>().ok()? * 10,
        2 => decimals.parse().ok()?,
        _ => return None,
    };
    Some((whole.checked_mul(100)?.checked_add(tens)?, unit.trim_start()))
}

impl SizeOrShare {
    /// Returns the bytes of this share of a whole.
    #[must_use]
    pub fn of(self, whole_bytes: u64) -> u64 {
        match self {
            Self::Bytes(bytes) => bytes,
            Self::Permyriad(share) => {
                let bytes = u128::from(whole_bytes) * u128::from(share) / 10_000;
                u64::try_from(bytes).unwrap_or(u64::MAX)
            }
        }
    }

    /// Description of accepted values; it follows "is not" in messages.
    pub const EXPECTED: &str = "a size such as \"10 GiB\" or a share such as \"5 %\"";
}

impl Percent {
    /// Description of accepted values; it follows "is not" in messages.
    pub const EXPECTED: &str = "a share from \"0 %\" to \"100 %\"";

    /// Returns a share of `number` per cent, or `None` above 100.
    #[must_use]
    pub fn new(number: u64) -> Option<Self> {
        u8::try_from(number).ok().filter(|percent| *percent <= 100).map(Self)
    }
}

impl Millis {
    /// Description of accepted values; it follows "is not" in messages.
    pub const EXPECTED: &str = "a duration such as \"30 s\": a whole number of ms, s, min, h or d";
}

impl Micros {
    /// Description of accepted values; it follows "is not" in messages.
    pub const EXPECTED: &str = "a duration such as \"100 us\": a whole number of us, ms or s";
}

impl FromStr for ByteSize {
    type Err = Unreadable;

    fn from_str(text: &str) -> Result<Self, Unreadable> {
        bytes(text).map(Self).ok_or_else(|| Unreadable::new(text, Self::EXPECTED))
    }
}

impl FromStr for ByteSpan {
    type Err = Unreadable;

    fn from_str(text: &str) -> Result<Self, Unreadable> {
        let wrong = || Unreadable::new(text, "a range such as \"10GiB-12GiB\" or \"10GiB-\"");
        let (start, end) = text.split_once('-').ok_or_else(wrong)?;
        let start_bytes = bytes(start).ok_or_else(wrong)?;
        let end_bytes = if end.trim().is_empty() { None } else { Some(bytes(end).ok_or_else(wrong)?) };
        if end_bytes.is_some_and(|end| end <= start_bytes) {
            return Err(Unreadable::new(text, "a range: its end is not behind its start"));
        }
        Ok(Self { start_bytes, end_bytes })
    }
}

impl FromStr for SizeOrShare {
    type Err = Unreadable;

    fn from_str(text: &str) -> Result<Self, Unreadable> {
        let read = match hundredths(text) {
            Some((share, "%")) => Some(Self::Permyriad(share)),
            _ => bytes(text).map(Self::Bytes),
        };
        read.ok_or_else(|| Unreadable::new(text, Self::EXPECTED))
    }
}

impl FromStr for Percent {
    type Err = Unreadable;

    fn from_str(text: &str) -> Result<Self, Unreadable> {
        let number = split(text).filter(|(_, unit)| *unit == "%").and_then(|(number, _)| Self::new(number));
        number.ok_or_else(|| Unreadable::new(text, Self::EXPECTED))
    }
}

impl FromStr for Millis {
    type Err = Unreadable;

    fn from_str(text: &str) -> Result<Self, Unreadable> {
        scaled(text, &TIMES).map(Self).ok_or_else(|| Unreadable::new(text, Self::EXPECTED))
    }
}

impl FromStr for Micros {
    type Err = Unreadable;

    fn from_str(text: &str) -> Result<Self, Unreadable> {
        scaled(text, &SHORT_TIMES).map(Self).ok_or_else(|| Unreadable::new(text, Self::EXPECTED))
    }
}

impl fmt::Display for ByteSize {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        show(f, self.0, &SIZES)
    }
}

impl ByteSpan {
    /// Returns the bytes of the span within a whole; empty if it starts after the end.
    #[must_use]
    pub fn of(self, whole_bytes: u64) -> Range<u64> {
        let end = self.end_bytes.unwrap_or(whole_bytes).min(whole_bytes);
        self.start_bytes.min(end)..end
    }
}

impl fmt::Display for ByteSpan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}-", ByteSize(self.start_bytes))?;
        self.end_bytes.map_or(Ok(()), |end| ByteSize(end).fmt(f))
    }
}

impl fmt::Display for SizeOrShare {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Bytes(bytes) => ByteSize(*bytes).fmt(f),
            Self::Permyriad(share) => match (share / 100, share % 100) {
                (whole, 0) => write!(f, "{whole} %"),
                (whole, tenths) if tenths % 10 == 0 => write!(f, "{whole}.{} %", tenths / 10),
                (whole, hundredths) => write!(f, "{whole}.{hundredths:02} %"),
            },
        }
    }
}

impl fmt::Display for Percent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} %", self.0)
    }
}

impl fmt::Display for Millis {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        show(f, self.0, &TIMES)
    }
}

impl fmt::Display for Micros {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        show(f, self.0, &SHORT_TIMES)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn sizes_are_read_or_refused() {
        for (text, bytes) in [
            ("0", 0),
            ("512", 512),
            (" 7  B ", 7),
            ("8 KiB", 8192),
            ("4K", 4096),
            ("2MiB", 2 << 20),
            ("2 M", 2 << 20),
            (" 7GiB ", 7 << 30),
            ("1 TiB", 1 << 40),
            ("3P", 3 << 50),
        ] {
            assert_eq!(text.parse(), Ok(ByteSize(bytes)), "{text}");
        }
        for bad in [
            "",
            "KiB",
            "K",
            "8 KB",
            "8 kib",
            "8k",
            "4iB",
            "4Ki",
            "1X",
            "2MM",
            "-1",
            "+1",
            "1.5 MiB",
            "8 KiB x",
            "16384 PiB",
            "18446744073709551616",
            "30 %",
            "\u{663}",
        ] {
            bad.parse::<ByteSize>().expect_err(bad);
        }
    }

    #[test]
    fn durations_and_shares_are_read_or_refused() {
        for (text, ms) in
            [("500ms", 500), ("30s", 30_000), ("5 min", 300_000), (" 2 h", 7_200_000), ("1d", 86_400_000)]
        {
            assert_eq!(text.parse(), Ok(Millis(ms)), "{text}");
        }
        for bad in ["", "30", "30 S", "10 m", "1 w", "ms", "1.5 h", "-1 s", "18446744073709551615 s"] {
            bad.parse::<Millis>().expect_err(bad);
        }
        assert_eq!(("2 ms".parse(), "50us".parse()), (Ok(Micros(2000)), Ok(Micros(50))));
        "1 min".parse::<Micros>().unwrap_err();
        assert_eq!("100%".parse(), Ok(Percent(100)));
        for bad in ["101 %", "50", "356 %", "%", "12.5 %"] {
            bad.parse::<Percent>().expect_err(bad);
        }
    }

    #[test]
    fn a_refusal_says_what_is_accepted() {
        assert_eq!(
            "8 KB".parse::<ByteSize>().unwrap_err().to_string(),
            "\"8 KB\" is not a size such as \"8 KiB\": a whole number of bytes, or of K, M, G, T or P, KiB to PiB"
        );
        assert_eq!(
            "90".parse::<Millis>().unwrap_err().to_string(),
            "\"90\" is not a duration such as \"30 s\": a whole number of ms, s, min, h or d"
        );
    }

    #[test]
    fn ranges_have_units_and_may_be_open() {
        let span_of = |text: &str| text.parse::<ByteSpan>().map(|span| span.of(1 << 40));
        assert_eq!(span_of("0-4096"), Ok(0..4096));
        assert_eq!(span_of("1MiB - 2 MiB"), Ok(1 << 20..2 << 20));
        assert_eq!(span_of("1GiB-"), Ok(1 << 30..1 << 40));
        assert_eq!(span_of("1 MiB-2 TiB"), Ok(1 << 20..1 << 40));
        assert!(span_of("3TiB-").unwrap().is_empty());
        for wrong in ["", "4096", "2MiB-1MiB", "5-5", "a-b", "-5", "5--"] {
            assert!(span_of(wrong).is_err(), "{wrong}");
        }
        for shown in ["0 B-64 MiB", "1536 KiB-", "1 B-2 B"] {
            assert_eq!(shown.parse::<ByteSpan>().unwrap().to_string(), shown);
        }
    }

    #[test]
    fn the_largest_exact_unit_is_shown() {
        assert_eq!(ByteSize(3 << 20).to_string(), "3 MiB");
        assert_eq!(ByteSize(1025).to_string(), "1025 B");
        assert_eq!(ByteSize(0).to_string(), "0 B");
        assert_eq!(Millis(90_000).to_string(), "90 s");
        assert_eq!(Millis(120_000).to_string(), "2 min");
        assert_eq!(Millis(0).to_string(), "0 ms");
        assert_eq!((Micros(0).to_string(), Micros(1000).to_string()), ("0 us".to_owned(), "1 ms".to_owned()));
    }

    #[test]
    fn shares_have_at_most_two_decimals() {
        for (text, share) in
            [("0.5 %", 50), ("12.25%", 1225), ("5 %", 500), ("0.05 %", 5), ("100.0 %", 10_000)]
        {
            assert_eq!(text.parse(), Ok(SizeOrShare::Permyriad(share)), "{text}");
        }
        for text in ["0.125 %", ".5 %", "5. %", "0.5", "0.5 GiB", "1.5.5 %", "0.-5 %"] {
            text.parse::<SizeOrShare>().unwrap_err();
        }
        assert_eq!(SizeOrShare::Permyriad(50).of(1 << 30), 5_368_709);
        assert_eq!(SizeOrShare::Permyriad(10_000).of(u64::MAX), u64::MAX);
        assert_eq!(SizeOrShare::Bytes(7).of(1 << 30), 7);
    }

    proptest! {
        #[test]
        fn what_is_shown_reads_back(value: u64, unit in 0_u32..50, percent in 0_u8..=100) {
            // Any number, and one that a large unit divides.
            for value in [value, value >> unit << unit] {
                prop_assert_eq!(ByteSize(value).to_string().parse(), Ok(ByteSize(value)));
                prop_assert_eq!(Millis(value).to_string().parse(), Ok(Millis(value)));
                prop_assert_eq!(Micros(value).to_string().parse(), Ok(Micros(value)));
                for size in [SizeOrShare::Bytes(value), SizeOrShare::Permyriad(value)] {
                    prop_assert_eq!(size.to_string().parse(), Ok(size));
                }
            }
            prop_assert_eq!(Percent(percent).to_string().parse(), Ok(Percent(percent)));
        }

        #[test]
        fn any_text_is_read_without_panic(text in ".{0,40}") {
            let size = text.parse::<ByteSize>();
            prop_assert!(size.is_err() || text.contains(|c: char| c.is_ascii_digit()));
            // Every size and every share is accepted where both are allowed.
            let either = text.parse::<SizeOrShare>().is_ok();
            prop_assert!(either || size.is_err() && text.parse::<Percent>().is_err());
            prop_assert!(text.parse::<Millis>().is_err() || text.parse::<Percent>().is_err());
        }
    }
}
