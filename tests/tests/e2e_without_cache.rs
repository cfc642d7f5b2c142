//! A start without its cache device: it serves without the cache, if that is allowed.

#![expect(clippy::expect_used, reason = "a test; what fails here is a failure")]

use std::io::{BufRead, BufReader};
use std::os::unix::fs::symlink;
use std::path::PathBuf;
use std::process::Command;

use zc_tests::{Companion, Daemon, DataGen, FilteredFile, MIB, World, bounded, program, read_file, same};

const VOLUME_MIB: u64 = 16;

/// A world whose cache file can be removed, without a configured size with which a new one could be created.
fn world() -> (World, PathBuf) {
    let mut world = World::new(64, VOLUME_MIB);
    world.cache =
        "weu_max_age = \"100 ms\"\nread_buffer = 0\nprefetch_max = 0\nwait_max = \"0 s\"\n".to_owned();
    let behind = world.path("behind.img");
    let file = std::fs::File::create(&behind).expect("cannot make the cache");
    file.set_len(64 * MIB).expect("cannot make the cache");
    world.cache_path = "cache-link".into();
    (world, behind)
}

fn image(seed: u64) -> Vec<u8> {
    DataGen::new(seed, 8192).mixed(usize::try_from(VOLUME_MIB << 7).expect("small"))
}

/// Writes through a daemon, flushes, and waits until the cache has it.
fn write(world: &World, offset: u64, bytes: &[u8]) {
    let mut client = world.connect("disk");
    client.write(offset, bytes).expect("write");
    client.flush().expect("flush");
    world.settled();
}

fn reads(world: &World, expected: &[u8], what: &str) {
    same(&world.connect("disk").read(0, expected.len()).expect(what), expected, what);
}

/// Checks that the daemon serves without its cache, and reports the reason.
fn is_without(world: &World, why: &str) {
    let status = world.status();
    let (healthy, fault) = (&status["cache"]["healthy"], status["cache"]["fault"].to_string());
    assert!(*healthy == false && fault.contains(why), "{status}");
    assert_eq!(status["cache"]["path"], world.cache_file().display().to_string(), "{status}");
}

fn log(daemon: &Daemon) -> String {
    String::from_utf8_lossy(&read_file(daemon.log_path())).into_owned()
}

#[test]
fn a_missing_cache_costs_speed_and_nothing_of_it_is_believed_when_it_is_back() {
    let (world, behind) = world();
    symlink(&behind, world.cache_file()).expect("cannot name the cache");
    let mut expected = image(1);
    // Killed, so that the origin's time of change proves nothing: writes in between must be detected in another way.
    let daemon = world.start();
    write(&world, 0, &expected);
    reads(&world, &expected, "before");
    daemon.kill9();

    std::fs::remove_file(world.cache_file()).expect("cannot take the name away");
    let daemon = world.start();
    is_without(&world, "cache-link does not exist");
    reads(&world, &expected, "without the cache");
    expected[8 * 8192..9 * 8192].fill(7);
    write(&world, 8 * 8192, &expected[8 * 8192..9 * 8192]);
    let refused = world.zcctl_output(&["reattach"]);
    let said = String::from_utf8_lossy(&refused.stderr).into_owned();
    assert!(refused.status.code() == Some(2) && said.contains("restart the daemon"), "{said}");
    daemon.kill9();
    // Another start without it, which ends in order.
    let daemon = world.start();
    reads(&world, &expected, "without the cache again");
    assert_eq!(daemon.terminate().code(), Some(0));

    symlink(&behind, world.cache_file()).expect("cannot name the cache");
    let daemon = world.start();
    assert!(log(&daemon).contains("the origin was served without a cache since"), "{}", log(&daemon));
    let status = world.status();
    assert_eq!(status["cache"]["healthy"], true, "{status}");
    reads(&world, &expected, "with the cache again");
    let left = std::fs::read_dir(world.path("state")).expect("the state directory is there");
    let folders = left.filter(|entry| entry.as_ref().is_ok_and(|entry| entry.path().is_dir())).count();
    assert_eq!(folders, 0, "what stood in for the cache was left behind");
    assert_eq!(daemon.terminate().code(), Some(0));
    world.origin_is("disk", &expected);
}

