//! A small world for the manager: one cache device in memory, origins in memory, every action carried out at once
//! and answered in order. No faults, no crashes, no reordering: that is the simulator's part.

use std::collections::{BTreeMap, VecDeque};

use zc_cache::CacheManager;
use zc_cache::config::{ManagerConfig, Packer, Replacement, VolumeConfig};
use zc_cache::seam::{Action, Digest, Event, ExtentRead, Note, PartResults, Request, RequestKind, Source};
use zc_cache::startup::{self, FormatOptions, Media, OpenOptions};
use zc_core::{
    BufId, BufSlice, Codec, DedupDomain, ErrorKind, ExtentKey, ExtentNo, Fingerprint, FingerprintKind,
    JournalSeq, OpId, ReqId, VolumeId, WeuSlot, usize_from_u32, usize_from_u64,
};
use zc_drive::{Backend, Ended, Intent, Metadata, OriginOp, Piece, Turns, UnitWrite};
use zc_format::{
    BLOCK, ExtentError, ExtentHeader, Geometry, JournalBlock, PlanOptions, Record, Summary, SummaryPlace,
    WeuHeader,
};
use zc_reduce::Reducer;

pub(crate) use crate::contents::{half, noise};

pub(crate) const V: VolumeId = VolumeId(0);
pub(crate) const W: VolumeId = VolumeId(1);

/// A device in memory.
#[derive(Debug, Clone)]
pub(crate) struct Memory(pub(crate) Vec<u8>);

impl Media for Memory {
    fn len_bytes(&self) -> u64 {
        self.0.len() as u64
    }
    fn read(&mut self, offset_bytes: u64, buf: &mut [u8]) -> Result<(), ErrorKind> {
        let at = usize_from_u64(offset_bytes);
        buf.copy_from_slice(&self.0[at..at + buf.len()]);
        Ok(())
    }
    fn write(&mut self, offset_bytes: u64, data: &[u8]) -> Result<(), ErrorKind> {
        let at = usize_from_u64(offset_bytes);
        self.0[at..at + data.len()].copy_from_slice(data);
        Ok(())
    }
    fn flush(&mut self) -> Result<(), ErrorKind> {
        Ok(())
    }
}

/// What became known of an extent: its content and its size.
type Learned = (ExtentKey, Digest, Option<(Codec, u32)>);

/// Outcome of a request and, for reads, the bytes.
type Answer = (Result<(), ErrorKind>, Option<Vec<u8>>);

/// What a restart keeps.
struct Kept {
    device: Memory,
    config: ManagerConfig,
    volumes: Vec<VolumeConfig>,
    origins: BTreeMap<VolumeId, Vec<u8>>,
    kind: FingerprintKind,
}

/// The world.
pub(crate) struct World {
    pub(crate) manager: CacheManager,
    pub(crate) device: Memory,
    pub(crate) origins: BTreeMap<VolumeId, Vec<u8>>,
    pub(crate) replies: BTreeMap<u64, Answer>,
    /// Reads of the device for hits: (slot, bytes).
    pub(crate) device_reads: Vec<(WeuSlot, u32)>,
    /// Origins zeroed: offset, bytes, and whether no hole was to come of it.
    pub(crate) origin_zeroed: Vec<(u64, u64, bool)>,
    /// Fingerprints of whole-extent reads to be kept: verified, or given.
    pub(crate) kept: Vec<(bool, bool)>,
    /// Origin reads: (offset, bytes).
    pub(crate) origin_reads: Vec<(u64, u32)>,
    pub(crate) stopped: Option<bool>,
    /// Contents reported by the manager.
    pub(crate) learned: Vec<Learned>,
    /// Every comparison of bytes finds a difference, as after a collision of hashes.
    pub(crate) all_differs: bool,
    /// Writes of WEUs do not reach the device and do not end.
    pub(crate) weus_hang: bool,
    /// Requests in the order of their answers.
    pub(crate) answered: Vec<u64>,
    /// Journal writes do not end.
    pub(crate) journal_hangs: bool,
    /// Writes of pieces of units end and do not reach the device.
    pub(crate) parts_vanish: bool,
    /// Ends of writes of pieces of units that wait, if they do.
    pub(crate) parts: Option<VecDeque<Event>>,
    /// The last journal block that was written.
    journal_end: u64,
    /// Ends of hashing that wait, if they do.
    pub(crate) hashes: Option<Vec<Event>>,
    /// Ends of compressions that wait, if they do.
    pub(crate) compressions: Option<Vec<Event>>,
    /// Flushes of origins do not end.
    pub(crate) origin_flushes_hang: bool,
    /// Flushes of origins fail.
    pub(crate) origin_flushes_fail: bool,
    /// Writes of origins fail, and show all the same.
    pub(crate) origin_writes_fail: bool,
    /// The origin of one volume has no space until so many bytes more are discarded there.
    pub(crate) full: Option<(VolumeId, u64)>,
    /// Writes of the origin of one volume do not end; they take effect when they begin.
    pub(crate) slow: Option<VolumeId>,
    /// The origin of one volume does not flush.
    pub(crate) flushless: Option<VolumeId>,
    /// What the recording of a distrust ends with.
    pub(crate) distrust_ends: Result<(), ErrorKind>,
    /// How often a distrust was to be recorded, and the records of the intent log.
    pub(crate) distrusts: u32,
    /// Distrusts that a stop could not have recorded.
    pub(crate) unrecorded: Vec<Option<VolumeId>>,
    /// Removals that ended.
    pub(crate) removed: Vec<(VolumeId, Result<(), ErrorKind>)>,
    pub(crate) intents: Vec<Record>,
    /// Every action's kind.
    pub(crate) kinds: Vec<core::mem::Discriminant<Action>>,
    /// Reads of origins do not end; what they brought is what was there when they began.
    pub(crate) origin_reads_hang: bool,
    image_reads_hang: bool,
    /// Writes of origins do not end; they take effect when they begin.
    pub(crate) origin_writes_hang: bool,
    /// The cache device answers nothing: its operations take no effect.
    pub(crate) device_hangs: bool,
    /// What it has not answered.
    pub(crate) hung: Vec<Action>,
    hanging: Vec<Event>,
    hanging_journal: Vec<OpId>,
    pub(crate) geometry: Geometry,
    bufs: BTreeMap<BufId, Vec<u8>>,
    read_bufs: BTreeMap<u64, BufId>,
    next_req: u64,
    now_ms: u64,
    kind: FingerprintKind,
    reducer: Reducer,
    pub(crate) superblock: zc_format::Superblock,
    volumes: Vec<VolumeConfig>,
    pub(crate) config: ManagerConfig,
}

