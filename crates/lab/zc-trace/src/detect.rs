//! Detection of a trace's format from its first bytes.

use crate::format::{Format, NAMES};
use crate::limits::PEEK_LINES;
use crate::text::TextParser;
use crate::values::Parsed;

/// Returns the format of a trace by its beginning: the one in which most of the first lines make sense, if nine in ten
/// do. One bad line is allowed among a few.
pub(crate) fn detect(head: &[u8]) -> Option<Format> {
    if head.starts_with(&zc_recording::MAGIC) {
        return Some(Format::Recording);
    }
    if looks_like_vscsi(head) {
        return Some(Format::Vscsi);
    }
    if looks_like_oracle_general(head) {
        return Some(Format::OracleGeneral);
    }
    let text = &head[..head.iter().rposition(|byte| *byte == b'\n').unwrap_or(head.len())];
    let lines: Vec<&[u8]> = text.split(|byte| *byte == b'\n').take(PEEK_LINES).collect();
    let score = |format: Format| {
        let mut parser = TextParser::new(format, false);
        let parsed: Vec<Parsed> = lines.iter().map(|line| parser.parse(line)).collect();
        let good = parsed.iter().filter(|parsed| matches!(parsed, Ok(Some(_)))).count();
        let bad = parsed.iter().filter(|parsed| parsed.is_err()).count();
        (good > bad && bad <= (parsed.len() / 10).max(1)).then_some(good)
    };
    let scored = NAMES.iter().filter(|(format, _)| format.is_text());
    let best = scored.filter_map(|(format, _)| Some((score(*format)?, *format)));
    best.max_by_key(|(good, _)| *good).map(|(_, format)| format)
}

/// Returns `true` if the first records are SCSI reads and writes of whole blocks.
fn looks_like_vscsi(head: &[u8]) -> bool {
    let (records, _) = head.as_chunks::<32>();
    let sane = |record: &[u8; 32]| {
        let len = u32::from_le_bytes([record[4], record[5], record[6], record[7]]);
        let command = u16::from_le_bytes([record[12], record[13]]);
        len.is_multiple_of(512) && [0x08, 0x0a, 0x28, 0x2a, 0x88, 0x8a].contains(&command)
    };
    let tried = records.len().min(PEEK_LINES);
    let good = records[..tried].iter().filter(|record| sane(record)).count();
    tried > 0 && good * 10 >= tried * 9
}

/// Returns `true` if the first records name a next use that comes later, or none, as libCacheSim's oracleGeneral does.
fn looks_like_oracle_general(head: &[u8]) -> bool {
    /// Requests of the longest trace that is recognised.
    const REQUESTS_MAX: i64 = 1 << 40;
    let (records, _) = head.as_chunks::<24>();
    let sane = |(index, record): (usize, &[u8; 24])| {
        let size = u32::from_le_bytes([record[12], record[13], record[14], record[15]]);
        let mut next = [0; 8];
        next.copy_from_slice(&record[16..]);
        let next = i64::from_le_bytes(next);
        let later = next <= REQUESTS_MAX && i64::try_from(index).is_ok_and(|index| next > index);
        size > 0 && (later || next == -1 || next == i64::MAX)
    };
    let tried = records.len().min(PEEK_LINES);
    tried > 0 && records.iter().take(tried).enumerate().all(sane)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn few_lines_behind_a_header_are_recognised() {
        let lines = "128166372003061629,usr,1,Read,7014609920,24576,41286\n".repeat(4);
        for header in
            ["Timestamp,Hostname,DiskNumber,Type,Offset,Size,ResponseTime\n", "\u{feff}a,b\n", "rubbish 5\n"]
        {
            assert_eq!(detect(format!("{header}{lines}").as_bytes()), Some(Format::Msr), "{header}");
        }
        let quoted: String =
            lines.lines().map(|line| format!("\"{}\"\n", line.replace(',', "\",\""))).collect();
        assert_eq!(detect(quoted.as_bytes()), Some(Format::Msr));
        let events = "  8,16 5 2 0.000001850 18615 Q RA 1444645666 + 256 [java]\n";
        let names = "Input file sda.blktrace.0 added\nInput file sda.blktrace.1 added\n";
        assert_eq!(detect(format!("{names}{events}").as_bytes()), Some(Format::Blkparse));
        assert_eq!(
            detect(b"fio version 3 iolog\n16 /f add\n208 /f read 57344 8192\n"),
            Some(Format::FioIolog)
        );
    }

    #[test]
    fn noise_has_no_format() {
        assert_eq!(detect(b""), None);
        assert_eq!(detect(b"\x00\xff\x12garbage\n\x03"), None);
        assert_eq!(detect(&[0; 4096]), None);
    }
}
