//! The client's handshake.
//!
//! Job: one option at a time: TLS if configured, extended headers, else structured replies, then metadata contexts,
//! then `GO`, else `EXPORT_NAME`; or `LIST`. A final failure is followed by `ABORT`.
//!
//! Invariants: a reply must name the requested option; replies per option and bytes per reply are bounded.
//!
//! Out of scope: TLS itself, only its negotiation.

use super::{
    ClientError, ClientEvent, ClientProgress, ClientSession, ClientStep, ClientTls, Phase, RemoteExport,
};
use crate::proto::limits::{
    CONTEXTS_MAX, OPTION_REPLIES_BYTES_MAX, OPTION_REPLIES_MAX, OPTION_REPLY_BYTES_MAX, PAYLOAD_BYTES_MAX,
};
use crate::proto::{handshake_flag, info, option, reply};
use crate::wire::{
    ExportNameReply, GoRequest, Greeting, HeaderStyle, InfoReply, MetaContextReply, MetaRequest,
    OptionHeader, OptionReplyHeader, ServerEntry, WireError, encode_client_flags,
};

/// Results of the handshake so far.
#[derive(Debug, Default)]
pub(super) struct Negotiation {
    no_zeroes: bool,
    replies: u32,
    reply_bytes: u64,
    pub(super) listed: Vec<ServerEntry>,
    size_and_flags: Option<(u64, u16)>,
    blocks: Option<(u32, u32, u32)>,
    name: Option<String>,
    description: Option<String>,
}

impl Negotiation {
    pub(super) fn take_info(&mut self, info: InfoReply) {
        match info {
            InfoReply::Export { size_bytes, flags } => self.size_and_flags = Some((size_bytes, flags)),
            InfoReply::BlockSize { min, preferred, max } => self.blocks = Some((min, preferred, max)),
            InfoReply::Name(name) => self.name = Some(name),
            InfoReply::Description(text) => self.description = Some(text),
            InfoReply::Other(_) => {}
        }
    }

    /// Returns the described export if the server's information is complete and consistent.
    pub(super) fn into_export(self) -> Result<RemoteExport, ClientError> {
        let Some((size_bytes, flags)) = self.size_and_flags else {
            return Err(ClientError::Rule("the server accepts the export without telling its size"));
        };
        let (min_bytes, preferred_bytes, max_bytes) = self.blocks.unwrap_or((1, 4096, PAYLOAD_BYTES_MAX));
        if !min_bytes.is_power_of_two() || preferred_bytes < min_bytes || max_bytes < min_bytes {
            return Err(ClientError::Rule("the server's block sizes contradict each other"));
        }
        Ok(RemoteExport {
            size_bytes,
            flags,
            min_bytes,
            preferred_bytes,
            max_bytes: max_bytes.min(PAYLOAD_BYTES_MAX),
            name: self.name,
            description: self.description,
        })
    }
}

/// Parses the next reply to the option `asked`: its type and body. `None`: more bytes are needed.
pub(super) fn take_option_reply(
    partial: &mut Vec<u8>,
    negotiation: &mut Negotiation,
    asked: u32,
    input: &mut &[u8],
) -> Result<Option<(u32, Vec<u8>)>, ClientError> {
    if !crate::stream::fill(partial, input, OptionReplyHeader::BYTES) {
        return Ok(None);
    }
    let header = OptionReplyHeader::decode(partial)?;
    if header.option != asked {
        return Err(ClientError::Rule("an option reply names another option than the one asked"));
    }
    if header.length > OPTION_REPLY_BYTES_MAX {
        let (found, bound) = (header.length.into(), OPTION_REPLY_BYTES_MAX.into());
        return Err(WireError::TooLong { what: "an option reply", found, bound }.into());
    }
    if !crate::stream::fill(partial, input, OptionReplyHeader::BYTES + zc_core::usize_from_u32(header.length))
    {
        return Ok(None);
    }
    negotiation.replies += 1;
    negotiation.reply_bytes += u64::from(header.length);
    if negotiation.replies > OPTION_REPLIES_MAX || negotiation.reply_bytes > OPTION_REPLIES_BYTES_MAX {
        return Err(ClientError::Rule("the server does not stop replying to one option"));
    }
    let mut body = core::mem::take(partial);
    body.drain(..OptionReplyHeader::BYTES);
    Ok(Some((header.reply, body)))
}

