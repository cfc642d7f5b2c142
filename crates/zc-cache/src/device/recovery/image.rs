//! The index image at a start: it takes the place of headers (`FORMAT.md`, section 10).
//!
//! Job: read the image that [`crate::startup::look`] found, hold it against what checkpoint and journal told of the
//! slots, and put it in the place of the index, all at once.
//!
//! Invariants: until the last piece has been read and nothing speaks against the image, nothing of it counts. So it can
//! be given up at any time; then headers are read. What is mapped meanwhile is in a small index of its own, which goes on
//! top: it is newer. What was written meanwhile is void. The older of two mappings of an extent is recorded as void, as
//! when a header brings it.
//!
//! Slots that hold nothing become free as soon as their part has been read, so that writes find room.
//!
//! What it does not do: read what cannot be checked; stored extents are verified when they are read, as ever.

use zc_core::{ErrorKind, ExtentKey, ExtentNo, Generation, VolumeId, WeuSlot, usize_from_u32};
use zc_format::{FormatError, ImageDirectory, ImageHead, ImagePart, ImagePiece, ImagePlace, ImageSlot};

use crate::base::Base;
use crate::device::Device;
use crate::device::recovery::Op;
use crate::device::recovery::probe::Picker;
use crate::device::units::classes::ClassId;
use crate::device::units::kept::Kept;
use crate::device::units::slots::{Leads, SlotState};
use crate::index::file_index::{FileIndex, IndexShape, Keep, Mapping, SweepCursor};
use crate::index::fingerprint_index::FingerprintIndex;
use crate::seam::{Action, ImageBytes, ImageFault, Note, Purpose};

/// Pieces being read at once.
const PIECES_IN_FLIGHT: u32 = 4;
/// Mappings that there is room for while the image is read. The least recently used of a bucket goes.
const MEANWHILE_ENTRIES: u64 = 1 << 16;

/// An image that is being read.
#[derive(Debug)]
pub(in crate::device) struct ImageLoad {
    head: ImageHead,
    area: usize,
    next: u64,
    in_flight: u32,
    /// Where its pieces lie: the first piece tells.
    directory: Option<ImageDirectory>,
    /// What it says of slots, as far as that has been read.
    slots: Vec<Expected>,
    /// What is to be the index.
    files: FileIndex,
    volumes: Volumes,
}

/// A slot as the image has it.
#[derive(Debug, Clone, Copy)]
struct Expected {
    /// Short generation of the unit that it holds, if it holds one.
    unit: Option<Generation>,
    owner: Option<VolumeId>,
    leads: Leads,
}

/// A volume that the image has mappings of.
#[derive(Debug, Default, Clone, Copy)]
struct Seen {
    /// The last of its extents there, if there is any.
    last: Option<ExtentNo>,
    /// Kept extents of it there.
    kept: u64,
    picker: Picker,
}

/// Volumes that the image has mappings of, by number.
#[derive(Debug, Default)]
struct Volumes {
    seen: Vec<Seen>,
    /// What is compared with the origins.
    picked: Vec<(ExtentKey, Mapping)>,
}

impl Volumes {
    fn take(&mut self, key: ExtentKey, mapping: Mapping, is_kept: bool) {
        let at = usize::from(key.volume.0);
        if self.seen.len() <= at {
            self.seen.resize(at + 1, Seen::default());
        }
        let seen = &mut self.seen[at];
        seen.last = seen.last.max(Some(key.extent));
        seen.kept += u64::from(is_kept);
        if seen.picker.takes() {
            self.picked.push((key, mapping));
        }
    }

    /// How many kept extents of each there are.
    fn kept(&self) -> impl Iterator<Item = (VolumeId, u64)> {
        (0..).map(VolumeId).zip(self.seen.iter().map(|seen| seen.kept))
    }

    /// The last extent of each.
    fn last(&self) -> impl Iterator<Item = ExtentKey> {
        (0..).map(VolumeId).zip(&self.seen).filter_map(|(volume, seen)| {
            let extent = seen.last?;
            Some(ExtentKey { volume, extent })
        })
    }
}

impl ImageLoad {
    /// RAM that it holds beside the index.
    pub(in crate::device) fn ram_bytes(&self) -> u64 {
        self.files.ram_bytes() + zc_core::u64_from_usize(self.slots.capacity() * size_of::<Expected>())
    }

