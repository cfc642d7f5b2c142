//! The transmission phase from the client's side: requests of any shape, replies of all three kinds.
//!
//! Job: send requests, collect the chunks of their replies, put data together. Every rule that all replies share is
//! checked here: magic, cookie, echoed offset, flags, the layout of each type of chunk.
//!
//! Invariants: a reply is bounded before memory is spent on it; chunks of a read are checked for overlap and gaps.
//!
//! It does not decide which error number is right; the cases do.

use crate::conn::Conn;
use crate::stop::{Check, Stop, ensure};
use crate::wire::{
    Cursor, EXTENDED_REPLY, EXTENDED_REQUEST, Message, REQUEST, SIMPLE_REPLY, STRING_MAX, STRUCTURED_REPLY,
    cflag, chunk, cmd, err, error_name, string,
};
use zc_core::{u64_from_usize, usize_from_u64};

/// The longest chunk that is taken.
const CHUNK_BYTES_MAX: u64 = (64 << 20) + 8;

/// The most chunks of one reply.
const CHUNKS_MAX: usize = 1 << 16;

/// Header style of a session.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Mode {
    Simple,
    Structured,
    Extended,
}

/// A request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Request {
    pub(crate) cmd: u16,
    pub(crate) flags: u16,
    pub(crate) cookie: u64,
    pub(crate) offset: u64,
    pub(crate) length: u64,
    pub(crate) payload: Vec<u8>,
}

impl Request {
    /// A request without payload; the session gives it a cookie.
    pub(crate) fn new(cmd: u16, offset: u64, length: u64) -> Self {
        Self { cmd, flags: 0, cookie: 0, offset, length, payload: Vec::new() }
    }

    pub(crate) fn read(offset: u64, length: u64) -> Self {
        Self::new(cmd::READ, offset, length)
    }

    pub(crate) fn write(offset: u64, payload: Vec<u8>) -> Self {
        let length = u64_from_usize(payload.len());
        Self { payload, ..Self::new(cmd::WRITE, offset, length) }
    }

    pub(crate) fn flags(mut self, flags: u16) -> Self {
        self.flags = flags;
        self
    }

    /// Returns the bytes on the wire without the payload.
    fn header(&self, mode: Mode) -> Vec<u8> {
        let extended = mode == Mode::Extended;
        let payload_flag = if extended && self.cmd == cmd::WRITE { cflag::PAYLOAD_LEN } else { 0 };
        let head = Message::default()
            .u32(if extended { EXTENDED_REQUEST } else { REQUEST })
            .u16(self.flags | payload_flag)
            .u16(self.cmd)
            .u64(self.cookie)
            .u64(self.offset);
        if extended {
            head.u64(self.length).0
        } else {
            head.u32(u32::try_from(self.length).unwrap_or(u32::MAX)).0
        }
    }

    /// All that goes over the wire.
    pub(crate) fn bytes(&self, mode: Mode) -> Vec<u8> {
        let mut bytes = self.header(mode);
        bytes.extend(&self.payload);
        bytes
    }

    /// The name of its command, for messages.
    pub(crate) fn name(&self) -> String {
        command_name(self.cmd)
    }
}

/// The name of a command, for messages.
pub(crate) fn command_name(number: u16) -> String {
    let name = match number {
        cmd::READ => "READ",
        cmd::WRITE => "WRITE",
        cmd::DISC => "DISC",
        cmd::FLUSH => "FLUSH",
        cmd::TRIM => "TRIM",
        cmd::CACHE => "CACHE",
        cmd::WRITE_ZEROES => "WRITE_ZEROES",
        cmd::BLOCK_STATUS => "BLOCK_STATUS",
        _ => return format!("command {number:#x}"),
    };
    name.to_owned()
}

/// A simple reply or one chunk of a reply.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Chunk {
    /// `None` for a simple reply.
    pub(crate) kind: Option<u16>,
    pub(crate) flags: u16,
    pub(crate) cookie: u64,
    /// Error of a simple reply or an error chunk, 0 otherwise.
    pub(crate) error: u32,
    pub(crate) payload: Vec<u8>,
}

impl Chunk {
    pub(crate) fn is_last(&self) -> bool {
        self.kind.is_none() || self.flags & chunk::DONE != 0
    }

