//! The cache device, and its actions.
//!
//! Job: encode metadata to its place, write units (data and header, the gap between only if it is small), read stored
//! extents and headers, and turn completions into events.
//!
//! Invariants: every write is whole 4 KiB blocks, every read whole blocks of the device, from page-aligned memory
//! (O_DIRECT). Memory that is written contains no foreign data: padding is zero. An operation completes once for the
//! manager. The memory of an abandoned one belongs to the ring until the device has responded: a late read reaches no
//! buffer of the manager.
//!
//! It does not interpret errors, retry, or set deadlines; the manager does.

use std::io;
use std::ops::Range;
use std::sync::Arc;

use zc_cache::seam::{Action, Event, ImageBytes, Source};
use zc_core::limits::{BLOCK_BYTES, PLACE_ALIGN_BYTES};
use zc_core::{BufId, BufSlice, ErrorKind, FingerprintKind, JournalSeq, OpId, WeuSlot, usize_from_u32};
use zc_format::{
    EXTENT_HEADER_BYTES, ExtentHeader, Geometry, RECORDS_PER_BLOCK, Record, Salt, WeuHeader,
    encode_checkpoint_block,
};
use zc_io::{AlignedBuf, BlockFile, FallocateMode, FileKind, Memory, Operation, Segment, SharedFd, Target};

use crate::limits::{HEADER_READ_BYTES, WEU_GAP_BYTES};
use crate::shard::base::Base;
use crate::shard::buffers::{Buffers, slice};
use crate::shard::metrics::Metrics;
use crate::shard::pending::{Abandoned, ExtentsPending, JoinTable, Pending};
use crate::shard::reads::blocks_of;
use crate::shard::workers::Workers;

/// The cache device as the data plane sees it.
#[derive(Debug)]
pub struct Device {
    /// The cache file or device.
    pub file: Arc<BlockFile>,
    /// The journal's device, if not in `file`.
    pub journal: Option<Arc<BlockFile>>,
    /// Its layout.
    pub geometry: Geometry,
    /// Hash of its fingerprints.
    pub fingerprint: FingerprintKind,
}

impl Device {
    /// Returns the file at an address of the geometry, and the offset in it.
    fn at(&self, offset_bytes: u64) -> (&BlockFile, u64) {
        match (&self.journal, offset_bytes.checked_sub(zc_format::JOURNAL_DEVICE)) {
            (Some(journal), Some(offset_bytes)) => (journal, offset_bytes),
            _ => (&self.file, offset_bytes),
        }
    }

    /// The result of an operation as a kind; logs errors, ever more rarely.
    fn result(&self, result: io::Result<usize>, metrics: &mut Metrics) -> Result<usize, ErrorKind> {
        result.map_err(|error| {
            metrics.device_errors += 1;
            if metrics.device_errors.is_power_of_two() {
                let count = metrics.device_errors;
                tracing::warn!(count, "cache device {}: {error}", self.file.path().display());
            }
            zc_io::kind_of(&error)
        })
    }
}

#[derive(Debug)]
pub(crate) struct CacheDevice {
    device: Device,
    joins: JoinTable,
    /// Newest journal block whose write has ended.
    journal_written: JournalSeq,
}

impl CacheDevice {
    /// Creates the state without operations in flight.
    pub(crate) fn new(device: Device) -> Self {
        Self { device, joins: JoinTable::default(), journal_written: JournalSeq(0) }
    }

    /// Replaces the device, possibly by the same one reattached. No operation is in flight.
    pub(crate) fn replace(&mut self, device: Device) {
        (self.device, self.journal_written) = (device, JournalSeq(0));
    }

    pub(crate) const fn file(&self) -> &Arc<BlockFile> {
        &self.device.file
    }

    /// Returns the journal's device, if not in the device's file.
    pub(crate) const fn journal(&self) -> Option<&Arc<BlockFile>> {
        self.device.journal.as_ref()
    }

    /// Newest journal block whose write has completed.
    pub(crate) const fn journal_written(&self) -> JournalSeq {
        self.journal_written
    }

    pub(crate) const fn extent_bytes(&self) -> u32 {
        self.device.geometry.extent_bytes
    }

    pub(crate) const fn fingerprint(&self) -> FingerprintKind {
        self.device.fingerprint
    }

