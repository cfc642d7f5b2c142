//! The cache moves to another device, or is recreated on its own, while clients are served: `zcctl cache replace` and
//! `zcctl cache resize`.

#![expect(clippy::expect_used, reason = "a test; what fails here is a failure")]

use std::fs::File;
use std::path::Path;
use std::process::Output;
use std::sync::atomic::{AtomicBool, Ordering};

use serde_json::{Value, json};
use zc_engine::{NbdClient, NbdRequest};
use zc_tests::{Daemon, DataGen, FilteredFile, MIB, World, read_file, same};

const VOLUME_MIB: u64 = 16;
const BLOCK: usize = 8192;

/// A world with an SSD and a new one, and the volume `disk`. In write-back it stays dirty until a command.
fn world(mode: &str) -> World {
    let mut world = World::new(48, VOLUME_MIB);
    world.cache.push_str(
        "weu_size = \"256 KiB\"\ndirty_high = \"90 %\"\ndirty_low = \"90 %\"\ndestage_idle = \"1 h\"\n",
    );
    world.volumes[0].2 = format!("mode = \"{mode}\"\nmax_dirty_age = \"24 h\"\n");
    device(&world.path("new"), 64);
    world
}

/// An empty device.
fn device(path: &Path, mib: u64) {
    let file = File::create(path).expect("cannot make a device");
    file.set_len(mib * MIB).expect("cannot size a device");
}

fn image(seed: u64) -> Vec<u8> {
    DataGen::new(seed, BLOCK).mixed(usize::try_from(VOLUME_MIB << 7).expect("small"))
}

fn write(client: &mut NbdClient, offset: usize, bytes: &[u8]) {
    client.write(u64::try_from(offset).expect("small"), bytes).expect("write");
    client.flush().expect("flush");
}

fn is(world: &World, expected: &[u8], what: &str) {
    same(&world.connect("disk").read(0, expected.len()).expect(what), expected, what);
}

fn replace(world: &World, device: &str, options: &[&str]) -> Output {
    let device = world.path(device).display().to_string();
    world.zcctl_output(&[&["cache", "replace", device.as_str()], options].concat())
}

fn said(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

fn cache_path(world: &World) -> Value {
    let status = world.status();
    assert_eq!(status["cache"]["healthy"], true, "{status}");
    status["cache"]["path"].clone()
}

fn path_of(world: &World, device: &str) -> Value {
    json!(world.path(device).display().to_string())
}

/// The text of the configuration, as it is now.
fn configuration(world: &World) -> String {
    std::fs::read_to_string(world.path("zcached.toml")).expect("the configuration can be read")
}

/// Starts the daemon with the configuration as it is.
fn start_again(world: &World) -> Daemon {
    Daemon::start(&world.path("zcached.toml"))
}

/// Ends the client of [`busy`], also if the test fails meanwhile.
struct Ends<'a>(&'a AtomicBool);

impl Drop for Ends<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// Does something while a client writes, flushes and reads without a pause, compares every byte, and sees no error. The
/// last 4 MiB of the volume are its.
fn busy(world: &World, bytes: &mut [u8], work: impl FnOnce()) {
    let done = AtomicBool::new(false);
    let mut client = world.connect("disk");
    let (first, blocks) = (bytes.len() - (4 << 20), 512_usize);
    std::thread::scope(|scope| {
        let load = scope.spawn(|| {
            let mut round = 0_usize;
            while !done.load(Ordering::Relaxed) || round < 64 {
                let at = first + round * 37 % blocks * BLOCK;
                let content = (round as u64).to_le_bytes().repeat(BLOCK / 8);
                client.write(at as u64, &content).expect("a write waits and succeeds");
                bytes[at..at + BLOCK].copy_from_slice(&content);
                if round.is_multiple_of(16) {
                    client.flush().expect("a flush waits and succeeds");
                }
                let at = first + round * 101 % blocks * BLOCK;
                let found = client.read(at as u64, BLOCK).expect("a read waits and succeeds");
                same(&found, &bytes[at..at + BLOCK], "what was written");
                round += 1;
            }
            client.flush().expect("flush");
        });
        let ends = Ends(&done);
        work();
        drop(ends);
        load.join().expect("the client succeeds");
    });
}

