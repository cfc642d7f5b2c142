//! A driver without bytes: every operation of the manager is answered at once, with made-up facts. For measuring the
//! manager's own work and memory.

use zc_cache::CacheManager;
use zc_cache::config::{DirtyConfig, ManagerConfig, VolumeConfig, WriteBackConfig};
use zc_cache::seam::{Digest, Event, Request, RequestKind};
use zc_cache::startup::StartState;
use zc_core::{BufId, BufSlice, Codec, DedupDomain, Fingerprint, FingerprintKind, Mode, ReqId, VolumeId};
use zc_drive::{Backend, Ended, Turns};
use zc_format::{Geometry, PlanOptions};

const EXTENT: u64 = 8192;
/// Longer than any run.
const NEVER_MS: u64 = 1 << 40;

/// Answers every action at once. `alike` extents hashed one after the other have the same contents.
#[derive(Debug)]
pub struct Driver {
    /// The manager.
    pub manager: CacheManager,
    turns: Turns,
    alike: u64,
    hashed: u64,
    next: u64,
    now_ms: u64,
}

fn print(number: u64) -> Fingerprint {
    let mut bytes = [0; 32];
    let mixed = number.wrapping_mul(0x9e37_79b9_7f4a_7c15);
    bytes[..8].copy_from_slice(&(mixed ^ (mixed >> 31)).to_le_bytes());
    Fingerprint(bytes)
}

impl Driver {
    /// Creates a cache of `device_bytes` with `entries` entries in each index, over one large volume.
    ///
    /// # Panics
    /// When the device is too small for a cache.
    #[must_use]
    pub fn new(device_bytes: u64, entries: u64, alike: u64) -> Self {
        let geometry = Geometry::plan(&PlanOptions {
            device_bytes,
            weu_bytes: 2 << 20,
            extent_bytes: 8192,
            align_bytes: 0,
            journal_blocks: None,
        })
        .unwrap_or_else(|error| panic!("no layout: {error}"));
        let config = ManagerConfig {
            read_buffer_bytes: 0,
            staging_bytes: 1 << 20,
            weu_max_age_ms: 1000,
            journal_delay_ms: 50,
            prefetch_threshold_bytes: 1 << 30,
            prefetch_max_bytes: 0,
            regions_active_max: 128,
            // Dirty data stay dirty.
            dirty: DirtyConfig { idle_ms: NEVER_MS, scrub_interval_ms: 0, ..DirtyConfig::default() },
            ..ManagerConfig::new(geometry, FingerprintKind::Blake3, entries)
        };
        let start = StartState::fresh();
        let volume = VolumeConfig::new(VolumeId(0), 1 << 40, 1 << 30);
        let manager = CacheManager::new(config, vec![volume], start);
        let mut driver = Self { manager, turns: Turns::default(), alike, hashed: 0, next: 1, now_ms: 0 };
        let mut turns = Turns::default();
        turns.begin(&mut driver, 0);
        turns.settle(&mut driver);
        driver
    }

    /// Reads one extent.
    pub fn read(&mut self, extent: u64) {
        self.read_run(extent, 1);
    }

    /// Reads `count` extents in one request.
    pub fn read_run(&mut self, extent: u64, count: u64) {
        self.next += 1;
        if self.next.is_multiple_of(256) {
            self.now_ms += 10;
            let now_ms = self.now_ms;
            self.event(Event::Tick { now_ms });
        }
        self.event(Event::Submit(Request {
            req: ReqId(self.next),
            volume: VolumeId(0),
            offset_bytes: extent * EXTENT,
            len_bytes: count * EXTENT,
            kind: RequestKind::Read { buf: BufId(self.next) },
        }));
    }

    /// Adds volumes in write-back with one flushed extent each, from number 1 on, without further requests.
    pub fn add_dirty_volumes(&mut self, count: u16) {
        for number in 1..=count {
            let id = VolumeId(number);
            let write_back = WriteBackConfig { max_dirty_age_ms: NEVER_MS, ..WriteBackConfig::default() };
            let volume =
                VolumeConfig { mode: Mode::WriteBack, write_back, ..VolumeConfig::new(id, 1 << 30, 1 << 30) };
            self.event(Event::Configure(Box::new(volume)));
            self.next += 2;
            let buf = BufId(self.next);
            for (req, len_bytes, kind) in [
                (self.next - 1, EXTENT, RequestKind::Write { buf, fua: false }),
                (self.next, 0, RequestKind::Flush),
            ] {
                let req = ReqId(req);
                self.event(Event::Submit(Request { req, volume: id, offset_bytes: 0, len_bytes, kind }));
            }
        }
    }

    fn event(&mut self, event: Event) {
        let mut turns = core::mem::take(&mut self.turns);
        turns.handle(self, event);
        self.turns = turns;
    }
}

impl Backend for Driver {
    fn manager(&mut self) -> &mut CacheManager {
        &mut self.manager
    }

    fn reply(&mut self, _req: ReqId, _result: Ended) {}

    fn hash(&mut self, _src: BufSlice, _domain: &DedupDomain) -> Digest {
        self.hashed += 1;
        Digest::Print(print(self.hashed / self.alike))
    }

    fn compress(&mut self, _src: BufSlice, _codec: Codec, _max_bytes: u32, _out: BufId) -> Option<u32> {
        Some(4096)
    }
}
