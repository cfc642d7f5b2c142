//! Limits of a volume: requests and bytes a second, with bursts. Judged by the daemon's counters and its own clock.

#![expect(clippy::expect_used, reason = "a test; what fails here is a failure")]

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;

use serde_json::Value;
use zc_engine::{NbdClient, NbdRequest};
use zc_tests::{MIB, World};

/// Requests that a client of these tests has in flight.
const DEPTH: u64 = 8;

/// A volume with these limits, and one without any.
fn world(limits: &str) -> World {
    let mut world = World::new(16, 16);
    let lines = limits.lines().map(|line| format!("limits.{}\n", line.trim())).collect();
    world.volumes = vec![("slow".to_owned(), 16 * MIB, lines), ("free".to_owned(), 16 * MIB, String::new())];
    world
}

fn number(value: &Value) -> u64 {
    value.as_u64().expect("a number")
}

/// Clients that read a volume without a pause, each with several requests in flight.
struct Readers {
    ends: Arc<AtomicBool>,
    threads: Vec<JoinHandle<()>>,
}

impl Readers {
    fn on(world: &World, volume: &str, clients: u64) -> Self {
        let ends = Arc::new(AtomicBool::new(false));
        let one = |_| {
            let (seen, mut client) = (Arc::clone(&ends), world.connect(volume));
            std::thread::spawn(move || {
                (0..DEPTH).for_each(|at| read(&mut client, at * 4096));
                while !seen.load(Ordering::Relaxed) {
                    client.wait().expect("an answer").result.expect("a read");
                    read(&mut client, 0);
                }
            })
        };
        let threads = (0..clients).map(one).collect();
        Self { ends, threads }
    }

    fn end(self) {
        self.ends.store(true, Ordering::Relaxed);
        self.threads.into_iter().for_each(|thread| thread.join().expect("a reader"));
    }
}

fn read(client: &mut NbdClient, offset: u64) {
    client.submit(NbdRequest::Read { offset, len_bytes: 4096 }).expect("a read is sent");
}

/// Returns the most that a rate with its burst allows until this uptime.
fn at_most(per_s: u64, burst: u64, stats: &Value) -> u64 {
    burst + per_s * (number(&stats["uptime_ms"]) + 1) / 1000 + 1
}

#[test]
fn a_volume_keeps_its_limit_and_another_is_not_held_to_it() {
    let world = world("iops = 5\niops_burst = 10");
    let daemon = world.start();
    let readers = Readers::on(&world, "slow", 4);
    let mut free = world.connect("free");
    for _ in 0..2000 {
        free.read(0, 4096).expect("a read of the other volume");
    }
    let stats = world.stats();
    let served = number(&stats["traffic"]["free"]["reads"]);
    assert!(served > at_most(5, 10, &stats), "the other volume is as slow: {served} of it, {stats}");
    // Beyond the burst, and several times round all clients.
    let stats = world
        .stats_until("the limited volume goes on", |stats| number(&stats["traffic"]["slow"]["reads"]) >= 25);
    let (served, most) = (number(&stats["traffic"]["slow"]["reads"]), at_most(5, 10, &stats));
    assert!(served <= most, "{served} reads, and {most} were allowed");
    let waits = &stats["limits"]["slow"];
    assert!(number(&waits["waited"]) > 0 && number(&waits["waited_us"]) > 0, "{waits}");
    assert_eq!(stats["limits"]["free"], serde_json::json!({ "waited": 0, "waited_us": 0, "waiting": 0 }));
    let shown = world.zcctl_output(&["volume", "show", "slow"]);
    let shown = String::from_utf8_lossy(&shown.stdout).into_owned();
    assert!(shown.contains("waited for limits") && shown.contains("limits.iops_burst"), "{shown}");
    readers.end();
    assert_eq!(daemon.terminate().code(), Some(0));
}

#[test]
fn bytes_are_limited_and_a_request_beyond_the_burst_passes() {
    const LEN: u64 = 512 << 10;
    // A write takes a second: a client that is late by less than that still waits.
    let world = world("write_bytes_per_s = \"512 KiB\"\nbytes_burst = \"64 KiB\"");
    let daemon = world.start();
    let mut client = world.connect("slow");
    for round in 0..4 {
        client.write(round * LEN, &[7; 512 << 10]).expect("a write beyond the burst");
        // Reads and flushes are exempt.
        client.flush().expect("a flush");
        client.read(0, 1 << 20).expect("a read");
    }
    let stats = world.stats();
    let (written, most) = (number(&stats["traffic"]["slow"]["write_bytes"]), at_most(LEN, 64 << 10, &stats));
    // The last request may exceed the limit; later ones compensate for it.
    assert!(written == 4 * LEN && written - LEN <= most, "{written} bytes, and {most} were allowed");
    assert_eq!(number(&stats["limits"]["slow"]["waited"]), 3, "all writes but the first");
    assert_eq!(daemon.terminate().code(), Some(0));
}

