//! Record of the seeds that soaks have tried, kept in a file from run to run.
//!
//! Invariants: a file is replaced as a whole; seeds that were tried by several revisions count for each of them, and
//! once in total. A failed seed stays in the list until it has passed.

use super::Side;
use anyhow::Context;
use serde::{Deserialize, Serialize};
use std::path::Path;

/// Seeds from `first` to before `end`, all tried at one revision.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Stretch {
    pub(super) side: Side,
    pub(super) revision: String,
    pub(super) first: u64,
    pub(super) end: u64,
    pub(super) requests: u64,
}

/// A seed that violates a guarantee.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Failure {
    pub(super) side: Side,
    pub(super) seed: u64,
    pub(super) revision: String,
    pub(super) text: String,
}

/// All that was tried.
#[derive(Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Summary {
    stretches: Vec<Stretch>,
    failures: Vec<Failure>,
    /// Seeds that failed once and have passed since.
    mended: u64,
}

impl Summary {
    /// Loads the file; without one, nothing was tried.
    pub(super) fn load(path: &Path) -> anyhow::Result<Self> {
        match std::fs::read_to_string(path) {
            Ok(text) => serde_json::from_str(&text)
                .with_context(|| format!("{} is not a summary; begin again with --afresh", path.display())),
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(Self::default()),
            Err(error) => Err(error).with_context(|| format!("cannot read {}", path.display())),
        }
    }

    pub(super) fn save(&self, path: &Path) -> anyhow::Result<()> {
        let text = serde_json::to_string_pretty(self).context("cannot put the summary into words")?;
        let new = path.with_extension("new");
        std::fs::write(&new, text).with_context(|| format!("cannot write {}", new.display()))?;
        std::fs::rename(&new, path).with_context(|| format!("cannot replace {}", path.display()))
    }

    /// The seed after the last one that was tried.
    pub(super) fn next(&self, side: Side) -> u64 {
        self.of(side).map(|stretch| stretch.end).max().unwrap_or(1)
    }

    pub(super) fn failures(&self) -> &[Failure] {
        &self.failures
    }

    /// Adds a batch to the previous range.
    pub(super) fn tried(&mut self, new: Stretch) {
        let before = self
            .stretches
            .iter_mut()
            .find(|old| old.side == new.side && old.revision == new.revision && old.end == new.first);
        match before {
            Some(before) => {
                before.end = new.end;
                before.requests = before.requests.saturating_add(new.requests);
            }
            None => self.stretches.push(new),
        }
    }

    pub(super) fn failed(&mut self, failure: Failure) {
        self.failures.retain(|old| (old.side, old.seed) != (failure.side, failure.seed));
        self.failures.push(failure);
    }

    pub(super) fn mended(&mut self, side: Side, seed: u64) {
        let before = self.failures.len();
        self.failures.retain(|old| (old.side, old.seed) != (side, seed));
        if self.failures.len() < before {
            self.mended = self.mended.saturating_add(1);
        }
    }

    /// Different seeds of a side, whatever revision tried them.
    pub(super) fn seeds(&self, side: Side) -> u64 {
        let mut spans: Vec<(u64, u64)> = self.of(side).map(|stretch| (stretch.first, stretch.end)).collect();
        spans.sort_unstable();
        let (mut seeds, mut reached) = (0_u64, 0);
        for (first, end) in spans {
            let first = first.max(reached);
            seeds = seeds.saturating_add(end.saturating_sub(first));
            reached = reached.max(end);
        }
        seeds
    }

    /// The table that a run ends with.
    pub(super) fn table(&self) -> String {
        let mut table = format!("{:<6} {:<20} {:>24} {:>15}\n", "side", "revision", "seeds", "requests");
        let mut rows: Vec<&Stretch> = self.stretches.iter().collect();
        rows.sort_by_key(|row| (row.side, row.first));
        for row in rows {
            let seeds = format!("{}..{}", row.first, row.end);
            table.push_str(&format!(
                "{:<6} {:<20} {seeds:>24} {:>15}\n",
                row.side.name(),
                row.revision,
                row.requests
            ));
        }
        table.push_str(&format!(
            "{} different seeds of the cache, {} of the store; {} violate a guarantee, {} did once",
            self.seeds(Side::Cache),
            self.seeds(Side::Store),
            self.failures.len(),
            self.mended
        ));
        table
    }

    fn of(&self, side: Side) -> impl Iterator<Item = &Stretch> {
        self.stretches.iter().filter(move |stretch| stretch.side == side)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn stretch(side: Side, revision: &str, first: u64, end: u64) -> Stretch {
        Stretch { side, revision: revision.to_owned(), first, end, requests: (end - first) * 10 }
    }

    fn failure(side: Side, seed: u64) -> Failure {
        Failure { side, seed, revision: "a".to_owned(), text: "G5".to_owned() }
    }

    #[test]
    fn batches_that_follow_one_another_are_one_stretch() {
        let mut summary = Summary::default();
        assert_eq!(summary.next(Side::Cache), 1);
        summary.tried(stretch(Side::Cache, "a", 1, 251));
        summary.tried(stretch(Side::Store, "a", 1, 251));
        summary.tried(stretch(Side::Cache, "a", 251, 501));
        assert_eq!(summary.stretches.len(), 2);
        assert_eq!(summary.stretches[0], stretch(Side::Cache, "a", 1, 501));
        assert_eq!((summary.next(Side::Cache), summary.next(Side::Store)), (501, 251));
        summary.tried(stretch(Side::Cache, "b", 501, 601));
        assert_eq!(summary.stretches.len(), 3, "another revision is another row");
    }

    #[test]
    fn a_seed_that_two_revisions_tried_counts_once() {
        let mut summary = Summary::default();
        summary.tried(stretch(Side::Cache, "a", 1, 101));
        summary.tried(stretch(Side::Cache, "b", 51, 151));
        summary.tried(stretch(Side::Cache, "b", 1000, 1010));
        assert_eq!(summary.seeds(Side::Cache), 160);
        assert_eq!(summary.seeds(Side::Store), 0);
    }

    #[test]
    fn a_failure_stays_until_it_has_passed() {
        let mut summary = Summary::default();
        summary.failed(failure(Side::Cache, 7));
        summary.failed(failure(Side::Store, 7));
        summary.failed(failure(Side::Cache, 7));
        assert_eq!(summary.failures().len(), 2);
        summary.mended(Side::Cache, 7);
        assert_eq!(summary.failures(), [failure(Side::Store, 7)]);
        assert!(summary.table().contains("1 violate a guarantee, 1 did once"), "{}", summary.table());
    }

    #[test]
    fn what_was_written_is_read_again() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("summary.json");
        assert_eq!(Summary::load(&path).unwrap(), Summary::default());
        let mut summary = Summary::default();
        summary.tried(stretch(Side::Store, "a", 1, 251));
        summary.failed(failure(Side::Store, 7));
        summary.save(&path).unwrap();
        assert_eq!(Summary::load(&path).unwrap(), summary);
        std::fs::write(&path, "{").unwrap();
        let error = Summary::load(&path).unwrap_err();
        assert!(error.to_string().contains("--afresh"), "{error}");
    }
}
