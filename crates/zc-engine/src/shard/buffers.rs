//! Buffers by number: the memory behind the cache manager's [`BufId`]s.
//!
//! Job: execute `Alloc`, `Free`, `Copy`, `Zero`, lease parts to the ring and to workers, and keep digests of extents
//! from reads for the writes of stores (`ExtentRead::keep`).
//!
//! Invariants: a buffer's memory lives until its last lease is dropped, also after its number was freed. Two leases of
//! which one writes never overlap (checked by the arena: a violation by the manager panics). Memory for a client's
//! request holds zeros or bytes of that volume's requests, so that no fault exposes bytes of another volume. Data that
//! a device read fetches for a client may stay in the read's memory: only verified bytes are sent.
//!
//! It does not bound the total. The manager's buffers are bounded by its configuration, those of clients by the front
//! end's budget; memory beyond the pool's bound comes from the allocator and returns there.

use std::cell::OnceCell;
use std::collections::BTreeMap;
use std::ops::Range;

use zc_core::{BufId, BufSlice, Map, VolumeId, u64_from_usize, usize_from_u32};
use zc_io::{AlignedBuf, Arena, BufPool, Lease, Owner, ReadLease, Segment, SharedBuf};
use zc_pool::KnownChunk;

use crate::shard::extents::Learned;

/// Memory behind a number.
#[derive(Debug)]
enum Part {
    /// `len_bytes` of an arena from `start`.
    Memory { arena: Arena, start: usize, len_bytes: usize },
    /// Data of a pending client read.
    Awaited(Awaited),
}

impl Part {
    const fn len_bytes(&self) -> usize {
        match self {
            Self::Memory { len_bytes, .. } | Self::Awaited(Awaited { len_bytes, .. }) => *len_bytes,
        }
    }
}

/// Pending data of a client read. It has no memory before it arrives, at once with its own memory, or in pieces.
#[derive(Debug)]
struct Awaited {
    volume: VolumeId,
    len_bytes: usize,
    /// Data that arrived at once, with its range in that memory.
    brought: Option<(SharedBuf, Range<usize>)>,
    arena: OnceCell<Arena>,
}

pub(crate) const fn slice(buf: BufId, start_bytes: u32, len_bytes: u32) -> BufSlice {
    BufSlice { buf, start_bytes, len_bytes }
}

#[derive(Debug)]
pub(crate) struct Buffers {
    pool: BufPool,
    table: Map<BufId, Part>,
    /// Digests of whole extents in buffers, by position in the buffer.
    known: Map<BufId, BTreeMap<u32, KnownChunk>>,
    next: u64,
}

impl Buffers {
    pub(crate) fn new(pool: BufPool) -> Self {
        Self { pool, table: Map::default(), known: Map::default(), next: 1 }
    }

    /// Memory that has no number yet, contents arbitrary.
    pub(crate) fn memory(&self, len_bytes: usize) -> AlignedBuf {
        self.pool.get(len_bytes).unwrap_or_else(|| AlignedBuf::new(len_bytes))
    }

    /// Memory for a request of a client: zeros, or bytes of earlier requests to the same volume.
    pub(crate) fn client_memory(&self, volume: VolumeId, len_bytes: usize) -> AlignedBuf {
        let owner = Owner::numbered(u64::from(volume.0) + 1);
        self.pool.get_for(len_bytes, owner).unwrap_or_else(|| AlignedBuf::new(len_bytes))
    }

    /// Adopts the memory under a number of the driver's range.
    pub(crate) fn adopt(&mut self, arena: Arena) -> BufId {
        let whole = 0..arena.len();
        self.adopt_part(arena, whole)
    }

    /// As [`Self::adopt`], for a part of the memory.
    pub(crate) fn adopt_part(&mut self, arena: Arena, range: Range<usize>) -> BufId {
        let buf = BufId(self.next);
        self.next += 1;
        self.insert(buf, Part::Memory { arena, start: range.start, len_bytes: range.len() });
        buf
    }

