//! From client requests to the manager's and back.
//!
//! Job: turn each request of an NBD connection or a ublk device into manager requests on whole sectors, order
//! overlapping writes (see `locks`), read and merge the edges of writes that are not sector-aligned, and answer.
//!
//! Invariants: a client request is answered once, after the last of its manager requests; a write holds its range from
//! before its first manager request until after its last. Reads, prefetches, trims and zeroings go to the manager in
//! pieces, each when its connection has its turn; a trim or zeroing holds the range of the piece alone. A vanished
//! connection's requests and pieces run to their end if they have begun, and never begin otherwise.
//!
//! What it does not do: protocol (the session does, and `ublk`) or caching.

use std::collections::BTreeMap;
use std::ops::Range;

use zc_cache::ResidencyRun;
use zc_cache::seam::{Event, Request as CacheRequest, RequestKind};
use zc_core::{
    Ack, ErrorKind, Mode, ReqId, SECTOR_BYTES, Set, VolumeId, u64_from_usize, usize_from_u32, usize_from_u64,
};
use zc_io::{AlignedBuf, Arena};
use zc_nbd::ErrorCode;
use zc_nbd::server::{Command, Request};

use crate::front::shares;
use crate::origin::map::OriginRun;
use crate::shard::Shard;
use crate::shard::clients::ublk::Tag;
use crate::shard::clients::waiting::{served_bytes, status_bytes};
use crate::shard::metrics::Path;

pub(crate) const SECTOR: u64 = SECTOR_BYTES as u64;

/// A client request under way.
#[derive(Debug)]
pub(crate) struct ClientRequest {
    from: Asker,
    asked: Asked,
    volume: VolumeId,
    started_ns: u64,
    /// Memory counted against the budget.
    charge_bytes: u64,
    pub(crate) body: Body,
    /// Manager requests that have not ended.
    parts_left: u32,
    error: Option<ErrorKind>,
    /// How its pieces were served so far.
    path: Option<Path>,
    /// What of the volume follows when the piece under way is done.
    rest: Range<u64>,
    /// The request is counted as one that waits for its range.
    is_barred: bool,
    /// The answer waits for reduced data to be durable.
    hurries: bool,
}

impl ClientRequest {
    pub(crate) const fn volume(&self) -> VolumeId {
        self.volume
    }

    const fn waits_for_range(&self) -> bool {
        matches!(&self.body, Body::Change(change) if matches!(change.phase, Phase::Waiting))
    }
}

/// The sender of a request, and what the answer goes to.
#[derive(Debug)]
pub(crate) enum Asker {
    /// A connection; the request is taken by the reply.
    Nbd { conn: u64, request: Request },
    /// A tag of a ublk device.
    Ublk(Tag),
}

/// A request as it comes in.
#[derive(Debug)]
pub(crate) struct Incoming {
    pub(crate) from: Asker,
    pub(crate) volume: VolumeId,
    pub(crate) asked: Asked,
}

impl Incoming {
    fn of_connection(conn: u64, volume: VolumeId, request: Request) -> Self {
        let asked = Asked::of(&request);
        Self { from: Asker::Nbd { conn, request }, volume, asked }
    }
}

/// What is asked for.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Asked {
    pub(crate) command: Command,
    pub(crate) offset: u64,
    pub(crate) length: u64,
    pub(crate) fua: bool,
    pub(crate) no_hole: bool,
    pub(crate) fast_zero: bool,
}

impl Asked {
    fn of(request: &Request) -> Self {
        Self {
            command: request.command(),
            offset: request.offset(),
            length: request.length(),
            fua: request.fua(),
            no_hole: request.no_hole(),
            fast_zero: request.fast_zero(),
        }
    }
}

/// What a request has to do.
#[derive(Debug)]
pub(crate) enum Body {
    /// Bytes go to `arena[skip..]`.
    Read { arena: Arena, skip_bytes: usize },
    /// Flush, prefetch.
    Plain,
    /// Block status; what the cache said of the range when it was asked, and the origin, once it is known.
    Status { cache: Vec<ResidencyRun>, origin: Vec<OriginRun> },
    /// Write, trim, zeroing; in this order: range, edges, parts.
    Change(Change),
}

