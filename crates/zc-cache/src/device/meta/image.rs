//! The index image of a clean stop: both indexes and the state of the slots, for the next start (`FORMAT.md`, section
//! 10).
//!
//! Job: write it to the checkpoint area that is not in use when everything else is durable, a bounded number of pieces at
//! once; say whether it may be named.
//!
//! Invariants: what does not lead to a unit that may be read is not in it. It is named only if all of it was written and
//! nothing was recorded since it was begun: whatever changes indexes or slots is recorded, but for what a sweep takes
//! out. An older checkpoint that dirty data may need is not written over.
//!
//! What it does not do: make it durable, or name it. The last flush of the stop does the first, the driver the second.

use zc_core::ErrorKind;
use zc_format::{ImageDirectory, ImageHead, ImagePart, ImagePiece, ImageSlot};

use super::Op;
use crate::base::Base;
use crate::device::Device;
use crate::device::units::slots::SlotState;
use crate::index::INDEX_LAYOUT;
use crate::index::file_index::{Keep, Mapping, SweepCursor};
use crate::seam::{Action, ImageBytes, ImageFault, Note};

/// Pieces being written at once.
const PIECES_IN_FLIGHT: u32 = 4;

/// How far the image of this session is.
#[derive(Debug, Default)]
pub(super) enum ImageWrite {
    /// Not begun.
    #[default]
    None,
    /// On its way.
    Writing(Writing),
    /// Written, when so many records had been appended to the journal.
    Written { position: u64 },
    /// There is none.
    Omitted,
}

/// An image on its way.
#[derive(Debug)]
pub(super) struct Writing {
    head: ImageHead,
    area: usize,
    /// Records in the journal when it began.
    position: u64,
    cursor: SweepCursor,
    /// The next piece. The directory, which is the first one, comes behind the last.
    next: u64,
    directory: ImageDirectory,
    is_directory_written: bool,
    is_head_written: bool,
    in_flight: u32,
    fault: Option<ImageFault>,
}

impl Device {
    /// Goes on with the image of a stop that is durable but for it. True when there is nothing left to do.
    /// `keeps_dirty`: dirty data stays on the device.
    pub(crate) fn pump_image_write(&mut self, keeps_dirty: bool, base: &mut Base) -> bool {
        match core::mem::take(&mut self.meta.image) {
            ImageWrite::None if !base.port.is_idle() => false,
            ImageWrite::None => {
                self.meta.image = self.begin_image(keeps_dirty, base);
                matches!(self.meta.image, ImageWrite::Omitted) || self.pump_image_write(keeps_dirty, base)
            }
            ImageWrite::Writing(mut writing) => {
                while writing.fault.is_none()
                    && writing.in_flight < PIECES_IN_FLIGHT
                    && self.write_image_part(&mut writing, base)
                {
                    writing.in_flight += 1;
                }
                let is_over = writing.in_flight == 0;
                self.meta.image =
                    if is_over { end_image(&writing, base) } else { ImageWrite::Writing(writing) };
                is_over
            }
            ended => {
                self.meta.image = ended;
                true
            }
        }
    }

    /// There will be none.
    pub(crate) fn leave_no_image(&mut self) {
        self.meta.image = ImageWrite::Omitted;
    }