#[test]
fn the_cache_moves_under_a_client_that_compares_every_byte() {
    for mode in ["write-through", "write-back"] {
        let world = world(mode);
        let daemon = world.start();
        let mut bytes = image(1);
        write(&mut world.connect("disk"), 0, &bytes);
        let old = path_of(&world, "cache.img");
        assert_eq!(cache_path(&world), old);
        let before = configuration(&world);
        let planned = replace(&world, "new", &["--dry-run", "--json"]);
        let plan: Value = serde_json::from_slice(&planned.stdout).expect("JSON");
        assert_eq!(
            (&plan["from"], &plan["to"], &plan["holds"]),
            (&old, &path_of(&world, "new"), &json!("empty"))
        );
        assert!(
            configuration(&world) == before && read_file(&world.path("new")).iter().all(|byte| *byte == 0)
        );
        busy(&world, &mut bytes, || {
            let output = replace(&world, "new", &[]);
            assert_eq!(output.status.code(), Some(0), "{}", said(&output));
        });
        assert_eq!(cache_path(&world), path_of(&world, "new"));
        assert_eq!(world.status()["volumes"][0]["info"]["mode"], mode);
        is(&world, &bytes, "the volume on the new device");
        let expected = before.replace("cache.img", "new").replace("size = \"48 MiB\"", "size = \"64 MiB\"");
        assert_eq!(configuration(&world), expected);
        // The old one ended in order, and is free: a move back takes no force.
        let check = world.path("cache.img").display().to_string();
        let checked = std::process::Command::new(zc_tests::program("zcctl")).args(["check", &check]).output();
        assert_eq!(checked.expect("zcctl starts").status.code(), Some(0));
        daemon.kill9();
        let daemon = start_again(&world);
        assert_eq!(cache_path(&world), path_of(&world, "new"));
        assert!(!world.path("state/moved.json").exists(), "the configuration has caught up");
        is(&world, &bytes, "the volume after a kill");
        world.loaded();
        busy(&world, &mut bytes, || {
            let output = replace(&world, "cache.img", &[]);
            assert_eq!(output.status.code(), Some(0), "{}", said(&output));
        });
        assert_eq!(cache_path(&world), old);
        assert_eq!(world.zcctl_output(&["flush", "disk"]).status.code(), Some(0));
        assert_eq!(daemon.terminate().code(), Some(0));
        world.origin_is("disk", &bytes);
    }
}

/// Writes, reads and flushes with several requests in flight, in one part of the volume, until the test ends it.
/// Compares all.
fn storm(world: &World, part: std::ops::Range<usize>, bytes: &mut [u8], done: &AtomicBool) {
    let mut client = world.connect("disk");
    let blocks = part.len() / BLOCK;
    let mut round = 0_usize;
    while !done.load(Ordering::Relaxed) {
        let writes: Vec<usize> = (0..8).map(|n| (round * 8 + n) * 13 % blocks).collect();
        for (n, block) in writes.iter().enumerate() {
            let content = ((round * 8 + n) as u64).to_le_bytes().repeat(BLOCK / 8);
            bytes[block * BLOCK..][..BLOCK].copy_from_slice(&content);
            let offset = (part.start + block * BLOCK) as u64;
            client.submit(NbdRequest::Write { offset, data: &content, fua: n == 7 }).expect("submit");
        }
        let mut reads = std::collections::BTreeMap::new();
        for _ in 0..writes.len() {
            client.wait().expect("the connection stays").result.expect("a write waits and succeeds");
        }
        for n in 0..8 {
            let block = (round * 31 + n * 7) % blocks;
            let offset = (part.start + block * BLOCK) as u64;
            let cookie = client
                .submit(NbdRequest::Read { offset, len_bytes: u32::try_from(BLOCK).expect("small") })
                .expect("submit");
            reads.insert(cookie, block);
        }
        for _ in 0..8 {
            let read = client.wait().expect("the connection stays");
            let block = reads[&read.cookie];
            let found = read.result.expect("a read waits and succeeds");
            same(&found, &bytes[block * BLOCK..][..BLOCK], "what was written");
        }
        round += 1;
    }
    client.flush().expect("flush");
}

