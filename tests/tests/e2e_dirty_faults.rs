//! Faults of write-back that an operator or time must correct: an origin that fails during destaging, a lost journal,
//! a changed cache or origin.

#![expect(clippy::expect_used, reason = "a test; what fails here is a failure")]

use std::path::PathBuf;

use serde_json::{Value, json};
use zc_tests::{BlockKind, Daemon, DataGen, FilteredFile, MIB, World, read_file, same};

const VOLUME_MIB: u64 = 16;
const MIB_BYTES: usize = 1 << 20;
/// The first pause of destaging after a failure.
const PAUSE_MS: u64 = 250;

/// A world with one write-back volume whose dirty data stays on the cache until a command.
fn world() -> World {
    let mut world = World::new(256, VOLUME_MIB);
    world.cache.push_str("weu_size = \"256 KiB\"\n");
    world.cache.push_str("dirty_high = \"90 %\"\ndirty_low = \"90 %\"\ndestage_idle = \"1 h\"\n");
    world.volumes[0].2 = "mode = \"write-back\"\nmax_dirty_age = \"24 h\"\n".to_owned();
    world
}

/// Bytes for the whole volume; nothing in them is zero.
fn image(seed: u64) -> Vec<u8> {
    let data = DataGen::new(seed, 8192);
    (0..VOLUME_MIB << 7).flat_map(|number| data.block(BlockKind::Compressible, number)).collect()
}

fn write(world: &World, offset: u64, bytes: &[u8]) {
    let mut client = world.connect("disk");
    client.write(offset, bytes).expect("write");
    client.flush().expect("flush");
}

/// Checks that the first flush after dirty data was given up reports the loss.
fn loss_is_told(world: &World) {
    let mut client = world.connect("disk");
    client.flush().expect_err("writes that were acknowledged are lost");
    client.flush().expect("it is told once");
}

fn is(world: &World, expected: &[u8], what: &str) {
    let found = world.connect("disk").read(0, expected.len()).expect("read the whole volume");
    same(&found, expected, what);
}

fn dirty(world: &World) -> Value {
    world.stats()["dirty"]["disk"].clone()
}

/// Runs `zcctl` and returns its exit status and error output.
fn zcctl(world: &World, arguments: &[&str]) -> (Option<i32>, String) {
    let output = world.zcctl_output(arguments);
    (output.status.code(), String::from_utf8_lossy(&output.stderr).into_owned())
}

fn flushed(world: &World) {
    assert_eq!(zcctl(world, &["flush", "disk"]), (Some(0), String::new()));
    assert_eq!(dirty(world)["bytes"], 0);
}

fn kept(world: &World, daemon: Daemon) {
    assert_eq!(zcctl(world, &["stop", "--keep-dirty"]), (Some(0), String::new()));
    assert_eq!(daemon.wait().code(), Some(0));
}

#[test]
fn an_origin_that_refuses_what_it_lacks_gets_it_when_it_works_again() {
    let mut world = world();
    let behind = world.path("behind.img");
    let before = vec![0x11; image(1).len()];
    std::fs::write(&behind, &before).expect("cannot write the image");
    let origin = FilteredFile::failing(&world, &behind);
    world.volumes[0].2.push_str(&origin.as_origin());
    let daemon = world.start();
    let mut expected = image(1);
    write(&world, 0, &expected);
    origin.fail(true);
    let began = world.control(&json!({ "cmd": "flush", "volume": "disk" }));
    let bytes = began["dirty"]["bytes"].clone();
    assert!(bytes.as_u64() >= Some(VOLUME_MIB * MIB), "{began}");
    let stats = world
        .stats_until("it is tried again", |stats| stats["manager"]["destage_failures"].as_u64() >= Some(3));
    let took_ms =
        stats["uptime_ms"].as_u64().expect("a number") - began["uptime_ms"].as_u64().expect("a number");
    assert!(took_ms >= 3 * PAUSE_MS, "three attempts within {took_ms} ms");
    let dirty = &stats["dirty"]["disk"];
    assert!(
        dirty["bytes"] == bytes && dirty["refused"].as_u64() > Some(0) && dirty["fenced"] == false,
        "{dirty}"
    );
    assert_eq!(read_file(&behind), before, "errors are errors");
    let log = String::from_utf8(read_file(daemon.log_path())).expect("the log is text");
    assert!(log.contains("its origin refuses dirty data"), "{log}");
    // Meanwhile clients read and write as before, also after a crash.
    is(&world, &expected, "the volume while its origin fails");
    expected[4096..12288].fill(7);
    write(&world, 4096, &expected[4096..12288]);
    assert_eq!(zcctl(&world, &["stop"]).0, Some(2));
    daemon.kill9();
    let daemon = world.start();
    is(&world, &expected, "the volume after a crash while its origin fails");
    let _flush = world.control(&json!({ "cmd": "flush", "volume": "disk" }));
    let _stats = world.stats_until("it is refused again", |stats| stats["dirty"]["disk"]["refused"] != 0);
    origin.fail(false);
    flushed(&world);
    is(&world, &expected, "the volume when its origin works again");
    assert_eq!(daemon.terminate().code(), Some(0));
    same(&read_file(&behind), &expected, "the origin");
}

