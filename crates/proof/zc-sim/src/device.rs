//! What the cache device does: it carries out, fails, forgets, mistakes one place for another, comes back.
//!
//! Every write of the cache device goes through [`World::cache_write`] and every read through [`World::cache_read`]:
//! the faults are there, once for all zones.

use rand::RngExt as _;
use zc_cache::seam::{Action, Event, ExtentRead, ImageBytes, Source};
use zc_core::{BufId, ErrorKind, OpId, WeuSlot, limits};
use zc_format::{EXTENT_HEADER_BYTES, ExtentError, ExtentHeader, WeuHeader};

use crate::canary::DriverBug;
use crate::disk::{self, PAGE};
use crate::world::{SECTOR, World};
use crate::zone::Zone;

/// Old writes that may come back.
const REPLAYS_MAX: usize = 8;

impl World {
    pub(crate) fn is_dead(&self) -> bool {
        self.faults.dead.is_some_and(|(from, to)| (from..to).contains(&self.now))
    }

    /// The journal's own device is dead.
    pub(crate) fn is_journal_gone(&self) -> bool {
        self.faults.journal_gone.is_some_and(|from| self.now >= from)
    }

    pub(crate) fn happens(&mut self, rate: f64) -> bool {
        rate > 0.0 && self.rng.random_bool(rate)
    }

    /// A write of the cache device takes effect, or another one does, or none.
    fn cache_write(&mut self, op: OpId, zone: Zone, at: usize, data: &[u8]) -> Result<(), ErrorKind> {
        if self.is_dead() {
            self.trouble.session = true;
            return Err(ErrorKind::Io);
        }
        if zone == Zone::Journal && self.is_journal_gone() {
            self.coverage.note("journal devices died");
            self.trouble.session = true;
            return Err(ErrorKind::Io);
        }
        if self.is_full() {
            self.coverage.note("cache device and state directory full together");
            self.trouble.session = true;
            let _error = self.fail_write(op, at, data);
            return Err(ErrorKind::NoSpace);
        }
        let (rate, name) = match zone {
            Zone::SlotWrite => (self.faults.write_errors, "WEU write errors"),
            Zone::DirtyWrite => (self.faults.write_errors, "write errors of dirty extents"),
            _ => (self.faults.meta_errors, "metadata write errors"),
        };
        if self.happens(rate) {
            self.coverage.note(name);
            self.trouble.session = true;
            return Err(self.fail_write(op, at, data));
        }
        if self.happens(self.faults.lost) {
            self.coverage.note(zone.lost());
            self.trouble.lie(zone.is_slots());
            self.cache.taint(at, data.len());
            return Ok(());
        }
        if self.happens(self.faults.misdirected) {
            self.coverage.note(zone.misdirected());
            let to = self.other_place(data.len());
            self.trouble.lie(zone.is_slots() && to as u64 >= self.geometry.slots_offset);
            self.cache.write(to, data, op.0);
            self.cache.taint(at, data.len());
            self.cache.taint(to, data.len());
            return Ok(());
        }
        if self.faults.replayed && self.rng.random_bool(0.1) {
            self.remember(zone, at, data);
        }
        self.cache.write(at, data, op.0);
        Ok(())
    }

    /// Each sector is written or not.
    fn fail_write(&mut self, op: OpId, at: usize, data: &[u8]) -> ErrorKind {
        let keep = [0.0, 0.5, 1.0][self.rng.random_range(0..3)];
        for (index, sector) in data.chunks(SECTOR).enumerate() {
            if self.rng.random_bool(keep) {
                self.cache.write(at + index * SECTOR, sector, op.0);
            }
        }
        if self.rng.random_bool(0.5) {
            self.coverage.note("cache device full");
            ErrorKind::NoSpace
        } else {
            ErrorKind::Io
        }
    }

    /// Where a misdirected write of so many bytes lands: at a block of any zone that is written while serving.
    fn other_place(&mut self, len: usize) -> usize {
        let (start, end) = self.random_zone();
        let end = end.max(start + PAGE);
        let at = self.rng.random_range(start / PAGE..end / PAGE) * PAGE;
        at.min((self.cache.seen.len() - len) / PAGE * PAGE)
    }