#[derive(Debug)]
pub(crate) struct Change {
    /// Whole sectors.
    start: u64,
    end: u64,
    /// Of a WRITE: whole sectors, the payload inside.
    memory: Option<Arena>,
    /// Sectors of which only a part is written, being read.
    edges: Vec<Edge>,
    phase: Phase,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Phase {
    /// The change has no range and waits for none.
    Between,
    Waiting,
    Edges,
    Writing,
}

#[derive(Debug)]
struct Edge {
    sector: u64,
    arena: Arena,
}

/// The start of the sector that a byte lies in.
pub(crate) fn floor(bytes: u64) -> u64 {
    bytes / SECTOR * SECTOR
}

/// The part of a sector that a request covers, relative to the sector.
fn covered(sector: u64, offset: u64, length: u64) -> Range<usize> {
    let start = offset.max(sector) - sector;
    let end = (offset + length).min(sector + SECTOR) - sector;
    usize_from_u64(start)..usize_from_u64(end)
}

impl Shard {
    /// Memory for a WRITE's payload, and where in it the payload starts: at the same place in its sector as on the
    /// volume, so that an aligned write needs no copy and an unaligned one only its edges.
    pub(crate) fn payload_memory(&self, volume: VolumeId, request: &Request) -> (AlignedBuf, usize) {
        let skip = request.offset() % SECTOR;
        let whole = (skip + request.length()).next_multiple_of(SECTOR);
        (self.buffers.client_memory(volume, usize_from_u64(whole)), usize_from_u64(skip))
    }

    /// A request without payload, from a session.
    pub(crate) fn begin_request(&mut self, conn: u64, volume: VolumeId, request: Request) {
        if request.command() == Command::BlockStatus {
            self.begin_status(conn, volume, request);
        } else {
            self.begin(Incoming::of_connection(conn, volume, request));
        }
    }

    /// A request without payload that moves or changes bytes.
    pub(crate) fn begin(&mut self, incoming: Incoming) {
        let (volume, asked) = (incoming.volume, incoming.asked);
        let (offset, length) = (asked.offset, asked.length);
        let (start, end) = (floor(offset), (offset + length).next_multiple_of(SECTOR));
        match asked.command {
            Command::Read => {
                let memory = self.buffers.client_memory(volume, usize_from_u64(end - start));
                let arena = Arena::new(memory);
                let skip_bytes = usize_from_u64(offset - start);
                let charge_bytes = u64_from_usize(arena.held_bytes());
                let id = self.add_client(incoming, Body::Read { arena, skip_bytes }, charge_bytes);
                self.client(id).rest = start..end;
                self.begin_piece(id);
            }
            Command::Flush => {
                let id = self.add_client(incoming, Body::Plain, 0);
                self.submit_part(id, 0, 0, RequestKind::Flush);
            }
            Command::Cache => {
                let id = self.add_client(incoming, Body::Plain, 0);
                self.client(id).rest = start..end;
                self.begin_piece(id);
            }
            Command::Trim => {
                // Parts of sectors are kept: a trim is a hint.
                let (start, end) = (offset.next_multiple_of(SECTOR), floor(offset + length));
                self.begin_change(incoming, start..end.max(start), None);
            }
            Command::WriteZeroes if asked.fast_zero && !self.zeroes_fast(volume, asked) => {
                let id = self.add_client(incoming, Body::Plain, 0);
                self.client(id).error = Some(ErrorKind::Unsupported);
                self.answer(id);
            }
            Command::WriteZeroes => self.begin_change(incoming, start..end, None),
            Command::BlockStatus | Command::Write => {
                unreachable!("{:?} is begun elsewhere", asked.command)
            }
        }
    }

    /// A WRITE whose payload is complete.
    pub(crate) fn begin_write(&mut self, conn: u64, volume: VolumeId, request: Request, memory: AlignedBuf) {
        self.begin_write_from(Incoming::of_connection(conn, volume, request), memory);
    }

