//! Figure 8: what the cache costs when it finds nothing, and when it finds everything.

use zc_replay::time::profile::Profile;
use zc_replay::time::{self, Arrival, TimeReport, Timing};
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
           first machine, addresses shifted by up to 15 %), twice, through the production cache manager in the model of time, eight clients. Without hits: a \
           cache of a few units, over the array (TPS) alone. With hits: the second boots in a cache that holds everything, \
           over the same blocks read from the SSD without units.",
    differences: "With hits the paper pays 2 to 18 % for decompression and look-ups. Ours reads neighbours of a unit in one \
                  piece: compressed ones are on fewer pages than the bare blocks, which saves more time than decompression \
                  takes; raw ones are on more, for their headers. Without hits the model lets insertions delay a miss only \
                  by the time of cores and dies that they share. At small scale there are 8 machines, at full 60.",
    quick: false,
    run,
};

/// Requests under way.
const CLIENTS: u32 = 8;

/// Machines that boot side by side, all of them twice.
fn storm(machines: u32) -> Result<Trace, FigureError> {
    let template = Template::new(boot(Boot::default()).into_iter().map(Ok)).map_err(ReplayError::from)?;
    let storm = Storm::new(&template, machines, 2, Shape::default());
    Ok(Trace::load(storm.map(Ok), Ratios::default())?)
}

fn run(context: &Context) -> Result<Outcome, FigureError> {
    let mut outcome = Outcome::default();
    let trace = storm(context.scale.pick(8, 60))?;
    let Some(profile) = Profile::named("nitro-tps") else { return Ok(outcome) };
    let timing = Timing { profile, arrival: Arrival::Closed { clients: CLIENTS }, memory_scale: 1.0 };
    let half = trace.requests() / 2;
    let bare = time::bare(&trace, &timing, 0)?.reads.mean_us;
    let on_ssd = time::on_ssd(&trace, &timing, half)?.reads.mean_us;
    let weu = weu_kib(context);
    let found = each(&Variant::four(weu), |variant| {
        let variant = Variant { recipes: false, ..*variant };
        let nothing = variant.time_from(&trace, u64::from(weu) * 4096, &timing, 0)?;
        let room = trace.footprint_bytes() * 2;
        let everything = variant.time_from(&trace, room, &timing, half)?;
        Ok([nothing, everything])
    })?;
    let names = Variant::four(weu).map(|variant| variant.name());
    let over = |row: &[TimeReport; 2], hits: usize| {
        (row[hits].reads.mean_us / if hits == 0 { bare } else { on_ssd } - 1.0) * 100.0
    };
    let without: Vec<f64> = found.iter().map(|row| over(row, 0)).collect();
    let with: Vec<f64> = found.iter().map(|row| over(row, 1)).collect();
    let mut chart =
        Chart::bars("Overhead in read response time", names.to_vec(), Axis::linear("overhead, %"));
    chart.add_bars("no hits, over the array", &without);
    chart.add_bars("all hits, over the SSD", &with);
    outcome.charts.push(chart);
    let rows = names
        .iter()
        .zip(without.iter().zip(&with))
        .map(|(name, (without, with))| vec![name.clone(), format!("{without:+.1}"), format!("{with:+.1}")]);
    outcome.table("Overhead in read response time, %", &["variant", "no hits", "all hits"], rows.collect());
    let most = without.iter().copied().fold(f64::MIN, f64::max);
    outcome.shape(most <= 7.0, "without hits at most 7 % are added", format!("{most:+.1} %"));
    let most = with.iter().copied().fold(f64::MIN, f64::max);
    outcome.shape(
        most <= 60.0,
        "with hits the cost is that of pages and decompression",
        format!("{most:+.1} %"),
    );
    outcome.beside("nitro.f8.miss", without.iter().map(|v| format!("{v:.1}")).collect::<Vec<_>>().join("|"));
    outcome.beside("nitro.f8.hit", with.iter().map(|v| format!("{v:.1}")).collect::<Vec<_>>().join("|"));
    Ok(outcome)
}
