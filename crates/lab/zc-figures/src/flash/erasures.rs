//! Nitro's Figure 6: SSD erasures of caches of WEUs and of extents.

use zc_flash::nitro::Settings;
use zc_flash::nitro::figure6::{Row, rows};

use super::managed::{self, Managed};
use crate::context::each;
use crate::nitro::{SHAPES, sources};
use crate::{Ablation, Axis, Chart, Context, Figure, FigureError, Outcome, Standing};

/// Bytes of an extent.
const EXTENT_BYTES: u32 = 8192;

const EXTENTS: &str = "On log blocks extents cost 6 to 7 times what units do, in the paper 2 to 4; mapped by page 4 to 5 times. A full \
                       cache reuses a slot as soon as it is dropped, so that hardly anything stays trimmed";
const HITS: &str = "The modified SSD hits about 1 % more, in the paper 5 to 8 %: skewed accesses leave the last sixth of a cache \
                    little";

/// Erasures.
pub(crate) const FIGURE_6: Figure = Figure {
    id: "nitro-6",
    title: "SSD erasures of caches of units and of extents, with and without TRIM and a modified SSD",
    source: "Li et al., Nitro, USENIX ATC 2014, section 6.1, Figure 6; sections 4 and 5.4",
    ours: "A model of both caches over a model of the SSD: blocks of 128 KiB, units of two, flash of 2 % of the volume; 7 % \
           kept back and 10 % for log blocks unless modified; extents deduplicated, in units compressed too. The last three \
           rows are the production cache manager over such an SSD.",
    differences: "The six variants are models of their own: the manager has no cache of extents. It erases 1.15 to 1.24 times \
                  what the model of units does, for journal, headers and partly filled units, and hits more. Extents cost more here than in the paper on log blocks, with TRIM or without: a full cache reuses a slot as \
                  soon as it is dropped, so hardly anything stays trimmed. Mapped by page (the rows below the six) they \
                  cost less than half as much; and what compression saves is in every factor (the row of units that are \
                  not compressed). Extents without TRIM cost at most a merge of a block each: 16 extents here, 256 in \
                  blocks of 2 MiB; few log blocks come near that. What the modified SSD does not keep back gains fewer \
                  hits than in the paper, as the skewed accesses made here leave the last sixth of a cache little.",
    standing: Standing::Contradicted(EXTENTS),
    numbers: &[
        ("nitro.f6.ext", Standing::Contradicted(EXTENTS)),
        ("nitro.f6.weu", Standing::Asserted(&[Ablation::ShiftedUnits])),
        ("nitro.f6.modhit", Standing::Contradicted(HITS)),
    ],
    quick: true,
    run,
};

fn run(context: &Context) -> Result<Outcome, FigureError> {
    let mut outcome = Outcome::default();
    let sources = sources(context, &mut outcome)?;
    let made = each(&sources, |source| {
        let flash = source.flash_bytes(EXTENT_BYTES);
        let usual = Settings::small(context.room(flash, source.whole_bytes(EXTENT_BYTES)));
        let shifted = usual.block_bytes / 4096 / 2;
        let shift_pages = if context.ablates(Ablation::ShiftedUnits) { shifted } else { 0 };
        let mut rows = rows(&Settings { shift_pages, ..usual }, || source.accesses(EXTENT_BYTES))
            .map_err(|error| FigureError::Simulator { what: error.to_string() })?;
        if context.ablates(Ablation::FreeCollection) {
            collect_for_nothing(&mut rows);
        }
        Ok(rows)
    })?;
    let managed = each(&SHAPES.iter().zip(&sources).collect::<Vec<_>>(), |(shape, source)| {
        managed::replay(context, shape, source)
    })?;
    let names = SHAPES.iter().map(|shape| shape.name.to_owned()).collect();
    let mut chart = Chart::bars("Erasures, WEU-LRU = 1", names, Axis::linear("times WEU-LRU"));
    for row in &made[0] {
        let of =
            |rows: &Vec<Row>| rows.iter().find(|other| other.name == row.name).map(|other| other.erasures);
        if let Some(values) = made.iter().map(of).collect::<Option<Vec<f64>>>() {
            chart.add_bars(&row.name, &values);
        }
    }
    outcome.charts.push(chart);
    let mut table = Vec::new();
    for ((shape, rows), managed) in SHAPES.iter().zip(&made).zip(&managed) {
        table.extend(rows.iter().map(|row| cells(shape.name, row)));
        table
            .extend(managed.iter().map(|managed| managed_cells(shape.name, managed, erased_bytes(&rows[0]))));
        judge(shape.name, rows, &mut outcome);
        judge_managed(shape.name, managed, erased_bytes(&rows[0]), &mut outcome);
    }
    let columns = [
        "trace",
        "variant",
        "erasures",
        "times WEU-LRU",
        "pages from the host",
        "pages copied",
        "write amplification",
        "read hit %",
        "most worn block",
    ];
    outcome.table("Erasures", &columns, table);
    Ok(outcome)
}