    /// Allocates a number of the driver's range for the data of a client read, which receives memory when it arrives.
    pub(crate) fn await_bytes(&mut self, volume: VolumeId, len_bytes: usize) -> BufId {
        let buf = BufId(self.next);
        self.next += 1;
        let awaited = Awaited { volume, len_bytes, brought: None, arena: OnceCell::new() };
        self.insert(buf, Part::Awaited(awaited));
        buf
    }

    /// Returns `true` if the slice is all of a client read's pending data, of which nothing has arrived.
    pub(crate) fn awaits(&self, slice: BufSlice) -> bool {
        let Part::Awaited(awaited) = self.part(slice.buf) else { return false };
        slice.start_bytes == 0
            && usize_from_u32(slice.len_bytes) == awaited.len_bytes
            && awaited.brought.is_none()
            && awaited.arena.get().is_none()
    }

    /// Delivers all of a client read's pending data in this range of `memory`. The rest of the memory is never sent.
    pub(crate) fn bring(&mut self, buf: BufId, memory: AlignedBuf, range: Range<usize>) {
        let Some(Part::Awaited(awaited)) = self.table.get_mut(&buf) else { panic!("{buf:?} awaits nothing") };
        assert_eq!(range.len(), awaited.len_bytes, "all bytes come at once");
        awaited.brought = Some((memory.into_shared(), range));
    }

    /// Returns the bytes of a completed client read, and the size of their memory.
    pub(crate) fn brought(&self, buf: BufId) -> (Segment, usize) {
        let Part::Awaited(awaited) = self.part(buf) else { panic!("{buf:?} awaits nothing") };
        match (&awaited.brought, awaited.arena.get()) {
            (Some((memory, range)), None) => {
                (Segment::new(memory.clone(), range.clone()), memory.held_bytes())
            }
            _ => {
                let arena = self.arena_of(awaited);
                (Segment::whole(arena.read_lease(0..awaited.len_bytes)), arena.held_bytes())
            }
        }
    }

