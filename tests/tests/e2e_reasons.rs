//! Each reason of the verdict: caused, read, its advice followed, and HEALTHY after it.

#![expect(clippy::expect_used, reason = "a test; what fails here is a failure")]

use std::fs::File;
use std::os::unix::fs::FileExt as _;
use std::path::Path;
use std::process::Command;

use zc_tests::{BlockKind, Daemon, DataGen, FilteredFile, MIB, World, program, read_file, run_ok, workspace};

const VOLUME_MIB: u64 = 16;
const EXTENT: usize = 8192;

/// A world with the volume `back`, whose dirty data stays on the cache until a command, beside `disk`.
fn world() -> World {
    let mut world = World::new(64, VOLUME_MIB);
    world.cache.push_str("weu_size = \"256 KiB\"\nread_buffer = 0\nprefetch_max = 0\n");
    world.cache.push_str("dirty_high = \"90 %\"\ndirty_low = \"90 %\"\ndestage_idle = \"1 h\"\n");
    let lines = "mode = \"write-back\"\nmax_dirty_age = \"24 h\"\n";
    world.volumes.push(("back".to_owned(), VOLUME_MIB * MIB, lines.to_owned()));
    world
}

/// Returns a file of `mib` MiB of zeros that can fail, and the world with it as its formatted cache.
fn with_failing_cache(mut world: World, failing: fn(&World, &Path) -> FilteredFile) -> (World, FilteredFile) {
    let behind = world.path("behind.img");
    File::create(&behind).and_then(|file| file.set_len(64 * MIB)).expect("cannot make the cache");
    let cache = failing(&world, &behind);
    world.cache_path = cache.path().to_owned();
    world.cache = world.cache.replace("size = \"64 MiB\"\n", "");
    run_ok(
        Command::new(program("zcctl"))
            .args(["format", "--weu-size", "256 KiB", "--state-dir"])
            .arg(world.path("state"))
            .arg(&behind),
    );
    (world, cache)
}

/// Bytes that do not compress: as written, so stored.
fn raw(seed: u64, extents: u64) -> Vec<u8> {
    let data = DataGen::new(seed, EXTENT);
    (0..extents).flat_map(|number| data.block(BlockKind::Incompressible, number)).collect()
}

fn write(world: &World, volume: &str, offset: u64, bytes: &[u8]) {
    let mut client = world.connect(volume);
    client.write(offset, bytes).expect("write");
    client.flush().expect("flush");
}

/// Stops the daemon with its dirty data on the cache, and starts it.
fn kept(world: &World, daemon: Daemon) {
    assert!(world.zcctl_output(&["stop", "--keep-dirty"]).status.success());
    assert_eq!(daemon.wait().code(), Some(0));
}

/// Damages a file's copies of these bytes: flips a bit, or zeroes the page.
fn damage(path: &Path, bytes: &[u8], page: bool) {
    let held = read_file(path);
    let at = held.windows(64).position(|window| window == &bytes[..64]).expect("it is there");
    let file = File::options().write(true).open(path).expect("the file");
    let (at, data) = if page { (at / 4096 * 4096, vec![0; 4096]) } else { (at, vec![held[at] ^ 1]) };
    file.write_all_at(&data, at as u64).expect("damage");
    file.sync_all().expect("damage");
}

/// Number and place of the last block with this mark in a file: those of a log are numbered (`FORMAT.md`).
fn last_of_log(path: &Path, mark: [u8; 4]) -> (u64, usize) {
    let bytes = read_file(path);
    let blocks = bytes.chunks_exact(4096).enumerate();
    let of_log = blocks.filter(|(_, block)| block[4..8] == mark);
    let number = |block: &[u8]| u64::from_le_bytes(*block[8..].first_chunk().expect("8 bytes"));
    of_log.map(|(place, block)| (number(block), place)).max().expect("the log has blocks")
}

