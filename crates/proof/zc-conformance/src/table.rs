//! The table of all cases and servers, as a document.
//!
//! Job: write it from reports, and read one server's column back, so that a run can be compared with the document.
//!
//! Invariant: the document depends on nothing but the cases and the reports: no times, no paths of a machine.

use crate::case::{Case, Level};
use crate::run::{Outcome, Report};

/// One server's results.
#[derive(Debug)]
pub struct Column {
    /// The server.
    pub server: String,
    /// Its version.
    pub version: String,
    /// Results of the suite.
    pub report: Report,
}

/// Longest line of bytes in the list of findings, in characters.
const BYTES_LINE_MAX: usize = 110;

/// Lines of bytes that a finding shows, the last ones.
const BYTES_LINES: usize = 3;

/// The document.
#[must_use]
pub fn render(cases: &[&Case], columns: &[Column]) -> String {
    let mut text = String::from(HEAD);
    text.push_str(&summary(cases, columns));
    text.push_str("\n## Every case\n\nThe sections are those of `doc/proto.md`; `ext:` is the branch with extended headers.\n\n");
    text.push_str(&matrix(cases, columns));
    text.push_str("\n## What was found, with the bytes that show it\n\n");
    text.push_str(
        "`C:` is what the suite sent, `S:` what the server sent, in hexadecimal, the last exchanges only.\n",
    );
    columns.iter().for_each(|column| text.push_str(&findings(column)));
    text
}

const HEAD: &str = "# NBD conformance: four servers, one suite\n\n\
    Written by `cargo xtask nbd-conformance`; do not edit. Every server ran on two sparse files of 96 MiB, one of\n\
    them exported read-only, with its defaults, once without TLS, once with TLS at the client's choice (not qemu-nbd,\n\
    which knows no such setting) and once with TLS required; a case counts where it applies. MUST and SHOULD are the document's words; `format` is a layout or\n\
    meaning that it gives without such a word. `n/a`: the server does not offer what the case is about.\n\n\
    ## Summary\n\n";

fn summary(cases: &[&Case], columns: &[Column]) -> String {
    let mut text = format!("{} cases.\n\n", cases.len());
    text.push_str(
        "| server | version | passed | failed MUST | failed SHOULD | failed format | not applicable |\n",
    );
    text.push_str("|---|---|---:|---:|---:|---:|---:|\n");
    for column in columns {
        let counts = column.report.counts();
        let failed = [Level::Must, Level::Should, Level::Format].map(|level| failures(column, level));
        text.push_str(&format!(
            "| {} | {} | {} | {} | {} | {} | {} |\n",
            column.server,
            column.version,
            counts.pass,
            failed[0],
            failed[1],
            failed[2],
            counts.not_applicable
        ));
    }
    text
}

fn failures(column: &Column, level: Level) -> usize {
    let bad = |outcome: &Outcome| matches!(outcome, Outcome::Fail { .. } | Outcome::Error(_));
    column.report.rows.iter().filter(|row| row.case.level == level && bad(&row.outcome)).count()
}

fn matrix(cases: &[&Case], columns: &[Column]) -> String {
    let names: Vec<&str> = columns.iter().map(|column| column.server.as_str()).collect();
    let mut text = format!("| id | level | {} | requirement | section |\n", names.join(" | "));
    text.push_str(&format!("|---|---|{}---|---|\n", "---|".repeat(names.len())));
    for case in cases {
        let outcomes: Vec<&str> = columns.iter().map(|column| outcome(column, case.id)).collect();
        text.push_str(&row(case, &outcomes.join(" | ")));
    }
    text
}

fn outcome(column: &Column, id: &str) -> &'static str {
    column.report.rows.iter().find(|row| row.case.id == id).map_or("-", |row| row.outcome.name())
}

fn row(case: &Case, outcomes: &str) -> String {
    format!("| {} | {} | {outcomes} | {} | {} |\n", case.id, case.level.name(), case.text, case.section)
}

fn findings(column: &Column) -> String {
    let mut text = format!("\n### {} {}\n\n", column.server, column.version);
    let before = text.len();
    for found in &column.report.rows {
        let (case, Outcome::Fail { why, bytes }) = (found.case, &found.outcome) else { continue };
        text.push_str(&format!("- **{}** ({}): {}. Seen: {why}.\n\n", case.id, case.level.name(), case.text));
        text.push_str("  ```text\n");
        for line in &bytes[bytes.len().saturating_sub(BYTES_LINES)..] {
            let shown: String = line.chars().take(BYTES_LINE_MAX).collect();
            let dots = if shown.len() < line.len() { ".." } else { "" };
            text.push_str(&format!("  {shown}{dots}\n"));
        }
        text.push_str("  ```\n");
    }
    if text.len() == before {
        text.push_str("Nothing.\n");
    }
    text
}

