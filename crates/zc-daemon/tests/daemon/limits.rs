//! Clients with excessive requests, or none, and their neighbours.

use std::io::{Read, Write};
use std::os::unix::net::UnixStream;

use zc_core::usize_from_u64;
use zc_daemon::{Daemon, Hooks, StartOptions};
use zc_engine::{NbdClient, NbdClientError, NbdRequest};

use crate::raw::{ask_reads, attached, attached_with, chunk, header, raw, read_to_end};
use crate::rig::{Rig, content, random};

/// A client with another source than those on the Unix socket.
fn by_tcp(daemon: &Daemon) -> Result<NbdClient, NbdClientError> {
    let tcp = daemon.addresses().iter().find(|address| address.starts_with("nbd://")).unwrap();
    NbdClient::connect(&format!("{tcp}/v").parse().unwrap())
}

fn try_client(rig: &Rig, volume: &str) -> Result<NbdClient, NbdClientError> {
    let uri = format!("nbd+unix:///{volume}?socket={}", rig.path("nbd.sock").display());
    NbdClient::connect(&uri.parse().unwrap())
}

#[test]
fn idle_clients_of_a_large_source_make_room_for_one_of_a_small_one() {
    let mut rig = Rig::new();
    rig.nbd = "connections_max = 16".to_owned();
    let daemon = rig.start(&["v"]);
    let mut idle: Vec<UnixStream> = (0..15).map(|_| attached(&rig)).collect();
    let mut busy = rig.client("v");
    try_client(&rig, "v").unwrap_err();
    // They count as idle after a second; their neighbour sends a request in the meantime.
    let until_ms = daemon.stats().unwrap().uptime_ms + 20_000;
    let mut newcomer = loop {
        assert!(daemon.stats().unwrap().uptime_ms < until_ms, "no place becomes free");
        busy.read(0, 512).unwrap();
        if let Ok(client) = by_tcp(&daemon) {
            break client;
        }
    };
    assert_eq!(newcomer.read(0, 512).unwrap(), vec![0; 512]);
    busy.read(0, 512).unwrap();
    wait_for_connections(&daemon, 16);
    let driver = daemon.stats().unwrap().driver;
    assert_eq!(driver.connections_displaced, 1);
    assert_eq!(read_to_end(&mut idle[0]), b"", "the one that has asked for nothing for the longest time");
    try_client(&rig, "v").unwrap_err();
    assert!(daemon.stop().unwrap());
}

#[test]
fn ten_thousand_half_open_handshakes_harm_no_client() {
    let mut rig = Rig::new();
    rig.nbd = "connections_max = 64\nhandshake_timeout = \"1 h\"".to_owned();
    let daemon = rig.start(&["v"]);
    let mut early = rig.client("v");
    early.write(0, &[7; 4096]).unwrap();
    // All are silent; the client's side stays open as far as its own descriptors suffice.
    let mut open = std::collections::VecDeque::new();
    for _ in 0..10_000 {
        open.push_back(raw(&rig));
        if open.len() > 500 {
            open.pop_front();
        }
    }
    assert_eq!(early.read(0, 4096).unwrap(), vec![7; 4096], "one that was there before");
    let mut late = by_tcp(&daemon).unwrap();
    assert_eq!(late.read(0, 4096).unwrap(), vec![7; 4096], "one from elsewhere that came after all of them");
    // One of the same source has to wait until one of them has had its time.
    let until_ms = daemon.stats().unwrap().uptime_ms + 20_000;
    while try_client(&rig, "v").is_err() {
        assert!(daemon.stats().unwrap().uptime_ms < until_ms, "no place becomes free");
    }
    let driver = daemon.stats().unwrap().driver;
    assert!(
        daemon.registry().connections.len() <= 64 + 64 + 1,
        "{} connections",
        daemon.registry().connections.len()
    );
    assert!(driver.connections_displaced > 0, "{driver:?}");
    drop(open);
    assert!(daemon.stop().unwrap());
}

