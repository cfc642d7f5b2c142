//! Sequential streams: detection for reads and writes, and the read-ahead distance (Nitro 3: a stream is sequential
//! when its consecutive bytes accessed exceed a threshold, many streams at a time, read-ahead of up to 128 KiB).
//!
//! A stream is a gapless range of one volume: everything from its start to its *front* was accessed. A request belongs
//! to the stream with the nearest front within reach of requests in flight: [`REORDER_REQUESTS`] requests of its size.
//! An early request is kept as a range after a gap; a repeated or late one changes nothing. When a gap stays open the
//! stream skips it and halves its count of consecutive bytes: an occasional gap does not end a stream, but strided
//! access never becomes one.
//!
//! Prefetching starts when the consecutive bytes reach the threshold, with twice the size of the request, and doubles
//! up to its maximum. The next range is requested when half of the last one is used, and no byte is requested twice.
//!
//! Bounds: `streams_max` streams. Established ones are protected in at most half of the table, so that random access
//! does not evict them and they do not prevent the detection of new ones.
//!
//! A table of descending streams holds mirrored addresses, in which they ascend.
//!
//! Out of scope: alignment to extents, the size of a volume, and cached contents.

use core::ops::Range;

use zc_core::VolumeId;

/// Requests of a sequential stream that may be in flight at once, and so be reordered.
const REORDER_REQUESTS: u64 = 8;
/// Maximum distance of a request from its stream's front, in bytes.
const REACH_BYTES_MAX: u64 = 8 << 20;
/// Maximum ranges after gaps per stream.
const EARLY_MAX: usize = 8;
/// First ID of descending streams, which separates them from ascending ones.
const DESCENDING_IDS: u64 = 1 << 63;

/// Settings of a [`StreamTable`].
#[derive(Debug, Clone, Copy)]
pub(crate) struct StreamConfig {
    /// Streams tracked at once.
    pub(crate) streams_max: usize,
    /// Consecutive bytes from which a stream is sequential.
    pub(crate) threshold_bytes: u64,
    /// Maximum prefetch; 0 disables it.
    pub(crate) prefetch_max_bytes: u64,
}

/// ID of a stream, never reused within a table.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct StreamId(u64);

/// A sequential stream at the time of one of its requests.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct InStream {
    pub(crate) id: StreamId,
    /// Consecutive bytes accessed, including the request.
    pub(crate) run_bytes: u64,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct StreamVerdict {
    /// The sequential stream, if it is part of one.
    pub(crate) stream: Option<InStream>,
    /// Range to prefetch now, which may extend beyond the volume.
    pub(crate) prefetch: Option<Range<u64>>,
}

#[derive(Debug)]
struct Stream {
    id: StreamId,
    /// End of the gapless range.
    front: u64,
    run_bytes: u64,
    /// Ranges accessed after gaps, ascending and disjoint.
    early: Vec<Range<u64>>,
    /// End of the prefetched bytes.
    asked_end: u64,
    /// Size of the next prefetch; 0 before the first.
    window_bytes: u64,
}

/// The fields needed by the search, in an array of their own: each random read scans all of them.
#[derive(Debug, Clone, Copy)]
struct Mark {
    volume: VolumeId,
    established: bool,
    front: u64,
    /// End of the accessed bytes, with or without gaps.
    end: u64,
    used: u64,
}

impl Mark {
    /// Distance of a request from the stream's front; `None` if it is not part of the stream.
    fn distance(&self, volume: VolumeId, start: u64, reach: u64) -> Option<u64> {
        let near = self.volume == volume
            && start <= self.end.saturating_add(reach)
            && start.saturating_add(reach) >= self.front;
        near.then(|| start.abs_diff(self.front).min(start.abs_diff(self.end)))
    }
}

impl Stream {
    fn end(&self) -> u64 {
        self.early.last().map_or(self.front, |part| part.end)
    }

    const fn found(&self) -> InStream {
        InStream { id: self.id, run_bytes: self.run_bytes }
    }

    fn access(&mut self, range: Range<u64>, reach: u64) {
        let at = self.early.partition_point(|part| part.end < range.start);
        let mut part = range;
        while let Some(next) = self.early.get(at).filter(|next| next.start <= part.end) {
            part = part.start.min(next.start)..part.end.max(next.end);
            self.early.remove(at);
        }
        self.early.insert(at, part);
        self.advance();
        while self.early.len() > EARLY_MAX || self.end() - self.front > reach {
            self.run_bytes /= 2;
            self.front = self.early[0].start;
            self.advance();
        }
    }

    /// Advances the front over the early ranges that it has reached.
    fn advance(&mut self) {
        while let Some(part) = self.early.first().filter(|part| part.start <= self.front).cloned() {
            self.run_bytes += part.end.saturating_sub(self.front);
            self.front = self.front.max(part.end);
            self.early.remove(0);
        }
    }

