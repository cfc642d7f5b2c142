//! Shares of the cache, as an operator sets them: a flood stays within its quota and leaves a reserve alone.

#![expect(clippy::expect_used, reason = "a test; what fails here is a failure")]

use serde_json::Value;
use zc_engine::NbdClient;
use zc_tests::{BlockKind, Daemon, DataGen, MIB, World};

const UNIT: u64 = 512 << 10;

/// A cache of 32 MiB, a volume with a reserve of 10 MiB and one that floods.
fn world() -> World {
    let mut world = World::new(32, 16);
    // Units are full when they are written, also where the machine is slow.
    world.cache =
        "size = \"32 MiB\"\nweu_max_age = \"1 h\"\nweu_size = \"512 KiB\"\ncompression = \"none\"\n"
            .to_owned();
    world.volumes = vec![
        ("kept".to_owned(), 16 * MIB, "reserve = \"10 MiB\"\n".to_owned()),
        ("flood".to_owned(), 64 * MIB, String::new()),
    ];
    world
}

/// Writes so many MiB of contents that are nowhere else, from the start of a volume.
fn fill(world: &World, client: &mut NbdClient, mib: u64, seed: u64) {
    let contents = DataGen::new(seed, 1 << 20);
    for at in 0..mib {
        client.write(at * MIB, &contents.block(BlockKind::Incompressible, at)).expect("a write");
        world.inserted();
    }
}

fn number(value: &Value) -> u64 {
    value.as_u64().expect("a number")
}

fn held(stats: &Value, volume: &str) -> u64 {
    number(&stats["shares"][volume]["held_bytes"])
}

/// Extents that clients read and that came from the origin, in parts.
fn missed(stats: &Value) -> u64 {
    number(&stats["extents"]["read"]) - number(&stats["extents"]["hits"])
}

/// How `zcctl volume set` ends, and what it says.
fn set(world: &World, arguments: &[&str]) -> (Option<i32>, String) {
    let output = world.zcctl_output(&[&["volume", "set"], arguments].concat());
    let text = [output.stdout, output.stderr].concat();
    (output.status.code(), String::from_utf8_lossy(&text).into_owned())
}

/// Whether all of the first MiBs of a volume are in the cache.
fn is_cached(world: &World, client: &mut NbdClient, mib: u64) -> bool {
    let before = missed(&world.stats());
    (0..mib).for_each(|at| drop(client.read(at * MIB, 1 << 20).expect("a read")));
    missed(&world.stats()) == before
}

#[test]
fn a_flood_leaves_a_reserve_alone_and_a_quota_counts_at_once_and_after_a_restart() {
    let world = world();
    let daemon = world.start();
    let (mut kept, mut flood) = (world.connect("kept"), world.connect("flood"));
    fill(&world, &mut kept, 8, 1);
    fill(&world, &mut flood, 64, 2);
    assert!(world.counter("evictions") > 40, "the cache is full");
    assert!(is_cached(&world, &mut kept, 8), "the reserve is left alone");
    assert!(world.stats()["shares"]["flood"].is_null(), "it has no share of its own yet");

    let (code, said) = set(&world, &["flood", "quota=4 MiB", "priority=low"]);
    assert_eq!(code, Some(0), "{said}");
    let stats = world.stats_until("the quota is kept", |stats| held(stats, "flood") <= 4 * MIB);
    assert_eq!(number(&stats["shares"]["flood"]["quota_bytes"]), 4 * MIB);
    fill(&world, &mut flood, 24, 3);
    let stats = world.stats();
    assert!(held(&stats, "flood") <= 4 * MIB && held(&stats, "flood") > 3 * MIB, "{}", stats["shares"]);
    assert!(is_cached(&world, &mut kept, 8));
    let shown = world.zcctl_output(&["volume", "show", "flood"]);
    let shown = String::from_utf8_lossy(&shown.stdout).into_owned();
    assert!(shown.contains("of at most 4.0 MiB, priority low"), "{shown}");
    let metrics = world.zcctl_output(&["stats", "--prometheus"]);
    let metrics = String::from_utf8_lossy(&metrics.stdout).into_owned();
    assert!(metrics.contains("zcached_share_quota_bytes{volume=\"flood\"} 4194304"), "{metrics}");

    let (code, said) = set(&world, &["kept", "reserve=30 MiB"]);
    assert!(code == Some(2) && said.contains("all together may be 80 %"), "{said}");

    world.settled();
    let before = held(&world.stats(), "kept");
    drop((kept, flood));
    assert_eq!(daemon.terminate().code(), Some(0));
    let daemon = Daemon::start(&world.path("zcached.toml"));
    let stats = world.loaded();
    assert!(held(&stats, "flood") <= 4 * MIB && held(&stats, "flood") > 3 * MIB, "{}", stats["shares"]);
    assert!(held(&stats, "kept").abs_diff(before) <= UNIT, "{before} before: {}", stats["shares"]);
    assert!(is_cached(&world, &mut world.connect("kept"), 8));
    assert_eq!(daemon.terminate().code(), Some(0));
}
