//! `kill -9` of the daemon under fio, which then verifies its acknowledged writes.
//!
//! fio's own record lists them (`verify_state_save`): when the daemon is dead, a trigger makes fio save it, and a
//! second fio verifies exactly those writes after the restart. Each of fio's connections has one write in flight,
//! because fio assumes acknowledgements in order. Cycles differ in their seed and, because fio does not compare seeds
//! when it only verifies, in the checksum: a block of an earlier cycle fails verification. Some starts are killed as
//! well, within their first 150 ms. `ZC_KILL_CYCLES` sets the number of kills.

#![expect(
    clippy::expect_used,
    clippy::print_stderr,
    reason = "a test; what fails here is a failure, what it says is for people"
)]

use rand::RngExt as _;
use serde_json::Value;
use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;
use zc_tests::{
    Companion, MIB, Word, World, program, read_file, require_tool, rng, run_ok, same, seed_from_env,
};

/// Connections, each with a quarter of the volume.
const JOBS: u64 = 4;
const VOLUME_MIB: u64 = 64;
/// Writes before a kill; the whole volume takes about twice as many as the most.
const WRITES: std::ops::Range<u64> = 100..1600;

/// Milliseconds until a start is killed: at its beginning, while it copies the intent log's records to the journal,
/// while it loads, or after.
const START_MS: std::ops::Range<u64> = 5..150;

/// Exit status of `timeout` for a killed program.
const KILLED: i32 = 137;

/// The checksums of the cycles, in turn.
const CHECKSUMS: [&str; 6] = ["crc32c", "xxhash", "md5", "crc64", "sha1", "sha256"];

/// fio with the job of one cycle; `folder` holds its record.
fn fio(world: &World, folder: &Path, seed: u64) -> Command {
    let mut fio = Command::new(require_tool("fio"));
    fio.current_dir(folder).stdin(Stdio::null());
    fio.args(["--name=kill", "--thread", "--ioengine=nbd", "--rw=randwrite", "--bsrange=4k-32k", "--ba=4k"]);
    fio.args(["--iodepth=1", "--buffer_compress_percentage=50", "--refill_buffers"]);
    let turn = usize::try_from(seed % 6).expect("small");
    fio.arg(format!("--verify={}", CHECKSUMS[turn]));
    let share = VOLUME_MIB / JOBS;
    fio.args([
        format!("--numjobs={JOBS}"),
        format!("--size={share}m"),
        format!("--offset_increment={share}m"),
    ]);
    fio.args([format!("--randseed={seed}"), format!("--uri={}", world.uri("disk"))]);
    fio
}

/// A writing fio, which saves its record when `trigger` appears, and reports that.
#[derive(Debug)]
struct Load {
    fio: Companion,
    trigger: PathBuf,
    saved: Word,
}

impl Load {
    fn start(world: &World, folder: &Path, seed: u64) -> Self {
        let trigger = folder.join("trigger");
        let saved = Word::new(folder.join("saved"));
        let mut command = fio(world, folder, seed);
        command.args(["--do_verify=0", "--verify_state_save=1"]);
        command.arg(format!("--trigger-file={}", trigger.display()));
        command.arg(format!("--trigger=echo > {}", saved.path().display()));
        // A job that finds its server gone ends, unless it had a write in flight; fio must outlive them all to save.
        command.args([
            "--name=awake",
            "--thread",
            "--ioengine=null",
            "--rw=read",
            "--size=1g",
            "--rate_iops=50",
        ]);
        command.args(["--time_based", "--runtime=600"]);
        // When its server is gone fio complains without end until it is killed.
        command.stderr(Stdio::null());
        Self { fio: Companion::start(&mut command), trigger, saved }
    }

    /// The daemon is dead: saves the acknowledged writes to the folder.
    fn save(mut self) {
        File::create(&self.trigger).expect("cannot trigger fio");
        self.saved.wait("fio's record");
        drop(self.fio);
    }
}

/// A daemon that is killed `after_ms` milliseconds after its start.
fn killed_while_it_starts(world: &World, after_ms: u64) {
    let mut daemon = Command::new(require_tool("timeout"));
    // In the foreground it does not kill itself as well, and so ends after the daemon has.
    daemon.args([
        "--foreground",
        "--signal=KILL",
        &format!("{}", Duration::from_millis(after_ms).as_secs_f64()),
    ]);
    daemon.arg(program("zcached")).arg("--config").arg(world.configure());
    let status = Companion::start(daemon.stderr(Stdio::null())).wait();
    assert_eq!(status.code(), Some(KILLED), "the daemon ended by itself");
}

/// Returns the command with which fio verifies the acknowledged writes of the record.
fn verification(world: &World, folder: &Path, seed: u64) -> Command {
    let mut command = fio(world, folder, seed);
    command.args(["--verify_only", "--verify_state_load=1", "--verify_fatal=1", "--output-format=json"]);
    command
}

/// Verifies. Returns the number of writes that were acknowledged.
fn verify(world: &World, folder: &Path, seed: u64) -> u64 {
    let output = run_ok(&mut verification(world, folder, seed)).stdout;
    let from = output.iter().position(|byte| *byte == b'{').expect("fio writes JSON");
    let report: Value = serde_json::from_slice(&output[from..]).expect("fio writes JSON");
    let jobs = report["jobs"].as_array().expect("jobs is a list");
    assert!(jobs.iter().all(|job| job["error"] == 0), "{report}");
    jobs.iter().filter_map(|job| job["read"]["total_ios"].as_u64()).sum()
}

