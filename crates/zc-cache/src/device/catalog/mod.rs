//! Catalog of the device's contents: mappings of extents, their slots and contents, and the log of changes.
//!
//! Adds and removes mappings, with the records that must survive a restart; evicts units (see `evict`).
//!
//! Invariant: the invalidation of a servable mapping is recorded before the index drops the mapping.
//!
//! Out of scope: filling and writing units, origins and requests.

pub(crate) mod evict;
pub(crate) mod pinned;

use core::ops::Range;

use smallvec::SmallVec;
use zc_core::{ErrorKind, ExtentKey, Fingerprint, Generation, VolumeId, WeuSlot};
use zc_format::{Record, WeuHeader};

use crate::base::Base;
use crate::config::ManagerConfig;
use crate::device::contents::header_reads::HeaderWaiter;
use crate::device::contents::{self, Contents, Lookup};
use crate::device::meta::MetaLog;
use crate::device::meta::regions::Regions;
use crate::device::slots::Slots;
use crate::device::slots::table::SlotTable;
use crate::device::stored::Stored;
use crate::index::file_index::{FileIndex, IndexShape, Keep, Mapping, Place, SweepCursor};
use crate::residency::Residency;
use crate::seam::{Action, Note};
use crate::startup::StartState;

/// Index buckets per step of an invalidation.
const BUCKETS: usize = 1024;
/// Maximum steps per event.
const SWEEPS_MAX: usize = 8;
/// Number of mappings after which an event stops early.
const VOIDS_ENOUGH: usize = 4096;

#[derive(Debug)]
pub(crate) struct Catalog {
    files: FileIndex,
    contents: Contents,
    slots: Slots,
    meta: MetaLog,
    sweep: SweepCursor,
}

impl Catalog {
    /// Creates an empty catalog from the session found on the device.
    ///
    /// # Panics
    /// When the geometry names more slots than an index location can.
    pub(crate) fn new(config: &ManagerConfig, start: &StartState) -> Self {
        Self {
            files: FileIndex::new(IndexShape::of(config), config.file_index_entries),
            contents: Contents::new(config),
            slots: Slots::new(config),
            meta: MetaLog::new(config, start),
            sweep: SweepCursor::default(),
        }
    }

    #[inline]
    pub(crate) const fn slots(&self) -> &Slots {
        &self.slots
    }

    #[inline]
    pub(crate) const fn slots_mut(&mut self) -> &mut Slots {
        &mut self.slots
    }

    #[inline]
    pub(crate) const fn table(&self) -> &SlotTable {
        self.slots.table()
    }

    #[inline]
    pub(crate) const fn table_mut(&mut self) -> &mut SlotTable {
        self.slots.table_mut()
    }

    #[inline]
    pub(crate) const fn contents(&self) -> &Contents {
        &self.contents
    }

    #[inline]
    pub(crate) const fn contents_mut(&mut self) -> &mut Contents {
        &mut self.contents
    }

    #[inline]
    pub(crate) const fn meta(&self) -> &MetaLog {
        &self.meta
    }

    #[inline]
    pub(crate) const fn meta_mut(&mut self) -> &mut MetaLog {
        &mut self.meta
    }

    #[inline]
    pub(crate) const fn files(&self) -> &FileIndex {
        &self.files
    }

    /// Replaces the file index; its sweep restarts.
    pub(crate) fn replace_files(&mut self, files: FileIndex) -> FileIndex {
        self.sweep = SweepCursor::default();
        core::mem::replace(&mut self.files, files)
    }

    /// Appends to journal and intent log.
    pub(crate) fn record(&mut self, record: Record, base: &mut Base) {
        self.meta.record(record, base);
    }
}

/// Contents, with the state of their slots.
impl Catalog {
    /// Slots that may hold a content.
    pub(crate) fn candidates(&mut self, print: &Fingerprint) -> SmallVec<[WeuSlot; 4]> {
        self.contents.candidates(print, self.slots.table())
    }

    /// Returns the location of a content if a cached header shows it and the fingerprint kind is proof of equality.
    pub(crate) fn find_content(
        &mut self,
        print: &Fingerprint,
        base: &Base,
    ) -> Option<(WeuSlot, Generation, Stored)> {
        self.contents.find_content(print, self.slots.table(), base)
    }