    /// Takes mappings of the file index. False if one leads nowhere.
    fn take_files(&mut self, piece: &ImagePiece, units: &[u8], kept: &Kept) -> bool {
        let Self { slots, files, volumes, .. } = self;
        files.set_buckets(piece.first, piece.count, units, |key, mapping| {
            let is_kept = kept.has(key);
            if let Mapping::Base(place) | Mapping::Duplicate(place) = mapping {
                let slot = slots.get_mut(usize_from_u32(place.slot.0));
                let Some(slot) = slot.filter(|slot| slot.unit == Some(place.generation)) else {
                    return false;
                };
                slot.leads.count(mapping, is_kept);
            }
            volumes.take(key, mapping, is_kept);
            true
        })
    }
}

fn index_shape(base: &Base) -> IndexShape {
    let cfg = base.cfg();
    IndexShape {
        slots: cfg.geometry.slots,
        weu_bytes: cfg.geometry.weu_bytes,
        extent_bytes: cfg.geometry.extent_bytes,
        generation_bits: cfg.generation_bits,
    }
}

impl Device {
    /// Whether an image is being read: the index is a small one meanwhile.
    pub(in crate::device) fn is_reading_image(&self) -> bool {
        self.recovery.load.as_ref().is_some_and(|load| load.image.is_some())
    }

    /// Begins to read an image, in place of headers. False if it does not fit this program.
    pub(super) fn begin_image_load(&mut self, head: ImageHead, area: usize, base: &mut Base) -> bool {
        let own = self.image_shape(base);
        let (mut files, mut prints) = (head.files, head.prints);
        (files.entries, prints.entries) = (0, 0);
        let like_own = ImageHead { files: own.files, prints: own.prints, ..head };
        let shape = ImageHead {
            session: head.session,
            journal_next: head.journal_next,
            checkpoint: head.checkpoint,
            region_map_sequence: head.region_map_sequence,
            ..own
        };
        let Some(load) = &mut self.recovery.load else { return false };
        if like_own != shape || files != own.files || prints != own.prints {
            refuse(ImageFault::Shape, base);
            return false;
        }
        let meanwhile = MEANWHILE_ENTRIES.min(base.cfg().file_index_entries);
        let files = core::mem::replace(&mut self.index.files, FileIndex::new(index_shape(base), meanwhile));
        load.image = Some(Box::new(ImageLoad {
            head,
            area,
            next: 0,
            in_flight: 0,
            directory: None,
            slots: Vec::with_capacity(usize_from_u32(head.slots)),
            files,
            volumes: Volumes::default(),
        }));
        true
    }

    /// Reads pieces, a bounded number at once. The first one tells where the others are. What is said of mappings is held
    /// against what is said of slots, so slots come next.
    pub(super) fn pump_image_load(&mut self, base: &mut Base) {
        let Some(image) = self.recovery.load.as_mut().and_then(|load| load.image.as_mut()) else { return };
        while image.in_flight < PIECES_IN_FLIGHT
            && let Some(piece) = image.head.piece(image.next)
        {
            let are_slots_read = image.slots.len() == usize_from_u32(image.head.slots);
            let may_be_read = match piece.part {
                ImagePart::Directory | ImagePart::Slots => image.in_flight == 0,
                ImagePart::Files | ImagePart::Prints => are_slots_read,
            };
            let place = match &image.directory {
                Some(directory) => directory.place(piece.number),
                None => (piece.part == ImagePart::Directory).then(|| image.head.directory()),
            };
            let Some(ImagePlace { first_block, blocks }) = place.filter(|_| may_be_read) else { return };
            image.next += 1;
            image.in_flight += 1;
            let op = base.port.op(Op::Image(piece.number));
            let area = image.area;
            base.port.emit(Action::ReadImage { op, area, first_block, blocks });
        }
        if image.in_flight == 0 {
            self.end_image_load(base);
        }
    }

