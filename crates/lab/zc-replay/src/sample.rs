//! Sample of a trace: all requests for some extents, none for the others.
//!
//! SHARDS (Waldspurger et al., FAST 2015) chooses addresses by hash, so that a cache smaller by the same rate has the
//! same hit ratio. With a choice by address, two equal extents would seldom both be in the sample, and duplicates
//! would vanish. So extents are chosen by their first contents in the trace, which keeps equal ones together. Later
//! contents do not count; a simulation of the whole trace shows the error of that.

use zc_cache::seam::Digest;
use zc_core::{Map, Set, u64_from_usize, usize_from_u32};
use zc_trace::Op;

use crate::content::{BLOCK_BYTES, ContentId, Contents};
use crate::load::{Step, Trace, block_key};

/// A sample, and facts about the whole trace.
#[derive(Debug)]
pub struct Sample {
    /// The requests.
    pub trace: Trace,
    /// Share of the extents that are in it, as chosen.
    pub rate: f64,
    /// Parts of extents in reads of the whole trace.
    pub read_extents: u64,
    /// Extents that the whole trace touches.
    pub extents: u64,
}

/// Returns `true` if a hash is in a sample of this rate.
fn chosen(hash: u64, rate: f64) -> bool {
    (hash >> 11) as f64 <= rate * (1_u64 << 53) as f64
}

struct Sampler<'a> {
    whole: &'a Trace,
    extent_blocks: u64,
    rate: f64,
    decided: Map<u64, bool>,
    read_extents: u64,
    steps: Vec<Step>,
    written: Vec<ContentId>,
}

impl Trace {
    /// Returns a sample of about `extents_max` extents at most.
    ///
    /// # Panics
    /// If the extent is not a whole number of blocks of 4 KiB.
    #[must_use]
    pub fn sample(&self, extent_bytes: u32, extents_max: u64) -> Sample {
        assert!(extent_bytes.is_multiple_of(BLOCK_BYTES) && extent_bytes > 0);
        let extent_blocks = u64::from(extent_bytes / BLOCK_BYTES);
        let extents = self.extents(extent_blocks);
        let rate = if extents <= extents_max { 1.0 } else { extents_max as f64 / extents as f64 };
        let mut sampler = Sampler {
            whole: self,
            extent_blocks,
            rate,
            decided: Map::default(),
            read_extents: 0,
            steps: Vec::new(),
            written: Vec::new(),
        };
        self.steps.iter().for_each(|step| sampler.add(step));
        let Sampler { decided, read_extents, steps, written, .. } = sampler;
        let inside = |key: &u64| decided.get(&(key / extent_blocks)).copied().unwrap_or(false);
        let initial =
            self.initial.iter().filter(|(key, _)| inside(key)).map(|(key, id)| (*key, *id)).collect();
        let trace = Self {
            steps,
            written,
            initial,
            contents: std::sync::Arc::clone(&self.contents),
            next_unique: self.next_unique,
            spans: self.spans.clone(),
            fitted: self.fitted,
            rate: self.rate,
        };
        Sample { trace, rate, read_extents, extents }
    }

    fn extents(&self, extent_blocks: u64) -> u64 {
        let extents: Set<u64> = self.initial.keys().map(|key| key / extent_blocks).collect();
        u64_from_usize(extents.len())
    }
}