    /// Looks up a content in the cached headers of acceptable slots. `may_wait`: reads headers that may list it, and
    /// notifies the waiter.
    pub(crate) fn look_up(
        &mut self,
        print: &Fingerprint,
        waiter: HeaderWaiter,
        may_wait: bool,
        is_wanted: impl Fn(&Slots, WeuSlot) -> bool,
        base: &mut Base,
    ) -> Lookup {
        let Self { contents, slots, .. } = self;
        match contents.find_wanted(print, slots.table(), |slot| is_wanted(slots, slot)) {
            Ok((slot, generation, stored)) => return Lookup::Found { slot, generation, stored },
            Err(candidates) if may_wait => {
                for slot in candidates {
                    contents.wait_for_header(waiter, slot, print, slots.table_mut(), base);
                }
            }
            Err(_) => {}
        }
        if contents.is_waiting(waiter) { Lookup::Waits } else { Lookup::Absent }
    }

    /// Prefetches the headers that may list a content of an expected lookup, unless other header reads are more
    /// urgent.
    pub(crate) fn read_headers_ahead(&mut self, print: &Fingerprint, base: &mut Base) {
        self.contents.read_headers_ahead(print, self.slots.table_mut(), base);
    }

    /// Reads the header of a slot that may hold a content, unless it is cached without the content, or too many reads
    /// are in flight.
    pub(crate) fn wait_for_header(
        &mut self,
        waiter: HeaderWaiter,
        slot: WeuSlot,
        print: &Fingerprint,
        base: &mut Base,
    ) {
        self.contents.wait_for_header(waiter, slot, print, self.slots.table_mut(), base);
    }

    /// Reads the header of a slot even if it is cached. Returns `false` if too many reads are in flight.
    pub(crate) fn wait_for_any_header(
        &mut self,
        waiter: HeaderWaiter,
        slot: WeuSlot,
        base: &mut Base,
    ) -> bool {
        self.contents.wait_for_any_header(waiter, slot, self.slots.table_mut(), base)
    }

    /// Handles the completion of a header read. Returns the waiters that wait for no other header.
    pub(crate) fn header_read(
        &mut self,
        slot: WeuSlot,
        result: &Result<Option<Box<WeuHeader>>, ErrorKind>,
        base: &mut Base,
    ) -> Vec<HeaderWaiter> {
        self.contents.header_read(slot, result, self.slots.table_mut(), base)
    }

    /// Converts the place of a stored extent to the form used in mappings.
    pub(crate) fn place(&self, slot: WeuSlot, generation: Generation, stored: Stored) -> Place {
        contents::place(slot, generation, stored, self.slots.table())
    }
}

/// Mappings of extents.
impl Catalog {
    #[inline]
    pub(crate) fn mapping(&self, key: ExtentKey) -> Option<Mapping> {
        self.files.get(key)
    }

    /// Records a client's read of the extent.
    pub(crate) fn mapping_used(&mut self, key: ExtentKey) {
        self.files.touch(key);
    }

    /// Removes a mapping whose unit was evicted, which needs no record.
    pub(crate) fn drop_dead(&mut self, key: ExtentKey) {
        self.files.remove(key);
    }

    /// Removes a mapping; the caller updates counts and records.
    pub(crate) fn take_mapping(&mut self, key: ExtentKey) -> Option<Mapping> {
        self.files.remove(key)
    }

    /// Returns the mapped extents that `which` selects by key and region marks.
    pub(crate) fn find_mappings(&mut self, which: impl Fn(&ExtentKey, &Regions) -> bool) -> Vec<ExtentKey> {
        let Self { files, meta, .. } = self;
        let mut found = Vec::new();
        files.sweep(&mut SweepCursor::default(), usize::MAX, |key, _| {
            if which(&key, meta.regions()) {
                found.push(key);
            }
            Keep::Yes
        });
        found
    }

    /// Visits the mappings of `buckets` buckets from the cursor on; `visit` returns `false` to remove one. Returns
    /// `true` at the end of the index.
    pub(crate) fn visit_mappings(
        &mut self,
        cursor: &mut SweepCursor,
        buckets: usize,
        mut visit: impl FnMut(&SlotTable, ExtentKey, Mapping) -> Keep,
    ) -> bool {
        let Self { files, slots, .. } = self;
        files.sweep(cursor, buckets, |key, mapping| visit(slots.table(), key, mapping))
    }

