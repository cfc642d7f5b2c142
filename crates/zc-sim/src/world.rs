//! The world: the manager, simulated devices, and operations that end in random order.

use std::collections::BTreeMap;

use rand::{RngExt as _, SeedableRng as _};
use rand_pcg::Pcg64Mcg;
use zc_cache::CacheManager;
use zc_cache::config::{Admission, Canary, ManagerConfig, Mode, VolumeConfig};
use zc_cache::seam::{Action, Digest, Event, Request, RequestKind, Source};
use zc_cache::startup::{self, FormatOptions, Media, OpenOptions};
use zc_core::{BufId, BufSlice, Codec, ErrorKind, FingerprintKind, JournalSeq, ReqId, VolumeId, WeuSlot};
use zc_format::{ExtentHeader, Geometry, PlanOptions, Record, WeuHeader};
use zc_reduce::Reducer;

use crate::content;
use crate::coverage::Coverage;
use crate::disk::Disk;
use crate::oracle::Oracle;
use crate::run::Options;

pub(crate) const SECTOR: usize = 512;

/// Faults of the cache device that a seed may have.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Faults {
    pub(crate) rot: bool,
    pub(crate) read_errors: bool,
    pub(crate) write_errors: bool,
    pub(crate) lost_weus: bool,
    /// Not of the cache device: of the origins.
    pub(crate) origin_errors: bool,
    pub(crate) dies_at: Option<u64>,
}

struct Client {
    volume: usize,
    offset: usize,
    len: usize,
    kind: ClientKind,
    start: u64,
}

enum ClientKind {
    Read(BufId),
    Write { fua: bool },
    Clear { trim: bool, fua: bool },
    Flush,
    Hint,
}

pub(crate) struct World {
    pub(crate) rng: Pcg64Mcg,
    pub(crate) now: u64,
    pub(crate) now_ms: u64,
    manager: Option<CacheManager>,
    pub(crate) cache: Disk,
    pub(crate) origins: Vec<Disk>,
    pub(crate) oracles: Vec<Oracle>,
    geometry: Geometry,
    config: ManagerConfig,
    pub(crate) volumes: Vec<VolumeConfig>,
    /// Operations that have not taken effect.
    pending: Vec<(Action, u64)>,
    /// Operations that have taken effect and whose end the manager has not heard of.
    unheard: Vec<Event>,
    bufs: BTreeMap<BufId, Vec<u8>>,
    clients: BTreeMap<u64, Client>,
    next: u64,
    next_content: u64,
    intents: Vec<Record>,
    intent_base: u64,
    intent_ready: bool,
    boot: u8,
    session: u64,
    superblock: Option<zc_format::Superblock>,
    distrusted: bool,
    stopped: Option<bool>,
    pub(crate) faults: Faults,
    kind: FingerprintKind,
    reducer: Reducer,
    options: Options,
    pub(crate) coverage: Coverage,
    pub(crate) digest: u64,
    newest_journal: u64,
    pub(crate) violation: Option<String>,
    snapshots: Vec<(usize, Vec<u8>)>,
}

struct Raw<'a>(&'a mut Disk);

impl Media for Raw<'_> {
    fn len_bytes(&self) -> u64 {
        self.0.seen.len() as u64
    }
    fn read(&mut self, offset: u64, buf: &mut [u8]) -> Result<(), ErrorKind> {
        let at = offset as usize;
        buf.copy_from_slice(&self.0.seen[at..at + buf.len()]);
        Ok(())
    }
    fn write(&mut self, offset: u64, data: &[u8]) -> Result<(), ErrorKind> {
        self.0.write(offset as usize, data);
        Ok(())
    }
    fn flush(&mut self) -> Result<(), ErrorKind> {
        let position = self.0.position();
        self.0.flush(position);
        Ok(())
    }
}

