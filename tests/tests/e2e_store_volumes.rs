//! Volumes of a store behind the cache: served, restarted, killed, rolled back, and restored from cached contents.

#![expect(clippy::expect_used, reason = "a test; what fails here is a failure")]

use std::path::PathBuf;

use zc_engine::{NbdClient, NbdRequest};
use zc_tests::{BlockKind, DataGen, FilteredFile, MIB, World, read_file, run_ok, same};

const CHUNK: usize = 8192;

/// A daemon's folder with a store beside it.
struct Rig {
    world: World,
}

impl Rig {
    /// Volumes by name, size in MiB and further lines.
    fn new(volumes: &[(&str, u64, &str)]) -> Self {
        Self::with_pool("512 MiB", volumes)
    }

    /// Volumes on a store of this size.
    fn with_pool(size: &str, volumes: &[(&str, u64, &str)]) -> Self {
        let mut world = World::new(64, 1);
        world.add_store(size);
        world.volumes.clear();
        for (name, mib, lines) in volumes {
            world.add_thin(name, *mib, lines);
        }
        Self { world }
    }

    fn pool(&self) -> PathBuf {
        self.world.path("pool")
    }

    /// `zcctl store COMMAND POOL ARGUMENTS`, while no daemon has it.
    fn zcctl(&self, command: &[&str], arguments: &[&str]) -> String {
        let mut zcctl = std::process::Command::new(zc_tests::program("zcctl"));
        zcctl.arg("store").args(command).arg(self.pool()).args(arguments);
        String::from_utf8_lossy(&run_ok(&mut zcctl).stdout).into_owned()
    }

    fn cold_reason(&self, volume: &str) -> serde_json::Value {
        let status = self.world.status();
        let volumes = status["volumes"].as_array().expect("there are volumes").clone();
        let found = volumes.into_iter().find(|found| found["name"] == volume);
        found.expect("it is served")["info"]["cold_reason"].clone()
    }
}

/// Contents that differ from chunk to chunk and seed to seed, and compress to a half.
fn contents(seed: u64, chunks: usize) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(chunks * CHUNK);
    for chunk in 0..chunks {
        let mut word = seed.wrapping_mul(0x9e37_79b9) ^ u64::try_from(chunk).expect("small") << 32 | 1;
        for _ in 0..CHUNK / 16 {
            word = word.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            bytes.extend_from_slice(&word.to_le_bytes());
            bytes.extend_from_slice(&[9; 8]);
        }
    }
    bytes
}

fn write(client: &mut NbdClient, at: u64, bytes: &[u8]) {
    client.write(at, bytes).expect("write");
    client.flush().expect("flush");
}

fn is(client: &mut NbdClient, at: u64, bytes: &[u8], what: &str) {
    same(&client.read(at, bytes.len()).expect("read"), bytes, what);
}

#[test]
fn what_was_written_is_there_after_a_stop_and_after_a_kill() {
    let rig = Rig::new(&[("thru", 64, ""), ("back", 64, "mode = \"write-back\"\n")]);
    let daemon = rig.world.start();
    let (one, two) = (contents(1, 300), contents(2, 300));
    for name in ["thru", "back"] {
        let mut client = rig.world.connect(name);
        write(&mut client, MIB, &one);
        client.write_zeroes(2 * MIB, 65536).expect("zeroes");
        client.trim(3 * MIB, 65536).expect("trim");
        // Neither begins nor ends where a chunk does.
        write(&mut client, MIB + 512, &two[..CHUNK * 3 + 1024]);
    }
    let mut expected = one;
    expected[512..512 + CHUNK * 3 + 1024].copy_from_slice(&two[..CHUNK * 3 + 1024]);
    let zeros = usize::try_from(MIB).expect("small");
    expected[zeros..zeros + 65536].fill(0);
    let whole = |client: &mut NbdClient| is(client, MIB, &expected[..2 * zeros], "the volume");
    for name in ["thru", "back"] {
        whole(&mut rig.world.connect(name));
    }
    daemon.kill9();
    let daemon = rig.world.start();
    for name in ["thru", "back"] {
        whole(&mut rig.world.connect(name));
    }
    assert!(rig.world.zcctl_output(&["stop", "--flush"]).status.success());
    assert_eq!(daemon.wait().code(), Some(0));
    assert!(rig.zcctl(&["scrub"], &[]).contains(" 0 places damaged"));
    let daemon = rig.world.start();
    for name in ["thru", "back"] {
        assert_eq!(rig.cold_reason(name), serde_json::Value::Null, "{name} starts warm");
        whole(&mut rig.world.connect(name));
    }
    assert_eq!(daemon.terminate().code(), Some(0));
}

