//! The client's side of one connection as a state machine.
//!
//! Job: negotiate (extended headers, structured replies and `GO` with fallbacks down to `EXPORT_NAME` and simple
//! replies), encode requests, check and decode replies.
//!
//! The driver feeds received bytes to [`ClientSession::next_event`] until it returns `Ok(None)`. After
//! [`ClientEvent::ReadData`] the bytes go directly into the driver's buffer: first those that
//! [`ClientSession::take_payload`] cuts from the current chunk, then reads of at most [`Need::Payload`] bytes,
//! reported with [`ClientSession::payload_received`]. The driver sends a WRITE's payload directly after the header.
//!
//! With [`ClientConfig::tls`] the session requests TLS first. When [`ClientSession::tls_due`] is true, the driver
//! sends the output in plain, starts TLS and calls [`ClientSession::tls_started`]; from then on it feeds decrypted
//! bytes. A failed TLS handshake ends the connection. After an error the driver sends the output, which may hold an
//! ABORT, and closes.
//!
//! Invariants: cookies are unique among requests in flight; a reply is accepted only if it matches its request: known
//! cookie, inside the range, no overlap, complete on success; lengths are bounded before anything is buffered; after
//! an error the session is over.
//!
//! [`Inquiry`] queries a server's exports without attaching to one.
//!
//! It does not reconnect, retry, split large requests, measure time, or implement TLS itself.

mod handshake;
mod inquiry;
mod pending;
mod replies;
mod request;

pub use inquiry::{Inquiry, InquiryEvent};
pub use request::RequestError;

use crate::ErrorCode;
use crate::proto::{limits, tx_flag};
use crate::stream::Need;
use crate::wire::{HeaderStyle, ServerEntry, StatusExtent, WireError};
use handshake::Negotiation;
use pending::Pending;
use replies::Chunk;

/// TLS policy of a client.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum ClientTls {
    /// No TLS.
    #[default]
    Never,
    /// Requests TLS, and continues in plain if the server refuses. A man in the middle can force this: no protection
    /// against active attackers.
    Preferred,
    /// Requests TLS, and ends the session if the server refuses.
    Required,
}

/// Options of a client.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ClientConfig {
    /// The export; empty for the default one.
    pub export: String,
    /// List the exports and leave, instead of attaching to one.
    pub list: bool,
    /// TLS policy.
    pub tls: ClientTls,
    /// Request structured replies.
    pub structured: bool,
    /// Request extended headers first.
    pub extended: bool,
    /// Metadata contexts to request, at most 16.
    pub contexts: Vec<String>,
    /// Most requests in flight.
    pub in_flight: usize,
}

impl Default for ClientConfig {
    fn default() -> Self {
        Self {
            export: String::new(),
            list: false,
            tls: ClientTls::Never,
            structured: true,
            extended: true,
            contexts: Vec::new(),
            in_flight: zc_core::usize_from_u32(limits::IN_FLIGHT_DEFAULT),
        }
    }
}

/// Description of the export by the server.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RemoteExport {
    /// Size in bytes.
    pub size_bytes: u64,
    /// [`tx_flag`] bits.
    pub flags: u16,
    /// Requests must be multiples of this.
    pub min_bytes: u32,
    /// Requests should be multiples of this.
    pub preferred_bytes: u32,
    /// Largest payload of one READ or WRITE, at most 32 MiB.
    pub max_bytes: u32,
    /// Canonical name, if the server sent one.
    pub name: Option<String>,
    /// Description, if the server sent one.
    pub description: Option<String>,
}

impl RemoteExport {
    /// Returns `true` if all `bits` of [`tx_flag`] are set.
    #[must_use]
    pub const fn offers(&self, bits: u16) -> bool {
        self.flags & bits == bits
    }

    /// Returns `true` if the export refuses writes.
    #[must_use]
    pub const fn is_read_only(&self) -> bool {
        self.offers(tx_flag::READ_ONLY)
    }
}

/// An error the server reported for one request.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("the NBD server reports: {code}{}{message}", if message.is_empty() { "" } else { ": " })]
pub struct RemoteError {
    /// The error.
    pub code: ErrorCode,
    /// The server's text, may be empty. From the peer: escape before showing it on a terminal.
    pub message: String,
}

