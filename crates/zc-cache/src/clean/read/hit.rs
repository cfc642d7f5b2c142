//! Reads of stored extents: merges neighbours into one operation, and handles verification failures.
//!
//! Neighbouring stored extents of one WEU are one device read. A partly requested extent is read in full for the read
//! buffer, and requests for other parts of it join the read. A failed verification or device read turns into a miss;
//! clients never see it (G3, G4). Data that only the cache has cannot be read elsewhere: see `overlay`.

use core::ops::Range;

use smallvec::SmallVec;
use zc_core::{BufId, BufSlice, ErrorKind, ExtentKey, SECTOR_BYTES, WeuSlot};
use zc_format::ExtentError;

use crate::base::effects::Effect;
use crate::base::tracks::Guard;
use crate::clean::copies::Copies;
use crate::clean::read::portion::{Portion, StoredPart, StoredParts, Waiter};
use crate::clean::read::reads::Reads;
use crate::clean::read::under_way::{Hit, HitPart};
use crate::device::Core;
use crate::expect_held::ExpectHeld;
use crate::index::file_index::{Mapping, Place};
use crate::ops::read::Op;
use crate::seam::{Action, ExtentRead, Note, PartResults, Purpose, Source};

/// Largest device read for hits.
const HIT_READ_BYTES_MAX: u32 = 512 << 10;
/// Maximum gap, in pages, between stored extents that are read in one operation.
const HIT_GAP_PAGES_MAX: u32 = 1;

impl Reads {
    /// Fails a read of bytes that only the cache has: the client gets an error, never older data (G3, G5).
    fn dirty_read_failed(&mut self, part: &HitPart, core: &mut Core) {
        core.base.stats.dirty_read_failures += 1;
        core.base.announce(Effect::DirtyReadFailed(part.key));
        for waiter in &part.waiters {
            self.read_part_done(waiter.read, Err(ErrorKind::Io), core);
        }
    }

    /// Reads stored extents, neighbours in one operation.
    pub(crate) fn read_stored(
        &mut self,
        read: u64,
        mut stored: StoredParts,
        copies: &mut Copies,
        core: &mut Core,
    ) {
        stored.sort_by_key(|wanted| (wanted.place.slot, wanted.place.offset_units));
        let mut rest = stored.as_slice();
        while let Some(first) = rest.first() {
            let (count, pages) = neighbours(first, rest);
            let (group, later) = rest.split_at(count);
            self.issue_hit(read, (first.place.slot, group), &pages, copies, core);
            rest = later;
        }
    }

    fn issue_hit(
        &mut self,
        read: u64,
        (slot, group): (WeuSlot, &[StoredPart]),
        pages: &Range<u32>,
        copies: &mut Copies,
        core: &mut Core,
    ) {
        let id = core.base.port.number();
        let mut parts = SmallVec::with_capacity(group.len());
        let mut reads = Vec::with_capacity(group.len());
        for StoredPart { place, mapping, portion, dirty } in group.iter().cloned() {
            self.reads.get_mut(&read).expect_held().pending += 1;
            let waiter = Waiter { read, portion };
            let waiters = SmallVec::from_elem(waiter, 1);
            if let Some(stored) = dirty {
                let key = matches!(mapping, Mapping::Base(_)).then_some(portion.key);
                reads.push(ExtentRead {
                    expected: core.device.catalog.slots().expected_dirty(&place, key, &stored, &core.base),
                    skip_bytes: portion.skip_bytes - stored.start * SECTOR_BYTES,
                    dest: portion.dest,
                    proof: copies.hit_proof(portion.key.volume, &place, &stored, core),
                    keep: false,
                });
                parts.push(HitPart { key: portion.key, mapping, dirty: true, waiters, whole: None });
                continue;
            }
            if self.join_fetch(portion.key, waiter, core) {
                continue;
            }
            let whole = self.fetch_whole(&portion, id, copies, core);
            let (skip_bytes, dest) = match &whole {
                Some((buf, _)) => {
                    (0, BufSlice { buf: *buf, start_bytes: 0, len_bytes: core.base.extent_bytes() })
                }
                None => (portion.skip_bytes, portion.dest),
            };
            reads.push(ExtentRead {
                expected: core.device.catalog.slots().expected(&mapping, &place, portion.key, &core.base),
                skip_bytes,
                dest,
                proof: copies.hit_proof(portion.key.volume, &place, &core.base.whole_sectors(), core),
                keep: false,
            });
            parts.push(HitPart { key: portion.key, mapping, dirty: false, waiters, whole });
        }
        if parts.is_empty() {
            return;
        }
        core.device.catalog.table_mut().pin(slot);
        core.device.catalog.slots_mut().slot_used(slot);
        self.hits.insert(id, Hit { slot, parts });
        let op = core.base.port.op(Op::Hit(id));
        let len_bytes = (pages.end - pages.start) * zc_core::limits::BLOCK_BYTES;
        let source = core.device.units.source(slot);
        core.base.port.keep_source(op, source);
        if source == Source::Device {
            core.base.stats.device_reads += 1;
            core.base.stats.device_read_bytes += u64::from(len_bytes);
            core.base.stats.device_read_extents += zc_core::u64_from_usize(reads.len());
        }
        let start_bytes = pages.start * zc_core::limits::BLOCK_BYTES;
        core.base.port.emit(Action::ReadExtents {
            op,
            source,
            slot,
            start_bytes,
            len_bytes,
            parts: reads,
            urgent: true,
        });
    }

