//! Outcome of a figure: charts, tables, numbers beside the paper's, asserted shapes, remarks.

use crate::chart::Chart;
use crate::{Ablation, Standing};

/// A table: every row has as many cells as there are columns.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Table {
    /// Subject.
    pub title: String,
    /// Names of the columns, with units.
    pub columns: Vec<String>,
    /// Its rows.
    pub rows: Vec<Vec<String>>,
}

/// A result beside a number of a paper.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Beside {
    /// Name of the paper's number in `numbers.csv`.
    pub number: &'static str,
    /// Ours, in the paper's unit.
    pub ours: String,
}

/// A claim about the shape of a figure.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Shape {
    /// The claim.
    pub claim: String,
    /// `true` if it holds here.
    pub holds: bool,
    /// The observation.
    pub seen: String,
    /// Evidence value of the claim.
    pub standing: Standing,
}

/// Outcome of a figure.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Outcome {
    /// Charts.
    pub charts: Vec<Chart>,
    /// Tables: everything that charts show is in one.
    pub tables: Vec<Table>,
    /// Results beside the paper's numbers.
    pub beside: Vec<Beside>,
    /// Claims and their observed truth.
    pub shapes: Vec<Shape>,
    /// Remarks on this run, such as used and missing traces.
    pub remarks: Vec<String>,
}

impl Outcome {
    /// Adds a table.
    ///
    /// # Panics
    /// If a row has more or fewer cells than there are columns.
    pub fn table(&mut self, title: &str, columns: &[&str], rows: Vec<Vec<String>>) {
        assert!(
            rows.iter().all(|row| row.len() == columns.len()),
            "a row of \"{title}\" is of another length"
        );
        let columns = columns.iter().map(|&column| column.to_owned()).collect();
        self.tables.push(Table { title: title.to_owned(), columns, rows });
    }

    /// Adds a result beside a number of the paper.
    pub fn beside(&mut self, number: &'static str, ours: impl Into<String>) {
        self.beside.push(Beside { number, ours: ours.into() });
    }

    /// Claims a shape of this worth.
    pub fn shape(
        &mut self,
        standing: Standing,
        holds: bool,
        claim: impl Into<String>,
        seen: impl Into<String>,
    ) {
        self.shapes.push(Shape { claim: claim.into(), holds, seen: seen.into(), standing });
    }

    /// Asserts a shape that fails under each of these ablations.
    pub fn asserted(
        &mut self,
        ablations: &'static [Ablation],
        holds: bool,
        claim: impl Into<String>,
        seen: impl Into<String>,
    ) {
        self.shape(Standing::Asserted(ablations), holds, claim, seen);
    }

    /// Adds a claim with a fitted parameter.
    pub fn fitted(
        &mut self,
        what: &'static str,
        holds: bool,
        claim: impl Into<String>,
        seen: impl Into<String>,
    ) {
        self.shape(Standing::Fitted(what), holds, claim, seen);
    }

    /// Compares a result with the present one, where it contradicts the paper.
    pub fn contradicted(
        &mut self,
        why: &'static str,
        holds: bool,
        claim: impl Into<String>,
        seen: impl Into<String>,
    ) {
        self.shape(Standing::Contradicted(why), holds, claim, seen);
    }

    /// Adds a remark on this run, once.
    pub fn remark(&mut self, remark: impl Into<String>) {
        let remark = remark.into();
        if !self.remarks.contains(&remark) {
            self.remarks.push(remark);
        }
    }

    /// Shapes that do not hold.
    #[must_use]
    pub fn failed(&self) -> usize {
        self.shapes.iter().filter(|shape| !shape.holds).count()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn failed_shapes_are_counted_and_remarks_kept_once() {
        let mut outcome = Outcome::default();
        outcome.fitted("x", true, "a", "b");
        outcome.contradicted("y", false, "c", "d");
        outcome.remark("x");
        outcome.remark("x");
        assert_eq!((outcome.failed(), outcome.remarks.len()), (1, 1));
    }

    #[test]
    #[should_panic(expected = "another length")]
    fn rows_fit_their_columns() {
        Outcome::default().table("t", &["a"], vec![vec![]]);
    }
}
