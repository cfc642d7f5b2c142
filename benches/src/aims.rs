//! Goals of all benches, and their results.

use serde_json::{Value, json};
use zc_report::Bound::{self, AtLeast, AtMost};
use zc_report::{Spread, Table, verdict};

use crate::measure::{Measured, Series};

/// A goal: a bound on a figure of `own`, less that of `less`, over the sum of those of `over`.
struct Aim {
    bench: &'static str,
    /// Names of cases; `*` stands for anything.
    cases: &'static str,
    own: &'static [&'static str],
    figure: &'static str,
    less: Option<&'static str>,
    over: &'static [&'static str],
    bound: Bound,
    /// Share of the offered extents that the cache has to take; otherwise the aim is missed.
    inserted_min: f64,
}

const fn aim(
    bench: &'static str,
    cases: &'static str,
    own: &'static [&'static str],
    figure: &'static str,
    over: &'static [&'static str],
    bound: Bound,
) -> Aim {
    Aim { bench, cases, own, figure, less: None, over, bound, inserted_min: 0.0 }
}

impl Aim {
    const fn less(self, target: &'static str) -> Self {
        Self { less: Some(target), ..self }
    }

    const fn inserted(self) -> Self {
        Self { inserted_min: 0.99, ..self }
    }
}

/// Targets that hit in `bench nbd`.
const HITS: &[&str] = &[
    "zcached, incompressible",
    "zcached, 2:1",
    "zcached, 2:1 and half duplicate",
    "zcached, 2:1, poll_max = 100 us",
];
const NULLS: &[&str] = &["null export (zc-nbd)", "null export (zc-nbd), poll_max = 100 us"];
const RAW: &str = "file itself (fio, io_uring, direct)";
const QEMU: &str = "qemu-nbd (direct, io_uring)";
const NOISE: &[&str] = &["zcached, noise"];
const LZ4: &[&str] = &["zcached, LZ4"];
const BOTH: &[&str] = &["zcached, noise", "zcached, LZ4"];
const NOISE_WRITES: &[&str] = &["zcached, noise", "zcached, write-back, noise"];
const LZ4_WRITES: &[&str] = &["zcached, LZ4", "zcached, write-back, LZ4"];
const WRITE_BACK: &[&str] = &["zcached, write-back", "zcached, write-back-durable"];

const FAR: &[&str] = &["1 ms", "10 ms", "50 ms"];
const NULL: &[&str] = &["null export (zc-nbd)"];