    /// A zone of the device, as its first byte and the one after its last.
    fn random_zone(&mut self) -> (usize, usize) {
        let g = &self.geometry;
        let copy = self.rng.random_range(0..2_usize);
        let (start, end) = match self.rng.random_range(0..10) {
            0 => (g.region_map[copy], g.region_map[copy] + zc_format::REGION_MAP_BYTES),
            1 => (g.checkpoint[copy], g.checkpoint_block_offset(copy, g.checkpoint_blocks - 1)),
            2..4 => {
                let journal = disk::journal_range(g);
                (journal.start as u64, journal.end as u64)
            }
            _ => (g.slots_offset, g.slot_offset(WeuSlot(g.slots - 1)) + u64::from(g.weu_bytes)),
        };
        (start as usize, end as usize)
    }

    fn remember(&mut self, zone: Zone, at: usize, data: &[u8]) {
        if self.replays.len() >= REPLAYS_MAX {
            let index = self.rng.random_range(0..self.replays.len());
            self.replays.swap_remove(index);
        }
        self.replays.push((zone, at, data.to_vec()));
    }

    /// The bytes at a place of the cache device, or those of another place, and from where they are.
    fn cache_read(&mut self, at: usize, len: usize) -> Result<(Vec<u8>, usize), ErrorKind> {
        if self.is_dead() || self.happens(self.faults.read_errors) {
            self.trouble.session = true;
            return Err(ErrorKind::Io);
        }
        if self.cache.is_unreadable(at, len) {
            self.trouble.session = true;
            self.coverage.note("unreadable pages read");
            return Err(ErrorKind::Io);
        }
        let at = if self.happens(self.faults.misread) {
            self.coverage.note("reads misdirected");
            self.trouble.session = true;
            self.other_place(len)
        } else {
            at
        };
        Ok((self.cache.seen[at..at + len].to_vec(), at))
    }

    fn meta_write(&mut self, op: OpId, zone: Zone, writes: &[(u64, Vec<u8>)]) -> Event {
        let mut result = Ok(());
        for (offset, data) in writes {
            let outcome = self.cache_write(op, zone, *offset as usize, data);
            result = result.and(outcome);
        }
        Event::DeviceDone { op, result }
    }

    /// The manager does not wait for an operation any more. What the device has done already ends as it did. A write
    /// may reach the device all the same.
    pub(crate) fn abandon(&mut self, op: OpId) {
        let Some(index) = self.pending.iter().position(|(action, _)| action.device_op() == Some(op)) else {
            return;
        };
        let (action, issued) = self.pending.swap_remove(index);
        self.trouble.session = true;
        let late = ErrorKind::TimedOut;
        let event = match &action {
            Action::ReadExtents { parts, .. } => {
                parts.iter().for_each(|part| self.excuses.unreadable(part));
                Event::ExtentsRead { op, result: Err(late) }
            }
            Action::ReadHeader { .. } => Event::HeaderRead { op, result: Err(late) },
            Action::ReadImage { .. } => Event::ImageRead { op, result: Err(late) },
            _ => {
                self.coverage.note("abandoned: writes");
                if self.rng.random_bool(0.5) {
                    self.coverage.note("abandoned: writes that reached the device");
                    let _event = self.perform_cache(&action, issued);
                }
                self.unheard.push(Event::DeviceDone { op, result: Err(late) });
                return;
            }
        };
        self.coverage.note("abandoned: reads");
        self.unheard.push(event);
    }

