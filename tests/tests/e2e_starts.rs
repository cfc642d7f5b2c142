//! Starts on a cache that is damaged, and starts that are refused.

#![expect(clippy::expect_used, reason = "a test; what fails here is a failure")]

use std::fs::File;
use std::os::unix::fs::FileExt as _;

use zc_engine::NbdClient;
use zc_format::{Access, BLOCK, Superblock, VOLUME_TABLE_BYTES};
use zc_tests::{Daemon, DataGen, FilteredFile, MIB, Mount, World, bounded, program, read_file, run_ok, same};

const CACHE_MIB: u64 = 32;
const VOLUME_MIB: u64 = 16;

fn image(seed: u64) -> Vec<u8> {
    DataGen::new(seed, 8192).mixed(usize::try_from(VOLUME_MIB << 7).expect("small"))
}

fn cache(world: &World) -> File {
    File::options().read(true).write(true).open(world.cache_file()).expect("the cache is there")
}

fn overwrite(world: &World, offset: u64, len: u64) {
    let bytes = vec![0x5a; usize::try_from(len).expect("small")];
    cache(world).write_all_at(&bytes, offset).expect("cannot damage the cache");
}

fn damage_tables(world: &World) {
    let bytes = read_file(&world.cache_file());
    let superblock = Superblock::decode_for(&bytes[..BLOCK], 0, Access::Read).expect("it is a cache");
    for offset in superblock.geometry.volume_table {
        overwrite(world, offset, VOLUME_TABLE_BYTES);
    }
}

fn damage_superblocks(world: &World) {
    for offset in Superblock::offsets(CACHE_MIB * MIB) {
        overwrite(world, offset + 100, 8);
    }
}

fn fill_with_garbage(world: &World) {
    overwrite(world, 0, CACHE_MIB * MIB);
}

fn truncate(world: &World) {
    cache(world).set_len(8 * MIB).expect("cannot truncate the cache");
}

fn truncate_to_nothing(world: &World) {
    cache(world).set_len(0).expect("cannot truncate the cache");
}

const DAMAGES: [fn(&World); 5] =
    [damage_tables, damage_superblocks, fill_with_garbage, truncate, truncate_to_nothing];

#[test]
fn a_damaged_cache_without_dirty_data_costs_speed_only() {
    for (number, damage) in DAMAGES.into_iter().enumerate() {
        let mut world = World::new(CACHE_MIB, VOLUME_MIB);
        world.volumes.push(("back".to_owned(), MIB, "mode = \"write-back\"\n".to_owned()));
        let mut expected = image(1);
        let daemon = world.start();
        let mut client = world.connect("disk");
        client.write(0, &expected).expect("write");
        client.flush().expect("flush");
        let mut client = world.connect("back");
        client.write(0, &[8; 65536]).expect("write");
        client.flush().expect("flush");
        assert!(world.zcctl_output(&["stop", "--flush"]).status.success());
        assert_eq!(daemon.wait().code(), Some(0));
        damage(&world);
        let before = read_file(&world.cache_file());
        let daemon = world.start();
        let status = world.status();
        assert!(status["verdict"]["state"] == "DEGRADED", "damage {number}: {status}");
        assert!(status["cache"]["healthy"] == false, "damage {number}: {status}");
        let mut client = world.connect("disk");
        same(&client.read(0, expected.len()).expect("read"), &expected, "the volume");
        expected[..4096].fill(3);
        client.write(0, &expected[..4096]).expect("write");
        client.flush().expect("flush");
        let found = world.connect("back").read(0, 65536).expect("read");
        same(&found, &[8; 65536], "the write-back volume");
        assert_eq!(daemon.terminate().code(), Some(0));
        world.origin_is("disk", &expected);
        assert!(read_file(&world.cache_file()) == before, "damage {number}: the cache was changed");
    }
}

#[test]
fn a_damaged_cache_that_may_have_dirty_data_is_refused() {
    for damage in DAMAGES {
        let mut world = World::new(CACHE_MIB, VOLUME_MIB);
        world.cache.push_str("destage_idle = \"1 h\"\n");
        world.volumes[0].2 = "mode = \"write-back\"\nmax_dirty_age = \"24 h\"\n".to_owned();
        let daemon = world.start();
        let mut client = world.connect("disk");
        client.write(0, &[5; 65536]).expect("write");
        client.flush().expect("flush");
        daemon.kill9();
        damage(&world);
        let before = read_file(&world.cache_file());
        let said = world.refused(&[]);
        assert!(said.contains("dirty data") && said.contains("--drop-dirty disk"), "{said}");
        assert!(read_file(&world.cache_file()) == before, "the cache was changed");
    }
}

