//! Figure 8: overhead of the cache without hits, and with hits only.

use zc_replay::cache::Report;
use zc_replay::time::profile::{CpuProfile, DiskProfile, Profile};
use zc_replay::time::{self, Arrival, HitReads, TimeReport, Timing};
use zc_replay::{Ratios, ReplayError, Trace};
use zc_trace::storm::{Shape, Storm, Template};
use zc_trace::{Boot, boot};

use super::hits::weu_kib;
use super::runs::Variant;
use crate::context::each;
use crate::{Ablation, Axis, Chart, Context, Figure, FigureError, Outcome, Standing};

const MISSES: &str = "The model adds nothing to a miss, over an array or a fast origin; the paper adds up to 7 %, our daemon 44 to 78 % \
                      (benches/bootstorm.md). In the model insertions wait for idle time. In the daemon they share two processors \
                      and one SSD, which is the origin as well, with the misses";
const HITS: &str = "Ours adds +22, -26, +37 and -12 %, the paper 2, 11, 6 and 18 %: neighbours of a unit are read in one piece, with \
                    their headers. Our daemon adds 24 to 52 % (benches/bootstorm.md)";

/// Nitro's Figure 8.
pub(crate) const FIGURE_8: Figure = Figure {
    id: "nitro-8",
    title: "Read response time in a boot storm without hits and with nothing but hits",
    source: "Li et al., Nitro, USENIX ATC 2014, section 6.2, Figure 8",
    ours: "Machines that boot side by side (18 MB read by each, 99 % reads, 14 % of them random, 90 % of contents those of the \
           first machine, addresses shifted by up to 15 %), twice, through the production cache manager in the model of \
           time, eight clients. Without hits: the requests that name no extent which an earlier one named, through a \
           cache of a few units, over the same from the array (TPS) alone. With hits: the second boots in a cache that \
           holds everything, over the same blocks read from the SSD without units.",
    differences: "With hits the paper pays 2 to 18 % for decompression and look-ups. Ours reads neighbours of a unit in \
                  one piece: compressed ones are on fewer pages than the bare blocks, which saves more time than \
                  decompression takes; raw ones are on more, for their headers. The steps show it: with an operation \
                  for each extent that begins at a page, and its header elsewhere, variants without deduplication come near what the paper has; with \
                  it, extents that all machines share are on few dies and wait there. Decompression then costs a point or less (the paper 9 to 12), as it is priced by today's LZ4: what compressed \
                  extents take longer is that neighbours lie on one die and wait for each other; look-ups by fingerprint cost nothing in the model. Without hits the model lets \
                  insertions delay a miss only by the time of cores and dies that they share, and the origin is no part of the \
                  cache's SSD. At small scale there are \
                  8 machines, at full 60.",
    standing: Standing::Contradicted(MISSES),
    numbers: &[
        ("nitro.f8.miss", Standing::Contradicted(MISSES)),
        ("nitro.f8.hit", Standing::Contradicted(HITS)),
    ],
    quick: false,
    run,
};

/// Extent size of the paper, and of all variants here.
const EXTENT_BYTES: u32 = 8 << 10;
/// Requests under way.
const CLIENTS: u32 = 8;

/// Machines that boot side by side, all of them twice.
fn storm(machines: u32) -> Result<Trace, FigureError> {
    let template = Template::new(boot(Boot::default()).into_iter().map(Ok)).map_err(ReplayError::from)?;
    let storm = Storm::new(&template, machines, 2, Shape::default());
    Ok(Trace::load(storm.map(Ok), Ratios::default())?)
}

/// Steps from the daemon's way of reading extents to the presumable one of the paper's prototype, with names.
const STEPS: [(HitReads, u32, &str); 4] = [
    (HitReads::Pieces, CLIENTS, "as the daemon reads"),
    (HitReads::Extents, CLIENTS, "an operation for each extent"),
    (HitReads::Aligned, CLIENTS, "and headers elsewhere, so that an extent starts at a page"),
    (HitReads::Aligned, 1, "and one client, so that no request waits for another"),
];