/// Zeroes the last block with this mark.
fn lose_last(path: &Path, mark: [u8; 4]) {
    let (_, place) = last_of_log(path, mark);
    let file = File::options().write(true).open(path).expect("the file");
    file.write_all_at(&[0; 4096], 4096 * place as u64).expect("write");
    file.sync_all().expect("write");
}

#[test]
fn a_cache_that_failed_and_works_again() {
    let (world, cache) = with_failing_cache(world(), FilteredFile::failing);
    let daemon = world.start();
    world.is_healthy();
    cache.fail(true);
    write(&world, "disk", 0, &raw(1, 8));
    let reason = world.reason("cache-failed").of(&["offline"]);
    cache.fail(false);
    reason.run(&world, "zcctl reattach");
    world.reason("cold-start").run(&world, "zcctl clear disk");
    world.reason("cache-errors").run(&world, "zcctl clear");
    world.is_healthy();
    write(&world, "back", 0, &raw(2, 8));
    cache.fail(true);
    write(&world, "disk", 0, &raw(3, 8));
    let reason = world.reason("fenced").of(&["its dirty data cannot be read now", "is kept"]);
    cache.fail(false);
    reason.run(&world, "zcctl reattach");
    assert_eq!(world.connect("back").read(0, 65536).expect("read"), raw(2, 8));
    assert!(world.zcctl_output(&["clear"]).status.success());
    world.is_healthy();
    drop(daemon);
}

#[test]
fn a_fenced_volume_whose_cache_does_not_come_back() {
    let (world, cache) = with_failing_cache(world(), FilteredFile::failing);
    let daemon = world.start();
    write(&world, "back", 0, &raw(2, 8));
    cache.fail(true);
    write(&world, "disk", 0, &raw(3, 8));
    let reason = world.reason("fenced").of(&["its dirty data cannot be read now"]);
    reason.run(&world, "zcctl drop-dirty back --yes");
    cache.fail(false);
    world.reason("cache-failed").run(&world, "zcctl reattach");
    assert!(world.zcctl_output(&["clear"]).status.success());
    world.is_healthy();
    drop(daemon);
}

#[test]
fn reads_of_the_cache_that_fail() {
    let (world, cache) = with_failing_cache(world(), FilteredFile::failing_reads);
    let daemon = world.start();
    let bytes = raw(1, 64);
    write(&world, "disk", 0, &bytes);
    world.inserted();
    world.settled();
    cache.fail(true);
    assert_eq!(world.connect("disk").read(0, bytes.len()).expect("the origin has it"), bytes);
    let reason = world.reason("cache-errors").of(&["operations of the cache device failed"]);
    cache.fail(false);
    reason.advises("smartctl -a on the device of");
    reason.run(&world, "zcctl clear");
    world.is_healthy();
    assert_eq!(daemon.terminate().code(), Some(0));
}

#[test]
fn dirty_data_that_cannot_be_read() {
    for give_up in [false, true] {
        let world = world();
        let daemon = world.start();
        let bytes = raw(1, 256);
        write(&world, "back", 0, &bytes);
        kept(&world, daemon);
        let place = 100 * EXTENT;
        damage(&world.cache_file(), &bytes[place..place + EXTENT], false);
        let daemon = world.start();
        world.connect("back").read(place as u64, EXTENT).expect_err("it is nowhere");
        let unreadable = world.reason("dirty-unreadable").of(&["could not be read from the cache"]);
        let _began = world.control(&serde_json::json!({ "cmd": "flush", "volume": "back" }));
        let stuck = world.reason("dirty-stuck").of(&["8192 bytes at offset 819200", "no later write"]);
        if give_up {
            stuck.run(&world, "zcctl drop-dirty back --unreadable --yes");
            world.connect("back").flush().expect_err("a client is told of the loss once");
        } else {
            stuck.advises("rewrite these bytes and flush");
            write(&world, "back", place as u64, &raw(2, 1));
        }
        unreadable.run(&world, "zcctl clear back");
        assert!(world.zcctl_output(&["clear"]).status.success());
        world.is_healthy();
        assert!(world.zcctl_output(&["flush", "back"]).status.success());
        assert_eq!(daemon.terminate().code(), Some(0));
    }
}

