//! Memory of connections, and requests that wait for their share.
//!
//! Invariants: a connection has at most one waiting request, and its socket is not read until that starts. A
//! connection's memory is recounted on every change. A small request waits only for its own connection; a large one
//! that waits for service is not overtaken by later large ones.
//!
//! Out of scope: the arithmetic (`front/shares`).

use zc_core::{VolumeId, u64_from_usize, usize_from_u64};
use zc_nbd::server::Request;

use crate::front::shares::Division;
use crate::limits::AGED_MS;
use crate::shard::base::Base;
use crate::shard::clients::asked::{SECTOR, memory_of, served_bytes};
use crate::shard::clients::conn::{Conn, Payload, Waiting};
use crate::shard::clients::nbd::NbdFront;

/// Decision on a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Verdict {
    Begins,
    LacksMemory,
    LacksService,
}

impl NbdFront {
    pub(super) fn division(&self) -> Division {
        Division::of(&self.limits)
    }

    /// Updates the totals of connections' memory. Required after every change, because a turn produces many replies
    /// before it sends any.
    pub(super) fn recount(&mut self, id: u64) {
        let division = self.division();
        let Some(conn) = self.conns.get_mut(&id) else { return };
        let unsent = conn.unsent_bytes();
        self.unsent_bytes = self.unsent_bytes - conn.unsent_counted_bytes + unsent;
        conn.unsent_counted_bytes = unsent;
        let holder = conn.holder(id);
        let beyond = division.beyond(holder.held_bytes);
        let before = std::mem::replace(&mut conn.taken_bytes, beyond);
        self.shares.recount(&holder, before, beyond);
    }

    /// Removes the usage of a closed connection.
    pub(super) fn uncount(&mut self, id: u64, conn: &Conn) {
        self.unsent_bytes -= conn.unsent_counted_bytes;
        self.shares.recount(&conn.holder(id), conn.taken_bytes, 0);
        if self.shares.aged() == Some(id) {
            self.shares.set_aged(None);
        }
    }

    /// Recomputes all shares after a change of the bounds.
    pub(super) fn recount_all(&mut self) {
        let ids: Vec<u64> = self.conns.keys().copied().collect();
        for id in ids {
            self.recount(id);
        }
        self.shares.has_room = true;
    }

    fn verdict(&self, id: u64, request: &Request) -> Verdict {
        let Some(conn) = self.conns.get(&id) else { return Verdict::Begins };
        if !self.shares.may_hold(self.division(), &conn.holder(id), memory_of(request)) {
            return Verdict::LacksMemory;
        }
        let bytes = served_bytes(request.command(), request.length());
        if bytes > 0 && !self.shares.may_serve(conn.serving_bytes, bytes) {
            return Verdict::LacksService;
        }
        Verdict::Begins
    }

    /// Admits a request of a session. Returns it if it begins now, otherwise queues it.
    pub(crate) fn shared(&mut self, base: &mut Base, id: u64, request: Request) -> Option<Request> {
        let verdict = self.verdict(id, &request);
        if verdict == Verdict::Begins {
            self.begins(id);
            return Some(request);
        }
        base.metrics.stalls += 1;
        let since_ms = self.clock.now_ms();
        if let Some(conn) = self.conns.get_mut(&id) {
            let lacks_memory = verdict == Verdict::LacksMemory;
            conn.waiting = Some(Waiting { request, since_ms, lacks_memory });
            self.waiting.insert((conn.virtual_units, id));
        }
        None
    }

    /// A connection's request begins.
    fn begins(&mut self, id: u64) {
        if self.shares.aged() == Some(id) {
            self.shares.set_aged(None);
        }
    }

    pub(crate) fn waits_for_limits(&mut self, id: u64, request: Request) {
        let since_ms = self.clock.now_ms();
        if let Some(conn) = self.conns.get_mut(&id) {
            conn.waiting = Some(Waiting { request, since_ms, lacks_memory: false });
        }
    }

