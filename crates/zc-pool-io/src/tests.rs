//! Pools on files: written data is present after closing and reopening.

use std::path::{Path, PathBuf};
use std::sync::mpsc::channel;

use bytes::Bytes;
use serde_json::json;
use zc_core::{Codec, ErrorKind};
use zc_io::{AlignedBuf, BlockFile, OpenOptions};
use zc_pool::{Answer, RequestKind};
use zc_store::{CatalogChange, CatalogOp, FLAG_DEDUP, RootId, Space, Superblock, limits};

use crate::{OpenError, OpenPool, Order, OrderError, PoolState, Settings, VolumeCodec, VolumeOptions};

const VOLUME: RootId = RootId(3);
const CHUNK: usize = 8192;

fn make(dir: &Path) -> PathBuf {
    let path = dir.join("pool");
    let len = u64::from(limits::SEGMENTS_MIN + 20) * u64::from(limits::SEGMENT_BYTES_DEFAULT) + (1 << 20);
    let options = OpenOptions { direct: false, write: true, create_len: Some(len) };
    let file = BlockFile::open(&path, options).unwrap();
    let superblock = Superblock::format([7; 16], len, limits::SEGMENT_BYTES_DEFAULT, 1).unwrap();
    for copy in 0..2 {
        let block = AlignedBuf::from(&superblock.encode(copy)[..]);
        file.write_blocking(Superblock::offset_bytes(copy), &block).unwrap();
    }
    path
}

fn create() -> RequestKind {
    RequestKind::Catalog(CatalogChange {
        op: CatalogOp::Create,
        id: VOLUME,
        source: VOLUME,
        codec: Codec::Lz4,
        chunk_shift: 13,
        size_chunks: 1 << 20,
        flags: FLAG_DEDUP,
        name: "disk".to_owned(),
    })
}

fn write(at: u64, byte: u8) -> RequestKind {
    let data = Bytes::from(vec![byte; CHUNK]);
    RequestKind::Write { root: VOLUME, offset_bytes: at, data, known: Vec::new() }
}

fn first_byte(pool: &OpenPool, at: u64) -> u8 {
    let read = RequestKind::Read { root: VOLUME, offset_bytes: at, len_bytes: 512 };
    match pool.client().ask(read).unwrap() {
        Answer::Bytes(pieces) => pieces[0][0],
        other => panic!("{other:?}"),
    }
}

#[test]
fn what_was_written_is_there_after_a_close_with_and_without_workers() {
    let dir = tempfile::tempdir().unwrap();
    let path = make(dir.path());
    let settings = |workers| Settings { workers, ..Settings::default() };
    let pool = OpenPool::open(&path, settings(0)).unwrap();
    pool.client().ask(create()).unwrap();
    for chunk in 0..100_u8 {
        pool.client().ask(write(u64::from(chunk) << 20, chunk + 1)).unwrap();
    }
    pool.close().unwrap();
    let pool = OpenPool::open(&path, settings(2)).unwrap();
    let (sender, answers) = channel();
    for chunk in 100..200_u8 {
        let sender = sender.clone();
        pool.client().submit(write(u64::from(chunk) << 20, chunk + 1), move |answer| {
            sender.send(answer.map(|_| ())).unwrap();
        });
    }
    assert!(answers.iter().take(100).all(|answer| answer.is_ok()));
    for chunk in 0..200_u8 {
        assert_eq!(first_byte(&pool, u64::from(chunk) << 20), chunk + 1);
    }
    pool.close().unwrap();
}

#[test]
fn the_count_of_changes_is_the_same_after_a_close_unless_something_changed() {
    let dir = tempfile::tempdir().unwrap();
    let path = make(dir.path());
    let pool = OpenPool::open(&path, Settings::default()).unwrap();
    pool.client().ask(create()).unwrap();
    pool.client().ask(write(0, 1)).unwrap();
    let changes = |pool: &OpenPool| pool.client().find("disk").unwrap().1.changes;
    let before = changes(&pool);
    assert!(before > 0);
    let snapshot = CatalogChange {
        op: CatalogOp::Snapshot,
        id: RootId(4),
        source: VOLUME,
        codec: Codec::Raw,
        chunk_shift: 0,
        size_chunks: 0,
        flags: 0,
        name: "disk@one".to_owned(),
    };
    pool.client().ask(RequestKind::Catalog(snapshot.clone())).unwrap();
    pool.close().unwrap();
    let pool = OpenPool::open(&path, Settings::default()).unwrap();
    assert_eq!(changes(&pool), before, "a snapshot is no change");
    let back = CatalogChange { op: CatalogOp::Rollback, id: VOLUME, source: RootId(4), ..snapshot.clone() };
    pool.client().ask(RequestKind::Catalog(back)).unwrap();
    let rolled_back = changes(&pool);
    assert!(rolled_back > before);
    pool.client().ask(RequestKind::Zero { root: VOLUME, offset_bytes: 0, len_bytes: 1 << 20 }).unwrap();
    assert!(changes(&pool) > rolled_back);
    let after = changes(&pool);
    drop(pool);
    let pool = OpenPool::open(&path, Settings::default()).unwrap();
    assert_eq!(changes(&pool), after);
    let delete = CatalogChange { op: CatalogOp::Delete, id: VOLUME, source: VOLUME, ..snapshot };
    pool.client().ask(RequestKind::Catalog(delete)).unwrap();
    pool.client().ask(create()).unwrap();
    pool.client().ask(write(0, 1)).unwrap();
    assert_ne!(changes(&pool), before, "another volume with the number of one that is gone");
}

