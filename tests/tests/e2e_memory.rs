//! Memory of the daemon: memory used during a flood of requests is returned to the system.

#![expect(clippy::unwrap_used, reason = "a test; what fails here is a failure")]

use std::io::{Read, Write};
use std::os::unix::net::UnixStream;

use zc_tests::{Daemon, MIB, World};

/// Memory of the daemon that is resident, in bytes.
fn resident_bytes(daemon: &Daemon) -> u64 {
    let status = std::fs::read_to_string(format!("/proc/{}/status", daemon.pid())).unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).unwrap();
    line.split_whitespace().next().unwrap().parse::<u64>().unwrap() << 10
}

/// Returns a client that submits `count` reads and receives no reply.
fn greedy(world: &World, count: u32, len_bytes: u32) -> UnixStream {
    let mut stream = UnixStream::connect(world.path("nbd.sock")).unwrap();
    // The greeting; flags; the default export; its size and flags.
    stream.read_exact(&mut [0; 18]).unwrap();
    stream.write_all(b"\0\0\0\x03IHAVEOPT\0\0\0\x01\0\0\0\0").unwrap();
    stream.read_exact(&mut [0; 10]).unwrap();
    let mut asked = Vec::new();
    for number in 0..count {
        asked.extend(0x2560_9513_u32.to_be_bytes());
        asked.extend([0; 4]);
        asked.extend(u64::from(number).to_be_bytes());
        asked.extend((u64::from(number % 16) * MIB).to_be_bytes());
        asked.extend(len_bytes.to_be_bytes());
    }
    stream.write_all(&asked).unwrap();
    stream
}

#[test]
fn memory_of_a_flood_of_readers_goes_back() {
    let world = World::new(16, 32);
    let daemon = world.start();
    world.settled();
    let before = resident_bytes(&daemon);
    let small = (0..16).map(|_| greedy(&world, 1000, 4 << 10));
    let large = (0..16).map(|_| greedy(&world, 100, 128 << 10));
    let flood: Vec<UnixStream> = small.chain(large).collect();
    world.stats_until("the flood holds memory", |_| resident_bytes(&daemon) > before + 96 * MIB);
    drop(flood);
    world.stats_until("the memory goes back", |_| resident_bytes(&daemon) < before + 16 * MIB);
    assert_eq!(daemon.terminate().code(), Some(0));
}
