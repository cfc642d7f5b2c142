//! What the layers above ask the device, and the few things that they tell it.
//!
//! Job: keep the parts of the device to the device. What it does not do: decide anything.

use zc_core::{ExtentKey, Fingerprint, Generation, WeuSlot};

use crate::base::Base;
use crate::device::Device;
use crate::device::meta::MetaLog;
use crate::device::meta::journal::Journal;
use crate::device::meta::regions::Regions;
use crate::device::units::dirty_slots::{DirtyBounds, DirtySlots};
use crate::device::units::header_reads::HeaderWaiter;
use crate::device::units::headers::Stored;
use crate::index::file_index::{Keep, Mapping, Place, SweepCursor};
use crate::shares::VolumeShare;

/// Durable metadata.
impl Device {
    /// The journal.
    pub(crate) const fn journal(&self) -> &Journal {
        &self.meta.journal
    }

    /// The journal, to be asked for blocks and durability.
    pub(crate) const fn journal_mut(&mut self) -> &mut Journal {
        &mut self.meta.journal
    }

    /// The marks of regions.
    pub(crate) const fn regions(&self) -> &Regions {
        &self.meta.regions
    }

    /// The marks of regions, to be told of writes.
    pub(crate) const fn regions_mut(&mut self) -> &mut Regions {
        &mut self.meta.regions
    }

    /// Maps, retirements and checkpoints.
    pub(crate) const fn meta(&self) -> &MetaLog {
        &self.meta
    }

    /// Maps, retirements and checkpoints, to be asked for.
    pub(crate) const fn meta_mut(&mut self) -> &mut MetaLog {
        &mut self.meta
    }
}

/// Slots.
impl Device {
    /// All slots of the device.
    pub(crate) fn slot_count(&self) -> u32 {
        self.units.slots.len()
    }

    /// Slots that hold nothing.
    pub(crate) fn free_slots(&self) -> usize {
        self.units.slots.free_len()
    }

    /// Slots that are about to be free.
    pub(crate) fn leaving_slots(&self) -> usize {
        self.units.slots.leaving()
    }

    /// Extents that the cache has room for, by how many lead to each slot that is in use. None while no slot is.
    pub(crate) fn fits_extents(&self) -> Option<u64> {
        let slots = u64::from(self.slot_count());
        let idle = zc_core::u64_from_usize(self.free_slots() + self.leaving_slots());
        let used = slots.checked_sub(idle).filter(|used| *used > 0)?;
        Some(self.units.slots.live_total().saturating_mul(slots) / used)
    }

    /// Keeps a slot from being used again until [`Self::unpin`].
    pub(crate) fn pin(&mut self, slot: WeuSlot) {
        self.units.slots.pin(slot);
    }

    /// Ends a [`Self::pin`].
    pub(crate) fn unpin(&mut self, slot: WeuSlot) {
        self.units.slots.unpin(slot);
    }

    /// The generation of what is in the slot.
    pub(crate) fn generation(&self, slot: WeuSlot) -> Generation {
        self.units.slots.get(slot).generation()
    }

    /// Whether what is in the slot has this generation and is not void.
    pub(crate) fn holds(&self, slot: WeuSlot, generation: Generation) -> bool {
        let entry = self.units.slots.get(slot);
        entry.generation() == generation && !entry.is_retired()
    }

    /// The part of a generation that places carry.
    pub(crate) fn short(&self, generation: Generation) -> Generation {
        self.units.slots.short(generation)
    }

    /// Whether a place can be read now.
    pub(crate) fn is_live(&self, place: &Place) -> bool {
        self.units.slots.is_live(place)
    }

    /// Whether new mappings may point at a place.
    pub(crate) fn may_share(&self, place: &Place) -> bool {
        self.units.slots.may_share(place)
    }

    /// An extent in the slot was read.
    pub(crate) fn slot_used(&mut self, slot: WeuSlot) {
        if let Some(class) = self.units.slots.note_use(slot).class() {
            self.units.policy.touched(slot, class);
        }
    }

    /// Another extent has its content in the slot.
    pub(crate) fn slot_shared(&mut self, slot: WeuSlot) {
        if let Some(class) = self.units.slots.note_use(slot).class() {
            self.units.policy.shared(slot, class);
        }
    }

