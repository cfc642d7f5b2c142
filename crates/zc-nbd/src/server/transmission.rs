//! The server's transmission phase: request headers in, checked requests out.
//!
//! Job: decode each header, refuse requests that the protocol or the export forbids, pass the rest to the driver.
//!
//! Invariants: a request that reaches the driver lies inside the export, carries only flags that were advertised and
//! has at least one byte (FLUSH excepted); offset + length never overflows.
//!
//! It does not execute requests, or check alignment finer than the export's minimum block.

use super::{CloseReason, ExportInfo, Phase, ServerEvent, ServerSession, ServerStep};
use crate::proto::{ErrorCode, command, command_flag, limits};
use crate::wire::{HeaderStyle, RequestHeader, StatusFilter};

/// Commands that reach the driver.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Command {
    /// Read `length` bytes.
    Read,
    /// Write `length` payload bytes.
    Write,
    /// Make every write replied to so far durable, on all connections if the export is multi-conn.
    Flush,
    /// The range is no longer needed; doing nothing is allowed.
    Trim,
    /// Prefetch the range.
    Cache,
    /// Make the range read as zeroes.
    WriteZeroes,
    /// Describe the range by the negotiated contexts.
    BlockStatus,
}

/// A checked request. It is consumed by its reply, so it cannot be answered twice.
#[derive(Debug, PartialEq, Eq)]
#[must_use = "every request must be answered once"]
pub struct Request {
    pub(super) command: Command,
    pub(super) flags: u16,
    pub(super) cookie: u64,
    pub(super) offset: u64,
    pub(super) length: u64,
    /// Bit n: the context with id n + 1 is requested.
    pub(super) contexts: u32,
}

/// [`Request::contexts`] of a request that does not choose.
const EVERY_CONTEXT: u32 = u32::MAX;

impl Request {
    /// Returns the command.
    #[must_use]
    pub const fn command(&self) -> Command {
        self.command
    }

    /// The client's opaque value; it may repeat, so it is no key.
    #[must_use]
    pub const fn cookie(&self) -> u64 {
        self.cookie
    }

    /// First byte of the range.
    #[must_use]
    pub const fn offset(&self) -> u64 {
        self.offset
    }

    /// Bytes of the range; at most the export's maximum payload for READ and WRITE.
    #[must_use]
    pub const fn length(&self) -> u64 {
        self.length
    }

    /// Durable before the reply.
    #[must_use]
    pub const fn fua(&self) -> bool {
        self.flags & command_flag::FUA != 0
    }

    /// `WRITE_ZEROES`: provision the range.
    #[must_use]
    pub const fn no_hole(&self) -> bool {
        self.flags & command_flag::NO_HOLE != 0
    }

    /// `WRITE_ZEROES`: be fast or answer [`ErrorCode::NotSup`] without touching the data.
    #[must_use]
    pub const fn fast_zero(&self) -> bool {
        self.flags & command_flag::FAST_ZERO != 0
    }

    /// `READ`: one content chunk only.
    #[must_use]
    pub const fn dont_fragment(&self) -> bool {
        self.flags & command_flag::DF != 0
    }

    /// `BLOCK_STATUS`: one extent per context is enough.
    #[must_use]
    pub const fn one_extent(&self) -> bool {
        self.flags & command_flag::REQ_ONE != 0
    }

    /// Returns `true` if a `BLOCK_STATUS` requests the context with this id. Others need no extents.
    #[must_use]
    pub const fn wants_context(&self, id: u32) -> bool {
        match id.checked_sub(1) {
            Some(bit) if bit < u32::BITS => self.contexts & (1 << bit) != 0,
            _ => false,
        }
    }

    /// Payload bytes the request keeps in memory while in flight.
    pub(super) const fn payload_bytes(&self) -> u64 {
        match self.command {
            Command::Read | Command::Write => self.length,
            _ => 0,
        }
    }
}

/// An error reply that waits until the refused request's payload has gone by.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Refusal {
    pub(super) cookie: u64,
    pub(super) offset: u64,
    pub(super) code: ErrorCode,
    pub(super) text: &'static str,
}

