//! The way of a restart: records of checkpoint, journal and intent log are replayed, then WEU headers are read in the
//! background while requests are served. After a clean stop an image of the index may take the place of headers (see
//! `image`).
//!
//! A header is believed if it was written since the cache was formatted, its generation is not void and, where
//! checkpoint or journal name the slot's WEU, it is that one: a slot that a device rolled back is told by this. Its
//! base entries become mappings unless they are void, their region was marked when the last session was cut off, the
//! volume is not trusted, or the extent was written since the start. What is distrusted is recorded as void, so that
//! the next start does not believe it either. Its fingerprints are indexed in any case: content proves itself.

pub(crate) mod dirty_replay;
mod image;
pub(crate) mod probe;

pub(crate) use crate::ops::load::Op;

use std::collections::BTreeMap;

use zc_core::{
    ErrorKind, ExtentKey, Generation, HashKey, KeyedMap, KeyedSet, RegionKey, Set, VolumeId, WeuSlot,
};
use zc_format::{ImageHead, Record, WeuEntry, WeuHeader};

use crate::base::Base;
use crate::base::port::Ended;
use crate::device::Device;
use crate::device::recovery::dirty_replay::DirtyReplay;
use crate::device::recovery::image::ImageLoad;
use crate::device::recovery::probe::Probes;
use crate::device::units::classes::ClassId;
use crate::device::units::contents::stored_of;
use crate::device::units::slots::SlotState;
use crate::index::CALLED_UP;
use crate::index::file_index::{Mapping, Place};
use crate::seam::Action;
use crate::startup::StartState;

/// Headers being read at once.
const HEADERS_IN_FLIGHT: u32 = 32;
/// Extents written during the load that are remembered one by one; with more, what is not loaded yet is distrusted.
const WRITTEN_MAX: usize = 1 << 20;

/// A mapping to install, with the full generation.
#[derive(Debug, Clone, Copy)]
enum Replayed {
    Zero,
    Duplicate(Place),
}

/// What the start found on the device, as far as it still counts.
#[derive(Debug)]
pub(super) struct Restart {
    /// Records that were replayed from summaries and the intent log: the journal lacks them.
    pub(super) unjournaled: Vec<Record>,
    /// Checkpoint, region map and journal vouch for each other.
    pub(super) mapping_trusted: bool,
    /// The last session ended cleanly, or its intent log is complete.
    pub(super) intact: bool,
    /// Never written since it was formatted.
    pub(super) fresh: bool,
    pub(super) dirty_replays: BTreeMap<VolumeId, DirtyReplay>,
    /// Volumes with commits that the start did not count.
    pub(super) dropped_commits: Vec<VolumeId>,
    /// Volumes with commits that count though nothing proves them.
    pub(super) unproved_commits: Vec<VolumeId>,
    /// Journal and checkpoint tell everything about dirty data.
    pub(super) dirty_complete: bool,
    /// Volumes of which an earlier start could not say that.
    pub(super) fenced_before: Vec<VolumeId>,
    /// An index image that may be read, and the checkpoint area that it is in.
    image: Option<(ImageHead, usize)>,
}

/// What a start still has to do, and what it goes by.
#[derive(Debug)]
pub(crate) struct Recovery {
    pub(super) load: Option<Load>,
    pub(super) probes: Probes,
    pub(super) restart: Restart,
}

impl Recovery {
    /// After a start that found this on the device.
    pub(crate) fn new(key: &HashKey, start: StartState) -> Self {
        Self {
            load: Some(Load::new(key)),
            probes: Probes::default(),
            restart: Restart {
                unjournaled: start.unjournaled,
                mapping_trusted: start.mapping_trusted,
                intact: start.intact,
                fresh: start.fresh,
                dirty_replays: BTreeMap::new(),
                dropped_commits: start.dropped_commits,
                unproved_commits: start.unproved_commits,
                dirty_complete: start.dirty_complete,
                fenced_before: start.fenced,
                image: start.index_image,
            },
        }
    }
}

/// What the layers above ask about the start.
impl Device {
    /// Whether all headers have been read since the start.
    pub(crate) const fn is_loaded(&self) -> bool {
        self.recovery.load.is_none()
    }

