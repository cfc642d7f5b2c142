//! Synchronous drivers of a cache manager and, in [`pool`], of a pool: for replay, benchmarks, and tests of the manager.
//!
//! Job: execute every [`Action`] over a [`Backend`], which needs no operation numbers and no events, and return each
//! result to the manager, until it has no more actions ([`Turns`]).
//!
//! Invariants: actions are executed in the manager's order. Each operation completes once, in that order, unless the
//! backend withholds a completion.
//!
//! It does not overlap operations. The daemon starts them and receives completions in later turns, in the order of
//! kernel and threads (`zc-engine`). The simulator chooses by seed when each takes effect, its result and the effect
//! of a power failure on it, and needs operation numbers for that (`zc-sim`). Both dispatch actions themselves.
//!
//! The smallest complete backend is `examples/file_cache`: a cache over a file.
#![forbid(unsafe_code)]

pub mod pool;
mod turns;

use zc_cache::CacheManager;
use zc_cache::seam::{Action, Digest, Event, ExtentRead, ImageBytes, Note, PartResults, Source};
use zc_core::{
    BufId, BufSlice, Codec, DedupDomain, ErrorKind, ExtentNo, Fingerprint, ReqId, VolumeId, WeuSlot,
};
use zc_format::{
    CheckpointHeader, ExtentHeader, Geometry, JournalBlock, RECORDS_PER_BLOCK, Record, RegionMap, Summary,
    SummaryPlace, WeuHeader, encode_checkpoint_block,
};

pub use turns::Turns;

/// Result of an operation without data.
pub type Ended = Result<(), ErrorKind>;

/// Operation on an origin. Offsets and lengths are in bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum OriginOp {
    /// Read into a buffer.
    Read {
        /// First byte.
        offset_bytes: u64,
        /// Destination of the bytes; its length is the length of the read.
        dest: BufSlice,
    },
    /// Write from a buffer.
    Write {
        /// First byte.
        offset_bytes: u64,
        /// The bytes.
        src: BufSlice,
    },
    /// Flush.
    Flush,
    /// Discard a range.
    Trim {
        /// First byte.
        offset_bytes: u64,
        /// Length in bytes.
        len_bytes: u64,
    },
    /// Make a range read as zero.
    Zero {
        /// First byte.
        offset_bytes: u64,
        /// Length in bytes.
        len_bytes: u64,
        /// Keep the space allocated.
        no_hole: bool,
    },
}

/// Stored extents to read: one range of a slot, and the wanted parts of it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Piece {
    /// Device or memory.
    pub source: Source,
    /// The slot.
    pub slot: WeuSlot,
    /// First byte to read, relative to the slot.
    pub start_bytes: u32,
    /// Bytes to read.
    pub len_bytes: u32,
    /// The extents; each lies inside the piece.
    pub parts: Vec<ExtentRead>,
}

/// Write to a slot.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum UnitWrite {
    /// The buffer from `start_bytes` to `data_bytes`, and the header at the slot's end.
    Whole {
        /// First byte, relative to the slot.
        start_bytes: u32,
        /// End of the extents, relative to the slot.
        data_bytes: u32,
        /// The header.
        header: Box<WeuHeader>,
    },
    /// A piece of the buffer.
    Part {
        /// First byte, relative to the slot.
        start_bytes: u32,
        /// Length in bytes.
        len_bytes: u32,
    },
}

/// Write outside of the slots.
#[derive(Debug)]
pub enum Metadata {
    /// A journal block, at its place in the ring.
    Journal(Box<JournalBlock>),
    /// A copy of the region map.
    RegionMap {
        /// 0 or 1.
        copy: usize,
        /// The map.
        map: Box<RegionMap>,
    },
    /// A run of checkpoint blocks.
    Checkpoint {
        /// Area 0 or 1.
        area: usize,
        /// Number of the first block in the area's record blocks.
        first_block: u64,
        /// Checkpoint sequence, to bind the blocks to.
        sequence: u64,
        /// The records.
        records: Vec<Record>,
    },
    /// A checkpoint's header block.
    CheckpointHeader {
        /// Area 0 or 1.
        area: usize,
        /// The header.
        header: Box<CheckpointHeader>,
    },
    /// Blocks of the index image.
    Image {
        /// Checkpoint area 0 or 1.
        area: usize,
        /// Number of the first block in the area.
        first_block: u64,
        /// The blocks.
        bytes: Vec<u8>,
    },
}

