//! Privileges that a serving daemon has given up, and the operator's information about them. The other end-to-end
//! tests run under the same bounds, which are on by default.

#![expect(clippy::unwrap_used, reason = "a test; what fails here is a failure")]

use std::os::unix::fs::{MetadataExt, PermissionsExt, chown};
use std::path::Path;

use serde_json::{Value, json};
use zc_tests::{Daemon, MIB, World};

/// A world whose daemon insists on these steps.
fn world(sandbox: &str) -> World {
    let mut world = World::new(16, 8);
    world.nbd = format!("[sandbox]\n{sandbox}\n");
    world
}

const REQUIRED: &str = "capabilities = \"required\"\nlandlock = \"required\"\nseccomp = \"required\"";

/// A line of the status of each of the daemon's threads.
fn of_threads(daemon: &Daemon, name: &str) -> Vec<String> {
    let threads = std::fs::read_dir(format!("/proc/{}/task", daemon.pid())).unwrap();
    let status =
        threads.map(|thread| std::fs::read_to_string(thread.unwrap().path().join("status")).unwrap());
    let line = |status: String| {
        let found = status.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'));
        found.unwrap().trim().to_owned()
    };
    status.map(line).collect()
}

fn error(answer: &Value) -> String {
    assert_eq!(answer["ok"], false, "{answer}");
    answer["error"].as_str().unwrap().to_owned()
}

#[test]
fn all_threads_are_bounded_and_the_status_tells() {
    let world = world(REQUIRED);
    let daemon = world.start();
    let mut client = world.connect("disk");
    client.write(0, &vec![7; 1 << 20]).unwrap();
    client.flush().unwrap();
    assert!(client.read(0, 1 << 20).unwrap() == vec![7; 1 << 20]);
    let sandbox = world.status()["sandbox"].clone();
    assert_eq!((&sandbox["landlock"], &sandbox["seccomp"]), (&json!(true), &json!(true)), "{sandbox}");
    assert_eq!(
        (&sandbox["no_new_privileges"], &sandbox["uid"]),
        (&json!(true), &json!(rustix_uid())),
        "{sandbox}"
    );
    let threads = of_threads(&daemon, "Seccomp");
    assert!(threads.len() >= 3 && threads.iter().all(|mode| mode == "2"), "{threads:?}");
    assert!(of_threads(&daemon, "NoNewPrivs").iter().all(|on| on == "1"));
    // CHOWN, DAC_OVERRIDE, FOWNER, IPC_LOCK, SYS_ADMIN, SYS_RESOURCE at most.
    let most: u64 = 1 | 1 << 1 | 1 << 3 | 1 << 14 | 1 << 21 | 1 << 24;
    for name in ["CapPrm", "CapEff", "CapInh"] {
        for set in of_threads(&daemon, name) {
            assert_eq!(u64::from_str_radix(&set, 16).unwrap() & !most, 0, "{name} {set}");
        }
    }
    drop(client);
    let log = daemon.log_path().to_owned();
    assert_eq!(daemon.terminate().code(), Some(0));
    let log = std::fs::read_to_string(log).unwrap();
    assert!(log.contains("landlock on, seccomp on"), "{log}");
}

fn rustix_uid() -> u32 {
    std::fs::metadata("/proc/self").unwrap().uid()
}

