//! Routes completions and component effects to their owners.

use zc_core::ErrorKind;

use crate::base::effects::Effect;
use crate::base::port::Ended;
use crate::device::Device;
use crate::device::contents::header_reads::HeaderWaiter;
use crate::dirty::destage::Destager;
use crate::manager::CacheManager;
use crate::ops::reduce::Owner;
use crate::ops::{OpKind, meta, origin, reduce, unit, write};

impl CacheManager {
    /// An operation ended; nothing of it is in flight any more.
    pub(super) fn op_ended(&mut self, kind: OpKind, ended: Ended) {
        let Self { core, clean, dirty, .. } = self;
        match (kind, ended) {
            (OpKind::Read(op), ended) => clean.read_op_ended(op, ended, core),
            (OpKind::Reduce(op), ended) => self.step_ended(op, ended),
            (OpKind::Dirty(op), ended) => dirty.dirty_op_ended(op, ended, core, clean),
            (OpKind::Write(op), ended) => self.write_op_ended(op, ended),
            (OpKind::Weu(op), ended) => self.unit_op_ended(op, ended),
            (OpKind::Load(op), ended) => {
                core.device.recovery.op_ended(op, ended, &mut core.device.catalog, &mut core.base);
            }
            (OpKind::Origin(origin::Op::Flush(volume)), Ended::Origin(result)) => {
                dirty.origin_flushed(volume, result, core, clean);
            }
            (OpKind::Persist(meta::Op::Image), Ended::Device(result)) => {
                core.device.image.part_written(result);
            }
            (OpKind::Persist(op), Ended::Device(result)) => {
                dirty.persist_done(op, result, core, clean);
                if op == meta::Op::StopFlush {
                    self.stop.flushed();
                }
            }
            (OpKind::Distrust(volume), Ended::Device(result)) => {
                self.distrusts.distrust_done(volume, result, core, clean);
            }
            (kind, ended) => panic!("{kind:?} ended as {ended:?}"),
        }
    }

    fn step_ended(&mut self, op: reduce::Op, ended: Ended) {
        let Self { core, clean, dirty, .. } = self;
        match op.owner {
            Owner::Clean => clean.insert_step_ended(op.job, op.step, ended, core),
            Owner::Dirty => dirty.dirty_step_ended(op.job, op.step, ended, core),
        }
    }

    fn write_op_ended(&mut self, op: write::Op, ended: Ended) {
        let Self { core, clean, dirty, .. } = self;
        match (op, ended) {
            (write::Op::Piece(write), Ended::Origin(result)) => {
                for key in clean.piece_written(write, result, core) {
                    Destager::promote(key, dirty.volumes(), core, clean);
                }
                clean.end_piece(write, result, core);
            }
            (write::Op::Merge { key, slot, into }, Ended::Extents(result)) => {
                clean.merge_done(key, slot, into, result, core);
            }
            (op, ended) => panic!("{op:?} ended as {ended:?}"),
        }
    }

    fn unit_op_ended(&mut self, op: unit::Op, ended: Ended) {
        let Self { core, clean, dirty, .. } = self;
        match (op, ended) {
            (unit::Op::HeaderEvict(slot), Ended::Header(result)) => {
                let erase = core.device.erasure.takes(slot);
                core.device.catalog.evict_with_header(slot, result, erase, &mut core.base);
            }
            (unit::Op::HeaderPrints(slot), Ended::Header(result)) => {
                for waiter in core.device.catalog.header_read(slot, &result, &mut core.base) {
                    match waiter {
                        HeaderWaiter::Reduction(Owner::Clean, job) => clean.insert_headers_read(job, core),
                        HeaderWaiter::Reduction(Owner::Dirty, job) => dirty.dirty_headers_read(job, core),
                        HeaderWaiter::Miss(id) => dirty.headers_arrived(id, core, clean),
                        HeaderWaiter::Erasure(slot) => {
                            let Device { catalog, erasure, .. } = &mut core.device;
                            erasure.header_read(slot, &result, catalog.table(), &core.base);
                        }
                    }
                }
            }
            (unit::Op::Write(slot), Ended::Device(result)) if core.device.units.dirty().is_sealed(slot) => {
                core.device.units.dirty_mut().unit_written(
                    slot,
                    result,
                    &mut core.device.catalog,
                    &mut core.base,
                );
            }
            (unit::Op::Write(slot), Ended::Device(result)) => {
                core.device.units.clean_mut().weu_written(
                    slot,
                    result,
                    &mut core.device.catalog,
                    &mut core.base,
                );
            }
            // It may be reused, even if the device refused the discard.
            (unit::Op::Discard(slot), Ended::Device(result)) => {
                core.device.catalog.table_mut().release(slot);
                core.device.erasure.ended(slot, result, core.base.now_ms());
            }
            (unit::Op::Erase(slot), Ended::Device(result)) => {
                let Device { catalog, erasure, .. } = &mut core.device;
                erasure.free_slot_erased(slot, result, catalog.table_mut(), &core.base);
            }
            (op, ended) => panic!("{op:?} ended as {ended:?}"),
        }
    }

    /// Routes effects to the components that have to act on them.
    pub(super) fn handle_effects(&mut self) {
        while let Some(effect) = self.core.base.take_effect() {
            let Self { core, clean, dirty, removals, .. } = self;
            match effect {
                Effect::DeviceFailed(error) => self.device_failed(error),
                // Data that only the cache has was written over another content than the origin's.
                Effect::OriginDiffers(volume) if dirty.volumes().has_dirty(volume) => {
                    dirty.volumes_mut().fence_incomplete(volume, core);
                }
                Effect::OriginDiffers(_) => {}
                Effect::DirtyReadFailed(key) => dirty.scrub_mut().suspect(key),
                Effect::OriginLost(volume) => Destager::spoil_run(volume, dirty.volumes_mut()),
                Effect::DestageWriteEnded(volume, result) => {
                    Destager::write_done(volume, result, dirty.volumes_mut(), core);
                }
                Effect::RemovalFlushed(volume, result) => {
                    removals.removal_flushed(volume, result, core, clean);
                }
            }
        }
    }

    /// Handles a cache out of service (see `failure`) in each component.
    fn device_failed(&mut self, error: ErrorKind) {
        let Self { core, clean, dirty, distrusts, .. } = self;
        core.device.device_failed(&mut core.base);
        dirty.device_failed(error, core);
        distrusts.device_failed(core.base.now_ms());
        core.base.distrust(None);
        clean.device_failed(core);
    }
}
