//! Time: clients wait for each other at the disk, hits are faster than misses, work in the background delays no client
//! long.

use super::profile::Profile;
use super::*;
use crate::Ratios;
use crate::cache::CacheSize;
use zc_trace::{Content, Request};

fn config(codec: &str) -> Config {
    let text = format!(
        "[cache]\npath = \"c\"\nstate_dir = \"s\"\nsize = \"64 MiB\"\nweu_size = \"256 KiB\"\nread_buffer = 0\n\
         prefetch_max = 0\ncompression = \"{codec}\"\n[[volume]]\nname = \"v\"\norigin = \"o\"\n"
    );
    Config::parse(&text, "test").unwrap()
}

/// Reads of 8 KiB, the same 64 MB twice, in an order of no order.
fn twice() -> Trace {
    let requests = (0..2 * 2048_u64).flat_map(|number| {
        let extent = number * 1201 % 2048 * 4;
        (0..2).map(move |half| {
            let print = u128::from(extent * 2 + half + 1);
            let content =
                Some(Content { fingerprint: print, lz4_bytes: Some(2000), zstd1_bytes: Some(1500) });
            let (time_ns, offset_bytes) = (number * 20_000_000, (extent * 2 + half) * 4096);
            Ok(Request::new(time_ns, Op::Read, offset_bytes, 4096).of(content))
        })
    });
    Trace::load(requests, Ratios::default()).unwrap()
}

fn timing(name: &str, arrival: Arrival) -> Timing {
    Timing { profile: Profile::named(name).unwrap(), arrival, memory_scale: 1.0, hits: HitReads::Pieces }
}

const fn closed(clients: u32) -> Arrival {
    Arrival::Closed { clients }
}

#[test]
fn clients_wait_for_each_other_at_the_disk() {
    let trace = twice();
    let one = bare(&trace, &timing("hdd", closed(1)), 0).unwrap();
    let four = bare(&trace, &timing("hdd", closed(4)), 0).unwrap();
    assert_eq!((one.requests, one.reads.count), (4096, 4096));
    assert!((four.iops() / one.iops() - 1.0).abs() < 0.1, "{} {}", one.iops(), four.iops());
    assert!((3.5..4.5).contains(&(four.reads.mean_us / one.reads.mean_us)));
    assert!(one.disk_busy > 0.99 && one.reads.p50_us <= one.reads.p99_us);
    let eight = bare(&trace, &timing("flaz-8d2s", closed(32)), 0).unwrap();
    assert!((5.0..10.0).contains(&(eight.iops() / one.iops())), "eight disks: {}", eight.iops());
}

#[test]
fn hits_take_the_ssd_and_decompression() {
    let trace = twice();
    let replay = Replay { size: CacheSize::Units(64 << 20), warm_requests: 2048, ..Replay::default() };
    let mut means = Vec::new();
    for codec in ["none", "lz4", "zlib"] {
        let (report, time) = run(&trace, &config(codec), replay, &timing("flaz-1d1s", closed(1))).unwrap();
        assert!(report.read_hit_ratio() > 0.98, "{}", report.read_hit_ratio());
        assert_eq!(time.requests, 2048);
        assert!((150.0..260.0).contains(&time.reads.p50_us), "{codec}: {}", time.reads.p50_us);
        means.push(time.reads.p50_us);
    }
    // Without compression an extent and its header take three pages in the place of two.
    let raw = on_ssd(&trace, &timing("flaz-1d1s", closed(1)), 2048).unwrap();
    assert!(raw.reads.count == 2048 && raw.reads.p50_us < means[1], "{} {means:?}", raw.reads.p50_us);
    assert!(means[1] < means[0] && means[1] < means[2], "{means:?}");
}

#[test]
fn misses_take_the_disk_and_little_more() {
    let trace = twice();
    let replay = Replay { size: CacheSize::Units(1 << 20), ..Replay::default() };
    let timing = timing("flaz-1d1s", closed(1));
    let (report, time) = run(&trace, &config("lz4"), replay, &timing).unwrap();
    assert!(report.read_hit_ratio() < 0.05);
    let without = bare(&trace, &timing, 0).unwrap();
    let overhead = time.reads.mean_us / without.reads.mean_us;
    assert!((0.9..1.03).contains(&overhead), "{overhead}");
}

