//! Requests that begin when their connection's share allows it.
//!
//! Job: ask for the share of each request of a session, keep the request if there is none yet, begin it when there is,
//! and tell which connections hold what others wait for.
//!
//! Invariants: a connection has one request that waits, and takes nothing from its socket meanwhile. What a connection
//! holds is counted whenever it changes. A small request waits only for its own connection; a large one that waits for
//! service is not overtaken by large ones behind it.
//!
//! What it does not do: the arithmetic (`shares`).

use zc_core::{VolumeId, u64_from_usize};
use zc_nbd::server::{Command, Request};

use crate::front::shares::{self, Division, Holder};
use crate::limits::{
    AGED_MS, ARRIVAL_BYTES_PER_S_MIN, REQUEST_BYTES, SHORT_STALL_MS, STATUS_RUN_BYTES, STATUS_RUNS_MAX,
};
use crate::shard::Shard;
use crate::shard::clients::conn::{Conn, Payload};
use crate::shard::clients::request::{SECTOR, floor};

/// A request that has not begun.
#[derive(Debug)]
pub(crate) struct Waiting {
    pub(crate) request: Request,
    since_ms: u64,
    /// For memory, not for service.
    lacks_memory: bool,
}

impl Waiting {
    /// One that waits for the limits of its volume.
    pub(crate) const fn for_limits(request: Request, since_ms: u64) -> Self {
        Self { request, since_ms, lacks_memory: false }
    }
}

/// What a request may do.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Verdict {
    Begins,
    LacksMemory,
    LacksService,
}

/// Memory that a request will hold at most: whole sectors in a buffer of the pool, and its entry in tables.
fn memory_of(request: &Request) -> u64 {
    let payload = match request.command() {
        Command::Read | Command::Write => {
            let end = (request.offset() + request.length()).next_multiple_of(SECTOR);
            (end - floor(request.offset())).next_power_of_two().max(4096)
        }
        Command::BlockStatus => status_bytes(request.length()),
        Command::Flush | Command::Trim | Command::WriteZeroes | Command::Cache => 0,
    };
    payload + REQUEST_BYTES
}

/// Memory that the answer to a BLOCK_STATUS may take.
pub(crate) fn status_bytes(len_bytes: u64) -> u64 {
    (len_bytes / SECTOR + 2).min(STATUS_RUNS_MAX) * STATUS_RUN_BYTES
}

/// Bytes that the manager looks up or brings for a request at once.
pub(crate) fn served_bytes(command: Command, len_bytes: u64) -> u64 {
    if matches!(command, Command::Read | Command::Cache) { shares::piece(command, len_bytes) } else { 0 }
}

impl Conn {
    pub(crate) fn holder(&self, conn: u64) -> Holder {
        Holder { conn, client: self.source, volume: self.volume, held_bytes: self.held_bytes() }
    }

    /// Whether its client has not gone on for so long that others which wait need not wait for it. While they do, it
    /// has to take or bring [`ARRIVAL_BYTES_PER_S_MIN`].
    fn is_stalled(&self, now_ms: u64) -> bool {
        let since = |then: u64| now_ms.saturating_sub(then);
        let takes_none = self.sending_bytes() > 0 && since(self.taken_ms) > SHORT_STALL_MS;
        let brings_none = self.payload.as_ref().is_some_and(|payload| {
            let earned_ms = u64_from_usize(payload.filled_bytes) * 1000 / ARRIVAL_BYTES_PER_S_MIN;
            since(payload.began_ms) > SHORT_STALL_MS + earned_ms
        });
        takes_none || brings_none
    }
}

impl Shard {
    fn division(&self) -> Division {
        Division::of(&self.limits)
    }

    /// Brings the sums of what connections hold up to date. It is due whenever that changes: a turn makes many replies
    /// before it sends any.
    pub(crate) fn recount(&mut self, id: u64) {
        let division = self.division();
        let Some(conn) = self.nbd.conns.get_mut(&id) else { return };
        let unsent = conn.unsent_bytes();
        self.nbd.unsent_bytes = self.nbd.unsent_bytes - conn.unsent_counted_bytes + unsent;
        conn.unsent_counted_bytes = unsent;
        let holder = conn.holder(id);
        let beyond = division.beyond(holder.held_bytes);
        let before = std::mem::replace(&mut conn.taken_bytes, beyond);
        self.nbd.shares.recount(&holder, before, beyond);
    }

    /// A connection that is no more holds nothing.
    pub(crate) fn uncount(&mut self, id: u64, conn: &Conn) {
        self.nbd.unsent_bytes -= conn.unsent_counted_bytes;
        self.nbd.shares.recount(&conn.holder(id), conn.taken_bytes, 0);
        if self.nbd.shares.aged() == Some(id) {
            self.nbd.shares.set_aged(None);
        }
    }

