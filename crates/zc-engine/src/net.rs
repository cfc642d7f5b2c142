//! Sockets of the data plane: accepting, receiving, sending, closing.
//!
//! Job: feed received bytes to sessions, start requests, hold back when too much is in flight, and send each
//! connection's replies of a turn together.
//!
//! Invariants: payload bytes (arriving, being worked on, unsent) are bounded; beyond the bound sockets are not read. A
//! client that keeps payload memory and does not go on loses its connection when its patience is over.

use std::io;
use std::os::fd::OwnedFd;
use std::sync::Arc;

use zc_core::VolumeId;
use zc_io::Operation;
use zc_nbd::Need;
use zc_nbd::server::{CloseReason, Request, ServerEvent};

use crate::conn::{Conn, Payload};
use crate::limits::{CLIENT_PATIENCE_MS, UNSENT_BYTES_MAX};
use crate::pending::Pending;
use crate::registry::Connection;
use crate::shard::Shard;

/// What a connection can do next.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Pumped {
    /// Nothing at the moment.
    Idle,
    /// Something came of it.
    Progress,
}

impl Shard {
    pub(crate) fn accept(&mut self, listener: usize) {
        if let Some(entry) = self.listeners.get(listener) {
            let fd = Arc::clone(&entry.fd);
            self.submit(Operation::Accept { fd }, Pending::Accept { listener });
        }
    }

    pub(crate) fn accepted(&mut self, listener: usize, result: &io::Result<usize>, socket: Option<OwnedFd>) {
        if !self.stopping.is_running() {
            return;
        }
        self.accept(listener);
        let Some(entry) = self.listeners.get(listener) else { return };
        let socket = match (result, socket) {
            (Ok(_), Some(socket)) => socket,
            (Err(error), _) => {
                tracing::warn!("cannot accept a connection on {}: {error}", entry.address);
                return;
            }
            (Ok(_), None) => return,
        };
        if self.conns.len() >= self.limits.connections {
            self.metrics.refused += 1;
            return;
        }
        if entry.is_tcp {
            // Replies are sent whole; waiting for more to send along only costs time.
            if let Err(errno) = rustix::net::sockopt::set_tcp_nodelay(&socket, true) {
                tracing::debug!("cannot set TCP_NODELAY: {errno}");
            }
            if let Err(errno) = rustix::net::sockopt::set_socket_keepalive(&socket, true) {
                tracing::debug!("cannot set SO_KEEPALIVE: {errno}");
            }
        }
        self.metrics.accepted += 1;
        self.next_number += 1;
        let id = self.next_number;
        let now_ms = self.clock.now_ms();
        self.registry.connections.insert(id, Connection::new(entry.address.clone(), now_ms));
        self.conns.insert(id, Conn::new(Arc::new(socket), self.limits.requests, now_ms));
        self.touch(id);
    }

    /// Notes that something happened to a connection.
    pub(crate) fn touch(&mut self, conn: u64) {
        self.touched.push(conn);
    }

    pub(crate) fn received(&mut self, id: u64, result: &io::Result<usize>, operation: Operation) {
        let now_ms = self.clock.now_ms();
        let Some(conn) = self.conns.get_mut(&id) else { return };
        let bytes = match result {
            Ok(bytes) if *bytes > 0 => *bytes,
            // End of stream or a broken connection: nothing will come any more, nobody will read a reply.
            _ => {
                conn.received(0, operation);
                self.kill(id);
                return;
            }
        };
        conn.progress_ms = now_ms;
        let complete = conn.received(bytes, operation);
        if complete && !conn.dead {
            self.payload_complete(id);
        }
        self.touch(id);
    }

    pub(crate) fn sent(&mut self, id: u64, result: &io::Result<usize>) {
        let now_ms = self.clock.now_ms();
        let Some(conn) = self.conns.get_mut(&id) else { return };
        conn.sent();
        conn.progress_ms = now_ms;
        if result.is_err() {
            self.kill(id);
        }
        self.touch(id);
    }

    /// Gives a connection up. Its requests in flight run to their end, unanswered; later overlapping writes wait for
    /// them (see `locks`).
    pub(crate) fn kill(&mut self, id: u64) {
        if let Some(conn) = self.conns.get_mut(&id) {
            conn.kill();
            self.touch(id);
        }
    }

    fn payload_complete(&mut self, id: u64) {
        let Some(conn) = self.conns.get_mut(&id) else { return };
        let Some(volume) = conn.volume else { unreachable!("a WRITE comes after the export was chosen") };
        let Some(Payload { request, memory: Some(memory), .. }) = conn.payload.take() else {
            unreachable!("a complete payload has its memory")
        };
        self.begin_write(id, volume, request, memory);
    }

