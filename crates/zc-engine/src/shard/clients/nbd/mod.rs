//! The NBD front end: exports, listeners, connections, and their queues.
//!
//! Job: feed received bytes to sessions, return clients' requests, apply back-pressure, and send each connection's
//! replies of a turn together. `accept` has listeners, `sockets` receives and sends, `shares` the memory bounds,
//! `answers` the memory and replies of requests, `care` time-driven work.
//!
//! Invariants: a connection number in a queue that is missing in `conns` is skipped. Memory of payloads (arriving, in
//! progress, unsent) is bounded and divided (`shares`); a request beyond its connection's share waits, and the socket
//! is not read until then. The occupied memory is counted, which exceeds the bytes: pages, and the pool's rounding. A
//! client that holds payload memory and stalls, or is too slow, is disconnected after a time-out, which is short while
//! others wait.
//!
//! It does not start requests (`clients` does, with the results of `NbdFront::pump`), or decide on admission and
//! order (`front`).

mod accept;
mod answers;
mod care;
mod shares;
mod sockets;

pub(crate) use answers::Answer;

use std::collections::BTreeSet;
use std::sync::Arc;

use zc_config::AddressRange;
use zc_core::{Map, Set, VolumeId};
use zc_io::{AlignedBuf, Waker};
use zc_nbd::ErrorCode;
use zc_nbd::server::{Command, Request};

use crate::audit::{self, Refusals};
use crate::clock::Clock;
use crate::front::access::Export;
use crate::front::admission::Admission;
use crate::front::listen::Listener;
use crate::front::peer::Peer;
use crate::front::reloadable::FrontSettings;
use crate::front::settings::FrontLimits;
use crate::front::shares::Shares;
use crate::front::tls::Tls;
use crate::front::tls_pool::TlsPool;
use crate::registry::Registry;
use crate::shard::base::Base;
use crate::shard::clients::conn::Conn;
use crate::shard::volumes::Volumes;

/// Selection of connections to close.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ConnectionFilter {
    /// The one with this number.
    Id(u64),
    /// Connections from these addresses.
    Range(AddressRange),
    /// Connections of this user on Unix sockets.
    User(u32),
    /// Connections that chose this volume.
    Volume(VolumeId),
}

impl ConnectionFilter {
    fn names(self, id: u64, conn: &Conn) -> bool {
        match (self, conn.peer) {
            (Self::Id(own), _) => own == id,
            (Self::Range(range), Peer::Ip(address)) => range.contains(address),
            (Self::User(user), Peer::User(own)) => user == own,
            (Self::Volume(volume), _) => conn.volume == Some(volume),
            (Self::Range(_) | Self::User(_), _) => false,
        }
    }
}

/// A WRITE whose payload is complete.
#[derive(Debug)]
pub(crate) struct Written {
    pub(crate) conn: u64,
    pub(crate) volume: VolumeId,
    pub(crate) request: Request,
    pub(crate) memory: AlignedBuf,
}

/// Next action of a connection.
#[derive(Debug)]
pub(crate) enum Pumped {
    /// Currently without work.
    Idle,
    /// Progress, which cost `units` of work.
    Progress {
        units: u64,
    },
    /// The next piece of a request may begin.
    Piece(u64),
    Write(Written),
    /// A request is there; of a WRITE, without its payload.
    Asks {
        volume: VolumeId,
        request: Request,
    },
}

/// State of the NBD front end: access, connections, and their queues.
#[derive(Debug)]
pub(crate) struct NbdFront {
    exports: Vec<Export>,
    listeners: Vec<Listener>,
    /// TCP clients from here only.
    allow: Vec<AddressRange>,
    tls: Tls,
    handshakes: TlsPool,
    /// The connection passed at the start; the shard stops when it closes.
    only: Option<u64>,
    conns: Map<u64, Conn>,
    /// Connections with events in this turn.
    touched: Vec<u64>,
    /// Connections to send to, or to close, at the end of the turn.
    to_send: Vec<u64>,
    /// Sends of this turn that are small enough to complete at once.
    quick_sends: usize,
    /// Refused clients, for the audit log.
    refusals: Refusals,
    /// Connections that are not dead, by source.
    admission: Admission,
    /// Abandoned connections with requests that have not started.
    given_up: Set<u64>,
    /// Requests of closed connections whose next piece has not begun.
    given_up_pieces: Vec<u64>,
    /// Listeners that failed to accept and are tried again later.
    accept_later: Vec<usize>,
    last_look_ms: u64,
    /// Memory bounds and order of connections.
    shares: Shares,
    /// Connections with a request that waits for its share, by virtual time; entries of closed ones may remain.
    waiting: BTreeSet<(u64, u64)>,
    /// Bytes of replies that clients have not taken.
    unsent_bytes: u64,
    limits: FrontLimits,
    registry: Arc<Registry>,
    clock: Clock,
}