/// All aims.
const AIMS: &[Aim] = &[
    aim("nbd", "*k random read, QD1", NULLS, "per_second", &["bare socket round trip"], AtLeast(0.9)),
    aim("nbd", "*k random read, QD32, 2 *", NULL, "per_second", &["nbdkit null"], AtLeast(2.0)),
    // Medians: means would include other load of the machine.
    aim("nbd", "*k random read, QD1*", HITS, "p50_us", &[RAW, "bare socket round trip"], AtMost(1.05)),
    aim("nbd", "*k random read, QD32*", HITS, "per_second", &[RAW], AtLeast(0.95)),
    aim("nbd", "*k random read, QD32*", HITS, "per_second", &[QEMU], AtLeast(1.25)),
    aim("nbd", "*k sequential read*", HITS, "per_second", &["zcached, pass-through"], AtLeast(0.9)),
    aim("nbd", "*k sequential write*", HITS, "per_second", &["zcached, pass-through"], AtLeast(0.9))
        .inserted(),
    aim("nbd", "*k random write*", HITS, "per_second", &["zcached, pass-through"], AtLeast(0.95)).inserted(),
    aim("cpu", "8k hit, QD32", NOISE, "cpu_us", &["floor +"], AtMost(1.25)),
    aim("cpu", "8k hit, QD32", LZ4, "cpu_us", &["floor +"], AtMost(1.45)),
    aim("cpu", "8k hit, QD32", BOTH, "cpu_us", &["qemu-nbd"], AtMost(0.75)),
    aim("cpu", "4k hit, QD32", BOTH, "cpu_us", &["qemu-nbd"], AtMost(1.0)),
    aim("cpu", "8k hit, QD1, one core", BOTH, "cpu_us", &["floor"], AtMost(1.2)),
    aim("cpu", "8k hit, QD32", NULL, "cpu_us", &["floor, null"], AtMost(1.1)),
    aim("cpu", "8k hit, QD1, one core", NULL, "cpu_us", &["floor, null"], AtMost(1.1)),
    aim("cpu", "128k hit, QD8", NOISE, "cpu_us", &["floor +"], AtMost(1.2)),
    aim("cpu", "128k hit, QD8", LZ4, "cpu_us", &["floor +"], AtMost(1.6)),
    aim("cpu", "8k hit, QD1, one core", BOTH, "p50_us", &["floor"], AtMost(1.08)),
    // Write-back without its destaging.
    aim("cpu", "*k write*", NOISE_WRITES, "cpu_us", &["bytes alone, noise"], AtMost(1.3))
        .less("zcached, pass-through"),
    aim("cpu", "*k write*", LZ4_WRITES, "cpu_us", &["bytes alone, LZ4"], AtMost(1.3))
        .less("zcached, pass-through"),
    aim("cores", "*", &["2 threads"], "capacity_per_second", &["1 thread"], AtLeast(1.7)),
    aim("cores", "*", &["1 thread"], "modelled_16_threads_per_second", &[], AtLeast(1e6)),
    aim("write", "4k random write, QD1, *", WRITE_BACK, "per_second", &[RAW], AtLeast(0.5)),
    aim("write", "slow origin*", &["write-back"], "per_second", &["the origin itself"], AtLeast(5.0)),
    // The engine causes none: as many as in pass-through.
    aim("write", "pauses*", &["write-back, full cache"], "over_10_ms", &[], AtMost(0.0)).less("pass-through"),
    aim("bootstorm", "*at 0 %", &["cached"], "mean_us", &["pass-through"], AtMost(1.02)),
    aim("bootstorm", "*at 100 %", &["cached"], "mean_us", &["pass-through"], AtMost(1.05)),
    aim("fair", "*", &["beside it"], "median_ms", &["alone"], AtMost(4.0)).less("one read of 32 MiB"),
    aim("fair", "*", &["beside it"], "p99_ms", &["alone"], AtMost(10.0)).less("one read of 32 MiB"),
    aim("fair", "*", &["beside it", "a newcomer"], "newcomer_ms", &[], AtMost(1000.0)),
    aim("store", "80 % full, uniform*", &["pool"], "over_bound", &[], AtMost(1.25)),
    aim("store", "80 % full, uniform*", &["pool"], "over_bound_of_filled", &[], AtMost(1.25)),
    aim("store", "80 % full*", &["pool"], "longest_pause_ms", &[], AtMost(10.0)),
    aim("store", "*on the disk", &["pool"], "over_bare_disk", &[], AtLeast(3.0)),
    aim("store", "*front to back", &["pool"], "last_over_first", &[], AtLeast(0.5)),
    aim("remote", "*hit*", FAR, "cpu_us", &["local file"], AtMost(1.1)),
    aim("remote", "misses*QD32", FAR, "link_share", &[], AtLeast(0.8)),
    aim("remote", "destaging*", FAR, "link_share", &[], AtLeast(0.8)),
];

/// Returns `true` if a name matches a pattern, in which `*` stands for anything.
fn matches(name: &str, pattern: &str) -> bool {
    match pattern.split_once('*') {
        None => name == pattern,
        Some((head, rest)) => name.strip_prefix(head).is_some_and(|name| {
            name.char_indices().any(|(at, _)| matches(&name[at..], rest)) || matches("", rest)
        }),
    }
}

/// Result of a goal.
#[derive(Debug)]
pub(crate) struct Seen {
    pub(crate) case: String,
    pub(crate) what: String,
    pub(crate) bound: Bound,
    pub(crate) spread: Spread,
    pub(crate) met: bool,
    note: String,
}

fn note(series: &Series) -> String {
    let percent =
        |part, whole, what| series.share(part, whole).map(|share| format!("{:.1} % {what}", share * 100.0));
    let writes = series.case.contains("write");
    let note = match writes {
        true => percent("inserted", "offered", "of offered extents inserted"),
        false => percent("hits", "reads", "hits"),
    };
    note.unwrap_or_default()
}

fn seen_of(aim: &Aim, all: &Measured, case: &str, own: &str) -> Option<Seen> {
    let spread = all.ratio(case, aim.figure, own, aim.less, aim.over)?;
    let series = all.of(case, own)?;
    let is_taken = aim.inserted_min <= 0.0
        || series.share("inserted", "offered").is_some_and(|share| share >= aim.inserted_min);
    let mut what = format!("{case}: {} of {own}", aim.figure);
    if let Some(less) = aim.less {
        what.push_str(&format!(", less {less}"));
    }
    if !aim.over.is_empty() {
        what.push_str(&format!(", to {}", aim.over.join(" and ")));
    }
    let met = aim.bound.is_met(spread.median) && is_taken;
    Some(Seen { case: case.to_owned(), what, bound: aim.bound, spread, met, note: note(series) })
}

