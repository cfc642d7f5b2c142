//! The clients' view.

use rand::RngExt;
use zc_core::{Map, u64_from_usize, usize_from_u64};
use zc_engine::{NbdClient, NbdRequest};

use crate::rig::{Rig, VOLUME_BYTES, content, counter, random, wait_for_insertions};

#[test]
fn bytes_come_back_from_memory_cache_and_origin() {
    let rig = Rig::new();
    let daemon = rig.start(&["v"]);
    let mut client = rig.client("v");
    assert_eq!(client.size_bytes(), VOLUME_BYTES);
    let data = content(&mut random(1), 4 << 20);
    client.write(1 << 20, &data).unwrap();
    client.flush().unwrap();
    assert_eq!(client.read(1 << 20, data.len()).unwrap(), data);
    assert_eq!(client.read(0, 4096).unwrap(), vec![0; 4096]);
    assert_eq!(client.read(1 << 20, data.len()).unwrap(), data);
    let origin = std::fs::read(rig.path("v.img")).unwrap();
    assert_eq!(origin[1 << 20..5 << 20], data[..], "the origin is raw and has everything");
    assert!(counter(&daemon, "read_hits") > 0);
    // Insertion continues after the replies.
    while counter(&daemon, "weu_writes") == 0 {}
    client.disconnect().unwrap();
    assert!(daemon.stop().unwrap(), "a clean stop");
}

#[test]
fn trims_and_zeroes_and_prefetches_work_through_the_default_export() {
    let rig = Rig::new();
    let daemon = rig.start(&["first", "second"]);
    let mut client = rig.client("");
    let data = content(&mut random(2), 1 << 20);
    client.write(0, &data).unwrap();
    client.write_zeroes(100, 5000).unwrap();
    client.write_zeroes(200_000, 300_001).unwrap();
    let mut expected = data;
    expected[100..5100].fill(0);
    expected[200_000..500_001].fill(0);
    assert_eq!(client.read(0, expected.len()).unwrap(), expected);
    client.trim(512 << 10, 64 << 10).unwrap();
    client.trim(700_001, 100).unwrap();
    let cookie = client.submit(NbdRequest::Prefetch { offset: 1000, len_bytes: 100_000 }).unwrap();
    let done = client.wait().unwrap();
    assert_eq!((done.cookie, done.result.is_ok()), (cookie, true));
    assert_eq!(client.read(600 << 10, 1000).unwrap(), expected[600 << 10..(600 << 10) + 1000]);
    let mut second = rig.client("second");
    assert_eq!(second.read(0, 4096).unwrap(), vec![0; 4096]);
    drop(daemon);
}

#[test]
fn unaligned_writes_side_by_side_lose_nothing() {
    let rig = Rig::new();
    let daemon = rig.start(&["v"]);
    // Many small writes in flight that share sectors with their neighbours, from two connections.
    let mut clients = [rig.client("v"), rig.client("v")];
    let mut twin = vec![0_u8; 64 << 10];
    let pieces: Vec<(usize, usize)> = (0..400).map(|number| (number * 150 + 7, 150)).collect();
    for (number, &(at, len)) in pieces.iter().enumerate() {
        let byte = u8::try_from(number % 250 + 1).unwrap();
        twin[at..at + len].fill(byte);
        let data = vec![byte; len];
        let offset = u64_from_usize(at);
        clients[number % 2].submit(NbdRequest::Write { offset, data: &data, fua: false }).unwrap();
    }
    for client in &mut clients {
        while client.in_flight() > 0 {
            client.wait().unwrap().result.unwrap();
        }
    }
    assert_eq!(clients[0].read(0, twin.len()).unwrap(), twin);
    assert_eq!(clients[1].read(3, 1000).unwrap(), twin[3..1003]);
    drop(daemon);
    assert_eq!(std::fs::read(rig.path("v.img")).unwrap()[..twin.len()], twin);
}

/// Sends requests of which no two in flight overlap if one of them writes, so that the twin has every expected reply.
fn mixed_load(client: &mut NbdClient, twin: &mut [u8], seed: u64, base: u64, requests: u32) {
    let mut random = random(seed);
    let mut in_flight: Map<u64, (usize, usize, Option<Vec<u8>>)> = Map::default();
    let settle = |client: &mut NbdClient, in_flight: &mut Map<u64, (usize, usize, Option<Vec<u8>>)>| {
        let done = client.wait().unwrap();
        let (at, _, expected) = in_flight.remove(&done.cookie).unwrap();
        let got = done.result.unwrap();
        if let Some(expected) = expected {
            assert!(got == expected, "seed {seed}: wrong bytes at {at}");
        }
    };
    for _ in 0..requests {
        let unit = if random.random_bool(0.2) { 1 } else { 512 };
        let len = random.random_range(1..=(64 << 10) / unit) * unit;
        let at = random.random_range(0..=(twin.len() - len) / unit) * unit;
        let offset = base + u64_from_usize(at);
        let writes = random.random_bool(0.5);
        while in_flight.len() >= 16
            || in_flight.values().any(|(start, length, read)| {
                at < start + length + 512 && *start < at + len + 512 && (writes || read.is_none())
            })
        {
            settle(client, &mut in_flight);
        }
        if writes {
            let data = content(&mut random, len);
            twin[at..at + len].copy_from_slice(&data);
            let cookie = client.submit(NbdRequest::Write { offset, data: &data, fua: false }).unwrap();
            in_flight.insert(cookie, (at, len, None));
        } else {
            let request = NbdRequest::Read { offset, len_bytes: u32::try_from(len).unwrap() };
            let cookie = client.submit(request).unwrap();
            in_flight.insert(cookie, (at, len, Some(twin[at..at + len].to_vec())));
        }
    }
    while !in_flight.is_empty() {
        settle(client, &mut in_flight);
    }
}

