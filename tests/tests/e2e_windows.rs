//! Destage windows for an operator: dirty data waits, a window opens while the daemon runs, bounds hold.

#![expect(clippy::expect_used, reason = "a test; what fails here is a failure")]

use std::process::Command;

use serde_json::{Value, json};
use zc_tests::{MIB, World, run_ok};

/// A window of one hour that begins some hours after this one, by the time zone that the daemon has.
fn closed() -> String {
    let output = run_ok(Command::new("date").arg("+%H"));
    let hour: u32 = String::from_utf8_lossy(&output.stdout).trim().parse().expect("an hour");
    format!("[\"{:02}:00-{:02}:30\"]", (hour + 6) % 24, (hour + 6) % 24)
}

/// Two volumes in write-back; the first has a window, or both have that of the cache.
fn world(of_volume: &str, of_cache: &str) -> World {
    let mut world = World::new(64, 16);
    world.cache.push_str("destage_idle = \"50 ms\"\n");
    world.cache.push_str(of_cache);
    let lines = "mode = \"write-back\"\nmax_dirty_age = \"1 d\"\n";
    world.volumes[0].2 = format!("{lines}{of_volume}");
    world.volumes.push(("other".to_owned(), 16 * MIB, format!("{lines}destage_window = []\n")));
    world
}

fn dirty(stats: &Value, volume: &str) -> u64 {
    stats["dirty"][volume]["bytes"].as_u64().expect("a number")
}

/// Writes to the volume with the window, then to the other, and waits until that one is clean. Returns the first one's
/// remaining dirty data.
fn left_when_the_other_is_clean(world: &World) -> u64 {
    for volume in ["disk", "other"] {
        let mut client = world.connect(volume);
        client.write(MIB, &[7; 65536]).expect("a write");
        client.flush().expect("a flush");
    }
    dirty(&world.stats_until("the other is clean", |stats| dirty(stats, "other") == 0), "disk")
}

#[test]
fn dirty_data_waits_for_its_window() {
    let world = world(&format!("destage_window = {}\n", closed()), "");
    let daemon = world.start();
    assert_eq!(left_when_the_other_is_clean(&world), 65536);
    // The window opens, as the configuration changes.
    let set = |window: &str| {
        let setting = format!("destage_window={window}");
        let output = world.zcctl_output(&["volume", "set", "disk", &setting]);
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    };
    set("[\"00:00-24:00\"]");
    world.stats_until("the window is open", |stats| dirty(stats, "disk") == 0);
    // It closes; an operator does not wait for it.
    set(&closed());
    assert_eq!(left_when_the_other_is_clean(&world), 65536);
    assert!(world.zcctl_output(&["flush", "disk"]).status.success());
    assert_eq!(dirty(&world.stats(), "disk"), 0);
    // Nor does an orderly stop.
    assert_eq!(left_when_the_other_is_clean(&world), 65536);
    assert!(world.zcctl_output(&["stop", "--flush"]).status.success());
    assert_eq!(daemon.wait().code(), Some(0));
}

#[test]
fn the_cache_has_the_window_of_volumes_that_have_none() {
    let world = world("", &format!("destage_window = {}\n", closed()));
    let daemon = world.start();
    assert_eq!(left_when_the_other_is_clean(&world), 65536);
    let shown = world.zcctl_output(&["volume", "show", "disk"]);
    let shown = String::from_utf8_lossy(&shown.stdout).into_owned();
    assert!(shown.contains("destage_window"), "{shown}");
    // A reload does not open it. Overwritten data stays dirty as well: a flush is between.
    assert_eq!(world.control(&json!({"cmd": "reload"}))["ok"], json!(true));
    assert_eq!(left_when_the_other_is_clean(&world), 2 * 65536);
    assert!(daemon.terminate().success());
}

/// Age comes before a window.
#[test]
fn the_bound_of_the_age_does_not_wait() {
    let mut world = world(&format!("destage_window = {}\n", closed()), "");
    world.volumes[0].2 = world.volumes[0].2.replace("1 d", "2 s");
    let daemon = world.start();
    let mut client = world.connect("disk");
    client.write(MIB, &[7; 65536]).expect("a write");
    client.flush().expect("a flush");
    world.stats_until("half of its age has passed", |stats| dirty(stats, "disk") == 0);
    assert!(daemon.terminate().success());
}