#[test]
fn the_cache_moves_and_grows_many_times_under_clients_with_many_requests_in_flight() {
    // Clients that write without a pause leave write-back after half a minute.
    for (mode, exchanges) in [("write-through", 8), ("write-back", 2)] {
        let world = world(mode);
        let daemon = world.start();
        let mut bytes = image(5);
        write(&mut world.connect("disk"), 0, &bytes);
        let done = AtomicBool::new(false);
        let part = bytes.len() / 4;
        std::thread::scope(|scope| {
            let mut storms = Vec::new();
            for (number, bytes) in bytes.chunks_mut(part).enumerate() {
                let (world, done) = (&world, &done);
                storms
                    .push(scope.spawn(move || storm(world, number * part..(number + 1) * part, bytes, done)));
            }
            let ends = Ends(&done);
            for number in 0..exchanges {
                let device = if number % 2 == 0 { "new" } else { "cache.img" };
                let output = replace(&world, device, &[]);
                assert_eq!(output.status.code(), Some(0), "exchange {number}: {}", said(&output));
                if number % 3 == 2 || number + 1 == exchanges {
                    let file =
                        File::options().write(true).open(world.path(device)).expect("the cache is there");
                    let len_bytes = file.metadata().expect("it has a size").len();
                    file.set_len(len_bytes + 8 * MIB).expect("it grows");
                    let output = world.zcctl_output(&["cache", "resize", "--yes"]);
                    assert_eq!(output.status.code(), Some(0), "resize {number}: {}", said(&output));
                }
            }
            drop(ends);
            storms.into_iter().for_each(|storm| storm.join().expect("the client succeeds"));
        });
        is(&world, &bytes, "the volume after all exchanges");
        daemon.kill9();
        let daemon = start_again(&world);
        is(&world, &bytes, "the volume after a kill");
        assert_eq!(world.zcctl_output(&["flush", "disk"]).status.code(), Some(0));
        assert_eq!(daemon.terminate().code(), Some(0));
        world.origin_is("disk", &bytes);
    }
}

#[test]
fn a_start_finds_the_cache_that_was_moved_although_the_configuration_does_not_say_so() {
    let world = world("write-back");
    let daemon = world.start();
    let mut bytes = image(2);
    write(&mut world.connect("disk"), 0, &bytes);
    world.loaded();
    // As if the command had been killed before it wrote the configuration.
    let new = world.path("new").display().to_string();
    let answer = world.control(&json!({"cmd": "replace-cache", "path": new}));
    assert_eq!(answer["ok"], true, "{answer}");
    bytes[..65536].fill(7);
    write(&mut world.connect("disk"), 0, &bytes[..65536]);
    assert_ne!(read_file(&world.origin("disk")), bytes, "the cache alone has it");
    daemon.kill9();
    let daemon = start_again(&world);
    assert_eq!(cache_path(&world), path_of(&world, "new"));
    is(&world, &bytes, "the volume");
    daemon.until_logged("which the configuration names");
    // A reload does not find another path either.
    assert_eq!(world.control(&json!({"cmd": "reload"}))["needs_restart"], json!([]));
    daemon.kill9();
    // The old device is not accepted as the cache: the new one's contents are missing.
    std::fs::remove_file(world.path("state/moved.json")).expect("the record is there");
    let refusal = world.refused(&[]);
    assert!(refusal.contains("dirty data") && refusal.contains("disk"), "{refusal}");
}

/// Returns `true` if the state directory records an orderly end of the last session on the cache.
fn is_closed(world: &World) -> bool {
    let files = std::fs::read_dir(world.path("state")).into_iter().flatten().flatten();
    let states = files.filter(|file| file.file_name().to_string_lossy().len() == 37);
    states
        .filter_map(|file| std::fs::read_to_string(file.path()).ok())
        .any(|text| text.contains("\"clean\": true"))
}

/// Returns `true` if a step of a move is complete.
type Moment = fn(&World) -> bool;

/// Steps of a move that the file system shows.
const MOMENTS: [(&str, Moment); 4] = [
    ("the new device is written", |world| {
        let mut start = [0; 4096];
        let read = std::os::unix::fs::FileExt::read_exact_at;
        let file = File::open(world.path("new")).expect("the new device is there");
        read(&file, &mut start, 0).is_ok() && start != [0; 4096]
    }),
    ("the old cache is closed", is_closed),
    ("the move is recorded", |world| world.path("state/moved.json").exists()),
    ("the configuration is written", |world| configuration(world).contains("/new\"")),
];