fn away(world: &World, volume: &str) {
    let origin = world.origin(volume);
    std::fs::rename(&origin, origin.with_extension("away")).expect("the origin goes");
    std::fs::create_dir(&origin).expect("nothing that can be opened is in its place");
}

fn back(world: &World, volume: &str) {
    let origin = world.origin(volume);
    std::fs::remove_dir(&origin).expect("it was ours");
    std::fs::rename(origin.with_extension("away"), &origin).expect("the origin is back");
}

#[test]
fn an_origin_that_cannot_be_opened_takes_only_its_volume_out_of_service() {
    let mut world = World::new(CACHE_MIB, VOLUME_MIB);
    world.cache.push_str("dirty_high = \"90 %\"\ndirty_low = \"90 %\"\ndestage_idle = \"1 h\"\n");
    world.volumes.push((
        "back".to_owned(),
        MIB,
        "mode = \"write-back\"\nmax_dirty_age = \"24 h\"\n".to_owned(),
    ));
    let daemon = world.start();
    let mut client = world.connect("back");
    client.write(0, &[8; 65536]).expect("write");
    client.flush().expect("flush");
    drop(client);
    daemon.kill9();
    away(&world, "back");

    let said = world.refused(&["--drop-dirty", "back"]);
    assert!(said.contains("back"), "an answer needs its origin: {said}");
    // Three times half of the cache: dirty data of an absent volume frees no space.
    for round in 0..3 {
        let daemon = world.start();
        let status = world.status();
        assert_eq!(status["verdict"]["state"], "FAILED", "{status}");
        assert_eq!(status["absent"][0]["name"], "back", "{status}");
        let reason = &status["verdict"]["reasons"][0];
        assert!(
            reason["volume"] == "back"
                && reason["what"].as_str().is_some_and(|what| what.contains("back.img"))
        );
        assert!(world.zcctl_output(&["status"]).status.code() == Some(3), "zcctl tells by its exit status");
        let log = std::fs::read_to_string(daemon.log_path()).expect("there is a log");
        let is_told = log.contains("volume \"back\" is not served") && log.contains("serving disk at");
        assert!(is_told, "{log}");
        let expected = image(round);
        let mut client = world.connect("disk");
        client.write(0, &expected).expect("write");
        client.flush().expect("flush");
        same(&client.read(0, expected.len()).expect("read"), &expected, "the volume that is served");
        drop(client);
        assert_eq!(daemon.terminate().code(), Some(0));
    }

    back(&world, "back");
    let daemon = world.start();
    let status = world.status();
    assert_eq!(status["absent"].as_array().map(Vec::len), Some(0));
    let volumes = status["volumes"].as_array().expect("a list");
    let returned = volumes.iter().find(|volume| volume["name"] == "back").expect("it is served");
    assert!(returned["info"]["cold_reason"].is_string(), "its clean contents are not believed: {returned}");
    same(&world.connect("back").read(0, 65536).expect("read"), &[8; 65536], "dirty data of the volume");
    assert!(world.zcctl_output(&["flush", "back"]).status.success());
    assert_eq!(daemon.terminate().code(), Some(0));
    assert!(read_file(&world.origin("back"))[..65536] == [8; 65536], "the origin has it");
}

/// A world with a volume in write-back whose data is on the cache alone. Its last daemon was killed.
fn with_dirty_data() -> World {
    let mut world = World::new(CACHE_MIB, VOLUME_MIB);
    world.cache.push_str("destage_idle = \"1 h\"\n");
    world.volumes.push((
        "back".to_owned(),
        MIB,
        "mode = \"write-back\"\nmax_dirty_age = \"24 h\"\n".to_owned(),
    ));
    let daemon = world.start();
    write_back(&world, 8);
    daemon.kill9();
    world
}

fn write_back(world: &World, byte: u8) {
    let mut client = world.connect("back");
    client.write(0, &[byte; 65536]).expect("write");
    client.flush().expect("flush");
}

