//! Receives from connections and sends to them.
//!
//! Out of scope: the bytes of one connection (`conn`).

use std::io;

use zc_core::VolumeId;
use zc_io::Operation;
use zc_nbd::Need;
use zc_nbd::server::{CloseReason, ServerEvent};

use crate::audit;
use crate::limits::{QUICK_SEND_BYTES, REQUEST_UNITS};
use crate::shard::base::Base;
use crate::shard::clients::conn::{Arrived, Conn, Payload};
use crate::shard::clients::nbd::{NbdFront, Pumped, Written};
use crate::shard::pending::Pending;
use crate::shard::volumes::Volumes;

/// Takes the write of a connection whose payload is complete.
fn complete(id: u64, conn: &mut Conn) -> Written {
    let Some(volume) = conn.volume else { unreachable!("a WRITE comes after the export was chosen") };
    let Some(Payload { request, memory: Some(memory), .. }) = conn.payload.take() else {
        unreachable!("a complete payload has its memory")
    };
    Written { conn: id, volume, request, memory }
}

impl NbdFront {
    /// Begins a turn, in which connections may start work again.
    pub(crate) const fn begin_turn(&mut self) {
        self.shares.begin_turn();
    }

    /// Returns `true` if connections have unprocessed events.
    pub(crate) const fn is_touched(&self) -> bool {
        !self.touched.is_empty()
    }

    /// Returns `true` if a connection may start work in this turn.
    pub(crate) fn can_go_on(&self) -> bool {
        self.shares.can_go_on()
    }

    /// Returns `true` if connections wait for a later turn.
    pub(crate) fn are_waiting(&self) -> bool {
        self.shares.are_waiting()
    }

    /// Sends of the last turn that are small enough to complete at once.
    pub(crate) const fn take_quick_sends(&mut self) -> usize {
        std::mem::replace(&mut self.quick_sends, 0)
    }

    /// Lines connections up that something happened to.
    pub(crate) fn line_up_touched(&mut self) {
        for id in std::mem::take(&mut self.touched) {
            // Its replies still have to be sent.
            self.to_send.push(id);
            self.line_up(id);
        }
    }

    /// Returns the next connection in the order, while the shard's turn has budget left.
    pub(crate) fn next_in_line(&mut self) -> Option<u64> {
        let (at_units, id) = self.shares.next()?;
        if let Some(conn) = self.conns.get_mut(&id) {
            conn.is_in_line = false;
            conn.virtual_units = at_units;
        }
        Some(id)
    }

    /// Records a connection's turn, and its units of work, if any.
    pub(crate) fn pumped(&mut self, id: u64, units: Option<u64>) {
        if let Some(units) = units {
            let counted_units = self.shares.spend(units);
            if let Some(conn) = self.conns.get_mut(&id) {
                conn.virtual_units += counted_units;
            }
            self.line_up(id);
        }
        self.to_send.push(id);
    }

    fn line_up(&mut self, id: u64) {
        if let Some(conn) = self.conns.get_mut(&id).filter(|conn| !conn.is_in_line) {
            conn.is_in_line = true;
            self.shares.add(id, conn.volume, conn.virtual_units);
        }
    }

    /// Processes the available input of a connection.
    pub(crate) fn pump(&mut self, base: &mut Base, volumes: &mut Volumes, id: u64) -> Pumped {
        // Also for a client that has disconnected.
        if let Some(client) = self.conns.get_mut(&id).and_then(|conn| conn.due.pop_front()) {
            return Pumped::Piece(client);
        }
        let Some(conn) = self.conns.get_mut(&id).filter(|conn| !conn.dead && !conn.closing) else {
            return Pumped::Idle;
        };
        if conn.is_over() {
            self.end_input(base, volumes, id);
            return Pumped::Idle;
        }
        if conn.waiting.is_some() {
            return Pumped::Idle;
        }
        if conn.payload.is_some() {
            if conn.take_payload() {
                return Pumped::Write(complete(id, conn));
            }
        } else {
            if conn.is_full() || conn.is_busy() {
                return Pumped::Idle;
            }
            if let Some(event) = conn.next_event(&self.exports) {
                return self.session_event(base, volumes, id, event);
            }
            if conn.is_tls_due() && !conn.start_tls(&self.tls) {
                self.break_off(base, volumes, id, "TLS cannot begin");
                return Pumped::Idle;
            }
            if conn.session.need() == Need::Nothing {
                conn.closing = true;
            }
        }
        if let Some(operation) = conn.receive() {
            let ring = conn.ring;
            base.io.submit_on(ring, operation, Pending::Receive { conn: id });
        }
        Pumped::Idle
    }

