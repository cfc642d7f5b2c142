//! A trace in memory, prepared for the cache manager.
//!
//! Job: cut requests to blocks of 4 KiB, join split requests, number devices and contents, and find the initial
//! contents of each block: those of its first read, if it was not written before (the first pass of Nitro's simulator,
//! section 5.2). Blocks of unknown contents have unique ones.
//!
//! Consecutive lines of one block each, with one time and kind, are one request, and so are those marked as such.
//! Reads and writes are rounded out to whole blocks, discards in; the rounded ones are counted.
//!
//! Memory: 32 bytes per request, 4 per block written, about 20 per block of the footprint, 50 per content.

use std::hash::{BuildHasher as _, Hasher as _};
use std::sync::Arc;

use zc_core::{Codec, FixedHasher, Map, u64_from_usize};
use zc_trace::{Op, Request, TraceError};

use crate::content::{BLOCK_BYTES, CONTENTS_MAX, ContentId, Contents, Ratios};
use crate::error::ReplayError;

/// Requests of a trace in memory: 2 GiB of them.
pub const REQUESTS_MAX: usize = 1 << 26;
/// Devices.
const DEVICES_MAX: usize = zc_core::limits::VOLUMES_MAX as usize;
/// Blocks of a request that was joined of lines: 1 MiB.
const JOINED_MAX: u32 = 256;
/// Bits of a block's number in its volume: addresses have 62.
const BLOCK_BITS: u32 = 50;

/// One request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Step {
    pub(crate) time_us: u64,
    pub(crate) first_block: u64,
    pub(crate) blocks: u32,
    /// Of a write: start of its contents.
    pub(crate) contents_at: u32,
    pub(crate) volume: u16,
    pub(crate) op: Op,
}

impl Step {
    /// Time of the request, for users of milliseconds.
    pub(crate) const fn time_ms(&self) -> u64 {
        self.time_us / 1000
    }
}

/// Adaptations of a trace.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Fitted {
    /// Lines or records that were joined to the one before.
    pub joined: u64,
    /// Requests that did not begin or end at a block.
    pub rounded: u64,
    /// Blocks whose read contents differ from the last write or read. Written contents prevail.
    pub differing: u64,
}

/// A trace in memory.
#[derive(Debug)]
pub struct Trace {
    pub(crate) steps: Vec<Step>,
    pub(crate) written: Vec<ContentId>,
    /// Initial contents of blocks.
    pub(crate) initial: Map<u64, ContentId>,
    pub(crate) contents: Arc<Contents>,
    /// First free content number.
    pub(crate) next_unique: u32,
    /// End of each volume, in bytes.
    pub(crate) spans: Vec<u64>,
    /// Adaptations of the trace.
    pub fitted: Fitted,
    /// Share of a volume's addresses that is in the trace: 1, unless it is a sample ([`Trace::is_sample_of`]).
    pub(crate) rate: f64,
}

/// The key of a block.
pub(crate) const fn block_key(volume: u16, block: u64) -> u64 {
    (volume as u64) << BLOCK_BITS | block
}

/// Volume and number of the block that has this key.
pub(crate) fn split_key(key: u64) -> (u16, u64) {
    (u16::try_from(key >> BLOCK_BITS).unwrap_or(u16::MAX), key & ((1 << BLOCK_BITS) - 1))
}

struct Loader {
    trace: Trace,
    contents: Contents,
    devices: Map<u32, u16>,
    /// Present contents of blocks.
    state: Map<u64, ContentId>,
    /// Time of the last step in nanoseconds, if a line may be joined to it.
    last_ns: Option<u64>,
}

impl Trace {
    /// Loads a trace. `ratios` are for contents without a compressed size in the trace.
    ///
    /// # Errors
    /// Errors of the trace, or a trace that is too large.
    pub fn load(
        requests: impl Iterator<Item = Result<Request, TraceError>>,
        ratios: Ratios,
    ) -> Result<Self, ReplayError> {
        let Some(trace) = Self::load_at_most(requests, ratios, u64::MAX)? else {
            return Err(ReplayError::Requests { max: REQUESTS_MAX });
        };
        Ok(trace)
    }

