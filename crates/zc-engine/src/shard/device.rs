//! The cache device's part of the actions.
//!
//! Job: encode metadata to its place, write units (data and header, the gap between only if it is small), read stored
//! extents and headers.
//!
//! Invariants: every write is whole 4 KiB blocks, every read whole blocks of the device, from page-aligned memory
//! (O_DIRECT). Memory that goes to the device holds nothing but what belongs there: padding is zero.
//!
//! What it does not do: judge errors or retry.

use std::io;
use std::ops::Range;

use zc_cache::seam::{Action, Event, ExtentRead, Source};
use zc_core::{BufId, OpId, WeuSlot, limits::BLOCK_BYTES, usize_from_u32};
use zc_format::{
    EXTENT_HEADER_BYTES, Geometry, RECORDS_PER_BLOCK, Record, Salt, WeuHeader, encode_checkpoint_block,
};
use zc_io::{FallocateMode, FileKind, Memory, Operation, Segment, SharedFd, Target};

use crate::limits::{HEADER_READ_BYTES, INLINE_DECODE_BYTES, WEU_GAP_BYTES};
use crate::shard::Shard;
use crate::shard::exec::slice;
use crate::shard::extents::{ExtentsRead, PartDecode, decode};
use crate::shard::pending::{ExtentsPending, Pending};
use crate::shard::reduce_pool::Job;

impl Shard {
    pub(crate) fn device_action(&mut self, action: Action) {
        let salt = self.device.geometry.salt;
        match action {
            Action::ReadExtents { op, source: Source::Memory(weu), parts, .. } => {
                self.read_from_memory(op, weu, &parts);
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
                let memory = self.buffers.memory(blocks.len());
                let pending = ExtentsPending { op, start_bytes: blocks.start, parts, urgent };
                let operation = Operation::read(self.device.file.fd(), offset, memory);
                self.submit(operation, Pending::Extents(Box::new(pending)));
            }
            Action::ReadHeader { op, slot, hint_bytes } => self.read_header(op, slot, hint_bytes),
            Action::WriteWeu { op, slot, weu, start_bytes, data_bytes, header } => {
                self.write_weu(op, slot, weu, start_bytes..data_bytes, &header);
            }
            Action::WritePart { op, slot, weu, start_bytes, len_bytes, durable } => {
                let offset = self.device.geometry.slot_offset(slot) + u64::from(start_bytes);
                let part = self.buffers.read(slice(weu, start_bytes, len_bytes));
                let operation = Operation::write_as(self.device.file.fd(), offset, part, durable);
                self.submit(operation, Pending::Device { op });
            }
            Action::DiscardSlot { op, slot } => self.discard(op, slot),
            Action::WriteJournal { op, block, durable } => {
                let offset = self.device.geometry.journal_block_offset(block.sequence);
                let pending = Pending::Journal { op, block: block.sequence };
                self.write_block(pending, offset, &block.encode(salt), durable);
            }
            Action::WriteRegionMap { op, copy, map } => {
                let offset = self.device.geometry.region_map[copy & 1];
                self.write_block(Pending::Device { op }, offset, &map.encode(copy, salt), false);
            }
            Action::WriteCheckpoint { op, area, first_block, sequence, records } => {
                let offset = self.device.geometry.checkpoint_block_offset(area, first_block);
                self.write_block(
                    Pending::Device { op },
                    offset,
                    &checkpoint_blocks(first_block, sequence, &records, salt),
                    false,
                );
            }
            Action::CommitCheckpoint { op, area, header } => {
                let offset = self.device.geometry.checkpoint[area & 1];
                self.write_block(Pending::Device { op }, offset, &header.encode(area, salt), false);
            }
            Action::FlushCache { op } => self.flush_cache(op),
            other => unreachable!("{other:?} is not for the cache device"),
        }
    }