#[test]
fn a_volume_is_served_again_when_its_origin_is_back() {
    let world = with_dirty_data();
    away(&world, "back");
    let daemon = world.start();
    assert_eq!(world.status()["absent"][0]["name"], "back");
    assert_eq!(world.connect("").size_bytes(), VOLUME_MIB * MIB, "the default export is the first volume");
    back(&world, "back");
    let returned = world.serves("back");
    assert!(returned["info"]["cold_reason"].is_string(), "its clean contents are not believed: {returned}");
    let status = world.status();
    assert_eq!(status["absent"].as_array().map(Vec::len), Some(0), "{status}");
    let mut client = world.connect("back");
    same(&client.read(0, 65536).expect("read"), &[8; 65536], "dirty data of the volume");
    client.write(65536, &[9; 4096]).expect("write");
    client.flush().expect("flush");
    daemon.kill9();

    let daemon = world.start();
    same(&world.connect("back").read(0, 65536).expect("read"), &[8; 65536], "after another crash");
    assert!(world.zcctl_output(&["flush", "back"]).status.success());
    assert_eq!(daemon.terminate().code(), Some(0));
    let origin = read_file(&world.origin("back"));
    assert!(origin[..65536] == [8; 65536] && origin[65536..69632] == [9; 4096], "the origin has it");
}

#[test]
fn an_old_image_of_the_cache_is_doubted_for_a_volume_that_comes_back_later() {
    let world = with_dirty_data();
    let old = read_file(&world.cache_file());
    let daemon = world.start();
    write_back(&world, 9);
    assert_eq!(daemon.terminate().code(), Some(0));
    std::fs::write(world.cache_file(), old).expect("an old image takes the cache's place");
    away(&world, "back");
    let daemon = world.start();
    back(&world, "back");
    let returned = world.serves("back");
    assert!(returned["info"]["cold_reason"].is_string(), "its clean contents are not believed: {returned}");
    // The list of volumes may name it a moment before the manager has it.
    world.status_until("its newest data is elsewhere", |status| {
        World::volume_of(status, "back").is_some_and(|volume| volume["dirty"]["fenced"] == true)
    });
    world.connect("back").read(0, 65536).expect_err("a read of what an older state of the cache has");
    assert_eq!(daemon.terminate().code(), Some(0));
}

#[test]
fn an_origin_that_does_not_answer_holds_up_neither_the_start_nor_other_volumes() {
    let mut world = World::new(CACHE_MIB, VOLUME_MIB);
    let behind = world.path("behind.img");
    File::create(&behind).and_then(|file| file.set_len(MIB)).expect("cannot make the origin");
    let origin = FilteredFile::failing(&world, &behind);
    world.volumes.push(("far".to_owned(), MIB, origin.as_origin()));
    let hanging = origin.hang();
    let daemon = world.start();
    let absent = world.status()["absent"][0].clone();
    assert!(absent["name"] == "far" && absent["why"].to_string().contains("does not answer"), "{absent}");
    world.connect("disk").write(0, &[7; 4096]).expect("the other volume is served");
    drop(hanging);
    let _served = world.serves("far");
    world.connect("far").write(0, &[7; 4096]).expect("write");
    assert_eq!(daemon.terminate().code(), Some(0));
}

#[test]
fn a_changed_origin_takes_only_its_volume_out_of_service() {
    let world = with_dirty_data();
    let origin = world.origin("back");
    let file = File::options().write(true).open(&origin).expect("the origin is there");
    file.set_len(2 * MIB).expect("another program changes it");
    let daemon = world.start();
    let status = world.status();
    let why = status["absent"][0]["why"].to_string();
    assert!(status["absent"][0]["name"] == "back" && why.contains("--trust-dirty back"), "{status}");
    world.connect("disk").write(0, &[7; 4096]).expect("the other volume is served");
    let answer = world.control(&serde_json::json!({ "cmd": "reload" }));
    assert!(answer["ok"] == true && answer["needs_restart"][0].to_string().contains("back"), "{answer}");
    file.set_len(MIB).expect("it is as it was");
    assert_eq!(world.serves("back")["dirty"]["fenced"], false);
    same(&world.connect("back").read(0, 65536).expect("read"), &[8; 65536], "dirty data of the volume");
    assert_eq!(daemon.terminate().code(), Some(0));
}

