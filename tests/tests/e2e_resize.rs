//! A volume that grows while it is served: `zcctl resize`. Block devices of the kernel grow in `cargo xtask vm
//! functional`.

#![expect(clippy::expect_used, reason = "a test; what fails here is a failure")]

use std::fs::File;
use std::process::Output;

use serde_json::json;
use zc_engine::NbdClient;
use zc_tests::{DataGen, MIB, World, same};

/// No whole extents: the last one is cut by the end.
const OLD: u64 = MIB + 1536;
const NEW: u64 = 2 * MIB + 512;

fn world(lines: &str) -> World {
    let mut world = World::new(32, 0);
    world.cache.push_str("weu_size = \"256 KiB\"\nread_buffer = 0\nprefetch_max = 0\n");
    // Nothing is destaged without a command, as long as the versions are fewer than half of this small cache's bound.
    world.cache.push_str("dirty_high = \"90 %\"\ndirty_low = \"90 %\"\ndestage_idle = \"1 h\"\n");
    world.volumes = vec![("disk".to_owned(), OLD, lines.to_owned())];
    world
}

fn image(bytes: u64) -> Vec<u8> {
    let bytes = usize::try_from(bytes).expect("small");
    let mut image = DataGen::new(3, 8192).mixed(bytes.div_ceil(8192));
    image.truncate(bytes);
    image
}

fn all(client: &mut NbdClient) -> Vec<u8> {
    let len = usize::try_from(client.size_bytes()).expect("small");
    client.read(0, len).expect("read")
}

fn refusal(output: &Output) -> String {
    assert_eq!(output.status.code(), Some(2), "{output:?}");
    String::from_utf8_lossy(&output.stderr).into_owned()
}

fn resize(world: &World, more: &[&str]) {
    let output = world.zcctl_output(&[&["resize", "disk"], more].concat());
    assert_eq!(output.status.code(), Some(0), "{output:?}");
}

#[test]
fn data_that_only_the_cache_has_outlives_a_kill_after_the_volume_grew() {
    let world = world("mode = \"write-back\"\nmax_dirty_age = \"24 h\"\n");
    let daemon = world.start();
    let image = image(NEW);
    let old = usize::try_from(OLD).expect("small");
    let mut before = world.connect("disk");
    before.write(0, &image[..old]).expect("write");
    before.flush().expect("flush");

    resize(&world, &["--size", &NEW.to_string()]);
    assert_eq!(std::fs::metadata(world.origin("disk")).expect("the origin").len(), NEW);
    assert_eq!(world.status()["volumes"][0]["info"]["size_bytes"], json!(NEW));
    let mut client = world.connect("disk");
    assert_eq!((before.size_bytes(), client.size_bytes()), (OLD, NEW), "only new clients are told");
    same(&client.read(OLD, image.len() - old).expect("read"), &vec![0; image.len() - old], "what is new");
    client.write(OLD, &image[old..]).expect("write");
    client.flush().expect("flush");
    before.write(OLD, &[1; 512]).expect_err("not its volume");
    same(&all(&mut before), &image[..old], "what an old client sees");
    drop((before, client));
    assert_eq!(world.counter("destaged_bytes"), 0, "the origin has what only the cache should");

    daemon.kill9();
    let daemon = world.start();
    let dirty = world.stats()["dirty"]["disk"].clone();
    assert!(dirty["bytes"].as_u64().expect("a number") > 0, "{dirty}");
    same(&all(&mut world.connect("disk")), &image, "after the kill");
    assert!(world.zcctl_output(&["flush", "disk"]).status.success());
    daemon.terminate();
    world.origin_is("disk", &image);
}