#[test]
fn a_pool_has_one_opener_and_answers_nothing_after_its_end() {
    let dir = tempfile::tempdir().unwrap();
    let path = make(dir.path());
    let pool = OpenPool::open(&path, Settings::default()).unwrap();
    assert!(OpenPool::open(&path, Settings::default()).unwrap_err().is_in_use());
    let client = pool.client().clone();
    pool.close().unwrap();
    assert_eq!(client.ask(RequestKind::Flush).unwrap_err().kind(), ErrorKind::Shutdown);
    assert_eq!(client.root(VOLUME), None);
}

#[test]
fn a_pool_that_is_looked_at_shows_everything_and_changes_nothing_on_the_device() {
    let dir = tempfile::tempdir().unwrap();
    let path = make(dir.path());
    let pool = OpenPool::open(&path, Settings::default()).unwrap();
    pool.client().ask(create()).unwrap();
    pool.client().ask(write(0, 1)).unwrap();
    pool.client().ask(RequestKind::Flush).unwrap();
    // State after a crash: a log without a later checkpoint.
    let crashed = dir.path().join("crashed");
    std::fs::copy(&path, &crashed).unwrap();
    drop(pool);
    let before = std::fs::read(&crashed).unwrap();
    for _ in 0..2 {
        let settings = Settings { look_only: true, ..Settings::default() };
        let pool = OpenPool::open(&crashed, settings).unwrap();
        assert_eq!(first_byte(&pool, 0), 1);
        pool.client().ask(write(0, 2)).unwrap();
        assert_eq!(first_byte(&pool, 0), 2, "in memory");
        pool.close().unwrap();
        assert!(std::fs::read(&crashed).unwrap() == before, "the device has changed");
    }
}

/// Returns a pool as left by a crash after ten writes, each flushed, and the positions of its log batches, by number.
fn crashed(dir: &Path) -> (PathBuf, Vec<usize>) {
    let path = make(dir);
    let pool = OpenPool::open(&path, Settings::default()).unwrap();
    pool.client().ask(create()).unwrap();
    for chunk in 0..10_u8 {
        pool.client().ask(write(u64::from(chunk) << 20, chunk + 1)).unwrap();
        pool.client().ask(RequestKind::Flush).unwrap();
    }
    let copy = dir.join("crashed");
    std::fs::copy(&path, &copy).unwrap();
    drop(pool);
    let bytes = std::fs::read(&copy).unwrap();
    let mut batches: Vec<(u64, usize)> = bytes
        .chunks_exact(4096)
        .enumerate()
        .filter(|(_, block)| block[4..8] == *b"zcSb")
        .map(|(number, block)| (u64::from_le_bytes(*block[8..].first_chunk().unwrap()), number * 4096))
        .collect();
    batches.sort_unstable();
    (copy, batches.into_iter().map(|(_, place)| place).collect())
}

fn spoil(path: &Path, place: usize) {
    let file = std::fs::File::options().write(true).open(path).unwrap();
    std::os::unix::fs::FileExt::write_all_at(&file, &[0xee; 512], place as u64).unwrap();
}

#[test]
fn a_flushed_write_that_the_device_lost_closes_the_pool_until_the_loss_is_accepted() {
    let dir = tempfile::tempdir().unwrap();
    let (path, batches) = crashed(dir.path());
    spoil(&path, batches[batches.len() - 4]);
    let accepting = Settings {
        store: zc_store::Config { accept_loss: true, ..zc_store::Config::default() },
        ..Settings::default()
    };
    let error = OpenPool::open(&path, Settings::default()).unwrap_err();
    assert!(error.is_log_lost(), "{error}");
    let looked = OpenPool::open(&path, Settings { look_only: true, ..accepting.clone() }).unwrap();
    assert_eq!((first_byte(&looked, 0), first_byte(&looked, 9 << 20)), (1, 0), "an earlier state");
    drop(looked);
    assert!(OpenPool::open(&path, Settings::default()).unwrap_err().is_log_lost(), "a look accepts nothing");
    OpenPool::open(&path, accepting.clone()).unwrap().close().unwrap();
    for settings in [Settings::default(), accepting] {
        let pool = OpenPool::open(&path, settings).unwrap();
        assert_eq!((first_byte(&pool, 0), first_byte(&pool, 9 << 20)), (1, 0));
        assert_eq!(pool.client().losses(), Some(1), "it is counted once");
    }
}

