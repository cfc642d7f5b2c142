//! Charts as SVG.
//!
//! Invariants: every coordinate is finite; a chart without points is an empty frame.

use svg::Document;
use svg::node::element::{Circle, Line, Polyline, Rectangle, Text};

use crate::chart::{Axis, Chart, Look};

const WIDTH: f64 = 640.0;
const HEIGHT: f64 = 360.0;
/// Left, top, right and bottom margins: names of the axes, title and legend.
const MARGINS: (f64, f64, f64, f64) = (64.0, 34.0, 180.0, 48.0);
/// Colours that remain distinct under red-green colour blindness (Okabe and Ito 2008).
const COLOURS: [&str; 8] =
    ["#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#000000", "#999999"];
/// Marks on an axis, about.
const TICKS: f64 = 5.0;
/// Distance of two lines of the legend.
const LEGEND_STEP: f64 = 18.0;
/// Largest number of points of a line that get a circle.
const POINTS_MAX: usize = 64;

/// Returns a number with the fewest digits that separate it from its neighbours.
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
        // From zero unless that would waste most of the space.
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

/// Returns a length to a tenth of a pixel.
fn pixels(length: f64) -> f64 {
    (length * 10.0).round() / 10.0
}

fn text(text: &str, x: f64, y: f64) -> Text {
    Text::new(text).set("x", pixels(x)).set("y", pixels(y))
}

fn middle(label: &str, x: f64, y: f64) -> Text {
    text(label, x, y).set("text-anchor", "middle")
}

/// Returns a chart as an SVG document.
#[must_use]
pub(crate) fn draw(chart: &Chart) -> String {
    let (left, top, right, bottom) = MARGINS;
    let zero = matches!(chart.look, Look::Bars(_)).then_some(0.0);
    let y = Scale::new(&chart.y, chart.points().map(|(_, y)| y).chain(zero), (HEIGHT - bottom, top));
    let mut document = Document::new()
        .set("viewBox", (0, 0, WIDTH, HEIGHT))
        .set("font-family", "sans-serif")
        .set("font-size", 11)
        .add(Rectangle::new().set("width", WIDTH).set("height", HEIGHT).set("fill", "#fff"))
        .add(text(&chart.title, left, 18.0).set("font-size", 13));
    for tick in &y.ticks {
        let at = pixels(y.at(*tick));
        let line = Line::new().set("x1", left).set("y1", at).set("x2", WIDTH - right).set("y2", at);
        document = document
            .add(line.set("stroke", "#ddd"))
            .add(text(&short(*tick), left - 6.0, at + 4.0).set("text-anchor", "end"));
    }
    let turn = format!("rotate(-90 14 {})", HEIGHT / 2.0);
    document = document.add(middle(&chart.y.name, 14.0, HEIGHT / 2.0).set("transform", turn));
    document = match &chart.look {
        Look::Lines => lines(chart, &y, document),
        Look::Bars(groups) => bars(chart, groups, &y, document),
    };
    legend(chart, document).to_string()
}

fn lines(chart: &Chart, y: &Scale, mut document: Document) -> Document {
    let (left, _, right, bottom) = MARGINS;
    let x = Scale::new(&chart.x, chart.points().map(|(x, _)| x), (left, WIDTH - right));
    for tick in &x.ticks {
        document = document.add(middle(&short(*tick), x.at(*tick), HEIGHT - bottom + 16.0));
    }
    document = document.add(middle(&chart.x.name, f64::midpoint(left, WIDTH - right), HEIGHT - 10.0));
    for (series, colour) in chart.series.iter().zip(COLOURS.iter().cycle()) {
        let finite = series.points.iter().filter(|(x, y)| x.is_finite() && y.is_finite());
        let at: Vec<(f64, f64)> =
            finite.map(|point| (pixels(x.at(point.0)), pixels(y.at(point.1)))).collect();
        let path: Vec<String> = at.iter().map(|(x, y)| format!("{x},{y}")).collect();
        let line = Polyline::new().set("points", path.join(" ")).set("fill", "none");
        document = document.add(line.set("stroke", *colour).set("stroke-width", 2));
        for (x, y) in at.iter().take(POINTS_MAX) {
            document =
                document.add(Circle::new().set("cx", *x).set("cy", *y).set("r", 3).set("fill", *colour));
        }
    }
    document
}

fn bars(chart: &Chart, groups: &[String], y: &Scale, mut document: Document) -> Document {
    let (left, _, right, bottom) = MARGINS;
    let room = (WIDTH - right - left) / (groups.len().max(1) as f64);
    let bar = 0.8 * room / (chart.series.len().max(1) as f64);
    for (number, group) in groups.iter().enumerate() {
        document = document.add(middle(group, left + (number as f64 + 0.5) * room, HEIGHT - bottom + 16.0));
    }
    let base = y.at(0.0_f64.clamp(y.from.min(y.to), y.to.max(y.from)));
    for (number, (series, colour)) in chart.series.iter().zip(COLOURS.iter().cycle()).enumerate() {
        for (group, value) in series.points.iter().filter(|(x, y)| x.is_finite() && y.is_finite()) {
            let (from, at) = (left + (group + 0.1) * room + number as f64 * bar, y.at(*value));
            document = document.add(
                Rectangle::new()
                    .set("x", pixels(from))
                    .set("y", pixels(at.min(base)))
                    .set("width", pixels(bar.max(1.0)))
                    .set("height", pixels((base - at).abs()))
                    .set("fill", *colour),
            );
        }
    }
    document
}

fn legend(chart: &Chart, mut document: Document) -> Document {
    let (_, top, right, _) = MARGINS;
    let from = WIDTH - right + 12.0;
    for (number, (series, colour)) in chart.series.iter().zip(COLOURS.iter().cycle()).enumerate() {
        let at = top + number as f64 * LEGEND_STEP;
        let square = Rectangle::new().set("x", from).set("y", at).set("width", 12).set("height", 12);
        document = document.add(square.set("fill", *colour)).add(text(&series.name, from + 18.0, at + 10.0));
    }
    document
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
        assert!(svg.contains(">\n128\n<") && svg.contains(">\n4\n<"), "{svg}");
        let mut chart = Chart::bars("t", vec!["x".into(), "y".into()], Axis::linear("s"));
        chart.add_bars("one", &[1.0, 2.0]);
        chart.add_bars("two", &[-3.0, 4.0]);
        let svg = draw(&chart);
        assert_eq!(svg.matches("<rect").count(), 1 + 4 + 2, "frame, bars and legend");
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
