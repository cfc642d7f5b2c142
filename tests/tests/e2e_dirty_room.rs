//! Space for dirty data: an origin without space, or a slow one, stops its own volume alone, until a discard frees
//! space.

#![expect(clippy::expect_used, reason = "a test; what fails here is a failure")]

use serde_json::Value;
use zc_engine::NbdClient;
use zc_tests::{BlockKind, DataGen, FilteredFile, MIB, Mount, World, same};

const BLOCK: u64 = 8192;

/// A cache of 64 MiB with small units. Volumes follow.
fn world() -> World {
    let mut world = World::new(64, 16);
    world.cache.push_str("weu_size = \"256 KiB\"\n");
    world.volumes.clear();
    world
}

fn write_back(lines: &str) -> String {
    format!("mode = \"write-back\"\nfull_wait = \"500 ms\"\n{lines}")
}

/// Content that nothing compresses.
fn piece(number: u64) -> Vec<u8> {
    DataGen::new(number, 1 << 20).block(BlockKind::Incompressible, 0)
}

fn dirty(world: &World, volume: &str) -> Value {
    world.stats()["dirty"][volume].clone()
}

/// Writes MiB by MiB until a write is refused; how many were not. Flushes before each.
fn fill(client: &mut NbdClient, mibs: u64) -> u64 {
    for number in 0..mibs {
        if let Err(error) = client.write(number * MIB, &piece(number)) {
            let said = error.to_string();
            assert!(said.to_lowercase().contains("space") || said.contains("ENOSPC"), "{said}");
            return number;
        }
        client.flush().expect("flush");
    }
    panic!("{mibs} MiB were taken in");
}

/// Overwrites a volume's own blocks, flushes, and compares. Without shares of the space this does not end.
fn keeps_writing(world: &World, volume: &str, seed: u64) {
    let mut client = world.connect(volume);
    for round in 0..200_u64 {
        let block = DataGen::new(seed + round, 8192).block(BlockKind::Incompressible, 0);
        let at = round * 7 % 64 * BLOCK;
        client.write(at, &block).expect("the neighbour's write");
        if round % 16 == 0 {
            client.flush().expect("the neighbour's flush");
        }
        same(&client.read(at, 8192).expect("the neighbour's read"), &block, "what the neighbour wrote");
    }
}

/// Returns the kinds of present reasons, with their volumes.
fn reasons(world: &World) -> Vec<(String, String)> {
    let status = world.status();
    let reasons = status["verdict"]["reasons"].as_array().expect("a list").clone();
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    reasons.iter().map(|reason| (text(&reason["kind"]), text(&reason["volume"]))).collect()
}

/// Fills the volume `thin`, whose origin has less space than the volume; a neighbour is served; discards free space.
fn fills_up_and_goes_on(world: &World, mibs: u64) {
    let daemon = world.start();
    let mut client = world.connect("thin");
    let taken = fill(&mut client, mibs);
    assert!(dirty(world, "thin")["no_space"] == true, "{}", dirty(world, "thin"));
    assert!(reasons(world).contains(&("origin-full".to_owned(), "thin".to_owned())), "{:?}", reasons(world));
    let reason =
        world.reason("origin-full").of(&["has no space for", "is kept in the cache, reads continue"]);
    reason.advises("discard in the volume (fstrim), which goes to the origin at once");
    keeps_writing(world, "good", 1_000);
    // It is refused again, and acknowledged writes are intact.
    assert!(client.write(taken * MIB, &piece(taken)).is_err());
    for number in 0..taken {
        let found = client.read(number * MIB, 1 << 20).expect("read");
        same(&found, &piece(number), "what was acknowledged");
    }
    // Clean and dirty ranges alike, and beside a waiting write.
    let kept = taken - 4..taken;
    client.trim(0, kept.start * MIB).expect("a discard is carried out");
    client.flush().expect("flush");
    world.stats_until("the origin has space", |stats| {
        stats["dirty"]["thin"]["no_space"] == false && stats["dirty"]["thin"]["waiting_writes"] == 0
    });
    client.write(taken * MIB, &piece(taken)).expect("a write is taken in again");
    client.flush().expect("flush");
    for volume in ["thin", "good"] {
        let output = world.zcctl_output(&["flush", volume]);
        assert_eq!(output.status.code(), Some(0), "{}", String::from_utf8_lossy(&output.stderr));
    }
    assert_eq!(dirty(world, "thin")["bytes"], 0);
    // The writes that failed are incidents of their own.
    world.reason("origin-errors").run(world, "zcctl clear thin");
    world.is_healthy();
    daemon.kill9();
    let daemon = world.start();
    let mut client = world.connect("thin");
    for number in kept.chain([taken]) {
        let found = client.read(number * MIB, 1 << 20).expect("read");
        same(&found, &piece(number), "what was kept");
    }
    let zeros = client.read(0, 1 << 20).expect("read");
    assert!(zeros.iter().all(|byte| *byte == 0), "what was discarded");
    assert_eq!(daemon.terminate().code(), Some(0));
}

