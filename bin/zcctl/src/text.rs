//! Plain text for terminals: aligned rows, escaped foreign text.
//!
//! Out of scope: colours, or measure wide characters.

use std::io::{self, Write};

use serde_json::Value;

use crate::units::{count, share};

/// Foreign text without control characters.
pub(crate) fn clean(text: &str) -> String {
    text.chars().map(|c| if c.is_control() { '\u{fffd}' } else { c }).collect()
}

/// Foreign text without control characters, line by line. The daemon's messages may have several lines.
pub(crate) fn clean_lines(text: &str) -> String {
    text.lines().map(clean).collect::<Vec<_>>().join("\n")
}

/// A number of an answer; 0 if it is none.
pub(crate) fn number(value: &Value) -> u64 {
    value.as_u64().unwrap_or(0)
}

/// A value of an answer as a word; `-` if there is none.
pub(crate) fn string(value: &Value) -> String {
    value
        .as_str()
        .map_or_else(|| if value.is_null() { "-".to_owned() } else { value.to_string() }, str::to_owned)
}

/// Formats the share of read extents that came without the origin.
pub(crate) fn hit_ratio(extents: &Value) -> String {
    let n = |name: &str| number(&extents[name]);
    let (read, hits, ahead) = (n("read"), n("hits"), n("read_ahead"));
    if read == 0 {
        return "no reads yet".to_owned();
    }
    format!(
        "{} of {} extents read; {} more were prefetched",
        share(hits, read),
        count(read),
        share(ahead, read)
    )
}

/// Names and values, two columns.
pub(crate) fn pairs(out: &mut dyn Write, rows: &[(&str, String)]) -> io::Result<()> {
    let width = rows.iter().map(|(name, _)| name.chars().count()).max().unwrap_or(0);
    for (name, value) in rows {
        writeln!(out, "  {name:width$}  {}", clean(value))?;
    }
    Ok(())
}

/// Rows under a heading; the first column is left-aligned, the others right-aligned.
pub(crate) fn table(out: &mut dyn Write, heading: &[&str], rows: &[Vec<String>]) -> io::Result<()> {
    let mut widths: Vec<usize> = heading.iter().map(|cell| cell.chars().count()).collect();
    for row in rows {
        for (width, cell) in widths.iter_mut().zip(row) {
            *width = (*width).max(cell.chars().count());
        }
    }
    let heading: Vec<String> = heading.iter().map(|&cell| cell.to_owned()).collect();
    for row in std::iter::once(&heading).chain(rows) {
        let mut line = String::from("  ");
        for (column, (cell, width)) in row.iter().zip(&widths).enumerate() {
            let width = *width;
            let cell = clean(cell);
            line += &if column == 0 { format!("{cell:width$}") } else { format!("  {cell:>width$}") };
        }
        writeln!(out, "{}", line.trim_end())?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_align_and_foreign_text_is_harmless() {
        let mut out = Vec::new();
        table(&mut out, &["name", "n"], &[vec!["a\u{1b}[31m".to_owned(), "10".to_owned()]]).unwrap();
        pairs(&mut out, &[("x", "1".to_owned()), ("long", "2".to_owned())]).unwrap();
        assert_eq!(clean_lines("a\u{1b}\nb"), "a\u{fffd}\nb");
        let text = String::from_utf8(out).unwrap();
        assert_eq!(text, "  name     n\n  a\u{fffd}[31m  10\n  x     1\n  long  2\n");
    }
}