#[test]
fn beyond_the_bound_of_connections_newcomers_are_refused() {
    let mut rig = Rig::new();
    rig.nbd = "connections_max = 3".to_owned();
    let daemon = rig.start(&["v"]);
    let mut clients: Vec<NbdClient> = (0..3).map(|_| rig.client("v")).collect();
    assert_eq!(read_to_end(&mut raw(&rig)), b"", "closed without a word");
    for client in &mut clients {
        client.write(0, &[1; 512]).unwrap();
    }
    assert_eq!(daemon.stats().unwrap().driver.connections_refused, 1);
    assert!(daemon.stop().unwrap());
}

#[test]
fn one_client_takes_no_more_than_its_share() {
    let mut rig = Rig::new();
    rig.nbd = "connections_per_client_max = 2".to_owned();
    let daemon = rig.start(&["v"]);
    // All of this user's; TCP counts on its own.
    let by_tcp = || by_tcp(&daemon);
    let unix = [rig.client("v"), rig.client("v")];
    let inet = [by_tcp().unwrap(), by_tcp().unwrap()];
    assert_eq!(read_to_end(&mut raw(&rig)), b"");
    by_tcp().unwrap_err();
    for client in inet {
        client.disconnect().unwrap();
    }
    // The goodbye is answered by the end of the stream, which comes when the place is free again.
    drop(unix);
    let mut client = by_tcp().unwrap();
    assert_eq!(client.read(0, 512).unwrap(), vec![0; 512]);
    assert!(daemon.stop().unwrap());
}

#[test]
fn clients_that_do_not_go_on_are_dropped_and_others_are_not() {
    let mut rig = Rig::new();
    rig.nbd =
        "handshake_timeout = \"100 ms\"\nstall_timeout = \"1 s\"\nidle_timeout = \"1500 ms\"".to_owned();
    let daemon = rig.start(&["v"]);
    let mut silent = raw(&rig);
    let mut halfway = attached(&rig);
    halfway.write_all(&header(1, 9, 0, 8192)).unwrap();
    halfway.write_all(&[1; 4096]).unwrap();
    let mut idle = attached(&rig);
    // Each read ends because the server closes, not because of anything this side does.
    assert_eq!(read_to_end(&mut silent).len(), 18, "the greeting");
    assert_eq!(read_to_end(&mut halfway), b"");
    assert_eq!(read_to_end(&mut idle), b"");
    assert_eq!(daemon.stats().unwrap().driver.connections_broken, 3);
    let mut client = rig.client("v");
    assert_eq!(client.read(0, 8192).unwrap(), vec![0; 8192], "half a write is no write");
    assert!(daemon.stop().unwrap());
}

#[test]
fn a_client_that_writes_and_never_reads_delays_no_client_and_is_dropped() {
    let mut rig = Rig::new();
    rig.nbd = "stall_timeout = \"1 s\"\nbytes_in_flight_per_connection_max = \"32 MiB\"\n\
               bytes_in_flight_max = \"64 MiB\"\nrequests_in_flight_max = 16"
        .to_owned();
    let daemon = rig.start(&["v"]);
    let mut greedy = attached(&rig);
    let writer = std::thread::spawn(move || {
        // 16 GiB of requested replies, none received: the server stops reading, then closes.
        for cookie in 0..4096 {
            if greedy.write_all(&header(0, cookie, 0, 4 << 20)).is_err() {
                return true;
            }
        }
        read_to_end(&mut greedy).len() < 64 << 20
    });
    let mut client = rig.client("v");
    let data = content(&mut random(4), 1 << 20);
    for round in 0..8_u64 {
        client.write(round << 20, &data).unwrap();
        assert!(client.read(round << 20, data.len()).unwrap() == data);
        let unsent = daemon.stats().unwrap().driver.unsent_bytes;
        assert!(unsent <= (32 << 20) + 16 * (4 << 20), "{unsent} bytes of replies lie around");
    }
    assert!(writer.join().unwrap());
    client.disconnect().unwrap();
    assert!(daemon.stop().unwrap());
}

