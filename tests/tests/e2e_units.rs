//! The units for systemd: what they leave a daemon that was taken over, as `systemd-analyze security` counts it.

#![expect(clippy::unwrap_used, reason = "a test; what fails here is a failure")]

use std::path::Path;
use std::process::Command;

use zc_tests::require_tool;

/// Whether the unit is exposed at most so much; ten times the figure that the tool prints, 100 is the worst.
fn is_within(unit: &Path, threshold: u32) -> bool {
    let mut command = Command::new(require_tool("systemd-analyze"));
    command.args(["security", "--offline=true", "--no-pager", &format!("--threshold={threshold}")]).arg(unit);
    command.output().unwrap().status.success()
}

#[test]
fn units_are_exposed_no_more_than_promised() {
    let configs = Path::new(env!("CARGO_MANIFEST_DIR")).join("../configs");
    for (unit, threshold) in [("zcached.service", 30), ("zcached-nbd.service", 15)] {
        assert!(is_within(&configs.join(unit), threshold), "{unit}: more than {threshold}");
    }
    // The check can fail: a unit without any of the directives.
    let dir = tempfile::tempdir().unwrap();
    let bare = dir.path().join("bare.service");
    std::fs::write(&bare, "[Service]\nExecStart=/usr/bin/zcached\n").unwrap();
    assert!(!is_within(&bare, 30));
}

/// What fstab says of a file system on a volume, as systemd makes it a unit.
const MOUNT: &str = "[Unit]\nAfter=zcached.service\nBefore=local-fs.target\n\
    [Mount]\nWhat=/dev/disk/by-id/zcached-vm\nWhere=/mnt/data\nType=ext4\n";

/// What systemd has to say of a boot with these units, in which `/mnt/data` is on a volume.
fn boot_problems(units: &[(&str, String)]) -> String {
    let dir = tempfile::tempdir().unwrap();
    let want = |target: &str, unit: &str| {
        let wants = dir.path().join(target);
        std::fs::create_dir_all(&wants).unwrap();
        std::os::unix::fs::symlink(format!("../{unit}"), wants.join(unit)).unwrap();
    };
    for (name, text) in units {
        // The program is not installed here.
        std::fs::write(dir.path().join(name), text.replace("/usr/bin/zcached ", "/bin/true ")).unwrap();
    }
    std::fs::write(dir.path().join("mnt-data.mount"), MOUNT).unwrap();
    want("local-fs.target.requires", "mnt-data.mount");
    want("multi-user.target.wants", "zcached.service");
    if units.iter().any(|(name, _)| *name == "zcached.socket") {
        want("sockets.target.wants", "zcached.socket");
    }
    let mut command = Command::new(require_tool("systemd-analyze"));
    // The units of this machine's own systemd come after ours.
    command.env("SYSTEMD_UNIT_PATH", format!("{}:", dir.path().display()));
    let output = command.args(["verify", "--man=no", "multi-user.target"]).output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    said.lines()
        .filter(|line| line.contains("cycle") || line.contains("zcached"))
        .collect::<Vec<_>>()
        .join("\n")
}

#[test]
fn a_boot_with_a_file_system_on_a_volume_has_no_ordering_cycle() {
    let configs = Path::new(env!("CARGO_MANIFEST_DIR")).join("../configs");
    let [service, socket] = ["zcached.service", "zcached.socket"]
        .map(|name| std::fs::read_to_string(configs.join(name)).unwrap());
    assert_eq!(boot_problems(&[("zcached.service", service.clone())]), "");
    // With a socket that systemd opens.
    let with_socket = service.replace("# Requires=zcached.socket", "Requires=zcached.socket");
    assert_eq!(boot_problems(&[("zcached.service", with_socket), ("zcached.socket", socket)]), "");
    // The check can fail: services come behind local-fs.target unless they say otherwise.
    let usual = service.replace("DefaultDependencies=no\n", "");
    assert!(boot_problems(&[("zcached.service", usual)]).contains("ordering cycle"));
}
