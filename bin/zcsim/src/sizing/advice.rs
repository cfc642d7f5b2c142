//! Curves as a table, and advice in words.

use zc_replay::sizing::Estimate;

/// Share of the hits of the largest size that the recommended size must reach.
const ENOUGH: f64 = 0.9;
/// Share of reads that hit, below which a cache is not recommended.
const WORTH: f64 = 0.02;
const DAY_MS: f64 = 86_400_000.0;
/// A trace of less than an hour represents little of a day.
const LONG_MS: u64 = 3_600_000;

#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Point {
    /// Share of the footprint in per cent.
    pub(super) share: f64,
    pub(super) unit_bytes: u64,
    pub(super) reduced: Estimate,
    /// Without deduplication and compression.
    pub(super) plain: Estimate,
}

/// All sizes, ascending.
#[derive(Debug)]
pub(super) struct Curve {
    pub(super) points: Vec<Point>,
    pub(super) rate: f64,
    pub(super) extents: u64,
    pub(super) extent_bytes: u32,
    pub(super) footprint_bytes: u64,
    pub(super) duration_ms: u64,
    pub(super) bad_lines: u64,
    /// Share of the trace's addresses that were held in memory.
    pub(super) held: f64,
    pub(super) ram_bytes: u64,
}

fn bytes(value: f64) -> String {
    let (unit, scale) = [("TiB", 40), ("GiB", 30), ("MiB", 20)]
        .into_iter()
        .map(|(unit, shift)| (unit, (1_u64 << shift) as f64))
        .find(|(_, scale)| value >= *scale)
        .unwrap_or(("KiB", 1024.0));
    format!("{:.1} {unit}", value / scale)
}

/// Formats a size as whole MiB, or GiB if large, as the configuration accepts it; rounded up.
fn whole(value: u64) -> String {
    const MANY_GIB: u64 = 16 << 30;
    if value < MANY_GIB {
        format!("{} MiB", value.div_ceil(1 << 20))
    } else {
        format!("{} GiB", value.div_ceil(1 << 30))
    }
}

fn percent(share: f64) -> String {
    format!("{:.1} %", share * 100.0)
}