impl World {
    pub(crate) fn new(seed: u64, options: &Options) -> Self {
        let options = *options;
        let mut rng = Pcg64Mcg::seed_from_u64(seed);
        let extent_bytes = if rng.random_bool(0.7) { 4096 } else { 8192 };
        let weu_bytes = if rng.random_bool(0.5) { 32 << 10 } else { 64 << 10 };
        let slots = rng.random_range(4..=14_u64);
        let device_bytes = (700 << 10) + slots * u64::from(weu_bytes);
        let geometry = Geometry::plan(&PlanOptions {
            device_bytes,
            weu_bytes,
            extent_bytes,
            align_bytes: 0,
            journal_blocks: Some(rng.random_range(4..=10)),
        })
        .expect("a layout");
        let kind = if rng.random_bool(0.25) { FingerprintKind::Sha1 } else { FingerprintKind::Blake3 };
        let config = random_config(&mut rng, geometry.clone(), kind);
        let volumes = random_volumes(&mut rng);
        let origins = volumes.iter().map(|v| Disk::new(v.size_bytes as usize)).collect();
        let oracles = volumes.iter().map(|v| Oracle::new(v.size_bytes as usize / SECTOR)).collect();
        let mut cache = Disk::new(device_bytes as usize);
        let format = FormatOptions {
            geometry: geometry.clone(),
            uuid: [1; 16],
            fingerprint_kind: kind,
            label: String::new(),
            now_unix_s: 1,
        };
        startup::format(&mut Raw(&mut cache), &format).expect("formats");
        let faults = random_faults(&mut rng);
        let mut world = Self {
            rng,
            now: 1,
            now_ms: 0,
            manager: None,
            cache,
            origins,
            oracles,
            geometry,
            config,
            volumes,
            pending: Vec::new(),
            unheard: Vec::new(),
            bufs: BTreeMap::new(),
            clients: BTreeMap::new(),
            next: 1,
            next_content: content::POOL,
            intents: Vec::new(),
            intent_base: 0,
            intent_ready: false,
            boot: 1,
            session: 0,
            superblock: None,
            distrusted: false,
            stopped: None,
            faults,
            kind,
            reducer: Reducer::new(),
            options,
            coverage: Coverage::default(),
            digest: 0,
            newest_journal: 0,
            violation: None,
            snapshots: Vec::new(),
        };
        world.start();
        world
    }

    fn start(&mut self) {
        let mut records = Vec::new();
        let options = OpenOptions {
            boot_id: [self.boot; 16],
            cold: self.rng.random_bool(0.01),
            intent_session: self.intent_ready.then_some(self.session),
            intent_journal: JournalSeq(self.newest_journal),
        };
        let opened = startup::open(&mut Raw(&mut self.cache), &options, &mut |r| records.push(*r));
        let opened = opened.expect("opens");
        self.coverage.note("starts");
        if opened.distrust.is_some() {
            self.coverage.note("starts without trust");
        }
        let by_intent = opened.start.intact && !opened.was_clean;
        if by_intent {
            self.coverage.note("starts by intent log");
        }
        for volume in &mut self.volumes {
            volume.trusted = !self.distrusted;
        }
        self.session = opened.start.session;
        self.superblock = Some(opened.superblock);
        let intents = core::mem::take(&mut self.intents);
        self.intent_base = 0;
        self.intent_ready = false;
        let mut manager = CacheManager::new(self.config.clone(), self.volumes.clone(), opened.start);
        manager.set_canary(self.options.canary);
        records.iter().for_each(|record| manager.replay(record));
        if by_intent {
            intents.iter().for_each(|record| manager.replay_intent(record));
        }
        let mut actions = Vec::new();
        manager.begin(self.now_ms, &mut actions);
        self.manager = Some(manager);
        self.carry_out(actions);
    }

    fn trace(&self, text: impl FnOnce() -> String) {
        if let Some(out) = self.options.trace {
            out(&format!("{:6} {}", self.now, text()));
        }
    }

    pub(crate) fn event(&mut self, event: Event) {
        self.now += 1;
        self.trace(|| format!("> {event:?}"));
        self.coverage.note(event_name(&event));
        let mut actions = Vec::new();
        self.manager.as_mut().expect("runs").handle(event, &mut actions);
        self.carry_out(actions);
    }

    pub(crate) fn tick(&mut self) {
        self.now_ms += self.rng.random_range(1..40);
        let now_ms = self.now_ms;
        self.event(Event::Tick { now_ms });
    }

    pub(crate) fn in_flight(&self) -> usize {
        self.clients.len()
    }

    pub(crate) fn is_busy(&self) -> bool {
        !self.pending.is_empty() || !self.unheard.is_empty()
    }

    pub(crate) fn slice(&self, s: BufSlice) -> Vec<u8> {
        let at = s.start_bytes as usize;
        self.bufs.get(&s.buf).unwrap_or_else(|| panic!("{:?} is not there", s.buf))
            [at..at + s.len_bytes as usize]
            .to_vec()
    }

