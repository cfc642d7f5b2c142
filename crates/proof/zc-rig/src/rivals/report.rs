//! Tables, goals and a picture of all results.

use clap::ValueEnum;
use std::fmt::Write as _;
use zc_report::{Bar, Bars, verdict};

use super::figures::{Figures, Sample};
use super::plan::{Contender, Workload};

/// Goal of ours relative to the best of the others, on reducible and on other data.
const REDUCIBLE_TIMES: f64 = 2.2;
const UNIQUE_TIMES: f64 = 0.95;
/// Accepted cost of reduction if everything fits without it.
const FIT_TIMES: f64 = 0.95;
/// Points of the hit ratio that a scan may cost.
const SCAN_POINTS: f64 = 1.0;

/// Everything that is known.
#[derive(Debug)]
pub(crate) struct Report {
    pub(crate) figures: Vec<Figures>,
    /// Machine of the measurements.
    pub(crate) machine: String,
}

fn percent(share: f64) -> String {
    format!("{:.1} %", share * 100.0)
}

impl Report {
    fn of(&self, workload: Workload) -> impl Iterator<Item = &Figures> {
        self.figures.iter().filter(move |figures| figures.workload == workload)
    }

    fn one(&self, workload: Workload, contender: Contender) -> Option<&Figures> {
        self.of(workload).find(|figures| figures.contender == contender)
    }

    /// The best of ours, or of the caches that are not.
    fn best(&self, workload: Workload, is_ours: bool, of: impl Fn(&Figures) -> f64) -> Option<&Figures> {
        let all = self.of(workload).filter(|figures| figures.contender != Contender::Raw);
        all.filter(|figures| figures.contender.is_ours() == is_ours).max_by(|a, b| of(a).total_cmp(&of(b)))
    }

    fn speed_goal(&self, workload: Workload, wanted: f64) -> Option<String> {
        let iops = |figures: &Figures| figures.run().iops();
        let (ours, theirs) = (self.best(workload, true, iops)?, self.best(workload, false, iops)?);
        let times = iops(ours) / iops(theirs);
        Some(format!(
            "| {}: IOPS of {}, over {} | >= {wanted} | {times:.2} | {} |\n",
            workload.name(),
            ours.contender.title(),
            theirs.contender.title(),
            verdict(times >= wanted)
        ))
    }

    fn ssd_goal(&self, workload: Workload) -> Option<String> {
        let least = |figures: &Figures| -figures.ssd_share();
        let (ours, theirs) = (self.one(workload, Contender::ZcachedDC)?, self.best(workload, false, least)?);
        let (own, other) = (ours.ssd_share(), theirs.ssd_share());
        Some(format!(
            "| {}: bytes written to the SSD for each of the client's, beside {} | fewest | {own:.3}, {other:.3} | {} |\n",
            workload.name(),
            theirs.contender.title(),
            verdict(own < other)
        ))
    }

    fn scan_goal(&self) -> Option<String> {
        let ours = self.one(Workload::Scan, Contender::ZcachedDC)?;
        let points = 100.0 * (ours.sample("before")?.hit_ratio()? - ours.run().hit_ratio()?);
        let met = verdict(points <= SCAN_POINTS);
        Some(format!(
            "| scan: points of the hot set's hit ratio that it costs | <= {SCAN_POINTS} | {points:.1} | {met} |\n"
        ))
    }

    fn fit_goal(&self, workload: Workload) -> Option<String> {
        let with = self.one(workload, Contender::ZcachedDC)?.run().iops();
        let times = with / self.one(workload, Contender::ZcachedNdNc)?.run().iops();
        let met = verdict(times >= FIT_TIMES);
        Some(format!(
            "| {}: IOPS with reduction, over without | >= {FIT_TIMES} | {times:.2} | {met} |\n",
            workload.name()
        ))
    }

