//! Figure 8: what the cache costs when it finds nothing, and when it finds everything.

use zc_replay::cache::Report;
use zc_replay::time::profile::Profile;
use zc_replay::time::{self, Arrival, HitReads, TimeReport, Timing};
use zc_replay::{Ratios, ReplayError, Trace};
use zc_trace::storm::{Shape, Storm, Template};
use zc_trace::{Boot, boot};

use super::hits::weu_kib;
use super::runs::Variant;
use crate::context::each;
use crate::{Axis, Chart, Context, Figure, FigureError, Outcome};

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
                  it, extents that all machines share are on few dies and wait there. Decompression then costs less than there (4 to 6 points alone, the paper 9 to 12), as it is \
                  priced by today's LZ4; look-ups by fingerprint cost nothing in the model. Without hits the model lets \
                  insertions delay a miss only by the time of cores and dies that they share. At small scale there are \
                  8 machines, at full 60.",
    quick: false,
    run,
};

/// Of the paper, and of all variants here.
const EXTENT_BYTES: u32 = 8 << 10;
/// Requests under way.
const CLIENTS: u32 = 8;

/// Machines that boot side by side, all of them twice.
fn storm(machines: u32) -> Result<Trace, FigureError> {
    let template = Template::new(boot(Boot::default()).into_iter().map(Ok)).map_err(ReplayError::from)?;
    let storm = Storm::new(&template, machines, 2, Shape::default());
    Ok(Trace::load(storm.map(Ok), Ratios::default())?)
}

/// Steps from how the daemon reads extents to how the paper's prototype may, each with what it is called.
const STEPS: [(HitReads, u32, &str); 4] = [
    (HitReads::Pieces, CLIENTS, "as the daemon reads"),
    (HitReads::Extents, CLIENTS, "an operation for each extent"),
    (HitReads::Aligned, CLIENTS, "and headers elsewhere, so that an extent starts at a page"),
    (HitReads::Aligned, 1, "and one client, so that nobody waits in a queue"),
];

const fn timing(profile: Profile, hits: HitReads, clients: u32) -> Timing {
    Timing { profile, arrival: Arrival::Closed { clients }, memory_scale: 1.0, hits }
}

/// How much longer a read takes, in per cent.
fn over(with: &TimeReport, without: &TimeReport) -> f64 {
    (with.reads.mean_us / without.reads.mean_us - 1.0) * 100.0
}

/// Something of each of the four variants.
type Four = Vec<f64>;

/// What came of the four variants.
struct Found {
    /// How much longer a read takes, in per cent.
    overhead: Four,
    /// Read hits in per cent: what the runs are named for.
    hits: Four,
    /// Reads that were timed, of one variant as of all.
    reads: u64,
}

impl Found {
    fn new(all: &[(Report, TimeReport)], without: &TimeReport) -> Self {
        Self {
            overhead: all.iter().map(|(_, time)| over(time, without)).collect(),
            hits: all.iter().map(|(report, _)| report.read_hit_ratio() * 100.0).collect(),
            reads: without.reads.count,
        }
    }
}

/// All hits, over the blocks on the SSD without units.
fn all_hits(context: &Context, trace: &Trace, timing: &Timing) -> Result<Found, FigureError> {
    let half = trace.requests() / 2;
    let on_ssd = time::on_ssd(trace, timing, half)?;
    let all = each(&Variant::four(weu_kib(context)), |variant| {
        let variant = Variant { recipes: false, ..*variant };
        variant.time_from(trace, trace.footprint_bytes() * 2, timing, half)
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
        .map(|(hits, clients, _)| all_hits(context, &trace, &timing(profile, *hits, *clients)))
        .collect::<Result<Vec<Found>, _>>()?;
    // The same machines, but of what they ask for again only the first time: a small cache alone would have hits.
    let once = storm(context.scale.pick(8, 60))?.without_repeats(EXTENT_BYTES);
    let without = no_hits(context, &once, &timing(profile, HitReads::Pieces, CLIENTS))?;
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
    let named = STEPS.iter().zip(&steps);
    rows.extend(named.map(|((_, _, name), found)| row(&format!("all hits, {name}"), &found.overhead)));
    outcome.table("Overhead in read response time, %", &head, rows);
    shapes(&mut outcome, &without.overhead, &with.overhead, &aligned.overhead);
    hits_are_what_they_are_named_for(&mut outcome, &without, &steps);
    let alone = &alone.overhead;
    let dearer = [alone[1] - alone[0], alone[3] - alone[2]];
    outcome.shape(
        dearer.iter().all(|points| *points > 0.0),
        "where nobody waits in a queue, decompression is what compressed extents pay",
        format!("{:+.1} and {:+.1} points", dearer[0], dearer[1]),
    );
    outcome.beside("nitro.f8.miss", listed(&without.overhead));
    outcome.beside("nitro.f8.hit", listed(&with.overhead));
    Ok(outcome)
}

fn listed(four: &Four) -> String {
    four.iter().map(|percent| format!("{percent:.1}")).collect::<Vec<_>>().join("|")
}

/// Without this the two kinds of runs could be of anything in between.
fn hits_are_what_they_are_named_for(outcome: &mut Outcome, without: &Found, steps: &[Found]) {
    let most = without.hits.iter().copied().fold(0.0, f64::max);
    outcome.shape(
        most < 1.0,
        "without hits there are none",
        format!("at most {most:.2} % of {} reads", without.reads),
    );
    let least = steps.iter().flat_map(|found| &found.hits).copied().fold(100.0, f64::min);
    outcome.shape(least > 99.0, "with hits there is nothing else", format!("at least {least:.2} % of reads"));
}

fn shapes(outcome: &mut Outcome, without: &Four, with: &Four, aligned: &Four) {
    let most = |some: &[f64]| some.iter().copied().fold(f64::MIN, f64::max);
    let mut at_most = |some: &[f64], bound: f64, what: &str| {
        outcome.shape(most(some) <= bound, what, format!("{:+.1} %", most(some)));
    };
    at_most(without, 7.0, "without hits at most 7 % are added");
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