    /// A client has chosen its export.
    fn attached(&mut self, base: &mut Base, volumes: &mut Volumes, id: u64, token: u64) {
        let Some(conn) = self.conns.get(&id) else { return };
        let (peer, source) = (conn.peer, conn.source);
        if !self.has_place(base, volumes, source) {
            base.metrics.refused += 1;
            let why = "there are nbd.connections_max connections";
            audit::refused(&mut self.refusals, self.clock.now_ms(), &peer, why);
            self.kill(volumes, id);
            return;
        }
        self.admission.attach(id, source);
        let Some(conn) = self.conns.get_mut(&id) else { return };
        // From now on its memory counts for the volume as well.
        self.shares.recount(&conn.holder(id), std::mem::take(&mut conn.taken_bytes), 0);
        conn.volume = Some(VolumeId(u16::try_from(token).unwrap_or(u16::MAX)));
        let export = conn.session.export().map(|export| export.name.as_str());
        tracing::info!(target: audit::TARGET, connection = id, %peer, export, "audit: client attached");
        if let (Some(mut entry), Some(export)) =
            (self.registry.connections.get_mut(&id), conn.session.export())
        {
            entry.export = Some(export.name.clone());
        }
    }

    /// Processes a session's event.
    fn session_event(
        &mut self,
        base: &mut Base,
        volumes: &mut Volumes,
        id: u64,
        event: ServerEvent,
    ) -> Pumped {
        let Some(conn) = self.conns.get_mut(&id) else { return Pumped::Progress { units: 0 } };
        match event {
            ServerEvent::Attached { token } => self.attached(base, volumes, id, token),
            ServerEvent::Refused { export, why } => {
                let why = format!("{}: {why}", audit::brief(&export));
                audit::refused(&mut self.refusals, self.clock.now_ms(), &conn.peer, &why);
            }
            ServerEvent::Request(request) | ServerEvent::WriteBegin(request) => {
                let Some(volume) = conn.volume else {
                    unreachable!("requests come after the export was chosen")
                };
                return Pumped::Asks { volume, request };
            }
            ServerEvent::Disconnect => conn.closing = true,
            ServerEvent::Closed(reason) => {
                conn.closing = true;
                if reason != CloseReason::Aborted {
                    base.metrics.broken += 1;
                    tracing::debug!(connection = id, "closed: {reason}");
                    if conn.volume.is_none() {
                        let why = audit::brief(&reason.to_string());
                        audit::refused(&mut self.refusals, self.clock.now_ms(), &conn.peer, &why);
                    }
                }
            }
        }
        Pumped::Progress { units: REQUEST_UNITS }
    }

