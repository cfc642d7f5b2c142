//! Lines of the text formats.
//!
//! Invariants: arithmetic on a line's values is checked; an overflow is a bad line.

use std::collections::VecDeque;

use crate::blkparse::Blkparse;
use crate::fields::{Fields, is_header, seconds, whole};
use crate::fiu;
use crate::format::Format;
use crate::iolog::Iolog;
use crate::request::{Content, Op, Request, hash};
use crate::values::{MINOR_BITS, MINOR_MASK, Parsed, SECTOR, device_number, request, times};

/// Bytes that a key of a key stream represents: such streams have pages, not sizes.
const KEY_BYTES: u64 = 4096;
/// Parses lines of one format.
#[derive(Debug)]
pub(crate) struct TextParser {
    format: Format,
    /// Lines with content so far.
    lines: u64,
    /// Remaining pieces of the last line's request.
    pieces: VecDeque<Request>,
    joiner: fiu::Joiner,
    disk_sim_unit: DiskSimUnit,
    blkparse: Blkparse,
    iolog: Iolog,
}

/// R or W, in words of any length.
fn op(word: &str) -> Result<Op, &'static str> {
    match word.bytes().next() {
        Some(b'R' | b'r') => Ok(Op::Read),
        Some(b'W' | b'w') => Ok(Op::Write),
        _ => Err("an operation is neither a read nor a write"),
    }
}

fn fingerprints(fields: &mut Fields<'_>) -> Parsed {
    let (time, lba, sectors) = (fields.number()?, fields.number()?, fields.number()?);
    let word = fields.text()?;
    let fingerprint = fields.text()?;
    let (lz4_bytes, zstd1_bytes) = (fields.size()?, fields.size()?);
    if word == "F" {
        return request(time, 0, Op::Flush, 0, 0).map(Some);
    }
    let content = Content { fingerprint: hash(fingerprint)?, lz4_bytes, zstd1_bytes };
    let found = request(time, 0, op(word)?, times(lba, SECTOR)?, times(sectors, SECTOR)?)?;
    Ok(Some(Request { content: Some(content), ..found }))
}

fn fiu(fields: &mut Fields<'_>, joiner: &mut fiu::Joiner) -> Result<VecDeque<Request>, &'static str> {
    let (time, process) = (fields.number()?, fields.number()?);
    fields.skip(1)?;
    let (lba, sectors) = (fields.number()?, fields.number()?);
    let op = op(fields.text()?)?;
    let (major, minor) = (fields.number()?, fields.number()?);
    let fingerprints = fields.text()?;
    let device = device_number(major, minor)?;
    let found = request(time, device, op, times(lba, SECTOR)?, times(sectors, SECTOR)?)?;
    let mut pieces = fiu::pieces(found, fingerprints)?;
    joiner.join(process, &mut pieces);
    Ok(pieces.into())
}

fn msr(fields: &mut Fields<'_>) -> Parsed {
    let ticks = fields.number()?;
    fields.skip(1)?;
    let device = fields.number()?;
    let op = op(fields.text()?)?;
    let (offset, len) = (fields.number()?, fields.number()?);
    fields.number()?;
    // Windows' clock counts from 1601 in units of 100 ns: in nanoseconds it is within 64 bits.
    request(times(ticks, 100)?, device, op, offset, len).map(Some)
}

/// Parses SPC lines, which may have additional fields after the five. A time without a decimal point and digits after
/// it, at the end of the line, are one time: its decimal comma looks like a separator.
fn spc(fields: &mut Fields<'_>) -> Parsed {
    let (unit, lba, len) = (fields.number()?, fields.number()?, fields.number()?);
    let op = op(fields.text()?)?;
    let time = fields.text()?;
    let is_whole = |text: &&str| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    let time_ns = match (Some(time).filter(is_whole), fields.next().filter(is_whole), fields.next()) {
        (Some(whole), Some(fraction), None) => seconds(&format!("{whole}.{fraction}"))?,
        _ => seconds(time)?,
    };
    request(time_ns, unit, op, times(lba, SECTOR)?, len).map(Some)
}

fn alibaba(fields: &mut Fields<'_>) -> Parsed {
    let device = fields.number()?;
    let op = op(fields.text()?)?;
    let (offset, len, time) = (fields.number()?, fields.number()?, fields.number()?);
    request(times(time, 1000)?, device, op, offset, len).map(Some)
}

fn tencent(fields: &mut Fields<'_>) -> Parsed {
    let (time, offset, len) = (fields.number()?, fields.number()?, fields.number()?);
    let op = match fields.number()? {
        0 => Op::Read,
        1 => Op::Write,
        _ => return Err("an operation is neither a read nor a write"),
    };
    let device = fields.number()?;
    request(times(time, 1_000_000_000)?, device, op, times(offset, SECTOR)?, times(len, SECTOR)?).map(Some)
}

fn cloud_physics(fields: &mut Fields<'_>) -> Parsed {
    let time = fields.number()?;
    let op = op(fields.text()?)?;
    request(times(time, 1000)?, 0, op, fields.number()?, fields.number()?).map(Some)
}

/// Unit of DiskSim's times: milliseconds, or nanoseconds as written by MQSim. The first time of a file that is not 0
/// decides by its decimal point; 0 is the same in both.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
enum DiskSimUnit {
    #[default]
    NotYetKnown,
    Milliseconds,
    Nanoseconds,
}

fn disk_sim(fields: &mut Fields<'_>, unit: &mut DiskSimUnit) -> Parsed {
    let word = fields.text()?;
    let value: f64 = word.parse().map_err(|_| "a field is not a time")?;
    let of_line = match (*unit, value == 0.0) {
        (DiskSimUnit::NotYetKnown, false) if word.contains('.') => DiskSimUnit::Milliseconds,
        (DiskSimUnit::NotYetKnown, false) => DiskSimUnit::Nanoseconds,
        (known, _) => known,
    };
    let time = match (of_line, word.parse::<u64>()) {
        (DiskSimUnit::Milliseconds, _) => whole(value * 1e6)?,
        (_, Ok(time)) => time,
        (_, Err(_)) => whole(value)?,
    };
    let (device, lba, sectors, flags) =
        (fields.number()?, fields.number()?, fields.number()?, fields.number()?);
    let op = if flags & 1 == 1 { Op::Read } else { Op::Write };
    let found = request(time, device, op, times(lba, SECTOR)?, times(sectors, SECTOR)?)?;
    fields.end()?;
    *unit = of_line;
    Ok(Some(found))
}

fn lis(fields: &mut Fields<'_>) -> Parsed {
    let (block, blocks) = (fields.number()?, fields.number()?);
    fields.number()?;
    fields.number()?;
    request(0, 0, Op::Access, times(block, KEY_BYTES)?, times(blocks, KEY_BYTES)?).map(Some)
}

/// A key, as four bytes or as a line.
pub(crate) fn key(key: u64) -> Result<Request, &'static str> {
    request(0, 0, Op::Access, times(key, KEY_BYTES)?, KEY_BYTES)
}

