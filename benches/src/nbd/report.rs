//! Tables, goals and JSON of a run.
//!
//! Invariants: a figure is the median over rounds; a ratio is the median of the ratios of the same round.

use std::fmt::Write as _;

use serde_json::{Value, json};

use super::cases::Target;
use super::measured::{Sample, Series};
use crate::harness::usage::dearest;
use crate::load::Order;

/// Functions shown of a profile.
const PROFILE_LINES: usize = 14;

/// The middle of `values`, the mean of the two middle ones of an even number; 0 of none.
#[must_use]
pub fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    let half = values.len() / 2;
    match values.len() {
        0 => 0.0,
        count if count.is_multiple_of(2) => f64::midpoint(values[half - 1], values[half]),
        _ => values[half],
    }
}

impl Series {
    /// The median of a figure.
    pub fn median(&self, of: impl Fn(&Sample) -> f64) -> f64 {
        median(self.samples.iter().map(of).collect())
    }

    /// The median of the ratios of a figure to another series', round by round.
    pub fn ratio(&self, other: &Self, of: impl Fn(&Sample) -> f64) -> f64 {
        let pairs = self.samples.iter().zip(&other.samples).filter(|(a, b)| a.round == b.round);
        median(pairs.map(|(a, b)| of(a) / of(b)).collect())
    }

    /// The daemon's counters of all rounds together: a share of two of them.
    fn share(&self, part: impl Fn(&Sample) -> u64, whole: impl Fn(&Sample) -> u64) -> Option<f64> {
        let whole: u64 = self.samples.iter().map(whole).sum();
        let part: u64 = self.samples.iter().map(part).sum();
        (whole > 0).then(|| part as f64 / whole as f64)
    }

    /// Reads of the SSD for each hit.
    #[must_use]
    pub fn ssd_reads_per_hit(&self) -> Option<f64> {
        self.share(|s| s.counters.map_or(0, |c| c.device_reads), |s| s.counters.map_or(0, |c| c.hits))
    }

    /// Hits in all reads.
    #[must_use]
    pub fn hit_share(&self) -> Option<f64> {
        self.share(|s| s.counters.map_or(0, |c| c.hits), |s| s.counters.map_or(0, |c| c.reads))
    }

    /// Extents that got into the cache, of those that were offered.
    #[must_use]
    pub fn inserted_share(&self) -> Option<f64> {
        self.share(|s| s.counters.map_or(0, |c| c.inserted), |s| s.counters.map_or(0, |c| c.offered))
    }

    /// CPU microseconds of the server for each request, over all rounds: the kernel counts in steps that are too coarse
    /// for one.
    #[must_use]
    pub fn cpu_us(&self) -> Option<f64> {
        let requests: u64 = self.samples.iter().map(|sample| sample.requests).sum();
        let has_cpu = self.samples.iter().all(|sample| sample.cpu_us.is_some());
        let of = |sample: &Sample| sample.cpu_us.unwrap_or(0.0);
        has_cpu.then(|| match requests {
            0 => self.median(of),
            _ => self.samples.iter().map(|s| of(s) * s.requests as f64).sum::<f64>() / requests as f64,
        })
    }

    /// The lowest rate at which insertions were skipped under pressure.
    #[must_use]
    pub fn skipping_from(&self) -> Option<f64> {
        let skipped = |sample: &&Sample| sample.counters.is_some_and(|counters| counters.skipped > 0);
        self.samples.iter().filter(skipped).map(|sample| sample.per_second).min_by(f64::total_cmp)
    }

    fn extra(&self) -> String {
        let reads = !self.case.writes;
        match (reads, self.hit_share(), self.ssd_reads_per_hit(), self.inserted_share()) {
            (true, Some(hits), Some(per_hit), _) => {
                format!("{:.1} % hits, {per_hit:.2} SSD reads per hit", hits * 100.0)
            }
            (false, _, _, Some(inserted)) => {
                let skipping = self.skipping_from();
                let skipping =
                    skipping.map_or_else(String::new, |rate| format!(", some skipped from {rate:.0}/s"));
                format!("{:.1} % of offered extents inserted{skipping}", inserted * 100.0)
            }
            _ => String::new(),
        }
    }
}

/// The series of a target in the case of `like`.
fn beside<'a>(all: &'a [Series], like: &Series, target: Target) -> Option<&'a Series> {
    all.iter().find(|series| series.case.name() == like.case.name() && series.target == target)
}

fn optional(value: Option<f64>) -> String {
    value.map_or_else(|| "n/a".to_owned(), |value| format!("{value:.2}"))
}

/// The table of one case, in Markdown.
#[must_use]
pub fn case_table(series: &[Series]) -> String {
    table_of(&series.iter().collect::<Vec<_>>())
}

