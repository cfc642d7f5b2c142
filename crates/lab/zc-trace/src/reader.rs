//! The requests of a trace, one after the other.
//!
//! Invariants: a bad line is counted and passed over, or, in strict mode, ends the trace as an error. Compressed data
//! that is damaged or cut behind good records ends the trace like a bad line. After an error or the end there is nothing
//! more.

use std::io::{Cursor, Read as _};
use std::path::Path;

use zc_recording::{End, Header};

use crate::compressed::Bytes;
use crate::detect::detect;
use crate::error::TraceError;
use crate::format::{Format, known};
use crate::input;
use crate::limits::{BAD_LINES_KEPT, PEEK_BYTES};
use crate::lines::{Line, next_line};
use crate::recorded::Recording;
use crate::request::{Op, Request};
use crate::text::{self, TextParser};
use crate::values::{self, Parsed};

/// Options of reading a trace.
#[derive(Debug, Clone, Copy, Default)]
pub struct Options {
    /// Format; detected by default.
    pub format: Option<Format>,
    /// `true` if a bad line is an error.
    pub strict: bool,
    /// Only the requests of this device, also if it is below another one of the trace.
    pub device: Option<DeviceChoice>,
}

/// A device of a trace: `MAJOR,MINOR`, `MAJOR:MINOR` or a number, as `zcsim info` lists it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DeviceChoice(u32);

impl std::str::FromStr for DeviceChoice {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Self, &'static str> {
        const WHY: &str = "a device is MAJOR,MINOR or a number";
        let number = |text: &str| text.parse::<u64>().map_err(|_| WHY);
        let packed = match text.split_once([',', ':']) {
            Some((major, minor)) => values::device_number(number(major)?, number(minor)?)?,
            None => number(text)?,
        };
        u32::try_from(packed).map(Self).map_err(|_| WHY)
    }
}

impl std::fmt::Display for DeviceChoice {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match (self.0 >> values::MINOR_BITS, self.0 & values::MINOR_MASK) {
            (0, minor) => write!(f, "{minor}"),
            (major, minor) => write!(f, "{major},{minor}"),
        }
    }
}

/// A line or record that could not be read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BadLine {
    /// Its number, from 1.
    pub line: u64,
    /// Reason.
    pub why: &'static str,
}

/// Header of a recording.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Recorded {
    /// Its beginning.
    pub header: Header,
    /// Its end, once that is read; a recording that was cut off has none.
    pub end: Option<End>,
    /// Requests that it reports as missing so far.
    pub lost: u64,
}

/// Reads a trace.
pub struct Reader {
    bytes: Bytes,
    format: Format,
    parser: TextParser,
    recording: Option<Box<Recording>>,
    strict: bool,
    device: Option<DeviceChoice>,
    /// Requests of other devices than the chosen one.
    of_others: u64,
    has_device: bool,
    line: Vec<u8>,
    lines: u64,
    first_ns: Option<u64>,
    bad_count: u64,
    bad: Vec<BadLine>,
    over: bool,
}

impl std::fmt::Debug for Reader {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Reader")
            .field("format", &self.format)
            .field("lines", &self.lines)
            .finish_non_exhaustive()
    }
}

impl Reader {
    /// Opens `FILE`, or `ARCHIVE:MEMBER` of a tar archive; both may be compressed.
    ///
    /// # Errors
    /// When the file cannot be read, or its format cannot be detected.
    pub fn open(path: &Path, options: Options) -> Result<Self, TraceError> {
        Self::from_bytes(input::open(path)?, options)
    }

    /// Reads a trace from memory.
    ///
    /// # Errors
    /// As [`Self::open`].
    pub fn from_vec(bytes: Vec<u8>, options: Options) -> Result<Self, TraceError> {
        let failed = |source| TraceError::Read { place: 0, source };
        Self::from_bytes(input::plain(Box::new(Cursor::new(bytes))).map_err(failed)?, options)
    }

