//! A flush behind many small writes: how they reach the device.
//!
//! Job: write a thousand times anywhere, flush, count. Beside it stands what a bare device has to do: each write where
//! it belongs.

use rand::{RngExt as _, SeedableRng as _};
use rand_pcg::Pcg64Mcg;
use zc_core::usize_from_u64;
use zc_pool::RequestKind;

use super::device::Tally;
use super::overwrite::filled;
use super::rig::{CHUNK_BYTES, Place, VOLUME};
use crate::data::noise;

/// Writes before a flush.
pub const WRITES: u64 = 1000;

/// What was seen of one flush.
#[derive(Debug, Clone, Copy)]
pub struct Seen {
    /// Bytes of a write.
    pub len_bytes: u64,
    /// What the device was asked.
    pub tally: Tally,
    /// How long it took, in the device's time.
    pub took_ns: u64,
    /// Time that the flush took on the bare device.
    pub bare_ns: u64,
}

/// Writes noise of so many bytes [`WRITES`] times, all at once, and flushes.
///
/// # Errors
/// The pool fails.
pub fn run(place: Place, volume_bytes: u64, len_bytes: u64) -> anyhow::Result<Seen> {
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
    Ok(Seen { len_bytes, tally: rig.tally().since(&tally), took_ns: rig.now_ns() - began_ns, bare_ns })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::device::DISK;

    #[test]
    fn a_thousand_writes_become_a_few() {
        let place = Place { model: DISK, device_bytes: 256 << 20, segment_bytes: 1 << 20 };
        let seen = run(place, 64 << 20, CHUNK_BYTES).unwrap();
        assert!(seen.tally.written_bytes > WRITES * CHUNK_BYTES, "noise takes its room");
        assert!(seen.tally.writes < WRITES / 10, "{} writes", seen.tally.writes);
        assert!(seen.took_ns < seen.bare_ns);
    }
}
