//! The report of a bench: a page in Markdown, and all figures as JSON.
//!
//! Invariants: a page names the machine, and has the aims before the tables of cases.

use std::fmt::Write as _;
use std::path::Path;

use anyhow::Context as _;
use serde_json::json;
use zc_report::{Table, figure};

use crate::aims;
use crate::measure::{Measured, Series};

/// Content of a column in a table of cases.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Cell {
    /// A figure's median.
    Median(&'static str),
    /// The least and the most of a figure.
    Range(&'static str),
    /// The least of a figure.
    Least(&'static str),
    /// A figure's median with the least and the most.
    Spread(&'static str),
    /// The ratio of a figure to that of the target with this name.
    To(&'static str, &'static str),
    /// One counter over another.
    Share(&'static str, &'static str),
    /// One counter over another, to the same of the target with this name.
    ShareTo(&'static str, &'static str, &'static str),
    /// One counter over another, in per cent.
    Percent(&'static str, &'static str),
}

/// Heading and contents.
pub(crate) type Column = (&'static str, Cell);

fn cell(all: &Measured, series: &Series, cell: Cell) -> String {
    let text = match cell {
        Cell::Median(name) => series.spread(name).map(|spread| figure(spread.median)),
        Cell::Range(name) => {
            let range =
                |spread: zc_report::Spread| format!("{} to {}", figure(spread.least), figure(spread.most));
            series.spread(name).map(range)
        }
        Cell::Least(name) => series.spread(name).map(|spread| figure(spread.least)),
        Cell::Spread(name) => series.spread(name).map(|spread| spread.to_string()),
        Cell::To(target, name) => {
            let ratio = all.ratio(&series.case, name, &series.target, None, &[target]);
            ratio.map(|spread| figure(spread.median))
        }
        Cell::Share(part, whole) => series.share(part, whole).map(figure),
        Cell::ShareTo(target, part, whole) => {
            let other = all.of(&series.case, target).and_then(|other| other.share(part, whole));
            let both = series.share(part, whole).zip(other.filter(|other| *other > 0.0));
            both.map(|(own, other)| figure(own / other))
        }
        Cell::Percent(part, whole) => {
            series.share(part, whole).map(|share| format!("{:.1} %", share * 100.0))
        }
    };
    text.unwrap_or_default()
}

/// A row for each series; columns without any figure are left out.
fn rows(all: &Measured, series: &[&Series], columns: &[Column], name: impl Fn(&Series) -> String) -> String {
    let mut cells: Vec<Vec<String>> = columns
        .iter()
        .map(|(_, shows)| series.iter().map(|series| cell(all, series, *shows)).collect())
        .collect();
    let mut heads: Vec<&str> = columns.iter().map(|(head, _)| *head).collect();
    let is_filled: Vec<bool> =
        cells.iter().map(|column| column.iter().any(|cell| !cell.is_empty())).collect();
    let (mut of_head, mut of_cells) = (is_filled.iter(), is_filled.iter());
    heads.retain(|_| of_head.next() == Some(&true));
    cells.retain(|_| of_cells.next() == Some(&true));
    heads.insert(0, "");
    let mut table = Table::new(&heads);
    for (number, series) in series.iter().enumerate() {
        let row = std::iter::once(name(series)).chain(cells.iter().map(|column| column[number].clone()));
        table.row(row);
    }
    table.to_string()
}

/// A table with a row for each target of a case.
pub(crate) fn case_table(all: &Measured, case: &str, columns: &[Column]) -> String {
    let series: Vec<&Series> = all.0.iter().filter(|series| series.case == case).collect();
    format!("\n### {case}\n\n{}", rows(all, &series, columns, |series| series.target.clone()))
}

/// A table with a row for each case of one target.
pub(crate) fn target_table(all: &Measured, target: &str, columns: &[Column]) -> String {
    let series: Vec<&Series> = all.0.iter().filter(|series| series.target == target).collect();
    rows(all, &series, columns, |series| series.case.clone())
}

/// The medians of a figure: a row for each case, a column for each target.
pub(crate) fn overview(all: &Measured, name: &str) -> String {
    let mut targets: Vec<&str> = Vec::new();
    for series in &all.0 {
        if !targets.contains(&series.target.as_str()) {
            targets.push(&series.target);
        }
    }
    let heads: Vec<&str> = std::iter::once("").chain(targets.iter().copied()).collect();
    let mut table = Table::new(&heads);
    for (case, _) in all.cases() {
        let cell = |target: &&str| {
            let spread = all.of(case, target).and_then(|series| series.spread(name));
            spread.map_or_else(String::new, |spread| figure(spread.median))
        };
        table.row(std::iter::once(case.to_owned()).chain(targets.iter().map(cell)));
    }
    table.to_string()
}

/// A report.
#[derive(Debug)]
pub(crate) struct Report<'a> {
    /// Name of the bench, and of its files.
    pub(crate) name: &'static str,
    pub(crate) title: &'static str,
    /// Description of machine and method.
    pub(crate) machine: String,
    pub(crate) preface: String,
    /// Sections after the aims.
    pub(crate) sections: String,
    /// Tables of all cases follow, if there are columns.
    pub(crate) columns: &'a [Column],
    pub(crate) measured: &'a Measured,
}

impl Report<'_> {
    fn markdown(&self, aims: &[aims::Seen]) -> String {
        let Self { title, machine, preface, sections, .. } = self;
        let mut text = format!("# {title}\n\n{machine}\n");
        if !preface.is_empty() {
            let _infallible = write!(text, "\n{preface}\n");
        }
        if !aims.is_empty() {
            let _infallible = write!(
                text,
                "\n## Aims\n\nFigures are medians over rounds, with the least and the most; ratios are those within \
                 rounds.\n\n{}",
                aims::table(aims)
            );
        }
        text.push_str(sections);
        if !self.columns.is_empty() {
            text.push_str("\n## Cases\n");
            for (case, _) in self.measured.cases() {
                text.push_str(&case_table(self.measured, case, self.columns));
            }
        }
        text
    }

    /// Prints the aims, and writes both files into a folder.
    pub(crate) fn publish(&self, out: &Path) -> anyhow::Result<()> {
        let aims = aims::seen(self.name, self.measured);
        if !aims.is_empty() {
            println!("\n{}", aims::table(&aims));
        }
        write(out, &format!("{}.md", self.name), &self.markdown(&aims))?;
        let json =
            json!({"machine": self.machine, "aims": aims::json(&aims), "series": self.measured.json()});
        write(out, &format!("{}.json", self.name), &serde_json::to_string(&json)?)
    }
}

/// Writes a file of a report, and prints where it is.
pub(crate) fn write(folder: &Path, name: &str, text: &str) -> anyhow::Result<()> {
    let path = folder.join(name);
    std::fs::write(&path, text).with_context(|| format!("cannot write {}", path.display()))?;
    println!("{}", path.display());
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::measure::Sample;
    use crate::measure::tests::series;

    const COLUMNS: &[Column] = &[
        ("us", Cell::Median("cpu_us")),
        ("least to most", Cell::Range("cpu_us")),
        ("to floor +", Cell::To("floor +", "cpu_us")),
        ("p50", Cell::Median("p50_us")),
        ("hits", Cell::Percent("hits", "reads")),
    ];

    fn measured() -> Measured {
        let mut own = series("8k hit, QD32", "zcached, noise", "cpu_us", &[12.0, 10.0, 15.0]);
        own.once = Sample::new([("hits", 3.0), ("reads", 4.0)]);
        Measured(vec![series("8k hit, QD32", "floor +", "cpu_us", &[10.0, 10.0, 10.0]), own])
    }

    #[test]
    fn a_page_has_aims_and_every_target_of_a_case() {
        let all = measured();
        let report = Report {
            name: "cpu",
            title: "Title",
            machine: "a machine".to_owned(),
            preface: "Preface.".to_owned(),
            sections: format!("\n{}", overview(&all, "cpu_us")),
            columns: COLUMNS,
            measured: &all,
        };
        let dir = tempfile::tempdir().unwrap();
        report.publish(dir.path()).unwrap();
        let text = std::fs::read_to_string(dir.path().join("cpu.md")).unwrap();
        for line in [
            "# Title\n\na machine\n\nPreface.\n\n## Aims",
            "zcached, noise, to floor + | <= 1.25 | 1.20 (1.00 to 1.50) | met | 75.0 % hits |",
            "|  | floor + | zcached, noise |\n|---|---|---|\n| 8k hit, QD32 | 10.0 | 12.0 |",
            "### 8k hit, QD32\n\n|  | us | least to most | to floor + | hits |\n",
            "| zcached, noise | 12.0 | 10.0 to 15.0 | 1.20 | 75.0 % |",
        ] {
            assert!(text.contains(line), "{line}\n{text}");
        }
        let json = std::fs::read_to_string(dir.path().join("cpu.json")).unwrap();
        let json: serde_json::Value = serde_json::from_str(&json).unwrap();
        assert_eq!(json["series"][1]["samples"][0]["cpu_us"], 12.0);
        assert_eq!(json["aims"][0]["met"], true);
    }

    #[test]
    fn shares_are_compared_and_the_least_is_found() {
        let one = |target, cpu, rates: [f64; 2]| {
            let sample = |rate| Sample::new([("cpu", cpu), ("requests", 2.0), ("rate", rate)]);
            Series::new("c", target, rates.map(sample).to_vec())
        };
        let all = Measured(vec![one("a", 10.0, [7.0, 5.0]), one("b", 15.0, [9.0, 8.0])]);
        let columns = [("cpu", Cell::ShareTo("a", "cpu", "requests")), ("from", Cell::Least("rate"))];
        let text = case_table(&all, "c", &columns);
        assert!(text.ends_with("| a | 1.00 | 5.00 |\n| b | 1.50 | 8.00 |\n"), "{text}");
    }

    #[test]
    fn a_target_has_a_row_for_each_case() {
        let text = target_table(&measured(), "floor +", COLUMNS);
        assert!(text.ends_with("| 8k hit, QD32 | 10.0 | 10.0 to 10.0 | 1.00 |\n"), "{text}");
    }
}
