//! Bar charts of a quickstart's results, as text.
//!
//! Invariant: the bars of one chart have one scale, which ends with the longest bar. Every non-zero value has a bar.

use std::io::Write;

use zc_core::{u64_from_usize, usize_from_u64};

use super::report::{Line, size};

/// Length of the longest bar, in characters.
const BAR_CHARACTERS: usize = 40;

/// Chart of the volumes' size, and of the bytes in the store and on the cache device, all in bytes.
pub(crate) fn room(
    shown_bytes: u64,
    stored_bytes: u64,
    ssd_bytes: u64,
    out: &mut dyn Write,
) -> anyhow::Result<()> {
    let rows = [("volumes show", shown_bytes), ("store takes", stored_bytes), ("cache takes", ssd_bytes)];
    writeln!(out, "\n  Space of both volumes together:\n")?;
    bars(&rows.map(|(name, bytes)| (name, bytes, size(bytes))), out)
}

/// Chart of the throughput of each pass.
pub(crate) fn speed(lines: &[Line], out: &mut dyn Write) -> anyhow::Result<()> {
    let rows: Vec<_> = lines
        .iter()
        .map(|line| (line.phase.name(), line.bytes_per_s(), format!("{}/s", size(line.bytes_per_s()))))
        .collect();
    writeln!(out, "\n  Speed of each pass:\n")?;
    bars(&rows, out)
}

/// Chart of the requests per second of each pass.
pub(crate) fn reads(lines: &[Line], out: &mut dyn Write) -> anyhow::Result<()> {
    let rows: Vec<_> = lines
        .iter()
        .map(|line| (line.phase.name(), line.requests_per_s(), format!("{}/s", line.requests_per_s())))
        .collect();
    writeln!(out, "\n  Reads a second:\n")?;
    bars(&rows, out)
}

/// Rows of name, value, and the value in words.
fn bars(rows: &[(&str, u64, String)], out: &mut dyn Write) -> anyhow::Result<()> {
    let largest = rows.iter().map(|(_, value, _)| *value).max().unwrap_or(0).max(1);
    for (name, value, words) in rows {
        let characters = value.saturating_mul(u64_from_usize(BAR_CHARACTERS)).div_ceil(largest);
        let bar = "#".repeat(usize_from_u64(characters));
        writeln!(out, "  {name:18} {bar:BAR_CHARACTERS$} {words:>12}")?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bars_are_as_long_as_their_values() {
        let mut out = Vec::new();
        room(4 << 20, 2 << 20, 1, &mut out).unwrap();
        let text = String::from_utf8(out).unwrap();
        let length = |name: &str| {
            let line = text.lines().find(|line| line.contains(name)).unwrap();
            line.matches('#').count()
        };
        assert_eq!(["volumes show", "store takes", "cache takes"].map(length), [40, 20, 1], "{text}");
        let mut nothing = Vec::new();
        room(0, 0, 0, &mut nothing).unwrap();
        assert!(!String::from_utf8(nothing).unwrap().contains('#'));
    }
}
