//! Queries of a server's exports, without attaching to one.
//!
//! Job: negotiate (TLS if configured, extended headers or structured replies, so that the replies are those for a
//! capable client), then one query at a time: the list of exports, the description of an export, its metadata
//! contexts.
//!
//! The driver feeds received bytes to [`Inquiry::next_event`], as with [`super::ClientSession`]. After
//! [`InquiryEvent::Idle`] and after every reply one query may be sent; [`Inquiry::leave`] ends the session.
//!
//! Invariants: as in the client's handshake, a reply names the requested option; replies and their bytes are bounded.
//! A refused query leaves the session usable, unless the server shuts down.
//!
//! Out of scope: I/O, attach to an export.

use super::handshake::{Negotiation, everything_about, take_option_reply};
use super::{ClientError, ClientTls, RemoteExport};
use crate::proto::{handshake_flag, option, reply};
use crate::stream::{Need, fill};
use crate::wire::{
    Greeting, InfoReply, MetaContextReply, MetaRequest, OptionHeader, ServerEntry, encode_client_flags,
};

/// A reply, or readiness for the first query.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum InquiryEvent {
    /// The negotiation is complete; queries may be sent.
    Idle,
    /// The server's exports.
    Exports(Vec<ServerEntry>),
    /// The export.
    Export(RemoteExport),
    /// Names of metadata contexts, and wildcards such as `x-test:` that stand for more.
    Contexts(Vec<String>),
    /// The server refuses the question.
    Refused {
        /// [`crate::proto::reply`] error.
        reply: u32,
        /// The server's text, may be empty. From the peer: escape before showing it on a terminal.
        message: String,
    },
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Phase {
    Greeting,
    /// Waiting for replies to this option.
    Option(u32),
    StartTls,
    Idle,
    Ended,
}

/// One connection for queries.
#[derive(Debug)]
pub struct Inquiry {
    tls: ClientTls,
    phase: Phase,
    partial: Vec<u8>,
    secured: bool,
    gathered: Negotiation,
    contexts: Vec<String>,
}

type Answer = Result<Option<InquiryEvent>, ClientError>;

impl Inquiry {
    /// A session on a fresh connection; it waits for the server's greeting.
    #[must_use]
    pub fn new(tls: ClientTls) -> Self {
        Self {
            tls,
            phase: Phase::Greeting,
            partial: Vec::new(),
            secured: false,
            gathered: Negotiation::default(),
            contexts: Vec::new(),
        }
    }

    /// Consumes bytes from the front of `input` up to the next event; output is appended to `out`.
    ///
    /// # Errors
    /// The server violated the protocol, is too old, refused required TLS, or shuts down; the session is then over and
    /// accepts no more input.
    pub fn next_event(&mut self, input: &mut &[u8], out: &mut Vec<u8>) -> Answer {
        loop {
            let before = (self.phase, input.len());
            let answer = match self.phase {
                Phase::Greeting => self.step_greeting(input, out),
                Phase::Option(asked) => self.step_option(asked, input, out),
                Phase::StartTls | Phase::Idle if input.is_empty() => Ok(None),
                Phase::StartTls => Err(ClientError::Rule("plain bytes follow the answer to STARTTLS")),
                Phase::Idle => Err(ClientError::Rule("the server sends what was not asked")),
                Phase::Ended => {
                    *input = &[];
                    return Ok(None);
                }
            };
            if answer.is_err() {
                self.phase = Phase::Ended;
                self.partial = Vec::new();
            }
            if !matches!(answer, Ok(None)) || before == (self.phase, input.len()) {
                return answer;
            }
        }
    }

    /// Returns the need of the session after [`Inquiry::next_event`] returned `Ok(None)`.
    #[must_use]
    pub const fn need(&self) -> Need {
        match self.phase {
            Phase::Ended => Need::Nothing,
            Phase::StartTls | Phase::Idle => Need::Replies,
            Phase::Greeting | Phase::Option(_) => Need::Input,
        }
    }

    /// Returns `true` if a query may be sent.
    #[must_use]
    pub const fn is_idle(&self) -> bool {
        matches!(self.phase, Phase::Idle)
    }

    /// As [`super::ClientSession::tls_due`].
    #[must_use]
    pub const fn tls_due(&self) -> bool {
        matches!(self.phase, Phase::StartTls)
    }

    /// As [`super::ClientSession::tls_started`].
    ///
    /// # Panics
    /// If no TLS is due: a bug of the driver.
    pub fn tls_started(&mut self, out: &mut Vec<u8>) {
        assert!(self.tls_due(), "TLS was started although the server did not agree to it");
        self.secured = true;
        self.ask(option::EXTENDED_HEADERS, &[], out);
    }

    /// Returns `true` if the bytes come over TLS.
    #[must_use]
    pub const fn is_secured(&self) -> bool {
        self.secured
    }

    /// Requests all exports; the reply is [`InquiryEvent::Exports`].
    ///
    /// # Panics
    /// If the session is not idle.
    pub fn list(&mut self, out: &mut Vec<u8>) {
        self.question(option::LIST, &[], out);
    }

    /// Requests the description of an export; the reply is [`InquiryEvent::Export`].
    ///
    /// # Panics
    /// If the session is not idle.
    pub fn describe(&mut self, export: &str, out: &mut Vec<u8>) {
        self.question(option::INFO, &everything_about(export), out);
    }

