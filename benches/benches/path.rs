//! The whole way through the manager, without bytes: a hit, a miss with insertion, a duplicate. What is measured is
//! the manager's own work per 8 KiB request, with every operation answered at once.
#![expect(clippy::expect_used, reason = "benchmarks")]

use std::hint::black_box;

use criterion::{Criterion, criterion_group, criterion_main};
use zc_cache::CacheManager;
use zc_cache::config::{Admission, ManagerConfig, Mode, VolumeConfig};
use zc_cache::seam::{Action, Digest, Event, Request, RequestKind};
use zc_cache::startup::StartState;
use zc_core::{BufId, Codec, Fingerprint, FingerprintKind, JournalSeq, ReqId, VolumeId, WeuSeq};
use zc_format::{Geometry, PlanOptions};

const EXTENT: u64 = 8192;
const EXTENTS: u64 = 100_000;

/// Answers every action at once; every extent has contents of its own, or one of `contents`.
struct Driver {
    manager: CacheManager,
    actions: Vec<Action>,
    contents: u64,
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
    fn new(contents: u64) -> Self {
        let geometry = Geometry::plan(&PlanOptions {
            device_bytes: 1 << 30,
            weu_bytes: 2 << 20,
            extent_bytes: 8192,
            align_bytes: 0,
            journal_blocks: None,
        })
        .expect("a layout");
        let config = ManagerConfig {
            geometry,
            fingerprint: FingerprintKind::Blake3,
            file_index_entries: 4 * EXTENTS,
            fingerprint_index_entries: 4 * EXTENTS,
            generation_bits: 8,
            read_buffer_bytes: 0,
            staging_bytes: 1 << 20,
            insert_bytes_max: 32 << 20,
            weu_max_age_ms: 1000,
            journal_delay_ms: 50,
            prefetch_threshold_bytes: 1 << 30,
            prefetch_max_bytes: 0,
            regions_active_max: 128,
            discard: false,
        };
        let start = StartState {
            session: 2,
            first_session: 2,
            fresh: true,
            intact: true,
            mapping_trusted: true,
            active_regions: Vec::new(),
            weu_seq_next: WeuSeq(2 << 32),
            journal_next: JournalSeq(1),
            journal_start: JournalSeq(1),
            checkpoint_sequence: 1,
            checkpoint_area: 0,
            region_map_sequence: 1,
            region_map_copy: 0,
        };
        let volume = VolumeConfig {
            id: VolumeId(0),
            size_bytes: 1 << 40,
            region_bytes: 1 << 30,
            mode: Mode::WriteThrough,
            admission: Admission::Always,
            dedup: true,
            codec: Codec::Lz4,
            index_share_percent: 100,
            trusted: true,
        };
        let mut manager = CacheManager::new(config, vec![volume], start);
        let mut actions = Vec::new();
        manager.begin(0, &mut actions);
        let mut driver = Self { manager, actions: Vec::new(), contents, hashed: 0, next: 1, now_ms: 0 };
        driver.answer(actions);
        driver
    }

    fn read(&mut self, extent: u64) {
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
            len_bytes: EXTENT,
            kind: RequestKind::Read { buf: BufId(self.next) },
        }));
    }

    fn event(&mut self, event: Event) {
        let mut actions = core::mem::take(&mut self.actions);
        self.manager.handle(event, &mut actions);
        self.answer(actions);
    }

    fn answer(&mut self, mut actions: Vec<Action>) {
        while let Some(event) = actions.iter().position(answerable).map(|at| actions.remove(at)) {
            if let Some(event) = self.reply(event) {
                self.manager.handle(event, &mut actions);
            }
        }
        actions.clear();
        self.actions = actions;
    }

    fn reply(&mut self, action: Action) -> Option<Event> {
        Some(match action {
            Action::OriginRead { op, .. } | Action::OriginFlush { op, .. } => {
                Event::OriginDone { op, result: Ok(()) }
            }
            Action::ReadExtents { op, parts, .. } => {
                Event::ExtentsRead { op, result: Ok(parts.iter().map(|_| Ok(())).collect()) }
            }
            Action::Hash { op, .. } => {
                self.hashed += 1;
                Event::Hashed { op, digest: Digest::Print(print(self.hashed % self.contents)) }
            }
            Action::Compress { op, .. } => Event::Compressed { op, stored_bytes: Some(4096) },
            Action::WriteWeu { op, .. }
            | Action::WriteJournal { op, .. }
            | Action::WriteRegionMap { op, .. }
            | Action::WriteCheckpoint { op, .. }
            | Action::CommitCheckpoint { op, .. }
            | Action::FlushCache { op } => Event::DeviceDone { op, result: Ok(()) },
            Action::ReadHeader { op, .. } => Event::HeaderRead { op, result: Ok(None) },
            _ => return None,
        })
    }
}

fn answerable(action: &Action) -> bool {
    !matches!(
        action,
        Action::Reply { .. }
            | Action::Alloc { .. }
            | Action::Free { .. }
            | Action::Copy { .. }
            | Action::Zero { .. }
            | Action::Place { .. }
            | Action::Intent { .. }
            | Action::IntentTrim { .. }
            | Action::IntentReady
            | Action::Note(_)
            | Action::Stopped { .. }
    )
}

fn path(c: &mut Criterion) {
    let mut group = c.benchmark_group("manager");
    let mut warm = Driver::new(u64::MAX);
    (0..EXTENTS).for_each(|extent| warm.read(extent));
    let mut at = 0;
    group.bench_function("hit", |b| {
        b.iter(|| {
            at = (at + 7919) % EXTENTS;
            warm.read(at);
        });
    });
    let mut fresh = Driver::new(u64::MAX);
    let mut at = 0;
    group.bench_function("miss_and_insertion", |b| {
        b.iter(|| {
            at += 3;
            fresh.read(at);
        });
    });
    let mut alike = Driver::new(64);
    let mut at = 0;
    group.bench_function("miss_and_duplicate", |b| {
        b.iter(|| {
            at += 3;
            alike.read(at);
        });
    });
    black_box(alike.manager.stats().insert_duplicates);
    group.finish();
}

criterion_group!(benches, path);
criterion_main!(benches);
