//! Lines of the text formats.
//!
//! Invariants: arithmetic on what a line says is checked; what does not fit is a bad line.

use std::collections::VecDeque;

use crate::fiu;
use crate::format::Format;
use crate::limits::ADDRESS_MAX;
use crate::request::{Content, Op, Request, hash};

/// A request, nothing (a header, a comment, an event of another kind), or what is wrong.
pub(crate) type Parsed = Result<Option<Request>, &'static str>;

/// Bytes that a key of a key stream stands for: such streams tell pages apart, not sizes.
const KEY_BYTES: u64 = 4096;
const SECTOR: u64 = zc_core::SECTOR_BYTES as u64;

/// Parses lines of one format.
#[derive(Debug)]
pub(crate) struct TextParser {
    format: Format,
    lines: u64,
    /// What is left of the request of the last line.
    pieces: VecDeque<Request>,
    joiner: fiu::Joiner,
    disk_sim_unit: DiskSimUnit,
}

/// Fields of a line, taken one after the other.
struct Fields<'a> {
    left: &'a mut dyn Iterator<Item = &'a str>,
}

impl<'a> Fields<'a> {
    fn text(&mut self) -> Result<&'a str, &'static str> {
        self.left.next().map(str::trim).ok_or("a field is missing")
    }

    fn number(&mut self) -> Result<u64, &'static str> {
        self.text()?.parse().map_err(|_| "a field is not a whole number")
    }

    /// A size after compression; a dash for one that is not known.
    fn size(&mut self) -> Result<Option<u32>, &'static str> {
        let text = self.text()?;
        if text == "-" {
            return Ok(None);
        }
        let bytes: u64 = text.parse().map_err(|_| "a field is not a whole number")?;
        u32::try_from(bytes).map(Some).map_err(|_| "a compressed size is out of range")
    }

    /// Seconds with a fraction, in units of which a second has `per_second`.
    fn seconds(&mut self, per_second: f64) -> Result<u64, &'static str> {
        let value: f64 = self.text()?.parse().map_err(|_| "a field is not a time")?;
        whole(value * per_second)
    }

    fn skip(&mut self, count: usize) -> Result<(), &'static str> {
        (0..count).try_for_each(|_| self.text().map(drop))
    }

    fn end(&mut self) -> Result<(), &'static str> {
        self.left.next().map_or(Ok(()), |_| Err("there are more fields than expected"))
    }
}

/// A time that was computed with fractions.
fn whole(value: f64) -> Result<u64, &'static str> {
    if !(0.0..9.0e18).contains(&value) {
        return Err("a time is out of range");
    }
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "the range was checked")]
    let whole = value.round() as u64;
    Ok(whole)
}

fn times(value: u64, factor: u64) -> Result<u64, &'static str> {
    value.checked_mul(factor).ok_or("a number is out of range")
}

/// R or W, in words of any length.
fn op(word: &str) -> Result<Op, &'static str> {
    match word.bytes().next() {
        Some(b'R' | b'r') => Ok(Op::Read),
        Some(b'W' | b'w') => Ok(Op::Write),
        _ => Err("an operation is neither a read nor a write"),
    }
}

/// A request, once its numbers are known to be sane.
pub(crate) fn request(
    time_ns: u64,
    device: u64,
    op: Op,
    offset_bytes: u64,
    len_bytes: u64,
) -> Result<Request, &'static str> {
    let device = u32::try_from(device).map_err(|_| "a device number is out of range")?;
    let len_bytes = u32::try_from(len_bytes).map_err(|_| "a length is out of range")?;
    if len_bytes == 0 && op.has_range() {
        return Err("a length is zero");
    }
    if offset_bytes.checked_add(u64::from(len_bytes)).is_none_or(|end| end > ADDRESS_MAX) {
        return Err("an address is out of range");
    }
    Ok(Request::new(time_ns, op, offset_bytes, len_bytes).on(device))
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
    // As Linux packs them: twelve bits of major, twenty of minor.
    let device = times(major, 1 << 20)?.checked_add(minor).ok_or("a device number is out of range")?;
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

