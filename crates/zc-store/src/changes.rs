//! Changes: writes, discards, the catalog; one line, one order.
//!
//! Job: bring each change to where it can be carried out without waiting, then carry it out and log it in one step.
//! Invariants: changes take effect in the order in which they arrived; a change and its records are one step, so a
//! checkpoint or a crash sees all of it or nothing; what is prepared before changes nothing that can be read. What it
//! does not do: write to the device, or make anything durable.

use zc_core::{BufId, BufSlice, OpId, ReqId};

use crate::catalog::{Root, RootKind};
use crate::ids::{ChunkNo, RootId};
use crate::limits;
use crate::media::batch::{
    CATALOG_RECORD_BYTES, CHUNK_RECORD_BYTES, CatalogChange, CatalogOp, Record, SHORT_RECORD_BYTES, Stored,
};
use crate::media::page::PageKey;
use crate::pager::Missing;
use crate::seam::{Action, Encoded, NewChunk, StoreError};
use crate::store::Open;

/// A change in line.
#[derive(Debug)]
pub(crate) struct Change {
    pub(crate) req: ReqId,
    kind: Kind,
    /// Pages that it waits for, at the front of the line.
    lacks: Vec<PageKey>,
    /// When it was last tried, in uses of pages.
    pub(crate) tried_at: u64,
}

#[derive(Debug)]
enum Kind {
    Write { root: RootId, first: u64, chunks: Vec<Slot> },
    Clear { root: RootId, first: u64, count: u64 },
    Catalog(CatalogChange),
}

/// A chunk of a write.
#[derive(Debug, Clone, Copy)]
struct Slot {
    new: NewChunk,
    encoded: Option<Encoded>,
    encoding: bool,
}

impl Slot {
    /// The contents are as long as a chunk of the volume, and the encoding is no longer.
    fn is_sane(&self, chunk_shift: u8) -> bool {
        let NewChunk::Data { raw, .. } = self.new else { return true };
        raw.len_bytes == 1 << chunk_shift
            && self.encoded.is_none_or(|encoded| encoded.bytes.len_bytes <= raw.len_bytes)
    }
}

/// What becomes of a chunk.
#[derive(Debug, Clone, Copy)]
enum Becomes {
    Nothing,
    Shared(ChunkNo),
    Stored(ChunkNo, Encoded),
    /// They are those of a chunk that is damaged.
    Healed(ChunkNo, Encoded),
}

/// `true` if contents are stored already.
enum Known {
    No,
    Sound(ChunkNo),
    /// They were, and could not be read when that was last tried.
    Damaged(ChunkNo),
}

/// How far the first in line got.
enum Step {
    Done(Result<(), StoreError>),
    Waits,
}

impl Open {
    pub(crate) fn submit_write(&mut self, req: ReqId, root: RootId, first: u64, chunks: Vec<NewChunk>) {
        let slot = |new| Slot { new, encoded: None, encoding: false };
        let is_malformed = !self.fits_a_batch(&chunks);
        let slots = chunks.into_iter().map(slot).collect();
        let change =
            Change { req, kind: Kind::Write { root, first, chunks: slots }, lacks: Vec::new(), tried_at: 0 };
        let Some(change) = self.admit(change, is_malformed) else { return };
        self.cleaner.client_writes();
        self.changes.push_back(change);
        let at = self.changes.len() - 1;
        self.encode_unknown(at);
    }

    pub(crate) fn submit_discard(&mut self, req: ReqId, root: RootId, first: u64, count: u64) {
        let kind = Kind::Clear { root, first, count };
        let change = Change { req, kind, lacks: Vec::new(), tried_at: 0 };
        let change = self.admit(change, count == 0);
        self.changes.extend(change);
    }

    pub(crate) fn submit_catalog(&mut self, req: ReqId, change: CatalogChange) {
        let change = Change { req, kind: Kind::Catalog(change), lacks: Vec::new(), tried_at: 0 };
        let change = self.admit(change, false);
        self.changes.extend(change);
    }

    /// Refuses what cannot be.
    fn admit(&mut self, change: Change, malformed: bool) -> Option<Change> {
        let error = if malformed {
            StoreError::Invalid
        } else if let Some(error) = self.failed {
            error
        } else if self.changes.len() >= limits::CHANGES_MAX {
            StoreError::Limit
        } else {
            return Some(change);
        };
        self.end_change(change, Err(error));
        None
    }