#[test]
fn an_origin_that_was_served_before_is_not_made_anew() {
    for lose_the_cache in [false, true] {
        let mut world = World::new(CACHE_MIB, VOLUME_MIB);
        world.cache.push_str("wait_max = \"0 s\"\n");
        world.volumes.push(("other".to_owned(), MIB, String::new()));
        let daemon = world.start();
        let mut client = world.connect("disk");
        client.write(0, &[8; 4096]).expect("write");
        client.flush().expect("flush");
        drop(client);
        assert_eq!(daemon.terminate().code(), Some(0));
        let (origin, aside) = (world.origin("disk"), world.path("aside.img"));
        std::fs::rename(&origin, &aside).expect("the origin goes");
        if lose_the_cache {
            std::fs::remove_file(world.cache_file()).expect("the cache goes");
        }
        // The second start has the same information as the first.
        for _ in 0..2 {
            let daemon = world.start();
            let status = world.status();
            let why = status["absent"][0]["why"].to_string();
            assert!(status["absent"][0]["name"] == "disk" && why.contains("is missing"), "{status}");
            assert!(!origin.exists(), "an empty one was made in its place");
            let default = NbdClient::connect(&world.uri("").parse().expect("the URI is well formed"));
            assert!(default.is_err(), "who names no export gets no other volume");
            assert_eq!(daemon.terminate().code(), Some(0));
        }
        std::fs::rename(&aside, &origin).expect("the origin is back");
        let daemon = world.start();
        same(&world.connect("disk").read(0, 4096).expect("read"), &[8; 4096], "the volume");
        assert_eq!(daemon.terminate().code(), Some(0));
    }
}

#[test]
fn a_read_only_file_system_costs_speed_or_one_volume() {
    let mut world = World::new(CACHE_MIB, VOLUME_MIB);
    let folder = world.path("device");
    std::fs::create_dir(&folder).expect("cannot make a folder");
    let mount = Mount::new(&["--bind", folder.to_str().expect("a path")], world.path("mounted"));
    let remount = |how: &str| {
        run_ok(bounded("mount").args(["-o", &format!("remount,bind,{how}")]).arg(mount.path()));
    };
    world.cache_path = mount.path().join("cache.img");
    let beside = mount.path().join("beside.img");
    world.volumes.push((
        "beside".to_owned(),
        MIB,
        format!("origin = \"{}\"\ncreate_size = {MIB}\n", beside.display()),
    ));
    let daemon = world.start();
    let expected = image(1);
    let mut client = world.connect("disk");
    client.write(0, &expected).expect("write");
    client.flush().expect("flush");
    drop(client);
    assert_eq!(daemon.terminate().code(), Some(0));

    remount("ro");
    let daemon = world.start();
    let status = world.status();
    assert!(status["cache"]["fault"].to_string().contains("Read-only file system"), "{status}");
    assert_eq!(status["absent"][0]["name"], "beside", "{status}");
    same(&world.connect("disk").read(0, expected.len()).expect("read"), &expected, "the volume");
    assert_eq!(daemon.terminate().code(), Some(0));

    remount("rw");
    let daemon = world.start();
    assert_eq!(world.status()["absent"].as_array().map(Vec::len), Some(0));
    assert_eq!(daemon.terminate().code(), Some(0));
}