    /// Formats goals and results, as far as measured.
    pub(crate) fn goals(&self) -> String {
        use Workload::{Clones, Fit25, Fit50, Fit100, Fit200, Mix, Unique, Zipf};
        let speed = [
            (Zipf, REDUCIBLE_TIMES),
            (Clones, REDUCIBLE_TIMES),
            (Mix, REDUCIBLE_TIMES),
            (Unique, UNIQUE_TIMES),
        ];
        let lines = speed.map(|(workload, wanted)| self.speed_goal(workload, wanted)).into_iter();
        let lines = lines.chain([Zipf, Clones, Mix].map(|workload| self.ssd_goal(workload)));
        let lines = lines.chain([self.scan_goal()]);
        let lines = lines.chain([Fit25, Fit50, Fit100, Fit200].map(|workload| self.fit_goal(workload)));
        format!("| goal | wanted | reached | |\n|---|---|---|---|\n{}", lines.flatten().collect::<String>())
    }

    fn table(&self, workload: Workload) -> String {
        let mut text = format!("\n## {}: {}\n\n", workload.name(), workload.title());
        text.push_str(
            "| | IOPS | IOPS gain | read response time | hits | read p50, p99 ms | write p50, p99 ms ",
        );
        text.push_str("| flush p50, p99 ms | SSD bytes/client byte | origin I/Os/request | RAM MiB |\n");
        text.push_str("|---|---|---|---|---|---|---|---|---|---|---|\n");
        let raw = self.one(workload, Contender::Raw);
        for figures in self.of(workload) {
            let run = figures.run();
            let gain = raw.map(|raw| run.iops() / raw.run().iops() - 1.0);
            let faster = raw
                .filter(|_| run.read.requests > 0.0)
                .map(|raw| run.read.mean_ms / raw.run().read.mean_ms - 1.0);
            let change = |share: Option<f64>| {
                share.map_or_else(|| "-".to_owned(), |share| format!("{:+.0} %", share * 100.0))
            };
            let side = |side: &super::figures::Side| match side.requests > 0.0 {
                true => format!("{:.1}, {:.1}", side.p50_ms, side.p99_ms),
                false => "-".to_owned(),
            };
            let ram = figures.ram_mib() - raw.map_or(0.0, Figures::ram_mib);
            let _infallible = writeln!(
                text,
                "| {} | {:.0} | {} | {} | {} | {} | {} | {} | {:.3} | {:.2} | {ram:.0} |",
                figures.contender.title(),
                run.iops(),
                change(gain),
                change(faster),
                hits(run),
                side(&run.read),
                side(&run.write),
                side(&run.flush),
                figures.ssd_share(),
                run.origin_share(),
            );
        }
        if workload == Workload::Scan {
            text.push_str(&self.scan_table());
        }
        text
    }

    fn scan_table(&self) -> String {
        let mut text =
            "\n| hot set | hits before the scan | hits after it | IOPS before | during | after |\n"
                .to_owned();
        text.push_str("|---|---|---|---|---|---|\n");
        for figures in self.of(Workload::Scan).filter(|figures| figures.contender != Contender::Raw) {
            let [before, during] = ["before", "during"].map(|name| figures.sample(name));
            let iops = |sample: Option<&Sample>| sample.map_or(0.0, Sample::iops);
            let _infallible = writeln!(
                text,
                "| {} | {} | {} | {:.0} | {:.0} | {:.0} |",
                figures.contender.title(),
                before.map_or_else(String::new, hits),
                hits(figures.run()),
                iops(before),
                iops(during),
                figures.run().iops(),
            );
        }
        text
    }

    /// `rivals.md`.
    pub(crate) fn markdown(&self) -> String {
        let mut text = format!(
            "# zcached and other caches\n\n{}\n\n{}\n## Goals\n\n{}",
            self.machine,
            include_str!("notes.md"),
            self.goals()
        );
        for workload in Workload::value_variants() {
            if self.of(*workload).next().is_some() {
                text.push_str(&self.table(*workload));
            }
        }
        let _infallible = write!(text, "\n{}", include_str!("why.md"));
        text
    }