pub(crate) fn volume(id: VolumeId, size_bytes: u64) -> VolumeConfig {
    VolumeConfig { recipes: true, ..VolumeConfig::new(id, size_bytes, 64 << 10) }
}

/// What a test may choose.
#[derive(Clone, Copy)]
pub(crate) struct Shape {
    pub(crate) slots: u64,
    pub(crate) weu_bytes: u32,
    pub(crate) extent_bytes: u32,
    pub(crate) volume_bytes: u64,
    pub(crate) range_extents_min: u64,
    pub(crate) drain_extents_min: u64,
    pub(crate) kind: FingerprintKind,
    pub(crate) read_buffer_bytes: u32,
    /// Consecutive bytes that make a stream; none does by default.
    pub(crate) prefetch_threshold_bytes: u32,
    pub(crate) prefetch_max_bytes: u32,
    pub(crate) insert_bytes_max: u32,
    pub(crate) destage_bytes_per_s: u64,
    pub(crate) scrub_interval_ms: u64,
    pub(crate) prove_hits: u32,
    pub(crate) idle_ms: u64,
    pub(crate) dirty_high_percent: u8,
    pub(crate) learned_recipes_bytes: u64,
    pub(crate) header_prints_max: u32,
    pub(crate) replacement: Replacement,
    pub(crate) packer: Packer,
    /// Of the two volumes.
    pub(crate) domains: [DedupDomain; 2],
}

impl Default for Shape {
    fn default() -> Self {
        Self {
            slots: 16,
            weu_bytes: 256 << 10,
            extent_bytes: 8 << 10,
            volume_bytes: 4 << 20,
            range_extents_min: 513,
            drain_extents_min: 8192,
            kind: FingerprintKind::Blake3,
            read_buffer_bytes: 0,
            prefetch_threshold_bytes: u32::MAX,
            prefetch_max_bytes: 0,
            insert_bytes_max: 8 << 20,
            destage_bytes_per_s: 0,
            scrub_interval_ms: 0,
            prove_hits: 0,
            idle_ms: 1000,
            dirty_high_percent: 50,
            learned_recipes_bytes: 0,
            header_prints_max: 1 << 15,
            replacement: Replacement::Lru,
            packer: Packer::Append,
            domains: [DedupDomain::COMMON; 2],
        }
    }
}

impl World {
    pub(crate) fn new(shape: Shape) -> Self {
        let device_bytes = (1 << 20) + (shape.slots + 1) * u64::from(shape.weu_bytes);
        let geometry = Geometry::plan(&PlanOptions {
            device_bytes,
            weu_bytes: shape.weu_bytes,
            extent_bytes: shape.extent_bytes,
            align_bytes: 0,
            journal_blocks: Some(16),
        })
        .unwrap();
        let mut device = Memory(vec![0; usize_from_u64(device_bytes)]);
        let options = FormatOptions {
            geometry: geometry.clone(),
            uuid: [1; 16],
            fingerprint_kind: shape.kind,
            label: String::new(),
            now_unix_s: 0,
        };
        startup::format(&mut device, &options).unwrap();
        let config = ManagerConfig {
            generation_bits: 4,
            read_buffer_bytes: shape.read_buffer_bytes,
            staging_bytes: 1 << 20,
            insert_bytes_max: shape.insert_bytes_max,
            weu_max_age_ms: 1000,
            journal_delay_ms: 50,
            prefetch_threshold_bytes: shape.prefetch_threshold_bytes,
            prefetch_max_bytes: shape.prefetch_max_bytes,
            learned_recipes_bytes: shape.learned_recipes_bytes,
            header_prints_max: shape.header_prints_max,
            regions_active_max: 16,
            range_extents_min: shape.range_extents_min,
            drain_extents_min: shape.drain_extents_min,
            prove_hits: shape.prove_hits,
            replacement: shape.replacement,
            packer: shape.packer,
            dirty: zc_cache::config::DirtyConfig {
                destage_bytes_per_s: shape.destage_bytes_per_s,
                scrub_interval_ms: shape.scrub_interval_ms,
                idle_ms: shape.idle_ms,
                high_percent: shape.dirty_high_percent,
                ..zc_cache::config::DirtyConfig::default()
            },
            ..ManagerConfig::new(geometry, shape.kind, 4096)
        };
        let volumes = [V, W].into_iter().zip(shape.domains);
        let volumes: Vec<_> =
            volumes.map(|(id, domain)| VolumeConfig { domain, ..volume(id, shape.volume_bytes) }).collect();
        let origins = volumes.iter().map(|v| (v.id, vec![0; usize_from_u64(v.size_bytes)])).collect();
        let kept = Kept { device, config, volumes, origins, kind: shape.kind };
        Self::start(kept, &OpenOptions::default())
    }

