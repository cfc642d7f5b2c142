//! Shares of the cache, as an operator sets them: a flood stays within its quota and leaves a reserve alone.

#![expect(clippy::expect_used, reason = "a test; what fails here is a failure")]

use serde_json::Value;
use zc_tests::{Daemon, MIB, World};

const UNIT: u64 = 512 << 10;

/// A cache of 32 MiB, a volume with a reserve of 10 MiB and one that floods.
fn world() -> World {
    World::small(&[("kept", 16, "reserve = \"10 MiB\"\n"), ("flood", 64, "")])
}

fn number(value: &Value) -> u64 {
    value.as_u64().expect("a number")
}

fn held(stats: &Value, volume: &str) -> u64 {
    number(&stats["shares"][volume]["held_bytes"])
}

#[test]
fn a_flood_leaves_a_reserve_alone_and_a_quota_counts_at_once_and_after_a_restart() {
    let world = world();
    let daemon = world.start();
    let (mut kept, mut flood) = (world.connect("kept"), world.connect("flood"));
    world.fill(&mut kept, 0..8, 1);
    world.fill(&mut flood, 0..64, 2);
    assert!(world.counter("evictions") > 40, "the cache is full");
    assert!(world.is_cached(&mut kept, 0..8), "the reserve is left alone");
    assert!(world.stats()["shares"]["flood"].is_null(), "it has no share of its own yet");

    let (code, said) = world.zcctl_volume(&["set", "flood", "quota=4 MiB", "priority=low"]);
    assert_eq!(code, Some(0), "{said}");
    let stats = world.stats_until("the quota is kept", |stats| held(stats, "flood") <= 4 * MIB);
    assert_eq!(number(&stats["shares"]["flood"]["quota_bytes"]), 4 * MIB);
    world.fill(&mut flood, 0..24, 3);
    let stats = world.stats();
    assert!(held(&stats, "flood") <= 4 * MIB && held(&stats, "flood") > 3 * MIB, "{}", stats["shares"]);
    assert!(world.is_cached(&mut kept, 0..8));
    let shown = world.zcctl_output(&["volume", "show", "flood"]);
    let shown = String::from_utf8_lossy(&shown.stdout).into_owned();
    assert!(shown.contains("of at most 4.0 MiB, priority low"), "{shown}");
    let metrics = world.zcctl_output(&["stats", "--prometheus"]);
    let metrics = String::from_utf8_lossy(&metrics.stdout).into_owned();
    assert!(metrics.contains("zcached_share_quota_bytes{volume=\"flood\"} 4194304"), "{metrics}");

    let (code, said) = world.zcctl_volume(&["set", "kept", "reserve=30 MiB"]);
    assert!(code == Some(2) && said.contains("all together may be 80 %"), "{said}");

    world.settled();
    let before = held(&world.stats(), "kept");
    drop((kept, flood));
    assert_eq!(daemon.terminate().code(), Some(0));
    let daemon = Daemon::start(&world.path("zcached.toml"));
    let stats = world.loaded();
    assert!(held(&stats, "flood") <= 4 * MIB && held(&stats, "flood") > 3 * MIB, "{}", stats["shares"]);
    assert!(held(&stats, "kept").abs_diff(before) <= UNIT, "{before} before: {}", stats["shares"]);
    assert!(world.is_cached(&mut world.connect("kept"), 0..8));
    assert_eq!(daemon.terminate().code(), Some(0));
}
