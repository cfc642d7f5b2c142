//! Write-back with the real daemon: flushed data survives kills, the loss and return of the cache, full disks and
//! changes of mode; the origin gets everything in the end.
//!
//! The load records the issued, answered and flushed writes, sector by sector. After a kill each sector has the
//! contents at the last flush or of a later write, and does not change after its first read. `ZC_KILL_CYCLES` sets the
//! number of kills, `ZC_SEED` repeats a run.

#![expect(
    clippy::expect_used,
    clippy::print_stderr,
    reason = "a test; what fails here is a failure, what it says is for people"
)]

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::process::Command;

use rand::RngExt as _;
use rustix::process::Signal;
use serde_json::{Value, json};
use zc_engine::{NbdClient, NbdRequest};
use zc_tests::{
    BlockKind, DataGen, MIB, Mount, Rng, World, program, read_file, rng, run_ok, same, seed_from_env,
};

const VOLUME_MIB: u64 = 32;
const SECTORS: usize = 32 << 11;
const SECTOR: usize = zc_core::usize_from_u32(zc_core::SECTOR_BYTES);
const IN_FLIGHT: usize = 12;
/// Contents of sectors; 0 is zeros.
const CONTENTS: u16 = 500;

/// Dirty data stays on the cache until a command.
const LAZY: &str = "dirty_high = \"90 %\"\ndirty_low = \"90 %\"\ndestage_idle = \"1 h\"\n";

/// A world with one write-back volume; `eager` begins to destage at once.
fn world(cache_mib: u64, eager: bool) -> World {
    let mut world = World::new(cache_mib, VOLUME_MIB);
    world.cache.push_str("weu_size = \"256 KiB\"\n");
    world.cache.push_str(if eager { "dirty_low = \"1 %\"\ndestage_idle = \"20 ms\"\n" } else { LAZY });
    let age = if eager { "200 ms" } else { "24 h" };
    world.volumes[0].2 = format!("mode = \"write-back\"\nmax_dirty_age = \"{age}\"\n");
    world
}

/// One write of a sector.
#[derive(Debug, Clone, Copy)]
struct Version {
    content: u16,
    write: u64,
}

/// Legal contents of each sector: those at the last flush, and those issued since.
struct Twin {
    base: Vec<u16>,
    later: BTreeMap<usize, Vec<Version>>,
    contents: Vec<Vec<u8>>,
}

impl Twin {
    fn new() -> Self {
        let data = DataGen::new(5, SECTOR);
        let kinds = |content| if content == 0 { BlockKind::Zero } else { BlockKind::Compressible };
        let contents = (0..CONTENTS).map(|content| data.block(kinds(content), content.into())).collect();
        Self { base: vec![0; SECTORS], later: BTreeMap::new(), contents }
    }

    fn bytes(&self, contents: &[u16]) -> Vec<u8> {
        contents.iter().flat_map(|content| self.contents[usize::from(*content)].iter().copied()).collect()
    }

    fn issue(&mut self, first: usize, contents: &[u16], write: u64) {
        for (sector, content) in (first..).zip(contents) {
            self.later.entry(sector).or_default().push(Version { content: *content, write });
        }
    }

    /// A flush that was sent when the writes in `open` had no answer and none after `newest` was issued has ended.
    fn flushed(&mut self, newest: u64, open: &[u64]) {
        self.later.retain(|sector, versions| {
            let durable = |version: &Version| version.write <= newest && !open.contains(&version.write);
            if let Some(last) = versions.iter().rposition(durable) {
                self.base[*sector] = versions[last].content;
                versions.drain(..=last);
            }
            !versions.is_empty()
        });
    }

    /// Everything that was issued counts, as it does while no daemon was killed.
    fn settle(&mut self) {
        for (sector, versions) in std::mem::take(&mut self.later) {
            if let Some(last) = versions.last() {
                self.base[sector] = last.content;
            }
        }
    }