/// Erasures as if nothing were ever copied: as many pages as the host writes.
fn collect_for_nothing(rows: &mut [Row]) {
    let base = rows[0].outcome.flash.host_writes.max(1) as f64;
    for row in rows {
        row.erasures = row.outcome.flash.host_writes as f64 / base;
    }
}

fn cells(trace: &str, row: &Row) -> Vec<String> {
    let flash = &row.outcome.flash;
    vec![
        trace.to_owned(),
        row.name.clone(),
        flash.erasures.to_string(),
        format!("{:.2}", row.erasures),
        flash.host_writes.to_string(),
        flash.copies.to_string(),
        format!("{:.2}", flash.write_amplification()),
        format!("{:.1}", row.outcome.hit_ratio() * 100.0),
        flash.most_worn.to_string(),
    ]
}

/// Bytes that an SSD of the models erased.
fn erased_bytes(row: &Row) -> f64 {
    row.outcome.flash.erasures.max(1) as f64 * f64::from(Settings::small(0).block_bytes)
}

fn managed_cells(trace: &str, managed: &Managed, units_bytes: f64) -> Vec<String> {
    let flash = &managed.flash;
    vec![
        trace.to_owned(),
        managed.way.name.to_owned(),
        flash.erasures.to_string(),
        format!("{:.2}", managed.erased_bytes / units_bytes),
        flash.host_writes.to_string(),
        flash.copies.to_string(),
        format!("{:.2}", flash.write_amplification()),
        format!("{:.1}", managed.hit_percent),
        flash.most_worn.to_string(),
    ]
}

fn judge_managed(trace: &str, managed: &[Managed], units_bytes: f64, outcome: &mut Outcome) {
    let [plain, discards, raw] = managed else { return };
    let times = |managed: &Managed| managed.erased_bytes / units_bytes;
    outcome.asserted(
        &[Ablation::RawCache],
        times(plain) < 1.5,
        format!("{trace}: the manager erases less than 1.5 times what the model of units does"),
        format!(
            "{:.2} times; with discards {:.2}; not compressed {:.2}",
            times(plain),
            times(discards),
            times(raw)
        ),
    );
}

fn judge(trace: &str, rows: &[Row], outcome: &mut Outcome) {
    let erasures_of =
        |name: &str| rows.iter().find(|row| row.name == name).map_or(f64::NAN, |row| row.erasures);
    let (trimmed, raw) = (erasures_of("extent-LRU-TRIM"), erasures_of("WEU-LRU, not compressed"));
    outcome.asserted(
        &[Ablation::FreeCollection],
        trimmed >= 2.0 * raw && erasures_of("extent-LRU-mod") >= 1.3 * raw,
        format!(
            "{trace}: extent-LRU-TRIM erases at least twice what units do that do not compress either, \
             extent-LRU-mod 1.3 times"
        ),
        format!("{:.1} and {:.1} times", trimmed / raw, erasures_of("extent-LRU-mod") / raw),
    );
    outcome.contradicted(
        EXTENTS,
        trimmed > 4.0,
        format!("{trace}: extent-LRU-TRIM erases more than 4 times what units do"),
        format!("{trimmed:.1} times"),
    );
    outcome.asserted(
        &[Ablation::FreeCollection],
        erasures_of("extent-LRU") > trimmed * 1.02,
        format!("{trace}: extents without TRIM erase most"),
        format!("{:.1} times", erasures_of("extent-LRU")),
    );
    let (by_trim, by_mod) = (erasures_of("WEU-LRU-TRIM"), erasures_of("WEU-LRU-mod"));
    outcome.asserted(
        &[Ablation::ShiftedUnits],
        [by_trim, by_mod].iter().all(|times| (0.85..=1.25).contains(times)),
        format!("{trace}: WEU-LRU-TRIM and WEU-LRU-mod are within -15..+25 % of WEU-LRU"),
        format!("{:+.0} and {:+.0} %", (by_trim - 1.0) * 100.0, (by_mod - 1.0) * 100.0),
    );
    let hit = |number: usize| rows[number].outcome.hit_ratio();
    outcome.asserted(
        &[Ablation::EndlessRoom],
        hit(2) > hit(0) * 1.002,
        format!("{trace}: units evicted inside the SSD hit more, as nothing is kept back"),
        format!("{:+.1} %", (hit(2) / hit(0) - 1.0) * 100.0),
    );
    outcome.beside(
        "nitro.f6.ext",
        format!(
            "{trace} mod {:.1}; TRIM {trimmed:.1}; TRIM by page {:.1}",
            erasures_of("extent-LRU-mod"),
            erasures_of("extent-LRU-TRIM, mapped by page")
        ),
    );
    outcome.beside(
        "nitro.f6.weu",
        format!(
            "{trace} TRIM {:+.0}; mod {:+.0}",
            (erasures_of("WEU-LRU-TRIM") - 1.0) * 100.0,
            (erasures_of("WEU-LRU-mod") - 1.0) * 100.0
        ),
    );
    outcome.beside("nitro.f6.modhit", format!("{trace} {:+.1}", (hit(2) / hit(0) - 1.0) * 100.0));
}
