//! The units for systemd: the exposure of a daemon that was taken over, as counted by `systemd-analyze security`.
//! Root's operations on files of the daemon: the rule for udev, and the scripts of the initramfs.

#![expect(clippy::unwrap_used, reason = "a test; what fails here is a failure")]

use std::path::Path;
use std::process::Command;

use zc_tests::require_tool;

/// Returns `true` if the unit's exposure is at most `threshold`, ten times the figure that the tool prints; 100 is the
/// worst.
fn is_within(unit: &Path, threshold: u32) -> bool {
    let mut command = Command::new(require_tool("systemd-analyze"));
    command.args(["security", "--offline=true", "--no-pager", &format!("--threshold={threshold}")]).arg(unit);
    command.output().unwrap().status.success()
}

#[test]
fn units_are_exposed_no_more_than_promised() {
    let configs = Path::new(env!("CARGO_MANIFEST_DIR")).join("../configs");
    for (unit, threshold) in
        [("zcached.service", 30), ("zcached-nbd.service", 15), ("zcached-events.service", 20)]
    {
        assert!(is_within(&configs.join(unit), threshold), "{unit}: more than {threshold}");
    }
    // The check can fail: a unit without any of the directives.
    let dir = tempfile::tempdir().unwrap();
    let bare = dir.path().join("bare.service");
    std::fs::write(&bare, "[Service]\nExecStart=/usr/bin/zcached\n").unwrap();
    assert!(!is_within(&bare, 30));
}

/// A file system on a volume in fstab, as systemd converts it to a unit.
const MOUNT: &str = "[Unit]\nAfter=zcached.service\nBefore=local-fs.target\n\
    [Mount]\nWhat=/dev/disk/by-id/zcached-vm\nWhere=/mnt/data\nType=ext4\n";

/// Returns systemd's complaints about a boot with these units, in which `/mnt/data` is on a volume.
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
    // The check can fail: services are ordered after local-fs.target by default.
    let usual = service.replace("DefaultDependencies=no\n", "");
    assert!(boot_problems(&[("zcached.service", usual)]).contains("ordering cycle"));
}

fn config(name: &str) -> String {
    let configs = Path::new(env!("CARGO_MANIFEST_DIR")).join("../configs");
    std::fs::read_to_string(configs.join(name)).unwrap()
}

/// udev and units act as root on these files, so no other user may write where they lie.
#[test]
fn root_acts_on_no_file_in_a_folder_of_the_daemon() {
    let rule = config("60-zcached.rules");
    // A file that is imported sets any property, and with it units that systemd starts.
    assert!(!rule.contains("IMPORT{file}") && !rule.contains("IMPORT{program}"), "{rule}");
    for line in rule.lines().filter(|line| line.contains("PROGRAM")) {
        assert!(line.contains("\"/bin/cat /run/zcached-system/"), "{line}");
    }
    assert_eq!(rule.matches("PROGRAM==").count(), 2);
    for unit in ["zcached.service", "zcached-nbd.service", "zcached.socket"] {
        assert!(config(unit).contains("ConditionPathExists=!/run/zcached-system/root\n"), "{unit}");
    }
    let folder = "d /run/zcached-system 0755 root root -\n";
    assert!(config("zcached.tmpfiles").contains(folder));
    let nbd = config("zcached-nbd.service");
    assert!(nbd.contains("User=zcached") && nbd.contains("RuntimeDirectory=zcached\n"), "{nbd}");
    for script in ["initramfs/local-top", "initramfs/shutdown", "deb/prerm"] {
        let text = config(script);
        assert!(
            !["root", "words", "leave", "state"].iter().any(|name| text.contains(&format!("zcached/{name}")))
        );
    }
}

/// The rule takes a name whose characters links have, and no other. Globs of udev are those of the shell.
#[test]
fn the_rule_for_udev_takes_names_of_volumes_and_nothing_else() {
    let rule = config("60-zcached.rules");
    let globs: Vec<&str> =
        rule.split("RESULT!=\"").skip(1).filter_map(|rest| rest.split('"').next()).collect();
    let [ublk, nbd] = globs[..] else { panic!("{globs:?}") };
    assert_eq!(ublk, nbd);
    let is_refused = |name: &str| {
        let script = format!("case $1 in {ublk}) exit 0 ;; esac; exit 1");
        let status = Command::new("sh").env("LC_ALL", "C").args(["-c", &script, "sh", name]).status();
        status.unwrap().success()
    };
    for name in ["db", "db-1.x", "a_b+C", "9"] {
        assert!(!is_refused(name), "{name}");
    }
    for name in
        ["a b", "../sda", "a/b", "SYSTEMD_WANTS=x", "a\nSYSTEMD_WANTS=x", "$env{X}", "%n", "\u{e9}", "a*"]
    {
        assert!(is_refused(name), "{name}");
    }
}

/// Runs the hook of mkinitramfs with this line in its settings, up to its checks; returns its output.
fn hook(state: &str) -> String {
    let dir = tempfile::tempdir().unwrap();
    let write = |name: &str, text: &str| {
        let path = dir.path().join(name);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(&path, text).unwrap();
        path.display().to_string()
    };
    let functions = write("functions", "");
    write("conf.d/zcached", &format!("{state}\n"));
    // A busybox that is missing is the first complaint behind the checks of the settings.
    let script = config("initramfs/hook").replace("/usr/share/initramfs-tools/hook-functions", &functions);
    let path = write("hook", &script.replace("command -v busybox", "false"));
    let output = Command::new("sh").arg(path).env("CONFDIR", dir.path()).output().unwrap();
    assert!(!output.status.success());
    String::from_utf8(output.stderr).unwrap()
}

#[test]
fn the_state_of_a_root_disk_is_found_by_no_label_and_mounted_for_files_alone() {
    for label in ["ZCACHED_STATE=LABEL=zcached-state", "ZCACHED_STATE=PARTLABEL=x"] {
        let said = hook(label);
        assert!(said.contains("any disk may have the label") && said.contains("UUID="), "{said}");
    }
    assert!(hook("").contains("does not set ZCACHED_STATE"));
    assert!(hook(&config("initramfs/zcached.conf")).contains("does not set ZCACHED_STATE"));
    for name in ["UUID=1b2c", "PARTUUID=1b2c", "/dev/disk/by-id/disk-part2"] {
        let said = hook(&format!("ZCACHED_STATE={name}"));
        assert!(said.contains("needs busybox"), "{name}: {said}");
    }
    let mounts = |script: &str| {
        let text = config(script);
        let mounts = text.lines().filter(|line| line.trim_start().starts_with("mount -t \"$("));
        mounts.map(str::to_owned).collect::<Vec<_>>()
    };
    for script in ["initramfs/local-top", "initramfs/daemon"] {
        let found = mounts(script);
        assert!(found.len() == 1 && found[0].contains("-o nodev,nosuid,noexec"), "{script}: {found:?}");
    }
}
