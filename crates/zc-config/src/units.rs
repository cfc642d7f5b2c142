//! Sizes, shares and durations as people write them: `8 KiB`, `2MiB`, `30 %`, `500 ms`.
//!
//! Job: read and show them, so that what is shown reads back to the same. Units are binary and exact; `KB` is refused
//! rather than guessed at. What it does not do: say whether a value is sensible.

use core::fmt;

const SIZES: [(&str, u64); 5] =
    [("TiB", 1 << 40), ("GiB", 1 << 30), ("MiB", 1 << 20), ("KiB", 1 << 10), ("B", 1)];
const SHORT_TIMES: [(&str, u64); 3] = [("s", 1_000_000), ("ms", 1000), ("us", 1)];
const TIMES: [(&str, u64); 4] = [("h", 3_600_000), ("min", 60_000), ("s", 1000), ("ms", 1)];

/// A size in bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct ByteSize(pub u64);

/// A size in bytes, or a share of something.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SizeOrShare {
    /// Bytes.
    Bytes(u64),
    /// Per cent.
    Percent(u64),
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

/// The number and the unit of `text`.
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

/// Shows `value` in the largest unit that divides it; the last unit is 1.
fn show(f: &mut fmt::Formatter<'_>, value: u64, units: &[(&str, u64)]) -> fmt::Result {
    let fits = |(_, factor): &&(&str, u64)| value >= *factor && value.is_multiple_of(*factor);
    match units.iter().find(fits).or_else(|| units.last()) {
        Some((unit, factor)) => write!(f, "{} {unit}", value / factor),
        None => write!(f, "{value}"),
    }
}

impl ByteSize {
    /// Reads a size: a number of bytes, or a number with B, KiB, MiB, GiB or TiB.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        match split(text)? {
            (bytes, "") => Some(Self(bytes)),
            _ => scaled(text, &SIZES).map(Self),
        }
    }
}

impl SizeOrShare {
    /// Reads a size, or a share such as `5 %`.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        match split(text)? {
            (percent, "%") => Some(Self::Percent(percent)),
            _ => ByteSize::parse(text).map(|size| Self::Bytes(size.0)),
        }
    }
}

impl Percent {
    /// A share of `number` per cent, or `None` above 100.
    #[must_use]
    pub fn new(number: u64) -> Option<Self> {
        u8::try_from(number).ok().filter(|percent| *percent <= 100).map(Self)
    }

    /// Reads a share: a number from 0 to 100 and a `%`.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        match split(text)? {
            (number, "%") => Self::new(number),
            _ => None,
        }
    }
}

impl Millis {
    /// Reads a duration: a number with ms, s, min or h.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        scaled(text, &TIMES).map(Self)
    }
}

impl Micros {
    /// Reads a duration: a number with us, ms or s.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        scaled(text, &SHORT_TIMES).map(Self)
    }
}

impl fmt::Display for ByteSize {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        show(f, self.0, &SIZES)
    }
}

impl fmt::Display for SizeOrShare {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Bytes(bytes) => ByteSize(*bytes).fmt(f),
            Self::Percent(percent) => write!(f, "{percent} %"),
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
    fn people_write_units_in_several_ways() {
        for (text, bytes) in
            [("8 KiB", 8192), ("2MiB", 2 << 20), ("512", 512), ("1 TiB", 1 << 40), (" 7  B ", 7), ("0", 0)]
        {
            assert_eq!(ByteSize::parse(text), Some(ByteSize(bytes)), "{text}");
        }
        for bad in [
            "",
            "KiB",
            "8 KB",
            "8 kib",
            "-1",
            "1.5 MiB",
            "8 KiB x",
            "99999999999999 TiB",
            "30 %",
            "+1",
            "\u{663}",
        ] {
            assert_eq!(ByteSize::parse(bad), None, "{bad}");
        }
        for (text, ms) in [("500ms", 500), ("30s", 30_000), ("5 min", 300_000), ("1 h", 3_600_000)] {
            assert_eq!(Millis::parse(text), Some(Millis(ms)), "{text}");
        }
        for bad in ["30", "30 S", "1 d", "ms", "18446744073709551615 s"] {
            assert_eq!(Millis::parse(bad), None, "{bad}");
        }
        assert_eq!(Percent::parse("100%"), Some(Percent(100)));
        for bad in ["101 %", "50", "356 %", "%"] {
            assert_eq!(Percent::parse(bad), None, "{bad}");
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
        assert_eq!((Micros::parse("2 ms"), Micros::parse("50us")), (Some(Micros(2000)), Some(Micros(50))));
        assert_eq!((Micros(0).to_string(), Micros(1000).to_string()), ("0 us".to_owned(), "1 ms".to_owned()));
    }

    proptest! {
        #[test]
        fn what_is_shown_reads_back(value: u64, percent in 0_u8..=100) {
            prop_assert_eq!(ByteSize::parse(&ByteSize(value).to_string()), Some(ByteSize(value)));
            prop_assert_eq!(Millis::parse(&Millis(value).to_string()), Some(Millis(value)));
            prop_assert_eq!(Percent::parse(&Percent(percent).to_string()), Some(Percent(percent)));
            for size in [SizeOrShare::Bytes(value), SizeOrShare::Percent(value)] {
                prop_assert_eq!(SizeOrShare::parse(&size.to_string()), Some(size));
            }
        }

        #[test]
        fn any_text_is_read_without_panic(text in ".{0,40}") {
            let read = (ByteSize::parse(&text), SizeOrShare::parse(&text), Percent::parse(&text), Millis::parse(&text));
            prop_assert!(read.0.is_none_or(|size| text.contains(char::is_numeric) && size.0 < u64::MAX));
        }
    }
}
