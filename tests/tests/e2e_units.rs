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