impl Metadata {
    /// Returns its offset on a device of this geometry, in bytes, and its bytes.
    #[must_use]
    pub fn encode(&self, geometry: &Geometry) -> (u64, Vec<u8>) {
        let salt = geometry.salt;
        match self {
            Self::Journal(block) => (geometry.journal_block_offset(block.sequence), block.encode(salt)),
            Self::RegionMap { copy, map } => (geometry.region_map[*copy], map.encode(*copy, salt)),
            Self::Checkpoint { area, first_block, sequence, records } => {
                let blocks = records.chunks(RECORDS_PER_BLOCK).zip(*first_block..);
                let encode = |(records, block)| encode_checkpoint_block(*sequence, block, records, salt);
                (geometry.checkpoint_block_offset(*area, *first_block), blocks.flat_map(encode).collect())
            }
            Self::CheckpointHeader { area, header } => {
                (geometry.checkpoint[*area], header.encode(*area, salt))
            }
            Self::Image { area, first_block, bytes } => {
                (geometry.image_block_offset(*area, *first_block), bytes.clone())
            }
        }
    }
}

/// Action on the intent log.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Intent {
    /// Append a record.
    Append(Record),
    /// Forget the first records since the start, counted over the whole session.
    Trim(u64),
    /// The log may be relied upon from here on.
    Ready,
}

/// Executor of the manager's actions: devices, buffers and workers. The default methods succeed without effect.
pub trait Backend {
    /// The manager that is driven.
    fn manager(&mut self) -> &mut CacheManager;

    /// A client request is answered; for a read the request's buffer holds the bytes.
    fn reply(&mut self, req: ReqId, result: Ended);

    /// Digests the bytes of an extent in a domain.
    fn hash(&mut self, src: BufSlice, domain: &DedupDomain) -> Digest;

    /// Compresses into the buffer `out`: the stored length in bytes, if it is at most `max_bytes`.
    fn compress(&mut self, src: BufSlice, codec: Codec, max_bytes: u32, out: BufId) -> Option<u32>;

    /// Returns `true` if two pieces of memory are equal.
    fn compare(&mut self, _left: BufSlice, _right: BufSlice) -> bool {
        false
    }

    /// Provides a buffer, contents arbitrary.
    fn alloc(&mut self, _buf: BufId, _len_bytes: u32) {}

    /// Releases a buffer.
    fn free(&mut self, _buf: BufId) {}

    /// Copies bytes between buffers.
    fn copy(&mut self, _from: BufSlice, _to: BufSlice) {}

    /// Fills with zeros.
    fn zero(&mut self, _dest: BufSlice) {}

    /// Seals an extent into an open unit's buffer.
    fn place(&mut self, _weu: BufId, _offset_bytes: u32, _header: &ExtentHeader, _payload: BufSlice) {}

    /// Puts a summary at the end of a page of a unit's buffer.
    fn summarize(&mut self, _weu: BufId, _place: &SummaryPlace, _summary: &Summary) {}

    /// Does something to a volume's origin.
    ///
    /// # Errors
    /// When the origin fails.
    fn origin(&mut self, _volume: VolumeId, _op: OriginOp) -> Ended {
        Ok(())
    }

    /// Returns the origin's fingerprints of extents.
    fn recipe(
        &mut self,
        _volume: VolumeId,
        _first: ExtentNo,
        _count: u32,
        _domain: &DedupDomain,
    ) -> Vec<Option<Fingerprint>> {
        Vec::new()
    }

