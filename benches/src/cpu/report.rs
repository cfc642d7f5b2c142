//! The report of a run: the table, the aims, each case, and JSON.

use std::fmt::Write as _;

use serde_json::{Value, json};

use super::cases::Target;
use super::measured::{Measured, Sample, Series, Spread};

/// Cases in the order of the run, each once, with its series.
fn by_case(all: &Measured) -> Vec<Vec<&Series>> {
    let mut cases: Vec<Vec<&Series>> = Vec::new();
    for series in &all.series {
        match cases.iter_mut().find(|case| case.first().is_some_and(|first| first.case == series.case)) {
            Some(case) => case.push(series),
            None => cases.push(vec![series]),
        }
    }
    cases
}

fn micros(value: f64) -> String {
    if value < 20.0 { format!("{value:.1}") } else { format!("{value:.0}") }
}

/// All medians of CPU time: a row for each case, a column for each target.
fn overview(all: &Measured) -> String {
    let targets: Vec<Target> = Target::ALL
        .into_iter()
        .filter(|target| all.series.iter().any(|series| series.target == *target))
        .collect();
    let mut text = "|".to_owned();
    for target in &targets {
        let _infallible = write!(text, " | {}", target.name());
    }
    let _infallible = writeln!(text, " |\n|---{}|", "|---".repeat(targets.len()));
    for case in by_case(all) {
        let Some(first) = case.first() else { continue };
        let _infallible = write!(text, "| {}", first.case.name());
        for target in &targets {
            let found = case.iter().find(|series| series.target == *target);
            let spread = found.and_then(|series| series.spread(|sample| sample.cpu_us));
            let cell = spread.map_or_else(String::new, |spread| micros(spread.median));
            let _infallible = write!(text, " | {cell}");
        }
        text.push_str(" |\n");
    }
    text
}

/// The table of one case, in Markdown.
#[must_use]
pub fn case_table(series: &[&Series]) -> String {
    let Some(first) = series.first() else { return String::new() };
    let mut text = format!("\n### {}\n\n", first.case.name());
    let share = if first.case.writes { "taken in" } else { "hits" };
    let _infallible = writeln!(
        text,
        "| | CPU us/IO | least to most | later | switches/IO | syscalls/IO | p50 us | IOPS | {share} |\n\
         |---|---|---|---|---|---|---|---|---|"
    );
    for one in series {
        let Some(Spread { median, least, most }) = one.spread(|sample| sample.cpu_us) else { continue };
        let of = |figure: fn(&Sample) -> f64| one.spread(figure).map_or(0.0, |spread| spread.median);
        let share = one.samples.iter().any(|sample| sample.share.is_some());
        let share = if share {
            format!("{:.1} %", 100.0 * of(|sample| sample.share.unwrap_or(0.0)))
        } else {
            String::new()
        };
        let later = one.samples.iter().filter_map(|sample| sample.later_us).collect();
        let later = Spread::of(later).map_or_else(String::new, |spread| micros(spread.median));
        let syscalls = one.syscalls.map_or_else(|| "n/a".to_owned(), |calls| format!("{calls:.2}"));
        let _infallible = writeln!(
            text,
            "| {} | {} | {} to {} | {later} | {:.2} | {syscalls} | {:.0} | {:.0} | {share} |",
            one.target.name(),
            micros(median),
            micros(least),
            micros(most),
            of(|sample| sample.switches),
            of(|sample| sample.p50_us),
            of(|sample| sample.per_second),
        );
    }
    text
}

/// What the bytes of writes cost by themselves.
fn work_table(all: &Measured) -> String {
    let mut text = "| | contents | us | least to most |\n|---|---|---|---|\n".to_owned();
    for (case, target, rounds) in &all.work.of {
        let Some(Spread { median, least, most }) = Spread::of(rounds.clone()) else { continue };
        let contents = if *target == Target::Noise { "noise" } else { "LZ4" };
        let _infallible = writeln!(
            text,
            "| {} | {contents} | {} | {} to {} |",
            case.name(),
            micros(median),
            micros(least),
            micros(most)
        );
    }
    text
}