    /// Takes what can be taken from connections that something happened to.
    pub(crate) fn pump_connections(&mut self) {
        let touched = std::mem::take(&mut self.touched);
        let mut again = touched.clone();
        for id in touched {
            while self.pump(id) == Pumped::Progress {}
        }
        // Their replies still have to be sent.
        self.to_send.append(&mut again);
    }

    fn has_budget(&self) -> bool {
        self.budget_bytes + self.unsent_bytes < self.limits.bytes
    }

    fn pump(&mut self, id: u64) -> Pumped {
        let has_budget = self.has_budget();
        let Some(conn) = self.conns.get_mut(&id).filter(|conn| !conn.dead && !conn.closing) else {
            return Pumped::Idle;
        };
        if conn.payload.is_some() {
            if conn.take_payload() {
                self.payload_complete(id);
                return Pumped::Progress;
            }
        } else {
            if !has_budget || conn.unsent_bytes() >= UNSENT_BYTES_MAX {
                if !has_budget {
                    self.metrics.stalls += 1;
                    self.stalled.push(id);
                }
                return Pumped::Idle;
            }
            if let Some(event) = conn.next_event(&self.exports[..]) {
                self.session_event(id, event);
                return Pumped::Progress;
            }
            if conn.session.need() == Need::Nothing {
                conn.closing = true;
            }
        }
        if let Some(operation) = conn.receive() {
            self.submit(operation, Pending::Receive { conn: id });
        }
        Pumped::Idle
    }

    fn session_event(&mut self, id: u64, event: ServerEvent) {
        let Some(conn) = self.conns.get_mut(&id) else { return };
        match event {
            ServerEvent::Attached { token } => {
                let volume = VolumeId(u16::try_from(token).unwrap_or(u16::MAX));
                conn.volume = Some(volume);
                if let (Some(mut entry), Some(export)) =
                    (self.registry.connections.get_mut(&id), conn.session.export())
                {
                    entry.export = Some(export.name.clone());
                }
            }
            ServerEvent::Request(request) => {
                let Some(volume) = conn.volume else {
                    unreachable!("requests come after the export was chosen")
                };
                self.begin_request(id, volume, request);
            }
            ServerEvent::WriteBegin(request) => self.expect_payload(id, request),
            ServerEvent::Disconnect => conn.closing = true,
            ServerEvent::Closed(reason) => {
                conn.closing = true;
                if reason != CloseReason::Aborted {
                    self.metrics.broken += 1;
                    tracing::debug!(connection = id, "closed: {reason}");
                }
            }
        }
    }

    fn expect_payload(&mut self, id: u64, request: Request) {
        let (memory, skip_bytes) = self.payload_memory(&request);
        self.budget_bytes += request.length();
        if let Some(conn) = self.conns.get_mut(&id) {
            conn.payload = Some(Payload { request, memory: Some(memory), skip_bytes, filled_bytes: 0 });
        }
    }

    /// Sends what the turn brought, closes what is through, wakes what waited for memory.
    pub(crate) fn send_replies(&mut self) {
        let mut ids = std::mem::take(&mut self.to_send);
        ids.sort_unstable();
        ids.dedup();
        for id in ids {
            let Some(conn) = self.conns.get_mut(&id) else { continue };
            if let Some(operation) = conn.send() {
                self.submit(operation, Pending::Send { conn: id });
                continue;
            }
            if conn.closing && conn.is_drained() {
                conn.kill();
            }
            if conn.dead && !conn.is_in_ring() {
                self.forget_connection(id);
            }
        }
        self.unsent_bytes = self.conns.values().map(Conn::unsent_bytes).sum();
        if !self.stalled.is_empty() && self.has_budget() {
            let mut stalled = std::mem::take(&mut self.stalled);
            self.touched.append(&mut stalled);
        }
    }

    fn forget_connection(&mut self, id: u64) {
        if let Some(conn) = self.conns.remove(&id)
            && let Some(payload) = conn.payload
        {
            self.budget_bytes -= payload.request.length();
        }
        self.registry.connections.remove(&id);
    }

    /// Closes connections whose clients do not go on with what they began.
    pub(crate) fn close_stuck_connections(&mut self, now_ms: u64) {
        let short = !self.has_budget();
        let handshake_ms = self.limits.handshake_ms;
        let late = |conn: &Conn| {
            let owes = conn.payload.is_some() || (short && conn.unsent_bytes() > 0);
            let age_ms = now_ms.saturating_sub(conn.progress_ms);
            let handshake_late =
                conn.volume.is_none() && now_ms.saturating_sub(conn.accepted_ms) > handshake_ms;
            !conn.dead && (handshake_late || (owes && age_ms > CLIENT_PATIENCE_MS))
        };
        let stuck: Vec<u64> = self.conns.iter().filter(|(_, conn)| late(conn)).map(|(id, _)| *id).collect();
        for id in stuck {
            self.metrics.broken += 1;
            tracing::debug!(connection = id, "closed: the client does not go on");
            self.kill(id);
        }
    }
}
