//! Drivers for the tests: a server that carries requests out on a `Vec`, and a client that reads into a buffer.

use zc_nbd::proto::{BASE_ALLOCATION, STATE_HOLE, STATE_ZERO, tx_flag};
use zc_nbd::server::{
    Access, BlockSizes, CloseReason, Command, ExportCatalog, ExportFlags, ExportInfo, HoleForm, Request,
    ServerConfig, ServerEvent, ServerSession,
};
use zc_nbd::wire::{ServerEntry, StatusExtent};
use zc_nbd::{ErrorCode, Need};

pub(crate) const SIZE: u64 = 1 << 20;

pub(crate) fn all_flags() -> ExportFlags {
    ExportFlags {
        read_only: false,
        rotational: true,
        multi_conn: true,
        flush: true,
        fua: true,
        trim: true,
        write_zeroes: true,
        fast_zero: true,
        cache: true,
    }
}

pub(crate) fn export(name: &str, token: u64) -> ExportInfo {
    ExportInfo {
        name: name.to_owned(),
        description: format!("about {name}"),
        size_bytes: SIZE,
        flags: all_flags(),
        blocks: BlockSizes::DEFAULT,
        contexts: vec![BASE_ALLOCATION.to_owned(), "x-test:mark".to_owned()],
        token,
    }
}

pub(crate) fn catalog() -> Vec<ExportInfo> {
    let mut frozen = export("frozen", 2);
    frozen.flags.read_only = true;
    let mut plain = export("plain", 3);
    plain.flags = ExportFlags::default();
    plain.contexts.clear();
    plain.description.clear();
    let mut aligned = export("aligned", 4);
    aligned.size_bytes = 4 << 20;
    aligned.blocks = BlockSizes::new(512, 4096, 1 << 20).unwrap();
    let mut huge = export("huge", 5);
    huge.size_bytes = 1 << 40;
    vec![export("first", 1), frozen, plain, aligned, huge]
}

/// All transmission flags of the export "first" with structured replies.
pub(crate) const FIRST_FLAGS: u16 = tx_flag::HAS_FLAGS
    | tx_flag::SEND_FLUSH
    | tx_flag::SEND_FUA
    | tx_flag::ROTATIONAL
    | tx_flag::SEND_TRIM
    | tx_flag::SEND_WRITE_ZEROES
    | tx_flag::SEND_DF
    | tx_flag::CAN_MULTI_CONN
    | tx_flag::SEND_CACHE
    | tx_flag::SEND_FAST_ZERO;

/// The exports as one client may see them.
struct View<'a> {
    exports: &'a [ExportInfo],
    access: &'a [(&'static str, Access)],
}

impl ExportCatalog for View<'_> {
    fn lookup(&self, name: &str) -> Option<ExportInfo> {
        self.exports.lookup(name)
    }

    fn list(&self) -> Vec<ServerEntry> {
        self.exports.list()
    }

    fn access(&self, name: &str) -> Access {
        let rule = self.access.iter().find(|(export, _)| *export == name);
        rule.map_or_else(|| self.exports.access(name), |(_, access)| *access)
    }
}

/// A server that carries requests out at once on `disk`.
pub(crate) struct Server {
    pub(crate) session: ServerSession,
    pub(crate) exports: Vec<ExportInfo>,
    /// Rights of the client, if restricted.
    pub(crate) access: Vec<(&'static str, Access)>,
    pub(crate) disk: Vec<u8>,
    pub(crate) out: Vec<u8>,
    pub(crate) log: Vec<String>,
    pub(crate) closed: Option<CloseReason>,
    /// Answer this error instead of carrying requests out.
    pub(crate) fail: Option<ErrorCode>,
    write: Option<(Request, Vec<u8>)>,
}

impl Server {
    pub(crate) fn new(config: ServerConfig) -> Self {
        let mut out = Vec::new();
        let session = ServerSession::new(config, &mut out);
        let disk = vec![0; usize::try_from(SIZE).unwrap()];
        Self {
            session,
            exports: catalog(),
            access: Vec::new(),
            disk,
            out,
            log: Vec::new(),
            closed: None,
            fail: None,
            write: None,
        }
    }

