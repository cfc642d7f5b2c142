//! What journal blocks and checkpoints carry of dirty data, and when they go to the device.
//!
//! Job: send off the parts of durable metadata that are due, and lead the end of each to those that waited for it.
//! Records of dirty data go with them: commits ride on journal blocks, and a checkpoint repeats those that are not
//! clean.
//!
//! What it does not do: hold journal, marks, maps or checkpoints (`device::meta` does).

use zc_core::ErrorKind;
use zc_format::{JournalBlock, Record};

use crate::clean::Clean;
use crate::device::Core;
use crate::device::meta::Op;
use crate::device::meta::flush_cache;
use crate::dirty::DirtyLayer;
use crate::dirty::versions::EpochState;
use crate::seam::Action;

impl DirtyLayer {
    /// Sends off what is due: journal block, region map, retirements, checkpoint.
    pub(crate) fn pump_persist(&mut self, core: &mut Core, clean: &mut Clean) {
        if !core.base.is_good() {
            return;
        }
        self.pump_proof(core);
        self.pump_journal(core);
        core.device.catalog.meta_mut().pump_map(&mut core.base);
        if clean.pump_retiring(core) {
            self.pump_journal(core);
        }
        self.pump_checkpoint(core);
    }

    fn pump_journal(&mut self, core: &mut Core) {
        if self.summary.is_none()
            && let Some((sequence, records, durable)) = core
                .device
                .catalog
                .meta_mut()
                .journal_mut()
                .take_block(core.base.now_ms(), core.base.cfg().journal_delay_ms, self.has_carried())
        {
            self.commits_in_block(sequence, core);
            let growing = self.begin_chain(core);
            core.base.stats.journal_bytes_written += u64::from(zc_core::limits::BLOCK_BYTES);
            let block = JournalBlock {
                sequence,
                session: core.base.session.number(),
                region_map_sequence: core.device.catalog.meta().durable_map(),
                proved: self.commits_proved(core),
                growing,
                records,
            };
            debug_assert!(
                block.proved <= core.device.catalog.meta().journal().durable_next(),
                "a block proves what may be lost"
            );
            let op = core.base.port.op(Op::JournalWrite);
            core.base.port.emit(Action::WriteJournal { op, block: Box::new(block), durable });
        }
        let asked = self.commits_want_flush();
        if core.device.catalog.meta_mut().journal_mut().take_flush(asked) {
            self.commits_flushing(core);
            flush_cache(Op::JournalFlush, &mut core.base);
        }
    }

    fn pump_checkpoint(&mut self, core: &mut Core) {
        if self.summary.is_none() && core.device.checkpoints.is_due(&core.device.catalog, &core.base) {
            self.end_chain();
            let (keep_from, records) = (self.commits_keep_from(core), self.dirty_records(core));
            core.device.checkpoints.begin(keep_from, records, &mut core.device.catalog);
        }
        core.device.checkpoints.pump(&mut core.device.catalog, &mut core.base);
    }

    /// The epochs that are complete and not clean.
    fn dirty_records(&self, core: &Core) -> Vec<Record> {
        let mut records = Vec::new();
        for (volume, dirty) in self.volumes.iter() {
            let volume = *volume;
            // What the journal calls clean already may lie before the part of it that is replayed.
            let clean =
                dirty.destaging.recorded().map_or(dirty.data.clean, |epoch| epoch.max(dirty.data.clean));
            records.push(Record::Clean { volume, epoch: clean });
            let committed = dirty
                .data
                .epochs
                .iter()
                .filter(|epoch| epoch.state == EpochState::Committed && epoch.number > clean);
            for epoch in committed.map(|epoch| epoch.number) {
                records.extend(self.epoch_records(volume, epoch, core));
                records.push(Record::Committed { volume, epoch });
            }
        }
        records
    }

    /// An operation of durable metadata ended.
    pub(crate) fn persist_done(
        &mut self,
        kind: Op,
        result: Result<(), ErrorKind>,
        core: &mut Core,
        clean: &mut Clean,
    ) {
        if let Err(error) = result {
            core.base.fail_device(kind.purpose(), error);
        }
        if !core.base.is_good() {
            return;
        }
        match kind {
            Op::JournalWrite => {
                core.device.catalog.meta_mut().journal_mut().block_written();
                self.let_chains_go(core);
                core.device.catalog.meta_mut().trim_intent(&mut core.base);
            }
            Op::JournalFlush => {
                core.device.catalog.meta_mut().journal_mut().flushed();
                self.let_chains_go(core);
                self.commits_flushed(core);
            }
            Op::MapWrite => flush_cache(Op::MapFlush, &mut core.base),
            Op::MapFlush => {
                core.device.catalog.meta_mut().map_durable();
                clean.start_marked_pieces(core);
            }
            other => {
                let needed =
                    core.device.checkpoints.step_done(other, &mut core.device.catalog, &mut core.base);
                let keeps = needed.is_none_or(|start| start <= self.commits_keep_from(core));
                debug_assert!(keeps, "records of a commit are let go");
            }
        }
    }
}
