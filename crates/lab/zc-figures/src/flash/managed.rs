//! Wear by the production cache manager on the SSD of Nitro's Figure 6.
//!
//! Job: replay the figure's workloads through the manager, on an SSD of the figure's kind, and count the erases. They
//! include journal, checkpoints and region maps, which the models of the figure do not have.
//!
//! Invariant: results are in bytes, not blocks, so that SSDs of different sizes compare. Where a block of the
//! generator stands for an extent of 8 KiB in the models, the manager has extents of 4 KiB, and its erases count
//! twice.

use zc_replay::cache::Report;
use zc_replay::{Blocks, Ssd};

use crate::nitro::{Shape, Source, Variant, percent_of};
use crate::{Ablation, Context, FigureError};

/// Pages of an erase block, as in the models.
const BLOCK_PAGES: u32 = 32;
/// KiB of a unit, as in the models.
const UNIT_KIB: u32 = 256;
/// Exposed share of a retail SSD, in per cent.
const EXPOSED_PERCENT: f64 = 83.0;

/// Settings of the manager.
#[derive(Debug, Clone, Copy)]
pub(super) struct Way {
    pub(super) name: &'static str,
    discard: bool,
    compressed: bool,
}

/// All of them.
pub(super) const WAYS: [Way; 3] = [
    Way { name: "the manager", discard: false, compressed: true },
    Way { name: "the manager, discards", discard: true, compressed: true },
    Way { name: "the manager, not compressed", discard: false, compressed: false },
];

/// Results of a run.
#[derive(Debug)]
pub(super) struct Managed {
    pub(super) way: Way,
    pub(super) erased_bytes: f64,
    pub(super) flash: zc_flash::Stats,
    pub(super) hit_percent: f64,
}

/// Replays a workload through the manager each way.
pub(super) fn replay(context: &Context, shape: &Shape, source: &Source) -> Result<Vec<Managed>, FigureError> {
    let made;
    let (loaded, extent_kib) = match source {
        Source::Traced(loaded) => (&**loaded, 8),
        Source::Made(_) => {
            made = shape.load(context)?;
            (&made, 4)
        }
    };
    let flash_bytes = percent_of(loaded.volume_bytes, 2.0);
    let units_bytes = context.room(percent_of(flash_bytes, EXPOSED_PERCENT), loaded.volume_bytes * 3 / 2);
    let ssd = Ssd::LogBlocks(Blocks { pages: BLOCK_PAGES, planes: 1 });
    let run = |way: Way| {
        let compressed = way.compressed && !context.ablates(Ablation::RawCache);
        let variant = Variant { extent_kib, ..Variant::new(true, compressed, UNIT_KIB) };
        let report = variant.run_on(ssd, way.discard, &loaded.trace, units_bytes)?;
        Ok(managed(way, &report, 8 / extent_kib))
    };
    WAYS.into_iter().map(run).collect()
}

fn managed(way: Way, report: &Report, scale: u32) -> Managed {
    let flash = report.flash.unwrap_or_default();
    let block_bytes = f64::from(BLOCK_PAGES) * f64::from(flash.page_bytes);
    let erased_bytes = flash.erasures as f64 * block_bytes * f64::from(scale);
    Managed { way, erased_bytes, flash, hit_percent: report.read_hit_ratio() * 100.0 }
}
