//! The server's replies.
//!
//! Job: append reply headers to the driver's output, in the form the connection negotiated.
//!
//! Invariants: with structured replies a READ never gets a simple reply; extended headers never get one at all and
//! every chunk repeats the request's offset; DONE stands on the last chunk only; read chunks are in order, inside the
//! request and cover it; a DF read has exactly one content chunk.
//!
//! It does not hold data. The bytes of a READ are sent by the driver right behind the header.

use super::{Command, Phase, Request, ServerSession};
use crate::proto::{ErrorCode, chunk, limits};
use crate::wire::{BlockStatus, ChunkHeader, ErrorChunk, HeaderStyle, HoleChunk, SimpleReply, StatusExtent};

/// A READ that is being answered piece by piece, in order.
#[derive(Debug)]
#[must_use = "a read must be answered to its end"]
pub struct ReadReply {
    request: Request,
    /// Bytes of the request answered so far.
    done: u64,
}

/// Encoding of a hole.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[must_use = "zeroes may have to be sent"]
pub enum HoleForm {
    /// As a chunk of its own: nothing to send.
    Chunk,
    /// The driver sends this number of zero bytes next.
    SendZeroes,
}

/// Outcome of a failed read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[must_use = "the connection may have to be closed"]
pub enum ReadFailure {
    /// The client received the error; the connection continues.
    Reported,
    /// A success header is out and cannot be taken back: close the connection without sending more.
    HardDisconnect,
}

impl ReadReply {
    /// Bytes of the request that are still to be answered.
    #[must_use]
    pub const fn left_bytes(&self) -> u64 {
        self.request.length - self.done
    }
}

impl ServerSession {
    /// Answers a WRITE, FLUSH, TRIM, CACHE or WRITE_ZEROES with success.
    ///
    /// # Panics
    /// For READ and BLOCK_STATUS, whose success has content.
    pub fn reply_done(&mut self, request: Request, out: &mut Vec<u8>) {
        assert!(
            !matches!(request.command, Command::Read | Command::BlockStatus),
            "a success with content has its own reply"
        );
        let request = self.settle(request);
        self.put_done(request.cookie, request.offset, request.command, out);
    }

    /// Answers any request with an error. `text` reaches clients that negotiated structured replies. A code that the
    /// protocol has for other commands only goes out as [`ErrorCode::Io`].
    pub fn reply_error(&mut self, request: Request, code: ErrorCode, text: &str, out: &mut Vec<u8>) {
        let code = legal(&request, code);
        let request = self.settle(request);
        self.put_error(request.cookie, request.offset, code, text, out);
    }

    /// Appends the header of a READ whose whole data is at hand: the driver sends the request's `length` bytes next.
    pub fn reply_read(&mut self, request: Request, out: &mut Vec<u8>) {
        let length = request.length;
        let mut reply = self.begin_read(request);
        self.read_data(&mut reply, length, out);
        self.end_read(reply);
    }

    /// Starts a READ that is answered in pieces, e.g. to send holes as holes.
    pub fn begin_read(&self, request: Request) -> ReadReply {
        assert!(request.command == Command::Read, "only a READ is answered with data");
        ReadReply { request, done: 0 }
    }

    /// Appends the header that precedes the next `length` bytes of data, which the driver sends next. If the reply
    /// must be contiguous (simple replies, DF), the first piece's header announces everything: have all data by then.
    ///
    /// # Panics
    /// If the piece is empty or reaches beyond the request.
    pub fn read_data(&self, reply: &mut ReadReply, length: u64, out: &mut Vec<u8>) {
        let request = &reply.request;
        assert!(length > 0 && length <= reply.left_bytes(), "a piece of a read lies outside the request");
        let contiguous = self.is_contiguous(request);
        if self.style == HeaderStyle::Simple {
            if reply.done == 0 {
                SimpleReply { error: 0, cookie: request.cookie }.encode(out);
            }
        } else if !contiguous || reply.done == 0 {
            let content = if contiguous { request.length } else { length };
            let offset = request.offset + reply.done;
            let last = reply.done + content == request.length;
            self.put_chunk(request.cookie, request.offset, chunk::OFFSET_DATA, last, 8 + content, out);
            out.extend_from_slice(&offset.to_be_bytes());
        }
        reply.done += length;
    }

    /// Answers the next `length` bytes of a READ as zeroes.
    ///
    /// # Panics
    /// If the piece is empty or reaches beyond the request.
    pub fn read_hole(&self, reply: &mut ReadReply, length: u64, out: &mut Vec<u8>) -> HoleForm {
        let request = &reply.request;
        if self.is_contiguous(request) {
            self.read_data(reply, length, out);
            return HoleForm::SendZeroes;
        }
        assert!(length > 0 && length <= reply.left_bytes(), "a piece of a read lies outside the request");
        let mut offset = request.offset + reply.done;
        let mut left = length;
        while left > 0 {
            let piece = u32::try_from(left).unwrap_or(u32::MAX);
            left -= u64::from(piece);
            let last = left == 0 && reply.done + length == request.length;
            let body = zc_core::u64_from_usize(HoleChunk::BYTES);
            self.put_chunk(request.cookie, request.offset, chunk::OFFSET_HOLE, last, body, out);
            HoleChunk { offset, length: piece }.encode(out);
            offset += u64::from(piece);
        }
        reply.done += length;
        HoleForm::Chunk
    }