    pub(crate) fn put(&mut self, s: BufSlice, data: &[u8]) {
        let at = s.start_bytes as usize;
        let buf = self.bufs.get_mut(&s.buf).unwrap_or_else(|| panic!("{:?} is not there", s.buf));
        buf[at..at + s.len_bytes as usize].copy_from_slice(data);
    }

    fn carry_out(&mut self, actions: Vec<Action>) {
        for action in actions {
            self.trace(|| format!("  < {action:?}"));
            match action {
                Action::Reply { req, result } => self.replied(req, result),
                Action::Alloc { buf, len_bytes } => {
                    assert!(self.bufs.insert(buf, vec![0xee; len_bytes as usize]).is_none());
                }
                Action::Free { buf } => {
                    self.bufs.remove(&buf).expect("freed once");
                }
                Action::Copy { from, to } => {
                    let data = self.slice(from);
                    self.put(to, &data);
                }
                Action::Zero { dest } => self.put(dest, &vec![0; dest.len_bytes as usize]),
                Action::Place { weu, offset_bytes, header, payload } => {
                    let payload = self.slice(payload);
                    let buf = self.bufs.get_mut(&weu).expect("a WEU's buffer");
                    header.seal(offset_bytes, &payload, &mut buf[offset_bytes as usize..]);
                }
                Action::Intent { record } => {
                    self.count_wrap(&record);
                    self.intents.push(record);
                }
                Action::IntentTrim { records } => {
                    let count = usize::try_from(records - self.intent_base).expect("small");
                    self.intents.drain(..count);
                    self.intent_base = records;
                }
                Action::IntentReady => self.intent_ready = true,
                Action::Note(_) => {}
                Action::Stopped { clean } => self.stopped = Some(clean),
                Action::FlushCache { .. } => {
                    let position = self.cache.position();
                    self.pending.push((action, position));
                }
                Action::OriginFlush { volume, .. } => {
                    let position = self.origins[usize::from(volume.0)].position();
                    self.pending.push((action, position));
                }
                other => self.pending.push((other, 0)),
            }
        }
    }

    /// Lets one operation take effect or end, chosen at random: between the two anything may happen.
    pub(crate) fn step(&mut self) {
        let count = self.pending.len() + self.unheard.len();
        if count == 0 {
            return;
        }
        let index = self.rng.random_range(0..count);
        if let Some(heard) = index.checked_sub(self.pending.len()) {
            let event = self.unheard.swap_remove(heard);
            self.event(event);
            return;
        }
        let (action, position) = self.pending.swap_remove(index);
        let event = self.perform(&action, position);
        if self.rng.random_bool(0.4) {
            self.trace(|| format!("  effect of what ends as {event:?}"));
            self.unheard.push(event);
        } else {
            self.event(event);
        }
    }

    fn device_fails(&mut self, write: bool) -> bool {
        let dead = self.faults.dies_at.is_some_and(|at| self.now > at);
        dead || (write && self.faults.write_errors && self.rng.random_bool(0.02))
            || (!write && self.faults.read_errors && self.rng.random_bool(0.05))
    }

    fn meta_write(&mut self, op: zc_core::OpId, writes: &[(u64, Vec<u8>)]) -> Event {
        // Errors of metadata writes put the cache out of order: only when the device is dead, or seeds end early.
        let dead = self.faults.dies_at.is_some_and(|at| self.now > at);
        if !dead {
            for (offset, data) in writes {
                self.cache.write(*offset as usize, data);
            }
        }
        Event::DeviceDone { op, result: if dead { Err(ErrorKind::Io) } else { Ok(()) } }
    }

