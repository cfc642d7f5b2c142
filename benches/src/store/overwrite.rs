//! Random overwrites of a full volume: cost of the cleaner.
//!
//! Job: fill a volume with noise, overwrite it in chunks until the rest of the first fill has been moved or replaced,
//! then count.
//!
//! Invariants: contents are noise, never repeated, so that the device writes at least the client's bytes.

use anyhow::Context as _;
use hdrhistogram::Histogram;
use rand::seq::SliceRandom as _;
use rand::{RngExt as _, SeedableRng as _};
use rand_pcg::Pcg64Mcg;
use zc_core::{ErrorKind, usize_from_u64};
use zc_pool::RequestKind;
use zc_store::limits::BLOCK_BYTES;
use zc_store::{CatalogOp, Stats};
use zc_trace::workload::Zipf;

use crate::data::noise;
use crate::measure::Sample;
use crate::pool::{CHUNK_BYTES, Place, Rig, VOLUME};

/// Chunks of one write of a fill.
const FILL_CHUNKS: u64 = 16;
/// Requests at once while a volume is filled.
const FILL_DEPTH: usize = 32;

/// Pattern of written chunks.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) enum Pattern {
    /// Each as often as any other.
    Uniform,
    /// By Zipf's law with this exponent.
    Zipf(f64),
}

impl std::fmt::Display for Pattern {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Uniform => f.write_str("uniform"),
            Self::Zipf(theta) => write!(f, "zipf {theta}"),
        }
    }
}

/// A load.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Case {
    /// Bytes of the volume per 100 bytes that contents may use.
    pub(crate) full_percent: u64,
    pub(crate) pattern: Pattern,
    /// Requests at once.
    pub(crate) depth: usize,
    /// Bytes of a segment, if they are not those that a new pool has.
    pub(crate) segment_bytes: Option<u32>,
}

impl std::fmt::Display for Case {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self { full_percent, pattern, depth, segment_bytes } = self;
        write!(f, "{full_percent} % full, {pattern}, {depth} at once")?;
        segment_bytes.map_or(Ok(()), |bytes| write!(f, ", segments of {} KiB", bytes >> 10))
    }
}

/// Bytes written per byte of a client by a log that is overwritten uniformly at this utilisation and cleaned with the
/// least work: segments are cleaned when a share `x` of them is live, with `utilisation = (x - 1) / ln x` (J. Menon, "A
/// performance comparison of RAID-5 and log-structured arrays", HPDC 1995); then `1 / (1 - x)`.
pub(crate) fn bound(utilisation: f64) -> f64 {
    if utilisation <= 0.0 {
        return 1.0;
    }
    let (mut low, mut high) = (0.0_f64, 1.0_f64);
    for _ in 0..60 {
        let x = f64::midpoint(low, high);
        // It grows with x, from 0 to 1.
        if (x - 1.0) / x.ln() < utilisation { low = x } else { high = x }
    }
    1.0 / (1.0 - low)
}

/// Draws chunks.
#[derive(Debug)]
struct Draw {
    rng: Pcg64Mcg,
    zipf: Option<Zipf>,
    /// Popular chunks do not lie side by side.
    places: Vec<u64>,
}

impl Draw {
    fn new(pattern: Pattern, chunks: u64) -> Self {
        let mut rng = Pcg64Mcg::seed_from_u64(1);
        let mut places: Vec<u64> = (0..chunks).collect();
        places.shuffle(&mut rng);
        let zipf = match pattern {
            Pattern::Uniform => None,
            Pattern::Zipf(theta) => Some(Zipf::new(chunks, theta)),
        };
        Self { rng, zipf, places }
    }

    fn chunk(&mut self) -> u64 {
        let index = match &self.zipf {
            Some(zipf) => usize_from_u64(zipf.draw(&mut self.rng) - 1),
            None => self.rng.random_range(0..self.places.len()),
        };
        self.places[index]
    }
}

/// Writes in flight, and results of completed ones.
#[derive(Debug)]
pub(super) struct Writer {
    seed: u64,
    in_flight: usize,
    done: u64,
    no_space: u64,
    ended_ns: u64,
    longest_pause_ns: u64,
    times_ns: Histogram<u64>,
}

