//! `zcctl volume add` and `set` with a configuration that others change, too: several commands at once, settings that
//! take a restart, and a configuration that is mounted as a single file.

#![expect(clippy::expect_used, reason = "a test; what fails here is a failure")]

use std::path::Path;
use std::process::{Command, Output};

use zc_tests::{Daemon, World, program, run_ok};

fn said(output: &Output) -> String {
    let said = [output.stdout.clone(), output.stderr.clone()].concat();
    String::from_utf8_lossy(&said).into_owned()
}

fn status_of(world: &World, volume: &str) -> serde_json::Value {
    World::volume_of(&world.status(), volume).expect("it is served")
}

#[test]
fn commands_at_once_wait_for_each_other_and_all_succeed() {
    let world = World::new(32, 16);
    let _daemon = world.start();
    let spawn = |arguments: &[&str]| {
        let mut zcctl = Command::new(program("zcctl"));
        zcctl.args(arguments).arg("--socket").arg(world.control_socket());
        zcctl.stdout(std::process::Stdio::piped()).stderr(std::process::Stdio::piped());
        zcctl.spawn().expect("cannot start zcctl")
    };
    let names: Vec<String> = (0..6).map(|number| format!("v{number}")).collect();
    let origins: Vec<String> = names.iter().map(|name| world.origin(name).display().to_string()).collect();
    let mut commands: Vec<_> = names
        .iter()
        .zip(&origins)
        .map(|(name, origin)| spawn(&["volume", "add", name, "--origin", origin, "--size", "8MiB"]))
        .collect();
    commands.push(spawn(&["volume", "set", "disk", "limits.iops=100"]));
    commands.push(spawn(&["volume", "pin", "disk", "0-1MiB"]));
    for command in commands {
        let output = command.wait_with_output().expect("it ends");
        assert_eq!(output.status.code(), Some(0), "{}", said(&output));
    }
    for name in &names {
        status_of(&world, name);
    }
    let text = std::fs::read_to_string(world.path("zcached.toml")).expect("the configuration");
    assert!(text.contains("iops = 100") && text.contains("pin"), "{text}");
}

#[test]
fn a_mode_that_takes_a_restart_is_reported_and_leaves_nothing_dirty_behind() {
    let mut world = World::new(64, 16);
    world.cache.push_str("destage_idle = \"1 h\"\n");
    world.volumes[0].2 = "mode = \"write-back\"\nmax_dirty_age = \"1 d\"\n".to_owned();
    let daemon = world.start();
    let mut client = world.connect("disk");
    client.write(0, &[7; 65536]).expect("write");
    client.flush().expect("flush");
    let set = |mode: &str| world.zcctl_output(&["volume", "set", "disk", mode]);
    let output = set("mode=read-only");
    let text = said(&output);
    assert_eq!(output.status.code(), Some(1), "{text}");
    assert!(
        text.contains("needs a restart") && text.contains("mode") && text.contains("until then"),
        "{text}"
    );
    assert!(!text.contains("in force"), "{text}");
    // It takes writes until then, and its origin gets them.
    assert_eq!(status_of(&world, "disk")["info"]["mode"], "write-through");
    client.write(65536, &[8; 65536]).expect("write");
    world.stats_until("the origin has all", |stats| stats["dirty"]["disk"]["bytes"] == 0);
    // Reverted, it is as before; repeated, it is reported again.
    assert_eq!(set("mode=write-back").status.code(), Some(0));
    assert_eq!(status_of(&world, "disk")["info"]["mode"], "write-back");
    client.write(0, &[9; 65536]).expect("write");
    for _ in 0..2 {
        assert_eq!(set("mode=read-only").status.code(), Some(1));
    }
    let output = world.zcctl_output(&["volume", "set", "disk", "mode=read-only", "--json"]);
    let answer: serde_json::Value = serde_json::from_slice(&output.stdout).expect("JSON");
    assert!(answer["needs_restart"].to_string().contains("mode"), "{answer}");
    let refused = said(&world.zcctl_output(&["set-mode", "disk", "read-only"]));
    assert!(refused.contains("zcctl volume set disk mode=read-only"), "{refused}");
    world.stats_until("the origin has all", |stats| stats["dirty"]["disk"]["bytes"] == 0);
    drop(client);
    assert_eq!(daemon.terminate().code(), Some(0));
    let daemon = Daemon::start(&world.path("zcached.toml"));
    assert_eq!(status_of(&world, "disk")["info"]["mode"], "read-only");
    assert!(world.connect("disk").read(0, 65536).expect("read") == [9; 65536]);
    assert_eq!(world.zcctl_output(&["status"]).status.code(), Some(0));
    assert_eq!(set("mode=write-back").status.code(), Some(1), "and back");
    assert_eq!(daemon.terminate().code(), Some(0));
}

/// A file mounted over another one, as `podman --volume FILE:FILE` does.
struct Bound<'a>(&'a Path);

impl<'a> Bound<'a> {
    fn new(from: &Path, to: &'a Path) -> Self {
        run_ok(Command::new("mount").arg("--bind").arg(from).arg(to));
        Self(to)
    }
}

impl Drop for Bound<'_> {
    fn drop(&mut self) {
        Command::new("umount").arg("-l").arg(self.0).status().ok();
    }
}

#[test]
fn a_configuration_that_is_mounted_as_a_single_file_is_never_taken_for_another() {
    let world = World::new(16, 16);
    let config = world.configure();
    let host = world.path("host.toml");
    std::fs::copy(&config, &host).expect("copy");
    let _bound = Bound::new(&host, &config);
    let _daemon = Daemon::start(&config);
    for arguments in [
        &["volume", "set", "disk", "limits.iops=100"][..],
        &["volume", "add", "new", "--origin", "/srv/none"],
        &["volume", "remove", "disk"],
    ] {
        let output = world.zcctl_output(arguments);
        let text = said(&output);
        assert!(output.status.code() == Some(2) && text.contains("mount its directory"), "{text}");
        assert!(!text.contains("EBUSY"), "{text}");
    }
    // An edit in place is read.
    let text = std::fs::read_to_string(&host).expect("the configuration");
    let edited = format!("{text}[log]\nlevel = \"debug\"\n");
    std::fs::write(&host, &edited).expect("edit");
    let output = world.zcctl_output(&["reload"]);
    assert!(output.status.success() && said(&output).contains("log.level"), "{}", said(&output));
    // A file that takes its place on the host is not there for the daemon.
    let next = world.path("next.toml");
    std::fs::write(&next, text).expect("another file");
    std::fs::rename(&next, &host).expect("takes its place");
    let output = world.zcctl_output(&["reload"]);
    let text = said(&output);
    assert!(output.status.code() == Some(2) && text.contains("mounted as a single file"), "{text}");
    assert!(!text.contains("applied -"), "{text}");
}