#[test]
fn no_cache_takes_the_place_of_one_that_has_dirty_data_of_a_volume_without_origin() {
    let remove: fn(&World) = |world| std::fs::remove_file(world.cache_file()).expect("the cache goes");
    let cases = [(remove, false), (truncate_to_nothing as fn(&World), false), (remove, true)];
    for (number, (lose, moves)) in cases.into_iter().enumerate() {
        let mut world = World::new(CACHE_MIB, VOLUME_MIB);
        world.cache.push_str("wait_max = \"0 s\"\n");
        world.volumes.push((
            "back".to_owned(),
            MIB,
            "mode = \"write-back\"\nmax_dirty_age = \"24 h\"\n".to_owned(),
        ));
        let daemon = world.start();
        let mut client = world.connect("back");
        client.write(0, &[8; 65536]).expect("write");
        client.flush().expect("flush");
        drop(client);
        daemon.kill9();
        let cache = read_file(&world.cache_file());
        lose(&world);
        away(&world, "back");
        let lines = world.volumes[1].2.clone();
        if moves {
            // A device has another name by now, and the configuration with it.
            let elsewhere = format!("origin = \"{}\"\n", world.path("elsewhere.img").display());
            std::fs::create_dir(world.path("elsewhere.img")).expect("nothing that can be opened");
            world.volumes[1].2.push_str(&elsewhere);
        }
        let daemon = world.start();
        let status = world.status();
        assert_eq!(status["absent"][0]["name"], "back", "case {number}: {status}");
        assert_eq!(status["cache"]["healthy"], false, "case {number}: {status}");
        let expected = image(1);
        let mut client = world.connect("disk");
        client.write(0, &expected).expect("write");
        client.flush().expect("flush");
        drop(client);
        assert_eq!(daemon.terminate().code(), Some(0));
        let is_made = std::fs::metadata(world.cache_file()).is_ok_and(|found| found.len() > 0)
            && read_file(&world.cache_file()).iter().any(|byte| *byte != 0);
        assert!(!is_made, "case {number}: a cache was made");

        std::fs::write(world.cache_file(), &cache).expect("the cache is back");
        back(&world, "back");
        if moves {
            world.volumes[1].2 = lines;
        }
        let daemon = world.start();
        same(&world.connect("back").read(0, 65536).expect("read"), &[8; 65536], "dirty data of the volume");
        same(
            &world.connect("disk").read(0, expected.len()).expect("read"),
            &expected,
            "what was written meanwhile",
        );
        assert_eq!(daemon.terminate().code(), Some(0));
    }
}

#[test]
fn a_reload_goes_on_without_a_missing_origin_and_takes_it_up_when_it_is_back() {
    let mut world = World::new(CACHE_MIB, VOLUME_MIB);
    world.volumes.push(("late".to_owned(), MIB, String::new()));
    std::fs::create_dir(world.origin("late")).expect("nothing that can be opened");
    let daemon = world.start();
    assert_eq!(world.status()["absent"][0]["name"], "late");

    world.volumes.push(("more".to_owned(), MIB, String::new()));
    let _config = world.configure();
    let reload = || world.control(&serde_json::json!({ "cmd": "reload" }));
    let answer = reload();
    assert_eq!(answer["applied"], serde_json::json!(["volume \"more\""]), "{answer}");
    let later = answer["needs_restart"][0].as_str().unwrap_or_default();
    assert!(later.contains("late") && later.contains("origin"), "{answer}");
    assert_eq!(world.status()["absent"][0]["name"], "late");

    std::fs::remove_dir(world.origin("late")).expect("it was ours");
    // Either the reload finds it first, or the daemon.
    assert_eq!(reload()["ok"], true);
    let _served = world.serves("late");
    assert_eq!(world.status()["absent"].as_array().map(Vec::len), Some(0));
    world.connect("late").write(0, &[7; 4096]).expect("write");
    assert_eq!(daemon.terminate().code(), Some(0));
}

#[test]
fn a_start_without_any_origin_is_refused() {
    let mut world = World::new(CACHE_MIB, VOLUME_MIB);
    world.volumes.push(("back".to_owned(), MIB, String::new()));
    for volume in ["disk", "back"] {
        std::fs::create_dir(world.origin(volume)).expect("nothing that can be opened");
    }
    let said = world.refused(&[]);
    assert!(said.contains("no volume can be served"), "{said}");
    assert!(!world.cache_file().exists(), "a refused start makes no cache");
}

#[test]
fn something_that_never_was_the_cache_is_not_served_without() {
    let world = World::new(CACHE_MIB, VOLUME_MIB);
    std::fs::write(world.cache_file(), vec![0x5a; 32 << 20]).expect("cannot write");
    let said = world.refused(&[]);
    assert!(said.contains("no cache but other data") && said.contains("zcctl format"), "{said}");
    assert!(!world.origin("disk").exists(), "a refused start makes no origin");
}