/// Reason for refusing a request: error code and text for people.
type Refused = (ErrorCode, &'static str);

const BAD_FILTER: Refused = (ErrorCode::Inval, "the payload of a block status is malformed");

impl ServerSession {
    pub(super) fn step_request(&mut self, input: &mut &[u8], out: &mut Vec<u8>) -> ServerStep {
        if self.in_flight >= self.config.limits.in_flight {
            self.paused = true;
            return ServerStep::Wait;
        }
        let wanted = self.style.request_bytes();
        let direct = self.partial.is_empty() && input.len() >= wanted;
        if !direct && !self.fill(input, wanted) {
            return ServerStep::Wait;
        }
        let bytes = if direct { &input[..wanted] } else { self.partial.as_slice() };
        let header = match RequestHeader::decode(self.style, bytes) {
            Ok(header) => header,
            Err(error) => return self.close(error.into()),
        };
        let has_payload_bytes = matches!(header.command, command::READ | command::WRITE);
        let total = self.in_flight_bytes.saturating_add(if has_payload_bytes { header.length } else { 0 });
        if self.in_flight_bytes > 0 && total > self.config.limits.in_flight_bytes {
            self.paused = true;
            return ServerStep::Wait;
        }
        if direct {
            *input = &input[wanted..];
        } else {
            self.partial.clear();
        }
        self.admit(&header, out)
    }

    fn admit(&mut self, header: &RequestHeader, out: &mut Vec<u8>) -> ServerStep {
        if header.command == command::DISC {
            self.phase = Phase::Ended;
            self.partial = Vec::new();
            return ServerStep::Event(ServerEvent::Disconnect);
        }
        let payload = match self.payload_on_the_wire(header) {
            Ok(payload) => payload,
            Err(reason) => return self.close(reason),
        };
        let filtered = header.command == command::BLOCK_STATUS && payload > 0;
        if filtered && payload <= limits::STATUS_PAYLOAD_BYTES_MAX {
            self.phase = Phase::StatusPayload { header: *header };
            return ServerStep::Again;
        }
        let checked = if filtered { Err(BAD_FILTER) } else { self.check(header, EVERY_CONTEXT) };
        self.conclude(header, checked, payload, out)
    }

    /// Refuses a request, answers it if it has nothing to do, or hands it to the driver. `payload` bytes follow.
    fn conclude(
        &mut self,
        header: &RequestHeader,
        checked: Result<Request, Refused>,
        payload: u64,
        out: &mut Vec<u8>,
    ) -> ServerStep {
        match checked {
            Err((code, text)) => {
                let refusal = Refusal { cookie: header.cookie, offset: header.offset, code, text };
                self.phase = Phase::SkipPayload { left: payload, refusal };
                ServerStep::Again
            }
            Ok(request) if request.length == 0 && request.command != Command::Flush => {
                self.put_done(request.cookie, request.offset, request.command, out);
                ServerStep::Again
            }
            Ok(request) => {
                self.in_flight += 1;
                self.in_flight_bytes += request.payload_bytes();
                if request.command == Command::Write {
                    self.phase = Phase::Payload { left: request.length };
                    return ServerStep::Event(ServerEvent::WriteBegin(request));
                }
                ServerStep::Event(ServerEvent::Request(request))
            }
        }
    }

    /// Parses the payload of a `BLOCK_STATUS`: the effect length and the requested contexts.
    pub(super) fn step_status_payload(&mut self, input: &mut &[u8], out: &mut Vec<u8>) -> ServerStep {
        let Phase::StatusPayload { header } = self.phase else { return ServerStep::Again };
        if !self.fill(input, zc_core::usize_from_u64(header.length)) {
            return ServerStep::Wait;
        }
        let checked = match StatusFilter::decode(&self.partial) {
            Ok(filter) => self.context_bits(&filter.contexts).and_then(|bits| {
                let length = filter.length;
                self.check(&RequestHeader { length, ..header }, bits)
            }),
            Err(_) => Err(BAD_FILTER),
        };
        self.partial.clear();
        self.phase = Phase::Requests;
        self.conclude(&header, checked, 0, out)
    }

    /// The contexts of a filter as bits; unknown and repeated ones are refused.
    fn context_bits(&self, ids: &[u32]) -> Result<u32, Refused> {
        let mut bits = 0_u32;
        for wanted in ids {
            let known = self.contexts().iter().any(|(id, _)| id == wanted);
            let bit = wanted.checked_sub(1).and_then(|bit| 1_u32.checked_shl(bit)).unwrap_or(0);
            if !known || bits & bit != 0 {
                return Err((ErrorCode::Inval, "a block status names a context twice or one not negotiated"));
            }
            bits |= bit;
        }
        Ok(bits)
    }

    /// Returns the bytes that follow a legal or illegal header. A WRITE always has its payload: qemu 10.0 negotiates
    /// extended headers and does not set PAYLOAD_LEN, although the protocol requires it.
    fn payload_on_the_wire(&self, header: &RequestHeader) -> Result<u64, CloseReason> {
        let extended = self.style == HeaderStyle::Extended;
        let announced = extended && header.flags & command_flag::PAYLOAD_LEN != 0;
        if header.command != command::WRITE && !announced {
            return Ok(0);
        }
        if extended && header.length > u64::from(self.payload_limit()) {
            return Err(CloseReason::Limit("a payload is longer than the export's maximum"));
        }
        Ok(header.length)
    }

    fn payload_limit(&self) -> u32 {
        self.export.as_ref().map_or(limits::PAYLOAD_BYTES_MAX, |export| export.blocks.max_bytes())
    }

    pub(super) fn step_skip_payload(&mut self, input: &mut &[u8], out: &mut Vec<u8>) -> ServerStep {
        let Phase::SkipPayload { left, refusal } = self.phase else { return ServerStep::Again };
        let left = left - zc_core::u64_from_usize(crate::stream::cut(input, left).len());
        if left > 0 {
            self.phase = Phase::SkipPayload { left, refusal };
            return ServerStep::Wait;
        }
        self.phase = Phase::Requests;
        self.put_error(refusal.cookie, refusal.offset, refusal.code, refusal.text, out);
        ServerStep::Again
    }

    fn check(&self, header: &RequestHeader, contexts: u32) -> Result<Request, Refused> {
        let Some(export) = &self.export else {
            return Err((ErrorCode::Inval, "no export is attached"));
        };
        let kind = self.known_command(header, export)?;
        let request = Request {
            command: kind,
            flags: header.flags,
            cookie: header.cookie,
            offset: header.offset,
            length: header.length,
            contexts,
        };
        if self.shutting_down {
            return Err((ErrorCode::Shutdown, "the server is shutting down"));
        }
        if kind == Command::Flush {
            return if header.offset == 0 && header.length == 0 {
                Ok(request)
            } else {
                Err((ErrorCode::Inval, "offset and length of a flush must be zero"))
            };
        }
        check_range(&request, export)?;
        self.check_payload(&request)?;
        Ok(request)
    }

    fn known_command(&self, header: &RequestHeader, export: &ExportInfo) -> Result<Command, Refused> {
        let offered = export.flags;
        let writes = matches!(header.command, command::WRITE | command::TRIM | command::WRITE_ZEROES);
        if writes && offered.read_only {
            return Err((ErrorCode::Perm, "the export is read-only"));
        }
        let structured = self.style != HeaderStyle::Simple;
        let (kind, on, flags) = match header.command {
            command::READ => (Command::Read, true, if structured { command_flag::DF } else { 0 }),
            command::WRITE => (Command::Write, true, self.payload_flag()),
            command::FLUSH => (Command::Flush, offered.flush, 0),
            command::TRIM => (Command::Trim, offered.trim, 0),
            command::CACHE => (Command::Cache, offered.cache, 0),
            command::WRITE_ZEROES => {
                let fast = if offered.fast_zero { command_flag::FAST_ZERO } else { 0 };
                (Command::WriteZeroes, offered.write_zeroes, command_flag::NO_HOLE | fast)
            }
            command::BLOCK_STATUS => {
                let flags = command_flag::REQ_ONE | self.payload_flag();
                (Command::BlockStatus, !self.contexts().is_empty(), flags)
            }
            _ => return Err((ErrorCode::Inval, "unknown command")),
        };
        if !on {
            return Err((ErrorCode::Inval, "the command is not offered by this export"));
        }
        let fua = if offered.fua { command_flag::FUA } else { 0 };
        if header.flags & !(flags | fua) != 0 {
            return Err((ErrorCode::Inval, "a command flag is unknown or not offered"));
        }
        Ok(kind)
    }

    fn payload_flag(&self) -> u16 {
        if self.style == HeaderStyle::Extended { command_flag::PAYLOAD_LEN } else { 0 }
    }

    fn check_payload(&self, request: &Request) -> Result<(), Refused> {
        let too_long = request.payload_bytes() > u64::from(self.payload_limit());
        match request.command {
            Command::Read if too_long && request.dont_fragment() => {
                Err((ErrorCode::Overflow, "the read is too long for one chunk"))
            }
            Command::Read | Command::Write if too_long => {
                Err((ErrorCode::Inval, "the request is longer than the export's maximum block size"))
            }
            Command::BlockStatus if request.length == 0 => {
                Err((ErrorCode::Inval, "a block status request has no bytes"))
            }
            _ => Ok(()),
        }
    }

    /// Books a request out; called by every final reply.
    pub(super) fn settle(&mut self, request: Request) -> Request {
        assert!(self.in_flight > 0, "a reply without a request in flight");
        self.in_flight -= 1;
        self.in_flight_bytes -= request.payload_bytes();
        request
    }
}

fn check_range(request: &Request, export: &ExportInfo) -> Result<(), Refused> {
    let inside = request.offset.checked_add(request.length).is_some_and(|end| end <= export.size_bytes);
    if !inside {
        let code = match request.command {
            Command::Write | Command::WriteZeroes => ErrorCode::NoSpc,
            _ => ErrorCode::Inval,
        };
        return Err((code, "the range lies beyond the end of the export"));
    }
    let min = u64::from(export.blocks.min_bytes());
    if !request.offset.is_multiple_of(min) || !request.length.is_multiple_of(min) {
        return Err((ErrorCode::Inval, "the range is not aligned to the export's minimum block size"));
    }
    Ok(())
}