#[test]
fn a_volume_that_was_rolled_back_meanwhile_starts_cold_and_with_dirty_data_not_at_all() {
    let rig = Rig::new(&[("thru", 16, ""), ("back", 16, "mode = \"write-back\"\nmax_dirty_age = \"1 h\"\n")]);
    let daemon = rig.world.start();
    let (old, new) = (contents(1, 100), contents(2, 100));
    for name in ["thru", "back"] {
        write(&mut rig.world.connect(name), 0, &old);
    }
    assert!(rig.world.zcctl_output(&["stop", "--flush"]).status.success());
    assert_eq!(daemon.wait().code(), Some(0));
    rig.zcctl(&["snapshot"], &["thru", "thru@old"]);
    rig.zcctl(&["snapshot"], &["back", "back@old"]);

    let daemon = rig.world.start();
    assert_eq!(rig.cold_reason("thru"), serde_json::Value::Null, "a snapshot changes nothing");
    write(&mut rig.world.connect("thru"), 0, &new);
    assert_eq!(daemon.terminate().code(), Some(0));
    rig.zcctl(&["rollback"], &["thru", "thru@old", "--yes"]);

    let daemon = rig.world.start();
    let reason = rig.cold_reason("thru");
    assert!(reason.as_str().is_some_and(|reason| reason.contains("was written")), "{reason}");
    is(&mut rig.world.connect("thru"), 0, &old, "the volume that was rolled back");
    write(&mut rig.world.connect("back"), 0, &new);
    assert!(rig.world.zcctl_output(&["stop", "--keep-dirty"]).status.success());
    assert_eq!(daemon.wait().code(), Some(0));
    rig.zcctl(&["rollback"], &["back", "back@old", "--yes"]);
    let daemon = rig.world.start();
    let absent = rig.world.status()["absent"].clone();
    assert!(
        absent[0]["name"] == "back" && absent[0]["why"].to_string().contains("was written since"),
        "{absent}"
    );
    is(&mut rig.world.connect("thru"), 0, &old, "the volume beside it");
    assert_eq!(daemon.terminate().code(), Some(0));
    let said = rig.zcctl(&["export"], &["back", &rig.world.path("back.img").display().to_string()]);
    let image = read_file(&rig.world.path("back.img"));
    same(&image[..old.len()], &old, &format!("the store was not written {said}"));
}

#[test]
fn a_snapshot_is_served_read_only_by_its_name() {
    let mut rig = Rig::new(&[("disk", 16, "")]);
    let daemon = rig.world.start();
    let (old, new) = (contents(1, 100), contents(2, 100));
    write(&mut rig.world.connect("disk"), 0, &old);
    assert_eq!(daemon.terminate().code(), Some(0));
    rig.zcctl(&["snapshot"], &["disk", "disk@monday"]);
    let origin = "origin = \"store:tank/disk@monday\"\n";
    rig.world.volumes.push(("monday".to_owned(), 0, origin.to_owned()));
    let daemon = rig.world.start();
    let absent = rig.world.status()["absent"].to_string();
    assert!(absent.contains("is a snapshot") && absent.contains("read-only"), "{absent}");
    assert_eq!(daemon.terminate().code(), Some(0));
    rig.world.volumes[1].2 = format!("{origin}mode = \"read-only\"\n");
    let daemon = rig.world.start();
    write(&mut rig.world.connect("disk"), 0, &new);
    let mut monday = rig.world.connect("monday");
    is(&mut monday, 0, &old, "the snapshot");
    assert!(monday.write(0, &new).is_err());
    is(&mut rig.world.connect("disk"), 0, &new, "the volume");
    assert_eq!(daemon.terminate().code(), Some(0));
}

