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
//! Out of scope: protocol (the session does, and `ublk`) or caching.

use std::collections::BTreeMap;
use std::ops::Range;

use zc_cache::seam::{Event, Request as CacheRequest, RequestKind};
use zc_cache::{CacheManager, ResidencyRun};
use zc_core::limits::EXTENT_BYTES_DEFAULT;
use zc_core::{
    Ack, BufId, ErrorKind, Map, Mode, ReqId, SECTOR_BYTES, Set, VolumeId, u64_from_usize, usize_from_u32,
    usize_from_u64,
};
use zc_io::{AlignedBuf, Arena, BufPool, Segment};
use zc_nbd::server::{Command, Request};

use crate::front::shares;
use crate::limits::{CHANGE_BYTES_PER_UNIT, CHANGE_KEPT_PIECE_BYTES, CHANGE_PIECE_BYTES, REQUEST_UNITS};
use crate::origin::map::Mapped;
use crate::shard::base::Base;
use crate::shard::clients::asked::{Asked, Asker, Incoming, SECTOR, floor, served_bytes, status_bytes};
use crate::shard::clients::nbd::{Answer, NbdFront};
use crate::shard::clients::ublk::Devices;
use crate::shard::metrics::Path;
use crate::shard::volumes::Volumes;

/// Resources of the shard for requests, and destinations of their replies.
#[derive(Debug)]
pub(crate) struct RequestContext<'a> {
    pub(crate) base: &'a mut Base,
    pub(crate) volumes: &'a mut Volumes,
    pub(crate) nbd: &'a mut NbdFront,
    pub(crate) ublk: &'a mut Devices,
    pub(crate) manager: &'a CacheManager,
}

/// The requests under way.
#[derive(Debug, Default)]
pub(crate) struct Requests {
    table: Map<u64, ClientRequest>,
    /// Manager requests, with the client request of each.
    parts: Map<ReqId, u64>,
    /// Number of requests that wait for reduction and durability.
    hurried: usize,
}

/// A client request in progress.
#[derive(Debug)]
struct ClientRequest {
    from: Asker,
    asked: Asked,
    volume: VolumeId,
    started_ns: u64,
    /// Memory counted against the budget.
    charge_bytes: u64,
    body: Body,
    /// Manager requests in progress.
    parts_left: u32,
    error: Option<ErrorKind>,
    /// Path of its pieces so far.
    path: Option<Path>,
    rest: Range<u64>,
    /// The request is counted as waiting for its range.
    is_barred: bool,
    /// The answer waits for reduced data to be durable.
    hurries: bool,
}

impl ClientRequest {
    const fn waits_for_range(&self) -> bool {
        matches!(&self.body, Body::Change(change) if matches!(change.phase, Phase::Waiting))
    }
}

#[derive(Debug)]
pub(crate) enum Body {
    /// The requested bytes are in the memory from `skip_bytes` on.
    Read { memory: ReadMemory, skip_bytes: usize },
    /// Flush, prefetch.
    Plain,
    /// Block status; the cache's reply for the range, and the origin's, once known.
    Status { cache: Vec<ResidencyRun>, origin: Mapped },
    /// Write, trim, zeroing; in this order: range, edges, parts.
    Change(Change),
}

/// Destination of a read's bytes: whole sectors.
#[derive(Debug)]
pub(crate) enum ReadMemory {
    /// The buffer of a short read's only piece. It exists until the manager has answered.
    Awaited(BufId),
    Arena(Arena),
}

