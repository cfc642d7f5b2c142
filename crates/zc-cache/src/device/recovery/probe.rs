//! A sample of what a restart found is compared with the origin before hits are served.
//!
//! Job: while WEU headers load, pick some mappings of each volume, read stored content and origin, compare. Until the
//! sample of a volume has been seen, its *gate* is closed: what earlier sessions stored for it is not served. One
//! difference, and everything that earlier sessions stored for the volume is forgotten: another program wrote to the
//! origin while the cache was not there.
//!
//! Invariants: a probe that a write overtook, or whose reads failed, says nothing; so does damage of the cache (it
//! would be found at the hit). The sample is small and begins with the first headers, so that serving from the cache
//! begins soon; a small change of an origin is likely to be missed. What is stored in this session is served at once;
//! a duplicate of older content, and zeros, wait for the gate.
//!
//! What it does not do: look at the identity of origins (the engine does, before anything is loaded).

use std::collections::VecDeque;

use zc_core::{BufId, ErrorKind, ExtentKey, Map, VolumeId, WeuSlot};

use crate::base::Base;
use crate::base::effects::Effect;
use crate::base::tracks::Guard;
use crate::device::Device;
use crate::device::recovery::Op;
use crate::expect_held::ExpectHeld;
use crate::index::file_index::{Keep, Mapping, Place, SweepCursor};
use crate::seam::{Action, Digest, ExtentRead, Note, PartResults};

/// Mappings compared per volume.
const SAMPLE: u32 = 32;
/// Comparisons under way at once, all volumes together.
const IN_FLIGHT_MAX: usize = 4;
/// Every so many loaded mappings of a volume one is picked, twice as many after each quarter of the sample: the sample
/// spans the first thousand extents, or all of a small cache.
const FIRST_STRIDE: u64 = 8;

/// Which of a volume's mappings are picked, in the order in which they come.
#[derive(Debug, Default, Clone, Copy)]
pub(super) struct Picker {
    /// Mappings loaded.
    loaded: u64,
    /// The number of the mapping to pick next.
    next: u64,
    picked: u32,
}

impl Picker {
    /// A mapping comes: whether it is picked.
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

/// Sampling of one volume.
#[derive(Debug, Default)]
struct Sample {
    picker: Picker,
    /// Picked and not yet compared.
    outstanding: u32,
    open: bool,
}

/// A comparison under way.
#[derive(Debug)]
struct Probe {
    mapping: Mapping,
    guard: Guard,
    /// What the origin has, and what the cache has, if it is stored.
    theirs: BufId,
    ours: Option<BufId>,
    slot: Option<WeuSlot>,
    reads_left: u32,
    failed: bool,
}

/// The sampling of all volumes.
#[derive(Debug, Default)]
pub(crate) struct Probes {
    samples: Map<VolumeId, Sample>,
    picked: VecDeque<(ExtentKey, Mapping)>,
    under_way: Map<u64, Probe>,
    /// The manager has told that everything is loaded and may be served.
    announced: bool,
}

impl Probes {
    /// A volume whose earlier contents are to be sampled (`closed`), or not.
    pub(crate) fn add(&mut self, volume: VolumeId, closed: bool) {
        self.samples.insert(volume, Sample { open: !closed, ..Sample::default() });
    }

    /// The volume is gone.
    pub(crate) fn remove(&mut self, volume: VolumeId) {
        self.samples.remove(&volume);
    }

    /// Whether a part of the volume's sample is still to be compared.
    pub(crate) fn has_outstanding(&self, volume: VolumeId) -> bool {
        self.samples.get(&volume).is_some_and(|sample| sample.outstanding > 0)
    }

    pub(crate) fn is_open(&self, volume: VolumeId) -> bool {
        self.samples.get(&volume).is_none_or(|sample| sample.open)
    }

    /// A mapping was loaded.
    pub(crate) fn loaded(&mut self, key: ExtentKey, mapping: Mapping) {
        let Some(sample) = self.samples.get_mut(&key.volume).filter(|sample| !sample.open) else { return };
        if sample.picker.takes() {
            sample.outstanding += 1;
            self.picked.push_back((key, mapping));
        }
    }

    /// A mapping was picked elsewhere, as the sample's own picker would have.
    pub(super) fn pick(&mut self, key: ExtentKey, mapping: Mapping) {
        let Some(sample) = self.samples.get_mut(&key.volume).filter(|sample| !sample.open) else { return };
        sample.outstanding += 1;
        self.picked.push_back((key, mapping));
    }

    fn ended(&mut self, volume: VolumeId) {
        self.samples.get_mut(&volume).expect_held().outstanding -= 1;
    }
}

impl Device {
    /// Whether a stored extent may be served: its content is of this session, or the volume's sample has been seen.
    pub(crate) fn is_past_gate(&self, volume: VolumeId, mapping: Mapping, base: &Base) -> bool {
        self.recovery.probes.is_open(volume)
            || match mapping {
                Mapping::Zero => false,
                Mapping::Base(place) | Mapping::Duplicate(place) => {
                    base.session.wrote(self.units.slots.get(place.slot).weu_seq())
                }
            }
    }

