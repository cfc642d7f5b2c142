//! Restart path: replays records of checkpoint, journal and intent log, then reads WEU headers in the background while
//! requests are served. After a clean stop an image of the index may replace the headers (see `image`).
//!
//! A header is trusted if it was written since the cache was formatted, its generation is not invalid, and it matches
//! the slot's WEU in checkpoint or journal, where they name one: this detects a slot that a device rolled back. Its
//! base entries become mappings unless they are invalid, their region was marked when the last session was cut off,
//! the volume is not trusted, or the extent was written since the start. Distrusted mappings are recorded as invalid,
//! so that the next start distrusts them as well. Its fingerprints are indexed in any case, because contents are
//! verified.

use std::collections::BTreeMap;

use zc_core::{
    ErrorKind, ExtentKey, Generation, HashKey, KeyedMap, KeyedSet, RegionKey, Set, VolumeId, WeuSlot,
};
use zc_format::{ImageHead, Record, WeuEntry, WeuHeader};

use crate::base::port::Ended;
use crate::base::{Base, Loading};
use crate::config::VolumeConfig;
use crate::device::catalog::Catalog;
use crate::device::meta::regions::Regions;
use crate::device::recovery::dirty_replay::{DirtyReplay, DirtyReplays};
use crate::device::recovery::image::{self, ImageLoad};
use crate::device::recovery::probe::Probes;
use crate::device::slots::Slots;
use crate::device::slots::class_id::ClassId;
use crate::device::slots::table::{SlotState, SlotTable};
use crate::device::stored::stored_of;
use crate::index::CALLED_UP;
use crate::index::file_index::{Mapping, Place};
use crate::ops::load::Op;
use crate::seam::{Action, ImageBytes, ImageFault, Purpose};
use crate::startup::StartState;

/// Maximum header reads in flight.
const HEADERS_IN_FLIGHT: u32 = 32;
/// Maximum number of extents written during the load that are recorded individually; beyond it, all unloaded mappings
/// are distrusted.
const WRITTEN_MAX: usize = 1 << 20;

/// A mapping to install, with the full generation.
#[derive(Debug, Clone, Copy)]
enum Replayed {
    Zero,
    Duplicate(Place),
}

/// State found on the device by the start, as far as it is still valid.
#[derive(Debug)]
struct Restart {
    /// Records replayed from summaries and the intent log, which the journal lacks.
    unjournaled: Vec<Record>,
    /// Checkpoint, region map and journal are consistent with each other.
    mapping_trusted: bool,
    /// The last session ended cleanly, or its intent log is complete.
    intact: bool,
    /// The cache has not been written since it was formatted.
    fresh: bool,
    /// Volumes with commits that the start dropped.
    dropped_commits: Vec<VolumeId>,
    /// Volumes with commits that were accepted without proof.
    unproved_commits: Vec<VolumeId>,
    /// Volumes whose dirty data was incomplete at an earlier start.
    fenced_before: Vec<VolumeId>,
    /// An index image that may be read, and its checkpoint area.
    image: Option<(ImageHead, usize)>,
}

/// Pending work of a start.
#[derive(Debug)]
pub(crate) struct Recovery {
    load: Option<Load>,
    probes: Probes,
    restart: Restart,
    dirty: DirtyReplays,
}

impl Recovery {
    /// Creates the recovery from the state found on the device.
    pub(crate) fn new(key: &HashKey, start: StartState) -> Self {
        Self {
            load: Some(Load::new(key)),
            probes: Probes::default(),
            dirty: DirtyReplays::new(start.dirty_complete),
            restart: Restart {
                unjournaled: start.unjournaled,
                mapping_trusted: start.mapping_trusted,
                intact: start.intact,
                fresh: start.fresh,
                dropped_commits: start.dropped_commits,
                unproved_commits: start.unproved_commits,
                fenced_before: start.fenced,
                image: start.index_image,
            },
        }
    }
}

