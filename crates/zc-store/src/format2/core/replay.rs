//! Replay: the batches that recovery found, applied as the changes were that made them.
//!
//! Invariant: an application that lacks a node is repeated from the same record, so each takes effect in order; all of
//! it is in memory until the checkpoint that ends the opening.

use std::collections::VecDeque;

use super::Open;
use crate::format2::batch::{BatchHeader, Record};
use crate::format2::catalog::{CatalogChange, OrderMark};
use crate::format2::index::{Blocked, Index};
use crate::format2::log::blocks_at;
use crate::format2::recovery::FoundBatch;
use crate::format2::{BLOCK_BYTES, UNIT_BYTES};

/// Batches to be applied.
#[derive(Debug)]
pub(super) struct Replay {
    uuid: [u8; 16],
    batches: VecDeque<FoundBatch>,
    /// Records of the first batch that are still to be applied.
    records: VecDeque<Record>,
    is_begun: bool,
}

impl Replay {
    pub(super) fn new(uuid: [u8; 16], batches: Vec<FoundBatch>) -> Self {
        Self { uuid, batches: batches.into(), records: VecDeque::new(), is_begun: false }
    }

    /// Decodes the next batch. Returns its header, and its blocks of directory.
    fn next(&mut self) -> Option<(BatchHeader, u32)> {
        let batch = self.batches.pop_front()?;
        let blocks = u32::try_from(batch.head().len()).unwrap_or(u32::MAX) / BLOCK_BYTES;
        let (header, records) = BatchHeader::decode(&self.uuid, batch.head()).ok()?;
        self.records = records.into();
        Some((header, blocks))
    }
}

impl Open {
    /// Applies what is left; a checkpoint follows, and ends the opening.
    pub(super) fn pump_replay(&mut self) {
        if self.is_opened || self.checkpoint.is_some() {
            return;
        }
        loop {
            while let Some(record) = self.replay.records.front().cloned() {
                if let Err(blocked) = self.replay_record(&record) {
                    self.blocked(blocked);
                    return;
                }
                self.replay.records.pop_front();
            }
            let Some((header, blocks)) = self.replay.next() else { break };
            self.learn(&header, blocks);
        }
        if !core::mem::replace(&mut self.replay.is_begun, true) {
            self.begin_checkpoint();
        }
    }

    /// Notes the blocks of a batch in the index of fingerprints.
    fn learn(&mut self, header: &BatchHeader, blocks: u32) {
        let mut offset_units = header.offset_units + blocks * (BLOCK_BYTES / UNIT_BYTES);
        let mut ordinal = header.first_ordinal;
        for record in &self.replay.records {
            match record {
                Record::Node(node) => offset_units += node.bytes.div_ceil(UNIT_BYTES),
                Record::Frame(frame) => {
                    for (print, stored) in blocks_at(frame, header.segment, ordinal, offset_units) {
                        self.prints.insert(print, stored);
                    }
                    offset_units += frame.units();
                    ordinal = ordinal.wrapping_add(u16::try_from(frame.prints.len()).unwrap_or(u16::MAX));
                }
                _ => {}
            }
        }
    }

    fn replay_record(&mut self, record: &Record) -> Result<(), Blocked> {
        match record {
            Record::Map(root, leaf, delta) => self.index.apply_map(*root, *leaf, delta),
            Record::Clear(root, first, count) => self.index.clear(*root, *first, *count)?,
            Record::Mark(cache, root, run) => {
                self.index.apply_mark(*root, OrderMark { cache: *cache, run: *run });
            }
            Record::Catalog(bytes) => {
                let Ok(change) = CatalogChange::decode(bytes) else { return Ok(()) };
                if self.index.check_catalog(&change).is_ok() {
                    self.apply_catalog(&change)?;
                }
            }
            Record::Frame(_) | Record::Node(_) => {}
        }
        Ok(())
    }

    /// Applies a change of the catalog; the changes of its source become nodes of the log first.
    pub(super) fn apply_catalog(&mut self, change: &CatalogChange) -> Result<(), Blocked> {
        if let Some(source) = Index::folds_first(change) {
            self.index.prepare_fold(Some(source))?;
            let nodes = self.index.fold(Some(source))?;
            self.write_nodes(&nodes)?;
        }
        self.index.apply_catalog(change);
        Ok(())
    }
}