    /// Starts comparisons, opens gates.
    pub(crate) fn pump_probes(&mut self, base: &mut Base) {
        if self.recovery.probes.announced {
            // Every gate is open, nothing is picked any more.
            return;
        }
        if base.is_stopping() || !base.is_good() {
            for (key, _) in core::mem::take(&mut self.recovery.probes.picked) {
                self.recovery.probes.ended(key.volume);
            }
        }
        while self.recovery.probes.under_way.len() < IN_FLIGHT_MAX
            && let Some((key, mapping)) = self.recovery.probes.picked.pop_front()
        {
            self.begin_probe(key, mapping, base);
        }
        let loaded = self.recovery.load.is_none();
        for sample in self.recovery.probes.samples.values_mut() {
            sample.open |= sample.outstanding == 0 && (loaded || sample.picker.picked == SAMPLE);
        }
        if loaded && !self.recovery.probes.announced && base.is_good() {
            self.recovery.probes.announced = self.recovery.probes.samples.values().all(|sample| sample.open);
            if self.recovery.probes.announced {
                let by_image = base.stats.load_by_image > 0;
                base.port.emit(Action::Note(Note::IndexLoaded { extents: self.index.files.len(), by_image }));
            }
        }
    }

    fn begin_probe(&mut self, key: ExtentKey, mapping: Mapping, base: &mut Base) {
        let guard = if self.index.files.get(key) == Some(mapping) { base.tracks.guard(key) } else { None };
        let Some(guard) = guard else { return self.recovery.probes.ended(key.volume) };
        let place = match mapping {
            Mapping::Zero => None,
            Mapping::Base(place) | Mapping::Duplicate(place) if self.units.slots.is_live(&place) => {
                Some(place)
            }
            Mapping::Base(_) | Mapping::Duplicate(_) => {
                base.tracks.release(&guard);
                return self.recovery.probes.ended(key.volume);
            }
        };
        base.stats.probes += 1;
        let id = base.port.number();
        let theirs = base.port.alloc(base.extent_bytes());
        let op = base.port.op(Op::ProbeOrigin(id));
        let offset_bytes = key.extent.0 * u64::from(base.extent_bytes());
        let dest = base.whole(theirs);
        base.port.emit(Action::OriginRead { op, volume: key.volume, offset_bytes, dest });
        let ours = place.map(|place| self.read_ours(id, key, mapping, place, base));
        let slot = place.map(|place| place.slot);
        let reads_left = 1 + u32::from(ours.is_some());
        self.recovery
            .probes
            .under_way
            .insert(id, Probe { mapping, guard, theirs, ours, slot, reads_left, failed: false });
    }

    fn read_ours(
        &mut self,
        id: u64,
        key: ExtentKey,
        mapping: Mapping,
        place: Place,
        base: &mut Base,
    ) -> BufId {
        let ours = base.port.alloc(base.extent_bytes());
        self.units.slots.pin(place.slot);
        let expected = self.expected(&mapping, &place, key, base);
        let dest = base.whole(ours);
        self.read_stored_extent(
            Op::ProbeRead(id),
            &place,
            ExtentRead { expected, skip_bytes: 0, dest, proof: None, keep: false },
            base,
        );
        ours
    }
}

impl Device {
    pub(crate) fn probe_ours_read(
        &mut self,
        id: u64,
        result: Result<PartResults, ErrorKind>,
        base: &mut Base,
    ) {
        let ok = result.is_ok_and(|parts| parts.iter().all(Result::is_ok));
        let slot = self.recovery.probes.under_way.get(&id).and_then(|probe| probe.slot).expect_held();
        self.units.slots.unpin(slot);
        self.probe_read(id, ok, base);
    }

    /// One of a probe's reads ended.
    pub(crate) fn probe_read(&mut self, id: u64, ok: bool, base: &mut Base) {
        let probe = self.recovery.probes.under_way.get_mut(&id).expect_held();
        probe.reads_left -= 1;
        probe.failed |= !ok;
        if probe.reads_left > 0 {
            return;
        }
        let (failed, theirs, ours, volume) = (probe.failed, probe.theirs, probe.ours, probe.guard.key.volume);
        if failed {
            return self.probe_ended(id, None, base);
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

    pub(crate) fn probe_hashed(&mut self, id: u64, digest: Digest, base: &mut Base) {
        self.probe_ended(id, Some(digest == Digest::Zero), base);
    }

    /// The comparison ended; `None`: without an answer.
    pub(crate) fn probe_ended(&mut self, id: u64, equal: Option<bool>, base: &mut Base) {
        let probe = self.recovery.probes.under_way.remove(&id).expect_held();
        let key = probe.guard.key;
        let counts = base.tracks.holds(&probe.guard) && self.index.files.get(key) == Some(probe.mapping);
        base.tracks.release(&probe.guard);
        base.port.release(probe.theirs);
        if let Some(ours) = probe.ours {
            base.port.release(ours);
        }
        self.recovery.probes.ended(key.volume);
        if counts && equal == Some(false) {
            base.stats.probes_differed += 1;
            self.forget_volume(key, base);
        }
    }

    /// The origin has something else at `key`: nothing that was stored for the volume before is believed any more.
    fn forget_volume(&mut self, key: ExtentKey, base: &mut Base) {
        let Some(volume) = base.volume_mut(key.volume) else { return };
        if !volume.distrust() {
            return;
        }
        base.port.emit(Action::Note(Note::OriginDiffers { volume: key.volume, extent: key.extent }));
        base.announce(Effect::OriginDiffers(key.volume));
        base.distrust(Some(key.volume));
        let mut stored = Vec::new();
        self.index.files.sweep(&mut SweepCursor::default(), usize::MAX, |other, _| {
            if other.volume == key.volume {
                stored.push(other);
            }
            Keep::Yes
        });
        for other in stored {
            self.forget(other, base);
        }
        self.meta.want_voids();
    }
}
