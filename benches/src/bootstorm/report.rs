//! Tables and the chart of a storm.

use zc_report::{Bar, Bars, Table, figure, median};

use super::plan::Plan;
use super::setting::Setting;
use super::{Options, TINY_CACHE_BYTES};
use crate::measure::{Measured, Series};
use crate::report::{Cell, Column, target_table};

/// The targets.
pub(crate) const PASS: &str = "pass-through";
pub(crate) const CACHED: &str = "cached";

/// `D,C at 100 %`.
pub(crate) fn case(setting: Setting, is_full: bool) -> String {
    format!("{} at {} %", setting.name(), if is_full { 100 } else { 0 })
}

/// Returns the paper's results (Nitro, section 6.2 and Figure 8), as ratios; at 0 % and with deduplication upper
/// bounds.
fn paper(case: &str) -> f64 {
    match case {
        "ND,NC at 100 %" => 1.02,
        "ND,C at 100 %" => 1.11,
        "D,NC at 100 %" => 1.062,
        "D,C at 100 %" => 1.18,
        _ => 1.07,
    }
}

/// Ratios of a figure to pass-through's: lower quartile, median, upper quartile of the slices.
fn quartiles(all: &Measured, case: &str, name: &str) -> [f64; 3] {
    let [pass, cached] =
        [PASS, CACHED].map(|target| all.of(case, target).map_or_else(Vec::new, |one| one.values(name)));
    // Slices without requests of the kind are skipped.
    let both = pass.into_iter().zip(cached).filter(|(pass, _)| *pass > 0.0);
    let mut ratios: Vec<f64> = both.map(|(pass, cached)| cached / pass).collect();
    ratios.sort_by(f64::total_cmp);
    let at = |quarter: usize| {
        let place = (ratios.len() * quarter / 4).min(ratios.len().max(1) - 1);
        ratios.get(place).copied().unwrap_or(0.0)
    };
    [at(1), median(ratios.clone()), at(3)]
}

/// Table of the latencies of all cases, beside those of pass-through.
pub(crate) fn latencies(all: &Measured) -> String {
    let heads = [
        "",
        "mean to pass-through (quartiles)",
        "p50 to pass-through",
        "p50, reads up to 32 KiB",
        "longer reads",
        "paper",
        "mean us: pass, cached",
        "p50",
        "p99",
        "write mean us: pass, cached",
        "CPU us/request: pass, cached",
    ];
    let mut table = Table::new(&heads);
    for (case, series) in all.cases() {
        let [low, ratio, high] = quartiles(all, case, "mean_us");
        let middle = |name| format!("{:.3}", quartiles(all, case, name)[1]);
        let pair = |of: &dyn Fn(&Series) -> f64| {
            series.iter().map(|one| figure(of(one))).collect::<Vec<_>>().join(", ")
        };
        let share = |part, whole| pair(&|one: &Series| one.share(part, whole).unwrap_or(0.0));
        table.row([
            case.to_owned(),
            format!("{ratio:.3} ({low:.2} to {high:.2})"),
            middle("p50_us"),
            middle("short_p50_us"),
            middle("long_p50_us"),
            format!("{:.3}", paper(case)),
            pair(&|one: &Series| one.median("mean_us")),
            pair(&|one: &Series| one.median("p50_us")),
            pair(&|one: &Series| one.median("p99_us")),
            share("writes_us", "writes"),
            share("cpu_us", "requests"),
        ]);
    }
    table.to_string()
}

const CONTENTS: &[Column] = &[
    ("reads that hit, %", Cell::Median("hits_percent")),
    ("SSD reads per hit", Cell::Median("ssd_reads_per_hit")),
    ("dedup ratio", Cell::Median("dedup_ratio")),
    ("compression", Cell::Median("compression_ratio")),
    ("MB written to the SSD", Cell::Median("ssd_mb")),
    ("insertions skipped, %", Cell::Median("skipped_percent")),
];

