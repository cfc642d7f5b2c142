//! Tables for programs: selected columns, one word per cell.
//!
//! Invariants: a cell has no white space and is never empty, so that `awk` counts fields correctly: `-` stands for no
//! value, and characters that a word cannot have are written as `\NNN` in octal, as in `/proc/mounts`. Names of
//! columns are stable.
//!
//! Out of scope: tables for people, which are `text`.

use std::io::Write;

use anyhow::bail;
use serde_json::Value;

use crate::options::Listing;
use crate::units::{share, size};

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Cell {
    /// A text, or nothing.
    Text(Option<String>),
    Count(u64),
    Bytes(u64),
    /// A time in milliseconds.
    Millis(u64),
    /// A part of a whole.
    Share(u64, u64),
}

impl Cell {
    /// The text, number or `null` of an answer.
    pub(crate) fn of(value: &Value) -> Self {
        match value {
            Value::Number(number) => Self::Text(Some(number.to_string())),
            other => Self::Text(other.as_str().map(str::to_owned)),
        }
    }

    fn word(&self, exact: bool) -> String {
        match self {
            Self::Text(text) => word(text.as_deref().unwrap_or("")),
            Self::Count(number) => number.to_string(),
            Self::Bytes(bytes) if exact => bytes.to_string(),
            Self::Bytes(bytes) => size(*bytes).replace(' ', ""),
            Self::Millis(ms) if exact => ms.to_string(),
            Self::Millis(ms) => format!("{}.{}s", ms / 1000, ms % 1000 / 100),
            Self::Share(part, whole) => share(*part, *whole).replace(' ', ""),
        }
    }
}

fn word(text: &str) -> String {
    if text.is_empty() {
        return "-".to_owned();
    }
    let mut out = String::new();
    for c in text.chars() {
        if c.is_whitespace() || c.is_control() || c == '\\' {
            let mut bytes = [0; 4];
            c.encode_utf8(&mut bytes).bytes().for_each(|byte| out.push_str(&format!("\\{byte:03o}")));
        } else {
            out.push(c);
        }
    }
    out
}

/// A column: its name, and its cell of a row.
pub(crate) type Column<'a, Row> = (&'static str, &'a dyn Fn(&Row) -> Cell);

/// Prints the rows with the requested columns, or all columns.
///
/// # Errors
/// When a column does not exist, or the output fails.
pub(crate) fn print<Row>(
    columns: &[Column<'_, Row>],
    rows: &[Row],
    listing: &Listing,
    out: &mut dyn Write,
) -> anyhow::Result<()> {
    let mut chosen: Vec<&Column<'_, Row>> = Vec::new();
    for name in &listing.columns {
        let Some(column) = columns.iter().find(|(known, _)| known == name) else {
            let known: Vec<&str> = columns.iter().map(|(name, _)| *name).collect();
            bail!("there is no column \"{}\"; there are {}", crate::text::clean(name), known.join(", "));
        };
        chosen.push(column);
    }
    if chosen.is_empty() {
        chosen.extend(columns);
    }
    let cells = |row: &Row| chosen.iter().map(|(_, of)| of(row).word(listing.bytes)).collect::<Vec<_>>();
    let mut lines: Vec<Vec<String>> = rows.iter().map(cells).collect();
    if listing.no_headings {
        for line in lines {
            writeln!(out, "{}", line.join("\t"))?;
        }
        return Ok(());
    }
    lines.insert(0, chosen.iter().map(|(name, _)| (*name).to_owned()).collect());
    let width = |column: usize| lines.iter().map(|line| line[column].chars().count()).max().unwrap_or(0);
    let widths: Vec<usize> = (0..chosen.len()).map(width).collect();
    for line in &lines {
        let padded = line.iter().zip(&widths).map(|(cell, width)| format!("{cell:width$}"));
        writeln!(out, "{}", padded.collect::<Vec<_>>().join("  ").trim_end())?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn printed(listing: &Listing) -> anyhow::Result<String> {
        let rows = [("a b", 3_u64 << 20), ("", 1500)];
        let columns: [Column<'_, (&str, u64)>; 3] = [
            ("name", &|row| Cell::Text(Some(row.0.to_owned()))),
            ("size", &|row| Cell::Bytes(row.1)),
            ("age", &|row| Cell::Millis(row.1)),
        ];
        let mut out = Vec::new();
        print(&columns, &rows, listing, &mut out)?;
        Ok(String::from_utf8(out)?)
    }

    #[test]
    fn cells_are_words() {
        let all = printed(&Listing::default()).unwrap();
        assert_eq!(all, "name    size    age\na\\040b  3.0MiB  3145.7s\n-       1.4KiB  1.5s\n");
        let columns = vec!["size".to_owned(), "name".to_owned()];
        let exact = Listing { columns, no_headings: true, bytes: true };
        assert_eq!(printed(&exact).unwrap(), "3145728\ta\\040b\n1500\t-\n");
        assert_eq!(Cell::Share(1, 3).word(false), "33.3%");
        assert_eq!(Cell::Share(0, 0).word(true), "-");
        assert_eq!(word("a\\\u{a0}\n"), "a\\134\\302\\240\\012");
    }

    #[test]
    fn an_unknown_column_is_refused_with_those_that_there_are() {
        let wrong = Listing { columns: vec!["nam".to_owned()], ..Listing::default() };
        let refusal = printed(&wrong).unwrap_err().to_string();
        assert!(refusal.contains("\"nam\"") && refusal.contains("name, size, age"), "{refusal}");
    }
}
