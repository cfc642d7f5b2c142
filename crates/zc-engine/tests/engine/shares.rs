//! Clients that take more than their share, and the quiet one beside them.
//!
//! What holds the quiet client up shows as an answer that does not come before [`PATIENCE`], which is far more than a
//! turn takes and far less than `stall_timeout` (60 s) or `idle_timeout` (off).

use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::time::Duration;

use zc_engine::Engine;

use crate::raw::{ask_reads, attached, header};
use crate::rig::Rig;

/// How long a test waits for an answer that is due at once.
const PATIENCE: Duration = Duration::from_secs(10);

/// A client that gives up after [`PATIENCE`].
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
fn held(engine: &Engine) -> u64 {
    let driver = engine.stats().unwrap().driver;
    driver.payload_bytes + driver.unsent_bytes
}

#[test]
fn connections_that_never_read_leave_room_for_others() {
    let rig = Rig::new();
    let engine = rig.start(&["v"]);
    let mut client = quiet(&rig);
    let mut greedy: Vec<UnixStream> = (0..8).map(|_| attached(&rig)).collect();
    for stream in &mut greedy {
        // 16 MiB each, four from one connection: 512 MiB of replies that no client takes.
        for _ in 0..4 {
            ask_reads(stream, 1, 0, 16 << 20);
        }
    }
    while held(&engine) < 64 << 20 {}
    for round in 0..50 {
        write(&mut client, round * (128 << 10), &[1; 128 << 10]);
        assert!(held(&engine) < 256 << 20);
    }
    drop(greedy);
    assert!(engine.stop().unwrap());
}

#[test]
fn writes_that_stop_midway_hold_up_no_stranger() {
    let rig = Rig::new();
    let engine = rig.start(&["v"]);
    let mut client = quiet(&rig);
    let mut halting: Vec<UnixStream> = (0..12).map(|_| attached(&rig)).collect();
    for stream in &mut halting {
        stream.write_all(&header(1, 7, 0, 16 << 20)).unwrap();
        stream.write_all(&[1; 4096]).unwrap();
    }
    while held(&engine) < 64 << 20 {}
    for round in 0..50 {
        write(&mut client, round * (128 << 10), &[2; 128 << 10]);
        assert!(held(&engine) < 256 << 20);
    }
    drop(halting);
    assert!(engine.stop().unwrap());
}

#[test]
fn what_waits_of_clients_that_left_never_begins() {
    const CLIENTS: u64 = 50;
    const EACH: u64 = 120;
    let rig = Rig::new();
    let engine = rig.start(&["v"]);
    let zeroing = header(6, 7, 0, u32::try_from(crate::rig::VOLUME_BYTES).unwrap());
    let asked = zeroing.repeat(usize::try_from(EACH).unwrap());
    let mut greedy: Vec<UnixStream> = (0..CLIENTS).map(|_| attached(&rig)).collect();
    for stream in &mut greedy {
        stream.write_all(&asked).unwrap();
    }
    // One goes on at a time, for each covers the volume; the others wait for it.
    let at_the_cut = loop {
        let stats = engine.stats().unwrap();
        if stats.driver.requests_in_flight >= CLIENTS * EACH / 4 {
            break stats;
        }
    };
    drop(greedy);
    write(&mut quiet(&rig), 0, &[3; 4096]);
    while engine.stats().unwrap().driver.requests_in_flight > 0 {}
    let begun = crate::rig::counter(&engine, "writes") - at_the_cut.manager["writes"];
    let waited = at_the_cut.driver.requests_in_flight;
    assert!(begun < waited / 2, "{begun} were begun afterwards; {waited} were in flight");
    assert!(engine.stop().unwrap());
}