    /// A write whose bytes are here; their memory was counted since the first came.
    pub(crate) fn begin_write_from(&mut self, incoming: Incoming, memory: AlignedBuf) {
        self.budget_bytes -= u64_from_usize(memory.held_bytes());
        let start = floor(incoming.asked.offset);
        let end = start + u64_from_usize(memory.len());
        self.begin_change(incoming, start..end, Some(Arena::new(memory)));
    }

    /// A change of whole sectors; `memory` is that of a write.
    fn begin_change(&mut self, incoming: Incoming, sectors: Range<u64>, memory: Option<Arena>) {
        let Range { start, end } = sectors;
        let charge = memory.as_ref().map_or(0, |memory| u64_from_usize(memory.held_bytes()));
        let change = Change { start, end: start, memory, edges: Vec::new(), phase: Phase::Between };
        let id = self.add_client(incoming, Body::Change(change), charge);
        if start == end {
            self.answer(id);
            return;
        }
        self.client(id).rest = start..end;
        self.begin_piece(id);
    }

    /// Begins the next piece of a request; how much work that is.
    pub(crate) fn begin_piece(&mut self, id: u64) -> u64 {
        let client = self.client(id);
        let (command, volume) = (client.asked.command, client.volume);
        let Range { start, end } = client.rest;
        let piece = start..start + shares::piece(command, end - start);
        client.rest.start = piece.end;
        let units = shares::units(command, piece.end - piece.start);
        let change = match &mut client.body {
            Body::Change(change) => change,
            Body::Read { arena, .. } => {
                let (arena, first) = (arena.clone(), floor(client.asked.offset));
                let range = usize_from_u64(piece.start - first)..usize_from_u64(piece.end - first);
                let buf = self.buffers.adopt_part(arena, range);
                self.submit_part(id, start, piece.end - start, RequestKind::Read { buf });
                return units;
            }
            Body::Plain | Body::Status { .. } => {
                self.submit_part(id, start, piece.end - start, RequestKind::Prefetch);
                return units;
            }
        };
        (change.start, change.end, change.phase) = (piece.start, piece.end, Phase::Waiting);
        if self.volume_mut(volume).locks.acquire(piece, id) {
            self.range_granted(id);
        } else {
            self.client(id).is_barred = true;
            self.count_barred(id, true);
        }
        units
    }

    /// Counts a change that waits for its range with its connection.
    fn count_barred(&mut self, id: u64, waits: bool) {
        let Asker::Nbd { conn, .. } = self.client(id).from else { return };
        if let Some(entry) = self.nbd.conns.get_mut(&conn) {
            entry.barred = if waits { entry.barred + 1 } else { entry.barred - 1 };
            self.touch(conn);
        }
    }

    /// Whether another piece follows, which then has its turn when its connection has. Those of clients that left and
    /// of requests that failed do not.
    fn goes_on(&mut self, id: u64) -> bool {
        let client = self.client(id);
        if client.rest.is_empty() || client.error.is_some() {
            return false;
        }
        let asker = if let Asker::Nbd { conn, .. } = client.from { Some(conn) } else { None };
        self.release_range(id);
        let Some(conn) = asker else {
            self.begin_piece(id);
            return true;
        };
        let Some(entry) = self.nbd.conns.get_mut(&conn).filter(|conn| !conn.dead) else { return false };
        entry.due.push_back(id);
        self.touch(conn);
        true
    }

    /// Gives a change's range back, if it has one.
    fn release_range(&mut self, id: u64) {
        let client = self.client(id);
        let volume = client.volume;
        let Body::Change(change) = &mut client.body else { return };
        if change.phase == Phase::Between {
            return;
        }
        change.phase = Phase::Between;
        let range = change.start..change.end;
        let mut granted = Vec::new();
        self.volume_mut(volume).locks.release(&range, &mut granted);
        for other in granted {
            self.range_granted(other);
        }
    }

    /// Whether the origin makes zeros without writing them. Space that must stay allocated may have to be written.
    fn zeroes_fast(&mut self, volume: VolumeId, asked: Asked) -> bool {
        let volume = self.volume_mut(volume);
        volume.zeroes_fast && volume.origin.can_punch() && !asked.no_hole
    }

