//! The book's example of a storage plugin: all calls, each of them repeated, and its refusals.

#![expect(clippy::expect_used, reason = "a test; what fails here is a failure")]

use std::io::Write as _;
use std::path::Path;
use std::process::Stdio;

use serde_json::{Value, json};
use zc_tests::{MIB, World, bounded, program};

/// Returns the plugin's answers to these calls, in order.
fn answers(world: &World, calls: &[Value]) -> Vec<Value> {
    let example = Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs/src/examples/node.py");
    let mut command = bounded("python3");
    command.arg(example).arg("--zcctl").arg(program("zcctl")).arg("--socket").arg(world.control_socket());
    command.stdin(Stdio::piped()).stdout(Stdio::piped());
    let mut node = command.spawn().expect("cannot start the example");
    let mut input = node.stdin.take().expect("it is a pipe");
    calls.iter().for_each(|call| writeln!(input, "{call}").expect("the example reads"));
    drop(input);
    let output = node.wait_with_output().expect("the example ends");
    assert!(output.status.success(), "{output:?}");
    let lines = String::from_utf8(output.stdout).expect("it is text");
    let answers: Vec<Value> =
        lines.lines().map(|line| serde_json::from_str(line).expect("a line is one JSON object")).collect();
    assert_eq!(answers.len(), calls.len(), "one answer to each call: {answers:?}");
    answers
}

fn stage(world: &World, origin: &str) -> Value {
    json!({"call": "NodeStageVolume", "volume_id": "db", "origin": world.path(origin), "create_bytes": MIB,
        "mode": "write-back"})
}

fn of_db(call: &str) -> Value {
    json!({"call": call, "volume_id": "db", "required_bytes": 2 * MIB})
}

#[test]
fn every_call_may_be_repeated_and_data_is_on_the_origin_at_the_end() {
    let world = World::new(16, 16);
    let daemon = world.start();
    let stage = stage(&world, "db.img");
    let found = answers(&world, &[json!({"call": "Probe"}), stage.clone(), stage]);
    assert_eq!(found[0], json!({"ok": true, "ready": true}));
    assert_eq!(found[1], json!({"ok": true, "uri": world.uri("db")}));
    assert_eq!(found[2], found[1]);
    world.connect("db").write(0, &[7; 65536]).expect("a write");

    let expand = of_db("NodeExpandVolume");
    let found = answers(&world, &[expand.clone(), expand, of_db("NodeGetVolumeStats")]);
    assert_eq!(found[0], json!({"ok": true, "capacity_bytes": 2 * MIB}));
    assert_eq!(found[1], found[0]);
    assert_eq!((&found[2]["total_bytes"], &found[2]["abnormal"]), (&json!(2 * MIB), &json!(false)));
    assert!(found[2]["dirty_bytes"].as_u64().is_some(), "{found:?}");

    world.status_until("the client is gone", |status| status["connections"] == 0);
    let unstage = of_db("NodeUnstageVolume");
    let found = answers(&world, &[unstage.clone(), unstage, of_db("NodeGetVolumeStats")]);
    assert_eq!((&found[0], &found[1]), (&json!({"ok": true}), &json!({"ok": true})));
    assert_eq!(found[2]["code"], "NOT_FOUND");
    let bytes = std::fs::read(world.origin("db")).expect("the origin stays");
    assert!(bytes[..65536] == [7; 65536], "the origin has what was written");
    assert_eq!(daemon.terminate().code(), Some(0));
}

#[test]
fn refusals_have_the_codes_of_the_interface_and_change_nothing() {
    let world = World::new(16, 16);
    let daemon = world.start();
    let found = answers(&world, &[stage(&world, "db.img"), stage(&world, "other.img")]);
    assert_eq!((&found[0]["ok"], &found[1]["code"]), (&json!(true), &json!("ALREADY_EXISTS")));
    // zcctl itself refuses it, too.
    let other = world.path("other.img").display().to_string();
    let again = world.zcctl_output(&["volume", "add", "db", "--if-missing", "--origin", &other]);
    let said = String::from_utf8_lossy(&again.stderr).into_owned();
    assert!(again.status.code() == Some(2) && said.contains("another origin"), "{said}");
    assert!(!world.path("other.img").exists(), "no origin is made");

    let _client = world.connect("db");
    let calls = [
        of_db("NodeUnstageVolume"),
        json!({"call": "NodeStageVolume", "volume_id": "x"}),
        json!({"call": "Format"}),
        json!({"call": "NodeExpandVolume", "volume_id": "x", "required_bytes": 1}),
    ];
    let codes: Vec<Value> = answers(&world, &calls).iter().map(|answer| answer["code"].clone()).collect();
    assert_eq!(codes, ["FAILED_PRECONDITION", "INVALID_ARGUMENT", "UNIMPLEMENTED", "NOT_FOUND"]);
    assert_eq!(world.serves("db")["name"], "db");
    assert_eq!(daemon.terminate().code(), Some(0));
    let found = answers(&world, &[json!({"call": "Probe"})]);
    assert_eq!(found[0]["code"], "UNAVAILABLE");
}
