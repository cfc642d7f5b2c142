//! `zcctl store` on a file: contents are returned, sharing is accounted for, space is freed, damage is found.

#![expect(clippy::expect_used, reason = "a test; what fails here is a failure")]

use std::fs::File;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use serde_json::Value;
use zc_tests::{program, run_ok};

const MIB: u64 = 1 << 20;
const CHUNK: usize = 8192;

struct Store {
    dir: tempfile::TempDir,
}

impl Store {
    fn new(mib: u64) -> Self {
        let store = Self { dir: tempfile::tempdir().expect("it works") };
        store.done(&["create"], &["--size", &format!("{mib} MiB")]);
        store
    }

    fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    /// Runs `zcctl store COMMAND POOL ARGUMENTS`: its exit status, and its output.
    fn run(&self, command: &[&str], arguments: &[&str]) -> (Option<i32>, String) {
        let mut zcctl = Command::new(program("zcctl"));
        zcctl.arg("store").args(command).arg(self.path("pool")).args(arguments);
        let output = zcctl.output().expect("it works");
        let said = [output.stdout, output.stderr].concat();
        (output.status.code(), String::from_utf8_lossy(&said).into_owned())
    }

    fn done(&self, command: &[&str], arguments: &[&str]) -> String {
        let (code, said) = self.run(command, arguments);
        assert_eq!(code, Some(0), "{command:?} {arguments:?}: {said}");
        said
    }

    fn json(&self, command: &str) -> Value {
        serde_json::from_str(&self.done(&[command], &["--json"])).expect("it is JSON")
    }

    fn account(&self, command: &str, name: &str, field: &str) -> u64 {
        let rows = self.json(command);
        let row = rows[command].as_array().into_iter().flatten().find(|row| row["name"] == name).cloned();
        row.expect("it is listed")[field].as_u64().expect("it is a number")
    }

    fn image(&self, name: &str, bytes: &[u8]) -> String {
        std::fs::write(self.path(name), bytes).expect("it works");
        self.path(name).display().to_string()
    }

    fn exported(&self, name: &str) -> Vec<u8> {
        let image = self.path("exported");
        self.done(&["export"], &[name, &image.display().to_string()]);
        let bytes = std::fs::read(&image).expect("it works");
        std::fs::remove_file(image).expect("it works");
        bytes
    }
}

/// Contents that compress to a half, and differ from chunk to chunk.
fn contents(seed: u64, chunks: usize) -> Vec<u8> {
    let mut word = seed;
    let mut bytes = Vec::with_capacity(chunks * CHUNK);
    for _ in 0..chunks {
        for _ in 0..CHUNK / 16 {
            word = word.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            bytes.extend_from_slice(&word.to_le_bytes());
            bytes.extend_from_slice(&[7; 8]);
        }
    }
    bytes
}

fn sparse(path: &Path, data: &[u8], at: u64, len: u64) {
    let file = File::create(path).expect("it works");
    file.set_len(len).expect("it works");
    file.write_all_at(data, at).expect("it works");
}

