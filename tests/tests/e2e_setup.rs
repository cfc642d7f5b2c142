//! `zcctl setup`: devices are listed and used in plans, and those in use or with contents are left alone.
//!
//! Needs root, for loop devices and mounts.

#![expect(clippy::expect_used, reason = "a test; what fails here is a failure")]

use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use serde_json::Value;
use zc_tests::{Daemon, MIB, Mount, bounded, program, read_file, require_tool, run_ok, same, temp_dir};

/// A loop device over a sparse file; detached on drop.
struct Disk {
    device: String,
}

impl Disk {
    fn new(image: &Path, mib: u64) -> Self {
        let file = std::fs::File::create(image).expect("an image");
        file.set_len(mib * MIB).expect("an image");
        Self::over(image)
    }

    /// A further device over an image.
    fn over(image: &Path) -> Self {
        let attached = run_ok(bounded("losetup").args(["--find", "--show"]).arg(image)).stdout;
        Self { device: String::from_utf8(attached).expect("a path").trim().to_owned() }
    }

    fn bytes(&self) -> Vec<u8> {
        read_file(self.device.as_ref())
    }
}

impl Drop for Disk {
    fn drop(&mut self) {
        Command::new(require_tool("losetup")).arg("--detach").arg(&self.device).status().ok();
    }
}

/// A machine with an empty device and one that has a file system.
struct Rig {
    empty: Disk,
    full: Disk,
    folder: tempfile::TempDir,
}

impl Rig {
    fn new() -> Self {
        let folder = temp_dir();
        let empty = Disk::new(&folder.path().join("empty.image"), 64);
        let full = Disk::new(&folder.path().join("full.image"), 16);
        run_ok(bounded("mkfs.ext4").arg("-q").arg(&full.device));
        Self { empty, full, folder }
    }

    fn config(&self) -> PathBuf {
        self.folder.path().join("zcached.toml")
    }

    fn setup(&self, arguments: &[&str]) -> Output {
        let at = |name: &str| self.folder.path().join(name);
        let mut setup = Command::new(program("zcctl"));
        setup.arg("setup").args(arguments).arg("--config").arg(self.config());
        setup.arg("--state-dir").arg(at("state")).arg("--socket").arg(at("control.sock"));
        setup.output().expect("zcctl runs")
    }

    fn refused(&self, arguments: &[&str], why: &str) {
        let output = self.setup(arguments);
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(output.status.code(), Some(2), "{arguments:?}: {said}");
        assert!(said.contains(why), "{said}");
        assert!(!self.config().exists(), "{arguments:?} wrote a configuration");
    }
}

fn done(output: &Output) -> String {
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    assert_eq!(output.status.code(), Some(0), "{said}{}", String::from_utf8_lossy(&output.stderr));
    said
}

#[test]
fn what_setup_makes_can_be_started_and_the_origin_is_as_it_was() {
    let rig = Rig::new();
    let before = rig.full.bytes();
    let listed: Value = serde_json::from_str(&done(&rig.setup(&["--json"]))).expect("JSON");
    let content = |disk: &Disk| {
        let found =
            listed["devices"].as_array().expect("a list").iter().find(|row| row["path"] == *disk.device);
        found.expect("it is listed")["content"].clone()
    };
    assert_eq!((content(&rig.empty), content(&rig.full)), ("empty".into(), "ext".into()));

    let origin = format!("data={}", rig.full.device);
    let wish = ["--cache", &rig.empty.device, "--origin", &origin];
    for dry in [&[][..], &["--dry-run"]] {
        let said = done(&rig.setup(&[&wish[..], dry].concat()));
        assert!(said.contains("Nothing is written") && said.contains("name = \"data\""), "{said}");
        let is_mounted =
            ["/dev/disk/by-id/zcached-data /mnt/data ext4", "mount /dev/disk/by-id/zcached-data /mnt/data"];
        assert!(is_mounted.iter().any(|line| said.contains(line)), "{said}");
    }
    assert!(!rig.config().exists() && rig.empty.bytes().iter().all(|byte| *byte == 0));

    let said = done(&rig.setup(&[&wish[..], &["--yes"]].concat()));
    assert!(said.contains("systemctl enable --now zcached") && said.contains("out of /etc/fstab"), "{said}");
    run_ok(Command::new(program("zcctl")).arg("check").arg(&rig.empty.device));
    same(&rig.full.bytes(), &before, "the origin");

    // No client of this test needs ublk.
    let nbd = rig.folder.path().join("nbd.sock");
    let text = std::fs::read_to_string(rig.config()).expect("the configuration");
    if text.contains("ublk.attach") {
        let text = text.replace("listen = []\n", &format!("listen = []\nunix = [\"{}\"]\n", nbd.display()));
        std::fs::write(rig.config(), text).expect("the configuration");
    } else {
        assert!(
            said.contains("zcctl attach data --nbd") && said.contains("no block devices of ublk"),
            "{said}"
        );
        assert!(text.contains(&format!("unix = [\"{}\"]", nbd.display())), "{text}");
    }
    run_ok(Command::new(program("zcached")).arg("check-config").arg(rig.config()));
    let daemon = Daemon::start(&rig.config());
    let uri = format!("nbd+unix:///data?socket={}", nbd.display());
    let mut client = zc_engine::NbdClient::connect(&uri.parse().expect("a URI")).expect("connect");
    same(&client.read(0, before.len()).expect("read"), &before, "the volume");
    client.disconnect().expect("goodbye");
    assert_eq!(daemon.terminate().code(), Some(0));
    same(&rig.full.bytes(), &before, "the origin");
}

