//! Selective compression: detects streams of incompressible data, so that their extents are stored without further
//! attempts (CaFTL, section III.B.3).
//!
//! As there, a filtering table of [`STREAMS_MAX`] sequential streams keeps the last address of each and a counter of
//! its incompressible chunks (a chunk is an extent here); from [`THRESHOLD`] on the stream is stored as it is. When
//! the table is full the stream with the smallest counter is dropped; counters of streams that were not seen for
//! [`STALE_CALLS`] calls count as 0.
//!
//! Two additions. Compression is asynchronous, so extents are decided upon before the outcomes of earlier ones are
//! reported; a stream therefore starts with its first decision, and its address follows the decisions. And every n-th
//! extent of a filtered stream is compressed as a probe. n doubles from 2 with every unsuccessful probe, up to 64
//! extents or 1 MiB, whichever is less, and the first probe that compresses ends the filter. With 8 KiB extents a
//! stream has spent 4 attempts and 6 probes after 130 extents, its first MiB, and 1 of 64 (1.6 %) from then on; data
//! that compresses again is detected within 64 extents, 512 KiB. Mixed data, where four incompressible extents in a
//! row are chance, loses little because the first probe comes at once: 7 of 10 extents are tried when every other one
//! compresses, at random.
//!
//! Out of scope: compression itself, and judging single extents that belong to no stream.

use zc_core::{ExtentNo, VolumeId, limits};

/// Streams in the filtering table (CaFTL).
const STREAMS_MAX: usize = 20;
/// Incompressible extents after which a stream is filtered (CaFTL).
const THRESHOLD: u32 = 4;
/// Most extents of a filtered stream per probe.
const PROBE_EXTENTS_MAX: u32 = 64;
/// Most bytes of a filtered stream per probe.
const PROBE_BYTES_MAX: u32 = 1 << 20;
/// First distance of probes, in extents.
const PROBE_EXTENTS_FIRST: u32 = 2;
/// Maximum distance of out-of-order decisions in one stream, in extents.
const REACH: u64 = 16;
/// Maximum distance of a report from the latest decision of its stream, in extents.
const REPORT_REACH: u64 = 4096;
/// Calls after which an unused stream's counter is invalid.
const STALE_CALLS: u64 = 1 << 14;

#[derive(Debug, Clone, Copy)]
struct Stream {
    volume: VolumeId,
    /// Extent after the last decision.
    next: u64,
    incompressible: u32,
    probe_every: u32,
    unprobed: u32,
    used: u64,
}

#[derive(Debug, Default)]
pub(crate) struct CompressionFilter {
    streams: Vec<Stream>,
    calls: u64,
}

impl CompressionFilter {
    /// Returns `true` if an extent should be compressed. The caller reports the outcome of every attempt.
    pub(crate) fn should_try(&mut self, volume: VolumeId, extent: ExtentNo, extent_bytes: u32) -> bool {
        self.calls += 1;
        let near = |stream: &Stream| extent.0.abs_diff(stream.next) <= REACH;
        let Some(stream) = self.find(volume, extent, near) else {
            self.start(volume, extent);
            return true;
        };
        stream.next = stream.next.max(extent.0.saturating_add(1));
        if stream.incompressible < THRESHOLD {
            return true;
        }
        let most = (PROBE_BYTES_MAX / extent_bytes.max(1)).clamp(1, PROBE_EXTENTS_MAX);
        stream.unprobed += 1;
        let probe = stream.unprobed >= stream.probe_every.min(most);
        if probe {
            stream.unprobed = 0;
        }
        probe
    }

    /// Records that `raw_bytes` were stored as `stored_bytes`, which are not fewer if the extent did not compress.
    pub(crate) fn report(&mut self, volume: VolumeId, extent: ExtentNo, raw_bytes: u32, stored_bytes: u32) {
        let compresses = stored_bytes.saturating_add(limits::PLACE_ALIGN_BYTES) <= raw_bytes;
        let near = |stream: &Stream| {
            extent.0 <= stream.next.saturating_add(REACH)
                && extent.0.saturating_add(REPORT_REACH) >= stream.next
        };
        let Some(stream) = self.find(volume, extent, near) else { return };
        if compresses {
            stream.incompressible = 0;
            stream.probe_every = PROBE_EXTENTS_FIRST;
            stream.unprobed = 0;
        } else if stream.incompressible < THRESHOLD {
            stream.incompressible += 1;
        } else {
            stream.probe_every = (stream.probe_every * 2).min(PROBE_EXTENTS_MAX);
        }
    }

    fn find(
        &mut self,
        volume: VolumeId,
        extent: ExtentNo,
        near: impl Fn(&Stream) -> bool,
    ) -> Option<&mut Stream> {
        let mut nearest = None;
        for (index, stream) in self.streams.iter().enumerate() {
            let distance = extent.0.abs_diff(stream.next);
            let nearer = nearest.is_none_or(|(least, _)| distance < least);
            if nearer && stream.volume == volume && near(stream) {
                nearest = Some((distance, index));
                if distance == 0 {
                    break;
                }
            }
        }
        let stream = &mut self.streams[nearest?.1];
        stream.used = self.calls;
        Some(stream)
    }

    fn start(&mut self, volume: VolumeId, extent: ExtentNo) {
        let stream = Stream {
            volume,
            next: extent.0.saturating_add(1),
            incompressible: 0,
            probe_every: PROBE_EXTENTS_FIRST,
            unprobed: 0,
            used: self.calls,
        };
        if self.streams.len() < STREAMS_MAX {
            self.streams.push(stream);
            return;
        }
        let calls = self.calls;
        let rank =
            |s: &&mut Stream| (if calls - s.used > STALE_CALLS { 0 } else { s.incompressible }, s.used);
        if let Some(least) = self.streams.iter_mut().min_by_key(rank) {
            *least = stream;
        }
    }
}

#[cfg(test)]
#[path = "compressibility_tests.rs"]
mod tests;
