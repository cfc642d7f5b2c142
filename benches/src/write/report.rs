//! The report of a run: tables, goals and JSON.

use std::fmt::Write as _;

use serde_json::{Value, json};

use super::pause::{Pauses, STEPS_MS, between};
use super::run::{CASES, Case, Sample, Series, Target};
use super::slow::Slow;
use crate::load::Durability;
use crate::nbd::report::median;

/// Durable writes one at a time: share of the bare file's rate that is wanted.
const DURABLE_SHARE: f64 = 0.5;
/// Writes on the slow origin: times its own rate that are wanted.
const SLOW_TIMES: f64 = 5.0;
/// Pauses that the engine must not cause, in milliseconds.
const PAUSE_MS: f64 = 10.0;

/// Everything that was measured.
#[derive(Debug)]
pub struct Report {
    /// The fast origin.
    pub series: Vec<Series>,
    /// The slow one.
    pub slow: Slow,
    /// The full cache, if it was looked at.
    pub pauses: Option<Pauses>,
    /// What the machine is, and how it was measured.
    pub machine: String,
}

impl Series {
    fn median(&self, of: impl Fn(&Sample) -> f64) -> f64 {
        median(self.samples.iter().map(of).collect())
    }

    /// Median of the ratios of rates, round by round.
    fn ratio(&self, other: &Self) -> f64 {
        let pairs = self.samples.iter().zip(&other.samples);
        median(pairs.map(|(own, other)| own.per_second / other.per_second).collect())
    }
}

fn verdict(met: bool) -> &'static str {
    if met { "met" } else { "**missed**" }
}

impl Report {
    fn of(&self, case: Case, target: Target) -> Option<&Series> {
        self.series.iter().find(|series| series.case == case && series.target == target)
    }

    fn ratio(&self, case: Case, target: Target, to: Target) -> f64 {
        let (Some(own), Some(other)) = (self.of(case, target), self.of(case, to)) else { return 0.0 };
        own.ratio(other)
    }

    /// Goals and what was reached.
    #[must_use]
    pub fn goals(&self) -> String {
        let mut text = "| goal | wanted | reached | |\n|---|---|---|---|\n".to_owned();
        for case in CASES.iter().filter(|case| case.durability != Durability::None) {
            for target in [Target::Volume("write-back"), Target::Volume("write-back-durable")] {
                let ratio = self.ratio(*case, target, Target::File);
                let (case, target) = (case.name(), target.name());
                let met = verdict(ratio >= DURABLE_SHARE);
                let _infallible = writeln!(
                    text,
                    "| {target}: {case}, to the bare file | >= {DURABLE_SHARE} | {ratio:.2} | {met} |"
                );
            }
        }
        let times = self.slow.write_back.per_second / self.slow.origin.per_second;
        let origin = self.slow.origin.per_second;
        let met = verdict(times >= SLOW_TIMES);
        let _infallible = writeln!(
            text,
            "| write-back: 4k random write, QD32, to an origin of {origin:.0}/s | >= {SLOW_TIMES} | {times:.1} | {met} |"
        );
        if let Some(pauses) = &self.pauses {
            let of = |histogram| between(histogram, PAUSE_MS, f64::INFINITY);
            let (own, other) = (of(&pauses.write_back), of(&pauses.pass_through));
            let met = verdict(own <= other);
            let _infallible = writeln!(
                text,
                "| write-back, full cache: writes over {PAUSE_MS} ms in {} s, and in as long of pass-through | none of the \
                 engine's | {own}, {other} | {met} |",
                pauses.seconds
            );
        }
        text
    }

    fn table(&self, case: Case) -> String {
        let mut text = format!("\n### {}\n\n", case.name());
        text.push_str("| | ratio to file | writes/s | p50 us | p99 | p99.9 |\n|---|---|---|---|---|---|\n");
        for target in Target::ALL {
            let Some(series) = self.of(case, target) else { continue };
            let [p50, p99, p999] = [0, 1, 2].map(|at| series.median(|sample| sample.latency_us[at]));
            let ratio = self.ratio(case, target, Target::File);
            let rate = series.median(|sample| sample.per_second);
            let _infallible = writeln!(
                text,
                "| {} | {ratio:.2} | {rate:.0} | {p50:.0} | {p99:.0} | {p999:.0} |",
                target.name()
            );
        }
        text
    }