    /// Requests the metadata contexts of an export that match the queries (all of them without queries); the reply is
    /// [`InquiryEvent::Contexts`].
    ///
    /// # Panics
    /// If the session is not idle.
    pub fn list_contexts(&mut self, export: &str, queries: &[String], out: &mut Vec<u8>) {
        let mut data = Vec::new();
        MetaRequest { export: export.to_owned(), queries: queries.to_vec() }.encode(&mut data);
        self.question(option::LIST_META_CONTEXT, &data, out);
    }

    /// Ends the session: send the output, then close.
    ///
    /// # Panics
    /// If the session is not idle.
    pub fn leave(&mut self, out: &mut Vec<u8>) {
        self.question(option::ABORT, &[], out);
        self.phase = Phase::Ended;
    }

    /// Bytes the session holds back: the beginning of a greeting or option reply.
    #[must_use]
    pub const fn buffered_bytes(&self) -> usize {
        self.partial.len()
    }

    fn question(&mut self, number: u32, data: &[u8], out: &mut Vec<u8>) {
        assert!(self.is_idle(), "one question at a time");
        self.ask(number, data, out);
    }

    fn ask(&mut self, number: u32, data: &[u8], out: &mut Vec<u8>) {
        OptionHeader::encode_with(number, data, out);
        self.gathered = Negotiation::default();
        self.contexts.clear();
        self.phase = Phase::Option(number);
    }

    fn step_greeting(&mut self, input: &mut &[u8], out: &mut Vec<u8>) -> Answer {
        if !fill(&mut self.partial, input, Greeting::BYTES) {
            return Ok(None);
        }
        let flags = Greeting::decode(&self.partial)?.flags;
        self.partial.clear();
        if flags & handshake_flag::FIXED_NEWSTYLE == 0 {
            return Err(ClientError::Rule("the server is too old to be asked about its exports"));
        }
        let mine = flags & (handshake_flag::FIXED_NEWSTYLE | handshake_flag::NO_ZEROES);
        encode_client_flags(mine.into(), out);
        let first = if self.tls == ClientTls::Never { option::EXTENDED_HEADERS } else { option::STARTTLS };
        self.ask(first, &[], out);
        Ok(None)
    }

    fn step_option(&mut self, asked: u32, input: &mut &[u8], out: &mut Vec<u8>) -> Answer {
        let Some((kind, body)) = take_option_reply(&mut self.partial, &mut self.gathered, asked, input)?
        else {
            return Ok(None);
        };
        match kind {
            reply::ACK => self.option_done(asked),
            error if error & reply::ERROR_BIT != 0 => self.option_refused(asked, error, &body, out),
            other => self.option_reply(asked, other, &body),
        }
    }

    fn option_done(&mut self, asked: u32) -> Answer {
        self.phase = Phase::Idle;
        let gathered = core::mem::take(&mut self.gathered);
        match asked {
            option::STARTTLS => {
                self.phase = Phase::StartTls;
                Ok(None)
            }
            option::LIST => Ok(Some(InquiryEvent::Exports(gathered.listed))),
            option::INFO => Ok(Some(InquiryEvent::Export(gathered.into_export()?))),
            option::LIST_META_CONTEXT => {
                Ok(Some(InquiryEvent::Contexts(core::mem::take(&mut self.contexts))))
            }
            _ => Ok(Some(InquiryEvent::Idle)),
        }
    }

    fn option_refused(&mut self, asked: u32, error: u32, body: &[u8], out: &mut Vec<u8>) -> Answer {
        let message = core::str::from_utf8(body).unwrap_or_default().to_owned();
        let is_over =
            error == reply::ERR_SHUTDOWN || (asked == option::STARTTLS && self.tls == ClientTls::Required);
        if is_over {
            OptionHeader::encode_with(option::ABORT, &[], out);
            let what = if asked == option::STARTTLS { "to start TLS" } else { "to answer" };
            return Err(ClientError::Refused { what, reply: error, message });
        }
        match asked {
            option::STARTTLS => self.ask(option::EXTENDED_HEADERS, &[], out),
            option::EXTENDED_HEADERS => self.ask(option::STRUCTURED_REPLY, &[], out),
            option::STRUCTURED_REPLY => {
                self.phase = Phase::Idle;
                return Ok(Some(InquiryEvent::Idle));
            }
            _ => {
                self.phase = Phase::Idle;
                return Ok(Some(InquiryEvent::Refused { reply: error, message }));
            }
        }
        Ok(None)
    }

    fn option_reply(&mut self, asked: u32, kind: u32, body: &[u8]) -> Answer {
        match (asked, kind) {
            (option::LIST, reply::SERVER) => self.gathered.listed.push(ServerEntry::decode(body)?),
            (option::INFO, reply::INFO) => self.gathered.take_info(InfoReply::decode(body)?),
            (option::LIST_META_CONTEXT, reply::META_CONTEXT) => {
                self.contexts.push(MetaContextReply::decode(body)?.name);
            }
            _ => return Err(ClientError::Rule("an option reply has a type that does not fit the option")),
        }
        Ok(None)
    }
}
