//! Writes that wait for the marks of their regions: until there is room for them, then until they are durable.

use zc_core::{ErrorKind, VolumeId};

use crate::base::health::Health;
use crate::clean::Clean;
use crate::device::Core;
use crate::expect_held::ExpectHeld;

impl Clean {
    /// Goes on with retirements of marks. Whether one began, for which the journal has to become durable.
    pub(crate) fn pump_retiring(&mut self, core: &mut Core) -> bool {
        let is_room_wanted = !self.waiting.for_room.is_empty();
        let retired = core.device.catalog.meta_mut().pump_retiring(is_room_wanted, &mut core.base);
        if let Some(end) = retired.ended {
            if !end.failed.is_empty() {
                self.fail_waiting_writes(&end.failed, end.made_room, core);
            }
            self.admit_waiting(core);
        }
        retired.began
    }

    /// Origins do not flush: writes that need room for their marks fail rather than hang. Those of other volumes wait if
    /// some room was made.
    fn fail_waiting_writes(&mut self, failed: &[(VolumeId, ErrorKind)], others_wait: bool, core: &mut Core) {
        for id in core::mem::take(&mut self.waiting.for_room) {
            let volume = self.writes.get(&id).expect_held().volume;
            let own = failed.iter().find(|(failed, _)| *failed == volume);
            match own.or_else(|| failed.first().filter(|_| !others_wait)) {
                Some((_, error)) => self.end_write(id, Err(*error), core),
                None => self.waiting.for_room.push_back(id),
            }
        }
    }

    /// Marks regions for waiting writes as far as there is room.
    pub(crate) fn admit_waiting(&mut self, core: &mut Core) {
        while let Some(id) = self.waiting.for_room.front().copied() {
            if !self.mark_piece(id, core) {
                return;
            }
            self.waiting.for_room.pop_front();
        }
        core.device.catalog.meta_mut().pump_map(&mut core.base);
    }

    /// Starts the pieces whose marks are durable.
    pub(crate) fn start_marked_pieces(&mut self, core: &mut Core) {
        for id in core::mem::take(&mut self.waiting.for_mark) {
            if core.base.health() == Health::Failed || self.piece_is_marked(id, core) {
                self.start_piece(id, core);
            } else {
                self.waiting.for_mark.push(id);
            }
        }
    }

    /// No mark will become durable any more: the writes that wait for one fail.
    pub(crate) fn fail_unmarked_writes(&mut self, core: &mut Core) {
        for id in core::mem::take(&mut self.waiting.for_mark) {
            self.end_write(id, Err(ErrorKind::Io), core);
        }
    }

    /// The device failed: writes go on as far as they need no mark, or one that is durable.
    pub(crate) fn device_failed(&mut self, core: &mut Core) {
        self.admit_waiting(core);
        self.start_marked_pieces(core);
    }
}
