//! Simulated cache device: executes, fails, forgets or misplaces operations, and recovers.
//!
//! All writes pass one function and all reads another: the faults (`faults`) are injected there, once for all zones.

use zc_cache::seam::{Action, Event, ExtentRead, ImageBytes, Source};
use zc_core::{BufId, ErrorKind, OpId, WeuSlot, limits};
use zc_format::{EXTENT_HEADER_BYTES, ExtentError, ExtentHeader, Geometry, WeuHeader};

use crate::bench::Bench;
use crate::canary::DriverBug;
use crate::disk::{self, Disk, PAGE};
use crate::env::Env;
use crate::faults::{DeviceFaults, Strike, Write};
use crate::media::Raw;
use crate::placed::PlacedExtents;
use crate::zone::Zone;

/// Cache device, followed by its separate journal device if it has one.
#[derive(Debug)]
pub(crate) struct CacheDevice {
    disk: Disk,
    geometry: Geometry,
    faults: DeviceFaults,
    placed: PlacedExtents,
    newest_journal: u64,
    /// Older image, with its session.
    older: Option<(u64, Vec<u8>)>,
}

impl CacheDevice {
    pub(crate) fn new(geometry: Geometry) -> Self {
        Self {
            disk: Disk::new(disk::device_bytes(&geometry)),
            geometry,
            faults: DeviceFaults::new(),
            placed: PlacedExtents::default(),
            newest_journal: 0,
            older: None,
        }
    }

    /// Returns the device for a copy of the machine.
    pub(crate) fn fork(&self) -> Self {
        Self {
            disk: self.disk.clone(),
            geometry: self.geometry.clone(),
            faults: self.faults.fork(),
            placed: self.placed.clone(),
            newest_journal: self.newest_journal,
            older: self.older.clone(),
        }
    }

    pub(crate) const fn disk(&self) -> &Disk {
        &self.disk
    }

    pub(crate) const fn disk_mut(&mut self) -> &mut Disk {
        &mut self.disk
    }

    pub(crate) const fn geometry(&self) -> &Geometry {
        &self.geometry
    }

    pub(crate) const fn placed_mut(&mut self) -> &mut PlacedExtents {
        &mut self.placed
    }

    /// Returns the device as a start sees it, cut off after `left` I/Os. `forgets`: it acknowledges writes and drops
    /// them.
    pub(crate) const fn raw(&mut self, left: Option<u32>, forgets: bool) -> Raw<'_> {
        Raw::new(&mut self.disk, &self.geometry, left, forgets)
    }

    /// Installs another layout: nothing of the former contents comes back.
    pub(crate) fn use_geometry(&mut self, geometry: Geometry) {
        self.geometry = geometry;
        self.faults.device_replaced();
        self.placed.clear();
        self.older = None;
    }

    /// Saves an image of the device, or restores a saved one that is older than `session`. Returns `true` if one was
    /// restored.
    pub(crate) fn swap_image(&mut self, env: &mut Env, session: u64) -> bool {
        let is_older = self.older.as_ref().is_some_and(|(older, _)| *older < session);
        if is_older && env.random_bool(0.2) {
            if let Some((_, image)) = self.older.take() {
                self.disk.restore(&image);
                return true;
            }
        } else if self.older.is_none() {
            self.older = Some((session, self.disk.seen.clone()));
        }
        false
    }
}

impl CacheDevice {
    /// Returns the faults and the state that they act on.
    fn strike<'a, 'b>(&'a mut self, cx: &'a mut Bench<'b>) -> (&'a mut DeviceFaults, Strike<'a, 'b>) {
        (&mut self.faults, Strike { disk: &mut self.disk, geometry: &self.geometry, cx })
    }

    /// Lets the device decay independently of the manager's requests.
    pub(crate) fn decay(&mut self, cx: &mut Bench<'_>) {
        let (faults, mut at) = self.strike(cx);
        faults.decays(&mut at);
    }