    /// A flush is of the journal device too: what was written before it is durable after it, wherever it is.
    fn flush_cache(&mut self, op: OpId) {
        let files = [Some(&*self.device.file), self.device.journal.as_deref()];
        let fds: Vec<_> = files.into_iter().flatten().map(|file| SharedFd::clone(file.fd())).collect();
        let join = self.joins.begin(op, fds.len());
        for fd in fds {
            self.submit(Operation::Fsync { fd, datasync: true }, Pending::Joined { join });
        }
    }

    fn write_block(&mut self, pending: Pending, offset: u64, bytes: &[u8], durable: bool) {
        assert!(!bytes.is_empty(), "a block has bytes");
        let mut memory = self.buffers.memory(bytes.len().next_multiple_of(usize_from_u32(BLOCK_BYTES)));
        let (used, rest) = memory.split_at_mut(bytes.len());
        used.copy_from_slice(bytes);
        rest.fill(0);
        let (file, offset) = self.device.at(offset);
        let operation = Operation::write_as(file.fd(), offset, memory, durable);
        self.submit(operation, pending);
    }

    fn discard(&mut self, op: OpId, slot: WeuSlot) {
        let offset = self.device.geometry.slot_offset(slot);
        let len = u64::from(self.device.geometry.weu_bytes);
        let fd = SharedFd::clone(self.device.file.fd());
        let operation = match self.device.file.kind() {
            FileKind::Block => Operation::Discard { fd, offset, len },
            FileKind::Regular => Operation::Fallocate { fd, mode: FallocateMode::PunchHole, offset, len },
        };
        self.submit(operation, Pending::Device { op });
    }

    /// Writes what lies in `data`, of which the start is a block's, and the header; what lies before is there already.
    fn write_weu(&mut self, op: OpId, slot: WeuSlot, weu: BufId, data: Range<u32>, header: &WeuHeader) {
        let (start_bytes, data_bytes) = (data.start, data.end);
        let Geometry { weu_bytes, salt, .. } = self.device.geometry;
        let count = u32::try_from(header.entries.len()).unwrap_or(u32::MAX);
        let header_bytes = WeuHeader::encoded_bytes(count);
        let header_at = weu_bytes - header_bytes;
        // Nothing may be left to write: then what is there already may reach beyond the data's last block.
        let data_end = data_bytes.next_multiple_of(BLOCK_BYTES).min(header_at).max(start_bytes);
        assert!(data_bytes <= data_end, "data and header of a unit do not meet");
        header.encode_into(&mut self.buffers.write(slice(weu, header_at, header_bytes)), salt);
        let whole = header_at - data_end <= WEU_GAP_BYTES;
        let zero_end = if whole { header_at } else { data_end };
        let zero_start = data_bytes.max(start_bytes);
        if zero_end > zero_start {
            self.buffers.zero(slice(weu, zero_start, zero_end - zero_start));
        }
        let offset = self.device.geometry.slot_offset(slot);
        if whole {
            let all = self.buffers.read(slice(weu, start_bytes, weu_bytes - start_bytes));
            let operation = Operation::write(self.device.file.fd(), offset + u64::from(start_bytes), all);
            self.submit(operation, Pending::Device { op });
            return;
        }
        let pieces = [(start_bytes, data_end - start_bytes), (header_at, header_bytes)];
        let pieces: Vec<_> = pieces.into_iter().filter(|piece| piece.1 > 0).collect();
        let join = self.joins.begin(op, pieces.len());
        for (start_bytes, len_bytes) in pieces {
            let segments = vec![Segment::whole(self.buffers.read(slice(weu, start_bytes, len_bytes)))];
            let fd = SharedFd::clone(self.device.file.fd());
            let offset = offset + u64::from(start_bytes);
            self.submit(Operation::Write { fd, offset, segments, durable: false }, Pending::Joined { join });
        }
    }

