//! Frames of compressed blocks: the buffer in which they are filled, and the cleaner.
//!
//! A block is put into the fullest frame of the buffer with enough space (buckets by free space, the last used first);
//! without one, a free frame joins the buffer. A frame moves from the buffer to the device when it is full, when it
//! exceeds the age, or when the buffer is full and it is the least recently used. Blocks on the device are never
//! changed: the old place of an overwritten block is dead.

use std::collections::VecDeque;

use zc_core::{u64_from_usize, usize_from_u32, usize_from_u64};
use zc_policy::{Kind, Policy};

/// Bytes beside a block in a frame: number, size, next (2.2.1: below 0.6 % of a block that saves 40 %).
pub(super) const HEADER_BYTES: u32 = 14;
/// Head of a frame: the first block and the free space.
const FRAME_HEADER_BYTES: u32 = 16;
/// Classes of free space.
const BUCKETS: u32 = 16;
/// A frame with less space than this is full: only the most compressible blocks would fit.
const FULL_BYTES: u32 = 512;
/// The cleaner does not start for less than this share of the device: that much is lost at the ends of frames. Not from
/// the paper.
const GAIN_MIN: f64 = 0.08;
/// No frame.
const NONE: u32 = u32::MAX;

/// When the cleaner works.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Cleaner {
    /// Share of free frames below which the cleaner starts.
    pub low: f64,
    /// Share of free frames above which the cleaner stops.
    pub high: f64,
    /// Bytes that are scanned at once.
    pub scan_bytes: u32,
}

/// Packing of blocks.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Packing {
    /// Size of a frame.
    pub frame_bytes: u32,
    /// Frames in the buffer.
    pub buffer_frames: usize,
    /// The longest that a frame stays there, in milliseconds.
    pub age_ms: u64,
    /// The cleaner; without one, blocks have no space when no frame is free.
    pub cleaner: Option<Cleaner>,
}

impl Default for Packing {
    /// 32 KiB (4.4), a small number of frames (2.2.3), 2 MiB at once (2.2.4), 10 and 20 % (4.5). The age is not from
    /// the paper.
    fn default() -> Self {
        let cleaner = Cleaner { low: 0.1, high: 0.2, scan_bytes: 2 << 20 };
        Self { frame_bytes: 32 << 10, buffer_frames: 64, age_ms: 1000, cleaner: Some(cleaner) }
    }
}

/// Counters of frames.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Frames {
    /// Read from the device for hits.
    pub read: u64,
    /// Hits in the buffer.
    pub buffered: u64,
    /// Written to the device, full or not.
    pub written: u64,
    /// Bytes that those had no use for.
    pub wasted_bytes: u64,
    /// Times the cleaner started.
    pub cleanings: u64,
    /// Frames that the cleaner read.
    pub cleaner_read: u64,
    /// Frames that the cleaner wrote.
    pub cleaner_written: u64,
}

#[derive(Debug, Default, Clone)]
struct Frame {
    /// Line and size of every block, the newest last.
    blocks: Vec<(u32, u32)>,
    used: u32,
    live: u32,
    open: bool,
    since_ms: u64,
    /// The last time that a block was appended or read, in the order of those.
    used_at: u64,
}

/// Frames on the device and in the buffer.
#[derive(Debug)]
pub(super) struct Store {
    packing: Packing,
    all: Vec<Frame>,
    free: VecDeque<u32>,
    /// Frame of each line's block.
    place: Vec<u32>,
    /// Open frames by free space; the last used stands last.
    buckets: Vec<Vec<u32>>,
    open: usize,
    uses: u64,
    /// Frames in DRAM after a read.
    recent: Box<dyn Policy>,
    hand: u32,
    /// `true` if the cleaner is between its marks.
    active: bool,
    /// Size of every line's block, and of all together.
    sizes: Vec<u32>,
    live_bytes: u64,
    now_ms: u64,
    /// Counters.
    pub(super) frames: Frames,
}

impl Store {
    pub(super) fn new(device_bytes: u64, packing: Packing, lines: usize) -> Self {
        let count = u32::try_from(device_bytes / u64::from(packing.frame_bytes)).unwrap_or(NONE - 1);
        assert!(count > 0, "the device has room for a frame");
        Self {
            packing,
            all: vec![Frame::default(); usize_from_u32(count)],
            free: (0..count).collect(),
            place: vec![NONE; lines],
            buckets: vec![Vec::new(); usize_from_u32(BUCKETS)],
            open: 0,
            uses: 0,
            recent: Kind::Lru.build(packing.buffer_frames.max(1), Vec::new),
            hand: 0,
            active: false,
            sizes: vec![0; lines],
            live_bytes: 0,
            now_ms: 0,
            frames: Frames::default(),
        }
    }

