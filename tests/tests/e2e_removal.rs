//! Removal of the package: refused if it would strand dirty data or remove a volume in use.

#![expect(clippy::expect_used, reason = "a test; what fails here is a failure")]

use std::process::{Command, Output};

use zc_tests::{MIB, World, program, workspace};

/// Runs a package's script as a package manager does, with our programs.
fn script(world: &World, path: &str, argument: &str) -> Output {
    let programs = program("zcctl").parent().expect("a folder").display().to_string();
    let search = format!("{programs}:{}", std::env::var("PATH").unwrap_or_default());
    let mut shell = Command::new("sh");
    shell.arg(workspace().join(path)).arg(argument);
    shell.env("PATH", search).env("ZCACHED_SOCKET", world.control_socket());
    shell.output().expect("sh runs")
}

#[test]
fn a_package_stays_while_dirty_data_or_clients_need_the_daemon() {
    let mut world = World::new(64, 16);
    world.volumes[0].2 = "mode = \"write-back\"\nmax_dirty_age = \"1 d\"\n".to_owned();
    world.cache.push_str("destage_idle = \"1 h\"\n");
    let daemon = world.start();
    let mut client = world.connect("disk");
    client.write(MIB, &vec![7; 1 << 20]).expect("a write");
    client.flush().expect("a flush");
    let packages = [("configs/deb/prerm", "remove"), ("configs/rpm/preun", "0")];
    for (path, argument) in packages {
        let output = script(&world, path, argument);
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(output.status.code(), Some(1), "{path}: {said}");
        assert!(
            said.contains("has 1.0 MiB of dirty data") && said.contains("is connected to volume"),
            "{path}: {said}"
        );
        assert!(said.contains("Type `zcctl stop --flush`"), "{path}: {said}");
    }
    client.disconnect().expect("goodbye");
    let output = script(&world, packages[0].0, packages[0].1);
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(!output.status.success() && !said.contains("is connected"), "{said}");
    assert!(!world.serves("disk").is_null(), "nothing was stopped");
    assert!(world.zcctl_output(&["stop", "--flush"]).status.success());
    assert_eq!(daemon.wait().code(), Some(0));
    let mut expected = vec![0; 16 << 20];
    expected[1 << 20..2 << 20].fill(7);
    world.origin_is("disk", &expected);
    // No daemon runs, and no cache is in debt. The scripts have nothing to stop where there is no systemd.
    let output = world.zcctl_output(&["stop", "--dry-run"]);
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
}