    /// Maps an extent without a servable mapping, and records it as needed after a restart.
    pub(crate) fn map_extent(&mut self, key: ExtentKey, mapping: Mapping, base: &mut Base) {
        debug_assert!(!self.is_mapped(key), "{key:?} has a mapping that was not made void");
        match mapping {
            Mapping::Base(_) => {}
            Mapping::Zero => self.record(Record::Zero { key }, base),
            Mapping::Duplicate(place) => {
                let generation = self.slots.table().get(place.slot).generation();
                self.record(
                    Record::Duplicate {
                        key,
                        slot: place.slot,
                        generation,
                        offset_units: place.offset_units,
                        pages: place.pages,
                    },
                    base,
                );
            }
        }
        self.put(key, mapping, base);
    }

    /// Inserts a mapping into the index. Mappings displaced for lack of space are invalidated.
    pub(crate) fn put(&mut self, key: ExtentKey, mapping: Mapping, base: &mut Base) {
        self.count_mapped(key, mapping);
        self.put_counted(key, mapping, base);
    }

    /// As [`Self::put`], for a mapping that is counted already.
    pub(crate) fn put_counted(&mut self, key: ExtentKey, mapping: Mapping, base: &mut Base) {
        let Self { files, slots, .. } = self;
        let mut evicted = files.insert_sparing(key, mapping, |other| slots.kept().has(other));
        if let Some((other, theirs)) = evicted
            && other != key
            && self.slots.kept().has(other)
            && !self.slots.kept().has(key)
        {
            // All candidates for eviction are kept extents, so the displaced mapping is restored and the new one
            // dropped.
            self.files.remove(key);
            evicted = self.files.insert(other, theirs).or(Some((key, mapping)));
        }
        if let Some((other, mapping)) = evicted {
            base.stats.file_index_evictions += 1;
            self.count_unmapped(other, mapping, base);
            self.void(other, mapping, base);
        }
    }

    fn count_mapped(&mut self, key: ExtentKey, mapping: Mapping) {
        if let Mapping::Base(place) | Mapping::Duplicate(place) = mapping {
            self.slots.table_mut().mapped(&place);
        }
        if self.slots.kept().has(key) {
            self.slots.kept_mapped(key, mapping);
        }
    }

    pub(crate) fn count_unmapped(&mut self, key: ExtentKey, mapping: Mapping, base: &mut Base) {
        if let Mapping::Base(place) | Mapping::Duplicate(place) = mapping {
            self.slots.table_mut().unmapped(&place);
        }
        if self.slots.kept().has(key) {
            self.slots.kept_unmapped(key, mapping, base);
        }
    }

    /// As [`Self::map_extent`], for a relocated extent, which may have a mapping.
    pub(crate) fn remap_extent(&mut self, key: ExtentKey, mapping: Mapping, base: &mut Base) {
        if self.is_astray(key) {
            self.forget(key, base);
        }
        self.map_extent(key, mapping, base);
    }

    /// Removes an extent's mapping durably, so that a restart does not restore it. Returns it if it could be served.
    pub(crate) fn forget(&mut self, key: ExtentKey, base: &mut Base) -> Option<Mapping> {
        let mapping = self.files.remove(key)?;
        self.count_unmapped(key, mapping, base);
        self.void(key, mapping, base).then_some(mapping)
    }

    /// As [`Self::forget`], for all extents of a range.
    pub(crate) fn forget_range(&mut self, volume: VolumeId, extents: Range<u64>, base: &mut Base) {
        for key in self.files.mapped_in(volume, extents) {
            self.forget(key, base);
        }
    }

    /// Returns the number of extents from the start of a range that can be forgotten within the bound on lookups, and
    /// the lookups.
    pub(crate) fn forget_reach(&self, volume: VolumeId, extents: Range<u64>, lookups_max: u64) -> (u64, u64) {
        self.files.reach(volume, extents, lookups_max)
    }

