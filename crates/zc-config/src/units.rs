//! Sizes, shares and durations as people write them: `8 KiB`, `2MiB`, `30 %`, `500 ms`.

use core::fmt;

use serde::de::{Error as _, Unexpected, Visitor};
use serde::{Deserialize, Deserializer};

const SIZES: [(&str, u64); 5] =
    [("TiB", 1 << 40), ("GiB", 1 << 30), ("MiB", 1 << 20), ("KiB", 1 << 10), ("B", 1)];
const TIMES: [(&str, u64); 4] = [("ms", 1), ("s", 1000), ("min", 60_000), ("h", 3_600_000)];

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
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Millis(pub u64);

fn split(text: &str) -> Option<(u64, &str)> {
    let text = text.trim();
    let end = text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
    let (digits, unit) = text.split_at_checked(end)?;
    Some((digits.parse().ok()?, unit.trim()))
}

fn scaled(text: &str, units: &[(&str, u64)]) -> Option<u64> {
    let (number, unit) = split(text)?;
    let (_, factor) = units.iter().find(|(name, _)| *name == unit)?;
    number.checked_mul(*factor)
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

impl fmt::Display for ByteSize {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let fits = SIZES.iter().find(|(_, factor)| self.0 >= *factor && self.0.is_multiple_of(*factor));
        match fits {
            Some((unit, factor)) => write!(f, "{} {unit}", self.0 / factor),
            None => write!(f, "{} B", self.0),
        }
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
        let fits = TIMES.iter().rev().find(|(_, factor)| self.0 >= *factor && self.0.is_multiple_of(*factor));
        match fits {
            Some((unit, factor)) => write!(f, "{} {unit}", self.0 / factor),
            None => write!(f, "{} ms", self.0),
        }
    }
}

struct Text<T> {
    expecting: &'static str,
    number: fn(u64) -> Option<T>,
    text: fn(&str) -> Option<T>,
}

impl<T> Visitor<'_> for Text<T> {
    type Value = T;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.expecting)
    }

    fn visit_i64<E: serde::de::Error>(self, value: i64) -> Result<T, E> {
        let found = u64::try_from(value).ok().and_then(self.number);
        found.ok_or_else(|| E::invalid_value(Unexpected::Signed(value), &self.expecting))
    }

    fn visit_str<E: serde::de::Error>(self, value: &str) -> Result<T, E> {
        (self.text)(value).ok_or_else(|| E::invalid_value(Unexpected::Str(value), &self.expecting))
    }
}

impl<'de> Deserialize<'de> for ByteSize {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let expecting = "a size such as \"8 KiB\"";
        deserializer.deserialize_any(Text { expecting, number: |n| Some(Self(n)), text: Self::parse })
    }
}

impl<'de> Deserialize<'de> for SizeOrShare {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(Text {
            expecting: "a size such as \"10 GiB\" or a share such as \"5 %\"",
            number: |n| Some(Self::Bytes(n)),
            text: |text| match split(text) {
                Some((percent, "%")) => Some(Self::Percent(percent)),
                _ => ByteSize::parse(text).map(|size| Self::Bytes(size.0)),
            },
        })
    }
}

impl<'de> Deserialize<'de> for Percent {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        fn percent(number: u64) -> Option<Percent> {
            u8::try_from(number).ok().filter(|percent| *percent <= 100).map(Percent)
        }
        deserializer.deserialize_any(Text {
            expecting: "a share from \"0 %\" to \"100 %\"",
            number: percent,
            text: |text| match split(text) {
                Some((number, "%")) => percent(number),
                _ => None,
            },
        })
    }
}

impl<'de> Deserialize<'de> for Millis {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        scaled(&text, &TIMES).map(Self).ok_or_else(|| {
            D::Error::invalid_value(Unexpected::Str(&text), &"a duration such as \"30 s\" or \"500 ms\"")
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_read_and_show() {
        for (text, bytes) in
            [("8 KiB", 8192), ("2MiB", 2 << 20), ("512", 512), ("1 TiB", 1 << 40), ("7 B", 7)]
        {
            assert_eq!(ByteSize::parse(text), Some(ByteSize(bytes)), "{text}");
        }
        for bad in ["", "KiB", "8 KB", "8 kib", "-1", "99999999999999 TiB"] {
            assert_eq!(ByteSize::parse(bad), None, "{bad}");
        }
        assert_eq!(ByteSize(3 << 20).to_string(), "3 MiB");
        assert_eq!(ByteSize(1025).to_string(), "1025 B");
        assert_eq!(Millis(90_000).to_string(), "90 s");
    }
}