#[test]
fn commits_that_a_power_cut_left_incomplete() {
    let world = world();
    let daemon = world.start();
    let _loaded = world.loaded();
    write(&world, "back", 0, &raw(1, 64));
    let bytes = raw(2, 64);
    write(&world, "back", 0, &bytes);
    let _stats =
        world.stats_until("the commit is proved", |stats| stats["dirty"]["back"]["unproved"] == false);
    daemon.kill9();
    damage(&world.cache_file(), &bytes[20 * EXTENT..], true);
    // The block that proves the commit comes within 10 ms after it. A power cut before it takes the intent log along.
    lose_last(&world.cache_file(), *b"zcJb");
    std::fs::remove_file(world.volatile_file("intent").expect("there is one")).expect("cannot remove it");
    let daemon = world.start();
    let reason = world
        .reason("commits-dropped")
        .of(&["incomplete on the cache", "the next flush of surviving clients"]);
    reason.advises("compare the volume with a backup");
    reason.run(&world, "zcctl clear back");
    assert!(world.zcctl_output(&["clear"]).status.success());
    world.is_healthy();
    assert_eq!(daemon.terminate().code(), Some(0));
}

#[test]
fn an_origin_whose_errors_clients_saw() {
    let mut world = World::new(64, VOLUME_MIB);
    let behind = world.path("origin-behind.img");
    std::fs::write(&behind, raw(1, VOLUME_MIB << 7)).expect("cannot write the image");
    let origin = FilteredFile::failing_reads(&world, &behind);
    world.volumes[0].2 = origin.as_origin();
    let daemon = world.start();
    world.is_healthy();
    origin.fail(true);
    world.connect("disk").read(MIB, 65536).expect_err("the origin fails");
    let reason = world.reason("origin-errors").of(&["its origin failed", "got an error"]);
    origin.fail(false);
    reason.advises(&format!("check {}", origin.path().display()));
    reason.run(&world, "zcctl clear disk");
    world.connect("disk").read(MIB, 65536).expect("the origin works");
    world.is_healthy();
    assert_eq!(daemon.terminate().code(), Some(0));
}

#[test]
fn an_origin_that_refuses_dirty_data() {
    let mut world = world();
    let behind = world.path("origin-behind.img");
    std::fs::write(&behind, raw(1, VOLUME_MIB << 7)).expect("cannot write the image");
    let origin = FilteredFile::failing_writes(&world, &behind);
    world.volumes[1].2.push_str(&origin.as_origin());
    let daemon = world.start();
    write(&world, "back", 0, &raw(2, 8));
    origin.fail(true);
    let _began = world.control(&serde_json::json!({ "cmd": "flush", "volume": "back" }));
    let reason =
        world.reason("origin-refused").of(&["refuses dirty data", "EIO", "no request of a client fails"]);
    reason.advises(&format!("make {} writable", origin.path().display()));
    origin.fail(false);
    reason.run(&world, "zcctl flush back");
    world.is_healthy();
    assert_eq!(daemon.terminate().code(), Some(0));
}

#[test]
fn a_recovery_point_that_is_too_old() {
    let mut world = World::new(64, VOLUME_MIB);
    let behind = world.path("origin-behind.img");
    std::fs::write(&behind, raw(1, VOLUME_MIB << 7)).expect("cannot write the image");
    let origin = FilteredFile::failing_writes(&world, &behind);
    world.volumes[0].2 = format!("mode = \"write-back\"\nmax_dirty_age = \"1 s\"\n{}", origin.as_origin());
    let daemon = world.start();
    origin.fail(true);
    write(&world, "disk", 0, &raw(2, 8));
    let reason = world
        .reason("recovery-point-late")
        .of(&["max_dirty_age is 1 s", "more data is lost than max_dirty_age allows"]);
    origin.fail(false);
    reason.run(&world, "zcctl flush disk");
    world.is_healthy();
    assert_eq!(daemon.terminate().code(), Some(0));
}