    /// A block status, whose answer is put together from what the origin and the cache say.
    pub(crate) fn add_status(&mut self, conn: u64, volume: VolumeId, request: Request, body: Body) -> u64 {
        let bytes = status_bytes(request.length());
        self.add_client(Incoming::of_connection(conn, volume, request), body, bytes)
    }

    fn add_client(&mut self, incoming: Incoming, body: Body, charge_bytes: u64) -> u64 {
        let Incoming { from, volume, asked } = incoming;
        self.next_number += 1;
        let id = self.next_number;
        let hurries = self.hurries(volume, asked);
        self.hurried += usize::from(hurries);
        let client = ClientRequest {
            from,
            asked,
            volume,
            started_ns: self.clock.now_ns(),
            charge_bytes: 0,
            body,
            parts_left: 0,
            error: None,
            path: None,
            rest: 0..0,
            is_barred: false,
            hurries,
        };
        if let Asker::Nbd { conn, .. } = client.from {
            let bytes = served_bytes(asked.command, asked.length);
            self.nbd.shares.serve(bytes);
            if let Some(conn) = self.nbd.conns.get_mut(&conn) {
                conn.serving_bytes += bytes;
            }
        }
        self.clients.insert(id, client);
        self.charge(id, charge_bytes);
        id
    }

    /// Counts memory that a request holds until it is answered.
    fn charge(&mut self, id: u64, bytes: u64) {
        let client = self.client(id);
        client.charge_bytes += bytes;
        let conn = if let Asker::Nbd { conn, .. } = client.from { Some(conn) } else { None };
        self.budget_bytes += bytes;
        if let Some(id) = conn
            && let Some(conn) = self.nbd.conns.get_mut(&id)
        {
            conn.charged_bytes += bytes;
            self.recount(id);
        }
    }

    /// Whether the answer to such a request waits until data is reduced and durable on the cache device.
    fn hurries(&mut self, volume: VolumeId, asked: Asked) -> bool {
        let config = &self.volume_mut(volume).config;
        let durable = match asked.command {
            Command::Flush => true,
            Command::Write | Command::WriteZeroes | Command::Trim => {
                asked.fua || config.write_back.ack == Ack::Durable
            }
            Command::Read | Command::Cache | Command::BlockStatus => false,
        };
        durable && config.mode == Mode::WriteBack
    }

    fn client(&mut self, id: u64) -> &mut ClientRequest {
        let Some(client) = self.clients.get_mut(&id) else { panic!("client request {id} has ended") };
        client
    }

    fn submit_part(&mut self, id: u64, offset_bytes: u64, len_bytes: u64, kind: RequestKind) {
        let client = self.client(id);
        client.parts_left += 1;
        let volume = client.volume;
        self.next_number += 1;
        let req = ReqId(self.next_number);
        self.parts.insert(req, id);
        self.events.push_back(Event::Submit(CacheRequest { req, volume, offset_bytes, len_bytes, kind }));
    }

    /// A write has its range: read its edges, or write at once.
    pub(crate) fn range_granted(&mut self, id: u64) {
        if std::mem::take(&mut self.client(id).is_barred) {
            self.count_barred(id, false);
        }
        let client = self.client(id);
        let (volume, offset, length) = (client.volume, client.asked.offset, client.asked.length);
        let is_trim = client.asked.command == Command::Trim;
        let Body::Change(change) = &mut client.body else { unreachable!("only changes have ranges") };
        let last = change.end - SECTOR;
        let mut sectors = vec![change.start];
        if last != change.start {
            sectors.push(last);
        }
        sectors.retain(|&sector| !is_trim && covered(sector, offset, length).len() < usize_from_u64(SECTOR));
        change.phase = if sectors.is_empty() { Phase::Writing } else { Phase::Edges };
        if sectors.is_empty() {
            self.write_parts(id);
            return;
        }
        for sector in sectors {
            let arena = Arena::new(self.buffers.client_memory(volume, usize_from_u32(SECTOR_BYTES)));
            let buf = self.buffers.adopt(arena.clone());
            self.charge(id, u64_from_usize(arena.held_bytes()));
            if let Body::Change(change) = &mut self.client(id).body {
                change.edges.push(Edge { sector, arena });
            }
            self.submit_part(id, sector, SECTOR, RequestKind::Read { buf });
        }
    }

