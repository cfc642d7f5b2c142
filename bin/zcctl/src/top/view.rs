//! Display of `top`.
//!
//! Invariants: columns that do not fit are omitted from the right of [`COLUMNS`], the name never; foreign text is
//! shown without control characters. It does not query or compute.

use ratatui::Frame;
use ratatui::layout::{Constraint, Layout};
use ratatui::style::{Color, Modifier, Style, Stylize as _};
use ratatui::text::Line;
use ratatui::widgets::{Cell, Paragraph, Row as TableRow, Table};
use serde_json::Value;

use super::model::{Model, Rates, Row, Sort};
use crate::text::clean;
use crate::units::{count, duration, share, size};

/// Most reasons that are shown; `zcctl status` has them all.
const REASONS_MAX: usize = 3;
const BARS: [char; 8] =
    ['\u{2581}', '\u{2582}', '\u{2583}', '\u{2584}', '\u{2585}', '\u{2586}', '\u{2587}', '\u{2588}'];

/// A column: heading, width, sort key, and cell.
struct Column {
    heading: &'static str,
    width: u16,
    sort: Option<Sort>,
    cell: fn(&Row) -> String,
}

const fn column(heading: &'static str, width: u16, sort: Option<Sort>, cell: fn(&Row) -> String) -> Column {
    Column { heading, width, sort, cell }
}

/// In order of importance; shown in the order of their numbers.
const COLUMNS: [(u8, Column); 9] = [
    (0, column("VOLUME", 16, Some(Sort::Name), |row| clean(&row.name))),
    (2, column("READ/s", 11, Some(Sort::Read), |row| size(row.rates.read_bytes))),
    (3, column("WRITTEN/s", 11, Some(Sort::Written), |row| size(row.rates.write_bytes))),
    (6, column("HITS", 8, Some(Sort::Hits), |row| permille(row.rates.hits_permille))),
    (7, column("DIRTY", 11, Some(Sort::Dirty), |row| size(row.dirty_bytes))),
    (4, column("IO/s", 9, None, |row| count(row.rates.reads.saturating_add(row.rates.writes)))),
    (8, column("AGE", 10, None, |row| duration(row.dirty_age_ms))),
    (1, column("MODE", 13, None, mode)),
    (9, column("LAST MINUTE", 30, None, |row| bars(row, 30))),
];

fn mode(row: &Row) -> String {
    row.trouble.map_or_else(|| clean(&row.mode), str::to_owned)
}

fn permille(hits: Option<u64>) -> String {
    hits.map_or_else(|| "-".to_owned(), |hits| share(hits, 1000))
}

/// The newest bandwidths, the largest as a full bar.
fn bars(row: &Row, width: usize) -> String {
    let most = row.history.iter().copied().max().unwrap_or(0);
    let shown = row.history.iter().skip(row.history.len().saturating_sub(width));
    let bar = |value: &u64| {
        let step = u128::from(*value) * 7 / u128::from(most.max(1));
        BARS[usize::try_from(step).unwrap_or(7)]
    };
    shown.map(bar).collect()
}

pub(super) fn draw(frame: &mut Frame<'_>, model: &Model) {
    let head = head(model);
    let rows = u16::try_from(head.len()).unwrap_or(u16::MAX);
    let parts = [Constraint::Length(rows), Constraint::Min(1), Constraint::Length(1)];
    let [top, middle, bottom] = Layout::vertical(parts).areas(frame.area());
    frame.render_widget(Paragraph::new(head), top);
    frame.render_widget(table(model, middle.width), middle);
    frame.render_widget(Paragraph::new(keys(model)), bottom);
}

/// State of the daemon, and totals of all volumes.
fn head(model: &Model) -> Vec<Line<'static>> {
    let status = model.status();
    let text = |value: &Value| clean(value.as_str().unwrap_or("-"));
    let number = |value: &Value| value.as_u64().unwrap_or(0);
    let state = text(&status["verdict"]["state"]);
    let (cache, up) = (&status["cache"], duration(number(&status["uptime_ms"])));
    let mut lines = vec![Line::from(vec![
        format!("zcached {}: ", text(&status["version"])).into(),
        state.clone().fg(color(&state)).bold(),
        format!(", up {up}, {} connections", count(number(&status["connections"]))).into(),
    ])];
    if let Some(why) = model.gone() {
        lines.push(Line::from(format!("no answer: {}", clean(why))).fg(Color::Red).bold());
    }
    for reason in status["verdict"]["reasons"].as_array().into_iter().flatten().take(REASONS_MAX) {
        let about = |kind: &str| reason[kind].as_str().map(|name| format!("{kind} {}: ", clean(name)));
        let about = about("volume").or_else(|| about("store")).unwrap_or_default();
        lines.push(
            Line::from(format!("  {about}{}", text(&reason["what"]))).fg(color(&text(&reason["level"]))),
        );
    }
    let holds = &cache["holds"];
    lines.push(Line::from(format!(
        "cache {}, {} of units in use, holds {} in {}",
        text(&cache["path"]),
        share(number(&cache["slots"][0]), number(&cache["slots"][1])),
        size(number(&holds["bytes"])),
        size(number(&holds["ssd_bytes"])),
    )));
    let Rates { reads, writes, read_bytes, write_bytes, .. } = model.total();
    lines.push(Line::from(format!(
        "all volumes: {}/s in {} reads/s, {}/s in {} writes/s",
        size(read_bytes),
        count(reads),
        size(write_bytes),
        count(writes)
    )));
    lines.push(Line::default());
    lines
}

fn color(state: &str) -> Color {
    match state {
        "HEALTHY" => Color::Green,
        "DEGRADED" => Color::Yellow,
        _ => Color::Red,
    }
}