    #[expect(clippy::too_many_lines, reason = "one arm per action")]
    fn perform(&mut self, action: &Action, position: u64) -> Event {
        match action {
            Action::OriginRead { .. }
            | Action::OriginWrite { .. }
            | Action::OriginTrim { .. }
            | Action::OriginZero { .. }
            | Action::OriginFlush { .. } => self.perform_origin(action, position),
            Action::ReadExtents { op, source, slot, start_bytes, len_bytes, parts, .. } => {
                if *source == Source::Device && self.device_fails(false) {
                    return Event::ExtentsRead { op: *op, result: Err(ErrorKind::Io) };
                }
                let (start, end) = (*start_bytes as usize, (start_bytes + len_bytes) as usize);
                let bytes = match source {
                    Source::Memory(buf) => self.bufs[buf][start..end].to_vec(),
                    Source::Device => {
                        let at = self.geometry.slot_offset(*slot) as usize;
                        self.cache.seen[at + start..at + end].to_vec()
                    }
                };
                let results = parts
                    .iter()
                    .map(|part| {
                        let at = (part.expected.offset_bytes - start_bytes) as usize;
                        let verified = ExtentHeader::verify(&bytes[at..], &part.expected);
                        let extent = match verified {
                            Ok(extent) => extent,
                            Err(error) if self.options.canary == Some(Canary::TrustExtent) => {
                                let raw = vec![0x5a; part.dest.len_bytes as usize];
                                self.put(part.dest, &raw);
                                let _ = error;
                                return Ok(());
                            }
                            Err(error) => return Err(error),
                        };
                        let mut raw = vec![0; part.expected.raw_bytes as usize];
                        let payload = &bytes[at..][extent.payload];
                        self.reducer
                            .decompress(extent.codec, payload, &mut raw)
                            .map_err(|_| zc_format::ExtentError::Payload)?;
                        let skip = part.skip_bytes as usize;
                        let taken = raw[skip..skip + part.dest.len_bytes as usize].to_vec();
                        self.put(part.dest, &taken);
                        Ok(())
                    })
                    .collect();
                Event::ExtentsRead { op: *op, result: Ok(results) }
            }
            Action::ReadHeader { op, slot, .. } => {
                if self.device_fails(false) {
                    return Event::HeaderRead { op: *op, result: Err(ErrorKind::Io) };
                }
                let at = self.geometry.slot_offset(*slot) as usize;
                let bytes = &self.cache.seen[at..at + self.geometry.weu_bytes as usize];
                let header =
                    WeuHeader::decode(bytes, *slot, self.geometry.weu_bytes, self.geometry.extent_bytes);
                Event::HeaderRead { op: *op, result: Ok(header.ok().map(Box::new)) }
            }
            Action::WantRecipe { op, volume, first, count } => {
                let extent = self.geometry.extent_bytes as usize;
                let start = first.0 as usize * extent;
                let origin = &self.origins[usize::from(volume.0)].seen;
                let prints = origin[start..start + *count as usize * extent]
                    .chunks(extent)
                    .map(|bytes| Some(zc_reduce::fingerprint(self.kind, bytes)))
                    .collect();
                Event::RecipeArrived { op: *op, prints }
            }
            Action::Hash { op, src } => {
                let bytes = self.slice(*src);
                let digest = if zc_reduce::is_zero(&bytes) {
                    Digest::Zero
                } else {
                    Digest::Print(zc_reduce::fingerprint(self.kind, &bytes))
                };
                Event::Hashed { op: *op, digest }
            }
            Action::Compress { op, src, codec, max_bytes, out } => {
                let bytes = self.slice(*src);
                let mut stored = vec![0; *max_bytes as usize];
                let len = self.reducer.compress(*codec, &bytes, &mut stored);
                self.bufs.insert(*out, stored).expect("allocated before");
                Event::Compressed { op: *op, stored_bytes: len.map(|len| len as u32) }
            }
            Action::Compare { op, left, right } => {
                Event::Compared { op: *op, equal: self.slice(*left) == self.slice(*right) }
            }
            Action::WriteWeu { op, slot, weu, data_bytes, header } => {
                self.write_weu(*op, *slot, *weu, *data_bytes, header)
            }
            Action::DiscardSlot { op, slot } => {
                let at = self.geometry.slot_offset(*slot) as usize;
                if self.rng.random_bool(0.5) {
                    self.cache.write(at, &vec![0; self.geometry.weu_bytes as usize]);
                }
                Event::DeviceDone { op: *op, result: Ok(()) }
            }
            Action::WriteJournal { op, block } => {
                if block.sequence.0 / self.geometry.journal_blocks
                    > self.newest_journal / self.geometry.journal_blocks
                {
                    self.coverage.note("journal wraps");
                }
                self.newest_journal = self.newest_journal.max(block.sequence.0);
                self.meta_write(*op, &[(self.geometry.journal_block_offset(block.sequence), block.encode())])
            }
            Action::WriteRegionMap { op, copy, map } => {
                self.meta_write(*op, &[(self.geometry.region_map[*copy], map.encode(*copy))])
            }
            Action::WriteCheckpoint { op, area, first_block, sequence, records } => {
                let writes: Vec<_> = records
                    .chunks(zc_format::RECORDS_PER_BLOCK)
                    .zip(*first_block..)
                    .map(|(records, block)| {
                        let bytes = zc_format::encode_checkpoint_block(*sequence, block, records);
                        (self.geometry.checkpoint_block_offset(*area, block), bytes)
                    })
                    .collect();
                self.meta_write(*op, &writes)
            }
            Action::CommitCheckpoint { op, area, header } => {
                self.meta_write(*op, &[(self.geometry.checkpoint[*area], header.encode(*area))])
            }
            Action::FlushCache { op } => {
                let dead = self.faults.dies_at.is_some_and(|at| self.now > at);
                if !dead {
                    self.cache.flush(position);
                }
                Event::DeviceDone { op: *op, result: if dead { Err(ErrorKind::Io) } else { Ok(()) } }
            }
            Action::Distrust { op, .. } => {
                self.distrusted = true;
                Event::DeviceDone { op: *op, result: Ok(()) }
            }
            other => panic!("{other:?} is no operation"),
        }
    }

