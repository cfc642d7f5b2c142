//! Telling the format of a trace by what it begins with.

use crate::format::{Format, NAMES};
use crate::limits::PEEK_LINES;
use crate::text::{Parsed, TextParser};

/// Tells the format from the beginning of a trace: the one in which most of the first lines make sense, if nine in
/// ten do.
pub(crate) fn detect(head: &[u8]) -> Option<Format> {
    if head.starts_with(&zc_recording::MAGIC) {
        return Some(Format::Recording);
    }
    if looks_like_vscsi(head) {
        return Some(Format::Vscsi);
    }
    let text = &head[..head.iter().rposition(|byte| *byte == b'\n').unwrap_or(head.len())];
    let lines: Vec<&[u8]> = text.split(|byte| *byte == b'\n').take(PEEK_LINES).collect();
    let score = |format: Format| {
        let mut parser = TextParser::new(format);
        let parsed: Vec<Parsed> = lines.iter().map(|line| parser.parse(line)).collect();
        let good = parsed.iter().filter(|parsed| matches!(parsed, Ok(Some(_)))).count();
        let bad = parsed.iter().filter(|parsed| parsed.is_err()).count();
        (good > 0 && bad * 10 <= parsed.len()).then_some(good)
    };
    let scored = NAMES.iter().filter(|(format, _)| format.is_text());
    let best = scored.filter_map(|(format, _)| Some((score(*format)?, *format)));
    best.max_by_key(|(good, _)| *good).map(|(_, format)| format)
}

/// Whether the first records are SCSI reads and writes of whole blocks.
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn noise_has_no_format() {
        assert_eq!(detect(b""), None);
        assert_eq!(detect(b"\x00\xff\x12garbage\n\x03"), None);
        assert_eq!(detect(&[0; 4096]), None);
    }
}