/// Queries about the start by the layers above.
impl Recovery {
    /// Adds a volume. Mappings of untrusted volumes are not loaded, so there is nothing to compare.
    pub(crate) fn add_volume(&mut self, cfg: &VolumeConfig, base: &Base) {
        let closed = !base.is_loaded() && cfg.trusted && self.restart.mapping_trusted;
        self.probes.add(cfg.id, closed);
    }

    /// Handles a device failure: stops reading.
    pub(crate) fn give_up(&mut self, base: &mut Base) {
        self.load = None;
        base.set_loading(Loading::Nothing);
    }

    /// RAM of the image being read, in bytes.
    pub(crate) fn image_ram_bytes(&self) -> u64 {
        let image = self.load.as_ref().and_then(|load| load.image.as_ref());
        image.map_or(0, |image| image.ram_bytes())
    }

    pub(crate) const fn probes(&self) -> &Probes {
        &self.probes
    }

    pub(crate) const fn probes_mut(&mut self) -> &mut Probes {
        &mut self.probes
    }

    /// Takes the replayed dirty data of checkpoint, journal and intent log.
    pub(crate) fn take_dirty_replays(&mut self) -> BTreeMap<VolumeId, DirtyReplay> {
        self.dirty.take()
    }

    /// Returns `true` if the start dropped commits of the volume.
    pub(crate) fn has_dropped_commits(&self, volume: VolumeId) -> bool {
        self.restart.dropped_commits.contains(&volume)
    }

    /// Returns `true` if dropped commits may have been acknowledged to clients.
    pub(crate) fn drops_are_doubtful(&self) -> bool {
        !self.restart.intact
    }

    /// Returns `true` if the start accepted a commit of the volume without proof.
    pub(crate) fn has_unproved_commit(&self, volume: VolumeId) -> bool {
        self.restart.unproved_commits.contains(&volume)
    }

    /// Returns `true` if journal and checkpoint contain all dirty data of the volume, at this start and earlier ones.
    pub(crate) fn knows_dirty_data(&self, volume: VolumeId) -> bool {
        self.dirty.are_complete() && !self.restart.fenced_before.contains(&volume)
    }
}

#[derive(Debug)]
struct Load {
    /// Duplicate and zero mappings after the replay.
    mappings: KeyedMap<ExtentKey, Replayed>,
    /// Duplicates in WEUs that neither checkpoint nor journal names.
    late: BTreeMap<WeuSlot, Vec<(ExtentKey, Place)>>,
    next: u32,
    in_flight: u32,
    written: KeyedSet<ExtentKey>,
    overflow: bool,
    /// Volumes whose origins failed to flush during the load, and may have lost writes of earlier sessions.
    lost: Set<VolumeId>,
    /// Index image, while it is read in place of headers.
    image: Option<Box<ImageLoad>>,
}

