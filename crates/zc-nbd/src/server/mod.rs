//! The server's side of one connection as a state machine.
//!
//! Job: bytes in, events and reply bytes out. The driver owns sockets, buffers and volumes:
//!
//! 1. [`ServerSession::new`] appends the greeting to the output.
//! 2. For each received chunk: call [`ServerSession::next_event`] until it returns `None`; [`ServerSession::need`]
//!    then decides about the socket. Remaining input stays with the driver.
//! 3. After [`ServerEvent::WriteBegin`] the payload goes straight into the driver's own buffer: first what
//!    [`ServerSession::take_payload`] cuts from the chunk at hand, then reads from the socket of at most
//!    [`Need::Payload`] bytes, reported by [`ServerSession::payload_received`].
//! 4. Each [`Request`] is answered once, in any order, by the reply functions, which append headers to the output;
//!    the data of a READ follows its header on the wire and never passes through the session. A driver that gathers
//!    output notes the output's length after each header as the place where data goes between.
//!
//! STARTTLS: after its ACK is in the output, [`ServerSession::next_event`] returns `None`, [`ServerSession::need`] is
//! [`Need::Replies`] and [`ServerSession::tls_due`] is true. The driver sends the output in plain, starts TLS with the
//! next bytes of the socket and, once it is established, calls [`ServerSession::tls_started`]; from then on it feeds
//! decrypted bytes. If the TLS handshake fails, it closes the connection. Plain bytes after STARTTLS close the
//! connection, because an injection would otherwise count as sent over TLS.
//!
//! Invariants: the session buffers at most one header or one option ([`ServerLimits::option_data_bytes`]); requests in
//! flight and their payload bytes are bounded; each request is answered exactly once (a [`Request`] is consumed by its
//! reply); a refused WRITE's payload is skipped; no input of a client causes a panic.
//!
//! Out of scope: time. Handshake and idle limits belong to the driver, as do TLS itself and the fencing of a
//! dead connection's writes.

mod export;
mod handshake;
mod reply;
mod transmission;

pub use export::{Access, BlockSizes, ExportCatalog, ExportFlags, ExportInfo};
pub use reply::{HoleForm, ReadFailure, ReadReply};
pub use transmission::{Command, Request};

use crate::proto::limits;
use crate::stream::Need;
use crate::wire::{Greeting, HeaderStyle, RequestHeader, WireError};
use transmission::Refusal;

/// Bounds of one connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ServerLimits {
    /// Longest option that is buffered; longer ones are answered `ERR_TOO_BIG`.
    pub option_data_bytes: u32,
    /// Most options in one handshake; then the connection is closed.
    pub options: u32,
    /// Most requests in flight; then the session pauses.
    pub in_flight: u32,
    /// Most payload bytes of READs and WRITEs in flight; then the session pauses. One request always fits.
    pub in_flight_bytes: u64,
    /// Output length from which on the session pauses until the driver has sent some.
    pub output_bytes: usize,
}

impl Default for ServerLimits {
    fn default() -> Self {
        Self {
            option_data_bytes: limits::OPTION_DATA_BYTES_DEFAULT,
            options: limits::OPTIONS_DEFAULT,
            in_flight: limits::IN_FLIGHT_DEFAULT,
            in_flight_bytes: limits::IN_FLIGHT_BYTES_DEFAULT,
            output_bytes: limits::OUTPUT_BYTES_DEFAULT,
        }
    }
}

/// TLS policy of a server. Constant over one connection (proto.md, "Server-side requirements").
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum TlsMode {
    /// No TLS: `STARTTLS` is answered `ERR_UNSUP` (proto.md: NOTLS).
    #[default]
    Off,
    /// At the client's choice, and required for exports with [`Access::OverTls`] (proto.md: SELECTIVETLS).
    Allowed,
    /// Required: before TLS every option but `STARTTLS` and `ABORT` is refused (proto.md: FORCEDTLS).
    Required,
}

/// Capabilities of a server.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ServerConfig {
    /// Bounds.
    pub limits: ServerLimits,
    /// Offer TLS.
    pub tls: TlsMode,
    /// Offer structured replies.
    pub structured: bool,
    /// Offer extended headers.
    pub extended: bool,
}

impl Default for ServerConfig {
    fn default() -> Self {
        Self { limits: ServerLimits::default(), tls: TlsMode::Off, structured: true, extended: true }
    }
}

