//! A cache device that lies or goes away, broken clients, wrong requests.

use std::fs::OpenOptions;
use std::io::{Read, Write};
use std::os::unix::fs::FileExt;
use std::os::unix::net::UnixStream;

use zc_core::usize_from_u64;
use zc_engine::NbdRequest;

use crate::rig::{Rig, VOLUME_BYTES, content, counter, random};

#[test]
fn rot_on_the_cache_device_costs_hits_and_never_bytes() {
    let rig = Rig::new();
    let data = content(&mut random(1), 4 << 20);
    let daemon = rig.start_warm(&data);
    // Past the metadata, one byte of every 4 KiB.
    let cache = OpenOptions::new().read(true).write(true).open(rig.path("cache.img")).unwrap();
    let len = cache.metadata().unwrap().len();
    for offset in (3 << 19..len - (1 << 20)).step_by(4096) {
        let mut byte = [0];
        cache.read_exact_at(&mut byte, offset + 2048).unwrap();
        cache.write_all_at(&[byte[0] ^ 0x10], offset + 2048).unwrap();
    }
    let mut client = rig.client("v");
    assert!(client.read(0, data.len()).unwrap() == data);
    assert!(counter(&daemon, "failed_hits") > 0, "the damage was met");
    assert!(client.read(0, data.len()).unwrap() == data);
    drop(daemon);
}

#[test]
fn a_truncated_cache_file_is_a_dead_cache_and_a_living_volume() {
    let rig = Rig::new();
    let daemon = rig.start(&["v"]);
    let mut data = content(&mut random(2), 4 << 20);
    let mut client = rig.client("v");
    client.write(0, &data).unwrap();
    client.flush().unwrap();
    OpenOptions::new().write(true).open(rig.path("cache.img")).unwrap().set_len(1 << 20).unwrap();
    for round in 0..4 {
        let new = content(&mut random(10 + round), 1 << 20);
        let at = usize_from_u64(round) << 20;
        data[at..at + new.len()].copy_from_slice(&new);
        client.write(round << 20, &new).unwrap();
        client.flush().unwrap();
        assert!(client.read(0, data.len()).unwrap() == data, "round {round}");
    }
    drop(client);
    drop(daemon);
    assert!(std::fs::read(rig.path("v.img")).unwrap()[..data.len()] == data);
}

#[test]
fn requests_beyond_the_end_and_hostile_bytes_hurt_no_other_client() {
    let rig = Rig::new();
    let daemon = rig.start(&["v"]);
    let mut good = rig.client("v");
    good.submit(NbdRequest::Read { offset: VOLUME_BYTES, len_bytes: 1 }).unwrap_err();
    for bytes in
        [&b"GET / HTTP/1.1\r\n\r\n"[..], &[0xff; 70_000], b"\0\0\0\x03IHAVEOPT\0\0\0\x01\xff\xff\xff\xff"]
    {
        let mut socket = UnixStream::connect(rig.path("nbd.sock")).unwrap();
        // The server may close before it has taken everything.
        let _sent = socket.write_all(bytes);
        socket.shutdown(std::net::Shutdown::Write).unwrap();
        let mut rest = Vec::new();
        let _closed = socket.read_to_end(&mut rest);
        assert_eq!(rest[..8], *b"NBDMAGIC");
    }
    good.write(0, &[7; 4096]).unwrap();
    assert_eq!(good.read(0, 4096).unwrap(), [7; 4096]);
    assert_eq!(daemon.stats().unwrap().driver.requests_in_flight, 0);
    drop(daemon);
}

#[test]
fn a_read_only_volume_refuses_writes_and_serves_reads() {
    let mut rig = Rig::new();
    let data = content(&mut random(3), usize_from_u64(VOLUME_BYTES));
    std::fs::write(rig.path("v.img"), &data).unwrap();
    rig.volume = "mode = \"read-only\"".to_owned();
    let daemon = rig.start(&["v"]);
    let mut client = rig.client("v");
    assert!(client.export().is_read_only());
    client.submit(NbdRequest::Write { offset: 0, data: &[1; 512], fua: false }).unwrap_err();
    // A stream is inserted at its second time.
    for _ in 0..3 {
        assert!(client.read(1 << 20, 1 << 20).unwrap() == data[1 << 20..2 << 20]);
    }
    assert!(counter(&daemon, "read_hits") > 0);
    drop(client);
    assert!(daemon.stop().unwrap());
    assert!(std::fs::read(rig.path("v.img")).unwrap() == data);
}
