//! What the data plane knows of NBD: exports, listeners, connections, and the queues that connections stand in.
//!
//! Job: hold it. Invariant: a connection's number is in `conns`, or whoever finds it in a queue passes it over.
//! What it does not do: anything with it; that is in `net` (sockets), `conn` (one connection) and `access` (who may).

use std::collections::BTreeSet;

use zc_config::AddressRange;
use zc_core::{Map, Set};
use zc_io::Waker;

use crate::audit::Refusals;
use crate::front::access::Export;
use crate::front::admission::Admission;
use crate::front::listen::Listener;
use crate::front::shares::Shares;
use crate::front::tls::Tls;
use crate::front::tls_pool::TlsPool;
use crate::shard::clients::conn::Conn;

/// The NBD front end's state: who may come, who is there, and what each waits for.
#[derive(Debug)]
pub(crate) struct NbdFront {
    pub(crate) exports: Vec<Export>,
    pub(crate) listeners: Vec<Listener>,
    /// TCP clients from here only.
    pub(crate) allow: Vec<AddressRange>,
    pub(crate) tls: Tls,
    pub(crate) handshakes: TlsPool,
    /// The connection that was there at the start; the shard stops when it ends.
    pub(crate) only: Option<u64>,
    pub(crate) conns: Map<u64, Conn>,
    /// Connections that something happened to in this turn.
    pub(crate) touched: Vec<u64>,
    /// Connections to send to, or to close, at the end of the turn.
    pub(crate) to_send: Vec<u64>,
    /// Sends of this turn that are small enough to end at once.
    pub(crate) quick_sends: usize,
    /// Refused clients, for the audit log.
    pub(crate) refusals: Refusals,
    /// Connections that are not dead, by source.
    pub(crate) admission: Admission,
    /// Connections that were given up and whose requests that have not begun are still there.
    pub(crate) given_up: Set<u64>,
    /// Requests of such connections whose next piece has not begun.
    pub(crate) given_up_pieces: Vec<u64>,
    /// Listeners that failed to accept and are tried again later.
    pub(crate) accept_later: Vec<usize>,
    pub(crate) last_look_ms: u64,
    /// What each may hold, and whose turn it is.
    pub(crate) shares: Shares,
    /// Connections whose request waits for its share, by virtual time; some may be gone.
    pub(crate) waiting: BTreeSet<(u64, u64)>,
    /// Bytes of replies that clients have not taken.
    pub(crate) unsent_bytes: u64,
}

impl NbdFront {
    /// Nobody is there yet; who may come is told later (see `front/reloadable`).
    pub(crate) fn new(exports: Vec<Export>, listeners: Vec<Listener>, waker: Waker) -> Self {
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
        }
    }
}
