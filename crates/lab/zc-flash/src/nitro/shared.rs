//! Shared parts of caches of extents and of units: their accesses.

use zc_trace::Op;
use zc_trace::workload::Workload;

/// An access to an extent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Access {
    /// The extent.
    pub key: u64,
    /// `true` if it is written.
    pub write: bool,
    /// Content read or written: equal numbers are equal contents.
    pub content: u64,
    /// Bytes it takes compressed, at most the extent's.
    pub compressed_bytes: u32,
}

/// The accesses of a workload, each of its blocks standing for an extent: Nitro draws contents and compression ratios
/// by the extent (section 5.2), this workload by the block.
pub fn accesses(workload: &Workload, extent_bytes: u32) -> impl Iterator<Item = Access> + use<> {
    workload.generate().filter_map(move |request| {
        let content = request.content?;
        let block_bytes = request.len_bytes.max(1);
        let size = u64::from(content.lz4_bytes.unwrap_or(block_bytes)) * u64::from(extent_bytes);
        let size = size.div_ceil(u64::from(block_bytes)).clamp(1, u64::from(extent_bytes));
        Some(Access {
            key: request.offset_bytes / u64::from(block_bytes),
            write: request.op == Op::Write,
            content: u64::try_from(content.fingerprint & u128::from(u64::MAX)).unwrap_or(0),
            compressed_bytes: u32::try_from(size).unwrap_or(extent_bytes),
        })
    })
}
