//! Feeds a client's bytes to a server session: no panic, bounds kept, the same outcome for any split of the stream,
//! and well-formed output with structured or extended headers.
//!
//! The first input byte selects TLS, limits and the time of replies, the second the split; the rest is the stream.

use zc_nbd::Need;
use zc_nbd::proto::{BASE_ALLOCATION, chunk};
use zc_nbd::server::{
    Access, BlockSizes, Command, ExportCatalog, ExportFlags, ExportInfo, HoleForm, Request, ServerConfig,
    ServerEvent, ServerLimits, ServerSession, TlsMode,
};
use zc_nbd::wire::{BlockStatus, ChunkHeader, ErrorChunk, HeaderStyle, HoleChunk, ServerEntry, SimpleReply};

/// Most bytes that one event appends besides read data: all answers to one option, or all status chunks.
const ANSWER_BYTES_MAX: usize = 32 << 10;

pub(crate) fn run(data: &[u8]) {
    let [choice, cut, stream @ ..] = data else { return };
    let whole = Run::of(*choice, stream, usize::MAX);
    // Chunk boundaries decide whether plain bytes follow STARTTLS, so all splits are equivalent only without TLS.
    if choice & 3 == 0 {
        let pieces = Run::of(*choice, stream, usize::from(*cut).max(1));
        assert_eq!(pieces.sent, whole.sent);
        assert_eq!((pieces.end, pieces.events), (whole.end, whole.events));
    }
    check_replies(&whole);
}

/// Three exports: one for all, one over TLS only, one for no client.
struct Exports([ExportInfo; 3]);

impl Exports {
    fn new() -> Self {
        let all = ExportFlags {
            flush: true,
            fua: true,
            trim: true,
            write_zeroes: true,
            fast_zero: true,
            cache: true,
            ..ExportFlags::default()
        };
        let export = |name: &str, flags, blocks, contexts: &[&str]| ExportInfo {
            name: name.to_owned(),
            description: "b".to_owned(),
            size_bytes: 1 << 16,
            flags,
            blocks,
            contexts: contexts.iter().map(|&context| context.to_owned()).collect(),
            token: 1,
        };
        let coarse = BlockSizes::new(512, 512, 4096).unwrap_or(BlockSizes::DEFAULT);
        Self([
            export("a", all, BlockSizes::DEFAULT, &[BASE_ALLOCATION, "x-test:b"]),
            export("t", ExportFlags { read_only: true, ..all }, coarse, &[BASE_ALLOCATION]),
            export("d", all, BlockSizes::DEFAULT, &[]),
        ])
    }
}

impl ExportCatalog for Exports {
    fn lookup(&self, name: &str) -> Option<ExportInfo> {
        self.0.lookup(name)
    }

    fn list(&self) -> Vec<ServerEntry> {
        self.0.list()
    }

    fn access(&self, name: &str) -> Access {
        match name {
            "t" => Access::OverTls,
            "d" => Access::Denied,
            _ => Access::Granted,
        }
    }
}

/// One session's life.
struct Run {
    session: ServerSession,
    limits: ServerLimits,
    out: Vec<u8>,
    sent: Vec<u8>,
    /// Bytes sent when the transmission phase began.
    attached_at: Option<usize>,
    events: u32,
    /// Requests that wait for their answer, if they are held at all.
    held: Option<Vec<Request>>,
    write: Option<Request>,
    end: (Need, u32),
}

impl Run {
    fn of(choice: u8, stream: &[u8], piece: usize) -> Self {
        let mut limits = ServerLimits { option_data_bytes: 4096, options: 64, ..ServerLimits::default() };
        if choice & 8 != 0 {
            limits = ServerLimits { in_flight: 3, in_flight_bytes: 5000, output_bytes: 300, ..limits };
        }
        let tls = match choice & 3 {
            0 => TlsMode::Off,
            1 => TlsMode::Allowed,
            _ => TlsMode::Required,
        };
        let mut out = Vec::new();
        let session = ServerSession::new(ServerConfig { limits, tls, ..ServerConfig::default() }, &mut out);
        let held = (choice & 4 != 0).then(Vec::new);
        let end = (Need::Input, 0);
        let mut run = Self {
            session,
            limits,
            out,
            sent: Vec::new(),
            attached_at: None,
            events: 0,
            held,
            write: None,
            end,
        };
        let exports = Exports::new();
        for piece in stream.chunks(piece) {
            run.feed(piece, &exports);
        }
        run.end = (run.session.need(), run.session.in_flight());
        run.answer_held();
        run.send();
        run
    }

