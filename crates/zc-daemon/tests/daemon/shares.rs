//! Clients that exceed their share, and a quiet neighbour.
//!
//! Starvation of the quiet client shows as a reply that does not arrive within [`PATIENCE`], which is far more than a
//! turn takes and far less than `stall_timeout` (60 s) or `idle_timeout` (off).

use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::time::Duration;

use zc_daemon::Daemon;

use crate::raw::{ask_reads, attached, header};
use crate::rig::Rig;

/// Time-out of a test for a reply that is due at once.
const PATIENCE: Duration = Duration::from_secs(10);
/// Bytes of a zeroing in the manager at once.
const PIECE_BYTES: u64 = 4 << 20;

/// Returns a client with the time-out [`PATIENCE`].
fn quiet(rig: &Rig) -> UnixStream {
    let stream = attached(rig);
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    stream
}

/// One write and its answer.
fn write(stream: &mut UnixStream, offset: u64, bytes: &[u8]) {
    let length = u32::try_from(bytes.len()).unwrap();
    stream.write_all(&[&header(1, 7, offset, length)[..], bytes].concat()).unwrap();
    let mut reply = [0; 16];
    stream.read_exact(&mut reply).unwrap();
    assert_eq!(reply[4..8], [0; 4]);
}

/// Memory that clients hold.
fn held(daemon: &Daemon) -> u64 {
    let driver = daemon.stats().unwrap().driver;
    driver.payload_bytes + driver.unsent_bytes
}

#[test]
fn connections_that_never_read_leave_room_for_others() {
    let rig = Rig::new();
    let daemon = rig.start(&["v"]);
    let mut client = quiet(&rig);
    let mut greedy: Vec<UnixStream> = (0..8).map(|_| attached(&rig)).collect();
    for stream in &mut greedy {
        // 16 MiB each, four from one connection: 512 MiB of replies that no client takes.
        for _ in 0..4 {
            ask_reads(stream, 1, 0, 16 << 20);
        }
    }
    while held(&daemon) < 64 << 20 {}
    for round in 0..50 {
        write(&mut client, round * (128 << 10), &[1; 128 << 10]);
        assert!(held(&daemon) < 256 << 20);
    }
    drop(greedy);
    assert!(daemon.stop().unwrap());
}

#[test]
fn writes_that_stop_midway_hold_up_no_stranger() {
    let rig = Rig::new();
    let daemon = rig.start(&["v"]);
    let mut client = quiet(&rig);
    let mut halting: Vec<UnixStream> = (0..12).map(|_| attached(&rig)).collect();
    for stream in &mut halting {
        stream.write_all(&header(1, 7, 0, 16 << 20)).unwrap();
        stream.write_all(&[1; 4096]).unwrap();
    }
    while held(&daemon) < 64 << 20 {}
    for round in 0..50 {
        write(&mut client, round * (128 << 10), &[2; 128 << 10]);
        assert!(held(&daemon) < 256 << 20);
    }
    drop(halting);
    assert!(daemon.stop().unwrap());
}

#[test]
fn what_waits_of_clients_that_left_never_begins() {
    const CLIENTS: u64 = 50;
    const EACH: u64 = 120;
    let rig = Rig::new();
    let daemon = rig.start(&["v"]);
    let zeroing = header(6, 7, 0, u32::try_from(crate::rig::VOLUME_BYTES).unwrap());
    let asked = zeroing.repeat(usize::try_from(EACH).unwrap());
    let mut greedy: Vec<UnixStream> = (0..CLIENTS).map(|_| attached(&rig)).collect();
    for stream in &mut greedy {
        stream.write_all(&asked).unwrap();
    }
    // One proceeds at a time, because each covers the volume; the others wait for it, a bounded number for each
    // client.
    let at_the_cut = loop {
        let stats = daemon.stats().unwrap();
        if stats.driver.requests_in_flight >= CLIENTS * 6 {
            break stats;
        }
    };
    drop(greedy);
    write(&mut quiet(&rig), 0, &[3; 4096]);
    while daemon.stats().unwrap().driver.requests_in_flight > 0 {}
    let begun = crate::rig::counter(&daemon, "writes") - at_the_cut.manager["writes"];
    let waited = at_the_cut.driver.requests_in_flight * crate::rig::VOLUME_BYTES.div_ceil(PIECE_BYTES);
    assert!(begun < waited / 2, "{begun} pieces were begun afterwards; {waited} were in flight");
    assert!(daemon.stop().unwrap());
}

/// A rig whose volume is larger than many pieces of a request; its origin is sparse.
fn large(bytes: u64) -> Rig {
    let rig = Rig::new();
    std::fs::File::create(rig.path("v.img")).unwrap().set_len(bytes).unwrap();
    rig
}

#[test]
fn a_large_zeroing_goes_in_pieces_and_keeps_what_it_does_not_cover() {
    const BYTES: u64 = 512 << 20;
    let rig = large(BYTES);
    let daemon = rig.start(&["v"]);
    let mut client = rig.client("v");
    for at in [0, (100 << 20) - 512, 200 << 20, BYTES - 1024] {
        client.write(at, &[5; 1024]).unwrap();
    }
    let before = crate::rig::counter(&daemon, "writes");
    client.write_zeroes(100, BYTES - 300).unwrap();
    let pieces = crate::rig::counter(&daemon, "writes") - before;
    // An uncached range is one piece of any length.
    assert!((1..=130).contains(&pieces), "128 pieces of 4 MiB and two edges at most: {pieces}");
    assert_eq!(client.read(0, 1024).unwrap(), [vec![5; 100], vec![0; 924]].concat());
    assert_eq!(client.read((100 << 20) - 512, 1024).unwrap(), vec![0; 1024]);
    assert_eq!(client.read(BYTES - 1024, 1024).unwrap(), [vec![0; 824], vec![5; 200]].concat());
    client.write(0, &[6; 4096]).unwrap();
    client.trim(0, BYTES).unwrap();
    assert_eq!(client.read(200 << 20, 1024).unwrap(), vec![0; 1024]);
    assert_eq!(daemon.stats().unwrap().driver.requests_in_flight, 0);
    assert!(daemon.stop().unwrap());
}

#[test]
fn what_runs_of_clients_that_left_ends_with_its_piece() {
    const BYTES: u64 = 64 << 30;
    const PIECES_EACH: u64 = (1 << 32) / PIECE_BYTES;
    let rig = large(BYTES);
    let daemon = rig.start(&["v"]);
    let mut greedy: Vec<UnixStream> = (0..8).map(|_| attached(&rig)).collect();
    for (number, stream) in (0_u64..).zip(&mut greedy) {
        // No two clients zero the same, so that none waits for another's range.
        let zeroing = header(6, 7, number << 32, u32::MAX);
        stream.write_all(&zeroing.repeat(8)).unwrap();
    }
    let at_the_cut = loop {
        let writes = crate::rig::counter(&daemon, "writes");
        if writes >= 16 {
            break writes;
        }
    };
    drop(greedy);
    write(&mut quiet(&rig), 0, &[3; 4096]);
    while daemon.stats().unwrap().driver.requests_in_flight > 0 {}
    let begun = crate::rig::counter(&daemon, "writes") - at_the_cut;
    // Eight requests run at the cut. Two requests' worth may begin before the daemon sees it: on a machine with other
    // work, a third of a request's worth was seen.
    assert!(begun < 2 * PIECES_EACH, "{begun} pieces were begun afterwards");
    assert!(daemon.stop().unwrap());
}