    /// The process dies: no region is distrusted, the open WEU is lost.
    pub(crate) fn restart_killed(self) -> Self {
        self.restart_killed_and(|_| ())
    }

    /// The process dies, and something happens before anything is loaded.
    pub(crate) fn restart_killed_and(self, meanwhile: impl FnOnce(&mut Self)) -> Self {
        let intent_session = Some(self.superblock.session);
        let options = OpenOptions { intent_session, ..OpenOptions::default() };
        let (mut world, mut turns) = Self::begun(self.kept(), &options, &[]);
        meanwhile(&mut world);
        turns.settle(&mut world);
        world
    }

    /// The power fails, and something happens before anything is loaded.
    pub(crate) fn restart_cut_off_and(self, meanwhile: impl FnOnce(&mut Self)) -> Self {
        let (mut world, mut turns) = Self::begun(self.kept(), &OpenOptions::default(), &[]);
        meanwhile(&mut world);
        turns.settle(&mut world);
        world
    }

    /// The process dies. The start finds these records of the intent log, and writes of the journal do not end.
    pub(crate) fn restart_killed_told(self, intents: &[Record]) -> Self {
        let intent_session = Some(self.superblock.session);
        let options = OpenOptions { intent_session, ..OpenOptions::default() };
        let (mut world, mut turns) = Self::begun(self.kept(), &options, intents);
        world.journal_hangs = true;
        turns.settle(&mut world);
        world
    }

    /// The process dies. The start believes the intent log, of which nothing was trimmed.
    pub(crate) fn restart_killed_with_intents(mut self) -> Self {
        let intents = core::mem::take(&mut self.intents);
        let intent_session = Some(self.superblock.session);
        let options = OpenOptions { intent_session, intents: &intents, ..OpenOptions::default() };
        let (mut world, mut turns) = Self::begun(self.kept(), &options, &intents);
        turns.settle(&mut world);
        world
    }

    /// Leaves a volume out of the next start.
    pub(crate) fn without(mut self, id: VolumeId) -> Self {
        self.volumes.retain(|volume| volume.id != id);
        self
    }

    fn kept(self) -> Kept {
        let Self { device, config, volumes, origins, kind, .. } = self;
        Kept { device, config, volumes, origins, kind }
    }

    fn start(kept: Kept, options: &OpenOptions<'_>) -> Self {
        let (mut world, mut turns) = Self::begun(kept, options, &[]);
        turns.settle(&mut world);
        world
    }

    /// A world whose manager has begun, and what it wants done first.
    fn begun(kept: Kept, options: &OpenOptions<'_>, intents: &[Record]) -> (Self, Turns) {
        let Kept { mut device, mut config, volumes, origins, kind } = kept;
        let options = &OpenOptions { intents, ..*options };
        let mut records = Vec::new();
        let opened = startup::open(&mut device, options, &mut |record| records.push(*record)).unwrap();
        // The superblock knows what checksums begin with.
        let geometry = opened.superblock.geometry.clone();
        config.geometry = geometry.clone();
        let mut manager = CacheManager::new(config.clone(), volumes.clone(), opened.start);
        records.iter().for_each(|record| manager.replay(record));
        intents.iter().for_each(|record| manager.replay_intent(record));
        let mut world = Self {
            manager,
            device,
            origins,
            replies: BTreeMap::new(),
            answered: Vec::new(),
            device_reads: Vec::new(),
            origin_reads: Vec::new(),
            kept: Vec::new(),
            origin_zeroed: Vec::new(),
            stopped: None,
            learned: Vec::new(),
            all_differs: false,
            weus_hang: false,
            journal_hangs: false,
            device_hangs: false,
            hung: Vec::new(),
            origin_flushes_hang: false,
            origin_flushes_fail: false,
            origin_writes_fail: false,
            distrust_ends: Ok(()),
            distrusts: 0,
            unrecorded: Vec::new(),
            removed: Vec::new(),
            intents: Vec::new(),
            kinds: Vec::new(),
            full: None,
            slow: None,
            flushless: None,
            origin_reads_hang: false,
            image_reads_hang: false,
            origin_writes_hang: false,
            hanging: Vec::new(),
            hanging_journal: Vec::new(),
            parts_vanish: false,
            parts: None,
            hashes: None,
            compressions: None,
            journal_end: 0,
            geometry,
            bufs: BTreeMap::new(),
            read_bufs: BTreeMap::new(),
            next_req: 0,
            now_ms: 0,
            kind,
            reducer: Reducer::new(),
            superblock: opened.superblock,
            volumes,
            config,
        };
        let mut turns = Turns::default();
        turns.begin(&mut world, 0);
        (world, turns)
    }

