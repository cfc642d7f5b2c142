//! The caches for comparison with the manager, in time: single extents, and FlaZ.
//!
//! Job: convert the operations of such a cache's step into work for the queues. A client waits for its read and for
//! its write to the origin. It waits neither for compression nor for writes to the cache device.

use zc_core::Codec;
use zc_trace::Op;

use super::queue::simulate;
use super::report::TimeReport;
use super::timing::Timing;
use crate::content::BLOCK_BYTES;
use crate::error::ReplayError;
use crate::extent_lru::{self, Did, ExtentLru};
use crate::flaz::{self, Outcome, Settings};
use crate::load::{Step, Trace};
use crate::work::{Asked, Work, place};

const fn waited_for(work: Work) -> Asked {
    Asked { work, foreground: true }
}

const fn owed(work: Work) -> Asked {
    Asked { work, foreground: false }
}

const fn block_bytes(blocks: u64) -> u64 {
    blocks * BLOCK_BYTES as u64
}

/// A write goes through to the origin.
fn through(step: &Step) -> Option<Asked> {
    let (place, bytes) =
        (place(step.volume, block_bytes(step.first_block)), block_bytes(u64::from(step.blocks)));
    (step.op == Op::Write).then_some(waited_for(Work::OriginWrite { place, bytes }))
}

/// Replays a trace through a cache of single extents in time.
///
/// # Errors
/// None that a trace in memory could cause.
///
/// # Panics
/// As [`extent_lru::run`].
pub fn extents(trace: &Trace, settings: ExtentLru, timing: &Timing) -> Result<TimeReport, ReplayError> {
    let mut cache = extent_lru::Cache::new(trace, settings);
    let bytes = u64::from(settings.extent_bytes);
    simulate(trace, timing, Codec::Raw, settings.warm_requests, |step| {
        let work = cache.step(step).iter().map(|did| match *did {
            Did::Found { slot } => waited_for(Work::CacheRead { place: slot * bytes, bytes, decoded: 0 }),
            Did::Missed { first_block } => {
                waited_for(Work::OriginRead { place: place(step.volume, block_bytes(first_block)), bytes })
            }
            Did::Stored { slot } => owed(Work::CacheWrite { place: slot * bytes, bytes }),
        });
        Ok(joined(work).into_iter().chain(through(step)).collect())
    })
}

/// Reads of the origin that follow on each other are one.
fn joined(work: impl Iterator<Item = Asked>) -> Vec<Asked> {
    let mut all: Vec<Asked> = Vec::new();
    let mut last: Option<usize> = None;
    for asked in work {
        if let Work::OriginRead { place, bytes } = asked.work {
            if let Some(at) = last
                && let Work::OriginRead { place: first, bytes: before } = &mut all[at].work
                && *first + *before == place
            {
                *before += bytes;
                continue;
            }
            last = Some(all.len());
        }
        all.push(asked);
    }
    all
}

/// Replays a trace through FlaZ, or the same cache without compression, in time.
///
/// # Errors
/// None that a trace in memory could cause.
///
/// # Panics
/// As [`flaz::run`].
pub fn flaz(trace: &Trace, settings: Settings, timing: &Timing) -> Result<TimeReport, ReplayError> {
    let mut cache = flaz::Cache::new(trace, settings);
    let mut frames = Frames { bytes: u64::from(settings.packing.frame_bytes), count: 0 };
    let compressed = !matches!(settings.codec, Codec::Raw);
    simulate(trace, timing, settings.codec, settings.warm_requests, |step| {
        let before = cache.counts();
        cache.step(step);
        let grown = grown(&before, &cache.counts());
        let mut work: Vec<Asked> = through(step).into_iter().collect();
        let first = block_bytes(step.first_block);
        let missed = block_bytes(grown.reads - grown.read_hits);
        if missed > 0 {
            let place = place(step.volume, first);
            work.push(waited_for(Work::OriginRead { place, bytes: missed }));
        }
        if compressed {
            frames.work(&grown, &mut work);
        } else {
            in_place(first, &grown, &mut work);
        }
        Ok(work)
    })
}

/// Returns the counters of a step.
fn grown(before: &Outcome, after: &Outcome) -> Outcome {
    let mut grown = *after;
    grown.reads -= before.reads;
    grown.read_hits -= before.read_hits;
    grown.put_bytes -= before.put_bytes;
    grown.metadata_operations -= before.metadata_operations;
    grown.frames.read -= before.frames.read;
    grown.frames.written -= before.frames.written;
    grown.frames.cleaner_read -= before.frames.cleaner_read;
    grown.frames.cleaner_written -= before.frames.cleaner_written;
    grown
}

/// Blocks that lie raw on the device.
fn in_place(place: u64, grown: &Outcome, work: &mut Vec<Asked>) {
    let bytes = block_bytes(grown.read_hits);
    if bytes > 0 {
        work.push(waited_for(Work::CacheRead { place, bytes, decoded: 0 }));
    }
    if grown.put_bytes > 0 {
        work.push(owed(Work::CacheWrite { place, bytes: grown.put_bytes }));
    }
}

