//! Boot storms: many machines that boot from clones of one image, derived from the trace of one boot.
//!
//! Job: the method of Nitro's evaluation for its Figure 8 (Li et al., USENIX ATC 2014, section 5: 60 machines,
//! contents of clones overlap by 90 %, addresses of duplicates are shifted by 0 to 15 % of the address space), on any
//! template. The paper leaves the granularity of shifts and contents open; here:
//!
//! - the unit of contents is [`UNIT_BYTES`], the size of an extent: a clone has a unit's bytes of its own with
//!   probability 1 - overlap, and else the template's;
//! - all addresses of a clone are shifted by one amount, whole units, with wrap-around, which preserves sequential
//!   runs;
//! - the address space is that of the units in the template: a gap between two runs of units shrinks to one unit, so
//!   that a clone takes little more space than its machine's reads and writes;
//! - a block that is never read before it is written initially has a content that no other block has, equal in all
//!   clones where their unit is shared.
//!
//! Invariants: seed and number determine a clone. Consecutive lines of a trace that belong to one request (same time
//! and operation) are one request of the template. A template is bounded by [`TEMPLATE_BLOCKS_MAX`] and
//! [`TEMPLATE_REQUESTS_MAX`].

use rand::{RngExt as _, SeedableRng as _};
use rand_pcg::Pcg64Mcg;
use zc_core::{Map, u64_from_usize, usize_from_u32};

use crate::distinct::mix;
use crate::error::TraceError;
use crate::limits::{TEMPLATE_BLOCKS_MAX, TEMPLATE_REQUESTS_MAX};
use crate::request::{Content, Op, Request};

/// A block of a template; compressed sizes are per block.
pub const BLOCK_BYTES: u32 = 4096;
/// Granularity of unique contents and of address shifts.
pub const UNIT_BYTES: u32 = 8192;
const UNIT_BLOCKS: u32 = UNIT_BYTES / BLOCK_BYTES;
/// Between the last request of a boot and the first of the next.
const PAUSE_NS: u64 = 1_000_000_000;

/// A request of a machine that boots, in blocks of its small address space.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Io {
    /// Since the beginning of the boot.
    pub time_ns: u64,
    /// First block.
    pub block: u32,
    /// Number of blocks.
    pub blocks: u32,
    /// Written contents, one per block; empty for reads.
    pub written: Vec<Content>,
}

/// Differences between clones.
#[derive(Debug, Clone, Copy)]
pub struct Shape {
    /// Share of units that a clone has in common with the template.
    pub overlap: f64,
    /// Most that a clone is shifted by, as a share of the address space.
    pub shift_max: f64,
    /// Seed.
    pub seed: u64,
}

impl Default for Shape {
    fn default() -> Self {
        Self { overlap: 0.9, shift_max: 0.15, seed: 1 }
    }
}

/// A boot to be cloned.
#[derive(Debug)]
pub struct Template {
    ios: Vec<Io>,
    /// Contents before the boot.
    blocks: Vec<Content>,
}

/// One machine of the storm.
#[derive(Debug)]
pub struct Machine<'a> {
    template: &'a Template,
    number: u32,
    shape: Shape,
    /// Blocks that the clone is shifted by.
    shift: u32,
}

/// Content of a block that the trace lacks.
const fn unknown(address: u64) -> Content {
    Content { fingerprint: (1 << 127) | mix(address as u128) as u128, lz4_bytes: None, zstd1_bytes: None }
}

/// A content of the same compressed size that belongs to one clone.
const fn own(content: Content, clone: u32) -> Content {
    let low = mix(content.fingerprint ^ ((clone as u128) << 96));
    let fingerprint = (1 << 126) | ((clone as u128) << 64) | low as u128;
    // An own block of zeroes would compress as zeroes do and still be no zeroes.
    Content { fingerprint, ..content }
}

