//! Copies in memory: partly written, prefetched, decoded and inserting extents, and fingerprints of uncached extents.
//!
//! A write invalidates the copies it overlaps; complete copies are offered to the cache.
//!
//! Out of scope: requests of clients and origins (see `read` and `write`).

pub(crate) mod staged;

use core::ops::Range;

use zc_core::{ErrorKind, ExtentKey, ExtentNo, Mode, RegionKey, SECTOR_BYTES, VolumeId};

use crate::base::effects::Effect;
use crate::clean::ghosts::{Access, Answered, Choice, Curve, Ghosts, Remembered};
use crate::clean::insert::{InsertOptions, Inserts, is_cut_off};
use crate::clean::order::OriginOrder;
use crate::clean::read::ahead::ReadAhead;
use crate::clean::read::portion::sector_range;
use crate::clean::read::read_buffer::ReadBuffer;
use crate::clean::read::recipes::Recipes;
use crate::clean::read::seen::Touched;
use crate::clean::staging::{OldCopy, Staging};
use crate::clean::streams::InStream;
use crate::config::{Admission, ManagerConfig};
use crate::device::Core;
use crate::device::meta::regions::Regions;
use crate::expect_held::ExpectHeld;
use crate::index::file_index::Place;
use crate::residency::Residency;
use crate::seam::{Proof, Request, RequestKind};

#[derive(Debug)]
pub(crate) struct Copies {
    staging: Staging,
    read_buffer: ReadBuffer,
    ahead: ReadAhead,
    /// Extents that streams read recently.
    streamed: Touched,
    /// Extents that were missed recently.
    touched: Touched,
    ghosts: Ghosts,
    recipes: Recipes,
    inserts: Inserts,
    origin_order: OriginOrder,
    /// Client reads of stored extents since the last one that verified its fingerprint.
    unproved_hits: u32,
}

impl Copies {
    pub(crate) fn new(config: &ManagerConfig) -> Self {
        let (extent_bytes, key) = (config.geometry.extent_bytes, &config.hash_key);
        let touched = Touched::new(config.file_index_entries);
        let streamed = Touched::new(config.file_index_entries);
        let remembered = Remembered { missed: touched.entries_max(), streamed: streamed.entries_max() };
        Self {
            staging: Staging::new(config.staging_bytes, extent_bytes, key),
            read_buffer: ReadBuffer::new(u64::from(config.read_buffer_bytes), extent_bytes, key),
            ahead: ReadAhead::new(key),
            streamed,
            touched,
            ghosts: Ghosts::new(remembered),
            recipes: Recipes::new(config.learned_recipes_bytes, key),
            inserts: Inserts::new(key),
            origin_order: OriginOrder::default(),
            unproved_hits: 0,
        }
    }

    pub(crate) const fn staging(&self) -> &Staging {
        &self.staging
    }

    pub(crate) const fn staging_mut(&mut self) -> &mut Staging {
        &mut self.staging
    }

    pub(crate) const fn read_buffer_mut(&mut self) -> &mut ReadBuffer {
        &mut self.read_buffer
    }

    pub(crate) const fn ahead(&self) -> &ReadAhead {
        &self.ahead
    }

    pub(crate) const fn ahead_mut(&mut self) -> &mut ReadAhead {
        &mut self.ahead
    }

    pub(crate) const fn recipes(&self) -> &Recipes {
        &self.recipes
    }

    pub(crate) const fn recipes_mut(&mut self) -> &mut Recipes {
        &mut self.recipes
    }

    pub(crate) const fn inserts(&self) -> &Inserts {
        &self.inserts
    }

    pub(crate) const fn inserts_mut(&mut self) -> &mut Inserts {
        &mut self.inserts
    }

    pub(crate) const fn origin_order_mut(&mut self) -> &mut OriginOrder {
        &mut self.origin_order
    }

    /// Returns `true` if an access that overlaps the read waits or is a write in flight.
    pub(crate) fn read_waits(&self, volume: VolumeId, bytes: &Range<u64>) -> bool {
        self.origin_order.read_waits(volume, bytes)
    }

    /// Places reduced extents in order while slots are available.
    pub(crate) fn pump_placement(&mut self, core: &mut Core) {
        self.inserts.pump_placement(&mut self.recipes, core);
    }

    /// Returns the read buffer's copy of an extent.
    pub(crate) fn buffered(&mut self, key: &ExtentKey) -> Option<zc_core::BufId> {
        self.read_buffer.get(key)
    }