#[test]
fn a_restored_snapshot_comes_from_the_cache_as_far_as_it_is_equal_to_what_is_cached() {
    let chunks = 2000;
    let mut rig = Rig::new(&[("disk", 32, "")]);
    let daemon = rig.world.start();
    let old = contents(1, chunks);
    write(&mut rig.world.connect("disk"), 0, &old);
    assert_eq!(daemon.terminate().code(), Some(0));
    rig.zcctl(&["snapshot"], &["disk", "disk@old"]);
    // A fifth changes, in runs of 16 chunks.
    let daemon = rig.world.start();
    let mut client = rig.world.connect("disk");
    let other = contents(2, chunks);
    let mut new = old.clone();
    for run in (0..chunks).step_by(80) {
        let range = run * CHUNK..(run + 16) * CHUNK;
        new[range.clone()].copy_from_slice(&other[range]);
    }
    write(&mut client, 0, &new);
    drop(client);
    assert_eq!(daemon.terminate().code(), Some(0));
    // A cache with the present state of the volume, and nothing of the snapshot.
    std::fs::remove_file(rig.world.cache_file()).expect("it was there");
    std::fs::remove_dir_all(rig.world.path("state")).expect("it was there");
    let lines = "origin = \"store:tank/disk@old\"\nmode = \"read-only\"\n".to_owned();
    rig.world.volumes.push(("old".to_owned(), 0, lines));
    let daemon = rig.world.start();
    let mut client = rig.world.connect("disk");
    // Prefetched extents with one use are not cached.
    for _ in 0..2 {
        for (at, piece) in (0..).step_by(512 << 10).zip(new.chunks(512 << 10)) {
            is(&mut client, at, piece, "the volume");
        }
        rig.world.inserted();
    }
    let before = rig.world.settled();
    let mut client = rig.world.connect("old");
    for (at, piece) in (0..).step_by(512 << 10).zip(old.chunks(512 << 10)) {
        is(&mut client, at, piece, "the snapshot");
    }
    let after = rig.world.settled();
    let grew = |name: &str| {
        let of = |stats: &serde_json::Value| stats["manager"][name].as_u64().expect("it is a number");
        of(&after) - of(&before)
    };
    let hits = grew("recipe_hits");
    assert!(hits * 100 >= 75 * u64::try_from(chunks).expect("small"), "{hits} of {chunks} from the cache");
    assert_eq!(daemon.terminate().code(), Some(0));
}

/// Runs `zcctl store COMMAND tank ARGUMENTS` at the daemon: exit status and output.
fn ordered(rig: &Rig, command: &str, arguments: &[&str]) -> (Option<i32>, String) {
    let output = rig.world.zcctl_output(&[&["store", command, "tank"], arguments].concat());
    let said = [output.stdout, output.stderr].concat();
    (output.status.code(), String::from_utf8_lossy(&said).into_owned())
}

fn done(rig: &Rig, command: &str, arguments: &[&str]) -> String {
    let (code, said) = ordered(rig, command, arguments);
    assert_eq!(code, Some(0), "{command}: {said}");
    said
}

#[test]
fn a_snapshot_at_a_running_daemon_has_what_its_cache_held_back() {
    let mut rig = Rig::new(&[("back", 16, "mode = \"write-back\"\nmax_dirty_age = \"1 h\"\n")]);
    rig.world.cache.insert_str(0, "destage_idle = \"1 h\"\n");
    let daemon = rig.world.start();
    let (old, new) = (contents(1, 100), contents(2, 100));
    write(&mut rig.world.connect("back"), 0, &old);
    assert_ne!(rig.world.stats()["dirty"]["back"]["bytes"], 0, "the store does not have it yet");
    done(&rig, "snapshot", &["back", "back@old"]);
    let status = done(&rig, "status", &["--json"]);
    let status: serde_json::Value = serde_json::from_str(&status).expect("it is JSON");
    let counted = ["prints_known", "prints_computed", "encodings_known", "encodings_computed"];
    assert_eq!(counted.map(|key| status[key].clone()), [100, 0, 100, 0], "the cache has done the work");
    write(&mut rig.world.connect("back"), 0, &new);
    done(&rig, "clone", &["back@old", "copy"]);
    done(&rig, "clone", &["back", "twin"]);
    let listed = done(&rig, "volumes", &["--json"]);
    let listed: serde_json::Value = serde_json::from_str(&listed).expect("it is JSON");
    let names: Vec<&str> = listed["volumes"]
        .as_array()
        .expect("a list")
        .iter()
        .map(|volume| volume["name"].as_str().expect("a name"))
        .collect();
    assert_eq!(names, ["back", "copy", "twin"]);
    assert!(
        done(&rig, "snapshots", &[]).contains("back@old")
            && done(&rig, "status", &[]).contains("compression")
    );
    assert!(done(&rig, "scrub", &[]).contains(" 0 places damaged"));
    is(&mut rig.world.connect("back"), 0, &new, "the volume, from its cache");
    assert_eq!(daemon.terminate().code(), Some(0));
    for (name, bytes) in [("copy", &old), ("twin", &new), ("back@old", &old)] {
        let image = rig.world.path(&format!("{name}.img"));
        rig.zcctl(&["export"], &[name, &image.display().to_string()]);
        same(&read_file(&image)[..bytes.len()], bytes, name);
    }
}