impl NbdFront {
    /// Starts without clients; access rules are set later (see `front/reloadable`).
    pub(crate) fn new(
        (exports, listeners): (Vec<Export>, Vec<Listener>),
        limits: FrontLimits,
        registry: Arc<Registry>,
        clock: Clock,
        waker: Waker,
    ) -> Self {
        Self {
            exports,
            listeners,
            allow: Vec::new(),
            tls: Tls::default(),
            handshakes: TlsPool::new(waker),
            only: None,
            conns: Map::default(),
            touched: Vec::new(),
            to_send: Vec::new(),
            quick_sends: 0,
            refusals: Refusals::default(),
            admission: Admission::default(),
            given_up: Set::default(),
            given_up_pieces: Vec::new(),
            accept_later: Vec::new(),
            last_look_ms: 0,
            shares: Shares::default(),
            waiting: BTreeSet::new(),
            unsent_bytes: 0,
            limits,
            registry,
            clock,
        }
    }

    /// Applies new bounds, exports and rules to all connections at once, except that a connection keeps its export and
    /// the options of its session. A connection that new TLS settings would refuse is closed, because its authority
    /// was replaced or its certificate has expired or been revoked.
    pub(crate) fn apply(&mut self, volumes: &mut Volumes, front: FrontSettings) {
        self.limits = front.limits;
        self.exports = front.exports;
        self.allow = front.allow;
        self.tls = front.tls;
        let live = self.conns.iter().filter(|(_, conn)| !conn.dead);
        let refused: Vec<(u64, Peer, String)> =
            live.filter_map(|(id, conn)| Some((*id, conn.peer, conn.is_refused_by(&self.tls)?))).collect();
        for (id, peer, why) in refused {
            tracing::warn!(target: audit::TARGET, connection = id, %peer, "audit: client disconnected by a reload: {why}");
            self.kill(volumes, id);
        }
        // Requests that waited for memory may continue with a larger bound.
        self.recount_all();
    }

    /// Bounds of the front end.
    pub(crate) const fn limits(&self) -> &FrontLimits {
        &self.limits
    }

    /// Number of connections, including those being closed.
    pub(crate) fn len(&self) -> usize {
        self.conns.len()
    }

    /// Bytes of replies that clients have not taken.
    pub(crate) const fn unsent_bytes(&self) -> u64 {
        self.unsent_bytes
    }

    /// Returns `true` if a client has chosen a volume.
    pub(crate) fn serves(&self, volume: VolumeId) -> bool {
        self.conns.values().any(|conn| !conn.dead && conn.volume == Some(volume))
    }

    /// No client can choose a volume any more.
    pub(crate) fn withdraw_export(&mut self, name: &str) {
        for export in self.exports.iter_mut().filter(|export| export.info.name == name) {
            // In its place, so that no other volume becomes the default export.
            *export = Export::absent(name);
        }
    }

    pub(crate) fn grow_export(&mut self, volume: VolumeId, size_bytes: u64) {
        for export in self.exports.iter_mut().filter(|export| export.info.token == u64::from(volume.0)) {
            export.info.size_bytes = size_bytes;
        }
    }

    /// Notes that something happened to a connection.
    pub(super) fn touch(&mut self, conn: u64) {
        self.touched.push(conn);
    }

    /// Closes connections on an operator's request; returns their numbers. Their started requests run to completion,
    /// unanswered; the others never start. They can send no further requests.
    pub(crate) fn disconnect(&mut self, volumes: &mut Volumes, which: ConnectionFilter) -> Vec<u64> {
        let named = |(id, conn): &(&u64, &Conn)| !conn.dead && which.names(**id, conn);
        let mut ids: Vec<u64> = self.conns.iter().filter(named).map(|(id, _)| *id).collect();
        ids.sort_unstable();
        for id in &ids {
            let peer = self.conns.get(id).map_or(Peer::Unknown, |conn| conn.peer);
            tracing::info!(target: audit::TARGET, connection = id, %peer, "audit: client disconnected by an operator");
            self.kill(volumes, *id);
        }
        ids
    }

