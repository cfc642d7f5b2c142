//! Hit ratios that others have published, reproduced where their traces are at hand.
//!
//! Set `ZC_TRACES` to a folder with `arc_OLTP.lis.zst`, `arc_P2.lis.zst` and `arc_P3.lis.zst` (Megiddo and Modha, FAST
//! 2003; to be had from the cache-trace collection of moka-rs). Without it, only the generated trace is checked.
#![expect(clippy::unwrap_used, clippy::print_stdout, reason = "a test; it says what it could not check")]

use std::path::PathBuf;

use zc_policy::Kind;
use zc_replay::plain;
use zc_trace::{Op, Options, Reader, Request};

/// Returns the trace of this name, if present; otherwise reports its absence.
fn trace(name: &str) -> Option<Reader> {
    let Some(folder) = std::env::var_os("ZC_TRACES") else {
        println!("NOT CHECKED: {name}; ZC_TRACES does not name a folder of traces");
        return None;
    };
    let path = PathBuf::from(folder).join(name);
    Some(
        Reader::open(&path, Options::default()).unwrap_or_else(|error| panic!("{}: {error}", path.display())),
    )
}

/// Hits in hundredths of a per cent.
fn hits(reader: Reader, kind: Kind, pages: usize) -> u64 {
    let outcome = plain::run(reader, kind, pages, 4096).unwrap();
    (outcome.read_hits * 20_000 / outcome.read_accesses).div_ceil(2)
}

/// Pages, and the ARC paper's hit ratios of LRU and ARC. Those of ARC are quoted at second hand.
const OLTP: [(usize, u64, u64); 5] =
    [(1000, 3283, 3893), (2000, 4247, 4608), (5000, 5365, 5525), (10_000, 6070, 6187), (15_000, 6463, 6540)];

#[test]
fn lru_on_oltp_is_published_to_the_digit() {
    for (pages, lru, _) in OLTP {
        let Some(reader) = trace("arc_OLTP.lis.zst") else { return };
        assert_eq!(hits(reader, Kind::Lru, pages), lru, "{pages} pages");
    }
}

#[test]
fn lru_on_two_disks_is_published_to_the_digit() {
    for (name, lru) in [("arc_P2.lis.zst", 1847), ("arc_P3.lis.zst", 357)] {
        let Some(reader) = trace(name) else { return };
        assert_eq!(hits(reader, Kind::Lru, 32_768), lru, "{name}");
    }
}

#[test]
fn arc_is_published_to_half_a_point() {
    let sizes = OLTP.iter().map(|(pages, _, arc)| ("arc_OLTP.lis.zst", *pages, *arc));
    let disks = [("arc_P2.lis.zst", 32_768, 2738), ("arc_P3.lis.zst", 32_768, 1712)];
    for (name, pages, arc) in sizes.chain(disks) {
        let Some(reader) = trace(name) else { return };
        let ours = hits(reader, Kind::Arc, pages);
        println!("ARC on {name} at {pages} pages: published {arc}, ours {ours}, in hundredths of a per cent");
        assert!(ours.abs_diff(arc) <= 50, "{name}: {ours}, published {arc}");
    }
}

/// A working set that drifts, and scans through it.
fn generated() -> Vec<Request> {
    let mut state = 1_u64;
    let mut random = move || {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        state >> 33
    };
    let access = |page: u64| Request::new(0, Op::Access, page * 4096, 4096);
    let mut pages = Vec::new();
    for round in 0..200 {
        for _ in 0..300 {
            // Squared, so that low pages are wanted more.
            let wanted = (random() % 1000) * (random() % 1000) / 1000;
            pages.push(wanted + round * 3);
        }
        pages.extend((0..50).map(|page| 100_000 + round * 50 + page));
    }
    pages.into_iter().map(access).collect()
}

#[test]
fn a_generated_trace_has_the_hits_it_always_had() {
    let all = generated();
    let found = Kind::ALL.map(|kind| {
        let outcome = plain::run(all.iter().map(|request| Ok(*request)), kind, 200, 4096).unwrap();
        (kind.name(), outcome.read_hits)
    });
    let wanted = [
        ("lru", 18_016),
        ("fifo", 16_805),
        ("clock", 18_858),
        ("2q", 23_576),
        ("arc", 24_514),
        ("lirs", 24_373),
        ("s3-fifo", 25_054),
        ("sieve", 23_245),
        ("w-tinylfu", 25_221),
        ("belady", 40_740),
    ];
    assert_eq!(found.as_slice(), wanted.as_slice());
}