    /// Which slots hold dirty data.
    pub(crate) const fn dirty_slots(&self) -> &DirtySlots {
        &self.units.dirty_slots
    }

    /// How many slots may hold dirty data: what is pinned has room beside it.
    pub(crate) fn dirty_bounds(&self, base: &Base) -> DirtyBounds {
        let slots = self.units.slots.len() - self.units.kept.units_max();
        DirtyBounds::new(slots, base.cfg().dirty.high_percent)
    }

    /// Slots that could not be evicted may have become evictable.
    pub(crate) fn look_for_victims(&mut self) {
        self.units.sweeps.no_victim_ms = None;
        self.units.classes.look_for_victims();
    }

    /// The volumes with a share of the cache of their own, and what they hold of it.
    pub(crate) fn shares(&self) -> Vec<VolumeShare> {
        self.units.classes.shares().collect()
    }
}

/// Where extents and contents are.
impl Device {
    /// The mapping of an extent, live or not.
    pub(crate) fn mapping(&self, key: ExtentKey) -> Option<Mapping> {
        self.index.files.get(key)
    }

    /// A client read the extent.
    pub(crate) fn mapping_used(&mut self, key: ExtentKey) {
        self.index.files.touch(key);
    }

    /// The mapping of the extent is looked up soon: its memory is brought near.
    pub(crate) fn call_up(&self, key: ExtentKey) {
        self.index.files.call_up(key);
    }

    /// Takes a mapping away whose place is not live any more: no record need say so.
    pub(crate) fn drop_dead(&mut self, key: ExtentKey) {
        self.index.files.remove(key);
    }

    /// The mapped extents that `which` chooses by their key and by the marks of regions.
    pub(crate) fn find_mappings(&mut self, which: impl Fn(&ExtentKey, &Regions) -> bool) -> Vec<ExtentKey> {
        let Self { index, meta, .. } = self;
        let mut found = Vec::new();
        index.files.sweep(&mut SweepCursor::default(), usize::MAX, |key, _| {
            if which(&key, &meta.regions) {
                found.push(key);
            }
            Keep::Yes
        });
        found
    }

    /// A content was looked for and found.
    pub(crate) fn print_used(&mut self, print: &Fingerprint, slot: WeuSlot) {
        self.index.prints.touch(print, slot);
    }

    /// From now on this content is found in the slot.
    pub(crate) fn index_content(&mut self, print: Fingerprint, slot: WeuSlot, stored: Stored) {
        self.units.headers.add(slot, print, stored);
        self.index.prints.insert(&print, slot);
    }

    /// The content of a place, if it is known in memory.
    pub(crate) fn content_at(&self, slot: WeuSlot, stored: Stored) -> Option<Fingerprint> {
        self.units.headers.content_at(slot, stored)
    }

    /// Where units that are not on the device yet have a content.
    pub(crate) fn find_in_memory(&self, print: &Fingerprint) -> Option<(WeuSlot, Generation, Stored)> {
        self.units.headers.find_in_memory(print)
    }

    /// Units that went to the device so far: what was not found in memory may be found there since.
    pub(crate) fn written_units(&self) -> u64 {
        self.units.headers.written_units()
    }

    /// Whether this waits for a header that is being read.
    pub(crate) fn is_waiting(&self, waiter: HeaderWaiter) -> bool {
        self.units.header_reads.is_waiting(waiter)
    }

    /// Bytes of RAM that the structures of the device hold, by name.
    pub(crate) fn ram_by_structure(&self) -> [(&'static str, u64); 5] {
        let image = self.recovery.load.as_ref().and_then(|load| load.image.as_ref());
        [
            ("file_index", self.index.files.ram_bytes() + image.map_or(0, |image| image.ram_bytes())),
            ("fingerprint_index", self.index.prints.ram_bytes()),
            ("slots", self.units.slots.ram_bytes()),
            ("policy", self.units.policy.ram_bytes()),
            ("headers", self.units.headers.ram_bytes()),
        ]
    }

    /// Counts what there is now.
    pub(crate) fn gauges(&self, stats: &mut crate::stats::Stats) {
        let (files, prints) = (&self.index.files, &self.index.prints);
        stats.gauges(files, prints, self.meta.journal.used_blocks(), self.meta.regions.len());
        stats.pinned_units = self.kept_units().into();
    }
}
