//! Time: durations of a replayed trace on a disk, an SSD and some cores.
//!
//! Job: a discrete-event simulation over the operations of the cache manager. The manager decides in the order of the
//! trace, as without time ([`crate::cache`]); its operations for a request then pass through queues: spindles that
//! seek, turn and transfer, dies and an interface, cores that hash, compress and decompress. A request is answered
//! when everything that it needs is done; background work (hashing, compression, units, journal) is done in the gaps.
//!
//! Requests come from a number of clients with one outstanding each, or at the times of the trace.
//!
//! Invariants: events are processed in the order of time; the same trace and profile give the same report.
//!
//! Out of scope: feedback of time. Insertions are never skipped for lack of time, and hits do not depend on the speed
//! of devices. Processors do not preempt; device caches are not modelled, except the write memory of arrays.

mod devices;
pub mod profile;
mod queue;
mod report;
mod rivals;
mod server;
mod stored;
mod timing;

use zc_config::Config;
use zc_core::Codec;
use zc_trace::Op;

use crate::cache::{self, Replay, Report};
use crate::error::ReplayError;
use crate::load::{Step, Trace};
pub use crate::work::HitReads;
use crate::work::{Asked, Work, WorkLog, place};
use queue::{simulate, simulate_on};
pub use report::{Latencies, TimeReport};
pub use rivals::{extents, flaz};
pub use stored::{Root, Store};
pub use timing::{Arrival, Timing};

/// Replays a trace through the cache manager in time.
///
/// # Errors
/// Errors of [`cache::run`], and of the store that the profile has.
pub fn run(
    trace: &Trace,
    config: &Config,
    replay: Replay,
    timing: &Timing,
) -> Result<(Report, TimeReport), ReplayError> {
    let (mut running, codec) = start(trace, config, replay, timing)?;
    let report = simulate(trace, timing, codec, replay.warm_requests, |step| {
        running.step(step)?;
        Ok(running.driver.take_work())
    })?;
    Ok((running.finish()?, report))
}

/// Replays a trace in time over a store that was filled before, and shows the volumes of the trace.
///
/// # Errors
/// As [`run`].
pub fn run_on(
    store: &mut Store,
    trace: &Trace,
    config: &Config,
    replay: Replay,
    timing: &Timing,
) -> Result<(Report, TimeReport), ReplayError> {
    let (mut running, codec) = start(trace, config, replay, timing)?;
    let report = simulate_on(store, trace, timing, codec, replay.warm_requests, |step| {
        running.step(step)?;
        Ok(running.driver.take_work())
    })?;
    Ok((running.finish()?, report))
}

fn start<'a>(
    trace: &'a Trace,
    config: &Config,
    replay: Replay,
    timing: &Timing,
) -> Result<(cache::Running<'a>, Codec), ReplayError> {
    let codec = config
        .volumes
        .first()
        .map_or(Codec::Raw, |volume| zc_config::manager::codec(volume.compression, volume.compression_level));
    let mut running = cache::Running::start(trace, config, replay)?;
    let page_bytes = u64::from(timing.profile.ssd.page_bytes);
    running.driver.log_work(WorkLog::new(u64::from(config.cache.weu_bytes), timing.hits, page_bytes));
    Ok((running, codec))
}

/// Simulates a trace whose data is all on the cache device, raw and in place: the bound for a cache with nothing but
/// hits.
///
/// # Errors
/// None that a trace in memory could cause.
pub fn on_ssd(trace: &Trace, timing: &Timing, warm_requests: u64) -> Result<TimeReport, ReplayError> {
    simulate(trace, timing, Codec::Raw, warm_requests, |step| {
        let (place, bytes) = (place(step.volume, step.first_block * 4096), u64::from(step.blocks) * 4096);
        let work = match step.op {
            Op::Read | Op::Access => Work::CacheRead { place, bytes, decoded: 0 },
            Op::Write => Work::CacheWrite { place, bytes },
            Op::Flush | Op::Discard => return Ok(Vec::new()),
        };
        Ok(vec![Asked { work, foreground: true }])
    })
}

/// Simulates a trace without a cache: each request goes to the origin.
///
/// # Errors
/// Only a failure of the store.
/// None that a trace in memory could cause, but for a store that cannot go on.
pub fn bare(trace: &Trace, timing: &Timing, warm_requests: u64) -> Result<TimeReport, ReplayError> {
    simulate(trace, timing, Codec::Raw, warm_requests, |step| Ok(at_origin(step)))
}

/// Simulates a trace without a cache over a store that was filled before, and that has the volumes of the trace.
///
/// # Errors
/// The store fails.
/// The store cannot go on.
pub fn bare_on(
    store: &mut Store,
    trace: &Trace,
    timing: &Timing,
    warm_requests: u64,
) -> Result<TimeReport, ReplayError> {
    simulate_on(store, trace, timing, Codec::Raw, warm_requests, |step| Ok(at_origin(step)))
}

fn at_origin(step: &Step) -> Vec<Asked> {
    let (place, bytes) = (place(step.volume, step.first_block * 4096), u64::from(step.blocks) * 4096);
    let work = match step.op {
        Op::Read | Op::Access => Work::OriginRead { place, bytes },
        Op::Write => Work::OriginWrite { place, bytes },
        Op::Flush | Op::Discard => return Vec::new(),
    };
    vec![Asked { work, foreground: true }]
}

#[cfg(test)]
mod tests;