fn table_of(series: &[&Series]) -> String {
    let Some(first) = series.first() else { return String::new() };
    let mut text = format!("\n### {}\n\n", first.case.name());
    text.push_str(
        "| | ratio to file | IOPS | mean us | p50 | p90 | p99 | p99.9 | CPU us/IO | syscalls/IO | |\n",
    );
    text.push_str("|---|---|---|---|---|---|---|---|---|---|---|\n");
    let raw = series.iter().find(|one| one.target == Target::Raw);
    for one in series {
        let ratio = raw.map(|raw| one.ratio(raw, |sample| sample.per_second));
        let _infallible = write!(text, "| {} | {} |", one.target.name(), optional(ratio));
        let _infallible = write!(text, " {:.0} |", one.median(|sample| sample.per_second));
        for index in 0..5 {
            let _infallible = write!(text, " {:.1} |", one.median(|sample| sample.latency_us[index]));
        }
        let _infallible =
            writeln!(text, " {} | {} | {} |", optional(one.cpu_us()), optional(one.syscalls), one.extra());
    }
    text
}

/// A goal and what was reached.
#[derive(Debug)]
struct Goal {
    name: String,
    wanted: &'static str,
    reached: f64,
    met: bool,
    note: String,
}

impl Goal {
    fn at_least(name: String, wanted: &'static str, bound: f64, reached: f64) -> Self {
        Self { name, wanted, reached, met: reached >= bound, note: String::new() }
    }
}

/// What QD1 hits may take: the file and a bare round trip one after the other.
fn latency_goal(all: &[Series], hits: &Series) -> Option<Goal> {
    let raw = beside(all, hits, Target::Raw)?;
    let bare = beside(all, hits, Target::PingPong)?;
    // The median: means of a machine that does other things too tell of those.
    let of = |sample: &Sample| sample.latency_us[1];
    let rounds = hits.samples.iter().zip(&raw.samples).zip(&bare.samples);
    let reached = median(rounds.map(|((h, r), b)| of(h) / (of(r) + of(b))).collect());
    let name =
        format!("{}, {}: median latency to file + bare round trip", hits.target.name(), hits.case.name());
    Some(Goal { name, wanted: "<= 1.05", reached, met: reached <= 1.05, note: hits.extra() })
}

fn goals_of(all: &[Series], one: &Series) -> Vec<Goal> {
    let case = &one.case;
    let rate = |sample: &Sample| sample.per_second;
    let name = |to: &str| format!("{}, {}: to {to}", one.target.name(), case.name());
    let against = |target: Target, wanted: &'static str, bound: f64| {
        let other = beside(all, one, target)?;
        let goal = Goal::at_least(name(other.target.name()), wanted, bound, one.ratio(other, rate));
        Some(Goal { note: one.extra(), ..goal })
    };
    let hits =
        matches!(one.target, Target::ZcNoise | Target::ZcHalving | Target::ZcHalfDuplicate | Target::ZcPoll);
    let random_read = !case.writes && case.order == Order::Random;
    let found = match (one.target, case.depth) {
        (Target::Null | Target::NullPoll, 1) if case.connections == 1 => {
            vec![against(Target::PingPong, ">= 0.9", 0.9)]
        }
        (Target::Null, 32) if case.connections == 2 => vec![against(Target::NbdkitNull, ">= 2", 2.0)],
        (_, 1) if hits && random_read => vec![latency_goal(all, one)],
        (_, 32) if hits && random_read => {
            vec![against(Target::Raw, ">= 0.95", 0.95), against(Target::Qemu, ">= 1.25", 1.25)]
        }
        _ if hits && case.order == Order::Sequential => vec![against(Target::PassThrough, ">= 0.9", 0.9)],
        _ if hits && case.writes => vec![against(Target::PassThrough, ">= 0.95", 0.95)],
        _ => Vec::new(),
    };
    let mut found: Vec<Goal> = found.into_iter().flatten().collect();
    for goal in found.iter_mut().filter(|_| case.writes) {
        // Writes count only if the cache took what was written.
        goal.met &= one.inserted_share().is_some_and(|share| share >= 0.99);
    }
    found
}

/// The goals in Markdown.
#[must_use]
pub fn goals_table(all: &[Series]) -> String {
    let mut text = "| goal | wanted | reached | | |\n|---|---|---|---|---|\n".to_owned();
    for goal in all.iter().flat_map(|one| goals_of(all, one)) {
        let met = if goal.met { "met" } else { "**missed**" };
        let _infallible = writeln!(
            text,
            "| {} | {} | {:.3} | {met} | {} |",
            goal.name, goal.wanted, goal.reached, goal.note
        );
    }
    text
}

/// The whole report in Markdown.
#[must_use]
pub fn markdown(all: &[Series], machine: &str) -> String {
    let mut text =
        format!("# zcached beside others\n\n{machine}\n\n## Goals\n\n{}\n## Cases\n", goals_table(all));
    let mut done: Vec<String> = Vec::new();
    for one in all {
        let name = one.case.name();
        if !done.contains(&name) {
            let members: Vec<&Series> = all.iter().filter(|other| other.case.name() == name).collect();
            text.push_str(&table_of(&members));
            done.push(name);
        }
    }
    text.push_str(
        "\n## Where the daemon's time goes\n\nFunctions by their own share of all its threads' time.\n",
    );
    for one in all {
        let Some(profile) = &one.profile else { continue };
        let lines = dearest(profile, PROFILE_LINES).join("\n");
        let _infallible = write!(text, "\n### {}\n\n```\n{lines}\n```\n", one.case.name());
    }
    text
}

