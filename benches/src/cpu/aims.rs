//! What the daemon may take, beside what was seen.

use std::fmt::Write as _;

use super::cases::{Case, HIT_4K_QD32, HIT_128K_QD8, HIT_QD1_ONE_CORE, HIT_QD32, Target, WRITES};
use super::measured::{Measured, Sample, Spread};

/// An aim: a ratio that must not be higher than wanted.
#[derive(Debug)]
pub struct Aim {
    /// What is held against what.
    pub what: String,
    /// The most that is wanted.
    pub wanted: f64,
    /// What was seen, round by round.
    pub seen: Spread,
}

impl Aim {
    /// Whether the median is as wanted.
    #[must_use]
    pub const fn is_met(&self) -> bool {
        self.seen.median <= self.wanted
    }
}

const fn cpu(sample: &Sample) -> f64 {
    sample.cpu_us
}

const fn p50(sample: &Sample) -> f64 {
    sample.p50_us
}

impl Measured {
    /// The ratio of a figure of two targets in a case, round by round.
    fn ratio(&self, case: &Case, own: Target, other: Target, of: fn(&Sample) -> f64) -> Option<Spread> {
        let [own, other] = [self.of(case, own)?, self.of(case, other)?];
        let rounds = own.samples.iter().zip(&other.samples);
        Spread::of(rounds.map(|(own, other)| of(own) / of(other)).collect())
    }

    /// What a write takes over pass-through, in what its bytes cost by themselves.
    fn extra(&self, case: &Case, own: Target) -> Option<Spread> {
        let content = if own == Target::BackHalving { Target::Halving } else { own };
        let content = if content == Target::BackNoise { Target::Noise } else { content };
        let [own, pass] = [self.of(case, own)?, self.of(case, Target::PassThrough)?];
        let rounds = own.samples.iter().zip(&pass.samples).zip(self.work_us(case, content)?);
        Spread::of(rounds.map(|((own, pass), work)| (own.cpu_us - pass.cpu_us) / work).collect())
    }

    /// Every aim that this run can tell about.
    #[must_use]
    pub fn aims(&self) -> Vec<Aim> {
        let mut aims = Vec::new();
        let mut beside = |case: &Case, own: Target, other: Target, wanted: f64| {
            if let Some(seen) = self.ratio(case, own, other, cpu) {
                let what = format!("{}: CPU of {} to {}", case.name(), own.name(), other.name());
                aims.push(Aim { what, wanted, seen });
            }
        };
        beside(&HIT_QD32, Target::Noise, Target::FloorPlus, 1.25);
        beside(&HIT_QD32, Target::Halving, Target::FloorPlus, 1.45);
        for target in [Target::Noise, Target::Halving] {
            beside(&HIT_QD32, target, Target::Qemu, 0.75);
            beside(&HIT_4K_QD32, target, Target::Qemu, 1.0);
            beside(&HIT_QD1_ONE_CORE, target, Target::Floor, 1.2);
        }
        beside(&HIT_QD32, Target::Null, Target::FloorNull, 1.1);
        beside(&HIT_QD1_ONE_CORE, Target::Null, Target::FloorNull, 1.1);
        beside(&HIT_128K_QD8, Target::Noise, Target::FloorPlus, 1.2);
        beside(&HIT_128K_QD8, Target::Halving, Target::FloorPlus, 1.6);
        for target in [Target::Noise, Target::Halving] {
            if let Some(seen) = self.ratio(&HIT_QD1_ONE_CORE, target, Target::Floor, p50) {
                let what = format!("{}: p50 of {} to floor", HIT_QD1_ONE_CORE.name(), target.name());
                aims.push(Aim { what, wanted: 1.08, seen });
            }
        }
        for case in WRITES {
            for target in [Target::Noise, Target::Halving, Target::BackNoise, Target::BackHalving] {
                if let Some(seen) = self.extra(&case, target) {
                    let later = if target.is_write_back() { " without destaging" } else { "" };
                    let what = format!(
                        "{}: CPU of {}{later} over pass-through, to that of its bytes",
                        case.name(),
                        target.name()
                    );
                    aims.push(Aim { what, wanted: 1.3, seen });
                }
            }
        }
        aims
    }

    /// The aims in Markdown.
    #[must_use]
    pub fn aims_table(&self) -> String {
        let mut text = "| aim | wanted | seen | least to most | |\n|---|---|---|---|---|\n".to_owned();
        for aim in self.aims() {
            let Spread { median, least, most } = aim.seen;
            let met = if aim.is_met() { "met" } else { "**missed**" };
            let _infallible = writeln!(
                text,
                "| {} | <= {} | {median:.2} | {least:.2} to {most:.2} | {met} |",
                aim.what, aim.wanted
            );
        }
        text
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::super::measured::{Series, Work};
    use super::*;

    pub(in crate::cpu) fn series(case: Case, target: Target, cpu_us: &[f64]) -> Series {
        let sample = |cpu_us: &f64| Sample {
            requests: 1,
            cpu_us: *cpu_us,
            later_us: None,
            switches: 0.5,
            per_second: 1000.0,
            p50_us: 70.0,
            share: Some(1.0),
        };
        Series { case, target, samples: cpu_us.iter().map(sample).collect(), syscalls: None }
    }

    #[test]
    fn ratios_are_taken_within_rounds() {
        // A machine that halves its speed from round to round does not show in the ratio.
        let floor = series(HIT_QD32, Target::FloorPlus, &[10.0, 20.0, 40.0]);
        let noise = series(HIT_QD32, Target::Noise, &[12.0, 24.0, 48.0]);
        let lz4 = series(HIT_QD32, Target::Halving, &[15.0, 30.0, 60.0]);
        let all = Measured { series: vec![floor, noise, lz4], work: Work::default() };
        let table = all.aims_table();
        assert!(table.contains("| <= 1.25 | 1.20 | 1.20 to 1.20 | met |"), "{table}");
        assert!(table.contains("| <= 1.45 | 1.50 | 1.50 to 1.50 | **missed** |"), "{table}");
        assert_eq!(all.aims().len(), 2);
    }

    #[test]
    fn what_writes_take_over_pass_through_is_told_in_their_bytes_cost() {
        let case = WRITES[0];
        let all = Measured {
            series: vec![
                series(case, Target::PassThrough, &[10.0]),
                series(case, Target::BackHalving, &[22.0]),
            ],
            work: Work { of: vec![(case, Target::Noise, vec![1.0]), (case, Target::Halving, vec![8.0])] },
        };
        let aims = all.aims();
        assert_eq!(aims.len(), 1);
        assert!((aims[0].seen.median - 1.5).abs() < 1e-9 && !aims[0].is_met());
    }
}