    fn read_from_memory(&mut self, op: OpId, weu: BufId, parts: &[ExtentRead]) {
        let weu_bytes = self.device.geometry.weu_bytes;
        let mut results = Vec::with_capacity(parts.len());
        for part in parts {
            let at = part.expected.offset_bytes;
            let longest = EXTENT_HEADER_BYTES + part.expected.raw_bytes;
            let bytes = self.buffers.read(slice(weu, at, longest.min(weu_bytes.saturating_sub(at))));
            let mut dest = self.buffers.write(part.dest);
            results.push(decode(&bytes, part, &mut dest, &mut self.scratch));
        }
        self.events.push_back(Event::ExtentsRead { op, result: Ok(results) });
    }

    /// Pages are here: decode them, here if that is quick, else by the workers.
    pub(crate) fn extents_arrived(
        &mut self,
        read: ExtentsPending,
        result: io::Result<usize>,
        operation: Operation,
    ) {
        let ExtentsPending { op, start_bytes, parts, urgent } = read;
        if let Err(error) = self.device_result(result) {
            self.events.push_back(Event::ExtentsRead { op, result: Err(error) });
            return;
        }
        let Some(Memory::Buf(pages)) = operation.into_target().map(Target::into_memory) else {
            unreachable!("extents are read into whole buffers")
        };
        let raw_bytes = parts.iter().fold(0_u32, |sum, part| sum.saturating_add(part.expected.raw_bytes));
        let cost_bytes = inline_cost_bytes(pages.len(), raw_bytes);
        // What is hashed is for the workers, whoever waits.
        let hashes = parts.iter().any(|part| part.proof.is_some());
        let inline = urgent && !hashes && cost_bytes.is_some_and(|bytes| bytes <= self.inline_left_bytes);
        let pages = pages.into_shared();
        self.next_number += 1;
        let number = self.next_number;
        let decodes = parts.into_iter().enumerate().map(|(part, wanted)| PartDecode {
            read: number,
            part,
            pages: pages.clone(),
            pages_offset_bytes: start_bytes,
            dest: self.buffers.write(wanted.dest),
            wanted,
        });
        if inline {
            self.inline_left_bytes -= cost_bytes.unwrap_or(0);
            let results = decodes.map(|decode| decode.run(&mut self.scratch)).collect();
            self.events.push_back(Event::ExtentsRead { op, result: Ok(results) });
            return;
        }
        let groups = in_groups(decodes.collect());
        self.reads.insert(number, ExtentsRead::new(op, groups.iter().map(Vec::len).sum()));
        for group in groups {
            self.pool.submit(Job::Decode(group));
        }
    }

    pub(crate) fn part_decoded(
        &mut self,
        read: u64,
        part: usize,
        result: Result<(), zc_format::ExtentError>,
    ) {
        let Some(entry) = self.reads.get_mut(&read) else { panic!("extents read {read} has ended") };
        if entry.decoded(part, result)
            && let Some(entry) = self.reads.remove(&read)
        {
            let (op, results) = entry.finish();
            self.events.push_back(Event::ExtentsRead { op, result: Ok(results) });
        }
    }

    fn read_header(&mut self, op: OpId, slot: WeuSlot, hint_bytes: u32) {
        let len_bytes = if hint_bytes == 0 { HEADER_READ_BYTES } else { hint_bytes };
        self.read_tail(op, slot, len_bytes, false);
    }

    fn read_tail(&mut self, op: OpId, slot: WeuSlot, len_bytes: u32, again: bool) {
        let weu_bytes = self.device.geometry.weu_bytes;
        let len_bytes = len_bytes.next_multiple_of(BLOCK_BYTES).min(weu_bytes);
        let end = self.device.geometry.slot_offset(slot) + u64::from(weu_bytes);
        let memory = self.buffers.memory(usize_from_u32(len_bytes));
        let operation = Operation::read(self.device.file.fd(), end - u64::from(len_bytes), memory);
        self.submit(operation, Pending::Header { op, slot, again });
    }

