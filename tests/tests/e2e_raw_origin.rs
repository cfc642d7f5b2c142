//! A raw block device as origin that another program writes while zcached is stopped: the next start notices.
//!
//! Needs root, for loop devices and mounts.

#![expect(clippy::expect_used, reason = "a test; what fails here is a failure")]

use std::path::{Path, PathBuf};
use std::process::Command;

use zc_tests::{Daemon, MIB, Mount, World, bounded, read_file, require_tool, run_ok, same};

/// A loop device over a sparse file; detached on drop.
struct Disk {
    device: PathBuf,
}

impl Disk {
    fn new(world: &World, mib: u64) -> Self {
        let image = world.path("disk.image");
        let file = std::fs::File::create(&image).expect("cannot make the image");
        file.set_len(mib * MIB).expect("cannot make the image");
        let attach = run_ok(bounded("losetup").args(["--find", "--show"]).arg(&image)).stdout;
        let device = String::from_utf8(attach).expect("a path").trim().into();
        Self { device }
    }

    fn text(&self) -> &str {
        self.device.to_str().expect("a path")
    }

    fn make(&self, file_system: &str) {
        let mut mkfs = bounded(&format!("mkfs.{file_system}"));
        run_ok(mkfs.arg("-q").arg(&self.device));
    }

    /// Mounts the raw disk, applies `change`, and unmounts.
    fn mounted(&self, world: &World, options: &str, change: impl FnOnce(&Path)) {
        let mount = Mount::new(&["-o", options, self.text()], world.path("mount"));
        change(mount.path());
        mount.unmount();
    }
}

impl Drop for Disk {
    fn drop(&mut self) {
        Command::new(require_tool("losetup")).arg("--detach").arg(&self.device).status().ok();
    }
}

/// A world whose one volume has a raw disk as origin, and whose cache takes all of it.
fn world(mib: u64, lines: &str) -> (World, Disk) {
    let mut world = World::new(2 * mib, mib);
    let disk = Disk::new(&world, mib);
    world.cache.push_str("direct = false\n");
    world.volumes[0].2 = format!("origin = \"{}\"\n{lines}", disk.text());
    (world, disk)
}

/// Reads the whole volume through the cache, so that it is there, and compares.
fn read_all(world: &World, disk: &Disk, what: &str) {
    let expected = read_file(&disk.device);
    let mut client = world.connect("disk");
    for (index, piece) in expected.chunks(1 << 20).enumerate() {
        let offset = u64::try_from(index).expect("small") * MIB;
        same(&client.read(offset, piece.len()).expect("read"), piece, what);
    }
    world.settled();
}

/// Returns the reason of the volume's cold start; empty without one.
fn cold_reason(world: &World) -> String {
    let status = world.status();
    let volumes = status["volumes"].as_array().expect("volumes are listed");
    volumes[0]["info"]["cold_reason"].as_str().unwrap_or_default().to_owned()
}

fn stop(daemon: Daemon) {
    assert_eq!(daemon.terminate().code(), Some(0));
}

/// As after a restart of the machine: the kernel's counts prove nothing.
fn forget_boot(world: &World) {
    let folder = std::fs::read_dir(world.path("state")).expect("the state directory is there");
    for file in folder.map(|entry| entry.expect("an entry").path()) {
        if file.extension().is_some_and(|extension| extension == "json") {
            let text = std::fs::read_to_string(&file).expect("the state is text");
            let mut state: serde_json::Value = serde_json::from_str(&text).expect("the state is JSON");
            let written = &mut state["volumes"]["disk"]["seen"]["written"];
            assert!(written["sectors"].is_u64(), "{text}");
            written["boot_id"] = "another".into();
            std::fs::write(&file, state.to_string()).expect("cannot write the state");
        }
    }
}

/// Starts, expects a cold volume and right bytes, and stops.
fn is_cold(world: &World, disk: &Disk, why: &str) {
    let daemon = world.start();
    let said = cold_reason(world);
    assert!(said.starts_with("the origin was written since") && said.contains(why), "{why}: {said}");
    read_all(world, disk, why);
    stop(daemon);
}

/// Starts, expects a warm volume, and stops.
fn is_warm(world: &World, disk: &Disk) {
    let daemon = world.start();
    assert_eq!(cold_reason(world), "");
    world.loaded();
    read_all(world, disk, "warm");
    assert!(world.counter("read_hits") > 0, "{}", world.stats());
    stop(daemon);
}