#[test]
fn what_a_daemon_serves_of_a_store_is_neither_deleted_nor_changed_under_its_cache() {
    let rig = Rig::new(&[("disk", 16, "")]);
    let daemon = rig.world.start();
    let old = contents(1, 10);
    write(&mut rig.world.connect("disk"), 0, &old);
    done(&rig, "snapshot", &["disk", "disk@old"]);
    for (command, arguments, word) in [
        ("delete-volume", &["disk", "--yes"][..], "in use by volume"),
        ("rollback", &["disk", "disk@old", "--yes"], "in use by volume"),
        ("grow", &["disk", "32 MiB"], "zcctl resize disk"),
        ("snapshot", &["nothing", "disk@new"], "no volume \"nothing\""),
        ("snapshot", &["disk", "disk@old"], "already"),
        ("import", &["image", "/dev/null"], "no daemon has open"),
    ] {
        let (code, said) = ordered(&rig, command, arguments);
        assert!(code == Some(2) && said.contains(word), "{command}: {said}");
    }
    let path = rig.pool().display().to_string();
    let output = rig.world.zcctl_output(&["store", "status", &path]);
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(output.status.code() == Some(2) && said.contains("name the store"), "{said}");
    let (code, said) = {
        let output = rig.world.zcctl_output(&["store", "status", "pond"]);
        (output.status.code(), String::from_utf8_lossy(&output.stderr).into_owned())
    };
    assert!(code == Some(2) && said.contains("there are tank"), "{said}");
    assert!(done(&rig, "rollback", &["disk", "disk@old", "--dry-run"]).contains("would become"));
    done(&rig, "create-volume", &["spare", "8 MiB"]);
    assert!(done(&rig, "delete-volume", &["spare", "--dry-run"]).contains("would become free"));
    done(&rig, "delete-volume", &["spare", "--yes"]);
    done(&rig, "delete-snapshot", &["disk@old", "--yes"]);
    is(&mut rig.world.connect("disk"), 0, &old, "the volume");
    assert_eq!(daemon.terminate().code(), Some(0));
}

/// Returns the output of `nbdinfo --map` for a volume: offset, length, flags.
fn map_of(rig: &Rig, volume: &str) -> Vec<(u64, u64, u64)> {
    let mut nbdinfo = zc_tests::bounded("nbdinfo");
    nbdinfo.args(["--map", &rig.world.uri(volume)]);
    let map = String::from_utf8_lossy(&run_ok(&mut nbdinfo).stdout).into_owned();
    let number = |word: Option<&str>| word.and_then(|word| word.parse().ok()).expect("a number");
    let line = |line: &str| {
        let mut words = line.split_whitespace();
        (number(words.next()), number(words.next()), number(words.next()))
    };
    map.lines().map(line).collect()
}

