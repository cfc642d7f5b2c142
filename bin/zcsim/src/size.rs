//! Sizes and shares on the command line: `4K`, `2M`, `10%`.

use std::str::FromStr;

use anyhow::{Context as _, bail};
use zc_core::limits::EXTENT_BYTES_MAX;
use zc_replay::EXTENT_BYTES_MIN;

/// A size in bytes; K, M, G, T are powers of 1024, with or without `iB`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Size(pub(crate) u64);

impl FromStr for Size {
    type Err = anyhow::Error;

    fn from_str(text: &str) -> anyhow::Result<Self> {
        let text = text.trim();
        let units = [('K', 10), ('M', 20), ('G', 30), ('T', 40)];
        let plain = text.strip_suffix("iB").unwrap_or(text);
        let of = |(unit, shift): &(char, u32)| plain.strip_suffix(*unit).map(|number| (number, *shift));
        let (number, shift) = units.iter().find_map(of).unwrap_or((text, 0));
        let number: u64 = number.trim().parse().with_context(|| {
            format!("\"{text}\" is no size: it must be a number, with K, M, G or T behind it")
        })?;
        let bytes = number.checked_mul(1 << shift).with_context(|| format!("\"{text}\" is out of range"))?;
        Ok(Self(bytes))
    }
}

impl Size {
    /// As the size of an extent.
    pub(crate) fn extent_bytes(self) -> anyhow::Result<u32> {
        let range = EXTENT_BYTES_MIN..=EXTENT_BYTES_MAX;
        match u32::try_from(self.0) {
            Ok(bytes) if bytes.is_power_of_two() && range.contains(&bytes) => Ok(bytes),
            _ => bail!(
                "an extent must have 4 KiB to {} KiB, a power of two, not {} bytes",
                EXTENT_BYTES_MAX / 1024,
                self.0
            ),
        }
    }
}

/// A share in per cent.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Share(pub(crate) f64);

impl FromStr for Share {
    type Err = anyhow::Error;

    fn from_str(text: &str) -> anyhow::Result<Self> {
        let number = text
            .trim()
            .strip_suffix('%')
            .with_context(|| format!("\"{text}\" is no share: it must end in %"))?;
        let percent: f64 = number
            .trim()
            .parse()
            .with_context(|| format!("\"{text}\" is no share: it must be a number and %"))?;
        if !(percent > 0.0 && percent <= 1000.0) {
            bail!("a share must be above 0 % and at most 1000 %, not {percent} %");
        }
        Ok(Self(percent))
    }
}

impl Share {
    /// So much of a number, rounded.
    pub(crate) fn of(self, whole: u64) -> u64 {
        #[expect(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            reason = "positive; huge ones saturate"
        )]
        let part = (whole as f64 * self.0 / 100.0).round() as u64;
        part
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_and_shares_are_read() {
        let bytes = |text: &str| text.parse::<Size>().map(|size| size.0).ok();
        assert_eq!(bytes("4096"), Some(4096));
        assert_eq!((bytes("4K"), bytes("8 KiB"), bytes("2M")), (Some(4096), Some(8192), Some(2 << 20)));
        for wrong in ["K", "1X", "99999999T", "2MMM", "1KB", "4iB"] {
            assert_eq!(bytes(wrong), None, "{wrong}");
        }
        assert_eq!("8K".parse::<Size>().unwrap().extent_bytes().unwrap(), 8192);
        for wrong in ["2K", "12K", "1M"] {
            wrong.parse::<Size>().unwrap().extent_bytes().unwrap_err();
        }
        assert_eq!("12.5%".parse::<Share>().unwrap().of(1000), 125);
        for wrong in ["10", "0%", "-1%", "x%", "NaN%"] {
            wrong.parse::<Share>().unwrap_err();
        }
    }
}
