//! `zcctl volume`: volumes that come, go and change while others are served. Block devices are tried by
//! `cargo xtask vm functional`.

#![expect(clippy::expect_used, reason = "a test; what fails here is a failure")]

use std::process::Output;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;

use serde_json::{Value, json};
use zc_tests::{Daemon, DataGen, MIB, World, same};

const BYTES: usize = 1 << 20;

fn image(seed: u64) -> Vec<u8> {
    DataGen::new(seed, 8192).mixed(BYTES / 8192)
}

fn world() -> World {
    let mut world = World::new(32, 1);
    // Nothing goes to the origin by itself.
    world.cache.push_str("dirty_high = \"90 %\"\ndirty_low = \"90 %\"\ndestage_idle = \"1 h\"\n");
    world
}

/// The daemon with the configuration as it stands in the file.
fn start_again(world: &World) -> Daemon {
    Daemon::start(&world.path("zcached.toml"))
}

fn file(world: &World) -> String {
    std::fs::read_to_string(world.path("zcached.toml")).expect("the configuration is there")
}

fn said(output: &Output) -> String {
    format!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr))
}

/// Runs `zcctl volume`; returns its output.
fn volume(world: &World, arguments: &[&str], status: i32) -> String {
    let output = world.zcctl_output(&[&["volume"], arguments].concat());
    assert_eq!(output.status.code(), Some(status), "{arguments:?}: {}", said(&output));
    said(&output)
}

fn origin(world: &World, name: &str, bytes: &[u8]) -> String {
    let path = world.origin(name);
    std::fs::write(&path, bytes).expect("an origin");
    path.display().to_string()
}

fn fill(world: &World, volume: &str, image: &[u8]) {
    let mut client = world.connect(volume);
    client.write(0, image).expect("write");
    client.flush().expect("flush");
}

fn holds(world: &World, volume: &str, image: &[u8]) {
    same(&world.connect(volume).read(0, BYTES).expect("read"), image, volume);
}

/// Waits until the daemon has noticed that clients are gone.
fn alone(world: &World) {
    world.status_until("clients are gone", |status| status["connections"] == 0);
}

fn is_served(world: &World, name: &str) -> bool {
    World::volume_of(&world.status(), name).is_some()
}

/// Clients of a volume that continuously read and write it, and verify their reads.
struct Load {
    ends: Arc<AtomicBool>,
    thread: JoinHandle<u64>,
}

impl Load {
    fn on(world: &World, volume: &str) -> Self {
        let ends = Arc::new(AtomicBool::new(false));
        let (seen, mut client) = (Arc::clone(&ends), world.connect(volume));
        let thread = std::thread::spawn(move || {
            let mut rounds = 0;
            while !seen.load(Ordering::Relaxed) {
                rounds += 1;
                let image = image(1000 + rounds);
                client.write(0, &image).expect("a write under load");
                same(&client.read(0, BYTES).expect("a read under load"), &image, "under load");
            }
            rounds
        });
        Self { ends, thread }
    }

    fn end(self) {
        self.ends.store(true, Ordering::Relaxed);
        assert!(self.thread.join().expect("the load meets no error") > 0);
    }
}

#[test]
fn a_volume_comes_and_goes_while_another_is_under_load() {
    let world = world();
    let daemon = world.start();
    let config = format!("# The cellar.\n{}# The end.\n", file(&world));
    std::fs::write(world.path("zcached.toml"), &config).expect("comments");
    let load = Load::on(&world, "disk");
    let image = image(1);
    let path = world.origin("new").display().to_string();
    let answer =
        volume(&world, &["add", "new", "--origin", &path, "--size", "1 MiB", "nbd.description=guest"], 0);
    assert!(answer.contains("new is served"), "{answer}");
    let added = file(&world);
    assert!(added.starts_with("# The cellar.\n[cache]") && added.ends_with("# The end.\n"), "{added}");
    assert!(volume(&world, &["add", "new", "--origin", &path], 2).contains("already"));
    fill(&world, "new", &image);
    holds(&world, "new", &image);
    load.end();

    daemon.kill9();
    let daemon = start_again(&world);
    holds(&world, "new", &image);
    world.loaded();
    let load = Load::on(&world, "disk");
    let answer: Value = serde_json::from_str(&volume(&world, &["remove", "new", "--json"], 0)).expect("JSON");
    assert_eq!(
        answer,
        json!({"volume": "new", "applied": ["volume \"new\""], "needs_restart": [], "lost_bytes": 0})
    );
    assert!(!is_served(&world, "new"));
    assert_eq!(file(&world), config, "the file is as it was");
    load.end();
    world.origin_is("new", &image);
    assert!(volume(&world, &["remove", "new"], 2).contains("no volume"));
    assert!(volume(&world, &["remove", "disk"], 2).contains("there is none"), "a start would refuse that");
    assert_eq!(daemon.terminate().code(), Some(0));
    assert_eq!(start_again(&world).terminate().code(), Some(0));
}