    /// A stop that is not a clean one needs no image.
    fn begin_image(&self, keeps_dirty: bool, base: &mut Base) -> ImageWrite {
        if self.meta.do_marks_stay() {
            return ImageWrite::Omitted;
        }
        let checkpoints = &self.meta.checkpoints;
        let head = ImageHead {
            session: base.session.number(),
            journal_next: self.meta.journal.durable_next(),
            checkpoint: checkpoints.found(),
            region_map_sequence: self.meta.newest_map(),
            ..self.image_shape(base)
        };
        // A start goes on from the checkpoint that this session began from, if the newest one is damaged.
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
            position: self.meta.journal.appended(),
            cursor: SweepCursor::default(),
            next: 1,
            directory: ImageDirectory::new(&head),
            is_directory_written: false,
            is_head_written: false,
            in_flight: 0,
            fault: None,
        })
    }

    /// What an image of the indexes as they are now holds, and what it depends on.
    pub(in crate::device) fn image_shape(&self, base: &Base) -> ImageHead {
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
            files: self.index.files.shape(),
            prints: self.index.prints.shape(),
        }
    }

    /// Writes the next piece, or directory and head behind the last. False if there is nothing left to write.
    fn write_image_part(&mut self, writing: &mut Writing, base: &mut Base) -> bool {
        let salt = base.cfg().geometry.salt;
        let (first_block, bytes) = if let Some(piece) = writing.head.piece(writing.next) {
            writing.next += 1;
            let units = self.image_units(&piece, &mut writing.cursor);
            let bytes = writing.head.encode_piece(&piece, &units, salt);
            (writing.directory.place_next(bytes.len()).first_block, bytes)
        } else if !core::mem::replace(&mut writing.is_directory_written, true) {
            (writing.head.directory().first_block, writing.directory.encode(&writing.head, salt))
        } else if !core::mem::replace(&mut writing.is_head_written, true) {
            // Sweeping took out what cannot be read.
            writing.head.files.entries = self.index.files.len();
            (0, writing.head.encode(writing.area, salt))
        } else {
            return false;
        };
        // What is swept out makes it shorter than it was taken to be, and nothing is added at a stop.
        if writing.directory.blocks() > base.cfg().geometry.checkpoint_blocks {
            writing.fault = Some(ImageFault::NoRoom);
            return false;
        }
        base.stats.image_bytes_written += zc_core::u64_from_usize(bytes.len());
        let op = base.port.op(Op::Image);
        let bytes = ImageBytes(bytes);
        base.port.emit(Action::WriteImage { op, area: writing.area, first_block, bytes });
        true
    }

    fn image_units(&mut self, piece: &ImagePiece, cursor: &mut SweepCursor) -> Vec<u8> {
        match piece.part {
            ImagePart::Directory => unreachable!("the directory is written behind what it tells of"),
            ImagePart::Slots => self.image_slots(piece),
            ImagePart::Files => {
                let slots = &self.units.slots;
                let count = zc_core::usize_from_u32(piece.count);
                self.index.files.sweep(cursor, count, |_, mapping| match mapping {
                    Mapping::Base(place) | Mapping::Duplicate(place) if !slots.is_live(&place) => Keep::No,
                    _ => Keep::Yes,
                });
                self.index.files.packed_buckets(piece.first, piece.count)
            }
            ImagePart::Prints => self.index.prints.packed_buckets(piece.first, piece.count),
        }
    }

    fn image_slots(&self, piece: &ImagePiece) -> Vec<u8> {
        let mut units = Vec::new();
        let skip = zc_core::usize_from_u64(piece.first);
        for (_, slot) in self.units.slots.iter().skip(skip).take(zc_core::usize_from_u32(piece.count)) {
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

    /// A part of the image was written, or not.
    pub(crate) fn image_part_written(&mut self, result: Result<(), ErrorKind>) {
        if let ImageWrite::Writing(writing) = &mut self.meta.image {
            writing.in_flight -= 1;
            writing.fault = writing.fault.or_else(|| result.err().map(ImageFault::Device));
        }
    }

    /// Whether all of the image was written, and is still true.
    pub(crate) fn has_image(&self) -> bool {
        let appended = self.meta.journal.appended();
        matches!(self.meta.image, ImageWrite::Written { position } if position == appended)
    }
}

/// Nothing of the image is on its way any more, and nothing is left to write.
fn end_image(writing: &Writing, base: &mut Base) -> ImageWrite {
    match writing.fault {
        None => ImageWrite::Written { position: writing.position },
        Some(fault) => {
            base.port.emit(Action::Note(Note::ImageOmitted { fault }));
            ImageWrite::Omitted
        }
    }
}