    fn from_bytes(mut bytes: Bytes, options: Options) -> Result<Self, TraceError> {
        let format = match options.format {
            Some(format) => format,
            None => {
                let (head, rest) = input::peek(bytes, PEEK_BYTES);
                bytes = rest;
                detect(&head).ok_or_else(|| TraceError::Unknown { known: known() })?
            }
        };
        let recording = if format == Format::Recording {
            let begun =
                Recording::new(&mut *bytes).map_err(|source| TraceError::Read { place: 0, source })?;
            Some(Box::new(begun.map_err(|why| TraceError::Recording { why })?))
        } else {
            None
        };
        Ok(Self {
            bytes,
            format,
            parser: TextParser::new(format, options.device.is_some()),
            recording,
            strict: options.strict,
            device: options.device,
            of_others: 0,
            has_device: false,
            line: Vec::new(),
            lines: 0,
            first_ns: None,
            bad_count: 0,
            bad: Vec::new(),
            over: false,
        })
    }

    /// Returns the format, detected or given.
    #[must_use]
    pub const fn format(&self) -> Format {
        self.format
    }

    /// Returns the number of skipped bad lines.
    #[must_use]
    pub const fn bad_count(&self) -> u64 {
        self.bad_count
    }

    /// The first of them.
    #[must_use]
    pub fn bad_lines(&self) -> &[BadLine] {
        &self.bad
    }

    /// Requests that were left out because a device above theirs had them already (blkparse).
    #[must_use]
    pub fn stacked_count(&self) -> u64 {
        self.parser.stacked()
    }

    /// The name of a device of the requests so far, as the format writes it and [`DeviceChoice`] takes it.
    #[must_use]
    pub fn device_name(&self, device: u32) -> String {
        self.parser.device_name(device)
    }

    /// Returns the header of a recording, if this is one.
    #[must_use]
    pub fn recorded(&self) -> Option<Recorded> {
        let decoder = self.recording.as_ref()?.decoder();
        Some(Recorded { header: *decoder.header(), end: decoder.end().copied(), lost: decoder.lost() })
    }

    /// Returns the share of addresses in the trace, if it is reported: 1 for a complete one.
    #[must_use]
    pub fn sample_rate(&self) -> f64 {
        self.recording.as_ref().map_or(1.0, |recording| recording.decoder().header().share.rate())
    }

    /// Returns the trace's own time at its first request, the origin of all times; `None` before that was read.
    #[must_use]
    pub const fn began_ns(&self) -> Option<u64> {
        self.first_ns
    }

    /// Lines or records read.
    #[must_use]
    pub const fn lines(&self) -> u64 {
        self.lines
    }

    /// Returns the next line or record, or a further piece of the last one; `None` at the end. Counts.
    fn next_parsed(&mut self) -> std::io::Result<Option<Parsed>> {
        if let Some(recording) = &mut self.recording {
            let found = recording.next(&mut *self.bytes)?;
            let is_piece = matches!(&found, Some(Ok(Some(request))) if request.continues);
            self.lines += u64::from(found.is_some() && !is_piece);
            return Ok(found);
        }
        if let Some(piece) = self.parser.piece() {
            return Ok(Some(Ok(Some(piece))));
        }
        let found = self.next_line()?;
        self.lines += u64::from(found.is_some());
        Ok(found)
    }

    fn next_line(&mut self) -> std::io::Result<Option<Parsed>> {
        if let Some(len) = self.format.record_bytes() {
            self.line.clear();
            let limit = u64::try_from(len).unwrap_or(u64::MAX);
            let got = (&mut self.bytes).take(limit).read_to_end(&mut self.line)?;
            return Ok(match got {
                0 => None,
                _ if got < len => Some(Err("the last record is cut")),
                _ => Some(record(self.format, &self.line)),
            });
        }
        Ok(match next_line(&mut *self.bytes, &mut self.line)? {
            Line::End => None,
            Line::TooLong => Some(Err("a line is too long")),
            Line::Whole => Some(self.parser.parse(&self.line)),
        })
    }

