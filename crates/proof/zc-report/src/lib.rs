//! Building blocks of benchmark reports.
//!
//! Job: the spread of a figure over rounds, a bound with its verdict, tables in Markdown and bar charts as SVG.
//!
//! Invariants: a figure of several rounds is their median, shown with minimum and maximum. Text in charts is escaped.
//!
//! It does not measure, or select comparisons.
#![forbid(unsafe_code)]

mod bars;

pub use bars::{Bar, Bars};

use std::fmt::{self, Display, Write as _};

/// The middle of `values`, the mean of the two middle ones of an even number; 0 of none.
#[must_use]
pub fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    let half = values.len() / 2;
    match values.len() {
        0 => 0.0,
        count if count.is_multiple_of(2) => f64::midpoint(values[half - 1], values[half]),
        _ => values[half],
    }
}

/// Formats a number with its significant digits.
#[must_use]
pub fn figure(value: f64) -> String {
    let digits = match value.abs() {
        value if value >= 100.0 => 0,
        value if value >= 10.0 => 1,
        _ => 2,
    };
    format!("{value:.digits$}")
}

/// A median with the least and the most.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Spread {
    /// The median.
    pub median: f64,
    /// The least.
    pub least: f64,
    /// The most.
    pub most: f64,
}

impl Spread {
    /// The spread of some numbers; `None` without any.
    #[must_use]
    pub fn of(values: Vec<f64>) -> Option<Self> {
        let least = values.iter().copied().min_by(f64::total_cmp)?;
        let most = values.iter().copied().max_by(f64::total_cmp)?;
        Some(Self { median: median(values), least, most })
    }
}

/// `2.00 (1.90 to 2.10)`; the median alone if there is no other value.
impl Display for Spread {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&figure(self.median))?;
        if self.least < self.most {
            write!(f, " ({} to {})", figure(self.least), figure(self.most))?;
        }
        Ok(())
    }
}

/// A bound of an aim.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Bound {
    /// Less is better.
    AtMost(f64),
    /// More is better.
    AtLeast(f64),
}

impl Bound {
    /// Returns `true` if a value keeps the bound.
    #[must_use]
    pub fn is_met(self, value: f64) -> bool {
        match self {
            Self::AtMost(bound) => value <= bound,
            Self::AtLeast(bound) => value >= bound,
        }
    }
}

impl Display for Bound {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::AtMost(bound) => write!(f, "<= {bound}"),
            Self::AtLeast(bound) => write!(f, ">= {bound}"),
        }
    }
}

/// The word for an aim that was met or missed.
#[must_use]
pub const fn verdict(met: bool) -> &'static str {
    if met { "met" } else { "**missed**" }
}

/// A table in Markdown.
#[derive(Debug, Clone)]
pub struct Table(String);

impl Table {
    /// A table with these heads and no rows.
    #[must_use]
    pub fn new<T: AsRef<str>>(heads: &[T]) -> Self {
        let mut table = Self(String::new());
        table.row(heads.iter().map(|head| head.as_ref()));
        table.0.push_str(&"|---".repeat(heads.len()));
        table.0.push_str("|\n");
        table
    }

    /// Adds a row.
    pub fn row<T: Display>(&mut self, cells: impl IntoIterator<Item = T>) {
        for cell in cells {
            let _infallible = write!(self.0, "| {cell} ");
        }
        self.0.push_str("|\n");
    }
}

impl Display for Table {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_middle_is_found() {
        assert!((median(vec![3.0, 1.0, 2.0]) - 2.0).abs() < 1e-9);
        assert!((median(vec![4.0, 1.0, 2.0, 3.0]) - 2.5).abs() < 1e-9);
        assert!(median(Vec::new()).abs() < 1e-9);
    }

    #[test]
    fn a_spread_has_the_ends() {
        let spread = Spread::of(vec![3.0, 1.0, 20.0]).unwrap();
        assert_eq!(spread, Spread { median: 3.0, least: 1.0, most: 20.0 });
        assert_eq!(spread.to_string(), "3.00 (1.00 to 20.0)");
        assert_eq!(Spread::of(vec![150.0]).unwrap().to_string(), "150");
        assert_eq!(Spread::of(Vec::new()), None);
    }

    #[test]
    fn bounds_are_kept_by_equal_values() {
        assert!(Bound::AtMost(1.05).is_met(1.05) && !Bound::AtMost(1.05).is_met(1.06));
        assert!(Bound::AtLeast(0.9).is_met(0.9) && !Bound::AtLeast(0.9).is_met(0.89));
        assert!(!Bound::AtLeast(0.9).is_met(f64::NAN) && !Bound::AtMost(0.9).is_met(f64::NAN));
        assert_eq!(Bound::AtLeast(0.9).to_string(), ">= 0.9");
    }

    #[test]
    fn tables_have_a_line_under_their_heads() {
        let mut table = Table::new(&["", "us"]);
        table.row([figure(1.0), figure(12.34)]);
        assert_eq!(table.to_string(), "|  | us |\n|---|---|\n| 1.00 | 12.3 |\n");
    }
}