    /// The request that waited for the limits of its volume.
    pub(crate) fn take_waiting(&mut self, id: u64) -> Option<Request> {
        Some(self.conns.get_mut(&id)?.waiting.take()?.request)
    }

    /// Receives the payload of a WRITE into memory at its volume offset modulo the sector size, so that an aligned
    /// write needs no copy and an unaligned one only its edges.
    pub(crate) fn take_payload(&mut self, base: &mut Base, id: u64, volume: VolumeId, request: Request) {
        let skip = request.offset() % SECTOR;
        let whole = (skip + request.length()).next_multiple_of(SECTOR);
        let memory = base.buffers.client_memory(volume, usize_from_u64(whole));
        let skip_bytes = usize_from_u64(skip);
        let held_bytes = u64_from_usize(memory.held_bytes());
        base.payload_bytes += held_bytes;
        let began_ms = self.clock.now_ms();
        if let Some(conn) = self.conns.get_mut(&id) {
            conn.progress_ms = began_ms;
            let memory = Some(memory);
            conn.payload =
                Some(Payload { request, memory, skip_bytes, filled_bytes: 0, held_bytes, began_ms });
        }
        self.recount(id);
    }

    /// Returns the connections with a waiting request, in order of virtual time, if there may be memory for one.
    pub(crate) fn take_line(&mut self) -> Vec<(u64, u64)> {
        if !std::mem::take(&mut self.shares.has_room) || self.waiting.is_empty() {
            return Vec::new();
        }
        self.waiting.iter().copied().collect()
    }

    /// Returns the queued request of a connection if it may begin now. `is_held_up`: an earlier one waits for service.
    pub(crate) fn next_of_line(
        &mut self,
        key: (u64, u64),
        is_held_up: &mut bool,
    ) -> Option<(VolumeId, Request)> {
        let id = key.1;
        let conn = self.conns.get(&id).filter(|conn| !conn.dead);
        let Some((volume, waiting)) = conn.and_then(|conn| Some((conn.volume?, conn.waiting.as_ref()?)))
        else {
            self.waiting.remove(&key);
            return None;
        };
        let verdict = self.verdict(id, &waiting.request);
        let serves = served_bytes(waiting.request.command(), waiting.request.length()) > 0;
        let begins = verdict == Verdict::Begins && !(*is_held_up && serves);
        *is_held_up |= verdict == Verdict::LacksService;
        let conn = self.conns.get_mut(&id)?;
        if begins && let Some(waiting) = conn.waiting.take() {
            self.waiting.remove(&key);
            self.begins(id);
            return Some((volume, waiting.request));
        }
        if let Some(waiting) = &mut conn.waiting {
            waiting.lacks_memory = verdict == Verdict::LacksMemory;
        }
        None
    }

    /// Finds a connection that waits for memory held by others, and returns those that could release it but do not. A
    /// connection that waits for its own memory does not count.
    pub(super) fn look_after_waiting(&mut self, now_ms: u64) -> Vec<u64> {
        let division = self.division();
        let long_ago = |id: &u64| {
            let conn = self.conns.get(id).filter(|conn| !conn.dead && conn.taken_bytes == 0)?;
            let waiting = conn.waiting.as_ref().filter(|waiting| waiting.lacks_memory)?;
            (now_ms.saturating_sub(waiting.since_ms) >= AGED_MS).then_some((waiting.since_ms, *id))
        };
        let aged = self.waiting.iter().filter_map(|(_, id)| long_ago(id)).min();
        self.shares.set_aged(aged.map(|(_, id)| id));
        if aged.is_none() {
            return Vec::new();
        }
        let holds_up =
            |conn: &Conn| !conn.dead && division.beyond(conn.held_bytes()) > 0 && conn.is_stalled(now_ms);
        self.conns.iter().filter(|(_, conn)| holds_up(conn)).map(|(id, _)| *id).collect()
    }
}