/// The columns that fit, from left to right.
fn fitting(width: u16) -> Vec<&'static Column> {
    let mut left = width;
    let mut shown: Vec<&'static (u8, Column)> = Vec::new();
    for column in &COLUMNS {
        let Some(rest) = left.checked_sub(column.1.width + 1) else { break };
        left = rest;
        shown.push(column);
    }
    shown.sort_by_key(|(place, _)| *place);
    shown.into_iter().map(|(_, column)| column).collect()
}

fn table(model: &Model, width: u16) -> Table<'static> {
    let columns = fitting(width);
    let cell = |column: &Column, text: String| {
        let line = Line::from(text);
        // Names and bars from the left, numbers from the right.
        let is_text = matches!(column.heading, "VOLUME" | "MODE" | "LAST MINUTE");
        Cell::from(if is_text { line } else { line.right_aligned() })
    };
    let heading = columns.iter().map(|column| {
        let is_sorted = column.sort == Some(model.sort());
        let style = if is_sorted { Modifier::BOLD | Modifier::UNDERLINED } else { Modifier::BOLD };
        cell(column, column.heading.to_owned()).style(Style::from(style))
    });
    let row = |row: &Row| {
        let cells = columns.iter().map(|column| cell(column, (column.cell)(row)));
        let style = row.trouble.map_or_else(Style::default, |_| Style::default().fg(Color::Red));
        TableRow::new(cells.collect::<Vec<_>>()).style(style)
    };
    let rows: Vec<TableRow<'static>> = model.rows().iter().map(row).collect();
    let widths: Vec<Constraint> = columns.iter().map(|column| Constraint::Length(column.width)).collect();
    Table::new(rows, widths).header(TableRow::new(heading.collect::<Vec<_>>()))
}

fn keys(model: &Model) -> Line<'static> {
    let mut line = vec!["q".bold(), " quit".into()];
    for (key, word, sort) in Sort::KEYS {
        line.push(format!("  {key}").bold());
        let word = format!(" {word}");
        line.push(if sort == model.sort() { word.underlined() } else { word.into() });
    }
    line.extend(["  -".bold(), " reverse".into()]);
    Line::from(line)
}

#[cfg(test)]
mod tests {
    use ratatui::Terminal;
    use ratatui::backend::TestBackend;
    use serde_json::json;

    use super::*;

    fn screen(model: &Model, width: u16, height: u16) -> Vec<String> {
        let mut terminal = Terminal::new(TestBackend::new(width, height)).unwrap();
        terminal.draw(|frame| draw(frame, model)).unwrap();
        let buffer = terminal.backend().buffer().clone();
        let line = |y| (0..width).map(|x| buffer[(x, y)].symbol().to_owned()).collect::<String>();
        (0..height).map(|y| line(y).trim_end().to_owned()).collect()
    }

    fn model() -> Model {
        let status = |uptime_ms: u64, reads: u64| {
            json!({
                "version": "1.2.3", "pid": 1, "uptime_ms": uptime_ms, "connections": 2,
                "verdict": {"state": "DEGRADED", "reasons": [
                    {"level": "DEGRADED", "volume": "vm", "what": "something \u{1b}[2J is wrong"}]},
                "cache": {"path": "/dev/c", "slots": [1, 4], "holds": {"bytes": 3_u64 << 30, "ssd_bytes": 1 << 30}},
                "volumes": [{"name": "vm", "info": {"mode": "write-back"},
                    "dirty": {"bytes": 8 << 20, "oldest_age_ms": 7000},
                    "traffic": {"reads": reads, "hits": reads * 3 / 4, "read_bytes": reads << 20}}],
                "absent": [{"name": "gone"}],
            })
        };
        let mut model = Model::default();
        model.take(&status(1000, 0));
        model.take(&status(2000, 4));
        model
    }

    #[test]
    fn a_wide_screen_shows_everything() {
        let lines = screen(&model(), 130, 10);
        let head = [
            "zcached 1.2.3: DEGRADED, up 2.0 s, 2 connections",
            "  volume vm: something \u{fffd}[2J is wrong",
            "cache /dev/c, 25.0 % of units in use, holds 3.0 GiB in 1.0 GiB",
            "all volumes: 4.0 MiB/s in 4 reads/s, 0 B/s in 0 writes/s",
            "",
        ];
        assert_eq!(lines[..5], head);
        let words = |line: &str| line.split_whitespace().map(str::to_owned).collect::<Vec<_>>().join(" ");
        assert_eq!(words(&lines[5]), "VOLUME MODE READ/s WRITTEN/s IO/s HITS DIRTY AGE LAST MINUTE");
        assert_eq!(words(&lines[6]), "gone absent 0 B 0 B 0 - 0 B 0 ms \u{2581}\u{2581}");
        assert_eq!(words(&lines[7]), "vm write-back 4.0 MiB 0 B 4 75.0 % 8.0 MiB 7.0 s \u{2581}\u{2588}");
        assert!(lines[9].starts_with("q quit  n name  r read"), "{lines:?}");
    }

    #[test]
    fn a_narrow_screen_shows_what_is_most_wanted() {
        let lines = screen(&model(), 60, 10);
        let words: Vec<&str> = lines[5].split_whitespace().collect();
        assert_eq!(words, ["VOLUME", "READ/s", "WRITTEN/s", "HITS"]);
        assert!(screen(&model(), 17, 10)[5].starts_with("VOLUME"));
        screen(&model(), 1, 1);
    }

    #[test]
    fn a_daemon_that_is_gone_is_told() {
        let mut model = model();
        model.lose("connection refused");
        assert_eq!(screen(&model, 80, 10)[1], "no answer: connection refused");
    }
}
