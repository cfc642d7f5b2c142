//! Misdirected writes, which land at another place.

use zc_core::ErrorKind;

use super::{Fault, Strike, Write};

#[derive(Debug)]
pub(super) struct Misdirected;

impl Fault for Misdirected {
    fn fork(&self) -> Box<dyn Fault> {
        Box::new(Self)
    }

    fn writes(&mut self, at: &mut Strike<'_, '_>, write: &Write<'_>) -> Option<Result<(), ErrorKind>> {
        if !at.cx.env.happens(at.cx.faults.misdirected) {
            return None;
        }
        at.cx.env.note(write.zone.misdirected());
        let to = at.other_place(write.data.len());
        at.cx.trouble.lie(write.zone.is_slots() && to as u64 >= at.geometry.slots_offset);
        at.disk.write(to, write.data, write.op.0);
        at.disk.taint(write.at, write.data.len());
        at.disk.taint(to, write.data.len());
        Some(Ok(()))
    }
}
