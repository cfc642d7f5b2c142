//! Old writes that are executed a second time.

use zc_core::ErrorKind;

use super::{Fault, Strike, Write};
use crate::zone::Zone;

/// Maximum number of old writes kept for replay.
const REPLAYS_MAX: usize = 8;

#[derive(Debug, Default)]
pub(super) struct Replayed {
    /// Zone, first byte and contents of each write.
    writes: Vec<(Zone, usize, Vec<u8>)>,
}

impl Fault for Replayed {
    fn fork(&self) -> Box<dyn Fault> {
        Box::new(Self::default())
    }

    fn device_replaced(&mut self) {
        self.writes.clear();
    }

    /// Keeps some of the writes for replay.
    fn writes(&mut self, at: &mut Strike<'_, '_>, write: &Write<'_>) -> Option<Result<(), ErrorKind>> {
        if at.cx.faults.replayed && at.cx.env.random_bool(0.1) {
            if self.writes.len() >= REPLAYS_MAX {
                let index = at.cx.env.random_range(0..self.writes.len());
                self.writes.swap_remove(index);
            }
            self.writes.push((write.zone, write.at, write.data.to_vec()));
        }
        None
    }

    fn decays(&mut self, at: &mut Strike<'_, '_>, drawn: u32) -> bool {
        if !at.cx.faults.replayed || !(8..11).contains(&drawn) {
            return false;
        }
        if !self.writes.is_empty() {
            let index = at.cx.env.random_range(0..self.writes.len());
            let (zone, to, data) = self.writes.swap_remove(index);
            at.disk.damage(to, &data);
            at.cx.trouble.lie(zone.is_slots());
            at.cx.env.note(zone.replayed());
        }
        true
    }
}