#[test]
fn an_origin_that_was_truncated_while_it_was_served() {
    let world = World::new(64, VOLUME_MIB);
    let daemon = world.start();
    write(&world, "disk", 0, &raw(1, VOLUME_MIB << 7));
    let origin = File::options().write(true).open(world.origin("disk")).expect("the origin");
    origin.set_len(VOLUME_MIB * MIB / 2).expect("truncate");
    let reason = world.reason("origin-truncated").of(&["was truncated from 16777216 to 8388608 bytes"]);
    reason.run(&world, "zcctl stop --keep-dirty");
    assert_eq!(daemon.wait().code(), Some(0));
    reason.run(&world, &format!("truncate --size=16777216 {}", world.origin("disk").display()));
    let daemon = world.start();
    world.reason("cold-start").run(&world, "zcctl clear disk");
    world.is_healthy();
    assert_eq!(daemon.terminate().code(), Some(0));
}

#[test]
fn dirty_data_of_a_volume_that_the_configuration_lacks() {
    let mut world = world();
    let daemon = world.start();
    write(&world, "back", 0, &raw(1, 8));
    kept(&world, daemon);
    let volume = world.volumes.pop().expect("there are two");
    let daemon = world.start();
    let reason = world.reason("dirty-unserved").of(&["not in the configuration", "the data is kept"]);
    reason.advises("add the volume to the configuration, then: systemctl restart zcached");
    assert_eq!(daemon.terminate().code(), Some(0));
    world.volumes.push(volume);
    let daemon = world.start();
    world.reason("cold-start").of(&["was not in the configuration"]).run(&world, "zcctl clear back");
    world.is_healthy();
    assert_eq!(world.connect("back").read(0, 65536).expect("read"), raw(1, 8));
    assert_eq!(daemon.terminate().code(), Some(0));
}

#[test]
fn dirty_data_beside_an_origin_that_another_wrote() {
    for option in ["--trust-dirty", "--drop-dirty"] {
        let world = world();
        let daemon = world.start();
        write(&world, "back", 0, &raw(1, 8));
        kept(&world, daemon);
        std::fs::write(world.origin("back"), raw(2, VOLUME_MIB << 7)).expect("cannot write the origin");
        let daemon = world.start();
        let reason = world.reason("dirty-doubtful").of(&["it is not served", "dirty data, if any, is kept"]);
        reason.advises("start once with --trust-dirty back");
        reason.advises("--drop-dirty back");
        reason.run(&world, "zcctl stop --keep-dirty");
        assert_eq!(daemon.wait().code(), Some(0));
        let daemon = world.start_with(&[option, "back"]);
        let seed = if option == "--trust-dirty" { 1 } else { 2 };
        assert_eq!(world.connect("back").read(0, 65536).expect("read"), raw(seed, 8), "{option}");
        assert!(world.zcctl_output(&["clear"]).status.success());
        world.is_healthy();
        assert_eq!(daemon.terminate().code(), Some(0));
    }
}

#[test]
fn a_volume_that_becomes_read_only_with_dirty_data() {
    let mut world = world();
    let daemon = world.start();
    write(&world, "back", 0, &raw(1, 8));
    kept(&world, daemon);
    world.volumes[1].2 = "mode = \"read-only\"\n".to_owned();
    let daemon = world.start();
    let reason = world.reason("dirty-doubtful").of(&["cannot start as read-only"]);
    reason.run(&world, "zcctl volume set back mode=write-through");
    let _served = world.serves("back");
    reason.run(&world, "zcctl flush back");
    reason.advises("zcctl volume set back mode=read-only; zcctl stop --flush");
    let set = world.zcctl_output(&["volume", "set", "back", "mode=read-only"]);
    let said = String::from_utf8_lossy(&set.stdout).into_owned();
    assert!(set.status.code() == Some(1) && said.contains("restart"), "{set:?}");
    reason.run(&world, "zcctl stop --flush");
    assert_eq!(daemon.wait().code(), Some(0));
    let daemon = Daemon::start(&world.path("zcached.toml"));
    world.is_healthy();
    assert_eq!(world.connect("back").read(0, 65536).expect("read"), raw(1, 8));
    assert_eq!(daemon.terminate().code(), Some(0));
}

