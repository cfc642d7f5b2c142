//! Listeners and new connections.
//!
//! It does not bound their number (`front/admission`).

use std::io;
use std::os::fd::OwnedFd;
use std::time::Duration;

use rustix::net::sockopt;
use zc_io::{Operation, SharedFd};

use crate::audit;
use crate::front::access::is_allowed;
use crate::front::admission::Arrival;
use crate::front::peer::{Peer, Source};
use crate::limits::{ATTACHED_IDLE_MS, CLOSING_MAX, HANDSHAKE_PLACES, KEEPALIVE_INTERVAL, KEEPALIVE_PROBES};
use crate::registry::Connection;
use crate::shard::base::Base;
use crate::shard::clients::conn::Conn;
use crate::shard::clients::nbd::NbdFront;
use crate::shard::pending::Pending;
use crate::shard::volumes::Volumes;

impl NbdFront {
    /// Waits for a connection on each listener.
    pub(crate) fn accept_all(&self, base: &mut Base) {
        for listener in 0..self.listeners.len() {
            self.accept(base, listener);
        }
    }

    pub(super) fn accept(&self, base: &mut Base, listener: usize) {
        if let Some(entry) = self.listeners.get(listener) {
            let fd = SharedFd::clone(&entry.fd);
            base.submit(Operation::Accept { fd }, Pending::Accept { listener });
        }
    }

    pub(crate) fn accepted(
        &mut self,
        base: &mut Base,
        volumes: &mut Volumes,
        listener: usize,
        result: &io::Result<usize>,
        socket: Option<OwnedFd>,
    ) {
        if !base.stopping.is_running() {
            return;
        }
        let Some(entry) = self.listeners.get(listener) else { return };
        let (is_tcp, address) = (entry.is_tcp, entry.address.clone());
        match (result, socket) {
            (Ok(_), Some(socket)) => {
                self.accept(base, listener);
                self.admit(base, volumes, socket, is_tcp, address);
            }
            (Err(error), _) => {
                base.metrics.accept_errors += 1;
                if base.metrics.accept_errors.is_power_of_two() {
                    let count = base.metrics.accept_errors;
                    tracing::warn!(count, "cannot accept a connection on {address}: {error}");
                }
                // Probably out of descriptors: displace an unused connection, and retry later.
                if let Some(id) = self.admission.spare() {
                    self.displace(base, volumes, id, "descriptors are short");
                }
                self.accept_later.push(listener);
            }
            (Ok(_), None) => self.accept(base, listener),
        }
    }

    /// Takes a new connection in if the bounds allow it; its number.
    fn admit(
        &mut self,
        base: &mut Base,
        volumes: &mut Volumes,
        socket: OwnedFd,
        is_tcp: bool,
        listener: String,
    ) -> Option<u64> {
        let peer = Peer::of(&socket, is_tcp);
        let source = Source::of(peer, self.limits.ipv6_prefix_bits);
        let now_ms = self.clock.now_ms();
        let refused = if is_tcp && !is_allowed(&self.allow, peer) {
            Some("nbd.allow does not name its address")
        } else if self.conns.len() >= self.limits.connections + HANDSHAKE_PLACES + CLOSING_MAX {
            Some("closed connections are still being released")
        } else {
            match self.admission.arrive(self.limits.bounds(), source, now_ms) {
                Arrival::Admitted => None,
                Arrival::Displaces(id) => {
                    self.displace(base, volumes, id, "another client needs the connection");
                    None
                }
                Arrival::Refused(why) => Some(why),
            }
        };
        if let Some(why) = refused {
            base.metrics.refused += 1;
            audit::refused(&mut self.refusals, now_ms, &peer, why);
            return None;
        }
        if is_tcp {
            set_tcp_options(&socket, self.limits.keepalive_ms);
        }
        base.metrics.accepted += 1;
        let id = base.next_number();
        self.registry.connections.insert(id, Connection::new(listener, peer.to_string(), now_ms));
        let mut conn = Conn::new(SharedFd::new(socket), (peer, source), &self.limits, self.tls.mode, now_ms);
        conn.ring = base.io.ring_for_client();
        self.conns.insert(id, conn);
        self.admission.enter(id, source, now_ms);
        self.touch(id);
        Some(id)
    }

    /// Serves a single existing connection; the shard stops when it closes. Returns `true` if it was admitted.
    pub(crate) fn serve_only(&mut self, base: &mut Base, volumes: &mut Volumes, socket: OwnedFd) -> bool {
        let is_tcp = rustix::net::getsockname(&socket)
            .is_ok_and(|address| std::net::SocketAddr::try_from(address).is_ok());
        self.only = self.admit(base, volumes, socket, is_tcp, "a passed connection".to_owned());
        self.only.is_some()
    }

    /// Closes a connection whose slot is reassigned.
    fn displace(&mut self, base: &mut Base, volumes: &mut Volumes, id: u64, why: &str) {
        base.metrics.displaced += 1;
        if let Some(conn) = self.conns.get(&id).filter(|conn| conn.volume.is_some()) {
            tracing::warn!(target: audit::TARGET, connection = id, peer = %conn.peer, "audit: client displaced: \
                {why}");
        }
        self.kill(volumes, id);
    }

    /// Returns `true` if there is a slot for a client that has chosen its export; if necessary by displacing the
    /// longest idle client of the source with the most.
    pub(super) fn has_place(&mut self, base: &mut Base, volumes: &mut Volumes, source: Source) -> bool {
        let bounds = self.limits.bounds();
        if !self.admission.is_full(bounds) {
            return true;
        }
        let latest_ms = self.clock.now_ms().saturating_sub(ATTACHED_IDLE_MS);
        let own = self.admission.attached_of(source) + 1;
        for larger in self.admission.larger(bounds, own) {
            let idle = |conn: &&Conn| conn.source == larger && !conn.dead && conn.is_idle();
            let conns = self.conns.iter().filter(|(_, conn)| conn.volume.is_some() && idle(conn));
            let longest = conns.map(|(id, conn)| (conn.progress_ms, *id)).min();
            if let Some((_, id)) = longest.filter(|(since_ms, _)| *since_ms <= latest_ms) {
                self.displace(
                    base,
                    volumes,
                    id,
                    "all connections are in use, its source has the most, and it is idle",
                );
                return true;
            }
        }
        false
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
