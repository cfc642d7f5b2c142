//! Place of data reduction: in the cache, inside the SSD, in both, in neither.

use zc_flash::nitro::Settings;
use zc_flash::nitro::placement::{PLACES, Place, Row, row};

use crate::context::each;
use crate::nitro::{SHAPES, sources};
use crate::{Ablation, Axis, Chart, Context, Figure, FigureError, Outcome, Standing};

/// Bytes of an extent.
const EXTENT_BYTES: u32 = 8192;

/// Comparison of the places.
pub(crate) const WHERE: Figure = Figure {
    id: "where",
    title: "Where to reduce: the cache, the SSD, both or neither",
    source: "the question of Zuck et al., Compression and SSD: Where and How?, INFLOW 2014, put to a cache; no figure of theirs",
    ours: "Nitro's cache of units over a model of the SSD, flash of 2 % of the volume, 17 % kept back; an SSD that compresses \
           lays out pages without gaps and exposes as many as one that does not.",
    differences: "The paper finds the SSD the better place, against databases and file systems that keep to fixed blocks. A \
                  cache that packs extents into units has no such blocks, knows duplicates, and turns what it saves into \
                  hits; an SSD can only turn it into fewer erasures, as it cannot promise more pages than it has.",
    standing: Standing::NotComparable(
        "The paper puts the question to databases and file systems, not to a cache",
    ),
    numbers: &[],
    quick: true,
    run,
};

fn run(context: &Context) -> Result<Outcome, FigureError> {
    let mut outcome = Outcome::default();
    let sources = sources(context, &mut outcome)?;
    let choices: Vec<_> = SHAPES
        .iter()
        .zip(&sources)
        .flat_map(|(shape, source)| PLACES.map(|place| (shape, source, place)))
        .collect();
    let rows = each(&choices, |(_, source, place)| {
        let settings = Settings::small(source.flash_bytes(EXTENT_BYTES));
        let compress = place.compress && !context.ablates(Ablation::RawCache);
        row(Place { compress, ..*place }, &settings, source.accesses(EXTENT_BYTES))
            .map_err(|error| FigureError::Simulator { what: error.to_string() })
    })?;
    let names = || SHAPES.iter().map(|shape| shape.name.to_owned()).collect();
    let mut hits = Chart::bars("Read hits", names(), Axis::linear("%"));
    let mut worn = Chart::bars("Erasures, neither = 1", names(), Axis::linear("times"));
    for (number, place) in PLACES.iter().enumerate() {
        let same = || rows.chunks(PLACES.len()).map(|rows| (&rows[number], &rows[0]));
        let hit: Vec<f64> = same().map(|(row, _)| row.outcome.hit_ratio() * 100.0).collect();
        hits.add_bars(place.name, &hit);
        worn.add_bars(
            place.name,
            &same().map(|(row, base)| erasures(row) / erasures(base)).collect::<Vec<_>>(),
        );
    }
    outcome.charts.extend([hits, worn]);
    let columns = [
        "trace",
        "who reduces",
        "read hit %",
        "pages to the SSD",
        "pages programmed",
        "erasures",
        "flash pages per hit",
        "map of the SSD B/page",
        "decompressed by the SSD B/hit",
    ];
    let cells = choices.iter().zip(&rows).map(|((shape, ..), row)| cells(shape.name, row));
    outcome.table("Hits and wear", &columns, cells.collect());
    for (shape, rows) in SHAPES.iter().zip(rows.chunks(PLACES.len())) {
        judge(shape.name, rows, &mut outcome);
    }
    Ok(outcome)
}

fn erasures(row: &Row) -> f64 {
    row.outcome.flash.erasures.max(1) as f64
}

fn cells(trace: &str, row: &Row) -> Vec<String> {
    vec![
        trace.to_owned(),
        row.place.name.to_owned(),
        format!("{:.1}", row.outcome.hit_ratio() * 100.0),
        row.outcome.flash.host_writes.to_string(),
        row.outcome.flash.programs.to_string(),
        row.outcome.flash.erasures.to_string(),
        format!("{:.2}", row.pages_per_hit),
        format!("{:.1}", row.map_bytes),
        format!("{:.0}", row.decompressed_bytes_per_hit),
    ]
}

fn judge(trace: &str, rows: &[Row], outcome: &mut Outcome) {
    let [neither, ssd, _, cache, both] = rows else { return };
    let hit = |row: &Row| row.outcome.hit_ratio() * 100.0;
    outcome.asserted(
        &[Ablation::Irreducible],
        hit(cache) > hit(ssd) + 0.1 && neither.outcome.hits == ssd.outcome.hits,
        format!("{trace}: reduced in the cache gives more hits, compressed in the SSD none"),
        format!("{:.1} against {:.1} %", hit(cache), hit(ssd)),
    );
    outcome.asserted(
        &[Ablation::Irreducible],
        erasures(ssd) < erasures(neither) * 0.75 && erasures(cache) < erasures(ssd),
        format!("{trace}: both places save erasures, the cache more"),
        format!(
            "{:.2} and {:.2} of neither",
            erasures(ssd) / erasures(neither),
            erasures(cache) / erasures(neither)
        ),
    );
    outcome.asserted(
        &[Ablation::RawCache],
        (erasures(both) / erasures(cache) - 1.0).abs() < 0.15,
        format!("{trace}: an SSD that compresses too changes little"),
        format!("{:+.0} % erasures", (erasures(both) / erasures(cache) - 1.0) * 100.0),
    );
}