    /// Takes what checkpoint, journal and intent log told of dirty data.
    pub(crate) fn take_dirty_replays(&mut self) -> BTreeMap<VolumeId, DirtyReplay> {
        core::mem::take(&mut self.recovery.restart.dirty_replays)
    }

    /// Whether the start found commits of the volume that it did not count.
    pub(crate) fn has_dropped_commits(&self, volume: VolumeId) -> bool {
        self.recovery.restart.dropped_commits.contains(&volume)
    }

    /// Returns `true` if clients may have been answered for commits that the start did not count.
    pub(crate) fn drops_are_doubtful(&self) -> bool {
        !self.recovery.restart.intact
    }

    /// Returns `true` if the start counted a commit of the volume that nothing proves.
    pub(crate) fn has_unproved_commit(&self, volume: VolumeId) -> bool {
        self.recovery.restart.unproved_commits.contains(&volume)
    }

    /// Whether journal and checkpoint tell all dirty data of the volume, and did at earlier starts.
    pub(crate) fn knows_dirty_data(&self, volume: VolumeId) -> bool {
        let restart = &self.recovery.restart;
        restart.dirty_complete && !restart.fenced_before.contains(&volume)
    }

    /// Whether what earlier sessions stored for the volume may be served.
    pub(crate) fn is_open(&self, volume: VolumeId) -> bool {
        self.recovery.probes.is_open(volume)
    }

    /// Whether samples of the volume are being compared.
    pub(crate) fn has_probes(&self, volume: VolumeId) -> bool {
        self.recovery.probes.has_outstanding(volume)
    }

    /// The volume goes, and its samples.
    pub(crate) fn forget_probes(&mut self, volume: VolumeId) {
        self.recovery.probes.remove(volume);
    }
}

/// State of a load.
#[derive(Debug)]
pub(crate) struct Load {
    /// Duplicate and zero mappings as replay leaves them.
    mappings: KeyedMap<ExtentKey, Replayed>,
    /// Duplicates of WEUs that neither checkpoint nor journal knows.
    late: BTreeMap<WeuSlot, Vec<(ExtentKey, Place)>>,
    next: u32,
    in_flight: u32,
    written: KeyedSet<ExtentKey>,
    overflow: bool,
    /// Volumes whose origins failed to flush meanwhile, and may have lost what earlier sessions wrote.
    lost: Set<VolumeId>,
    /// The index image, while it is read in place of headers.
    pub(in crate::device) image: Option<Box<ImageLoad>>,
}

impl Load {
    pub(crate) fn new(key: &HashKey) -> Self {
        Self {
            mappings: key.map(),
            late: BTreeMap::new(),
            next: 0,
            in_flight: 0,
            written: key.set(),
            overflow: false,
            lost: Set::default(),
            image: None,
        }
    }
}

impl Device {
    /// A dirty unit that has no header (yet), or a unit with dirty data whose header cannot be read now: records say
    /// what is in it, and each extent is verified when it is read. If the header can be read again one day, its base
    /// entries are not believed: what becomes of these extents meanwhile is not recorded.
    fn adopt_headerless(&mut self, slot: WeuSlot, base: &mut Base) {
        self.units.slots.adopt_headerless(slot);
        let entry = self.units.slots.get(slot);
        let (generation, weu_seq) = (entry.generation(), entry.weu_seq());
        self.units.join(slot, ClassId::DEFAULT);
        self.record(Record::SlotDirty { slot, generation, weu_seq }, base);
    }
}

impl Device {
    /// Replays a record of the intent log: the journal lacks it, so that it is recorded again.
    pub(crate) fn replay_intent(&mut self, record: &Record) {
        self.keep_bodies(record);
        self.replay(record);
        self.recovery.restart.unjournaled.push(*record);
    }

