//! Properties of a trace: requests, footprint, mix, duplicates, compressibility.
//!
//! Invariants: memory is bounded by [`Distinct`]; estimated figures are marked ([`Info::is_exact`]). Bytes are those
//! of whole requests; addresses are counted in blocks of 4 KiB, every block that a read or a write overlaps.

use std::collections::BTreeMap;

use crate::distinct::{Distinct, mix};
use crate::limits::DEVICES_COUNTED_MAX;
use crate::request::{Content, Op, Request};

/// Unit of addresses.
const BLOCK_BYTES: u64 = 4096;

/// Requests and bytes of one kind.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Tally {
    /// Requests.
    pub requests: u64,
    /// Bytes they name.
    pub bytes: u64,
}

impl Tally {
    fn add(&mut self, request: &Request) {
        self.requests += u64::from(!request.continues);
        self.bytes += u64::from(request.len_bytes);
    }
}

/// A content: its size, that under LZ4 and under Zstandard (a trace may have one only), and its writes.
#[derive(Debug, Default)]
struct Known {
    len_bytes: u32,
    lz4_bytes: Option<u32>,
    zstd1_bytes: Option<u32>,
    /// Number of its writes, and `true` if its first reference was a write.
    writes: u64,
    begins_written: bool,
}

/// Distinct contents. Figures are sums over the held contents, so that all refer to the same sample.
#[derive(Debug, Default)]
struct Contents(Distinct<Known>);

/// Before over after.
fn ratio([raw, reduced]: [u64; 2]) -> Option<f64> {
    (reduced > 0).then(|| raw as f64 / reduced as f64)
}

impl Contents {
    fn add(&mut self, request: &Request, content: &Content) {
        self.0.add(content.fingerprint, |known| {
            if known.len_bytes == 0 {
                (known.len_bytes, known.begins_written) = (request.len_bytes, request.op == Op::Write);
            }
            // Recordings may have the size of a content later than its fingerprint.
            known.lz4_bytes = known.lz4_bytes.or(content.lz4_bytes);
            known.zstd1_bytes = known.zstd1_bytes.or(content.zstd1_bytes);
            known.writes += u64::from(request.op == Op::Write);
        });
    }

    /// Ratios under LZ4 and under Zstandard.
    fn compression_ratios(&self) -> (Option<f64>, Option<f64>) {
        let total = |size_of: fn(&Known) -> Option<u32>| {
            let pairs =
                self.0.values().filter_map(|known| Some([known.len_bytes, size_of(known)?].map(u64::from)));
            ratio(pairs.fold([0, 0], |sums, pair| [sums[0] + pair[0], sums[1] + pair[1]]))
        };
        (total(|known| known.lz4_bytes), total(|known| known.zstd1_bytes))
    }

    /// Share of writes whose contents had been seen before.
    fn duplicate_write_share(&self) -> Option<f64> {
        let total = |count: fn(&Known) -> u64| self.0.values().map(count).sum::<u64>();
        let (writes, first) = (total(|known| known.writes), total(|known| u64::from(known.begins_written)));
        (writes > 0).then(|| (writes - first) as f64 / writes as f64)
    }
}

/// Figures of a trace, filled one request after the other.
#[derive(Debug, Default)]
pub struct Info {
    /// Reads.
    pub reads: Tally,
    /// Writes.
    pub writes: Tally,
    /// References whose kind the format lacks.
    pub accesses: Tally,
    /// Flushes.
    pub flushes: u64,
    /// Discards.
    pub discards: Tally,
    /// Time of the last request in nanoseconds.
    pub duration_ns: u64,
    footprint: Distinct,
    devices: Distinct,
    /// Requests of the first devices that appeared.
    by_device: BTreeMap<u32, u64>,
    /// Blocks read or written, with repetitions.
    blocks: u64,
    /// Requests that begin where the one before ended.
    sequential: u64,
    end_bytes: Option<(u32, u64)>,
    all: Contents,
    read: Contents,
    /// Addresses that were read, each once for every content that it had.
    read_places: Distinct,
}

