//! CPU work on bytes for the manager: decode stored extents, hash, compress, compare.
//!
//! Job: decode data that was read, at once if quick, else by the workers; pass them the rest, and turn their results
//! into events.
//!
//! Invariants: decoding on the data-plane thread per turn is bounded. A read completes once, with its last part.
//!
//! It does not read from the device (`device`), or manage the threads (`reduce_pool`).

use zc_cache::seam::{Action, Event, ExtentRead, PartResults};
use zc_core::{BufId, BufSlice, FingerprintKind, Map, OpId, usize_from_u32};
use zc_format::{EXTENT_HEADER_BYTES, ExtentError};
use zc_io::{AlignedBuf, Waker};

use crate::error::EngineError;
use crate::limits::INLINE_DECODE_BYTES_PER_TURN;
use crate::shard::base::Base;
use crate::shard::buffers::{Buffers, slice};
use crate::shard::extents::{ExtentsRead, Learned, PartDecode, VerifiedPayload};
use crate::shard::pending::ExtentsPending;
use crate::shard::reads::{in_groups, inline_cost_bytes};
use crate::shard::reduce::{Facts, Scratch};
use crate::shard::reduce_pool::{AfterTurn, Job, Outcome, ReducePool};

/// See the module documentation.
#[derive(Debug)]
pub(crate) struct Workers {
    pool: ReducePool,
    scratch: Scratch,
    reads: Map<u64, ExtentsRead>,
    /// Remaining bytes for decoding here in this turn.
    inline_left_bytes: u32,
}

impl Workers {
    /// Starts the threads on the given CPUs (all, if empty). `has_company`: several I/O threads have turns.
    ///
    /// # Errors
    /// When a thread cannot start.
    pub(crate) fn start(
        threads: u32,
        cpus: &[usize],
        waker: Waker,
        has_company: bool,
    ) -> Result<Self, EngineError> {
        let pool = ReducePool::start(threads, cpus, waker, has_company)?;
        Ok(Self { pool, scratch: Scratch::default(), reads: Map::default(), inline_left_bytes: 0 })
    }

    pub(crate) const fn begin_turn(&mut self) {
        self.inline_left_bytes = INLINE_DECODE_BYTES_PER_TURN;
    }

    /// A turn ends: jobs go to the threads; at once, if a client waits for them.
    pub(crate) fn end_turn(&mut self, hurry: bool, now_ms: u64) {
        self.pool.hurry(hurry);
        self.pool.hand_over(now_ms);
    }

    /// Returns the jobs that the thread of this turn runs after it.
    pub(crate) fn take_after_turn(&mut self) -> Vec<Job> {
        self.pool.take_after_turn()
    }

    /// For the threads that do it.
    pub(crate) fn after_turn(&self) -> AfterTurn {
        self.pool.after_turn()
    }

    /// Returns `true` if there are results.
    pub(crate) fn has_results(&self) -> bool {
        self.pool.has_results()
    }

    /// Returns `true` if jobs wait to be handed over.
    pub(crate) const fn has_fresh(&self) -> bool {
        self.pool.has_fresh()
    }

    /// Jobs waiting now.
    pub(crate) fn waiting(&self) -> usize {
        self.pool.waiting()
    }

    /// Returns the jobs that the data plane ran because the queues were full.
    pub(crate) fn inline_jobs(&self) -> u64 {
        self.pool.inline_jobs()
    }

    /// Turns the threads' results into events.
    pub(crate) fn take_results(&mut self, base: &mut Base) {
        let mut done = Vec::new();
        self.pool.take_done(&mut done);
        for outcome in done {
            match outcome {
                Outcome::Decoded(parts) => {
                    for (read, part, result) in parts {
                        self.part_decoded(base, read, part, result);
                    }
                }
                Outcome::Facts { op, facts } => base.tell(match facts {
                    Facts::Hashed(digest) => Event::Hashed { op, digest },
                    Facts::Compressed(stored_bytes) => Event::Compressed { op, stored_bytes },
                    Facts::Compared(equal) => Event::Compared { op, equal },
                }),
            }
        }
    }

    /// Hashes, compresses or compares.
    pub(crate) fn act(&mut self, buffers: &Buffers, kind: FingerprintKind, action: Action) {
        let job = match action {
            Action::Hash { op, src, domain } => Job::Hash { op, src: buffers.read(src), kind, domain },
            Action::Compress { op, src, codec, max_bytes, out } => {
                let out = BufSlice { buf: out, start_bytes: 0, len_bytes: max_bytes };
                let (src, out) = (buffers.read(src), buffers.write(out));
                Job::Compress { op, src, codec, max_bytes, out }
            }
            Action::Compare { op, left, right } => {
                Job::Compare { op, left: buffers.read(left), right: buffers.read(right) }
            }
            other => unreachable!("{other:?} is not for a worker"),
        };
        self.pool.submit(job);
    }