impl TextParser {
    /// A parser of one trace. `keep_stacked` keeps requests of devices below others of the trace.
    pub(crate) fn new(format: Format, keep_stacked: bool) -> Self {
        Self {
            format,
            lines: 0,
            pieces: VecDeque::new(),
            joiner: fiu::Joiner::default(),
            disk_sim_unit: DiskSimUnit::default(),
            blkparse: Blkparse::new(keep_stacked),
            iolog: Iolog::default(),
        }
    }

    /// A further piece of the request of the last line, to be taken before the next line is parsed.
    pub(crate) fn piece(&mut self) -> Option<Request> {
        self.pieces.pop_front()
    }

    /// The name of a device of the requests so far, as the format writes it.
    pub(crate) fn device_name(&self, device: u32) -> String {
        match self.format {
            Format::Blkparse | Format::Fiu => format!("{},{}", device >> MINOR_BITS, device & MINOR_MASK),
            Format::FioIolog => format!("{device} ({})", self.iolog.file(device).unwrap_or("not named")),
            _ => device.to_string(),
        }
    }

    /// Requests of a device below another one of the trace, which are left out.
    pub(crate) fn stacked(&self) -> u64 {
        self.blkparse.stacked()
    }

    pub(crate) fn parse(&mut self, line: &[u8]) -> Parsed {
        let text = str::from_utf8(line).map_err(|_| "a line is not text")?;
        let text = text.trim_start_matches('\u{feff}').trim();
        if text.is_empty() || text.starts_with('#') {
            return Ok(None);
        }
        self.lines += 1;
        let parsed = self.parse_text(text);
        match parsed {
            Err(_) if self.lines == 1 && is_header(text) => Ok(None),
            parsed => parsed,
        }
    }

    fn parse_text(&mut self, text: &str) -> Parsed {
        let mut fields = match self.format {
            Format::Msr | Format::CloudPhysics | Format::Spc | Format::Alibaba | Format::Tencent => {
                Fields::separated(text)
            }
            _ => Fields::words(text),
        };
        let fields = &mut fields;
        let found = match self.format {
            // Text after a range is for people.
            Format::Blkparse => return self.blkparse.parse(fields, text),
            Format::Spc => return spc(fields),
            Format::Keys if text == "*" => return Ok(None),
            Format::Fingerprints => fingerprints(fields),
            Format::Fiu => {
                self.pieces = fiu(fields, &mut self.joiner)?;
                Ok(self.pieces.pop_front())
            }
            Format::Msr => msr(fields),
            Format::CloudPhysics => cloud_physics(fields),
            Format::Alibaba => alibaba(fields),
            Format::Tencent => tencent(fields),
            Format::DiskSim => disk_sim(fields, &mut self.disk_sim_unit),
            Format::FioIolog => self.iolog.parse(fields, text),
            Format::Lis => lis(fields),
            Format::Keys => fields.number().and_then(key).map(Some),
            Format::Vscsi | Format::Keys32 | Format::OracleGeneral | Format::Recording => {
                Err("not a text format")
            }
        }?;
        fields.end().inspect_err(|_| {
            self.pieces.clear();
            self.joiner.forget();
        })?;
        Ok(found)
    }
}

#[cfg(test)]
#[path = "text_tests.rs"]
mod tests;
