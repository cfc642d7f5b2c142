//! A simulated NBD server that keeps requests for as long as the test wants, and loses unflushed data.

use std::collections::BTreeMap;

use rand::RngExt as _;
use rand_pcg::Pcg64Mcg;
use zc_nbd::proto::{BASE_ALLOCATION, STATE_HOLE, STATE_ZERO};
use zc_nbd::server::{
    BlockSizes, Command, ExportFlags, ExportInfo, Request, ServerConfig, ServerEvent, ServerSession,
};
use zc_nbd::wire::{HeaderStyle, StatusExtent};
use zc_nbd::{ErrorCode, Need};

pub(crate) const SECTOR: usize = 512;

/// One connection as the server sees it.
struct Conn {
    session: ServerSession,
    out: Vec<u8>,
    write: Option<(Request, Vec<u8>)>,
    pending: Vec<(Request, Vec<u8>)>,
    /// Carried out and not answered, with the data of reads.
    finished: Vec<(Request, Vec<u8>, Option<ErrorCode>)>,
    /// Block statuses that were carried out, by the offset and length of their requests.
    statuses: Vec<((u64, u64), Vec<StatusExtent>)>,
}

pub(crate) struct Server {
    pub(crate) export: ExportInfo,
    pub(crate) style: HeaderStyle,
    /// Holes are reported where there is content.
    pub(crate) lies: bool,
    /// Sectors of one run of a block status at most; the answer has two runs at most.
    pub(crate) run_max: usize,
    /// The byte of the next answer to a block status that is changed, and the bits of it.
    pub(crate) garbles: Option<(usize, u8)>,
    /// Zeroing that is not fast is refused if it is to be fast.
    pub(crate) zeroes_slowly: bool,
    /// Content that a restart keeps.
    pub(crate) durable: Vec<u8>,
    /// Sectors that a restart may lose.
    pub(crate) volatile: BTreeMap<usize, [u8; SECTOR]>,
    conns: Vec<Option<Conn>>,
    pub(crate) log: Vec<String>,
}

pub(crate) fn flags() -> ExportFlags {
    ExportFlags {
        flush: true,
        fua: true,
        trim: true,
        write_zeroes: true,
        fast_zero: true,
        ..ExportFlags::default()
    }
}

impl Server {
    pub(crate) fn new(sectors: usize, flags: ExportFlags, payload_max: u32, style: HeaderStyle) -> Self {
        let export = ExportInfo {
            name: "disk".to_owned(),
            description: String::new(),
            size_bytes: u64::try_from(sectors * SECTOR).unwrap(),
            flags,
            blocks: BlockSizes::new(1, 512, payload_max).unwrap(),
            contexts: vec![BASE_ALLOCATION.to_owned()],
            token: 1,
        };
        let durable = vec![0; sectors * SECTOR];
        let (lies, run_max, garbles, zeroes_slowly) = (false, usize::MAX, None, false);
        Self {
            export,
            style,
            lies,
            run_max,
            garbles,
            zeroes_slowly,
            durable,
            volatile: BTreeMap::new(),
            conns: Vec::new(),
            log: Vec::new(),
        }
    }

    fn conn(&mut self, at: usize) -> Option<&mut Conn> {
        self.conns.get_mut(at)?.as_mut()
    }

    pub(crate) fn connect(&mut self, at: usize) {
        let mut out = Vec::new();
        let config = ServerConfig {
            structured: self.style != HeaderStyle::Simple,
            extended: self.style == HeaderStyle::Extended,
            ..ServerConfig::default()
        };
        let session = ServerSession::new(config, &mut out);
        let conn = Conn {
            session,
            out,
            write: None,
            pending: Vec::new(),
            finished: Vec::new(),
            statuses: Vec::new(),
        };
        self.conns.resize_with(self.conns.len().max(at + 1), || None);
        assert!(self.conns[at].replace(conn).is_none(), "the connection before was closed");
    }

    pub(crate) fn is_connected(&self, at: usize) -> bool {
        self.conns.get(at).is_some_and(Option::is_some)
    }

    pub(crate) fn connections(&self) -> usize {
        self.conns.iter().flatten().count()
    }

    pub(crate) fn begin_shutdown(&mut self) {
        self.conns.iter_mut().flatten().for_each(|conn| conn.session.begin_shutdown());
    }