/// Returns the results of all goals with figures in this bench.
pub(crate) fn seen(bench: &str, all: &Measured) -> Vec<Seen> {
    let mut found = Vec::new();
    for aim in AIMS.iter().filter(|aim| aim.bench == bench) {
        for (case, _) in all.cases().iter().filter(|(case, _)| matches(case, aim.cases)) {
            found.extend(aim.own.iter().filter_map(|own| seen_of(aim, all, case, own)));
        }
    }
    found
}

pub(crate) fn table(seen: &[Seen]) -> String {
    let mut table = Table::new(&["aim", "wanted", "seen", "", ""]);
    for aim in seen {
        let cells = [
            aim.what.clone(),
            aim.bound.to_string(),
            aim.spread.to_string(),
            verdict(aim.met).to_owned(),
            aim.note.clone(),
        ];
        table.row(cells);
    }
    table.to_string()
}

pub(crate) fn json(seen: &[Seen]) -> Value {
    let aim = |aim: &Seen| json!({"aim": aim.what, "wanted": aim.bound.to_string(), "seen": aim.spread.median, "met": aim.met});
    seen.iter().map(aim).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::measure::Sample;
    use crate::measure::tests::series;

    #[test]
    fn patterns_stand_for_names() {
        assert!(matches("8k random read, QD1", "*k random read, QD1"));
        assert!(!matches("8k random read, QD1, 2 connections", "*k random read, QD1"));
        assert!(matches("8k random read, QD1, 2 connections", "*k random read, QD1*"));
        assert!(matches("a", "*") && matches("", "*") && !matches("ab", "a"));
    }

    #[test]
    fn aims_compare_with_their_targets() {
        let all = Measured(vec![
            series("8k hit, QD32", "floor +", "cpu_us", &[10.0, 20.0]),
            series("8k hit, QD32", "zcached, noise", "cpu_us", &[12.0, 24.0]),
            series("8k hit, QD32", "zcached, LZ4", "cpu_us", &[15.0, 30.0]),
        ]);
        let table = table(&seen("cpu", &all));
        assert!(table.contains("zcached, noise, to floor + | <= 1.25 | 1.20 | met |"), "{table}");
        assert!(table.contains("zcached, LZ4, to floor + | <= 1.45 | 1.50 | **missed** |"), "{table}");
        assert_eq!(table.lines().count(), 4);
    }

    #[test]
    fn writes_over_pass_through_are_judged_by_what_their_bytes_cost() {
        let all = Measured(vec![
            series("8k write, QD32", "zcached, pass-through", "cpu_us", &[10.0]),
            series("8k write, QD32", "zcached, write-back, LZ4", "cpu_us", &[22.0]),
            series("8k write, QD32", "bytes alone, LZ4", "cpu_us", &[8.0]),
        ]);
        let [aim] = &seen("cpu", &all)[..] else { panic!("one aim") };
        assert!((aim.spread.median - 1.5).abs() < 1e-9 && !aim.met);
    }

    #[test]
    fn latency_is_compared_with_the_file_and_a_round_trip() {
        let all = |hit_us| {
            let case = "8k random read, QD1";
            Measured(vec![
                series(case, RAW, "p50_us", &[5.0]),
                series(case, "bare socket round trip", "p50_us", &[4.0]),
                series(case, HITS[0], "p50_us", &[hit_us]),
            ])
        };
        assert!(seen("nbd", &all(9.0))[0].met && !seen("nbd", &all(9.9))[0].met);
    }

    #[test]
    fn writes_count_only_if_the_cache_took_them() {
        let case = "8k random write, QD32";
        let all = |inserted| {
            let sample = Sample::new([("per_second", 10.0), ("inserted", inserted), ("offered", 100.0)]);
            let pass = series(case, "zcached, pass-through", "per_second", &[10.0]);
            Measured(vec![pass, Series::new(case, HITS[1], vec![sample])])
        };
        assert!(seen("nbd", &all(99.0))[0].met);
        let seen = seen("nbd", &all(97.0));
        assert!(!seen[0].met && seen[0].note == "97.0 % of offered extents inserted");
    }
}