/// Lines of the trace as requests: address in blocks, contents, reads or writes.
fn join(
    requests: impl Iterator<Item = Result<Request, TraceError>>,
) -> Result<Vec<(bool, u64, Io)>, TraceError> {
    let block_bytes = u64::from(BLOCK_BYTES);
    let mut joined: Vec<(bool, u64, Io)> = Vec::new();
    let mut total = 0;
    for request in requests {
        let request = request?;
        let Some(content) = request.content else { continue };
        let whole = request.offset_bytes.is_multiple_of(block_bytes) && request.len_bytes == BLOCK_BYTES;
        if !whole || !matches!(request.op, Op::Read | Op::Write) {
            continue;
        }
        total += 1;
        if total > TEMPLATE_REQUESTS_MAX {
            return Err(TraceError::TooLarge { what: "requests", max: TEMPLATE_REQUESTS_MAX });
        }
        let (is_read, address) = (request.op == Op::Read, request.offset_bytes / block_bytes);
        if let Some((before_reads, before, io)) = joined.last_mut()
            && (*before_reads, *before + u64::from(io.blocks), io.time_ns)
                == (is_read, address, request.time_ns)
        {
            io.blocks += 1;
            io.written.push(content);
        } else {
            let io = Io { time_ns: request.time_ns, block: 0, blocks: 1, written: vec![content] };
            joined.push((is_read, address, io));
        }
    }
    Ok(joined)
}

/// Small addresses for the units that are touched, in order, runs one unit apart. The count of blocks, too.
fn compact(joined: &[(bool, u64, Io)]) -> Result<(Map<u64, u32>, u32), TraceError> {
    let unit_blocks = u64::from(UNIT_BLOCKS);
    let touched = joined.iter().flat_map(|(_, address, io)| {
        let first = address / unit_blocks;
        first..(address + u64::from(io.blocks)).div_ceil(unit_blocks)
    });
    let mut units: Vec<u64> = touched.collect();
    units.sort_unstable();
    units.dedup();
    let mut small = Map::default();
    let (mut next, mut before) = (0_u32, None);
    for unit in units {
        if before.is_some_and(|before: u64| before + 1 != unit) {
            next += UNIT_BLOCKS;
        }
        small.insert(unit, next);
        next += UNIT_BLOCKS;
        before = Some(unit);
        if usize_from_u32(next) > TEMPLATE_BLOCKS_MAX {
            return Err(TraceError::TooLarge { what: "blocks of 4 KiB", max: TEMPLATE_BLOCKS_MAX });
        }
    }
    Ok((small, next))
}

impl Template {
    /// A template from the trace of one boot with fingerprints, one block of 4 KiB a line; other lines are passed over.
    ///
    /// # Errors
    /// The trace cannot be read, has no fingerprints, or is too large.
    pub fn new(requests: impl Iterator<Item = Result<Request, TraceError>>) -> Result<Self, TraceError> {
        let joined = join(requests)?;
        if joined.is_empty() {
            return Err(TraceError::NoContents);
        }
        let (small, count) = compact(&joined)?;
        let mut blocks: Vec<Content> = (0..u64::from(count)).map(unknown).collect();
        let mut known = vec![false; usize_from_u32(count)];
        let mut ios = Vec::with_capacity(joined.len());
        for (is_read, address, mut io) in joined {
            let unit_blocks = u64::from(UNIT_BLOCKS);
            let Some(base) = small.get(&(address / unit_blocks)) else { continue };
            io.block = base + u32::try_from(address % unit_blocks).unwrap_or(0);
            let first = usize_from_u32(io.block);
            for (index, content) in io.written.iter().enumerate() {
                if is_read && !known[first + index] {
                    blocks[first + index] = *content;
                }
                known[first + index] = true;
            }
            if is_read {
                io.written.clear();
            }
            ios.push(io);
        }
        Ok(Self { ios, blocks })
    }

    /// Blocks of a clone's address space.
    #[must_use]
    pub fn blocks(&self) -> u32 {
        u32::try_from(self.blocks.len()).unwrap_or(u32::MAX)
    }