/// What the page says about itself.
const PREFACE: &str = "\
Microseconds of the server's process for each request, user and system: medians over rounds. The server has one core. The
load generator has another one, or the same one where a row says so. `cargo xtask bench cpu` makes this page. The floor
is a server of one thread that receives, does the raw I/O past the page cache, and sends; with \"+\" it takes one CRC-32C
and makes one copy of the bytes, too; \"null\" is without the file. In tables of cases the column \"later\" has what
write-back takes afterwards, until the origin has the bytes.";

/// `cpu.md`.
#[must_use]
pub fn markdown(all: &Measured, machine: &str) -> String {
    let mut text = format!(
        "# CPU time of a request\n\n{machine}\n\n{PREFACE}\n\n{}\n## Aims\n\nRatios within rounds: their median, the \
         least and the most.\n\n{}\n## Bytes of a write by themselves\n\nOne fingerprint, one attempt to compress, one \
         CRC-32C and one copy, in microseconds.\n\n{}\n## Cases\n",
        overview(all),
        all.aims_table(),
        work_table(all)
    );
    for case in by_case(all) {
        text.push_str(&case_table(&case));
    }
    text
}

/// Everything as JSON: every sample of every series.
#[must_use]
pub fn to_json(all: &Measured, machine: &str) -> Value {
    let hundredths = |value: f64| (value * 100.0).round() / 100.0;
    let sample = |sample: &Sample| {
        json!({
            "requests": sample.requests,
            "cpu_us_per_request": hundredths(sample.cpu_us),
            "later_cpu_us_per_request": sample.later_us.map(hundredths),
            "switches_per_request": hundredths(sample.switches),
            "per_second": sample.per_second.round(),
            "p50_us": hundredths(sample.p50_us),
            "share": sample.share,
        })
    };
    let series = |one: &Series| {
        json!({
            "case": one.case.name(),
            "target": one.target.name(),
            "syscalls_per_request": one.syscalls.map(hundredths),
            "samples": one.samples.iter().map(sample).collect::<Vec<_>>(),
        })
    };
    let work = all.work.of.iter().map(|(case, target, rounds)| {
        let us: Vec<f64> = rounds.iter().copied().map(hundredths).collect();
        json!({ "case": case.name(), "contents_of": target.name(), "us": us })
    });
    let aims = all.aims().into_iter().map(|aim| {
        let (wanted, seen, met) = (aim.wanted, hundredths(aim.seen.median), aim.is_met());
        json!({ "aim": aim.what, "wanted": wanted, "seen": seen, "met": met })
    });
    json!({
        "machine": machine,
        "aims": aims.collect::<Vec<_>>(),
        "work": work.collect::<Vec<_>>(),
        "series": all.series.iter().map(series).collect::<Vec<_>>(),
    })
}

#[cfg(test)]
mod tests {
    use super::super::aims::tests::series;
    use super::super::cases::{HIT_QD32, WRITES};
    use super::super::measured::Work;
    use super::*;

    #[test]
    fn the_report_has_a_row_for_each_case_and_a_line_for_each_target() {
        let all = Measured {
            series: vec![
                series(HIT_QD32, Target::Floor, &[5.0, 6.0, 7.0]),
                series(HIT_QD32, Target::Noise, &[10.0]),
                series(WRITES[0], Target::Noise, &[30.0]),
            ],
            work: Work { of: vec![(WRITES[0], Target::Noise, vec![4.0])] },
        };
        let text = markdown(&all, "a machine");
        for line in [
            "| | floor | zcached, noise |",
            "| 8k hit, QD32 | 6.0 | 10.0 |",
            "| 8k write, QD32 |  | 30 |",
            "| floor | 6.0 | 5.0 to 7.0 |  | 0.50 | n/a | 70 | 1000 | 100.0 % |",
            "| 8k write, QD32 | noise | 4.0 | 4.0 to 4.0 |",
        ] {
            assert!(text.contains(line), "{line}\n{text}");
        }
        let json = to_json(&all, "a machine");
        assert_eq!(json["series"].as_array().unwrap().len(), 3);
        assert_eq!(json["work"][0]["us"][0], 4.0);
    }
}