    fn next_request(&mut self) -> Result<Option<Request>, TraceError> {
        loop {
            let place = self.lines;
            let parsed = match self.next_parsed() {
                Ok(Some(parsed)) => parsed,
                Ok(None) => return self.end().map(|()| None),
                Err(error) if self.ends_early(&error) => {
                    self.count_bad(
                        place + 1,
                        "the compressed data is damaged or cut here, and the rest is lost",
                    );
                    return self.end().map(|()| None);
                }
                Err(source) => return Err(TraceError::Read { place, source }),
            };
            match parsed {
                Ok(None) => {}
                Ok(Some(request)) => {
                    let first_ns = *self.first_ns.get_or_insert(request.time_ns);
                    let time_ns = request.time_ns.saturating_sub(first_ns);
                    if self.device.is_none_or(|device| device.0 == request.device) {
                        self.has_device = true;
                        return Ok(Some(Request { time_ns, ..request }));
                    }
                    self.of_others += 1;
                }
                Err(why) if self.strict => return Err(TraceError::BadLine { line: self.lines, why }),
                Err(why) => self.count_bad(self.lines, why),
            }
        }
    }

    fn count_bad(&mut self, line: u64, why: &'static str) {
        self.bad_count += 1;
        if self.bad.len() < BAD_LINES_KEPT {
            self.bad.push(BadLine { line, why });
        }
    }

    /// Returns `true` for an error of the compression, not of the device, behind good records.
    fn ends_early(&self, error: &std::io::Error) -> bool {
        let of_device = error.raw_os_error().is_some() || error.kind() == std::io::ErrorKind::OutOfMemory;
        !self.strict && self.first_ns.is_some() && !of_device
    }

    /// # Errors
    /// A device was chosen that no request was of.
    fn end(&self) -> Result<(), TraceError> {
        match self.device {
            Some(device) if self.of_others > 0 && !self.has_device => {
                Err(TraceError::NoSuchDevice { device: device.to_string(), others: self.of_others })
            }
            _ => Ok(()),
        }
    }
}

impl Iterator for Reader {
    type Item = Result<Request, TraceError>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.over {
            return None;
        }
        let next = self.next_request().transpose();
        self.over = !matches!(next, Some(Ok(_)));
        next
    }
}

/// Bits of an object's number that its key has. Numbers that are hashes keep apart by these.
const OBJECT_MASK: u64 = (1 << 49) - 1;