#[test]
fn a_reload_finds_images_in_the_folders_of_the_configuration_and_in_paths_alone() {
    let (elsewhere, allowed) = (zc_tests::temp_dir(), zc_tests::temp_dir());
    let mut world = world(&format!("{REQUIRED}\npaths = [\"{}\"]", allowed.path().display()));
    let daemon = world.start();
    let volume = |name: &str, dir: &Path| {
        let lines = format!("origin = \"{}/{name}.img\"\ncreate_size = {MIB}\n", dir.display());
        (name.to_owned(), MIB, lines)
    };
    let reload = |world: &World| {
        let _path = world.configure();
        world.control(&json!({ "cmd": "reload" }))
    };
    let known = world.volumes.clone();
    world.volumes.push(volume("far", elsewhere.path()));
    let refused = error(&reload(&world));
    assert!(refused.contains("ermission denied") && refused.contains("sandbox.paths"), "{refused}");
    world.volumes = known;
    world.volumes.push(volume("near", &world.path("")));
    world.volumes.push(volume("named", allowed.path()));
    let answer = reload(&world);
    assert_eq!(answer["ok"], true, "{answer}");
    for name in ["near", "named"] {
        world.connect(name).write(0, &[1; 512]).unwrap();
    }
    let recording =
        |path: &Path| json!({ "cmd": "record-start", "volume": "disk", "path": path.join("disk.zct") });
    let refused = error(&world.control(&recording(elsewhere.path())));
    assert!(refused.contains("sandbox.paths"), "{refused}");
    assert_eq!(world.control(&recording(allowed.path()))["ok"], true);
    assert_eq!(daemon.terminate().code(), Some(0));
}

#[test]
fn the_daemon_becomes_another_user_and_owns_what_it_makes() {
    let world = world(REQUIRED);
    let said = world.refused(&["--user", "no-such-user"]);
    assert!(said.contains("no user \"no-such-user\"") && said.contains("useradd"), "{said}");
    if rustix_uid() != 0 {
        let said = world.refused(&["--user", "54321:54321"]);
        assert!(said.contains("cannot become the user 54321"), "{said}");
        return;
    }
    let dir = world.path("");
    chown(&dir, Some(54321), Some(54321)).unwrap();
    let daemon = world.start_with(&["--user", "54321:54321"]);
    assert!(of_threads(&daemon, "Uid").iter().all(|ids| ids.split_whitespace().all(|id| id == "54321")));
    assert!(of_threads(&daemon, "CapPrm").iter().all(|set| set.trim_start_matches('0').is_empty()));
    world.connect("disk").write(0, &vec![7; 64 << 10]).unwrap();
    assert_eq!(world.status()["sandbox"]["uid"], 54321);
    assert_eq!(world.control(&json!({ "cmd": "reload" }))["ok"], true, "it reads its configuration again");
    for made in ["cache.img", "disk.img", "state", "nbd.sock"] {
        assert_eq!(std::fs::metadata(world.path(made)).unwrap().uid(), 54321, "{made}");
    }
    assert_eq!(daemon.terminate().code(), Some(0));

    // A denied path stops the start, and not a later reload.
    std::fs::set_permissions(world.origin("disk"), std::fs::Permissions::from_mode(0o600)).unwrap();
    chown(world.origin("disk"), Some(0), Some(0)).unwrap();
    let mut daemon = zc_tests::bounded("env");
    daemon.arg(zc_tests::program("zcached")).arg("--config").arg(world.configure());
    let output = daemon.args(["--user", "54321:54321"]).output().unwrap();
    assert!(!output.status.success());
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(said.contains("disk.img") && said.contains("ermission denied"), "{said}");
}