    /// Carries out an operation of the cache device.
    pub(crate) fn perform_cache(&mut self, action: &Action, issued: u64) -> Event {
        match action {
            Action::ReadExtents { op, source, slot, start_bytes, len_bytes, parts, .. } => {
                let read = self.extent_bytes(*source, *slot, *start_bytes, *len_bytes);
                if read.is_err() {
                    parts.iter().for_each(|part| self.excuses.unreadable(part));
                }
                let result = read.map(|(bytes, from)| {
                    parts
                        .iter()
                        .map(|part| self.extract_judged(&bytes, *slot, *start_bytes, from, part))
                        .collect()
                });
                Event::ExtentsRead { op: *op, result }
            }
            Action::ReadHeader { op, slot, .. } => {
                let (weu, extent) = (self.geometry.weu_bytes, self.geometry.extent_bytes);
                let at = self.geometry.slot_offset(*slot) as usize;
                let result = self.cache_read(at, weu as usize);
                let header = |(bytes, _): (Vec<u8>, usize)| {
                    WeuHeader::decode(&bytes, *slot, weu, extent, self.geometry.salt).ok().map(Box::new)
                };
                Event::HeaderRead { op: *op, result: result.map(header) }
            }
            Action::WriteWeu { op, slot, weu, start_bytes, data_bytes, header } => {
                let bytes = self.weu_bytes(*weu, *data_bytes, header);
                self.write_slot(*op, Zone::of(action), *slot, *start_bytes, &bytes[*start_bytes as usize..])
            }
            Action::WritePart { op, slot, weu, start_bytes, len_bytes, durable } => {
                let part = *start_bytes as usize..(*start_bytes + *len_bytes) as usize;
                let bytes = self.bufs[weu][part].to_vec();
                let done = self.write_slot(*op, Zone::DirtyWrite, *slot, *start_bytes, &bytes);
                if *durable && matches!(done, Event::DeviceDone { result: Ok(()), .. }) {
                    let at = self.geometry.slot_offset(*slot) as usize + *start_bytes as usize;
                    self.kept.part_durable(*weu, at, *start_bytes, *len_bytes);
                }
                self.persist_durable(*op, *durable, done)
            }
            Action::DiscardSlot { op, slot, erase } => {
                let at = self.geometry.slot_offset(*slot) as usize;
                if !self.is_dead() && (*erase || self.rng.random_bool(0.5)) {
                    let zeros = vec![0; self.geometry.weu_bytes as usize];
                    self.cache.write(at, &zeros, op.0);
                }
                let result = if *erase && self.is_dead() { Err(ErrorKind::Io) } else { Ok(()) };
                Event::DeviceDone { op: *op, result }
            }
            Action::FlushCache { op } => {
                let fails = self.is_dead() || self.is_journal_gone() || self.happens(self.faults.meta_errors);
                self.trouble.session |= fails;
                if !fails {
                    self.cache.flush(issued, &mut self.rng);
                }
                Event::DeviceDone { op: *op, result: if fails { Err(ErrorKind::Io) } else { Ok(()) } }
            }
            other => self.perform_meta(other),
        }
    }

    /// The end of a write that, if it is `durable`, ends when its bytes are.
    fn persist_durable(&mut self, op: OpId, durable: bool, done: Event) -> Event {
        if durable && matches!(done, Event::DeviceDone { result: Ok(()), .. }) {
            self.cache.persist(op.0);
            self.coverage.note("durable writes");
        }
        done
    }

    fn perform_meta(&mut self, action: &Action) -> Event {
        match action {
            Action::WriteJournal { op, block, durable } => {
                let ring = self.geometry.journal_blocks;
                if block.sequence.0 / ring > self.newest_journal / ring {
                    self.coverage.note("journal wraps");
                }
                self.newest_journal = self.newest_journal.max(block.sequence.0);
                let at = disk::address(&self.geometry, self.geometry.journal_block_offset(block.sequence));
                let done =
                    self.meta_write(*op, Zone::Journal, &[(at as u64, block.encode(self.geometry.salt))]);
                if matches!(done, Event::DeviceDone { result: Ok(()), .. }) {
                    self.files.journal_written = self.files.journal_written.max(block.sequence);
                    self.kept.block_written(*op, block, *durable);
                }
                self.persist_durable(*op, *durable, done)
            }
            Action::WriteRegionMap { op, copy, map } => {
                self.promise.map_written(*op, map.sequence);
                self.meta_write(
                    *op,
                    Zone::Map,
                    &[(self.geometry.region_map[*copy], map.encode(*copy, self.geometry.salt))],
                )
            }
            Action::WriteCheckpoint { op, area, first_block, sequence, records } => {
                let writes: Vec<_> = records
                    .chunks(zc_format::RECORDS_PER_BLOCK)
                    .zip(*first_block..)
                    .map(|(records, block)| {
                        let bytes =
                            zc_format::encode_checkpoint_block(*sequence, block, records, self.geometry.salt);
                        (self.geometry.checkpoint_block_offset(*area, block), bytes)
                    })
                    .collect();
                self.meta_write(*op, Zone::Checkpoint, &writes)
            }
            Action::CommitCheckpoint { op, area, header } => {
                let write = (self.geometry.checkpoint[*area], header.encode(*area, self.geometry.salt));
                self.meta_write(*op, Zone::Checkpoint, &[write])
            }
            Action::WriteImage { op, area, first_block, bytes } => {
                let write = (self.geometry.image_block_offset(*area, *first_block), bytes.0.clone());
                self.meta_write(*op, Zone::Checkpoint, &[write])
            }
            Action::ReadImage { op, area, first_block, blocks } => {
                let at = self.geometry.image_block_offset(*area, *first_block) as usize;
                let result = self.cache_read(at, *blocks as usize * PAGE);
                Event::ImageRead { op: *op, result: result.map(|(bytes, _)| ImageBytes(bytes)) }
            }
            other => panic!("{other:?} is no operation"),
        }
    }