/// Paragraph about the storm.
pub(crate) fn storm(plan: &Plan, source: &str, options: &Options) -> String {
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

/// Sections after the aims.
pub(crate) fn sections(all: &Measured) -> String {
    format!(
        "\n## Read latency\n\nPass-through is the same daemon over the same data, uncompressed, on the same SSD. At 0 % the cache \
         holds {} MiB: everything is offered to it, and found again is only the rest of an extent of which the read before \
         wanted a part. The paper's figures are for its own origin; at 0 % and with deduplication they are what it had at \
         most.\n\n{}\n\
         ## What was cached\n\nAt 100 % of what was counted while the cache was filled, hits while boots were measured; at 0 % \
         of the measured boots.\n\n{}\n![ratios](bootstorm.svg)\n",
        TINY_CACHE_BYTES >> 20,
        latencies(all),
        target_table(all, CACHED, CONTENTS),
    )
}

/// Mean read latency relative to pass-through, beside the paper's.
pub(crate) fn chart(all: &Measured) -> String {
    let bar =
        |label: &str, ratio, is_ours| Bar { label: label.to_owned(), ratio, note: String::new(), is_ours };
    let group = |(case, _): &(&str, Vec<&Series>)| {
        let own = bar("zcached", quartiles(all, case, "mean_us")[1], true);
        ((*case).to_owned(), vec![own, bar("paper", paper(case), false)])
    };
    let title = "Boot storm: mean read latency, relative to pass-through".to_owned();
    Bars { title, ratio_max: 2.0, groups: all.cases().iter().map(group).collect() }.svg()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::aims;
    use crate::measure::Sample;

    fn series(case: &str, pairs: &[(f64, f64)]) -> Vec<Series> {
        let sample = |us: f64| {
            let figures =
                [("mean_us", us), ("p50_us", us), ("p99_us", us), ("writes", 2.0), ("writes_us", 2.0 * us)];
            Sample::new(figures).with("requests", 9.0).with("cpu_us", 45.0)
        };
        let pass = pairs.iter().map(|(pass, _)| sample(*pass)).collect();
        let cached = pairs.iter().map(|(_, cached)| sample(*cached)).collect();
        vec![Series::new(case, PASS, pass), Series::new(case, CACHED, cached)]
    }

    #[test]
    fn ratios_are_taken_within_slices() {
        // A machine that becomes slower and slower does not show in the ratio.
        let all = Measured(series("D,C at 100 %", &[(10.0, 11.0), (100.0, 110.0), (1000.0, 1100.0)]));
        assert!(quartiles(&all, "D,C at 100 %", "mean_us").iter().all(|ratio| (ratio - 1.1).abs() < 1e-9));
        let text = latencies(&all);
        assert!(text.contains("| D,C at 100 % | 1.100 (1.10 to 1.10) | 1.100 | 0.000 |"), "{text}");
        assert!(text.contains("| 1.180 |") && text.contains("| 370, 407 | 5.00, 5.00 |\n"), "{text}");
    }

    #[test]
    fn aims_and_papers_figures_go_with_the_cache() {
        let [miss, hit] = [Setting::ALL[0]; 2].map(|setting| setting);
        let mut all = series(&case(miss, false), &[(100.0, 101.0)]);
        all.extend(series(&case(hit, true), &[(100.0, 106.0)]));
        let all = Measured(all);
        let met: Vec<bool> = aims::seen("bootstorm", &all).iter().map(|aim| aim.met).collect();
        assert_eq!(met, [true, false]);
        let text = chart(&all);
        assert_eq!(text.matches("<rect").count(), 4);
        let words: Vec<&str> = text.lines().filter(|line| !line.starts_with('<')).collect();
        for word in ["ND,NC at 0 %", "1.07", "1.02"] {
            assert!(words.contains(&word), "{text}");
        }
    }
}
