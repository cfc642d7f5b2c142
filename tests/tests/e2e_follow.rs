//! Input of scripts and supervisors: events, tables of words, scope of a stop, several mistakes at once.

#![expect(clippy::expect_used, reason = "a test; what fails here is a failure")]

use std::io::{BufRead, BufReader};
use std::os::unix::fs::PermissionsExt as _;
use std::process::Command;

use serde_json::{Value, json};
use zc_tests::{Companion, MIB, World, program};

#[test]
fn events_tell_what_begins_what_ends_and_that_the_daemon_went_and_came() {
    let mut world = World::new(16, 16);
    world.volumes.push(("late".to_owned(), MIB, String::new()));
    std::fs::create_dir(world.origin("late")).expect("nothing that can be opened");
    let daemon = world.start();
    let mut follow = Command::new(program("zcctl"));
    follow.args(["events", "--follow", "--socket"]).arg(world.path("control.sock"));
    let (follower, _input, output) = Companion::converse(&mut follow);
    let mut lines = BufReader::new(output).lines().map(|line| line.expect("events are text"));
    let mut next = || -> Value {
        serde_json::from_str(&lines.next().expect("it follows")).expect("a line is one JSON object")
    };
    let begun = next();
    assert_eq!((&begun["event"], &begun["change"]), (&json!("origin-missing"), &json!("begins")), "{begun}");
    assert_eq!(
        (&begun["volume"], &begun["level"], &begun["number"]),
        (&json!("late"), &json!("FAILED"), &json!(1))
    );
    std::fs::remove_dir(world.origin("late")).expect("it was ours");
    assert!(world.zcctl_output(&["reload"]).status.success());
    let ended = next();
    assert_eq!((&ended["event"], &ended["change"]), (&json!("origin-missing"), &json!("ends")), "{ended}");
    assert_eq!(next()["event"], "back-to-normal");
    let kept = world.zcctl_output(&["events", "--after", "1"]).stdout;
    assert_eq!(String::from_utf8_lossy(&kept).lines().count(), 2, "those after the first");
    assert_eq!(daemon.terminate().code(), Some(0));
    assert_eq!(next()["event"], "daemon-gone");
    let daemon = world.start();
    assert_eq!(next()["event"], "daemon-back");
    drop(follower);
    assert_eq!(daemon.terminate().code(), Some(0));
}

/// A program in the folder of hooks.
fn hook(world: &World, name: &str, lines: &str) {
    let folder = world.path("hooks");
    std::fs::create_dir_all(&folder).expect("cannot make the folder");
    let path = folder.join(name);
    std::fs::write(&path, format!("#!/bin/sh\n{lines}\n")).expect("cannot write a hook");
    std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o755)).expect("cannot change its mode");
}

#[test]
fn programs_run_for_each_event_and_none_holds_up_the_next_or_the_daemon() {
    let mut world = World::new(16, 16);
    world.volumes.push(("late".to_owned(), MIB, String::new()));
    std::fs::create_dir(world.origin("late")).expect("nothing that can be opened");
    // One hook hangs with a child that hangs, one fails, one prints its input.
    hook(&world, "10-hangs", "tail -f /dev/null &\ntail -f /dev/null");
    hook(&world, "20-fails", "exit 3");
    hook(
        &world,
        "30-tells",
        "echo \"its variables:\" $(env | grep -v ^PWD= | sort | cut -d= -f1)\n\
        echo \"$ZCACHED_EVENT $ZCACHED_CHANGE $ZCACHED_VOLUME $ZCACHED_NUMBER\"",
    );
    hook(&world, "40-shell.sh", "echo not a name of a hook");
    let daemon = world.start();
    let mut follow = Command::new(program("zcctl"));
    follow.args(["events", "--follow", "--exec-limit", "1", "--exec"]).arg(world.path("hooks"));
    let (follower, _input, output) =
        Companion::converse(follow.arg("--socket").arg(world.path("control.sock")));
    let mut lines = BufReader::new(output).lines().map(|line| line.expect("it is text"));
    let mut next = || lines.next().expect("it follows");
    assert!(next().starts_with("{\"change\":\"begins\",\"command\":"), "the event comes first");
    assert!(next().ends_with("10-hangs did not end within 1 s and was ended"));
    assert!(next().ends_with("20-fails ended with exit status: 3"));
    let event = "its variables: PATH ZCACHED_CHANGE ZCACHED_COMMAND ZCACHED_EVENT ZCACHED_FOLLOWS ZCACHED_LEVEL \
        ZCACHED_NUMBER ZCACHED_SOCKET ZCACHED_UNIX_S ZCACHED_UPTIME_MS ZCACHED_VOLUME ZCACHED_WHAT";
    assert_eq!(next(), event);
    assert_eq!(next(), "origin-missing begins late 1");
    // The end of an event is reported as well, with all hooks.
    std::fs::remove_dir(world.origin("late")).expect("it was ours");
    assert!(world.zcctl_output(&["reload"]).status.success());
    let before: Vec<_> = lines.by_ref().take_while(|line| line != "origin-missing ends late 2").collect();
    assert!(!before.iter().any(|line| line.contains("not a name")), "{before:?}");
    assert_eq!(daemon.terminate().code(), Some(0));
    assert!(lines.by_ref().any(|line| line.starts_with("daemon-gone")), "its end is an event");
    drop(follower);
}

