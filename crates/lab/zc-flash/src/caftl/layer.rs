//! CaFTL's write path and read path: chunks, which of them are compressed, and how many flash pages that takes.
//!
//! Invariants: a logical page has one newest place, in the write buffer or in a chunk; the chunk table's count of a
//! chunk is the number of pages whose newest version it holds.

use std::collections::VecDeque;

use zc_core::{Map, u64_from_usize};

use super::{CHUNK_PAGES, DICTIONARY_ENTRIES, HEADER_BYTES, PAGE_BYTES, codec};

/// Chunks that the read buffer holds.
const READ_BUFFER_CHUNKS: usize = 4;
/// Streams that the filtering table holds.
const STREAMS_MAX: usize = 20;
/// Incompressible chunks of a stream after which it is no longer compressed.
const STREAM_THRESHOLD: u32 = 4;

/// Selection of chunks to compress.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Mode {
    /// Nothing: the paper's baseline.
    Baseline,
    /// Everything.
    Always,
    /// Chunks outside of sequential streams that were incompressible before.
    Selective,
}

/// Counters.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Counts {
    /// Pages the host wrote.
    pub host_writes: u64,
    /// Pages the host read.
    pub host_reads: u64,
    /// Flash pages programmed.
    pub programs: u64,
    /// Flash pages read.
    pub reads: u64,
    /// Chunks written compressed, and not.
    pub compressed: u64,
    /// Chunks written as they are.
    pub plain: u64,
    /// Chunks decompressed.
    pub decompressed: u64,
}

/// An entry of the chunk table. The paper's has 3 + 4 + 1 bits, for each flash page.
#[derive(Debug, Clone, Copy)]
struct Chunk {
    valid: u8,
    pages: u8,
    compressed: bool,
}

/// A sequential stream that does not compress.
#[derive(Debug, Clone, Copy)]
struct Stream {
    last: u64,
    count: u32,
}

/// The layer.
#[derive(Debug)]
pub struct Layer {
    mode: Mode,
    entries: u32,
    buffer: Vec<(u64, Vec<u8>)>,
    map: Map<u64, usize>,
    chunks: Vec<Chunk>,
    /// Least recently used first.
    read_buffer: VecDeque<usize>,
    streams: Vec<Stream>,
    counts: Counts,
}

impl Layer {
    /// A new device.
    #[must_use]
    pub fn new(mode: Mode) -> Self {
        Self {
            mode,
            entries: DICTIONARY_ENTRIES,
            buffer: Vec::new(),
            map: Map::default(),
            chunks: Vec::new(),
            read_buffer: VecDeque::new(),
            streams: Vec::new(),
            counts: Counts::default(),
        }
    }

    /// Returns the counters.
    #[must_use]
    pub const fn counts(&self) -> Counts {
        self.counts
    }

    /// Writes a page.
    pub fn write(&mut self, page: u64, data: &[u8]) {
        self.counts.host_writes += 1;
        if self.mode == Mode::Baseline {
            self.supersede(page);
            self.store(&[page], 1, false);
            return;
        }
        if let Some(waiting) = self.buffer.iter_mut().find(|(other, _)| *other == page) {
            data.clone_into(&mut waiting.1);
            return;
        }
        self.supersede(page);
        self.buffer.push((page, data.to_vec()));
        if self.buffer.len() == CHUNK_PAGES {
            self.flush();
        }
    }

    /// Flushes the write buffer.
    pub fn flush(&mut self) {
        let waiting = std::mem::take(&mut self.buffer);
        let Some((first, _)) = waiting.first() else { return };
        let pages: Vec<u64> = waiting.iter().map(|(page, _)| *page).collect();
        let sequential = pages.iter().zip(*first..).all(|(page, next)| *page == next);
        let plain = waiting.len();
        if self.mode == Mode::Selective && sequential && self.is_filtered(&pages) {
            self.store(&pages, plain, false);
            return;
        }
        let mut bytes = Vec::with_capacity(plain * PAGE_BYTES + HEADER_BYTES);
        for (_, data) in &waiting {
            assert_eq!(data.len(), PAGE_BYTES, "a page is whole");
            bytes.extend_from_slice(data);
        }
        // The header, four bytes per page, comes last: its few bytes would be poor patterns for the data.
        pages.iter().for_each(|page| bytes.extend(u32::try_from(*page).unwrap_or(u32::MAX).to_be_bytes()));
        let encoded = codec::encode(&bytes, self.entries).len();
        if encoded > plain * PAGE_BYTES && sequential {
            self.did_not_compress(&pages);
        }
        self.store(&pages, encoded.div_ceil(PAGE_BYTES), true);
    }

    /// Returns `true` if these continue a stream that is known not to compress; then the stream ends with them.
    fn is_filtered(&mut self, pages: &[u64]) -> bool {
        let (Some(first), Some(last)) = (pages.first(), pages.last()) else { return false };
        let known = |stream: &&mut Stream| stream.last + 1 == *first && stream.count >= STREAM_THRESHOLD;
        let stream = self.streams.iter_mut().find(known);
        let filtered = stream.is_some();
        if let Some(stream) = stream {
            stream.last = *last;
        }
        filtered
    }

    fn did_not_compress(&mut self, pages: &[u64]) {
        let (Some(first), Some(last)) = (pages.first(), pages.last()) else { return };
        if let Some(stream) = self.streams.iter_mut().find(|stream| stream.last + 1 == *first) {
            *stream = Stream { last: *last, count: stream.count + 1 };
            return;
        }
        if self.streams.len() == STREAMS_MAX {
            let weakest = (0..STREAMS_MAX).min_by_key(|at| self.streams[*at].count).unwrap_or(0);
            self.streams.swap_remove(weakest);
        }
        self.streams.push(Stream { last: *last, count: 0 });
    }

