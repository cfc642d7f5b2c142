//! The manager driven by traces: each read returns the last write, and the counters of insertions agree.

#![expect(clippy::unwrap_used, clippy::expect_used, reason = "a test")]

use proptest::prelude::*;
use zc_config::Config;
use zc_replay::cache::{CacheSize, Replay, Report, run};
use zc_replay::{Blocks, Ratios, Ssd, Trace};
use zc_trace::{Content, Op, Request};

/// Choices of a test.
#[derive(Debug, Clone, Copy)]
struct Choice {
    extent_kib: u32,
    dedup: bool,
    codec: &'static str,
    mode: &'static str,
    prefetch_kib: u32,
    policy: &'static str,
    packer: &'static str,
}

const POLICIES: [&str; 5] = ["lru", "fifo-reinsert", "s3-fifo", "shared-lru", "cost-benefit"];
const PACKERS: [&str; 3] = ["append", "first-fit", "best-fit"];
const PLAIN: Choice = Choice {
    extent_kib: 4,
    dedup: true,
    codec: "lz4",
    mode: "write-through",
    prefetch_kib: 0,
    policy: "lru",
    packer: "append",
};

fn config(choice: Choice) -> Config {
    let Choice { extent_kib, dedup, codec, mode, prefetch_kib, policy, packer } = choice;
    // Without read-ahead there are no streams either: read extents are inserted at once.
    let threshold_kib = if prefetch_kib == 0 { 1 << 20 } else { 64 };
    let text = format!(
        "[cache]\npath = \"c\"\nstate_dir = \"s\"\nsize = \"8 MiB\"\nweu_size = \"256 KiB\"\n\
         extent_size = \"{extent_kib} KiB\"\ndedup = {dedup}\ncompression = \"{codec}\"\n\
         prefetch_max = \"{prefetch_kib} KiB\"\nprefetch_threshold = \"{threshold_kib} KiB\"\n\
         policy = \"{policy}\"\npacker = \"{packer}\"\n\
         [[volume]]\nname = \"v\"\norigin = \"o\"\nmode = \"{mode}\"\n"
    );
    Config::parse(&text, "test").unwrap()
}

fn request(op: Op, block: u64, time_ms: u64, fingerprint: u128) -> Request {
    let lz4 = 200 + u32::try_from(fingerprint * 37 % 3900).unwrap();
    let content = Content { fingerprint, lz4_bytes: Some(lz4), zstd1_bytes: Some(lz4 / 2) };
    let content = (!matches!(op, Op::Flush | Op::Discard)).then_some(content);
    let len_bytes = if op == Op::Flush { 0 } else { 4096 };
    Request::new(time_ms * 1_000_000, op, block * 4096, len_bytes).of(content)
}

fn load(requests: &[Request]) -> Trace {
    Trace::load(requests.iter().map(|request| Ok(*request)), Ratios::default()).unwrap()
}

fn replay(requests: &[Request], choice: Choice, units: u64) -> Report {
    let size = CacheSize::Units(units * 256 * 1024);
    run(&load(requests), &config(choice), Replay { size, check: true, ..Replay::default() }, |_| {})
        .expect("replays")
}

/// Each insertion is counted once, and the device received the stored bytes.
fn check_books(report: &Report) -> Result<(), TestCaseError> {
    let stats = &report.stats;
    let known = stats.insert_stored + stats.insert_duplicates + stats.insert_zero;
    let left_out = stats.insert_skipped + stats.insert_stale + stats.insert_present;
    let dropped = stats.insert_once_only + stats.insert_dropped;
    prop_assert_eq!(stats.insert_offered, known + left_out + dropped);
    prop_assert_eq!(stats.insert_skipped, 0, "nothing is skipped where nothing takes time");
    prop_assert!(stats.stored_bytes <= stats.stored_raw_bytes);
    let extents = |count: u64| count * u64::from(report.geometry.extent_bytes);
    // Of a dirty extent only the written part is stored.
    let (least, most) = (extents(stats.insert_stored), extents(stats.insert_stored + stats.dirty_stored));
    prop_assert!((least..=most).contains(&stats.stored_raw_bytes));
    // Written, or in the open units; a block of 4 KiB for every flush of dirty data.
    let open = 2 * u64::from(report.geometry.weu_bytes);
    let places = (stats.insert_stored + stats.dirty_stored) * 400;
    let pages = (stats.weu_writes + stats.epochs_committed + stats.flushes + 1) * 16384;
    prop_assert!(stats.weu_bytes_written + open >= stats.stored_bytes);
    let padding = stats.weu_bytes_padding;
    prop_assert!(padding <= stats.weu_bytes_unused);
    prop_assert!(stats.weu_bytes_written <= stats.stored_bytes + padding + places + pages);
    prop_assert_eq!(stats.evictions_headerless, 0);
    prop_assert_eq!(stats.failed_hits, 0);
    Ok(())
}

