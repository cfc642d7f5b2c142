//! Encoder of recordings.
//!
//! Invariants: the file never exceeds the bound that the caller enforces with [`Writer::bytes`], which includes
//! buffered bytes. After an error of the file nothing more is written.

use std::io::{self, Write};

use zc_core::u64_from_usize;

use crate::varint::{fold, put};
use crate::{
    ASKED, Asked, BLOCK_HEADER_BYTES, END, ENDED, End, HEADER_BYTES, Header, KIND_BOTH, KIND_PRINT,
    KIND_SIZE, KIND_UNKNOWN, KIND_ZERO, KNOWN_MAX, Known, PAYLOAD_BYTES, RECORDS, Record, SECTOR,
    TAG_AS_LONG, TAG_CONTENTS, TAG_FOLLOWS, TAG_LOST, extents_of,
};

/// Largest end record: a block's header and five numbers.
const END_BYTES_MAX: u64 = BLOCK_HEADER_BYTES as u64 + 50;

/// Writes a recording.
#[derive(Debug)]
pub struct Writer<W> {
    out: W,
    extent_bytes: u32,
    /// Block under construction: its header, to be filled in, and the payload so far.
    block: Vec<u8>,
    blocks: u32,
    written: u64,
    /// Values of the previous record; positions and lengths in sectors.
    time_ns: u64,
    end: u64,
    len: u64,
}

fn position<T: PartialEq>(all: &[T], one: &T) -> u8 {
    all.iter().position(|other| other == one).and_then(|at| u8::try_from(at).ok()).unwrap_or(0)
}

/// Returns the code of a kind and its fields.
fn kind_of(known: &Known) -> u64 {
    match known {
        Known::Unknown | Known::Named { print: None, stored: None } => KIND_UNKNOWN,
        Known::Zero => KIND_ZERO,
        Known::Named { print: Some(_), stored: None } => KIND_PRINT,
        Known::Named { print: None, stored: Some(_) } => KIND_SIZE,
        Known::Named { print: Some(_), stored: Some(_) } => KIND_BOTH,
    }
}

fn put_known(out: &mut Vec<u8>, known: &Known) {
    let Known::Named { print, stored } = known else { return };
    if let Some(print) = print {
        out.extend_from_slice(&print.to_le_bytes());
    }
    if let Some((codec, bytes)) = stored {
        put(out, u64::from(*bytes) << 2 | u64::from(codec.media_code()));
    }
}

/// Writes the information on the first extents; omits the others, so that a block stays bounded.
fn put_contents(out: &mut Vec<u8>, all: &[Known], extents: u64) {
    assert_eq!(u64_from_usize(all.len()), extents, "each extent is known or not");
    let (known, others) = all.split_at(all.len().min(KNOWN_MAX));
    for run in known.chunk_by(|one, other| kind_of(one) == kind_of(other)) {
        let kind = run.first().map_or(KIND_UNKNOWN, kind_of);
        put(out, u64_from_usize(run.len()) << 3 | kind);
        run.iter().for_each(|known| put_known(out, known));
    }
    if !others.is_empty() {
        put(out, u64_from_usize(others.len()) << 3 | KIND_UNKNOWN);
    }
}

impl<W: Write> Writer<W> {
    /// Starts a recording.
    ///
    /// # Errors
    /// When the file fails.
    pub fn new(mut out: W, header: &Header) -> io::Result<Self> {
        out.write_all(&header.to_bytes())?;
        let mut block = Vec::with_capacity(2 * PAYLOAD_BYTES);
        block.resize(BLOCK_HEADER_BYTES, 0);
        Ok(Self {
            out,
            extent_bytes: header.extent_bytes,
            block,
            blocks: 0,
            written: u64_from_usize(HEADER_BYTES),
            time_ns: 0,
            end: 0,
            len: 0,
        })
    }

    /// Returns the size of the file if it ended now.
    pub fn bytes(&self) -> u64 {
        self.written + u64_from_usize(self.block.len()) + END_BYTES_MAX
    }