    fn feed(&mut self, mut input: &[u8], exports: &Exports) {
        loop {
            if self.write.is_some() {
                self.session.take_payload(&mut input);
                if matches!(self.session.need(), Need::Payload { .. }) {
                    return;
                }
                if let Some(request) = self.write.take() {
                    self.answer_or_hold(request);
                }
            }
            let before = self.out.len();
            let event = self.session.next_event(&mut input, exports, &mut self.out);
            assert!(self.out.len() <= before.max(self.limits.output_bytes) + ANSWER_BYTES_MAX);
            assert!(self.session.buffered_bytes() <= 4096 + 16);
            assert!(self.session.in_flight() <= self.limits.in_flight);
            self.events += u32::from(event.is_some());
            match event {
                None if self.session.tls_due() => {
                    assert!(input.is_empty());
                    self.send();
                    self.session.tls_started();
                    return;
                }
                None if self.session.need() == Need::Replies => {
                    self.answer_held();
                    self.send();
                }
                None => return,
                Some(ServerEvent::Attached { .. }) => {
                    self.attached_at = Some(self.sent.len() + self.out.len());
                }
                Some(ServerEvent::Request(request)) => self.answer_or_hold(request),
                Some(ServerEvent::WriteBegin(request)) => self.write = Some(request),
                Some(ServerEvent::Refused { .. } | ServerEvent::Disconnect | ServerEvent::Closed(_)) => {}
            }
        }
    }

    fn send(&mut self) {
        self.sent.append(&mut self.out);
    }

    fn answer_or_hold(&mut self, request: Request) {
        match &mut self.held {
            Some(held) => held.push(request),
            None => self.answer(request),
        }
    }

    /// Last come, first served.
    fn answer_held(&mut self) {
        while let Some(request) = self.held.as_mut().and_then(Vec::pop) {
            self.answer(request);
        }
    }

    fn answer(&mut self, request: Request) {
        let range_end = request.offset().checked_add(request.length());
        assert!(range_end.is_some_and(|end| end <= 1 << 16), "a request reaches beyond the export");
        match request.command() {
            Command::Read => {
                let length = request.length();
                let mut reply = self.session.begin_read(request);
                let hole = length / 2;
                if hole > 0 && self.session.read_hole(&mut reply, hole, &mut self.out) == HoleForm::SendZeroes
                {
                    self.data(hole);
                }
                self.session.read_data(&mut reply, length - hole, &mut self.out);
                self.data(length - hole);
                self.session.end_read(reply);
            }
            Command::BlockStatus => self.session.reply_block_status(request, |_| Vec::new(), &mut self.out),
            _ => self.session.reply_done(request, &mut self.out),
        }
    }

    fn data(&mut self, bytes: u64) {
        self.out.resize(self.out.len() + usize::try_from(bytes).unwrap_or(0), 7);
    }
}

/// Everything after the handshake decodes. Simple replies to READs do not carry their length.
fn check_replies(run: &Run) {
    let style = run.session.style();
    let Some(at) = run.attached_at.filter(|_| style != HeaderStyle::Simple) else { return };
    let mut bytes = &run.sent[at..];
    while !bytes.is_empty() {
        if style == HeaderStyle::Structured && SimpleReply::decode(bytes).is_ok() {
            bytes = &bytes[SimpleReply::BYTES..];
            continue;
        }
        let Ok(header) = ChunkHeader::decode(style, bytes) else { panic!("no chunk at {:x?}", &bytes[..4]) };
        let body_end = style.chunk_bytes() + usize::try_from(header.length).unwrap_or(usize::MAX);
        let body = &bytes[style.chunk_bytes()..body_end];
        let decodes = match header.kind {
            chunk::NONE => body.is_empty(),
            chunk::OFFSET_DATA => body.len() > 8,
            chunk::OFFSET_HOLE => HoleChunk::decode(body).is_ok(),
            chunk::BLOCK_STATUS => {
                style == HeaderStyle::Structured && BlockStatus::decode(style, body).is_ok()
            }
            chunk::BLOCK_STATUS_EXT => {
                style == HeaderStyle::Extended && BlockStatus::decode(style, body).is_ok()
            }
            chunk::ERROR => ErrorChunk::decode(false, body).is_ok(),
            _ => false,
        };
        assert!(decodes, "chunk {header:?} {body:x?}");
        bytes = &bytes[body_end..];
    }
}