    /// Replays one record of checkpoint, then journal.
    pub(crate) fn replay(&mut self, record: &Record) {
        match *record {
            Record::SlotSealed { slot, generation, weu_seq, header_bytes } => {
                if self.units.slots.adopt_generation(slot, generation) {
                    self.units.slots.adopt_unit(slot, weu_seq, Some(header_bytes));
                }
            }
            Record::SlotRetired { slot, generation } => {
                if self.units.slots.adopt_generation(slot, generation) {
                    self.units.slots.adopt_retirement(slot);
                }
            }
            Record::BaseInvalid { slot, generation, offset_units, .. } => {
                if self.units.slots.adopt_generation(slot, generation) {
                    self.units.slots.adopt_void_base(slot, offset_units);
                }
            }
            Record::Duplicate { key, slot, generation, offset_units, pages } => {
                if self.units.slots.contains(slot) {
                    // The WEU may be lost with the session that had it open. Its generation must not be given again:
                    // this record would then name other content.
                    self.units.slots.adopt_generation(slot, generation);
                    let place = Place { slot, generation, offset_units, pages };
                    self.replayed(key, Some(Replayed::Duplicate(place)));
                }
            }
            Record::Zero { key } => self.replayed(key, Some(Replayed::Zero)),
            Record::Unmap { key } => self.replayed(key, None),
            Record::SlotDirty { slot, generation, weu_seq } => {
                if self.units.slots.adopt_generation(slot, generation) {
                    self.units.slots.adopt_unit(slot, weu_seq, None);
                }
            }
            Record::Dirty { .. }
            | Record::DirtyZero { .. }
            | Record::Committed { .. }
            | Record::Clean { .. }
            | Record::DirtyReset { .. } => self.replay_dirty(record),
            // It decides which commits are replayed.
            Record::Durable { .. } => {}
        }
    }

    /// The replay is over: what it left becomes mappings, and headers are read from now on.
    pub(crate) fn begin(&mut self, base: &mut Base) {
        let restart = &mut self.recovery.restart;
        let is_believed = restart.intact && restart.mapping_trusted && !restart.fresh;
        let image = restart.image.take().filter(|_| is_believed);
        if image.is_some_and(|(head, area)| self.begin_image_load(head, area, base)) {
            // It has what checkpoint and journal told of mappings.
            return;
        }
        self.install_replayed(base);
        if self.recovery.restart.fresh {
            for slot in 0..self.units.slots.len() {
                self.units.slots.release(WeuSlot(slot));
            }
            self.recovery.load = None;
            self.load_ended(base);
        }
    }

    /// Records what the journal lacks of what was replayed.
    pub(crate) fn record_unjournaled(&mut self, base: &mut Base) {
        for record in core::mem::take(&mut self.recovery.restart.unjournaled) {
            self.replayed_unjournaled(&record);
            self.record(record, base);
        }
    }

    fn replayed(&mut self, key: ExtentKey, mapping: Option<Replayed>) {
        let Some(load) = &mut self.recovery.load else { return };
        match mapping {
            Some(mapping) => {
                load.mappings.insert(key, mapping);
            }
            None => {
                load.mappings.remove(&key);
            }
        }
    }

    fn install_replayed(&mut self, base: &mut Base) {
        let Some(load) = &mut self.recovery.load else { return };
        let mut mappings: Vec<_> = load.mappings.drain().collect();
        mappings.sort_unstable_by_key(|(key, _)| *key);
        let is_first = load.written.is_empty() && self.index.files.is_empty();
        for (key, mapping) in mappings {
            let newer = self.index.files.get(key).filter(|_| !is_first);
            if newer.is_some() {
                self.supersede(key, newer, base);
                continue;
            }
            if !is_first && self.was_written(key) || !self.trusts(key, base) {
                base.stats.load_distrusted += 1;
                self.record(Record::Unmap { key }, base);
                continue;
            }
            match mapping {
                Replayed::Zero => self.install(key, Mapping::Zero, base),
                Replayed::Duplicate(place) => {
                    let slot = self.units.slots.get(place.slot);
                    let known = slot.state() == SlotState::Unread { known: true } && !slot.is_retired();
                    if slot.generation() == place.generation && known {
                        self.install_duplicate(key, place, base);
                    } else if place.generation >= slot.generation()
                        && !(slot.is_retired() && place.generation == slot.generation())
                        && let Some(load) = &mut self.recovery.load
                    {
                        load.late.entry(place.slot).or_default().push((key, place));
                    }
                }
            }
        }
    }