#[test]
fn what_the_cache_holds_stays_warm_when_the_origin_has_grown() {
    let world = world("mode = \"write-through\"\n");
    let daemon = world.start();
    let image = image(NEW);
    let old = usize::try_from(OLD).expect("small");
    let mut client = world.connect("disk");
    client.write(0, &image[..old]).expect("write");
    client.flush().expect("flush");
    world.settled();
    let origin = File::options().write(true).open(world.origin("disk")).expect("the origin");
    origin.set_len(NEW + 100).expect("the origin grows");
    let said = refusal(&world.zcctl_output(&["resize", "disk"]));
    assert!(said.contains("not whole sectors of 512") && said.contains("truncate --size=%512"), "{said}");
    origin.set_len(NEW).expect("the origin grows");

    resize(&world, &[]);
    let mut client = world.connect("disk");
    assert_eq!(client.size_bytes(), NEW);
    client.write(OLD, &image[old..]).expect("write");
    client.flush().expect("flush");
    world.settled();
    let misses = world.counter("extent_misses");
    same(&all(&mut client), &image, "after it grew");
    drop(client);
    // The first extent that was cut, and the one that is now, go to the origin.
    assert!(world.counter("extent_misses") <= misses + 2, "most of it is cached");

    daemon.terminate();
    let _daemon = world.start();
    assert!(world.status()["volumes"][0]["info"]["cold_reason"].is_null(), "it starts warm");
    world.loaded();
    same(&all(&mut world.connect("disk")), &image, "after a restart");
    assert!(world.counter("extent_misses") <= 2);
}

#[test]
fn a_volume_does_not_shrink_and_is_as_large_as_its_origin() {
    let world = world("");
    let _daemon = world.start();
    let said = |more: &[&str]| refusal(&world.zcctl_output(&[&["resize"], more].concat()));
    assert!(said(&["other"]).contains("there is no volume"));
    assert!(said(&["disk", "--size", "1 MiB"]).contains("only grows"));
    assert!(said(&["disk", "--size", "5000000"]).contains("whole sectors"));
    resize(&world, &[]);
    let origin = File::options().write(true).open(world.origin("disk")).expect("the origin");
    origin.set_len(NEW).expect("the origin grows");
    assert!(said(&["disk", "--size", "2 MiB"]).contains("as large as its origin"));
    origin.set_len(MIB).expect("the origin shrinks");
    assert!(said(&["disk"]).contains("has shrunk"));
    assert_eq!(world.connect("disk").size_bytes(), OLD);
}

fn cut(world: &World, len_bytes: u64) {
    let origin = File::options().write(true).open(world.origin("disk")).expect("the origin");
    origin.set_len(len_bytes).expect("truncate");
}

fn info(world: &World) -> (u64, String) {
    let status = world.status();
    let info = &status["volumes"][0]["info"];
    let reason = info["cold_reason"].as_str().unwrap_or_default().to_owned();
    (info["size_bytes"].as_u64().expect("a size"), reason)
}

#[test]
fn dirty_data_waits_for_an_origin_that_was_truncated_to_be_as_long_again() {
    let world = world("mode = \"write-back\"\nmax_dirty_age = \"24 h\"\n");
    let image = image(OLD);
    let daemon = world.start();
    let mut client = world.connect("disk");
    client.write(0, &image).expect("write");
    client.flush().expect("flush");
    cut(&world, OLD / 1024 * 512);
    assert_eq!(world.zcctl_output(&["stop", "--keep-dirty"]).status.code(), Some(0));
    assert_eq!(daemon.wait().code(), Some(0));
    for _ in 0..2 {
        let said = world.refused(&[]);
        for part in [&format!("has shrunk from {OLD} to"), "--trust-dirty disk", "--drop-dirty disk"] {
            assert!(said.contains(part), "{part} in {said}");
        }
    }
    cut(&world, OLD);
    let daemon = world.start();
    same(&all(&mut world.connect("disk")), &image, "as long again");
    assert_eq!(world.zcctl_output(&["flush", "disk"]).status.code(), Some(0));
    assert_eq!(daemon.terminate().code(), Some(0));
    world.origin_is("disk", &image);
}

#[test]
fn a_truncated_origin_makes_a_smaller_volume_that_says_so() {
    let half = OLD / 1024 * 512;
    let world = world("");
    let image = image(OLD);
    let daemon = world.start();
    world.connect("disk").write(0, &image).expect("write");
    world.settled();
    cut(&world, half);
    assert_eq!(daemon.terminate().code(), Some(0));
    let daemon = world.start();
    let (size, reason) = info(&world);
    assert!(size == half && reason.contains(&format!("has shrunk from {OLD} to {half}")), "{size} {reason}");
    same(&all(&mut world.connect("disk")), &image[..usize::try_from(half).expect("small")], "the first half");
    assert_eq!(daemon.terminate().code(), Some(0));
}