impl Writer {
    /// `seed`: of the noise; no two of a run may come near each other.
    pub(super) fn new(rig: &Rig, seed: u64) -> anyhow::Result<Self> {
        Ok(Self {
            seed,
            in_flight: 0,
            done: 0,
            no_space: 0,
            ended_ns: rig.now_ns(),
            longest_pause_ns: 0,
            times_ns: Histogram::new(3)?,
        })
    }

    /// Writes noise, as soon as fewer than `depth` writes are under way.
    pub(super) fn write(
        &mut self,
        rig: &mut Rig,
        depth: usize,
        first: u64,
        chunks: u64,
    ) -> anyhow::Result<()> {
        while self.in_flight >= depth {
            self.take(rig)?;
        }
        self.seed += 1;
        let data = noise(usize_from_u64(chunks * CHUNK_BYTES), self.seed).into();
        let offset_bytes = first * CHUNK_BYTES;
        rig.submit(RequestKind::Write { root: VOLUME, offset_bytes, data, known: Vec::new() })?;
        self.in_flight += 1;
        Ok(())
    }

    fn take(&mut self, rig: &mut Rig) -> anyhow::Result<()> {
        let answered = rig.answer()?;
        self.in_flight -= 1;
        self.longest_pause_ns = self.longest_pause_ns.max(rig.now_ns() - self.ended_ns);
        self.ended_ns = rig.now_ns();
        match answered.result {
            Ok(_) => {
                self.done += 1;
                self.times_ns.record(answered.took_ns)?;
            }
            Err(error) if error.kind() == ErrorKind::NoSpace => self.no_space += 1,
            Err(error) => return Err(error.into()),
        }
        Ok(())
    }

    pub(super) fn finish(&mut self, rig: &mut Rig) -> anyhow::Result<()> {
        while self.in_flight > 0 {
            self.take(rig)?;
        }
        Ok(())
    }
}

/// Returns a volume of `chunks` chunks, written once from front to back.
pub(super) fn filled(rig: &mut Rig, chunks: u64) -> anyhow::Result<()> {
    rig.catalog(CatalogOp::Create, VOLUME, VOLUME, chunks * CHUNK_BYTES)?;
    let mut writer = Writer::new(rig, 1 << 40)?;
    for first in (0..chunks).step_by(usize_from_u64(FILL_CHUNKS)) {
        writer.write(rig, FILL_DEPTH, first, FILL_CHUNKS.min(chunks - first))?;
    }
    writer.finish(rig)?;
    anyhow::ensure!(writer.no_space == 0, "the volume does not fit the pool");
    Ok(())
}

/// Amount of overwrites, per 100 chunks of the volume.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Rounds {
    /// Before anything is counted.
    pub(crate) before_percent: u64,
    /// While it is.
    pub(crate) counted_percent: u64,
}

