//! Shared resources of the shard's components: submission queues, events for the manager, buffers, the clock,
//! counters.
//!
//! Job: hold the state that belongs to no single component. Components receive it with each call, and use it for all
//! external effects. Its fields are public for that reason.
//!
//! It makes no decisions.

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
    /// Events for the manager, in order.
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
    /// Creates the state without operations in progress.
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

    /// Submits an operation to the ring of this turn, or queues it until there is space.
    pub(crate) fn submit(&mut self, operation: Operation, pending: Pending) {
        self.io.submit(operation, pending);
    }

    /// Queues an event for the manager.
    pub(crate) fn tell(&mut self, event: Event) {
        self.events.push_back(event);
    }

    /// Returns a unique number for a connection, a request or a read.
    pub(crate) const fn next_number(&mut self) -> u64 {
        self.last_number += 1;
        self.last_number
    }
}
