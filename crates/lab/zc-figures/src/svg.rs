//! Charts as SVG, by hand: nothing but lines, circles, rectangles and text.
//!
//! Invariants: every text is escaped, every coordinate is finite; a chart without points is an empty frame.

use std::fmt::Write as _;

use crate::chart::{Axis, Chart, Look};

const WIDTH: f64 = 640.0;
const HEIGHT: f64 = 360.0;
/// Left, top, right and bottom margins: names of the axes, title and legend.
const MARGINS: (f64, f64, f64, f64) = (64.0, 34.0, 180.0, 48.0);
/// Colours that those who confuse red and green tell apart (Okabe and Ito 2008).
const COLOURS: [&str; 8] =
    ["#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#000000", "#999999"];
/// Marks on an axis, about.
const TICKS: f64 = 5.0;
/// Distance of two lines of the legend.
const LEGEND_STEP: f64 = 18.0;

/// Text inside XML.
pub(crate) fn escaped(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '&' => out.push_str("&amp;"),
            '<' => out.push_str("&lt;"),
            '>' => out.push_str("&gt;"),
            '"' => out.push_str("&quot;"),
            c => out.push(c),
        }
    }
    out
}

/// A number as short as it can be told apart from its neighbours.
pub(crate) fn short(value: f64) -> String {
    let digits = match value.abs() {
        v if v >= 100.0 || v == v.round() => 0,
        v if v >= 10.0 => 1,
        v if v >= 0.1 => 2,
        _ => 4,
    };
    format!("{value:.digits$}")
}

/// From values to pixels.
struct Scale {
    log2: bool,
    from: f64,
    to: f64,
    start: f64,
    end: f64,
    ticks: Vec<f64>,
}

impl Scale {
    fn new(axis: &Axis, values: impl Iterator<Item = f64>, (start, end): (f64, f64)) -> Self {
        let (mut low, mut high) = (f64::INFINITY, f64::NEG_INFINITY);
        for value in values {
            low = low.min(value);
            high = high.max(value);
        }
        if low > high {
            (low, high) = (0.0, 1.0);
        }
        if axis.log2 && low > 0.0 {
            let (from, mut to) = (low.log2().floor(), high.log2().ceil());
            to = to.max(from + 1.0);
            let step = ((to - from) / 8.0).ceil().max(1.0);
            let ticks = steps(from, to, step).into_iter().map(f64::exp2).collect();
            return Self { log2: true, from, to, start, end, ticks };
        }
        // From zero unless that would waste most of the room.
        let from = if low >= 0.0 && low < 0.6 * high { 0.0 } else { low };
        let span = if high > from { high - from } else { high.abs().max(1.0) };
        let raw = span / TICKS;
        let power = 10_f64.powf(raw.log10().floor());
        let step = [1.0, 2.0, 5.0, 10.0].into_iter().map(|f| f * power).find(|s| *s >= raw).unwrap_or(raw);
        let (from, to) = ((from / step).floor() * step, ((from + span) / step).ceil() * step);
        Self { log2: false, from, to, start, end, ticks: steps(from, to, step) }
    }

    fn at(&self, value: f64) -> f64 {
        let value = if self.log2 { value.max(f64::MIN_POSITIVE).log2() } else { value };
        let share = (value - self.from) / (self.to - self.from);
        self.start + share.clamp(-0.05, 1.05) * (self.end - self.start)
    }
}

fn steps(from: f64, to: f64, step: f64) -> Vec<f64> {
    let mut all = Vec::new();
    let mut number = 0.0;
    while from + number * step <= to + step / 1000.0 && number <= 64.0 {
        all.push(from + number * step);
        number += 1.0;
    }
    all
}

/// A chart as an SVG document.
#[must_use]
pub(crate) fn draw(chart: &Chart) -> String {
    let (left, top, right, bottom) = MARGINS;
    let zero = matches!(chart.look, Look::Bars(_)).then_some(0.0);
    let y = Scale::new(&chart.y, chart.points().map(|(_, y)| y).chain(zero), (HEIGHT - bottom, top));
    let mut out = String::new();
    let mut put = |line: std::fmt::Arguments<'_>| {
        // Writing to a string does not fail.
        let _ = out.write_fmt(line);
        out.push('\n');
    };
    put(format_args!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {WIDTH} {HEIGHT}\" font-family=\"sans-serif\" \
         font-size=\"11\">"
    ));
    put(format_args!("<rect width=\"{WIDTH}\" height=\"{HEIGHT}\" fill=\"#fff\"/>"));
    put(format_args!("<text x=\"{left}\" y=\"18\" font-size=\"13\">{}</text>", escaped(&chart.title)));
    for tick in &y.ticks {
        let at = y.at(*tick);
        put(format_args!(
            "<path d=\"M{left} {at:.1}H{:.1}\" stroke=\"#ddd\"/><text x=\"{:.1}\" y=\"{:.1}\" \
             text-anchor=\"end\">{}</text>",
            WIDTH - right,
            left - 6.0,
            at + 4.0,
            short(*tick)
        ));
    }
    put(format_args!(
        "<text x=\"14\" y=\"{:.1}\" transform=\"rotate(-90 14 {:.1})\" text-anchor=\"middle\">{}</text>",
        HEIGHT / 2.0,
        HEIGHT / 2.0,
        escaped(&chart.y.name)
    ));
    match &chart.look {
        Look::Lines => lines(chart, &y, &mut put),
        Look::Bars(groups) => bars(chart, groups, &y, &mut put),
    }
    legend(chart, &mut put);
    put(format_args!("</svg>"));
    out
}