#[test]
fn the_same_name_and_number_serve_the_other_origin() {
    let world = world();
    let daemon = world.start();
    let images = [image(1), image(2), image(3), image(4)];
    let number =
        |world: &World| World::volume_of(&world.status(), "vm").expect("served")["info"]["id"].clone();
    let mut numbers = Vec::new();
    for (round, image) in images.iter().enumerate() {
        let path = origin(&world, &format!("origin{round}"), image);
        volume(&world, &["add", "vm", "--origin", &path], 0);
        numbers.push(number(&world));
        for _ in 0..2 {
            holds(&world, "vm", image);
        }
        world.inserted();
        alone(&world);
        if round + 1 < images.len() {
            volume(&world, &["remove", "vm"], 0);
        }
    }
    assert!(numbers.iter().all(|number| *number == numbers[0]), "{numbers:?}");
    daemon.kill9();
    let daemon = start_again(&world);
    world.loaded();
    holds(&world, "vm", &images[3]);
    alone(&world);
    volume(&world, &["remove", "vm"], 0);
    assert_eq!(daemon.terminate().code(), Some(0));
    // By hand, with a start: nothing is known of the name any more.
    let path = world.origin("origin0").display().to_string();
    let text =
        file(&world).replace("[nbd]", &format!("[[volume]]\nname = \"vm\"\norigin = \"{path}\"\n[nbd]"));
    std::fs::write(world.path("zcached.toml"), text).expect("an edit");
    let daemon = start_again(&world);
    world.loaded();
    holds(&world, "vm", &images[0]);
    assert_eq!(daemon.terminate().code(), Some(0));
}

#[test]
fn a_daemon_that_is_killed_while_a_volume_goes_serves_nothing_old() {
    let world = world();
    let mut daemon = world.start();
    let (old, new) = (image(1), image(2));
    let paths = [origin(&world, "old", &old), origin(&world, "other", &new)];
    for looks in [0, 1, 2, 4, 8] {
        volume(&world, &["add", "vm", "--origin", &paths[0]], 0);
        for _ in 0..2 {
            holds(&world, "vm", &old);
        }
        world.inserted();
        alone(&world);
        let mut removal = std::process::Command::new(zc_tests::program("zcctl"));
        removal.args(["volume", "remove", "vm", "--socket"]).arg(world.control_socket());
        let mut removal = removal.spawn().expect("zcctl");
        for _ in 0..looks {
            let _time_passes = world.stats();
        }
        daemon.kill9();
        let _killed_or_not = removal.wait().expect("zcctl ends");
        daemon = start_again(&world);
        world.loaded();
        if is_served(&world, "vm") {
            holds(&world, "vm", &old);
            alone(&world);
            volume(&world, &["remove", "vm"], 0);
        }
        volume(&world, &["add", "vm", "--origin", &paths[1]], 0);
        holds(&world, "vm", &new);
        alone(&world);
        volume(&world, &["remove", "vm"], 0);
    }
    assert_eq!(daemon.terminate().code(), Some(0));
}

#[test]
fn a_volume_in_use_stays_and_dirty_data_goes_to_the_origin_first() {
    let mut world = world();
    world.volumes.push((
        "back".to_owned(),
        MIB,
        "mode = \"write-back\"\nmax_dirty_age = \"24 h\"\n".to_owned(),
    ));
    let daemon = world.start();
    let image = image(1);
    let mut client = world.connect("back");
    client.write(0, &image).expect("write");
    client.flush().expect("flush");
    let before = file(&world);
    let answer = volume(&world, &["remove", "back"], 2);
    assert!(answer.contains("clients of volume \"back\" are connected: user "), "{answer}");
    // By the socket alone it is no other: the rest of a reload takes effect.
    let without = before.split("[[volume]]\nname = \"back\"").next().expect("text").to_owned();
    let tail = &before[before.find("[nbd]").expect("a section")..];
    let edited = format!("{without}{tail}[log]\nlevel = \"debug\"\n");
    std::fs::write(world.path("zcached.toml"), &edited).expect("an edit");
    let answer = world.control(&json!({ "cmd": "reload" }));
    assert_eq!(answer["applied"], json!(["log.level"]), "{answer}");
    let why = answer["needs_restart"][0].as_str().unwrap_or_default().to_owned();
    assert!(why.starts_with("volume \"back\" (clients are connected, user "), "{answer}");
    same(&client.read(0, BYTES).expect("read"), &image, "it is served");
    drop(client);
    alone(&world);
    let answer = world.control(&json!({ "cmd": "reload" }));
    assert!(answer["needs_restart"][0].to_string().contains("1048576 bytes of dirty data"), "{answer}");
    assert_eq!(world.counter("destaged_bytes"), 0, "nothing was brought to the origin unasked");

    // The file contains a change that the daemon could not make: it is left in place.
    std::fs::write(world.path("zcached.toml"), &before).expect("back");
    assert_eq!(world.control(&json!({ "cmd": "reload" }))["needs_restart"], json!([]));
    let answer = volume(&world, &["remove", "back"], 0);
    assert!(answer.contains("written to the origin") && answer.contains("back is removed"), "{answer}");
    world.origin_is("back", &image);
    assert!(!file(&world).contains("back.img"));
    assert_eq!(daemon.terminate().code(), Some(0));
}