    /// Starts again with the same device and origins.
    pub(crate) fn restart(mut self, clean: bool) -> Self {
        if clean {
            let (next, image) = (self.manager.journal_next(), self.manager.index_image());
            startup::mark_clean(&mut self.device, &self.superblock, next, image).unwrap();
        }
        Self::start(self.kept(), &OpenOptions::default())
    }

    /// Starts again in order. Reads of the index image do not end.
    pub(crate) fn restart_reading(mut self) -> Self {
        let (next, image) = (self.manager.journal_next(), self.manager.index_image());
        startup::mark_clean(&mut self.device, &self.superblock, next, image).unwrap();
        let (mut world, mut turns) = Self::begun(self.kept(), &OpenOptions::default(), &[]);
        world.image_reads_hang = true;
        turns.settle(&mut world);
        world
    }

    /// The first of the reads of the index image that hang ends.
    pub(crate) fn end_an_image_read(&mut self) {
        let event = self.hanging.remove(0);
        self.event(event);
    }

    /// Reads of the index image end, also those that hung.
    pub(crate) fn end_image_reads(&mut self) {
        self.image_reads_hang = false;
        std::mem::take(&mut self.hanging).into_iter().for_each(|event| self.event(event));
    }

    /// The layout of the device.
    pub(crate) fn geometry(&self) -> &Geometry {
        &self.geometry
    }

    /// Starts again after a power cut. Writes of the journal do not end.
    pub(crate) fn restart_hanging(self) -> Self {
        let (mut world, mut turns) = Self::begun(self.kept(), &OpenOptions::default(), &[]);
        world.journal_hangs = true;
        turns.settle(&mut world);
        world
    }

    /// Starts again after a power cut, with other settings of a volume. Writes of the journal do not end.
    pub(crate) fn restart_hanging_with(mut self, volume: &VolumeConfig) -> Self {
        self.remember(volume);
        self.restart_hanging()
    }

    /// Settings that a restart takes.
    pub(crate) fn remember(&mut self, volume: &VolumeConfig) {
        let known = self.volumes.iter_mut().filter(|known| known.id == volume.id);
        known.for_each(|known| *known = volume.clone());
    }

    /// Starts again in order. Says whether what the cache holds for the volume is to be believed.
    pub(crate) fn restart_trusting(mut self, id: VolumeId, trusted: bool) -> Self {
        self.volumes.iter_mut().filter(|volume| volume.id == id).for_each(|volume| volume.trusted = trusted);
        self.restart(true)
    }

    /// Flushes of origins end, also those that hung.
    pub(crate) fn end_origin_flushes(&mut self) {
        self.origin_flushes_hang = false;
        std::mem::take(&mut self.hanging).into_iter().for_each(|event| self.event(event));
    }

    /// Reads of origins end, also those that hung.
    pub(crate) fn end_origin_reads(&mut self) {
        self.origin_reads_hang = false;
        std::mem::take(&mut self.hanging).into_iter().for_each(|event| self.event(event));
    }

    /// An origin without space gets some.
    fn discarded(&mut self, volume: VolumeId, len_bytes: u64) {
        if let Some((_, missing)) = self.full.filter(|(full, _)| *full == volume) {
            self.full = missing.checked_sub(len_bytes).filter(|left| *left > 0).map(|left| (volume, left));
        }
    }

    /// Writes of origins end, also those that hung.
    pub(crate) fn end_origin_writes(&mut self) {
        (self.origin_writes_hang, self.slow) = (false, None);
        std::mem::take(&mut self.hanging).into_iter().for_each(|event| self.event(event));
    }

    /// The origin becomes larger, with these bytes at its end, and the volume too.
    pub(crate) fn grow(&mut self, volume: VolumeId, more: &[u8]) {
        let origin = self.origins.get_mut(&volume).unwrap();
        origin.extend_from_slice(more);
        let size_bytes = origin.len() as u64;
        let config = self.volumes.iter().find(|v| v.id == volume).unwrap().clone();
        self.configure(VolumeConfig { size_bytes, ..config });
    }

    /// Writes of the journal end, also those that hung: these like this.
    pub(crate) fn end_journal_writes(&mut self, result: Result<(), ErrorKind>) {
        self.journal_hangs = false;
        for op in std::mem::take(&mut self.hanging_journal) {
            self.event(Event::DeviceDone { op, result });
        }
    }

    /// The oldest write of a piece of a unit that waits ends.
    pub(crate) fn end_part(&mut self) {
        let event = self.parts.as_mut().and_then(VecDeque::pop_front).expect("a piece is being written");
        self.event(event);
    }

    /// The last journal block that was written.
    pub(crate) fn journal_end(&self) -> u64 {
        self.journal_end
    }