/// Frames on the device: where one lies is not followed, so that the next one is taken to be elsewhere.
struct Frames {
    bytes: u64,
    count: u64,
}

impl Frames {
    fn next(&mut self) -> u64 {
        self.count += 1;
        self.count * self.bytes
    }

    fn work(&mut self, grown: &Outcome, work: &mut Vec<Asked>) {
        let hit_bytes = block_bytes(grown.read_hits);
        let decoded = hit_bytes.checked_div(grown.frames.read);
        for _ in 0..grown.frames.read {
            let (place, decoded) = (self.next(), decoded.unwrap_or(0));
            work.push(waited_for(Work::CacheRead { place, bytes: self.bytes, decoded }));
        }
        if hit_bytes > 0 && grown.frames.read == 0 {
            work.push(waited_for(Work::Decompress { bytes: hit_bytes }));
        }
        if grown.put_bytes > 0 {
            work.push(owed(Work::Compress { bytes: grown.put_bytes }));
        }
        for _ in 0..grown.frames.written + grown.frames.cleaner_written {
            let place = self.next();
            work.push(owed(Work::CacheWrite { place, bytes: self.bytes }));
        }
        for _ in 0..grown.frames.cleaner_read {
            let place = self.next();
            work.push(owed(Work::CacheRead { place, bytes: self.bytes, decoded: hit_bytes.min(self.bytes) }));
        }
        if grown.metadata_operations > 0 {
            let bytes = block_bytes(grown.metadata_operations);
            work.push(owed(Work::CacheWrite { place: self.next(), bytes }));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Ratios;
    use crate::time::bare;
    use crate::time::profile::Profile;
    use crate::time::timing::Arrival;
    use crate::work::HitReads;
    use zc_trace::workload::{Kind, Workload};

    fn timing(name: &str) -> Timing {
        let arrival = Arrival::Closed { clients: 1 };
        Timing { profile: Profile::named(name).unwrap(), arrival, memory_scale: 1.0, hits: HitReads::Pieces }
    }

    fn trace(reads: f64) -> Trace {
        let kind = Kind::Zipf { theta: 0.5 };
        let workload =
            Workload { kind, blocks: 2048, requests: 20_000, reads, shared: 0.0, ratio: (2.0, 0.2), seed: 7 };
        Trace::load(workload.generate().map(Ok), Ratios::default()).unwrap()
    }

    fn of_extents(capacity_bytes: u64) -> ExtentLru {
        let warm_requests = 15_000;
        ExtentLru { extent_bytes: 4096, capacity_bytes, dedup: false, recipes: false, warm_requests }
    }

    #[test]
    fn a_cache_of_extents_is_as_fast_as_what_it_finds() {
        let (trace, timing) = (trace(1.0), timing("hdd"));
        let none = bare(&trace, &timing, 15_000).unwrap().reads.mean_us;
        let mean = |blocks: u64| extents(&trace, of_extents(blocks * 4096), &timing).unwrap().reads.mean_us;
        let (few, half, all) = (mean(8), mean(1024), mean(4096));
        assert!((0.9..1.1).contains(&(few / none)), "{few} of {none} us");
        assert!(half < few && all < 300.0, "{half} and {all} us");
    }

    #[test]
    fn writes_of_a_cache_of_extents_wait_for_the_origin() {
        let (trace, timing) = (trace(0.0), timing("hdd"));
        let with = extents(&trace, of_extents(64 * 4096), &timing).unwrap();
        let without = bare(&trace, &timing, 15_000).unwrap();
        assert!(with.ssd_busy > 0.0 && with.disk_busy > 0.9, "{with:?}");
        assert!((0.9..1.1).contains(&(with.iops() / without.iops())), "{with:?} {without:?}");
    }

    #[test]
    fn flaz_pays_for_frames_and_gains_by_hits() {
        let (trace, timing) = (trace(1.0), timing("flaz-1d1s"));
        let run = |codec, share: u64, overbooking| {
            // The buffer holds next to nothing of so small a device.
            let packing = flaz::Packing { buffer_frames: 4, ..flaz::Packing::default() };
            let settings = Settings {
                warm_requests: 15_000,
                packing,
                ..Settings::new(2048 * 4096 / 100 * share, codec, overbooking)
            };
            flaz(&trace, settings, &timing).unwrap()
        };
        let (plain, packed) = (run(Codec::Raw, 60, 1.0), run(Codec::Lz4, 60, 1.6));
        assert!(packed.reads.mean_us < plain.reads.mean_us, "{packed:?} {plain:?}");
        let (plain, packed) = (run(Codec::Raw, 100, 1.0), run(Codec::Lz4, 100, 1.6));
        assert!(packed.reads.mean_us > plain.reads.mean_us, "all hits: {packed:?} {plain:?}");
        assert!(packed.cpu_busy * packed.seconds > plain.cpu_busy * plain.seconds, "{packed:?} {plain:?}");
    }
}