    /// Handles the completion of a receive; returns a write whose payload is now complete.
    pub(crate) fn received(
        &mut self,
        base: &mut Base,
        volumes: &mut Volumes,
        id: u64,
        result: &io::Result<usize>,
        operation: Operation,
    ) -> Option<Written> {
        let now_ms = self.clock.now_ms();
        let conn = self.conns.get_mut(&id)?;
        let bytes = match result {
            Ok(bytes) if *bytes > 0 => *bytes,
            // End of stream or a broken connection: no further request arrives, and no reply is read.
            _ => {
                conn.returned(operation);
                self.kill(volumes, id);
                return None;
            }
        };
        conn.progress_ms = now_ms;
        let source = conn.source;
        let mut written = None;
        match conn.received(bytes, operation) {
            Ok(Arrived::Payload) if !conn.dead => written = Some(complete(id, conn)),
            Ok(Arrived::Handshake(job)) if !conn.dead => {
                if !self.handshakes.hand_over(id, source, job) {
                    self.break_off(base, volumes, id, "there is no thread for a TLS handshake");
                }
            }
            Ok(_) => {}
            Err(error) => self.tls_failed(base, volumes, id, &error),
        }
        self.touch(id);
        written
    }

    pub(crate) fn take_handshakes(&mut self, base: &mut Base, volumes: &mut Volumes) {
        for back in self.handshakes.take_done() {
            let id = back.conn;
            // Closed since.
            let Some(conn) = self.conns.get_mut(&id) else { continue };
            if let Err(error) = conn.handed_back(back) {
                self.tls_failed(base, volumes, id, &error);
            }
            self.touch(id);
        }
    }

    /// Sends a TLS alert as far as possible, and closes the connection.
    fn tls_failed(&mut self, base: &mut Base, volumes: &mut Volumes, id: u64, error: &io::Error) {
        let Some(conn) = self.conns.get(&id) else { return };
        let why = format!("TLS: {error}");
        audit::refused(&mut self.refusals, self.clock.now_ms(), &conn.peer, &why);
        base.metrics.broken += 1;
        self.end_input(base, volumes, id);
    }

    /// Handles the completion of a send.
    pub(crate) fn sent(&mut self, volumes: &mut Volumes, id: u64, result: &io::Result<usize>) {
        let now_ms = self.clock.now_ms();
        let Some(conn) = self.conns.get_mut(&id) else { return };
        conn.sent();
        conn.progress_ms = now_ms;
        if result.is_err() {
            self.kill(volumes, id);
        }
        self.recount(id);
        self.touch(id);
    }

    /// Sends the turn's replies, and closes finished connections. Returns `true` if the only connection of the shard
    /// has closed, which stops the shard.
    pub(crate) fn send_replies(&mut self, base: &mut Base, volumes: &mut Volumes) -> bool {
        let mut is_over = false;
        let now_ms = self.clock.now_ms();
        let mut ids = std::mem::take(&mut self.to_send);
        ids.sort_unstable();
        ids.dedup();
        for id in ids {
            let Some(conn) = self.conns.get_mut(&id) else { continue };
            let mut operation = conn.send();
            if operation.is_none() && conn.closing && conn.is_drained() && conn.says_goodbye() {
                operation = conn.send();
            }
            let bytes = conn.sending_bytes();
            let through = operation.is_none() && conn.closing && !conn.dead && conn.is_drained();
            if let Some(operation) = operation {
                conn.taken_ms = now_ms;
                self.quick_sends += usize::from(bytes <= QUICK_SEND_BYTES);
                base.submit(operation, Pending::Send { conn: id });
            }
            if through {
                self.kill(volumes, id);
            }
            self.recount(id);
            if self.conns.get(&id).is_some_and(|conn| conn.dead && !conn.is_in_ring()) {
                is_over |= self.forget_connection(base, id);
            }
        }
        is_over
    }

    fn forget_connection(&mut self, base: &mut Base, id: u64) -> bool {
        if let Some(conn) = self.conns.remove(&id) {
            base.io.client_has_left(conn.ring);
            self.uncount(id, &conn);
            if conn.volume.is_some() {
                let export = conn.session.export().map(|export| export.name.as_str());
                tracing::info!(target: audit::TARGET, connection = id, peer = %conn.peer, export, "audit: client gone");
            }
            if let Some(payload) = conn.payload {
                base.payload_bytes -= payload.held_bytes;
            }
        }
        self.registry.connections.remove(&id);
        self.only == Some(id)
    }
}