#[test]
fn what_a_volume_never_held_or_discarded_is_told_as_a_hole_and_takes_no_space() {
    let rig = Rig::new(&[("thru", 64, "")]);
    let daemon = rig.world.start();
    assert_eq!(map_of(&rig, "thru"), [(0, 64 * MIB, 3)]);
    let bytes = contents(5, 2048);
    let mut client = rig.world.connect("thru");
    for (at, part) in (16 * MIB..).step_by(1 << 20).zip(bytes.chunks(1 << 20)) {
        client.write(at, part).expect("write");
    }
    client.flush().expect("flush");
    assert_eq!(map_of(&rig, "thru"), [(0, 16 * MIB, 3), (16 * MIB, 16 * MIB, 0), (32 * MIB, 32 * MIB, 3)]);
    client.trim(20 * MIB, 8 * MIB).expect("trim");
    client.flush().expect("flush");
    let holes = [(0, 16 * MIB, 3), (16 * MIB, 4 * MIB, 0), (20 * MIB, 8 * MIB, 3), (28 * MIB, 4 * MIB, 0)];
    let map = map_of(&rig, "thru");
    assert_eq!(map[..4], holes, "{map:?}");
    assert_eq!(daemon.terminate().code(), Some(0));
    let status: serde_json::Value = serde_json::from_str(&rig.zcctl(&["status"], &["--json"])).expect("JSON");
    let bytes = |key: &str| status[key].as_u64().expect("a number");
    // 16 MiB were written, and compress to two thirds.
    assert_eq!((bytes("used_bytes"), bytes("raw_bytes")), (8 * MIB, 8 * MIB), "{status}");
    assert!(bytes("stored_bytes") < 6 * MIB, "{status}");
    assert_eq!(status["state"], "ok");
}

/// Returns the output of `zcached check-config`, and `true` on success. It leaves the store unchanged.
fn checked(rig: &Rig) -> (bool, String) {
    let changed = || std::fs::metadata(rig.pool()).and_then(|pool| pool.modified()).expect("there is a pool");
    let before = changed();
    let checked = checked_beside_a_daemon(rig);
    assert_eq!(changed(), before, "the store was written");
    checked
}

/// As above, where a daemon may write the store.
fn checked_beside_a_daemon(rig: &Rig) -> (bool, String) {
    let mut check = zc_tests::bounded("env");
    check.arg(zc_tests::program("zcached")).arg("check-config").arg(rig.world.configure());
    let output = check.output().expect("cannot start zcached");
    let said = [output.stdout, output.stderr].concat();
    (output.status.success(), String::from_utf8_lossy(&said).into_owned())
}

#[test]
fn check_config_opens_stores_and_leaves_them_as_they_are() {
    let mut rig = Rig::new(&[("disk", 16, "")]);
    assert!(checked(&rig).0, "before the first start: {}", checked(&rig).1);
    let daemon = rig.world.start();
    write(&mut rig.world.connect("disk"), 0, &contents(1, 100));
    let (is_fine, said) = checked_beside_a_daemon(&rig);
    assert!(is_fine && said.contains("in use by the running daemon"), "while the daemon runs: {said}");
    daemon.kill9();
    // The kernel keeps the lock until the last operation of the process has ended.
    let pool = std::fs::File::open(rig.pool()).expect("the pool");
    pool.lock().expect("the pool is free");
    drop(pool);
    let (is_fine, said) = checked(&rig);
    assert!(is_fine, "after a kill: {said}");

    rig.zcctl(&["snapshot"], &["disk", "disk@one"]);
    let lines = rig.world.volumes[0].2.clone();
    rig.world.volumes[0].2 = lines.replace("tank/disk", "tank/disk@one");
    let (is_fine, said) = checked(&rig);
    assert!(!is_fine && said.contains("is a snapshot and never changes"), "{said}");
    rig.world.volumes[0].2 = lines;
    assert!(checked(&rig).0, "{}", checked(&rig).1);

    let pool = std::fs::File::options().write(true).open(rig.pool()).expect("the pool");
    std::os::unix::fs::FileExt::write_all_at(&pool, &[0; 1 << 20], 0).expect("both superblocks");
    let (is_fine, said) = checked(&rig);
    assert!(!is_fine && said.contains("cannot be opened as a store"), "{said}");
}