/// Waits until this number of connections is left.
fn wait_for_connections(daemon: &Daemon, count: usize) {
    let until_ms = daemon.stats().unwrap().uptime_ms + 20_000;
    while daemon.registry().connections.len() > count {
        // A turn of the data plane.
        assert!(daemon.stats().unwrap().uptime_ms < until_ms, "{:?}", daemon.registry().connections);
    }
}

#[test]
fn a_client_that_takes_nothing_is_idle() {
    let mut rig = Rig::new();
    rig.nbd = "stall_timeout = \"1 s\"\nidle_timeout = \"1 s\"".to_owned();
    let daemon = rig.start(&["v"]);
    let mut silent = attached(&rig);
    silent.write_all(&header(0, 1, 0, 8 << 20)).unwrap();
    while daemon.stats().unwrap().driver.unsent_bytes == 0 {}
    wait_for_connections(&daemon, 0);
    let driver = daemon.stats().unwrap().driver;
    assert_eq!((driver.unsent_bytes, driver.connections_broken), (0, 1));
    assert!(read_to_end(&mut silent).len() < 8 << 20);
    assert!(daemon.stop().unwrap());
}

#[test]
fn a_client_that_has_said_goodbye_takes_its_replies_or_goes() {
    let mut rig = Rig::new();
    rig.nbd = "stall_timeout = \"1 s\"".to_owned();
    let daemon = rig.start(&["v"]);
    let (mut patient, mut leaving) = (attached(&rig), attached(&rig));
    patient.write_all(&header(0, 1, 0, 8 << 20)).unwrap();
    leaving.write_all(&[header(0, 1, 0, 8 << 20), header(2, 2, 0, 0)].concat()).unwrap();
    while daemon.stats().unwrap().driver.unsent_bytes < 9 << 20 {}
    wait_for_connections(&daemon, 1);
    assert!(read_to_end(&mut leaving).len() < 8 << 20);
    // Nothing speaks against the other one, whose replies use memory that no client waits for.
    let mut reply = vec![0; 16 + (8 << 20)];
    patient.read_exact(&mut reply).unwrap();
    assert!(daemon.stop().unwrap());
}

#[test]
fn writes_that_never_arrive_delay_only_their_like() {
    let mut rig = Rig::new();
    rig.nbd =
        "bytes_in_flight_max = \"64 MiB\"\nhandshake_timeout = \"2 s\"\nstall_timeout = \"1 h\"".to_owned();
    let daemon = rig.start(&["v"]);
    let big = 16_u32 << 20;
    let mut halting: Vec<UnixStream> = (0..8).map(|_| attached(&rig)).collect();
    for stream in &mut halting {
        stream.write_all(&header(1, 7, 0, big)).unwrap();
    }
    while daemon.stats().unwrap().driver.payload_bytes < 32 << 20 {}
    let mut client = rig.client("v");
    let data = content(&mut random(5), 64 << 10);
    client.write(0, &data).unwrap();
    assert!(client.read(0, data.len()).unwrap() == data);
    assert_eq!(daemon.stats().unwrap().driver.payload_bytes, 32 << 20, "two arrive, six wait");
    // Waiting ones proceed once there is a slot.
    halting.drain(..2);
    for (byte, stream) in (1..).zip(&mut halting) {
        stream.write_all(&vec![byte; zc_core::usize_from_u32(big)]).unwrap();
        let mut reply = [0; 16];
        stream.read_exact(&mut reply).unwrap();
        assert_eq!(reply[4..8], [0; 4]);
    }
    assert_eq!(client.read(0, 512).unwrap(), vec![6; 512]);
    assert!(daemon.stop().unwrap());
}