/// Returns the data of a `GO` or `INFO` that requests all information.
pub(super) fn everything_about(export: &str) -> Vec<u8> {
    let mut data = Vec::new();
    let infos = vec![info::NAME, info::DESCRIPTION, info::BLOCK_SIZE];
    GoRequest { export: export.to_owned(), infos }.encode(&mut data);
    data
}

impl ClientSession {
    pub(super) fn step_greeting(&mut self, input: &mut &[u8], out: &mut Vec<u8>) -> ClientProgress {
        if !self.fill(input, Greeting::BYTES) {
            return Ok(ClientStep::Wait);
        }
        let flags = Greeting::decode(&self.partial)?.flags;
        self.partial.clear();
        let mine = flags & (handshake_flag::FIXED_NEWSTYLE | handshake_flag::NO_ZEROES);
        encode_client_flags(mine.into(), out);
        self.negotiation.no_zeroes = mine & handshake_flag::NO_ZEROES != 0;
        if mine & handshake_flag::FIXED_NEWSTYLE == 0 {
            if self.config.list {
                return Err(ClientError::Rule("the server is too old to list its exports"));
            }
            if self.config.tls == ClientTls::Required {
                return Err(ClientError::Rule("the server is too old for TLS, which is required"));
            }
            self.ask_export_name(out);
        } else if self.config.tls == ClientTls::Never {
            self.begin_negotiation(out);
        } else {
            self.ask(option::STARTTLS, &[], out);
        }
        Ok(ClientStep::Again)
    }

    /// Sends the first option once TLS is settled.
    pub(super) fn begin_negotiation(&mut self, out: &mut Vec<u8>) {
        if self.config.list {
            self.ask(option::LIST, &[], out);
        } else {
            self.ask_headers(out);
        }
    }

    fn ask(&mut self, number: u32, data: &[u8], out: &mut Vec<u8>) {
        OptionHeader::encode_with(number, data, out);
        self.negotiation.replies = 0;
        self.negotiation.reply_bytes = 0;
        self.phase = Phase::Option(number);
    }

    fn ask_headers(&mut self, out: &mut Vec<u8>) {
        if self.config.extended {
            self.ask(option::EXTENDED_HEADERS, &[], out);
        } else {
            self.ask_structured(out);
        }
    }

    fn ask_structured(&mut self, out: &mut Vec<u8>) {
        if self.config.structured {
            self.ask(option::STRUCTURED_REPLY, &[], out);
        } else {
            self.ask_go(out);
        }
    }

    fn ask_contexts(&mut self, out: &mut Vec<u8>) {
        self.config.contexts.truncate(CONTEXTS_MAX);
        if self.config.contexts.is_empty() {
            return self.ask_go(out);
        }
        let mut data = Vec::new();
        let request =
            MetaRequest { export: self.config.export.clone(), queries: self.config.contexts.clone() };
        request.encode(&mut data);
        self.ask(option::SET_META_CONTEXT, &data, out);
    }

    fn ask_go(&mut self, out: &mut Vec<u8>) {
        let data = everything_about(&self.config.export);
        self.ask(option::GO, &data, out);
    }

    fn ask_export_name(&mut self, out: &mut Vec<u8>) {
        OptionHeader::encode_with(option::EXPORT_NAME, self.config.export.as_bytes(), out);
        let padding = if self.negotiation.no_zeroes { 0 } else { ExportNameReply::PADDING_BYTES };
        self.phase = Phase::ExportName { bytes: ExportNameReply::BYTES + padding };
    }