    /// A mapping that checkpoint and journal told does not count, as the extent has a newer one, or none. That of newer
    /// zeros or a newer duplicate is recorded already, in the place of the older one. A base has no record.
    fn supersede(&mut self, key: ExtentKey, newer: Option<Mapping>, base: &mut Base) {
        if matches!(newer, None | Some(Mapping::Base(_))) {
            self.record(Record::Unmap { key }, base);
        }
    }

    fn install_duplicate(&mut self, key: ExtentKey, place: Place, base: &mut Base) {
        let generation = self.units.slots.short(place.generation);
        self.install(key, Mapping::Duplicate(Place { generation, ..place }), base);
    }

    pub(crate) fn install(&mut self, key: ExtentKey, mapping: Mapping, base: &mut Base) {
        base.stats.load_mappings += 1;
        self.recovery.probes.loaded(key, mapping);
        self.put(key, mapping, base);
    }

    /// Whether a mapping from media may be believed.
    fn trusts(&self, key: ExtentKey, base: &Base) -> bool {
        let Some(volume) = base.volume(key.volume) else { return false };
        let region = RegionKey {
            volume: key.volume,
            region: key.extent.0 * u64::from(base.extent_bytes()) / volume.cfg().region_bytes,
        };
        self.recovery.restart.mapping_trusted
            && volume.cfg().trusted
            && volume.has_whole(key.extent)
            && !(self.meta.regions.is_inherited(&region) && self.doubts_inherited(key.volume))
    }

    fn doubts_inherited(&self, volume: VolumeId) -> bool {
        !self.recovery.restart.intact
            || self.recovery.load.as_ref().is_some_and(|load| load.lost.contains(&volume))
    }

    /// An origin failed to flush: what is not loaded yet of the regions that earlier sessions wrote is distrusted.
    pub(crate) fn doubt_inherited(&mut self, volume: VolumeId) {
        if let Some(load) = &mut self.recovery.load {
            load.lost.insert(volume);
        }
    }

    /// An extent is being written: what a header still to be read says of it is void.
    pub(crate) fn remember_written(&mut self, key: ExtentKey, base: &mut Base) {
        let Some(load) = &mut self.recovery.load else { return };
        if load.written.len() < WRITTEN_MAX {
            load.written.insert(key);
        } else {
            load.overflow = true;
        }
        if load.late.values().any(|late| late.iter().any(|(other, _)| *other == key)) {
            for late in load.late.values_mut() {
                late.retain(|(other, _)| *other != key);
            }
            self.record(Record::Unmap { key }, base);
        }
    }

    /// Reads headers, a bounded number at once, as fast as the journal can take what has to be voided.
    pub(crate) fn pump_load(&mut self, base: &mut Base) {
        if base.is_good() && self.is_reading_image() {
            self.pump_image_load(base);
        }
        if !base.is_good() || self.is_reading_image() || self.journal_is_pressed() {
            return;
        }
        while let Some(load) = &mut self.recovery.load {
            if load.next == self.units.slots.len() {
                if load.in_flight == 0 {
                    self.recovery.load = None;
                    self.load_ended(base);
                }
                return;
            }
            if load.in_flight == HEADERS_IN_FLIGHT {
                return;
            }
            let slot = WeuSlot(load.next);
            load.next += 1;
            if !matches!(self.units.slots.get(slot).state(), SlotState::Unread { .. }) {
                // An image that was given up told that it holds nothing.
                continue;
            }
            load.in_flight += 1;
            let hint_bytes = self.units.slots.get(slot).header_bytes();
            let op = base.port.op(Op::Header(slot));
            base.port.emit(Action::ReadHeader { op, slot, hint_bytes });
        }
    }

    fn load_ended(&mut self, base: &mut Base) {
        // Recency of earlier sessions is not on media; age is the best guess.
        let mut by_age: Vec<_> = self
            .units
            .slots
            .iter()
            .filter(|(_, slot)| slot.state() == SlotState::Sealed)
            .map(|(id, slot)| (slot.weu_seq(), id))
            .collect();
        by_age.sort_unstable();
        self.units.order_by_age(by_age.into_iter().map(|(_, slot)| slot));
        let untrusted = base.volumes().any(|volume| !volume.cfg().trusted);
        if untrusted || !self.recovery.restart.mapping_trusted {
            self.meta.want_voids();
        }
        base.port.emit(Action::IntentReady);
    }

