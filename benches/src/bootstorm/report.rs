//! Tables and JSON of a storm.
//!
//! Invariants: a ratio is the median of the ratios within slices.

use std::fmt::Write as _;

use serde_json::{Value, json};

use super::measured::{Options, Sample, Series};
use super::plan::Plan;
use crate::harness::daemon::Counters;
use crate::nbd::report::median;

/// Goals: latency of reads to pass-through.
pub const GOAL_MISS: f64 = 1.02;
/// Latency of hits to the same data uncompressed on the SSD.
pub const GOAL_HIT: f64 = 1.05;

/// What the paper reached (Nitro, section 6.2 and Figure 8), as ratios.
#[must_use]
pub const fn paper(series: &Series) -> f64 {
    match (series.full, series.setting.dedup, series.setting.compression) {
        (false, _, _) => 1.07,
        (true, false, false) => 1.02,
        (true, false, true) => 1.11,
        (true, true, false) => 1.062,
        (true, true, true) => 1.18,
    }
}

impl Series {
    /// The median over slices of a figure of the configuration.
    pub fn figure(&self, of: impl Fn(&Sample) -> f64) -> f64 {
        median(self.slices.iter().map(|(_, cached)| of(cached)).collect())
    }

    /// The median over slices of a figure of the pass-through.
    pub fn pass_figure(&self, of: impl Fn(&Sample) -> f64) -> f64 {
        median(self.slices.iter().map(|(pass, _)| of(pass)).collect())
    }

    /// Ratios of a figure to pass-through's: lower quartile, median, upper quartile of the slices.
    pub fn ratios(&self, of: impl Fn(&Sample) -> f64) -> [f64; 3] {
        // A slice without requests of the kind says nothing.
        let both = self.slices.iter().map(|(pass, cached)| (of(pass), of(cached)));
        let mut ratios: Vec<f64> =
            both.filter(|(pass, _)| *pass > 0.0).map(|(pass, cached)| cached / pass).collect();
        ratios.sort_by(f64::total_cmp);
        let at = |quarter: usize| ratios.get((ratios.len() * quarter / 4).min(ratios.len().max(1) - 1));
        [at(1).copied().unwrap_or(0.0), median(ratios.clone()), at(3).copied().unwrap_or(0.0)]
    }

    /// CPU microseconds of the pass-through for each request, over all slices.
    #[must_use]
    pub fn pass_cpu_us(&self) -> f64 {
        cpu_us(self.slices.iter().map(|(pass, _)| pass))
    }

    /// CPU microseconds of the configuration for each request, over all slices.
    #[must_use]
    pub fn cpu_us(&self) -> f64 {
        cpu_us(self.slices.iter().map(|(_, cached)| cached))
    }

    /// Mean microseconds of the pass-through's writes, over all slices.
    #[must_use]
    pub fn pass_write_us(&self) -> f64 {
        write_us(self.slices.iter().map(|(pass, _)| pass))
    }

    /// Mean microseconds of the configuration's writes, over all slices.
    #[must_use]
    pub fn write_us(&self) -> f64 {
        write_us(self.slices.iter().map(|(_, cached)| cached))
    }

    /// The goal for the mean latency of reads, as a ratio.
    #[must_use]
    pub const fn goal(&self) -> f64 {
        if self.full { GOAL_HIT } else { GOAL_MISS }
    }

    /// Counters that tell what is in the cache: of filling, or of the measured boots at 0 %.
    const fn contents(&self) -> Counters {
        if self.full { self.filled } else { self.measured }
    }
}

fn cpu_us<'a>(samples: impl Iterator<Item = &'a Sample>) -> f64 {
    let (cpu_ns, requests) =
        samples.fold((0, 0), |(cpu, requests), one| (cpu + one.cpu_ns, requests + one.requests));
    share(cpu_ns, requests) / 1000.0
}

fn write_us<'a>(samples: impl Iterator<Item = &'a Sample>) -> f64 {
    let (sum, writes) = samples.fold((0.0, 0), |(sum, writes), one| {
        (one.writes.1.mul_add(one.writes.0 as f64, sum), writes + one.writes.0)
    });
    sum / (writes.max(1) as f64)
}

const fn mean(sample: &Sample) -> f64 {
    sample.read_us[0]
}

const fn middle(sample: &Sample) -> f64 {
    sample.read_us[1]
}

fn share(part: u64, whole: u64) -> f64 {
    if whole == 0 { 0.0 } else { part as f64 / whole as f64 }
}