/// Everything as JSON: every sample of every series.
#[must_use]
pub fn to_json(all: &[Series], machine: &str) -> Value {
    let tenths = |value: f64| (value * 10.0).round() / 10.0;
    let sample = |sample: &Sample| {
        json!({
            "round": sample.round,
            "requests": sample.requests,
            "per_second": tenths(sample.per_second),
            "latency_us": {
                "mean": tenths(sample.latency_us[0]), "p50": tenths(sample.latency_us[1]),
                "p90": tenths(sample.latency_us[2]), "p99": tenths(sample.latency_us[3]),
                "p999": tenths(sample.latency_us[4]),
            },
            "server_cpu_us_per_request": sample.cpu_us.map(tenths),
        })
    };
    let series = |one: &Series| {
        json!({
            "case": one.case.name(),
            "target": one.target.name(),
            "syscalls_per_request": one.syscalls,
            "hit_share": one.hit_share(),
            "ssd_reads_per_hit": one.ssd_reads_per_hit(),
            "inserted_share": one.inserted_share(),
            "skipping_from_per_second": one.skipping_from(),
            "samples": one.samples.iter().map(sample).collect::<Vec<_>>(),
        })
    };
    json!({ "machine": machine, "series": all.iter().map(series).collect::<Vec<_>>() })
}

#[cfg(test)]
mod tests {
    use super::super::cases::CASES;
    use super::*;
    use crate::harness::daemon::Counters;

    fn series(target: Target, rates: &[f64], latency: f64) -> Series {
        let sample = |(round, rate): (u64, &f64)| Sample {
            round,
            per_second: *rate,
            latency_us: [latency; 5],
            cpu_us: None,
            counters: None,
            requests: 1,
        };
        let samples = (0..).zip(rates).map(sample).collect();
        Series { case: CASES[0], target, samples, syscalls: None, profile: None }
    }

    #[test]
    fn the_middle_is_found() {
        assert!((median(vec![3.0, 1.0, 2.0]) - 2.0).abs() < 1e-9);
        assert!((median(vec![4.0, 1.0, 2.0, 3.0]) - 2.5).abs() < 1e-9);
        assert!(median(Vec::new()).abs() < 1e-9);
    }

    #[test]
    fn ratios_are_taken_within_rounds() {
        // A machine that halves its speed from round to round does not show in the ratio.
        let fast = series(Target::ZcNoise, &[80.0, 40.0, 20.0], 10.0);
        let slow = series(Target::Raw, &[100.0, 50.0, 25.0], 5.0);
        assert!((fast.ratio(&slow, |sample| sample.per_second) - 0.8).abs() < 1e-9);
    }

    #[test]
    fn cpu_is_weighed_with_requests() {
        let mut one = series(Target::ZcNoise, &[1.0, 1.0], 9.0);
        assert_eq!(one.cpu_us(), None);
        (one.samples[0].cpu_us, one.samples[0].requests) = (Some(10.0), 300);
        (one.samples[1].cpu_us, one.samples[1].requests) = (Some(30.0), 100);
        assert!((one.cpu_us().unwrap() - 15.0).abs() < 1e-9);
    }

    #[test]
    fn a_latency_goal_adds_file_and_round_trip() {
        let bare = series(Target::PingPong, &[1.0], 4.0);
        let all = [series(Target::Raw, &[1.0], 5.0), bare, series(Target::ZcNoise, &[1.0], 9.0)];
        let text = goals_table(&all);
        assert!(text.contains("| <= 1.05 | 1.000 | met |"), "{text}");
        let slower = [
            series(Target::Raw, &[1.0], 5.0),
            series(Target::PingPong, &[1.0], 4.0),
            series(Target::ZcNoise, &[1.0], 9.9),
        ];
        assert!(goals_table(&slower).contains("**missed**"));
    }

    #[test]
    fn the_lowest_rate_with_skips_is_told() {
        let mut one = series(Target::ZcNoise, &[500.0, 300.0, 400.0], 9.0);
        one.case.writes = true;
        for (sample, skipped) in one.samples.iter_mut().zip([7, 0, 1]) {
            sample.counters =
                Some(Counters { offered: 100, inserted: 100 - skipped, skipped, ..Counters::default() });
        }
        let text = case_table(&[one]);
        assert!(text.contains("97.3 % of offered extents inserted, some skipped from 400/s"), "{text}");
    }

    #[test]
    fn the_report_has_every_target_of_a_case() {
        let mut all = [series(Target::Raw, &[1.0], 5.0), series(Target::Qemu, &[0.5], 9.0)];
        all[1].profile = Some("Own time\n  7.5%  shard-0  [.]  hash\n".to_owned());
        let text = markdown(&all, "a machine");
        assert!(text.contains("7.5% shard-0 [.] hash"), "{text}");
        assert!(text.contains("| qemu-nbd (direct, io_uring) | 0.50 | 0 |"), "{text}");
        assert_eq!(to_json(&all, "a machine")["series"].as_array().unwrap().len(), 2);
    }
}