#[test]
fn origins_that_are_missing() {
    let mut world = World::new(64, VOLUME_MIB);
    world.volumes.push(("late".to_owned(), MIB, String::new()));
    let empty = world.path("empty.img");
    File::create(&empty).expect("cannot make a file");
    world.volumes.push(("empty".to_owned(), 0, format!("origin = \"{}\"\n", empty.display())));
    std::fs::create_dir(world.origin("late")).expect("nothing that can be opened");
    let daemon = world.start();
    let _reason = world.reason("origin-missing").of(&["the other volumes are served"]);
    let status = world.status();
    let reasons = status["verdict"]["reasons"].as_array().expect("a list");
    let command = |volume: &str| {
        let found = reasons.iter().find(|reason| reason["volume"] == volume).expect("it is not served");
        found["command"].as_str().expect("a text").to_owned()
    };
    assert!(command("late").contains("restore its origin"), "{status}");
    assert!(command("empty").contains("truncate --size=SIZE its origin"), "{status}");
    std::fs::remove_dir(world.origin("late")).expect("it was ours");
    run_ok(Command::new("truncate").arg("--size=1M").arg(&empty));
    let (_late, _empty) = (world.serves("late"), world.serves("empty"));
    world.is_healthy();
    assert_eq!(daemon.terminate().code(), Some(0));
}

#[test]
fn volumes_of_a_store_that_cannot_be_served_as_they_are_configured() {
    let mut world = World::new(64, 1);
    world.add_store("256 MiB");
    world.add_thin("thin", 16, "");
    let daemon = world.start();
    write(&world, "thin", 0, &raw(1, 8));
    assert!(world.zcctl_output(&["store", "snapshot", "tank", "thin", "thin@one"]).status.success());
    assert_eq!(daemon.terminate().code(), Some(0));
    world.volumes.push(("frozen".to_owned(), 0, "origin = \"store:tank/thin@one\"\n".to_owned()));
    world.volumes.push(("none".to_owned(), 0, "origin = \"store:tank/none\"\n".to_owned()));
    let daemon = world.start();
    let reason = world.reason("volume-refused").of(&["is a snapshot and never changes"]);
    let missing = world.reason("origin-missing").of(&["has no volume"]);
    missing.advises("zcctl store create-volume STORE VOLUME SIZE");
    assert!(world.zcctl_output(&["store", "create-volume", "tank", "none", "1 MiB"]).status.success());
    let _served = world.serves("none");
    reason.run(&world, "zcctl volume set frozen mode=read-only");
    let _served = world.serves("frozen");
    assert_eq!(world.connect("frozen").read(0, 65536).expect("read"), raw(1, 8));
    world.is_healthy();
    assert_eq!(daemon.terminate().code(), Some(0));
}

#[test]
fn a_volume_that_no_client_can_reach() {
    let mut world = World::new(64, VOLUME_MIB);
    world.volumes[0].2 = "nbd.export = false\n".to_owned();
    let daemon = world.start();
    let reason = world.reason("unreachable").of(&["no client can reach it", "it serves no client"]);
    reason.advises("zcctl attach disk");
    reason.run(&world, "zcctl volume set disk nbd.export=true");
    write(&world, "disk", 0, &raw(1, 8));
    world.is_healthy();
    assert_eq!(daemon.terminate().code(), Some(0));
}