/// Received event.
#[derive(Debug, PartialEq, Eq)]
pub enum ClientEvent {
    /// The handshake is done; [`ClientSession::export`] describes the export.
    Ready,
    /// The exports of the server; the session is over.
    Listed(Vec<ServerEntry>),
    /// `length` bytes of a read come next: take them as payload.
    ReadData {
        /// The request.
        cookie: u64,
        /// Position in the export.
        offset: u64,
        /// Length in bytes.
        length: u64,
    },
    /// These bytes of a read are zeroes.
    ReadHole {
        /// The request.
        cookie: u64,
        /// Position in the export.
        offset: u64,
        /// Length in bytes.
        length: u64,
    },
    /// The extents of one context, from the request's offset on; the last may reach beyond the request.
    BlockStatus {
        /// The request.
        cookie: u64,
        /// Id of the context, see [`ClientSession::contexts`].
        context: u32,
        /// The extents.
        extents: Vec<StatusExtent>,
    },
    /// The request is finished; data of a failed read must not be used.
    Done {
        /// The request.
        cookie: u64,
        /// Outcome.
        result: Result<(), RemoteError>,
    },
}

/// Reason for the end of the session.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ClientError {
    /// The server's bytes are no NBD.
    #[error("NBD protocol error of the server: {0}")]
    Wire(#[from] WireError),
    /// The server broke a rule.
    #[error("NBD protocol error of the server: {0}")]
    Rule(&'static str),
    /// The server refused an option that has no fallback.
    #[error("the NBD server refuses {what}{}{message}", if message.is_empty() { "" } else { ": " })]
    Refused {
        /// Refused option.
        what: &'static str,
        /// [`crate::proto::reply`] error.
        reply: u32,
        /// The server's text, may be empty. From the peer: escape before showing it on a terminal.
        message: String,
    },
}

#[derive(Debug)]
enum Phase {
    Greeting,
    /// Waiting for replies to this option.
    Option(u32),
    /// STARTTLS was acknowledged: the driver starts TLS.
    StartTls,
    ExportName {
        bytes: usize,
    },
    Replies,
    ChunkBody(Chunk),
    Payload {
        left: u64,
        /// The request that is finished with this payload.
        finishes: Option<u64>,
    },
    Ended,
}

enum ClientStep {
    Again,
    Wait,
    Event(ClientEvent),
}

type ClientProgress = Result<ClientStep, ClientError>;

/// One connection, from greeting to close.
#[derive(Debug)]
pub struct ClientSession {
    config: ClientConfig,
    phase: Phase,
    partial: Vec<u8>,
    style: HeaderStyle,
    negotiation: Negotiation,
    export: Option<RemoteExport>,
    contexts: Vec<(u32, String)>,
    pending: zc_core::Map<u64, Pending>,
    next_cookie: u64,
    secured: bool,
    /// `true` after the server announced its shutdown.
    stopping: bool,
}

impl ClientSession {
    /// A session on a fresh connection; it waits for the server's greeting.
    #[must_use]
    pub fn new(config: ClientConfig) -> Self {
        Self {
            config,
            phase: Phase::Greeting,
            partial: Vec::new(),
            style: HeaderStyle::Simple,
            negotiation: Negotiation::default(),
            export: None,
            contexts: Vec::new(),
            pending: zc_core::Map::default(),
            next_cookie: 1,
            secured: false,
            stopping: false,
        }
    }

    /// Takes bytes from the front of `input` up to the next event; handshake messages are appended to `out`.
    ///
    /// # Errors
    /// The server broke the protocol or refused; the session is over then and takes nothing more.
    pub fn next_event(
        &mut self,
        input: &mut &[u8],
        out: &mut Vec<u8>,
    ) -> Result<Option<ClientEvent>, ClientError> {
        loop {
            let stepped = match &self.phase {
                Phase::Greeting => self.step_greeting(input, out),
                Phase::Option(asked) => {
                    let asked = *asked;
                    self.step_option(asked, input, out)
                }
                Phase::StartTls if input.is_empty() => Ok(ClientStep::Wait),
                Phase::StartTls => Err(ClientError::Rule("plain bytes follow the answer to STARTTLS")),
                Phase::ExportName { bytes } => {
                    let bytes = *bytes;
                    self.step_export_name(bytes, input)
                }
                Phase::Replies => self.step_reply(input),
                Phase::ChunkBody(chunk) => {
                    let chunk = *chunk;
                    self.step_chunk_body(chunk, input)
                }
                Phase::Payload { left: 0, finishes } => {
                    let finishes = *finishes;
                    self.phase = Phase::Replies;
                    finishes.map_or(Ok(ClientStep::Again), |cookie| self.finish(cookie))
                }
                Phase::Payload { .. } => Ok(ClientStep::Wait),
                Phase::Ended => {
                    *input = &[];
                    Ok(ClientStep::Wait)
                }
            };
            match stepped {
                Ok(ClientStep::Again) => {}
                Ok(ClientStep::Wait) => return Ok(None),
                Ok(ClientStep::Event(event)) => return Ok(Some(event)),
                Err(error) => {
                    self.phase = Phase::Ended;
                    self.partial = Vec::new();
                    return Err(error);
                }
            }
        }
    }

    /// Returns the need of the session after [`ClientSession::next_event`] returned `Ok(None)`.
    #[must_use]
    pub const fn need(&self) -> Need {
        match self.phase {
            Phase::Ended => Need::Nothing,
            Phase::StartTls => Need::Replies,
            Phase::Payload { left, .. } if left > 0 => Need::Payload { bytes: left },
            _ => Need::Input,
        }
    }

    /// Cuts the part of the current read data that is at hand off `input`; empty if none is due.
    pub fn take_payload<'a>(&mut self, input: &mut &'a [u8]) -> &'a [u8] {
        let Phase::Payload { left, .. } = self.phase else { return &[] };
        let payload = crate::stream::cut(input, left);
        self.payload_received(zc_core::u64_from_usize(payload.len()));
        payload
    }

    /// Reports that `bytes` of the current read data were received into the driver's buffer. Call
    /// [`ClientSession::next_event`] afterwards, even without new input: the request may be done.
    ///
    /// # Panics
    /// If more than [`Need::Payload`] announced: a bug of the driver that would desynchronise the stream.
    pub fn payload_received(&mut self, bytes: u64) {
        let Phase::Payload { left, finishes } = self.phase else {
            assert!(bytes == 0, "payload reported while none is due");
            return;
        };
        assert!(bytes <= left, "more payload reported than is due");
        self.phase = Phase::Payload { left: left - bytes, finishes };
    }

    /// Returns `true` if the session waits for the driver to send the output in plain, start TLS and call
    /// [`ClientSession::tls_started`].
    #[must_use]
    pub const fn tls_due(&self) -> bool {
        matches!(self.phase, Phase::StartTls)
    }

    /// Reports that TLS is established: from now on the session is fed decrypted bytes. Appends the next option to
    /// `out`.
    ///
    /// # Panics
    /// If no TLS is due: a bug of the driver.
    pub fn tls_started(&mut self, out: &mut Vec<u8>) {
        assert!(self.tls_due(), "TLS was started although the server did not agree to it");
        self.secured = true;
        self.begin_negotiation(out);
    }

    /// Returns `true` if the bytes come over TLS.
    #[must_use]
    pub const fn is_secured(&self) -> bool {
        self.secured
    }

    /// Returns `true` if the server has answered a request with ESHUTDOWN: no more requests are sent, and
    /// [`ClientSession::disconnect`] is due (proto.md, "Terminating the transmission phase").
    #[must_use]
    pub const fn server_is_stopping(&self) -> bool {
        self.stopping
    }

    /// Returns the export after [`ClientEvent::Ready`].
    #[must_use]
    pub const fn export(&self) -> Option<&RemoteExport> {
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
        &self.contexts
    }

    /// Requests without a final reply.
    #[must_use]
    pub fn in_flight(&self) -> usize {
        self.pending.len()
    }

    /// Bytes the session holds back: the beginning of a header, option reply or chunk.
    #[must_use]
    pub const fn buffered_bytes(&self) -> usize {
        self.partial.len()
    }

    fn fill(&mut self, input: &mut &[u8], wanted: usize) -> bool {
        crate::stream::fill(&mut self.partial, input, wanted)
    }
}