/// Destroys the batch of the log that has this many behind it. Those of a log are numbered (`FORMAT.md`, section 4).
fn lose_batch(pool: &std::path::Path, behind: usize) {
    use std::os::unix::fs::FileExt;
    let bytes = std::fs::read(pool).expect("the pool");
    let blocks = bytes.chunks_exact(4096).enumerate();
    let mut batches: Vec<(u64, usize)> = blocks
        .filter(|(_, block)| block[4..8] == *b"zcSb")
        .map(|(number, block)| (u64::from_le_bytes(*block[8..].first_chunk().expect("8 bytes")), number))
        .collect();
    batches.sort_unstable();
    let (_, number) = batches[batches.len() - 1 - behind];
    let file = std::fs::File::options().write(true).open(pool).expect("the pool");
    file.write_all_at(&[0xee; 512], 4096 * u64::try_from(number).expect("small")).expect("write");
}

#[test]
fn a_store_whose_device_lost_flushed_data_goes_back_when_the_operator_accepts_that() {
    let rig = Rig::new(&[("disk", 16, "")]);
    let daemon = rig.world.start();
    let mut client = rig.world.connect("disk");
    let old = contents(1, 10);
    write(&mut client, 0, &old);
    assert_eq!(daemon.terminate().code(), Some(0));
    let daemon = rig.world.start();
    let mut client = rig.world.connect("disk");
    for number in 0..10 {
        write(&mut client, MIB, &contents(2 + number, 10));
    }
    rig.world.settled();
    drop(client);
    daemon.kill9();
    lose_batch(&rig.pool(), 5);

    let (is_fine, said) = checked(&rig);
    assert!(!is_fine && said.contains("zcctl store accept-loss"), "{said}");
    assert!(rig.world.refused(&[]).contains("zcctl store accept-loss"), "a start says it, too");
    let accept = |arguments: &[&str]| {
        let mut zcctl = std::process::Command::new(zc_tests::program("zcctl"));
        zcctl.args(["store", "accept-loss"]).arg(rig.pool()).args(arguments);
        let output = zcctl.output().expect("cannot start zcctl");
        let said = [output.stdout, output.stderr].concat();
        (output.status.code(), String::from_utf8_lossy(&said).into_owned())
    };
    for _ in 0..2 {
        let (code, said) = accept(&[]);
        assert!(code == Some(2) && said.contains("disk") && said.contains("--yes"), "{said}");
    }
    assert_eq!(accept(&["--force"]).0, Some(0));
    let (code, said) = accept(&["--force"]);
    assert!(code == Some(0) && said.contains("opens without a loss"), "{said}");
    assert!(rig.zcctl(&["scrub"], &[]).contains(" 0 places damaged"));

    let daemon = rig.world.start();
    assert!(rig.cold_reason("disk").is_string(), "the cache holds what the store has lost");
    let mut client = rig.world.connect("disk");
    is(&mut client, 0, &old, "what was there before");
    let served = client.read(MIB, 10 * CHUNK).expect("read");
    assert!((2..12).any(|number| served == contents(number, 10)), "one of the writes, and whole");
    assert_ne!(served, contents(11, 10), "not what the cache holds");
    assert_eq!(daemon.terminate().code(), Some(0));
}

/// Returns the kinds of the store's reasons in the daemon's status.
fn troubles(rig: &Rig) -> Vec<String> {
    let status = rig.world.status();
    let reasons = status["verdict"]["reasons"].as_array().expect("a list").iter();
    let of_store = reasons.filter(|reason| reason["store"] == "tank");
    of_store.filter_map(|reason| reason["kind"].as_str().map(str::to_owned)).collect()
}

