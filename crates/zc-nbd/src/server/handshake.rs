//! The server's handshake: options until an export is chosen.
//!
//! Job: fixed newstyle negotiation. Each option is buffered whole (bounded), answered, and forgotten.
//!
//! Invariants: an option's data is always consumed before the next header is read, whatever the answer.
//!
//! Out of scope: TLS itself, only its negotiation.

use super::{
    Access, CloseReason, ExportCatalog, ExportInfo, Phase, ServerEvent, ServerSession, ServerStep, TlsMode,
};
use crate::proto::limits::OPTION_DRAIN_BYTES_MAX;
use crate::proto::{handshake_flag, info, option, reply, tx_flag};
use crate::wire::{
    ExportNameReply, GoRequest, HeaderStyle, InfoReply, MetaContextReply, MetaRequest, OptionHeader,
    OptionReplyHeader,
};

const PLAINTEXT: CloseReason = CloseReason::Rule("plain bytes follow STARTTLS, which could be injected");

/// Greeting flags of this server.
pub(super) const OFFERED_FLAGS: u16 = handshake_flag::FIXED_NEWSTYLE | handshake_flag::NO_ZEROES;

/// An option's answer when it is not a plain ACK: error number and text for people.
type Refused = (u32, &'static str);

const SHUTDOWN: Refused = (reply::ERR_SHUTDOWN, "the server is shutting down");
const NO_SUCH_EXPORT: Refused = (reply::ERR_UNKNOWN, "no export of that name");
const NO_DATA_ALLOWED: Refused = (reply::ERR_INVALID, "this option takes no data");
const TLS_REQUIRED: Refused = (reply::ERR_TLS_REQD, "TLS must be started first");
const NEEDS_TLS: Refused = (reply::ERR_POLICY, "the export is served over TLS only");
const FORBIDDEN: Refused = (reply::ERR_POLICY, "this client may not use the export");
const TOO_LONG: Refused = (reply::ERR_TOO_BIG, "the option's data is too long");
const MALFORMED: Refused = (reply::ERR_INVALID, "the option's data is malformed");

impl ServerSession {
    pub(super) fn step_client_flags(&mut self, input: &mut &[u8]) -> ServerStep {
        if !self.fill(input, 4) {
            return ServerStep::Wait;
        }
        let flags = self.partial.iter().fold(0_u32, |sum, &byte| (sum << 8) | u32::from(byte));
        self.partial.clear();
        if flags & !u32::from(OFFERED_FLAGS) != 0 {
            return self.close(CloseReason::Rule("the client set a handshake flag that was not offered"));
        }
        self.no_zeroes = flags & u32::from(handshake_flag::NO_ZEROES) != 0;
        if flags & u32::from(handshake_flag::FIXED_NEWSTYLE) == 0 {
            if self.tls == TlsMode::Required {
                return self.close(CloseReason::Rule("TLS is required and the client is too old for it"));
            }
            self.tls = TlsMode::Off;
        }
        self.phase = Phase::Options;
        ServerStep::Again
    }

    pub(super) fn step_option(
        &mut self,
        input: &mut &[u8],
        catalog: &(impl ExportCatalog + ?Sized),
        out: &mut Vec<u8>,
    ) -> ServerStep {
        if !self.fill(input, OptionHeader::BYTES) {
            return ServerStep::Wait;
        }
        let header = match OptionHeader::decode(&self.partial) {
            Ok(header) => header,
            Err(error) => return self.close(error.into()),
        };
        if header.length > self.config.limits.option_data_bytes {
            return self.begin_skip_option(header);
        }
        if !self.fill(input, OptionHeader::BYTES + zc_core::usize_from_u32(header.length)) {
            return ServerStep::Wait;
        }
        self.options_seen = self.options_seen.saturating_add(1);
        if self.options_seen > self.config.limits.options {
            return self.close(CloseReason::Limit("too many options in one handshake"));
        }
        if header.option == option::STARTTLS
            && header.length == 0
            && self.may_start_tls()
            && !input.is_empty()
        {
            return self.close(PLAINTEXT);
        }
        let mut buffer = core::mem::take(&mut self.partial);
        let step = self.answer_option(header.option, &buffer[OptionHeader::BYTES..], catalog, out);
        if matches!(self.phase, Phase::Options) {
            buffer.clear();
            self.partial = buffer;
        }
        step
    }

    fn begin_skip_option(&mut self, header: OptionHeader) -> ServerStep {
        self.partial.clear();
        if header.option == option::EXPORT_NAME {
            return self.close(CloseReason::Rule("an export name is longer than 4096 bytes"));
        }
        if header.length > OPTION_DRAIN_BYTES_MAX {
            return self.close(CloseReason::Limit("an option is longer than 16 MiB"));
        }
        self.options_seen = self.options_seen.saturating_add(1);
        if self.options_seen > self.config.limits.options {
            return self.close(CloseReason::Limit("too many options in one handshake"));
        }
        self.phase = Phase::SkipOption { option: header.option, left: header.length };
        ServerStep::Again
    }

    pub(super) fn step_skip_option(&mut self, input: &mut &[u8], out: &mut Vec<u8>) -> ServerStep {
        let Phase::SkipOption { option, left } = self.phase else { return ServerStep::Again };
        let dropped = crate::stream::cut(input, left.into()).len();
        let left = left.saturating_sub(u32::try_from(dropped).unwrap_or(u32::MAX));
        if left > 0 {
            self.phase = Phase::SkipOption { option, left };
            return ServerStep::Wait;
        }
        self.phase = Phase::Options;
        if option == option::SET_META_CONTEXT {
            // It replaces the earlier set also when it fails.
            self.meta = None;
        }
        match option {
            option::ABORT => return self.abort(out),
            option::STARTTLS => refuse(option, NO_DATA_ALLOWED, out),
            _ if self.is_tls_missing() => refuse(option, TLS_REQUIRED, out),
            _ => refuse(option, TOO_LONG, out),
        }
        ServerStep::Again
    }

    /// Returns `true` if every option but STARTTLS and ABORT must be refused.
    fn is_tls_missing(&self) -> bool {
        self.tls == TlsMode::Required && !self.secured
    }

    fn may_start_tls(&self) -> bool {
        self.tls != TlsMode::Off && !self.secured
    }

    fn abort(&mut self, out: &mut Vec<u8>) -> ServerStep {
        OptionReplyHeader::encode_with(option::ABORT, reply::ACK, &[], out);
        self.close(CloseReason::Aborted)
    }

    fn start_tls(&mut self, data: &[u8], out: &mut Vec<u8>) -> ServerStep {
        let refused = if !data.is_empty() {
            NO_DATA_ALLOWED
        } else if self.secured {
            (reply::ERR_INVALID, "TLS is started already")
        } else if self.tls == TlsMode::Off {
            (reply::ERR_UNSUP, "this server has no TLS")
        } else {
            OptionReplyHeader::encode_with(option::STARTTLS, reply::ACK, &[], out);
            self.phase = Phase::StartTls;
            return ServerStep::Again;
        };
        refuse(option::STARTTLS, refused, out);
        ServerStep::Again
    }

    pub(super) fn step_start_tls(&mut self, input: &[u8]) -> ServerStep {
        if input.is_empty() { ServerStep::Wait } else { self.close(PLAINTEXT) }
    }

    fn answer_option(
        &mut self,
        number: u32,
        data: &[u8],
        catalog: &(impl ExportCatalog + ?Sized),
        out: &mut Vec<u8>,
    ) -> ServerStep {
        if number == option::EXPORT_NAME {
            return self.export_name(data, catalog, out);
        }
        if number == option::ABORT {
            return self.abort(out);
        }
        if number == option::STARTTLS {
            return self.start_tls(data, out);
        }
        if self.is_tls_missing() {
            refuse(number, TLS_REQUIRED, out);
            let asked = matches!(number, option::INFO | option::GO).then(|| GoRequest::decode(data).ok());
            return asked
                .flatten()
                .map_or(ServerStep::Again, |request| refused_event(request.export, TLS_REQUIRED));
        }
        if self.shutting_down {
            refuse(number, SHUTDOWN, out);
            return ServerStep::Again;
        }
        let answer = match number {
            option::LIST => self.list(data, catalog, out),
            option::INFO | option::GO => return self.info_or_go(number, data, catalog, out),
            option::STRUCTURED_REPLY => self.structured_reply(data),
            option::EXTENDED_HEADERS => self.extended_headers(data),
            option::LIST_META_CONTEXT => self.list_meta(data, catalog, out),
            option::SET_META_CONTEXT => self.set_meta(data, catalog, out),
            _ => Err((reply::ERR_UNSUP, "the option is unknown or not offered")),
        };
        match answer {
            Ok(()) => OptionReplyHeader::encode_with(number, reply::ACK, &[], out),
            Err(refused) => refuse(number, refused, out),
        }
        ServerStep::Again
    }

    fn export_name(
        &mut self,
        data: &[u8],
        catalog: &(impl ExportCatalog + ?Sized),
        out: &mut Vec<u8>,
    ) -> ServerStep {
        if self.style == HeaderStyle::Extended {
            return self.close(CloseReason::Rule("EXPORT_NAME after extended headers"));
        }
        if self.shutting_down {
            return self.close(CloseReason::Rule("EXPORT_NAME while the server is shutting down"));
        }
        let name = match crate::wire::Reader::new("EXPORT_NAME", data).rest_string() {
            Ok(name) => name,
            Err(error) => return self.close(error.into()),
        };
        if self.is_tls_missing() {
            return self.close(CloseReason::Rule("EXPORT_NAME before TLS, which is required"));
        }
        let export = match self.find(&name, catalog) {
            Ok(export) => export,
            Err(NO_SUCH_EXPORT) => return self.close(CloseReason::UnknownExport(name)),
            Err((_, text)) => return self.close(CloseReason::Rule(text)),
        };
        let reply = ExportNameReply { size_bytes: export.size_bytes, flags: export.tx_flags(self.style) };
        reply.encode(!self.no_zeroes, out);
        self.attach(export, &name)
    }

    fn info_or_go(
        &mut self,
        number: u32,
        data: &[u8],
        catalog: &(impl ExportCatalog + ?Sized),
        out: &mut Vec<u8>,
    ) -> ServerStep {
        let Ok(request) = GoRequest::decode(data) else {
            refuse(number, MALFORMED, out);
            return ServerStep::Again;
        };
        match self.find(&request.export, catalog) {
            Ok(export) => {
                self.describe(number, &request, &export, out);
                OptionReplyHeader::encode_with(number, reply::ACK, &[], out);
                if number == option::GO { self.attach(export, &request.export) } else { ServerStep::Again }
            }
            Err(refused) => {
                refuse(number, refused, out);
                refused_event(request.export, refused)
            }
        }
    }

    /// Answers `INFO` and `GO` up to the ACK.
    fn describe(&self, number: u32, request: &GoRequest, export: &ExportInfo, out: &mut Vec<u8>) {
        let mut flags = export.tx_flags(self.style);
        if self.style == HeaderStyle::Extended && self.has_contexts_for(&request.export) {
            flags |= tx_flag::BLOCK_STATUS_PAYLOAD;
        }
        let mut replies = vec![InfoReply::Export { size_bytes: export.size_bytes, flags }];
        let asked = |kind| request.infos.contains(&kind);
        if asked(info::NAME) {
            replies.push(InfoReply::Name(export.name.clone()));
        }
        if asked(info::DESCRIPTION) && !export.description.is_empty() {
            replies.push(InfoReply::Description(export.description.clone()));
        }
        if asked(info::BLOCK_SIZE) {
            replies.push(InfoReply::BlockSize {
                min: export.blocks.min_bytes(),
                preferred: export.blocks.preferred_bytes(),
                max: export.blocks.max_bytes(),
            });
        }
        let mut body = Vec::new();
        for info in replies {
            body.clear();
            info.encode(&mut body);
            OptionReplyHeader::encode_with(number, reply::INFO, &body, out);
        }
    }

    fn has_contexts_for(&self, name: &str) -> bool {
        self.meta.as_ref().is_some_and(|(export, contexts)| export == name && !contexts.is_empty())
    }

    fn attach(&mut self, export: ExportInfo, asked_name: &str) -> ServerStep {
        if self.meta.as_ref().is_some_and(|(name, _)| name != asked_name) {
            self.meta = None;
        }
        let token = export.token;
        self.export = Some(export);
        self.phase = Phase::Requests;
        ServerStep::Event(ServerEvent::Attached { token })
    }

    fn structured_reply(&mut self, data: &[u8]) -> Result<(), Refused> {
        if self.style == HeaderStyle::Extended {
            return Err((reply::ERR_EXT_HEADER_REQD, "extended headers are negotiated already"));
        }
        if !data.is_empty() {
            return Err(NO_DATA_ALLOWED);
        }
        if !self.config.structured {
            return Err((reply::ERR_UNSUP, "structured replies are not offered"));
        }
        self.style = HeaderStyle::Structured;
        Ok(())
    }

    fn extended_headers(&mut self, data: &[u8]) -> Result<(), Refused> {
        if !self.config.extended {
            return Err((reply::ERR_UNSUP, "extended headers are not offered"));
        }
        if !data.is_empty() {
            return Err(NO_DATA_ALLOWED);
        }
        self.style = HeaderStyle::Extended;
        Ok(())
    }

    fn list_meta(
        &self,
        data: &[u8],
        catalog: &(impl ExportCatalog + ?Sized),
        out: &mut Vec<u8>,
    ) -> Result<(), Refused> {
        let (request, export) = self.meta_request(data, catalog)?;
        let wanted = |name: &str| {
            request.queries.is_empty()
                || request.queries.iter().any(|query| query == name || is_namespace_of(query, name))
        };
        for (_, name) in export.contexts_with_ids().filter(|(_, name)| wanted(name)) {
            put_context(option::LIST_META_CONTEXT, 0, name, out);
        }
        Ok(())
    }

    fn set_meta(
        &mut self,
        data: &[u8],
        catalog: &(impl ExportCatalog + ?Sized),
        out: &mut Vec<u8>,
    ) -> Result<(), Refused> {
        self.meta = None;
        let (request, export) = self.meta_request(data, catalog)?;
        let mut chosen = Vec::new();
        for (id, name) in export.contexts_with_ids() {
            if request.queries.iter().any(|query| query == name) {
                put_context(option::SET_META_CONTEXT, id, name, out);
                chosen.push((id, name.to_owned()));
            }
        }
        self.meta = Some((request.export, chosen));
        Ok(())
    }

    fn meta_request(
        &self,
        data: &[u8],
        catalog: &(impl ExportCatalog + ?Sized),
    ) -> Result<(MetaRequest, ExportInfo), Refused> {
        if self.style == HeaderStyle::Simple {
            return Err((reply::ERR_INVALID, "structured replies must be negotiated first"));
        }
        let request = MetaRequest::decode(data).map_err(|_| MALFORMED)?;
        // TLS_REQD is for INFO and GO only (proto.md: SELECTIVETLS).
        let policy = |refused| if refused == TLS_REQUIRED { NEEDS_TLS } else { refused };
        let export = self.find(&request.export, catalog).map_err(policy)?;
        Ok((request, export))
    }

    /// The export of that name, if this client may use it now.
    fn find(&self, name: &str, catalog: &(impl ExportCatalog + ?Sized)) -> Result<ExportInfo, Refused> {
        let export = catalog.lookup(name).ok_or(NO_SUCH_EXPORT)?;
        match catalog.access(&export.name) {
            Access::Granted => Ok(export),
            Access::OverTls if self.secured => Ok(export),
            Access::OverTls if self.tls == TlsMode::Off => Err(NEEDS_TLS),
            Access::OverTls => Err(TLS_REQUIRED),
            Access::Denied => Err(FORBIDDEN),
            Access::Hidden => Err(NO_SUCH_EXPORT),
        }
    }

    fn list(
        &self,
        data: &[u8],
        catalog: &(impl ExportCatalog + ?Sized),
        out: &mut Vec<u8>,
    ) -> Result<(), Refused> {
        if !data.is_empty() {
            return Err(NO_DATA_ALLOWED);
        }
        let mut body = Vec::new();
        for entry in catalog.list() {
            let shown = match catalog.access(&entry.name) {
                Access::Granted => true,
                Access::OverTls => self.secured,
                Access::Denied | Access::Hidden => false,
            };
            if shown {
                body.clear();
                entry.encode(&mut body);
                OptionReplyHeader::encode_with(option::LIST, reply::SERVER, &body, out);
            }
        }
        Ok(())
    }
}

const fn refused_event(export: String, refused: Refused) -> ServerStep {
    ServerStep::Event(ServerEvent::Refused { export, why: refused.1 })
}

/// Returns `true` if `query` is a namespace of `name` with its colon, such as `base:`.
fn is_namespace_of(query: &str, name: &str) -> bool {
    query.ends_with(':') && name.starts_with(query)
}

fn put_context(number: u32, id: u32, name: &str, out: &mut Vec<u8>) {
    let mut body = Vec::new();
    MetaContextReply { id, name: name.to_owned() }.encode(&mut body);
    OptionReplyHeader::encode_with(number, reply::META_CONTEXT, &body, out);
}

fn refuse(number: u32, refused: Refused, out: &mut Vec<u8>) {
    OptionReplyHeader::encode_with(number, refused.0, refused.1.as_bytes(), out);
}
