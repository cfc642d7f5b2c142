//! Nitro and FlaZ on the same workloads: no paper has this figure.

use zc_core::Codec;
use zc_replay::flaz::{self, Settings};

use super::hits::weu_kib;
use super::runs::{Variant, percent_of, warm_requests};
use super::workloads::load_all;
use crate::context::each;
use crate::{Ablation, Axis, Chart, Context, Figure, FigureError, Outcome, Standing};

const NO_PAPER: &str = "No paper compares the two";

/// Both caches on one workload.
pub(crate) const AGAINST_FLAZ: Figure = Figure {
    id: "nitro-flaz",
    title: "Nitro's cache and FlaZ's on the same workloads",
    source: "Li et al., Nitro, USENIX ATC 2014, and Makatos et al., FlaZ, EuroSys 2010; neither compares with the other",
    ours: "The production cache manager (ND,C and D,C, extents of 4 KiB, an origin that tells no fingerprints) and the model of \
           FlaZ with the same LZ4 sizes, on devices of 2 % of the volume; hits and bytes written after warming.",
    differences: "FlaZ has one line for a block and no choice of what to evict, so that its hits depend on how the \
                  addresses in use fall on the lines. What is rewritten takes no room twice, which in workloads that \
                  mostly write is worth as much as deduplication; it is paid for by the cleaner, which writes again what \
                  lives.",
    standing: Standing::NotComparable(NO_PAPER),
    numbers: &[],
    quick: true,
    run,
};

/// Lines over blocks: a little less than the contents compress.
const OVERBOOKING: f64 = 1.7;

fn run(context: &Context) -> Result<Outcome, FigureError> {
    let mut outcome = Outcome::default();
    let loaded = load_all(context, &mut outcome)?;
    let names: Vec<String> = loaded.iter().map(|workload| workload.name.to_owned()).collect();
    let found = each(&loaded, |workload| {
        let bytes = percent_of(workload.volume_bytes, 2.0);
        let nitro = |dedup: bool| {
            let base = Variant::new(dedup, true, weu_kib(context));
            Variant { extent_kib: 4, recipes: false, ..base }.run(&workload.trace, bytes)
        };
        let warm_requests = warm_requests(&workload.trace);
        let settings = Settings { warm_requests, ..Settings::new(bytes, Codec::Lz4, OVERBOOKING) };
        let flaz = flaz::run(&workload.trace, settings);
        let frame = u64::from(settings.packing.frame_bytes);
        let written = (flaz.frames.written + flaz.frames.cleaner_written) * frame;
        let (plain, dedup) = (nitro(false)?, nitro(true)?);
        Ok([
            (flaz.read_hit_ratio() * 100.0, written),
            (plain.read_hit_ratio() * 100.0, plain.ssd_bytes_written()),
            (dedup.read_hit_ratio() * 100.0, dedup.ssd_bytes_written()),
        ])
    })?;
    let caches = ["FlaZ", "Nitro (ND,C)", "Nitro (D,C)"];
    let mut hits = Chart::bars("Read hits", names.clone(), Axis::linear("read hits, %"));
    let mut written = Chart::bars("Written to the SSD", names, Axis::linear("MB"));
    let mut rows = Vec::new();
    for (number, cache) in caches.iter().enumerate() {
        hits.add_bars(cache, &found.iter().map(|row| row[number].0).collect::<Vec<_>>());
        written.add_bars(cache, &found.iter().map(|row| row[number].1 as f64 / 1e6).collect::<Vec<_>>());
        rows.extend(loaded.iter().zip(&found).map(|(workload, row)| {
            let (hit, bytes) = row[number];
            let megabytes = format!("{:.1}", bytes as f64 / 1e6);
            vec![workload.name.to_owned(), (*cache).to_owned(), format!("{hit:.2}"), megabytes]
        }));
    }
    for (workload, [flaz, plain, dedup]) in loaded.iter().zip(&found) {
        outcome.asserted(
            &[Ablation::UniqueContents],
            dedup.0 > plain.0 && dedup.0 > flaz.0 - 3.0,
            format!(
                "{}: Nitro's cache finds more with deduplication, at most 3 points less than FlaZ",
                workload.name
            ),
            format!("{:.2} % over {:.2} (ND,C) and {:.2} (FlaZ)", dedup.0, plain.0, flaz.0),
        );
        outcome.shape(
            Standing::NotComparable(NO_PAPER),
            dedup.1 * 2 < flaz.1,
            format!("{}: and writes less than half of what FlaZ does", workload.name),
            format!("{:.1} and {:.1} MB", dedup.1 as f64 / 1e6, flaz.1 as f64 / 1e6),
        );
    }
    outcome.table("Both caches", &["trace", "cache", "read hits %", "MB written"], rows);
    outcome.charts.extend([hits, written]);
    Ok(outcome)
}