    /// Whether some chunks, with their records, fit one batch and so one segment: no encoding is longer than its chunk.
    fn fits_a_batch(&self, chunks: &[NewChunk]) -> bool {
        let max = limits::request_bytes_max(self.superblock.segment_bytes);
        let bytes: u64 = chunks.iter().map(|chunk| u64::from(chunk.raw_bytes())).sum();
        let counts = 1..=zc_core::usize_from_u32(limits::REQUEST_CHUNKS_MAX);
        counts.contains(&chunks.len()) && bytes <= u64::from(max)
    }

    /// Contents that are not known to be stored are compressed while the change waits in line.
    fn encode_unknown(&mut self, at: usize) {
        let Some(Change { req, kind: Kind::Write { root, chunks, .. }, .. }) = self.changes.get_mut(at)
        else {
            return;
        };
        let Some(root) = self.trees.roots.get(root) else { return };
        let mut raws = Vec::new();
        for (index, slot) in chunks.iter_mut().enumerate() {
            let NewChunk::Data { print, raw } = slot.new else { continue };
            let hint = print.filter(|_| root.is_deduplicated()).and_then(|print| self.prints.find(&print));
            if hint.is_none() {
                slot.encoding = true;
                raws.push((index, raw));
            }
        }
        let (req, codec) = (*req, root.codec);
        self.ask_encoding(req, codec, raws);
    }

    fn ask_encoding(&mut self, req: ReqId, codec: zc_core::Codec, slots: Vec<(usize, BufSlice)>) {
        if !slots.is_empty() {
            self.next_op += 1;
            let op = OpId(self.next_op);
            let chunks = slots.iter().map(|(_, raw)| *raw).collect();
            self.encoding.insert(op, (req, slots));
            self.out.push(Action::Encode { op, codec, chunks });
        }
    }

    /// An encoding ended.
    pub(crate) fn encoded(&mut self, op: OpId, chunks: &[Encoded]) {
        let Some((req, asked)) = self.encoding.remove(&op) else { return };
        let change = self.changes.iter_mut().find(|change| change.req == req);
        if let Some(Change { kind: Kind::Write { chunks: slots, .. }, .. }) = change {
            for ((index, _), encoded) in asked.iter().zip(chunks) {
                slots[*index].encoded = Some(*encoded);
                slots[*index].encoding = false;
            }
            return;
        }
        // The change failed meanwhile, and left the buffers that were being encoded.
        for ((_, raw), encoded) in asked.iter().zip(chunks) {
            self.out.push(Action::Free { buf: raw.buf });
            if encoded.bytes.buf != raw.buf {
                self.out.push(Action::Free { buf: encoded.bytes.buf });
            }
        }
    }

    /// Carries out what is first in line, as long as that can be done.
    pub(crate) fn pump_changes(&mut self) {
        while let Some(change) = self.changes.front() {
            if change.lacks.iter().any(|key| !self.trees.pager.has(*key)) || self.must_wait_for_checkpoint() {
                return;
            }
            let Some(mut change) = self.changes.pop_front() else { return };
            change.lacks.clear();
            change.tried_at = self.trees.pager.now();
            match self.try_change(&mut change) {
                Step::Done(result) => self.end_change(change, result),
                Step::Waits => {
                    self.changes.push_front(change);
                    return;
                }
            }
            if self.failed.is_some() {
                return;
            }
        }
    }

    /// A page that the first in line waits for cannot be read. If its check failed, the change is carried out without it,
    /// where that is possible.
    pub(crate) fn change_lacks(&mut self, key: PageKey, error: StoreError) {
        if self.trees.lost.has_key(key)
            && let Some(change) = self.changes.front_mut()
        {
            change.lacks.retain(|lacked| *lacked != key);
            return;
        }
        if self.changes.front().is_some_and(|change| change.lacks.contains(&key))
            && let Some(change) = self.changes.pop_front()
        {
            self.end_change(change, Err(error));
        }
    }

    fn try_change(&mut self, change: &mut Change) -> Step {
        let Change { req, kind, lacks, .. } = change;
        match kind {
            Kind::Write { root, first, chunks } => self.try_write(*req, *root, *first, chunks, lacks),
            Kind::Clear { root, first, count } => self.try_clear(*root, (*first, *count), lacks),
            Kind::Catalog(change) => self.try_catalog(change, lacks),
        }
    }

    /// Asks for what is missing.
    fn lack(&mut self, missing: Missing, lacks: &mut Vec<PageKey>) -> Result<(), StoreError> {
        if self.trees.lost.has(&missing) {
            return Err(StoreError::Damaged(missing.pointer.place));
        }
        lacks.push(missing.key);
        self.want(missing)
    }

