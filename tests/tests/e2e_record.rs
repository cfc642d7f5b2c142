//! Recordings for their user: `zcctl record`, `zcsim info`, kills, refusals.
//!
//! That a recording replays to the daemon's own counters is in `e2e_agree`.

#![expect(clippy::expect_used, reason = "a test; what fails here is a failure")]

use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::process::Command;

use serde_json::{Value, json};
use zc_tests::{MIB, World, program, run_ok};

fn info(trace: &Path) -> Value {
    let output = run_ok(Command::new(program("zcsim")).args(["info", "--json"]).arg(trace));
    serde_json::from_slice(&output.stdout).expect("JSON")
}

fn start(world: &World, further: &[&str]) -> Result<(), String> {
    let to = world.path("trace").display().to_string();
    let output = world.zcctl_output(&[&["record", "start", "disk", "--to", &to], further].concat());
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    if output.status.success() { Ok(()) } else { Err(said) }
}

fn recording(world: &World) -> Value {
    world.control(&json!({ "cmd": "record-status" }))["recordings"][0].clone()
}

#[test]
fn a_volume_is_recorded_and_told() {
    let world = World::new(16, 32);
    let daemon = world.start();
    assert_eq!(start(&world, &[]), Ok(()));
    let said = start(&world, &[]).expect_err("it is being recorded");
    assert!(said.contains("is being recorded"), "{said}");
    let mut client = world.connect("disk");
    client.write(MIB, &[7; 65536]).expect("a write");
    client.write(3 * MIB + 100, b"a little").expect("a write");
    client.read(MIB, 65536).expect("a read");
    client.flush().expect("a flush");
    world.inserted();
    let status = recording(&world);
    assert_eq!((&status["volume"], &status["ended"]), (&json!("disk"), &Value::Null));
    let output = world.zcctl_output(&["record", "stop", "disk", "--json"]);
    let answer: Value = serde_json::from_slice(&output.stdout).expect("JSON");
    assert_eq!((&answer["ended"], &answer["lost"]), (&json!("asked"), &json!(0)), "{answer}");
    let trace = world.path("trace");
    let mode = std::fs::metadata(&trace).expect("the file is there").permissions().mode();
    assert_eq!(mode & 0o777, 0o600);
    let answer = info(&trace);
    // The small write read its sector, and wrote it.
    let counts = ["reads", "writes"].map(|kind| answer[kind]["requests"].clone());
    assert_eq!((counts, &answer["flushes"]), ([json!(2), json!(2)], &json!(1)), "{answer}");
    assert_eq!((&answer["bad_lines"], &answer["recorded"]["ended"]), (&json!(0), &json!("asked")));
    // Eight extents of one content that compresses well.
    assert_eq!(answer["writes"]["bytes"], json!(65536 + 512));
    assert!(answer["compression_ratio"]["lz4"].as_f64() > Some(3.0), "{answer}");
    let said = start(&world, &[]).expect_err("the file is there");
    assert!(said.contains("cannot make the file"), "{said}");
    let said = world.zcctl_output(&["record", "stop", "disk"]);
    let why = String::from_utf8_lossy(&said.stderr).into_owned();
    assert!(!said.status.success() && why.contains("is not being recorded"), "it was stopped: {why}");
    assert!(why.contains(&trace.display().to_string()), "{why}");
    assert_eq!(recording(&world)["ended"], json!("asked"), "status still tells of it");
    let said = world.zcctl_output(&["record", "stop", "nothing"]);
    assert!(String::from_utf8_lossy(&said.stderr).contains("there is no volume"));
    assert!(daemon.terminate().success());
}

