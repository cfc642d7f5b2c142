//! Probes: compare a sample of the mappings found at a restart with the origin before hits are served.
//!
//! While WEU headers load, some mappings of each volume are picked, and their stored content is compared with the
//! origin. Until the sample of a volume has been verified, its *gate* is closed: content that earlier sessions stored
//! for it is not served. A difference means that another program wrote to the origin while the cache was not running;
//! then all content that earlier sessions stored for the volume is dropped.
//!
//! Invariants: a probe that a write overlapped, or whose reads failed, is ignored; so is corruption in the cache,
//! which each hit would detect. The sample is small and begins with the first headers, so that serving from the cache
//! begins soon; a small change of an origin is likely to be missed. Content stored in this session is served at once;
//! a duplicate of older content, and zeros, wait for the gate.
//!
//! Out of scope: the identity of origins (the engine checks it before the load).

use std::collections::VecDeque;

use zc_core::{BufId, ErrorKind, ExtentKey, Map, VolumeId, WeuSlot};

use crate::base::Base;
use crate::base::effects::Effect;
use crate::base::tracks::Guard;
use crate::device::catalog::Catalog;
use crate::device::slots::table::SlotTable;
use crate::device::units::Units;
use crate::expect_held::ExpectHeld;
use crate::index::file_index::{Mapping, Place};
use crate::ops::load::Op;
use crate::seam::{Action, Digest, ExtentRead, Note, PartResults};

/// Mappings compared per volume.
const SAMPLE: u32 = 32;
/// Maximum comparisons in progress.
const IN_FLIGHT_MAX: usize = 4;
/// Initial stride between picked mappings of a volume, doubled after each quarter of the sample: the sample spans the
/// first thousand extents, or all of a small cache.
const FIRST_STRIDE: u64 = 8;

/// Picks mappings of a volume in the order of their loading.
#[derive(Debug, Default, Clone, Copy)]
pub(super) struct Picker {
    loaded: u64,
    next: u64,
    picked: u32,
}

impl Picker {
    /// Counts a mapping; returns `true` if it is picked.
    pub(super) const fn takes(&mut self) -> bool {
        let takes = self.picked < SAMPLE && self.loaded == self.next;
        if takes {
            self.picked += 1;
            self.next += FIRST_STRIDE << (4 * self.picked / SAMPLE);
        }
        self.loaded += 1;
        takes
    }
}

#[derive(Debug, Default)]
struct Sample {
    picker: Picker,
    /// Picked mappings that are not compared yet.
    outstanding: u32,
    open: bool,
}

#[derive(Debug)]
struct Probe {
    mapping: Mapping,
    guard: Guard,
    /// Buffers of the origin's data and of the cache's.
    theirs: BufId,
    ours: Option<BufId>,
    slot: Option<WeuSlot>,
    reads_left: u32,
    failed: bool,
}

/// Samples of all volumes.
#[derive(Debug, Default)]
pub(crate) struct Probes {
    samples: Map<VolumeId, Sample>,
    picked: VecDeque<(ExtentKey, Mapping)>,
    under_way: Map<u64, Probe>,
    /// The end of the load was reported to the driver.
    announced: bool,
}

impl Probes {
    /// Adds a volume; `closed`: its earlier contents are to be sampled.
    pub(crate) fn add(&mut self, volume: VolumeId, closed: bool) {
        self.samples.insert(volume, Sample { open: !closed, ..Sample::default() });
    }

    pub(crate) fn remove(&mut self, volume: VolumeId) {
        self.samples.remove(&volume);
    }

    /// Returns `true` if part of the volume's sample is not compared yet.
    pub(crate) fn has_outstanding(&self, volume: VolumeId) -> bool {
        self.samples.get(&volume).is_some_and(|sample| sample.outstanding > 0)
    }

    pub(crate) fn is_open(&self, volume: VolumeId) -> bool {
        self.samples.get(&volume).is_none_or(|sample| sample.open)
    }

    pub(crate) fn loaded(&mut self, key: ExtentKey, mapping: Mapping) {
        let Some(sample) = self.samples.get_mut(&key.volume).filter(|sample| !sample.open) else { return };
        if sample.picker.takes() {
            sample.outstanding += 1;
            self.picked.push_back((key, mapping));
        }
    }

    /// Adds a mapping that the image load has picked.
    pub(super) fn pick(&mut self, key: ExtentKey, mapping: Mapping) {
        let Some(sample) = self.samples.get_mut(&key.volume).filter(|sample| !sample.open) else { return };
        sample.outstanding += 1;
        self.picked.push_back((key, mapping));
    }

    fn compared(&mut self, volume: VolumeId) {
        self.samples.get_mut(&volume).expect_held().outstanding -= 1;
    }
}

impl Probes {
    /// Returns `true` if a stored extent may be served: its content was stored in this session, or the volume's sample
    /// has been verified.
    pub(crate) fn is_past_gate(
        &self,
        volume: VolumeId,
        mapping: Mapping,
        table: &SlotTable,
        base: &Base,
    ) -> bool {
        self.is_open(volume)
            || match mapping {
                Mapping::Zero => false,
                Mapping::Base(place) | Mapping::Duplicate(place) => {
                    base.session.wrote(table.get(place.slot).weu_seq())
                }
            }
    }

