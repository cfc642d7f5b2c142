//! The client's reply decoder.
//!
//! Job: simple replies and structured or extended chunks in, checked events out.
//!
//! Invariants: only forms the connection negotiated are accepted; chunk bodies are capped before they are buffered;
//! a read or block status is not reported as done before it is complete.
//!
//! It does not buffer read data.

use super::{ClientError, ClientEvent, ClientProgress, ClientSession, ClientStep, Phase, RemoteError};
use crate::ErrorCode;
use crate::proto::{
    EXTENDED_REPLY_MAGIC, SIMPLE_REPLY_MAGIC, STRUCTURED_REPLY_MAGIC, chunk, command, command_flag, limits,
};
use crate::wire::{
    BlockStatus, ChunkHeader, ErrorChunk, HeaderStyle, HoleChunk, Reader, SimpleReply, WireError,
};

/// Longest error chunk: number, text length, text, offset.
const ERROR_BYTES_MAX: u64 = 4 + 2 + 0xffff + 8;
/// Length of the offset before read data.
const OFFSET_BYTES: u64 = 8;

/// A chunk whose header was checked and whose body, or the buffered part of it, is awaited.
#[derive(Debug, Clone, Copy)]
pub(super) struct Chunk {
    kind: u16,
    done: bool,
    cookie: u64,
    length: u64,
}

impl ClientSession {
    pub(super) fn step_reply(&mut self, input: &mut &[u8]) -> ClientProgress {
        if !self.fill(input, 4) {
            return Ok(ClientStep::Wait);
        }
        let magic = Reader::new("a reply", &self.partial).u32()?;
        let simple = match (magic, self.style) {
            (SIMPLE_REPLY_MAGIC, HeaderStyle::Simple | HeaderStyle::Structured) => true,
            (STRUCTURED_REPLY_MAGIC, HeaderStyle::Structured)
            | (EXTENDED_REPLY_MAGIC, HeaderStyle::Extended) => false,
            _ => return Err(WireError::Magic { what: "a reply", found: magic.into() }.into()),
        };
        let wanted = if simple { SimpleReply::BYTES } else { self.style.chunk_bytes() };
        if !self.fill(input, wanted) {
            return Ok(ClientStep::Wait);
        }
        if simple {
            let reply = SimpleReply::decode(&self.partial)?;
            self.partial.clear();
            return self.simple_reply(reply);
        }
        let header = ChunkHeader::decode(self.style, &self.partial)?;
        self.partial.clear();
        self.chunk_header(&header)
    }

    fn simple_reply(&mut self, reply: SimpleReply) -> ClientProgress {
        let structured = self.style != HeaderStyle::Simple;
        let Some(pending) = self.pending.get_mut(&reply.cookie) else {
            return Err(ClientError::Rule("a reply has no request"));
        };
        if structured && pending.command == command::READ {
            return Err(ClientError::Rule("a READ got a simple reply although structured replies are on"));
        }
        if structured && pending.content_chunks > 0 {
            return Err(ClientError::Rule("a simple reply follows chunks of the same request"));
        }
        if reply.error != 0 {
            let code = ErrorCode::from_number(reply.error);
            pending.error = Some(RemoteError { code, message: String::new() });
            return self.finish(reply.cookie);
        }
        if pending.command != command::READ {
            return self.finish(reply.cookie);
        }
        let (offset, length) = (pending.offset, pending.length);
        pending.claim(offset, length)?;
        self.phase = Phase::Payload { left: length, finishes: Some(reply.cookie) };
        Ok(ClientStep::Event(ClientEvent::ReadData { cookie: reply.cookie, offset, length }))
    }

    fn chunk_header(&mut self, header: &ChunkHeader) -> ClientProgress {
        let Some(pending) = self.pending.get_mut(&header.cookie) else {
            return Err(ClientError::Rule("a reply has no request"));
        };
        if self.style == HeaderStyle::Extended && header.offset != pending.offset {
            return Err(ClientError::Rule("an extended reply does not repeat the request's offset"));
        }
        let done = header.flags & chunk::FLAG_DONE != 0;
        let is_read = pending.command == command::READ;
        let fits = match header.kind {
            chunk::NONE => done && header.length == 0,
            chunk::OFFSET_DATA => {
                is_read && header.length > OFFSET_BYTES && header.length - OFFSET_BYTES <= pending.length
            }
            chunk::OFFSET_HOLE => is_read && header.length == zc_core::u64_from_usize(HoleChunk::BYTES),
            chunk::BLOCK_STATUS | chunk::BLOCK_STATUS_EXT => {
                let extended = header.kind == chunk::BLOCK_STATUS_EXT;
                pending.command == command::BLOCK_STATUS
                    && extended == (self.style == HeaderStyle::Extended)
                    && header.length <= u64::from(limits::CHUNK_BODY_BYTES_MAX)
            }
            kind => kind & chunk::ERROR_BIT != 0 && header.length <= ERROR_BYTES_MAX,
        };
        if !fits {
            return Err(ClientError::Rule("a chunk's type, flags or length does not fit the request"));
        }
        if header.kind & chunk::ERROR_BIT == 0 && header.kind != chunk::NONE {
            pending.content_chunks += 1;
        }
        if is_read && pending.flags & command_flag::DF != 0 && pending.content_chunks > 1 {
            return Err(ClientError::Rule("a read with DF got more than one content chunk"));
        }
        let chunk = Chunk { kind: header.kind, done, cookie: header.cookie, length: header.length };
        self.phase = Phase::ChunkBody(chunk);
        Ok(ClientStep::Again)
    }