    /// Bytes that were sent since the last call.
    pub(crate) fn sent(&mut self, at: usize) -> Vec<u8> {
        self.conn(at).map_or_else(Vec::new, |conn| std::mem::take(&mut conn.out))
    }

    /// Requests of all connections that were not carried out.
    pub(crate) fn pending(&self) -> usize {
        self.conns.iter().flatten().map(|conn| conn.pending.len()).sum()
    }

    /// Requests of a connection that were not carried out.
    pub(crate) fn pending_of(&self, at: usize) -> usize {
        self.conns.get(at).and_then(Option::as_ref).map_or(0, |conn| conn.pending.len())
    }

    /// Takes bytes of the client. Returns `false` once the client has said goodbye.
    pub(crate) fn feed(&mut self, at: usize, mut input: &[u8]) -> bool {
        let exports = [self.export.clone()];
        let Some(conn) = self.conn(at) else { return true };
        loop {
            if let Some((_, data)) = &mut conn.write {
                data.extend_from_slice(conn.session.take_payload(&mut input));
                if matches!(conn.session.need(), Need::Payload { .. }) {
                    return true;
                }
                conn.pending.extend(conn.write.take());
            }
            match conn.session.next_event(&mut input, exports.as_slice(), &mut conn.out) {
                None => return true,
                Some(ServerEvent::Request(request)) => conn.pending.push((request, Vec::new())),
                Some(ServerEvent::WriteBegin(request)) => conn.write = Some((request, Vec::new())),
                Some(ServerEvent::Disconnect | ServerEvent::Closed(_)) => return false,
                Some(ServerEvent::Attached { .. } | ServerEvent::Refused { .. }) => {}
            }
        }
    }

    pub(crate) fn sector(&self, sector: usize) -> [u8; SECTOR] {
        let durable = || self.durable[sector * SECTOR..(sector + 1) * SECTOR].try_into().unwrap();
        self.volatile.get(&sector).copied().unwrap_or_else(durable)
    }

    fn put(&mut self, sector: usize, bytes: [u8; SECTOR], is_durable: bool) {
        if is_durable || !self.export.flags.flush {
            self.volatile.remove(&sector);
            self.durable[sector * SECTOR..(sector + 1) * SECTOR].copy_from_slice(&bytes);
        } else {
            self.volatile.insert(sector, bytes);
        }
    }

    fn change(&mut self, request: &Request, data: &[u8], mut is_kept: impl FnMut() -> bool) {
        let (first, fua) = (usize::try_from(request.offset()).unwrap() / SECTOR, request.fua());
        let count = usize::try_from(request.length()).unwrap() / SECTOR;
        for at in 0..count {
            let bytes = match request.command() {
                Command::Write => data[at * SECTOR..(at + 1) * SECTOR].try_into().unwrap(),
                _ => [0; SECTOR],
            };
            if is_kept() {
                self.put(first + at, bytes, fua);
            }
        }
    }

    /// Returns the states of a range, possibly of its beginning only.
    fn states(&self, request: &Request) -> Vec<StatusExtent> {
        let first = usize::try_from(request.offset()).unwrap() / SECTOR;
        let last = first + usize::try_from(request.length()).unwrap() / SECTOR;
        let is_zero = |sector: usize| self.lies || self.sector(sector) == [0; SECTOR];
        let mut extents = Vec::new();
        let mut at = first;
        while at < last && extents.len() < 2 {
            let zero = is_zero(at);
            let most = at.saturating_add(self.run_max).min(last);
            let end = (at + 1..most).find(|sector| is_zero(*sector) != zero).unwrap_or(most);
            // Flags that no client has heard of are set as well.
            let flags = u64::from(if zero { STATE_HOLE | STATE_ZERO } else { 0 } | 1 << 7);
            extents.push(StatusExtent { length: u64::try_from((end - at) * SECTOR).unwrap(), flags });
            at = end;
        }
        extents
    }

    pub(crate) fn flush(&mut self) {
        for (sector, bytes) in std::mem::take(&mut self.volatile) {
            self.put(sector, bytes, true);
        }
    }

    /// Carries out a pending request and answers it.
    pub(crate) fn execute(&mut self, at: usize, fail: Option<ErrorCode>) {
        let (number, _) = self.place(at, |conn| conn.pending.len());
        self.carry_out(at, fail);
        let before = self.conns[..=number].iter().flatten().map(|conn| conn.finished.len()).sum::<usize>();
        self.answer(before - 1);
    }