    /// After a kill: adopts the present contents if they are legal.
    fn adopt(&mut self, found: &[u8], origin: &[u8]) {
        assert_eq!(found.len(), SECTORS * SECTOR);
        for (sector, bytes) in found.chunks(SECTOR).enumerate() {
            let base = self.base[sector];
            if bytes == self.contents[usize::from(base)] {
                continue;
            }
            let later = self.later.get(&sector).map_or(&[][..], Vec::as_slice);
            let legal = later.iter().find(|version| bytes == self.contents[usize::from(version.content)]);
            let Some(version) = legal else {
                let name = |bytes: &[u8]| self.contents.iter().position(|content| content == bytes);
                panic!(
                    "sector {sector} holds {:?}, neither what was flushed ({base}) nor one of {later:?}; the origin \
                     has {:?}",
                    name(bytes),
                    name(&origin[sector * SECTOR..][..SECTOR])
                );
            };
            self.base[sector] = version.content;
        }
        self.later.clear();
    }

    fn image(&self) -> Vec<u8> {
        self.bytes(&self.base)
    }
}

/// A request without an answer.
#[derive(Debug)]
enum Open {
    Write { cookie: u64, write: u64, first: usize, sectors: usize, fua: bool },
    Flush { cookie: u64, newest: u64, open: Vec<u64> },
}

impl Open {
    const fn cookie(&self) -> u64 {
        match self {
            Self::Write { cookie, .. } | Self::Flush { cookie, .. } => *cookie,
        }
    }
}

/// A client that writes and flushes, with its expected results.
struct Load {
    client: NbdClient,
    open: Vec<Open>,
    writes: u64,
    /// A kill may have lost acknowledged writes, which one flush of this session must report.
    may_hear_of_loss: bool,
    /// Flushes in flight beside the reporting one: those that waited with it fail with it.
    beside: Vec<u64>,
}

impl Load {
    fn new(world: &World, may_hear_of_loss: bool) -> Self {
        Self {
            client: world.connect("disk"),
            open: Vec::new(),
            writes: 0,
            may_hear_of_loss,
            beside: Vec::new(),
        }
    }

    fn open_writes(&self) -> Vec<u64> {
        let writes = self.open.iter().filter_map(|open| match open {
            Open::Write { write, .. } => Some(*write),
            Open::Flush { .. } => None,
        });
        writes.collect()
    }

    /// Sends a write that overlaps no other, or a flush.
    fn send(&mut self, twin: &mut Twin, random: &mut Rng) {
        if random.random_bool(0.03) {
            let cookie = self.client.submit(NbdRequest::Flush).expect("a request is sent");
            self.open.push(Open::Flush { cookie, newest: self.writes, open: self.open_writes() });
            return;
        }
        let sectors = random.random_range(1..=48_usize);
        // A small hot region: many versions of one sector, in many epochs.
        let reach = if random.random_bool(0.3) { 512 } else { SECTORS };
        let first = random.random_range(0..reach - sectors);
        let meets = |open: &Open| match open {
            Open::Write { first: other, sectors: n, .. } => first < other + n && *other < first + sectors,
            Open::Flush { .. } => false,
        };
        if self.open.iter().any(meets) {
            return;
        }
        let content = random.random_range(0..CONTENTS);
        let contents: Vec<u16> =
            (0..u16::try_from(sectors).expect("small")).map(|n| (content + n) % CONTENTS).collect();
        let fua = random.random_bool(0.03);
        self.writes += 1;
        twin.issue(first, &contents, self.writes);
        let data = twin.bytes(&contents);
        let offset = u64::try_from(first * SECTOR).expect("small");
        let request = NbdRequest::Write { offset, data: &data, fua };
        let cookie = self.client.submit(request).expect("a request is sent");
        self.open.push(Open::Write { cookie, write: self.writes, first, sectors, fua });
    }