#[test]
fn a_limit_that_is_lifted_lets_go_what_waits() {
    let world = world("bytes_per_s = \"64 KiB\"\nbytes_burst = \"64 KiB\"");
    let daemon = world.start();
    let mut client = world.connect("slow");
    for _ in 0..100 {
        let len_bytes = 512 << 10;
        client.submit(NbdRequest::Read { offset: 0, len_bytes }).expect("a read is sent");
    }
    world.stats_until("requests wait", |stats| number(&stats["limits"]["slow"]["waiting"]) == 1);
    let set = world.zcctl_output(&["volume", "set", "slow", "limits.bytes_per_s=0", "limits.iops_burst=5"]);
    assert_eq!(set.status.code(), Some(0), "{}", String::from_utf8_lossy(&set.stderr));
    // With the limit they take 800 s.
    let answers = std::thread::spawn(move || {
        (0..100).for_each(|_| drop(client.wait().expect("an answer").result.expect("a read")));
        client
    });
    let stats = world.stats_until("what waited is served", |stats| {
        number(&stats["traffic"]["slow"]["reads"]) == 100 || answers.is_finished()
    });
    let mut client = answers.join().expect("a client");
    assert_eq!(number(&stats["limits"]["slow"]["waiting"]), 0);
    // A new limit begins with one burst.
    let set = world.zcctl_output(&["volume", "set", "slow", "limits.read_iops=1"]);
    assert_eq!(set.status.code(), Some(0), "{}", String::from_utf8_lossy(&set.stderr));
    let before = number(&world.stats()["limits"]["slow"]["waited"]);
    for _ in 0..7 {
        client.read(0, 4096).expect("a read");
    }
    assert!(number(&world.stats()["limits"]["slow"]["waited"]) > before);
    assert_eq!(daemon.terminate().code(), Some(0));
}

/// A world whose volume `slow` is minutes over its limit, and a client that waits for it.
fn in_debt(world: &World) -> NbdClient {
    let mut client = world.connect("slow");
    client.read(0, 16 << 20).expect("the first one passes");
    read(&mut client, 0);
    world.stats_until("a request waits", |stats| number(&stats["limits"]["slow"]["waiting"]) == 1);
    client
}

#[test]
fn what_waits_at_a_stop_is_served() {
    let world = world("bytes_per_s = \"64 KiB\"\nbytes_burst = \"64 KiB\"");
    let daemon = world.start();
    let mut client = in_debt(&world);
    let answer = std::thread::spawn(move || client.wait().expect("an answer").result.map(|data| data.len()));
    assert_eq!(daemon.terminate().code(), Some(0));
    assert_eq!(answer.join().expect("a client").expect("it is served"), 4096);
}

#[test]
fn a_client_that_leaves_takes_its_request_along() {
    let world = world("bytes_per_s = \"64 KiB\"\nbytes_burst = \"64 KiB\"");
    let daemon = world.start();
    let client = in_debt(&world);
    let before = number(&world.stats()["traffic"]["slow"]["reads"]);
    drop(client);
    let stats =
        world.stats_until("no request waits", |stats| number(&stats["limits"]["slow"]["waiting"]) == 0);
    assert_eq!(number(&stats["traffic"]["slow"]["reads"]), before, "no client would take the answer");
    world.status_until("the client is gone", |status| status["connections"] == 0);
    assert_eq!(daemon.terminate().code(), Some(0));
}

#[test]
fn an_origin_is_asked_no_more_than_its_limit_and_hits_do_not_wait() {
    let mut world = world("origin_iops = 20");
    world.cache.push_str("prefetch_max = 0\nread_buffer = 0\n");
    let daemon = world.start();
    let mut client = world.connect("slow");
    for extent in 0..20 {
        client.read(extent * 8192, 4096).expect("a miss");
    }
    let stats = world.stats();
    let most = at_most(20, 2, &stats);
    assert!(number(&stats["manager"]["extent_misses"]) == 20 && most >= 20, "{most} were allowed: {stats}");
    let waits = &stats["origin_limits"]["slow"];
    assert!(number(&waits["waited"]) >= 10 && number(&waits["waited_us"]) > 0, "{waits}");
    assert!(stats["origin_limits"]["free"].is_null(), "{stats}");
    world.settled();
    let before = world.stats();
    for _ in 0..50 {
        (0..20).for_each(|extent| drop(client.read(extent * 8192, 4096).expect("a hit")));
    }
    assert_eq!(world.stats()["origin_limits"], before["origin_limits"], "a hit asks nothing of the origin");

    // Writes are limited, and waiting data is destaged at a stop.
    let set = world.zcctl_output(&["volume", "set", "slow", "limits.origin_iops=1"]);
    assert_eq!(set.status.code(), Some(0), "{}", String::from_utf8_lossy(&set.stderr));
    for extent in 0..10 {
        let data = [7; 8192];
        client
            .submit(NbdRequest::Write { offset: extent * 8192, data: &data, fua: false })
            .expect("a write is sent");
    }
    world.stats_until("writes wait", |stats| number(&stats["origin_limits"]["slow"]["waiting"]) >= 5);
    let shown = world.zcctl_output(&["volume", "show", "slow"]);
    let shown = String::from_utf8_lossy(&shown.stdout).into_owned();
    assert!(shown.contains("waited for the origin's") && shown.contains("limits.origin_iops"), "{shown}");
    let answers = std::thread::spawn(move || {
        (0..10).for_each(|_| drop(client.wait().expect("an answer").result.expect("a write")));
    });
    assert_eq!(daemon.terminate().code(), Some(0));
    answers.join().expect("all writes are answered");
    let origin = zc_tests::read_file(&world.path("slow.img"));
    assert_eq!(origin[..10 * 8192], [7; 10 * 8192], "the origin has what was written");
}