fn choices() -> impl Strategy<Value = Choice> {
    let modes = prop::sample::select(vec!["write-through", "write-around", "write-back", "pass-through"]);
    let codecs = prop::sample::select(vec!["none", "lz4", "zstd"]);
    let sizes = prop::sample::select(vec![4_u32, 8, 32]);
    let ahead = prop::sample::select(vec![0_u32, 128]);
    let unit = (prop::sample::select(&POLICIES[..]), prop::sample::select(&PACKERS[..]));
    (sizes, any::<bool>(), codecs, modes, ahead, unit).prop_map(
        |(extent_kib, dedup, codec, mode, prefetch_kib, (policy, packer))| Choice {
            extent_kib,
            dedup,
            codec,
            mode,
            prefetch_kib,
            policy,
            packer,
        },
    )
}

/// Runs of reads and writes over a few hundred blocks, with contents out of a small pool.
fn traces() -> impl Strategy<Value = Vec<Request>> {
    let op =
        prop_oneof![5 => Just(Op::Read), 5 => Just(Op::Write), 1 => Just(Op::Flush), 1 => Just(Op::Discard)];
    let run = (op, 0..700_u64, 1..40_u64, 1..60_u128, 0..30_u64);
    proptest::collection::vec(run, 1..150).prop_map(|runs| {
        let mut time_ms = 0;
        let mut all = Vec::new();
        for (op, block, len, content, pause) in runs {
            time_ms += pause * pause;
            let len = if op == Op::Flush { 1 } else { len };
            all.extend((0..len).map(|at| request(op, block + at, time_ms, content + u128::from(at % 7))));
        }
        all
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn reads_return_what_was_written_last(requests in traces(), choice in choices(), units in 3..12_u64) {
        let report = replay(&requests, choice, units);
        check_books(&report)?;
    }
}

fn scan(op: Op, blocks: core::ops::Range<u64>, content: impl Fn(u64) -> u128) -> Vec<Request> {
    blocks.map(|block| request(op, block * 2, block * 20, content(block))).collect()
}

#[test]
fn what_fits_is_hit_the_second_time() {
    let mut all = scan(Op::Read, 0..100, u128::from);
    all.extend(scan(Op::Read, 0..100, u128::from));
    let report = replay(&all, PLAIN, 8);
    assert_eq!((report.read_extents(), report.read_hits()), (200, 100));
    assert_eq!((report.origin.reads.operations, report.stats.insert_stored), (100, 100));
    assert_eq!(report.footprint_bytes, 100 * 4096);
}

#[test]
fn what_does_not_fit_is_evicted() {
    let mut all = scan(Op::Read, 0..2000, u128::from);
    all.extend(scan(Op::Read, 0..100, u128::from));
    let report = replay(&all, Choice { codec: "none", ..PLAIN }, 8);
    assert_eq!(report.read_hits(), 0);
    assert!(report.stats.evictions >= 25, "{}", report.stats.evictions);
    assert!(report.ssd_bytes_written() >= 2000 * 4096);
}

#[test]
fn dedup_and_compression_make_room() {
    // Half of the contents come twice; all of them twice over, in a cache for less than half of them raw.
    let contents = |block: u64| u128::from(block / 2 * 1000 + 500);
    let mut all = scan(Op::Read, 0..1000, contents);
    all.extend(scan(Op::Read, 0..1000, contents));
    let replayed = |dedup: bool, codec: &'static str| replay(&all, Choice { dedup, codec, ..PLAIN }, 8);
    let (neither, compressed, shared, both) =
        (replayed(false, "none"), replayed(false, "lz4"), replayed(true, "none"), replayed(true, "lz4"));
    assert_eq!(neither.read_hits(), 0);
    assert!(both.read_hits() >= compressed.read_hits() && both.read_hits() >= shared.read_hits());
    assert_eq!(both.read_hits(), 1000);
    assert!((both.dedup_ratio() - 2.0).abs() < 0.01, "{}", both.dedup_ratio());
    assert!(both.compression_ratio() > 1.5, "{}", both.compression_ratio());
    assert!(both.ssd_bytes_written() < neither.ssd_bytes_written() / 4);
}

#[test]
fn write_back_writes_the_origin_later_and_less() {
    let all: Vec<Request> = (0..500).map(|n| request(Op::Write, n % 10 * 3, n, u128::from(n))).collect();
    let through = replay(&all, PLAIN, 8);
    let back = replay(&all, Choice { mode: "write-back", ..PLAIN }, 8);
    assert_eq!(through.origin.writes.operations, 500);
    assert!(back.origin.writes.operations < 100, "{:?}", back.origin);
}

#[test]
fn the_same_trace_gives_the_same_figures() {
    let mut all = scan(Op::Read, 0..900, |block| u128::from(block % 300));
    all.extend(scan(Op::Write, 100..700, |block| u128::from(block % 77)));
    let [first, second] = [(); 2].map(|()| replay(&all, PLAIN, 5));
    assert_eq!((first.stats, first.origin), (second.stats, second.origin));
}

#[test]
fn a_cache_that_cannot_be_is_an_error() {
    let trace = load(&scan(Op::Read, 0..10, u128::from));
    let mut settings = config(PLAIN);
    settings.cache.size = None;
    let replayed = |settings: &Config| {
        let replay = Replay { size: CacheSize::Configured, ..Replay::default() };
        run(&trace, settings, replay, |_| {}).unwrap_err().to_string()
    };
    assert!(replayed(&settings).contains("cache.size"));
    settings.cache.size = Some(zc_core::units::SizeOrShare::Bytes(1 << 16));
    assert!(replayed(&settings).contains("65536"));
    settings.cache.size = Some(zc_core::units::SizeOrShare::Bytes(1 << 30));
    settings.cache.max_ram = zc_config::MaxRam::Bytes(1);
    assert!(replayed(&settings).contains("max_ram"));
}

#[test]
fn recipes_turn_misses_into_hits() {
    // The second half of the volume has the contents of the first; both are read, a block at a time.
    let requests: Vec<Request> =
        (0..64).map(|block| request(Op::Read, block, block, u128::from(block % 32) + 1)).collect();
    let hits = |recipes: bool, dedup: bool| {
        let replay =
            Replay { size: CacheSize::Units(8 * 256 * 1024), check: true, recipes, ..Replay::default() };
        let report = run(&load(&requests), &config(Choice { dedup, ..PLAIN }), replay, |_| {}).unwrap();
        assert_eq!(report.stats.recipe_hits, report.read_hits());
        report.read_hits()
    };
    assert_eq!([hits(false, true), hits(true, false)], [0, 0]);
    // Those of the second half; the last of the first wait for more of their stream, and their recipes find nothing.
    assert!(hits(true, true) >= 16, "{}", hits(true, true));
}

#[test]
fn what_warms_the_cache_does_not_count() {
    let requests: Vec<Request> =
        (0..64).map(|block| request(Op::Read, block % 32, block, u128::from(block % 32) + 1)).collect();
    let ratio = |warm_requests: u64| {
        let replay = Replay { size: CacheSize::Units(8 * 256 * 1024), warm_requests, ..Replay::default() };
        run(&load(&requests), &config(PLAIN), replay, |_| {}).unwrap().read_hit_ratio()
    };
    assert_eq!([ratio(0), ratio(32)], [0.5, 1.0]);
}

#[test]
fn ratios_and_origin_traffic_are_those_after_warming() {
    // First 72 writes of 64 contents, of half their size; then eight new ones, each four times, which do not
    // compress.
    let content =
        |print: u128, lz4: u32| Content { fingerprint: print, lz4_bytes: Some(lz4), zstd1_bytes: None };
    let write = |block: u64, content: Content| {
        Request::new(block * 20_000_000, Op::Write, block * 2 * 4096, 4096).of(content)
    };
    let first = (0..72_u64).map(|block| write(block, content(u128::from(block % 64) + 1, 2000)));
    let second = (72..104_u64).map(|block| write(block, content(u128::from(block % 8) + 1000, 4096)));
    let trace = load(&first.chain(second).collect::<Vec<_>>());
    let replayed = |warm_requests: u64| {
        let replay = Replay { size: CacheSize::Units(8 * 256 * 1024), warm_requests, ..Replay::default() };
        run(&trace, &config(PLAIN), replay, |_| {}).unwrap()
    };
    let (all, later) = (replayed(0), replayed(72));
    assert_eq!([all.origin.writes.operations, later.origin.writes.operations], [104, 32]);
    assert_eq!([all.origin.writes.bytes, later.origin.writes.bytes], [104 * 4096, 32 * 4096]);
    assert_eq!([all.dedup_hits(), later.dedup_hits()], [32, 24]);
    assert!((all.dedup_ratio() - 104.0 / 72.0).abs() < 1e-9 && (later.dedup_ratio() - 4.0).abs() < 1e-9);
    assert!(all.compression_ratio() > 1.5, "{}", all.compression_ratio());
    assert!((later.compression_ratio() - 1.0).abs() < 1e-9, "{}", later.compression_ratio());
}

/// Scans longer than the cache alternate with rounds over frequently used contents, which recency alone would evict.
#[test]
fn policies_that_count_uses_keep_them_through_a_scan() {
    let busy = (0..40).flat_map(|_| 0..64_u64);
    let mut blocks: Vec<u64> = busy.clone().collect();
    for round in 0..8 {
        blocks.extend(1000 + round * 2000..1000 + (round + 1) * 2000);
        blocks.extend(busy.clone().take(128));
    }
    let reads = blocks.into_iter().zip(0_u64..);
    let reads: Vec<_> = reads.map(|(block, n)| request(Op::Read, block, n, u128::from(block) + 1)).collect();
    let reports = POLICIES.map(|policy| replay(&reads, Choice { policy, ..PLAIN }, 12));
    let [lru, fifo, s3, shared, emptiest] =
        reports.map(|report| (report.read_hits(), report.stats.evictions_spared));
    assert_eq!(shared, lru, "nothing is shared");
    assert_eq!((lru.1, emptiest.1), (0, 0));
    // 64 misses for each of eight rounds.
    assert!(fifo.0 >= lru.0 + 400 && s3.0 >= lru.0 + 400, "{lru:?} {fifo:?} {s3:?}");
    assert!(fifo.1 > 0 && s3.1 > 0);
}

#[test]
fn an_ssd_below_counts_what_the_manager_writes() {
    let rewrites = (0..6000).map(|n| request(Op::Write, n * 7 % 900, n, u128::from(n) + 1));
    let reads = (0..900).map(|block| request(Op::Read, block, 6000 + block, u128::from(block) + 100_000));
    let requests: Vec<Request> = rewrites.chain(reads).collect();
    let replayed = |ssd: Ssd, discard: bool| {
        let replay = Replay { size: CacheSize::Units(8 * 256 * 1024), ssd: Some(ssd), ..Replay::default() };
        let mut config = config(PLAIN);
        config.cache.discard = Some(discard);
        let report = run(&load(&requests), &config, replay, |_| {}).unwrap();
        (report.flash.unwrap(), report)
    };
    for ssd in [Ssd::default(), Ssd::LogBlocks(Blocks::default())] {
        let (flash, report) = replayed(ssd, false);
        assert_eq!(flash.programs, flash.host_writes + flash.copies);
        assert_eq!(flash.host_writes * 4096, report.ssd_bytes_written(), "{ssd:?}: no more, no less");
        assert_eq!(flash.host_reads * 4096, report.stats.device_read_bytes, "{ssd:?}");
        assert!(flash.erasures > 0 && flash.trims == 0, "{ssd:?}: {flash:?}");
        let (trimmed, _) = replayed(ssd, true);
        assert!(trimmed.trims > 0 && trimmed.copies <= flash.copies, "{ssd:?}: {trimmed:?} {flash:?}");
    }
    let small = Replay { size: CacheSize::Units(8 * 256 * 1024), ..Replay::default() };
    assert_eq!(run(&load(&requests), &config(PLAIN), small, |_| {}).unwrap().flash, None);
}
