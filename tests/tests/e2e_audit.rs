//! The audit log: connections, refusals, and operators' commands, each with a name and a verdict.

#![expect(clippy::unwrap_used, reason = "a test; what fails here is a failure")]

use std::io::{Read, Write};
use std::os::unix::fs::MetadataExt;
use std::os::unix::net::UnixStream;

use rustix::process::Signal;
use serde_json::json;
use zc_engine::NbdClient;
use zc_tests::{Daemon, World};

/// Lines of the audit log so far.
fn audit(daemon: &Daemon) -> Vec<String> {
    let log = std::fs::read_to_string(daemon.log_path()).unwrap();
    log.lines().filter(|line| line.contains("audit: ")).map(str::to_owned).collect()
}

/// Waits for a line that has all these words.
fn wait_for(world: &World, daemon: &Daemon, words: &[&str]) {
    let has = |line: &String| words.iter().all(|word| line.contains(word));
    world.stats_until(&format!("a line with {words:?}"), |_| audit(daemon).iter().any(has));
}

/// Waits for a second of the daemon's clock: refusals are logged once per second.
fn next_second(world: &World) {
    let uptime_ms = |stats: &serde_json::Value| stats["uptime_ms"].as_u64().unwrap();
    let until = uptime_ms(&world.stats()) + 1001;
    world.stats_until("a second", |stats| uptime_ms(stats) > until);
}

/// Requests an export by a name that appears in the log.
fn ask_for(world: &World, export: &str) {
    let uri = world.uri(export).parse().unwrap();
    NbdClient::connect(&uri).unwrap_err();
}

#[test]
fn clients_and_refusals_are_logged_with_peer_export_and_reason() {
    let world = World::new(16, 4);
    let daemon = world.start();
    let peer = format!("peer=user {}", std::fs::metadata("/proc/self").unwrap().uid());
    drop(world.connect("disk"));
    wait_for(&world, &daemon, &["client attached", &peer, "export=\"disk\"", "connection="]);
    wait_for(&world, &daemon, &["client gone", &peer, "export=\"disk\"", "connection="]);
    // A name of the client's choice cannot forge a line.
    ask_for(&world, "no%0Aaudit:%20client%20attached");
    wait_for(&world, &daemon, &["client refused: \"no\\naudit: client attached\": ", &peer]);
    // Not NBD at all. Refusals within the same second are counted in the next line.
    ask_for(&world, "other");
    next_second(&world);
    let mut stream = UnixStream::connect(world.path("nbd.sock")).unwrap();
    stream.write_all(b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n").unwrap();
    stream.read_to_end(&mut Vec::new()).unwrap();
    wait_for(&world, &daemon, &["client refused: \"", "unlogged=1", &peer]);
    let lines = audit(&daemon);
    assert!(!lines.iter().any(|line| line.contains("other")), "one line a second: {lines:?}");
    assert_eq!(lines.iter().filter(|line| line.contains("audit: client attached connection=")).count(), 1);
    assert_eq!(daemon.terminate().code(), Some(0));
}

#[test]
fn a_client_that_chooses_no_export_in_time_is_logged_as_refused() {
    let mut world = World::new(16, 4);
    world.nbd = "handshake_timeout = \"100 ms\"\n".to_owned();
    let daemon = world.start();
    let mut stream = UnixStream::connect(world.path("nbd.sock")).unwrap();
    stream.read_to_end(&mut Vec::new()).unwrap();
    wait_for(&world, &daemon, &["client refused: ", "peer=user "]);
    assert_eq!(daemon.terminate().code(), Some(0));
}

#[test]
fn commands_are_logged_with_user_and_verdict_and_looks_are_not() {
    let world = World::new(16, 4);
    let daemon = world.start();
    let user = format!("user=\"{}\"", std::fs::metadata("/proc/self").unwrap().uid());
    let _held = world.connect("disk");
    for look in ["status", "stats", "connections", "metrics"] {
        assert_eq!(world.control(&json!({ "cmd": look }))["ok"], true);
    }
    let lines = audit(&daemon);
    assert!(!lines.iter().any(|line| line.contains("command")), "{lines:?}");
    assert_eq!(world.control(&json!({ "cmd": "disconnect", "id": 987_654 }))["ok"], false);
    wait_for(&world, &daemon, &["command begins: Disconnect", "987654", &user]);
    wait_for(&world, &daemon, &["command refused: Disconnect", "987654", "no such connection", &user]);
    assert_eq!(world.control(&json!({ "cmd": "disconnect", "volume": "disk" }))["ok"], true);
    wait_for(&world, &daemon, &["client disconnected by an operator", "connection="]);
    wait_for(&world, &daemon, &["command done: Disconnect", "disk", &user]);
    daemon.signal(Signal::HUP);
    wait_for(&world, &daemon, &["command begins: Reload", "user=\"signal\""]);
    wait_for(&world, &daemon, &["command done: Reload", "user=\"signal\""]);
    std::fs::write(world.path("zcached.toml"), "nonsense").unwrap();
    daemon.signal(Signal::HUP);
    wait_for(&world, &daemon, &["command refused: Reload", "user=\"signal\""]);
    let log = daemon.log_path().to_owned();
    assert_eq!(daemon.terminate().code(), Some(0));
    let log = std::fs::read_to_string(log).unwrap();
    let stop = |line: &str| line.contains("command begins: Stop") && line.contains("user=\"signal\"");
    assert!(log.lines().any(stop), "{log}");
}

#[test]
fn the_filter_hides_the_audit_log_alone() {
    let mut world = World::new(16, 4);
    world.nbd = "[log]\nlevel = \"info,audit=off\"\n".to_owned();
    let daemon = world.start();
    drop(world.connect("disk"));
    assert_eq!(world.control(&json!({ "cmd": "reload" }))["ok"], true);
    let log = daemon.log_path().to_owned();
    assert_eq!(daemon.terminate().code(), Some(0));
    let log = std::fs::read_to_string(log).unwrap();
    assert!(log.contains(" INFO ") && !log.contains("audit: "), "{log}");
}