    /// Puts an extent into a unit in memory, and zeros up to where the next one starts.
    pub(crate) fn place(
        &self,
        buffers: &Buffers,
        (weu, offset_bytes): (BufId, u32),
        header: &ExtentHeader,
        payload: BufSlice,
    ) {
        let bytes = buffers.read(payload);
        let len_bytes = EXTENT_HEADER_BYTES + payload.len_bytes;
        let mut place = buffers.write(slice(weu, offset_bytes, len_bytes));
        header.seal(offset_bytes, &bytes, &mut place, self.device.geometry.salt);
        drop(place);
        let end = offset_bytes + len_bytes;
        let padding = end.next_multiple_of(PLACE_ALIGN_BYTES) - end;
        if padding > 0 {
            buffers.zero(slice(weu, end, padding));
        }
    }

    /// Executes an action on the device; `workers` decode data read from memory.
    pub(crate) fn act(&mut self, base: &mut Base, workers: &mut Workers, action: Action) {
        let salt = self.device.geometry.salt;
        match action {
            Action::ReadExtents { op, source: Source::Memory(weu), parts, .. } => {
                let weu_bytes = self.device.geometry.weu_bytes;
                workers.read_from_memory(base, op, (weu, weu_bytes), &parts);
            }
            Action::ReadExtents {
                op,
                source: Source::Device,
                slot,
                start_bytes,
                len_bytes,
                parts,
                urgent,
            } => {
                let pages = start_bytes..start_bytes.saturating_add(len_bytes);
                let blocks = blocks_of(&pages, &parts, self.device.file.block_bytes());
                let offset = self.device.geometry.slot_offset(slot) + u64::from(blocks.start);
                let memory = base.buffers.memory(blocks.len());
                let pending = ExtentsPending { op, start_bytes: blocks.start, parts, urgent };
                let operation = Operation::read(self.device.file.fd(), offset, memory);
                base.submit(operation, Pending::Extents(pending));
            }
            Action::ReadHeader { op, slot, hint_bytes } => self.read_header(base, op, slot, hint_bytes),
            Action::WriteWeu { op, slot, weu, start_bytes, data_bytes, header } => {
                self.write_weu(base, op, slot, weu, start_bytes..data_bytes, &header);
            }
            Action::WritePart { op, slot, weu, start_bytes, len_bytes, durable } => {
                let offset = self.device.geometry.slot_offset(slot) + u64::from(start_bytes);
                let part = base.buffers.read(slice(weu, start_bytes, len_bytes));
                let operation = Operation::write_as(self.device.file.fd(), offset, part, durable);
                base.submit(operation, Pending::Device { op });
            }
            Action::DiscardSlot { op, slot, erase } => self.discard(base, op, slot, erase),
            Action::WriteJournal { op, block, durable } => {
                let offset = self.device.geometry.journal_block_offset(block.sequence);
                let pending = Pending::Journal { op, block: block.sequence };
                self.write_block(base, pending, offset, &block.encode(salt), durable);
            }
            Action::WriteRegionMap { op, copy, map } => {
                let offset = self.device.geometry.region_map[copy & 1];
                self.write_block(base, Pending::Device { op }, offset, &map.encode(copy, salt), false);
            }
            Action::WriteCheckpoint { op, area, first_block, sequence, records } => {
                let offset = self.device.geometry.checkpoint_block_offset(area, first_block);
                self.write_block(
                    base,
                    Pending::Device { op },
                    offset,
                    &checkpoint_blocks(first_block, sequence, &records, salt),
                    false,
                );
            }
            Action::CommitCheckpoint { op, area, header } => {
                let offset = self.device.geometry.checkpoint[area & 1];
                self.write_block(base, Pending::Device { op }, offset, &header.encode(area, salt), false);
            }
            Action::WriteImage { op, area, first_block, bytes } => {
                let offset = self.device.geometry.image_block_offset(area, first_block);
                self.write_block(base, Pending::Device { op }, offset, &bytes.0, false);
            }
            Action::ReadImage { op, area, first_block, blocks } => {
                let offset = self.device.geometry.image_block_offset(area, first_block);
                let memory = base.buffers.memory(usize_from_u32(blocks) * usize_from_u32(BLOCK_BYTES));
                let operation = Operation::read(self.device.file.fd(), offset, memory);
                base.submit(operation, Pending::Image { op });
            }
            Action::FlushCache { op } => self.flush_cache(base, op),
            other => unreachable!("{other:?} is not for the cache device"),
        }
    }

    /// Flushes the journal device too: all earlier writes are durable afterwards, on either device.
    fn flush_cache(&mut self, base: &mut Base, op: OpId) {
        let files = [Some(&*self.device.file), self.device.journal.as_deref()];
        let fds: Vec<_> = files.into_iter().flatten().map(|file| SharedFd::clone(file.fd())).collect();
        let join = self.joins.begin(op, fds.len());
        for fd in fds {
            base.submit(Operation::Fsync { fd, datasync: true }, Pending::Joined { join });
        }
    }