impl Sampler<'_> {
    /// Adds the chosen parts of a step: each run of extents as a request of its own.
    fn add(&mut self, step: &Step) {
        if step.op == Op::Flush {
            self.steps.push(*step);
            return;
        }
        let end = step.first_block + u64::from(step.blocks);
        let mut from = step.first_block;
        let mut run: Option<(u64, u64)> = None;
        while from < end {
            let to = end.min((from / self.extent_blocks + 1) * self.extent_blocks);
            self.read_extents += u64::from(step.op == Op::Read);
            if self.decide(step, from..to) {
                run = Some((run.map_or(from, |(first, _)| first), to));
            } else if let Some((first, until)) = run.take() {
                self.push(step, first, until);
            }
            from = to;
        }
        if let Some((first, until)) = run {
            self.push(step, first, until);
        }
    }

    /// Returns `true` if the extent of these blocks is in the sample.
    fn decide(&mut self, step: &Step, blocks: core::ops::Range<u64>) -> bool {
        let key = block_key(step.volume, blocks.start) / self.extent_blocks;
        if let Some(chosen) = self.decided.get(&key) {
            return *chosen;
        }
        let ids: Vec<ContentId> = match step.op {
            Op::Write => self.contents_of(step, blocks).to_vec(),
            _ => {
                let held = |block| self.whole.initial.get(&block_key(step.volume, block)).copied();
                blocks.filter_map(held).collect()
            }
        };
        let hash = match self.whole.contents.digest(&ids) {
            Digest::Print(print) if step.op != Op::Discard => print.prefix(),
            // Zeros are many; they are chosen by place.
            _ => Contents::hash(key),
        };
        let chosen = chosen(Contents::hash(hash), self.rate);
        self.decided.insert(key, chosen);
        chosen
    }

    fn contents_of(&self, step: &Step, blocks: core::ops::Range<u64>) -> &[ContentId] {
        let at = usize_from_u32(step.contents_at);
        let place = |block: u64| at + zc_core::usize_from_u64(block - step.first_block);
        &self.whole.written[place(blocks.start)..place(blocks.end)]
    }

    fn push(&mut self, step: &Step, first_block: u64, end: u64) {
        // Neither number can be larger than in the whole trace.
        let contents_at = u32::try_from(self.written.len()).unwrap_or(u32::MAX);
        let blocks = u32::try_from(end - first_block).unwrap_or(u32::MAX);
        if step.op == Op::Write {
            let contents = self.contents_of(step, first_block..end).to_vec();
            self.written.extend(contents);
        }
        self.steps.push(Step { first_block, blocks, contents_at, ..*step });
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::content::Ratios;
    use zc_trace::{Content, Request};

    /// Reads of many blocks, each content at three places.
    fn whole() -> Trace {
        let request = |number: u64| {
            let content =
                Content { fingerprint: u128::from(number % 3000) + 1, lz4_bytes: None, zstd1_bytes: None };
            let op = if number.is_multiple_of(2) { Op::Read } else { Op::Write };
            let offset_bytes = number * 4096;
            Ok(Request::new(number, op, offset_bytes, 4096).of(content))
        };
        Trace::load((0..9000).map(request), Ratios::default()).unwrap()
    }

    #[test]
    fn a_sample_of_all_is_the_trace() {
        let whole = whole();
        let sample = whole.sample(4096, 1 << 20);
        assert_eq!((sample.extents, sample.read_extents), (9000, 4500));
        assert_eq!((&sample.trace.steps, &sample.trace.written), (&whole.steps, &whole.written));
        assert_eq!(sample.trace.footprint_bytes(), whole.footprint_bytes());
    }

    #[test]
    fn a_sample_has_its_share_and_keeps_equal_contents_together() {
        let whole = whole();
        let sample = whole.sample(4096, 2250);
        let steps = sample.trace.steps.len();
        assert!((1900..2600).contains(&steps), "{steps}");
        let mut places: Map<u64, u32> = Map::default();
        sample.trace.steps.iter().for_each(|step| *places.entry(step.first_block % 3000).or_default() += 1);
        assert!(places.values().all(|count| *count == 3), "a content is there three times or not at all");
        assert_eq!(sample.trace.footprint_bytes(), u64_from_usize(steps) * 4096);
        let written = sample.trace.steps.iter().filter(|step| step.op == Op::Write).count();
        assert_eq!(sample.trace.written.len(), written);
    }

    #[test]
    fn requests_are_cut_where_the_sample_ends() {
        let request = |op| Request::new(0, op, 4096, 400 << 10);
        let whole =
            Trace::load([Op::Write, Op::Read].map(|op| Ok(request(op))).into_iter(), Ratios::default())
                .unwrap();
        let sample = whole.sample(8192, 25);
        let [reads, writes] = [Op::Read, Op::Write].map(|op| {
            let steps = sample.trace.steps.iter().filter(move |step| step.op == op);
            steps.map(|step| (step.first_block, step.blocks)).collect::<Vec<_>>()
        });
        assert_eq!(reads, writes);
        let blocks: u32 = writes.iter().map(|(_, blocks)| blocks).sum();
        assert!(writes.len() > 3 && (20..80).contains(&blocks), "{writes:?}");
        assert_eq!((sample.extents, sample.read_extents), (51, 51));
        for step in sample.trace.steps.iter().filter(|step| step.op == Op::Write) {
            let at = usize_from_u32(step.contents_at);
            let source = zc_core::usize_from_u64(step.first_block - 1);
            assert_eq!(sample.trace.written[at], whole.written[source]);
        }
    }
}