#[test]
fn fio_finds_every_acknowledged_write_after_kill_9_again_and_again() {
    let mut world = World::new(32, VOLUME_MIB);
    world.cache.push_str("weu_size = \"256 KiB\"\n");
    let hits = kill_cycles(&world, 40, |found| world.origin_is("disk", found));
    assert!(hits > 0, "not one read after a kill was a hit");
}

/// Here an acknowledged write is on the cache device; the origin follows and is complete after a flush command.
#[test]
fn fio_finds_every_acknowledged_write_of_write_back_after_kill_9() {
    let mut world = World::new(96, VOLUME_MIB);
    world.cache.push_str("weu_size = \"256 KiB\"\n");
    world.volumes[0].2 = "mode = \"write-back\"\nack = \"durable\"\nmax_dirty_age = \"500 ms\"\n".to_owned();
    kill_cycles(&world, 50, |found| {
        let mut flush = Command::new(program("zcctl"));
        run_ok(flush.args(["flush", "disk", "--socket"]).arg(world.path("control.sock")));
        world.origin_is("disk", found);
    });
}

/// Kills and verifies, again and again; `check` gets the volume's bytes. Returns the number of reads that were hits.
fn kill_cycles(world: &World, seed: u64, check: impl Fn(&[u8])) -> u64 {
    let cycles = std::env::var("ZC_KILL_CYCLES").map_or(10, |text| text.parse().expect("a number"));
    let first = seed_from_env(seed);
    let mut random = rng(first);
    let size = usize::try_from(VOLUME_MIB * MIB).expect("small");
    let mut daemon = world.start();
    let mut hits = 0;
    for cycle in 0..cycles {
        let seed = first + cycle;
        let folder = world.path(&format!("cycle-{cycle}"));
        std::fs::create_dir(&folder).expect("cannot make a folder");
        let before = world.counter("writes");
        let load = Load::start(world, &folder, seed);
        let target = before + random.random_range(WRITES);
        let stats =
            world.stats_until("fio writes", |stats| stats["manager"]["writes"].as_u64() >= Some(target));
        let begun = stats["manager"]["writes"].as_u64().expect("a number") - before;
        daemon.kill9();
        load.save();
        for _ in 0..random.random_range(0..3) {
            killed_while_it_starts(world, random.random_range(START_MS));
        }
        daemon = world.start();
        // Even cycles verify while the index loads, odd ones after it.
        if cycle % 2 == 1 {
            world.loaded();
        }
        let verified = verify(world, &folder, seed);
        eprintln!("kill {cycle}: {begun} writes were seen, {verified} acknowledged ones verified");
        assert!(verified + JOBS >= begun, "of {begun} writes {verified} were verified");
        hits += world.counter("extent_hits_device");
        // The sample that a start compares with the origin would hide a stale cache by dropping it.
        assert_eq!(world.counter("probes_differed"), 0);
        // Writes in flight are old or new, and the same for cache and origin, now and later.
        let mut client = world.connect("disk");
        let found = client.read(0, size).expect("read all");
        check(&found);
        same(&client.read(0, size).expect("read again"), &found, "the second reading");
    }
    assert_eq!(daemon.terminate().code(), Some(0));
    hits
}

/// One load, killed; the record is in `folder`.
fn loaded_and_killed(world: &World, folder: &Path, seed: u64) {
    std::fs::create_dir(folder).expect("cannot make a folder");
    let daemon = world.start();
    let load = Load::start(world, folder, seed);
    let _stats = world.stats_until("fio writes", |stats| stats["manager"]["writes"].as_u64() >= Some(800));
    daemon.kill9();
    load.save();
}

#[test]
fn fio_fails_if_one_acknowledged_block_is_of_an_earlier_cycle() {
    let world = World::new(32, VOLUME_MIB);
    let folders = [world.path("first"), world.path("second")];
    loaded_and_killed(&world, &folders[0], 1);
    let old = read_file(&world.origin("disk"));
    loaded_and_killed(&world, &folders[1], 2);
    // The cache goes, and one block of the origin that both wrote goes back in time.
    std::fs::remove_file(world.cache_file()).expect("cannot remove the cache");
    let mut image = read_file(&world.origin("disk"));
    let pairs = image.chunks(4096).zip(old.chunks(4096));
    let both = pairs.into_iter().position(|(new, old)| new != old && old.iter().any(|byte| *byte != 0));
    let block = both.expect("the cycles overlap") * 4096..;
    image[block.clone()][..4096].copy_from_slice(&old[block][..4096]);
    std::fs::write(world.origin("disk"), &image).expect("cannot write the origin");
    let daemon = world.start();
    let output = verification(&world, &folders[1], 2).output().expect("fio runs");
    let said =
        String::from_utf8_lossy(&output.stderr).into_owned() + &String::from_utf8_lossy(&output.stdout);
    assert!(output.status.code() > Some(0) && said.contains("verify failed"), "{}: {said}", output.status);
    assert_eq!(daemon.terminate().code(), Some(0));
}