    fn write_block(&mut self, base: &mut Base, pending: Pending, offset: u64, bytes: &[u8], durable: bool) {
        assert!(!bytes.is_empty(), "a block has bytes");
        let mut memory = base.buffers.memory(bytes.len().next_multiple_of(usize_from_u32(BLOCK_BYTES)));
        let (used, rest) = memory.split_at_mut(bytes.len());
        used.copy_from_slice(bytes);
        rest.fill(0);
        let (file, offset) = self.device.at(offset);
        let operation = Operation::write_as(file.fd(), offset, memory, durable);
        base.submit(operation, pending);
    }

    /// Discards a slot. A block device may return discarded contents, but must return erased ones as zeros.
    fn discard(&mut self, base: &mut Base, op: OpId, slot: WeuSlot, erase: bool) {
        let offset = self.device.geometry.slot_offset(slot);
        let len = u64::from(self.device.geometry.weu_bytes);
        let fd = SharedFd::clone(self.device.file.fd());
        let operation = match self.device.file.kind() {
            FileKind::Block if erase => {
                Operation::Fallocate { fd, mode: FallocateMode::ZeroRange, offset, len }
            }
            FileKind::Block => Operation::Discard { fd, offset, len },
            FileKind::Regular => Operation::Fallocate { fd, mode: FallocateMode::PunchHole, offset, len },
        };
        base.submit(operation, Pending::Device { op });
    }

    /// Writes `data`, which starts at a block boundary, and the header; earlier data is on the device already.
    fn write_weu(
        &mut self,
        base: &mut Base,
        op: OpId,
        slot: WeuSlot,
        weu: BufId,
        data: Range<u32>,
        header: &WeuHeader,
    ) {
        let (start_bytes, data_bytes) = (data.start, data.end);
        let Geometry { weu_bytes, salt, .. } = self.device.geometry;
        let count = u32::try_from(header.entries.len()).unwrap_or(u32::MAX);
        let header_bytes = WeuHeader::encoded_bytes(count);
        let header_at = weu_bytes - header_bytes;
        // Possibly nothing is left to write: earlier data may then extend beyond the data's last block.
        let data_end = data_bytes.next_multiple_of(BLOCK_BYTES).min(header_at).max(start_bytes);
        assert!(data_bytes <= data_end, "data and header of a unit do not meet");
        header.encode_into(&mut base.buffers.write(slice(weu, header_at, header_bytes)), salt);
        let whole = header_at - data_end <= WEU_GAP_BYTES;
        let zero_end = if whole { header_at } else { data_end };
        let zero_start = data_bytes.max(start_bytes);
        if zero_end > zero_start {
            base.buffers.zero(slice(weu, zero_start, zero_end - zero_start));
        }
        let offset = self.device.geometry.slot_offset(slot);
        if whole {
            let all = base.buffers.read(slice(weu, start_bytes, weu_bytes - start_bytes));
            let operation = Operation::write(self.device.file.fd(), offset + u64::from(start_bytes), all);
            base.submit(operation, Pending::Device { op });
            return;
        }
        let pieces = [(start_bytes, data_end - start_bytes), (header_at, header_bytes)];
        let pieces: Vec<_> = pieces.into_iter().filter(|piece| piece.1 > 0).collect();
        let join = self.joins.begin(op, pieces.len());
        for (start_bytes, len_bytes) in pieces {
            let segments = vec![Segment::whole(base.buffers.read(slice(weu, start_bytes, len_bytes)))];
            let fd = SharedFd::clone(self.device.file.fd());
            let offset = offset + u64::from(start_bytes);
            base.submit(Operation::Write { fd, offset, segments, durable: false }, Pending::Joined { join });
        }
    }

    fn read_header(&mut self, base: &mut Base, op: OpId, slot: WeuSlot, hint_bytes: u32) {
        let len_bytes = if hint_bytes == 0 { HEADER_READ_BYTES } else { hint_bytes };
        self.read_tail(base, op, slot, len_bytes, false);
    }

    fn read_tail(&mut self, base: &mut Base, op: OpId, slot: WeuSlot, len_bytes: u32, again: bool) {
        let weu_bytes = self.device.geometry.weu_bytes;
        let len_bytes = len_bytes.next_multiple_of(BLOCK_BYTES).min(weu_bytes);
        let end = self.device.geometry.slot_offset(slot) + u64::from(weu_bytes);
        let memory = base.buffers.memory(usize_from_u32(len_bytes));
        let operation = Operation::read(self.device.file.fd(), end - u64::from(len_bytes), memory);
        base.submit(operation, Pending::Header { op, slot, again });
    }