    /// Bytes of a clone's address space.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        u64_from_usize(self.blocks.len()) * u64::from(BLOCK_BYTES)
    }

    /// Reads of one boot, and their bytes.
    #[must_use]
    pub fn reads(&self) -> (u64, u64) {
        let reads = self.ios.iter().filter(|io| io.written.is_empty());
        reads.fold((0, 0), |(count, bytes), io| {
            (count + 1, bytes + u64::from(io.blocks) * u64::from(BLOCK_BYTES))
        })
    }

    /// Writes of one boot.
    #[must_use]
    pub fn writes(&self) -> u64 {
        u64_from_usize(self.ios.len()) - self.reads().0
    }

    /// A machine. Number 0 is the template itself.
    #[must_use]
    pub fn machine(&self, number: u32, shape: Shape) -> Machine<'_> {
        let units = self.blocks() / UNIT_BLOCKS;
        let mut rng = Pcg64Mcg::seed_from_u64(mix(u128::from(shape.seed) << 64 | u128::from(number)));
        let most = f64::from(units) * shape.shift_max.clamp(0.0, 1.0);
        #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "at most a u32")]
        let shift = rng.random_range(0..=most as u32);
        let shift = if number == 0 { 0 } else { shift * UNIT_BLOCKS };
        Machine { template: self, number, shape, shift }
    }
}

/// Machines that boot at the same time, their volumes one behind the other.
#[derive(Debug)]
pub struct Storm<'a> {
    machines: Vec<(Machine<'a>, Map<u32, Content>)>,
    template: &'a Template,
    /// Boots, turns of all machines in them, and machines that have been.
    next: (u32, usize, usize),
    boots: u32,
    last_ns: u64,
    /// Blocks of the request under way.
    pending: std::vec::IntoIter<Request>,
}

impl<'a> Storm<'a> {
    /// Creates `machines`, each of which boots `boots` times; a boot begins when the previous one has ended
    /// everywhere.
    #[must_use]
    pub fn new(template: &'a Template, machines: u32, boots: u32, shape: Shape) -> Self {
        let machines =
            (0..machines).map(|number| (template.machine(number, shape), Map::default())).collect();
        Self { machines, template, next: (0, 0, 0), boots, last_ns: 0, pending: Vec::new().into_iter() }
    }

    /// Returns the initial contents of the volumes, block by block.
    pub fn image(&self) -> impl Iterator<Item = Content> + '_ {
        self.machines.iter().flat_map(|(machine, _)| machine.image()).map(|(content, _)| content)
    }

    /// When a boot begins, if the first one does at 0.
    fn boot_ns(&self, boot: u32) -> u64 {
        let one = self.template.ios.last().map_or(0, |io| io.time_ns).saturating_add(PAUSE_NS);
        one.saturating_mul(u64::from(boot))
    }

    /// The next machine's next request.
    fn request(&mut self) -> Option<Vec<Request>> {
        let (boot, turn, number) = self.next;
        if boot == self.boots || self.machines.is_empty() || self.template.ios.is_empty() {
            return None;
        }
        self.next = match (turn + 1 == self.template.ios.len(), number + 1 == self.machines.len()) {
            (true, true) => (boot + 1, 0, 0),
            (false, true) => (boot, turn + 1, 0),
            (_, false) => (boot, turn, number + 1),
        };
        let io = &self.template.ios[turn];
        let due_ns = self.boot_ns(boot).saturating_add(io.time_ns);
        let base = u64_from_usize(number) * self.template.bytes();
        let (machine, written) = &mut self.machines[number];
        let mut lines = Vec::with_capacity(usize_from_u32(io.blocks));
        for part in machine.moved(io) {
            self.last_ns = due_ns.max(self.last_ns + 1);
            let op = if part.written.is_empty() { Op::Read } else { Op::Write };
            written.extend((part.block..).zip(part.written.iter().copied()));
            lines.extend((part.block..part.block + part.blocks).map(|block| {
                let content = written.get(&block).copied().unwrap_or_else(|| machine.at_first(block));
                let offset_bytes = base + u64::from(block) * u64::from(BLOCK_BYTES);
                Request::new(self.last_ns, op, offset_bytes, BLOCK_BYTES).of(content)
            }));
        }
        Some(lines)
    }
}

/// Requests of all machines, in turns, one block of 4 KiB each. Blocks of one request have the same time, and every
/// request has a time of its own.
impl Iterator for Storm<'_> {
    type Item = Request;

    fn next(&mut self) -> Option<Request> {
        if self.pending.as_slice().is_empty() {
            self.pending = self.request()?.into_iter();
        }
        self.pending.next()
    }
}

