//! Output of a run: lines for a terminal, JSON for programs.

use crate::case::{Case, Level};
use crate::run::{Counts, Outcome, Report, Row};
use serde_json::{Value, json};

/// One line per case of the suite, for `--list`.
#[must_use]
pub fn list(cases: &[&Case]) -> String {
    cases
        .iter()
        .map(|case| format!("{} {:<6} {} [{}]\n", case.id, case.level.name(), case.text, case.section))
        .collect()
}

/// The failures and errors with their bytes, then the counts.
#[must_use]
pub fn text(report: &Report) -> String {
    let mut text = String::new();
    for row in &report.rows {
        let case = row.case;
        match &row.outcome {
            Outcome::Pass | Outcome::NotApplicable(_) => {}
            Outcome::Fail { why, bytes } => {
                text.push_str(&format!(
                    "{} {} FAIL: {} [{}]\n",
                    case.id,
                    case.level.name(),
                    case.text,
                    case.section
                ));
                text.push_str(&format!("    {why}\n"));
                bytes.iter().for_each(|line| text.push_str(&format!("    {line}\n")));
            }
            Outcome::Error(why) => text.push_str(&format!("{} error: {why}\n", case.id)),
        }
    }
    text.push_str(&summary(&report.counts()));
    text.push('\n');
    text
}

/// The counts in one line.
#[must_use]
pub fn summary(counts: &Counts) -> String {
    let Counts { pass, fail, not_applicable, error } = counts;
    format!("{pass} passed, {fail} failed, {not_applicable} not applicable, {error} errors")
}

/// Everything, as one JSON value.
#[must_use]
pub fn json(report: &Report) -> Value {
    let rows: Vec<Value> = report.rows.iter().map(row_json).collect();
    let counts = report.counts();
    json!({
        "pass": counts.pass,
        "fail": counts.fail,
        "not_applicable": counts.not_applicable,
        "error": counts.error,
        "cases": rows,
    })
}

fn row_json(row: &Row) -> Value {
    let (why, bytes): (&str, &[String]) = match &row.outcome {
        Outcome::Pass => ("", &[]),
        Outcome::Fail { why, bytes } => (why, bytes),
        Outcome::NotApplicable(why) | Outcome::Error(why) => (why, &[]),
    };
    json!({
        "id": row.case.id,
        "level": row.case.level.name(),
        "section": row.case.section,
        "requirement": row.case.text,
        "outcome": row.outcome.name(),
        "why": why,
        "bytes": bytes,
    })
}

/// Returns the number of cases of each level in the suite.
#[must_use]
pub fn levels(cases: &[&Case]) -> [(Level, usize); 3] {
    [Level::Must, Level::Should, Level::Format]
        .map(|level| (level, cases.iter().filter(|case| case.level == level).count()))
}
