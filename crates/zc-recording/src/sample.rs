//! Samples of addresses.
//!
//! Invariants: membership depends on the address alone, so that all requests for it are recorded or none; of two
//! samples of one volume with the same `of`, the smaller is a subset of the larger.

use std::fmt;
use std::str::FromStr;

use zc_core::limits::EXTENT_BYTES_MAX;

/// Bytes of a unit that is sampled as a whole: extents of every size fit.
pub const SAMPLE_UNIT_BYTES: u32 = EXTENT_BYTES_MAX;
/// Finest share: one in this number.
const OF_MAX: u32 = 1 << 20;

/// A share of the addresses: `kept` in `of`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Share {
    kept: u32,
    of: u32,
}

/// SplitMix64's finalizer (Steele, Lea and Flood, OOPSLA 2014).
const fn hash(unit: u64) -> u64 {
    let mut state = unit.wrapping_add(0x9e37_79b9_7f4a_7c15);
    state = (state ^ (state >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    state = (state ^ (state >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    state ^ (state >> 31)
}

impl Share {
    /// Everything.
    pub const WHOLE: Self = Self { kept: 1, of: 1 };

    /// Returns the share `kept` in `of`; `None` if it is zero, more than all, or too fine.
    #[must_use]
    pub const fn new(kept: u32, of: u32) -> Option<Self> {
        if kept >= 1 && kept <= of && of <= OF_MAX { Some(Self { kept, of }) } else { None }
    }

    /// Numerator.
    #[must_use]
    pub const fn kept(self) -> u32 {
        self.kept
    }

    /// Denominator.
    #[must_use]
    pub const fn of(self) -> u32 {
        self.of
    }

    /// Returns `true` if all addresses are sampled.
    #[must_use]
    pub const fn is_whole(self) -> bool {
        self.kept == self.of
    }

    /// Returns the share as a number, at most 1.
    #[must_use]
    pub fn rate(self) -> f64 {
        f64::from(self.kept) / f64::from(self.of)
    }

    /// Returns `true` if an address is in the sample.
    #[must_use]
    pub const fn has(self, offset_bytes: u64) -> bool {
        self.is_whole() || hash(offset_bytes / SAMPLE_UNIT_BYTES as u64) % (self.of as u64) < self.kept as u64
    }

    /// Returns the sampled parts of a range as offset and length, with neighbouring units joined.
    pub fn parts(self, offset_bytes: u64, len_bytes: u64) -> impl Iterator<Item = (u64, u64)> {
        let end = offset_bytes.saturating_add(len_bytes);
        let unit = u64::from(SAMPLE_UNIT_BYTES);
        let mut at = offset_bytes;
        std::iter::from_fn(move || {
            if self.is_whole() {
                let part = (at < end).then(|| (at, end - at));
                at = end;
                return part;
            }
            let border = |at: u64| end.min((at / unit).saturating_add(1).saturating_mul(unit));
            while at < end && !self.has(at) {
                at = border(at);
            }
            let from = at;
            while at < end && self.has(at) {
                at = border(at);
            }
            (from < at).then(|| (from, at - from))
        })
    }
}

impl fmt::Display for Share {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if 100 % self.of == 0 {
            write!(f, "{}%", self.kept * (100 / self.of))
        } else {
            write!(f, "{}/{}", self.kept, self.of)
        }
    }
}

impl FromStr for Share {
    type Err = String;

    /// `10%`, `0.5%` or `1/8`.
    fn from_str(text: &str) -> Result<Self, String> {
        let parse = || {
            if let Some((kept, of)) = text.split_once('/') {
                return Self::new(kept.trim().parse().ok()?, of.trim().parse().ok()?);
            }
            let percent = text.trim().strip_suffix('%')?.trim();
            let (whole, fraction) = percent.split_once('.').unwrap_or((percent, ""));
            if fraction.len() > 4 || !fraction.bytes().all(|digit| digit.is_ascii_digit()) {
                return None;
            }
            let scale = 10_u32.checked_pow(u32::try_from(fraction.len()).ok()?)?;
            let digits: u32 = if fraction.is_empty() { 0 } else { fraction.parse().ok()? };
            let kept = whole.parse::<u32>().ok()?.checked_mul(scale)?.checked_add(digits)?;
            Self::new(kept, 100 * scale)
        };
        parse().ok_or_else(|| {
            format!("\"{text}\" is no share; write such as 10%, 0.5% or 1/8, at most all, one in {OF_MAX} at least")
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn shares_are_read_and_shown() {
        let read = |text: &str| text.parse::<Share>().map(|share| (share.kept, share.of)).ok();
        assert_eq!(
            (read("10%"), read("0.5 %"), read("1/8")),
            (Some((10, 100)), Some((5, 1000)), Some((1, 8)))
        );
        assert_eq!((read("100%"), read("12.25%")), (Some((100, 100)), Some((1225, 10_000))));
        for wrong in ["", "10", "0%", "101%", "-1%", "1.%%", "2/1", "1/0", "1/99999999", "0.00001%", "NaN%"] {
            assert_eq!(read(wrong), None, "{wrong}");
        }
        let shown = |text: &str| text.parse::<Share>().map(|share| share.to_string());
        assert_eq!(
            (shown("10%"), shown("1/8"), shown("1/4")),
            (Ok("10%".into()), Ok("1/8".into()), Ok("25%".into()))
        );
    }

    #[test]
    fn a_sample_has_its_share() {
        let share: Share = "10%".parse().unwrap();
        let unit = u64::from(SAMPLE_UNIT_BYTES);
        let count = (0..100_000).filter(|number| share.has(number * unit + 4096)).count();
        assert!((9_700..10_300).contains(&count), "{count}");
    }

    proptest! {
        #[test]
        fn parts_are_what_is_in_the_sample(offset in 0_u64..1 << 24, len in 0_u64..1 << 21, of in 1_u32..5) {
            let share = Share::new(1, of).unwrap();
            let parts: Vec<_> = share.parts(offset, len).collect();
            let step = 4096;
            for at in (offset..offset + len).step_by(step) {
                let inside = parts.iter().any(|(from, len)| (*from..from + len).contains(&at));
                prop_assert_eq!(inside, share.has(at));
            }
            for pair in parts.windows(2) {
                prop_assert!(pair[0].0 + pair[0].1 < pair[1].0);
            }
        }
    }
}