/// Ends the daemon at each step of a move. The next start works, has all that was written, and moves the cache.
fn ends_at_any_step(end: fn(Daemon)) {
    for (what, moment) in MOMENTS {
        let world = world("write-back");
        let daemon = world.start();
        let mut bytes = image(3);
        write(&mut world.connect("disk"), 0, &bytes);
        world.loaded();
        std::thread::scope(|scope| {
            let command = scope.spawn(|| replace(&world, "new", &[]));
            while !moment(&world) && !command.is_finished() {
                std::thread::yield_now();
            }
            end(daemon);
            let _it_may_have_failed = command.join().expect("it ends");
        });
        let daemon = start_again(&world);
        assert_eq!(world.status()["cache"]["healthy"], true, "{what}");
        is(&world, &bytes, what);
        // It continues from there: once more, to the same device.
        bytes[..65536].fill(9);
        write(&mut world.connect("disk"), 0, &bytes[..65536]);
        world.loaded();
        if cache_path(&world) != path_of(&world, "new") {
            let output = replace(&world, "new", &["--force"]);
            assert_eq!(output.status.code(), Some(0), "{what}: {}", said(&output));
        }
        is(&world, &bytes, what);
        assert_eq!(world.zcctl_output(&["flush", "disk"]).status.code(), Some(0));
        assert_eq!(daemon.terminate().code(), Some(0));
        world.origin_is("disk", &bytes);
    }
}

#[test]
fn a_kill_at_any_step_leaves_a_start_that_works_and_loses_nothing() {
    ends_at_any_step(Daemon::kill9);
}

#[test]
fn a_stop_at_any_step_is_one_in_order_and_loses_nothing() {
    ends_at_any_step(|daemon| assert_eq!(daemon.terminate().code(), Some(0)));
}

/// A world whose volume has an origin that fails on demand.
fn with_filtered_origin(mode: &str) -> (World, FilteredFile) {
    let mut world = world(mode);
    device(&world.origin("disk"), VOLUME_MIB);
    let origin = FilteredFile::failing(&world, &world.origin("disk"));
    world.volumes[0].2.push_str(&origin.as_origin());
    (world, origin)
}

/// Starts a move that waits for the origin, and calls `meanwhile` then; returns the daemon's answer.
fn move_that_waits(world: &World, device: &Path, meanwhile: impl FnOnce()) -> Option<Value> {
    let request = json!({"cmd": "replace-cache", "path": device.display().to_string()});
    std::thread::scope(|scope| {
        let answer = scope.spawn(|| std::panic::catch_unwind(|| world.control(&request)).ok());
        world.status_until("the move waits for the origin", |status| {
            status["volumes"][0]["info"]["mode"] == "write-through"
        });
        meanwhile();
        answer.join().expect("the request ends")
    })
}

#[test]
fn a_stop_while_a_move_waits_for_the_origin_keeps_dirty_data_on_the_old_device() {
    let (world, origin) = with_filtered_origin("write-back");
    let daemon = world.start();
    let bytes = image(8);
    write(&mut world.connect("disk"), 0, &bytes);
    world.loaded();
    origin.fail(true);
    let mut daemon = Some(daemon);
    move_that_waits(&world, &world.path("new"), || {
        let ended = daemon.take().map(Daemon::terminate);
        assert_eq!(ended.and_then(|status| status.code()), Some(0));
    });
    origin.fail(false);
    let daemon = start_again(&world);
    assert_eq!(cache_path(&world), path_of(&world, "cache.img"));
    assert_eq!(world.status()["volumes"][0]["info"]["mode"], "write-back");
    is(&world, &bytes, "the volume after the stop");
    world.loaded();
    assert_eq!(replace(&world, "new", &["--force"]).status.code(), Some(0));
    assert_eq!(cache_path(&world), path_of(&world, "new"));
    is(&world, &bytes, "the volume on the new device");
    assert_eq!(daemon.terminate().code(), Some(0));
    world.origin_is("disk", &bytes);
}

