//! Charts: lines over numbers, or groups of bars over names.

/// One axis.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Axis {
    /// Quantity, with its unit.
    pub name: String,
    /// Powers of two at equal distances.
    pub log2: bool,
}

impl Axis {
    /// An axis with equal steps.
    #[must_use]
    pub fn linear(name: &str) -> Self {
        Self { name: name.to_owned(), log2: false }
    }

    /// An axis of powers of two.
    #[must_use]
    pub fn log2(name: &str) -> Self {
        Self { name: name.to_owned(), log2: true }
    }
}

/// Style of a chart.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Look {
    /// Lines through points.
    Lines,
    /// Groups of bars; x is the number of the group, from 0.
    Bars(Vec<String>),
}

/// A line or a colour of bars.
#[derive(Debug, Clone, PartialEq)]
pub struct Series {
    /// Name in the legend.
    pub name: String,
    /// Its points; those that are not finite are left out.
    pub points: Vec<(f64, f64)>,
}

/// A chart.
#[derive(Debug, Clone, PartialEq)]
pub struct Chart {
    /// Subject.
    pub title: String,
    /// From left to right.
    pub x: Axis,
    /// From bottom to top.
    pub y: Axis,
    /// Style.
    pub look: Look,
    /// Data series.
    pub series: Vec<Series>,
}

impl Chart {
    /// Lines over numbers.
    #[must_use]
    pub fn lines(title: &str, x: Axis, y: Axis) -> Self {
        Self { title: title.to_owned(), x, y, look: Look::Lines, series: Vec::new() }
    }

    /// Groups of bars.
    #[must_use]
    pub fn bars(title: &str, groups: Vec<String>, y: Axis) -> Self {
        let (x, look) = (Axis::linear(""), Look::Bars(groups));
        Self { title: title.to_owned(), x, y, look, series: Vec::new() }
    }

    /// Adds a series.
    pub fn add(&mut self, name: &str, points: Vec<(f64, f64)>) {
        self.series.push(Series { name: name.to_owned(), points });
    }

    /// Adds a bar for every group.
    pub fn add_bars(&mut self, name: &str, values: &[f64]) {
        let at = (0..values.len()).map(|group| group as f64);
        self.add(name, at.zip(values.iter().copied()).collect());
    }

    /// All points that can be drawn.
    pub(crate) fn points(&self) -> impl Iterator<Item = (f64, f64)> {
        let all = self.series.iter().flat_map(|series| series.points.iter().copied());
        all.filter(|(x, y)| x.is_finite() && y.is_finite())
    }
}