    /// Range in the export of a content chunk.
    pub(crate) fn range(&self) -> Result<Option<(u64, u64)>, Stop> {
        let mut cursor = Cursor::new(&self.payload, "a content chunk");
        match self.kind {
            Some(chunk::DATA) => {
                let offset = cursor.u64()?;
                Ok(Some((offset, u64_from_usize(cursor.rest().len()))))
            }
            Some(chunk::HOLE) => Ok(Some((cursor.u64()?, u64::from(cursor.u32()?)))),
            _ => Ok(None),
        }
    }
}

/// The whole reply to one request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Answer {
    pub(crate) chunks: Vec<Chunk>,
}

impl Answer {
    /// The first error, 0 for success.
    pub(crate) fn error(&self) -> u32 {
        self.chunks.iter().map(|chunk| chunk.error).find(|error| *error != 0).unwrap_or_default()
    }

    /// The request succeeded.
    pub(crate) fn succeeded(&self, request: &Request) -> Result<&Self, Stop> {
        let error = self.error();
        ensure(error == 0, || format!("{} was answered with {}", request.name(), error_name(error)))?;
        Ok(self)
    }

    /// The request failed with one of `allowed`.
    pub(crate) fn failed(&self, request: &Request, allowed: &[u32]) -> Check {
        let error = self.error();
        ensure(allowed.contains(&error), || {
            let wanted: Vec<String> = allowed.iter().map(|number| error_name(*number)).collect();
            format!(
                "{} was answered with {}, not with {}",
                request.name(),
                error_name(error),
                wanted.join(" or ")
            )
        })
    }

    /// Content chunks: range and bytes.
    pub(crate) fn content(&self) -> Result<Vec<(u64, u64)>, Stop> {
        let mut ranges = Vec::new();
        for chunk in &self.chunks {
            ranges.extend(chunk.range()?);
        }
        Ok(ranges)
    }

    /// The bytes that a successful READ returned: chunks inside the request, no overlap, no gap.
    pub(crate) fn data(&self, request: &Request) -> Result<Vec<u8>, Stop> {
        self.succeeded(request)?;
        if let [chunk] = self.chunks.as_slice()
            && chunk.kind.is_none()
        {
            return Ok(chunk.payload.clone());
        }
        let mut bytes = vec![0; usize_from_u64(request.length)];
        let mut covered = vec![false; bytes.len()];
        for chunk in &self.chunks {
            let Some((offset, length)) = chunk.range()? else { continue };
            let (from, to) = inside(request, offset, length)?;
            ensure(!covered[from..to].contains(&true), || {
                format!("the chunk of {length} bytes at {offset} overlaps an earlier one")
            })?;
            covered[from..to].fill(true);
            if chunk.kind == Some(chunk::DATA) {
                bytes[from..to].copy_from_slice(&chunk.payload[8..]);
            }
        }
        let missing = covered.iter().position(|covered| !covered);
        ensure(missing.is_none(), || {
            format!("no chunk covers byte {} of the request", missing.unwrap_or_default())
        })?;
        Ok(bytes)
    }
}

/// The part of a request that a chunk describes.
fn inside(request: &Request, offset: u64, length: u64) -> Result<(usize, usize), Stop> {
    let from = offset.checked_sub(request.offset);
    let to = from.and_then(|from| from.checked_add(length)).filter(|to| *to <= request.length);
    let (Some(from), Some(to)) = (from, to) else {
        return Err(Stop::Fail(format!("a chunk of {length} bytes at {offset} lies outside of the request")));
    };
    Ok((usize_from_u64(from), usize_from_u64(to)))
}

/// A connection in the transmission phase.
#[derive(Debug)]
pub(crate) struct Session {
    pub(crate) conn: Conn,
    pub(crate) mode: Mode,
    pub(crate) size: u64,
    pub(crate) flags: u16,
    pub(crate) block: Option<[u32; 3]>,
    pub(crate) contexts: Vec<(u32, String)>,
    pub(crate) next_cookie: u64,
}

impl Session {
    /// Gives a request without a cookie the next one.
    pub(crate) fn number(&mut self, mut request: Request) -> Request {
        if request.cookie == 0 {
            // Both halves differ from request to request and from their byte-swapped selves.
            request.cookie = 0x7a63_0000_0000_0000 | self.next_cookie;
            self.next_cookie += 1;
        }
        request
    }