#[test]
fn what_is_in_use_or_holds_something_is_left_alone() {
    let rig = Rig::new();
    let (empty, full) = (rig.empty.device.as_str(), rig.full.device.as_str());
    let before = rig.full.bytes();
    rig.refused(&["--cache", full, "--origin", empty, "--yes"], "it contains an ext2/3/4 file system");
    rig.refused(&["--cache", empty, "--origin", empty, "--yes"], "it overlaps");
    rig.refused(&["--cache", "/dev/null", "--origin", full, "--yes"], "is no disk");
    rig.refused(&["--origin", "/dev/none", "--yes"], "cannot use /dev/none");
    let mount = Mount::new(&["-o", "ro", full], rig.folder.path().join("mount"));
    rig.refused(&["--cache", empty, "--origin", full, "--yes"], "it is mounted at");
    mount.unmount();
    // Something in the middle.
    use std::os::unix::fs::FileExt as _;
    let device = std::fs::File::options().write(true).open(empty).expect("the device");
    device.write_all_at(b"x", 32 * MIB).and_then(|()| device.sync_all()).expect("a byte");
    drop(device);
    rig.refused(&["--cache", empty, "--origin", full, "--yes"], "it contains unknown data");
    let device = std::fs::File::options().write(true).open(empty).expect("the device");
    device.write_all_at(&[0], 32 * MIB).and_then(|()| device.sync_all()).expect("a byte");
    drop(device);
    same(&rig.full.bytes(), &before, "the origin");
    std::fs::write(rig.config(), "# mine\n").expect("a configuration");
    let output = rig.setup(&["--cache", empty, "--origin", full, "--yes"]);
    assert_eq!(output.status.code(), Some(2));
    assert!(String::from_utf8_lossy(&output.stderr).contains("setup does not change it"));
    assert_eq!(std::fs::read_to_string(rig.config()).expect("it is there"), "# mine\n");
}

/// A configuration whose cache is a file, with these origins.
fn configured(rig: &Rig, origins: &[&str]) -> PathBuf {
    let folder = rig.folder.path().display();
    let mut text = format!(
        "[cache]\npath = \"{folder}/cache.img\"\nsize = \"16 MiB\"\nstate_dir = \"{folder}/state\"\n[nbd]\nlisten = \
         []\n\
         unix = [\"{folder}/nbd.sock\"]\n[control]\nsocket = \"{folder}/control.sock\"\n"
    );
    for (number, origin) in origins.iter().enumerate() {
        text += &format!("[[volume]]\nname = \"v{number}\"\norigin = \"{origin}\"\n");
    }
    std::fs::write(rig.config(), text).expect("a configuration");
    rig.config()
}

/// Check and start both refuse a configuration, with the reason.
fn both_refuse(config: &Path, why: &str) {
    let commands = [&["check-config"][..], &["--config"]];
    for arguments in commands {
        let mut command = bounded("env");
        let output = command.arg(program("zcached")).args(arguments).arg(config).output().expect("it runs");
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(!output.status.success() && said.contains(why), "{arguments:?}: {said}");
    }
}

#[test]
fn check_config_refuses_the_devices_that_a_start_refuses() {
    let rig = Rig::new();
    let mount = Mount::new(&["-o", "ro", &rig.full.device], rig.folder.path().join("mount"));
    both_refuse(&configured(&rig, &[&rig.full.device]), "it is mounted at");
    mount.unmount();
    // Two loop devices over one file, which share no device number and no lock.
    let twin = Disk::over(&rig.folder.path().join("full.image"));
    both_refuse(
        &configured(&rig, &[&rig.full.device, &twin.device]),
        "overlaps on the underlying file or disk with volume \"v0\": origin",
    );
    // A file and a loop device over it.
    let image = rig.folder.path().join("full.image").display().to_string();
    both_refuse(&configured(&rig, &[&image, &twin.device]), "overlaps on the underlying file or disk with");
}
