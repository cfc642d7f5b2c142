//! A cache device that fails and comes back while the daemon runs: `zcctl reattach`.

#![expect(clippy::expect_used, reason = "a test; what fails here is a failure")]

use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};

use zc_engine::NbdClient;
use zc_tests::{DataGen, FilteredFile, MIB, World, read_file, run_ok, same};

const VOLUME_MIB: u64 = 16;
const CACHE: u64 = 64 * MIB;

/// A world whose cache fails on demand. `disk` is in write-back and stays dirty until a command, `other` is in
/// write-through. Returns the file behind the cache as well.
fn world() -> (World, FilteredFile, PathBuf) {
    let mut world = World::new(64, VOLUME_MIB);
    world.cache.push_str("weu_size = \"256 KiB\"\nread_buffer = 0\nprefetch_max = 0\n");
    world.cache.push_str("dirty_high = \"90 %\"\ndirty_low = \"90 %\"\ndestage_idle = \"1 h\"\n");
    world.volumes[0].2 = "mode = \"write-back\"\nmax_dirty_age = \"24 h\"\n".to_owned();
    world.volumes.push(("other".to_owned(), VOLUME_MIB * MIB, String::new()));
    let behind = world.path("behind.img");
    let file = std::fs::File::create(&behind).expect("cannot make the cache");
    file.set_len(CACHE).expect("cannot make the cache");
    let cache = FilteredFile::failing(&world, &behind);
    world.cache_path = "cache-link".into();
    // A name that can be given to something else.
    symlink(cache.path(), world.cache_file()).expect("cannot name the cache");
    (world, cache, behind)
}

fn image(seed: u64) -> Vec<u8> {
    DataGen::new(seed, 8192).mixed(usize::try_from(VOLUME_MIB << 7).expect("small"))
}

fn write(client: &mut NbdClient, offset: u64, bytes: &[u8]) {
    client.write(offset, bytes).expect("write");
    client.flush().expect("flush");
}

fn is(client: &mut NbdClient, expected: &[u8], what: &str) {
    same(&client.read(0, expected.len()).expect(what), expected, what);
}

/// Runs `zcctl reattach`, which succeeds.
fn reattach(world: &World) {
    let output = world.zcctl_output(&["reattach"]);
    assert_eq!(output.status.code(), Some(0), "{output:?}");
}

/// Runs `zcctl reattach`, which must fail; returns its error output.
fn refusal(world: &World) -> String {
    let output = world.zcctl_output(&["reattach"]);
    assert_eq!(output.status.code(), Some(2), "{output:?}");
    String::from_utf8_lossy(&output.stderr).into_owned()
}

/// Reads data that only the cache has, until the cache is given up.
fn fenced(world: &World, client: &mut NbdClient) {
    let _stats = world.stats_until("the volume is fenced", |stats| {
        // Data in memory may still be read.
        for offset in (0..VOLUME_MIB).map(|mib| mib * MIB) {
            client.read(offset, 65536).ok();
        }
        stats["dirty"]["disk"]["fenced"] == true
    });
}

/// Does something while a client of `other` writes and reads without a pause and sees no error.
fn busy(world: &World, work: impl FnOnce()) {
    let done = AtomicBool::new(false);
    let mut client = world.connect("other");
    let (offset, mut rounds) = (VOLUME_MIB * MIB - 65536, 0_u32);
    let before = client.read(offset, 65536).expect("read");
    std::thread::scope(|scope| {
        let load = scope.spawn(|| {
            while !done.load(Ordering::Relaxed) || rounds < 16 {
                let bytes = rounds.to_le_bytes().repeat(16384);
                client.write(offset, &bytes).expect("a write waits and succeeds");
                same(
                    &client.read(offset, 65536).expect("a read waits and succeeds"),
                    &bytes,
                    "the last write",
                );
                rounds += 1;
            }
            write(&mut client, offset, &before);
        });
        work();
        done.store(true, Ordering::Relaxed);
        load.join().expect("the client succeeds");
    });
}

fn end(world: &World, daemon: zc_tests::Daemon, expected: &[u8]) {
    assert_eq!(world.zcctl_output(&["flush", "disk"]).status.code(), Some(0));
    assert_eq!(daemon.terminate().code(), Some(0));
    world.origin_is("disk", expected);
}