#[test]
fn a_cache_that_cannot_be_read_or_written_is_as_good_as_none() {
    for reads_fail in [true, false] {
        let (mut world, behind) = world();
        let cache = if reads_fail {
            FilteredFile::failing(&world, &behind)
        } else {
            FilteredFile::failing_writes(&world, &behind)
        };
        symlink(cache.path(), world.cache_file()).expect("cannot name the cache");
        world.cache.push_str("direct = false\n");
        let mut expected = image(2);
        let daemon = world.start();
        write(&world, 0, &expected);
        assert_eq!(daemon.terminate().code(), Some(0));
        cache.fail(true);
        let daemon = world.start();
        is_without(&world, "failed while its metadata was");
        expected[..4096].fill(3);
        write(&world, 0, &expected[..4096]);
        reads(&world, &expected, "without the cache");
        assert_eq!(daemon.terminate().code(), Some(0));
        cache.fail(false);
        let daemon = world.start();
        reads(&world, &expected, "with the cache again");
        assert_eq!(daemon.terminate().code(), Some(0));
        world.origin_is("disk", &expected);
    }
}

/// A cache that fails when a write-back volume has nothing dirty. `lines` go to the cache's settings.
fn died_with_nothing_dirty(seed: u64, lines: &str) -> (World, FilteredFile, Daemon, Vec<u8>) {
    let (mut world, behind) = world();
    let cache = FilteredFile::failing(&world, &behind);
    symlink(cache.path(), world.cache_file()).expect("cannot name the cache");
    world.cache.push_str("direct = false\n");
    world.cache.push_str(lines);
    world.volumes[0].2 = "mode = \"write-back\"\nmax_dirty_age = \"24 h\"\n".to_owned();
    let expected = image(seed);
    let daemon = world.start();
    write(&world, 0, &expected);
    assert_eq!(world.zcctl_output(&["flush", "disk"]).status.code(), Some(0));
    world.origin_is("disk", &expected);
    cache.fail(true);
    reads(&world, &expected, "while the cache dies");
    world.stats_until("the cache is offline", |stats| stats["cache_healthy"] == false);
    (world, cache, daemon, expected)
}

#[test]
fn a_cache_that_died_with_nothing_dirty_is_done_without() {
    let (world, cache, daemon, mut expected) = died_with_nothing_dirty(3, "");
    expected[..4096].fill(9);
    write(&world, 0, &expected[..4096]);
    assert_eq!(daemon.terminate().code(), Some(0));
    world.origin_is("disk", &expected);
    // The cache is gone: no data is missing, and its contents are distrusted when it returns.
    let daemon = world.start();
    is_without(&world, "failed while its metadata was");
    expected[..512].fill(10);
    write(&world, 0, &expected[..512]);
    assert_eq!(daemon.terminate().code(), Some(0));
    is_back(&world, &cache, &expected);
}

/// Checks that the cache works again: the volume has the data that its origin got without it, and nothing old
/// overwrites it.
fn is_back(world: &World, cache: &FilteredFile, expected: &[u8]) {
    cache.fail(false);
    let daemon = world.start();
    reads(world, expected, "with the cache again");
    assert_eq!(world.zcctl_output(&["flush", "disk"]).status.code(), Some(0));
    assert_eq!(daemon.terminate().code(), Some(0));
    world.origin_is("disk", expected);
}

/// Waits until a start is known to need nothing of the cache.
fn is_settled(world: &World, daemon: &Daemon) {
    world.stats_until("the state directory knows", |_| log(daemon).contains("can do without the cache"));
}

#[test]
fn a_cache_that_died_with_nothing_dirty_is_done_without_after_a_kill_too() {
    let (world, cache, daemon, mut expected) = died_with_nothing_dirty(4, "");
    is_settled(&world, &daemon);
    daemon.kill9();
    let daemon = world.start();
    is_without(&world, "failed while its metadata was");
    expected[..512].fill(10);
    write(&world, 0, &expected[..512]);
    daemon.kill9();
    is_back(&world, &cache, &expected);
}

#[test]
fn a_cache_that_came_back_before_a_kill_is_waited_for_again() {
    let (world, cache, daemon, mut expected) = died_with_nothing_dirty(5, "destage_idle = \"1 h\"\n");
    is_settled(&world, &daemon);
    cache.fail(false);
    assert_eq!(world.zcctl_output(&["reattach"]).status.code(), Some(0));
    expected[..4096].fill(6);
    write(&world, 0, &expected[..4096]);
    daemon.kill9();
    cache.fail(true);
    let said = world.refused(&[]);
    assert!(said.contains("dirty data"), "{said}");
    is_back(&world, &cache, &expected);
}