#[test]
fn a_recording_that_is_full_ends_by_itself_and_is_told_once() {
    let world = World::new(16, 32);
    let daemon = world.start();
    assert_eq!(start(&world, &["--max-bytes", "64 KiB"]), Ok(()));
    let mut client = world.connect("disk");
    let mut requests = 0_u64;
    // A request takes a few bytes: some ten thousand fill the file.
    while recording(&world)["ended"].is_null() {
        assert!(requests < 1_000_000, "it goes on: {}", recording(&world));
        for number in 0..500 {
            client.read((requests + number) * 7919 % 4096 * 4096, 4096).expect("a read");
        }
        requests += 500;
    }
    let status = recording(&world);
    assert_eq!((&status["ended"], &status["error"]), (&json!("size"), &Value::Null), "{status}");
    let stop = || world.zcctl_output(&["record", "stop", "disk"]);
    let answer = stop();
    let shown = String::from_utf8_lossy(&answer.stdout).into_owned();
    assert!(answer.status.success() && shown.contains("size reached"), "{shown}");
    assert!(!stop().status.success(), "it was told");
    client.read(0, 4096).expect("the volume goes on");
    assert!(daemon.terminate().success());
    let trace = world.path("trace");
    let bytes = std::fs::metadata(&trace).expect("the file is there").len();
    assert!((32 << 10..=64 << 10).contains(&bytes), "{bytes}");
    let answer = info(&trace);
    assert_eq!((&answer["recorded"]["ended"], &answer["bad_lines"]), (&json!("size"), &json!(0)), "{answer}");
}

#[test]
fn a_recording_ends_with_the_daemon_and_a_kill_is_told() {
    let world = World::new(16, 32);
    let daemon = world.start();
    assert_eq!(start(&world, &["--share", "1/1", "--duration", "1h"]), Ok(()));
    world.connect("disk").write(0, &[1; 8192]).expect("a write");
    assert!(daemon.terminate().success());
    let trace = world.path("trace");
    assert_eq!(info(&trace)["recorded"]["ended"], json!("stopped"));
    std::fs::remove_file(&trace).expect("it can go");

    let daemon = world.start();
    assert_eq!(start(&world, &[]), Ok(()));
    world.connect("disk").write(0, &[2; 8192]).expect("a write");
    // After it was written to the file, which happens after a moment without requests.
    world.stats_until("the write is recorded", |_| recording(&world)["requests"] == json!(1));
    daemon.kill9();
    let answer = info(&trace);
    assert_eq!((&answer["recorded"]["ended"], &answer["bad_lines"]), (&Value::Null, &json!(1)), "{answer}");
    assert_eq!(answer["first_bad_lines"][0]["why"], json!("the recording was cut off"));
    let strict = Command::new(program("zcsim")).args(["info", "--strict"]).arg(&trace).output();
    assert!(!strict.expect("zcsim starts").status.success());
}

#[test]
fn a_sample_is_scaled_by_the_simulator() {
    let world = World::new(64, 32);
    let daemon = world.start();
    assert_eq!(start(&world, &["--share", "25%"]), Ok(()));
    let mut client = world.connect("disk");
    for number in 0..32 {
        client.write(number * MIB, &vec![3; 1 << 20]).expect("a write");
    }
    world.inserted();
    assert!(world.zcctl_output(&["record", "stop", "disk"]).status.success());
    assert!(daemon.terminate().success());
    let trace = world.path("trace");
    let answer = info(&trace);
    assert_eq!(answer["recorded"]["share"], json!(0.25));
    let bytes = answer["writes"]["bytes"].as_u64().expect("a number");
    assert!((4 * MIB..13 * MIB).contains(&bytes), "{bytes}");
    let mut zcsim = Command::new(program("zcsim"));
    zcsim.args(["run", "--json", "--trace"]).arg(&trace).arg("--config").arg(world.path("zcached.toml"));
    let simulated: Value = serde_json::from_slice(&run_ok(&mut zcsim).stdout).expect("JSON");
    assert_eq!(simulated["sample_rate"], json!(0.25));
    assert_eq!(simulated["device_bytes"], json!(16 * MIB));
}