#[test]
fn what_goes_in_comes_out_and_space_returns() {
    let store = Store::new(256);
    let empty = store.json("status")["free_bytes"].as_u64().expect("it is a number");
    let base = contents(1, 800);
    store.done(&["import"], &["disk", &store.image("base", &base)]);
    store.done(&["snapshot"], &["disk", "monday"]);
    store.done(&["clone"], &["monday", "copy"]);
    let mut changed = base.clone();
    changed[100 * CHUNK..120 * CHUNK].copy_from_slice(&contents(2, 20));
    store.done(&["import"], &["other", &store.image("changed", &changed)]);

    assert!(store.exported("disk") == base && store.exported("copy") == base);
    assert!(store.exported("monday") == base && store.exported("other") == changed);
    assert_eq!(store.account("volumes", "disk", "unique_bytes"), 0, "the clone has the same");
    let unique = store.account("volumes", "other", "unique_bytes");
    assert!((80_000..200_000).contains(&unique), "{unique} bytes of the 20 chunks that differ");
    let text = store.done(&["delete-volume"], &["other", "--dry-run"]);
    assert!(text.contains("would become free"), "{text}");
    assert_eq!(store.account("volumes", "other", "used_bytes"), 820 * 8192 - 20 * 8192);

    let (code, said) = store.run(&["rollback"], &["disk", "monday"]);
    assert!(code == Some(2) && said.contains("--yes"), "without consent nothing is lost: {said}");
    store.done(&["rollback"], &["disk", "monday", "--yes"]);
    let answer = store.done(&["delete-snapshot"], &["monday", "--json", "--yes"]);
    assert!(!answer.contains("frees_bytes"), "only a dry run walks all maps: {answer}");
    store.done(&["delete-volume"], &["disk", "--yes"]);
    assert!(store.exported("copy") == base, "the last that refers to it keeps it");
    store.done(&["delete-volume"], &["copy", "--yes"]);
    store.done(&["delete-volume"], &["other", "--yes"]);
    store.done(&["clean"], &[]);
    let free = store.json("status")["free_bytes"].as_u64().expect("it is a number");
    assert!(free + 12 * MIB >= empty, "{free} free of {empty}");
}

#[test]
fn a_pool_gives_the_space_of_a_deleted_volume_back_to_its_host() {
    let store = Store::new(256);
    let held = || std::fs::metadata(store.path("pool")).expect("there is a pool").blocks() * 512;
    let empty = held();
    // 64 MiB, which compress to a half.
    store.done(&["import"], &["disk", &store.image("disk", &contents(3, 8192))]);
    let full = held();
    assert!(full >= empty + 32 * MIB, "{full} bytes after {empty}");
    store.done(&["delete-volume"], &["disk", "--yes"]);
    store.done(&["clean"], &[]);
    // A segment or two stay for the store's own work.
    assert!(held() <= full - 20 * MIB, "{} of {full} bytes", held());
}

#[test]
fn a_volume_is_set_back_to_its_own_snapshots_alone() {
    let store = Store::new(256);
    let (image, disk) = (contents(1, 40), contents(2, 80));
    store.done(&["import"], &["image", &store.image("image", &image)]);
    store.done(&["import"], &["disk", &store.image("disk", &disk)]);
    store.done(&["snapshot"], &["image", "monday"]);
    store.done(&["clone"], &["monday", "copy"]);
    for arguments in [&["--yes"][..], &["--dry-run"], &[]] {
        for volume in ["disk", "copy"] {
            let (code, said) = store.run(&["rollback"], &[&[volume, "monday"], arguments].concat());
            assert!(
                code == Some(2) && said.contains("snapshot of \"image\"") && said.contains("store clone"),
                "{said}"
            );
        }
    }
    assert!(store.exported("disk") == disk, "it is as it was");
    // The number of a deleted volume goes to no other volume while there is a snapshot of it.
    store.done(&["delete-volume"], &["image", "--yes"]);
    store.done(&["create-volume"], &["new", "1 MiB"]);
    let (code, said) = store.run(&["rollback"], &["new", "monday", "--yes"]);
    assert!(code == Some(2) && said.contains("a volume that is deleted"), "{said}");
    store.done(&["snapshot"], &["disk", "tuesday"]);
    let plan = store.done(&["rollback"], &["disk", "tuesday", "--dry-run"]);
    assert!(plan.contains("640.0 KiB") && plan.contains("would be lost"), "{plan}");
    let plan = store.done(&["delete-volume"], &["new", "--dry-run"]);
    assert!(plan.contains("\"new\" (1.0 MiB") && plan.contains("would become free"), "{plan}");
}

