//! Sockets of the data plane: accepting, receiving, sending, closing.
//!
//! Job: feed received bytes to sessions, start requests, hold back when too much is in flight, and send each
//! connection's replies of a turn together.
//!
//! Invariants: memory of payloads (arriving, being worked on, unsent) is bounded and divided (`shares`); a request
//! beyond its connection's share waits (`waiting`), and the socket is not read meanwhile. What counts is the memory that
//! is held, which is more than the bytes: pages, and what the pool makes of them. A client that keeps payload memory and
//! does not go on, or too slowly, loses its connection when its patience is over, which is short while others wait.

use std::io;
use std::os::fd::OwnedFd;
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::net::sockopt;
use zc_core::{Map, VolumeId};
use zc_io::{Operation, SharedFd};
use zc_nbd::server::{CloseReason, Command, ServerEvent};
use zc_nbd::{ErrorCode, Need};

use crate::audit;
use crate::front::access::is_allowed;
use crate::front::admission::Arrival;
use crate::front::peer::{Peer, Source};
use crate::front::settings::FrontLimits;
use crate::front::shares;
use crate::limits::{
    ARRIVAL_BYTES_PER_S_MIN, ATTACHED_IDLE_MS, CLOSING_MAX, HANDSHAKE_PLACES, KEEPALIVE_INTERVAL,
    KEEPALIVE_PROBES, LOOK_MS, QUICK_SEND_BYTES, REQUEST_UNITS,
};
use crate::registry::Connection;
use crate::shard::Shard;
use crate::shard::clients::conn::{Arrived, Conn, Payload};
use crate::shard::pending::Pending;

/// What a connection can do next.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Pumped {
    /// Nothing at the moment.
    Idle,
    /// Something came of it, which is so much work.
    Progress { units: u64 },
}

impl Shard {
    pub(crate) fn accept(&mut self, listener: usize) {
        if let Some(entry) = self.nbd.listeners.get(listener) {
            let fd = SharedFd::clone(&entry.fd);
            self.submit(Operation::Accept { fd }, Pending::Accept { listener });
        }
    }

    pub(crate) fn accepted(&mut self, listener: usize, result: &io::Result<usize>, socket: Option<OwnedFd>) {
        if !self.stopping.is_running() {
            return;
        }
        let Some(entry) = self.nbd.listeners.get(listener) else { return };
        let (is_tcp, address) = (entry.is_tcp, entry.address.clone());
        match (result, socket) {
            (Ok(_), Some(socket)) => {
                self.accept(listener);
                self.admit(socket, is_tcp, address);
            }
            (Err(error), _) => {
                self.metrics.accept_errors += 1;
                if self.metrics.accept_errors.is_power_of_two() {
                    let count = self.metrics.accept_errors;
                    tracing::warn!(count, "cannot accept a connection on {address}: {error}");
                }
                // Most likely out of descriptors: one that is not in use yet makes room, and the next try is later.
                if let Some(id) = self.nbd.admission.spare() {
                    self.displace(id, "descriptors are short");
                }
                self.nbd.accept_later.push(listener);
            }
            (Ok(_), None) => self.accept(listener),
        }
    }

    /// Takes a new connection in if the bounds allow it; its number.
    fn admit(&mut self, socket: OwnedFd, is_tcp: bool, listener: String) -> Option<u64> {
        let peer = Peer::of(&socket, is_tcp);
        let source = Source::of(peer, self.limits.ipv6_prefix_bits);
        let now_ms = self.clock.now_ms();
        let refused = if is_tcp && !is_allowed(&self.nbd.allow, peer) {
            Some("nbd.allow does not name its address")
        } else if self.nbd.conns.len() >= self.limits.connections + HANDSHAKE_PLACES + CLOSING_MAX {
            Some("connections that were closed are still on their way out")
        } else {
            match self.nbd.admission.arrive(self.limits.bounds(), source, now_ms) {
                Arrival::Admitted => None,
                Arrival::Displaces(id) => {
                    self.displace(id, "a client from elsewhere needs the place");
                    None
                }
                Arrival::Refused(why) => Some(why),
            }
        };
        if let Some(why) = refused {
            self.metrics.refused += 1;
            audit::refused(&mut self.nbd.refusals, now_ms, &peer, why);
            return None;
        }
        if is_tcp {
            set_tcp_options(&socket, self.limits.keepalive_ms);
        }
        self.metrics.accepted += 1;
        self.next_number += 1;
        let id = self.next_number;
        self.registry.connections.insert(id, Connection::new(listener, peer.to_string(), now_ms));
        let conn = Conn::new(SharedFd::new(socket), (peer, source), &self.limits, self.nbd.tls.mode, now_ms);
        self.nbd.conns.insert(id, conn);
        self.nbd.admission.enter(id, source, now_ms);
        self.touch(id);
        Some(id)
    }