fn timing(context: &Context, mut profile: Profile, hits: HitReads, clients: u32) -> Timing {
    profile.cpu.slowness *= match context.ablation {
        Some(Ablation::SlowCores) => 500.0,
        Some(Ablation::FreeCores) => 0.0,
        _ => 1.0,
    };
    Timing { profile, arrival: Arrival::Closed { clients }, memory_scale: 1.0, hits }
}

/// An origin that answers as fast as the one of the daemon's benchmark, and two cores of today.
const fn fast_origin(profile: Profile) -> Profile {
    let disk = DiskProfile {
        spindles: 64,
        parities: 0,
        seek_ns: 0,
        turn_ns: 400_000,
        bytes_per_s: 1_000_000_000,
        write_memory_bytes: 0,
        ..profile.disk
    };
    Profile { disk, cpu: CpuProfile::measured(2), ..profile }
}

/// Returns the increase of the read response time, in per cent.
fn over(with: &TimeReport, without: &TimeReport) -> f64 {
    (with.reads.mean_us / without.reads.mean_us - 1.0) * 100.0
}

/// Something of each of the four variants.
type Four = Vec<f64>;

/// Results of the four variants.
struct Found {
    /// Increase of the read response time, in per cent.
    overhead: Four,
    /// Read hits in per cent, which identify the runs.
    hits: Four,
    /// Reads that were timed, of one variant as of all.
    reads: u64,
    /// Read response time without the cache, in microseconds.
    bare_us: f64,
}

impl Found {
    fn new(all: &[(Report, TimeReport)], without: &TimeReport) -> Self {
        Self {
            overhead: all.iter().map(|(_, time)| over(time, without)).collect(),
            hits: all.iter().map(|(report, _)| report.read_hit_ratio() * 100.0).collect(),
            reads: without.reads.count,
            bare_us: without.reads.mean_us,
        }
    }
}

/// All hits, over the blocks on the SSD without units.
fn all_hits(context: &Context, trace: &Trace, timing: &Timing) -> Result<Found, FigureError> {
    let half = trace.requests() / 2;
    let on_ssd = time::on_ssd(trace, timing, half)?;
    let all = each(&Variant::four(weu_kib(context)), |variant| {
        let variant = Variant { recipes: false, ..*variant };
        let everything = trace.footprint_bytes() * 2;
        variant.time_from(trace, context.room(everything, everything), timing, half)
    })?;
    Ok(Found::new(&all, &on_ssd))
}

/// No hits, over the origin without a cache.
fn no_hits(context: &Context, trace: &Trace, timing: &Timing) -> Result<Found, FigureError> {
    let (bare, weu) = (time::bare(trace, timing, 0)?, weu_kib(context));
    let all = each(&Variant::four(weu), |variant| {
        let variant = Variant { recipes: false, ..*variant };
        variant.time_from(trace, u64::from(weu) * 4096, timing, 0)
    })?;
    Ok(Found::new(&all, &bare))
}

fn run(context: &Context) -> Result<Outcome, FigureError> {
    let mut outcome = Outcome::default();
    let trace = storm(context.scale.pick(8, 60))?;
    let Some(profile) = Profile::named("nitro-tps") else { return Ok(outcome) };
    let steps = STEPS
        .iter()
        .map(|(hits, clients, _)| all_hits(context, &trace, &timing(context, profile, *hits, *clients)))
        .collect::<Result<Vec<Found>, _>>()?;
    // The same machines without repeated requests: a small cache alone would have hits.
    let twice = storm(context.scale.pick(8, 60))?;
    let once = if context.ablates(Ablation::Repeats) { twice } else { twice.without_repeats(EXTENT_BYTES) };
    let without = no_hits(context, &once, &timing(context, profile, HitReads::Pieces, CLIENTS))?;
    let fast = timing(context, fast_origin(profile), HitReads::Pieces, CLIENTS);
    let fast = no_hits(context, &once, &fast)?;
    let [with, _, aligned, alone] = &steps[..] else { unreachable!("a result for each step") };
    let names = Variant::four(weu_kib(context)).map(|variant| variant.name());
    let mut chart =
        Chart::bars("Overhead in read response time", names.to_vec(), Axis::linear("overhead, %"));
    chart.add_bars("no hits, over the array", &without.overhead);
    chart.add_bars("all hits, over the SSD", &with.overhead);
    outcome.charts.push(chart);
    let row = |name: &str, four: &Four| {
        core::iter::once(name.to_owned()).chain(four.iter().map(|percent| format!("{percent:+.1}"))).collect()
    };
    let head: Vec<&str> = core::iter::once("").chain(names.iter().map(String::as_str)).collect();
    let mut rows: Vec<Vec<String>> = vec![row("no hits, over the array", &without.overhead)];
    let of_fast = format!("no hits, over an origin that answers in {:.0} us", fast.bare_us);
    rows.push(row(&of_fast, &fast.overhead));
    let named = STEPS.iter().zip(&steps);
    rows.extend(named.map(|((_, _, name), found)| row(&format!("all hits, {name}"), &found.overhead)));
    outcome.table("Overhead in read response time, %", &head, rows);
    shapes(&mut outcome, &without.overhead, &with.overhead, &aligned.overhead);
    hits_are_what_they_are_named_for(&mut outcome, &without, &steps);
    decompression(context, &trace, profile, &alone.overhead, &mut outcome)?;
    outcome.beside("nitro.f8.miss", listed(&without.overhead));
    outcome.beside("nitro.f8.hit", listed(&with.overhead));
    Ok(outcome)
}