    /// The edges are there: merge and write.
    fn edges_read(&mut self, id: u64) {
        let Some(client) = self.clients.get_mut(&id) else { panic!("client request {id} has ended") };
        let (volume, offset, length) = (client.volume, client.asked.offset, client.asked.length);
        let Body::Change(change) = &mut client.body else { unreachable!("only changes have edges") };
        change.phase = Phase::Writing;
        for edge in &mut change.edges {
            let own = covered(edge.sector, offset, length);
            match &change.memory {
                Some(memory) => {
                    // What the request does not cover comes from the volume.
                    let at = usize_from_u64(edge.sector - change.start);
                    let old = edge.arena.read_lease(0..usize_from_u32(SECTOR_BYTES));
                    let mut merged = memory.lease(at..at + old.len());
                    merged[..own.start].copy_from_slice(&old[..own.start]);
                    merged[own.end..].copy_from_slice(&old[own.end..]);
                }
                None => {
                    let mut zeroed = self.buffers.client_memory(volume, usize_from_u32(SECTOR_BYTES));
                    zeroed.copy_from_slice(&edge.arena.read_lease(0..usize_from_u32(SECTOR_BYTES)));
                    zeroed[own].fill(0);
                    edge.arena = Arena::new(zeroed);
                }
            }
        }
        self.write_parts(id);
    }

    fn write_parts(&mut self, id: u64) {
        let client = self.client(id);
        let Asked { command, fua, no_hole, .. } = client.asked;
        let Body::Change(change) = &mut client.body else { unreachable!("only changes write") };
        let (mut start, mut end) = (change.start, change.end);
        if let Some(memory) = change.memory.take() {
            let buf = self.buffers.adopt(memory);
            self.submit_part(id, start, end - start, RequestKind::Write { buf, fua });
            return;
        }
        for edge in std::mem::take(&mut change.edges) {
            if edge.sector == start {
                start += SECTOR;
            } else {
                end -= SECTOR;
            }
            let buf = self.buffers.adopt(edge.arena);
            self.submit_part(id, edge.sector, SECTOR, RequestKind::Write { buf, fua });
        }
        if start < end {
            let kind = if command == Command::Trim {
                RequestKind::Trim { fua }
            } else {
                RequestKind::WriteZeroes { no_hole, fua }
            };
            self.submit_part(id, start, end - start, kind);
        }
    }

    /// A manager request has been answered.
    pub(crate) fn part_done(&mut self, req: ReqId, result: Result<(), ErrorKind>, path: Path) {
        let Some(id) = self.parts.remove(&req) else { panic!("{req:?} was answered twice") };
        let client = self.client(id);
        client.error = client.error.or_else(|| result.err());
        let before = client.path.unwrap_or(path);
        client.path = Some(if before == path { path } else { Path::Mixed });
        client.parts_left -= 1;
        if client.parts_left > 0 {
            return;
        }
        let is_edges = matches!(&client.body, Body::Change(change) if change.phase == Phase::Edges);
        if is_edges && client.error.is_none() {
            self.edges_read(id);
            return;
        }
        if self.goes_on(id) {
            return;
        }
        let client = self.client(id);
        let path = match &client.body {
            Body::Read { .. } => client.path,
            Body::Change(_) => Some(Path::Write),
            Body::Status { .. } => None,
            Body::Plain => (client.asked.command == Command::Flush).then_some(Path::Flush),
        };
        if let Some(path) = path {
            let (started_ns, volume, failed) = (client.started_ns, client.volume, client.error.is_some());
            let Asked { command, length, .. } = client.asked;
            let nanoseconds = self.clock.now_ns().saturating_sub(started_ns);
            self.metrics.record(path, nanoseconds);
            let volume = self.volume_mut(volume);
            volume.traffic.count(command, path, length, failed);
            let carried = if matches!(command, Command::Read | Command::Write) { length } else { 0 };
            volume.durations.count(path, nanoseconds, carried);
        }
        self.answer(id);
    }