    /// Loads a trace of at most `blocks_max` blocks: a block counts in each request. With more, `None`. Memory is
    /// bounded by that number.
    ///
    /// # Errors
    /// Errors of [`Self::load`].
    pub fn load_at_most(
        requests: impl Iterator<Item = Result<Request, TraceError>>,
        ratios: Ratios,
        blocks_max: u64,
    ) -> Result<Option<Self>, ReplayError> {
        let trace = Self {
            steps: Vec::new(),
            written: Vec::new(),
            initial: Map::default(),
            contents: Arc::new(Contents::new(ratios)),
            next_unique: 0,
            spans: Vec::new(),
            fitted: Fitted::default(),
            rate: 1.0,
        };
        let contents = Contents::new(ratios);
        let mut loader =
            Loader { trace, contents, devices: Map::default(), state: Map::default(), last_ns: None };
        let mut blocks = 0;
        for request in requests {
            let request = request?;
            blocks += u64::from(request.len_bytes.div_ceil(BLOCK_BYTES).max(1));
            if blocks > blocks_max {
                return Ok(None);
            }
            loader.add(&request)?;
        }
        let mut trace = Self { contents: Arc::new(loader.contents), ..loader.trace };
        trace.steps.shrink_to_fit();
        Ok(Some(trace))
    }

    /// Marks the trace as a sample of this rate: a cache of a configured size is scaled accordingly.
    #[must_use]
    pub const fn is_sample_of(mut self, rate: f64) -> Self {
        self.rate = rate;
        self
    }

    /// Share of the addresses that is in the trace.
    #[must_use]
    pub const fn rate(&self) -> f64 {
        self.rate
    }

    /// Requests.
    #[must_use]
    pub fn requests(&self) -> u64 {
        u64_from_usize(self.steps.len())
    }

    /// Requests that read.
    #[must_use]
    pub fn reads(&self) -> u64 {
        u64_from_usize(self.steps.iter().filter(|step| step.op == Op::Read).count())
    }

    /// Requests that write.
    #[must_use]
    pub fn writes(&self) -> u64 {
        u64_from_usize(self.steps.iter().filter(|step| step.op == Op::Write).count())
    }

    /// Blocks of 4 KiB that the requests name, with repetitions.
    #[must_use]
    pub fn blocks(&self) -> u64 {
        self.steps.iter().map(|step| u64::from(step.blocks)).sum()
    }

    /// Bytes that are read or written, each once, in whole blocks. Discards do not count: a single `fstrim` names all
    /// that is free on a volume.
    #[must_use]
    pub fn footprint_bytes(&self) -> u64 {
        u64_from_usize(self.initial.len()) * u64::from(BLOCK_BYTES)
    }

    /// Ends of the volumes, in bytes, in the order in which the trace names them.
    #[must_use]
    pub fn spans(&self) -> &[u64] {
        &self.spans
    }

    /// Returns a number that identifies the trace: requests, times, written and read contents.
    #[must_use]
    pub fn identity(&self) -> u64 {
        let new = || FixedHasher::default().build_hasher();
        let mut hasher = new();
        for step in &self.steps {
            hasher.write_u64(step.time_us);
            hasher.write_u64(step.first_block);
            hasher.write_u32(step.blocks);
            hasher.write_u32(u32::from(step.volume) << 8 | step.op as u32);
        }
        self.written.iter().for_each(|id| hasher.write_u64(id.key()));
        // A table has no order of its own.
        let found = self.initial.iter().map(|(block, id)| {
            let mut one = new();
            one.write_u64(*block);
            one.write_u64(id.key());
            one.finish()
        });
        hasher.write_u64(found.fold(0, u64::wrapping_add));
        self.contents.identify(&mut hasher);
        hasher.finish()
    }

    /// Contents with a compressed size in the trace, but of another codec, which is used instead.
    #[must_use]
    pub fn sized_by_others(&self, codec: Codec) -> u64 {
        self.contents.told_by_others(codec)
    }

    /// From the first request to the last, in milliseconds; 0 in formats without times.
    #[must_use]
    pub fn duration_ms(&self) -> u64 {
        self.steps.iter().map(Step::time_ms).max().unwrap_or(0)
    }

    /// Bytes of RAM held.
    #[must_use]
    pub fn ram_bytes(&self) -> u64 {
        let steps = self.steps.capacity() * size_of::<Step>();
        let blocks = self.initial.capacity() * (size_of::<(u64, ContentId)>() + 1);
        let written = self.written.capacity() * size_of::<ContentId>();
        u64_from_usize(steps + blocks + written) + self.contents.ram_bytes()
    }
}

impl Loader {
    fn volume(&mut self, device: u32) -> Result<u16, ReplayError> {
        if let Some(volume) = self.devices.get(&device) {
            return Ok(*volume);
        }
        let number = self.trace.spans.len();
        let too_many = ReplayError::Devices { max: u64_from_usize(DEVICES_MAX) };
        let Some(volume) = u16::try_from(number).ok().filter(|_| number < DEVICES_MAX) else {
            return Err(too_many);
        };
        self.trace.spans.push(0);
        self.devices.insert(device, volume);
        Ok(volume)
    }

    fn unique(&mut self) -> Result<ContentId, ReplayError> {
        let number = self.trace.next_unique;
        if number >= CONTENTS_MAX {
            return Err(ReplayError::Contents { max: CONTENTS_MAX });
        }
        self.trace.next_unique += 1;
        Ok(ContentId::unique(number))
    }