    /// Requests that were carried out and not answered.
    pub(crate) fn finished(&self) -> usize {
        self.conns.iter().flatten().map(|conn| conn.finished.len()).sum()
    }

    /// The connection with a request, counted over all, and its place there. `of`: the requests of a connection.
    fn place(&self, mut at: usize, of: impl Fn(&Conn) -> usize) -> (usize, usize) {
        for (number, conn) in self.conns.iter().enumerate() {
            let count = conn.as_ref().map_or(0, &of);
            if at < count {
                return (number, at);
            }
            at -= count;
        }
        panic!("there is no such request");
    }

    /// Carries out a pending request. The answer follows later.
    pub(crate) fn carry_out(&mut self, at: usize, fail: Option<ErrorCode>) {
        let (number, at) = self.place(at, |conn| conn.pending.len());
        let Some((request, data)) = self.conn(number).map(|conn| conn.pending.remove(at)) else { return };
        self.log.push(format!("{:?} {} {}", request.command(), request.offset(), request.length()));
        let mut read = Vec::new();
        let refuses = self.zeroes_slowly && request.fast_zero();
        let fail = if refuses { Some(ErrorCode::NotSup) } else { fail };
        match (fail, request.command()) {
            (Some(_), _) => {}
            (None, Command::BlockStatus) => {
                let states = ((request.offset(), request.length()), self.states(&request));
                self.conn(number).unwrap().statuses.push(states);
            }
            (None, Command::Flush) => self.flush(),
            (None, Command::Read) => {
                let first = usize::try_from(request.offset()).unwrap() / SECTOR;
                let count = usize::try_from(request.length()).unwrap() / SECTOR;
                (first..first + count).for_each(|sector| read.extend_from_slice(&self.sector(sector)));
            }
            (None, _) => self.change(&request, &data, || true),
        }
        if let Some(conn) = self.conn(number) {
            conn.finished.push((request, read, fail));
        }
    }

    /// Answers a request that was carried out.
    pub(crate) fn answer(&mut self, at: usize) {
        let (number, at) = self.place(at, |conn| conn.finished.len());
        let Some(conn) = self.conns.get_mut(number).and_then(Option::as_mut) else { return };
        let (request, read, fail) = conn.finished.remove(at);
        match (fail, request.command()) {
            (Some(code), _) => conn.session.reply_error(request, code, "as told", &mut conn.out),
            (None, Command::Read) => {
                conn.session.reply_read(request, &mut conn.out);
                conn.out.extend_from_slice(&read);
            }
            (None, Command::BlockStatus) => {
                let range = (request.offset(), request.length());
                let at = conn.statuses.iter().position(|(of, _)| *of == range).unwrap();
                let (_, states) = conn.statuses.remove(at);
                let start = conn.out.len();
                conn.session.reply_block_status(request, |_| states.clone(), &mut conn.out);
                if let Some((at, bits)) = self.garbles.take() {
                    conn.out[start + at] ^= bits;
                }
            }
            (None, _) => conn.session.reply_done(request, &mut conn.out),
        }
    }

    pub(crate) fn execute_all(&mut self) {
        while self.pending() > 0 {
            self.execute(0, None);
        }
        while self.finished() > 0 {
            self.answer(0);
        }
    }

    /// A connection ends; pending changes are carried out in part or not at all.
    pub(crate) fn drop_connection(&mut self, at: usize, rng: &mut Pcg64Mcg) {
        let Some(conn) = self.conns.get_mut(at).and_then(Option::take) else { return };
        for (request, data) in &conn.pending {
            if matches!(request.command(), Command::Write | Command::WriteZeroes | Command::Trim) {
                self.change(request, data, || rng.random_bool(0.5));
            }
        }
    }

    /// Restarts the server, which loses any part of the unflushed data.
    pub(crate) fn crash(&mut self, rng: &mut Pcg64Mcg) {
        (0..self.conns.len()).for_each(|at| self.drop_connection(at, rng));
        for (sector, bytes) in std::mem::take(&mut self.volatile) {
            if rng.random_bool(0.4) {
                self.put(sector, bytes, true);
            }
        }
    }
}
