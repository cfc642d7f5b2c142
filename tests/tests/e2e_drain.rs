//! Commands that wait for destaging end while clients write: `flush`, `store snapshot`, `cache replace`, `cache
//! resize` and `stop --flush`. Each ends when the data that was dirty at the call is on the origin, whatever the bound
//! on the age of dirty data, and reports the written bytes.

#![expect(clippy::expect_used, reason = "a test; what fails here is a failure")]

use std::process::{Command, Output};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::time::Duration;

use serde_json::{Value, json};
use zc_tests::{MIB, World, program, read_file, require_tool, same};

const VOLUME_MIB: u64 = 16;
const BLOCK: usize = 64 << 10;
/// The client writes to the first 4 MiB; single writes of a test are behind that.
const BUSY_BLOCKS: u64 = 64;
const STILL: u64 = 8 * MIB;

/// Dirty data stays on the cache until a command.
fn lazy(mut world: World) -> World {
    world.cache.push_str(
        "weu_size = \"256 KiB\"\ndirty_high = \"90 %\"\ndirty_low = \"90 %\"\ndestage_idle = \"1 h\"\n",
    );
    world
}

const MODE: &str = "mode = \"write-back\"\nmax_dirty_age = \"1 d\"\n";

fn world() -> World {
    let mut world = lazy(World::new(64, VOLUME_MIB));
    world.volumes[0].2 = MODE.to_owned();
    world
}

/// Pause between two writes of a client that leaves the daemon time to drain: then its newest writes age with the wait.
const PACED: Duration = Duration::from_millis(20);

/// Does something while a client writes: without a pause, and flushing, or one write in `pace`. The client may lose its
/// daemon.
fn while_busy<T>(world: &World, pace: Option<Duration>, work: impl FnOnce() -> T) -> T {
    let writes = AtomicU64::new(0);
    let mut client = world.connect("disk");
    std::thread::scope(|scope| {
        // Dropped at the end of `work`, also if that fails: the client ends.
        let (end, ended) = channel::<()>();
        let writes = &writes;
        scope.spawn(move || {
            for round in 0_u64.. {
                let at = round % BUSY_BLOCKS * BLOCK as u64;
                let written = client.write(at, &round.to_le_bytes().repeat(BLOCK / 8));
                if written.is_err() || (pace.is_none() && round % 16 == 0 && client.flush().is_err()) {
                    return;
                }
                writes.fetch_add(1, Ordering::Relaxed);
                if ended.recv_timeout(pace.unwrap_or_default()) != Err(RecvTimeoutError::Timeout) {
                    return;
                }
            }
        });
        world.stats_until("the client writes", |_| writes.load(Ordering::Relaxed) > 16);
        let done = work();
        drop(end);
        done
    })
}

/// Writes data that stays unchanged, and returns it.
fn write_still(world: &World) -> Vec<u8> {
    let bytes: Vec<u8> = (0..1_u32 << 18).flat_map(u32::to_le_bytes).collect();
    let mut client = world.connect("disk");
    client.write(STILL, &bytes).expect("write");
    client.flush().expect("flush");
    bytes
}

/// Checks that the origin has the data of [`write_still`].
fn origin_has(world: &World, still: &[u8]) {
    let at = usize::try_from(STILL).expect("small");
    same(&read_file(&world.origin("disk"))[at..][..still.len()], still, "the origin");
}

/// Runs `zcctl`, which must end within a minute.
fn zcctl(world: &World, arguments: &[&str]) -> Output {
    let mut command = Command::new(require_tool("timeout"));
    command.arg("60").arg(program("zcctl")).args(arguments).arg("--socket").arg(world.control_socket());
    command.output().expect("cannot start zcctl")
}

fn json_of(output: &Output) -> Value {
    let said = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(0), "{said}");
    serde_json::from_slice(&output.stdout).expect("zcctl --json writes JSON")
}