#[test]
fn a_mixed_load_of_two_clients_agrees_with_its_twin() {
    let mut rig = Rig::new();
    // Smaller than the data, so that units are evicted and refilled.
    rig.cache = "insert_max = \"4 MiB\"".to_owned();
    let daemon = rig.start(&["v"]);
    let half = VOLUME_BYTES / 2;
    let run = |seed: u64, base: u64, mut client: NbdClient| {
        let mut twin = vec![0; usize_from_u64(half)];
        mixed_load(&mut client, &mut twin, seed, base, 1500);
        twin
    };
    let (one, two) = (rig.client("v"), rig.client("v"));
    let (first, second) = std::thread::scope(|scope| {
        let one = scope.spawn(|| run(11, 0, one));
        let two = scope.spawn(|| run(12, half, two));
        (one.join().unwrap(), two.join().unwrap())
    });
    let mut client = rig.client("v");
    for (base, twin) in [(0, first), (half, second)] {
        assert!(client.read(base, twin.len()).unwrap() == twin, "after the load");
    }
    assert_eq!(counter(&daemon, "failed_hits"), 0);
    assert!(daemon.stop().unwrap());
}

/// Incompressible data is cached as the client receives it; a reply of one extent is sent from there.
#[test]
fn long_hits_are_whole_wherever_they_begin_and_whatever_lies_between() {
    const BYTES: usize = 4 << 20;
    const EXTENT: usize = 8192;
    let rig = Rig::new();
    let mut random = random(6);
    let mut data = vec![0; BYTES];
    random.fill(&mut data[..]);
    // Occasionally compressible data, zero blocks, and duplicates.
    for extent in (0..BYTES / EXTENT).filter(|extent| extent % 9 > 5) {
        let at = extent * EXTENT;
        match extent % 4 {
            0 => data[at..at + EXTENT].fill(7),
            1 => data[at..at + 4096].fill(0),
            2 => data[at..at + EXTENT].fill(0),
            _ => data.copy_within(0..EXTENT, at),
        }
    }
    let daemon = rig.start_warm(&data);
    let mut client = rig.client("v");
    for round in 0..400 {
        // Whole extents every other time.
        let unit = if round % 2 == 0 { EXTENT } else { 1 };
        let at = random.random_range(0..BYTES / unit) * unit;
        let len = random.random_range(1..=(BYTES - at).min(256 << 10) / unit) * unit;
        assert!(client.read(u64_from_usize(at), len).unwrap() == data[at..at + len], "{len} bytes at {at}");
    }
    assert_eq!(counter(&daemon, "extent_misses"), 0);
    let (reads, extents) = (counter(&daemon, "device_reads"), counter(&daemon, "device_read_extents"));
    assert!(extents > 3 * reads, "{reads} reads of the device brought {extents} extents");
    assert!(daemon.stop().unwrap());
}

#[test]
fn equal_content_is_stored_once_across_volumes() {
    let rig = Rig::new();
    let daemon = rig.start(&["a", "b"]);
    let data = content(&mut random(5), 2 << 20);
    for volume in ["a", "b"] {
        let mut client = rig.client(volume);
        client.write(0, &data).unwrap();
        client.flush().unwrap();
        assert_eq!(client.read(0, data.len()).unwrap(), data);
        wait_for_insertions(&daemon);
    }
    assert_eq!(counter(&daemon, "insert_duplicates"), 256, "all of the second volume's extents");
    assert!(daemon.stop().unwrap());
}

#[test]
fn a_vanished_client_leaves_no_request_behind() {
    let rig = Rig::new();
    let daemon = rig.start(&["v"]);
    let data = content(&mut random(6), 1 << 20);
    let mut client = rig.client("v");
    for number in 0..16 {
        client.submit(NbdRequest::Write { offset: number << 20 >> 1, data: &data, fua: false }).unwrap();
    }
    drop(client);
    // Overlapping writes of a new connection follow the pending ones of the old one.
    let mut client = rig.client("v");
    let new = content(&mut random(7), 8 << 20);
    client.write(0, &new).unwrap();
    assert!(client.read(0, new.len()).unwrap() == new);
    client.disconnect().unwrap();
    assert!(daemon.stop().unwrap());
    assert!(std::fs::read(rig.path("v.img")).unwrap()[..new.len()] == new);
}