    fn header_loaded(
        &mut self,
        slot: WeuSlot,
        result: Result<Option<Box<WeuHeader>>, ErrorKind>,
        base: &mut Base,
    ) {
        let Some(load) = &mut self.recovery.load else { return };
        load.in_flight -= 1;
        let late = load.late.remove(&slot).unwrap_or_default();
        base.stats.load_headers += 1;
        if let Err(error) = result {
            base.device_read_failed(crate::seam::Purpose::HeaderRead, error);
            if !base.is_good() {
                return;
            }
        }
        match result {
            Ok(Some(header)) if self.believes(&header, base) => self.adopt_header(slot, &header, &late, base),
            other => self.drop_unbelieved(slot, &other, base),
        }
    }

    /// Nothing in the slot, or not what checkpoint and journal say: whatever it was, it is void. What could not be read
    /// now may be readable at the next start, with mappings that are stale by then: a tombstone sees to that. After a
    /// start that journal and checkpoint do not tell everything about, that includes slots in which there seems to be
    /// nothing: a device that misread the header once may find it the next time.
    fn drop_unbelieved(
        &mut self,
        slot: WeuSlot,
        result: &Result<Option<Box<WeuHeader>>, ErrorKind>,
        base: &mut Base,
    ) {
        if self.units.dirty_slots.contains(slot) || self.units.slots.get(slot).is_filling() {
            self.adopt_headerless(slot, base);
            return;
        }
        let found = result.as_ref().ok().and_then(Option::as_ref).map(|header| header.generation);
        let weu_seq = base.session.next();
        let entry = self.units.slots.get(slot);
        let known = entry.state() == SlotState::Unread { known: true };
        let unsure = !(self.recovery.restart.intact && self.recovery.restart.mapping_trusted);
        if known && entry.header_bytes() == 0 {
            self.units.slots.stay_tombstone(slot);
        } else if result.is_err() || known || unsure || found.is_some_and(|found| found > entry.generation())
        {
            let newest = found.unwrap_or_default().max(entry.generation());
            let generation = Generation(newest.0 + 1);
            self.units.slots.make_tombstone(slot, generation, weu_seq);
            base.session.take_next();
            self.record(Record::SlotSealed { slot, generation, weu_seq, header_bytes: 0 }, base);
        } else if entry.generation().0 > 0 && !entry.is_retired() {
            let generation = entry.generation();
            self.record(Record::SlotRetired { slot, generation }, base);
        }
        self.units.slots.release(slot);
    }

    fn believes(&self, header: &WeuHeader, base: &Base) -> bool {
        let slot = self.units.slots.get(header.slot);
        if base.session.is_of_earlier_cache(header.session) {
            return false;
        }
        match slot.state() {
            SlotState::Unread { known: true } => {
                header.generation == slot.generation()
                    && header.weu_seq == slot.weu_seq()
                    && !slot.is_retired()
            }
            // Units of sessions before the last that no record names were misread or given up by a session in between.
            SlotState::Unread { known: false }
                if self.recovery.restart.mapping_trusted && header.session + 1 < base.session.number() =>
            {
                false
            }
            SlotState::Unread { known: false } => {
                header.generation > slot.generation()
                    || (header.generation == slot.generation() && !slot.is_retired())
            }
            _ => false,
        }
    }