    fn add(&mut self, request: &Request) -> Result<(), ReplayError> {
        let volume = self.volume(request.device)?;
        let (start, end, unit) = (request.offset_bytes, request.end_bytes(), u64::from(BLOCK_BYTES));
        let op = if request.op == Op::Access { Op::Read } else { request.op };
        let (first_block, end_block) = match op {
            Op::Discard => (start.div_ceil(unit), end / unit),
            Op::Flush => (0, 0),
            _ => (start / unit, end.div_ceil(unit)),
        };
        let blocks = u32::try_from(end_block.saturating_sub(first_block)).unwrap_or(u32::MAX);
        if blocks == 0 && op != Op::Flush {
            return Ok(());
        }
        self.trace.fitted.rounded +=
            u64::from(op != Op::Flush && !(start.is_multiple_of(unit) && end.is_multiple_of(unit)));
        let span = &mut self.trace.spans[usize::from(volume)];
        *span = (*span).max(end_block * unit);
        let contents_at = self.trace.written.len();
        for block in 0..blocks {
            self.touch(request, op, block_key(volume, first_block + u64::from(block)), block)?;
        }
        let Ok(contents_at) = u32::try_from(contents_at) else {
            return Err(ReplayError::Requests { max: REQUESTS_MAX });
        };
        let time_us = request.time_ns / 1000;
        self.push(request, Step { time_us, first_block, blocks, contents_at, volume, op })
    }

    /// Updates the contents of a block.
    fn touch(&mut self, request: &Request, op: Op, key: u64, block: u32) -> Result<(), ReplayError> {
        let named = match &request.content {
            Some(content) => {
                let too_many = ReplayError::Contents { max: CONTENTS_MAX };
                Some(self.contents.intern(content, block).ok_or(too_many)?)
            }
            None => None,
        };
        if op == Op::Read {
            match (self.state.get(&key), named) {
                (Some(held), Some(named)) => self.trace.fitted.differing += u64::from(*held != named),
                (Some(_), None) => {}
                (None, named) => {
                    let found = named.map_or_else(|| self.unique(), Ok)?;
                    self.state.insert(key, found);
                    self.trace.initial.insert(key, found);
                    return Ok(());
                }
            }
            return self.touch_unknown(key);
        }
        if op == Op::Discard {
            // Blocks that are only discarded are not cached, and no part of the footprint.
            self.state.insert(key, ContentId::ZERO);
            return Ok(());
        }
        self.touch_unknown(key)?;
        let now = named.map_or_else(|| self.unique(), Ok)?;
        self.trace.written.push(now);
        self.state.insert(key, now);
        Ok(())
    }

    /// A block that is written or discarded before its first read held something of which nothing is known.
    fn touch_unknown(&mut self, key: u64) -> Result<(), ReplayError> {
        if !self.trace.initial.contains_key(&key) {
            let before = self.unique()?;
            self.trace.initial.insert(key, before);
        }
        Ok(())
    }

