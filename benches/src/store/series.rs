//! A series of snapshots on a disk: read cost of the last generation beside the first.
//!
//! Job: write a volume, read it; change a part of it, create a snapshot, delete the oldest, a hundred times; read it
//! again (Nitro, section 6.3 and Figure 9).
//!
//! Invariants: both generations are read by the same requests. The floor is the same bytes contiguously on a bare
//! device.

use rand::{RngExt as _, SeedableRng as _};
use rand_pcg::Pcg64Mcg;
use zc_core::{u64_from_usize, usize_from_u64};
use zc_pool::RequestKind;
use zc_store::{CatalogOp, RootId};

use crate::data::halving;
use crate::measure::{Sample, Series};
use crate::pool::{CHUNK_BYTES, Place, Rig, VOLUME};

/// Chunks that change together: 64 KiB.
const RUN_CHUNKS: u64 = 8;
/// Runs of a thousand that change from one generation to the next (Nitro, section 5: a median of 2.3 %).
const CHANGED_PER_MILLE: u64 = 23;
/// Snapshots that are kept: one a week for twelve weeks.
const KEPT: u64 = 12;
/// Rest between two generations, for the cleaner, in nanoseconds.
const REST_NS: u64 = 10_000_000_000;
/// Bytes of a read from front to back.
const SEQUENTIAL_BYTES: u64 = 512 << 10;
/// Sizes of random reads: Figure 9's, doubled twice from one to the next.
const RANDOM_BYTES: [u64; 5] = [4 << 10, 16 << 10, 64 << 10, 256 << 10, 1 << 20];
/// Random reads of each size.
const RANDOM_READS: u64 = 200;

const MIB: f64 = 1_048_576.0;

/// Kinds of reads: bytes, and `true` for random ones.
fn kinds() -> impl Iterator<Item = (u64, bool)> {
    std::iter::once((SEQUENTIAL_BYTES, false)).chain(RANDOM_BYTES.map(|len_bytes| (len_bytes, true)))
}

fn per_s(bytes: u64, ns: u64) -> f64 {
    bytes as f64 * 1e9 / ns.max(1) as f64
}

/// Reads the volume, one request at a time; the rate.
fn rate(rig: &mut Rig, volume_bytes: u64, len_bytes: u64, is_random: bool) -> anyhow::Result<f64> {
    let mut rng = Pcg64Mcg::seed_from_u64(len_bytes);
    let places = volume_bytes / len_bytes;
    let count = if is_random { RANDOM_READS } else { places };
    let began_ns = rig.now_ns();
    for number in 0..count {
        let place = if is_random { rng.random_range(0..places) } else { number };
        let (offset_bytes, len_bytes) = (place * len_bytes, u32::try_from(len_bytes)?);
        rig.ask(RequestKind::Read { root: VOLUME, offset_bytes, len_bytes })?;
    }
    Ok(per_s(count * len_bytes, rig.now_ns() - began_ns))
}

fn write(rig: &mut Rig, first: u64, chunks: u64, seed: u64) -> anyhow::Result<()> {
    let data = halving(usize_from_u64(chunks * CHUNK_BYTES), seed).into();
    let offset_bytes = first * CHUNK_BYTES;
    rig.ask(RequestKind::Write { root: VOLUME, offset_bytes, data, known: Vec::new() })?;
    Ok(())
}

/// Changes some runs and keeps a snapshot; how many bytes were changed.
fn generation(rig: &mut Rig, number: u64, chunks: u64, rng: &mut Pcg64Mcg) -> anyhow::Result<u64> {
    let runs = chunks / RUN_CHUNKS;
    let changed = (runs * CHANGED_PER_MILLE / 1000).max(1);
    for index in 0..changed {
        let run = rng.random_range(0..runs);
        write(rig, run * RUN_CHUNKS, RUN_CHUNKS, (number << 32) + index)?;
    }
    let id = |number: u64| u16::try_from(number + 1).map(RootId);
    rig.catalog(CatalogOp::Snapshot, id(number)?, VOLUME, 0)?;
    if number > KEPT {
        rig.catalog(CatalogOp::Delete, id(number - KEPT)?, VOLUME, 0)?;
    }
    rig.ask(RequestKind::Flush)?;
    rig.rest(REST_NS)?;
    Ok(changed * RUN_CHUNKS * CHUNK_BYTES)
}

