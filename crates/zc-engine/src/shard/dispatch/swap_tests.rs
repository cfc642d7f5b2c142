//! Exchange of the manager with queued requests, events and commands.
//!
//! The daemon's tests cover exchanges with the caches of its sessions.

use std::path::Path;
use std::sync::Arc;

use tempfile::TempDir;
use tokio::sync::oneshot;
use zc_cache::CacheManager;
use zc_cache::config::{ManagerConfig, VolumeConfig};
use zc_cache::seam::{Event, RequestKind};
use zc_cache::startup::{self, FormatOptions};
use zc_config::Config;
use zc_core::{BufId, FingerprintKind, JournalSeq, VolumeId};
use zc_format::{Geometry, PlanOptions, Superblock, VolumeTable};
use zc_io::{BlockFile, EventFd, OpenOptions};
use zc_origin::OriginOptions;
use zc_ublk::{Request, RequestOp};

use crate::clock::Clock;
use crate::front::settings::ShardSettings;
use crate::origin::Origin;
use crate::registry::Registry;
use crate::shard::buffers::slice;
use crate::shard::close::Closer;
use crate::shard::commands::{Command, Mailbox};
use crate::shard::device::Device;
use crate::shard::dispatch::{Shard, ShardParts};
use crate::shard::pause::Replacement;
use crate::shard::pending::Tag;
use crate::shard::volumes::Volume;
use crate::state::intent::IntentLog;
use crate::state::ledger::{Ledger, OnMedia};
use crate::state::media::FileMedia;
use crate::state::risk::RiskFile;
use crate::state::state_dir::StateDir;

const V: VolumeId = VolumeId(0);
const BLOCK: u64 = 4096;
const ORIGIN_BYTES: u64 = 16 << 20;
const CACHE_BYTES: u64 = 24 << 20;

/// Everything that a shard needs, over a new cache and a new origin in a folder of its own.
fn opened() -> (TempDir, ShardParts, Closer) {
    let dir = tempfile::tempdir().unwrap();
    let place = |name: &str| dir.path().join(name);
    let (cache, superblock, manager) = new_cache(&place("cache.img"));
    let state = Arc::new(StateDir::open(&place("state"), None, &superblock.uuid).unwrap());
    let media = OnMedia {
        cache: Arc::clone(&cache),
        journal: None,
        table: VolumeTable::default(),
        table_copy: 0,
        table_whole: true,
        stamps: Vec::new(),
        superblock: superblock.clone(),
    };
    let closer = Closer { ledger: Arc::new(Ledger::new(Arc::clone(&state), media)) };
    let text = format!("[[volume]]\nname = \"v\"\norigin = \"{}\"", place("v.img").display());
    let config =
        Config::parse(&format!("[cache]\npath = \"c\"\nreduce_threads = 1\n{text}\n"), "swap.toml").unwrap();
    let options =
        OriginOptions { write: true, direct: config.volumes[0].direct, create_len: Some(ORIGIN_BYTES) };
    let origin = Origin::open(&config.volumes[0].origin, options).unwrap();
    let event = EventFd::new().unwrap();
    let parts = ShardParts {
        manager,
        device: Device {
            file: cache,
            journal: None,
            geometry: superblock.geometry,
            fingerprint: superblock.fingerprint_kind,
        },
        volumes: vec![(
            V,
            Volume::new(
                "v".to_owned(),
                origin,
                volume(),
                (config.volumes[0].limits, config.volumes[0].reach),
            ),
        )],
        exports: Vec::new(),
        listeners: Vec::new(),
        intent: IntentLog::none(&place("intents")),
        risk: RiskFile::none(&place("risks")),
        state,
        settings: ShardSettings::new(&config).unwrap(),
        registry: Arc::new(Registry::default()),
        mailbox: Arc::new(Mailbox::new(event.waker())),
        event,
        clock: Clock::new(),
        restart_bytes_read: 0,
        cache_missing: None,
    };
    (dir, parts, closer)
}

fn volume() -> VolumeConfig {
    VolumeConfig::new(V, ORIGIN_BYTES, 1 << 20)
}

/// A cache whose first session has begun, and its manager.
fn new_cache(path: &Path) -> (Arc<BlockFile>, Superblock, CacheManager) {
    let options = OpenOptions { direct: false, write: true, create_len: Some(CACHE_BYTES) };
    let file = BlockFile::open(path, options).unwrap();
    let plan = PlanOptions {
        device_bytes: CACHE_BYTES,
        weu_bytes: 256 << 10,
        extent_bytes: 8192,
        align_bytes: 0,
        journal_blocks: None,
    };
    let options = FormatOptions {
        geometry: Geometry::plan(&plan).unwrap(),
        uuid: [7; 16],
        fingerprint_kind: FingerprintKind::Blake3,
        label: String::new(),
        now_unix_s: 1,
    };
    let mut media = FileMedia { cache: &file, journal: None };
    startup::format(&mut media, &options).unwrap();
    let options = startup::OpenOptions {
        boot_id: [0; 16],
        cold: false,
        session_floor: 0,
        intent_session: None,
        intents: &[],
        intent_journal: JournalSeq(0),
    };
    let opened = startup::open(&mut media, &options, &mut |_| ()).unwrap();
    let superblock = opened.superblock;
    let config = ManagerConfig::new(superblock.geometry.clone(), superblock.fingerprint_kind, 4096);
    (Arc::new(file), superblock, CacheManager::new(config, vec![volume()], opened.start))
}