    /// Answers, gives the range back and lets go.
    pub(crate) fn answer(&mut self, id: u64) {
        self.release_range(id);
        let Some(client) = self.clients.remove(&id) else { panic!("client request {id} is answered twice") };
        self.budget_bytes -= client.charge_bytes;
        self.hurried -= usize::from(client.hurries);
        self.end(client);
    }

    /// Ends the requests of given-up connections that wait for their range, or whose next piece has not begun: no client
    /// was told anything of them.
    pub(crate) fn drop_unbegun(&mut self) {
        let given_up = std::mem::take(&mut self.nbd.given_up);
        if given_up.is_empty() {
            return;
        }
        let mut unbegun: BTreeMap<VolumeId, Set<u64>> = BTreeMap::new();
        for id in std::mem::take(&mut self.nbd.given_up_pieces) {
            self.answer(id);
        }
        for (id, client) in &self.clients {
            if client.waits_for_range()
                && let Asker::Nbd { conn, .. } = &client.from
                && given_up.contains(conn)
            {
                unbegun.entry(client.volume).or_default().insert(*id);
            }
        }
        for (volume, ids) in unbegun {
            for client in ids.iter().filter_map(|id| self.clients.remove(id)).collect::<Vec<_>>() {
                self.budget_bytes -= client.charge_bytes;
                self.hurried -= usize::from(client.hurries);
                self.end(client);
            }
            let mut granted = Vec::new();
            self.volume_mut(volume).locks.withdraw(&ids, &mut granted);
            for other in granted {
                self.range_granted(other);
            }
        }
    }

    /// Gives back what a request held of its connection's share, and answers it.
    fn end(&mut self, client: ClientRequest) {
        match client.from {
            Asker::Nbd { conn, request } => {
                let bytes = served_bytes(client.asked.command, client.asked.length);
                self.nbd.shares.served(bytes);
                if let Some(conn) = self.nbd.conns.get_mut(&conn) {
                    conn.charged_bytes -= client.charge_bytes;
                    conn.serving_bytes -= bytes;
                }
                self.answer_nbd(conn, request, &client.body, client.error);
                self.recount(conn);
            }
            Asker::Ublk(tag) => self.answer_ublk(tag, &client.body, client.error),
        }
    }

    fn answer_nbd(&mut self, id: u64, request: Request, body: &Body, error: Option<ErrorKind>) {
        if let Body::Status { cache, origin } = body {
            self.answer_status(id, request, cache, origin);
            return;
        }
        let Some(conn) = self.nbd.conns.get_mut(&id).filter(|conn| !conn.dead) else { return };
        if let (None, Body::Read { arena, skip_bytes }) = (error, body) {
            conn.reply_read(request, arena, *skip_bytes);
            self.touch(id);
            return;
        }
        let (session, head) = conn.reply();
        if let Some(kind) = error {
            // Everything but a fast zeroing is served by origins one way or another.
            let is_slow = kind == ErrorKind::Unsupported && request.fast_zero();
            let code = if is_slow { ErrorCode::NotSup } else { ErrorCode::from(kind) };
            session.reply_error(request, code, &kind.to_string(), head);
        } else {
            session.reply_done(request, head);
        }
        self.touch(id);
    }

    fn answer_status(&mut self, conn: u64, request: Request, cache: &[ResidencyRun], origin: &[OriginRun]) {
        let mut extents = self.status_extents(conn, &request, cache, origin);
        let Some(entry) = self.nbd.conns.get_mut(&conn).filter(|conn| !conn.dead) else { return };
        let (session, head) = entry.reply();
        let of = |context: u32| {
            let found = extents.iter_mut().find(|(id, _)| *id == context);
            found.map(|(_, extents)| std::mem::take(extents)).unwrap_or_default()
        };
        session.reply_block_status(request, of, head);
        self.touch(conn);
    }
}