    /// A slot's generation has outgrown the bits that index entries keep.
    fn count_wrap(&mut self, record: &Record) {
        if let Record::SlotSealed { generation, .. } = record
            && generation.0 >> self.config.generation_bits > 0
        {
            self.coverage.note("generation wraps");
        }
    }

    fn write_weu(
        &mut self,
        op: zc_core::OpId,
        slot: WeuSlot,
        weu: BufId,
        data: u32,
        header: &WeuHeader,
    ) -> Event {
        if self.device_fails(true) {
            return Event::DeviceDone { op, result: Err(ErrorKind::Io) };
        }
        let mut bytes = self.bufs[&weu].clone();
        let tail = bytes.len() - WeuHeader::encoded_bytes(header.entries.len() as u32) as usize;
        assert!(data as usize <= tail, "extents and header overlap");
        header.encode_into(&mut bytes[tail..]);
        let at = self.geometry.slot_offset(slot) as usize;
        if self.faults.lost_weus && self.rng.random_bool(0.05) {
            return Event::DeviceDone { op, result: Ok(()) };
        }
        if self.snapshots.len() < 4 {
            self.snapshots.push((at, self.cache.seen[at..at + bytes.len()].to_vec()));
        }
        self.cache.write(at, &bytes);
        Event::DeviceDone { op, result: Ok(()) }
    }

