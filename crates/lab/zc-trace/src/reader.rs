//! The requests of a trace, one after the other.
//!
//! Invariants: a bad line is counted and passed over, or, in strict mode, ends the trace as an error; after an error
//! or the end there is nothing more.

use std::io::{Cursor, Read as _};
use std::path::Path;

use zc_recording::{End, Header};

use crate::detect::detect;
use crate::error::TraceError;
use crate::format::{Format, known};
use crate::input::{self, Bytes};
use crate::limits::{BAD_LINES_KEPT, PEEK_BYTES};
use crate::lines::{Line, next_line};
use crate::recorded::Recording;
use crate::request::{Op, Request};
use crate::text::{self, Parsed, TextParser};

/// How a trace is read.
#[derive(Debug, Clone, Copy, Default)]
pub struct Options {
    /// Its format; told from the trace if nothing is said.
    pub format: Option<Format>,
    /// Whether a bad line is an error.
    pub strict: bool,
}

/// A line or record that could not be read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BadLine {
    /// Its number, from 1.
    pub line: u64,
    /// What is wrong with it.
    pub why: &'static str,
}

/// What a recording says of itself.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Recorded {
    /// Its beginning.
    pub header: Header,
    /// Its end, once that is read; a recording that was cut off has none.
    pub end: Option<End>,
    /// Requests so far that it says are missing.
    pub lost: u64,
}

/// Reads a trace.
pub struct Reader {
    bytes: Bytes,
    format: Format,
    parser: TextParser,
    recording: Option<Box<Recording>>,
    strict: bool,
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
    /// The file cannot be read, or its format cannot be told.
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
                let mut head = Vec::new();
                let limit = u64::try_from(PEEK_BYTES).unwrap_or(u64::MAX);
                let taken = (&mut bytes).take(limit).read_to_end(&mut head);
                taken.map_err(|source| TraceError::Read { place: 0, source })?;
                let format = detect(&head);
                bytes = Box::new(Cursor::new(head).chain(bytes));
                format.ok_or_else(|| TraceError::Unknown { known: known() })?
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
            parser: TextParser::new(format),
            recording,
            strict: options.strict,
            line: Vec::new(),
            lines: 0,
            first_ns: None,
            bad_count: 0,
            bad: Vec::new(),
            over: false,
        })
    }

    /// The format, told or named.
    #[must_use]
    pub const fn format(&self) -> Format {
        self.format
    }

    /// How many bad lines were passed over.
    #[must_use]
    pub const fn bad_count(&self) -> u64 {
        self.bad_count
    }

    /// The first of them.
    #[must_use]
    pub fn bad_lines(&self) -> &[BadLine] {
        &self.bad
    }

    /// What a recording says of itself, if this is one.
    #[must_use]
    pub fn recorded(&self) -> Option<Recorded> {
        let decoder = self.recording.as_ref()?.decoder();
        Some(Recorded { header: *decoder.header(), end: decoder.end().copied(), lost: decoder.lost() })
    }

    /// Share of the addresses that are in the trace, as far as it tells: 1 for what is not a sample.
    #[must_use]
    pub fn sample_rate(&self) -> f64 {
        self.recording.as_ref().map_or(1.0, |recording| recording.decoder().header().share.rate())
    }

    /// What the trace's own clock said at its first request, from which times are counted; `None` before that was read.
    #[must_use]
    pub const fn began_ns(&self) -> Option<u64> {
        self.first_ns
    }

    /// Lines or records read.
    #[must_use]
    pub const fn lines(&self) -> u64 {
        self.lines
    }

    /// What the next line or record says, or a further piece of the last one; `None` at the end. Counts.
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
            let parsed = self.next_parsed().map_err(|source| TraceError::Read { place, source })?;
            let Some(parsed) = parsed else { return Ok(None) };
            match parsed {
                Ok(None) => {}
                Ok(Some(request)) => {
                    let first_ns = *self.first_ns.get_or_insert(request.time_ns);
                    let time_ns = request.time_ns.saturating_sub(first_ns);
                    return Ok(Some(Request { time_ns, ..request }));
                }
                Err(why) if self.strict => return Err(TraceError::BadLine { line: self.lines, why }),
                Err(why) => {
                    self.bad_count += 1;
                    if self.bad.len() < BAD_LINES_KEPT {
                        self.bad.push(BadLine { line: self.lines, why });
                    }
                }
            }
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