    fn writable_root(&self, root: RootId, end: Option<u64>) -> Result<&Root, StoreError> {
        let found = self.trees.root(root).ok_or(StoreError::NoSuchRoot)?;
        let fits = found.kind == RootKind::Volume && end.is_some_and(|end| end <= found.size_chunks);
        if fits { Ok(found) } else { Err(StoreError::Invalid) }
    }

    fn try_write(
        &mut self,
        req: ReqId,
        root: RootId,
        first: u64,
        chunks: &mut [Slot],
        lacks: &mut Vec<PageKey>,
    ) -> Step {
        let end = first.checked_add(zc_core::u64_from_usize(chunks.len()));
        let (dedup, codec, chunk_shift) = match self.writable_root(root, end) {
            Ok(found) => (found.is_deduplicated(), found.codec, found.chunk_shift),
            Err(error) => return Step::Done(Err(error)),
        };
        if !chunks.iter().all(|slot| slot.is_sane(chunk_shift)) {
            return Step::Done(Err(StoreError::Invalid));
        }
        let room = match self.room_for_writes() {
            Room::No => self.room_in_place(root, first..end.unwrap_or(first), lacks),
            room => Ok(room),
        };
        match room.map(|room| room.and(self.numbers_for_changes())) {
            Ok(Room::Yes) => {}
            Ok(Room::Soon) => return Step::Waits,
            Ok(Room::No) => return Step::Done(Err(StoreError::NoSpace)),
            Err(error) => return Step::Done(Err(error)),
        }
        let mut becomes = Vec::with_capacity(chunks.len());
        self.trees.pass_lost_chunk_numbers(chunks.len());
        let numbers = self.trees.chunk_numbers.peek(chunks.len());
        if numbers.len() < chunks.len() {
            return Step::Done(Err(StoreError::NoSpace));
        }
        let (mut next, mut raws, mut waits) = (numbers.iter(), Vec::new(), false);
        for (index, slot) in chunks.iter_mut().enumerate() {
            let NewChunk::Data { print, raw } = slot.new else {
                becomes.push(Becomes::Nothing);
                continue;
            };
            match self.find_duplicate(print.filter(|_| dedup), raw.len_bytes) {
                Err(missing) => match self.lack(missing, lacks) {
                    Ok(()) => {}
                    Err(error) => return Step::Done(Err(error)),
                },
                Ok(Known::Sound(number)) => becomes.push(Becomes::Shared(number)),
                Ok(Known::Damaged(number)) if slot.encoded.is_some() => {
                    becomes.extend(slot.encoded.map(|encoded| Becomes::Healed(number, encoded)));
                }
                Ok(Known::No) if slot.encoded.is_some() => {
                    let number = next.next().map(|number| ChunkNo(*number));
                    becomes.extend(
                        number.zip(slot.encoded).map(|(number, encoded)| Becomes::Stored(number, encoded)),
                    );
                }
                Ok(_) if slot.encoding => waits = true,
                Ok(_) => {
                    slot.encoding = true;
                    raws.push((index, raw));
                }
            }
        }
        if waits || !raws.is_empty() {
            self.ask_encoding(req, codec, raws);
            return Step::Waits;
        }
        if lacks.is_empty()
            && let Err(error) = self.prepare_write(root, first, &becomes, lacks)
        {
            return Step::Done(Err(error));
        }
        if !lacks.is_empty() {
            return Step::Waits;
        }
        if becomes.len() < chunks.len() {
            // Numbers whose records cannot be written were the last.
            return Step::Done(Err(StoreError::NoSpace));
        }
        Step::Done(self.apply_write(root, first, chunks, &becomes))
    }

    /// Returns `true` if a write may use what is kept for contents in place of others: all its addresses hold
    /// something.
    fn room_in_place(
        &mut self,
        root: RootId,
        addresses: core::ops::Range<u64>,
        lacks: &mut Vec<PageKey>,
    ) -> Result<Room, StoreError> {
        for address in addresses {
            match self.trees.lookup(root, address) {
                Ok(ChunkNo(0)) => return Ok(Room::No),
                Ok(_) => {}
                Err(missing) if self.trees.lost.has(&missing) => {}
                Err(missing) => self.lack(missing, lacks)?,
            }
        }
        Ok(if lacks.is_empty() { self.room_for_overwrites() } else { Room::Soon })
    }