/// Returns the differences between the document and a run of one server, one line each; none if it is up to date.
#[must_use]
pub fn differences(document: &str, column: &Column) -> Vec<String> {
    let head = document.lines().find(|line| line.starts_with("| id | level |"));
    let cells = |line: &str| -> Vec<String> { line.split('|').map(|cell| cell.trim().to_owned()).collect() };
    let Some(place) = head.and_then(|head| cells(head).iter().position(|cell| *cell == column.server)) else {
        return vec![format!("there is no column for {}", column.server)];
    };
    let mut found = Vec::new();
    for row in &column.report.rows {
        let (id, now) = (row.case.id, row.outcome.name());
        let line = document.lines().find(|line| line.starts_with(&format!("| {id} |")));
        let then = line.and_then(|line| cells(line).get(place).cloned());
        if then.as_deref() != Some(now) {
            found.push(format!(
                "{id} is {now}, the table says {}",
                then.unwrap_or_else(|| "nothing".to_owned())
            ));
        }
    }
    found
}

/// The cases that the document does not show as they are: a line per case.
#[must_use]
pub fn stale_cases(document: &str, cases: &[&Case]) -> Vec<String> {
    let rows: Vec<&str> = document.lines().filter(|line| is_row(line)).collect();
    let mut found = Vec::new();
    for case in cases {
        let (start, end) = (
            format!("| {} | {} |", case.id, case.level.name()),
            format!("| {} | {} |", case.text, case.section),
        );
        if !rows.iter().any(|row| row.starts_with(&start) && row.ends_with(&end)) {
            found.push(format!("{} is not in the table as it is in the suite", case.id));
        }
    }
    if rows.len() != cases.len() {
        found.push(format!("the table has {} rows, the suite {} cases", rows.len(), cases.len()));
    }
    found
}

/// A row of the table of cases: its first cell is an id such as `HS-01`.
fn is_row(line: &str) -> bool {
    let Some(rest) = line.strip_prefix("| ") else { return false };
    let id: Vec<char> = rest.chars().take(5).collect();
    matches!(id.as_slice(), [a, b, '-', c, d]
        if a.is_ascii_uppercase() && b.is_ascii_uppercase() && c.is_ascii_digit() && d.is_ascii_digit())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::run::Row;

    fn column(server: &str, outcome: &Outcome) -> Column {
        let rows = crate::cases().into_iter().map(|case| Row { case, outcome: outcome.clone() }).collect();
        Column { server: server.to_owned(), version: "1.0".to_owned(), report: Report { rows } }
    }

    fn sample() -> String {
        let bytes = vec!["C: 00".to_owned(), format!("S: {}", "ff".repeat(100))];
        let fail = Outcome::Fail { why: "silence".to_owned(), bytes };
        render(&crate::cases(), &[column("ours", &Outcome::Pass), column("theirs", &fail)])
    }

    #[test]
    fn a_document_shows_every_case_and_every_column() {
        let text = sample();
        assert_eq!(stale_cases(&text, &crate::cases()), Vec::<String>::new());
        assert_eq!(differences(&text, &column("ours", &Outcome::Pass)), Vec::<String>::new());
        assert!(text.contains("| ours | 1.0 | "));
        assert!(text.contains("### ours 1.0\n\nNothing."));
        assert!(text.contains("  C: 00\n  S: ff"));
    }

    #[test]
    fn what_differs_is_named() {
        let text = sample();
        let changed = differences(&text, &column("theirs", &Outcome::Pass));
        assert_eq!(changed.len(), crate::cases().len());
        assert_eq!(changed[0], "HS-01 is pass, the table says FAIL");
        assert_eq!(differences(&text, &column("absent", &Outcome::Pass)), ["there is no column for absent"]);
        let older = text.replace("| HS-01 | format |", "| HS-01 | SHOULD |");
        assert_eq!(stale_cases(&older, &crate::cases()), ["HS-01 is not in the table as it is in the suite"]);
        assert_eq!(stale_cases(&text, &crate::cases()[1..]).len(), 1);
    }
}