impl Info {
    /// Counts a request.
    pub fn add(&mut self, request: &Request) {
        self.duration_ns = self.duration_ns.max(request.time_ns);
        let tally = match request.op {
            Op::Read => &mut self.reads,
            Op::Write => &mut self.writes,
            Op::Access => &mut self.accesses,
            Op::Discard => &mut self.discards,
            Op::Flush => {
                self.flushes += 1;
                return;
            }
        };
        tally.add(request);
        self.devices.add(u128::from(request.device), |()| {});
        if !request.continues {
            self.count_device(request.device);
        }
        if !request.continues && self.end_bytes == Some((request.device, request.offset_bytes)) {
            self.sequential += 1;
        }
        self.end_bytes = Some((request.device, request.end_bytes()));
        // Discarded ranges are not cached, and one fstrim covers all free space of a volume.
        if request.op == Op::Discard {
            return;
        }
        for block in request.offset_bytes / BLOCK_BYTES..request.end_bytes().div_ceil(BLOCK_BYTES) {
            self.blocks += 1;
            self.footprint.add(u128::from(block) | (u128::from(request.device) << 64), |()| {});
        }
        self.add_content(request);
    }

    fn count_device(&mut self, device: u32) {
        if self.by_device.len() < DEVICES_COUNTED_MAX || self.by_device.contains_key(&device) {
            *self.by_device.entry(device).or_default() += 1;
        }
    }

    fn add_content(&mut self, request: &Request) {
        let Some(content) = request.content else { return };
        self.all.add(request, &content);
        if request.op == Op::Read {
            self.read.add(request, &content);
            let address = u128::from(request.offset_bytes) | u128::from(request.device) << 64;
            let place = u128::from(mix(address)) << 64 | u128::from(mix(content.fingerprint));
            self.read_places.add(place, |()| {});
        }
    }

    /// All requests.
    #[must_use]
    pub const fn requests(&self) -> u64 {
        self.reads.requests
            + self.writes.requests
            + self.accesses.requests
            + self.discards.requests
            + self.flushes
    }

    /// Returns the number of distinguished devices.
    #[must_use]
    pub fn devices(&self) -> u64 {
        self.devices.count()
    }

    /// Devices with their requests, those with most first.
    #[must_use]
    pub fn busiest_devices(&self) -> Vec<(u32, u64)> {
        let mut all: Vec<(u32, u64)> =
            self.by_device.iter().map(|(device, count)| (*device, *count)).collect();
        all.sort_by_key(|(device, count)| (std::cmp::Reverse(*count), *device));
        all
    }

    /// Distinct bytes that were read or written, in whole blocks of 4 KiB.
    #[must_use]
    pub fn footprint_bytes(&self) -> u64 {
        self.footprint.count().saturating_mul(BLOCK_BYTES)
    }

    /// Blocks of 4 KiB that were read or written, with repetitions.
    #[must_use]
    pub const fn blocks(&self) -> u64 {
        self.blocks
    }

    /// Share of requests that begin where the one before ended.
    #[must_use]
    pub fn sequential_share(&self) -> Option<f64> {
        let requests = self.requests() - self.flushes;
        (requests > 1).then(|| self.sequential as f64 / (requests - 1) as f64)
    }

    /// Distinct contents, of formats with fingerprints.
    #[must_use]
    pub fn unique_contents(&self) -> Option<u64> {
        let count = self.all.0.count();
        (count > 0).then_some(count)
    }

    /// Returns the ratio of read addresses to their distinct contents. Repeated reads count once.
    #[must_use]
    pub fn read_dedup_ratio(&self) -> Option<f64> {
        let held = self.read.0.count();
        (held > 0).then(|| self.read_places.count() as f64 / held as f64)
    }

    /// Share of writes whose contents had been read or written before.
    #[must_use]
    pub fn duplicate_write_share(&self) -> Option<f64> {
        self.all.duplicate_write_share()
    }

    /// Bytes of distinct contents over the same after LZ4, and after Zstandard at level 1.
    #[must_use]
    pub fn compression_ratios(&self) -> (Option<f64>, Option<f64>) {
        self.all.compression_ratios()
    }

