//! Bar charts: groups of horizontal bars, relative to a line at one.

use svg::Document;
use svg::node::element::{Line, Rectangle, Text};

/// Height of a line, in pixels.
const LINE: f64 = 14.0;
/// Width of a letter of a label, about.
const LETTER: f64 = 6.5;
/// Width that a bar of a ratio of one has at most, and all bars together.
const UNIT_MAX: f64 = 260.0;
const BARS: f64 = 540.0;

/// A bar.
#[derive(Debug, Clone)]
pub struct Bar {
    /// Name at its left.
    pub label: String,
    /// Its length; the line is at 1.
    pub ratio: f64,
    /// Text behind its ratio.
    pub note: String,
    /// A bar of zcached, which has another colour.
    pub is_ours: bool,
}

/// A chart.
#[derive(Debug, Clone)]
pub struct Bars {
    /// Title of the chart.
    pub title: String,
    /// Longer bars are cut.
    pub ratio_max: f64,
    /// Names of groups, and their bars.
    pub groups: Vec<(String, Vec<Bar>)>,
}

/// Returns a length to a tenth of a pixel.
fn pixels(length: f64) -> f64 {
    (length * 10.0).round() / 10.0
}

fn text(text: &str, x: f64, y: f64) -> Text {
    Text::new(text).set("x", pixels(x)).set("y", pixels(y))
}

impl Bars {
    /// Returns the chart as an SVG document.
    #[must_use]
    pub fn svg(&self) -> String {
        let bars = || self.groups.iter().flat_map(|(_, bars)| bars);
        let letters = bars().map(|bar| bar.label.chars().count()).max().unwrap_or(0);
        let left = letters as f64 * LETTER + 12.0;
        let longest = bars().map(|bar| bar.ratio).fold(1.0, f64::max).min(self.ratio_max);
        let unit = (BARS / longest).min(UNIT_MAX);
        let mut document = Document::new()
            .set("font-family", "sans-serif")
            .set("font-size", 11)
            .add(text(&self.title, 10.0, 18.0).set("font-size", 14));
        let mut y = 30.0;
        for (name, bars) in &self.groups {
            document = document.add(text(name, 10.0, y + LINE).set("font-weight", "bold"));
            y += 1.5 * LINE;
            for bar in bars {
                let (width, text_y) = (bar.ratio.min(self.ratio_max) * unit, y + LINE - 3.0);
                let color = if bar.is_ours { "#2266aa" } else { "#999999" };
                let ratio = format!("{:.2}{}", bar.ratio, bar.note);
                document = document
                    .add(text(&bar.label, left - 6.0, text_y).set("text-anchor", "end"))
                    .add(
                        Rectangle::new()
                            .set("x", pixels(left))
                            .set("y", pixels(y))
                            .set("width", pixels(width))
                            .set("height", LINE - 2.0)
                            .set("fill", color),
                    )
                    .add(text(&ratio, left + width + 4.0, text_y));
                y += LINE;
            }
        }
        let at = pixels(left + unit);
        let line = Line::new().set("x1", at).set("y1", 24).set("x2", at).set("y2", pixels(y));
        document
            .set("width", pixels(left + longest * unit + 130.0))
            .set("height", pixels(y + 20.0))
            .add(line.set("stroke", "#cc3333"))
            .to_string()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bar(ratio: f64) -> Bar {
        Bar { label: "a < b".to_owned(), ratio, note: " (9/s)".to_owned(), is_ours: ratio > 1.0 }
    }

    #[test]
    fn every_bar_is_there_and_long_ones_are_cut() {
        let groups = vec![("case".to_owned(), vec![bar(1.0), bar(9.0)])];
        let text = Bars { title: "t".to_owned(), ratio_max: 2.0, groups }.svg();
        assert_eq!(text.matches("<rect").count(), 2);
        assert!(text.contains("width=\"520\"") && text.contains("9.00 (9/s)"), "{text}");
        assert!(text.contains("a &lt; b") && !text.contains("a < b"), "{text}");
    }

    #[test]
    fn a_chart_without_bars_is_drawn_all_the_same() {
        let text = Bars { title: "t".to_owned(), ratio_max: 2.0, groups: Vec::new() }.svg();
        assert!(!text.contains("NaN") && !text.contains("inf"), "{text}");
    }
}