#[test]
fn a_refused_first_start_leaves_nothing_behind() {
    // The socket's folder does not exist; then, more connections than can be served.
    for wrong in ["unix_mode = \"0600\"\nconnections_max = 1000000\n", "listen = [\"203.0.113.1:10809\"]\n"] {
        let mut world = World::new(CACHE_MIB, VOLUME_MIB);
        world.nbd = wrong.to_owned();
        let config = world.configure();
        let text = std::fs::read_to_string(&config).expect("it is there");
        let text = if wrong.starts_with("listen") { text.replacen("listen = []\n", "", 1) } else { text };
        std::fs::write(&config, text).expect("cannot write");
        let mut daemon = bounded("env");
        let output = daemon.arg(program("zcached")).arg("--config").arg(&config).output();
        let output = output.expect("cannot start zcached");
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(!output.status.success(), "{said}");
        assert!(!world.cache_file().exists(), "a cache was left behind: {said}");
        assert!(!world.origin("disk").exists(), "an origin was left behind: {said}");
    }
}

/// Fills a file system to the last byte.
fn fill(folder: &std::path::Path) {
    use std::io::Write as _;
    let mut file = File::create(folder.join("filler")).expect("there is room for a name");
    for len in [1 << 16, 512, 1] {
        while file.write_all(&vec![7; len]).is_ok() {}
    }
}

#[test]
fn a_full_file_system_under_the_state_directory_keeps_no_daemon_from_starting() {
    for mode in ["write-through", "write-back"] {
        let mut world = World::new(CACHE_MIB, VOLUME_MIB);
        world.volumes[0].2 = format!("mode = \"{mode}\"\n");
        let state = Mount::new(&["-t", "tmpfs", "-o", "size=4m", "tmpfs"], world.path("state"));
        let daemon = world.start();
        world.connect("disk").write(0, &[7; 65536]).expect("write");
        fill(state.path());
        assert!(world.zcctl_output(&["stop", "--flush"]).status.success());
        assert_eq!(daemon.wait().code(), Some(0), "{mode}: a stop records its end");
        for kills in [false, true, false] {
            let daemon = world.start();
            let client = &mut world.connect("disk");
            assert!(client.read(0, 65536).expect("read") == [7; 65536], "{mode}");
            client.write(0, &[7; 65536]).expect("write");
            client.flush().expect("flush");
            if kills {
                daemon.kill9();
            } else {
                assert_eq!(daemon.terminate().code(), Some(0), "{mode}");
            }
            fill(state.path());
        }
        let daemon = world.start();
        let status = world.status();
        assert!(World::volume_of(&status, "disk").is_some(), "{mode}: {status}");
        assert_eq!(daemon.terminate().code(), Some(0));
    }
}

/// Puts a copy of a volume's origin in its place, as a restore from a backup does.
fn restore(world: &World, volume: &str) {
    let (origin, copy) = (world.origin(volume), world.path("copy.img"));
    std::fs::copy(&origin, &copy).expect("cannot copy the origin");
    std::fs::rename(&copy, &origin).expect("the copy takes its place");
}

#[test]
fn an_origin_that_was_restored_is_served_cold_and_stops_no_daemon() {
    for kills in [false, true] {
        let mut world = World::new(CACHE_MIB, VOLUME_MIB);
        world.volumes.push(("other".to_owned(), VOLUME_MIB * MIB, String::new()));
        let daemon = world.start();
        for volume in ["disk", "other"] {
            world.connect(volume).write(0, &[7; 65536]).expect("write");
        }
        world.inserted();
        world.settled();
        if kills {
            daemon.kill9();
        } else {
            assert_eq!(daemon.terminate().code(), Some(0));
        }
        restore(&world, "disk");
        let file = std::fs::OpenOptions::new().write(true).open(world.origin("disk")).expect("the origin");
        std::os::unix::fs::FileExt::write_all_at(&file, &[8; 65536], 0).expect("it has other contents");
        assert!(checked(&world).0, "{}", checked(&world).1);
        let daemon = world.start();
        let status = world.status();
        let cold =
            |volume: &str| World::volume_of(&status, volume).expect("served")["info"]["cold_reason"].clone();
        assert!(cold("disk").to_string().contains("another file"), "{status}");
        assert_eq!(cold("other"), serde_json::Value::Null, "{status}");
        assert!(world.connect("disk").read(0, 65536).expect("read") == [8; 65536]);
        assert_eq!(daemon.terminate().code(), Some(0));
        // It is known from now on.
        let daemon = world.start();
        assert_eq!(
            World::volume_of(&world.status(), "disk").expect("served")["info"]["cold_reason"],
            serde_json::Value::Null
        );
        assert_eq!(daemon.terminate().code(), Some(0));
    }
}

