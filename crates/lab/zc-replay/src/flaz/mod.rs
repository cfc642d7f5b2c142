//! FlaZ (Makatos et al., EuroSys 2010): a compressed cache of another design, for comparison with the daemon's.
//!
//! Job: run a trace through FlaZ's two layers. The caching layer is direct-mapped and write-through, one block of 4
//! KiB a line (2.1). The compressing layer (`store.rs`) packs compressed blocks into *frames* (the paper's extents,
//! which differ from the daemon's) of 32 KiB with a list inside each, gathers frames in a buffer with buckets by free
//! space and ageing (2.2.1 to 2.2.3), and cleans (2.2.4). Metadata are cached in pages with LRU replacement (4.7).
//!
//! Invariants: a line holds the last block put there, or nothing; every live block is in exactly one frame
//! (`Store::check`). The device never holds more frames than its capacity: a block without space is not cached.
//!
//! Out of scope: time, several CPUs, locks. Without compression it is the plain SSD cache of the paper's comparison: a
//! block in every line, no frames.

mod store;

use std::collections::BTreeMap;

use zc_core::{Codec, Map, usize_from_u32, usize_from_u64};
use zc_trace::Op;

use crate::content::{BLOCK_BYTES, ContentId};
use crate::load::{Step, Trace, block_key};
use store::Store;
pub use store::{Cleaner, Frames, Packing};

/// Metadata per line: 880 KB and 1.25 MB per GB of SSD (5.1), in bytes per 4 KiB.
pub const METADATA_PER_LINE: u64 = 8;
/// Unit of metadata I/O.
const METADATA_PAGE_BYTES: u64 = 4096;

/// The cache.
#[derive(Debug, Clone, Copy)]
pub struct Settings {
    /// Bytes of the SSD.
    pub device_bytes: u64,
    /// Codec of blocks; [`Codec::Raw`] for the uncompressed cache.
    pub codec: Codec,
    /// Lines over blocks of the device: the paper's "configurable multiple" (5.3). 1 without compression.
    pub overbooking: f64,
    /// Packing of blocks.
    pub packing: Packing,
    /// DRAM for metadata, in bytes; `None` for all of them.
    pub metadata_cache_bytes: Option<u64>,
    /// Requests that only warm the cache.
    pub warm_requests: u64,
}

impl Settings {
    /// The paper's defaults on a device of `device_bytes`, compressed or not.
    #[must_use]
    pub fn new(device_bytes: u64, codec: Codec, overbooking: f64) -> Self {
        let packing = Packing::default();
        Self { device_bytes, codec, overbooking, packing, metadata_cache_bytes: None, warm_requests: 0 }
    }
}

/// Result of a run. Blocks are of 4 KiB.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Outcome {
    /// Requests.
    pub requests: u64,
    /// Blocks read.
    pub reads: u64,
    /// Cached ones among them.
    pub read_hits: u64,
    /// Blocks written.
    pub writes: u64,
    /// Bytes read from the SSD for hits.
    pub ssd_read_bytes: u64,
    /// Bytes written to the SSD: frames, or blocks without compression. The cleaner's are apart.
    pub ssd_written_bytes: u64,
    /// Blocks put into the cache, in bytes.
    pub put_bytes: u64,
    /// Bytes of the blocks put into the cache, after compression and with headers.
    pub packed_bytes: u64,
    /// Blocks without space.
    pub no_room: u64,
    /// Metadata pages read and written.
    pub metadata_operations: u64,
    /// Counters of frames.
    pub frames: Frames,
}

impl Outcome {
    /// Hits over blocks read.
    #[must_use]
    pub fn read_hit_ratio(&self) -> f64 {
        if self.reads == 0 { 0.0 } else { self.read_hits as f64 / self.reads as f64 }
    }
}

/// State of a line.
#[derive(Debug, Clone, Copy)]
struct Line {
    block: u64,
    valid: bool,
}

/// Pages of metadata in DRAM, the least recently used out first (4.7).
struct MetadataCache {
    pages_max: usize,
    uses: u64,
    /// Time of the last use of a page, and its dirty state.
    pages: Map<u64, (u64, bool)>,
    by_use: BTreeMap<u64, u64>,
}

impl MetadataCache {
    fn new(pages_max: usize) -> Self {
        Self { pages_max, uses: 0, pages: Map::default(), by_use: BTreeMap::new() }
    }

    /// Operations of the device: the page comes in if it was not here, and one that was changed goes out for it.
    fn access(&mut self, page: u64, changes: bool) -> u64 {
        self.uses += 1;
        let before = self.pages.insert(page, (self.uses, changes));
        self.by_use.insert(self.uses, page);
        if let Some((used, changed)) = before {
            self.by_use.remove(&used);
            self.pages.insert(page, (self.uses, changed || changes));
            return 0;
        }
        if self.pages.len() <= self.pages_max {
            return 1;
        }
        let oldest = self.by_use.pop_first().and_then(|(_, page)| self.pages.remove(&page));
        1 + u64::from(oldest.is_some_and(|(_, changed)| changed))
    }
}

/// The cache while it runs.
pub(crate) struct Cache<'a> {
    trace: &'a Trace,
    settings: Settings,
    lines: Vec<Line>,
    store: Option<Store>,
    metadata: Option<MetadataCache>,
    held: Map<u64, ContentId>,
    outcome: Outcome,
}

