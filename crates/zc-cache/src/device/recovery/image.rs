//! Loads the index image at a start, which replaces reading headers (`FORMAT.md`, section 10).
//!
//! Reads the image that [`crate::startup::look`] found, compares it with the slots in checkpoint and journal, and
//! replaces the index by it at once.
//!
//! Invariants: the image has no effect until all of it has been read without a contradiction. So it can be abandoned
//! at any time; then headers are read. Mappings made during the load are in a small index of their own, which takes
//! precedence: they are newer. Extents written during the load are invalid in the image. The older of two mappings of
//! an extent is recorded as invalid, as when a header is loaded.
//!
//! Empty slots become free as soon as their part has been read, so that writes find free slots.
//!
//! Out of scope: contents that cannot be checked; stored extents are verified when they are read, as always.

use zc_core::{ErrorKind, ExtentKey, ExtentNo, Generation, VolumeId, WeuSlot, usize_from_u32};
use zc_format::{FormatError, ImageDirectory, ImageHead, ImagePart, ImagePiece, ImagePlace, ImageSlot};

use crate::base::Base;
use crate::device::catalog::Catalog;
use crate::device::recovery::probe::Picker;
use crate::device::slots::Slots;
use crate::device::slots::kept::KeptExtents;
use crate::device::slots::{mapping_counts::MappingCounts, table::SlotState};
use crate::device::snapshot::image::image_shape;
use crate::index::file_index::{FileIndex, IndexShape, Keep, Mapping, SweepCursor};
use crate::ops::load::Op;
use crate::seam::{Action, ImageBytes, ImageFault, Note};

/// Maximum reads of pieces in flight.
const PIECES_IN_FLIGHT: u32 = 4;
/// Capacity of the small index during the load, with LRU eviction in each bucket.
const MEANWHILE_ENTRIES: u64 = 1 << 16;

/// An image being loaded.
#[derive(Debug)]
pub(crate) struct ImageLoad {
    head: ImageHead,
    area: usize,
    next: u64,
    in_flight: u32,
    /// Positions of the pieces, from the first piece.
    directory: Option<ImageDirectory>,
    /// States of slots in the image, as far as they have been read.
    slots: Vec<Expected>,
    files: FileIndex,
    volumes: Volumes,
}

#[derive(Debug, Clone, Copy)]
struct Expected {
    /// Short generation of its unit, if any.
    unit: Option<Generation>,
    owner: Option<VolumeId>,
    mappings: MappingCounts,
}

/// A volume with mappings in the image.
#[derive(Debug, Default, Clone, Copy)]
struct ImageVolume {
    /// Last mapped extent, if any.
    last: Option<ExtentNo>,
    kept: u64,
    picker: Picker,
}

/// Volumes with mappings in the image, by number.
#[derive(Debug, Default)]
struct Volumes {
    seen: Vec<ImageVolume>,
    /// Mappings to compare with the origins.
    picked: Vec<(ExtentKey, Mapping)>,
}

impl Volumes {
    fn take(&mut self, key: ExtentKey, mapping: Mapping, is_kept: bool) {
        let at = usize::from(key.volume.0);
        if self.seen.len() <= at {
            self.seen.resize(at + 1, ImageVolume::default());
        }
        let seen = &mut self.seen[at];
        seen.last = seen.last.max(Some(key.extent));
        seen.kept += u64::from(is_kept);
        if seen.picker.takes() {
            self.picked.push((key, mapping));
        }
    }

    fn kept(&self) -> impl Iterator<Item = (VolumeId, u64)> {
        (0..).map(VolumeId).zip(self.seen.iter().map(|seen| seen.kept))
    }

    fn last(&self) -> impl Iterator<Item = ExtentKey> {
        (0..).map(VolumeId).zip(&self.seen).filter_map(|(volume, seen)| {
            let extent = seen.last?;
            Some(ExtentKey { volume, extent })
        })
    }
}

impl ImageLoad {
    /// RAM besides the index, in bytes.
    pub(crate) fn ram_bytes(&self) -> u64 {
        self.files.ram_bytes() + zc_core::u64_from_usize(self.slots.capacity() * size_of::<Expected>())
    }

    /// Loads mappings of the file index. Returns `false` if one has no valid target.
    fn take_files(&mut self, piece: &ImagePiece, units: &[u8], kept: &KeptExtents) -> bool {
        let Self { slots, files, volumes, .. } = self;
        files.set_buckets(piece.first, piece.count, units, |key, mapping| {
            let is_kept = kept.has(key);
            if let Mapping::Base(place) | Mapping::Duplicate(place) = mapping {
                let slot = slots.get_mut(usize_from_u32(place.slot.0));
                let Some(slot) = slot.filter(|slot| slot.unit == Some(place.generation)) else {
                    return false;
                };
                slot.mappings.count(mapping, is_kept);
            }
            volumes.take(key, mapping, is_kept);
            true
        })
    }