fn change_directories(root: &Path) {
    for old in ["first", "second"] {
        std::fs::remove_dir(root.join(old)).ok();
    }
    for new in ["third", "fourth", "fifth"] {
        std::fs::create_dir(root.join(new)).expect("cannot make a directory");
        std::fs::remove_dir(root.join(new)).expect("cannot remove a directory");
    }
    std::fs::create_dir(root.join("first")).expect("cannot make a directory");
}

fn a_mount_is_noticed(file_system: &str, mib: u64) {
    let (world, disk) = world(mib, "");
    disk.make(file_system);
    disk.mounted(&world, "rw", |root| std::fs::create_dir(root.join("second")).expect("mkdir"));
    let daemon = world.start();
    read_all(&world, &disk, "the first time");
    stop(daemon);
    is_warm(&world, &disk);
    for is_same_boot in [true, false, false] {
        disk.mounted(&world, "rw", change_directories);
        if !is_same_boot {
            forget_boot(&world);
        }
        is_cold(&world, &disk, "differs (byte");
        is_warm(&world, &disk);
    }
    // A mount alone is enough, if it writes anything: that of btrfs does not.
    let before = read_file(&disk.device);
    disk.mounted(&world, "rw", |_| ());
    forget_boot(&world);
    if read_file(&disk.device) == before {
        assert_eq!(file_system, "btrfs");
        is_warm(&world, &disk);
    } else {
        is_cold(&world, &disk, "differs (byte");
    }
}

#[test]
fn a_mount_of_ext4_is_noticed_each_time() {
    a_mount_is_noticed("ext4", 64);
}

#[test]
fn a_mount_of_xfs_is_noticed_each_time() {
    a_mount_is_noticed("xfs", 320);
}

#[test]
fn a_mount_of_btrfs_is_noticed_each_time() {
    a_mount_is_noticed("btrfs", 128);
}

#[test]
fn a_write_to_no_landmark_is_noticed_within_a_boot() {
    let (world, disk) = world(64, "");
    let daemon = world.start();
    read_all(&world, &disk, "the first time");
    stop(daemon);
    let mut dd = bounded("dd");
    dd.args(["if=/dev/urandom", "bs=4096", "count=1", "seek=5000", "conv=notrunc,fsync"]);
    run_ok(dd.arg(format!("of={}", disk.text())));
    is_cold(&world, &disk, "the kernel counts 8 more sectors");
    // After a kill zcached itself may have written: then writes by others are not reported.
    let daemon = world.start();
    world.connect("disk").write(0, &[3; 4096]).expect("write");
    daemon.kill9();
    let daemon = world.start();
    assert_eq!(cold_reason(&world), "");
    read_all(&world, &disk, "after a kill");
    stop(daemon);
}

#[test]
fn dirty_data_is_not_written_over_what_another_program_wrote() {
    let lines = "mode = \"write-back\"\nmax_dirty_age = \"24 h\"\n";
    let (mut world, disk) = world(64, lines);
    world.cache.push_str("destage_idle = \"1 h\"\n");
    disk.make("ext4");
    let daemon = world.start();
    let mut client = world.connect("disk");
    client.write(32 * MIB, &[7; 65536]).expect("write");
    client.flush().expect("flush");
    assert_eq!(world.zcctl_output(&["stop", "--keep-dirty"]).status.code(), Some(0));
    assert_eq!(daemon.wait().code(), Some(0));
    disk.mounted(&world, "rw", change_directories);
    let before = read_file(&disk.device);
    for _ in 0..2 {
        let said = world.refused(&[]);
        for part in
            ["was written since zcached last stopped cleanly", "--trust-dirty disk", "--drop-dirty disk"]
        {
            assert!(said.contains(part), "{part} in {said}");
        }
        same(&read_file(&disk.device), &before, "a refused start writes nothing");
    }
    let daemon = world.start_with(&["--drop-dirty", "disk"]);
    read_all(&world, &disk, "cached data was dropped");
    stop(daemon);
}

#[test]
fn a_cache_that_comes_back_after_another_served_the_disk_says_so() {
    let (mut world, disk) = world(16, "");
    let daemon = world.start();
    read_all(&world, &disk, "the first cache");
    stop(daemon);
    world.cache_path = "other.img".into();
    let daemon = world.start();
    world.connect("disk").write(8 * MIB, &[9; 4096]).expect("write");
    read_all(&world, &disk, "the other cache");
    stop(daemon);
    world.cache_path = "cache.img".into();
    let daemon = world.start();
    let said = cold_reason(&world);
    assert!(said.starts_with("the origin was served with the cache"), "{said}");
    assert!(said.contains("other.img since this cache last had it"), "{said}");
    read_all(&world, &disk, "the first cache again");
    stop(daemon);
}
