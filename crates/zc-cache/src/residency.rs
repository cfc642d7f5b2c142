//! What the cache holds of a range, for people and tools (block status).
//!
//! Job: tell runs of a volume apart: content held by the cache, zeros known to it, and what only the origin has.
//!
//! Invariants: looking changes nothing (no recency, no counter, no clean-up), takes a bounded number of steps, and the
//! runs have no gap. An extent written in part is told as a read of the same range would find it. The answer is a
//! moment's: a later write or eviction may change it.
//!
//! What it does not do: ask the device whether the content is still whole, or the origin for holes.

use zc_core::{BufId, BufSlice, ExtentKey, Mode, SECTOR_BYTES, VolumeId};

use crate::base::Base;
use crate::clean::Clean;
use crate::device::Core;
use crate::device::Device;
use crate::health::Health;
use crate::index::file_index::Mapping;
use crate::manager::CacheManager;
use crate::read::{portions, sector_range};
use crate::write::staging::OldCopy;
use crate::write_back::dirty::Visible;

/// Extents looked at in one call; the answer covers less than was asked for when it takes more.
pub const RESIDENCY_EXTENTS_MAX: u64 = 1 << 14;

/// Runs from which on no further extent is looked at: dirty sectors may be scattered.
const RESIDENCY_RUNS_MAX: usize = 1024;

/// What the origin of a volume may lack of what was acknowledged.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Owed {
    /// It has everything.
    Nothing,
    /// What [`CacheManager::residency`] calls dirty.
    Dirty,
    /// Anything: dirty data is out of reach, not known in full, or being given up.
    Unknown,
}

/// Where the current content of a piece of a volume can be had.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Residency {
    /// From the origin alone.
    OriginOnly,
    /// From the cache, device or memory.
    Cached,
    /// The cache knows that it reads as zeros.
    Zero,
    /// From the cache, and the origin does not have it.
    Dirty,
}

/// A piece of a volume in one state.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ResidencyRun {
    /// Its length in bytes, at least 1.
    pub len_bytes: u64,
    /// Its state.
    pub residency: Residency,
}

impl Base {
    /// Whether the cache is in use for the volume: it has not failed, and the volume is not in pass-through.
    pub(crate) fn is_used_by(&self, volume: VolumeId) -> bool {
        self.health == Health::Good
            && self.volumes.get(&volume).is_some_and(|volume| volume.cfg.mode != Mode::PassThrough)
    }
}

impl Device {
    pub(crate) fn residency_of_mapping(&self, mapping: Mapping) -> Residency {
        match mapping {
            Mapping::Zero => Residency::Zero,
            Mapping::Base(place) | Mapping::Duplicate(place) if self.units.slots.is_live(&place) => {
                Residency::Cached
            }
            Mapping::Base(_) | Mapping::Duplicate(_) => Residency::OriginOnly,
        }
    }
}

impl Clean {
    fn residency_overlaid(
        &self,
        key: ExtentKey,
        sectors: &core::ops::Range<u32>,
        visible: &[Visible],
        runs: &mut Vec<ResidencyRun>,
        core: &Core,
    ) {
        let bytes = |count: u32| u64::from(count) * u64::from(SECTOR_BYTES);
        let beneath = |range: core::ops::Range<u32>, runs: &mut Vec<ResidencyRun>| {
            if !range.is_empty() {
                let (skip, len) = (range.start * SECTOR_BYTES, (range.end - range.start) * SECTOR_BYTES);
                push(runs, len.into(), self.residency_of(key, skip, len, core));
            }
        };
        let mut next = sectors.start;
        for run in visible {
            beneath(next..run.first, runs);
            push(runs, bytes(run.count), Residency::Dirty);
            next = run.first + run.count;
        }
        beneath(next..sectors.end, runs);
    }