    pub(crate) fn header_arrived(
        &mut self,
        op: OpId,
        slot: WeuSlot,
        again: bool,
        result: io::Result<usize>,
        operation: Operation,
    ) {
        if let Err(error) = self.device_result(result) {
            self.events.push_back(Event::HeaderRead { op, result: Err(error) });
            return;
        }
        let Some(Memory::Buf(tail)) = operation.into_target().map(Target::into_memory) else {
            unreachable!("headers are read into whole buffers")
        };
        let geometry = &self.device.geometry;
        let claimed = WeuHeader::peek_len(&tail, geometry.weu_bytes);
        if let Ok(len_bytes) = claimed
            && usize_from_u32(len_bytes) > tail.len()
            && !again
        {
            self.read_tail(op, slot, len_bytes, true);
            return;
        }
        let header = WeuHeader::decode(&tail, slot, geometry.weu_bytes, geometry.extent_bytes, geometry.salt);
        self.events.push_back(Event::HeaderRead { op, result: Ok(header.ok().map(Box::new)) });
    }
}

/// The blocks of the device within `pages` that can hold the extents: where blocks are smaller than pages, less is read
/// than the pages that an extent touches. A raw 8 KiB extent with its header straddles three pages, 12 KiB, and 17 or
/// 18 blocks of 512 bytes. How long a compressed one is, its header says; it is no longer than a raw one.
fn blocks_of(pages: &Range<u32>, parts: &[ExtentRead], block_bytes: u32) -> Range<u32> {
    let starts = parts.iter().map(|part| part.expected.offset_bytes);
    let ends = parts.iter().map(|part| {
        let expected = &part.expected;
        expected.offset_bytes.saturating_add(EXTENT_HEADER_BYTES).saturating_add(expected.raw_bytes)
    });
    let start = starts.min().unwrap_or(pages.start) / block_bytes * block_bytes;
    let end = ends.max().and_then(|end| end.checked_next_multiple_of(block_bytes)).unwrap_or(pages.end);
    // Never outside the pages: what the manager knows of the place is more than an extent's largest size.
    let start = start.clamp(pages.start, pages.end);
    start..end.clamp(start, pages.end)
}

/// What decoding on the data-plane thread takes of its bound, in decoded bytes; `None`: the workers do it. Pages as
/// long as what they decode to are not compressed: to verify and copy takes a quarter of decompressing, and less than
/// to hand over.
fn inline_cost_bytes(pages_bytes: usize, raw_bytes: u32) -> Option<u32> {
    if pages_bytes >= usize_from_u32(raw_bytes) {
        return Some(raw_bytes / 4);
    }
    (raw_bytes <= INLINE_DECODE_BYTES).then_some(raw_bytes)
}

/// Parts in groups of [`INLINE_DECODE_BYTES`] decoded bytes (or one part that is longer): one job each, because to hand
/// a job over and take its result back costs as much as to decode an extent or two.
fn in_groups(decodes: Vec<PartDecode>) -> Vec<Vec<PartDecode>> {
    let mut groups: Vec<Vec<PartDecode>> = Vec::new();
    let mut left_bytes = 0;
    for decode in decodes {
        let bytes = decode.wanted.expected.raw_bytes;
        match groups.last_mut() {
            Some(last) if bytes <= left_bytes => {
                left_bytes -= bytes;
                last.push(decode);
            }
            _ => {
                left_bytes = INLINE_DECODE_BYTES.saturating_sub(bytes);
                groups.push(vec![decode]);
            }
        }
    }
    groups
}