#[derive(Debug)]
pub(crate) struct Change {
    /// Whole sectors.
    start: u64,
    end: u64,
    /// Memory of a WRITE: whole sectors that contain the payload.
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

/// Allocates memory for the bytes of a read. A read of one extent receives its memory with the bytes, except for block
/// devices, whose kernel driver needs aligned memory. Longer reads reuse memory with volume data before the device
/// read can take it, so that it need not be cleared.
fn read_memory(base: &mut Base, incoming: &Incoming, len_bytes: u64) -> ReadMemory {
    let len = usize_from_u64(len_bytes);
    match incoming.from {
        Asker::Nbd { .. } if len_bytes <= u64::from(EXTENT_BYTES_DEFAULT) => {
            ReadMemory::Awaited(base.buffers.await_bytes(incoming.volume, len))
        }
        _ => ReadMemory::Arena(Arena::new(base.buffers.client_memory(incoming.volume, len))),
    }
}

/// Returns the next piece of a trim or zeroing, and its work: proportional to the cached part. If the origin may have
/// to write zeros, it is bounded by the delay that others accept.
fn clear_piece(
    at: &mut RequestContext<'_>,
    volume: VolumeId,
    range: Range<u64>,
    no_hole: bool,
) -> (u64, u64) {
    let most = match (at.volumes.used(volume).origin.can_punch(), no_hole) {
        (false, _) => CHANGE_PIECE_BYTES,
        (true, true) => CHANGE_KEPT_PIECE_BYTES,
        (true, false) => u64::MAX,
    };
    let len_bytes = (range.end - range.start).min(most);
    let lookups_max = CHANGE_PIECE_BYTES / CHANGE_BYTES_PER_UNIT;
    let piece = at.manager.clear_piece(volume, range.start, len_bytes, lookups_max);
    (piece.len_bytes, REQUEST_UNITS + piece.lookups)
}

/// The part of a sector that a request covers, relative to the sector.
fn covered(sector: u64, offset: u64, length: u64) -> Range<usize> {
    let start = offset.max(sector) - sector;
    let end = (offset + length).min(sector + SECTOR) - sector;
    usize_from_u64(start)..usize_from_u64(end)
}

impl Requests {
    pub(crate) fn len(&self) -> usize {
        self.table.len()
    }

    /// Requests to the manager that it has not answered.
    pub(crate) fn parts(&self) -> usize {
        self.parts.len()
    }

    /// Returns `true` if one waits until data is reduced and durable.
    pub(crate) const fn are_hurried(&self) -> bool {
        self.hurried > 0
    }

    /// Returns `true` if a request of this volume is in progress.
    pub(crate) fn are_of(&self, volume: VolumeId) -> bool {
        self.table.values().any(|client| client.volume == volume)
    }

    /// A request without payload that moves or changes bytes.
    pub(crate) fn begin(&mut self, at: &mut RequestContext<'_>, incoming: Incoming) {
        let (volume, asked) = (incoming.volume, incoming.asked);
        let (offset, length) = (asked.offset, asked.length);
        let (start, end) = (floor(offset), (offset + length).next_multiple_of(SECTOR));
        match asked.command {
            Command::Read => {
                let memory = read_memory(at.base, &incoming, end - start);
                let skip_bytes = usize_from_u64(offset - start);
                let charge_bytes = u64_from_usize(BufPool::held_bytes(usize_from_u64(end - start)));
                let id = self.add_client(at, incoming, Body::Read { memory, skip_bytes }, charge_bytes);
                self.client(id).rest = start..end;
                self.begin_piece(at, id);
            }
            Command::Flush => {
                let id = self.add_client(at, incoming, Body::Plain, 0);
                self.submit_part(at, id, 0, 0, RequestKind::Flush);
            }
            Command::Cache => {
                let id = self.add_client(at, incoming, Body::Plain, 0);
                self.client(id).rest = start..end;
                self.begin_piece(at, id);
            }
            Command::Trim => {
                // Parts of sectors are kept: a trim is a hint.
                let (start, end) = (offset.next_multiple_of(SECTOR), floor(offset + length));
                self.begin_change(at, incoming, start..end.max(start), None);
            }
            Command::WriteZeroes if asked.fast_zero && !self.zeroes_fast(at, volume, asked) => {
                let id = self.add_client(at, incoming, Body::Plain, 0);
                self.client(id).error = Some(ErrorKind::Unsupported);
                self.answer(at, id);
            }
            Command::WriteZeroes => self.begin_change(at, incoming, start..end, None),
            Command::BlockStatus | Command::Write => {
                unreachable!("{:?} is begun elsewhere", asked.command)
            }
        }
    }

    /// Starts a write with complete payload; its memory was charged from the first byte.
    pub(crate) fn begin_write(
        &mut self,
        at: &mut RequestContext<'_>,
        incoming: Incoming,
        memory: AlignedBuf,
    ) {
        at.base.payload_bytes -= u64_from_usize(memory.held_bytes());
        let start = floor(incoming.asked.offset);
        let end = start + u64_from_usize(memory.len());
        self.begin_change(at, incoming, start..end, Some(Arena::new(memory)));
    }

    /// A change of whole sectors; `memory` is that of a write.
    fn begin_change(
        &mut self,
        at: &mut RequestContext<'_>,
        incoming: Incoming,
        sectors: Range<u64>,
        memory: Option<Arena>,
    ) {
        let Range { start, end } = sectors;
        let charge = memory.as_ref().map_or(0, |memory| u64_from_usize(memory.held_bytes()));
        let change = Change { start, end: start, memory, edges: Vec::new(), phase: Phase::Between };
        let id = self.add_client(at, incoming, Body::Change(change), charge);
        if start == end {
            self.answer(at, id);
            return;
        }
        self.client(id).rest = start..end;
        self.begin_piece(at, id);
    }