    fn extent_bytes(
        &mut self,
        source: Source,
        slot: WeuSlot,
        start: u32,
        len: u32,
    ) -> Result<(Vec<u8>, Option<usize>), ErrorKind> {
        match source {
            Source::Memory(buf) => {
                let bytes = self.bufs[&buf][start as usize..(start + len) as usize].to_vec();
                Ok((bytes, None))
            }
            Source::Device => {
                let at = self.geometry.slot_offset(slot) as usize + start as usize;
                self.cache_read(at, len as usize).map(|(bytes, from)| (bytes, Some(from)))
            }
        }
    }

    /// Verifies and delivers one extent whose bytes came `from` that place of the device. If it fails, and a fault
    /// explains that, its readers may be told.
    fn extract_judged(
        &mut self,
        bytes: &[u8],
        slot: WeuSlot,
        start_bytes: u32,
        from: Option<usize>,
        part: &ExtentRead,
    ) -> Result<(), ExtentError> {
        let result = self.extract(bytes, start_bytes, part);
        if result.is_err()
            && let Some(from) = from
        {
            let at = (self.geometry.slot_offset(slot) + u64::from(part.expected.offset_bytes)) as usize;
            let len = EXTENT_HEADER_BYTES + part.expected.raw_bytes;
            let elsewhere = from != (self.geometry.slot_offset(slot) + u64::from(start_bytes)) as usize;
            // Where the journal or a checkpoint was not what it had been, another unit may have taken the slot.
            let is_record_old = self.trouble.lied_metadata || self.trouble.old_records;
            if elsewhere || is_record_old {
                self.excuses.unreadable(part);
            } else if let Some(since) = self.cache.tainted_since(at, len as usize) {
                self.excuses.unreadable_since(part, since);
            }
        }
        result
    }

    /// Verifies, decodes and delivers one extent, as the daemon does.
    fn extract(&mut self, bytes: &[u8], start_bytes: u32, part: &ExtentRead) -> Result<(), ExtentError> {
        let at = (part.expected.offset_bytes - start_bytes) as usize;
        let extent = match ExtentHeader::verify(&bytes[at..], &part.expected) {
            Ok(extent) => extent,
            Err(_) if self.has_bug(DriverBug::TrustExtent) => {
                self.put(part.dest, &vec![0x5a; part.dest.len_bytes as usize]);
                return Ok(());
            }
            Err(error) => return Err(error),
        };
        let mut raw = vec![0; part.expected.raw_bytes as usize];
        let payload = &bytes[at..][extent.payload.clone()];
        self.reducer.decompress(extent.codec, payload, &mut raw).map_err(|_| ExtentError::Payload)?;
        if let Some(proof) = &part.proof
            && !extent.is_content(&zc_reduce::fingerprint(proof.kind, &proof.domain, &raw))
        {
            return Err(ExtentError::Content);
        }
        let skip = part.skip_bytes as usize;
        self.put(part.dest, &raw[skip..skip + part.dest.len_bytes as usize]);
        self.keep(part, extent.codec, payload, &raw);
        Ok(())
    }

    fn weu_bytes(&self, weu: BufId, data: u32, header: &WeuHeader) -> Vec<u8> {
        let mut bytes = self.bufs[&weu].clone();
        let tail = bytes.len() - WeuHeader::encoded_bytes(header.entries.len() as u32) as usize;
        assert!(data as usize <= tail, "extents and header overlap");
        check_gaps(&bytes, header);
        header.encode_into(&mut bytes[tail..], self.geometry.salt);
        bytes
    }

    fn write_slot(&mut self, op: OpId, zone: Zone, slot: WeuSlot, start_bytes: u32, bytes: &[u8]) -> Event {
        let slot_at = self.geometry.slot_offset(slot) as usize;
        let at = slot_at + start_bytes as usize;
        assert!(
            at.is_multiple_of(PAGE) && bytes.len().is_multiple_of(PAGE),
            "slots are written in whole pages"
        );
        if self.snapshots.len() < 4 {
            let whole = slot_at..slot_at + self.geometry.weu_bytes as usize;
            self.snapshots.push((slot_at, self.cache.seen[whole].to_vec()));
        }
        Event::DeviceDone { op, result: self.cache_write(op, zone, at, bytes) }
    }