#[test]
fn a_full_disk_under_an_origin_stops_its_own_volume_alone_until_something_is_discarded() {
    let mut world = world();
    let mount = Mount::new(&["-t", "tmpfs", "-o", "size=12m", "none"], world.path("small"));
    let origin = mount.path().join("thin.img");
    let lines = format!("origin = \"{}\"\ncreate_size = \"96 MiB\"\ndirect = false\n", origin.display());
    world.volumes.push(("thin".to_owned(), 96 * MIB, write_back(&lines)));
    world.volumes.push(("good".to_owned(), 16 * MIB, write_back("")));
    fills_up_and_goes_on(&world, 96);
}

#[test]
fn a_full_store_stops_its_own_volume_alone_until_something_is_discarded() {
    let mut world = world();
    world.add_store("128 MiB");
    world.add_thin("thin", 1024, &write_back(""));
    world.volumes.push(("good".to_owned(), 16 * MIB, write_back("")));
    fills_up_and_goes_on(&world, 400);
}

#[test]
fn one_volume_of_a_full_store_is_freed_by_a_discard_without_losing_anything() {
    let mut world = world();
    world.add_store("128 MiB");
    world.add_thin("thin", 1024, &write_back(""));
    let daemon = world.start();
    let mut client = world.connect("thin");
    let taken = fill(&mut client, 400);
    client.trim(0, (taken - 2) * MIB).expect("a discard is carried out");
    client.flush().expect("flush");
    assert_eq!(world.zcctl_output(&["flush", "thin"]).status.code(), Some(0));
    for number in taken - 2..taken {
        same(&client.read(number * MIB, 1 << 20).expect("read"), &piece(number), "what was kept");
    }
    assert_eq!(daemon.terminate().code(), Some(0));
}

#[test]
fn a_volume_whose_origin_does_not_answer_or_refuses_leaves_its_neighbour_room() {
    for hangs in [true, false] {
        let mut world = world();
        let behind = world.path("behind.img");
        std::fs::write(&behind, vec![0; 64 << 20]).expect("cannot write the image");
        let slow = FilteredFile::failing_writes(&world, &behind);
        world.volumes.push(("slow".to_owned(), 64 * MIB, write_back(&slow.as_origin())));
        world.volumes.push(("good".to_owned(), 16 * MIB, write_back("")));
        let daemon = world.start();
        if !hangs {
            slow.fail(true);
        }
        let hanging = hangs.then(|| slow.hang());
        let mut client = world.connect("slow");
        let filling = std::thread::spawn(move || {
            (0..64).all(|number| client.write(number * MIB, &piece(number)).is_ok())
        });
        world.stats_until("a write waits", |stats| stats["dirty"]["slow"]["waiting_writes"] != 0);
        keeps_writing(&world, "good", 5_000);
        if !hangs {
            let reason = world
                .reason("writes-wait")
                .of(&["wait for space for dirty data", "other volumes have space"]);
            reason.advises(&format!("check {}", slow.path().display()));
            slow.fail(false);
        }
        drop(hanging);
        assert!(filling.join().expect("the client"), "all is written when the origin goes on");
        assert_eq!(world.zcctl_output(&["flush", "slow"]).status.code(), Some(0));
        world.is_healthy();
        assert_eq!(daemon.terminate().code(), Some(0));
    }
}
