//! `zcctl status` reports the health of a daemon: in one word, with reasons, and by its exit status.

#![expect(clippy::expect_used, reason = "a test; what fails here is a failure")]

use std::fs::File;
use std::os::unix::fs::FileExt as _;

use serde_json::Value;
use zc_tests::{DataGen, FilteredFile, MIB, World, read_file};

const VOLUME_MIB: u64 = 16;

/// Checks the verdict as JSON and as text, with a reason that contains these words; the exit status follows.
fn verdict_is(world: &World, state: &str, words: &[&str]) {
    let code = match state {
        "HEALTHY" => 0,
        "DEGRADED" => 1,
        _ => 3,
    };
    let json = world.zcctl_output(&["status", "--json"]);
    let answer: Value = serde_json::from_slice(&json.stdout).expect("zcctl --json writes JSON");
    assert!(answer["verdict"]["state"] == state && json.status.code() == Some(code), "{answer}");
    let text = world.zcctl_output(&["status"]);
    let shown = String::from_utf8_lossy(&text.stdout).into_owned();
    assert_eq!(text.status.code(), Some(code), "{shown}");
    assert!(shown.lines().next().is_some_and(|line| line.ends_with(state)), "{shown}");
    for word in words {
        assert!(shown.contains(word), "{word} in {shown}");
    }
    let reasons = answer["verdict"]["reasons"].as_array().map_or(0, Vec::len);
    assert_eq!(reasons > 0, code > 0, "{answer}");
    assert_eq!(shown.matches("    action: ").count(), reasons, "{shown}");
}

fn image(seed: u64) -> Vec<u8> {
    DataGen::new(seed, 8192).mixed(usize::try_from(VOLUME_MIB << 7).expect("small"))
}

#[test]
fn failed_verifications_and_a_cold_start_are_not_healthy() {
    let mut world = World::new(64, VOLUME_MIB);
    world.cache.push_str("weu_size = \"256 KiB\"\nread_buffer = 0\nprefetch_max = 0\n");
    let daemon = world.start();
    let image = image(1);
    world.connect("disk").write(0, &image).expect("fill");
    world.inserted();
    world.settled();
    verdict_is(&world, "HEALTHY", &[]);
    let file = File::options().write(true).open(world.cache_file()).expect("the cache is there");
    file.write_all_at(&vec![0x5a; 32 << 20], 4 * MIB).expect("cannot damage the cache");
    file.sync_all().expect("sync");
    assert!(world.connect("disk").read(0, image.len()).expect("no error reaches clients") == image);
    verdict_is(&world, "DEGRADED", &["failed verification", "smartctl", "zcctl check --data", "zcctl clear"]);
    world.reason("verification-failed").run(&world, "zcctl clear");
    verdict_is(&world, "HEALTHY", &[]);
    assert_eq!(daemon.terminate().code(), Some(0));
    let daemon = world.start_with(&["--cold"]);
    verdict_is(
        &world,
        "DEGRADED",
        &["volume disk", "started cold", "a cold start was requested", "zcctl clear disk"],
    );
    assert!(world.zcctl_output(&["clear", "disk"]).status.success());
    verdict_is(&world, "HEALTHY", &[]);
    assert_eq!(daemon.terminate().code(), Some(0));
}

#[test]
fn an_index_that_covers_a_part_of_the_cache_is_named_with_the_memory_that_suffices() {
    let mut world = World::new(8192, VOLUME_MIB);
    world.cache.push_str("max_ram = \"4 MiB\"\n");
    let daemon = world.start();
    let reason = world.reason("index-short").of(&["max_ram, 4 MiB, is enough to index", "stays unused"]);
    let (_, command) = reason.command.split_once("set cache.max_ram = \"").expect("it says what to set");
    let (enough, _) = command.split_once('"').expect("it is quoted");
    assert_eq!(daemon.terminate().code(), Some(0));
    world.cache = world.cache.replace("4 MiB", enough);
    let daemon = world.start();
    verdict_is(&world, "HEALTHY", &[]);
    assert_eq!(daemon.terminate().code(), Some(0));
}

#[test]
fn an_origin_that_fails_and_dirty_data_that_is_too_old_are_not_healthy() {
    let mut world = World::new(64, VOLUME_MIB);
    let behind = world.path("behind.img");
    std::fs::write(&behind, image(2)).expect("cannot write the image");
    let origin = FilteredFile::failing(&world, &behind);
    world.volumes[0].2 = format!("mode = \"write-back\"\nmax_dirty_age = \"1 s\"\n{}", origin.as_origin());
    let daemon = world.start();
    verdict_is(&world, "HEALTHY", &[]);
    origin.fail(true);
    let mut client = world.connect("disk");
    client.write(0, &[7; 65536]).expect("write");
    client.flush().expect("flush");
    world.stats_until("the data is late", |stats| {
        stats["dirty"]["disk"]["oldest_age_ms"].as_u64() > Some(7_000)
    });
    verdict_is(&world, "DEGRADED", &["recovery point", "max_dirty_age is 1 s", "refuses dirty data"]);
    origin.fail(false);
    world.stats_until("the origin has it", |stats| stats["dirty"]["disk"]["bytes"] == 0);
    // No request of a client failed, and nothing is refused any more.
    verdict_is(&world, "HEALTHY", &[]);
    assert_eq!(daemon.terminate().code(), Some(0));
}

#[test]
fn a_cache_out_of_order_is_degraded_and_a_fenced_volume_failed() {
    let mut world = World::new(64, VOLUME_MIB);
    world.cache =
        "weu_max_age = \"100 ms\"\nread_buffer = 0\ndirect = false\ndestage_idle = \"1 h\"\n".to_owned();
    world.volumes.push(("back".to_owned(), VOLUME_MIB * MIB, "mode = \"write-back\"\n".to_owned()));
    let behind = world.path("behind.img");
    File::create(&behind).and_then(|file| file.set_len(64 * MIB)).expect("cannot make the cache");
    let cache = FilteredFile::failing(&world, &behind);
    world.cache_path = cache.path().to_owned();
    let formatted = std::process::Command::new(zc_tests::program("zcctl"))
        .args(["format", "--state-dir"])
        .arg(world.path("state"))
        .arg(&behind)
        .output()
        .expect("cannot start zcctl");
    assert!(formatted.status.success(), "{formatted:?}");
    let daemon = world.start();
    verdict_is(&world, "HEALTHY", &[]);
    cache.fail(true);
    let mut client = world.connect("disk");
    client.write(0, &[7; 65536]).expect("write-through clients see no error");
    client.flush().expect("flush");
    world.stats_until("the failure is known", |stats| stats["cache_healthy"] == false);
    verdict_is(&world, "DEGRADED", &["offline", "zcctl reattach"]);
    cache.fail(false);
    assert!(world.zcctl_output(&["reattach"]).status.success());
    let mut client = world.connect("back");
    client.write(0, &[8; 65536]).expect("write");
    client.flush().expect("flush");
    cache.fail(true);
    let mut through = world.connect("disk");
    through.write(0, &[9; 65536]).expect("write-through clients see no error");
    world.stats_until("the volume is fenced", |stats| stats["dirty"]["back"]["fenced"] == true);
    verdict_is(&world, "FAILED", &["volume back", "fenced", "zcctl reattach", "zcctl drop-dirty back --yes"]);
    cache.fail(false);
    drop(daemon);
    assert!(!read_file(&behind).is_empty());
}