/// Name of reads in tables.
fn name(len_bytes: u64, is_random: bool) -> String {
    let size = if len_bytes < 1 << 20 {
        format!("{} KiB", len_bytes >> 10)
    } else {
        format!("{} MiB", len_bytes >> 20)
    };
    format!("{size}, {}", if is_random { "random" } else { "front to back" })
}

/// Runs the series: rates of reads in MiB/s, and the space of all generations.
pub(crate) fn run(
    place: Place,
    volume_bytes: u64,
    generations: u64,
) -> anyhow::Result<(Vec<Series>, Sample)> {
    let mut rig = place.rig()?;
    let chunks = volume_bytes / CHUNK_BYTES;
    rig.catalog(CatalogOp::Create, VOLUME, VOLUME, volume_bytes)?;
    for first in (0..chunks).step_by(usize_from_u64(RUN_CHUNKS)) {
        write(&mut rig, first, RUN_CHUNKS, first)?;
    }
    rig.ask(RequestKind::Flush)?;
    let rates = |rig: &mut Rig| -> anyhow::Result<Vec<f64>> {
        kinds().map(|(len_bytes, is_random)| rate(rig, volume_bytes, len_bytes, is_random)).collect()
    };
    let first = rates(&mut rig)?;
    let (tally, stats) = (rig.tally(), rig.pool().store().stats());
    let mut rng = Pcg64Mcg::seed_from_u64(1);
    let mut changed_bytes = 0;
    for number in 1..generations {
        changed_bytes += generation(&mut rig, number, chunks, &mut rng)?;
    }
    let written_bytes = rig.tally().since(&tally).written_bytes;
    let last = rates(&mut rig)?;
    let reads = kinds().zip(first.into_iter().zip(last)).map(|((len_bytes, is_random), (first, last))| {
        let seek_ns = if is_random { place.model.seek_ns } else { 0 };
        let bare = per_s(len_bytes, place.model.transfer_ns(len_bytes) + seek_ns);
        let rates = Sample::new([
            ("first", first / MIB),
            ("last", last / MIB),
            ("last_over_first", last / first),
            ("bare", bare / MIB),
        ]);
        Series::new(&name(len_bytes, is_random), "pool", vec![rates])
    });
    let store = rig.pool().store();
    let per_changed = |bytes: u64| bytes as f64 / changed_bytes.max(1) as f64;
    let space = Sample::new([
        ("generations", generations as f64),
        ("shown_mib", (volume_bytes * u64_from_usize(store.roots().count())) as f64 / MIB),
        ("used_mib", store.space().referred_bytes as f64 / MIB),
        ("written_a_changed_byte", per_changed(written_bytes)),
        ("moved_a_changed_byte", per_changed(store.stats().chunk_bytes_moved - stats.chunk_bytes_moved)),
    ]);
    Ok((reads.collect(), space))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::pool::DISK;

    #[test]
    fn a_series_keeps_its_snapshots_and_no_more() {
        let place = Place { model: DISK, device_bytes: 64 << 20, segment_bytes: 256 << 10 };
        let (reads, space) = run(place, 8 << 20, 20).unwrap();
        assert_eq!(space.get("shown_mib"), Some((1 + KEPT) as f64 * 8.0));
        // Changed data compress two to one.
        assert!(space.get("written_a_changed_byte").unwrap() > 0.5);
        assert!(reads.iter().all(|read| read.median("first") > 0.0 && read.median("last") > 0.0));
        assert!(reads[0].median("first") > reads[1].median("first"), "small random reads seek");
        assert_eq!(reads[0].case, "512 KiB, front to back");
    }
}