    /// Begins the next piece of a request; how much work that is.
    pub(crate) fn begin_piece(&mut self, at: &mut RequestContext<'_>, id: u64) -> u64 {
        let client = self.client(id);
        let (command, volume) = (client.asked.command, client.volume);
        let Range { start, end } = client.rest;
        let no_hole = client.asked.no_hole;
        let (len_bytes, units) = match command {
            Command::Trim | Command::WriteZeroes => clear_piece(at, volume, start..end, no_hole),
            _ => {
                let len_bytes = shares::piece(command, end - start);
                (len_bytes, shares::units(command, len_bytes))
            }
        };
        let piece = start..start + len_bytes;
        let client = self.client(id);
        client.rest.start = piece.end;
        let change = match &mut client.body {
            Body::Change(change) => change,
            Body::Read { memory, .. } => {
                let first = floor(client.asked.offset);
                let range = usize_from_u64(piece.start - first)..usize_from_u64(piece.end - first);
                let buf = match memory {
                    ReadMemory::Awaited(buf) => *buf,
                    ReadMemory::Arena(arena) => at.base.buffers.adopt_part(arena.clone(), range),
                };
                self.submit_part(at, id, start, piece.end - start, RequestKind::Read { buf });
                return units;
            }
            Body::Plain | Body::Status { .. } => {
                self.submit_part(at, id, start, piece.end - start, RequestKind::Prefetch);
                return units;
            }
        };
        (change.start, change.end, change.phase) = (piece.start, piece.end, Phase::Waiting);
        if at.volumes.used(volume).locks.acquire(piece, id) {
            self.range_granted(at, id);
        } else {
            let client = self.client(id);
            client.is_barred = true;
            if let Asker::Nbd { conn, .. } = client.from {
                at.nbd.barred(conn, true);
            }
        }
        units
    }

    /// Returns `true` if another piece follows, which then has its turn when its connection has. Those of clients that
    /// left and of requests that failed do not.
    fn goes_on(&mut self, at: &mut RequestContext<'_>, id: u64) -> bool {
        let client = self.client(id);
        if client.rest.is_empty() || client.error.is_some() {
            return false;
        }
        let asker = if let Asker::Nbd { conn, .. } = client.from { Some(conn) } else { None };
        self.release_range(at, id);
        let Some(conn) = asker else {
            self.begin_piece(at, id);
            return true;
        };
        at.nbd.piece_due(conn, id)
    }

    /// Gives a change's range back, if it has one.
    fn release_range(&mut self, at: &mut RequestContext<'_>, id: u64) {
        let client = self.client(id);
        let volume = client.volume;
        let Body::Change(change) = &mut client.body else { return };
        if change.phase == Phase::Between {
            return;
        }
        change.phase = Phase::Between;
        let range = change.start..change.end;
        let mut granted = Vec::new();
        at.volumes.used(volume).locks.release(&range, &mut granted);
        for other in granted {
            self.range_granted(at, other);
        }
    }

    /// Returns `true` if the origin makes zeros without writing them. Space that must stay allocated may have to be
    /// written.
    fn zeroes_fast(&mut self, at: &mut RequestContext<'_>, volume: VolumeId, asked: Asked) -> bool {
        let volume = at.volumes.used(volume);
        volume.zeroes_fast && volume.origin.can_punch() && !asked.no_hole
    }

    /// Starts a block status, which combines the cache's reply with the origin's later one; returns its number.
    pub(crate) fn begin_status(
        &mut self,
        at: &mut RequestContext<'_>,
        conn: u64,
        volume: VolumeId,
        request: Request,
        cache: Vec<ResidencyRun>,
    ) -> u64 {
        let bytes = status_bytes(request.length());
        let body = Body::Status { cache, origin: Mapped::unknown(0, 0) };
        self.add_client(at, Incoming::of_connection(conn, volume, request), body, bytes)
    }

    /// The origin's part of a status is known.
    pub(crate) fn origin_mapped(&mut self, at: &mut RequestContext<'_>, mapped: Mapped) {
        let client = mapped.client;
        let body = self.table.get_mut(&client).map(|client| &mut client.body);
        if let Some(Body::Status { origin, .. }) = body {
            *origin = mapped;
        }
        self.answer(at, client);
    }