/// Event of a connection.
#[derive(Debug, PartialEq, Eq)]
pub enum ServerEvent {
    /// The client chose the export with this token; requests follow. [`ServerSession::export`] has the rest.
    Attached {
        /// [`ExportInfo::token`].
        token: u64,
    },
    /// The client requested an export that it cannot have, and received an error. The handshake continues.
    Refused {
        /// Requested name, chosen by the client: at most 4096 bytes, empty for the default.
        export: String,
        /// Error text that was sent.
        why: &'static str,
    },
    /// A request other than WRITE.
    Request(Request),
    /// A WRITE whose payload of [`Request::length`] bytes comes next.
    WriteBegin(Request),
    /// The client disconnects: complete requests in flight, send the output, then close.
    Disconnect,
    /// The session is over: send the output, then close. No later event comes.
    Closed(CloseReason),
}

/// Reason for the end of the session.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum CloseReason {
    /// The client sent `ABORT`.
    #[error("the client aborted the handshake")]
    Aborted,
    /// The client's bytes are no NBD.
    #[error("NBD protocol error: {0}")]
    Wire(#[from] WireError),
    /// The client broke a rule that leaves no way on.
    #[error("NBD protocol error: {0}")]
    Rule(&'static str),
    /// The client chose an export that does not exist with `EXPORT_NAME`, which has no error reply.
    #[error("the client asked for the unknown export \"{0}\"")]
    UnknownExport(String),
    /// A bound of [`ServerLimits`] was reached.
    #[error("NBD limit reached: {0}")]
    Limit(&'static str),
}

#[derive(Debug)]
enum Phase {
    ClientFlags,
    Options,
    /// Reading past an option that is too long.
    SkipOption {
        option: u32,
        left: u32,
    },
    /// STARTTLS was acknowledged: the driver sends that and starts TLS.
    StartTls,
    Requests,
    /// The driver takes a WRITE's payload.
    Payload {
        left: u64,
    },
    /// Waiting for the payload of a BLOCK_STATUS.
    StatusPayload {
        header: RequestHeader,
    },
    /// Reading past the payload of a refused request.
    SkipPayload {
        left: u64,
        refusal: Refusal,
    },
    Ended,
}

enum ServerStep {
    Again,
    Wait,
    Event(ServerEvent),
}

/// One connection, from greeting to close.
#[derive(Debug)]
pub struct ServerSession {
    config: ServerConfig,
    phase: Phase,
    /// The first bytes of a header or option that is not complete yet.
    partial: Vec<u8>,
    paused: bool,
    shutting_down: bool,
    options_seen: u32,
    no_zeroes: bool,
    /// Effective TLS policy for this client: TLS needs fixed newstyle.
    tls: TlsMode,
    secured: bool,
    style: HeaderStyle,
    /// Export name and contexts of the last successful `SET_META_CONTEXT`.
    meta: Option<(String, Vec<(u32, String)>)>,
    export: Option<ExportInfo>,
    in_flight: u32,
    in_flight_bytes: u64,
}

impl ServerSession {
    /// A session on a fresh connection; appends the greeting to `out`.
    #[must_use]
    pub fn new(config: ServerConfig, out: &mut Vec<u8>) -> Self {
        Greeting { flags: handshake::OFFERED_FLAGS }.encode(out);
        Self {
            config,
            phase: Phase::ClientFlags,
            partial: Vec::new(),
            paused: false,
            shutting_down: false,
            options_seen: 0,
            no_zeroes: false,
            tls: config.tls,
            secured: false,
            style: HeaderStyle::Simple,
            meta: None,
            export: None,
            in_flight: 0,
            in_flight_bytes: 0,
        }
    }

    /// Consumes bytes from the front of `input` up to the next event. `None`: call [`ServerSession::need`]. Complete
    /// replies that need no driver (handshake, refused requests) are appended to `out`.
    pub fn next_event(
        &mut self,
        input: &mut &[u8],
        catalog: &(impl ExportCatalog + ?Sized),
        out: &mut Vec<u8>,
    ) -> Option<ServerEvent> {
        self.paused = false;
        loop {
            if out.len() >= self.config.limits.output_bytes && !matches!(self.phase, Phase::Payload { .. }) {
                self.paused = true;
                return None;
            }
            let step = match &self.phase {
                Phase::ClientFlags => self.step_client_flags(input),
                Phase::Options => self.step_option(input, catalog, out),
                Phase::SkipOption { .. } => self.step_skip_option(input, out),
                Phase::StartTls => self.step_start_tls(input),
                Phase::Requests => self.step_request(input, out),
                Phase::StatusPayload { .. } => self.step_status_payload(input, out),
                Phase::SkipPayload { .. } => self.step_skip_payload(input, out),
                Phase::Payload { .. } => ServerStep::Wait,
                Phase::Ended => {
                    *input = &[];
                    ServerStep::Wait
                }
            };
            match step {
                ServerStep::Again => {}
                ServerStep::Wait => return None,
                ServerStep::Event(event) => return Some(event),
            }
        }
    }

    /// Returns the need of the session after [`ServerSession::next_event`] returned `None`.
    #[must_use]
    pub const fn need(&self) -> Need {
        match self.phase {
            Phase::Ended => Need::Nothing,
            Phase::Payload { left } => Need::Payload { bytes: left },
            Phase::StartTls => Need::Replies,
            _ if self.paused => Need::Replies,
            _ => Need::Input,
        }
    }

    /// Cuts the part of the current WRITE's payload that is at hand off `input`; empty if no payload is due.
    pub fn take_payload<'a>(&mut self, input: &mut &'a [u8]) -> &'a [u8] {
        let Phase::Payload { left } = self.phase else { return &[] };
        let payload = crate::stream::cut(input, left);
        self.payload_received(zc_core::u64_from_usize(payload.len()));
        payload
    }

    /// Reports that `bytes` of the current WRITE's payload were received into the driver's buffer.
    ///
    /// # Panics
    /// If more than [`Need::Payload`] announced: a bug of the driver that would desynchronise the stream.
    pub fn payload_received(&mut self, bytes: u64) {
        let Phase::Payload { left } = self.phase else {
            assert!(bytes == 0, "payload reported while none is due");
            return;
        };
        assert!(bytes <= left, "more payload reported than is due");
        self.phase = if bytes == left { Phase::Requests } else { Phase::Payload { left: left - bytes } };
    }

    /// Refuses a WRITE whose payload is still (partly) on its way, e.g. because the driver has no buffer: the session
    /// reads past the rest and then answers `code`.
    ///
    /// # Panics
    /// If `request` is not the WRITE whose payload is due.
    pub fn refuse_payload(&mut self, request: Request, code: crate::ErrorCode, text: &'static str) {
        let Phase::Payload { left } = self.phase else { panic!("no payload is due") };
        assert!(request.command() == Command::Write, "only a WRITE has a payload");
        let code = reply::legal(&request, code);
        let request = self.settle(request);
        let refusal = Refusal { cookie: request.cookie, offset: request.offset, code, text };
        self.phase = Phase::SkipPayload { left, refusal };
    }

    /// Returns `true` if the session waits for the driver to send the output in plain, start TLS and call
    /// [`ServerSession::tls_started`].
    #[must_use]
    pub const fn tls_due(&self) -> bool {
        matches!(self.phase, Phase::StartTls)
    }

    /// Reports that TLS is established: from now on the session is fed decrypted bytes. The state negotiated in plain
    /// is discarded; the number of options still counts.
    ///
    /// # Panics
    /// If no TLS is due: a bug of the driver.
    pub fn tls_started(&mut self) {
        assert!(self.tls_due(), "TLS was started although the client did not ask for it");
        self.phase = Phase::Options;
        self.secured = true;
        self.style = HeaderStyle::Simple;
        self.meta = None;
    }

    /// Returns `true` if the bytes come over TLS.
    #[must_use]
    pub const fn is_secured(&self) -> bool {
        self.secured
    }

    /// From now on options and new requests are answered with the protocol's "shutting down" errors; requests in
    /// flight are the driver's to finish.
    pub const fn begin_shutdown(&mut self) {
        self.shutting_down = true;
    }

    /// The chosen export, once attached.
    #[must_use]
    pub const fn export(&self) -> Option<&ExportInfo> {
        self.export.as_ref()
    }

    /// The negotiated header style.
    #[must_use]
    pub const fn style(&self) -> HeaderStyle {
        self.style
    }

    /// The negotiated metadata contexts: id and name.
    #[must_use]
    pub fn contexts(&self) -> &[(u32, String)] {
        self.meta.as_ref().map_or(&[], |(_, contexts)| contexts)
    }

    /// Requests handed to the driver and not yet answered.
    #[must_use]
    pub const fn in_flight(&self) -> u32 {
        self.in_flight
    }

    /// Bytes the session holds back: the beginning of a header or option.
    #[must_use]
    pub const fn buffered_bytes(&self) -> usize {
        self.partial.len()
    }

    fn fill(&mut self, input: &mut &[u8], wanted: usize) -> bool {
        crate::stream::fill(&mut self.partial, input, wanted)
    }

    fn close(&mut self, reason: CloseReason) -> ServerStep {
        self.phase = Phase::Ended;
        self.partial = Vec::new();
        ServerStep::Event(ServerEvent::Closed(reason))
    }
}
