//! Figures of the papers that zcached builds on: the published results, and those of the simulators beside them.
//!
//! Job: for each figure run its experiment on generated or real traces ([`Figure::run`]), compare the results with the
//! paper's numbers ([`paper`], from `numbers.csv` beside this crate), assert the shape that the paper's text states,
//! and write all of it as CSV, SVG and one HTML file ([`report`]).
//!
//! Invariants: the same scale and traces give the same figures on every machine. Each number of a paper has its place
//! in it. A shape that does not hold is an outcome, not an error; the caller decides on failure.
//!
//! Results: `FIGURES.md` beside this crate.
//!
//! It does not simulate. Caches are in `zc-replay`, the SSD below them in `zc-flash`. To add a figure: a function that
//! computes an [`Outcome`] from a [`Context`], and an entry in [`all`].
#![forbid(unsafe_code)]

mod ablation;
mod chart;
mod context;
mod error;
mod flash;
mod flaz;
mod nitro;
mod not_here;
mod outcome;
pub mod paper;
mod proof;
pub mod report;
mod standing;
mod svg;

pub use ablation::Ablation;
pub use chart::{Axis, Chart, Look, Series};
pub use context::{Context, Scale};
pub use error::FigureError;
pub use not_here::NOT_HERE;
pub use outcome::{Beside, Outcome, Shape, Table};
pub use proof::unbroken;
pub use standing::{Counts, Standing};

/// A figure or table of a paper.
#[derive(Debug, Clone, Copy)]
pub struct Figure {
    /// Name on the command line and in file names: lower case, digits, hyphens.
    pub id: &'static str,
    /// Subject.
    pub title: &'static str,
    /// Authors, where it was published, section and number.
    pub source: &'static str,
    /// Experiment run here in its place.
    pub ours: &'static str,
    /// Reasons for possible differences, in words.
    pub differences: &'static str,
    /// Evidence value as a whole.
    pub standing: Standing,
    /// The paper's numbers for comparison, each with its evidence value.
    pub numbers: &'static [(&'static str, Standing)],
    /// `true` if it is made, at small scale, by the tests: it takes seconds.
    pub quick: bool,
    /// Makes it.
    pub run: fn(&Context) -> Result<Outcome, FigureError>,
}

impl Figure {
    /// Returns the evidence value beside a number of the paper; `None` without a comparison.
    #[must_use]
    pub fn standing_of(&self, number: &str) -> Option<Standing> {
        self.numbers.iter().find(|(id, _)| *id == number).map(|(_, standing)| *standing)
    }
}

/// Every figure, in the order of the report.
#[must_use]
pub fn all() -> Vec<Figure> {
    let mut all = Vec::new();
    all.extend(nitro::FIGURES);
    all.extend(flash::FIGURES);
    all.extend(flaz::FIGURES);
    all
}

/// The figures of these names; all of them if none is named. A name may end in `*`.
///
/// # Errors
/// No figure has one of the names.
pub fn named(ids: &[String]) -> Result<Vec<Figure>, FigureError> {
    let fits = |figure: &Figure, id: &str| match id.strip_suffix('*') {
        Some(start) => figure.id.starts_with(start),
        None => figure.id == id,
    };
    if let Some(id) = ids.iter().find(|id| !all().iter().any(|figure| fits(figure, id))) {
        let known = all().iter().map(|figure| figure.id).collect::<Vec<_>>().join(", ");
        return Err(FigureError::NoFigure { id: id.clone(), known });
    }
    Ok(all().into_iter().filter(|f| ids.is_empty() || ids.iter().any(|id| fits(f, id))).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_unique_and_plain() {
        let mut seen = std::collections::BTreeSet::new();
        for figure in all() {
            assert!(seen.insert(figure.id), "{} comes twice", figure.id);
            let plain = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-';
            assert!(figure.id.chars().all(plain), "{}", figure.id);
            for text in [figure.title, figure.source, figure.ours, figure.differences] {
                assert!(!text.is_empty(), "{} leaves something out", figure.id);
            }
        }
    }

    #[test]
    fn every_number_of_a_paper_is_beside_ours_or_has_a_reason() {
        let mut seen = std::collections::BTreeSet::new();
        for (id, standing) in all().iter().flat_map(|figure| figure.numbers) {
            assert!(paper::number(id).is_some(), "{id} is no number");
            assert!(seen.insert(*id), "{id} stands in two figures");
            assert!(standing.reason().len() > 10, "{id} has no reason");
        }
        for (id, why) in NOT_HERE {
            assert!(paper::number(id).is_some() && seen.insert(id) && !why.is_empty(), "{id}");
        }
        let missing: Vec<&str> = paper::all().map(|n| n.id).filter(|id| !seen.contains(id)).collect();
        assert!(missing.is_empty(), "neither beside ours nor with a reason: {missing:?}");
    }

    #[test]
    fn the_document_counts_figures_and_numbers() {
        let text = include_str!("../FIGURES.md");
        let figures = Counts::of(all().iter().map(|figure| figure.standing));
        let numbers = all().into_iter().flat_map(|figure| figure.numbers).map(|(_, standing)| *standing);
        for (what, counts) in [("figures", figures), ("numbers of the papers", Counts::of(numbers))] {
            let row = format!("| {what} | {} |", counts.0.map(|count| count.to_string()).join(" | "));
            assert!(text.contains(&row), "FIGURES.md has no row {row}");
        }
    }

    #[test]
    fn figures_are_found_by_name_and_beginning() {
        assert_eq!(named(&[]).unwrap().len(), all().len());
        assert_eq!(named(&["nitro-4".to_owned()]).unwrap().len(), 1);
        assert!(named(&["nitro-*".to_owned()]).unwrap().len() > 1);
        let error = named(&["nitro-99".to_owned()]).unwrap_err().to_string();
        assert!(error.contains("nitro-99") && error.contains("nitro-4"), "{error}");
    }
}