impl Load {
    fn new(key: &HashKey) -> Self {
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

/// Adopts a dirty unit without a header, or a unit with dirty data whose header cannot be read now: records describe
/// its contents, and each extent is verified when it is read. If the header becomes readable later, its base entries
/// are not trusted, because changes of these extents are not recorded until then.
fn adopt_headerless(slot: WeuSlot, catalog: &mut Catalog, base: &mut Base) {
    catalog.table_mut().adopt_headerless(slot);
    let entry = catalog.table().get(slot);
    let (generation, weu_seq) = (entry.generation(), entry.weu_seq());
    catalog.slots_mut().join(slot, ClassId::DEFAULT);
    catalog.record(Record::SlotDirty { slot, generation, weu_seq }, base);
}

impl Recovery {
    /// Replays a record of the intent log, and keeps it to be recorded again: the journal lacks it.
    pub(crate) fn replay_intent(&mut self, record: &Record, table: &mut SlotTable) {
        self.dirty.keep_bodies(record);
        self.replay(record, table);
        self.restart.unjournaled.push(*record);
    }

    /// Replays a record of checkpoint or journal.
    pub(crate) fn replay(&mut self, record: &Record, table: &mut SlotTable) {
        match *record {
            Record::SlotSealed { slot, generation, weu_seq, header_bytes } => {
                if table.adopt_generation(slot, generation) {
                    table.adopt_unit(slot, weu_seq, Some(header_bytes));
                }
            }
            Record::SlotRetired { slot, generation } => {
                if table.adopt_generation(slot, generation) {
                    table.adopt_retirement(slot);
                }
            }
            Record::BaseInvalid { slot, generation, offset_units, .. } => {
                if table.adopt_generation(slot, generation) {
                    table.adopt_void_base(slot, offset_units);
                }
            }
            Record::Duplicate { key, slot, generation, offset_units, pages } => {
                if table.contains(slot) {
                    // The WEU may be lost with the session that filled it. Its generation must not be reused: this
                    // record would then refer to other content.
                    table.adopt_generation(slot, generation);
                    let place = Place { slot, generation, offset_units, pages };
                    self.replayed(key, Some(Replayed::Duplicate(place)));
                }
            }
            Record::Zero { key } => self.replayed(key, Some(Replayed::Zero)),
            Record::Unmap { key } => self.replayed(key, None),
            Record::SlotDirty { slot, generation, weu_seq } => {
                if table.adopt_generation(slot, generation) {
                    table.adopt_unit(slot, weu_seq, None);
                }
            }
            Record::Dirty { .. }
            | Record::DirtyZero { .. }
            | Record::Committed { .. }
            | Record::Clean { .. }
            | Record::DirtyReset { .. } => self.dirty.replay(record, table),
            // Determines earlier which commits are replayed.
            Record::Durable { .. } => {}
        }
    }

    /// Completes the replay: its results become mappings, and reading of headers starts.
    pub(crate) fn begin(&mut self, catalog: &mut Catalog, base: &mut Base) {
        let restart = &mut self.restart;
        let is_believed = restart.intact && restart.mapping_trusted && !restart.fresh;
        let image = restart.image.take().filter(|_| is_believed);
        if let (Some((head, area)), Some(load)) = (image, &mut self.load) {
            load.image = ImageLoad::begin(head, area, catalog, base);
            if load.image.is_some() {
                // The image includes the mappings of checkpoint and journal.
                base.set_loading(Loading::Image);
                return;
            }
        }
        self.install_replayed(catalog, base);
        if self.restart.fresh {
            for slot in 0..catalog.table().len() {
                catalog.table_mut().release(WeuSlot(slot));
            }
            self.load_ended(catalog, base);
        }
    }

    /// Records the replayed entries that the journal lacks.
    pub(crate) fn record_unjournaled(&mut self, catalog: &mut Catalog, base: &mut Base) {
        for record in core::mem::take(&mut self.restart.unjournaled) {
            self.dirty.note_unjournaled(&record);
            catalog.record(record, base);
        }
    }

    fn replayed(&mut self, key: ExtentKey, mapping: Option<Replayed>) {
        let Some(load) = &mut self.load else { return };
        match mapping {
            Some(mapping) => {
                load.mappings.insert(key, mapping);
            }
            None => {
                load.mappings.remove(&key);
            }
        }
    }

    fn install_replayed(&mut self, catalog: &mut Catalog, base: &mut Base) {
        let Some(load) = &mut self.load else { return };
        let mut mappings: Vec<_> = load.mappings.drain().collect();
        mappings.sort_unstable_by_key(|(key, _)| *key);
        let is_first = load.written.is_empty() && catalog.files().is_empty();
        for (key, mapping) in mappings {
            let newer = catalog.mapping(key).filter(|_| !is_first);
            if newer.is_some() {
                supersede(key, newer, catalog, base);
                continue;
            }
            if !is_first && self.was_written(key) || !self.trusts(key, catalog.meta().regions(), base) {
                base.stats.load_distrusted += 1;
                catalog.record(Record::Unmap { key }, base);
                continue;
            }
            match mapping {
                Replayed::Zero => self.install(key, Mapping::Zero, catalog, base),
                Replayed::Duplicate(place) => {
                    let slot = catalog.table().get(place.slot);
                    let known = slot.state() == SlotState::Unread { known: true } && !slot.is_retired();
                    if slot.generation() == place.generation && known {
                        self.install_duplicate(key, place, catalog, base);
                    } else if place.generation >= slot.generation()
                        && !(slot.is_retired() && place.generation == slot.generation())
                        && let Some(load) = &mut self.load
                    {
                        load.late.entry(place.slot).or_default().push((key, place));
                    }
                }
            }
        }
    }

    fn install_duplicate(&mut self, key: ExtentKey, place: Place, catalog: &mut Catalog, base: &mut Base) {
        let generation = catalog.table().short(place.generation);
        self.install(key, Mapping::Duplicate(Place { generation, ..place }), catalog, base);
    }

    pub(crate) fn install(
        &mut self,
        key: ExtentKey,
        mapping: Mapping,
        catalog: &mut Catalog,
        base: &mut Base,
    ) {
        base.stats.load_mappings += 1;
        self.probes.loaded(key, mapping);
        catalog.put(key, mapping, base);
    }

    /// Returns `true` if a mapping from media may be trusted.
    fn trusts(&self, key: ExtentKey, regions: &Regions, base: &Base) -> bool {
        let Some(volume) = base.volume(key.volume) else { return false };
        let region = RegionKey {
            volume: key.volume,
            region: key.extent.0 * u64::from(base.extent_bytes()) / volume.cfg().region_bytes,
        };
        self.restart.mapping_trusted
            && volume.cfg().trusted
            && volume.has_whole(key.extent)
            && !(regions.is_inherited(&region) && self.doubts_inherited(key.volume))
    }

    fn doubts_inherited(&self, volume: VolumeId) -> bool {
        !self.restart.intact || self.load.as_ref().is_some_and(|load| load.lost.contains(&volume))
    }

    /// Handles a failed origin flush: unloaded mappings of the regions that earlier sessions wrote are distrusted.
    pub(crate) fn doubt_inherited(&mut self, volume: VolumeId) {
        if let Some(load) = &mut self.load {
            load.lost.insert(volume);
        }
    }

    /// Records a write of an extent: its entries in headers still to be read are invalid.
    pub(crate) fn remember_written(&mut self, key: ExtentKey, catalog: &mut Catalog, base: &mut Base) {
        let Some(load) = &mut self.load else { return };
        if load.written.len() < WRITTEN_MAX {
            load.written.insert(key);
        } else {
            load.overflow = true;
        }
        if load.late.values().any(|late| late.iter().any(|(other, _)| *other == key)) {
            for late in load.late.values_mut() {
                late.retain(|(other, _)| *other != key);
            }
            catalog.record(Record::Unmap { key }, base);
        }
    }

    /// Reads headers with a bounded number in flight, as fast as the journal accepts the invalidations.
    pub(crate) fn pump_load(&mut self, catalog: &mut Catalog, base: &mut Base) {
        if base.is_good() && base.is_reading_image() {
            self.pump_image(catalog, base);
        }
        if !base.is_good() || base.is_reading_image() || catalog.meta().is_pressed() {
            return;
        }
        while let Some(load) = &mut self.load {
            if load.next == catalog.table().len() {
                if load.in_flight == 0 {
                    self.load_ended(catalog, base);
                }
                return;
            }
            if load.in_flight == HEADERS_IN_FLIGHT {
                return;
            }
            let slot = WeuSlot(load.next);
            load.next += 1;
            if !matches!(catalog.table().get(slot).state(), SlotState::Unread { .. }) {
                // An abandoned image showed that the slot is empty.
                continue;
            }
            load.in_flight += 1;
            let hint_bytes = catalog.table().get(slot).header_bytes();
            let op = base.port.op(Op::Header(slot));
            base.port.emit(Action::ReadHeader { op, slot, hint_bytes });
        }
    }

    /// Completes the load.
    fn load_ended(&mut self, catalog: &mut Catalog, base: &mut Base) {
        self.load = None;
        base.set_loading(Loading::Nothing);
        // Recency of earlier sessions is not on media; age is the best estimate.
        catalog.slots_mut().order_by_age();
        let untrusted = base.volumes().any(|volume| !volume.cfg().trusted);
        if untrusted || !self.restart.mapping_trusted {
            catalog.meta_mut().want_voids();
        }
        base.port.emit(Action::IntentReady);
    }

    fn header_loaded(
        &mut self,
        slot: WeuSlot,
        result: Result<Option<Box<WeuHeader>>, ErrorKind>,
        catalog: &mut Catalog,
        base: &mut Base,
    ) {
        let Some(load) = &mut self.load else { return };
        load.in_flight -= 1;
        let late = load.late.remove(&slot).unwrap_or_default();
        base.stats.load_headers += 1;
        if let Err(error) = result {
            base.device_read_failed(Purpose::HeaderRead, error);
            if !base.is_good() {
                return;
            }
        }
        match result {
            Ok(Some(header)) if self.believes(&header, catalog.table(), base) => {
                self.adopt_header(slot, &header, &late, catalog, base);
            }
            other => self.drop_unbelieved(slot, &other, catalog, base),
        }
    }

    /// Invalidates a slot that is empty or contradicts checkpoint and journal, whatever its contents were. A header
    /// that could not be read now may be readable at the next start, with mappings that are stale by then: a tombstone
    /// prevents that. After a start without complete journal and checkpoint, this includes slots that seem empty: a
    /// device that misread the header once may return it the next time.
    fn drop_unbelieved(
        &mut self,
        slot: WeuSlot,
        result: &Result<Option<Box<WeuHeader>>, ErrorKind>,
        catalog: &mut Catalog,
        base: &mut Base,
    ) {
        if catalog.slots().dirty().contains(slot) || catalog.table().get(slot).is_filling() {
            adopt_headerless(slot, catalog, base);
            return;
        }
        let found = result.as_ref().ok().and_then(Option::as_ref).map(|header| header.generation);
        let weu_seq = base.session.next();
        let entry = catalog.table().get(slot);
        let known = entry.state() == SlotState::Unread { known: true };
        let unsure = !(self.restart.intact && self.restart.mapping_trusted);
        if known && entry.header_bytes() == 0 {
            catalog.table_mut().stay_tombstone(slot);
        } else if result.is_err() || known || unsure || found.is_some_and(|found| found > entry.generation())
        {
            let newest = found.unwrap_or_default().max(entry.generation());
            let generation = Generation(newest.0 + 1);
            catalog.table_mut().make_tombstone(slot, generation, weu_seq);
            base.session.take_next();
            catalog.record(Record::SlotSealed { slot, generation, weu_seq, header_bytes: 0 }, base);
        } else if entry.generation().0 > 0 && !entry.is_retired() {
            let generation = entry.generation();
            catalog.record(Record::SlotRetired { slot, generation }, base);
        }
        catalog.table_mut().release(slot);
    }

    fn believes(&self, header: &WeuHeader, table: &SlotTable, base: &Base) -> bool {
        let slot = table.get(header.slot);
        if base.session.is_of_earlier_cache(header.session) {
            return false;
        }
        match slot.state() {
            SlotState::Unread { known: true } => {
                header.generation == slot.generation()
                    && header.weu_seq == slot.weu_seq()
                    && !slot.is_retired()
            }
            // Units of sessions before the last that no record names were misread, or abandoned by a session in
            // between.
            SlotState::Unread { known: false }
                if self.restart.mapping_trusted && header.session + 1 < base.session.number() =>
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
        catalog: &mut Catalog,
        base: &mut Base,
    ) {
        let bytes = WeuHeader::encoded_bytes(u32::try_from(header.entries.len()).unwrap_or(u32::MAX));
        base.stats.load_header_bytes += u64::from(bytes);
        base.device_read_worked();
        let known = catalog.table_mut().adopt_header(slot, header.generation, header.weu_seq, bytes);
        join_loaded(slot, header, catalog.slots_mut());
        if !known {
            let (generation, weu_seq) = (header.generation, header.weu_seq);
            catalog.record(Record::SlotSealed { slot, generation, weu_seq, header_bytes: bytes }, base);
        }
        for (key, place) in late.iter().filter(|(_, place)| place.generation == header.generation) {
            match catalog.mapping(*key) {
                None if self.trusts(*key, catalog.meta().regions(), base) && !self.was_written(*key) => {
                    self.install_duplicate(*key, *place, catalog, base);
                }
                newer => supersede(*key, newer, catalog, base),
            }
        }
        for entries in header.entries.chunks(CALLED_UP) {
            for entry in entries {
                catalog.files().call_up(entry.key);
                catalog.contents().prints().call_up(&entry.fingerprint);
            }
            for entry in entries {
                self.adopt_entry(slot, header.generation, entry, catalog, base);
            }
        }
        // All of its pinned extents may have newer copies elsewhere; then no event would ever release it.
        catalog.slots_mut().nothing_kept_in(slot, base);
    }

    fn adopt_entry(
        &mut self,
        slot: WeuSlot,
        generation: Generation,
        entry: &WeuEntry,
        catalog: &mut Catalog,
        base: &mut Base,
    ) {
        let stored = stored_of(entry.offset_bytes, entry.stored_bytes);
        let key = entry.key;
        let whole = entry.dirty.is_none_or(|span| span.len_bytes() == base.extent_bytes());
        if whole && base.volume(key.volume).is_none_or(|volume| volume.cfg().dedup) {
            catalog.contents_mut().prints_mut().insert(&entry.fingerprint, slot);
        }
        let slot_entry = catalog.table().get(slot);
        let void = slot_entry.is_filling() || slot_entry.void_bases().contains(&stored.offset_units);
        if entry.dirty.is_some() || void {
            return;
        }
        let mapping = Mapping::Base(catalog.place(slot, generation, stored));
        if self.trusts(key, catalog.meta().regions(), base) && !self.was_written(key) {
            match catalog.mapping(key) {
                None => return self.install(key, mapping, catalog, base),
                Some(Mapping::Base(place) | Mapping::Duplicate(place))
                    if !catalog.table().is_live(&place) =>
                {
                    return self.install(key, mapping, catalog, base);
                }
                Some(Mapping::Base(place))
                    if catalog.table().get(place.slot).weu_seq() < catalog.table().get(slot).weu_seq() =>
                {
                    catalog.forget(key, base);
                    return self.install(key, mapping, catalog, base);
                }
                Some(_) => {}
            }
        }
        base.stats.load_distrusted += 1;
        catalog.void(key, mapping, base);
    }

    fn was_written(&self, key: ExtentKey) -> bool {
        self.load.as_ref().is_some_and(|load| load.overflow || load.written.contains(&key))
    }
}

/// Index image.
impl Recovery {
    fn pump_image(&mut self, catalog: &mut Catalog, base: &mut Base) {
        let Some(load) = &mut self.load else { return };
        if load.image.as_mut().is_some_and(|image| image.pump(base)) {
            self.end_image(catalog, base);
        }
    }

    /// Handles the completion of a piece's read.
    fn image_piece_read(
        &mut self,
        number: u64,
        result: Result<ImageBytes, ErrorKind>,
        catalog: &mut Catalog,
        base: &mut Base,
    ) {
        match &result {
            Err(error) => base.device_read_failed(Purpose::IndexImage, *error),
            Ok(_) => base.device_read_worked(),
        }
        let Some(image) = self.load.as_mut().and_then(|load| load.image.as_mut()) else { return };
        if let Err(fault) = image.piece_read(number, result, catalog, base) {
            self.give_up_image(fault, catalog, base);
        }
    }

    /// Completes the reading of the image, which replaces the index unless there is a contradiction.
    fn end_image(&mut self, catalog: &mut Catalog, base: &mut Base) {
        let Some(load) = &mut self.load else { return };
        let Some(image) = load.image.take() else { return };
        let regions = catalog.meta().regions();
        let overtaken = load.overflow || !load.lost.is_empty() && regions.inherited_len() > 0;
        let fault = if overtaken {
            Some(ImageFault::Overtaken)
        } else {
            image.fault(|key| self.trusts(key, regions, base))
        };
        if let Some(fault) = fault {
            drop(image);
            return self.give_up_image(fault, catalog, base);
        }
        base.set_loading(Loading::Headers);
        let written = self.take_written();
        for (key, mapping) in image.install(written, catalog, base) {
            self.probes.pick(key, mapping);
        }
        self.load_ended(catalog, base);
    }

    /// Returns the extents written since the start, in order.
    fn take_written(&mut self) -> Vec<ExtentKey> {
        let written = self.load.as_mut().map(|load| load.written.drain());
        let mut written: Vec<_> = written.into_iter().flatten().collect();
        written.sort_unstable();
        written
    }

    /// Abandons the image: headers are read, and mappings come from checkpoint and journal.
    fn give_up_image(&mut self, fault: ImageFault, catalog: &mut Catalog, base: &mut Base) {
        if let Some(load) = &mut self.load {
            load.image = None;
            base.set_loading(Loading::Headers);
        }
        if image::give_up(fault, catalog, base) {
            self.install_replayed(catalog, base);
        }
    }
}

impl Recovery {
    /// Handles the completion of an operation of the start.
    pub(crate) fn op_ended(&mut self, op: Op, ended: Ended, catalog: &mut Catalog, base: &mut Base) {
        let Self { probes, .. } = self;
        match (op, ended) {
            (Op::Header(slot), Ended::Header(result)) => self.header_loaded(slot, result, catalog, base),
            (Op::Image(number), Ended::Image(result)) => {
                self.image_piece_read(number, result, catalog, base);
            }
            (Op::ProbeOrigin(id), Ended::Origin(result)) => probes.read(id, result.is_ok(), catalog, base),
            (Op::ProbeRead(id), Ended::Extents(result)) => probes.ours_read(id, result, catalog, base),
            (Op::ProbeCompare(id), Ended::Compared(equal)) => probes.ended(id, Some(equal), catalog, base),
            (Op::ProbeHash(id), Ended::Hashed(digest)) => probes.hashed(id, digest, catalog, base),
            (op, ended) => panic!("{op:?} ended as {ended:?}"),
        }
    }
}

/// Drops a mapping of checkpoint and journal whose extent has a newer one, or none. The record of newer zeros or a
/// newer duplicate has replaced the older record. A base has no record.
fn supersede(key: ExtentKey, newer: Option<Mapping>, catalog: &mut Catalog, base: &mut Base) {
    if matches!(newer, None | Some(Mapping::Base(_))) {
        catalog.record(Record::Unmap { key }, base);
    }
}

/// Adds a loaded unit to its class by the owner in its header; its dirty data was counted by the replay.
fn join_loaded(slot: WeuSlot, header: &WeuHeader, slots: &mut Slots) {
    let keys = header.entries.iter().map(|entry| entry.key);
    slots.set_owner(slot, keys.clone());
    slots.join_found(slot, |slots| slots.joins_kept(keys));
}