impl Machine<'_> {
    /// Returns `true` if a unit of the template is this clone's own.
    fn is_own(&self, unit: u32) -> bool {
        let key = u128::from(self.shape.seed) << 64 | u128::from(self.number) << 32 | u128::from(unit);
        let draw = (mix(key) >> 11) as f64 / (1_u64 << 53) as f64;
        self.number != 0 && draw >= self.shape.overlap
    }

    fn content(&self, block: u32, content: Content) -> Content {
        if self.is_own(block / UNIT_BLOCKS) { own(content, self.number) } else { content }
    }

    /// Returns the initial contents of the volume, block by block, with the template's block, unless it is the clone's
    /// own.
    pub fn image(&self) -> impl Iterator<Item = (Content, Option<u32>)> + '_ {
        (0..self.template.blocks()).map(|at| {
            let block = self.of_template(at);
            (self.at_first(at), (!self.is_own(block / UNIT_BLOCKS)).then_some(block))
        })
    }

    /// The block of the template that lies there.
    fn of_template(&self, at: u32) -> u32 {
        let count = self.template.blocks();
        (at + count - self.shift) % count
    }

    /// Returns the initial content of a block.
    fn at_first(&self, at: u32) -> Content {
        let block = self.of_template(at);
        self.content(block, self.template.blocks[usize_from_u32(block)])
    }

    /// Returns the machine's requests; one across the end of the address space becomes two.
    pub fn ios(&self) -> impl Iterator<Item = Io> + '_ {
        self.template.ios.iter().flat_map(|io| self.moved(io))
    }

    fn moved(&self, io: &Io) -> impl Iterator<Item = Io> + use<> {
        let count = self.template.blocks();
        let mut written: Vec<Content> =
            (io.block..).zip(&io.written).map(|(block, content)| self.content(block, *content)).collect();
        let block = (io.block + self.shift) % count;
        let here = io.blocks.min(count - block);
        let rest = written.split_off(written.len().min(usize_from_u32(here)));
        let first = Io { time_ns: io.time_ns, block, blocks: here, written };
        let second = Io { time_ns: io.time_ns, block: 0, blocks: io.blocks - here, written: rest };
        std::iter::once(first).chain((second.blocks > 0).then_some(second))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn line(time_ns: u64, op: Op, block: u64, fingerprint: u128) -> Result<Request, TraceError> {
        let content = Some(Content { fingerprint, lz4_bytes: Some(2000), zstd1_bytes: None });
        Ok(Request::new(time_ns, op, block * 4096, 4096).of(content))
    }

    fn template() -> Template {
        let mut lines = vec![line(1, Op::Read, 1_000_001, 1), line(1, Op::Read, 1_000_002, 2)];
        lines.push(line(2, Op::Read, 1_000_003, 3));
        lines.push(line(3, Op::Write, 5, 4));
        lines.push(line(4, Op::Read, 5, 4));
        Template::new(lines.into_iter()).unwrap()
    }

    #[test]
    fn lines_become_requests_of_a_small_address_space() {
        let template = template();
        // Units 2, a gap, 500000 and 500001.
        assert_eq!((template.blocks(), template.bytes()), (8, 8 * 4096));
        assert_eq!((template.reads(), template.writes()), ((3, 4 * 4096), 1));
        let ios: Vec<(u32, u32, usize)> =
            template.ios.iter().map(|io| (io.block, io.blocks, io.written.len())).collect();
        assert_eq!(ios, [(5, 2, 0), (7, 1, 0), (1, 1, 1), (1, 1, 0)]);
        let fingerprints: Vec<u128> = template.blocks.iter().map(|content| content.fingerprint).collect();
        assert_eq!(fingerprints[5..], [1, 2, 3]);
        assert!(fingerprints[1] != 4, "what was written first was something else before");
    }

    #[test]
    fn a_trace_without_contents_or_too_large_is_refused() {
        let bare = Request { content: None, ..line(0, Op::Read, 0, 0).unwrap() };
        let error = Template::new(std::iter::once(Ok(bare))).unwrap_err();
        assert!(matches!(error, TraceError::NoContents), "{error}");
        let many =
            (0..u64::try_from(TEMPLATE_BLOCKS_MAX).unwrap() + 2).map(|block| line(block, Op::Read, block, 9));
        let error = Template::new(many).unwrap_err();
        assert!(matches!(error, TraceError::TooLarge { .. }), "{error}");
    }

    #[test]
    fn the_first_clone_is_the_template() {
        let template = template();
        let first = template.machine(0, Shape::default());
        assert!(first.ios().eq(template.ios.iter().cloned()));
        assert!(first.image().eq(template.blocks.iter().copied().zip((0..).map(Some))));
    }

    #[test]
    fn clones_overlap_as_much_as_asked_and_are_shifted() {
        let lines = (0..40_000).map(|block| line(block, Op::Read, block, u128::from(block)));
        let template = Template::new(lines).unwrap();
        let clone = template.machine(3, Shape::default());
        let shared = clone.image().filter(|(_, shared)| shared.is_some()).count() as f64 / 40_000.0;
        assert!((shared - 0.9).abs() < 0.01, "{shared}");
        assert!(
            clone.shift > 0 && clone.shift <= 6000 && clone.shift.is_multiple_of(UNIT_BLOCKS),
            "{}",
            clone.shift
        );
        let other = template.machine(4, Shape::default());
        let mine: std::collections::BTreeSet<u128> = clone
            .image()
            .filter(|(_, shared)| shared.is_none())
            .map(|(content, _)| content.fingerprint)
            .collect();
        assert!(other.image().all(|(content, _)| !mine.contains(&content.fingerprint)));
    }

    #[test]
    fn in_a_storm_all_machines_take_turns_and_read_what_they_have() {
        let template = template();
        let storm = Storm::new(&template, 5, 2, Shape { shift_max: 1.0, ..Shape::default() });
        let mut disk: Vec<Content> = storm.image().collect();
        assert_eq!(disk.len(), 5 * 8);
        let (mut lines, mut written, mut times) = (0, 0, std::collections::BTreeSet::new());
        let mut first = Vec::new();
        for line in storm {
            let held = &mut disk[usize::try_from(line.offset_bytes / 4096).unwrap()];
            written += u32::from(line.op == Op::Write);
            match line.op {
                Op::Read => assert_eq!(line.content, Some(*held)),
                _ => *held = line.content.unwrap(),
            }
            assert!(times.last().is_none_or(|last| *last <= line.time_ns), "time goes on");
            times.insert(line.time_ns);
            if line.offset_bytes < template.bytes() {
                first.push(line.content.unwrap().fingerprint);
            }
            lines += 1;
        }
        assert!(times.len() >= 5 * 2 * 4, "every request has a time of its own");
        // The second boot reads the contents left by the first.
        assert_eq!(first, [1, 2, 3, 4, 4, 1, 2, 3, 4, 4]);
        // Five machines, two boots, five blocks, one of which is written.
        assert_eq!((lines, written), (5 * 2 * 5, 5 * 2));
    }

    proptest! {
        #[test]
        fn a_clone_reads_what_the_template_reads(number in 0_u32..50, seed in 0_u64..50, overlap in 0.0_f64..=1.0) {
            let lines = (0..100).map(|block| line(block / 7, Op::Read, block * (1 + block / 60), u128::from(block)));
            let template = Template::new(lines).unwrap();
            let shape = Shape { overlap, seed, shift_max: 1.0 };
            let clone = template.machine(number, shape);
            let image: Vec<Content> = clone.image().map(|(content, _)| content).collect();
            let read: Vec<Content> = clone.ios().flat_map(|io| io.block..io.block + io.blocks)
                .map(|block| image[usize_from_u32(block)]).collect();
            let wanted: Vec<Content> = template.ios.iter().flat_map(|io| io.block..io.block + io.blocks)
                .map(|block| clone.content(block, template.blocks[usize_from_u32(block)])).collect();
            prop_assert_eq!(read, wanted);
        }
    }
}