#[test]
fn a_cache_that_has_what_an_origin_lacks_is_not_done_without() {
    let (mut world, behind) = world();
    symlink(&behind, world.cache_file()).expect("cannot name the cache");
    world.cache.push_str("destage_idle = \"1 h\"\n");
    world.volumes[0].2 = "mode = \"write-back\"\nmax_dirty_age = \"24 h\"\n".to_owned();
    let daemon = world.start();
    write(&world, 0, &[5; 65536]);
    daemon.kill9();
    std::fs::remove_file(world.cache_file()).expect("cannot take the name away");
    let said = world.refused(&[]);
    assert!(
        said.contains("does not exist") && said.contains("dirty data") && said.contains("--drop-dirty"),
        "{said}"
    );
    // Given up: then it may start, and the given-up data never returns.
    let daemon = world.start_with(&["--drop-dirty", "disk"]);
    is_without(&world, "does not exist");
    let expected = [&[9; 4096][..], &[0; 61440]].concat();
    write(&world, 0, &expected[..4096]);
    assert_eq!(daemon.terminate().code(), Some(0));
    symlink(&behind, world.cache_file()).expect("cannot name the cache");
    let daemon = world.start_with(&["--drop-dirty", "disk"]);
    reads(&world, &expected, "the cache is back");
    assert_eq!(daemon.terminate().code(), Some(0));
    let daemon = world.start();
    reads(&world, &expected, "a later start");
    assert_eq!(daemon.terminate().code(), Some(0));
}

#[test]
fn an_unknown_cache_or_a_required_one_is_refused() {
    let (mut world, behind) = world();
    assert!(world.refused(&[]).contains("cache-link does not exist"));
    // Below /dev nothing is made: it would be in memory.
    world.cache.push_str("size = \"64 MiB\"\n");
    let file = std::mem::replace(&mut world.cache_path, "/dev/zcached-no-such-device".into());
    assert!(world.refused(&[]).contains("no such device"));
    world.cache_path = file;
    symlink(&behind, world.cache_file()).expect("cannot name the cache");
    assert_eq!(world.start().terminate().code(), Some(0));
    std::fs::remove_file(world.cache_file()).expect("cannot take the name away");
    world.cache_path = "/dev/zcached-no-such-device".into();
    world.cache.push_str("required = true\n");
    let mut daemon = bounded("env");
    let output = daemon.arg(program("zcached")).arg("--config").arg(world.configure()).output();
    let output = output.expect("cannot start zcached");
    // A failure, and no mistake.
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(output.status.code() == Some(1) && said.contains("no such device"), "{said}");
}

#[test]
fn a_cache_that_is_late_is_waited_for() {
    let (mut world, behind) = world();
    symlink(&behind, world.cache_file()).expect("cannot name the cache");
    let daemon = world.start();
    let expected = image(3);
    write(&world, 0, &expected);
    assert_eq!(daemon.terminate().code(), Some(0));
    std::fs::remove_file(world.cache_file()).expect("cannot take the name away");
    world.cache = world.cache.replace("wait_max = \"0 s\"", "wait_max = \"1 min\"");
    let (log, writer) = std::io::pipe().expect("cannot make a pipe");
    let mut late = Command::new(program("zcached"));
    late.arg("--config").arg(world.configure()).stderr(writer);
    let daemon = Companion::start(&mut late);
    drop(late);
    let mut lines = BufReader::new(log).lines().map(|line| line.expect("the log is text"));
    let mut said = |words: &str| lines.any(|line| line.contains(words));
    assert!(said("waiting up to"), "the daemon ended instead of waiting");
    symlink(&behind, world.cache_file()).expect("cannot name the cache");
    assert!(said("serving"), "the daemon did not find the cache");
    let status = world.status();
    assert_eq!(status["cache"]["healthy"], true, "{status}");
    reads(&world, &expected, "with the cache");
    drop(daemon);
}

#[test]
fn a_start_waits_for_an_origin_among_the_devices() {
    let mut world = World::new(32, VOLUME_MIB);
    world.cache.push_str("wait_max = \"1 min\"\n");
    // Devices alone come late; this is a folder among them where tests may write.
    let place = tempfile::tempdir_in("/dev/shm").expect("there is shared memory");
    let origin = place.path().join("late.img");
    world.volumes[0].2 = format!("origin = \"{}\"\n", origin.display());
    let (log, writer) = std::io::pipe().expect("cannot make a pipe");
    let mut late = Command::new(program("zcached"));
    late.arg("--config").arg(world.configure()).stderr(writer);
    let daemon = Companion::start(&mut late);
    drop(late);
    let mut lines = BufReader::new(log).lines().map(|line| line.expect("the log is text"));
    let mut said = |words: &str| lines.any(|line| line.contains(words));
    assert!(said("waiting up to"), "the daemon ended instead of waiting");
    let bytes = image(4);
    let unfinished = place.path().join("unfinished");
    std::fs::write(&unfinished, &bytes).expect("cannot write the origin");
    std::fs::rename(&unfinished, &origin).expect("cannot name the origin");
    assert!(said("serving"), "the daemon did not find the origin");
    reads(&world, &bytes, "of the late origin");
    drop(daemon);
}
