//! Lost writes: the device acknowledges and discards them.

use zc_core::ErrorKind;

use super::{Fault, Strike, Write};

#[derive(Debug)]
pub(super) struct Lost;

impl Fault for Lost {
    fn fork(&self) -> Box<dyn Fault> {
        Box::new(Self)
    }

    fn writes(&mut self, at: &mut Strike<'_, '_>, write: &Write<'_>) -> Option<Result<(), ErrorKind>> {
        if !at.cx.env.happens(at.cx.faults.lost) {
            return None;
        }
        at.cx.env.note(write.zone.lost());
        at.cx.trouble.lie(write.zone.is_slots());
        at.disk.taint(write.at, write.data.len());
        Some(Ok(()))
    }
}
