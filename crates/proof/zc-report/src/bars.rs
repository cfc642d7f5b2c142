//! Bar charts: groups of horizontal bars, relative to a line at one.

use std::fmt::Write as _;

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
    /// What bars show.
    pub title: String,
    /// Longer bars are cut.
    pub ratio_max: f64,
    /// Names of groups, and their bars.
    pub groups: Vec<(String, Vec<Bar>)>,
}

fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;")
}

impl Bars {
    /// The chart as an SVG document.
    #[must_use]
    pub fn svg(&self) -> String {
        let bars = || self.groups.iter().flat_map(|(_, bars)| bars);
        let letters = bars().map(|bar| bar.label.chars().count()).max().unwrap_or(0);
        let left = letters as f64 * LETTER + 12.0;
        let longest = bars().map(|bar| bar.ratio).fold(1.0, f64::max).min(self.ratio_max);
        let unit = (BARS / longest).min(UNIT_MAX);
        let (mut body, mut y) = (String::new(), 30.0);
        for (name, bars) in &self.groups {
            let title_y = y + LINE;
            let name = escaped(name);
            let _infallible =
                writeln!(body, r#"<text x="10" y="{title_y:.0}" font-weight="bold">{name}</text>"#);
            y += 1.5 * LINE;
            for bar in bars {
                let (width, ratio, text_y) =
                    (bar.ratio.min(self.ratio_max) * unit, bar.ratio, y + LINE - 3.0);
                let color = if bar.is_ours { "#2266aa" } else { "#999999" };
                let [label, note] = [&bar.label, &bar.note].map(|text| escaped(text));
                let _infallible = writeln!(
                    body,
                    r#"<text x="{:.0}" y="{text_y:.0}" text-anchor="end">{label}</text><rect x="{left:.0}" y="{y:.0}" width="{width:.1}" height="{:.0}" fill="{color}"/><text x="{:.0}" y="{text_y:.0}">{ratio:.2}{note}</text>"#,
                    left - 6.0,
                    LINE - 2.0,
                    left + width + 4.0,
                );
                y += LINE;
            }
        }
        let (width, height, line) = (left + longest * unit + 130.0, y + 20.0, left + unit);
        let title = escaped(&self.title);
        format!(
            "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{width:.0}\" height=\"{height:.0}\" \
             font-family=\"sans-serif\" font-size=\"11\">\n<text x=\"10\" y=\"18\" font-size=\"14\">{title}</text>\n{body}\
             <line x1=\"{line:.0}\" y1=\"24\" x2=\"{line:.0}\" y2=\"{y:.0}\" stroke=\"#cc3333\"/>\n</svg>\n"
        )
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
        assert!(text.contains("width=\"520.0\"") && text.contains("9.00 (9/s)"), "{text}");
        assert!(text.contains("a &lt; b") && !text.contains("a < b"), "{text}");
    }

    #[test]
    fn a_chart_without_bars_is_drawn_all_the_same() {
        let text = Bars { title: "t".to_owned(), ratio_max: 2.0, groups: Vec::new() }.svg();
        assert!(!text.contains("NaN") && !text.contains("inf"), "{text}");
    }
}