/// A process that is not dumpable belongs to root in /proc, whoever it runs as.
#[test]
fn core_dumps_are_off_unless_they_are_asked_for() {
    let user = if rustix_uid() == 0 { 54321 } else { rustix_uid() };
    for (lines, is_on) in [("", false), ("core_dumps = true", true)] {
        let world = world(&format!("{REQUIRED}\n{lines}"));
        chown(world.path(""), Some(user), None).unwrap();
        let named = format!("{user}:{user}");
        let daemon = world.start_with(&["--user", &named]);
        let owner = std::fs::metadata(format!("/proc/{}/environ", daemon.pid())).unwrap().uid();
        assert_eq!(owner, if is_on { user } else { 0 }, "{lines}");
        let limits = std::fs::read_to_string(format!("/proc/{}/limits", daemon.pid())).unwrap();
        let core = limits.lines().find(|line| line.starts_with("Max core file size")).unwrap();
        let is_zero = core.split_whitespace().filter(|word| *word == "0").count() == 2;
        assert!(is_on || is_zero, "{core}");
        let mut client = world.connect("disk");
        client.write(0, &vec![7; 1 << 20]).unwrap();
        assert!(client.read(0, 1 << 20).unwrap() == vec![7; 1 << 20]);
        drop(client);
        assert_eq!(daemon.terminate().code(), Some(0));
    }
    let world = world("capabilities = \"off\"\nlandlock = \"off\"\nseccomp = \"off\"");
    let daemon = world.start();
    let limits = std::fs::read_to_string(format!("/proc/{}/limits", daemon.pid())).unwrap();
    assert!(limits.lines().any(|line| line.starts_with("Max core file size        0 ")), "{limits}");
    assert_eq!(daemon.terminate().code(), Some(0));
}

/// Remains of a killed daemon, sockets, intent log and dirty data, must be accessible within the next one's bounds.
#[test]
fn a_daemon_that_was_killed_within_its_bounds_starts_again_within_them() {
    let mut world = world(REQUIRED);
    world.cache.push_str("dirty_high = \"90 %\"\ndirty_low = \"90 %\"\ndestage_idle = \"1 h\"\n");
    let lines = "mode = \"write-back\"\nmax_dirty_age = \"1 h\"\n";
    world.volumes.push(("late".to_owned(), 4 * MIB, lines.to_owned()));
    let mut arguments = Vec::new();
    if rustix_uid() == 0 {
        chown(world.path(""), Some(54321), Some(54321)).unwrap();
        arguments = vec!["--user", "54321:54321"];
    }
    let mut image = vec![0; 512];
    for cycle in 1..=3_u8 {
        let daemon = world.start_with(&arguments);
        for volume in ["disk", "late"] {
            let mut client = world.connect(volume);
            assert!(client.read(0, image.len()).unwrap() == image, "{volume} in cycle {cycle}");
        }
        image = [image, vec![cycle; 1 << 20]].concat();
        for volume in ["disk", "late"] {
            let mut client = world.connect(volume);
            client.write(0, &image).unwrap();
            client.flush().unwrap();
        }
        let sandbox = world.status()["sandbox"].clone();
        assert_eq!((&sandbox["landlock"], &sandbox["seccomp"]), (&json!(true), &json!(true)), "{sandbox}");
        assert!(of_threads(&daemon, "Seccomp").iter().all(|mode| mode == "2"));
        daemon.kill9();
    }
    let daemon = world.start_with(&arguments);
    assert!(world.connect("late").read(0, image.len()).unwrap() == image);
    assert_ne!(std::fs::read(world.origin("late")).unwrap()[..image.len()], image, "it was dirty data");
    assert!(world.zcctl_output(&["flush", "late"]).status.success());
    assert_eq!(daemon.terminate().code(), Some(0));
    assert!(std::fs::read(world.origin("late")).unwrap()[..image.len()] == image);
}

#[test]
fn ublk_and_another_user_do_not_go_together_and_steps_can_be_off() {
    let mut world = world("user = \"54321:54321\"");
    world.volumes[0].2 = "ublk.attach = true\n".to_owned();
    let said = world.refused(&[]);
    assert!(said.contains("ublk.attach needs root"), "{said}");
    let mut world = self::world("capabilities = \"off\"\nlandlock = \"off\"\nseccomp = \"off\"");
    let daemon = world.start();
    assert_eq!(world.status()["sandbox"], Value::Null);
    assert!(of_threads(&daemon, "Seccomp").iter().all(|mode| mode == "0"));
    assert_eq!(daemon.terminate().code(), Some(0));
    world.nbd = "[sandbox]\nseccomp = \"on\"\n".to_owned();
    let said = world.refused(&[]);
    assert!(said.contains("one of off, auto, required"), "{said}");
}