#[test]
fn a_torn_write_at_the_end_of_the_log_does_not_count_and_is_told() {
    let dir = tempfile::tempdir().unwrap();
    let (path, batches) = crashed(dir.path());
    let last = batches[batches.len() - 1];
    for (place, torn) in [(last + 4096, true), (last, false)] {
        let copy = dir.path().join("copy");
        std::fs::copy(&path, &copy).unwrap();
        spoil(&copy, place);
        let pool = OpenPool::open(&copy, Settings::default()).unwrap();
        assert_eq!((first_byte(&pool, 8 << 20), first_byte(&pool, 9 << 20)), (9, 0));
        assert_eq!(pool.client().space().1.torn, torn, "a header that is not there tells nothing");
    }
    let pool = OpenPool::open(&path, Settings::default()).unwrap();
    assert_eq!(first_byte(&pool, 9 << 20), 10);
    assert!(!pool.client().space().1.torn);
}

#[test]
fn what_is_no_pool_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("other");
    std::fs::write(&path, vec![9; 1 << 20]).unwrap();
    let error = OpenPool::open(&path, Settings::default()).unwrap_err();
    assert!(matches!(error, OpenError::Refused { .. }), "{error}");
    assert!(matches!(OpenPool::open(&dir.path().join("none"), Settings::default()), Err(OpenError::Io(_))));
}

#[test]
fn a_pool_tells_when_it_is_low_full_or_failed() {
    let space = |free_bytes, referred_bytes| Space {
        total_bytes: 1000,
        free_bytes,
        referred_bytes,
        reserve_bytes: 100,
        ..Space::default()
    };
    for (free_bytes, referred_bytes, state) in [
        (500, 400, PoolState::Ok),
        (150, 800, PoolState::Ok),
        (100, 750, PoolState::Ok),
        (149, 751, PoolState::Low),
        (100, 751, PoolState::Full),
    ] {
        assert_eq!(PoolState::of(&space(free_bytes, referred_bytes), false, 0), state, "{free_bytes}");
    }
    assert_eq!(PoolState::of(&space(500, 500), true, 1), PoolState::Failed);
    assert_eq!(PoolState::of(&space(500, 500), false, 1), PoolState::Dropped);
}

#[test]
fn a_volume_is_made_with_the_options_that_were_given() {
    let dir = tempfile::tempdir().unwrap();
    let pool = OpenPool::open(&make(dir.path()), Settings::default()).unwrap();
    let order =
        |name: &str, options| Order::CreateVolume { name: name.to_owned(), size_bytes: 1 << 20, options };
    let large = VolumeOptions { chunk_bytes: 128 << 10, codec: VolumeCodec::Zstd, dedup: false };
    order("large", large).carry_out(pool.client()).unwrap();
    order("plain", VolumeOptions::default()).carry_out(pool.client()).unwrap();
    for bytes in [0, 2048, 12_288, 256 << 10] {
        let odd = order("odd", VolumeOptions { chunk_bytes: bytes, ..large });
        assert!(matches!(odd.carry_out(pool.client()), Err(OrderError::Chunk { .. })), "{bytes}");
    }
    let answer = Order::Volumes {}.carry_out(pool.client()).unwrap();
    let of = |name: &str| {
        answer["volumes"].as_array().unwrap().iter().find(|found| found["name"] == name).unwrap()
    };
    let options =
        |name: &str| [&of(name)["chunk_bytes"], &of(name)["codec"], &of(name)["dedup"]].map(Clone::clone);
    assert_eq!(options("large"), [json!(131_072), json!("zstd"), json!(false)]);
    assert_eq!(options("plain"), [json!(8192), json!("lz4"), json!(true)]);
    let (root, _) = pool.client().find("large").unwrap();
    let write =
        RequestKind::Write { root, offset_bytes: 0, data: vec![7; 128 << 10].into(), known: Vec::new() };
    pool.client().ask(write).unwrap();
    let stored = pool.client().space().1;
    assert!(stored.chunks_stored == 1 && stored.chunk_bytes_stored < 1000, "{stored:?}");
}