impl Curve {
    /// Scales the curve of a recorded sample to the whole volume: equal hit ratios, larger sizes.
    pub(super) fn of_whole(
        mut self,
        rate: f64,
        verified: Option<[Estimate; 2]>,
    ) -> (Self, Option<[Estimate; 2]>) {
        if rate >= 1.0 {
            return (self, verified);
        }
        #[expect(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            reason = "positive; huge ones saturate"
        )]
        let larger = |value: u64| (value as f64 / rate) as u64;
        let written = |found: Estimate| found.of_whole(rate);
        for point in &mut self.points {
            point.unit_bytes = larger(point.unit_bytes);
            (point.reduced, point.plain) = (written(point.reduced), written(point.plain));
        }
        (self.footprint_bytes, self.extents) = (larger(self.footprint_bytes), larger(self.extents));
        self.rate *= rate;
        (self, verified.map(|pair| pair.map(written)))
    }

    /// The smallest size that has nearly all the hits that any has; `None` where no size has any to speak of.
    pub(super) fn recommended(&self) -> Option<&Point> {
        let best = self.points.iter().map(|point| point.reduced.read_hit_ratio).fold(0.0, f64::max);
        let enough = |point: &&Point| point.reduced.read_hit_ratio >= ENOUGH * best;
        self.points.iter().find(enough).filter(|_| best >= WORTH)
    }

    pub(super) fn table(&self) -> String {
        let duration = if self.duration_ms > 0 {
            format!(" in {:.0} s", self.duration_ms as f64 / 1000.0)
        } else {
            String::new()
        };
        let mut text = format!(
            "The trace touches {} in {} extents of {} KiB{duration}; {} of them were simulated.\n",
            bytes(self.footprint_bytes as f64),
            self.extents,
            self.extent_bytes / 1024,
            if self.rate < 1.0 { percent(self.rate) } else { "all".to_owned() },
        );
        let ram = bytes(self.ram_bytes as f64);
        if self.held < 1.0 {
            text.push_str(&format!(
                "To keep within {ram} of memory, requests for {} of the addresses were held; such a part finds fewer \
                 duplicates than there are. With a larger --hold it is more of them.\n",
                percent(self.held),
            ));
        } else {
            text.push_str(&format!("In memory it takes {ram}.\n"));
        }
        if self.bad_lines > 0 {
            text.push_str(&format!("{} bad lines were passed over.\n", self.bad_lines));
        }
        text.push_str(&format!(
            "\n{:>10} {:>10} | {:>10} {:>12} | {:>10} {:>12}\n{:>10} {:>10} | {:>23} | {:>23}\n",
            "cache",
            "footprint",
            "hit ratio",
            "written",
            "hit ratio",
            "written",
            "",
            "",
            "as configured",
            "without reduction"
        ));
        for point in &self.points {
            text.push_str(&format!(
                "{:>10} {:>10} | {:>10} {:>12} | {:>10} {:>12}\n",
                whole(point.unit_bytes),
                format!("{} %", point.share),
                percent(point.reduced.read_hit_ratio),
                bytes(point.reduced.written_bytes),
                percent(point.plain.read_hit_ratio),
                bytes(point.plain.written_bytes),
            ));
        }
        text.push_str(
            "\nThe hit ratio is the share of the extents read that come without the origin, as zcsim run and zcctl \
             stats have it; the first use of a prefetched extent is no hit. Written are units, journal, checkpoints \
             and region maps, as zcsim run counts them.\n\n",
        );
        text
    }

    /// Formats written bytes, as a rate if the trace has times.
    fn pace(&self, written: f64) -> String {
        if self.duration_ms == 0 {
            return format!("{} over the trace", bytes(written));
        }
        let a_day = bytes(written * DAY_MS / self.duration_ms as f64);
        if self.duration_ms < LONG_MS {
            // No machine writes all day as it does when it boots.
            return format!("{} over the trace ({a_day} a day if all of it went on so)", bytes(written));
        }
        format!("{a_day} a day")
    }

    /// Formats the recommendation. `device_bytes` is the smallest sufficient device; `verified` the whole trace at
    /// that size, with and without reduction.
    pub(super) fn advice(&self, device_bytes: Option<u64>, verified: Option<[Estimate; 2]>) -> String {
        let Some(best) = self.points.last() else { return String::new() };
        let Some(point) = self.recommended() else {
            return format!(
                "No cache of any size would help: even one of {} answers {} of the reads, as hardly anything is read \
                 twice.\n",
                whole(best.unit_bytes),
                percent(best.reduced.read_hit_ratio)
            );
        };
        let mut text = format!(
            "Recommended: a cache of {}, {} % of what is touched. It answers {} of the reads; one of {} would \
             answer {}.\n",
            whole(point.unit_bytes),
            point.share,
            percent(point.reduced.read_hit_ratio),
            whole(best.unit_bytes),
            percent(best.reduced.read_hit_ratio),
        );
        if let Some(device_bytes) = device_bytes {
            text.push_str(&format!(
                "With what zcached keeps for itself it takes a device or a file of {}.\n",
                whole(device_bytes)
            ));
        }
        text.push_str(&format!("It writes {} to the SSD, ", self.pace(point.reduced.written_bytes)));
        text.push_str(&format!("without reduction {}.\n", self.pace(point.plain.written_bytes)));
        let as_good = |other: &&Point| other.plain.read_hit_ratio >= point.reduced.read_hit_ratio;
        match self.points.iter().find(as_good) {
            Some(other) if other.unit_bytes > point.unit_bytes => {
                text.push_str(&format!("Without reduction as many hits take {}.\n", whole(other.unit_bytes)));
            }
            Some(_) => text.push_str("Reduction does not change the size that is needed.\n"),
            None => text.push_str("Without reduction no size that was looked at has as many hits.\n"),
        }
        match verified {
            Some([reduced, plain]) => text.push_str(&format!(
                "{} at this size: {} of the reads and {} written, {} and {} without reduction; the estimates are \
                 off by {:+.1} and {:+.1} points, and by {:+.0} % and {:+.0} % of what is written.\n",
                if self.held < 1.0 { "All that was held" } else { "The whole trace" },
                percent(reduced.read_hit_ratio),
                bytes(reduced.written_bytes),
                percent(plain.read_hit_ratio),
                bytes(plain.written_bytes),
                (point.reduced.read_hit_ratio - reduced.read_hit_ratio) * 100.0,
                (point.plain.read_hit_ratio - plain.read_hit_ratio) * 100.0,
                (point.reduced.written_bytes / reduced.written_bytes.max(1.0) - 1.0) * 100.0,
                (point.plain.written_bytes / plain.written_bytes.max(1.0) - 1.0) * 100.0,
            )),
            None if self.rate < 1.0 => {
                text.push_str("These are estimates from a sample; how far off they are was not looked at.\n");
            }
            None => text.push_str("Nothing was estimated: the whole trace was simulated at every size.\n"),
        }
        text
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn curve(hits: &[(f64, f64)]) -> Curve {
        let estimate = |read_hit_ratio| Estimate {
            read_hit_ratio,
            written_bytes: (2_u64 << 30) as f64,
            metadata_bytes: 0.0,
            simulated_bytes: 1 << 30,
        };
        let point = |(number, (reduced, plain)): (u32, &(f64, f64))| Point {
            share: f64::from(number + 1) * 10.0,
            unit_bytes: u64::from(number + 1) << 30,
            reduced: estimate(*reduced),
            plain: estimate(*plain),
        };
        Curve {
            points: (0..).zip(hits).map(point).collect(),
            rate: 0.5,
            extents: 1000,
            extent_bytes: 8192,
            footprint_bytes: 10 << 30,
            duration_ms: 3_600_000,
            bad_lines: 0,
            held: 1.0,
            ram_bytes: 12 << 20,
        }
    }

    #[test]
    fn a_short_trace_says_little_of_a_day() {
        let short =
            Curve { duration_ms: 36_000, ..curve(&[(0.1, 0.05), (0.46, 0.2), (0.49, 0.47), (0.5, 0.5)]) };
        let text = short.advice(None, None);
        assert!(text.contains("2.0 GiB over the trace (4.7 TiB a day if all of it went on so)"), "{text}");
    }

    #[test]
    fn the_knee_is_recommended() {
        let curve = curve(&[(0.1, 0.05), (0.46, 0.2), (0.49, 0.47), (0.5, 0.5)]);
        assert_eq!(curve.recommended().map(|point| point.unit_bytes), Some(2 << 30));
        let text = curve.advice(None, None);
        assert!(text.contains("a cache of 2048 MiB, 20 % of what is touched. It answers 46.0 %"), "{text}");
        assert!(text.contains("48.0 GiB a day") && text.contains("as many hits take 3072 MiB"), "{text}");
        assert!(text.contains("was not looked at"), "{text}");
        let whole = [0.45, 0.21].map(|read_hit_ratio| Estimate {
            read_hit_ratio,
            written_bytes: (1_u64 << 30) as f64,
            metadata_bytes: (1_u64 << 29) as f64,
            simulated_bytes: 1 << 30,
        });
        let text = curve.advice(Some(2_100 << 20), Some(whole));
        assert!(text.contains("a device or a file of 2100 MiB"), "{text}");
        assert!(text.contains("off by +1.0 and -1.0 points, and by +100 % and +100 %"), "{text}");
        assert!(curve.table().contains("  2048 MiB       20 % |     46.0 %"), "{}", curve.table());
    }

    #[test]
    fn what_was_held_of_a_long_trace_is_told() {
        let whole = curve(&[(0.4, 0.3)]);
        assert!(whole.table().contains("it takes 12.0 MiB"), "{}", whole.table());
        let part = Curve { held: 0.125, ..whole };
        assert!(part.table().contains("within 12.0 MiB of memory") && part.table().contains("12.5 %"));
        let verified = [0.45, 0.21].map(|read_hit_ratio| Estimate {
            read_hit_ratio,
            written_bytes: (1_u64 << 30) as f64,
            metadata_bytes: (1_u64 << 29) as f64,
            simulated_bytes: 1 << 30,
        });
        assert!(part.advice(None, Some(verified)).contains("All that was held at this size"));
    }

    #[test]
    fn a_recorded_sample_stands_for_the_whole_volume() {
        let whole = [0.45, 0.21].map(|read_hit_ratio| Estimate {
            read_hit_ratio,
            written_bytes: (1_u64 << 30) as f64,
            metadata_bytes: (1_u64 << 29) as f64,
            simulated_bytes: 1 << 30,
        });
        let (same, _) = curve(&[(0.4, 0.3)]).of_whole(1.0, Some(whole));
        assert_eq!(same.points, curve(&[(0.4, 0.3)]).points);
        let (larger, verified) = curve(&[(0.4, 0.3)]).of_whole(0.1, Some(whole));
        assert_eq!((larger.points[0].unit_bytes, larger.footprint_bytes), (10 << 30, 100 << 30));
        assert!(
            (larger.points[0].reduced.written_bytes - (20_u64 << 30) as f64).abs() < 1.0
                && (larger.rate - 0.05).abs() < 1e-9
        );
        assert!((larger.points[0].reduced.read_hit_ratio - 0.4).abs() < 1e-9);
        assert!((verified.unwrap()[1].written_bytes / (1_u64 << 29) as f64 - 11.0).abs() < 1e-6);
    }

    #[test]
    fn a_trace_without_second_reads_needs_no_cache() {
        let curve = curve(&[(0.0, 0.0), (0.001, 0.0)]);
        assert!(curve.advice(None, None).starts_with("No cache of any size"), "{}", curve.advice(None, None));
    }
}