    /// Takes the step in, or joins it to the one before.
    fn push(&mut self, request: &Request, step: Step) -> Result<(), ReplayError> {
        let one_block = request.content.is_some() && request.len_bytes <= BLOCK_BYTES;
        let at = one_block.then_some(request.time_ns);
        let last_ns = core::mem::replace(&mut self.last_ns, at);
        let goes_on = request.continues || (at.is_some() && at == last_ns);
        if let Some(last) = self.trace.steps.last_mut()
            && goes_on
            && (last.op, last.volume) == (step.op, step.volume)
            && last.first_block + u64::from(last.blocks) == step.first_block
            && (request.continues || last.blocks < JOINED_MAX)
            && let Some(blocks) = last.blocks.checked_add(step.blocks)
        {
            last.blocks = blocks;
            self.trace.fitted.joined += u64::from(!request.continues);
            return Ok(());
        }
        if self.trace.steps.len() >= REQUESTS_MAX {
            return Err(ReplayError::Requests { max: REQUESTS_MAX });
        }
        self.trace.steps.push(step);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use zc_trace::{Options, Reader};

    fn load(text: &str) -> Trace {
        let reader = Reader::from_vec(text.as_bytes().to_vec(), Options::default()).unwrap();
        Trace::load(reader, Ratios::default()).unwrap()
    }

    #[test]
    fn lines_of_one_request_are_joined() {
        let trace = load(
            "5 0 8 R 00000000000000a1 100 50\n5 8 8 R 00000000000000a2 100 50\n5 24 8 R 00000000000000a3 100 50\n\
             7 32 8 R 00000000000000a4 100 50\n7 40 8 W 00000000000000a5 100 50\n",
        );
        let seen: Vec<_> = trace.steps.iter().map(|s| (s.op, s.first_block, s.blocks)).collect();
        assert_eq!(seen, [(Op::Read, 0, 2), (Op::Read, 3, 1), (Op::Read, 4, 1), (Op::Write, 5, 1)]);
        assert_eq!((trace.fitted.joined, trace.footprint_bytes()), (1, 5 * 4096));
        assert_eq!(trace.spans(), [6 * 4096]);
    }

    #[test]
    fn traces_of_one_shape_are_told_apart() {
        let line =
            |time, block, op, print, size| format!("{time} {} 8 {op} {print:016x} {size} 50\n", block * 8);
        let identity_of = |lines: &[String]| load(&lines.concat()).identity();
        let one = [line(1, 0, "R", 0xa1, 100), line(9, 5, "W", 0xa2, 100)];
        assert_eq!(identity_of(&one), identity_of(&one.clone()));
        let others = [
            [line(1, 0, "R", 0xa1, 100), line(9, 4, "W", 0xa2, 100)],
            [line(1, 0, "R", 0xa1, 100), line(90_000_000_000_u64, 5, "W", 0xa2, 100)],
            [line(1, 0, "R", 0xa1, 100), line(9, 5, "R", 0xa2, 100)],
            [line(1, 0, "R", 0xa1, 100), line(9, 5, "W", 0xa1, 100)],
            [line(1, 0, "R", 0xa1, 100), line(9, 5, "W", 0xa3, 100)],
            [line(1, 0, "R", 0xa1, 100), line(9, 5, "W", 0xa2, 101)],
            [line(1, 0, "R", 0xa3, 100), line(9, 5, "W", 0xa2, 100)],
        ];
        let all: std::collections::BTreeSet<u64> =
            others.iter().map(|other| identity_of(other)).chain([identity_of(&one)]).collect();
        assert_eq!(all.len(), others.len() + 1);
    }

    #[test]
    fn more_blocks_than_allowed_are_not_loaded() {
        let all = || (0..10).map(|number| Ok(Request::new(number, Op::Read, number * 8192, 8192)));
        let load =
            |max| Trace::load_at_most(all(), Ratios::default(), max).unwrap().map(|trace| trace.blocks());
        assert_eq!((load(20), load(19)), (Some(20), None));
    }

    #[test]
    fn blocks_hold_what_their_first_read_saw() {
        let trace = load(
            "1 0 8 R 00000000000000a1 100 50\n2 0 8 W 00000000000000a2 100 50\n3 0 8 R 00000000000000a2 100 50\n\
             4 0 8 R 00000000000000a1 100 50\n5 8 8 W 00000000000000a1 100 50\n6 8 8 R 00000000000000a1 100 50\n",
        );
        let read = trace.initial[&block_key(0, 0)];
        assert_eq!(trace.written.len(), 2);
        assert_ne!(read, trace.written[0]);
        assert_eq!(read, trace.written[1], "what was there first is written elsewhere");
        assert_eq!(trace.initial[&block_key(0, 1)], ContentId::unique(0));
        assert_eq!(trace.fitted.differing, 1);
    }

    #[test]
    fn discards_are_no_part_of_the_footprint() {
        let request = |op, block: u64, blocks: u32| Ok(Request::new(0, op, block * 4096, blocks * 4096));
        let all = [
            request(Op::Discard, 0, 1000),
            request(Op::Read, 3, 1),
            request(Op::Write, 5, 2),
            request(Op::Discard, 5, 1),
            request(Op::Read, 5, 1),
        ];
        let trace = Trace::load(all.into_iter(), Ratios::default()).unwrap();
        assert_eq!((trace.footprint_bytes(), trace.spans()), (3 * 4096, &[1000 * 4096][..]));
    }

    #[test]
    fn requests_are_rounded_and_discards_shrink() {
        let request = |op, offset_bytes, len_bytes| Ok(Request::new(0, op, offset_bytes, len_bytes).on(3));
        let all = [
            request(Op::Write, 512, 8192),
            request(Op::Discard, 512, 8192),
            request(Op::Discard, 512, 512),
            request(Op::Flush, 0, 0),
            request(Op::Access, 8192, 4096),
        ];
        let trace = Trace::load(all.into_iter(), Ratios::default()).unwrap();
        let seen: Vec<_> = trace.steps.iter().map(|s| (s.op, s.first_block, s.blocks)).collect();
        assert_eq!(seen, [(Op::Write, 0, 3), (Op::Discard, 1, 1), (Op::Flush, 0, 0), (Op::Read, 2, 1)]);
        assert_eq!((trace.fitted.rounded, trace.written.len()), (2, 3));
        assert!(trace.ram_bytes() > 0);
    }
}
