//! Bytes to requests.
//!
//! Job: give a recording back one request at a time; a request of whose parts different things are known comes in
//! pieces, the later ones marked as going on with the first. Pieces with a print or a size have a block of 4 KiB each.
//!
//! Invariants: one block is held, of bounded size. A block that is damaged or makes no sense is passed over and told,
//! and so are gaps and a missing end. What contents are is derived from what the file says and from nothing else.

use std::io::{self, BufRead, Read as _};

use zc_core::{usize_from_u32, usize_from_u64};

use super::varint::{take, unfold};
use super::{
    ASKED, Asked, BLOCK_HEADER_BYTES, END, ENDED, End, HEADER_BYTES, Header, KIND_BOTH, KIND_PRINT,
    KIND_SIZE, KIND_UNKNOWN, KIND_ZERO, PAYLOAD_BYTES_MAX, RECORDS, SECTOR, TAG_AS_LONG, TAG_CONTENTS,
    TAG_FOLLOWS, TAG_LOST, extents_of,
};
use crate::joined;
use crate::limits::ADDRESS_MAX;
use crate::request::{Content, Op, Request};
use crate::text::Parsed;

/// Unit of contents.
const BLOCK_BYTES: u32 = 4096;
/// Longest piece of a request of which nothing is known, or which is zeros.
const PIECE_BYTES_MAX: u64 = 1 << 30;
/// The first half of the MD5 of a block of zeros, by which traces name it.
const ZERO_PRINT: u128 = 0x620f_0b67_a91f_7f74;
/// Set in the prints of contents that the recording does not name.
const NAMELESS_BIT: u128 = 1 << 112;

const NONSENSE: &str = "a block makes no sense";

/// What is known of the extents that come next.
#[derive(Debug, Clone, Copy)]
enum Run {
    Unknown,
    Zero,
    /// One extent at a time.
    Named(Content),
}

/// A request being handed out.
#[derive(Debug, Clone, Copy)]
struct Current {
    time_ns: u64,
    op: Op,
    at: u64,
    end: u64,
    /// The first piece is out.
    began: bool,
    /// Extents of which the contents have not been read, unless nothing is known of any.
    unread: Option<u64>,
    /// A run whose extents are of one kind, how many, and where it ends on the volume.
    kind: u64,
    kind_left: u64,
    run: Run,
    run_end: u64,
}

/// Reads a recording.
#[derive(Debug)]
pub(crate) struct Decoder {
    header: Header,
    payload: Vec<u8>,
    /// What of it is read.
    read: usize,
    next_block: u32,
    time_ns: u64,
    before_end: u64,
    before_len: u64,
    current: Option<Current>,
    nameless: u64,
    end: Option<End>,
    /// Requests that the recording says are missing.
    lost: u64,
    over: bool,
}

/// Reads until `bytes` is full or there is no more.
fn fill(input: &mut dyn BufRead, bytes: &mut Vec<u8>, len: usize) -> io::Result<bool> {
    bytes.clear();
    input.take(u64::try_from(len).unwrap_or(u64::MAX)).read_to_end(bytes)?;
    Ok(bytes.len() == len)
}