    /// The same order of places as a read looks through.
    fn residency_of(&self, key: ExtentKey, skip_bytes: u32, len_bytes: u32, core: &Core) -> Residency {
        if let Some(staged) = self.staging.get(&key) {
            let sectors = sector_range(skip_bytes, len_bytes);
            if staged.valid.contains(sectors.clone()) {
                return Residency::Cached;
            }
            let untouched = staged.touched.runs(sectors.end, true).all(|run| run.end <= sectors.start);
            return match staged.old {
                OldCopy::Held(mapping) if untouched => core.device.residency_of_mapping(mapping),
                _ => Residency::OriginOnly,
            };
        }
        if self.ahead.get(&key).is_some_and(|ahead| core.device.index.tracks.holds(&ahead.guard)) {
            return Residency::Cached;
        }
        let mapping = core
            .device
            .index
            .files
            .get(key)
            .filter(|mapping| core.device.is_past_gate(key.volume, *mapping, &core.base));
        match mapping.map(|mapping| core.device.residency_of_mapping(mapping)) {
            Some(Residency::OriginOnly) | None => {}
            Some(known) => return known,
        }
        if self.inserting(key, core).is_some() { Residency::Cached } else { Residency::OriginOnly }
    }
}

impl CacheManager {
    /// What the origin may lack at this moment.
    #[must_use]
    pub fn owed(&self, volume: VolumeId) -> Owed {
        let Some(dirty) = self.dirty.volumes.get(&volume) else { return Owed::Nothing };
        let is_undecided = dirty.dropping.is_some() || dirty.unsettled.is_some();
        if !dirty.is_dirty() && !is_undecided {
            Owed::Nothing
        } else if is_undecided
            || self.dirty.fence(volume, &self.core).is_some()
            || !self.core.base.is_used_by(volume)
        {
            Owed::Unknown
        } else {
            Owed::Dirty
        }
    }

    /// Appends what is known of `len_bytes` from `offset_bytes` on to `runs`, neighbours of one state merged; at most
    /// [`RESIDENCY_EXTENTS_MAX`] extents and a bounded number of runs, so that they may cover less than was asked for,
    /// but at least one extent. A cache that is not in use (failed, or the volume in pass-through) holds nothing; what
    /// it owes then, [`Self::owed`] says. Returns how many extents were looked at: what the answer cost.
    pub fn residency(
        &self,
        volume: VolumeId,
        offset_bytes: u64,
        len_bytes: u64,
        runs: &mut Vec<ResidencyRun>,
    ) -> u64 {
        if !self.core.base.is_used_by(volume) {
            push(runs, len_bytes, Residency::OriginOnly);
            return 0;
        }
        let bound_bytes = RESIDENCY_EXTENTS_MAX * u64::from(self.core.base.extent_bytes);
        let Ok(len_bytes) = u32::try_from(len_bytes.min(bound_bytes)) else {
            unreachable!("the bound is at most 2 GiB")
        };
        // Positions only; there is no buffer behind it.
        let range = BufSlice { buf: BufId(0), start_bytes: 0, len_bytes };
        let mut extents = 0;
        for portion in portions(volume, offset_bytes, range, self.core.base.extent_bytes) {
            if runs.len() >= RESIDENCY_RUNS_MAX {
                break;
            }
            extents += 1;
            let sectors = sector_range(portion.skip_bytes, portion.len_bytes);
            let visible = self.dirty.overlay(portion.key, &sectors);
            if visible.is_empty() {
                let state =
                    self.clean.residency_of(portion.key, portion.skip_bytes, portion.len_bytes, &self.core);
                push(runs, portion.len_bytes.into(), state);
            } else {
                self.clean.residency_overlaid(portion.key, &sectors, &visible, runs, &self.core);
            }
        }
        extents
    }
}

fn push(runs: &mut Vec<ResidencyRun>, len_bytes: u64, residency: Residency) {
    match runs.last_mut() {
        Some(last) if last.residency == residency => last.len_bytes += len_bytes,
        _ if len_bytes > 0 => runs.push(ResidencyRun { len_bytes, residency }),
        _ => {}
    }
}
