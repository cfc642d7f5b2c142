//! Results of a sweep, in memory and in a CSV file.
//!
//! Invariants: the file always is a header and whole rows, but for a last row that was cut off, which is dropped.
//! Values have no commas, so nothing is quoted.

use std::fs::{File, OpenOptions};
use std::io::Write as _;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, bail};
use serde_json::{Map, Value, json};
use zc_replay::cache::Report;

use super::plan::Point;

const RESULTS: [&str; 22] = [
    "requests",
    "unit_bytes",
    "cache_percent_of_volumes",
    "cache_percent_of_footprint",
    "read_extents",
    "read_hits",
    "read_hit_ratio",
    "read_hit_ratio_with_read_ahead",
    "insert_stored",
    "dedup_hits",
    "evictions",
    "ssd_bytes_written",
    "weu_bytes_written",
    "weu_bytes_padding",
    "ssd_bytes_read",
    "ssd_reads",
    "ssd_pages_per_hit",
    "dedup_ratio",
    "compression_ratio",
    "origin_read_bytes",
    "origin_write_bytes",
    "manager_ram_bytes",
];
/// Columns that a model of an SSD adds.
const OF_FLASH: [&str; 4] = ["flash_pages_written", "flash_pages_copied", "write_amplification", "erasures"];

/// One combination with its results.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Row {
    values: Vec<String>,
    results: Vec<f64>,
}

fn percent(part: u64, whole: u64) -> f64 {
    if whole == 0 { 0.0 } else { part as f64 * 100.0 / whole as f64 }
}

impl Row {
    pub(super) fn new(point: &Point, report: &Report) -> Self {
        let stats = &report.stats;
        let ram: u64 = report.manager_ram.iter().map(|(_, bytes)| bytes).sum();
        let results: [f64; RESULTS.len()] = [
            report.requests as f64,
            report.unit_bytes() as f64,
            percent(report.unit_bytes(), report.volume_bytes),
            percent(report.unit_bytes(), report.footprint_bytes),
            report.read_extents() as f64,
            report.read_hits() as f64,
            report.read_hit_ratio(),
            report.read_hit_ratio_with_ahead(),
            stats.insert_stored as f64,
            report.dedup_hits() as f64,
            stats.evictions as f64,
            report.ssd_bytes_written() as f64,
            stats.weu_bytes_written as f64,
            stats.weu_bytes_padding as f64,
            stats.device_read_bytes as f64,
            stats.device_reads as f64,
            report.ssd_pages_per_hit(),
            report.dedup_ratio(),
            report.compression_ratio(),
            report.origin.reads.bytes as f64,
            report.origin.writes.bytes as f64,
            ram as f64,
        ];
        let flash = report.flash.as_ref().map(|flash| -> [f64; OF_FLASH.len()] {
            let (written, copied) = (flash.host_writes as f64, flash.copies as f64);
            [written, copied, flash.write_amplification(), flash.erasures as f64]
        });
        let results = results.into_iter().chain(flash.into_iter().flatten()).collect();
        Self { values: point.values.clone(), results }
    }

    fn to_line(&self, identity: &str) -> String {
        let results = self.results.iter().map(ToString::to_string);
        let fields: Vec<String> = self.values.iter().cloned().chain(results).collect();
        format!("{identity},{}\n", fields.join(","))
    }

    fn parse(line: &str, keys: usize, columns: usize) -> Option<(String, Self)> {
        let mut fields = line.split(',').map(str::to_owned);
        let identity = fields.next()?;
        let values: Vec<String> = fields.by_ref().take(keys).collect();
        let results: Vec<f64> = fields.map(|field| field.parse().ok()).collect::<Option<_>>()?;
        (results.len() == columns).then_some((identity, Self { values, results }))
    }
}

/// Results so far.
#[derive(Debug)]
pub(super) struct Table {
    keys: Vec<String>,
    columns: Vec<&'static str>,
    identity: String,
    rows: Vec<Row>,
    /// Rows of other sweeps in the file; they stay.
    foreign: Vec<String>,
    file: Option<(PathBuf, File)>,
}

fn columns(with_ssd: bool) -> Vec<&'static str> {
    if with_ssd { [&RESULTS[..], &OF_FLASH].concat() } else { RESULTS.to_vec() }
}

fn header(keys: &[String], columns: &[&str]) -> String {
    format!("sweep,{},{}\n", keys.join(","), columns.join(","))
}

impl Table {
    /// Opens a table: empty, or with the rows of this sweep in the file; with the columns of an SSD model if used.
    pub(super) fn open(
        path: Option<&Path>,
        keys: Vec<String>,
        identity: String,
        with_ssd: bool,
    ) -> anyhow::Result<Self> {
        let columns = columns(with_ssd);
        let mut table = Self { keys, columns, identity, rows: Vec::new(), foreign: Vec::new(), file: None };
        let Some(path) = path else { return Ok(table) };
        let shown = || path.display().to_string();
        let text =
            if path.exists() { std::fs::read_to_string(path).with_context(shown)? } else { String::new() };
        table.take(&text).with_context(shown)?;
        // Rewritten, because the last row may have been truncated.
        std::fs::write(path, table.text()).with_context(shown)?;
        let file = OpenOptions::new().append(true).open(path).with_context(shown)?;
        table.file = Some((path.to_owned(), file));
        Ok(table)
    }

