//! Estimates from a sample against the whole trace.

#![expect(clippy::unwrap_used, reason = "a test")]

use zc_config::Config;
use zc_replay::sizing::{Reduction, estimate, simulate};
use zc_replay::{Ratios, Trace};
use zc_trace::{Content, Op, Request};

/// Reads and writes of 20,000 blocks, low ones more; contents of which many are at several places.
fn trace() -> Trace {
    let mut state = 7_u64;
    let mut random = move |below: u64| {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 33) % below
    };
    let all: Vec<Request> = (0..150_000_u64)
        .map(|number| {
            let block = random(20_000) * random(20_000) / 20_000;
            // Half of the addresses have the contents of others.
            let held = if block.is_multiple_of(2) { block % 2000 } else { block };
            let write = random(10) < 3;
            let print = u128::from(if write { held + 1 + random(2) * 50_000 } else { held + 1 });
            let size = 500 + u32::try_from(print * 31 % 3596).unwrap();
            let content = Content { fingerprint: print, lz4_bytes: Some(size), zstd1_bytes: None };
            let op = if write { Op::Write } else { Op::Read };
            let (time_ns, offset_bytes) = (number * 100_000, block * 4096);
            Request::new(time_ns, op, offset_bytes, 4096).of(content)
        })
        .collect();
    Trace::load(all.into_iter().map(Ok), Ratios::default()).unwrap()
}

#[test]
fn a_quarter_of_the_extents_tells_hits_to_three_points_and_writes_to_a_third() {
    let trace = trace();
    let text = "[cache]\npath = \"c\"\nstate_dir = \"s\"\nweu_size = \"256 KiB\"\nextent_size = \"4 KiB\"\n\
                [[volume]]\nname = \"v\"\norigin = \"o\"\n";
    let config = Config::parse(text, "test").unwrap();
    let sample = trace.sample(4096, 5000);
    assert!((0.2..0.3).contains(&sample.rate), "{}", sample.rate);
    for percent in [5, 20] {
        let unit_bytes = trace.footprint_bytes() * percent / 100;
        for reduction in [Reduction::Configured, Reduction::None] {
            let guess = estimate(&sample, &config, unit_bytes, reduction).unwrap();
            let (whole, report) = simulate(&trace, &config, unit_bytes, reduction).unwrap();
            println!("{percent} % {reduction:?}: {guess:?} {whole:?}");
            assert!((guess.read_hit_ratio - whole.read_hit_ratio).abs() < 0.03, "{guess:?} {whole:?}");
            let written = guess.written_bytes / whole.written_bytes;
            assert!((0.9..1.3).contains(&written), "{guess:?} {whole:?}");
            assert!((whole.written_bytes - report.ssd_bytes_written() as f64).abs() < 1.0, "as a run counts");
            assert!(guess.metadata_bytes > 0.0 && guess.metadata_bytes <= 1.5 * whole.metadata_bytes);
            assert_eq!(report.dedup_hits() > 0, reduction == Reduction::Configured);
        }
    }
}

#[test]
fn the_whole_as_a_sample_is_exact() {
    let trace = trace();
    let text = "[cache]\npath = \"c\"\nstate_dir = \"s\"\nweu_size = \"256 KiB\"\nextent_size = \"4 KiB\"\n\
                [[volume]]\nname = \"v\"\norigin = \"o\"\n";
    let config = Config::parse(text, "test").unwrap();
    let guess = estimate(&trace.sample(4096, 1 << 20), &config, 8 << 20, Reduction::Configured).unwrap();
    let (whole, _) = simulate(&trace, &config, 8 << 20, Reduction::Configured).unwrap();
    assert_eq!(guess, whole);
}