fn spc(fields: &mut Fields<'_>) -> Parsed {
    let (unit, lba, len) = (fields.number()?, fields.number()?, fields.number()?);
    let op = op(fields.text()?)?;
    request(fields.seconds(1e9)?, unit, op, times(lba, SECTOR)?, len).map(Some)
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

/// What DiskSim's times are in: milliseconds, or nanoseconds as MQSim writes them. The first time of a file that is not 0
/// decides, as it has a point or not; 0 is the same in both.
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

/// `8,16 5 2 0.000001850 18615 Q R 1444645666 + 256 [java]`: device, CPU, number, time, process, action, kind, range.
fn blkparse(fields: &mut Fields<'_>) -> Parsed {
    let (major, minor) = fields.text()?.split_once(',').ok_or("a device is not MAJOR,MINOR")?;
    let number = |text: &str| text.parse::<u64>().map_err(|_| "a device is not MAJOR,MINOR");
    let device = times(number(major)?, 1 << 20)?
        .checked_add(number(minor)?)
        .ok_or("a device number is out of range")?;
    fields.number()?;
    fields.number()?;
    let time = fields.seconds(1e9)?;
    fields.number()?;
    if fields.text()? != "Q" {
        return Ok(None);
    }
    let kind = fields.text()?;
    let has = |letter: char| kind.contains(letter);
    let op = match kind {
        // A preflush or an operation with data may carry an F as well; alone it is a flush.
        _ if has('R') => Op::Read,
        _ if has('W') => Op::Write,
        _ if has('D') => Op::Discard,
        _ if has('F') => return request(time, device, Op::Flush, 0, 0).map(Some),
        _ => return Ok(None),
    };
    let lba = fields.number()?;
    if fields.text()? != "+" {
        return Err("a range is not START + LENGTH");
    }
    let sectors = fields.number()?;
    if sectors == 0 && has('F') {
        return request(time, device, Op::Flush, 0, 0).map(Some);
    }
    request(time, device, op, times(lba, SECTOR)?, times(sectors, SECTOR)?).map(Some)
}

impl TextParser {
    pub(crate) fn new(format: Format) -> Self {
        let (pieces, joiner) = (VecDeque::new(), fiu::Joiner::default());
        Self { format, lines: 0, pieces, joiner, disk_sim_unit: DiskSimUnit::default() }
    }

    /// A further piece of the request of the last line, to be taken before the next line is parsed.
    pub(crate) fn piece(&mut self) -> Option<Request> {
        self.pieces.pop_front()
    }

    pub(crate) fn parse(&mut self, line: &[u8]) -> Parsed {
        self.lines += 1;
        let text = str::from_utf8(line).map_err(|_| "a line is not text")?.trim();
        if text.is_empty() || text.starts_with('#') {
            return Ok(None);
        }
        let (mut by_comma, mut by_space) = (text.split(','), text.split_ascii_whitespace());
        let mut comma = Fields { left: &mut by_comma };
        let mut space = Fields { left: &mut by_space };
        match self.format {
            Format::CloudPhysics if self.lines == 1 && text.starts_with("ts") => return Ok(None),
            Format::Keys if text == "*" => return Ok(None),
            // What follows a range is for people, and the summary at the end is not of this form.
            Format::Blkparse => return self.blkparse(&mut space, text),
            _ => {}
        }
        let found = match self.format {
            Format::Fingerprints => fingerprints(&mut space),
            Format::Fiu => {
                self.pieces = fiu(&mut space, &mut self.joiner)?;
                Ok(self.pieces.pop_front())
            }
            Format::Msr => msr(&mut comma),
            Format::CloudPhysics => cloud_physics(&mut comma),
            Format::Spc => spc(&mut comma),
            Format::Alibaba => alibaba(&mut comma),
            Format::Tencent => tencent(&mut comma),
            Format::DiskSim => disk_sim(&mut space, &mut self.disk_sim_unit),
            Format::Lis => lis(&mut space),
            Format::Keys => space.number().and_then(key).map(Some),
            Format::Blkparse | Format::Vscsi | Format::Keys32 | Format::Recording => Err("not a text format"),
        }?;
        // SPC allows fields of the writer's own behind its five.
        if self.format != Format::Spc {
            comma_or_space(self.format, &mut comma, &mut space).inspect_err(|_| {
                self.pieces.clear();
                self.joiner.forget();
            })?;
        }
        Ok(found)
    }

    fn blkparse(&self, fields: &mut Fields<'_>, text: &str) -> Parsed {
        let summary =
            ["CPU", "Total", "Throughput", "Events", "Skips", "Reads", "Writes", "Read", "Write", "IO"];
        if !text.starts_with(|c: char| c.is_ascii_digit())
            && summary.iter().any(|word| text.starts_with(word))
        {
            return Ok(None);
        }
        blkparse(fields)
    }
}

fn comma_or_space(
    format: Format,
    comma: &mut Fields<'_>,
    space: &mut Fields<'_>,
) -> Result<(), &'static str> {
    match format {
        Format::Msr | Format::CloudPhysics | Format::Alibaba | Format::Tencent => comma.end(),
        _ => space.end(),
    }
}

#[cfg(test)]
#[path = "text_tests.rs"]
mod tests;