impl Decoder {
    /// Reads the header; what is wrong with it, if it is none.
    pub(crate) fn new(input: &mut dyn BufRead) -> io::Result<Result<Self, &'static str>> {
        let mut bytes = Vec::new();
        fill(input, &mut bytes, HEADER_BYTES)?;
        let Some(whole) = bytes.first_chunk() else { return Ok(Err("the recording is cut in its header")) };
        Ok(Header::from_bytes(whole).map(|header| Self {
            header,
            payload: Vec::new(),
            read: 0,
            next_block: 0,
            time_ns: 0,
            before_end: 0,
            before_len: 0,
            current: None,
            nameless: 0,
            end: None,
            lost: 0,
            over: false,
        }))
    }

    pub(crate) const fn header(&self) -> &Header {
        &self.header
    }

    pub(crate) const fn end(&self) -> Option<&End> {
        self.end.as_ref()
    }

    pub(crate) const fn lost(&self) -> u64 {
        self.lost
    }

    /// The next request or piece of one; `None` at the end.
    pub(crate) fn next(&mut self, input: &mut dyn BufRead) -> io::Result<Option<Parsed>> {
        loop {
            if self.current.is_some() {
                return Ok(Some(self.piece()));
            }
            if self.read < self.payload.len() {
                match self.record() {
                    Some(()) => continue,
                    None => return Ok(Some(self.give_up(NONSENSE))),
                }
            }
            if self.over {
                return Ok(None);
            }
            if let Some(why) = self.block(input)? {
                return Ok(Some(Err(why)));
            }
        }
    }

    /// Passes over the rest of the block.
    fn give_up(&mut self, why: &'static str) -> Parsed {
        self.current = None;
        self.read = self.payload.len();
        Err(why)
    }

    /// Reads the next block; what is wrong, if something is.
    fn block(&mut self, input: &mut dyn BufRead) -> io::Result<Option<&'static str>> {
        const CUT: Option<&str> = Some("the recording was cut off");
        (self.read, self.over) = (0, true);
        let mut head = Vec::new();
        let whole = fill(input, &mut head, BLOCK_HEADER_BYTES)?;
        self.payload.clear();
        let Some(head) = head.first_chunk::<BLOCK_HEADER_BYTES>().filter(|_| whole) else { return Ok(CUT) };
        let word = |at: usize| u32::from_le_bytes([head[at], head[at + 1], head[at + 2], head[at + 3]]);
        let len = usize_from_u32(word(4));
        let is_end = head[..4] == END;
        if !(is_end || head[..4] == RECORDS) || len > PAYLOAD_BYTES_MAX {
            return Ok(Some("a block does not begin where it should; what follows cannot be read"));
        }
        if !fill(input, &mut self.payload, len)? {
            self.payload.clear();
            return Ok(CUT);
        }
        // What follows can be read, whatever this one holds.
        self.over = is_end;
        let expected = std::mem::replace(&mut self.next_block, word(8).wrapping_add(1));
        if word(12) != crc32c::crc32c_append(crc32c::crc32c(&head[..12]), &self.payload) {
            self.payload.clear();
            self.next_block = expected.wrapping_add(1);
            return Ok(Some("a block is damaged"));
        }
        let known = if is_end { self.end_block() } else { self.begin_block() };
        Ok(if known.is_none() {
            self.payload.clear();
            Some(NONSENSE)
        } else {
            (word(8) != expected).then_some("blocks are missing")
        })
    }

    fn begin_block(&mut self) -> Option<()> {
        let mut rest = self.payload.as_slice();
        self.time_ns = take(&mut rest)?;
        self.read = self.payload.len() - rest.len();
        (self.before_end, self.before_len) = (0, 0);
        Some(())
    }

    fn end_block(&mut self) -> Option<()> {
        let payload = std::mem::take(&mut self.payload);
        let mut rest = payload.as_slice();
        let why = *ENDED.get(usize_from_u64(take(&mut rest)?))?;
        let mut number = || take(&mut rest);
        self.end =
            Some(End { why, requests: number()?, lost: number()?, known: number()?, duration_ns: number()? });
        Some(())
    }

    /// Reads a record up to its contents.
    fn record(&mut self) -> Option<()> {
        let mut rest = self.payload.get(self.read..)?;
        let (tag, after) = rest.split_first()?;
        rest = after;
        self.time_ns = self.time_ns.checked_add(take(&mut rest)?)?;
        let number = tag & 7;
        if tag >> 6 != 0 {
            return None;
        }
        if number == TAG_LOST {
            self.lost = self.lost.saturating_add(take(&mut rest)?);
        } else {
            let asked = *ASKED.get(usize::from(number))?;
            let (mut place, mut len) = (self.before_end, self.before_len);
            if asked == Asked::Flush {
                (place, len) = (0, 0);
            } else {
                if tag & TAG_FOLLOWS == 0 {
                    place = unfold(place, take(&mut rest)?);
                }
                if tag & TAG_AS_LONG == 0 {
                    len = take(&mut rest)?;
                }
                (self.before_end, self.before_len) = (place.checked_add(len)?, len);
            }
            self.current = Some(self.begin(asked, place, len, tag & TAG_CONTENTS != 0)?);
        }
        self.read = self.payload.len() - rest.len();
        Some(())
    }

    fn begin(&self, asked: Asked, place: u64, len: u64, known: bool) -> Option<Current> {
        let at = place.checked_mul(SECTOR)?;
        let end = at.checked_add(len.checked_mul(SECTOR)?).filter(|end| *end <= ADDRESS_MAX)?;
        let op = match asked {
            Asked::Read => Op::Read,
            Asked::Write => Op::Write,
            Asked::Flush => Op::Flush,
            Asked::Discard | Asked::Zeroes => Op::Discard,
        };
        if (len == 0) != (op == Op::Flush) {
            return None;
        }
        let extents = extents_of(at, end - at, self.header.extent_bytes);
        Some(Current {
            time_ns: self.time_ns,
            op,
            at,
            end,
            began: false,
            unread: known.then_some(extents),
            kind: KIND_UNKNOWN,
            kind_left: 0,
            run: Run::Unknown,
            run_end: if known { at } else { end },
        })
    }

    /// The next piece of the request that is being handed out.
    fn piece(&mut self) -> Parsed {
        let Some(mut current) = self.current else { return Ok(None) };
        if current.at == current.run_end && current.at < current.end && self.next_run(&mut current).is_none()
        {
            return self.give_up(NONSENSE);
        }
        let (border, content) = match current.run {
            Run::Unknown => (current.run_end.min(current.at.saturating_add(PIECE_BYTES_MAX)), None),
            Run::Zero => {
                let content = Content { fingerprint: ZERO_PRINT, lz4_bytes: None, zstd1_bytes: None };
                (current.run_end.min(current.at.saturating_add(PIECE_BYTES_MAX)), Some(content))
            }
            Run::Named(of_extent) => {
                let unit = u64::from(BLOCK_BYTES);
                let block = current.at % u64::from(self.header.extent_bytes) / unit;
                let fingerprint = of_extent.fingerprint | u128::from(block);
                (
                    current.run_end.min((current.at / unit + 1) * unit),
                    Some(Content { fingerprint, ..of_extent }),
                )
            }
        };
        let request = Request {
            time_ns: current.time_ns,
            device: 0,
            offset_bytes: current.at,
            len_bytes: u32::try_from(border - current.at).unwrap_or(u32::MAX),
            op: current.op,
            content,
            continues: current.began,
        };
        (current.at, current.began) = (border, true);
        self.current = (current.at < current.end).then_some(current);
        // Whatever contents are left over are too many.
        if self.current.is_none() && current.unread.is_some_and(|unread| unread > 0) {
            return self.give_up(NONSENSE);
        }
        Ok(Some(request))
    }

    /// Reads what is known of the next extents.
    fn next_run(&mut self, current: &mut Current) -> Option<()> {
        let mut rest = self.payload.get(self.read..)?;
        let unread = current.unread?;
        if current.kind_left == 0 {
            let run = take(&mut rest)?;
            (current.kind, current.kind_left) = (run & 7, run >> 3);
            if current.kind_left == 0 || current.kind_left > unread {
                return None;
            }
        }
        let extents = match current.kind {
            KIND_UNKNOWN => {
                current.run = Run::Unknown;
                current.kind_left
            }
            KIND_ZERO => {
                current.run = Run::Zero;
                current.kind_left
            }
            kind => {
                self.nameless += u64::from(kind == KIND_SIZE);
                current.run = Run::Named(named(kind, self.header.extent_bytes, self.nameless, &mut rest)?);
                1
            }
        };
        self.read = self.payload.len() - rest.len();
        current.kind_left -= extents;
        current.unread = Some(unread - extents);
        let extent = u64::from(self.header.extent_bytes);
        current.run_end = (current.at / extent).checked_add(extents)?.checked_mul(extent)?.min(current.end);
        Some(())
    }
}