    /// Returns `true` if a failed request is the flush that reports the loss of a kill, or one that waited with it.
    fn says_the_loss(&mut self, request: &Open) -> bool {
        if !matches!(request, Open::Flush { .. }) {
            return false;
        }
        if std::mem::take(&mut self.may_hear_of_loss) {
            let others = self.open.iter().filter(|open| matches!(open, Open::Flush { .. }));
            self.beside = others.map(Open::cookie).collect();
            return true;
        }
        self.beside.contains(&request.cookie())
    }

    /// Takes one answer; `None` when the daemon is gone.
    fn take(&mut self, twin: &mut Twin) -> Option<()> {
        let done = self.client.wait().ok()?;
        let index = self.open.iter().position(|open| open.cookie() == done.cookie).expect("it was asked for");
        let request = self.open.swap_remove(index);
        if let Err(error) = done.result {
            assert!(self.says_the_loss(&request), "{request:?} failed: {error:?}");
            return Some(());
        }
        match request {
            Open::Flush { newest, open, .. } => twin.flushed(newest, &open),
            Open::Write { write, first, sectors, fua: true, .. } => {
                // Durable with all before it in its sectors.
                for sector in first..first + sectors {
                    let Some(versions) = twin.later.get_mut(&sector) else { continue };
                    if let Some(at) = versions.iter().position(|version| version.write == write) {
                        twin.base[sector] = versions[at].content;
                        versions.drain(..=at);
                    }
                }
            }
            Open::Write { .. } => {}
        }
        Some(())
    }

    /// Writes until `answers` requests were answered.
    fn run(&mut self, answers: usize, twin: &mut Twin, random: &mut Rng) {
        for _ in 0..answers {
            while self.open.len() < IN_FLIGHT {
                self.send(twin, random);
            }
            self.take(twin).expect("the daemon answers");
        }
    }

    /// Waits for all answers.
    fn finish(&mut self, twin: &mut Twin) {
        while !self.open.is_empty() {
            self.take(twin).expect("the daemon answers");
        }
    }
}

fn size() -> usize {
    SECTORS * SECTOR
}

fn read_all(world: &World) -> Vec<u8> {
    world.connect("disk").read(0, size()).expect("read the whole volume")
}

fn image(seed: u64) -> Vec<u8> {
    DataGen::new(seed, 8192).mixed(size() / 8192)
}

fn dirty(world: &World) -> Value {
    world.stats()["dirty"]["disk"].clone()
}

fn zcctl_flush(world: &World) {
    let output = world.zcctl_output(&["flush", "disk"]);
    assert_eq!(output.status.code(), Some(0), "{output:?}");
    let left = dirty(world);
    assert_eq!(left["bytes"], 0, "{left}");
}

/// Fills the volume, flushes, and kills the daemon: all of it is on the cache, and the origin lacks it.
fn flushed_and_killed(world: &World, seed: u64) -> Vec<u8> {
    let daemon = world.start();
    let image = image(seed);
    let mut client = world.connect("disk");
    client.write(0, &image).expect("write");
    client.flush().expect("flush");
    let destaged = world.counter("destaged_bytes");
    daemon.kill9();
    assert_eq!(destaged, 0);
    assert_ne!(read_file(&world.origin("disk")), image, "the origin has everything: this is no write-back");
    image
}

fn kill_cycles(world: &World, seed: u64, cycles: u64) {
    let mut random = rng(seed);
    let mut twin = Twin::new();
    let mut daemon = world.start();
    for cycle in 0..cycles {
        eprintln!("kill {cycle}");
        let mut load = Load::new(world, cycle > 0);
        load.run(random.random_range(50..900), &mut twin, &mut random);
        daemon.kill9();
        // Answers that had left before the kill count as well.
        while load.take(&mut twin).is_some() {}
        let origin = read_file(&world.origin("disk"));
        daemon = world.start();
        // Odd cycles read while the index loads, even ones after it.
        if cycle % 2 == 0 {
            world.loaded();
        }
        let found = read_all(world);
        twin.adopt(&found, &origin);
        same(&read_all(world), &found, "the second reading");
    }
    zcctl_flush(world);
    world.origin_is("disk", &twin.image());
    assert_eq!(daemon.terminate().code(), Some(0));
    world.origin_is("disk", &twin.image());
}

