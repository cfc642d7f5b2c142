//! Index image of a clean stop: both indexes and the state of the slots, for the next start (`FORMAT.md`, section 10).
//!
//! Writes it to the unused checkpoint area, with a bounded number of pieces in flight, when everything else is
//! durable; determines if the superblock may name it.
//!
//! Invariants: it contains only entries of readable units. It is named only if all of it was written and nothing was
//! recorded since it was begun: all changes of indexes or slots are recorded, except removals by a sweep. An older
//! checkpoint that dirty data may need is not overwritten.
//!
//! Out of scope: its durability, by the last flush of the stop, and naming it, by the driver.

use zc_core::ErrorKind;
use zc_format::{ImageDirectory, ImageHead, ImagePart, ImagePiece, ImageSlot};

use crate::base::Base;
use crate::device::catalog::Catalog;
use crate::device::slots::table::{SlotState, SlotTable};
use crate::device::snapshot::checkpoint::Checkpoints;
use crate::index::INDEX_LAYOUT;
use crate::index::file_index::{Keep, Mapping, SweepCursor};
use crate::ops::meta::Op;
use crate::seam::{Action, ImageBytes, ImageFault, Note};

/// Maximum writes of pieces in flight.
const PIECES_IN_FLIGHT: u32 = 4;

/// Progress of this session's image.
#[derive(Debug, Default)]
enum ImageWrite {
    #[default]
    None,
    Writing(Writing),
    /// Written, with the number of records appended to the journal at its beginning.
    Written {
        position: u64,
    },
    Omitted,
}

#[derive(Debug, Default)]
pub(crate) struct ImageWriter {
    image: ImageWrite,
}

#[derive(Debug)]
struct Writing {
    head: ImageHead,
    area: usize,
    /// Records in the journal at its beginning.
    position: u64,
    cursor: SweepCursor,
    /// Next piece. The directory, which is the first piece, is written after the last.
    next: u64,
    directory: ImageDirectory,
    is_directory_written: bool,
    is_head_written: bool,
    in_flight: u32,
    fault: Option<ImageFault>,
}

impl ImageWriter {
    /// Continues the image of a stop when everything else is durable. Returns `true` when no work is left.
    /// `keeps_dirty`: dirty data stays on the device.
    pub(crate) fn pump(
        &mut self,
        keeps_dirty: bool,
        catalog: &mut Catalog,
        checkpoints: &Checkpoints,
        base: &mut Base,
    ) -> bool {
        match core::mem::take(&mut self.image) {
            ImageWrite::None if !base.port.is_idle() => false,
            ImageWrite::None => {
                self.image = begin_image(keeps_dirty, catalog, checkpoints, base);
                matches!(self.image, ImageWrite::Omitted)
                    || self.pump(keeps_dirty, catalog, checkpoints, base)
            }
            ImageWrite::Writing(mut writing) => {
                while writing.fault.is_none()
                    && writing.in_flight < PIECES_IN_FLIGHT
                    && writing.write_part(catalog, base)
                {
                    writing.in_flight += 1;
                }
                let is_over = writing.in_flight == 0;
                self.image = if is_over { end_image(&writing, base) } else { ImageWrite::Writing(writing) };
                is_over
            }
            ended => {
                self.image = ended;
                true
            }
        }
    }

    /// Decides that no image is written.
    pub(crate) fn leave_none(&mut self) {
        self.image = ImageWrite::Omitted;
    }

    /// Handles the completion of a write of a part of the image.
    pub(crate) fn part_written(&mut self, result: Result<(), ErrorKind>) {
        if let ImageWrite::Writing(writing) = &mut self.image {
            writing.in_flight -= 1;
            writing.fault = writing.fault.or_else(|| result.err().map(ImageFault::Device));
        }
    }

    /// Returns `true` if all of the image was written and it is still valid.
    pub(crate) fn is_whole(&self, catalog: &Catalog) -> bool {
        let appended = catalog.meta().journal().appended();
        matches!(self.image, ImageWrite::Written { position } if position == appended)
    }
}