#[test]
fn no_command_loses_data_without_consent() {
    let store = Store::new(128);
    store.done(&["create-volume"], &["disk", "1 MiB"]);
    store.done(&["snapshot"], &["disk", "monday"]);
    for arguments in
        [&["rollback", "disk", "monday"][..], &["delete-snapshot", "monday"], &["delete-volume", "disk"]]
    {
        let (code, said) = store.run(&arguments[..1], &arguments[1..]);
        assert!(code == Some(2) && said.contains("--yes") && said.contains("would"), "{arguments:?}: {said}");
        let shown = store.done(&arguments[..1], &[&arguments[1..], &["--dry-run"]].concat());
        assert!(shown.contains("would"), "{arguments:?}: {shown}");
        let (code, _) = store.run(&arguments[..1], &[&arguments[1..], &["--dry-run", "--yes"]].concat());
        assert_eq!(code, Some(2), "one or the other");
    }
    assert_eq!(store.account("snapshots", "monday", "nominal_bytes"), MIB);
    assert_eq!(store.account("volumes", "disk", "nominal_bytes"), MIB);
}

#[test]
fn holes_take_no_space_on_the_way_in_and_out() {
    let store = Store::new(128);
    let data = contents(3, 4);
    sparse(&store.path("image"), &data, 40 * MIB, 64 * MIB);
    store.done(&["import"], &["disk", &store.path("image").display().to_string()]);
    assert_eq!(store.account("volumes", "disk", "used_bytes"), 4 * 8192);
    let out = store.path("out");
    store.done(&["export"], &["disk", &out.display().to_string()]);
    let allocated = std::fs::metadata(&out).expect("it works").blocks() * 512;
    assert!(allocated < MIB, "{allocated} bytes are allocated");
    assert!(std::fs::read(out).expect("it works") == std::fs::read(store.path("image")).expect("it works"));

    store.done(&["import"], &["odd", &store.image("odd", &data[..3 * CHUNK + 100])]);
    let odd = store.exported("odd");
    assert!(odd.len() == 4 * CHUNK && odd[..3 * CHUNK + 100] == data[..3 * CHUNK + 100]);
    assert!(odd[3 * CHUNK + 100..].iter().all(|byte| *byte == 0));
}

#[test]
fn what_is_no_image_leaves_no_volume() {
    let store = Store::new(128);
    std::fs::create_dir(store.path("folder")).expect("a folder");
    run_ok(Command::new("mkfifo").arg(store.path("fifo")));
    std::fs::write(store.path("empty"), "").expect("a file");
    for (source, why) in [
        ("folder", "is a folder"),
        ("fifo", "neither a file nor a block device"),
        ("empty", "is empty"),
        ("none", "cannot open"),
    ] {
        let (code, said) = store.run(&["import"], &["disk", &store.path(source).display().to_string()]);
        assert!(code == Some(2) && said.contains(why), "{source}: {said}");
        assert!(!store.done(&["volumes"], &[]).contains("disk"), "{source}");
    }
}

#[test]
fn an_export_takes_time_for_contents_and_not_for_holes() {
    let store = Store::new(128);
    let data = contents(5, 3);
    store.done(&["import"], &["disk", &store.image("image", &data)]);
    // At a third of a second for each GiB of hole, this would take three quarters of an hour.
    store.done(&["grow"], &["disk", "8 TiB"]);
    let image = store.path("exported");
    store.done(&["export"], &["disk", &image.display().to_string()]);
    let file = File::open(&image).expect("the image");
    let mut begins = vec![0; data.len()];
    file.read_exact_at(&mut begins, 0).expect("it is long");
    assert!(begins == data && file.metadata().expect("it is there").len() == 8 << 40);
}

#[test]
fn a_damaged_byte_is_found_with_volume_and_address() {
    let store = Store::new(128);
    let data = contents(4, 50);
    store.done(&["import"], &["disk", &store.image("image", &data)]);
    store.done(&["snapshot"], &["disk", "kept"]);
    assert!(store.done(&["scrub"], &[]).contains("50 chunks"));
    // LZ4 leaves the first eight bytes of a chunk as they are.
    let needle = &data[30 * CHUNK..30 * CHUNK + 8];
    let pool = std::fs::read(store.path("pool")).expect("it works");
    let at = pool.windows(8).position(|window| window == needle).expect("the chunk is stored");
    let file = File::options().write(true).open(store.path("pool")).expect("it works");
    file.write_all_at(&[!pool[at]], u64::try_from(at).expect("it is short")).expect("it works");
    let (code, said) = store.run(&["scrub"], &[]);
    assert_eq!(code, Some(1), "{said}");
    for name in ["disk", "kept"] {
        let text = format!("{name}: 8192 bytes at byte {} cannot be read", 30 * CHUNK);
        assert!(said.contains(&text), "{said}");
    }
    let (code, said) = store.run(&["export"], &["disk", &store.path("out").display().to_string()]);
    assert!(code == Some(2) && said.contains("damaged"), "{said}");
}