    /// Sends a request as it is.
    pub(crate) fn send(&mut self, request: &Request) -> Result<(), Stop> {
        let bytes = request.bytes(self.mode);
        self.conn.send(&bytes)
    }

    /// Sends a request and waits for its whole reply.
    pub(crate) fn call(&mut self, request: Request) -> Result<(Request, Answer), Stop> {
        let request = self.number(request);
        self.send(&request)?;
        let answer = self.answer(&request)?;
        Ok((request, answer))
    }

    /// The request succeeds.
    pub(crate) fn ok(&mut self, request: Request) -> Result<Answer, Stop> {
        let (request, answer) = self.call(request)?;
        answer.succeeded(&request)?;
        Ok(answer)
    }

    /// The request fails with one of `allowed`, and the next one is served.
    pub(crate) fn fails(&mut self, request: Request, allowed: &[u32]) -> Check {
        let (request, answer) = self.call(request)?;
        answer.failed(&request, allowed)?;
        self.still_serves()
    }

    /// A read in the allowed range succeeds with these bytes.
    pub(crate) fn read(&mut self, offset: u64, length: u64) -> Result<Vec<u8>, Stop> {
        let (request, answer) = self.call(Request::read(offset, length))?;
        answer.data(&request)
    }

    /// A write succeeds.
    pub(crate) fn write(&mut self, offset: u64, bytes: &[u8]) -> Check {
        self.ok(Request::write(offset, bytes.to_vec())).map(drop)
    }

    /// The connection is in step: a read gets its answer.
    pub(crate) fn still_serves(&mut self) -> Check {
        let length = self.block.map_or(512, |[minimum, _, _]| u64::from(minimum.max(512))).min(self.size);
        self.read(0, length).map(drop)
    }

    /// The whole reply to the only request in flight.
    pub(crate) fn answer(&mut self, request: &Request) -> Result<Answer, Stop> {
        let mut chunks = Vec::new();
        while chunks.len() < CHUNKS_MAX {
            let chunk = self.chunk(std::slice::from_ref(request))?;
            let last = chunk.is_last();
            chunks.push(chunk);
            if last {
                return Ok(Answer { chunks });
            }
        }
        Err(Stop::Fail(format!("{CHUNKS_MAX} chunks and no last one")))
    }

    /// The whole replies to all of `requests`, which are in flight with distinct cookies; in the order of requests.
    pub(crate) fn answers(&mut self, requests: &[Request]) -> Result<Vec<Answer>, Stop> {
        let mut answers = vec![Answer { chunks: Vec::new() }; requests.len()];
        let mut done = vec![false; requests.len()];
        while done.contains(&false) {
            let chunk = self.chunk(requests)?;
            let at = requests.iter().position(|request| request.cookie == chunk.cookie).unwrap_or_default();
            ensure(!done[at], || format!("a second reply for the cookie {:#x}", chunk.cookie))?;
            done[at] = chunk.is_last();
            answers[at].chunks.push(chunk);
            ensure(answers[at].chunks.len() < CHUNKS_MAX, || "a reply does not end".to_owned())?;
        }
        Ok(answers)
    }

    /// The next simple reply or chunk, for one of `pending`.
    pub(crate) fn chunk(&mut self, pending: &[Request]) -> Result<Chunk, Stop> {
        let magic = self.conn.recv(4, "a reply")?;
        let magic = Cursor::new(&magic, "a reply").u32()?;
        match (self.mode, magic) {
            (Mode::Simple | Mode::Structured, SIMPLE_REPLY) => self.simple(pending),
            (Mode::Structured, STRUCTURED_REPLY) => self.structured(pending, false),
            (Mode::Extended, EXTENDED_REPLY) => self.structured(pending, true),
            (mode, magic) => {
                Err(Stop::Fail(format!("a reply has the magic {magic:#010x} where {mode:?} replies are due")))
            }
        }
    }

