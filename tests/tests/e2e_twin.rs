//! Random mixed I/O through two connections to each of two volumes with shared content, against twins in memory.
//!
//! The cache is a quarter of one volume, so write units are evicted all the time. At the end volumes and raw origins
//! equal the twins. `ZC_SEED` repeats a run, `ZC_TWIN_ROUNDS` or `ZC_TWIN_SECONDS` (of the daemon's clock) lengthens
//! it.

#![expect(clippy::expect_used, reason = "a test; what fails here is a failure")]

use rand::RngExt as _;
use zc_engine::{NbdClient, NbdRequest};
use zc_tests::{BlockKind, DataGen, MIB, Rng, World, rng, same, seed_from_env};

const VOLUME_MIB: u64 = 64;
const BATCH: usize = 16;

/// One request of a batch with its expected result.
#[derive(Debug)]
enum Expect {
    Data(u64, Vec<u8>),
    Done,
}

/// Contents that repeat within a volume and between the two.
fn payload(random: &mut Rng, at: u64, len: usize) -> Vec<u8> {
    let data = DataGen::new(99, 8192);
    let mut bytes = Vec::with_capacity(len + 8192);
    while bytes.len() < len {
        let content = random.random_range(0..6000);
        let kind = if content % 4 == 0 { BlockKind::Incompressible } else { BlockKind::Compressible };
        let block = data.block(kind, content);
        let skip = if bytes.is_empty() { usize::try_from(at % 8192).expect("small") } else { 0 };
        bytes.extend_from_slice(&block[skip..]);
    }
    bytes.truncate(len);
    bytes
}

/// A range of whole sectors of any length up to 256 KiB, near the front more often, so that some data is hot.
fn range(random: &mut Rng) -> (u64, usize) {
    let sectors = match random.random_range(0..10) {
        0..=3 => random.random_range(1..=16_u64),
        4..=7 => 16 * random.random_range(1..=4),
        _ => random.random_range(1..=512),
    };
    let hot = if random.random_bool(0.7) { VOLUME_MIB / 8 } else { VOLUME_MIB };
    let mut first = random.random_range(0..hot * MIB / 512 - sectors);
    if random.random_bool(0.5) {
        first = first / 16 * 16;
    }
    (first * 512, usize::try_from(sectors * 512).expect("small"))
}

/// Submits a batch of requests that do not overlap, on two connections, and checks all answers.
fn batch(clients: &mut [NbdClient; 2], twin: &mut [u8], random: &mut Rng) {
    let mut taken: Vec<(u64, u64)> = Vec::new();
    let mut waiting: [Vec<(u64, Expect)>; 2] = [Vec::new(), Vec::new()];
    for index in 0..BATCH {
        let (offset, len) = range(random);
        let end = offset + u64::try_from(len).expect("small");
        if taken.iter().any(|(first, last)| offset < *last && *first < end) {
            continue;
        }
        taken.push((offset, end));
        let at = usize::try_from(offset).expect("small");
        let part = &mut twin[at..at + len];
        let client = &mut clients[index % 2];
        let (cookie, expect) = match random.random_range(0..20) {
            0..=10 => {
                let request = NbdRequest::Read { offset, len_bytes: u32::try_from(len).expect("small") };
                (client.submit(request), Expect::Data(offset, part.to_vec()))
            }
            11..=17 => {
                let data = payload(random, offset, len);
                part.copy_from_slice(&data);
                let fua = random.random_bool(0.05);
                (client.submit(NbdRequest::Write { offset, data: &data, fua }), Expect::Done)
            }
            18 => {
                part.fill(0);
                (client.submit(NbdRequest::WriteZeroes { offset, len_bytes: end - offset }), Expect::Done)
            }
            _ => (client.submit(NbdRequest::Flush), Expect::Done),
        };
        waiting[index % 2].push((cookie.expect("the request is sent"), expect));
    }
    for (client, waiting) in clients.iter_mut().zip(waiting) {
        settle(client, waiting);
    }
}

fn settle(client: &mut NbdClient, mut waiting: Vec<(u64, Expect)>) {
    while !waiting.is_empty() {
        let done = client.wait().expect("the connection lasts");
        let at = waiting.iter().position(|(cookie, _)| *cookie == done.cookie).expect("it was asked for");
        let data = done.result.expect("the request succeeds");
        if let (_, Expect::Data(offset, expected)) = waiting.swap_remove(at) {
            same(&data, &expected, &format!("the read at {offset}"));
        }
    }
}

/// A number from the environment.
fn number(name: &str, default: u64) -> u64 {
    std::env::var(name).map_or(default, |text| text.parse().expect("a number"))
}

/// A trimmed range has stable contents, which the twin adopts.
fn trim(client: &mut NbdClient, twin: &mut [u8], random: &mut Rng) {
    let (offset, len) = range(random);
    client.trim(offset, u64::try_from(len).expect("small")).expect("trim");
    let found = client.read(offset, len).expect("read after trim");
    let at = usize::try_from(offset).expect("small");
    let part = &mut twin[at..at + len];
    for (sector, (new, old)) in found.chunks(512).zip(part.chunks(512)).enumerate() {
        assert!(
            new == old || new.iter().all(|byte| *byte == 0),
            "trimmed sector {sector} is neither old nor zero"
        );
    }
    part.copy_from_slice(&found);
}

#[test]
fn two_clients_of_two_volumes_see_what_twins_in_memory_hold() {
    let mut world = World::new(16, VOLUME_MIB);
    world.cache.push_str("weu_size = \"256 KiB\"\n");
    world.volumes.push(("other".to_owned(), VOLUME_MIB * MIB, String::new()));
    let daemon = world.start();
    let mut random = rng(seed_from_env(20));
    let (rounds, least_ms) = (number("ZC_TWIN_ROUNDS", 600), number("ZC_TWIN_SECONDS", 0) * 1000);
    let size = usize::try_from(VOLUME_MIB * MIB).expect("small");
    let names = ["disk", "other"];
    let mut twins = [vec![0_u8; size], vec![0_u8; size]];
    let mut clients = names.map(|name| [world.connect(name), world.connect(name)]);
    let mut round = 0;
    while round < rounds || world.stats()["uptime_ms"].as_u64() < Some(least_ms) {
        round += 1;
        let volume = usize::from(random.random_bool(0.4));
        batch(&mut clients[volume], &mut twins[volume], &mut random);
        if round % 10 == 0 {
            trim(&mut clients[volume][0], &mut twins[volume], &mut random);
        }
    }
    for ((name, pair), twin) in names.iter().zip(&mut clients).zip(&twins) {
        for client in pair.iter_mut() {
            same(&client.read(0, size).expect("read the whole volume"), twin, name);
        }
        pair[0].flush().expect("flush");
        world.origin_is(name, twin);
    }
    let manager = world.stats()["manager"].clone();
    eprintln!("{round} rounds: {manager}");
    for happened in ["evictions", "extent_hits_device", "insert_duplicates", "insert_zero", "read_partial"] {
        assert!(manager[happened].as_u64() > Some(0), "no {happened}: {manager}");
    }
    assert_eq!(manager["failed_hits"], 0, "{manager}");
    drop(clients);
    assert_eq!(daemon.terminate().code(), Some(0));
    for (name, twin) in names.iter().zip(&twins) {
        world.origin_is(name, twin);
    }
}