#[test]
fn a_new_device_that_fails_when_the_old_cache_is_closed_leaves_the_old_one_in_use_and_cold() {
    let (mut world, origin) = with_filtered_origin("write-back");
    let beside = World::new(1, 1);
    world.nbd = format!("[sandbox]\npaths = [\"{}\"]\n", beside.path("").display());
    let new = FilteredFile::failing_writes(&beside, &world.path("new"));
    let daemon = world.start();
    let mut bytes = image(9);
    write(&mut world.connect("disk"), 0, &bytes);
    world.loaded();
    origin.fail(true);
    let answer = move_that_waits(&world, new.path(), || {
        // It has been written once, and takes nothing more when its turn comes.
        new.fail(true);
        origin.fail(false);
    });
    let answer = answer.expect("the daemon answers");
    assert_eq!(answer["ok"], false, "{answer}");
    let error = answer["error"].as_str().unwrap_or_default();
    assert!(error.contains("is on its old device again, and cold"), "{answer}");
    assert_eq!(cache_path(&world), path_of(&world, "cache.img"));
    assert!(!world.path("state/moved.json").exists(), "no start looks on the new device");
    let volume = &world.status()["volumes"][0]["info"];
    assert!(volume["mode"] == "write-back" && volume["cold_reason"].is_string(), "{volume}");
    is(&world, &bytes, "the volume on the old device");
    // Write-back continues there, also after a kill.
    bytes[..65536].fill(5);
    write(&mut world.connect("disk"), 0, &bytes[..65536]);
    assert!(world.stats()["dirty"]["disk"]["bytes"].as_u64() >= Some(65536), "{}", world.stats());
    daemon.kill9();
    let daemon = start_again(&world);
    assert_eq!(cache_path(&world), path_of(&world, "cache.img"));
    is(&world, &bytes, "the volume after a kill");
    world.loaded();
    new.fail(false);
    let path = new.path().display().to_string();
    let output = world.zcctl_output(&["cache", "replace", "--force", &path]);
    assert_eq!(output.status.code(), Some(0), "{}", said(&output));
    assert_eq!(cache_path(&world), json!(path));
    is(&world, &bytes, "the volume on the new device");
    assert_eq!(daemon.terminate().code(), Some(0));
    world.origin_is("disk", &bytes);
}

#[test]
fn what_cannot_be_done_is_refused_and_changes_nothing() {
    let world = world("write-back");
    let daemon = world.start();
    let bytes = image(4);
    write(&mut world.connect("disk"), 0, &bytes);
    world.loaded();
    let refused = |device: &str, options: &[&str], reason: &str| {
        let before = (configuration(&world), std::fs::read(world.path(device)).ok());
        let output = replace(&world, device, options);
        assert_eq!(output.status.code(), Some(2), "{device}: {output:?}");
        assert!(said(&output).contains(reason), "{device}: {}", said(&output));
        assert!(before == (configuration(&world), std::fs::read(world.path(device)).ok()), "{device}");
        assert_eq!(cache_path(&world), path_of(&world, "cache.img"));
        assert!(world.stats()["dirty"]["disk"]["bytes"].as_u64() > Some(0), "nothing was flushed for it");
    };
    refused("none", &[], "none");
    refused("disk.img", &["--force"], "disk.img");
    refused("cache.img", &["--force"], "is the cache already");
    device(&world.path("small"), 1);
    refused("small", &[], "small");
    let mut text = vec![0; 64 << 20];
    text[1080..1082].copy_from_slice(b"\x53\xef");
    std::fs::write(world.path("other"), &text).expect("cannot make a file system");
    refused("other", &[], "contains an ext2/3/4 file system; --force");
    // Another daemon's cache is in use, and after that used.
    let mut other = World::new(48, 1);
    other.cache_path = world.path("new");
    let neighbour = other.start();
    refused("new", &["--force"], "in use by process");
    assert_eq!(neighbour.terminate().code(), Some(0));
    refused("new", &[], "is a cache that was used");
    let output = replace(&world, "new", &["--force"]);
    assert_eq!(output.status.code(), Some(0), "{}", said(&output));
    is(&world, &bytes, "the volume");
    assert_eq!(daemon.terminate().code(), Some(0));
}

#[test]
fn a_new_device_that_takes_no_write_leaves_the_old_one_in_use() {
    let world = world("write-back");
    let daemon = world.start();
    let bytes = image(5);
    write(&mut world.connect("disk"), 0, &bytes);
    world.loaded();
    let broken = FilteredFile::failing_writes(&world, &world.path("new"));
    broken.fail(true);
    let path = broken.path().display().to_string();
    let output = world.zcctl_output(&["cache", "replace", &path]);
    assert_eq!(output.status.code(), Some(2), "{output:?}");
    assert_eq!(cache_path(&world), path_of(&world, "cache.img"));
    assert_eq!(world.status()["volumes"][0]["info"]["mode"], "write-back");
    is(&world, &bytes, "the volume");
    daemon.kill9();
    let daemon = start_again(&world);
    is(&world, &bytes, "the volume after a kill");
    assert_eq!(daemon.terminate().code(), Some(0));
}

