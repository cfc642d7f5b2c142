//! An origin that does not answer in time: its requests fail or wait as configured, and nothing else does.
//!
//! The origin is a file in FUSE whose server is stopped: the kernel holds its operations like those of a disk.

#![expect(clippy::expect_used, reason = "a test; what fails here is a failure")]

use std::fs::File;

use serde_json::Value;
use zc_tests::{DataGen, FilteredFile, MIB, World, read_file, same};

const VOLUME_MIB: u64 = 8;

/// A world with a volume whose origin can hang, and one whose origin is an ordinary file.
fn world(lines: &str) -> (World, FilteredFile) {
    let mut world = World::new(64, VOLUME_MIB);
    world.cache.push_str("read_buffer = 0\nprefetch_max = 0\n");
    let behind = world.path("behind.img");
    File::create(&behind).and_then(|file| file.set_len(VOLUME_MIB * MIB)).expect("cannot make the origin");
    let origin = FilteredFile::failing(&world, &behind);
    world.volumes[0].2 = format!("{lines}{}", origin.as_origin());
    world.volumes.push(("other".to_owned(), VOLUME_MIB * MIB, String::new()));
    (world, origin)
}

fn late<'a>(status: &'a Value, name: &str) -> &'a Value {
    &status["volumes"][0]["late"][name]
}

fn count(status: &Value, name: &str) -> u64 {
    late(status, name).as_u64().unwrap_or(0)
}

#[test]
fn requests_fail_at_the_limit_and_other_volumes_continue() {
    let (world, origin) = world("origin_deadline = \"1 s\"\noutage_max = \"2 s\"\n");
    let daemon = world.start();
    let (mut client, mut other) = (world.connect("disk"), world.connect("other"));
    let mut expected = DataGen::new(1, 8192).mixed(128);
    client.write(0, &expected).expect("write");
    client.flush().expect("flush");
    world.settled();
    world.is_healthy();

    let hanging = origin.hang();
    let changed = DataGen::new(2, 8192).mixed(8);
    client.write(0, &changed).expect_err("the origin does not answer");
    let _reason = world.reason("origin-unreachable").of(&["its origin has not answered a request for"]);
    client.read(0, 8192).expect_err("a read of the same sectors waits behind the write, and fails");
    client.flush().expect_err("a flush that did not end is none");
    other.write(0, &changed).expect("another volume");
    other.flush().expect("another volume");
    let status = world.status();
    assert!(count(&status, "expired") >= 3 && count(&status, "waiting") > 0, "{status}");

    drop(hanging);
    daemon.until_logged("answers again");
    world.status_until("the origin answers", |status| late(status, "outage_ms").is_null());
    client.write(0, &changed).expect("the origin answers");
    // The flush that failed has told the loss; one that was owed may tell it again.
    client.flush().or_else(|_| client.flush()).expect("the origin answers");
    expected[..changed.len()].copy_from_slice(&changed);
    same(&client.read(0, expected.len()).expect("read"), &expected, "the volume");
    drop((client, other));
    assert!(daemon.terminate().success());
    same(&read_file(&world.path("behind.img"))[..expected.len()], &expected, "the origin");
}

#[test]
fn requests_wait_in_write_back_and_nothing_is_lost() {
    let (world, origin) = world("mode = \"write-back\"\norigin_deadline = \"1 s\"\n");
    let daemon = world.start();
    let mut client = world.connect("disk");
    let expected = DataGen::new(3, 8192).mixed(128);
    client.write(0, &expected).expect("write");
    client.flush().expect("flush");

    let hanging = origin.hang();
    let mut reader = world.connect("disk");
    let miss = std::thread::spawn(move || reader.read(4 * MIB, 8192));
    world.status_until("the request is late", |status| count(status, "waiting") > 0);
    client.write(MIB, &expected).expect("writes go on");
    client.flush().expect("and flushes");
    let status = world.status();
    assert_eq!(count(&status, "expired"), 0, "requests wait: {status}");
    let reason = world.reason("origin-unreachable").of(&["not answered a request"]);
    reason.advises("find out why");
    drop(hanging);
    let read = miss.join().expect("no panic").expect("it waited for the origin");
    assert_eq!(read, vec![0; 8192]);
    world.status_until("the origin answers", |status| late(status, "outage_ms").is_null());
    drop(client);
    assert!(daemon.terminate().success());

    let _daemon = world.start();
    let mut client = world.connect("disk");
    same(&client.read(0, expected.len()).expect("read"), &expected, "the first write");
    same(&client.read(MIB, expected.len()).expect("read"), &expected, "the second write");
}

#[test]
fn a_stop_does_not_wait_for_an_origin_that_hangs() {
    let (world, origin) = world("origin_deadline = \"0 s\"\n");
    let daemon = world.start();
    let mut client = world.connect("disk");
    let expected = DataGen::new(4, 8192).mixed(8);
    client.write(0, &expected).expect("write");
    client.flush().expect("flush");
    let hanging = origin.hang();
    let mut reader = world.connect("disk");
    let miss = std::thread::spawn(move || reader.read(4 * MIB, 8192));
    let is_asked = |stats: &Value| stats["driver"]["requests_in_flight"].as_u64() > Some(0);
    world.stats_until("the origin has the request", is_asked);
    drop(client);
    daemon.signal(rustix::process::Signal::TERM);
    daemon.until_logged("does not answer in time; a request to it fails");
    miss.join().expect("no panic").expect_err("the daemon stops");
    // The kernel may keep a process whose operations a file system has until it answers.
    drop(hanging);
    let _status = daemon.wait();

    let _daemon = world.start();
    same(&world.connect("disk").read(0, expected.len()).expect("read"), &expected, "after the next start");
}

#[test]
fn limits_change_while_the_daemon_runs() {
    let (world, origin) = world("origin_deadline = \"0 s\"\n");
    let _daemon = world.start();
    let mut client = world.connect("disk");
    client.write(0, &[7; 8192]).expect("write");
    let text = std::fs::read_to_string(world.path("zcached.toml")).expect("the configuration");
    let text =
        text.replace("origin_deadline = \"0 s\"", "origin_deadline = \"500 ms\"\noutage_max = \"1 s\"");
    std::fs::write(world.path("zcached.toml"), text).expect("cannot change the configuration");
    let reloaded = world.zcctl_output(&["reload"]);
    assert!(reloaded.status.success(), "{reloaded:?}");
    let hanging = origin.hang();
    client.write(MIB, &[8; 8192]).expect_err("the new limits hold");
    drop(hanging);
    world.status_until("the origin answers", |status| late(status, "outage_ms").is_null());
    client.write(MIB, &[8; 8192]).expect("the origin answers");
}