    /// Lets the device decay while no session serves it.
    pub(crate) fn rest(&mut self, cx: &mut Bench<'_>) {
        let (faults, mut at) = self.strike(cx);
        faults.rests(&mut at);
    }

    /// Executes a write, unless a fault completes it instead.
    fn cache_write(&mut self, cx: &mut Bench<'_>, write: &Write<'_>) -> Result<(), ErrorKind> {
        let (faults, mut at) = self.strike(cx);
        faults.writes(&mut at, write).unwrap_or_else(|| {
            self.disk.write(write.at, write.data, write.op.0);
            Ok(())
        })
    }

    /// Returns the bytes at an offset of the device, or those of another place, with their actual offset.
    fn cache_read(
        &mut self,
        cx: &mut Bench<'_>,
        at: usize,
        len: usize,
    ) -> Result<(Vec<u8>, usize), ErrorKind> {
        let (faults, mut strike) = self.strike(cx);
        let bytes = faults.reads(&mut strike, at..at + len)?;
        Ok((self.disk.seen[bytes.clone()].to_vec(), bytes.start))
    }

    fn meta_write(&mut self, cx: &mut Bench<'_>, op: OpId, zone: Zone, writes: &[(u64, Vec<u8>)]) -> Event {
        let mut result = Ok(());
        for (offset, data) in writes {
            let outcome = self.cache_write(cx, &Write { op, zone, at: *offset as usize, data });
            result = result.and(outcome);
        }
        Event::DeviceDone { op, result }
    }

    /// Carries out an operation of the cache device.
    pub(crate) fn perform(&mut self, cx: &mut Bench<'_>, action: &Action, issued: u64) -> Event {
        match action {
            Action::ReadExtents { op, source, slot, start_bytes, len_bytes, parts, .. } => {
                let read = self.extent_bytes(cx, *source, *slot, *start_bytes, *len_bytes);
                if read.is_err() {
                    parts.iter().for_each(|part| cx.excuses.unreadable(part));
                }
                let result = read.map(|(bytes, from)| {
                    parts
                        .iter()
                        .map(|part| self.extract_judged(cx, &bytes, *slot, *start_bytes, from, part))
                        .collect()
                });
                Event::ExtentsRead { op: *op, result }
            }
            Action::ReadHeader { op, slot, .. } => {
                let (weu, extent) = (self.geometry.weu_bytes, self.geometry.extent_bytes);
                let at = self.geometry.slot_offset(*slot) as usize;
                let result = self.cache_read(cx, at, weu as usize);
                let header = |(bytes, _): (Vec<u8>, usize)| {
                    WeuHeader::decode(&bytes, *slot, weu, extent, self.geometry.salt).ok().map(Box::new)
                };
                Event::HeaderRead { op: *op, result: result.map(header) }
            }
            Action::WriteWeu { op, slot, weu, start_bytes, data_bytes, header } => {
                let bytes = self.weu_bytes(cx, *weu, *data_bytes, header);
                self.write_slot(
                    cx,
                    *op,
                    Zone::of(action),
                    *slot,
                    *start_bytes,
                    &bytes[*start_bytes as usize..],
                )
            }
            Action::WritePart { op, slot, weu, start_bytes, len_bytes, durable } => {
                let part = *start_bytes as usize..(*start_bytes + *len_bytes) as usize;
                let bytes = cx.memory.bytes(*weu)[part].to_vec();
                let done = self.write_slot(cx, *op, Zone::DirtyWrite, *slot, *start_bytes, &bytes);
                if *durable && matches!(done, Event::DeviceDone { result: Ok(()), .. }) {
                    let at = self.geometry.slot_offset(*slot) as usize + *start_bytes as usize;
                    cx.kept.part_durable(*weu, at, *start_bytes, *len_bytes);
                }
                self.persist_durable(cx, *op, *durable, done)
            }
            Action::DiscardSlot { op, slot, erase } => {
                let at = self.geometry.slot_offset(*slot) as usize;
                if !cx.faults.is_dead(cx.env.now()) && (*erase || cx.env.random_bool(0.5)) {
                    let zeros = vec![0; self.geometry.weu_bytes as usize];
                    self.disk.write(at, &zeros, op.0);
                }
                let result =
                    if *erase && cx.faults.is_dead(cx.env.now()) { Err(ErrorKind::Io) } else { Ok(()) };
                Event::DeviceDone { op: *op, result }
            }
            Action::FlushCache { op } => {
                let (faults, mut at) = self.strike(cx);
                let fails = faults.flushes(&mut at);
                if !fails {
                    self.disk.flush(issued, cx.env.rng());
                }
                Event::DeviceDone { op: *op, result: if fails { Err(ErrorKind::Io) } else { Ok(()) } }
            }
            other => self.perform_meta(cx, other),
        }
    }