    /// Returns `true` if the volume has no staged extents and no recipe requests.
    pub(crate) fn is_quiet(&self, volume: VolumeId) -> bool {
        !self.staging.keys().any(|key| key.volume == volume) && !self.recipes.is_asking(volume)
    }

    /// Bytes of RAM of the structures that grow with the cache, by name.
    pub(crate) fn ram_by_structure(&self) -> [(&'static str, u64); 4] {
        [
            ("learned_recipes", self.recipes.learned_ram_bytes()),
            ("first_misses", self.touched.ram_bytes()),
            ("streamed_once", self.streamed.ram_bytes()),
            ("ghosts", self.ghosts.ram_bytes()),
        ]
    }

    /// Releases the copies of a volume in memory, and drops the results of operations in progress.
    pub(crate) fn let_go_of(&mut self, volume: VolumeId, core: &mut Core) {
        core.base.tracks.change_all(|key| key.volume == volume);
        self.recipes.remove_all(|key| key.volume == volume);
        let copies: Vec<_> = self.read_buffer.keys().filter(|key| key.volume == volume).collect();
        let ahead: Vec<_> = self.ahead.keys().filter(|key| key.volume == volume).collect();
        let staged: Vec<_> = self.staging.keys().filter(|key| key.volume == volume).collect();
        for key in copies {
            if let Some(buf) = self.read_buffer.invalidate(&key) {
                core.base.port.release(buf);
            }
        }
        ahead.into_iter().for_each(|key| self.drop_prefetched(key, core));
        staged.into_iter().for_each(|key| self.drop_idle_staged(key, core));
    }

    /// Handles a possible loss of origin writes since the last flush.
    pub(crate) fn unflushed_lost(&mut self, volume: VolumeId, error: ErrorKind, core: &mut Core) {
        if let Some(entry) = core.base.volume_mut(volume) {
            entry.origin_mut().unflushed_lost(error);
        }
        core.base.announce(Effect::OriginLost(volume));
        self.forget_unflushed(volume, core);
    }

    /// Handles a failed flush: the origin may have lost writes since the last one, and reports it only once. Cached
    /// contents of these writes would be served until their eviction, and the older data after it. So mappings,
    /// recorded fingerprints, copies in memory and operations in progress are dropped. Regions that were marked when
    /// an earlier session was cut off are included: no flush has covered their last writes.
    fn forget_unflushed(&mut self, volume: VolumeId, core: &mut Core) {
        let Some(region_bytes) = core.base.volume(volume).map(|volume| volume.cfg().region_bytes) else {
            return;
        };
        let extent = u64::from(core.base.extent_bytes());
        let is_in_lost = |key: &ExtentKey, regions: &Regions| {
            let region = key.extent.0 * extent / region_bytes;
            let region = RegionKey { volume, region };
            key.volume == volume && (regions.is_active(&region) || regions.is_inherited(&region))
        };
        let mapped = core.device.catalog.find_mappings(is_in_lost);
        let regions = core.device.catalog.meta().regions();
        let is_lost = |key: &ExtentKey| is_in_lost(key, regions);
        core.base.tracks.change_all(is_lost);
        self.recipes.remove_all(is_lost);
        let copies: Vec<_> = self.read_buffer.keys().filter(is_lost).collect();
        let ahead: Vec<_> = self.ahead.keys().filter(is_lost).collect();
        let staged: Vec<_> = self.staging.keys().filter(is_lost).collect();
        for key in copies {
            if let Some(buf) = self.read_buffer.invalidate(&key) {
                core.base.port.release(buf);
            }
        }
        ahead.into_iter().for_each(|key| self.drop_prefetched(key, core));
        for key in staged {
            self.staging.get_mut(&key).expect_held().forget(core.base.extent_bytes() / SECTOR_BYTES);
            self.drop_idle_staged(key, core);
        }
        for key in mapped {
            core.device.catalog.forget(key, &mut core.base);
        }
        core.device.recovery.doubt_inherited(volume);
    }

    /// Merges or drops partly written extents that are idle, and places batches that have waited long enough.
    pub(crate) fn age(&mut self, core: &mut Core) {
        self.age_staging(core);
        self.inserts.age(core.base.now_ms(), core.base.is_stopping());
    }

    /// Prepares for a stop: releases prefetched and partly written extents, and places or drops insertions.
    pub(crate) fn wind_down(&mut self, core: &mut Core) {
        let ahead: Vec<_> = self.ahead.keys().collect();
        ahead.into_iter().for_each(|key| self.drop_prefetched(key, core));
        self.drop_all_staged(core);
        self.inserts.age(core.base.now_ms(), core.base.is_stopping());
        self.inserts.pump_placement(&mut self.recipes, core);
        self.inserts.drop_unplaceable(core);
    }

    /// Returns `true` if no insertion is in progress and no extent is staged.
    pub(crate) fn is_wound_down(&self) -> bool {
        self.inserts.is_idle() && self.staging.len() == 0
    }

    pub(crate) fn drop_copies(&mut self, core: &mut Core) {
        for buf in self.read_buffer.drain() {
            core.base.port.release(buf);
        }
    }

    /// Returns `true` if read misses of the volume currently enter the cache at their second access.
    pub(crate) fn enters_late(&self, volume: VolumeId, core: &Core) -> bool {
        match core.base.volume(volume).map(|volume| volume.cfg().admission) {
            Some(Admission::SecondTouch) => true,
            Some(Admission::Auto) => self.ghosts.choice() == Choice::SecondTouch,
            _ => false,
        }
    }

    /// Records a client request in the ghost caches.
    pub(crate) fn note(&mut self, request: &Request, in_stream: bool, core: &Core) {
        let is_cached = core.base.volume(request.volume).is_some_and(|volume| {
            volume.cfg().mode != Mode::PassThrough && volume.cfg().admission != Admission::Never
        });
        let is_read = matches!(request.kind, RequestKind::Read { .. });
        let end = request.offset_bytes.saturating_add(request.len_bytes);
        let extent_bytes = u64::from(core.base.extent_bytes());
        let extents = request.offset_bytes / extent_bytes..end.div_ceil(extent_bytes);
        if !is_cached || !core.base.is_good() {
            if is_read {
                self.ghosts.read_outside(extents.end.saturating_sub(extents.start));
            }
            return;
        }
        let all = core.base.extent_bytes() / SECTOR_BYTES;
        for extent in extents {
            let key = ExtentKey { volume: request.volume, extent: ExtentNo(extent) };
            let Some(sampled) = self.ghosts.sampled(key) else { continue };
            let Some(fits) = core.device.catalog.slots().fits_extents() else { return };
            if is_read {
                let access = Access {
                    in_stream,
                    is_held: core.device.catalog.is_mapped(key),
                    is_duplicate: core.device.catalog.is_duplicate(key),
                    fits,
                    is_warm_start: core.base.stats.load_mappings > 0,
                    answered: answered(core),
                };
                self.ghosts.read(sampled, &access);
                continue;
            }
            let sector = |byte: u64| {
                let skip_bytes = byte.saturating_sub(extent * extent_bytes).min(extent_bytes);
                u32::try_from(skip_bytes / u64::from(SECTOR_BYTES)).unwrap_or(all)
            };
            self.ghosts.wrote(sampled, sector(request.offset_bytes)..sector(end), all, fits);
        }
    }

    /// Hit-ratio curve over cache sizes.
    pub(crate) fn curve(&self, core: &Core) -> Curve {
        self.ghosts.curve(answered(core))
    }

    /// Returns `true` if an extent of a stream is inserted only when its content is cached already: it is not pinned,
    /// and no stream is remembered that read it before.
    pub(crate) fn enters_as_duplicate(&mut self, key: ExtentKey, core: &Core) -> bool {
        !self.enters_late(key.volume, core)
            && !core.device.catalog.slots().kept().has(key)
            && !self.streamed.before(key)
    }

    pub(crate) fn admits_read(&mut self, key: ExtentKey, core: &mut Core) -> bool {
        let Some(volume) = core.base.volume(key.volume) else { return false };
        if key.extent.0 >= volume.whole_extents() || core.base.is_stopping() || !core.base.is_good() {
            return false;
        }
        // An origin in doubt may return data that is gone after it is reopened; such data is not cached.
        if volume.origin().is_in_doubt() {
            return false;
        }
        match (volume.cfg().mode, volume.cfg().admission) {
            (Mode::PassThrough, _) | (_, Admission::Never) => false,
            (_, Admission::Always) => true,
            (_, Admission::SecondTouch) => self.touched.before(key),
            (_, Admission::Auto) => !self.enters_late(key.volume, core) || self.touched.before(key),
        }
    }

    /// Selects the proof for a client's read: one in many reads verifies the fingerprint.
    pub(crate) fn hit_proof(
        &mut self,
        volume: VolumeId,
        place: &Place,
        stored: &Range<u32>,
        core: &mut Core,
    ) -> Option<Proof> {
        self.unproved_hits = self.unproved_hits.saturating_add(1);
        if core.base.cfg().prove_hits == 0 || self.unproved_hits < core.base.cfg().prove_hits {
            return None;
        }
        let proof = core.device.units.proof(volume, place, stored, &core.base)?;
        self.unproved_hits = 0;
        core.base.stats.proved_hits += 1;
        Some(proof)
    }

    pub(crate) fn make_prefetch_room(&mut self, bytes: u64, core: &mut Core) {
        while let Some(key) = self.ahead.oldest_in_the_way(bytes) {
            self.drop_prefetched(key, core);
        }
    }

    /// Handles the use of a prefetched extent by `stream`. It is inserted into the cache if it was read before or its
    /// content is cached already (Nitro 3: prefetched data used once is not cached). Returns `false` if the extent was
    /// not prefetched.
    pub(crate) fn used_prefetched(
        &mut self,
        key: ExtentKey,
        stream: Option<InStream>,
        core: &mut Core,
    ) -> bool {
        let Some(ahead) = self.ahead.take(&key, core.base.extent_bytes()) else { return false };
        core.base.stats.prefetched_used += 1;
        core.base.stats.prefetched_hits += 1;
        let is_cached = core.device.catalog.mapping(key).is_some();
        let is_cut_off = !is_cached && is_cut_off(key.volume, stream, &core.base);
        core.base.stats.insert_sequential += u64::from(is_cut_off);
        if is_cached || is_cut_off || !self.admits_read(key, core) {
            core.base.tracks.release(&ahead.guard);
            core.base.port.release(ahead.src.buf);
            return true;
        }
        let only_if_duplicate = self.enters_as_duplicate(key, core);
        let batch = self.inserts.begin_batch(None, core);
        self.inserts.insert(batch, ahead.guard, ahead.src, InsertOptions { only_if_duplicate }, core);
        self.inserts.end_batch(batch);
        true
    }

    /// Inserts a prefetched extent without a use, if present.
    pub(crate) fn insert_prefetched(&mut self, key: ExtentKey, core: &mut Core) {
        let Some(ahead) = self.ahead.take(&key, core.base.extent_bytes()) else { return };
        let batch = self.inserts.begin_batch(None, core);
        self.inserts.insert(batch, ahead.guard, ahead.src, InsertOptions { only_if_duplicate: false }, core);
        self.inserts.end_batch(batch);
    }

    pub(crate) fn drop_prefetched(&mut self, key: ExtentKey, core: &mut Core) {
        if let Some(ahead) = self.ahead.take(&key, core.base.extent_bytes()) {
            core.base.tracks.release(&ahead.guard);
            core.base.port.release(ahead.src.buf);
        }
    }

    /// Residency of a part of an extent. Sources are checked in the order of a read.
    pub(crate) fn residency_of(
        &self,
        key: ExtentKey,
        skip_bytes: u32,
        len_bytes: u32,
        core: &Core,
    ) -> Residency {
        if let Some(staged) = self.staging.get(&key) {
            let sectors = sector_range(skip_bytes, len_bytes);
            if staged.valid.contains(sectors.clone()) {
                return Residency::Cached;
            }
            let untouched = staged.touched.runs(sectors.end, true).all(|run| run.end <= sectors.start);
            return match staged.old {
                OldCopy::Cached(mapping) if untouched => core.device.catalog.residency_of_mapping(mapping),
                _ => Residency::OriginOnly,
            };
        }
        if self.ahead.get(&key).is_some_and(|ahead| core.base.tracks.holds(&ahead.guard)) {
            return Residency::Cached;
        }
        let mapping = core
            .device
            .catalog
            .mapping(key)
            .filter(|mapping| core.device.is_past_gate(key.volume, *mapping, &core.base));
        match mapping.map(|mapping| core.device.catalog.residency_of_mapping(mapping)) {
            Some(Residency::OriginOnly) | None => {}
            Some(known) => return known,
        }
        if self.inserts.inserting(key, core).is_some() { Residency::Cached } else { Residency::OriginOnly }
    }
}

const fn answered(core: &Core) -> Answered {
    Answered { read: core.base.stats.extents_read(), hits: core.base.stats.extent_hits() }
}