#[test]
fn an_absent_origin_that_is_restored_is_served_and_dirty_data_is_never_mixed_up() {
    let mut world = World::new(CACHE_MIB, VOLUME_MIB);
    world.cache.push_str("destage_idle = \"1 h\"\n");
    world.volumes.push(("back".to_owned(), VOLUME_MIB * MIB, "mode = \"write-back\"\n".to_owned()));
    let daemon = world.start();
    for volume in ["disk", "back"] {
        world.connect(volume).write(0, &[7; 65536]).expect("write");
    }
    world.connect("back").flush().expect("flush");
    assert_eq!(daemon.terminate().code(), Some(0));
    let away = world.path("away.img");
    std::fs::rename(world.origin("disk"), &away).expect("the origin goes");
    let daemon = world.start();
    assert_eq!(world.status()["absent"][0]["name"], "disk");
    std::fs::copy(&away, world.path("copy.img")).expect("a backup");
    std::fs::rename(world.path("copy.img"), world.origin("disk")).expect("it is restored");
    let _served = world.serves("disk");
    assert!(world.connect("disk").read(0, 65536).expect("read") == [7; 65536]);
    assert_eq!(daemon.terminate().code(), Some(0));
    // A restored origin of a volume with dirty data is for the operator to decide.
    restore(&world, "back");
    let daemon = world.start();
    let why = world.status()["absent"][0]["why"].to_string();
    assert!(why.contains("--trust-dirty back") && why.contains("--drop-dirty back"), "{why}");
    assert_eq!(daemon.terminate().code(), Some(0));
    let daemon = world.start_with(&["--drop-dirty", "back"]);
    assert!(World::volume_of(&world.status(), "back").is_some());
    assert_eq!(daemon.terminate().code(), Some(0));
}

#[test]
fn one_volume_starts_cold_when_it_is_named() {
    let mut world = World::new(CACHE_MIB, VOLUME_MIB);
    world.volumes.push(("other".to_owned(), VOLUME_MIB * MIB, String::new()));
    let daemon = world.start();
    assert_eq!(daemon.terminate().code(), Some(0));
    let cases: [(&[&str], [bool; 2]); 4] = [
        (&["--cold", "disk"], [true, false]),
        (&["--cold=other"], [false, true]),
        (&["--cold", "disk", "--cold", "other"], [true, true]),
        (&["--cold"], [true, true]),
    ];
    for (arguments, expected) in cases {
        let daemon = world.start_with(arguments);
        let status = world.status();
        let is_cold = |volume: &str| {
            let volume = World::volume_of(&status, volume).expect("served");
            volume["info"]["cold_reason"].as_str().is_some_and(|reason| reason.contains("requested"))
        };
        assert_eq!(["disk", "other"].map(is_cold), expected, "{arguments:?}");
        assert_eq!(daemon.terminate().code(), Some(0));
    }
    let said = world.refused(&["--cold", "none"]);
    assert!(said.contains("\"none\"") && said.contains("disk"), "{said}");
}

/// Returns the output of `zcached check-config`, and `true` on success. It leaves everything unchanged.
fn checked(world: &World) -> (bool, String) {
    let listed = || {
        let entries = std::fs::read_dir(world.path("")).expect("there is a folder");
        let mut names: Vec<_> = entries.map(|entry| entry.expect("a name").file_name()).collect();
        names.sort();
        names
    };
    let config = world.configure();
    let before = (listed(), std::fs::read(world.cache_file()).ok());
    let mut check = bounded("env");
    let output =
        check.arg(program("zcached")).arg("check-config").arg(config).output().expect("cannot start zcached");
    assert!(before == (listed(), std::fs::read(world.cache_file()).ok()), "something was changed");
    let said = [output.stdout, output.stderr].concat();
    (output.status.success(), String::from_utf8_lossy(&said).into_owned())
}