    /// Serves a connection that is there already, and ends with it.
    pub(crate) fn serve_only(&mut self, socket: OwnedFd) {
        let is_tcp = rustix::net::getsockname(&socket)
            .is_ok_and(|address| std::net::SocketAddr::try_from(address).is_ok());
        self.nbd.only = self.admit(socket, is_tcp, "a passed connection".to_owned());
        if self.nbd.only.is_none() {
            self.begin_stop();
        }
    }

    /// Closes a connection whose place another one gets.
    fn displace(&mut self, id: u64, why: &str) {
        self.metrics.displaced += 1;
        if let Some(conn) = self.nbd.conns.get(&id).filter(|conn| conn.volume.is_some()) {
            tracing::warn!(target: audit::TARGET, connection = id, peer = %conn.peer, "audit: client displaced: {why}");
        }
        self.kill(id);
    }

    /// Whether there is a place for a client that has chosen its export; if need be, that of the client which has asked
    /// for nothing for the longest time, of the source with the most.
    fn has_place(&mut self, source: Source) -> bool {
        let bounds = self.limits.bounds();
        if !self.nbd.admission.is_full(bounds) {
            return true;
        }
        let latest_ms = self.clock.now_ms().saturating_sub(ATTACHED_IDLE_MS);
        let own = self.nbd.admission.attached_of(source) + 1;
        for larger in self.nbd.admission.larger(bounds, own) {
            let idle = |conn: &&Conn| conn.source == larger && !conn.dead && conn.is_idle();
            let conns = self.nbd.conns.iter().filter(|(_, conn)| conn.volume.is_some() && idle(conn));
            let longest = conns.map(|(id, conn)| (conn.progress_ms, *id)).min();
            if let Some((_, id)) = longest.filter(|(since_ms, _)| *since_ms <= latest_ms) {
                self.displace(id, "all places are taken, its source has the most, and it asked for nothing");
                return true;
            }
        }
        false
    }

    /// Notes that something happened to a connection.
    pub(crate) fn touch(&mut self, conn: u64) {
        self.nbd.touched.push(conn);
    }

    pub(crate) fn received(&mut self, id: u64, result: &io::Result<usize>, operation: Operation) {
        let now_ms = self.clock.now_ms();
        let Some(conn) = self.nbd.conns.get_mut(&id) else { return };
        let bytes = match result {
            Ok(bytes) if *bytes > 0 => *bytes,
            // End of stream or a broken connection: nothing will come any more, nobody will read a reply.
            _ => {
                conn.returned(operation);
                self.kill(id);
                return;
            }
        };
        conn.progress_ms = now_ms;
        let source = conn.source;
        match conn.received(bytes, operation) {
            Ok(Arrived::Payload) if !conn.dead => self.payload_complete(id),
            Ok(Arrived::Handshake(job)) if !conn.dead => {
                if !self.nbd.handshakes.hand_over(id, source, job) {
                    self.break_off(id, "there is no thread for a TLS handshake");
                }
            }
            Ok(_) => {}
            Err(error) => self.tls_failed(id, &error),
        }
        self.touch(id);
    }

    /// Handshakes went on.
    pub(crate) fn take_handshakes(&mut self) {
        for back in self.nbd.handshakes.take_done() {
            let id = back.conn;
            // Gone meanwhile.
            let Some(conn) = self.nbd.conns.get_mut(&id) else { continue };
            if let Err(error) = conn.handed_back(back) {
                self.tls_failed(id, &error);
            }
            self.touch(id);
        }
    }

    /// An alert is on its way; it is sent as far as that works, and the connection closed.
    fn tls_failed(&mut self, id: u64, error: &io::Error) {
        let Some(conn) = self.nbd.conns.get(&id) else { return };
        let why = format!("TLS: {error}");
        audit::refused(&mut self.nbd.refusals, self.clock.now_ms(), &conn.peer, &why);
        self.metrics.broken += 1;
        self.end_input(id);
    }

