//! Value parsers beyond [`zc_core::units`]: sizes of extents, and shares with a fraction, `12.5%`, that may exceed 100
//! %.

use std::str::FromStr;

use anyhow::{Context as _, bail};
use zc_core::limits::{EXTENT_BYTES_MAX, EXTENT_BYTES_MIN};
use zc_core::units::ByteSize;

pub(crate) fn extent_bytes(size: ByteSize) -> anyhow::Result<u32> {
    match u32::try_from(size.0) {
        Ok(bytes) if bytes.is_power_of_two() && (EXTENT_BYTES_MIN..=EXTENT_BYTES_MAX).contains(&bytes) => {
            Ok(bytes)
        }
        _ => bail!(
            "an extent must have {} to {}, a power of two, not {size}",
            ByteSize(EXTENT_BYTES_MIN.into()),
            ByteSize(EXTENT_BYTES_MAX.into())
        ),
    }
}

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
    /// Returns this share of a number, rounded.
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
    fn extents_and_shares_are_read() {
        assert_eq!(extent_bytes(ByteSize(8192)).unwrap(), 8192);
        for wrong in [2 << 10, 12 << 10, 1 << 20, 1 << 40] {
            extent_bytes(ByteSize(wrong)).unwrap_err();
        }
        assert_eq!("12.5%".parse::<Share>().unwrap().of(1000), 125);
        for wrong in ["10", "0%", "-1%", "x%", "NaN%"] {
            wrong.parse::<Share>().unwrap_err();
        }
    }
}