    pub(super) fn step_option(&mut self, asked: u32, input: &mut &[u8], out: &mut Vec<u8>) -> ClientProgress {
        let Some((kind, body)) = take_option_reply(&mut self.partial, &mut self.negotiation, asked, input)?
        else {
            return Ok(ClientStep::Wait);
        };
        match kind {
            reply::ACK => self.option_done(asked, out),
            error if error & reply::ERROR_BIT != 0 => self.option_refused(asked, error, &body, out),
            other => self.option_reply(asked, other, &body),
        }
    }

    fn option_done(&mut self, asked: u32, out: &mut Vec<u8>) -> ClientProgress {
        match asked {
            option::STARTTLS => self.phase = Phase::StartTls,
            option::EXTENDED_HEADERS => {
                self.style = HeaderStyle::Extended;
                self.ask_contexts(out);
            }
            option::STRUCTURED_REPLY => {
                self.style = HeaderStyle::Structured;
                self.ask_contexts(out);
            }
            option::SET_META_CONTEXT => self.ask_go(out),
            option::LIST => {
                OptionHeader::encode_with(option::ABORT, &[], out);
                self.phase = Phase::Ended;
                return Ok(ClientStep::Event(ClientEvent::Listed(core::mem::take(
                    &mut self.negotiation.listed,
                ))));
            }
            _ => return self.attach(),
        }
        Ok(ClientStep::Again)
    }

    fn option_refused(&mut self, asked: u32, error: u32, body: &[u8], out: &mut Vec<u8>) -> ClientProgress {
        let hard = matches!(error, reply::ERR_TLS_REQD | reply::ERR_SHUTDOWN);
        match asked {
            option::STARTTLS if !hard && self.config.tls == ClientTls::Preferred => {
                self.begin_negotiation(out);
            }
            option::EXTENDED_HEADERS if !hard => self.ask_structured(out),
            option::STRUCTURED_REPLY if !hard => self.ask_go(out),
            option::SET_META_CONTEXT if !hard => {
                self.contexts.clear();
                self.ask_go(out);
            }
            option::GO if error == reply::ERR_UNSUP && self.style != HeaderStyle::Extended => {
                self.contexts.clear();
                self.ask_export_name(out);
            }
            _ => {
                let what = match asked {
                    option::LIST => "to list its exports",
                    option::STARTTLS => "to start TLS",
                    _ => "the export",
                };
                OptionHeader::encode_with(option::ABORT, &[], out);
                let message = core::str::from_utf8(body).unwrap_or_default().to_owned();
                return Err(ClientError::Refused { what, reply: error, message });
            }
        }
        Ok(ClientStep::Again)
    }

    fn option_reply(&mut self, asked: u32, kind: u32, body: &[u8]) -> ClientProgress {
        match (asked, kind) {
            (option::LIST, reply::SERVER) => self.negotiation.listed.push(ServerEntry::decode(body)?),
            (option::SET_META_CONTEXT, reply::META_CONTEXT) => {
                let context = MetaContextReply::decode(body)?;
                let known = self.contexts.iter().any(|(id, name)| *id == context.id || *name == context.name);
                if known || !self.config.contexts.contains(&context.name) {
                    return Err(ClientError::Rule("the server selects a context twice or unasked"));
                }
                self.contexts.push((context.id, context.name));
            }
            (option::GO, reply::INFO) => self.negotiation.take_info(InfoReply::decode(body)?),
            _ => return Err(ClientError::Rule("an option reply has a type that does not fit the option")),
        }
        Ok(ClientStep::Again)
    }

    pub(super) fn step_export_name(&mut self, bytes: usize, input: &mut &[u8]) -> ClientProgress {
        if !self.fill(input, bytes) {
            return Ok(ClientStep::Wait);
        }
        let decoded = ExportNameReply::decode(&self.partial)?;
        self.negotiation.size_and_flags = Some((decoded.size_bytes, decoded.flags));
        self.attach()
    }

    fn attach(&mut self) -> ClientProgress {
        self.export = Some(core::mem::take(&mut self.negotiation).into_export()?);
        self.partial = Vec::new();
        self.phase = Phase::Replies;
        Ok(ClientStep::Event(ClientEvent::Ready))
    }
}
