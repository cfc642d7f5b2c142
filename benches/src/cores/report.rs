//! The page: what was measured, the aim, and the model.

use std::fmt::Write as _;

use serde_json::{Value, json};

use super::measured::{Sample, Series, THREADS};
use crate::cpu::measured::Spread;

/// What two threads shall serve beside one.
pub const SPEED_UP_MIN: f64 = 1.7;
/// Hits a second that are wanted of 16 cores.
const RATE_WANTED: f64 = 1e6;
/// Numbers of threads of the model.
const MODELLED: [u32; 5] = [1, 2, 4, 8, 16];

fn spread(spread: Option<Spread>) -> String {
    let shown = |spread: Spread| format!("{:.2} ({:.2} to {:.2})", spread.median, spread.least, spread.most);
    spread.map(shown).unwrap_or_default()
}

fn median(series: &Series, place: usize, of: impl Fn(&Sample) -> f64) -> f64 {
    series.spread(place, of).map_or(0.0, |spread| spread.median)
}

/// A case in one line.
#[must_use]
pub fn row(series: &Series) -> String {
    let figures = |place: usize| {
        let [cpu, turn, waited] = [
            spread(series.spread(place, |sample| sample.cpu_us)),
            spread(series.spread(place, |sample| sample.turn_us)),
            spread(series.spread(place, |sample| sample.waited_us)),
        ];
        format!("{cpu} | {turn} | {waited}")
    };
    let lasts = THREADS.len() - 1;
    format!("| {} | {} | {} |", series.case.name, figures(0), figures(lasts))
}

fn aim(series: &Series) -> String {
    let seen = series.speed_up(THREADS.len() - 1);
    let is_met = seen.is_some_and(|seen| seen.median >= SPEED_UP_MIN);
    let verdict = if is_met { "met" } else { "**missed**" };
    format!("| {} | >= {SPEED_UP_MIN} | {} | {verdict} |", series.case.name, spread(seen))
}

fn modelled(series: &Series) -> String {
    let sample = Sample {
        cpu_us: median(series, 0, |sample| sample.cpu_us),
        turn_us: median(series, 0, |sample| sample.turn_us),
        waited_us: 0.0,
        per_second: 0.0,
        share: 1.0,
    };
    let times = sample.times();
    let rates: Vec<String> =
        MODELLED.iter().map(|&threads| format!("{:.0}", times.rate(threads) / 1000.0)).collect();
    let verdict = if times.rate(16) >= RATE_WANTED { "met" } else { "**missed**" };
    format!("| {} | {} | {:.0} | {verdict} |", series.case.name, rates.join(" | "), times.bound() / 1000.0)
}

/// The page.
#[must_use]
pub fn markdown(all: &[Series], machine: &str) -> String {
    let mut page = format!(
        "# More I/O threads\n\n{machine}\n\n`cargo xtask bench cores` makes this page. Two daemons answer the same hits \
         over four connections: one with `io_threads = 1`, one\nwith 2. Microseconds for each hit: medians over rounds, \
         with the least and the most. *CPU*: what the daemon's process ran.\n*Turns*: time that passed while a thread had \
         the shard; threads have it one after the other. *Waited*: time that threads\nwaited for it.\n\n| | CPU, 1 thread \
         | turns | waited | CPU, 2 threads | turns | waited |\n|---|---|---|---|---|---|---|\n"
    );
    for series in all {
        page.push_str(&row(series));
        page.push('\n');
    }
    page.push_str(
        "\n## Two threads beside one\n\nHits that threads with a core each serve, when a hit takes CPU and waiting of one. \
         The load generator's time is not in it.\n\n| | wanted | seen | |\n|---|---|---|---|\n",
    );
    for series in all {
        let _infallible = writeln!(page, "{}", aim(series));
    }
    page.push_str(
        "\n## More threads, by a model\n\nThousands of hits a second of threads with a core each, from the times of one \
         thread: the exact mean value analysis of a\nstation with a queue (turns) and one without (the rest). Wanted: a \
         million a second of 16 threads, with four NVMe drives\nthat serve a million reads together. The bound is that of \
         turns alone.\n\n| | 1 | 2 | 4 | 8 | 16 | bound | |\n|---|---|---|---|---|---|---|---|\n",
    );
    for series in all {
        let _infallible = writeln!(page, "{}", modelled(series));
    }
    page
}

/// All figures.
#[must_use]
pub fn to_json(all: &[Series], machine: &str) -> Value {
    let sample = |sample: &Sample| {
        json!({
            "cpu_us": sample.cpu_us, "turn_us": sample.turn_us, "waited_us": sample.waited_us,
            "per_second": sample.per_second, "hit_share": sample.share,
        })
    };
    let series = |series: &Series| {
        let by_threads = THREADS.iter().zip(&series.samples);
        let rounds = by_threads.map(|(threads, samples)| {
            json!({ "threads": threads, "rounds": samples.iter().map(sample).collect::<Vec<_>>() })
        });
        json!({ "case": series.case.name, "daemons": rounds.collect::<Vec<_>>() })
    };
    json!({ "machine": machine, "cases": all.iter().map(series).collect::<Vec<_>>() })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cores::measured::CASES;

    #[test]
    fn the_page_tells_aims_that_are_missed() {
        let one = Sample { cpu_us: 10.0, turn_us: 4.0, waited_us: 0.0, per_second: 9e4, share: 1.0 };
        let slow = Sample { waited_us: 5.0, ..one };
        let series = |second| Series { case: CASES[1], samples: [vec![one], vec![second]] };
        let page = markdown(&[series(one), series(slow)], "a machine");
        assert!(page.contains("| >= 1.7 | 2.00 (2.00 to 2.00) | met |"), "{page}");
        assert!(page.contains("| >= 1.7 | 1.33 (1.33 to 1.33) | **missed** |"), "{page}");
        assert!(page.contains("| 100 | "), "100,000 of one thread: {page}");
        assert!(page.contains(" | 250 | **missed** |"), "turns of 4 us: {page}");
    }
}