    pub(crate) fn sent(&mut self, id: u64, result: &io::Result<usize>) {
        let now_ms = self.clock.now_ms();
        let Some(conn) = self.nbd.conns.get_mut(&id) else { return };
        conn.sent();
        conn.progress_ms = now_ms;
        if result.is_err() {
            self.kill(id);
        }
        self.recount(id);
        self.touch(id);
    }

    /// Gives a connection up. Its requests that have begun run to their end, unanswered; later overlapping writes wait
    /// for them (see `locks`). Those that have not begun never do.
    pub(crate) fn kill(&mut self, id: u64) {
        self.touch(id);
        self.withdraw_throttled(id);
        let Some(conn) = self.nbd.conns.get_mut(&id).filter(|conn| !conn.dead) else { return };
        conn.kill();
        if conn.session.in_flight() > 0 {
            self.nbd.given_up.insert(id);
            self.nbd.given_up_pieces.extend(std::mem::take(&mut conn.due));
        }
        self.nbd.admission.leave(id, conn.source, conn.volume.is_some());
    }

    fn break_off(&mut self, id: u64, why: &str) {
        self.metrics.broken += 1;
        tracing::debug!(connection = id, "closed: {why}");
        if let Some(conn) = self.nbd.conns.get(&id) {
            if conn.volume.is_none() {
                audit::refused(&mut self.nbd.refusals, self.clock.now_ms(), &conn.peer, why);
            } else {
                tracing::warn!(target: audit::TARGET, connection = id, peer = %conn.peer, "audit: client disconnected: {why}");
            }
        }
        self.kill(id);
    }

    /// Nothing more is taken from a client; what is in flight is answered, then the connection closed. A WRITE whose
    /// payload is not complete gives its memory back now: nobody will bring the rest, and waiting for it would keep the
    /// connection.
    fn end_input(&mut self, id: u64) {
        self.withdraw_throttled(id);
        let Some(conn) = self.nbd.conns.get_mut(&id) else { return };
        conn.closing = true;
        let request = match conn.payload.take() {
            Some(payload) => {
                self.budget_bytes -= payload.held_bytes;
                Some(payload.request)
            }
            None => conn.waiting.take().map(|waiting| waiting.request),
        };
        match request {
            Some(request) if request.command() == Command::Write => {
                conn.session.refuse_payload(request, ErrorCode::Io, "the payload is cut off");
            }
            // Nobody takes the answer either.
            Some(request) => {
                let (session, head) = conn.reply();
                session.reply_error(request, ErrorCode::Shutdown, "the connection is cut off", head);
            }
            None => {}
        }
        self.recount(id);
    }

    fn payload_complete(&mut self, id: u64) {
        let Some(conn) = self.nbd.conns.get_mut(&id) else { return };
        let Some(volume) = conn.volume else { unreachable!("a WRITE comes after the export was chosen") };
        let Some(Payload { request, memory: Some(memory), .. }) = conn.payload.take() else {
            unreachable!("a complete payload has its memory")
        };
        self.begin_write(id, volume, request, memory);
    }

    /// Takes what can be taken from connections that something happened to, as far as the turn has work left.
    pub(crate) fn pump_connections(&mut self) {
        for id in std::mem::take(&mut self.nbd.touched) {
            // Its replies still have to be sent.
            self.nbd.to_send.push(id);
            self.line_up(id);
        }
        while let Some((at_units, id)) = self.nbd.shares.next() {
            if let Some(conn) = self.nbd.conns.get_mut(&id) {
                conn.is_in_line = false;
                conn.virtual_units = at_units;
            }
            if let Pumped::Progress { units } = self.pump(id) {
                self.nbd.shares.spend(units);
                if let Some(conn) = self.nbd.conns.get_mut(&id) {
                    conn.virtual_units += units;
                }
                self.line_up(id);
            }
            self.nbd.to_send.push(id);
        }
    }

    fn line_up(&mut self, id: u64) {
        if let Some(conn) = self.nbd.conns.get_mut(&id).filter(|conn| !conn.is_in_line) {
            conn.is_in_line = true;
            self.nbd.shares.add(id, conn.virtual_units);
        }
    }