    /// Reads extents, verifies them and copies the wanted parts out; one result per part.
    ///
    /// # Errors
    /// When the device cannot be read.
    fn read_extents(&mut self, piece: &Piece) -> Result<PartResults, ErrorKind> {
        Ok(piece.parts.iter().map(|_| Ok(())).collect())
    }

    /// Reads a slot's header; `None`: it holds no valid one.
    ///
    /// # Errors
    /// When the device cannot be read.
    fn read_header(&mut self, _slot: WeuSlot) -> Result<Option<Box<WeuHeader>>, ErrorKind> {
        Ok(None)
    }

    /// Reads blocks of the index image.
    ///
    /// # Errors
    /// When the device cannot be read.
    fn read_image(&mut self, _area: usize, _first_block: u64, _blocks: u32) -> Result<Vec<u8>, ErrorKind> {
        Err(ErrorKind::Io)
    }

    /// Writes to a slot, from its unit's buffer.
    ///
    /// # Errors
    /// When the device cannot be written.
    fn write_unit(&mut self, _slot: WeuSlot, _weu: BufId, _write: UnitWrite) -> Ended {
        Ok(())
    }

    /// Writes outside of the slots.
    ///
    /// # Errors
    /// When the device cannot be written.
    fn write_metadata(&mut self, _metadata: Metadata) -> Ended {
        Ok(())
    }

    /// A slot's contents are not needed.
    ///
    /// # Errors
    /// When the device refuses.
    fn discard(&mut self, _slot: WeuSlot) -> Ended {
        Ok(())
    }

    /// Flushes the cache device.
    ///
    /// # Errors
    /// When the device cannot be flushed.
    fn flush(&mut self) -> Ended {
        Ok(())
    }

    /// Records outside the device that its clean contents, or those of one volume, are not to be trusted any more.
    ///
    /// # Errors
    /// When that cannot be recorded.
    fn distrust(&mut self, _volume: Option<VolumeId>) -> Ended {
        Ok(())
    }

    /// Changes the intent log.
    fn intent(&mut self, _intent: Intent) {}

    /// Takes a note.
    fn note(&mut self, _note: Note) {}

    /// The manager has stopped.
    fn stopped(&mut self, _clean: bool) {}

    /// Executes an action; returns its completion event. A backend that inspects actions, or withholds completions,
    /// overrides this, around [`carry_out`].
    fn act(&mut self, action: Action) -> Option<Event> {
        carry_out(self, action)
    }
}

/// Executes an action; returns its completion event, if it is an operation. An [`Action::Abandon`] is always too late:
/// its operation has completed.
pub fn carry_out<B: Backend + ?Sized>(backend: &mut B, action: Action) -> Option<Event> {
    match action {
        Action::Reply { req, result } => backend.reply(req, result),
        Action::Alloc { buf, len_bytes } => backend.alloc(buf, len_bytes),
        Action::Free { buf } => backend.free(buf),
        Action::Copy { from, to } => backend.copy(from, to),
        Action::Zero { dest } => backend.zero(dest),
        Action::Place { weu, offset_bytes, header, payload } => {
            backend.place(weu, offset_bytes, &header, payload);
        }
        Action::Summarize { weu, place, summary } => backend.summarize(weu, &place, &summary),
        Action::Intent { record } => backend.intent(Intent::Append(record)),
        Action::IntentTrim { records } => backend.intent(Intent::Trim(records)),
        Action::IntentReady => backend.intent(Intent::Ready),
        Action::Note(note) => backend.note(note),
        Action::Stopped { clean } => backend.stopped(clean),
        Action::Abandon { .. } => {}
        operation => return Some(operate(backend, operation)),
    }
    None
}

