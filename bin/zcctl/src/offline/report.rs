//! Results of a check.

use std::io::{self, Write};

use serde_json::{Value, json};

use crate::text;
use crate::units::count;

/// Maximum problems listed individually; further ones are counted.
const LISTED_MAX: usize = 100;

/// Kind of structure with a problem.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Class {
    Superblock,
    VolumeTable,
    RegionMap,
    Checkpoint,
    Journal,
    JournalLabel,
    WeuHeader,
    Extent,
    Dirty,
    Device,
}

impl Class {
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Superblock => "superblock",
            Self::VolumeTable => "volume-table",
            Self::RegionMap => "region-map",
            Self::Checkpoint => "checkpoint",
            Self::Journal => "journal",
            Self::JournalLabel => "journal-label",
            Self::WeuHeader => "weu-header",
            Self::Extent => "extent",
            Self::Dirty => "dirty",
            Self::Device => "device",
        }
    }
}

#[derive(Debug)]
pub(crate) struct Problem {
    pub(crate) class: Class,
    pub(crate) text: String,
    /// Number of equal findings.
    pub(crate) times: u64,
}

/// The result of a check.
#[derive(Debug, Default)]
pub(crate) struct Report {
    /// Corrupt, missing or contradictory structures.
    pub(crate) problems: Vec<Problem>,
    /// Problems beyond the listed ones.
    pub(crate) unlisted: u64,
    /// Notable facts that a crash may cause.
    pub(crate) notes: Vec<String>,
    /// Number of checked structures, by name.
    pub(crate) counts: Vec<(&'static str, u64)>,
}

impl Report {
    pub(crate) fn problem(&mut self, class: Class, text: String) {
        let same = |problem: &&mut Problem| problem.class == class && problem.text == text;
        if let Some(problem) = self.problems.iter_mut().find(same) {
            problem.times += 1;
        } else if self.problems.len() < LISTED_MAX {
            self.problems.push(Problem { class, text, times: 1 });
        } else {
            self.unlisted += 1;
        }
    }

    pub(crate) fn note(&mut self, text: String) {
        if self.notes.len() < LISTED_MAX {
            self.notes.push(text);
        }
    }

    pub(crate) fn count(&mut self, name: &'static str, value: u64) {
        self.counts.push((name, value));
    }

    pub(crate) const fn is_clean(&self) -> bool {
        self.problems.is_empty()
    }

    fn problems_total(&self) -> u64 {
        self.problems.iter().map(|problem| problem.times).sum::<u64>() + self.unlisted
    }

    pub(crate) fn to_json(&self) -> Value {
        let problems: Vec<Value> = self
            .problems
            .iter()
            .map(|problem| json!({"class": problem.class.name(), "text": problem.text, "times": problem.times}))
            .collect();
        let counts: serde_json::Map<String, Value> =
            self.counts.iter().map(|(name, value)| ((*name).to_owned(), json!(value))).collect();
        json!({
            "clean": self.is_clean(),
            "problems_total": self.problems_total(),
            "problems": problems,
            "notes": self.notes,
            "counts": counts,
        })
    }

    pub(crate) fn write(&self, out: &mut dyn Write) -> io::Result<()> {
        let rows: Vec<(&str, String)> =
            self.counts.iter().map(|(name, value)| (*name, count(*value))).collect();
        text::pairs(out, &rows)?;
        for note in &self.notes {
            writeln!(out, "note: {}", text::clean(note))?;
        }
        for problem in &self.problems {
            let times =
                if problem.times > 1 { format!(" ({} times)", count(problem.times)) } else { String::new() };
            writeln!(out, "PROBLEM [{}] {}{times}", problem.class.name(), text::clean(&problem.text))?;
        }
        if self.unlisted > 0 {
            writeln!(out, "... and {} more problems", count(self.unlisted))?;
        }
        match self.problems_total() {
            0 => writeln!(out, "clean: no problems found"),
            1 => writeln!(out, "DAMAGED: 1 problem found"),
            total => writeln!(out, "DAMAGED: {} problems found", count(total)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn equal_problems_are_one_line() {
        let mut report = Report::default();
        for _ in 0..100 {
            report.problem(Class::Journal, "a block is damaged".to_owned());
        }
        report.problem(Class::Extent, "a block is damaged".to_owned());
        let mut out = Vec::new();
        report.write(&mut out).unwrap();
        let text = String::from_utf8(out).unwrap();
        let lines: Vec<&str> = text.lines().collect();
        let expected = [
            "PROBLEM [journal] a block is damaged (100 times)",
            "PROBLEM [extent] a block is damaged",
            "DAMAGED: 101 problems found",
        ];
        assert_eq!(lines, expected);
    }
}
