//! Checkpoints: the state of one moment as nodes, and superblocks that name it.
//!
//! Invariants: all nodes of a checkpoint are encoded in one step between two changes, so they are the state after
//! exactly the batches before its place in the log; a superblock is written when all of them are durable, and the
//! second copy when the first one is.

use std::collections::BTreeMap;

use super::Open;
use crate::format2::index::{Blocked, NewNode};
use crate::format2::recovery::RESERVED_SEGMENTS;
use crate::format2::seam::{Action, StoreError};
use crate::format2::segments::SegmentLeaf;
use crate::format2::superblock::Superblock;
use zc_core::OpId;

/// Checkpoint in progress.
#[derive(Debug)]
pub(super) enum Checkpoint {
    /// Nodes are being read; changes wait.
    Preparing,
    /// The batches with its nodes are being made durable; the number of the last one.
    Nodes(u64, Box<Superblock>),
    /// A copy of the superblock is being written.
    Copy(u8, OpId, Box<Superblock>),
    /// A copy is being made durable: its number, and the flush.
    Durable(u8, OpId, Box<Superblock>),
}

impl Open {
    pub(super) fn begin_checkpoint(&mut self) {
        if self.checkpoint.is_none() && self.failed.is_none() {
            self.checkpoint = Some(Checkpoint::Preparing);
        }
    }

    /// Returns `true` if changes have to wait for the checkpoint.
    pub(super) const fn is_preparing(&self) -> bool {
        matches!(self.checkpoint, Some(Checkpoint::Preparing))
    }

    /// Begins a checkpoint if one is due.
    pub(super) fn pump_checkpoint(&mut self) {
        let used = self.superblock.segments_end.saturating_sub(self.log.place().segment);
        let is_due = self.index.changed_blocks() >= self.config.changes_max
            || self.log.since_checkpoint_bytes() >= self.config.checkpoint_log_bytes
            || used < RESERVED_SEGMENTS / 2;
        if self.checkpoint.is_none() && self.is_opened && is_due {
            self.begin_checkpoint();
        }
        match &self.checkpoint {
            Some(Checkpoint::Preparing) => self.prepare_checkpoint(),
            Some(Checkpoint::Nodes(last, _)) if *last <= self.flushes.durable() => {
                let Some(Checkpoint::Nodes(_, superblock)) = self.checkpoint.take() else { return };
                self.write_superblock(0, superblock);
            }
            _ => {}
        }
    }

    fn prepare_checkpoint(&mut self) {
        self.close_batch();
        let at = self.log.place();
        self.slots.seal(at.segment, at.ordinal, at.offset_units);
        let leaves = self.slots.leaves();
        if let Err(blocked) = self.index.prepare(&leaves) {
            self.blocked(blocked);
            return;
        }
        self.log.begin_checkpoint();
        self.slots.checkpointed();
        if let Err(blocked) = self.write_checkpoint(&leaves) {
            // All nodes were prepared, so one of them is corrupt.
            self.blocked(blocked);
            return;
        }
        let (nodes_end, pages, segments, catalog) = self.index.tops();
        let superblock = &mut self.superblock;
        superblock.sequence += 1;
        superblock.log = at;
        superblock.segments_end = at.segment + RESERVED_SEGMENTS;
        superblock.nodes_end = nodes_end;
        (superblock.pages, superblock.segments, superblock.catalog) = (pages, segments, catalog);
        let last = self.log.last_closed();
        self.checkpoint = Some(Checkpoint::Nodes(last, Box::new(superblock.clone())));
        self.flushes.want(last, None);
    }

    /// Writes all nodes, each level after the one below.
    fn write_checkpoint(&mut self, leaves: &BTreeMap<u64, SegmentLeaf>) -> Result<(), Blocked> {
        let nodes = self.index.fold(None)?;
        self.write_nodes(&nodes)?;
        let nodes = self.index.tables(leaves)?;
        self.write_nodes(&nodes)?;
        let nodes = self.index.inner_nodes();
        self.write_nodes(&nodes)?;
        for level in 0..self.index.page_levels() {
            let nodes = self.index.page_nodes(level);
            self.write_nodes(&nodes)?;
        }
        self.index.top_written();
        Ok(())
    }

    /// Writes nodes into the log. The open batch is closed first.
    pub(super) fn write_nodes(&mut self, nodes: &[NewNode]) -> Result<(), Blocked> {
        self.close_batch();
        let (durable, op) = (self.flushes.durable(), &mut self.next_op);
        match self.log.write_nodes(nodes, &mut self.slots, durable, op, &mut self.out) {
            Ok(places) => {
                let mut placed = nodes.iter().zip(places);
                placed.try_for_each(|(node, (spot, seq))| self.index.placed(node, spot, seq))
            }
            Err(full) => {
                self.fail(StoreError::from(full));
                Ok(())
            }
        }
    }

    fn write_superblock(&mut self, copy: u8, superblock: Box<Superblock>) {
        self.next_op += 1;
        let op = OpId(self.next_op);
        let block = superblock.encode(copy);
        self.out.push(Action::WriteSuperblock { op, offset_bytes: Superblock::offset_bytes(copy), block });
        self.checkpoint = Some(Checkpoint::Copy(copy, op, superblock));
    }

    /// A write or flush of a superblock was completed.
    pub(super) fn superblock_written(&mut self, op: OpId) {
        match self.checkpoint.take() {
            Some(Checkpoint::Copy(copy, own, superblock)) if own == op => {
                self.next_op += 1;
                let flush = OpId(self.next_op);
                self.out.push(Action::Flush { op: flush });
                self.checkpoint = Some(Checkpoint::Durable(copy, flush, superblock));
            }
            Some(Checkpoint::Durable(0, own, superblock)) if own == op => {
                self.write_superblock(1, superblock);
            }
            Some(Checkpoint::Durable(_, own, superblock)) if own == op => {
                self.log.checkpointed(superblock.log.seq);
                self.end_checkpoint();
            }
            other => self.checkpoint = other,
        }
    }

    fn end_checkpoint(&mut self) {
        self.dropped_durable();
        if !self.is_opened {
            self.is_opened = true;
            self.out.push(Action::Opened { result: Ok(self.index.marks()) });
        }
    }
}
