//! What every component of the shard may use: what the rings get, the events for the manager, buffers, the clock,
//! counters.
//!
//! Job: hold what belongs to no component alone. Components get it with each call, and reach the outside through it. Its
//! fields are open for that reason.
//!
//! It does not decide anything.

use std::collections::VecDeque;

use zc_cache::seam::Event;
use zc_io::{BufPool, Operation};

use crate::clock::Clock;
use crate::limits::POOL_BYTES;
use crate::shard::buffers::Buffers;
use crate::shard::io::Io;
use crate::shard::metrics::Metrics;
use crate::shard::pending::Pending;
use crate::shard::stop::Stopping;

/// See the module documentation.
#[derive(Debug)]
pub(crate) struct Base {
    pub(crate) io: Io,
    /// What the manager has to be told, in order.
    pub(crate) events: VecDeque<Event>,
    pub(crate) buffers: Buffers,
    pub(crate) clock: Clock,
    pub(crate) metrics: Metrics,
    pub(crate) stopping: Stopping,
    /// Memory of client requests in flight, and of payloads that arrive.
    pub(crate) payload_bytes: u64,
    last_number: u64,
}

impl Base {
    /// Nothing is under way yet.
    pub(crate) fn new(io: Io, clock: Clock) -> Self {
        Self {
            io,
            events: VecDeque::new(),
            buffers: Buffers::new(BufPool::new(POOL_BYTES)),
            clock,
            metrics: Metrics::default(),
            stopping: Stopping::Running,
            payload_bytes: 0,
            last_number: 0,
        }
    }

    /// Hands an operation to the ring of this turn, or keeps it until there is room.
    pub(crate) fn submit(&mut self, operation: Operation, pending: Pending) {
        self.io.submit(operation, pending);
    }

    /// Tells the manager of an event, after those before it.
    pub(crate) fn tell(&mut self, event: Event) {
        self.events.push_back(event);
    }

    /// A number that nothing else has: of connections, of requests of clients and to the manager, of reads.
    pub(crate) const fn next_number(&mut self) -> u64 {
        self.last_number += 1;
        self.last_number
    }
}