#[test]
fn a_cache_that_failed_is_replaced_without_a_restart() {
    let mut world = world("write-through");
    device(&world.path("behind"), 48);
    let cache = FilteredFile::failing(&world, &world.path("behind"));
    world.cache_path = cache.path().to_owned();
    let daemon = world.start();
    let mut bytes = image(6);
    write(&mut world.connect("disk"), 0, &bytes);
    world.settled();
    cache.fail(true);
    let _stats = world.stats_until("the failure is known", |stats| {
        is(&world, &bytes, "the volume without a cache");
        stats["cache_healthy"] == false
    });
    busy(&world, &mut bytes, || {
        let output = replace(&world, "new", &[]);
        assert_eq!(output.status.code(), Some(0), "{}", said(&output));
    });
    assert_eq!(cache_path(&world), path_of(&world, "new"));
    is(&world, &bytes, "the volume");
    assert_eq!(daemon.terminate().code(), Some(0));
    let daemon = start_again(&world);
    assert_eq!(cache_path(&world), path_of(&world, "new"));
    assert_eq!(daemon.terminate().code(), Some(0));
    world.origin_is("disk", &bytes);
}

#[test]
fn a_cache_takes_the_room_that_its_device_got_while_no_daemon_ran() {
    let world = world("write-back");
    let daemon = world.start();
    let bytes = image(9);
    write(&mut world.connect("disk"), 0, &bytes);
    let size = || world.status()["cache"]["slots"][1].as_u64().expect("a number");
    let before = size();
    assert_eq!(daemon.terminate().code(), Some(0));
    let grow = |mib: u64| {
        let file = File::options().write(true).open(world.path("cache.img")).expect("the cache is there");
        file.set_len(mib * MIB).expect("it grows");
    };
    grow(96);
    let daemon = start_again(&world);
    assert_eq!(size(), before, "a start changes nothing");
    daemon.until_logged("zcctl cache resize");
    world.loaded();
    let resize = || world.zcctl_output(&["cache", "resize", "--yes"]);
    let output = resize();
    assert_eq!(output.status.code(), Some(0), "{}", said(&output));
    assert!(size() > before * 3 / 2, "{} slots, {before} before", size());
    let again = resize();
    assert!(
        again.status.code() == Some(2) && said(&again).contains("is not larger than the cache"),
        "{again:?}"
    );
    is(&world, &bytes, "the volume");
    // Once before the stop, once after it: both count.
    grow(128);
    daemon.kill9();
    grow(160);
    let daemon = start_again(&world);
    world.loaded();
    let output = resize();
    assert_eq!(output.status.code(), Some(0), "{}", said(&output));
    assert!(size() > before * 3, "{} slots, {before} before", size());
    is(&world, &bytes, "the volume");
    assert_eq!(daemon.terminate().code(), Some(0));
}

#[test]
fn a_cache_takes_the_room_that_its_device_has_got() {
    let world = world("write-back");
    let daemon = world.start();
    let mut bytes = image(7);
    write(&mut world.connect("disk"), 0, &bytes);
    world.loaded();
    let size = || world.status()["cache"]["slots"][1].as_u64().expect("a number");
    let before = size();
    let resize = |options: &[&str]| world.zcctl_output(&[&["cache", "resize"], options].concat());
    let same_size = resize(&["--yes"]);
    assert!(
        same_size.status.code() == Some(2) && said(&same_size).contains("is not larger than the cache"),
        "{same_size:?}"
    );
    let file = File::options().write(true).open(world.path("cache.img")).expect("the cache is there");
    file.set_len(96 * MIB).expect("it grows");
    let asked = resize(&[]);
    assert!(asked.status.code() == Some(2) && said(&asked).contains("--yes"), "{asked:?}");
    assert_eq!(size(), before);
    busy(&world, &mut bytes, || {
        let output = resize(&["--yes"]);
        assert_eq!(output.status.code(), Some(0), "{}", said(&output));
    });
    assert!(size() > before * 3 / 2, "{} slots, {before} before", size());
    assert!(configuration(&world).contains("size = \"96 MiB\""));
    is(&world, &bytes, "the volume");
    daemon.kill9();
    let daemon = start_again(&world);
    assert!(size() > before * 3 / 2);
    is(&world, &bytes, "the volume after a kill");
    assert_eq!(daemon.terminate().code(), Some(0));
}