#[test]
fn arrivals_keep_to_the_trace() {
    let trace = twice();
    let slow = bare(&trace, &timing("hdd", Arrival::Open { speed: 1.0 }), 0).unwrap();
    assert!((80.0..84.0).contains(&slow.seconds), "{}", slow.seconds);
    assert!(slow.disk_busy < 0.8);
    let fast = bare(&trace, &timing("hdd", Arrival::Open { speed: 10.0 }), 0).unwrap();
    assert!(fast.reads.mean_us > 20.0 * slow.reads.mean_us, "more than the disk can do queues up");
    assert_eq!(fast, bare(&trace, &timing("hdd", Arrival::Open { speed: 10.0 }), 0).unwrap());
}

/// Returns an offset for read `number`: successive ones are a few MiB apart.
const fn far(number: u64) -> u64 {
    (number * 37 % 128) << 19
}

/// Random writes of 8 KiB over 64 MiB, then reads of `len_bytes` there.
fn overwritten(len_bytes: u32) -> Trace {
    let at = |number: u64| number * 1201 % 8192 * 8192;
    let writes = (0..8192).map(move |number| Request::new(number, Op::Write, at(number), 8192));
    let reads = (0..128).map(move |number| Request::new(9000 + number, Op::Read, far(number), len_bytes));
    Trace::load(writes.chain(reads).map(Ok), Ratios::default()).unwrap()
}

#[test]
fn a_store_scatters_what_was_written_here_and_there() {
    let mean = |len_bytes: u32, warm: u64| {
        let timing = timing("nitro-cos", closed(1));
        bare(&overwritten(len_bytes), &timing, warm).unwrap().reads.mean_us
    };
    // Without the writes before, neighbours lie side by side.
    let fresh = |len_bytes: u32| {
        let reads = (0..128).map(|number| Ok(Request::new(number, Op::Read, far(number), len_bytes)));
        let trace = Trace::load(reads, Ratios::default()).unwrap();
        bare(&trace, &timing("nitro-cos", closed(1)), 0).unwrap().reads.mean_us
    };
    let (long, short, before) = (mean(512 << 10, 8192), mean(8192, 8192), fresh(512 << 10));
    assert!(long > before * 2.0, "64 places and not one: {long} and {before}");
    assert!(long > short * 2.0, "a short read is of one place: {long} and {short}");
}

#[test]
fn a_store_that_was_filled_before_is_read_as_it_is_shown() {
    let timing = timing("nitro-cos", closed(1));
    let content = |number: u64| Content {
        fingerprint: u128::from(number + 1),
        lz4_bytes: Some(4096),
        zstd1_bytes: Some(4096),
    };
    let mut store = Store::new(&timing, 32 << 20).unwrap();
    let volume = store.volume(16 << 20).unwrap();
    for first in (0..4096).step_by(128) {
        let blocks: Vec<Content> = (first..first + 128).map(content).collect();
        store.write(volume, first, &blocks).unwrap();
    }
    let snapshot = store.snapshot(volume).unwrap();
    // Every other 8 KiB of the volume is overwritten; the snapshot keeps the old contents.
    for first in (0..4096).step_by(4) {
        store.write(volume, first, &[content(10_000 + first), content(20_000 + first)]).unwrap();
    }
    let reads = (0..32).map(|number| Ok(Request::new(number, Op::Read, number << 19, 512 << 10)));
    let trace = Trace::load(reads, Ratios::default()).unwrap();
    let mut mean = |root: Root| {
        store.show(&[root]);
        bare_on(&mut store, &trace, &timing, 0).unwrap().reads.mean_us
    };
    let (new, old) = (mean(volume), mean(snapshot));
    assert!(new > old * 1.3, "{new} {old}");
}

#[test]
fn extents_that_begin_at_a_page_take_fewer_than_those_behind_their_headers() {
    let trace = twice();
    let replay = Replay { size: CacheSize::Units(64 << 20), warm_requests: 2048, ..Replay::default() };
    let [pieces, extents, aligned] = [HitReads::Pieces, HitReads::Extents, HitReads::Aligned].map(|hits| {
        let timing = Timing { hits, ..timing("flaz-1d1s", closed(1)) };
        run(&trace, &config("none"), replay, &timing).unwrap().1
    });
    assert_eq!((pieces.requests, extents.requests), (aligned.requests, aligned.requests));
    assert!(aligned.reads.mean_us < extents.reads.mean_us, "{aligned:?} {extents:?}");
    assert!(
        (aligned.ssd_busy / extents.ssd_busy) < 0.8,
        "two pages of three are read: {aligned:?} {extents:?}"
    );
}