    fn supersede(&mut self, page: u64) {
        if let Some(old) = self.map.remove(&page) {
            self.chunks[old].valid -= 1;
        }
    }

    fn store(&mut self, pages: &[u64], flash_pages: usize, compressed: bool) {
        let number = self.chunks.len();
        let count = |n: usize| u8::try_from(n).unwrap_or(u8::MAX);
        self.chunks.push(Chunk { valid: count(pages.len()), pages: count(flash_pages), compressed });
        pages.iter().for_each(|page| {
            self.map.insert(*page, number);
        });
        self.counts.programs += u64_from_usize(flash_pages);
        self.counts.compressed += u64::from(compressed);
        self.counts.plain += u64::from(!compressed);
    }

    /// Reads a page; returns `true` if it was ever written. A compressed chunk is read whole; an uncompressed one by
    /// page.
    pub fn read(&mut self, page: u64) -> bool {
        self.counts.host_reads += 1;
        if self.buffer.iter().any(|(other, _)| *other == page) {
            return true;
        }
        let Some(number) = self.map.get(&page).copied() else { return false };
        let chunk = self.chunks[number];
        if !chunk.compressed {
            self.counts.reads += 1;
            return true;
        }
        if let Some(at) = self.read_buffer.iter().position(|held| *held == number) {
            self.read_buffer.remove(at);
        } else {
            self.counts.reads += u64::from(chunk.pages);
            self.counts.decompressed += 1;
            if self.read_buffer.len() == READ_BUFFER_CHUNKS {
                self.read_buffer.pop_front();
            }
        }
        self.read_buffer.push_back(number);
        true
    }

    /// For tests: the chunk table agrees with the map.
    #[cfg(test)]
    fn check(&self) {
        let mut valid = vec![0_u8; self.chunks.len()];
        self.map.values().for_each(|number| valid[*number] += 1);
        assert_eq!(valid, self.chunks.iter().map(|chunk| chunk.valid).collect::<Vec<_>>());
    }
}

#[cfg(test)]
mod tests {
    use super::super::corpus::{Kind, make};
    use super::*;

    fn fill(layer: &mut Layer, pages: std::ops::Range<u64>) {
        pages.for_each(|page| layer.write(page, &make(Kind::Mp3, PAGE_BYTES, page)));
    }

    #[test]
    fn zeroes_take_a_page_per_chunk() {
        let mut layer = Layer::new(Mode::Selective);
        (0..8).for_each(|page| layer.write(page, &[0; PAGE_BYTES]));
        assert_eq!((layer.counts().programs, layer.counts().compressed), (2, 2));
        assert!((0..8).all(|page| layer.read(page)) && !layer.read(8));
        assert_eq!((layer.counts().reads, layer.counts().decompressed), (2, 2));
        layer.check();
    }

    #[test]
    fn a_page_is_in_its_newest_place_only() {
        let mut layer = Layer::new(Mode::Always);
        (0..4).for_each(|page| layer.write(page, &[1; PAGE_BYTES]));
        [1, 1, 2, 9].into_iter().for_each(|page| layer.write(page, &[2; PAGE_BYTES]));
        assert_eq!((layer.counts().host_writes, layer.counts().compressed), (8, 1));
        assert!(layer.read(1));
        assert_eq!(layer.counts().reads, 0, "it waits in the write buffer");
        layer.check();
        layer.flush();
        layer.check();
        assert_eq!((layer.chunks[0].valid, layer.chunks[1].valid), (2, 3));
    }

    #[test]
    fn streams_that_do_not_compress_are_left_alone_after_a_while() {
        let mut always = Layer::new(Mode::Always);
        let mut selective = Layer::new(Mode::Selective);
        fill(&mut always, 0..400);
        fill(&mut selective, 0..400);
        assert_eq!((always.counts().programs, always.counts().plain), (500, 0));
        // The first chunk is noted, four more are counted.
        assert_eq!((selective.counts().compressed, selective.counts().plain), (5, 95));
        assert_eq!(selective.counts().programs, 405);
        // Elsewhere it is another stream.
        fill(&mut selective, 1000..1004);
        assert_eq!(selective.counts().compressed, 6);
        let mut random = Layer::new(Mode::Selective);
        (0..100).for_each(|page| random.write(page * 7, &make(Kind::Mp3, PAGE_BYTES, page)));
        assert_eq!(random.counts().plain, 0, "only sequential streams are filtered");
    }

    #[test]
    fn the_table_forgets_the_weakest_stream() {
        let mut layer = Layer::new(Mode::Selective);
        fill(&mut layer, 0..8);
        (1..=21).for_each(|stream| fill(&mut layer, stream * 1000..stream * 1000 + 4));
        assert_eq!(layer.streams.len(), STREAMS_MAX);
        assert!(
            layer.streams.iter().any(|stream| stream.last == 7),
            "it was counted once more than the others"
        );
    }

    #[test]
    fn the_read_buffer_holds_four_chunks() {
        let mut layer = Layer::new(Mode::Always);
        (0..20).for_each(|page| layer.write(page, &[0; PAGE_BYTES]));
        for page in [0, 4, 8, 12, 0, 16, 1, 4] {
            layer.read(page);
        }
        assert_eq!(layer.counts().decompressed, 6);
    }
}