    /// Returns memory for parts of a client read's data.
    fn arena_of<'a>(&self, awaited: &'a Awaited) -> &'a Arena {
        awaited.arena.get_or_init(|| {
            let mut memory = self.client_memory(awaited.volume, awaited.len_bytes);
            if let Some((brought, range)) = &awaited.brought {
                memory.copy_from_slice(&brought[range.clone()]);
            }
            Arena::new(memory)
        })
    }

    pub(crate) fn alloc(&mut self, buf: BufId, len_bytes: u32) {
        let len_bytes = usize_from_u32(len_bytes);
        let arena = Arena::new(self.memory(len_bytes));
        self.insert(buf, Part::Memory { arena, start: 0, len_bytes });
    }

    fn insert(&mut self, buf: BufId, part: Part) {
        let before = self.table.insert(buf, part);
        assert!(before.is_none(), "{buf:?} exists already");
    }

    pub(crate) fn free(&mut self, buf: BufId) {
        let part = self.table.remove(&buf);
        assert!(part.is_some(), "{buf:?} is freed but does not exist");
        self.known.remove(&buf);
    }

    /// Frees all but some.
    pub(crate) fn keep(&mut self, keeps: impl Fn(BufId) -> bool) {
        self.table.retain(|buf, _| keeps(*buf));
        self.known.retain(|buf, _| keeps(*buf));
    }

    /// Keeps the digest of an extent until its buffer is freed.
    pub(crate) fn know(&mut self, learned: Learned) {
        let Learned { at, known } = learned;
        if self.table.contains_key(&at.buf) {
            self.known.entry(at.buf).or_default().insert(at.start_bytes, known);
        }
    }

    /// Returns the digests of whole extents in the range, by offset from the first byte, lowest first.
    pub(crate) fn known_in(&self, bytes: BufSlice, extent_bytes: u32) -> Vec<(u32, KnownChunk)> {
        let end = bytes.start_bytes + bytes.len_bytes;
        let Some(known) = self.known.get(&bytes.buf) else { return Vec::new() };
        let from_start = known.range(bytes.start_bytes..).take_while(|(at, _)| **at + extent_bytes <= end);
        from_start.map(|(at, known)| (at - bytes.start_bytes, known.clone())).collect()
    }

    fn part(&self, buf: BufId) -> &Part {
        let Some(part) = self.table.get(&buf) else { panic!("{buf:?} is used but does not exist") };
        part
    }

    /// The arena of a slice, and its place there.
    fn place(&self, slice: BufSlice) -> (&Arena, Range<usize>) {
        let part = self.part(slice.buf);
        let first = usize_from_u32(slice.start_bytes);
        let end = first + usize_from_u32(slice.len_bytes);
        assert!(end <= part.len_bytes(), "{slice:?} of a buffer of {} bytes", part.len_bytes());
        match part {
            Part::Memory { arena, start, .. } => (arena, start + first..start + end),
            Part::Awaited(awaited) => (self.arena_of(awaited), first..end),
        }
    }

    pub(crate) fn read(&self, slice: BufSlice) -> ReadLease {
        let (arena, range) = self.place(slice);
        arena.read_lease(range)
    }

    pub(crate) fn write(&self, slice: BufSlice) -> Lease {
        let (arena, range) = self.place(slice);
        arena.lease(range)
    }

    pub(crate) fn copy(&self, from: BufSlice, to: BufSlice) {
        let source = self.read(from);
        self.write(to).copy_from_slice(&source);
    }

    pub(crate) fn zero(&self, dest: BufSlice) {
        self.write(dest).fill(0);
    }

    /// Gives memory back that was not needed since the last call; how many bytes.
    pub(crate) fn give_back(&self) -> u64 {
        u64_from_usize(self.pool.give_back())
    }

    /// Numbers in use.
    pub(crate) fn len(&self) -> usize {
        self.table.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn slice(buf: BufId, start_bytes: u32, len_bytes: u32) -> BufSlice {
        BufSlice { buf, start_bytes, len_bytes }
    }

    #[test]
    fn copies_and_zeros_touch_what_they_name() {
        let mut buffers = Buffers::new(BufPool::new(1 << 20));
        let (one, two) = (BufId(1 << 63), BufId(2 << 62 | 7));
        buffers.alloc(one, 8192);
        buffers.alloc(two, 4096);
        buffers.zero(slice(one, 0, 8192));
        buffers.write(slice(two, 0, 4096)).fill(3);
        buffers.copy(slice(two, 0, 512), slice(one, 512, 512));
        assert!(buffers.read(slice(one, 0, 512)).iter().all(|&byte| byte == 0));
        assert!(buffers.read(slice(one, 512, 512)).iter().all(|&byte| byte == 3));
        assert!(buffers.read(slice(one, 1024, 7168)).iter().all(|&byte| byte == 0));
    }

    #[test]
    fn clients_get_no_bytes_of_other_volumes_or_of_the_manager() {
        let mut buffers = Buffers::new(BufPool::new(1 << 20));
        buffers.client_memory(VolumeId(0), 8192).fill(1);
        assert!(buffers.client_memory(VolumeId(1), 8192).iter().all(|&byte| byte == 0));
        let manager = BufId(1 << 63);
        buffers.alloc(manager, 8192);
        buffers.write(slice(manager, 0, 8192)).fill(2);
        buffers.free(manager);
        assert!(buffers.client_memory(VolumeId(0), 8192).iter().all(|&byte| byte == 0));
    }

    #[test]
    fn what_was_learned_of_whole_extents_goes_with_them_and_ends_with_the_buffer() {
        let mut buffers = Buffers::new(BufPool::new(1 << 20));
        let (buf, freed) = (BufId(1 << 63), BufId(1 << 63 | 1));
        buffers.alloc(buf, 4 * 4096);
        let known = |number| KnownChunk { print: Some(zc_core::Fingerprint([number; 32])), encoding: None };
        for (number, buf, at) in [(1, buf, 0), (2, buf, 4096), (3, buf, 12_288), (4, freed, 0)] {
            buffers.know(Learned { at: slice(buf, at, 4096), known: known(number) });
        }
        assert_eq!(buffers.known_in(slice(buf, 512, 15_872), 4096), [(3584, known(2)), (11_776, known(3))]);
        assert_eq!(buffers.known_in(slice(buf, 0, 16_383), 4096), [(0, known(1)), (4096, known(2))]);
        assert_eq!(buffers.known_in(slice(freed, 0, 4096), 4096), [], "its buffer was not there any more");
        buffers.free(buf);
        assert!(buffers.known.is_empty());
    }

    #[test]
    fn a_lease_outlives_the_number() {
        let mut buffers = Buffers::new(BufPool::new(1 << 20));
        let buf = buffers.adopt(Arena::new(AlignedBuf::from(&b"bytes"[..])));
        let lease = buffers.read(slice(buf, 0, 5));
        buffers.free(buf);
        assert_eq!(&*lease, b"bytes");
        assert_eq!(buffers.len(), 0);
    }

    #[test]
    fn a_read_that_comes_at_once_stays_where_it_came_to() {
        let mut buffers = Buffers::new(BufPool::new(1 << 20));
        let buf = buffers.await_bytes(VolumeId(0), 4096);
        assert!(buffers.awaits(slice(buf, 0, 4096)));
        assert!(!buffers.awaits(slice(buf, 0, 512)) && !buffers.awaits(slice(buf, 512, 4096)));
        let mut pages = buffers.memory(3 * 4096);
        pages.fill(1);
        pages[64..64 + 4096].fill(2);
        let address = pages[64..].as_ptr();
        buffers.bring(buf, pages, 64..64 + 4096);
        let (bytes, held_bytes) = buffers.brought(buf);
        assert_eq!((bytes.bytes().as_ptr(), bytes.len_bytes(), held_bytes), (address, 4096, 4 * 4096));
        assert!(!buffers.awaits(slice(buf, 0, 4096)), "it has come");
        assert!(buffers.read(slice(buf, 512, 512)).iter().all(|&byte| byte == 2), "others can read it");
        buffers.free(buf);
        assert!(bytes.bytes().iter().all(|&byte| byte == 2), "the answer outlives the number");
    }

    #[test]
    fn a_read_that_comes_in_pieces_gets_memory_of_its_volume() {
        let mut buffers = Buffers::new(BufPool::new(1 << 20));
        buffers.client_memory(VolumeId(1), 8192).fill(9);
        let buf = buffers.await_bytes(VolumeId(0), 8192);
        buffers.write(slice(buf, 0, 512)).fill(1);
        assert!(!buffers.awaits(slice(buf, 0, 8192)), "a part of it has come");
        buffers.write(slice(buf, 512, 512)).fill(2);
        let (bytes, held_bytes) = buffers.brought(buf);
        assert_eq!((bytes.bytes()[511], bytes.bytes()[512], held_bytes), (1, 2, 8192));
        assert!(bytes.bytes()[1024..].iter().all(|&byte| byte == 0), "nothing of another volume");
    }

    #[test]
    fn a_part_is_a_buffer_of_its_own() {
        let mut buffers = Buffers::new(BufPool::new(1 << 20));
        let whole = Arena::new(AlignedBuf::new(8192));
        let parts = [0..4096, 4096..8192].map(|range| buffers.adopt_part(whole.clone(), range));
        for (byte, buf) in (1..).zip(parts) {
            buffers.write(slice(buf, 0, 4096)).fill(byte);
            buffers.free(buf);
        }
        assert_eq!(whole.read_lease(4095..4097)[..], [1, 2]);
    }

    #[test]
    #[should_panic(expected = "of a buffer of 4096 bytes")]
    fn a_part_ends_where_it_ends() {
        let mut buffers = Buffers::new(BufPool::new(1 << 20));
        let buf = buffers.adopt_part(Arena::new(AlignedBuf::new(8192)), 0..4096);
        drop(buffers.read(slice(buf, 4096, 1)));
    }

    #[test]
    #[should_panic(expected = "does not exist")]
    fn a_freed_number_is_not_used() {
        let mut buffers = Buffers::new(BufPool::new(1 << 20));
        let buf = buffers.adopt(Arena::new(AlignedBuf::new(10)));
        buffers.free(buf);
        drop(buffers.read(slice(buf, 0, 1)));
    }
}
