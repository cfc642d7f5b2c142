//! Small writes into a cached set do not cost its hits.
//!
//! Counted are reads of whole extents without the origin, from `zcctl stats`.

#![expect(clippy::expect_used, reason = "a test; what fails here is a failure")]

use rand::RngExt as _;
use zc_engine::{NbdClient, NbdRequest};
use zc_tests::{BlockKind, DataGen, MIB, Rng, World, rng, same, seed_from_env};

const VOLUME_MIB: u64 = 32;
const EXTENT: usize = 8192;
const BLOCK: usize = 4096;
const IN_FLIGHT: usize = 16;

/// Overwrites `count` random blocks of 4 KiB, many at once but none twice at once.
fn overwrite(client: &mut NbdClient, twin: &mut [u8], random: &mut Rng, count: usize) {
    let data = DataGen::new(77, BLOCK);
    let mut waiting: Vec<(u64, usize)> = Vec::new();
    for number in 0..count {
        let at = loop {
            let at = random.random_range(0..twin.len() / BLOCK) * BLOCK;
            if waiting.iter().all(|(_, other)| *other != at) {
                break at;
            }
        };
        let content = u64::try_from(number).expect("small");
        let kind = if number % 3 == 0 { BlockKind::Incompressible } else { BlockKind::Compressible };
        let block = data.block(kind, content);
        let offset = u64::try_from(at).expect("small");
        let cookie = client.submit(NbdRequest::Write { offset, data: &block, fua: false });
        waiting.push((cookie.expect("a request is sent"), at));
        twin[at..at + BLOCK].copy_from_slice(&block);
        if waiting.len() == IN_FLIGHT {
            answer(client, &mut waiting);
        }
    }
    while !waiting.is_empty() {
        answer(client, &mut waiting);
    }
}

fn answer(client: &mut NbdClient, waiting: &mut Vec<(u64, usize)>) {
    let done = client.wait().expect("the connection lasts");
    done.result.expect("the write succeeds");
    let index = waiting.iter().position(|(cookie, _)| *cookie == done.cookie).expect("it was asked for");
    waiting.swap_remove(index);
}

/// Reads every extent by itself, in random order so that nothing is read ahead. Returns reads and hits among them.
fn read_extents(world: &World, client: &mut NbdClient, twin: &[u8], random: &mut Rng) -> (u64, u64) {
    let mut order: Vec<usize> = (0..twin.len() / EXTENT).collect();
    for last in (1..order.len()).rev() {
        order.swap(last, random.random_range(0..=last));
    }
    let before = world.zcctl("stats")["manager"].clone();
    for extent in order {
        let at = extent * EXTENT;
        let found = client.read(u64::try_from(at).expect("small"), EXTENT).expect("read");
        same(&found, &twin[at..at + EXTENT], &format!("the extent at {at}"));
    }
    let after = world.zcctl("stats")["manager"].clone();
    let grown = |name: &str| {
        let value = |stats: &serde_json::Value| stats[name].as_u64().expect("the counter is there");
        value(&after) - value(&before)
    };
    (grown("reads"), grown("read_hits"))
}

#[test]
fn small_random_overwrites_of_a_cached_set_keep_95_percent_of_its_hits() {
    // The set fits: any loss is due to the overwrites, not to evictions.
    let mut world = World::new(96, VOLUME_MIB);
    world.cache.push_str("read_buffer = 0\n");
    let mut random = rng(seed_from_env(60));
    let mut twin = DataGen::new(6, EXTENT).mixed(usize::try_from(VOLUME_MIB * MIB).expect("small") / EXTENT);
    let daemon = world.start();
    let mut client = world.connect("disk");
    client.write(0, &twin).expect("fill");
    world.settled();
    let (reads, hits) = read_extents(&world, &mut client, &twin, &mut random);
    assert!(hits * 100 >= reads * 99, "before the overwrites {hits} of {reads} reads are hits");
    // Each time as many as the staging area takes however slow the device is, several of them to some extents.
    for blocks in [512, 1024, 1024, 1024] {
        overwrite(&mut client, &mut twin, &mut random, blocks);
        world.settled();
        let (reads, hits) = read_extents(&world, &mut client, &twin, &mut random);
        eprintln!("after {blocks} overwrites {hits} of {reads} reads are hits");
        assert!(hits * 100 >= reads * 95, "after {blocks} overwrites {hits} of {reads} reads are hits");
    }
    let stats = world.zcctl("stats");
    assert!(stats["manager"]["merges"].as_u64() > Some(1000), "{stats}");
    world.origin_is("disk", &twin);
    drop(client);
    assert_eq!(daemon.terminate().code(), Some(0));
}