#[test]
fn a_stop_does_not_wait_for_an_origin_that_refuses() {
    let mut world = World::new(16, VOLUME_MIB);
    let behind = world.path("behind.img");
    std::fs::write(&behind, vec![0x11; image(1).len()]).expect("cannot write the image");
    let origin = FilteredFile::failing(&world, &behind);
    world.volumes[0].2 = format!("mode = \"write-back\"\n{}", origin.as_origin());
    let daemon = world.start();
    let expected = image(1);
    origin.fail(true);
    write(&world, 0, &expected[..MIB_BYTES]);
    // More than the available space.
    let (mut client, rest) = (world.connect("disk"), expected[MIB_BYTES..].to_vec());
    let waiting = std::thread::spawn(move || client.write(MIB, &rest));
    let _stats = world.stats_until("a write waits, and the origin has refused", |stats| {
        let dirty = &stats["dirty"]["disk"];
        dirty["waiting_writes"] == 1 && dirty["refused"].as_u64() > Some(0)
    });
    assert_eq!(daemon.terminate().code(), Some(0));
    assert!(waiting.join().expect("the client").is_err(), "it was not written");
    origin.fail(false);
    let daemon = world.start();
    flushed(&world);
    is(&world, &expected[..MIB_BYTES], "what was flushed");
    assert_eq!(daemon.terminate().code(), Some(0));
}

#[test]
fn a_changed_origin_gets_the_dirty_data_that_is_trusted() {
    let world = world();
    let daemon = world.start();
    let ours = image(2);
    let half = ours.len() / 2;
    write(&world, 0, &ours[..half]);
    kept(&world, daemon);
    let theirs = image(3);
    std::fs::write(world.origin("disk"), &theirs).expect("cannot write the origin");
    let said = world.refused(&[]);
    assert!(said.contains("written") && said.contains("--trust-dirty disk"), "{said}");
    let daemon = world.start_with(&["--trust-dirty", "disk"]);
    let expected = [&ours[..half], &theirs[half..]].concat();
    is(&world, &expected, "our writes over theirs");
    let before = dirty(&world);
    assert_eq!(before["bytes"], half, "{before}");
    // A decision survives a kill.
    daemon.kill9();
    let daemon = world.start();
    is(&world, &expected, "our writes over theirs after a kill");
    flushed(&world);
    assert_eq!(daemon.terminate().code(), Some(0));
    world.origin_is("disk", &expected);
}

#[test]
fn an_old_image_of_the_cache_or_one_without_a_record_is_served_when_it_is_trusted() {
    let world = world();
    let daemon = world.start();
    let old = image(4);
    write(&world, 0, &old);
    daemon.kill9();
    let backup = read_file(&world.cache_file());
    let daemon = world.start();
    write(&world, 0, &image(5));
    daemon.kill9();
    std::fs::write(world.cache_file(), &backup).expect("cannot put the backup back");
    assert!(world.refused(&[]).contains("older image"));
    let daemon = world.start_with(&["--trust-dirty", "disk"]);
    is(&world, &old, "the older state");
    kept(&world, daemon);
    let daemon = world.start();
    is(&world, &old, "the older state, believed from now on");
    kept(&world, daemon);
    std::fs::remove_dir_all(world.path("state")).expect("cannot remove the state directory");
    assert!(world.refused(&[]).contains("has no record of the volume"));
    let daemon = world.start_with(&["--trust-dirty", "disk"]);
    is(&world, &old, "what no table remembers");
    flushed(&world);
    assert_eq!(daemon.terminate().code(), Some(0));
    world.origin_is("disk", &old);
}

