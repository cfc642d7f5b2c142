//! Scrub of dirty data: reads it back periodically, so that corruption is reported while a client may still have the
//! bytes.
//!
//! Reads the committed versions of all volumes once per interval, in the order of their places, one at a time, at a
//! rate that spreads them over the whole interval. A version whose read fails twice is reported as unreadable. A
//! version that a client failed to read is read at once, so that status names it.
//!
//! Invariants: it reads only data on the device; it changes no data and no mapping. A read pins the slot, so a version
//! may be removed during its read; then the result is ignored.

use std::collections::VecDeque;

use smallvec::SmallVec;
use zc_core::{BufId, BufSlice, ErrorKind, ExtentKey, ExtentNo, SECTOR_BYTES, VolumeId, WeuSlot};

use crate::base::rate::ByteRate;
use crate::device::Core;
use crate::dirty::versions::{Body, DirtyVolume, EpochState, Version};
use crate::dirty::volumes::DirtyVolumes;
use crate::ops::dirty::Op;
use crate::seam::{Action, ExtentRead, Note, PartResults, Source};

/// Minimum rate in bytes per second, which shortens a pass over little data.
const RATE_MIN: u64 = 1 << 20;

/// Maximum extents with failed client reads to be read again; others are left to the next pass.
const SUSPECTS_MAX: usize = 1024;

#[derive(Debug, Default)]
pub(crate) struct DirtyScrub {
    pass: Option<Pass>,
    /// Extents with failed client reads, and the versions of the first that are still to be read.
    suspects: VecDeque<ExtentKey>,
    suspected: SmallVec<[(VolumeId, ExtentNo, Version); 2]>,
    reading: Option<Reading>,
    rate: ByteRate,
    /// Time of the next pass; 0 before the first.
    next_ms: u64,
}

/// One pass over all dirty data.
#[derive(Debug)]
struct Pass {
    volume: VolumeId,
    extent: ExtentNo,
    /// Remaining versions of the extent before `next`.
    todo: SmallVec<[(ExtentNo, Version); 2]>,
    bytes_per_s: u64,
}

#[derive(Debug)]
struct Reading {
    volume: VolumeId,
    extent: ExtentNo,
    version: Version,
    slot: WeuSlot,
    buf: BufId,
    again: bool,
}

impl DirtyScrub {
    pub(crate) fn is_reading(&self) -> bool {
        self.reading.is_some()
    }
}

impl DirtyVolume {
    /// Returns `true` if a version is dirty and committed.
    fn is_committed(&self, extent: ExtentNo, version: &Version) -> bool {
        let is_here = self.versions(extent, &(version.epoch..=version.epoch)).contains(version);
        is_here && self.epoch(version.epoch).is_some_and(|epoch| epoch.state == EpochState::Committed)
    }
}

impl DirtyScrub {
    /// Reads the next version if it is due.
    pub(crate) fn pump(&mut self, volumes: &mut DirtyVolumes, core: &mut Core) {
        let interval_ms = core.base.cfg().dirty.scrub_interval_ms;
        let idle = volumes.is_empty() || self.is_reading();
        if idle || core.base.is_stopping() || !core.base.is_good() || !core.base.is_loaded() {
            return;
        }
        if let Some((volume, extent, version)) = self.next_suspect(volumes, core) {
            return self.read(volume, extent, version, false, core);
        }
        if interval_ms == 0 {
            return;
        }
        if self.pass.is_none() && !self.begin(interval_ms, volumes, core) {
            return;
        }
        let Some(pass) = &self.pass else { return };
        let (bytes_per_s, now_ms) = (pass.bytes_per_s, core.base.now_ms());
        if !self.rate.allows(bytes_per_s, now_ms) {
            return;
        }
        match self.next(volumes, core) {
            Some((volume, extent, version)) => self.read(volume, extent, version, false, core),
            None => self.pass = None,
        }
    }

    /// Records a failed client read of dirty data.
    pub(crate) fn suspect(&mut self, key: ExtentKey) {
        let suspects = &mut self.suspects;
        if suspects.len() < SUSPECTS_MAX && !suspects.contains(&key) {
            suspects.push_back(key);
        }
    }

    /// Returns a version of the next suspect that is not recorded as unreadable.
    fn next_suspect(&mut self, volumes: &DirtyVolumes, core: &Core) -> Option<(VolumeId, ExtentNo, Version)> {
        loop {
            while let Some((volume, extent, version)) = self.suspected.pop() {
                let data = volumes.get(&volume).map(|dirty| &dirty.data);
                if data.is_some_and(|data| data.is_committed(extent, &version)) {
                    return Some((volume, extent, version));
                }
            }
            let ExtentKey { volume, extent } = self.suspects.pop_front()?;
            let Some(dirty) = volumes.get(&volume) else { continue };
            let there = on_device(&dirty.data, extent, core).into_iter();
            let unknown = there.filter(|(extent, version)| !dirty.unreadable.has(*extent, version));
            self.suspected = unknown.map(|(extent, version)| (volume, extent, version)).collect();
        }
    }