    /// Joins a valid read of the whole extent that is in flight.
    fn join_fetch(&mut self, key: ExtentKey, waiter: Waiter, core: &mut Core) -> bool {
        let Some(hit) = self.fetching.get(&key) else { return false };
        let Some(part) =
            self.hits.get_mut(hit).and_then(|hit| hit.parts.iter_mut().find(|part| part.key == key))
        else {
            return false;
        };
        let good = matches!(&part.whole, Some((_, Some(guard))) if core.base.tracks.holds(guard));
        if good {
            part.waiters.push(waiter);
        }
        good
    }

    /// Allocates, for a small read, a buffer for the whole extent, which goes to the read buffer.
    fn fetch_whole(
        &mut self,
        portion: &Portion,
        hit: u64,
        copies: &mut Copies,
        core: &mut Core,
    ) -> Option<(BufId, Option<Guard>)> {
        if portion.len_bytes >= core.base.extent_bytes()
            || core.base.cfg().read_buffer_bytes == 0
            || copies.staging().get(&portion.key).is_some()
        {
            return None;
        }
        let guard = core.base.tracks.guard(portion.key);
        let buf = core.base.port.alloc(core.base.extent_bytes());
        if guard.is_some() {
            self.fetching.insert(portion.key, hit);
        }
        Some((buf, guard))
    }

    pub(crate) fn hit_done(
        &mut self,
        id: u64,
        result: Result<PartResults, ErrorKind>,
        copies: &mut Copies,
        core: &mut Core,
    ) {
        let hit = self.hits.remove(&id).expect_held();
        core.device.catalog.table_mut().unpin(hit.slot);
        match result {
            Ok(results) => {
                assert_eq!(results.len(), hit.parts.len(), "one result per part");
                core.base.device_read_worked();
                for (part, result) in hit.parts.into_iter().zip(results) {
                    self.hit_part_done(hit.slot, &part, result, copies, core);
                }
            }
            Err(error) => {
                for part in hit.parts {
                    self.drop_fetch(&part, core);
                    if part.dirty {
                        self.dirty_read_failed(&part, core);
                        continue;
                    }
                    self.refetch(&part.waiters, copies, core);
                }
                core.base.device_read_failed(Purpose::ExtentRead, error);
            }
        }
    }

