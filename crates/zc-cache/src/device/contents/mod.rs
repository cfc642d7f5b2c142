//! Location of contents: candidates from the fingerprint index, verified by the headers of their units.
//!
//! Owns the fingerprint index, the header cache, and header reads.
//!
//! Out of scope: the extents that are mapped to a content (see `catalog`).

pub(crate) mod header_reads;
pub(crate) mod headers;

use smallvec::SmallVec;
use zc_core::{ErrorKind, Fingerprint, Generation, WeuSlot};
use zc_format::{WeuEntry, WeuHeader};

use crate::base::Base;
use crate::config::ManagerConfig;
use crate::device::contents::header_reads::{HeaderReads, HeaderWaiter};
use crate::device::contents::headers::HeaderCache;
use crate::device::slots::table::SlotTable;
use crate::device::stored::{Stored, stored_of};
use crate::index::file_index::{IndexShape, Keep, Place, SweepCursor};
use crate::index::fingerprint_index::FingerprintIndex;
use crate::seam::Purpose;

/// Maximum candidate slots checked per fingerprint.
const CANDIDATES_MAX: usize = 4;

#[derive(Debug, Clone, Copy)]
pub(crate) enum Lookup {
    /// A header lists the content here.
    Found { slot: WeuSlot, generation: Generation, stored: Stored },
    /// Headers that may list it are being read.
    Waits,
    /// No available header lists it.
    Absent,
}

#[derive(Debug)]
pub(crate) struct Contents {
    prints: FingerprintIndex,
    headers: HeaderCache,
    reads: HeaderReads,
    sweep: SweepCursor,
}

impl Contents {
    pub(crate) fn new(config: &ManagerConfig) -> Self {
        let header_prints = zc_core::usize_from_u32(config.header_prints_max);
        Self {
            prints: FingerprintIndex::new(IndexShape::of(config), config.fingerprint_index_entries),
            headers: HeaderCache::new(header_prints, &config.hash_key),
            reads: HeaderReads::default(),
            sweep: SweepCursor::default(),
        }
    }

    #[inline]
    pub(crate) const fn prints(&self) -> &FingerprintIndex {
        &self.prints
    }

    #[inline]
    pub(crate) const fn prints_mut(&mut self) -> &mut FingerprintIndex {
        &mut self.prints
    }

    #[inline]
    pub(crate) const fn headers(&self) -> &HeaderCache {
        &self.headers
    }

    #[inline]
    pub(crate) const fn headers_mut(&mut self) -> &mut HeaderCache {
        &mut self.headers
    }

    /// Returns `true` if the waiter waits for a header read.
    pub(crate) fn is_waiting(&self, waiter: HeaderWaiter) -> bool {
        self.reads.is_waiting(waiter)
    }

    /// Restarts with an empty index.
    pub(crate) fn clear_index(&mut self, config: &ManagerConfig) {
        self.prints = FingerprintIndex::new(IndexShape::of(config), config.fingerprint_index_entries);
    }

    /// Adds a content that is now stored in the slot.
    pub(crate) fn add(&mut self, print: Fingerprint, slot: WeuSlot, stored: Stored) {
        self.headers.add(slot, print, stored);
        self.prints.insert(&print, slot);
    }

    /// Drops the entry of an evicted slot's header.
    pub(crate) fn drop_entry(&mut self, entry: &WeuEntry, slot: WeuSlot) {
        self.prints.remove(&entry.fingerprint, slot);
    }

    /// Sweeps the share of the index that is due when one of `slots` slots is opened.
    pub(crate) fn sweep_share(&mut self, slots: usize, table: &SlotTable, base: &mut Base) {
        let mut swept = 0;
        let buckets = self.prints.buckets().div_ceil(slots);
        self.prints.sweep(&mut self.sweep, buckets, |slot| {
            let live = table.contains(slot) && table.holds_content(slot);
            swept += u64::from(!live);
            if live { Keep::Yes } else { Keep::No }
        });
        base.stats.swept_entries += swept;
    }
}

impl Contents {
    pub(crate) fn candidates(&mut self, print: &Fingerprint, table: &SlotTable) -> SmallVec<[WeuSlot; 4]> {
        let mut slots: SmallVec<[WeuSlot; 4]> = self.prints.candidates(print).into_iter().collect();
        slots.retain(|slot| table.contains(*slot));
        slots.truncate(CANDIDATES_MAX);
        slots
    }

    /// Returns the content's place in a slot whose header is cached.
    fn find_print(
        &mut self,
        slot: WeuSlot,
        print: &Fingerprint,
        table: &SlotTable,
    ) -> Option<(Generation, Stored)> {
        let (generation, stored) = self.headers.find(slot, print)??;
        table.may_share(&place(slot, generation, stored, table)).then_some((generation, stored))
    }

