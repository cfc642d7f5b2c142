//! Configured paths on which an open blocks: the control plane still answers, and the daemon still ends.

#![expect(clippy::unwrap_used, reason = "a test; what fails here is a failure")]

use std::os::unix::fs::symlink;
use std::os::unix::net::UnixListener;
use std::path::Path;
use std::process::Command;

use rustix::process::Signal;
use serde_json::json;
use zc_tests::{FilteredFile, World, bounded, program, run_ok};

fn pipe(path: &Path) {
    run_ok(Command::new("mkfifo").arg(path));
}

/// Returns the output of `check-config` for a configuration that it must refuse.
fn check(config: &Path) -> String {
    let mut check = bounded("env");
    let output = check.arg(program("zcached")).arg("check-config").arg(config).output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(2), "{said}");
    said
}

#[test]
fn a_configuration_that_is_no_regular_file_is_refused_at_once() {
    let world = World::new(16, 16);
    let daemon = world.start();
    let config = world.path("zcached.toml");
    let text = std::fs::read(&config).unwrap();
    let reload = json!({ "cmd": "reload" });
    let kinds: [fn(&Path); 5] = [
        pipe,
        |path| drop(UnixListener::bind(path).unwrap()),
        |path| std::fs::create_dir(path).unwrap(),
        |path| symlink("/dev/zero", path).unwrap(),
        |path| {
            pipe(&path.with_extension("pipe"));
            symlink(path.with_extension("pipe"), path).unwrap();
        },
    ];
    for make in kinds {
        std::fs::remove_file(&config).unwrap();
        make(&config);
        let refused = world.control(&reload);
        assert!(refused["error"].as_str().unwrap().contains("cannot be read"), "{refused}");
        let candidate = world.control(&json!({ "cmd": "check-config", "path": config }));
        assert_eq!(candidate["ok"], false, "{candidate}");
        let known = world.control(&json!({ "cmd": "config" }));
        assert!(known["unread"].to_string().contains("cannot be read"), "{known}");
        daemon.signal(Signal::HUP);
        assert!(check(&config).contains("cannot be read"));
        assert!(!world.zcctl_output(&["volume", "remove", "disk"]).status.success());
        assert_eq!(world.status()["ok"], true);
        if config.is_dir() {
            std::fs::remove_dir(&config).unwrap();
        } else {
            std::fs::remove_file(&config).unwrap();
        }
        std::fs::write(&config, &text).unwrap();
    }
    assert_eq!(world.control(&reload)["ok"], true);
    assert_eq!(daemon.terminate().code(), Some(0));
}

#[test]
fn check_config_ends_whatever_the_configuration_names_blocks() {
    let mut world = World::new(16, 16);
    let daemon = world.start();
    assert_eq!(daemon.terminate().code(), Some(0));
    let stopped = world.path("pipe");
    pipe(&stopped);
    let place = stopped.display();
    let tls = ["tls_certificate", "tls_key", "tls_client_ca", "tls_client_crl"];
    for key in tls {
        let file = |other: &str| if other == key { place.to_string() } else { "/dev/null".to_owned() };
        let lines: Vec<_> = tls.iter().map(|other| format!("{other} = \"{}\"\n", file(other))).collect();
        world.nbd = format!("tls = \"required\"\n{}", lines.concat());
        assert!(check(&world.configure()).contains("cannot be read"), "{key}");
    }
    world.nbd = String::new();
    for mode in ["write-through", "read-only"] {
        world.volumes[0].2 = format!("origin = \"{place}\"\nmode = \"{mode}\"\n");
        assert!(check(&world.configure()).contains("neither a regular file nor a block device"));
    }
    world.volumes[0].2 = String::new();
    world.cache_path = stopped.clone();
    assert!(check(&world.configure()).contains("neither a regular file nor a block device"));
    world.cache_path = "cache.img".into();
    for entry in std::fs::read_dir(world.path("state")).unwrap() {
        let file = entry.unwrap().path();
        if file.extension().is_some_and(|end| end == "json") {
            std::fs::remove_file(&file).unwrap();
            pipe(&file);
        }
    }
    assert!(check(&world.configure()).contains("it is not a regular file"));
    pipe(&world.path("state/moved.json"));
    assert!(check(&world.configure()).contains("it is not a regular file"));
}

/// A file on a file server that is gone: FUSE, whose server is stopped.
#[test]
fn a_configuration_on_a_file_system_that_hangs_holds_up_its_reload_alone() {
    let world = World::new(16, 16);
    let daemon = world.start();
    let config = world.path("zcached.toml");
    let behind = world.path("behind.toml");
    std::fs::rename(&config, &behind).unwrap();
    let served = FilteredFile::failing(&world, &behind);
    symlink(served.path(), &config).unwrap();
    assert_eq!(world.control(&json!({ "cmd": "reload" }))["ok"], true, "while its server answers");
    let hanging = served.hang();
    let refused = world.control(&json!({ "cmd": "reload" }));
    assert!(refused["error"].as_str().unwrap().contains("does not answer"), "{refused}");
    assert_eq!(world.status()["ok"], true);
    // Each hangs on a thread of its own, up to a bound.
    std::thread::scope(|scope| {
        for _ in 0..6 {
            scope.spawn(|| assert_eq!(world.control(&json!({ "cmd": "reload" }))["ok"], false));
        }
    });
    daemon.until_logged("earlier commands still wait for it");
    assert_eq!(world.status()["ok"], true);
    daemon.signal(Signal::TERM);
    daemon.until_logged("audit: command begins: Stop");
    // The kernel keeps a process with calls that a file server has not answered.
    drop(hanging);
    assert_eq!(daemon.wait().code(), Some(0));
}