/// Returns the share of decompression for one client: the difference to processors that take no time.
fn decompression(
    context: &Context,
    trace: &Trace,
    mut profile: Profile,
    alone: &Four,
    outcome: &mut Outcome,
) -> Result<(), FigureError> {
    profile.cpu.slowness = 0.0;
    let free = all_hits(context, trace, &timing(context, profile, HitReads::Aligned, 1))?.overhead;
    let costs = [1, 3].map(|variant| alone[variant] - free[variant]);
    let dearer = [1, 3].map(|variant| alone[variant] - alone[variant - 1]);
    outcome.asserted(
        &[Ablation::FreeCores],
        costs.iter().all(|points| *points > 0.2),
        "where no request waits for another, decompression costs compressed extents something",
        format!(
            "{:+.1} and {:+.1} of the {:+.1} and {:+.1} points that they take longer",
            costs[0], costs[1], dearer[0], dearer[1]
        ),
    );
    Ok(())
}

fn listed(four: &Four) -> String {
    four.iter().map(|percent| format!("{percent:.1}")).collect::<Vec<_>>().join("|")
}

/// Without this the two kinds of runs could be of anything in between.
fn hits_are_what_they_are_named_for(outcome: &mut Outcome, without: &Found, steps: &[Found]) {
    let most = without.hits.iter().copied().fold(0.0, f64::max);
    outcome.asserted(
        &[Ablation::Repeats],
        most < 1.0,
        "without hits there are none",
        format!("at most {most:.2} % of {} reads", without.reads),
    );
    let least = steps.iter().flat_map(|found| &found.hits).copied().fold(100.0, f64::min);
    outcome.asserted(
        &[Ablation::LittleRoom],
        least > 99.0,
        "with hits there is nothing else",
        format!("at least {least:.2} % of reads"),
    );
}

fn shapes(outcome: &mut Outcome, without: &Four, with: &Four, aligned: &Four) {
    let most = |some: &[f64]| some.iter().copied().fold(f64::MIN, f64::max);
    outcome.contradicted(
        MISSES,
        most(without) <= 7.0,
        "without hits at most 7 % are added, as in the paper, and far less than our daemon adds",
        format!("{:+.1} %", most(without)),
    );
    let mut at_most = |some: &[f64], bound: f64, what: &str| {
        outcome.asserted(&[Ablation::SlowCores], most(some) <= bound, what, format!("{:+.1} %", most(some)));
    };
    at_most(with, 60.0, "with hits the cost is that of pages and decompression");
    let (apart, shared) = aligned.split_at(2);
    at_most(
        apart,
        25.0,
        "with an operation for each extent that begins at a page, at most 25 % without deduplication (the paper: 11 %)",
    );
    at_most(
        shared,
        40.0,
        "with it, where shared extents queue at their dies, at most 40 % (the paper: 18 %)",
    );
}