    /// A journal block of this session behind the last one.
    pub(crate) fn append_journal(&mut self, records: Vec<Record>) {
        let sequence = JournalSeq(self.journal_end + 1);
        let session = self.superblock.session;
        let block = JournalBlock {
            sequence,
            session,
            region_map_sequence: 0,
            proved: sequence,
            growing: None,
            records,
        };
        let offset = usize_from_u64(self.geometry.journal_block_offset(sequence));
        let bytes = block.encode(self.geometry.salt);
        self.device.0[offset..offset + bytes.len()].copy_from_slice(&bytes);
    }

    /// Makes the block after `sequence` unreadable as one.
    pub(crate) fn damage_journal_block(&mut self, sequence: u64) {
        let offset = self.geometry.journal_block_offset(JournalSeq(sequence + 1));
        self.device.0[usize_from_u64(offset) + 100] ^= 1;
    }

    /// The bytes of the journal.
    pub(crate) fn journal_bytes(&mut self) -> &mut [u8] {
        let at = usize_from_u64(self.geometry.journal_offset);
        &mut self.device.0[at..at + usize_from_u64(self.geometry.journal_blocks) * 4096]
    }

    /// Makes a new cache over the old one, of the same layout.
    pub(crate) fn reformat(mut self) -> Self {
        let options = FormatOptions {
            geometry: self.geometry.clone(),
            uuid: [2; 16],
            fingerprint_kind: self.kind,
            label: String::new(),
            now_unix_s: 0,
        };
        startup::format(&mut self.device, &options).unwrap();
        Self::start(self.kept(), &OpenOptions::default())
    }

    pub(crate) fn submit(
        &mut self,
        volume: VolumeId,
        offset_bytes: u64,
        len_bytes: u64,
        kind: RequestKind,
    ) -> u64 {
        self.next_req += 1;
        let req = ReqId(self.next_req);
        if let RequestKind::Read { buf } = kind {
            self.read_bufs.insert(req.0, buf);
        }
        self.event(Event::Submit(Request { req, volume, offset_bytes, len_bytes, kind }));
        req.0
    }

    /// A read whose bytes must be the origin's.
    pub(crate) fn read(&mut self, volume: VolumeId, offset: u64, len: u64) -> Vec<u8> {
        let bytes = self.read_any(volume, offset, len);
        let at = usize_from_u64(offset);
        assert!(bytes == self.origins[&volume][at..at + bytes.len()], "wrong bytes at {offset}+{len}");
        bytes
    }

    pub(crate) fn read_any(&mut self, volume: VolumeId, offset: u64, len: u64) -> Vec<u8> {
        self.try_read(volume, offset, len).unwrap()
    }

    pub(crate) fn try_read(&mut self, volume: VolumeId, offset: u64, len: u64) -> Result<Vec<u8>, ErrorKind> {
        let req = self.submit_read(volume, offset, len);
        let (result, bytes) = self.replies.remove(&req).expect("a read is answered");
        result.map(|()| bytes.unwrap())
    }

    pub(crate) fn submit_read(&mut self, volume: VolumeId, offset: u64, len: u64) -> u64 {
        let buf = BufId(1000 + self.next_req);
        self.bufs.insert(buf, vec![0xaa; usize_from_u64(len)]);
        self.submit(volume, offset, len, RequestKind::Read { buf })
    }

    /// A read that was submitted before has been answered, with the origin's bytes.
    pub(crate) fn is_read(&mut self, req: u64, volume: VolumeId, offset: u64) {
        let (result, bytes) = self.replies.remove(&req).expect("a read is answered");
        result.unwrap();
        let (bytes, at) = (bytes.unwrap(), usize_from_u64(offset));
        assert!(bytes == self.origins[&volume][at..at + bytes.len()], "wrong bytes at {offset}");
    }

    /// Another origin takes the place of the volume's, under these settings.
    pub(crate) fn replace_origin(&mut self, volume: VolumeConfig, origin: Vec<u8>) {
        self.origins.insert(volume.id, origin);
        self.configure(volume);
    }

    /// New settings, which a restart keeps.
    pub(crate) fn configure(&mut self, volume: VolumeConfig) {
        self.remember(&volume);
        self.event(Event::Configure(Box::new(volume)));
    }

    pub(crate) fn submit_write(&mut self, volume: VolumeId, offset: u64, data: &[u8]) -> u64 {
        let buf = BufId(1000 + self.next_req);
        self.bufs.insert(buf, data.to_vec());
        self.submit(volume, offset, data.len() as u64, RequestKind::Write { buf, fua: false })
    }

    pub(crate) fn write(&mut self, volume: VolumeId, offset: u64, data: &[u8]) {
        let req = self.submit_write(volume, offset, data);
        self.replies.remove(&req).expect("a write is answered").0.unwrap();
    }

    pub(crate) fn tick(&mut self, ms: u64) {
        self.now_ms += ms;
        let now_ms = self.now_ms;
        self.event(Event::Tick { now_ms });
    }

    pub(crate) fn stop(&mut self) {
        self.event(Event::Stop);
        for _ in 0..100 {
            if self.stopped.is_some() {
                assert!(self.bufs.is_empty(), "buffers leaked: {:?}", self.bufs.keys());
                return;
            }
            self.tick(100);
        }
        panic!("the manager does not stop");
    }

