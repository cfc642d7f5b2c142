//! Cache device operations that take too long.
//!
//! Job: report the end of an operation that the manager abandons, and take what the device says of it later.
//!
//! Invariants: an operation ends once for the manager. Its memory belongs to the ring until the device has answered: what
//! a late read brings reaches no buffer of the manager. An operation that waits for a place in the ring is never
//! handed to the device.
//!
//! What it does not do: decide what takes too long; the manager does.

use zc_cache::seam::Event;
use zc_core::{ErrorKind, OpId};
use zc_io::Operation;

use crate::shard::Shard;
use crate::shard::pending::Abandoned;

impl Shard {
    /// Ends an operation that the device still has. One that it has answered ends as it would have: see
    /// `Action::Abandon`.
    pub(crate) fn abandon(&mut self, op: OpId) {
        let join = self.joins.of(op);
        let Some((what, tokens)) = self.tokens.abandon(op, join) else { return };
        if let Some(join) = join {
            self.joins.forget(join);
        }
        self.take_back(&tokens);
        self.metrics.abandoned += 1;
        if self.metrics.abandoned.is_power_of_two() {
            let count = self.metrics.abandoned;
            let path = self.device.file.path().display();
            tracing::warn!(count, "cache device {path} does not answer in time; its operation is abandoned");
        }
        let late = ErrorKind::TimedOut;
        self.events.push_back(match what {
            Abandoned::Change => Event::DeviceDone { op, result: Err(late) },
            Abandoned::Extents => Event::ExtentsRead { op, result: Err(late) },
            Abandoned::Header => Event::HeaderRead { op, result: Err(late) },
        });
    }

    /// Removes operations that the ring had no place for yet.
    fn take_back(&mut self, abandoned: &[u64]) {
        let tokens = &mut self.tokens;
        self.backlog.retain(|(_, token)| {
            let is_kept = !abandoned.contains(token);
            if !is_kept {
                drop(tokens.take(*token));
            }
            is_kept
        });
    }

    /// The device answers after all. Only its memory is freed by that.
    pub(crate) fn late_answer(&mut self, result: &std::io::Result<usize>, operation: Operation) {
        drop(operation);
        tracing::debug!(ok = result.is_ok(), "the cache device answered an abandoned operation");
    }
}
