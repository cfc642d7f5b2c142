//! Bit rot in slots, and slots rolled back as a whole: every read is verified.

use zc_core::ErrorKind;

use super::{Fault, Strike, Write};

/// Maximum number of slots kept for rollback.
const SNAPSHOTS_MAX: usize = 4;

#[derive(Debug, Default)]
pub(super) struct Rot {
    /// Former slot contents, with the first byte of each slot.
    snapshots: Vec<(usize, Vec<u8>)>,
}

impl Fault for Rot {
    fn fork(&self) -> Box<dyn Fault> {
        Box::new(Self::default())
    }

    fn device_replaced(&mut self) {
        self.snapshots.clear();
    }

    /// Keeps the contents of the first written slots from before the write.
    fn writes(&mut self, at: &mut Strike<'_, '_>, write: &Write<'_>) -> Option<Result<(), ErrorKind>> {
        if write.zone.is_slots() && self.snapshots.len() < SNAPSHOTS_MAX {
            let (slots, unit) = (at.slots(), at.geometry.weu_bytes as usize);
            let slot_at = slots.start + (write.at - slots.start) / unit * unit;
            self.snapshots.push((slot_at, at.disk.seen[slot_at..slot_at + unit].to_vec()));
        }
        None
    }

    fn decays(&mut self, at: &mut Strike<'_, '_>, drawn: u32) -> bool {
        if !at.cx.faults.rot || !(0..6).contains(&drawn) {
            return false;
        }
        at.cx.trouble.lie(true);
        if at.cx.env.random_bool(0.8) || self.snapshots.is_empty() {
            let byte = at.slots().start + at.cx.env.random_range(0..at.slots().len());
            at.flip(byte);
            at.cx.env.note("bits rotted");
        } else {
            let index = at.cx.env.random_range(0..self.snapshots.len());
            let (slot_at, old) = self.snapshots.swap_remove(index);
            at.disk.damage(slot_at, &old);
            at.cx.env.note("slots rolled back");
        }
        true
    }
}
