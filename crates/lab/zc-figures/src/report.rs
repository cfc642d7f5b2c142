//! Figures as text, CSV, SVG and one HTML file.
//!
//! Each shape and each number beside a paper's has its evidence value, and the report counts these.
//!
//! Invariants: the HTML file is self-contained. Text from figures and papers is escaped.

use std::fmt::Write as _;
use std::path::{Path, PathBuf};

use crate::error::FigureError;
use crate::outcome::{Outcome, Table};
use crate::svg;
use crate::{Counts, Figure, NOT_HERE, paper};

const STYLE: &str = "body{font:15px/1.5 sans-serif;max-width:60em;margin:2em auto;padding:0 1em;color:#222}\
table{border-collapse:collapse;margin:1em 0;font-size:13px}th,td{border:1px solid #ccc;padding:.2em .6em;\
text-align:left}th{background:#f4f4f4}svg{max-width:40em;display:block}.no{color:#b00;font-weight:bold}\
.source{color:#666}h2{border-top:1px solid #ccc;padding-top:1em}";

/// Returns text for the inside of an HTML element or attribute.
fn escaped(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '&' => out.push_str("&amp;"),
            '<' => out.push_str("&lt;"),
            '>' => out.push_str("&gt;"),
            '"' => out.push_str("&quot;"),
            c => out.push(c),
        }
    }
    out
}

/// A table as CSV (RFC 4180).
#[must_use]
pub fn csv(table: &Table) -> String {
    let field = |text: &String| {
        if text.contains([',', '"', '\n']) {
            format!("\"{}\"", text.replace('"', "\"\""))
        } else {
            text.clone()
        }
    };
    let line = |cells: &Vec<String>| cells.iter().map(field).collect::<Vec<_>>().join(",") + "\n";
    std::iter::once(&table.columns).chain(&table.rows).map(line).collect()
}

/// Columns under each other.
fn aligned(table: &Table) -> String {
    let all = || std::iter::once(&table.columns).chain(&table.rows);
    let width = |column: usize| all().map(|row| row[column].chars().count()).max().unwrap_or(0);
    let widths: Vec<usize> = (0..table.columns.len()).map(width).collect();
    let mut out = format!("  {}\n", table.title);
    for row in all() {
        let cells: Vec<String> =
            row.iter().zip(&widths).map(|(cell, &width)| format!("{cell:<width$}")).collect();
        let _ = writeln!(out, "    {}", cells.join("  ").trim_end());
    }
    out
}

/// The paper's numbers and ours as a table.
fn beside(figure: &Figure, outcome: &Outcome) -> Option<Table> {
    let row = |beside: &crate::Beside| {
        let found = paper::number(beside.number);
        let (what, metric, value, unit, source) = found.map_or((beside.number, "", "", "", ""), |number| {
            (number.what, number.metric, number.value, number.unit, number.source)
        });
        let standing = figure.standing_of(beside.number).map_or("", crate::Standing::word);
        [what, metric, value, &beside.ours, unit, standing, source].map(str::to_owned).to_vec()
    };
    let columns =
        ["what", "metric", "paper", "ours", "unit", "standing", "place"].map(str::to_owned).to_vec();
    let rows: Vec<_> = outcome.beside.iter().map(row).collect();
    (!rows.is_empty()).then(|| Table { title: "Beside the paper".to_owned(), columns, rows })
}

/// The papers' numbers that no figure makes, each with its reason.
fn not_here() -> Table {
    let row = |(id, why): &(&str, &str)| {
        let number = paper::number(id);
        let (what, value) = number.map_or((*id, ""), |number| (number.what, number.value));
        [id, what, value, why].map(str::to_owned).to_vec()
    };
    let columns = ["number", "what", "paper", "why not"].map(str::to_owned).to_vec();
    let title = "Numbers of the papers that nothing of ours stands beside".to_owned();
    Table { title, columns, rows: NOT_HERE.iter().map(row).collect() }
}

/// Returns the numbers of asserted, fitted, contradicted and not comparable figures, shapes and numbers.
fn counts(figures: &[(Figure, Outcome)]) -> Vec<(&'static str, Counts)> {
    let shapes = figures.iter().flat_map(|(_, outcome)| &outcome.shapes).map(|shape| shape.standing);
    let numbers = figures.iter().flat_map(|(figure, _)| figure.numbers).map(|(_, standing)| *standing);
    vec![
        ("figures", Counts::of(figures.iter().map(|(figure, _)| figure.standing))),
        ("shapes", Counts::of(shapes)),
        ("numbers of the papers", Counts::of(numbers)),
    ]
}