    fn add_client(
        &mut self,
        at: &mut RequestContext<'_>,
        incoming: Incoming,
        body: Body,
        charge_bytes: u64,
    ) -> u64 {
        let Incoming { from, volume, asked } = incoming;
        let id = at.base.next_number();
        let hurries = self.hurries(at, volume, asked);
        self.hurried += usize::from(hurries);
        let client = ClientRequest {
            from,
            asked,
            volume,
            started_ns: at.base.clock.now_ns(),
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
            at.nbd.serve(conn, served_bytes(asked.command, asked.length));
        }
        self.table.insert(id, client);
        self.charge(at, id, charge_bytes);
        id
    }

    /// Counts memory that a request holds until it is answered.
    fn charge(&mut self, at: &mut RequestContext<'_>, id: u64, bytes: u64) {
        let client = self.client(id);
        client.charge_bytes += bytes;
        at.base.payload_bytes += bytes;
        if let Asker::Nbd { conn, .. } = client.from {
            at.nbd.charge(conn, bytes);
        }
    }

    /// Returns `true` if the answer to such a request waits until data is reduced and durable on the cache device.
    fn hurries(&mut self, at: &mut RequestContext<'_>, volume: VolumeId, asked: Asked) -> bool {
        let config = &at.volumes.used(volume).config;
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
        let Some(client) = self.table.get_mut(&id) else { panic!("client request {id} has ended") };
        client
    }

    fn submit_part(
        &mut self,
        at: &mut RequestContext<'_>,
        id: u64,
        offset_bytes: u64,
        len_bytes: u64,
        kind: RequestKind,
    ) {
        let client = self.client(id);
        client.parts_left += 1;
        let volume = client.volume;
        let req = ReqId(at.base.next_number());
        self.parts.insert(req, id);
        at.base.tell(Event::Submit(CacheRequest { req, volume, offset_bytes, len_bytes, kind }));
    }

    /// A write has its range: read its edges, or write at once.
    pub(crate) fn range_granted(&mut self, at: &mut RequestContext<'_>, id: u64) {
        let client = self.client(id);
        if std::mem::take(&mut client.is_barred)
            && let Asker::Nbd { conn, .. } = client.from
        {
            at.nbd.barred(conn, false);
        }
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
            self.write_parts(at, id);
            return;
        }
        for sector in sectors {
            let arena = Arena::new(at.base.buffers.client_memory(volume, usize_from_u32(SECTOR_BYTES)));
            let buf = at.base.buffers.adopt(arena.clone());
            self.charge(at, id, u64_from_usize(arena.held_bytes()));
            if let Body::Change(change) = &mut self.client(id).body {
                change.edges.push(Edge { sector, arena });
            }
            self.submit_part(at, id, sector, SECTOR, RequestKind::Read { buf });
        }
    }

    /// The edges are there: merge and write.
    fn edges_read(&mut self, at: &mut RequestContext<'_>, id: u64) {
        let Some(client) = self.table.get_mut(&id) else { panic!("client request {id} has ended") };
        let (volume, offset, length) = (client.volume, client.asked.offset, client.asked.length);
        let Body::Change(change) = &mut client.body else { unreachable!("only changes have edges") };
        change.phase = Phase::Writing;
        for edge in &mut change.edges {
            let own = covered(edge.sector, offset, length);
            match &change.memory {
                Some(memory) => {
                    // Sectors outside of the request are filled from the volume.
                    let at = usize_from_u64(edge.sector - change.start);
                    let old = edge.arena.read_lease(0..usize_from_u32(SECTOR_BYTES));
                    let mut merged = memory.lease(at..at + old.len());
                    merged[..own.start].copy_from_slice(&old[..own.start]);
                    merged[own.end..].copy_from_slice(&old[own.end..]);
                }
                None => {
                    let mut zeroed = at.base.buffers.client_memory(volume, usize_from_u32(SECTOR_BYTES));
                    zeroed.copy_from_slice(&edge.arena.read_lease(0..usize_from_u32(SECTOR_BYTES)));
                    zeroed[own].fill(0);
                    edge.arena = Arena::new(zeroed);
                }
            }
        }
        self.write_parts(at, id);
    }

    fn write_parts(&mut self, at: &mut RequestContext<'_>, id: u64) {
        let client = self.client(id);
        let Asked { command, fua, no_hole, .. } = client.asked;
        let Body::Change(change) = &mut client.body else { unreachable!("only changes write") };
        let (mut start, mut end) = (change.start, change.end);
        if let Some(memory) = change.memory.take() {
            let buf = at.base.buffers.adopt(memory);
            self.submit_part(at, id, start, end - start, RequestKind::Write { buf, fua });
            return;
        }
        for edge in std::mem::take(&mut change.edges) {
            if edge.sector == start {
                start += SECTOR;
            } else {
                end -= SECTOR;
            }
            let buf = at.base.buffers.adopt(edge.arena);
            self.submit_part(at, id, edge.sector, SECTOR, RequestKind::Write { buf, fua });
        }
        if start < end {
            let kind = if command == Command::Trim {
                RequestKind::Trim { fua }
            } else {
                RequestKind::WriteZeroes { no_hole, fua }
            };
            self.submit_part(at, id, start, end - start, kind);
        }
    }