#[test]
fn check_config_finds_what_a_start_refuses() {
    type Case = (&'static str, &'static str, fn(&mut World));
    let cases: [Case; 8] = [
        ("another layout", "was formatted with", |world| world.cache.push_str("extent_size = \"16 KiB\"\n")),
        ("no cache", "contains no cache", |world| overwrite(world, 0, CACHE_MIB * MIB)),
        ("no origin", "neither a regular file nor", |world| away(world, "disk")),
        ("no socket", "is not a socket", |world| {
            std::fs::write(world.path("control.sock"), "no socket").expect("a file in its place");
        }),
        ("a damaged state file", "damaged", |world| {
            for file in std::fs::read_dir(world.path("state")).expect("a folder") {
                std::fs::write(file.expect("a file").path(), "{").expect("cannot damage it");
            }
        }),
        ("a port in use", "cannot listen on 127.0.0.1:", |world| {
            let other = Box::leak(Box::new(std::net::TcpListener::bind("127.0.0.1:0").expect("a port")));
            world.nbd = format!("[metrics]\nlisten = \"{}\"\n", other.local_addr().expect("it has one"));
        }),
        ("an origin of no whole sectors", "truncate --size=%512", |world| {
            let origin = File::options().write(true).open(world.origin("disk")).expect("the origin");
            origin.set_len(VOLUME_MIB * MIB + 1).expect("longer");
        }),
        ("an address of another machine", "203.0.113.1", |world| {
            world.nbd = "[metrics]\nlisten = \"203.0.113.1:10810\"\n".to_owned();
        }),
    ];
    for (what, words, spoil) in cases {
        let mut world = World::new(CACHE_MIB, VOLUME_MIB);
        world.cache.push_str("required = true\nwait_max = \"0 s\"\n");
        assert!(checked(&world).0, "{what}: before the first start: {}", checked(&world).1);
        let daemon = world.start();
        let (is_fine, said) = checked(&world);
        assert!(
            is_fine && said.contains("in use by the running daemon"),
            "{what}: while the daemon runs: {said}"
        );
        assert_eq!(daemon.terminate().code(), Some(0));
        assert!(checked(&world).0, "{what}: after it: {}", checked(&world).1);
        spoil(&mut world);
        let (is_fine, said) = checked(&world);
        assert!(!is_fine && said.contains(words), "{what}: {said}");
        let mut daemon = bounded("env");
        let output = daemon.arg(program("zcached")).arg("--config").arg(world.configure()).output();
        assert!(!output.expect("cannot start zcached").status.success(), "{what}: a start is refused, too");
    }
}

/// A place that another program has is a mistake, also while the daemon of this configuration runs.
#[test]
fn check_config_tells_what_the_daemon_has_from_what_others_have() {
    let mut world = World::new(CACHE_MIB, VOLUME_MIB);
    let daemon = world.start();
    let other = std::net::TcpListener::bind("127.0.0.1:0").expect("a port");
    world.nbd = format!("[metrics]\nlisten = \"{}\"\n", other.local_addr().expect("it has one"));
    let (is_fine, said) = checked(&world);
    assert!(!is_fine && said.contains("cannot listen on 127.0.0.1:"), "{said}");
    assert!(said.contains("note: "), "what the daemon has is a note: {said}");
    assert_eq!(daemon.terminate().code(), Some(0));
    // A program that is no daemon has the control socket.
    world.nbd.clear();
    let _other = std::os::unix::net::UnixListener::bind(world.control_socket()).expect("a socket");
    let (is_fine, said) = checked(&world);
    assert!(!is_fine && said.contains("another server does already"), "{said}");
}

#[test]
fn an_origin_that_cannot_be_made_is_one_volumes_fault() {
    let mut world = World::new(CACHE_MIB, VOLUME_MIB);
    world.volumes.push(("none".to_owned(), MIB, String::new()));
    let config = world.configure();
    let text = std::fs::read_to_string(&config).expect("a configuration");
    let none = world.origin("none").display().to_string();
    std::fs::write(&config, text.replace(&none, "/proc/zcached-none.img")).expect("a configuration");
    let daemon = Daemon::start(&config);
    let absent = world.status()["absent"].clone();
    assert!(
        absent[0]["name"] == "none" && absent[0]["why"].as_str().is_some_and(|why| why.contains("/proc/")),
        "{absent}"
    );
    assert!(!world.serves("disk").is_null());
    assert_eq!(daemon.terminate().code(), Some(0));
}