/// Runs a trace through the cache.
///
/// # Panics
/// If the device is smaller than a frame.
#[must_use]
pub fn run(trace: &Trace, settings: Settings) -> Outcome {
    let mut cache = Cache::new(trace, settings);
    for (number, step) in trace.steps.iter().enumerate() {
        if zc_core::u64_from_usize(number) == settings.warm_requests {
            cache.outcome = Outcome::default();
            cache.store.iter_mut().for_each(|store| store.frames = Frames::default());
        }
        cache.step(step);
    }
    cache.finish()
}

impl<'a> Cache<'a> {
    /// An empty cache.
    pub(crate) fn new(trace: &'a Trace, settings: Settings) -> Self {
        let room = settings.device_bytes / u64::from(BLOCK_BYTES);
        let compressed = !matches!(settings.codec, Codec::Raw);
        #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a small multiple of it")]
        let lines = if compressed { (room as f64 * settings.overbooking.max(1.0)) as u64 } else { room };
        let count = usize_from_u64(lines.max(1));
        let pages =
            settings.metadata_cache_bytes.map(|bytes| usize_from_u64(bytes / METADATA_PAGE_BYTES).max(1));
        Self {
            trace,
            settings,
            lines: vec![Line { block: 0, valid: false }; count],
            store: compressed.then(|| Store::new(settings.device_bytes, settings.packing, count)),
            metadata: pages.map(MetadataCache::new),
            held: Map::default(),
            outcome: Outcome::default(),
        }
    }

    /// Counts so far.
    pub(crate) fn counts(&self) -> Outcome {
        let frames = self.store.as_ref().map_or(self.outcome.frames, |store| store.frames);
        Outcome { frames, ..self.outcome }
    }

    fn finish(mut self) -> Outcome {
        if let Some(store) = &mut self.store {
            store.finish();
            debug_assert_eq!(store.check(), Ok(()));
            self.outcome.frames = store.frames;
            self.outcome.ssd_written_bytes =
                store.frames.written * u64::from(self.settings.packing.frame_bytes);
            self.outcome.ssd_read_bytes = store.frames.read * u64::from(self.settings.packing.frame_bytes);
        }
        self.outcome
    }

    /// Takes a request in.
    pub(crate) fn step(&mut self, step: &Step) {
        self.outcome.requests += 1;
        if let Some(store) = &mut self.store {
            store.request(step.time_ms());
        }
        for number in 0..step.blocks {
            let block = block_key(step.volume, step.first_block + u64::from(number));
            match step.op {
                Op::Read | Op::Access => self.read(block),
                Op::Write => {
                    let content = self.trace.written[usize_from_u32(step.contents_at + number)];
                    self.held.insert(block, content);
                    self.outcome.writes += 1;
                    self.put(block);
                }
                Op::Discard => {
                    self.held.insert(block, ContentId::ZERO);
                    self.drop_block(block);
                }
                Op::Flush => {}
            }
        }
    }

    /// Returns the line of a block (direct-mapped), and reads or changes its metadata.
    fn line(&mut self, block: u64, changes: bool) -> usize {
        let at = block % zc_core::u64_from_usize(self.lines.len());
        if let Some(metadata) = &mut self.metadata {
            self.outcome.metadata_operations +=
                metadata.access(at * METADATA_PER_LINE / METADATA_PAGE_BYTES, changes);
        }
        usize_from_u64(at)
    }

    fn read(&mut self, block: u64) {
        self.outcome.reads += 1;
        let at = self.line(block, false);
        let line = self.lines[at];
        if !(line.valid && line.block == block) {
            return self.put(block);
        }
        self.outcome.read_hits += 1;
        match &mut self.store {
            Some(store) => store.read(at),
            None => self.outcome.ssd_read_bytes += u64::from(BLOCK_BYTES),
        }
    }

    /// A fill or a write through: whatever the line held is gone.
    fn put(&mut self, block: u64) {
        let at = self.line(block, true);
        let unknown = ContentId::unique(u32::try_from(block % (1 << 31)).unwrap_or(0));
        let content = self.held.get(&block).or_else(|| self.trace.initial.get(&block)).copied();
        self.outcome.put_bytes += u64::from(BLOCK_BYTES);
        let fits = match &mut self.store {
            Some(store) => {
                let ids = [content.unwrap_or(unknown)];
                let size = self.trace.contents.compressed_bytes(&ids, self.settings.codec);
                let size = size.min(BLOCK_BYTES) + store::HEADER_BYTES;
                self.outcome.packed_bytes += u64::from(size);
                store.put(at, size)
            }
            None => {
                self.outcome.ssd_written_bytes += u64::from(BLOCK_BYTES);
                true
            }
        };
        self.outcome.no_room += u64::from(!fits);
        self.lines[at] = Line { block, valid: fits };
    }

    fn drop_block(&mut self, block: u64) {
        let at = self.line(block, true);
        if self.lines[at].valid && self.lines[at].block == block {
            self.lines[at].valid = false;
            self.store.iter_mut().for_each(|store| store.forget(at));
        }
    }
}

#[cfg(test)]
mod tests;
