//! Compression attempts of streams: incompressible, compressible, alternating, mixed, concurrent, and reported late.

use std::collections::VecDeque;

use super::*;

const EXTENT: u32 = 8 << 10;
/// Extents of 1 MiB.
const MIB: u64 = 128;

/// Runs extents through the filter, with each report delayed by `lag` decisions; returns the attempts.
fn run(
    filter: &mut CompressionFilter,
    volume: u16,
    extents: core::ops::Range<u64>,
    lag: u64,
    compresses: impl Fn(u64) -> bool,
) -> Vec<u64> {
    let volume = VolumeId(volume);
    let (mut tried, mut flying) = (Vec::new(), VecDeque::new());
    let report = |filter: &mut CompressionFilter, extent: u64| {
        filter.report(volume, ExtentNo(extent), EXTENT, if compresses(extent) { EXTENT / 2 } else { EXTENT });
    };
    for extent in extents {
        if filter.should_try(volume, ExtentNo(extent), EXTENT) {
            tried.push(extent);
            flying.push_back(extent);
        }
        while let Some(due) = flying.pop_front_if(|due| *due + lag <= extent) {
            report(filter, due);
        }
    }
    flying.into_iter().for_each(|extent| report(filter, extent));
    tried
}

#[test]
fn at_most_2_percent_of_an_incompressible_stream_are_tried_after_its_first_mib() {
    for lag in [0, 3, 7, 30] {
        let tried = run(&mut CompressionFilter::default(), 1, 0..100 * MIB, lag, |_| false);
        let later = tried.iter().filter(|extent| **extent >= MIB).count();
        assert!(later * 100 <= 99 * 128 * 2, "{later} tried with a lag of {lag}");
        for first in 1..100 {
            let window = first * MIB..(first + 1) * MIB;
            assert!(tried.iter().any(|extent| window.contains(extent)), "no probe in MiB {first}");
        }
    }
}

#[test]
fn a_stream_whose_reports_come_very_late_is_filtered_all_the_same() {
    let tried = run(&mut CompressionFilter::default(), 1, 0..200 * MIB, 1000, |_| false);
    let later = tried.iter().filter(|extent| **extent >= 150 * MIB).count();
    assert!(later * 100 <= 50 * 128 * 2, "{later} of {} tried", 50 * 128);
}

#[test]
fn compressible_data_is_always_tried() {
    let tried = run(&mut CompressionFilter::default(), 1, 0..10 * MIB, 4, |_| true);
    assert_eq!(tried.len(), 1280);
}

#[test]
fn compression_resumes_within_1_mib() {
    for turn in [500, 1000, 1001, 5000] {
        let tried = run(&mut CompressionFilter::default(), 1, 0..turn + 10 * MIB, 2, |extent| extent >= turn);
        let skipped = (turn + MIB..turn + 10 * MIB).filter(|extent| !tried.contains(extent)).count();
        assert_eq!(skipped, 0, "turned at {turn}");
    }
}

#[test]
fn large_extents_are_probed_once_per_mib() {
    let mut filter = CompressionFilter::default();
    let large = 128 << 10;
    let mut tried = Vec::new();
    for extent in 0..800 {
        if filter.should_try(VolumeId(0), ExtentNo(extent), large) {
            tried.push(extent);
            filter.report(VolumeId(0), ExtentNo(extent), large, large);
        }
    }
    assert!(tried.windows(2).all(|pair| pair[1] - pair[0] <= 8), "{tried:?}");
    assert!(tried.len() <= 110, "{}", tried.len());
}

#[test]
fn data_of_which_half_compresses_is_mostly_tried() {
    let random = |extent: u64| {
        let mut x = (extent + 0x55).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        x = (x ^ (x >> 29)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (x ^ (x >> 32)).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 63 == 0
    };
    let tried = run(&mut CompressionFilter::default(), 1, 0..100 * MIB, 0, random);
    assert!(tried.len() > 128 * 65, "{} of {}", tried.len(), 128 * 100);
}

#[test]
fn streams_are_told_apart_amid_random_extents() {
    let mut filter = CompressionFilter::default();
    let mut tried = [0; 8];
    for n in 0..2000u64 {
        for stream in 0..8u64 {
            let extent = ExtentNo((stream << 20) + n);
            if filter.should_try(VolumeId(3), extent, EXTENT) {
                tried[usize::try_from(stream).expect("fits")] += 1;
                filter.report(VolumeId(3), extent, EXTENT, if stream < 4 { EXTENT } else { EXTENT / 3 });
            }
            let noise = ExtentNo((1 << 30) + ((n * 8 + stream) << 8));
            assert!(filter.should_try(VolumeId(3), noise, EXTENT));
            filter.report(VolumeId(3), noise, EXTENT, EXTENT);
        }
    }
    assert!(tried[..4].iter().all(|n| *n < 60), "{tried:?}");
    assert_eq!(tried[4..], [2000; 4]);
    assert_eq!(filter.streams.len(), STREAMS_MAX);
}

#[test]
fn streams_that_ended_long_ago_make_room() {
    let mut filter = CompressionFilter::default();
    for stream in 0..20u64 {
        run(&mut filter, 1, stream << 20..(stream << 20) + 10, 0, |_| false);
    }
    run(&mut filter, 2, 0..2 * STALE_CALLS, 0, |_| true);
    for n in 0..40u64 {
        run(&mut filter, 4, n << 20..(n << 20) + 2, 0, |_| true);
    }
    let old = filter.streams.iter().filter(|stream| stream.volume == VolumeId(1)).count();
    assert_eq!(old, 0);
}
