//! The shapes of Nitro's Figure 6, and that nothing is lost on the way.

use zc_trace::workload::{Kind, Mix, Workload};

use super::*;

fn workload(requests: u64) -> Workload {
    Workload {
        kind: Kind::Mix(Mix::default()),
        blocks: 1 << 18,
        requests,
        reads: 0.2,
        shared: 0.4,
        ratio: (2.0, 0.5),
        seed: 1,
    }
}

/// 2 % of the volume.
fn settings() -> Settings {
    Settings::small((1 << 18) * 8192 / 50)
}

fn rows() -> Vec<figure6::Row> {
    figure6::rows(&settings(), || accesses(&workload(80_000), 8192)).unwrap()
}

#[test]
fn figure_6_has_the_shapes_of_the_paper() {
    let rows = rows();
    let row = |name: &str| rows.iter().find(|row| row.name == name).unwrap();
    for name in ["WEU-LRU-TRIM", "WEU-LRU-mod"] {
        assert!((0.85..1.25).contains(&row(name).erasures), "{rows:#?}");
    }
    for name in ["extent-LRU-TRIM", "extent-LRU-mod", "extent-LRU-TRIM, mapped by page"] {
        assert!(row(name).erasures >= 2.0, "{rows:#?}");
    }
    assert!(row("extent-LRU").erasures >= row("extent-LRU-TRIM").erasures, "{rows:#?}");
    assert!(row("extent-LRU-TRIM").erasures > 1.5 * row("extent-LRU-TRIM, mapped by page").erasures);
    assert!(row("extent-LRU, few log blocks").erasures > 1.4 * row("extent-LRU").erasures, "{rows:#?}");
    let plain = row("WEU-LRU, not compressed").erasures;
    assert!((1.7..2.6).contains(&plain), "{rows:#?}");
    assert!(row("WEU-LRU, across blocks").erasures > 1.1, "{rows:#?}");
    let hit = |name: &str| row(name).outcome.hit_ratio();
    assert!(hit("WEU-LRU-mod") > hit("WEU-LRU") && hit("WEU-LRU") > hit("WEU-LRU, not compressed"));
}

#[test]
fn programs_are_what_the_host_wrote_and_what_was_copied() {
    for row in rows() {
        let flash = row.outcome.flash;
        assert_eq!(row.outcome.stale, 0, "{}", row.name);
        assert_eq!(flash.programs, flash.host_writes + flash.copies, "{}", row.name);
        let copies_nothing = row.name == "WEU-LRU" || row.name == "WEU-LRU-TRIM" || row.name == "WEU-LRU-mod";
        assert!(!copies_nothing || flash.copies == 0, "{}", row.name);
    }
}

#[test]
fn equal_contents_are_stored_once() {
    let twice = (0..200).map(|key| Access { key, write: true, content: key % 100, compressed_bytes: 4000 });
    for variant in Variant::ALL {
        let outcome = run(variant, &settings(), twice.clone()).unwrap();
        assert_eq!(outcome.stored, 100, "{variant:?}");
        let plain = Settings { dedup: false, ..settings() };
        assert_eq!(run(variant, &plain, twice.clone()).unwrap().stored, 200, "{variant:?}");
    }
}

#[test]
fn reads_hit_what_is_stored_and_newest() {
    let write = |key, content| Access { key, write: true, content, compressed_bytes: 8000 };
    let read = |key, content| Access { write: false, ..write(key, content) };
    let steps = [read(1, 10), read(1, 10), write(1, 11), read(1, 11), read(2, 11), read(2, 11), read(3, 12)];
    for variant in Variant::ALL {
        let outcome = run(variant, &settings(), steps.into_iter()).unwrap();
        assert_eq!((outcome.reads, outcome.hits, outcome.stale), (6, 3, 0), "{variant:?}");
        // Changes that are missing in a trace are detected.
        let behind = [write(1, 10), read(1, 11), read(1, 11)];
        let outcome = run(variant, &settings(), behind.into_iter()).unwrap();
        assert_eq!((outcome.reads, outcome.hits, outcome.stale), (2, 1, 1), "{variant:?}");
    }
}

#[test]
fn duplicates_go_with_what_they_share() {
    let write = |key, content| Access { key, write: true, content, compressed_bytes: 8000 };
    let read = Access { write: false, ..write(2, 10) };
    let others = (100..20_000).map(|number| write(number, number));
    let steps = [write(1, 10), write(2, 10), read].into_iter().chain(others).chain([read]);
    for variant in Variant::ALL {
        let outcome = run(variant, &settings(), steps.clone()).unwrap();
        assert_eq!((outcome.reads, outcome.hits), (2, 1), "{variant:?}");
    }
}

#[test]
fn an_ssd_that_is_too_small_is_told() {
    let tiny = Settings::small(256 << 10);
    let error = run(Variant::WeuLru, &tiny, std::iter::empty()).unwrap_err();
    assert!(error.to_string().contains("blocks are set aside"), "{error}");
}