#[test]
fn tables_for_scripts_are_words() {
    let mut world = World::new(16, 16);
    world.volumes.push(("back".to_owned(), MIB, "mode = \"write-back\"\n".to_owned()));
    let daemon = world.start();
    let text = |arguments: &[&str]| {
        let output = world.zcctl_output(arguments);
        assert_eq!(output.status.code(), Some(0), "{output:?}");
        String::from_utf8(output.stdout).expect("it is text")
    };
    let words = text(&["-o", "name,state,mode,size,device", "--no-headings", "--bytes", "status"]);
    assert_eq!(words, "disk\tserved\twrite-through\t16777216\t-\nback\tserved\twrite-back\t1048576\t-\n");
    let all = text(&["status", "--bytes"]);
    let counts: Vec<usize> = all.lines().map(|line| line.split_whitespace().count()).collect();
    assert_eq!(counts, [26; 3], "{all}");
    let _client = world.connect("back");
    let clients = text(&["connections", "--no-headings", "-o", "volume,listener"]);
    assert!(clients.starts_with("back\t") && clients.lines().count() == 1, "{clients}");
    let wrong = world.zcctl_output(&["status", "-o", "nam"]);
    let said = String::from_utf8_lossy(&wrong.stderr).into_owned();
    assert!(wrong.status.code() == Some(2) && said.contains("there are name, state"), "{said}");
    assert_eq!(daemon.terminate().code(), Some(0));
}

#[test]
fn the_cache_device_is_shown_with_what_it_holds_and_what_was_written_to_it() {
    let world = World::new(16, 16);
    let daemon = world.start();
    world.connect("disk").write(0, &vec![7; 1 << 20]).expect("a write");
    world.settled();
    let output = world.zcctl_output(&["cache", "show", "--json"]);
    assert_eq!(output.status.code(), Some(0), "{output:?}");
    let shown: Value = serde_json::from_slice(&output.stdout).expect("it is JSON");
    let number = |name: &str| shown[name].as_u64().unwrap_or_else(|| panic!("no {name} in {shown}"));
    let path = world.cache_file();
    assert_eq!((&shown["path"], &shown["healthy"]), (&json!(path), &json!(true)));
    assert_eq!((number("volumes"), number("dirty_bytes"), number("holds_bytes")), (1, 0, MIB));
    assert!((8 * MIB..=16 * MIB).contains(&number("size_bytes")), "{shown}");
    assert!(number("used_bytes") > 0 && number("written_bytes") > 0 && number("ram_bytes") > 0, "{shown}");
    assert!(number("ram_max_bytes") > number("ram_bytes"), "{shown}");
    let text = String::from_utf8(world.zcctl_output(&["cache", "show"]).stdout).expect("it is text");
    for part in ["device", "in use", "1.0 MiB of 1 volumes", "written", "memory"] {
        assert!(text.contains(part), "{part} in\n{text}");
    }
    assert_eq!(daemon.terminate().code(), Some(0));
}

#[test]
fn a_stop_names_the_clients_that_are_connected() {
    let world = World::new(16, 16);
    let daemon = world.start();
    let _clients = [world.connect("disk"), world.connect("disk")];
    let output = world.zcctl_output(&["stop"]);
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(said.contains("connected to volume disk: ") && said.contains(", 2 connections\n"), "{said}");
    assert!(said.ends_with("stopped\n"), "{said}");
    assert_eq!(daemon.wait().code(), Some(0));
}

#[test]
fn every_mistake_of_a_reload_has_a_line() {
    let world = World::new(16, 16);
    let daemon = world.start();
    let path = world.path("zcached.toml");
    let text = std::fs::read_to_string(&path).expect("it was written");
    let wrong = text.replace("weu_max_age", "weu_max_aeg").replace("unix =", "unxi =");
    std::fs::write(&path, wrong).expect("cannot write the configuration");
    let output = world.zcctl_output(&["reload"]);
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(2), "{said}");
    let named = |word: &str| said.lines().filter(|line| line.contains(word)).count();
    assert_eq!((named("weu_max_aeg"), named("unxi")), (1, 1), "{said}");
    assert!(!said.contains('\u{fffd}') && said.lines().count() >= 2, "{said}");
    assert_eq!(daemon.terminate().code(), Some(0));
}