    pub(crate) fn stat(&self, name: &str) -> u64 {
        self.manager.stats().named().into_iter().find(|(n, _)| *n == name).expect("a counter").1
    }

    /// Checkpoints and journal are gone.
    pub(crate) fn wipe_history(&mut self) {
        let (start, end) = (self.geometry.checkpoint[0], self.geometry.slots_offset);
        self.device.0[usize_from_u64(start)..usize_from_u64(end)].fill(0);
    }

    /// The headers of the checkpoints are gone.
    pub(crate) fn lose_checkpoints(&mut self) {
        for area in self.geometry.checkpoint {
            self.device.0[usize_from_u64(area)..][..BLOCK].fill(0);
        }
    }

    /// Slots of the device.
    pub(crate) fn slots(&self) -> u32 {
        self.geometry.slots
    }

    pub(crate) fn slot_bytes(&mut self, slot: WeuSlot) -> &mut [u8] {
        let at = usize_from_u64(self.geometry.slot_offset(slot));
        &mut self.device.0[at..at + usize_from_u32(self.geometry.weu_bytes)]
    }

    pub(crate) fn event(&mut self, event: Event) {
        Turns::default().handle(self, event);
    }

    /// The driver's answer if the device has not answered.
    fn abandon(&mut self, op: OpId) -> Option<Event> {
        let index = self.hung.iter().position(|action| action.device_op() == Some(op))?;
        let late = ErrorKind::TimedOut;
        Some(match self.hung.swap_remove(index) {
            Action::ReadExtents { .. } => Event::ExtentsRead { op, result: Err(late) },
            Action::ReadHeader { .. } => Event::HeaderRead { op, result: Err(late) },
            Action::ReadImage { .. } => Event::ImageRead { op, result: Err(late) },
            _ => Event::DeviceDone { op, result: Err(late) },
        })
    }

    fn slice(&self, s: BufSlice) -> &[u8] {
        let at = usize_from_u32(s.start_bytes);
        &self.bufs[&s.buf][at..at + usize_from_u32(s.len_bytes)]
    }

    fn slice_mut(&mut self, s: BufSlice) -> &mut [u8] {
        let at = usize_from_u32(s.start_bytes);
        &mut self.bufs.get_mut(&s.buf).expect("a buffer")[at..at + usize_from_u32(s.len_bytes)]
    }

    fn of_origin(&mut self, volume: VolumeId, offset: u64, len: u64) -> &mut [u8] {
        let origin = self.origins.get_mut(&volume).unwrap();
        let start = usize_from_u64(offset).min(origin.len());
        let end = usize_from_u64(offset + len).min(origin.len());
        &mut origin[start..end]
    }

    /// The bytes of a unit with its header.
    fn unit_bytes(&self, weu: BufId, data_bytes: u32, header: &WeuHeader) -> Vec<u8> {
        let mut bytes = self.bufs[&weu].clone();
        let count = u32::try_from(header.entries.len()).unwrap();
        let tail = bytes.len() - usize_from_u32(WeuHeader::encoded_bytes(count));
        assert!(usize_from_u32(data_bytes) <= tail, "extents and header overlap");
        header.encode_into(&mut bytes[tail..], self.geometry.salt);
        bytes
    }

    /// Where the end of an action goes.
    fn end_of(&self, action: &Action) -> End {
        match action {
            Action::ReadImage { .. } if self.image_reads_hang => End::Hangs,
            Action::OriginRead { .. } if self.origin_reads_hang => End::Hangs,
            Action::OriginWrite { .. } if self.origin_writes_hang => End::Hangs,
            Action::OriginWrite { volume, .. } if self.slow == Some(*volume) => End::Hangs,
            Action::OriginFlush { .. } if self.origin_flushes_hang => End::Hangs,
            Action::WriteJournal { op, .. } if self.journal_hangs => End::HangsInJournal(*op),
            Action::WritePart { .. } if self.parts.is_some() => End::WaitsWithParts,
            Action::Hash { .. } if self.hashes.is_some() => End::WaitsWithHashes,
            Action::Compress { .. } if self.compressions.is_some() => End::WaitsWithCompressions,
            _ => End::Told,
        }
    }

    /// Keeps the end of an action back, if it is to.
    fn keep(&mut self, end: End, event: Event) -> Option<Event> {
        match end {
            End::Told => return Some(event),
            End::Hangs => self.hanging.push(event),
            End::HangsInJournal(op) => self.hanging_journal.push(op),
            End::WaitsWithParts => self.parts.as_mut()?.push_back(event),
            End::WaitsWithHashes => self.hashes.as_mut()?.push(event),
            End::WaitsWithCompressions => self.compressions.as_mut()?.push(event),
        }
        None
    }

    /// Records the kept part of an extent, and compares the given fingerprint.
    fn note_kept(&mut self, part: &ExtentRead, raw: &[u8]) {
        if part.keep {
            let own = zc_reduce::fingerprint(self.kind, &DedupDomain::COMMON, raw);
            assert_eq!(part.expected.print.unwrap_or(own), own, "a fingerprint of other bytes");
            self.kept.push((part.proof.is_some(), part.expected.print.is_some()));
        }
    }

