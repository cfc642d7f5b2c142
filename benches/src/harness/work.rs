//! Cost of a write's bytes alone: the least work of a cache that stores them.

use std::time::Duration;

use zc_core::{Codec, DedupDomain, FingerprintKind, usize_from_u32};
use zc_reduce::{Reducer, fingerprint, useful_stored_bytes_max};

use super::tasks::Tasks;
use crate::clock::{now_ns, pause};
use crate::load::{Content, Payloads};

/// Bytes of an extent.
const EXTENT_BYTES: u32 = 8 << 10;
/// Long for the clock, short for a run.
const TIME_NS: u64 = 20_000_000;
/// Blocks between two readings of the clock.
const BLOCKS: u64 = 16;

/// Microseconds for a fingerprint, an attempt to compress, a CRC-32C and a copy of `block_bytes` of such contents, on
/// the core of this thread, extent by extent.
pub(crate) fn us_per_block(content: Content, block_bytes: u32, seed: u64) -> anyhow::Result<f64> {
    let mut payloads = Payloads::new(content, seed);
    let mut worker = Worker::default();
    let before = own_tasks()?;
    let (mut blocks, begun_ns) = (0, now_ns());
    while now_ns() - begun_ns < TIME_NS {
        for _ in 0..BLOCKS {
            let range = payloads.take(content, block_bytes);
            payloads.bytes()[range]
                .chunks(usize_from_u32(EXTENT_BYTES))
                .for_each(|extent| worker.take_in(extent));
        }
        blocks += BLOCKS;
    }
    Ok(own_tasks()?.since(&before).cpu_ns as f64 / 1000.0 / blocks as f64)
}

/// Returns the tasks of this process. The scheduler updates a thread's run time when it sleeps.
fn own_tasks() -> anyhow::Result<Tasks> {
    pause(Duration::from_millis(1));
    Tasks::of(std::process::id())
}

/// The memory that the work takes.
#[derive(Debug)]
struct Worker {
    reducer: Reducer,
    out: Vec<u8>,
    copy: Vec<u8>,
}

impl Default for Worker {
    fn default() -> Self {
        let room = || vec![0; usize_from_u32(EXTENT_BYTES)];
        Self { reducer: Reducer::new(), out: room(), copy: room() }
    }
}

impl Worker {
    fn take_in(&mut self, extent: &[u8]) {
        std::hint::black_box(fingerprint(FingerprintKind::Blake3, &DedupDomain::COMMON, extent));
        let max = useful_stored_bytes_max(u32::try_from(extent.len()).unwrap_or(EXTENT_BYTES));
        let packed = self.reducer.compress(Codec::Lz4, extent, &mut self.out[..usize_from_u32(max)]);
        let stored = packed.map_or(extent, |len| &self.out[..len]);
        std::hint::black_box(zc_core::crc32c(stored));
        self.copy[..stored.len()].copy_from_slice(stored);
        std::hint::black_box(&self.copy);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn blocks_shorter_than_an_extent_have_a_time_too() {
        for bytes in [4 << 10, 128 << 10] {
            assert!(us_per_block(Content::Halving, bytes, 1).unwrap() > 0.0, "{bytes}");
        }
    }
}
