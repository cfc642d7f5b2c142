//! The stub's transmission phase.

use super::{Call, Pipe, Rules};
use crate::session::{Chunk, Mode, Request};
use crate::wire::{
    Cursor, EXTENDED_REPLY, EXTENDED_REQUEST, Message, REQUEST, SIMPLE_REPLY, STRUCTURED_REPLY, cflag, chunk,
    cmd, err, flag,
};
use std::sync::Mutex;
use zc_core::{u64_from_usize, usize_from_u64};

/// The longest payload that is read.
const PAYLOAD_MAX: u64 = 33 << 20;

/// The grain of holes and extents.
const GRAIN: u64 = 4096;

/// Longest range whose extents fit one reply.
const STATUS_MAX: u64 = 4 << 20;

/// One session's surroundings.
struct Server<'a> {
    rules: &'a Rules,
    mode: Mode,
    disk: &'a Mutex<Vec<u8>>,
    frozen: bool,
    contexts: &'a [u32],
}

/// Serves requests until one side hangs up.
pub(super) fn serve(
    pipe: &mut Pipe,
    rules: &Rules,
    mode: Mode,
    disk: &Mutex<Vec<u8>>,
    frozen: bool,
    contexts: &[u32],
) -> Option<()> {
    let server = Server { rules, mode, disk, frozen, contexts };
    loop {
        let mut request = server.receive(pipe)?;
        if request.cmd == cmd::DISC {
            if rules.ignore_disc {
                continue;
            }
            return None;
        }
        if (rules.drop_request)(&Call { mode, request: &request }) {
            return None;
        }
        let original = request.clone();
        (rules.request)(&mut request);
        let call = Call { mode, request: &original };
        let mut chunks = match server.execute(&request) {
            Ok(chunks) => chunks,
            Err(error) => vec![server.error(&request, error)],
        };
        (rules.chunks)(&call, &mut chunks);
        let mut bytes = Vec::new();
        chunks.iter().for_each(|chunk| bytes.extend(encode(mode, &original, chunk)));
        (rules.bytes)(&call, &mut bytes);
        pipe.write(&bytes)?;
    }
}

fn encode(mode: Mode, request: &Request, chunk: &Chunk) -> Vec<u8> {
    let Some(kind) = chunk.kind else {
        return Message::default()
            .u32(SIMPLE_REPLY)
            .u32(chunk.error)
            .u64(chunk.cookie)
            .bytes(&chunk.payload)
            .0;
    };
    let magic = if mode == Mode::Extended { EXTENDED_REPLY } else { STRUCTURED_REPLY };
    let head = Message::default().u32(magic).u16(chunk.flags).u16(kind).u64(chunk.cookie);
    if mode == Mode::Extended {
        return head.u64(request.offset).u64(u64_from_usize(chunk.payload.len())).bytes(&chunk.payload).0;
    }
    head.counted(&chunk.payload).0
}

