//! An SSD that compresses is a disk; its layouts compare as in the paper.

use proptest::prelude::*;

use super::figures::{Row, Scale};
use super::*;
use crate::{Geometry, Latencies};

/// All that the tests compare, on a small device.
fn rows() -> &'static [Row] {
    static ROWS: std::sync::OnceLock<Vec<Row>> = std::sync::OnceLock::new();
    ROWS.get_or_init(|| figures::rows(Scale { blocks_per_chip: 24, overwrites: 2 }).unwrap())
}

fn of(level: &str, scheme: Scheme) -> &'static Row {
    rows().iter().find(|row| row.level == level && row.scheme == scheme && row.absorbs).unwrap()
}

const BP_32: Scheme = Scheme::BinPacking(32, Fit::First);
const RE_32: Scheme = Scheme::Reordering(32);

/// Within a quarter of the paper's number.
#[track_caller]
fn near(what: &str, ours: f64, paper: f64) {
    assert!((paper / 1.25..=paper * 1.25).contains(&ours), "{what}: {ours:.3}, the paper has {paper}");
}

#[test]
fn figure_4_reads_and_writes_are_near_the_papers() {
    let reads = |level, scheme| of(level, scheme).reads / of(level, BP_32).reads;
    near("reads of chunk-4, High", reads("HighComp", Scheme::Chunk(4)), 1.13);
    near("reads of chunk-4, Low", reads("LowComp", Scheme::Chunk(4)), 1.88);
    near("reads of compaction, High", reads("HighComp", Scheme::Compaction), 1.16);
    near("reads of compaction, Low", reads("LowComp", Scheme::Compaction), 1.31);
    near("reads of re-bp", reads("MedComp", RE_32), 1.05);
    for (level, _) in figures::LEVELS {
        let compaction = of(level, Scheme::Compaction).writes;
        let chunk = of(level, Scheme::Chunk(4)).writes / compaction;
        assert!((1.3..2.1).contains(&chunk), "{level}: {chunk}");
        let plain = of(level, Scheme::PageMapping).writes;
        let all = rows().iter().filter(|row| row.level == level && row.scheme != Scheme::PageMapping);
        all.for_each(|row| assert!(row.writes < plain, "{row:?}"));
        assert!(of(level, Scheme::Chunk(8)).reads > 1.5 * of(level, Scheme::Chunk(4)).reads);
        assert!(of(level, BP_32).writes > of(level, RE_32).writes, "re-ordering writes less");
    }
    let high = of("HighComp", RE_32).writes / of("HighComp", Scheme::Compaction).writes;
    assert!((0.76..0.92).contains(&high), "re-bp over compaction, High: {high}");
    for (level, paper) in [("LowComp", 1.03), ("MedComp", 1.07), ("HighComp", 1.23)] {
        near("4 bins over 32", of(level, Scheme::Reordering(4)).writes / of(level, RE_32).writes, paper);
    }
}

#[test]
fn a_buffer_that_does_not_absorb_gives_the_papers_order() {
    let deaf = |level| rows().iter().find(|row| row.level == level && !row.absorbs).unwrap();
    for level in ["MedComp", "LowComp"] {
        assert!(deaf(level).writes > of(level, Scheme::Compaction).writes, "{:?}", deaf(level));
        assert!(of(level, RE_32).writes < of(level, Scheme::Compaction).writes);
    }
}

#[test]
fn figures_5_and_6_footprint_and_garbage_collection() {
    for (level, paper) in [("HighComp", 1.54), ("MedComp", 1.43), ("LowComp", 1.33)] {
        let chunk = of(level, Scheme::Chunk(4)).footprint;
        near("footprint of chunk-4", chunk / of(level, Scheme::Compaction).footprint, paper);
    }
    let few = of("HighComp", Scheme::Reordering(4)).footprint / of("HighComp", RE_32).footprint;
    near("footprint of 4 bins", few, 1.22);
    for row in rows() {
        let plain = row.scheme == Scheme::PageMapping;
        assert_eq!(plain, row.collected_writes > 1.0, "{row:?}");
        assert!(row.level != "HighComp" || plain || row.collected_writes < 0.1, "{row:?}");
    }
}

#[test]
fn figure_7_ram_and_decompression() {
    let map = |level| of(level, Scheme::Compaction).map_bytes / of(level, RE_32).map_bytes;
    near("map of compaction", map("MedComp"), 1.30);
    for (scheme, paper) in [(Scheme::Chunk(4), 342e6), (Scheme::Chunk(8), 660e6)] {
        let row = of("MedComp", scheme);
        let between = row.decompressed_to_page_bytes_per_s..row.decompressed_bytes_per_s;
        assert!(between.contains(&paper), "{row:?}");
    }
    let times = of("LowComp", Scheme::Chunk(4)).decompressed_bytes_per_s
        / of("LowComp", RE_32).decompressed_bytes_per_s;
    assert!((3.0..6.0).contains(&times), "{times}");
}

#[test]
fn a_device_that_is_too_small_is_told() {
    let geometry = Geometry::new(PAGE_BYTES, 8, 16, 1, 1).unwrap();
    let error = Device::new(geometry, Latencies::WHERE_AND_HOW, 250, Scheme::Compaction).unwrap_err();
    assert!(error.to_string().starts_with("4 of 16 blocks"), "{error}");
}

fn schemes() -> impl Strategy<Value = Scheme> {
    prop_oneof![
        Just(Scheme::PageMapping),
        (2_u32..9).prop_map(Scheme::Chunk),
        (1_u32..9).prop_map(|bins| Scheme::BinPacking(bins, Fit::First)),
        (1_u32..9).prop_map(|bins| Scheme::BinPacking(bins, Fit::Best)),
        (1_u32..9).prop_map(Scheme::Reordering),
        Just(Scheme::Compaction),
    ]
}

proptest! {
    #[test]
    fn it_is_a_disk(
        scheme in schemes(),
        writes in proptest::collection::vec((0_u32..300, 1_u32..=4096), 1..1500),
    ) {
        let geometry = Geometry::new(PAGE_BYTES, 8, 16, 1, 2).unwrap();
        let mut device = Device::new(geometry, Latencies::WHERE_AND_HOW, 700, scheme).unwrap();
        let pages = device.pages();
        let mut model = vec![None; usize::try_from(pages).unwrap()];
        for (page, bytes) in writes {
            let page = page % pages;
            device.write(page, bytes);
            model[usize::try_from(page).unwrap()] = Some(bytes);
        }
        device.check();
        for page in 0..pages {
            prop_assert_eq!(device.read(page), model[usize::try_from(page).unwrap()]);
        }
    }
}