impl Writing {
    /// Writes the next piece, or directory and head after the last. Returns `false` if no write is left.
    fn write_part(&mut self, catalog: &mut Catalog, base: &mut Base) -> bool {
        let salt = base.cfg().geometry.salt;
        let (first_block, bytes) = if let Some(piece) = self.head.piece(self.next) {
            self.next += 1;
            let units = image_units(&piece, &mut self.cursor, catalog);
            let bytes = self.head.encode_piece(&piece, &units, salt);
            (self.directory.place_next(bytes.len()).first_block, bytes)
        } else if !core::mem::replace(&mut self.is_directory_written, true) {
            (self.head.directory().first_block, self.directory.encode(&self.head, salt))
        } else if !core::mem::replace(&mut self.is_head_written, true) {
            // The sweep removed unreadable entries.
            self.head.files.entries = catalog.files().len();
            (0, self.head.encode(self.area, salt))
        } else {
            return false;
        };
        // Swept entries make it shorter than estimated, and nothing is added during a stop.
        if self.directory.blocks() > base.cfg().geometry.checkpoint_blocks {
            self.fault = Some(ImageFault::NoRoom);
            return false;
        }
        base.stats.image_bytes_written += zc_core::u64_from_usize(bytes.len());
        let op = base.port.op(Op::Image);
        let bytes = ImageBytes(bytes);
        base.port.emit(Action::WriteImage { op, area: self.area, first_block, bytes });
        true
    }
}

/// An unclean stop needs no image.
fn begin_image(
    keeps_dirty: bool,
    catalog: &Catalog,
    checkpoints: &Checkpoints,
    base: &mut Base,
) -> ImageWrite {
    if catalog.meta().do_marks_stay() {
        return ImageWrite::Omitted;
    }
    let head = ImageHead {
        session: base.session.number(),
        journal_next: catalog.meta().journal().durable_next(),
        checkpoint: checkpoints.found(),
        region_map_sequence: catalog.meta().newest_map(),
        ..image_shape(catalog, base)
    };
    // If the newest checkpoint is corrupt, a start falls back to the one that this session began from.
    let fault = if keeps_dirty && base.stats.checkpoints > 0 {
        Some(ImageFault::Dirty)
    } else if !head.fits(base.cfg().geometry.checkpoint_blocks) {
        Some(ImageFault::NoRoom)
    } else {
        None
    };
    if let Some(fault) = fault {
        base.port.emit(Action::Note(Note::ImageOmitted { fault }));
        return ImageWrite::Omitted;
    }
    ImageWrite::Writing(Writing {
        head,
        area: 1 - checkpoints.area(),
        position: catalog.meta().journal().appended(),
        cursor: SweepCursor::default(),
        next: 1,
        directory: ImageDirectory::new(&head),
        is_directory_written: false,
        is_head_written: false,
        in_flight: 0,
        fault: None,
    })
}

/// Head of an image of the current indexes: its sizes and prerequisites.
pub(crate) fn image_shape(catalog: &Catalog, base: &Base) -> ImageHead {
    let geometry = &base.cfg().geometry;
    ImageHead {
        session: 0,
        journal_next: zc_core::JournalSeq(0),
        checkpoint: 0,
        region_map_sequence: 0,
        layout: INDEX_LAYOUT,
        slots: geometry.slots,
        weu_bytes: geometry.weu_bytes,
        extent_bytes: geometry.extent_bytes,
        generation_bits: u32::from(base.cfg().generation_bits),
        files: catalog.files().shape(),
        prints: catalog.contents().prints().shape(),
    }
}

fn image_units(piece: &ImagePiece, cursor: &mut SweepCursor, catalog: &mut Catalog) -> Vec<u8> {
    match piece.part {
        ImagePart::Directory => unreachable!("the directory is written behind what it tells of"),
        ImagePart::Slots => image_slots(piece, catalog.table()),
        ImagePart::Files => {
            let count = zc_core::usize_from_u32(piece.count);
            catalog.visit_mappings(cursor, count, |slots, _, mapping| match mapping {
                Mapping::Base(place) | Mapping::Duplicate(place) if !slots.is_live(&place) => Keep::No,
                _ => Keep::Yes,
            });
            catalog.files().packed_buckets(piece.first, piece.count)
        }
        ImagePart::Prints => catalog.contents().prints().packed_buckets(piece.first, piece.count),
    }
}

fn image_slots(piece: &ImagePiece, table: &SlotTable) -> Vec<u8> {
    let mut units = Vec::new();
    let skip = zc_core::usize_from_u64(piece.first);
    for (_, slot) in table.iter().skip(skip).take(zc_core::usize_from_u32(piece.count)) {
        let sealed = slot.state() == SlotState::Sealed;
        let unit = ImageSlot {
            generation: slot.generation(),
            weu_seq: slot.weu_seq(),
            owner: slot.owner().filter(|_| sealed),
            sealed,
            filling: slot.is_filling(),
        };
        unit.encode_into(&mut units);
    }
    units
}

/// Ends the image: no write is in flight or left.
fn end_image(writing: &Writing, base: &mut Base) -> ImageWrite {
    match writing.fault {
        None => ImageWrite::Written { position: writing.position },
        Some(fault) => {
            base.port.emit(Action::Note(Note::ImageOmitted { fault }));
            ImageWrite::Omitted
        }
    }
}