    /// Starts a record: tag, time.
    fn begin(&mut self, tag: u8, time_ns: u64) {
        if self.block.len() == BLOCK_HEADER_BYTES {
            put(&mut self.block, time_ns);
            (self.time_ns, self.end, self.len) = (time_ns, 0, 0);
        }
        self.block.push(tag);
        put(&mut self.block, time_ns.saturating_sub(self.time_ns));
        self.time_ns = time_ns.max(self.time_ns);
    }

    /// Adds a request.
    ///
    /// # Errors
    /// When the file fails.
    ///
    /// # Panics
    /// If the information does not cover exactly the extents of the request.
    pub fn add(&mut self, record: &Record) -> io::Result<()> {
        let fresh = self.block.len() == BLOCK_HEADER_BYTES;
        let (before, len_before) = if fresh { (0, 0) } else { (self.end, self.len) };
        let (place, len) = (record.offset_bytes / SECTOR, record.len_bytes / SECTOR);
        let is_known = record.known.iter().any(|known| kind_of(known) != KIND_UNKNOWN);
        let mut tag = position(&ASKED, &record.asked);
        if record.asked == Asked::Flush {
            self.begin(tag, record.time_ns);
            return self.end_record();
        }
        tag |= if is_known { TAG_CONTENTS } else { 0 };
        tag |= if place == before { TAG_FOLLOWS } else { 0 };
        tag |= if len == len_before { TAG_AS_LONG } else { 0 };
        self.begin(tag, record.time_ns);
        if place != before {
            put(&mut self.block, fold(before, place));
        }
        if len != len_before {
            put(&mut self.block, len);
        }
        if is_known {
            let extents = extents_of(record.offset_bytes, record.len_bytes, self.extent_bytes);
            put_contents(&mut self.block, &record.known, extents);
        }
        (self.end, self.len) = (place + len, len);
        self.end_record()
    }

    /// Records that requests are missing here.
    ///
    /// # Errors
    /// When the file fails.
    pub fn lost(&mut self, time_ns: u64, requests: u64) -> io::Result<()> {
        self.begin(TAG_LOST, time_ns);
        put(&mut self.block, requests);
        self.end_record()
    }

    fn end_record(&mut self) -> io::Result<()> {
        if self.block.len() < BLOCK_HEADER_BYTES + PAYLOAD_BYTES { Ok(()) } else { self.write_block(RECORDS) }
    }

    /// Writes what is buffered.
    ///
    /// # Errors
    /// When the file fails.
    pub fn flush(&mut self) -> io::Result<()> {
        if self.block.len() > BLOCK_HEADER_BYTES { self.write_block(RECORDS) } else { Ok(()) }
    }

    fn write_block(&mut self, magic: [u8; 4]) -> io::Result<()> {
        let payload = u32::try_from(self.block.len() - BLOCK_HEADER_BYTES).map_err(io::Error::other)?;
        self.block[..4].copy_from_slice(&magic);
        self.block[4..8].copy_from_slice(&payload.to_le_bytes());
        self.block[8..12].copy_from_slice(&self.blocks.to_le_bytes());
        let crc =
            zc_core::crc32c_append(zc_core::crc32c(&self.block[..12]), &self.block[BLOCK_HEADER_BYTES..]);
        self.block[12..16].copy_from_slice(&crc.to_le_bytes());
        self.out.write_all(&self.block)?;
        self.written += u64_from_usize(self.block.len());
        self.blocks = self.blocks.wrapping_add(1);
        self.block.truncate(BLOCK_HEADER_BYTES);
        Ok(())
    }

    /// Ends the recording and returns the file.
    ///
    /// # Errors
    /// When the file fails.
    pub fn finish(mut self, end: &End) -> io::Result<W> {
        self.flush()?;
        for number in
            [u64::from(position(&ENDED, &end.why)), end.requests, end.lost, end.known, end.duration_ns]
        {
            put(&mut self.block, number);
        }
        self.write_block(END)?;
        self.out.flush()?;
        Ok(self.out)
    }
}