/// Runs a load.
pub(crate) fn run(place: Place, case: Case, rounds: Rounds) -> anyhow::Result<Sample> {
    let mut rig = place.rig()?;
    let chunks = rig.usable_bytes() * case.full_percent / 100 / CHUNK_BYTES;
    filled(&mut rig, chunks).with_context(|| format!("{} % full", case.full_percent))?;
    let mut draw = Draw::new(case.pattern, chunks);
    let mut writer = Writer::new(&rig, 2 << 40)?;
    for _ in 0..chunks * rounds.before_percent / 100 {
        writer.write(&mut rig, case.depth, draw.chunk(), 1)?;
    }
    writer.finish(&mut rig)?;
    let before = (rig.tally(), rig.cpu(), rig.pool().store().stats(), rig.now_ns());
    let mut writer = Writer::new(&rig, 3 << 40)?;
    let mut not_free_bytes = 0;
    let requests = chunks * rounds.counted_percent / 100;
    for _ in 0..requests {
        writer.write(&mut rig, case.depth, draw.chunk(), 1)?;
        let space = rig.pool().store().space();
        not_free_bytes += u128::from(space.total_bytes - space.free_bytes);
    }
    writer.finish(&mut rig)?;
    let (tally, cpu, stats, began_ns) = before;
    let tally = rig.tally().since(&tally);
    let (now, ended) = (rig.cpu(), rig.pool().store().stats());
    let referred_bytes = rig.pool().store().space().referred_bytes;
    let utilisation = referred_bytes as f64 / rig.usable_bytes() as f64;
    let filled = referred_bytes as f64 * requests as f64 / (not_free_bytes as f64).max(1.0);
    let per_request = |count: u64| count as f64 / writer.done.max(1) as f64;
    let per_byte = |bytes: u64| per_request(bytes) / CHUNK_BYTES as f64;
    let pages = |of: fn(&Stats) -> u64| per_byte((of(&ended) - of(&stats)) * u64::from(BLOCK_BYTES));
    let [maps, chunk_table, all_pages] = [
        pages(|stats| stats.map_pages_written),
        pages(|stats| stats.chunk_pages_written),
        pages(|stats| stats.pages_written),
    ];
    let moved = per_byte(ended.chunk_bytes_moved - stats.chunk_bytes_moved);
    let device = per_byte(tally.written_bytes);
    let ms = |ns: u64| ns as f64 / 1e6;
    let quantile = |share| ms(writer.times_ns.value_at_quantile(share));
    let bare_ns = place.model.seek_ns + place.model.transfer_ns(CHUNK_BYTES);
    Ok(Sample::new([
        ("segments_kib", f64::from(place.segment_bytes >> 10)),
        ("in_use_percent", 100.0 * utilisation),
        ("filled_percent", 100.0 * filled),
        ("requests", writer.done as f64),
        ("device", device),
        ("moved", moved),
        ("maps", maps),
        ("chunk_table", chunk_table),
        ("other_tables", all_pages - maps - chunk_table),
        ("headers", (device - 1.0 - moved - all_pages).max(0.0)),
        ("bound", bound(utilisation)),
        ("over_bound", device / bound(utilisation)),
        ("bound_of_filled", bound(filled)),
        ("over_bound_of_filled", device / bound(filled)),
        ("checkpoints", (ended.checkpoints - stats.checkpoints) as f64),
        ("operations", per_request(tally.writes + tally.reads)),
        ("median_ms", quantile(0.5)),
        ("p99_ms", quantile(0.99)),
        ("p999_ms", quantile(0.999)),
        ("longest_ms", ms(writer.times_ns.max())),
        ("longest_pause_ms", ms(writer.longest_pause_ns)),
        ("no_space", writer.no_space as f64),
        ("pool_us", per_request(now.pool_ns - cpu.pool_ns) / 1000.0),
        ("jobs_us", per_request(now.jobs_ns - cpu.jobs_ns) / 1000.0),
        ("over_bare_disk", bare_ns as f64 / per_request(rig.now_ns() - began_ns).max(1.0)),
    ]))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::pool::SSD;

    #[test]
    fn the_bound_solves_the_equation() {
        // Desnoyers 2012, Figure 3: about 5 at a spare share of 0.1 of the device, 2.3 to 2.4 at a quarter.
        for (utilisation, amplification) in [(0.5, 1.26), (0.8, 2.68), (0.9, 5.18)] {
            assert!(
                (bound(utilisation) - amplification).abs() < 0.03,
                "{utilisation}: {}",
                bound(utilisation)
            );
        }
    }

    #[test]
    fn a_run_counts_all_and_cleans_no_less_than_it_must() {
        let case = Case { full_percent: 80, pattern: Pattern::Uniform, depth: 8, segment_bytes: None };
        let place = Place { model: SSD, device_bytes: 256 << 20, segment_bytes: 1 << 20 };
        let seen = run(place, case, Rounds { before_percent: 50, counted_percent: 100 }).unwrap();
        let figure = |name| seen.get(name).unwrap();
        assert_eq!(figure("no_space"), 0.0);
        assert!(figure("moved") > 0.0 && figure("device") > 1.0);
        let longest_ms = figure("longest_pause_ms");
        assert!(longest_ms < 10.0, "clients waited {longest_ms} ms for the cleaner at once");
        let least = 1.0 + ["moved", "maps", "chunk_table", "other_tables"].map(figure).iter().sum::<f64>();
        assert!(figure("device") >= least - 1e-9, "{} {least}", figure("device"));
    }
}
