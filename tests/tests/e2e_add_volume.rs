//! Volumes that a reload adds to a running daemon. Their block devices are tried by `cargo xtask vm functional`.

#![expect(clippy::expect_used, reason = "a test; what fails here is a failure")]

use serde_json::{Value, json};
use zc_tests::{DataGen, MIB, World, same};

const BYTES: usize = 1 << 20;

fn image(seed: u64) -> Vec<u8> {
    DataGen::new(seed, 8192).mixed(BYTES / 8192)
}

fn world() -> World {
    let mut world = World::new(32, 1);
    // Nothing goes to the origin by itself, and no start waits for a cache that is away.
    world.cache.push_str(
        "dirty_high = \"90 %\"\ndirty_low = \"90 %\"\ndestage_idle = \"1 h\"\nwait_max = \"0 s\"\n",
    );
    world
}

fn with(world: &mut World, name: &str, lines: &str) {
    world.volumes.push((name.to_owned(), MIB, lines.to_owned()));
    let _config = world.configure();
}

fn reload(world: &World) -> Value {
    world.control(&json!({ "cmd": "reload" }))
}

fn fill(world: &World, volume: &str, image: &[u8]) {
    let mut client = world.connect(volume);
    client.write(0, image).expect("write");
    client.flush().expect("flush");
}

fn holds(world: &World, volume: &str, image: &[u8]) {
    same(&world.connect(volume).read(0, BYTES).expect("read"), image, volume);
}

fn info(world: &World, volume: &str) -> Value {
    let status = world.status();
    let volumes = status["volumes"].as_array().expect("a list");
    volumes.iter().find(|entry| entry["name"] == volume).expect("it is served")["info"].clone()
}

#[test]
fn what_a_reload_adds_is_served_at_once_and_outlives_kill_and_stop() {
    let mut world = world();
    let daemon = world.start();
    let mut before = world.connect("disk");
    let images = [image(1), image(2), image(3)];
    before.write(0, &images[0]).expect("write");

    with(&mut world, "through", "");
    with(&mut world, "back", "mode = \"write-back\"\nmax_dirty_age = \"24 h\"\n");
    let answer = reload(&world);
    assert_eq!(answer["applied"], json!(["volume \"through\"", "volume \"back\""]), "{answer}");
    assert_eq!(answer["needs_restart"], json!([]), "{answer}");
    assert_eq!(info(&world, "back")["mode"], "write-back");
    same(&before.read(0, BYTES).expect("read"), &images[0], "a client that was there before");
    fill(&world, "through", &images[1]);
    fill(&world, "back", &images[2]);
    assert_eq!(reload(&world)["applied"], json!([]), "they are in force");
    world.stats_until("the data is dirty", |stats| stats["dirty"]["back"]["bytes"].as_u64() > Some(0));
    assert_eq!(world.counter("destaged_bytes"), 0, "the origin has what only the cache should");

    drop(before);
    daemon.kill9();
    let (cache, away) = (world.cache_file(), world.path("away.img"));
    std::fs::rename(&cache, &away).expect("the cache goes");
    assert!(
        world.refused(&[]).contains("dirty data of volume \"back\""),
        "it was said that it may become dirty"
    );
    std::fs::rename(&away, &cache).expect("the cache is back");
    let daemon = world.start();
    for (volume, image) in ["disk", "through", "back"].into_iter().zip(&images) {
        holds(&world, volume, image);
    }
    assert!(world.zcctl_output(&["flush", "back"]).status.success());
    assert_eq!(daemon.terminate().code(), Some(0));
    world.origin_is("back", &images[2]);
}

#[test]
fn what_was_cached_of_an_added_volume_is_believed_after_a_stop() {
    let mut world = world();
    let daemon = world.start();
    with(&mut world, "more", "");
    assert_eq!(reload(&world)["ok"], true);
    let image = image(4);
    fill(&world, "more", &image);
    world.inserted();
    assert_eq!(daemon.terminate().code(), Some(0));

    let daemon = world.start();
    world.loaded();
    assert_eq!(info(&world, "more")["cold_reason"], Value::Null);
    holds(&world, "more", &image);
    assert!(world.counter("read_hits") > 0, "its contents are still there");
    assert_eq!(daemon.terminate().code(), Some(0));
}

#[test]
fn a_volume_that_the_cache_knew_before_is_taken_up_cold() {
    let mut world = world();
    with(&mut world, "more", "");
    let daemon = world.start();
    let image = image(5);
    fill(&world, "more", &image);
    assert_eq!(daemon.terminate().code(), Some(0));
    let more = world.volumes.pop().expect("it is there");
    let daemon = world.start();

    world.volumes.push(more);
    with(&mut world, "new", "");
    let answer = reload(&world);
    assert_eq!(answer["applied"], json!(["volume \"more\"", "volume \"new\""]), "{answer}");
    assert!(info(&world, "more")["cold_reason"].is_string(), "another program may have written its origin");
    holds(&world, "more", &image);
    fill(&world, "new", &image);
    assert_eq!(daemon.terminate().code(), Some(0));
    let daemon = world.start();
    holds(&world, "more", &image);
    holds(&world, "new", &image);
    assert_eq!(daemon.terminate().code(), Some(0));
}

#[test]
fn a_volume_that_cannot_be_served_refuses_the_reload_as_a_whole() {
    let mut world = world();
    let daemon = world.start();
    let image = image(6);
    fill(&world, "disk", &image);
    std::fs::hard_link(world.origin("disk"), world.path("alias.img")).expect("a second name");
    let dir = world.path("");
    for (file, reason) in [("alias.img", "same file"), ("nothing.img", "No such file")] {
        world.volumes.truncate(1);
        world.volumes[0].2 = "mode = \"pass-through\"\n".to_owned();
        with(&mut world, "odd", &format!("origin = \"{}{file}\"\n", dir.display()));
        let answer = reload(&world);
        assert!(answer["ok"] == false && answer["error"].to_string().contains(reason), "{answer}");
    }
    assert_eq!(info(&world, "disk")["mode"], "write-through", "nothing else was applied");
    assert_eq!(world.status()["volumes"].as_array().map(Vec::len), Some(1));
    holds(&world, "disk", &image);
    // The name is not spent.
    world.volumes.truncate(1);
    with(&mut world, "odd", "");
    assert_eq!(reload(&world)["applied"], json!(["volume \"odd\"", "volume \"disk\": mode"]));
    holds(&world, "odd", &vec![0; BYTES]);
    assert_eq!(daemon.terminate().code(), Some(0));
}