#[test]
fn what_force_loses_is_said_and_does_not_come_back() {
    let world = world();
    let daemon = world.start();
    let path = origin(&world, "back", &vec![0; BYTES]);
    let add = ["add", "back", "--origin", &path, "--mode", "write-back", "max_dirty_age=24 h"];
    volume(&world, &add, 0);
    let image = image(1);
    fill(&world, "back", &image);
    alone(&world);
    let answer = volume(&world, &["remove", "back", "--force"], 0);
    assert!(answer.contains("(1048576 bytes) that only the cache had are lost"), "{answer}");
    world.origin_is("back", &vec![0; BYTES]);
    volume(&world, &add, 0);
    holds(&world, "back", &vec![0; BYTES]);
    alone(&world);
    daemon.kill9();
    let daemon = start_again(&world);
    world.loaded();
    holds(&world, "back", &vec![0; BYTES]);
    assert_eq!(world.status()["unserved_dirty"], json!([]));
    fill(&world, "back", &image);
    daemon.kill9();
    let daemon = start_again(&world);
    holds(&world, "back", &image);
    assert_eq!(daemon.terminate().code(), Some(0));
}

#[test]
fn settings_change_in_the_file_and_at_once_or_after_a_restart() {
    let world = world();
    let daemon = world.start();
    let answer = volume(&world, &["set", "disk", "mode=write-back", "nbd.description=the disk"], 0);
    assert!(answer.contains("in force: mode, nbd.description"), "{answer}");
    assert_eq!(World::volume_of(&world.status(), "disk").expect("served")["info"]["mode"], "write-back");
    let answer = volume(&world, &["set", "disk", "direct=true", "max_dirty_age=9 s"], 1);
    assert!(answer.contains("in force: max_dirty_age\nneeds a restart: volume \"disk\": direct"), "{answer}");
    let before = file(&world);
    for (given, why) in [
        (["set", "disk", "mode=write-behind"], "is not one of"),
        (["set", "disk", "modus=write-back"], "no such key"),
        (["set", "disk", "origin=/tmp/x"], "zcctl volume remove disk"),
        (["set", "floppy", "mode=write-back"], "no volume \"floppy\""),
        (["add", "x", "--origin=/nonexistent/x"], "No such file"),
    ] {
        let answer = volume(&world, &given, 2);
        assert!(answer.contains(why), "{given:?}: {answer}");
    }
    assert_eq!(file(&world), before, "what is refused is not written");
    std::fs::write(world.path("zcached.toml"), format!("{before}[log]\nlevel = \"debug\"\n"))
        .expect("an edit");
    let answer = volume(&world, &["set", "disk", "mode=write-through"], 2);
    assert!(answer.contains("changes that the daemon has not read: log.level"), "{answer}");
    assert_eq!(world.control(&json!({ "cmd": "reload" }))["ok"], true);
    volume(&world, &["set", "disk", "mode=write-through"], 0);

    let shown: Value = serde_json::from_str(&volume(&world, &["show", "disk", "--json"], 0)).expect("JSON");
    let settings = shown["settings"].as_array().expect("a list");
    let of = |key: &str| settings.iter().find(|setting| setting["key"] == key).expect("a setting").clone();
    assert_eq!(of("mode"), json!({"key": "mode", "value": "\"write-through\"", "live": true}));
    assert_eq!(of("dedup_domain")["live"], false);
    let shown = volume(&world, &["show", "disk"], 0);
    assert!(shown.contains("write-through") && shown.contains("after a restart"), "{shown}");
    assert!(volume(&world, &["show", "floppy"], 2).contains("no volume"));
    let listed = volume(&world, &["list", "-o", "name,state,mode", "--no-headings"], 0);
    assert_eq!(listed, "disk\tserved\twrite-through\n");
    assert!(volume(&world, &["list"], 0).contains("disk"));
    assert_eq!(daemon.terminate().code(), Some(0));
    assert_eq!(start_again(&world).terminate().code(), Some(0));
}
