//! A cache device that does not answer: volumes are served without it.
//!
//! The device is a file in FUSE whose server is stopped: the kernel holds its operations like those of a disk.

#![expect(clippy::expect_used, reason = "a test; what fails here is a failure")]

use std::fs::File;
use std::process::Command;

use zc_tests::{DataGen, FilteredFile, MIB, Mount, World, bounded, program, run_ok, same};

const VOLUME_MIB: u64 = 16;

/// A world whose cache is a file that can hang, formatted.
fn world() -> (World, FilteredFile) {
    let mut world = World::new(64, VOLUME_MIB);
    world.cache = "weu_max_age = \"100 ms\"\nread_buffer = 0\nprefetch_max = 0\ndirect = false\n\
                   device_deadline = \"2 s\"\nslow_read = \"300 ms\"\n"
        .to_owned();
    let behind = world.path("behind.img");
    File::create(&behind).and_then(|file| file.set_len(64 * MIB)).expect("cannot make the cache");
    let cache = FilteredFile::failing(&world, &behind);
    world.cache_path = cache.path().to_owned();
    let formatted = Command::new(program("zcctl"))
        .args(["format", "--state-dir"])
        .arg(world.path("state"))
        .arg(&behind)
        .status()
        .expect("cannot start zcctl");
    assert!(formatted.success());
    (world, cache)
}

#[test]
fn reads_and_writes_go_on_when_the_cache_hangs() {
    let (world, cache) = world();
    let daemon = world.start();
    let mut client = world.connect("disk");
    let mut expected = DataGen::new(1, 8192).mixed(usize::try_from(VOLUME_MIB << 7).expect("small"));
    client.write(0, &expected[..usize::try_from(4 * MIB).expect("small")]).expect("write");
    client.flush().expect("flush");
    world.settled();
    expected[usize::try_from(4 * MIB).expect("small")..].fill(0);

    let hanging = cache.hang();
    same(&client.read(0, 1 << 20).expect("a read of cached data"), &expected[..1 << 20], "the origin has it");
    let changed = DataGen::new(2, 8192).mixed(8);
    let at = usize::try_from(12 * MIB).expect("small");
    // A region that no write has marked.
    client.write(12 * MIB, &changed).expect("a write to an unmarked region");
    expected[at..at + changed.len()].copy_from_slice(&changed);
    world.stats_until("the cache is offline", |stats| stats["cache_healthy"] == false);
    let status = world.status();
    assert!(status["cache"]["fault"].to_string().contains("no answer in time"), "{status}");
    same(&client.read(0, expected.len()).expect("a read of all"), &expected, "after the failure");
    drop(client);

    // The kernel keeps a process whose operations a device has until it answers.
    daemon.signal(rustix::process::Signal::TERM);
    drop(hanging);
    daemon.wait();
    world.origin_is("disk", &expected);

    let _daemon = world.start();
    same(&world.connect("disk").read(0, expected.len()).expect("read"), &expected, "after the next start");
}

#[test]
fn a_hang_that_ends_in_time_costs_a_slow_read_and_nothing_else() {
    let (mut world, cache) = world();
    world.cache = world.cache.replace("\"2 s\"", "\"60 s\"");
    let _daemon = world.start();
    let mut client = world.connect("disk");
    let bytes = DataGen::new(3, 8192).mixed(8);
    client.write(0, &bytes).expect("write");
    client.flush().expect("flush");
    world.settled();
    let hanging = cache.hang();
    same(&client.read(0, bytes.len()).expect("a read of cached data"), &bytes, "the origin has it");
    assert!(world.counter("slow_hits") > 0, "{}", world.stats());
    drop(hanging);
    let hits = world.counter("verified_hits");
    same(&client.read(0, bytes.len()).expect("a read of cached data"), &bytes, "the cache has it");
    assert!(world.counter("verified_hits") > hits);
    assert_eq!(world.stats()["cache_healthy"], true);
}

/// A file system on which every change waits until this is dropped.
struct Frozen<'a>(&'a Mount);

impl<'a> Frozen<'a> {
    fn new(mount: &'a Mount) -> Self {
        run_ok(bounded("fsfreeze").arg("--freeze").arg(mount.path()));
        Self(mount)
    }
}

impl Drop for Frozen<'_> {
    fn drop(&mut self) {
        Command::new("fsfreeze").arg("--unfreeze").arg(self.0.path()).status().ok();
    }
}

/// A file system in a file, mounted where the state directory is: it can be frozen.
fn state_directory(world: &World) -> Mount {
    let image = world.path("state.img");
    File::create(&image).and_then(|file| file.set_len(16 * MIB)).expect("cannot make a file system");
    run_ok(bounded("mkfs.ext4").arg("-q").arg(&image));
    Mount::new(&["-o", "loop", image.to_str().expect("a path")], world.path("state"))
}