    /// Decodes an extent of the bytes of a piece, and copies what is wanted of it out.
    fn extract(&mut self, bytes: &[u8], start_bytes: u32, part: &ExtentRead) -> Result<(), ExtentError> {
        let at = usize_from_u32(part.expected.offset_bytes - start_bytes);
        let extent = ExtentHeader::verify(&bytes[at..], &part.expected)?;
        let mut raw = vec![0; usize_from_u32(part.expected.raw_bytes)];
        let stored = &bytes[at..][extent.payload.clone()];
        self.reducer.decompress(extent.codec, stored, &mut raw).unwrap();
        if let Some(proof) = &part.proof {
            let print = zc_reduce::fingerprint(proof.kind, &proof.domain, &raw);
            if !extent.is_content(&print) {
                return Err(ExtentError::Content);
            }
        }
        self.note_kept(part, &raw);
        let skip = usize_from_u32(part.skip_bytes);
        let take = &raw[skip..skip + usize_from_u32(part.dest.len_bytes)];
        self.slice_mut(part.dest).copy_from_slice(take);
        Ok(())
    }
}

impl Backend for World {
    fn manager(&mut self) -> &mut CacheManager {
        &mut self.manager
    }

    fn act(&mut self, action: Action) -> Option<Event> {
        self.kinds.push(core::mem::discriminant(&action));
        if self.device_hangs && is_for_device(&action) {
            self.hung.push(action);
            return None;
        }
        match action {
            Action::Abandon { op } => self.abandon(op),
            Action::WriteWeu { .. } if self.weus_hang => None,
            action => {
                let end = self.end_of(&action);
                let event = zc_drive::carry_out(self, action)?;
                self.keep(end, event)
            }
        }
    }

    fn reply(&mut self, req: ReqId, result: Ended) {
        let bytes = self.read_bufs.remove(&req.0).map(|buf| self.bufs[&buf].clone());
        self.replies.insert(req.0, (result, bytes));
        self.answered.push(req.0);
    }

    fn hash(&mut self, src: BufSlice, domain: &DedupDomain) -> Digest {
        let bytes = self.slice(src);
        if zc_reduce::is_zero(bytes) {
            Digest::Zero
        } else {
            Digest::Print(zc_reduce::fingerprint(self.kind, domain, bytes))
        }
    }

    fn compress(&mut self, src: BufSlice, codec: Codec, max_bytes: u32, out: BufId) -> Option<u32> {
        let bytes = self.slice(src).to_vec();
        let mut stored = vec![0; usize_from_u32(max_bytes)];
        let len = self.reducer.compress(codec, &bytes, &mut stored);
        self.bufs.insert(out, stored);
        len.map(|len| u32::try_from(len).unwrap())
    }

    fn compare(&mut self, left: BufSlice, right: BufSlice) -> bool {
        self.slice(left) == self.slice(right) && !self.all_differs
    }

    fn alloc(&mut self, buf: BufId, len_bytes: u32) {
        self.bufs.insert(buf, vec![0xee; usize_from_u32(len_bytes)]);
    }

    fn free(&mut self, buf: BufId) {
        self.bufs.remove(&buf).expect("a buffer is freed once");
    }

    fn copy(&mut self, from: BufSlice, to: BufSlice) {
        let bytes = self.slice(from).to_vec();
        self.slice_mut(to).copy_from_slice(&bytes);
    }

    fn zero(&mut self, dest: BufSlice) {
        self.slice_mut(dest).fill(0);
    }

    fn place(&mut self, weu: BufId, offset_bytes: u32, header: &ExtentHeader, payload: BufSlice) {
        let payload = self.slice(payload).to_vec();
        let place = &mut self.bufs.get_mut(&weu).unwrap()[usize_from_u32(offset_bytes)..];
        header.seal(offset_bytes, &payload, place, self.geometry.salt);
    }

    fn summarize(&mut self, weu: BufId, place: &SummaryPlace, summary: &Summary) {
        let at = usize_from_u32(place.page) * BLOCK;
        summary.encode_into(place, &mut self.bufs.get_mut(&weu).unwrap()[at..at + BLOCK]);
    }

    fn origin(&mut self, volume: VolumeId, op: OriginOp) -> Ended {
        match op {
            OriginOp::Read { offset_bytes, dest } => {
                self.origin_reads.push((offset_bytes, dest.len_bytes));
                let bytes = self.of_origin(volume, offset_bytes, u64::from(dest.len_bytes)).to_vec();
                let to = self.slice_mut(dest);
                to.fill(0);
                to[..bytes.len()].copy_from_slice(&bytes);
            }
            OriginOp::Write { .. } if self.full.is_some_and(|(full, _)| full == volume) => {
                return Err(ErrorKind::NoSpace);
            }
            OriginOp::Write { offset_bytes, src } => {
                let bytes = self.slice(src).to_vec();
                self.of_origin(volume, offset_bytes, bytes.len() as u64).copy_from_slice(&bytes);
                if self.origin_writes_fail {
                    return Err(ErrorKind::Io);
                }
            }
            OriginOp::Flush if self.origin_flushes_fail || self.flushless == Some(volume) => {
                return Err(ErrorKind::Io);
            }
            OriginOp::Flush => {}
            OriginOp::Zero { offset_bytes, len_bytes, no_hole } => {
                self.origin_zeroed.push((offset_bytes, len_bytes, no_hole));
                self.of_origin(volume, offset_bytes, len_bytes).fill(0);
                if !no_hole {
                    self.discarded(volume, len_bytes);
                }
            }
            OriginOp::Trim { offset_bytes, len_bytes } => {
                self.of_origin(volume, offset_bytes, len_bytes).fill(0);
                self.discarded(volume, len_bytes);
            }
        }
        Ok(())
    }