fn cycles() -> u64 {
    std::env::var("ZC_KILL_CYCLES").map_or(6, |text| text.parse().expect("a number"))
}

#[test]
fn flushed_writes_outlive_kill_9_while_the_origin_follows() {
    kill_cycles(&world(24, true), seed_from_env(60), cycles());
}

#[test]
fn flushed_writes_outlive_kill_9_while_the_origin_has_nothing() {
    kill_cycles(&world(512, false), seed_from_env(61), cycles());
}

#[test]
fn the_origin_is_every_flushed_byte_after_zcctl_flush() {
    let world = world(512, false);
    let image = flushed_and_killed(&world, 1);
    let daemon = world.start();
    same(&read_all(&world), &image, "the volume after a kill");
    let before = dirty(&world);
    assert!(before["bytes"].as_u64() >= Some(MIB) && before["epochs"].as_u64() > Some(0), "{before}");
    let shown = String::from_utf8(world.zcctl_output(&["status"]).stdout).expect("zcctl writes text");
    assert!(shown.contains("dirty") && shown.contains("MiB"), "{shown}");
    let output = world.zcctl_output(&["flush", "disk", "--json"]);
    assert_eq!(output.status.code(), Some(0), "{output:?}");
    let answer: Value = serde_json::from_slice(&output.stdout).expect("zcctl --json writes JSON");
    assert!(answer["done"] == true && answer["flushed_bytes"] == before["bytes"], "{answer} of {before}");
    world.origin_is("disk", &image);
    assert_eq!(dirty(&world)["bytes"], 0);
    assert_eq!(daemon.terminate().code(), Some(0));
    // Clean data no longer needs this cache.
    std::fs::remove_file(world.cache_file()).expect("cannot remove the cache");
    let daemon = world.start();
    same(&read_all(&world), &image, "the volume with a new cache");
    assert_eq!(daemon.terminate().code(), Some(0));
}

#[test]
fn a_stop_is_refused_while_the_origin_lacks_something_unless_told_otherwise() {
    let world = world(512, false);
    let daemon = world.start();
    let image = image(2);
    world.connect("disk").write(0, &image).expect("write");
    let refusal = world.zcctl_output(&["stop"]);
    let said = String::from_utf8_lossy(&refusal.stderr).into_owned();
    assert!(refusal.status.code() == Some(2) && said.contains("--keep-dirty"), "{refusal:?}");
    assert_eq!(world.zcctl_output(&["stop", "--keep-dirty"]).status.code(), Some(0));
    assert_eq!(daemon.wait().code(), Some(0));
    // An orderly stop makes unflushed writes durable.
    assert_ne!(read_file(&world.origin("disk")), image, "nothing was left to keep");
    let daemon = world.start();
    same(&read_all(&world), &image, "the volume after an orderly stop");
    assert_eq!(world.zcctl_output(&["stop", "--flush"]).status.code(), Some(0));
    assert_eq!(daemon.wait().code(), Some(0));
    world.origin_is("disk", &image);
}

#[test]
fn dropped_data_is_named_first_and_gone_then() {
    let world = world(512, false);
    let daemon = world.start();
    let mut client = world.connect("disk");
    client.write(0, &[7; 65536]).expect("write");
    client.flush().expect("flush");
    let refusal = world.zcctl_output(&["drop-dirty", "disk"]);
    let said = String::from_utf8_lossy(&refusal.stderr).into_owned();
    assert!(refusal.status.code() == Some(2) && said.contains("64.0 KiB"), "{refusal:?}");
    assert!(dirty(&world)["bytes"].as_u64() > Some(0));
    assert_eq!(world.zcctl_output(&["drop-dirty", "disk", "--yes"]).status.code(), Some(0));
    assert_eq!(dirty(&world)["bytes"], 0, "the answer comes when the data is gone");
    assert_eq!(client.read(0, 65536).expect("read"), vec![0; 65536], "the origin's bytes");
    assert_eq!(daemon.terminate().code(), Some(0));
    world.origin_is("disk", &vec![0; size()]);
}