    /// Decodes extents of a unit that is in memory.
    pub(crate) fn read_from_memory(
        &mut self,
        base: &mut Base,
        op: OpId,
        (weu, weu_bytes): (BufId, u32),
        parts: &[ExtentRead],
    ) {
        let mut results = PartResults::with_capacity(parts.len());
        for part in parts {
            let at = part.expected.offset_bytes;
            let longest = EXTENT_HEADER_BYTES + part.expected.raw_bytes;
            let bytes = base.buffers.read(slice(weu, at, longest.min(weu_bytes.saturating_sub(at))));
            let mut dest = base.buffers.write(part.dest);
            let found = VerifiedPayload::verify(&bytes, at, part);
            let decoded = found.and_then(|found| found.decode(part, &mut dest, &mut self.scratch));
            results.push(keep_learned(base, decoded));
        }
        base.tell(Event::ExtentsRead { op, result: Ok(results) });
    }

    /// Pages are here: decode them, here if that is quick, else by the workers.
    pub(crate) fn extents_arrived(&mut self, base: &mut Base, read: ExtentsPending, pages: AlignedBuf) {
        let ExtentsPending { op, start_bytes, parts, urgent } = read;
        let raw_bytes = parts.iter().fold(0_u32, |sum, part| sum.saturating_add(part.expected.raw_bytes));
        let cost_bytes = inline_cost_bytes(pages.len(), raw_bytes);
        // Hashing is always for the workers.
        let hashes = parts.iter().any(|part| part.proof.is_some());
        let inline = urgent && !hashes && cost_bytes.is_some_and(|bytes| bytes <= self.inline_left_bytes);
        // Verifying takes less than another turn; decompressing does not, and others can have theirs at the same time.
        let after_turn = inline && self.pool.has_company() && pages.len() < usize_from_u32(raw_bytes);
        if inline {
            self.inline_left_bytes -= cost_bytes.unwrap_or(0);
        }
        if inline && !after_turn {
            let results = self.decode_here(base, &parts, start_bytes, pages);
            base.tell(Event::ExtentsRead { op, result: Ok(results) });
            return;
        }
        let pages = pages.into_shared();
        let number = base.next_number();
        let decodes = parts.into_iter().enumerate().map(|(part, wanted)| PartDecode {
            read: number,
            part,
            pages: pages.clone(),
            pages_offset_bytes: start_bytes,
            dest: base.buffers.write(wanted.dest),
            wanted,
        });
        let decodes: Vec<PartDecode> = decodes.collect();
        self.reads.insert(number, ExtentsRead::new(op, decodes.len()));
        if after_turn {
            self.pool.do_after_turn(Job::Decode(decodes));
            return;
        }
        for group in in_groups(decodes) {
            self.pool.submit(Job::Decode(group));
        }
    }

    /// Decodes on this thread data that was read from `start_bytes` of a slot. An extent that is all of a client's
    /// read is not copied.
    fn decode_here(
        &mut self,
        base: &mut Base,
        parts: &[ExtentRead],
        start_bytes: u32,
        pages: AlignedBuf,
    ) -> PartResults {
        if let [only] = parts
            && base.buffers.awaits(only.dest)
        {
            let brought = self.bring(base, only, start_bytes, pages);
            return PartResults::from_elem(keep_learned(base, brought), 1);
        }
        let mut results = PartResults::with_capacity(parts.len());
        for part in parts {
            let decoded = VerifiedPayload::verify(&pages, start_bytes, part).and_then(|found| {
                let mut dest = base.buffers.write(part.dest);
                found.decode(part, &mut dest, &mut self.scratch)
            });
            results.push(keep_learned(base, decoded));
        }
        results
    }

    /// Delivers an extent that is all of a client's read: in its pages, or in memory filled by decoding.
    fn bring(
        &mut self,
        base: &mut Base,
        wanted: &ExtentRead,
        start_bytes: u32,
        pages: AlignedBuf,
    ) -> Result<Option<Learned>, ExtentError> {
        let found = VerifiedPayload::verify(&pages, start_bytes, wanted)?;
        if let Some(range) = found.plain(wanted) {
            base.buffers.bring(wanted.dest.buf, pages, range);
            return Ok(None);
        }
        let mut memory = base.buffers.memory(usize_from_u32(wanted.dest.len_bytes));
        let learned = found.decode(wanted, &mut memory, &mut self.scratch)?;
        let whole = 0..memory.len();
        base.buffers.bring(wanted.dest.buf, memory, whole);
        Ok(learned)
    }

    fn part_decoded(
        &mut self,
        base: &mut Base,
        read: u64,
        part: usize,
        decoded: Result<Option<Learned>, ExtentError>,
    ) {
        let result = keep_learned(base, decoded);
        let Some(entry) = self.reads.get_mut(&read) else { panic!("extents read {read} has ended") };
        if entry.decoded(part, result)
            && let Some(entry) = self.reads.remove(&read)
        {
            let (op, results) = entry.finish();
            base.tell(Event::ExtentsRead { op, result: Ok(results) });
        }
    }
}

/// Keeps an extent's digest beside its bytes.
fn keep_learned(base: &mut Base, decoded: Result<Option<Learned>, ExtentError>) -> Result<(), ExtentError> {
    decoded?.into_iter().for_each(|learned| base.buffers.know(learned));
    Ok(())
}