#[test]
fn data_counts_as_given_up_when_the_device_was_told_or_need_not_be() {
    let (world, cache, _) = world();
    let daemon = world.start();
    let mut disk = world.connect("disk");
    let before = vec![0; 65536];
    write(&mut disk, 0, &image(1)[..65536]);
    world.settled();
    cache.fail(true);
    // Most likely the drop is the first to find that the device fails; it may have been something else.
    let first = world.zcctl_output(&["drop-dirty", "disk", "--yes"]);
    if first.status.code() != Some(0) {
        let said = String::from_utf8_lossy(&first.stderr).into_owned();
        assert!(said.contains("failed before it recorded"), "{said}");
        assert_eq!(world.stats()["dirty"]["disk"]["fenced"], true);
        assert_eq!(world.zcctl_output(&["drop-dirty", "disk", "--yes"]).status.code(), Some(0));
    }
    assert_eq!(world.stats()["dirty"]["disk"]["fenced"], false, "{}", world.stats());
    is(&mut disk, &before, "what the origin has");
    disk.flush().expect_err("it tells of what was given up");
    write(&mut disk, 0, &[5; 4096]);
    // The device returns with the given-up data, which no client sees again.
    cache.fail(false);
    drop(disk);
    daemon.kill9();
    let daemon = world.start();
    is(&mut world.connect("disk"), &[&[5; 4096][..], &before[4096..]].concat(), "the volume after a kill");
    assert_eq!(daemon.terminate().code(), Some(0));
}

#[test]
fn a_command_that_finds_the_device_failed_tells_those_who_use_it() {
    let (world, cache, _) = world();
    let daemon = world.start();
    world.settled();
    cache.fail(true);
    // Nothing else is written: only the command meets the error, as the kernel reports some errors once.
    let output = world.zcctl_output(&["set-mode", "other", "write-back"]);
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(output.status.code() == Some(2) && said.contains("cache-link"), "{said}");
    let stats = world.stats_until("the failure is known", |stats| stats["cache_healthy"] == false);
    assert!(stats["cache_fault"].to_string().contains("cache-link"), "{stats}");
    cache.fail(false);
    reattach(&world);
    assert_eq!(world.stats()["cache_healthy"], true);
    assert_eq!(daemon.terminate().code(), Some(0));
}

#[test]
fn clients_keep_their_connections_and_every_byte_when_all_was_flushed() {
    let (world, cache, _) = world();
    let daemon = world.start();
    let (mut disk, mut other) = (world.connect("disk"), world.connect("other"));
    let (mut ours, mut theirs) = (image(1), image(2));
    write(&mut disk, 0, &ours);
    write(&mut other, 0, &theirs);
    assert!(refusal(&world).contains("works"));
    for round in 0..2 {
        cache.fail(true);
        fenced(&world, &mut disk);
        assert!(refusal(&world).contains("cache-link"));
        disk.write(0, &[1; 4096]).expect_err("a fenced volume takes nothing");
        let accepted = world.zcctl_output(&["accept-loss", "disk", "--yes"]);
        let said = String::from_utf8_lossy(&accepted.stderr).into_owned();
        assert!(accepted.status.code() == Some(2) && said.contains("does not answer"), "{said}");
        theirs[..8192].fill(round);
        write(&mut other, 0, &theirs[..8192]);
        is(&mut other, &theirs, "a volume in write-through while the cache is away");
        cache.fail(false);
        busy(&world, || reattach(&world));
        is(&mut disk, &ours, "everything that was flushed");
        is(&mut other, &theirs, "nothing old comes back");
        // Both have a cache again.
        ours[8192..65536].fill(round + 10);
        write(&mut disk, 8192, &ours[8192..65536]);
        world.inserted();
        let hits = world.counter("extent_hits_device");
        is(&mut other, &theirs, "from the cache");
        assert!(world.counter("extent_hits_device") > hits, "{}", world.stats());
    }
    let status = world.status();
    assert!(status["cache"]["healthy"] == true && status["cache"]["fault"].is_null(), "{status}");
    assert!(status["volumes"][1]["info"]["cold_reason"].is_string(), "{status}");
    daemon.kill9();
    let daemon = world.start();
    is(&mut world.connect("disk"), &ours, "the volume after a kill");
    is(&mut world.connect("other"), &theirs, "the other after a kill");
    end(&world, daemon, &ours);
    let daemon = world.start();
    assert!(world.status()["volumes"][1]["info"]["cold_reason"].is_null(), "an orderly stop leaves it warm");
    is(&mut world.connect("other"), &theirs, "the other after a stop");
    assert_eq!(daemon.terminate().code(), Some(0));
}

