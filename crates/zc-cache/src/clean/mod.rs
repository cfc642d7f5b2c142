//! The clean layer: what reads, writes and insertions have under way, and the copies that it keeps in memory.
//!
//! It caches what origins hold, by the rules of write-through. What it does not do: know of dirty data.

pub(crate) mod ghosts;
pub(crate) mod insert;
pub(crate) mod keeper;
pub(crate) mod order;
pub(crate) mod read;
pub(crate) mod staging;
pub(crate) mod streams;
mod turns;
pub(crate) mod write;

use zc_core::{ErrorKind, ExtentKey, ExtentNo, KeyedMap, Map, Mode, RegionKey, SECTOR_BYTES, VolumeId};

use crate::base::effects::Effect;
use crate::clean::ghosts::{Access, Answered, Choice, Curve, Ghosts, Remembered};
use crate::clean::insert::Inserts;
use crate::clean::keeper::Keeper;
use crate::clean::order::OriginOrder;
use crate::clean::read::ReadOp;
use crate::clean::read::fill::Fill;
use crate::clean::read::hit::Hit;
use crate::clean::read::read_ahead::ReadAhead;
use crate::clean::read::read_buffer::ReadBuffer;
use crate::clean::read::recipes::Recipes;
use crate::clean::read::seen::Touched;
use crate::clean::read::warm::Warms;
use crate::clean::staging::Staging;
use crate::clean::streams::{StreamConfig, StreamTable};
use crate::clean::write::{WaitingWrites, WriteOp};
use crate::config::{Admission, ManagerConfig};
use crate::device::Core;
use crate::device::meta::regions::Regions;
use crate::expect_held::ExpectHeld;
use crate::seam::{Request, RequestKind};

/// Streams followed at once, reads and writes each.
const STREAMS_MAX: usize = 64;

/// See the module documentation.
#[derive(Debug)]
pub(crate) struct Clean {
    staging: Staging,
    read_buffer: ReadBuffer,
    ahead: ReadAhead,
    warms: Warms,
    keeper: Keeper,
    read_streams: StreamTable,
    /// Streams of reads from high addresses to low ones, in mirrored addresses.
    descending_reads: StreamTable,
    write_streams: StreamTable,
    /// Extents that streams brought and that were not inserted at that time.
    streamed: Touched,
    touched: Touched,
    ghosts: Ghosts,
    recipes: Recipes,
    reads: Map<u64, ReadOp>,
    hits: Map<u64, Hit>,
    fetching: KeyedMap<ExtentKey, u64>,
    fills: Map<u64, Fill>,
    fill_of: KeyedMap<ExtentKey, u64>,
    writes: Map<u64, WriteOp>,
    waiting: WaitingWrites,
    inserts: Inserts,
    origin_order: OriginOrder,
    /// Reads of stored extents by clients since one had to prove its content.
    unproved_hits: u32,
}

impl Clean {
    pub(crate) fn new(config: &ManagerConfig) -> Self {
        let streams = StreamConfig {
            streams_max: STREAMS_MAX,
            threshold_bytes: u64::from(config.prefetch_threshold_bytes),
            prefetch_max_bytes: u64::from(config.prefetch_max_bytes),
        };
        let (extent_bytes, key) = (config.geometry.extent_bytes, &config.hash_key);
        let touched = Touched::new(config.file_index_entries);
        let streamed = Touched::new(config.file_index_entries);
        let remembered = Remembered { missed: touched.entries_max(), streamed: streamed.entries_max() };
        Self {
            staging: Staging::new(config.staging_bytes, extent_bytes, key),
            read_buffer: ReadBuffer::new(u64::from(config.read_buffer_bytes), extent_bytes, key),
            ahead: ReadAhead::new(key),
            warms: Warms::default(),
            keeper: Keeper::default(),
            read_streams: StreamTable::new(streams),
            descending_reads: StreamTable::descending(streams),
            write_streams: StreamTable::new(streams),
            streamed,
            touched,
            ghosts: Ghosts::new(remembered),
            recipes: Recipes::new(config.learned_recipes_bytes, key),
            reads: Map::default(),
            hits: Map::default(),
            fetching: key.map(),
            fills: Map::default(),
            fill_of: key.map(),
            writes: Map::default(),
            waiting: WaitingWrites::default(),
            inserts: Inserts::new(key),
            origin_order: OriginOrder::default(),
            unproved_hits: 0,
        }
    }