    /// The chunk that holds these contents, if it is known. A whole fingerprint is compared (G7).
    fn find_duplicate(
        &mut self,
        print: Option<zc_core::Fingerprint>,
        raw_bytes: u32,
    ) -> Result<Known, Missing> {
        let Some(print) = print else { return Ok(Known::No) };
        let Some(number) = self.prints.find(&print) else { return Ok(Known::No) };
        let stored = match self.trees.stored(number) {
            Err(missing) if self.trees.lost.has(&missing) => return Ok(Known::No),
            stored => stored?,
        };
        let is_same = |stored: &Stored| stored.print == Some(print) && stored.raw_bytes == raw_bytes;
        let is_going = self.trees.mark.as_ref().is_some_and(|mark| mark.dooms(number));
        if is_going || !stored.is_some_and(|stored| is_same(&stored)) {
            return Ok(Known::No);
        }
        self.list_neighbours(number);
        let is_damaged = self.damaged.contains(&number) || self.trees.is_noted_damaged(number)?;
        Ok(if is_damaged { Known::Damaged(number) } else { Known::Sound(number) })
    }

    /// The fingerprints of what was stored with this chunk are listed: what follows in the stream is often there. Pages
    /// that are not in memory are read ahead; the change does not wait for them.
    fn list_neighbours(&mut self, number: ChunkNo) {
        for leaf in self.prints.found(number) {
            match self.trees.prints_of_leaf(leaf) {
                Ok(prints) => self.prints.load(leaf, &prints),
                // Only a hint: whoever needs the page is told what is wrong with it.
                Err(missing) if self.trees.lost.has(&missing) => {}
                Err(missing) => drop(self.want(missing)),
            }
        }
    }

    /// Everything that the change touches can be changed, or is asked for.
    fn prepare_write(
        &mut self,
        root: RootId,
        first: u64,
        becomes: &[Becomes],
        lacks: &mut Vec<PageKey>,
    ) -> Result<(), StoreError> {
        for (address, becomes) in (first..).zip(becomes) {
            if let Becomes::Stored(number, _) | Becomes::Healed(number, _) = becomes
                && let Err(missing) = self.trees.make_chunk_writable(*number)
            {
                self.lack(missing, lacks)?;
            }
            if let Err(missing) = self.trees.make_address_writable(root, address) {
                self.lack(missing, lacks)?;
            }
        }
        Ok(())
    }

    fn apply_write(
        &mut self,
        root: RootId,
        first: u64,
        chunks: &[Slot],
        becomes: &[Becomes],
    ) -> Result<(), StoreError> {
        let mut records_bytes = SHORT_RECORD_BYTES * becomes.len();
        let mut payload_bytes = 0;
        for becomes in becomes {
            if let Becomes::Stored(_, encoded) | Becomes::Healed(_, encoded) = becomes {
                records_bytes += CHUNK_RECORD_BYTES;
                payload_bytes += encoded.bytes.len_bytes;
            }
        }
        self.make_room(records_bytes, payload_bytes).map_err(|_| StoreError::NoSpace)?;
        self.cleaner.garbage_made();
        self.written_for_gathering(root, first, becomes.len());
        for ((address, slot), becomes) in (first..).zip(chunks).zip(becomes) {
            let number = match becomes {
                Becomes::Nothing => {
                    self.stats.chunks_zero += 1;
                    ChunkNo(0)
                }
                Becomes::Shared(number) => {
                    self.stats.chunks_shared += 1;
                    *number
                }
                Becomes::Stored(number, encoded) => {
                    self.take_number(*number);
                    self.store_chunk(*number, slot.new, *encoded);
                    *number
                }
                // The chunk moves to where its contents are stored anew, for all who refer to it.
                Becomes::Healed(number, encoded) => {
                    self.store_chunk(*number, slot.new, *encoded);
                    self.damaged.remove(number);
                    self.stats.chunks_healed += 1;
                    *number
                }
            };
            self.log.put_record(Record::Map(root, address, number));
            self.trees.put_address(root, address, number);
        }
        Ok(())
    }

    fn take_number(&mut self, number: ChunkNo) {
        let taken = self.trees.chunk_numbers.take();
        assert_eq!(taken, number.0, "numbers are taken in the order in which they were looked at");
    }