    /// Records the invalidation of a mapping that was removed from the index. Returns `true` if it was live.
    pub(crate) fn void(&mut self, key: ExtentKey, mapping: Mapping, base: &mut Base) -> bool {
        match mapping {
            Mapping::Zero => self.record(Record::Unmap { key }, base),
            Mapping::Base(place) | Mapping::Duplicate(place) if !self.slots.table().is_live(&place) => {
                return false;
            }
            Mapping::Duplicate(_) => self.record(Record::Unmap { key }, base),
            Mapping::Base(place) => {
                let generation = self.slots.table_mut().void_base(&place);
                base.stats.bases_voided += 1;
                self.record(
                    Record::BaseInvalid {
                        key,
                        slot: place.slot,
                        generation,
                        offset_units: place.offset_units,
                    },
                    base,
                );
            }
        }
        true
    }

    /// Invalidates the next mappings of the volume. Returns `true` at the end of the index.
    pub(crate) fn void_some(&mut self, volume: VolumeId, cursor: &mut SweepCursor, base: &mut Base) -> bool {
        let mut voided = 0;
        for _ in 0..SWEEPS_MAX {
            if voided >= VOIDS_ENOUGH || self.meta.is_pressed() {
                return false;
            }
            let mut found = Vec::new();
            let is_last = self.files.sweep(cursor, BUCKETS, |key, _| {
                if key.volume == volume {
                    found.push(key);
                }
                Keep::Yes
            });
            voided += found.len();
            for key in found {
                self.forget(key, base);
            }
            if is_last {
                return true;
            }
        }
        false
    }

    /// Returns `true` if the extent has a mapping that can be served.
    pub(crate) fn is_mapped(&self, key: ExtentKey) -> bool {
        match self.files.get(key) {
            Some(Mapping::Zero) => true,
            Some(Mapping::Base(place) | Mapping::Duplicate(place)) => self.slots.table().is_live(&place),
            None => false,
        }
    }

    /// Returns `true` if the extent is mapped to content that was stored for another one.
    pub(crate) fn is_duplicate(&self, key: ExtentKey) -> bool {
        matches!(self.files.get(key), Some(Mapping::Duplicate(_))) && self.is_mapped(key)
    }

    pub(crate) fn residency_of_mapping(&self, mapping: Mapping) -> Residency {
        match mapping {
            Mapping::Zero => Residency::Zero,
            Mapping::Base(place) | Mapping::Duplicate(place) if self.slots.table().is_live(&place) => {
                Residency::Cached
            }
            Mapping::Base(_) | Mapping::Duplicate(_) => Residency::OriginOnly,
        }
    }
}

/// Units written to the device.
impl Catalog {
    /// Records that a unit and its header are on the device.
    pub(crate) fn unit_written(&mut self, slot: WeuSlot, base: &mut Base) {
        self.slots.table_mut().written(slot);
        self.slots.nothing_kept_in(slot, base);
        self.slots.settle(slot, base);
        self.contents.headers_mut().unit_written(slot);
        let entry = self.slots.table().get(slot);
        let (generation, weu_seq, header_bytes) = (entry.generation(), entry.weu_seq(), entry.header_bytes());
        self.record(Record::SlotSealed { slot, generation, weu_seq, header_bytes }, base);
    }

    /// Frees the slot of a unit whose write failed; `keys`: its extents with their offsets.
    pub(crate) fn unit_not_written(&mut self, slot: WeuSlot, keys: &[(ExtentKey, u32)], base: &mut Base) {
        let place = |offset: u32| u16::try_from(offset / zc_core::limits::PLACE_ALIGN_BYTES).unwrap_or(0);
        for (key, offset) in keys {
            let is_ours =
                |place_now: &Place| place_now.slot == slot && place_now.offset_units == place(*offset);
            self.files.remove_if(*key, |mapping| matches!(mapping, Mapping::Base(place) if is_ours(&place)));
        }
        self.contents.headers_mut().remove(slot);
        self.slots.kept_may_be_gone(slot);
        self.slots.leave(slot);
        let generation = self.slots.table().get(slot).generation();
        self.record(Record::SlotRetired { slot, generation }, base);
        self.slots.table_mut().release(slot);
        base.port.emit(Action::Note(Note::SlotDropped { slot }));
    }
}