    /// `write.md`.
    #[must_use]
    pub fn markdown(&self) -> String {
        let mut text =
            format!("# Writes\n\n{}\n\n## Goals\n\n{}\n## Fast origin\n", self.machine, self.goals());
        for case in CASES {
            text.push_str(&self.table(case));
        }
        let sample = |sample: &Sample| {
            let [p50, p99, p999] = sample.latency_us;
            format!("{:.0} | {p50:.0} | {p99:.0} | {p999:.0} |", sample.per_second)
        };
        let _infallible = write!(
            text,
            "\n## Slow origin\n\n| 4k random write, QD32 | writes/s | p50 us | p99 | p99.9 |\n|---|---|---|---|---|\n\
             | the origin itself | {}\n| write-back | {}\n",
            sample(&self.slow.origin),
            sample(&self.slow.write_back)
        );
        if let Some(pauses) = &self.pauses {
            text.push_str(&pauses_table(pauses));
        }
        text
    }

    /// `write.json`.
    #[must_use]
    pub fn to_json(&self) -> Value {
        let sample =
            |sample: &Sample| json!({"per_second": sample.per_second, "latency_us": sample.latency_us});
        let series = |series: &Series| {
            let samples: Vec<Value> = series.samples.iter().map(sample).collect();
            json!({"case": series.case.name(), "target": series.target.name(), "samples": samples})
        };
        let pauses = self.pauses.as_ref().map(|pauses| {
            let steps = |histogram| {
                steps().map(|(from, to)| json!({"to_ms": to, "count": between(histogram, from, to)})).to_vec()
            };
            json!({
                "seconds": pauses.seconds,
                "evictions": pauses.evictions,
                "write_back": steps(&pauses.write_back),
                "pass_through": steps(&pauses.pass_through),
            })
        });
        json!({
            "machine": self.machine,
            "series": self.series.iter().map(series).collect::<Vec<_>>(),
            "slow": {"origin": sample(&self.slow.origin), "write_back": sample(&self.slow.write_back)},
            "pauses": pauses,
        })
    }
}

/// The steps of the histogram: from, to.
fn steps() -> [(f64, f64); STEPS_MS.len()] {
    let mut from = 0.0;
    STEPS_MS.map(|to| (std::mem::replace(&mut from, to), to))
}

fn pauses_table(pauses: &Pauses) -> String {
    let Pauses { seconds, write_back, pass_through, evictions } = pauses;
    let mut text = format!(
        "\n## Pauses\n\n4 KiB random writes, QD1, {seconds} s each in slices that take turns; {evictions} units were \
         evicted meanwhile.\n\n| up to | write-back, full cache | pass-through |\n|---|---|---|\n"
    );
    for (from, to) in steps() {
        let [own, other] = [write_back, pass_through].map(|histogram| between(histogram, from, to));
        let upto = if to.is_finite() { format!("{to} ms") } else { "longer".to_owned() };
        let _infallible = writeln!(text, "| {upto} | {own} | {other} |");
    }
    let max = |histogram: &hdrhistogram::Histogram<u64>| histogram.max() as f64 / 1e6;
    let _infallible = writeln!(text, "| longest | {:.1} ms | {:.1} ms |", max(write_back), max(pass_through));
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::load::histogram;

    #[test]
    fn every_write_is_in_one_step_of_the_histogram() {
        let mut all = histogram();
        for us in [1_u64, 499, 501, 4_000, 11_000, 70_000_000] {
            all.record(us * 1000).unwrap();
        }
        let counts = steps().map(|(from, to)| between(&all, from, to));
        assert_eq!(counts.iter().sum::<u64>(), all.len());
        assert_eq!(counts, [2, 1, 0, 1, 0, 1, 0, 1]);
        assert_eq!(between(&all, PAUSE_MS, f64::INFINITY), 2);
    }
}