    /// Feeds a received chunk, and executes its requests.
    pub(crate) fn feed(&mut self, mut input: &[u8]) {
        loop {
            if self.write.is_some() {
                let taken = self.session.take_payload(&mut input);
                self.write.as_mut().unwrap().1.extend_from_slice(taken);
                if matches!(self.session.need(), Need::Payload { .. }) {
                    return;
                }
                let (request, data) = self.write.take().unwrap();
                self.carry_out(request, &data);
            }
            let view = View { exports: &self.exports, access: &self.access };
            match self.session.next_event(&mut input, &view, &mut self.out) {
                None => break,
                Some(ServerEvent::Attached { token }) => self.log.push(format!("attached {token}")),
                Some(ServerEvent::Refused { export, why }) => {
                    self.log.push(format!("refused {export:?}: {why}"));
                }
                Some(ServerEvent::Request(request)) => self.carry_out(request, &[]),
                Some(ServerEvent::WriteBegin(request)) => self.write = Some((request, Vec::new())),
                Some(ServerEvent::Disconnect) => self.log.push("disconnect".to_owned()),
                Some(ServerEvent::Closed(reason)) => self.closed = Some(reason),
            }
        }
        assert!(input.is_empty(), "this driver answers at once, so nothing may be left");
    }

    /// Bytes sent since the last call.
    pub(crate) fn sent(&mut self) -> Vec<u8> {
        std::mem::take(&mut self.out)
    }

    fn carry_out(&mut self, request: Request, data: &[u8]) {
        let flags = [
            (request.fua(), "fua"),
            (request.no_hole(), "no_hole"),
            (request.fast_zero(), "fast_zero"),
            (request.dont_fragment(), "df"),
            (request.one_extent(), "one"),
        ];
        let flags: Vec<&str> = flags.iter().filter(|(on, _)| *on).map(|(_, name)| *name).collect();
        let (offset, length) = (request.offset(), request.length());
        self.log.push(
            format!("{:?} {offset} {length} {}", request.command(), flags.join(",")).trim_end().to_owned(),
        );
        if let Some(code) = self.fail {
            return self.session.reply_error(request, code, "told to fail", &mut self.out);
        }
        let range = usize::try_from(offset).unwrap()..usize::try_from(offset + length).unwrap();
        match request.command() {
            Command::Read => {
                let data = self.disk[range].to_vec();
                self.read(request, &data);
            }
            Command::BlockStatus => {
                let extents = status(&self.disk[range]);
                let list = |id| if id == 1 { extents.clone() } else { Vec::new() };
                self.session.reply_block_status(request, list, &mut self.out);
            }
            kind => {
                match kind {
                    Command::Write => self.disk[range].copy_from_slice(data),
                    Command::Trim | Command::WriteZeroes if range.end <= self.disk.len() => {
                        self.disk[range].fill(0);
                    }
                    _ => {}
                }
                self.session.reply_done(request, &mut self.out);
            }
        }
    }

    /// Sends runs of zero 512-byte sectors as holes.
    fn read(&mut self, request: Request, data: &[u8]) {
        let mut reply = self.session.begin_read(request);
        for extent in status(data) {
            let at = data.len() - usize::try_from(reply.left_bytes()).unwrap();
            let piece = &data[at..at + usize::try_from(extent.length).unwrap()];
            if extent.flags == 0 {
                self.session.read_data(&mut reply, extent.length, &mut self.out);
                self.out.extend_from_slice(piece);
            } else if self.session.read_hole(&mut reply, extent.length, &mut self.out) == HoleForm::SendZeroes
            {
                self.out.extend_from_slice(piece);
            }
        }
        self.session.end_read(reply);
    }
}

/// Runs of zero and other 512-byte sectors.
pub(crate) fn status(data: &[u8]) -> Vec<StatusExtent> {
    let mut list: Vec<StatusExtent> = Vec::new();
    for sector in data.chunks(512) {
        let zero = sector.iter().all(|byte| *byte == 0);
        let flags = if zero { u64::from(STATE_HOLE | STATE_ZERO) } else { 0 };
        let length = u64::try_from(sector.len()).unwrap();
        match list.last_mut() {
            Some(last) if last.flags == flags => last.length += length,
            _ => list.push(StatusExtent { length, flags }),
        }
    }
    list
}
