//! `zcctl volume warm` for its user: ranges, files, interrupts, reloads, stops, refusals.
//!
//! The recipe with a recording is in `e2e_recipes`.

#![expect(clippy::expect_used, reason = "a test; what fails here is a failure")]

use std::process::{Child, Command, Output, Stdio};

use rustix::process::{Pid, Signal, kill_process};
use serde_json::{Value, json};
use zc_tests::{DataGen, MIB, World, program, same};

const VOLUME_MIB: u64 = 16;

/// A volume with contents of its own, and nothing in the cache.
fn world(lines: &str) -> (World, Vec<u8>) {
    let mut world = World::new(64, VOLUME_MIB);
    lines.clone_into(&mut world.volumes[0].2);
    let bytes = DataGen::new(36, 8192).mixed(usize::try_from(VOLUME_MIB << 7).expect("small"));
    std::fs::write(world.origin("disk"), &bytes).expect("cannot write the origin");
    (world, bytes)
}

fn warm(world: &World, further: &[&str]) -> Output {
    world.zcctl_output(&[&["volume", "warm", "disk"], further].concat())
}

/// A warm-up that takes long, in the background.
fn slow(world: &World) -> Child {
    let mut zcctl = Command::new(program("zcctl"));
    zcctl.args(["volume", "warm", "disk", "--range", "0-", "--limit", "256KiB", "--socket"]);
    zcctl.arg(world.control_socket()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let child = zcctl.spawn().expect("cannot start zcctl");
    world.stats_until("something is read", |stats| stats["warm"]["disk"]["read_bytes"].as_u64() > Some(0));
    child
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// Extents in clients' reads that came from the origin, in parts.
fn missed(world: &World) -> u64 {
    let extents = world.stats()["extents"].clone();
    extents["read"].as_u64().expect("a number") - extents["hits"].as_u64().expect("a number")
}

#[test]
fn ranges_of_line_and_file_are_hits_afterwards() {
    for admission in ["never", "second-touch", "auto", "always"] {
        let (world, bytes) = world(&format!("admission = \"{admission}\"\n"));
        let daemon = world.start();
        let file = world.path("ranges");
        std::fs::write(&file, "# the rest of the hot part\n3MiB-4MiB\n\n8 MiB-\n").expect("a file");
        let file = file.display().to_string();
        let output = warm(&world, &["--range", "0-1MiB", "--from", &file, "--json"]);
        assert!(output.status.success(), "{}", text(&output.stderr));
        let answer: Value = serde_json::from_slice(&output.stdout).expect("JSON");
        let numbers = ["asked_bytes", "done_bytes", "read_bytes"].map(|name| answer["warm"][name].as_u64());
        assert_eq!(numbers, [Some(10 * MIB); 3], "{answer}");
        assert_eq!(world.counter("warmed_extents"), 10 * MIB / 8192);
        // Once more: nothing is read.
        let output = warm(&world, &["--range", "0-1MiB", "--from", &file]);
        let shown = text(&output.stdout);
        assert!(output.status.success() && shown.contains("; 0 B of them read from the origin"), "{shown}");
        let mut client = world.connect("disk");
        for range in [0..MIB, 3 * MIB..4 * MIB, 8 * MIB..VOLUME_MIB * MIB] {
            let (start, len) = (range.start, usize::try_from(range.end - range.start).expect("small"));
            let at = usize::try_from(start).expect("small");
            same(&client.read(start, len).expect("a read"), &bytes[at..at + len], "the volume");
        }
        assert_eq!(missed(&world), 0, "the origin was read");
        client.read(5 * MIB, 8192).expect("a read");
        assert_eq!(missed(&world), 1, "what was not warmed");
        assert!(daemon.terminate().success());
    }
}

#[test]
fn an_interrupt_cancels_and_a_reload_does_not() {
    let (world, bytes) = world("");
    let daemon = world.start();
    let child = slow(&world);
    assert!(world.control(&json!({"cmd": "reload"}))["ok"] == json!(true));
    let before = world.stats()["warm"]["disk"]["read_bytes"].as_u64();
    world.stats_until("it goes on", |stats| stats["warm"]["disk"]["read_bytes"].as_u64() > before);
    let refused = warm(&world, &["--range", "0-1MiB"]);
    assert_eq!(refused.status.code(), Some(2));
    assert!(text(&refused.stderr).contains("is being warmed already"), "{}", text(&refused.stderr));
    // Clients are served at the same time.
    let got = world.connect("disk").read(12 * MIB, 65536).expect("a read");
    same(&got, &bytes[12 << 20..(12 << 20) + 65536], "the volume");
    let pid = Pid::from_raw(i32::try_from(child.id()).expect("a number")).expect("a process");
    kill_process(pid, Signal::INT).expect("it runs");
    let output = child.wait_with_output().expect("it ends");
    assert_eq!(output.status.code(), Some(1), "{}", text(&output.stderr));
    assert!(text(&output.stdout).starts_with("disk: cancelled: "), "{}", text(&output.stdout));
    assert_eq!(world.stats()["warm"]["disk"]["ended"], json!("asked"));
    assert!(daemon.terminate().success());
}

#[test]
fn a_stop_ends_it() {
    let (world, _) = world("");
    let daemon = world.start();
    let child = slow(&world);
    assert!(daemon.terminate().success());
    let output = child.wait_with_output().expect("it ends");
    // It saw the end, or no daemon any more.
    assert!(matches!(output.status.code(), Some(1 | 2)), "{output:?}");
}

#[test]
fn what_makes_no_sense_is_refused() {
    let (world, _) = world("");
    let daemon = world.start();
    let wrong = [
        (vec!["--range", "1MiB-17MiB"], "is not in the volume"),
        (vec!["--range", "2MiB-1MiB"], "its end is not behind its start"),
        (vec!["--from", "/nonexistent"], "cannot read the file"),
        (vec!["--trace", "/dev/null"], "is not a recording"),
        (vec![], "required"),
    ];
    for (arguments, why) in wrong {
        let output = warm(&world, &arguments);
        let said = text(&output.stderr);
        assert!(output.status.code() == Some(2) && said.contains(why), "{arguments:?}: {said}");
    }
    let output = world.zcctl_output(&["volume", "warm", "nothing", "--range", "0-"]);
    assert!(text(&output.stderr).contains("there is no volume"), "{}", text(&output.stderr));
    let said = warm(&world, &["--range", "0-", "--max-bytes", "1MiB"]);
    assert!(said.status.success() && text(&said.stderr).contains("the first 1.0 MiB of 16.0 MiB"));
    assert_eq!(world.counter("warmed_extents"), MIB / 8192);
    let set = world.control(&json!({"cmd": "set-mode", "volume": "disk", "mode": "pass-through"}));
    assert_eq!(set["ok"], json!(true), "{set}");
    let output = warm(&world, &["--range", "0-"]);
    assert!(text(&output.stderr).contains("is in pass-through"), "{}", text(&output.stderr));
    assert!(daemon.terminate().success());
}