    /// A piece was read, or not.
    pub(super) fn image_piece_read(
        &mut self,
        number: u64,
        result: Result<ImageBytes, ErrorKind>,
        base: &mut Base,
    ) {
        match &result {
            Err(error) => base.device_read_failed(Purpose::IndexImage, *error),
            Ok(_) => base.device_read_worked(),
        }
        let Some(load) = self.recovery.load.as_mut() else { return };
        let Some(mut image) = load.image.take() else { return };
        image.in_flight -= 1;
        let taken = result.map_err(ImageFault::Device).and_then(|ImageBytes(bytes)| {
            base.stats.load_image_bytes += zc_core::u64_from_usize(bytes.len());
            self.take_piece(&mut image, number, &bytes, base)
        });
        match taken {
            Ok(()) => {
                if let Some(load) = &mut self.recovery.load {
                    load.image = Some(image);
                }
            }
            Err(fault) => {
                drop(image);
                self.give_up_image(fault, base);
            }
        }
    }

    fn take_piece(
        &mut self,
        image: &mut ImageLoad,
        number: u64,
        bytes: &[u8],
        base: &Base,
    ) -> Result<(), ImageFault> {
        let piece = image.head.piece(number).ok_or(ImageFault::Damaged)?;
        let salt = base.cfg().geometry.salt;
        let head = image.head;
        let units = head.decode_piece(&piece, bytes, salt).map_err(|_: FormatError| ImageFault::Damaged)?;
        match piece.part {
            ImagePart::Directory => {
                let area_blocks = base.cfg().geometry.checkpoint_blocks;
                let directory = ImageDirectory::decode(&head, bytes, area_blocks, salt);
                image.directory = Some(directory.map_err(|_: FormatError| ImageFault::Damaged)?);
                Ok(())
            }
            ImagePart::Slots => self.take_slots(image, units),
            ImagePart::Files => {
                image.take_files(&piece, units, &self.units.kept).then_some(()).ok_or(ImageFault::Damaged)
            }
            ImagePart::Prints => self
                .index
                .prints
                .set_buckets(piece.first, piece.count, units)
                .then_some(())
                .ok_or(ImageFault::Damaged),
        }
    }

    /// What is said of slots has to be what checkpoint and journal left of them. Those that hold nothing are free now.
    fn take_slots(&mut self, image: &mut ImageLoad, units: &[u8]) -> Result<(), ImageFault> {
        for unit in ImageSlot::decode_all(units) {
            let unit = unit.map_err(|_: FormatError| ImageFault::Damaged)?;
            let slot = WeuSlot(u32::try_from(image.slots.len()).unwrap_or(u32::MAX));
            if !self.units.slots.contains(slot) {
                return Err(ImageFault::Damaged);
            }
            let entry = self.units.slots.get(slot);
            let known = entry.state() == SlotState::Unread { known: true };
            let readable = known && !entry.is_retired() && (entry.header_bytes() > 0 || entry.is_filling());
            let is_same = entry.generation() == unit.generation && readable == unit.sealed;
            let is_unit = entry.weu_seq() == unit.weu_seq && entry.is_filling() == unit.filling;
            if !is_same || unit.sealed && !is_unit || !unit.sealed && self.units.dirty_slots.contains(slot) {
                return Err(ImageFault::Slots);
            }
            let short = self.units.slots.short(unit.generation);
            if !unit.sealed {
                if known {
                    self.units.slots.stay_tombstone(slot);
                }
                self.units.slots.release(slot);
            }
            let (unit, owner) = (unit.sealed.then_some(short), unit.owner);
            image.slots.push(Expected { unit, owner, leads: Leads::default() });
        }
        Ok(())
    }

    /// All of the image is here: it takes the place of the index, unless something speaks against it.
    fn end_image_load(&mut self, base: &mut Base) {
        let Some(load) = self.recovery.load.as_mut() else { return };
        let Some(image) = load.image.take() else { return };
        let overtaken = load.overflow || !load.lost.is_empty() && self.meta.regions.inherited_len() > 0;
        let fault = if overtaken {
            Some(ImageFault::Overtaken)
        } else if image.files.len() != image.head.files.entries {
            Some(ImageFault::Damaged)
        } else if !image.volumes.last().all(|key| self.trusts(key, base)) {
            Some(ImageFault::Volumes)
        } else {
            None
        };
        match fault {
            Some(fault) => {
                drop(image);
                self.give_up_image(fault, base);
            }
            None => self.install_image(*image, base),
        }
    }

