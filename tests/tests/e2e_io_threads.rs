//! Several I/O threads: each serves, clients read their own writes, and a kill or a stop under load loses nothing.

#![expect(clippy::expect_used, reason = "a test; what fails here is a failure")]

use std::fs;

use rand::RngExt as _;
use zc_engine::NbdClient;
use zc_tests::{BlockKind, Daemon, DataGen, MIB, World, rng, same, seed_from_env};

const THREADS: usize = 4;
/// More than one for each thread, so that threads wait for each other.
const CLIENTS: usize = 8;
const PART_BYTES: usize = 2 << 20;
/// Start of the part after the clients' own ones, which all of them read and none writes.
const COMMON: usize = CLIENTS * PART_BYTES;
const COMMON_BYTES: usize = 4 << 20;
const VOLUME_BYTES: usize = COMMON + COMMON_BYTES;
const STEPS: usize = 300;
/// Acknowledged data survives a kill, without a flush.
const WRITE_BACK: &str = "mode = \"write-back\"\nack = \"durable\"\n";

fn world() -> World {
    let mut world = World::new(24, u64::try_from(VOLUME_BYTES).expect("small") / MIB);
    world.cache.push_str(&format!("weu_size = \"256 KiB\"\nio_threads = {THREADS}\n"));
    let size_bytes = u64::try_from(VOLUME_BYTES).expect("small");
    world.volumes.push(("back".to_owned(), size_bytes, WRITE_BACK.to_owned()));
    world
}

fn at(offset: usize) -> u64 {
    u64::try_from(offset).expect("volumes are small")
}

/// Runs a client's steps until they are done or the daemon ends. Returns its part of the volume as acknowledged, and
/// the unanswered write: position and bytes.
fn work(
    mut client: NbdClient,
    number: usize,
    image: &[u8],
    steps: usize,
) -> (Vec<u8>, Option<(usize, Vec<u8>)>) {
    let first = number * PART_BYTES;
    let mut twin = image[first..first + PART_BYTES].to_vec();
    let mut random = rng(seed_from_env(70) + at(number));
    let data = DataGen::new(at(number), 512);
    for _ in 0..steps {
        let len = random.random_range(1..=96_usize) * 512;
        let offset = random.random_range(0..=(PART_BYTES - len) / 512) * 512;
        if random.random_bool(0.5) {
            let block = data.block(BlockKind::Compressible, random.random_range(0..500));
            let bytes: Vec<u8> = block.iter().copied().cycle().take(len).collect();
            if client.write(at(first + offset), &bytes).is_err() {
                return (twin, Some((offset, bytes)));
            }
            twin[offset..offset + len].copy_from_slice(&bytes);
        } else {
            let Ok(found) = client.read(at(first + offset), len) else { return (twin, None) };
            same(&found, &twin[offset..offset + len], "a client's own part");
        }
        let common = COMMON + random.random_range(0..=(COMMON_BYTES - len) / 512) * 512;
        let Ok(found) = client.read(at(common), len) else { return (twin, None) };
        same(&found, &image[common..common + len], "the common part");
    }
    client.flush().expect("what was written is made durable");
    (twin, None)
}

/// Runs all clients at once, half of them on each volume, and `meanwhile` beside them.
fn at_once(
    world: &World,
    images: &mut [Vec<u8>; 2],
    steps: usize,
    meanwhile: impl FnOnce(),
) -> Vec<(usize, usize, Vec<u8>)> {
    let before = images.clone();
    let ends: Vec<_> = std::thread::scope(|scope| {
        let workers: Vec<_> = (0..CLIENTS)
            .map(|number| {
                let client = world.connect(["disk", "back"][number % 2]);
                let image = &before[number % 2];
                scope.spawn(move || work(client, number, image, steps))
            })
            .collect();
        meanwhile();
        workers.into_iter().map(|worker| worker.join().expect("the client saw what it wrote")).collect()
    });
    let mut unanswered = Vec::new();
    for (number, (twin, pending)) in ends.into_iter().enumerate() {
        let first = number * PART_BYTES;
        images[number % 2][first..first + PART_BYTES].copy_from_slice(&twin);
        unanswered.extend(pending.map(|(offset, bytes)| (number % 2, first + offset, bytes)));
    }
    unanswered
}

