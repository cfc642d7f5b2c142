//! A flush after many small writes: their operations on the device.
//!
//! Job: write a thousand times at random, flush, count. The comparison is a bare device: each write in its place.

use rand::{RngExt as _, SeedableRng as _};
use rand_pcg::Pcg64Mcg;
use zc_core::usize_from_u64;
use zc_pool::RequestKind;

use super::overwrite::filled;
use crate::data::noise;
use crate::measure::Sample;
use crate::pool::{CHUNK_BYTES, Place, VOLUME};

/// Writes before a flush.
pub(crate) const WRITES: u64 = 1000;

/// Writes noise of `len_bytes` bytes [`WRITES`] times, all at once, and flushes.
pub(crate) fn run(place: Place, volume_bytes: u64, len_bytes: u64) -> anyhow::Result<Sample> {
    let mut rig = place.rig()?;
    filled(&mut rig, volume_bytes / CHUNK_BYTES)?;
    rig.ask(RequestKind::Flush)?;
    let mut rng = Pcg64Mcg::seed_from_u64(1);
    let (tally, began_ns) = (rig.tally(), rig.now_ns());
    for number in 0..WRITES {
        let offset_bytes = rng.random_range(0..volume_bytes / len_bytes) * len_bytes;
        let data = noise(usize_from_u64(len_bytes), (4 << 40) + number).into();
        rig.submit(RequestKind::Write { root: VOLUME, offset_bytes, data, known: Vec::new() })?;
    }
    for _ in 0..WRITES {
        rig.answer()?.result?;
    }
    rig.ask(RequestKind::Flush)?;
    let each_ns = place.model.seek_ns + place.model.transfer_ns(len_bytes);
    let bare_ns = WRITES * each_ns + place.model.flush_ns;
    let (tally, ms) = (rig.tally().since(&tally), |ns: u64| ns as f64 / 1e6);
    Ok(Sample::new([
        ("device_writes", tally.writes as f64),
        ("device_bytes_a_byte", tally.written_bytes as f64 / (WRITES * len_bytes) as f64),
        ("device_reads", tally.reads as f64),
        ("took_ms", ms(rig.now_ns() - began_ns)),
        ("bare_ms", ms(bare_ns)),
    ]))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::pool::DISK;

    #[test]
    fn a_thousand_writes_become_a_few() {
        let place = Place { model: DISK, device_bytes: 256 << 20, segment_bytes: 1 << 20 };
        let seen = run(place, 64 << 20, CHUNK_BYTES).unwrap();
        let figure = |name| seen.get(name).unwrap();
        assert!(figure("device_bytes_a_byte") > 1.0, "noise takes its room");
        assert!(figure("device_writes") < WRITES as f64 / 10.0, "{seen:?}");
        assert!(figure("took_ms") < figure("bare_ms"));
    }
}