    /// Begins to load an image in place of headers. Returns `None` if it does not fit this program.
    pub(super) fn begin(
        head: ImageHead,
        area: usize,
        catalog: &mut Catalog,
        base: &mut Base,
    ) -> Option<Box<Self>> {
        let own = image_shape(catalog, base);
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
        if like_own != shape || files != own.files || prints != own.prints {
            refuse(ImageFault::Shape, base);
            return None;
        }
        let meanwhile = MEANWHILE_ENTRIES.min(base.cfg().file_index_entries);
        let files = catalog.replace_files(FileIndex::new(IndexShape::of(base.cfg()), meanwhile));
        Some(Box::new(Self {
            head,
            area,
            next: 0,
            in_flight: 0,
            directory: None,
            slots: Vec::with_capacity(usize_from_u32(head.slots)),
            files,
            volumes: Volumes::default(),
        }))
    }

    /// Reads pieces, with a bounded number in flight. The first one holds the positions of the others. Slots come next
    /// because mappings are checked against them. Returns `true` when all have been read.
    pub(super) fn pump(&mut self, base: &mut Base) -> bool {
        while self.in_flight < PIECES_IN_FLIGHT
            && let Some(piece) = self.head.piece(self.next)
        {
            let are_slots_read = self.slots.len() == usize_from_u32(self.head.slots);
            let may_be_read = match piece.part {
                ImagePart::Directory | ImagePart::Slots => self.in_flight == 0,
                ImagePart::Files | ImagePart::Prints => are_slots_read,
            };
            let place = match &self.directory {
                Some(directory) => directory.place(piece.number),
                None => (piece.part == ImagePart::Directory).then(|| self.head.directory()),
            };
            let Some(ImagePlace { first_block, blocks }) = place.filter(|_| may_be_read) else {
                return false;
            };
            self.next += 1;
            self.in_flight += 1;
            let op = base.port.op(Op::Image(piece.number));
            let area = self.area;
            base.port.emit(Action::ReadImage { op, area, first_block, blocks });
        }
        self.in_flight == 0
    }

    /// Handles the completion of a piece's read.
    ///
    /// # Errors
    /// Returns the contradiction found, if any.
    pub(super) fn piece_read(
        &mut self,
        number: u64,
        result: Result<ImageBytes, ErrorKind>,
        catalog: &mut Catalog,
        base: &mut Base,
    ) -> Result<(), ImageFault> {
        self.in_flight -= 1;
        result.map_err(ImageFault::Device).and_then(|ImageBytes(bytes)| {
            base.stats.load_image_bytes += zc_core::u64_from_usize(bytes.len());
            self.take_piece(number, &bytes, catalog, base)
        })
    }

    fn take_piece(
        &mut self,
        number: u64,
        bytes: &[u8],
        catalog: &mut Catalog,
        base: &Base,
    ) -> Result<(), ImageFault> {
        let piece = self.head.piece(number).ok_or(ImageFault::Damaged)?;
        let salt = base.cfg().geometry.salt;
        let head = self.head;
        let units = head.decode_piece(&piece, bytes, salt).map_err(|_: FormatError| ImageFault::Damaged)?;
        match piece.part {
            ImagePart::Directory => {
                let area_blocks = base.cfg().geometry.checkpoint_blocks;
                let directory = ImageDirectory::decode(&head, bytes, area_blocks, salt);
                self.directory = Some(directory.map_err(|_: FormatError| ImageFault::Damaged)?);
                Ok(())
            }
            ImagePart::Slots => self.take_slots(units, catalog),
            ImagePart::Files => self
                .take_files(&piece, units, catalog.slots().kept())
                .then_some(())
                .ok_or(ImageFault::Damaged),
            ImagePart::Prints => catalog
                .contents_mut()
                .prints_mut()
                .set_buckets(piece.first, piece.count, units)
                .then_some(())
                .ok_or(ImageFault::Damaged),
        }
    }

    /// Checks that the image's slots match checkpoint and journal, and frees empty slots.
    fn take_slots(&mut self, units: &[u8], catalog: &mut Catalog) -> Result<(), ImageFault> {
        for unit in ImageSlot::decode_all(units) {
            let unit = unit.map_err(|_: FormatError| ImageFault::Damaged)?;
            let slot = WeuSlot(u32::try_from(self.slots.len()).unwrap_or(u32::MAX));
            if !catalog.table().contains(slot) {
                return Err(ImageFault::Damaged);
            }
            let is_dirty = catalog.slots().dirty().contains(slot);
            let entry = catalog.table().get(slot);
            let known = entry.state() == SlotState::Unread { known: true };
            let readable = known && !entry.is_retired() && (entry.header_bytes() > 0 || entry.is_filling());
            let is_same = entry.generation() == unit.generation && readable == unit.sealed;
            let is_unit = entry.weu_seq() == unit.weu_seq && entry.is_filling() == unit.filling;
            if !is_same || unit.sealed && !is_unit || !unit.sealed && is_dirty {
                return Err(ImageFault::Slots);
            }
            let short = catalog.table().short(unit.generation);
            if !unit.sealed {
                if known {
                    catalog.table_mut().stay_tombstone(slot);
                }
                catalog.table_mut().release(slot);
            }
            let (unit, owner) = (unit.sealed.then_some(short), unit.owner);
            self.slots.push(Expected { unit, owner, mappings: MappingCounts::default() });
        }
        Ok(())
    }