#[test]
fn modes_change_under_load_in_both_directions() {
    let world = world(48, true);
    let daemon = world.start();
    let (mut random, mut twin) = (rng(seed_from_env(62)), Twin::new());
    let mut load = Load::new(&world, false);
    let modes = ["write-through", "write-back", "write-around", "write-back", "pass-through", "write-back"];
    for mode in modes.iter().chain(&modes).chain(&["write-through"]) {
        load.run(150, &mut twin, &mut random);
        let answer = world.control(&json!({ "cmd": "set-mode", "volume": "disk", "mode": mode }));
        assert_eq!(answer["ok"], true, "{answer}");
        load.run(50, &mut twin, &mut random);
        load.finish(&mut twin);
        twin.settle();
        same(&read_all(&world), &twin.image(), mode);
    }
    // The last change was away from write-back: the origin gets everything by itself.
    let _stats = world.stats_until("the volume drains", |stats| stats["dirty"]["disk"]["bytes"] == 0);
    load.client.flush().expect("flush");
    world.origin_is("disk", &twin.image());
    assert_eq!(daemon.terminate().code(), Some(0));
}

#[test]
fn a_stopped_and_continued_daemon_goes_on() {
    let world = world(48, true);
    let daemon = world.start();
    let (mut random, mut twin) = (rng(seed_from_env(63)), Twin::new());
    let mut load = Load::new(&world, false);
    for _ in 0..5 {
        load.run(200, &mut twin, &mut random);
        load.finish(&mut twin);
        daemon.signal(Signal::STOP);
        // No more than the socket holds.
        while load.open.len() < 4 {
            load.send(&mut twin, &mut random);
        }
        daemon.signal(Signal::CONT);
    }
    load.finish(&mut twin);
    load.client.flush().expect("flush");
    twin.settle();
    same(&read_all(&world), &twin.image(), "the volume");
    zcctl_flush(&world);
    world.origin_is("disk", &twin.image());
    assert_eq!(daemon.terminate().code(), Some(0));
}

#[test]
fn a_lost_cache_fences_the_start_and_its_return_brings_every_byte() {
    let mut world = world(512, false);
    let image = flushed_and_killed(&world, 3);
    let aside: PathBuf = world.path("aside.img");
    std::fs::rename(world.cache_file(), &aside).expect("cannot take the cache away");
    let said = world.refused(&[]);
    for part in ["volume \"disk\"", "dirty data", "cache.img", "--drop-dirty disk"] {
        assert!(said.contains(part), "{part}: {said}");
    }
    assert!(!world.cache_file().exists(), "a refused start makes no cache");
    // A blank file is not made a cache, and another cache is not taken for the right one.
    std::fs::write(world.cache_file(), vec![0; 1 << 20]).expect("cannot make a file");
    assert!(world.refused(&[]).contains("dirty data"));
    std::fs::remove_file(world.cache_file()).expect("cannot remove a file");
    run_ok(Command::new(program("zcctl")).args(["format", "--size", "16 MiB"]).arg(world.cache_file()));
    assert!(world.refused(&[]).contains("dirty data"));
    std::fs::remove_file(world.cache_file()).expect("cannot remove a file");
    // Nor is the origin served under another name.
    std::fs::rename(&aside, world.cache_file()).expect("cannot put the cache back");
    let lines = world.volumes[0].2.clone() + &format!("origin = \"{}\"\n", world.origin("disk").display());
    let right = std::mem::replace(&mut world.volumes[0], ("other".to_owned(), 0, lines));
    assert!(world.refused(&[]).contains("old name"));
    world.volumes[0] = right;
    let daemon = world.start();
    same(&read_all(&world), &image, "the volume");
    zcctl_flush(&world);
    world.origin_is("disk", &image);
    assert_eq!(daemon.terminate().code(), Some(0));
}

