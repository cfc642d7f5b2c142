//! Plan of a sweep: every combination of the values of its keys.

use std::hash::{BuildHasher as _, Hasher as _};
use std::str::FromStr;

use anyhow::bail;
use zc_replay::cache::CacheSize;
use zc_replay::{Ratios, Trace};

use crate::settings::{Mapping, Setting};
use crate::size::Share;

/// Most combinations of one sweep.
const POINTS_MAX: usize = 100_000;
/// The key that is no key of the configuration: units as a share of the footprint.
const SHARE_KEY: &str = "cache.share";
const SIZE_KEY: &str = "cache.size";

/// `KEY=VALUE,VALUE`: a key and the values that it takes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Axis {
    pub(super) key: String,
    values: Vec<String>,
}

impl FromStr for Axis {
    type Err = anyhow::Error;

    fn from_str(text: &str) -> anyhow::Result<Self> {
        let Setting { key, value } = text.parse()?;
        let values: Vec<String> = value.split(',').map(|value| value.trim().to_owned()).collect();
        if values.iter().any(|value| value.is_empty() || value.contains(['"', '\n', '\r'])) {
            bail!("values stand between commas, without quotes");
        }
        Ok(Self { key, values })
    }
}

#[derive(Debug, Clone, PartialEq)]
pub(super) struct Point {
    /// Values in the order of the keys.
    pub(super) values: Vec<String>,
    pub(super) settings: Vec<Setting>,
    pub(super) size: CacheSize,
}

impl Point {
    pub(super) fn label(&self) -> String {
        self.values.join(" ")
    }
}

/// Refuses an excessive number.
fn check_count(count: usize) -> anyhow::Result<()> {
    if count > POINTS_MAX {
        bail!("these are {count} combinations; a sweep has at most {POINTS_MAX}");
    }
    Ok(())
}

/// Every combination, the last key varying fastest.
pub(super) fn points(axes: &[Axis]) -> anyhow::Result<Vec<Point>> {
    let count = axes.iter().try_fold(1_usize, |count, axis| count.checked_mul(axis.values.len()));
    check_count(count.unwrap_or(usize::MAX))?;
    let is_axis = |key: &str| axes.iter().any(|axis| axis.key == key);
    if is_axis(SHARE_KEY) && is_axis(SIZE_KEY) {
        bail!("{SHARE_KEY} and {SIZE_KEY} both say how large the cache is: sweep over one of them");
    }
    let mut points = vec![Point { values: Vec::new(), settings: Vec::new(), size: CacheSize::Configured }];
    for (number, axis) in axes.iter().enumerate() {
        if axes[..number].iter().any(|other| other.key == axis.key) {
            bail!("{} is set twice", axis.key);
        }
        let mut longer = Vec::new();
        for point in &points {
            for value in &axis.values {
                let mut point = point.clone();
                point.values.push(value.clone());
                if axis.key == SHARE_KEY {
                    point.size = CacheSize::OfFootprint(value.parse::<Share>()?.0);
                } else {
                    point.settings.push(Setting { key: axis.key.clone(), value: value.clone() });
                }
                longer.push(point);
            }
        }
        points = longer;
    }
    Ok(points)
}

/// Identifies the rows of one sweep: by version, configuration, trace, compression ratios and SSD.
pub(super) fn identity(config: &str, trace: &Trace, ratios: Ratios, ssd: Option<Mapping>) -> String {
    let mut hasher = zc_core::FixedHasher::default().build_hasher();
    hasher.write(env!("CARGO_PKG_VERSION").as_bytes());
    hasher.write(config.as_bytes());
    hasher.write_u64(trace.identity());
    trace.spans().iter().for_each(|span| hasher.write_u64(*span));
    hasher.write_u64(ratios.mean.to_bits());
    hasher.write_u64(ratios.deviation.to_bits());
    match ssd {
        Some(Mapping::Page) => hasher.write(b"page"),
        Some(Mapping::Log) => hasher.write(b"log"),
        None => {}
    }
    format!("{:016x}", hasher.finish())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn axes(all: &[&str]) -> Vec<Axis> {
        all.iter().map(|text| text.parse().unwrap()).collect()
    }

    #[test]
    fn all_combinations_come_in_order() {
        let found = points(&axes(&["cache.share=1%,2%", "cache.dedup=true,false"])).unwrap();
        let labels: Vec<String> = found.iter().map(Point::label).collect();
        assert_eq!(labels, ["1% true", "1% false", "2% true", "2% false"]);
        assert_eq!(found[2].size, CacheSize::OfFootprint(2.0));
        assert_eq!(found[1].settings.len(), 1);
    }

    #[test]
    fn mistakes_are_errors() {
        points(&axes(&["cache.share=x"])).unwrap_err();
        points(&axes(&["a.b=1", "a.b=2"])).unwrap_err();
        points(&axes(&["cache.share=1%", "cache.size=1GiB,2GiB"])).unwrap_err();
        "a.b=1,,2".parse::<Axis>().unwrap_err();
        "a.b=\"1\"".parse::<Axis>().unwrap_err();
        let many: Vec<String> = (0..6).map(|axis| format!("a.k{axis}=1,2,3,4,5,6,7,8,9,10")).collect();
        let many: Vec<&str> = many.iter().map(String::as_str).collect();
        points(&axes(&many)).unwrap_err();
    }
}