    /// Completes a write; a successful `durable` one is persisted.
    fn persist_durable(&mut self, cx: &mut Bench<'_>, op: OpId, durable: bool, done: Event) -> Event {
        if durable && matches!(done, Event::DeviceDone { result: Ok(()), .. }) {
            self.disk.persist(op.0);
            cx.env.note("durable writes");
        }
        done
    }

    fn perform_meta(&mut self, cx: &mut Bench<'_>, action: &Action) -> Event {
        match action {
            Action::WriteJournal { op, block, durable } => {
                let ring = self.geometry.journal_blocks;
                if block.sequence.0 / ring > self.newest_journal / ring {
                    cx.env.note("journal wraps");
                }
                self.newest_journal = self.newest_journal.max(block.sequence.0);
                let at = disk::address(&self.geometry, self.geometry.journal_block_offset(block.sequence));
                let done =
                    self.meta_write(cx, *op, Zone::Journal, &[(at as u64, block.encode(self.geometry.salt))]);
                if matches!(done, Event::DeviceDone { result: Ok(()), .. }) {
                    cx.state.log_mut().journal_written(block.sequence);
                    cx.kept.block_written(*op, block, *durable);
                }
                self.persist_durable(cx, *op, *durable, done)
            }
            Action::WriteRegionMap { op, copy, map } => {
                cx.promise.map_written(*op, map.sequence);
                self.meta_write(
                    cx,
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
                self.meta_write(cx, *op, Zone::Checkpoint, &writes)
            }
            Action::CommitCheckpoint { op, area, header } => {
                let write = (self.geometry.checkpoint[*area], header.encode(*area, self.geometry.salt));
                self.meta_write(cx, *op, Zone::Checkpoint, &[write])
            }
            Action::WriteImage { op, area, first_block, bytes } => {
                let write = (self.geometry.image_block_offset(*area, *first_block), bytes.0.clone());
                self.meta_write(cx, *op, Zone::Checkpoint, &[write])
            }
            Action::ReadImage { op, area, first_block, blocks } => {
                let at = self.geometry.image_block_offset(*area, *first_block) as usize;
                let result = self.cache_read(cx, at, *blocks as usize * PAGE);
                Event::ImageRead { op: *op, result: result.map(|(bytes, _)| ImageBytes(bytes)) }
            }
            other => panic!("{other:?} is no operation"),
        }
    }

    fn extent_bytes(
        &mut self,
        cx: &mut Bench<'_>,
        source: Source,
        slot: WeuSlot,
        start: u32,
        len: u32,
    ) -> Result<(Vec<u8>, Option<usize>), ErrorKind> {
        match source {
            Source::Memory(buf) => {
                let bytes = cx.memory.bytes(buf)[start as usize..(start + len) as usize].to_vec();
                Ok((bytes, None))
            }
            Source::Device => {
                let at = self.geometry.slot_offset(slot) as usize + start as usize;
                self.cache_read(cx, at, len as usize).map(|(bytes, from)| (bytes, Some(from)))
            }
        }
    }

    /// Verifies and delivers one extent whose bytes were read `from` that offset. If it fails and a fault explains
    /// that, its readers may get an error.
    fn extract_judged(
        &mut self,
        cx: &mut Bench<'_>,
        bytes: &[u8],
        slot: WeuSlot,
        start_bytes: u32,
        from: Option<usize>,
        part: &ExtentRead,
    ) -> Result<(), ExtentError> {
        let result = self.extract(cx, bytes, start_bytes, part);
        if result.is_err()
            && let Some(from) = from
        {
            let at = (self.geometry.slot_offset(slot) + u64::from(part.expected.offset_bytes)) as usize;
            let len = EXTENT_HEADER_BYTES + part.expected.raw_bytes;
            let elsewhere = from != (self.geometry.slot_offset(slot) + u64::from(start_bytes)) as usize;
            // After damage to the journal or a checkpoint, another unit may have taken the slot.
            let is_record_old = cx.trouble.lied_metadata || cx.trouble.old_records;
            if elsewhere || is_record_old {
                cx.excuses.unreadable(part);
            } else if let Some(since) = self.disk.tainted_since(at, len as usize) {
                cx.excuses.unreadable_since(part, since);
            }
        }
        result
    }

    /// Verifies, decodes and delivers one extent, as the daemon does.
    fn extract(
        &mut self,
        cx: &mut Bench<'_>,
        bytes: &[u8],
        start_bytes: u32,
        part: &ExtentRead,
    ) -> Result<(), ExtentError> {
        let at = (part.expected.offset_bytes - start_bytes) as usize;
        let extent = match ExtentHeader::verify(&bytes[at..], &part.expected) {
            Ok(extent) => extent,
            Err(_) if cx.env.has_bug(DriverBug::TrustExtent) => {
                cx.memory.put(cx.env, part.dest, &vec![0x5a; part.dest.len_bytes as usize]);
                return Ok(());
            }
            Err(error) => return Err(error),
        };
        let mut raw = vec![0; part.expected.raw_bytes as usize];
        let payload = &bytes[at..][extent.payload.clone()];
        cx.memory.reducer().decompress(extent.codec, payload, &mut raw).map_err(|_| ExtentError::Payload)?;
        if let Some(proof) = &part.proof
            && !extent.is_content(&zc_reduce::fingerprint(proof.kind, &proof.domain, &raw))
        {
            return Err(ExtentError::Content);
        }
        let skip = part.skip_bytes as usize;
        cx.memory.put(cx.env, part.dest, &raw[skip..skip + part.dest.len_bytes as usize]);
        cx.memory.keep(part, extent.codec, payload, &raw);
        Ok(())
    }

    fn weu_bytes(&self, cx: &mut Bench<'_>, weu: BufId, data: u32, header: &WeuHeader) -> Vec<u8> {
        let mut bytes = cx.memory.bytes(weu).to_vec();
        let tail = bytes.len() - WeuHeader::encoded_bytes(header.entries.len() as u32) as usize;
        assert!(data as usize <= tail, "extents and header overlap");
        check_gaps(&bytes, header);
        header.encode_into(&mut bytes[tail..], self.geometry.salt);
        bytes
    }

    fn write_slot(
        &mut self,
        cx: &mut Bench<'_>,
        op: OpId,
        zone: Zone,
        slot: WeuSlot,
        start_bytes: u32,
        bytes: &[u8],
    ) -> Event {
        let slot_at = self.geometry.slot_offset(slot) as usize;
        let at = slot_at + start_bytes as usize;
        assert!(
            at.is_multiple_of(PAGE) && bytes.len().is_multiple_of(PAGE),
            "slots are written in whole pages"
        );
        Event::DeviceDone { op, result: self.cache_write(cx, &Write { op, zone, at, data: bytes }) }
    }
}

/// Checks that no earlier contents of the buffer are written in the gaps between the extents of a clean unit.
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