    fn store_chunk(&mut self, number: ChunkNo, new: NewChunk, encoded: Encoded) {
        let NewChunk::Data { print, raw } = new else { return };
        let stored = Stored {
            place: self.log.put_contents(encoded.bytes),
            stored_bytes: encoded.bytes.len_bytes,
            raw_bytes: raw.len_bytes,
            crc: encoded.crc,
            codec: encoded.codec,
            print,
        };
        self.log.put_record(Record::Chunk(number, stored));
        self.trees.put_chunk(number, Some(stored));
        if let Some(print) = print {
            self.prints.insert(&print, number);
        }
        self.stats.chunks_stored += 1;
        self.stats.chunk_bytes_stored += u64::from(stored.stored_bytes);
    }

    fn try_clear(&mut self, root: RootId, (first, count): (u64, u64), lacks: &mut Vec<PageKey>) -> Step {
        if let Err(error) = self.writable_root(root, first.checked_add(count)) {
            return Step::Done(Err(error));
        }
        match self.room_for_less().and(self.numbers_for_changes()) {
            Room::Yes => {}
            Room::Soon => return Step::Waits,
            Room::No => return Step::Done(Err(StoreError::NoSpace)),
        }
        if let Err(missing) = self.trees.clear(root, first, count, false) {
            return self.wait_for(missing, lacks);
        }
        if self.make_room(SHORT_RECORD_BYTES, 0).is_err() {
            return Step::Done(Err(StoreError::NoSpace));
        }
        self.log.put_record(Record::Clear(root, first, count));
        let cleared = self.trees.clear(root, first, count, true);
        assert!(cleared.is_ok(), "a range whose borders were made changeable lacks no page");
        self.cleaner.garbage_made();
        Step::Done(Ok(()))
    }

    fn try_catalog(&mut self, change: &CatalogChange, lacks: &mut Vec<PageKey>) -> Step {
        if let Err(error) = self.trees.check_catalog(change) {
            return Step::Done(Err(error));
        }
        let room = match change.op {
            CatalogOp::Delete => self.room_for_delete(),
            _ => self.room_for_less().and(self.numbers_for_changes()),
        };
        match room {
            Room::Yes => {}
            Room::Soon => return Step::Waits,
            Room::No => return Step::Done(Err(StoreError::NoSpace)),
        }
        if change.op == CatalogOp::Grow
            && let Err(missing) = self.trees.fit_height(change.id, change.size_chunks)
        {
            return self.wait_for(missing, lacks);
        }
        if self.make_room(CATALOG_RECORD_BYTES, 0).is_err() {
            return Step::Done(Err(StoreError::NoSpace));
        }
        self.log.put_record(Record::Catalog(change.clone()));
        let changed = self.trees.change_catalog(change);
        assert!(changed.is_ok(), "a map whose height fits lacks no page");
        self.cleaner.garbage_made();
        Step::Done(Ok(()))
    }

    fn wait_for(&mut self, missing: Missing, lacks: &mut Vec<PageKey>) -> Step {
        match self.lack(missing, lacks) {
            Ok(()) => Step::Waits,
            Err(error) => Step::Done(Err(error)),
        }
    }

    /// Answers a change, and lets go of its buffers but for those that went into the log.
    pub(crate) fn end_change(&mut self, change: Change, result: Result<(), StoreError>) {
        if let Kind::Write { chunks, .. } = change.kind {
            for slot in chunks {
                self.free_slot(slot, result.is_ok());
            }
        }
        self.stats.no_space += u64::from(result == Err(StoreError::NoSpace));
        self.reply(change.req, result);
    }

    fn free_slot(&mut self, slot: Slot, logged: bool) {
        let NewChunk::Data { raw, .. } = slot.new else { return };
        if slot.encoding {
            return;
        }
        let in_log = |buf: BufId| logged && self.log.holds(buf);
        let mut bufs = vec![raw.buf];
        bufs.extend(slot.encoded.map(|encoded| encoded.bytes.buf).filter(|buf| *buf != raw.buf));
        bufs.retain(|buf| !in_log(*buf));
        self.out.extend(bufs.into_iter().map(|buf| Action::Free { buf }));
    }
}

/// Whether there is space.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Room {
    Yes,
    /// When the cleaner or a checkpoint has ended.
    Soon,
    No,
}

impl Room {
    /// If both have some.
    const fn and(self, other: Self) -> Self {
        match (self, other) {
            (Self::No, _) | (_, Self::No) => Self::No,
            (Self::Soon, _) | (_, Self::Soon) => Self::Soon,
            (Self::Yes, Self::Yes) => Self::Yes,
        }
    }
}