    /// A request comes: frames that are too old leave the buffer, and the cleaner has its turn.
    pub(super) fn request(&mut self, now_ms: u64) {
        if now_ms > self.now_ms {
            self.now_ms = now_ms;
            let old: Vec<u32> = self.buckets.iter().flatten().copied().filter(|&f| self.is_old(f)).collect();
            old.into_iter().for_each(|frame| self.close(frame));
        }
        self.clean();
    }

    fn is_old(&self, frame: u32) -> bool {
        self.now_ms - self.frame(frame).since_ms > self.packing.age_ms
    }

    /// Everything that is open goes to the device.
    pub(super) fn finish(&mut self) {
        let open: Vec<u32> = self.buckets.iter().flatten().copied().collect();
        open.into_iter().for_each(|frame| self.close(frame));
    }

    fn frame(&self, number: u32) -> &Frame {
        &self.all[usize_from_u32(number)]
    }

    fn frame_mut(&mut self, number: u32) -> &mut Frame {
        &mut self.all[usize_from_u32(number)]
    }

    const fn room(&self, used: u32) -> u32 {
        self.packing.frame_bytes.saturating_sub(FRAME_HEADER_BYTES + used)
    }

    /// Returns the bucket of a number of free bytes; higher ones have more.
    fn bucket(&self, free: u32) -> usize {
        let class = u64::from(free) * u64::from(BUCKETS) / u64::from(self.packing.frame_bytes);
        usize_from_u64(class.min(u64::from(BUCKETS - 1)))
    }

    /// The line's block is read.
    pub(super) fn read(&mut self, line: usize) {
        let frame = self.place[line];
        if frame == NONE {
            return;
        }
        self.touch(frame);
        if self.recent.access(u64::from(frame)) || self.frame(frame).open {
            self.frames.buffered += 1;
        } else {
            self.frames.read += 1;
        }
    }

    fn touch(&mut self, frame: u32) {
        self.uses += 1;
        self.frame_mut(frame).used_at = self.uses;
    }

    /// The line's block is dead.
    pub(super) fn forget(&mut self, line: usize) {
        let number = std::mem::replace(&mut self.place[line], NONE);
        if number != NONE {
            self.frame_mut(number).live -= 1;
            self.live_bytes -= u64::from(self.sizes[line]);
        }
    }

    /// Puts a block of `bytes` bytes, header included; returns `true` if it fits.
    pub(super) fn put(&mut self, line: usize, bytes: u32) -> bool {
        self.forget(line);
        let Some(frame) = self.frame_for(bytes) else { return false };
        self.append(frame, line, bytes);
        true
    }

    fn append(&mut self, number: u32, line: usize, bytes: u32) {
        let Ok(key) = u32::try_from(line) else { unreachable!("a device has fewer lines than 2^32") };
        let before = self.bucket(self.room(self.frame(number).used));
        self.place[line] = number;
        self.sizes[line] = bytes;
        self.live_bytes += u64::from(bytes);
        let frame = self.frame_mut(number);
        frame.blocks.push((key, bytes));
        frame.used += bytes;
        frame.live += 1;
        self.touch(number);
        let left = self.room(self.frame(number).used);
        let after = self.bucket(left);
        if left < FULL_BYTES {
            self.close(number);
        } else if before != after {
            self.buckets[before].retain(|other| *other != number);
            self.buckets[after].push(number);
        }
    }

    /// Returns the fullest open frame with enough space, or a free one.
    fn frame_for(&mut self, bytes: u32) -> Option<u32> {
        let class = self.bucket(bytes);
        let fits = |number: &&u32| self.room(self.frame(**number).used) >= bytes;
        let found = self.buckets[class..].iter().find_map(|bucket| bucket.iter().rev().find(fits));
        if let Some(number) = found {
            return Some(*number);
        }
        if self.open >= self.packing.buffer_frames.max(1) {
            let open = self.buckets.iter().flatten().copied();
            let least_recent = open.min_by_key(|number| self.frame(*number).used_at);
            least_recent.into_iter().for_each(|number| self.close(number));
        }
        let number = self.free.pop_front()?;
        let since_ms = self.now_ms;
        *self.frame_mut(number) = Frame { open: true, since_ms, ..Frame::default() };
        let class = self.bucket(self.room(0));
        self.buckets[class].push(number);
        self.open += 1;
        Some(number)
    }

    /// A frame goes to the device.
    fn close(&mut self, number: u32) {
        self.buckets.iter_mut().for_each(|bucket| bucket.retain(|other| *other != number));
        self.frame_mut(number).open = false;
        self.open -= 1;
        self.frames.written += 1;
        self.frames.wasted_bytes += u64::from(self.room(self.frame(number).used));
    }