    /// Compression ratios of contents that were read.
    #[must_use]
    pub fn read_compression_ratios(&self) -> (Option<f64>, Option<f64>) {
        self.read.compression_ratios()
    }

    /// Returns `true` if footprint and contents were counted rather than estimated.
    #[must_use]
    pub fn is_exact(&self) -> bool {
        self.footprint.is_exact() && self.all.0.is_exact() && self.read_places.is_exact()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn request(op: Op, block: u64, fingerprint: u128) -> Request {
        let content = Content { fingerprint, lz4_bytes: Some(1024), zstd1_bytes: Some(512) };
        let offset_bytes = block * BLOCK_BYTES;
        Request::new(block, op, offset_bytes, 4096).of(content)
    }

    #[test]
    fn figures_are_those_of_a_trace_done_by_hand() {
        let mut info = Info::default();
        let all = [
            request(Op::Read, 0, 1),
            request(Op::Read, 1, 2),
            request(Op::Read, 2, 1),
            request(Op::Read, 2, 1),
            request(Op::Write, 9, 1),
            request(Op::Write, 10, 3),
            request(Op::Write, 9, 3),
        ];
        for request in all {
            info.add(&request);
        }
        info.add(&Request { op: Op::Flush, len_bytes: 0, content: None, ..all[0] });
        info.add(&Request { time_ns: 0, op: Op::Discard, len_bytes: 1 << 20, content: None, ..all[0] });
        assert_eq!((info.requests(), info.flushes, info.devices()), (9, 1, 1));
        assert_eq!(info.reads, Tally { requests: 4, bytes: 4 * 4096 });
        assert_eq!((info.footprint_bytes(), info.blocks(), info.duration_ns), (5 * 4096, 7, 10));
        assert_eq!(info.unique_contents(), Some(3));
        assert_eq!(info.read_dedup_ratio(), Some(1.5));
        // Contents 1 and the second 3 were there before.
        assert!((info.duplicate_write_share().unwrap() - 2.0 / 3.0).abs() < 1e-9);
        assert_eq!(info.sequential_share(), Some(3.0 / 7.0));
        assert_eq!(info.compression_ratios(), (Some(4.0), Some(8.0)));
        assert!(info.is_exact());
    }

    /// Late contents count as much as early ones, if there are more than are held.
    #[test]
    fn ratios_of_a_sample_are_those_of_all() {
        let mut info = Info { all: Contents(Distinct::with_bound(1024)), ..Info::default() };
        for number in 0..16_000_u64 {
            // The first half compresses 4:1 and is written once; the second does not, and is written twice.
            let (early, print) = (number < 8000, u128::from(number) + 1);
            let lz4 = if early { 1024 } else { 4096 };
            let content = Content { fingerprint: print, lz4_bytes: Some(lz4), zstd1_bytes: None };
            let one = Request::new(number, Op::Write, number * BLOCK_BYTES, 4096).of(content);
            info.add(&one);
            if !early {
                info.add(&one);
            }
        }
        let ratio = info.compression_ratios().0.unwrap();
        assert!((ratio / 1.6 - 1.0).abs() < 0.06, "{ratio} for 2 over 1.25");
        let share = info.duplicate_write_share().unwrap();
        assert!((share * 3.0 - 1.0).abs() < 0.06, "{share} for a third");
        assert!(!info.is_exact());
    }

    #[test]
    fn a_trace_without_contents_has_no_ratios() {
        let mut info = Info::default();
        info.add(&Request { content: None, len_bytes: 1, ..request(Op::Access, 3, 0) });
        info.add(&Request { content: None, offset_bytes: 4095, len_bytes: 2, ..request(Op::Access, 0, 0) });
        assert_eq!((info.unique_contents(), info.compression_ratios()), (None, (None, None)));
        assert_eq!((info.duplicate_write_share(), info.read_dedup_ratio()), (None, None));
        // The second touches two blocks.
        assert_eq!((info.blocks(), info.footprint_bytes()), (3, 3 * 4096));
    }
}