    fn recipe(
        &mut self,
        volume: VolumeId,
        first: ExtentNo,
        count: u32,
        domain: &DedupDomain,
    ) -> Vec<Option<Fingerprint>> {
        let (kind, extent) = (self.kind, u64::from(self.geometry.extent_bytes));
        let bytes = self.of_origin(volume, first.0 * extent, u64::from(count) * extent);
        bytes
            .chunks(usize_from_u64(extent))
            .map(|bytes| Some(zc_reduce::fingerprint(kind, domain, bytes)))
            .collect()
    }

    fn read_extents(&mut self, piece: &Piece) -> Result<PartResults, ErrorKind> {
        let start = usize_from_u32(piece.start_bytes);
        let end = start + usize_from_u32(piece.len_bytes);
        let bytes = match piece.source {
            Source::Memory(buf) => self.bufs[&buf][start..end].to_vec(),
            Source::Device => {
                self.device_reads.push((piece.slot, piece.len_bytes));
                self.slot_bytes(piece.slot)[start..end].to_vec()
            }
        };
        Ok(piece.parts.iter().map(|part| self.extract(&bytes, piece.start_bytes, part)).collect())
    }

    fn read_header(&mut self, slot: WeuSlot) -> Result<Option<Box<WeuHeader>>, ErrorKind> {
        let Geometry { weu_bytes: weu, extent_bytes: extent, salt, .. } = self.geometry;
        Ok(WeuHeader::decode(self.slot_bytes(slot), slot, weu, extent, salt).ok().map(Box::new))
    }

    fn read_image(&mut self, area: usize, first_block: u64, blocks: u32) -> Result<Vec<u8>, ErrorKind> {
        let mut bytes = vec![0; usize_from_u32(blocks) * BLOCK];
        self.device.read(self.geometry.image_block_offset(area, first_block), &mut bytes)?;
        Ok(bytes)
    }

    fn discard(&mut self, slot: WeuSlot) -> Ended {
        let at = usize_from_u64(self.geometry.slot_offset(slot));
        self.device.0[at..at + usize_from_u32(self.geometry.weu_bytes)].fill(0);
        Ok(())
    }

    fn write_unit(&mut self, slot: WeuSlot, weu: BufId, write: UnitWrite) -> Ended {
        match write {
            UnitWrite::Part { .. } if self.parts_vanish => {}
            UnitWrite::Part { start_bytes, len_bytes } => {
                let piece = usize_from_u32(start_bytes)..usize_from_u32(start_bytes + len_bytes);
                let bytes = self.bufs[&weu][piece.clone()].to_vec();
                self.slot_bytes(slot)[piece].copy_from_slice(&bytes);
            }
            UnitWrite::Whole { start_bytes, data_bytes, header } => {
                let bytes = self.unit_bytes(weu, data_bytes, &header);
                let done = usize_from_u32(start_bytes);
                self.slot_bytes(slot)[done..].copy_from_slice(&bytes[done..]);
            }
        }
        Ok(())
    }

    fn write_metadata(&mut self, metadata: Metadata) -> Ended {
        if let Metadata::Journal(block) = &metadata {
            self.journal_end = block.sequence.0;
        }
        let (offset_bytes, bytes) = metadata.encode(&self.geometry);
        self.device.write(offset_bytes, &bytes)
    }

    fn distrust(&mut self, _volume: Option<VolumeId>) -> Ended {
        self.distrusts += 1;
        self.distrust_ends
    }

    fn intent(&mut self, intent: Intent) {
        if let Intent::Append(record) = intent {
            self.intents.push(record);
        }
    }

    fn note(&mut self, note: Note) {
        match note {
            Note::Content { key, digest, stored } => self.learned.push((key, digest, stored)),
            Note::DistrustUnrecorded { volume } => self.unrecorded.push(volume),
            Note::Removed { volume, result } => self.removed.push((volume, result)),
            _ => {}
        }
    }

    fn stopped(&mut self, clean: bool) {
        self.stopped = Some(clean);
    }
}

/// Where the end of an action goes.
#[derive(Clone, Copy)]
enum End {
    /// To the manager.
    Told,
    /// To what hangs.
    Hangs,
    /// To the writes of the journal that hang.
    HangsInJournal(OpId),
    /// To the writes of pieces of units that wait.
    WaitsWithParts,
    /// To the hashes that wait.
    WaitsWithHashes,
    /// To the compressions that wait.
    WaitsWithCompressions,
}

/// Whether the cache device has a part in it.
fn is_for_device(action: &Action) -> bool {
    match action {
        Action::ReadExtents { source, .. } => *source == Source::Device,
        action => action.device_op().is_some(),
    }
}