    fn install_image(&mut self, image: ImageLoad, base: &mut Base) {
        let ImageLoad { slots, files, volumes, .. } = image;
        base.stats.load_by_image = 1;
        base.stats.load_mappings += files.len();
        let meanwhile = core::mem::replace(&mut self.index.files, files);
        self.units.sweeps.restart_files();
        let mut astray = 0;
        for (slot, expected) in (0..).map(WeuSlot).zip(&slots) {
            if expected.unit.is_some() {
                self.adopt_known(slot, expected);
                let is_safe = self.may_keep_in(slot);
                astray += u64::from(if is_safe { 0 } else { expected.leads.kept() });
            }
        }
        volumes.kept().for_each(|(volume, extents)| self.units.kept.found(volume, extents, astray));
        let newer = mappings_of(meanwhile);
        for (key, mapping) in &newer {
            self.forget_older(*key, *mapping, base);
        }
        for key in self.take_written() {
            if newer.binary_search_by_key(&key, |(newer, _)| *newer).is_err() {
                self.forget(key, base);
            }
        }
        self.keep_newer(newer, base);
        volumes.picked.into_iter().for_each(|(key, mapping)| self.recovery.probes.pick(key, mapping));
        self.recovery.load = None;
        self.load_ended(base);
    }

    /// The unit in the slot is the one that checkpoint or journal named, with what the image has of it.
    fn adopt_known(&mut self, slot: WeuSlot, expected: &Expected) {
        let Expected { owner, leads, .. } = *expected;
        self.units.slots.adopt_known(slot, owner, &leads);
        let class = if self.units.dirty_slots.contains(slot) {
            ClassId::DEFAULT
        } else if self.joins_kept_with(&leads) {
            ClassId::KEPT
        } else {
            self.units.classes.of_owner(owner)
        };
        self.units.join(slot, class);
    }

    /// The image has a mapping of an extent that was mapped anew meanwhile.
    fn forget_older(&mut self, key: ExtentKey, newer: Mapping, base: &mut Base) {
        let Some(older) = self.index.files.remove(key) else { return };
        self.count_unmapped(key, older, base);
        // The record of a newer duplicate, or of newer zeros, took the place of the older one's.
        if matches!(older, Mapping::Base(_)) || matches!(newer, Mapping::Base(_)) {
            self.void(key, older, base);
        }
    }

    /// Puts mappings of this session into the index. They are counted and recorded already.
    fn keep_newer(&mut self, newer: Vec<(ExtentKey, Mapping)>, base: &mut Base) {
        for (key, mapping) in newer {
            self.put_counted(key, mapping, base);
        }
    }

    /// The extents that were written since the start, in order.
    fn take_written(&mut self) -> Vec<ExtentKey> {
        let written = self.recovery.load.as_mut().map(|load| load.written.drain());
        let mut written: Vec<_> = written.into_iter().flatten().collect();
        written.sort_unstable();
        written
    }

    /// Nothing of the image counts: headers are read, and what checkpoint and journal told of mappings is taken from
    /// there.
    fn give_up_image(&mut self, fault: ImageFault, base: &mut Base) {
        refuse(fault, base);
        if !base.is_good() {
            return;
        }
        let cfg = base.cfg();
        let files = FileIndex::new(index_shape(base), cfg.file_index_entries);
        let prints = FingerprintIndex::new(index_shape(base), cfg.fingerprint_index_entries);
        let meanwhile = core::mem::replace(&mut self.index.files, files);
        self.index.prints = prints;
        self.units.sweeps.restart_files();
        self.keep_newer(mappings_of(meanwhile), base);
        self.install_replayed(base);
    }
}

fn refuse(fault: ImageFault, base: &mut Base) {
    base.stats.load_image_refused = 1;
    base.port.emit(Action::Note(Note::ImageRefused { fault }));
}

/// The mappings of an index, in order.
fn mappings_of(mut index: FileIndex) -> Vec<(ExtentKey, Mapping)> {
    let mut mappings = Vec::new();
    index.sweep(&mut SweepCursor::default(), usize::MAX, |key, mapping| {
        mappings.push((key, mapping));
        Keep::Yes
    });
    mappings.sort_unstable_by_key(|(key, _)| *key);
    mappings
}