    /// One scan, between the low mark and the high one, if there is enough to gain.
    fn clean(&mut self) {
        let Some(cleaner) = self.packing.cleaner else { return };
        let all = self.all.len() as f64;
        let free = self.free.len() as f64 / all;
        let held = (all - self.free.len() as f64) * f64::from(self.packing.frame_bytes);
        let gain = (held - self.live_bytes as f64) / (all * f64::from(self.packing.frame_bytes));
        let was_active = self.active;
        self.active = gain >= GAIN_MIN && free < if was_active { cleaner.high } else { cleaner.low };
        if !self.active {
            return;
        }
        self.frames.cleanings += u64::from(!was_active);
        self.clean_window(usize_from_u32((cleaner.scan_bytes / self.packing.frame_bytes).max(1)));
    }

    /// Compacts the live blocks of the next frames into as few of them as they need, the largest first (2.2.4).
    fn clean_window(&mut self, window: usize) {
        let mut scanned = Vec::new();
        let mut blocks = Vec::new();
        for _ in 0..window.min(self.all.len()) {
            let number = self.hand;
            self.hand = (self.hand + 1) % u32::try_from(self.all.len()).unwrap_or(NONE);
            let frame = self.frame(number);
            if frame.open || frame.blocks.is_empty() {
                continue;
            }
            scanned.push(number);
            blocks.extend(self.live(number));
        }
        self.frames.cleaner_read += u64_from_usize(scanned.len());
        blocks.sort_by_key(|(line, bytes)| (std::cmp::Reverse(*bytes), *line));
        let packed = self.first_fit(&blocks);
        if packed.len() >= scanned.len() {
            // Nothing to gain: everything stays where it is.
            return;
        }
        self.frames.cleaner_written += u64_from_usize(packed.len());
        let mut packed = packed.into_iter();
        for number in scanned {
            let blocks = packed.next().unwrap_or_default();
            if blocks.is_empty() {
                self.free.push_back(number);
            }
            blocks.iter().for_each(|(line, _)| self.place[usize_from_u32(*line)] = number);
            let used = blocks.iter().map(|(_, bytes)| bytes).sum();
            let live = u32::try_from(blocks.len()).unwrap_or(NONE);
            *self.frame_mut(number) = Frame { blocks, used, live, ..Frame::default() };
        }
    }

    /// Blocks of a frame that lines still point to: of equal lines the newest.
    fn live(&self, number: u32) -> Vec<(u32, u32)> {
        let mut seen = zc_core::Set::default();
        let newest_first = self.frame(number).blocks.iter().rev();
        let here = newest_first.filter(|(line, _)| self.place[usize_from_u32(*line)] == number);
        here.filter(|(line, _)| seen.insert(*line)).copied().collect()
    }

    fn first_fit(&self, blocks: &[(u32, u32)]) -> Vec<Vec<(u32, u32)>> {
        let mut packed: Vec<(u32, Vec<(u32, u32)>)> = Vec::new();
        for block in blocks {
            let room = |used: u32| self.room(used) >= block.1;
            if let Some((used, frame)) = packed.iter_mut().find(|(used, _)| room(*used)) {
                *used += block.1;
                frame.push(*block);
            } else {
                packed.push((block.1, vec![*block]));
            }
        }
        packed.into_iter().map(|(_, blocks)| blocks).collect()
    }

    /// Returns the first broken invariant, if any.
    pub(super) fn check(&self) -> Result<(), String> {
        let mut live = vec![0_u32; self.all.len()];
        for (line, number) in self.place.iter().enumerate().filter(|(_, number)| **number != NONE) {
            live[usize_from_u32(*number)] += 1;
            let key = u32::try_from(line).unwrap_or(NONE);
            if !self.frame(*number).blocks.iter().any(|(other, _)| *other == key) {
                return Err(format!("line {line} is not in frame {number}"));
            }
        }
        let placed = self.place.iter().zip(&self.sizes).filter(|(number, _)| **number != NONE);
        if placed.map(|(_, bytes)| u64::from(*bytes)).sum::<u64>() != self.live_bytes {
            return Err(format!("{} bytes are said to be live", self.live_bytes));
        }
        let open: usize = self.buckets.iter().map(Vec::len).sum();
        if open != self.open || self.all.iter().filter(|frame| frame.open).count() != open {
            return Err(format!("{open} frames in buckets, {} open", self.open));
        }
        for (number, frame) in self.all.iter().enumerate() {
            let bytes: u32 = frame.blocks.iter().map(|(_, bytes)| bytes).sum();
            if frame.live != live[number] || bytes != frame.used || frame.used > self.room(0) {
                return Err(format!("frame {number} holds {} live blocks of {}", live[number], frame.live));
            }
        }
        match self.free.iter().find(|number| !self.frame(**number).blocks.is_empty()) {
            Some(number) => Err(format!("frame {number} is free and holds blocks")),
            None => Ok(()),
        }
    }
}