/// Counts of figures, shapes and numbers as text, a line each.
#[must_use]
pub fn counted(figures: &[(Figure, Outcome)]) -> String {
    let line = |(what, counts): &(&str, Counts)| format!("{} {what}: {counts}", counts.sum());
    counts(figures).iter().map(line).collect::<Vec<_>>().join("\n")
}

/// A figure for a terminal.
#[must_use]
pub fn text(figure: &Figure, outcome: &Outcome) -> String {
    let mut out = format!("{}: {}\n  {}\n", figure.id, figure.title, figure.source);
    let _ = writeln!(out, "  {}: {}", figure.standing.word(), figure.standing.reason());
    outcome.tables.iter().chain(&beside(figure, outcome)).for_each(|table| out.push_str(&aligned(table)));
    for shape in &outcome.shapes {
        let word = if shape.holds { "holds" } else { "FAILS" };
        let _ = writeln!(out, "  {word}, {}: {} ({})", shape.standing.word(), shape.claim, shape.seen);
    }
    for remark in &outcome.remarks {
        let _ = writeln!(out, "  note: {remark}");
    }
    out
}

fn html_table(table: &Table, out: &mut String) {
    let row = |cells: &Vec<String>, tag: &str| {
        let cells: String = cells.iter().map(|cell| format!("<{tag}>{}</{tag}>", escaped(cell))).collect();
        format!("<tr>{cells}</tr>\n")
    };
    let _ = writeln!(out, "<table><caption>{}</caption>", escaped(&table.title));
    out.push_str(&row(&table.columns, "th"));
    table.rows.iter().for_each(|cells| out.push_str(&row(cells, "td")));
    out.push_str("</table>\n");
}

fn section(figure: &Figure, outcome: &Outcome, out: &mut String) {
    let _ = writeln!(out, "<h2 id=\"{0}\">{0}: {1}</h2>", figure.id, escaped(figure.title));
    let _ = writeln!(out, "<p class=\"source\">{}</p>", escaped(figure.source));
    let _ = writeln!(out, "<p><b>Run here:</b> {}</p>", escaped(figure.ours));
    let (word, reason) = (figure.standing.word(), escaped(&figure.standing.reason()));
    let _ = writeln!(out, "<p><b>{word}</b>: {reason}</p>");
    outcome.charts.iter().for_each(|chart| out.push_str(&svg::draw(chart)));
    outcome.tables.iter().chain(&beside(figure, outcome)).for_each(|table| html_table(table, out));
    if !outcome.shapes.is_empty() {
        out.push_str("<p><b>Shapes</b></p><ul>\n");
    }
    for shape in &outcome.shapes {
        let (class, word) = if shape.holds { ("yes", "holds") } else { ("no", "FAILS") };
        let (claim, seen) = (escaped(&shape.claim), escaped(&shape.seen));
        let (standing, reason) = (shape.standing.word(), escaped(&shape.standing.reason()));
        let _ = writeln!(
            out,
            "<li><span class=\"{class}\">{word}</span>: {claim} ({seen}). <i>{standing}: {reason}</i></li>"
        );
    }
    if !outcome.shapes.is_empty() {
        out.push_str("</ul>\n");
    }
    if !figure.numbers.is_empty() {
        out.push_str("<p><b>The paper's numbers</b></p><ul>\n");
    }
    for (id, standing) in figure.numbers {
        let (word, reason) = (standing.word(), escaped(&standing.reason()));
        let _ = writeln!(out, "<li>{id}: <i>{word}: {reason}</i></li>");
    }
    if !figure.numbers.is_empty() {
        out.push_str("</ul>\n");
    }
    let _ = writeln!(out, "<p><b>Differences:</b> {}</p>", escaped(figure.differences));
    for remark in &outcome.remarks {
        let _ = writeln!(out, "<p><i>{}</i></p>", escaped(remark));
    }
}

/// Appends a table of these numbers.
fn count(figures: &[(Figure, Outcome)], out: &mut String) {
    let columns = std::iter::once("").chain(crate::Standing::WORDS).map(str::to_owned).collect();
    let row = |(what, counts): &(&str, Counts)| {
        std::iter::once((*what).to_owned()).chain(counts.0.iter().map(usize::to_string)).collect()
    };
    let title = "What they are worth".to_owned();
    html_table(&Table { title, columns, rows: counts(figures).iter().map(row).collect() }, out);
}