#[test]
fn a_store_whose_last_commit_was_cut_off() {
    let mut world = World::new(64, 1);
    world.add_store("256 MiB");
    world.add_thin("thin", 16, "");
    let daemon = world.start();
    let (pool, of_log) = (world.path("pool"), *b"zcSb");
    write(&world, "thin", 0, &raw(2, 8));
    world.settled();
    let (before, _) = last_of_log(&pool, of_log);
    let mut client = world.connect("thin");
    client.write(0, &raw(3, 8)).expect("write");
    client.flush().expect("flush");
    daemon.kill9();
    // The batch that proves the commit comes 10 ms after it; it may have come before the kill.
    if last_of_log(&pool, of_log).0 > before + 1 {
        lose_last(&pool, of_log);
    }
    damage(&pool, &raw(3, 8), false);
    let daemon = world.start();
    let reason =
        world.reason("store-dropped").of(&["damaged and does not count", "the next flush fails once"]);
    reason.run(&world, "zcctl store scrub tank");
    let mut client = world.connect("thin");
    // Clean extents of the volume may be newer than the store.
    drop(world.reason("cold-start").of(&["opened without its newest commits"]));
    client.write(0, &raw(9, 8)).expect("write");
    client.flush().expect_err("what was flushed may be gone");
    client.flush().expect("it is told once");
    reason.run(&world, "zcctl clear");
    world.is_healthy();
    assert_eq!(daemon.terminate().code(), Some(0));
}

#[test]
fn a_store_whose_device_fails() {
    let mut world = World::new(64, 1);
    world.add_store("256 MiB");
    world.add_thin("thin", 16, "");
    let behind = world.path("pool");
    let pool = FilteredFile::failing_writes(&world, &behind);
    world.cache = world.cache.replace(&behind.display().to_string(), &pool.path().display().to_string());
    let daemon = world.start();
    write(&world, "thin", 0, &raw(1, 8));
    world.is_healthy();
    pool.fail(true);
    let mut client = world.connect("thin");
    client.write(0, &raw(2, 64)).and_then(|()| client.flush()).expect_err("its device fails");
    let reason = world.reason("store-failed").of(&["its device failed", "flushed data is kept"]);
    pool.fail(false);
    reason.advises("when the device works: systemctl restart zcached");
    let _code = daemon.terminate();
    let daemon = world.start();
    let found = world.connect("thin").read(0, 65536).expect("read");
    assert!(found == raw(1, 8) || found == raw(2, 8), "what was flushed is kept");
    assert!(world.zcctl_output(&["clear"]).status.success());
    world.is_healthy();
    assert_eq!(daemon.terminate().code(), Some(0));
}

/// Every kind of reason, by the text of the verdict.
fn kinds() -> Vec<&'static str> {
    let code = include_str!("../../crates/zc-daemon/src/observe/verdict.rs");
    let code = code.split("mod tests").next().expect("a text");
    let quoted = code.split('"').skip(1).step_by(2);
    let is_kind = |text: &&str| {
        let is_word = text.chars().all(|c| c.is_ascii_lowercase() || c == '-');
        is_word && text.len() < 25 && text.contains('-') && !text.starts_with('-')
    };
    let mut kinds: Vec<_> = quoted.filter(is_kind).chain(["fenced", "unreachable"]).collect();
    kinds.sort_unstable();
    kinds.dedup();
    kinds
}

#[test]
fn every_reason_is_caused_and_mended_by_a_test() {
    let folder = workspace().join("tests/tests");
    let files = std::fs::read_dir(&folder).expect("the tests").map(|entry| entry.expect("a file").path());
    let tests: Vec<_> = files.filter(|path| path.extension().is_some_and(|e| e == "rs")).collect();
    let text: String = tests.iter().map(|path| std::fs::read_to_string(path).expect("a test")).collect();
    let kinds = kinds();
    assert!(kinds.len() > 20, "{kinds:?}");
    let lacks: Vec<_> = kinds.iter().filter(|kind| !text.contains(&format!(".reason(\"{kind}\")"))).collect();
    assert!(lacks.is_empty(), "no test causes {lacks:?}");
}