    /// `rivals.svg`: for each workload a bar a contender, its IOPS over those of no cache.
    pub(crate) fn svg(&self) -> String {
        let mut groups = Vec::new();
        for workload in Workload::value_variants() {
            let Some(raw) = self.one(*workload, Contender::Raw) else { continue };
            let bar = |figures: &Figures| Bar {
                label: figures.contender.title().to_owned(),
                ratio: figures.run().iops() / raw.run().iops(),
                note: String::new(),
                is_ours: figures.contender.is_ours(),
            };
            groups.push((workload.title().to_owned(), self.of(*workload).map(bar).collect()));
        }
        let title = "Requests per second, relative to no cache".to_owned();
        Bars { title, ratio_max: f64::INFINITY, groups }.svg()
    }
}

fn hits(sample: &Sample) -> String {
    sample.hit_ratio().map_or_else(|| "-".to_owned(), percent)
}

#[cfg(test)]
mod tests {
    use super::super::figures::tests::figures;
    use super::*;

    fn report() -> Report {
        use Contender::{BcacheWt, DmCacheWt, Raw, ZcachedDC, ZcachedNdNc};
        let all = [
            (Raw, Workload::Zipf, 300.0, 100.0),
            (BcacheWt, Workload::Zipf, 800.0, 40.0),
            (DmCacheWt, Workload::Zipf, 600.0, 50.0),
            (ZcachedDC, Workload::Zipf, 1840.0, 16.0),
            (Raw, Workload::Unique, 300.0, 100.0),
            (BcacheWt, Workload::Unique, 800.0, 40.0),
            (ZcachedDC, Workload::Unique, 700.0, 45.0),
            (ZcachedDC, Workload::Fit25, 900.0, 0.0),
            (ZcachedNdNc, Workload::Fit25, 1000.0, 0.0),
        ];
        let figures = all.map(|(who, what, iops, missed)| figures(who, what, iops, missed)).to_vec();
        Report { figures, machine: "here".to_owned() }
    }

    #[test]
    fn goals_compare_with_the_best_of_the_others() {
        let goals = report().goals();
        let line = |word: &str| goals.lines().find(|line| line.contains(word)).unwrap();
        assert!(
            line("zipf: IOPS").ends_with("over bcache, write-through | >= 2.2 | 2.30 | met |"),
            "{goals}"
        );
        assert!(line("unique: IOPS").ends_with(">= 0.95 | 0.88 | **missed** |"), "{goals}");
        assert!(line("fit-25").ends_with("| 0.90 | **missed** |"), "{goals}");
        assert!(line("zipf: bytes").ends_with("**missed** |"), "as many as they: {goals}");
        assert!(!goals.contains("mix"), "it was not measured");
    }

    #[test]
    fn tables_have_a_line_for_each_contender_in_the_papers_form() {
        let text = report().markdown();
        let bcache = text.lines().find(|line| line.starts_with("| bcache")).unwrap();
        assert!(
            bcache.contains("| 800 | +167 % | -62 % | 60.0 % | 1.0, 50.0 | - | - | 0.100 | 0.40 | 0 |"),
            "{bcache}"
        );
        assert!(text.contains("## fit-25") && !text.contains("## fit-50"));
    }

    #[test]
    fn a_scan_is_judged_by_what_the_hot_set_lost() {
        let mut report = report();
        report.figures = vec![figures(Contender::ZcachedDC, Workload::Scan, 100.0, 3.0)];
        assert!(report.goals().contains("| <= 1 | 0.0 | met |"), "{}", report.goals());
        assert!(
            report.markdown().contains("| zcached D,C | 97.0 % | 97.0 % | 100 | 0 | 100 |"),
            "{}",
            report.markdown()
        );
    }

    #[test]
    fn the_picture_has_a_bar_for_each_that_can_be_compared() {
        let text = report().svg();
        assert_eq!(text.matches("<rect").count(), 7);
        assert!(text.contains("2.67"), "{text}");
    }
}
