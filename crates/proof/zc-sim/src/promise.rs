//! Promises of the cache device, and a check that the medium reveals broken ones.
//!
//! The region map is the only structure whose loss can go undetected: each update is stored once, in one of two
//! copies, and only later journal blocks and checkpoints mention it. This judge reads the medium with the codecs
//! alone, apart from `zc_cache::startup`, so that it does not excuse damage that a restart could have detected.

use std::collections::BTreeMap;

use zc_core::{JournalSeq, OpId};
use zc_format::{BLOCK, CheckpointHeader, Geometry, JournalBlock, RegionMap};

/// Newest region map that the device acknowledged before a flush that it acknowledged.
#[derive(Debug, Default, Clone)]
pub(crate) struct Promise {
    writes: BTreeMap<OpId, u64>,
    ended: u64,
    flushes: BTreeMap<OpId, u64>,
    kept: u64,
}

impl Promise {
    pub(crate) fn map_written(&mut self, op: OpId, sequence: u64) {
        self.writes.insert(op, sequence);
    }

    pub(crate) fn flush_issued(&mut self, op: OpId) {
        self.flushes.insert(op, self.ended);
    }

    /// Records an operation's completion as reported to the manager.
    pub(crate) fn ended(&mut self, op: OpId, well: bool) {
        let (written, flushed) = (self.writes.remove(&op), self.flushes.remove(&op));
        if well {
            self.ended = self.ended.max(written.unwrap_or(0));
            self.kept = self.kept.max(flushed.unwrap_or(0));
        }
    }

    pub(crate) fn session_over(&mut self) {
        self.writes.clear();
        self.flushes.clear();
        self.ended = 0;
    }

    /// Forgets all promises when the medium is replaced.
    pub(crate) fn forget(&mut self) {
        *self = Self::default();
    }

    /// Returns `true` if the promised map is missing and the medium does not reveal it: the present map is intact,
    /// and nothing that a restart reads mentions a newer one.
    pub(crate) fn is_broken_unseen(&self, media: &[u8], geometry: &Geometry) -> bool {
        let copies = [0, 1].map(|copy| {
            let at = geometry.region_map[copy] as usize;
            RegionMap::decode(&media[at..], copy, geometry.salt)
        });
        let [Ok(left), Ok(right)] = copies else { return false };
        let found = left.sequence.max(right.sequence);
        found < self.kept && mentioned(media, geometry) <= found
    }
}

/// Returns the newest region map that the newest checkpoint and the journal after it mention.
fn mentioned(media: &[u8], geometry: &Geometry) -> u64 {
    let header = |area: usize| {
        let at = geometry.checkpoint[area] as usize;
        CheckpointHeader::decode(&media[at..], area, geometry.checkpoint_blocks, geometry.salt).ok()
    };
    let Some(newest) = [header(0), header(1)].into_iter().flatten().max_by_key(|h| h.sequence) else {
        return 0;
    };
    let mut mentioned = newest.region_map_sequence;
    for sequence in (newest.journal_start.0..).take(geometry.journal_blocks as usize).map(JournalSeq) {
        let at = crate::disk::address(geometry, geometry.journal_block_offset(sequence));
        let Ok(block) = JournalBlock::decode(&media[at..at + BLOCK], sequence, geometry.salt) else { break };
        mentioned = mentioned.max(block.region_map_sequence);
    }
    mentioned
}