impl Server<'_> {
    fn receive(&self, pipe: &mut Pipe) -> Option<Request> {
        let extended = self.mode == Mode::Extended;
        let mut header = pipe.read(28)?;
        let magic = Cursor::new(&header, "a request").u32().ok()?;
        let right = if extended { EXTENDED_REQUEST } else { REQUEST };
        if magic != right && !self.rules.any_magic {
            return None;
        }
        if extended && magic != REQUEST {
            header.extend(pipe.read(4)?);
        }
        let mut cursor = Cursor::new(&header[4..], "a request");
        let (flags, cmd) = (cursor.u16().ok()?, cursor.u16().ok()?);
        let (cookie, offset) = (cursor.u64().ok()?, cursor.u64().ok()?);
        let length = if header.len() == 32 { cursor.u64().ok()? } else { cursor.u32().ok()?.into() };
        let carries = if extended { flags & cflag::PAYLOAD_LEN != 0 } else { cmd == cmd::WRITE };
        let endless = carries && length > PAYLOAD_MAX;
        if endless && !self.rules.patient {
            return None;
        }
        let carries = carries && !endless;
        let mut request = Request { cmd, flags, cookie, offset, length, payload: Vec::new() };
        let refused = self.rules.leave_payload && self.check(&request).is_err();
        if carries && !refused {
            request.payload = pipe.read(usize_from_u64(length))?;
        }
        Some(request)
    }

    fn size(&self) -> u64 {
        u64_from_usize(self.disk.lock().unwrap().len())
    }

    fn error(&self, request: &Request, error: u32) -> Chunk {
        let base = Chunk { kind: None, flags: 0, cookie: request.cookie, error, payload: Vec::new() };
        if self.mode == Mode::Simple {
            return base;
        }
        let payload = Message::default().u32(error).u16(2).bytes(b"no").0;
        Chunk { kind: Some(chunk::ERROR_BIT | 1), flags: chunk::DONE, payload, ..base }
    }

    /// A reply that carries nothing but success.
    fn done(&self, request: &Request) -> Chunk {
        let base = Chunk { kind: None, flags: 0, cookie: request.cookie, error: 0, payload: Vec::new() };
        if self.mode == Mode::Simple {
            base
        } else {
            Chunk { kind: Some(chunk::NONE), flags: chunk::DONE, ..base }
        }
    }

    fn allowed_flags(&self, cmd: u16) -> u16 {
        let offers = |bit, flag| if self.rules.flags & bit != 0 { flag } else { 0 };
        let own = match cmd {
            cmd::READ if self.mode != Mode::Simple => offers(flag::DF, cflag::DF),
            cmd::WRITE if self.mode == Mode::Extended => cflag::PAYLOAD_LEN,
            cmd::WRITE_ZEROES => cflag::NO_HOLE | offers(flag::FAST_ZERO, cflag::FAST_ZERO),
            cmd::BLOCK_STATUS if self.mode == Mode::Extended && self.rules.status_payload => {
                cflag::REQ_ONE | cflag::PAYLOAD_LEN
            }
            cmd::BLOCK_STATUS => cflag::REQ_ONE,
            _ => 0,
        };
        own | offers(flag::FUA, cflag::FUA) | self.rules.ignored_flags
    }

    /// Everything that makes a request fail.
    fn check(&self, request: &Request) -> Result<(), u32> {
        let writes = matches!(request.cmd, cmd::WRITE | cmd::TRIM | cmd::WRITE_ZEROES);
        if request.cmd > cmd::BLOCK_STATUS || request.flags & !self.allowed_flags(request.cmd) != 0 {
            return Err(err::EINVAL);
        }
        if writes && self.frozen {
            return Err(err::EPERM);
        }
        let bare = request.cmd == cmd::WRITE && request.flags & cflag::PAYLOAD_LEN == 0;
        if bare && self.mode == Mode::Extended {
            return Err(err::EINVAL);
        }
        if request.cmd == cmd::BLOCK_STATUS && self.contexts.is_empty() {
            return Err(err::EINVAL);
        }
        let minimum = u64::from(self.rules.block[0]);
        if !(request.offset.is_multiple_of(minimum) && request.length.is_multiple_of(minimum))
            && request.flags & cflag::PAYLOAD_LEN == 0
        {
            return Err(err::EINVAL);
        }
        let payload_status = request.cmd == cmd::BLOCK_STATUS && request.flags & cflag::PAYLOAD_LEN != 0;
        let length = if payload_status { 0 } else { request.length };
        let end = request.offset.checked_add(length).filter(|end| *end <= self.size());
        if end.is_none() {
            let full = matches!(request.cmd, cmd::WRITE | cmd::WRITE_ZEROES);
            return Err(if full { err::ENOSPC } else { err::EINVAL });
        }
        Ok(())
    }

    fn execute(&self, request: &Request) -> Result<Vec<Chunk>, u32> {
        if self.frozen && self.rules.write_frozen && request.cmd == cmd::WRITE {
            self.fill(request, &request.payload);
        }
        self.check(request)?;
        match request.cmd {
            cmd::READ => return self.read(request),
            cmd::WRITE if !(self.rules.lose)(request) => self.fill(request, &request.payload),
            cmd::WRITE_ZEROES if !(self.rules.lose)(request) => {
                self.fill(request, &vec![0; usize_from_u64(request.length)]);
            }
            cmd::BLOCK_STATUS => return self.status(request),
            _ => {}
        }
        Ok(vec![self.done(request)])
    }

    fn fill(&self, request: &Request, bytes: &[u8]) {
        let at = usize_from_u64(request.offset);
        self.disk.lock().unwrap()[at..at + bytes.len()].copy_from_slice(bytes);
    }

    fn read(&self, request: &Request) -> Result<Vec<Chunk>, u32> {
        let disk = self.disk.lock().unwrap();
        let (from, to) = (request.offset, request.offset + request.length);
        let bytes = |from: u64, to: u64| &disk[usize_from_u64(from)..usize_from_u64(to)];
        let base = self.done(request);
        if self.mode == Mode::Simple {
            return Ok(vec![Chunk { payload: bytes(from, to).to_vec(), ..base }]);
        }
        let chunk = |kind, payload: Message| Chunk {
            kind: Some(kind),
            flags: 0,
            cookie: request.cookie,
            error: 0,
            payload: payload.0,
        };
        let data = |from, to| chunk(chunk::DATA, Message::default().u64(from).bytes(bytes(from, to)));
        let mut chunks = Vec::new();
        if request.flags & cflag::DF != 0 {
            chunks.push(data(from, to));
        } else {
            for (at, end, zero) in runs(&disk, from, to) {
                let size = u32::try_from(end - at).map_err(|_| err::EINVAL)?;
                let hole = Message::default().u64(at).u32(size);
                if zero {
                    chunks.push(chunk(chunk::HOLE, hole));
                    continue;
                }
                let step = u64::from(self.rules.block[2]);
                let starts = (at..end).step_by(usize_from_u64(step));
                chunks.extend(starts.map(|at| data(at, end.min(at + step))));
            }
        }
        chunks.push(base);
        Ok(chunks)
    }

    fn status(&self, request: &Request) -> Result<Vec<Chunk>, u32> {
        let mut contexts = self.contexts.to_vec();
        let mut length = request.length;
        if request.flags & cflag::PAYLOAD_LEN != 0 {
            let mut cursor = Cursor::new(&request.payload, "ids");
            length = cursor.u64().map_err(|_| err::EINVAL)?;
            contexts.clear();
            while !cursor.is_empty() {
                let id = cursor.u32().map_err(|_| err::EINVAL)?;
                if contexts.contains(&id) || !self.contexts.contains(&id) {
                    return Err(err::EINVAL);
                }
                contexts.push(id);
            }
        }
        if length == 0 {
            return Err(err::EINVAL);
        }
        let disk = self.disk.lock().unwrap();
        let mut extents = runs(&disk, request.offset, request.offset + length.min(STATUS_MAX));
        if request.flags & cflag::REQ_ONE != 0 {
            extents.truncate(1);
        }
        let one = |id: u32| {
            let extended = self.mode == Mode::Extended;
            let count = u32::try_from(extents.len()).unwrap_or(u32::MAX);
            let head = Message::default().u32(id);
            let head = if extended { head.u32(count) } else { head };
            let payload = extents.iter().fold(head, |message, (at, end, zero)| {
                let flags: u32 = if *zero { 3 } else { 0 };
                if extended {
                    message.u64(end - at).u64(flags.into())
                } else {
                    message.u32(u32::try_from(end - at).unwrap_or(u32::MAX)).u32(flags)
                }
            });
            let kind = Some(if extended { chunk::STATUS_EXT } else { chunk::STATUS });
            Chunk { kind, flags: 0, cookie: request.cookie, error: 0, payload: payload.0 }
        };
        let mut chunks: Vec<Chunk> = contexts.into_iter().map(one).collect();
        chunks.push(self.done(request));
        Ok(chunks)
    }
}

/// Runs of zero and other grains: start, end, `true` if zero. The ends are those of the range.
fn runs(disk: &[u8], from: u64, to: u64) -> Vec<(u64, u64, bool)> {
    let mut runs: Vec<(u64, u64, bool)> = Vec::new();
    let mut at = from;
    while at < to {
        let end = ((at / GRAIN + 1) * GRAIN).min(to);
        let zero = disk[usize_from_u64(at)..usize_from_u64(end)].iter().all(|byte| *byte == 0);
        match runs.last_mut() {
            Some(last) if last.2 == zero => last.1 = end,
            _ => runs.push((at, end, zero)),
        }
        at = end;
    }
    runs
}