    fn take(&mut self, text: &str) -> anyhow::Result<()> {
        if text.is_empty() {
            return Ok(());
        }
        let Some(rest) = text.strip_prefix(&header(&self.keys, &self.columns)) else {
            bail!(
                "this holds something else than a sweep over {} with the same columns; it is left alone",
                self.keys.join(", ")
            );
        };
        for line in rest.split_inclusive('\n').filter(|line| line.ends_with('\n')) {
            match Row::parse(line.trim_end(), self.keys.len(), self.columns.len()) {
                Some((identity, row)) if identity == self.identity => self.rows.push(row),
                Some(_) => self.foreign.push(line.to_owned()),
                None => bail!("\"{}\" is no row of a sweep; the file is left alone", line.trim_end()),
            }
        }
        Ok(())
    }

    fn text(&self) -> String {
        let ours: String = self.rows.iter().map(|row| row.to_line(&self.identity)).collect();
        header(&self.keys, &self.columns) + &self.foreign.concat() + &ours
    }

    /// Returns `true` if this combination is done.
    pub(super) fn has(&self, point: &Point) -> bool {
        self.rows.iter().any(|row| row.values == point.values)
    }

    pub(super) fn add(&mut self, row: Row) -> anyhow::Result<()> {
        if let Some((path, file)) = &mut self.file {
            let line = row.to_line(&self.identity);
            file.write_all(line.as_bytes()).with_context(|| path.display().to_string())?;
        }
        self.rows.push(row);
        Ok(())
    }

    /// Puts the rows of these combinations in order; others of the same sweep stay in the file, behind them.
    pub(super) fn finish(mut self, points: &[Point]) -> anyhow::Result<Self> {
        let place = |row: &Row| points.iter().position(|point| point.values == row.values);
        self.rows.sort_by_key(|row| place(row).unwrap_or(usize::MAX));
        if let Some((path, _)) = self.file.take() {
            let new = path.with_added_extension("new");
            std::fs::write(&new, self.text()).with_context(|| new.display().to_string())?;
            std::fs::rename(&new, &path).with_context(|| path.display().to_string())?;
        }
        self.rows.retain(|row| place(row).is_some());
        self.foreign.clear();
        Ok(self)
    }

    pub(super) fn to_csv(&self) -> String {
        self.text()
    }

    pub(super) fn to_json(&self) -> String {
        let object = |row: &Row| {
            let values = self.keys.iter().zip(&row.values).map(|(key, value)| (key.clone(), json!(value)));
            let results =
                self.columns.iter().zip(&row.results).map(|(name, value)| ((*name).to_owned(), json!(value)));
            Value::Object(values.chain(results).collect::<Map<_, _>>())
        };
        format!("{:#}\n", Value::Array(self.rows.iter().map(object).collect()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use zc_replay::cache::CacheSize;

    fn point(value: &str) -> Point {
        Point { values: vec![value.to_owned()], settings: Vec::new(), size: CacheSize::Configured }
    }

    fn row(value: &str) -> Row {
        Row { values: vec![value.to_owned()], results: vec![0.25; RESULTS.len()] }
    }

    fn open(path: &Path, identity: &str) -> anyhow::Result<Table> {
        Table::open(Some(path), vec!["a.b".to_owned()], identity.to_owned(), false)
    }

    #[test]
    fn a_sweep_that_was_cut_off_goes_on() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("out.csv");
        let mut table = open(&path, "one").unwrap();
        table.add(row("2")).unwrap();
        table.add(row("9")).unwrap();
        drop(table);
        // The last row is cut.
        let text = std::fs::read_to_string(&path).unwrap();
        std::fs::write(&path, &text[..text.len() - 5]).unwrap();
        let mut table = open(&path, "one").unwrap();
        assert!(table.has(&point("2")) && !table.has(&point("9")));
        table.add(row("1")).unwrap();
        let table = table.finish(&[point("1"), point("2")]).unwrap();
        assert_eq!(table.rows, [row("1"), row("2")]);
        assert_eq!(std::fs::read_to_string(&path).unwrap(), table.to_csv());
        // Another configuration computes its own rows and leaves these.
        let mut other = open(&path, "two").unwrap();
        assert!(!other.has(&point("1")));
        other.add(row("1")).unwrap();
        other.finish(&[point("1")]).unwrap();
        assert_eq!(std::fs::read_to_string(&path).unwrap().lines().count(), 4);
    }

    #[test]
    fn a_file_of_another_kind_is_left_alone() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("out.csv");
        for text in ["my notes\n".to_owned(), format!("{}rubbish\n", header(&["a.b".to_owned()], &RESULTS))] {
            std::fs::write(&path, &text).unwrap();
            assert!(
                open(&path, "one").unwrap_err().chain().any(|cause| cause.to_string().contains("left alone"))
            );
            assert_eq!(std::fs::read_to_string(&path).unwrap(), text);
        }
    }

    #[test]
    fn json_names_keys_and_results() {
        let mut table = Table::open(None, vec!["a.b".to_owned()], "one".to_owned(), false).unwrap();
        table.add(row("1")).unwrap();
        let parsed: Value = serde_json::from_str(&table.finish(&[point("1")]).unwrap().to_json()).unwrap();
        assert_eq!((&parsed[0]["a.b"], &parsed[0]["read_hit_ratio"]), (&json!("1"), &json!(0.25)));
    }

    #[test]
    fn columns_of_the_ssd_are_kept_and_not_mixed_with_others() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("out.csv");
        let with_ssd = || Table::open(Some(&path), vec!["a.b".to_owned()], "one".to_owned(), true);
        let results = vec![0.5; RESULTS.len() + OF_FLASH.len()];
        with_ssd().unwrap().add(Row { results, ..row("1") }).unwrap();
        let again = with_ssd().unwrap();
        assert!(again.has(&point("1")));
        let parsed: Value = serde_json::from_str(&again.to_json()).unwrap();
        assert_eq!(parsed[0]["erasures"], json!(0.5));
        open(&path, "one").unwrap_err();
    }
}
