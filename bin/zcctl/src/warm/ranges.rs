//! Ranges of a volume from the command line, a file, or a recording.
//!
//! Job: parse them, and truncate them to the budget of the cache. Invariants: the order is that of importance; ranges
//! lie in the volume. It does not contact the daemon.

use std::cmp::Reverse;
use std::fs::File;
use std::io::BufReader;
use std::ops::Range;
use std::path::Path;

use anyhow::{Context as _, bail};
use zc_core::Map;
use zc_core::units::{ByteSpan, Unreadable};
use zc_recording::{Asked, Decoder, Share};

use crate::units::size;

fn of(span: ByteSpan, volume_bytes: u64) -> anyhow::Result<Range<u64>> {
    let end = span.end_bytes.unwrap_or(volume_bytes);
    if span.start_bytes >= end || end > volume_bytes {
        bail!("the range {span} is not in the volume, which has {volume_bytes} bytes");
    }
    Ok(span.start_bytes..end)
}

/// Reads the ranges of a file, one per line, except empty lines and those that begin with `#`.
pub(crate) fn of_file(path: &Path) -> anyhow::Result<Vec<ByteSpan>> {
    let text =
        std::fs::read_to_string(path).with_context(|| format!("cannot read the file {}", path.display()))?;
    of_lines(&text).with_context(|| format!("in {}", path.display()))
}

fn of_lines(text: &str) -> anyhow::Result<Vec<ByteSpan>> {
    let lines = (1..).zip(text.lines().map(str::trim));
    let meant = lines.filter(|(_, line)| !line.is_empty() && !line.starts_with('#'));
    let read = |(number, line): (u64, &str)| {
        line.parse().map_err(|error: Unreadable| anyhow::anyhow!("line {number}: {error}"))
    };
    meant.map(read).collect()
}

pub(crate) fn in_volume(spans: &[ByteSpan], volume_bytes: u64) -> anyhow::Result<Vec<Range<u64>>> {
    spans.iter().map(|span| of(*span, volume_bytes)).collect()
}

#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct MostRead {
    /// The most-read ranges first, then by address. Neighbours with equal counts are one range.
    pub(crate) ranges: Vec<Range<u64>>,
    /// Damaged blocks, which were left out.
    pub(crate) damaged: u64,
    /// The share of addresses that it has, if that is not all of them.
    pub(crate) share: Option<String>,
}

pub(crate) fn of_recording(path: &Path, volume_bytes: u64) -> anyhow::Result<MostRead> {
    let place = || format!("cannot read the recording {}", path.display());
    let mut input = BufReader::new(File::open(path).with_context(place)?);
    let decoder = Decoder::new(&mut input).with_context(place)?;
    let mut decoder =
        decoder.map_err(|why| anyhow::anyhow!("{} is not a recording: {why}", path.display()))?;
    let header = *decoder.header();
    if header.volume_bytes > volume_bytes {
        bail!(
            "{} is a recording of another volume: that has {}, this one {}",
            path.display(),
            size(header.volume_bytes),
            size(volume_bytes)
        );
    }
    let extent_bytes = u64::from(header.extent_bytes);
    let mut counts: Map<u64, u64> = Map::default();
    let mut damaged = 0;
    while let Some(run) = decoder.next(&mut input).with_context(place)? {
        match run {
            Ok(run) if run.asked == Asked::Read && run.len_bytes > 0 => {
                let end = run.offset_bytes.saturating_add(run.len_bytes).min(header.volume_bytes);
                for extent in run.offset_bytes / extent_bytes..end.div_ceil(extent_bytes) {
                    *counts.entry(extent).or_insert(0) += 1;
                }
            }
            Ok(_) => {}
            Err(_) => damaged += 1,
        }
    }
    let is_whole = header.share == Share::WHOLE;
    Ok(MostRead {
        ranges: most_read(counts, extent_bytes, volume_bytes),
        damaged,
        share: (!is_whole).then(|| header.share.to_string()),
    })
}

/// Extents in the order of how often they were read, neighbours joined.
fn most_read(counts: Map<u64, u64>, extent_bytes: u64, volume_bytes: u64) -> Vec<Range<u64>> {
    let mut extents: Vec<(u64, u64)> = counts.into_iter().collect();
    extents.sort_unstable_by_key(|(extent, count)| (Reverse(*count), *extent));
    let mut ranges: Vec<Range<u64>> = Vec::new();
    let mut last_count = 0;
    for (extent, count) in extents {
        let bytes = extent * extent_bytes..((extent + 1) * extent_bytes).min(volume_bytes);
        match ranges.last_mut() {
            Some(last) if count == last_count && last.end == bytes.start => last.end = bytes.end,
            _ => ranges.push(bytes),
        }
        last_count = count;
    }
    ranges
}

/// Truncates the ranges to `max_bytes` in total; returns their original total.
pub(crate) fn cut(ranges: &mut Vec<Range<u64>>, max_bytes: u64) -> u64 {
    let all_bytes = ranges.iter().fold(0_u64, |sum, range| sum.saturating_add(range.end - range.start));
    let mut left_bytes = max_bytes;
    for range in ranges.iter_mut() {
        range.end = range.end.min(range.start.saturating_add(left_bytes));
        left_bytes -= range.end - range.start;
    }
    ranges.retain(|range| !range.is_empty());
    all_bytes
}

#[cfg(test)]
mod tests {
    use zc_recording::{End, Ended, Header, Record, Writer};

    use super::*;

    #[test]
    fn a_file_has_one_range_a_line() {
        let spans = of_lines("# hot\n\n 0-8192\n1MiB-\n").unwrap();
        assert_eq!(in_volume(&spans, 2 << 20).unwrap(), [0..8192, 1 << 20..2 << 20]);
        let error = of_lines("0-8192\nnonsense\n").unwrap_err().to_string();
        assert!(error.starts_with("line 2: "), "{error}");
        assert!(in_volume(&spans, 1 << 20).is_err(), "outside");
    }

    #[test]
    fn a_recording_gives_the_most_read_first() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("trace");
        let header = Header { extent_bytes: 8192, volume_bytes: 1 << 20, share: Share::WHOLE, began_s: 0 };
        let mut writer = Writer::new(Vec::new(), &header).unwrap();
        let reads = [(0, 16384), (8192, 8192), (81920, 4096), (90112, 512), (16384, 512), (0, 512)];
        for (number, (offset_bytes, len_bytes)) in (1..).zip(reads) {
            let asked = if offset_bytes == 16384 { Asked::Write } else { Asked::Read };
            let record = Record { time_ns: number, asked, offset_bytes, len_bytes, known: Vec::new() };
            writer.add(&record).unwrap();
        }
        let end = End { why: Ended::Asked, requests: 6, lost: 0, known: 0, duration_ns: 9 };
        std::fs::write(&path, writer.finish(&end).unwrap()).unwrap();
        let most = of_recording(&path, 1 << 20).unwrap();
        // Two extents were read twice, two that are neighbours once; the write is none.
        assert_eq!(most.ranges, [0..16384, 81920..98304]);
        assert_eq!((most.damaged, most.share), (0, None));
        assert!(of_recording(&path, 1 << 19).unwrap_err().to_string().contains("another volume"));
    }

    #[test]
    fn ranges_are_cut_to_a_bound() {
        let mut ranges = vec![0..100, 500..600, 900..1000];
        assert_eq!(cut(&mut ranges, 150), 300);
        assert_eq!(ranges, [0..100, 500..550]);
        assert_eq!(cut(&mut ranges, u64::MAX), 150);
    }
}