/// An idle shard, and a replacement for its manager, with their folders.
fn two() -> ([TempDir; 2], Shard, Box<Replacement>) {
    let (first_dir, parts, closer) = opened();
    let (next_dir, next, _) = opened();
    let shard = Shard::new(parts, closer).unwrap();
    let ShardParts { manager, device, intent, risk, .. } = next;
    let volumes = shard.volumes.iter().map(|(_, volume)| volume.config.clone()).collect();
    let replacement = Replacement { manager, device, intent, risk, volumes, bytes_read: 0 };
    ([first_dir, next_dir], shard, Box::new(replacement))
}

/// A client's write of one block, queued for the manager.
fn write(shard: &mut Shard, block: u16) {
    let request = Request {
        op: RequestOp::Write,
        offset_bytes: u64::from(block) * BLOCK,
        len_bytes: BLOCK,
        fua: false,
    };
    let mut memory = shard.base.buffers.client_memory(V, 4096);
    memory.fill(block.to_le_bytes()[0]);
    let (clients, mut shared) = shard.clients();
    clients.begin_for_device(
        &mut shared,
        (Tag { device: 0, queue: 0, tag: block }, V),
        &request,
        Some(memory),
    );
}

fn end_of_turn(shard: &mut Shard) {
    shard.handle_events(&mut Vec::new());
    shard.pump_pause();
}

/// Buffers and offsets of the writes in line.
fn writes_in_line(shard: &Shard) -> Vec<(BufId, u64)> {
    let write = |event: &Event| match event {
        Event::Submit(request) => match request.kind {
            RequestKind::Write { buf, .. } => Some((buf, request.offset_bytes)),
            _ => None,
        },
        _ => None,
    };
    shard.base.events.iter().filter_map(write).collect()
}

fn pause(shard: &mut Shard) {
    let (reply, mut looked) = oneshot::channel();
    shard.mailbox.send(Command::Look { pause: true, reply });
    shard.take_commands();
    end_of_turn(shard);
    assert!(looked.try_recv().unwrap().is_ok(), "nothing is under way");
}

#[test]
fn requests_that_are_queued_when_the_manager_is_exchanged_keep_buffers_and_order() {
    let (_dirs, mut shard, replacement) = two();
    pause(&mut shard);
    write(&mut shard, 1);
    end_of_turn(&mut shard);
    assert_eq!(shard.pause.waiting(), 1);
    // In one turn, a client's bytes arrive before the wake-up for the command.
    write(&mut shard, 2);
    shard.mailbox.send(Command::Swap(replacement));
    shard.mailbox.send(Command::Resume);
    shard.take_commands();
    end_of_turn(&mut shard);
    assert!(!shard.pause.is_on() && shard.failure.is_none());
    let writes = writes_in_line(&shard);
    assert_eq!(writes.iter().map(|(_, offset)| *offset).collect::<Vec<_>>(), [BLOCK, 2 * BLOCK]);
    for (buf, offset) in writes {
        let byte = (offset / BLOCK).to_le_bytes()[0];
        assert!(shard.base.buffers.read(slice(buf, 0, 4096)).iter().all(|found| *found == byte));
    }
}

#[test]
fn events_for_the_old_manager_do_not_reach_the_next_one() {
    let (_dirs, mut shard, replacement) = two();
    pause(&mut shard);
    // The device of the old manager is lost in the turn in which the replacement is received.
    shard.mailbox.send(Command::LoseCache("the old device is gone".to_owned()));
    shard.mailbox.send(Command::Swap(replacement));
    shard.mailbox.send(Command::Resume);
    let (reply, mut stats) = oneshot::channel();
    shard.mailbox.send(Command::Stats(reply));
    shard.take_commands();
    assert!(stats.try_recv().is_err(), "commands behind the exchange wait for it");
    end_of_turn(&mut shard);
    // The loss must be recorded before the old manager is dropped.
    while shard.pause.has_replacement() {
        assert!(shard.failure.is_none());
        shard.take_state_changes();
        end_of_turn(&mut shard);
        std::thread::yield_now();
    }
    shard.handle_events(&mut Vec::new());
    assert!(shard.manager.is_healthy(), "the next manager has a device that works");
    assert!(stats.try_recv().unwrap().cache_healthy);
}

#[test]
fn an_exchange_waits_for_operations_of_the_old_manager_and_no_longer_than_a_pause() {
    let (_dirs, mut shard, replacement) = two();
    pause(&mut shard);
    shard.manager.begin(0, &mut Vec::new());
    shard.base.tell(Event::DeviceLost);
    let mut actions = Vec::new();
    shard.handle_events(&mut actions);
    assert!(!shard.manager.is_idle(), "its record is under way");
    let now_ms = shard.base.clock.now_ms();
    shard.pause.keep_replacement(replacement, now_ms);
    shard.pump_swap(false);
    assert!(shard.pause.has_replacement() && shard.failure.is_none());
    assert!(!shard.pause.is_replacement_late(now_ms + crate::limits::PAUSE_MAX_MS));
    assert!(shard.pause.is_replacement_late(now_ms + crate::limits::PAUSE_MAX_MS + 1));
}