fn checkpoint_blocks(first_block: u64, sequence: u64, records: &[Record], salt: Salt) -> Vec<u8> {
    let mut bytes = Vec::new();
    for (block, records) in (first_block..).zip(records.chunks(RECORDS_PER_BLOCK)) {
        bytes.extend_from_slice(&encode_checkpoint_block(sequence, block, records, salt));
    }
    bytes
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use zc_core::{BufId, Generation, WeuSeq};
    use zc_format::ExpectedExtent;

    use super::*;

    fn part(offset_bytes: u32) -> ExtentRead {
        let expected = ExpectedExtent {
            salt: Salt::NONE,
            slot: WeuSlot(1),
            generation: Generation(1),
            weu_seq: WeuSeq(1),
            offset_bytes,
            raw_bytes: 8192,
            first_sector: 0,
            key: None,
            print: None,
        };
        ExtentRead { expected, skip_bytes: 0, dest: slice(BufId(1), 0, 8192), proof: None }
    }

    #[test]
    fn only_blocks_that_can_hold_the_extents_are_read() {
        assert_eq!(blocks_of(&(4096..16384), &[part(4160)], 512), 4096..12800);
        assert_eq!(blocks_of(&(4096..16384), &[part(8000)], 512), 7680..16384);
        assert_eq!(blocks_of(&(4096..16384), &[part(4160)], 4096), 4096..16384);
        assert_eq!(
            blocks_of(&(4096..8192), &[part(5120)], 512),
            5120..8192,
            "compressed: up to its last page"
        );
        assert_eq!(
            blocks_of(&(0..32768), &[part(20_000), part(640)], 512),
            512..28672,
            "neighbours in one read"
        );
    }

    #[test]
    fn what_is_not_compressed_is_decoded_at_once_and_long_compressed_reads_by_workers() {
        assert_eq!(inline_cost_bytes(12_800, 8192), Some(2048));
        assert_eq!(inline_cost_bytes(132 << 10, 128 << 10), Some(32 << 10));
        assert_eq!(inline_cost_bytes(4096, 8192), Some(8192));
        assert_eq!(inline_cost_bytes(16 << 10, 32 << 10), Some(32 << 10));
        assert_eq!(inline_cost_bytes(24 << 10, 40 << 10), None);
    }

    #[test]
    fn jobs_are_groups_of_a_bounded_length() {
        let pages = zc_io::AlignedBuf::new(4096).into_shared();
        let decode = |number| PartDecode {
            read: 1,
            part: number,
            pages: pages.clone(),
            pages_offset_bytes: 0,
            wanted: part(0),
            dest: zc_io::Arena::new(zc_io::AlignedBuf::new(0)).lease(0..0),
        };
        let groups = in_groups((0..9).map(decode).collect());
        let parts: Vec<Vec<usize>> =
            groups.iter().map(|group| group.iter().map(|decode| decode.part).collect()).collect();
        assert_eq!(parts, [vec![0, 1, 2, 3], vec![4, 5, 6, 7], vec![8]]);
        assert!(in_groups(Vec::new()).is_empty());
    }

    proptest! {
        #[test]
        fn every_extent_is_in_the_blocks_as_far_as_it_is_in_the_pages(
            offsets in prop::collection::vec(0_u32..200_000, 1..5),
            shift in 9_u32..13,
        ) {
            let parts: Vec<_> = offsets.iter().map(|offset| part(offset / 64 * 64)).collect();
            let first = parts.iter().map(|part| part.expected.offset_bytes / 4096 * 4096).min().unwrap();
            let end = parts.iter().map(|part| part.expected.offset_bytes + 64 + 8192).max().unwrap();
            let pages = first..end.next_multiple_of(4096);
            let blocks = blocks_of(&pages, &parts, 1 << shift);
            prop_assert!(blocks.start.is_multiple_of(1 << shift) && blocks.len().is_multiple_of(1 << shift));
            prop_assert!(blocks.start >= pages.start && blocks.end <= pages.end);
            for part in &parts {
                prop_assert!(blocks.start <= part.expected.offset_bytes);
                prop_assert!(part.expected.offset_bytes + 64 + 8192 <= blocks.end);
            }
        }
    }
}