    fn adopt_header(
        &mut self,
        slot: WeuSlot,
        header: &WeuHeader,
        late: &[(ExtentKey, Place)],
        base: &mut Base,
    ) {
        let bytes = WeuHeader::encoded_bytes(u32::try_from(header.entries.len()).unwrap_or(u32::MAX));
        base.stats.load_header_bytes += u64::from(bytes);
        base.device_read_worked();
        let known = self.units.slots.adopt_header(slot, header.generation, header.weu_seq, bytes);
        self.join_loaded(slot, header);
        if !known {
            let (generation, weu_seq) = (header.generation, header.weu_seq);
            self.record(Record::SlotSealed { slot, generation, weu_seq, header_bytes: bytes }, base);
        }
        for (key, place) in late.iter().filter(|(_, place)| place.generation == header.generation) {
            match self.index.files.get(*key) {
                None if self.trusts(*key, base) && !self.was_written(*key) => {
                    self.install_duplicate(*key, *place, base);
                }
                newer => self.supersede(*key, newer, base),
            }
        }
        for entries in header.entries.chunks(CALLED_UP) {
            for entry in entries {
                self.index.files.call_up(entry.key);
                self.index.prints.call_up(&entry.fingerprint);
            }
            for entry in entries {
                self.adopt_entry(slot, header.generation, entry, base);
            }
        }
        // All that it has of pinned ranges may be newer elsewhere. Nothing would ever let go of it then.
        self.nothing_kept_in(slot, base);
    }

    /// The unit's owner is known by its header; what is dirty in it is known since the replay.
    fn join_loaded(&mut self, slot: WeuSlot, header: &WeuHeader) {
        self.set_owner(slot, header.entries.iter().map(|entry| entry.key));
        let owner = self.units.slots.get(slot).owner();
        let is_dirty = self.units.dirty_slots.contains(slot);
        let class = if is_dirty {
            ClassId::DEFAULT
        } else if self.joins_kept(header.entries.iter().map(|entry| entry.key)) {
            ClassId::KEPT
        } else {
            self.units.classes.of_owner(owner)
        };
        self.units.join(slot, class);
    }

    fn adopt_entry(&mut self, slot: WeuSlot, generation: Generation, entry: &WeuEntry, base: &mut Base) {
        let stored = stored_of(entry.offset_bytes, entry.stored_bytes);
        let key = entry.key;
        let whole = entry.dirty.is_none_or(|span| span.len_bytes() == base.extent_bytes());
        if whole && base.volume(key.volume).is_none_or(|volume| volume.cfg().dedup) {
            self.index.prints.insert(&entry.fingerprint, slot);
        }
        let slot_entry = self.units.slots.get(slot);
        let void = slot_entry.is_filling() || slot_entry.void_bases().contains(&stored.offset_units);
        if entry.dirty.is_some() || void {
            return;
        }
        let mapping = Mapping::Base(self.place(slot, generation, stored));
        if self.trusts(key, base) && !self.was_written(key) {
            match self.index.files.get(key) {
                None => return self.install(key, mapping, base),
                Some(Mapping::Base(place) | Mapping::Duplicate(place))
                    if !self.units.slots.is_live(&place) =>
                {
                    return self.install(key, mapping, base);
                }
                Some(Mapping::Base(place))
                    if self.units.slots.get(place.slot).weu_seq() < self.units.slots.get(slot).weu_seq() =>
                {
                    self.forget(key, base);
                    return self.install(key, mapping, base);
                }
                Some(_) => {}
            }
        }
        base.stats.load_distrusted += 1;
        self.void(key, mapping, base);
    }

    fn was_written(&self, key: ExtentKey) -> bool {
        self.recovery.load.as_ref().is_some_and(|load| load.overflow || load.written.contains(&key))
    }
}

impl Device {
    pub(crate) fn load_op_ended(&mut self, op: Op, ended: Ended, base: &mut Base) {
        match (op, ended) {
            (Op::Header(slot), Ended::Header(result)) => self.header_loaded(slot, result, base),
            (Op::Image(number), Ended::Image(result)) => self.image_piece_read(number, result, base),
            (Op::ProbeOrigin(id), Ended::Origin(result)) => self.probe_read(id, result.is_ok(), base),
            (Op::ProbeRead(id), Ended::Extents(result)) => self.probe_ours_read(id, result, base),
            (Op::ProbeCompare(id), Ended::Compared(equal)) => self.probe_ended(id, Some(equal), base),
            (Op::ProbeHash(id), Ended::Hashed(digest)) => self.probe_hashed(id, digest, base),
            (op, ended) => panic!("{op:?} ended as {ended:?}"),
        }
    }
}