    pub(super) fn step_chunk_body(&mut self, chunk: Chunk, input: &mut &[u8]) -> ClientProgress {
        let buffered = if chunk.kind == chunk::OFFSET_DATA { OFFSET_BYTES } else { chunk.length };
        if !self.fill(input, zc_core::usize_from_u64(buffered)) {
            return Ok(ClientStep::Wait);
        }
        let body = core::mem::take(&mut self.partial);
        let cookie = chunk.cookie;
        let Some(pending) = self.pending.get_mut(&cookie) else {
            return Err(ClientError::Rule("a reply has no request"));
        };
        let finishes = chunk.done.then_some(cookie);
        self.phase = Phase::Payload { left: 0, finishes };
        match chunk.kind {
            chunk::NONE => Ok(ClientStep::Again),
            chunk::OFFSET_DATA => {
                let offset = Reader::new("a data chunk", &body).u64()?;
                let length = chunk.length - OFFSET_BYTES;
                pending.claim(offset, length)?;
                self.phase = Phase::Payload { left: length, finishes };
                Ok(ClientStep::Event(ClientEvent::ReadData { cookie, offset, length }))
            }
            chunk::OFFSET_HOLE => {
                let hole = HoleChunk::decode(&body)?;
                let (offset, length) = (hole.offset, u64::from(hole.length));
                pending.claim(offset, length)?;
                Ok(ClientStep::Event(ClientEvent::ReadHole { cookie, offset, length }))
            }
            chunk::BLOCK_STATUS | chunk::BLOCK_STATUS_EXT => {
                let BlockStatus { context, mut extents } = BlockStatus::decode(self.style, &body)?;
                pending.check_extents(&mut extents)?;
                let Some(at) = pending.contexts_due.iter().position(|due| *due == context) else {
                    return Err(ClientError::Rule("a block status names a context twice or unasked"));
                };
                pending.contexts_due.swap_remove(at);
                Ok(ClientStep::Event(ClientEvent::BlockStatus { cookie, context, extents }))
            }
            kind => {
                let error = decode_error(kind, &body)?;
                pending.error.get_or_insert(error);
                Ok(ClientStep::Again)
            }
        }
    }

    /// Reports a request as done after its last chunk.
    pub(super) fn finish(&mut self, cookie: u64) -> ClientProgress {
        let Some(pending) = self.pending.remove(&cookie) else {
            return Err(ClientError::Rule("a reply has no request"));
        };
        self.stopping |= pending.error.as_ref().is_some_and(|error| error.code == ErrorCode::Shutdown);
        let result = pending.error.as_ref().map_or(Ok(()), |error| Err(error.clone()));
        if result.is_ok() && pending.command == command::READ && !pending.is_covered() {
            return Err(ClientError::Rule("a read says success before all its data came"));
        }
        if result.is_ok() && !pending.contexts_due.is_empty() {
            return Err(ClientError::Rule("a block status lacks a context"));
        }
        Ok(ClientStep::Event(ClientEvent::Done { cookie, result }))
    }
}

/// Error chunks of unknown types begin like known ones; bytes after the text are ignored.
fn decode_error(kind: u16, body: &[u8]) -> Result<RemoteError, WireError> {
    let known = match kind {
        chunk::ERROR => ErrorChunk::decode(false, body)?,
        chunk::ERROR_OFFSET => ErrorChunk::decode(true, body)?,
        _ => {
            let mut reader = Reader::new("an error chunk", body);
            reader.u32()?;
            let text = reader.u16()?;
            reader.take(usize::from(text))?;
            let known_length = body.len() - reader.rest().len();
            ErrorChunk::decode(false, &body[..known_length])?
        }
    };
    Ok(RemoteError { code: ErrorCode::from_number(known.error), message: known.message })
}