    fn simple(&mut self, pending: &[Request]) -> Result<Chunk, Stop> {
        let rest = self.conn.recv(12, "a simple reply")?;
        let mut cursor = Cursor::new(&rest, "a simple reply");
        let (error, cookie) = (cursor.u32()?, cursor.u64()?);
        let request = find(pending, cookie)?;
        known_error(error, true)?;
        let reads = request.cmd == cmd::READ;
        ensure(!(reads && self.mode == Mode::Structured), || {
            "READ got a simple reply although structured replies were negotiated".to_owned()
        })?;
        let length = if reads && error == 0 { usize_from_u64(request.length) } else { 0 };
        let payload = self.conn.recv(length, "the data of a simple reply")?;
        Ok(Chunk { kind: None, flags: 0, cookie, error, payload })
    }

    fn structured(&mut self, pending: &[Request], extended: bool) -> Result<Chunk, Stop> {
        let header = self.conn.recv(if extended { 28 } else { 16 }, "the header of a chunk")?;
        let mut cursor = Cursor::new(&header, "the header of a chunk");
        let (flags, kind, cookie) = (cursor.u16()?, cursor.u16()?, cursor.u64()?);
        let request = find(pending, cookie)?;
        let length = if extended {
            let offset = cursor.u64()?;
            ensure(offset == request.offset, || {
                format!("a reply echoes the offset {offset} instead of {}", request.offset)
            })?;
            cursor.u64()?
        } else {
            u64::from(cursor.u32()?)
        };
        ensure(flags & !chunk::DONE == 0, || format!("a chunk has the unknown flags {flags:#x}"))?;
        ensure(length <= CHUNK_BYTES_MAX, || format!("a chunk claims {length} bytes"))?;
        let payload = self.conn.recv(usize_from_u64(length), "the payload of a chunk")?;
        let error = layout(kind, flags, &payload, request, extended)?;
        Ok(Chunk { kind: Some(kind), flags, cookie, error, payload })
    }
}

fn find(pending: &[Request], cookie: u64) -> Result<&Request, Stop> {
    pending.iter().find(|request| request.cookie == cookie).ok_or_else(|| {
        Stop::Fail(format!("a reply has the cookie {cookie:#x}, which no request in flight has"))
    })
}

fn known_error(error: u32, success: bool) -> Check {
    ensure(err::ALL.contains(&error) || (success && error == 0), || {
        format!("the error number {error} is not one of the protocol")
    })
}

/// Checks the layout of a chunk and returns its error number.
fn layout(kind: u16, flags: u16, payload: &[u8], request: &Request, extended: bool) -> Result<u32, Stop> {
    let length = payload.len();
    let mut cursor = Cursor::new(payload, "an error chunk");
    if kind & chunk::ERROR_BIT != 0 {
        let (error, text) = (cursor.u32()?, usize::from(cursor.u16()?));
        known_error(error, false)?;
        ensure(text <= STRING_MAX, || format!("an error text of {text} bytes"))?;
        string(cursor.take(text)?, "an error text")?;
        if kind == chunk::ERROR_OFFSET {
            let at = cursor.u64()?;
            let end = request.offset.saturating_add(request.length);
            ensure((request.offset..end).contains(&at), || {
                format!("an error at {at}, outside of the request")
            })?;
        }
        return Ok(error);
    }
    let (fits, needs) = match kind {
        chunk::NONE => (length == 0 && flags & chunk::DONE != 0, "no payload and the DONE flag"),
        chunk::DATA => (request.cmd == cmd::READ && length >= 9, "a READ and at least 9 bytes"),
        chunk::HOLE => {
            let size = payload.get(8..).is_some_and(|size| size.iter().any(|byte| *byte != 0));
            (request.cmd == cmd::READ && length == 12 && size, "a READ, 12 bytes and a size")
        }
        chunk::STATUS => {
            let whole = length >= 12 && (length - 4).is_multiple_of(8);
            (request.cmd == cmd::BLOCK_STATUS && !extended && whole, "a BLOCK_STATUS and 4 + 8n bytes")
        }
        chunk::STATUS_EXT => {
            let whole = length >= 24 && (length - 8).is_multiple_of(16);
            (request.cmd == cmd::BLOCK_STATUS && extended && whole, "a BLOCK_STATUS and 8 + 16n bytes")
        }
        _ => (false, "nothing: it is unknown"),
    };
    ensure(fits, || {
        format!(
            "a chunk of type {kind}, flags {flags} and {length} bytes for {}; the type needs {needs}",
            request.name()
        )
    })?;
    Ok(0)
}