    /// A manager request has been answered.
    pub(crate) fn part_done(
        &mut self,
        at: &mut RequestContext<'_>,
        req: ReqId,
        result: Result<(), ErrorKind>,
        path: Path,
    ) {
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
            self.edges_read(at, id);
            return;
        }
        if self.goes_on(at, id) {
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
            let of_device = [ErrorKind::Io, ErrorKind::NoSpace, ErrorKind::Corrupt, ErrorKind::TimedOut];
            let failed_by_device = client.error.is_some_and(|error| of_device.contains(&error));
            let Asked { command, length, .. } = client.asked;
            let nanoseconds = at.base.clock.now_ns().saturating_sub(started_ns);
            at.base.metrics.record(path, nanoseconds);
            let volume = at.volumes.used(volume);
            volume.traffic.count(command, path, length, failed);
            volume.traffic.failed_by_device += u64::from(failed_by_device);
            let carried = if matches!(command, Command::Read | Command::Write) { length } else { 0 };
            volume.durations.count(path, nanoseconds, carried);
        }
        self.answer(at, id);
    }

    /// Answers a request, releases its range and removes it.
    pub(crate) fn answer(&mut self, at: &mut RequestContext<'_>, id: u64) {
        self.release_range(at, id);
        let Some(client) = self.table.remove(&id) else { panic!("client request {id} is answered twice") };
        at.base.payload_bytes -= client.charge_bytes;
        self.hurried -= usize::from(client.hurries);
        Self::end(at, client);
    }

    /// Ends requests of abandoned connections that wait for their range, or whose next piece has not started: no
    /// client received a reply for them.
    pub(crate) fn drop_unbegun(&mut self, at: &mut RequestContext<'_>) {
        let (given_up, pieces) = at.nbd.take_given_up();
        if given_up.is_empty() {
            return;
        }
        let mut unbegun: BTreeMap<VolumeId, Set<u64>> = BTreeMap::new();
        for id in pieces {
            self.answer(at, id);
        }
        for (id, client) in &self.table {
            if client.waits_for_range()
                && let Asker::Nbd { conn, .. } = &client.from
                && given_up.contains(conn)
            {
                unbegun.entry(client.volume).or_default().insert(*id);
            }
        }
        for (volume, ids) in unbegun {
            for client in ids.iter().filter_map(|id| self.table.remove(id)).collect::<Vec<_>>() {
                at.base.payload_bytes -= client.charge_bytes;
                self.hurried -= usize::from(client.hurries);
                Self::end(at, client);
            }
            let mut granted = Vec::new();
            at.volumes.used(volume).locks.withdraw(&ids, &mut granted);
            for other in granted {
                self.range_granted(at, other);
            }
        }
    }

    /// Releases a request's memory to its connection's share, and answers it.
    fn end(at: &mut RequestContext<'_>, client: ClientRequest) {
        let ClientRequest { from, asked, charge_bytes, body, error, .. } = client;
        match from {
            Asker::Nbd { conn, request } => {
                let answer = match (&body, error) {
                    (Body::Status { cache, origin }, _) => Answer::Status { cache, origin },
                    (_, Some(kind)) => Answer::Failed(kind),
                    (Body::Read { memory, skip_bytes }, None) => {
                        let (bytes, held_bytes) = match memory {
                            ReadMemory::Awaited(buf) => at.base.buffers.brought(*buf),
                            ReadMemory::Arena(arena) => {
                                (Segment::whole(arena.read_lease(0..arena.len())), arena.held_bytes())
                            }
                        };
                        let bytes = bytes.part(*skip_bytes..*skip_bytes + usize_from_u64(asked.length));
                        Answer::Read { bytes, held_bytes: u64_from_usize(held_bytes) }
                    }
                    _ => Answer::Done,
                };
                let held = (charge_bytes, served_bytes(asked.command, asked.length));
                at.nbd.end(conn, request, held, answer);
            }
            Asker::Ublk(tag) => {
                let read = match &body {
                    Body::Read { memory: ReadMemory::Arena(arena), .. } => Some(arena),
                    _ => None,
                };
                at.ublk.answer(at.base, tag, read, error);
            }
        }
    }
}
