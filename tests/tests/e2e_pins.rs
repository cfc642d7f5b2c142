//! Pinned ranges of an operator: they are read into the cache, survive floods and restarts, and are bounded.
//!
//! Cached contents are inferred from the daemon's counters.

#![expect(clippy::expect_used, reason = "a test; what fails here is a failure")]

use serde_json::Value;
use zc_tests::{Daemon, MIB, World};

/// A cache of 32 MiB and two volumes, each larger than it; ranges of one are pinned.
fn world(db: &str) -> World {
    World::small(&[("db", 64, db), ("flood", 64, "")])
}

fn number(value: &Value) -> u64 {
    value.as_u64().expect("a number")
}

/// Waits until all pinned ranges of the volume, `mib` MiB, are cached.
fn kept(world: &World, mib: u64) {
    world.stats_until("all that is pinned is cached", |stats| {
        let pins = &stats["pins"]["db"];
        pins["cached_bytes"].as_u64() == Some(mib * MIB) && pins["pinned_bytes"] == pins["cached_bytes"]
    });
}

#[test]
fn what_is_pinned_is_brought_into_the_cache_and_outlives_floods_and_restarts() {
    let world = world("pin = [\"2MiB-6MiB\"]\n");
    let daemon = world.start();
    kept(&world, 4);
    let (mut db, mut flood) = (world.connect("db"), world.connect("flood"));
    // Writes to a pinned range are kept as well.
    world.fill(&mut db, 4..5, 1);
    world.fill(&mut flood, 0..64, 2);
    assert!(world.counter("evictions") > 40, "the cache is full");
    kept(&world, 4);
    assert!(world.is_cached(&mut db, 2..6), "{}", world.stats()["pins"]);

    // Live: more, and less.
    let (code, said) = world.zcctl_volume(&["pin", "db", "8MiB-10MiB", "5MiB-7MiB"]);
    assert_eq!((code, said.as_str()), (Some(0), "in force: pin\n"));
    kept(&world, 7);
    let file = std::fs::read_to_string(world.path("zcached.toml")).expect("the configuration");
    assert!(file.contains("pin = [\"2 MiB-7 MiB\", \"8 MiB-10 MiB\"]"), "{file}");
    let (_, shown) = world.zcctl_volume(&["show", "db"]);
    assert!(shown.contains("7.0 MiB, all of it cached"), "{shown}");
    let metrics = world.zcctl_output(&["stats", "--prometheus"]);
    let metrics = String::from_utf8_lossy(&metrics.stdout).into_owned();
    assert!(metrics.contains("zcached_pinned_cached_bytes{volume=\"db\"} 7340032"), "{metrics}");
    let (code, said) = world.zcctl_volume(&["unpin", "db", "0-6MiB"]);
    assert_eq!(code, Some(0), "{said}");
    kept(&world, 3);

    // More than the available space, also without an end.
    for (ranges, what) in [("16MiB-48MiB", "32 MiB"), ("32MiB-", "32 MiB")] {
        let (code, said) = world.zcctl_volume(&["pin", "db", ranges]);
        assert!(
            code == Some(2) && said.contains("a cache of") && said.contains("keeps 50 %"),
            "{what}: {said}"
        );
    }
    assert_eq!(number(&world.stats()["pins"]["db"]["pinned_bytes"]), 3 * MIB, "nothing has changed");

    drop((db, flood));
    assert_eq!(daemon.terminate().code(), Some(0));
    let daemon = Daemon::start(&world.path("zcached.toml"));
    world.loaded();
    kept(&world, 3);
    assert_eq!(world.counter("load_by_image"), 1, "no header was read");
    assert_eq!(world.counter("pinned_extents_read"), 0, "it was there");
    let (mut db, mut flood) = (world.connect("db"), world.connect("flood"));
    world.fill(&mut flood, 0..64, 3);
    assert!(world.is_cached(&mut db, 6..7) && world.is_cached(&mut db, 8..10));
    assert!(!world.is_cached(&mut db, 2..6), "what was unpinned has gone");
    drop((db, flood));
    assert_eq!(daemon.terminate().code(), Some(0));
}

/// The commands write the configuration file, and a start reads the pins from it.
#[test]
fn what_was_pinned_live_holds_after_a_kill() {
    let world = world("");
    let daemon = world.start();
    world.fill(&mut world.connect("db"), 0..12, 1);
    for command in [["pin", "db", "2MiB-6MiB"], ["pin", "db", "8MiB-10MiB"], ["unpin", "db", "4MiB-6MiB"]] {
        let (code, said) = world.zcctl_volume(&command);
        assert_eq!((code, said.as_str()), (Some(0), "in force: pin\n"), "{command:?}");
    }
    kept(&world, 4);
    daemon.kill9();

    let daemon = Daemon::start(&world.path("zcached.toml"));
    world.loaded();
    kept(&world, 4);
    let (mut db, mut flood) = (world.connect("db"), world.connect("flood"));
    world.fill(&mut flood, 0..64, 2);
    assert!(world.is_cached(&mut db, 2..4) && world.is_cached(&mut db, 8..10));
    assert!(!world.is_cached(&mut db, 4..6), "what was unpinned has gone");
    drop((db, flood));
    assert_eq!(daemon.terminate().code(), Some(0));
}

#[test]
fn a_volume_that_writes_back_keeps_what_it_wrote_to_a_pinned_range() {
    let world = world("mode = \"write-back\"\npin = [\"0-2MiB\"]\n");
    let daemon = world.start();
    kept(&world, 2);
    let (mut db, mut flood) = (world.connect("db"), world.connect("flood"));
    world.fill(&mut db, 0..8, 1);
    let flushed = world.zcctl_output(&["flush", "db"]);
    assert!(flushed.status.success());
    kept(&world, 2);
    world.fill(&mut flood, 0..64, 2);
    assert!(world.is_cached(&mut db, 0..2), "{}", world.stats()["pins"]);
    assert!(!world.is_cached(&mut db, 2..8));
    drop((db, flood));
    assert_eq!(daemon.terminate().code(), Some(0));
}
