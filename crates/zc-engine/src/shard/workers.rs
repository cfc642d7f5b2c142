//! What the CPU does with bytes for the manager: decode stored extents, hash, compress, compare.
//!
//! Job: decode what was read, at once if that is quick, else by the workers; hand them the rest, and turn their results
//! into events.
//!
//! Invariants: what is decoded on the data-plane thread in one turn is bounded. A read ends once, with its last part.
//!
//! What it does not do: read from the device (`device`), or the threads (`reduce_pool`).

use zc_cache::seam::{Action, Event, ExtentRead};
use zc_core::{BufId, BufSlice, FingerprintKind, Map, OpId};
use zc_format::{EXTENT_HEADER_BYTES, ExtentError};
use zc_io::{AlignedBuf, Waker};

use crate::error::EngineError;
use crate::limits::INLINE_DECODE_BYTES_PER_TURN;
use crate::shard::base::Base;
use crate::shard::buffers::{Buffers, slice};
use crate::shard::extents::{ExtentsRead, Learned, PartDecode, decode};
use crate::shard::pending::ExtentsPending;
use crate::shard::reads::{in_groups, inline_cost_bytes};
use crate::shard::reduce::{Facts, Scratch};
use crate::shard::reduce_pool::{Job, Outcome, ReducePool};

/// See the module documentation.
#[derive(Debug)]
pub(crate) struct Workers {
    pool: ReducePool,
    scratch: Scratch,
    /// Reads that the workers decode.
    reads: Map<u64, ExtentsRead>,
    /// What may still be decoded here in this turn.
    inline_left_bytes: u32,
}

impl Workers {
    /// Starts so many threads on the given CPUs (all, if empty).
    ///
    /// # Errors
    /// When a thread cannot start.
    pub(crate) fn start(threads: u32, cpus: &[usize], waker: Waker) -> Result<Self, EngineError> {
        let pool = ReducePool::start(threads, cpus, waker)?;
        Ok(Self { pool, scratch: Scratch::default(), reads: Map::default(), inline_left_bytes: 0 })
    }

    /// A turn begins.
    pub(crate) const fn begin_turn(&mut self) {
        self.inline_left_bytes = INLINE_DECODE_BYTES_PER_TURN;
    }

    /// A turn ends: jobs go to the threads; at once, if a client waits for them.
    pub(crate) fn end_turn(&mut self, hurry: bool, now_ms: u64) {
        self.pool.hurry(hurry);
        self.pool.hand_over(now_ms);
    }

    /// Whether there are results.
    pub(crate) fn has_results(&self) -> bool {
        self.pool.has_results()
    }

    /// Whether jobs wait to be handed over.
    pub(crate) const fn has_fresh(&self) -> bool {
        self.pool.has_fresh()
    }

    /// Jobs waiting now.
    pub(crate) fn waiting(&self) -> usize {
        self.pool.waiting()
    }

    /// Jobs that the data plane carried out because the queues were full.
    pub(crate) fn inline_jobs(&self) -> u64 {
        self.pool.inline_jobs()
    }

    /// Turns what the threads found out into events.
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
        let mut results = Vec::with_capacity(parts.len());
        for part in parts {
            let at = part.expected.offset_bytes;
            let longest = EXTENT_HEADER_BYTES + part.expected.raw_bytes;
            let bytes = base.buffers.read(slice(weu, at, longest.min(weu_bytes.saturating_sub(at))));
            let mut dest = base.buffers.write(part.dest);
            let decoded = decode(&bytes, part, &mut dest, &mut self.scratch);
            results.push(keep_learned(base, decoded));
        }
        base.tell(Event::ExtentsRead { op, result: Ok(results) });
    }

    /// Pages are here: decode them, here if that is quick, else by the workers.
    pub(crate) fn extents_arrived(&mut self, base: &mut Base, read: ExtentsPending, pages: AlignedBuf) {
        let ExtentsPending { op, start_bytes, parts, urgent } = read;
        let raw_bytes = parts.iter().fold(0_u32, |sum, part| sum.saturating_add(part.expected.raw_bytes));
        let cost_bytes = inline_cost_bytes(pages.len(), raw_bytes);
        // What is hashed is for the workers, whoever waits.
        let hashes = parts.iter().any(|part| part.proof.is_some());
        let inline = urgent && !hashes && cost_bytes.is_some_and(|bytes| bytes <= self.inline_left_bytes);
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
        if inline {
            self.inline_left_bytes -= cost_bytes.unwrap_or(0);
            let decoded: Vec<_> = decodes.map(|decode| decode.run(&mut self.scratch)).collect();
            let results = decoded.into_iter().map(|decoded| keep_learned(base, decoded)).collect();
            base.tell(Event::ExtentsRead { op, result: Ok(results) });
            return;
        }
        let groups = in_groups(decodes.collect());
        self.reads.insert(number, ExtentsRead::new(op, groups.iter().map(Vec::len).sum()));
        for group in groups {
            self.pool.submit(Job::Decode(group));
        }
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

/// What was learned of an extent is kept beside its bytes.
fn keep_learned(base: &mut Base, decoded: Result<Option<Learned>, ExtentError>) -> Result<(), ExtentError> {
    decoded?.into_iter().for_each(|learned| base.buffers.know(learned));
    Ok(())
}