#[test]
fn a_store_that_fills_up_is_told_before_and_takes_writes_again_when_space_is_freed() {
    let rig = Rig::with_pool("128 MiB", &[("disk", 1024, "")]);
    let daemon = rig.world.start();
    let mut client = rig.world.connect("disk");
    let piece = |number: u64| DataGen::new(number, 1 << 20).block(BlockKind::Incompressible, 0);
    let (mut written, mut said) = (0, Vec::new());
    while client.write(written * MIB, &piece(written)).is_ok() {
        written += 1;
        assert!(written < 128, "the store took more than it has");
        let new = troubles(&rig);
        if said.is_empty() && !new.is_empty() {
            let low = rig.world.reason("store-low-space").of(&["are left for contents"]);
            low.advises("discard in the volumes (fstrim), or delete snapshots");
        }
        said.extend(new);
        said.dedup();
    }
    assert_eq!(said, ["store-low-space"], "after {written} MiB");
    assert_eq!(troubles(&rig), ["store-full"]);
    assert_eq!(rig.world.status()["verdict"]["state"], "FAILED");
    let reason =
        rig.world.reason("store-full").of(&["no space is left", "nothing that was acknowledged is lost"]);
    reason.advises("discard in the volumes (fstrim)");
    reason.run(&rig.world, "zcctl store snapshots tank");
    for number in 0..written {
        is(&mut client, number * MIB, &piece(number), "what was acknowledged");
    }
    client.trim(0, 1 << 29).expect("trim");
    rig.world.stats_until("the cleaner has freed what was discarded", |_| troubles(&rig).is_empty());
    write(&mut client, 0, &piece(1));
    let events = rig.world.control(&serde_json::json!({ "cmd": "events", "after": 0 }));
    let of = |kind: &str, change: &str| {
        let is = |event: &&serde_json::Value| event["event"] == kind && event["change"] == change;
        events["events"].as_array().expect("a list").iter().filter(is).count()
    };
    assert_eq!((of("store-full", "begins"), of("store-full", "ends")), (1, 1), "{events}");
    // While it fills, and after a discard if the verdict was read just then.
    let low = (of("store-low-space", "begins"), of("store-low-space", "ends"));
    assert!(low.0 == low.1 && (1..=3).contains(&low.0), "{events}");
    assert_eq!(daemon.terminate().code(), Some(0));
}

#[test]
fn a_write_with_fua_is_answered_after_a_flush_of_the_store() {
    let mut rig = Rig::new(&[("thru", 64, ""), ("pass", 64, "mode = \"pass-through\"\n")]);
    let (pool, log) = (rig.pool(), rig.world.path("requests"));
    let file = FilteredFile::logged(&rig.world, &pool, &log);
    let (plain, logged) = (pool.display().to_string(), file.path().display().to_string());
    rig.world.cache = rig.world.cache.replace(&plain, &logged);
    let daemon = rig.world.start();
    let flushes =
        || read_file(&log).split(|byte| *byte == b'\n').filter(|line| has(line, b" Flush ")).count();
    for name in ["thru", "pass"] {
        let mut client = rig.world.connect(name);
        for round in 0..8 {
            let (before, data) = (flushes(), contents(100 + round, 2));
            client.submit(NbdRequest::Write { offset: round << 16, data: &data, fua: true }).expect("submit");
            client.wait().expect("an answer").result.expect("the write");
            assert!(flushes() > before, "{name}, write {round}");
        }
    }
    assert_eq!(daemon.terminate().code(), Some(0));
}

fn has(line: &[u8], word: &[u8]) -> bool {
    line.windows(word.len()).any(|part| part == word)
}

#[test]
fn fingerprints_of_extents_are_not_taken_for_chunks_of_another_size() {
    let rig = Rig::new(&[("wide", 64, "mode = \"write-back\"\n"), ("narrow", 64, "mode = \"write-back\"\n")]);
    rig.zcctl(&["create-volume"], &["wide", "64 MiB", "--chunk", "16 KiB"]);
    rig.zcctl(&["create-volume"], &["narrow", "64 MiB", "--chunk", "4 KiB"]);
    let daemon = rig.world.start();
    // Chunks of which one half is equal: taken by the fingerprint of that half, the other half would be lost.
    let (first, others) = (contents(1, 1), contents(2, 40));
    let image: Vec<u8> = others.chunks(CHUNK).flat_map(|other| [&first[..], other].concat()).collect();
    for name in ["wide", "narrow"] {
        write(&mut rig.world.connect(name), 0, &image);
        assert_eq!(rig.world.zcctl_output(&["flush", name]).status.code(), Some(0));
    }
    assert_eq!(daemon.terminate().code(), Some(0));
    for name in ["wide", "narrow"] {
        let copy = rig.world.path(name);
        rig.zcctl(&["export"], &[name, &copy.display().to_string()]);
        same(&std::fs::read(copy).expect("the export")[..image.len()], &image, "what the store has");
    }
}
