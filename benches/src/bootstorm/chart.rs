//! A bar chart of a storm as SVG: mean read latency relative to pass-through, beside the paper's.

use std::fmt::Write as _;

use super::measured::Series;
use super::report::paper;

const LEFT: f64 = 110.0;
const BAR: f64 = 16.0;
/// Pixels for a ratio of one, and where longer bars are cut.
const UNIT: f64 = 300.0;
const RATIO_MAX: f64 = 2.0;

/// The chart.
#[must_use]
pub fn svg(all: &[Series]) -> String {
    let mut body = String::new();
    let mut y = 40.0;
    let mut bar = |y: f64, ratio: f64, color: &str, note: &str| {
        let width = ratio.min(RATIO_MAX) * UNIT;
        let _infallible = writeln!(
            body,
            r#"<rect x="{LEFT:.0}" y="{y:.0}" width="{width:.1}" height="{:.0}" fill="{color}"/><text x="{:.0}" y="{:.0}">{ratio:.3}{note}</text>"#,
            BAR - 2.0,
            LEFT + width + 4.0,
            y + BAR - 4.0,
        );
    };
    let mut labels = String::new();
    for one in all {
        let cache = if one.full { 100 } else { 0 };
        let _infallible = writeln!(
            labels,
            r#"<text x="{:.0}" y="{:.0}" text-anchor="end">{} at {cache} %</text>"#,
            LEFT - 6.0,
            y + BAR,
            one.setting.name()
        );
        bar(y, one.ratios(|sample| sample.read_us[0])[1], "#2266aa", "");
        bar(y + BAR, paper(one), "#bbbbbb", " paper");
        y += 2.0 * BAR + 8.0;
    }
    let (line, width) = (LEFT + UNIT, LEFT + RATIO_MAX * UNIT + 90.0);
    format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{width:.0}\" height=\"{:.0}\" font-family=\"sans-serif\" \
         font-size=\"11\">\n<text x=\"10\" y=\"20\" font-size=\"14\">Boot storm: mean read latency, relative to pass-through\
         </text>\n{labels}{body}<line x1=\"{line:.0}\" y1=\"30\" x2=\"{line:.0}\" y2=\"{y:.0}\" stroke=\"#cc3333\"/>\n</svg>\n",
        y + 16.0
    )
}

#[cfg(test)]
mod tests {
    use super::super::report::tests::series;
    use super::super::setting::Setting;
    use super::*;

    #[test]
    fn every_configuration_has_two_bars() {
        let text = svg(&[
            series(Setting::ALL[0], false, &[(1.0, 1.01)]),
            series(Setting::ALL[3], true, &[(1.0, 9.0)]),
        ]);
        assert_eq!(text.matches("<rect").count(), 4);
        assert!(
            text.contains("ND,NC at 0 %") && text.contains("1.010") && text.contains("1.180 paper"),
            "{text}"
        );
        assert!(text.contains("width=\"600.0\"") && text.contains("9.000"), "long bars are cut: {text}");
    }
}