    /// Begins a pass if it is due.
    fn begin(&mut self, interval_ms: u64, volumes: &mut DirtyVolumes, core: &mut Core) -> bool {
        if self.next_ms == 0 {
            self.next_ms = core.base.now_ms() + interval_ms;
        }
        if core.base.now_ms() < self.next_ms {
            return false;
        }
        self.next_ms = core.base.now_ms() + interval_ms;
        let bytes: u64 = volumes.iter().map(|(_, dirty)| dirty.data.bytes()).sum();
        let bytes_per_s = (bytes / (interval_ms / 1000).max(1)).max(RATE_MIN);
        let (volume, extent, todo) = (VolumeId(0), ExtentNo(0), SmallVec::new());
        self.pass = Some(Pass { volume, extent, todo, bytes_per_s });
        true
    }

    /// Returns the next version that is on the device, committed, and not covered by other committed ones.
    fn next(&mut self, volumes: &DirtyVolumes, core: &Core) -> Option<(VolumeId, ExtentNo, Version)> {
        loop {
            let pass = self.pass.as_mut()?;
            while let Some((extent, version)) = pass.todo.pop() {
                let data = volumes.get(&pass.volume).map(|dirty| &dirty.data);
                if data.is_some_and(|data| data.is_committed(extent, &version)) {
                    return Some((pass.volume, extent, version));
                }
            }
            let (volume, from) = (pass.volume, pass.extent);
            let (&id, dirty) = volumes.from(volume).next()?;
            let from = if id == volume { from } else { ExtentNo(0) };
            let next = dirty.data.next_extent(&(0..=u64::MAX), from);
            let todo = next.map(|extent| on_device(&dirty.data, extent, core)).unwrap_or_default();
            let pass = self.pass.as_mut()?;
            pass.todo = todo;
            (pass.volume, pass.extent) = match next {
                Some(extent) => (id, ExtentNo(extent.0 + 1)),
                None => (VolumeId(id.0.checked_add(1)?), ExtentNo(0)),
            };
        }
    }

    fn read(&mut self, volume: VolumeId, extent: ExtentNo, version: Version, again: bool, core: &mut Core) {
        let Body::Stored { place, own } = version.body else { return };
        let len_bytes = (version.stored.end - version.stored.start) * SECTOR_BYTES;
        let buf = core.base.port.alloc(len_bytes);
        core.device.catalog.table_mut().pin(place.slot);
        self.rate.spend(len_bytes);
        let key = own.then_some(ExtentKey { volume, extent });
        let expected = core.device.catalog.slots().expected_dirty(&place, key, &version.stored, &core.base);
        let dest = BufSlice { buf, start_bytes: 0, len_bytes };
        let proof = core.device.units.proof(volume, &place, &version.stored, &core.base);
        self.reading = Some(Reading { volume, extent, version, slot: place.slot, buf, again });
        core.device.units.read_stored_extent(
            Op::Scrub,
            &place,
            ExtentRead { expected, skip_bytes: 0, dest, proof, keep: false },
            &mut core.base,
        );
    }

    pub(crate) fn read_done(
        &mut self,
        result: Result<PartResults, ErrorKind>,
        volumes: &mut DirtyVolumes,
        core: &mut Core,
    ) {
        let Some(Reading { volume, extent, version, slot, buf, again }) = self.reading.take() else {
            return;
        };
        core.device.catalog.table_mut().unpin(slot);
        core.base.port.release(buf);
        if result.is_ok_and(|parts| parts.iter().all(Result::is_ok)) {
            let sectors = version.stored.end - version.stored.start;
            core.base.stats.dirty_scrubbed_bytes += u64::from(sectors * SECTOR_BYTES);
            if let Some(dirty) = volumes.get_mut(&volume) {
                dirty.read_after_all(extent, &version);
            }
            return;
        }
        let Some(dirty) = volumes.get_mut(&volume) else { return };
        if !dirty.data.is_committed(extent, &version) || !core.base.is_good() {
            return;
        }
        if !again {
            self.read(volume, extent, version, true, core);
        } else if !dirty.data.cover(extent, &version).open.is_empty()
            && dirty.unreadable.add(extent, &version)
        {
            core.base.stats.dirty_unreadable += 1;
            core.base.port.emit(Action::Note(Note::DirtyUnreadable { volume, extent }));
        }
    }
}

/// Returns the versions of an extent that a read of the device can verify.
fn on_device(data: &DirtyVolume, extent: ExtentNo, core: &Core) -> SmallVec<[(ExtentNo, Version); 2]> {
    let versions = data.versions(extent, &(0..=u64::MAX)).iter();
    let proved = versions.filter(|version| match version.body {
        Body::Stored { place, .. } => {
            core.device.units.source(place.slot) == Source::Device
                && data.is_committed(extent, version)
                && !data.cover(extent, version).open.is_empty()
        }
        Body::Memory { .. } | Body::Zero { .. } => false,
    });
    proved.map(|version| (extent, version.clone())).collect()
}
