//! Reads of extents with dirty sectors: those from the dirty layer, what lies between from the clean layer or the
//! origin.
//!
//! Invariant: a dirty sector is never read from anywhere else. If its bytes do not verify, the client gets an error.

use core::ops::Range;

use zc_core::{BufId, BufSlice, ErrorKind, ExtentKey, Generation, SECTOR_BYTES};
use zc_format::ExpectedExtent;

use crate::base::Base;
use crate::clean::Clean;
use crate::config::OnLoss;
use crate::device::Core;
use crate::device::Device;
use crate::expect_held::ExpectHeld;
use crate::index::file_index::{Mapping, Place};
use crate::read::hit::HitPart;
use crate::read::{Found, Portion, Waiter, Wanted, portions, sector_range};
use crate::seam::{Action, Request};
use crate::write_back::WriteBack;
use crate::write_back::dirty::{Body, Visible};

impl Device {
    /// What the pages of a dirty body must hold. Nothing verifies in a slot that has had another unit since: that
    /// happens where a device told of dirty data that it has no more.
    pub(crate) fn expected_dirty(
        &self,
        place: &Place,
        key: Option<ExtentKey>,
        stored: &Range<u32>,
        base: &Base,
    ) -> ExpectedExtent {
        let slot = self.units.slots.get(place.slot);
        let is_same = self.units.slots.short(slot.generation) == place.generation;
        ExpectedExtent {
            salt: base.cfg.geometry.salt,
            slot: place.slot,
            generation: if is_same { slot.generation } else { Generation(0) },
            weu_seq: slot.weu_seq,
            offset_bytes: u32::from(place.offset_units) * zc_core::limits::PLACE_ALIGN_BYTES,
            raw_bytes: (stored.end - stored.start) * SECTOR_BYTES,
            first_sector: u8::try_from(stored.start).unwrap_or(u8::MAX),
            key,
            print: None,
        }
    }
}

impl Clean {
    /// A portion with dirty sectors: those from the dirty layer, the others one run after the other.
    pub(crate) fn read_overlaid(
        &mut self,
        read: u64,
        portion: &Portion,
        visible: &[Visible],
        stored: &mut Vec<Wanted>,
        core: &mut Core,
    ) {
        let sectors = sector_range(portion.skip_bytes, portion.len_bytes);
        let mut next = sectors.start;
        for run in visible {
            self.read_beneath(read, &part_of(portion, next..run.first), stored, core);
            next = run.first + run.count;
            let part = part_of(portion, run.first..next);
            let skip_bytes = (run.first - run.stored_first) * SECTOR_BYTES;
            match run.body {
                Body::Zero { .. } => {
                    core.base.stats.extent_hits_zero += 1;
                    core.base.port.emit(Action::Zero { dest: part.dest });
                }
                Body::Memory { src, .. } => {
                    core.base.stats.extent_hits_memory += 1;
                    core.base
                        .port
                        .emit(Action::Copy { from: src.part(skip_bytes, part.len_bytes), to: part.dest });
                }
                Body::Stored { place, own } => {
                    let mapping = if own { Mapping::Base(place) } else { Mapping::Duplicate(place) };
                    let dirty = Some(run.stored_first..run.stored_first + run.stored_count);
                    stored.push(Wanted { place, mapping, portion: part, dirty });
                }
            }
        }
        self.read_beneath(read, &part_of(portion, next..sectors.end), stored, core);
    }

    /// The sectors of an extent between dirty ones: from the clean layer.
    fn read_beneath(&mut self, read: u64, portion: &Portion, stored: &mut Vec<Wanted>, core: &mut Core) {
        if portion.len_bytes == 0 {
            return;
        }
        match self.find(portion, core) {
            Found::Copy(from) => {
                core.base.stats.extent_hits_memory += 1;
                core.base.port.emit(Action::Copy { from, to: portion.dest });
            }
            Found::Zero => {
                core.base.stats.extent_hits_zero += 1;
                core.base.port.emit(Action::Zero { dest: portion.dest });
            }
            Found::Stored(mapping, place) => {
                stored.push(Wanted { place, mapping, portion: *portion, dirty: None });
            }
            Found::Filling(fill) => {
                core.base.stats.extent_joins += 1;
                let op = self.reads.get_mut(&read).expect_held();
                op.pending += 1;
                op.from_origin = true;
                self.join_fill(fill, Waiter { read, portion: *portion }, core);
            }
            Found::Nothing => {
                self.reads.get_mut(&read).expect_held().from_origin = true;
                self.read_missing(read, &[*portion], None, core);
            }
        }
    }

    /// Nobody else has the bytes: the client gets an error, never something older (G3, G5).
    pub(crate) fn dirty_read_failed(&mut self, part: &HitPart, core: &mut Core) {
        core.base.stats.dirty_read_failures += 1;
        for waiter in &part.waiters {
            self.read_part_done(waiter.read, Err(ErrorKind::Io), core);
        }
    }
}

impl WriteBack {
    /// Whether the fence of a volume refuses a read: everything, or what is dirty.
    pub(crate) fn refuses_read(&self, request: &Request, core: &Core) -> bool {
        match self.fence(request.volume, core) {
            None => false,
            Some(OnLoss::Error) => true,
            Some(OnLoss::ReadOnly) => {
                let len_bytes = u32::try_from(request.len_bytes).unwrap_or(u32::MAX);
                let range = BufSlice { buf: BufId(0), start_bytes: 0, len_bytes };
                portions(request.volume, request.offset_bytes, range, core.base.extent_bytes).any(|portion| {
                    let sectors = sector_range(portion.skip_bytes, portion.len_bytes);
                    !self.overlay(portion.key, &sectors).is_empty()
                })
            }
        }
    }
}

/// The part of a portion that some sectors of its extent make up; empty runs give an empty part.
fn part_of(portion: &Portion, sectors: Range<u32>) -> Portion {
    let skip_bytes = sectors.start * SECTOR_BYTES;
    let len_bytes = (sectors.end - sectors.start) * SECTOR_BYTES;
    let dest = portion.dest.part(skip_bytes - portion.skip_bytes, len_bytes);
    Portion { key: portion.key, skip_bytes, len_bytes, dest }
}