#[test]
fn a_client_that_fills_the_memory_keeps_no_client_from_choosing_an_export() {
    let mut rig = Rig::new();
    rig.nbd =
        "bytes_in_flight_max = \"32 MiB\"\nhandshake_timeout = \"2 s\"\nstall_timeout = \"1 h\"".to_owned();
    let daemon = rig.start(&["v"]);
    let mut greedy = attached(&rig);
    for cookie in 0..3 {
        greedy.write_all(&header(0, cookie, 0, 16 << 20)).unwrap();
    }
    while daemon.stats().unwrap().driver.unsent_bytes < 16 << 20 {}
    let mut client = rig.client("v");
    drop(greedy);
    assert_eq!(client.read(0, 512).unwrap(), vec![0; 512]);
    assert!(daemon.stop().unwrap());
}

#[test]
fn many_questions_for_block_status_delay_no_client() {
    const QUESTIONS: u64 = 1000;
    let mut rig = Rig::new();
    rig.cache = "extent_size = \"4 KiB\"".to_owned();
    let daemon = rig.start(&["v"]);
    // The first write marks the region, which may take the device a while.
    let mut client = rig.client("v");
    client.write(crate::rig::VOLUME_BYTES / 2, &[1; 4096]).unwrap();
    // A write of which one byte is missing.
    let mut writer = attached(&rig);
    let data = content(&mut random(6), 8192);
    let (last, most) = data.split_last().unwrap();
    writer.write_all(&[&header(1, 7, 0, 8192)[..], most].concat()).unwrap();
    while daemon.stats().unwrap().driver.payload_bytes == 0 {}
    // Requests of one receive always query the whole volume.
    let mut curious = attached_with(&rig, "v", "x-zcached:residency");
    let length = u32::try_from(crate::rig::VOLUME_BYTES).unwrap();
    let questions: Vec<u8> = (0..QUESTIONS).flat_map(|cookie| header(7, cookie, 0, length)).collect();
    curious.write_all(&questions).unwrap();
    writer.write_all(&[*last]).unwrap();
    // Each reply is a snapshot: those after the write show that it was served in between.
    let answers: Vec<Vec<u8>> = (0..QUESTIONS).map(|_| chunk(&mut curious)).collect();
    let first_run = |answer: &[u8]| -> [u8; 8] { answer[4..12].try_into().unwrap() };
    assert_eq!(first_run(&answers[0])[4..], [0, 0, 0, 0], "the cache has nothing there");
    assert_eq!(first_run(&answers[999]), [0, 0, 32, 0, 0, 0, 0, 1], "the cache has the write");
    writer.read_exact(&mut [0; 16]).unwrap();
    // Those that still wait when their client goes are dropped.
    curious.write_all(&questions).unwrap();
    drop(curious);
    assert_eq!(client.read(0, 8192).unwrap(), data);
    assert!(daemon.stop().unwrap());
}

