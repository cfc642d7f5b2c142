//! Counters of the manager: plain numbers, read by the programs that show them.

use crate::index::file_index::FileIndex;
use crate::index::fingerprint_index::FingerprintIndex;

/// One number of [`Stats`], for a program that shows all of them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Figure {
    /// Name of the number, as in the struct.
    pub name: &'static str,
    /// Sentence on its meaning.
    pub meaning: &'static str,
    /// The number is of now, and may fall; the others only grow.
    pub is_gauge: bool,
}

macro_rules! stats {
    (
        counters { $(#[doc = $counter_doc:literal] $counter:ident,)* }
        gauges { $(#[doc = $gauge_doc:literal] $gauge:ident,)* }
    ) => {
        /// Counters since the start and gauges of now. Sizes are in bytes.
        #[derive(Debug, Clone, Default, PartialEq, Eq)]
        #[non_exhaustive]
        pub struct Stats {
            $(#[doc = $counter_doc] pub $counter: u64,)*
            $(#[doc = $gauge_doc] pub $gauge: u64,)*
        }

        impl Stats {
            /// Description of the numbers, in order of definition.
            pub const FIGURES: &'static [Figure] = &[
                $(Figure { name: stringify!($counter), meaning: $counter_doc.trim_ascii(), is_gauge: false },)*
                $(Figure { name: stringify!($gauge), meaning: $gauge_doc.trim_ascii(), is_gauge: true },)*
            ];

            /// Every number with its name, in order of definition.
            #[must_use]
            pub fn named(&self) -> Vec<(&'static str, u64)> {
                vec![
                    $((stringify!($counter), self.$counter),)*
                    $((stringify!($gauge), self.$gauge),)*
                ]
            }
        }
    };
}

impl Stats {
    /// Extent parts that reads got without a read of the origin for them: the hits of the hit ratio. Prefetched parts
    /// came from the origin, and their first use is no hit.
    #[must_use]
    pub const fn extent_hits(&self) -> u64 {
        self.extent_answers().saturating_sub(self.prefetched_hits)
    }

    /// Extent parts that reads requested: the denominator of the hit ratio.
    #[must_use]
    pub const fn extents_read(&self) -> u64 {
        self.extent_answers() + self.extent_misses + self.extent_joins
    }

    const fn extent_answers(&self) -> u64 {
        self.extent_hits_device + self.extent_hits_memory + self.extent_hits_zero
    }
}

stats! {
    counters {
        /// Read requests.
        reads,
        /// Bytes of read requests.
        read_bytes,
        /// Read requests served without the origin. What was read ahead came from the origin.
        read_hits,
        /// Read requests served by the origin alone.
        read_misses,
        /// Read requests served in part by each.
        read_partial,
        /// Read requests of volumes in pass-through, or while the cache is out of order.
        read_bypassed,
        /// Extent parts served from stored extents on the device.
        extent_hits_device,
        /// Extent parts served from memory: open WEUs, staging, read buffer, read-ahead.
        extent_hits_memory,
        /// Extent parts served as zero without storage.
        extent_hits_zero,
        /// Extent parts that went to the origin.
        extent_misses,
        /// Extent parts that joined an origin read in flight.
        extent_joins,
        /// Device reads for hits.
        device_reads,
        /// Bytes of device reads for hits.
        device_read_bytes,
        /// Extents that those reads brought.
        device_read_extents,
        /// Write requests, trims and zeroes included.
        writes,
        /// Bytes of write requests.
        write_bytes,
        /// Flush requests.
        flushes,
        /// Bytes of writes, trims and zeroings taken in by write-back.
        dirty_written_bytes,
        /// Trims and zeroings that waited until the origin had what was dirty.
        dirty_clears,
        /// Pieces of dirty data stored in dirty units.
        dirty_stored,
        /// Dirty extents whose content was stored already.
        dirty_shared,
        /// Stored extents of earlier sessions that were read before dirty data was shared with them.
        dirty_proofs,
        /// Times a write waited for room for dirty data.
        dirty_waits,
        /// Dirty data that could not be read back when it was to be destaged.
        dirty_unreadable,
        /// Bytes of it that never reach the origin, as later writes took their place.
        dirty_skipped_bytes,
        /// Bytes of it that an operator gave up: zeros took their place.
        dirty_given_up_bytes,
        /// Dirty bytes that the scrub read back.
        dirty_scrubbed_bytes,
        /// Reads that failed because dirty data could not be read.
        dirty_read_failures,
        /// Epochs that ended.
        epochs_closed,
        /// Epochs that became durable on the cache device.
        epochs_committed,
        /// Epochs whose commit needed no flush of the device: its writes were durable by themselves.
        epochs_committed_by_fua,
        /// Epochs whose commit was one write: a piece of a unit with a summary.
        epochs_committed_by_summary,
        /// Epochs that became durable on the origin.
        epochs_clean,
        /// Epochs found at the start.
        dirty_replayed,
        /// Bytes brought to origins by destaging.
        destaged_bytes,
        /// Origin writes of destaging.
        destage_writes,
        /// Bytes of dirty data that the origin never got, because newer ones without a flush between took their place.
        destage_spared_bytes,
        /// Bytes of discards that origins without space got before older dirty data.
        discarded_ahead_bytes,
        /// Attempts of destaging that failed.
        destage_failures,
        /// Dirty extents that became clean where they lie.
        promoted,
        /// Stored extents that were verified and served.
        verified_hits,
        /// Stored extents that clients read and whose content was compared with its fingerprint.
        proved_hits,
        /// Stored extents that failed verification and were refetched.
        failed_hits,
        /// Device reads that failed.
        device_read_errors,
        /// Device reads that took too long, so that the origin was read instead.
        slow_hits,
        /// WEU writes that failed.
        device_write_errors,
        /// Extents offered for insertion.
        insert_offered,
        /// Extents of writes among them.
        insert_offered_written,
        /// Extents stored (base entries made).
        insert_stored,
        /// Extents found as duplicates.
        insert_duplicates,
        /// Extents of zeros.
        insert_zero,
        /// Insertions skipped under pressure (G8).
        insert_skipped,
        /// Insertions dropped because a write overtook them.
        insert_stale,
        /// Extents that were not inserted because their stream is longer than the volume's cutoff.
        insert_sequential,
        /// Insertions that found the extent cached already.
        insert_present,
        /// Extents read ahead, used once, not known elsewhere: not cached.
        insert_once_only,
        /// Insertions dropped because their volume was at its quota and none of its units could be evicted.
        insert_over_quota,
        /// Insertions dropped because the cache was out of order or no slot came free.
        insert_dropped,
        /// Bytes of extents stored, before compression.
        stored_raw_bytes,
        /// Bytes of extents stored, after compression.
        stored_bytes,
        /// Extents whose compression was tried.
        compress_tried,
        /// Extents stored raw without a try: their stream does not compress.
        compress_avoided,
        /// Fingerprint hints that a header disproved.
        hint_misses,
        /// Headers read to prove fingerprint hints.
        hint_header_reads,
        /// Comparisons of bytes before sharing.
        compares,
        /// Comparisons that found different bytes.
        compares_differed,
        /// Partial overwrites completed with cached bytes.
        merges,
        /// Extents completed by small writes alone.
        staged_whole,
        /// Partly written extents dropped.
        staged_dropped,
        /// Extents read ahead.
        prefetched_extents,
        /// Extents read ahead and then used.
        prefetched_used,
        /// Extent parts served from memory that had been read ahead: the first use of each, no hit of the hit ratio.
        prefetched_hits,
        /// Extents read from origins because an operator wanted them in the cache.
        warmed_extents,
        /// Pinned extents read from origins to be cached.
        pinned_extents_read,
        /// Pinned extents read from the cache device to be placed among what stays.
        pinned_extents_moved,
        /// WEUs of pinned extents that were emptied, since most of what they held had been overwritten.
        pinned_units_emptied,
        /// Runs of fingerprints asked of origins.
        recipes_wanted,
        /// Misses that a recipe turned into hits.
        recipe_hits,
        /// Misses that a learned recipe turned into hits.
        recipe_hits_learned,
        /// Misses that waited for a header, as a learned recipe may make hits of them.
        recipe_waits,
        /// Misses that waited for a header and did not ask the origin afterwards, as a rule because they were hits.
        recipe_waits_hit,
        /// WEUs written.
        weu_writes,
        /// Bytes written to the device for WEUs.
        weu_bytes_written,
        /// Bytes in WEUs not used by extents or header when written.
        weu_bytes_unused,
        /// Bytes in WEUs that lie between extents when written.
        weu_bytes_padding,
        /// Bytes written to the device for the journal.
        journal_bytes_written,
        /// Bytes written to the device for checkpoints.
        checkpoint_bytes_written,
        /// Duplicates and zero extents that checkpoints had no room for: misses after a restart.
        checkpoint_left_out,
        /// Bytes written to the device for region maps.
        region_map_bytes_written,
        /// Checkpoints committed.
        checkpoints,
        /// Device flushes.
        device_flushes,
        /// WEUs evicted.
        evictions,
        /// Evictions that had to do without the victim's header.
        evictions_headerless,
        /// WEUs that were next to go and that the replacement policy let pass.
        evictions_spared,
        /// Evictions because a volume was at its quota, or above it.
        evictions_for_quota,
        /// Evictions from volumes within their reserve: for their own newer content, or for dirty data.
        evictions_within_reserve,
        /// Evictions of WEUs with content of volumes that are gone, for an erasure.
        evictions_for_erasure,
        /// WEUs that came to count for another volume: settings changed, or what was dirty in them became clean.
        units_moved,
        /// Evictions while some slot was pinned by a reader.
        evictions_while_reading,
        /// Base entries overwritten whose content stayed for duplicates.
        bases_voided,
        /// Duplicate hits whose base address maps elsewhere or nowhere by now.
        duplicate_outlived_base,
        /// Entries removed by the index sweep.
        swept_entries,
        /// Sweep passes over the file index.
        sweep_passes,
        /// File index entries evicted for space.
        file_index_evictions,
        /// Volumes that went while the cache was used.
        volumes_removed,
        /// Times a slot had to wait for a sweep before reuse.
        reuse_waits,
        /// Regions retired.
        regions_retired,
        /// Writes that waited for room in the region map.
        region_room_waits,
        /// Writes that waited for a region mark.
        region_mark_waits,
        /// Writes that waited for the record that a failed cache device is not to be trusted.
        distrust_waits,
        /// Attempts to make such a record that failed.
        distrust_failures,
        /// Header reads of the last start.
        load_headers,
        /// Bytes of those.
        load_header_bytes,
        /// Bytes of the index image that the last start read.
        load_image_bytes,
        /// Whether the last start took its indexes from the index image, and read no header.
        load_by_image,
        /// Whether the last start found an index image and did not use it.
        load_image_refused,
        /// Bytes of the index image that a stop wrote.
        image_bytes_written,
        /// Mappings found at the start.
        load_mappings,
        /// Mappings distrusted at the start.
        load_distrusted,
        /// Mappings of earlier sessions that were compared with the origin.
        probes,
        /// Comparisons that found something else at the origin; the volume's older contents were forgotten.
        probes_differed,
    }
    gauges {
        /// Entries of the file index.
        file_index_len,
        /// Room of the file index.
        file_index_capacity,
        /// Entries of the fingerprint index.
        fingerprint_index_len,
        /// Room of the fingerprint index.
        fingerprint_index_capacity,
        /// Journal blocks in use.
        journal_blocks,
        /// Regions marked.
        regions_active,
        /// WEUs that hold pinned extents.
        pinned_units,
    }
}

impl Stats {
    pub(crate) fn gauges(
        &mut self,
        files: &FileIndex,
        prints: &FingerprintIndex,
        journal: u64,
        regions: usize,
    ) {
        self.file_index_len = files.len();
        self.file_index_capacity = files.capacity();
        self.fingerprint_index_len = prints.len();
        self.fingerprint_index_capacity = prints.capacity();
        self.journal_blocks = journal;
        self.regions_active = zc_core::u64_from_usize(regions);
    }
}