    /// Returns the contradiction of a completely read image, if any; `trusts`: mappings of the extent are trusted.
    pub(super) fn fault(&self, trusts: impl Fn(ExtentKey) -> bool) -> Option<ImageFault> {
        if self.files.len() != self.head.files.entries {
            Some(ImageFault::Damaged)
        } else if !self.volumes.last().all(trusts) {
            Some(ImageFault::Volumes)
        } else {
            None
        }
    }

    /// Replaces the index by the image. Mappings made during the load are newer, and extents written during it are
    /// removed. Returns mappings to be compared with the origins.
    pub(super) fn install(
        self,
        written: Vec<ExtentKey>,
        catalog: &mut Catalog,
        base: &mut Base,
    ) -> Vec<(ExtentKey, Mapping)> {
        let Self { slots, files, volumes, .. } = self;
        base.stats.load_by_image = 1;
        base.stats.load_mappings += files.len();
        let meanwhile = catalog.replace_files(files);
        let mut astray = 0;
        for (slot, expected) in (0..).map(WeuSlot).zip(&slots) {
            if expected.unit.is_some() {
                adopt_known(slot, expected, catalog.slots_mut());
                let is_safe = catalog.slots().may_keep_in(slot);
                astray += u64::from(if is_safe { 0 } else { expected.mappings.kept() });
            }
        }
        let kept = catalog.slots_mut().kept_mut();
        volumes.kept().for_each(|(volume, extents)| kept.found(volume, extents, astray));
        let newer = mappings_of(meanwhile);
        for (key, mapping) in &newer {
            forget_older(*key, *mapping, catalog, base);
        }
        for key in written {
            if newer.binary_search_by_key(&key, |(newer, _)| *newer).is_err() {
                catalog.forget(key, base);
            }
        }
        keep_newer(newer, catalog, base);
        volumes.picked
    }
}

/// Adopts the unit that checkpoint or journal named for the slot, with the image's mappings of it.
fn adopt_known(slot: WeuSlot, expected: &Expected, slots: &mut Slots) {
    let Expected { owner, mappings, .. } = *expected;
    slots.table_mut().adopt_known(slot, owner, &mappings);
    slots.join_found(slot, |slots| slots.joins_kept_with(&mappings));
}

/// Removes the image's mapping of an extent that was mapped again during the load.
fn forget_older(key: ExtentKey, newer: Mapping, catalog: &mut Catalog, base: &mut Base) {
    let Some(older) = catalog.take_mapping(key) else { return };
    catalog.count_unmapped(key, older, base);
    // The record of a newer duplicate, or of newer zeros, replaced the record of the older one.
    if matches!(older, Mapping::Base(_)) || matches!(newer, Mapping::Base(_)) {
        catalog.void(key, older, base);
    }
}

/// Inserts mappings of this session into the index. They are counted and recorded already.
fn keep_newer(newer: Vec<(ExtentKey, Mapping)>, catalog: &mut Catalog, base: &mut Base) {
    for (key, mapping) in newer {
        catalog.put_counted(key, mapping, base);
    }
}

/// Abandons the image: the index is rebuilt from the mappings made during the load. Returns `false` if the device
/// failed.
pub(super) fn give_up(fault: ImageFault, catalog: &mut Catalog, base: &mut Base) -> bool {
    refuse(fault, base);
    if !base.is_good() {
        return false;
    }
    let cfg = base.cfg();
    let meanwhile = catalog.replace_files(FileIndex::new(IndexShape::of(cfg), cfg.file_index_entries));
    catalog.contents_mut().clear_index(cfg);
    keep_newer(mappings_of(meanwhile), catalog, base);
    true
}

fn refuse(fault: ImageFault, base: &mut Base) {
    base.stats.load_image_refused = 1;
    base.port.emit(Action::Note(Note::ImageRefused { fault }));
}

/// Mappings of an index, in order.
fn mappings_of(mut index: FileIndex) -> Vec<(ExtentKey, Mapping)> {
    let mut mappings = Vec::new();
    index.sweep(&mut SweepCursor::default(), usize::MAX, |key, mapping| {
        mappings.push((key, mapping));
        Keep::Yes
    });
    mappings.sort_unstable_by_key(|(key, _)| *key);
    mappings
}