/// A record of a binary format, whole.
fn record(format: Format, bytes: &[u8]) -> Parsed {
    let short = |at: usize| u64::from(u16::from_le_bytes([bytes[at], bytes[at + 1]]));
    let word = |at: usize| short(at) | (short(at + 2) << 16);
    if format == Format::Keys32 {
        return text::key(word(0)).map(Some);
    }
    let long = |at: usize| word(at) | (word(at + 4) << 32);
    if format == Format::OracleGeneral {
        let time_ns = word(0) * 1_000_000_000;
        return text::key(long(4) & OBJECT_MASK).map(|request| Some(Request { time_ns, ..request }));
    }
    let op = match short(12) {
        0x08 | 0x28 | 0x88 | 0xa8 => Op::Read,
        0x0a | 0x2a | 0x8a | 0xaa => Op::Write,
        // Commands that move no data of the device.
        _ => return Ok(None),
    };
    let scale = |value: u64, by: u64| value.checked_mul(by).ok_or("a number is out of range");
    values::request(scale(long(24), 1000)?, 0, op, scale(long(16), 512)?, word(4)).map(Some)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn vscsi(len: u32, command: u16, block: u64, time_us: u64) -> Vec<u8> {
        let mut record = vec![0; 32];
        record[4..8].copy_from_slice(&len.to_le_bytes());
        record[12..14].copy_from_slice(&command.to_le_bytes());
        record[16..24].copy_from_slice(&block.to_le_bytes());
        record[24..32].copy_from_slice(&time_us.to_le_bytes());
        record
    }

    #[test]
    fn times_begin_with_the_first_request() {
        let mut reader =
            Reader::from_vec(b"10 0 8 8 1\n15 0 8 8 0\n9 0 0 8 1\n".to_vec(), Options::default()).unwrap();
        assert_eq!(reader.format(), Format::DiskSim);
        let times: Vec<u64> = reader.by_ref().map(|request| request.unwrap().time_ns).collect();
        assert_eq!((times, reader.lines(), reader.bad_count()), (vec![0, 5, 0], 3, 0));
    }

    #[test]
    fn bad_lines_are_counted_or_end_the_trace() {
        let text = format!("{}x\n2\n", "1\n".repeat(20)).into_bytes();
        let mut reader = Reader::from_vec(text.clone(), Options::default()).unwrap();
        assert_eq!(reader.by_ref().filter_map(Result::ok).count(), 21);
        assert_eq!(reader.bad_count(), 1);
        assert_eq!(reader.bad_lines(), [BadLine { line: 21, why: "a field is not a whole number" }]);
        let mut reader = Reader::from_vec(text, Options { strict: true, ..Options::default() }).unwrap();
        assert_eq!(reader.by_ref().take_while(Result::is_ok).count(), 20);
        assert!(reader.next().is_none(), "nothing comes after an error");
    }

    #[test]
    fn the_error_of_a_bad_line_names_it() {
        let options = Options { format: Some(Format::Keys), strict: true, device: None };
        let mut reader = Reader::from_vec(b"1\nx\n".to_vec(), options).unwrap();
        reader.next().unwrap().unwrap();
        let error = reader.next().unwrap().unwrap_err();
        assert_eq!(error.to_string(), "line 2: a field is not a whole number");
    }

    #[test]
    fn records_are_read() {
        let mut bytes =
            [vscsi(4096, 0x28, 7, 100), vscsi(512, 0x2a, 8, 103), vscsi(0, 0x35, 0, 104)].concat();
        let mut reader = Reader::from_vec(
            bytes.clone(),
            Options { format: Some(Format::Vscsi), strict: true, device: None },
        )
        .unwrap();
        let all: Vec<Request> = reader.by_ref().map(Result::unwrap).collect();
        assert_eq!(all.len(), 2);
        assert_eq!((all[0].op, all[0].offset_bytes, all[0].len_bytes), (Op::Read, 3584, 4096));
        assert_eq!((all[1].op, all[1].time_ns), (Op::Write, 3000));
        assert_eq!(reader.lines(), 3);
        bytes.pop();
        let mut reader =
            Reader::from_vec(bytes, Options { format: Some(Format::Vscsi), strict: false, device: None })
                .unwrap();
        assert_eq!(reader.by_ref().count(), 2);
        assert_eq!(reader.bad_lines()[0].why, "the last record is cut");
        let whole = vscsi(512, 0x88, 1, 1).repeat(4);
        assert_eq!(Reader::from_vec(whole, Options::default()).unwrap().format(), Format::Vscsi);
    }

    #[test]
    fn keys_of_four_bytes_have_to_be_named() {
        let options = Options { format: Some(Format::Keys32), strict: true, device: None };
        let reader = Reader::from_vec(vec![1, 0, 0, 0, 2, 1, 0, 0], options).unwrap();
        let offsets: Vec<u64> = reader.map(|request| request.unwrap().offset_bytes).collect();
        assert_eq!(offsets, [4096, 258 * 4096]);
        let error = Reader::from_vec(vec![1, 0, 0, 0], Options::default()).unwrap_err().to_string();
        assert!(error.contains("keys32"), "{error}");
    }

    #[test]
    fn a_damaged_stream_keeps_what_was_before_or_is_an_error_in_strict_mode() {
        let mut bytes = zstd::encode_all(&b"1\n2\n".repeat(50_000)[..], 1).unwrap();
        bytes.truncate(bytes.len() - 2);
        let keys = Options { format: Some(Format::Keys), ..Options::default() };
        let mut reader = Reader::from_vec(bytes.clone(), keys).unwrap();
        assert!(reader.by_ref().all(|request| request.is_ok()));
        assert!(reader.bad_lines()[0].why.contains("damaged or cut"), "{:?}", reader.bad_lines());
        let mut reader = Reader::from_vec(bytes, Options { strict: true, ..keys }).unwrap();
        let last = reader.by_ref().last().unwrap().unwrap_err().to_string();
        assert!(last.contains("cannot read the trace on"), "{last}");
        assert!(reader.next().is_none());
        // Nothing good comes before this error.
        let head = [0x28, 0xb5, 0x2f, 0xfd, 1, 2, 3].to_vec();
        Reader::from_vec(head, keys).unwrap().next().unwrap().unwrap_err();
    }

    #[test]
    fn padding_behind_a_compressed_trace_is_no_part_of_it() {
        let mut bytes = zstd::encode_all(&b"1\n2\n".repeat(30_000)[..], 1).unwrap();
        bytes.resize(bytes.len() + 4096, 0);
        let mut reader = Reader::from_vec(bytes, Options::default()).unwrap();
        assert_eq!(reader.by_ref().filter(Result::is_ok).count(), 60_000);
        assert_eq!(reader.bad_count(), 0);
    }

    #[test]
    fn one_device_is_chosen() {
        let lines = "253,0 1 1 0.1 9 Q W 36 + 8 [x]\n8,0 1 2 0.1 9 A W 100 + 8 <- (253,0) 36\n\
            8,0 1 3 0.1 9 Q W 100 + 8 [x]\n";
        let read = |device: Option<&str>| {
            let device = device.map(|name| name.parse().unwrap());
            let options = Options { device, ..Options::default() };
            let mut reader = Reader::from_vec(lines.repeat(9).into_bytes(), options).unwrap();
            let found: Result<Vec<Request>, TraceError> = reader.by_ref().collect();
            (found, reader.stacked_count())
        };
        let (both, stacked) = read(None);
        assert_eq!((both.unwrap().len(), stacked), (9, 9));
        for name in ["8,0", "8:0", "8388608"] {
            let found = read(Some(name)).0.unwrap();
            assert!(found.len() == 9 && found[0].offset_bytes == 100 * 512, "{name}");
        }
        let error = read(Some("8,1")).0.unwrap_err().to_string();
        assert!(error.contains("8,1") && error.contains("18"), "{error}");
        assert!("8,x".parse::<DeviceChoice>().is_err() && "5000,0".parse::<DeviceChoice>().is_err());
    }

    #[test]
    fn objects_are_keys() {
        let record = |time: u32, object: u64, next: i64| {
            let mut bytes = time.to_le_bytes().to_vec();
            bytes.extend_from_slice(&object.to_le_bytes());
            bytes.extend_from_slice(&512_u32.to_le_bytes());
            bytes.extend_from_slice(&next.to_le_bytes());
            bytes
        };
        let bytes = [record(5, 7, 2), record(5, u64::MAX, -1), record(6, 7, -1)].concat();
        let mut reader = Reader::from_vec(bytes, Options::default()).unwrap();
        assert_eq!(reader.format(), Format::OracleGeneral);
        let all: Vec<Request> = reader.by_ref().map(Result::unwrap).collect();
        assert_eq!((all[0].op, all[0].offset_bytes, all[0].len_bytes), (Op::Access, 7 * 4096, 4096));
        assert_eq!((all[2].offset_bytes, all[2].time_ns), (all[0].offset_bytes, 1_000_000_000));
        assert_ne!(all[1].offset_bytes, all[0].offset_bytes);
    }

    proptest! {
        #[test]
        fn no_bytes_make_a_reader_panic(bytes in proptest::collection::vec(any::<u8>(), 0..400), which in 0..crate::format::NAMES.len()) {
            let format = Some(crate::format::NAMES[which].0);
            for format in [format, None] {
                if let Ok(reader) = Reader::from_vec(bytes.clone(), Options { format, strict: false, device: None }) {
                    let count = reader.count();
                    prop_assert!(count <= bytes.len() + 1);
                }
            }
        }
    }
}
