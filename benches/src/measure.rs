//! Short runs and their figures.
//!
//! Job: run every target of a case in each round, in rotating order, and keep the named figures of each run.
//!
//! Invariants: other load of the machine affects all targets alike. A ratio is the median of ratios within rounds.

use std::collections::BTreeMap;

use anyhow::Context as _;
use hdrhistogram::Histogram;
use serde_json::{Value, json};
use zc_report::{Spread, median};

use crate::load::Outcome;

/// Figures of a run, by name.
#[derive(Debug, Clone, Default, PartialEq)]
pub(crate) struct Sample(BTreeMap<&'static str, f64>);

impl Sample {
    pub(crate) fn new<const N: usize>(figures: [(&'static str, f64); N]) -> Self {
        Self(BTreeMap::from(figures))
    }

    /// Adds a figure, unless it is `None`.
    pub(crate) fn with(mut self, name: &'static str, figure: impl Into<Option<f64>>) -> Self {
        self.0.extend(figure.into().map(|figure| (name, figure)));
        self
    }

    pub(crate) fn and(mut self, other: Self) -> Self {
        self.0.extend(other.0);
        self
    }

    /// Mean and percentiles of nanoseconds, in microseconds.
    pub(crate) fn latencies(histogram: &Histogram<u64>) -> Self {
        let at = |quantile| histogram.value_at_quantile(quantile) as f64 / 1000.0;
        Self::new([
            ("mean_us", histogram.mean() / 1000.0),
            ("p50_us", at(0.5)),
            ("p90_us", at(0.9)),
            ("p99_us", at(0.99)),
            ("p999_us", at(0.999)),
        ])
    }

    /// Returns the counts since `before`.
    pub(crate) fn since(&self, before: &Self) -> Self {
        let since = |(name, now): (&&'static str, &f64)| (*name, now - before.get(name).unwrap_or(0.0));
        Self(self.0.iter().map(since).collect())
    }

    pub(crate) fn get(&self, name: &str) -> Option<f64> {
        self.0.get(name).copied()
    }

    /// A part of a whole, if there is a whole.
    pub(crate) fn share(&self, part: &str, whole: &str) -> Option<f64> {
        let whole = self.get(whole).filter(|whole| *whole > 0.0)?;
        Some(self.get(part)? / whole)
    }

    fn json(&self) -> Value {
        let rounded =
            |value: f64| if value < 1000.0 { (value * 1000.0).round() / 1000.0 } else { value.round() };
        self.0.iter().map(|(name, value)| ((*name).to_owned(), json!(rounded(*value)))).collect()
    }
}

impl From<&Outcome> for Sample {
    fn from(outcome: &Outcome) -> Self {
        let figures = [("requests", outcome.requests as f64), ("per_second", outcome.per_second())];
        Self::new(figures).and(Self::latencies(&outcome.latency))
    }
}

/// All runs of a target in a case, one for each round.
#[derive(Debug, Clone)]
pub(crate) struct Series {
    pub(crate) case: String,
    pub(crate) target: String,
    pub(crate) samples: Vec<Sample>,
    /// Figures of a run of its own.
    pub(crate) once: Sample,
    /// A profile of the server, from a run of its own.
    pub(crate) profile: Option<String>,
}

impl Series {
    pub(crate) fn new(case: &str, target: &str, samples: Vec<Sample>) -> Self {
        let (case, target) = (case.to_owned(), target.to_owned());
        Self { case, target, samples, once: Sample::default(), profile: None }
    }

    /// A figure, round by round.
    pub(crate) fn values(&self, name: &str) -> Vec<f64> {
        let all: Vec<f64> = self.samples.iter().filter_map(|sample| sample.get(name)).collect();
        if all.is_empty() { self.once.get(name).into_iter().collect() } else { all }
    }

    pub(crate) fn spread(&self, name: &str) -> Option<Spread> {
        Spread::of(self.values(name))
    }

    /// The median of a figure; 0 if there is none.
    pub(crate) fn median(&self, name: &str) -> f64 {
        median(self.values(name))
    }

    /// One counter over another, over all rounds, if the latter counted anything.
    pub(crate) fn share(&self, part: &str, whole: &str) -> Option<f64> {
        let whole: f64 = self.values(whole).iter().sum();
        let part = self.values(part);
        (whole > 0.0 && !part.is_empty()).then(|| part.iter().sum::<f64>() / whole)
    }

    fn json(&self) -> Value {
        let samples: Vec<Value> = self.samples.iter().map(Sample::json).collect();
        json!({"case": self.case, "target": self.target, "once": self.once.json(), "samples": samples})
    }
}

/// Everything that was measured.
#[derive(Debug, Clone, Default)]
pub(crate) struct Measured(pub(crate) Vec<Series>);

impl Measured {
    pub(crate) fn of(&self, case: &str, target: &str) -> Option<&Series> {
        self.0.iter().find(|series| series.case == case && series.target == target)
    }

    /// Cases in the order of the run, with their series.
    pub(crate) fn cases(&self) -> Vec<(&str, Vec<&Series>)> {
        let mut cases: Vec<(&str, Vec<&Series>)> = Vec::new();
        for series in &self.0 {
            match cases.iter_mut().find(|(case, _)| *case == series.case) {
                Some((_, members)) => members.push(series),
                None => cases.push((&series.case, vec![series])),
            }
        }
        cases
    }

    /// Returns a target's figure, less that of another, over the sum of those of others, round by round; `None` if one
    /// of them is missing.
    pub(crate) fn ratio(
        &self,
        case: &str,
        figure: &str,
        own: &str,
        less: Option<&str>,
        over: &[&str],
    ) -> Option<Spread> {
        let values = |target: &str| self.of(case, target).map(|series| series.values(figure));
        let mut ratios = values(own)?;
        if let Some(less) = less {
            let less = values(less)?;
            ratios = ratios.iter().zip(less).map(|(own, less)| own - less).collect();
        }
        let over: Vec<Vec<f64>> = over.iter().map(|target| values(target)).collect::<Option<_>>()?;
        if !over.is_empty() {
            let rounds = over.iter().map(Vec::len).min().unwrap_or(0).min(ratios.len());
            let sum = |round: usize| over.iter().map(|values| values[round]).sum::<f64>();
            // Rounds without counts are skipped.
            let counted = (0..rounds).filter(|round| sum(*round) > 0.0);
            ratios = counted.map(|round| ratios[round] / sum(round)).collect();
        }
        Spread::of(ratios)
    }

    pub(crate) fn json(&self) -> Value {
        self.0.iter().map(Series::json).collect()
    }
}

/// Runs every target of a case in each round, in rotating order. Targets without a sample have an empty series.
pub(crate) fn rounds<T>(
    case: &str,
    targets: &[(&str, T)],
    rounds: u64,
    mut measure: impl FnMut(&T, u64) -> anyhow::Result<Sample>,
) -> anyhow::Result<Vec<Series>> {
    let mut all: Vec<Series> = targets.iter().map(|(name, _)| Series::new(case, name, Vec::new())).collect();
    for round in 0..rounds {
        for turn in 0..targets.len() {
            let at = (turn + zc_core::usize_from_u64(round)) % targets.len();
            let (name, target) = &targets[at];
            let sample = measure(target, round).with_context(|| format!("{name}: {case}"))?;
            all[at].samples.push(sample);
        }
    }
    Ok(all)
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    pub(crate) fn series(case: &str, target: &str, figure: &'static str, values: &[f64]) -> Series {
        Series::new(case, target, values.iter().map(|value| Sample::new([(figure, *value)])).collect())
    }

    #[test]
    fn ratios_are_taken_within_rounds() {
        // A machine that halves its speed from round to round does not show in the ratio.
        let all = Measured(vec![
            series("c", "fast", "us", &[10.0, 20.0, 40.0]),
            series("c", "slow", "us", &[15.0, 30.0, 60.0]),
            series("c", "work", "us", &[2.0, 4.0, 8.0]),
        ]);
        let ratio =
            |less, over: &[&str]| all.ratio("c", "us", "slow", less, over).map(|spread| spread.median);
        assert_eq!(ratio(None, &["fast"]), Some(1.5));
        assert_eq!(ratio(Some("fast"), &["work"]), Some(2.5));
        assert_eq!(ratio(None, &["fast", "work"]), Some(1.25));
        assert_eq!(ratio(Some("fast"), &[]), Some(10.0));
        assert_eq!(ratio(None, &["fast", "missing"]), None);
    }

    #[test]
    fn targets_take_turns() {
        let mut order = Vec::new();
        let all = rounds("c", &[("a", 1), ("b", 2)], 3, |target, round| {
            order.push(*target);
            Ok(Sample::new([("us", round as f64)]))
        });
        let all = all.unwrap();
        assert_eq!(order, [1, 2, 2, 1, 1, 2]);
        assert_eq!(all[1].values("us"), [0.0, 1.0, 2.0]);
        assert_eq!(Measured(all).cases().len(), 1);
    }

    #[test]
    fn shares_are_those_of_all_rounds() {
        let sample = |part, whole| Sample::new([("part", part), ("whole", whole)]);
        let one = Series::new("c", "t", vec![sample(1.0, 1.0), sample(0.0, 3.0)]);
        assert_eq!(one.share("part", "whole"), Some(0.25));
        assert_eq!(one.share("whole", "none"), None);
        assert_eq!(sample(5.0, 7.0).since(&sample(1.0, 2.0)), sample(4.0, 5.0));
    }
}
