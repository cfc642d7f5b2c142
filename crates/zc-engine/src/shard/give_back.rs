//! Returns memory to the kernel after a burst of requests.
//!
//! Job: every [`GIVE_BACK_MS`] let the pool release memory unused since the last time. If much became free, there or
//! of replies and connections on the heap, let the heap return its free pages as well.
//!
//! Invariants: memory in constant use stays; a steady load causes no call of the allocator.
//!
//! It does not bound memory (`shares` does).

use zc_core::u64_from_usize;

use crate::limits::{GIVE_BACK_HEAP_BYTES, GIVE_BACK_MS, RECEIVE_BYTES};
use crate::shard::buffers::Buffers;

/// Heap memory held for clients.
#[derive(Debug, Default)]
pub(crate) struct GiveBack {
    last_ms: u64,
    /// The most since its free pages went back.
    most_bytes: u64,
}

impl GiveBack {
    /// Releases memory when due, given the connections and the bytes of replies.
    pub(crate) fn give(&mut self, buffers: &Buffers, conns: usize, unsent_bytes: u64, now_ms: u64) {
        let heap_bytes = unsent_bytes + u64_from_usize(conns * RECEIVE_BYTES);
        if self.look(now_ms, heap_bytes) && self.is_worth(heap_bytes, buffers.give_back()) {
            zc_io::give_heap_back();
        }
    }

    /// Records the heap memory held for clients; returns `true` when a release is due.
    fn look(&mut self, now_ms: u64, heap_bytes: u64) -> bool {
        self.most_bytes = self.most_bytes.max(heap_bytes);
        let is_due = now_ms.saturating_sub(self.last_ms) >= GIVE_BACK_MS;
        if is_due {
            self.last_ms = now_ms;
        }
        is_due
    }

    /// Returns `true` if scanning the heap's free pages is worthwhile, after the pool released this much.
    const fn is_worth(&mut self, heap_bytes: u64, released_bytes: u64) -> bool {
        let free_bytes = self.most_bytes.saturating_sub(heap_bytes) + released_bytes;
        let is_worth = free_bytes >= GIVE_BACK_HEAP_BYTES;
        if is_worth {
            self.most_bytes = heap_bytes;
        }
        is_worth
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIB: u64 = 1 << 20;

    #[test]
    fn the_heap_gives_back_after_a_flood_and_not_under_a_steady_load() {
        let mut give_back = GiveBack::default();
        let mut trims = |from_ms: u64, heap_bytes: u64| {
            let at = (from_ms..from_ms + 10 * GIVE_BACK_MS).step_by(50);
            at.filter(|now_ms| give_back.look(*now_ms, heap_bytes) && give_back.is_worth(heap_bytes, 0))
                .count()
        };
        assert_eq!(trims(0, 100 * MIB), 0, "in use");
        assert_eq!(trims(100_000, 99 * MIB), 0, "a little less");
        assert_eq!(trims(200_000, MIB), 1, "once");
        assert!(GiveBack::default().is_worth(0, GIVE_BACK_HEAP_BYTES), "what the pool gave back");
    }
}