    /// Returns the location of a content if a cached header shows it and the fingerprint kind is proof of equality.
    pub(crate) fn find_content(
        &mut self,
        print: &Fingerprint,
        table: &SlotTable,
        base: &Base,
    ) -> Option<(WeuSlot, Generation, Stored)> {
        if !base.cfg().fingerprint.is_collision_resistant() {
            return None;
        }
        let candidates = self.candidates(print, table);
        candidates.into_iter().find_map(|slot| {
            let (generation, stored) = self.find_print(slot, print, table)?;
            Some((slot, generation, stored))
        })
    }

    /// Returns the location of a content in an acceptable slot if a cached header shows it.
    ///
    /// # Errors
    /// Otherwise returns the slots that may hold it.
    pub(crate) fn find_wanted(
        &mut self,
        print: &Fingerprint,
        table: &SlotTable,
        is_wanted: impl Fn(WeuSlot) -> bool,
    ) -> Result<(WeuSlot, Generation, Stored), SmallVec<[WeuSlot; 4]>> {
        let candidates = self.candidates(print, table);
        for slot in candidates.iter().copied() {
            if let Some((generation, stored)) = self.find_print(slot, print, table)
                && is_wanted(slot)
            {
                return Ok((slot, generation, stored));
            }
        }
        Err(candidates)
    }

    /// Prefetches the headers that may list a content of an expected lookup, unless other header reads are more
    /// urgent.
    pub(crate) fn read_headers_ahead(&mut self, print: &Fingerprint, table: &mut SlotTable, base: &mut Base) {
        for slot in self.candidates(print, table) {
            if self.reads.has_room_ahead()
                && self.headers.find(slot, print).is_none()
                && table.is_on_device(slot)
            {
                self.reads.read(slot, table, base);
            }
        }
    }

    /// Reads the header of a slot that may hold a content, unless it is cached without the content, or too many reads
    /// are in flight.
    pub(crate) fn wait_for_header(
        &mut self,
        waiter: HeaderWaiter,
        slot: WeuSlot,
        print: &Fingerprint,
        table: &mut SlotTable,
        base: &mut Base,
    ) {
        if self.headers.find(slot, print).is_some() {
            base.stats.hint_misses += 1;
        } else if table.is_on_device(slot) {
            self.reads.wait_for(waiter, slot, table, base);
        }
    }

    /// Reads the header of a slot even if it is cached. Returns `false` if too many reads are in flight.
    pub(crate) fn wait_for_any_header(
        &mut self,
        waiter: HeaderWaiter,
        slot: WeuSlot,
        table: &mut SlotTable,
        base: &mut Base,
    ) -> bool {
        self.reads.wait_for(waiter, slot, table, base)
    }

    /// Handles the completion of a header read. Returns the waiters that wait for no other header.
    pub(crate) fn header_read(
        &mut self,
        slot: WeuSlot,
        result: &Result<Option<Box<WeuHeader>>, ErrorKind>,
        table: &mut SlotTable,
        base: &mut Base,
    ) -> Vec<HeaderWaiter> {
        table.unpin(slot);
        let entry = table.get(slot);
        let (generation, weu_seq) = (entry.generation(), entry.weu_seq());
        match result {
            Ok(Some(header)) if (header.generation, header.weu_seq) == (generation, weu_seq) => {
                self.load_prints(header);
            }
            // Its contents cannot be verified; the empty entry avoids another read on each miss.
            _ => self.headers.load(slot, generation, []),
        }
        match *result {
            Ok(_) => base.device_read_worked(),
            Err(error) => base.device_read_failed(Purpose::HeaderRead, error),
        }
        self.reads.arrived(slot)
    }

    /// Inserts a header's fingerprints into the header cache.
    fn load_prints(&mut self, header: &WeuHeader) {
        let prints = header
            .entries
            .iter()
            .map(|entry| (entry.fingerprint, stored_of(entry.offset_bytes, entry.stored_bytes)));
        self.headers.load(header.slot, header.generation, prints);
    }
}

/// Converts the place of a stored extent to the form used in mappings.
pub(crate) fn place(slot: WeuSlot, generation: Generation, stored: Stored, table: &SlotTable) -> Place {
    Place {
        slot,
        generation: table.short(generation),
        offset_units: stored.offset_units,
        pages: stored.pages,
    }
}

/// Returns `true` if a fingerprint is in the indexed share of its volume: chosen by content, so that volumes with
/// equal shares agree.
pub(crate) fn in_share(print: &Fingerprint, percent: u8) -> bool {
    (print.prefix() >> 40) % 100 < u64::from(percent)
}