/// All figures as one HTML document.
#[must_use]
pub fn html(figures: &[(Figure, Outcome)]) -> String {
    let mut out = format!(
        "<!DOCTYPE html>\n<html lang=\"en\"><head><meta charset=\"utf-8\"><title>zc-figures</title>\
         <style>{STYLE}</style></head><body>\n<h1>Figures of the papers, and ours</h1>\n"
    );
    count(figures, &mut out);
    out.push_str("<table>\n<tr><th>figure</th><th>is</th><th>shapes that hold</th></tr>\n");
    for (figure, outcome) in figures {
        let all = outcome.shapes.len();
        let _ = writeln!(
            out,
            "<tr><td><a href=\"#{0}\">{0}</a> {1}</td><td>{2}</td><td>{3} of {all}</td></tr>",
            figure.id,
            escaped(figure.title),
            figure.standing.word(),
            all - outcome.failed()
        );
    }
    out.push_str("</table>\n");
    html_table(&not_here(), &mut out);
    figures.iter().for_each(|(figure, outcome)| section(figure, outcome, &mut out));
    out.push_str("</body></html>\n");
    out
}

/// Writes `ID.csv` and `ID.svg` of every figure (`ID-2.csv` and so on of further tables and charts) and `figures.html`.
///
/// # Errors
/// The folder cannot be made, or a file not written.
pub fn write(folder: &Path, figures: &[(Figure, Outcome)]) -> Result<(), FigureError> {
    let keep = |path: PathBuf, text: String| {
        std::fs::write(&path, text).map_err(|source| FigureError::File { path, source })
    };
    std::fs::create_dir_all(folder)
        .map_err(|source| FigureError::File { path: folder.to_owned(), source })?;
    for (figure, outcome) in figures {
        let name = |number: usize, kind: &str| match number {
            0 => folder.join(format!("{}.{kind}", figure.id)),
            number => folder.join(format!("{}-{}.{kind}", figure.id, number + 1)),
        };
        for (number, table) in outcome.tables.iter().chain(&beside(figure, outcome)).enumerate() {
            keep(name(number, "csv"), csv(table))?;
        }
        for (number, chart) in outcome.charts.iter().enumerate() {
            keep(name(number, "svg"), svg::draw(chart))?;
        }
    }
    keep(folder.join("figures.html"), html(figures))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::chart::{Axis, Chart};
    use crate::{Ablation, Standing};

    fn sample() -> (Figure, Outcome) {
        let figure = Figure {
            id: "sample",
            title: "A <sample>",
            source: "nowhere",
            ours: "nothing",
            differences: "none",
            standing: Standing::NotComparable("it is made up"),
            numbers: &[("nitro.f1", Standing::Fitted("one to another"))],
            quick: false,
            run: |_| Ok(Outcome::default()),
        };
        let mut outcome = Outcome::default();
        outcome.table("numbers", &["a", "b"], vec![vec!["1,5".into(), "say \"x\"".into()]]);
        outcome.beside("nitro.f1", "1.9");
        outcome.asserted(&[Ablation::NoCleaner], false, "more is more", "1 < 2");
        outcome.charts.push(Chart::lines("c", Axis::linear("x"), Axis::linear("y")));
        (figure, outcome)
    }

    #[test]
    fn files_have_everything() {
        let folder = tempfile::tempdir().unwrap();
        write(folder.path(), &[sample()]).unwrap();
        let read = |name: &str| std::fs::read_to_string(folder.path().join(name)).unwrap();
        assert_eq!(read("sample.csv"), "a,b\n\"1,5\",\"say \"\"x\"\"\"\n");
        assert!(read("sample-2.csv").contains("dedup ratio,2.0,1.9,x,fitted"), "{}", read("sample-2.csv"));
        assert!(read("sample.svg").starts_with("<svg"));
        let html = read("figures.html");
        for wanted in [
            "fails if nothing cleans",
            "one to another",
            "made up",
            "mailbox 1",
            "A &lt;sample&gt;",
            "FAILS",
            "1 &lt; 2",
            "0 of 1",
            "<svg",
            "say &quot;x&quot;",
        ] {
            assert!(html.contains(wanted), "{wanted}");
        }
        assert!(!html.contains("http-equiv") && !html.contains("src="), "nothing comes from elsewhere");
    }

    #[test]
    fn figures_shapes_and_numbers_are_counted() {
        let counted = counted(&[sample()]);
        let wanted = "1 figures: 0 asserted, 0 fitted, 0 contradicted, 1 not comparable\n\
                      1 shapes: 1 asserted, 0 fitted, 0 contradicted, 0 not comparable\n\
                      1 numbers of the papers: 0 asserted, 1 fitted, 0 contradicted, 0 not comparable";
        assert_eq!(counted, wanted);
    }

    #[test]
    fn text_says_what_fails() {
        let (figure, outcome) = sample();
        let text = text(&figure, &outcome);
        assert!(text.contains("FAILS, asserted: more is more (1 < 2)") && text.contains("2.0"), "{text}");
    }
}