#[test]
fn a_state_directory_that_hangs_holds_nothing_up() {
    let mut world = World::new(64, VOLUME_MIB);
    world.volumes.push(("back".to_owned(), MIB, "mode = \"write-back\"\n".to_owned()));
    let run = Mount::new(&["-t", "tmpfs", "-o", "mode=0700", "none"], world.path("run"));
    world.control_path = run.path().join("control.sock");
    let state = state_directory(&world);
    let daemon = world.start();
    let mut expected = DataGen::new(1, 8192).mixed(usize::try_from(VOLUME_MIB << 7).expect("small"));
    let (mut client, mut back) = (world.connect("disk"), world.connect("back"));
    client.write(0, &expected).expect("write");
    client.flush().expect("flush");
    world.settled();

    let frozen = Frozen::new(&state);
    // Writes that invalidate cached data, dirty data, and data that a kill would lose.
    let changed = DataGen::new(2, 8192).mixed(128);
    expected[..changed.len()].copy_from_slice(&changed);
    client.write(0, &changed).expect("write");
    client.flush().expect("flush");
    back.write(0, &changed[..65536]).expect("write");
    back.flush().expect("flush");
    same(&client.read(0, expected.len()).expect("read"), &expected, "the volume");
    assert_eq!(world.status()["verdict"]["state"], "HEALTHY", "and the control plane answers");
    back.write(65536, &[7; 4096]).expect("a write that no flush covers");
    drop(frozen);
    daemon.kill9();
    drop((client, back));

    let _daemon = world.start();
    same(&world.connect("disk").read(0, expected.len()).expect("read"), &expected, "after a kill");
    let mut back = world.connect("back");
    same(&back.read(0, 65536).expect("read"), &changed[..65536], "what was flushed");
    back.flush().expect_err("the write that no flush covered was lost, and that was noted");
    back.flush().expect("it is told once");
}

#[test]
fn a_state_directory_that_hangs_with_the_intent_log_in_it_costs_the_log() {
    let mut world = World::new(64, VOLUME_MIB);
    world.volumes.push(("back".to_owned(), MIB, "mode = \"write-back\"\n".to_owned()));
    let state = state_directory(&world);
    world.control_path = state.path().join("control.sock");
    let daemon = world.start();
    let mut expected = DataGen::new(1, 8192).mixed(usize::try_from(VOLUME_MIB << 7).expect("small"));
    let (mut client, mut back) = (world.connect("disk"), world.connect("back"));
    client.write(0, &expected).expect("write");
    client.flush().expect("flush");
    world.settled();
    assert_eq!(world.status()["verdict"]["state"], "HEALTHY");

    let frozen = Frozen::new(&state);
    let changed = DataGen::new(2, 8192).mixed(128);
    expected[..changed.len()].copy_from_slice(&changed);
    client.write(0, &changed).expect("write");
    back.write(0, &changed[..65536]).expect("write");
    back.flush().expect("flush");
    same(&client.read(0, expected.len()).expect("read"), &expected, "the volume");
    let reason =
        world.reason("intent-log-void").of(&["does not answer", "starts cold where clients were writing"]);
    reason.advises("make the state directory work, or put control.socket in /run: systemctl restart zcached");
    back.write(65536, &[7; 4096]).expect("a write that no flush covers");
    drop(frozen);
    daemon.kill9();
    drop((client, back));

    // Log writes that were submitted when it hung have reached the file since. They are incomplete, and are not read.
    let _daemon = world.start();
    assert_eq!(world.status()["verdict"]["state"], "HEALTHY", "the next session has a log");
    same(&world.connect("disk").read(0, expected.len()).expect("read"), &expected, "after a kill");
    let mut back = world.connect("back");
    same(&back.read(0, 65536).expect("read"), &changed[..65536], "what was flushed");
    back.flush().expect_err("a write that no flush covered may be lost");
    back.flush().expect("it is told once");
}

#[test]
fn a_stop_that_the_state_directory_holds_up_says_so_and_counts_as_a_kill() {
    let mut world = World::new(64, VOLUME_MIB);
    world.volumes.push(("back".to_owned(), MIB, "mode = \"write-back\"\n".to_owned()));
    let run = Mount::new(&["-t", "tmpfs", "-o", "mode=0700", "none"], world.path("run"));
    world.control_path = run.path().join("control.sock");
    let state = state_directory(&world);
    let daemon = world.start();
    let expected = DataGen::new(1, 8192).mixed(usize::try_from(VOLUME_MIB << 7).expect("small"));
    let (mut client, mut back) = (world.connect("disk"), world.connect("back"));
    client.write(0, &expected).expect("write");
    client.flush().expect("flush");
    back.write(0, &expected[..65536]).expect("write");
    back.flush().expect("flush");
    world.settled();
    drop((client, back));

    let frozen = Frozen::new(&state);
    daemon.signal(rustix::process::Signal::TERM);
    daemon.until_logged("the end of this session is not recorded");
    // The kernel keeps a process that waits for a frozen file system.
    drop(frozen);
    assert!(!daemon.wait().success(), "the service manager hears of it");

    let _daemon = world.start();
    same(&world.connect("disk").read(0, expected.len()).expect("read"), &expected, "after the next start");
    same(&world.connect("back").read(0, 65536).expect("read"), &expected[..65536], "what was flushed");
    assert_eq!(world.status()["verdict"]["state"], "HEALTHY");
}