    fn pump(&mut self, id: u64) -> Pumped {
        // Also of a client that has said goodbye.
        if let Some(client) = self.nbd.conns.get_mut(&id).and_then(|conn| conn.due.pop_front()) {
            return Pumped::Progress { units: self.begin_piece(client) };
        }
        let Some(conn) = self.nbd.conns.get_mut(&id).filter(|conn| !conn.dead && !conn.closing) else {
            return Pumped::Idle;
        };
        if conn.is_over() {
            self.end_input(id);
            return Pumped::Idle;
        }
        if conn.waiting.is_some() {
            return Pumped::Idle;
        }
        if conn.payload.is_some() {
            if conn.take_payload() {
                self.payload_complete(id);
                return Pumped::Progress { units: REQUEST_UNITS };
            }
        } else {
            if conn.is_full() || conn.is_busy() {
                return Pumped::Idle;
            }
            if let Some(event) = conn.next_event(&self.nbd.exports) {
                let units = self.session_event(id, event);
                return Pumped::Progress { units };
            }
            if conn.is_tls_due() && !conn.start_tls(&self.nbd.tls) {
                self.break_off(id, "TLS cannot begin");
                return Pumped::Idle;
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

    /// A client has chosen its export.
    fn attached(&mut self, id: u64, token: u64) {
        let Some(conn) = self.nbd.conns.get(&id) else { return };
        let (peer, source) = (conn.peer, conn.source);
        if !self.has_place(source) {
            self.metrics.refused += 1;
            let why = "there are nbd.connections_max connections";
            audit::refused(&mut self.nbd.refusals, self.clock.now_ms(), &peer, why);
            self.kill(id);
            return;
        }
        self.nbd.admission.attach(id, source);
        let Some(conn) = self.nbd.conns.get_mut(&id) else { return };
        // What it holds counts for the volume as well from now on.
        self.nbd.shares.recount(&conn.holder(id), std::mem::take(&mut conn.taken_bytes), 0);
        conn.volume = Some(VolumeId(u16::try_from(token).unwrap_or(u16::MAX)));
        let export = conn.session.export().map(|export| export.name.as_str());
        tracing::info!(target: audit::TARGET, connection = id, %peer, export, "audit: client attached");
        if let (Some(mut entry), Some(export)) =
            (self.registry.connections.get_mut(&id), conn.session.export())
        {
            entry.export = Some(export.name.clone());
        }
    }

    /// What a session found in the bytes; how much work that is.
    fn session_event(&mut self, id: u64, event: ServerEvent) -> u64 {
        let Some(conn) = self.nbd.conns.get_mut(&id) else { return 0 };
        match event {
            ServerEvent::Attached { token } => self.attached(id, token),
            ServerEvent::Refused { export, why } => {
                let why = format!("{}: {why}", audit::brief(&export));
                audit::refused(&mut self.nbd.refusals, self.clock.now_ms(), &conn.peer, &why);
            }
            ServerEvent::Request(request) | ServerEvent::WriteBegin(request) => {
                let Some(volume) = conn.volume else {
                    unreachable!("requests come after the export was chosen")
                };
                let units = shares::units(request.command(), request.length());
                self.ask_limits(id, volume, request);
                return units;
            }
            ServerEvent::Disconnect => conn.closing = true,
            ServerEvent::Closed(reason) => {
                conn.closing = true;
                if reason != CloseReason::Aborted {
                    self.metrics.broken += 1;
                    tracing::debug!(connection = id, "closed: {reason}");
                    if conn.volume.is_none() {
                        let why = audit::brief(&reason.to_string());
                        audit::refused(&mut self.nbd.refusals, self.clock.now_ms(), &conn.peer, &why);
                    }
                }
            }
        }
        REQUEST_UNITS
    }

    /// Sends what the turn brought, closes what is through, wakes what waited for memory.
    pub(crate) fn send_replies(&mut self) {
        let now_ms = self.clock.now_ms();
        let mut ids = std::mem::take(&mut self.nbd.to_send);
        ids.sort_unstable();
        ids.dedup();
        for id in ids {
            let Some(conn) = self.nbd.conns.get_mut(&id) else { continue };
            let mut operation = conn.send();
            if operation.is_none() && conn.closing && conn.is_drained() && conn.says_goodbye() {
                operation = conn.send();
            }
            let bytes = conn.sending_bytes();
            let through = operation.is_none() && conn.closing && !conn.dead && conn.is_drained();
            if let Some(operation) = operation {
                conn.taken_ms = now_ms;
                self.nbd.quick_sends += usize::from(bytes <= QUICK_SEND_BYTES);
                self.submit(operation, Pending::Send { conn: id });
            }
            if through {
                self.kill(id);
            }
            self.recount(id);
            if self.nbd.conns.get(&id).is_some_and(|conn| conn.dead && !conn.is_in_ring()) {
                self.forget_connection(id);
            }
        }
        self.begin_waiting();
    }

    fn forget_connection(&mut self, id: u64) {
        if let Some(conn) = self.nbd.conns.remove(&id) {
            self.uncount(id, &conn);
            if conn.volume.is_some() {
                let export = conn.session.export().map(|export| export.name.as_str());
                tracing::info!(target: audit::TARGET, connection = id, peer = %conn.peer, export, "audit: client gone");
            }
            if let Some(payload) = conn.payload {
                self.budget_bytes -= payload.held_bytes;
            }
        }
        self.registry.connections.remove(&id);
        if self.nbd.only == Some(id) {
            self.begin_stop();
        }
    }

    /// What only time brings about: another try to accept, and the end of clients that do not go on.
    pub(crate) fn look_after_connections(&mut self, now_ms: u64) {
        if now_ms.saturating_sub(self.nbd.last_look_ms) < LOOK_MS {
            return;
        }
        self.nbd.last_look_ms = now_ms;
        for listener in std::mem::take(&mut self.nbd.accept_later) {
            self.accept(listener);
        }
        for id in hung_up(&self.nbd.conns) {
            self.kill(id);
        }
        let limits = self.limits;
        let stuck: Vec<(u64, &str)> = self
            .nbd
            .conns
            .iter()
            .filter_map(|(id, conn)| Some((*id, overdue(conn, &limits, now_ms)?)))
            .collect();
        for (id, why) in stuck {
            self.break_off(id, why);
        }
        for id in self.look_after_waiting(now_ms) {
            self.break_off(id, "the client does not go on, and others wait for the memory that it holds");
        }
    }
}

/// Connections that are not received from, and whose clients have closed them: the requests that hold the receive up
/// are of no use to any client.
fn hung_up(conns: &Map<u64, Conn>) -> Vec<u64> {
    let (ids, mut fds): (Vec<u64>, Vec<PollFd<'_>>) = conns
        .iter()
        .filter(|(_, conn)| !conn.dead && !conn.is_in_ring() && conn.session.in_flight() > 0)
        // Errors and hang-ups are told unasked.
        .map(|(id, conn)| (*id, PollFd::new(&*conn.fd, PollFlags::empty())))
        .unzip();
    if fds.is_empty() || poll(&mut fds, Some(&Timespec::default())).is_err() {
        return Vec::new();
    }
    let is_gone = |fd: &PollFd<'_>| fd.revents().intersects(PollFlags::HUP | PollFlags::ERR);
    ids.into_iter().zip(&fds).filter(|(_, fd)| is_gone(fd)).map(|(id, _)| id).collect()
}

/// Why a client has had its time, if so.
fn overdue(conn: &Conn, limits: &FrontLimits, now_ms: u64) -> Option<&'static str> {
    let since = |then: u64| now_ms.saturating_sub(then);
    if conn.dead {
        return None;
    }
    if conn.volume.is_none() && since(conn.accepted_ms) > limits.handshake_ms {
        return Some("the client does not choose an export");
    }
    if conn.payload.is_some() && since(conn.progress_ms) > limits.stall_ms {
        return Some("the client stopped within a write");
    }
    if let Some(payload) = &conn.payload {
        let slow_ms = payload.request.length() * 1000 / ARRIVAL_BYTES_PER_S_MIN;
        if since(payload.began_ms) > limits.stall_ms + slow_ms {
            return Some("a write takes too long to arrive");
        }
    }
    if since(conn.taken_ms) > taking_ms(conn, limits) && conn.sending_bytes() > 0 {
        return Some("the client does not take its replies");
    }
    if limits.idle_ms > 0
        && conn.is_idle()
        && conn.volume.is_some()
        && since(conn.progress_ms) > limits.idle_ms
    {
        return Some("the client asks for nothing");
    }
    None
}

/// How long a client may take for one send of replies. What it takes of a send shows only at its end, so that a short
/// bound of idleness does not cut the time of a slow client.
fn taking_ms(conn: &Conn, limits: &FrontLimits) -> u64 {
    // A client that has said goodbye has nothing else to do; one that asks for more takes what it asked for.
    if conn.is_full() || conn.waiting.is_some() || conn.closing {
        limits.stall_ms
    } else if limits.idle_ms > 0 {
        limits.idle_ms.max(limits.stall_ms)
    } else {
        u64::MAX
    }
}

/// Failures leave a connection that works, if slower or longer than it should.
fn set_tcp_options(socket: &OwnedFd, keepalive_ms: u64) {
    // Replies are sent whole; waiting for more to send along only costs time.
    let mut done = sockopt::set_tcp_nodelay(socket, true);
    if keepalive_ms > 0 {
        let silence = Duration::from_millis(keepalive_ms.max(1000));
        done = done
            .and_then(|()| sockopt::set_socket_keepalive(socket, true))
            .and_then(|()| sockopt::set_tcp_keepidle(socket, silence))
            .and_then(|()| sockopt::set_tcp_keepintvl(socket, KEEPALIVE_INTERVAL))
            .and_then(|()| sockopt::set_tcp_keepcnt(socket, KEEPALIVE_PROBES));
    }
    if let Err(errno) = done {
        tracing::debug!("cannot set an option of a TCP connection: {errno}");
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::front::access::{Export, View};
    use crate::front::settings::LIMITS_OF_TESTS as LIMITS;
    use zc_io::AlignedBuf;
    use zc_nbd::server::TlsMode;

    fn export() -> Export {
        let text = "[cache]\npath = \"/c\"\nsize = \"1 GiB\"\n[nbd]\nlisten = [\"127.0.0.1:1\"]\n\
                    [[volume]]\nname = \"v\"\norigin = \"/o\"\n";
        let config = zc_config::Config::parse(text, "test").unwrap();
        crate::front::settings::export(&config.volumes[0], VolumeId(1), 64 << 20)
    }

    /// A connection that chose its export and whose session has seen these bytes; what came of the last of them.
    fn attached(bytes: &[u8]) -> (Conn, Option<ServerEvent>) {
        let (socket, _other) = std::os::unix::net::UnixStream::pair().unwrap();
        let socket = OwnedFd::from(socket);
        let peer = Peer::of(&socket, false);
        let mut conn =
            Conn::new(SharedFd::new(socket), (peer, Source::of(peer, 64)), &LIMITS, TlsMode::Off, 0);
        conn.volume = Some(VolumeId(1));
        let all = [b"\0\0\0\x03IHAVEOPT\0\0\0\x01\0\0\0\0", bytes].concat();
        let (mut rest, exports) = (&all[..], [export()]);
        let catalog = &View { exports: &exports, peer, is_secured: false, names: &[] };
        let (mut last, mut head) = (None, Vec::new());
        while let Some(event) = conn.session.next_event(&mut rest, catalog, &mut head) {
            last = Some(event);
        }
        // The greeting is sent and taken.
        drop(conn.send());
        conn.sent();
        (conn, last)
    }

    #[test]
    fn a_payload_has_patience_and_the_time_of_a_slow_link() {
        let mut header = b"\x25\x60\x95\x13\0\0\0\x01cookie..\0\0\0\0\0\0\0\0".to_vec();
        header.extend(1_048_576_u32.to_be_bytes());
        let (mut conn, Some(ServerEvent::WriteBegin(request))) = attached(&header) else {
            panic!("a write begins")
        };
        let memory = Some(AlignedBuf::new(512));
        conn.payload = Some(Payload {
            request,
            memory,
            skip_bytes: 0,
            filled_bytes: 0,
            held_bytes: 4096,
            began_ms: 100,
        });
        // A byte now and then.
        conn.progress_ms = 9000;
        assert_eq!(overdue(&conn, &LIMITS, 100 + 5000 + 4000), None);
        let told = overdue(&conn, &LIMITS, 100 + 5000 + 4000 + 1);
        assert_eq!(told, Some("a write takes too long to arrive"));
        assert_eq!(
            overdue(&conn, &LIMITS, 9000 + 5001),
            Some("the client stopped within a write"),
            "the first reason"
        );
    }

    #[test]
    fn a_client_that_asks_for_nothing_is_idle() {
        let (mut conn, _) = attached(&[]);
        conn.progress_ms = 1000;
        assert_eq!(overdue(&conn, &LIMITS, 3000), None);
        assert_eq!(overdue(&conn, &LIMITS, 3001), Some("the client asks for nothing"));
    }
}