    /// Lets go of copies in memory, and of the results of what is under way.
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

    /// The origin may have lost what was written since its last flush.
    pub(crate) fn unflushed_lost(&mut self, volume: VolumeId, error: ErrorKind, core: &mut Core) {
        if let Some(entry) = core.base.volume_mut(volume) {
            entry.origin_mut().unflushed_lost(error);
        }
        core.base.announce(Effect::OriginLost(volume));
        self.forget_unflushed(volume, core);
    }

    /// A flush failed: the origin may have lost what was written since the last one, and says so only once. What the
    /// cache holds, is about to hold or could find again of it would be read now and revert with the eviction, so it
    /// goes: mappings, learned contents, copies in memory, and what is under way. Regions that were marked when an
    /// earlier session was cut off count, too: no flush has covered their last writes yet.
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

    /// Whether stored extents are being read for clients.
    pub(crate) fn is_reading_hits(&self) -> bool {
        !self.hits.is_empty()
    }

    /// Whether no request is under way, and no read of an origin.
    pub(crate) fn is_idle(&self) -> bool {
        self.reads.is_empty() && self.writes.is_empty() && self.fills.is_empty()
    }

    /// Whether nothing is under way for the volume.
    pub(crate) fn is_quiet(&self, volume: VolumeId) -> bool {
        !self.staging.keys().any(|key| key.volume == volume)
            && !self.writes.values().any(|write| write.volume == volume)
            && !self.reads.values().any(|read| read.volume() == volume)
            && !self.fills.values().any(|fill| fill.volume() == volume)
            && !self.recipes.is_asking(volume)
    }

    /// The volume is gone: its extents may be another's one day.
    pub(crate) fn forget_volume(&mut self, volume: VolumeId) {
        self.recipes.remove_all(|key| key.volume == volume);
    }

    /// Time goes on: merges or drops what was written in part, and places batches that have waited.
    pub(crate) fn age(&mut self, core: &mut Core) {
        self.age_staging(core);
        self.inserts.batches.age(core.base.now_ms(), core.base.is_stopping());
    }

    /// Whether reduced extents wait to be placed.
    pub(crate) fn is_placing(&self) -> bool {
        self.inserts.batches.has_ready()
    }

    /// A stop: lets go of what was read ahead or written in part, and places or drops insertions.
    pub(crate) fn wind_down(&mut self, core: &mut Core) {
        let ahead: Vec<_> = self.ahead.keys().collect();
        ahead.into_iter().for_each(|key| self.drop_prefetched(key, core));
        self.drop_all_staged(core);
        self.inserts.batches.age(core.base.now_ms(), core.base.is_stopping());
        self.pump_placement(core);
        self.drop_unplaceable(core);
    }

    /// Whether no insertion is under way and nothing is collected.
    pub(crate) fn is_wound_down(&self) -> bool {
        self.inserts.is_idle() && self.staging.len() == 0
    }

    /// Lets go of copies in memory.
    pub(crate) fn drop_copies(&mut self, core: &mut Core) {
        for buf in self.read_buffer.drain() {
            core.base.port.release(buf);
        }
    }

    /// Whether reads of the volume enter at their second time, at the moment.
    fn enters_late(&self, volume: VolumeId, core: &Core) -> bool {
        match core.base.volume(volume).map(|volume| volume.cfg().admission) {
            Some(Admission::SecondTouch) => true,
            Some(Admission::Auto) => self.ghosts.choice() == Choice::SecondTouch,
            _ => false,
        }
    }

    /// A client reads or writes, in a stream or not: the ghosts take note, if the cache serves the volume.
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

    /// Hit ratios of caches of other sizes.
    pub(crate) fn curve(&self, core: &Core) -> Curve {
        self.ghosts.curve(answered(core))
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
}

/// Extents read so far, and the hits among them.
const fn answered(core: &Core) -> Answered {
    Answered { read: core.base.stats.extents_read(), hits: core.base.stats.extent_hits() }
}