/// What a named extent's first block holds; `nameless` stands for a print that is not told.
fn named(kind: u64, extent_bytes: u32, nameless: u64, rest: &mut &[u8]) -> Option<Content> {
    let print = if kind == KIND_PRINT || kind == KIND_BOTH {
        let (print, after) = rest.split_first_chunk()?;
        *rest = after;
        u128::from(u64::from_le_bytes(*print))
    } else if kind == KIND_SIZE {
        NAMELESS_BIT | u128::from(nameless)
    } else {
        return None;
    };
    let (mut lz4_bytes, mut zstd1_bytes) = (None, None);
    if kind != KIND_PRINT {
        let size = take(rest)?;
        let (codec, stored) = (size & 3, (size >> 2).min(u64::from(extent_bytes)));
        let blocks = usize_from_u32(extent_bytes / BLOCK_BYTES);
        // One that does not compress is its whole size; the others are less, however little.
        let small = |table| {
            u32::try_from(joined::share_of(table, blocks, stored)).ok().map(|s| s.min(BLOCK_BYTES - 1))
        };
        (lz4_bytes, zstd1_bytes) = match codec {
            0 => (Some(BLOCK_BYTES), Some(BLOCK_BYTES)),
            1 => (small(&joined::LZ4), None),
            _ => (None, small(&joined::ZSTD)),
        };
    }
    Some(Content { fingerprint: print << 8, lz4_bytes, zstd1_bytes })
}