    fn header_arrived(&mut self, base: &mut Base, op: OpId, slot: WeuSlot, again: bool, tail: &AlignedBuf) {
        let geometry = &self.device.geometry;
        let claimed = WeuHeader::peek_len(tail, geometry.weu_bytes);
        if let Ok(len_bytes) = claimed
            && usize_from_u32(len_bytes) > tail.len()
            && !again
        {
            self.read_tail(base, op, slot, len_bytes, true);
            return;
        }
        let header = WeuHeader::decode(tail, slot, geometry.weu_bytes, geometry.extent_bytes, geometry.salt);
        base.tell(Event::HeaderRead { op, result: Ok(header.ok().map(Box::new)) });
    }

    pub(crate) fn ended(
        &mut self,
        base: &mut Base,
        workers: &mut Workers,
        pending: Pending,
        result: io::Result<usize>,
        operation: Operation,
    ) {
        if matches!(pending, Pending::Late) {
            // Only its memory is freed by that.
            drop(operation);
            tracing::debug!(ok = result.is_ok(), "the cache device answered an abandoned operation");
            return;
        }
        let result = self.device.result(result, &mut base.metrics).map(|_| ());
        match (pending, result) {
            (Pending::Extents(read), Err(error)) => {
                base.tell(Event::ExtentsRead { op: read.op, result: Err(error) });
            }
            (Pending::Extents(read), Ok(())) => workers.extents_arrived(base, read, memory_of(operation)),
            (Pending::Header { op, .. }, Err(error)) => {
                base.tell(Event::HeaderRead { op, result: Err(error) });
            }
            (Pending::Header { op, slot, again }, Ok(())) => {
                self.header_arrived(base, op, slot, again, &memory_of(operation));
            }
            (Pending::Image { op }, Err(error)) => {
                base.tell(Event::ImageRead { op, result: Err(error) });
            }
            (Pending::Image { op }, Ok(())) => {
                let bytes = ImageBytes(memory_of(operation).to_vec());
                base.tell(Event::ImageRead { op, result: Ok(bytes) });
            }
            (pending, result) => {
                drop(operation);
                self.changed(base, &pending, result);
            }
        }
    }

    /// Handles the completion of a write, flush or discard.
    fn changed(&mut self, base: &mut Base, pending: &Pending, result: Result<(), ErrorKind>) {
        match *pending {
            Pending::Device { op } => base.tell(Event::DeviceDone { op, result }),
            Pending::Journal { op, block } => {
                if result.is_ok() {
                    self.journal_written = self.journal_written.max(block);
                }
                base.tell(Event::DeviceDone { op, result });
            }
            Pending::Joined { join } => {
                if let Some((op, result)) = self.joins.ended(join, result) {
                    base.tell(Event::DeviceDone { op, result });
                }
            }
            _ => unreachable!("{pending:?} is not of the cache device"),
        }
    }

    /// Completes an operation that is still in flight with an error. One with a result completes with that: see
    /// `Action::Abandon`.
    pub(crate) fn abandon(&mut self, base: &mut Base, op: OpId) {
        let join = self.joins.of(op);
        let Some(what) = base.io.abandon(op, join) else { return };
        if let Some(join) = join {
            self.joins.forget(join);
        }
        base.metrics.abandoned += 1;
        if base.metrics.abandoned.is_power_of_two() {
            let count = base.metrics.abandoned;
            let path = self.device.file.path().display();
            tracing::warn!(count, "cache device {path} does not answer in time; its operation is abandoned");
        }
        let late = ErrorKind::TimedOut;
        base.tell(match what {
            Abandoned::Change => Event::DeviceDone { op, result: Err(late) },
            Abandoned::Extents => Event::ExtentsRead { op, result: Err(late) },
            Abandoned::Header => Event::HeaderRead { op, result: Err(late) },
            Abandoned::Image => Event::ImageRead { op, result: Err(late) },
        });
    }
}

/// The memory that a read of the device filled.
fn memory_of(operation: Operation) -> AlignedBuf {
    let Some(Memory::Buf(memory)) = operation.into_target().map(Target::into_memory) else {
        unreachable!("extents, headers and images are read into whole buffers")
    };
    memory
}

fn checkpoint_blocks(first_block: u64, sequence: u64, records: &[Record], salt: Salt) -> Vec<u8> {
    let mut bytes = Vec::new();
    for (block, records) in (first_block..).zip(records.chunks(RECORDS_PER_BLOCK)) {
        bytes.extend_from_slice(&encode_checkpoint_block(sequence, block, records, salt));
    }
    bytes
}
