//! What the store counts, and where its bytes are.

/// Counters since the store was opened.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Stats {
    /// Chunks whose contents were stored.
    pub chunks_stored: u64,
    /// Bytes of them.
    pub chunk_bytes_stored: u64,
    /// Chunks that were stored already: nothing was written but a record.
    pub chunks_shared: u64,
    /// Chunks that were damaged and whose contents came again.
    pub chunks_healed: u64,
    /// Chunks that were all zero.
    pub chunks_zero: u64,
    /// Pages of trees written.
    pub pages_written: u64,
    /// Pages of volume maps written.
    pub map_pages_written: u64,
    /// Pages of the chunk table written.
    pub chunk_pages_written: u64,
    /// Pages of trees read.
    pub page_reads: u64,
    /// Headers that were written only to say that the last commit is durable.
    pub proofs: u64,
    /// Checkpoints that ended.
    pub checkpoints: u64,
    /// Marks that ended.
    pub marks: u64,
    /// Chunks that no root referred to and a sweep took away.
    pub chunks_freed: u64,
    /// Map pages likewise.
    pub pages_freed: u64,
    /// Segments cleaned.
    pub segments_cleaned: u64,
    /// Segments that became free.
    pub segments_freed: u64,
    /// Free segments that were discarded.
    pub segments_discarded: u64,
    /// Chunks that the cleaner moved.
    pub chunks_moved: u64,
    /// Bytes of them.
    pub chunk_bytes_moved: u64,
    /// Windows of volumes whose chunks were brought together.
    pub windows_gathered: u64,
    /// Requests that found no space.
    pub no_space: u64,
    /// Map pages that the last mark could not read. What they may refer to is not freed.
    pub pages_lost: u64,
    /// Stored bytes that failed their check.
    pub damaged: u64,
    /// When the store was opened, its log ended in a batch that was damaged, or missing before a later one. A power cut
    /// does that to what no flush covered; a device that lost flushed data looks the same.
    pub torn: bool,
}

/// Where the bytes of the pool are.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Space {
    /// All segments.
    pub total_bytes: u64,
    /// Free ones.
    pub free_bytes: u64,
    /// Bytes that tables refer to: contents and pages; after a mark, exactly what volumes and snapshots need.
    pub referred_bytes: u64,
    /// Kept for checkpoints, the cleaner and changes that free space.
    pub reserve_bytes: u64,
    /// Memory in use that a budget or the pool's size bounds.
    pub ram_bytes: u64,
}