#[test]
fn an_import_that_is_killed_leaves_a_sound_store() {
    let store = Store::new(256);
    let kept = contents(5, 100);
    store.done(&["import"], &["kept", &store.image("small", &kept)]);
    let image = store.image("large", &contents(6, 20_000));
    let mut zcctl = Command::new(program("zcctl"));
    zcctl.args(["store", "import"]).arg(store.path("pool")).args(["disk", &image]).stderr(Stdio::null());
    let before = std::fs::metadata(store.path("pool")).expect("it works").blocks();
    let mut child = zcctl.spawn().expect("it works");
    // It is at work: the pool has grown.
    while std::fs::metadata(store.path("pool")).expect("it works").blocks() < before + 8192 {
        assert!(child.try_wait().expect("it works").is_none(), "the import ended before it was killed");
        std::thread::yield_now();
    }
    child.kill().expect("it works");
    assert_eq!(child.wait().expect("it works").signal(), Some(9), "it was killed before it ended");
    assert!(store.done(&["scrub"], &[]).contains(" 0 places damaged"));
    // A batch that the kill cut off counts as lost until that is acknowledged.
    if store.run(&["status"], &[]).1.contains("zcctl store accept-loss") {
        store.done(&["accept-loss"], &["--yes"]);
    }
    assert!(store.exported("kept") == kept);
}

#[test]
fn a_store_that_cannot_be_made_leaves_no_file() {
    let store = Store { dir: tempfile::tempdir().expect("it works") };
    let (code, said) = store.run(&["create"], &["--size", "8 MiB"]);
    assert!(code == Some(2) && said.contains("too small"), "{said}");
    assert!(!store.path("pool").exists(), "a second try would find a file of the wrong size");
    store.done(&["create"], &["--size", "128 MiB"]);
    // Earlier contents stay.
    std::fs::write(store.path("pool"), [0; 4096]).expect("it works");
    let (code, said) = store.run(&["create"], &[]);
    assert!(code == Some(2) && said.contains("too small") && store.path("pool").exists(), "{said}");
}

#[test]
fn what_is_there_is_not_lost_by_mistake() {
    let store = Store::new(128);
    let (code, said) = store.run(&["create"], &[]);
    assert!(code == Some(2) && said.contains("--force"), "{said}");
    store.done(&["create-volume"], &["disk", "1 TiB"]);
    assert_eq!(store.account("volumes", "disk", "nominal_bytes"), 1 << 40);
    for (command, arguments) in [
        ("create-volume", ["disk", "1 GiB"]),
        ("snapshot", ["none", "name"]),
        ("rollback", ["disk", "none"]),
        ("grow", ["disk", "1 GiB"]),
        ("create-volume", ["a/b", "1 GiB"]),
    ] {
        let (code, said) = store.run(&[command], &arguments);
        assert!(code == Some(2) && said.starts_with("zcctl: "), "{command}: {said}");
    }
    store.done(&["grow"], &["disk", "2 TiB"]);
    assert_eq!(store.account("volumes", "disk", "nominal_bytes"), 2 << 40);
    let locked = lock(&store.path("pool"));
    let (code, said) = store.run(&["volumes"], &[]);
    assert!(code == Some(2), "{said}");
    drop(locked);
}

/// As a daemon has it.
fn lock(path: &Path) -> File {
    let file = File::options().write(true).open(path).expect("it works");
    rustix::fs::flock(&file, rustix::fs::FlockOperation::NonBlockingLockExclusive).expect("it works");
    file
}