    /// Something happens to the device that the manager did not ask for.
    pub(crate) fn decay(&mut self) {
        match self.rng.random_range(0..12) {
            0..6 if self.faults.rot => self.rot(),
            6..8 if self.faults.latent => self.lose_page(),
            8..11 if self.faults.replayed => self.replay_write(),
            11 if self.faults.rot || self.faults.latent => self.rot_metadata(),
            _ => {}
        }
    }

    /// Bits rot, slots go back to what they were: every read is verified.
    fn rot(&mut self) {
        self.trouble.lie(true);
        if self.rng.random_bool(0.8) || self.snapshots.is_empty() {
            let slots = self.geometry.slots_offset as usize;
            let len = self.geometry.slots as usize * self.geometry.weu_bytes as usize;
            let at = slots + self.rng.random_range(0..len);
            let byte = self.cache.seen[at] ^ (1 << self.rng.random_range(0..8));
            self.cache.damage(at, &[byte]);
            self.coverage.note("bits rotted");
        } else {
            let index = self.rng.random_range(0..self.snapshots.len());
            let (at, old) = self.snapshots.swap_remove(index);
            self.cache.damage(at, &old);
            self.coverage.note("slots rolled back");
        }
    }

    /// A page of a slot cannot be read any more, or reads as zeros.
    fn lose_page(&mut self) {
        let slots = self.geometry.slots_offset as usize;
        let len = self.geometry.slots as usize * self.geometry.weu_bytes as usize;
        let at = slots + self.rng.random_range(0..len / PAGE) * PAGE;
        if self.rng.random_bool(0.7) {
            self.trouble.damage();
            self.cache.make_unreadable(at);
            self.coverage.note("pages became unreadable");
        } else {
            self.trouble.lie(true);
            self.cache.damage(at, &[0; PAGE]);
            self.coverage.note("pages became zero");
        }
    }

    /// An old write is carried out once more, now.
    fn replay_write(&mut self) {
        if self.replays.is_empty() {
            return;
        }
        let index = self.rng.random_range(0..self.replays.len());
        let (zone, at, data) = self.replays.swap_remove(index);
        self.cache.damage(at, &data);
        self.trouble.lie(zone.is_slots());
        self.coverage.note(zone.replayed());
    }

    /// Metadata rots, is lost, or becomes unreadable: a start must notice, not believe.
    pub(crate) fn rot_metadata(&mut self) {
        let copy = self.rng.random_range(0..2);
        let (start, end) = match self.rng.random_range(0..5) {
            0 => (self.geometry.region_map[copy], self.geometry.region_map[copy] + 4096),
            1 => (self.geometry.checkpoint[copy], self.geometry.checkpoint[copy] + 3 * 4096),
            2 => {
                let offsets = zc_format::Superblock::offsets(self.geometry.device_bytes);
                let at = offsets[self.rng.random_range(0..offsets.len())];
                (at, at + 4096)
            }
            _ => {
                let journal = disk::journal_range(&self.geometry);
                (journal.start as u64, journal.end as u64)
            }
        };
        let at = self.rng.random_range(start..end) as usize;
        match self.rng.random_range(0..4) {
            0 if self.faults.latent => {
                self.trouble.damage();
                self.cache.make_unreadable(at);
                self.coverage.note("metadata became unreadable");
            }
            1 if self.faults.latent => {
                self.trouble.lie(false);
                let len = if self.rng.random_bool(0.5) { PAGE } else { 4 * PAGE };
                let at = at / PAGE * PAGE;
                self.cache.damage(at, &vec![0; len.min(self.cache.seen.len() - at)]);
                self.coverage.note("metadata became zero");
            }
            _ if self.faults.rot => {
                self.trouble.lie(false);
                let byte = self.cache.seen[at] ^ (1 << self.rng.random_range(0..8));
                self.cache.damage(at, &[byte]);
                self.coverage.note("metadata rotted");
            }
            _ => {}
        }
    }
}

/// Nothing that the buffer held before is written between the extents of a clean unit.
fn check_gaps(bytes: &[u8], header: &WeuHeader) {
    if header.entries.iter().any(|entry| entry.dirty.is_some()) {
        return;
    }
    let mut end = 0;
    for entry in &header.entries {
        let (gap, place) = (end, entry.offset_bytes as usize);
        assert!(gap <= place, "extents overlap");
        assert!(bytes[gap..place].iter().all(|byte| *byte == 0), "an old byte between extents");
        let len = (EXTENT_HEADER_BYTES + entry.stored_bytes).next_multiple_of(limits::PLACE_ALIGN_BYTES);
        end = place + len as usize;
    }
}
