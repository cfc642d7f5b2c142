//! A bar chart of a run as SVG: per case, requests per second relative to the file itself.

use std::fmt::Write as _;

use super::cases::Target;
use super::measured::Series;

const BAR: f64 = 14.0;
const LABEL: f64 = 250.0;
/// Pixels of a bar as long as the file's own.
const UNIT: f64 = 260.0;
/// Longer bars are cut.
const RATIO_MAX: f64 = 2.0;

/// The chart.
#[must_use]
pub fn svg(all: &[Series]) -> String {
    let mut body = String::new();
    let mut y = 30.0;
    let mut last = String::new();
    for one in all.iter().filter(|one| one.target != Target::PingPong) {
        let raw =
            all.iter().find(|other| other.target == Target::Raw && other.case.name() == one.case.name());
        let Some(raw) = raw else { continue };
        let name = one.case.name();
        if name != last {
            y += BAR;
            let _infallible = writeln!(body, r#"<text x="10" y="{y:.0}" font-weight="bold">{name}</text>"#);
            y += BAR / 2.0;
            last = name;
        }
        let ratio = one.ratio(raw, |sample| sample.per_second);
        let width = ratio.min(RATIO_MAX) * UNIT;
        let color = if one.target.volume().is_some() { "#2266aa" } else { "#999999" };
        let text_y = y + BAR - 3.0;
        let _infallible = writeln!(
            body,
            r#"<text x="{:.0}" y="{text_y:.0}" text-anchor="end">{}</text><rect x="{LABEL:.0}" y="{y:.0}" width="{width:.1}" height="{:.0}" fill="{color}"/><text x="{:.0}" y="{text_y:.0}">{ratio:.2} ({:.0}/s)</text>"#,
            LABEL - 6.0,
            one.target.name(),
            BAR - 2.0,
            LABEL + width + 4.0,
            one.median(|sample| sample.per_second),
        );
        y += BAR;
    }
    let width = LABEL + RATIO_MAX * UNIT + 130.0;
    let line = LABEL + UNIT;
    format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{width:.0}\" height=\"{:.0}\" font-family=\"sans-serif\" \
         font-size=\"11\">\n<text x=\"10\" y=\"18\" font-size=\"14\">Requests per second, relative to the file itself \
         </text>\n{body}<line x1=\"{line:.0}\" y1=\"24\" x2=\"{line:.0}\" y2=\"{y:.0}\" stroke=\"#cc3333\"/>\n</svg>\n",
        y + 20.0
    )
}

#[cfg(test)]
mod tests {
    use super::super::cases::CASES;
    use super::super::measured::Sample;
    use super::*;

    #[test]
    fn every_bar_is_there_and_long_ones_are_cut() {
        let series = |target, rate| Series {
            case: CASES[0],
            target,
            samples: vec![Sample {
                round: 0,
                per_second: rate,
                latency_us: [1.0; 5],
                cpu_us: None,
                counters: None,
                requests: 1,
            }],
            syscalls: None,
            profile: None,
        };
        let text = svg(&[series(Target::Raw, 10.0), series(Target::Null, 90.0)]);
        assert_eq!(text.matches("<rect").count(), 2);
        assert!(text.contains("width=\"520.0\"") && text.contains("9.00 (90/s)"), "{text}");
    }
}