/// A record of a binary format, whole.
fn record(format: Format, bytes: &[u8]) -> Parsed {
    let short = |at: usize| u64::from(u16::from_le_bytes([bytes[at], bytes[at + 1]]));
    let word = |at: usize| short(at) | (short(at + 2) << 16);
    if format == Format::Keys32 {
        return text::key(word(0)).map(Some);
    }
    let op = match short(12) {
        0x08 | 0x28 | 0x88 | 0xa8 => Op::Read,
        0x0a | 0x2a | 0x8a | 0xaa => Op::Write,
        // Commands that move no data of the device.
        _ => return Ok(None),
    };
    let long = |at: usize| word(at) | (word(at + 4) << 32);
    let scale = |value: u64, by: u64| value.checked_mul(by).ok_or("a number is out of range");
    text::request(scale(long(24), 1000)?, 0, op, scale(long(16), 512)?, word(4)).map(Some)
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
        let options = Options { format: Some(Format::Keys), strict: true };
        let mut reader = Reader::from_vec(b"1\nx\n".to_vec(), options).unwrap();
        reader.next().unwrap().unwrap();
        let error = reader.next().unwrap().unwrap_err();
        assert_eq!(error.to_string(), "line 2: a field is not a whole number");
    }

    #[test]
    fn records_are_read() {
        let mut bytes =
            [vscsi(4096, 0x28, 7, 100), vscsi(512, 0x2a, 8, 103), vscsi(0, 0x35, 0, 104)].concat();
        let mut reader =
            Reader::from_vec(bytes.clone(), Options { format: Some(Format::Vscsi), strict: true }).unwrap();
        let all: Vec<Request> = reader.by_ref().map(Result::unwrap).collect();
        assert_eq!(all.len(), 2);
        assert_eq!((all[0].op, all[0].offset_bytes, all[0].len_bytes), (Op::Read, 3584, 4096));
        assert_eq!((all[1].op, all[1].time_ns), (Op::Write, 3000));
        assert_eq!(reader.lines(), 3);
        bytes.pop();
        let mut reader =
            Reader::from_vec(bytes, Options { format: Some(Format::Vscsi), strict: false }).unwrap();
        assert_eq!(reader.by_ref().count(), 2);
        assert_eq!(reader.bad_lines()[0].why, "the last record is cut");
        let whole = vscsi(512, 0x88, 1, 1).repeat(4);
        assert_eq!(Reader::from_vec(whole, Options::default()).unwrap().format(), Format::Vscsi);
    }

    #[test]
    fn keys_of_four_bytes_have_to_be_named() {
        let options = Options { format: Some(Format::Keys32), strict: true };
        let reader = Reader::from_vec(vec![1, 0, 0, 0, 2, 1, 0, 0], options).unwrap();
        let offsets: Vec<u64> = reader.map(|request| request.unwrap().offset_bytes).collect();
        assert_eq!(offsets, [4096, 258 * 4096]);
        let error = Reader::from_vec(vec![1, 0, 0, 0], Options::default()).unwrap_err().to_string();
        assert!(error.contains("keys32"), "{error}");
    }

    #[test]
    fn a_damaged_stream_ends_with_an_error() {
        let mut bytes = zstd::encode_all(&b"1\n2\n".repeat(50_000)[..], 1).unwrap();
        bytes.truncate(bytes.len() - 2);
        let mut reader =
            Reader::from_vec(bytes, Options { format: Some(Format::Keys), strict: false }).unwrap();
        let last = reader.by_ref().last().unwrap().unwrap_err().to_string();
        assert!(last.contains("cannot read the trace on"), "{last}");
        assert!(reader.next().is_none());
    }

    proptest! {
        #[test]
        fn no_bytes_make_a_reader_panic(bytes in proptest::collection::vec(any::<u8>(), 0..400), which in 0..crate::format::NAMES.len()) {
            let format = Some(crate::format::NAMES[which].0);
            for format in [format, None] {
                if let Ok(reader) = Reader::from_vec(bytes.clone(), Options { format, strict: false }) {
                    let count = reader.count();
                    prop_assert!(count <= bytes.len() + 1);
                }
            }
        }
    }
}