/// Executes an operation; returns its completion.
fn operate<B: Backend + ?Sized>(backend: &mut B, action: Action) -> Event {
    match action {
        Action::OriginRead { op, volume, offset_bytes, dest } => {
            let result = backend.origin(volume, OriginOp::Read { offset_bytes, dest });
            Event::OriginDone { op, result }
        }
        Action::OriginWrite { op, volume, offset_bytes, src, .. } => {
            let result = backend.origin(volume, OriginOp::Write { offset_bytes, src });
            Event::OriginDone { op, result }
        }
        Action::OriginFlush { op, volume } => {
            Event::OriginDone { op, result: backend.origin(volume, OriginOp::Flush) }
        }
        Action::OriginTrim { op, volume, offset_bytes, len_bytes, .. } => {
            let result = backend.origin(volume, OriginOp::Trim { offset_bytes, len_bytes });
            Event::OriginDone { op, result }
        }
        Action::OriginZero { op, volume, offset_bytes, len_bytes, no_hole, .. } => {
            let result = backend.origin(volume, OriginOp::Zero { offset_bytes, len_bytes, no_hole });
            Event::OriginDone { op, result }
        }
        Action::WantRecipe { op, volume, first, count, domain } => {
            Event::RecipeArrived { op, prints: backend.recipe(volume, first, count, &domain) }
        }
        Action::Hash { op, src, domain } => Event::Hashed { op, digest: backend.hash(src, &domain) },
        Action::Compress { op, src, codec, max_bytes, out } => {
            Event::Compressed { op, stored_bytes: backend.compress(src, codec, max_bytes, out) }
        }
        Action::Compare { op, left, right } => Event::Compared { op, equal: backend.compare(left, right) },
        Action::ReadExtents { op, source, slot, start_bytes, len_bytes, parts, .. } => {
            let piece = Piece { source, slot, start_bytes, len_bytes, parts };
            Event::ExtentsRead { op, result: backend.read_extents(&piece) }
        }
        Action::ReadHeader { op, slot, .. } => Event::HeaderRead { op, result: backend.read_header(slot) },
        Action::ReadImage { op, area, first_block, blocks } => {
            let result = backend.read_image(area, first_block, blocks);
            Event::ImageRead { op, result: result.map(ImageBytes) }
        }
        other => change(backend, other),
    }
}

/// Changes something on the cache device or of its state; the end of that.
fn change<B: Backend + ?Sized>(backend: &mut B, action: Action) -> Event {
    let (op, result) = match action {
        Action::WriteWeu { op, slot, weu, start_bytes, data_bytes, header } => {
            (op, backend.write_unit(slot, weu, UnitWrite::Whole { start_bytes, data_bytes, header }))
        }
        Action::WritePart { op, slot, weu, start_bytes, len_bytes, .. } => {
            (op, backend.write_unit(slot, weu, UnitWrite::Part { start_bytes, len_bytes }))
        }
        Action::DiscardSlot { op, slot, .. } => (op, backend.discard(slot)),
        Action::WriteJournal { op, block, .. } => (op, backend.write_metadata(Metadata::Journal(block))),
        Action::WriteRegionMap { op, copy, map } => {
            (op, backend.write_metadata(Metadata::RegionMap { copy, map }))
        }
        Action::WriteCheckpoint { op, area, first_block, sequence, records } => {
            let metadata = Metadata::Checkpoint { area, first_block, sequence, records };
            (op, backend.write_metadata(metadata))
        }
        Action::CommitCheckpoint { op, area, header } => {
            (op, backend.write_metadata(Metadata::CheckpointHeader { area, header }))
        }
        Action::WriteImage { op, area, first_block, bytes: ImageBytes(bytes) } => {
            (op, backend.write_metadata(Metadata::Image { area, first_block, bytes }))
        }
        Action::FlushCache { op } => (op, backend.flush()),
        Action::Distrust { op, volume } => (op, backend.distrust(volume)),
        other => unreachable!("{other:?} is no operation"),
    };
    Event::DeviceDone { op, result }
}