    /// Ends a READ that was answered in pieces.
    ///
    /// # Panics
    /// If pieces are missing: the client would wait for them for ever.
    pub fn end_read(&mut self, reply: ReadReply) {
        let ReadReply { request, done } = reply;
        let request = self.settle(request);
        assert!(done == request.length, "a read reply does not cover the request");
    }

    /// Gives a READ up that was answered in part. Nothing is lost if no contiguous header is out.
    pub fn fail_read(
        &mut self,
        reply: ReadReply,
        code: ErrorCode,
        text: &str,
        out: &mut Vec<u8>,
    ) -> ReadFailure {
        let ReadReply { request, done } = reply;
        let code = legal(&request, code);
        let committed = done > 0 && (self.is_contiguous(&request) || done == request.length);
        let request = self.settle(request);
        if committed {
            self.phase = Phase::Ended;
            return ReadFailure::HardDisconnect;
        }
        self.put_error(request.cookie, request.offset, code, text, out);
        ReadFailure::Reported
    }

    /// Answers a BLOCK_STATUS: `extents(id)` returns the consecutive extents of a negotiated context from the
    /// request's offset. Neighbours of equal status are merged, empty ones dropped; the list is truncated to one
    /// extent within the request for REQ_ONE, else to the request's end and to 2^16 extents. No extents at all mean
    /// status 0. Contexts outside of the request are not queried. Flags have 32 bits; lengths should be multiples of
    /// the export's minimum block, as the request's range is.
    ///
    /// # Panics
    /// If the request is no BLOCK_STATUS.
    pub fn reply_block_status(
        &mut self,
        request: Request,
        mut extents: impl FnMut(u32) -> Vec<StatusExtent>,
        out: &mut Vec<u8>,
    ) {
        assert!(request.command == Command::BlockStatus, "only BLOCK_STATUS is answered with extents");
        let request = self.settle(request);
        let extended = self.style == HeaderStyle::Extended;
        let kind = if extended { chunk::BLOCK_STATUS_EXT } else { chunk::BLOCK_STATUS };
        let mut wanted =
            self.contexts().iter().map(|(id, _)| *id).filter(|id| request.wants_context(*id)).peekable();
        while let Some(context) = wanted.next() {
            let extents = tidy(extents(context), &request);
            let body = zc_core::u64_from_usize(BlockStatus::body_bytes(self.style, extents.len()));
            let last = wanted.peek().is_none();
            self.put_chunk(request.cookie, request.offset, kind, last, body, out);
            BlockStatus { context, extents }.encode(self.style, out);
        }
    }

    fn is_contiguous(&self, request: &Request) -> bool {
        self.style == HeaderStyle::Simple || request.dont_fragment()
    }

    fn put_chunk(&self, cookie: u64, offset: u64, kind: u16, last: bool, length: u64, out: &mut Vec<u8>) {
        let flags = if last { chunk::FLAG_DONE } else { 0 };
        ChunkHeader { flags, kind, cookie, offset, length }.encode(self.style, out);
    }

    /// Success without content.
    pub(super) fn put_done(&self, cookie: u64, offset: u64, command: Command, out: &mut Vec<u8>) {
        let chunked = match self.style {
            HeaderStyle::Simple => false,
            HeaderStyle::Structured => command == Command::Read,
            HeaderStyle::Extended => true,
        };
        if chunked {
            self.put_chunk(cookie, offset, chunk::NONE, true, 0, out);
        } else {
            SimpleReply { error: 0, cookie }.encode(out);
        }
    }

    pub(super) fn put_error(&self, cookie: u64, offset: u64, code: ErrorCode, text: &str, out: &mut Vec<u8>) {
        if self.style == HeaderStyle::Simple {
            SimpleReply { error: code.number(), cookie }.encode(out);
            return;
        }
        let mut body = Vec::new();
        ErrorChunk { error: code.number(), message: text.to_owned(), offset: None }.encode(&mut body);
        self.put_chunk(cookie, offset, chunk::ERROR, true, zc_core::u64_from_usize(body.len()), out);
        out.extend_from_slice(&body);
    }
}

/// The code itself where the command may fail with it, else EIO: ENOTSUP belongs to FAST_ZERO, EOVERFLOW to lengths of
/// commands without payload, ENOMEM to no client (proto.md, "Error values").
pub(super) const fn legal(request: &Request, code: ErrorCode) -> ErrorCode {
    let fits = match code {
        ErrorCode::NotSup => request.fast_zero(),
        ErrorCode::Overflow => !matches!(request.command, Command::Write | Command::Flush),
        ErrorCode::NoMem => false,
        _ => true,
    };
    if fits { code } else { ErrorCode::Io }
}

/// Merges, drops and cuts extents so that they obey the protocol.
fn tidy(extents: Vec<StatusExtent>, request: &Request) -> Vec<StatusExtent> {
    let bound = if request.one_extent() { 1 } else { limits::EXTENTS_SENT_MAX };
    let mut list: Vec<StatusExtent> = Vec::new();
    let mut left = request.length;
    for extent in extents {
        let length = extent.length.min(left);
        if length == 0 {
            continue;
        }
        let flags = extent.flags & u64::from(u32::MAX);
        let full = list.len() == bound;
        match list.last_mut() {
            Some(last) if last.flags == flags => last.length += length,
            _ if full => break,
            _ => list.push(StatusExtent { length, flags }),
        }
        left -= length;
    }
    if list.is_empty() {
        list.push(StatusExtent { length: request.length, flags: 0 });
    }
    list
}