#[test]
fn clients_that_lost_unflushed_writes_learn_of_it() {
    let (world, cache, _) = world();
    let daemon = world.start();
    let (mut disk, mut other) = (world.connect("disk"), world.connect("other"));
    let mut ours = image(3);
    write(&mut disk, 0, &ours);
    // Otherwise its test write may be the one that the device refuses first.
    let _stats = world
        .stats_until("the flushed commit is proved", |stats| stats["dirty"]["disk"]["unproved"] == false);
    cache.fail(true);
    disk.write(0, &vec![0x77; 1 << 20]).expect("acknowledged, not flushed");
    disk.flush().expect_err("it cannot be made durable");
    let _stats = world.stats_until("the volume is fenced", |stats| stats["dirty"]["disk"]["fenced"] == true);
    cache.fail(false);
    let output = world.zcctl_output(&["reattach"]);
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(
        output.status.code() == Some(0) && said.contains("disk: writes that no client had flushed"),
        "{said}"
    );
    assert!(!said.contains("other: "), "{said}");
    disk.read(0, 4096).expect_err("the connection is closed");
    let mut again = world.connect("disk");
    again.flush().expect_err("who connects again by himself hears of it");
    again.flush().expect("it is told once");
    write(&mut other, 0, &[5; 4096]);
    let log = String::from_utf8(read_file(daemon.log_path())).expect("the log is text");
    assert!(log.contains("no client had flushed"), "{log}");
    let found = world.connect("disk").read(0, ours.len()).expect("read");
    // Unflushed data is present or not, sector by sector.
    for (new, old) in found.chunks(512).zip(ours.chunks_mut(512)).take(2048) {
        assert!(new == old || new == [0x77; 512], "neither the old nor the new");
        old.copy_from_slice(new);
    }
    same(&found, &ours, "the rest");
    end(&world, daemon, &ours);
}

/// Makes the cache's name another file's.
fn put(world: &World, file: &Path) {
    std::fs::remove_file(world.cache_file()).expect("cannot take the name away");
    symlink(file, world.cache_file()).expect("cannot name the cache");
}

#[test]
fn only_the_same_cache_as_it_was_left_is_taken_also_under_another_node() {
    let (world, cache, behind) = world();
    let ours = image(4);
    let daemon = world.start();
    write(&mut world.connect("disk"), 0, &ours[..65536]);
    daemon.kill9();
    let older = world.path("older.img");
    std::fs::copy(&behind, &older).expect("cannot copy");
    let daemon = world.start();
    let mut disk = world.connect("disk");
    write(&mut disk, 0, &ours);
    cache.fail(true);
    fenced(&world, &mut disk);
    let foreign = world.path("foreign.img");
    let mut format = std::process::Command::new(zc_tests::program("zcctl"));
    run_ok(format.args(["format", "--size", "64 MiB", "--weu-size", "256 KiB"]).arg(&foreign));
    let blank = world.path("blank.img");
    std::fs::write(&blank, vec![0; 1 << 20]).expect("cannot write");
    let before = read_file(&foreign);
    let missing = world.path("missing.img");
    let wrong = [
        (&older, "older image"),
        (&foreign, "is the cache"),
        (&blank, "no zcached cache"),
        (&missing, "missing"),
    ];
    for (file, reason) in wrong {
        put(&world, file);
        let said = refusal(&world);
        assert!(said.contains(reason) || !file.exists(), "{said}");
        disk.read(0, 4096).expect_err("the volume stays fenced");
    }
    assert!(read_file(&foreign) == before && !missing.exists(), "nothing is written or made");
    put(&world, &behind);
    reattach(&world);
    is(&mut disk, &ours, "everything that was flushed");
    end(&world, daemon, &ours);
}