    /// New bounds: all shares are other ones.
    pub(crate) fn recount_all(&mut self) {
        let ids: Vec<u64> = self.nbd.conns.keys().copied().collect();
        for id in ids {
            self.recount(id);
        }
        self.nbd.shares.has_room = true;
    }

    fn verdict(&self, id: u64, request: &Request) -> Verdict {
        let Some(conn) = self.nbd.conns.get(&id) else { return Verdict::Begins };
        if !self.nbd.shares.may_hold(self.division(), &conn.holder(id), memory_of(request)) {
            return Verdict::LacksMemory;
        }
        let bytes = served_bytes(request.command(), request.length());
        if bytes > 0 && !self.nbd.shares.may_serve(conn.serving_bytes, bytes) {
            return Verdict::LacksService;
        }
        Verdict::Begins
    }

    /// A request of a session: it begins now or has to wait.
    pub(crate) fn ask_share(&mut self, id: u64, volume: VolumeId, request: Request) {
        let verdict = self.verdict(id, &request);
        if verdict == Verdict::Begins {
            self.begin_shared(id, volume, request);
            return;
        }
        self.metrics.stalls += 1;
        let since_ms = self.clock.now_ms();
        if let Some(conn) = self.nbd.conns.get_mut(&id) {
            let lacks_memory = verdict == Verdict::LacksMemory;
            conn.waiting = Some(Waiting { request, since_ms, lacks_memory });
            self.nbd.waiting.insert((conn.virtual_units, id));
        }
    }

    fn begin_shared(&mut self, id: u64, volume: VolumeId, request: Request) {
        if self.nbd.shares.aged() == Some(id) {
            self.nbd.shares.set_aged(None);
        }
        if request.command() == Command::Write {
            self.take_payload(id, volume, request);
        } else {
            self.begin_request(id, volume, request);
        }
    }

    fn take_payload(&mut self, id: u64, volume: VolumeId, request: Request) {
        let (memory, skip_bytes) = self.payload_memory(volume, &request);
        let held_bytes = u64_from_usize(memory.held_bytes());
        self.budget_bytes += held_bytes;
        let began_ms = self.clock.now_ms();
        if let Some(conn) = self.nbd.conns.get_mut(&id) {
            conn.progress_ms = began_ms;
            let memory = Some(memory);
            conn.payload =
                Some(Payload { request, memory, skip_bytes, filled_bytes: 0, held_bytes, began_ms });
        }
        self.recount(id);
    }

    /// Begins requests that waited, in the order of virtual time, as far as there is room.
    pub(crate) fn begin_waiting(&mut self) {
        if !std::mem::take(&mut self.nbd.shares.has_room) || self.nbd.waiting.is_empty() {
            return;
        }
        let mut is_held_up = false;
        for key in self.nbd.waiting.clone() {
            let id = key.1;
            let conn = self.nbd.conns.get(&id).filter(|conn| !conn.dead);
            let Some((volume, waiting)) = conn.and_then(|conn| Some((conn.volume?, conn.waiting.as_ref()?)))
            else {
                self.nbd.waiting.remove(&key);
                continue;
            };
            let verdict = self.verdict(id, &waiting.request);
            let serves = served_bytes(waiting.request.command(), waiting.request.length()) > 0;
            let begins = verdict == Verdict::Begins && !(is_held_up && serves);
            is_held_up |= verdict == Verdict::LacksService;
            let Some(conn) = self.nbd.conns.get_mut(&id) else { continue };
            if begins && let Some(waiting) = conn.waiting.take() {
                self.nbd.waiting.remove(&key);
                self.begin_shared(id, volume, waiting.request);
                self.touch(id);
            } else if let Some(waiting) = &mut conn.waiting {
                waiting.lacks_memory = verdict == Verdict::LacksMemory;
            }
        }
    }

    /// Looks for a connection that waits for what others hold, and names those that do not give it back although they
    /// could. Who waits for what it holds itself is not one.
    pub(crate) fn look_after_waiting(&mut self, now_ms: u64) -> Vec<u64> {
        let division = self.division();
        let long_ago = |id: &u64| {
            let conn = self.nbd.conns.get(id).filter(|conn| !conn.dead && conn.taken_bytes == 0)?;
            let waiting = conn.waiting.as_ref().filter(|waiting| waiting.lacks_memory)?;
            (now_ms.saturating_sub(waiting.since_ms) >= AGED_MS).then_some((waiting.since_ms, *id))
        };
        let aged = self.nbd.waiting.iter().filter_map(|(_, id)| long_ago(id)).min();
        self.nbd.shares.set_aged(aged.map(|(_, id)| id));
        if aged.is_none() {
            return Vec::new();
        }
        let holds_up =
            |conn: &Conn| !conn.dead && division.beyond(conn.held_bytes()) > 0 && conn.is_stalled(now_ms);
        self.nbd.conns.iter().filter(|(_, conn)| holds_up(conn)).map(|(id, _)| *id).collect()
    }
}