#[test]
fn a_flush_ends_while_a_client_writes_and_counts_what_it_wrote() {
    let world = world();
    let _daemon = world.start();
    let still = write_still(&world);
    for (round, pace) in [None, Some(PACED), Some(PACED)].into_iter().enumerate() {
        let answer = while_busy(&world, pace, || json_of(&zcctl(&world, &["flush", "disk", "--json"])));
        assert_eq!(answer["done"], true, "{answer}");
        let flushed = answer["flushed_bytes"].as_u64().expect("a number");
        let least = if round == 0 { still.len() as u64 } else { 1 };
        assert!(flushed >= least, "{answer}");
        origin_has(&world, &still);
    }
    // It does not wait for writes after the call: they stay dirty, and no drain continues for them.
    let dirty = &world.stats()["dirty"]["disk"];
    assert_eq!(dirty["draining"], false, "{dirty}");
    let text = zcctl(&world, &["flush", "disk"]);
    assert!(String::from_utf8_lossy(&text.stdout).contains("written to the origin"), "{text:?}");
    let text = zcctl(&world, &["flush", "disk"]);
    assert_eq!(String::from_utf8_lossy(&text.stdout), "disk has no dirty data\n");
}

#[test]
fn a_stop_with_a_flush_ends_while_a_client_writes_and_leaves_nothing_dirty() {
    let world = world();
    let daemon = world.start();
    let still = write_still(&world);
    let output = while_busy(&world, Some(PACED), || zcctl(&world, &["stop", "--flush"]));
    assert_eq!(output.status.code(), Some(0), "{output:?}");
    assert!(daemon.wait().success());
    origin_has(&world, &still);
    let mut check = Command::new(program("zcctl"));
    let report =
        check.args(["check", "--json"]).arg(world.cache_file()).output().expect("cannot start zcctl");
    let report: Value = serde_json::from_slice(&report.stdout).expect("JSON");
    assert_eq!(report["dirty_bytes"].as_u64().unwrap_or(0), 0, "{report}");
}

#[test]
fn the_cache_moves_and_grows_while_a_client_writes() {
    let world = world();
    let _daemon = world.start();
    let still = write_still(&world);
    let new = world.path("new");
    std::fs::File::create(&new).and_then(|file| file.set_len(64 * MIB)).expect("a device");
    let path = new.display().to_string();
    let output = while_busy(&world, Some(PACED), || zcctl(&world, &["cache", "replace", &path]));
    assert_eq!(output.status.code(), Some(0), "{output:?}");
    origin_has(&world, &still);
    let grown = std::fs::OpenOptions::new().write(true).open(&new);
    grown.and_then(|file| file.set_len(96 * MIB)).expect("a larger device");
    let output = while_busy(&world, Some(PACED), || zcctl(&world, &["cache", "resize", "--yes"]));
    assert_eq!(output.status.code(), Some(0), "{output:?}");
    // The epochs of the new cache have begun again.
    let answer = while_busy(&world, Some(PACED), || json_of(&zcctl(&world, &["flush", "disk", "--json"])));
    assert_eq!(answer["done"], true, "{answer}");
}

#[test]
fn a_snapshot_is_taken_while_a_client_writes() {
    let mut world = lazy(World::new(64, VOLUME_MIB));
    world.add_store("128 MiB");
    world.volumes.clear();
    world.add_thin("disk", VOLUME_MIB, MODE);
    let _daemon = world.start();
    let still = write_still(&world);
    let output =
        while_busy(&world, Some(PACED), || zcctl(&world, &["store", "snapshot", "tank", "disk", "now"]));
    assert_eq!(output.status.code(), Some(0), "{output:?}");
    let clone = zcctl(&world, &["store", "clone", "tank", "now", "copy"]);
    assert_eq!(clone.status.code(), Some(0), "{clone:?}");
    let served = world.zcctl_output(&["volume", "add", "copy", "--origin", "store:tank/copy"]);
    assert_eq!(served.status.code(), Some(0), "{served:?}");
    same(&world.connect("copy").read(STILL, still.len()).expect("read"), &still, "the snapshot");
}

#[test]
fn the_control_socket_tells_when_a_flush_is_done() {
    let world = world();
    let _daemon = world.start();
    write_still(&world);
    let flushed = world.control(&json!({"cmd": "flush", "volume": "disk"}));
    let until = flushed["dirty"]["dirty_epoch"].as_u64().expect("a number");
    let stats = world.stats_until("the drain ends", |stats| {
        stats["dirty"]["disk"]["clean_epoch"].as_u64().is_some_and(|clean| clean >= until)
    });
    assert_eq!(stats["dirty"]["disk"]["bytes"], 0, "{stats}");
}