#[test]
fn what_counts_is_the_memory_that_is_held() {
    let rig = Rig::new();
    let daemon = rig.start(&["v"]);
    // A write of one byte takes a page.
    let mut writer = attached(&rig);
    writer.write_all(&header(1, 1, 3, 1)).unwrap();
    while daemon.stats().unwrap().driver.payload_bytes == 0 {}
    assert_eq!(daemon.stats().unwrap().driver.payload_bytes, 4096);
    // So do small reads, of which the socket accepts those that fit.
    let mut small = attached(&rig);
    ask_reads(&mut small, 2000, 0, 512);
    let reads = |daemon: &Daemon| {
        let latency = daemon.stats().unwrap().latency;
        latency.hit.count + latency.miss.count + latency.mixed.count
    };
    while reads(&daemon) < 2000 {}
    let unsent = daemon.stats().unwrap().driver.unsent_bytes;
    // The first of them as pages, then copied together.
    assert!((500 * 512..1000 * 4096).contains(&unsent), "{unsent} bytes for up to 2000 replies of 528");
    drop(small);
    wait_for_connections(&daemon, 1);
    assert_eq!(daemon.stats().unwrap().driver.unsent_bytes, 0);
    // Holes are not sent, but occupy memory like the data between them.
    rig.client("v").write((8 << 20) - 4096, &[1; 4096]).unwrap();
    let mut sparse = attached_with(&rig, "v", "base:allocation");
    let before = reads(&daemon);
    // This one fills the socket.
    rig.client("v").write(8 << 20, &content(&mut random(8), 4 << 20)).unwrap();
    ask_reads(&mut sparse, 1, 8 << 20, 4 << 20);
    while reads(&daemon) < before + 1 {}
    for _ in 0..3 {
        ask_reads(&mut sparse, 1, 0, 8 << 20);
    }
    while reads(&daemon) < before + 4 {}
    let unsent = daemon.stats().unwrap().driver.unsent_bytes;
    assert!(unsent >= (4 << 20) + 3 * (8 << 20), "{unsent} bytes for 28 MiB");
    drop((writer, sparse));
    wait_for_connections(&daemon, 0);
    let driver = daemon.stats().unwrap().driver;
    assert_eq!((driver.payload_bytes, driver.unsent_bytes), (0, 0));
    assert!(daemon.stop().unwrap());
}

#[test]
fn replies_count_in_the_turn_that_makes_them() {
    let mut rig = Rig::new();
    rig.nbd = "bytes_in_flight_max = \"32 MiB\"\nbytes_in_flight_per_connection_max = \"32 MiB\"".to_owned();
    let daemon = rig.start(&["v"]);
    // Known zeros in the cache are answered without waiting.
    let mut client = rig.client("v");
    client.read(0, usize_from_u64(crate::rig::VOLUME_BYTES)).unwrap();
    crate::rig::wait_for_insertions(&daemon);
    client.disconnect().unwrap();
    wait_for_connections(&daemon, 0);
    let mut greedy: Vec<UnixStream> = (0..4).map(|_| attached(&rig)).collect();
    for stream in &mut greedy {
        for _ in 0..8 {
            ask_reads(stream, 16, 0, 1 << 20);
        }
    }
    // Each has more requests than its share, and waits.
    while daemon.stats().unwrap().driver.payload_stalls < 4 {}
    let unsent = daemon.stats().unwrap().driver.unsent_bytes;
    assert!((8 << 20..24 << 20).contains(&unsent), "{unsent} bytes of replies lie around");
    drop(greedy);
    assert!(daemon.stop().unwrap());
}

#[test]
fn writes_of_a_dead_connection_end_before_those_of_a_new_one_begin() {
    let rig = Rig::new();
    let daemon = rig.start(&["v"]);
    let tcp = daemon.addresses().iter().find(|address| address.starts_with("nbd://")).unwrap().clone();
    let uri = format!("{tcp}/v").parse().unwrap();
    for round in 0..20_u8 {
        let mut old = NbdClient::connect(&uri).unwrap();
        let stale = vec![2 * round + 1; 256 << 10];
        for _ in 0..12 {
            old.submit(NbdRequest::Write { offset: 512, data: &stale, fua: false }).unwrap();
        }
        // Gone without a goodbye, its writes somewhere between socket and origin.
        drop(old);
        let mut new = NbdClient::connect(&uri).unwrap();
        let fresh = vec![2 * round + 2; 256 << 10];
        // Those that were not received from the old socket are invalid once this one is answered, or preceded it.
        new.write(512, &fresh).unwrap();
        new.flush().unwrap();
        let mut first = new.read(512, fresh.len()).unwrap();
        while daemon.registry().connections.len() > 1 {
            first = new.read(512, fresh.len()).unwrap();
        }
        assert_eq!(new.read(512, fresh.len()).unwrap(), first, "round {round}: the value is stable");
        new.write(512, &fresh).unwrap();
        assert!(new.read(512, fresh.len()).unwrap() == fresh);
        new.disconnect().unwrap();
    }
    assert!(daemon.stop().unwrap());
    let origin = std::fs::read(rig.path("v.img")).unwrap();
    assert!(
        origin[512..512 + (256 << 10)].iter().all(|&byte| byte == 40),
        "the last acknowledged write stays"
    );
}

