//! Estimated hit ratios at other cache sizes, compared with replays at these sizes.

#![expect(clippy::unwrap_used, reason = "a test")]

use zc_config::Config;
use zc_replay::cache::{CacheSize, Replay, Report, run};
use zc_replay::{Ratios, Trace};
use zc_trace::{Content, Op, Request};

const UNIT_BYTES: u64 = 256 << 10;
/// Units of the cache whose curve is compared.
const UNITS: u64 = 32;
/// Requests of a trace. Those before the last 40,000 only warm the caches: the curve forgets them in that time.
const REQUESTS: u64 = 160_000;
const WARM_REQUESTS: u64 = REQUESTS - 40_000;

/// A figure is off by no more than this, in points.
const POINTS_MAX: f64 = 5.0;

/// A generator of numbers (Knuth's constants), for draws that repeat.
struct Draws(u64);

impl Draws {
    fn below(&mut self, bound: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % bound
    }

    /// Low numbers much more often than high ones.
    fn skewed(&mut self, bound: u64) -> u64 {
        let upper = self.below(bound) + 1;
        let upper = self.below(upper) + 1;
        self.below(upper)
    }
}

fn request(op: Op, time: u64, block: u64, content: u64, lz4_bytes: u32) -> Request {
    let content = Content {
        fingerprint: u128::from(content) + 1,
        lz4_bytes: Some(lz4_bytes),
        zstd1_bytes: Some(lz4_bytes),
    };
    Request::new(time * 1_000_000, op, block * 4096, 4096).of(Some(content))
}

fn replay(trace: &Trace, units: u64, recipes: bool) -> Report {
    let text = "[cache]\npath = \"c\"\nstate_dir = \"s\"\nsize = \"8 MiB\"\nweu_size = \"256 KiB\"\n\
                extent_size = \"4 KiB\"\nprefetch_max = \"0 KiB\"\nprefetch_threshold = \"1 GiB\"\n\
                [[volume]]\nname = \"v\"\norigin = \"o\"\nmode = \"write-through\"\n";
    let config = Config::parse(text, "test").unwrap();
    let size = CacheSize::Units(units * UNIT_BYTES);
    let replay = Replay { size, recipes, warm_requests: WARM_REQUESTS, ..Replay::default() };
    run(trace, &config, replay, |_| {}).unwrap()
}

/// Compares all points of the curve with replays.
fn compare(name: &str, requests: &[Request], figures_min: usize) {
    let trace = Trace::load(requests.iter().map(|request| Ok(*request)), Ratios::default()).unwrap();
    let report = replay(&trace, UNITS, false);
    let own = report.read_hit_ratio();
    let (mut wrong, mut given) = (Vec::new(), 0);
    for (size, hit_ratio) in report.curve.points() {
        #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a few units")]
        let units = (UNITS as f64 * size) as u64;
        let real = if units == UNITS { own } else { replay(&trace, units, false).read_hit_ratio() };
        let bound = if units == UNITS { 1.0 } else { POINTS_MAX };
        let text = format!("{name}: {size} times {hit_ratio:.3?}, replayed {real:.3}");
        match hit_ratio {
            Ok(hit_ratio) if ((hit_ratio - real) * 100.0).abs() <= bound => given += 1,
            Err(_) => {}
            Ok(_) => wrong.push(text),
        }
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
    assert!(given >= figures_min, "{name}: {given} sizes have figures");
}

#[test]
fn reads_of_a_skewed_volume_that_compresses() {
    let mut draws = Draws(1);
    let requests: Vec<_> = (0..REQUESTS)
        .map(|time| {
            let block = draws.skewed(20_000);
            request(Op::Read, time, block, block, 1000 + u32::try_from(block * 37 % 1500).unwrap())
        })
        .collect();
    compare("skewed", &requests, 5);
}

#[test]
fn writes_among_reads() {
    let mut draws = Draws(2);
    let mut content: Vec<u64> = (0..20_000).collect();
    let requests: Vec<_> = (0..REQUESTS)
        .map(|time| {
            let writes = draws.below(10) < 3;
            let block = draws.skewed(20_000);
            let held = &mut content[usize::try_from(block).unwrap()];
            if writes {
                *held = 20_000 + time;
            }
            request(if writes { Op::Write } else { Op::Read }, time, block, *held, 2000)
        })
        .collect();
    compare("written", &requests, 5);
}

#[test]
fn clones_of_one_image() {
    let mut draws = Draws(3);
    // Sixteen clones of an image of 1,000 blocks; one block in eight is a clone's own.
    let requests: Vec<_> = (0..REQUESTS)
        .map(|time| {
            let (clone, block) = (draws.below(16), draws.skewed(1000));
            let address = clone * 1000 + block;
            let content = if block % 8 == 0 { address } else { 100_000 + block };
            request(Op::Read, time, address, content, 3000)
        })
        .collect();
    let trace = Trace::load(requests.iter().map(|request| Ok(*request)), Ratios::default()).unwrap();
    let curve = replay(&trace, UNITS, false).curve;
    let [quarter, half, _, twice, four] = curve.hit_ratios;
    // A smaller cache hits more than an address's own reads show, as its clones keep the content.
    assert_eq!(
        (quarter, half),
        (Err(zc_cache::NoFigure::SharedContent), Err(zc_cache::NoFigure::SharedContent))
    );
    for (figure, units) in [(twice, 2 * UNITS), (four, 4 * UNITS)] {
        let real = replay(&trace, units, false).read_hit_ratio();
        assert!(
            figure.is_ok_and(|figure| (figure - real).abs() * 100.0 < POINTS_MAX),
            "{figure:?} for {real:.3}"
        );
    }
}

#[test]
fn clones_of_one_image_on_a_store() {
    let mut draws = Draws(3);
    let requests: Vec<_> = (0..REQUESTS)
        .map(|time| {
            let (clone, block) = (draws.below(64), draws.skewed(8000));
            let address = clone * 8000 + block;
            let content = if block % 8 == 0 { address } else { 1_000_000 + block };
            request(Op::Read, time, address, content, 3000)
        })
        .collect();
    let trace = Trace::load(requests.iter().map(|request| Ok(*request)), Ratios::default()).unwrap();
    let report = replay(&trace, UNITS, true);
    for (size, hit_ratio) in report.curve.points() {
        if size == 1.0 {
            assert!(hit_ratio.is_ok_and(|hit_ratio| (hit_ratio - report.read_hit_ratio()).abs() < 0.02));
        } else {
            // Hits by fingerprint are of contents with another address.
            assert_eq!(hit_ratio, Err(zc_cache::NoFigure::SharedContent), "{size} times");
        }
    }
}

#[test]
fn a_scan_beside_what_is_used_again() {
    let mut draws = Draws(4);
    let requests: Vec<_> = (0..REQUESTS)
        .map(|time| {
            let block = if time % 4 == 0 { 50_000 + time } else { draws.skewed(12_000) };
            request(Op::Read, time, block, block, 2000)
        })
        .collect();
    compare("scan", &requests, 5);
}