/// Writes an image, truncates the origin while it is served, and waits until the daemon reports it.
fn truncated_while_served(world: &World, image: &[u8], now_bytes: u64) {
    let mut client = world.connect("disk");
    client.write(0, image).expect("write");
    client.flush().expect("flush");
    world.settled();
    cut(world, now_bytes);
    let status =
        world.status_until("the truncation is noticed", |status| status["verdict"]["state"] == "FAILED");
    let text = status["verdict"]["reasons"].to_string();
    for part in ["origin-truncated", &format!("from {OLD} to"), &format!("truncate --size={OLD}")] {
        assert!(text.contains(part), "{part} in {text}");
    }
}

#[test]
fn a_truncation_is_noticed_while_zcached_serves_and_no_write_hides_it() {
    let half = OLD / 1024 * 512;
    let world = world("mode = \"write-back\"\nmax_dirty_age = \"24 h\"\n");
    let mut image = image(OLD);
    let daemon = world.start();
    truncated_while_served(&world, &image, half);
    // Flushed data stays on the cache from here on: on the origin it would hide the loss.
    let mut client = world.connect("disk");
    let end = usize::try_from(OLD).expect("small");
    client.write(OLD - 4096, &[8; 4096]).expect("write");
    client.flush().expect("flush");
    image[end - 4096..].fill(8);
    let answer = world.control(&serde_json::json!({ "cmd": "flush", "volume": "disk" }));
    assert_eq!(answer["ok"], true, "{answer}");
    world.stats_until("the origin refuses", |stats| stats["dirty"]["disk"]["refused"].as_u64() > Some(0));
    assert_eq!(std::fs::metadata(world.origin("disk")).expect("the origin").len(), half);
    drop(client);
    daemon.kill9();
    let said = world.refused(&[]);
    assert!(said.contains(&format!("has shrunk from {OLD} to")), "{said}");
    cut(&world, OLD);
    let daemon = world.start();
    same(&all(&mut world.connect("disk")), &image, "as long again");
    assert_eq!(world.zcctl_output(&["flush", "disk"]).status.code(), Some(0));
    assert_eq!(daemon.terminate().code(), Some(0));
    world.origin_is("disk", &image);
}

#[test]
fn what_was_cached_of_an_origin_that_was_truncated_while_served_is_not_believed_later() {
    let half = OLD / 1024 * 512;
    for kill in [false, true] {
        let world = world("");
        let mut image = image(OLD);
        let daemon = world.start();
        truncated_while_served(&world, &image, half);
        // The former length before the end, so that the length proves nothing.
        cut(&world, OLD);
        image[usize::try_from(half).expect("small")..].fill(0);
        if kill {
            daemon.kill9();
        } else {
            assert_eq!(daemon.terminate().code(), Some(0));
        }
        let daemon = world.start();
        let (size, reason) = info(&world);
        assert!(size == OLD && !reason.is_empty(), "{size} {reason}");
        same(&all(&mut world.connect("disk")), &image, "what the origin has");
        assert_eq!(daemon.terminate().code(), Some(0));
    }
}

#[test]
fn an_origin_that_was_truncated_and_put_back_while_zcached_is_stopped_is_cold() {
    let half = OLD / 1024 * 512;
    let world = world("");
    let mut image = image(OLD);
    let daemon = world.start();
    world.connect("disk").write(0, &image).expect("write");
    world.settled();
    cut(&world, half);
    assert_eq!(daemon.terminate().code(), Some(0));
    cut(&world, OLD);
    image[usize::try_from(half).expect("small")..].fill(0);
    let daemon = world.start();
    let (size, reason) = info(&world);
    assert!(size == OLD && !reason.is_empty(), "{size} {reason}");
    same(&all(&mut world.connect("disk")), &image, "what the origin has");
    assert_eq!(daemon.terminate().code(), Some(0));
}