#[test]
fn a_mode_changed_while_serving_is_remembered_without_the_cache() {
    let mut world = world(512, false);
    for by_reload in [false, true] {
        let lines = world.volumes[0].2.replace("write-back", "write-through");
        let lines = std::mem::replace(&mut world.volumes[0].2, lines);
        let daemon = world.start();
        world.volumes[0].2 = lines;
        let _config = world.configure();
        let change = if by_reload {
            json!({ "cmd": "reload" })
        } else {
            json!({ "cmd": "set-mode", "volume": "disk", "mode": "write-back" })
        };
        let answer = world.control(&change);
        assert_eq!(answer["ok"], true, "{answer}");
        let mut client = world.connect("disk");
        client.write(0, &[8; 4096]).expect("write");
        client.flush().expect("flush");
        daemon.kill9();
        let aside = world.path("aside.img");
        std::fs::rename(world.cache_file(), &aside).expect("cannot take the cache away");
        assert!(world.refused(&[]).contains("dirty data"));
        std::fs::rename(&aside, world.cache_file()).expect("cannot put the cache back");
        let daemon = world.start();
        zcctl_flush(&world);
        assert_eq!(daemon.terminate().code(), Some(0));
    }
    let mut expected = vec![0; size()];
    expected[..4096].fill(8);
    world.origin_is("disk", &expected);
}

#[test]
fn a_volume_that_is_not_served_keeps_its_data() {
    let mut world = world(512, false);
    let image = flushed_and_killed(&world, 4);
    let disk = world.volumes.remove(0);
    world.volumes.push(("other".to_owned(), MIB, String::new()));
    let daemon = world.start();
    world.connect("other").write(0, &[1; 65536]).expect("write");
    let status = world.status();
    assert_eq!(status["unserved_dirty"][0]["name"], "disk", "{status}");
    assert_eq!(daemon.terminate().code(), Some(0));
    world.volumes.push(disk);
    let daemon = world.start();
    same(&read_all(&world), &image, "the volume when it is served again");
    zcctl_flush(&world);
    world.origin_is("disk", &image);
    assert_eq!(daemon.terminate().code(), Some(0));
}

#[test]
fn a_changed_origin_is_refused_until_the_operator_decides() {
    let world = world(512, false);
    let daemon = world.start();
    world.connect("disk").write(0, &image(5)).expect("write");
    assert_eq!(world.zcctl_output(&["stop", "--keep-dirty"]).status.code(), Some(0));
    assert_eq!(daemon.wait().code(), Some(0));
    let theirs = vec![0x77; size()];
    std::fs::write(world.origin("disk"), &theirs).expect("cannot write the origin");
    for arguments in [&[][..], &["--cold"]] {
        let said = world.refused(arguments);
        for part in ["written", "--trust-dirty disk", "--drop-dirty disk"] {
            assert!(said.contains(part), "{part}: {said}");
        }
    }
    world.origin_is("disk", &theirs);
    let daemon = world.start_with(&["--drop-dirty", "disk"]);
    same(&read_all(&world), &theirs, "the origin's bytes");
    // A decision is made once, also when the daemon is killed right after it.
    daemon.kill9();
    let daemon = world.start();
    same(&read_all(&world), &theirs, "the origin's bytes after a kill");
    assert_eq!(dirty(&world)["bytes"], 0);
    assert_eq!(daemon.terminate().code(), Some(0));
    world.origin_is("disk", &theirs);
}