/// One line for those who wait.
#[must_use]
pub fn line(series: &Series) -> String {
    let [low, ratio, high] = series.ratios(mean);
    format!(
        "mean read latency {ratio:.3} of pass-through ({low:.2} to {high:.2}), median {:.3}; {:.1} % hits",
        series.ratios(middle)[1],
        share(series.measured.hits, series.measured.reads) * 100.0
    )
}

fn latency_table(all: &[Series]) -> String {
    let mut text =
        "| cache | | mean to pass-through (quartiles) | p50 to pass-through | p50, reads up to 32 KiB | \
                    longer reads | goal | | paper | mean us: \
                    pass, cached | p50 | p99 | write mean us: pass, cached | CPU us/request: pass, cached |\n\
                    |---|---|---|---|---|---|---|---|---|---|---|---|---|---|\n"
            .to_owned();
    for one in all {
        let [low, ratio, high] = one.ratios(mean);
        let met = if ratio <= one.goal() { "met" } else { "**missed**" };
        let cache = if one.full { "100 %" } else { "0 %" };
        let most = if one.full && !one.setting.dedup { "" } else { "<= " };
        let pair = |of: fn(&Sample) -> f64| format!("{:.0}, {:.0}", one.pass_figure(of), one.figure(of));
        let _infallible = writeln!(
            text,
            "| {cache} | {} | {ratio:.3} ({low:.2} to {high:.2}) | {:.3} | {:.3} | {:.3} | <= {:.2} | {met} | {most}{:.3} | {} | {} | {} | \
             {} | {} |",
            one.setting.name(),
            one.ratios(middle)[1],
            one.ratios(|sample| sample.by_length_us[0])[1],
            one.ratios(|sample| sample.by_length_us[1])[1],
            one.goal(),
            paper(one),
            pair(mean),
            pair(middle),
            pair(|sample| sample.read_us[3]),
            format_args!("{:.0}, {:.0}", one.pass_write_us(), one.write_us()),
            format_args!("{:.0}, {:.0}", one.pass_cpu_us(), one.cpu_us()),
        );
    }
    text
}

fn contents_table(all: &[Series]) -> String {
    let mut text = "| cache | | reads that hit | SSD reads per hit | dedup ratio | compression | bytes written to the SSD | \
                    insertions skipped |\n|---|---|---|---|---|---|---|---|\n"
        .to_owned();
    for one in all {
        let (seen, held) = (one.measured, one.contents());
        let _infallible = writeln!(
            text,
            "| {} | {} | {:.1} % | {:.2} | {:.2} | {:.2} | {:.0} MB | {:.1} % |",
            if one.full { "100 %" } else { "0 %" },
            one.setting.name(),
            share(seen.hits, seen.reads) * 100.0,
            share(seen.device_reads, seen.hits),
            share(held.stored + held.duplicates, held.stored),
            share(held.raw_bytes, held.stored_bytes),
            held.ssd_bytes as f64 / 1e6,
            share(held.skipped, held.offered) * 100.0,
        );
    }
    text
}

/// What the storm is, in a paragraph.
#[must_use]
pub fn storm(plan: &Plan, source: &str, options: &Options) -> String {
    let (reads, bytes) = plan.template().reads();
    let pace = match options.boot_ns {
        0 => "without pauses".to_owned(),
        boot_ns => format!("with pauses of {:.1} s in all", boot_ns as f64 / 1e9),
    };
    let slices = options.slices;
    let place = options.tiny_cache.as_ref().map_or_else(String::new, |place| {
        format!(" At 0 % the cache is in {}, not on the origins' SSD.", place.display())
    });
    format!(
        "{} machines boot at once from clones of {source} (90 % of the 8 KiB units in common, addresses shifted by 0 to 15 %): \
         {reads} reads of {:.1} MB and {} writes each, {pace}, one request in flight; {slices} slices.{place}",
        plan.machines(),
        bytes as f64 / 1e6,
        plan.template().writes(),
    )
}

/// The report in Markdown.
#[must_use]
pub fn markdown(all: &[Series], machine: &str, storm: &str) -> String {
    format!(
        "# Boot storm (Nitro, Figure 8)\n\n{machine}\n\n{storm}\n\n## Read latency\n\nPass-through is the same \
         daemon over the same data, uncompressed, on the same SSD. At 0 % the cache holds {} MiB: everything is offered \
         to it, and found again is only the rest of an extent of which the read before wanted a part.\n\n{}\n\
         ## What was cached\n\nAt 100 % of what was counted while the cache was filled, hits while boots were \
         measured; at 0 % of the measured boots.\n\n{}\n![ratios](bootstorm.svg)\n",
        super::measured::TINY_CACHE_BYTES >> 20,
        latency_table(all),
        contents_table(all),
    )
}