    /// Returns the next range to prefetch, if it is due.
    fn read_ahead(&mut self, len_bytes: u64, max_bytes: u64) -> Option<Range<u64>> {
        if self.window_bytes == 0 {
            self.window_bytes = len_bytes.saturating_mul(2).min(max_bytes);
        }
        let end = self.end().saturating_add(self.window_bytes);
        let start = self.asked_end.max(self.end());
        if end.saturating_sub(start) < self.window_bytes.div_ceil(2).max(1) {
            return None;
        }
        self.asked_end = end;
        self.window_bytes = self.window_bytes.saturating_mul(2).min(max_bytes);
        Some(start..end)
    }
}

#[derive(Debug)]
pub(crate) struct StreamTable {
    config: StreamConfig,
    streams: Vec<Stream>,
    marks: Vec<Mark>,
    uses: u64,
}

impl StreamTable {
    pub(crate) const fn new(config: StreamConfig) -> Self {
        Self { config, streams: Vec::new(), marks: Vec::new(), uses: 0 }
    }

    pub(crate) const fn descending(config: StreamConfig) -> Self {
        Self { config, streams: Vec::new(), marks: Vec::new(), uses: DESCENDING_IDS }
    }

    /// Records a read in a table of descending streams. Returns its stream.
    pub(crate) fn on_descending_read(
        &mut self,
        volume: VolumeId,
        offset_bytes: u64,
        len_bytes: u64,
    ) -> Option<InStream> {
        let mirrored = u64::MAX - offset_bytes.saturating_add(len_bytes);
        self.access(volume, mirrored, len_bytes).map(|stream| stream.found())
    }

    /// Records a read. Returns its stream and the range to prefetch.
    pub(crate) fn on_read(&mut self, volume: VolumeId, offset_bytes: u64, len_bytes: u64) -> StreamVerdict {
        let max_bytes = self.config.prefetch_max_bytes;
        let Some(stream) = self.access(volume, offset_bytes, len_bytes) else {
            return StreamVerdict { stream: None, prefetch: None };
        };
        let prefetch = if max_bytes > 0 { stream.read_ahead(len_bytes, max_bytes) } else { None };
        StreamVerdict { stream: Some(stream.found()), prefetch }
    }

    /// Records a write. Returns its sequential stream.
    pub(crate) fn on_write(
        &mut self,
        volume: VolumeId,
        offset_bytes: u64,
        len_bytes: u64,
    ) -> Option<InStream> {
        self.access(volume, offset_bytes, len_bytes).map(|stream| stream.found())
    }

    fn access(&mut self, volume: VolumeId, start: u64, len_bytes: u64) -> Option<&mut Stream> {
        if self.config.streams_max == 0 || len_bytes == 0 {
            return None;
        }
        self.uses += 1;
        let reach = len_bytes.saturating_mul(REORDER_REQUESTS).min(REACH_BYTES_MAX).max(len_bytes);
        let end = start.saturating_add(len_bytes);
        let marks = self.marks.iter().enumerate();
        let nearest = marks
            .filter_map(|(index, mark)| Some((mark.distance(volume, start, reach)?, index)))
            .min_by_key(|(distance, _)| *distance);
        let index = match nearest {
            Some((_, index)) => {
                self.streams[index].access(start..end, reach);
                index
            }
            None => self.start(start..end),
        };
        let stream = &mut self.streams[index];
        let established = stream.run_bytes >= self.config.threshold_bytes;
        let mark = Mark { volume, established, front: stream.front, end: stream.end(), used: self.uses };
        if index == self.marks.len() {
            self.marks.push(mark);
        } else {
            self.marks[index] = mark;
        }
        established.then_some(stream)
    }

    /// Begins a stream, replacing another one if the table is full; the caller writes its mark.
    fn start(&mut self, range: Range<u64>) -> usize {
        let stream = Stream {
            id: StreamId(self.uses),
            front: range.end,
            run_bytes: range.end - range.start,
            early: Vec::new(),
            asked_end: 0,
            window_bytes: 0,
        };
        if self.streams.len() < self.config.streams_max {
            self.streams.push(stream);
            return self.streams.len() - 1;
        }
        let crowded = self.marks.iter().filter(|mark| mark.established).count() * 2 > self.marks.len();
        let leaving = self.marks.iter().enumerate().filter(|(_, mark)| mark.established == crowded);
        let index = leaving.min_by_key(|(_, mark)| mark.used).map_or(0, |(index, _)| index);
        self.streams[index] = stream;
        index
    }
}

#[cfg(test)]
#[path = "streams_tests.rs"]
mod tests;