fn images() -> [Vec<u8>; 2] {
    [1, 2].map(|seed| DataGen::new(seed, 8192).mixed(VOLUME_BYTES / 8192))
}

fn fill(world: &World, images: &[Vec<u8>; 2]) {
    for (volume, image) in ["disk", "back"].into_iter().zip(images) {
        let mut client = world.connect(volume);
        client.write(0, image).expect("fill");
        client.flush().expect("flush");
    }
}

/// A write without an answer is there or not, sector by sector.
fn adopt(world: &World, images: &mut [Vec<u8>; 2], unanswered: &[(usize, usize, Vec<u8>)]) {
    for (of, offset, bytes) in unanswered {
        let found = world.connect(["disk", "back"][*of]).read(at(*offset), bytes.len()).expect("read");
        for ((found, new), at) in found.chunks(512).zip(bytes.chunks(512)).zip((*offset..).step_by(512)) {
            if found == new {
                images[*of][at..at + 512].copy_from_slice(new);
            }
        }
    }
}

fn compare(world: &World, images: &[Vec<u8>; 2]) {
    for (volume, image) in ["disk", "back"].into_iter().zip(images) {
        same(&world.connect(volume).read(0, image.len()).expect("read"), image, volume);
    }
}

/// Ends the daemon. Its origins have everything then.
fn the_origins_are(world: &World, daemon: Daemon, images: &[Vec<u8>; 2]) {
    assert!(world.zcctl_output(&["flush", "back"]).status.success());
    assert_eq!(daemon.terminate().code(), Some(0));
    world.origin_is("disk", &images[0]);
    world.origin_is("back", &images[1]);
}

/// Nanoseconds that each I/O thread of a process has run.
fn ran(pid: u32) -> Vec<u64> {
    let tasks = fs::read_dir(format!("/proc/{pid}/task")).expect("the daemon runs").flatten();
    let of = |name: &str, task: &std::path::Path| fs::read_to_string(task.join(name)).unwrap_or_default();
    let io_threads = tasks.map(|task| task.path()).filter(|task| of("comm", task).starts_with("shard-"));
    let ran = |task: std::path::PathBuf| of("schedstat", &task).split(' ').next()?.parse().ok();
    io_threads.filter_map(ran).collect()
}

#[test]
fn every_thread_serves_and_a_kill_loses_nothing() {
    let world = world();
    let mut images = images();
    let daemon = world.start();
    fill(&world, &images);
    let before = ran(daemon.pid());
    assert_eq!(before.len(), THREADS);
    let unanswered = at_once(&world, &mut images, STEPS, || ());
    assert!(unanswered.is_empty());
    let each: Vec<u64> = ran(daemon.pid()).iter().zip(&before).map(|(now, then)| now - then).collect();
    let sum: u64 = each.iter().sum();
    assert!(each.iter().all(|ran| ran * 20 > sum), "each thread has a quarter of the connections: {each:?}");
    let driver = &world.stats()["driver"];
    assert!(driver["turns"].as_u64() > Some(0) && driver["turns_us"].as_u64() > Some(0), "{driver}");
    daemon.kill9();
    let daemon = world.start();
    compare(&world, &images);
    the_origins_are(&world, daemon, &images);
}

#[test]
fn a_kill_and_a_stop_in_the_middle_lose_nothing_that_was_acknowledged() {
    let mut world = world();
    let mut images = images();
    let mut daemon = Some(world.start());
    fill(&world, &images);
    for is_kill in [true, false, true, false] {
        let running = daemon.take().expect("it was started");
        let unanswered = at_once(&world, &mut images, usize::MAX, || {
            let reads = || world.counter("reads");
            let begun = reads();
            while reads() < begun + 400 {
                std::thread::yield_now();
            }
            if is_kill {
                running.kill9();
            } else {
                assert_eq!(running.terminate().code(), Some(0));
            }
        });
        // Another number of threads finds the same.
        world.cache = world.cache.replace("io_threads = 4", "io_threads = 3");
        daemon = Some(world.start());
        adopt(&world, &mut images, &unanswered);
        compare(&world, &images);
    }
    let daemon = daemon.expect("it was started");
    the_origins_are(&world, daemon, &images);
}