/// Everything as JSON.
#[must_use]
pub fn to_json(all: &[Series], machine: &str, storm: &str) -> Value {
    let sample = |sample: &Sample| {
        json!({
            "read_us": { "mean": sample.read_us[0], "p50": sample.read_us[1], "p90": sample.read_us[2], "p99": sample.read_us[3] },
            "short_read_us_p50": sample.by_length_us[0],
            "long_read_us_p50": sample.by_length_us[1],
            "writes": sample.writes.0,
            "write_us_mean": sample.writes.1,
            "requests": sample.requests,
            "seconds": sample.seconds,
            "cpu_ns": sample.cpu_ns,
        })
    };
    let counters = |seen: &Counters| {
        json!({
            "reads": seen.reads, "hits": seen.hits, "device_reads": seen.device_reads, "stored": seen.stored,
            "duplicates": seen.duplicates, "raw_bytes": seen.raw_bytes, "stored_bytes": seen.stored_bytes,
            "ssd_bytes": seen.ssd_bytes, "offered": seen.offered, "skipped": seen.skipped,
        })
    };
    let series = |one: &Series| {
        let [low, ratio, high] = one.ratios(mean);
        json!({
            "setting": one.setting.name(),
            "cache_percent": if one.full { 100 } else { 0 },
            "mean_to_pass_through": { "lower_quartile": low, "median": ratio, "upper_quartile": high },
            "cpu_us_per_request": { "pass_through": one.pass_cpu_us(), "cached": one.cpu_us() },
            "p50_to_pass_through": one.ratios(middle)[1],
            "goal": one.goal(),
            "paper": paper(one),
            "filled": counters(&one.filled),
            "measured": counters(&one.measured),
            "slices": one.slices.iter().map(|(pass, cached)| json!([sample(pass), sample(cached)])).collect::<Vec<_>>(),
        })
    };
    json!({ "machine": machine, "storm": storm, "series": all.iter().map(series).collect::<Vec<_>>() })
}

#[cfg(test)]
pub(super) mod tests {
    use super::super::setting::Setting;
    use super::*;

    pub(in super::super) fn series(setting: Setting, full: bool, pairs: &[(f64, f64)]) -> Series {
        let sample = |us: f64| Sample {
            read_us: [us; 4],
            by_length_us: [us, 0.0],
            writes: (2, us),
            requests: 9,
            seconds: 1.0,
            cpu_ns: 45_000,
        };
        let slices = pairs.iter().map(|(pass, cached)| (sample(*pass), sample(*cached))).collect();
        let measured = Counters { reads: 200, hits: 150, device_reads: 300, ..Counters::default() };
        let filled = Counters {
            stored: 10,
            duplicates: 90,
            raw_bytes: 81_920,
            stored_bytes: 40_960,
            ssd_bytes: 2_000_000,
            offered: 200,
            skipped: 1,
            ..Counters::default()
        };
        Series { setting, full, slices, measured, filled }
    }

    #[test]
    fn ratios_are_taken_within_slices() {
        // A machine that becomes slower and slower does not show in the ratio.
        let one = series(Setting::ALL[3], true, &[(10.0, 11.0), (100.0, 110.0), (1000.0, 1100.0)]);
        assert!(one.ratios(mean).iter().all(|ratio| (ratio - 1.1).abs() < 1e-9));
        let text = markdown(&[one], "a machine", "a storm");
        assert!(
            text.contains("| 100 % | D,C | 1.100 (1.10 to 1.10) | 1.100 | 1.100 | 0.000 | <= 1.05 | **missed** | <= 1.180 |"),
            "{text}"
        );
        assert!(text.contains("| 370, 407 | 5, 5 |\n"), "{text}");
        assert!(text.contains("| 100 % | D,C | 75.0 % | 2.00 | 10.00 | 2.00 | 2 MB | 0.5 % |"), "{text}");
    }

    #[test]
    fn goals_and_papers_figures_go_with_the_cache() {
        let miss = series(Setting::ALL[0], false, &[(100.0, 101.0)]);
        let hit = series(Setting::ALL[0], true, &[(100.0, 104.0)]);
        let text = latency_table(&[miss, hit]);
        assert!(
            text.contains("| <= 1.02 | met | <= 1.070 |") && text.contains("| <= 1.05 | met | 1.020 |"),
            "{text}"
        );
    }

    #[test]
    fn json_has_every_slice() {
        let json =
            to_json(&[series(Setting::ALL[2], true, &[(1.0, 2.0), (1.0, 2.0)])], "a machine", "a storm");
        assert_eq!(json["series"][0]["slices"].as_array().unwrap().len(), 2);
        assert_eq!(json["series"][0]["mean_to_pass_through"]["median"], json!(2.0));
    }
}