    /// Starts comparisons and opens gates.
    pub(crate) fn pump(&mut self, catalog: &mut Catalog, units: &Units, base: &mut Base) {
        if self.announced {
            // Every gate is open, and no more mappings are picked.
            return;
        }
        if base.is_stopping() || !base.is_good() {
            for (key, _) in core::mem::take(&mut self.picked) {
                self.compared(key.volume);
            }
        }
        while self.under_way.len() < IN_FLIGHT_MAX
            && let Some((key, mapping)) = self.picked.pop_front()
        {
            self.begin_probe(key, mapping, catalog, units, base);
        }
        let loaded = base.is_loaded();
        for sample in self.samples.values_mut() {
            sample.open |= sample.outstanding == 0 && (loaded || sample.picker.picked == SAMPLE);
        }
        if loaded && !self.announced && base.is_good() {
            self.announced = self.samples.values().all(|sample| sample.open);
            if self.announced {
                let by_image = base.stats.load_by_image > 0;
                base.port.emit(Action::Note(Note::IndexLoaded { extents: catalog.files().len(), by_image }));
            }
        }
    }

    fn begin_probe(
        &mut self,
        key: ExtentKey,
        mapping: Mapping,
        catalog: &mut Catalog,
        units: &Units,
        base: &mut Base,
    ) {
        let guard = if catalog.mapping(key) == Some(mapping) { base.tracks.guard(key) } else { None };
        let Some(guard) = guard else { return self.compared(key.volume) };
        let place = match mapping {
            Mapping::Zero => None,
            Mapping::Base(place) | Mapping::Duplicate(place) if catalog.table().is_live(&place) => {
                Some(place)
            }
            Mapping::Base(_) | Mapping::Duplicate(_) => {
                base.tracks.release(&guard);
                return self.compared(key.volume);
            }
        };
        base.stats.probes += 1;
        let id = base.port.number();
        let theirs = base.port.alloc(base.extent_bytes());
        let op = base.port.op(Op::ProbeOrigin(id));
        let offset_bytes = key.extent.0 * u64::from(base.extent_bytes());
        let dest = base.whole(theirs);
        base.port.emit(Action::OriginRead { op, volume: key.volume, offset_bytes, dest });
        let ours = place.map(|place| read_ours(id, (key, mapping, place), catalog, units, base));
        let slot = place.map(|place| place.slot);
        let reads_left = 1 + u32::from(ours.is_some());
        self.under_way.insert(id, Probe { mapping, guard, theirs, ours, slot, reads_left, failed: false });
    }
}

impl Probes {
    /// Handles the completion of a probe's read of the cache.
    pub(crate) fn ours_read(
        &mut self,
        id: u64,
        result: Result<PartResults, ErrorKind>,
        catalog: &mut Catalog,
        base: &mut Base,
    ) {
        let ok = result.is_ok_and(|parts| parts.iter().all(Result::is_ok));
        let slot = self.under_way.get(&id).and_then(|probe| probe.slot).expect_held();
        catalog.table_mut().unpin(slot);
        self.read(id, ok, catalog, base);
    }

    /// Handles the completion of one of a probe's reads.
    pub(crate) fn read(&mut self, id: u64, ok: bool, catalog: &mut Catalog, base: &mut Base) {
        let probe = self.under_way.get_mut(&id).expect_held();
        probe.reads_left -= 1;
        probe.failed |= !ok;
        if probe.reads_left > 0 {
            return;
        }
        let (failed, theirs, ours, volume) = (probe.failed, probe.theirs, probe.ours, probe.guard.key.volume);
        if failed {
            return self.ended(id, None, catalog, base);
        }
        let src = base.whole(theirs);
        match ours {
            Some(ours) => {
                let (op, left) = (base.port.op(Op::ProbeCompare(id)), base.whole(ours));
                base.port.emit(Action::Compare { op, left, right: src });
            }
            None => base.hash(Op::ProbeHash(id), volume, src),
        }
    }

    /// Handles the hash of the origin's content: zeros are expected.
    pub(crate) fn hashed(&mut self, id: u64, digest: Digest, catalog: &mut Catalog, base: &mut Base) {
        self.ended(id, Some(digest == Digest::Zero), catalog, base);
    }

    /// Ends a comparison; `None`: without a result.
    pub(crate) fn ended(&mut self, id: u64, equal: Option<bool>, catalog: &mut Catalog, base: &mut Base) {
        let probe = self.under_way.remove(&id).expect_held();
        let key = probe.guard.key;
        let counts = base.tracks.holds(&probe.guard) && catalog.mapping(key) == Some(probe.mapping);
        base.tracks.release(&probe.guard);
        base.port.release(probe.theirs);
        if let Some(ours) = probe.ours {
            base.port.release(ours);
        }
        self.compared(key.volume);
        if counts && equal == Some(false) {
            base.stats.probes_differed += 1;
            forget_volume(key, catalog, base);
        }
    }
}

/// Reads a stored extent for a comparison.
fn read_ours(
    id: u64,
    (key, mapping, place): (ExtentKey, Mapping, Place),
    catalog: &mut Catalog,
    units: &Units,
    base: &mut Base,
) -> BufId {
    let ours = base.port.alloc(base.extent_bytes());
    catalog.table_mut().pin(place.slot);
    let expected = catalog.slots().expected(&mapping, &place, key, base);
    let dest = base.whole(ours);
    units.read_stored_extent(
        Op::ProbeRead(id),
        &place,
        ExtentRead { expected, skip_bytes: 0, dest, proof: None, keep: false },
        base,
    );
    ours
}

/// Drops all content that earlier sessions stored for a volume whose origin differs at `key`.
fn forget_volume(key: ExtentKey, catalog: &mut Catalog, base: &mut Base) {
    let Some(volume) = base.volume_mut(key.volume) else { return };
    if !volume.distrust() {
        return;
    }
    base.port.emit(Action::Note(Note::OriginDiffers { volume: key.volume, extent: key.extent }));
    base.announce(Effect::OriginDiffers(key.volume));
    base.distrust(Some(key.volume));
    for other in catalog.find_mappings(|other, _| other.volume == key.volume) {
        catalog.forget(other, base);
    }
    catalog.meta_mut().want_voids();
}