fn lines(chart: &Chart, y: &Scale, put: &mut impl FnMut(std::fmt::Arguments<'_>)) {
    let (left, _, right, bottom) = MARGINS;
    let x = Scale::new(&chart.x, chart.points().map(|(x, _)| x), (left, WIDTH - right));
    for tick in &x.ticks {
        put(format_args!(
            "<text x=\"{:.1}\" y=\"{:.1}\" text-anchor=\"middle\">{}</text>",
            x.at(*tick),
            HEIGHT - bottom + 16.0,
            short(*tick)
        ));
    }
    put(format_args!(
        "<text x=\"{:.1}\" y=\"{:.1}\" text-anchor=\"middle\">{}</text>",
        f64::midpoint(left, WIDTH - right),
        HEIGHT - 10.0,
        escaped(&chart.x.name)
    ));
    for (series, colour) in chart.series.iter().zip(COLOURS.iter().cycle()) {
        let finite = series.points.iter().filter(|(x, y)| x.is_finite() && y.is_finite());
        let at: Vec<(f64, f64)> = finite.map(|point| (x.at(point.0), y.at(point.1))).collect();
        let path: Vec<String> = at.iter().map(|(x, y)| format!("{x:.1} {y:.1}")).collect();
        if !path.is_empty() {
            put(format_args!(
                "<path d=\"M{}\" fill=\"none\" stroke=\"{colour}\" stroke-width=\"2\"/>",
                path.join("L")
            ));
        }
        for (x, y) in at.iter().take(64) {
            put(format_args!("<circle cx=\"{x:.1}\" cy=\"{y:.1}\" r=\"3\" fill=\"{colour}\"/>"));
        }
    }
}

fn bars(chart: &Chart, groups: &[String], y: &Scale, put: &mut impl FnMut(std::fmt::Arguments<'_>)) {
    let (left, _, right, bottom) = MARGINS;
    let room = (WIDTH - right - left) / (groups.len().max(1) as f64);
    let bar = 0.8 * room / (chart.series.len().max(1) as f64);
    for (number, group) in groups.iter().enumerate() {
        put(format_args!(
            "<text x=\"{:.1}\" y=\"{:.1}\" text-anchor=\"middle\">{}</text>",
            left + (number as f64 + 0.5) * room,
            HEIGHT - bottom + 16.0,
            escaped(group)
        ));
    }
    let base = y.at(0.0_f64.clamp(y.from.min(y.to), y.to.max(y.from)));
    for (number, (series, colour)) in chart.series.iter().zip(COLOURS.iter().cycle()).enumerate() {
        for (group, value) in series.points.iter().filter(|(x, y)| x.is_finite() && y.is_finite()) {
            let (from, at) = (left + (group + 0.1) * room + number as f64 * bar, y.at(*value));
            put(format_args!(
                "<rect x=\"{from:.1}\" y=\"{:.1}\" width=\"{:.1}\" height=\"{:.1}\" fill=\"{colour}\"/>",
                at.min(base),
                bar.max(1.0),
                (base - at).abs()
            ));
        }
    }
}

fn legend(chart: &Chart, put: &mut impl FnMut(std::fmt::Arguments<'_>)) {
    let (_, top, right, _) = MARGINS;
    let from = WIDTH - right + 12.0;
    for (number, (series, colour)) in chart.series.iter().zip(COLOURS.iter().cycle()).enumerate() {
        let at = top + number as f64 * LEGEND_STEP;
        put(format_args!(
            "<rect x=\"{from:.1}\" y=\"{at:.1}\" width=\"12\" height=\"12\" fill=\"{colour}\"/>\
             <text x=\"{:.1}\" y=\"{:.1}\">{}</text>",
            from + 18.0,
            at + 10.0,
            escaped(&series.name)
        ));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_and_bars_have_their_points() {
        let mut chart = Chart::lines("a < b", Axis::log2("KiB"), Axis::linear("% & more"));
        chart.add("one", vec![(4.0, 10.0), (8.0, f64::NAN), (128.0, 90.0)]);
        let svg = draw(&chart);
        assert_eq!(svg.matches("<circle").count(), 2);
        assert!(svg.contains("a &lt; b") && svg.contains("% &amp; more") && !svg.contains("NaN"));
        assert!(svg.contains(">128<") && svg.contains(">4<"), "{svg}");
        let mut chart = Chart::bars("t", vec!["x".into(), "y".into()], Axis::linear("s"));
        chart.add_bars("one", &[1.0, 2.0]);
        chart.add_bars("two", &[-3.0, 4.0]);
        let svg = draw(&chart);
        assert_eq!(svg.matches("<rect x").count(), 4 + 2, "bars and legend");
    }

    #[test]
    fn odd_charts_are_drawn_all_the_same() {
        let mut flat = Chart::lines("t", Axis::linear("x"), Axis::log2("y"));
        flat.add("same", vec![(1.0, 3.0), (1.0, 3.0)]);
        let mut zero = Chart::lines("t", Axis::log2("x"), Axis::linear("y"));
        zero.add("zero", vec![(0.0, 0.0)]);
        let empty = Chart::lines("t", Axis::linear("x"), Axis::linear("y"));
        for chart in [flat, zero, empty] {
            let svg = draw(&chart);
            assert!(!svg.contains("NaN") && !svg.contains("inf"), "{svg}");
        }
    }

    #[test]
    fn numbers_are_short() {
        assert_eq!([0.5, 12.25, 128.0, 0.0123].map(short), ["0.50", "12.2", "128", "0.0123"]);
    }
}