#[test]
fn a_volume_does_not_become_read_only_while_its_origin_lacks_something() {
    let mut world = world();
    let daemon = world.start();
    let expected = image(8);
    write(&world, 0, &expected);
    let (code, said) = zcctl(&world, &["set-mode", "disk", "read-only"]);
    assert!(code == Some(2) && said.contains("needs a restart"), "{said}");
    kept(&world, daemon);
    let read_only = world.volumes[0].2.replace("write-back", "read-only");
    let write_back = std::mem::replace(&mut world.volumes[0].2, read_only.clone());
    let said = world.refused(&[]);
    for part in ["dirty data", "cannot start as read-only", "zcctl flush disk"] {
        assert!(said.contains(part), "{part}: {said}");
    }
    world.volumes[0].2 = write_back;
    let daemon = world.start();
    flushed(&world);
    assert_eq!(daemon.terminate().code(), Some(0));
    world.volumes[0].2 = read_only;
    let daemon = world.start();
    is(&world, &expected, "the volume, read-only");
    world.connect("disk").write(0, &[1; 512]).expect_err("it takes no writes");
    assert_eq!(daemon.terminate().code(), Some(0));
    world.origin_is("disk", &expected);
}

/// A file and its former contents.
type Copied = (PathBuf, Vec<u8>);

/// A world whose journal was lost while its volume was dirty. Returns the flushed data, and copies of cache and
/// journal.
fn journal_lost(seed: u64) -> (World, Vec<u8>, [Copied; 2]) {
    let mut world = world();
    let journal = world.path("journal.img");
    world.cache.push_str(&format!("journal_path = \"{}\"\n", journal.display()));
    let daemon = world.start();
    let flushed = image(seed);
    write(&world, 0, &flushed);
    daemon.kill9();
    let copies = [world.cache_file(), journal.clone()].map(|path| (path.clone(), read_file(&path)));
    std::fs::remove_file(journal).expect("cannot remove the journal");
    // The intent log has all of it, too, but does not survive a crash of the machine.
    std::fs::remove_file(world.volatile_file("intent").expect("there is one")).expect("cannot remove it");
    (world, flushed, copies)
}

#[test]
fn a_volume_whose_journal_is_lost_is_fenced_until_the_loss_is_accepted() {
    let (world, flushed_image, _) = journal_lost(6);
    let daemon = world.start();
    assert_eq!(dirty(&world)["fenced"], true);
    let mut client = world.connect("disk");
    client.read(0, 4096).expect_err("a fenced volume does not answer");
    client.write(0, &[1; 4096]).expect_err("a fenced volume takes nothing");
    // A restart, in order or not, answers nothing.
    drop(client);
    assert_eq!(daemon.terminate().code(), Some(0));
    let daemon = world.start();
    assert_eq!(dirty(&world)["fenced"], true);
    daemon.kill9();
    let daemon = world.start();
    let mut client = world.connect("disk");
    client.read(0, 4096).expect_err("a fenced volume does not answer");
    let (code, said) = zcctl(&world, &["accept-loss", "disk"]);
    assert!(code == Some(2) && said.contains("--yes"), "{said}");
    assert_eq!(dirty(&world)["fenced"], true);
    assert_eq!(zcctl(&world, &["accept-loss", "disk", "--yes"]), (Some(0), String::new()));
    let found = client.read(0, flushed_image.len()).expect("the volume is served");
    same(&found, &vec![0; flushed_image.len()], "only the origin is left");
    loss_is_told(&world);
    write(&world, 0, &flushed_image[..MIB_BYTES]);
    let (code, said) = zcctl(&world, &["accept-loss", "disk", "--yes"]);
    assert!(code == Some(2) && said.contains("not fenced"), "{said}");
    let mut expected = found;
    expected[..MIB_BYTES].copy_from_slice(&flushed_image[..MIB_BYTES]);
    drop(client);
    // A decision is made once.
    daemon.kill9();
    let daemon = world.start();
    assert_eq!(dirty(&world)["fenced"], false);
    is(&world, &expected, "the volume after a kill");
    flushed(&world);
    assert_eq!(daemon.terminate().code(), Some(0));
    world.origin_is("disk", &expected);
}

#[test]
fn a_lost_journal_that_is_found_again_brings_every_byte() {
    let (world, expected, copies) = journal_lost(7);
    let daemon = world.start();
    assert_eq!(dirty(&world)["fenced"], true);
    assert_eq!(daemon.terminate().code(), Some(0));
    for (path, bytes) in copies {
        std::fs::write(path, bytes).expect("cannot put the cache back");
    }
    let said = world.refused(&[]);
    assert!(said.contains("older image") && said.contains("--trust-dirty disk"), "{said}");
    let daemon = world.start_with(&["--trust-dirty", "disk"]);
    is(&world, &expected, "the volume");
    flushed(&world);
    assert_eq!(daemon.terminate().code(), Some(0));
    world.origin_is("disk", &expected);
}