    /// Bits rot, blocks go back to what they were: in the slots, where every read is verified.
    pub(crate) fn rot(&mut self) {
        if !self.faults.rot {
            return;
        }
        let slots = self.geometry.slots_offset as usize;
        let len = self.geometry.slots as usize * self.geometry.weu_bytes as usize;
        if self.rng.random_bool(0.8) || self.snapshots.is_empty() {
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

    fn replied(&mut self, req: ReqId, result: Result<(), ErrorKind>) {
        let client = self.clients.remove(&req.0).expect("answered once");
        let reads = self.clients.values().filter(|c| matches!(c.kind, ClientKind::Read(_)));
        let oldest = reads.map(|c| c.start).min().unwrap_or(u64::MAX);
        self.oracles.iter_mut().for_each(|oracle| oracle.oldest_read = oldest);
        let now = self.now;
        if let Err(error) = result {
            self.refused(req, &client, error);
            return;
        }
        let first = client.offset / SECTOR;
        let sectors = first..first + client.len / SECTOR;
        let oracle = &mut self.oracles[client.volume];
        match client.kind {
            ClientKind::Read(buf) => {
                let data = self.bufs[&buf].clone();
                for (sector, bytes) in sectors.zip(data.chunks(SECTOR)) {
                    let Some(value) = content::identify(bytes) else {
                        let text = format!(
                            "volume {} sector {sector}: bytes that nobody wrote (G1, G3)",
                            client.volume
                        );
                        self.violation = Some(text);
                        return;
                    };
                    if !oracle.may_see(sector, client.start, value) {
                        let legal = oracle.describe(sector);
                        let text = format!(
                            "volume {} sector {sector}: read {req:?} saw {value}, legal: {legal}",
                            client.volume
                        );
                        self.violation = Some(text);
                        return;
                    }
                    oracle.saw(sector, client.start, value, now);
                    self.digest = self.digest.rotate_left(5) ^ value ^ now;
                }
            }
            ClientKind::Write { fua } => sectors.for_each(|s| oracle.end(s, client.start, now, fua)),
            ClientKind::Clear { trim: true, .. } => {
                sectors.for_each(|s| oracle.end_uncertain(s, client.start, now));
            }
            ClientKind::Clear { trim: false, fua } => {
                sectors.for_each(|s| oracle.end(s, client.start, now, fua));
            }
            ClientKind::Flush => oracle.flushed(client.start),
            ClientKind::Hint => {}
        }
    }

    /// A request failed: only the origin may be the reason. What it wrote, if anything, is uncertain.
    fn refused(&mut self, req: ReqId, client: &Client, error: ErrorKind) {
        if !self.faults.origin_errors {
            self.violation = Some(format!("request {req:?} failed: {error} (G4)"));
        }
        if matches!(client.kind, ClientKind::Write { .. } | ClientKind::Clear { .. }) {
            let first = client.offset / SECTOR;
            let (oracle, now) = (&mut self.oracles[client.volume], self.now);
            (first..first + client.len / SECTOR).for_each(|s| oracle.end_uncertain(s, client.start, now));
        }
    }

    fn span(&mut self, volume: usize, max: usize) -> (usize, usize) {
        let size = self.volumes[volume].size_bytes as usize;
        let extent = self.geometry.extent_bytes as usize;
        let (align, len) = match self.rng.random_range(0..10) {
            0..=3 => (extent, extent * self.rng.random_range(1..=(max / extent).max(1))),
            4..=6 => (4096, 4096),
            _ => (SECTOR, SECTOR * self.rng.random_range(1..=(max / SECTOR).min(40))),
        };
        let hot = if self.rng.random_bool(0.6) { size / 3 } else { size };
        let offset = self.rng.random_range(0..hot) / align * align;
        (offset, len.min(size - offset))
    }

    fn submit(&mut self, volume: usize, offset: usize, len: usize, kind: RequestKind, client: ClientKind) {
        self.now += 1;
        let req = self.next;
        self.next += 1;
        let start = self.now;
        self.clients.insert(req, Client { volume, offset, len, kind: client, start });
        self.event(Event::Submit(Request {
            req: ReqId(req),
            volume: VolumeId(volume as u16),
            offset_bytes: offset as u64,
            len_bytes: len as u64,
            kind,
        }));
    }

    pub(crate) fn random_request(&mut self) {
        let volume = self.rng.random_range(0..self.volumes.len());
        let (offset, len) = self.span(volume, 128 << 10);
        if len == 0 {
            return;
        }
        self.next += 1;
        let buf = BufId(self.next);
        match self.rng.random_range(0..100) {
            0..50 => {
                self.bufs.insert(buf, vec![0xaa; len]);
                self.submit(volume, offset, len, RequestKind::Read { buf }, ClientKind::Read(buf));
            }
            50..86 => self.write(volume, offset, len, buf),
            86..91 => self.submit(volume, 0, 0, RequestKind::Flush, ClientKind::Flush),
            91..94 => self.clear(volume, offset, len, true),
            94..97 => self.clear(volume, offset, len, false),
            97 => self.submit(volume, offset, len, RequestKind::Prefetch, ClientKind::Hint),
            _ => {
                let volume = self.rng.random_range(0..self.volumes.len());
                let mode = [Mode::WriteThrough, Mode::WriteThrough, Mode::WriteAround, Mode::PassThrough];
                self.volumes[volume].mode = mode[self.rng.random_range(0..4)];
                let config = Box::new(self.volumes[volume].clone());
                self.event(Event::Configure(config));
            }
        }
    }

    fn write(&mut self, volume: usize, offset: usize, len: usize, buf: BufId) {
        let extent = self.geometry.extent_bytes as usize;
        let start = self.now + 1;
        let shared = self.rng.random_bool(0.5);
        let zero = self.rng.random_bool(0.05);
        let mut data = vec![0; len];
        for (index, sector) in data.chunks_mut(SECTOR).enumerate() {
            let at = offset + index * SECTOR;
            let within = (at % extent / SECTOR) as u64;
            let id = if zero {
                0
            } else if shared {
                // Whole extents with one of 12 contents.
                let pick = (at / extent * 7 + self.next as usize / 3) % 12;
                64 * (1 + pick as u64) + within
            } else {
                self.next_content += 1;
                self.next_content
            };
            content::fill(id, sector);
            self.oracles[volume].issue(at / SECTOR, id, start);
        }
        self.bufs.insert(buf, data);
        let fua = self.rng.random_bool(0.05);
        self.submit(volume, offset, len, RequestKind::Write { buf, fua }, ClientKind::Write { fua });
    }

    fn clear(&mut self, volume: usize, offset: usize, len: usize, trim: bool) {
        let start = self.now + 1;
        for sector in offset / SECTOR..(offset + len) / SECTOR {
            self.oracles[volume].issue(sector, 0, start);
        }
        let fua = self.rng.random_bool(0.1);
        let kind =
            if trim { RequestKind::Trim { fua } } else { RequestKind::WriteZeroes { no_hole: false, fua } };
        self.submit(volume, offset, len, kind, ClientKind::Clear { trim, fua });
    }

    /// Metadata rots while nobody looks: a start must notice, not believe.
    fn rot_metadata(&mut self) {
        if !self.faults.rot || !self.rng.random_bool(0.2) {
            return;
        }
        let at = self.rng.random_range(self.geometry.region_map[0]..self.geometry.slots_offset) as usize;
        let byte = self.cache.seen[at] ^ (1 << self.rng.random_range(0..8));
        self.cache.damage(at, &[byte]);
        self.coverage.note("metadata rotted");
    }

    fn gone(&mut self) {
        if let Some(manager) = self.manager.take() {
            if !manager.is_loaded() {
                self.coverage.note("crashes while the index loads");
            }
            if !manager.is_healthy() && self.faults.dies_at.is_some_and(|at| self.now > at) {
                self.coverage.note("device died");
            }
            for (name, value) in manager.stats().named() {
                self.coverage.add(name, value);
            }
        }
        self.bufs.clear();
        self.clients.clear();
        self.unheard.clear();
        self.stopped = None;
        // A device that died comes back with the machine.
        if self.faults.dies_at.is_some_and(|at| self.now > at) {
            self.faults.dies_at = None;
        }
    }

    /// Some of what is in flight happens, wholly or in part, and nobody hears of it.
    fn cut_off(&mut self) {
        let pending = core::mem::take(&mut self.pending);
        for (action, position) in pending {
            let writes = matches!(
                action,
                Action::OriginWrite { .. }
                    | Action::OriginTrim { .. }
                    | Action::OriginZero { .. }
                    | Action::WriteWeu { .. }
                    | Action::WriteJournal { .. }
                    | Action::WriteRegionMap { .. }
                    | Action::WriteCheckpoint { .. }
                    | Action::CommitCheckpoint { .. }
                    | Action::FlushCache { .. }
                    | Action::OriginFlush { .. }
            );
            if writes && self.rng.random_bool(0.5) {
                let _event = self.perform(&action, position);
            }
        }
    }

    pub(crate) fn power_cut(&mut self) {
        self.trace(|| "power cut".to_owned());
        self.coverage.note("power cuts");
        self.now += 1;
        self.cut_off();
        self.cache.power_cut(&mut self.rng);
        self.rot_metadata();
        for origin in &mut self.origins {
            origin.power_cut(&mut self.rng);
        }
        let now = self.now;
        self.oracles.iter_mut().for_each(|oracle| oracle.power_cut(now));
        self.gone();
        self.boot = self.boot.wrapping_add(1);
        self.now += 1;
        self.start();
    }

    pub(crate) fn kill(&mut self) {
        self.trace(|| "killed".to_owned());
        self.coverage.note("kills");
        self.now += 1;
        self.cut_off();
        self.rot_metadata();
        let now = self.now;
        self.oracles.iter_mut().for_each(|oracle| oracle.killed(now));
        self.gone();
        self.now += 1;
        self.start();
    }

    pub(crate) fn stop_and_start(&mut self) {
        self.drain();
        if self.violation.is_some() {
            return;
        }
        self.trace(|| "stop".to_owned());
        self.coverage.note("clean stops");
        self.event(Event::Stop);
        let cut_off = self.rng.random_bool(0.2).then(|| self.rng.random_range(0..60));
        for turn in 0..20_000 {
            if self.stopped.is_some() || self.violation.is_some() {
                break;
            }
            if cut_off == Some(turn) {
                self.coverage.note("crashes while stopping");
                self.power_cut();
                return;
            }
            if self.is_busy() {
                self.step();
            } else {
                self.tick();
            }
        }
        if self.violation.is_some() {
            return;
        }
        let Some(clean) = self.stopped else {
            self.violation = Some("the manager does not stop".to_owned());
            return;
        };
        if !self.bufs.is_empty() || self.is_busy() {
            self.violation =
                Some(format!("left over after the stop: {:?} {:?}", self.bufs.keys(), self.pending));
            return;
        }
        if clean {
            let superblock = self.superblock.clone().expect("opened");
            startup::mark_clean(&mut Raw(&mut self.cache), &superblock).expect("marks");
            self.distrusted = false;
        }
        self.gone();
        if self.rng.random_bool(0.5) {
            self.boot = self.boot.wrapping_add(1);
        }
        self.start();
    }

    pub(crate) fn drain(&mut self) {
        for _ in 0..20_000 {
            if self.clients.is_empty() || self.violation.is_some() {
                return;
            }
            if self.is_busy() {
                self.step();
            } else {
                self.tick();
            }
        }
        self.violation = Some(format!("{} requests are never answered", self.clients.len()));
    }

    /// Reads every volume from end to end.
    pub(crate) fn read_all(&mut self) {
        for volume in 0..self.volumes.len() {
            let size = self.volumes[volume].size_bytes as usize;
            if self.violation.is_some() {
                return;
            }
            for offset in (0..size).step_by(64 << 10) {
                let len = (size - offset).min(64 << 10);
                self.next += 1;
                let buf = BufId(self.next);
                self.bufs.insert(buf, vec![0xaa; len]);
                self.submit(volume, offset, len, RequestKind::Read { buf }, ClientKind::Read(buf));
                self.drain();
            }
        }
    }

    /// What happened, all told.
    pub(crate) fn finish(&mut self) -> Coverage {
        self.gone();
        self.coverage.clone()
    }
}

fn event_name(event: &Event) -> &'static str {
    match event {
        Event::Submit(_) => "event Submit",
        Event::OriginDone { .. } => "event OriginDone",
        Event::DeviceDone { .. } => "event DeviceDone",
        Event::ExtentsRead { .. } => "event ExtentsRead",
        Event::HeaderRead { .. } => "event HeaderRead",
        Event::Hashed { .. } => "event Hashed",
        Event::RecipeArrived { .. } => "event RecipeArrived",
        Event::Compressed { .. } => "event Compressed",
        Event::Compared { .. } => "event Compared",
        Event::Tick { .. } => "event Tick",
        Event::Configure(_) => "event Configure",
        Event::Stop => "event Stop",
    }
}

fn random_config(rng: &mut Pcg64Mcg, geometry: Geometry, kind: FingerprintKind) -> ManagerConfig {
    ManagerConfig {
        geometry,
        fingerprint: kind,
        file_index_entries: rng.random_range(40..400),
        fingerprint_index_entries: if rng.random_bool(0.1) { 0 } else { rng.random_range(20..300) },
        generation_bits: rng.random_range(2..=3),
        read_buffer_bytes: if rng.random_bool(0.5) { 64 << 10 } else { 0 },
        staging_bytes: rng.random_range(8_u32..40) << 12,
        insert_bytes_max: 512 << 10,
        weu_max_age_ms: 200,
        journal_delay_ms: 30,
        prefetch_threshold_bytes: 16 << 10,
        prefetch_max_bytes: if rng.random_bool(0.5) { 32 << 10 } else { 0 },
        regions_active_max: rng.random_range(4..=12),
        discard: rng.random_bool(0.3),
    }
}

fn random_volumes(rng: &mut Pcg64Mcg) -> Vec<VolumeConfig> {
    let mut volumes = Vec::new();
    for id in 0..rng.random_range(1..=3_u16) {
        volumes.push(VolumeConfig {
            id: VolumeId(id),
            size_bytes: rng.random_range(32..=96_u64) * 8192 + rng.random_range(0..3) * 512,
            region_bytes: 16 << 10,
            mode: if rng.random_bool(0.8) { Mode::WriteThrough } else { Mode::WriteAround },
            admission: if rng.random_bool(0.8) { Admission::Always } else { Admission::SecondTouch },
            dedup: rng.random_bool(0.85),
            codec: [Codec::Lz4, Codec::Raw, Codec::Zstd(1), Codec::Zlib(1)][rng.random_range(0..4)],
            index_share_percent: if rng.random_bool(0.8) { 100 } else { 50 },
            recipes: rng.random_bool(0.3),
            trusted: true,
        });
    }
    volumes
}

fn random_faults(rng: &mut Pcg64Mcg) -> Faults {
    if rng.random_bool(0.5) {
        Faults {
            rot: rng.random_bool(0.5),
            read_errors: rng.random_bool(0.3),
            write_errors: rng.random_bool(0.2),
            lost_weus: rng.random_bool(0.3),
            origin_errors: rng.random_bool(0.2),
            dies_at: rng.random_bool(0.2).then(|| rng.random_range(500..6000)),
        }
    } else {
        Faults::default()
    }
}