#[test]
fn an_old_image_of_the_cache_is_refused() {
    let world = world(512, false);
    let old = flushed_and_killed(&world, 6);
    let backup = read_file(&world.cache_file());
    let daemon = world.start();
    same(&read_all(&world), &old, "the volume");
    let mut client = world.connect("disk");
    client.write(0, &[9; 4096]).expect("write");
    client.flush().expect("flush");
    daemon.kill9();
    let newest = read_file(&world.cache_file());
    std::fs::write(world.cache_file(), &backup).expect("cannot put the backup back");
    let said = world.refused(&[]);
    assert!(said.contains("older image") && said.contains("--trust-dirty disk"), "{said}");
    std::fs::write(world.cache_file(), &newest).expect("cannot put the cache back");
    let daemon = world.start();
    let mut expected = old;
    expected[..4096].fill(9);
    same(&read_all(&world), &expected, "the volume");
    zcctl_flush(&world);
    world.origin_is("disk", &expected);
    assert_eq!(daemon.terminate().code(), Some(0));
}

/// The cache fails under a volume with dirty data: it is fenced, one in write-through is served, and when the cache
/// works again all flushed data is present.
fn full_disk(on_cache_loss: &str) {
    let mut world = world(64, false);
    world.volumes[0].2.push_str(&format!("on_cache_loss = \"{on_cache_loss}\"\n"));
    world.volumes.push(("other".to_owned(), 4 * MIB, String::new()));
    let mount = Mount::new(&["-t", "tmpfs", "-o", "size=20m", "none"], world.path("small"));
    world.cache_path = "small/cache.img".into();
    world.cache.push_str("direct = false\n");
    // A sparse file promises more than the disk has.
    std::fs::File::create(world.cache_file())
        .and_then(|file| file.set_len(64 * MIB))
        .expect("cannot make the cache file");
    let daemon = world.start();
    let data = DataGen::new(9, 65536);
    let mut client = world.connect("disk");
    let mut flushed = 0;
    for block in 0..size() / 65536 {
        let bytes = data.block(BlockKind::Incompressible, u64::try_from(block).expect("small"));
        let offset = u64::try_from(block * 65536).expect("small");
        if client.write(offset, &bytes).and_then(|()| client.flush()).is_err() {
            break;
        }
        flushed = block + 1;
    }
    assert!(flushed > 16 && flushed < size() / 65536, "{flushed} blocks were flushed");
    let _stats = world.stats_until("the volume is fenced", |stats| stats["dirty"]["disk"]["fenced"] == true);
    if let Ok(found) = client.read(0, 65536) {
        assert_eq!(on_cache_loss, "read-only", "a fenced volume answers");
        same(&found, &data.block(BlockKind::Incompressible, 0), "what can still be read is right");
    }
    client.write(0, &[1; 512]).expect_err("a fenced volume takes nothing");
    // The last block was not flushed.
    let clean = client.read(u64::try_from(size() - 65536).expect("small"), 65536);
    assert_eq!(clean.is_ok(), on_cache_loss == "read-only", "{:?}", clean.err());
    let flush = world.zcctl_output(&["flush", "disk"]);
    assert_eq!(flush.status.code(), Some(1), "{flush:?}");
    let mut other = world.connect("other");
    other.write(0, &[5; 65536]).expect("write-through goes on");
    other.flush().expect("flush");
    assert_eq!(other.read(0, 65536).expect("read"), vec![5; 65536]);
    drop((client, other));
    daemon.kill9();
    run_ok(Command::new("mount").args(["-o", "remount,size=100m"]).arg(mount.path()));
    let daemon = world.start();
    let mut client = world.connect("disk");
    for block in 0..flushed {
        let number = u64::try_from(block).expect("small");
        let found = client.read(number * 65536, 65536).expect("read");
        same(&found, &data.block(BlockKind::Incompressible, number), &format!("block {block} of {flushed}"));
    }
    zcctl_flush(&world);
    assert_eq!(daemon.terminate().code(), Some(0));
}

#[test]
fn a_full_disk_under_the_cache_loses_nothing_that_was_flushed() {
    full_disk("error");
}

#[test]
fn a_full_disk_under_the_cache_leaves_a_volume_readable_if_wanted() {
    full_disk("read-only");
}
