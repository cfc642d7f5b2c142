//! Decoder of recordings.
//!
//! Job: return a recording one [`Run`] at a time: a request, or a part of one with uniform information.
//!
//! Invariants: one block is in memory, of bounded size. Corrupt or invalid blocks are skipped and reported, and so are
//! gaps and a missing end.

use std::io::{self, BufRead, Read as _};

use zc_core::{Codec, usize_from_u32, usize_from_u64};

use crate::varint::{take, unfold};
use crate::{
    ADDRESS_MAX, ASKED, Asked, BLOCK_HEADER_BYTES, END, ENDED, End, HEADER_BYTES, Header, KIND_BOTH,
    KIND_PRINT, KIND_SIZE, KIND_UNKNOWN, KIND_ZERO, Known, PAYLOAD_BYTES_MAX, RECORDS, SECTOR, TAG_AS_LONG,
    TAG_CONTENTS, TAG_FOLLOWS, TAG_LOST, extents_of,
};

const NONSENSE: &str = "a block makes no sense";

/// A request, or a part of one: a range with uniform information.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Run {
    /// Nanoseconds since the recording began.
    pub time_ns: u64,
    /// Kind of request.
    pub asked: Asked,
    /// First byte, of a whole sector.
    pub offset_bytes: u64,
    /// Length in bytes, in whole sectors; 0 for a flush.
    pub len_bytes: u64,
    /// Information on each extent. A run with a print or a size covers one extent only. Codecs have level 0.
    pub known: Known,
    /// `true` if the run continues the one before: both are parts of one request.
    pub continues: bool,
}

/// Request being returned.
#[derive(Debug, Clone, Copy)]
struct Current {
    time_ns: u64,
    asked: Asked,
    at: u64,
    end: u64,
    /// `true` once the first run was returned.
    began: bool,
    /// Extents whose contents are still to be read; `None` if no information was recorded.
    unread: Option<u64>,
    /// Kind and count of the next extents.
    kind: u64,
    kind_left: u64,
}

/// Reads a recording.
#[derive(Debug)]
pub struct Decoder {
    header: Header,
    payload: Vec<u8>,
    /// Bytes of the block already read.
    read: usize,
    next_block: u32,
    time_ns: u64,
    before_end: u64,
    before_len: u64,
    current: Option<Current>,
    end: Option<End>,
    /// Requests that the recording reports as missing.
    lost: u64,
    over: bool,
}

/// Reads until `bytes` is full or the input ends.
fn fill(input: &mut dyn BufRead, bytes: &mut Vec<u8>, len: usize) -> io::Result<bool> {
    bytes.clear();
    input.take(u64::try_from(len).unwrap_or(u64::MAX)).read_to_end(bytes)?;
    Ok(bytes.len() == len)
}

impl Decoder {
    /// Reads the header; returns a description of its error if invalid.
    ///
    /// # Errors
    /// When the input fails.
    pub fn new(input: &mut dyn BufRead) -> io::Result<Result<Self, &'static str>> {
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
            end: None,
            lost: 0,
            over: false,
        }))
    }

    /// Returns the header.
    #[must_use]
    pub const fn header(&self) -> &Header {
        &self.header
    }

    /// Returns the end record, once it is read.
    #[must_use]
    pub const fn end(&self) -> Option<&End> {
        self.end.as_ref()
    }

    /// Returns the requests reported as missing so far.
    #[must_use]
    pub const fn lost(&self) -> u64 {
        self.lost
    }

    /// Returns the next run, or a description of a block's error; `None` at the end.
    ///
    /// # Errors
    /// When the input fails.
    pub fn next(&mut self, input: &mut dyn BufRead) -> io::Result<Option<Result<Run, &'static str>>> {
        loop {
            if let Some(current) = self.current.take() {
                let run = self.run(current);
                return Ok(Some(run.ok_or_else(|| self.give_up(NONSENSE))));
            }
            if self.read < self.payload.len() {
                match self.record() {
                    Some(()) => continue,
                    None => return Ok(Some(Err(self.give_up(NONSENSE)))),
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

    /// Skips the rest of the block.
    const fn give_up(&mut self, why: &'static str) -> &'static str {
        self.current = None;
        self.read = self.payload.len();
        why
    }

    /// Reads the next block; returns a description of its error, if any.
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
        // Later blocks can be read regardless of this one's content.
        self.over = is_end;
        let expected = std::mem::replace(&mut self.next_block, word(8).wrapping_add(1));
        if word(12) != zc_core::crc32c_append(zc_core::crc32c(&head[..12]), &self.payload) {
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
        if (len == 0) != (asked == Asked::Flush) {
            return None;
        }
        let extents = extents_of(at, end - at, self.header.extent_bytes);
        Some(Current {
            time_ns: self.time_ns,
            asked,
            at,
            end,
            began: false,
            unread: known.then_some(extents),
            kind: KIND_UNKNOWN,
            kind_left: 0,
        })
    }

    /// Returns the next run of the current request; `None` if its contents are invalid.
    fn run(&mut self, mut current: Current) -> Option<Run> {
        let (known, end) = if current.unread.is_some() && current.at < current.end {
            self.contents(&mut current)?
        } else {
            (Known::Unknown, current.end)
        };
        let run = Run {
            time_ns: current.time_ns,
            asked: current.asked,
            offset_bytes: current.at,
            len_bytes: end - current.at,
            known,
            continues: current.began,
        };
        (current.at, current.began) = (end, true);
        if current.at < current.end {
            self.current = Some(current);
        } else if current.unread.is_some_and(|unread| unread > 0) {
            // Remaining contents exceed the request.
            return None;
        }
        Some(run)
    }

    /// Reads the information on the next extents, and the end of their range.
    fn contents(&mut self, current: &mut Current) -> Option<(Known, u64)> {
        let mut rest = self.payload.get(self.read..)?;
        let unread = current.unread?;
        if current.kind_left == 0 {
            let run = take(&mut rest)?;
            (current.kind, current.kind_left) = (run & 7, run >> 3);
            if current.kind_left == 0 || current.kind_left > unread {
                return None;
            }
        }
        let (known, extents) = match current.kind {
            KIND_UNKNOWN => (Known::Unknown, current.kind_left),
            KIND_ZERO => (Known::Zero, current.kind_left),
            kind => (named(kind, self.header.extent_bytes, &mut rest)?, 1),
        };
        self.read = self.payload.len() - rest.len();
        current.kind_left -= extents;
        current.unread = Some(unread - extents);
        let extent = u64::from(self.header.extent_bytes);
        let end = (current.at / extent).checked_add(extents)?.checked_mul(extent)?;
        Some((known, end.min(current.end)))
    }
}

/// Reads the fields of an extent of a kind that has fields.
fn named(kind: u64, extent_bytes: u32, rest: &mut &[u8]) -> Option<Known> {
    let print = match kind {
        KIND_PRINT | KIND_BOTH => {
            let (print, after) = rest.split_first_chunk()?;
            *rest = after;
            Some(u64::from_le_bytes(*print))
        }
        KIND_SIZE => None,
        _ => return None,
    };
    let stored = if kind == KIND_PRINT {
        None
    } else {
        let size = take(rest)?;
        let codec = Codec::from_media_code(u8::try_from(size & 3).ok()?)?;
        Some((codec, u32::try_from(size >> 2).unwrap_or(u32::MAX).min(extent_bytes)))
    };
    Some(Known::Named { print, stored })
}