#[test]
fn a_reload_changes_bounds_and_exports_of_a_running_daemon() {
    let mut rig = Rig::new();
    let config = rig.config(&["v", "w"]);
    rig.volume = "nbd.description = \"said later\"\nnbd.read_only = true".to_owned();
    rig.nbd = "connections_max = 2\nidle_timeout = \"1 s\"".to_owned();
    let new = rig.config(&["v", "w"]);
    let hooks =
        Hooks { config_file: Some(crate::rig::config_file(move || Ok(new.clone()))), ..Hooks::default() };
    let daemon = Daemon::start(&config, &StartOptions::default(), hooks).unwrap();
    let mut before = rig.client("v");
    let answer = rig.control().ask(r#"{"cmd":"reload"}"#);
    let applied = answer["applied"].to_string();
    for key in ["connections_max", "idle_timeout", "nbd.read_only", "nbd.description"] {
        assert!(applied.contains(key), "{key}: {answer}");
    }
    assert_eq!(answer["needs_restart"].as_array().unwrap().len(), 0, "{answer}");
    before.write(0, &[5; 512]).unwrap();
    let mut after = rig.client("v");
    assert!(after.write(0, &[6; 512]).is_err(), "read-only for those who come later");
    assert_eq!(after.read(0, 512).unwrap(), vec![5; 512]);
    assert_eq!(read_to_end(&mut raw(&rig)), b"", "the third connection");
    // Idle ones are dropped, which frees slots.
    while !daemon.registry().connections.is_empty() {
        // A turn of the data plane.
        let _turn = daemon.stats().unwrap();
    }
    assert_eq!(rig.client("w").size_bytes(), crate::rig::VOLUME_BYTES);
    assert!(usize_from_u64(daemon.stats().unwrap().driver.connections_refused) >= 1);
    drop(daemon);
}

#[test]
fn an_orderly_stop_finishes_what_is_in_flight_and_refuses_the_rest() {
    let rig = Rig::new();
    let daemon = rig.start(&["v"]);
    let mut client = attached(&rig);
    // A write that the daemon has, but for its second half, keeps the connection from being done.
    client.write_all(&header(1, 9, 4096, 8192)).unwrap();
    client.write_all(&[6; 4096]).unwrap();
    while daemon.stats().unwrap().driver.payload_bytes == 0 {}
    let mut control = rig.control();
    assert_eq!(control.ask(r#"{"cmd":"stop"}"#)["ok"], true);
    // Newcomers are turned away from the moment the stop has begun.
    let greeted = |mut late: UnixStream| late.read_exact(&mut [0; 18]).is_ok();
    while UnixStream::connect(rig.path("nbd.sock")).is_ok_and(greeted) {}
    let mut rest = vec![6; 4096];
    rest.extend(header(3, 10, 0, 0));
    client.write_all(&rest).unwrap();
    let replies = read_to_end(&mut client);
    let mut found: Vec<(u64, u32)> = replies
        .chunks_exact(16)
        .map(|reply| {
            let (head, cookie) = reply.split_last_chunk::<8>().unwrap();
            (u64::from_be_bytes(*cookie), u32::from_be_bytes(*head.last_chunk().unwrap()))
        })
        .collect();
    found.sort_unstable();
    assert_eq!(found, [(9, 0), (10, 108)], "the write is done, the flush is told ESHUTDOWN: {replies:x?}");
    assert!(daemon.wait().unwrap());
    assert_eq!(std::fs::read(rig.path("v.img")).unwrap()[4096..12288], [6; 8192]);
}