    fn hit_part_done(
        &mut self,
        slot: WeuSlot,
        part: &HitPart,
        result: Result<(), ExtentError>,
        copies: &mut Copies,
        core: &mut Core,
    ) {
        if result.is_err() && part.dirty {
            self.dirty_read_failed(part, core);
            return;
        }
        if let Err(fault) = result {
            core.base.stats.failed_hits += 1;
            self.drop_fetch(part, core);
            core.device.catalog.slots_mut().note_damaged(&part.mapping);
            if core.device.catalog.mapping(part.key) == Some(part.mapping) {
                core.device.catalog.forget(part.key, &mut core.base);
            }
            core.base.port.emit(Action::Note(Note::ExtentDropped { slot, fault }));
            self.refetch(&part.waiters, copies, core);
            return;
        }
        core.base.stats.verified_hits += 1;
        core.base.stats.extent_hits_device += zc_core::u64_from_usize(part.waiters.len());
        if !part.dirty {
            core.device.catalog.slots().count_outlived(&part.mapping, &mut core.base);
            core.device.catalog.mapping_used(part.key);
        }
        if let Some((buf, _)) = &part.whole {
            let buf = *buf;
            for waiter in &part.waiters {
                let Portion { skip_bytes, len_bytes, dest, .. } = waiter.portion;
                core.base.port.emit(Action::Copy {
                    from: BufSlice { buf, start_bytes: skip_bytes, len_bytes },
                    to: dest,
                });
            }
            self.keep_fetched(part, copies, core);
        }
        for waiter in &part.waiters {
            self.read_part_done(waiter.read, Ok(()), core);
        }
    }

    fn end_fetch(&mut self, part: &HitPart, core: &mut Core) -> bool {
        let Some((_, Some(guard))) = &part.whole else { return false };
        let good = core.base.tracks.holds(guard);
        core.base.tracks.release(guard);
        self.fetching.remove(&part.key);
        good
    }

    fn drop_fetch(&mut self, part: &HitPart, core: &mut Core) {
        self.end_fetch(part, core);
        if let Some((buf, _)) = part.whole {
            core.base.port.release(buf);
        }
    }

    fn keep_fetched(&mut self, part: &HitPart, copies: &mut Copies, core: &mut Core) {
        let good = self.end_fetch(part, core);
        let Some((buf, _)) = part.whole else { return };
        if !good {
            core.base.port.release(buf);
            return;
        }
        for evicted in copies.read_buffer_mut().insert(part.key, buf) {
            core.base.port.release(evicted);
        }
    }

    /// Serves waiters of a failed hit from the origin instead.
    fn refetch(&mut self, waiters: &[Waiter], copies: &mut Copies, core: &mut Core) {
        for waiter in waiters {
            if let Some(op) = self.reads.get_mut(&waiter.read) {
                op.from_origin = true;
            }
            self.read_missing(waiter.read, &[waiter.portion], None, copies, core);
            self.read_part_done(waiter.read, Ok(()), core);
        }
    }

    /// Returns `true` if the origin can serve this read instead.
    pub(crate) fn is_clean_hit(&self, id: u64) -> bool {
        self.hits.get(&id).is_some_and(|hit| hit.parts.iter().all(|part| !part.dirty))
    }
}

/// Returns the number of stored extents from `first`, in the order of places, that one device read covers, and its
/// pages.
fn neighbours(first: &StoredPart, stored: &[StoredPart]) -> (usize, Range<u32>) {
    let mut pages = page_range(&first.place);
    let more = stored.iter().skip(1).take_while(|item| {
        let extent = page_range(&item.place);
        let fits = first.place.slot == item.place.slot
            && extent.start <= pages.end + HIT_GAP_PAGES_MAX
            && (extent.end - pages.start) * zc_core::limits::BLOCK_BYTES <= HIT_READ_BYTES_MAX;
        if fits {
            pages.end = pages.end.max(extent.end);
        }
        fits
    });
    let count = 1 + more.count();
    (count, pages)
}

/// The 4 KiB pages of a location, relative to its slot.
fn page_range(place: &Place) -> Range<u32> {
    let start =
        u32::from(place.offset_units) * zc_core::limits::PLACE_ALIGN_BYTES / zc_core::limits::BLOCK_BYTES;
    start..start + u32::from(place.pages)
}