    /// Closes the connections of volumes that lost acknowledged writes.
    pub(crate) fn close_connections_of(&mut self, volumes: &mut Volumes, lost: &[VolumeId]) {
        let concerned = |conn: &Conn| conn.volume.is_some_and(|volume| lost.contains(&volume));
        let conns: Vec<u64> =
            self.conns.iter().filter(|(_, conn)| concerned(conn)).map(|(id, _)| *id).collect();
        for conn in conns {
            self.kill(volumes, conn);
        }
    }

    /// Sessions take no new requests.
    pub(crate) fn begin_shutdown(&mut self) {
        for conn in self.conns.values_mut() {
            conn.session.begin_shutdown();
        }
    }

    /// Closes connections that have their replies, or all of them when it is late. Returns `true` if all are closed.
    pub(crate) fn drain(&mut self, volumes: &mut Volumes, is_late: bool) -> bool {
        let is_due = |conn: &Conn| !conn.dead && (is_late || (conn.is_drained() && conn.payload.is_none()));
        let drained: Vec<u64> =
            self.conns.iter().filter(|(_, conn)| is_due(conn)).map(|(id, _)| *id).collect();
        for id in drained {
            self.kill(volumes, id);
        }
        self.to_send.extend_from_slice(&self.touched);
        self.conns.values().all(|conn| conn.dead)
    }

    /// Gives a connection up. Its requests that have begun run to their end, unanswered; later overlapping writes wait
    /// for them (see `locks`). Those that have not begun never do.
    pub(crate) fn kill(&mut self, volumes: &mut Volumes, id: u64) {
        self.touch(id);
        self.withdraw_throttled(volumes, id);
        let Some(conn) = self.conns.get_mut(&id).filter(|conn| !conn.dead) else { return };
        conn.kill();
        if conn.session.in_flight() > 0 {
            self.given_up.insert(id);
            self.given_up_pieces.extend(std::mem::take(&mut conn.due));
        }
        self.admission.leave(id, conn.source, conn.volume.is_some());
    }

    fn break_off(&mut self, base: &mut Base, volumes: &mut Volumes, id: u64, why: &str) {
        base.metrics.broken += 1;
        tracing::debug!(connection = id, "closed: {why}");
        if let Some(conn) = self.conns.get(&id) {
            if conn.volume.is_none() {
                audit::refused(&mut self.refusals, self.clock.now_ms(), &conn.peer, why);
            } else {
                tracing::warn!(target: audit::TARGET, connection = id, peer = %conn.peer, "audit: client disconnected: {why}");
            }
        }
        self.kill(volumes, id);
    }

    /// Ends a client's input; requests in flight are answered, then the connection is closed. A WRITE with an
    /// incomplete payload releases its memory now, because the rest will not arrive, and waiting for it would keep the
    /// connection open.
    fn end_input(&mut self, base: &mut Base, volumes: &mut Volumes, id: u64) {
        self.withdraw_throttled(volumes, id);
        let Some(conn) = self.conns.get_mut(&id) else { return };
        conn.closing = true;
        let request = match conn.payload.take() {
            Some(payload) => {
                base.payload_bytes -= payload.held_bytes;
                Some(payload.request)
            }
            None => conn.waiting.take().map(|waiting| waiting.request),
        };
        match request {
            Some(request) if request.command() == Command::Write => {
                conn.session.refuse_payload(request, ErrorCode::Io, "the payload is cut off");
            }
            // The client does not receive a reply either.
            Some(request) => {
                let (session, head) = conn.reply();
                session.reply_error(request, ErrorCode::Shutdown, "the connection is cut off", head);
            }
            None => {}
        }
        self.recount(id);
    }

    /// A connection's request will not be served.
    fn withdraw_throttled(&self, volumes: &mut Volumes, id: u64) {
        let volume = self.conns.get(&id).filter(|conn| conn.waiting.is_some()).and_then(|conn| conn.volume);
        if let Some(volume) = volume {
            volumes.withdraw_conn(volume, id, &self.clock);
        }
    }
}
